#include "text/jinja/runtime.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "text/jinja/functions.h"
#include "text/jinja/unicode.h"

namespace kvasir::text::jinja {
namespace {

std::string_view KindName(Kind kind) {
  switch (kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kRange:
      return "range";
    case Kind::kDictView:
      return "dict view";
    case Kind::kIterator:
      return "generator";
    case Kind::kCallable:
      return "function";
  }
  return "object";
}

std::string_view ViewName(DictView::Part part) {
  switch (part) {
    case DictView::Part::kKeys:
      return "dict_keys";
    case DictView::Part::kValues:
      return "dict_values";
    case DictView::Part::kItems:
      break;
  }
  return "dict_items";
}

void AppendStringRepr(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out.push_back(quote);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t c = DecodeAt(text, at);
    if (c == '\\' || c == static_cast<char32_t>(quote)) {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c >= 0x20 && c < 0x7f) {
      out.push_back(static_cast<char>(c));
    } else if (IsPrintable(c)) {
      out += text.substr(begin, at - begin);
    } else if (c < 0x100) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      fmt::format_to(std::back_inserter(out), "\\U{:08x}", static_cast<uint32_t>(c));
    }
  }
  out.push_back(quote);
}

Value ViewItem(Runtime& runtime, const DictView& view, std::size_t i) {
  const auto& [key, value] = view.dict->entries[i];
  switch (view.part) {
    case DictView::Part::kKeys:
      return key;
    case DictView::Part::kValues:
      return value;
    case DictView::Part::kItems:
      break;
  }
  return runtime.Tuple({key, value});
}

}  // namespace

std::string_view TypeName(const Value& value) {
  if (value.Is(Kind::kCallable)) return value.AsCallable().TypeName();
  if (value.Is(Kind::kIterator)) return value.AsIterator().TypeName();
  if (value.Is(Kind::kDictView)) return ViewName(value.AsView().part);
  return KindName(value.kind());
}

void FailUndefined(const Value& value) {
  const std::string_view name = value.AsStr() != nullptr ? std::string_view(value.Text()) : "?";
  switch (value.lack()) {
    case Lack::kVariable:
      Fail("'{}' is undefined", name);
    case Lack::kAttributeOfNone:
      Fail("'None' has no attribute '{}'", name);
    case Lack::kAttribute:
      Fail("'{} object' has no attribute '{}'", KindName(value.owner()), name);
    case Lack::kElement:
      Fail("{} has no element {}",
           value.owner() == Kind::kNone ? std::string("None")
                                        : fmt::format("{} object", KindName(value.owner())),
           name);
    case Lack::kForbidden:
      Fail("access to attribute '{}' of '{}' object is unsafe", name, KindName(value.owner()));
    case Lack::kOther:
      break;
  }
  Fail("{}", name);
}

void Runtime::FailSteps() { Fail("the template does too much work (limit of steps reached)"); }
void Runtime::FailDepth() { Fail("maximum recursion depth exceeded"); }

// ---- making values

void Runtime::CheckSize(std::size_t bytes) const {
  if (bytes > options.limits.value_bytes) {
    Fail("a value of {} bytes is larger than allowed ({})", bytes, options.limits.value_bytes);
  }
}

Value Runtime::String(std::string text) {
  CheckSize(text.size());
  StepBytes(text.size());
  return Value::String(heap.NewStr(std::move(text)));
}

Value Runtime::Markup(std::string text) {
  Value value = String(std::move(text));
  value.AsStr()->markup = true;
  return value;
}

List* Runtime::NewList(std::size_t reserve) {
  List* list = heap.New<List>();
  if (reserve > 0) {
    CheckSize(reserve * sizeof(Value));
    list->items.reserve(std::min<std::size_t>(reserve, 1024));
  }
  return list;
}

void Runtime::Append(List& list, Value value) {
  heap.Charge(sizeof(Value));
  if ((list.items.size() & 0xff) == 0) CheckSize(list.items.size() * sizeof(Value));
  list.items.push_back(std::move(value));
}

Value Runtime::Tuple(std::initializer_list<Value> items) {
  List* list = NewList(items.size());
  for (const Value& item : items) Append(*list, item);
  return Value::Of(list, true);
}

Value Runtime::MakeGenerator(std::function<bool(Runtime&, Value&)> next) {
  return Value::Of(static_cast<Iterator*>(heap.New<Generator>(std::move(next))));
}

// ---- truth, length, order

