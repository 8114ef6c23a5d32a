// Model files that lie, through everything that `kvasir serve` does with them before it listens:
// each is served or refused with one line that names the file; none ends the process, and none
// costs more memory than its size warrants.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "app/generate.h"
#include "app/loaded_engine.h"
#include "base/log.h"
#include "server/server.h"
#include "support/counting_new.h"
#include "support/data.h"
#include "support/gguf_fields.h"
#include "unit/files/file_makers.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

constexpr std::array<uint64_t, 4> kBadNumbers = {0, 1, uint64_t{1} << 31, INT64_MAX};
// A load that takes so long hangs: SIGALRM ends the test. Not a bound on speed.
constexpr unsigned kHangSeconds = 60;
// The tiny models have 0.5 MB; an engine for one takes a few more.
constexpr int64_t kPeakBytesMax = 64 << 20;

// Which file is being tried, for the message of a crash.
char current_case[256] = "";

void NameTheCase(int number) {
  const char* text = "\nwhile trying: ";
  const bool written = write(STDERR_FILENO, text, std::strlen(text)) > 0 &&
                       write(STDERR_FILENO, current_case, std::strlen(current_case)) > 0 &&
                       write(STDERR_FILENO, "\n", 1) > 0;
  std::signal(number, SIG_DFL);
  if (written || number != 0) std::raise(number);
}

// Everything but the listening: load, defaults, a chat prompt, four tokens.
Result<std::string> Serve(const fs::path& model, const fs::path& chat_template = {}) {
  app::EngineFlags flags;
  flags.model = model.string();
  flags.chat_template = chat_template.string();
  flags.threads = 1;
  flags.kv_cache_memory = "4MiB";
  flags.max_num_seqs = 2;
  KVASIR_ASSIGN_OR_RETURN(app::LoadedEngine loaded, app::LoadEngine(flags));
  KVASIR_ASSIGN_OR_RETURN(const server::GenerationDefaults defaults,
                          server::ReadGenerationDefaults(loaded.files->generation_config, nullptr));
  static_cast<void>(defaults);
  // A model whose own template is broken serves completions.
  if (!loaded.chat_template_error.empty() && !files::IsOneLine(loaded.chat_template_error)) {
    return MakeError(ErrorCode::kInternal, "{}", loaded.chat_template_error);
  }
  std::string prompt = "Hello, w\xC3\xB6rld";
  if (loaded.chat_template != nullptr) {
    text::ChatRequest request;
    request.messages = nlohmann::ordered_json::parse(R"([{"role":"user","content":"Hi"}])");
    const auto rendered = loaded.chat_template->Render(request, text::MessageMode::kPrepared, {});
    if (rendered.ok()) prompt = *rendered;
  }
  std::vector<TokenId> ids = loaded.tokenizer->Encode(prompt);
  if (ids.empty()) ids = {0};
  const std::atomic<bool> stop{false};
  // A refused request is an answer too.
  app::SamplingFlags sampling;
  sampling.asked.temperature = 0;
  sampling.max_tokens = 4;
  const auto outcome = app::Generate(loaded, ids, sampling, stop, [](std::string_view) {});
  return outcome.ok() ? outcome->text : outcome.error().message;
}

class BadModelFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    SetLogLevel(LogLevel::kOff);
    for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM}) {
      std::signal(number, NameTheCase);
    }
  }
  void TearDown() override {
    for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM}) {
      std::signal(number, SIG_DFL);
    }
    SetLogLevel(LogLevel::kInfo);
  }

  /// True where the model was refused.
  bool Try(const std::string& what) {
    what.copy(current_case, sizeof(current_case) - 1);
    current_case[std::min(what.size(), sizeof(current_case) - 1)] = '\0';
    const int64_t before = test::live_bytes;
    test::ResetPeak();
    alarm(kHangSeconds);
    const auto served = Serve(model_, chat_template_);
    alarm(0);
    EXPECT_LT(test::peak_bytes - before, kPeakBytesMax) << what;
    ++tried_;
    if (served.ok()) return false;
    ++refused_;
    EXPECT_TRUE(files::IsOneLine(served.error().message)) << what << ": " << served.error().message;
    EXPECT_NE(served.error().message.find(folder_.path().native()), std::string::npos)
        << what << ": names no file: " << served.error().message;
    return true;
  }
  void ExpectRefused(const std::string& what) { EXPECT_TRUE(Try(what)) << what << " was served"; }

  // A GGUF model.
  void UseGguf(const std::string& bytes) { model_ = folder_.Write("model.gguf", bytes); }
  // A folder, all of whose files are good until one is written anew.
  void UseFolder(const std::string& name) {
    model_ = folder_.path();
    for (const auto& entry : fs::directory_iterator(test::DataPath("models/" + name))) {
      if (entry.path().filename() == "expected.json") continue;
      folder_.Write(entry.path().filename(), test::ReadFile(entry.path()));
    }
    ASSERT_FALSE(Try("the good model")) << Serve(model_).error().message;
  }
  // Runs `trial` with each file that differs from the good one of that name in one way, and puts
  // the good one back.
  void WithFile(const std::string& name, const std::vector<std::string>& contents,
                const std::function<void(size_t)>& trial) {
    const std::string good = test::ReadFile(folder_.path() / name);
    for (size_t i = 0; i < contents.size(); ++i) {
      folder_.Write(name, contents[i]);
      trial(i);
    }
    folder_.Write(name, good);
  }

  files::TempFolder folder_;
  fs::path model_;
  fs::path chat_template_;  ///< --chat-template; empty: the model's own
  int tried_ = 0;
  int refused_ = 0;
};

