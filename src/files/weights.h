// Named tensors of one model, wherever they lie: one safetensors file, shards, one GGUF, split
// GGUFs.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace kvasir::files {

/// Views into memory-mapped files; they stay valid as long as the Weights lives. Read-only, any
/// thread.
class Weights {
 public:
  virtual ~Weights() = default;
  /// All names, sorted.
  [[nodiscard]] virtual const std::vector<std::string>& names() const = 0;
  /// Null where there is no such tensor.
  [[nodiscard]] virtual const TensorView* Find(std::string_view name) const = 0;
  /// Which file holds the tensor, for messages; the whole (folder or first file) where none does.
  [[nodiscard]] virtual std::string FileOf(std::string_view name) const = 0;
  /// Tells the OS that these bytes were copied elsewhere and need not stay resident.
  virtual void Release(std::span<const std::byte> stored) const = 0;

  /// Find, or an error that names the file and the tensor.
  [[nodiscard]] Result<const TensorView*> Require(std::string_view name) const;
};

}  // namespace kvasir::files
