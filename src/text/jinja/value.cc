#include "text/jinja/value.h"

#include <string>

#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace kvasir::text::jinja {
namespace {

// Above this many entries a dict has an index.
constexpr std::size_t kDictLinearMax = 8;
constexpr std::size_t kDictEntryBytes = 2 * sizeof(Value) + 4 * sizeof(void*);

}  // namespace

void FreeStr(Str* str) {
  str->heap->Discharge(sizeof(Str) + str->text.size());
  delete str;
}

std::unique_ptr<Str> MakeImmortal(std::string text) {
  auto str = std::make_unique<Str>();
  str->text = std::move(text);
  str->length = static_cast<int64_t>(CountCodePoints(str->text));
  str->references = -1;
  return str;
}

Str* Heap::NewStr(std::string text) {
  Charge(sizeof(Str) + text.size());
  auto str = std::make_unique<Str>();
  str->text = std::move(text);
  str->heap = this;
  return str.release();
}

void Heap::Charge(std::size_t bytes) {
  if (bytes > limit_ - used_) {
    Fail("the template uses more than {} MiB of memory", limit_ / (1024 * 1024));
  }
  used_ += bytes;
}

int64_t Dict::Find(Runtime& runtime, const Value& key) const {
  if (index.empty()) {
    if (key.string()) return Find(key.Text());
    (void)runtime.Hash(key);  // refuses what cannot be a key
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (runtime.Equal(entries[i].first, key)) return static_cast<int64_t>(i);
    }
    return -1;
  }
  const auto [begin, end] = index.equal_range(runtime.Hash(key));
  for (auto at = begin; at != end; ++at) {
    if (runtime.Equal(entries[at->second].first, key)) return static_cast<int64_t>(at->second);
  }
  return -1;
}

int64_t Dict::Find(std::string_view key) const {
  if (index.empty()) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].first.string() && entries[i].first.Text() == key) {
        return static_cast<int64_t>(i);
      }
    }
    return -1;
  }
  const auto [begin, end] = index.equal_range(std::hash<std::string_view>()(key));
  for (auto at = begin; at != end; ++at) {
    const Value& candidate = entries[at->second].first;
    if (candidate.string() && candidate.Text() == key) return static_cast<int64_t>(at->second);
  }
  return -1;
}

void Dict::Set(Runtime& runtime, const Value& key, Value value) {
  const int64_t at = Find(runtime, key);
  if (at >= 0) {
    entries[static_cast<std::size_t>(at)].second = std::move(value);
    return;
  }
  runtime.heap.Charge(kDictEntryBytes);
  entries.emplace_back(key, std::move(value));
  if (!index.empty()) {
    index.emplace(runtime.Hash(key), entries.size() - 1);
  } else if (entries.size() > kDictLinearMax) {
    BuildIndex(runtime);
  }
}

void Dict::Erase(Runtime& runtime, std::size_t entry) {
  runtime.Step(entries.size());
  entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(entry));
  if (!index.empty()) BuildIndex(runtime);
}

void Dict::BuildIndex(Runtime& runtime) {
  index.clear();
  if (entries.size() <= kDictLinearMax) return;
  for (std::size_t i = 0; i < entries.size(); ++i) index.emplace(runtime.Hash(entries[i].first), i);
}

}  // namespace kvasir::text::jinja
