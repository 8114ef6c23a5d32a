// Attributes, items, slices and calls.
#include <algorithm>

#include "text/jinja/functions.h"
#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace kvasir::text::jinja {
namespace {

Value NoAttribute(const Value& subject, Str* name) {
  return Value::Undefined(subject.none() ? Lack::kAttributeOfNone : Lack::kAttribute, name,
                          subject.kind());
}

// Python's slice.indices(): the numbers of the items, as start, step and count.
struct SliceRange {
  Integer start = 0;
  Integer stop = 0;
  Integer step = 1;
  std::size_t count = 0;
};

SliceRange Indices(Integer length, const Value& start, const Value& stop, const Value& step) {
  SliceRange range;
  if (!step.missing() && !step.none()) range.step = step.AsInt();
  if (range.step == 0) Fail("slice step cannot be zero");
  range.step = std::clamp(range.step, -length - 1, length + 1);
  const bool backward = range.step < 0;
  const Integer low = backward ? -1 : 0;
  const Integer high = backward ? length - 1 : length;
  const auto clamp = [&](const Value& bound, Integer fallback) {
    if (bound.missing() || bound.none()) return fallback;
    Integer i = bound.AsInt();
    if (i < 0) i += length;
    return std::clamp(i, low, high);
  };
  range.start = clamp(start, backward ? high : low);
  range.stop = clamp(stop, backward ? low : high);
  const Integer distance = backward ? range.start - range.stop : range.stop - range.start;
  const Integer stride = backward ? -range.step : range.step;
  if (distance > 0) range.count = static_cast<std::size_t>((distance - 1) / stride + 1);
  return range;
}

std::string SliceText(std::string_view text, std::size_t length, const SliceRange& range) {
  const auto start = static_cast<std::size_t>(range.start);
  if (range.count == 0) return {};
  if (range.step == 1) {
    if (length == text.size()) return std::string(text.substr(start, range.count));
    const std::size_t begin = OffsetOf(text, start);
    const std::size_t bytes = OffsetOf(text.substr(begin), range.count);
    return std::string(text.substr(begin, bytes));
  }
  std::vector<std::size_t> offsets;  // of each code point, and the end
  offsets.reserve(length + 1);
  for (std::size_t at = 0; at < text.size();) {
    offsets.push_back(at);
    (void)DecodeAt(text, at);
  }
  offsets.push_back(text.size());
  std::string out;
  for (std::size_t i = 0; i < range.count; ++i) {
    const auto at = static_cast<std::size_t>(range.start + range.step * static_cast<Integer>(i));
    out += text.substr(offsets[at], offsets[at + 1] - offsets[at]);
  }
  return out;
}

}  // namespace

Value Runtime::ObjectAttribute(const Value& subject, std::string_view name) {
  switch (subject.kind()) {
    case Kind::kTuple:
      if (subject.AsList().group && (name == "grouper" || name == "list")) {
        return subject.AsList().items[name == "grouper" ? 0 : 1];
      }
      [[fallthrough]];
    case Kind::kString:
    case Kind::kList:
    case Kind::kDict:
      if (const MethodFunction method = FindMethod(subject.kind(), name)) {
        return Value::Of(static_cast<Callable*>(heap.New<BoundMethod>(method, subject)));
      }
      return {};
    case Kind::kNamespace: {
      const Value* value = subject.AsNamespace().attributes.Get(name);
      return value == nullptr ? Value() : *value;
    }
    case Kind::kCallable:
      return subject.AsCallable().Attribute(*this, name);
    default:
      return {};
  }
}

Value Runtime::Attribute(const Value& subject, Str* name) {
  if (subject.undefined()) FailUndefined(subject);
  const std::string& text = name->text;
  const bool dunder = text.starts_with("__") && text.ends_with("__");
  if (dunder) return Value::Undefined(Lack::kForbidden, name, subject.kind());
  if (Value value = ObjectAttribute(subject, text); !value.missing()) return value;
  if (subject.Is(Kind::kDict)) {
    if (const Value* value = subject.AsDict().Get(text)) return *value;
  }
  return NoAttribute(subject, name);
}

