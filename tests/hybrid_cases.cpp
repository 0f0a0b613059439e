// Faults that other retrieval systems had, by the ids of the collected cases. Most are tested where
// the thing itself is tested; what was missing, or needs a whole retriever with several segments,
// is here, one test for each id.
//
//   id                            tested in
//   concurrent-replace            retriever.cpp  "writers: two that replace one document ..."
//                                 threads.cpp    "threads: searches beside constant updates ..."
//   count-and-facet-leak          here; access.cpp "gate: the operator's trace has the full ..."
//   delete-slots                  here; retriever.cpp "erase: what is gone takes no place ..."
//   embed-fails-midway            retriever.cpp  "update: whatever the embedder does wrong ..."
//   embed-short-batch             the same
//   empty-user-groups             access.cpp     "access: nobody reads by any path after ..."
//   eval-duplicate-hits           evaluation.cpp "evaluation: repeats on either side are made ..."
//   eval-missing-queries          evaluation.cpp "evaluation: judged questions without a ..."
//   eval-p95-small                evaluation.cpp "percentile: nearest rank; fewer than 20 ..."
//   eval-tie-reorder              evaluation.cpp "evaluation: the order is the list's ..."
//   eval-unanswerable             evaluation.cpp "evaluation: questions without an answer ..."
//   hyphen-code-exact             here; retriever.cpp "search: a code is found whole ..."
//   ivf-filter-underfill          ivf.cpp        "ivf: readable rows far from the question ..."
//                                 ivf.cpp        "ivf: reading all lists gives what exact ..."
//   lexical-whole-store           access.cpp     "access: BM25 finds nothing in what the ..."
//   migration-atomic              here; migration.cpp
//   noninterference-rank          noninterference.cpp
//   overlap-span-dedupe           selection.cpp  "selection: a passage inside a better one ..."
//                                 retriever.cpp  "selection: windows that lie in a better ..."
//   page-stability                retriever.cpp  "pages: by offset they neither repeat nor ..."
//   partial-batch-reuse           retriever.cpp  "update: only inputs that changed are ..."
//   postfilter-starvation         here; access.cpp "access: five readable chunks among a ..."
//   rerank-alignment              reranking.cpp  "rerank: each passage carries its own score ..."
//   rerank-deadline               here; reranking.cpp "rerank: on an executor the search ..."
//   rerank-nan                    reranking.cpp  "rerank: whatever is not one finite score ..."
//   rerank-threshold-mixup        here
//   reranker-sees-permitted-only  access.cpp     "gate: forbidden bytes reach no passage ..."
//                                 must_not_compile/rerank_chunks.cpp
//   revoked-during-rerank         reranking.cpp  "rerank: what was revoked while it ran ..."
//                                 reranking.cpp  "rerank: what moves up after it is asked ..."
//   rrf-absent-is-zero            fusion.cpp     "fusion: a list that does not hold an id ..."
//   rrf-constant-and-base         here; fusion.cpp "fusion: a chunk in both lists beats one ..."
//   rrf-id-namespace              retriever.cpp  "search: one chunk found by words, code and ..."
//                                 searchers.cpp  "searcher: an id that is unknown, hidden, ..."
//   rrf-tie-at-cut                here; fusion.cpp "fusion: ten equal scores are the ten ids ..."
//   rrf-tie-mirror                retriever.cpp  "order: one chunk only in the lexical list ..."
//   rrf-weights-honoured          fusion.cpp     "fusion: a list of weight 0 gives no score ..."
//                                 retriever.cpp  "search: weights that mean nothing are ..."
//   same-dimension-model-swap     migration.cpp  "migration: a vector of the other model is ..."
//                                 persistence.cpp "persistence: another model, metric or ..."
//   scope-from-server             must_not_compile/query_with_tenant.cpp, scope_from_groups.cpp
//                                 access.cpp     "access: tenants are apart, also with ..."
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <rag_retrieve.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fakes.hpp"

