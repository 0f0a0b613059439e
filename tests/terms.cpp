// Section 9: the inverted index, BM25 in whole numbers, exact codes first.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <rag_retrieve.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "made.hpp"

namespace terms_tests {

namespace rag = rag_retrieve;
using made::dice;
using made::random_rows;

static_assert(std::is_aggregate_v<rag::bm25_options>);

namespace {

using strings = std::vector<std::string>;

constexpr double one_unit = 1.0 / 1048576.0;  // 2^-20

rag::term_index index_of(const std::vector<strings>& chunks, rag::bm25_options options = {}) {
  rag::term_index_builder builder(options);
  for (const strings& terms : chunks) builder.add(terms);
  return builder.build();
}

rag::term_index index_of_texts(const strings& texts) {
  rag::term_index_builder builder;
  for (const std::string& text : texts) builder.add(rag::analyse(text));
  return builder.build();
}

rag::row_set rows(std::size_t size, const std::vector<std::size_t>& members) {
  rag::row_set set(size);
  for (const std::size_t row : members) set.insert(row);
  return set;
}

std::vector<std::uint32_t> order_of(const std::vector<rag::lexical_hit>& hits) {
  std::vector<std::uint32_t> order;
  for (const rag::lexical_hit& hit : hits) order.push_back(hit.row);
  return order;
}

/// Searches all rows for a question.
std::vector<rag::lexical_hit> ask(const rag::term_index& index, std::string_view question,
                                  std::size_t k = 10) {
  const rag::row_set all = rag::row_set::all(index.size());
  return index.search(rag::question_terms(question), k, all, all);
}

/// The formula as it stands in the literature, in double, over the readable chunks.
double plain_score(const std::vector<strings>& chunks, const strings& question, std::size_t row,
                   const rag::row_set& readable, const rag::bm25_options& options) {
  double count = 0;
  double total = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (!readable.contains(i)) continue;
    count += 1;
    total += static_cast<double>(chunks[i].size());
  }
  const double average = total / count;
  double score = 0;
  std::map<std::string, bool> seen;
  for (const std::string& term : question) {
    if (!seen.emplace(term, true).second) continue;
    double n = 0;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      if (readable.contains(i) && std::count(chunks[i].begin(), chunks[i].end(), term) > 0) n += 1;
    }
    const auto tf = static_cast<double>(std::count(chunks[row].begin(), chunks[row].end(), term));
    if (tf < 1) continue;
    const double idf = std::log(1 + (count - n + 0.5) / (n + 0.5));
    const auto length = static_cast<double>(chunks[row].size());
    const double norm = options.k1 * (1 - options.b + options.b * length / average);
    score += idf * tf * (options.k1 + 1) / (tf + norm);
  }
  return score;
}

/// Chunks of words w0, w1 ..., the low numbers frequent, some chunks empty.
std::vector<strings> random_chunks(dice& random, std::size_t count) {
  std::vector<strings> chunks(count);
  for (strings& chunk : chunks) {
    const std::size_t length = random.below(8) == 0 ? 0 : random.below(60);
    for (std::size_t i = 0; i < length; ++i) {
      chunk.push_back("w" + std::to_string(random.below(1 + random.below(40))));
    }
  }
  return chunks;
}

strings random_question(dice& random) {
  strings question;
  const std::size_t length = 1 + random.below(8);
  for (std::size_t i = 0; i < length; ++i) {
    question.push_back("w" + std::to_string(random.below(45)));
  }
  return question;
}

// The five chunks of the article, in the order of their ids.
enum article_row : std::uint32_t { e41, e42, e43, guide, runbook };

const char* const article_question =
    "Checkout started showing PAY-042 after I changed the gateway key. How do I get payments "
    "working again?";

