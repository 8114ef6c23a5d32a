// safetensors: what is read, and what is refused with which words.
#include "files/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "support/data.h"
#include "unit/files/file_makers.h"

namespace kvasir::files {
namespace {

Result<std::unique_ptr<Weights>> Open(const TempFolder& folder, std::string_view header,
                                      std::string_view data) {
  return OpenSafetensors(folder.Write("m.safetensors", Safetensors(header, data)));
}

// "1,1,...".
std::string Ones(int count) {
  std::string ones = "1";
  for (int i = 1; i < count; ++i) ones += ",1";
  return ones;
}

TEST(Safetensors, ReadsEveryFormat) {
  const TempFolder folder;
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::string data;
  struct Case {
    const char* name;
    DType dtype;
    int64_t bytes;
  };
  const std::vector<Case> cases = {
      {"F64", DType::kF64, 8},   {"I64", DType::kI64, 8},        {"F32", DType::kF32, 4},
      {"I32", DType::kI32, 4},   {"F16", DType::kF16, 2},        {"BF16", DType::kBF16, 2},
      {"I16", DType::kI16, 2},   {"I8", DType::kI8, 1},          {"U8", DType::kU8, 1},
      {"BOOL", DType::kBool, 1}, {"F8_E4M3", DType::kF8E4M3, 1}, {"F8_E5M2", DType::kF8E5M2, 1},
  };
  for (const Case& c : cases) {
    const size_t begin = data.size();
    data.append(static_cast<size_t>(6 * c.bytes), '\0');
    header += fmt::format(",\"t.{}\":{{\"dtype\":\"{}\",\"shape\":[2,3],\"data_offsets\":[{},{}]}}",
                          c.name, c.name, begin, data.size());
  }
  header += "}";
  const auto weights = Open(folder, header, data);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ((*weights)->names().size(), cases.size());
  EXPECT_TRUE(std::is_sorted((*weights)->names().begin(), (*weights)->names().end()));
  for (const Case& c : cases) {
    const TensorView* view = (*weights)->Find(std::string("t.") + c.name);
    ASSERT_NE(view, nullptr) << c.name;
    EXPECT_EQ(view->dtype, c.dtype);
    EXPECT_EQ(view->shape, (Shape{2, 3}));
    EXPECT_EQ(view->bytes, 6 * c.bytes);
  }
  EXPECT_EQ((*weights)->Find("t"), nullptr);
}

TEST(Safetensors, ReadsScalarsEmptyTensorsAndUnknownFields) {
  const TempFolder folder;
  const float value = 2.5f;
  const auto weights =
      Open(folder,
           R"( {"s":{"dtype":"F32","shape":[],"data_offsets":[0,4],"note":[[{"dtype":"?"}]]},)"
           R"("none":{"dtype":"F16","shape":[0,9],"data_offsets":[4,4]}}    )",
           std::string_view(reinterpret_cast<const char*>(&value), 4));
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(ToFloat(*(*weights)->Find("s")), std::vector<float>{2.5f});
  EXPECT_TRUE(ToFloat(*(*weights)->Find("none")).empty());
  EXPECT_TRUE(Open(folder, "{}", "").ok());
}

TEST(Safetensors, GivesAlignedDataForMisalignedFiles) {
  const TempFolder folder;
  const std::vector<float> values = {1.0f, -2.0f, 3.5f};
  // A header of odd length: the floats lie at an odd address in the file.
  std::string header = R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})";
  if ((header.size() + 8) % 2 == 0) header += ' ';
  const auto weights =
      Open(folder, header, std::string_view(reinterpret_cast<const char*>(values.data()), 12));
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  const TensorView* found[2] = {};
  std::thread other([&] { found[0] = (*weights)->Find("w"); });
  found[1] = (*weights)->Find("w");
  other.join();
  EXPECT_EQ(found[0], found[1]);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(found[0]->data) % alignof(float), 0u);
  (*weights)->Release({found[0]->data, static_cast<size_t>(found[0]->bytes)});
  EXPECT_EQ(ToFloat(*found[0]), values);
}

TEST(Safetensors, DataIsStillThereAfterRelease) {
  const auto weights = OpenSafetensors(test::DataPath("models/llama-f32"));
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  for (const std::string& name : (*weights)->names()) {
    const TensorView& view = *(*weights)->Find(name);
    const std::vector<float> before = ToFloat(view);
    (*weights)->Release({view.data, static_cast<size_t>(view.bytes)});
    EXPECT_EQ(ToFloat(view), before) << name;
  }
}

TEST(Safetensors, RequireNamesFileAndTensor) {
  const auto weights = OpenSafetensors(test::DataPath("models/llama"));
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_TRUE((*weights)->Require("model.norm.weight").ok());
  ExpectError((*weights)->Require("model.norm.bias"),
              {"llama/model.safetensors", "'model.norm.bias'"});
  EXPECT_TRUE((*weights)->FileOf("model.norm.weight").ends_with("llama/model.safetensors"));
}

