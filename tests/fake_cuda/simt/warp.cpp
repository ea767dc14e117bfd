//! Warp collectives: shuffles, votes, loads of matrices and matrix products.
#include "../include/simt_state.h"
#include <math.h>
#include <string.h>

static const unsigned WARP = 32;

struct Shuffle {
    unsigned long long bits, result;
    int source;
};

static void combine_shuffles(void* const* records, unsigned) {
    for (unsigned lane = 0; lane < WARP; ++lane) {
        if (Shuffle* own = (Shuffle*)records[lane]) {
            const Shuffle* source = (unsigned)own->source < WARP ? (const Shuffle*)records[own->source] : nullptr;
            own->result = source ? source->bits : ~0ull;
        }
    }
}

unsigned long long simt_shuffle(unsigned mask, unsigned long long bits, int source, int line) {
    Shuffle record = {bits, 0, source};
    simt_collective(mask, line, &record, combine_shuffles);
    return record.result;
}

struct Ballot {
    int predicate;
    unsigned result;
};

static void combine_ballots(void* const* records, unsigned) {
    unsigned result = 0;
    for (unsigned lane = 0; lane < WARP; ++lane) {
        const Ballot* own = (const Ballot*)records[lane];
        result |= (own && own->predicate ? 1u : 0u) << lane;
    }
    for (unsigned lane = 0; lane < WARP; ++lane) {
        if (records[lane]) {
            ((Ballot*)records[lane])->result = result;
        }
    }
}

unsigned simt_ballot(unsigned mask, int predicate, int line) {
    Ballot record = {predicate, 0};
    simt_collective(mask, line, &record, combine_ballots);
    return record.result;
}

struct Product {
    float* d;
    const unsigned *a, *b;
};

static float from_bits(unsigned bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// Converts as `cvt.rna.tf32.f32`: 10 mantissa bits, ties away from zero.
static float rounded_to_tf32(unsigned bits) {
    bool finite = (bits & 0x7f800000u) != 0x7f800000u;
    return from_bits(finite ? (bits + 0x1000u) & ~0x1fffu : bits);
}

static float bf16_half(unsigned pair, unsigned half) { return from_bits(half ? pair & 0xffff0000u : pair << 16); }

/// Computes `d[16, 8] += a[16, depth] b[depth, 8]`. Lane `4 g + t` holds rows `g` and `g + 8`,
/// columns `2 t` and `2 t + 1` of `d`.
static void multiply(void* const* records, const float* a, const float* b, unsigned depth) {
    for (unsigned lane = 0; lane < WARP; ++lane) {
        float* d = ((const Product*)records[lane])->d;
        for (unsigned i = 0; i < 4; ++i) {
            unsigned row = lane / 4 + (i / 2) * 8, column = lane % 4 * 2 + i % 2;
            for (unsigned k = 0; k < depth; ++k) {
                d[i] += a[row * depth + k] * b[k * 8 + column];
            }
        }
    }
}

static void combine_bf16(void* const* records, unsigned) {
    float a[16 * 16], b[16 * 8];
    for (unsigned lane = 0; lane < WARP; ++lane) {
        const Product& own = *(const Product*)records[lane];
        unsigned group = lane / 4, thread = lane % 4;
        for (unsigned i = 0; i < 8; ++i) {
            unsigned row = group + (i / 2 % 2) * 8, column = thread * 2 + i % 2 + (i / 4) * 8;
            a[row * 16 + column] = bf16_half(own.a[i / 2], i % 2);
        }
        for (unsigned i = 0; i < 4; ++i) {
            unsigned row = thread * 2 + i % 2 + (i / 2) * 8;
            b[row * 8 + group] = bf16_half(own.b[i / 2], i % 2);
        }
    }
    multiply(records, a, b, 16);
}

static void combine_tf32(void* const* records, unsigned) {
    float a[16 * 8], b[8 * 8];
    for (unsigned lane = 0; lane < WARP; ++lane) {
        const Product& own = *(const Product*)records[lane];
        unsigned group = lane / 4, thread = lane % 4;
        for (unsigned i = 0; i < 4; ++i) {
            a[(group + i % 2 * 8) * 8 + thread + i / 2 * 4] = rounded_to_tf32(own.a[i]);
        }
        for (unsigned i = 0; i < 2; ++i) {
            b[(thread + i * 4) * 8 + group] = rounded_to_tf32(own.b[i]);
        }
    }
    multiply(records, a, b, 8);
}

void simt_mma_bf16(float* d, const unsigned* a, const unsigned* b, int line) {
    Product record = {d, a, b};
    simt_collective(0xffffffffu, line, &record, combine_bf16);
}

void simt_mma_tf32(float* d, const unsigned* a, const unsigned* b, int line) {
    Product record = {d, a, b};
    simt_collective(0xffffffffu, line, &record, combine_tf32);
}

struct Load {
    unsigned* words;
    const unsigned* row;
};

/// Lane `8 i + r` has the address of row `r` of matrix `i`. Lane `4 r + c` gets word `c` of row
/// `r`.
static void load_matrices(void* const* records, unsigned) {
    for (unsigned lane = 0; lane < WARP; ++lane) {
        const Load& own = *(const Load*)records[lane];
        for (unsigned i = 0; i < 4; ++i) {
            own.words[i] = ((const Load*)records[8 * i + lane / 4])->row[lane % 4];
        }
    }
}

/// Lane `4 r + c` gets the elements `2 c` and `2 c + 1` of column `r`.
static void load_transposed_matrices(void* const* records, unsigned) {
    for (unsigned lane = 0; lane < WARP; ++lane) {
        const Load& own = *(const Load*)records[lane];
        for (unsigned i = 0; i < 4; ++i) {
            unsigned column = lane / 4, row = 8 * i + lane % 4 * 2;
            unsigned low = ((const Load*)records[row])->row[column / 2] >> (column % 2 * 16) & 0xffffu;
            unsigned high = ((const Load*)records[row + 1])->row[column / 2] >> (column % 2 * 16) & 0xffffu;
            own.words[i] = low | high << 16;
        }
    }
}

void simt_load_matrices(unsigned* words, const unsigned* row, int transposed, int line) {
    Load record = {words, row};
    simt_collective(0xffffffffu, line, &record, transposed ? load_transposed_matrices : load_matrices);
}
