#include "kernels/cpu/attention_driver.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace kvasir::kernels::cpu {
namespace {

// Multiply-adds below which one thread is faster alone, and that one item should hold at least.
constexpr double kAloneMacs = 60'000;
constexpr double kItemMacs = 20'000;
constexpr int64_t kItemsAThread = 4;
// Values that one task stores.
constexpr int64_t kStoreValues = int64_t{16} << 10;

constexpr int64_t CeilDiv(int64_t value, int64_t by) { return (value + by - 1) / by; }

int64_t FirstPosition(int64_t position, int64_t window) {
  return window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
}

// A partial result: max, sum, then D values; padded to whole cache lines.
int64_t RecordFloats(int64_t head_dim) { return CeilDiv(head_dim + 16, 16) * 16; }
constexpr int64_t kRecordOut = 16;

// K and V of one kv head in one block.
struct HeadBytes {
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
};
HeadBytes HeadOf(const KvView& kv, int32_t block, int64_t head) {
  const int64_t plane = kv.block_tokens * RowBytes(kv.dtype, kv.head_dim);
  std::byte* base = kv.base + block * kv.block_stride_bytes + head * 2 * plane;
  return {base, base + plane};
}

}  // namespace

void AttentionDriver::Store(const StoreKvArgs& args) {
  const KvView& kv = args.kv;
  const int64_t width = KeyWidth(kv.block_tokens);
  const int64_t chunk = std::max<int64_t>(1, kStoreValues / (kv.kv_heads * kv.head_dim));
  for (const AttentionSequence& sequence : args.sequences) {
    pool_.ParallelFor(CeilDiv(sequence.rows_count, chunk), [&](int64_t task, int) {
      const int64_t last = std::min(sequence.rows_count, (task + 1) * chunk);
      for (int64_t i = task * chunk; i < last; ++i) {
        const int64_t position = sequence.start + i;
        const auto at = static_cast<size_t>(position / kv.block_tokens);
        const int64_t offset = position % kv.block_tokens;
        const int64_t row = sequence.first_row + i;
        for (int64_t head = 0; head < kv.kv_heads; ++head) {
          const HeadBytes bytes = HeadOf(kv, sequence.block_table[at], head);
          kernels_.store(args.k + row * args.ldk + head * kv.head_dim,
                         args.v + row * args.ldv + head * kv.head_dim, kv.dtype, kv.head_dim, width,
                         offset, bytes.keys, bytes.values);
        }
      }
    });
  }
}

void AttentionDriver::PlanTiles(const AttentionArgs& args) {
  tiles_.clear();
  const int64_t group = args.query_heads / args.kv.kv_heads;
  KVASIR_CHECK(group >= 1 && args.query_heads % args.kv.kv_heads == 0,
               "{} query heads, {} kv heads", args.query_heads, args.kv.kv_heads);
  const int64_t head_parts = CeilDiv(group, kAttentionRowsMax);
  const int64_t tokens_max = std::max<int64_t>(1, kAttentionRowsMax / group);
  for (const AttentionSequence& sequence : args.sequences) {
    // Equal tiles, the last (which read most) first, so that no long one is left for the end.
    const Tiling tiling(sequence.rows_count, tokens_max);
    for (int64_t i = tiling.tiles_count - 1; i >= 0; --i) {
      Tile tile;
      tile.sequence = &sequence;
      tile.token_begin = tiling.Begin(i);
      tile.token_end = tiling.Begin(i + 1);
      const int64_t first = FirstPosition(sequence.start + tile.token_begin, args.window);
      const int64_t end = sequence.start + tile.token_end;
      tile.range_begin = first / kRangePositions;
      tile.range_end = CeilDiv(end, kRangePositions);
      for (int64_t head = 0; head < args.kv.kv_heads; ++head) {
        for (int64_t part = 0; part < head_parts; ++part) {
          tile.head_begin = head * group + part * group / head_parts;
          tile.head_end = head * group + (part + 1) * group / head_parts;
          tile.cost = static_cast<double>(2 * (end - first) * args.kv.head_dim) *
                      static_cast<double>(tile.rows() + 2);
          tiles_.push_back(tile);
        }
      }
    }
  }
}

