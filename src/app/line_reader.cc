#include "app/line_reader.h"

#include <histedit.h>
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

// libedit's own reader tries again after a signal; here Ctrl-C must end the line.
int ReadCharacter(EditLine*, wchar_t* character) {
  std::mbstate_t state{};
  for (;;) {
    char byte = 0;
    const ssize_t count = read(STDIN_FILENO, &byte, 1);
    if (count <= 0) return static_cast<int>(count);
    const size_t used = std::mbrtowc(character, &byte, 1, &state);
    if (used == static_cast<size_t>(-1)) {  // no character of this locale
      errno = EILSEQ;
      return -1;
    }
    if (used != static_cast<size_t>(-2)) return 1;
  }
}

std::optional<std::string> ReadPlainLine() {
  std::string line;
  char c = 0;
  for (;;) {
    const ssize_t count = read(STDIN_FILENO, &c, 1);
    if (count < 0 || (count == 0 && line.empty())) return std::nullopt;
    if (count == 0 || c == '\n') return line;
    line += c;
  }
}

}  // namespace

struct LineReader::Terminal {
  explicit Terminal(std::string shown)
      : prompt(std::move(shown)),
        edit(el_init("kvasir", stdin, stdout, stderr)),
        lines(history_init()) {
    el_set(edit, EL_CLIENTDATA, this);
    el_set(
        edit, EL_PROMPT, +[](EditLine* of) {
          Terminal* terminal = nullptr;
          el_get(of, EL_CLIENTDATA, &terminal);
          return terminal->prompt.data();
        });
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

  std::string prompt;
  EditLine* edit;
  History* lines;
};

LineReader::LineReader(std::string prompt) {
  if (isatty(STDIN_FILENO) == 0) return;
  // What a character is; where nobody says, UTF-8.
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  terminal_ = std::make_unique<Terminal>(std::move(prompt));
}

LineReader::~LineReader() = default;

std::optional<std::string> LineReader::Next() {
  if (terminal_ == nullptr) return ReadPlainLine();
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
