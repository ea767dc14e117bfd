//! Gradients of filters for images of few channels, by tensor cores. The products have a row for
//! each filter and a column for each element of the window; pixels of the result are their depth.
//!
//! A block adds up the products of some tiles. A tile has whole rows of a result, or a part of a
//! row. Its gradients, and the rows of the image below its windows, are in shared memory, and those
//! of the next tile arrive there while the products are computed.
//!
//! The elements of a row of the window are neighbors in the image, and PITCH columns stand for
//! them. If all pixels begin at words of two elements, a lane loads the elements of two columns at
//! once. Then a unit of columns has two tiles of 8: one of even columns and one of odd ones. Some
//! columns stand for no element. Their sums are never read.

constexpr int STEP = 16;
constexpr int STEPS = (TILE_HEIGHT * TILE_WIDTH + STEP - 1) / STEP;
constexpr int PIXELS = STEPS * STEP;
// The products along the depth of a step.
constexpr int DEPTH_TILES = 2 / PER_WORD;
constexpr int ROWS = 16 * ROW_TILES;
// Gradients of neighboring pixels are in different banks.
constexpr int GRADIENT_STRIDE = ROWS + 8;
constexpr int UNIT_COLUMNS = 8 * UNIT_TILES;
constexpr int COLUMN_TILES = UNITS * UNIT_TILES;
constexpr int COLUMNS = WARPS_ACROSS * UNITS * UNIT_COLUMNS;
constexpr int THREADS = 32 * WARPS_ACROSS * WARPS_ALONG;
constexpr int TILES_ACROSS = (RESULT_WIDTH + TILE_WIDTH - 1) / TILE_WIDTH;
constexpr int TILES_DOWN = (RESULT_HEIGHT + TILE_HEIGHT - 1) / TILE_HEIGHT;
constexpr int IMAGE_ROW = IMAGE_WIDTH * CHANNELS;
constexpr int IMAGE_START = PIXELS * GRADIENT_STRIDE;
constexpr int STAGE_SIZE = IMAGE_START + STAGED_ROWS * STAGED_ROW;
// The partial sums of all filters and columns, by one of the blocks that share the tiles.
constexpr int N_PARTIAL = FILTER_PARTS * ROWS * WINDOW_PARTS * COLUMNS;

__device__ __forceinline__ int group() { return threadIdx.x % 32 / 4; }
__device__ __forceinline__ int place() { return threadIdx.x % 4; }

struct Tile {
  Index image;
  int y, x, n_pixels;
};

__device__ __forceinline__ Tile tile_of(Index number) {
  int y = (int)(number / TILES_ACROSS % TILES_DOWN) * TILE_HEIGHT, x = (int)(number % TILES_ACROSS) * TILE_WIDTH;
  int height = min(TILE_HEIGHT, RESULT_HEIGHT - y), width = min(TILE_WIDTH, RESULT_WIDTH - x);
  return {number / (TILES_ACROSS * TILES_DOWN), y, x, height * width};
}

// Copies COPIED elements of the image, or writes zeros.
__device__ __forceinline__ void copy(Element* to, const Element* from, bool is_zero) {
  if constexpr (COPIED * sizeof(Element) == 16) {
    soybean_copy_16(to, from, is_zero);
  } else if constexpr (COPIED * sizeof(Element) == 4) {
    soybean_copy_4(to, from, is_zero);
  } else {
    *to = is_zero ? (Element)0 : *from;
  }
}

// The part of a block in filters and columns, and the first row of the window that these read.
struct Part {
  int filter, column, window_row;
};

__device__ __forceinline__ Part part_of_block() {
  int column = blockIdx.x % WINDOW_PARTS * COLUMNS;
  return {(int)(blockIdx.x / WINDOW_PARTS % FILTER_PARTS) * ROWS, column, column / PITCH};
}

