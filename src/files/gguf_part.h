// One GGUF file as it lies on disk: header, metadata, tensor table. Nothing in it is believed
// before it is checked against the bytes that are there.
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "files/gguf.h"
#include "files/mapped_file.h"
#include "files/tensor_table.h"

namespace kvasir::files {

struct GgufPart {
  int version = 0;
  GgufMetadata metadata;  ///< strings point into the mapped file
  std::vector<TableEntry> entries;
};

/// Reads `file`; its tensors get `file_number`. Linear in the size of metadata and tensor table.
[[nodiscard]] Result<GgufPart> ReadGgufPart(const MappedFile& file, size_t file_number);

}  // namespace kvasir::files
