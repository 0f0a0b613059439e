// Section 7: what belongs together stays together where the limit allows, chunker by chunker. The
// rest of what the chunkers promise, and where it is tested:
//
//   fences, lists, tables whole, else by lines, items, rows   here
//   a table's header row above its later parts                here
//   a heading with its first text                             here; chunking_cases.cpp
//   an indivisible grapheme as the last resort                here; properties_chunkers.cpp
//   small neighbours in one section merge, others not         here; chunkers.cpp "structure: small
//   ..." semantic: window                      semantic.cpp "semantic: windows are slices of the
//   ..." semantic: maximum                     semantic.cpp "semantic: what is too long is parted
//   ..." semantic: minimum                     semantic.cpp "semantic: what is too short joins ..."
//   semantic: 0, 1 and 2 sentences        semantic.cpp "semantic: no sentence and one ask no ..."
//   semantic: equal distances             semantic.cpp "semantic: equal distances make no cut ...",
//                                         "semantic: equal distances say nothing, so ..."
//   semantic: zero and non-finite vectors semantic.cpp "semantic: distances of a zero vector ...",
//                                         "semantic: a vector that is not finite is an error ..."

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <rag_retrieve.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chunk_shapes_tests {

namespace chunk_shapes {

namespace rag = rag_retrieve;
using strings = std::vector<std::string>;
using chunks = std::vector<rag::chunk>;

inline rag::document page(std::string text) { return {.id = "doc", .text = std::move(text)}; }

/// The chunkers that know blocks, at a size; of parent-child the children, or parents without any.
struct named_chunker {
  std::string name;
  std::function<chunks(const rag::document&, std::size_t)> cut;
};
inline std::vector<named_chunker> block_chunkers() {
  return {
      {"packed", [](const rag::document& source,
                    std::size_t size) { return rag::chunk_packed(source, {.chunk_size = size}); }},
      {"structure",
       [](const rag::document& source, std::size_t size) {
         return rag::chunk_structure(source, {.chunk_size = size});
       }},
      {"recursive",
       [](const rag::document& source, std::size_t size) {
         return rag::chunk_recursive(source, {.chunk_size = size});
       }},
      {"parent-child", [](const rag::document& source, std::size_t size) {
         const chunks all =
             rag::chunk_parent_child(source, {.parent_size = 4 * size, .child_size = size});
         chunks out;
         for (const rag::chunk& piece : all) {
           const bool has_children =
               std::any_of(all.begin(), all.end(),
                           [&](const rag::chunk& each) { return each.parent_id == piece.id; });
           if (!has_children) out.push_back(piece);
         }
         return out;
       }}};
}

inline strings texts_of(const rag::document& source, const chunks& pieces) {
  strings out;
  for (const rag::chunk& piece : pieces) out.emplace_back(rag::chunk_text(source, piece));
  return out;
}
inline strings search_texts_of(const rag::document& source, const chunks& pieces) {
  strings out;
  for (const rag::chunk& piece : pieces) out.push_back(rag::search_text(source, piece));
  return out;
}

/// The number of chunks that hold the whole of a text.
inline std::size_t holding(const rag::document& source, const chunks& pieces,
                           std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(pieces.begin(), pieces.end(), [&](const rag::chunk& piece) {
        return rag::chunk_text(source, piece).find(text) != std::string_view::npos;
      }));
}

constexpr std::string_view fence = "```py\na = 1. B = 2.\n\nc = 3\n```";          // 11 words
constexpr std::string_view list = "- One two. Three.\n- Four\n  five\n- Six";     // 9 words
constexpr std::string_view table = "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |";  // 16 words

}  // namespace chunk_shapes

using namespace chunk_shapes;

TEST_CASE("shapes: fences, lists and tables stay whole where they fit, whatever stands before") {
  for (const std::string_view block : {fence, list, table}) {
    for (std::size_t before = 0; before < 20; ++before) {
      std::string text;
      for (std::size_t i = 0; i < before; ++i) text += "Word here. ";
      const rag::document source = page(text + "\n\n" + std::string(block) + "\n\nThe end. Of it.");
      for (const named_chunker& with : block_chunkers()) {
        const chunks pieces = with.cut(source, 18);
        CHECK_MESSAGE(holding(source, pieces, block) == 1, with.name, " after ", before, ": ",
                      block);
        for (const rag::chunk& piece : pieces) CHECK(piece.token_count <= 18);
      }
    }
  }
}

