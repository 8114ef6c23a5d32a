// Tests: `x is name(argument)`.
#include <unordered_map>

#include "text/jinja/functions.h"

namespace kvasir::text::jinja {
namespace {

void NoArguments(Arguments& arguments) { const Bound bound("test", arguments, {}); }

template <bool (*kHolds)(const Value&)>
bool OfValue(Runtime& runtime, const Value& subject, Arguments& arguments) {
  NoArguments(arguments);
  runtime.Step();
  return kHolds(subject);
}

bool IsDefined(const Value& value) { return !value.undefined(); }
bool IsUndefined(const Value& value) { return value.undefined(); }
bool IsNone(const Value& value) { return value.none(); }
bool IsBoolean(const Value& value) { return value.Is(Kind::kBool); }
bool IsTrue(const Value& value) { return value.Is(Kind::kBool) && value.AsBool(); }
bool IsFalse(const Value& value) { return value.Is(Kind::kBool) && !value.AsBool(); }
bool IsInteger(const Value& value) { return value.Is(Kind::kInt); }
bool IsFloat(const Value& value) { return value.Is(Kind::kFloat); }
bool IsNumber(const Value& value) { return value.numeric(); }
bool IsString(const Value& value) { return value.string(); }
bool IsMapping(const Value& value) { return value.Is(Kind::kDict); }
bool IsCallable(const Value& value) { return value.Is(Kind::kCallable) || value.undefined(); }
bool IsEscaped(const Value& value) { return value.markup(); }
bool IsSequence(const Value& value) {
  return value.string() || value.sequence() || value.Is(Kind::kDict) || value.Is(Kind::kRange) ||
         value.undefined();
}

bool IsIterable(Runtime& runtime, const Value& subject, Arguments& arguments) {
  NoArguments(arguments);
  return runtime.Iterable(subject);
}

template <Operator kOp>
bool Compares(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("test", arguments, {"other"}, 1);
  return runtime.Compare(kOp, subject, bound[0]).AsBool();
}

bool IsSameAs(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("sameas", arguments, {"other"}, 1);
  if (subject.kind() != bound[0].kind()) return false;
  if (subject.numeric() || subject.string() || subject.none() || subject.undefined()) {
    return runtime.Equal(subject, bound[0]);
  }
  return subject.AsObject() == bound[0].AsObject();
}

Integer Remainder(Runtime& runtime, const Value& subject, const Value& divisor) {
  const Value rest = runtime.Binary(Operator::kModulo, subject, divisor);
  if (!rest.numeric()) Fail("expected a number, got {}", TypeName(subject));
  if (rest.integral()) return rest.AsInt();
  return rest.AsDouble() == 0 ? 0 : rest.AsDouble() == 1 ? 1 : 2;
}

bool IsOdd(Runtime& runtime, const Value& subject, Arguments& arguments) {
  NoArguments(arguments);
  return Remainder(runtime, subject, Value::Int(2)) == 1;
}
bool IsEven(Runtime& runtime, const Value& subject, Arguments& arguments) {
  NoArguments(arguments);
  return Remainder(runtime, subject, Value::Int(2)) == 0;
}
bool IsDivisibleBy(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const Bound bound("divisibleby", arguments, {"num"}, 1);
  return Remainder(runtime, subject, bound[0]) == 0;
}

bool IsLowerTest(Runtime& runtime, const Value& subject, Arguments& arguments) {
  NoArguments(arguments);
  return HasOnlyCase(runtime.ToString(subject), false);
}
bool IsUpperTest(Runtime& runtime, const Value& subject, Arguments& arguments) {
  NoArguments(arguments);
  return HasOnlyCase(runtime.ToString(subject), true);
}

bool IsFilter(Runtime& runtime, const Value& subject, Arguments& arguments) {
  NoArguments(arguments);
  runtime.Step();
  return subject.string() && FindFilter(subject.Text()) != nullptr;
}
bool IsTest(Runtime& runtime, const Value& subject, Arguments& arguments) {
  NoArguments(arguments);
  runtime.Step();
  return subject.string() && FindTest(subject.Text()) != nullptr;
}

}  // namespace

TestFunction FindTest(std::string_view name) {
  static const auto* const kTests = new std::unordered_map<std::string_view, TestFunction>{
      {"defined", OfValue<IsDefined>},
      {"undefined", OfValue<IsUndefined>},
      {"none", OfValue<IsNone>},
      {"boolean", OfValue<IsBoolean>},
      {"true", OfValue<IsTrue>},
      {"false", OfValue<IsFalse>},
      {"integer", OfValue<IsInteger>},
      {"float", OfValue<IsFloat>},
      {"number", OfValue<IsNumber>},
      {"string", OfValue<IsString>},
      {"mapping", OfValue<IsMapping>},
      {"sequence", OfValue<IsSequence>},
      {"iterable", IsIterable},
      {"callable", OfValue<IsCallable>},
      {"escaped", OfValue<IsEscaped>},
      {"odd", IsOdd},
      {"even", IsEven},
      {"divisibleby", IsDivisibleBy},
      {"lower", IsLowerTest},
      {"upper", IsUpperTest},
      {"sameas", IsSameAs},
      {"filter", IsFilter},
      {"test", IsTest},
      {"in", Compares<Operator::kIn>},
      {"eq", Compares<Operator::kEqual>},
      {"equalto", Compares<Operator::kEqual>},
      {"==", Compares<Operator::kEqual>},
      {"ne", Compares<Operator::kNotEqual>},
      {"!=", Compares<Operator::kNotEqual>},
      {"lt", Compares<Operator::kLess>},
      {"lessthan", Compares<Operator::kLess>},
      {"<", Compares<Operator::kLess>},
      {"le", Compares<Operator::kLessEqual>},
      {"<=", Compares<Operator::kLessEqual>},
      {"gt", Compares<Operator::kGreater>},
      {"greaterthan", Compares<Operator::kGreater>},
      {">", Compares<Operator::kGreater>},
      {"ge", Compares<Operator::kGreaterEqual>},
      {">=", Compares<Operator::kGreaterEqual>},
  };
  const auto at = kTests->find(name);
  return at == kTests->end() ? nullptr : at->second;
}

}  // namespace kvasir::text::jinja
