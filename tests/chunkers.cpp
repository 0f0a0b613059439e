// Section 7: the chunkers. The inputs are small forms of faults that users of other systems met.

#include <doctest/doctest.h>

#include <algorithm>
#include <rag_retrieve.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "made.hpp"

namespace chunkers_tests {

namespace rag = rag_retrieve;

namespace {

using ranges = std::vector<rag::byte_range>;
using strings = std::vector<std::string>;
using chunks = std::vector<rag::chunk>;

rag::document page(std::string text) {
  rag::document made;
  made.id = "doc";
  made.text = std::move(text);
  return made;
}

ranges ranges_of(const chunks& pieces) {
  ranges out;
  for (const rag::chunk& piece : pieces) out.push_back(piece.range);
  return out;
}

strings texts_of(const rag::document& source, const chunks& pieces) {
  strings out;
  for (const rag::chunk& piece : pieces) out.emplace_back(rag::chunk_text(source, piece));
  return out;
}

strings ids_of(const chunks& pieces) {
  strings out;
  for (const rag::chunk& piece : pieces) out.push_back(piece.id);
  return out;
}

using made::repeated;
using made::watched_counter;

// The path of the first chunk that holds a text.
strings path_of(const rag::document& source, const chunks& pieces, std::string_view text) {
  for (const rag::chunk& piece : pieces) {
    if (rag::chunk_text(source, piece).find(text) != std::string_view::npos) {
      return piece.heading_path;
    }
  }
  return {"(not covered)"};
}

std::size_t code_points(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += rag::decode(text, at).length) ++count;
  return count;
}
std::size_t bytes(std::string_view text) { return text.size(); }

rag::tokenizer by_code_point() { return {.count = code_points, .split = {}}; }
rag::tokenizer by_byte() { return {.count = bytes, .split = {}}; }
rag::tokenizer byte_tokens() {
  return {.count = {}, .split = [](std::string_view text) {
            ranges out;
            for (std::size_t i = 0; i < text.size(); ++i) out.push_back({i, i + 1});
            return out;
          }};
}

std::string error_of(const rag::result<chunks>& made) {
  return made ? std::string("no error") : made.failure().message();
}

strings titles_of(std::string_view text) {
  strings out;
  for (const rag::markdown_heading& heading : rag::markdown_headings(text)) {
    out.push_back(std::to_string(heading.level) + " " + heading.title);
  }
  return out;
}

constexpr std::string_view family =
    "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7";
constexpr std::string_view flag = "\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA";

}  // namespace

// ---- fixed windows
// --------------------------------------------------------------------------------

TEST_CASE("fixed: 220 tokens at 80/20 give the windows 0-79, 60-139, 120-199, 180-219") {
  const rag::document source = page(repeated("wd ", 220));
  ranges expected;
  for (std::size_t first : {0U, 60U, 120U, 180U}) {
    const std::size_t end = (std::min)(first + 80, std::size_t{220});
    expected.push_back({first * 3, end * 3 - 1});
  }
  CHECK(ranges_of(rag::chunk_fixed(source, {.chunk_size = 80, .overlap = 20})) == expected);
  CHECK(rag::chunk_fixed(source, {.chunk_size = 80}).size() == 3);
}

TEST_CASE("fixed: repeated text has its own offsets in every window") {
  const rag::document source = page("alpha beta alpha beta alpha beta alpha beta");
  CHECK(ranges_of(rag::chunk_fixed(source, {.chunk_size = 4, .overlap = 2})) ==
        ranges{{0, 21}, {11, 32}, {22, 43}});
}

TEST_CASE("fixed: an overlap of one below the size steps by one token and ends") {
  const rag::document source = page(repeated("abc\n", 50));
  const chunks pieces = rag::chunk_fixed(source, {.chunk_size = 12, .overlap = 11});
  REQUIRE(pieces.size() == 39);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    CHECK(pieces[i].range == rag::byte_range{i * 4, i * 4 + 47});
    CHECK(pieces[i].token_count == 12);
  }
}

TEST_CASE("fixed: text of exactly the size is one window, one more token makes two") {
  CHECK(rag::chunk_fixed(page("a b c"), {.chunk_size = 3}).size() == 1);
  CHECK(rag::chunk_fixed(page("a b c d"), {.chunk_size = 3}).size() == 2);
  CHECK(ranges_of(rag::chunk_fixed(page("a b"), {.chunk_size = 1})) == ranges{{0, 1}, {2, 3}});
}

