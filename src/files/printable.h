// Text from outside, made fit for a one-line message.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace kvasir::files {

/// Control characters, backslashes and bytes that are not UTF-8 become \xNN; what is longer than
/// `max_bytes` is cut and ends in "...".
[[nodiscard]] std::string Printable(std::string_view text, size_t max_bytes = 120);

/// A path in full, as Printable.
[[nodiscard]] std::string PrintablePath(const std::filesystem::path& path);

}  // namespace kvasir::files