strings article_chunks() {
  return {
      "PAY-041: Provider request timed out\n\n"
      "The payment provider did not respond before the request deadline. Check the provider "
      "status and retry policy before changing credentials.",
      "PAY-042: Stored credential was rejected\n\n"
      "Checkout returns PAY-042 when the provider rejects the credential saved for the active "
      "gateway connection. This can happen after the provider key has been rotated but the new "
      "value has not been saved in the product.",
      "PAY-043: Currency is not enabled\n\n"
      "The active gateway account does not accept the checkout currency.",
      "Checkout failures\n\n"
      "Checkout can fail because a gateway is unavailable, a credential is rejected, or a currency "
      "is disabled. Record the error code before changing the payment configuration.",
      "Reconnect a payment gateway\n\n"
      "If a provider API key is rotated, a workspace admin must open Settings > Payments > "
      "Gateways, select the active gateway, replace the stored credential, and choose Verify "
      "connection. Do not disable the gateway first; disabling it\nstops new checkouts while the "
      "connection is being repaired.",
  };
}

}  // namespace

// ---- the article --------------------------------------------------------------------------------

TEST_CASE("article: the posting lists of checkout, credential, rotated, key and gateway") {
  const rag::term_index index = index_of_texts(article_chunks());
  using list = std::vector<std::uint32_t>;
  CHECK(index.rows_with("checkout") == list{e42, e43, guide});
  CHECK(index.rows_with("credential") == list{e42, guide, runbook});
  CHECK(index.rows_with("rotated") == list{e42, runbook});
  CHECK(index.rows_with("key") == list{e42, runbook});
  CHECK(index.rows_with("gateway") == list{e42, e43, guide, runbook});
  CHECK(index.rows_with("refund").empty());
}

TEST_CASE("article: BM25 ranks E42 5.288, R 3.583, E43 1.859, G 1.197, E41 0.728") {
  const auto hits = ask(index_of_texts(article_chunks()), article_question);
  REQUIRE(order_of(hits) == std::vector<std::uint32_t>{e42, runbook, e43, guide, e41});
  const double expected[] = {5.288, 3.583, 1.859, 1.197, 0.728};
  for (std::size_t i = 0; i < hits.size(); ++i) {
    CHECK(hits[i].score() == doctest::Approx(expected[i]).epsilon(0.0005));
  }
}

TEST_CASE("article: who may not read R gets E42 4.624, E43 1.466, G 0.995, E41 0.537") {
  const rag::term_index index = index_of_texts(article_chunks());
  const rag::row_set readable = rows(5, {e41, e42, e43, guide});
  const auto hits = index.search(rag::question_terms(article_question), 10, readable, readable);
  REQUIRE(order_of(hits) == std::vector<std::uint32_t>{e42, e43, guide, e41});
  const double expected[] = {4.624, 1.466, 0.995, 0.537};
  for (std::size_t i = 0; i < hits.size(); ++i) {
    CHECK(hits[i].score() == doctest::Approx(expected[i]).epsilon(0.0005));
  }
}

// ---- the formula --------------------------------------------------------------------------------

TEST_CASE("bm25: a rare term is worth more than a common one, and none is worth nothing") {
  CHECK(rag::bm25_idf(5, 1) == doctest::Approx(std::log(4.0)));
  CHECK(rag::bm25_idf(5, 2) > rag::bm25_idf(5, 4));
  CHECK(rag::bm25_idf(5, 5) > 0.0);
  CHECK(rag::bm25_idf(1000000, 1000000) > 0.0);
}

TEST_CASE("bm25: repeats saturate: each adds less, ten do not count ten times") {
  const rag::bm25_options options;
  double last = 0;
  double last_step = 2;
  for (std::size_t tf = 1; tf <= 50; ++tf) {
    const double weight = rag::bm25_weight(tf, 100, 100.0, options);
    CHECK(weight > last);
    CHECK(weight - last < last_step);
    CHECK(weight < options.k1 + 1);
    last_step = weight - last;
    last = weight;
  }
  CHECK(rag::bm25_weight(1, 100, 100.0, options) == doctest::Approx(1.0));
  CHECK(rag::bm25_weight(10, 100, 100.0, options) < 2.0);
}

