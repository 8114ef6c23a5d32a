#include "kernels/ref/attention_ref.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "kernels/ref/sums.h"
#include "tensor/float16.h"

namespace kvasir::kernels::ref {
namespace {

enum class Half : int64_t { kKey = 0, kValue = 1 };

// Where the D values of (position, head) lie.
std::byte* KvAt(const KvView& kv, std::span<const int32_t> block_table, int64_t position,
                int64_t head, Half half) {
  const auto entry = static_cast<size_t>(position / kv.block_tokens);
  KVASIR_CHECK(entry < block_table.size() && block_table[entry] >= 0, "position {} has no block",
               position);
  const int64_t slot = static_cast<int64_t>(half) * kv.block_tokens + position % kv.block_tokens;
  return kv.base + block_table[entry] * kv.block_stride_bytes +
         (slot * kv.kv_heads + head) * RowBytes(kv.dtype, kv.head_dim);
}

void Encode(DType dtype, const float* values, int64_t count, std::byte* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, values, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t bits = dtype == DType::kF16 ? FloatToHalf(values[i]) : FloatToBf16(values[i]);
    std::memcpy(out + static_cast<size_t>(i) * sizeof bits, &bits, sizeof bits);
  }
}

void Decode(DType dtype, const std::byte* from, int64_t count, double* values) {
  for (int64_t i = 0; i < count; ++i) {
    if (dtype == DType::kF32) {
      float value;
      std::memcpy(&value, from + static_cast<size_t>(i) * sizeof value, sizeof value);
      values[i] = static_cast<double>(value);
    } else {
      uint16_t bits;
      std::memcpy(&bits, from + static_cast<size_t>(i) * sizeof bits, sizeof bits);
      values[i] = static_cast<double>(dtype == DType::kF16 ? HalfToFloat(bits) : Bf16ToFloat(bits));
    }
  }
}

void CheckView(const KvView& kv) {
  KVASIR_CHECK(kv.dtype == DType::kF32 || kv.dtype == DType::kF16 || kv.dtype == DType::kBF16,
               "KV dtype {}", Info(kv.dtype).name);
}

// Some rows of one sequence and the query heads that share one KV head: decodes each key and value
// once for all of them. Each (row, head) has its own sums, in the order of positions.
class GroupAttention {
 public:
  GroupAttention(const AttentionArgs& args, const AttentionSequence& sequence, int64_t kv_head,
                 int64_t first, int64_t rows_count)
      : args_(args),
        sequence_(sequence),
        kv_head_(kv_head),
        group_(args.query_heads / args.kv.kv_heads),
        rows_count_(rows_count),
        row_(sequence.first_row + first),
        position_(sequence.start + first),
        begin_(Begin(position_)),
        length_(position_ + rows_count - begin_) {}

  void Run() {
    const int64_t dim = args_.kv.head_dim;
    std::vector<double> decoded(static_cast<size_t>(dim));
    std::vector<double> queries(static_cast<size_t>(rows_count_ * group_ * dim));
    std::vector<double> scores(static_cast<size_t>(rows_count_ * group_ * length_));
    std::vector<double> sums(static_cast<size_t>(rows_count_ * group_ * dim));
    for (int64_t r = 0; r < rows_count_; ++r) {
      std::copy_n(args_.q + (row_ + r) * args_.ldq + kv_head_ * group_ * dim, group_ * dim,
                  queries.data() + r * group_ * dim);
    }
    for (int64_t j = begin_; j < begin_ + length_; ++j) {
      DecodePosition(j, Half::kKey, decoded.data());
      ForReaders(j, [&](int64_t reader) {
        scores[static_cast<size_t>(reader * length_ + j - begin_)] =
            Score(Dot(queries.data() + reader * dim, decoded.data(), dim));
      });
    }
    for (int64_t reader = 0; reader < rows_count_ * group_; ++reader) {
      Softmax(reader, scores.data() + reader * length_);
    }
    for (int64_t j = begin_; j < begin_ + length_; ++j) {
      DecodePosition(j, Half::kValue, decoded.data());
      ForReaders(j, [&](int64_t reader) {
        const double weight = scores[static_cast<size_t>(reader * length_ + j - begin_)];
        double* sum = sums.data() + reader * dim;
        for (int64_t i = 0; i < dim; ++i) sum[i] += weight * decoded[static_cast<size_t>(i)];
      });
    }
    for (int64_t r = 0; r < rows_count_; ++r) {
      float* out = args_.out + (row_ + r) * args_.ldo + kv_head_ * group_ * dim;
      for (int64_t i = 0; i < group_ * dim; ++i) {
        out[i] = static_cast<float>(sums[static_cast<size_t>(r * group_ * dim + i)]);
      }
    }
  }

