#include "model/spec.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace kvasir::model {
namespace {

int64_t LayerKvValues(const LayerSpec& layer) {
  return std::visit([](const auto& attention) { return 2 * attention.KvCols(); }, layer.attention);
}

}  // namespace

int64_t ModelSpec::KvValuesPerTokenLayer() const {
  int64_t most = 0;
  for (const LayerSpec& layer : layers) most = std::max(most, LayerKvValues(layer));
  return most;
}

int64_t ModelSpec::KvBlockBytes(int64_t block_tokens, DType kv_dtype) const {
  return block_tokens * layers_per_group * RowBytes(kv_dtype, KvValuesPerTokenLayer());
}

int64_t ModelSpec::KvBytesPerToken(DType kv_dtype) const {
  return static_cast<int64_t>(cache_groups.size()) * KvBlockBytes(1, kv_dtype);
}

void AssignCacheGroups(ModelSpec& spec) {
  std::vector<CacheGroup> kinds;  // one a distinct mask, with all its layers
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const MaskSpec& mask = spec.layers[i].gqa().mask;
    auto kind = std::find_if(kinds.begin(), kinds.end(),
                             [&](const CacheGroup& group) { return group.mask == mask; });
    if (kind == kinds.end()) {
      kinds.push_back(CacheGroup{CacheKind::kPagedKv, mask, {}});
      kind = kinds.end() - 1;
    }
    kind->layers.push_back(static_cast<int>(i));
  }
  KVASIR_CHECK(!kinds.empty());

  size_t common = 0;
  size_t smallest = spec.layers.size();
  for (const CacheGroup& kind : kinds) {
    common = std::gcd(common, kind.layers.size());
    smallest = std::min(smallest, kind.layers.size());
  }
  const auto slots_with = [&](size_t size) {
    size_t slots = 0;
    for (const CacheGroup& kind : kinds) slots += (kind.layers.size() + size - 1) / size * size;
    return slots;
  };
  size_t size = smallest;
  while (size > common && (slots_with(size) - spec.layers.size()) * 8 > slots_with(size)) --size;

  spec.cache_groups.clear();
  spec.layers_per_group = static_cast<int64_t>(size);
  for (const CacheGroup& kind : kinds) {
    for (size_t first = 0; first < kind.layers.size(); first += size) {
      const auto begin = kind.layers.begin() + static_cast<std::ptrdiff_t>(first);
      const auto end = kind.layers.begin() +
                       static_cast<std::ptrdiff_t>(std::min(first + size, kind.layers.size()));
      spec.cache_groups.push_back(CacheGroup{kind.kind, kind.mask, {begin, end}});
    }
  }
}

}  // namespace kvasir::model
