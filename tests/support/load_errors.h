// What loading a tiny model says after a change to its files.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/thread_pool.h"
#include "files/model_files.h"
#include "kernels/backend.h"
#include "model/model.h"
#include "support/data.h"

namespace kvasir::test {

/// The error of loading tiny `name` after `change` to its files; empty where it loads.
inline std::string LoadError(const std::string& name,
                             const std::function<void(files::ModelFiles&)>& change) {
  auto files = files::OpenModel(test::DataPath("models/" + name));
  if (!files.ok()) return "open: " + files.error().message;
  change(*files);
  ThreadPool pool(1);
  auto backend = kernels::MakeBackend("ref", pool);
  if (!backend.ok()) return "backend: " + backend.error().message;
  auto model = model::Model::Load(*files, **backend);
  return model.ok() ? std::string() : model.error().message;
}

/// As LoadError, for one key of config.json.
inline std::string ConfigError(const std::string& name, const std::string& key,
                               const nlohmann::json& value) {
  return LoadError(name, [&](files::ModelFiles& files) { files.config[key] = value; });
}

}  // namespace kvasir::test
