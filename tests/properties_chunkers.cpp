// Properties of every chunker over made and hard documents: ranges, limits, edges, coverage, ids.
// RAG_RETRIEVE_PROPERTY_RUNS sets the number of made documents (default 1500).

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <rag_retrieve.hpp>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "chunk_properties.hpp"
#include "made.hpp"

#if defined(RAG_RETRIEVE_TEST_CMARK)
#include <cmark.h>
#endif

namespace properties_chunkers_tests {

namespace rag = rag_retrieve;
using made::dice;
using namespace properties;

namespace {

// ---- made documents -----------------------------------------------------------------------------

constexpr std::string_view hostile_bits[] = {
    "a",
    "bc",
    "Word",
    "42",
    ".",
    ". ",
    "! ",
    "? ",
    " ",
    " ",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "\t",
    "\xC3\xA9",
    "e\xCC\x81",
    "\xCC\x81",
    " \xCC\x81",
    "\xE6\x97\xA5",
    "\xE6\x9C\xAC\xE3\x80\x82",
    "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7",
    "\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA",
    "\xF0\x9F\x87\xA9",
    "\xEA\xB0\x81",
    "\xE1\x84\x80",
    "\xE0\xB8\x81\xE0\xB8\xB3",
    "\xD8\x80",
    "\xC2\xA0",
    "\xE3\x80\x80",
    "\xE2\x80\xA8",
    "\xFF",
    "\xC3",
    "\xE2\x82",
    "\xEF\xBB\xBF",
    "# ",
    "## ",
    "> ",
    "- ",
    "1. ",
    "```",
    "~~~",
    "---",
    "===",
    "<!--",
    "-->",
    "<pre>",
    "</pre>",
    "|",
    "`",
    "[x](y)",
    "\0x",
    "\"",
    "("};

constexpr std::string_view markdown_lines[] = {"# Alpha",
                                               "# Alpha",
                                               "## Beta two",
                                               "### Gamma",
                                               "#### Delta",
                                               "###### Deep ##",
                                               "#",
                                               "## ",
                                               "####### seven",
                                               "#no",
                                               "    # code",
                                               "   ## three in",
                                               "\t# tab",
                                               "Text line one.",
                                               "More text here. And a second sentence!",
                                               "wrapped words go on and on",
                                               "",
                                               "",
                                               "",
                                               "===",
                                               "---",
                                               "--- ",
                                               "- - -",
                                               "***",
                                               "- item",
                                               "- # in item",
                                               "  inside item",
                                               "    deeper",
                                               "  ---",
                                               "  ===",
                                               "1. one",
                                               "7. seven",
                                               "2) two",
                                               "-",
                                               "*",
                                               "+ plus",
                                               "> quote",
                                               "> # in quote",
                                               ">",
                                               ">> deep",
                                               "> - both",
                                               "```",
                                               "```sh",
                                               "````",
                                               "~~~",
                                               "~~~~ x",
                                               "   ```",
                                               "    ```",
                                               "- ```",
                                               "> ```",
                                               "<!-- c",
                                               "-->",
                                               "<!-- x --> y",
                                               "<div>",
                                               "</div>",
                                               "<pre>",
                                               "</pre>",
                                               "<span class=\"a\">",
                                               "</span>",
                                               "<b>bold</b> text",
                                               "<?php",
                                               "?>",
                                               "<!X",
                                               ">",
                                               "<![CDATA[",
                                               "]]>",
                                               "<script>",
                                               "</SCRIPT> x",
                                               "<a href='u'",
                                               "<hr/>",
                                               "| a | b |",
                                               "|---|---|",
                                               "| 1 | 2 |",
                                               "  ",
                                               "\t",
                                               "\tx",
                                               "* * *",
                                               "_ _ _",
                                               "=",
                                               "-\ttab",
                                               "-     far",
                                               "10. ten",
                                               "  - two in",
                                               "     - five in",
                                               "# C#",
                                               "# x #y",
                                               "## Shown <!-- t -->",
                                               "Setext",
                                               "two lines",
                                               "\\# escaped",
                                               "&amp;",
                                               "word\\",
                                               "1986. A year",
                                               "+",
                                               "  > q",
                                               "> ",
                                               "0. zero",
                                               "1) first"};

std::string made_document(std::uint64_t seed) {
  dice roll(seed);
  std::string text;
  const std::size_t kind = roll.below(4);
  const std::size_t count = roll.below(kind == 3 ? 120 : 60);
  constexpr std::string_view ends[] = {"\n", "\r\n", "\r"};
  const std::string_view end = ends[roll.below(8) < 6 ? 0 : roll.below(3)];
  for (std::size_t i = 0; i < count; ++i) {
    if (kind == 0) {
      text += roll.of(hostile_bits);
    } else if (kind == 1) {
      text += static_cast<char>(roll.below(256));
    } else {
      text += roll.of(markdown_lines);
      if (kind == 3 && roll.below(6) == 0) text += roll.of(hostile_bits);
      text += end;
    }
  }
  return text;
}

// ---- the properties ----------------------------------------------------------------------------

void report(const std::string& fault, const rag::document& page, const trial& t, bool& sound) {
  if (fault.empty()) return;
  sound = false;
  std::string hex;
  for (char c : page.text.substr(0, 300)) {
    constexpr char digits[] = "0123456789ABCDEF";
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F && c != '\\') {
      hex += c;
    } else {
      hex += "\\x";
      hex += digits[byte >> 4];
      hex += digits[byte & 15];
    }
  }
  const std::string what = std::string(t.chunker) + ", " + std::string(t.counter) + ", size " +
                           std::to_string(t.size) + ", overlap " + std::to_string(t.overlap) +
                           ": " + fault + "\n  " + page.id + ": " + hex;
  FAIL_CHECK(what);
}

void examine(const rag::result<std::vector<rag::chunk>>& made, const rag::document& page,
             const trial& t, const std::vector<bool>& edges, bool& sound) {
  std::string fault;
  if (!made) {
    fault = made.failure().message();
  } else {
    fault = fault_in_chunks(made.value(), page, t, edges);
    if (fault.empty()) fault = fault_in_cover(made.value(), page, t);
  }
  report(fault, page, t, sound);
}

bool examine_all(const rag::document& page, const named_tokenizer& counter, dice& roll) {
  constexpr std::size_t sizes[] = {1, 2, 3, 5, 8, 12, 20, 40, 80, 200, 600, 2000};
  trial t{.chunker = {}, .counter = counter.name, .tokens = counter.tokens};
  const auto edges = grapheme_edges(page.text);
  bool sound = true;
  t.size = sizes[roll.below(std::size(sizes))];
  const std::size_t overlap = roll.below(3) == 0 ? roll.below(t.size) : 0;
  const std::size_t least = roll.below(2) == 0 ? roll.below(t.size + 1) : 0;
  const std::size_t level = 1 + roll.below(6);
  const rag::sentence_options lines{.abbreviations = {},
                                    .newline_ends_sentence = roll.below(4) == 0};

  t.chunker = "sentences";
  examine(rag::try_chunk_sentences(page,
                                   {.chunk_size = t.size, .sentences = lines, .tokens = t.tokens}),
          page, t, edges, sound);
  t.chunker = "structure", t.sections = true;
  examine(rag::try_chunk_structure(page, {.max_heading_level = level,
                                          .chunk_size = t.size,
                                          .min_chunk_size = least,
                                          .sentences = lines,
                                          .tokens = t.tokens}),
          page, t, edges, sound);
  t.chunker = "recursive", t.overlap = overlap;
  examine(rag::try_chunk_recursive(page, {.chunk_size = t.size,
                                          .overlap = overlap,
                                          .min_chunk_size = least,
                                          .max_heading_level = level,
                                          .sentences = lines,
                                          .tokens = t.tokens}),
          page, t, edges, sound);
  t.chunker = "fixed", t.sections = false;
  examine(
      rag::try_chunk_fixed(page, {.chunk_size = t.size, .overlap = overlap, .tokens = t.tokens}),
      page, t, edges, sound);
  t.chunker = "packed";
  examine(
      rag::try_chunk_packed(
          page, {.chunk_size = t.size, .overlap = overlap, .sentences = lines, .tokens = t.tokens}),
      page, t, edges, sound);
  t.chunker = "semantic", t.overlap = 0;
  const auto kind = static_cast<rag::semantic_threshold>(roll.below(5));
  constexpr double thresholds[][3] = {
      {0, 0.35, 1.9}, {0, 50, 95}, {0, 1, 3}, {0, 1, 1.5}, {0, 5, 95}};
  examine(rag::try_chunk_semantic(
              page, {.embed = {.model = "rough", .batch_size = 7, .embed = embed_roughly},
                     .window = roll.below(3),
                     .threshold_kind = kind,
                     .threshold = thresholds[static_cast<std::size_t>(kind)][roll.below(3)],
                     .chunk_size = t.size,
                     .min_chunk_size = least,
                     .sentences = lines,
                     .tokens = t.tokens}),
          page, t, edges, sound);
  t.chunker = "parent-child", t.sections = true;
  const rag::parent_child_options family{.parent_size = t.size + 1 + roll.below(3 * t.size),
                                         .child_size = t.size,
                                         .max_heading_level = level,
                                         .sentences = lines,
                                         .tokens = t.tokens};
  report(fault_in_families(page, family, t, edges), page, t, sound);
  t.chunker = "whole", t.sections = false, t.size = static_cast<std::size_t>(-1);
  examine(rag::try_chunk_whole(page, {.tokens = t.tokens}), page, t, edges, sound);
  return sound;
}

std::vector<std::filesystem::path> hard_documents() {
  std::vector<std::filesystem::path> files;
  const char* folder = std::getenv("RAG_RETRIEVE_DATASETS");
  if (folder == nullptr) return files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(folder) / "nasty")) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

