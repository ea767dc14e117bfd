//! Attention and its gradients by tensor cores, a tile of scores at a time.
//!
//! Weights are powers of 2 of scores times log2(e). Source: Dao, "FlashAttention-2", 2023. The rows
//! of a block are queries; for the gradients of keys and values they are keys. Loops over tiles
//! that every row sees whole have no code for masks.

constexpr int QUERY_TILES = (QUERIES + TILE_ROWS - 1) / TILE_ROWS;
constexpr int KEY_TILES = (KEYS + TILE_ROWS - 1) / TILE_ROWS;

// In causal attention, the last queries have the most work, so they begin.
__device__ __forceinline__ int first_query() { return (QUERY_TILES - 1 - (int)(blockIdx.x % QUERY_TILES)) * TILE_ROWS; }

// The row of a lane in the tile of its block.
__device__ __forceinline__ int row_of(int m, int half) { return warp_row() + m * 16 + half * 8 + group(); }
// The column of a number of a lane in the tile.
__device__ __forceinline__ int column_of(int n, int i) { return n * 8 + 2 * place() + i % 2; }

// The running statistics of the rows of a tile of queries; each lane has a part of the totals.
struct Rows {
  // The score from which weights are measured: the largest so far, or one that is not much smaller.
  float most[ROW_TILES][2];
  float total[ROW_TILES][2];
  float sums[ROW_TILES][WIDTH_TILES][4];
};

// Weights may be as large as 2 to this power before a larger score replaces the one from which they
// are measured.
constexpr float RISE = 8.0f;

// Replaces the scores from which weights are measured, if any of those of the warp is too small.
__device__ __forceinline__ void rise(Rows& rows, const float (&most)[ROW_TILES][2]) {
  bool rises = false;
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) rises |= most[m][0] > rows.most[m][0] + RISE / STRETCH || most[m][1] > rows.most[m][1] + RISE / STRETCH;
  if (!__any_sync(SOYBEAN_ALL_LANES, rises)) return;
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float now = fmaxf(most[m][half], rows.most[m][half]);
      float correction = soybean_exp2((rows.most[m][half] - base(now)) * STRETCH);
      rows.most[m][half] = now, rows.total[m][half] *= correction;
#pragma unroll
      for (int n = 0; n < WIDTH_TILES; ++n) rows.sums[m][n][2 * half] *= correction, rows.sums[m][n][2 * half + 1] *= correction;
    }
  }
}

// Turns the products of a tile into weights.
template <bool IS_WHOLE>
__device__ __forceinline__ void weigh(Rows& rows, float (&scores)[ROW_TILES][SCORE_TILES][4], const Mask& mask, int first, int key) {
  float most[ROW_TILES][2];
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int row = first + row_of(m, half), at = position(mask, row);
      float largest = -SOYBEAN_INFINITY;
#pragma unroll
      for (int n = 0; n < SCORE_TILES; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          float& score = scores[m][n][i];
          int column = key + column_of(n, i);
          bool seen = IS_WHOLE || is_seen(mask, row, at, column);
          score = !ARE_PRODUCTS ? score_of(mask, score, seen, row, at, column) : seen ? score : -SOYBEAN_INFINITY;
          largest = fmaxf(largest, score);
        }
      }
      most[m][half] = most_over_row(largest);
    }
  }
  rise(rows, most);
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float start = base(rows.most[m][half]) * STRETCH, total = 0.0f;
#pragma unroll
      for (int n = 0; n < SCORE_TILES; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          float& score = scores[m][n][i];
          score = soybean_exp2(fmaf(score, STRETCH, -start));
          total += score;
        }
      }
      rows.total[m][half] += total;
    }
  }
}

// The keys and values of a head, and their tiles.
struct Source {
  const Key* key;
  const Value* value;
  const unsigned* queries;
  unsigned *keys, *values;
  Span segments;
  int end;
};

// Adds the values of a tile, whose keys were fetched, to the sums of the rows. Returns the start of
// the next tile, whose keys it fetches.
template <bool IS_WHOLE> __device__ __forceinline__ int attend_tile(Rows& rows, const Source& source, const Mask& mask, int first, int start) {
  int next = next_keys(mask, start + TILE_COLUMNS, source.end, TILE_COLUMNS, source.segments);
  arrive();
  fetch<TILE_COLUMNS, WIDTH, WIDTH_STRIDE, VALUE_ROW>(source.values, source.value, start, KEYS);
  float scores[ROW_TILES][SCORE_TILES][4];
  dot_rows<FEATURE_STEPS, FEATURE_STRIDE>(scores, source.queries, source.keys);
  arrive();
  if (next < source.end) fetch<TILE_COLUMNS, FEATURES, FEATURE_STRIDE, KEY_ROW>(source.keys, source.key, next, KEYS);
  weigh<IS_WHOLE>(rows, scores, mask, first, start);
  add_product<WIDTH_TILES, WIDTH_STRIDE>(rows.sums, scores, source.values);
  return next;
}