TEST_CASE("shapes: a fence too long is cut between lines, a list between items") {
  for (const named_chunker& with : block_chunkers()) {
    const rag::document code = page(std::string(fence));
    for (const std::string& text : texts_of(code, with.cut(code, 8))) {
      CHECK_MESSAGE((text.starts_with("```") || text.starts_with("c = 3")), with.name, ": ", text);
    }
    const rag::document items = page(std::string(list));
    CHECK_MESSAGE((texts_of(items, with.cut(items, 6)) ==
                   strings{"- One two. Three.", "- Four\n  five\n- Six"}),
                  with.name);
    CHECK_MESSAGE((texts_of(items, with.cut(items, 4)) ==
                   strings{"- One two. Three.", "- Four\n  five", "- Six"}),
                  with.name);
  }
}

TEST_CASE("shapes: later parts of a table have its header row above them, within the limit") {
  const rag::document source = page(std::string(table) + "\n| 5 | 6 |\n| 7 | 8 |");
  for (const named_chunker& with : block_chunkers()) {
    const chunks pieces = with.cut(source, 16);
    CHECK_MESSAGE(
        (search_texts_of(source, pieces) == strings{"| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |",
                                                    "| a | b |\n\n| 5 | 6 |\n| 7 | 8 |"}),
        with.name);
    CHECK(texts_of(source, pieces)[1] == "| 5 | 6 |\n| 7 | 8 |");  // a slice, as always
    CHECK(pieces[1].token_count == 15);
    CHECK(pieces[1].heading_path.empty());
  }
  const rag::document under = page("# Sizes\n\n" + std::string(table) + "\n| 5 | 6 |\n\nAfter it.");
  CHECK(search_texts_of(under, rag::chunk_recursive(under, {.chunk_size = 14})) ==
        strings{"Sizes\n\n| a | b |\n|---|---|\n| 1 | 2 |", "Sizes\n\n| a | b |\n\n| 3 | 4 |",
                "Sizes\n\n| a | b |\n\n| 5 | 6 |", "Sizes\n\nAfter it."});
}

TEST_CASE("shapes: a table right below a line of text is a table too") {
  const rag::document source = page("# H\nThe sizes\nare these:\r\n" + std::string(table) +
                                    "\n| 5 | 6 |\n\n---\n| x | y |\n|---|---|\n| 1 | 2 |");
  for (const named_chunker& with : block_chunkers()) {
    const strings texts = search_texts_of(source, with.cut(source, 18));
    const auto has = [&](std::string_view part) {
      return std::any_of(texts.begin(), texts.end(),
                         [&](const std::string& text) { return text.ends_with(part); });
    };
    CHECK_MESSAGE(has("are these:"), with.name);
    CHECK_MESSAGE(has("| a | b |\n\n| 5 | 6 |"), with.name);
  }
  const rag::document rule_first = page("|---|---|\nText | of it.\n|---|---|");
  CHECK(texts_of(rule_first, rag::chunk_recursive(rule_first, {.chunk_size = 9})) ==
        strings{rule_first.text});
}

TEST_CASE(
    "shapes: a row without room below the header row goes without it, a longer one in parts") {
  const rag::document source = page(
      "| a | b |\n|---|---|\n| 1 | 2 |\n| one two three | four |\n"
      "| 5 | 6 |\n| 1 2 3 4 5 6 7 8 9 | x |");
  CHECK(search_texts_of(source, rag::chunk_structure(source, {.chunk_size = 10})) ==
        strings{"| a | b |\n|---|---|", "| a | b |\n\n| 1 | 2 |", "| one two three | four |",
                "| a | b |\n\n| 5 | 6 |", "| 1 2 3 4 5 6 7 8 9", "| x |"});
  // A header row that is too long itself is cut, and stands above nothing.
  const rag::document wide = page("| a b c d e f g | h |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |");
  for (const rag::chunk& piece : rag::chunk_structure(wide, {.chunk_size = 6})) {
    CHECK(piece.token_count <= 6);
    CHECK(piece.heading.empty());
  }
}

