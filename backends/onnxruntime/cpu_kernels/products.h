// Products of few rows by matrices stored in 16, 8 or 4 bits: see `library.cpp`.
//
// A round of a plan has one row for each drafted node, a prompt has one for each token. All ops
// read a matrix [N, K] in tiles of 16 columns of the product, so that a tile's weights are read
// once for all rows of a panel. Each number of a product is summed up in one order, whatever the
// number of rows is: a row gives the same bits in a round of one node and in one of seventeen.
//
// StoredBfloat16(x, tiles bfloat16 [T, K, 16])
// StoredFloat16(x, tiles float16 [T, K, 16])
//     products of float32 numbers, summed up in float32.
// Blocks(x, tiles uint8 [T, K/32, groups, 16, 4], scales [T, K/32, 16])
//     weights in blocks of 32 with one scale; activations are rounded to 8 bits block by block
//     (specplan.runtime.models.quantized), products of codes are summed up exactly (AVX-512 VNNI).
//
// x has M K numbers in any shape. Attributes: N columns, of T tiles with 16 T >= N; `rank` of the
// result, 2 for [M, N], 3 for [1, M, N], 0 for x's with N instead of K; `gated`, whether tiles are
// those of gates and of what these let through in turn, and the result is silu(gate) * other, of N
// columns (SwiGLU, arXiv 2002.05202).

#pragma once

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "interface.h"
#include "vectors.h"

constexpr int kBlock = 32;
constexpr int64_t kShares = 8;  // of a product, each of neighbouring tiles

// A product's shape, and where a panel of rows and tiles is written.
struct Product {
  int64_t rows, depth, columns;
  bool gated;
  float* out;

  template <int kTiles>
  void write(const Floats (&sums)[kTiles], int64_t row, int64_t tile) const {
    if (!gated) {
      for (int t = 0; t < kTiles; ++t) put(sums[t], row, tile + t);
    } else if constexpr (kTiles > 1) {
      for (int t = 0; t < kTiles; t += 2) put(silu(sums[t]) * sums[t + 1], row, (tile + t) / 2);
    }
  }

  void put(Floats sum, int64_t row, int64_t tile) const {
    const int64_t first = tile * kWidth, left = std::min<int64_t>(kWidth, columns - first);
    std::memcpy(out + row * columns + first, &sum, left * sizeof(float));
  }
};

// Numbers of 16 bits, as they are stored and as float32.
struct Bfloat16 {
  static constexpr const char* kOp = "StoredBfloat16";
  static constexpr int kType = kBfloat16;

  static Floats widened(__m256i halves) {
    return (Floats)_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
  }
};

struct Float16 {
  static constexpr const char* kOp = "StoredFloat16";
  static constexpr int kType = kFloat16;

  static Floats widened(__m256i halves) { return (Floats)_mm512_cvtph_ps(halves); }
};

template <class Number>
struct StoredProduct : Product {
  const float* x;
  const uint16_t* tiles;

  template <int kRows, int kTiles>
  void panel(int64_t row, int64_t tile) const {
    Floats sums[kRows][kTiles] = {};
    const uint16_t* weights = tiles + tile * depth * kWidth;
    const float* rows_of_x = x + row * depth;
    for (int64_t k = 0; k < depth; ++k) {
      Floats column[kTiles];
      for (int t = 0; t < kTiles; ++t) {
        const uint16_t* from = weights + (t * depth + k) * kWidth;
        // Many sums hide little of the time that weights take to come: ask for the next tiles'.
        if (kTiles < 8 && row == 0) _mm_prefetch(from + kTiles * depth * kWidth, _MM_HINT_T0);
        column[t] = Number::widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
      }
      for (int r = 0; r < kRows; ++r) {
        const Floats one = (Floats)_mm512_set1_ps(rows_of_x[r * depth + k]);
        for (int t = 0; t < kTiles; ++t) sums[r][t] += one * column[t];
      }
    }
    for (int r = 0; r < kRows; ++r) write(sums[r], row + r, tile);
  }
};

struct BlockProduct : Product {
  const uint8_t* tiles;
  const float* scales;
  int bits;
  std::vector<int8_t> codes;   // of activations, [M, K]
  std::vector<float> sizes;    // of a code's step, [M, K/32]
  std::vector<int32_t> shift;  // what weights above 0 add too much, negative, [M, K/32]

  int64_t blocks() const { return depth / kBlock; }

