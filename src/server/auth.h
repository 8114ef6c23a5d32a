// API keys.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/http.h"

namespace kvasir::server {

class Auth {
 public:
  explicit Auth(const std::vector<std::string>& api_keys);

  [[nodiscard]] bool open() const { return digests_.empty(); }
  [[nodiscard]] size_t keys_count() const { return digests_.size(); }
  /// The key that `Authorization: Bearer KEY` or `x-api-key: KEY` holds, as an index; nullopt: none
  /// of ours. The time it takes tells neither which key nor how much of it was right.
  [[nodiscard]] std::optional<size_t> Check(const HttpRequest& request) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  [[nodiscard]] std::optional<size_t> Find(std::string_view key) const;

  std::vector<Digest> digests_;
};

/// Hexadecimal SHA-256.
[[nodiscard]] std::string Sha256Hex(std::string_view text);
/// `bytes_count` random bytes from the operating system, in hexadecimal.
[[nodiscard]] std::string RandomHex(size_t bytes_count);

}  // namespace kvasir::server
