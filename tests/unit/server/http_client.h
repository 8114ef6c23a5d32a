// A plain blocking HTTP/1.1 client on a socket, which can also say what no library would.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvasir::server::test {

/// How long a test waits for what must come: an end for what never does, and no measure of speed.
inline std::chrono::seconds Patience() {
  return std::chrono::seconds(std::getenv("KVASIR_SANITIZED") != nullptr ? 300 : 30);
}

using Json = nlohmann::ordered_json;

struct Answer {
  int status = 0;
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;

  [[nodiscard]] Json json() const { return Json::parse(body); }
  /// The payloads of an event stream.
  [[nodiscard]] std::vector<std::string> events() const {
    std::vector<std::string> found;
    size_t at = 0;
    while (at < body.size()) {
      const size_t end = body.find("\n\n", at);
      if (end == std::string::npos) return {"unterminated event"};
      const std::string event = body.substr(at, end - at);
      at = end + 2;
      if (event.rfind("data: ", 0) == 0) found.push_back(event.substr(6));
    }
    return found;
  }
  /// The events as JSON, without "[DONE]".
  [[nodiscard]] std::vector<Json> chunks() const {
    std::vector<Json> found;
    for (const std::string& event : events()) {
      if (event != "[DONE]") found.push_back(Json::parse(event));
    }
    return found;
  }
};

class Client {
 public:
  explicit Client(uint16_t port) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    Connect(reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  }
  explicit Client(const std::string& uds) {
    fd_ = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    uds.copy(address.sun_path, sizeof(address.sun_path) - 1);
    Connect(reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  }
  ~Client() { Close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }
  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  /// False where the peer has closed.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  void EndSending() { ::shutdown(fd_, SHUT_WR); }

  /// Reads until what has come contains `text`; false at the end or after ten seconds.
  bool ReadUntil(std::string_view text) {
    while (received_.find(text) == std::string::npos) {
      if (!ReadMore()) return false;
    }
    return true;
  }
  /// What has come and was not taken by ReadAnswer.
  [[nodiscard]] const std::string& received() const { return received_; }
  /// True where the peer closes, with nothing more to read.
  bool AtEnd() { return received_.empty() && !ReadMore(); }

  /// Appends everything until the peer closes; false where it does not within ten seconds.
  bool ReadToEnd(std::string& all) {
    errno = 0;
    while (ReadMore()) {
    }
    all += received_;
    received_.clear();
    return errno != EAGAIN && errno != EWOULDBLOCK;
  }

  /// The next answer; nullopt where none comes. `head_only`: of a HEAD request.
  std::optional<Answer> ReadAnswer(bool head_only = false) {
    if (!ReadUntil("\r\n\r\n")) return std::nullopt;
    Answer answer;
    size_t at = received_.find("\r\n\r\n") + 4;
    const std::string head = received_.substr(0, at);
    received_.erase(0, at);
    answer.status = std::atoi(head.c_str() + head.find(' '));
    at = head.find("\r\n") + 2;
    while (at + 2 < head.size()) {
      const size_t end = head.find("\r\n", at);
      const size_t colon = head.find(':', at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      answer.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    if (answer.status / 100 == 1) return ReadAnswer(head_only);
    if (head_only || answer.status == 204) return answer;
    if (answer.headers.contains("content-length")) {
      const auto size = std::strtoull(answer.headers["content-length"].c_str(), nullptr, 10);
      while (received_.size() < size) {
        if (!ReadMore()) return std::nullopt;
      }
      answer.body = received_.substr(0, size);
      received_.erase(0, size);
      return answer;
    }
    if (answer.headers.contains("transfer-encoding")) {
      while (true) {
        if (!ReadUntil("\r\n")) return std::nullopt;
        const auto size = std::strtoull(received_.c_str(), nullptr, 16);
        received_.erase(0, received_.find("\r\n") + 2);
        while (received_.size() < size + 2) {
          if (!ReadMore()) return std::nullopt;
        }
        answer.body += received_.substr(0, size);
        received_.erase(0, size + 2);
        if (size == 0) return answer;
      }
    }
    while (ReadMore()) {
    }
    answer.body = std::move(received_);
    received_.clear();
    return answer;
  }

  std::optional<Answer> Call(const std::string& method, const std::string& target,
                             const std::string& body = {},
                             const std::vector<std::string>& headers = {}) {
    std::string text = method + " " + target + " HTTP/1.1\r\nHost: test\r\n";
    for (const std::string& header : headers) text += header + "\r\n";
    if (!body.empty()) {
      text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n";
    }
    text += "\r\n" + body;
    if (!Send(text)) return std::nullopt;
    return ReadAnswer(method == "HEAD");
  }
  std::optional<Answer> Post(const std::string& target, const Json& body,
                             const std::vector<std::string>& headers = {}) {
    return Call("POST", target, body.dump(), headers);
  }

 private:
  void Connect(const sockaddr* address, socklen_t size) {
    timeval timeout{};
    timeout.tv_sec = Patience().count();
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    connected_ = ::connect(fd_, address, size) == 0;
  }
  bool ReadMore() {
    char buffer[16384];
    const ssize_t size = ::recv(fd_, buffer, sizeof(buffer), 0);
    if (size <= 0) return false;
    received_.append(buffer, static_cast<size_t>(size));
    return true;
  }

  int fd_ = -1;
  bool connected_ = false;
  std::string received_;
};

}  // namespace kvasir::server::test
