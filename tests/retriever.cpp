#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <rag_retrieve.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "fakes.hpp"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <malloc.h>
#if __GLIBC__ > 2 || __GLIBC_MINOR__ >= 33
#define RAG_RETRIEVE_TEST_HEAP
#endif
#endif

namespace retriever_tests {

namespace rag = rag_retrieve;
using namespace fakes;

static_assert(std::is_aggregate_v<rag::query>);
static_assert(std::is_aggregate_v<rag::retriever_options>);
static_assert(std::is_aggregate_v<rag::evidence>);
static_assert(!std::is_copy_constructible_v<rag::retriever>);
static_assert(std::is_nothrow_move_constructible_v<rag::retriever>);

namespace {

constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

rag::retriever_options with_codes() {
  rag::retriever_options out;
  out.identifiers = {"PAY-###"};
  return out;
}

rag::retriever_options with_model(letter_model& model, std::size_t batch_size = 64) {
  rag::retriever_options out;
  out.embed = model.embedder(batch_size);
  return out;
}

std::string words(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += i == 0 ? "word" : " word";
  return out;
}

/// Documents d01 to d40 of one chunk each, in this order under the vector (1, 0).
std::vector<rag::chunked_document> forty_pages() {
  std::vector<rag::chunked_document> out;
  for (int i = 1; i <= 40; ++i) {
    const std::string id = (i < 10 ? "d0" : "d") + std::to_string(i);
    out.push_back(placed(id, "text", {10.0F, static_cast<float>(i)}));
  }
  return out;
}

/// The code of the error; nothing if there is none.
template <class Value>
std::optional<rag::errc> code_of(const rag::result<Value>& outcome) {
  return outcome.ok() ? std::optional<rag::errc>() : outcome.failure().code();
}

}  // namespace

// ---- one search ---------------------------------------------------------------------------------

TEST_CASE("search: a passage says what it is, where it stands and how it came") {
  setup one(with_codes());
  rag::document source =
      page("gateway", "# Errors\r\n\n## PAY-042\n\nThe key was rotated.\nRetry.\n");
  source.title = "Gateway errors";
  rag::chunk item = piece(source, "E42", source.text.find("## "), source.text.size() - 1);
  item.body = {source.text.find("The key"), source.text.size() - 1};
  item.heading = "PAY-042";
  item.heading_path = {"Errors", "PAY-042"};
  item.anchor = "pay-042";
  one.store.upsert(source, {item});

  const rag::answer found = one.store.search(about("(pay-042) rotated"), one.ana());
  CHECK(found.status == rag::search_status::ok);
  CHECK(found.mode == rag::search_mode::lexical);
  CHECK(found.notes.empty());
  REQUIRE(found.passages.size() == 1);
  const rag::permitted_passage& passage = found.passages[0];
  CHECK(passage.id() == "E42");
  CHECK(passage.document_id() == "gateway");
  CHECK(passage.revision() == 1);
  CHECK(passage.title() == "Gateway errors");
  CHECK(passage.heading_path() == strings{"Errors", "PAY-042"});
  CHECK(passage.text() == "## PAY-042\n\nThe key was rotated.\nRetry.");
  CHECK(passage.search_text() == "PAY-042\n\nThe key was rotated.\nRetry.");
  CHECK(passage.token_count() == rag::count_words(passage.search_text()));
  CHECK(passage.exact_match());
  CHECK(passage.lexical_rank() == 1);
  CHECK(passage.dense_rank() == 0);
  REQUIRE(passage.lexical_score());
  CHECK(passage.score() == doctest::Approx(*passage.lexical_score()));
  CHECK_FALSE(passage.similarity());
  CHECK_FALSE(passage.rerank_score());
  CHECK(passage.why().find("exact code") != std::string::npos);
  const rag::citation& where = passage.source();
  CHECK(where.document_id == "gateway");
  CHECK(where.anchor == "pay-042");
  CHECK(where.first_line == 3);
  CHECK(where.last_line == 6);
  CHECK(where.range == passage.range());
  strings marked;
  for (const rag::byte_range match : where.matches) {
    CHECK(match.begin >= where.range.begin);
    CHECK(match.end <= where.range.end);
    marked.emplace_back(rag::slice(source.text, match));
  }
  CHECK(std::count(marked.begin(), marked.end(), "PAY-042") >= 1);
  CHECK(std::count(marked.begin(), marked.end(), "rotated") == 1);
}

TEST_CASE("search: lines are counted with LF, CRLF and CR, also inside a pair") {
  setup one;
  const rag::document source = page("d", "one\r\ntwo\rthree\n\nfive");
  one.store.upsert(source,
                   {piece(source, "a", 0, 3), piece(source, "b", 5, 8), piece(source, "c", 9, 14),
                    piece(source, "d", 16, 20), piece(source, "all", 0, 20)});
  const auto lines_of = [&](const std::string& id) {
    const strings wanted{id};
    const auto passages = one.store.fetch(wanted, one.ana());
    REQUIRE(passages.size() == 1);
    return std::make_pair(passages[0].source().first_line, passages[0].source().last_line);
  };
  CHECK(lines_of("a") == std::make_pair<std::size_t, std::size_t>(1, 1));
  CHECK(lines_of("b") == std::make_pair<std::size_t, std::size_t>(2, 2));
  CHECK(lines_of("c") == std::make_pair<std::size_t, std::size_t>(3, 3));
  CHECK(lines_of("d") == std::make_pair<std::size_t, std::size_t>(5, 5));
  CHECK(lines_of("all") == std::make_pair<std::size_t, std::size_t>(1, 5));
}

TEST_CASE("search: an empty retriever, an unknown tenant and an erased index answer nothing") {
  setup one;
  CHECK(one.store.search(about("word"), one.ana()).passages.empty());
  CHECK(one.store.search(near_to({1, 0}, "word"), one.ana()).passages.empty());
  CHECK(one.store.snapshot().count(one.ana()) == 0);
  one.add({placed("d", "word", {1, 0})});
  one.store.erase("d");
  CHECK(one.store.search(near_to({1, 0}, "word"), one.ana()).passages.empty());
  const rag::document bare = page("none", "");
  one.store.upsert(bare, {});
  CHECK(one.store.search(about("word"), one.ana()).passages.empty());
  CHECK(one.store.snapshot().count(one.ana()) == 0);
}

TEST_CASE("search: a code is found whole, in any case and punctuation; more codes come first") {
  setup one(with_codes());
  one.add(page("a", "PAY-041 alone"));
  one.add(page("b", "PAY-042 alone"));
  one.add(page("c", "PAY-0421 alone pay 042 pay 042"));
  one.add(page("d", "pay 042 dollars pay 042"));
  one.add(page("e", "both PAY-042 and PAY-041 stand in this rather long sentence of many words"));
  for (const char* text : {"PAY-042", "pay-042", "(PAY-042)",
                           "PAY\xE2\x80\x91"
                           "042."}) {
    const rag::answer found = one.store.search(about(text), one.ana());
    REQUIRE(found.passages.size() >= 2);
    CHECK(found.passages[0].id() == "b.1");
    CHECK(found.passages[1].id() == "e.1");
    for (const rag::permitted_passage& passage : found.passages) {
      const bool holds_it = passage.id() == "b.1" || passage.id() == "e.1";
      CHECK(passage.exact_match() == holds_it);
    }
    CHECK(found.signals.exact_code);
  }
  const rag::answer two = one.store.search(about("PAY-042 and PAY-041"), one.ana());
  REQUIRE_FALSE(two.passages.empty());
  CHECK(two.passages[0].id() == "e.1");
  const rag::answer part = one.store.search(about("PAY-04"), one.ana());
  CHECK_FALSE(part.signals.exact_code);
  rag::query plain = about("PAY-042");
  plain.exact_first = false;
  CHECK(one.store.search(plain, one.ana()).passages[0].id() != "e.1");
}

TEST_CASE("search: a code in the title or a heading outranks any number of mentions") {
  setup one({.identifiers = {"PAY-###", "C++", "ER_*"}});
  one.add(page("mentions", "PAY-042 PAY-042 PAY-042, C++ C++ C++, ER_DUP ER_DUP ER_DUP"));
  const auto add_sections = [&](rag::document source) {
    one.store.upsert(source, rag::chunk_structure(source));
  };
  rag::document titled =
      page("titled", "What a long page of many words says about the credential.");
  titled.title =
      "`PAY\xE2\x80\x91"
      "042`: stored credential";
  add_sections(titled);
  add_sections(page("headed",
                    "## Templates in C\\+\\+\n\nA long text of many other words.\n\n"
                    "## ER\\_DUP\\_ENTRY and `ER_DUP`\n\nAgain many other words."));
  const auto found = [&](const std::string& text, rag::search_mode mode) {
    rag::query asked = about(text);
    asked.mode = mode;
    return one.store.search(asked, one.ana()).passages;
  };
  for (const rag::search_mode mode : {rag::search_mode::automatic, rag::search_mode::lexical}) {
    CHECK(found("PAY-042", mode).at(0).document_id() == "titled");
    CHECK(found("c++", mode).at(0).document_id() == "headed");
    CHECK(found("what is ER_DUP, ER_DUP?", mode).at(0).heading() ==
          "ER\\_DUP\\_ENTRY and `ER_DUP`");
    for (const char* code : {"PAY-042", "C++", "ER_DUP"}) {
      const auto passages = found(code, mode);
      REQUIRE(passages.size() >= 2);
      CHECK(passages[1].document_id() == "mentions");  // an exact match too, behind it
      CHECK(passages[1].exact_match());
    }
    CHECK_FALSE(found("ER_DUP_ENTRY", mode).at(1).exact_match());  // ER_DUP is another code
  }
}

TEST_CASE("search: a code in a heading without a text of its own leads to the section below it") {
  const rag::document source = page("a",
                                    "# Errors\n\nIntro.\n\n## PAY-042\n\n### Cause\n\nThe key.\n\n"
                                    "### Repair\n\nSave it.\n\n## Others\n\nPAY-042 PAY-042.\n");
  for (const bool families : {false, true}) {
    setup one({.identifiers = {"PAY-###"}});
    one.store.upsert(source,
                     families ? rag::chunk_parent_child(source, {.parent_size = 5, .child_size = 3})
                              : rag::chunk_structure(source));
    rag::query asked = about("PAY-042");
    asked.collapse_parents = false;
    const auto found = one.store.search(asked, one.ana()).passages;
    REQUIRE(found.size() >= 3);
    CHECK(found[0].heading_path().back() == "Cause");
    for (const auto& passage : found) CHECK(passage.exact_match());
    CHECK(found[0].identifiers() == strings{"PAY-042"});
  }
}

TEST_CASE("search: modes run the legs they name, and the score is that of their order") {
  setup one;
  one.add({placed("a", "apple pie", {1, 0}), placed("b", "banana pie", {0, 1})});
  rag::query asked = near_to({0, 1}, "apple");
  CHECK(one.store.search(asked, one.ana()).mode == rag::search_mode::hybrid);

  asked.mode = rag::search_mode::lexical;
  const rag::answer lexical = one.store.search(asked, one.ana());
  CHECK(lexical.mode == rag::search_mode::lexical);
  CHECK(ids(lexical) == strings{"a"});
  CHECK(lexical.passages[0].dense_rank() == 0);

  asked.mode = rag::search_mode::dense;
  const rag::answer dense = one.store.search(asked, one.ana());
  CHECK(dense.mode == rag::search_mode::dense);
  CHECK(ids(dense) == strings{"b", "a"});
  CHECK(dense.passages[0].lexical_rank() == 0);
  CHECK(dense.passages[0].score() == doctest::Approx(1.0));

  asked.mode = rag::search_mode::hybrid;
  const rag::answer hybrid = one.store.search(asked, one.ana());
  CHECK(ids(hybrid) == strings{"a", "b"});
  CHECK(hybrid.passages[0].score() == doctest::Approx(1.0 / 61 + 1.0 / 62));
  CHECK(hybrid.passages[1].score() == doctest::Approx(1.0 / 61));
  CHECK(hybrid.signals.agreeing_legs == 2);
}

TEST_CASE("search: one chunk found by words, code and vector is one candidate with its ranks") {
  setup one(with_codes());
  one.add({placed("a", "PAY-042 rotated", {1, 0}), placed("b", "rotated", {0, 1})});
  rag::query asked = near_to({1, 0}, "PAY-042 rotated");
  asked.explain = true;
  const rag::answer found = one.store.search(asked, one.ana());
  REQUIRE(found.trace.candidates.size() == 2);
  CHECK(found.trace.candidates[0].id == "a");
  CHECK(found.trace.candidates[0].lexical_rank == 1);
  CHECK(found.trace.candidates[0].dense_rank == 1);
  CHECK(found.trace.candidates[0].exact_match);
  CHECK(found.trace.fusion_constant == doctest::Approx(60.0));
  CHECK(found.trace.mode == rag::search_mode::hybrid);
  REQUIRE(found.trace.bm25.size() == 2);
  for (const auto& [id, explained] : found.trace.bm25) {
    for (const rag::permitted_passage& passage : found.passages) {
      if (passage.id() == id) CHECK(explained.score == doctest::Approx(*passage.lexical_score()));
    }
  }
  asked.explain = false;
  const rag::answer quiet = one.store.search(asked, one.ana());
  CHECK(quiet.trace.candidates.empty());
  CHECK(quiet.trace.bm25.empty());
  CHECK(quiet.trace.dropped.empty());
}

TEST_CASE("search: weights decide between the legs, and 0 takes one out") {
  setup one;
  one.add({placed("a", "nothing", {1, 0}), placed("b", "apple", {0, 0})});  // b: no direction
  rag::query asked = near_to({1, 0}, "apple");
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"a", "b"});
  asked.fusion.weights = {2, 2};
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"a", "b"});
  asked.fusion.weights = {1, 0};
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"b"});
  asked.fusion.weights = {0, 1};
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"a"});
  asked.fusion.weights = {2, 1};
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"b", "a"});
}

