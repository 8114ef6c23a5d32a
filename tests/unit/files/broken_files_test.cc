// Files cut short and files with one number changed: each is opened or refused with one line, and
// never costs more memory than its own size warrants.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/rng.h"
#include "files/gguf.h"
#include "files/inspect.h"
#include "files/json.h"
#include "files/model_files.h"
#include "files/safetensors.h"
#include "support/counting_new.h"
#include "support/data.h"
#include "unit/files/file_makers.h"

namespace kvasir::files {
namespace {

constexpr std::array<uint64_t, 6> kBadNumbers = {
    0, 1, uint64_t{1} << 31, (uint64_t{1} << 42) + 1, INT64_MAX, UINT64_MAX};

// Reads everything a view promises; a lie about the file would be a fault.
void Touch(const Weights& weights) {
  volatile uint8_t sink = 0;
  for (const std::string& name : weights.names()) {
    const TensorView* view = weights.Find(name);
    ASSERT_NE(view, nullptr);
    ASSERT_EQ(view->bytes, view->rows() * RowBytes(view->dtype, view->cols()));
    for (int64_t i = 0; i < view->bytes; ++i) {
      sink = static_cast<uint8_t>(sink ^ static_cast<uint8_t>(view->data[i]));
    }
  }
}

void TouchStrings(const GgufMetadata& metadata) {
  size_t sum = 0;
  for (const auto& [key, value] : metadata.values) {
    if (const auto* text = std::get_if<std::string_view>(&value)) {
      sum += static_cast<size_t>(std::count(text->begin(), text->end(), 'x'));
    } else if (const auto* texts = std::get_if<std::vector<std::string_view>>(&value)) {
      for (const std::string_view t : *texts) sum += t.empty() ? 0 : static_cast<uint8_t>(t.back());
    }
  }
  EXPECT_LT(sum, size_t{1} << 40);
}

// Runs open() on a file of `bytes`; counts what was refused.
class Trial {
 public:
  template <typename Open, typename Check>
  void Run(size_t bytes, Open&& open, Check&& check) {
    const int64_t before = test::allocated_bytes;
    const auto result = open();
    const int64_t allocated = test::allocated_bytes - before;
    // Messages, paths and the like, and for each byte of the file the nodes of a JSON tree or map.
    EXPECT_LT(allocated, 200'000 + 100 * static_cast<int64_t>(bytes));
    ++runs_count_;
    if (result.ok()) {
      check(*result);
    } else {
      ++refused_count_;
      EXPECT_TRUE(IsOneLine(result.error().message)) << result.error().message;
      EXPECT_NE(result.error().message.find("/kvasir-test-"), std::string::npos)
          << "names no file: " << result.error().message;
    }
  }
  [[nodiscard]] int runs_count() const { return runs_count_; }
  [[nodiscard]] int refused_count() const { return refused_count_; }

 private:
  int runs_count_ = 0;
  int refused_count_ = 0;
};

// Lengths at every percent of `size`, and all near its start.
std::vector<size_t> CutLengths(size_t size) {
  std::vector<size_t> lengths;
  for (size_t percent = 0; percent < 100; ++percent) lengths.push_back(size * percent / 100);
  for (size_t length = 0; length < std::min<size_t>(size, 64); ++length) lengths.push_back(length);
  lengths.push_back(size - 1);
  return lengths;
}

class BrokenFiles : public ::testing::Test {
 protected:
  void SetUp() override { SetLogLevel(LogLevel::kOff); }
  void TearDown() override { SetLogLevel(LogLevel::kInfo); }

  void RunSafetensors(const std::string& bytes) {
    const auto path = folder_.Write("model.safetensors", bytes);
    trial_.Run(
        bytes.size(), [&] { return OpenSafetensors(path); },
        [](const std::unique_ptr<Weights>& weights) { Touch(*weights); });
  }
  void RunGguf(const std::string& bytes) {
    const auto path = folder_.Write("model.gguf", bytes);
    trial_.Run(
        bytes.size(), [&] { return OpenGguf(path); },
        [](const GgufFile& gguf) {
          Touch(*gguf.weights);
          TouchStrings(gguf.metadata);
        });
  }

