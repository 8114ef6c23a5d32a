// Plans of model files beside what the server itself makes of them: every tiny model there is.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "base/thread_pool.h"
#include "files/inspect.h"
#include "files/model_files.h"
#include "kernels/backend.h"
#include "model/blueprint.h"
#include "model/config_reader.h"
#include "model/model.h"
#include "plan/answer.h"
#include "plan/memory.h"
#include "plan/model_shape.h"
#include "runner/kv_plan.h"
#include "support/data.h"
#include "support/temp_folder.h"

namespace kvasir::plan {
namespace {

namespace fs = std::filesystem;

/// Folders that hold a model, sorted.
std::vector<fs::path> ModelFolders(const fs::path& root) {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.path().filename() == "config.json" || entry.path().extension() == ".gguf") {
      folders.push_back(entry.path().parent_path());
    }
  }
  std::sort(folders.begin(), folders.end());
  folders.erase(std::unique(folders.begin(), folders.end()), folders.end());
  return folders;
}

/// A machine on which the plan is for that backend.
Hardware MachineOf(std::string_view kernels) {
  Hardware machine = FindHardware("ryzen-7950x").value();
  machine.kernels = kernels;
  return machine;
}

void CompareWithServer(const files::ModelFiles& files, const ModelShape& shape,
                       std::string_view kernels) {
  ThreadPool pool(1);
  const auto backend = kernels::MakeBackend(kernels, pool).value();
  auto loaded = model::Model::Load(files, *backend);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const model::Model& model = **loaded;
  const Answer answer = MakeAnswer(shape, MachineOf(kernels), {}).value();
  ASSERT_TRUE(answer.memory.loaded.has_value());
  EXPECT_EQ(answer.memory.loaded->packed_bytes, model.weights_bytes()) << kernels;
  EXPECT_EQ(answer.memory.weights_bytes, files::Summarize(files).bytes);

  const DType kv = runner::ChooseKvDType("auto", *files.weights()).value();
  for (const int64_t block_tokens : {1, 16, 100}) {
    const CacheSpec served = runner::MakeCacheSpec(model.spec(), kv, block_tokens);
    const CacheSpec planned = MakeCacheSpec(shape, shape.kv_format, block_tokens);
    EXPECT_EQ(planned.block_bytes, served.block_bytes);
    ASSERT_EQ(planned.groups.size(), served.groups.size());
    for (size_t i = 0; i < planned.groups.size(); ++i) {
      EXPECT_EQ(planned.groups[i].kind, served.groups[i].kind);
      EXPECT_EQ(planned.groups[i].window_tokens, served.groups[i].window_tokens);
    }
  }
}

// One test for all, since each model takes milliseconds.
TEST(PlanFilesTest, EqualTheServersOwnFigures) {
  KVASIR_SHARED_OR_SKIP(root, "models");
  int served_count = 0;
  for (const fs::path& folder : ModelFolders(root)) {
    SCOPED_TRACE(folder.string());
    auto files = files::OpenModel(folder);
    if (!files.ok()) continue;  // formats that the server cannot read
    const auto shape = FindModelShape(folder.string());
    ASSERT_TRUE(shape.ok()) << shape.error().message;
    const files::ModelSummary summary = files::Summarize(*files);
    EXPECT_EQ(shape->stored->bytes, summary.bytes);
    int64_t parts = 0;
    for (const int64_t bytes : shape->stored->part_bytes) parts += bytes;
    EXPECT_EQ(parts, summary.bytes);
    // Quantized safetensors hold scales and packed words beside values.
    if (!files->config.contains("quantization_config")) {
      EXPECT_EQ(shape->ParametersCount(), summary.parameters_count);
      // In one format for all, bytes follow from the shapes alone, part by part.
      if (summary.formats.size() == 1) {
        for (size_t part = 0; part < kPartCount; ++part) {
          EXPECT_EQ(PartBytes(*shape, static_cast<Part>(part), shape->shipped),
                    shape->stored->part_bytes[part])
              << PartName(static_cast<Part>(part));
        }
      }
    }
    // The plan knows which families the server can load; inspect agrees.
    model::ConfigReader reader(*files, 0);
    const bool served = model::MakeBlueprint(reader).ok();
    EXPECT_EQ(served, !shape->stored->loaded.empty());
    if (!served) continue;
    ++served_count;
    for (const std::string_view kernels : kernels::AvailableBackends()) {
      CompareWithServer(*files, *shape, kernels);
    }
  }
  EXPECT_GE(served_count, 35);
}

TEST(PlanFilesTest, AConfigurationBesideTheWrongFilesIsRefused) {
  KVASIR_SHARED_OR_SKIP(root, "models");
  const std::tuple<const char*, nlohmann::json, const char*> wrong[] = {
      {"llama", {{"num_hidden_layers", 1}}, "describes 1 layer, but its tensors hold "},
      {"llama", {{"num_hidden_layers", 64}}, "describes 64 layers, but its tensors hold "},
      {"llama", {{"intermediate_size", 4096}}, "another width of its feed-forward"},
      {"gpt2", {{"n_inner", 4096}}, " parameters, but its tensors hold "},
      {"qwen3-moe", {{"num_hidden_layers", 1}}, "describes 1 layer, but its tensors hold "},
      {"mixtral", {{"num_local_experts", 4}}, "describes 4 experts, but its tensors hold 8"},
      {"deepseek-v3", {{"num_hidden_layers", 2}}, "describes 2 layers, but its tensors hold "},
      {"llama", {{"num_key_value_heads", 1}}, "describes keys and values of 1 heads x "},
      {"quantized/llama-awq-g128", {{"num_key_value_heads", 1}}, "describes keys and values of 1 "},
      {"quantized/llama-gptq-g128",
       {{"num_key_value_heads", 1}},
       "describes keys and values of 1 "},
      {"quantized/llama-gptq-g128", {{"intermediate_size", 4096}}, "another width of its feed-fo"},
      {"quantized/llama-awq-g128", {{"num_hidden_layers", 40}}, "describes 40 layers, but its "},
      {"quantized/llama-awq-g128", {{"hidden_size", 8192}}, "rows of 8,192, but its tensors hold "},
  };
  for (const auto& [name, change, words] : wrong) {
    SCOPED_TRACE(name);
    const test::TempFolder folder;
    for (const auto& entry : fs::directory_iterator(root / name)) {
      fs::copy(entry.path(), folder.path() / entry.path().filename(), fs::copy_options::recursive);
    }
    ASSERT_TRUE(FindModelShape(folder.path().string()).ok());
    nlohmann::json config =
        nlohmann::json::parse(std::ifstream(root / name / "config.json"), nullptr, false);
    config.update(change);
    config.erase("layer_types");
    std::ofstream(folder.path() / "config.json") << config;
    const auto shape = FindModelShape(folder.path().string());
    ASSERT_FALSE(shape.ok());
    EXPECT_NE(shape.error().message.find(words), std::string::npos) << shape.error().message;
  }
}

