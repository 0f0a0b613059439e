#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>
#include <rag_retrieve.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fakes.hpp"
#include "threading.hpp"

namespace reranking_tests {

namespace rag = rag_retrieve;
using namespace fakes;
using namespace std::chrono_literals;

static_assert(std::is_aggregate_v<rag::reranker>);
static_assert(std::is_aggregate_v<rag::rerank_request>);

namespace {

using scores_of = rag::result<std::vector<double>>;

/// Pages p1 to p9 of one chunk, in this order under the vector (1, 0); p1 has the id's digit 1.
std::vector<rag::chunked_document> nine_pages() {
  std::vector<rag::chunked_document> out;
  for (int i = 1; i <= 9; ++i) {
    const std::string id = "p" + std::to_string(i);
    out.push_back(placed(id, "text of " + id, {10.0F, static_cast<float>(i)}));
  }
  return out;
}

rag::query reranked(rag::rerank_function score, std::size_t window = 4) {
  rag::query asked = near_to({1, 0});
  asked.rerank.score = std::move(score);
  asked.rerank.window = window;
  return asked;
}

/// Scores by the digit in the id: p9 is best.
scores_of by_digit(const rag::rerank_request& request) {
  std::vector<double> scores;
  for (const rag::permitted_passage& passage : request.passages) {
    scores.push_back(passage.id().back() - '0');
  }
  return scores;
}

const strings fused_order{"p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9"};

/// Runs what it is given on other threads, and waits for it at its end.
struct worker : threading::threads {
  rag::executor executor() {
    return [this](std::function<void()> task) { start(std::move(task)); };
  }
};

/// What a failed rerank must leave behind: the fused order without a score.
void check_fused_order_stands(const rag::answer& found) {
  CHECK(ids(found) == fused_order);
  CHECK(found.reranking == rag::rerank_status::degraded);
  CHECK(found.status == rag::search_status::degraded);
  CHECK_FALSE(found.notes.empty());
  CHECK_FALSE(found.signals.best_rerank);
  for (const rag::permitted_passage& passage : found.passages) CHECK_FALSE(passage.rerank_score());
}

}  // namespace

// ---- what it may do -----------------------------------------------------------------------------

TEST_CASE("rerank: each passage carries its own score, and the order follows them") {
  setup one;
  one.add(nine_pages());
  const std::vector<double> given{0.1, 0.9, 0.5};
  rag::query asked = reranked([&](const rag::rerank_request&) { return given; }, 3);
  asked.text = "the question";
  asked.mode = rag::search_mode::dense;
  const rag::answer found = one.store.search(asked, one.ana());
  CHECK(found.reranking == rag::rerank_status::applied);
  CHECK(found.status == rag::search_status::ok);
  REQUIRE(found.passages.size() == 9);
  CHECK(ids(found) == strings{"p2", "p3", "p1", "p4", "p5", "p6", "p7", "p8", "p9"});
  CHECK(found.passages[0].rerank_score() == doctest::Approx(0.9));
  CHECK(found.passages[1].rerank_score() == doctest::Approx(0.5));
  CHECK(found.passages[2].rerank_score() == doctest::Approx(0.1));
  CHECK_FALSE(found.passages[3].rerank_score());
  CHECK(found.signals.best_rerank == doctest::Approx(0.9));
}

TEST_CASE("rerank: what the shortlist missed stays missed, however good it is") {
  setup one;
  one.add(nine_pages());
  rag::query asked = reranked(by_digit, 4);
  asked.limit = 4;
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"p4", "p3", "p2", "p1"});
}

TEST_CASE("rerank: equal scores keep the fused order, negative ones are scores like others") {
  setup one;
  one.add(nine_pages());
  const auto all_equal = [](const rag::rerank_request& request) {
    return std::vector<double>(request.passages.size(), -3.0);
  };
  const rag::answer equal = one.store.search(reranked(all_equal, 9), one.ana());
  CHECK(ids(equal) == fused_order);
  CHECK(equal.reranking == rag::rerank_status::applied);
  CHECK(equal.signals.best_rerank == doctest::Approx(-3.0));
  const auto negative = [](const rag::rerank_request& request) {
    std::vector<double> scores = by_digit(request).value();
    for (double& score : scores) score -= 100;
    return scores;
  };
  CHECK(ids(one.store.search(reranked(negative, 2), one.ana())).front() == "p2");
}

