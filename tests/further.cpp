// Several questions in one search: other wordings, parts of the question, made-up answers.
#include <doctest/doctest.h>

#include <cstddef>
#include <limits>
#include <rag_retrieve.hpp>
#include <string>
#include <vector>

#include "fakes.hpp"

namespace further_tests {

namespace rag = rag_retrieve;
using namespace fakes;

namespace {

double place(std::size_t rank) { return 1.0 / (60.0 + static_cast<double>(rank)); }

const rag::candidate_trace& candidate(const rag::answer& found, const std::string& id) {
  for (const rag::candidate_trace& each : found.trace.candidates) {
    if (each.id == id) return each;
  }
  FAIL("no candidate " << id);
  return found.trace.candidates.front();
}

}  // namespace

TEST_CASE("further questions: each gives its own lists, and all are fused by rank") {
  setup one;
  one.add(page("a", "key"));
  one.add(page("b", "lock"));
  one.add(page("c", "key lock"));
  rag::query asked = about("key");
  asked.further = {{.text = "lock"}};
  asked.explain = true;
  const rag::answer found = one.store.search(asked, one.ana());
  CHECK(ids(found) == strings{"c.1", "a.1", "b.1"});  // c is second in both lists
  CHECK(found.passages[0].score() == doctest::Approx(place(2) + place(2)));
  CHECK(found.passages[1].score() == doctest::Approx(place(1)));
  CHECK(found.signals.agreeing_legs == 2);
  CHECK(candidate(found, "b.1").lexical_rank == 1);
  CHECK(found.trace.bm25.size() == 2);  // of the main question
}

TEST_CASE("further questions: the same question again changes no order") {
  setup one;
  one.add(page("a", "key key"));
  one.add(page("b", "key lock"));
  one.add(page("c", "lock lock lock key"));
  rag::query asked = about("key");
  const strings once = ids(one.store.search(asked, one.ana()));
  asked.further = {{.text = "key"}, {.text = "key"}};
  CHECK(ids(one.store.search(asked, one.ana())) == once);
}

TEST_CASE("further questions: the weight counts for their lists alone; 0 leaves them out") {
  setup one;
  one.add(page("a", "key"));
  one.add(page("b", "lock"));
  rag::query asked = about("key");
  asked.further = {{.text = "lock", .weight = 2}};
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"b.1", "a.1"});
  asked.further[0].weight = 0.5;
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"a.1", "b.1"});
  asked.further[0].weight = 0;
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"a.1"});
  for (const double bad :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    asked.further[0].weight = bad;
    const auto outcome = one.store.try_search(asked, one.ana());
    REQUIRE_FALSE(outcome.ok());
    CHECK(outcome.failure().code() == rag::errc::invalid_argument);
  }
}

TEST_CASE("further questions: all texts are embedded in one call, supplied vectors are not") {
  letter_model model;
  setup one({.embed = model.embedder()});
  one.add(page("a", "aaa"));
  one.add(page("b", "bbb"));
  one.add(page("c", "ccc"));
  const int calls = model.calls;
  const int inputs = model.inputs;
  rag::query asked = about("aa");
  asked.further = {{.text = "bb"},
                   {.vector = rag::embedding{"letters", letter_model::vector_of("ccc")}}};
  asked.mode = rag::search_mode::dense;
  asked.explain = true;
  const rag::answer found = one.store.search(asked, one.ana());
  CHECK(model.calls == calls + 1);
  CHECK(model.inputs == inputs + 2);
  CHECK(found.passages.size() == 3);
  for (const rag::permitted_passage& passage : found.passages) {
    CHECK(passage.dense_rank() == 1);  // each is the first of one list
    CHECK(passage.lexical_rank() == 0);
  }
}

TEST_CASE("further questions: a vector of another model or length is refused like the main one's") {
  letter_model model;
  setup one({.embed = model.embedder()});
  one.add(page("a", "aaa"));
  rag::query asked = about("aa");
  asked.further = {{.vector = rag::embedding{"other", {1, 0, 0, 0}}}};
  CHECK(one.store.try_search(asked, one.ana()).failure().code() == rag::errc::model_mismatch);
  asked.further = {{.vector = rag::embedding{"letters", {1, 0}}}};
  CHECK(one.store.try_search(asked, one.ana()).failure().code() == rag::errc::dimension_mismatch);
}

TEST_CASE("further questions: words of all of them are matches; codes of all of them lead") {
  setup one({.identifiers = {"PAY-###"}});
  one.add(page("a", "the key of PAY-042"));
  one.add(page("b", "the lock"));
  rag::query asked = about("lock");
  asked.further = {{.text = "PAY-042"}};
  const rag::answer found = one.store.search(asked, one.ana());
  REQUIRE(found.passages.size() == 2);
  for (const rag::permitted_passage& passage : found.passages) {
    CHECK_FALSE(passage.source().matches.empty());
    CHECK(passage.exact_match() == (passage.id() == "a.1"));
  }
}

TEST_CASE("further questions: what is denied is denied in every list, and none shows a gap") {
  setup one;
  one.add(page("a", "key"));
  one.add(page("b", "key lock"));
  one.add(page("c", "lock"));
  one.permissions.judges = true;
  one.permissions.deny({"b.1"});
  rag::query asked = about("key");
  asked.further = {{.text = "lock"}};
  const rag::answer found = one.store.search(asked, one.ana());
  CHECK(ids(found) == strings{"a.1", "c.1"});
  CHECK(found.passages[0].score() == doctest::Approx(place(1)));
  CHECK(found.passages[1].score() == doctest::Approx(place(1)));
  CHECK(one.permissions.asked.load() == 1);  // one batch for all lists; nothing is left behind them
}

}  // namespace further_tests
