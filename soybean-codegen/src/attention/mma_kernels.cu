//! Attention and its gradients by tensor cores, a tile of scores at a time.
//!
//! Scores are multiplied by log2(e), so that weights are powers of 2. Source: Dao,
//! "FlashAttention-2", 2023, except that gradients recompute the statistics of the rows. The rows
//! of a block are queries; for the gradients of keys and values they are keys.

constexpr int QUERY_TILES = (QUERIES + TILE_ROWS - 1) / TILE_ROWS;
constexpr int KEY_TILES = (KEYS + TILE_ROWS - 1) / TILE_ROWS;
// In tf32, a word is a number, and rows can be read as columns.
constexpr bool HAS_COLUMNS = PER_WORD == 2;
constexpr int FEATURES_BY_COLUMN = HAS_COLUMNS ? TILE_COLUMNS / 2 * FEATURE_COLUMN_STRIDE : 0;
constexpr int WIDTH_BY_COLUMN = HAS_COLUMNS ? TILE_COLUMNS / 2 * WIDTH_COLUMN_STRIDE : 0;

// In causal attention, the last queries have the most work, so they begin.
__device__ __forceinline__ int first_query() { return (QUERY_TILES - 1 - (int)(blockIdx.x % QUERY_TILES)) * TILE_ROWS; }

// The running statistics of the rows of a tile of queries; each lane has a part of the totals.
struct Rows {
  float most[ROW_TILES][2];
  float total[ROW_TILES][2];
  float sums[ROW_TILES][WIDTH_TILES][4];
};

// Turns the scores of a row into weights. Returns the factor for the sums of earlier weights.
__device__ __forceinline__ float weigh(float (&scores)[SCORE_TILES][4], int half, float& most, float& total, bool whole, const Mask& mask, int row, int key) {
  float before = most, sum = 0.0f;
  int at = position(mask, row);
#pragma unroll
  for (int n = 0; n < SCORE_TILES; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float& score = scores[n][2 * half + i];
      int column = key + n * 8 + 2 * place() + i;
      score = score_of(mask, score, whole || is_seen(mask, row, at, column), row, at, column);
      most = fmaxf(most, score);
    }
  }
  most = over_row<soybean_max>(most);
#pragma unroll
  for (int n = 0; n < SCORE_TILES; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float& score = scores[n][2 * half + i];
      score = exp2f(score - base(most));
      sum += score;
    }
  }
  float correction = exp2f(before - base(most));
  total = total * correction + sum;
  return correction;
}

// Computes the sums of weighted values of a tile of queries.
__device__ __forceinline__ void attend(Rows& rows, const Query* query, const Key* key, const Value* value, Mask mask, int first, unsigned* shared) {
  unsigned* queries = shared;
  unsigned* keys = queries + TILE_ROWS * FEATURE_STRIDE;
  unsigned* values = keys + TILE_COLUMNS * FEATURE_STRIDE;
  load_rows<TILE_ROWS, FEATURES, FEATURE_STRIDE>(queries, query, first, QUERIES);
  fill(rows.most, -SOYBEAN_INFINITY), fill(rows.total, 0.0f), clear(rows.sums);
  Loader<TILE_COLUMNS, FEATURES, Key> key_loader;
  Loader<TILE_COLUMNS, WIDTH, Value> value_loader;
  Span own = span(mask.query_segments, first, TILE_ROWS, QUERIES);
  int end = n_seen(mask, first + TILE_ROWS), start = next_keys(mask, first_seen(mask, first, TILE_COLUMNS), end, TILE_COLUMNS, own);
  key_loader.read(key, start, KEYS), value_loader.read(value, start, KEYS);
  for (int next; start < end; start = next) {
    next = next_keys(mask, start + TILE_COLUMNS, end, TILE_COLUMNS, own);
    __syncthreads();
    key_loader.template write<FEATURE_STRIDE, 0>(keys, nullptr, key, start, KEYS);
    value_loader.template write<WIDTH_STRIDE, WIDTH_COLUMN_STRIDE>(HAS_COLUMNS ? nullptr : values, HAS_COLUMNS ? values : nullptr, value, start, KEYS);
    __syncthreads();
    key_loader.read(key, next, KEYS), value_loader.read(value, next, KEYS);
    float scores[ROW_TILES][SCORE_TILES][4];
    dot_rows<FEATURE_STEPS, FEATURE_STRIDE>(scores, queries, keys);
    bool whole = is_whole(mask, first, TILE_ROWS, start, TILE_COLUMNS);
#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int row = first + warp_row() + m * 16 + half * 8 + group();
        float correction = weigh(scores[m], half, rows.most[m][half], rows.total[m][half], whole, mask, row, start);
#pragma unroll
        for (int n = 0; n < WIDTH_TILES; ++n) rows.sums[m][n][2 * half] *= correction, rows.sums[m][n][2 * half + 1] *= correction;
      }
    }
    add_product<WIDTH_TILES, HAS_COLUMNS ? WIDTH_COLUMN_STRIDE : WIDTH_STRIDE>(rows.sums, scores, values);
  }
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) rows.total[m][half] = over_row<soybean_sum>(rows.total[m][half]);
  }
}

