// Section 3: what a word is, and where words stand.

#include <doctest/doctest.h>

#include <rag_retrieve.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace rag = rag_retrieve;

namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (const rag::byte_range& word : rag::word_ranges(text)) {
    words.emplace_back(rag::slice(text, word));
  }
  return words;
}

}  // namespace

TEST_CASE("tokens: a word is a maximal run of characters that are not white space") {
  CHECK(rag::count_words("") == 0);
  CHECK(rag::count_words(" \t\r\n") == 0);
  CHECK(rag::count_words("Reset the key.") == 3);
  CHECK(words_of("  PAY-042:  a\nb ") == std::vector<std::string>{"PAY-042:", "a", "b"});
  CHECK(rag::word_ranges("ab  c") == std::vector<rag::byte_range>{{0, 2}, {4, 5}});
}

TEST_CASE("tokens: no-break, ideographic and line separators part words, a joiner does not") {
  CHECK(rag::count_words("a\xC2\xA0"
                         "b\xE3\x80\x80"
                         "c\xE2\x80\xA8"
                         "d") == 4);
  CHECK(rag::count_words("a\xE2\x80\x8D"
                         "b") == 1);
}

TEST_CASE("tokens: each character of a script without spaces counts by itself") {
  CHECK(rag::count_words("\xE6\x9D\xB1\xE4\xBA\xAC") == 2);
  CHECK(words_of("ab\xE6\x9D\xB1"
                 "cd") == std::vector<std::string>{"ab", "\xE6\x9D\xB1", "cd"});
}

TEST_CASE("tokens: a mark stays with the character before it") {
  const std::string_view thai = "\xE0\xB8\x81\xE0\xB8\xB3\xE0\xB8\x81";  // ko kai, sara am, ko kai
  CHECK(words_of(thai) == std::vector<std::string>{"\xE0\xB8\x81\xE0\xB8\xB3", "\xE0\xB8\x81"});
  CHECK(rag::count_words("e\xCC\x81t") == 1);
}

TEST_CASE("tokens: invalid bytes are characters of their word") {
  CHECK(rag::count_words("a\xFF\xC3 b") == 2);
  CHECK(rag::count_words("\xFF") == 1);
}

TEST_CASE("tokens: the count is the number of the ranges, which lie in order and apart") {
  const std::string text =
      "One \xE6\x97\xA5\xE6\x9C\xAC two\r\n\xCC\x81three \xFF\xFE.\xE0\xB8\x81";
  const auto words = rag::word_ranges(text);
  CHECK(words.size() == rag::count_words(text));
  for (std::size_t i = 0; i < words.size(); ++i) {
    CHECK(words[i].begin < words[i].end);
    if (i > 0) CHECK(words[i - 1].end <= words[i].begin);
  }
}

TEST_CASE("tokens: the caller's counter goes before his splitter, the splitter before words") {
  const rag::token_counter seven = [](std::string_view) { return std::size_t{7}; };
  const rag::token_splitter halves = [](std::string_view text) {
    return std::vector<rag::byte_range>{{0, text.size() / 2}, {text.size() / 2, text.size()}};
  };
  CHECK(rag::detail::count_tokens({.count = seven, .split = halves}, "a b c") == 7);
  CHECK(rag::detail::count_tokens({.count = {}, .split = halves}, "a b c") == 2);
  CHECK(rag::detail::count_tokens({}, "a b c") == 3);
}