namespace hybrid_cases_tests {

namespace rag = rag_retrieve;
using namespace fakes;
using namespace std::chrono_literals;

namespace {

std::string numbered(const std::string& kind, int number) {
  return kind + std::to_string(1000 + number);
}

/// Each document on its own, so that they come to stand in many segments and merge.
void add_one_by_one(setup& one, const std::vector<rag::chunked_document>& documents) {
  for (const rag::chunked_document& each : documents) one.store.upsert(each.source, each.chunks);
}

}  // namespace

TEST_CASE("case postfilter-starvation: the 5 readable of 1,000 chunks, in whatever segment") {
  setup one;
  std::vector<rag::chunked_document> many;
  for (int i = 0; i < 1000; ++i) {
    const bool readable = i % 200 == 77;
    const float away = readable ? 500.0F + static_cast<float>(i) : static_cast<float>(i) / 100.0F;
    many.push_back(placed(numbered("d", i), "text", {10.0F, away}, {readable ? "staff" : "board"}));
  }
  add_one_by_one(one, many);
  CHECK(one.store.snapshot().number() > 1000 + 1000 / 8);  // with its merges
  rag::query asked = near_to({1, 0});
  asked.limit = asked.depth = 5;
  CHECK(ids(one.store.search(asked, one.ana())) ==
        strings{"d1077", "d1277", "d1477", "d1677", "d1877"});
}

TEST_CASE("case delete-slots: of 100 chunks the 20 nearest are gone, 10 others are found") {
  setup one;
  std::vector<rag::chunked_document> many;
  for (int i = 0; i < 100; ++i) {
    many.push_back(placed(numbered("d", i), "text", {10, static_cast<float>(i)}));
  }
  add_one_by_one(one, many);
  strings nearest;
  for (int i = 0; i < 20; ++i) one.store.erase(numbered("d", i));
  for (int i = 20; i < 30; ++i) nearest.push_back(numbered("d", i));
  rag::query asked = near_to({1, 0});
  asked.limit = asked.depth = 10;
  CHECK(ids(one.store.search(asked, one.ana())) == nearest);
  asked.text = "text";
  asked.mode = rag::search_mode::lexical;
  asked.explain = true;
  const rag::answer found = one.store.search(asked, one.ana());
  CHECK(ids(found) == nearest);
  CHECK(found.trace.bm25[0].second.chunk_count == 80);
  CHECK(found.trace.bm25[0].second.terms[0].n == 80);
  one.store.purge();
  CHECK(everything(one.store.search(asked, one.ana())) == everything(found));
}

TEST_CASE("case rrf-tie-at-cut: equal fused scores go by id, every time, wherever the cut is") {
  setup one;
  for (int i = 9; i >= 0; --i) {  // five by words, five by vectors: equal in pairs
    const bool lexical = i % 2 == 0;
    one.add({placed(numbered("d", i), lexical ? "same word" : "other",
                    lexical ? std::vector<float>{0, 0} : std::vector<float>{1, 0})});
  }
  rag::query asked = near_to({1, 0}, "same");
  asked.limit = 10;
  const strings all = ids(one.store.search(asked, one.ana()));
  CHECK(all == strings{"d1000", "d1001", "d1002", "d1003", "d1004", "d1005", "d1006", "d1007",
                       "d1008", "d1009"});
  asked.limit = 5;
  for (int i = 0; i < 100; ++i) {
    CHECK(ids(one.store.search(asked, one.ana())) == strings(all.begin(), all.begin() + 5));
  }
}

TEST_CASE("case rrf-constant-and-base: rank 61 in both lists beats rank 1 in one; k is shown") {
  setup one;
  std::vector<rag::chunked_document> many;
  // A is first by words and has no vector; B is 61st in both; the others fill one list each.
  many.push_back(placed("A", "word word word word", {0, 0}));
  for (int i = 1; i < 60; ++i) many.push_back(placed(numbered("x", i), "word word word", {0, 0}));
  for (int i = 0; i < 60; ++i) many.push_back(placed(numbered("y", i), "other", {1, 0.1F}));
  many.push_back(placed("B", "word once", {1, 1}));
  add_one_by_one(one, many);
  rag::query asked = near_to({1, 0}, "word");
  asked.explain = true;
  const rag::answer found = one.store.search(asked, one.ana());
  REQUIRE(found.passages.size() >= 2);
  const rag::permitted_passage& first = found.passages[0];
  CHECK(first.id() == "B");
  CHECK(first.lexical_rank() == 61);
  CHECK(first.dense_rank() == 61);
  CHECK(first.score() == doctest::Approx(2.0 / 121));
  CHECK(found.passages[1].id() == "A");
  CHECK(found.passages[1].score() == doctest::Approx(1.0 / 61));
  CHECK(found.trace.fusion_constant == doctest::Approx(60));
}

TEST_CASE("case hyphen-code-exact: whole codes only, and only where the reader may look") {
  setup one({.identifiers = {"PAY-###"}});
  one.add(page("a", "PAY-041 alone"));
  one.add(page("b", "PAY-042 alone"));
  one.add(page("c", "PAY-0421 alone"));
  one.add(page("d", "pay 042 dollars"));
  one.add(page("e", "PAY-041 and PAY-042, both of them"));
  one.add(page("hidden", "PAY-042 and PAY-041 and PAY-043", {"board"}));
  const auto exact = [&](const std::string& text) {
    strings out;
    for (const auto& passage : one.store.search(about(text), one.ana()).passages) {
      if (passage.exact_match()) out.push_back(passage.id());
    }
    return out;
  };
  for (const char* text : {"PAY-042", "pay-042", "(PAY-042)"}) {
    CHECK(exact(text) == strings{"b.1", "e.1"});
  }
  CHECK(exact("PAY-042 and PAY-041").front() == "e.1");
  CHECK(exact("PAY-04") == strings{});
  CHECK(exact("PAY-043") == strings{});
  CHECK_FALSE(one.store.search(about("PAY-043"), one.ana()).signals.exact_code);
  one.store.set_access("b", {"board"});
  CHECK(exact("PAY-042") == strings{"e.1"});
}

TEST_CASE("case count-and-facet-leak: 3 of 10 chunks are readable, and every number says 3") {
  rag::retriever_options options;
  setup one(options);
  std::string text;
  for (int i = 0; i < 10; ++i) text += "rotated " + std::to_string(i) + "\n";
  const rag::document source = page("d", text, {"staff", "board"});
  std::vector<rag::chunk> chunks = lines(source);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (i % 3 != 1) chunks[i].allowed_groups = strings{"board"};
  }
  one.store.upsert(source, chunks);
  rag::query asked = about("rotated");
  asked.explain = true;
  asked.per_document = 1;
  asked.neighbours = 100;
  const rag::answer found = one.store.search(asked, one.ana());
  CHECK(one.store.count(one.ana()) == 3);
  CHECK(found.passages.size() == 1);
  CHECK(found.neighbours.size() == 2);
  CHECK(found.trace.candidates.size() == 3);
  CHECK(found.trace.dropped.size() == 2);
  REQUIRE(found.trace.bm25.size() == 3);
  for (const auto& [id, explained] : found.trace.bm25) {
    CHECK(explained.chunk_count == 3);
    CHECK(explained.terms[0].n == 3);
  }
}

