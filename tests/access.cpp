#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <rag_retrieve.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "fakes.hpp"

namespace access_tests {

namespace rag = rag_retrieve;
using namespace fakes;

// What the types alone forbid; tests/must_not_compile shows the same from a caller's side.
static_assert(!std::is_default_constructible_v<rag::scope>);
static_assert(!std::is_constructible_v<rag::scope, rag::principal>);
static_assert(!std::is_constructible_v<rag::scope, rag::principal, strings>);
static_assert(!std::is_default_constructible_v<rag::permitted_passage>);
static_assert(!std::is_constructible_v<rag::permitted_passage, rag::detail::passage_data>);
static_assert(!std::is_constructible_v<rag::permitted_passage, rag::chunk>);
static_assert(!std::is_constructible_v<rag::detail::gate, const rag::scope&>);
static_assert(!std::is_copy_constructible_v<rag::access_directory>);
static_assert(!std::is_convertible_v<rag::operator_trace, rag::reader_trace>);

namespace {

/// Twenty pages p01 to p20 of one chunk each. The word "common" is in all; the question's vector
/// (1, 0) is nearest to p01, then p02 and so on.
std::vector<rag::chunked_document> twenty_pages() {
  std::vector<rag::chunked_document> out;
  for (int i = 1; i <= 20; ++i) {
    const std::string id = (i < 10 ? "p0" : "p") + std::to_string(i);
    out.push_back(placed(id, "common text", {20.0F, static_cast<float>(i)}));
  }
  return out;
}

strings first_pages(int from, int to) {
  strings out;
  for (int i = from; i <= to; ++i) out.push_back((i < 10 ? "p0" : "p") + std::to_string(i));
  return out;
}

rag::query first_three() {
  rag::query asked = near_to({1, 0}, "common");
  asked.limit = 3;
  return asked;
}

const rag::principal ana_alone{"", "ana"};

}  // namespace

// ---- scopes -------------------------------------------------------------------------------------

TEST_CASE("scope: an unknown user, an emptied user and a user of another tenant are nobody") {
  rag::access_directory people;
  people.set_groups({"", "ana"}, {"staff"});
  CHECK(rag::scope_for(people, {"", "ana"}).groups() == strings{"staff"});
  CHECK(rag::scope_for(people, {"", "bob"}).groups().empty());
  CHECK(rag::scope_for(people, {"acme", "ana"}).groups().empty());
  CHECK(rag::scope_for(people, {"", ""}).groups().empty());
  people.set_groups({"", "ana"}, {});
  CHECK(rag::scope_for(people, {"", "ana"}).groups().empty());
}

TEST_CASE("scope: groups match whole and case-sensitive, and no list is nobody") {
  rag::access_directory people;
  people.set_groups({"", "ana"}, {"staff", "payments-ops"});
  const rag::scope ana = rag::scope_for(people, {"", "ana"});
  CHECK(ana.meets(strings{"other", "staff"}));
  CHECK_FALSE(ana.meets(strings{"Staff"}));
  CHECK_FALSE(ana.meets(strings{"payments"}));
  CHECK_FALSE(ana.meets(strings{"payments-ops "}));
  CHECK_FALSE(ana.meets(strings{}));
  CHECK_FALSE(ana.meets(strings{""}));
}

TEST_CASE("scope: the empty string is not a group, whoever says so") {
  rag::access_directory people;
  const auto set = people.try_set_groups({"", "ana"}, {"staff", ""});
  REQUIRE_FALSE(set.ok());
  CHECK(set.failure().code() == rag::errc::invalid_argument);
  CHECK(rag::scope_for(people, {"", "ana"}).groups().empty());  // nothing of it was taken

  judge source;
  source.groups[{"", "ana"}] = {"", "staff", ""};
  const rag::scope ana = rag::scope_for(source, {"", "ana"});
  CHECK(ana.groups() == strings{"staff"});
  CHECK_FALSE(ana.meets(strings{""}));
}

TEST_CASE("scope: a source that fails makes no scope, and its words stay with it") {
  judge source;
  const auto failure_of = [&source] {
    const auto made = rag::try_scope_for(source, {"", "ana"});
    REQUIRE_FALSE(made.ok());
    CHECK(made.failure().code() == rag::errc::permission_failed);
    CHECK(made.failure().message().find("SECRET") == std::string::npos);
    CHECK(made.failure().message().find("'ana'") != std::string::npos);
  };
  source.answer_groups = [](const rag::principal&) -> rag::result<strings> {
    return rag::error(rag::errc::callback_failed, "group SECRET is locked");
  };
  failure_of();
  source.answer_groups = [](const rag::principal&) -> rag::result<strings> {
    throw std::runtime_error("table SECRET is missing");
  };
  failure_of();
  source.answer_groups = [](const rag::principal&) -> rag::result<strings> {
    throw rag::error(rag::errc::not_found, "SECRET");
  };
  failure_of();
  source.answer_groups = [](const rag::principal&) -> rag::result<strings> { throw 7; };
  failure_of();
}

TEST_CASE("scope: a retriever without a permission source knows nobody") {
  const rag::retriever store;
  const auto made = store.try_scope_for({"", "ana"});
  REQUIRE_FALSE(made.ok());
  CHECK(made.failure().code() == rag::errc::permission_failed);
}

TEST_CASE("scope: a scope of another permission source is refused by search, fetch and count") {
  setup one;
  one.add(page("d", "secret words"));
  rag::access_directory forged;
  forged.set_groups({"", "ana"}, {"staff"});
  const rag::scope outsider = rag::scope_for(forged, {"", "ana"});
  CHECK(one.store.try_search(about("secret"), outsider).failure().code() ==
        rag::errc::invalid_argument);
  const strings wanted{"d.1"};
  CHECK_FALSE(one.store.try_fetch(wanted, outsider).ok());
  CHECK_FALSE(one.store.snapshot().try_count(outsider).ok());
}

// ---- who reads what -----------------------------------------------------------------------------

TEST_CASE("access: nobody reads by any path after his last group is gone") {
  setup one({.identifiers = {"PAY-###"}});
  one.add(page("d", "Checkout returns PAY-042 today"));
  const strings wanted{"d.1"};
  const rag::scope before = one.ana();
  CHECK(ids(one.store.search(about("PAY-042"), before)) == strings{"d.1"});
  CHECK(one.store.fetch(wanted, before).size() == 1);
  CHECK(one.store.snapshot().count(before) == 1);

  one.permissions.groups[{"", "ana"}] = {};
  for (const rag::scope& reader : {before, one.ana()}) {
    CHECK(ids(one.store.search(about("PAY-042"), reader)).empty());
    CHECK(ids(one.store.search(about("checkout returns"), reader)).empty());
    CHECK(one.store.fetch(wanted, reader).empty());
    CHECK(one.store.snapshot().count(reader) == 0);
  }
}

TEST_CASE("access: a chunk or document without groups is for nobody, an empty group is refused") {
  setup one;
  one.add(page("open", "common word"));
  one.add(page("closed", "common word", {}));
  rag::document mixed = page("mixed", "common first\ncommon second");
  std::vector<rag::chunk> chunks = lines(mixed);
  chunks[0].allowed_groups = strings{};
  one.store.upsert(mixed, chunks);
  CHECK(ids(one.store.search(about("common"), one.ana())) == strings{"mixed.2", "open.1"});

  const rag::document bad = page("bad", "common", {"staff", ""});
  CHECK(one.store.try_upsert(bad, lines(bad)).failure().code() == rag::errc::invalid_argument);
  chunks[0].allowed_groups = strings{""};
  mixed.revision = 2;
  CHECK(one.store.try_upsert(mixed, chunks).failure().code() == rag::errc::invalid_argument);
  CHECK(one.store.try_set_access("open", {""}).failure().code() == rag::errc::invalid_argument);
  CHECK(ids(one.store.search(about("common"), one.ana())) == strings{"mixed.2", "open.1"});
}

TEST_CASE("access: a chunk's groups may be narrower than its document's, never wider") {
  setup one;
  one.permissions.groups[{"", "eve"}] = {"guests"};
  rag::document source = page("d", "common first\ncommon second", {"staff", "guests"});
  std::vector<rag::chunk> chunks = lines(source);
  chunks[0].allowed_groups = strings{"staff"};
  one.store.upsert(source, chunks);
  const rag::scope eve = one.store.scope_for({"", "eve"});
  CHECK(ids(one.store.search(about("common"), eve)) == strings{"d.2"});
  CHECK(ids(one.store.search(about("common"), one.ana())) == strings{"d.1", "d.2"});

  chunks[0].allowed_groups = strings{"staff", "board"};
  source.revision = 2;
  const auto refused = one.store.try_upsert(source, chunks);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.failure().code() == rag::errc::invalid_argument);
  CHECK(refused.failure().message().find("'board'") != std::string::npos);