TEST_CASE("search: weights that mean nothing are refused, whichever legs run") {
  setup one;
  one.add({placed("a", "apple", {1, 0})});
  const std::vector<std::vector<double>> wrong{
      {-1, 1},   {1, -1}, {std::nan(""), 1}, {1, std::numeric_limits<double>::infinity()}, {0, 0},
      {1, 1, 1}, {1}};
  for (const std::vector<double>& weights : wrong) {
    for (const bool has_vector : {true, false}) {
      rag::query asked = has_vector ? near_to({1, 0}, "apple") : about("apple");
      asked.fusion.weights = weights;
      CHECK(code_of(one.store.try_search(asked, one.ana())) == rag::errc::invalid_argument);
    }
  }
  for (const double k : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    rag::query asked = about("apple");
    asked.fusion.k = k;
    CHECK(code_of(one.store.try_search(asked, one.ana())) == rag::errc::invalid_argument);
  }
}

TEST_CASE("search: options outside their range are refused with a sentence that names them") {
  setup one;
  one.add(page("a", "apple"));
  const auto refused = [&](const auto& change, const std::string& name) {
    rag::query asked = about("apple");
    asked.rerank.score = nullptr;
    change(asked);
    const auto found = one.store.try_search(asked, one.ana());
    REQUIRE_FALSE(found.ok());
    CHECK(found.failure().code() == rag::errc::invalid_argument);
    CHECK(found.failure().message().find(name) != std::string::npos);
  };
  refused([](rag::query& q) { q.limit = 0; }, "limit");
  refused([](rag::query& q) { q.depth = 0; }, "depth");
  refused([](rag::query& q) { q.per_document = 0; }, "per_document");
  refused([](rag::query& q) { q.overlap_threshold = 0.0; }, "overlap_threshold");
  refused([](rag::query& q) { q.overlap_threshold = 1.5; }, "overlap_threshold");
  refused([](rag::query& q) { q.overlap_threshold = std::nan(""); }, "overlap_threshold");
  refused([](rag::query& q) { q.token_budget = 0; }, "token_budget");
  const rag::rerank_function any = [](const rag::rerank_request& request) {
    return std::vector<double>(request.passages.size(), 0.0);
  };
  refused([&](rag::query& q) { q.rerank.score = any, q.rerank.batch_size = 0; }, "batch_size");
  refused([&](rag::query& q) { q.rerank.score = any, q.rerank.window = 0; }, "window");
}

