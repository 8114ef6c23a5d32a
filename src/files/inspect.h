// What a model's files hold, as plain numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "files/model_files.h"
#include "tensor/tensor.h"

namespace kvasir::files {

struct TensorSummary {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  int64_t bytes = 0;
};

struct FormatSummary {
  DType dtype = DType::kF32;
  int64_t tensors_count = 0;
  int64_t values_count = 0;
  int64_t bytes = 0;
};

struct ModelSummary {
  /// GGUF's general.architecture; config.json's first of `architectures`, else its `model_type`.
  /// Empty where none is given.
  std::string architecture;
  int64_t parameters_count = 0;  ///< stored values of all tensors
  int64_t bytes = 0;
  std::vector<TensorSummary> tensors;  ///< sorted by name
  std::vector<FormatSummary> formats;  ///< most bytes first
};

[[nodiscard]] ModelSummary Summarize(const ModelFiles& model);

/// The architecture alone; see ModelSummary.
[[nodiscard]] std::string ArchitectureOf(const ModelFiles& model);

}  // namespace kvasir::files