TEST_CASE("fixed: byte tokens never cut a character; one that cannot fit is whole and flagged") {
  const rag::document source = page(
      "Gr\xC3\xB6\xC3\x9F"
      "e f\xC3\xBCr \xC3\x96l \xF0\x9F\x91\x8D fertig");
  for (const rag::tokenizer& tokens : {by_byte(), byte_tokens()}) {
    const chunks pieces = rag::chunk_fixed(source, {.chunk_size = 3, .tokens = tokens});
    std::string joined;
    for (const rag::chunk& piece : pieces) {
      const std::string_view text = rag::chunk_text(source, piece);
      CHECK(rag::is_valid_utf8(text));
      CHECK(piece.oversize == (text == "\xF0\x9F\x91\x8D"));
      CHECK((piece.token_count <= 3 || piece.oversize));
      for (char c : text) {
        if (c != ' ') joined += c;
      }
    }
    CHECK(joined ==
          "Gr\xC3\xB6\xC3\x9F"
          "ef\xC3\xBCr\xC3\x96l\xF0\x9F\x91\x8D"
          "fertig");
  }
}

TEST_CASE("fixed: no cut before a combining mark, in a joined emoji, or in a flag") {
  const rag::document source =
      page("cafe\xCC\x81 " + std::string(family) + " " + std::string(flag) + " ok");
  const chunks pieces = rag::chunk_fixed(source, {.chunk_size = 2, .tokens = by_code_point()});
  CHECK(texts_of(source, pieces) ==
        strings{"ca", "f", "e\xCC\x81", std::string(family), std::string(flag), "ok"});
  CHECK(pieces[3].oversize);
  CHECK_FALSE(pieces[4].oversize);
}

TEST_CASE("fixed: a million spaces before one word are no chunk and no trouble") {
  const rag::document source = page(std::string(1048576, ' ') + "x");
  CHECK(ranges_of(rag::chunk_fixed(source, {.chunk_size = 16})) == ranges{{1048576, 1048577}});
}

TEST_CASE("fixed: headings are text, so the search text is the slice") {
  const rag::document source = page("# A\n\none two");
  const chunks pieces = rag::chunk_fixed(source, {.chunk_size = 3});
  CHECK(texts_of(source, pieces) == strings{"# A\n\none", "two"});
  CHECK(ids_of(pieces) == strings{"doc#", "doc#~2"});
  CHECK(rag::search_text(source, pieces[0]) == "# A\n\none");
  CHECK((pieces[0].heading.empty() && pieces[0].heading_path.empty() && pieces[0].anchor.empty()));
}

// ---- options
// --------------------------------------------------------------------------------------

TEST_CASE("options: an overlap that is not below the size is refused with both numbers") {
  for (const char* text : {"one two three four five six seven eight", ""}) {
    const rag::document source = page(text);
    for (std::size_t overlap : {4U, 5U}) {
      const auto made = rag::try_chunk_fixed(source, {.chunk_size = 4, .overlap = overlap});
      CHECK(made.failure().code() == rag::errc::invalid_argument);
      CHECK(error_of(made) ==
            "chunk_fixed: overlap " + std::to_string(overlap) + " must be below chunk_size 4");
    }
    CHECK(error_of(rag::try_chunk_packed(source, {.chunk_size = 4, .overlap = 4})) ==
          "chunk_packed: overlap 4 must be below chunk_size 4");
    CHECK(error_of(rag::try_chunk_recursive(source, {.chunk_size = 4, .overlap = 9})) ==
          "chunk_recursive: overlap 9 must be below chunk_size 4");
  }
}

TEST_CASE("options: a size of zero is refused by every chunker that has one") {
  for (const char* text : {"abc. def", ""}) {
    const rag::document source = page(text);
    const std::string expected = ": chunk_size 0 must be at least 1";
    CHECK(error_of(rag::try_chunk_fixed(source, {.chunk_size = 0})) == "chunk_fixed" + expected);
    CHECK(error_of(rag::try_chunk_sentences(source, {.chunk_size = 0})) ==
          "chunk_sentences" + expected);
    CHECK(error_of(rag::try_chunk_packed(source, {.chunk_size = 0})) == "chunk_packed" + expected);
    CHECK(error_of(rag::try_chunk_structure(source, {.chunk_size = 0})) ==
          "chunk_structure" + expected);
    CHECK(error_of(rag::try_chunk_recursive(source, {.chunk_size = 0})) ==
          "chunk_recursive" + expected);
  }
}

