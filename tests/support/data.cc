#include "support/data.h"

#include <lzma.h>

#include <fstream>
#include <sstream>

namespace kvasir::test {

std::filesystem::path DataPath(const std::string& relative) {
  return std::filesystem::path(KVASIR_SOURCE_DIR) / "tests/data" / relative;
}

std::filesystem::path SharedPath(const std::string& relative) {
  const char* named = std::getenv("KVASIR_SHARED_DATA");
  const std::filesystem::path root =
      named != nullptr ? named : std::filesystem::path(KVASIR_SOURCE_DIR) / "../shared/data";
  const std::filesystem::path path = root / relative;
  return std::filesystem::exists(path) ? path : std::filesystem::path();
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream stream;
  stream << file.rdbuf();
  std::string bytes = stream.str();
  if (path.extension() != ".xz") return bytes;
  lzma_stream decoder = LZMA_STREAM_INIT;
  EXPECT_EQ(lzma_stream_decoder(&decoder, UINT64_MAX, 0), LZMA_OK);
  std::string unpacked;
  std::string chunk(1 << 20, '\0');
  decoder.next_in = reinterpret_cast<const uint8_t*>(bytes.data());
  decoder.avail_in = bytes.size();
  lzma_ret state = LZMA_OK;
  while (state == LZMA_OK) {
    decoder.next_out = reinterpret_cast<uint8_t*>(chunk.data());
    decoder.avail_out = chunk.size();
    state = lzma_code(&decoder, LZMA_FINISH);
    unpacked.append(chunk.data(), chunk.size() - decoder.avail_out);
  }
  lzma_end(&decoder);
  EXPECT_EQ(state, LZMA_STREAM_END) << path;
  return unpacked;
}

}  // namespace kvasir::test