TEST_CASE("chunkers: ranges, limits, edges, cover and ids hold for every made document") {
  const auto counters = tokenizers();
  std::size_t faults = 0;
  for (std::uint64_t seed = 0; seed < made::property_runs(1500) && faults < 5; ++seed) {
    dice roll(seed * 2 + 1);
    const rag::document page{.id = "made-" + std::to_string(seed),
                             .title = seed % 3 == 0 ? "A title" : "",
                             .text = made_document(seed),
                             .revision = 3};
    if (!examine_all(page, counters[roll.below(counters.size())], roll)) ++faults;
  }
}

TEST_CASE("chunkers: empty headings at the end are covered or in a path, whatever fits") {
  for (std::size_t size = 4; size < 90; ++size) {
    const rag::document page{
        .id = "d",
        .text = "# A\n\nText.\n\n# " + std::string(60, 'B') + "\n## C\n# Dd\n## E\n### F\n## G\n"};
    trial t{.chunker = "recursive", .counter = "bytes", .tokens = {count_bytes, {}}};
    t.size = size;
    t.sections = true;
    bool sound = true;
    examine(rag::try_chunk_recursive(page, {.chunk_size = size, .tokens = t.tokens}), page, t,
            grapheme_edges(page.text), sound);
    examine(rag::try_chunk_structure(page, {.chunk_size = size, .tokens = t.tokens}), page, t,
            grapheme_edges(page.text), sound);
    CHECK(sound);
  }
}

