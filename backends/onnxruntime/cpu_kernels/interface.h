// ONNX Runtime's C interface, as far as custom ops need it (onnxruntime_c_api.h of version 1.17).
//
// Functions are places in a table that only ever grows at its end.

#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

using Table = void* const*;
inline Table api;

enum Place {
  kCreateCustomOpDomain = 26, kCustomOpDomainAdd = 27, kAddCustomOpDomain = 28,
  kGetTensorMutableData = 51, kGetDimensionsCount = 61, kGetDimensions = 62,
  kGetTensorTypeAndShape = 65, kGetAttributeFloat = 85, kGetAttributeInt = 86,
  kGetInput = 90, kGetOutput = 91, kReleaseShape = 99, kParallelFor = 274,
};

// Calls that fail return a status; those below fail only where the declarations here are wrong.
template <class... Arguments>
void* call(Place place, Arguments... arguments) {
  return reinterpret_cast<void* (*)(Arguments...)>(api[place])(arguments...);
}

constexpr uint32_t kVersion = 12;  // of the structure below, which later versions made longer
constexpr int kFloat = 1, kUint8 = 2, kInt32 = 6, kInt64 = 7, kFloat16 = 10,
              kBfloat16 = 16;

struct CustomOp {
  uint32_t version;
  void* (*create)(const CustomOp*, const void* api, const void* info);
  const char* (*name)(const CustomOp*);
  const char* (*provider)(const CustomOp*);
  int (*input_type)(const CustomOp*, size_t);
  size_t (*inputs)(const CustomOp*);
  int (*output_type)(const CustomOp*, size_t);
  size_t (*outputs)(const CustomOp*);
  void (*compute)(void* kernel, void* context);
  void (*destroy)(void* kernel);
  int (*input_kind)(const CustomOp*, size_t);
  int (*output_kind)(const CustomOp*, size_t);
};

struct Operand {
  void* data = nullptr;
  std::vector<int64_t> shape;

  template <class Number>
  const Number* as() const { return static_cast<const Number*>(data); }
};

inline Operand input(void* context, size_t number) {
  Operand made;
  void *value = nullptr, *info = nullptr;
  size_t rank = 0;
  call(kGetInput, context, number, &value);
  if (value == nullptr) return made;  // an optional one
  call(kGetTensorMutableData, value, &made.data);
  call(kGetTensorTypeAndShape, value, &info);
  call(kGetDimensionsCount, info, &rank);
  made.shape.resize(rank);
  call(kGetDimensions, info, made.shape.data(), rank);
  call(kReleaseShape, info);
  return made;
}

inline float* output(void* context, size_t number, const std::vector<int64_t>& shape) {
  void *value = nullptr, *data = nullptr;
  call(kGetOutput, context, number, shape.data(), shape.size(), &value);
  call(kGetTensorMutableData, value, &data);
  return static_cast<float*>(data);
}

// Run parts of some work, on all threads of the session where that pays.
template <class Work>
void each(void* context, size_t parts, bool together, const Work& work) {
  if (!together) {
    for (size_t part = 0; part < parts; ++part) work(part);
    return;
  }
  void (*run)(void*, size_t) = [](void* given, size_t part) { (*static_cast<Work*>(given))(part); };
  void* given = const_cast<Work*>(&work);
  call(kParallelFor, context, run, parts, size_t{0}, given);
}

// A declaration for ONNX Runtime of a class with its name, its types and a method `compute`.
template <class Op>
const CustomOp* declared() {
  static const CustomOp made = {
      kVersion,
      [](const CustomOp*, const void*, const void* info) -> void* { return new Op(info); },
      [](const CustomOp*) { return Op::kName; },
      [](const CustomOp*) -> const char* { return "CPUExecutionProvider"; },
      [](const CustomOp*, size_t number) { return Op::kInputs[number]; },
      [](const CustomOp*) { return std::size(Op::kInputs); },
      [](const CustomOp*, size_t) { return kFloat; },
      [](const CustomOp*) { return Op::kOutputs; },
      [](void* kernel, void* context) { static_cast<const Op*>(kernel)->compute(context); },
      [](void* kernel) { delete static_cast<Op*>(kernel); },
      [](const CustomOp*, size_t number) { return number < Op::kRequired ? 0 : 1; },
      [](const CustomOp*, size_t) { return 0; },
  };
  return &made;
}

inline int64_t attribute(const void* info, const char* name) {
  int64_t number = 0;
  call(kGetAttributeInt, info, name, &number);
  return number;
}
