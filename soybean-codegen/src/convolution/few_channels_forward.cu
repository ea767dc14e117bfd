//! Convolutions of images with few channels by tensor cores.
//!
//! A block computes tiles of results, one after another, for the same filters. It stages the pixels
//! under a tile in shared memory, from which tensor cores read the rows of windows in place: a unit
//! of UNIT_WORDS words for each lane. Rows have whole units, and steps have four or eight.
//!
//! A warp has four octets of neighboring results. These are the columns of the product, and filters
//! are the rows, since one load of two words is a whole operand then. The filters are in the order
//! in which tensor cores hand out their sums, so that a thread's are neighbors.

constexpr int STEP_WORDS = 8;
constexpr int ROW_NUMBERS = WINDOW_COLUMNS * PIXEL;
constexpr int ROW_UNITS = (ROW_NUMBERS + UNIT_WORDS * PER_WORD - 1) / (UNIT_WORDS * PER_WORD);
constexpr int UNITS = WINDOW_ROWS * ROW_UNITS;
constexpr int FILTER_WORDS = STEPS * STEP_WORDS;
// The distance is an odd number of groups of 4 words: groups of eight filters that are read at the
// same time come from different banks.
constexpr int FILTER_STRIDE = FILTER_WORDS + 4;
constexpr int FILTER_TILES = BLOCK_FILTERS / 16;
constexpr int FILTER_BLOCKS = (FILTERS + BLOCK_FILTERS - 1) / BLOCK_FILTERS;
constexpr int WARP_ROWS = 32 / WARP_COLUMNS;
constexpr int WARPS_ACROSS = TILE_COLUMNS / WARP_COLUMNS;
constexpr int TILES_DOWN = (RESULT_HEIGHT + TILE_ROWS - 1) / TILE_ROWS;
constexpr int TILES_ACROSS = (RESULT_WIDTH + TILE_COLUMNS - 1) / TILE_COLUMNS;
constexpr Index TILES = (Index)BATCH * TILES_DOWN * TILES_ACROSS;

// The filters that eight threads write at once, each several neighbors.
constexpr int GROUP = 8 * NEIGHBORS;
static_assert(BLOCK_FILTERS % GROUP == 0);

__device__ __forceinline__ int lane() { return threadIdx.x % 32; }
__device__ __forceinline__ int place() { return threadIdx.x % 4; }

__device__ __forceinline__ void multiply(float (&sums)[4], const unsigned* left, const unsigned* right) {
  if constexpr (PER_WORD == 2) {
    soybean_mma_bf16(sums, left, right);
  } else {
    soybean_mma_tf32(sums, left, right);
  }
}

// Returns the place of a filter in shared memory: of a thread's NEIGHBORS, those with the numbers
// 2j and 2j + 1 are 8 rows apart in the tile j of the product.
__device__ __forceinline__ int shuffled(int filter) {
  return filter / GROUP * GROUP + filter % NEIGHBORS / 2 * 16 + filter % 2 * 8 + filter % GROUP / NEIGHBORS;
}

