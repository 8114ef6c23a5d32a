#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kvasir::text {
namespace {

/// How much of `text` is matched after `byte`, if `matched` bytes were before it.
size_t Advance(const std::string& text, const std::vector<size_t>& borders, size_t matched,
               char byte) {
  while (matched > 0 && (matched == text.size() || text[matched] != byte)) {
    matched = borders[matched - 1];
  }
  return text[matched] == byte ? matched + 1 : matched;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : include_stop_(include_stop) {
  for (std::string& text : stops) {
    KVASIR_CHECK(!text.empty(), "an empty stop string");
    std::vector<size_t> borders(text.size(), 0);
    for (size_t i = 1; i < text.size(); ++i) {
      borders[i] = Advance(text, borders, borders[i - 1], text[i]);
    }
    stops_.push_back({std::move(text), std::move(borders), 0});
  }
}

StopMatcher::Output StopMatcher::Push(std::string_view text) {
  KVASIR_CHECK(!done_, "text after a stop string");
  Output output;
  if (stops_.empty()) {
    output.emit = text;
    return output;
  }
  for (const char byte : text) {
    held_ += byte;
    for (size_t i = 0; i < stops_.size(); ++i) {
      Stop& stop = stops_[i];
      stop.matched = Advance(stop.text, stop.borders, stop.matched, byte);
      const bool longer =
          !output.match.has_value() || stop.text.size() > stops_[*output.match].text.size();
      if (stop.matched == stop.text.size() && longer) output.match = i;
    }
    if (output.match.has_value()) {
      if (!include_stop_) held_.resize(held_.size() - stops_[*output.match].text.size());
      output.emit = std::exchange(held_, {});
      done_ = true;
      return output;
    }
  }
  size_t keep = 0;
  for (const Stop& stop : stops_) keep = std::max(keep, stop.matched);
  output.emit = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return output;
}

std::string StopMatcher::Flush() { return std::exchange(held_, {}); }

}  // namespace kvasir::text
