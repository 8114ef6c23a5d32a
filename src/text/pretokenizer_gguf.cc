// tokenizer.ggml.pre: GGUF files name their pre-tokenizer instead of describing it.
#include <algorithm>
#include <string>

#include "files/printable.h"
#include "text/pretokenizer.h"
#include "text/pretokenizer_regex.h"
#include "text/pretokenizer_scanners.h"

namespace kvasir::text {
namespace {

enum class Recipe {
  kGpt2,
  kDigitThenGpt2,  ///< StarCoder, SmolLM: single digits first
  kLlama3,
  kThreeDigitsThenLlama3,
  kQwen2,
  kQwen35,
  kSeedCoder,
  kO200k,
  kDigitGroupsThenO200k,  ///< digits in groups of three from the right
  kTekken,
  kKimi,
  kDeepSeekV3,
  kDeepSeekLlm,
  kDeepSeekCoder,
  kFalcon,
  kDefault,
  kBloom,
  kViking,
  kLines,
  kLinesThenQwen2,
  kSuperBpe,
  kNotSpace,
};

struct Entry {
  std::string_view name;
  Recipe recipe;
  bool ignore_merges = false;
  bool add_bos = false;
  bool nfc = false;
};

constexpr Entry kEntries[] = {
    {"default", Recipe::kDefault},
    // GPT-2
    {"gpt-2", Recipe::kGpt2},
    {"phi-2", Recipe::kGpt2},
    {"jina-es", Recipe::kGpt2},
    {"jina-de", Recipe::kGpt2},
    {"jina-v2-es", Recipe::kGpt2},
    {"jina-v2-de", Recipe::kGpt2},
    {"jina-v1-en", Recipe::kGpt2},
    {"jina-v2-code", Recipe::kGpt2},
    {"roberta-bpe", Recipe::kGpt2},
    {"gigachat", Recipe::kGpt2},
    {"a.x-4.0", Recipe::kGpt2},
    {"mellum", Recipe::kGpt2},
    {"modern-bert", Recipe::kGpt2},
    {"exaone4", Recipe::kGpt2},
    {"mpt", Recipe::kGpt2},
    {"olmo", Recipe::kGpt2},
    {"jais", Recipe::kGpt2},
    {"trillion", Recipe::kGpt2},
    {"granite-docling", Recipe::kGpt2},
    {"starcoder", Recipe::kDigitThenGpt2},
    {"refact", Recipe::kDigitThenGpt2},
    {"command-r", Recipe::kDigitThenGpt2},
    {"smollm", Recipe::kDigitThenGpt2},
    {"codeshell", Recipe::kDigitThenGpt2},
    {"exaone", Recipe::kDigitThenGpt2},
    {"minerva-7b", Recipe::kDigitThenGpt2},
    {"mellum2", Recipe::kDigitThenGpt2},
    // Llama 3
    {"llama3", Recipe::kLlama3, true, true},
    {"llama-v3", Recipe::kLlama3, true, true},
    {"llama-bpe", Recipe::kLlama3, true, true},
    {"falcon3", Recipe::kLlama3, true, true},
    {"falcon-h1", Recipe::kLlama3, true, true},
    {"pixtral", Recipe::kLlama3, true, true},
    {"midm-2.0", Recipe::kLlama3, true, true},
    {"lfm2", Recipe::kLlama3, true, true},
    {"jina-v5-nano", Recipe::kLlama3, true, true},
    {"dbrx", Recipe::kLlama3},
    {"smaug-bpe", Recipe::kLlama3},
    {"glm4", Recipe::kLlama3},
    {"chatglm-bpe", Recipe::kLlama3},
    {"minicpm5", Recipe::kThreeDigitsThenLlama3, true},
    // Qwen
    {"qwen2", Recipe::kQwen2, false, false, true},
    {"deepseek-r1-qwen", Recipe::kQwen2, false, false, true},
    {"kormo", Recipe::kQwen2},
    {"f2llmv2", Recipe::kQwen2},
    {"megrez", Recipe::kQwen2},
    {"stablelm2", Recipe::kQwen2},
    {"hunyuan", Recipe::kQwen2},
    {"solar-open", Recipe::kQwen2},
    {"grok-2", Recipe::kQwen2},
    {"bailingmoe", Recipe::kQwen2},
    {"bailingmoe2", Recipe::kQwen2},
    {"llada-moe", Recipe::kQwen2},
    {"qwen35", Recipe::kQwen35, false, false, true},
    {"seed-coder", Recipe::kSeedCoder},
    {"laguna", Recipe::kLinesThenQwen2},
    // o200k. A tokenizer made from tiktoken ranks takes a word that is a token whole.
    {"gpt-4o", Recipe::kO200k, true},
    {"llama4", Recipe::kO200k, true},
    {"kanana2", Recipe::kO200k},
    {"talkie", Recipe::kO200k},
    {"minimax-m2", Recipe::kO200k},
    {"granite-embed-multi-97m", Recipe::kO200k, true},
    {"tiny_aya", Recipe::kDigitGroupsThenO200k},
    {"cohere2moe", Recipe::kDigitGroupsThenO200k},
    {"tekken", Recipe::kTekken, true, true},
    {"kimi-k2", Recipe::kKimi},
    // The others
    {"deepseek-v3", Recipe::kDeepSeekV3},
    {"hunyuan-dense", Recipe::kDeepSeekV3},
    {"joyai-llm", Recipe::kDeepSeekV3},
    {"deepseek-llm", Recipe::kDeepSeekLlm},
    {"deepseek-coder", Recipe::kDeepSeekCoder},
    {"falcon", Recipe::kFalcon},
    {"poro-chat", Recipe::kBloom},
    {"bloom", Recipe::kBloom},
    {"gpt3-finnish", Recipe::kBloom},
    {"viking", Recipe::kViking},
    {"gemma4", Recipe::kLines},
    {"granite-embed-multi-311m", Recipe::kLines},
    {"sarvam-moe", Recipe::kLines},
    {"superbpe", Recipe::kSuperBpe},
    {"whitespace", Recipe::kNotSpace},
};

class Builder {
 public:
  Status Build(Recipe recipe) {
    const CharSet numbers(kNumber);
    const CharSet digits(0, {{'0', '9'}});
    // Hiragana to Hangul, as DeepSeek's first tokenizers have it: U+0800 to U+4E00 included.
    const CharSet east_asian(0, {{0x4E00, 0x9FA5}, {0x0800, 0x4E00}, {0xAC00, 0xD7FF}});
    switch (recipe) {
      case Recipe::kGpt2:
        Family(PatternFamily::kGpt2);
        return Status::Ok();
      case Recipe::kDigitThenGpt2:
        Run({.body = numbers, .count_max = 1});
        Family(PatternFamily::kGpt2);
        return Status::Ok();
      case Recipe::kLlama3:
        Family(PatternFamily::kLlama3);
        return Status::Ok();
      case Recipe::kThreeDigitsThenLlama3:
        Run({.body = numbers, .count_max = 3});
        Family(PatternFamily::kLlama3);
        return Status::Ok();
      case Recipe::kQwen2:
        Family(PatternFamily::kQwen2);
        return Status::Ok();
      case Recipe::kQwen35:
        Family(PatternFamily::kQwen35);
        return Status::Ok();
      case Recipe::kSeedCoder:  // as Qwen 2, but symbols do not take the newlines behind them
        return Regex(
            R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)");
      case Recipe::kO200k:
        Family(PatternFamily::kO200k);
        return Status::Ok();
      case Recipe::kDigitGroupsThenO200k:
        KVASIR_RETURN_IF_ERROR(Regex(R"(\d{1,3}(?=(?:\d{3})*\b))"));
        Family(PatternFamily::kO200k);
        return Status::Ok();
      case Recipe::kTekken:
        Family(PatternFamily::kTekken);
        return Status::Ok();
      case Recipe::kKimi:
        Family(PatternFamily::kKimi);
        return Status::Ok();
      case Recipe::kDeepSeekV3:
        Run({.body = numbers, .count_max = 3});
        Run({.body = CharSet(0, {{0x4E00, 0x9FA5}, {0x3040, 0x30FF}})});
        Family(PatternFamily::kDeepSeekV3Words);
        return Status::Ok();
      case Recipe::kDeepSeekLlm:
        Run({.body = CharSet(kNewline), .count_max = 1});
        Run({.body = CharSet(kUpper | kLower | kTitle), .lead = RunPattern::Lead::kWhitespace});
        Run({.body = CharSet(0, {{'!', '/'},
                                 {':', '~'},
                                 {0xFF01, 0xFF0F},
                                 {0xFF1A, 0xFF5E},
                                 {0x2018, 0x201F},
                                 {0x3000, 0x3002}}),
             .lead = RunPattern::Lead::kWhitespace});
        Run({.body = CharSet(kSpace), .at_end_only = true});
        Run({.body = east_asian});
        Run({.body = numbers});
        return Status::Ok();
      case Recipe::kDeepSeekCoder:
        Run({.body = CharSet(kNewline), .count_max = 1});
        Run({.body = CharSet(kLetter), .lead = RunPattern::Lead::kWhitespace});
        Run({.body = CharSet(kPunctuation), .lead = RunPattern::Lead::kWhitespace});
        Run({.body = east_asian});
        Run({.body = numbers, .count_max = 1});
        return Status::Ok();
      case Recipe::kFalcon:
        Run({.body = Symbols(/*backtick=*/true)});
        Family(PatternFamily::kGpt2);
        Run({.body = digits, .count_max = 3, .exact = true});
        return Status::Ok();
      case Recipe::kDefault:
        Run({.body = Symbols(/*backtick=*/false)});
        Family(PatternFamily::kGpt2);
        Run({.body = numbers});
        Run({.body = digits, .count_max = 3, .exact = true});
        return Status::Ok();
      case Recipe::kBloom:
        Bloom();
        return Status::Ok();
      case Recipe::kViking:
        Bloom();
        Run({.body = numbers, .count_max = 1});
        return Status::Ok();
      case Recipe::kLines:
        Run({.body = CharSet(0, {{'\n', '\n'}})});
        return Status::Ok();
      case Recipe::kLinesThenQwen2:
        Run({.body = CharSet(0, {{'\n', '\n'}})});
        Family(PatternFamily::kQwen2);
        return Status::Ok();
      case Recipe::kSuperBpe:
        Run({.body = numbers});
        return Regex(R"((?=(\d{3})+(?!\d)))");
      case Recipe::kNotSpace:
        Run({.body = CharSet(kSpace, {}, /*negated=*/true)});
        return Status::Ok();
    }
    KVASIR_CHECK(false, "unknown recipe {}", static_cast<int>(recipe));
  }

