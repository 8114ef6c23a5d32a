// A pull parser for JSON that is too large to be worth a tree of values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir::text {

/// Reads the text from front to back. The first error sticks: everything after it returns false.
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  /// `for (bool more = reader.EnterObject(); more && reader.NextKey(key);) …`: NextKey is false at
  /// the end of the object. The value behind a key must be read or skipped.
  bool EnterObject();
  bool NextKey(std::string& key);
  bool EnterArray();
  /// False at the end of the array; else an element follows.
  bool NextElement();

  bool ReadString(std::string& out);
  bool ReadInteger(int64_t& out);
  bool ReadNumber(double& out);
  /// Consumes a value and returns its text.
  std::string_view SkipValue();
  /// The first character of what comes next, '\0' at the end.
  [[nodiscard]] char Peek();

  [[nodiscard]] bool failed() const { return !error_.empty(); }
  /// Names the byte and what was expected there.
  [[nodiscard]] Error error() const;

 private:
  bool Fail(std::string_view expected);
  void SkipSpace();
  bool Consume(char expected);
  bool SkipString();
  bool ReadEscape(std::string& out);
  bool ReadHex(uint32_t& out);
  bool EnterScope(char open);
  bool NextItem(char close);
  std::string_view NumberText();

  std::string_view text_;
  size_t at_ = 0;
  bool first_item_ = false;  ///< the scope was just entered: no comma yet
  std::string error_;
  size_t error_at_ = 0;
};

}  // namespace kvasir::text
