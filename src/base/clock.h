// Time as seen by the engine: monotonic, injectable, so that simulations own their clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace kvasir {

/// Nanoseconds since an arbitrary start; only differences mean something.
using TimeNs = int64_t;

inline constexpr TimeNs kNsPerMs = 1'000'000;
inline constexpr TimeNs kNsPerSecond = 1'000'000'000;

[[nodiscard]] constexpr double ToSeconds(TimeNs ns) { return static_cast<double>(ns) * 1e-9; }

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual TimeNs Now() const = 0;
};

/// std::chrono::steady_clock. Any thread.
class SteadyClock final : public Clock {
 public:
  [[nodiscard]] TimeNs Now() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

/// A clock that moves when told to. One thread, or externally synchronized.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] TimeNs Now() const override { return now_; }
  void Advance(TimeNs delta) { now_ += delta; }

 private:
  TimeNs now_ = 0;
};

}  // namespace kvasir
