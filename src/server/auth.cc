#include "server/auth.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include "base/check.h"
#include "server/http_message.h"

namespace kvasir::server {
namespace {

constexpr std::string_view kBearer = "bearer ";

std::array<uint8_t, 32> Sha256(std::string_view text) {
  std::array<uint8_t, 32> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

template <typename Bytes>
std::string Hex(const Bytes& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

Auth::Auth(const std::vector<std::string>& api_keys) {
  for (const std::string& key : api_keys) digests_.push_back(Sha256(key));
}

std::optional<size_t> Auth::Find(std::string_view key) const {
  const Digest given = Sha256(key);
  std::optional<size_t> found;
  for (size_t i = 0; i < digests_.size(); ++i) {
    if (CRYPTO_memcmp(given.data(), digests_[i].data(), given.size()) == 0) found = i;
  }
  return found;
}

std::optional<size_t> Auth::Check(const HttpRequest& request) const {
  if (const std::string* header = request.Header("authorization")) {
    const std::string_view text = *header;
    if (text.size() > kBearer.size() && EqualsIgnoreCase(text.substr(0, kBearer.size()), kBearer)) {
      if (const std::optional<size_t> found = Find(text.substr(kBearer.size()))) return found;
    }
  }
  if (const std::string* header = request.Header("x-api-key")) return Find(*header);
  return std::nullopt;
}

std::string Sha256Hex(std::string_view text) { return Hex(Sha256(text)); }

std::string RandomHex(size_t bytes_count) {
  std::vector<uint8_t> bytes(bytes_count);
  KVASIR_CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1);
  return Hex(bytes);
}

}  // namespace kvasir::server
