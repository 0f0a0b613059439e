// Section 2 of the header: UTF-8, graphemes, folding, lines, sentences.
//
// Two environment variables name folders with data that is not part of the tests:
//   RAG_RETRIEVE_UNICODE_DATA   the Unicode 15.0 files; default: Debian's unicode-data package
//   RAG_RETRIEVE_DATASETS       golden-rules/en.jsonl: sentence cases, {"text", "sentences"} a line

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <rag_retrieve.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace text_tests {

namespace rag = rag_retrieve;

namespace {

std::vector<std::string> sentences_of(std::string_view text,
                                      const rag::sentence_options& options = {}) {
  std::vector<std::string> out;
  for (rag::byte_range range : rag::sentence_ranges(text, {0, text.size()}, options)) {
    out.emplace_back(rag::slice(text, range));
  }
  return out;
}

using strings = std::vector<std::string>;

std::string utf8(std::initializer_list<char32_t> points) {
  std::string out;
  for (char32_t point : points) rag::append_utf8(out, point);
  return out;
}

std::vector<std::size_t> graphemes_of(std::string_view text) {
  std::vector<std::size_t> edges{0};
  while (edges.back() < text.size()) edges.push_back(rag::next_grapheme(text, edges.back()));
  return edges;
}

std::string unicode_file(const std::string& name) {
  const char* folder = std::getenv("RAG_RETRIEVE_UNICODE_DATA");
  return std::string(folder != nullptr ? folder : "/usr/share/unicode") + "/" + name;
}

// Calls visit(first, last, rest of the line after the first ';') for each line of a data file.
// False if there is no such file.
template <class Visit>
bool for_each_range(const std::string& name, Visit&& visit) {
  std::ifstream file(unicode_file(name));
  if (!file) return false;
  for (std::string line; std::getline(file, line);) {
    line = line.substr(0, line.find('#'));
    const std::size_t semicolon = line.find(';');
    if (semicolon == std::string::npos) continue;
    const std::size_t dots = line.find("..");
    const std::string points = line.substr(0, semicolon);
    const auto first = static_cast<char32_t>(std::stoul(points, nullptr, 16));
    const char32_t last =
        dots >= semicolon ? first
                          : static_cast<char32_t>(std::stoul(points.substr(dots + 2), nullptr, 16));
    visit(first, last, line.substr(semicolon + 1));
  }
  return true;
}

std::string first_field(std::string_view rest) {
  std::string out;
  for (char c : rest) {
    if (c == ';') break;
    if (c != ' ') out += c;
  }
  return out;
}

// Small and the same everywhere (splitmix64).
struct random_numbers {
  std::uint64_t state;
  std::size_t below(std::size_t bound) {
    std::uint64_t z = (state += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return static_cast<std::size_t>((z ^ (z >> 31)) % bound);
  }
};

// Text of pieces that meet the rules where they are thin, and of plain bytes.
std::string hostile_text(random_numbers& random, std::size_t pieces) {
  static const std::vector<std::string> all = {". ",
                                               "! ",
                                               "? ",
                                               ".",
                                               "...",
                                               " . . .",
                                               "\xE3\x80\x82",
                                               "\xE0\xA5\xA4",  // marks
                                               "\r\n",
                                               "\r",
                                               "\n",
                                               "\n\n",
                                               " ",
                                               "\t",
                                               "\xC2\xA0",
                                               "\xE2\x80\xA8",
                                               "\xE3\x80\x80",
                                               "\xCC\x81",
                                               "\xE2\x80\x8D",
                                               "\xF0\x9F\x87\xA9",
                                               "\xF0\x9F\x91\xA8",
                                               "\xD8\x80",
                                               "\xEA\xB0\x80",
                                               "\xE1\x86\xA8",
                                               "\xE0\xA4\x83",
                                               "\xEF\xB8\x8F",  // what joins
                                               "`",
                                               "``",
                                               "```\n",
                                               "~~~\n",
                                               "\"",
                                               "(",
                                               ")",
                                               "]",
                                               "[1]",
                                               "# ",
                                               "\n# H\n",
                                               "\n- ",
                                               "\n1. ",
                                               "1. ",
                                               "2. ",
                                               "a) ",
                                               "\xE2\x80\xA2 ",
                                               "| a |\n",
                                               "\n---\n",
                                               "===\n",
                                               "Mr. ",
                                               "e.g. ",
                                               "U.S. ",
                                               "A",
                                               "b",
                                               "The ",
                                               "I ",
                                               "\xC3\xA9",
                                               "\xFF",
                                               "\xC3",
                                               "\xE2\x80",
                                               "\xF0\x9F",
                                               "\xED\xA0\x80",
                                               std::string(1, '\0')};
  std::string out;
  for (std::size_t i = 0; i < pieces; ++i) {
    if (random.below(8) == 0) {
      out += static_cast<char>(random.below(256));
    } else {
      out += all[random.below(all.size())];
    }
  }
  return out;
}

// In order, apart, trimmed, on grapheme boundaries; all that is left out is white space.
std::string fault_of(std::string_view text, rag::byte_range within,
                     const std::vector<rag::byte_range>& ranges) {
  const std::vector<std::size_t> edges = graphemes_of(text);
  const std::set<std::size_t> boundaries(edges.begin(), edges.end());
  std::size_t at = within.begin;
  for (std::size_t i = 0; i <= ranges.size(); ++i) {
    const rag::byte_range range =
        i < ranges.size() ? ranges[i] : rag::byte_range{within.end, within.end};
    if (range.begin < at || range.end > within.end) return "not in order or not inside";
    if (i < ranges.size() && range.empty()) return "empty";
    if (!(rag::trim(text, range) == range)) return "not trimmed";
    if (boundaries.count(range.begin) == 0 || boundaries.count(range.end) == 0) return "cuts";
    while (at < range.begin) {
      const rag::code_point point = rag::decode(text, at);
      if (!point.valid || !rag::is_white_space(point.value)) return "leaves out a character";
      at += point.length;
    }
    at = range.end;
  }
  return {};
}

}  // namespace

TEST_CASE("text: every code point survives append_utf8 and decode") {
  for (char32_t value = 0; value <= 0x10FFFF; ++value) {
    if (value >= 0xD800 && value <= 0xDFFF) continue;
    std::string bytes;
    rag::append_utf8(bytes, value);
    const rag::code_point point = rag::decode(bytes, 0);
    if (!point.valid || point.value != value || point.length != bytes.size()) {
      FAIL("code point ", static_cast<unsigned>(value));
    }
    const rag::code_point back = rag::detail::decode_before(bytes, 0, bytes.size());
    if (!back.valid || back.value != value) FAIL("backwards ", static_cast<unsigned>(value));
  }
}

TEST_CASE("text: surrogates, overlong forms, too large values and cut sequences are bytes") {
  for (const std::string bytes : {"\xED\xA0\x80", "\xC0\x80", "\xE0\x80\x80", "\xF0\x80\x80\x80",
                                  "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80", "\x80", "\xE2\x82"}) {
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      const rag::code_point point = rag::decode(bytes, at);
      CHECK_FALSE(point.valid);
      CHECK(point.length == 1);
      CHECK(point.value == 0xFFFD);
    }
    CHECK_FALSE(rag::is_valid_utf8(bytes));
    CHECK(graphemes_of(bytes).size() == bytes.size() + 1);
  }
  CHECK(rag::is_valid_utf8(""));
  CHECK(
      rag::is_valid_utf8("Gr\xC3\xB6\xC3\x9F"
                         "e \xF0\x9F\x91\x8D"));
  CHECK(rag::decode("abc", 3).length == 0);
}

TEST_CASE("text: a code point that is none is appended as U+FFFD") {
  CHECK(utf8({0xD800, 0x110000}) == "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST_CASE("text: slice takes what lies inside the text") {
  CHECK(rag::slice("abcdef", {1, 3}) == "bc");
  CHECK(rag::slice("abc", {1, 9}) == "bc");
  CHECK(rag::slice("abc", {7, 9}).empty());
}

TEST_CASE("text: decoding backwards finds the units that decoding forwards finds") {
  random_numbers random{11};
  for (int round = 0; round < 300; ++round) {
    const std::string text = hostile_text(random, 30);
    std::vector<std::size_t> forwards;
    for (std::size_t at = 0; at < text.size(); at += rag::decode(text, at).length) {
      forwards.push_back(at);
    }
    std::vector<std::size_t> backwards;
    for (std::size_t at = text.size(); at > 0;) {
      at -= rag::detail::decode_before(text, 0, at).length;
      backwards.push_back(at);
    }
    std::reverse(backwards.begin(), backwards.end());
    CHECK(forwards == backwards);
  }
}

TEST_CASE("text: white space is Unicode's White_Space") {
  std::set<char32_t> expected;
  const bool found =
      for_each_range("PropList.txt", [&](char32_t first, char32_t last, const std::string& rest) {
        if (first_field(rest) != "White_Space") return;
        for (char32_t value = first; value <= last; ++value) expected.insert(value);
      });
  if (!found) {
    MESSAGE("skipped: no Unicode data files");
    return;
  }
  std::set<char32_t> got;
  for (char32_t value = 0; value <= 0x10FFFF; ++value) {
    if (rag::is_white_space(value)) got.insert(value);
  }
  CHECK(got == expected);
}

TEST_CASE("text: letters, marks and numbers are general categories L, M and N") {
  std::size_t wrong = 0;
  const bool found = for_each_range("extracted/DerivedGeneralCategory.txt",
                                    [&](char32_t first, char32_t last, const std::string& rest) {
                                      const char kind = first_field(rest)[0];
                                      const bool word = kind == 'L' || kind == 'M' || kind == 'N';
                                      for (char32_t value = first; value <= last; ++value) {
                                        wrong += rag::is_letter_or_digit(value) == word ? 0U : 1U;
                                      }
                                    });
  if (!found) MESSAGE("skipped: no Unicode data files");
  CHECK(wrong == 0);
  CHECK(rag::is_letter_or_digit('z'));
  CHECK(rag::is_letter_or_digit(0x301));  // a mark
  CHECK_FALSE(rag::is_letter_or_digit('-'));
  CHECK_FALSE(rag::is_letter_or_digit(0xFFFD));
}

TEST_CASE("text: small letters are Unicode's Lowercase") {
  std::set<char32_t> expected;
  const bool found = for_each_range("DerivedCoreProperties.txt",
                                    [&](char32_t first, char32_t last, const std::string& rest) {
                                      if (first_field(rest) != "Lowercase") return;
                                      for (char32_t value = first; value <= last; ++value)
                                        expected.insert(value);
                                    });
  if (!found) {
    MESSAGE("skipped: no Unicode data files");
    return;
  }
  std::size_t wrong = 0;
  for (char32_t value = 0; value <= 0x10FFFF; ++value) {
    wrong += rag::detail::is_lower_case(value) == (expected.count(value) != 0) ? 0U : 1U;
  }
  CHECK(wrong == 0);
}

TEST_CASE("text: scripts without spaces") {
  for (char32_t value : {0x4E2DU, 0x3042U, 0x30ABU, 0x30FCU, 0xE01U, 0xE81U, 0x1780U, 0x20000U}) {
    CHECK(rag::is_unspaced(value));
  }
  for (char32_t value : {0x61U, 0xE9U, 0xAC00U, 0x905U, 0x3002U}) {
    CHECK_FALSE(rag::is_unspaced(value));
  }
}

TEST_CASE("graphemes: all cases of GraphemeBreakTest.txt") {
  std::ifstream file(unicode_file("auxiliary/GraphemeBreakTest.txt"));
  if (!file) {
    MESSAGE("skipped: no Unicode data files");
    return;
  }
  std::size_t cases = 0;
  for (std::string line; std::getline(file, line);) {
    line = line.substr(0, line.find('#'));
    std::string text;
    std::vector<std::size_t> expected;
    for (std::size_t at = 0; at < line.size();) {
      const std::size_t end = (std::min)(line.find_first_of(" \t", at), line.size());
      const std::string word = line.substr(at, end - at);
      if (word == "\xC3\xB7")
        expected.push_back(text.size());
      else if (!word.empty() && word != "\xC3\x97")
        rag::append_utf8(text, static_cast<char32_t>(std::stoul(word, nullptr, 16)));
      at = end + 1;
    }
    if (text.empty()) continue;
    ++cases;
    CHECK_MESSAGE(graphemes_of(text) == expected, line);
  }
  CHECK(cases == 602);
}

TEST_CASE("graphemes: CR LF, flags in pairs, joined emoji, Hangul and marks are whole") {
  CHECK(graphemes_of("a\r\nb") == std::vector<std::size_t>{0, 1, 3, 4});
  CHECK(graphemes_of("\r\r\n\n") == std::vector<std::size_t>{0, 1, 3, 4});
  CHECK(graphemes_of("e\xCC\x81x") == std::vector<std::size_t>{0, 3, 4});
  const std::string flags = utf8({0x1F1E9, 0x1F1EA, 0x1F1EB, 0x1F1F7, 0x1F1E9});
  CHECK(graphemes_of(flags) == std::vector<std::size_t>{0, 8, 16, 20});
  const std::string family = utf8({0x1F468, 0x200D, 0x1F469, 0x200D, 0x1F467});
  CHECK(rag::next_grapheme(family, 0) == family.size());
  const std::string hangul = utf8({0x1112, 0x1161, 0x11AB, 0xAC00, 0x11A8, 0xAC01});
  CHECK(graphemes_of(hangul) == std::vector<std::size_t>{0, 9, 15, 18});
  CHECK(rag::next_grapheme("", 0) == 0);
  CHECK(rag::next_grapheme("a", 1) == 1);
}

TEST_CASE("graphemes: an invalid byte stands alone, marks behind it too") {
  CHECK(graphemes_of("\xFF\xCC\x81") == std::vector<std::size_t>{0, 1, 3});
  CHECK(graphemes_of("a\x80z") == std::vector<std::size_t>{0, 1, 2, 3});
}

TEST_CASE("trim: takes whole characters, so a space with a mark stays") {
  const std::string text = " \t\xC2\xA0 \xCC\x81x\xE3\x80\x80\r\n";
  CHECK(rag::slice(text, rag::trim(text, {0, text.size()})) == " \xCC\x81x");
  CHECK(rag::trim("  \n", {0, 3}).empty());
  CHECK(rag::trim("", {0, 0}).empty());
  const std::string joined = utf8({0x600, ' ', ' '});  // the first space belongs to U+0600
  CHECK(rag::trim(joined, {0, 4}) == rag::byte_range{0, 3});
}

TEST_CASE("fold: ASCII becomes lower case and nothing else changes") {
  std::string ascii;
  for (int c = 0; c < 128; ++c) ascii += static_cast<char>(c);
  std::string expected = ascii;
  for (char& c : expected) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  CHECK(rag::fold(ascii) == expected);
  CHECK(rag::fold("") == "");
}

TEST_CASE("fold: unites the case forms of all scripts") {
  CHECK(rag::fold("Stra\xC3\x9F"
                  "e PAY-042") == "strasse pay-042");
  CHECK(rag::fold("\xC3\x84\xC3\x96\xC3\x9C") == "\xC3\xA4\xC3\xB6\xC3\xBC");
  CHECK(rag::fold(utf8({0x3A3, 0x3C3, 0x3C2})) == utf8({0x3C3, 0x3C3, 0x3C3}));
  CHECK(rag::fold(utf8({0x416, 0x10400, 0x1E9E})) == utf8({0x436, 0x10428, 's', 's'}));
  CHECK(rag::fold(utf8({0x212A})) == "k");
}

TEST_CASE("fold: agrees with CaseFolding.txt, statuses C, F and S") {
  std::size_t wrong = 0;
  std::set<char32_t> full;
  const auto compare = [&](char32_t from, const std::string& targets) {
    std::string expected;
    for (std::size_t at = 0; at < targets.size();) {
      std::size_t used = 0;
      rag::append_utf8(expected, static_cast<char32_t>(std::stoul(targets.substr(at), &used, 16)));
      at += used;
    }
    std::string got;
    rag::detail::append_folded(got, from);
    wrong += got == expected ? 0U : 1U;
  };
  const auto read = [&](char32_t first, char32_t, const std::string& rest) {
    const char status = first_field(rest)[0];
    const std::size_t begin = rest.find(';') + 1;
    const std::string targets = rest.substr(begin, rest.rfind(';') - begin);
    if (status == 'F') full.insert(first);
    if (status == 'C' || status == 'F') compare(first, targets);
    if (status == 'S' && full.count(first) == 0) compare(first, targets);
  };
  if (!for_each_range("CaseFolding.txt", read)) MESSAGE("skipped: no Unicode data files");
  CHECK(wrong == 0);
}

TEST_CASE("fold: an invalid byte becomes U+FFFD, which separates terms") {
  CHECK(rag::fold("A\xFFZ") == "a\xEF\xBF\xBDz");
  random_numbers random{3};
  for (int round = 0; round < 200; ++round) {
    const std::string text = hostile_text(random, 20);
    const std::string folded = rag::fold(text);
    CHECK(rag::is_valid_utf8(folded));
    CHECK(rag::fold(folded) == folded);
  }
}

#if RAG_RETRIEVE_USE_ICU
TEST_CASE("fold: with ICU compatibility forms are one, in long text too") {
  CHECK(rag::fold("\xEF\xBC\xA1\xEF\xAC\x81\xC2\xAD") == "afi");  // full-width A, ligature, hyphen
  CHECK(rag::fold("e\xCC\x81") == "\xC3\xA9");
  std::string accents;
  std::string expected;
  for (int i = 0; i < 500000; ++i) {
    accents += "E\xCC\x81";
    expected += "\xC3\xA9";
  }
  CHECK(rag::fold(accents) == expected);
}
#endif

TEST_CASE("lines: end at LF, CR LF and CR, at no other separator") {
  const std::string text =
      "a\nb\r\nc\rd\x0B\x0C\xC2\x85\xE2\x80\xA8"
      "e";
  strings lines;
  for (std::size_t at = 0; at < text.size();) {
    const rag::text_line line = rag::line_at(text, at);
    lines.emplace_back(rag::slice(text, line.content));
    CHECK(line.next > at);
    at = line.next;
  }
  CHECK(lines == strings{"a", "b", "c",
                         "d\x0B\x0C\xC2\x85\xE2\x80\xA8"
                         "e"});
  CHECK(rag::line_at("", 0).next == 0);
  CHECK(rag::line_at("ab", 7).next == 2);
}

TEST_CASE("paragraphs: what blank lines separate, trimmed") {
  const std::string text = "\n one\ntwo\r\n \t\r\n\xC2\xA0\nthree\n\n\n";
  strings paragraphs;
  for (rag::byte_range range : rag::paragraph_ranges(text, {0, text.size()})) {
    paragraphs.emplace_back(rag::slice(text, range));
  }
  CHECK(paragraphs == strings{"one\ntwo", "three"});
  CHECK(rag::paragraph_ranges(" \n\n ", {0, 4}).empty());
}

TEST_CASE("sentences: the lists of words are sorted") {
  const auto sorted = [](const auto& list) {
    return std::is_sorted(std::begin(list), std::end(list));
  };
  CHECK(sorted(rag::detail::title_words));
  CHECK(sorted(rag::detail::inner_words));
  CHECK(sorted(rag::detail::reference_words));
  CHECK(sorted(rag::detail::optional_words));
  CHECK(sorted(rag::detail::time_words));
  CHECK(sorted(rag::detail::opening_words));
  CHECK(sorted(rag::detail::time_openers));
  CHECK(sorted(rag::detail::degree_words));
  CHECK(sorted(rag::detail::month_words));
}

TEST_CASE("sentences: blank text has none") {
  CHECK(sentences_of("").empty());
  CHECK(sentences_of(" \t\r\n\n\xC2\xA0").empty());
  CHECK(rag::sentence_ranges("abc", {2, 2}).empty());
}

TEST_CASE("sentences: no break after e.g., i.e. and et al. in the middle") {
  CHECK(sentences_of("Use a cache, e.g. an LRU, i.e. drop the oldest. Kim et al. showed this in "
                     "2019. Done.") == strings{"Use a cache, e.g. an LRU, i.e. drop the oldest.",
                                               "Kim et al. showed this in 2019.", "Done."});
  CHECK(sentences_of("We use C++17, e.g. std::optional, etc. Most compilers, incl. g++ 7, have "
                     "it.") ==
        strings{"We use C++17, e.g. std::optional, etc.", "Most compilers, incl. g++ 7, have it."});
}

TEST_CASE("sentences: CJK marks need no space; a decimal point in full width ends nothing") {
  const std::string fine = utf8({0x4ECA, 0x65E5, 0x306F, 0x6674, 0x308C, 0x3002});
  const std::string rain = utf8({0x660E, 0x65E5, 0x3001, 0x96E8, 0xFF01});
  const std::string really = utf8({0x672C, 0x5F53, 0xFF1F});
  CHECK(sentences_of(fine + rain + really + fine) == strings{fine, rain, really, fine});
  const std::string number = utf8({0xFF13, 0xFF0E, 0xFF12, 0x4EE5, 0x3002});
  CHECK(sentences_of(number) == strings{number});
  const std::string quoted = utf8({0x300C, 0x306F, 0x3044, 0x3002, 0x300D, 0x3068, 0x3002});
  CHECK(sentences_of(quoted) == strings{quoted});
}

TEST_CASE("sentences: danda and Arabic marks end one") {
  const std::string hindi = utf8({0x928, 0x92E, 0x964});
  CHECK(sentences_of(hindi + " " + hindi) == strings{hindi, hindi});
  const std::string arabic = utf8({0x644, 0x645, 0x61F});
  CHECK(sentences_of(arabic + " " + arabic) == strings{arabic, arabic});
}

TEST_CASE("sentences: a semicolon is a question mark in Greek alone") {
  CHECK(sentences_of("\u03A0\u03BF\u03CD; \u0395\u03B4\u03CE. Here; There.") ==
        strings{"\u03A0\u03BF\u03CD;", "\u0395\u03B4\u03CE.", "Here; There."});
  CHECK(sentences_of("\u03C0\u03BF\u03CD; \u03B5\u03B4\u03CE.").size() == 1);
}

TEST_CASE("sentences: a mark with a combining mark on it ends none") {
  CHECK(sentences_of(utf8({'A', 'b', '.', 0x301, ' ', 'C', 'd', '.'})).size() == 1);
}

TEST_CASE("sentences: degrees before a hyphen and names with a mark go on") {
  CHECK(sentences_of("He has Ph.D.-level training at Yahoo! in Ohio. Good.") ==
        strings{"He has Ph.D.-level training at Yahoo! in Ohio.", "Good."});
}

TEST_CASE("sentences: a no-break space before the full stop cuts nothing") {
  CHECK(sentences_of("Plan B\xC2\xA0. Next step.") == strings{"Plan B\xC2\xA0.", "Next step."});
}

TEST_CASE("sentences: a title is followed by a name, even one that often opens a sentence") {
  CHECK(sentences_of("Mr. Will Smith met Dr. May Who. Prof. Will Hunting spoke.") ==
        strings{"Mr. Will Smith met Dr. May Who.", "Prof. Will Hunting spoke."});
  CHECK(sentences_of("It took 20 ms. Ms. Lee saw it.") ==
        strings{"It took 20 ms.", "Ms. Lee saw it."});
}

TEST_CASE("sentences: a code span may open one; marks inside a span or an address end none") {
  CHECK(sentences_of("Use `std::vector`. `std::list` is slower. See <https://example.org/a.b?c=d.> "
                     "for more.") == strings{"Use `std::vector`.", "`std::list` is slower.",
                                             "See <https://example.org/a.b?c=d.> for more."});
  CHECK(sentences_of("Type `a. B. C` now. Then `go.` Done.") ==
        strings{"Type `a. B. C` now.", "Then `go.`", "Done."});
  CHECK(sentences_of("The `.` Operator and the `?` Key.").size() == 1);
  CHECK(sentences_of("A lone ` is text. Here too.") == strings{"A lone ` is text.", "Here too."});
  CHECK(sentences_of("Run `make` there. Now say 'all is done.' Then rest.") ==
        strings{"Run `make` there.", "Now say 'all is done.'", "Then rest."});
  CHECK(sentences_of("He said `all. Is done.' Then rest.") ==
        strings{"He said `all. Is done.'", "Then rest."});
}

TEST_CASE("sentences: initials, acronyms, numbers, files and hosts") {
  CHECK(sentences_of("It was J. R. Smith. He ran v1.2.3 of foo.txt from ftp.example.org. It took "
                     "3.5 s.") == strings{"It was J. R. Smith.",
                                          "He ran v1.2.3 of foo.txt from ftp.example.org.",
                                          "It took 3.5 s."});
  CHECK(sentences_of("See Fig. 3, Sec. IV and pp. 5 ff. of it. No. That is all.") ==
        strings{"See Fig. 3, Sec. IV and pp. 5 ff. of it.", "No.", "That is all."});
  CHECK(sentences_of("Ask J. A. Low. The end.") == strings{"Ask J. A. Low.", "The end."});
}

TEST_CASE("sentences: closing quotes, brackets, emphasis and footnote numbers stay with theirs") {
  CHECK(sentences_of("He said \"Go.\" She went. (They did not.) **Really.** Sure.[1][22] Yes.") ==
        strings{"He said \"Go.\"", "She went.", "(They did not.)", "**Really.**", "Sure.[1][22]",
                "Yes."});
}

TEST_CASE("sentences: abbreviations of the user, with or without the full stop, in any case") {
  const std::string text = "The Gmbh. Alpha and the Str. Beta agreed.";
  CHECK(sentences_of(text).size() == 3);
  CHECK(sentences_of(text, {.abbreviations = {"GmbH", "str."}}) == strings{text});
}

TEST_CASE("sentences: blank lines, headings, items, rows, rules and fences always end one") {
  CHECK(sentences_of("# Title\nwrapped\nline\n\nnext\n- one\n- two\n  more\n1. three\n2. four\n\n"
                     "| a | b |\n|---|---|\n| c | d |\nHead\n====\ntail\n---\nend") ==
        strings{"# Title", "wrapped\nline", "next", "- one", "- two\n  more", "1. three", "2. four",
                "| a | b |", "|---|---|", "| c | d |", "Head\n====", "tail\n---", "end"});
  CHECK(sentences_of("text\n```cpp\nA. B. C;\n\n# no heading\n```\nmore. Text") ==
        strings{"text", "```cpp\nA. B. C;", "# no heading\n```", "more.", "Text"});
  CHECK(sentences_of("~~~\nopen. To the end") == strings{"~~~\nopen. To the end"});
}

TEST_CASE("sentences: a wrapped line that begins with a year is no list item") {
  CHECK(sentences_of("It was built in\n2019. It is tall.") ==
        strings{"It was built in\n2019.", "It is tall."});
}

TEST_CASE("sentences: none ends inside a short quotation; a long one is parted") {
  CHECK(sentences_of("He asked \"How many? I do not know.\" She did. \"No. Never.\"") ==
        strings{"He asked \"How many? I do not know.\"", "She did.", "\"No. Never.\""});
  const std::string curly = "\xE2\x80\x9CStop. Now!\xE2\x80\x9D";
  const std::string angled = "\xC2\xBBHalt. Jetzt!\xC2\xAB";
  for (const std::string& quoted : {curly, angled, std::string("'Wait, Tom. Sit.'"),
                                    std::string("``Wait. Sit.''"), std::string("`Wait. Sit.'")}) {
    CHECK(sentences_of(quoted + " They went.") == strings{quoted, "They went."});
  }
  CHECK(sentences_of("In the '90s they won. The dogs' owner left.").size() == 2);
  CHECK(sentences_of("A 5\" disk. A 3\" one. No more.").size() == 3);
  std::string speech = "\"";
  for (int i = 0; i < 30; ++i) speech += "We go on. ";
  CHECK(sentences_of(speech + "\"").size() >= 30);
  CHECK(sentences_of("\"It never closes. It goes on. And on.").size() == 3);
}

TEST_CASE("sentences: in text written as tokens, a quote or stop stands apart") {
  CHECK(
      sentences_of("What to do ? '' Graham left . He was ' Maistre . ' They knew Mr . Low .") ==
      strings{"What to do ? ''", "Graham left .", "He was ' Maistre . '", "They knew Mr . Low ."});
  CHECK(sentences_of("They say \" Always ready . \" The three left .") ==
        strings{"They say \" Always ready . \"", "The three left ."});
}

TEST_CASE("sentences: footnote numbers behind a space, and a number in brackets before the stop") {
  CHECK(sentences_of("It is a gas. [1][2] [3] It has no colour. [X] is a link.") ==
        strings{"It is a gas. [1][2] [3]", "It has no colour.", "[X] is a link."});
  CHECK(sentences_of("It was shown (12). mTOR is one.") ==
        strings{"It was shown (12).", "mTOR is one."});
}

TEST_CASE("sentences: degrees, times, measures and days") {
  CHECK(sentences_of("She has her Ph.D. Tom was there. He read Ph.D. Theses.") ==
        strings{"She has her Ph.D.", "Tom was there.", "He read Ph.D. Theses."});
  CHECK(sentences_of("It ends at 7 p.m. 7 a.m. is early.") ==
        strings{"It ends at 7 p.m.", "7 a.m. is early."});
  CHECK(
      sentences_of("He said: In 44 B.C. Caesar died. He died in 44 B.C. Antony did not.").size() ==
      3);
  CHECK(sentences_of("It is 5 ft. 3 in. 2 lb. of it.").size() == 1);
  CHECK(sentences_of("Es war am 12. Juni so. Er war 12. Jetzt nicht.") ==
        strings{"Es war am 12. Juni so.", "Er war 12.", "Jetzt nicht."});
}

TEST_CASE("sentences: lists by letters and Roman numerals; a short item is one sentence") {
  CHECK(sentences_of("a. One b. Two c. Three") == strings{"a. One", "b. Two", "c. Three"});
  CHECK(sentences_of("a. One b. Two").size() == 1);  // no third: no list
  CHECK(sentences_of("i.) One ii.) Two iii.) Three") ==
        strings{"i.) One", "ii.) Two", "iii.) Three"});
  CHECK(sentences_of("ii. One\niii. Two\niv. Three\nv. Four") ==
        strings{"ii. One", "iii. Two", "iv. Three", "v. Four"});
  CHECK(sentences_of("- Done. Send it.\n- Next.") == strings{"- Done. Send it.", "- Next."});
  CHECK(sentences_of("- This one is done and was long enough to read. Send it tomorrow.").size() ==
        2);
}

TEST_CASE("sentences: a single line end ends one only by option") {
  CHECK(sentences_of("one line\r\ntwo line") == strings{"one line\r\ntwo line"});
  CHECK(sentences_of("one line\r\ntwo line\rthree", {.newline_ends_sentence = true}) ==
        strings{"one line", "two line", "three"});
}

TEST_CASE("sentences: a part of a text is split as if it stood alone, with its own positions") {
  const std::string text = "One. Two here. Three.";
  CHECK(rag::sentence_ranges(text, {5, 14}) == std::vector<rag::byte_range>{{5, 14}});
  CHECK(rag::sentence_ranges(text, {5, 99}) == std::vector<rag::byte_range>{{5, 14}, {15, 21}});
}

TEST_CASE("sentences and paragraphs: any bytes are covered once, cut at characters only") {
  random_numbers random{7};
  for (int round = 0; round < 3000; ++round) {
    const std::string text = hostile_text(random, 1 + random.below(60));
    const std::vector<std::size_t> edges = graphemes_of(text);
    const std::size_t first = random.below(edges.size());
    const std::size_t last = first + random.below(edges.size() - first);
    for (rag::byte_range within :
         {rag::byte_range{0, text.size()}, rag::byte_range{edges[first], edges[last]}}) {
      const bool by_line = round % 2 == 1;
      const std::string sentence_fault = fault_of(
          text, within, rag::sentence_ranges(text, within, {.newline_ends_sentence = by_line}));
      CHECK_MESSAGE(sentence_fault.empty(), sentence_fault, " in round ", round);
      const std::string paragraph_fault =
          fault_of(text, within, rag::paragraph_ranges(text, within));
      CHECK_MESSAGE(paragraph_fault.empty(), paragraph_fault, " in round ", round);
    }
  }
}

TEST_CASE("sentences: the quick way for plain full stops answers as the long one") {
  const rag::sentence_options long_way{.abbreviations = {"Qzqzqz"}};  // no text here has it
  const std::string_view pieces[] = {"the word. The",
                                     " a wellknown. Next",
                                     " re-use. It",
                                     " 5 in. Of",
                                     " IN. A",
                                     " so.\nAnd",
                                     " (so). Then",
                                     " x.y. Z",
                                     "ing . Then",
                                     " 'so.' He",
                                     " Xi. The",
                                     " etc. We",
                                     " long winding sentence of some words",
                                     "internationalization. It",
                                     " don't. We",
                                     " \xC3\xA9t\xC3\xA9. Un",
                                     "_under. Score",
                                     "1984. The",
                                     " vs. Them",
                                     " no. But"};
  random_numbers random{11};
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    for (std::size_t i = 0, count = 1 + random.below(20); i < count; ++i) {
      text += pieces[random.below(std::size(pieces))];
    }
    if (round % 4 == 0) text += hostile_text(random, 1 + random.below(40));
    CAPTURE(text);
    CHECK(rag::sentence_ranges(text, {0, text.size()}) ==
          rag::sentence_ranges(text, {0, text.size()}, long_way));
  }
}

TEST_CASE("sentences: the bytes looked at grow with the text, whatever it holds") {
  const auto repeated = [](std::string_view piece, std::size_t count) {
    std::string out;
    for (std::size_t i = 0; i < count; ++i) out += piece;
    return out;
  };
  const auto work = [](std::string_view text) {
    std::vector<rag::byte_range> out;
    rag::detail::sentence_scanner scanner(text, {}, out);
    scanner.run({0, text.size()});
    return scanner.extra_work();
  };
  const std::size_t n = 20000;
  for (const std::string& text : {repeated("\"", n) + repeated("(", n) + repeated(". ", n),
                                  repeated("1. 2. ", n),
                                  repeated("` ", n),
                                  repeated("`a ``b ```c ", n),
                                  repeated(". ` ", n),
                                  repeated(".\"", n),
                                  repeated("? ", n) + "A",
                                  "A" + repeated(" ", n) + repeated(".  (", n),
                                  repeated("A. ", n),
                                  repeated(".)", n),
                                  repeated("\xE2\x80\xA2 ", n),
                                  repeated("[1]", n),
                                  repeated(".[1] ", n),
                                  repeated("\xE3\x80\x82", n),
                                  repeated(" . . . .", n),
                                  repeated("a.b", n),
                                  repeated("'a ", n),
                                  repeated("'a. ", n) + "' ",
                                  repeated(" ' A. ", n),
                                  repeated("''' ", n),
                                  repeated("\"a' \"", n),
                                  repeated("`a' ", n),
                                  repeated(". ' ", n) + repeated(" ", n),
                                  repeated(" \xE2\x80\x9C. ", n),
                                  repeated(" \xC2\xBB", n),
                                  repeated(" [1]", n),
                                  repeated("ii. ", n),
                                  repeated("b. c. ", n),
                                  "a. " + repeated("b. ", n),
                                  repeated("In 4 A.D. ", n),
                                  repeated("12. ", n),
                                  repeated("p.m. 7 ", n)}) {
    CHECK(work(text) <= 16 * text.size());
    CHECK(fault_of(text, {0, text.size()}, rag::sentence_ranges(text, {0, text.size()})).empty());
  }
}

TEST_CASE("sentences: the golden rules, all 48") {
  const char* folder = std::getenv("RAG_RETRIEVE_DATASETS");
  std::ifstream file(std::string(folder != nullptr ? folder : "") + "/golden-rules/en.jsonl");
  if (folder == nullptr || !file) {
    MESSAGE("skipped: RAG_RETRIEVE_DATASETS names no folder with golden-rules/en.jsonl");
    return;
  }
  const auto squeezed = [](std::string_view text) {  // white space as single spaces
    std::string out;
    for (char c : text) {
      const bool space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
      if (!space)
        out += c;
      else if (!out.empty() && out.back() != ' ')
        out += ' ';
    }
    if (!out.empty() && out.back() == ' ') out.pop_back();
    return out;
  };
  std::size_t right = 0;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json rule = nlohmann::json::parse(line);
    strings expected;
    for (const auto& sentence : rule.at("sentences")) {
      expected.push_back(squeezed(sentence.get<std::string>()));
    }
    strings got = sentences_of(rule.at("text").get<std::string>());
    for (std::string& sentence : got) sentence = squeezed(sentence);
    if (got == expected)
      ++right;
    else
      MESSAGE("differs: ", line);
  }
  CHECK(right >= 48);
}

}  // namespace text_tests
