// JSON to values, and back: Python's json.dumps.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "text/jinja/functions.h"
#include "text/jinja/unicode.h"

namespace kvasir::text::jinja {
namespace {

void AppendUnit(std::string& out, char32_t unit) {
  fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<uint32_t>(unit));
}

void AppendJsonString(std::string& out, std::string_view text, bool ensure_ascii) {
  out.push_back('"');
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char byte = text[at];
    if (byte == '"' || byte == '\\') {
      out.push_back('\\');
      out.push_back(byte);
      ++at;
    } else if (byte >= 0 && byte < 0x20) {
      static constexpr std::string_view kFrom = "\b\f\n\r\t";
      const std::size_t i = kFrom.find(byte);
      if (i != std::string_view::npos) {
        out.push_back('\\');
        out.push_back("bfnrt"[i]);
      } else {
        AppendUnit(out, static_cast<unsigned char>(byte));
      }
      ++at;
    } else if (byte > 0 || !ensure_ascii) {
      do {
        ++at;
      } while (at < text.size() && text[at] != '"' && text[at] != '\\' &&
               (text[at] >= 0x20 || (text[at] < 0 && !ensure_ascii)));
      out += text.substr(begin, at - begin);
    } else {
      const char32_t c = DecodeAt(text, at);
      if (c >= 0x10000) {
        AppendUnit(out, 0xd800 + ((c - 0x10000) >> 10));
        AppendUnit(out, 0xdc00 + ((c - 0x10000) & 0x3ff));
      } else {
        AppendUnit(out, c);
      }
    }
  }
  out.push_back('"');
}

std::string JsonFloat(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return FormatFloat(value);
}

class Dumper {
 public:
  Dumper(Runtime& runtime, std::string& out, const JsonStyle& style)
      : runtime_(runtime), out_(out), style_(style) {}

  void Dump(const Value& value, std::size_t depth) {
    const Runtime::Level level(runtime_);
    runtime_.Step();
    runtime_.CheckSize(out_.size());
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "null";
        return;
      case Kind::kBool:
        out_ += value.AsBool() ? "true" : "false";
        return;
      case Kind::kInt:
        out_ += FormatInteger(value.AsInt());
        return;
      case Kind::kFloat:
        out_ += JsonFloat(value.AsDouble());
        return;
      case Kind::kString:
        runtime_.StepBytes(value.Text().size());
        AppendJsonString(out_, value.Text(), style_.ensure_ascii);
        return;
      case Kind::kList:
      case Kind::kTuple:
        DumpList(value.AsList(), depth);
        return;
      case Kind::kDict:
        DumpDict(value.AsDict(), depth);
        return;
      default:
        Fail("Object of type {} is not JSON serializable", TypeName(value));
    }
  }

 private:
  void NewLine(std::size_t depth) {
    if (!style_.indent) return;
    runtime_.CheckSize(out_.size() + depth * style_.indent->size());
    out_.push_back('\n');
    for (std::size_t i = 0; i < depth; ++i) out_ += *style_.indent;
  }

  void DumpList(const List& list, std::size_t depth) {
    if (list.items.empty()) {
      out_ += "[]";
      return;
    }
    out_.push_back('[');
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      NewLine(depth + 1);
      Dump(list.items[i], depth + 1);
    }
    NewLine(depth);
    out_.push_back(']');
  }

  void DumpDict(const Dict& dict, std::size_t depth) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> entries;
    entries.reserve(dict.entries.size());
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return runtime_.Less(a->first, b->first);
      });
    }
    out_.push_back('{');
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      NewLine(depth + 1);
      DumpKey(entries[i]->first);
      out_ += style_.key_separator;
      Dump(entries[i]->second, depth + 1);
    }
    NewLine(depth);
    out_.push_back('}');
  }

  void DumpKey(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        AppendJsonString(out_, key.Text(), style_.ensure_ascii);
        return;
      case Kind::kNone:
        out_ += "\"null\"";
        return;
      case Kind::kBool:
        out_ += key.AsBool() ? "\"true\"" : "\"false\"";
        return;
      case Kind::kInt:
        out_ += '"' + FormatInteger(key.AsInt()) + '"';
        return;
      case Kind::kFloat:
        out_ += '"' + JsonFloat(key.AsDouble()) + '"';
        return;
      default:
        Fail("keys must be str, int, float, bool or None, not {}", TypeName(key));
    }
  }

  Runtime& runtime_;
  std::string& out_;
  const JsonStyle& style_;
};

}  // namespace

Value Runtime::FromJson(const nlohmann::ordered_json& json) {
  const Level level(*this);
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return Value::Bool(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer:
      return Value::Int(json.get<int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned:
      return Value::Int(json.get<uint64_t>());
    case nlohmann::ordered_json::value_t::number_float:
      return Value::Float(json.get<double>());
    case nlohmann::ordered_json::value_t::string:
      return Value::String(heap.NewStr(json.get_ref<const std::string&>()));
    case nlohmann::ordered_json::value_t::array: {
      List* list = NewList(json.size());
      for (const auto& item : json) Append(*list, FromJson(item));
      return Value::Of(list);
    }
    case nlohmann::ordered_json::value_t::object: {
      Dict* dict = NewDict();
      for (const auto& [key, item] : json.items()) {
        dict->Set(*this, Value::String(heap.NewStr(key)), FromJson(item));
      }
      return Value::Of(dict);
    }
    default:
      return Value::None();
  }
}

Value ParseJson(Runtime& runtime, std::string_view text) {
  const auto json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (json.is_discarded()) Fail("from_json: the text is not JSON");
  return runtime.FromJson(json);
}

void AppendJson(Runtime& runtime, std::string& out, const Value& value, const JsonStyle& style) {
  Dumper(runtime, out, style).Dump(value, 0);
}

}  // namespace kvasir::text::jinja
