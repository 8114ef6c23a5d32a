// Global functions, and the clock behind strftime_now.
#include <ctime>
#include <unordered_map>

#include "text/jinja/functions.h"

namespace kvasir::text::jinja {
namespace {

constexpr Integer kRangeMax = 100'000;
constexpr std::size_t kTimeFormatBytesMax = 1024;

using GlobalFunction = Value (*)(Runtime&, Arguments&);

struct Global final : Callable {
  Global(GlobalFunction f, std::string_view n) : function(f), name(n) {}
  Value Call(Runtime& runtime, Arguments& arguments) override {
    return function(runtime, arguments);
  }
  GlobalFunction function;
  std::string_view name;
};

Value Range(Runtime& runtime, Arguments& arguments) {
  const Bound bound("range", arguments, {"start", "stop", "step"}, 1);
  auto* range = runtime.heap.New<RangeObject>();
  range->start = bound.Has(1) ? bound.Int(0, 0) : 0;
  range->stop = bound.Has(1) ? bound.Int(1, 0) : bound.Int(0, 0);
  range->step = bound.Int(2, 1);
  if (range->step == 0) Fail("range() arg 3 must not be zero");
  constexpr Integer kBoundMax = Integer{1} << 100;
  for (const Integer part : {range->start, range->stop, range->step}) {
    if (part > kBoundMax || part < -kBoundMax) Fail("range() bounds are too large");
  }
  const Integer distance =
      range->step > 0 ? range->stop - range->start : range->start - range->stop;
  const Integer stride = range->step > 0 ? range->step : -range->step;
  const Integer size = distance > 0 ? (distance - 1) / stride + 1 : 0;
  if (size > kRangeMax) {
    Fail("Range too big. The sandbox blocks ranges larger than {}.",
         static_cast<int64_t>(kRangeMax));
  }
  range->size = static_cast<std::size_t>(size);
  return Value::Of(Kind::kRange, range);
}

Value DictGlobal(Runtime& runtime, Arguments& arguments) {
  Dict* dict = runtime.NewDict();
  FillDict(runtime, *dict, "dict", arguments);
  return Value::Of(dict);
}

Value NamespaceGlobal(Runtime& runtime, Arguments& arguments) {
  auto* ns = runtime.heap.New<Namespace>();
  FillDict(runtime, ns->attributes, "namespace", arguments);
  for (const auto& [key, value] : ns->attributes.entries) {
    if (key.string() && key.Text().starts_with('_')) {
      Fail("a namespace cannot have attributes that begin with an underscore: '{}'", key.Text());
    }
  }
  return Value::Of(Kind::kNamespace, ns);
}

Value RaiseException(Runtime& runtime, Arguments& arguments) {
  const Bound bound("raise_exception", arguments, {"message"}, 1);
  throw RenderFailure{true, runtime.ToString(bound[0])};
}

std::tm BrokenDown(LocalTime now) {
  const auto day = std::chrono::floor<std::chrono::days>(now);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(now - day);
  const std::chrono::local_days new_year(date.year() / std::chrono::January / 1);
  std::tm tm{};
  tm.tm_year = static_cast<int>(date.year()) - 1900;
  tm.tm_mon = static_cast<int>(static_cast<unsigned>(date.month())) - 1;
  tm.tm_mday = static_cast<int>(static_cast<unsigned>(date.day()));
  tm.tm_hour = static_cast<int>(time.hours().count());
  tm.tm_min = static_cast<int>(time.minutes().count());
  tm.tm_sec = static_cast<int>(time.seconds().count());
  tm.tm_wday = static_cast<int>(std::chrono::weekday(day).c_encoding());
  tm.tm_yday = static_cast<int>((day - new_year).count());
  tm.tm_isdst = -1;
  return tm;
}

// Python's datetime without a zone: %z and %Z are empty, %f are microseconds.
std::string WithoutZone(std::string_view format) {
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out.push_back(format[i]);
      continue;
    }
    const char directive = format[++i];
    if (directive == 'f') {
      out += "000000";
    } else if (directive != 'z' && directive != 'Z') {
      out.push_back('%');
      out.push_back(directive);
    }
  }
  return out;
}

Value StrftimeNow(Runtime& runtime, Arguments& arguments) {
  const Bound bound("strftime_now", arguments, {"format"}, 1);
  if (bound.Text(0).size() > kTimeFormatBytesMax) Fail("strftime_now(): the format is too long");
  // The space at the end tells an empty result from a failure.
  const std::string format = WithoutZone(bound.Text(0)) + " ";
  const std::tm tm = BrokenDown(runtime.options.now);
  std::string buffer(256 + 64 * format.size(), '\0');
  const std::size_t size = std::strftime(buffer.data(), buffer.size(), format.c_str(), &tm);
  if (size == 0) Fail("strftime_now(): the format '{}' cannot be used", bound.Text(0));
  buffer.resize(size - 1);
  return runtime.String(std::move(buffer));
}

