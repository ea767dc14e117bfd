//! The statistics of the rows of queries, from what the forward computation has saved.

constexpr int ROW_BLOCKS = (QUERIES + ROWS - 1) / ROWS;

// Computes for each query the logarithm to base 2 of the sum of the exponentials of its scores, and
// the dot product of its result and the gradient of the result. A warp has a query.
__device__ __forceinline__ void saved_statistics(const Query*, const Key*, const Value*, const Gradient* gradient, Mask, const Result* result,
                                                 const float* saved, float* logarithm, float* mean) {
  long long head = blockIdx.x / ROW_BLOCKS;
  int row = blockIdx.x % ROW_BLOCKS * ROWS + threadIdx.x / 32;
  if (row >= QUERIES) return;
  const Gradient* slopes = gradient_of(gradient, head) + (Offset)row * GRADIENT_ROW;
  const Result* results = head_of<GRADIENT_HEADS, QUERIES, WIDTH>(result, head) + (Offset)row * GRADIENT_ROW;
  float product = 0.0f;
  for (int column = threadIdx.x % 32; column < WIDTH; column += 32) product = fmaf(soybean_value(results[column]), soybean_value(slopes[column]), product);
  product = soybean_combine_warp<soybean_sum>(product);
  if (threadIdx.x % 32 > 0) return;
  logarithm[head * QUERIES + row] = saved[head * QUERIES + row] * LOG_OF_E;
  mean[head * QUERIES + row] = product;
}
