//! The keys that queries see, by positions and segments, and how products become scores.

// What the queries of a head see. A pointer that this kernel does not read is null.
struct Mask {
  const int* positions;
  const int* query_segments;
  const int* key_segments;
  const Bias* bias;
  const int* heads;
  // The number of the head, for a function of scores.
  int head;
  // The first key of the sequence, if there is a halo.
  int first_key;
};

// Returns the mask of a head of queries, given that of all.
__device__ __forceinline__ Mask of_head(Mask mask, long long head) {
  if (HAS_SEGMENTS) {
    long long row = head / SEGMENT_HEADS;
    mask.query_segments += row * QUERIES, mask.key_segments += row * KEYS;
  }
  if (HAS_HALO && mask.positions[0] < HALO) mask.first_key = HALO - mask.positions[0];
  if (HAS_HEADS) mask.head = mask.heads[head % HEAD_NUMBERS];
  if (HAS_BIAS) mask.bias += head / BIAS_REPEATS % BIAS_MATRICES * BIAS_ROWS * KEYS;
  return mask;
}

constexpr int KEYS_SEEN_LAST = IS_CAUSAL ? (HALO + QUERIES < KEYS ? HALO + QUERIES : KEYS) : KEYS;

// Returns the position of a query among the keys. Those past the last one that are read are where
// the last one is.
__device__ __forceinline__ int position(const Mask& mask, int query) {
  return HAS_POSITIONS ? mask.positions[query < QUERIES ? query : QUERIES - 1] : HALO + query;
}

// Returns the number of keys that the queries before `end` see.
__device__ __forceinline__ int n_seen(const Mask& mask, int end) {
  if (!HAS_POSITIONS) return IS_CAUSAL && HALO + end < KEYS_SEEN_LAST ? HALO + end : KEYS_SEEN_LAST;
  int last = position(mask, end - 1);
  return last < KEYS ? last + 1 : KEYS;
}

// Returns the start of the first of the tiles of `n_keys` that any query from `query` on sees.
__device__ __forceinline__ int first_seen(const Mask& mask, int query, int n_keys) {
  if (!HAS_WINDOW) return 0;
  int first = position(mask, query) - (WINDOW - 1);
  if (HAS_HALO && first < mask.first_key) first = mask.first_key;
  return first > 0 ? first / n_keys * n_keys : 0;
}

// Returns true if a query, at this position, sees a key.
__device__ __forceinline__ bool is_seen(const Mask& mask, int query, int position, int key) {
  return key < KEYS && (!IS_CAUSAL || key <= position) && (!HAS_WINDOW || key > position - WINDOW) && (!HAS_HALO || key >= mask.first_key) &&
         (!HAS_SEGMENTS || mask.query_segments[query < QUERIES ? query : QUERIES - 1] == mask.key_segments[key]);
}

// Returns true if every one of these queries sees all these keys.
__device__ __forceinline__ bool is_whole(const Mask& mask, int query, int n_queries, int key, int n_keys) {
  return !HAS_SEGMENTS && (KEYS % n_keys == 0 || key + n_keys <= KEYS) && (!IS_CAUSAL || key + n_keys <= position(mask, query) + 1) &&
         (!HAS_WINDOW || key > position(mask, query + n_queries - 1) - WINDOW) && (!HAS_HALO || key >= mask.first_key);
}

// Returns true if the queries from `query` on see only keys after this one.
__device__ __forceinline__ bool is_past(const Mask& mask, int query, int key) { return HAS_WINDOW && position(mask, query) - WINDOW >= key; }

// The least and the greatest of some segments.
struct Span {
  int low, high;
};

// Returns the span of the segments of a tile, `first` and the next `n` of `n_all`.
__device__ __forceinline__ Span span(const int* segments, int first, int n, int n_all) {
  Span all = {2147483647, -2147483647 - 1};
  for (int i = first; HAS_SEGMENTS && i < first + n && i < n_all; ++i) {
    int segment = segments[i];
    all.low = segment < all.low ? segment : all.low, all.high = segment > all.high ? segment : all.high;
  }
  return all;
}

