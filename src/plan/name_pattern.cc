#include "plan/name_pattern.h"

#include <pcre2.h>

#include <memory>

namespace kvasir::plan {
namespace {

constexpr uint32_t kStepsMost = 100'000;

using Code = std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)>;
using Data = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;
using Limits = std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)>;

PCRE2_SPTR Bytes(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());  // NOLINT(*-reinterpret-cast)
}

}  // namespace

bool FindsPattern(const std::string& pattern, std::string_view name, bool anchored) {
  int error = 0;
  PCRE2_SIZE error_at = 0;
  const Code code(pcre2_compile(Bytes(pattern), pattern.size(), anchored ? PCRE2_ANCHORED : 0U,
                                &error, &error_at, nullptr),
                  &pcre2_code_free);
  if (code == nullptr) return false;
  const Data data(pcre2_match_data_create_from_pattern(code.get(), nullptr),
                  &pcre2_match_data_free);
  const Limits limits(pcre2_match_context_create(nullptr), &pcre2_match_context_free);
  if (data == nullptr || limits == nullptr) return false;
  pcre2_set_match_limit(limits.get(), kStepsMost);
  pcre2_set_depth_limit(limits.get(), kStepsMost);
  return pcre2_match(code.get(), Bytes(name), name.size(), 0, 0, data.get(), limits.get()) >= 0;
}

}  // namespace kvasir::plan