TEST_CASE("options: a minimum above the size, and a level outside 1 to 6, are refused") {
  const rag::document source = page("one two three four five six seven eight nine ten");
  CHECK(error_of(rag::try_chunk_recursive(source, {.chunk_size = 20, .min_chunk_size = 24})) ==
        "chunk_recursive: min_chunk_size 24 must be at most chunk_size 20");
  CHECK(error_of(rag::try_chunk_structure(source, {.max_heading_level = 0})) ==
        "chunk_structure: max_heading_level 0 must be 1 to 6");
  CHECK(error_of(rag::try_chunk_recursive(source, {.max_heading_level = 7})) ==
        "chunk_recursive: max_heading_level 7 must be 1 to 6");

  const chunks pieces = rag::chunk_recursive(
      source, {.chunk_size = 20, .min_chunk_size = 10, .tokens = by_code_point()});
  CHECK(texts_of(source, pieces) ==
        strings{"one two three four", "five six seven eight", "nine ten"});
}

#if defined(__cpp_exceptions)
TEST_CASE("options: chunk_x throws what try_chunk_x returns") {
  CHECK_THROWS_AS(static_cast<void>(rag::chunk_fixed(page("a"), {.chunk_size = 0})), rag::error);
}

TEST_CASE("callbacks: what a counter throws is returned as an error, with its sentence") {
  const rag::tokenizer tokens{.count = [](std::string_view) -> std::size_t {
                                throw rag::error(rag::errc::not_found, "no");
                              },
                              .split = {}};
  CHECK(rag::try_chunk_recursive(page("a b"), {.tokens = tokens}).failure().code() ==
        rag::errc::not_found);
  const rag::tokenizer other{.count = [](std::string_view) -> std::size_t { throw 7; },
                             .split = {}};
  CHECK(rag::try_chunk_fixed(page("a b"), {.tokens = other}).failure().code() ==
        rag::errc::callback_failed);
}
#endif

TEST_CASE("callbacks: a splitter whose ranges overlap or run past the text is a bad counter") {
  for (const ranges& wrong : {ranges{{0, 2}, {1, 3}}, ranges{{0, 9}}, ranges{{1, 1}}}) {
    const rag::tokenizer tokens{.count = {}, .split = [wrong](std::string_view) { return wrong; }};
    const auto made = rag::try_chunk_fixed(page("a b c"), {.tokens = tokens});
    REQUIRE_FALSE(made.ok());
    CHECK(made.failure().code() == rag::errc::bad_counter);
  }
}

TEST_CASE("callbacks: the namer gives ids, an empty answer keeps the derived one") {
  const rag::document source = page("# A\n\none\n\n# B\n\ntwo\n");
  const auto name = [](const rag::document&, const rag::chunk& piece) {
    return piece.heading == "B" ? std::string("E2") : std::string();
  };
  CHECK(ids_of(rag::chunk_structure(source, {.name = name})) == strings{"doc#a", "E2"});
  const auto same = [](const rag::document&, const rag::chunk&) { return std::string("E"); };
  const auto made = rag::try_chunk_structure(source, {.name = same});
  REQUIRE_FALSE(made.ok());
  CHECK(made.failure().code() == rag::errc::duplicate_id);
}

TEST_CASE("chunkers: a blank document has no chunks") {
  for (const char* text : {"", " \r\n\t ", "\xEF\xBB\xBF", "\xEF\xBB\xBF \n"}) {
    const rag::document source = page(text);
    CHECK(rag::chunk_whole(source).empty());
    CHECK(rag::chunk_fixed(source).empty());
    CHECK(rag::chunk_sentences(source).empty());
    CHECK(rag::chunk_packed(source).empty());
    CHECK(rag::chunk_structure(source).empty());
    CHECK(rag::chunk_recursive(source).empty());
  }
}

// ---- whole
// ----------------------------------------------------------------------------------------

TEST_CASE("whole: one chunk with the document's id and its opening heading") {
  rag::document source = page("# Checkout failures\n\nCheckout can fail.\n");
  source.title = "Another title";
  source.revision = 7;
  const chunks pieces = rag::chunk_whole(source);
  REQUIRE(pieces.size() == 1);
  CHECK(pieces[0].id == "doc");
  CHECK(pieces[0].revision == 7);
  CHECK(pieces[0].heading == "Checkout failures");
  CHECK(pieces[0].heading_path == strings{"Checkout failures"});
  CHECK(pieces[0].anchor == "checkout-failures");
  CHECK(rag::search_text(source, pieces[0]) == "Checkout failures\n\nCheckout can fail.");
  CHECK(pieces[0].token_count == 5);
}

