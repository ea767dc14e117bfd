//! Tiles in shared memory, and their products in registers by fused multiply-add.
//!
//! The 256 threads of a block form 16 rows of 16. Rows of tiles have an odd number of groups of
//! four numbers. A quarter of a warp that reads such groups of 8 rows then reads from all banks.
//! Tiles are padded with zeros to whole groups.

constexpr int THREADS = SIDE * SIDE;

__device__ __forceinline__ int thread_row() { return threadIdx.x / SIDE; }
__device__ __forceinline__ int thread_column() { return threadIdx.x % SIDE; }

// Reads four neighbors of a row of LENGTH elements; zeros past its end.
template <int LENGTH, class Element> __device__ __forceinline__ float4 four(const Element* row, int column) {
  float x[4];
  if constexpr (LENGTH % 4 == 0) {
    soybean_load(row + column, x);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = column + i < LENGTH ? soybean_value(row[column + i]) : 0.0f;
  }
  return make_float4(x[0], x[1], x[2], x[3]);
}

// Writes four neighbors of a row of LENGTH elements, but not past its end.
template <int LENGTH, class Element> __device__ __forceinline__ void put_four(Element* row, int column, const float (&x)[4]) {
  if constexpr (LENGTH % 4 == 0) {
    soybean_store(row + column, x);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (column + i < LENGTH) soybean_store(row + column + i, x[i]);
    }
  }
}

// Copies ROWS rows of the matrix `from`, which has `n_rows` in all, ROW elements apart; zeros past
// its end.
template <int ROWS, int LENGTH, int STRIDE, int ROW, class Element>
__device__ __forceinline__ void load_tile(float* tile, const Element* from, int first, int n_rows) {
  constexpr int GROUPS = (LENGTH + 3) / 4;
#pragma unroll 4
  for (int i = threadIdx.x; i < ROWS * GROUPS; i += THREADS) {
    int row = i / GROUPS, column = i % GROUPS * 4;
    bool is_inside = first + row < n_rows;
    float4 x = is_inside ? four<LENGTH>(from + (Offset)(first + row) * ROW, column) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    *(float4*)(tile + row * STRIDE + column) = x;
  }
}

__device__ __forceinline__ void dot_four(float& sum, float4 x, float4 y) {
  sum = fmaf(x.x, y.x, sum), sum = fmaf(x.y, y.y, sum), sum = fmaf(x.z, y.z, sum), sum = fmaf(x.w, y.w, sum);
}

__device__ __forceinline__ void add_four(float (&sums)[4], float x, float4 y) {
  sums[0] = fmaf(x, y.x, sums[0]), sums[1] = fmaf(x, y.y, sums[1]), sums[2] = fmaf(x, y.z, sums[2]), sums[3] = fmaf(x, y.w, sums[3]);
}

// sums[r][c] = the product of row `R * thread_row() + r` of `left` and row `thread_column() + 16 *
// c` of `right`.
template <int R, int C, int LENGTH, int STRIDE>
__device__ __forceinline__ void dot_rows(float (&sums)[R][C], const float* left, const float* right) {
  left += R * thread_row() * STRIDE;
  right += thread_column() * STRIDE;
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int c = 0; c < C; ++c) sums[r][c] = 0.0f;
  }
#pragma unroll 4
  for (int k = 0; k < LENGTH; k += 4) {
    float4 x[R], y[C];
#pragma unroll
    for (int r = 0; r < R; ++r) x[r] = *(const float4*)(left + r * STRIDE + k);
#pragma unroll
    for (int c = 0; c < C; ++c) y[c] = *(const float4*)(right + c * SIDE * STRIDE + k);
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int c = 0; c < C; ++c) dot_four(sums[r][c], x[r], y[c]);
    }
  }
}

// Returns true if a thread has numbers in this group of its columns, `4 * thread_column() + 64 *
// group` and the next three.
template <int LENGTH> __device__ __forceinline__ bool has_columns(int group) {
  return (group + 1) * 4 * SIDE <= LENGTH || group * 4 * SIDE + 4 * thread_column() < LENGTH;
}

// sums[r][g] += row `R * thread_row() + r` of `left`, of DEPTH numbers, times the columns of the
// thread in `right`, whose rows have LENGTH numbers.
template <int R, int G, int DEPTH, int STRIDE, int LENGTH, int RIGHT_STRIDE>
__device__ __forceinline__ void add_rows_times(float (&sums)[R][G][4], const float* left, const float* right) {
  left += R * thread_row() * STRIDE;
  right += 4 * thread_column();
#pragma unroll 4
  for (int k = 0; k < DEPTH; k += 4) {
    float4 x[R];
#pragma unroll
    for (int r = 0; r < R; ++r) x[r] = *(const float4*)(left + r * STRIDE + k);
#pragma unroll
    for (int g = 0; g < G; ++g) {
      if (!has_columns<LENGTH>(g)) continue;
      const float* y = right + k * RIGHT_STRIDE + g * 4 * SIDE;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        add_four(sums[r][g], x[r].x, *(const float4*)y);
        add_four(sums[r][g], x[r].y, *(const float4*)(y + RIGHT_STRIDE));
        add_four(sums[r][g], x[r].z, *(const float4*)(y + 2 * RIGHT_STRIDE));
        add_four(sums[r][g], x[r].w, *(const float4*)(y + 3 * RIGHT_STRIDE));
      }
    }
  }
}

// sums[r][g] += column `R * thread_row() + r` of `left`, of DEPTH numbers, times the columns of the
// thread in `right`, whose rows have LENGTH numbers.
template <int R, int G, int DEPTH, int STRIDE, int LENGTH, int RIGHT_STRIDE>
__device__ __forceinline__ void add_columns_times(float (&sums)[R][G][4], const float* left, const float* right) {
  left += R * thread_row();
  right += 4 * thread_column();
#pragma unroll 4
  for (int k = 0; k < DEPTH; ++k) {
    float x[R];
#pragma unroll
    for (int r = 0; r < R; r += 2) {
      float2 pair = *(const float2*)(left + k * STRIDE + r);
      x[r] = pair.x, x[r + 1] = pair.y;
    }
#pragma unroll
    for (int g = 0; g < G; ++g) {
      if (!has_columns<LENGTH>(g)) continue;
      float4 y = *(const float4*)(right + k * RIGHT_STRIDE + g * 4 * SIDE);
#pragma unroll
      for (int r = 0; r < R; ++r) add_four(sums[r][g], x[r], y);
    }
  }
}

// Writes the sums of the thread, times a factor for each row, to the rows from `first` on of a
// matrix that has `n_rows`, which are ROW elements apart.
template <int R, int G, int LENGTH, int ROW, class Element>
__device__ __forceinline__ void put_sums(Element* to, int first, int n_rows, const float (&sums)[R][G][4], const float (&factor)[R]) {
#pragma unroll
  for (int r = 0; r < R; ++r) {
    int row = first + R * thread_row() + r;
    if (row >= n_rows) break;
#pragma unroll
    for (int g = 0; g < G; ++g) {
      if (!has_columns<LENGTH>(g)) continue;
      float x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = sums[r][g][i] * factor[r];
      put_four<LENGTH>(to + (Offset)row * ROW, 4 * thread_column() + g * 4 * SIDE, x);
    }
  }
}

// Returns the sum or the maximum over the 16 threads of a row.
template <class Combine> __device__ __forceinline__ float over_row(float x) { return soybean_combine_lanes<Combine>(x, SIDE); }
