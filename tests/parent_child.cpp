// Section 7: parents to hand out, and in each the children to search.

#include <doctest/doctest.h>

#include <algorithm>
#include <rag_retrieve.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "made.hpp"

namespace parent_child_tests {

namespace parent_child_test {

namespace rag = rag_retrieve;
using strings = std::vector<std::string>;
using chunks = std::vector<rag::chunk>;

inline rag::document page(std::string text) {
  rag::document made;
  made.id = "doc";
  made.text = std::move(text);
  return made;
}

using made::repeated;

/// "doc#a" for a parent, "doc#a > doc#b" for a child.
inline strings family(const chunks& pieces) {
  strings out;
  for (const rag::chunk& piece : pieces) {
    out.push_back((piece.parent_id.empty() ? "" : piece.parent_id + " > ") + piece.id);
  }
  return out;
}

inline std::vector<std::size_t> begins(const chunks& pieces, bool children) {
  std::vector<std::size_t> out;
  for (const rag::chunk& piece : pieces) {
    if (piece.parent_id.empty() != children) out.push_back(piece.range.begin);
  }
  return out;
}
using numbers = std::vector<std::size_t>;

inline std::string refusal(const rag::parent_child_options& options) {
  const auto made = rag::try_chunk_parent_child(page(""), options);
  if (made) return "accepted";
  CHECK(made.failure().code() == rag::errc::invalid_argument);
  return made.failure().message();
}

}  // namespace parent_child_test

using namespace parent_child_test;

TEST_CASE("parent-child: one parent for a page that fits, a child for each section") {
  const rag::document source = page("# Page\n\n## A\n\nOne.\n\n## B\n\nTwo.\n");
  const chunks made = rag::chunk_parent_child(source);
  CHECK(family(made) == strings{"doc#page", "doc#page > doc#a", "doc#page > doc#b"});
  REQUIRE(made.size() == 3);
  CHECK(made[0].range == rag::byte_range{0, 30});
  CHECK(made[1].range == rag::byte_range{8, 18});
  CHECK(made[2].range == rag::byte_range{20, 30});
  CHECK(made[0].heading_path == strings{"Page"});
  CHECK(made[1].heading_path == strings{"Page", "A"});
  CHECK(made[1].heading == "A");
  CHECK(rag::search_text(source, made[2]) == "B\n\nTwo.");
}

TEST_CASE("parent-child: sections are parents where the page does not fit") {
  const rag::document source =
      page("# Page\n\nHello there.\n\n## A\n\nAa aa.\n\n### Deep\n\nBb bb.\n\n## B\n\nCc cc cc.\n");
  const chunks made = rag::chunk_parent_child(source, {.parent_size = 8, .child_size = 5});
  CHECK(family(made) ==
        strings{"doc#page", "doc#a", "doc#a > doc#a~2", "doc#a > doc#deep", "doc#b"});
}

TEST_CASE("parent-child: a parent of one piece stands for itself, without children") {
  CHECK(family(rag::chunk_parent_child(page("One paragraph."))) == strings{"doc#"});
  CHECK(family(rag::chunk_parent_child(page("# A\n\nText.\n"))) == strings{"doc#a"});
  CHECK(family(rag::chunk_parent_child(page("# A\n\n## B\n\nText.\n"))) == strings{"doc#a"});
  CHECK(rag::chunk_parent_child(page(" \n ")).empty());
}

TEST_CASE("parent-child: repeated text has its own offsets, and children cover their parent") {
  const rag::document source = page(repeated("Same line here. ", 12));
  const chunks made = rag::chunk_parent_child(source, {.parent_size = 12, .child_size = 6});
  CHECK(begins(made, false) == numbers{0, 64, 128});
  CHECK(begins(made, true) == numbers{0, 32, 64, 96, 128, 160});
  for (std::size_t i = 0; i < made.size(); i += 3) {
    CHECK(made[i].range.begin == made[i + 1].range.begin);
    CHECK(made[i + 1].range.end + 1 == made[i + 2].range.begin);
    CHECK(made[i + 2].range.end == made[i].range.end);
    CHECK(made[i + 1].parent_id == made[i].id);
    CHECK(made[i + 2].parent_id == made[i].id);
  }
}

TEST_CASE("parent-child: offsets of children count in the document, not in the parent") {
  const rag::document source =
      page("\n\nAa one. Bb two. Cc three. Dd four. Ee five. Ff six. Gg seven. Hh eight. ");
  const chunks made = rag::chunk_parent_child(source, {.parent_size = 8, .child_size = 4});
  CHECK(begins(made, false) == numbers{2, 37});
  CHECK(begins(made, true) == numbers{2, 18, 37, 54});
  CHECK(rag::chunk_text(source, made[1]) == "Aa one. Bb two.");
  CHECK(rag::chunk_text(source, made[5]) == "Gg seven. Hh eight.");
}

TEST_CASE("parent-child: parents have the ids of recursive chunks, children are numbered on") {
  const rag::document source = page("# A\n\n" + repeated("Same line here. ", 12));
  const rag::parent_child_options options{.parent_size = 14, .child_size = 8};
  const chunks made = rag::chunk_parent_child(source, options);
  CHECK(family(made) == strings{"doc#a", "doc#a > doc#a~4", "doc#a > doc#a~5", "doc#a~2",
                                "doc#a~2 > doc#a~6", "doc#a~2 > doc#a~7", "doc#a~3",
                                "doc#a~3 > doc#a~8", "doc#a~3 > doc#a~9"});
  const chunks alone = rag::chunk_recursive(source, {.chunk_size = 14});
  REQUIRE(alone.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(made[3 * i].id == alone[i].id);
    CHECK(made[3 * i].range == alone[i].range);
  }
  CHECK(family(rag::chunk_parent_child(source, options)) == family(made));
}

TEST_CASE("parent-child: each part of a section keeps its heading, within both sizes") {
  const rag::document source = page("# Heading\n\n" + repeated("Aa bb cc. ", 6) + "\n");
  const chunks made = rag::chunk_parent_child(source, {.parent_size = 20, .child_size = 8});
  REQUIRE(made.size() == 4);
  for (const rag::chunk& piece : made) {
    CHECK(piece.heading == "Heading");
    CHECK(piece.heading_path == strings{"Heading"});
    CHECK(piece.token_count == (piece.parent_id.empty() ? 19U : 7U));
  }
  CHECK(made[1].range.begin == 0);
  CHECK(made[2].range == made[2].body);
}

TEST_CASE("parent-child: a heading too long for a child is a child of its own") {
  const rag::document source = page("# One two three\n\nAa bb cc dd.\n");
  const chunks made = rag::chunk_parent_child(source, {.parent_size = 8, .child_size = 3});
  REQUIRE(made.size() == 5);
  CHECK(made[0].heading == "One two three");
  CHECK(rag::chunk_text(source, made[1]) == "# One two");
  CHECK(rag::chunk_text(source, made[2]) == "three");
  CHECK(rag::chunk_text(source, made[3]) == "Aa bb cc");
  CHECK(made[3].heading.empty());
}

TEST_CASE("parent-child: last headings without text are covered by a child of their parent") {
  const rag::document source =
      page("# A\n\n## B\n\nText.\n\n## C\n\n# D\n\n## E\n\nMore.\n\n# F\n");
  const chunks made = rag::chunk_parent_child(source, {.parent_size = 8, .child_size = 4});
  CHECK(family(made) == strings{"doc#a", "doc#a > doc#b", "doc#a > doc#c", "doc#d", "doc#f"});
}

TEST_CASE("parent-child: the namer gives all parents their ids before the children") {
  strings asked;
  const auto name = [&asked](const rag::document&, const rag::chunk& piece) {
    asked.push_back(piece.parent_id + "/" + piece.anchor);
    return piece.anchor == "b" ? std::string() : "N-" + piece.anchor;
  };
  const rag::document source = page("# Page\n\n## A\n\nOne.\n\n## B\n\nTwo.\n");
  const chunks made = rag::chunk_parent_child(source, {.name = name});
  CHECK(asked == strings{"/page", "N-page/a", "N-page/b"});
  CHECK(family(made) == strings{"N-page", "N-page > N-a", "N-page > doc#b"});

  const auto twice = rag::try_chunk_parent_child(
      source, {.name = [](const rag::document&, const rag::chunk&) { return "same"; }});
  REQUIRE(!twice);
  CHECK(twice.failure().code() == rag::errc::duplicate_id);
}

TEST_CASE("parent-child: sizes out of range are refused, whatever the text") {
  CHECK(refusal({.parent_size = 0}) == "chunk_parent_child: parent_size 0 must be at least 1");
  CHECK(refusal({.child_size = 0}) == "chunk_parent_child: child_size 0 must be at least 1");
  CHECK(refusal({.parent_size = 12, .child_size = 12}) ==
        "chunk_parent_child: child_size 12 must be below parent_size 12");
  CHECK(refusal({.parent_size = 12, .child_size = 13}) ==
        "chunk_parent_child: child_size 13 must be below parent_size 12");
  CHECK(refusal({.max_heading_level = 7}) ==
        "chunk_parent_child: max_heading_level 7 must be 1 to 6");
  CHECK(refusal({}) == "accepted");
}

}  // namespace parent_child_tests
