// Faults that users of other chunkers reported or that were measured in them, each with its small
// input and what is right. A name in brackets is the project and, where there is one, the public
// issue; "measured" stands for the release that showed it. Where a fault costs time, bytes that are
// looked at are counted instead.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <rag_retrieve.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "made.hpp"

namespace chunking_cases_tests {

namespace chunking_cases {

namespace rag = rag_retrieve;
using ranges = std::vector<rag::byte_range>;
using strings = std::vector<std::string>;
using chunks = std::vector<rag::chunk>;

inline rag::document page(std::string text) { return {.id = "doc", .text = std::move(text)}; }

using made::repeated;
using made::watched_counter;

inline ranges ranges_of(const chunks& pieces) {
  ranges out;
  for (const rag::chunk& piece : pieces) out.push_back(piece.range);
  return out;
}

inline strings texts_of(const rag::document& source, const chunks& pieces) {
  strings out;
  for (const rag::chunk& piece : pieces) out.emplace_back(rag::chunk_text(source, piece));
  return out;
}

inline strings sentences_of(const std::string& text) {
  return texts_of(page(text), rag::chunk_sentences(page(text)));
}

inline strings titles_of(std::string_view text) {
  strings out;
  for (const rag::markdown_heading& heading : rag::markdown_headings(text)) {
    out.push_back(std::to_string(heading.level) + " " + heading.title);
  }
  return out;
}

/// The path of the first chunk that holds a text.
inline strings path_of(const rag::document& source, std::string_view text) {
  for (const rag::chunk& piece : rag::chunk_structure(source)) {
    if (rag::chunk_text(source, piece).find(text) != std::string_view::npos) {
      return piece.heading_path;
    }
  }
  return {"(not covered)"};
}

/// What the chunks show of a text without white space; what they repeat stands twice.
inline std::string letters_of(const rag::document& source, const chunks& pieces) {
  std::string out;
  for (const rag::chunk& piece : pieces) {
    for (const char c : rag::chunk_text(source, piece)) {
      if (!rag::is_white_space(static_cast<unsigned char>(c))) out += c;
    }
  }
  return out;
}
inline std::string letters_of(const rag::document& source) {
  rag::chunk all;
  all.range = {0, source.text.size()};
  return letters_of(source, {all});
}

inline std::size_t code_points(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += rag::decode(text, at).length) ++count;
  return count;
}
inline rag::tokenizer by_code_point() { return {.count = code_points, .split = {}}; }

/// Answers the n-th text with the n-th vector.
inline rag::embedder scripted(std::vector<std::vector<float>> answers) {
  return {.model = "m",
          .embed = [answers = std::move(answers), at = std::size_t{0}](
                       std::span<const std::string_view> texts, rag::text_role) mutable {
            std::vector<std::vector<float>> out;
            for (std::size_t i = 0; i < texts.size(); ++i) out.push_back(answers.at(at++));
            return out;
          }};
}

inline std::string error_of(const rag::result<chunks>& made) {
  if (made) return "no error";
  CHECK(made.failure().code() == rag::errc::invalid_argument);
  return made.failure().message();
}

constexpr std::string_view family =
    "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7";
constexpr std::string_view flag = "\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA";

}  // namespace chunking_cases

using namespace chunking_cases;

// ---- offsets, overlap and limits ----------------------------------------------------------------

TEST_CASE("case offsets-of-repeated-text (langchain-ai/langchain#21475)") {
  CHECK(ranges_of(rag::chunk_fixed(page("alpha beta alpha beta alpha beta alpha beta"),
                                   {.chunk_size = 4, .overlap = 2})) ==
        ranges{{0, 21}, {11, 32}, {22, 43}});
}

TEST_CASE("case overlap-not-below-size (mastra-ai/mastra#19213)") {
  for (const char* text : {"one two three four five six seven eight", ""}) {
    for (const std::size_t overlap : {4U, 5U}) {
      CHECK(error_of(rag::try_chunk_fixed(page(text), {.chunk_size = 4, .overlap = overlap})) ==
            "chunk_fixed: overlap " + std::to_string(overlap) + " must be below chunk_size 4");
    }
  }
}