TEST_CASE("search: the largest limit, depth and offset are numbers like others") {
  constexpr std::size_t most = (std::numeric_limits<std::size_t>::max)();
  setup one;
  one.add(forty_pages());
  rag::query asked = near_to({1, 0});
  asked.limit = most;
  asked.depth = most;
  asked.per_document = most;
  asked.token_budget = most;
  CHECK(one.store.search(asked, one.ana()).passages.size() == 40);
  asked.offset = 39;
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"d40"});
  asked.offset = most;
  CHECK(one.store.search(asked, one.ana()).passages.empty());
}

// ---- the question -------------------------------------------------------------------------------

TEST_CASE("question: blank or without a word, it finds nothing, says so and asks no embedder") {
  letter_model model;
  setup one(with_model(model));
  one.add(page("a", "apple"));
  const int before = model.calls;
  for (const char* text : {"", " \t\n", "?! ... --", "\xC2\xA0"}) {
    for (const auto mode : {rag::search_mode::automatic, rag::search_mode::lexical,
                            rag::search_mode::hybrid, rag::search_mode::dense}) {
      rag::query asked = about(text);
      asked.mode = mode;
      const rag::answer found = one.store.search(asked, one.ana());
      CHECK(found.passages.empty());
      CHECK_FALSE(found.notes.empty());
    }
  }
  CHECK(model.calls.load() == before);
}

TEST_CASE("question: unknown words leave the lexical leg empty, the dense leg still runs") {
  letter_model model;
  setup one(with_model(model));
  one.add(page("a", "apple"));
  const rag::answer found = one.store.search(about("zzz"), one.ana());
  CHECK(found.mode == rag::search_mode::hybrid);
  REQUIRE(found.passages.size() == 1);
  CHECK(found.passages[0].lexical_rank() == 0);
  CHECK(found.passages[0].dense_rank() == 1);
  CHECK(found.status == rag::search_status::ok);
}

TEST_CASE("question: when the embedder fails, hybrid goes on by words and dense is an error") {
  using vectors = rag::result<std::vector<std::vector<float>>>;
  using texts = std::span<const std::string_view>;
  const std::vector<std::function<vectors(texts)>> failures{
      [](texts) -> vectors { throw std::runtime_error("no connection"); },
      [](texts) -> vectors { throw 3; },
      [](texts) -> vectors { return rag::error(rag::errc::embedder_failed, "no connection"); },
      [](texts) -> vectors { return std::vector<std::vector<float>>{}; },
      [](texts) -> vectors { return std::vector<std::vector<float>>{{1, 0}, {1, 0}}; },
      [](texts) -> vectors { return std::vector<std::vector<float>>{{1, 0, 0}}; },
      [](texts) -> vectors { return std::vector<std::vector<float>>{{}}; },
      [](texts) -> vectors { return std::vector<std::vector<float>>{{1, nan_value}}; }};
  for (const std::size_t dimension : {std::size_t{2}, std::size_t{0}}) {
    for (const auto& failure : failures) {
      rag::retriever_options options;
      options.embed.model = "m";
      options.embed.dimension = dimension;
      options.embed.embed = [&](texts all, rag::text_role role) -> vectors {
        if (role == rag::text_role::question) return failure(all);
        return std::vector<std::vector<float>>(all.size(), std::vector<float>{1, 0});
      };
      setup one(options);
      one.add(page("a", "apple"));
      for (const auto mode : {rag::search_mode::automatic, rag::search_mode::hybrid}) {
        rag::query asked = about("apple");
        asked.mode = mode;
        const auto found = one.store.try_search(asked, one.ana());
        REQUIRE(found.ok());
        CHECK(ids(*found) == strings{"a.1"});
        CHECK(found->status == rag::search_status::degraded);
        CHECK(found->mode == rag::search_mode::lexical);
        CHECK_FALSE(found->notes.empty());
      }
      rag::query asked = about("apple");
      asked.mode = rag::search_mode::dense;
      CHECK_FALSE(one.store.try_search(asked, one.ana()).ok());
    }
  }
}

TEST_CASE("question: a zero vector leaves the dense leg out and says so") {
  setup one;
  one.add({placed("a", "apple", {1, 0})});
  const rag::answer found = one.store.search(near_to({0, 0}, "apple"), one.ana());
  CHECK(ids(found) == strings{"a"});
  CHECK(found.status == rag::search_status::degraded);
  CHECK(found.passages[0].dense_rank() == 0);
  const rag::answer dense = one.store.search(near_to({0, -0.0F}), one.ana());
  CHECK(dense.passages.empty());
  CHECK(dense.status == rag::search_status::degraded);
}

TEST_CASE("question: a vector of another model, length or with NaN is refused") {
  setup one;
  one.add({placed("a", "apple", {1, 0})});
  rag::query asked = near_to({1, 0}, "apple");
  asked.vector->model = "m2";  // as many numbers, another space
  CHECK(code_of(one.store.try_search(asked, one.ana())) == rag::errc::model_mismatch);
  CHECK(code_of(one.store.try_search(near_to({1, 0, 0}, "apple"), one.ana())) ==
        rag::errc::dimension_mismatch);
  CHECK(code_of(one.store.try_search(near_to({}, "apple"), one.ana())) ==
        rag::errc::dimension_mismatch);
  CHECK(code_of(one.store.try_search(near_to({1, nan_value}, "apple"), one.ana())) ==
        rag::errc::not_finite);
  const float infinite = std::numeric_limits<float>::infinity();
  CHECK(code_of(one.store.try_search(near_to({infinite, 1}, "apple"), one.ana())) ==
        rag::errc::not_finite);
}

TEST_CASE("question: a supplied vector spares the embedder, and lexical mode asks for none") {
  letter_model model;
  setup one(with_model(model));
  one.add(page("a", "apple"));
  const int before = model.calls;
  rag::query asked = about("apple");
  asked.mode = rag::search_mode::lexical;
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"a.1"});
  asked.mode = rag::search_mode::automatic;
  asked.vector = rag::embedding{"letters", letter_model::vector_of("apple")};
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"a.1"});
  CHECK(model.calls.load() == before);
}