TEST_CASE("whole: without a heading the title stands in for it") {
  rag::document source = page("Checkout can fail.\n\n# Later\n\nx");
  source.title = "Checkout failures";
  const chunks pieces = rag::chunk_whole(source);
  REQUIRE(pieces.size() == 1);
  CHECK(pieces[0].heading == "Checkout failures");
  CHECK(pieces[0].heading_path.empty());
  CHECK(pieces[0].range == rag::byte_range{0, 30});
  CHECK(pieces[0].body == pieces[0].range);
}

// ---- sentences, one each and packed
// ---------------------------------------------------------------

TEST_CASE("sentences: abbreviations, ideographic stops and degrees end where they should") {
  const auto count = [](std::string text) { return rag::chunk_sentences(page(text)).size(); };
  CHECK(count("Use a cache, e.g. an LRU, i.e. drop the oldest. Kim et al. showed this in 2019. "
              "Done.") == 3);
  CHECK(count("\xE4\xBB\x8A\xE6\x97\xA5\xE3\x81\xAF\xE3\x80\x82\xE9\x9B\xA8\xEF\xBC\x81\xE6\x9C\xAC"
              "\xE5\xBD\x93\xEF\xBC\x9F\xE3\x81\xAF\xE3\x81\x84\xE3\x80\x81\xE3\x81\x9D\xE3\x81\x86"
              "\xE3\x80\x82") == 4);
  CHECK(count("He has Ph.D.-level training at Yahoo! in Ohio. Good.") == 2);
  CHECK(count("Mr. Will Smith met Dr. May Who. Prof. Will Hunting spoke.") == 2);
  CHECK(count("We use C++17, e.g. std::optional, etc. Most compilers, incl. g++ 7, have it.") == 2);
  CHECK(count("Use `std::vector`. `std::list` is slower. See <https://example.org/a.b?c=d.> for "
              "more.") == 3);
}

TEST_CASE("sentences: one longer than the size is cut at words") {
  const rag::document source = page("One two three. Four.");
  CHECK(texts_of(source, rag::chunk_sentences(source, {.chunk_size = 2})) ==
        strings{"One two", "three.", "Four."});
}

TEST_CASE("packed: a sentence over the size is split between words, nothing is lost") {
  const rag::document source = page(
      "Short one here. This second sentence has far too many words to fit into the small limit we "
      "set. Short end.");
  const chunks pieces = rag::chunk_packed(source, {.chunk_size = 6});
  std::string joined;
  for (const rag::chunk& piece : pieces) {
    CHECK(piece.token_count <= 6);
    joined += std::string(joined.empty() ? "" : " ") + std::string(rag::chunk_text(source, piece));
  }
  CHECK(joined == source.text);
}

TEST_CASE("packed: the caller's count of the final text decides, not a sum of counts") {
  const rag::document source = page("Aa bb. Cc dd. Ee ff. Gg hh.");
  const auto count = [](std::string_view text) {
    std::size_t ends = 0;
    for (std::size_t i = 0; i + 1 < text.size(); ++i) ends += text[i] == '.' ? 1U : 0U;
    return rag::count_words(text) + ends;
  };
  const chunks pieces =
      rag::chunk_packed(source, {.chunk_size = 7, .tokens = {.count = count, .split = {}}});
  CHECK(texts_of(source, pieces) == strings{"Aa bb. Cc dd.", "Ee ff. Gg hh."});
}

TEST_CASE("packed: the overlap is whole sentences, as far as the next one has room") {
  const rag::document source = page("A b c. D e. F g. H i j k.");
  CHECK(texts_of(source, rag::chunk_packed(source, {.chunk_size = 7, .overlap = 4})) ==
        strings{"A b c. D e. F g.", "F g. H i j k."});
  CHECK(texts_of(source, rag::chunk_packed(source, {.chunk_size = 5, .overlap = 1})) ==
        strings{"A b c. D e.", "F g.", "H i j k."});
}

TEST_CASE("packed: no chunk is blank or inside the one before") {
  const rag::document source = page("a\n\nthe");
  const chunks pieces =
      rag::chunk_packed(source, {.chunk_size = 3, .overlap = 2, .tokens = by_code_point()});
  CHECK(texts_of(source, pieces) == strings{"a", "the"});
}

// ---- headings
// -------------------------------------------------------------------------------------

