//! The keys that queries see, by the positions of the queries.

constexpr int KEYS_SEEN_LAST = IS_CAUSAL ? (QUERIES < KEYS ? QUERIES : KEYS) : KEYS;

// Returns the position of a query. Those past the last one are where the last one is.
__device__ __forceinline__ int position(const int* positions, int query) {
  return HAS_POSITIONS ? positions[query < QUERIES ? query : QUERIES - 1] : query;
}

// Returns the number of keys that the queries before `end` see.
__device__ __forceinline__ int n_seen(const int* positions, int end) {
  if (!HAS_POSITIONS) return IS_CAUSAL && end < KEYS_SEEN_LAST ? end : KEYS_SEEN_LAST;
  int last = position(positions, end - 1);
  return last < KEYS ? last + 1 : KEYS;
}

// Returns the start of the first of the tiles of `n_keys` that any query from `query` on sees.
__device__ __forceinline__ int first_seen(const int* positions, int query, int n_keys) {
  if (!HAS_WINDOW) return 0;
  int first = position(positions, query) - (WINDOW - 1);
  return first > 0 ? first / n_keys * n_keys : 0;
}

// Returns true if a query at this position sees a key.
__device__ __forceinline__ bool is_seen(int position, int key) {
  return key < KEYS && (!IS_CAUSAL || key <= position) && (!HAS_WINDOW || key > position - WINDOW);
}

// Returns true if every one of these queries sees all these keys.
__device__ __forceinline__ bool is_whole(const int* positions, int query, int n_queries, int key, int n_keys) {
  return key + n_keys <= KEYS && (!IS_CAUSAL || key + n_keys <= position(positions, query) + 1) &&
         (!HAS_WINDOW || key > position(positions, query + n_queries - 1) - WINDOW);
}

// Returns true if the queries from `query` on see only keys after this one.
__device__ __forceinline__ bool is_past(const int* positions, int query, int key) { return HAS_WINDOW && position(positions, query) - WINDOW >= key; }

// Returns the finite number from which the scores of a row are measured, given the largest. A row
// of a window may see no key of a tile.
__device__ __forceinline__ float base(float most) { return HAS_WINDOW && most == -SOYBEAN_INFINITY ? 0.0f : most; }

// Returns a sum of a row over its total of weights, which is 0 only if it sees no key.
__device__ __forceinline__ float normal(float sum, float total) { return HAS_WINDOW && total == 0.0f ? 0.0f : sum / total; }

// Returns the first of the tiles of `n_rows` queries of which any sees this key or a later one.
__device__ __forceinline__ int first_seeing(const int* positions, int key, int n_rows) {
  if (!IS_CAUSAL) return 0;
  if (!HAS_POSITIONS) return key / n_rows * n_rows;
  int start = 0;
  while (start + n_rows < QUERIES && positions[start + n_rows - 1] < key) start += n_rows;
  return start;
}
