//! The common text that all generated functions rely on. It is compiled for GPUs, and in tests for
//! the CPU. There a header that is included before it supplies CUDA's keywords, the two macros, and
//! the functions that consist of one instruction.

typedef unsigned short bf16;

#ifndef SOYBEAN_ON_CPU
// Coordinates of points are written even if no operand depends on them.
#pragma nv_diag_suppress 177
// On the CPU, this line registers a function and whether its threads wait for each other.
#define SOYBEAN_EXPORT(function, uses_barriers)
// The dynamic shared memory of a block. Each name may have only one type in a whole text.
#define SOYBEAN_SHARED(type, name) extern __shared__ __align__(16) type name[]

// d += a b for the 16 x 16 matrix a and the 16 x 8 matrix b, by all threads of a warp, in the
// layouts of PTX.
__device__ __forceinline__ void soybean_mma_bf16(float d[4], const unsigned a[4], const unsigned b[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d += a b for the 16 x 8 matrix a and the 8 x 8 matrix b, by all threads of a warp, in the layouts
// of PTX.
__device__ __forceinline__ void soybean_mma_tf32(float d[4], const unsigned a[4], const unsigned b[2]) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Loads four matrices of 8 rows of 16 bytes from shared memory, by all threads of a warp. Lane 8 i
// + r has the address of row r of matrix i. Lane 4 r + c gets word c of row r of each matrix.
__device__ __forceinline__ void soybean_load_matrices(unsigned x[4], const unsigned* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"((unsigned)__cvta_generic_to_shared(row)));
}

// As above, but lane 4 r + c gets the elements 2 c and 2 c + 1 of column r, of 16 bits each.
__device__ __forceinline__ void soybean_load_matrices_transposed(unsigned x[4], const unsigned* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"((unsigned)__cvta_generic_to_shared(row)));
}

// Loads neighboring words from shared memory, at each call anew. A word that stayed in a register
// for several products would have to move to the place that each wants.
__device__ __forceinline__ void soybean_load_shared(unsigned (&x)[1], const unsigned* from) {
  asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(x[0]) : "r"((unsigned)__cvta_generic_to_shared(from)));
}
__device__ __forceinline__ void soybean_load_shared(unsigned (&x)[2], const unsigned* from) {
  asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "r"((unsigned)__cvta_generic_to_shared(from)));
}

// Returns the address. The compiler does not see from what it was computed, so that loads at
// constant distances from it need no registers for their addresses.
__device__ __forceinline__ const unsigned* soybean_opaque(const unsigned* address) {
  asm volatile("" : "+l"(address));
  return address;
}
// Returns the number. What depends on it alone is computed in each round of a loop, and needs no
// registers beyond.
__device__ __forceinline__ int soybean_opaque(int number) {
  asm volatile("" : "+r"(number));
  return number;
}

// Begins to copy 16 bytes from global to shared memory, or to write zeros there.
__device__ __forceinline__ void soybean_copy_16(void* to, const void* from, bool is_zero) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(is_zero ? 0 : 16) : "memory");
}
// As above, for 4 bytes.
__device__ __forceinline__ void soybean_copy_4(void* to, const void* from, bool is_zero) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" : : "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(is_zero ? 0 : 4) : "memory");
}
// Waits for the copies that the thread has begun.
__device__ __forceinline__ void soybean_wait_for_copies() { asm volatile("cp.async.wait_all;" : : : "memory"); }

// Returns 2 to a power, with a relative error of 2^-22; 0 instead of subnormal numbers.
__device__ __forceinline__ float soybean_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif

#define SOYBEAN_INFINITY __uint_as_float(0x7f800000u)
#define SOYBEAN_NAN __uint_as_float(0x7fc00000u)
#define SOYBEAN_ALL_LANES 0xffffffffu

// ---- Conversions between numbers in memory and single precision, in which everything is computed.

