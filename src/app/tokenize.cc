// kvasir tokenize MODEL "text": ids and pieces.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "app/commands.h"
#include "app/exit_codes.h"
#include "app/model_path.h"
#include "app/read_file.h"
#include "files/model_files.h"
#include "text/tokenizer.h"

namespace kvasir::app {
namespace {

struct TokenizeFlags {
  std::string model;
  std::string text;
  std::string file;
  bool ids_only = false;
  bool no_special = false;
};

// A piece on one line: control characters as escapes.
std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

int RunTokenize(const TokenizeFlags& flags, bool text_given) {
  if (text_given == !flags.file.empty()) {
    std::fprintf(stderr, "kvasir: expected either a text or --file FILE\n");
    return kExitUsage;
  }
  std::string text = flags.text;
  if (!flags.file.empty()) {
    auto read = ReadWholeFile(flags.file);
    if (!read.ok()) return Fail(read.error(), kExitFailed);
    text = std::move(read).value();
  }
  auto path = ResolveModel(flags.model);
  if (!path.ok()) return Fail(path.error(), kExitModel);
  auto files = files::OpenModel(*path, {.need_weights = false});
  if (!files.ok()) return Fail(files.error(), kExitModel);
  auto tokenizer = text::Tokenizer::FromModelFiles(*files);
  if (!tokenizer.ok()) return Fail(tokenizer.error(), kExitModel);
  const text::Tokenizer& tok = **tokenizer;
  const auto ids = tok.Encode(text, {.add_special_tokens = !flags.no_special});
  if (flags.ids_only) {
    std::printf("%s\n", nlohmann::json(ids).dump().c_str());
    return kExitOk;
  }
  for (const int32_t id : ids) {
    std::printf("%8d  %-24s %s\n", id, Quoted(tok.TokenPiece(id)).c_str(),
                Quoted(tok.TokenText(id)).c_str());
  }
  std::printf("%zu tokens, %zu bytes of text, %s\n", ids.size(), text.size(), tok.kind().c_str());
  return kExitOk;
}

}  // namespace

void AddTokenize(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* command = app.add_subcommand("tokenize", "Show the token ids and pieces of a text");
  command->add_option("model", flags->model, "Folder with a tokenizer.json, a .gguf, or 'default'")
      ->required();
  CLI::Option* text = command->add_option("text", flags->text, "Text to tokenize");
  command->add_option("--file", flags->file, "Read the text from FILE instead ('-': stdin)");
  command->add_flag("--ids", flags->ids_only, "Print a JSON array of the ids alone");
  command->add_flag("--no-special", flags->no_special,
                    "Do not add the special tokens (BOS, EOS) that the tokenizer adds");
  command->callback(
      [flags, text, &exit_code] { exit_code = RunTokenize(*flags, text->count() > 0); });
}

}  // namespace kvasir::app