TEST_CASE("headings: not in fences, closed or not, nor in code by indentation") {
  CHECK(titles_of("# Setup\n\n```sh\n# not a heading\nmake\n```\n\n## Run\n\nGo.\n") ==
        strings{"1 Setup", "2 Run"});
  CHECK(titles_of("# T\n\nintro\n\n```py\nx = 1\n\n## Lost?\n\ncritical\n") == strings{"1 T"});
  CHECK(titles_of("Text:\n\n    ```\n    code\n\n# Real\n\nt\n") == strings{"1 Real"});
}

TEST_CASE("headings: all three line ends, none of them in a title") {
  CHECK(titles_of("# One\r\n\r\nText.\r\n\r\n## Two\r\n") == strings{"1 One", "2 Two"});
  CHECK(titles_of("# A\rtext\r\r# B\rmore\r") == strings{"1 A", "1 B"});
}

TEST_CASE("headings: a byte order mark and front matter hide none and are none") {
  CHECK(titles_of("\xEF\xBB\xBF# First\n\ntext\n\n## Second\n") == strings{"1 First", "2 Second"});
  CHECK(titles_of("---\ntitle: Demo\ntags: [a, b]\n---\n# Real\n\nBody.\n") == strings{"1 Real"});
  CHECK(titles_of("---\ntitle: x\n# comment\nk: v\n---\n\n# Real\n\nt\n") == strings{"1 Real"});
  CHECK(titles_of("+++\n# c\n+++\n# Real\n") == strings{"1 Real"});
  CHECK(titles_of("---\n\n# Not hidden\n\n---\n") == strings{"1 Not hidden"});
}

TEST_CASE("headings: not in comments or HTML blocks; a comment in the line does not matter") {
  CHECK(titles_of("# Doc\n\n<!--\n## Hidden\n\ntext\n-->\n\n## Shown <!-- todo -->\n") ==
        strings{"1 Doc", "2 Shown <!-- todo -->"});
  CHECK(titles_of("# A\n\n<!--\n```\n-->\n\n# Real\n\nt\n") == strings{"1 A", "1 Real"});
  CHECK(titles_of("<pre>\na\n\n# in pre\n</pre>\n\n<div>\n# in html\n</div>\n\n# Real\n") ==
        strings{"1 Real"});
}

TEST_CASE("headings: setext, closing marks, C#, and none in quotes or list items") {
  CHECK(titles_of("Title\n===\n\ntwo\nlines\n---\n\n***\n") == strings{"1 Title", "2 two lines"});
  CHECK(titles_of("## Run ##\n# C#\n#no\n####### seven\n#\n") == strings{"2 Run", "1 C#", "1 "});
  CHECK(titles_of("> # quoted\n\n- # item\n\n  ## inside\n\n# Real\n") == strings{"1 Real"});
  CHECK(titles_of("> lazy\ntext\n---\n") == strings{});
  CHECK(titles_of("| a | b |\n|---|---|\n| 1 | 2 |\n") == strings{});
  CHECK(titles_of("[a]: /x\n---\n") == strings{});
}

TEST_CASE("headings: the lines hold the whole heading with its line end") {
  const auto headings = rag::markdown_headings("a\n\nTi\ntle\r\n===\r\nx");
  REQUIRE(headings.size() == 1);
  CHECK(headings[0].lines == rag::byte_range{3, 16});
}

// ---- structure
// ------------------------------------------------------------------------------------

TEST_CASE("structure: an unclosed fence keeps the rest of the page, and nothing is dropped") {
  const rag::document source = page("# T\n\nintro\n\n```py\nx = 1\n\n## Lost?\n\ncritical\n");
  const chunks pieces = rag::chunk_structure(source);
  REQUIRE(pieces.size() == 1);
  CHECK(pieces[0].range == rag::byte_range{0, source.text.size() - 1});
}

TEST_CASE("structure: a byte order mark counts in the offsets") {
  const rag::document source = page("\xEF\xBB\xBF# First\n\ntext\n\n## Second\n\nmore\n");
  const chunks pieces = rag::chunk_structure(source);
  REQUIRE(pieces.size() == 2);
  CHECK(pieces[0].range.begin == 3);
  CHECK(pieces[1].range.begin == 18);
  CHECK(pieces[1].heading_path == strings{"First", "Second"});
}

