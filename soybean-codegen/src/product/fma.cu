//! Products of tiles in shared memory by fused multiply-add, each thread with a block of sums in
//! registers.

constexpr int ACROSS = TILE_COLUMNS / THREAD_SIDE;
constexpr int THREADS = TILE_ROWS / THREAD_SIDE * ACROSS;
constexpr int GROUPS = THREAD_SIDE / 4;

// The part of a thread in a copy of a tile from global to shared memory, where a row holds one
// element of each line.
template <int LINES, bool ALONG_DEPTH, class Operand> struct Loader {
  static constexpr int N = LINES * TILE_DEPTH / THREADS;
  static constexpr int STRIDE = LINES + 4;
  static constexpr int SIZE = TILE_DEPTH * STRIDE;
  Operand operand;
  bool is_inside[N];
  typename Operand::Line lines[N];
  float numbers[N];

  static __device__ __forceinline__ int line(int i) {
    int element = i * THREADS + threadIdx.x;
    return ALONG_DEPTH ? element / TILE_DEPTH : element % LINES;
  }
  static __device__ __forceinline__ int depth(int i) {
    int element = i * THREADS + threadIdx.x;
    return ALONG_DEPTH ? element % TILE_DEPTH : element / LINES;
  }
  __device__ __forceinline__ void begin(Index first, Index n_lines) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      is_inside[i] = first + line(i) < n_lines;
      lines[i] = operand.line(is_inside[i] ? first + line(i) : first);
    }
  }
  __device__ __forceinline__ void read(Index start, Index end) {
#pragma unroll
    for (int i = 0; i < N; ++i) numbers[i] = is_inside[i] && start + depth(i) < end ? operand.at(lines[i], start + depth(i)) : 0.0f;
  }
  __device__ __forceinline__ void write(float* tile) const {
#pragma unroll
    for (int i = 0; i < N; ++i) tile[depth(i) * STRIDE + line(i)] = numbers[i];
  }
};

__device__ __forceinline__ void read_four(float* to, const float* from) {
  float4 x = *(const float4*)from;
  to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}

__device__ __forceinline__ void product(const Left::Element* left, const Right::Element* right, Target* to, const Bias* bias) {
  typedef Loader<TILE_ROWS, Left::ALONG_DEPTH, Left> LeftLoader;
  typedef Loader<TILE_COLUMNS, Right::ALONG_DEPTH, Right> RightLoader;
  __shared__ __align__(16) float left_tiles[2][LeftLoader::SIZE];
  __shared__ __align__(16) float right_tiles[2][RightLoader::SIZE];
  Place place = place_of_block();
  LeftLoader rows = {{left + Left::start(place.batch)}};
  RightLoader columns = {{right + Right::start(place.batch)}};
  rows.begin(place.row, ROWS), columns.begin(place.column, COLUMNS);
  int row = threadIdx.x / ACROSS * 4, column = threadIdx.x % ACROSS * 4;
  float sums[THREAD_SIDE][THREAD_SIDE] = {};
  Index start = first_depth(place.split), end = last_depth(place.split);
  rows.read(start, end), columns.read(start, end);
  for (int buffer = 0; start < end; start += TILE_DEPTH, buffer ^= 1) {
    rows.write(left_tiles[buffer]), columns.write(right_tiles[buffer]);
    // With two buffers one barrier is enough: a thread that writes to a buffer has passed the
    // barrier after which all threads have read it.
    __syncthreads();
    rows.read(start + TILE_DEPTH, end), columns.read(start + TILE_DEPTH, end);
#pragma unroll
    for (int k = 0; k < TILE_DEPTH; ++k) {
      float x[THREAD_SIDE], y[THREAD_SIDE];
#pragma unroll
      for (int i = 0; i < GROUPS; ++i) {
        read_four(x + 4 * i, left_tiles[buffer] + k * LeftLoader::STRIDE + row + i * (TILE_ROWS / GROUPS));
        read_four(y + 4 * i, right_tiles[buffer] + k * RightLoader::STRIDE + column + i * (TILE_COLUMNS / GROUPS));
      }
#pragma unroll
      for (int i = 0; i < THREAD_SIDE; ++i) {
#pragma unroll
        for (int j = 0; j < THREAD_SIDE; ++j) sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < THREAD_SIDE; ++i) {
#pragma unroll
    for (int j = 0; j < THREAD_SIDE; ++j) {
      Index at_row = place.row + row + i / 4 * (TILE_ROWS / GROUPS) + i % 4, at_column = place.column + column + j / 4 * (TILE_COLUMNS / GROUPS) + j % 4;
      put(to, bias, place, at_row, at_column, sums[i][j]);
    }
  }
}
