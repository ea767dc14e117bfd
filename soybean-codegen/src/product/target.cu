//! The target of sums of products: the result, or, if the depth is split between blocks, a table
//! that is added up afterwards.
//!
//! The structs Left and Right before this text describe the layout of operands: `line` is the state
//! of a row of the left or a column of the right, and `at` reads an element of it.

// Returns the number of a block's part of the depth, its batch, and the first row and the first
// column of its tile.
struct Place {
  Index split, batch, row, column;
};

__device__ __forceinline__ Place place_of_block() {
  constexpr Index DOWN = (ROWS + TILE_ROWS - 1) / TILE_ROWS, ACROSS = (COLUMNS + TILE_COLUMNS - 1) / TILE_COLUMNS;
  Index block = blockIdx.x;
  Index column = block % ACROSS * TILE_COLUMNS, row = block / ACROSS % DOWN * TILE_ROWS;
  return {block / (ACROSS * DOWN * BATCH), block / (ACROSS * DOWN) % BATCH, row, column};
}

__device__ __forceinline__ Index first_depth(Index split) { return SPLITS == 1 ? 0 : split * SPLIT_DEPTH; }
__device__ __forceinline__ Index last_depth(Index split) { return SPLITS == 1 || split == SPLITS - 1 ? DEPTH : (split + 1) * SPLIT_DEPTH; }

// Returns a result: the sum of a column with its bias.
__device__ __forceinline__ float finished(const Bias* bias, Index batch, Index column, float sum) {
  if constexpr (HAS_BIAS) sum += soybean_value(bias[batch * COLUMNS + column]);
  return HAS_RELU ? soybean_relu(sum) : sum;
}

// Writes the sum for a row and a column inside the result.
__device__ __forceinline__ void put(Target* to, const Bias* bias, const Place& place, Index row, Index column, float sum) {
  if (row >= ROWS || column >= COLUMNS) return;
  if constexpr (SPLITS == 1) {
    soybean_store(to + result_offset(place.batch, row, column), finished(bias, place.batch, column, sum));
  } else {
    to[((place.split * BATCH + place.batch) * ROWS + row) * COLUMNS + column] = sum;
  }
}

// Writes the sums for a row and eight columns from a multiple of 8 on.
__device__ __forceinline__ void put(Target* to, const Bias* bias, const Place& place, Index row, Index column, float (&sums)[8]) {
  if constexpr (HAS_EIGHT_NEIGHBORS && SPLITS == 1) {
    if (row >= ROWS || column >= COLUMNS) return;
#pragma unroll
    for (int e = 0; e < 8; ++e) sums[e] = finished(bias, place.batch, column + e, sums[e]);
    soybean_store(to + result_offset(place.batch, row, column), sums);
  } else {
#pragma unroll
    for (int e = 0; e < 8; ++e) put(to, bias, place, row, column + e, sums[e]);
  }
}

// Adds up the partial sums of blocks, always in the same order.
__device__ __forceinline__ void finish(const float* partial, Result* result, const Bias* bias) {
  constexpr Index N = BATCH * ROWS * COLUMNS;
  Index i = (Index)blockIdx.x * 256 + threadIdx.x;
  if (i >= N) return;
  float sum = 0.0f;
#pragma unroll 4
  for (int split = 0; split < SPLITS; ++split) sum += partial[split * N + i];
  Index batch = i / (ROWS * COLUMNS), column = i % COLUMNS;
  soybean_store(result + result_offset(batch, i / COLUMNS % ROWS, column), finished(bias, batch, column, sum));
}
