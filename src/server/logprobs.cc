#include "server/logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/json_text.h"

namespace kvasir::server {
namespace {

void AppendBytes(std::string_view bytes, std::string& out) {
  out += '[';
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += ',';
    AppendInt(static_cast<unsigned char>(bytes[i]), out);
  }
  out += ']';
}

void AppendChatToken(const TokenNames& names, TokenId token, float logprob, std::string& out) {
  out += "{\"token\":";
  AppendJsonString(names.Name(token), out);
  out += ",\"logprob\":";
  AppendLogprob(logprob, out);
  out += ",\"bytes\":";
  AppendBytes(names.tokenizer->TokenBytes(token), out);
}

std::span<const std::pair<TokenId, float>> Top(const TokenLogprobs& token, int32_t count) {
  return std::span(token.top).first(
      std::min(token.top.size(), static_cast<size_t>(std::max(count, 0))));
}

}  // namespace

std::string TokenNames::Name(TokenId token) const {
  return as_ids ? fmt::format("token_id:{}", token) : tokenizer->TokenText(token);
}

void AppendChatLogprobs(const TokenNames& names, std::span<const TokenLogprobs> tokens,
                        int32_t top_count, std::string& out) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    const TokenLogprobs& token = tokens[i];
    AppendChatToken(names, token.token, token.logprob, out);
    out += ",\"top_logprobs\":[";
    bool first = true;
    const auto append = [&](TokenId id, float logprob) {
      if (!first) out += ',';
      first = false;
      AppendChatToken(names, id, logprob, out);
      out += '}';
    };
    for (const auto& [id, logprob] : Top(token, top_count)) append(id, logprob);
    for (const auto& [id, logprob] : token.selected) append(id, logprob);
    out += "]}";
  }
}

bool CharacterCounter::Begins(unsigned char byte) {
  if (expected_ > 0 && byte >= least_ && byte <= most_) {
    --expected_;
    least_ = 0x80;
    most_ = 0xBF;
    return false;
  }
  // A new character, or a byte that is none and is shown as U+FFFD.
  expected_ = byte >= 0xF5 || byte < 0xC2 ? 0 : byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
  least_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
  most_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
  return true;
}

void CompletionLogprobs::AddToken(TokenId token) {
  const char* separator = count_ > 0 ? "," : "";
  offsets_ += separator;
  AppendInt(offset_, offsets_);
  tokens_ += separator;
  AppendJsonString(names_.Name(token), tokens_);
  if (!(skip_special_tokens_ && names_.tokenizer->IsSpecial(token))) {
    for (const char c : names_.tokenizer->TokenBytes(token)) {
      offset_ += characters_.Begins(static_cast<unsigned char>(c)) ? 1 : 0;
    }
  }
  logprobs_ += separator;
  tops_ += separator;
  ++count_;
}

void CompletionLogprobs::AddUnknown(TokenId token) {
  AddToken(token);
  logprobs_ += "null";
  tops_ += "null";
}

void CompletionLogprobs::Add(const TokenLogprobs& token) {
  AddToken(token.token);
  AppendLogprob(token.logprob, logprobs_);
  // Two tokens may have the same text; the more probable keeps the place. A token is compared with
  // its own entry by equality (lm-eval's is_greedy), so both are printed from the same float.
  std::vector<std::pair<std::string, float>> entries;
  const auto insert = [&](TokenId id, float logprob) {
    std::string name = names_.Name(id);
    const auto found = std::find_if(entries.begin(), entries.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    if (found == entries.end()) {
      entries.emplace_back(std::move(name), logprob);
    } else {
      found->second = std::max(found->second, logprob);
    }
  };
  insert(token.token, token.logprob);
  for (const auto& [id, logprob] : Top(token, top_count_)) {
    if (id != token.token) insert(id, logprob);
  }
  for (const auto& [id, logprob] : token.selected) {
    if (id != token.token) insert(id, logprob);
  }
  tops_ += '{';
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) tops_ += ',';
    AppendJsonString(entries[i].first, tops_);
    tops_ += ':';
    AppendLogprob(entries[i].second, tops_);
  }
  tops_ += '}';
}

void CompletionLogprobs::Take(std::string& out) {
  out += "{\"text_offset\":[";
  out += offsets_;
  out += "],\"token_logprobs\":[";
  out += logprobs_;
  out += "],\"tokens\":[";
  out += tokens_;
  out += "],\"top_logprobs\":[";
  out += tops_;
  out += "]}";
  count_ = 0;
  offsets_.clear();
  logprobs_.clear();
  tokens_.clear();
  tops_.clear();
}

void AppendPromptLogprobs(const TokenNames& names, std::span<const TokenLogprobs> positions,
                          int32_t top_count, std::string& out) {
  out += "[null";
  for (const TokenLogprobs& position : positions) {
    out += ",{";
    const auto append = [&](TokenId id, float logprob, int32_t rank, bool first) {
      if (!first) out += ',';
      fmt::format_to(std::back_inserter(out), "\"{}\":{{\"logprob\":", id);
      AppendLogprob(logprob, out);
      fmt::format_to(std::back_inserter(out), ",\"rank\":{},\"decoded_token\":", rank);
      AppendJsonString(names.tokenizer->TokenText(id), out);
      out += '}';
    };
    append(position.token, position.logprob, position.rank, true);
    int32_t rank = 0;
    for (const auto& [id, logprob] : Top(position, top_count)) {
      ++rank;
      if (id != position.token) append(id, logprob, rank, false);
    }
    out += '}';
  }
  out += ']';
}

}  // namespace kvasir::server
