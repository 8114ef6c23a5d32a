// What a simulation has seen: of each request, of the steps, of the cache. A plain record, from
// which the summary, the JSON and the HTML page are made. Times are seconds of simulated time since
// the simulation began.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace kvasir::plan {

/// A moment that has not come.
inline constexpr double kNever = -1;

enum class RequestEnd : uint8_t {
  kUnfinished,  ///< the simulation ended first
  kFinished,
  kQueueFull,  ///< refused at the door: 429
  kNeverFits,  ///< refused at the door: longer than the context or the cache
  kWaitedOut,  ///< --max-queue-wait passed before it was admitted
};

struct RequestRecord {
  int64_t session = -1;  ///< conversation that it is a turn of, or -1
  int32_t turn = 0;
  RequestEnd end = RequestEnd::kUnfinished;
  double arrival_s = 0;
  double queued_s = 0;            ///< stood in the queue, or was refused there
  double scheduled_s = kNever;    ///< the first step that it sat in began
  double first_token_s = kNever;  ///< TTFT is first_token_s - arrival_s
  double end_s = kNever;          ///< last token, or refusal
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;  ///< drawn so far
  int64_t cached_tokens = 0;  ///< of the prompt, found in the cache
  int32_t preemptions = 0;
  double itl_max_s = 0;  ///< longest wait between two of its tokens

  [[nodiscard]] double TtftSeconds() const { return first_token_s - arrival_s; }
  [[nodiscard]] double EndToEndSeconds() const { return end_s - arrival_s; }
  /// Mean time between its tokens; 0 where it drew but one.
  [[nodiscard]] double ItlMeanSeconds() const {
    return output_tokens > 1 ? (end_s - first_token_s) / static_cast<double>(output_tokens - 1) : 0;
  }
};

/// The state at one step. Slots are places for one token's keys and values in one group of layers;
/// a pool has blocks * block_tokens of them.
struct StepSample {
  double begin_s = 0;
  double seconds = 0;
  int64_t tokens = 0;         ///< computed in the step
  int64_t decodes = 0;        ///< sequences that drew their next token
  int64_t prompts = 0;        ///< sequences of whose prompt a piece was computed
  int64_t running = 0;        ///< sequences that hold blocks, those that sat out included
  int64_t waiting = 0;        ///< requests in the queue
  int64_t preempted = 0;      ///< sequences sent back to the queue
  int64_t blocks_used = 0;    ///< held by sequences
  int64_t blocks_cached = 0;  ///< held by nobody, but a prefix that may be wanted again
  int64_t blocks_free = 0;
  int64_t slots_filled = 0;  ///< of the blocks held: keys and values that can still be read
  int64_t slots_wasted = 0;  ///< of the blocks held: reserved for later, or no longer readable
};

/// What the sequences of one step did.
struct StepSeat {
  int64_t request = 0;  ///< index into SimulationResult::requests
  int64_t start = 0;    ///< tokens computed before
  int64_t tokens = 0;   ///< computed in this step
  bool draws = false;
};

/// One step in full, for the timeline of the batch. Kept for the first steps only.
struct StepDetail {
  StepSample sample;
  std::vector<StepSeat> seats;
  std::vector<int64_t> sat_out;  ///< requests that run, hold blocks and computed nothing
  std::vector<int64_t> waiting;  ///< requests in the queue, by arrival; at most kWaitingShown
};
inline constexpr size_t kWaitingShown = 256;

/// Who holds a block.
struct BlockView {
  enum class State : uint8_t { kFree, kCached, kUsed };
  State state = State::kFree;
  int32_t references = 0;  ///< sequences that hold it
  int64_t request = -1;    ///< one that holds it: the first in rank
  int32_t filled = 0;      ///< tokens whose keys and values it holds, where used
};

/// The whole pool at one moment, for the map of the cache.
struct CacheSnapshot {
  double at_s = 0;
  std::vector<BlockView> blocks;  ///< 8192 of the pool's at most, at equal distances
};

/// Values of which percentiles are wanted, in bins of 0.55 %: as many as there may be.
class Distribution {
 public:
  void Add(double value, int64_t times = 1);
  [[nodiscard]] int64_t count() const { return count_; }
  [[nodiscard]] double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  [[nodiscard]] double max() const { return max_; }
  /// The value that `share` (0 to 1) of all do not exceed, within 0.55 %; 0 where there is none.
  [[nodiscard]] double Percentile(double share) const;

 private:
  std::vector<int64_t> bins_;
  int64_t count_ = 0;
  double sum_ = 0;
  double max_ = 0;
};

/// What a user is promised. 0: not asked for.
struct ServiceLevel {
  double ttft_s = 0;
  double itl_s = 0;  ///< of the mean time between a request's tokens
  double end_to_end_s = 0;

  [[nodiscard]] bool any() const { return ttft_s > 0 || itl_s > 0 || end_to_end_s > 0; }
  [[nodiscard]] bool Met(const RequestRecord& request) const;
};

struct SimulationResult {
  std::string variant;  ///< of a comparison: "paged", "block-size 32"; else empty

  // What was simulated.
  int64_t block_tokens = 0;
  int64_t block_bytes = 0;
  int64_t blocks_count = 0;
  int64_t groups_count = 1;
  int64_t max_num_seqs = 0;
  int64_t max_num_batched_tokens = 0;
  int64_t max_model_len = 0;
  ServiceLevel slo;

  double end_s = 0;  ///< when the last request ended
  int64_t steps_count = 0;
  int64_t preemptions = 0;
  int64_t prompt_tokens = 0;  ///< of finished prompts
  int64_t cached_tokens = 0;  ///< of those, found in the cache
  int64_t output_tokens = 0;
  double busy_s = 0;   ///< in steps; the rest had nothing to do
  Distribution itl_s;  ///< of every token but each request's first

  // Integrals over the time in steps, for means: divide by busy_s.
  double running_seconds = 0;
  double waiting_seconds = 0;
  double blocks_used_seconds = 0;
  double slots_filled_seconds = 0;
  double slots_wasted_seconds = 0;
  int64_t running_max = 0;
  int64_t waiting_max = 0;
  int64_t blocks_used_max = 0;
  int64_t computed_tokens = 0;    ///< in all steps, what was computed again included
  int64_t recomputed_tokens = 0;  ///< of those, computed before and lost by preemption
  int64_t seats_count = 0;        ///< sequences summed over all steps

  std::vector<RequestRecord> requests;   ///< by arrival
  std::vector<StepSample> steps;         ///< evenly thinned to a few thousand over the whole run
  std::vector<StepDetail> details;       ///< of the first steps, where asked for
  std::vector<CacheSnapshot> snapshots;  ///< over the whole run, where asked for
};

}  // namespace kvasir::plan
