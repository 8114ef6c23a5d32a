// What a template reads, found in its syntax tree without running it.
#pragma once

#include "text/jinja.h"
#include "text/jinja/ast.h"

namespace kvasir::text::jinja {

struct Analysis {
  TemplateFacts facts;  ///< all but mentions_content
  /// Names that the top of the template assigns without having read them: Jinja's compiler makes
  /// them variables of the template, so that a value from the context is never seen.
  std::set<std::string> shadowed;
};

[[nodiscard]] Analysis Analyze(const Tree& tree);

}  // namespace kvasir::text::jinja
