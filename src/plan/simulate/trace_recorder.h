// Writes a trace of what a server is asked, to simulate it later: when, how many tokens, and which
// prompts begin alike. Never content: blocks of tokens have names made with a key that is drawn at
// the start, kept in memory alone, and forgotten at the end.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "contract/types.h"
#include "engine/request_observer.h"
#include "plan/simulate/sip_hash.h"

namespace kvasir::plan {

/// A request as it leaves the engine thread.
struct EndedRequest {
  TimeNs arrival = 0;  ///< engine clock
  int64_t prompt_tokens = 0;
  std::vector<TokenId> tokens;   ///< prompt and the first answer, as far as computed
  std::vector<int64_t> outputs;  ///< tokens drawn, of each choice
  std::string cache_salt;
};

/// Makes a request's lines. One thread.
class TraceLines {
 public:
  TraceLines(const SipKey& key, int64_t block_tokens);

  /// A line for each choice, in the form that ReadTrace takes as mooncake. `timestamp_ms` is of the
  /// arrival. A prompt that begins with an earlier prompt and its answer is a turn of its session.
  [[nodiscard]] std::string Write(const EndedRequest& request, double timestamp_ms);

 private:
  struct Open {
    int64_t session = 0;
    uint64_t order = 0;
  };
  [[nodiscard]] uint64_t Name(uint64_t parent, const TokenId* tokens) const;
  int64_t TakeSession(const std::vector<uint64_t>& names);
  void Remember(uint64_t tail, int64_t session);

  const SipKey key_;
  const int64_t block_tokens_;
  std::unordered_map<uint64_t, Open> open_;  ///< conversations by the name of their last block
  std::deque<std::pair<uint64_t, uint64_t>> oldest_;  ///< order and name, to bound them
  uint64_t order_ = 0;
  int64_t next_session_ = 0;
};

/// The engine thread copies what it has into a bounded queue; a thread of its own does the rest.
/// Where the disk does not keep up, requests are left out and counted.
class TraceRecorder final : public engine::RequestObserver {
 public:
  /// Appends to `path`, which others cannot read where it is new.
  [[nodiscard]] static Result<std::unique_ptr<TraceRecorder>> Open(const std::string& path,
                                                                   int64_t block_tokens);
  /// Writes what waits.
  ~TraceRecorder() override;
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  void OnEnd(const engine::RequestState& request) override;

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  TraceRecorder(std::string path, std::FILE* file, int64_t block_tokens);
  void Main();
  void WriteLines(const std::string& lines);

  const std::string path_;
  const std::unique_ptr<std::FILE, Closer> file_;
  TraceLines lines_;
  double engine_to_epoch_ms_ = 0;  ///< to add to an arrival's milliseconds
  bool failed_ = false;            ///< of the writing thread
  std::mutex mutex_;
  std::condition_variable wake_;
  // Under the mutex:
  std::vector<EndedRequest> queue_;
  size_t queue_tokens_ = 0;
  int64_t left_out_count_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kvasir::plan
