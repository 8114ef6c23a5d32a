// Methods of list, tuple and dict; those that change them too, which Hugging Face's sandbox refuses
// and templates in the wild call (Kimi K2's `append` and `pop`).
#include <algorithm>

#include "text/jinja/functions.h"

namespace kvasir::text::jinja {
namespace {

Value Append(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("append", arguments, {"object"}, 1);
  runtime.Append(self.AsList(), bound[0]);
  return Value::None();
}

Value Extend(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("extend", arguments, {"iterable"}, 1);
  const List* added = runtime.ToList(bound[0]);  // first: it may be the list itself
  for (const Value& item : added->items) runtime.Append(self.AsList(), item);
  return Value::None();
}

Value Insert(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("insert", arguments, {"index", "object"}, 2);
  std::vector<Value>& items = self.AsList().items;
  const auto size = static_cast<Integer>(items.size());
  Integer index = bound.Int(0, 0);
  if (index < 0) index = std::max<Integer>(index + size, 0);
  index = std::min(index, size);
  runtime.Step(items.size());
  runtime.heap.Charge(sizeof(Value));
  items.insert(items.begin() + static_cast<std::ptrdiff_t>(index), bound[1]);
  return Value::None();
}

Value PopList(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("pop", arguments, {"index"});
  std::vector<Value>& items = self.AsList().items;
  if (items.empty()) Fail("pop from empty list");
  const auto size = static_cast<Integer>(items.size());
  Integer index = bound.Int(0, -1);
  if (index < 0) index += size;
  if (index < 0 || index >= size) Fail("pop index out of range");
  runtime.Step(static_cast<std::size_t>(size - index));
  const auto at = items.begin() + static_cast<std::ptrdiff_t>(index);
  Value value = std::move(*at);
  items.erase(at);
  return value;
}

std::optional<std::size_t> Position(Runtime& runtime, const Value& self, const Value& wanted) {
  const std::vector<Value>& items = self.AsList().items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (runtime.Equal(items[i], wanted)) return i;
  }
  return std::nullopt;
}

Value IndexOf(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("index", arguments, {"value"}, 1);
  const std::optional<std::size_t> at = Position(runtime, self, bound[0]);
  if (!at) Fail("the value is not in the {}", TypeName(self));
  return Value::Size(*at);
}

Value CountOf(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("count", arguments, {"value"}, 1);
  std::size_t count = 0;
  for (const Value& item : self.AsList().items) count += runtime.Equal(item, bound[0]) ? 1 : 0;
  return Value::Size(count);
}

Value Remove(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("remove", arguments, {"value"}, 1);
  const std::optional<std::size_t> at = Position(runtime, self, bound[0]);
  if (!at) Fail("list.remove(x): x not in list");
  std::vector<Value>& items = self.AsList().items;
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(*at));
  return Value::None();
}

Value ReverseList(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("reverse", arguments, {});
  std::vector<Value>& items = self.AsList().items;
  runtime.Step(items.size());
  std::reverse(items.begin(), items.end());
  return Value::None();
}

Value CopyList(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("copy", arguments, {});
  return Value::Of(runtime.ToList(self));
}

Value ClearList(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("clear", arguments, {});
  runtime.Step();
  self.AsList().items.clear();
  return Value::None();
}

Value Get(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("get", arguments, {"key", "default"}, 1);
  const Dict& dict = self.AsDict();
  const int64_t at = dict.Find(runtime, bound[0]);
  if (at >= 0) return dict.entries[static_cast<std::size_t>(at)].second;
  return bound.Has(1) ? bound[1] : Value::None();
}

