// Vectors of 16 float32 numbers.

#pragma once

#if !defined(__AVX512VNNI__) || !defined(__AVX512BW__)
#error "these kernels are for processors with AVX-512 VNNI"
#endif

#include <immintrin.h>

#include <cstdint>

using Floats = float __attribute__((vector_size(64)));
constexpr int64_t kWidth = 16;

inline Floats load(const float* from) { return (Floats)_mm512_loadu_ps(from); }

inline void store(float* to, Floats numbers) { _mm512_storeu_ps(to, (__m512)numbers); }

// exp(x) for x in [-87, 87], taken as its end outside, by a polynomial of 2^f on [-1/2, 1/2]
// (coefficients ln(2)^k / k!).
inline Floats exponential(Floats x) {
  const __m512 most = _mm512_set1_ps(87.0f), least = _mm512_set1_ps(-87.0f);
  const __m512 log = _mm512_set1_ps(1.44269502f), rest_of_log = _mm512_set1_ps(1.92596303e-8f);
  const __m512 given = _mm512_min_ps(_mm512_max_ps((__m512)x, least), most);
  const __m512 whole = _mm512_roundscale_ps(_mm512_mul_ps(given, log), _MM_FROUND_TO_NEAREST_INT);
  const __m512 part = _mm512_fmadd_ps(given, rest_of_log, _mm512_fmsub_ps(given, log, whole));
  __m512 sum = _mm512_set1_ps(1.52527338e-5f);
  for (float next : {1.54035304e-4f, 1.33335581e-3f, 9.61812911e-3f, 5.55041087e-2f, 2.40226507e-1f,
                     6.93147181e-1f, 1.0f})
    sum = _mm512_fmadd_ps(sum, part, _mm512_set1_ps(next));
  return (Floats)_mm512_scalef_ps(sum, whole);
}

inline Floats silu(Floats x) { return x / (1.0f + exponential(-x)); }

// The sum of each of 16 vectors.
__attribute__((always_inline)) inline Floats sums_of(const Floats (&vectors)[kWidth]) {
  Floats pairs[8], fours[4], halves[2];
  for (int i = 0; i < 8; ++i) {
    const __m512 one = (__m512)vectors[2 * i], other = (__m512)vectors[2 * i + 1];
    pairs[i] = (Floats)_mm512_unpacklo_ps(one, other) + (Floats)_mm512_unpackhi_ps(one, other);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512d one = (__m512d)pairs[2 * i], other = (__m512d)pairs[2 * i + 1];
    fours[i] = (Floats)_mm512_unpacklo_pd(one, other) + (Floats)_mm512_unpackhi_pd(one, other);
  }
  const auto joined = [](Floats one, Floats other) {
    const __m512 a = (__m512)one, b = (__m512)other;
    return (Floats)_mm512_shuffle_f32x4(a, b, 0x88) + (Floats)_mm512_shuffle_f32x4(a, b, 0xdd);
  };
  for (int i = 0; i < 2; ++i) halves[i] = joined(fours[2 * i], fours[2 * i + 1]);
  return joined(halves[0], halves[1]);
}