TEST_CASE("bm25: a longer chunk needs more occurrences; b = 0 ignores length") {
  CHECK(rag::bm25_weight(2, 50, 100.0, {}) > rag::bm25_weight(2, 200, 100.0, {}));
  const rag::bm25_options flat{.b = 0.0};
  CHECK(rag::bm25_weight(2, 50, 100.0, flat) ==
        doctest::Approx(rag::bm25_weight(2, 200, 100.0, flat)));
  const rag::bm25_options full{.k1 = 2.0, .b = 1.0};
  CHECK(rag::bm25_weight(4, 200, 100.0, full) ==
        doctest::Approx(rag::bm25_weight(2, 100, 100.0, full)));
}

TEST_CASE("bm25: k1 = 0 counts presence only") {
  const rag::bm25_options options{.k1 = 0.0};
  CHECK(rag::bm25_weight(1, 10, 100.0, options) == doctest::Approx(1.0));
  CHECK(rag::bm25_weight(99, 900, 100.0, options) == doctest::Approx(1.0));
  const auto hits = ask(index_of({{"a"}, {"a", "a", "b"}, {"b"}}, options), "a");
  REQUIRE(hits.size() == 2);
  CHECK(hits[0].units == hits[1].units);
  CHECK(order_of(hits) == std::vector<std::uint32_t>{0, 1});
}

TEST_CASE("bm25: the logarithm agrees with the library's to its last bits") {
  dice random{1};
  for (int i = 0; i < 20000; ++i) {
    const std::size_t all = 1 + random.below(std::size_t{1} << (1 + random.below(31)));
    const std::size_t with = 1 + random.below(all);
    const double x =
        1.0 + (static_cast<double>(all - with) + 0.5) / (static_cast<double>(with) + 0.5);
    CHECK(std::fabs(rag::bm25_idf(all, with) - std::log(x)) < 1e-14);
  }
}

TEST_CASE("bm25: whole numbers stay within one unit a term at the ends of all ranges") {
  const std::size_t most = 4294967295U;
  for (const double k1 : {0.0, 1.2, 60.0}) {
    for (const double b : {0.0, 0.75, 1.0}) {
      for (const std::size_t n : {std::size_t{1}, std::size_t{2}, most / 2, most}) {
        for (const std::size_t tf : {std::size_t{1}, std::size_t{7}, most}) {
          const rag::bm25_options options{.k1 = k1, .b = b};
          const double idf = rag::bm25_idf(most, n);
          const double weight = rag::bm25_weight(tf, tf, 50.0, options);
          const std::uint64_t value =
              rag::detail::term_value(rag::detail::to_units(idf, rag::detail::idf_bits),
                                      rag::detail::to_units(weight, rag::detail::weight_bits));
          CHECK(std::fabs(static_cast<double>(value) * one_unit - idf * weight) <= one_unit);
        }
      }
    }
  }
}

// The golden value changes only with the formula, its rounding or this loop, never with a compiler,
// its flags or the platform.
TEST_CASE("bm25: idf and weight have the same bits everywhere") {
  dice random{20};
  std::uint64_t hash = 14695981039346656037U;
  const auto mix = [&](std::uint64_t value) { hash = (hash ^ value) * 1099511628211U; };
  for (int i = 0; i < 20000; ++i) {
    const std::size_t bound = std::size_t{1} << (1 + random.below(30));
    const std::size_t all = 1 + random.below(bound);
    const std::size_t with = 1 + random.below(all);
    mix(rag::detail::to_units(rag::bm25_idf(all, with), rag::detail::idf_bits));
    rag::bm25_options options;
    options.k1 = static_cast<double>(random.below(600)) / 10.0;
    options.b = static_cast<double>(random.below(100)) / 99.0;
    const std::size_t tf = 1 + random.below(50);
    const std::size_t length = random.below(2000);
    const double average = static_cast<double>(random.below(100000)) / 997.0;
    mix(rag::detail::to_units(rag::bm25_weight(tf, length, average, options),
                              rag::detail::weight_bits));
  }
  CHECK(hash == 8411553440821614507U);
}