bool Runtime::Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.AsInt() != 0;
    case Kind::kFloat:
      return value.AsDouble() != 0;
    case Kind::kString:
      return !value.Text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.AsList().items.empty();
    case Kind::kDict:
      return !value.AsDict().entries.empty();
    case Kind::kRange:
      return value.AsRange().size > 0;
    case Kind::kDictView:
      return !value.AsView().dict->entries.empty();
    case Kind::kNamespace:
    case Kind::kIterator:
    case Kind::kCallable:
      return true;
  }
  return true;
}

std::optional<std::size_t> Runtime::Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString: {
      Str* str = value.AsStr();
      if (str->length < 0) {
        StepBytes(str->text.size());
        str->length = static_cast<int64_t>(CountCodePoints(str->text));
      }
      return static_cast<std::size_t>(str->length);
    }
    case Kind::kList:
    case Kind::kTuple:
      return value.AsList().items.size();
    case Kind::kDict:
      return value.AsDict().entries.size();
    case Kind::kRange:
      return value.AsRange().size;
    case Kind::kDictView:
      return value.AsView().dict->entries.size();
    default:
      return std::nullopt;
  }
}

bool Runtime::Iterable(const Value& value) const {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kDictView:
    case Kind::kIterator:
      return true;
    default:
      return false;
  }
}

bool Runtime::Identical(const Value& a, const Value& b) const {
  return a.kind() == b.kind() && a.AsObject() == b.AsObject();
}

bool Runtime::Equal(const Value& a, const Value& b) {
  Step();
  if (a.numeric() && b.numeric()) {
    if (a.integral() && b.integral()) return a.AsInt() == b.AsInt();
    return a.AsDouble() == b.AsDouble();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      StepBytes(std::min(a.Text().size(), b.Text().size()));
      return a.Text() == b.Text();
    case Kind::kList:
    case Kind::kTuple: {
      if (Identical(a, b)) return true;
      const Level level(*this);
      const std::vector<Value>& left = a.AsList().items;
      const std::vector<Value>& right = b.AsList().items;
      if (left.size() != right.size()) return false;
      for (std::size_t i = 0; i < left.size(); ++i) {
        if (!Equal(left[i], right[i])) return false;
      }
      return true;
    }
    case Kind::kDict: {
      if (Identical(a, b)) return true;
      const Level level(*this);
      const Dict& left = a.AsDict();
      const Dict& right = b.AsDict();
      if (left.entries.size() != right.entries.size()) return false;
      for (const auto& [key, value] : left.entries) {
        const int64_t at = right.Find(*this, key);
        if (at < 0 || !Equal(value, right.entries[static_cast<std::size_t>(at)].second)) {
          return false;
        }
      }
      return true;
    }
    case Kind::kRange: {
      const RangeObject& left = a.AsRange();
      const RangeObject& right = b.AsRange();
      return left.size == right.size &&
             (left.size == 0 ||
              (left.start == right.start && (left.size == 1 || left.step == right.step)));
    }
    default:
      return Identical(a, b);
  }
}

bool Runtime::Less(const Value& a, const Value& b, std::string_view op) {
  Step();
  if (a.numeric() && b.numeric()) {
    if (a.integral() && b.integral()) return a.AsInt() < b.AsInt();
    return a.AsDouble() < b.AsDouble();
  }
  if (a.undefined()) FailUndefined(a);
  if (b.undefined()) FailUndefined(b);
  if (a.string() && b.string()) {
    StepBytes(std::min(a.Text().size(), b.Text().size()));
    return a.Text() < b.Text();  // UTF-8 sorts as its code points
  }
  if (a.sequence() && a.kind() == b.kind()) {
    const Level level(*this);
    const std::vector<Value>& left = a.AsList().items;
    const std::vector<Value>& right = b.AsList().items;
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!Equal(left[i], right[i])) return Less(left[i], right[i], op);
    }
    return left.size() < right.size();
  }
  Fail("'{}' not supported between instances of '{}' and '{}'", op, TypeName(a), TypeName(b));
}

Value Runtime::Compare(Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::kEqual:
      return Value::Bool(Equal(a, b));
    case Operator::kNotEqual:
      return Value::Bool(!Equal(a, b));
    case Operator::kIn:
      return Value::Bool(Contains(b, a));
    case Operator::kNotIn:
      return Value::Bool(!Contains(b, a));
    case Operator::kLess:
      return Value::Bool(Less(a, b, "<"));
    case Operator::kGreater:
      return Value::Bool(Less(b, a, ">"));
    default:
      break;
  }
  const bool less = op == Operator::kLessEqual;
  if (a.numeric() && b.numeric() && !(a.integral() && b.integral())) {
    return Value::Bool(less ? a.AsDouble() <= b.AsDouble() : a.AsDouble() >= b.AsDouble());
  }
  return Value::Bool(less ? !Less(b, a, "<=") : !Less(a, b, ">="));
}

