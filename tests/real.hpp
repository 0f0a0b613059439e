// Real vectors and judgements, from the folder of data sets that RAG_RETRIEVE_DATASETS names.
#ifndef RAG_RETRIEVE_TESTS_REAL_HPP
#define RAG_RETRIEVE_TESTS_REAL_HPP

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

namespace real {

/// The folder; says that a test is skipped where there is none.
inline std::optional<std::string> folder() {
  const char* named = std::getenv("RAG_RETRIEVE_DATASETS");
  if (named != nullptr) return std::string(named) + "/";
  MESSAGE("skipped: RAG_RETRIEVE_DATASETS is not set");
  return {};
}

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE_MESSAGE(file.good(), path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Little-endian floats of a file, `dimension` a row.
inline std::vector<std::vector<float>> read_vectors(const std::string& path,
                                                    std::size_t dimension) {
  const std::string bytes = read_bytes(path);
  REQUIRE(bytes.size() % (4 * dimension) == 0);
  std::vector<std::vector<float>> rows(bytes.size() / 4 / dimension, std::vector<float>(dimension));
  for (std::size_t i = 0; i < bytes.size() / 4; ++i) {
    std::uint32_t bits = 0;
    for (std::size_t byte = 4; byte-- > 0;)
      bits = bits << 8 | static_cast<unsigned char>(bytes[4 * i + byte]);
    std::memcpy(&rows[i / dimension][i % dimension], &bits, sizeof bits);
  }
  return rows;
}

inline std::vector<std::string> read_lines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE_MESSAGE(file.good(), path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

}  // namespace real

#endif
