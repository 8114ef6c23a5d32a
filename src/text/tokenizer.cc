#include "text/tokenizer.h"

#include <algorithm>

#include "text/tokenizer_impl.h"
#include "text/unicode_utf8.h"

namespace kvasir::text {
namespace {

constexpr size_t kTextBytesMax = size_t{1} << 30;
/// Scratch of a thread beyond this is given back after use.
constexpr size_t kScratchBytesKept = 1 << 20;

/// What one call of Encode needs besides its result; kept by each thread.
struct Scratch {
  std::string repaired;
  std::vector<Segment> segments;
  std::vector<Segment> inner_segments;
  NormalizerBuffers normalizer;
  Words words;

  void Trim() {
    for (std::string* text : {&repaired, &normalizer.even, &normalizer.odd, &words.buffer}) {
      if (text->capacity() > kScratchBytesKept) std::string().swap(*text);
    }
    for (std::vector<Span>* spans : {&words.spans, &words.next}) {
      if (spans->capacity() * sizeof(Span) > kScratchBytesKept) std::vector<Span>().swap(*spans);
    }
    for (std::vector<Segment>* list : {&segments, &inner_segments}) {
      if (list->capacity() * sizeof(Segment) > kScratchBytesKept) {
        std::vector<Segment>().swap(*list);
      }
    }
  }
};

void EncodeText(const Tokenizer::Impl& impl, std::string_view text, bool at_start, Words& words,
                std::vector<int32_t>& out) {
  impl.pretokenizer.Cut(text, at_start, words);
  for (const Span word : words.spans) {
    impl.model->EncodeWord(words.text.substr(word.begin, word.end - word.begin), out);
  }
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  KVASIR_CHECK(text.size() <= kTextBytesMax, "text of {} bytes", text.size());
  thread_local Scratch scratch;
  if (!IsValidUtf8(text)) {
    scratch.repaired.clear();
    AppendLossy(text, scratch.repaired);
    text = scratch.repaired;
  }
  std::vector<int32_t> ids;
  constexpr size_t kBytesPerTokenGuess = 4;
  ids.reserve(text.size() / kBytesPerTokenGuess + impl_->prefix_ids.size() +
              impl_->suffix_ids.size() + 1);
  if (options.add_special_tokens) ids = impl_->prefix_ids;
  const auto encode = [&](std::string_view part, bool at_start) {
    std::string unmarked;
    if (options.marked && part.find(kTokenBreak) != std::string_view::npos) {
      unmarked = Unmark(part);
      part = unmarked;
    }
    EncodeText(*impl_, part, at_start, scratch.words, ids);
  };
  scratch.segments.clear();
  impl_->raw_tokens.Split(text, options.parse_special, scratch.segments);
  for (const Segment& segment : scratch.segments) {
    if (segment.id >= 0) {
      ids.push_back(segment.id);
      continue;
    }
    const bool at_start = segment.text.data() == text.data();
    const std::string_view normalized = impl_->normalizer.Apply(segment.text, scratch.normalizer);
    if (impl_->normalized_tokens.empty()) {
      encode(normalized, at_start);
      continue;
    }
    scratch.inner_segments.clear();
    impl_->normalized_tokens.Split(normalized, options.parse_special, scratch.inner_segments);
    for (const Segment& inner : scratch.inner_segments) {
      if (inner.id >= 0) {
        ids.push_back(inner.id);
      } else {
        encode(inner.text, at_start && inner.text.data() == normalized.data());
      }
    }
  }
  if (options.add_special_tokens) {
    ids.insert(ids.end(), impl_->suffix_ids.begin(), impl_->suffix_ids.end());
  }
  scratch.Trim();
  return ids;
}

std::string Tokenizer::Mark(std::string_view text, bool special_only) const {
  std::string clean;
  if (text.find(kTokenBreak) != std::string_view::npos) {
    clean = Unmark(text);
    text = clean;
  }
  std::vector<size_t> starts = impl_->raw_tokens.Starts(text, special_only);
  const std::vector<size_t> more = impl_->normalized_tokens.Starts(text, special_only);
  starts.insert(starts.end(), more.begin(), more.end());
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  std::string marked;
  marked.reserve(text.size() + starts.size() * kTokenBreak.size());
  size_t done = 0;
  for (const size_t start : starts) {
    const size_t behind = start + Utf8Length(static_cast<uint8_t>(text[start]));
    marked += text.substr(done, behind - done);
    marked += kTokenBreak;
    done = behind;
  }
  marked += text.substr(done);
  return marked;
}

std::string Tokenizer::Unmark(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  size_t done = 0;
  for (size_t at = text.find(kTokenBreak); at != std::string_view::npos;
       at = text.find(kTokenBreak, done)) {
    clean += text.substr(done, at - done);
    done = at + kTokenBreak.size();
  }
  clean += text.substr(done);
  return clean;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  const Impl& impl = *impl_;
  std::string bytes;
  std::string run;  // of byte tokens
  const auto end_run = [&] {
    if (run.empty()) return;
    if (IsValidUtf8(run)) {
      bytes += run;
    } else {  // as Hugging Face's ByteFallback: one for each byte of the run
      for (size_t i = 0; i < run.size(); ++i) bytes += kReplacement;
    }
    run.clear();
  };
  bool first = true;
  for (const int32_t id : ids) {
    if (!impl.Has(id) || (skip_special_tokens && impl.Flag(id, Impl::kSpecial))) continue;
    if (impl.Flag(id, Impl::kByte)) {
      run += impl.bytes.Get(id);
    } else {
      end_run();
      if (first && impl.first_differs) {
        bytes += impl.FirstBytes(id);
      } else {
        bytes += impl.bytes.Get(id);
      }
    }
    first = false;
  }
  end_run();
  std::string_view shown = bytes;
  for (uint32_t i = 0;
       i < impl.decoder.strip_start && shown.starts_with(impl.decoder.strip_content); ++i) {
    shown.remove_prefix(impl.decoder.strip_content.size());
  }
  if (shown.size() == bytes.size() && IsValidUtf8(bytes)) return bytes;
  std::string text;
  text.reserve(shown.size());
  AppendLossy(shown, text);
  return text;
}

std::string Tokenizer::TokenPiece(int32_t id) const {
  return std::string(impl_->vocabulary.Piece(id));
}
std::string Tokenizer::TokenBytes(int32_t id) const { return std::string(impl_->bytes.Get(id)); }
std::string Tokenizer::TokenText(int32_t id) const {
  std::string text;
  AppendLossy(impl_->bytes.Get(id), text);
  return text;
}
std::optional<int32_t> Tokenizer::TokenId(std::string_view piece) const {
  const int32_t id = impl_->vocabulary.Find(piece);
  return id >= 0 ? std::optional(id) : std::nullopt;
}
bool Tokenizer::IsSpecial(int32_t id) const { return impl_->Flag(id, Impl::kSpecial); }
int Tokenizer::vocab_size() const { return impl_->vocabulary.size(); }
std::optional<int32_t> Tokenizer::bos_id() const { return impl_->bos_id; }
std::optional<int32_t> Tokenizer::eos_id() const { return impl_->eos_id; }
std::optional<int32_t> Tokenizer::unk_id() const { return impl_->unk_id; }
std::optional<int32_t> Tokenizer::pad_id() const { return impl_->pad_id; }
std::optional<int32_t> Tokenizer::eot_id() const { return impl_->eot_id; }
const std::vector<int32_t>& Tokenizer::end_of_generation_ids() const {
  return impl_->end_of_generation_ids;
}
const std::string& Tokenizer::bos_token() const { return impl_->bos_token; }
const std::string& Tokenizer::eos_token() const { return impl_->eos_token; }
const std::map<std::string, std::string>& Tokenizer::special_tokens() const {
  return impl_->special_tokens;
}
bool Tokenizer::adds_bos() const {
  return impl_->bos_id.has_value() && !impl_->prefix_ids.empty() &&
         impl_->prefix_ids.front() == *impl_->bos_id;
}
const std::string& Tokenizer::kind() const { return impl_->kind; }

void Tokenizer::Impl::SetFlag(int32_t id, uint8_t flag) {
  const auto index = static_cast<size_t>(id);
  if (index >= flags.size()) flags.resize(index + 1);
  flags[index] = static_cast<uint8_t>(flags[index] | flag);
}

void Tokenizer::Impl::Finish() {
  const auto named = [&](const char* name) {
    const auto found = special_tokens.find(name);
    return found == special_tokens.end() ? std::string() : found->second;
  };
  bos_token = named("bos_token");
  eos_token = named("eos_token");
  first_differs = decoder.FirstDiffers();
  if (eos_id.has_value()) end_of_generation_ids.push_back(*eos_id);
  std::sort(end_of_generation_ids.begin(), end_of_generation_ids.end());
  end_of_generation_ids.erase(
      std::unique(end_of_generation_ids.begin(), end_of_generation_ids.end()),
      end_of_generation_ids.end());
}

}  // namespace kvasir::text