TEST_CASE("case overlap-stalls-window (MemPalace/mempalace#2056)") {
  const chunks pieces =
      rag::chunk_fixed(page(repeated("abc\n", 50)), {.chunk_size = 12, .overlap = 11});
  REQUIRE(pieces.size() == 39);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    CHECK(pieces[i].range == rag::byte_range{i * 4, i * 4 + 47});
    CHECK(pieces[i].token_count == 12);
  }
}

TEST_CASE("case byte-tokens-cut-characters (feyninc/chonkie#629)") {
  const rag::document source = page(
      "Gr\xC3\xB6\xC3\x9F"
      "e f\xC3\xBCr \xC3\x96l \xF0\x9F\x91\x8D fertig");
  const rag::tokenizer counted{.count = [](std::string_view text) { return text.size(); },
                               .split = {}};
  const rag::tokenizer split{.count = {}, .split = [](std::string_view text) {
                               ranges out;
                               for (std::size_t i = 0; i < text.size(); ++i) {
                                 out.push_back({i, i + 1});
                               }
                               return out;
                             }};
  for (const rag::tokenizer& tokens : {counted, split}) {
    const chunks pieces = rag::chunk_fixed(source, {.chunk_size = 3, .tokens = tokens});
    for (const rag::chunk& piece : pieces) {
      const std::string_view text = rag::chunk_text(source, piece);
      CHECK(rag::is_valid_utf8(text));
      CHECK(piece.oversize == (text == "\xF0\x9F\x91\x8D"));
      CHECK((text.size() <= 3 || piece.oversize));
    }
    CHECK(letters_of(source, pieces) == letters_of(source));
  }
}

TEST_CASE("case clusters-cut (openclaw/openclaw#128619)") {
  const rag::document source =
      page("cafe\xCC\x81 " + std::string(family) + " " + std::string(flag) + " ok");
  const chunks pieces = rag::chunk_fixed(source, {.chunk_size = 2, .tokens = by_code_point()});
  CHECK(texts_of(source, pieces) ==
        strings{"ca", "f", "e\xCC\x81", std::string(family), std::string(flag), "ok"});
  CHECK(pieces[3].oversize);
}

TEST_CASE("case long-sentence-over-limit (feyninc/chonkie#170)") {
  const rag::document source = page(
      "Short one here. This second sentence has far too many words to fit into the small limit we "
      "set. Short end.");
  const chunks pieces = rag::chunk_packed(source, {.chunk_size = 6});
  for (const rag::chunk& piece : pieces) {
    CHECK(rag::count_words(rag::chunk_text(source, piece)) <= 6);
  }
  CHECK(letters_of(source, pieces) == letters_of(source));
}

TEST_CASE("case sums-of-counts (bzsanti/oxidizePdf#435)") {
  const auto count = [](std::string_view text) {
    const auto ends = std::count(text.begin(), text.end() - 1, '.');
    return rag::count_words(text) + static_cast<std::size_t>(ends);
  };
  const rag::document source = page("Aa bb. Cc dd. Ee ff. Gg hh.");
  CHECK(texts_of(source, rag::chunk_packed(
                             source, {.chunk_size = 7, .tokens = {.count = count, .split = {}}})) ==
        strings{"Aa bb. Cc dd.", "Ee ff. Gg hh."});
}

TEST_CASE("case fits-but-is-split (langchain-ai/langchain#9305)") {
  CHECK(ranges_of(rag::chunk_recursive(page("One.\n\nTwo.\n\nThree."),
                                       {.chunk_size = 100, .overlap = 10})) == ranges{{0, 18}});
}

TEST_CASE("case overlap-lifts-limit (isaacus-dev/semchunk 4.1.1, measured)") {
  const rag::document source = page("it tree\na\nit");
  const chunks pieces =
      rag::chunk_recursive(source, {.chunk_size = 10, .overlap = 2, .tokens = by_code_point()});
  REQUIRE(pieces.size() >= 2);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    CHECK(code_points(rag::chunk_text(source, pieces[i])) <= 10);
    if (i == 0) continue;
    CHECK(pieces[i].range.begin > pieces[i - 1].range.begin);
    CHECK(pieces[i].range.end > pieces[i - 1].range.end);
    CHECK(pieces[i - 1].range.end <= pieces[i].range.begin + 2);
  }
}

