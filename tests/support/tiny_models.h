// The tiny models under tests/data/models, with what Hugging Face transformers computes for them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "files/model_files.h"
#include "kernels/backend.h"
#include "model/model.h"
#include "support/data.h"

namespace kvasir::test {

struct ExpectedCase {
  std::string name;
  std::vector<int32_t> prompt_ids;
  std::vector<double> last_logits;
  std::vector<std::pair<int32_t, double>> last_top;  ///< where last_logits are not kept
  double last_logsumexp = 0.0;
  std::vector<double> prompt_logprobs;
  std::vector<int32_t> argmax;
  std::vector<double> margins;
  std::vector<int32_t> greedy_ids;
  std::vector<double> greedy_logprobs;
  std::vector<double> greedy_margins;
  std::vector<double> bf16_diff;
};

/// All cases of `folder`/expected.json.
[[nodiscard]] std::vector<ExpectedCase> ReadExpected(const std::filesystem::path& folder);

/// Folder names under tests/data/models with safetensors, and under its gguf/ ("gguf/llama-f16").
[[nodiscard]] const std::vector<std::string>& TinyModels();
[[nodiscard]] const std::vector<std::string>& TinyGgufs();

/// A model with all that it needs to live.
struct LoadedModel {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<files::ModelFiles> files;
  std::unique_ptr<model::Model> model;
};

/// Loads the folder or file `path`; fails the test where that fails.
/// (Here, since the support library does not link the rooms that it needs.)
[[nodiscard]] inline LoadedModel LoadModel(const std::filesystem::path& path,
                                           std::string_view backend, int threads_count = 1,
                                           int64_t max_model_len = 0) {
  LoadedModel loaded;
  auto files = files::OpenModel(path);
  if (!files.ok()) {
    ADD_FAILURE() << files.error().message;
    return loaded;
  }
  loaded.files = std::make_unique<files::ModelFiles>(*std::move(files));
  loaded.pool = std::make_unique<ThreadPool>(threads_count);
  auto made = kernels::MakeBackend(backend, *loaded.pool);
  if (!made.ok()) {
    ADD_FAILURE() << made.error().message;
    return loaded;
  }
  loaded.backend = *std::move(made);
  model::LoadOptions options;
  options.max_model_len = max_model_len;
  auto model = model::Model::Load(*loaded.files, *loaded.backend, options);
  if (!model.ok()) {
    ADD_FAILURE() << model.error().message;
    return loaded;
  }
  loaded.model = *std::move(model);
  return loaded;
}

/// Loads TinyModels()' or TinyGgufs()' `name`; fails the test where that fails.
[[nodiscard]] inline LoadedModel LoadTiny(const std::string& name, std::string_view backend,
                                          int threads_count = 1, int64_t max_model_len = 0) {
  std::filesystem::path path = DataPath("models/" + name);
  if (name.starts_with("gguf/")) path /= "model.gguf";
  return LoadModel(path, backend, threads_count, max_model_len);
}

}  // namespace kvasir::test
