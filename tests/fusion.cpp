#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <rag_retrieve.hpp>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace rag = rag_retrieve;

namespace fusion_test {

static_assert(std::is_aggregate_v<rag::fusion_options>);

using list = std::vector<std::string>;
using lists = std::vector<list>;
using hits = std::vector<rag::fused_hit<std::string>>;

inline list ids(const hits& fused) {
  list out;
  for (const auto& hit : fused) out.push_back(hit.id);
  return out;
}

inline const rag::fused_hit<std::string>& of(const hits& fused, const std::string& id) {
  const auto found =
      std::find_if(fused.begin(), fused.end(), [&](const auto& hit) { return hit.id == id; });
  REQUIRE(found != fused.end());
  return *found;
}

/// Six decimals, cut off as the article prints them: 0.0325225 -> 32522.
inline int millionths(double score) { return static_cast<int>(std::floor(score * 1e6)); }

inline bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

struct random_numbers {
  std::uint64_t state = 1;
  std::uint64_t next() {
    std::uint64_t z = (state += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }
};

/// The snippet of the tutorial, trap by trap: ranks count before filtering, repeats add up, ties
/// stay as they were inserted.
inline std::vector<std::pair<std::string, double>> tutorial_snippet(
    const lists& all, const std::vector<std::string>& allowed) {
  std::vector<std::pair<std::string, double>> scores;
  for (const list& ranked : all) {
    for (std::size_t i = 0; i < ranked.size(); ++i) {
      if (std::find(allowed.begin(), allowed.end(), ranked[i]) == allowed.end()) continue;
      auto at = std::find_if(scores.begin(), scores.end(),
                             [&](const auto& entry) { return entry.first == ranked[i]; });
      if (at == scores.end()) at = scores.insert(scores.end(), {ranked[i], 0.0});
      at->second += 1.0 / (60.0 + static_cast<double>(i + 1));
    }
  }
  for (std::size_t i = 1; i < scores.size(); ++i) {  // stable, as the snippet's sort is
    for (std::size_t at = i; at > 0 && scores[at].second > scores[at - 1].second; --at) {
      std::swap(scores[at], scores[at - 1]);
    }
  }
  return scores;
}

/// An id that counts what is done with it.
struct counted_id {
  int value = 0;
  static inline std::size_t hashes = 0;
  static inline std::size_t equals = 0;
  static inline std::size_t lesses = 0;
  static void reset() { hashes = equals = lesses = 0; }

