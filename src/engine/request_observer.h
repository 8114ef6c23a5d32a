#pragma once

namespace kvasir::engine {

struct RequestState;

/// Is told of every request when its last choice has ended, with all that the engine knows of it.
/// On the engine thread: must return at once.
class RequestObserver {
 public:
  virtual ~RequestObserver() = default;
  virtual void OnEnd(const RequestState& request) = 0;
};

}  // namespace kvasir::engine