std::vector<std::string> CutAtEveryPercent(const std::string& text) {
  std::vector<std::string> cut;
  for (size_t percent = 0; percent < 100; ++percent) {
    cut.push_back(text.substr(0, text.size() * percent / 100));
  }
  return cut;
}

// `text` with one of its runs of digits at a time replaced by each bad number; at most `most` runs,
// spread over all of them.
std::vector<std::string> WithBadNumbers(const std::string& text, size_t most) {
  constexpr std::string_view kDigits = "0123456789";
  std::vector<std::pair<size_t, size_t>> runs;
  for (size_t begin = text.find_first_of(kDigits); begin != std::string::npos;) {
    const size_t end = std::min(text.find_first_not_of(kDigits, begin), text.size());
    runs.emplace_back(begin, end);
    begin = text.find_first_of(kDigits, end);
  }
  std::vector<std::string> changed;
  const size_t step = std::max<size_t>(1, (runs.size() + most - 1) / most);
  for (size_t i = 0; i < runs.size(); i += step) {
    for (const uint64_t number : kBadNumbers) {
      changed.push_back(text.substr(0, runs[i].first) + std::to_string(number) +
                        text.substr(runs[i].second));
    }
  }
  return changed;
}

std::string WithField(std::string bytes, const test::GgufField& field, uint64_t number) {
  std::memcpy(bytes.data() + field.at, &number, field.bytes);
  return bytes;
}

std::string ReadGguf(const std::string& name) {
  return test::ReadFile(test::DataPath("models/gguf/" + name + "/model.gguf"));
}

TEST_F(BadModelFiles, GgufCutAtEveryPercent) {
  const std::string good = ReadGguf("llama-q4_0");
  UseGguf(good);
  ASSERT_FALSE(Try("the good model")) << Serve(model_).error().message;
  for (const std::string& cut : CutAtEveryPercent(good)) {
    UseGguf(cut);
    ExpectRefused(fmt::format("cut after {} bytes", cut.size()));
  }
}

TEST_F(BadModelFiles, GgufWithEveryNumberWrong) {
  for (const char* name : {"llama-q4_0", "gemma3-q4_0"}) {
    const std::string good = ReadGguf(name);
    const test::GgufFieldWalk walk(good);
    for (const test::GgufField& field : walk.fields()) {
      for (const uint64_t number : kBadNumbers) {
        UseGguf(WithField(good, field, number));
        Try(fmt::format("{}: {} = {}", name, field.name, number));
      }
    }
  }
  EXPECT_GT(tried_, 1500);
  EXPECT_GT(refused_, tried_ * 3 / 4);
}

TEST_F(BadModelFiles, GgufWithTensorsWhereTheyCannotBe) {
  const std::string good = ReadGguf("llama-f32");
  const test::GgufFieldWalk walk(good);
  const auto offsets = walk.Named("offset of tensor");
  ASSERT_GT(offsets.size(), 10u);
  for (size_t i = 0; i < offsets.size(); ++i) {
    uint64_t own = 0;
    std::memcpy(&own, good.data() + offsets[i].at, sizeof(own));
    uint64_t next = 0;
    std::memcpy(&next, good.data() + offsets[(i + 1) % offsets.size()].at, sizeof(next));
    // Onto a neighbour; half onto it; behind the end; so far that sums wrap.
    for (const uint64_t offset : {next, own == 0 ? uint64_t{32} : own - 32,
                                  uint64_t{good.size()} / 32 * 32, ~uint64_t{31}}) {
      UseGguf(WithField(good, offsets[i], offset));
      ExpectRefused(fmt::format("{} = {}", offsets[i].name, offset));
    }
  }
  constexpr uint64_t kF16 = 1;
  constexpr uint64_t kQ4_0 = 2;
  constexpr uint64_t kF64 = 28;
  const auto types = walk.Named("type of tensor");
  for (size_t i = 0; i + 1 < types.size(); ++i) {  // behind the last one bytes may be left
    for (const uint64_t type : {kF16, kQ4_0, kF64}) {
      UseGguf(WithField(good, types[i], type));
      ExpectRefused(fmt::format("{} = {}", types[i].name, type));
    }
  }
  for (const test::GgufField& dim : walk.Named("dimension ")) {
    uint64_t stored = 0;
    std::memcpy(&stored, good.data() + dim.at, sizeof(stored));
    for (const uint64_t number : {stored * 2, stored / 2, stored + 1}) {
      UseGguf(WithField(good, dim, number));
      ExpectRefused(fmt::format("{} = {} for {}", dim.name, number, stored));
    }
  }
}

