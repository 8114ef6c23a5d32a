#include "runner/kv_storage.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/cpu.h"

namespace kvasir::runner {
namespace {

TEST(KvStorageTest, TakesMemoryOnlyAsItIsTouched) {
  constexpr int64_t kMiB = 1 << 20;
  const int64_t before = ResidentMemoryBytes();
  const auto storage = std::move(KvStorage::Create(64 * 1024, kMiB)).value();  // 64 GiB
  std::memset(storage->base() + 7 * kMiB, 1, kMiB);
  std::memset(storage->base() + 60'000 * kMiB, 1, kMiB);
  const int64_t grown = ResidentMemoryBytes() - before;
  EXPECT_GE(grown, 2 * kMiB);
  EXPECT_LT(grown, 16 * kMiB);
}

TEST(KvStorageTest, CopiesWholeBlocks) {
  const auto storage = std::move(KvStorage::Create(4, 1000)).value();
  for (int i = 0; i < 1000; ++i) storage->base()[2000 + i] = static_cast<std::byte>(i % 251);
  storage->CopyBlock(2, 0);
  EXPECT_EQ(std::memcmp(storage->base(), storage->base() + 2000, 1000), 0);
  EXPECT_EQ(storage->base()[1000], std::byte{0});
  EXPECT_EQ(storage->base()[999], static_cast<std::byte>(999 % 251));
}

TEST(KvStorageTest, RefusesWhatNoAddressSpaceHolds) {
  EXPECT_FALSE(KvStorage::Create(INT64_MAX / 2, 16).ok());
  EXPECT_EQ(KvStorage::Create(int64_t{1} << 40, int64_t{1} << 20).error().code,
            ErrorCode::kResourceExhausted);
}

TEST(KvStorageDeathTest, ABlockThatIsNotThereIsABrokenPromise) {
  const auto storage = std::move(KvStorage::Create(4, 1000)).value();
  EXPECT_DEATH(storage->CopyBlock(4, 0), "block 4 of 4");
  EXPECT_DEATH(storage->CopyBlock(0, kNoBlock), "block -1 of 4");
}

}  // namespace
}  // namespace kvasir::runner