__device__ __forceinline__ void forward(const Query* query, const Key* key, const Value* value, Mask mask, Result* result) {
  SOYBEAN_SHARED(unsigned, shared);
  long long head = blockIdx.x / QUERY_TILES;
  int first = first_query();
  Rows rows;
  attend(rows, query + head * (QUERIES * FEATURES), key + head / GROUP * (KEYS * FEATURES), value + head / GROUP * (KEYS * WIDTH), of_head(mask, head), first, shared);
  float factor[ROW_TILES][2];
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) factor[m][0] = normal(1.0f, rows.total[m][0]), factor[m][1] = normal(1.0f, rows.total[m][1]);
  put_sums<WIDTH_TILES, WIDTH>(result + head * (QUERIES * WIDTH), first, QUERIES, rows.sums, factor);
}

// Computes for each query the logarithm of the sum of the powers of its scores, and the dot product
// of its result and the gradient of the result.
__device__ __forceinline__ void statistics(const Query* query, const Key* key, const Value* value, const Gradient* gradient, Mask mask, float* logarithm,
                                           float* mean) {
  SOYBEAN_SHARED(unsigned, shared);
  long long head = blockIdx.x / QUERY_TILES;
  int first = first_query();
  Rows rows;
  attend(rows, query + head * (QUERIES * FEATURES), key + head / GROUP * (KEYS * FEATURES), value + head / GROUP * (KEYS * WIDTH), of_head(mask, head), first, shared);
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int row = first + warp_row() + m * 16 + half * 8 + group();
      const Gradient* slopes = gradient + head * (QUERIES * WIDTH) + row * WIDTH;
      float product = 0.0f;
#pragma unroll
      for (int n = 0; n < WIDTH_TILES; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          int column = n * 8 + 2 * place() + i;
          if (row < QUERIES && column < WIDTH) product = fmaf(rows.sums[m][n][2 * half + i], soybean_value(slopes[column]), product);
        }
      }
      product = over_row<soybean_sum>(product);
      if (row < QUERIES && place() == 0) {
        logarithm[head * QUERIES + row] = rows.most[m][half] + log2f(rows.total[m][half]);
        mean[head * QUERIES + row] = normal(product, rows.total[m][half]);
      }
    }
  }
}

// Computes a weight from a product, and the unscaled gradient of the product from that of the
// weight.
__device__ __forceinline__ void grade(float& score, float& slope, const Mask& mask, bool whole, int query, int key, float logarithm, float mean) {
  int at = position(mask, query);
  float product = score;
  score = weight_of(mask, product, whole || is_seen(mask, query, at, key), query, at, key, logarithm);
  slope = through_function(mask, product, score * (slope - mean), at, key);
}