TEST_CASE("case minimum-above-size (chonkie-inc/chonkie 1.7.0, measured)") {
  const rag::document source = page("one two three four five six seven eight nine ten");
  CHECK(error_of(rag::try_chunk_recursive(
            source, {.chunk_size = 20, .min_chunk_size = 24, .tokens = by_code_point()})) ==
        "chunk_recursive: min_chunk_size 24 must be at most chunk_size 20");
  CHECK(texts_of(source, rag::chunk_recursive(source, {.chunk_size = 20,
                                                       .min_chunk_size = 10,
                                                       .tokens = by_code_point()})) ==
        strings{"one two three four", "five six seven eight", "nine ten"});
}

TEST_CASE("case size-zero (chonkie-inc/chonkie 1.7.0, measured)") {
  const std::string zero = ": chunk_size 0 must be at least 1";
  const rag::embedder model = scripted({{1, 0}, {1, 0}});
  for (const char* text : {"abc. def", ""}) {
    const rag::document source = page(text);
    CHECK(error_of(rag::try_chunk_fixed(source, {.chunk_size = 0})) == "chunk_fixed" + zero);
    CHECK(error_of(rag::try_chunk_sentences(source, {.chunk_size = 0})) ==
          "chunk_sentences" + zero);
    CHECK(error_of(rag::try_chunk_packed(source, {.chunk_size = 0})) == "chunk_packed" + zero);
    CHECK(error_of(rag::try_chunk_structure(source, {.chunk_size = 0})) ==
          "chunk_structure" + zero);
    CHECK(error_of(rag::try_chunk_recursive(source, {.chunk_size = 0})) ==
          "chunk_recursive" + zero);
    CHECK(error_of(rag::try_chunk_semantic(source, {.embed = model, .chunk_size = 0})) ==
          "chunk_semantic" + zero);
    CHECK(error_of(rag::try_chunk_parent_child(source, {.parent_size = 0})) ==
          "chunk_parent_child: parent_size 0 must be at least 1");
    CHECK(error_of(rag::try_chunk_parent_child(source, {.child_size = 0})) ==
          "chunk_parent_child: child_size 0 must be at least 1");
  }
}

TEST_CASE("case spaces-exhaust-stack (langchain-ai/langchain 1.1.3 and chonkie, measured)") {
  constexpr std::size_t n = 1048576;
  CHECK(ranges_of(rag::chunk_fixed(page(std::string(n, ' ') + "x"), {.chunk_size = 16})) ==
        ranges{{n, n + 1}});
}

TEST_CASE("case blank-chunk-inside-another (chonkie-inc/chonkie 1.7.0, measured)") {
  const rag::document source = page("a\n\nthe");
  CHECK(texts_of(source, rag::chunk_packed(
                             source, {.chunk_size = 3, .overlap = 2, .tokens = by_code_point()})) ==
        strings{"a", "the"});
}

// ---- Markdown -----------------------------------------------------------------------------------

TEST_CASE("case heading-in-fence (langchain-ai/langchain#10262)") {
  const rag::document source =
      page("# Setup\n\n```sh\n# not a heading\nmake\n```\n\n## Run\n\nGo.\n");
  CHECK(titles_of(source.text) == strings{"1 Setup", "2 Run"});
  CHECK(path_of(source, "# not a heading") == strings{"Setup"});
}

TEST_CASE("case unclosed-fence-loses-rest (langchain-ai/langchain#37966)") {
  const rag::document source = page("# T\n\nintro\n\n```py\nx = 1\n\n## Lost?\n\ncritical\n");
  CHECK(titles_of(source.text) == strings{"1 T"});
  CHECK(ranges_of(rag::chunk_structure(source)) == ranges{{0, source.text.size() - 1}});
}

TEST_CASE("case carriage-return-in-title (abhigyanpatwari/GitNexus#1469)") {
  const rag::document crlf = page("# One\r\n\r\nText.\r\n\r\n## Two\r\n\r\nMore.\r\n");
  const rag::document lf = page("# One\n\nText.\n\n## Two\n\nMore.\n");
  CHECK(titles_of(crlf.text) == strings{"1 One", "2 Two"});
  const chunks pieces = rag::chunk_structure(crlf);
  CHECK(texts_of(crlf, pieces) == strings{"# One\r\n\r\nText.", "## Two\r\n\r\nMore."});
  const chunks same = rag::chunk_structure(lf);
  REQUIRE(same.size() == pieces.size());
  for (std::size_t i = 0; i < same.size(); ++i) {
    CHECK(same[i].heading_path == pieces[i].heading_path);
    CHECK(same[i].id == pieces[i].id);
  }
}

