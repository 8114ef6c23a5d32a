// The calibration file's reader and writer, and the times that are predicted from it.
#include "plan/simulate/calibration.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "plan/simulate/step_time.h"

namespace kvasir::plan {
namespace {

// A machine whose steps take exactly what the model of a step's time can say.
double TrueSeconds(const StepShape& shape) {
  const auto tokens = static_cast<double>(shape.tokens);
  const double layers = 0.004 + 0.0001 * tokens + (tokens > 16 ? 0.0004 * (tokens - 16) : 0);
  const auto rows = static_cast<double>(shape.drawn_rows);
  const double head = rows > 0 ? 0.001 + 0.0002 * rows : 0;
  return layers + head + 2e-7 * shape.decode_context + 5e-7 * shape.prefill_context +
         3e-8 * shape.prefill_pairs;
}

StepShape Shape(const CalibrationPoint& point, const std::vector<CacheGroupSpec>& groups) {
  StepShape shape;
  if (point.prefill_tokens > 0) {
    AddItem(point.prefill_tokens, point.prefill_start, point.prefill_draws, groups, shape);
  }
  for (int64_t i = 0; i < point.decode_sequences; ++i) {
    AddItem(1, point.decode_context - 1, true, groups, shape);
  }
  return shape;
}

const std::vector<CacheGroupSpec> kGroups = {
    {.kind = CacheGroupSpec::Kind::kFull},
    {.kind = CacheGroupSpec::Kind::kSlidingWindow, .window_tokens = 512},
};

Calibration Measured() {
  Calibration calibration;
  calibration.model = "a \"model\"";
  calibration.cpu = "some cpu";
  calibration.kernels = "avx512";
  calibration.kv_dtype = "F16";
  calibration.threads = 2;
  calibration.weights_bytes = 96'468'992;
  calibration.block_tokens = 16;
  calibration.window_tokens = {0, 512};
  calibration.host_seconds_per_step = 1.25e-5;
  calibration.host_seconds_per_sequence = 7.5e-7;
  for (const int64_t tokens : {2, 8, 16, 32, 64, 160}) {
    for (const int64_t start : {0, 256, 2000}) {
      calibration.points.push_back({.prefill_tokens = tokens, .prefill_start = start});
    }
  }
  for (const int64_t sequences : {1, 2, 4, 8, 16, 32}) {
    for (const int64_t context : {1, 300, 3000}) {
      calibration.points.push_back({.decode_sequences = sequences, .decode_context = context});
    }
  }
  calibration.points.push_back({.prefill_tokens = 128,
                                .prefill_start = 0,
                                .prefill_draws = true,
                                .decode_sequences = 4,
                                .decode_context = 700});
  for (CalibrationPoint& point : calibration.points) {
    point.seconds = TrueSeconds(Shape(point, kGroups));
    point.seconds_min = point.seconds / 2;
  }
  return calibration;
}

TEST(Calibration, ReadsBackWhatItWrote) {
  const Calibration written = Measured();
  const std::string text = WriteCalibration(written);
  const auto read = ReadCalibration(text, "c.json");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->model, written.model);
  EXPECT_EQ(read->window_tokens, written.window_tokens);
  EXPECT_EQ(read->host_seconds_per_step, written.host_seconds_per_step);
  ASSERT_EQ(read->points.size(), written.points.size());
  EXPECT_EQ(read->points.back().decode_context, 700);
  EXPECT_TRUE(read->points.back().prefill_draws);
  EXPECT_EQ(read->points[3].seconds, written.points[3].seconds);
  // Every field takes part: what was read writes the same bytes.
  EXPECT_EQ(WriteCalibration(*read), text);
}

TEST(Calibration, ErrorsNameTheField) {
  const std::string good = WriteCalibration(Measured());
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const auto read = ReadCalibration(text, "c.json");
    EXPECT_FALSE(read.ok()) << to;
    return read.ok() ? "" : read.error().message;
  };
  EXPECT_EQ(broken("\"kvasir-calibration\"", "\"other\""),
            "c.json: expected format 'kvasir-calibration' of version 1, got 'other' of version 1");
  EXPECT_EQ(broken("\"version\": 1", "\"version\": 7"),
            "c.json: expected format 'kvasir-calibration' of version 1, got 'kvasir-calibration' "
            "of version 7");
  EXPECT_EQ(broken("\"threads\": 2", "\"threads\": -2"),
            "c.json: threads: expected an integer from 0 to 1000000, got -2");
  EXPECT_EQ(broken("\"threads\": 2,", ""), "c.json: expected the field 'threads', found none");
  EXPECT_EQ(broken("\"prefill_tokens\": 2", "\"prefill_tokens\": \"two\""),
            "c.json: points[0]: prefill_tokens: expected an integer from 0 to 1000000000, got "
            "\"two\"");
  for (const auto& [from, to, field] : {
           std::tuple{"1.25e-05", "1e300",
                      "host_seconds_per_step: expected 0 or more seconds, at "
                      "most 10, got 1e+300"},
           std::tuple{"7.5e-07", "1e300", "host_seconds_per_sequence"},
           std::tuple{"\"seconds\": 0.", "\"seconds\": 1e300, \"x\": 0.", "points[0]: seconds"},
           std::tuple{"\"avx512\"", "\"mmx\"",
                      "kernels: expected one of 'avx512', 'avx2', 'ref', "
                      "got \"mmx\""},
           std::tuple{"\"avx512\"", "7", "kernels: expected a text, got 7"},
           std::tuple{"\"F16\"", "\"F8\"", "kv_dtype: expected one of 'F32', 'F16', 'BF16'"},
           std::tuple{"\"some cpu\"", "\"a\\nb\"", "cpu: expected a text of printable characters"},
           std::tuple{"\"a \\\"model\\\"\"", "\"\"", "model: expected a text of printable"},
           std::tuple{"\"threads\": 2", "\"threads\": 2, \"threads\": 3",
                      "threads: expected each field once, got it twice"},
           std::tuple{"\"decode_sequences\": 0", "\"decode_sequences\": 1000000000",
                      "decode_sequences: expected an integer from 0 to 65536"},
       }) {
    EXPECT_NE(broken(from, to).find(field), std::string::npos) << broken(from, to);
  }
  EXPECT_EQ(broken("\"prefill_tokens\": 2", "\"prefill_tokens\": 0"),
            "c.json: points[0]: expected prefill_tokens or decode_sequences above 0, got 0 and 0");
  EXPECT_EQ(broken("\"prefill_draws\": false", "\"prefill_draws\": 0"),
            "c.json: points[0]: prefill_draws: expected true or false, got 0");
  EXPECT_FALSE(ReadCalibration("[]", "c.json").ok());
  EXPECT_FALSE(ReadCalibration("", "c.json").ok());
}

