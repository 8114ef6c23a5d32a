#include "app/line_reader.h"

#include <histedit.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <utility>

namespace kvasir::app {
namespace {

constexpr int kHistoryLines = 1000;

// As read(STDIN_FILENO, &byte, 1), but -1 once there was an interrupt.
ssize_t ReadByte(int interrupt_fd, char& byte) {
  pollfd waits[2] = {{STDIN_FILENO, POLLIN, 0}, {interrupt_fd, POLLIN, 0}};
  while (poll(waits, 2, -1) < 0) {
    if (errno != EINTR) return -1;
  }
  if (waits[1].revents != 0) {
    errno = EINTR;
    return -1;
  }
  return read(STDIN_FILENO, &byte, 1);
}

std::optional<std::string> ReadPlainLine(int interrupt_fd) {
  std::string line;
  char c = 0;
  for (;;) {
    const ssize_t count = ReadByte(interrupt_fd, c);
    if (count < 0 || (count == 0 && line.empty())) return std::nullopt;
    if (count == 0 || c == '\n') return line;
    line += c;
  }
}

}  // namespace

struct LineReader::Terminal {
  Terminal(std::string shown, int interrupts)
      : prompt(std::move(shown)),
        interrupt_fd(interrupts),
        edit(el_init("kvasir", stdin, stdout, stderr)),
        lines(history_init()) {
    el_set(edit, EL_CLIENTDATA, this);
    el_set(edit, EL_PROMPT, Prompt);
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_GETCFN, ReadCharacter);
    HistEvent ignored;
    history(lines, &ignored, H_SETSIZE, kHistoryLines);
    history(lines, &ignored, H_SETUNIQUE, 1);
    el_set(edit, EL_HIST, history, lines);
    el_source(edit, nullptr);
  }
  ~Terminal() {
    el_end(edit);
    history_end(lines);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  static Terminal& Of(EditLine* edit) {
    Terminal* terminal = nullptr;
    el_get(edit, EL_CLIENTDATA, &terminal);
    return *terminal;
  }

  static char* Prompt(EditLine* edit) { return Of(edit).prompt.data(); }

  static int ReadCharacter(EditLine* edit, wchar_t* character) {
    std::mbstate_t state{};
    for (;;) {
      char byte = 0;
      const ssize_t count = ReadByte(Of(edit).interrupt_fd, byte);
      if (count <= 0) return static_cast<int>(count);
      size_t used = std::mbrtowc(character, &byte, 1, &state);
      if (used == static_cast<size_t>(-1)) {
        // What is no character of this locale is left out; the byte that shows it may begin one.
        state = {};
        used = std::mbrtowc(character, &byte, 1, &state);
        if (used == static_cast<size_t>(-1)) {
          state = {};
          continue;
        }
      }
      if (used != static_cast<size_t>(-2)) return 1;
    }
  }

  std::string prompt;
  int interrupt_fd;
  EditLine* edit;
  History* lines;
};

LineReader::LineReader(std::string prompt, int interrupt_fd) : interrupt_fd_(interrupt_fd) {
  if (isatty(STDIN_FILENO) == 0) return;
  // What a character is; where nobody says, UTF-8.
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  terminal_ = std::make_unique<Terminal>(std::move(prompt), interrupt_fd);
}

LineReader::~LineReader() = default;

std::optional<std::string> LineReader::Next() {
  // What came before was meant for something else.
  eventfd_t ignored_count = 0;
  eventfd_read(interrupt_fd_, &ignored_count);
  if (terminal_ == nullptr) return ReadPlainLine(interrupt_fd_);
  int count = 0;
  const char* read = el_gets(terminal_->edit, &count);
  if (read == nullptr || count <= 0) return std::nullopt;
  std::string line(read, static_cast<size_t>(count));
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  if (!line.empty()) {
    HistEvent ignored;
    history(terminal_->lines, &ignored, H_ENTER, line.c_str());
  }
  return line;
}

}  // namespace kvasir::app
