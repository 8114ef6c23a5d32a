#include "model/packed_size.h"

#include <string>
#include <vector>

#include "kernels/packed_bytes.h"

namespace kvasir::model {
namespace {

struct Part {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t bytes = 0;
};

std::vector<Part> FindParts(const LinearSource& source, size_t layer,
                            const files::Weights& weights) {
  std::vector<Part> parts;
  for (const LinearSource::Part& part : source.parts) {
    std::string name = part.name + ".weight";
    if (const size_t at = name.find("{}"); at != std::string::npos) {
      name.replace(at, 2, std::to_string(layer));
    }
    const TensorView* view = weights.Find(name);
    if (view != nullptr) parts.push_back({view->dtype, part.rows, view->bytes});
  }
  return parts;
}

// Neighbours of equal dtype become one matrix, as the binder packs them. Where the backend reads
// the stored bytes, a rearranged copy of them takes memory instead.
int64_t LinearBytes(const LinearSource& source, const std::vector<Part>& parts,
                    std::string_view backend) {
  int64_t bytes = 0;
  int64_t copies = 0;
  bool copies_needed = false;
  for (size_t first = 0; first < parts.size();) {
    int64_t rows = 0;
    size_t end = first;
    for (; end < parts.size() && parts[end].dtype == parts[first].dtype; ++end) {
      rows += parts[end].rows;
      copies += parts[end].bytes;
    }
    const int64_t packed = kernels::PackedBytes(backend, parts[first].dtype, rows, source.cols);
    bytes += packed;
    copies_needed = copies_needed || packed == 0;
    first = end;
  }
  const bool rearranged = source.layout != LinearSource::Layout::kRows;
  return bytes + (rearranged && copies_needed ? copies : 0);
}

template <typename Visit>
void ForEachLinear(const Blueprint& blueprint, Visit&& visit) {
  const LayerNames& names = blueprint.names.layer;
  for (size_t layer = 0; layer < blueprint.spec.layers.size(); ++layer) {
    for (const LinearSource* source :
         {&names.qkv, &names.attention_output, &names.ffn_input, &names.ffn_output}) {
      visit(*source, layer);
    }
  }
  if (blueprint.spec.tied_embeddings) return;
  LinearSource head;
  head.parts = {{blueprint.names.head, blueprint.spec.vocab_size}};
  head.cols = blueprint.spec.hidden_size;
  visit(head, 0);
}

const TensorView* Embedding(const Blueprint& blueprint, const files::Weights& weights) {
  return weights.Find(blueprint.names.embedding + ".weight");
}

}  // namespace

int64_t PackedWeightsBytes(const Blueprint& blueprint, const files::Weights& weights,
                           std::string_view backend) {
  int64_t bytes = 0;
  ForEachLinear(blueprint, [&](const LinearSource& source, size_t layer) {
    bytes += LinearBytes(source, FindParts(source, layer, weights), backend);
  });
  const TensorView* table = Embedding(blueprint, weights);
  if (blueprint.spec.tied_embeddings && table != nullptr) {
    bytes += kernels::PackedBytes(backend, table->dtype, blueprint.spec.vocab_size,
                                  blueprint.spec.hidden_size);
  }
  return bytes;
}

int64_t MappedWeightsBytes(const Blueprint& blueprint, const files::Weights& weights,
                           std::string_view backend) {
  int64_t bytes = 0;
  if (backend == "ref") {
    ForEachLinear(blueprint, [&](const LinearSource& source, size_t layer) {
      if (source.layout != LinearSource::Layout::kRows) return;
      for (const Part& part : FindParts(source, layer, weights)) bytes += part.bytes;
    });
  }
  const TensorView* table = Embedding(blueprint, weights);
  if (backend == "ref" && blueprint.spec.tied_embeddings && table != nullptr) bytes += table->bytes;
  return bytes;
}

}  // namespace kvasir::model
