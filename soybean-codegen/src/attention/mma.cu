//! Tiles in shared memory, and their products in registers by tensor cores.
//!
//! A word holds two neighbors in bf16, or one number in tf32, so that products of both kinds have
//! one layout. Each of the four warps of a block owns ROW_TILES times 16 rows. Of these, a lane has
//! the rows `group()` and `group() + 8`, and of 8 columns those at `2 * place()` and the next. The
//! numbers of a row may be multiplied in any order. A lane therefore takes neighboring words, and
//! the result of one product in its lanes is the operand of the next.

constexpr int THREADS = 128;
constexpr int STEP_WORDS = 8;
constexpr int STEP = STEP_WORDS * PER_WORD;
constexpr int FEATURE_STEPS = (FEATURES + STEP - 1) / STEP;
constexpr int WIDTH_STEPS = (WIDTH + STEP - 1) / STEP;
constexpr int SCORE_TILES = TILE_COLUMNS / 8;
constexpr int FEATURE_TILES = (FEATURES + 7) / 8;
constexpr int WIDTH_TILES = (WIDTH + 7) / 8;

__device__ __forceinline__ int group() { return threadIdx.x % 32 / 4; }
__device__ __forceinline__ int place() { return threadIdx.x % 4; }
__device__ __forceinline__ int warp_row() { return threadIdx.x / 32 * (16 * ROW_TILES); }

__device__ __forceinline__ unsigned word(float low, float high) { return PER_WORD == 2 ? soybean_pack_bf16(low, high) : soybean_to_tf32(low); }

__device__ __forceinline__ void multiply(float (&sums)[4], const unsigned (&left)[4], const unsigned (&right)[2]) {
  if constexpr (PER_WORD == 2) {
    soybean_mma_bf16(sums, left, right);
  } else {
    soybean_mma_tf32(sums, left, right);
  }
}

template <class Element> struct is_pairs { static constexpr bool value = false; };
template <> struct is_pairs<bf16> { static constexpr bool value = PER_WORD == 2; };

// Reads four words of a row of LENGTH elements; zeros past its end.
template <int LENGTH, class Element> __device__ __forceinline__ uint4 four_words(const Element* row, int column) {
  constexpr int N = 4 * PER_WORD;
  if constexpr (LENGTH % N == 0 && is_pairs<Element>::value) {
    return column < LENGTH ? *(const uint4*)(row + column) : make_uint4(0, 0, 0, 0);
  } else {
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
}

__device__ __forceinline__ unsigned lower_halves(unsigned x, unsigned y) { return (x & 0xffffu) | y << 16; }
__device__ __forceinline__ unsigned upper_halves(unsigned x, unsigned y) { return x >> 16 | (y & 0xffff0000u); }

// The part of a thread in a copy of ROWS rows of a matrix from global to shared memory. Beyond the
// matrix and the ends of its rows there are zeros.
template <int ROWS, int LENGTH, class Element> struct Loader {
  static constexpr int CHUNKS = (LENGTH + STEP - 1) / STEP * (STEP_WORDS / 4);
  static constexpr int N = (ROWS / 2 * CHUNKS + THREADS - 1) / THREADS;
  // The next rows are loaded while products are computed, if they are few enough to be kept in
  // registers.
  static constexpr bool IS_EARLY = N <= MOST_EARLY && LENGTH % 8 == 0 && is_pairs<Element>::value;
  uint4 x[N], y[N];

  // The same words of two rows.
  static __device__ __forceinline__ void read_one(uint4& x, uint4& y, int n, const Element* from, int first, int n_rows) {
    int i = threadIdx.x + n * THREADS, row = first + i / CHUNKS * 2, column = i % CHUNKS * 4 * PER_WORD;
    const Element* at = from + row * LENGTH;
    bool is_part = i < ROWS / 2 * CHUNKS;
    x = is_part && row < n_rows ? four_words<LENGTH>(at, column) : make_uint4(0, 0, 0, 0);
    y = is_part && row + 1 < n_rows ? four_words<LENGTH>(at + LENGTH, column) : make_uint4(0, 0, 0, 0);
  }
  template <int STRIDE, int COLUMN_STRIDE>
  static __device__ __forceinline__ void write_one(unsigned* rows, unsigned* columns, int n, const uint4& x, const uint4& y) {
    int i = threadIdx.x + n * THREADS, row = i / CHUNKS * 2, chunk = i % CHUNKS;
    if (i >= ROWS / 2 * CHUNKS) return;
    if (rows) {
      *(uint4*)(rows + row * STRIDE + chunk * 4) = x;
      *(uint4*)(rows + (row + 1) * STRIDE + chunk * 4) = y;
    }
    if (columns) {
      uint4* to = (uint4*)(columns + row / 2 * COLUMN_STRIDE + chunk * 8);
      to[0] = make_uint4(lower_halves(x.x, y.x), upper_halves(x.x, y.x), lower_halves(x.y, y.y), upper_halves(x.y, y.y));
      to[1] = make_uint4(lower_halves(x.z, y.z), upper_halves(x.z, y.z), lower_halves(x.w, y.w), upper_halves(x.w, y.w));
    }
  }
  __device__ __forceinline__ void read(const Element* from, int first, int n_rows) {
    if constexpr (IS_EARLY) {
#pragma unroll
      for (int n = 0; n < N; ++n) read_one(x[n], y[n], n, from, first, n_rows);
    }
  }
  // Writes the loaded rows from `first` on: unchanged to `rows`; in pairs to `columns`, unless it
  // is null, so that a word holds neighbors of a column.
  template <int STRIDE, int COLUMN_STRIDE>
  __device__ __forceinline__ void write(unsigned* rows, unsigned* columns, const Element* from, int first, int n_rows) const {
    if constexpr (IS_EARLY) {
#pragma unroll
      for (int n = 0; n < N; ++n) write_one<STRIDE, COLUMN_STRIDE>(rows, columns, n, x[n], y[n]);
    } else {
#pragma unroll 4
      for (int n = 0; n < N; ++n) {
        uint4 low, high;
        read_one(low, high, n, from, first, n_rows);
        write_one<STRIDE, COLUMN_STRIDE>(rows, columns, n, low, high);
      }
    }
  }
};

// Copies rows of a matrix that are used once.
template <int ROWS, int LENGTH, int STRIDE, class Element>
__device__ __forceinline__ void load_rows(unsigned* rows, const Element* from, int first, int n_rows) {
  Loader<ROWS, LENGTH, Element> loader;
  loader.read(from, first, n_rows);
  loader.template write<STRIDE, 0>(rows, nullptr, from, first, n_rows);
}

// sums[m][n] = the products of the rows of the warp in `left` and the rows of `right`.
template <int STEPS, int STRIDE>
__device__ __forceinline__ void dot_rows(float (&sums)[ROW_TILES][SCORE_TILES][4], const unsigned* left, const unsigned* right) {
  left += (warp_row() + group()) * STRIDE + 2 * place();
  right += group() * STRIDE + 2 * place();
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
    for (int n = 0; n < SCORE_TILES; ++n) sums[m][n][0] = sums[m][n][1] = sums[m][n][2] = sums[m][n][3] = 0.0f;
  }
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    unsigned x[ROW_TILES][4];
#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m) {
      uint2 top = *(const uint2*)(left + m * 16 * STRIDE + step * STEP_WORDS);
      uint2 bottom = *(const uint2*)(left + (m * 16 + 8) * STRIDE + step * STEP_WORDS);
      x[m][0] = top.x, x[m][1] = bottom.x, x[m][2] = top.y, x[m][3] = bottom.y;
    }
