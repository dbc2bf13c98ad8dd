// Custom ops of ONNX Runtime for few rows: products and attention.

#include "attention.h"
#include "interface.h"
#include "products.h"

// The entry that ONNX Runtime looks for in a library of custom ops; returns a status, null if fine.
extern "C" __attribute__((visibility("default"))) void* RegisterCustomOps(void* options,
                                                                        const void* base) {
  api = (*static_cast<Table (*const*)(uint32_t)>(base))(17);
  static void* domain = nullptr;  // lives as long as the process: sessions refer to it
  if (domain == nullptr) {
    if (void* failed = call(kCreateCustomOpDomain, "specplan", &domain)) return failed;
    for (const CustomOp* op : {declared<Stored<Bfloat16>>(), declared<Stored<Float16>>(),
                               declared<Blocks>(), declared<Attend>()})
      if (void* failed = call(kCustomOpDomainAdd, domain, op)) return failed;
  }
  return call(kAddCustomOpDomain, options, domain);
}
