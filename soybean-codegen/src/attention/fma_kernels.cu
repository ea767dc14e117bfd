//! Attention and its gradients by fused multiply-add, a tile of scores at a time.
//!
//! Scores are multiplied by log2(e), so that weights are powers of 2. Source: Dao,
//! "FlashAttention-2", 2023.

constexpr int R = TILE_QUERIES / SIDE;
constexpr int C = TILE_KEYS / SIDE;
constexpr int FEATURE_GROUPS = (FEATURES + 4 * SIDE - 1) / (4 * SIDE);
constexpr int WIDTH_GROUPS = (WIDTH + 4 * SIDE - 1) / (4 * SIDE);

// The running statistics of the rows of a tile of queries.
struct Rows {
  float most[R];
  float total[R];
  float sums[R][WIDTH_GROUPS][4];
};

// Computes the sums of weighted values of a tile of queries.
__device__ __forceinline__ void attend(Rows& rows, const Query* query, const Key* key, const Value* value, Mask mask, int first, float* shared) {
  float* queries = shared;
  float* keys = queries + TILE_QUERIES * FEATURE_STRIDE;
  float* values = keys + TILE_KEYS * FEATURE_STRIDE;
  float* weights = values + TILE_KEYS * WIDTH_STRIDE;
  load_tile<TILE_QUERIES, FEATURES, FEATURE_STRIDE, QUERY_ROW>(queries, query, first, QUERIES);
#pragma unroll
  for (int r = 0; r < R; ++r) {
    rows.most[r] = -SOYBEAN_INFINITY, rows.total[r] = 0.0f;
#pragma unroll
    for (int g = 0; g < WIDTH_GROUPS; ++g) rows.sums[r][g][0] = rows.sums[r][g][1] = rows.sums[r][g][2] = rows.sums[r][g][3] = 0.0f;
  }
  Span own = span(mask.query_segments, first, TILE_QUERIES, QUERIES);
  int end = n_seen(mask, first + TILE_QUERIES), start = next_keys(mask, first_seen(mask, first, TILE_KEYS), end, TILE_KEYS, own);
  for (; start < end; start = next_keys(mask, start + TILE_KEYS, end, TILE_KEYS, own)) {
    __syncthreads();
    load_tile<TILE_KEYS, FEATURES, FEATURE_STRIDE, KEY_ROW>(keys, key, start, KEYS);
    load_tile<TILE_KEYS, WIDTH, WIDTH_STRIDE, VALUE_ROW>(values, value, start, KEYS);
    __syncthreads();
    float scores[R][C];
    dot_rows<R, C, FEATURES, FEATURE_STRIDE>(scores, queries, keys);
    bool whole = is_whole(mask, first, TILE_QUERIES, start, TILE_KEYS);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      int row = R * thread_row() + r, at = position(mask, first + row);
      float most = rows.most[r];
#pragma unroll
      for (int c = 0; c < C; ++c) {
        int column = start + thread_column() + SIDE * c;
        bool seen = whole || is_seen(mask, first + row, at, column);
        scores[r][c] = score_of(mask, scores[r][c], seen, first + row, at, column);
        most = fmaxf(most, scores[r][c]);
      }
      most = over_row<soybean_max>(most);
      float correction = soybean_exp2(rows.most[r] - base(most)), total = 0.0f;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        float weight = soybean_exp2(scores[r][c] - base(most));
        total += weight;
        weights[row * WEIGHT_STRIDE + thread_column() + SIDE * c] = weight;
      }
      rows.most[r] = most;
      rows.total[r] = rows.total[r] * correction + over_row<soybean_sum>(total);
#pragma unroll
      for (int g = 0; g < WIDTH_GROUPS; ++g) {
#pragma unroll
        for (int i = 0; i < 4; ++i) rows.sums[r][g][i] *= correction;
      }
    }
    // The same half of a warp writes and reads a row of weights.
    __syncwarp();
    add_rows_times<R, WIDTH_GROUPS, TILE_KEYS, WEIGHT_STRIDE, WIDTH, WIDTH_STRIDE>(rows.sums, weights, values);
  }
}

