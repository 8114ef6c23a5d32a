// The catalogue's files, as the build put them into the binary (cmake/embed.cmake).
#pragma once

#include <string_view>
#include <vector>

namespace kvasir::plan {

struct EmbeddedFile {
  std::string_view name;  ///< without folder and extension: "h100-80gb"
  std::string_view text;  ///< JSON
};

/// src/plan/catalogue/models/*.json and machines/*.json, sorted by name.
extern const std::vector<EmbeddedFile> kModelFiles;
extern const std::vector<EmbeddedFile> kMachineFiles;

}  // namespace kvasir::plan
