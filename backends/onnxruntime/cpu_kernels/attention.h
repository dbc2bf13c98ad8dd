// Attention of few rows to a cache, with rotary positions: see `library.cpp`.
//
// Attend(joined [B, M, (H + 2 G) D], keys [B, G, S, D], values, last int32 [B], cos [P, D/2], sin,
//        positions int64 [B, M], bias [B or 1, H or 1, M, total])
//     -> [B, M, H D], keys, values
//     what GroupQueryAttention of ONNX Runtime does with these: keys and values of the rows are
//     written to the slots up to `last`, which may be in place, and each row attends to those up to
//     its own, with the bias added where there is one.
//
// A row's numbers are summed up in one order, whatever the number of rows is.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "interface.h"
#include "vectors.h"

// One call.
struct Attention {
  int64_t batch, rows, heads, groups, size, slots, total;
  float scale;
  const float *joined, *cos, *sin, *bias;
  int64_t bias_batch, bias_head;  // from one to the next, 0 where all have the same
  const int32_t* last;
  const int64_t* positions;
  float *keys, *values, *out;
  std::vector<float> queries;  // turned and scaled, [B, M, H, D]

  int64_t slot(int64_t text, int64_t row) const { return last[text] + 1 - rows + row; }

  // Turn a head's numbers by their position.
  void turn(const float* from, float* to, int64_t position, float by) const {
    const int64_t half = size / 2;
    for (int64_t d = 0; d < half; d += kWidth) {
      const Floats c = load(cos + position * half + d), s = load(sin + position * half + d);
      const Floats near = load(from + d), far = load(from + half + d);
      store(to + d, (near * c - far * s) * by);
      store(to + half + d, (far * c + near * s) * by);
    }
  }

  // Turn a row's queries, and write its keys and values.
  void place(int64_t item) {
    const int64_t text = item / rows, row = item % rows, position = positions[item];
    const float* from = joined + item * (heads + 2 * groups) * size;
    for (int64_t head = 0; head < heads; ++head, from += size)
      turn(from, queries.data() + (item * heads + head) * size, position, scale);
    for (int64_t group = 0; group < groups; ++group, from += size) {
      const int64_t to = ((text * groups + group) * slots + slot(text, row)) * size;
      turn(from, keys + to, position, 1.0f);
      std::memcpy(values + to, from + groups * size, size * sizeof(float));
    }
  }

  // Of the queries that share keys and values, one of a row and a head after the other.
  int64_t ratio() const { return heads / groups; }

  int64_t place_of(int64_t text, int64_t group, int64_t query) const {
    const int64_t row = query / ratio(), head = group * ratio() + query % ratio();
    return ((text * rows + row) * heads + head) * size;
  }

  // A query times 16 keys.
  Floats products(const float* query, const float* key) const {
    Floats made[kWidth] = {};
    for (int64_t d = 0; d < size; d += kWidth) {
      const Floats part = load(query + d);
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) made[i] += part * load(key + i * size + d);
    }
    return sums_of(made);
  }

  // The same where the cache ends before 16 keys.
  Floats few(const float* query, const float* key, int64_t there) const {
    Floats made[kWidth] = {};
    for (int64_t d = 0; d < size; d += kWidth)
      for (int64_t i = 0; i < there; ++i) made[i] += load(query + d) * load(key + i * size + d);
    return sums_of(made);
  }

  // What a panel of queries finds in each slot, -inf behind the row's own one.
  template <int kQueries>
  void score(int64_t text, int64_t group, int64_t query, int64_t reach, float* scores) const {
    const float* key = keys + (text * groups + group) * slots * size;
    for (int64_t first = 0; first < reach; first += kWidth) {
      const int64_t there = std::min(kWidth, slots - first);
      for (int q = 0; q < kQueries; ++q) {
        const int64_t row = (query + q) / ratio(), head = group * ratio() + (query + q) % ratio();
        const float* given = queries.data() + place_of(text, group, query + q);
        const float* from = key + first * size;
        __m512 sums = (__m512)(there == kWidth ? products(given, from) : few(given, from, there));
        const int64_t seen = std::clamp<int64_t>(slot(text, row) + 1 - first, 0, kWidth);
        const __mmask16 mask = static_cast<__mmask16>((1u << seen) - 1);
        if (bias) {
          const float* added = bias + text * bias_batch + head * bias_head + row * total;
          sums = _mm512_add_ps(sums, _mm512_maskz_loadu_ps(mask, added + first));
        }
        sums = _mm512_mask_blend_ps(mask, _mm512_set1_ps(-INFINITY), sums);
        store(scores + q * reach + first, (Floats)sums);
      }
    }
  }

  // Weights of slots for scores, in their place; what they have to be multiplied by.
  static float weigh(float* scores, int64_t reach) {
    Floats most = load(scores), sum = {};
    for (int64_t s = kWidth; s < reach; s += kWidth)
      most = (Floats)_mm512_max_ps((__m512)most, (__m512)load(scores + s));
    const float highest = _mm512_reduce_max_ps((__m512)most);
    for (int64_t s = 0; s < reach; s += kWidth) {
      const Floats below = load(scores + s) - highest;  // none is a number where none is seen
      const __mmask16 mask = _mm512_cmp_ps_mask((__m512)below, _mm512_set1_ps(-87.0f), _CMP_GT_OQ);
      const Floats weight = (Floats)_mm512_maskz_mov_ps(mask, (__m512)exponential(below));
      sum += weight;
      store(scores + s, weight);
    }
    const float all = _mm512_reduce_add_ps((__m512)sum);
    return all > 0 ? 1.0f / all : 0.0f;
  }

  // What a panel of queries gets.
  template <int kQueries>
  void attend(int64_t text, int64_t group, int64_t query, std::vector<float>& memory) const {
    const int64_t end = slot(text, (query + kQueries - 1) / ratio()) + 1;
    const int64_t reach = (end + kWidth - 1) / kWidth * kWidth;
    memory.resize(std::max<size_t>(memory.size(), kQueries * reach));
    score<kQueries>(text, group, query, reach, memory.data());
    float shares[kQueries];
    for (int q = 0; q < kQueries; ++q) shares[q] = weigh(memory.data() + q * reach, reach);
    const float* value = values + (text * groups + group) * slots * size;
    for (int64_t d = 0; d < size; d += 2 * kWidth) {
      Floats sums[kQueries][2] = {};
      for (int64_t s = 0; s < end; ++s) {
        const Floats near = load(value + s * size + d), far = load(value + s * size + d + kWidth);
        for (int q = 0; q < kQueries; ++q) {
          const float weight = memory[q * reach + s];
          sums[q][0] += near * weight;
          sums[q][1] += far * weight;
        }
      }
      for (int q = 0; q < kQueries; ++q) {
        float* to = out + place_of(text, group, query + q) + d;
        store(to, sums[q][0] * shares[q]);
        store(to + kWidth, sums[q][1] * shares[q]);
      }
    }
  }
};