TEST_CASE("bm25: options outside their limits are invalid_argument") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double k1 : {-0.1, 60.5, nan, infinity}) {
    const auto made = rag::term_index_builder::try_make({.k1 = k1});
    REQUIRE(!made);
    CHECK(made.failure().code() == rag::errc::invalid_argument);
    CHECK(made.failure().message().find("k1") != std::string::npos);
  }
  for (const double b : {-0.1, 1.01, nan}) {
    const auto made = rag::term_index_builder::try_make({.b = b});
    REQUIRE(!made);
    CHECK(made.failure().message().find("must be a number from 0 to 1") != std::string::npos);
  }
  CHECK(rag::term_index_builder::try_make({.k1 = 60.0, .b = 1.0}).ok());
}

// ---- the index ----------------------------------------------------------------------------------

TEST_CASE("terms: scores equal the plain formula within one unit a term, for random scopes") {
  dice random{42};
  for (int round = 0; round < 150; ++round) {
    const rag::bm25_options options{.k1 = static_cast<double>(random.below(5)) * 0.7,
                                    .b = static_cast<double>(random.below(5)) * 0.25};
    const std::size_t size = 1 + random.below(60);
    const auto chunks = random_chunks(random, size);
    const rag::term_index index = index_of(chunks, options);
    const rag::row_set readable = random_rows(random, size, 10 + random.below(91));
    const strings question = random_question(random);
    const double tolerance = static_cast<double>(question.size()) * one_unit;
    const auto hits = index.search(question, size, readable, readable);

    rag::row_set found(size);
    for (std::size_t i = 0; i < hits.size(); ++i) {
      const rag::lexical_hit& hit = hits[i];
      found.insert(hit.row);
      REQUIRE(readable.contains(hit.row));
      const double real = plain_score(chunks, question, hit.row, readable, options);
      CHECK(real > 0.0);
      CHECK(std::fabs(hit.score() - real) <= tolerance);
      if (i == 0) continue;
      const bool in_order = hits[i - 1].units != hit.units ? hits[i - 1].units > hit.units
                                                           : hits[i - 1].row < hit.row;
      CHECK(in_order);
    }
    for (std::size_t row = 0; row < size; ++row) {
      if (found.contains(row) || !readable.contains(row)) continue;
      CHECK(std::fabs(plain_score(chunks, question, row, readable, options)) < 1e-12);
    }
  }
}

TEST_CASE("terms: a scope's result equals that of an index with only its chunks, bit for bit") {
  dice random{7};
  for (int round = 0; round < 100; ++round) {
    const std::size_t size = 1 + random.below(50);
    const auto chunks = random_chunks(random, size);
    const rag::row_set readable = random_rows(random, size, random.below(101));
    const rag::term_index index = index_of(chunks);
    rag::term_index_builder builder;
    std::vector<std::uint32_t> row_in_full;
    for (std::size_t row = 0; row < size; ++row) {
      if (!readable.contains(row)) continue;
      builder.add(chunks[row]);
      row_in_full.push_back(static_cast<std::uint32_t>(row));
    }
    const rag::term_index alone = builder.build();
    const strings question = random_question(random);
    const rag::row_set all = rag::row_set::all(alone.size());
    auto expected = alone.search(question, 10, all, all);
    for (rag::lexical_hit& hit : expected) hit.row = row_in_full[hit.row];
    CHECK(index.search(question, 10, readable, readable) == expected);
  }
}

TEST_CASE("terms: a narrower `among` picks from the same scores") {
  dice random{8};
  const auto chunks = random_chunks(random, 80);
  const rag::term_index index = index_of(chunks);
  const rag::row_set readable = random_rows(random, 80, 70);
  rag::row_set among(80);
  for (std::size_t row = 0; row < 80; row += 3) among.insert(row);  // not all of them readable
  const strings question{"w1", "w5", "w9"};
  std::vector<rag::lexical_hit> expected;
  for (const rag::lexical_hit& hit : index.search(question, 80, readable, readable)) {
    if (among.contains(hit.row)) expected.push_back(hit);
  }
  CHECK(!expected.empty());
  CHECK(index.search(question, 80, readable, among) == expected);
}

