// From what a user names to a shape: a catalogue name, a config.json, a folder, a GGUF.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/check.h"
#include "base/strings.h"
#include "files/json.h"
#include "files/mapped_file.h"
#include "files/model_files.h"
#include "files/printable.h"
#include "model/blueprint.h"
#include "plan/catalogue.h"
#include "plan/json_fields.h"
#include "plan/model_readers.h"
#include "plan/model_shape.h"
#include "plan/nearest.h"
#include "plan/shipped_formats.h"
#include "plan/stored_weights.h"

namespace kvasir::plan {
namespace {

namespace fs = std::filesystem;

// Of a config that stands alone.
class NoWeights final : public files::Weights {
 public:
  [[nodiscard]] const std::vector<std::string>& names() const override { return names_; }
  [[nodiscard]] const TensorView* Find(std::string_view) const override { return nullptr; }
  [[nodiscard]] std::string FileOf(std::string_view) const override { return {}; }
  void Release(std::span<const std::byte>) const override {}

 private:
  std::vector<std::string> names_;
};

// The blueprint is kept in `loadable` where the server runs the family.
Result<ModelShape> ShapeOfFiles(const files::ModelFiles& files,
                                std::optional<model::Blueprint>* loadable) {
  model::ConfigReader reader(files, 0);
  if (reader.architecture().empty()) {
    KVASIR_RETURN_IF_ERROR(reader.status());
    return MakeParamError(ErrorCode::kDataLoss, "architectures",
                          "{}: architectures: expected a list with the model's architecture, but "
                          "the key is missing",
                          reader.source());
  }
  if (IsExpertsFamily(reader)) return ReadExpertsShape(reader);
  auto made = model::MakeBlueprint(reader);
  if (!made.ok()) {
    Error error = std::move(made).error();
    if (error.code == ErrorCode::kUnsupported && error.param == "architectures") {
      error.message += fmt::format("; for plans alone: {}", ExpertsFamilyNames(reader.is_gguf()));
    }
    return error;
  }
  model::Blueprint blueprint = *std::move(made);
  ModelShape shape = ShapeOfBlueprint(blueprint, reader.weights());
  if (loadable != nullptr) *loadable = std::move(blueprint);
  return shape;
}

Result<ModelShape> ShapeOfConfig(nlohmann::json config, const fs::path& path,
                                 const std::string& what) {
  if (!config.is_object()) {
    return MakeError(ErrorCode::kDataLoss, "{}: expected a JSON object, got {}", what,
                     config.type_name());
  }
  files::ModelFiles files;
  files.path = path;
  files.config = std::move(config);
  // Read below; the server, which cannot run such files, would refuse it.
  const nlohmann::json whole = files.config;
  files.config.erase("quantization_config");
  if (const auto text = files.config.find("text_config");
      text != files.config.end() && text->is_object()) {
    text->erase("quantization_config");
  }
  files.safetensors = std::make_unique<NoWeights>();
  KVASIR_ASSIGN_OR_RETURN(ModelShape shape, ShapeOfFiles(files, nullptr));
  KVASIR_RETURN_IF_ERROR(ReadShippedFormats(whole, what, shape));
  return shape;
}

Result<ModelShape> ShapeOfConfigFile(const fs::path& path) {
  constexpr int64_t kMostBytes = 64'000'000;
  KVASIR_ASSIGN_OR_RETURN(const std::string text, files::ReadTextFile(path, kMostBytes));
  KVASIR_ASSIGN_OR_RETURN(nlohmann::json config, files::ParseJson(text, path.string()));
  KVASIR_ASSIGN_OR_RETURN(ModelShape shape,
                          ShapeOfConfig(std::move(config), path.parent_path(), path.string()));
  shape.name = files::Printable(fs::absolute(path).parent_path().filename().string());
  shape.source = files::PrintablePath(path);
  return shape;
}

Result<ModelShape> ShapeOfPath(const fs::path& path) {
  if (path.extension() == ".json") return ShapeOfConfigFile(path);
  auto opened = files::OpenModel(path);
  if (!opened.ok()) {
    // A folder with a config.json alone will do.
    std::error_code ignored;
    if (opened.error().code != ErrorCode::kNotFound || !fs::exists(path / "config.json", ignored)) {
      return std::move(opened).error();
    }
    return ShapeOfConfigFile(path / "config.json");
  }
  ModelShape shape;
  std::optional<model::Blueprint> blueprint;
  // Packed words and scales, which are no values.
  const bool quantized =
      opened->kind == files::ModelFiles::Kind::kHuggingFace && IsQuantized(opened->config);
  if (quantized) {
    KVASIR_ASSIGN_OR_RETURN(shape,
                            ShapeOfConfig(opened->config, path, (path / "config.json").string()));
  } else {
    KVASIR_ASSIGN_OR_RETURN(shape, ShapeOfFiles(*opened, &blueprint));
  }
  KVASIR_RETURN_IF_ERROR(
      ReadStoredWeights(*opened, blueprint ? &*blueprint : nullptr, quantized, path, shape));
  shape.name = opened->name;
  shape.source = files::PrintablePath(path);
  return shape;
}

struct Entry {
  ModelListing listing;
  nlohmann::json config;
};

Result<Entry> ReadEntry(const EmbeddedFile& file) {
  const std::string what(file.name);
  KVASIR_ASSIGN_OR_RETURN(const nlohmann::json json, files::ParseJson(file.text, what));
  JsonFields fields(json, what);
  Entry entry;
  entry.listing.name = what;
  entry.listing.title = fields.RequiredString("title");
  entry.listing.source = fields.RequiredString("source");
  const nlohmann::json* config = fields.Object("config");
  if (config == nullptr) fields.Fail("config", "expected an object, but the field is missing");
  KVASIR_RETURN_IF_ERROR(fields.Finish());
  entry.config = *config;
  return entry;
}

const EmbeddedFile* FindEntry(std::string_view name) {
  const auto found = std::ranges::find(kModelFiles, name, &EmbeddedFile::name);
  return found == kModelFiles.end() ? nullptr : &*found;
}

Result<ModelShape> ShapeOfEntry(const EmbeddedFile& file) {
  KVASIR_ASSIGN_OR_RETURN(Entry entry, ReadEntry(file));
  const std::string name(file.name);
  KVASIR_ASSIGN_OR_RETURN(ModelShape shape, ShapeOfConfig(std::move(entry.config), name, name));
  shape.name = name;
  shape.source = entry.listing.source;
  return shape;
}

}  // namespace

const std::vector<ModelListing>& ModelCatalogue() {
  static const std::vector<ModelListing> catalogue = [] {
    std::vector<ModelListing> all;
    for (const EmbeddedFile& file : kModelFiles) {
      auto entry = ReadEntry(file);
      KVASIR_CHECK(entry.ok(), "{}", entry.error().message);
      all.push_back(std::move(entry->listing));
    }
    return all;
  }();
  return catalogue;
}

Result<ModelShape> FindModelShape(std::string_view model) {
  if (const EmbeddedFile* file = FindEntry(model); file != nullptr) return ShapeOfEntry(*file);
  const fs::path path(model);
  std::error_code ignored;
  if (fs::exists(path, ignored)) return ShapeOfPath(path);
  // As others write it, where no file has that name.
  if (const EmbeddedFile* file = FindEntry(LowerCase(model)); file != nullptr) {
    return ShapeOfEntry(*file);
  }
  std::vector<std::string> names;
  names.reserve(std::size(kModelFiles));
  for (const EmbeddedFile& file : kModelFiles) names.emplace_back(file.name);
  return UnknownName("model", model, names,
                     "a model folder, a .gguf, a config.json or a name of the catalogue");
}

}  // namespace kvasir::plan