TEST_CASE("rerank: the shortlist is the window, in batches of the caller's size") {
  std::vector<rag::chunked_document> many;
  for (int i = 0; i < 120; ++i) {
    many.push_back(placed("d" + std::to_string(100 + i), "t", {100, static_cast<float>(i)}));
  }
  setup one;
  one.add(many);
  for (const std::size_t window : {1U, 20U, 100U}) {
    for (const std::size_t batch : {1U, 7U, 32U, 1000U}) {
      std::size_t pairs = 0;
      std::size_t calls = 0;
      rag::query asked = reranked(
          [&](const rag::rerank_request& request) {
            CHECK(request.passages.size() <= batch);
            CHECK(request.question == "what");
            pairs += request.passages.size();
            ++calls;
            return std::vector<double>(request.passages.size(), 0.0);
          },
          window);
      asked.text = "what";
      asked.rerank.batch_size = batch;
      asked.limit = 1;
      const rag::answer found = one.store.search(asked, one.ana());
      CHECK(found.reranking == rag::rerank_status::applied);
      CHECK(pairs == window);
      CHECK(calls == (window + batch - 1) / batch);
    }
  }
}

TEST_CASE("rerank: it gets text and place of what it scores, and a question without hits no call") {
  setup one;
  one.add(nine_pages());
  int calls = 0;
  const auto look = [&](const rag::rerank_request& request) {
    ++calls;
    for (const rag::permitted_passage& passage : request.passages) {
      CHECK(passage.text() == "text of " + passage.id());
      CHECK(passage.search_text() == passage.text());
      CHECK(passage.dense_rank() >= 1);
      CHECK_FALSE(passage.rerank_score());
    }
    CHECK_FALSE(request.stop.stop_requested());
    return std::vector<double>(request.passages.size(), 0.0);
  };
  static_cast<void>(one.store.search(reranked(look), one.ana()));
  CHECK(calls == 1);
  rag::query nothing = about("unicorn");
  nothing.rerank.score = look;
  static_cast<void>(one.store.search(nothing, one.ana()));
  CHECK(calls == 1);
}

TEST_CASE("rerank: the trace shows the scores too") {
  setup one;
  one.add(nine_pages());
  rag::query asked = reranked(by_digit, 4);
  asked.explain = true;
  const rag::answer found = one.store.search(asked, one.ana());
  REQUIRE(found.trace.candidates.size() == 9);
  CHECK(found.trace.candidates[0].id == "p1");  // in fused order
  CHECK(found.trace.candidates[0].rerank_score == doctest::Approx(1.0));
  CHECK(found.trace.candidates[3].rerank_score == doctest::Approx(4.0));
  CHECK_FALSE(found.trace.candidates[4].rerank_score);
}

TEST_CASE("rerank: the cap per document bounds the shortlist before it is scored") {
  setup one;
  const rag::document source = page("d", "one\ntwo\nthree\nfour");
  std::vector<rag::chunk> chunks = lines(source);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    chunks[i] = with_vector(chunks[i], {10, static_cast<float>(i)});
  }
  one.store.upsert(source, chunks);
  one.add(nine_pages());
  strings seen;
  rag::query asked = reranked(
      [&](const rag::rerank_request& request) {
        for (const rag::permitted_passage& passage : request.passages) seen.push_back(passage.id());
        return std::vector<double>(request.passages.size(), 0.0);
      },
      4);
  asked.per_document = 2;
  static_cast<void>(one.store.search(asked, one.ana()));
  CHECK(seen == strings{"d.1", "d.2", "p1", "p2"});
}

// ---- what fails ---------------------------------------------------------------------------------

