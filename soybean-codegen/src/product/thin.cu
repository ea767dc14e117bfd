//! Products with a matrix of few columns, which are limited by memory. Threads share the depth of a
//! row, and each sums all columns.

constexpr int THREADS = 256;
constexpr int PARTS = THREADS / TILE_ROWS;

__device__ __forceinline__ void product(const Left::Element* left, const Right::Element* right, Target* to, const Bias* bias) {
  __shared__ float scratch[THREADS];
  Place place = place_of_block();
  // Neighboring threads read neighboring elements.
  int line = Left::ALONG_DEPTH ? threadIdx.x / PARTS : threadIdx.x % TILE_ROWS;
  int part = Left::ALONG_DEPTH ? threadIdx.x % PARTS : threadIdx.x / TILE_ROWS;
  Left rows = {left + Left::start(place.batch)};
  Right columns = {right + Right::start(place.batch)};
  Index row = place.row + line;
  Left::Line at_row = rows.line(row < ROWS ? row : place.row);
  Right::Line at_column[COLUMNS];
  float sums[COLUMNS] = {};
#pragma unroll
  for (int j = 0; j < COLUMNS; ++j) at_column[j] = columns.line(j);
  Index end = last_depth(place.split);
#pragma unroll 4
  for (Index depth = first_depth(place.split) + part; depth < end; depth += PARTS) {
    float x = rows.at(at_row, depth);
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j) sums[j] = fmaf(x, columns.at(at_column[j], depth), sums[j]);
  }
#pragma unroll
  for (int j = 0; j < COLUMNS; ++j) {
    scratch[part * TILE_ROWS + line] = sums[j];
    __syncthreads();
    for (int n_parts = PARTS / 2; n_parts > 0; n_parts /= 2) {
      if (part < n_parts) scratch[part * TILE_ROWS + line] += scratch[(part + n_parts) * TILE_ROWS + line];
      __syncthreads();
    }
    if (part == 0) put(to, bias, place, row, j, scratch[line]);
    __syncthreads();
  }
}
