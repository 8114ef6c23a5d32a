// Encodes and decodes documents, for tokenizer_speed.py: reads a JSON array of texts from stdin,
// writes the CPU seconds of loading, encoding and decoding, and the ids.
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "files/gguf.h"
#include "text/tokenizer.h"

namespace {

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: tokenizer_speed TOKENIZER_JSON|GGUF < texts.json > result.json\n";
    return 2;
  }
  using kvasir::text::Tokenizer;
  const std::string path = argv[1];
  std::ifstream file(path, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(file)), {});
  const auto texts = nlohmann::json::parse(std::cin).get<std::vector<std::string>>();

  double begin = CpuSeconds();
  auto gguf = path.ends_with(".gguf") ? kvasir::files::OpenGguf(path)
                                      : kvasir::Result<kvasir::files::GgufFile>(kvasir::Error{});
  const double open_s = CpuSeconds() - begin;
  begin = CpuSeconds();
  const auto tokenizer = gguf.ok() ? Tokenizer::FromGguf(gguf->metadata)
                                   : Tokenizer::FromHuggingFace(content, nullptr);
  const double load_s = CpuSeconds() - begin;
  if (!tokenizer.ok()) {
    std::cerr << path << ": " << tokenizer.error().message << "\n";
    return 1;
  }
  begin = CpuSeconds();
  std::vector<std::vector<int32_t>> ids;
  for (const std::string& text : texts) {
    ids.push_back((*tokenizer)->Encode(text, {.add_special_tokens = false}));
  }
  const double encode_s = CpuSeconds() - begin;
  begin = CpuSeconds();
  size_t decoded_bytes = 0;
  for (const auto& of_text : ids) decoded_bytes += (*tokenizer)->Decode(of_text, true).size();
  const double decode_s = CpuSeconds() - begin;
  std::cout << nlohmann::json{{"open_s", open_s},
                              {"load_s", load_s},
                              {"encode_s", encode_s},
                              {"decode_s", decode_s},
                              {"decoded_bytes", decoded_bytes},
                              {"ids", ids}}
            << "\n";
  return 0;
}
