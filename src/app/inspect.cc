// kvasir inspect MODEL: what a model's files hold, without loading the weights. Ends as serve would
// where a part cannot be read.
#include "files/inspect.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "app/commands.h"
#include "app/exit_codes.h"
#include "app/loaded_engine.h"
#include "app/model_path.h"
#include "app/read_file.h"
#include "app/units.h"
#include "base/strings.h"
#include "files/model_files.h"
#include "files/printable.h"
#include "model/blueprint.h"
#include "model/config_reader.h"
#include "runner/kv_plan.h"
#include "text/tokenizer.h"

namespace kvasir::app {
namespace {

struct InspectFlags {
  std::string model;
  bool json = false;
  bool tensors = false;
};

// What can be told of a model. A part that cannot be read says why instead.
struct Facts {
  files::ModelSummary summary;
  std::optional<model::ModelSpec> spec;
  std::string spec_error;
  DType kv_dtype = DType::kF16;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::string tokenizer_error;
  bool chat_template = false;
  std::optional<Error> error;  ///< the first part that cannot be read
};

Facts Collect(const files::ModelFiles& files) {
  Facts facts;
  facts.summary = files::Summarize(files);
  model::ConfigReader reader(files, 0);
  auto blueprint = model::MakeBlueprint(reader);
  if (blueprint.ok()) {
    facts.spec = std::move(blueprint->spec);
    facts.kv_dtype = runner::ChooseKvDType("auto", *files.weights()).value();
  } else {
    facts.spec_error = blueprint.error().message;
    facts.error = blueprint.error();
  }
  auto tokenizer = text::Tokenizer::FromModelFiles(files);
  if (tokenizer.ok()) {
    facts.tokenizer = std::move(tokenizer).value();
  } else {
    facts.tokenizer_error = tokenizer.error().message;
    if (!facts.error) facts.error = tokenizer.error();
  }
  facts.chat_template = files.chat_template.has_value();
  if (facts.tokenizer && facts.chat_template) {
    const auto made = MakeChatTemplate(files, *facts.tokenizer, "", "auto");
    if (!made.ok() && !facts.error) facts.error = made.error();
  }
  return facts;
}

nlohmann::ordered_json ToJson(const Facts& facts, bool tensors) {
  using Json = nlohmann::ordered_json;
  Json out;
  out["architecture"] = facts.summary.architecture;
  out["parameters_count"] = facts.summary.parameters_count;
  out["weights_bytes"] = facts.summary.bytes;
  Json& formats = out["formats"] = Json::object();
  for (const files::FormatSummary& format : facts.summary.formats) {
    formats[std::string(Info(format.dtype).name)] = {{"tensors_count", format.tensors_count},
                                                     {"values_count", format.values_count},
                                                     {"bytes", format.bytes}};
  }
  if (facts.spec) {
    const model::ModelSpec& spec = *facts.spec;
    out["layers_count"] = spec.layers.size();
    out["hidden_size"] = spec.hidden_size;
    out["vocab_size"] = spec.vocab_size;
    out["max_positions"] = spec.max_positions;
    out["kv_cache_dtype"] = Info(facts.kv_dtype).name;
    out["kv_bytes_per_token"] = spec.KvBytesPerToken(facts.kv_dtype);
    Json& groups = out["cache_groups"] = Json::array();
    for (const model::CacheGroup& group : spec.cache_groups) {
      groups.push_back(
          {{"layers_count", group.layers.size()}, {"window_tokens", group.mask.window_tokens}});
    }
  } else {
    out["unsupported"] = facts.spec_error;
  }
  if (facts.tokenizer) {
    out["tokenizer"] = {{"kind", facts.tokenizer->kind()},
                        {"vocab_size", facts.tokenizer->vocab_size()},
                        {"adds_bos", facts.tokenizer->adds_bos()}};
  } else {
    out["tokenizer"] = {{"error", facts.tokenizer_error}};
  }
  out["chat_template"] = facts.chat_template;
  if (tensors) {
    Json& list = out["tensors"] = Json::array();
    for (const files::TensorSummary& tensor : facts.summary.tensors) {
      list.push_back({{"name", tensor.name},
                      {"dtype", Info(tensor.dtype).name},
                      {"shape", tensor.shape},
                      {"bytes", tensor.bytes}});
    }
  }
  return out;
}

void PrintRow(const char* name, const std::string& value) {
  std::printf("%-18s %s\n", name, value.c_str());
}

void PrintTable(const Facts& facts, bool tensors) {
  PrintRow("architecture", files::Printable(facts.summary.architecture));
  PrintRow("parameters", CountText(facts.summary.parameters_count));
  PrintRow("weights", FormatBytes(facts.summary.bytes));
  for (const files::FormatSummary& format : facts.summary.formats) {
    PrintRow(fmt::format("  {}", Info(format.dtype).name).c_str(),
             fmt::format("{} in {} tensors", FormatBytes(format.bytes), format.tensors_count));
  }
  if (facts.spec) {
    const model::ModelSpec& spec = *facts.spec;
    PrintRow("layers", fmt::format("{} of width {}", spec.layers.size(), spec.hidden_size));
    PrintRow("vocabulary", CountText(spec.vocab_size) + " tokens");
    PrintRow("context", CountText(spec.max_positions) + " tokens");
    PrintRow("KV cache",
             fmt::format("{} bytes a token ({})", CountText(spec.KvBytesPerToken(facts.kv_dtype)),
                         Info(facts.kv_dtype).name));
    for (const model::CacheGroup& group : spec.cache_groups) {
      if (group.mask.window_tokens == 0) continue;
      PrintRow("", fmt::format("{} layers see {} tokens back", group.layers.size(),
                               group.mask.window_tokens));
    }
  } else {
    PrintRow("cannot be served", facts.spec_error);
  }
  if (facts.tokenizer) {
    PrintRow("tokenizer", fmt::format("{}, {} tokens{}", facts.tokenizer->kind(),
                                      CountText(facts.tokenizer->vocab_size()),
                                      facts.tokenizer->adds_bos() ? ", adds BOS" : ""));
  } else {
    PrintRow("tokenizer", facts.tokenizer_error);
  }
  PrintRow("chat template", facts.chat_template ? "yes" : "none (give one with --chat-template)");
  if (!tensors) return;
  std::printf("\n");
  for (const files::TensorSummary& tensor : facts.summary.tensors) {
    std::printf("%-52s %-6s %-20s %s\n", files::Printable(tensor.name).c_str(),
                std::string(Info(tensor.dtype).name).c_str(), ToString(tensor.shape).c_str(),
                FormatBytes(tensor.bytes).c_str());
  }
}

int RunInspect(const InspectFlags& flags) {
  auto path = ResolveModel(flags.model);
  if (!path.ok()) return Fail(path.error(), kExitModel);
  auto files = files::OpenModel(*path);
  if (!files.ok()) return Fail(files.error(), kExitModel);
  const Facts facts = Collect(*files);
  if (flags.json) {
    // Names in a GGUF need not be UTF-8.
    constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
    std::printf("%s\n", ToJson(facts, flags.tensors).dump(2, ' ', false, kReplace).c_str());
  } else {
    PrintTable(facts, flags.tensors);
  }
  return facts.error ? Fail(*facts.error, kExitModel) : kExitOk;
}

}  // namespace

void AddInspect(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* command = app.add_subcommand("inspect", "Show what a model's files hold");
  command->add_option("model", flags->model, "Model folder, .gguf, or 'default'")->required();
  command->add_flag("--json", flags->json, "Print JSON");
  command->add_flag("--tensors", flags->tensors, "List every tensor");
  command->callback([flags, &exit_code] { exit_code = RunInspect(*flags); });
}

}  // namespace kvasir::app