  // Nor does it become wider later: what both lists allow.
  one.store.set_access("d", {"guests"});
  CHECK(ids(one.store.search(about("common"), eve)) == strings{"d.2"});
  CHECK(ids(one.store.search(about("common"), one.ana())).empty());
  one.store.set_access("d", {"staff", "guests"});
  CHECK(ids(one.store.search(about("common"), eve)) == strings{"d.2"});
  CHECK(ids(one.store.search(about("common"), one.ana())) == strings{"d.1", "d.2"});
}

TEST_CASE("access: tenants are apart, also with the same user, group, document and chunk ids") {
  setup one({.identifiers = {"PAY-###"}});
  one.permissions.groups[{"acme", "ana"}] = {"staff"};
  one.add(page("d", "our PAY-042 words"));
  one.add(page("d", "acme PAY-042 words twice words", {"staff"}, 9, "acme"));
  const rag::scope here = one.ana();
  const rag::scope there = one.store.scope_for({"acme", "ana"});
  const strings wanted{"d.1"};

  const rag::answer ours = one.store.search(about("PAY-042 words"), here);
  REQUIRE(ours.passages.size() == 1);
  CHECK(ours.passages[0].text() == "our PAY-042 words");
  CHECK(one.store.fetch(wanted, here)[0].revision() == 1);
  CHECK(one.store.fetch(wanted, there)[0].revision() == 9);
  CHECK(one.store.snapshot().count(here) == 1);

  // An update or erase in one changes nothing in the other, not even statistics.
  const std::string before = everything(one.store.search(about("PAY-042 words"), here));
  one.store.set_access("d", {}, "acme");
  one.store.erase("d", "acme");
  CHECK(everything(one.store.search(about("PAY-042 words"), here)) == before);
  CHECK(one.store.search(about("PAY-042 words"), there).passages.empty());
  CHECK_FALSE(one.store.try_erase("d", "nowhere").ok());
}

