//! Products of tiles in shared memory by tensor cores, each warp with a block of sums in registers.
//!
//! A word holds two neighbors along the depth in bf16, or one number in tf32, so that products of
//! both kinds have one layout. Lines of tiles are 20 words apart, so that 8 lines with 4 words each
//! are in different banks.
//!
//! Of 32 columns, a thread's sums are those of 8 neighbors: the right tile holds its columns in the
//! order in which tensor cores hand out their sums.

constexpr int STEP_WORDS = 8;
constexpr int TILE_WORDS = 16;
constexpr int STRIDE = TILE_WORDS + 4;
constexpr int TILE_DEPTH = TILE_WORDS * PER_WORD;
constexpr int WARPS_ACROSS = TILE_COLUMNS / (8 * COLUMN_TILES);
constexpr int NEIGHBORS = 2 * COLUMN_TILES;
static_assert(NEIGHBORS == 8);
constexpr int THREADS = 32 * (TILE_ROWS / (16 * ROW_TILES)) * WARPS_ACROSS;

__device__ __forceinline__ unsigned word(float low, float high) { return PER_WORD == 2 ? soybean_pack_bf16(low, high) : soybean_to_tf32(low); }

__device__ __forceinline__ void multiply(float (&sums)[4], const unsigned (&left)[4], const unsigned (&right)[2]) {
  if constexpr (PER_WORD == 2) {
    soybean_mma_bf16(sums, left, right);
  } else {
    soybean_mma_tf32(sums, left, right);
  }
}

// Returns the place of a column in the right tile: columns 2j and 2j + 1 of each 8 neighbors are
// in the tile j of the product.
__device__ __forceinline__ int shuffled(int column) { return column / 32 * 32 + column % 8 / 2 * 8 + column % 32 / 8 * 2 + column % 2; }

// The part of a thread in a copy of a tile from global to shared memory.
template <int LINES, bool ALONG_DEPTH, bool SHUFFLED, class Operand> struct Loader {
  static constexpr int N = LINES * TILE_WORDS / THREADS;
  static constexpr int SIZE = LINES * STRIDE;
  Operand operand;
  bool is_inside[N];
  typename Operand::Line lines[N];
  unsigned words[N];

  static __device__ __forceinline__ int line(int i) {
    int element = i * THREADS + threadIdx.x;
    return ALONG_DEPTH ? element / TILE_WORDS : element / 32 % (LINES / 8) * 8 + element % 8;
  }
  static __device__ __forceinline__ int place(int i) {
    int element = i * THREADS + threadIdx.x;
    return ALONG_DEPTH ? element % TILE_WORDS : element / (LINES * 4) * 4 + element / 8 % 4;
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
    for (int i = 0; i < N; ++i) {
      Index depth = start + place(i) * PER_WORD;
      float low = is_inside[i] && depth < end ? operand.at(lines[i], depth) : 0.0f, high = 0.0f;
      if constexpr (PER_WORD == 2) high = is_inside[i] && depth + 1 < end ? operand.at(lines[i], depth + 1) : 0.0f;
      words[i] = word(low, high);
    }
  }
  __device__ __forceinline__ void write(unsigned* tile) const {
#pragma unroll
    for (int i = 0; i < N; ++i) tile[(SHUFFLED ? shuffled(line(i)) : line(i)) * STRIDE + place(i)] = words[i];
  }
};

__device__ __forceinline__ void product(const Left::Element* left, const Right::Element* right, Target* to, const Bias* bias) {
  typedef Loader<TILE_ROWS, Left::ALONG_DEPTH, false, Left> LeftLoader;
  typedef Loader<TILE_COLUMNS, Right::ALONG_DEPTH, true, Right> RightLoader;
  __shared__ __align__(16) unsigned left_tiles[2][LeftLoader::SIZE];
  __shared__ __align__(16) unsigned right_tiles[2][RightLoader::SIZE];
  Place place = place_of_block();
  LeftLoader rows = {{left + Left::start(place.batch)}};
  RightLoader columns = {{right + Right::start(place.batch)}};
  rows.begin(place.row, ROWS), columns.begin(place.column, COLUMNS);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int row = warp / WARPS_ACROSS * (16 * ROW_TILES) + lane / 4, column = warp % WARPS_ACROSS * (8 * COLUMN_TILES);
  float sums[ROW_TILES][COLUMN_TILES][4] = {};
  Index start = first_depth(place.split), end = last_depth(place.split);
  rows.read(start, end), columns.read(start, end);
  for (int buffer = 0; start < end; start += TILE_DEPTH, buffer ^= 1) {
    rows.write(left_tiles[buffer]), columns.write(right_tiles[buffer]);
    // With two buffers one barrier is enough: a thread that writes to a buffer has passed the
    // barrier after which all threads have read it.
    __syncthreads();
    rows.read(start + TILE_DEPTH, end), columns.read(start + TILE_DEPTH, end);
#pragma unroll
    for (int step = 0; step < TILE_WORDS; step += STEP_WORDS) {
      unsigned x[ROW_TILES][4];
#pragma unroll
      for (int i = 0; i < ROW_TILES; ++i) {
        const unsigned* at = left_tiles[buffer] + (row + 16 * i) * STRIDE + step + lane % 4;
        x[i][0] = at[0], x[i][1] = at[8 * STRIDE], x[i][2] = at[4], x[i][3] = at[8 * STRIDE + 4];
      }
#pragma unroll
      for (int j = 0; j < COLUMN_TILES; ++j) {
        const unsigned* at = right_tiles[buffer] + (column + 8 * j + lane / 4) * STRIDE + step + lane % 4;
        unsigned y[2] = {at[0], at[4]};
#pragma unroll
        for (int i = 0; i < ROW_TILES; ++i) multiply(sums[i][j], x[i], y);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < ROW_TILES; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float neighbors[NEIGHBORS];
#pragma unroll
      for (int j = 0; j < COLUMN_TILES; ++j) neighbors[2 * j] = sums[i][j][2 * half], neighbors[2 * j + 1] = sums[i][j][2 * half + 1];
      put(to, bias, place, place.row + row + 16 * i + 8 * half, place.column + column + lane % 4 * NEIGHBORS, neighbors);
    }
  }
}
