//! The gradients of attention by tensor cores, from the statistics of the rows of queries.

// Turns the product of a query and a key into a weight, and the gradient of the weight into the
// unscaled gradient of the product.
template <bool IS_WHOLE>
__device__ __forceinline__ void grade(float& score, float& slope, const Mask& mask, int query, int key, float logarithm, float mean) {
  int at = position(mask, query);
  float product = score;
  score = weight_of(mask, product, IS_WHOLE || (query < QUERIES && is_seen(mask, query, at, key)), query, at, key, logarithm);
  slope = through_function(mask, product, score * (slope - mean), at, key);
}

// The tiles of queries, the gradients of their results and their statistics: the current ones, and
// the next ones if there is a second stage.
struct QueryTiles {
  const Query* query;
  const Gradient* gradient;
  const float *logarithm, *mean;
  unsigned* tiles;
  Span segments;
  int stage;

  static constexpr int GRADIENTS = TILE_COLUMNS * FEATURE_STRIDE;
  static constexpr int LOGARITHMS = GRADIENTS + TILE_COLUMNS * WIDTH_STRIDE;
  static constexpr int MEANS = LOGARITHMS + TILE_COLUMNS;
  static constexpr int N_WORDS = MEANS + TILE_COLUMNS;

  __device__ __forceinline__ void begin(int start) {
    unsigned* to = tiles + stage * N_WORDS;
    fetch<TILE_COLUMNS, FEATURES, FEATURE_STRIDE, QUERY_ROW>(to, query, start, QUERIES);
    fetch<TILE_COLUMNS, WIDTH, WIDTH_STRIDE, GRADIENT_ROW>(to + GRADIENTS, gradient, start, QUERIES);
    static_assert(2 * TILE_COLUMNS <= THREADS, "each thread copies one number");
    int row = start + threadIdx.x % TILE_COLUMNS;
    if (threadIdx.x >= 2 * TILE_COLUMNS) return;
    soybean_copy_4(to + LOGARITHMS + threadIdx.x, (threadIdx.x < TILE_COLUMNS ? logarithm : mean) + row, row >= QUERIES);
  }
};

// A tile of keys, their values, and the sums of their gradients.
struct KeyTile {
  int first;
  const unsigned *keys, *values;
  float key_sums[ROW_TILES][FEATURE_TILES][4];
  float value_sums[ROW_TILES][WIDTH_TILES][4];
};

// Returns true if any of the keys of a tile is seen by queries from `start` on.
__device__ __forceinline__ bool is_left(const Mask& mask, int start, int first) { return start < QUERIES && !is_past(mask, start, first + TILE_ROWS - 1); }
__device__ __forceinline__ bool is_query_tile_whole(const Mask& mask, int start, int first) {
  return (QUERIES % TILE_COLUMNS == 0 || start + TILE_COLUMNS <= QUERIES) && is_whole(mask, start, TILE_COLUMNS, first, TILE_ROWS);
}

// Adds what a tile of queries gives to the gradients of a tile of keys. Returns the start of the
// next tile.
template <bool IS_WHOLE> __device__ __forceinline__ int add_queries(KeyTile& to, QueryTiles& queries, const Mask& mask, int start) {
  int next = next_queries(mask, start + TILE_COLUMNS, TILE_COLUMNS, queries.segments);
  if constexpr (STAGES == 1) __syncthreads(), queries.begin(start);
  arrive();
  const unsigned *tile = queries.tiles + queries.stage * QueryTiles::N_WORDS, *gradients = tile + QueryTiles::GRADIENTS;
  if constexpr (STAGES == 2) {
    queries.stage = 1 - queries.stage;
    if (is_left(mask, next, to.first)) queries.begin(next);
  }
  float weights[ROW_TILES][SCORE_TILES][4], slopes[ROW_TILES][SCORE_TILES][4];
  dot_rows<FEATURE_STEPS, FEATURE_STRIDE>(weights, to.keys, tile);
  clear(slopes);
  if (HAS_KEY_GRADIENT) dot_rows<WIDTH_STEPS, WIDTH_STRIDE>(slopes, to.values, gradients);
  const float *logarithms = (const float*)tile + QueryTiles::LOGARITHMS, *means = (const float*)tile + QueryTiles::MEANS;
#pragma unroll
  for (int n = 0; n < SCORE_TILES; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int column = column_of(n, i);
#pragma unroll
      for (int m = 0; m < ROW_TILES; ++m) {
        grade<IS_WHOLE>(weights[m][n][i], slopes[m][n][i], mask, start + column, to.first + row_of(m, i / 2), logarithms[column], means[column]);
      }
    }
  }
  if (HAS_VALUE_GRADIENT) add_product<WIDTH_TILES, WIDTH_STRIDE>(to.value_sums, weights, gradients);
  if (HAS_KEY_GRADIENT) add_product<FEATURE_TILES, FEATURE_STRIDE>(to.key_sums, slopes, tile);
  return next;
}

