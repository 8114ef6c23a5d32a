#include "server/json_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <unordered_set>
#include <vector>

#include "server/http_message.h"

namespace kvasir::server {
namespace {

constexpr float kLogprobMin = -9999.0f;
constexpr char kHex[] = "0123456789abcdef";

ApiError InvalidJson(std::string why) {
  ApiError error;
  error.type = "Bad Request";
  error.message = fmt::format("1 validation error:\n  body: JSON decode error: {}", why);
  error.param = "body";
  return error;
}

// Builds the tree with the library's tokenizer; the library's own builder looks up every key in
// every object, which is quadratic in an ordered one, and has no limits.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder(Json& root, const JsonLimits& limits) : root_(root), limits_(limits) {}

  const std::string& why() const { return why_; }

  bool null() override { return Add(Json(nullptr)); }
  bool boolean(bool value) override { return Add(Json(value)); }
  bool number_integer(number_integer_t value) override { return Add(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Add(Json(value)); }
  bool number_float(number_float_t value, const string_t&) override { return Add(Json(value)); }
  bool string(string_t& value) override { return Add(Json(std::move(value))); }
  bool binary(binary_t&) override { return Fail("binary value"); }
  bool start_object(std::size_t) override { return Open(Json(Json::value_t::object)); }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(Json(Json::value_t::array)); }
  bool end_array() override { return Close(); }

  bool key(string_t& value) override {
    if (!levels_.back().keys.insert(value).second) {
      return Fail(fmt::format("the key '{}' comes twice in one object", Shortened(value, 64)));
    }
    key_ = std::move(value);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // The library quotes what it last read; only the reason is wanted.
    std::string_view what = error.what();
    std::string reason = "syntax error";
    if (error.id == 406) {
      reason = "a number beyond the range of a double";
    } else if (what.find("UTF-8") != std::string_view::npos) {
      reason = "invalid UTF-8";
    } else if (what.find("surrogate") != std::string_view::npos) {
      reason = "a lone surrogate in a \\u escape";
    } else if (what.find("control character") != std::string_view::npos) {
      reason = "a control character in a string";
    } else if (what.find("unexpected end of input") != std::string_view::npos) {
      reason = "unexpected end";
    }
    return Fail(fmt::format("{} at byte {}", reason, position));
  }

 private:
  struct Level {
    Json* value;
    std::unordered_set<std::string> keys;
  };

  bool Fail(std::string why) {
    why_ = std::move(why);
    return false;
  }

  bool Count() {
    if (++values_count_ > limits_.values_count) {
      return Fail(fmt::format("more than {} values", limits_.values_count));
    }
    return true;
  }

  Json* Insert(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *levels_.back().value;
    if (parent.is_array()) {
      auto& items = parent.get_ref<Json::array_t&>();
      items.push_back(std::move(value));
      return &items.back();
    }
    auto& members = parent.get_ref<Json::object_t&>();
    using Members = std::remove_reference_t<decltype(members)>;
    // ordered_map's own insertion scans for the key, which is known to be new.
    static_cast<Members::Container&>(members).emplace_back(std::move(key_), std::move(value));
    return &members.back().second;
  }

  bool Add(Json value) {
    if (!Count()) return false;
    Insert(std::move(value));
    return true;
  }

  bool Open(Json value) {
    if (!Count()) return false;
    if (static_cast<int>(levels_.size()) >= limits_.depth) {
      return Fail(fmt::format("nested deeper than {} levels", limits_.depth));
    }
    Json* inserted = Insert(std::move(value));
    levels_.push_back(Level{inserted, {}});
    return true;
  }

  bool Close() {
    levels_.pop_back();
    return true;
  }

  Json& root_;
  JsonLimits limits_;
  std::vector<Level> levels_;
  std::string key_;
  int64_t values_count_ = 0;
  std::string why_;
};

}  // namespace

void AppendJsonEscaped(std::string_view text, std::string& out) {
  size_t begin = 0;
  const auto flush = [&](size_t end) { out.append(text, begin, end - begin); };
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\' && c != 0xC2 && c != 0xE2) continue;
    if (c == 0xC2) {
      if (i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) == 0x85) {
        flush(i);
        out += "\\u0085";
        i += 1;
        begin = i + 1;
      }
      continue;
    }
    if (c == 0xE2) {
      if (i + 2 < text.size() && static_cast<unsigned char>(text[i + 1]) == 0x80 &&
          (static_cast<unsigned char>(text[i + 2]) & 0xFE) == 0xA8) {
        flush(i);
        out += static_cast<unsigned char>(text[i + 2]) == 0xA8 ? "\\u2028" : "\\u2029";
        i += 2;
        begin = i + 1;
      }
      continue;
    }
    flush(i);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        out += "\\u00";
        out += kHex[c >> 4];
        out += kHex[c & 15];
    }
    begin = i + 1;
  }
  flush(text.size());
}

void AppendJsonString(std::string_view text, std::string& out) {
  out += '"';
  AppendJsonEscaped(text, out);
  out += '"';
}

void AppendLogprob(float value, std::string& out) {
  if (!std::isfinite(value) || value < kLogprobMin) value = kLogprobMin;
  char buffer[32];
  const auto [end, ec] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void AppendInt(int64_t value, std::string& out) {
  char buffer[24];
  const auto [end, ec] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  out.append(buffer, end);
}

std::optional<ApiError> ParseJson(std::string_view text, Json& out, const JsonLimits& limits) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") return InvalidJson("a byte order mark at byte 1");
  Builder builder(out, limits);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    out = Json();
    return InvalidJson(builder.why());
  }
  // The parser takes a NUL for the text's end, whatever follows it.
  if (const size_t at = text.find('\0'); at != std::string_view::npos) {
    out = Json();
    return InvalidJson(fmt::format("a NUL at byte {}", at + 1));
  }
  return std::nullopt;
}

std::optional<ApiError> ParseBody(const HttpRequest& request, Json& out) {
  const std::string* content_type = request.Header("content-type");
  std::string_view media = content_type ? std::string_view(*content_type) : std::string_view();
  media = media.substr(0, media.find(';'));
  while (!media.empty() && (media.back() == ' ' || media.back() == '\t')) media.remove_suffix(1);
  if (!EqualsIgnoreCase(media, "application/json")) {
    ApiError error;
    error.type = "Bad Request";
    error.message = fmt::format("Content-Type: Only 'application/json' is allowed, got {}",
                                media.empty() ? "none" : fmt::format("'{}'", Shortened(media, 64)));
    return error;
  }
  if (std::optional<ApiError> error = ParseJson(request.body, out)) return error;
  if (!out.is_object()) {
    return InvalidJson(fmt::format("expected an object, got {}", out.type_name()));
  }
  return std::nullopt;
}

}  // namespace kvasir::server
