//! Tiles in shared memory, and their products in registers by tensor cores.
//!
//! A word holds two neighbors in bf16, or one number in tf32, so that products of both kinds have
//! one layout. Each of the four warps of a block owns ROW_TILES times 16 rows. Of these, a lane has
//! the rows `group()` and `group() + 8`, and of 8 columns those at `2 * place()` and the next. So
//! the result of one product in its lanes is the operand of the next.
//!
//! The rows of a tile are an odd number of groups of four words apart. Eight rows that are read at
//! the same time then come from all banks.

constexpr int THREADS = 128;
constexpr int STEP_WORDS = 8;
constexpr int STEP = STEP_WORDS * PER_WORD;
constexpr int FEATURE_STEPS = (FEATURES + STEP - 1) / STEP;
constexpr int WIDTH_STEPS = (WIDTH + STEP - 1) / STEP;
constexpr int SCORE_TILES = TILE_COLUMNS / 8;
constexpr int FEATURE_TILES = (FEATURES + 7) / 8;
constexpr int WIDTH_TILES = (WIDTH + 7) / 8;

__device__ __forceinline__ int lane() { return threadIdx.x % 32; }
__device__ __forceinline__ int group() { return lane() / 4; }
__device__ __forceinline__ int place() { return threadIdx.x % 4; }
__device__ __forceinline__ int warp_row() { return threadIdx.x / 32 * (16 * ROW_TILES); }

__device__ __forceinline__ unsigned word(float low, float high) { return PER_WORD == 2 ? soybean_pack_bf16(low, high) : soybean_to_tf32(low); }

__device__ __forceinline__ void multiply(float (&sums)[4], const unsigned* left, const unsigned* right) {
  if constexpr (PER_WORD == 2) {
    soybean_mma_bf16(sums, left, right);
  } else {
    soybean_mma_tf32(sums, left, right);
  }
}

// True if elements in memory are words already, in rows of LENGTH that can be copied in groups of
// 16 bytes.
template <int LENGTH, class Element> struct are_words { static constexpr bool value = false; };
template <int LENGTH> struct are_words<LENGTH, bf16> { static constexpr bool value = PER_WORD == 2 && LENGTH % 8 == 0; };

// Reads four words of a row of LENGTH elements; zeros past its end.
template <int LENGTH, class Element> __device__ __forceinline__ uint4 four_words(const Element* row, int column) {
  constexpr int N = 4 * PER_WORD;
  float x[N] = {};
  if constexpr (LENGTH % N == 0) {
    if (column < LENGTH) soybean_load(row + column, x);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = column + i < LENGTH ? soybean_value(row[column + i]) : 0.0f;
  }
  constexpr int P = PER_WORD;
  return make_uint4(word(x[0], x[P - 1]), word(x[P], x[2 * P - 1]), word(x[2 * P], x[3 * P - 1]), word(x[3 * P], x[4 * P - 1]));
}

// Copies the rows from `first` on of a matrix to a tile of ROWS rows. Beyond the `n_rows` of the
// matrix and the ends of its rows there are zeros. `first` is one of the rows and a multiple of
// ROWS. In memory, rows are ROW elements apart. The copy has arrived after `arrive`.
template <int ROWS, int LENGTH, int STRIDE, int ROW, class Element>
__device__ __forceinline__ void fetch(unsigned* tile, const Element* from, int first, int n_rows) {
  constexpr bool ARE_WORDS = are_words<LENGTH, Element>::value;
  constexpr int CHUNKS = (LENGTH + STEP - 1) / STEP * (STEP_WORDS / 4);
  // The rows that all threads copy at a time, each four words of one row.
  constexpr int AT_ONCE = THREADS / CHUNKS;
  int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS, column = chunk * 4 * PER_WORD;
  if (THREADS % CHUNKS != 0 && row >= AT_ONCE) return;
  tile += row * STRIDE + chunk * 4;
  from += (Offset)(first + row) * ROW;
#pragma unroll(ARE_WORDS ? 64 : 4)
  for (int n = 0; n < ROWS; n += AT_ONCE) {
    if (ROWS % AT_ONCE != 0 && n + row >= ROWS) return;
    bool is_inside = n_rows % ROWS == 0 || first + row + n < n_rows;
    if constexpr (ARE_WORDS) {
      soybean_copy_16(tile + n * STRIDE, from + n * ROW + column, !is_inside || (LENGTH % STEP != 0 && column >= LENGTH));
    } else {
      *(uint4*)(tile + n * STRIDE) = is_inside ? four_words<LENGTH>(from + n * ROW, column) : make_uint4(0, 0, 0, 0);
    }
  }
}

// Waits until all tiles that the block has fetched are there, and all threads are here.
__device__ __forceinline__ void arrive() {
  soybean_wait_for_copies();
  __syncthreads();
}

template <int TILES> __device__ __forceinline__ void clear(float (&sums)[ROW_TILES][TILES][4]) {
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
    for (int n = 0; n < TILES; ++n) sums[m][n][0] = sums[m][n][1] = sums[m][n][2] = sums[m][n][3] = 0.0f;
  }
}

// The row and the word from which a lane loads 16 rows of 8 words, in the order of left operands.
__device__ __forceinline__ int left_place(int stride) { return lane() % 16 * stride + lane() / 16 * 4; }
// The same in the order of two right operands of 8 rows.
__device__ __forceinline__ int right_place(int stride) { return (lane() % 8 + lane() / 16 * 8) * stride + lane() / 8 % 2 * 4; }