// Begins to copy the gradients of a tile for ROWS filters. There are zeros beyond its pixels and
// beyond the filters.
__device__ __forceinline__ void fetch_gradients(Element* to, const Element* gradient, const Part& part, const Tile& tile) {
  // The pixels that all threads copy at a time, each a chunk of one pixel.
  constexpr int CHUNK = 16 / sizeof(Element), CHUNKS = ROWS / CHUNK, AT_ONCE = THREADS / CHUNKS;
  const int pixel = threadIdx.x / CHUNKS, filter = threadIdx.x % CHUNKS * CHUNK;
  const bool is_filter = part.filter + filter < FILTERS;
  if (THREADS % CHUNKS != 0 && pixel >= AT_ONCE) return;
  gradient += ((tile.image * RESULT_HEIGHT + tile.y) * RESULT_WIDTH + tile.x + pixel) * FILTERS + part.filter + filter;
  to += pixel * GRADIENT_STRIDE + filter;
#pragma unroll
  for (int n = 0; n < PIXELS; n += AT_ONCE) {
    if (PIXELS % AT_ONCE != 0 && n + pixel >= PIXELS) return;
    soybean_copy_16(to + n * GRADIENT_STRIDE, gradient + n * FILTERS, n + pixel >= tile.n_pixels || !is_filter);
  }
}

// Begins to copy the rows of an image under a tile, each by a warp. There are zeros beyond the
// image.
__device__ __forceinline__ void fetch_rows(Element* to, const Element* image, const Part& part, const Tile& tile) {
  constexpr int AT_ONCE = 32 * COPIED;
  const int place = threadIdx.x % 32 * COPIED, x = tile.x * STRIDE_X * CHANNELS - STAGED_LEFT + place;
  const int top = tile.y * STRIDE_Y - PADDING_Y + part.window_row * DILATION_Y;
  image += tile.image * IMAGE_HEIGHT * IMAGE_ROW + x;
  for (int row = threadIdx.x / 32; row < STAGED_ROWS; row += THREADS / 32) {
    const int y = top + row;
    const bool is_row = 0 <= y && y < IMAGE_HEIGHT;
    const Element* from = image + y * IMAGE_ROW;
#pragma unroll 8
    for (int n = 0; n < STAGED_ROW; n += AT_ONCE) {
      if (STAGED_ROW % AT_ONCE != 0 && n + place >= STAGED_ROW) break;
      copy(to + row * STAGED_ROW + n + place, from + n, !is_row || x + n < 0 || x + n >= IMAGE_ROW);
    }
  }
}

__device__ __forceinline__ void fetch(Element* to, const Element* image, const Element* gradient, const Part& part, const Tile& tile) {
  fetch_gradients(to, gradient, part, tile);
  fetch_rows(to + IMAGE_START, image, part, tile);
}

// Rounds the elements of a tile for products in tf32.
__device__ __forceinline__ void round_tile(float* tile) {
  for (int i = 4 * threadIdx.x; i < STAGE_SIZE; i += 4 * THREADS) {
    float4 x = *(float4*)(tile + i);
    *(uint4*)(tile + i) = make_uint4(soybean_to_tf32(x.x), soybean_to_tf32(x.y), soybean_to_tf32(x.z), soybean_to_tf32(x.w));
  }
}
__device__ __forceinline__ void round_tile(bf16*) {}

// Loads the gradients of a step. In bf16, the depths 2 i and 2 i + 1 of 8 are the pixels i and
// i + 4, which neighboring places then read from different banks of the image.
__device__ __forceinline__ void load_gradients(unsigned (&words)[ROW_TILES][DEPTH_TILES][4], const bf16* from) {
  int row = threadIdx.x % 8, matrix = threadIdx.x % 32 / 8;
  from += (row / 2 + row % 2 * 4 + matrix / 2 * 8) * GRADIENT_STRIDE + matrix % 2 * 8;
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) soybean_load_matrices_transposed(words[m][0], (const unsigned*)(from + 16 * m));
}
__device__ __forceinline__ void load_gradients(unsigned (&words)[ROW_TILES][DEPTH_TILES][4], const float* from) {
  from += place() * GRADIENT_STRIDE + group();
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
    for (int i = 0; i < 4 * DEPTH_TILES; ++i) words[m][i / 4][i % 4] = __float_as_uint(from[i / 2 * 4 * GRADIENT_STRIDE + 16 * m + i % 2 * 8]);
  }
}

// Loads the element of a pixel for a lane's columns of a unit.
__device__ __forceinline__ unsigned load_element(const bf16* from) { return UNIT_TILES == 2 ? *(const unsigned*)from : *from; }
__device__ __forceinline__ unsigned load_element(const float* from) { return __float_as_uint(*from); }

