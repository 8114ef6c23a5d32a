// What the process says with its exit code. Documented in docs/flags.md.
#pragma once

namespace kvasir::app {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  ///< the input was understood, but could not be done
inline constexpr int kExitUsage = 2;   ///< wrong flags or arguments
inline constexpr int kExitModel = 3;   ///< the model, or a file that a flag names, cannot be used
inline constexpr int kExitListen = 4;  ///< the address, socket or certificate cannot be used

}  // namespace kvasir::app
