// What operator new was asked for, in test programs where one source file includes counting_new.h.
#pragma once

#include <atomic>
#include <cstdint>

namespace kvasir::test {

inline std::atomic<int64_t> allocated_bytes{0};  ///< ever asked for
inline std::atomic<int64_t> live_bytes{0};
inline std::atomic<int64_t> peak_bytes{0};  ///< the most that were live since ResetPeak

inline void ResetPeak() { peak_bytes = live_bytes.load(); }

}  // namespace kvasir::test
