// GGUF: what is read, and what is refused with which words.
#include "files/gguf.h"

#include <gtest/gtest.h>
#include <lzma.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "files/ggml_types.h"
#include "support/data.h"
#include "unit/files/file_makers.h"

namespace kvasir::files {
namespace {

// Numbers of value types, as the format has them.
constexpr uint32_t kUint8 = 0, kInt8 = 1, kUint16 = 2, kInt16 = 3, kUint32 = 4, kInt32 = 5,
                   kFloat32 = 6, kBool = 7, kString = 8, kArray = 9, kUint64 = 10, kInt64 = 11,
                   kFloat64 = 12;

Result<GgufFile> Open(const TempFolder& folder, const ByteWriter& writer) {
  return OpenGguf(folder.Write("m.gguf", writer.bytes()));
}

// A value against what Python read; arrays are given as count, first and last.
void ExpectValue(const GgufMetadata& metadata, const std::string& key,
                 const nlohmann::json& golden) {
  SCOPED_TRACE(key);
  if (golden.is_string()) {
    EXPECT_EQ(metadata.String(key), golden.get<std::string>());
  } else if (golden.is_boolean()) {
    EXPECT_EQ(metadata.Bool(key), golden.get<bool>());
  } else if (golden.is_number_integer()) {
    EXPECT_EQ(metadata.Int(key), golden.get<int64_t>());
  } else if (golden.is_number_float()) {
    EXPECT_EQ(metadata.Float(key), golden.get<double>());
    EXPECT_EQ(metadata.Int(key), std::nullopt);
  } else if (golden.at("first").is_string()) {
    const auto* strings = metadata.Strings(key);
    ASSERT_NE(strings, nullptr);
    EXPECT_EQ(strings->size(), golden.at("count").get<size_t>());
    EXPECT_EQ(strings->front(), golden.at("first").get<std::string>());
    EXPECT_EQ(strings->back(), golden.at("last").get<std::string>());
  } else if (golden.at("first").is_number_integer()) {
    const auto* ints = metadata.Ints(key);
    ASSERT_NE(ints, nullptr);
    EXPECT_EQ(ints->size(), golden.at("count").get<size_t>());
    EXPECT_EQ(ints->front(), golden.at("first").get<int64_t>());
    EXPECT_EQ(ints->back(), golden.at("last").get<int64_t>());
  } else {
    const auto* floats = metadata.Floats(key);
    ASSERT_NE(floats, nullptr);
    EXPECT_EQ(floats->size(), golden.at("count").get<size_t>());
    EXPECT_EQ(floats->front(), golden.at("first").get<double>());
    EXPECT_EQ(floats->back(), golden.at("last").get<double>());
  }
}

// Metadata, shapes and every decoded value of the tiny models, against the `gguf` Python package.
TEST(Gguf, EqualsWhatPythonReads) {
  const auto golden =
      nlohmann::json::parse(test::ReadFile(test::DataPath("files/gguf_golden.json")));
  ASSERT_GE(golden.size(), 12u);
  for (const auto& [model, expected] : golden.items()) {
    SCOPED_TRACE(model);
    const auto gguf = OpenGguf(test::DataPath("models/gguf/" + model + "/model.gguf"));
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    EXPECT_EQ(gguf->version, 3);
    EXPECT_EQ(gguf->metadata.values.size(), expected["metadata"].size());
    for (const auto& [key, value] : expected["metadata"].items()) {
      ExpectValue(gguf->metadata, key, value);
    }
    EXPECT_EQ(gguf->weights->names().size(), expected["tensors"].size());
    for (const auto& [name, tensor] : expected["tensors"].items()) {
      const TensorView* view = gguf->weights->Find(name);
      ASSERT_NE(view, nullptr) << name;
      EXPECT_EQ(Info(view->dtype).name, tensor["format"].get<std::string>());
      EXPECT_EQ(view->shape, tensor["shape"].get<Shape>());
      const std::vector<float> values = ToFloat(*view);
      EXPECT_EQ(lzma_crc32(reinterpret_cast<const uint8_t*>(values.data()),
                           values.size() * sizeof(float), 0),
                tensor["crc32"].get<uint32_t>())
          << name;
    }
  }
}

// A quarter of a million tokens with scores, types and merges.
TEST(Gguf, ReadsVocabulariesOfTheSharedSet) {
  KVASIR_SHARED_OR_SKIP(folder, "gguf-vocabs");
  const TempFolder temp;
  for (const auto& [name, tokens_count] : std::vector<std::pair<std::string, size_t>>{
           {"deepseek-llm", 102400}, {"llama-spm", 32000}, {"falcon", 65024}, {"gpt-2", 50257}}) {
    const std::string bytes = test::ReadFile(folder / ("ggml-vocab-" + name + ".gguf.xz"));
    const auto gguf = OpenGguf(temp.Write("v.gguf", bytes));
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    EXPECT_TRUE(gguf->weights->names().empty());
    ASSERT_NE(gguf->metadata.Strings("tokenizer.ggml.tokens"), nullptr);
    EXPECT_EQ(gguf->metadata.Strings("tokenizer.ggml.tokens")->size(), tokens_count);
  }
}

TEST(Gguf, ReadsEveryKindOfMetadata) {
  ByteWriter w;
  w.GgufHeader(0, 24);
  w.Key("u8", kUint8).Number<uint8_t>(200);
  w.Key("i8", kInt8).Number<int8_t>(-100);
  w.Key("u16", kUint16).Number<uint16_t>(60000);
  w.Key("i16", kInt16).Number<int16_t>(-30000);
  w.Key("u32", kUint32).Number<uint32_t>(4'000'000'000);
  w.Key("i32", kInt32).Number<int32_t>(-2'000'000'000);
  w.Key("f32", kFloat32).Number<float>(0.1f);
  w.Key("bool", kBool).Number<uint8_t>(1);
  w.Key("string", kString).String("h\xc3\xa9");
  w.Key("u64", kUint64).Number<uint64_t>(INT64_MAX);
  w.Key("i64", kInt64).Number<int64_t>(INT64_MIN);
  w.Key("f64", kFloat64).Number<double>(0.1);
  const auto array = [&](const char* key, uint32_t type, uint64_t count) -> ByteWriter& {
    return w.Key(key, kArray).Number(type).Number(count);
  };
  array("u8s", kUint8, 2).Number<uint8_t>(1).Number<uint8_t>(255);
  array("i8s", kInt8, 1).Number<int8_t>(-1);
  array("u16s", kUint16, 1).Number<uint16_t>(65535);
  array("i16s", kInt16, 1).Number<int16_t>(-2);
  array("u32s", kUint32, 1).Number<uint32_t>(UINT32_MAX);
  array("i32s", kInt32, 2).Number<int32_t>(-3).Number<int32_t>(4);
  array("f32s", kFloat32, 1).Number<float>(0.5f);
  array("bools", kBool, 3).Number<uint8_t>(1).Number<uint8_t>(0).Number<uint8_t>(1);
  array("strings", kString, 2).String("").String("b");
  array("u64s", kUint64, 1).Number<uint64_t>(7);
  array("i64s", kInt64, 0);
  array("f64s", kFloat64, 1).Number<double>(-0.25);
  const TempFolder folder;
  const auto gguf = Open(folder, w);
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  const GgufMetadata& m = gguf->metadata;
  EXPECT_EQ(m.Int("u8"), 200);
  EXPECT_EQ(m.Int("i8"), -100);
  EXPECT_EQ(m.Int("u16"), 60000);
  EXPECT_EQ(m.Int("i16"), -30000);
  EXPECT_EQ(m.Int("u32"), 4'000'000'000);
  EXPECT_EQ(m.Int("i32"), -2'000'000'000);
  EXPECT_EQ(m.Float("f32"), static_cast<double>(0.1f));
  EXPECT_EQ(m.Bool("bool"), true);
  EXPECT_EQ(m.String("string"), "h\xc3\xa9");
  EXPECT_EQ(m.Int("u64"), INT64_MAX);
  EXPECT_EQ(m.Int("i64"), INT64_MIN);
  EXPECT_EQ(m.Float("f64"), 0.1);
  EXPECT_EQ(*m.Ints("u8s"), (std::vector<int64_t>{1, 255}));
  EXPECT_EQ(*m.Ints("i8s"), std::vector<int64_t>{-1});
  EXPECT_EQ(*m.Ints("u16s"), std::vector<int64_t>{65535});
  EXPECT_EQ(*m.Ints("i16s"), std::vector<int64_t>{-2});
  EXPECT_EQ(*m.Ints("u32s"), std::vector<int64_t>{UINT32_MAX});
  EXPECT_EQ(*m.Ints("i32s"), (std::vector<int64_t>{-3, 4}));
  EXPECT_EQ(*m.Floats("f32s"), std::vector<double>{0.5});
  EXPECT_EQ(std::get<std::vector<bool>>(*m.Find("bools")), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(*m.Strings("strings"), (std::vector<std::string_view>{"", "b"}));
  EXPECT_EQ(*m.Ints("u64s"), std::vector<int64_t>{7});
  EXPECT_TRUE(m.Ints("i64s")->empty());
  EXPECT_EQ(*m.Floats("f64s"), std::vector<double>{-0.25});
  // Typed look-ups never convert, but for an integer as a float.
  EXPECT_EQ(m.Float("u8"), 200.0);
  EXPECT_EQ(m.Int("f32"), std::nullopt);
  EXPECT_EQ(m.Bool("u8"), std::nullopt);
  EXPECT_EQ(m.String("u8"), std::nullopt);
  EXPECT_EQ(m.Strings("i32s"), nullptr);
  EXPECT_EQ(m.Find("absent"), nullptr);
}

// One F32 tensor [out 2, in 3] of `version`, with `alignment` where it is not the default.
ByteWriter OneTensor(uint32_t version, uint32_t alignment) {
  ByteWriter w;
  w.GgufHeader(1, 1, version).Key("general.alignment", kUint32).Number(alignment);
  w.Tensor("w", {3, 2}, 0, 0).Pad(alignment);
  for (int i = 0; i < 6; ++i) w.Number(static_cast<float>(i));
  return w;
}

TEST(Gguf, TurnsDimensionsAroundAndHonoursAlignment) {
  const TempFolder folder;
  for (const uint32_t version : {2u, 3u}) {
    for (const uint32_t alignment : {1u, 8u, 32u, 4096u, 1u << 20}) {
      const auto gguf = Open(folder, OneTensor(version, alignment));
      ASSERT_TRUE(gguf.ok()) << gguf.error().message;
      const TensorView& view = *gguf->weights->Find("w");
      EXPECT_EQ(view.shape, (Shape{2, 3}));
      EXPECT_EQ(ToFloat(view), (std::vector<float>{0, 1, 2, 3, 4, 5})) << alignment;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % 4, 0u);
    }
  }
}

TEST(Gguf, RefusesBrokenHeadersAndMetadata) {
  const TempFolder folder;
  const auto expect = [&](const ByteWriter& w, std::vector<std::string> words) {
    words.emplace_back("m.gguf");
    ExpectError(Open(folder, w), words);
  };
  expect(ByteWriter(), {"expected a GGUF file", "''"});
  expect(ByteWriter().Raw("GGU"), {"expected a GGUF file", "'GGU'"});
  expect(ByteWriter().Raw("\x89PNG...."), {"found '\\x89PNG'"});
  expect(ByteWriter().Raw("GGUF"), {"cut short"});
  expect(ByteWriter().GgufHeader(0, 0, 1), {"version 2 or 3, found 1", "convert the model again"});
  expect(ByteWriter().GgufHeader(0, 0, 4), {"version 2 or 3, found 4"});
  expect(ByteWriter().GgufHeader(0, 0, 0x03000000), {"big-endian"});
  for (const uint64_t many : {uint64_t{1}, uint64_t{1} << 31, uint64_t{INT64_MAX}, UINT64_MAX}) {
    expect(ByteWriter().GgufHeader(0, many), {"metadata entries", "0 bytes left"});
    expect(ByteWriter().GgufHeader(many, 0), {"tensors", "0 bytes left"});
    ByteWriter string;
    string.GgufHeader(0, 1).Key("s", kString).Number<uint64_t>(many);
    expect(string, {"key 's'", "string of", "cut short"});
    ByteWriter array;
    array.GgufHeader(0, 1).Key("a", kArray).Number(kUint64).Number(many);
    expect(array, {"key 'a'", "array of", "0 bytes left hold at most 0"});
  }
  expect(ByteWriter().GgufHeader(0, 1).Number<uint64_t>(70'000).Raw(std::string(80'000, 'k')),
         {"metadata entry 1 of 1", "key of at most 65535"});
  expect(ByteWriter().GgufHeader(0, 1).Key("k", 13).Number<uint64_t>(0),
         {"key 'k'", "value type from 0 to 12, came 13"});
  expect(ByteWriter().GgufHeader(0, 1).Key("k", kArray).Number(uint32_t{77}).Number<uint64_t>(0),
         {"key 'k'", "value type from 0 to 12, came 77"});
  expect(ByteWriter().GgufHeader(0, 1).Key("k", kArray).Number(kArray).Number<uint64_t>(1 << 30),
         {"key 'k'", "array of arrays"});
  expect(ByteWriter().GgufHeader(0, 1).Key("k", kBool).Number<uint8_t>(2),
         {"key 'k'", "boolean of 0 or 1, came 2"});
  expect(ByteWriter().GgufHeader(0, 1).Key("k", kUint64).Number<uint64_t>(uint64_t{1} << 63),
         {"key 'k'", "below 2^63", "9223372036854775808"});
  ByteWriter twice;
  twice.GgufHeader(0, 2).Key("k", kUint8).Number<uint8_t>(1).Key("k", kUint8).Number<uint8_t>(1);
  expect(twice, {"key 'k'", "once"});
  for (const int64_t alignment : {int64_t{0}, int64_t{3}, int64_t{0x80000000}, int64_t{-32}}) {
    ByteWriter w;
    w.GgufHeader(0, 1).Key("general.alignment", kInt64).Number(alignment);
    expect(w, {"general.alignment", "power of two", std::to_string(alignment)});
  }
  ByteWriter named;
  named.GgufHeader(0, 1).Key("general.alignment", kString).String("32");
  expect(named, {"general.alignment", "expected an integer"});
}

TEST(Gguf, RefusesBrokenTensors) {
  const TempFolder folder;
  // A table of `tensors` (name, ne, type, offset) over `data_bytes` of zeros.
  struct T {
    std::string name;
    std::vector<uint64_t> ne;
    uint32_t type;
    uint64_t offset;
  };
  const auto open = [&](const std::vector<T>& tensors, size_t data_bytes) {
    ByteWriter w;
    w.GgufHeader(tensors.size(), 0);
    for (const T& t : tensors) w.Tensor(t.name, t.ne, t.type, t.offset);
    w.Pad(32).Raw(std::string(data_bytes, '\0'));
    return Open(folder, w);
  };
  EXPECT_TRUE(open({{"a", {8}, 0, 0}, {"b", {32, 2}, 8, 32}}, 100).ok());
  const auto expect = [&](const std::vector<T>& tensors, size_t data_bytes,
                          std::vector<std::string> words) {
    words.emplace_back("m.gguf");
    ExpectError(open(tensors, data_bytes), words);
  };
  expect({{"a", {}, 0, 0}}, 64, {"tensor 'a'", "1 to 4 dimensions, came 0"});
  expect({{"a", {1, 1, 1, 1, 1}, 0, 0}}, 64, {"tensor 'a'", "1 to 4 dimensions, came 5"});
  for (const uint64_t dim : {uint64_t{0}, uint64_t{1} << 63, UINT64_MAX}) {
    expect({{"a", {4, dim}, 0, 0}}, 64,
           {"tensor 'a'", "dimension from 1 to 2^63 - 1", std::to_string(dim)});
  }
  expect({{"a", {(uint64_t{1} << 42) + 1}, 0, 0}}, 64, {"tensor 'a'", "17592186044420 bytes"});
  expect({{"a", {uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0}}, 64,
         {"tensor 'a'", "more than 2^63"});
  expect({{"a", {(uint64_t{1} << 42) + 1, uint64_t{1} << 21, 2, 2}, 0, 0}}, 64,
         {"tensor 'a'", "more than 2^63"});
  expect({{"a", {33}, 2, 0}}, 64, {"tensor 'a'", "[33] in Q4_0", "multiple of 32"});
  expect({{"a", {128, 2}, 12, 0}}, 1024, {"tensor 'a'", "[2, 128] in Q4_K", "multiple of 256"});
  expect({{"a", {256}, 16, 0}}, 1024, {"tensor 'a'", "16 (IQ2_XXS)", "supported are F32, F16"});
  expect({{"a", {256}, 4, 0}}, 1024, {"tensor 'a'", "4 (Q4_2)"});
  expect({{"a", {256}, 137, 0}}, 1024, {"tensor 'a'", "type 137, supported", "IQ4_NL"});
  expect({{"a", {8}, 0, 16}}, 64, {"tensor 'a'", "multiple of 32, came 16"});
  expect({{"a", {8}, 0, uint64_t{INT64_MAX} - 31}}, 64, {"tensor 'a'", "offset"});
  expect({{"a", {16}, 0, 32}}, 64,
         {"tensor 'a'", "[16] in F32 expected bytes [32, 96)", "64 bytes of data", "cut short"});
  expect({{"blk.0.ffn_up.weight", {256, 256, 320}, 12, 0}}, 1024,
         {"tensor 'blk.0.ffn_up.weight'", "11796480 bytes", "cut short"});
  expect({{"a", {16}, 0, 0}, {"b", {8}, 0, 32}}, 64, {"tensor 'b'", "tensor 'a' ends", "overlap"});
  expect({{"a", {8}, 0, 0}, {"a", {8}, 0, 32}}, 64, {"tensor 'a'", "once"});
  expect({{std::string(2000, 'n'), {8}, 0, 0}}, 64, {"tensor 1 of 1", "name of at most 1024"});
  expect({{"new\nline", {33}, 2, 0}}, 64, {"tensor 'new\\x0aline'"});
}

TEST(GgmlTypes, AreKnownByNumber) {
  EXPECT_EQ(DTypeOfGgml(12), DType::kQ4_K);
  EXPECT_EQ(DTypeOfGgml(23), std::nullopt);
  EXPECT_EQ(GgmlTypeName(23), "IQ4_XS");
  EXPECT_EQ(GgmlTypeName(1000), "");
  for (uint32_t type = 0; type < 64; ++type) {
    const auto dtype = DTypeOfGgml(type);
    EXPECT_TRUE(!dtype.has_value() || Info(*dtype).name == GgmlTypeName(type)) << type;
  }
}

// Split files.

std::string Part(uint16_t number, uint16_t count, const std::string& tensor, float value,
                 int32_t tensors_count = 3) {
  ByteWriter w;
  w.GgufHeader(1, 3).Key("split.no", kUint16).Number(number);
  w.Key("split.count", kUint16).Number(count);
  w.Key("split.tensors.count", kInt32).Number(tensors_count);
  return w.Tensor(tensor, {1}, 0, 0).Pad(32).Number(value).bytes();
}

TEST(GgufSplit, JoinsItsParts) {
  const TempFolder folder;
  const auto first = folder.Write("m-00001-of-00003.gguf", Part(0, 3, "c", 1.0f));
  folder.Write("m-00002-of-00003.gguf", Part(1, 3, "a", 2.0f));
  folder.Write("m-00003-of-00003.gguf", Part(2, 3, "b", 3.0f));
  const auto gguf = OpenGguf(first);
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  EXPECT_EQ(gguf->weights->names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(ToFloat(*gguf->weights->Find("a"))[0], 2.0f);
  EXPECT_EQ(ToFloat(*gguf->weights->Find("b"))[0], 3.0f);
  EXPECT_EQ(ToFloat(*gguf->weights->Find("c"))[0], 1.0f);
  EXPECT_TRUE(gguf->weights->FileOf("b").ends_with("m-00003-of-00003.gguf"));
  EXPECT_EQ(gguf->metadata.Int("split.no"), 0);
}

TEST(GgufSplit, RefusesWhatDoesNotFit) {
  const TempFolder folder;
  const auto first = folder.Write("m-00001-of-00003.gguf", Part(0, 3, "a", 1.0f));
  ExpectError(OpenGguf(first), {"m-00001-of-00003.gguf", "3 parts", "missing 2",
                                "m-00002-of-00003.gguf, m-00003-of-00003.gguf", "incomplete"});
  const auto second = folder.Write("m-00002-of-00003.gguf", Part(1, 3, "b", 2.0f));
  ExpectError(OpenGguf(second), {"part 2 of 3", "open m-00001-of-00003.gguf"});
  folder.Write("m-00003-of-00003.gguf", Part(1, 3, "c", 3.0f));
  ExpectError(OpenGguf(first), {"m-00003-of-00003.gguf", "part 3 of 3", "split.no 1"});
  folder.Write("m-00003-of-00003.gguf", Part(2, 4, "c", 3.0f));
  ExpectError(OpenGguf(first), {"m-00003-of-00003.gguf", "split.count 4"});
  folder.Write("m-00003-of-00003.gguf", Part(2, 3, "b", 3.0f));
  ExpectError(OpenGguf(first), {"tensor 'b'", "once", "m-00003-of-00003.gguf"});
  folder.Write("m-00003-of-00003.gguf", "GGUF");
  ExpectError(OpenGguf(first), {"m-00003-of-00003.gguf", "cut short"});
  folder.Write("m-00003-of-00003.gguf", Part(2, 3, "c", 3.0f));
  EXPECT_TRUE(OpenGguf(first).ok());
  folder.Write("m-00001-of-00003.gguf", Part(0, 3, "a", 1.0f, 9));
  ExpectError(OpenGguf(first), {"expected 9 tensors", "found 3"});
  ExpectError(OpenGguf(folder.Write("renamed.gguf", Part(0, 3, "a", 1.0f))),
              {"renamed.gguf", "-00001-of-00003.gguf"});
}

TEST(GgufSplit, NamesOfParts) {
  EXPECT_EQ(GgufPartName("m", 0, 12), "m-00001-of-00012.gguf");
  const auto part = ParseGgufPartName("a-b-00002-of-00012.gguf");
  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(part->prefix, "a-b");
  EXPECT_EQ(part->number, 1);
  EXPECT_EQ(part->count, 12);
  for (const char* name :
       {"-00001-of-00002.gguf", "m-00000-of-00002.gguf", "m-0001-of-00002.gguf",
        "m-00001-of-0000x.gguf", "m-00001-of-00002.bin", "m_00001-of-00002.gguf", "m.gguf", ""}) {
    EXPECT_FALSE(ParseGgufPartName(name).has_value()) << name;
  }
}

}  // namespace
}  // namespace kvasir::files
