// ShareGPT's conversations: a list of {id, conversations: [{from, value}, ...]}. Read as a stream,
// because the files have hundreds of megabytes.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "files/json.h"
#include "plan/simulate/trace_rows.h"

namespace kvasir::plan {
namespace {

using Json = nlohmann::json;

constexpr int kDepthMax = 16;
constexpr size_t kTurnsMax = 10'000;

bool IsAnswerer(std::string_view from) {
  return from == "gpt" || from == "chatgpt" || from == "assistant" || from == "bing" ||
         from == "bard";
}

struct Message {
  std::string from;
  int64_t tokens = 0;
};

// The parser calls for each piece of JSON. The list has depth 1, a conversation 2, its list of
// messages 3, a message 4.
class Reader final : public nlohmann::json_sax<Json> {
 public:
  explicit Reader(TraceRows& rows) : rows_(rows), rng_(rows.options().seed) {}

  bool null() override { return Scalar(nullptr); }
  bool boolean(bool) override { return Scalar(nullptr); }
  bool number_integer(number_integer_t) override { return Scalar(nullptr); }
  bool number_unsigned(number_unsigned_t) override { return Scalar(nullptr); }
  bool number_float(number_float_t, const string_t&) override { return Scalar(nullptr); }
  bool string(string_t& text) override { return Scalar(&text); }
  bool binary(binary_t&) override { return Scalar(nullptr); }
  bool key(string_t& name) override {
    if (depth_ == 2) conversations_key_ = name == "conversations" || name == "conversation";
    if (depth_ == 4) key_ = name;
    return true;
  }

  bool start_object(size_t) override {
    if (depth_ == 0) return Refuse("a list of conversations, got an object");
    if (depth_ == 1) BeginConversation();
    if (depth_ == 3 && in_messages_) message_ = Message{};
    return Deeper();
  }
  bool end_object() override {
    --depth_;
    if (depth_ == 3 && in_messages_) messages_.push_back(std::move(message_));
    if (depth_ == 1) return EndConversation();
    return messages_.size() <= kTurnsMax || Refuse("conversations of at most 10000 messages");
  }
  bool start_array(size_t) override {
    if (depth_ == 2 && conversations_key_) in_messages_ = found_messages_ = true;
    return Deeper();
  }
  bool end_array() override {
    --depth_;
    if (depth_ == 2) in_messages_ = false;
    return true;
  }

  bool parse_error(size_t at, const std::string&,
                   const nlohmann::detail::exception& exception) override {
    error_ = MakeError(ErrorCode::kDataLoss, "{}, byte {}: expected JSON, got: {}", rows_.name(),
                       at, Quoted(files::JsonReason(exception)));
    return false;
  }

  /// Of the whole file, where reading ended early; ending at the limit is none.
  [[nodiscard]] Status status() const { return error_; }

 private:
  bool Refuse(std::string_view expected) {
    error_ = MakeError(ErrorCode::kDataLoss, "{}: expected {}", rows_.name(), expected);
    return false;
  }

  bool Deeper() {
    if (++depth_ <= kDepthMax) return true;
    return Refuse(fmt::format("at most {} levels of JSON, got more", kDepthMax));
  }

  bool Scalar(const std::string* text) {
    if (depth_ == 0) return Refuse("a list of conversations, got a value");
    if (depth_ == 1) {
      BeginConversation();
      return EndConversation();
    }
    if (depth_ != 4 || !in_messages_ || text == nullptr) return true;
    if (key_ == "from" || key_ == "role") message_.from = *text;
    if (key_ == "value" || key_ == "content") message_.tokens = Count(*text);
    return true;
  }

  [[nodiscard]] int64_t Count(const std::string& text) const {
    if (rows_.options().count_tokens) return rows_.options().count_tokens(text);
    int64_t characters = 0;
    for (const char c : text) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
    return std::llround(
        std::ceil(static_cast<double>(characters) * rows_.options().tokens_per_character));
  }

  void BeginConversation() {
    ++conversation_;
    rows_.set_where(fmt::format("conversation {}", conversation_));
    messages_.clear();
    found_messages_ = false;
  }

  // False ends the reading.
  bool EndConversation() {
    rows_.CountRow();
    if (!found_messages_) {
      rows_.Complain("expected the field 'conversations' with a list, found none");
      return true;
    }
    // A Poisson process: the file has no times.
    arrival_s_ += -std::log(1.0 - rng_.Uniform()) / rows_.options().conversations_per_s;
    int64_t history = 0;
    bool first = true;
    int64_t asked = 0;
    for (const Message& message : messages_) {
      // A system prompt is part of what the next answer is asked of, as a question is.
      if (!IsAnswerer(message.from)) {
        asked += message.tokens;
        continue;
      }
      if (history + asked >= 1 && message.tokens >= 1 &&
          history + asked + message.tokens <= kTraceTokensMax) {
        if (rows_.full()) {
          rows_.NoteCutOff();
          return false;
        }
        TraceRequest request;
        request.arrival_s = arrival_s_;
        request.prompt_tokens = history + asked;
        request.output_tokens = message.tokens;
        request.session = session_;
        request.think_s = first ? -1 : rows_.options().think_s;
        rows_.Take(std::move(request));
        first = false;
      }
      history += asked + message.tokens;
      asked = 0;
    }
    if (first) {
      rows_.NoteFailed();
    } else {
      ++session_;
    }
    return true;
  }

  TraceRows& rows_;
  Rng rng_;
  Status error_;
  int depth_ = 0;
  bool conversations_key_ = false;
  bool in_messages_ = false;
  bool found_messages_ = false;
  std::string key_;
  Message message_;
  std::vector<Message> messages_;
  int64_t conversation_ = 0;
  int64_t session_ = 0;
  double arrival_s_ = 0;
};

}  // namespace

Status ReadShareGpt(TraceRows& rows) {
  rows.NoteTimesDrawn();
  Reader reader(rows);
  Json::sax_parse(rows.input(), &reader);
  return reader.status();
}

}  // namespace kvasir::plan