TEST_CASE("chunkers: the largest size there is names chunks as any other") {
  const std::size_t most = static_cast<std::size_t>(-1);
  const rag::document page{.id = "d", .text = "# A\n\nOne. Two.\n\n## B\n\nThree.\n"};
  const auto sections = rag::chunk_structure(page, {.chunk_size = most});
  REQUIRE(sections.size() == 2);
  CHECK(sections[0].id == "d#a");
  CHECK(sections[1].id == "d#b");
  CHECK(rag::chunk_sentences(page, {.chunk_size = most}).back().id == "d#~5");
  CHECK(rag::chunk_whole(page).front().id == "d");
}

TEST_CASE("chunkers: a table is one whatever white space ends its last line") {
  for (const std::string end : {"", "\v", "\f\n", "\xC2\xA0", "\xE2\x80\xA8\n\nText."}) {
    const rag::document page{.id = "d", .text = "| a b c d | e |\n|---|---|" + end};
    dice roll(end.size());
    for (int round = 0; round < 20; ++round) {
      CHECK(examine_all(page, tokenizers()[0], roll));
      CHECK(examine_all(page, tokenizers()[1], roll));
    }
  }
}

TEST_CASE("chunkers: the same for hard documents of the world") {
  const auto files = hard_documents();
  if (files.empty()) MESSAGE("skipped: RAG_RETRIEVE_DATASETS is not set");
  const auto counters = tokenizers();
  for (const auto& file : files) {
    const rag::document page{.id = file.filename().string(), .text = bytes_of(file)};
    dice roll(page.text.size());
    for (const named_tokenizer& counter : counters) {
      for (int repeat = 0; repeat < 2; ++repeat) CHECK(examine_all(page, counter, roll));
    }
  }
}