// Computes the sums of weighted values of a tile of queries.
__device__ __forceinline__ void attend(Rows& rows, const Query* query, const Key* key, const Value* value, Mask mask, int first, unsigned* queries) {
  fetch<TILE_ROWS, FEATURES, FEATURE_STRIDE, QUERY_ROW>(queries, query, first, QUERIES);
  unsigned *keys = queries + TILE_ROWS * FEATURE_STRIDE, *values = keys + TILE_COLUMNS * FEATURE_STRIDE;
  Span segments = span(mask.query_segments, first, TILE_ROWS, QUERIES);
  int end = n_seen(mask, first + TILE_ROWS), start = next_keys(mask, first_seen(mask, first, TILE_COLUMNS), end, TILE_COLUMNS, segments);
  Source source = {key, value, queries, keys, values, segments, end};
  fill(rows.most, -SOYBEAN_INFINITY), fill(rows.total, 0.0f), clear(rows.sums);
  if (start < source.end) fetch<TILE_COLUMNS, FEATURES, FEATURE_STRIDE, KEY_ROW>(keys, key, start, KEYS);
  while (start < source.end) {
    while (start < source.end && !is_whole(mask, first, TILE_ROWS, start, TILE_COLUMNS)) start = attend_tile<false>(rows, source, mask, first, start);
    while (start < source.end && is_whole(mask, first, TILE_ROWS, start, TILE_COLUMNS)) start = attend_tile<true>(rows, source, mask, first, start);
  }
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) rows.total[m][0] = sum_over_row(rows.total[m][0]), rows.total[m][1] = sum_over_row(rows.total[m][1]);
}

// Returns the logarithm to base 2 of the sum of the exponentials of a row's scores.
__device__ __forceinline__ float logarithm_of(const Rows& rows, int m, int half) { return rows.most[m][half] * STRETCH + log2f(rows.total[m][half]); }

__device__ __forceinline__ void forward(const Query* query, const Key* key, const Value* value, Mask mask, Result* result, float* logarithm) {
  SOYBEAN_SHARED(unsigned, shared);
  long long head = blockIdx.x / QUERY_TILES;
  int first = first_query();
  Rows rows;
  attend(rows, query_of(query, head), key_of(key, head / GROUP), value_of(value, head / GROUP), of_head(mask, head), first, shared);
  float factor[ROW_TILES][2];
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) factor[m][0] = normal(1.0f, rows.total[m][0]), factor[m][1] = normal(1.0f, rows.total[m][1]);
  put_sums<WIDTH_TILES, WIDTH, RESULT_ROW>(head_of<RESULT_HEADS, QUERIES, WIDTH>(result, head), first, QUERIES, rows.sums, factor);
  if constexpr (SAVES_LOGARITHMS) {
#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int row = first + row_of(m, half);
        if (row < QUERIES && place() == 0) logarithm[head * QUERIES + row] = logarithm_of(rows, m, half) * LOG_OF_2;
      }
    }
  }
}

// Computes for each query the logarithm of the sum of the powers of its scores, and the dot product
// of its result and the gradient of the result.
__device__ __forceinline__ void statistics(const Query* query, const Key* key, const Value* value, const Gradient* gradient, Mask mask, float* logarithm,
                                           float* mean) {
  SOYBEAN_SHARED(unsigned, shared);
  long long head = blockIdx.x / QUERY_TILES;
  int first = first_query();
  Rows rows;
  attend(rows, query_of(query, head), key_of(key, head / GROUP), value_of(value, head / GROUP), of_head(mask, head), first, shared);
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int row = first + warp_row() + m * 16 + half * 8 + group();
      const Gradient* slopes = gradient_of(gradient, head) + (Offset)row * GRADIENT_ROW;
      float product = 0.0f;
#pragma unroll
      for (int n = 0; n < WIDTH_TILES; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          int column = n * 8 + 2 * place() + i;
          if (row < QUERIES && column < WIDTH) product = fmaf(rows.sums[m][n][2 * half + i], soybean_value(slopes[column]), product);
        }
      }
      product = sum_over_row(product);
      if (row < QUERIES && place() == 0) {
        logarithm[head * QUERIES + row] = logarithm_of(rows, m, half);
        mean[head * QUERIES + row] = normal(product, rows.total[m][half]);
      }
    }
  }
}