TEST_CASE("rerank: whatever is not one finite score per passage is not used, not even in part") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const std::vector<rag::rerank_function> failures{
      [](const rag::rerank_request&) -> scores_of { return std::vector<double>{}; },
      [](const rag::rerank_request& request) -> scores_of {
        return std::vector<double>(request.passages.size() - 1, 1.0);
      },
      [](const rag::rerank_request& request) -> scores_of {
        return std::vector<double>(request.passages.size() + 1, 1.0);
      },
      [](const rag::rerank_request& request) -> scores_of {
        std::vector<double> scores = by_digit(request).value();
        scores.back() = std::numeric_limits<double>::quiet_NaN();
        return scores;
      },
      [](const rag::rerank_request& request) -> scores_of {
        std::vector<double> scores = by_digit(request).value();
        scores.front() = infinity;
        return scores;
      },
      [](const rag::rerank_request& request) -> scores_of {
        std::vector<double> scores = by_digit(request).value();
        scores.front() = -infinity;
        return scores;
      },
      [](const rag::rerank_request& request) -> scores_of {  // fails in its second batch
        if (request.passages.front().id() != "p1") throw std::runtime_error("no connection");
        return by_digit(request);
      },
      [](const rag::rerank_request&) -> scores_of { throw 4; },
      [](const rag::rerank_request&) -> scores_of {
        return rag::error(rag::errc::callback_failed, "busy");
      }};
  for (const bool on_thread : {false, true}) {
    for (const rag::rerank_function& failure : failures) {
      setup one;
      one.add(nine_pages());
      worker pool;
      rag::query asked = reranked(failure, 9);
      asked.rerank.batch_size = 5;
      asked.explain = true;
      if (on_thread) asked.rerank.run_on = pool.executor();
      const rag::answer found = one.store.search(asked, one.ana());
      check_fused_order_stands(found);
      for (const rag::candidate_trace& each : found.trace.candidates) {
        CHECK_FALSE(each.rerank_score);
      }
      asked.rerank.required = true;
      const auto fatal = one.store.try_search(asked, one.ana());
      REQUIRE_FALSE(fatal.ok());
      CHECK_FALSE(fatal.failure().message().empty());
    }
  }
}

TEST_CASE("rerank: a failure is an error of its own code where the reranker is required") {
  setup one;
  one.add(nine_pages());
  rag::query asked = reranked(
      [](const rag::rerank_request&) -> scores_of { throw std::runtime_error("no connection"); });
  asked.rerank.required = true;
  const auto found = one.store.try_search(asked, one.ana());
  REQUIRE_FALSE(found.ok());
  CHECK(found.failure().code() == rag::errc::reranker_failed);
}

TEST_CASE("rerank: an executor that throws is a failed stage") {
  setup one;
  one.add(nine_pages());
  rag::query asked = reranked(by_digit, 9);
  asked.rerank.run_on = [](const std::function<void()>&) { throw std::runtime_error("closed"); };
  check_fused_order_stands(one.store.search(asked, one.ana()));
}

TEST_CASE("rerank: an executor that drops its task does not hang the search") {
  setup one;
  one.add(nine_pages());
  rag::query asked = reranked(by_digit, 9);
  // As a closed pool does; without a time limit nothing else would end the wait.
  asked.rerank.run_on = [](const std::function<void()>&) {};
  check_fused_order_stands(one.store.search(asked, one.ana()));
}

TEST_CASE("rerank: an executor may run the task at once, in the same thread") {
  setup one;
  one.add(nine_pages());
  rag::query asked = reranked(by_digit, 4);
  asked.rerank.run_on = [](const std::function<void()>& task) { task(); };
  const rag::answer found = one.store.search(asked, one.ana());
  CHECK(found.reranking == rag::rerank_status::applied);
  CHECK(ids(found).front() == "p4");
}

// ---- time ---------------------------------------------------------------------------------------

TEST_CASE("rerank: an answer after the deadline is thrown away, also without an executor") {
  setup one;
  one.add(nine_pages());
  rag::query asked = reranked(
      [](const rag::rerank_request& request) {
        while (rag::clock::now() <= request.deadline) std::this_thread::yield();
        return by_digit(request);
      },
      9);
  asked.rerank.time_limit = 1ms;
  check_fused_order_stands(one.store.search(asked, one.ana()));
  asked.rerank.required = true;
  const auto fatal = one.store.try_search(asked, one.ana());
  REQUIRE_FALSE(fatal.ok());
  CHECK(fatal.failure().code() == rag::errc::reranker_failed);
}