std::size_t Runtime::Hash(const Value& value) {
  Step();
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt: {
      const auto bits = static_cast<unsigned __int128>(value.AsInt());
      return std::hash<uint64_t>()(static_cast<uint64_t>(bits) ^ static_cast<uint64_t>(bits >> 64));
    }
    case Kind::kFloat: {
      const double d = value.AsDouble();
      if (std::floor(d) == d && std::fabs(d) < 1e38)
        return Hash(Value::Int(static_cast<Integer>(d)));
      return std::hash<double>()(d);
    }
    case Kind::kString:
      StepBytes(value.Text().size());
      return std::hash<std::string_view>()(value.Text());
    case Kind::kTuple: {
      const Level level(*this);
      std::size_t hash = 0x345678;
      for (const Value& item : value.AsList().items) hash = hash * 1000003 + Hash(item);
      return hash;
    }
    case Kind::kList:
    case Kind::kDict:
    case Kind::kDictView:
      Fail("unhashable type: '{}'", TypeName(value));
    case Kind::kNone:
    case Kind::kUndefined:
    case Kind::kMissing:
      return 0;
    default:
      return std::hash<const void*>()(value.AsObject());
  }
}

bool Runtime::Contains(const Value& container, const Value& item) {
  Step();
  switch (container.kind()) {
    case Kind::kString:
      if (!item.string()) {
        Fail("'in <string>' requires string as left operand, not {}", TypeName(item));
      }
      StepBytes(container.Text().size());
      return container.Text().find(item.Text()) != std::string::npos;
    case Kind::kDict:
      return container.AsDict().Find(*this, item) >= 0;
    case Kind::kDictView:
      if (container.AsView().part == DictView::Part::kKeys) {
        return container.AsView().dict->Find(*this, item) >= 0;
      }
      break;
    default:
      break;
  }
  if (!Iterable(container)) Fail("argument of type '{}' is not iterable", TypeName(container));
  Iteration iteration(*this, container);
  for (Value candidate; iteration.Next(*this, candidate);) {
    if (Equal(candidate, item)) return true;
  }
  return false;
}

// ---- str and repr

std::string Runtime::ToString(const Value& value) {
  std::string out;
  AppendString(out, value);
  return out;
}

std::string_view Runtime::SoftText(const Value& value, std::string& storage) {
  if (value.string()) return value.Text();
  storage = ToString(value);
  return storage;
}

void Runtime::AppendString(std::string& out, const Value& value) {
  if (value.string()) {
    StepBytes(value.Text().size());
    out += value.Text();
  } else if (!value.undefined() && !value.missing()) {
    AppendRepr(out, value);
  }
}

void Runtime::AppendItems(std::string& out, const std::vector<Value>& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    AppendRepr(out, items[i]);
  }
}

template <typename Print>
void Runtime::Once(std::string& out, const Object* object, std::string_view again,
                   const Print& print) {
  if (std::find(printing_.begin(), printing_.end(), object) != printing_.end()) {
    out += again;
    return;
  }
  printing_.push_back(object);
  print();
  printing_.pop_back();
}

void Runtime::AppendDict(std::string& out, const Dict& dict) {
  Once(out, &dict, "{...}", [&] {
    out.push_back('{');
    for (std::size_t i = 0; i < dict.entries.size(); ++i) {
      if (i > 0) out += ", ";
      AppendRepr(out, dict.entries[i].first);
      out += ": ";
      AppendRepr(out, dict.entries[i].second);
    }
    out.push_back('}');
  });
}