// Computes the gradients of a tile of keys and of their values.
__device__ __forceinline__ void key_gradients(const Query* query, const Key* key, const Value* value, const Gradient* gradient, Mask mask,
                                              const float* logarithm, const float* mean, KeyResult* key_result, ValueResult* value_result) {
  SOYBEAN_SHARED(unsigned, shared);
  unsigned* keys = shared;
  unsigned* values = keys + TILE_ROWS * FEATURE_STRIDE;
  unsigned* queries = values + TILE_ROWS * WIDTH_STRIDE;
  unsigned* gradients = queries + TILE_COLUMNS * FEATURE_STRIDE;
  unsigned* query_columns = gradients + TILE_COLUMNS * WIDTH_STRIDE;
  unsigned* gradient_columns = query_columns + FEATURES_BY_COLUMN;
  float* logarithms = (float*)(gradient_columns + WIDTH_BY_COLUMN);
  float* means = logarithms + TILE_COLUMNS;
  long long head = blockIdx.x / KEY_TILES;
  int first = blockIdx.x % KEY_TILES * TILE_ROWS;
  query += head * GROUP * (QUERIES * FEATURES), gradient += head * GROUP * (QUERIES * WIDTH);
  logarithm += head * GROUP * QUERIES, mean += head * GROUP * QUERIES;
  load_rows<TILE_ROWS, FEATURES, FEATURE_STRIDE>(keys, key + head * (KEYS * FEATURES), first, KEYS);
  load_rows<TILE_ROWS, WIDTH, WIDTH_STRIDE>(values, value + head * (KEYS * WIDTH), first, KEYS);
  float key_sums[ROW_TILES][FEATURE_TILES][4], value_sums[ROW_TILES][WIDTH_TILES][4];
  clear(key_sums), clear(value_sums);
  Loader<TILE_COLUMNS, FEATURES, Query> query_loader;
  Loader<TILE_COLUMNS, WIDTH, Gradient> gradient_loader;
  for (int member = 0; member < GROUP; ++member) {
    Mask own = of_head(mask, head * GROUP + member);
    Span segments = span(own.key_segments, first, TILE_ROWS, KEYS);
    int start = next_queries(own, first_seeing(mask, first, TILE_COLUMNS), TILE_COLUMNS, segments);
    query_loader.read(query, start, QUERIES), gradient_loader.read(gradient, start, QUERIES);
    for (int next; start < QUERIES && !is_past(mask, start, first + TILE_ROWS - 1); start = next) {
      next = next_queries(own, start + TILE_COLUMNS, TILE_COLUMNS, segments);
      __syncthreads();
      query_loader.template write<FEATURE_STRIDE, FEATURE_COLUMN_STRIDE>(queries, HAS_COLUMNS ? query_columns : nullptr, query, start, QUERIES);
      gradient_loader.template write<WIDTH_STRIDE, WIDTH_COLUMN_STRIDE>(gradients, HAS_COLUMNS ? gradient_columns : nullptr, gradient, start, QUERIES);
      for (int i = threadIdx.x; i < TILE_COLUMNS; i += THREADS) {
        bool is_inside = start + i < QUERIES;
        logarithms[i] = is_inside ? logarithm[start + i] : SOYBEAN_INFINITY;
        means[i] = is_inside ? mean[start + i] : 0.0f;
      }
      __syncthreads();
      query_loader.read(query, next, QUERIES), gradient_loader.read(gradient, next, QUERIES);
      float weights[ROW_TILES][SCORE_TILES][4], slopes[ROW_TILES][SCORE_TILES][4];
      dot_rows<FEATURE_STEPS, FEATURE_STRIDE>(weights, keys, queries);
      dot_rows<WIDTH_STEPS, WIDTH_STRIDE>(slopes, values, gradients);
      bool whole = is_whole(mask, start, TILE_COLUMNS, first, TILE_ROWS);
#pragma unroll
      for (int n = 0; n < SCORE_TILES; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          int column = n * 8 + 2 * place() + i % 2;
#pragma unroll
          for (int m = 0; m < ROW_TILES; ++m) {
            int row = first + warp_row() + m * 16 + i / 2 * 8 + group();
            grade(weights[m][n][i], slopes[m][n][i], own, whole, start + column, row, logarithms[column], means[column]);
          }
        }
      }
      if (HAS_VALUE_GRADIENT) {
        add_product<WIDTH_TILES, HAS_COLUMNS ? WIDTH_COLUMN_STRIDE : WIDTH_STRIDE>(value_sums, weights, HAS_COLUMNS ? gradient_columns : gradients);
      }
      if (HAS_KEY_GRADIENT) {
        add_product<FEATURE_TILES, HAS_COLUMNS ? FEATURE_COLUMN_STRIDE : FEATURE_STRIDE>(key_sums, slopes, HAS_COLUMNS ? query_columns : queries);
      }
    }
    query += QUERIES * FEATURES, gradient += QUERIES * WIDTH, logarithm += QUERIES, mean += QUERIES;
  }
  float factor[ROW_TILES][2];
  fill(factor, SCALE);
  if (HAS_KEY_GRADIENT) put_sums<FEATURE_TILES, FEATURES>(key_result + head * (KEYS * FEATURES), first, KEYS, key_sums, factor);
  fill(factor, 1.0f);
  if (HAS_VALUE_GRADIENT) put_sums<WIDTH_TILES, WIDTH>(value_result + head * (KEYS * WIDTH), first, KEYS, value_sums, factor);
}