/// A safetensors file of one F32 tensor of zeros.
std::string FileOf(const std::string& name, int64_t rows, int64_t cols) {
  const nlohmann::json header = {
      {name, {{"dtype", "F32"}, {"shape", {rows, cols}}, {"data_offsets", {0, 4 * rows * cols}}}}};
  const std::string text = header.dump();
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(text.size() >> (8 * i));
  return file + text + std::string(static_cast<size_t>(4 * rows * cols), '\0');
}

// What serving does not load takes no memory: a folder is planned as if it were not there.
TEST(PlanFilesTest, TensorsThatServingDoesNotLoadAreLeftOut) {
  KVASIR_SHARED_OR_SKIP(root, "models");
  const std::pair<const char*, const char*> extra[] = {
      {"gemma3", "vision_tower.layers.40.self_attn.q_proj.weight"},
      {"qwen2", "lm_head.weight"},  // a copy of the tied table
      {"gpt2", "h.0.attn.bias"},    // a mask
      {"llama", "model.layers.9.self_attn.rotary_emb.inv_freq"},
      {"glm4-moe", "model.layers.9.eh_proj.weight"},
      {"qwen3-next", "mtp.layers.0.mlp.gate_proj.weight"},
  };
  for (const auto& [model, name] : extra) {
    SCOPED_TRACE(name);
    const test::TempFolder folder;
    for (const auto& entry : fs::directory_iterator(root / model)) {
      fs::copy(entry.path(), folder.path() / entry.path().filename(), fs::copy_options::recursive);
    }
    const auto before = FindModelShape(folder.path().string());
    ASSERT_TRUE(before.ok()) << before.error().message;
    const auto opened = files::OpenModel(folder.path());
    ASSERT_TRUE(opened.ok());
    nlohmann::json index = {{"metadata", nlohmann::json::object()}};
    for (const std::string& known : opened->weights()->names()) {
      index["weight_map"][known] = "known.safetensors";
    }
    fs::rename(folder.path() / "model.safetensors", folder.path() / "known.safetensors");
    const int64_t rows = before->vocab_size;
    const int64_t cols = before->hidden_size;
    index["weight_map"][name] = "extra.safetensors";
    folder.Write("extra.safetensors", FileOf(name, rows, cols));
    folder.Write("model.safetensors.index.json", index.dump());
    const auto shape = FindModelShape(folder.path().string());
    ASSERT_TRUE(shape.ok()) << shape.error().message;
    EXPECT_EQ(shape->stored->part_bytes, before->stored->part_bytes);
    EXPECT_EQ(shape->stored->bytes, before->stored->bytes + 4 * rows * cols);
  }
}

// Packed words are no values: speeds are of the format that they hold.
TEST(PlanFilesTest, QuantizedFoldersHaveTheFormatOfTheirConfiguration) {
  KVASIR_SHARED_OR_SKIP(root, "models");
  const auto shape = FindModelShape((root / "quantized/llama-awq-g128").string());
  ASSERT_TRUE(shape.ok()) << shape.error().message;
  EXPECT_EQ(shape->shipped[static_cast<size_t>(Part::kAttention)].name, "int4-g128");
  EXPECT_NE(shape->shipped[static_cast<size_t>(Part::kEmbedding)].name, "int4-g128");
}

// The config alone gives the same shape as the whole folder.
TEST(PlanFilesTest, AConfigAloneWillDo) {
  KVASIR_SHARED_OR_SKIP(root, "models");
  for (const char* name : {"llama", "qwen2", "gemma3", "gpt2", "phi3", "qwen3-moe", "gpt-oss",
                           "deepseek-v32", "qwen3-next", "llama4", "cohere2"}) {
    SCOPED_TRACE(name);
    const auto whole = FindModelShape((root / name).string());
    const auto alone = FindModelShape((root / name / "config.json").string());
    ASSERT_TRUE(whole.ok() && alone.ok());
    EXPECT_EQ(alone->name, name);
    EXPECT_EQ(alone->ParametersCount(), whole->ParametersCount());
    EXPECT_EQ(alone->layers, whole->layers);
    EXPECT_EQ(alone->kv_format.name, whole->kv_format.name);
    for (size_t part = 0; part < kPartCount; ++part) {
      EXPECT_EQ(PartBytes(*alone, static_cast<Part>(part), alone->shipped),
                PartBytes(*whole, static_cast<Part>(part), alone->shipped))
          << PartName(static_cast<Part>(part));
    }
  }
}

}  // namespace
}  // namespace kvasir::plan