__device__ __forceinline__ bf16 soybean_to_bf16(float x) {
  unsigned bits = __float_as_uint(x);
  // Rounding up could turn the bits of NaN into those of another number.
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bf16)((bits >> 16) | 0x40u);
  return (bf16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Packs two numbers into one word, the first in its lower half.
__device__ __forceinline__ unsigned soybean_pack_bf16(float low, float high) {
#ifndef SOYBEAN_ON_CPU
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return (unsigned)soybean_to_bf16(low) | (unsigned)soybean_to_bf16(high) << 16;
#endif
}

__device__ __forceinline__ float soybean_low_of_pair(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float soybean_high_of_pair(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }

// Returns the bits of a number with 10 bits of mantissa, for tensor cores; halves are rounded away
// from 0.
__device__ __forceinline__ unsigned soybean_to_tf32(float x) {
#ifndef SOYBEAN_ON_CPU
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
#else
  unsigned bits = __float_as_uint(x);
  return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
#endif
}

// The floor of the quotient; 0 where the divisor is 0. Magnitudes are unsigned, because signed
// integers must not overflow: the least integer by -1 is itself.
__device__ __forceinline__ int soybean_floor_divide(int x, int y) {
  if (y == 0) return 0;
  unsigned of_x = x < 0 ? 0u - (unsigned)x : (unsigned)x, of_y = y < 0 ? 0u - (unsigned)y : (unsigned)y;
  unsigned quotient = of_x / of_y;
  if ((x < 0) == (y < 0)) return (int)quotient;
  return (int)(0u - (quotient + (quotient * of_y != of_x)));
}
// Its sign is that of the divisor.
__device__ __forceinline__ int soybean_remainder(int x, int y) {
  return (int)((unsigned)x - (unsigned)soybean_floor_divide(x, y) * (unsigned)y);
}

// As of integers, from the exact remainder of the division that truncates.
__device__ __forceinline__ bool soybean_is_shifted(float rest, float divisor) {
  return rest != 0.0f && (rest < 0.0f) != (divisor < 0.0f);
}
__device__ __forceinline__ float soybean_floor_divide(float x, float y) {
  const float rest = fmodf(x, y), quotient = (x - rest) / y - (soybean_is_shifted(rest, y) ? 1.0f : 0.0f);
  // Zeros have the sign of the quotient.
  if (quotient == 0.0f || y == 0.0f) return floorf(x / y);
  // The quotient of a multiple of `y` is an integer but for rounding. PyTorch rounds halves down.
  const float below = floorf(quotient);
  return below + (quotient - below > 0.5f ? 1.0f : 0.0f);
}
__device__ __forceinline__ float soybean_remainder(float x, float y) {
  const float rest = fmodf(x, y);
  return soybean_is_shifted(rest, y) ? rest + y : rest;
}

__device__ __forceinline__ float soybean_value(float x) { return x; }
__device__ __forceinline__ float soybean_value(bf16 x) { return __uint_as_float((unsigned)x << 16); }
__device__ __forceinline__ float soybean_value(int x) { return (float)x; }

// ---- Numbers that must be finite.

__device__ __forceinline__ bool soybean_is_finite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }
// Notes the first element that is not finite. The elements beyond 2^32 - 2 share a number.
__device__ __forceinline__ void soybean_note(unsigned* first, unsigned long long element) {
  atomicMax(first, element < 0xfffffffeu ? 0xffffffffu - (unsigned)element : 1u);
}
// As above, for elements outside of the gaps between tensors: pairs of start and end.
template <int N> __device__ __forceinline__ void soybean_note(unsigned* first, unsigned long long element, const unsigned (&gaps)[N]) {
  for (int i = 0; i < N; i += 2) {
    if (gaps[i] <= element && element < gaps[i + 1]) return;
  }
  soybean_note(first, element);
}

__device__ __forceinline__ void soybean_store(float* to, float x) { *to = x; }
__device__ __forceinline__ void soybean_store(bf16* to, float x) { *to = soybean_to_bf16(x); }
__device__ __forceinline__ void soybean_store(int* to, int x) { *to = x; }
__device__ __forceinline__ void soybean_store(unsigned char* to, int x) { *to = (unsigned char)x; }
// Truncates towards 0 and saturates at the bounds; NaN gives 0.
__device__ __forceinline__ void soybean_store(int* to, float x) {
  *to = x >= 2147483648.0f ? 2147483647 : x <= -2147483648.0f ? -2147483647 - 1 : x == x ? (int)x : 0;
}

// Vector loads and stores. Addresses are multiples of the size, or of 16 bytes for larger vectors.
template <int n> __device__ __forceinline__ void soybean_load(const float* from, float (&to)[n]) {
#pragma unroll
  for (int i = 0; i < n; i += 4) {
    float4 word = *(const float4*)(from + i);
    to[i] = word.x, to[i + 1] = word.y, to[i + 2] = word.z, to[i + 3] = word.w;
  }
}
template <int n> __device__ __forceinline__ void soybean_load(const int* from, float (&to)[n]) {
#pragma unroll
  for (int i = 0; i < n; i += 4) {
    int4 word = *(const int4*)(from + i);
    to[i] = (float)word.x, to[i + 1] = (float)word.y, to[i + 2] = (float)word.z, to[i + 3] = (float)word.w;
  }
}
template <int n> __device__ __forceinline__ void soybean_load(const int* from, int (&to)[n]) {
#pragma unroll
  for (int i = 0; i < n; i += 4) {
    int4 word = *(const int4*)(from + i);
    to[i] = word.x, to[i + 1] = word.y, to[i + 2] = word.z, to[i + 3] = word.w;
  }
}
__device__ __forceinline__ void soybean_unpack(unsigned pair, float* to) {
  to[0] = soybean_low_of_pair(pair);
  to[1] = soybean_high_of_pair(pair);
}
__device__ __forceinline__ void soybean_load(const bf16* from, float (&to)[4]) {
  uint2 word = *(const uint2*)from;
  soybean_unpack(word.x, to), soybean_unpack(word.y, to + 2);
}
__device__ __forceinline__ void soybean_load(const bf16* from, float (&to)[8]) {
  uint4 word = *(const uint4*)from;
  soybean_unpack(word.x, to), soybean_unpack(word.y, to + 2), soybean_unpack(word.z, to + 4), soybean_unpack(word.w, to + 6);
}
// Bytes stand for numbers in 0..256.
__device__ __forceinline__ void soybean_unpack_bytes(unsigned word, int* to) {
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = (int)(word >> 8 * i & 255u);
}
__device__ __forceinline__ void soybean_load(const unsigned char* from, int (&to)[4]) { soybean_unpack_bytes(*(const unsigned*)from, to); }
__device__ __forceinline__ void soybean_load(const unsigned char* from, int (&to)[8]) {
  uint2 word = *(const uint2*)from;
  soybean_unpack_bytes(word.x, to), soybean_unpack_bytes(word.y, to + 4);
}

template <int n> __device__ __forceinline__ void soybean_store(float* to, const float (&from)[n]) {
#pragma unroll
  for (int i = 0; i < n; i += 4) *(float4*)(to + i) = make_float4(from[i], from[i + 1], from[i + 2], from[i + 3]);
}
template <int n> __device__ __forceinline__ void soybean_store(int* to, const int (&from)[n]) {
#pragma unroll
  for (int i = 0; i < n; i += 4) *(int4*)(to + i) = make_int4(from[i], from[i + 1], from[i + 2], from[i + 3]);
}
template <int n> __device__ __forceinline__ void soybean_store(int* to, const float (&from)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) soybean_store(to + i, from[i]);
}
__device__ __forceinline__ void soybean_store(bf16* to, const float (&from)[4]) {
  *(uint2*)to = make_uint2(soybean_pack_bf16(from[0], from[1]), soybean_pack_bf16(from[2], from[3]));
}
__device__ __forceinline__ void soybean_store(bf16* to, const float (&from)[8]) {
  *(uint4*)to = make_uint4(soybean_pack_bf16(from[0], from[1]), soybean_pack_bf16(from[2], from[3]), soybean_pack_bf16(from[4], from[5]),
                           soybean_pack_bf16(from[6], from[7]));
}
__device__ __forceinline__ unsigned soybean_pack_bytes(const int* from) {
  return (unsigned)(from[0] | from[1] << 8 | from[2] << 16) | (unsigned)from[3] << 24;
}
__device__ __forceinline__ void soybean_store(unsigned char* to, const int (&from)[4]) { *(unsigned*)to = soybean_pack_bytes(from); }
__device__ __forceinline__ void soybean_store(unsigned char* to, const int (&from)[8]) {
  *(uint2*)to = make_uint2(soybean_pack_bytes(from), soybean_pack_bytes(from + 4));
}