TEST_CASE("rerank: on an executor the search goes on at the deadline and the late answer is lost") {
  bool entered = false;
  for (auto limit = 10ms; !entered; limit *= 2) {  // again if the thread began after the deadline
    auto store = std::make_unique<setup>();
    store->add(nine_pages());
    worker pool;
    const auto closed = std::make_shared<threading::latch>();
    const auto seen = std::make_shared<std::string>();
    const auto stopped = std::make_shared<std::atomic<bool>>(false);
    rag::answer found;
    {
      rag::query asked = reranked(
          [=](const rag::rerank_request& request) {
            closed->wait();  // until the search, its query and its retriever are gone
            *seen = std::string(request.question);
            for (const rag::permitted_passage& passage : request.passages) *seen += passage.text();
            *stopped = request.stop.stop_requested();
            return by_digit(request);
          },
          2);
      asked.text = "a question that is longer than any small string is";
      asked.rerank.time_limit = limit;
      asked.rerank.run_on = pool.executor();
      found = store->store.search(asked, store->ana());
    }
    store.reset();
    check_fused_order_stands(found);
    const std::string before = everything(found);
    closed->open();
    pool.join();
    CHECK(everything(found) == before);
    entered = !seen->empty();
    if (!entered) continue;
    CHECK(*seen == "a question that is longer than any small string istext of p1text of p2");
    CHECK(stopped->load());
  }
}

TEST_CASE("rerank: the search's own limit less the reserve bounds it") {
  setup one;
  one.add(nine_pages());
  rag::clock::time_point deadline;
  const rag::clock::time_point begin = rag::clock::now();
  rag::query asked = reranked(
      [&](const rag::rerank_request& request) {
        deadline = request.deadline;
        return by_digit(request);
      },
      9);
  asked.time_limit = 1h;
  asked.reserve = 600000ms;
  CHECK(one.store.search(asked, one.ana()).reranking == rag::rerank_status::applied);
  CHECK(deadline >= begin + 50min);
  CHECK(deadline <= rag::clock::now() + 50min);
  asked.rerank.time_limit = 5min;
  CHECK(one.store.search(asked, one.ana()).reranking == rag::rerank_status::applied);
  CHECK(deadline <= rag::clock::now() + 5min);
  CHECK(deadline >= begin + 5min);
}

TEST_CASE("rerank: with no time left it is not called at all") {
  setup one;
  one.add(nine_pages());
  int calls = 0;
  rag::query asked = reranked(
      [&](const rag::rerank_request& request) {
        ++calls;
        return by_digit(request);
      },
      9);
  asked.time_limit = 10ms;
  asked.reserve = 20ms;
  check_fused_order_stands(one.store.search(asked, one.ana()));
  CHECK(calls == 0);
}

TEST_CASE("rerank: the longest time limit is as good as none") {
  setup one;
  one.add(nine_pages());
  for (const bool whole_search : {false, true}) {
    for (const bool on_thread : {false, true}) {
      worker pool;
      rag::query asked = reranked(by_digit, 4);
      auto& limit = whole_search ? asked.time_limit : asked.rerank.time_limit;
      limit = (std::chrono::milliseconds::max)();
      if (on_thread) asked.rerank.run_on = pool.executor();
      const rag::answer found = one.store.search(asked, one.ana());
      CHECK(found.reranking == rag::rerank_status::applied);
      CHECK(ids(found).front() == "p4");
    }
  }
}

// ---- permissions while it runs ------------------------------------------------------------------