constexpr int QUERY_TILES = (QUERIES + TILE_QUERIES - 1) / TILE_QUERIES;
constexpr int KEY_TILES = (KEYS + TILE_KEYS - 1) / TILE_KEYS;

// In causal attention, the last queries have the most work, so they begin.
__device__ __forceinline__ int first_query() { return (QUERY_TILES - 1 - (int)(blockIdx.x % QUERY_TILES)) * TILE_QUERIES; }

__device__ __forceinline__ void forward(const Query* query, const Key* key, const Value* value, Mask mask, Result* result, float* logarithm) {
  SOYBEAN_SHARED(float, shared);
  long long head = blockIdx.x / QUERY_TILES;
  int first = first_query();
  Rows rows;
  attend(rows, query_of(query, head), key_of(key, head / GROUP), value_of(value, head / GROUP), of_head(mask, head), first, shared);
  float factor[R];
#pragma unroll
  for (int r = 0; r < R; ++r) factor[r] = normal(1.0f, rows.total[r]);
  put_sums<R, WIDTH_GROUPS, WIDTH, RESULT_ROW>(head_of<RESULT_HEADS, QUERIES, WIDTH>(result, head), first, QUERIES, rows.sums, factor);
  if constexpr (SAVES_LOGARITHMS) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      int row = first + R * thread_row() + r;
      if (row < QUERIES && thread_column() == 0) logarithm[head * QUERIES + row] = (rows.most[r] + log2f(rows.total[r])) * LOG_OF_2;
    }
  }
}

// Computes for each query the logarithm of the sum of the powers of its scores, and the dot product
// of its result and the gradient of the result.
__device__ __forceinline__ void statistics(const Query* query, const Key* key, const Value* value, const Gradient* gradient, Mask mask, float* logarithm,
                                           float* mean) {
  SOYBEAN_SHARED(float, shared);
  long long head = blockIdx.x / QUERY_TILES;
  int first = first_query();
  Rows rows;
  attend(rows, query_of(query, head), key_of(key, head / GROUP), value_of(value, head / GROUP), of_head(mask, head), first, shared);
#pragma unroll
  for (int r = 0; r < R; ++r) {
    int row = first + R * thread_row() + r;
    bool is_inside = row < QUERIES;
    float product = 0.0f;
#pragma unroll
    for (int g = 0; g < WIDTH_GROUPS; ++g) {
      if (!is_inside || !has_columns<WIDTH>(g)) continue;
      float4 slope = four<WIDTH>(gradient_of(gradient, head) + (Offset)row * GRADIENT_ROW, 4 * thread_column() + 4 * SIDE * g);
      dot_four(product, slope, make_float4(rows.sums[r][g][0], rows.sums[r][g][1], rows.sums[r][g][2], rows.sums[r][g][3]));
    }
    product = over_row<soybean_sum>(product);
    if (is_inside && thread_column() == 0) {
      logarithm[head * QUERIES + row] = rows.most[r] + log2f(rows.total[r]);
      mean[head * QUERIES + row] = normal(product, rows.total[r]);
    }
  }
}

// Computes normalized weights from scores, and the unscaled gradients of products from those of
// weights.
__device__ __forceinline__ void grade(float (&scores)[R][C], float (&slopes)[R][C], const Mask& mask, int query, int key, const float (&logarithm)[R],
                                      const float (&mean)[R]) {
  bool whole = is_whole(mask, query, TILE_QUERIES, key, TILE_KEYS);
#pragma unroll
  for (int r = 0; r < R; ++r) {
    int row = query + R * thread_row() + r, at = position(mask, row);
#pragma unroll
    for (int c = 0; c < C; ++c) {
      int column = key + thread_column() + SIDE * c;
      bool seen = whole || is_seen(mask, row, at, column);
      float product = scores[r][c], weight = weight_of(mask, product, seen, row, at, column, logarithm[r]);
      scores[r][c] = weight;
      slopes[r][c] = through_function(mask, product, weight * (slopes[r][c] - mean[r]), at, column);
    }
  }
}