TEST(Calibration, HoldsForTheModelThatWasMeasured) {
  const Calibration calibration = Measured();
  ModelShape shape;
  shape.name = "another name";
  shape.cache_groups = {{.window_tokens = 0}, {.window_tokens = 512}};
  shape.stored.emplace();
  shape.stored->loaded = {{.kernels = "avx2", .packed_bytes = 1},
                          {.kernels = "avx512", .packed_bytes = calibration.weights_bytes}};
  EXPECT_TRUE(CheckCalibration(calibration, shape, "c.json").ok());
  shape.stored->loaded[1].packed_bytes = 77'000;
  EXPECT_EQ(CheckCalibration(calibration, shape, "c.json").error().message,
            "--calibration: c.json was measured for a \"model\" (weights of 96,468,992 B in "
            "memory), but another name (weights of 77,000 B in memory) is simulated");
  // Without weights at hand the name tells.
  shape.stored.reset();
  EXPECT_FALSE(CheckCalibration(calibration, shape, "c.json").ok());
  shape.name = calibration.model;
  EXPECT_TRUE(CheckCalibration(calibration, shape, "c.json").ok());
  shape.cache_groups.pop_back();
  EXPECT_NE(CheckCalibration(calibration, shape, "c.json")
                .error()
                .message.find("windows of 0, 512 tokens"),
            std::string::npos);
  EXPECT_EQ(ContextMeasured(calibration), 3000);
}

