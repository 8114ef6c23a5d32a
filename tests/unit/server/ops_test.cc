// Models, tokenizing, metrics.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "unit/server/server_fixture.h"

namespace kvasir::server::test {
namespace {

TEST(Ops, Models) {
  ServerFixture fixture;
  const Json models = fixture.Call("GET", "/v1/models").json();
  EXPECT_EQ(models.at("object"), "list");
  ASSERT_EQ(models.at("data").size(), 2u);
  const Json& model = models.at("data")[0];
  EXPECT_EQ(model.at("id"), "tiny");
  EXPECT_EQ(model.at("root"), "models/tiny");
  EXPECT_EQ(model.at("max_model_len"), 512);
  EXPECT_TRUE(model.at("parent").is_null());
  EXPECT_EQ(model.at("permission")[0].at("organization"), "*");
}

TEST(Ops, TokenizeThereAndBack) {
  ServerFixture fixture;
  const std::string text = "Hello w\xC3\xB6rld";
  Json json = fixture.Post("/tokenize", {{"prompt", text}}).json();
  std::vector<TokenId> expected = Ids(text);
  expected.insert(expected.begin(), 1);
  EXPECT_EQ(json.at("tokens"), Json(expected));
  EXPECT_EQ(json.at("count"), expected.size());
  EXPECT_EQ(json.at("max_model_len"), 512);
  EXPECT_TRUE(json.at("token_strs").is_null());
  json = fixture
             .Post("/tokenize",
                   {{"prompt", text}, {"add_special_tokens", false}, {"return_token_strs", true}})
             .json();
  EXPECT_EQ(json.at("tokens"), Json(Ids(text)));
  EXPECT_EQ(json.at("token_strs")[0], TestTokenizer().TokenPiece(Ids(text)[0]));
  EXPECT_EQ(fixture.Post("/detokenize", {{"tokens", json.at("tokens")}}).json(),
            Json({{"prompt", text}}));
  json = fixture.Post("/tokenize", ChatBody("Hi")).json();
  EXPECT_EQ(json.at("tokens"),
            Json(Ids("<|bos|><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")));
  EXPECT_EQ(fixture.Post("/tokenize", Json::object({{"x", 1}})).status, 400);
  EXPECT_EQ(fixture.Post("/detokenize", {{"tokens", {-1}}}).status, 400);
  const Json info = fixture.Call("GET", "/tokenizer_info").json();
  EXPECT_EQ(info.at("eos_token"), "<|eos|>");
  EXPECT_EQ(info.at("bos_token"), "<|bos|>");
  EXPECT_TRUE(info.at("chat_template").is_string());
}

// Each family has HELP and TYPE once and before its samples, each series comes once, histograms are
// cumulative and their +Inf equals their count: what promtool checks, and more.
void CheckExposition(const std::string& page) {
  static const std::regex sample("^([a-zA-Z_:][a-zA-Z0-9_:]*)(\\{.*\\})? (\\S+)$");
  std::map<std::string, std::string> types;
  std::set<std::string> helped;
  std::set<std::string> series;
  std::istringstream lines(page);
  std::string current;
  double last_bucket = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("# HELP ", 0) == 0) {
      EXPECT_TRUE(helped.insert(line.substr(7, line.find(' ', 7) - 7)).second) << line;
      continue;
    }
    if (line.rfind("# TYPE ", 0) == 0) {
      const size_t end = line.find(' ', 7);
      current = line.substr(7, end - 7);
      EXPECT_TRUE(types.emplace(current, line.substr(end + 1)).second) << line;
      EXPECT_TRUE(helped.contains(current)) << line;
      continue;
    }
    std::smatch match;
    ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
    const std::string name = match[1];
    EXPECT_TRUE(name.rfind(current, 0) == 0) << line;
    EXPECT_TRUE(series.insert(name + match[2].str()).second) << line;
    if (types[current] == "counter") {
      EXPECT_TRUE(name.ends_with("_total")) << line;
    }
    if (name.ends_with("_bucket")) {
      const double value = std::stod(match[3]);
      const bool first = match[2].str().find("le=\"0.01\"") != std::string::npos;
      if (!first && last_bucket > value) {
        // A new series of the family begins lower; within one they only grow.
        EXPECT_EQ(match[2].str().find("+Inf"), std::string::npos) << line;
      }
      last_bucket = value;
    }
    if (name.ends_with("_count") && types[current] == "histogram") {
      EXPECT_EQ(std::stod(match[3]), last_bucket) << line;
    }
  }
  EXPECT_EQ(types.size(), helped.size());
}