TEST_CASE("access: BM25 finds nothing in what the reader may not see, nor counts it") {
  setup one;
  for (int i = 1; i <= 9; ++i) {
    const std::string id = "d" + std::to_string(i);
    one.add(page(id, i == 7 ? "unicorn here" : "plain here", {i <= 3 ? "staff" : "board"}));
  }
  CHECK(one.store.search(about("unicorn"), one.ana()).passages.empty());
  rag::query asked = about("here");
  asked.explain = true;
  const rag::answer found = one.store.search(asked, one.ana());
  REQUIRE(found.trace.bm25.size() == 3);
  CHECK(found.trace.bm25[0].second.chunk_count == 3);
  REQUIRE(found.trace.bm25[0].second.terms.size() == 1);
  CHECK(found.trace.bm25[0].second.terms[0].n == 3);
  CHECK(found.trace.candidates.size() == 3);
  CHECK(one.store.snapshot().count(one.ana()) == 3);
}

TEST_CASE("access: five readable chunks among a thousand are all found, nearest first") {
  setup one;
  std::vector<rag::chunked_document> many;
  for (int i = 0; i < 1000; ++i) {
    const bool readable = i % 200 == 0;
    const float away = readable ? 500.0F + static_cast<float>(i) : static_cast<float>(i) / 100.0F;
    many.push_back(placed("d" + std::to_string(1000 + i), "text", {10.0F, away},
                          {readable ? "staff" : "board"}));
  }
  one.add(many);
  rag::query asked = near_to({1, 0});
  asked.limit = 5;
  asked.depth = 5;
  CHECK(ids(one.store.search(asked, one.ana())) ==
        strings{"d1000", "d1200", "d1400", "d1600", "d1800"});
}

