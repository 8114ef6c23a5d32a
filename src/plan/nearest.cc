#include "plan/nearest.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "files/printable.h"

namespace kvasir::plan {
Error UnknownName(std::string_view field, std::string_view name,
                  const std::vector<std::string>& known, std::string_view wanted) {
  constexpr size_t kShownNames = 3;
  constexpr size_t kShownMax = 60;
  const std::string shown = files::Printable(name, kShownMax);
  std::vector<std::pair<size_t, std::string_view>> nearest;
  nearest.reserve(known.size());
  for (const std::string& word : known) nearest.emplace_back(EditDistance(shown, word), word);
  std::sort(nearest.begin(), nearest.end());
  std::string words;
  for (size_t i = 0; i < std::min(kShownNames, nearest.size()); ++i) {
    words += (i == 0 ? "" : ", ") + std::string(nearest[i].second);
  }
  return MakeParamError(ErrorCode::kNotFound, std::string(field),
                        "{}: expected {}, got '{}'; nearest: {} (--list shows all)", field, wanted,
                        shown, words);
}

}  // namespace kvasir::plan