TEST_CASE("terms: scores do not depend on the order of chunks, of terms, or of the question") {
  dice random{9};
  const auto chunks = random_chunks(random, 40);
  const strings question{"w0", "w3", "w17", "w2"};
  const rag::row_set all = rag::row_set::all(40);
  std::vector<std::uint64_t> units(40, 0);
  for (const auto& hit : index_of(chunks).search(question, chunks.size(), all, all))
    units[hit.row] = hit.units;

  for (int round = 0; round < 20; ++round) {
    std::vector<std::size_t> place(40);
    std::iota(place.begin(), place.end(), std::size_t{0});
    for (std::size_t i = 39; i > 0; --i) std::swap(place[i], place[random.below(i + 1)]);
    rag::term_index_builder builder;
    for (const std::size_t original : place) {
      strings terms = chunks[original];
      std::reverse(terms.begin(), terms.end());
      builder.add(terms);
    }
    const rag::term_index shuffled = builder.build();
    strings turned = question;
    std::rotate(turned.begin(), turned.begin() + round % 4, turned.end());
    const auto hits = shuffled.search(turned, 40, all, all);
    for (const rag::lexical_hit& hit : hits) CHECK(hit.units == units[place[hit.row]]);
    CHECK(static_cast<std::size_t>(std::count_if(
              units.begin(), units.end(), [](std::uint64_t u) { return u != 0; })) == hits.size());
  }
}

TEST_CASE("terms: explain gives the score of search, term by term") {
  dice random{10};
  for (int round = 0; round < 50; ++round) {
    const std::size_t size = 1 + random.below(40);
    const auto chunks = random_chunks(random, size);
    const rag::term_index index = index_of(chunks);
    const rag::row_set readable = random_rows(random, size, 80);
    const strings question = random_question(random);
    for (const rag::lexical_hit& hit : index.search(question, size, readable, readable)) {
      const rag::score_explanation why = index.explain(hit.row, question, readable);
      CHECK(why.chunk_count == readable.count());
      CHECK(why.length == chunks[hit.row].size());
      double sum = 0;
      for (const rag::term_explanation& term : why.terms) {
        CHECK(term.tf == static_cast<std::size_t>(std::count(chunks[hit.row].begin(),
                                                             chunks[hit.row].end(), term.term)));
        CHECK(std::fabs(term.value - term.idf * term.weight) <= one_unit);
        sum += term.value;
      }
      CHECK(static_cast<std::uint64_t>(why.score / one_unit) == hit.units);
      CHECK(static_cast<std::uint64_t>(sum / one_unit) == hit.units);
    }
  }
}

TEST_CASE("terms: idf and contains answer for one term, over the readable rows") {
  const rag::term_index index = index_of({{"a", "b"}, {"a"}, {"a", "secret"}});
  const rag::row_set readable = rows(3, {0, 1});
  CHECK(index.idf("b", readable) == doctest::Approx(rag::bm25_idf(2, 1)));
  CHECK(index.idf("a", readable) == doctest::Approx(rag::bm25_idf(2, 2)));
  CHECK(index.idf("secret", readable) == doctest::Approx(index.idf("unknown", readable)));
  CHECK(index.contains(0, "b"));
  CHECK(!index.contains(1, "b"));
  CHECK(!index.contains(1, "unknown"));
  CHECK(!index.contains(77, "a"));
}

TEST_CASE("terms: explain tells nothing of a row that is not readable") {
  const rag::term_index index = index_of({{"a", "b"}, {"a", "secret"}});
  const rag::row_set readable = rows(2, {0});
  const rag::score_explanation hidden = index.explain(1, strings{"secret"}, readable);
  CHECK(hidden.terms.empty());
  CHECK(hidden.length == 0);
  const rag::score_explanation missing = index.explain(99, strings{"secret"}, readable);
  CHECK(missing.terms.empty());
  const rag::score_explanation shown = index.explain(0, strings{"secret", "unknown"}, readable);
  REQUIRE(shown.terms.size() == 2);  // a hidden term looks like one that nobody ever wrote
  CHECK(shown.terms[0].n == 0);
  CHECK(shown.terms[0].idf == doctest::Approx(shown.terms[1].idf));
}

