//! Copies and combines elements by patterns that are known at run time, for collectives. Relies on
//! the prelude.

// One dim of a pattern: steps of equal size, or a table of offsets for each coordinate.
struct soybean_dim {
  unsigned extent, table, here_step, there_step;
};

// Maps units of a source (`there`) to units of the result (`here`). The words are those of
// `Pattern::part`.
struct soybean_part {
  unsigned long long source, tables, here, there, n_points;
  unsigned n_dims, n_sources;
  soybean_dim dims[16];
};

struct soybean_place {
  unsigned long long here, there;
};

__device__ __forceinline__ soybean_place soybean_find(const soybean_part& part, unsigned point) {
  soybean_place place = {part.here, part.there};
  const uint2* tables = (const uint2*)part.tables;
  for (unsigned number = part.n_dims; number-- > 0;) {
    const soybean_dim& dim = part.dims[number];
    unsigned coordinate = point;
    // The outermost dim takes the remaining quotient.
    if (number > 0) point /= dim.extent, coordinate -= point * dim.extent;
    if (dim.table == 0xffffffffu) {
      place.here += (unsigned long long)coordinate * dim.here_step;
      place.there += (unsigned long long)coordinate * dim.there_step;
    } else {
      uint2 pair = tables[dim.table + coordinate];
      place.here += pair.x;
      place.there += pair.y;
    }
  }
  return place;
}

template <class Unit> __device__ __forceinline__ void soybean_move(const soybean_part* parts, Unit* result) {
  // Several reads at once hide the latency of the memory of another device.
  const int n_at_once = 4;
  const soybean_part& part = parts[blockIdx.y];
  const Unit* source = (const Unit*)part.source;
  unsigned long long n_threads = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long first = blockIdx.x * blockDim.x + threadIdx.x; first < part.n_points; first += n_at_once * n_threads) {
    Unit units[n_at_once];
    unsigned long long here[n_at_once];
#pragma unroll
    for (int i = 0; i < n_at_once; ++i) {
      unsigned long long point = first + i * n_threads;
      if (point >= part.n_points) continue;
      soybean_place place = soybean_find(part, (unsigned)point);
      here[i] = place.here;
      units[i] = source[place.there];
    }
#pragma unroll
    for (int i = 0; i < n_at_once; ++i) {
      if (first + i * n_threads < part.n_points) result[here[i]] = units[i];
    }
  }
}

// Combines the elements of one unit in the order of the sources: integers, or numbers in single
// precision.
template <class Combine, class Element, class Unit> __device__ __forceinline__ void soybean_combine(const soybean_part* parts, Unit* result) {
  const int n_elements = sizeof(Unit) / sizeof(Element);
  union Elements {
    Unit unit;
    Element elements[n_elements];
  };
  const soybean_part& part = parts[blockIdx.y];
  const Unit* const* sources = (const Unit* const*)part.source;
  unsigned long long n_threads = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long point = blockIdx.x * blockDim.x + threadIdx.x; point < part.n_points; point += n_threads) {
    soybean_place place = soybean_find(part, (unsigned)point);
    Elements elements;
    decltype(Combine::none()) values[n_elements];
    elements.unit = sources[0][place.there];
#pragma unroll
    for (int i = 0; i < n_elements; ++i) values[i] = Combine::value(elements.elements[i]);
#pragma unroll 4
    for (unsigned source = 1; source < part.n_sources; ++source) {
      elements.unit = sources[source][place.there];
#pragma unroll
      for (int i = 0; i < n_elements; ++i) values[i] = Combine::combine(values[i], Combine::value(elements.elements[i]));
    }
#pragma unroll
    for (int i = 0; i < n_elements; ++i) soybean_store(elements.elements + i, values[i]);
    result[place.here] = elements.unit;
  }
}

#define SOYBEAN_MOVE(bytes, Unit)                                                                                                    \
  extern "C" __global__ void __launch_bounds__(256) soybean_move_##bytes(const soybean_part* parts, Unit* result) {                 \
    soybean_move<Unit>(parts, result);                                                                                              \
  }
#define SOYBEAN_COMBINE(function, Combine, Element, Unit)                                                                            \
  extern "C" __global__ void __launch_bounds__(256) function(const soybean_part* parts, Unit* result) {                             \
    soybean_combine<Combine, Element, Unit>(parts, result);                                                                         \
  }
