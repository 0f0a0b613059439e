// Another engine in the place of BM25 or of the vectors: what it finds is held to the same rules as
// what is found here.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <rag_retrieve.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fakes.hpp"

namespace searchers_tests {

namespace rag = rag_retrieve;
using namespace fakes;

namespace {

using hits = std::vector<rag::searcher_hit>;

/// An engine that gives these ids for every question, as many as it is asked for.
rag::searcher fixed(strings ids) {
  return [ids](const rag::searcher_request& asked) -> rag::result<hits> {
    hits found;
    for (const std::string& id : ids) {
      if (found.size() < asked.depth) found.push_back({id, 1.0 / double(found.size() + 1)});
    }
    return found;
  };
}

struct remote_setup {
  std::vector<rag::operator_trace> told;
  setup one;

  explicit remote_setup(rag::retriever_options options = {})
      : one([&] {
          options.on_search = [this](const rag::operator_trace& trace) { told.push_back(trace); };
          options.identifiers = {"PAY-###"};
          return options;
        }()) {
    one.add({placed("a", "PAY-042 apple", {1, 0}), placed("b", "apple pie", {0, 1}),
             placed("c", "apple apple", {1, 1}),
             placed("hidden", "apple core", {1, 0}, {"board"})});
  }
  rag::answer find(rag::query asked) { return one.store.search(asked, one.ana()); }
};

}  // namespace

TEST_CASE("searcher: it stands in the place of BM25; the vectors stay as they are") {
  rag::retriever_options options;
  options.lexical = fixed({"c", "b", "a"});
  remote_setup remote(options);
  rag::query asked = about("apple");
  CHECK(ids(remote.find(asked)) == strings{"c", "b", "a"});
  asked = near_to({1, 0}, "apple");
  asked.explain = true;
  const rag::answer both = remote.find(asked);
  CHECK(both.mode == rag::search_mode::hybrid);
  REQUIRE(both.trace.candidates.size() == 3);
  for (const rag::candidate_trace& each : both.trace.candidates) {
    if (each.id == "c") CHECK((each.lexical_rank == 1 && each.dense_rank == 2));
    if (each.id == "a") CHECK((each.lexical_rank == 3 && each.dense_rank == 1));
    if (each.id == "b") CHECK(each.lexical_score == doctest::Approx(0.5));
  }
  CHECK(both.trace.bm25.empty());  // its scores are not BM25's of here
}

TEST_CASE("searcher: one that gives the built-in list gives the built-in answer") {
  remote_setup built_in;
  rag::retriever_options options;
  const auto ask_built_in = [&](rag::search_mode mode) {
    return [&built_in, mode](const rag::searcher_request& asked) -> rag::result<hits> {
      rag::query inner = about(std::string(asked.text));
      inner.mode = mode;
      inner.limit = asked.depth;
      inner.depth = asked.depth;
      inner.where.assign(asked.where.begin(), asked.where.end());
      inner.overlap_threshold = std::nullopt;
      if (!asked.vector.empty()) {
        inner.vector = rag::embedding{"m", {asked.vector.begin(), asked.vector.end()}};
      }
      hits found;
      for (const auto& passage : built_in.find(inner).passages) {
        const auto score =
            mode == rag::search_mode::lexical ? passage.lexical_score() : passage.similarity();
        found.push_back({passage.id(), score.value_or(0)});
      }
      return found;
    };
  };
  options.lexical = ask_built_in(rag::search_mode::lexical);
  options.dense = ask_built_in(rag::search_mode::dense);
  remote_setup remote(options);
  for (const char* text : {"apple", "pie", "PAY-042", "core", "none of these"}) {
    const rag::query asked = near_to({1, 0.5F}, text);
    CAPTURE(text);
    CHECK(everything(remote.find(asked)) == everything(built_in.find(asked)));
  }
}

TEST_CASE("searcher: an id that is unknown, hidden, a parent or a repeat is rejected and counted") {
  rag::retriever_options options;
  options.lexical = fixed({"nowhere", "hidden", "b", "b", "", "whole", "a"});
  remote_setup remote(options);
  rag::document page_of_two = page("two", "apple one\napple two");
  std::vector<rag::chunk> parts = lines(page_of_two);
  parts.push_back(piece(page_of_two, "whole", 0, page_of_two.text.size()));
  for (std::size_t i = 0; i < 2; ++i) parts[i].parent_id = "whole";
  remote.one.store.upsert(page_of_two, parts);
  rag::query asked = about("apple");
  asked.explain = true;
  const rag::answer found = remote.find(asked);
  CHECK(ids(found) == strings{"b", "a"});
  CHECK(remote.told.back().rejected == 5);
  REQUIRE(found.trace.candidates.size() == 2);
  CHECK(found.trace.candidates[0].lexical_rank == 1);  // no gap tells that something was before it
  CHECK(everything(found).find("hidden") == std::string::npos);
}

TEST_CASE("searcher: it is told the reader, the conditions and how much is wanted") {
  rag::retriever_options options;
  std::vector<std::size_t> depths;
  bool as_asked = true;
  options.dense = [&](const rag::searcher_request& asked) -> rag::result<hits> {
    depths.push_back(asked.depth);
    as_asked = as_asked && asked.text == "apple" && asked.reader.who().user == "ana" &&
               asked.reader.groups() == strings{"staff"} && asked.where.size() == 1 &&
               asked.where[0].key == "year" && asked.vector.empty();
    return hits{{"a", 1}};
  };
  remote_setup remote(options);
  rag::query asked = about("apple");
  asked.where = {{.key = "year", .any_of = {2020}}};
  asked.mode = rag::search_mode::dense;  // neither a vector nor an embedder is needed
  asked.depth = 7;
  CHECK(ids(remote.find(asked)).empty());  // a has no year: the condition is checked here, too
  CHECK(as_asked);
  CHECK(depths == std::vector<std::size_t>{7});
  CHECK(remote.told.back().rejected == 1);
}

TEST_CASE(
    "searcher: what fills its list and may not be read makes it look deeper, but not for ever") {
  rag::retriever_options options;
  strings order;
  for (int i = 0; i < 40; ++i) order.push_back("unknown" + std::to_string(i));
  order.push_back("a");
  options.lexical = fixed(order);
  remote_setup remote(options);
  rag::query asked = about("apple");
  asked.depth = 2;
  CHECK(ids(remote.find(asked)).empty());  // more unknown ids than there are chunks: it gave up
  for (int i = 0; i < 60; ++i) remote.one.add(page("filler" + std::to_string(i), "pear"));
  CHECK(ids(remote.find(asked)) == strings{"a"});
}

TEST_CASE("searcher: what is denied at the recheck is refilled from it") {
  rag::retriever_options options;
  options.lexical = fixed({"a", "b", "c"});
  remote_setup remote(options);
  remote.one.permissions.judges = true;
  remote.one.permissions.deny({"a"});
  rag::query asked = about("apple");
  asked.depth = 2;
  CHECK(ids(remote.find(asked)) == strings{"b", "c"});
  REQUIRE(!remote.told.empty());
  CHECK(remote.told.back().checks.front().denied == strings{"a"});
}

TEST_CASE("searcher: chunks that hold a code of the question lead its list") {
  rag::retriever_options options;
  options.lexical = fixed({"c", "b", "a"});
  remote_setup remote(options);
  rag::query asked = about("apple pay-042");
  const rag::answer found = remote.find(asked);
  CHECK(ids(found) == strings{"a", "c", "b"});
  CHECK(found.passages[0].exact_match());
  CHECK(found.signals.exact_code);
  asked.exact_first = false;
  CHECK(ids(remote.find(asked)) == strings{"c", "b", "a"});
}

TEST_CASE("searcher: one that fails takes its leg with it, and its words stay with the operator") {
  const std::string secret = "the passage 'hidden' was the best";
  const std::vector<rag::searcher> failing{
      [&](const rag::searcher_request&) -> rag::result<hits> { throw std::runtime_error(secret); },
      [&](const rag::searcher_request&) -> rag::result<hits> { throw 7; },
      [&](const rag::searcher_request&) -> rag::result<hits> {
        return rag::error(rag::errc::permission_failed, secret);
      },
      [&](const rag::searcher_request&) -> rag::result<hits> {
        return hits{{"a", 1}, {"b", std::numeric_limits<double>::quiet_NaN()}};
      }};
  for (const rag::searcher& each : failing) {
    rag::retriever_options options;
    options.lexical = each;
    remote_setup remote(options);
    const rag::answer found = remote.find(near_to({1, 0}, "apple"));
    CHECK(found.status == rag::search_status::degraded);
    CHECK(found.mode == rag::search_mode::dense);
    CHECK(ids(found) == strings{"a", "c", "b"});
    CHECK(found.notes == strings{"lexical leg left out: search: the lexical searcher failed"});
    CHECK(!remote.told.back().failures.empty());
    const auto alone = remote.one.store.try_search(about("apple"), remote.one.ana());
    REQUIRE(!alone);
    CHECK(alone.failure().code() == rag::errc::callback_failed);
    CHECK(alone.failure().message() == "search: the lexical searcher failed");
  }
  rag::retriever_options options;
  options.dense = failing[0];
  remote_setup remote(options);
  CHECK(ids(remote.find(about("apple"))) == ids(remote_setup().find(about("apple"))));
}

}  // namespace searchers_tests