TEST_CASE("terms: k = 0, no terms, no rows, no readable rows give no hits") {
  const rag::term_index index = index_of({{"a"}, {"b"}});
  const rag::row_set all = rag::row_set::all(2);
  const rag::row_set none(2);
  CHECK(index.search(strings{"a"}, 0, all, all).empty());
  CHECK(index.search(strings{}, 10, all, all).empty());
  CHECK(index.search(strings{"a"}, 10, none, none).empty());
  CHECK(index.search(strings{"a"}, 10, none, all).empty());
  CHECK(index.search(strings{"a"}, 10, rag::row_set(), rag::row_set()).empty());
  const rag::term_index empty;
  CHECK(empty.search(strings{"a"}, 10, rag::row_set(), rag::row_set()).empty());
  CHECK(empty.explain(0, strings{"a"}, rag::row_set()).terms.empty());
}

// ---- cases from the trackers of other engines ---------------------------------------------------

TEST_CASE("terms: camel case is folded on both sides") {
  const rag::term_index index = index_of_texts({"class OvertimeService", "overtime rules"});
  CHECK(order_of(ask(index, "OvertimeService")) == std::vector<std::uint32_t>{0});
  CHECK(ask(index, "overtimeservice") == ask(index, "OvertimeService"));
}

TEST_CASE("terms: n counts chunks, not occurrences") {
  const rag::term_index index = index_of_texts(
      {"oak oak oak oak oak oak oak oak oak oak", "elm elm elm elm oak", "ash ash elm yew oak"});
  const auto hits = ask(index, "oak");
  REQUIRE(hits.size() == 3);
  CHECK(hits[0].row == 0);
  const rag::row_set all = rag::row_set::all(3);
  const auto why = index.explain(0, strings{"oak"}, all);
  CHECK(why.terms[0].n == 3);
  CHECK(why.terms[0].tf == 10);
  CHECK(why.terms[0].idf > 0.0);
}

TEST_CASE("terms: a deleted chunk leaves the statistics at once") {
  const strings kept{"red fox", "red hen", "blue hen"};
  strings with_deleted = kept;
  with_deleted.push_back("gone red red");
  const rag::row_set live = rows(4, {0, 1, 2});
  const strings question{"red", "hen"};
  CHECK(index_of_texts(with_deleted).search(question, 10, live, live) ==
        ask(index_of_texts(kept), "red hen"));

  const rag::term_index two = index_of_texts({"field a", "field b"});
  const rag::row_set second = rows(2, {1});
  CHECK(two.search(strings{"a"}, 10, second, second).empty());
  const auto left = two.search(strings{"b"}, 10, second, second);
  REQUIRE(left.size() == 1);
  CHECK(left[0].units == ask(index_of_texts({"field b"}), "b")[0].units);
}

TEST_CASE("terms: replacing a chunk by the same text changes no score") {
  const auto before = ask(index_of_texts({"alpha beta", "alpha gamma", "beta"}), "alpha beta");
  const rag::term_index after =
      index_of_texts({"alpha beta", "alpha gamma", "beta", "alpha gamma"});
  const rag::row_set live = rows(4, {0, 2, 3});
  const auto hits = after.search(strings{"alpha", "beta"}, 10, live, live);
  REQUIRE(hits.size() == before.size());
  for (std::size_t i = 0; i < hits.size(); ++i) CHECK(hits[i].units == before[i].units);
}

TEST_CASE("terms: an empty chunk among others is counted and never returned") {
  const auto hits = ask(index_of_texts({"", "alpha beta", "alpha"}), "alpha");
  CHECK(order_of(hits) == std::vector<std::uint32_t>{2, 1});
  CHECK(ask(index_of_texts({"", "", ""}), "anything at all").empty());
}

TEST_CASE("terms: k is a bound, chunks without a term of the question fill nothing up") {
  const rag::term_index index = index_of_texts(
      {"javascript widgets ship weekly", "java widgets ship weekly", "python widgets ship weekly",
       "ruby widgets ship weekly", "perl widgets ship weekly"});
  CHECK(order_of(ask(index, "Java", 5)) == std::vector<std::uint32_t>{1});
}

