// The manual on top of the header, the banners inside it and the README say the same.
#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <rag_retrieve.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace contents_tests {

namespace {

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE_MESSAGE(file.good(), path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

const std::string root = std::string(RAG_RETRIEVE_DATA_DIR) + "/../";

bool is_rule(const std::string& line) { return line.find_first_not_of("/ =") == std::string::npos; }

/// Number and title of each section, as its banner gives them.
std::map<int, std::string> banners() {
  const std::vector<std::string> lines = lines_of(root + "rag_retrieve.hpp");
  std::map<int, std::string> found;
  int last = 0;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (lines[i - 1].size() != 100 || !is_rule(lines[i - 1])) continue;
    const std::size_t dot = lines[i].find(". ");
    const std::size_t colon = lines[i].find(':');
    if (dot == std::string::npos || colon == std::string::npos || dot < 4 || dot > 5) continue;
    const int number = std::stoi(lines[i].substr(3, dot - 3));
    CHECK_MESSAGE(number > last, "banner ", number, " stands after ", last);
    last = number;
    found[number] = lines[i].substr(dot + 2, colon - dot - 2);
  }
  return found;
}

/// The same of the CONTENTS in the header's first comment.
std::map<int, std::string> contents() {
  std::map<int, std::string> found;
  bool inside = false;
  for (const std::string& line : lines_of(root + "rag_retrieve.hpp")) {
    if (line.rfind("// CONTENTS", 0) == 0) inside = true;
    if (line.rfind("// ARTICLE", 0) == 0) break;
    if (!inside || line.size() < 10 || line[6] < '0' || line[6] > '9') continue;
    if (line.compare(0, 5, "//   ") != 0) continue;
    const std::string title = line.substr(9, line.find("  ", 9) - 9);
    found[std::stoi(line.substr(4, 3))] = title;
  }
  return found;
}

}  // namespace

TEST_CASE("header: the contents list and the banners name the same sections in the same order") {
  const auto from_banners = banners();
  CHECK(from_banners.size() == 16);
  CHECK(contents() == from_banners);
}

TEST_CASE("header: the version in the title line, the macros and the numbers agree") {
  const std::string first = lines_of(root + "rag_retrieve.hpp").front();
  CHECK(first.find(std::string("version ") + RAG_RETRIEVE_VERSION) != std::string::npos);
  const std::string numbers = std::to_string(RAG_RETRIEVE_VERSION_MAJOR) + "." +
                              std::to_string(RAG_RETRIEVE_VERSION_MINOR) + "." +
                              std::to_string(RAG_RETRIEVE_VERSION_PATCH);
  CHECK(numbers == RAG_RETRIEVE_VERSION);
}

TEST_CASE("readme: its table of sections names each section of the header") {
  std::map<int, std::string> rows;
  for (const std::string& line : lines_of(root + "README.md")) {
    int number = 0;
    std::istringstream row(line);
    char before = 0;
    char after = 0;
    row >> before >> number >> after;
    if (before != '|' || after != '|') continue;
    const std::size_t begin = line.find("| ", 2);
    if (begin == std::string::npos) continue;
    rows[number] = line.substr(begin + 2, line.find(" |", begin + 2) - begin - 2);
  }
  CHECK(rows == banners());
}

TEST_CASE("readme: its first program is examples/hello.cpp, and it prints what the README shows") {
  const auto whole = [](const std::string& path) {
    std::string text;
    for (const std::string& line : lines_of(root + path)) text += line + '\n';
    return text;
  };
  const std::string readme = whole("README.md");
  CHECK(readme.find("```cpp\n" + whole("examples/hello.cpp") + "```") != std::string::npos);
  CHECK(readme.find("```text\n" + whole("tests/expected/hello.txt") + "```") != std::string::npos);
}

}  // namespace contents_tests