struct Joiner final : Callable {
  explicit Joiner(Value s) : separator(std::move(s)) {}
  Value Call(Runtime& runtime, Arguments& arguments) override {
    const Bound bound("joiner", arguments, {});
    if (used) return separator;
    used = true;
    return runtime.String("");
  }
  Value separator;
  bool used = false;
};

Value JoinerGlobal(Runtime& runtime, Arguments& arguments) {
  const Bound bound("joiner", arguments, {"sep"});
  Value separator = bound.Has(0) ? bound[0] : runtime.String(", ");
  return Value::Of(static_cast<Callable*>(runtime.heap.New<Joiner>(std::move(separator))));
}

struct Cycler final : Callable {
  explicit Cycler(std::vector<Value> i) : items(std::move(i)) {}
  Value Call(Runtime&, Arguments&) override { Fail("'Cycler' object is not callable"); }
  Value Attribute(Runtime& runtime, std::string_view name) override;
  [[nodiscard]] const char* TypeName() const override { return "Cycler"; }
  std::vector<Value> items;
  std::size_t at = 0;
};

struct CyclerMethod final : Callable {
  CyclerMethod(Cycler* c, bool n) : cycler(c), next(n) {}
  Value Call(Runtime&, Arguments& arguments) override {
    const Bound bound("cycler", arguments, {});
    if (!next) {
      cycler->at = 0;
      return Value::None();
    }
    Value value = cycler->items[cycler->at];
    cycler->at = (cycler->at + 1) % cycler->items.size();
    return value;
  }
  Cycler* cycler;
  bool next;
};

Value Cycler::Attribute(Runtime& runtime, std::string_view name) {
  if (name == "current") return items[at];
  if (name != "next" && name != "reset") return {};
  return Value::Of(static_cast<Callable*>(runtime.heap.New<CyclerMethod>(this, name == "next")));
}

Value CyclerGlobal(Runtime& runtime, Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) {
    Fail("at least one item has to be provided");
  }
  return Value::Of(static_cast<Callable*>(runtime.heap.New<Cycler>(arguments.positional)));
}

Value Lipsum(Runtime&, Arguments&) { Fail("lipsum() makes random text and is not supported"); }

const std::unordered_map<std::string_view, GlobalFunction>& Globals() {
  static const auto* const kGlobals = new std::unordered_map<std::string_view, GlobalFunction>{
      {"range", Range},
      {"dict", DictGlobal},
      {"namespace", NamespaceGlobal},
      {"raise_exception", RaiseException},
      {"strftime_now", StrftimeNow},
      {"joiner", JoinerGlobal},
      {"cycler", CyclerGlobal},
      {"lipsum", Lipsum},
  };
  return *kGlobals;
}

}  // namespace

bool IsGlobal(std::string_view name) { return Globals().contains(name); }

Value FindGlobal(Runtime& runtime, std::string_view name) {
  const auto at = Globals().find(name);
  if (at == Globals().end()) return {};
  return Value::Of(static_cast<Callable*>(runtime.heap.New<Global>(at->second, at->first)));
}

LocalTime LocalTimeNow() {
  const std::time_t now = std::time(nullptr);
  std::tm tm{};
  localtime_r(&now, &tm);
  const std::chrono::local_days day(std::chrono::year(tm.tm_year + 1900) /
                                    std::chrono::month(static_cast<unsigned>(tm.tm_mon + 1)) /
                                    std::chrono::day(static_cast<unsigned>(tm.tm_mday)));
  return LocalTime(day) + std::chrono::hours(tm.tm_hour) + std::chrono::minutes(tm.tm_min) +
         std::chrono::seconds(tm.tm_sec);
}

Result<LocalTime> ParseLocalTime(std::string_view text) {
  const auto fail = [&] {
    return MakeError(ErrorCode::kInvalidArgument,
                     "'{}' is no time; expected the form 2026-11-29T12:34:56", text);
  };
  // Digits stand where the form has them, the rest is equal.
  constexpr std::string_view kForm = "0000-00-00T00:00:00";
  if (text.size() != 10 && text.size() != kForm.size()) return fail();
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kForm[i] == '0' ? !digit : text[i] != kForm[i] && !(kForm[i] == 'T' && text[i] == ' ')) {
      return fail();
    }
  }
  const auto number = [&](std::size_t at, std::size_t digits) {
    int value = 0;
    for (std::size_t i = 0; i < digits; ++i) value = value * 10 + (text[at + i] - '0');
    return value;
  };
  const std::chrono::year_month_day date(std::chrono::year(number(0, 4)) /
                                         std::chrono::month(static_cast<unsigned>(number(5, 2))) /
                                         std::chrono::day(static_cast<unsigned>(number(8, 2))));
  if (!date.ok()) return fail();
  LocalTime time{std::chrono::local_days(date)};
  if (text.size() == kForm.size()) {
    if (number(11, 2) > 23 || number(14, 2) > 59 || number(17, 2) > 59) return fail();
    time += std::chrono::hours(number(11, 2)) + std::chrono::minutes(number(14, 2)) +
            std::chrono::seconds(number(17, 2));
  }
  return time;
}

}  // namespace kvasir::text::jinja
