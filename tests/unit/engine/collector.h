// A listener that keeps what it hears and lets a test wait for the end.
#pragma once

#include <condition_variable>
#include <mutex>
#include <vector>

#include "contract/request.h"

namespace kvasir::test {

class Collector final : public RequestListener {
 public:
  explicit Collector(int32_t n = 1) : n_(n) {}

  void OnEvent(TokenEvent event) override {
    {
      const std::lock_guard lock(mutex_);
      if (event.finish != FinishReason::kNone) ++ended_;
      events_.push_back(std::move(event));
    }
    changed_.notify_all();
  }

  void WaitForEnd() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ >= n_; });
  }
  void WaitForEvents(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return events_.size() >= count; });
  }
  [[nodiscard]] bool ended() const {
    const std::lock_guard lock(mutex_);
    return ended_ >= n_;
  }
  [[nodiscard]] std::vector<TokenEvent> events() const {
    const std::lock_guard lock(mutex_);
    return events_;
  }
  [[nodiscard]] std::vector<TokenId> Tokens(int32_t index = 0) const {
    std::vector<TokenId> tokens;
    for (const TokenEvent& event : events()) {
      if (event.index == index && event.token.has_value()) tokens.push_back(*event.token);
    }
    return tokens;
  }
  /// The last event of a choice; default-made where there is none.
  [[nodiscard]] TokenEvent Last(int32_t index = 0) const {
    TokenEvent last;
    for (const TokenEvent& event : events()) {
      if (event.index == index) last = event;
    }
    return last;
  }

 private:
  int32_t n_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenEvent> events_;
  int32_t ended_ = 0;
};

}  // namespace kvasir::test