#pragma unroll
    for (int n = 0; n < SCORE_TILES; ++n) {
      uint2 pair = *(const uint2*)(right + n * 8 * STRIDE + step * STEP_WORDS);
      unsigned y[2] = {pair.x, pair.y};
#pragma unroll
      for (int m = 0; m < ROW_TILES; ++m) multiply(sums[m][n], x[m], y);
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

// sums += the scores times a tile whose columns are in words.
template <int TILES, int STRIDE>
__device__ __forceinline__ void add_product(float (&sums)[ROW_TILES][TILES][4], const float (&scores)[ROW_TILES][SCORE_TILES][4], const unsigned* columns) {
  constexpr int NEXT = (PER_WORD == 2 ? 4 : 1) * STRIDE;
  columns += (PER_WORD == 2 ? 1 : 2) * place() * STRIDE + group();
#pragma unroll
  for (int step = 0; step < TILE_COLUMNS / STEP; ++step) {
    unsigned x[ROW_TILES][4];
#pragma unroll
    for (int m = 0; m < ROW_TILES; ++m) step_words(x[m], scores[m], step);
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
      const unsigned* at = columns + step * STEP_WORDS * STRIDE + n * 8;
      unsigned y[2] = {at[0], at[NEXT]};
#pragma unroll
      for (int m = 0; m < ROW_TILES; ++m) multiply(sums[m][n], x[m], y);
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
// that has `n_rows`.
template <int TILES, int LENGTH, class Element>
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
        put_pair<LENGTH>(to + row * LENGTH, n * 8 + 2 * place(), x, y);
      }
    }
  }
}

template <int TILES> __device__ __forceinline__ void clear(float (&sums)[ROW_TILES][TILES][4]) {
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
    for (int n = 0; n < TILES; ++n) sums[m][n][0] = sums[m][n][1] = sums[m][n][2] = sums[m][n][3] = 0.0f;
  }
}

__device__ __forceinline__ void fill(float (&rows)[ROW_TILES][2], float x) {
#pragma unroll
  for (int m = 0; m < ROW_TILES; ++m) rows[m][0] = rows[m][1] = x;
}

// Returns the sum or the maximum over the 4 lanes of a row.
template <class Combine> __device__ __forceinline__ float over_row(float x) { return soybean_combine_lanes<Combine>(x, 4); }
