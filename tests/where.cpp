// Conditions on metadata: what a value meets, and that every leg keeps to them inside the scope.
#include <doctest/doctest.h>

#include <limits>
#include <rag_retrieve.hpp>
#include <string>
#include <vector>

#include "fakes.hpp"

namespace where_tests {

namespace rag = rag_retrieve;
using namespace fakes;

namespace {

bool met(const rag::metadata_value& value, const rag::condition& wanted) {
  return rag::meets(value, wanted).value();
}
rag::errc failure(const rag::metadata_value& value, const rag::condition& wanted) {
  const auto outcome = rag::meets(value, wanted);
  REQUIRE_FALSE(outcome.ok());
  return outcome.failure().code();
}

rag::document page_with(std::string id, std::string text,
                        std::map<std::string, rag::metadata_value> metadata,
                        strings groups = {"staff"}) {
  rag::document out = page(std::move(id), std::move(text), std::move(groups));
  out.metadata = std::move(metadata);
  return out;
}

strings found_where(setup& one, std::vector<rag::condition> where, std::string text = "key") {
  rag::query asked = about(std::move(text));
  asked.where = std::move(where);
  strings found = ids(one.store.search(asked, one.ana()));
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

TEST_CASE("where: a text, a number and a list are what they were made of") {
  CHECK(rag::metadata_value("de").type() == rag::metadata_value::kind::text);
  CHECK(rag::metadata_value("de").text() == "de");
  CHECK(rag::metadata_value(2026).type() == rag::metadata_value::kind::number);
  CHECK(rag::metadata_value(2026) == rag::metadata_value(2026.0));
  CHECK(rag::metadata_value(strings{"a", "b"}).texts() == strings{"a", "b"});
  CHECK_FALSE(rag::metadata_value("1") == rag::metadata_value(1));
  CHECK(rag::metadata_value() == rag::metadata_value(""));
}

TEST_CASE("where: equal to one of several; a list meets it by any of its texts") {
  CHECK(met("en", {.key = "lang", .any_of = {"en", "de"}}));
  CHECK_FALSE(met("EN", {.key = "lang", .any_of = {"en", "de"}}));
  CHECK(met(7, {.key = "n", .any_of = {6, 7}}));
  CHECK(met(strings{"a", "b"}, {.key = "tags", .any_of = {"b"}}));
  CHECK_FALSE(met(strings{}, {.key = "tags", .any_of = {"b"}}));
  CHECK(met(strings{"a", "b"}, {.key = "tags", .any_of = {strings{"a", "b"}}}));
  CHECK_FALSE(met(strings{"b", "a"}, {.key = "tags", .any_of = {strings{"a", "b"}}}));
  CHECK(met("x", {.key = "lang"}));
}

TEST_CASE("where: ranges hold their ends; texts compare by bytes, so that dates do as dates") {
  CHECK(met(2020, {.key = "year", .from = 2020, .to = 2020}));
  CHECK_FALSE(met(2019.5, {.key = "year", .from = 2020}));
  CHECK_FALSE(met(2021, {.key = "year", .to = 2020}));
  CHECK(met("2026-12-01", {.key = "day", .from = "2026-11-30", .to = "2026-12-31"}));
  CHECK_FALSE(met("2026-02-01", {.key = "day", .from = "2026-11-30"}));
  CHECK_FALSE(met(5, {.key = "n", .any_of = {1, 5}, .from = 6}));
}

TEST_CASE("where: negation turns the whole condition round") {
  CHECK_FALSE(met("draft", {.key = "state", .any_of = {"draft"}, .negated = true}));
  CHECK(met("final", {.key = "state", .any_of = {"draft"}, .negated = true}));
  CHECK(met(1, {.key = "n", .from = 2, .to = 3, .negated = true}));
}

TEST_CASE("where: values of another kind are an error that names the key and not the value") {
  CHECK(failure("secret", {.key = "year", .from = 2020}) == rag::errc::wrong_type);
  CHECK(failure(7, {.key = "lang", .any_of = {"en"}}) == rag::errc::wrong_type);
  CHECK(failure("en", {.key = "lang", .any_of = {1}}) == rag::errc::wrong_type);
  CHECK(failure(strings{"a"}, {.key = "tags", .from = "a"}) == rag::errc::wrong_type);
  CHECK(failure("a", {.key = "tags", .from = strings{"a"}}) == rag::errc::wrong_type);
  const auto outcome = rag::meets("secret", {.key = "year", .from = 2020});
  CHECK(outcome.failure().message() ==
        "where: 'year' is not everywhere a number, as this condition needs it");
}

TEST_CASE("where: every leg keeps to it, in one segment and in several") {
  for (const bool together : {true, false}) {
    CAPTURE(together);
    setup one({.identifiers = {"PAY-###"}});
    std::vector<rag::chunked_document> all;
    for (int i = 0; i < 40; ++i) {
      const std::string id = (i < 10 ? "d0" : "d") + std::to_string(i);
      rag::document source =
          page_with(id, "key PAY-042 " + id, {{"n", i}, {"lang", i % 2 == 0 ? "en" : "de"}});
      std::vector<rag::chunk> chunks{
          with_vector(whole(source).front(), {1.0F, static_cast<float>(i)})};
      if (together) {
        all.push_back({source, chunks});
      } else {
        one.store.upsert(source, chunks);
      }
    }
    if (together) one.add(all);
    const strings wanted{"d20", "d22"};
    const std::vector<rag::condition> where{{.key = "lang", .any_of = {"en"}},
                                            {.key = "n", .from = 19, .to = 23}};
    CHECK(found_where(one, where) == wanted);
    CHECK(found_where(one, where, "PAY-042") == wanted);
    rag::query asked = near_to({1.0F, 0.0F});
    asked.where = where;
    CHECK(ids(one.store.search(asked, one.ana())) == wanted);  // nearer ones are filtered inside
    asked.depth = 1;
    CHECK(ids(one.store.search(asked, one.ana())) == strings{"d20"});
    CHECK(found_where(one, {{.key = "colour", .any_of = {"red"}}}).empty());
    CHECK(found_where(one, {{.key = "colour", .any_of = {"red"}, .negated = true}}).empty());
  }
}

TEST_CASE("where: statistics stay the scope's, so scores do not move") {
  setup one;
  one.add(page_with("a", "key key lock", {{"lang", "en"}}));
  one.add(page_with("b", "key lock lock lock", {{"lang", "de"}}));
  one.add(page_with("c", "lock", {}));
  const auto score = [&](std::vector<rag::condition> where) {
    rag::query asked = about("key");
    asked.where = std::move(where);
    return one.store.search(asked, one.ana()).passages.front().score();
  };
  CHECK(score({}) == score({{.key = "lang", .any_of = {"en"}}}));
}

TEST_CASE("where: a document that the reader may not see neither meets it nor makes it fail") {
  setup one;
  one.add(page_with("open", "key", {{"year", 2024}}));
  one.add(page_with("closed", "key", {{"year", "FORBIDDEN"}}, {"board"}));
  CHECK(found_where(one, {{.key = "year", .from = 2020}}) == strings{"open.1"});
  one.add(page_with("open2", "key", {{"year", "unknown"}}));
  rag::query asked = about("key");
  asked.where = {{.key = "year", .from = 2020}};
  const auto outcome = one.store.try_search(asked, one.ana());
  REQUIRE_FALSE(outcome.ok());
  CHECK(outcome.failure().code() == rag::errc::wrong_type);
  CHECK(outcome.failure().message().find("unknown") == std::string::npos);
}

TEST_CASE("where: what the permission source denies does not make it fail either") {
  setup one;
  one.permissions.judges = true;
  rag::document good = page("a", "word\n");
  good.metadata["year"] = 2026;
  rag::document bad = page("b", "word\n");  // its record is more open than the source's word
  bad.metadata["year"] = "secret";
  one.add(good);
  one.add(bad);
  rag::query asked = about("word");
  asked.where = {{.key = "year", .from = 2020}};
  CHECK(one.store.try_search(asked, one.ana()).failure().code() == rag::errc::wrong_type);
  one.permissions.deny({"b.1"});
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"a.1"});
}

TEST_CASE("where: a number that is not finite is refused when it comes in") {
  setup one;
  const rag::document bad =
      page_with("bad", "key", {{"year", std::numeric_limits<double>::quiet_NaN()}});
  const auto outcome = one.store.try_upsert(bad, lines(bad));
  REQUIRE_FALSE(outcome.ok());
  CHECK(outcome.failure().code() == rag::errc::not_finite);
  CHECK(outcome.failure().message().find("'year'") != std::string::npos);
}

TEST_CASE("where: values of different kinds in one condition are refused, whatever is stored") {
  setup one;
  rag::query asked = about("key");
  for (const rag::condition& bad :
       {rag::condition{.key = "year", .any_of = {"2020", 2021}},
        rag::condition{.key = "year", .from = "2020", .to = 2021},
        rag::condition{.key = "year", .any_of = {2020}, .from = "2020"}}) {
    asked.where = {bad};
    const auto outcome = one.store.try_search(asked, one.ana());
    REQUIRE_FALSE(outcome.ok());
    CHECK(outcome.failure().code() == rag::errc::wrong_type);
    CHECK(outcome.failure().message().find("'year'") != std::string::npos);
  }
}

}  // namespace where_tests