TEST(Safetensors, RefusesBrokenHeaders) {
  struct Case {
    std::string header;
    std::string data;
    std::vector<std::string> words;
  };
  const std::string eight(8, '\0');
  const std::vector<Case> cases = {
      {"", "", {"valid JSON"}},
      {"nonsense", "", {"valid JSON", "line 1, column 2"}},
      {"[]", "", {"expected a JSON object", "array"}},
      {"7", "", {"expected a JSON object", "number"}},
      {R"({"w":3})", "", {"tensor 'w'", "expected an object", "number"}},
      {R"({"w":[]})", "", {"tensor 'w'", "expected an object", "array"}},
      {R"({"w":{}})", "", {"tensor 'w'", "'dtype' is missing"}},
      {R"({"w":{"dtype":"F32","data_offsets":[0,8]}})", eight, {"'shape' is missing"}},
      {R"({"w":{"dtype":"F32","shape":[2]}})", eight, {"'data_offsets' is missing"}},
      {R"({"w":{"dtype":"F4","shape":[2],"data_offsets":[0,8]}})",
       eight,
       {"tensor 'w'", "dtype 'F4'", "F8_E5M2"}},
      {R"({"w":{"dtype":7,"shape":[2],"data_offsets":[0,8]}})",
       eight,
       {"tensor 'w'", "a string in 'dtype'", "number"}},
      {R"({"w":{"dtype":["F32"],"shape":[2],"data_offsets":[0,8]}})",
       eight,
       {"a string in 'dtype'"}},
      {R"({"w":{"dtype":"F32","shape":"2","data_offsets":[0,8]}})",
       eight,
       {"an array of integers in 'shape'", "a string"}},
      {R"({"w":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", eight, {"'shape'"}},
      {R"({"w":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})",
       eight,
       {"'shape'", "an array"}},
      {R"({"w":{"dtype":"F32","shape":[{"a":2}],"data_offsets":[0,8]}})",
       eight,
       {"'shape'", "an object"}},
      {R"({"w":{"dtype":"F32","shape":{"a":2},"data_offsets":[0,8]}})",
       eight,
       {"'shape'", "an object"}},
      {R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", eight, {"negative", "-2"}},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0]}})",
       eight,
       {"2 data_offsets", "came 1"}},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})",
       eight,
       {"at most 2 numbers in 'data_offsets'"}},
      {R"({"w":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}})",
       eight,
       {"'shape' once"}},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",
       eight,
       {"data_offsets in order", "[8, 0]"}},
      {R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
       eight,
       {"tensor 'w'", "[3] in F32 expected 12 bytes", "hold 8"}},
      {R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})",
       eight,
       {"tensor 'w'", "[0, 12)", "8 bytes of data", "incomplete download?"}},
      {R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})",
       eight,
       {"tensor 'w'", "more than 2^63"}},
      {R"({"w":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}})",
       eight,
       {"tensor 'w'", "below 2^63"}},
      {R"({"w":{"dtype":"F32","shape":[1e400],"data_offsets":[0,8]}})", eight, {"valid JSON"}},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
       eight,
       {"tensor 'b'", "tensor 'a' ends", "overlap"}},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[3],"data_offsets":[5,8]}})",
       eight,
       {"tensor 'b'", "hole"}},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", eight, {"tensor 'a'", "hole"}},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       eight,
       {"4 bytes of data", "has 8", "no tensor"}},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       eight,
       {"tensor 'a'", "once", "again"}},
      {R"({"w":{"dtype":"F32","x":)" + std::string(100'000, '[') + "}",
       eight,
       {"at most 16 levels"}},
      {R"({"w":{"dtype":"U8","shape":[)" + Ones(65) + R"(],"data_offsets":[0,1]}})",
       eight,
       {"at most 64 numbers in 'shape'"}},
      {"{\"a\\nb\":{}}", "", {"tensor 'a\\x0ab'"}},
  };
  const TempFolder folder;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.header.substr(0, 200));
    std::vector<std::string> words = c.words;
    words.emplace_back("m.safetensors");
    ExpectError(Open(folder, c.header, c.data), words);
  }
}

TEST(Safetensors, RefusesBrokenLengths) {
  const TempFolder folder;
  const auto open = [&](const std::string& bytes) {
    return OpenSafetensors(folder.Write("m.safetensors", bytes));
  };
  ExpectError(open(""), {"m.safetensors", "found 0 bytes"});
  ExpectError(open("1234567"), {"m.safetensors", "found 7 bytes"});
  ExpectError(open(ByteWriter().Number(uint64_t{0}).bytes()), {"valid JSON"});
  ExpectError(open(ByteWriter().Number(uint64_t{INT64_MAX}).bytes()),
              {"at most 100000000 bytes", "9223372036854775807"});
  ExpectError(open(ByteWriter().Number(uint64_t{200'000'000}).Raw("12345678").bytes()),
              {"at most 100000000 bytes", "200000000"});
  ExpectError(open(ByteWriter().Number(uint64_t{99'999'999}).Raw("12345678").bytes()),
              {"99999999 bytes", "only 8 follow"});
  // A Git LFS pointer in place of the file.
  ExpectError(open("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"),
              {"m.safetensors", "at most 100000000 bytes"});
}