// ---- The functions of scalar programs that C lacks.

// Returns the larger of the two; NaN if either is NaN.
__device__ __forceinline__ float soybean_maximum(float x, float y) {
#ifndef SOYBEAN_ON_CPU
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(x), "f"(y));
  return larger;
#else
  return x > y || x != x ? x : y;
#endif
}
// Returns a factor that makes a divisor one whose reciprocal is neither infinite nor subnormal.
__device__ __forceinline__ float soybean_scale_of_divisor(float y) {
  return fabsf(y) > 0x1p100f ? 0x1p-64f : fabsf(y) < 0x1p-100f ? 0x1p100f : 1.0f;
}
// Returns x / y for many x and one y: the compiler computes once what depends on y alone. Unlike a
// division, this needs no slow way for 0, which dropout makes. Quotients are rounded correctly, but
// for subnormal ones and those with a remainder below 2^-126. Source: Markstein 1990.
__device__ __forceinline__ float soybean_divide_by(float x, float y) {
  const float scale = soybean_scale_of_divisor(y), divisor = y * scale;
  const float reciprocal = 1.0f / divisor, estimate = x * reciprocal;
  const float quotient = fmaf(-reciprocal, fmaf(divisor, estimate, -x), estimate);
  // The remainder of an infinity is NaN.
  return (quotient == quotient ? quotient : estimate) * scale;
}
// As above, with an error of two units in the last place.
__device__ __forceinline__ float soybean_fast_divide_by(float x, float y) {
  const float scale = soybean_scale_of_divisor(y);
  return x * (1.0f / (y * scale)) * scale;
}
// Returns e^x with a relative error of 2^-22 + 2^-24 |x|; 0 instead of subnormal numbers.
__device__ __forceinline__ float soybean_fast_exp(float x) { return soybean_exp2(x * 0x1.715476p+0f); }
// Returns 1 - erf(x) with an absolute error of 7e-7, and a relative one of 7e-4 below x = 4: 2 to a
// polynomial that was fitted to log2(erfc(x)) between 0 and 9.3, where 1 - erf(x) is 2^-128. The
// polynomial decreases beyond.
__device__ __forceinline__ float soybean_fast_erfc(float x) {
  const float size = fabsf(x);
  float exponent = fmaf(-0x1.892fbcp-17f, size, 0x1.78924cp-12f);
  exponent = fmaf(exponent, size, -0x1.2a4a0ap-8f);
  exponent = fmaf(exponent, size, 0x1.08beaep-5f);
  exponent = fmaf(exponent, size, -0x1.349f58p-3f);
  exponent = fmaf(exponent, size, -0x1.d5f45ap-1f);
  exponent = fmaf(exponent, size, -0x1.a0c150p+0f);
  const float tail = soybean_exp2(exponent * size);
  return x < 0.0f ? 2.0f - tail : tail;
}
// NaN stays NaN.
__device__ __forceinline__ float soybean_relu(float x) { return x < 0.0f ? 0.0f : x; }
__device__ __forceinline__ float soybean_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ __forceinline__ unsigned soybean_rotate(unsigned word, int n) { return word << n | word >> (32 - n); }
__device__ __forceinline__ unsigned soybean_mixed(unsigned word) {
  word = (word ^ word >> 16) * 0x85ebca6bu;
  word = (word ^ word >> 13) * 0xc2b2ae35u;
  return word ^ word >> 16;
}
// The mixing steps of MurmurHash3 over the bits of both numbers. Source: Appleby 2011.
__device__ __forceinline__ unsigned soybean_random_bits(float x, float y) {
  unsigned block = soybean_rotate(__float_as_uint(y) * 0xcc9e2d51u, 15) * 0x1b873593u;
  unsigned state = soybean_rotate(soybean_mixed(__float_as_uint(x)) ^ block, 13);
  return soybean_mixed(state * 5u + 0xe6546b64u);
}
__device__ __forceinline__ float soybean_noise(float x, float y) { return (float)(soybean_random_bits(x, y) >> 8) * 0x1p-24f; }
// Returns whether `bound > soybean_noise(x, y)`, in integers: the compiler computes once what
// depends on the bound alone.
__device__ __forceinline__ bool soybean_exceeds_noise(float bound, float x, float y) {
  // The least integer that is not below 2^24 times the bound. NaN exceeds nothing.
  const unsigned end = (unsigned)ceilf(fminf(fmaxf(bound, 0.0f), 1.0f) * 0x1p24f);
  return (end != 0u) & (soybean_random_bits(x, y) <= (end << 8) - 1u);
}

