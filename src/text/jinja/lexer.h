// Template source → tokens, with Jinja's whitespace rules (trim_blocks and lstrip_blocks on).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/value.h"

namespace kvasir::text::jinja {

enum class TokenKind : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;  ///< of kString: its value
  Integer integer = 0;
  double number = 0;

  [[nodiscard]] bool Is(TokenKind k, std::string_view t) const { return kind == k && text == t; }
};

/// Errors: kInvalidArgument, "line N: ...". The last token is kEnd.
[[nodiscard]] Result<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace kvasir::text::jinja