double Sample(const std::string& page, const std::string& series) {
  const size_t at = page.find("\n" + series + " ");
  EXPECT_NE(at, std::string::npos) << series;
  return at == std::string::npos ? -1 : std::stod(page.substr(at + series.size() + 2));
}

TEST(Ops, Metrics) {
  ServerFixture fixture;
  const std::string labels = "engine=\"0\",model_name=\"tiny\"";
  const auto page = [&] { return "\n" + fixture.Call("GET", "/metrics").body; };
  // Everything is there from the start.
  std::string text = page();
  CheckExposition(text.substr(1));
  for (const char* name : {"vllm:num_requests_running",
                           "vllm:num_requests_waiting",
                           "vllm:kv_cache_usage_perc",
                           "vllm:prompt_tokens_total",
                           "vllm:generation_tokens_total",
                           "vllm:num_preemptions_total",
                           "vllm:prefix_cache_queries_total",
                           "vllm:prefix_cache_hits_total",
                           "vllm:time_to_first_token_seconds_count",
                           "vllm:inter_token_latency_seconds_count",
                           "vllm:e2e_request_latency_seconds_sum",
                           "vllm:request_queue_time_seconds_sum",
                           "vllm:request_prefill_time_seconds_sum",
                           "vllm:request_decode_time_seconds_sum",
                           "vllm:request_inference_time_seconds_sum",
                           "vllm:request_prompt_tokens_count",
                           "vllm:request_generation_tokens_count",
                           "vllm:request_max_num_generation_tokens_count",
                           "vllm:request_params_max_tokens_count",
                           "vllm:request_params_n_count",
                           "vllm:iteration_tokens_total_count",
                           "vllm:request_time_per_output_token_seconds_count"}) {
    EXPECT_GE(Sample(text, std::string(name) + "{" + labels + "}"), 0) << name;
  }
  fixture.script.SetTokens(IdsThenEnd("abc"));
  const Json usage =
      fixture.Post("/v1/completions", {{"prompt", "Hello"}, {"max_tokens", 9}}).json().at("usage");
  fixture.Post("/v1/completions", {{"prompt", "Hello"}, {"max_tokens", 1}});
  fixture.Call("GET", "/nope");
  // A request is counted once its answer has been sent.
  const std::string last = "http_requests_total{handler=\"none\",method=\"GET\",status=\"4xx\"}";
  ASSERT_TRUE(Eventually([&] { return page().find(last) != std::string::npos; }));
  text = page();
  CheckExposition(text.substr(1));
  const auto vllm = [&](const std::string& name) {
    return Sample(text, "vllm:" + name + "{" + labels + "}");
  };
  EXPECT_EQ(vllm("prompt_tokens_total"), 2 * usage.at("prompt_tokens").get<double>());
  EXPECT_EQ(vllm("generation_tokens_total"), usage.at("completion_tokens").get<double>() + 1);
  EXPECT_EQ(vllm("time_to_first_token_seconds_count"), 2);
  EXPECT_EQ(Sample(text, "vllm:request_success_total{" + labels + ",finished_reason=\"stop\"}"), 1);
  EXPECT_EQ(Sample(text, "vllm:request_success_total{" + labels + ",finished_reason=\"length\"}"),
            1);
  EXPECT_EQ(
      Sample(text,
             "http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"2xx\"}"),
      2);
  EXPECT_EQ(Sample(text, last), 1);
  EXPECT_GT(Sample(text, "process_resident_memory_bytes"), 0);
  EXPECT_GT(Sample(text, "process_open_fds"), 0);
  EXPECT_EQ(Sample(text, "kvasir:draining{" + labels + "}"), 0);
}