// ---- Reductions over the threads of a warp or of a block.

struct soybean_sum {
  static __device__ __forceinline__ float none() { return 0.0f; }
  static __device__ __forceinline__ float combine(float x, float y) { return x + y; }
  template <class T> static __device__ __forceinline__ float value(T x) { return soybean_value(x); }
};
struct soybean_max {
  static __device__ __forceinline__ float none() { return -SOYBEAN_INFINITY; }
  static __device__ __forceinline__ float combine(float x, float y) { return soybean_maximum(x, y); }
  template <class T> static __device__ __forceinline__ float value(T x) { return soybean_value(x); }
};
// Signed integers that overflow are undefined in C.
struct soybean_sum_of_integers {
  static __device__ __forceinline__ int none() { return 0; }
  static __device__ __forceinline__ int combine(int x, int y) { return (int)((unsigned)x + (unsigned)y); }
  static __device__ __forceinline__ int value(int x) { return x; }
};
struct soybean_max_of_integers {
  static __device__ __forceinline__ int none() { return -2147483647 - 1; }
  static __device__ __forceinline__ int combine(int x, int y) { return x > y ? x : y; }
  static __device__ __forceinline__ int value(int x) { return x; }
};

// Combines over groups of `width` neighboring lanes, a power of two up to 32. Every lane has the
// result, and all lanes of the warp take part.
template <class Combine, class T> __device__ __forceinline__ T soybean_combine_lanes(T x, int width) {
  for (int distance = width / 2; distance > 0; distance /= 2) x = Combine::combine(x, __shfl_xor_sync(SOYBEAN_ALL_LANES, x, distance));
  return x;
}
template <class Combine, class T> __device__ __forceinline__ T soybean_combine_warp(T x) { return soybean_combine_lanes<Combine>(x, 32); }

// Combines over a block. Every thread has the result. The block consists of `n_warps` warps, all of
// which take part. `scratch` is shared memory for 32 numbers, which may be used again at once.
template <class Combine, int n_warps, class T> __device__ __forceinline__ T soybean_combine_block(T x, T* scratch) {
  x = soybean_combine_warp<Combine>(x);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  T all = scratch[0];
#pragma unroll
  for (int warp = 1; warp < n_warps; ++warp) all = Combine::combine(all, scratch[warp]);
  __syncthreads();
  return all;
}
