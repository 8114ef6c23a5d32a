// What a template reads, found in its syntax tree without running it.
#pragma once

#include "text/jinja.h"
#include "text/jinja/ast.h"

namespace kvasir::text::jinja {

/// Gives all facts but mentions_content. Also fills the `hidden` lists of the tree: a name that a
/// scope assigns and has not read before is a new variable of that scope to Jinja's compiler, so
/// that scopes inside of it, even earlier ones, do not see a value of that name from the context.
[[nodiscard]] TemplateFacts Analyze(Tree& tree);

}  // namespace kvasir::text::jinja