TEST_CASE("case rerank-deadline: a reranker that never returns costs its share of the time") {
  setup one;
  one.add({placed("a", "text a", {1, 0}), placed("b", "text b", {1, 1})});
  std::vector<std::function<void()>> never_run;
  rag::query asked = near_to({1, 0});
  asked.time_limit = 200ms;
  asked.reserve = 50ms;
  asked.rerank.score = [](const rag::rerank_request& request) {
    return std::vector<double>(request.passages.size(), 1.0);
  };
  asked.rerank.run_on = [&](std::function<void()> task) { never_run.push_back(std::move(task)); };
  const rag::answer found = one.store.search(asked, one.ana());
  CHECK(ids(found) == strings{"a", "b"});
  CHECK(found.reranking == rag::rerank_status::degraded);
  REQUIRE(found.notes.size() == 1);
  CHECK(found.notes[0].find("timed out") != std::string::npos);
  const rag::stage_timings took = found.timings;
  CHECK(took.rerank <= took.total);
  CHECK(took.total >= 100.0);  // it waited
  CHECK(took.embedding + took.lexical + took.dense + took.recheck + took.fusion + took.rerank +
            took.selection <=
        took.total);
  REQUIRE(never_run.size() == 1);
  never_run[0]();  // late: it works on its own copies and changes nothing
  CHECK(ids(found) == strings{"a", "b"});
}

