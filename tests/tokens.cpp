// Section 3: what a word is, and where words stand.

#include <doctest/doctest.h>

#include <algorithm>
#include <rag_retrieve.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace tokens_tests {

namespace rag = rag_retrieve;

namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (const rag::byte_range& word : rag::word_ranges(text)) {
    words.emplace_back(rag::slice(text, word));
  }
  return words;
}

/// So many parts by chance; those of the first half come more often.
std::string made_of(const std::vector<std::string_view>& parts, std::size_t count,
                    std::mt19937& random) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += parts[random() % (random() % 4 == 0 ? parts.size() : parts.size() / 2)];
  }
  return text;
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

TEST_CASE("tokens: words counted by blocks are those that are found one by one") {
  const std::vector<std::string_view> parts{"words of a longer text ",
                                            "stra\xC3\x9F",
                                            "\xD0\xB6 ",
                                            "\xCE\xBB",
                                            "\xE2\x80\x99",
                                            " ",
                                            "\n",
                                            "a",
                                            "\xE2\x80\x94",
                                            "\xC2\xA0",
                                            "\xE2\x80\xA8",
                                            "\xE2\x80",
                                            "\xE2",
                                            "\xC3",
                                            "\x80",
                                            "\xCC\x81",
                                            "\xD2\x83",
                                            "\xE6\x9D\xB1",
                                            "\xE3\x80\x80",
                                            "\xE2\x80\xA7",
                                            "\xE2\x80\x8D",
                                            "\xFF"};
  std::mt19937 random(11);
  for (std::size_t i = 0; i < 3000; ++i) {
    const std::string text = made_of(parts, i % 60, random);
    REQUIRE(rag::count_words(text) == rag::word_ranges(text).size());
  }
}

TEST_CASE("tokens: windows of words begin and end where the words stand, in any western script") {
  const std::vector<std::string_view> parts{"some words of text, ",
                                            "one ",
                                            "\n",
                                            "gr\xC3\xB6\xC3\x9F\x65r ",
                                            "\xD0\xBD\xD0\xB5\xD1\x82 ",
                                            "\xE2\x80\x9Cyes\xE2\x80\x9D ",
                                            "\xE2\x80\x94 ",
                                            "\xE6\x9D\xB1 "};
  std::mt19937 random(12);
  for (std::size_t i = 0; i < 300; ++i) {
    const rag::document page{.id = "page", .text = "x " + made_of(parts, 20 + i, random)};
    const std::vector<rag::byte_range> words = rag::word_ranges(page.text);
    std::vector<rag::byte_range> expected;
    const std::size_t size = 10 + i % 50;
    const std::size_t overlap = i % 10;
    for (std::size_t first = 0, end = 0; end < words.size(); first += size - overlap) {
      end = (std::min)(first + size, words.size());
      expected.push_back({words[first].begin, words[end - 1].end});
    }
    std::vector<rag::byte_range> found;
    for (const rag::chunk& window :
         rag::chunk_fixed(page, {.chunk_size = size, .overlap = overlap})) {
      found.push_back(window.range);
      REQUIRE(window.token_count == rag::count_words(rag::chunk_text(page, window)));
    }
    REQUIRE(found == expected);
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

}  // namespace tokens_tests
