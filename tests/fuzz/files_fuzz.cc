// Model files: safetensors, GGUF, and the small files of a Hugging Face folder.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "files/inspect.h"
#include "files/json.h"
#include "files/model_files.h"
#include "files/safetensors.h"
#include "fuzz/target.h"
#include "kernels/backend.h"
#include "model/blueprint.h"
#include "model/config_reader.h"
#include "model/model.h"
#include "runner/kv_plan.h"
#include "support/data.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace kvasir::fuzz {
namespace {

namespace fs = std::filesystem;

// Reads everything that the views promise.
void Touch(const files::Weights& weights) {
  uint8_t sum = 0;
  for (const std::string& name : weights.names()) {
    const TensorView* view = weights.Find(name);
    KVASIR_CHECK(view != nullptr);
    KVASIR_CHECK(view->bytes == view->rows() * RowBytes(view->dtype, view->cols()));
    for (int64_t i = 0; i < view->bytes; ++i) {
      sum = static_cast<uint8_t>(sum ^ static_cast<uint8_t>(view->data[i]));
    }
  }
  volatile uint8_t sink = sum;
  static_cast<void>(sink);
}

kernels::Backend& Reference() {
  static ThreadPool pool(1);
  static const std::unique_ptr<kernels::Backend> backend =
      kernels::MakeBackend("ref", pool).value();
  return *backend;
}

// From config to packed weights, as far as `opened` leads.
void LoadModel(const files::ModelFiles& opened) {
  model::ConfigReader reader(opened, 0);
  const auto blueprint = model::MakeBlueprint(reader);
  if (!blueprint.ok()) return ExpectOneLine(blueprint.error());
  const DType kv_dtype = runner::ChooseKvDType("auto", *opened.weights()).value();
  KVASIR_CHECK(runner::MakeCacheSpec(blueprint->spec, kv_dtype, 16).block_bytes > 0);
  const auto model = model::Model::Load(opened, Reference());
  if (!model.ok()) ExpectOneLine(model.error());
}

void LoadText(const files::ModelFiles& opened) {
  const auto tokenizer = text::Tokenizer::FromModelFiles(opened);
  if (tokenizer.ok()) {
    const std::vector<int32_t> ids = (*tokenizer)->Encode(" Hello <s>w\xC3\xB6rld\n\xFF 123");
    ExpectUtf8((*tokenizer)->Decode(ids, false));
  } else {
    ExpectOneLine(tokenizer.error());
  }
  if (opened.chat_template) {
    const auto made = text::ChatTemplate::Create({.source = *opened.chat_template});
    if (!made.ok()) ExpectOneLine(made.error());
  }
}

KVASIR_FUZZ_TARGET(safetensors) {
  const MemoryFile file(input);
  const auto opened = files::OpenSafetensors(file.path());
  if (!opened.ok()) return ExpectOneLine(opened.error());
  Touch(**opened);
}

KVASIR_FUZZ_TARGET(gguf) {
  const MemoryFile file(input);
  auto opened = files::OpenGguf(file.path());
  if (!opened.ok()) return ExpectOneLine(opened.error());
  Touch(*opened->weights);
  files::ModelFiles model;
  model.kind = files::ModelFiles::Kind::kGguf;
  model.path = file.path();
  model.gguf = std::move(opened).value();
  if (const auto text = model.gguf->metadata.String("tokenizer.chat_template")) {
    model.chat_template = std::string(*text);
  }
  KVASIR_CHECK(files::Summarize(model).bytes >= 0);
  LoadModel(model);
  LoadText(model);
}

// Tiny models by the name of their architecture: what a config may be the config of.
const std::map<std::string, files::ModelFiles>& TinyModels() {
  static const std::map<std::string, files::ModelFiles> models = [] {
    std::map<std::string, files::ModelFiles> found;
    for (const auto& entry : fs::directory_iterator(test::DataPath("models"))) {
      if (!fs::exists(entry.path() / "config.json")) continue;
      files::ModelFiles files = files::OpenModel(entry.path()).value();
      found.emplace(files::ArchitectureOf(files), std::move(files));
    }
    return found;
  }();
  return models;
}

KVASIR_FUZZ_TARGET(config) {
  auto parsed = files::ParseJson(input, "config.json");
  if (!parsed.ok()) return ExpectOneLine(parsed.error());
  // The weights are those of the tiny model of that architecture, so that shapes are compared.
  files::ModelFiles model;
  model.path = "model";
  model.config = std::move(parsed).value();
  const auto tiny = TinyModels().find(files::ArchitectureOf(model));
  const files::ModelFiles& like =
      tiny == TinyModels().end() ? TinyModels().begin()->second : tiny->second;
  model.safetensors = files::OpenSafetensors(like.path).value();
  LoadModel(model);
}

// The sections of `input` are files: "=== config.json" on a line, then its text.
KVASIR_FUZZ_TARGET(model_folder) {
  static const std::vector<std::string> kNames = {"config.json",
                                                  "generation_config.json",
                                                  "tokenizer_config.json",
                                                  "tokenizer.json",
                                                  "chat_template.jinja",
                                                  "chat_template.json",
                                                  "model.safetensors.index.json"};
  static const fs::path& folder = *[] {  // outlives the handler that removes it
    std::string pattern = (fs::temp_directory_path() / "kvasir-fuzz-XXXXXX").string();
    KVASIR_CHECK(mkdtemp(pattern.data()) != nullptr);
    fs::create_directory(pattern + "/model");
    for (const char* shard :
         {"model-00001-of-00005.safetensors", "model-00002-of-00005.safetensors"}) {
      fs::copy(test::DataPath("models/llama-f16-sharded") / shard, fs::path(pattern) / "model");
    }
    std::atexit([] { fs::remove_all(folder.parent_path()); });
    return new fs::path(fs::path(pattern) / "model");
  }();
  constexpr std::string_view kMark = "=== ";
  for (const std::string& name : kNames) fs::remove(folder / name);
  std::string_view rest = input;
  while (!rest.empty()) {
    const std::string_view line = TakeUntil('\n', rest);
    if (!line.starts_with(kMark)) continue;
    const auto name = std::find(kNames.begin(), kNames.end(), line.substr(kMark.size()));
    const size_t next = rest.find("\n=== ");
    const std::string_view text = rest.substr(0, next);
    rest = next == std::string_view::npos ? std::string_view() : rest.substr(next + 1);
    if (name == kNames.end()) continue;
    std::ofstream(folder / *name, std::ios::binary) << text;
  }
  for (const bool need_weights : {false, true}) {
    const auto opened = files::OpenModel(folder, {.need_weights = need_weights});
    if (!opened.ok()) {
      ExpectOneLine(opened.error());
      continue;
    }
    LoadText(*opened);
    if (need_weights) LoadModel(*opened);
  }
}

}  // namespace
}  // namespace kvasir::fuzz