TEST_CASE("rerank: what was revoked while it ran is not handed out, and its place is filled") {
  for (const bool judging : {true, false}) {
    std::vector<rag::operator_trace> operators;
    rag::retriever_options options;
    options.on_search = [&](const rag::operator_trace& trace) { operators.push_back(trace); };
    setup one(options);
    one.permissions.judges = judging;
    one.add(nine_pages());
    const auto revoking = [&](const rag::rerank_request& request) {
      if (judging) one.permissions.deny({"p9"});
      if (!judging) one.store.set_access("p9", {"board"});
      return by_digit(request);
    };
    rag::query asked = reranked(revoking, 9);
    asked.limit = 3;
    const rag::answer found = one.store.search(asked, one.ana());
    CHECK(ids(found) == strings{"p8", "p7", "p6"});
    CHECK(found.reranking == rag::rerank_status::applied);
    CHECK(found.signals.best_rerank == doctest::Approx(8.0));

    // The operator sees both checks and when they were: it was permitted when it was shown.
    REQUIRE(operators.size() == 1);
    const std::vector<rag::permission_check>& checks = operators[0].checks;
    REQUIRE(checks.size() >= 2);
    CHECK(checks[0].denied.empty());
    CHECK(checks[1].denied == strings{"p9"});
    CHECK(checks[0].at_ms <= checks[1].at_ms);
  }
}

TEST_CASE(
    "rerank: what moves up after it is asked about again, whoever was asked about it before") {
  setup one;
  one.permissions.judges = true;
  const rag::document source = page("d", "key key key\nkey of many other words\n");
  std::vector<rag::chunk> chunks = lines(source);
  chunks.push_back(piece(source, "parent", 0, source.text.size() - 1));
  chunks[0].parent_id = chunks[1].parent_id = "parent";
  one.store.upsert(source, chunks);
  one.add(page("e", "key key\n"));
  one.permissions.deny({"d.1"});  // d.2 is asked about beside it, and allowed
  rag::query asked = about("key");
  asked.depth = 1;
  asked.neighbours = 1;
  asked.rerank.score = [&](const rag::rerank_request& request) {
    CHECK(ids({request.passages.begin(), request.passages.end()}) == strings{"e.1"});
    one.permissions.deny({"d.1", "d.2", "e.1"});
    return std::vector<double>(request.passages.size(), 1.0);
  };
  CHECK(ids(one.store.search(asked, one.ana())) == strings{});
}

TEST_CASE("rerank: what was revoked while it ran is in no trace, note or error either") {
  for (const int how : {0, 1, 2, 3}) {
    setup one;
    one.permissions.judges = true;
    one.add(nine_pages());
    one.add({placed("SECRET", "SECRET text", {10, 0.5F})});
    // Behind SECRET by overlap and by cap, so that a drop would name it.
    const rag::document source = page("caps", std::string(40, 'x'));
    one.store.upsert(source, {with_vector(piece(source, "SECRET-cap", 0, 30), {10, 0.6F}),
                              with_vector(piece(source, "under", 5, 25), {10, 0.7F})});
    rag::query asked = reranked(
        [&](const rag::rerank_request& request) -> scores_of {
          one.permissions.deny({"SECRET", "SECRET-cap"});
          std::vector<double> scores(request.passages.size(), 1.0);
          if (how == 1) scores[0] = std::numeric_limits<double>::quiet_NaN();
          if (how >= 2) throw std::runtime_error("cannot score " + request.passages[0].text());
          return scores;
        },
        5);
    asked.explain = true;
    asked.limit = 3;
    asked.rerank.required = how == 3;
    const std::string told = everything(one.store.try_search(asked, one.ana()));
    CHECK(told.find("SECRET") == std::string::npos);
  }
}

TEST_CASE("rerank: after a revocation ranks have no gap, and what it had pushed out comes back") {
  // As in an index without the revoked chunk, but for the score of what the reranker did not see.
  const auto overlapping = [](bool with_best) {
    std::vector<rag::chunked_document> out = nine_pages();
    const rag::document source = page("w", std::string(100, 'x'));
    std::vector<rag::chunk> chunks;
    if (with_best) chunks.push_back(with_vector(piece(source, "w.best", 0, 80), {10, 0.1F}));
    chunks.push_back(with_vector(piece(source, "w.inner", 10, 70), {10, 0.2F}));
    chunks.push_back(with_vector(piece(source, "w.tail", 80, 100), {10, 0.3F}));
    out.push_back({source, chunks});
    return out;
  };
  const auto constant = [](const rag::rerank_request& request) {
    return std::vector<double>(request.passages.size(), 1.0);
  };
  setup full;
  full.permissions.judges = true;
  full.add(overlapping(true));
  rag::query asked = reranked(
      [&](const rag::rerank_request& request) {
        full.permissions.deny({"w.best"});
        return constant(request);
      },
      9);
  const rag::answer found = full.store.search(asked, full.ana());
  setup bare;
  bare.add(overlapping(false));
  asked.rerank.score = constant;
  const rag::answer expected = bare.store.search(asked, bare.ana());
  const auto ranks = [](const rag::answer& of) {
    std::map<std::string, std::size_t> out;
    for (const rag::permitted_passage& each : of.passages) out[each.id()] = each.dense_rank();
    return out;
  };
  CHECK(ranks(found) == ranks(expected));
  CHECK(ranks(found).at("w.inner") == 1);
}

