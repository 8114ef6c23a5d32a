#include "plan/simulate/html_data.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace kvasir::plan {
namespace {

using Json = nlohmann::ordered_json;

// More than a screen can show, and few enough for a page of a megabyte or two.
constexpr size_t kSamplesShown = 600;
constexpr size_t kRowsShown = 96;
constexpr size_t kSnapshotsShown = 120;
constexpr size_t kSnapshotBlocksShown = 250'000;  // in all snapshots together
constexpr size_t kWaitsShown = 400;

// Four digits are more than a picture shows.
double Rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double scale = std::pow(10.0, 6 - std::ceil(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

Json StepsJson(const SimulationResult& result) {
  Json out;
  for (const char* name : {"t", "filled", "wasted", "cached"}) out[name] = Json::array();
  const size_t stride = std::max<size_t>(1, result.steps.size() / kSamplesShown);
  for (size_t i = 0; i < result.steps.size(); i += stride) {
    const StepSample& step = result.steps[i];
    out["t"].push_back(Rounded(step.begin_s));
    out["filled"].push_back(step.slots_filled);
    out["wasted"].push_back(step.slots_wasted);
    out["cached"].push_back(step.blocks_cached);
  }
  return out;
}

// Runs of equal owners: a request, -1 free, -2 kept for later prompts.
Json SnapshotJson(const CacheSnapshot& snapshot, int64_t block_tokens) {
  Json runs = Json::array();
  Json partial = Json::array();
  Json shared = Json::array();
  int64_t owner = 0;
  int64_t length = 0;
  for (size_t i = 0; i < snapshot.blocks.size(); ++i) {
    const BlockView& block = snapshot.blocks[i];
    const int64_t here = block.state == BlockView::State::kUsed     ? block.request
                         : block.state == BlockView::State::kCached ? -2
                                                                    : -1;
    if (length > 0 && here != owner) {
      runs.insert(runs.end(), {owner, length});
      length = 0;
    }
    owner = here;
    ++length;
    if (block.state != BlockView::State::kUsed) continue;
    if (block.filled < block_tokens) partial.insert(partial.end(), {i, block.filled});
    if (block.references > 1) shared.push_back(i);
  }
  if (length > 0) runs.insert(runs.end(), {owner, length});
  return {{"t", Rounded(snapshot.at_s)},
          {"runs", std::move(runs)},
          {"partial", std::move(partial)},
          {"shared", std::move(shared)}};
}

Json SnapshotsJson(const SimulationResult& result) {
  Json out = Json::array();
  size_t blocks = 0;
  for (const CacheSnapshot& snapshot : result.snapshots) blocks += snapshot.blocks.size();
  const size_t stride =
      std::max(result.snapshots.size() / kSnapshotsShown, blocks / kSnapshotBlocksShown) + 1;
  for (size_t i = 0; i < result.snapshots.size(); i += stride) {
    out.push_back(SnapshotJson(result.snapshots[i], result.block_tokens));
  }
  return out;
}

// What requests did over the first steps, as spans of time; and who waited for whom.
class Timeline {
 public:
  explicit Timeline(const SimulationResult& result) : result_(result) {
    for (const StepDetail& step : result.details) Add(step);
  }

  [[nodiscard]] Json ToJson() const {
    Json rows = Json::array();
    for (const auto& [request, spans] : spans_) {
      const RequestRecord& record = result_.requests[static_cast<size_t>(request)];
      Json list = Json::array();
      for (const Span& span : spans) {
        list.push_back({std::string(1, span.kind), Rounded(span.from), Rounded(span.to)});
      }
      rows.push_back({{"r", request},
                      {"prompt", record.prompt_tokens},
                      {"output", record.output_tokens},
                      {"cached", record.cached_tokens},
                      {"spans", std::move(list)}});
    }
    return {{"steps", result_.details.size()},
            {"end", Rounded(end_)},
            {"rows", std::move(rows)},
            {"waits", waits_}};
  }

 private:
  struct Span {
    char kind = 'w';  // waiting, prompt, decoding, sitting out
    double from = 0;
    double to = 0;
  };

  void Add(const StepDetail& step) {
    const double from = step.sample.begin_s;
    const double to = from + step.sample.seconds;
    end_ = std::max(end_, to);
    std::set<int64_t> running(step.sat_out.begin(), step.sat_out.end());
    std::set<int64_t> prompts;
    for (const StepSeat& seat : step.seats) {
      running.insert(seat.request);
      const RequestRecord& record = result_.requests[static_cast<size_t>(seat.request)];
      const bool decodes = seat.start >= record.prompt_tokens && seat.tokens == 1;
      if (!decodes) prompts.insert(seat.request);
      if (!running_.contains(seat.request)) NoteWait(seat.request, from, running);
      Extend(seat.request, decodes ? 'd' : 'p', from, to);
    }
    for (const int64_t request : step.sat_out) Extend(request, 's', from, to);
    for (const int64_t request : step.waiting) {
      waiting_since_.try_emplace(request, result_.requests[static_cast<size_t>(request)].arrival_s);
      Extend(request, 'w', from, to);
    }
    running_ = std::move(running);
    prompts_ = std::move(prompts);
  }

  // The request had been waiting and sits in a step for the first time (or again).
  void NoteWait(int64_t request, double now, const std::set<int64_t>& running) {
    const auto since = waiting_since_.find(request);
    if (since == waiting_since_.end()) return;
    Json blockers = Json::array();
    for (const int64_t other : running_) {
      if (!running.contains(other) && result_.requests[static_cast<size_t>(other)].end_s >= 0 &&
          result_.requests[static_cast<size_t>(other)].end_s <= now + 1e-9) {
        blockers.push_back(other);
      }
    }
    const bool left = !blockers.empty();
    if (!left) {
      for (const int64_t other : prompts_) {
        if (other != request) blockers.push_back(other);
      }
    }
    if (waits_.size() < kWaitsShown && now > since->second) {
      waits_.push_back({{"r", request},
                        {"from", Rounded(since->second)},
                        {"to", Rounded(now)},
                        {"left", left},
                        {"for", std::move(blockers)}});
    }
    waiting_since_.erase(since);
  }

  void Extend(int64_t request, char kind, double from, double to) {
    if (!spans_.contains(request) && spans_.size() >= kRowsShown) return;
    std::vector<Span>& spans = spans_[request];
    if (!spans.empty() && spans.back().kind == kind && from - spans.back().to < 1e-9) {
      spans.back().to = to;
    } else {
      spans.push_back({kind, from, to});
    }
  }

  const SimulationResult& result_;
  std::map<int64_t, std::vector<Span>> spans_;
  std::map<int64_t, double> waiting_since_;
  std::set<int64_t> running_;  // in the step before
  std::set<int64_t> prompts_;  // of those, whose prompt was computed
  Json waits_ = Json::array();
  double end_ = 0;
};

Json VariantJson(const VariantReport& variant) {
  const SimulationResult& result = variant.result;
  Json curve = Json::array();
  for (const LoadPoint& point : variant.loads) {
    const Summary& summary = point.summary;
    curve.push_back({{"load", Rounded(point.load)},
                     {"ttft_p50", Rounded(summary.ttft.p50_s)},
                     {"ttft_p99", Rounded(summary.ttft.p99_s)},
                     {"itl_p50", Rounded(summary.itl.p50_s)},
                     {"itl_p99", Rounded(summary.itl.p99_s)},
                     {"output_rate", Rounded(summary.output_tokens_per_s)}});
  }
  return {{"name", variant.summary.variant},
          {"end_s", Rounded(result.end_s)},
          {"blocks_count", result.blocks_count},
          {"block_tokens", result.block_tokens},
          {"block_bytes", result.block_bytes},
          {"steps", StepsJson(result)},
          {"snapshots", SnapshotsJson(result)},
          {"timeline", Timeline(result).ToJson()},
          {"curve", std::move(curve)}};
}

}  // namespace

nlohmann::ordered_json HtmlData(const SimulationReport& report) {
  Json out;
  out["load_unit"] = report.load_unit;
  Json& variants = out["variants"] = Json::array();
  for (const VariantReport& variant : report.variants) variants.push_back(VariantJson(variant));
  return out;
}

}  // namespace kvasir::plan
