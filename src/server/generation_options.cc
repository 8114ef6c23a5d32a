#include "server/generation_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <unordered_map>

#include "server/http_message.h"
#include "server/sampling_values.h"

namespace kvasir::server {
namespace {

constexpr size_t kStopBytesMax = 4096;  // all stop strings of a request together
constexpr int64_t kStopTokensMax = 16'384;
constexpr int64_t kBadWordsMax = 1'024;
constexpr int64_t kLogprobTokensMax = 128;
constexpr size_t kCacheSaltBytesMax = 1'024;
constexpr float kLogitBiasMax = 100.0f;
// Text has about 4 bytes a token; the longest tokens, runs of blanks, have 128 or so.
constexpr int64_t kTextBytesPerToken = 256;
constexpr int64_t kTextBytesLeast = int64_t{1} << 20;

// Fields of features that are not here. null, false and empty lists or objects ask for nothing,
// but of structured output: there vLLM refuses them, and a schema {} asks for any JSON.
constexpr std::string_view kNoStructure = "structured output is not available";
constexpr std::pair<std::string_view, std::string_view> kUnsupported[] = {
    {"structured_outputs", kNoStructure},
    {"guided_json", kNoStructure},
    {"guided_regex", kNoStructure},
    {"guided_choice", kNoStructure},
    {"guided_grammar", kNoStructure},
    {"structural_tag", kNoStructure},
    // llama-server's names, whose silence would give another answer than was asked for.
    {"grammar", kNoStructure},
    {"json_schema", kNoStructure},
    {"n_predict", "the name here is max_tokens"},
    {"logits_processors", "logits processors are not available"},
    {"vllm_xargs", "there are no plug-ins that read it"},
    {"repetition_detection", "repetition detection is not available"},
    {"thinking_token_budget", "reasoning is not told apart from the answer"},
    {"prompt_embeds", "prompts are text or token ids"},
    {"suffix", "text is continued at its end alone"},
    {"use_beam_search", "beam search is not available"},
    {"routed_experts_prompt_start", "routed experts are not reported"},
};

bool AsksForNothing(const Json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         (value.is_structured() && value.empty());
}

void RefuseUnsupported(const Fields& fields) {
  for (const auto& [name, why] : kUnsupported) {
    const Json* value = fields.Find(name);
    if (value != nullptr && (why == kNoStructure || !AsksForNothing(*value))) {
      fields.problems().AddSemantic(Unsupported(std::string(name), std::string(why)));
    }
  }
  // As many as are returned anyway is no choice among them.
  if (const std::optional<int64_t> best_of =
          fields.IntIn("best_of", "at least 1", [](int64_t v) { return v >= 1; });
      best_of && *best_of > 1 && *best_of > fields.Int("n").value_or(1)) {
    fields.problems().AddSemantic(
        Unsupported("best_of", "answers are not ranked; n gives several"));
  }
  if (const Json* format = fields.Object("response_format")) {
    const Fields inner(*format, fields.PathOf("response_format"), fields.problems());
    const std::optional<std::string> type = inner.String("type");
    if (!inner.Has("type")) {
      inner.Problem("type", "field required");
    } else if (type && *type != "text") {
      fields.problems().AddSemantic(Unsupported(
          "response_format",
          fmt::format("only the type 'text' is available, got '{}'", Shortened(*type, 64))));
    }
  }
  if (const std::optional<int64_t> interval =
          fields.IntIn("stream_interval", "at least 1", [](int64_t v) { return v >= 1; });
      interval && *interval > 1) {
    fields.problems().AddSemantic(Unsupported("stream_interval", "every token has its own chunk"));
  }
}

void ReadFilters(const Context& context, const Fields& fields, SamplingParams& sampling) {
  const auto number = [&](std::string_view name, const NumberRange& range) {
    return fields.NumberIn(name, range.text, range.holds);
  };
  GenerationDefaults asked;
  asked.temperature = number("temperature", kTemperatureRange);
  asked.top_p = number("top_p", kTopPRange);
  asked.top_k = fields.IntIn("top_k", kTopKRange.text,
                             [](int64_t v) { return kTopKRange.holds(static_cast<double>(v)); });
  asked.min_p = number("min_p", kMinPRange);
  asked.repetition_penalty = number("repetition_penalty", kRepetitionPenaltyRange);
  SetFilters(asked, context.model.defaults, context.model.vocab_size, sampling);
  static constexpr NumberRange kPenalties{"in [-2, 2]", [](double v) { return v >= -2 && v <= 2; }};
  sampling.presence_penalty =
      static_cast<float>(number("presence_penalty", kPenalties).value_or(0));
  sampling.frequency_penalty =
      static_cast<float>(number("frequency_penalty", kPenalties).value_or(0));
}

void ReadLogitBias(const Context& context, const Fields& fields, SamplingParams& sampling) {
  const Json* bias = fields.Object("logit_bias");
  if (bias == nullptr) return;
  std::unordered_map<int64_t, std::string> spellings;
  for (const auto& [key, value] : bias->get_ref<const Json::object_t&>()) {
    int64_t id = 0;
    const auto [end, ec] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (ec != std::errc() || end != key.data() + key.size()) {
      fields.Semantic("logit_bias",
                      fmt::format("logit_bias: the key '{}' is no token id.", Shortened(key, 32)));
      return;
    }
    if (id < 0 || id >= context.model.vocab_size) {
      fields.Semantic("logit_bias",
                      fmt::format("logit_bias: token id {} is outside of the vocabulary (0 to {}).",
                                  id, context.model.vocab_size - 1));
      return;
    }
    if (const auto [first, is_new] = spellings.emplace(id, key); !is_new) {
      fields.Semantic("logit_bias",
                      fmt::format("logit_bias: the keys '{}' and '{}' are one token id.",
                                  Shortened(first->second, 32), Shortened(key, 32)));
      return;
    }
    if (!value.is_number()) {
      fields.Problem(fmt::format("logit_bias.{}", id),
                     fmt::format("expected a number, got {}", TypeName(value)));
      return;
    }
    const double clamped = std::clamp(value.get<double>(), -static_cast<double>(kLogitBiasMax),
                                      static_cast<double>(kLogitBiasMax));
    sampling.logit_bias.emplace_back(static_cast<TokenId>(id), static_cast<float>(clamped));
  }
}

std::vector<TokenId> ToTokenIds(const std::vector<int64_t>& numbers) {
  std::vector<TokenId> ids;
  ids.reserve(numbers.size());
  for (const int64_t number : numbers) ids.push_back(static_cast<TokenId>(number));
  return ids;
}

// As vLLM: each word as it stands, and behind a space where that is another single start.
void ReadBadWords(const Context& context, const Fields& fields, SamplingParams& sampling) {
  const auto words = fields.Strings("bad_words", kBadWordsMax);
  if (!words) return;
  for (const std::string& word : *words) {
    const size_t begin = word.find_first_not_of(' ');
    if (begin == std::string::npos) {
      fields.Semantic("bad_words", "bad_words cannot contain an empty string.");
      return;
    }
    const std::string bare = word.substr(begin);
    const text::EncodeOptions encode{.add_special_tokens = false};
    std::vector<TokenId> plain = context.model.tokenizer->Encode(bare, encode);
    std::vector<TokenId> spaced = context.model.tokenizer->Encode(" " + bare, encode);
    if (plain.empty()) continue;
    const bool both =
        !spaced.empty() && spaced.front() != plain.front() && spaced.size() == plain.size();
    sampling.bad_words.push_back(std::move(plain));
    if (both) sampling.bad_words.push_back(std::move(spaced));
  }
}

void ReadStops(const Context& context, const Fields& fields, GenerationOptions& options) {
  std::vector<std::string>& stop = options.output.stop;
  if (const Json* value = fields.Find("stop")) {
    if (value->is_string()) {
      stop.push_back(value->get<std::string>());
    } else if (value->is_array()) {
      stop = fields.Strings("stop", context.config.max_stop_strings).value_or(stop);
    } else {
      fields.Problem(
          "stop", fmt::format("expected a string or a list of strings, got {}", TypeName(*value)));
    }
  }
  size_t bytes = 0;
  for (const std::string& text : stop) {
    bytes += text.size();
    if (text.empty()) fields.Semantic("stop", "stop cannot contain an empty string.");
  }
  if (bytes > kStopBytesMax) {
    fields.Semantic("stop", fmt::format("stop strings can have at most {} bytes together, got {}.",
                                        kStopBytesMax, bytes));
  }
  options.output.include_stop = fields.Bool("include_stop_str_in_output").value_or(false);

  SamplingParams& sampling = options.request.sampling;
  if (const auto ids =
          fields.Ints("stop_token_ids", 0, context.model.vocab_size - 1, kStopTokensMax)) {
    sampling.stop_token_ids = ToTokenIds(*ids);
  }
  if (!fields.Bool("ignore_eos").value_or(false)) {
    const std::vector<TokenId>& eos = context.model.eos_ids;
    sampling.stop_token_ids.insert(sampling.stop_token_ids.end(), eos.begin(), eos.end());
    if (!eos.empty()) options.output.primary_eos = eos.front();
  }
}

void ReadStreamOptions(const Context& context, const Fields& fields, GenerationOptions& options) {
  options.stream = fields.Bool("stream").value_or(false);
  if (const Json* given = fields.Object("stream_options")) {
    const Fields inner(*given, fields.PathOf("stream_options"), fields.problems());
    if (!options.stream) {
      fields.Semantic("stream_options", "Stream options can only be defined when `stream=True`.");
    }
    options.include_usage = inner.Bool("include_usage").value_or(false);
    options.continuous_usage =
        inner.Bool("continuous_usage_stats").value_or(false) && options.include_usage;
  }
  if (context.config.force_include_usage && options.stream) {
    options.include_usage = true;
    options.continuous_usage = true;
  }
}

void ReadPriority(const Exchange& exchange, const Fields& fields, Request& request) {
  request.priority = fields.Int("priority").value_or(0);
  if (const std::string* header = exchange.request.Header("x-vllm-priority")) {
    int64_t priority = 0;
    const char* end = header->data() + header->size();
    const auto [at, ec] = std::from_chars(header->data(), end, priority);
    if (ec != std::errc() || at != end) {
      fields.Semantic("priority", "The header X-Vllm-Priority must hold an integer.");
      return;
    }
    request.priority = priority;
  }
}

// Where there are several keys, each has a cache of its own: a salt in the body alone could be
// known to other users.
std::string CacheSalt(const Context& context, const Exchange& exchange, const std::string& given) {
  if (context.auth.keys_count() < 2 || !exchange.api_key) return given;
  return Sha256Hex(fmt::format("{}:{}:{}", context.instance_salt, *exchange.api_key, given));
}

void ReadLogprobFields(const Context& context, const Fields& fields, GenerationOptions& options) {
  const int64_t max = context.config.max_logprobs;
  if (const std::optional<int64_t> asked = fields.Int("prompt_logprobs")) {
    if (*asked < 0 || *asked > max) {
      fields.Semantic("prompt_logprobs",
                      fmt::format("prompt_logprobs must be in [0, {}], got {}.", max, *asked));
    } else if (options.stream && *asked > 0) {
      fields.Semantic("prompt_logprobs", "`prompt_logprobs` are not available when `stream=True`.");
    } else if (!options.stream) {
      options.prompt_logprobs = static_cast<int32_t>(*asked);
    }
  }
  if (const auto ids =
          fields.Ints("logprob_token_ids", 0, context.model.vocab_size - 1, kLogprobTokensMax)) {
    options.request.sampling.logprob_token_ids = ToTokenIds(*ids);
  }
  options.return_token_ids = fields.Bool("return_token_ids").value_or(false);
  options.tokens_as_ids =
      fields.Bool("return_tokens_as_token_ids").value_or(context.config.return_tokens_as_token_ids);
}

}  // namespace

std::optional<ApiError> CheckModel(const Context& context, const Fields& fields) {
  const std::optional<std::string> model = fields.String("model");
  if (model && !model->empty() && !context.ServesModel(*model)) return UnknownModel(*model);
  return std::nullopt;
}

void ReadGenerationOptions(const Context& context, const Exchange& exchange, const Fields& fields,
                           GenerationOptions& options) {
  RefuseUnsupported(fields);
  SamplingParams& sampling = options.request.sampling;
  ReadFilters(context, fields, sampling);
  ReadLogitBias(context, fields, sampling);
  ReadBadWords(context, fields, sampling);
  ReadStreamOptions(context, fields, options);
  ReadStops(context, fields, options);
  ReadPriority(exchange, fields, options.request);
  ReadLogprobFields(context, fields, options);
  if (fields.Has("allowed_token_ids")) {
    const auto ids =
        fields.Ints("allowed_token_ids", 0, context.model.vocab_size - 1, context.model.vocab_size);
    if (ids && ids->empty()) {
      fields.Semantic("allowed_token_ids", "allowed_token_ids cannot be empty.");
    } else if (ids) {
      sampling.allowed_token_ids = ToTokenIds(*ids);
    }
  }
  const int64_t n = fields
                        .IntIn("n", fmt::format("in [1, {}]", context.config.max_n),
                               [&](int64_t v) { return v >= 1 && v <= context.config.max_n; })
                        .value_or(1);
  options.request.n = static_cast<int32_t>(n);
  if (n > 1 && sampling.temperature == 0) {
    fields.Semantic("n", fmt::format("n must be 1 when using greedy sampling, got {}.", n));
  }
  sampling.min_tokens =
      fields.IntIn("min_tokens", "greater than or equal to 0", [](int64_t v) { return v >= 0; })
          .value_or(0);
  options.output.min_tokens = sampling.min_tokens;
  const std::optional<int64_t> seed = fields.Int("seed");
  if (seed && *seed != -1) {
    sampling.seed = static_cast<uint64_t>(*seed);
  } else {
    // Hexadecimal digits of the operating system's randomness.
    const std::string random = RandomHex(sizeof(uint64_t));
    std::from_chars(random.data(), random.data() + random.size(), sampling.seed, 16);
  }
  options.output.skip_special_tokens = fields.Bool("skip_special_tokens").value_or(true);
  (void)fields.Bool("spaces_between_special_tokens");
  const std::optional<std::string> salt = fields.String("cache_salt");
  if (salt && (salt->empty() || salt->size() > kCacheSaltBytesMax)) {
    fields.Semantic("cache_salt", fmt::format("cache_salt must have 1 to {} bytes, got {}.",
                                              kCacheSaltBytesMax, salt->size()));
  }
  options.request.cache_salt = CacheSalt(context, exchange, salt.value_or(""));
  options.truncate_prompt_tokens = fields.IntIn("truncate_prompt_tokens", "-1 or at least 1",
                                                [](int64_t v) { return v == -1 || v >= 1; });
  if (const std::optional<std::string> side = fields.String("truncation_side")) {
    if (*side != "left" && *side != "right") {
      fields.Semantic("truncation_side", "truncation_side must be 'left' or 'right'.");
    }
    options.truncate_left = *side != "right";
  }
  const std::string* timings = exchange.request.Header("x-kvasir-timings");
  options.timings = fields.Bool("timings").value_or(
      timings != nullptr && (*timings == "1" || EqualsIgnoreCase(*timings, "true")));
}

std::optional<size_t> TextBytesMax(const Context& context, const GenerationOptions& options) {
  if (options.truncate_prompt_tokens) return std::nullopt;
  return static_cast<size_t>(
      std::max(kTextBytesLeast, context.max_model_len() * kTextBytesPerToken));
}

ApiError TextTooLong(const Context& context, size_t bytes, const char* field) {
  const GenerationOptions untruncated;
  ApiError error = BadRequest(
      fmt::format("This model's maximum context length is {} tokens. However, your prompt has {} "
                  "bytes of text, and at most {} bytes are read. Please reduce the length of the "
                  "input prompt, or set `truncate_prompt_tokens`.",
                  context.max_model_len(), bytes, *TextBytesMax(context, untruncated)),
      field);
  error.code = "context_length_exceeded";
  return error;
}

void TruncatePrompt(const Context& context, const GenerationOptions& options,
                    std::vector<TokenId>& prompt) {
  if (!options.truncate_prompt_tokens) return;
  // Of -1: what the context holds beside the answer, a token at least where it has no limit.
  const int64_t answer =
      std::clamp<int64_t>(options.max_tokens.value_or(1), 0, context.max_model_len() - 1);
  const int64_t keep = *options.truncate_prompt_tokens == -1 ? context.max_model_len() - answer
                                                             : *options.truncate_prompt_tokens;
  const auto count = static_cast<int64_t>(prompt.size());
  if (count <= keep) return;
  if (options.truncate_left) {
    prompt.erase(prompt.begin(), prompt.begin() + (count - keep));
  } else {
    prompt.resize(static_cast<size_t>(keep));
  }
}

std::optional<ApiError> ResolveMaxTokens(const Context& context, const GenerationOptions& options,
                                         int64_t prompt_tokens, std::optional<int64_t> fallback,
                                         int64_t& max_tokens) {
  const int64_t limit = context.max_model_len();
  const int64_t left = limit - prompt_tokens;
  const auto too_long = [&](std::string what, std::string advice) {
    ApiError error =
        BadRequest(fmt::format("This model's maximum context length is {} tokens. However, {}. {} "
                               "(parameter=input_tokens, value={})",
                               limit, what, advice, prompt_tokens),
                   "input_tokens");
    error.code = "context_length_exceeded";
    return error;
  };
  if (options.max_tokens) {
    const int64_t asked = *options.max_tokens;
    max_tokens = asked;
    if (asked > left) {
      if (context.config.clamp_max_tokens && left > 0) {
        max_tokens = left;
      } else if (asked > limit) {
        // The words and the code by which clients know that the context is too short.
        ApiError error = BadRequest(
            fmt::format("{}={} cannot be greater than max_model_len={}. This model's maximum "
                        "context length is {} tokens. Please request fewer output tokens.",
                        options.max_tokens_field, asked, limit, limit),
            options.max_tokens_field);
        error.code = "context_length_exceeded";
        return error;
      } else {
        // Sums of two numbers that are each within the limit.
        return too_long(
            fmt::format("you requested {} output tokens and your prompt contains at least {} input "
                        "tokens, for a total of at least {} tokens",
                        asked, prompt_tokens, prompt_tokens + asked),
            "Please reduce the length of the input prompt or the number of requested output "
            "tokens.");
      }
    }
  } else {
    if (left < 1) {
      return too_long(fmt::format("your prompt contains {} input tokens, which leaves no room for "
                                  "output",
                                  prompt_tokens),
                      "Please reduce the length of the input prompt.");
    }
    max_tokens = left;
    if (fallback) max_tokens = std::min(max_tokens, *fallback);
    if (context.model.defaults.max_new_tokens) {
      max_tokens = std::min(max_tokens, *context.model.defaults.max_new_tokens);
    }
  }
  if (options.request.sampling.min_tokens > max_tokens) {
    return BadRequest(fmt::format("min_tokens must be less than or equal to max_tokens={}, got {}.",
                                  max_tokens, options.request.sampling.min_tokens),
                      "min_tokens");
  }
  return std::nullopt;
}

}  // namespace kvasir::server
