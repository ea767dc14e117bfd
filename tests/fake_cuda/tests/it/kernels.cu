//! Kernels for tests of the launcher: some correct, some with a deliberate error.

__device__ __forceinline__ float block_maximum(float x, float* shared) {
    for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
    __syncthreads();
    x = shared[0];
    for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) x = fmaxf(x, shared[warp]);
    __syncthreads();
    return x;
}

__device__ __forceinline__ float block_sum(float x, float* shared) {
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_down_sync(0xffffffffu, x, lanes);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0.0f;
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) x += shared[warp];
    __syncthreads();
    return x;
}

// Functions with their own shared memory, templates and members of structs.
__device__ __forceinline__ float inline_first(float x) {
    __shared__ float first;
    if (threadIdx.x == 0) first = x;
    __syncthreads();
    return first;
}

template <unsigned N> __device__ float total(const float* x) {
    __shared__ float whole;
    if (threadIdx.x == N - 1) whole = 0.0f;
    __syncthreads();
    atomicAdd(&whole, threadIdx.x < N ? x[threadIdx.x] : 0.0f);
    __syncthreads();
    return whole;
}

struct Counter {
    unsigned state;
    __device__ unsigned next() { return state *= 3; }
};

extern "C" __global__ void pieces(float* y, const float* x) {
    Counter counter{threadIdx.x};
    const float sum = total<3>(x) + inline_first(x[threadIdx.x]);
    y[threadIdx.x] = sum + (float)counter.next();
}
SOYBEAN_EXPORT(pieces, 1)

