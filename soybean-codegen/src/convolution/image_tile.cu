//! Copies the pixels under a tile of results from an image to shared memory.
//!
//! A thread copies CHUNK neighboring pixels of a row at once, which are all in the image or all
//! outside.

constexpr int CHUNK_WORDS = CHUNK * PIXEL / PER_WORD;

__device__ __forceinline__ unsigned word(float low, float high) { return PER_WORD == 2 ? soybean_pack_bf16(low, high) : soybean_to_tf32(low); }
// Numbers in bf16 keep their bits.
__device__ __forceinline__ unsigned word(bf16 low, bf16 high) { return PER_WORD == 2 ? (unsigned)low | (unsigned)high << 16 : (unsigned)low << 16; }

union Chunk {
  Image elements[CHUNK * CHANNELS];
  ImageUnit units[CHUNK * CHANNELS * sizeof(Image) / sizeof(ImageUnit)];

  // Returns a number of the staged chunk.
  __device__ __forceinline__ Image number(int i) const { return i % PIXEL < CHANNELS ? elements[i / PIXEL * CHANNELS + i % PIXEL] : Image(0); }
};
union StagedChunk {
  unsigned words[CHUNK_WORDS];
  WordUnit units[CHUNK_WORDS * sizeof(unsigned) / sizeof(WordUnit)];
};

// Returns the first word of the window of a result of the tile. The next row of the window is
// ROW_WORDS words behind, and its numbers are neighbors: PIXEL for each pixel, the channels first.
__device__ __forceinline__ constexpr int window_place(int row, int column) {
  return row * (STRIDE_Y * ROW_WORDS) + (LEAD + column * STRIDE_X) * PIXEL / PER_WORD;
}

// Copies the pixels of `image` that the windows of the tile at this row and column of results
// cover. `column` is a multiple of 8. All threads of the block take part.
__device__ __forceinline__ void stage_image(unsigned* __restrict__ staged, const Image* __restrict__ image, int row, int column) {
  // Several loads at once hide the latency of memory, as many as registers can hold.
  constexpr int CHUNKS = STAGED_ROWS * ROW_CHUNKS, EACH = (CHUNKS + THREADS - 1) / THREADS;
  constexpr int ROUNDS = (EACH * (int)sizeof(Chunk) + 191) / 192, AT_ONCE = (EACH + ROUNDS - 1) / ROUNDS;
  const int top = row * STRIDE_Y - PADDING_Y, left = column * STRIDE_X - PADDING_X - LEAD;
  for (int first = soybean_opaque(threadIdx.x); first < CHUNKS; first += AT_ONCE * THREADS) {
    Chunk chunks[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int number = first + i * THREADS;
      const int y = top + number / ROW_CHUNKS, x = left + number % ROW_CHUNKS * CHUNK;
      const bool is_inside = number < CHUNKS && 0 <= y && y < IMAGE_HEIGHT && 0 <= x && x < IMAGE_WIDTH;
      const ImageUnit* from = (const ImageUnit*)(image + (y * IMAGE_WIDTH + x) * CHANNELS);
#pragma unroll
      for (int unit = 0; unit < sizeof(Chunk) / sizeof(ImageUnit); ++unit) chunks[i].units[unit] = is_inside ? from[unit] : ImageUnit();
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int number = first + i * THREADS;
      StagedChunk chunk;
#pragma unroll
      for (int n = 0; n < CHUNK_WORDS; ++n) chunk.words[n] = word(chunks[i].number(n * PER_WORD), chunks[i].number(n * PER_WORD + PER_WORD - 1));
      WordUnit* to = (WordUnit*)(staged + number / ROW_CHUNKS * ROW_WORDS + number % ROW_CHUNKS * CHUNK_WORDS);
      if (number >= CHUNKS) continue;
#pragma unroll
      for (int unit = 0; unit < sizeof(StagedChunk) / sizeof(WordUnit); ++unit) to[unit] = chunk.units[unit];
    }
  }
}