TEST_CASE("question: a stemmer or finder that throws fails the search, not the program") {
  bool failing = false;
  rag::retriever_options options;
  options.analysis.stem = [&](std::string_view term) {
    if (failing) throw std::runtime_error("stem");
    return std::string(term);
  };
  options.find_identifiers = [](std::string_view) { return strings{}; };
  setup one(options);
  one.add(page("a", "apple"));
  failing = true;
  CHECK(code_of(one.store.try_search(about("apple"), one.ana())) == rag::errc::callback_failed);
  const rag::document next = page("b", "apple");
  CHECK(code_of(one.store.try_upsert(next, lines(next))) == rag::errc::callback_failed);
  failing = false;
  CHECK(ids(one.store.search(about("apple"), one.ana())) == strings{"a.1"});
}

// ---- selection ----------------------------------------------------------------------------------

TEST_CASE("selection: windows that lie in a better one go, with their winner named") {
  setup one;
  const rag::document source = page("w", std::string(140, 'x'));
  const auto window = [&](const std::string& id, std::size_t begin, std::size_t end, float away) {
    return with_vector(piece(source, id, begin, end), {10, away});
  };
  one.store.upsert(source, {window("W1", 0, 80, 1), window("S", 10, 70, 2),
                            window("W2", 60, 140, 3), window("S2", 65, 135, 4)});
  rag::query asked = near_to({1, 0});
  asked.limit = 2;
  asked.explain = true;
  const rag::answer found = one.store.search(asked, one.ana());
  CHECK(ids(found) == strings{"W1", "W2"});  // the freed place is filled from behind
  REQUIRE(found.trace.dropped.size() == 2);
  CHECK(found.trace.dropped[0].id == "S");
  CHECK(found.trace.dropped[0].stage == rag::drop_stage::dedupe);
  CHECK(found.trace.dropped[0].reason.find("W1") != std::string::npos);
  CHECK(found.trace.dropped[1].reason.find("W2") != std::string::npos);
  asked.overlap_threshold = std::nullopt;
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"W1", "S"});
}

TEST_CASE("selection: every drop has one stage and one reason, and kept plus dropped is all") {
  setup one;
  std::vector<rag::chunked_document> all;
  for (int d = 0; d < 4; ++d) {
    const rag::document source = page("d" + std::to_string(d), std::string(100, 'x'));
    std::vector<rag::chunk> chunks;
    for (int i = 0; i < 4; ++i) {
      const auto begin = static_cast<std::size_t>(i) * 20;
      rag::chunk item = piece(source, source.id + char('a' + i), begin, begin + (i == 1 ? 40 : 20));
      item.token_count = 10;
      chunks.push_back(with_vector(item, {10, static_cast<float>(i * 4 + d)}));
    }
    all.push_back({source, chunks});
  }
  one.add(all);
  rag::query asked = near_to({1, 0});
  asked.explain = true;
  asked.per_document = 2;
  asked.limit = 5;
  asked.token_budget = 35;
  const rag::answer found = one.store.search(asked, one.ana());
  strings seen = ids(found);
  for (const rag::drop& each : found.trace.dropped) {
    seen.push_back(each.id);
    CHECK_FALSE(each.reason.empty());
  }
  std::sort(seen.begin(), seen.end());
  CHECK(seen.size() == found.trace.candidates.size());
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
  CHECK(found.passages.size() == 3);
}

TEST_CASE("selection: the cap per document lets others move up and never touches the fusion") {
  setup one;
  one.add(page("a", "word one\nword two\nword three\nword four"));
  one.add(page("b", "word and a longer line that scores below the others"));
  rag::query asked = about("word");
  asked.per_document = 2;
  const rag::answer found = one.store.search(asked, one.ana());
  CHECK(ids(found).size() == 3);
  CHECK(found.passages[2].id() == "b.1");
  CHECK(found.passages[2].lexical_rank() == 5);
}

TEST_CASE("selection: the budget stops at the first that does not fit, or fills on by option") {
  setup one;
  std::vector<rag::chunked_document> all;
  const std::vector<std::size_t> tokens{5, 20, 4, 1};
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    all.push_back(
        placed(std::string(1, static_cast<char>('a' + i)), "x", {10, static_cast<float>(i)}));
    all.back().chunks[0].token_count = tokens[i];
  }
  one.add(all);
  rag::query asked = near_to({1, 0});
  asked.token_budget = 10;
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"a"});
  asked.fill_budget = true;
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"a", "c", "d"});
  asked.token_budget = 9;
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"a", "c"});
  asked.token_budget = 30;
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"a", "b", "c", "d"});
  asked.token_budget = 1;
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"d"});
}

TEST_CASE("selection: a budget counts what is searched, by the default counter if none was given") {
  setup one;
  one.add(page("a", words(7)));
  const strings wanted{"a.1"};
  CHECK(one.store.fetch(wanted, one.ana())[0].token_count() == 7);
}

TEST_CASE("pages: by offset they neither repeat nor skip, with and without a reranker") {
  setup one;
  one.add(forty_pages());
  const rag::snapshot pinned = one.store.snapshot();
  const rag::scope reader = one.ana();
  for (const bool reranked : {false, true}) {
    rag::query asked = near_to({1, 0});
    if (reranked) {
      asked.rerank.window = 25;
      asked.rerank.batch_size = 7;
      asked.rerank.score = [](const rag::rerank_request& request) {
        std::vector<double> scores;
        for (const rag::permitted_passage& passage : request.passages) {
          scores.push_back(passage.id().back() - '0');  // many equal scores
        }
        return scores;
      };
    }
    asked.limit = 40;
    const strings all = ids(pinned.search(asked, reader));
    CHECK(all.size() == 40);
    asked.limit = 10;
    strings joined;
    for (std::size_t offset : {0U, 10U, 20U, 30U}) {
      asked.offset = offset;
      if (offset == 20) one.add({placed("d00", "text", {1, 0})});  // between two pages
      for (const std::string& id : ids(pinned.search(asked, reader))) joined.push_back(id);
    }
    CHECK(joined == all);
    for (std::size_t offset : {40U, 41U, 4000U}) {
      asked.offset = offset;
      CHECK(pinned.search(asked, reader).passages.empty());
    }
    one.store.erase("d00");
  }
}

TEST_CASE("order: equal scores go by the bytes of the chunk id, whatever came in first") {
  strings expected;
  for (const bool backwards : {false, true}) {
    setup one;
    std::vector<rag::chunked_document> all;
    for (const char* id : {"b", "\xC3\xA9", "B", "a", "Z", "aa", "10", "9", "c", "d"}) {
      all.push_back(placed(id, "same text", {1, 0}));
    }
    if (backwards) std::reverse(all.begin(), all.end());
    for (const rag::chunked_document& each : all) one.store.upsert(each.source, each.chunks);
    rag::query asked = near_to({1, 0}, "same");
    asked.limit = 5;
    for (int i = 0; i < 20; ++i) {
      CHECK(ids(one.store.search(asked, one.ana())) == strings{"10", "9", "B", "Z", "a"});
    }
  }
}

TEST_CASE("order: one chunk only in the lexical list and one only in the dense list tie by id") {
  setup one;
  one.add({placed("A", "nothing", {1, 0}), placed("B", "word", {0, 0})});
  const rag::answer found = one.store.search(near_to({1, 0}, "word"), one.ana());
  CHECK(ids(found) == strings{"A", "B"});
  CHECK(found.passages[0].score() == doctest::Approx(1.0 / 61));
  CHECK(found.passages[1].score() == doctest::Approx(1.0 / 61));
}

