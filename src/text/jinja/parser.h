// Tokens → syntax tree.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "text/jinja/ast.h"

namespace kvasir::text::jinja {

inline constexpr std::size_t kSourceBytesMax = 1024 * 1024;
inline constexpr int kNestingMax = 200;  ///< of brackets, operators and blocks in the source
inline constexpr int kHeightMax = 600;   ///< of the tree: long chains of operators count too

/// Errors: kInvalidArgument, "line N: ...". A filter or test that does not exist is an error here,
/// except inside a branch of `if`, where it is one when it is reached (as in Jinja).
[[nodiscard]] Result<std::unique_ptr<Tree>> ParseTemplate(std::string_view source);

}  // namespace kvasir::text::jinja