// Copies the filters from `first` on of the block to shared memory. Numbers that pad pixels, rows,
// steps and filters are zeros.
__device__ __forceinline__ void stage_filters(unsigned* staged, const Filter* filter, int first) {
  constexpr int ACROSS = FILTER_WORDS < THREADS ? FILTER_WORDS : THREADS, AT_ONCE = THREADS / ACROSS;
  if ((int)threadIdx.x >= ACROSS * AT_ONCE) return;
  for (int at = threadIdx.x % ACROSS; at < FILTER_WORDS; at += ACROSS) {
    const int of_step = at % STEP_WORDS;
    // A lane's unit of two words is the words `place()` and `place() + 4` of the step.
    const int word_number = UNIT_WORDS == 1 ? at : at - of_step + of_step % 4 * 2 + of_step / 4;
    const int row = word_number / (ROW_UNITS * UNIT_WORDS), number = word_number % (ROW_UNITS * UNIT_WORDS) * PER_WORD;
    const auto place_of = [](int n) { return n / PIXEL * CHANNELS + n % PIXEL; };
    const auto is_number = [](int n) { return n < ROW_NUMBERS && n % PIXEL < CHANNELS; };
    const bool has_low = row < WINDOW_ROWS && is_number(number), has_high = row < WINDOW_ROWS && is_number(number + 1);
    const Filter* from = filter + row * (WINDOW_COLUMNS * CHANNELS);
    const Filter *low = from + place_of(number), *high = from + place_of(number + 1);
#pragma unroll 16
    for (int n = threadIdx.x / ACROSS; n < BLOCK_FILTERS; n += AT_ONCE) {
      const int offset = (first + n) * (WINDOW_ROWS * WINDOW_COLUMNS * CHANNELS);
      const bool is_filter = first + n < FILTERS;
      staged[shuffled(n) * FILTER_STRIDE + at] =
          word(is_filter && has_low ? low[offset] : Filter(0), PER_WORD == 2 && is_filter && has_high ? high[offset] : Filter(0));
    }
  }
}

// Returns the bits of a word of a unit that are numbers of the window. Others may be those of other
// pixels, even NaN.
__device__ __forceinline__ constexpr unsigned bits_of_window(int unit, int word_of_unit) {
  const int number = (unit % ROW_UNITS * UNIT_WORDS + word_of_unit) * PER_WORD;
  return unit >= UNITS || number >= ROW_NUMBERS ? 0u : number + PER_WORD <= ROW_NUMBERS ? ~0u : 0xffffu;
}

// Loads the words of the units 4 n to 4 n + 3 of the windows of a warp, one for each place. Two
// words are the first and the second half of a step.
__device__ __forceinline__ void load_units(unsigned (&x)[4][2], const unsigned* window, int n) {
  int offset = 4 * n / ROW_UNITS * (DILATION_Y * ROW_WORDS) + 4 * n % ROW_UNITS * UNIT_WORDS;
  unsigned kept[UNIT_WORDS];
#pragma unroll
  for (int i = 0; i < UNIT_WORDS; ++i) kept[i] = ~0u;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int unit = 4 * n + k;
    // Later places have units of the next row.
    if (k > 0 && unit < UNITS && unit % ROW_UNITS == 0) offset += place() >= k ? DILATION_Y * ROW_WORDS - ROW_UNITS * UNIT_WORDS : 0;
#pragma unroll
    for (int i = 0; i < UNIT_WORDS; ++i) {
      if (bits_of_window(unit, i) != ~0u) kept[i] = place() == k ? bits_of_window(unit, i) : kept[i];
    }
  }
#pragma unroll
  for (int octet = 0; octet < 4; ++octet) {
    const unsigned* at = window + offset + window_place(octet * 8 / WARP_COLUMNS, octet * 8 % WARP_COLUMNS) - window_place(0, 0);
    unsigned unit[UNIT_WORDS] = {};
    if (4 * n < UNITS) soybean_load_shared(unit, at);
#pragma unroll
    for (int i = 0; i < UNIT_WORDS; ++i) x[octet][UNIT_WORDS == 2 ? i : n % 2] = unit[i] & kept[i];
  }
}

// sums = the products of the filters and the windows of a warp.
__device__ __forceinline__ void multiply_tile(float (&sums)[FILTER_TILES][4][4], const unsigned* window, const unsigned* filters) {
#pragma unroll
  for (int m = 0; m < FILTER_TILES; ++m) {
#pragma unroll
    for (int octet = 0; octet < 4; ++octet) sums[m][octet][0] = sums[m][octet][1] = sums[m][octet][2] = sums[m][octet][3] = 0.0f;
  }
  window = soybean_opaque(window), filters = soybean_opaque(filters + lane() % 16 * FILTER_STRIDE + lane() / 16 * 4);
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    unsigned y[4][2];
#pragma unroll
    for (int half = 0; half < 2 / UNIT_WORDS; ++half) load_units(y, window, step * (2 / UNIT_WORDS) + half);
#pragma unroll
    for (int m = 0; m < FILTER_TILES; ++m) {
      unsigned x[4];
      soybean_load_matrices(x, filters + m * 16 * FILTER_STRIDE + step * STEP_WORDS);
#pragma unroll
      for (int octet = 0; octet < 4; ++octet) multiply(sums[m][octet], x, y[octet]);
    }
  }
}

