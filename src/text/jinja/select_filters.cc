// map, select, reject, selectattr, rejectattr: generators that call filters and tests by name.
#include <algorithm>

#include "text/jinja/functions.h"
#include "text/jinja/selector.h"

namespace kvasir::text::jinja {

Selector::Selector(Runtime& runtime, const Value& attribute, Value fallback)
    : fallback_(std::move(fallback)) {
  if (fallback_.none()) fallback_ = Value();
  if (attribute.missing() || attribute.none()) return;
  if (!attribute.string()) {
    path_.push_back(attribute);
    return;
  }
  const std::string_view text = attribute.Text();
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('.', at), text.size());
    const std::string_view part = text.substr(at, end - at);
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
    const std::optional<Integer> index = number ? ParseInteger(part, 10) : std::nullopt;
    path_.push_back(index ? Value::Int(*index) : runtime.String(std::string(part)));
    at = end + 1;
  }
}

Value Selector::Select(Runtime& runtime, const Value& item) const {
  Value value = item;
  for (const Value& part : path_) {
    value = runtime.Item(value, part);
    if (value.undefined() && !fallback_.missing()) value = fallback_;
  }
  return value;
}

namespace {

// The arguments behind the first `count`, for the filter or test that is called.
Arguments Rest(const Arguments& arguments, std::size_t count) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                         arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

std::string NameArgument(const Value& value) {
  if (!value.string()) Fail("expected the name of a filter or test, got {}", TypeName(value));
  return value.Text();
}

Value MapAttribute(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("map", arguments, {"attribute", "default"}, 1);
  return runtime.MakeGenerator(
      [iteration = Iteration(runtime, subject), selector = Selector(runtime, bound[0], bound[1])](
          Runtime& rt, Value& out) mutable {
        Value item;
        if (!iteration.Next(rt, item)) return false;
        out = selector.Select(rt, item);
        return true;
      });
}

Value Map(Runtime& runtime, const Value& subject, Arguments& arguments) {
  if (!runtime.Truth(subject)) {
    return runtime.MakeGenerator([](Runtime&, Value&) { return false; });
  }
  if (arguments.positional.empty()) {
    const bool by_attribute =
        std::any_of(arguments.named.begin(), arguments.named.end(),
                    [](const auto& named) { return named.first == "attribute"; });
    if (!by_attribute) Fail("map requires a filter argument");
    return MapAttribute(runtime, subject, arguments);
  }
  const std::string name = NameArgument(arguments.positional[0]);
  const FilterFunction filter = FindFilter(name);
  if (filter == nullptr) Fail("no filter named '{}'", name);
  return runtime.MakeGenerator([iteration = Iteration(runtime, subject), filter,
                                rest = Rest(arguments, 1)](Runtime& rt, Value& out) mutable {
    Value item;
    if (!iteration.Next(rt, item)) return false;
    const Runtime::Level level(rt);
    Arguments copy = rest;
    out = filter(rt, item, copy);
    return true;
  });
}

Value Selected(Runtime& runtime, const Value& subject, Arguments& arguments, bool wanted,
               bool by_attribute) {
  if (!runtime.Truth(subject)) {
    return runtime.MakeGenerator([](Runtime&, Value&) { return false; });
  }
  const std::size_t offset = by_attribute ? 1 : 0;
  if (arguments.positional.size() < offset) Fail("Missing parameter for attribute name");
  TestFunction test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > offset) {
    const std::string name = NameArgument(arguments.positional[offset]);
    test = FindTest(name);
    if (test == nullptr) Fail("no test named '{}'", name);
    rest = Rest(arguments, offset + 1);
  }
  const Selector selector(runtime, by_attribute ? arguments.positional[0] : Value());
  return runtime.MakeGenerator([iteration = Iteration(runtime, subject), selector, test, rest,
                                wanted](Runtime& rt, Value& out) mutable {
    while (iteration.Next(rt, out)) {
      const Value value = selector.Select(rt, out);
      Arguments copy = rest;
      const bool holds = test == nullptr ? rt.Truth(value) : test(rt, value, copy);
      if (holds == wanted) return true;
    }
    return false;
  });
}

Value Select(Runtime& runtime, const Value& subject, Arguments& arguments) {
  return Selected(runtime, subject, arguments, true, false);
}
Value Reject(Runtime& runtime, const Value& subject, Arguments& arguments) {
  return Selected(runtime, subject, arguments, false, false);
}
Value SelectAttribute(Runtime& runtime, const Value& subject, Arguments& arguments) {
  return Selected(runtime, subject, arguments, true, true);
}
Value RejectAttribute(Runtime& runtime, const Value& subject, Arguments& arguments) {
  return Selected(runtime, subject, arguments, false, true);
}

constexpr NamedFilter kFilters[] = {
    {"map", Map},
    {"select", Select},
    {"reject", Reject},
    {"selectattr", SelectAttribute},
    {"rejectattr", RejectAttribute},
};

}  // namespace

Table<NamedFilter> SelectFilters() { return {kFilters, std::size(kFilters)}; }

}  // namespace kvasir::text::jinja
