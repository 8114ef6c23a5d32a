#include "app/read_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "app/exit_codes.h"

namespace kvasir::app {

Result<std::string> ReadWholeFile(const std::string& path) {
  errno = 0;
  try {  // the library throws where a read fails, as that of a folder does
    if (path == "-") {
      return std::string(std::istreambuf_iterator<char>(std::cin),
                         std::istreambuf_iterator<char>());
    }
    std::ifstream file(path, std::ios::binary);
    if (file) {
      return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
  } catch (const std::ios_base::failure&) {  // errno says why
  }
  return MakeError(ErrorCode::kIo, "{}: cannot be read: {}", path,
                   errno != 0 ? std::strerror(errno) : "not a file");
}

Status WriteWholeFile(const std::string& path, const std::string& bytes) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  file.close();
  if (file) return Status::Ok();
  return MakeError(ErrorCode::kIo, "{}: cannot be written: {}", path, std::strerror(errno));
}

Status CheckWritable(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::file_status found = std::filesystem::status(path, ignored);
  int error = 0;
  if (std::filesystem::is_directory(found)) {
    error = EISDIR;
  } else if (std::filesystem::exists(found)) {
    // Opening a pipe would wait for its reader.
    if (access(path.c_str(), W_OK) != 0) error = errno;
  } else {
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) {
      error = errno;
    } else {
      close(file);
      std::filesystem::remove(path, ignored);
    }
  }
  if (error == 0) return Status::Ok();
  return MakeError(ErrorCode::kIo, "{}: cannot be written: {}", path, std::strerror(error));
}

int ExitCodeOf(const Error& error) {
  const bool file = error.code == ErrorCode::kNotFound || error.code == ErrorCode::kDataLoss ||
                    error.code == ErrorCode::kUnsupported || error.code == ErrorCode::kIo;
  return file ? kExitModel : kExitUsage;
}

Error OfHardware(Error error) {
  if (error.param == "hardware") error.message.insert(0, "--");
  return error;
}

int Fail(const Error& error, int exit_code) {
  // A template's own words may hold lines and escape sequences: a terminal gets neither.
  std::string line;
  for (const char c : error.message) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += c;
    }
  }
  std::fprintf(stderr, "kvasir: %s\n", line.c_str());
  return exit_code;
}

}  // namespace kvasir::app