TEST_CASE("shapes: a heading stands with the text below it, and is never last where that fits") {
  for (std::size_t before = 0; before < 16; ++before) {
    std::string text;
    for (std::size_t i = 0; i < before; ++i) text += "Word here. ";
    for (const std::string heading : {"### Next", "Next\n===="}) {
      const rag::document source =
          page(text + "\n\n" + heading + "\n\nThe text below. More of it.");
      for (const named_chunker& with : block_chunkers()) {
        CHECK_MESSAGE(holding(source, with.cut(source, 12), heading + "\n\nThe text below.") == 1,
                      with.name, " after ", before, ": ", heading);
      }
    }
  }
  const rag::document code = page("One two three.\n\n# Setup\n\n```\na b\n```");
  CHECK(texts_of(code, rag::chunk_packed(code, {.chunk_size = 7})) ==
        strings{"One two three.", "# Setup\n\n```\na b\n```"});
  const rag::document deep = page("# A\n\none\n\n## B\n\n| a |\n|--|\n| 1 |\n| 2 |\n");
  CHECK(search_texts_of(deep,
                        rag::chunk_structure(deep, {.max_heading_level = 1, .chunk_size = 9})) ==
        strings{"A\n\none", "A\n\n## B\n\n| a |\n|--|", "A\n\n| a |\n\n| 1 |",
                "A\n\n| a |\n\n| 2 |"});
}

TEST_CASE("shapes: packed repeats whole units, and no more than the overlap") {
  const rag::document source = page("Aa bb.\n\n- cc\n- dd\n\nEe ff. Gg hh ii jj kk.");
  CHECK(texts_of(source, rag::chunk_packed(source, {.chunk_size = 8, .overlap = 2})) ==
        strings{"Aa bb.\n\n- cc\n- dd\n\nEe ff.", "Ee ff. Gg hh ii jj kk."});
  CHECK(texts_of(source, rag::chunk_packed(source, {.chunk_size = 6, .overlap = 4})) ==
        strings{"Aa bb.\n\n- cc\n- dd", "- cc\n- dd\n\nEe ff.", "Gg hh ii jj kk."});
}

TEST_CASE("shapes: the last resort cuts between graphemes, in every block") {
  const std::string accent = "e\xCC\x81";
  std::string word;
  for (int i = 0; i < 9; ++i) word += accent;
  const rag::tokenizer bytes{.count = [](std::string_view text) { return text.size(); },
                             .split = {}};
  for (const std::string& text : {word, "| " + word + " |\n|--|\n| " + word + " |", "- " + word,
                                  "```\n" + word + "\n```", "# " + word + "\n\n" + word}) {
    const rag::document source = page(text);
    for (const chunks& pieces :
         {rag::chunk_packed(source, {.chunk_size = 8, .tokens = bytes}),
          rag::chunk_structure(source, {.chunk_size = 8, .tokens = bytes}),
          rag::chunk_recursive(source, {.chunk_size = 8, .overlap = 3, .tokens = bytes})}) {
      for (const rag::chunk& piece : pieces) {
        const std::string_view part = rag::chunk_text(source, piece);
        CHECK(part.size() <= 8);
        CHECK_FALSE(part.starts_with('\xCC'));
        const std::size_t next = piece.range.end;
        CHECK((next == text.size() || text[next] != '\xCC'));
      }
    }
  }
}

TEST_CASE(
    "shapes: small parts of a table or list merge with those beside them, not over sections") {
  const rag::document source =
      page("# A\n\n- one\n- two\n- three\n\n# B\n\n- four\n- five\n- six seven eight\n");
  const chunks pieces = rag::chunk_structure(source, {.chunk_size = 8, .min_chunk_size = 4});
  CHECK(texts_of(source, pieces) ==
        strings{"# A\n\n- one\n- two\n- three", "# B\n\n- four\n- five", "- six seven eight"});
}

}  // namespace chunk_shapes_tests
