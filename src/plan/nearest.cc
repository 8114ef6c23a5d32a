#include "plan/nearest.h"

#include <algorithm>
#include <numeric>

#include "files/printable.h"

namespace kvasir::plan {
namespace {

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

Error UnknownName(std::string_view field, std::string_view name,
                  const std::vector<std::string>& known, std::string_view wanted) {
  constexpr size_t kShownNames = 3;
  constexpr size_t kShownMax = 60;
  const std::string shown = files::Printable(name, kShownMax);
  std::vector<std::pair<size_t, std::string_view>> nearest;
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
