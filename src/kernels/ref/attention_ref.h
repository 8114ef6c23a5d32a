// Attention of the reference backend. A layer's part of a block is K [B, Hkv, D], then V the same.
#pragma once

#include "base/thread_pool.h"
#include "kernels/attention.h"

namespace kvasir::kernels::ref {

void StoreKv(const StoreKvArgs& args, ThreadPool& pool);
void Attention(const AttentionArgs& args, ThreadPool& pool);

}  // namespace kvasir::kernels::ref