// Writes the results of a lane for the filters from `first` on: two neighbors of each octet. Those
// of the first octet are at this row and column.
__device__ __forceinline__ void put_tile(Result* result, const Bias* bias, const float (&sums)[FILTER_TILES][4][4], int row, int column, int first) {
#pragma unroll
  for (int group = 0; group < BLOCK_FILTERS / GROUP; ++group) {
    const int filter = first + group * GROUP + lane() / 4 * NEIGHBORS;
    if (filter >= FILTERS) continue;
    float added[NEIGHBORS];
    if constexpr (HAS_BIAS) soybean_load(bias + filter, added);
#pragma unroll
    for (int pixel = 0; pixel < 8; ++pixel) {
      const int octet = pixel / 2, y = row + octet * 8 / WARP_COLUMNS, x = column + octet * 8 % WARP_COLUMNS + pixel % 2;
      if (y >= RESULT_HEIGHT || x >= RESULT_WIDTH) continue;
      float neighbors[NEIGHBORS];
#pragma unroll
      for (int i = 0; i < NEIGHBORS; ++i) {
        float sum = sums[(group * NEIGHBORS + i) / 2][octet][i % 2 * 2 + pixel % 2];
        if constexpr (HAS_BIAS) sum += added[i];
        neighbors[i] = HAS_RELU ? soybean_relu(sum) : sum;
      }
      soybean_store(result + (y * RESULT_WIDTH + x) * FILTERS + filter, neighbors);
    }
  }
}

__device__ __forceinline__ void convolve(const Image* __restrict__ image, const Filter* __restrict__ filter, Result* __restrict__ result,
                                         const Bias* __restrict__ bias) {
  SOYBEAN_SHARED(unsigned, shared);
  unsigned* filters = shared + IMAGE_WORDS;
  const int first = blockIdx.x % FILTER_BLOCKS * BLOCK_FILTERS;
  const int warp = threadIdx.x / 32, row = warp / WARPS_ACROSS * WARP_ROWS, column = warp % WARPS_ACROSS * WARP_COLUMNS;
  const unsigned* window = shared + window_place(row, column + lane() / 4) + place() * UNIT_WORDS;
  stage_filters(filters, filter, first);
  for (Index tile = blockIdx.x / FILTER_BLOCKS; tile < TILES; tile += gridDim.x / FILTER_BLOCKS) {
    const Index number = tile / (TILES_DOWN * TILES_ACROSS);
    const int in_image = (int)(tile % (TILES_DOWN * TILES_ACROSS));
    const int top = in_image / TILES_ACROSS * TILE_ROWS, left = in_image % TILES_ACROSS * TILE_COLUMNS;
    stage_image(shared, image + number * (IMAGE_HEIGHT * IMAGE_WIDTH * CHANNELS), top, left);
    __syncthreads();
    float sums[FILTER_TILES][4][4];
    multiply_tile(sums, window, filters);
    // The next tile takes the place of this one.
    __syncthreads();
    // Other warps have no results. Without this branch, the compiler would delay products until the
    // results of others are written, and keep their operands in too many registers.
    if (top + row < RESULT_HEIGHT && left + column < RESULT_WIDTH)
      put_tile(result + number * (RESULT_HEIGHT * RESULT_WIDTH * FILTERS), bias, sums, top + row, left + column + 2 * place(), first);
  }
}
