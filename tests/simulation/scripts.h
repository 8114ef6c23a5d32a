// The scripts of the fault simulations.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"
#include "cache/capacity.h"
#include "scripted_run.h"

namespace kvasir::simulation {

inline constexpr int64_t kVocabulary = 20;

inline std::vector<TokenId> Tokens(int64_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (TokenId& token : tokens) token = static_cast<TokenId>(rng.Below(kVocabulary));
  return tokens;
}

inline Request MakeRequest(int64_t prompt_tokens, uint64_t seed, int64_t max_tokens) {
  Request request;
  request.prompt = Tokens(prompt_tokens, seed);
  request.max_tokens = max_tokens;
  request.sampling.seed = seed;
  return request;
}

/// Kinds of cache and of policy: 0 full attention and a tight pool; 1 with a window; 2 without
/// chunks and prefix cache; 3 reserved allocation.
inline constexpr int kScripts = 4;

inline Script MakeScript(int kind) {
  Script script;
  engine::EngineConfig& engine = script.engine;
  engine.vocab_size = kVocabulary;
  engine.max_model_len = 32;
  engine.max_num_seqs = 4;
  engine.max_num_batched_tokens = 9;
  engine.priority_aging_ns = kNsPerSecond;
  engine.cache.block_tokens = 3;
  engine.cache.groups = {CacheGroupSpec{}};
  if (kind == 1) engine.cache.groups.push_back({CacheGroupSpec::Kind::kSlidingWindow, 5});
  engine.cache.blocks_count = kind == 1 ? 24 : 14;
  engine.enable_chunked_prefill = kind != 2;
  engine.enable_prefix_caching = kind != 2;
  if (kind == 3) {
    engine.kv_allocation = engine::KvAllocation::kReserved;
    engine.cache.blocks_count = 2 * cache::BlocksFor(engine.max_model_len, 3) + 3;
  }
  // Long and short, alike and not, several choices, prompt logprobs, no tokens to draw, priorities.
  script.requests.push_back({0, MakeRequest(11, 1, 9)});
  script.requests.push_back({0, MakeRequest(11, 1, 5)});
  script.requests.back().request.n = 3;
  script.requests.back().request.sampling.stop_token_ids = {0, 1, 2};
  script.requests.push_back({2, MakeRequest(20, 3, 6)});
  script.requests.back().request.priority = 1;
  script.requests.push_back({3, MakeRequest(8, 4, 8)});
  script.requests.back().request.prompt_logprobs = 1;
  script.requests.push_back({4, MakeRequest(17, 1, 0)});
  script.requests.push_back({5, MakeRequest(2, 6, 7)});
  script.requests.back().request.priority = -1;
  script.requests.back().request.n = 2;
  return script;
}

inline std::string ScriptName(const testing::TestParamInfo<int>& info) {
  static const char* const kNames[kScripts] = {"Tight", "Window", "WholePrompts", "Reserved"};
  return kNames[info.param];
}

}  // namespace kvasir::simulation