Value View(Runtime& runtime, const Value& self, Arguments& arguments, DictView::Part part) {
  const Bound bound("items", arguments, {});
  DictView* view = runtime.heap.New<DictView>();
  view->dict = &self.AsDict();
  view->part = part;
  return Value::Of(Kind::kDictView, view);
}
Value Items(Runtime& runtime, const Value& self, Arguments& arguments) {
  return View(runtime, self, arguments, DictView::Part::kItems);
}
Value Keys(Runtime& runtime, const Value& self, Arguments& arguments) {
  return View(runtime, self, arguments, DictView::Part::kKeys);
}
Value Values(Runtime& runtime, const Value& self, Arguments& arguments) {
  return View(runtime, self, arguments, DictView::Part::kValues);
}

Value PopDict(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("pop", arguments, {"key", "default"}, 1);
  Dict& dict = self.AsDict();
  const int64_t at = dict.Find(runtime, bound[0]);
  if (at < 0) {
    if (!bound.Has(1)) Fail("pop(): no such key");
    return bound[1];
  }
  Value value = dict.entries[static_cast<std::size_t>(at)].second;
  dict.Erase(runtime, static_cast<std::size_t>(at));
  return value;
}

Value SetDefault(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("setdefault", arguments, {"key", "default"}, 1);
  Dict& dict = self.AsDict();
  const int64_t at = dict.Find(runtime, bound[0]);
  if (at >= 0) return dict.entries[static_cast<std::size_t>(at)].second;
  Value value = bound.Has(1) ? bound[1] : Value::None();
  dict.Set(runtime, bound[0], value);
  return value;
}

Value Update(Runtime& runtime, const Value& self, Arguments& arguments) {
  FillDict(runtime, self.AsDict(), "update", arguments);
  return Value::None();
}

Value CopyDict(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("copy", arguments, {});
  Dict* copy = runtime.NewDict();
  for (const auto& [key, value] : self.AsDict().entries) copy->Set(runtime, key, value);
  return Value::Of(copy);
}

Value ClearDict(Runtime& runtime, const Value& self, Arguments& arguments) {
  const Bound bound("clear", arguments, {});
  runtime.Step();
  self.AsDict().entries.clear();
  self.AsDict().index.clear();
  return Value::None();
}

constexpr NamedMethod kListMethods[] = {
    {"append", Append}, {"extend", Extend},   {"insert", Insert}, {"pop", PopList},
    {"index", IndexOf}, {"count", CountOf},   {"remove", Remove}, {"reverse", ReverseList},
    {"copy", CopyList}, {"clear", ClearList},
};
constexpr NamedMethod kTupleMethods[] = {{"index", IndexOf}, {"count", CountOf}};
constexpr NamedMethod kDictMethods[] = {
    {"get", Get},       {"items", Items},   {"keys", Keys},
    {"values", Values}, {"pop", PopDict},   {"setdefault", SetDefault},
    {"update", Update}, {"copy", CopyDict}, {"clear", ClearDict},
};

}  // namespace

void FillDict(Runtime& runtime, Dict& dict, std::string_view function, Arguments& arguments) {
  if (arguments.positional.size() > 1) {
    Fail("{} expected at most 1 argument, got {}", function, arguments.positional.size());
  }
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.Is(Kind::kDict)) {
      const std::vector<std::pair<Value, Value>> entries = source.AsDict().entries;
      for (const auto& [key, value] : entries) dict.Set(runtime, key, value);
    } else {
      Iteration iteration(runtime, source);
      for (Value pair; iteration.Next(runtime, pair);) {
        const List* parts = runtime.ToList(pair);
        if (parts->items.size() != 2) Fail("{} needs pairs of a key and a value", function);
        dict.Set(runtime, parts->items[0], parts->items[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) {
    dict.Set(runtime, runtime.String(std::string(name)), value);
  }
}

Table<NamedMethod> ListMethods() { return {kListMethods, std::size(kListMethods)}; }
Table<NamedMethod> TupleMethods() { return {kTupleMethods, std::size(kTupleMethods)}; }
Table<NamedMethod> DictMethods() { return {kDictMethods, std::size(kDictMethods)}; }

}  // namespace kvasir::text::jinja
