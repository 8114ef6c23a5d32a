// The small ops of the reference backend. Each reads floats, computes in double, rounds once.
#pragma once

#include "base/thread_pool.h"
#include "kernels/elementwise.h"

namespace kvasir::kernels::ref {

void Norm(const NormArgs& args, ThreadPool& pool);
void Activate(const ActivationArgs& args, ThreadPool& pool);
void Rope(const RopeArgs& args, ThreadPool& pool);
void Add(const AddArgs& args, ThreadPool& pool);
void Scale(const ScaleArgs& args, ThreadPool& pool);

}  // namespace kvasir::kernels::ref