TEST_F(BadModelFiles, SafetensorsCutAtEveryPercent) {
  UseFolder("llama");
  const std::string good = test::ReadFile(folder_.path() / "model.safetensors");
  const auto cut = CutAtEveryPercent(good);
  WithFile("model.safetensors", cut,
           [&](size_t i) { ExpectRefused(fmt::format("cut after {} bytes", cut[i].size())); });
}

// The header of a safetensors file, and what is behind it.
std::pair<std::string, std::string> CutSafetensors(const std::string& file) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, file.data(), sizeof(bytes));
  return {file.substr(8, bytes), file.substr(8 + bytes)};
}

TEST_F(BadModelFiles, SafetensorsWithEveryNumberWrong) {
  UseFolder("llama");
  const auto [header, data] = CutSafetensors(test::ReadFile(folder_.path() / "model.safetensors"));
  std::vector<std::string> files;
  for (const uint64_t number : kBadNumbers) {
    files.push_back(files::ByteWriter().Number(number).Raw(header).Raw(data).bytes());
  }
  for (const std::string& changed : WithBadNumbers(header, 200)) {
    files.push_back(files::Safetensors(changed, data));
  }
  WithFile("model.safetensors", files, [&](size_t i) { Try(fmt::format("change {}", i)); });
  EXPECT_GT(tried_, 300);
  // Layer numbers in names are changed too; a few of the numbers are right as they are.
  EXPECT_GT(refused_, tried_ * 9 / 10);
}

TEST_F(BadModelFiles, SafetensorsWithTensorsWhereTheyCannotBe) {
  UseFolder("llama");
  const auto parts = CutSafetensors(test::ReadFile(folder_.path() / "model.safetensors"));
  const auto header = nlohmann::ordered_json::parse(parts.first);
  const std::string& data = parts.second;
  std::vector<std::string> files;
  std::vector<std::string> names;
  const auto add = [&](const std::string& what, const std::string& tensor,
                       const std::function<void(nlohmann::ordered_json&)>& change) {
    auto changed = header;
    change(changed[tensor]);
    names.push_back(tensor + ": " + what);
    files.push_back(files::Safetensors(changed.dump(), data));
  };
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    const int64_t begin = tensor["data_offsets"][0];
    const int64_t end = tensor["data_offsets"][1];
    const auto size = static_cast<int64_t>(data.size());
    add("reversed", name, [&](auto& t) { t["data_offsets"] = {end, begin}; });
    add("beyond the end", name, [&](auto& t) { t["data_offsets"] = {size, size + end - begin}; });
    add("far beyond", name, [&](auto& t) {
      t["data_offsets"] = {INT64_MAX - (end - begin), INT64_MAX};
    });
    add("overlapping", name, [&](auto& t) {
      t["data_offsets"] = begin == 0 ? nlohmann::ordered_json{begin + 2, end + 2}
                                     : nlohmann::ordered_json{begin - 2, end - 2};
    });
    add("of another format", name, [&](auto& t) { t["dtype"] = "F32"; });
    add("of an unknown format", name, [&](auto& t) { t["dtype"] = "F4"; });
    add("an integer", name, [&](auto& t) { t["dtype"] = "I16"; });
    add("longer", name, [&](auto& t) { t["shape"].push_back(2); });
    add("of no size", name, [&](auto& t) { t["shape"] = {0}; });
    add("turned round", name, [&](auto& t) {
      t["shape"] = {1, t["shape"].size() == 2 ? int64_t{t["shape"][0]} * int64_t{t["shape"][1]}
                                              : int64_t{t["shape"][0]}};
    });
    add("too large", name, [&](auto& t) { t["shape"] = {int64_t{1} << 40, int64_t{1} << 40}; });
  }
  ASSERT_GT(files.size(), 200u);
  WithFile("model.safetensors", files, [&](size_t i) { ExpectRefused(names[i]); });
}

