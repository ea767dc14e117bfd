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

// Returns true if a query at this position sees a key.
__device__ __forceinline__ bool is_seen(int position, int key) { return key < KEYS && (!IS_CAUSAL || key <= position); }

// Returns true if every query from `query` on sees all these keys.
__device__ __forceinline__ bool is_whole(const int* positions, int query, int key, int n_keys) {
  return key + n_keys <= KEYS && (!IS_CAUSAL || key + n_keys <= position(positions, query) + 1);
}

// Returns the first of the tiles of `n_rows` queries of which any sees this key or a later one.
__device__ __forceinline__ int first_seeing(const int* positions, int key, int n_rows) {
  if (!IS_CAUSAL) return 0;
  if (!HAS_POSITIONS) return key / n_rows * n_rows;
  int start = 0;
  while (start + n_rows < QUERIES && positions[start + n_rows - 1] < key) start += n_rows;
  return start;
}