TEST_CASE("structure: front matter is in no section") {
  const rag::document source = page("---\ntitle: Demo\ntags: [a, b]\n---\n# Real\n\nBody.\n");
  const chunks pieces = rag::chunk_structure(source);
  REQUIRE(pieces.size() == 1);
  CHECK(rag::chunk_text(source, pieces[0]) == "# Real\n\nBody.");
  CHECK(pieces[0].heading_path == strings{"Real"});
}

TEST_CASE("structure: paths are popped by level, siblings are not children") {
  const rag::document source = page("# A\n\n### B\n\nb1\n\n### C\n\nc1\n\n## D\n\nd1\n");
  const chunks pieces = rag::chunk_structure(source);
  CHECK(path_of(source, pieces, "b1") == strings{"A", "B"});
  CHECK(path_of(source, pieces, "c1") == strings{"A", "C"});
  CHECK(path_of(source, pieces, "d1") == strings{"A", "D"});
}

TEST_CASE("structure: the first child keeps its parent although that has text of its own") {
  const rag::document source = page("# P\n\nown text\n\n## C1\n\none\n\n## C2\n\ntwo\n");
  const chunks pieces = rag::chunk_structure(source);
  CHECK(path_of(source, pieces, "own text") == strings{"P"});
  CHECK(path_of(source, pieces, "one") == strings{"P", "C1"});
  CHECK(path_of(source, pieces, "two") == strings{"P", "C2"});
  CHECK(ids_of(pieces) == strings{"doc#p", "doc#c1", "doc#c2"});
}

TEST_CASE("structure: a heading without a body stands in paths, or opens the next chunk") {
  const rag::document source = page("# A\n\n## B\n\n## C\n\none line\n");
  for (std::size_t least : {0U, 5U}) {
    const chunks pieces = rag::chunk_structure(source, {.chunk_size = 50, .min_chunk_size = least});
    REQUIRE(pieces.size() == 1);
    CHECK(rag::chunk_text(source, pieces[0]) == "## B\n\n## C\n\none line");
    CHECK(pieces[0].heading_path == strings{"A", "C"});
    CHECK(rag::search_text(source, pieces[0]) == "B\n\nC\n\none line");
  }
}

TEST_CASE("structure: a last heading without a body is a chunk of its own") {
  const rag::document source = page("# A\n\ntext\n\n# B\n");
  const chunks pieces = rag::chunk_structure(source);
  CHECK(texts_of(source, pieces) == strings{"# A\n\ntext", "# B"});
  CHECK(rag::search_text(source, pieces[1]) == "# B");
  CHECK(pieces[1].id == "doc#b");
}

TEST_CASE("structure: equal titles beside each other are two sections with two ids") {
  const rag::document source = page("# A\n\nfirst\n\n# A\n\nsecond\n");
  const chunks pieces = rag::chunk_structure(source);
  CHECK(ranges_of(pieces) == ranges{{0, 10}, {12, 23}});
  CHECK(ids_of(pieces) == strings{"doc#a", "doc#a-1"});
  CHECK(pieces[1].heading_path == strings{"A"});
}

TEST_CASE("structure: tabs, wide spaces and joiners survive, since a chunk is a slice") {
  const rag::document source =
      page("# A\n\nname\tqty\nbolt\t12\n\n\xE6\x9D\xB1\xE3\x80\x80\xE5\xA4\xA7 " +
           std::string(family) + " \xD9\x86\xE2\x80\x8C\xD8\xAE\n");
  const chunks pieces = rag::chunk_structure(source);
  REQUIRE(pieces.size() == 1);
  CHECK(rag::chunk_text(source, pieces[0]) == source.text.substr(0, source.text.size() - 1));
}

TEST_CASE("structure: carriage returns alone end lines, and a cut never parts CR LF") {
  const rag::document source = page("# A\rtext\r\r# B\rmore\r");
  const chunks pieces = rag::chunk_structure(source);
  CHECK(path_of(source, pieces, "text") == strings{"A"});
  CHECK(path_of(source, pieces, "more") == strings{"B"});

  const rag::document code = page("```\r\naaaa\r\nbbbb\r\ncccc\r\n```\r\n");
  const chunks lines = rag::chunk_structure(code, {.chunk_size = 8, .tokens = by_code_point()});
  CHECK(texts_of(code, lines) == strings{"```", "aaaa", "bbbb", "cccc", "```"});
}

