#include "files/model_files.h"

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>
#include <vector>

#include "base/log.h"
#include "files/chat_templates.h"
#include "files/json.h"
#include "files/mapped_file.h"
#include "files/printable.h"
#include "files/safetensors.h"

namespace kvasir::files {
namespace {

namespace fs = std::filesystem;

// Real configs stay below 2 MB; parsed, a file takes up to 30 times its size. The largest
// tokenizer.json in use has 35 MB.
constexpr int64_t kMaxConfigBytes = 16'000'000;
constexpr int64_t kMaxTokenizerBytes = 1'000'000'000;
// Names shown of what a folder holds instead.
constexpr size_t kMaxNamesShown = 5;

constexpr std::string_view kPickleAdvice =
    "a PyTorch pickle, which can run any code when it is opened: convert it to safetensors, or get "
    "the model in that format";

bool IsPickleName(const fs::path& path) {
  static constexpr std::array<std::string_view, 6> kEndings = {".bin",  ".pt",  ".pth",
                                                               ".ckpt", ".pkl", ".pickle"};
  return std::find(kEndings.begin(), kEndings.end(), path.extension().native()) != kEndings.end();
}

// What lies in a folder, by kind.
struct Listing {
  std::vector<fs::path> names;  ///< all, sorted
  bool has_safetensors = false;
  std::vector<fs::path> ggufs;  ///< of a split one, the first part
  std::vector<fs::path> pickles;
};

Result<Listing> List(const fs::path& folder) {
  Listing listing;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    listing.names.push_back(it->path().filename());
  }
  if (error) {
    return MakeError(ErrorCode::kIo, "{}: cannot list the folder: {}", PrintablePath(folder),
                     error.message());
  }
  std::sort(listing.names.begin(), listing.names.end());
  for (const fs::path& name : listing.names) {
    if (name.extension() == ".safetensors" || name == "model.safetensors.index.json") {
      listing.has_safetensors = true;
    } else if (name.extension() == ".gguf") {
      const auto part = ParseGgufPartName(name.native());
      if (!part.has_value() || part->number == 0) listing.ggufs.push_back(name);
    } else if (IsPickleName(name)) {
      listing.pickles.push_back(name);
    }
  }
  return listing;
}

std::string JoinNames(const std::vector<fs::path>& names) {
  std::string joined;
  for (size_t i = 0; i < std::min(names.size(), kMaxNamesShown); ++i) {
    joined += (i == 0 ? "" : ", ") + Printable(names[i].native(), 60);
  }
  if (names.size() > kMaxNamesShown) {
    joined += fmt::format(" and {} more", names.size() - kMaxNamesShown);
  }
  return joined;
}

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string NameOf(const fs::path& path) {
  fs::path last = path.lexically_normal();
  if (!last.has_filename()) last = last.parent_path();  // "folder/"
  if (last.filename() == "." || last.filename() == "..") {
    std::error_code error;
    const fs::path real = fs::canonical(path, error);
    if (!error) last = real;
  }
  std::string name = last.filename().native();
  if (last.extension() != ".gguf") return name;  // "Qwen2.5-0.5B" has no extension to take off
  if (const auto part = ParseGgufPartName(name)) return std::string(part->prefix);
  return last.stem().native();
}

// Null where the file is absent.
Result<nlohmann::json> ReadJsonObject(const fs::path& path) {
  if (!Exists(path)) return nlohmann::json();
  KVASIR_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxConfigBytes));
  KVASIR_ASSIGN_OR_RETURN(nlohmann::json value, ParseJson(text, path.native()));
  if (!value.is_object()) {
    return MakeError(ErrorCode::kDataLoss, "{}: expected a JSON object, came {}",
                     PrintablePath(path), value.type_name());
  }
  return value;
}

Result<ModelFiles> OpenGgufModel(const fs::path& given, const fs::path& file,
                                 const OpenOptions& options) {
  ModelFiles model;
  model.kind = ModelFiles::Kind::kGguf;
  model.path = given;
  model.name = Printable(NameOf(given));
  KVASIR_ASSIGN_OR_RETURN(model.gguf, OpenGguf(file));
  if (options.need_weights && model.gguf->weights->names().empty()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "{}: expected a model, this GGUF holds no tensors (a vocabulary alone)",
                     PrintablePath(file));
  }
  const ChatTemplates templates = ReadGgufChatTemplates(model.gguf->metadata);
  model.chat_template = templates.main;
  model.tool_use_template = templates.tool_use;
  return model;
}

Error NoWeights(const fs::path& folder, const Listing& listing) {
  const std::string what = PrintablePath(folder);
  if (listing.names.empty()) {
    return MakeError(
        ErrorCode::kNotFound,
        "{}: expected a model's files (config.json and *.safetensors, or one .gguf), the "
        "folder is empty",
        what);
  }
  if (!listing.pickles.empty()) {
    return MakeError(ErrorCode::kUnsupported, "{}: expected *.safetensors, found only {}: {}", what,
                     JoinNames(listing.pickles), kPickleAdvice);
  }
  return MakeError(
      ErrorCode::kNotFound,
      "{}: expected a model's files (config.json and *.safetensors, or one .gguf), found "
      "{}",
      what, JoinNames(listing.names));
}

