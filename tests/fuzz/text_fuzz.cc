// Tokenizers, streams of tokens, and stop strings.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "fuzz/target.h"
#include "support/data.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"
#include "text/unicode_utf8.h"

namespace kvasir::fuzz {
namespace {

using Ids = std::vector<int32_t>;

/// As a stream from the begin of the text.
std::string Stream(const text::Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  text::Detokenizer stream(tokenizer, {}, skip_special);
  std::string text;
  for (const int32_t id : ids) {
    const std::string piece = stream.Push(id);
    ExpectUtf8(piece);
    text += piece;
  }
  return text + stream.Flush();
}

void ExpectTokens(const text::Tokenizer& tokenizer, const Ids& ids) {
  for (const int32_t id : ids) {
    KVASIR_CHECK(id >= 0, "token {}", id);
    ExpectUtf8(tokenizer.TokenText(id));
  }
  for (const bool skip_special : {false, true}) {
    const std::string whole = tokenizer.Decode(ids, skip_special);
    ExpectUtf8(whole);
    const std::string streamed = Stream(tokenizer, ids, skip_special);
    KVASIR_CHECK(streamed == whole, "streamed \"{}\", decoded \"{}\"", streamed, whole);
  }
}

KVASIR_FUZZ_TARGET(tokenizer_json) {
  std::string_view config_text = input;
  const std::string_view tokenizer_text = TakeUntil('\0', config_text);
  const nlohmann::json config = nlohmann::json::parse(config_text, nullptr, false);
  const auto made = text::Tokenizer::FromHuggingFace(
      tokenizer_text, config.is_discarded() ? nlohmann::json() : config);
  if (!made.ok()) return ExpectOneLine(made.error());
  const text::Tokenizer& tokenizer = **made;
  for (const std::string_view text :
       {" Hello, world", "", "a\n\n\tb  c", "\xEF\xBF\xBD\xC3\x84o\xCC\x88 \xE2\x96\x81<s>",
        "\xFF\xFE<|eos|>x", "12345 67", "\xF0\x9F\xA6\x99\xE5\xA4\xA9"}) {
    ExpectTokens(tokenizer, tokenizer.Encode(text));
  }
}

// Every component of tests/data, and a byte-level BPE last.
const std::vector<std::unique_ptr<text::Tokenizer>>& Tokenizers() {
  static const std::vector<std::unique_ptr<text::Tokenizer>> tokenizers = [] {
    std::vector<std::unique_ptr<text::Tokenizer>> made;
    const nlohmann::json components =
        nlohmann::json::parse(test::ReadFile(test::DataPath("tokenizers/components.json.xz")));
    for (const nlohmann::json& entry : components) {
      made.push_back(text::Tokenizer::FromHuggingFace(entry["tokenizer"].dump(), nullptr).value());
    }
    made.push_back(text::Tokenizer::FromHuggingFace(
                       test::ReadFile(test::DataPath("models/llama/tokenizer.json")), nullptr)
                       .value());
    return made;
  }();
  return tokenizers;
}

KVASIR_FUZZ_TARGET(tokenizer_text) {
  Numbers numbers(input);
  const auto& tokenizers = Tokenizers();
  const text::Tokenizer& tokenizer = *tokenizers[numbers.Byte() % tokenizers.size()];
  const text::Tokenizer& byte_level = *tokenizers.back();
  const std::string_view text = numbers.rest();
  for (const bool special : {false, true}) {
    const Ids ids =
        tokenizer.Encode(text, {.add_special_tokens = special, .parse_special = special});
    for (const int32_t id : ids) KVASIR_CHECK(id < tokenizer.vocab_size() || id == 0, "{}", id);
    ExpectTokens(tokenizer, ids);
  }
  // A byte-level vocabulary loses nothing.
  std::string lossy;
  text::AppendLossy(text, lossy);
  const Ids ids = byte_level.Encode(text, {.add_special_tokens = false, .parse_special = false});
  KVASIR_CHECK(byte_level.Decode(ids, false) == lossy);
}

// Tokens that no encoder gave: any ids, after a prompt of any ids.
KVASIR_FUZZ_TARGET(detokenizer) {
  Numbers numbers(input);
  const auto& tokenizers = Tokenizers();
  const text::Tokenizer& tokenizer = *tokenizers[numbers.Byte() % tokenizers.size()];
  const bool skip_special = numbers.Byte() % 2 == 0;
  const size_t prompt_count = numbers.Byte() % 8;
  Ids prompt;
  Ids ids;
  while (!numbers.empty()) {
    const int32_t id = static_cast<int16_t>(numbers.Short()) % (tokenizer.vocab_size() + 2);
    (prompt.size() < prompt_count ? prompt : ids).push_back(id);
  }
  text::Detokenizer stream(tokenizer, prompt, skip_special);
  for (const int32_t id : ids) ExpectUtf8(stream.Push(id));
  ExpectUtf8(stream.Flush());
  ExpectUtf8(tokenizer.Decode(ids, skip_special));
}

// What StopMatcher promises, said in the slowest way.
struct NaiveStop {
  size_t end = std::string::npos;  ///< of the match in the text
  size_t index = 0;
};
NaiveStop FindStop(std::string_view text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    NaiveStop found;
    size_t longest = 0;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (stops[i].size() > longest && text.substr(0, end).ends_with(stops[i])) {
        found = {end, i};
        longest = stops[i].size();
      }
    }
    if (found.end != std::string::npos) return found;
  }
  return {};
}

KVASIR_FUZZ_TARGET(stop_matcher) {
  Numbers numbers(input);
  std::vector<std::string> stops;
  const size_t stops_count = numbers.Byte() % 5;
  const bool include_stop = numbers.Byte() % 2 == 1;
  for (size_t i = 0; i < stops_count; ++i) {
    const std::string_view stop = numbers.Text(1 + numbers.Byte() % 8);
    if (!stop.empty()) stops.emplace_back(stop);
  }
  std::vector<std::string_view> pushes;
  std::string text;
  while (!numbers.empty() && text.size() < 4096) {
    pushes.push_back(numbers.Text(numbers.Byte() % 6));
    text += pushes.back();
  }
  text::StopMatcher matcher(stops, include_stop);
  std::string emitted;
  std::optional<size_t> match;
  for (const std::string_view push : pushes) {
    const text::StopMatcher::Output output = matcher.Push(push);
    emitted += output.emit;
    if ((match = output.match)) break;
  }
  if (!match) emitted += matcher.Flush();
  const NaiveStop expected = FindStop(text, stops);
  if (expected.end == std::string::npos) {
    KVASIR_CHECK(!match && emitted == text);
    return;
  }
  KVASIR_CHECK(match && *match == expected.index);
  const size_t end = expected.end - (include_stop ? 0 : stops[expected.index].size());
  KVASIR_CHECK(emitted == text.substr(0, end), "\"{}\" of \"{}\"", emitted, text);
}

}  // namespace
}  // namespace kvasir::fuzz