void AttentionDriver::PlanItems(const AttentionArgs& args) {
  items_.clear();
  double total = 0.0;
  for (const Tile& tile : tiles_) total += tile.cost;
  const bool alone = pool_.size() == 1 || total < kAloneMacs;
  const double share =
      std::max(kItemMacs, total / static_cast<double>(pool_.size() * kItemsAThread));
  int64_t partials = 0;
  for (size_t i = 0; i < tiles_.size(); ++i) {
    Tile& tile = tiles_[i];
    const int64_t ranges = tile.range_end - tile.range_begin;
    const auto parts =
        alone ? int64_t{1} : std::clamp<int64_t>(std::llround(tile.cost / share), 1, ranges);
    if (parts > 1) {
      tile.partials = partials;
      partials += ranges * tile.rows();
    }
    for (int64_t part = 0; part < parts; ++part) {
      items_.push_back({i, tile.range_begin + part * ranges / parts,
                        tile.range_begin + (part + 1) * ranges / parts});
    }
  }
  partials_base_ = partials_.Get<float>(partials * RecordFloats(args.kv.head_dim) + 1);
}

AttentionDriver::Space AttentionDriver::SpaceOf(const AttentionArgs& args, int worker) const {
  const int64_t rows = kAttentionRowsMax;
  const int64_t dim = CeilDiv(args.kv.head_dim, 16) * 16;
  const int64_t record = RecordFloats(args.kv.head_dim);
  const int64_t floats = rows * (2 * dim + kRangePositions + 2 + record) + 16 * dim;
  Space space;
  float* at = space_base_ + worker * floats;
  const auto take = [&](int64_t count) {
    float* taken = at;
    at += count;
    return taken;
  };
  space.q = take(rows * dim);
  space.scores = take(rows * kRangePositions);
  space.turned = take(16 * dim);
  space.out = take(rows * dim);
  space.partial = take(rows * record);
  space.max = take(rows);
  space.sum = take(rows);
  return space;
}

void AttentionDriver::AttendRange(const AttentionArgs& args, const Tile& tile, int64_t range,
                                  int64_t range_end, int64_t token_begin, int64_t token_end,
                                  const Space& space, AttendTask& task) const {
  const KvView& kv = args.kv;
  const AttentionSequence& sequence = *tile.sequence;
  const int64_t dim = kv.head_dim;
  const int64_t origin = range * kRangePositions;
  task.q = space.q;
  task.rows_count = (token_end - token_begin) * tile.heads();
  task.head_dim = dim;
  task.dtype = kv.dtype;
  task.key_width = KeyWidth(kv.block_tokens);
  task.softcap = args.softcap;
  task.scores = space.scores;
  task.key_scratch = space.turned;
  task.max = space.max;
  task.sum = space.sum;
  task.out = space.out;

  const Tiling chunks(task.rows_count, kAttentionChunk);
  for (int64_t chunk = 0; chunk < chunks.tiles_count; ++chunk) {
    const int64_t first = chunks.Begin(chunk);
    const int64_t count = chunks.Begin(chunk + 1) - first;
    for (int64_t r = 0; r < count; ++r) {
      const int64_t token = token_begin + (first + r) / tile.heads();
      const int64_t head = tile.head_begin + (first + r) % tile.heads();
      const float* q = args.q + (sequence.first_row + token) * args.ldq + head * dim;
      float* to = space.q + first * dim + r;
      for (int64_t d = 0; d < dim; ++d) to[d * count] = q[d] * args.scale;
    }
  }
  int64_t begin = kRangePositions;
  int64_t end = 0;
  for (int64_t r = 0; r < task.rows_count; ++r) {
    const int64_t position = sequence.start + token_begin + r / tile.heads();
    const int64_t first = std::max<int64_t>(0, FirstPosition(position, args.window) - origin);
    const int64_t last = std::min(kRangePositions, position + 1 - origin);
    task.begin[r] = static_cast<int32_t>(first);
    task.end[r] = static_cast<int32_t>(last);
    begin = std::min(begin, first);
    end = std::max(end, last);
  }
  const int64_t unit = task.key_width == 1 ? 1 : kUnitPositions;
  const int64_t value_bytes = RowBytes(kv.dtype, 1);
  const int64_t kv_head = tile.head_begin / (args.query_heads / kv.kv_heads);
  // K of the unit at a position, and its V.
  const auto bytes_at = [&](int64_t position) {
    const auto at = static_cast<size_t>(position / kv.block_tokens);
    const int64_t offset = position % kv.block_tokens;
    HeadBytes bytes = HeadOf(kv, sequence.block_table[at], kv_head);
    const int64_t key = offset / task.key_width * dim * task.key_width + offset % task.key_width;
    bytes.keys += key * value_bytes;
    bytes.values += offset * dim * value_bytes;
    return bytes;
  };
  const int64_t width = task.key_width;
  for (int64_t u = begin / width * width / unit; u < CeilDiv(end, width) * width / unit; ++u) {
    const HeadBytes bytes = bytes_at(origin + u * unit);
    task.keys[u] = bytes.keys;
    task.values[u] = bytes.values;
  }
  if (unit == kUnitPositions) {
    const int64_t last = range + 1 < range_end ? sequence.start + tile.token_end : 0;
    for (int64_t u = 0; u < kRangePositions / unit; ++u) {
      const int64_t position = origin + kRangePositions + u * unit;
      task.next_keys[u] = position < last ? bytes_at(position).keys : nullptr;
    }
  }
  kernels_.attend(task);
}