void Runtime::AppendRepr(std::string& out, const Value& value) {
  const Level level(*this);
  Step();
  CheckSize(out.size());
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      out += "Undefined";
      return;
    case Kind::kNone:
      out += "None";
      return;
    case Kind::kBool:
      out += value.AsBool() ? "True" : "False";
      return;
    case Kind::kInt:
      out += FormatInteger(value.AsInt());
      return;
    case Kind::kFloat:
      out += FormatFloat(value.AsDouble());
      return;
    case Kind::kString:
      StepBytes(value.Text().size());
      if (value.markup()) out += "Markup(";
      AppendStringRepr(out, value.Text());
      if (value.markup()) out += ")";
      return;
    case Kind::kList:
      Once(out, value.AsObject(), "[...]", [&] {
        out.push_back('[');
        AppendItems(out, value.AsList().items);
        out.push_back(']');
      });
      return;
    case Kind::kTuple:
      Once(out, value.AsObject(), "(...)", [&] {
        out.push_back('(');
        AppendItems(out, value.AsList().items);
        out += value.AsList().items.size() == 1 ? ",)" : ")";
      });
      return;
    case Kind::kDict:
      AppendDict(out, value.AsDict());
      return;
    case Kind::kNamespace:
      out += "<Namespace ";
      AppendDict(out, value.AsNamespace().attributes);
      out.push_back('>');
      return;
    case Kind::kRange: {
      const RangeObject& range = value.AsRange();
      out += "range(" + FormatInteger(range.start) + ", " + FormatInteger(range.stop);
      if (range.step != 1) out += ", " + FormatInteger(range.step);
      out.push_back(')');
      return;
    }
    case Kind::kDictView: {
      const DictView& view = value.AsView();
      out += ViewName(view.part);
      out += "([";
      for (std::size_t i = 0; i < view.dict->entries.size(); ++i) {
        if (i > 0) out += ", ";
        AppendRepr(out, ViewItem(*this, view, i));
      }
      out += "])";
      return;
    }
    case Kind::kIterator:
      out += fmt::format("<{} object>", TypeName(value));
      return;
    case Kind::kCallable:
      out += value.AsCallable().Repr();
      return;
  }
}

// ---- iteration

Iteration::Iteration(Runtime& runtime, const Value& iterable) : iterable_(iterable) {
  if (!runtime.Iterable(iterable)) Fail("'{}' object is not iterable", TypeName(iterable));
}

bool Iteration::Next(Runtime& runtime, Value& out) {
  runtime.Step();
  switch (iterable_.kind()) {
    case Kind::kString: {
      const std::string& text = iterable_.Text();
      if (at_ >= text.size()) return false;
      const std::size_t begin = at_;
      (void)DecodeAt(text, at_);
      out = runtime.String(text.substr(begin, at_ - begin));
      return true;
    }
    case Kind::kList:
    case Kind::kTuple:
      if (at_ >= iterable_.AsList().items.size()) return false;
      out = iterable_.AsList().items[at_++];
      return true;
    case Kind::kDict:
      if (at_ >= iterable_.AsDict().entries.size()) return false;
      out = iterable_.AsDict().entries[at_++].first;
      return true;
    case Kind::kRange:
      if (at_ >= iterable_.AsRange().size) return false;
      out = Value::Int(iterable_.AsRange().At(at_++));
      return true;
    case Kind::kDictView:
      if (at_ >= iterable_.AsView().dict->entries.size()) return false;
      out = ViewItem(runtime, iterable_.AsView(), at_++);
      return true;
    case Kind::kIterator: {
      const Runtime::Level level(runtime);  // generators over generators
      return iterable_.AsIterator().Next(runtime, out);
    }
    default:
      return false;
  }
}

List* Runtime::ToList(const Value& iterable) {
  List* list = NewList();
  Iteration iteration(*this, iterable);
  for (Value item; iteration.Next(*this, item);) Append(*list, std::move(item));
  return list;
}

// ---- arguments

Bound::Bound(std::string_view function, Arguments& arguments,
             std::initializer_list<std::string_view> names, std::size_t required)
    : function_(function) {
  KVASIR_CHECK(names.size() <= values_.size());
  if (arguments.positional.size() > names.size()) {
    Fail("{}() takes at most {} arguments, got {}", function, names.size(),
         arguments.positional.size());
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    values_[i] = std::move(arguments.positional[i]);
  }
  for (auto& [name, value] : arguments.named) {
    const auto* at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) Fail("{}() got an unexpected keyword argument '{}'", function, name);
    Value& slot = values_[static_cast<std::size_t>(at - names.begin())];
    if (!slot.missing()) Fail("{}() got multiple values for argument '{}'", function, name);
    slot = std::move(value);
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (values_[i].missing()) {
      Fail("{}() missing a required argument: '{}'", function, names.begin()[i]);
    }
  }
}

Integer Bound::Int(std::size_t i, Integer fallback) const {
  if (!Has(i)) return fallback;
  if (values_[i].undefined()) FailUndefined(values_[i]);
  if (!values_[i].integral()) {
    Fail("{}() expected an integer, got {}", function_, TypeName(values_[i]));
  }
  return values_[i].AsInt();
}

const std::string& Bound::Text(std::size_t i) const {
  if (values_[i].undefined()) FailUndefined(values_[i]);
  if (!values_[i].string()) {
    Fail("{}() expected a string, got {}", function_, TypeName(values_[i]));
  }
  return values_[i].Text();
}

}  // namespace kvasir::text::jinja