// sums[m][n] = the products of the rows of the warp in `left` and the rows of `right`.
template <int STEPS, int STRIDE>
__device__ __forceinline__ void dot_rows(float (&sums)[ROW_TILES][SCORE_TILES][4], const unsigned* left, const unsigned* right) {
  left += warp_row() * STRIDE + left_place(STRIDE);
  right += right_place(STRIDE);
  clear(sums);
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    unsigned x[ROW_TILES][4];
#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m) soybean_load_matrices(x[m], left + m * 16 * STRIDE + step * STEP_WORDS);
#pragma unroll
    for (int n = 0; n < SCORE_TILES; n += 2) {
      unsigned y[4];
      soybean_load_matrices(y, right + n * 8 * STRIDE + step * STEP_WORDS);
#pragma unroll
      for (int m = 0; m < ROW_TILES; ++m) multiply(sums[m][n], x[m], y), multiply(sums[m][n + 1], x[m], y + 2);
    }
  }
}

// The words of the numbers of a step along the columns of a lane's scores.
__device__ __forceinline__ void step_words(unsigned (&words)[4], const float (&scores)[SCORE_TILES][4], int step) {
  if constexpr (PER_WORD == 2) {
    const float (&x)[4] = scores[2 * step], (&y)[4] = scores[2 * step + 1];
    words[0] = word(x[0], x[1]), words[1] = word(x[2], x[3]), words[2] = word(y[0], y[1]), words[3] = word(y[2], y[3]);
  } else {
    const float (&x)[4] = scores[step];
    words[0] = word(x[0], x[0]), words[1] = word(x[2], x[2]), words[2] = word(x[1], x[1]), words[3] = word(x[3], x[3]);
  }
}

// Returns the part of a tile from which a lane loads columns.
template <int STRIDE> __device__ __forceinline__ const unsigned* columns_of_lane(const unsigned* tile) {
  return tile + (PER_WORD == 2 ? left_place(STRIDE) : 2 * place() * STRIDE + group());
}

// Loads the right operands of two products with 8 columns each of a step of rows of a tile. In
// bf16 the columns are neighbors. In tf32 the rows are in the order of `step_words`.
template <int STRIDE> __device__ __forceinline__ void step_columns(unsigned (&words)[4], const unsigned* of_lane, int step, int column, int second) {
  of_lane += step * STEP * STRIDE;
  if constexpr (PER_WORD == 2) {
    soybean_load_matrices_transposed(words, of_lane + column / 2);
  } else {
    words[0] = of_lane[column], words[1] = of_lane[STRIDE + column], words[2] = of_lane[second], words[3] = of_lane[STRIDE + second];
  }
}

// sums += the scores times a tile.
template <int TILES, int STRIDE>
__device__ __forceinline__ void add_product(float (&sums)[ROW_TILES][TILES][4], const float (&scores)[ROW_TILES][SCORE_TILES][4], const unsigned* tile) {
  const unsigned* of_lane = columns_of_lane<STRIDE>(tile);
#pragma unroll
  for (int step = 0; step < TILE_COLUMNS / STEP; ++step) {
    unsigned x[ROW_TILES][4];
#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m) step_words(x[m], scores[m], step);
#pragma unroll
    for (int n = 0; n < TILES; n += 2) {
      unsigned y[4];
      step_columns<STRIDE>(y, of_lane, step, n * 8, n + 1 < TILES ? n * 8 + 8 : n * 8);
#pragma unroll
      for (int m = 0; m < ROW_TILES; ++m) {
        multiply(sums[m][n], x[m], y);
        if (n + 1 < TILES) multiply(sums[m][n + 1], x[m], y + 2);
      }
    }
  }
}

// Writes two neighbors of a row of LENGTH elements, but not past its end.
template <int LENGTH> __device__ __forceinline__ void put_pair(float* row, int column, float x, float y) {
  if constexpr (LENGTH % 2 == 0) {
    if (column < LENGTH) *(float2*)(row + column) = make_float2(x, y);
  } else {
    if (column < LENGTH) row[column] = x;
    if (column + 1 < LENGTH) row[column + 1] = y;
  }
}
template <int LENGTH> __device__ __forceinline__ void put_pair(bf16* row, int column, float x, float y) {
  if constexpr (LENGTH % 2 == 0) {
    if (column < LENGTH) *(unsigned*)(row + column) = soybean_pack_bf16(x, y);
  } else {
    if (column < LENGTH) soybean_store(row + column, x);
    if (column + 1 < LENGTH) soybean_store(row + column + 1, y);
  }
}

// Writes the sums of the lane, times a factor for each row, to the rows from `first` on of a matrix
// that has `n_rows`, which are ROW elements apart.
template <int TILES, int LENGTH, int ROW, class Element>
__device__ __forceinline__ void put_sums(Element* to, int first, int n_rows, const float (&sums)[ROW_TILES][TILES][4], const float (&factor)[ROW_TILES][2]) {
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int row = first + warp_row() + m * 16 + half * 8 + group();
      if (row >= n_rows) continue;
#pragma unroll
      for (int n = 0; n < TILES; ++n) {
        float x = sums[m][n][2 * half] * factor[m][half], y = sums[m][n][2 * half + 1] * factor[m][half];
        put_pair<LENGTH>(to + (Offset)row * ROW, n * 8 + 2 * place(), x, y);
      }
    }
  }
}

__device__ __forceinline__ void fill(float (&rows)[ROW_TILES][2], float x) {
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) rows[m][0] = rows[m][1] = x;
}

// Returns the maximum or the sum over the 4 lanes of a row. A maximum is NaN only if all are.
__device__ __forceinline__ float most_over_row(float x) {
  x = fmaxf(x, __shfl_xor_sync(SOYBEAN_ALL_LANES, x, 2));
  return fmaxf(x, __shfl_xor_sync(SOYBEAN_ALL_LANES, x, 1));
}
__device__ __forceinline__ float sum_over_row(float x) { return soybean_combine_lanes<soybean_sum>(x, 4); }
