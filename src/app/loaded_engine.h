// A model, loaded and running: files, weights, tokenizer, template and engine, built in order.
#pragma once

#include <memory>
#include <string>

#include "app/engine_flags.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "contract/runner.h"
#include "engine/engine.h"
#include "files/model_files.h"
#include "kernels/backend.h"
#include "model/model.h"
#include "runner/kv_plan.h"
#include "tensor/dtype.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace kvasir::app {

/// A model with a runner and sizes that fit this machine, and no engine yet. Destroyed in reverse
/// order: the runner before what it uses.
struct LoadedModel {
  std::unique_ptr<files::ModelFiles> files;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<model::Model> model;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::ChatTemplate> chat_template;  ///< null: the model has none that works
  std::string chat_template_error;                    ///< why the one it has does not
  runner::KvPlan kv_plan;
  DType kv_dtype = DType::kF16;
  engine::EngineConfig config;
  std::unique_ptr<Runner> runner;  ///< null once an engine has it
};

struct LoadedEngine : LoadedModel {
  std::unique_ptr<engine::Engine> engine;
};

/// Loads what `flags` name, and logs what it does with progress.
[[nodiscard]] Result<LoadedModel> LoadModel(const EngineFlags& flags);
/// Starts an engine on it. `observer` may be null, and must outlive the engine.
[[nodiscard]] LoadedEngine StartEngine(LoadedModel model, engine::RequestObserver* observer);
/// Both.
[[nodiscard]] Result<LoadedEngine> LoadEngine(const EngineFlags& flags);

/// The chat template of `files`, or of the file `override_path` where one is given; null where
/// there is neither.
[[nodiscard]] Result<std::unique_ptr<text::ChatTemplate>> MakeChatTemplate(
    const files::ModelFiles& files, const text::Tokenizer& tokenizer,
    const std::string& override_path, const std::string& content_format);

}  // namespace kvasir::app