__device__ __forceinline__ void put_scores(float* to, const float (&scores)[R][C]) {
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int c = 0; c < C; ++c) to[(R * thread_row() + r) * WEIGHT_STRIDE + thread_column() + SIDE * c] = scores[r][c];
  }
}

// Loads the statistics of the rows of a thread; rows past the last get weights of 0.
__device__ __forceinline__ void load_statistics(float (&rows)[R], const float* from, int first, float past_the_end) {
#pragma unroll
  for (int r = 0; r < R; ++r) {
    int row = first + R * thread_row() + r;
    rows[r] = row < QUERIES ? from[row] : past_the_end;
  }
}

// Computes the gradients of a tile of keys and of their values.
__device__ __forceinline__ void key_gradients(const Query* query, const Key* key, const Value* value, const Gradient* gradient, Mask mask,
                                              const float* logarithm, const float* mean, KeyResult* key_result, ValueResult* value_result) {
  SOYBEAN_SHARED(float, shared);
  float* keys = shared;
  float* values = keys + TILE_KEYS * FEATURE_STRIDE;
  float* queries = values + TILE_KEYS * WIDTH_STRIDE;
  float* gradients = queries + TILE_QUERIES * FEATURE_STRIDE;
  float* weights = gradients + TILE_QUERIES * WIDTH_STRIDE;
  float* slopes = weights + TILE_QUERIES * WEIGHT_STRIDE;
  long long head = blockIdx.x / KEY_TILES;
  int first = blockIdx.x % KEY_TILES * TILE_KEYS;
  load_tile<TILE_KEYS, FEATURES, FEATURE_STRIDE, KEY_ROW>(keys, key_of(key, head), first, KEYS);
  load_tile<TILE_KEYS, WIDTH, WIDTH_STRIDE, VALUE_ROW>(values, value_of(value, head), first, KEYS);
  float key_sums[C][FEATURE_GROUPS][4] = {}, value_sums[C][WIDTH_GROUPS][4] = {};
  for (int member = 0; member < GROUP; ++member) {
    long long query_head = head * GROUP + member;
    Mask own = of_head(mask, query_head);
    Span segments = span(own.key_segments, first, TILE_KEYS, KEYS);
    int start = next_queries(own, first_seeing(mask, first, TILE_QUERIES), TILE_QUERIES, segments);
    for (; start < QUERIES && !is_past(mask, start, first + TILE_KEYS - 1); start = next_queries(own, start + TILE_QUERIES, TILE_QUERIES, segments)) {
      __syncthreads();
      load_tile<TILE_QUERIES, FEATURES, FEATURE_STRIDE, QUERY_ROW>(queries, query_of(query, query_head), start, QUERIES);
      load_tile<TILE_QUERIES, WIDTH, WIDTH_STRIDE, GRADIENT_ROW>(gradients, gradient_of(gradient, query_head), start, QUERIES);
      float logarithms[R], means[R], scores[R][C], weight_slopes[R][C];
      load_statistics(logarithms, logarithm + query_head * QUERIES, start, SOYBEAN_INFINITY);
      load_statistics(means, mean + query_head * QUERIES, start, 0.0f);
      __syncthreads();
      dot_rows<R, C, FEATURES, FEATURE_STRIDE>(scores, queries, keys);
      dot_rows<R, C, WIDTH, WIDTH_STRIDE>(weight_slopes, gradients, values);
      grade(scores, weight_slopes, own, start, first, logarithms, means);
      if (HAS_VALUE_GRADIENT) put_scores(weights, scores);
      if (HAS_KEY_GRADIENT) put_scores(slopes, weight_slopes);
      __syncthreads();
      if (HAS_VALUE_GRADIENT) add_columns_times<C, WIDTH_GROUPS, TILE_QUERIES, WEIGHT_STRIDE, WIDTH, WIDTH_STRIDE>(value_sums, weights, gradients);
      if (HAS_KEY_GRADIENT) add_columns_times<C, FEATURE_GROUPS, TILE_QUERIES, WEIGHT_STRIDE, FEATURES, FEATURE_STRIDE>(key_sums, slopes, queries);
    }
  }
  float scale[C], one[C];
#pragma unroll
  for (int c = 0; c < C; ++c) scale[c] = SCALE, one[c] = 1.0f;
  if (HAS_KEY_GRADIENT) put_sums<C, FEATURE_GROUPS, FEATURES, KEY_RESULT_ROW>(head_of<KEY_RESULT_HEADS, KEYS, FEATURES>(key_result, head), first, KEYS, key_sums, scale);
  if (HAS_VALUE_GRADIENT) put_sums<C, WIDTH_GROUPS, WIDTH, VALUE_RESULT_ROW>(head_of<VALUE_RESULT_HEADS, KEYS, WIDTH>(value_result, head), first, KEYS, value_sums, one);
}