  void reserve() {
    codes.resize(std::max<size_t>(codes.size(), rows * depth));
    sizes.resize(std::max<size_t>(sizes.size(), rows * blocks()));
    shift.resize(sizes.size());
  }

  void round(const float* x, int64_t row) {
    const int middle = 1 << (bits - 1);
    for (int64_t block = 0; block < blocks(); ++block) {
      const float* from = x + row * depth + block * kBlock;
      const __m512 one = _mm512_loadu_ps(from), other = _mm512_loadu_ps(from + kWidth);
      const __m512 sizes_here = _mm512_max_ps(_mm512_abs_ps(one), _mm512_abs_ps(other));
      const float most = _mm512_reduce_max_ps(sizes_here);
      const __m512 steps = _mm512_set1_ps(most == 0 ? 0.0f : 127.0f * (1.0f / most));
      const __m512i first = _mm512_cvtps_epi32(_mm512_mul_ps(one, steps));
      const __m512i second = _mm512_cvtps_epi32(_mm512_mul_ps(other, steps));
      int8_t* to = codes.data() + row * depth + block * kBlock;
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(first));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + kWidth), _mm512_cvtepi32_epi8(second));
      sizes[row * blocks() + block] = most / 127.0f;
      const int sum = _mm512_reduce_add_epi32(_mm512_add_epi32(first, second));
      shift[row * blocks() + block] = -middle * sum;
    }
  }

  template <int kBits, int kRows, int kTiles>
  void panel(int64_t row, int64_t tile) const {
    constexpr int kHalf = 4;  // vectors of four codes for each column, a half of a block
    const int64_t count = blocks(), bytes = kBits * kBlock / 8 * kWidth;
    Floats sums[kRows][kTiles] = {};
    for (int64_t block = 0; block < count; ++block) {
      __m512i exact[kRows][kTiles];
      for (int r = 0; r < kRows; ++r)
        for (int t = 0; t < kTiles; ++t)
          exact[r][t] = _mm512_set1_epi32(shift[(row + r) * count + block]);
      const int8_t* given = codes.data() + row * depth + block * kBlock;
      for (int group = 0; group < kHalf; ++group) {
        __m512i low[kTiles], high[kTiles];
        for (int t = 0; t < kTiles; ++t) {
          const uint8_t* from = tiles + ((tile + t) * count + block) * bytes + group * 64;
          low[t] = _mm512_loadu_si512(from);
          if constexpr (kBits == 4) {
            const __m512i mask = _mm512_set1_epi8(15);
            high[t] = _mm512_and_si512(_mm512_srli_epi16(low[t], 4), mask);
            low[t] = _mm512_and_si512(low[t], mask);
          } else {
            high[t] = _mm512_loadu_si512(from + kHalf * 64);
          }
        }
        for (int r = 0; r < kRows; ++r) {
          int32_t near, far;
          std::memcpy(&near, given + r * depth + 4 * group, 4);
          std::memcpy(&far, given + r * depth + 4 * (group + kHalf), 4);
          const __m512i first = _mm512_set1_epi32(near), second = _mm512_set1_epi32(far);
          for (int t = 0; t < kTiles; ++t) {
            exact[r][t] = _mm512_dpbusd_epi32(exact[r][t], low[t], first);
            exact[r][t] = _mm512_dpbusd_epi32(exact[r][t], high[t], second);
          }
        }
      }
      for (int t = 0; t < kTiles; ++t) {
        const __m512 scale = _mm512_loadu_ps(scales + ((tile + t) * count + block) * kWidth);
        for (int r = 0; r < kRows; ++r) {
          const Floats step = (Floats)scale * sizes[(row + r) * count + block];
          sums[r][t] += (Floats)_mm512_cvtepi32_ps(exact[r][t]) * step;
        }
      }
    }
    for (int r = 0; r < kRows; ++r) write(sums[r], row + r, tile);
  }
};

// All rows by some tiles, in panels of at most kRows rows.
template <int kRows, int kTiles, class Panel>
void rows_by(const Product& product, int64_t tile, const Panel& panel) {
  int64_t row = 0;
  for (; product.rows - row >= kRows; row += kRows)
    panel.template operator()<kRows, kTiles>(row, tile);
  const int64_t left = product.rows - row;
  if constexpr (kRows > 1) {
    // The rest in one panel of its size.
    [&]<int... kSizes>(std::integer_sequence<int, kSizes...>) {
      const auto run = [&]<int kLeft>() { panel.template operator()<kLeft, kTiles>(row, tile); };
      ((left == kSizes + 1 && (run.template operator()<kSizes + 1>(), true)) || ...);
    }(std::make_integer_sequence<int, kRows - 1>{});
  }
}