// Computes the gradients of a tile of keys and of their values.
__device__ __forceinline__ void key_gradients(const Query* query, const Key* key, const Value* value, const Gradient* gradient, Mask mask,
                                              const float* logarithm, const float* mean, KeyResult* key_result, ValueResult* value_result) {
  SOYBEAN_SHARED(unsigned, shared);
  unsigned *keys = shared, *values = keys + TILE_ROWS * FEATURE_STRIDE, *tiles = values + TILE_ROWS * WIDTH_STRIDE;
  long long head = blockIdx.x / KEY_TILES;
  int first = blockIdx.x % KEY_TILES * TILE_ROWS;
  fetch<TILE_ROWS, FEATURES, FEATURE_STRIDE, KEY_ROW>(keys, key_of(key, head), first, KEYS);
  fetch<TILE_ROWS, WIDTH, WIDTH_STRIDE, VALUE_ROW>(values, value_of(value, head), first, KEYS);
  KeyTile to = {first, keys, values};
  clear(to.key_sums), clear(to.value_sums);
  QueryTiles queries = {query, gradient, logarithm, mean, tiles};
  for (int member = 0; member < GROUP; ++member) {
    long long query_head = head * GROUP + member;
    queries.query = query_of(query, query_head), queries.gradient = gradient_of(gradient, query_head);
    queries.logarithm = logarithm + query_head * QUERIES, queries.mean = mean + query_head * QUERIES;
    Mask own = of_head(mask, query_head);
    queries.segments = span(own.key_segments, first, TILE_ROWS, KEYS);
    int start = next_queries(own, first_seeing(mask, first, TILE_COLUMNS), TILE_COLUMNS, queries.segments);
    if (STAGES == 2 && is_left(own, start, first)) queries.begin(start);
    while (is_left(own, start, first)) {
      while (is_left(own, start, first) && !is_query_tile_whole(own, start, first)) start = add_queries<false>(to, queries, own, start);
      while (is_left(own, start, first) && is_query_tile_whole(own, start, first)) start = add_queries<true>(to, queries, own, start);
    }
  }
  float factor[ROW_TILES][2];
  fill(factor, SCALE);
  if (HAS_KEY_GRADIENT) put_sums<FEATURE_TILES, FEATURES, KEY_RESULT_ROW>(head_of<KEY_RESULT_HEADS, KEYS, FEATURES>(key_result, head), first, KEYS, to.key_sums, factor);
  fill(factor, 1.0f);
  if (HAS_VALUE_GRADIENT) put_sums<WIDTH_TILES, WIDTH, VALUE_RESULT_ROW>(head_of<VALUE_RESULT_HEADS, KEYS, WIDTH>(value_result, head), first, KEYS, to.value_sums, factor);
}

// The tiles of keys and values, as those of queries.
struct KeyTiles {
  const Key* key;
  const Value* value;
  unsigned* tiles;
  Span segments;
  int end, stage;

  static constexpr int VALUES = TILE_COLUMNS * FEATURE_STRIDE;
  static constexpr int N_WORDS = VALUES + TILE_COLUMNS * WIDTH_STRIDE;

  __device__ __forceinline__ void begin(int start) const {
    unsigned* to = tiles + stage * N_WORDS;
    fetch<TILE_COLUMNS, FEATURES, FEATURE_STRIDE, KEY_ROW>(to, key, start, KEYS);
    fetch<TILE_COLUMNS, WIDTH, WIDTH_STRIDE, VALUE_ROW>(to + VALUES, value, start, KEYS);
  }
};