TEST_CASE("case byte-order-mark-hides-heading (jgravelle/jdocmunch-mcp#53)") {
  const rag::document source = page("\xEF\xBB\xBF# First\n\ntext\n\n## Second\n\nmore\n");
  CHECK(titles_of(source.text) == strings{"1 First", "2 Second"});
  const chunks pieces = rag::chunk_structure(source);
  REQUIRE(pieces.size() == 2);
  CHECK(pieces[1].range.begin == 18);
  CHECK(pieces[1].heading_path == strings{"First", "Second"});
}

TEST_CASE("case front-matter-is-heading (docling-project/docling#4315)") {
  const rag::document source = page("---\ntitle: Demo\ntags: [a, b]\n---\n# Real\n\nBody.\n");
  CHECK(titles_of(source.text) == strings{"1 Real"});
  CHECK(path_of(source, "Body.") == strings{"Real"});
  CHECK(path_of(source, "title: Demo") == strings{"(not covered)"});
}

TEST_CASE("case heading-in-comment (docToolchain/dacli#214)") {
  CHECK(titles_of("# Doc\n\nBefore.\n\n<!--\n## Hidden\n\ntext\n-->\n\n## Shown <!-- todo -->\n\n"
                  "After.\n") == strings{"1 Doc", "2 Shown <!-- todo -->"});
}

TEST_CASE("case skipped-levels-in-path (run-llama/llama_index#17599)") {
  const rag::document source = page("# A\n\n### B\n\nb1\n\n### C\n\nc1\n\n## D\n\nd1\n");
  CHECK(path_of(source, "b1") == strings{"A", "B"});
  CHECK(path_of(source, "c1") == strings{"A", "C"});
  CHECK(path_of(source, "d1") == strings{"A", "D"});
}

TEST_CASE("case first-child-loses-parent (deepset-ai/haystack#11042)") {
  const rag::document source = page("# P\n\nown text\n\n## C1\n\none\n\n## C2\n\ntwo\n");
  CHECK(path_of(source, "own text") == strings{"P"});
  CHECK(path_of(source, "one") == strings{"P", "C1"});
  CHECK(path_of(source, "two") == strings{"P", "C2"});
}

TEST_CASE("case heading-parted-from-body (isaacus-dev/semchunk#14)") {
  const rag::document source =
      page("Alpha words one two three four.\n\n## Next part\n\nBeta words five six seven eight.\n");
  CHECK(texts_of(source, rag::chunk_recursive(source, {.chunk_size = 10})) ==
        strings{"Alpha words one two three four.",
                "## Next part\n\nBeta words five six seven eight."});
}

TEST_CASE("case lone-heading-chunk (open-webui/open-webui#19595)") {
  const rag::document source = page("# A\n\n## B\n\n## C\n\none line\n");
  const chunks pieces = rag::chunk_structure(source, {.chunk_size = 50, .min_chunk_size = 5});
  REQUIRE(pieces.size() == 1);
  CHECK(rag::chunk_text(source, pieces[0]) == "## B\n\n## C\n\none line");
  CHECK(pieces[0].heading_path == strings{"A", "C"});
}

TEST_CASE("case fence-in-comment (langchain-ai/langchain 1.1.3, measured)") {
  const rag::document source = page("# A\n\n<!--\n```\n-->\n\n# Real\n\nt7\n");
  CHECK(titles_of(source.text) == strings{"1 A", "1 Real"});
  CHECK(path_of(source, "t7") == strings{"Real"});
}

TEST_CASE("case indented-backticks-are-fence (run-llama/llama_index 0.14.25, measured)") {
  const rag::document source = page("Text:\n\n    ```\n    code\n\n# Real\n\nt7\n");
  CHECK(titles_of(source.text) == strings{"1 Real"});
  CHECK(path_of(source, "Text:") == strings{});
  CHECK(path_of(source, "t7") == strings{"Real"});
}

TEST_CASE("case heading-in-html (langchain-ai/langchain 1.1.3, LlamaIndex, Haystack, measured)") {
  const rag::document source =
      page("<pre>\na\n\n# in pre\n</pre>\n\n<div>\n# in html\n</div>\n\n# Real\n\nt\n");
  CHECK(titles_of(source.text) == strings{"1 Real"});
  CHECK(letters_of(source, rag::chunk_structure(source)) == letters_of(source));
}

