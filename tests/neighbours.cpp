// Neighbours: what stands beside a passage, under the same gate. Their part of non-interference is
// tested with that of parents.
#include <doctest/doctest.h>

#include <cstddef>
#include <rag_retrieve.hpp>
#include <string>
#include <utility>
#include <vector>

#include "fakes.hpp"

namespace neighbours_tests {

namespace rag = rag_retrieve;
using namespace fakes;

namespace {

using pairs = std::vector<std::pair<std::string, std::string>>;  // of which passage, which chunk

pairs beside(const rag::answer& found) {
  pairs out;
  for (const rag::neighbour& each : found.neighbours) {
    out.push_back({each.of, each.passage.id()});
  }
  return out;
}

rag::query with_neighbours(std::string text, std::size_t count) {
  rag::query out = about(std::move(text));
  out.neighbours = count;
  return out;
}

/// Chunks d.1 to d.9 of one line of one word each.
rag::document nine_lines(strings groups = {"staff", "board"}) {
  return page("d", "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n", std::move(groups));
}

}  // namespace

TEST_CASE(
    "neighbours: n chunks on either side, in the document's order; the passages are the same") {
  setup one;
  one.add(nine_lines());
  one.add(page("e", "four\n"));
  rag::query asked = with_neighbours("five", 2);
  rag::answer found = one.store.search(asked, one.ana());
  CHECK(ids(found) == strings{"d.5"});
  CHECK(beside(found) == pairs{{"d.5", "d.3"}, {"d.5", "d.4"}, {"d.5", "d.6"}, {"d.5", "d.7"}});
  CHECK(found.neighbours[0].passage.text() == "three");
  CHECK(found.neighbours[0].passage.lexical_rank() == 0);
  CHECK(beside(one.store.search(with_neighbours("one", 2), one.ana())) ==
        pairs{{"d.1", "d.2"}, {"d.1", "d.3"}});
  CHECK(beside(one.store.search(with_neighbours("eight", 1000), one.ana())).size() == 8);
  CHECK(one.store.search(about("five"), one.ana()).neighbours.empty());

  asked.text = "five seven two";
  asked.explain = true;
  found = one.store.search(asked, one.ana());
  asked.neighbours = 0;
  rag::answer without = one.store.search(asked, one.ana());
  found.neighbours.clear();
  CHECK(difference(everything(found), everything(without)) == "");
}

TEST_CASE("neighbours: each is given once, and no passage is a neighbour") {
  setup one;
  one.add(nine_lines());
  CHECK(beside(one.store.search(with_neighbours("five six", 1), one.ana())) ==
        pairs{{"d.5", "d.4"}, {"d.6", "d.7"}});
  CHECK(beside(one.store.search(with_neighbours("two four", 1), one.ana())) ==
        pairs{{"d.2", "d.1"}, {"d.2", "d.3"}, {"d.4", "d.5"}});
  // What the cap dropped may come back as a neighbour, with the rank it had.
  rag::query asked = with_neighbours("five six", 1);
  asked.per_document = 1;
  const rag::answer found = one.store.search(asked, one.ana());
  CHECK(beside(found) == pairs{{"d.5", "d.4"}, {"d.5", "d.6"}});
  CHECK(found.neighbours[1].passage.lexical_rank() == 2);
  CHECK(found.neighbours[1].passage.source().matches.size() == 1);
}

TEST_CASE("neighbours: they stay under the passage's headings") {
  setup one;
  const rag::document d = nine_lines();
  std::vector<rag::chunk> chunks = lines(d);
  for (std::size_t i = 0; i < 9; ++i) {
    chunks[i].heading_path = i < 4 ? strings{"A"} : i < 6 ? strings{"A", "B"} : strings{"A"};
  }
  one.store.upsert(d, chunks);
  CHECK(beside(one.store.search(with_neighbours("five", 3), one.ana())) == pairs{{"d.5", "d.6"}});
  CHECK(beside(one.store.search(with_neighbours("four", 1), one.ana())) ==
        pairs{{"d.4", "d.3"}, {"d.4", "d.7"}});  // a section goes on after one inside it
}

TEST_CASE("neighbours: parents stand beside parents, children beside children of the same one") {
  setup one;
  const rag::document d = nine_lines();
  std::vector<rag::chunk> chunks = lines(d);
  for (std::size_t i = 0; i < 6; ++i) chunks[i].parent_id = i < 3 ? "P" : "Q";
  chunks.push_back(piece(d, "P", chunks[0].range.begin, chunks[2].range.end));
  chunks.push_back(piece(d, "Q", chunks[3].range.begin, chunks[5].range.end));
  one.store.upsert(d, chunks);
  rag::query asked = with_neighbours("three", 2);
  CHECK(beside(one.store.search(asked, one.ana())) == pairs{{"P", "Q"}, {"P", "d.7"}});
  asked.collapse_parents = false;
  CHECK(beside(one.store.search(asked, one.ana())) == pairs{{"d.3", "d.1"}, {"d.3", "d.2"}});

  // To a reader who may not see Q, its open children stand where it would.
  chunks[4].allowed_groups = strings{"board"};
  one.store.upsert(page("d", d.text, d.allowed_groups, 2), chunks);
  asked.collapse_parents = true;
  CHECK(beside(one.store.search(asked, one.ana())) == pairs{{"P", "d.4"}, {"P", "d.6"}});
}

TEST_CASE("neighbours: what the reader may not see is passed over, by record and by verdict") {
  std::vector<rag::operator_trace> operators;
  rag::retriever_options options;
  options.on_search = [&](const rag::operator_trace& trace) { operators.push_back(trace); };
  setup one(options);
  one.permissions.judges = true;
  const rag::document d = nine_lines();
  std::vector<rag::chunk> chunks = lines(d);
  chunks[3].allowed_groups = strings{"board"};
  one.store.upsert(d, chunks);
  one.permissions.deny({"d.6", "d.7"});
  const rag::answer found = one.store.search(with_neighbours("five", 1), one.ana());
  CHECK(beside(found) == pairs{{"d.5", "d.3"}, {"d.5", "d.8"}});
  REQUIRE(operators.size() == 1);
  CHECK(operators[0].checks.size() == 4);  // the passage; d.3 and d.6; d.7; d.8
  CHECK(operators[0].checks[1].asked == 2);

  one.permissions.answer = [](std::span<const rag::chunk_key> keys) -> judge::verdicts {
    if (keys.front().chunk_id == "d.5") return std::vector<rag::verdict>{rag::verdict::allow};
    return rag::error(rag::errc::permission_failed, "down");
  };
  const rag::answer without = one.store.search(with_neighbours("five", 1), one.ana());
  CHECK(ids(without) == strings{"d.5"});
  CHECK(without.neighbours.empty());
  CHECK(without.status == rag::search_status::degraded);
}

TEST_CASE("neighbours: they take only what the passages leave of the budget, closest first") {
  setup one;
  one.add(page("d", "a b c\nd e f\nneedle\ng h\ni\nj k l m n\n"));
  one.add(page("x", "needle in a stack of hay\n"));
  rag::query asked = with_neighbours("needle", 2);
  asked.per_document = 1;
  asked.limit = 1;
  asked.token_budget = 6;  // 1 for the passage, 3 before it, 2 after it, no more
  CHECK(beside(one.store.search(asked, one.ana())) == pairs{{"d.3", "d.2"}, {"d.3", "d.4"}});
  asked.token_budget = 7;  // the next before does not fit, and ends it
  CHECK(beside(one.store.search(asked, one.ana())) == pairs{{"d.3", "d.2"}, {"d.3", "d.4"}});
  asked.fill_budget = true;
  CHECK(beside(one.store.search(asked, one.ana())) ==
        pairs{{"d.3", "d.2"}, {"d.3", "d.4"}, {"d.3", "d.5"}});
  asked.token_budget = 1;
  CHECK(beside(one.store.search(asked, one.ana())).empty());
  asked.limit = 2;
  asked.token_budget = 8;  // 1 + 6 for the passages
  const rag::answer found = one.store.search(asked, one.ana());
  CHECK(ids(found) == strings{"d.3", "x.1"});
  CHECK(beside(found) == pairs{{"d.3", "d.5"}});
}

}  // namespace neighbours_tests