void AttentionDriver::RunItem(const AttentionArgs& args, const Item& item, int worker) {
  const Tile& tile = tiles_[item.tile];
  const AttentionSequence& sequence = *tile.sequence;
  const int64_t dim = args.kv.head_dim;
  const int64_t record = RecordFloats(dim);
  const Space space = SpaceOf(args, worker);
  AttendTask& task = tasks_[static_cast<size_t>(worker)];
  for (int64_t range = item.range_begin; range < item.range_end; ++range) {
    // The tile's tokens that read something of this range.
    int64_t token_begin = tile.token_begin;
    int64_t token_end = tile.token_end;
    while (sequence.start + token_begin < range * kRangePositions) ++token_begin;
    while (FirstPosition(sequence.start + token_end - 1, args.window) >=
           (range + 1) * kRangePositions) {
      --token_end;
    }
    AttendRange(args, tile, range, item.range_end, token_begin, token_end, space, task);
    for (int64_t r = 0; r < task.rows_count; ++r) {
      const int64_t token = token_begin + r / tile.heads();
      const int64_t row = (token_begin - tile.token_begin) * tile.heads() + r;
      const float* out = space.out + r * dim;
      const bool split = tile.partials >= 0;
      float* to =
          split ? partials_base_ +
                      (tile.partials + (range - tile.range_begin) * tile.rows() + row) * record
                : space.partial + row * record;
      const int64_t first = FirstPosition(sequence.start + token, args.window) / kRangePositions;
      if (split || range == first) {
        to[0] = space.max[r];
        to[1] = space.sum[r];
        std::memcpy(to + kRecordOut, out, static_cast<size_t>(dim) * sizeof(float));
      } else {
        kernels_.merge(&to[0], &to[1], to + kRecordOut, space.max[r], space.sum[r], out, dim);
      }
    }
  }
  if (tile.partials < 0) FinishTile(args, tile, space.partial);
}

// `merged` holds the tile's rows; where it is split, those of its first range, and the others
// follow range by range.
void AttentionDriver::FinishTile(const AttentionArgs& args, const Tile& tile, float* merged) const {
  const int64_t dim = args.kv.head_dim;
  const int64_t record = RecordFloats(dim);
  for (int64_t row = 0; row < tile.rows(); ++row) {
    const int64_t token = tile.token_begin + row / tile.heads();
    const int64_t head = tile.head_begin + row % tile.heads();
    const int64_t position = tile.sequence->start + token;
    float* to = merged + row * record;
    if (tile.partials >= 0) {
      const int64_t first = FirstPosition(position, args.window) / kRangePositions;
      const auto of_range = [&](int64_t range) {
        return merged + ((range - tile.range_begin) * tile.rows() + row) * record;
      };
      to = of_range(first);
      for (int64_t range = first + 1; range <= position / kRangePositions; ++range) {
        const float* other = of_range(range);
        kernels_.merge(&to[0], &to[1], to + kRecordOut, other[0], other[1], other + kRecordOut,
                       dim);
      }
    }
    const float* sink = args.sinks != nullptr ? args.sinks + head : nullptr;
    kernels_.finish(to[0], to[1], to + kRecordOut, sink, dim,
                    args.out + (tile.sequence->first_row + token) * args.ldo + head * dim);
  }
}

void AttentionDriver::Run(const AttentionArgs& args) {
  PlanTiles(args);
  PlanItems(args);
  const int64_t dim = CeilDiv(args.kv.head_dim, 16) * 16;
  const int64_t floats =
      kAttentionRowsMax * (2 * dim + kRangePositions + 2 + RecordFloats(args.kv.head_dim)) +
      16 * dim;
  space_base_ = space_.Get<float>(floats * pool_.size());
  double total = 0.0;
  for (const Tile& tile : tiles_) total += tile.cost;
  if (total < kAloneMacs) {
    for (const Item& item : items_) RunItem(args, item, 0);
    return;
  }
  pool_.ParallelFor(static_cast<int64_t>(items_.size()), [&](int64_t i, int worker) {
    RunItem(args, items_[static_cast<size_t>(i)], worker);
  });
  for (const Tile& tile : tiles_) {
    if (tile.partials >= 0) {
      FinishTile(args, tile, partials_base_ + tile.partials * RecordFloats(args.kv.head_dim));
    }
  }
}

}  // namespace kvasir::kernels::cpu