// A product in groups of kTiles tiles.
template <int kRows, int kTiles, class Panel>
void run_in(void* context, const Product& product, int64_t tiles, const Panel& panel) {
  const bool together = product.rows * product.depth * product.columns > (1 << 16);
  const int64_t groups = (tiles + kTiles - 1) / kTiles, shares = std::min(groups, kShares);
  each(context, shares, together, [&](int64_t share) {
    int64_t tile = groups * share / shares * kTiles;
    const int64_t end = std::min(tiles, groups * (share + 1) / shares * kTiles);
    for (; end - tile >= kTiles; tile += kTiles) rows_by<kRows, kTiles>(product, tile, panel);
    for (; end - tile >= 2; tile += 2) rows_by<kRows, 2>(product, tile, panel);
    if (tile < end) rows_by<kRows, 1>(product, tile, panel);
  });
}

// What all ops are declared with, and their results.
struct ProductOp {
  static constexpr size_t kOutputs = 1;
  int64_t columns, rank, gated;

  explicit ProductOp(const void* info)
      : columns(attribute(info, "N")),
        rank(attribute(info, "rank")),
        gated(attribute(info, "gated")) {}

  Product product(void* context, const Operand& x, int64_t depth) const {
    int64_t numbers = 1;
    for (int64_t size : x.shape) numbers *= size;
    if (numbers % depth) throw std::invalid_argument("no whole number of rows is multiplied");
    const int64_t rows = numbers / depth;
    std::vector<int64_t> shape = x.shape;
    if (rank == 2) shape = {rows, columns};
    if (rank == 3) shape = {1, rows, columns};
    shape.back() = columns;
    return {rows, depth, columns, gated != 0, output(context, 0, shape)};
  }
};

template <class Number>
struct Stored : ProductOp {
  static constexpr const char* kName = Number::kOp;
  static constexpr int kInputs[] = {kFloat, Number::kType};
  static constexpr size_t kRequired = 2;
  using ProductOp::ProductOp;

  void compute(void* context) const {
    const Operand x = input(context, 0), tiles = input(context, 1);
    const Product shape = product(context, x, tiles.shape[1]);
    const StoredProduct<Number> made{shape, x.as<float>(), tiles.as<uint16_t>()};
    const auto panel = [&]<int kRows, int kTiles>(int64_t row, int64_t tile) {
      made.template panel<kRows, kTiles>(row, tile);
    };
    if (made.rows <= 3) return run_in<3, 8>(context, made, tiles.shape[0], panel);
    if (made.rows <= 6) return run_in<6, 4>(context, made, tiles.shape[0], panel);
    run_in<12, 2>(context, made, tiles.shape[0], panel);
  }
};

struct Blocks : ProductOp {
  static constexpr const char* kName = "Blocks";
  static constexpr int kInputs[] = {kFloat, kUint8, kFloat};
  static constexpr size_t kRequired = 3;
  using ProductOp::ProductOp;

  void compute(void* context) const {
    const Operand x = input(context, 0), tiles = input(context, 1), scales = input(context, 2);
    thread_local BlockProduct memory;  // of this thread; all of them read it
    BlockProduct& made = memory;
    static_cast<Product&>(made) = product(context, x, tiles.shape[1] * kBlock);
    made.tiles = tiles.as<uint8_t>();
    made.scales = scales.as<float>();
    made.bits = static_cast<int>(tiles.shape[2]);
    made.reserve();
    const bool together = made.rows * made.depth > (1 << 14);
    each(context, made.rows, together, [&](size_t row) { made.round(x.as<float>(), row); });
    if (made.bits == 4) return multiply<4>(context, made, tiles.shape[0]);
    multiply<8>(context, made, tiles.shape[0]);
  }

  template <int kBits>
  static void multiply(void* context, const BlockProduct& made, int64_t tiles) {
    const auto panel = [&]<int kRows, int kTiles>(int64_t row, int64_t tile) {
      made.panel<kBits, kRows, kTiles>(row, tile);
    };
    if (made.rows <= 2) return run_in<2, 4>(context, made, tiles, panel);
    run_in<6, 2>(context, made, tiles, panel);
  }
};