TEST_CASE("case comment-in-front-matter (langchain-ai/langchain 1.1.3 and others, measured)") {
  const rag::document source = page("---\ntitle: x\n# comment\nk: v\n---\n\n# Real\n\nt7\n");
  CHECK(titles_of(source.text) == strings{"1 Real"});
  CHECK(path_of(source, "t7") == strings{"Real"});
}

TEST_CASE("case equal-titles-merge (langchain-ai/langchain 1.1.3, measured)") {
  const chunks pieces = rag::chunk_structure(page("# A\n\nfirst\n\n# A\n\nsecond\n"));
  REQUIRE(ranges_of(pieces) == ranges{{0, 10}, {12, 23}});
  CHECK(pieces[0].heading_path == strings{"A"});
  CHECK(pieces[1].heading_path == strings{"A"});
  CHECK(pieces[0].id != pieces[1].id);
}

TEST_CASE("case white-space-and-joiners-lost (langchain-ai/langchain 1.1.3, measured)") {
  const rag::document source =
      page("# A\n\nname\tqty\nbolt\t12\n\n\xE6\x9D\xB1\xE4\xBA\xAC\xE3\x80\x80\xE5\xA4\xA7 " +
           std::string(family) + " \xD9\x86\xD9\x85\xDB\x8C\xE2\x80\x8C\xD8\xAE\n");
  CHECK(texts_of(source, rag::chunk_structure(source)) ==
        strings{source.text.substr(0, source.text.size() - 1)});
}

TEST_CASE("case carriage-return-ends-line (langchain-ai/langchain 1.1.3 and others, measured)") {
  const rag::document source = page("# A\rtext\r\r# B\rmore\r");
  CHECK(titles_of(source.text) == strings{"1 A", "1 B"});
  CHECK(path_of(source, "text") == strings{"A"});
  CHECK(path_of(source, "more") == strings{"B"});
}

TEST_CASE("case line-end-cut-in-two (benbrandt/text-splitter 0.33.1, measured)") {
  const rag::document source = page("```\r\naaaa\r\nbbbb\r\ncccc\r\n```\r\n");
  const chunks pieces = rag::chunk_structure(source, {.chunk_size = 8, .tokens = by_code_point()});
  for (const rag::chunk& piece : pieces) {
    CHECK(code_points(rag::chunk_text(source, piece)) <= 8);
    CHECK_FALSE(rag::chunk_text(source, piece).ends_with('\r'));
    CHECK_FALSE(rag::chunk_text(source, piece).starts_with('\n'));
  }
  CHECK(letters_of(source, pieces) == letters_of(source));
}

// ---- sentences ----------------------------------------------------------------------------------

TEST_CASE("case latin-abbreviations (nltk/nltk#2376)") {
  CHECK(sentences_of("Use a cache, e.g. an LRU, i.e. drop the oldest. Kim et al. showed this in "
                     "2019. Done.") == strings{"Use a cache, e.g. an LRU, i.e. drop the oldest.",
                                               "Kim et al. showed this in 2019.", "Done."});
}

TEST_CASE("case no-space-between-sentences (microsoft/semantic-kernel#5490)") {
  const strings expected{
      "\xE4\xBB\x8A\xE6\x97\xA5\xE3\x81\xAF\xE6\x99\xB4\xE3\x82\x8C\xE3\x81\xA7\xE3\x81\x99\xE3\x80"
      "\x82",
      "\xE6\x98\x8E\xE6\x97\xA5\xE3\x81\xAF\xE9\x9B\xA8\xEF\xBC\x81",
      "\xE6\x9C\xAC\xE5\xBD\x93\xEF\xBC\x9F",
      "\xE3\x81\xAF\xE3\x81\x84\xE3\x80\x81\xE3\x81\x9D\xE3\x81\x86\xE3\x81\xA7\xE3\x81\x99\xE3\x80"
      "\x82"};
  CHECK(sentences_of(expected[0] + expected[1] + expected[2] + expected[3]) == expected);
}

TEST_CASE("case degree-and-name-with-mark (diasks2/pragmatic_segmenter#26)") {
  CHECK(sentences_of("He has Ph.D.-level training at Yahoo! in Ohio. Good.") ==
        strings{"He has Ph.D.-level training at Yahoo! in Ohio.", "Good."});
}

