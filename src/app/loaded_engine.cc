#include "app/loaded_engine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>

#include "app/model_path.h"
#include "app/read_file.h"
#include "app/units.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/log.h"
#include "cache/capacity.h"
#include "files/printable.h"
#include "model/blueprint.h"
#include "model/config_reader.h"
#include "runner/model_runner.h"
#include "runner/step_budget.h"

namespace kvasir::app {
namespace {

// Prints how far the weights are: a moving line on a terminal, a line each quarter elsewhere.
class LoadProgress {
 public:
  void operator()(int64_t bytes_done, int64_t bytes_total) {
    if (bytes_total <= 0 || !LogEnabled(LogLevel::kInfo)) return;
    const int percent = static_cast<int>(100 * bytes_done / bytes_total);
    if (terminal_) {
      if (percent == shown_) return;
      std::fprintf(stderr, "\rpacking weights: %3d %% of %s%s", percent,
                   FormatBytes(bytes_total).c_str(), percent == 100 ? "\n" : "");
      shown_ = percent;
    } else if (percent / 25 > shown_ / 25 && clock_.Now() - began_ > kNsPerSecond) {
      LogInfo("packing weights: {} % of {}", percent, FormatBytes(bytes_total));
      shown_ = percent;
    }
  }

 private:
  SteadyClock clock_;
  TimeNs began_ = clock_.Now();
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  int shown_ = 0;
};

struct Sizes {
  runner::KvPlan kv_plan;
  engine::EngineConfig config;
};

// The longest request up to `length` that `blocks` hold, by binary search: a longer one never takes
// fewer. A multiple of the block size, and at least one block.
int64_t LongestFitting(int64_t length, int64_t block_size, int64_t blocks,
                       const std::function<int64_t(int64_t)>& blocks_for) {
  int64_t low = 1;
  int64_t high = length / block_size;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (blocks_for(middle * block_size) <= blocks) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low * block_size;
}

Result<Sizes> ChooseSizes(const EngineFlags& flags, const LoadedModel& loaded, DType kv_dtype) {
  const model::ModelSpec& spec = loaded.model->spec();
  if (flags.max_model_len > spec.max_positions) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--max-model-len: the model can stand at {} positions, got {}",
                     spec.max_positions, flags.max_model_len);
  }
  int64_t length = flags.max_model_len > 0 ? flags.max_model_len : spec.max_positions;
  int64_t budget = flags.max_num_batched_tokens;
  if (budget == 0) {
    budget = std::max(runner::DefaultStepTokens(runner::ValuesPerToken(spec),
                                                loaded.backend->name(), loaded.pool->size()),
                      flags.max_num_seqs);
    if (!flags.enable_chunked_prefill) budget = std::max(budget, length);
  }

  runner::KvSizing sizing;
  sizing.cache = runner::MakeCacheSpec(spec, kv_dtype, flags.block_size);
  sizing.max_num_seqs = flags.max_num_seqs;
  sizing.available_bytes = AvailableMemoryBytes();
  if (flags.num_kv_blocks > 0) sizing.blocks_count = flags.num_kv_blocks;
  if (!flags.kv_cache_memory.empty()) {
    auto bytes = ParseBytes(flags.kv_cache_memory);
    if (!bytes.ok()) {
      return MakeError(ErrorCode::kInvalidArgument, "--kv-cache-memory-bytes: {}",
                       bytes.error().message);
    }
    sizing.memory_bytes = *bytes;
  }
  const auto blocks_for = [&](int64_t tokens) {
    // Reserved, a request holds all its blocks to its end, also those behind a window.
    if (flags.kv_allocation == "reserved") {
      return cache::BlocksFor(tokens, sizing.cache.block_tokens) *
             static_cast<int64_t>(sizing.cache.groups.size());
    }
    return cache::PeakBlocks(sizing.cache, tokens, flags.enable_chunked_prefill ? 1 : tokens);
  };
  sizing.blocks_per_request = blocks_for(length);
  Sizes sizes;
  KVASIR_ASSIGN_OR_RETURN(sizes.kv_plan, runner::PlanKv(sizing));

  const int64_t blocks = sizes.kv_plan.cache.blocks_count;
  if (blocks < blocks_for(length)) {
    const int64_t fits = LongestFitting(length, flags.block_size, blocks, blocks_for);
    if (flags.max_model_len > 0) {
      const int64_t block_bytes = sizes.kv_plan.cache.block_bytes;
      return MakeError(
          ErrorCode::kInvalidArgument,
          "the KV cache has {} blocks of {} tokens ({}, {} bytes a token), but a request of "
          "--max-model-len {} tokens takes {}: --max-model-len {} fits, and "
          "--kv-cache-memory-bytes {} holds {}",
          blocks, flags.block_size, FormatBytes(blocks * block_bytes),
          sizes.kv_plan.bytes_per_token, length, blocks_for(length), fits,
          blocks_for(length) * block_bytes, length);
    }
    length = fits;
    sizes.kv_plan.requests_count =
        static_cast<double>(blocks) / static_cast<double>(blocks_for(length));
    LogWarning("the KV cache holds {} blocks: requests may be {} tokens long, the model could {}",
               blocks, length, spec.max_positions);
  }

  engine::EngineConfig& config = sizes.config;
  ApplyEngineFlags(flags, config);
  config.cache = sizes.kv_plan.cache;
  config.vocab_size = spec.vocab_size;
  config.max_model_len = length;
  // A running sequence takes at least one token of a step's budget.
  config.max_num_seqs = std::min(flags.max_num_seqs, budget);
  config.max_num_batched_tokens = budget;
  KVASIR_RETURN_IF_ERROR(engine::ValidateEngineConfig(config));
  return sizes;
}

}  // namespace