  TempFolder folder_;
  Trial trial_;
};

// `text` with each of its runs of digits replaced by `number`, one at a time.
std::vector<std::string> WithEachNumberAs(const std::string& text, const std::string& number) {
  constexpr std::string_view kDigits = "0123456789";
  std::vector<std::string> changed;
  for (size_t begin = text.find_first_of(kDigits); begin != std::string::npos;) {
    const size_t end = std::min(text.find_first_not_of(kDigits, begin), text.size());
    changed.push_back(text.substr(0, begin) + number + text.substr(end));
    begin = text.find_first_of(kDigits, end);
  }
  return changed;
}

TEST_F(BrokenFiles, SafetensorsCutShort) {
  const std::string bytes = test::ReadFile(test::DataPath("models/granite/model.safetensors"));
  for (const size_t length : CutLengths(bytes.size())) RunSafetensors(bytes.substr(0, length));
  EXPECT_EQ(trial_.refused_count(), trial_.runs_count());
}

TEST_F(BrokenFiles, SafetensorsWithOneNumberChanged) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                             R"("b":{"dtype":"I8","shape":[],"data_offsets":[24,25]},)"
                             R"("c":{"dtype":"F16","shape":[1,2,1],"data_offsets":[25,29]}})";
  const std::string data(29, 'x');
  ASSERT_TRUE(OpenSafetensors(folder_.Write("good.safetensors", Safetensors(header, data))).ok());
  for (const uint64_t number : kBadNumbers) {
    for (const std::string& changed : WithEachNumberAs(header, std::to_string(number))) {
      RunSafetensors(Safetensors(changed, data));
    }
    RunSafetensors(ByteWriter().Number(number).Raw(header).Raw(data).bytes());
  }
  EXPECT_GT(trial_.runs_count(), 80);
  EXPECT_GT(trial_.refused_count(), trial_.runs_count() * 3 / 4);
}

TEST_F(BrokenFiles, SafetensorsWithOneByteChanged) {
  const std::string good = test::ReadFile(test::DataPath("models/granite/model.safetensors"));
  Rng rng(11);
  for (int i = 0; i < 600; ++i) {
    std::string bytes = good;
    bytes[rng.Below(3000)] = static_cast<char>(rng.Next());
    RunSafetensors(bytes);
  }
  EXPECT_GT(trial_.refused_count(), 300);
}

// All kinds of metadata, and tensors of several formats.
ByteWriter RichGguf() {
  ByteWriter w;
  w.GgufHeader(3, 8).Key("general.alignment", 4).Marked<uint32_t>(32, "alignment");
  w.Key("arch", 8).String("llama").Key("flag", 7).Number<uint8_t>(1);
  w.Key("tokens", 9).Marked<uint32_t>(8, "element type").Marked<uint64_t>(3, "count");
  w.String("a").String("b").String("");
  w.Key("scores", 9).Marked<uint32_t>(6, "element type").Marked<uint64_t>(4, "count");
  for (int i = 0; i < 4; ++i) w.Number(0.5f);
  w.Key("flags", 9).Marked<uint32_t>(7, "element type").Marked<uint64_t>(2, "count");
  w.Number<uint8_t>(0).Number<uint8_t>(1);
  w.Key("split.count", 2).Marked<uint16_t>(0, "split.count");
  w.Key("big", 10).Marked<uint64_t>(5, "value");
  w.Tensor("w", {32, 2}, 2, 0).Tensor("k", {256}, 14, 64).Tensor("n", {2, 1, 1, 1}, 0, 288);
  return w.Pad(32).Raw(std::string(296, '\x01'));
}

TEST_F(BrokenFiles, GgufCutShort) {
  const std::string small = RichGguf().bytes();
  for (size_t length = 0; length < small.size(); ++length) RunGguf(small.substr(0, length));
  const std::string bytes =
      test::ReadFile(test::DataPath("models/gguf/llama-wide-q4_k_m/model.gguf"));
  for (const size_t length : CutLengths(bytes.size())) RunGguf(bytes.substr(0, length));
  EXPECT_EQ(trial_.refused_count(), trial_.runs_count());
}

TEST_F(BrokenFiles, GgufWithOneFieldChanged) {
  const ByteWriter writer = RichGguf();
  ASSERT_TRUE(OpenGguf(folder_.Write("good.gguf", writer.bytes())).ok());
  for (const Field& field : writer.fields()) {
    SCOPED_TRACE(field.name);
    for (const uint64_t number : kBadNumbers) {
      std::string bytes = writer.bytes();
      std::memcpy(bytes.data() + field.at, &number, field.bytes);
      RunGguf(bytes);
    }
  }
  EXPECT_GT(trial_.runs_count(), 200);
  EXPECT_GT(trial_.refused_count(), trial_.runs_count() * 3 / 4);
}

TEST_F(BrokenFiles, GgufWithOneByteChanged) {
  const std::string small = RichGguf().bytes();
  for (size_t at = 0; at < small.size() - 296; ++at) {
    for (const int change : {0x01, 0x80, 0xFF}) {
      std::string bytes = small;
      bytes[at] = static_cast<char>(bytes[at] ^ static_cast<char>(change));
      RunGguf(bytes);
    }
  }
  const std::string good = test::ReadFile(test::DataPath("models/gguf/qwen3-q4_0/model.gguf"));
  Rng rng(12);
  for (int i = 0; i < 400; ++i) {
    std::string bytes = good;
    bytes[rng.Below(20'000)] = static_cast<char>(rng.Next());
    RunGguf(bytes);
  }
  EXPECT_GT(trial_.refused_count(), 300);
}

TEST_F(BrokenFiles, ConfigsAndTokenizersCutOrChanged) {
  const auto good = test::DataPath("models/llama");
  const std::vector<std::string> names = {"config.json", "generation_config.json",
                                          "tokenizer_config.json", "tokenizer.json"};
  for (const std::string& name : names) folder_.Write(name, test::ReadFile(good / name));
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const std::string text = test::ReadFile(good / name);
    const auto run = [&](const std::string& bytes) {
      const auto path = folder_.Write(name, bytes);
      trial_.Run(
          bytes.size() + 40'000, [&] { return OpenModel(folder_.path(), {.need_weights = false}); },
          [&](const ModelFiles& model) {
            // tokenizer.json is handed on as text; whoever parses it does so with ParseJson.
            trial_.Run(
                bytes.size() + 40'000,
                [&] { return ParseJson(model.tokenizer_json, path.native()); },
                [](const nlohmann::json&) {});
          });
    };
    for (const size_t length : CutLengths(text.size())) run(text.substr(0, length));
    EXPECT_GT(trial_.refused_count(), 100);
    const size_t numbers_count = name == "tokenizer.json" ? 40 : 1000;
    for (const uint64_t number : kBadNumbers) {
      std::vector<std::string> changed = WithEachNumberAs(text, std::to_string(number));
      changed.resize(std::min(changed.size(), numbers_count));
      for (const std::string& bytes : changed) run(bytes);
    }
    folder_.Write(name, text);
  }
}

}  // namespace
}  // namespace kvasir::files