TEST_CASE("chunkers: the same input gives the same chunks") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const rag::document page{.id = "d", .text = made_document(seed)};
    const auto first = rag::chunk_recursive(page, {.chunk_size = 20, .overlap = 5});
    const auto again = rag::chunk_recursive(page, {.chunk_size = 20, .overlap = 5});
    REQUIRE(first.size() == again.size());
    for (std::size_t i = 0; i < first.size(); ++i) {
      CHECK(first[i].id == again[i].id);
      CHECK(first[i].range == again[i].range);
    }
  }
}

TEST_CASE("chunkers: a counter that contradicts itself neither hangs nor breaks the limit") {
  const std::vector<rag::token_counter> counters = {
      [](std::string_view) { return std::size_t{0}; },
      [](std::string_view) { return std::size_t{1000000}; },
      [](std::string_view text) { return 5000 - (std::min)(text.size(), std::size_t{5000}); },
      [](std::string_view text) { return text.size() % 7; },
      [n = std::size_t{0}](std::string_view) mutable { return ++n % 5; }};
  for (const rag::token_counter& counter : counters) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      const rag::document page{.id = "d", .text = made_document(seed)};
      const rag::tokenizer tokens{.count = counter, .split = {}};
      const auto look = [&](const rag::result<std::vector<rag::chunk>>& made) {
        if (!made) {
          CHECK(made.failure().code() == rag::errc::bad_counter);
          return;
        }
        for (const rag::chunk& piece : made.value()) {
          CHECK((piece.token_count <= 3 || piece.oversize));
        }
      };
      look(rag::try_chunk_fixed(page, {.chunk_size = 3, .overlap = 2, .tokens = tokens}));
      look(rag::try_chunk_packed(page, {.chunk_size = 3, .overlap = 2, .tokens = tokens}));
      look(rag::try_chunk_recursive(
          page, {.chunk_size = 3, .overlap = 2, .min_chunk_size = 2, .tokens = tokens}));
      look(rag::try_chunk_semantic(page, {.embed = {.model = "rough", .embed = embed_roughly},
                                          .chunk_size = 3,
                                          .min_chunk_size = 2,
                                          .tokens = tokens}));
      look(
          rag::try_chunk_parent_child(page, {.parent_size = 3, .child_size = 2, .tokens = tokens}));
    }
  }
}

#if defined(RAG_RETRIEVE_TEST_CMARK)