// Returns the first of the tiles of `n` rows from `start` on in which a segment may be one of a
// span. It is at or after `end` if there is none.
__device__ __forceinline__ int next_tile(const int* segments, int start, int end, int n, int n_all, Span own) {
  for (; HAS_SEGMENTS && start < end; start += n) {
    Span tile = span(segments, start, n, n_all);
    if (tile.low <= own.high && own.low <= tile.high) break;
  }
  return start;
}
__device__ __forceinline__ int next_keys(const Mask& mask, int start, int end, int n, Span own) {
  return next_tile(mask.key_segments, start, end, n, KEYS, own);
}
__device__ __forceinline__ int next_queries(const Mask& mask, int start, int n, Span own) {
  return next_tile(mask.query_segments, start, QUERIES, n, QUERIES, own);
}

// Returns what is added to a score of a key, times log2(e).
__device__ __forceinline__ float added(const Mask& mask, int query, int key) {
  long long row = BIAS_ROWS == 1 ? 0 : query < QUERIES ? query : QUERIES - 1;
  return LOG_OF_E * soybean_value(mask.bias[row * KEYS + key]);
}

// Scores are products without their factor, unless that changes their order.
constexpr bool ARE_PRODUCTS = !HAS_BIAS && !HAS_FUNCTION && SCALE > 0.0f;
// The factor with which the largest score and others become exponents of 2.
constexpr float STRETCH = ARE_PRODUCTS ? LOG_SCALE : 1.0f;

// Returns the score of a key, times log2(e), from a product. `at` is the position of the query.
__device__ __forceinline__ float score_of(const Mask& mask, float product, bool seen, int query, int at, int key) {
  if (HAS_FUNCTION) {
    float score = LOG_OF_E * score_function(SCALE * product, at, key, mask.head);
    return !seen ? -SOYBEAN_INFINITY : HAS_BIAS ? score + added(mask, query, key) : score;
  }
  if (HAS_BIAS) return seen ? fmaf(product, LOG_SCALE, added(mask, query, key)) : -SOYBEAN_INFINITY;
  return seen ? product * LOG_SCALE : -SOYBEAN_INFINITY;
}

// Returns the weight of a key from a product and the logarithm of the sum of all powers.
__device__ __forceinline__ float weight_of(const Mask& mask, float product, bool seen, int query, int at, int key, float logarithm) {
  if (!HAS_BIAS && !HAS_FUNCTION) return seen ? soybean_exp2(fmaf(product, LOG_SCALE, -logarithm)) : 0.0f;
  float score = score_of(mask, product, seen, query, at, key);
  return score == -SOYBEAN_INFINITY ? 0.0f : soybean_exp2(score - logarithm);
}

// Returns the unscaled gradient of a product from that of the score.
__device__ __forceinline__ float through_function(const Mask& mask, float product, float gradient, int at, int key) {
  // Without weight there is no gradient, even where the slope is no number.
  return HAS_SLOPE && gradient != 0.0f ? gradient * score_slope(SCALE * product, at, key, mask.head) : gradient;
}

// A row may see no key of a tile, or no key at all.
constexpr bool MAY_SEE_NONE = HAS_WINDOW || HAS_SEGMENTS || HAS_BIAS || HAS_FUNCTION;

// Returns the finite number from which the scores of a row are measured, given the largest.
__device__ __forceinline__ float base(float most) { return MAY_SEE_NONE && most == -SOYBEAN_INFINITY ? 0.0f : most; }

// Returns a sum of a row over its total of weights, which is 0 only if it sees no key.
__device__ __forceinline__ float normal(float sum, float total) { return MAY_SEE_NONE && total == 0.0f ? 0.0f : sum / total; }

// Returns the first of the tiles of `n_rows` queries of which any sees this key or a later one.
__device__ __forceinline__ int first_seeing(const Mask& mask, int key, int n_rows) {
  if (!IS_CAUSAL) return 0;
  if (!HAS_POSITIONS) return key > HALO ? (key - HALO) / n_rows * n_rows : 0;
  int start = 0;
  while (start + n_rows < QUERIES && mask.positions[start + n_rows - 1] < key) start += n_rows;
  return start;
}