// Adds the products of a row tile with a unit, whose words are those of the pixels place() + 4 i.
__device__ __forceinline__ void multiply(float (*sums)[4], const unsigned (&left)[DEPTH_TILES][4], const unsigned (&y)[4]) {
  if constexpr (PER_WORD == 1) {
    soybean_mma_tf32(sums[0], left[0], y), soybean_mma_tf32(sums[0], left[DEPTH_TILES - 1], y + 2);
  } else {
    unsigned low[2] = {__byte_perm(y[0], y[1], 0x5410), __byte_perm(y[2], y[3], 0x5410)};
    soybean_mma_bf16(sums[0], left[0], low);
    if constexpr (UNIT_TILES == 2) {
      unsigned high[2] = {__byte_perm(y[0], y[1], 0x7632), __byte_perm(y[2], y[3], 0x7632)};
      soybean_mma_bf16(sums[1], left[0], high);
    }
  }
}

// Returns the bytes from the first pixel of a tile to another.
__device__ __forceinline__ int offset_of(int pixel) {
  constexpr int ROW = STRIDE_Y * STAGED_ROW * sizeof(Element), PIXEL = STRIDE_X * CHANNELS * sizeof(Element);
  return pixel < TILE_HEIGHT * TILE_WIDTH ? pixel / TILE_WIDTH * ROW + pixel % TILE_WIDTH * PIXEL : 0;
}
// Returns the bytes from the start of a tile to what a column reads for its first pixel.
__device__ __forceinline__ int offset_of_column(const Part& part, int column) {
  int row = column / PITCH - part.window_row, offset = row * DILATION_Y * STAGED_ROW + column % PITCH + WINDOW_START;
  if (column >= WINDOW_HEIGHT * PITCH) offset = 0;
  return (IMAGE_START + offset) * sizeof(Element);
}

// The places in a tile of what a lane reads.
struct Places {
  // The offsets of the pixels place() + 4 i of each step.
  const int4* pixels;
  // The offsets of the columns of each unit.
  int columns[UNITS];
};

// The operands of a lane for the products of a step.
struct Operands {
  unsigned rows[ROW_TILES][DEPTH_TILES][4];
  unsigned units[UNITS][4];

  // Loads the operands of a step, of whose pixels `n_left` are left. Others may be anything.
  template <bool IS_WHOLE> __device__ __forceinline__ void load(const Element* tile, const Places& places, int step, int n_left) {
    load_gradients(rows, tile + step * STEP * GRADIENT_STRIDE);
    int4 pixels = places.pixels[4 * step + place()];
    int at[4] = {pixels.x, pixels.y, pixels.z, pixels.w};
#pragma unroll
    for (int n = 0; n < UNITS; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        bool is_pixel = IS_WHOLE || place() + 4 * i < n_left;
        units[n][i] = is_pixel ? load_element((const Element*)((const char*)tile + at[i] + places.columns[n])) : 0u;
      }
    }
  }
};

// The sums of a lane.
struct Sums {
  float numbers[ROW_TILES][COLUMN_TILES][4];

  __device__ __forceinline__ void add_products(const Operands& it) {
#pragma unroll
    for (int n = 0; n < UNITS; ++n) {
#pragma unroll
      for (int m = 0; m < ROW_TILES; ++m) multiply(numbers[m] + n * UNIT_TILES, it.rows[m], it.units[n]);
    }
  }

  // Adds the products of each WARPS_ALONG-th step of a tile from the step `first` on. The operands
  // of a step are loaded before the products of the last one are added.
  __device__ __forceinline__ void add_tile(const Element* tile, const Places& places, int first, int n_pixels) {
    const int n_steps = n_pixels / STEP;
    Operands next;
    next.load<true>(tile, places, min(first, STEPS - 1), STEP);
#pragma unroll 2
    for (int step = first; step < n_steps; step += WARPS_ALONG) {
      Operands now = next;
      next.load<true>(tile, places, min(step + WARPS_ALONG, STEPS - 1), STEP);
      add_products(now);
    }
    if (n_pixels % STEP != 0 && n_steps % WARPS_ALONG == first) {
      next.load<false>(tile, places, n_steps, n_pixels % STEP);
      add_products(next);
    }
  }

