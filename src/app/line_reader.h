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
  explicit LineReader(std::string prompt);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// One line without its end; nothing at the end of the input (Ctrl-D), and when a signal whose
  /// handler has no SA_RESTART comes (Ctrl-C).
  [[nodiscard]] std::optional<std::string> Next();

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;  ///< null where the input is no terminal
};

}  // namespace kvasir::app
