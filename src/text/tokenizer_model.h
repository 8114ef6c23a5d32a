// A word to token ids: the part of a tokenizer that was trained.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace kvasir::text {

/// Immutable; any thread. Short words are remembered in a cache of the calling thread.
class TokenizerModel {
 public:
  TokenizerModel();
  virtual ~TokenizerModel() = default;
  TokenizerModel(const TokenizerModel&) = delete;
  TokenizerModel& operator=(const TokenizerModel&) = delete;

  /// Appends the ids of `word` (valid UTF-8 or, for models of bytes, any bytes; not empty).
  void EncodeWord(std::string_view word, std::vector<int32_t>& out) const;

 protected:
  virtual void EncodeUncached(std::string_view word, std::vector<int32_t>& out) const = 0;

 private:
  uint32_t cache_owner_;  ///< tells the entries of this model apart in a thread's cache
};

}  // namespace kvasir::text