// Shards.

constexpr std::string_view kOne = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
constexpr std::string_view kTwo = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                  R"("b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})";

TEST(SafetensorsIndex, OpensByFolderAndByName) {
  const auto sharded = OpenSafetensors(test::DataPath("models/llama-f16-sharded"));
  ASSERT_TRUE(sharded.ok()) << sharded.error().message;
  const auto by_index =
      OpenSafetensors(test::DataPath("models/llama-f16-sharded/model.safetensors.index.json"));
  ASSERT_TRUE(by_index.ok()) << by_index.error().message;
  EXPECT_EQ((*sharded)->names(), (*by_index)->names());
  EXPECT_EQ((*sharded)->names().size(), 30u);
  int64_t bytes = 0;
  for (const std::string& name : (*sharded)->names()) bytes += (*sharded)->Find(name)->bytes;
  EXPECT_EQ(bytes, 307'072);  // the index's total_size
  EXPECT_EQ((*sharded)->Find("lm_head.weight")->dtype, DType::kF16);
  EXPECT_TRUE((*sharded)->FileOf("lm_head.weight").ends_with("model-00004-of-00005.safetensors"));
}

TEST(SafetensorsIndex, TheIndexDecidesWhichFileGivesATensor) {
  for (const char* file : {"1.safetensors", "2.safetensors"}) {
    const TempFolder folder;
    folder.Write("1.safetensors", Safetensors(kTwo, "\x01\x05"));
    folder.Write("2.safetensors", Safetensors(kOne, "\x09"));
    folder.Write("model.safetensors.index.json",
                 fmt::format(R"({{"weight_map":{{"a":"{}","b":"1.safetensors"}}}})", file));
    const auto weights = OpenSafetensors(folder.path());
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    EXPECT_EQ(ToFloat(*(*weights)->Find("a"))[0], file[0] == '1' ? 1.0f : 9.0f);
    EXPECT_EQ(ToFloat(*(*weights)->Find("b"))[0], 5.0f);
  }
}

TEST(SafetensorsIndex, RefusesWhatDoesNotFit) {
  const TempFolder folder;
  folder.Write("1.safetensors", Safetensors(kOne, "1"));
  folder.Write("sub/2.safetensors", Safetensors(kOne, "1"));
  const auto open = [&](std::string_view index) {
    return OpenSafetensors(folder.Write("model.safetensors.index.json", index));
  };
  EXPECT_TRUE(open(R"({"weight_map":{"a":"1.safetensors"}})").ok());
  ExpectError(
      open(R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors","c":"3.safetensors"}})"),
      {"index.json", "expected 3 files", "missing 2: 2.safetensors, 3.safetensors",
       "incomplete download?"});
  ExpectError(open(R"({"weight_map":{"a":"1.safetensors","b":"1.safetensors"}})"),
              {"1.safetensors", "tensor 'b'", "model.safetensors.index.json"});
  for (const char* name : {"../x/1.safetensors", "/etc/passwd", "", ".", "..", "sub/2.safetensors",
                           "a\\\\b", "a\\u0000b"}) {
    ExpectError(open(fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", name)),
                {"tensor 'a'", "plain name of a file"});
  }
  ExpectError(open(R"({"weight_map":{"a":7}})"), {"tensor 'a'", "number"});
  ExpectError(open(R"({"weight_map":[]})"), {"weight_map"});
  ExpectError(open(R"([])"), {"weight_map"});
  ExpectError(open(R"({"weight_map":)"), {"index.json", "valid JSON"});
  ExpectError(open(std::string(10'000, '[')), {"index.json", "levels"});
}

TEST(SafetensorsFolder, PicksOneSetByRule) {
  const TempFolder folder;
  folder.Write("consolidated.safetensors", Safetensors(kOne, "\x01"));
  auto weights = OpenSafetensors(folder.path());
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ((*weights)->names().size(), 1u);
  folder.Write("other.safetensors", Safetensors(kOne, "\x01"));
  ExpectError(OpenSafetensors(folder.path()), {"found 2 .safetensors files and no index"});
  folder.Write("model.safetensors.index.json", R"({"weight_map":{"a":"other.safetensors"}})");
  weights = OpenSafetensors(folder.path());
  ASSERT_TRUE(weights.ok());
  EXPECT_TRUE((*weights)->FileOf("a").ends_with("other.safetensors"));
  folder.Write("model.safetensors", Safetensors(kTwo, "\x01\x02"));
  weights = OpenSafetensors(folder.path());
  ASSERT_TRUE(weights.ok());
  EXPECT_TRUE((*weights)->FileOf("a").ends_with("/model.safetensors"));
}

}  // namespace
}  // namespace kvasir::files