TEST_CASE("case rerank-threshold-mixup: a threshold of the reranker is not held against others") {
  setup one;
  one.add({placed("a", "text a", {1, 0}), placed("b", "text b", {1, 1})});
  bool fails = false;
  rag::query asked = near_to({1, 0}, "text");
  asked.rerank.score = [&](const rag::rerank_request& request) -> rag::result<std::vector<double>> {
    if (fails) return rag::error(rag::errc::reranker_failed, "no connection");
    return std::vector<double>(request.passages.size(), 0.1);
  };
  std::optional<double> judged = 99;
  asked.sufficient = [&](const rag::evidence& signals) {
    judged = signals.best_rerank;
    return !signals.best_rerank || *signals.best_rerank >= 0.2;  // only where it ran
  };
  const rag::answer low = one.store.search(asked, one.ana());
  CHECK(low.status == rag::search_status::insufficient);
  CHECK(judged == doctest::Approx(0.1));

  fails = true;
  const rag::answer without = one.store.search(asked, one.ana());
  CHECK(without.status == rag::search_status::degraded);
  CHECK(without.passages.size() == 2);
  CHECK(without.passages[0].score() < 0.2);  // a fused score, and nobody minds
  CHECK_FALSE(judged.has_value());
  REQUIRE(without.notes.size() == 1);
  CHECK(without.notes[0].find("no connection") != std::string::npos);
}

TEST_CASE("case migration-atomic: over many segments, with changes half way and a failure") {
  letter_model first;
  setup one({.embed = first.embedder(4)});
  for (int i = 0; i < 30; ++i) {
    one.add(page(numbered("d", i), std::string(static_cast<std::size_t>(i % 5 + 1), 'a')));
  }
  const auto best = [&](const std::string& text) {
    rag::query asked = about(text);
    asked.mode = rag::search_mode::dense;
    return one.store.search(asked, one.ana()).passages;
  };
  CHECK(best("aaa").at(0).similarity() == doctest::Approx(1.0));

  int inputs = 0;
  int fails_at = 4;
  rag::embedder next;
  next.model = "next";
  next.batch_size = 1;
  next.embed = [&](std::span<const std::string_view> texts,
                   rag::text_role role) -> rag::result<std::vector<std::vector<float>>> {
    if (role == rag::text_role::document) {
      if (inputs == 2 && fails_at == 4) {
        one.add(page(numbered("d", 0), "bbbbbb", {"staff"}, 2));
        one.store.erase(numbered("d", 1));
        CHECK(best("bbbbbb").at(0).id() == "d1000.1");  // at once, and by the old model
        CHECK(first.calls > 0);
      }
      if (inputs++ == fails_at) return rag::error(rag::errc::embedder_failed, "no connection");
    }
    std::vector<std::vector<float>> out;
    for (std::string_view text : texts) {
      std::vector<float> vector = letter_model::vector_of(text);
      std::swap(vector.front(), vector.back());  // of the same length, in another space
      out.push_back(std::move(vector));
    }
    return out;
  };
  const auto failed = one.store.try_migrate(next);
  REQUIRE_FALSE(failed.ok());
  const rag::answer before = one.store.search(about("aaa"), one.ana());
  CHECK(best("bbbbbb").at(0).id() == "d1000.1");
  CHECK(one.store.count(one.ana()) == 29);

  fails_at = -1;
  inputs = 0;
  const rag::migration_report report = one.store.migrate(next);
  CHECK(report.chunks == 29);
  CHECK(report.reused == 3);    // a, aaa, aaaa; aa went with the erased document
  CHECK(report.embedded == 3);  // aa, aaaaa, and the updated document's
  const int calls = first.calls;
  CHECK(best("bbbbbb").at(0).id() == "d1000.1");
  CHECK(best("aaa").at(0).similarity() == doctest::Approx(1.0));
  CHECK(first.calls.load() == calls);  // questions are the new model's too
  CHECK(one.store.count(one.ana()) == 29);
  CHECK(one.store.search(about("aaa"), one.ana()).passages.size() == before.passages.size());
}

}  // namespace hybrid_cases_tests