// ---- fetch and count ----------------------------------------------------------------------------

TEST_CASE("fetch: ids come back in the order asked for, unknown and forbidden alike left out") {
  setup one;
  one.add(page("a", "one\ntwo"));
  one.add(page("b", "three", {"board"}));
  const strings wanted{"a.2", "nowhere", "b.1", "a.1", ""};
  CHECK(ids(one.store.fetch(wanted, one.ana())) == strings{"a.2", "a.1"});
  CHECK(one.store.fetch(strings{}, one.ana()).empty());
  CHECK(one.store.snapshot().count(one.ana()) == 2);
  const strings twice{"a.1", "a.1"};
  CHECK(one.store.fetch(twice, one.ana()).size() <= 2);
}

// ---- evidence -----------------------------------------------------------------------------------

TEST_CASE("evidence: the caller's rule sees the raw signals and may call them insufficient") {
  setup one(with_codes());
  one.add({placed("a", "PAY-042 rotated key", {3, 4}), placed("b", "other", {0, 1})});
  rag::query asked = near_to({1, 0}, "PAY-042 rotated unicorn");
  rag::evidence seen;
  asked.limit = 1;
  asked.sufficient = [&](const rag::evidence& signals) {
    seen = signals;
    return false;
  };
  const rag::answer found = one.store.search(asked, one.ana());
  CHECK(found.status == rag::search_status::insufficient);
  CHECK(found.passages.size() == 1);
  CHECK(seen.exact_code);
  CHECK(seen.agreeing_legs == 2);
  REQUIRE(seen.best_similarity);
  CHECK(*seen.best_similarity == doctest::Approx(0.6));
  CHECK_FALSE(seen.best_rerank);
  CHECK(seen.idf_share > 0);
  CHECK(seen.idf_share < 1);
  asked.sufficient = [](const rag::evidence&) -> bool { throw std::runtime_error("rule"); };
  CHECK(code_of(one.store.try_search(asked, one.ana())) == rag::errc::callback_failed);
}

TEST_CASE("evidence: nothing found is no evidence") {
  setup one;
  one.add(page("a", "apple"));
  rag::query asked = about("unicorn");
  asked.sufficient = [](const rag::evidence& signals) { return signals.idf_share > 0; };
  const rag::answer found = one.store.search(asked, one.ana());
  CHECK(found.status == rag::search_status::insufficient);
  CHECK(found.signals.agreeing_legs == 0);
  CHECK_FALSE(found.signals.best_similarity);
}

TEST_CASE("timings: the stages add up to no more than the total") {
  letter_model model;
  setup one(with_model(model));
  one.add(page("a", "apple\nbanana"));
  const rag::stage_timings took = one.store.search(about("apple"), one.ana()).timings;
  const double stages = took.embedding + took.lexical + took.dense + took.recheck + took.fusion +
                        took.rerank + took.selection;
  CHECK(stages <= took.total);
  CHECK(took.rerank <= 0);
}

// ---- updates ------------------------------------------------------------------------------------

TEST_CASE("update: a new revision replaces text, terms, codes, vectors and groups together") {
  letter_model model;
  rag::retriever_options options = with_model(model);
  options.identifiers = {"PAY-###"};
  setup one(options);
  one.permissions.groups[{"", "eve"}] = {"guests"};
  one.add(page("d", "PAY-041 aaaa old\nsecond aa", {"staff"}, 1));
  one.add(page("d", "PAY-043 bbbb fresh", {"guests"}, 2));
  const rag::scope eve = one.store.scope_for({"", "eve"});
  CHECK(ids(one.store.search(about("PAY-043"), eve)) == strings{"d.1"});
  CHECK(one.store.search(about("fresh"), eve).passages[0].revision() == 2);
  CHECK(one.store.search(about("fresh"), one.ana()).passages.empty());
  const rag::answer old = one.store.search(about("old second"), eve);
  CHECK(ids(old) == strings{"d.1"});  // by its vector alone
  CHECK(old.passages[0].lexical_rank() == 0);
  CHECK_FALSE(one.store.search(about("PAY-041"), eve).signals.exact_code);
  CHECK(one.store.snapshot().count(eve) == 1);
}

TEST_CASE("update: a removed section is gone, one section may become two") {
  setup one;
  one.add(page("d", "first part\nsecond part", {"staff"}, 1));
  one.add(page("d", "first part", {"staff"}, 2));
  CHECK(ids(one.store.search(about("part"), one.ana())) == strings{"d.1"});
  CHECK(one.store.search(about("second"), one.ana()).passages.empty());
  one.add(page("d", "first part\nnew part\nthird part", {"staff"}, 3));
  CHECK(ids(one.store.search(about("part"), one.ana())) == strings{"d.1", "d.2", "d.3"});
}

TEST_CASE("update: an older revision is refused, and the same one with other content") {
  setup one;
  one.add(page("d", "revision seven", {"staff"}, 7));
  const auto refused = [&](const rag::document& next) {
    const auto outcome = one.store.try_upsert(next, lines(next));
    CHECK(code_of(outcome) == rag::errc::stale_revision);
    CHECK(outcome.failure().message().find("7") != std::string::npos);
    CHECK(one.store.search(about("seven"), one.ana()).passages.size() == 1);
  };
  refused(page("d", "revision six", {"staff"}, 6));
  refused(page("d", "other words", {"staff"}, 7));
  refused(page("d", "not counted", {"staff"}, 0));
  rag::document same = page("d", "revision seven", {"staff"}, 7);
  same.title = "other title";
  refused(same);
  std::vector<rag::chunk> chunks = lines(page("d", "revision seven", {"staff"}, 7));
  chunks[0].id = "renamed";
  CHECK(code_of(one.store.try_upsert(page("d", "revision seven", {"staff"}, 7), chunks)) ==
        rag::errc::stale_revision);
}

TEST_CASE("update: a document that is refused as stale costs no call of the embedder") {
  letter_model model;
  setup one(with_model(model));
  one.add(page("d", "revision seven", {"staff"}, 7));
  const int before = model.inputs;
  const rag::document old = page("d", "revision six", {"staff"}, 6);
  CHECK_FALSE(one.store.try_upsert(old, lines(old)).ok());
  CHECK(model.inputs.load() == before);
}

TEST_CASE("update: the same revision with the same content does nothing") {
  letter_model model;
  setup one(with_model(model));
  const rag::document source = page("d", "one\ntwo", {"staff"}, 7);
  const rag::update_report first = one.store.upsert(source, lines(source));
  CHECK(first.documents == 1);
  CHECK(first.chunks == 2);
  CHECK(first.embedded == 2);
  CHECK(first.reused == 0);
  const std::uint64_t number = one.store.snapshot().number();
  const rag::update_report again = one.store.upsert(source, lines(source));
  CHECK(again.documents == 0);
  CHECK(again.unchanged == 1);
  CHECK(again.embedded == 0);
  CHECK(one.store.snapshot().number() == number);
  CHECK(model.inputs.load() == 2);
}

TEST_CASE("update: documents that do not count revisions are replaced by whatever comes") {
  setup one;
  one.add(page("d", "first words", {"staff"}, 0));
  one.add(page("d", "second words", {"staff"}, 0));
  CHECK(one.store.search(about("first"), one.ana()).passages.empty());
  CHECK(one.store.search(about("second"), one.ana()).passages.size() == 1);
}