  // Writes the sums to rows of this length, or adds them.
  __device__ __forceinline__ void put(float* rows, int length, bool is_added) const {
#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
      for (int n = 0; n < COLUMN_TILES; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          int row = 16 * m + group() + i / 2 * 8, column = n / UNIT_TILES * UNIT_COLUMNS + (2 * place() + i % 2) * UNIT_TILES + n % UNIT_TILES;
          float* to = rows + row * length + column;
          *to = is_added ? *to + numbers[m][n][i] : numbers[m][n][i];
        }
      }
    }
  }
};

// Adds up the products of each SPLITS-th tile, for some of the filters and the columns.
__device__ __forceinline__ void product(const Element* image, const Element* gradient, float* partial) {
  SOYBEAN_SHARED(unsigned, shared);
  constexpr int ALL_COLUMNS = WINDOW_PARTS * COLUMNS;
  int4* pixels = (int4*)shared;
  Element* stages = (Element*)(pixels + 4 * STEPS);
  int warp = threadIdx.x / 32, along = warp / WARPS_ACROSS, first_column = warp % WARPS_ACROSS * UNITS * UNIT_COLUMNS;
  Index split = blockIdx.x / (FILTER_PARTS * WINDOW_PARTS);
  Part part = part_of_block();
  for (int i = threadIdx.x; i < 4 * STEPS; i += THREADS) {
    int pixel = i / 4 * STEP + i % 4;
    pixels[i] = make_int4(offset_of(pixel), offset_of(pixel + 4), offset_of(pixel + 8), offset_of(pixel + 12));
  }
  Places places = {pixels};
#pragma unroll
  for (int n = 0; n < UNITS; ++n) places.columns[n] = offset_of_column(part, part.column + first_column + n * UNIT_COLUMNS + group() * UNIT_TILES);
  Sums sums = {};
  Tile tile = tile_of(split);
  fetch(stages, image, gradient, part, tile);
  int stage = 0;
  for (Index number = split; number < TILES; number += SPLITS, stage ^= 1) {
    const int n_pixels = tile.n_pixels;
    Element *now = stages + stage * STAGE_SIZE, *next = stages + (stage ^ 1) * STAGE_SIZE;
    soybean_wait_for_copies();
    __syncthreads();
    if (number + SPLITS < TILES) tile = tile_of(number + SPLITS), fetch(next, image, gradient, part, tile);
    if constexpr (PER_WORD == 1) round_tile(now), __syncthreads();
    sums.add_tile(now, places, along, n_pixels);
  }
  partial += split * N_PARTIAL + part.filter * ALL_COLUMNS + part.column;
  if constexpr (WARPS_ALONG == 1) {
    sums.put(partial + first_column, ALL_COLUMNS, false);
  } else {
    float* all = (float*)shared;
    for (int turn = 0; turn < WARPS_ALONG; ++turn) {
      __syncthreads();
      if (turn == along) sums.put(all + first_column, COLUMNS, turn > 0);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < ROWS * COLUMNS; i += THREADS) partial[i / COLUMNS * ALL_COLUMNS + i % COLUMNS] = all[i];
  }
}

// Adds up the partial sums of blocks, always in the same order. All warps share 32 results.
__device__ __forceinline__ void finish(const float* partial, Result* result) {
  constexpr int WINDOW_ROW = WINDOW_WIDTH * CHANNELS, WINDOW = WINDOW_HEIGHT * WINDOW_ROW, WARPS = 32;
  __shared__ float parts[WARPS][32];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, i = blockIdx.x * 32 + lane;
  float sum = 0.0f;
  if (i < FILTERS * WINDOW) {
    int row = i % WINDOW / WINDOW_ROW, column = row * PITCH + i % WINDOW_ROW + WINDOW_LEAD;
    partial += i / WINDOW * (WINDOW_PARTS * COLUMNS) + column;
#pragma unroll 8
    for (Index split = warp; split < SPLITS; split += WARPS) sum += partial[split * N_PARTIAL];
  }
  parts[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || i >= FILTERS * WINDOW) return;
  for (int other = 1; other < WARPS; ++other) sum += parts[other][lane];
  soybean_store(result + i, sum);
}