struct Attend {
  static constexpr const char* kName = "Attend";
  static constexpr int kInputs[] = {kFloat, kFloat, kFloat, kInt32, kFloat, kFloat, kInt64, kFloat};
  static constexpr size_t kRequired = 7, kOutputs = 3;
  static constexpr int kPanel = 8;  // queries
  int64_t heads;
  float scale = 0;

  explicit Attend(const void* info) : heads(attribute(info, "num_heads")) {
    call(kGetAttributeFloat, info, "scale", &scale);
  }

  void compute(void* context) const {
    thread_local Attention memory;  // of this thread; all of them read it
    Attention& made = memory;
    prepare(context, made);
    const int64_t items = made.batch * made.rows;
    const bool together = items * made.size * heads * made.total > (1 << 18);
    each(context, items, together && items > 32, [&](size_t item) { made.place(item); });
    const int64_t count = made.rows * made.ratio(), panels = (count + kPanel - 1) / kPanel;
    each(context, made.batch * made.groups * panels, together, [&](size_t item) {
      thread_local std::vector<float> weights;
      const int64_t text = item / (made.groups * panels), group = item / panels % made.groups;
      int64_t query = item % panels * kPanel;
      if (count - query >= kPanel) return made.attend<kPanel>(text, group, query, weights);
      for (; count - query >= 2; query += 2) made.attend<2>(text, group, query, weights);
      if (query < count) made.attend<1>(text, group, query, weights);
    });
  }

  // Read a call's operands; keys and values are where they were, or copied to their new place.
  void prepare(void* context, Attention& made) const {
    const Operand joined = input(context, 0), keys = input(context, 1), values = input(context, 2);
    const Operand cos = input(context, 4), bias = input(context, 7);
    made.batch = joined.shape[0], made.rows = joined.shape[1];
    made.heads = heads, made.groups = keys.shape[1];
    made.slots = keys.shape[2], made.size = keys.shape[3];
    if (joined.shape[2] != (heads + 2 * made.groups) * made.size || made.size % (2 * kWidth) ||
        cos.shape[1] * 2 != made.size)
      throw std::invalid_argument("queries, keys and positions are of different sizes");
    made.scale = scale;
    made.joined = joined.as<float>();
    made.cos = cos.as<float>(), made.sin = input(context, 5).as<float>();
    made.last = input(context, 3).as<int32_t>(), made.positions = input(context, 6).as<int64_t>();
    made.bias = bias.as<float>();
    made.total = made.slots;
    if (made.bias != nullptr) {
      made.total = bias.shape[3];
      made.bias_head = bias.shape[1] > 1 ? made.rows * made.total : 0;
      made.bias_batch = bias.shape[0] > 1 ? bias.shape[1] * made.rows * made.total : 0;
    }
    made.out = output(context, 0, {made.batch, made.rows, heads * made.size});
    made.keys = carried(context, 1, keys), made.values = carried(context, 2, values);
    const size_t count = made.batch * made.rows * heads * made.size;
    made.queries.resize(std::max(made.queries.size(), count));
  }

  static float* carried(void* context, size_t number, const Operand& from) {
    float* to = output(context, number, from.shape);
    size_t count = 1;
    for (int64_t size : from.shape) count *= size;
    if (to != from.data) std::memcpy(to, from.data, count * sizeof(float));
    return to;
  }
};