Value Runtime::Item(const Value& subject, const Value& key) {
  if (subject.undefined()) FailUndefined(subject);
  if (subject.Is(Kind::kDict)) {
    if (!key.Is(Kind::kList) && !key.Is(Kind::kDict) && !key.Is(Kind::kDictView)) {
      const Dict& dict = subject.AsDict();
      const int64_t at = dict.Find(*this, key);
      if (at >= 0) return dict.entries[static_cast<std::size_t>(at)].second;
    }
  } else if (key.integral()) {
    const std::optional<std::size_t> length = Length(subject);
    Integer i = key.AsInt();
    if (length && i < 0) i += static_cast<Integer>(*length);
    if (length && i >= 0 && i < static_cast<Integer>(*length)) {
      const auto at = static_cast<std::size_t>(i);
      switch (subject.kind()) {
        case Kind::kList:
        case Kind::kTuple:
          return subject.AsList().items[at];
        case Kind::kRange:
          return Value::Int(subject.AsRange().At(at));
        case Kind::kString: {
          const std::string& text = subject.Text();
          if (*length == text.size()) return String(text.substr(at, 1));
          StepBytes(text.size());
          const std::size_t begin = OffsetOf(text, at);
          std::size_t end = begin;
          (void)DecodeAt(text, end);
          return String(text.substr(begin, end - begin));
        }
        default:
          break;
      }
    }
  }
  if (key.string()) {
    if (key.Text().starts_with("__") && key.Text().ends_with("__")) {
      return Value::Undefined(Lack::kForbidden, key.AsStr(), subject.kind());
    }
    if (Value value = ObjectAttribute(subject, key.Text()); !value.missing()) return value;
    return NoAttribute(subject, key.AsStr());
  }
  std::string name;
  AppendRepr(name, key);
  const Value text = String(std::move(name));
  return Value::Undefined(Lack::kElement, text.AsStr(), subject.kind());
}

Value Runtime::Slice(const Value& subject, const Value& start, const Value& stop,
                     const Value& step) {
  if (subject.undefined()) FailUndefined(subject);
  if (!subject.string() && !subject.sequence() && !subject.Is(Kind::kRange)) {
    Fail("'{}' object cannot be sliced", TypeName(subject));
  }
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->missing() && !bound->none() && !bound->integral()) {
      Fail("slice indices must be integers or None, got {}", TypeName(*bound));
    }
  }
  const std::size_t length = *Length(subject);
  const SliceRange range = Indices(static_cast<Integer>(length), start, stop, step);
  if (subject.string()) {
    StepBytes(subject.Text().size());
    return String(SliceText(subject.Text(), length, range));
  }
  if (subject.Is(Kind::kRange)) {
    const RangeObject& whole = subject.AsRange();
    auto* part = heap.New<RangeObject>();
    part->start = whole.start + whole.step * range.start;
    part->stop = whole.start + whole.step * range.stop;
    part->step = whole.step * range.step;
    part->size = range.count;
    return Value::Of(Kind::kRange, part);
  }
  Step(range.count);
  List* list = NewList(range.count);
  for (std::size_t i = 0; i < range.count; ++i) {
    const auto at = static_cast<std::size_t>(range.start + range.step * static_cast<Integer>(i));
    Append(*list, subject.AsList().items[at]);
  }
  return Value::Of(list, subject.Is(Kind::kTuple));
}

Value Runtime::Call(const Value& callee, Arguments& arguments) {
  if (callee.undefined()) FailUndefined(callee);
  if (!callee.Is(Kind::kCallable)) Fail("'{}' object is not callable", TypeName(callee));
  const Level level(*this);
  return callee.AsCallable().Call(*this, arguments);
}

Value Runtime::CallMethod(const Value& subject, Str* name, Arguments& arguments) {
  switch (subject.kind()) {
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
      if (const MethodFunction method = FindMethod(subject.kind(), name->text)) {
        return method(*this, subject, arguments);
      }
      break;
    default:
      break;
  }
  return Call(Attribute(subject, name), arguments);
}

}  // namespace kvasir::text::jinja
