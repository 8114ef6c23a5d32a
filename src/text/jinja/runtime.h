// One render: its limits and values, and Python's protocols on values (truth, str, repr, ==, <, in,
// len, iteration, attributes, items, calls). Failures leave as exceptions, which Template::Render
// turns into errors.
#pragma once

#include <fmt/format.h>

#include <array>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja.h"
#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace kvasir::text::jinja {

/// Ends a render.
struct RenderFailure {
  bool raised = false;  ///< by raise_exception
  std::string message;
};

template <typename... Args>
[[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) {
  throw RenderFailure{false, fmt::format(format, std::forward<Args>(args)...)};
}

/// Fails with why the value is undefined.
[[noreturn]] void FailUndefined(const Value& value);

/// "int", "str", ...; the words of Python's messages.
[[nodiscard]] std::string_view TypeName(const Value& value);

class Runtime {
 public:
  explicit Runtime(const RenderOptions& render_options)
      : options(render_options),
        heap(render_options.limits.memory_bytes),
        steps_left_(render_options.limits.steps),
        stack_base_(static_cast<const char*>(__builtin_frame_address(0))) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const RenderOptions& options;
  Heap heap;
  int line = 0;  ///< of the source, of what is being evaluated

  /// Counts work; fails beyond the limit.
  void Step(std::size_t steps = 1) {
    steps_left_ -= static_cast<int64_t>(steps);
    if (steps_left_ < 0) FailSteps();
  }
  /// Work in proportion to bytes touched.
  void StepBytes(std::size_t bytes) { Step(bytes / 32); }

  /// One level of recursion; fails beyond the limit.
  class Level {
   public:
    explicit Level(Runtime& runtime) : runtime_(runtime) {
      const char* here = static_cast<const char*>(__builtin_frame_address(0));
      if (++runtime_.depth_ > runtime_.options.limits.depth ||
          runtime_.stack_base_ - here >
              static_cast<std::ptrdiff_t>(runtime_.options.limits.stack_bytes)) {
        --runtime_.depth_;
        FailDepth();
      }
    }
    ~Level() { --runtime_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Runtime& runtime_;
  };

  // ---- making values
  [[nodiscard]] Value String(std::string text);
  [[nodiscard]] Value Markup(std::string text);
  [[nodiscard]] List* NewList(std::size_t reserve = 0);
  void Append(List& list, Value value);
  [[nodiscard]] Value Tuple(std::initializer_list<Value> items);
  [[nodiscard]] Dict* NewDict() { return heap.New<Dict>(); }
  [[nodiscard]] Value MakeGenerator(std::function<bool(Runtime&, Value&)> next);
  /// Fails where a string of so many bytes is not allowed.
  void CheckSize(std::size_t bytes) const;

  // ---- protocols
  [[nodiscard]] bool Truth(const Value& value);
  [[nodiscard]] std::string ToString(const Value& value);
  void AppendString(std::string& out, const Value& value);
  void AppendRepr(std::string& out, const Value& value);
  [[nodiscard]] bool Equal(const Value& a, const Value& b);
  /// a < b; fails where the types have no order.
  [[nodiscard]] bool Less(const Value& a, const Value& b, std::string_view op = "<");
  [[nodiscard]] std::size_t Hash(const Value& value);
  [[nodiscard]] bool Contains(const Value& container, const Value& item);
  /// nullopt: has no length.
  [[nodiscard]] std::optional<std::size_t> Length(const Value& value);
  [[nodiscard]] bool Iterable(const Value& value) const;
  [[nodiscard]] Value Compare(Operator op, const Value& a, const Value& b);
  [[nodiscard]] Value Binary(Operator op, const Value& a, const Value& b);
  [[nodiscard]] Value Negate(const Value& value);
  /// subject.name, as Jinja's getattr: the attribute (method), else the item, else undefined.
  [[nodiscard]] Value Attribute(const Value& subject, Str* name);
  /// subject[key], as Jinja's getitem: the item, else the attribute, else undefined.
  [[nodiscard]] Value Item(const Value& subject, const Value& key);
  [[nodiscard]] Value Slice(const Value& subject, const Value& start, const Value& stop,
                            const Value& step);
  [[nodiscard]] Value Call(const Value& callee, Arguments& arguments);
  /// subject.name(...) without making the bound method.
  [[nodiscard]] Value CallMethod(const Value& subject, Str* name, Arguments& arguments);
  [[nodiscard]] List* ToList(const Value& iterable);
  /// Text of a string; str() of anything else.
  [[nodiscard]] std::string_view SoftText(const Value& value, std::string& storage);

  // ---- from and to JSON
  [[nodiscard]] Value FromJson(const nlohmann::ordered_json& json);

 private:
  [[noreturn]] static void FailSteps();
  [[noreturn]] static void FailDepth();
  [[nodiscard]] bool Identical(const Value& a, const Value& b) const;
  [[nodiscard]] Value ObjectAttribute(const Value& subject, std::string_view name);
  [[nodiscard]] Value BinaryNumeric(Operator op, const Value& a, const Value& b);
  void AppendItems(std::string& out, const std::vector<Value>& items);
  void AppendDict(std::string& out, const Dict& dict);
  /// Runs `print`, or writes `again` inside of the print of the same object.
  template <typename Print>
  void Once(std::string& out, const Object* object, std::string_view again, const Print& print);

  int64_t steps_left_;
  int depth_ = 0;
  const char* stack_base_;
  std::vector<const Object*> printing_;  ///< containers whose repr is under way
};

/// Goes over any iterable; fails at the construction where it is none. Lists and dicts that grow
/// meanwhile are followed.
class Iteration {
 public:
  Iteration(Runtime& runtime, const Value& iterable);
  [[nodiscard]] bool Next(Runtime& runtime, Value& out);

 private:
  Value iterable_;
  std::size_t at_ = 0;
};

/// Arguments sorted by the names of a signature. Fails on too many, unknown or repeated ones, and
/// where one of the first `required` is missing.
class Bound {
 public:
  Bound(std::string_view function, Arguments& arguments,
        std::initializer_list<std::string_view> names, std::size_t required = 0);
  /// Missing where it was not given.
  [[nodiscard]] const Value& operator[](std::size_t i) const { return values_[i]; }
  [[nodiscard]] bool Has(std::size_t i) const { return !values_[i].missing(); }
  [[nodiscard]] bool Truth(Runtime& runtime, std::size_t i, bool fallback = false) const {
    return Has(i) ? runtime.Truth(values_[i]) : fallback;
  }
  [[nodiscard]] Integer Int(std::size_t i, Integer fallback) const;
  [[nodiscard]] const std::string& Text(std::size_t i) const;

 private:
  std::string_view function_;
  std::array<Value, 8> values_;
};

[[nodiscard]] std::string FormatInteger(Integer value);
/// Python's repr of a float.
[[nodiscard]] std::string FormatFloat(double value);
/// Reads what Python's int() and float() read; nullopt where they raise ValueError.
[[nodiscard]] std::optional<Integer> ParseInteger(std::string_view text, int base);
[[nodiscard]] std::optional<double> ParseFloat(std::string_view text);

}  // namespace kvasir::text::jinja