  friend bool operator==(const counted_id& a, const counted_id& b) {
    ++equals;
    return a.value == b.value;
  }
  friend bool operator<(const counted_id& a, const counted_id& b) {
    ++lesses;
    return a.value < b.value;
  }
};
struct counting_hash {
  std::size_t operator()(const counted_id& id) const {
    ++counted_id::hashes;
    return std::hash<int>()(id.value);
  }
};
struct same_hash_for_all {
  std::size_t operator()(const std::string&) const { return 42; }
};

inline rag::error failure_of(const lists& ranked, const rag::fusion_options& options) {
  const auto fused = rag::try_fuse_by_rank(ranked, options);
  REQUIRE_FALSE(fused.ok());
  return fused.failure();
}

TEST_CASE("article: fusing the two rankings puts R at 0.032522, E42 at 0.032266, G at 0.031754") {
  const list dense{"R", "G", "E42"};
  const list lexical{"E42", "R", "E43", "G"};
  const hits fused = rag::fuse_by_rank(lists{dense, lexical});
  REQUIRE(fused.size() == 4);
  CHECK(ids(fused) == list{"R", "E42", "G", "E43"});
  CHECK(millionths(fused[0].score) == 32522);
  CHECK(millionths(fused[1].score) == 32266);
  CHECK(millionths(fused[2].score) == 31754);
  CHECK(fused[0].score == doctest::Approx(1.0 / 61 + 1.0 / 62));
  CHECK(fused[1].score == doctest::Approx(1.0 / 63 + 1.0 / 61));
  CHECK(fused[2].score == doctest::Approx(1.0 / 62 + 1.0 / 64));
}

TEST_CASE("article: raw scores may change as they like, ranks alone decide") {
  std::map<std::string, double> narrow{{"R", 0.820}, {"G", 0.819}, {"E42", 0.818}};
  std::map<std::string, double> wide{{"R", 99.0}, {"G", 0.5}, {"E42", -8.2}};
  std::vector<hits> outcomes;
  for (const auto& raw : {narrow, wide}) {
    list dense{"E42", "G", "R"};
    std::sort(dense.begin(), dense.end(),
              [&](const std::string& a, const std::string& b) { return raw.at(a) > raw.at(b); });
    outcomes.push_back(rag::fuse_by_rank(lists{dense, {"E42", "R", "E43", "G"}}));
  }
  REQUIRE(outcomes[0].size() == outcomes[1].size());
  for (std::size_t i = 0; i < outcomes[0].size(); ++i) {
    CHECK(outcomes[0][i].id == outcomes[1][i].id);
    CHECK(same_bits(outcomes[0][i].score, outcomes[1][i].score));
  }
}

TEST_CASE("fusion: a chunk in both lists beats one that tops a single list (k = 60)") {
  list first{"A"};
  list second;
  for (int i = 1; i < 60; ++i) {
    first.push_back("x" + std::to_string(i));
    second.push_back("y" + std::to_string(i));
  }
  second.push_back("y60");
  first.push_back("B");
  second.push_back("B");
  const hits fused = rag::fuse_by_rank(lists{first, second});
  CHECK(of(fused, "B").ranks == std::vector<std::size_t>{61, 61});
  CHECK(of(fused, "A").score == doctest::Approx(1.0 / 61));
  CHECK(of(fused, "B").score == doctest::Approx(2.0 / 121));
  CHECK(millionths(of(fused, "A").score) == 16393);
  CHECK(millionths(of(fused, "B").score) == 16528);
  CHECK(fused.front().id == "B");  // from rank 0 the two would tie

  const hits steep = rag::fuse_by_rank(lists{first, second}, {.k = 2});
  CHECK(of(steep, "A").score > 10 * of(steep, "B").score);  // with k = 2 A would win by far
}

TEST_CASE("fusion: a list that does not hold an id adds nothing to it") {
  const hits fused = rag::fuse_by_rank(lists{{"D1", "D2", "Y"}, {"L1", "L2", "Y"}});
  CHECK(ids(fused) == list{"Y", "D1", "L1", "D2", "L2"});
  CHECK(fused[0].score == doctest::Approx(2.0 / 63));
  CHECK(fused[1].score == doctest::Approx(1.0 / 61));
  CHECK(same_bits(fused[1].score, fused[2].score));
  CHECK(fused[3].score == doctest::Approx(1.0 / 62));
  CHECK(fused[0].ranks == std::vector<std::size_t>{3, 3});
  CHECK(fused[1].ranks == std::vector<std::size_t>{1, 0});
}

TEST_CASE("fusion: equal scores stand in id order, whichever list comes first") {
  for (const lists& ranked : {lists{{"B"}, {"A"}}, lists{{"A"}, {"B"}}}) {
    const hits fused = rag::fuse_by_rank(ranked);
    CHECK(ids(fused) == list{"A", "B"});
    CHECK(same_bits(fused[0].score, 1.0 / 61));
    CHECK(same_bits(fused[1].score, 1.0 / 61));
  }
}

TEST_CASE("fusion: ten equal scores are the ten ids in order, every time") {
  const list names{"j", "c", "a", "h", "e", "b", "i", "d", "g", "f"};
  const list sorted{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
  random_numbers random{3};
  for (int round = 0; round < 100; ++round) {
    lists ranked;
    for (const std::string& name : names) ranked.push_back({name});
    for (std::size_t i = ranked.size(); i > 1; --i) {
      std::swap(ranked[i - 1], ranked[random.below(i)]);
    }
    CHECK(ids(rag::fuse_by_rank(ranked)) == sorted);
  }
}

TEST_CASE("fusion: at an equal score the better single rank comes first, before the id") {
  // 1/(k+1) + 1/(k+4) is 1/(k+2) + 1/(k+2) exactly where k = 2: 1/3 + 1/6 = 1/4 + 1/4.
  const lists ranked{{"z", "a"}, {"b", "a", "c", "z"}};
  const hits fused = rag::fuse_by_rank(ranked, {.k = 2});
  CHECK(same_bits(of(fused, "z").score, of(fused, "a").score));
  CHECK(of(fused, "z").best_rank == 1);
  CHECK(of(fused, "a").best_rank == 2);
  CHECK(ids(fused) == list{"z", "a", "b", "c"});
}

TEST_CASE("fusion: one chunk found by three legs is one candidate with three ranks") {
  const hits fused = rag::fuse_by_rank(lists{{"d#1", "d#7"}, {"x", "y", "d#7"}, {"d#7"}});
  const auto& hit = of(fused, "d#7");
  const list found = ids(fused);
  CHECK(std::count(found.begin(), found.end(), "d#7") == 1);
  CHECK(hit.ranks == std::vector<std::size_t>{2, 3, 1});
  CHECK(hit.best_rank == 1);
  CHECK(hit.score == doctest::Approx(1.0 / 62 + 1.0 / 63 + 1.0 / 61));
}

TEST_CASE("fusion: trap 1 of the tutorial snippet, ranks that count what is hidden") {
  // "hidden" may not be read. The snippet ranks A second: the gap shows that something is there.
  const auto snippet = tutorial_snippet({{"hidden", "A"}, {"B"}}, {"A", "B"});
  CHECK(snippet[0].first == "B");
  CHECK(snippet[1].second == doctest::Approx(1.0 / 62));
  // Here the list is filtered before it is fused: as if "hidden" had never been stored.
  const hits fused = rag::fuse_by_rank(lists{{"A"}, {"B"}});
  CHECK(ids(fused) == list{"A", "B"});
  CHECK(of(fused, "A").score == doctest::Approx(1.0 / 61));
}

TEST_CASE("fusion: trap 2 of the tutorial snippet, repeats that count twice and push others down") {
  const lists ranked{{"A", "A", "B", "A", "C"}, {"B"}};
  const auto snippet = tutorial_snippet(ranked, {"A", "B", "C"});
  CHECK(snippet[0].first == "A");  // 1/61 + 1/62 + 1/64, from one list
  const hits fused = rag::fuse_by_rank(ranked);
  CHECK(ids(fused) == list{"B", "A", "C"});
  CHECK(of(fused, "A").ranks == std::vector<std::size_t>{1, 0});
  CHECK(of(fused, "B").ranks == std::vector<std::size_t>{2, 1});
  CHECK(of(fused, "C").ranks == std::vector<std::size_t>{3, 0});
  CHECK(of(fused, "A").score == doctest::Approx(1.0 / 61));
}

TEST_CASE("fusion: trap 3 of the tutorial snippet, ties that follow the order of insertion") {
  CHECK(tutorial_snippet({{"B"}, {"A"}}, {"A", "B"})[0].first == "B");
  CHECK(tutorial_snippet({{"A"}, {"B"}}, {"A", "B"})[0].first == "A");
  CHECK(rag::fuse_by_rank(lists{{"B"}, {"A"}})[0].id == "A");
  CHECK(rag::fuse_by_rank(lists{{"A"}, {"B"}})[0].id == "A");
}

TEST_CASE("fusion: a list of weight 0 gives no score, no candidate and no rank") {
  const hits fused = rag::fuse_by_rank(lists{{"A", "C"}, {"B", "C"}}, {.k = 60, .weights = {0, 1}});
  CHECK(ids(fused) == list{"B", "C"});
  CHECK(of(fused, "C").ranks == std::vector<std::size_t>{0, 2});
  CHECK(of(fused, "C").best_rank == 2);
  CHECK(of(fused, "C").score == doctest::Approx(1.0 / 62));
}

TEST_CASE("fusion: a weight multiplies what its list gives") {
  const hits fused = rag::fuse_by_rank(lists{{"A"}, {"B"}}, {.k = 60, .weights = {1, 3}});
  CHECK(ids(fused) == list{"B", "A"});
  CHECK(fused[0].score == doctest::Approx(3.0 / 61));
  CHECK(fused[1].score == doctest::Approx(1.0 / 61));
}

TEST_CASE("fusion: equal weights, of whatever size, give the order of no weights") {
  random_numbers random{4};
  for (int round = 0; round < 50; ++round) {
    lists ranked(3);
    for (list& one : ranked) {
      for (int i = 0; i < 30; ++i) one.push_back(std::to_string(random.below(40)));
    }
    const list expected = ids(rag::fuse_by_rank(ranked));
    for (double weight : {2.0, 0.1, 7.0, 1.0 / 3, 1e-300, 1e300}) {
      const rag::fusion_options options{.k = 60, .weights = {weight, weight, weight}};
      CHECK(ids(rag::fuse_by_rank(ranked, options)) == expected);
    }
  }
}

TEST_CASE("fusion: weights that are negative, not finite, all 0 or miscounted are refused") {
  const lists two{{"A"}, {"B"}};
  const double not_a_number = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  const auto said = [&](std::vector<double> weights) {
    const rag::error failure = failure_of(two, {.k = 60, .weights = std::move(weights)});
    CHECK(failure.code() == rag::errc::invalid_argument);
    return failure.message();
  };
  CHECK(said({1, -1}) == "fuse_by_rank: weight -1 of list 2 must be finite and at least 0");
  CHECK(said({not_a_number, 1}) ==
        "fuse_by_rank: weight NaN of list 1 must be finite and at least 0");
  CHECK(said({1, infinite}) ==
        "fuse_by_rank: weight infinity of list 2 must be finite and at least 0");
  CHECK(said({0, 0}) == "fuse_by_rank: all weights are 0, at least one must be above 0");
  CHECK(said({1, 1, 1}) == "fuse_by_rank: 3 weights for 2 lists, expected one per list or none");
  CHECK(said({1}) == "fuse_by_rank: 1 weights for 2 lists, expected one per list or none");
  const double largest = std::numeric_limits<double>::max();
  CHECK(said({largest, largest}) == "fuse_by_rank: the sum of the weights must be finite");
}

TEST_CASE("fusion: k must be finite and above 0, and the error names it") {
  const auto said = [](double k) {
    const rag::error failure = failure_of({{"A"}}, {.k = k});
    CHECK(failure.code() == rag::errc::invalid_argument);
    return failure.message();
  };
  CHECK(said(0) == "fuse_by_rank: k 0 must be finite and above 0");
  CHECK(said(-2.5) == "fuse_by_rank: k -2.5 must be finite and above 0");
  CHECK(said(std::numeric_limits<double>::quiet_NaN()) ==
        "fuse_by_rank: k NaN must be finite and above 0");
  CHECK(said(-std::numeric_limits<double>::infinity()) ==
        "fuse_by_rank: k -infinity must be finite and above 0");
  CHECK_THROWS_AS(static_cast<void>(rag::fuse_by_rank(lists{{"A"}}, {.k = 0})), rag::error);
}

TEST_CASE("fusion: numbers in sentences need no locale") {
  CHECK(rag::detail::decimal_text(0.5) == "0.5");
  CHECK(rag::detail::decimal_text(60) == "60");
  CHECK(rag::detail::decimal_text(-0.125) == "-0.125");
  CHECK(rag::detail::decimal_text(1.0 / 3) == "0.333333");
  CHECK(rag::detail::decimal_text(2.0000001) == "2");
  CHECK(rag::detail::decimal_text(1.05) == "1.05");
  CHECK(rag::detail::decimal_text(2e300) == "2e300");
  CHECK(rag::detail::decimal_text(2.5e-7) == "2.5e-7");
}

TEST_CASE("fusion: no lists and empty lists give an empty list") {
  CHECK(rag::fuse_by_rank(lists{}).empty());
  CHECK(rag::fuse_by_rank(lists{{}, {}}).empty());
  CHECK(ids(rag::fuse_by_rank(lists{{}, {"A"}})) == list{"A"});
}

TEST_CASE("fusion: a huge k makes all ranks alike and still orders everything") {
  const hits fused = rag::fuse_by_rank(lists{{"c", "b", "a"}}, {.k = 1e300});
  CHECK(ids(fused) == list{"c", "b", "a"});
}

TEST_CASE("fusion: the order of the lists changes neither order nor a bit of a score") {
  random_numbers random{5};
  for (int round = 0; round < 60; ++round) {
    lists ranked(4);
    for (list& one : ranked) {
      const std::size_t count = random.below(50);
      for (std::size_t i = 0; i < count; ++i) one.push_back(std::to_string(random.below(60)));
    }
    const hits expected = rag::fuse_by_rank(ranked);
    std::sort(ranked.begin(), ranked.end());
    do {
      const hits fused = rag::fuse_by_rank(ranked);
      REQUIRE(ids(fused) == ids(expected));
      for (std::size_t i = 0; i < fused.size(); ++i) {
        REQUIRE(same_bits(fused[i].score, expected[i].score));
        REQUIRE(fused[i].best_rank == expected[i].best_rank);
      }
    } while (std::next_permutation(ranked.begin(), ranked.end()));
  }
}

TEST_CASE("fusion: equal rank sets give equal bits in any order of three lists") {
  random_numbers random{6};
  const auto place = [](list& into, std::size_t rank, const std::string& id) {
    while (into.size() < rank) into.push_back("filler " + std::to_string(into.size()));
    into[rank - 1] = id;
  };
  int plain_sums_differ = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<std::size_t> ranks{1 + random.below(80), 1 + random.below(80),
                                   1 + random.below(80)};
    std::sort(ranks.begin(), ranks.end());
    std::vector<double> scores;
    std::vector<double> plain;
    do {
      lists ranked(3);
      double sum = 0;
      for (std::size_t i = 0; i < 3; ++i) {
        place(ranked[i], ranks[i], "X");
        sum += 1.0 / (60.0 + static_cast<double>(ranks[i]));
      }
      plain.push_back(sum);
      scores.push_back(of(rag::fuse_by_rank(ranked), "X").score);
    } while (std::next_permutation(ranks.begin(), ranks.end()));
    for (double score : scores) REQUIRE(same_bits(score, scores.front()));
    const bool differ = std::any_of(plain.begin(), plain.end(),
                                    [&](double sum) { return !same_bits(sum, plain.front()); });
    plain_sums_differ += differ ? 1 : 0;
  }
  CHECK(plain_sums_differ > 0);  // what adding in list order would have done to ties
}

TEST_CASE("fusion: one more list that holds a chunk first never lowers its place") {
  random_numbers random{7};
  for (int round = 0; round < 100; ++round) {
    lists ranked(2);
    for (list& one : ranked) {
      for (int i = 0; i < 20; ++i) one.push_back(std::to_string(random.below(30)));
    }
    const std::string id = ranked[0][random.below(20)];
    const auto place_of = [&](const lists& from) {
      const list order = ids(rag::fuse_by_rank(from));
      return std::find(order.begin(), order.end(), id) - order.begin();
    };
    const auto before = place_of(ranked);
    ranked.push_back({id});
    CHECK(place_of(ranked) <= before);
  }
}

TEST_CASE("fusion: ids whose hashes all collide are still told apart") {
  const lists ranked{{"A", "B", "A"}, {"C", "B"}};
  const hits fused = rag::fuse_by_rank<std::string, same_hash_for_all>(ranked);
  CHECK(ids(fused) == ids(rag::fuse_by_rank(ranked)));
}

TEST_CASE("fusion: numbers can be ids, and a span of lists can be given") {
  const std::vector<std::vector<int>> ranked{{7, 3}, {3, 5}};
  const auto fused = rag::fuse_by_rank<int>(std::span<const std::vector<int>>(ranked));
  REQUIRE(fused.size() == 3);
  CHECK(fused[0].id == 3);
  CHECK(fused[1].id == 7);
  CHECK(fused[2].id == 5);
}

TEST_CASE("fusion: merging hashes each entry once and compares ids only where hashes agree") {
  for (int n : {10, 1000, 20000}) {
    std::vector<std::vector<counted_id>> ranked(2);
    for (int i = 0; i < n; ++i) {
      ranked[0].push_back({i});
      ranked[1].push_back({n / 2 + i});
    }
    counted_id::reset();
    const auto fused = rag::fuse_by_rank<counted_id, counting_hash>(ranked);
    const auto entries = static_cast<std::size_t>(2 * n);
    CHECK(fused.size() == static_cast<std::size_t>(n + n / 2));
    CHECK(counted_id::hashes == entries);  // O(L + S)
    CHECK(counted_id::equals <= entries);  // a repeat is one comparison
  }
}

TEST_CASE("fusion: sorting compares O(K log K) times, also where all scores tie") {
  for (int lists_count : {16, 256}) {
    std::vector<std::vector<counted_id>> ranked;
    for (int i = 0; i < lists_count; ++i) ranked.push_back({{(i * 37) % lists_count}});
    counted_id::reset();
    const auto fused = rag::fuse_by_rank<counted_id, counting_hash>(ranked);
    const auto k = static_cast<double>(fused.size());
    CHECK(static_cast<double>(counted_id::lesses) <= 3 * k * std::log2(k));
    CHECK(fused.front().id.value == 0);
  }
}

}  // namespace fusion_test