extern "C" __global__ void __launch_bounds__(128) softmax(float* __restrict__ y, const float* __restrict__ x) {
    __shared__ float shared[4];
    const unsigned columns = 300;
    x += blockIdx.x * columns, y += blockIdx.x * columns;
    float maximum = -3.4e38f, sum = 0.0f;
    for (unsigned i = threadIdx.x; i < columns; i += blockDim.x) maximum = fmaxf(maximum, __ldg(x + i));
    maximum = block_maximum(maximum, shared);
    for (unsigned i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(x[i] - maximum);
    sum = block_sum(sum, shared);
    for (unsigned i = threadIdx.x; i < columns; i += blockDim.x) y[i] = expf(x[i] - maximum) / sum;
}
SOYBEAN_EXPORT(softmax, 1)

extern "C" __global__ void reverse(float* y, const float* x) {
    SOYBEAN_SHARED(float, shared);
    shared[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    y[blockIdx.x * blockDim.x + threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}
SOYBEAN_EXPORT(reverse, 1)

// Error: no barrier between the writes and the reads.
extern "C" __global__ void reverse_without_barrier(float* y, const float* x) {
    __shared__ float shared[64];
    shared[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
    y[blockIdx.x * 64 + threadIdx.x] = shared[63 - threadIdx.x];
}
SOYBEAN_EXPORT(reverse_without_barrier, 1)

// Error: the second half of the block never reaches the barrier.
extern "C" __global__ void divergent(float* y) {
    if (threadIdx.x < 16) __syncthreads(); // the line that is reported
    y[threadIdx.x] = 1.0f;
}
SOYBEAN_EXPORT(divergent, 1)

// Error: two barriers that wait for each other.
extern "C" __global__ void two_barriers(float* y) {
    if (threadIdx.x < 16) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    y[threadIdx.x] = 1.0f;
}
SOYBEAN_EXPORT(two_barriers, 1)

// Error: lane 31 does not take part in the collective.
extern "C" __global__ void missing_lane(float* y) {
    if (threadIdx.x != 31) y[threadIdx.x] = __shfl_down_sync(0xffffffffu, y[threadIdx.x], 1);
}
SOYBEAN_EXPORT(missing_lane, 1)

// Error: the export claims that there is no barrier.
extern "C" __global__ void exported_wrongly(float* y) {
    y[threadIdx.x] = 1.0f;
    __syncthreads();
}
SOYBEAN_EXPORT(exported_wrongly, 0)

// Error: no bounds check, so that a grid larger than the array writes past its end.
extern "C" __global__ void beyond_the_end(float* y) { y[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f; }
SOYBEAN_EXPORT(beyond_the_end, 0)

// Error: writes past the end of its shared array.
extern "C" __global__ void beyond_shared(float* y) {
    __shared__ float shared[32];
    shared[threadIdx.x + 1] = y[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = shared[threadIdx.x];
}
SOYBEAN_EXPORT(beyond_shared, 1)

// Returns the initial content of shared memory. It must be poisoned for each block.
extern "C" __global__ void uninitialized(unsigned* y) {
    __shared__ unsigned fixed[8];
    SOYBEAN_SHARED(unsigned, sized);
    y[blockIdx.x * 16 + threadIdx.x] = fixed[threadIdx.x];
    y[blockIdx.x * 16 + 8 + threadIdx.x] = sized[threadIdx.x];
    fixed[threadIdx.x] = sized[threadIdx.x] = 1;
}
SOYBEAN_EXPORT(uninitialized, 1)

extern "C" __global__ void histogram(unsigned* counts, int* largest, const int* x) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 1000) atomicAdd(counts + x[i], 1u), atomicMax(largest, x[i]);
}
SOYBEAN_EXPORT(histogram, 0)

// All kinds of shuffles and votes, in a block whose second warp is not full.
extern "C" __global__ void shuffles(int* y) {
    const int lane = threadIdx.x % 32;
    y += threadIdx.x * 8;
    y[0] = __shfl_sync(0xffffffffu, lane, 3);
    y[1] = __shfl_up_sync(0xffffffffu, lane, 2);
    y[2] = __shfl_down_sync(0xffffffffu, lane, 2, 8);
    y[3] = __shfl_xor_sync(0xffffffffu, lane, 4, 16);
    y[4] = (int)__ballot_sync(0xffffffffu, lane % 3 == 0);
    y[5] = lane < 8 ? __shfl_sync(0xffu, lane * 10, 7) : __shfl_sync(0xffffff00u, lane * 10, 9);
    __syncwarp();
    y[6] = __any_sync(0xffffffffu, lane == 5) + 2 * __all_sync(0xffffffffu, lane < 32);
    y[7] = (int)simt_lane;
}
SOYBEAN_EXPORT(shuffles, 1)

// d [16, 8] += a [16, 16] b [16, 8], all row-major; the operands are bf16.
extern "C" __global__ void product_bf16(float* d, const unsigned short* a, const unsigned short* b) {
    const unsigned group = threadIdx.x / 4, thread = threadIdx.x % 4;
    unsigned fragment_a[4], fragment_b[2];
    for (unsigned i = 0; i < 4; ++i) {
        const unsigned short* pair = a + (group + i % 2 * 8) * 16 + thread * 2 + i / 2 * 8;
        fragment_a[i] = pair[0] | (unsigned)pair[1] << 16;
    }
    for (unsigned i = 0; i < 2; ++i) {
        const unsigned short* pair = b + (thread * 2 + i * 8) * 8 + group;
        fragment_b[i] = pair[0] | (unsigned)pair[8] << 16;
    }
    float* own = d + group * 8 + thread * 2;
    float fragment_d[4] = {own[0], own[1], own[64], own[65]};
    soybean_mma_bf16(fragment_d, fragment_a, fragment_b);
    own[0] = fragment_d[0], own[1] = fragment_d[1], own[64] = fragment_d[2], own[65] = fragment_d[3];
}
SOYBEAN_EXPORT(product_bf16, 1)

// d [16, 8] += a [16, 8] b [8, 8], all row-major; the operands are rounded to tf32.
extern "C" __global__ void product_tf32(float* d, const float* a, const float* b) {
    const unsigned group = threadIdx.x / 4, thread = threadIdx.x % 4;
    unsigned fragment_a[4], fragment_b[2];
    for (unsigned i = 0; i < 4; ++i) fragment_a[i] = __float_as_uint(a[(group + i % 2 * 8) * 8 + thread + i / 2 * 4]);
    for (unsigned i = 0; i < 2; ++i) fragment_b[i] = __float_as_uint(b[(thread + i * 4) * 8 + group]);
    float* own = d + group * 8 + thread * 2;
    float fragment_d[4] = {own[0], own[1], own[64], own[65]};
    soybean_mma_tf32(fragment_d, fragment_a, fragment_b);
    own[0] = fragment_d[0], own[1] = fragment_d[1], own[64] = fragment_d[2], own[65] = fragment_d[3];
}
SOYBEAN_EXPORT(product_tf32, 1)

// Four matrices of 8 rows of 8 elements of 16 bits: the words of each lane, and those of columns.
extern "C" __global__ void matrices(unsigned* y, const unsigned* x) {
    __shared__ __align__(16) unsigned rows[32 * 4];
    for (unsigned i = 0; i < 4; ++i) rows[threadIdx.x * 4 + i] = x[threadIdx.x * 4 + i];
    __syncthreads();
    soybean_load_matrices(y + threadIdx.x * 8, rows + threadIdx.x * 4);
    soybean_load_matrices_transposed(y + threadIdx.x * 8 + 4, rows + threadIdx.x * 4);
}
SOYBEAN_EXPORT(matrices, 1)

// Copies 4 numbers of each thread and adds the next one. The last thread has zeros instead.
extern "C" __global__ void copies(float* y, const float* x) {
    __shared__ __align__(16) float four[32 * 4];
    __shared__ float one[32];
    soybean_copy_16(four + threadIdx.x * 4, x + threadIdx.x * 8, threadIdx.x == 31);
    soybean_copy_4(one + threadIdx.x, x + threadIdx.x * 8 + 4, threadIdx.x == 31);
    soybean_wait_for_copies();
    __syncthreads();
    const unsigned other = 31 - threadIdx.x;
    for (unsigned i = 0; i < 4; ++i) y[other * 4 + i] = four[other * 4 + i] + one[other];
}
SOYBEAN_EXPORT(copies, 1)

// Reads what a copy has not brought yet.
extern "C" __global__ void early(float* y, const float* x) {
    __shared__ float one[32];
    one[threadIdx.x] = 0.0f;
    soybean_copy_4(one + threadIdx.x, x + threadIdx.x, false);
    y[threadIdx.x] = one[threadIdx.x];
    soybean_wait_for_copies();
}
SOYBEAN_EXPORT(early, 1)
