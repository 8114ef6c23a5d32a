#include <nlohmann/json.hpp>

#include "text/jinja.h"
#include "text/jinja/analysis.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"
#include "text/jinja/unicode.h"

namespace kvasir::text::jinja {
namespace {

bool IsValidUtf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    if (DecodeAt(text, at) == 0xfffd && at - begin != 3) return false;
  }
  return true;
}

}  // namespace

struct Template::Parsed {
  std::unique_ptr<Tree> tree;
  TemplateFacts facts;
};

Template::Template(std::unique_ptr<Parsed> parsed) : parsed_(std::move(parsed)) {}
Template::~Template() = default;

Result<std::unique_ptr<Template>> Template::Parse(std::string_view source) {
  if (!IsValidUtf8(source)) {
    return MakeError(ErrorCode::kInvalidArgument, "the template is not valid UTF-8");
  }
  auto parsed = std::make_unique<Parsed>();
  KVASIR_ASSIGN_OR_RETURN(parsed->tree, ParseTemplate(source));
  parsed->facts = Analyze(*parsed->tree);
  parsed->facts.mentions_content = source.find("content") != std::string_view::npos;
  return std::unique_ptr<Template>(new Template(std::move(parsed)));
}

Result<std::string> Template::Render(const nlohmann::ordered_json& context,
                                     const RenderOptions& options) const {
  if (!context.is_object()) {
    return MakeError(ErrorCode::kUnsupported, "a template's variables must be an object");
  }
  Interpreter interpreter(*parsed_->tree, options);
  try {
    interpreter.AddGlobals();
    for (const auto& [name, value] : context.items()) {
      if (interpreter.Reads(name)) {
        interpreter.SetVariable(name, interpreter.runtime().FromJson(value));
      }
    }
    return interpreter.Run();
  } catch (const RenderFailure& failure) {
    if (failure.raised) return Error{ErrorCode::kInvalidArgument, failure.message, {}};
    return MakeError(ErrorCode::kUnsupported, "line {}: {}", interpreter.runtime().line,
                     OneLine(failure.message));
  }
}

const TemplateFacts& Template::facts() const { return parsed_->facts; }

}  // namespace kvasir::text::jinja