TEST_CASE("structure: each part of a long section keeps the heading in its search text") {
  const rag::document source = page("## Fix it\n\nOne two three.\n\nFour five six.\n\nSeven.\n");
  const chunks pieces = rag::chunk_structure(source, {.chunk_size = 6});
  CHECK(texts_of(source, pieces) ==
        strings{"## Fix it\n\nOne two three.", "Four five six.\n\nSeven."});
  CHECK(rag::search_text(source, pieces[1]) == "Fix it\n\nFour five six.\n\nSeven.");
  CHECK(ids_of(pieces) == strings{"doc#fix-it", "doc#fix-it~2"});
  CHECK(pieces[1].heading_path == strings{"Fix it"});
  CHECK(pieces[1].token_count == 6);
}

TEST_CASE("structure: a heading too long for the size is text, and the body stands without it") {
  const rag::document source = page("# one two three four five\n\nBody text here.\n");
  const chunks pieces = rag::chunk_structure(source, {.chunk_size = 4});
  CHECK(texts_of(source, pieces) == strings{"# one two three", "four five", "Body text here."});
  for (const rag::chunk& piece : pieces) CHECK(piece.heading.empty());
}

TEST_CASE("structure: small neighbours in one section merge, others do not") {
  const rag::document source =
      page("# A\n\n## B\n\none\n\n## C\n\ntwo\n\n# D\n\nthree\n\n## E\n\nfour five six seven\n");
  const chunks pieces = rag::chunk_structure(source, {.chunk_size = 12, .min_chunk_size = 4});
  CHECK(texts_of(source, pieces) ==
        strings{"## B\n\none\n\n## C\n\ntwo", "# D\n\nthree\n\n## E\n\nfour five six seven"});
}

TEST_CASE(
    "structure: fences, tables and lists are whole if they fit, else cut at lines and items") {
  const rag::document source = page(
      "Intro words.\n\n```\na b\n\nc d\n```\n\n- one two\n- three\n  four\n\n"
      "| a | b |\n|---|---|\n| 1 | 2 |\n");
  CHECK(texts_of(source, rag::chunk_structure(source, {.chunk_size = 11})) ==
        strings{"Intro words.\n\n```\na b\n\nc d\n```", "- one two\n- three\n  four",
                "| a | b |\n|---|---|\n| 1 | 2 |"});
  CHECK(texts_of(source, rag::chunk_structure(source, {.chunk_size = 5})) ==
        strings{"Intro words.", "```\na b\n\nc d", "```", "- one two", "- three\n  four",
                "| a | b |", "|---|---|", "| 1 | 2 |"});
}

TEST_CASE("anchors: formed and numbered as on GitHub") {
  const rag::document source = page(
      "# PAY-042: Stored `key` (old)\n\na\n\n# See [docs](http://x/y)\n\nb\n\n"
      "# A_b C\n\nc\n\n#### A_b C\n\nd\n\n# \xC3\x84rger\n\ne\n");
  CHECK(ids_of(rag::chunk_structure(source)) == strings{"doc#pay-042-stored-key-old",
                                                        "doc#see-docs", "doc#a_b-c", "doc#a_b-c-1",
                                                        "doc#\xC3\xA4rger"});
}

// ---- recursive
// ------------------------------------------------------------------------------------

TEST_CASE("recursive: text that fits is one chunk") {
  const rag::document source = page("One.\n\nTwo.\n\nThree.");
  CHECK(ranges_of(rag::chunk_recursive(source, {.chunk_size = 100, .overlap = 10})) ==
        ranges{{0, source.text.size()}});
}

TEST_CASE("recursive: a heading begins its chunk and is never parted from its body") {
  const rag::document source =
      page("Alpha words one two three four.\n\n## Next part\n\nBeta words five six seven eight.\n");
  CHECK(texts_of(source, rag::chunk_recursive(source, {.chunk_size = 10})) ==
        strings{"Alpha words one two three four.",
                "## Next part\n\nBeta words five six seven eight."});
}

TEST_CASE("recursive: a section that fits with its subsections stays whole") {
  const rag::document source =
      page("# A\n\none two\n\n## B\n\nthree\n\n# C\n\nfour five six\n\n## D\n\nseven eight\n");
  const chunks pieces = rag::chunk_recursive(source, {.chunk_size = 8});
  CHECK(texts_of(source, pieces) ==
        strings{"# A\n\none two\n\n## B\n\nthree", "# C\n\nfour five six", "## D\n\nseven eight"});
  CHECK(pieces[0].heading == "A");
  CHECK(pieces[2].heading_path == strings{"C", "D"});
}