TEST_CASE("update: the same document again does not give back what set_access took") {
  // A crawler that comes by again with the page it already brought has no news about permissions.
  setup one;
  const rag::document source = page("d", "common words", {"staff", "guests"}, 7);
  one.store.upsert(source, lines(source));
  one.store.set_access("d", {"guests"});
  CHECK(one.store.search(about("common"), one.ana()).passages.empty());
  one.store.upsert(source, lines(source));
  CHECK(one.store.search(about("common"), one.ana()).passages.empty());
}

TEST_CASE("update: only inputs that changed are embedded, whatever the batch size") {
  for (const std::size_t batch : {1U, 7U, 100U, 1000U}) {
    letter_model model;
    setup one(with_model(model, batch));
    const auto text_with = [](const std::string& special) {
      std::string text;
      for (int i = 0; i < 250; ++i) {
        text += i == 130 ? special : "line " + std::to_string(i);
        text += '\n';
      }
      return text;
    };
    one.add(page("d", text_with("old"), {"staff"}, 1));
    CHECK(model.inputs.load() == 250);
    CHECK(model.calls.load() == static_cast<int>((250 + batch - 1) / batch));

    one.add(page("d", text_with("old"), {"staff"}, 2));
    CHECK(model.inputs.load() == 250);

    const rag::document next = page("d", text_with("new"), {"staff"}, 3);
    const rag::update_report report = one.store.upsert(next, lines(next));
    CHECK(model.inputs.load() == 251);
    CHECK(model.texts.back() == "new");
    CHECK(report.embedded == 1);
    CHECK(report.reused == 249);
    CHECK(one.store.snapshot().count(one.ana()) == 250);
    rag::query asked = about("old");
    asked.mode = rag::search_mode::lexical;
    CHECK(one.store.search(asked, one.ana()).passages.empty());
  }
}

TEST_CASE("update: vectors follow their text to another chunk, document and order") {
  letter_model model;
  setup one(with_model(model));
  one.add(page("d", "aaa\nbbb\nccc", {"staff"}, 1));
  one.add(page("d", "ccc\naaa\nbbb\nabc", {"staff"}, 2));
  CHECK(model.inputs.load() == 4);
  one.add(page("e", "bbb\nbbb\nbca", {"board"}, 1));
  // Permissions are not in the key, and equal inputs of one update are one.
  CHECK(model.inputs.load() == 5);
  rag::query asked = about("ccc");
  asked.mode = rag::search_mode::dense;
  const rag::answer found = one.store.search(asked, one.ana());
  REQUIRE_FALSE(found.passages.empty());
  CHECK(found.passages[0].text() == "ccc");
  CHECK(*found.passages[0].similarity() == doctest::Approx(1.0));
}

TEST_CASE("update: the heading belongs to the embedded input") {
  letter_model model;
  setup one(with_model(model));
  rag::document source = page("d", "body a", {"staff"}, 1);
  rag::chunk item = piece(source, "x", 0, 6);
  item.heading = "first";
  one.store.upsert(source, {item});
  source.revision = 2;
  item.heading = "second";
  one.store.upsert(source, {item});
  CHECK(model.texts == strings{"first\n\nbody a", "second\n\nbody a"});
}

TEST_CASE("update: whatever the embedder does wrong, nothing is visible and a retry works") {
  using vectors = rag::result<std::vector<std::vector<float>>>;
  using texts = std::span<const std::string_view>;
  struct failure {
    rag::errc code;
    std::function<vectors(texts, std::size_t)> answer;  // texts, number of earlier inputs
  };
  const auto good = [](std::size_t count) {
    return std::vector<std::vector<float>>(count, std::vector<float>{1, 0});
  };
  const auto bad_at_12 = [good](std::vector<float> bad) {
    return [good, bad](texts all, std::size_t before) -> vectors {
      std::vector<std::vector<float>> out = good(all.size());
      if (before <= 12 && 12 < before + all.size()) out[12 - before] = bad;
      return out;
    };
  };
  const std::vector<failure> failures{
      {rag::errc::embedder_failed,
       [good](texts all, std::size_t before) -> vectors {
         if (before + all.size() > 12) throw std::runtime_error("no connection");
         return good(all.size());
       }},
      {rag::errc::embedder_failed,
       [good](texts all, std::size_t before) -> vectors {
         if (before + all.size() > 12) throw 12;
         return good(all.size());
       }},
      {rag::errc::embedder_failed,
       [good](texts all, std::size_t) -> vectors { return good(all.size() - 1); }},
      {rag::errc::embedder_failed,
       [good](texts all, std::size_t) -> vectors { return good(all.size() + 1); }},
      {rag::errc::dimension_mismatch, bad_at_12({1, 0, 0})},
      {rag::errc::dimension_mismatch, bad_at_12({})},
      {rag::errc::not_finite, bad_at_12({nan_value, 0})},
      {rag::errc::not_finite, bad_at_12({0, std::numeric_limits<float>::infinity()})},
      {rag::errc::not_found, [](texts, std::size_t) -> vectors {
         return rag::error(rag::errc::not_found, "no such model");
       }}};
  for (const std::size_t batch : {1U, 5U, 100U}) {
    for (const failure& each : failures) {
      bool failing = false;
      std::size_t inputs = 0;
      rag::retriever_options options;
      options.embed.model = "m";
      options.embed.batch_size = batch;
      options.embed.embed = [&](texts all, rag::text_role) -> vectors {
        const std::size_t before = inputs;
        inputs += all.size();
        return failing ? each.answer(all, before) : good(all.size());
      };
      setup one(options);
      one.add(page("d", "first revision", {"staff"}, 1));
      one.add(page("other", "other words", {"staff"}, 1));
      rag::query asked = about("revision");
      asked.explain = true;
      const std::string before = everything(one.store.search(asked, one.ana()));
      const std::uint64_t number = one.store.snapshot().number();

      std::string text;
      for (int i = 0; i < 40; ++i) text += "revision two line " + std::to_string(i) + "\n";
      const rag::document next = page("d", text, {"staff", "guests"}, 2);
      const rag::document brand_new = page("new", "revision", {"staff"}, 1);
      const std::vector<rag::chunked_document> both{{brand_new, lines(brand_new)},
                                                    {next, lines(next)}};
      failing = true;
      inputs = 0;
      CHECK(code_of(one.store.try_upsert(both)) == each.code);
      failing = false;
      CHECK(everything(one.store.search(asked, one.ana())) == before);
      CHECK(one.store.snapshot().number() == number);
      CHECK_FALSE(one.store.try_erase("new").ok());
      CHECK(one.store.upsert(both).documents == 2);
      CHECK(one.store.snapshot().count(one.ana()) == 42);
    }
  }
}

TEST_CASE("update: an error about a vector names the chunk") {
  rag::retriever_options options;
  options.embed.model = "m";
  options.embed.embed = [](std::span<const std::string_view> texts, rag::text_role) {
    std::vector<std::vector<float>> out(texts.size(), std::vector<float>{1, 0});
    out.back() = {1, nan_value};
    return out;
  };
  setup one(options);
  const rag::document source = page("d", "one\ntwo");
  const auto outcome = one.store.try_upsert(source, lines(source));
  CHECK(code_of(outcome) == rag::errc::not_finite);
  CHECK(outcome.failure().message().find("'d.2'") != std::string::npos);
}

