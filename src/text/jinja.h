// A Jinja engine for chat templates: Jinja2 3.1 with the environment of Hugging Face transformers
// (trim_blocks, lstrip_blocks, loop controls, the generation tag, Python's str/repr/json output).
// Sandboxed: no files, no imports, no attributes that begin with `_`, and limits on work, depth,
// memory and output. docs/chat-templates.md tells what is supported.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir::text::jinja {

/// Wall clock time without a zone, as `strftime_now` prints it.
using LocalTime = std::chrono::local_time<std::chrono::seconds>;

/// The machine's local time (its TZ).
[[nodiscard]] LocalTime LocalTimeNow();

/// Reads "2026-11-29T12:34:56" (or with a space; the time of day may be missing).
[[nodiscard]] Result<LocalTime> ParseLocalTime(std::string_view text);

/// What one render may use. A template that wants more fails with kUnsupported.
struct RenderLimits {
  int64_t steps = 20'000'000;                    ///< nodes evaluated, items and characters produced
  int depth = 2'000;                             ///< nested nodes, macro calls included
  std::size_t stack_bytes = 1024 * 1024;         ///< of the calling thread
  std::size_t output_bytes = 64 * 1024 * 1024;   ///< of the whole render
  std::size_t value_bytes = 64 * 1024 * 1024;    ///< of one string, or one list (32 bytes an item)
  std::size_t memory_bytes = 512 * 1024 * 1024;  ///< of all values alive
};

struct RenderOptions {
  LocalTime now;  ///< for strftime_now
  RenderLimits limits;
};

/// Over which form of `message.content` a template goes.
enum class ContentForm {
  kString,  ///< reads content as text
  kParts,   ///< has a loop over the content's parts
};

/// What a template reads, found in its syntax tree.
struct TemplateFacts {
  std::set<std::string> free_variables;  ///< jinja2.meta.find_undeclared_variables
  ContentForm content_form = ContentForm::kString;
  bool tests_for_string = false;    ///< has a test `is string` or `is not string`
  bool mentions_developer = false;  ///< a string literal holds "developer"
  bool mentions_content = false;    ///< the source holds "content"
};

/// A parsed template. Immutable: any thread may render it at the same time.
class Template {
 public:
  /// Errors: kInvalidArgument, "line N: ..." (syntax, unknown filter or test, too long or deep).
  [[nodiscard]] static Result<std::unique_ptr<Template>> Parse(std::string_view source);

  ~Template();
  Template(const Template&) = delete;
  Template& operator=(const Template&) = delete;

  /// Renders with the members of `context` (an object) as variables. Key order is kept.
  /// Errors: kInvalidArgument = the template called raise_exception, the message is exactly its
  /// argument; kUnsupported = the render failed ("line N: ..."): a value of a wrong type, something
  /// undefined used, something forbidden, a limit.
  [[nodiscard]] Result<std::string> Render(const nlohmann::ordered_json& context,
                                           const RenderOptions& options) const;

  [[nodiscard]] const TemplateFacts& facts() const;

 private:
  struct Parsed;
  explicit Template(std::unique_ptr<Parsed> parsed);
  std::unique_ptr<Parsed> parsed_;
};

}  // namespace kvasir::text::jinja
