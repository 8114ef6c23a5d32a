// One choice on its way out: token → detokenizer → stop matcher → text that may be sent.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "contract/request.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace kvasir::server {

/// What the text of a choice depends on, beside its tokens.
struct OutputOptions {
  std::vector<std::string> stop;
  bool include_stop = false;  ///< stop strings and tokens stay in the text
  bool skip_special_tokens = true;
  int64_t min_tokens = 0;              ///< stop strings are not looked for before
  std::optional<TokenId> primary_eos;  ///< ends without a stop_reason
};

/// null, the stop string, or the stop token.
using StopReason = std::variant<std::monostate, std::string, TokenId>;

/// How a choice ended, in the API's words.
struct Finish {
  std::string_view reason;  ///< "stop" or "length"
  StopReason stop_reason;
};

/// What one event added.
struct OutputStep {
  std::string text;              ///< whole characters; no part of a stop string
  std::optional<Finish> finish;  ///< the choice is complete
  bool stop_string = false;      ///< it ended by a stop string: the engine does not know yet
};

/// Streamed or not, the texts of all steps together are the same.
class ChoiceOutput {
 public:
  /// `tokenizer` must outlive this. `prompt`: the tokens before the choice.
  ChoiceOutput(const text::Tokenizer& tokenizer, std::span<const TokenId> prompt,
               const OutputOptions& options);

  /// A token event (finish kNone, kStop or kLength). Not after a finish.
  [[nodiscard]] OutputStep Push(const TokenEvent& event);

  [[nodiscard]] int64_t tokens_count() const { return tokens_count_; }
  [[nodiscard]] bool finished() const { return finished_; }

 private:
  void PushText(std::string_view text, OutputStep& step);

  text::Detokenizer detokenizer_;
  text::StopMatcher matcher_;
  std::vector<std::string> stop_;
  bool include_stop_;
  int64_t min_tokens_;
  std::optional<TokenId> primary_eos_;
  int64_t tokens_count_ = 0;
  bool finished_ = false;
};

/// "stop_reason" as JSON.
void AppendStopReason(const StopReason& reason, std::string& out);

}  // namespace kvasir::server
