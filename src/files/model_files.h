// What a user points at with --model, opened: a folder of Hugging Face files or a .gguf.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "files/gguf.h"
#include "files/weights.h"

namespace kvasir::files {

struct ModelFiles {
  enum class Kind { kHuggingFace, kGguf };
  Kind kind = Kind::kHuggingFace;
  std::filesystem::path path;  ///< as given
  std::string name;  ///< last component without extension, printable: the served model's name

  // Hugging Face folder; null or empty where the file is absent.
  nlohmann::json config;             ///< config.json
  nlohmann::json generation_config;  ///< generation_config.json
  nlohmann::json tokenizer_config;   ///< tokenizer_config.json
  std::string tokenizer_json;        ///< tokenizer.json, unparsed (large)
  /// chat_template.jinja, else tokenizer_config's chat_template where it is one string (the
  /// "default" of a list), else GGUF's tokenizer.chat_template.
  std::optional<std::string> chat_template;
  /// The template named "tool_use", where there are several.
  std::optional<std::string> tool_use_template;

  // GGUF.
  std::optional<GgufFile> gguf;

  std::unique_ptr<Weights> safetensors;

  /// Null where a folder was opened without them (OpenOptions::need_weights false).
  [[nodiscard]] const Weights* weights() const {
    return kind == Kind::kGguf ? gguf->weights.get() : safetensors.get();
  }
};

struct OpenOptions {
  /// False: a folder with only a tokenizer or a config will do, and safetensors are not opened.
  bool need_weights = true;
};

/// Opens a folder or a .gguf. One-line errors that name the file, what was expected and what came.
[[nodiscard]] Result<ModelFiles> OpenModel(const std::filesystem::path& path,
                                           const OpenOptions& options = {});

}  // namespace kvasir::files