TEST_CASE("update: supplied vectors are checked like embedded ones") {
  setup one;
  one.add({placed("a", "text", {1, 0})});
  const auto refused = [&](std::vector<float> values, const std::string& model, rag::errc code) {
    const rag::document source = page("b", "text");
    rag::chunk item = whole(source).front();
    item.vector = rag::embedding{model, std::move(values)};
    CHECK(code_of(one.store.try_upsert(source, {item})) == code);
    CHECK(one.store.snapshot().count(one.ana()) == 1);
  };
  refused({1, 0}, "m2", rag::errc::model_mismatch);
  refused({1, 0, 0}, "m", rag::errc::dimension_mismatch);
  refused({1}, "m", rag::errc::dimension_mismatch);
  refused({nan_value, 0}, "m", rag::errc::not_finite);
}

TEST_CASE("update: a supplied vector without numbers is refused, not taken for none") {
  setup one;
  const rag::document source = page("b", "text");
  rag::chunk item = with_vector(whole(source).front(), {});
  CHECK(code_of(one.store.try_upsert(source, {item})) == rag::errc::dimension_mismatch);
}

TEST_CASE("update: a zero vector is kept for lexical search and never found by similarity") {
  setup one;
  one.add({placed("a", "word", {0, 0}), placed("b", "other", {1, 0})});
  CHECK(ids(one.store.search(near_to({1, 0}), one.ana())) == strings{"b"});
  CHECK(ids(one.store.search(about("word"), one.ana())) == strings{"a"});
}

TEST_CASE("update: vectors may come later than the first documents") {
  setup one;
  one.add(page("a", "apple words"));
  CHECK(one.store.search(near_to({1, 0}), one.ana()).passages.empty());
  one.add({placed("b", "banana words", {1, 0})});
  CHECK(ids(one.store.search(near_to({1, 0}), one.ana())) == strings{"b"});
  CHECK(one.store.search(near_to({1, 0}, "words"), one.ana()).passages.size() == 2);
}

TEST_CASE("update: a chunk id names one chunk of a tenant") {
  setup one;
  const rag::document a = page("a", "text");
  const rag::document b = page("b", "text");
  one.store.upsert(a, {piece(a, "same", 0, 4)});
  const auto other = one.store.try_upsert(b, {piece(b, "same", 0, 4)});
  CHECK(code_of(other) == rag::errc::duplicate_id);
  CHECK(other.failure().message().find("'same'") != std::string::npos);
  CHECK(code_of(one.store.try_upsert(b, {piece(b, "x", 0, 2), piece(b, "x", 2, 4)})) ==
        rag::errc::duplicate_id);
  const std::vector<rag::chunked_document> twice{{b, {piece(b, "x", 0, 4)}},
                                                 {b, {piece(b, "y", 0, 4)}}};
  CHECK(code_of(one.store.try_upsert(twice)) == rag::errc::duplicate_id);
  CHECK(one.store.snapshot().count(one.ana()) == 1);

  // Two documents may exchange their chunk ids in one step.
  one.store.upsert(b, {piece(b, "x", 0, 4)});
  const rag::document a2 = page("a", "text", {"staff"}, 2);
  const rag::document b2 = page("b", "text", {"staff"}, 2);
  const std::vector<rag::chunked_document> swapped{{a2, {piece(a2, "x", 0, 4)}},
                                                   {b2, {piece(b2, "same", 0, 4)}}};
  CHECK(one.store.upsert(swapped).documents == 2);
}

TEST_CASE("update: ids are any bytes, in any tenant") {
  setup one;
  const rag::document left = page("c", "text", {"staff"}, 1, std::string("a\0b", 3));
  const rag::document right = page(std::string("b\0c", 3), "text", {"staff"}, 1, "a");
  const std::vector<rag::chunked_document> both{{left, whole(left)}, {right, whole(right)}};
  CHECK(one.store.try_upsert(both).ok());
}

TEST_CASE("update: a document that contradicts itself is refused whole") {
  setup one;
  one.add(page("a", "common text"));
  const auto refused = [&](const auto& change) {
    rag::document source = page("b", "common text");
    std::vector<rag::chunk> chunks = whole(source);
    change(source, chunks[0]);
    const rag::document good = page("c", "common text");
    const std::vector<rag::chunked_document> both{{good, whole(good)}, {source, chunks}};
    CHECK(code_of(one.store.try_upsert(both)) == rag::errc::invalid_argument);
    CHECK(one.store.snapshot().count(one.ana()) == 1);
  };
  refused([](rag::document& d, rag::chunk& c) { d.id.clear(), c.document_id.clear(); });
  refused([](rag::document&, rag::chunk& c) { c.id.clear(); });
  refused([](rag::document&, rag::chunk& c) { c.document_id = "other"; });
  refused([](rag::document&, rag::chunk& c) { c.range.end = 12; });
  refused([](rag::document&, rag::chunk& c) { c.range = {5, 4}; });
  refused([](rag::document&, rag::chunk& c) { c.range = {3, static_cast<std::size_t>(-1)}; });
  refused([](rag::document&, rag::chunk& c) { c.range = {3, 8}, c.body = {2, 8}; });
  refused([](rag::document&, rag::chunk& c) { c.range = {3, 8}, c.body = {4, 9}; });
  refused([](rag::document&, rag::chunk& c) { c.range = {3, 8}, c.body = {7, 6}; });
}

TEST_CASE("update: several documents appear in one step or not at all") {
  setup one;
  one.add(page("a", "common text", {"staff"}, 5));
  const rag::document fresh = page("b", "common text");
  const rag::document stale = page("a", "common text old", {"staff"}, 4);
  const rag::document elsewhere = page("z", "common text", {"staff"}, 1, "acme");
  const std::vector<rag::chunked_document> three{
      {elsewhere, lines(elsewhere)}, {fresh, lines(fresh)}, {stale, lines(stale)}};
  CHECK(code_of(one.store.try_upsert(three)) == rag::errc::stale_revision);
  CHECK(ids(one.store.search(about("common"), one.ana())) == strings{"a.1"});
  CHECK_FALSE(one.store.try_erase("z", "acme").ok());
  const std::vector<rag::chunked_document> two{{elsewhere, lines(elsewhere)},
                                               {fresh, lines(fresh)}};
  const std::uint64_t number = one.store.snapshot().number();
  CHECK(one.store.upsert(two).documents == 2);
  CHECK(one.store.snapshot().number() == number + 1);
  CHECK(one.store.upsert(std::vector<rag::chunked_document>{}).documents == 0);
}

TEST_CASE("set_access: nothing is embedded or analysed again") {
  letter_model model;
  int stemmed = 0;
  rag::retriever_options options = with_model(model);
  options.analysis.stem = [&](std::string_view term) {
    ++stemmed;
    return std::string(term);
  };
  setup one(options);
  one.add(page("d", "abc words", {"board"}));
  const int inputs = model.inputs;
  const int terms = stemmed;
  one.store.set_access("d", {"staff"});
  CHECK(model.inputs.load() == inputs);
  CHECK(stemmed == terms);
  const rag::answer found = one.store.search(about("abc"), one.ana());
  REQUIRE(found.passages.size() == 1);
  CHECK(found.passages[0].dense_rank() == 1);
  CHECK(code_of(one.store.try_set_access("nowhere", {"staff"})) == rag::errc::not_found);
  CHECK(code_of(one.store.try_set_access("d", {"staff"}, "acme")) == rag::errc::not_found);
  one.store.set_access("d", {});
  CHECK(one.store.search(about("abc"), one.ana()).passages.empty());
}

