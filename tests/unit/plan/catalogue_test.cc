#include <gtest/gtest.h>

#include <string>

#include "plan/hardware.h"
#include "plan/memory.h"
#include "plan/model_shape.h"

namespace kvasir::plan {
namespace {

TEST(CatalogueTest, Prints) {
  for (const ModelListing& listing : ModelCatalogue()) {
    auto shape = FindModelShape(listing.name);
    if (!shape.ok()) {
      ADD_FAILURE() << shape.error().message;
      continue;
    }
    const CacheSpec cache = MakeCacheSpec(*shape, ParseKvFormat("bf16").value(), 1);
    int64_t bytes = 0;
    for (size_t i = 0; i < kPartCount; ++i)
      bytes += PartBytes(*shape, static_cast<Part>(i), shape->shipped);
    std::printf("%-20s %9.3f B active %8.3f B weights %8.2f GB kv %ld groups %zu skipped %.2f\n",
                listing.name.c_str(), (double)shape->ParametersCount() / 1e9,
                (double)shape->ActiveParametersCount() / 1e9, (double)bytes / 1e9,
                cache.block_bytes * (long)cache.groups.size(), cache.groups.size(),
                (double)shape->skipped_values / 1e9);
  }
  for (const Hardware& h : HardwareCatalogue())
    std::printf("%s %g\n", h.name.c_str(), h.bandwidth / 1e9);
}

}  // namespace
}  // namespace kvasir::plan
