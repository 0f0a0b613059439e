// Section 15: measures, percentiles, intervals, TREC files, and the variants of a retriever side by
// side. The values of a whole run are computed apart, by tests/measures.py.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <rag_retrieve.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "fakes.hpp"

namespace evaluation_tests {

namespace {

namespace rag = rag_retrieve;
using rag::measure;
using strings = std::vector<std::string>;

rag::judged_question needs(std::string id, strings required, std::string kind = "") {
  rag::judged_question out;
  out.id = std::move(id);
  out.kind = std::move(kind);
  out.required = std::move(required);
  return out;
}

rag::ranked_list listed(std::string question, strings ids) {
  rag::ranked_list out;
  out.question = std::move(question);
  out.ids = std::move(ids);
  return out;
}

rag::ranked_list handed(std::string question, strings ids, strings sent) {
  rag::ranked_list out = listed(std::move(question), std::move(ids));
  out.sent = std::move(sent);
  return out;
}

rag::evaluation evaluate(std::vector<rag::judged_question> questions,
                         std::vector<rag::ranked_list> lists, std::size_t k = 10) {
  return rag::evaluate(questions, lists, {.k = k});
}

double mean(const rag::evaluation& found, measure which) { return found.overall[which].value; }
double only(const rag::evaluation& found, measure which) {
  return found.questions.at(0)[which].value_or(-1);
}

std::optional<std::string> read_set(const std::string& name) {
  const char* folder = std::getenv("RAG_RETRIEVE_DATASETS");
  if (folder == nullptr) return std::nullopt;
  std::ifstream file(std::string(folder) + "/" + name, std::ios::binary);
  REQUIRE_MESSAGE(file.good(), name);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

std::uint64_t bits_of(double value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
double double_of(std::uint64_t bits) {
  double value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace

static_assert(std::is_aggregate_v<rag::judged_question>);
static_assert(std::is_aggregate_v<rag::ranked_list>);
static_assert(std::is_aggregate_v<rag::evaluation_options>);
static_assert(std::is_aggregate_v<rag::bootstrap_options>);
static_assert(std::is_aggregate_v<rag::ablation_options>);

// ---- random numbers -----------------------------------------------------------------------------

TEST_CASE("random numbers: the first of seed 1234567 are those of the published splitmix64") {
  rag::detail::random_source random(1234567);
  CHECK(random.next() == 6457827717110365317U);
  CHECK(random.next() == 3203168211198807973U);
  CHECK(random.next() == 9817491932198370423U);
  CHECK(random.next() == 4593380528125082431U);
}

TEST_CASE("random numbers: bounded draws stay below the bound and reach every number") {
  rag::detail::random_source random(7);
  std::map<std::uint64_t, int> drawn;
  for (int i = 0; i < 6000; ++i) ++drawn[random.below(6)];
  CHECK(drawn.size() == 6);
  for (const auto& [number, times] : drawn) {
    CHECK(number < 6);
    CHECK(times > 850);
    CHECK(times < 1150);
  }
  CHECK(random.below(1) == 0);
  CHECK(random.below(0) == 0);
  for (int i = 0; i < 1000; ++i) {
    const double value = random.unit();
    CHECK((value >= 0 && value < 1));
  }
}

// ---- measures -----------------------------------------------------------------------------------

TEST_CASE("evaluation: nDCG, AP, RR, P and recall of a list worked by hand") {
  rag::judged_question question{.id = "q"};
  question.judgements = {{"a", 3}, {"b", 0}, {"c", 1}, {"d", 2}, {"e", -1}};
  const auto found = evaluate({question}, {listed("q", {"b", "a", "x", "c"})}, 3);
  // Relevant: a 3, d 2, c 1. In the first three: a at rank 2.
  const double best = 3 / 1.0 + 2 / std::log2(3.0) + 1 / 2.0;
  CHECK(only(found, measure::ndcg) == doctest::Approx(3 / std::log2(3.0) / best).epsilon(1e-12));
  CHECK(only(found, measure::average_precision) ==
        doctest::Approx((1.0 / 2 + 2.0 / 4) / 3).epsilon(1e-12));
  CHECK(only(found, measure::reciprocal_rank) == doctest::Approx(0.5));
  CHECK(only(found, measure::precision) == doctest::Approx(1.0 / 3));
  CHECK(only(found, measure::recall) == doctest::Approx(1.0 / 3));
  CHECK(only(found, measure::unjudged) == doctest::Approx(1.0 / 3));  // x; b was judged
  CHECK(found.questions[0].first_required_rank == 2);
  CHECK_FALSE(found.questions[0][measure::budget_recall].has_value());
}

TEST_CASE("evaluation: the best order has nDCG 1, and P@k divides by k however short the list") {
  rag::judged_question question{.id = "q"};
  question.judgements = {{"a", 3}, {"b", 2}};
  const auto found = evaluate({question}, {listed("q", {"a", "b"})});
  CHECK(only(found, measure::ndcg) == doctest::Approx(1.0));
  CHECK(only(found, measure::precision) == doctest::Approx(0.2));
  CHECK(only(found, measure::recall) == doctest::Approx(1.0));
}

TEST_CASE("evaluation: the order is the list's; scores and names of ids change nothing") {
  for (const auto& [first, second] : {std::pair{"b", "c"}, std::pair{"y", "a"}}) {
    rag::ranked_list list = listed("q", {first, second});
    list.scores = {1.0, 1.0};
    CHECK(evaluate({needs("q", {first})}, {list}).questions[0].first_required_rank == 1);
    list.scores = {1.0, 5.0};
    CHECK(evaluate({needs("q", {first})}, {list}).questions[0].first_required_rank == 1);
  }
}

TEST_CASE("evaluation: repeats on either side are made sets and reported") {
  const auto found =
      evaluate({needs("q", {"A", "B", "A"})}, {handed("q", {"A", "A", "X"}, {"A", "A", "X"})});
  CHECK(only(found, measure::recall) == doctest::Approx(0.5));
  CHECK(only(found, measure::budget_recall) == doctest::Approx(0.5));
  CHECK(found.repeated_results == std::vector<rag::evaluation_note>{{"q", "A"}});
  CHECK(found.repeated_judgements == std::vector<rag::evaluation_note>{{"q", "A"}});
  for (std::size_t i = 0; i < rag::measure_count; ++i) {
    const auto value = found.questions[0].values[i];
    if (value) CHECK((*value >= 0 && *value <= 1));
  }
}

TEST_CASE("evaluation: no measure leaves 0 to 1, whatever the lists") {
  rag::detail::random_source random(3);
  for (int round = 0; round < 300; ++round) {
    rag::judged_question question{.id = "q"};
    rag::ranked_list list{.question = "q"};
    for (std::uint64_t i = random.below(6); i > 0; --i) {
      question.judgements.push_back(
          {std::to_string(random.below(8)), static_cast<int>(random.below(5)) - 1});
    }
    for (std::uint64_t i = random.below(3); i > 0; --i) {
      question.required.push_back(std::to_string(random.below(8)));
    }
    for (std::uint64_t i = random.below(2); i > 0; --i) {
      question.forbidden.push_back(std::to_string(random.below(8)));
    }
    for (std::uint64_t i = random.below(12); i > 0; --i) {
      list.ids.push_back(std::to_string(random.below(10)));
    }
    list.sent = list.ids;
    list.sent->resize(list.ids.size() / 2);
    const auto found = evaluate({question}, {list}, 1 + random.below(12));
    for (const auto& value : found.questions[0].values) {
      if (value) CHECK((*value >= 0 && *value <= 1 + 1e-12));
    }
  }
}

TEST_CASE("evaluation: recall at the budget looks at what is sent, recall at k at the list") {
  const auto found = evaluate({needs("q", {"A", "B"})}, {handed("q", {"A", "X", "B"}, {"A", "X"})});
  CHECK(only(found, measure::recall) == doctest::Approx(1.0));
  CHECK(only(found, measure::budget_recall) == doctest::Approx(0.5));
  CHECK(only(found, measure::all_required) == doctest::Approx(0.0));
  CHECK(only(evaluate({needs("q", {"A", "B"})}, {listed("q", {"A", "X", "B"})}, 3),
             measure::all_required) == doctest::Approx(1.0));
}

TEST_CASE("evaluation: a required passage that is nowhere has no rank, and its reciprocal is 0") {
  const auto found = evaluate({needs("q", {"A"})}, {listed("q", {"X", "Y"})});
  CHECK(found.questions[0].first_required_rank == 0);
  CHECK(only(found, measure::first_required) == doctest::Approx(0.0));
}

TEST_CASE("evaluation: judged questions without a result count 0, unjudged ones are named") {
  std::vector<rag::judged_question> questions;
  std::vector<rag::ranked_list> lists;
  for (int i = 0; i < 10; ++i) {
    const std::string id = "q" + std::to_string(i);
    questions.push_back(needs(id, {"A"}));
    if (i < 7) lists.push_back(handed(id, {"A"}, {"A"}));
    if (i == 7) lists.push_back(handed(id, {}, {}));
  }
  lists.push_back({.question = "q9", .failure = "the embedder did not answer"});
  lists.push_back(listed("other", {"A"}));
  const auto found = evaluate(questions, lists);
  CHECK(found.overall.questions == 10);
  for (const measure which : {measure::recall, measure::ndcg, measure::budget_recall}) {
    CHECK(mean(found, which) == doctest::Approx(0.7));
    CHECK(found.overall[which].n == 10);
  }
  CHECK(found.overall[measure::unjudged].n == 7);
  CHECK(found.with(rag::question_outcome::no_result) == strings{"q7", "q8"});
  CHECK(found.with(rag::question_outcome::failed) == strings{"q9"});
  CHECK(found.failures == std::vector<rag::evaluation_note>{{"q9", "the embedder did not answer"}});
  CHECK(found.unjudged_questions == strings{"other"});
}

TEST_CASE("evaluation: means are kept by kind as well, each with its own n") {
  const auto found = evaluate({needs("1", {"A"}, "exact-code"), needs("2", {"A"}, "paraphrase"),
                               needs("3", {"A", "B"}, "paraphrase")},
                              {listed("1", {"A"}), listed("2", {"X"}), listed("3", {"A", "B"})});
  CHECK(found.by_kind.size() == 2);
  CHECK(found.by_kind.at("exact-code")[measure::recall].n == 1);
  CHECK(found.by_kind.at("paraphrase")[measure::recall].n == 2);
  CHECK(found.by_kind.at("paraphrase")[measure::recall].value == doctest::Approx(0.5));
  CHECK(found.by_kind.at("paraphrase")[measure::all_required].value == doctest::Approx(0.5));
}

TEST_CASE("evaluation: questions without an answer have no recall and numbers of their own") {
  std::vector<rag::judged_question> questions;
  std::vector<rag::ranked_list> lists;
  for (int i = 0; i < 20; ++i) {
    const std::string id = "q" + std::to_string(i);
    const bool answerable = i >= 3;
    questions.push_back(answerable ? needs(id, {"A"}) : needs(id, {}, "unanswerable"));
    lists.push_back(handed(id, {"A", "B", "C", "D", "E"}, {"A", "B"}));
    lists.back().sufficient = i != 0 && i != 19;
  }
  const auto found = evaluate(questions, lists);
  CHECK(found.overall.questions == 17);
  CHECK(found.overall[measure::recall].n == 17);
  CHECK(mean(found, measure::recall) == doctest::Approx(1.0));
  CHECK(found.unanswerable.questions == 3);
  CHECK(found.unanswerable.returned == 3);
  CHECK(found.unanswerable.with_rule == 3);
  CHECK(found.unanswerable.passed_rule == 2);
  CHECK(found.unanswerable.insufficient == 1);
  CHECK(found.wrongly_insufficient == 1);
  CHECK_FALSE(found.questions[0][measure::recall].has_value());
  CHECK(found.by_kind.count("unanswerable") == 0);
}

TEST_CASE("evaluation: required but forbidden is its own outcome; its appearance is a leak") {
  rag::judged_question question = needs("q", {"A", "B"});
  question.forbidden = {"B"};
  const auto kept = evaluate({question, needs("r", {"A"})}, {listed("q", {"A"}), listed("r", {})});
  CHECK(kept.with(rag::question_outcome::forbidden) == strings{"q"});
  CHECK(kept.overall[measure::recall].n == 1);  // not a miss: the mean does not know it
  CHECK(kept.leaks.empty());
  const auto leaked = evaluate({question}, {handed("q", {"A", "B"}, {"B"})});
  CHECK(leaked.leaks == std::vector<rag::evaluation_note>{{"q", "B"}});
}

TEST_CASE("evaluation: what is relevant but forbidden leaves the sets, and is no unjudged one") {
  rag::judged_question question{.id = "q"};
  question.judgements = {{"A", 1}, {"B", 3}};
  question.forbidden = {"B"};
  const auto found = evaluate({question}, {listed("q", {"B", "A"})});
  CHECK(found.questions[0].outcome == rag::question_outcome::measured);
  CHECK(only(found, measure::recall) == doctest::Approx(1.0));
  CHECK(only(found, measure::unjudged) == doctest::Approx(0.0));
  CHECK(found.leaks.size() == 1);
  question.judgements = {{"A", 0}, {"B", 3}};
  CHECK(evaluate({question}, {}).questions[0].outcome == rag::question_outcome::forbidden);
}

TEST_CASE("evaluation: questions without a relevant judgement are left out and named") {
  rag::judged_question question{.id = "q"};
  question.judgements = {{"A", 0}};
  const auto found = evaluate({question}, {listed("q", {"A"})});
  CHECK(found.overall.questions == 0);
  CHECK(found.overall[measure::ndcg].n == 0);
  CHECK(found.unjudged_questions == strings{"q"});
}

TEST_CASE("evaluation: a passage of another revision than the judged one is reported as stale") {
  rag::judged_question question{.id = "q"};
  question.judgements = {{"A", 1, 7}, {"B", 1, 7}, {"C", 1}};
  rag::ranked_list list = listed("q", {"A", "B", "C"});
  list.revisions = {8, 7, 9};
  CHECK(evaluate({question}, {list}).stale == std::vector<rag::evaluation_note>{{"q", "A"}});
}

TEST_CASE("evaluation: twice the same question, two lists of one, k 0: errors that name them") {
  const std::vector<rag::judged_question> one{needs("q", {"A"})};
  const std::vector<rag::judged_question> two{needs("q", {"A"}), needs("q", {"B"})};
  const std::vector<rag::ranked_list> lists{listed("q", {}), listed("q", {})};
  const auto twice = rag::try_evaluate(two, {});
  REQUIRE_FALSE(twice.ok());
  CHECK(twice.failure().code() == rag::errc::duplicate_id);
  CHECK(twice.failure().message() == "evaluate: question 'q' is judged twice");
  CHECK(rag::try_evaluate(one, lists).failure().code() == rag::errc::duplicate_id);
  CHECK(rag::try_evaluate(one, {}, {.k = 0}).failure().code() == rag::errc::invalid_argument);
  rag::ranked_list odd = listed("q", {"A", "B"});
  odd.scores = {1.0};
  const std::vector<rag::ranked_list> uneven{odd};
  CHECK(rag::try_evaluate(one, uneven).failure().code() == rag::errc::invalid_argument);
}

// ---- percentiles, intervals, corrections --------------------------------------------------------

TEST_CASE("percentile: nearest rank; fewer than 20 samples are flagged") {
  std::vector<double> twenty;
  for (int i = 20; i >= 1; --i) twenty.push_back(i);
  CHECK(rag::percentile(twenty, 0.95).value == doctest::Approx(19));
  CHECK(rag::percentile(twenty, 0.5).value == doctest::Approx(10));
  CHECK(rag::percentile(twenty, 1).value == doctest::Approx(20));
  CHECK(rag::percentile(twenty, 1e-9).value == doctest::Approx(1));
  CHECK_FALSE(rag::percentile(twenty, 0.95).few_samples);
  const auto five = rag::percentile({1, 2, 3, 4, 5}, 0.95);
  CHECK(five.value == doctest::Approx(5));
  CHECK(five.few_samples);
  CHECK(five.n == 5);
  CHECK(rag::percentile({7}, 0.95).value == doctest::Approx(7));
  CHECK(rag::percentile({}, 0.95).n == 0);
  std::vector<double> hundred;
  for (int i = 1; i <= 100; ++i) hundred.push_back(i);
  for (int i = 1; i <= 100; ++i) {
    CHECK(rag::percentile(hundred, i / 100.0).value == doctest::Approx(i));
  }
}

TEST_CASE("percentile: those of stages come from the timings of answers, the total last") {
  std::vector<rag::stage_timings> times(20);
  for (std::size_t i = 0; i < times.size(); ++i) {
    times[i].lexical = static_cast<double>(i + 1);
    times[i].total = 2 * times[i].lexical;
  }
  const auto stages = rag::percentiles_by_stage(times);
  REQUIRE(stages.size() == 8);
  CHECK(stages[1].stage == "lexical");
  CHECK(stages[1].p95.value == doctest::Approx(19));
  CHECK(stages.back().stage == "total");
  CHECK(stages.back().p50.value == doctest::Approx(20));
  CHECK(stages.back().p50.n == 20);
}

TEST_CASE("percentile: p outside (0, 1] and samples that are not finite are refused") {
  for (const double p : {0.0, -0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    CHECK(rag::try_percentile({1}, p).failure().code() == rag::errc::invalid_argument);
  }
  CHECK(rag::try_percentile({std::numeric_limits<double>::infinity()}, 0.5).failure().code() ==
        rag::errc::not_finite);
}

TEST_CASE("comparison: wins, ties, losses, and an interval around the mean difference") {
  std::vector<double> a, b;
  for (int i = 0; i < 40; ++i) {
    a.push_back(0.5);
    b.push_back(i < 30 ? 0.7 : i < 35 ? 0.5 : 0.4);
  }
  const rag::comparison found = rag::compare_paired(a, b);
  CHECK(found.n == 40);
  CHECK(found.wins == 30);
  CHECK(found.ties == 5);
  CHECK(found.losses == 5);
  CHECK(found.difference == doctest::Approx((30 * 0.2 - 5 * 0.1) / 40));
  CHECK(found.low < found.difference);
  CHECK(found.high > found.difference);
  // Half the width is close to 1.96 standard errors.
  double square = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    square += (b[i] - a[i] - found.difference) * (b[i] - a[i] - found.difference);
  }
  const double standard_error = std::sqrt(square / 40) / std::sqrt(40.0);
  CHECK((found.high - found.low) / 2 == doctest::Approx(1.96 * standard_error).epsilon(0.05));
  CHECK(found.decided());
}

TEST_CASE("comparison: the same seed gives the same numbers, on every platform") {
  const std::vector<double> a{0.25, 0.5, 0.75, 1.0, 0.0, 0.5};
  const std::vector<double> b{0.5, 0.5, 0.5, 1.0, 0.5, 0.75};
  const auto first = rag::compare_paired(a, b, {.rounds = 1000, .seed = 42});
  const auto again = rag::compare_paired(a, b, {.rounds = 1000, .seed = 42});
  CHECK(bits_of(first.low) == bits_of(again.low));
  CHECK(bits_of(first.high) == bits_of(again.high));
  CHECK(bits_of(first.p) == bits_of(again.p));
  CHECK_FALSE(first.decided());
  // Of the numbers drawn: they change if the generator, the order of the draws or the seed do.
  CHECK(first.low == doctest::Approx(-1.0 / 12));
  CHECK(first.high == doctest::Approx(7.0 / 24));
  CHECK(first.p == doctest::Approx(500.0 / 1001));
}

TEST_CASE("comparison: few questions never decide, and equal runs have p = 1") {
  const std::vector<double> a{0, 0, 0};
  const std::vector<double> b{1, 1, 1};
  const auto three = rag::compare_paired(a, b);
  CHECK(three.low == doctest::Approx(1));
  CHECK(three.p == doctest::Approx(0.25).epsilon(0.1));  // two of eight sign patterns
  CHECK_FALSE(three.decided());
  const auto same = rag::compare_paired(a, a);
  CHECK(same.ties == 3);
  CHECK(same.p == doctest::Approx(1));
  CHECK(rag::compare_paired({}, {}).n == 0);
  CHECK(rag::compare_paired({}, {}).p == doctest::Approx(1));
}

TEST_CASE("comparison: unequal counts and impossible options are refused") {
  const std::vector<double> one{1}, two{1, 2}, odd{std::numeric_limits<double>::quiet_NaN()};
  CHECK(rag::try_compare_paired(one, two).failure().code() == rag::errc::invalid_argument);
  CHECK(rag::try_compare_paired(one, odd).failure().code() == rag::errc::not_finite);
  CHECK_FALSE(rag::try_compare_paired(one, one, {.rounds = 0}).ok());
  CHECK_FALSE(rag::try_compare_paired(one, one, {.level = 1}).ok());
  const auto x = evaluate({needs("x", {"A"})}, {});
  const auto y = evaluate({needs("y", {"A"})}, {});
  CHECK_FALSE(rag::try_compare(x, y, measure::ndcg).ok());
}

TEST_CASE("Holm: three p-values, corrected step by step and never out of order") {
  const std::vector<double> p{0.01, 0.04, 0.03};
  const auto adjusted = rag::holm_adjusted(p);
  CHECK(adjusted[0] == doctest::Approx(0.03));
  CHECK(adjusted[1] == doctest::Approx(0.06));
  CHECK(adjusted[2] == doctest::Approx(0.06));
  CHECK(rag::holm_adjusted({}).empty());
  const std::vector<double> large{0.9, 0.8};
  for (const double each : rag::holm_adjusted(large)) CHECK(each == doctest::Approx(1));
}

// ---- numbers in files ---------------------------------------------------------------------------

TEST_CASE("numbers: written without needless digits, and read back to the same double") {
  const std::map<std::string, double> texts{{"0", 0.0},
                                            {"1", 1.0},
                                            {"-2.5", -2.5},
                                            {"0.1", 0.1},
                                            {"12.033", 12.033},
                                            {"0.30000000000000004", 0.1 + 0.2},
                                            {"1e-7", 1e-7},
                                            {"0.00001", 1e-5},
                                            {"100000", 1e5},
                                            {"1.5e300", 1.5e300},
                                            {"5e-324", 5e-324},
                                            {"1.7976931348623157e308", 1.7976931348623157e308},
                                            {"2.2250738585072014e-308", 2.2250738585072014e-308},
                                            {"9007199254740993", 9007199254740992.0}};
  for (const auto& each : texts) {
    const std::string& text = each.first;
    const double value = each.second;
    CAPTURE(text);
    const auto read = rag::detail::parse_number(text);
    REQUIRE(read.has_value());
    CHECK(bits_of(*read) == bits_of(value));
    if (text != "9007199254740993" && text != "5e-324")
      CHECK(rag::detail::exact_text(value) == text);
  }
  CHECK(rag::detail::exact_text(-0.0) == "-0");
}

TEST_CASE("numbers: every double comes back bit for bit, and reading agrees with the compiler") {
  rag::detail::random_source random(11);
  for (int i = 0; i < 20000; ++i) {
    const double value = double_of(random.next());
    if (!rag::detail::is_finite(value)) continue;
    const auto read = rag::detail::parse_number(rag::detail::exact_text(value));
    REQUIRE(read.has_value());
    REQUIRE(bits_of(*read) == bits_of(value));
  }
  for (int i = 0; i < 20000; ++i) {  // what scores look like
    const double value = random.unit() * 40;
    REQUIRE(bits_of(rag::detail::parse_number(rag::detail::exact_text(value)).value_or(-1)) ==
            bits_of(value));
    std::string digits;
    for (std::uint64_t n = 1 + random.below(25); n > 0; --n) {
      digits += static_cast<char>('0' + random.below(10));
    }
    digits += "e" + std::to_string(static_cast<int>(random.below(640)) - 340);
    const double expected = std::strtod(digits.c_str(), nullptr);
    CAPTURE(digits);
    if (rag::detail::is_finite(expected)) {
      REQUIRE(bits_of(rag::detail::parse_number(digits).value_or(-1)) == bits_of(expected));
    } else {
      REQUIRE_FALSE(rag::detail::parse_number(digits).has_value());
    }
  }
}

TEST_CASE("numbers: what is no number is refused, and hostile ones cost nothing") {
  for (const char* text : {"", "-", ".", "1.2.3", "1e", "e5", "0x10", "nan", "inf", "1,5", " 1",
                           "1 ", "1e999999999999", "--1", "1e+"}) {
    CAPTURE(text);
    CHECK_FALSE(rag::detail::parse_number(text).has_value());
  }
  CHECK(rag::detail::parse_number("1e-99999999999999").value_or(1) < 1e-300);
  CHECK(rag::detail::parse_number("+.5").value_or(0) == doctest::Approx(0.5));
  CHECK(rag::detail::parse_number("5.").value_or(0) == doctest::Approx(5));
  CHECK(rag::detail::parse_number("0e99999").value_or(1) < 1e-300);
  CHECK_FALSE(rag::detail::parse_number(std::string(801, '1')).has_value());
  CHECK(rag::detail::parse_number("0." + std::string(700, '0') + "1").value_or(1) < 1e-300);
}

// ---- TREC files ---------------------------------------------------------------------------------

TEST_CASE("run files: read in the order of the ranks, questions in order of appearance") {
  const auto lists = rag::read_run(
      "\xEF\xBB\xBFq2 Q0 b 2 9.5 tag\r\n"
      "q1 Q0 c 1 1e-3 tag\n"
      "\n"
      "q2\tQ0\ta\t1\t1.5\ttag\n"
      "q2 Q0 d 2 3 tag");
  REQUIRE(lists.size() == 2);
  CHECK(lists[0].question == "q2");
  CHECK(lists[0].ids == strings{"a", "b", "d"});
  CHECK(lists[0].scores[1] == doctest::Approx(9.5));
  CHECK(lists[1].question == "q1");
  CHECK(lists[1].scores[0] == doctest::Approx(0.001));
  CHECK(rag::read_run("").empty());
}

TEST_CASE("run files: a bad line is refused with its number and what was expected") {
  const std::map<std::string, std::string> cases{
      {"q Q0 a 1 2 t\nq Q0 a 1 2\n",
       "run: line 2: 5 fields, expected 6: question Q0 id rank score tag"},
      {"q Q0 a one 2 t", "run: line 1: rank 'one' is no whole number of at least 0"},
      {"\n\nq Q0 a 1 2,5 t", "run: line 3: score '2,5' is no number"},
      {"q Q0 a -1 2 t", "run: line 1: rank '-1' is no whole number of at least 0"},
  };
  for (const auto& [text, sentence] : cases) {
    const auto read = rag::try_read_run(text);
    REQUIRE_FALSE(read.ok());
    CHECK(read.failure().code() == rag::errc::invalid_argument);
    CHECK(read.failure().message() == sentence);
  }
}

TEST_CASE("run files: what is written reads back to the same ids and the same doubles") {
  rag::ranked_list list = listed("q", {"a", "b", "c"});
  list.scores = {12.033, 0.1 + 0.2, 1e-9};
  const std::vector<rag::ranked_list> lists{list};
  const std::string text = rag::write_run(lists, "mine");
  CHECK(text ==
        "q Q0 a 1 12.033 mine\n"
        "q Q0 b 2 0.30000000000000004 mine\n"
        "q Q0 c 3 1e-9 mine\n");
  const auto back = rag::read_run(text);
  REQUIRE(back.size() == 1);
  CHECK(back[0].ids == list.ids);
  for (std::size_t i = 0; i < 3; ++i) CHECK(bits_of(back[0].scores[i]) == bits_of(list.scores[i]));
}

TEST_CASE("run files: scores that rise, or are missing, are replaced by falling numbers") {
  rag::ranked_list rising = listed("q", {"a", "b", "c"});
  rising.scores = {1.5, 2.5, 0.5};
  const std::vector<rag::ranked_list> lists{rising, listed("r", {"x"})};
  CHECK(rag::write_run(lists, "t") == "q Q0 a 1 3 t\nq Q0 b 2 2 t\nq Q0 c 3 1 t\nr Q0 x 1 1 t\n");
}

TEST_CASE("run files: ids that the form cannot carry are refused") {
  for (const char* id : {"two words", "", "tab\tbed", "line\n"}) {
    const std::vector<rag::ranked_list> lists{listed("q", {id})};
    CHECK(rag::try_write_run(lists).failure().code() == rag::errc::invalid_argument);
  }
  const std::vector<rag::ranked_list> fine{listed("q", {"a"})};
  CHECK_FALSE(rag::try_write_run(fine, "my tag").ok());
}

TEST_CASE("judgement files: tabs, TREC's four fields and a heading line are all read") {
  const auto tabs = rag::read_qrels(
      "query-id\tcorpus-id\tscore\n"
      "q1\tone page\t2\r\n"
      "q2\ta\t0\n"
      "q1\tb\t-1\n");
  REQUIRE(tabs.size() == 2);
  CHECK(tabs[0].id == "q1");
  CHECK(tabs[0].judgements[0].id == "one page");
  CHECK(tabs[0].judgements[0].relevance == 2);
  CHECK(tabs[0].judgements[1].relevance == -1);
  const auto trec = rag::read_qrels("q1 0 a 2\nq1\t0\tb\t1\n");
  REQUIRE(trec.size() == 1);
  CHECK(trec[0].judgements[1].id == "b");
  CHECK(rag::write_qrels(trec) == "q1\ta\t2\nq1\tb\t1\n");
  CHECK(rag::write_qrels(trec, rag::qrels_form::trec) == "q1 0 a 2\nq1 0 b 1\n");
  CHECK_FALSE(rag::try_write_qrels(tabs, rag::qrels_form::trec).ok());
  const std::vector<rag::judged_question> required{needs("q", {"A"})};
  CHECK(rag::write_qrels(required) == "q\tA\t1\n");
}

TEST_CASE("judgement files: bad lines and contradictions are refused with their number") {
  CHECK(rag::try_read_qrels("q\ta\t1\nq\ta\n").failure().message() ==
        "qrels: line 2: 2 fields, expected question<TAB>id<TAB>relevance or question 0 id "
        "relevance");
  CHECK(rag::try_read_qrels("q\ta\t1.5\n").failure().message() ==
        "qrels: line 1: relevance '1.5' is no whole number");
  CHECK(rag::try_read_qrels("q\ta\t1\nq\ta\t2\n").failure().message() ==
        "qrels: line 2: 'a' was judged 1 for this question before, now 2");
  CHECK_FALSE(rag::try_read_qrels("q\ta\t99999999999\n").ok());
  const auto twice = rag::read_qrels("q\ta\t1\nq\ta\t1\n");
  CHECK(evaluate(twice, {}).repeated_judgements.size() == 1);
}

TEST_CASE("run files: CACM by Anserini gives the published figures, and those of measures.py") {
  const auto run = read_set("cacm/run-anserini-bm25.txt");
  if (!run) {
    MESSAGE("skipped: RAG_RETRIEVE_DATASETS is not set");
    return;
  }
  const auto lists = rag::read_run(*run);
  const auto judged = [&](const char* name, std::size_t k) {
    return rag::evaluate(rag::read_qrels(*read_set(name)), lists, {.k = k});
  };
  // ndcg, MAP, MRR, precision, recall, unjudged
  const auto agree = [](const rag::evaluation& found, std::vector<double> expected) {
    std::size_t i = 0;
    for (const measure which : {measure::ndcg, measure::average_precision, measure::reciprocal_rank,
                                measure::precision, measure::recall, measure::unjudged}) {
      CAPTURE(rag::name_of(which));
      CHECK(std::fabs(found.overall[which].value - expected[i++]) < 1e-9);
      CHECK(found.overall[which].n == 52);
    }
    CHECK(found.unjudged_questions.size() == 12);  // of the 64 questions of the run
  };
  agree(judged("cacm/qrels-as-published.tsv", 30),
        {0.45842963205914067, 0.2743581379381958, 0.7047510740893094, 0.19423076923076923,
         0.505213225630809, 0.8057692307692308});
  agree(judged("cacm/qrels-as-published.tsv", 10),
        {0.4542821947674157, 0.2743581379381958, 0.7047510740893094, 0.3153846153846154,
         0.3345238332109953, 0.6846153846153846});
  agree(judged("cacm/qrels.tsv", 10), {0.46041284718827585, 0.28055280592879034, 0.7047510740893094,
                                       0.3230769230769231, 0.33990338955209015, 0.676923076923077});
  agree(judged("cacm/qrels.tsv", 30), {0.46431737020771346, 0.28055280592879034, 0.7047510740893094,
                                       0.1980769230769231, 0.5116821725184146, 0.801923076923077});
  CHECK(rag::read_run(rag::write_run(lists)).size() == lists.size());
}

// ---- a retriever's variants ---------------------------------------------------------------------

namespace {

/// Six one-chunk pages with vectors of two numbers; the reader may not see "secret".
struct shop {
  rag::access_directory people;
  rag::retriever retriever;

  explicit shop(bool with_model = true) {
    people.set_groups({.user = "ana"}, {"staff"});
    people.set_groups({.user = "guest"}, {"public"});
    rag::retriever_options options{.permissions = &people, .identifiers = {"PAY-###"}};
    if (with_model) options.embed = {.model = "m", .dimension = 2};
    retriever = rag::retriever(std::move(options));
    std::vector<rag::chunked_document> pages{
        fakes::placed("code", "PAY-042 means a stale key", {1, 0}),
        fakes::placed("talk", "pay 042 pay 042: stale key means stale key means", {0.9F, 0.1F}),
        fakes::placed("repair", "log in anew and go on", {0, 1}),
        fakes::placed("other", "opening hours of the shop", {-1, 0}),
        fakes::placed("more", "parking near the shop", {0, -1}),
        fakes::placed("secret", "PAY-042 stale key means the vault", {1, 0}, {"board"})};
    if (!with_model) {
      for (auto& page : pages) page.chunks[0].vector.reset();
    }
    retriever.upsert(pages);
  }

  rag::scope reader() const { return retriever.scope_for({.user = "ana"}); }

  static std::vector<rag::judged_question> questions(bool with_vectors = true) {
    rag::judged_question code = needs("code", {"code"}, "exact-code");
    code.text = "What is PAY-042? stale stale key means";
    code.forbidden = {"secret"};
    rag::judged_question words = needs("words", {"repair"}, "paraphrase");
    words.text = "restore access";
    rag::judged_question both = needs("both", {"code", "repair"}, "multi-section");
    both.text = "PAY-042: how to restore access";
    rag::judged_question none = needs("none", {}, "unanswerable");
    none.text = "price of tea";
    if (with_vectors) {
      code.vector = rag::embedding{"m", {1, 0}};
      words.vector = rag::embedding{"m", {0, 1}};
      both.vector = rag::embedding{"m", {0.3F, 1}};
      none.vector = rag::embedding{"m", {-1, -1}};
    }
    return {code, words, both, none};
  }
};

rag::reranker by_length() {
  return {.score = [](const rag::rerank_request& request) {
    std::vector<double> scores;
    for (const auto& passage : request.passages) {
      scores.push_back(passage.id() == "repair" ? 2.0 : passage.id() == "code" ? 1.0 : 0.0);
    }
    return scores;
  }};
}

}  // namespace

TEST_CASE("ablation: five variants side by side, and the cheapest that reaches the recall") {
  const shop place;
  const rag::scope reader = place.reader();
  rag::ablation_options options{.recall_target = 1.0, .p95_target = 60000.0};
  options.asked.limit = 2;
  options.asked.rerank = by_length();
  const auto report = rag::ablate(place.retriever, shop::questions(), reader, options);
  REQUIRE(report.variants.size() == 5);
  std::vector<double> recalls;
  for (const rag::variant_report& variant : report.variants) {
    CAPTURE(variant.name);
    CHECK(variant.ran);
    CHECK(variant.quality.leaks.empty());
    CHECK(variant.quality.overall.questions == 3);
    CHECK(variant.quality.unanswerable.questions == 1);
    CHECK(variant.stages.size() == 8);
    CHECK(variant.p95().n == 4);
    CHECK(variant.p95().few_samples);
    recalls.push_back(variant.quality.overall[measure::budget_recall].value);
  }
  CHECK(recalls[0] == doctest::Approx(0.5));  // code and, of both, one half
  CHECK(recalls[4] == doctest::Approx(1.0));
  CHECK(recalls[3] >= recalls[1]);
  REQUIRE(report.cheapest.has_value());
  CHECK(recalls[*report.cheapest] == doctest::Approx(1.0));
  CHECK(report.verdict.find(report.variants[*report.cheapest].name) != std::string::npos);
  CHECK(report.verdict.find("too few for a p95") != std::string::npos);
  CHECK(report.steps.size() == 5);
  for (const auto& step : report.steps) {
    CHECK(step.outcome.n == 3);
    CHECK(step.outcome.adjusted_p >= step.outcome.p);
    CHECK(step.sentence.find("undecided") != std::string::npos);
  }
}

TEST_CASE("ablation: exact codes are what the second variant adds to the first") {
  const shop place;
  const rag::scope reader = place.reader();
  const auto report = rag::ablate(place.retriever, shop::questions(), reader);
  const auto rank = [&](std::size_t variant) {
    return report.variants[variant].quality.questions[0].first_required_rank;
  };
  CHECK(rank(0) == 2);  // "talk" repeats the words
  CHECK(rank(1) == 1);
  CHECK(report.verdict == "no targets were given");
  CHECK_FALSE(report.cheapest.has_value());
}

TEST_CASE("ablation: variants whose vectors or reranker are missing are reported as not run") {
  const shop place(false);
  const rag::scope reader = place.reader();
  const auto report =
      rag::ablate(place.retriever, shop::questions(false), reader, {.recall_target = 1.0});
  CHECK(report.variants[0].ran);
  CHECK(report.variants[1].ran);
  for (const std::size_t i : {2U, 3U, 4U}) {
    CHECK_FALSE(report.variants[i].ran);
    CHECK_FALSE(report.variants[i].why_not.empty());
  }
  CHECK(report.variants[4].why_not == "there is no reranker");
  CHECK(report.steps.size() == 1);
  CHECK_FALSE(report.cheapest.has_value());
  CHECK(report.verdict == "no variant meets recall 1");
}

TEST_CASE("ablation: a budget bounds what is sent, not the list that ranks are read from") {
  const shop place;
  const rag::scope reader = place.reader();
  rag::ablation_options options;
  options.asked.token_budget = 8;
  const auto report = rag::ablate(place.retriever, shop::questions(), reader, options);
  const rag::question_measures& both = report.variants[3].quality.questions[2];
  CHECK(both[measure::recall].value_or(0) == doctest::Approx(1.0));
  CHECK(both[measure::budget_recall].value_or(0) == doctest::Approx(0.5));
}

TEST_CASE("ablation: each question may have a reader of its own; the evidence rule is counted") {
  const shop place;
  const rag::scope reader = place.reader();
  auto questions = shop::questions();
  questions[0].who = rag::principal{.user = "guest"};
  rag::ablation_options options;
  options.asked.sufficient = [](const rag::evidence& found) { return found.exact_code; };
  const auto report = rag::ablate(place.retriever, questions, reader, options);
  const rag::evaluation& exact = report.variants[1].quality;
  CHECK(exact.questions[0].outcome == rag::question_outcome::no_result);
  CHECK(report.unreachable == std::vector<rag::evaluation_note>{{"code", "code"}});
  CHECK(exact.unanswerable.with_rule == 1);
  CHECK(exact.unanswerable.insufficient == 1);
  CHECK(exact.wrongly_insufficient == 2);  // the guest's, and the one in other words
}

TEST_CASE("ablation: a failing question counts 0 and is listed, bad options end it") {
  const shop place;
  const rag::scope reader = place.reader();
  auto questions = shop::questions();
  questions[1].vector = rag::embedding{"m", {1, 2, 3}};
  const auto report = rag::ablate(place.retriever, questions, reader);
  CHECK(report.variants[0].quality.failures.empty());
  CHECK(report.variants[2].quality.failures.size() == 1);
  CHECK(report.variants[2].quality.overall.questions == 3);
  const auto refused = [&](rag::ablation_options options) {
    return rag::try_ablate(place.retriever, questions, reader, options).failure().code();
  };
  CHECK(refused({.k = 0}) == rag::errc::invalid_argument);
  CHECK(refused({.recall_target = 1.5}) == rag::errc::invalid_argument);
  CHECK(refused({.p95_target = 0.0}) == rag::errc::invalid_argument);
  rag::ablation_options limit;
  limit.asked.limit = 0;
  CHECK(refused(limit) == rag::errc::invalid_argument);
}

TEST_CASE("candidates: a run lists them uncapped, as chunks or once for each document") {
  rag::access_directory people;
  people.set_groups({.user = "ana"}, {"staff"});
  rag::retriever retriever({.permissions = &people});
  const rag::document page = fakes::page("p", "key one\nkey two two\nkey three three three\n");
  const rag::document other = fakes::page("o", "key other words stand here in a long line\n");
  retriever.upsert(page, fakes::lines(page));
  retriever.upsert(other, fakes::lines(other));
  const rag::scope reader = retriever.scope_for({.user = "ana"});
  const rag::query asked{.text = "key", .limit = 1, .per_document = 1, .token_budget = 1};
  const auto chunks = rag::rank_candidates(retriever.snapshot(), asked, reader);
  CHECK(chunks.ids == strings{"p.1", "p.2", "p.3", "o.1"});
  CHECK(chunks.scores.size() == 4);
  const auto documents =
      rag::rank_candidates(retriever.snapshot(), asked, reader, rag::ranked_by::document);
  CHECK(documents.ids == strings{"p", "o"});
  rag::query shallow = asked;
  shallow.depth = 2;
  CHECK(rag::rank_candidates(retriever.snapshot(), shallow, reader).ids.size() == 2);
}

}  // namespace evaluation_tests