Result<std::unique_ptr<text::ChatTemplate>> MakeChatTemplate(const files::ModelFiles& files,
                                                             const text::Tokenizer& tokenizer,
                                                             const std::string& override_path,
                                                             const std::string& content_format) {
  text::ChatTemplateConfig config;
  if (!override_path.empty()) {
    KVASIR_ASSIGN_OR_RETURN(config.source, ReadWholeFile(override_path));
  } else if (files.chat_template) {
    config.source = *files.chat_template;
    config.tool_use_source = files.tool_use_template;
  } else {
    return std::unique_ptr<text::ChatTemplate>();
  }
  for (const auto& [name, token] : tokenizer.special_tokens()) {
    if (name == "bos_token") {
      config.bos_token = token;
    } else if (name == "eos_token") {
      config.eos_token = token;
    } else {
      config.other_tokens.emplace(name, token);
    }
  }
  KVASIR_ASSIGN_OR_RETURN(config.content_format, text::ParseContentFormat(content_format));
  auto made = text::ChatTemplate::Create(std::move(config));
  if (!made.ok()) {
    Error error = std::move(made).error();
    error.message = fmt::format(
        "{}: chat template: {}",
        override_path.empty() ? files::PrintablePath(files.path) : override_path, error.message);
    return error;
  }
  return made;
}

Result<LoadedModel> LoadModel(const EngineFlags& flags) {
  const SteadyClock clock;
  const TimeNs began = clock.Now();
  LoadedModel loaded;
  KVASIR_ASSIGN_OR_RETURN(const std::filesystem::path path, ResolveModel(flags.model));
  KVASIR_ASSIGN_OR_RETURN(files::ModelFiles opened, files::OpenModel(path));
  loaded.files = std::make_unique<files::ModelFiles>(std::move(opened));
  loaded.pool =
      std::make_unique<ThreadPool>(flags.threads > 0 ? flags.threads : UsablePhysicalCores());
  KVASIR_ASSIGN_OR_RETURN(loaded.backend, kernels::MakeBackend(flags.kernels, *loaded.pool));
  LogInfo("loading {} with {} kernels on {} threads", files::PrintablePath(path),
          loaded.backend->name(), loaded.pool->size());
  // What is quickly refused is refused before the weights are packed, and a model that cannot run
  // at all before what its folder lacks.
  if (loaded.files->weights() != nullptr) {
    model::ConfigReader reader(*loaded.files, flags.max_model_len);
    KVASIR_RETURN_IF_ERROR(model::MakeBlueprint(reader));
  }
  KVASIR_ASSIGN_OR_RETURN(loaded.tokenizer, text::Tokenizer::FromModelFiles(*loaded.files));
  auto made =
      MakeChatTemplate(*loaded.files, *loaded.tokenizer, flags.chat_template, flags.content_format);
  if (made.ok()) {
    loaded.chat_template = std::move(made).value();
  } else if (!flags.chat_template.empty()) {
    return std::move(made).error();
  } else {
    // Completions do not need it.
    loaded.chat_template_error = std::move(made).error().message;
    LogWarning("chat requests will be refused: {}", loaded.chat_template_error);
  }
  KVASIR_ASSIGN_OR_RETURN(loaded.model, model::Model::Load(*loaded.files, *loaded.backend,
                                                           {.max_model_len = flags.max_model_len,
                                                            .progress = LoadProgress()}));
  KVASIR_ASSIGN_OR_RETURN(loaded.kv_dtype,
                          runner::ChooseKvDType(flags.kv_cache_dtype, *loaded.files->weights()));
  KVASIR_ASSIGN_OR_RETURN(Sizes sizes, ChooseSizes(flags, loaded, loaded.kv_dtype));
  loaded.kv_plan = sizes.kv_plan;
  loaded.config = sizes.config;
  LogInfo("{}: {} in {} layers, weights {} in memory, loaded in {:.2f} s", loaded.files->name,
          files::Printable(loaded.model->spec().architecture), loaded.model->spec().layers.size(),
          FormatBytes(loaded.model->weights_bytes()), ToSeconds(clock.Now() - began));
  LogInfo("{} ({})", runner::Describe(sizes.kv_plan, sizes.config.max_model_len),
          Info(loaded.kv_dtype).name);
  LogInfo("a step computes at most {} tokens of {} sequences", sizes.config.max_num_batched_tokens,
          sizes.config.max_num_seqs);
  KVASIR_ASSIGN_OR_RETURN(
      loaded.runner,
      runner::ModelRunner::Create(*loaded.model, *loaded.pool,
                                  {.cache = sizes.config.cache, .kv_dtype = loaded.kv_dtype}));
  return loaded;
}

LoadedEngine StartEngine(LoadedModel model, engine::RequestObserver* observer) {
  LoadedEngine loaded{std::move(model), nullptr};
  loaded.engine =
      std::make_unique<engine::Engine>(loaded.config, std::move(loaded.runner), observer);
  return loaded;
}

Result<LoadedEngine> LoadEngine(const EngineFlags& flags) {
  KVASIR_ASSIGN_OR_RETURN(LoadedModel model, LoadModel(flags));
  return StartEngine(std::move(model), nullptr);
}

}  // namespace kvasir::app