TEST_CASE("rerank: the second check asks about every page that is shown, whatever the limit") {
  constexpr std::size_t most = (std::numeric_limits<std::size_t>::max)();
  for (const std::size_t limit : {std::size_t{2}, std::size_t{100}, most, most - 1}) {
    setup one;
    one.permissions.judges = true;
    one.add(nine_pages());
    rag::query asked = reranked(
        [&](const rag::rerank_request& request) {
          one.permissions.deny(fused_order);
          return by_digit(request);
        },
        9);
    asked.limit = limit;
    asked.offset = 1;
    CHECK(one.store.search(asked, one.ana()).passages.empty());
  }
}

TEST_CASE("rerank: a failed reranker is a slow stage too, the second check is made") {
  setup one;
  one.permissions.judges = true;
  one.add(nine_pages());
  rag::query asked = reranked(
      [&](const rag::rerank_request&) -> scores_of {
        one.permissions.deny({"p1", "p2"});
        throw std::runtime_error("no connection");
      },
      9);
  asked.limit = 2;
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"p3", "p4"});
}

TEST_CASE("rerank: a permission source that fails after it denies everything, asked once") {
  setup one;
  one.permissions.judges = true;
  one.add(nine_pages());
  rag::query asked = reranked(
      [&](const rag::rerank_request& request) {
        one.permissions.answer = [](std::span<const rag::chunk_key>) -> judge::verdicts {
          throw std::runtime_error("timed out");
        };
        return by_digit(request);
      },
      9);
  asked.limit = 1;
  const rag::answer found = one.store.search(asked, one.ana());
  CHECK(found.passages.empty());
  CHECK(found.status == rag::search_status::degraded);
  CHECK(one.permissions.asked.load() == 2);
}

TEST_CASE("rerank: a source that changes its mind at every question is believed the last time") {
  setup one;
  one.permissions.judges = true;
  one.add(nine_pages());
  int round = 0;
  std::map<std::string, bool> last;
  one.permissions.answer = [&](std::span<const rag::chunk_key> keys) -> judge::verdicts {
    ++round;
    std::vector<rag::verdict> out;
    for (const rag::chunk_key& key : keys) {
      const bool yes = (key.chunk_id.back() + round) % 3 != 0;
      last[std::string(key.chunk_id)] = yes;
      out.push_back(yes ? rag::verdict::allow : rag::verdict::deny);
    }
    return out;
  };
  for (int i = 0; i < 6; ++i) {
    const rag::answer found = one.store.search(reranked(by_digit, 9), one.ana());
    for (const std::string& id : ids(found)) CHECK(last.at(id));
    const rag::answer plain = one.store.search(near_to({1, 0}), one.ana());
    for (const std::string& id : ids(plain)) CHECK(last.at(id));
  }
}

TEST_CASE("rerank: a document that is replaced or erased while it runs is shown whole or not") {
  setup one;
  one.add(page("d", "common first", {"staff"}, 1));
  one.add(page("e", "common other", {"staff"}, 1));
  int calls = 0;
  rag::query asked = about("common");
  asked.rerank.score = [&](const rag::rerank_request& request) {
    if (++calls == 1) one.add(page("d", "common second", {"staff"}, 2));
    if (calls == 2) one.store.erase("d");
    return std::vector<double>(request.passages.size(), 0.0);
  };
  const rag::answer before = one.store.search(asked, one.ana());
  REQUIRE(before.passages.size() == 2);
  CHECK(before.passages[0].revision() == 1);
  CHECK(before.passages[0].text() == "common first");
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"e.1"});
}

}  // namespace reranking_tests