TEST(Ops, LoadCountsWhatIsInFlight) {
  ServerFixture fixture;
  fixture.script.SetTokens(IdsThenEnd("a"));
  fixture.script.SetAllowed(0);
  Client client(fixture.port());
  const std::string text = R"({"prompt":"x","max_tokens":4})";
  ASSERT_TRUE(
      client.Send("POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
                  "Content-Length: " +
                  std::to_string(text.size()) + "\r\n\r\n" + text));
  EXPECT_TRUE(Eventually([&] {
    return fixture.Call("GET", "/load").json() == Json({{"server_load", 1}});
  }));
  fixture.script.SetAllowed(100);
  EXPECT_EQ(client.ReadAnswer()->status, 200);
  EXPECT_TRUE(Eventually([&] {
    return fixture.Call("GET", "/load").json() == Json({{"server_load", 0}});
  }));
}

TEST(Ops, TheAccessLogHoldsNoContent) {
  FixtureOptions options;
  options.server.access_log = true;
  options.server.access_log_disabled_paths = {"/health"};
  options.server.api_keys = {"the-key"};
  testing::internal::CaptureStderr();
  {
    ServerFixture fixture(options);
    fixture.script.SetTokens(IdsThenEnd("a private answer"));
    Client client(fixture.port());
    const std::vector<std::string> headers = {"Authorization: Bearer the-key",
                                              "X-Request-Id: id-7"};
    Json body = ChatBody("a private question");
    EXPECT_EQ(client.Post("/v1/chat/completions?secret=1", body, headers)->status, 200);
    EXPECT_EQ(client.Call("GET", "/health")->status, 200);
    EXPECT_EQ(client.Call("GET", "/a\"b", {}, headers)->status, 404);
    // An answer on this connection means that the requests before it are logged.
    EXPECT_EQ(client.Call("GET", "/version", {}, headers)->status, 200);
  }
  const std::string logged = testing::internal::GetCapturedStderr();
  EXPECT_EQ(logged.find("private"), std::string::npos);
  EXPECT_EQ(logged.find("the-key"), std::string::npos);
  EXPECT_EQ(logged.find("secret"), std::string::npos);
  std::vector<Json> lines;
  std::istringstream text(logged);
  for (std::string line; std::getline(text, line);) {
    if (line.rfind('{', 0) == 0) lines.push_back(Json::parse(line));
  }
  ASSERT_GE(lines.size(), 2u);
  EXPECT_EQ(lines[0].at("id"), "id-7");
  EXPECT_EQ(lines[0].at("path"), "/v1/chat/completions");
  EXPECT_EQ(lines[0].at("status"), 200);
  EXPECT_EQ(lines[0].at("finish_reason"), "stop");
  EXPECT_EQ(lines[0].at("completion_tokens"), IdsThenEnd("a private answer").size());
  EXPECT_GT(lines[0].at("duration_ms").get<double>(), 0);
  EXPECT_EQ(lines[1].at("path"), "/a\"b");
  EXPECT_EQ(lines[1].at("status"), 404);
}

TEST(Ops, GenerationDefaults) {
  const auto read = [](const char* config, const char* overrides) {
    return ReadGenerationDefaults(nlohmann::json::parse(config), nlohmann::json::parse(overrides));
  };
  const GenerationDefaults defaults =
      read(R"({"temperature":0.6,"top_k":50,"eos_token_id":[1,2]})", R"({"top_k":-1,"min_p":0.1})")
          .value();
  EXPECT_EQ(defaults.temperature, 0.6);
  EXPECT_EQ(defaults.top_k, -1);
  EXPECT_EQ(defaults.min_p, 0.1);
  EXPECT_FALSE(defaults.top_p);
  EXPECT_TRUE(read("null", "null").ok());
  EXPECT_FALSE(read("[]", "null").ok());
  EXPECT_FALSE(read(R"({"top_p":0})", "null").ok());
  EXPECT_FALSE(read("null", R"({"top_k":1.5})").ok());
  // The model's file may hold anything; what an operator writes has to mean something.
  EXPECT_TRUE(read(R"({"do_sample":true})", "null").ok());
  const auto unknown = read("null", R"({"top_k":3,"do_sample":true})");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("--override-generation-config: expected the keys "),
            std::string::npos);
  EXPECT_NE(unknown.error().message.find("got 'do_sample'"), std::string::npos);
  EXPECT_NE(read("null", R"({"temperature":"x"})").error().message.find("temperature"),
            std::string::npos);
}

}  // namespace
}  // namespace kvasir::server::test