// ---- the first recheck --------------------------------------------------------------------------

TEST_CASE("gate: every candidate is asked about in one batch before anything is shown") {
  setup one;
  one.permissions.judges = true;
  one.add(twenty_pages());
  std::vector<strings> batches;
  one.permissions.answer = [&](std::span<const rag::chunk_key> keys) -> judge::verdicts {
    batches.emplace_back();
    for (const rag::chunk_key& key : keys) {
      CHECK(key.document_id == key.chunk_id);
      batches.back().emplace_back(key.chunk_id);
    }
    return std::vector<rag::verdict>(keys.size(), rag::verdict::allow);
  };
  CHECK(ids(one.store.search(first_three(), one.ana())) == first_pages(1, 3));
  REQUIRE(batches.size() == 1);  // both legs together, each chunk once
  CHECK(batches[0] == first_pages(1, 20));
}

TEST_CASE("gate: deny and unknown beat any group, and a denied chunk leaves no gap") {
  for (const rag::verdict no :
       {rag::verdict::deny, rag::verdict::unknown, static_cast<rag::verdict>(77)}) {
    setup one;
    one.permissions.judges = true;
    one.add(twenty_pages());
    one.permissions.answer = [no](std::span<const rag::chunk_key> keys) -> judge::verdicts {
      std::vector<rag::verdict> out;
      for (const rag::chunk_key& key : keys) {
        out.push_back(key.chunk_id == "p02" ? no : rag::verdict::allow);
      }
      return out;
    };
    const rag::answer found = one.store.search(first_three(), one.ana());
    CHECK(ids(found) == strings{"p01", "p03", "p04"});
    for (std::size_t i = 0; i < found.passages.size(); ++i) {
      CHECK(found.passages[i].lexical_rank() == i + 1);
      CHECK(found.passages[i].dense_rank() == i + 1);
    }
    const strings wanted{"p02", "p03"};
    CHECK(ids(one.store.fetch(wanted, one.ana())) == strings{"p03"});
    CHECK(one.store.snapshot().count(one.ana()) == 19);
  }
}

TEST_CASE("gate: a leg that lost candidates is filled from behind until k readable are found") {
  setup one;
  one.permissions.judges = true;
  one.add(twenty_pages());
  one.permissions.deny(first_pages(1, 13));
  for (const bool dense_only : {true, false}) {
    rag::query asked = first_three();
    asked.depth = 3;
    if (dense_only) asked.mode = rag::search_mode::dense;
    const rag::answer found = one.store.search(asked, one.ana());
    CHECK(ids(found) == first_pages(14, 16));
    CHECK(found.passages[0].dense_rank() == 1);
  }
  rag::query all = first_three();
  all.depth = 3;
  all.limit = 100;
  CHECK(ids(one.store.search(all, one.ana())) == first_pages(14, 16));
  all.depth = 100;
  CHECK(ids(one.store.search(all, one.ana())) == first_pages(14, 20));
  one.permissions.deny(first_pages(1, 20));
  CHECK(one.store.search(all, one.ana()).passages.empty());
}

TEST_CASE("gate: refilling can be bounded, and what was asked and denied stays out") {
  setup one;
  one.permissions.judges = true;
  one.add(twenty_pages());
  one.permissions.deny(first_pages(1, 5));
  rag::query asked = first_three();
  asked.depth = 3;
  asked.recheck_rounds = 1;
  CHECK(one.store.search(asked, one.ana()).passages.empty());
  CHECK(one.permissions.asked.load() == 1);
  asked.recheck_rounds = 2;
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"p06"});
  CHECK(one.permissions.asked.load() == 3);
}