TEST_CASE("erase: what is gone takes no place, and an unknown document is an error") {
  setup one;
  std::vector<rag::chunked_document> all;
  for (int i = 0; i < 100; ++i) {
    all.push_back(placed("d" + std::to_string(100 + i), "text", {10, static_cast<float>(i)}));
  }
  one.add(all);
  for (int i = 0; i < 20; ++i) one.store.erase("d" + std::to_string(100 + i));
  rag::query asked = near_to({1, 0});
  asked.limit = 10;
  asked.depth = 10;
  const rag::answer found = one.store.search(asked, one.ana());
  REQUIRE(found.passages.size() == 10);
  CHECK(found.passages[0].id() == "d120");
  CHECK(found.passages[9].id() == "d129");
  CHECK(one.store.snapshot().count(one.ana()) == 80);
  CHECK(code_of(one.store.try_erase("d100")) == rag::errc::not_found);
}

// ---- snapshots ----------------------------------------------------------------------------------

TEST_CASE("snapshot: it keeps its text while the present moves on") {
  setup one;
  one.add(page("d", "first text", {"staff"}, 1));
  const rag::snapshot pinned = one.store.snapshot();
  one.add(page("d", "second text", {"staff"}, 2));
  one.add(page("e", "third text"));
  CHECK(pinned.search(about("text"), one.ana()).passages.size() == 1);
  CHECK(pinned.search(about("text"), one.ana()).passages[0].text() == "first text");
  CHECK(one.store.search(about("text"), one.ana()).passages.size() == 2);
  CHECK(pinned.count(one.ana()) == 1);
}

TEST_CASE("snapshot: it outlives its retriever") {
  judge people;
  people.groups[{"", "ana"}] = {"staff"};
  std::optional<rag::snapshot> pinned;
  {
    rag::retriever_options options;
    options.permissions = &people;
    rag::retriever store(options);
    const rag::document source = page("d", "first text");
    store.upsert(source, lines(source));
    rag::retriever moved = std::move(store);
    pinned = moved.snapshot();
  }
  people.judges = false;
  CHECK(pinned->search(about("text"), rag::scope_for(people, {"", "ana"})).passages.size() == 1);
}

TEST_CASE("snapshot: erased documents and taken permissions are denied in it at once") {
  for (const bool judging : {false, true}) {  // a judge that allows all does not overrule them
    setup one;
    one.permissions.judges = judging;
    rag::document mixed = page("mixed", "common one\ncommon two", {"staff", "guests"});
    std::vector<rag::chunk> chunks = lines(mixed);
    chunks[1].allowed_groups = strings{"staff"};
    one.store.upsert(mixed, chunks);
    one.add(page("gone", "common word"));
    one.add(page("kept", "common word"));
    const rag::snapshot pinned = one.store.snapshot();
    const rag::scope reader = one.ana();
    CHECK(pinned.search(about("common"), reader).passages.size() == 4);
    one.store.erase("gone");
    one.store.set_access("mixed", {"guests"});
    CHECK(ids(pinned.search(about("common"), reader)) == strings{"kept.1"});
    const strings wanted{"gone.1", "mixed.1", "mixed.2", "kept.1"};
    CHECK(ids(pinned.fetch(wanted, reader)) == strings{"kept.1"});
    CHECK(pinned.count(reader) == 1);
  }
}

TEST_CASE("snapshot: what a newer revision no longer holds goes by its document's present groups") {
  setup one;
  rag::document source = page("d", "common one\ncommon two\ncommon three", {"staff"}, 1);
  std::vector<rag::chunk> chunks = lines(source);
  chunks[2].allowed_groups = strings{"staff"};
  one.store.upsert(source, chunks);
  const rag::snapshot pinned = one.store.snapshot();
  one.add(page("d", "common one", {"staff"}, 2));
  // The third had groups of its own, which no record holds any more: no.
  CHECK(ids(pinned.search(about("common"), one.ana())) == strings{"d.1", "d.2"});
  one.add(page("d", "common one", {"board"}, 3));
  CHECK(pinned.search(about("common"), one.ana()).passages.empty());
}

TEST_CASE("snapshot: an id that moved to another document does not carry its permission along") {
  setup one;
  const rag::document a = page("a", "common", {"staff"}, 1);
  one.store.upsert(a, {piece(a, "x", 0, 6)});
  const rag::snapshot pinned = one.store.snapshot();
  one.store.erase("a");
  const rag::document b = page("b", "common", {"staff"}, 1);
  one.store.upsert(b, {piece(b, "x", 0, 6)});
  CHECK(pinned.search(about("common"), one.ana()).passages.empty());
  CHECK(one.store.search(about("common"), one.ana()).passages.size() == 1);
}

// ---- two writers --------------------------------------------------------------------------------

TEST_CASE("writers: two that replace one document at a time leave the higher revision whole") {
  for (const bool late_is_older : {false, true}) {
    // The embedder of the first update lets the second one run to its end in between.
    setup* target = nullptr;
    bool nested = false;
    const auto update_to = [&](std::uint64_t revision) {
      std::string text;
      for (std::uint64_t i = 0; i < revision - 4; ++i) {
        text += "common revision " + std::to_string(revision) + " line " + std::to_string(i) + "\n";
      }
      const rag::document next = page("d", text, {"staff"}, revision);
      return target->store.try_upsert(next, lines(next));
    };
    rag::retriever_options options;
    options.embed.model = "m";
    options.embed.embed = [&](std::span<const std::string_view> texts,
                              rag::text_role role) -> rag::result<std::vector<std::vector<float>>> {
      if (target != nullptr && !nested && role == rag::text_role::document) {
        nested = true;
        CHECK(update_to(late_is_older ? 8 : 7).ok());
      }
      return std::vector<std::vector<float>>(texts.size(), std::vector<float>{1, 0});
    };
    setup one(options);
    one.add(page("d", "common revision 6", {"staff"}, 6));
    target = &one;
    const auto outcome = update_to(late_is_older ? 7 : 8);
    CHECK(outcome.ok() == !late_is_older);
    if (!outcome.ok()) CHECK(outcome.failure().code() == rag::errc::stale_revision);
    CHECK(one.store.snapshot().count(one.ana()) == 4);
    for (const auto& passage : one.store.search(about("common"), one.ana()).passages) {
      CHECK(passage.revision() == 8);
    }
  }
}

#if defined(RAG_RETRIEVE_TEST_HEAP)

TEST_CASE("purge: erased documents leave the memory, also if a snapshot held them for a while") {
  const auto heap = [] {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  setup one;
  const auto fill = [&one](char letter) {
    std::vector<rag::chunked_document> documents;
    for (int i = 0; i < 50; ++i) {
      const rag::document source =
          page("d" + std::to_string(i), std::string(20000, letter), {"staff"});
      documents.push_back({source, whole(source)});
    }
    one.add(std::move(documents));
  };
  const auto erase_all = [&one] {
    for (int i = 0; i < 50; ++i) one.store.erase("d" + std::to_string(i));
  };
  fill('a');
  erase_all();
  one.store.purge();
  const std::size_t empty = heap();
  fill('b');
  CHECK(heap() > empty + 900000);
  erase_all();
  one.store.purge();
  CHECK(heap() < empty + 100000);
  fill('c');
  {
    const rag::snapshot held = one.store.snapshot();
    erase_all();
    one.store.purge();
    CHECK(held.count(one.ana()) == 0);  // held, and read by nobody any more
    CHECK(heap() > empty + 900000);
  }
  one.store.purge();
  CHECK(heap() < empty + 100000);
}

#endif

}  // namespace retriever_tests
