#include "model/workspace.h"

#include "base/check.h"

namespace kvasir::model {

float* FloatBuffer::Reserve(int64_t count) {
  if (count > capacity_) {
    constexpr size_t kAlignment = 64;
    const size_t bytes =
        (static_cast<size_t>(count) * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
    data_.reset();
    data_.reset(static_cast<float*>(std::aligned_alloc(kAlignment, bytes)));
    KVASIR_CHECK(data_ != nullptr, "out of memory for {} bytes of workspace", bytes);
    capacity_ = count;
  }
  return data_.get();
}

}  // namespace kvasir::model
