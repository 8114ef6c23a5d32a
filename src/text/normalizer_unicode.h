// Unicode normalization forms over utf8proc, touching only what is not normalized already.
#pragma once

#include <string>
#include <string_view>

namespace kvasir::text {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

/// Returns `text` itself where it is in the form already, else fills `out` (empty before) and
/// returns it. `text` is valid UTF-8.
[[nodiscard]] std::string_view Normalize(NormalForm form, std::string_view text, std::string& out);

}  // namespace kvasir::text