 private:
  // The first position that the row at `position` reads.
  [[nodiscard]] int64_t Begin(int64_t position) const {
    return args_.window == 0 ? 0 : std::max<int64_t>(0, position - args_.window + 1);
  }

  void DecodePosition(int64_t position, Half half, double* values) const {
    Decode(args_.kv.dtype, KvAt(args_.kv, sequence_.block_table, position, kv_head_, half),
           args_.kv.head_dim, values);
  }

  // Calls body(r * group + head) for the rows that read position j.
  template <typename Body>
  void ForReaders(int64_t j, Body&& body) const {
    for (int64_t r = std::max<int64_t>(0, j - position_); r < rows_count_; ++r) {
      if (Begin(position_ + r) > j) break;
      for (int64_t head = 0; head < group_; ++head) body(r * group_ + head);
    }
  }

  [[nodiscard]] double Score(double dot) const {
    const double score = static_cast<double>(args_.scale) * dot;
    const auto cap = static_cast<double>(args_.softcap);
    return cap == 0.0 ? score : cap * std::tanh(score / cap);
  }

  // Turns the scores of one (row, head) into weights in place.
  void Softmax(int64_t reader, double* scores) const {
    const int64_t position = position_ + reader / group_;
    double* first = scores + (Begin(position) - begin_);
    double* last = scores + (position + 1 - begin_);
    double highest = *std::max_element(first, last);
    double sum = 0.0;
    if (args_.sinks != nullptr) {
      const auto sink = static_cast<double>(args_.sinks[kv_head_ * group_ + reader % group_]);
      highest = std::max(highest, sink);
      sum = std::exp(sink - highest);
    }
    for (double* score = first; score != last; ++score) {
      *score = std::exp(*score - highest);
      sum += *score;
    }
    for (double* score = first; score != last; ++score) *score /= sum;
  }

  const AttentionArgs& args_;
  const AttentionSequence& sequence_;
  const int64_t kv_head_;
  const int64_t group_;
  const int64_t rows_count_;
  const int64_t row_;       // of the batch
  const int64_t position_;  // of the first row
  const int64_t begin_;     // first position that any row reads
  const int64_t length_;    // positions that any row reads
};

}  // namespace

void StoreKv(const StoreKvArgs& args, ThreadPool& pool) {
  CheckView(args.kv);
  const int64_t dim = args.kv.head_dim;
  pool.ParallelFor(static_cast<int64_t>(args.sequences.size()), [&](int64_t s, int) {
    const AttentionSequence& sequence = args.sequences[static_cast<size_t>(s)];
    for (int64_t i = 0; i < sequence.rows_count; ++i) {
      const int64_t row = sequence.first_row + i;
      for (int64_t head = 0; head < args.kv.kv_heads; ++head) {
        const auto at = [&](Half half) {
          return KvAt(args.kv, sequence.block_table, sequence.start + i, head, half);
        };
        Encode(args.kv.dtype, args.k + row * args.ldk + head * dim, dim, at(Half::kKey));
        Encode(args.kv.dtype, args.v + row * args.ldv + head * dim, dim, at(Half::kValue));
      }
    }
  });
}

void Attention(const AttentionArgs& args, ThreadPool& pool) {
  CheckView(args.kv);
  KVASIR_CHECK(args.query_heads % args.kv.kv_heads == 0, "{} query heads, {} KV heads",
               args.query_heads, args.kv.kv_heads);
  // Bounds the scores that a task holds: rows x group x positions.
  constexpr int64_t kRowsPerTask = 16;
  struct Task {
    const AttentionSequence* sequence;
    int64_t kv_head;
    int64_t first;
    int64_t rows_count;
  };
  std::vector<Task> tasks;
  for (const AttentionSequence& sequence : args.sequences) {
    for (int64_t first = 0; first < sequence.rows_count; first += kRowsPerTask) {
      for (int64_t head = 0; head < args.kv.kv_heads; ++head) {
        tasks.push_back(
            {&sequence, head, first, std::min(kRowsPerTask, sequence.rows_count - first)});
      }
    }
  }
  pool.ParallelFor(static_cast<int64_t>(tasks.size()), [&](int64_t index, int) {
    const Task& task = tasks[static_cast<size_t>(index)];
    GroupAttention(args, *task.sequence, task.kv_head, task.first, task.rows_count).Run();
  });
}

}  // namespace kvasir::kernels::ref