Result<ModelFiles> OpenHuggingFace(const fs::path& folder, const Listing& listing,
                                   const OpenOptions& options) {
  ModelFiles model;
  model.path = folder;
  model.name = Printable(NameOf(folder));
  if (options.need_weights && !Exists(folder / "config.json")) {
    return MakeError(ErrorCode::kNotFound, "{}: expected config.json beside the weights, found {}",
                     PrintablePath(folder), JoinNames(listing.names));
  }
  KVASIR_ASSIGN_OR_RETURN(model.config, ReadJsonObject(folder / "config.json"));
  if (model.config.contains("auto_map")) {
    LogWarning("{}: ignoring auto_map: a model's own code is never run",
               PrintablePath(folder / "config.json"));
  }
  KVASIR_ASSIGN_OR_RETURN(model.generation_config,
                          ReadJsonObject(folder / "generation_config.json"));
  KVASIR_ASSIGN_OR_RETURN(model.tokenizer_config, ReadJsonObject(folder / "tokenizer_config.json"));
  if (Exists(folder / "tokenizer.json")) {
    KVASIR_ASSIGN_OR_RETURN(model.tokenizer_json,
                            ReadTextFile(folder / "tokenizer.json", kMaxTokenizerBytes));
  }
  KVASIR_ASSIGN_OR_RETURN(ChatTemplates templates,
                          ReadFolderChatTemplates(folder, model.tokenizer_config));
  model.chat_template = std::move(templates.main);
  model.tool_use_template = std::move(templates.tool_use);
  if (options.need_weights) {
    KVASIR_ASSIGN_OR_RETURN(model.safetensors, OpenSafetensors(folder));
  }
  return model;
}

Result<ModelFiles> OpenFolder(const fs::path& folder, const OpenOptions& options) {
  KVASIR_ASSIGN_OR_RETURN(const Listing listing, List(folder));
  if (listing.has_safetensors) {
    if (!listing.pickles.empty()) {
      LogInfo("{}: reading the safetensors, leaving {}", PrintablePath(folder),
              JoinNames(listing.pickles));
    }
    return OpenHuggingFace(folder, listing, options);
  }
  if (listing.ggufs.size() == 1) return OpenGgufModel(folder, folder / listing.ggufs[0], options);
  if (listing.ggufs.size() > 1) {
    return MakeError(ErrorCode::kInvalidArgument, "{}: expected one .gguf, found {} ({}): name one",
                     PrintablePath(folder), listing.ggufs.size(), JoinNames(listing.ggufs));
  }
  const bool has_texts = Exists(folder / "tokenizer.json") || Exists(folder / "config.json") ||
                         Exists(folder / "tokenizer_config.json");
  if (options.need_weights || !has_texts) return NoWeights(folder, listing);
  return OpenHuggingFace(folder, listing, options);
}

Result<ModelFiles> OpenFile(const fs::path& path, const OpenOptions& options) {
  const std::string what = PrintablePath(path);
  if (path.extension() == ".gguf") return OpenGgufModel(path, path, options);
  if (path.extension() == ".safetensors") {
    return MakeError(ErrorCode::kInvalidArgument,
                     "{}: expected the folder that holds config.json and the weights, came one of "
                     "its files: give {}",
                     what,
                     PrintablePath(path.has_parent_path() ? path.parent_path() : fs::path(".")));
  }
  if (IsPickleName(path)) {
    return MakeError(ErrorCode::kUnsupported, "{}: expected a folder or a .gguf, this is {}", what,
                     kPickleAdvice);
  }
  KVASIR_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (file.text().starts_with("GGUF")) return OpenGgufModel(path, path, options);
  if (file.text().empty()) {
    return MakeError(ErrorCode::kDataLoss,
                     "{}: expected a folder or a GGUF file, the file is empty", what);
  }
  return MakeError(ErrorCode::kUnsupported,
                   "{}: expected a folder of Hugging Face files or a GGUF file, this file begins "
                   "with '{}'",
                   what, Printable(file.text().substr(0, 4)));
}

}  // namespace

Result<ModelFiles> OpenModel(const fs::path& path, const OpenOptions& options) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    return MakeError(ErrorCode::kNotFound,
                     "{}: expected a folder of Hugging Face files or a .gguf, nothing is there",
                     PrintablePath(path));
  }
  if (error) {
    return MakeError(ErrorCode::kIo, "{}: cannot look at it: {}", PrintablePath(path),
                     error.message());
  }
  return fs::is_directory(status) ? OpenFolder(path, options) : OpenFile(path, options);
}

}  // namespace kvasir::files