TEST_CASE("case lopsided-window (run-llama/llama_index#10947)") {
  strings windows;
  const rag::embedder model{.model = "m",
                            .embed = [&](std::span<const std::string_view> texts, rag::text_role) {
                              for (const std::string_view text : texts) windows.emplace_back(text);
                              return std::vector<std::vector<float>>(texts.size(), {1, 0});
                            }};
  static_cast<void>(rag::chunk_semantic(page("Ann ran. Bob sat. Cy sang. Di hid. Ed won."),
                                        {.embed = model, .window = 1}));
  CHECK(windows == strings{"Ann ran. Bob sat.", "Ann ran. Bob sat. Cy sang.",
                           "Bob sat. Cy sang. Di hid.", "Cy sang. Di hid. Ed won.",
                           "Di hid. Ed won."});
}

TEST_CASE("case no-break-space-before-stop (wikimedia/sentencex 1.0.32, measured)") {
  CHECK(sentences_of("Plan B\xC2\xA0. Next step.") == strings{"Plan B\xC2\xA0.", "Next step."});
}

TEST_CASE("case title-before-opening-word (wikimedia/sentencex 1.0.32, measured)") {
  CHECK(sentences_of("Mr. Will Smith met Dr. May Who. Prof. Will Hunting spoke.") ==
        strings{"Mr. Will Smith met Dr. May Who.", "Prof. Will Hunting spoke."});
}

TEST_CASE("case abbreviation-before-capital (wikimedia/sentencex 1.0.32 and pySBD, measured)") {
  CHECK(sentences_of("We use C++17, e.g. std::optional, etc. Most compilers, incl. g++ 7, have "
                     "it.") ==
        strings{"We use C++17, e.g. std::optional, etc.", "Most compilers, incl. g++ 7, have it."});
}

TEST_CASE("case code-span-and-address (microsoft/BlingFire 0.1.8, pySBD, ICU, measured)") {
  CHECK(sentences_of("Use `std::vector`. `std::list` is slower. See <https://example.org/a.b?c=d.> "
                     "for more.") == strings{"Use `std::vector`.", "`std::list` is slower.",
                                             "See <https://example.org/a.b?c=d.> for more."});
}

// ---- semantic, parent-child ---------------------------------------------------------------------

TEST_CASE("case vector-without-direction (HKUDS/LightRAG#3553)") {
  const rag::document source = page("Aa one. Bb two. Cc three. Dd four. Ee five.");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int run = 0; run < 3; ++run) {
    const auto zero = rag::semantic_cuts(
        source, {.embed = scripted({{1, 0}, {0, 0}, {1, 0}, {1, 0}, {1, 0}}), .window = 0});
    CHECK(zero.distances == std::vector<double>{1, 1, 0, 0});
    CHECK(zero.threshold <= 0.0);  // of the two distances that mean something
    CHECK(zero.chunks.size() == 3);

    const auto bad = rag::try_semantic_cuts(
        source, {.embed = scripted({{1, 0}, {0, 0}, {1, 0}, {nan, nan}, {1, 0}}), .window = 0});
    REQUIRE_FALSE(bad.ok());
    CHECK(bad.failure().code() == rag::errc::not_finite);
    CHECK(bad.failure().message().find("sentence 4 of 5 of 'doc'") != std::string::npos);
  }
}

TEST_CASE("case semantic-without-maximum (run-llama/llama_index#17098)") {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "Item " + std::to_string(i) + " is red. ";
  const rag::document source = page(text);
  const chunks pieces =
      rag::chunk_semantic(source, {.embed = scripted(std::vector<std::vector<float>>(60, {1, 0})),
                                   .window = 0,
                                   .threshold = 95.0,
                                   .chunk_size = 40});
  CHECK(pieces.size() == 6);
  for (const rag::chunk& piece : pieces) {
    CHECK(rag::count_words(rag::chunk_text(source, piece)) == 40);
    CHECK(rag::chunk_text(source, piece).starts_with("Item "));
    CHECK(rag::chunk_text(source, piece).ends_with("red."));
  }
  CHECK(letters_of(source, pieces) == letters_of(source));
}

