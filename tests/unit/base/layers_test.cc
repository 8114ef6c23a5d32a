// The include law: no room includes a room that src/layers.txt does not give it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path kSource = fs::path(KVASIR_SOURCE_DIR) / "src";

// Room -> rooms it may include; order is the file's.
std::vector<std::pair<std::string, std::set<std::string>>> ReadLaw() {
  std::vector<std::pair<std::string, std::set<std::string>>> law;
  std::ifstream file(kSource / "layers.txt");
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    const size_t colon = line.find(':');
    std::istringstream words(line.substr(colon + 1));
    std::set<std::string> allowed;
    for (std::string word; words >> word;) allowed.insert(word);
    law.emplace_back(line.substr(0, colon), allowed);
  }
  return law;
}

std::vector<std::string> Violations(const std::string& room, const std::string& text,
                                    const std::set<std::string>& allowed,
                                    const std::set<std::string>& rooms) {
  static const std::regex include("#include \"([a-z_]+)/[^\"]+\"");
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), include), end; it != end; ++it) {
    const std::string other = (*it)[1];
    if (other == room) continue;
    if (!rooms.contains(other) || !allowed.contains(other)) found.push_back((*it)[0]);
  }
  return found;
}

TEST(Layers, EveryIncludeIsAllowed) {
  std::map<std::string, std::set<std::string>> law;
  std::set<std::string> rooms;
  for (const auto& [room, allowed] : ReadLaw()) {
    law[room] = allowed;
    rooms.insert(room);
  }
  ASSERT_GE(rooms.size(), 10u);
  int files_count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kSource)) {
    const std::string extension = entry.path().extension();
    if (extension != ".h" && extension != ".cc") continue;
    const std::string room = *fs::relative(entry.path(), kSource).begin();
    ASSERT_TRUE(law.contains(room)) << entry.path() << " lies in no room of src/layers.txt";
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    for (const std::string& line : Violations(room, text.str(), law[room], rooms)) {
      ADD_FAILURE() << entry.path() << ": room '" << room << "' may not " << line;
    }
    ++files_count;
  }
  EXPECT_GT(files_count, 10);
}

TEST(Layers, RoomsOnlyLookUp) {
  std::set<std::string> above;
  for (const auto& [room, allowed] : ReadLaw()) {
    for (const std::string& other : allowed) {
      EXPECT_TRUE(above.contains(other)) << room << " lists " << other << ", which is not above it";
    }
    above.insert(room);
  }
}

TEST(Layers, AForbiddenIncludeIsSeen) {
  const std::string text = "#include \"engine/engine.h\"\n#include \"base/log.h\"\n";
  EXPECT_EQ(Violations("cache", text, {"base"}, {"base", "cache", "engine"}),
            std::vector<std::string>{"#include \"engine/engine.h\""});
}

}  // namespace