TEST_CASE("terms: equal scores stand in order of rows, and a shorter list is a prefix") {
  const rag::term_index index = index_of_texts(strings(500, "tie word"));
  const auto longest = ask(index, "tie", 100);
  REQUIRE(longest.size() == 100);
  for (std::uint32_t i = 0; i < 100; ++i) CHECK(longest[i].row == i);
  for (const std::size_t k : {std::size_t{3}, std::size_t{10}}) {
    const auto shorter = ask(index, "tie", k);
    CHECK(std::equal(shorter.begin(), shorter.end(), longest.begin()));
    CHECK(shorter.size() == k);
  }
}

TEST_CASE("terms: a term that the question repeats counts once") {
  const rag::term_index index = index_of_texts({"error error log", "error handling", "handling"});
  const rag::row_set all = rag::row_set::all(3);
  const strings repeated{"error", "error", "handling"};
  CHECK(index.search(repeated, 10, all, all) == ask(index, "error handling"));
  CHECK(index.explain(0, repeated, all).terms.size() == 2);
}

TEST_CASE("terms: only common words still rank by them") {
  const rag::term_index index =
      index_of_texts({"to be or not to be", "being and nothing", "not this or that"});
  const auto hits = ask(index, "to be or not to be");
  REQUIRE(hits.size() == 2);
  CHECK(hits[0].row == 0);
}

TEST_CASE("terms: a question of thousands of words is one pass over their lists") {
  dice random{11};
  const rag::term_index index = index_of(random_chunks(random, 50));
  strings question;
  for (int i = 0; i < 5000; ++i) question.push_back("w" + std::to_string(i % 60));
  const rag::row_set all = rag::row_set::all(50);
  const strings once(question.begin(), question.begin() + 60);
  CHECK(index.search(question, 50, all, all) == index.search(once, 50, all, all));
}

TEST_CASE("terms: any bytes are a term") {
  const std::string odd("\0\xFF\x80 x", 5);
  const rag::term_index index = index_of({{odd, "a"}, {"a", ""}});
  const rag::row_set all = rag::row_set::all(2);
  CHECK(order_of(index.search(strings{odd}, 10, all, all)) == std::vector<std::uint32_t>{0});
  CHECK(order_of(index.search(strings{""}, 10, all, all)) == std::vector<std::uint32_t>{1});
}

// ---- exact codes --------------------------------------------------------------------------------

TEST_CASE("codes: rows are counted by different codes, whatever the order and the repeats") {
  rag::identifier_index codes;
  codes.add(5, "pay-042", false);
  codes.add(2, "pay-042", true);
  codes.add(5, "pay-041", false);
  codes.add(5, "pay-042", true);
  codes.add(9, "pay-0421", true);
  const rag::row_set all = rag::row_set::all(10);
  const auto hits = codes.look_up(strings{"pay-041", "pay-042", "pay-042"}, all);
  REQUIRE(order_of(hits) == std::vector<std::uint32_t>{2, 5});
  CHECK(hits[0].exact == 1);
  CHECK(hits[0].exact_in_heading);
  CHECK(hits[1].exact == 2);
  CHECK(hits[1].exact_in_heading);
  CHECK(codes.look_up(strings{"pay-04", "xpay-042"}, all).empty());
  CHECK(order_of(codes.look_up(strings{"pay-042"}, rows(10, {5}))) ==
        std::vector<std::uint32_t>{5});
}

