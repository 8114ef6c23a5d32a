#include "files/weights.h"

#include "files/printable.h"

namespace kvasir::files {

Result<const TensorView*> Weights::Require(std::string_view name) const {
  const TensorView* view = Find(name);
  if (view != nullptr) return view;
  return MakeError(ErrorCode::kDataLoss,
                   "{}: expected a tensor '{}', found none among its {} tensors", FileOf(name),
                   Printable(name), names().size());
}

}  // namespace kvasir::files