TEST(StepShape, CountsWhatEachTokenReads) {
  // By enumeration, with a window that begins to bite in the middle of the item.
  for (const int64_t start : {0, 5, 7, 40}) {
    for (const int64_t tokens : {2, 3, 9}) {
      const std::vector<CacheGroupSpec> groups = {
          {.kind = CacheGroupSpec::Kind::kSlidingWindow, .window_tokens = 8}};
      StepShape shape;
      AddItem(tokens, start, true, groups, shape);
      double pairs = 0;
      int64_t first_read = start;
      for (int64_t p = start; p < start + tokens; ++p) {
        pairs += static_cast<double>(std::min<int64_t>(p + 1, 8));
        first_read = std::min(first_read, std::max<int64_t>(0, p - 7));
      }
      EXPECT_EQ(shape.prefill_pairs, pairs);
      EXPECT_EQ(shape.prefill_context, static_cast<double>(start + tokens - first_read));
      EXPECT_EQ(shape.decode_context, 0);
    }
  }
  StepShape shape;
  AddItem(1, 99, true, kGroups, shape);
  AddItem(1, 999, false, kGroups, shape);
  EXPECT_EQ(shape.tokens, 2);
  EXPECT_EQ(shape.drawn_rows, 1);
  EXPECT_EQ(shape.sequences, 2);
  EXPECT_EQ(shape.decode_context, 100 + (1000 + 512) / 2);
}

TEST(FittedStepTime, FindsTheMachineThatWasMeasured) {
  const Calibration calibration = Measured();
  const auto time = FittedStepTime::Fit(calibration);
  ASSERT_TRUE(time.ok()) << time.error().message;
  EXPECT_LT(time->fit_error_max(), 1e-3);
  // Steps that were not measured, between the knots of the true machine and beyond.
  for (const CalibrationPoint& point : std::vector<CalibrationPoint>{
           {.prefill_tokens = 24, .prefill_start = 1000, .prefill_draws = true},
           {.decode_sequences = 12, .decode_context = 1500},
           {.prefill_tokens = 100, .decode_sequences = 8, .decode_context = 100},
           {.prefill_tokens = 320, .prefill_start = 64}}) {
    const StepShape shape = Shape(point, kGroups);
    EXPECT_NEAR(time->RunnerSeconds(shape), TrueSeconds(shape), 0.01 * TrueSeconds(shape));
    EXPECT_DOUBLE_EQ(time->Seconds(shape), time->RunnerSeconds(shape) + 1.25e-5 +
                                               7.5e-7 * static_cast<double>(shape.sequences));
  }
}

TEST(FittedStepTime, NeverFallsWithMoreWork) {
  // Noise that a plain least-squares fit would turn into negative costs.
  Calibration calibration = Measured();
  for (size_t i = 0; i < calibration.points.size(); ++i) {
    calibration.points[i].seconds *= i % 2 == 0 ? 1.3 : 0.7;
  }
  const auto time = FittedStepTime::Fit(calibration);
  ASSERT_TRUE(time.ok()) << time.error().message;
  double before = 0;
  for (int64_t tokens = 2; tokens < 400; ++tokens) {
    StepShape shape;
    AddItem(tokens, 100, true, kGroups, shape);
    EXPECT_GE(time->Seconds(shape), before);
    before = time->Seconds(shape);
  }
  before = 0;
  for (int64_t context = 1; context < 5000; context += 100) {
    StepShape shape;
    for (int i = 0; i < 4; ++i) AddItem(1, context - 1, true, kGroups, shape);
    EXPECT_GE(time->Seconds(shape), before);
    before = time->Seconds(shape);
  }
}

TEST(FittedStepTime, RefusesWhatTellsNothing) {
  Calibration calibration = Measured();
  std::erase_if(calibration.points,
                [](const CalibrationPoint& point) { return point.decode_sequences > 0; });
  const auto time = FittedStepTime::Fit(calibration);
  ASSERT_FALSE(time.ok());
  EXPECT_NE(time.error().message.find("2 that decode, got 18 and 0"), std::string::npos)
      << time.error().message;
}

}  // namespace
}  // namespace kvasir::plan