// Computes the gradients of a tile of queries.
__device__ __forceinline__ void query_gradients(const Query* query, const Key* key, const Value* value, const Gradient* gradient, Mask mask,
                                                const float* logarithm, const float* mean, QueryResult* result) {
  SOYBEAN_SHARED(unsigned, shared);
  unsigned* queries = shared;
  unsigned* gradients = queries + TILE_ROWS * FEATURE_STRIDE;
  unsigned* keys = gradients + TILE_ROWS * WIDTH_STRIDE;
  unsigned* values = keys + TILE_COLUMNS * FEATURE_STRIDE;
  unsigned* key_columns = values + TILE_COLUMNS * WIDTH_STRIDE;
  long long head = blockIdx.x / QUERY_TILES;
  int first = first_query();
  key += head / GROUP * (KEYS * FEATURES), value += head / GROUP * (KEYS * WIDTH);
  mask = of_head(mask, head);
  load_rows<TILE_ROWS, FEATURES, FEATURE_STRIDE>(queries, query + head * (QUERIES * FEATURES), first, QUERIES);
  load_rows<TILE_ROWS, WIDTH, WIDTH_STRIDE>(gradients, gradient + head * (QUERIES * WIDTH), first, QUERIES);
  float logarithms[ROW_TILES][2], means[ROW_TILES][2], sums[ROW_TILES][FEATURE_TILES][4];
  clear(sums);
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int row = first + warp_row() + m * 16 + half * 8 + group();
      logarithms[m][half] = row < QUERIES ? logarithm[head * QUERIES + row] : SOYBEAN_INFINITY;
      means[m][half] = row < QUERIES ? mean[head * QUERIES + row] : 0.0f;
    }
  }
  Loader<TILE_COLUMNS, FEATURES, Key> key_loader;
  Loader<TILE_COLUMNS, WIDTH, Value> value_loader;
  Span own = span(mask.query_segments, first, TILE_ROWS, QUERIES);
  int end = n_seen(mask, first + TILE_ROWS), start = next_keys(mask, first_seen(mask, first, TILE_COLUMNS), end, TILE_COLUMNS, own);
  key_loader.read(key, start, KEYS), value_loader.read(value, start, KEYS);
  for (int next; start < end; start = next) {
    next = next_keys(mask, start + TILE_COLUMNS, end, TILE_COLUMNS, own);
    __syncthreads();
    key_loader.template write<FEATURE_STRIDE, FEATURE_COLUMN_STRIDE>(keys, HAS_COLUMNS ? key_columns : nullptr, key, start, KEYS);
    value_loader.template write<WIDTH_STRIDE, 0>(values, nullptr, value, start, KEYS);
    __syncthreads();
    key_loader.read(key, next, KEYS), value_loader.read(value, next, KEYS);
    float weights[ROW_TILES][SCORE_TILES][4], slopes[ROW_TILES][SCORE_TILES][4];
    dot_rows<FEATURE_STEPS, FEATURE_STRIDE>(weights, queries, keys);
    dot_rows<WIDTH_STEPS, WIDTH_STRIDE>(slopes, gradients, values);
    bool whole = is_whole(mask, first, TILE_ROWS, start, TILE_COLUMNS);
#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
      for (int n = 0; n < SCORE_TILES; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          int row = first + warp_row() + m * 16 + i / 2 * 8 + group(), column = start + n * 8 + 2 * place() + i % 2;
          grade(weights[m][n][i], slopes[m][n][i], mask, whole, row, column, logarithms[m][i / 2], means[m][i / 2]);
        }
      }
    }
    add_product<FEATURE_TILES, HAS_COLUMNS ? FEATURE_COLUMN_STRIDE : FEATURE_STRIDE>(sums, slopes, HAS_COLUMNS ? key_columns : keys);
  }
  float factor[ROW_TILES][2];
  fill(factor, SCALE);
  put_sums<FEATURE_TILES, FEATURES>(result + head * (QUERIES * FEATURES), first, QUERIES, sums, factor);
}