TEST_CASE("gate: a source that throws, fails or miscounts denies everything and says nothing") {
  using keys_of = std::span<const rag::chunk_key>;
  const std::vector<std::function<judge::verdicts(keys_of)>> failures{
      [](keys_of) -> judge::verdicts { throw std::runtime_error("SECRET p01"); },
      [](keys_of) -> judge::verdicts { throw 5; },
      [](keys_of) -> judge::verdicts {
        return rag::error(rag::errc::callback_failed, "SECRET p01");
      },
      [](keys_of keys) -> judge::verdicts {
        return std::vector<rag::verdict>(keys.size() - 1, rag::verdict::allow);
      },
      [](keys_of keys) -> judge::verdicts {
        return std::vector<rag::verdict>(keys.size() + 1, rag::verdict::allow);
      },
      [](keys_of) -> judge::verdicts { return std::vector<rag::verdict>{}; }};
  for (const auto& failure : failures) {
    setup one;
    one.permissions.judges = true;
    one.add(twenty_pages());
    one.permissions.answer = failure;
    rag::query asked = first_three();
    asked.explain = true;
    const rag::result<rag::answer> found = one.store.try_search(asked, one.ana());
    REQUIRE(found.ok());
    CHECK(found->passages.empty());
    CHECK(found->trace.candidates.empty());
    CHECK(everything(*found).find("SECRET") == std::string::npos);
    CHECK(everything(*found).find("p01") == std::string::npos);
    const strings wanted{"p01"};
    CHECK(one.store.fetch(wanted, one.ana()).empty());
    CHECK(one.store.snapshot().count(one.ana()) == 0);
  }
}

TEST_CASE("gate: a source that fails is not asked again and again in one search") {
  // With a time-out behind each question, twenty rounds would take twenty time-outs.
  setup one;
  one.permissions.judges = true;
  one.add(twenty_pages());
  one.permissions.answer = [](std::span<const rag::chunk_key>) -> judge::verdicts {
    return rag::error(rag::errc::callback_failed, "timed out");
  };
  rag::query asked = first_three();
  asked.depth = 1;
  const rag::answer found = one.store.search(asked, one.ana());
  CHECK(found.passages.empty());
  CHECK(one.permissions.asked.load() == 1);
  CHECK(found.status == rag::search_status::degraded);  // not the same as "nothing was found"
}

TEST_CASE("gate: a source without verdicts is asked for the groups again") {
  setup one;
  one.permissions.judges = false;
  one.add(twenty_pages());
  const rag::scope before = one.ana();
  CHECK(one.store.search(first_three(), before).passages.size() == 3);
  one.permissions.groups[{"", "ana"}] = {"other"};
  CHECK(one.store.search(first_three(), before).passages.empty());
  one.permissions.groups[{"", "ana"}] = {"staff"};
  CHECK(one.store.search(first_three(), before).passages.size() == 3);
  one.permissions.answer_groups = [](const rag::principal&) -> rag::result<strings> {
    throw std::runtime_error("SECRET");
  };
  const rag::answer found = one.store.search(first_three(), before);
  CHECK(found.passages.empty());
  CHECK(everything(found).find("SECRET") == std::string::npos);
}

TEST_CASE("gate: groups gained since the scope was made do not widen it") {
  setup one;
  one.add(page("a", "common words"));
  one.add(page("b", "common words", {"board"}));
  const rag::scope before = one.ana();
  one.permissions.groups[{"", "ana"}] = {"staff", "board"};
  CHECK(ids(one.store.search(about("common"), before)) == strings{"a.1"});
  CHECK(ids(one.store.search(about("common"), one.ana())) == strings{"a.1", "b.1"});
}

// ---- spies --------------------------------------------------------------------------------------