TEST_CASE("case child-in-wrong-parent (dynamiq-ai/dynamiq#711)") {
  const rag::document source = page(repeated("Same line here. ", 12));
  const chunks made = rag::chunk_parent_child(source, {.parent_size = 12, .child_size = 6});
  REQUIRE(made.size() == 9);
  for (std::size_t i = 0; i < made.size(); i += 3) {
    CHECK(made[i].parent_id.empty());
    CHECK(made[i].range == rag::byte_range{i / 3 * 64, i / 3 * 64 + 63});
    for (std::size_t child = i + 1; child < i + 3; ++child) {
      CHECK(made[child].parent_id == made[i].id);
      CHECK(made[child].range.begin >= made[i].range.begin);
      CHECK(made[child].range.end <= made[i].range.end);
    }
    CHECK(letters_of(source, {made[i + 1], made[i + 2]}) == letters_of(source, {made[i]}));
  }
}

TEST_CASE("case offsets-in-parent (run-llama/llama_index 0.14.25 and Haystack, measured)") {
  const rag::document source =
      page("\n\nAa one. Bb two. Cc three. Dd four. Ee five. Ff six. Gg seven. Hh eight. ");
  const chunks made = rag::chunk_parent_child(source, {.parent_size = 8, .child_size = 4});
  strings children;
  std::vector<std::size_t> begins;
  for (const rag::chunk& piece : made) {
    if (piece.parent_id.empty()) continue;
    begins.push_back(piece.range.begin);
    children.emplace_back(rag::chunk_text(source, piece));
  }
  CHECK(begins == std::vector<std::size_t>{2, 18, 37, 54});
  CHECK(children == strings{"Aa one. Bb two.", "Cc three. Dd four.", "Ee five. Ff six.",
                            "Gg seven. Hh eight."});
}

// ---- what others do in quadratic time -----------------------------------------------------------

TEST_CASE("case far-paragraph-break (benbrandt/text-splitter#1177)") {
  watched_counter counter[2];
  for (std::size_t i = 0; i < 2; ++i) {
    const rag::document source =
        page(repeated("alpha beta gamma delta\n", 100000 * (i + 1)) + "\nTHE END.");
    const chunks pieces = rag::chunk_recursive(
        source, {.chunk_size = 64, .tokens = counter[i].tokens(rag::count_words)});
    CHECK(pieces.size() == 100000 * (i + 1) / 16 + 1);
  }
  CHECK(counter[1].calls * 10 <= counter[0].calls * 21);
  CHECK(counter[1].seen * 10 <= counter[0].seen * 21);
}

TEST_CASE("case one-long-word (benbrandt/text-splitter 0.33.1, measured)") {
  for (const char* unit : {"a", "\xE6\x97\xA5"}) {
    watched_counter counter[2];
    for (std::size_t i = 0; i < 2; ++i) {
      const std::size_t n = 500000 * (i + 1);
      const rag::document source = page(repeated(unit, n));
      const chunks pieces = rag::chunk_recursive(
          source, {.chunk_size = 1000, .tokens = counter[i].tokens(code_points)});
      REQUIRE(pieces.size() == n / 1000);
      const bool full = std::all_of(pieces.begin(), pieces.end(), [](const rag::chunk& piece) {
        return piece.token_count == 1000;
      });
      CHECK(full);
    }
    CHECK(counter[1].calls * 10 <= counter[0].calls * 21);
    CHECK(counter[1].seen * 10 <= counter[0].seen * 21);
  }
}

namespace {

/// Checks that sentences cover a text, with a number of looks that its length bounds.
void sentences_are_linear(const std::string& text) {
  ranges out;
  rag::detail::sentence_scanner scanner(text, {}, out);
  scanner.run({0, text.size()});
  CHECK(scanner.extra_work() <= 16 * text.size());
  const rag::document source = page(text);
  CHECK(letters_of(source, rag::chunk_sentences(source, {.chunk_size = text.size()})) ==
        letters_of(source));
}

}  // namespace

TEST_CASE("case quotes-and-brackets-backtrack (deepset-ai/haystack#9338)") {
  for (const std::size_t n : {100000U, 200000U}) {
    sentences_are_linear(repeated("\"", n) + repeated("(", n) + repeated(". ", n));
  }
}

TEST_CASE("case list-numbers-quadratic (nipunsadvilkar/pySBD 0.3.4, measured)") {
  for (const std::size_t n : {100000U, 200000U}) sentences_are_linear(repeated("1. 2. ", n));
}

}  // namespace chunking_cases_tests