// A tile of queries, the gradients of their results, their statistics and the sums of their
// gradients.
struct QueryTile {
  int first;
  const unsigned *queries, *gradients;
  float logarithms[ROW_TILES][2], means[ROW_TILES][2];
  float sums[ROW_TILES][FEATURE_TILES][4];
};

// Adds what a tile of keys gives to the gradients of a tile of queries. Returns the start of the
// next tile.
template <bool IS_WHOLE> __device__ __forceinline__ int add_keys(QueryTile& to, KeyTiles& keys, const Mask& mask, int start) {
  int next = next_keys(mask, start + TILE_COLUMNS, keys.end, TILE_COLUMNS, keys.segments);
  if constexpr (STAGES == 1) __syncthreads(), keys.begin(start);
  arrive();
  const unsigned* tile = keys.tiles + keys.stage * KeyTiles::N_WORDS;
  if constexpr (STAGES == 2) {
    keys.stage = 1 - keys.stage;
    if (next < keys.end) keys.begin(next);
  }
  float weights[ROW_TILES][SCORE_TILES][4], slopes[ROW_TILES][SCORE_TILES][4];
  dot_rows<FEATURE_STEPS, FEATURE_STRIDE>(weights, to.queries, tile);
  dot_rows<WIDTH_STEPS, WIDTH_STRIDE>(slopes, to.gradients, tile + KeyTiles::VALUES);
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
    for (int n = 0; n < SCORE_TILES; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int row = to.first + row_of(m, i / 2), column = start + column_of(n, i);
        grade<IS_WHOLE>(weights[m][n][i], slopes[m][n][i], mask, row, column, to.logarithms[m][i / 2], to.means[m][i / 2]);
      }
    }
  }
  add_product<FEATURE_TILES, FEATURE_STRIDE>(to.sums, slopes, tile);
  return next;
}

// Computes the gradients of a tile of queries.
__device__ __forceinline__ void query_gradients(const Query* query, const Key* key, const Value* value, const Gradient* gradient, Mask mask,
                                                const float* logarithm, const float* mean, QueryResult* result) {
  SOYBEAN_SHARED(unsigned, shared);
  unsigned *queries = shared, *gradients = queries + TILE_ROWS * FEATURE_STRIDE, *tiles = gradients + TILE_ROWS * WIDTH_STRIDE;
  long long head = blockIdx.x / QUERY_TILES;
  int first = first_query();
  mask = of_head(mask, head);
  fetch<TILE_ROWS, FEATURES, FEATURE_STRIDE, QUERY_ROW>(queries, query_of(query, head), first, QUERIES);
  fetch<TILE_ROWS, WIDTH, WIDTH_STRIDE, GRADIENT_ROW>(gradients, gradient_of(gradient, head), first, QUERIES);
  QueryTile to = {first, queries, gradients};
  clear(to.sums);
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int row = first + row_of(m, half);
      to.logarithms[m][half] = row < QUERIES ? logarithm[head * QUERIES + row] : SOYBEAN_INFINITY;
      to.means[m][half] = row < QUERIES ? mean[head * QUERIES + row] : 0.0f;
    }
  }
  Span segments = span(mask.query_segments, first, TILE_ROWS, QUERIES);
  KeyTiles keys = {key_of(key, head / GROUP), value_of(value, head / GROUP), tiles, segments, n_seen(mask, first + TILE_ROWS)};
  int start = next_keys(mask, first_seen(mask, first, TILE_COLUMNS), keys.end, TILE_COLUMNS, segments);
  if (STAGES == 2 && start < keys.end) keys.begin(start);
  while (start < keys.end) {
    while (start < keys.end && !is_whole(mask, first, TILE_ROWS, start, TILE_COLUMNS)) start = add_keys<false>(to, keys, mask, start);
    while (start < keys.end && is_whole(mask, first, TILE_ROWS, start, TILE_COLUMNS)) start = add_keys<true>(to, keys, mask, start);
  }
  float factor[ROW_TILES][2];
  fill(factor, SCALE);
  put_sums<FEATURE_TILES, FEATURES, QUERY_RESULT_ROW>(head_of<QUERY_RESULT_HEADS, QUERIES, FEATURES>(result, head), first, QUERIES, to.sums, factor);
}
