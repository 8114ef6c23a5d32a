// Float buffers of the forward pass: grown to the largest step seen, then reused.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace kvasir::model {

/// Cache-line aligned floats, uninitialized. Growing drops the content.
class FloatBuffer {
 public:
  /// At least `count` floats; valid until the next Reserve with a larger count.
  float* Reserve(int64_t count);
  [[nodiscard]] float* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };
  std::unique_ptr<float, Free> data_;
  int64_t capacity_ = 0;
};

struct Workspace {
  FloatBuffer residual;   ///< x [T, M]
  FloatBuffer normed;     ///< norms' outputs [T, M]
  FloatBuffer branch;     ///< what attention, FFN or learned positions add [T, M]
  FloatBuffer second;     ///< a parallel block's FFN branch [T, M]
  FloatBuffer qkv;        ///< [T, (Hq + 2 Hkv) D]
  FloatBuffer attention;  ///< [T, Hq D]
  FloatBuffer ffn;        ///< [T, 2 F] or [T, F]
  FloatBuffer gathered;   ///< rows whose logits are asked for
};

}  // namespace kvasir::model
