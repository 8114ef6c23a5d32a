// The `attribute` argument of filters: a name, a dotted path ("a.b.0"), or a number.
#pragma once

#include <vector>

#include "text/jinja/runtime.h"

namespace kvasir::text::jinja {

class Selector {
 public:
  /// `attribute` missing or none: selects the item itself. `fallback` stands for what is undefined,
  /// unless it is missing or none.
  Selector(Runtime& runtime, const Value& attribute, Value fallback = {});
  [[nodiscard]] Value Select(Runtime& runtime, const Value& item) const;

 private:
  std::vector<Value> path_;
  Value fallback_;
};

}  // namespace kvasir::text::jinja