// Computes the gradients of a tile of queries.
__device__ __forceinline__ void query_gradients(const Query* query, const Key* key, const Value* value, const Gradient* gradient, Mask mask,
                                                const float* logarithm, const float* mean, QueryResult* result) {
  SOYBEAN_SHARED(float, shared);
  float* queries = shared;
  float* gradients = queries + TILE_QUERIES * FEATURE_STRIDE;
  float* keys = gradients + TILE_QUERIES * WIDTH_STRIDE;
  float* values = keys + TILE_KEYS * FEATURE_STRIDE;
  float* slopes = values + TILE_KEYS * WIDTH_STRIDE;
  long long head = blockIdx.x / QUERY_TILES;
  int first = first_query();
  load_tile<TILE_QUERIES, FEATURES, FEATURE_STRIDE, QUERY_ROW>(queries, query_of(query, head), first, QUERIES);
  load_tile<TILE_QUERIES, WIDTH, WIDTH_STRIDE, GRADIENT_ROW>(gradients, gradient_of(gradient, head), first, QUERIES);
  float logarithms[R], means[R], sums[R][FEATURE_GROUPS][4] = {};
  mask = of_head(mask, head);
  load_statistics(logarithms, logarithm + head * QUERIES, first, SOYBEAN_INFINITY);
  load_statistics(means, mean + head * QUERIES, first, 0.0f);
  Span own = span(mask.query_segments, first, TILE_QUERIES, QUERIES);
  int end = n_seen(mask, first + TILE_QUERIES), start = next_keys(mask, first_seen(mask, first, TILE_KEYS), end, TILE_KEYS, own);
  for (; start < end; start = next_keys(mask, start + TILE_KEYS, end, TILE_KEYS, own)) {
    __syncthreads();
    load_tile<TILE_KEYS, FEATURES, FEATURE_STRIDE, KEY_ROW>(keys, key_of(key, head / GROUP), start, KEYS);
    load_tile<TILE_KEYS, WIDTH, WIDTH_STRIDE, VALUE_ROW>(values, value_of(value, head / GROUP), start, KEYS);
    __syncthreads();
    float scores[R][C], weight_slopes[R][C];
    dot_rows<R, C, FEATURES, FEATURE_STRIDE>(scores, queries, keys);
    dot_rows<R, C, WIDTH, WIDTH_STRIDE>(weight_slopes, gradients, values);
    grade(scores, weight_slopes, mask, first, start, logarithms, means);
    put_scores(slopes, weight_slopes);
    // The same half of a warp writes and reads a row of gradients of scores.
    __syncwarp();
    add_rows_times<R, FEATURE_GROUPS, TILE_KEYS, WEIGHT_STRIDE, FEATURES, FEATURE_STRIDE>(sums, slopes, keys);
  }
  float scale[R];
#pragma unroll
  for (int r = 0; r < R; ++r) scale[r] = SCALE;
  put_sums<R, FEATURE_GROUPS, FEATURES, QUERY_RESULT_ROW>(head_of<QUERY_RESULT_HEADS, QUERIES, FEATURES>(result, head), first, QUERIES, sums, scale);
}
