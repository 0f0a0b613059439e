// The bytes of a saved index, changed as damage or an attacker would change them. Shared by
// persistence.cpp and portability/damaged.cpp.
#ifndef RAG_RETRIEVE_TESTS_INDEX_BYTES_HPP
#define RAG_RETRIEVE_TESTS_INDEX_BYTES_HPP

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace index_bytes {

/// FNV-1a, to give changed bytes right hashes again.
inline std::uint64_t hash_of(std::string_view bytes) {
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash;
}
inline std::uint64_t number_at(const std::string& bytes, std::size_t at, int count) {
  std::uint64_t value = 0;
  for (int i = count; i-- > 0;) {
    value = (value << 8) | static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)]);
  }
  return value;
}
inline void put_number(std::string& bytes, std::size_t at, std::uint64_t value) {
  for (std::size_t i = 0; i < 8; ++i) bytes[at + i] = static_cast<char>((value >> (8 * i)) & 0xFF);
}

/// Makes all hashes of a file right, as an attacker would. False if the table itself is broken.
inline bool rehash(std::string& file) {
  constexpr std::size_t head = 32;  // magic, version, count, length of the table; then its hash
  const std::uint64_t count = number_at(file, 16, 8);
  const std::uint64_t length = number_at(file, 24, 8);
  if (length > file.size() - head - 8) return false;
  std::size_t at = head + 8;
  std::size_t bytes_at = at + static_cast<std::size_t>(length);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (at + 12 > file.size()) return false;
    const std::uint64_t tenant = number_at(file, at + 4, 8);
    if (tenant > file.size() - at - 12) return false;
    at += 12 + static_cast<std::size_t>(tenant);
    if (at + 16 > file.size() || bytes_at > file.size()) return false;
    const std::uint64_t size = number_at(file, at, 8);
    if (size > file.size() - bytes_at) return false;
    const auto bytes = std::string_view(file).substr(bytes_at, static_cast<std::size_t>(size));
    put_number(file, at + 8, hash_of(bytes));
    at += 16;
    bytes_at += bytes.size();
  }
  put_number(
      file, head,
      hash_of(file.substr(0, head) + file.substr(head + 8, static_cast<std::size_t>(length))));
  return true;
}

}  // namespace index_bytes

#endif