TEST_CASE("recursive: the overlap stands only where a sentence was cut, and within its bound") {
  const rag::document source = page("it tree\na\nit");
  const chunks pieces =
      rag::chunk_recursive(source, {.chunk_size = 10, .overlap = 2, .tokens = by_code_point()});
  CHECK(texts_of(source, pieces) == strings{"it tree\na", "a\nit"});

  const rag::document prose = page("One two. Three four. Five six seven eight nine.");
  CHECK(texts_of(prose, rag::chunk_recursive(prose, {.chunk_size = 4, .overlap = 1})) ==
        strings{"One two. Three four.", "Five six seven eight", "eight nine."});
}

TEST_CASE("recursive: one word of a million characters is cut every thousand, in linear work") {
  for (const char* unit : {"a", "\xE6\x97\xA5"}) {
    std::size_t seen[2];
    for (std::size_t i = 0; i < 2; ++i) {
      const std::size_t count = 100000 * (i + 1);
      const rag::document source = page(repeated(unit, count));
      watched_counter counter;
      const chunks pieces =
          rag::chunk_recursive(source, {.chunk_size = 1000, .tokens = counter.tokens(code_points)});
      CHECK(pieces.size() == count / 1000);
      for (const rag::chunk& piece : pieces) CHECK(piece.token_count == 1000);
      seen[i] = counter.seen;
    }
    CHECK(seen[1] <= seen[0] * 21 / 10);
    CHECK(seen[1] <= 12 * 200000 * std::string_view(unit).size());
  }
}

TEST_CASE("recursive: many short lines cost a counter a linear number of calls and bytes") {
  std::size_t calls[2];
  std::size_t seen[2];
  for (std::size_t i = 0; i < 2; ++i) {
    const rag::document source =
        page(repeated("alpha beta gamma delta\n", 10000 * (i + 1)) + "\nTHE END.");
    watched_counter counter;
    const chunks pieces = rag::chunk_recursive(
        source, {.chunk_size = 64, .tokens = counter.tokens(rag::count_words)});
    CHECK(ranges_of(pieces) == ranges_of(rag::chunk_recursive(source, {.chunk_size = 64})));
    calls[i] = counter.calls;
    seen[i] = counter.seen;
  }
  CHECK(calls[1] <= calls[0] * 21 / 10);
  CHECK(seen[1] <= seen[0] * 21 / 10);
  CHECK(calls[1] <= 6 * 20000 / 16);
}

TEST_CASE("recursive: a tokenizer that only counts gives the chunks of the default word counter") {
  const rag::document source = page("# A\n\n" + repeated("One two three. Four five!\n\n", 40) +
                                    "## B\n\n" + repeated("six seven eight nine ", 60));
  for (std::size_t size : {3U, 7U, 20U, 64U}) {
    CHECK(ranges_of(rag::chunk_recursive(
              source, {.chunk_size = size, .tokens = {.count = rag::count_words, .split = {}}})) ==
          ranges_of(rag::chunk_recursive(source, {.chunk_size = size})));
  }
}

TEST_CASE("whole: a page that is only a title is one chunk whose body lies inside its range") {
  for (const char* text : {"# T\n", "# T\n\n", "T\n===\n", "\n# T\n", "# T"}) {
    const rag::document page{.id = "page", .text = text};
    const auto chunks = rag::chunk_whole(page);
    REQUIRE(chunks.size() == 1);
    const rag::chunk& only = chunks[0];
    CHECK(only.range.begin <= only.body.begin);
    CHECK(only.body.begin <= only.body.end);
    CHECK(only.body.end <= only.range.end);
    CHECK(rag::search_text(page, only).find('T') != std::string::npos);
  }
}

TEST_CASE("structure: headings without any text inside open the next chunk, the outer ones too") {
  const rag::document page{.id = "d", .text = "# One\n\n## Two\n\n# Three\n\nText.\n"};
  const auto chunks = rag::chunk_structure(page);
  REQUIRE(chunks.size() == 1);
  CHECK(chunks[0].heading == "One\n\nTwo\n\nThree");
  CHECK(rag::chunk_text(page, chunks[0]) == "# One\n\n## Two\n\n# Three\n\nText.");
}

TEST_CASE("structure: a chunk does not begin with the form feed before its heading") {
  const rag::document page{.id = "d", .text = "\fTitle\n---\n\nText.\n"};
  const auto chunks = rag::chunk_structure(page);
  REQUIRE(chunks.size() == 1);
  CHECK(chunks[0].range == rag::byte_range{1, 17});
}

}  // namespace chunkers_tests