namespace {

struct seen_heading {
  std::size_t level = 0;
  std::size_t first_line = 0;
  std::string title;
};

// The visible text of a heading; empty where it holds markup whose source says more.
std::string plain_text(cmark_node* heading) {
  std::string text;
  for (cmark_node* node = cmark_node_first_child(heading); node; node = cmark_node_next(node)) {
    const cmark_node_type type = cmark_node_get_type(node);
    if (type == CMARK_NODE_TEXT) {
      text += cmark_node_get_literal(node);
    } else if (type == CMARK_NODE_SOFTBREAK) {
      text += ' ';
    } else {
      return {};
    }
  }
  return text;
}

std::vector<seen_heading> by_cmark(const std::string& text) {
  std::vector<seen_heading> headings;
  cmark_node* root = cmark_parse_document(text.data(), text.size(), CMARK_OPT_DEFAULT);
  for (cmark_node* node = cmark_node_first_child(root); node; node = cmark_node_next(node)) {
    if (cmark_node_get_type(node) != CMARK_NODE_HEADING) continue;
    headings.push_back({static_cast<std::size_t>(cmark_node_get_heading_level(node)),
                        static_cast<std::size_t>(cmark_node_get_start_line(node)),
                        plain_text(node)});
  }
  cmark_node_free(root);
  return headings;
}

std::size_t line_number(std::string_view text, std::size_t at) {
  std::size_t number = 1;
  for (std::size_t i = 0; i < at; i = rag::line_at(text, i).next) {
    if (rag::line_at(text, i).next <= at) ++number;
  }
  return number;
}

bool agrees(const std::string& text, const std::string& name) {
  const auto theirs = by_cmark(text);
  const auto ours = rag::markdown_headings(text);
  std::string difference;
  if (ours.size() != theirs.size()) {
    difference = std::to_string(ours.size()) + " headings, cmark " + std::to_string(theirs.size());
  }
  for (std::size_t i = 0; i < ours.size() && i < theirs.size() && difference.empty(); ++i) {
    const std::size_t line = line_number(text, ours[i].lines.begin);
    const bool same_title = theirs[i].title.empty() || theirs[i].title == ours[i].title ||
                            ours[i].title.find_first_of("\\&\"'") != std::string::npos ||
                            !rag::is_valid_utf8(ours[i].title);
    if (ours[i].level != theirs[i].level || line != theirs[i].first_line || !same_title) {
      difference = "line " + std::to_string(line) + " level " + std::to_string(ours[i].level) +
                   " '" + ours[i].title + "', cmark line " + std::to_string(theirs[i].first_line) +
                   " level " + std::to_string(theirs[i].level) + " '" + theirs[i].title + "'";
    }
  }
  if (difference.empty()) return true;
  const std::string what = name + ": " + difference + "\n" + text.substr(0, 600);
  FAIL_CHECK(what);
  return false;
}

}  // namespace

TEST_CASE("headings: equal to cmark's on made documents") {
  std::size_t faults = 0;
  for (std::uint64_t seed = 0; seed < made::property_runs(1500) * 4 && faults < 5; ++seed) {
    dice roll(seed);
    std::string text = "x\n\n";  // no front matter
    for (std::size_t i = roll.below(14); i > 0; --i) {
      for (std::size_t j = roll.below(5); j > 3; --j) text += roll.below(2) ? "> " : "  ";
      text += roll.of(markdown_lines);
      text += '\n';
    }
    if (!agrees(text, "seed " + std::to_string(seed))) ++faults;
  }
}

TEST_CASE("headings: equal to cmark's on hard documents of the world") {
  const auto files = hard_documents();
  if (files.empty()) MESSAGE("skipped: RAG_RETRIEVE_DATASETS is not set");
  for (const auto& file : files) {
    std::string text = bytes_of(file);
    if (rag::detail::after_front_matter(text) > 3)
      text = text.substr(rag::detail::after_front_matter(text));
    CHECK(agrees(text, file.filename().string()));
  }
}

#endif

}  // namespace properties_chunkers_tests
