// Lines from whoever sits at the terminal, or from a pipe.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace kvasir::app {

/// At a terminal lines can be edited, and earlier ones brought back with the arrow keys; libedit
/// does that, and ~/.editrc configures it.
class LineReader {
 public:
  /// `interrupt_fd` is an eventfd that a signal's handler adds to. (A signal alone does not end a
  /// read for sure: it may come just before, or on another thread.)
  LineReader(std::string prompt, int interrupt_fd);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// One line without its end; nothing at the end of the input (Ctrl-D) and at an interrupt
  /// (Ctrl-C) that comes meanwhile.
  [[nodiscard]] std::optional<std::string> Next();

 private:
  struct Terminal;
  int interrupt_fd_;
  std::unique_ptr<Terminal> terminal_;  ///< null where the input is no terminal
};

}  // namespace kvasir::app
