// Lock-free counters. Written where things happen, read by the metrics page at any time; a reader
// never waits for the engine.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace kvasir {

/// Only grows. Any thread.
class Counter {
 public:
  void Add(int64_t amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  [[nodiscard]] int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

/// A value that goes up and down. Any thread.
class Gauge {
 public:
  void Set(double value) { value_.store(value, std::memory_order_relaxed); }
  void Add(double amount) {
    double seen = value_.load(std::memory_order_relaxed);
    while (!value_.compare_exchange_weak(seen, seen + amount, std::memory_order_relaxed)) {
    }
  }
  [[nodiscard]] double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

/// Counts by upper bound, as Prometheus has them. Any thread.
class Histogram {
 public:
  /// `bounds` ascending, without +Inf.
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {
    KVASIR_CHECK(std::is_sorted(bounds_.begin(), bounds_.end()));
  }
  void Observe(double value, int64_t times = 1) {
    const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    counts_[static_cast<size_t>(at)].Add(times);
    sum_.Add(value * static_cast<double>(times));
  }
  [[nodiscard]] const std::vector<double>& bounds() const { return bounds_; }
  /// Observations in bucket i alone (not cumulative); i == bounds().size() is the +Inf bucket.
  [[nodiscard]] int64_t count(size_t i) const { return counts_[i].value(); }
  [[nodiscard]] double sum() const { return sum_.value(); }

 private:
  std::vector<double> bounds_;
  std::vector<Counter> counts_;
  Gauge sum_;
};

}  // namespace kvasir
