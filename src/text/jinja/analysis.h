// What a template reads, found in its syntax tree without running it.
#pragma once

#include "text/jinja.h"
#include "text/jinja/ast.h"

namespace kvasir::text::jinja {

/// Fills all but mentions_content.
[[nodiscard]] TemplateFacts Analyze(const Tree& tree);

}  // namespace kvasir::text::jinja