TEST_F(BadModelFiles, JsonFilesCutAtEveryPercent) {
  UseFolder("llama");
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}) {
    std::string good = test::ReadFile(folder_.path() / name);
    good.erase(good.find_last_of('}') + 1);  // a line's end may be missing
    const auto cut = CutAtEveryPercent(good);
    WithFile(name, cut, [&](size_t i) {
      ExpectRefused(fmt::format("{} cut after {} bytes", name, cut[i].size()));
    });
  }
}

TEST_F(BadModelFiles, JsonFilesWithEveryNumberWrong) {
  for (const char* model : {"llama", "gemma3", "phi3-longrope", "llama-rope-yarn"}) {
    UseFolder(model);
    for (const char* name :
         {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}) {
      const auto changed = WithBadNumbers(test::ReadFile(folder_.path() / name), 40);
      WithFile(name, changed,
               [&](size_t i) { Try(fmt::format("{}/{} change {}", model, name, i)); });
    }
  }
  EXPECT_GT(tried_, 1000);
  EXPECT_GT(refused_, 200);
}

// Each member of `object`, with what stands there replaced by values of every kind.
void ReplaceEach(const nlohmann::ordered_json& whole, const nlohmann::json::json_pointer& at,
                 std::vector<std::string>& out) {
  static const std::vector<nlohmann::ordered_json> kValues = {
      nullptr,
      true,
      -1,
      0.5,
      1e300,
      "",
      "x\ny",
      nlohmann::ordered_json::array(),
      nlohmann::ordered_json::object(),
      nlohmann::ordered_json::array({nullptr})};
  const nlohmann::ordered_json::json_pointer place(at.to_string());
  const nlohmann::ordered_json& object = whole[place];
  for (const auto& [key, value] : object.items()) {
    const auto member = place / key;
    for (const auto& replacement : kValues) {
      auto changed = whole;
      changed[member] = replacement;
      out.push_back(changed.dump());
    }
    if (value.is_object() && key != "vocab") {
      ReplaceEach(whole, nlohmann::json::json_pointer(member.to_string()), out);
    }
  }
}

TEST_F(BadModelFiles, JsonFilesWithValuesOfOtherKinds) {
  for (const char* model : {"llama", "gemma3", "llama-rope-yarn"}) {
    UseFolder(model);
    for (const char* name :
         {"config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"}) {
      std::vector<std::string> changed;
      ReplaceEach(nlohmann::ordered_json::parse(test::ReadFile(folder_.path() / name)),
                  nlohmann::json::json_pointer(), changed);
      WithFile(name, changed,
               [&](size_t i) { Try(fmt::format("{}/{} change {}", model, name, i)); });
    }
  }
  EXPECT_GT(tried_, 500);
  EXPECT_GT(refused_, 100);
}

TEST_F(BadModelFiles, TemplatesCutAtEveryPercent) {
  UseFolder("llama");
  const std::string good =
      "{%- macro show(part, depth=0) -%}{{ part['text'] | trim }}{%- if depth > 0 -%}"
      "{{ show(part, depth - 1) }}{%- endif -%}{%- endmacro -%}"
      "{%- set ns = namespace(count=0) -%}{{ bos_token }}"
      "{%- for m in messages -%}{%- if m['role'] not in ['user', 'assistant', 'system'] -%}"
      "{{ raise_exception('role ' ~ m['role']) }}{%- elif m.content is string -%}"
      "<|{{ m.role }}|>{{ m.content.strip().split('</think>')[-1][::-1] | replace('a', \"b\") }}"
      "{%- else -%}{%- for part in m.content -%}{{ show(part, 1) }}{%- endfor -%}{%- endif -%}"
      "{%- set ns.count = ns.count + 1 -%}{%- endfor -%}{{ {'a': [1, 2.5]} | tojson(indent=2) }}";
  int cut_inside_a_tag = 0;
  for (const std::string& cut : CutAtEveryPercent(good)) {
    chat_template_.clear();
    folder_.Write("chat_template.jinja", cut);
    EXPECT_FALSE(Try(fmt::format("the model's template cut after {} bytes", cut.size())));
    chat_template_ = folder_.path() / "chat_template.jinja";
    const bool inside = cut.rfind("{{") != std::string::npos &&
                        (cut.rfind("}}") == std::string::npos || cut.rfind("}}") < cut.rfind("{{"));
    const bool refused = Try(fmt::format("the template cut after {} bytes", cut.size()));
    if (inside) {
      ++cut_inside_a_tag;
      EXPECT_TRUE(refused) << cut;
    }
  }
  EXPECT_GT(cut_inside_a_tag, 20);
  EXPECT_GT(refused_, 80);  // a macro, a loop or a condition is open
}

}  // namespace
}  // namespace kvasir
