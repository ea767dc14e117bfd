//! The places of heads and rows in memory. In each tensor, the rows of a number of heads alternate.

// The distances between rows in elements.
constexpr int QUERY_ROW = QUERY_HEADS * FEATURES;
constexpr int KEY_ROW = KEY_HEADS * FEATURES;
constexpr int VALUE_ROW = VALUE_HEADS * WIDTH;
constexpr int GRADIENT_ROW = GRADIENT_HEADS * WIDTH;
constexpr int RESULT_ROW = RESULT_HEADS * WIDTH;
constexpr int QUERY_RESULT_ROW = QUERY_RESULT_HEADS * FEATURES;
constexpr int KEY_RESULT_ROW = KEY_RESULT_HEADS * FEATURES;
constexpr int VALUE_RESULT_ROW = VALUE_RESULT_HEADS * WIDTH;

// Returns the first row of a head with ROWS rows of LENGTH elements. The rows of HEADS heads
// alternate.
template <int HEADS, int ROWS, int LENGTH, class Element> __device__ __forceinline__ Element* head_of(Element* tensor, long long head) {
  return tensor + (HEADS == 1 ? head * ROWS : head / HEADS * HEADS * ROWS + head % HEADS) * LENGTH;
}
__device__ __forceinline__ const Query* query_of(const Query* query, long long head) { return head_of<QUERY_HEADS, QUERIES, FEATURES>(query, head); }
__device__ __forceinline__ const Key* key_of(const Key* key, long long head) { return head_of<KEY_HEADS, KEYS, FEATURES>(key, head); }
__device__ __forceinline__ const Value* value_of(const Value* value, long long head) { return head_of<VALUE_HEADS, KEYS, WIDTH>(value, head); }
__device__ __forceinline__ const Gradient* gradient_of(const Gradient* gradient, long long head) {
  return head_of<GRADIENT_HEADS, QUERIES, WIDTH>(gradient, head);
}
