#include "plan/nearest.h"

#include <algorithm>
#include <tuple>

#include "base/strings.h"
#include "files/printable.h"

namespace kvasir::plan {
Error UnknownName(std::string_view field, std::string_view name,
                  const std::vector<std::string>& known, std::string_view wanted) {
  constexpr size_t kShownNames = 3;
  constexpr size_t kShownMax = 60;
  const std::string shown = files::Printable(name, kShownMax);
  const std::string lower = LowerCase(shown);
  // Those that the word begins come first: a family's name for its members.
  std::vector<std::tuple<bool, size_t, std::string_view>> nearest;
  nearest.reserve(known.size());
  for (const std::string& word : known) {
    nearest.emplace_back(!word.starts_with(lower), EditDistance(lower, word), word);
  }
  std::sort(nearest.begin(), nearest.end());
  std::string words;
  for (size_t i = 0; i < std::min(kShownNames, nearest.size()); ++i) {
    words += (i == 0 ? "" : ", ") + std::string(std::get<2>(nearest[i]));
  }
  return MakeParamError(ErrorCode::kNotFound, std::string(field),
                        "{}: expected {}, got '{}'; nearest: {} (--list shows all)", field, wanted,
                        shown, words);
}

}  // namespace kvasir::plan
