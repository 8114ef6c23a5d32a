#include "plan/simulate/trace_recorder.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <span>
#include <utility>

#include "base/log.h"
#include "engine/request_state.h"

namespace kvasir::plan {
namespace {

constexpr size_t kQueueTokensMax = size_t{16} << 20;
constexpr size_t kSessionsMax = 100'000;
// Names are below 2^53, which every reader of JSON takes exactly.
constexpr int kNameShift = 11;

SipKey RandomKey() {
  std::random_device device;
  const auto word = [&] { return uint64_t{device()} << 32 | device(); };
  return SipKey{word(), word()};
}

}  // namespace

TraceLines::TraceLines(const SipKey& key, int64_t block_tokens)
    : key_(key),
      block_tokens_(block_tokens),
      // Numbers of its own for every run that appends to one file.
      next_session_(static_cast<int64_t>(SipHash(key, {}) >> 24 << 12)) {}

uint64_t TraceLines::Name(uint64_t parent, const TokenId* tokens) const {
  const auto count = static_cast<size_t>(block_tokens_);
  std::vector<std::byte> bytes(sizeof(parent) + count * sizeof(TokenId));
  std::memcpy(bytes.data(), &parent, sizeof(parent));
  std::memcpy(bytes.data() + sizeof(parent), tokens, count * sizeof(TokenId));
  return SipHash(key_, bytes) >> kNameShift;
}

int64_t TraceLines::TakeSession(const std::vector<uint64_t>& names) {
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    const auto found = open_.find(*name);
    if (found == open_.end()) continue;
    const int64_t session = found->second.session;
    open_.erase(found);
    return session;
  }
  return next_session_++;
}

void TraceLines::Remember(uint64_t tail, int64_t session) {
  open_[tail] = Open{session, ++order_};
  oldest_.emplace_back(order_, tail);
  while (open_.size() > kSessionsMax || oldest_.size() > 2 * kSessionsMax) {
    const auto [order, name] = oldest_.front();
    oldest_.pop_front();
    const auto found = open_.find(name);
    if (found != open_.end() && found->second.order == order) open_.erase(found);
  }
}

std::string TraceLines::Write(const EndedRequest& request, double timestamp_ms) {
  const std::span<const char> salt = request.cache_salt;
  uint64_t name = SipHash(key_, std::as_bytes(salt)) >> kNameShift;
  const auto blocks_count = static_cast<int64_t>(request.tokens.size()) / block_tokens_;
  const int64_t prompt_blocks = std::min(request.prompt_tokens / block_tokens_, blocks_count);
  std::vector<uint64_t> names;
  for (int64_t block = 0; block < prompt_blocks; ++block) {
    name = Name(name, request.tokens.data() + block * block_tokens_);
    names.push_back(name);
  }
  const int64_t session = TakeSession(names);
  // Where the answer filled a block, the next turn can be known by it.
  for (int64_t block = prompt_blocks; block < blocks_count; ++block) {
    name = Name(name, request.tokens.data() + block * block_tokens_);
  }
  if (blocks_count > prompt_blocks) Remember(name, session);

  std::string lines;
  for (size_t choice = 0; choice < request.outputs.size(); ++choice) {
    lines += fmt::format(
        "{{\"timestamp\": {:.3f}, \"input_length\": {}, \"output_length\": {}, \"block_size\": {}, "
        "\"hash_ids\": [{}]",
        timestamp_ms, request.prompt_tokens, request.outputs[choice], block_tokens_,
        fmt::join(names, ", "));
    if (choice == 0) lines += fmt::format(", \"session\": {}", session);
    lines += "}\n";
  }
  return lines;
}

Result<std::unique_ptr<TraceRecorder>> TraceRecorder::Open(const std::string& path,
                                                           int64_t block_tokens) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  std::FILE* file = descriptor < 0 ? nullptr : fdopen(descriptor, "a");
  if (file == nullptr) {
    const Error error =
        MakeError(ErrorCode::kIo, "{}: cannot be written: {}", path, std::strerror(errno));
    if (descriptor >= 0) close(descriptor);
    return error;
  }
  return std::unique_ptr<TraceRecorder>(new TraceRecorder(path, file, block_tokens));
}

TraceRecorder::TraceRecorder(std::string path, std::FILE* file, int64_t block_tokens)
    : path_(std::move(path)), file_(file), lines_(RandomKey(), block_tokens) {
  using std::chrono::duration;
  using std::chrono::system_clock;
  const double epoch_ms =
      duration<double, std::milli>(system_clock::now().time_since_epoch()).count();
  engine_to_epoch_ms_ = epoch_ms - 1e3 * ToSeconds(SteadyClock().Now());
  thread_ = std::thread([this] { Main(); });
}

TraceRecorder::~TraceRecorder() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
  if (left_out_count_ > 0) {
    LogWarning("{}: {} requests were left out of the trace: writing did not keep up", path_,
               left_out_count_);
  }
}

void TraceRecorder::OnEnd(const engine::RequestState& request) {
  // How long the answer of a request that never began would have been, nobody knows.
  if (!request.prompt_done) return;
  EndedRequest ended;
  ended.arrival = request.arrival;
  ended.prompt_tokens = request.prompt_count();
  for (const engine::Choice& choice : request.choices) {
    // A prompt that was only scored is as much work as one that draws a single token.
    ended.outputs.push_back(std::max<int64_t>(1, choice.output_count));
  }
  ended.cache_salt = request.request.cache_salt;
  const auto& lead = request.choices.front().sequence;
  ended.tokens = lead != nullptr ? lead->tokens : request.request.prompt;
  const std::lock_guard lock(mutex_);
  if (queue_tokens_ + ended.tokens.size() > kQueueTokensMax) {
    ++left_out_count_;
    return;
  }
  queue_tokens_ += ended.tokens.size();
  queue_.push_back(std::move(ended));
  wake_.notify_one();
}

void TraceRecorder::Main() {
  std::vector<EndedRequest> requests;
  for (bool stop = false; !stop;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      requests.swap(queue_);
      queue_tokens_ = 0;
      stop = stopping_;
    }
    std::string lines;
    for (const EndedRequest& request : requests) {
      lines += lines_.Write(request, engine_to_epoch_ms_ + 1e3 * ToSeconds(request.arrival));
    }
    requests.clear();
    WriteLines(lines);
  }
}

void TraceRecorder::WriteLines(const std::string& lines) {
  if (failed_ || lines.empty()) return;
  if (std::fwrite(lines.data(), 1, lines.size(), file_.get()) == lines.size() &&
      std::fflush(file_.get()) == 0) {
    return;
  }
  failed_ = true;
  LogError("{}: the trace ends here: {}", path_, std::strerror(errno));
}

}  // namespace kvasir::plan