TEST_CASE("codes: more codes, then a heading, then BM25, then row") {
  const rag::term_index index =
      index_of({{"x", "x", "x"}, {"a"}, {"x", "a"}, {"a"}, {"x", "x", "a"}, {"x"}, {"x"}});
  rag::identifier_index codes;
  codes.add(1, "one", true);
  codes.add(2, "one", false);
  codes.add(3, "one", false);
  codes.add(3, "two", false);
  codes.add(4, "one", false);
  const rag::row_set all = rag::row_set::all(7);
  const strings terms{"x"};
  const strings asked{"one", "two"};
  const auto hits = rag::search_lexical(index, codes, terms, asked, 10, all, all);
  // 3 has two codes, 1 one in its heading and no term; 4 and 2 by BM25; the rest has no code.
  CHECK(order_of(hits) == std::vector<std::uint32_t>{3, 1, 4, 2, 0, 5, 6});
  CHECK(hits[0].units == 0);
  CHECK(hits[2].units > hits[3].units);

  for (std::size_t k = 0; k < 8; ++k) {
    const auto shorter = rag::search_lexical(index, codes, terms, asked, k, all, all);
    CHECK(std::equal(shorter.begin(), shorter.end(), hits.begin()));
    CHECK(shorter.size() == (std::min)(k, hits.size()));
  }
  const auto by_score = rag::search_lexical(index, codes, terms, asked, 10, all, all, false);
  CHECK(order_of(by_score) == std::vector<std::uint32_t>{0, 5, 6, 4, 2, 1, 3});
  CHECK(by_score.back().exact == 2);
}

TEST_CASE("codes: a row that is not readable is no hit, by code or by term") {
  const rag::term_index index = index_of({{"a"}, {"a"}});
  rag::identifier_index codes;
  codes.add(0, "one", true);
  codes.add(1, "one", true);
  const rag::row_set readable = rows(2, {1});
  const rag::row_set all = rag::row_set::all(2);
  CHECK(order_of(rag::search_lexical(index, codes, strings{"a"}, strings{"one"}, 10, readable,
                                     all)) == std::vector<std::uint32_t>{1});
}

TEST_CASE("article: PAY-042 brings E42 to the top whatever else the question says") {
  const strings texts = article_chunks();
  const rag::term_index index = index_of_texts(texts);
  const auto finder = rag::identifier_finder::make({.patterns = {"PAY-###"}});
  rag::identifier_index codes;
  for (std::uint32_t row = 0; row < texts.size(); ++row) {
    for (const auto& found : finder.find(texts[row])) codes.add(row, found.value, true);
  }
  const rag::row_set all = rag::row_set::all(5);
  const auto search = [&](const std::string& question) {
    strings asked;
    for (const auto& found : finder.find(question)) asked.push_back(found.value);
    return rag::search_lexical(index, codes, rag::question_terms(question), asked, 10, all, all);
  };
  CHECK(order_of(search(article_question)) ==
        std::vector<std::uint32_t>{e42, runbook, e43, guide, e41});
  CHECK(order_of(search("currency checkout account enabled (pay-042)"))[0] == e42);
  for (const rag::lexical_hit& hit : search("PAY-0421")) CHECK(hit.exact == 0);  // found by 'pay'
}

TEST_CASE("bm25: with count_repeats a word of the question counts as often as it stands there") {
  const std::vector<strings> chunks{{"error", "error", "log"}, {"error", "handling"}, {"handling"}};
  rag::term_index_builder once, each_time({.count_repeats = true});
  for (const strings& chunk : chunks) {
    once.add(chunk);
    each_time.add(chunk);
  }
  const rag::term_index first = once.build();
  const rag::term_index second = each_time.build();
  const rag::row_set all = rag::row_set::all(3);
  const auto score = [&](const rag::term_index& index, const strings& terms, std::uint32_t row) {
    return index.explain(row, terms, all).score;
  };
  const strings repeated = rag::question_terms("Error, error: handling", {}, true);
  CHECK(repeated == strings{"error", "error", "handling"});
  CHECK(rag::question_terms("Error, error: handling") == strings{"error", "handling"});
  for (std::uint32_t row = 0; row < 3; ++row) {
    CHECK(score(first, repeated, row) == score(first, {"error", "handling"}, row));
    CHECK(score(second, repeated, row) ==
          2 * score(first, {"error"}, row) + score(first, {"handling"}, row));
  }
  for (const rag::lexical_hit& hit : second.search(repeated, 3, all, all)) {
    CHECK(hit.score() == score(second, repeated, hit.row));
  }
  CHECK(second.explain(0, repeated, all).terms[0].times == 2);
  CHECK(first.explain(0, repeated, all).terms[0].times == 1);
}

}  // namespace terms_tests