  PreTokenizer::Steps Take() { return std::move(steps_); }

 private:
  void Run(RunPattern pattern) { steps_.push_back(MakeRunStep(std::move(pattern))); }
  void Family(PatternFamily family) { steps_.push_back(MakeFamilyStep(family)); }
  Status Regex(std::string_view pattern) {
    KVASIR_ASSIGN_OR_RETURN(std::unique_ptr<Matcher> matcher, MakeRegexMatcher(pattern));
    steps_.push_back(MakeSplitStep(std::move(matcher), SplitBehavior::kIsolated, false));
    return Status::Ok();
  }
  /// ` ?[^(\s|.,!?…。，、।۔،)]+`
  void Bloom() {
    Run({.body = CharSet(kSpace,
                         {{'(', ')'},
                          {'|', '|'},
                          {'.', '.'},
                          {',', ','},
                          {'!', '!'},
                          {'?', '?'},
                          {0x2026, 0x2026},
                          {0x3001, 0x3002},
                          {0xFF0C, 0xFF0C},
                          {0x0964, 0x0964},
                          {0x06D4, 0x06D4},
                          {0x060C, 0x060C}},
                         /*negated=*/true),
         .lead = RunPattern::Lead::kSpace});
  }
  /// `[\p{P}$+<=>^~|]`, with a backtick or without.
  static CharSet Symbols(bool backtick) {
    std::vector<CodePointRange> ranges = {{'$', '$'}, {'+', '+'}, {'<', '>'},
                                          {'^', '^'}, {'~', '~'}, {'|', '|'}};
    if (backtick) ranges.push_back({'`', '`'});
    return CharSet(kPunctuation, std::move(ranges));
  }

  PreTokenizer::Steps steps_;
};

}  // namespace

Result<GgufPreTokenizer> GgufPreTokenizerByName(std::string_view name) {
  const auto entry = std::find_if(std::begin(kEntries), std::end(kEntries),
                                  [&](const Entry& known) { return known.name == name; });
  if (entry == std::end(kEntries)) {
    return MakeError(ErrorCode::kUnsupported,
                     "tokenizer.ggml.pre: the pre-tokenizer \"{}\" is not supported",
                     files::Printable(name));
  }
  Builder builder;
  KVASIR_RETURN_IF_ERROR(builder.Build(entry->recipe));
  return GgufPreTokenizer{builder.Take(), entry->ignore_merges, entry->add_bos, entry->nfc};
}

}  // namespace kvasir::text