TEST_CASE("gate: forbidden bytes reach no passage, reranker, trace, note, count or error") {
  const std::string forbidden = "FORBIDDEN";
  for (const bool record_is_stale : {false, true}) {  // true: only the recheck knows it
    letter_model model;
    std::string seen;
    std::vector<rag::operator_trace> operators;
    rag::retriever_options options{.embed = model.embedder(), .identifiers = {"PAY-###"}};
    options.on_search = [&](const rag::operator_trace& trace) { operators.push_back(trace); };
    setup one(options);
    one.permissions.judges = true;

    rag::document secret = page("FORBIDDEN-doc", "# FORBIDDEN\n\nrotated credential PAY-042 aaa",
                                {record_is_stale ? "staff" : "board"});
    secret.title = "FORBIDDEN title";
    secret.metadata["key"] = std::string("FORBIDDEN");
    rag::chunk item = piece(secret, "FORBIDDEN-chunk", 0, secret.text.size());
    item.body = {13, secret.text.size()};
    item.heading = "FORBIDDEN";
    item.heading_path = {"FORBIDDEN"};
    item.anchor = "FORBIDDEN";
    item.parent_id = "FORBIDDEN-parent";
    item.identifiers = {"PAY-777", "FORBIDDEN"};
    one.store.upsert(secret, {piece(secret, item.parent_id, 0, secret.text.size()), item});
    one.add(page("open", "credential words aa\nrotated words a\nPAY-042 words b"));
    one.permissions.deny({"FORBIDDEN-chunk"});

    for (const std::string& text :
         {std::string("PAY-042"), std::string("rotated credential PAY-777"),
          std::string("forbidden"), std::string("aaa aaa"), std::string("FORBIDDEN-chunk")}) {
      rag::query asked = about(text);
      asked.explain = true;
      asked.limit = 2;
      asked.token_budget = 5;
      asked.rerank.score =
          [&](const rag::rerank_request& request) -> rag::result<std::vector<double>> {
        writer out;
        for (const rag::permitted_passage& passage : request.passages) write(out, passage);
        seen += out.text();
        return std::vector<double>(request.passages.size(), 1.0);
      };
      asked.sufficient = [&](const rag::evidence& signals) {
        CHECK((text != "rotated credential PAY-777" || !signals.exact_code));
        return true;
      };
      const auto found = one.store.try_search(asked, one.ana());
      seen += everything(found);
    }
    const strings wanted{"FORBIDDEN-chunk", "FORBIDDEN-doc"};
    CHECK(one.store.fetch(wanted, one.ana()).empty());
    CHECK(one.store.snapshot().count(one.ana()) == 3);
    CHECK(seen.find(forbidden) == std::string::npos);

    // The operator's trace may name it: by id, never by text.
    REQUIRE_FALSE(operators.empty());
    std::string denied;
    for (const rag::operator_trace& trace : operators) {
      for (const rag::permission_check& each : trace.checks) {
        for (const std::string& id : each.denied) denied += id + " ";
      }
    }
    CHECK((denied.find("FORBIDDEN-chunk") != std::string::npos) == record_is_stale);
    CHECK(denied.find("credential") == std::string::npos);
  }
}

TEST_CASE("gate: the operator's trace has the full counts, the reader's only his own") {
  std::vector<rag::operator_trace> operators;
  rag::retriever_options options;
  options.on_search = [&](const rag::operator_trace& trace) { operators.push_back(trace); };
  setup one(options);
  one.permissions.judges = true;
  for (int i = 0; i < 10; ++i) {
    one.add(page("d" + std::to_string(i), "the key was rotated", {i < 4 ? "staff" : "board"}));
  }
  one.permissions.deny({"d3.1"});
  rag::query asked = about("rotated");
  asked.explain = true;
  const rag::answer found = one.store.search(asked, one.ana());
  CHECK(found.passages.size() == 3);
  CHECK(found.trace.candidates.size() == 3);
  CHECK(found.trace.bm25.size() == 3);
  REQUIRE(operators.size() == 1);
  CHECK(operators[0].who.user == "ana");
  CHECK(operators[0].chunk_count == 10);
  CHECK(operators[0].readable == 4);
  REQUIRE(operators[0].checks.size() == 1);
  CHECK(operators[0].checks[0].asked == 4);
  CHECK(operators[0].checks[0].denied == strings{"d3.1"});
}

// ---- directory ----------------------------------------------------------------------------------

TEST_CASE("directory: user and tenant are compared apart, whatever bytes they hold") {
  rag::access_directory people;
  people.set_groups({std::string("a\0b", 3), "c"}, {"one"});
  people.set_groups({"a", std::string("b\0c", 3)}, {"two"});
  CHECK(rag::scope_for(people, {std::string("a\0b", 3), "c"}).groups() == strings{"one"});
  CHECK(rag::scope_for(people, {"a", std::string("b\0c", 3)}).groups() == strings{"two"});
  people.set_groups({"a", std::string("b\0c", 3)}, {"two", "two", "one"});
  CHECK(rag::scope_for(people, {"a", std::string("b\0c", 3)}).meets(strings{"one"}));
}

}  // namespace access_tests
