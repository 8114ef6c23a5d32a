// What templates can call: filters, tests, methods and globals, by name.
#pragma once

#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace kvasir::text::jinja {

/// Null where there is none.
[[nodiscard]] FilterFunction FindFilter(std::string_view name);
[[nodiscard]] TestFunction FindTest(std::string_view name);

using MethodFunction = Value (*)(Runtime&, const Value& self, Arguments&);
/// A method of str, list, tuple or dict; null where there is none.
[[nodiscard]] MethodFunction FindMethod(Kind kind, std::string_view name);

/// A global such as `range`; missing where there is none.
[[nodiscard]] Value FindGlobal(Runtime& runtime, std::string_view name);
[[nodiscard]] bool IsGlobal(std::string_view name);

/// A method taken off its object without a call: {% set f = s.upper %}.
struct BoundMethod final : Callable {
  BoundMethod(MethodFunction f, Value s) : function(f), self(std::move(s)) {}
  Value Call(Runtime& runtime, Arguments& arguments) override {
    return function(runtime, self, arguments);
  }
  [[nodiscard]] const char* TypeName() const override { return "builtin_function_or_method"; }
  MethodFunction function;
  Value self;
};

// ---- parts of filters, shared by the files that define them

struct NamedFilter {
  std::string_view name;
  FilterFunction function;
};
struct NamedMethod {
  std::string_view name;
  MethodFunction function;
};
template <typename T>
struct Table {
  const T* data;
  std::size_t size;
};

[[nodiscard]] Table<NamedFilter> TextFilters();
[[nodiscard]] Table<NamedFilter> SequenceFilters();
[[nodiscard]] Table<NamedFilter> SelectFilters();
[[nodiscard]] Table<NamedMethod> StringMethods();
[[nodiscard]] Table<NamedMethod> ListMethods();
[[nodiscard]] Table<NamedMethod> TupleMethods();
[[nodiscard]] Table<NamedMethod> DictMethods();

/// dict.update(mapping or pairs, name=value, ...).
void FillDict(Runtime& runtime, Dict& dict, std::string_view function, Arguments& arguments);
/// str.replace; `limit` < 0: all of them.
[[nodiscard]] std::string ReplaceText(Runtime& runtime, std::string_view text,
                                      std::string_view from, std::string_view to, Integer limit);
/// str.ljust ('<'), rjust ('>') and center ('^').
[[nodiscard]] std::string JustifyText(Runtime& runtime, const Value& text, Integer width,
                                      std::string_view fill, char align);
/// str.isupper and str.islower.
[[nodiscard]] bool HasOnlyCase(std::string_view text, bool upper);

/// A JSON text as a value.
[[nodiscard]] Value ParseJson(Runtime& runtime, std::string_view text);
/// json.dumps with its options.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  ///< one level
  std::string item_separator;
  std::string key_separator;
};
void AppendJson(Runtime& runtime, std::string& out, const Value& value, const JsonStyle& style);

/// '%s' % values.
[[nodiscard]] std::string PercentFormat(Runtime& runtime, std::string_view format,
                                        const Value& values);
/// '{}'.format(...).
[[nodiscard]] std::string BraceFormat(Runtime& runtime, std::string_view format,
                                      const Arguments& arguments);

}  // namespace kvasir::text::jinja
