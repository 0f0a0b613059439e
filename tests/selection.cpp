#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <rag_retrieve.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace rag = rag_retrieve;

namespace selection_test {

static_assert(std::is_aggregate_v<rag::selection_options>);
static_assert(std::is_aggregate_v<rag::selection_item>);

using items = std::vector<rag::selection_item>;
using drops = std::vector<rag::drop>;
using list = std::vector<std::string>;

inline rag::selection_item item(const std::string& id, const std::string& document_id,
                                std::size_t begin = 0, std::size_t end = 0, std::size_t tokens = 0,
                                std::uint64_t revision = 1) {
  return {id, document_id, revision, {begin, end}, tokens};
}

template <class Items>
list ids(const Items& all) {
  list out;
  for (const auto& one : all) out.push_back(one.id);
  return out;
}

/// n passages of n documents, ids "p0", "p1", ...
inline items passages(std::size_t n) {
  items all;
  for (std::size_t i = 0; i < n; ++i) {
    all.push_back(item("p" + std::to_string(i), "d" + std::to_string(i), 0, 10, 1));
  }
  return all;
}

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

/// Overlap as its definition says: shared bytes of the shorter, in the same revision of a document.
inline bool overlaps(const rag::selection_item& a, const rag::selection_item& b, double threshold) {
  if (a.document_id != b.document_id || a.revision != b.revision) return false;
  const std::size_t begin = (std::max)(a.range.begin, b.range.begin);
  const std::size_t end = (std::min)(a.range.end, b.range.end);
  const std::size_t shorter = (std::min)(a.range.end - a.range.begin, b.range.end - b.range.begin);
  if (end <= begin || shorter == 0) return false;
  return static_cast<double>(end - begin) / static_cast<double>(shorter) >= threshold;
}

/// The walk with every pair compared.
inline items drop_overlaps_by_pairs(const items& all, double threshold) {
  items kept;
  for (const auto& one : all) {
    const bool drop = std::any_of(kept.begin(), kept.end(), [&](const auto& winner) {
      return overlaps(winner, one, threshold);
    });
    if (!drop) kept.push_back(one);
  }
  return kept;
}

TEST_CASE("selection: a passage inside a better one goes; one that shares 20 of 80 bytes stays") {
  const items fused{item("W1", "page", 0, 80), item("S", "page", 10, 70),
                    item("W2", "page", 60, 140)};
  drops dropped;
  const items kept = rag::drop_overlaps(fused, 0.5, &dropped);
  CHECK(ids(kept) == list{"W1", "W2"});
  REQUIRE(dropped.size() == 1);
  CHECK(dropped[0].id == "S");
  CHECK(dropped[0].stage == rag::drop_stage::dedupe);
  CHECK(dropped[0].reason == "overlaps W1 by 60 of 60 bytes");
}

TEST_CASE("selection: the freed place goes to the next passage") {
  const items fused{item("W1", "page", 0, 80), item("S", "page", 10, 70),
                    item("W2", "page", 60, 140), item("X", "other", 0, 80)};
  const items kept = rag::select_passages(fused, {.limit = 3});
  CHECK(ids(kept) == list{"W1", "W2", "X"});
}

TEST_CASE("selection: a longer passage around a better short one goes as well") {
  drops dropped;
  const items fused{item("short", "page", 20, 30), item("long", "page", 0, 100)};
  CHECK(ids(rag::drop_overlaps(fused, 1, &dropped)) == list{"short"});
  REQUIRE(dropped.size() == 1);
  CHECK(dropped[0].reason == "overlaps short by 10 of 10 bytes");
}

TEST_CASE("selection: the threshold itself is an overlap, one byte less is none") {
  const items half{item("A", "page", 0, 80), item("B", "page", 40, 120)};
  CHECK(ids(rag::drop_overlaps(half, 0.5)) == list{"A"});
  const items less{item("A", "page", 0, 80), item("B", "page", 41, 121)};
  CHECK(ids(rag::drop_overlaps(less, 0.5)) == list{"A", "B"});
  const items tenth{item("A", "page", 0, 30), item("B", "page", 27, 57)};
  CHECK(ids(rag::drop_overlaps(tenth, 0.1)) == list{"A"});
}

TEST_CASE("selection: other documents and other revisions do not overlap") {
  const items fused{item("A", "page", 0, 80), item("B", "other", 0, 80),
                    item("C", "page", 0, 80, 0, 2)};
  CHECK(ids(rag::drop_overlaps(fused, 0.5)) == list{"A", "B", "C"});
}

TEST_CASE("selection: what was dropped drops nobody") {
  // B overlaps A and goes; C overlaps B only and stays.
  const items fused{item("A", "page", 0, 100), item("B", "page", 50, 150),
                    item("C", "page", 100, 200)};
  CHECK(ids(rag::drop_overlaps(fused, 0.5)) == list{"A", "C"});
}

TEST_CASE("selection: ranges without bytes overlap nothing, reversed ones are harmless") {
  const items fused{item("A", "page", 0, 80), item("empty", "page", 40, 40),
                    item("same", "page", 40, 40), item("reversed", "page", 60, 20),
                    item("B", "page", 40, 80)};
  CHECK(ids(rag::drop_overlaps(fused, 0.5)) == list{"A", "empty", "same", "reversed"});
}

TEST_CASE("selection: ranges at the end of the number line do not overflow") {
  const std::size_t most = std::numeric_limits<std::size_t>::max();
  const items fused{item("A", "page", 0, most), item("B", "page", most - 1, most)};
  CHECK(ids(rag::drop_overlaps(fused, 1)) == list{"A"});
}

TEST_CASE("selection: looking at two neighbours drops what comparing every pair drops") {
  random_numbers random{21};
  for (int round = 0; round < 600; ++round) {
    items all;
    const std::size_t longest = 1 + random.below(60);
    for (std::size_t i = 0; i < 60; ++i) {
      const std::size_t begin = random.below(150);
      all.push_back(item("p" + std::to_string(i), "d" + std::to_string(random.below(2)), begin,
                         begin + random.below(longest + 1), 0, 1 + random.below(2)));
    }
    for (double threshold : {1e-9, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0}) {
      drops dropped;
      const items kept = rag::drop_overlaps(all, threshold, &dropped);
      REQUIRE(ids(kept) == ids(drop_overlaps_by_pairs(all, threshold)));
      REQUIRE(kept.size() + dropped.size() == all.size());
      for (const rag::drop& one : dropped) {
        const auto find = [&](std::string_view id) {
          return *std::find_if(all.begin(), all.end(), [&](const auto& i) { return i.id == id; });
        };
        const std::size_t end = one.reason.find(" by ");
        const auto winner = find(std::string_view(one.reason).substr(9, end - 9));
        REQUIRE(overlaps(winner, find(one.id), threshold));
        const list names = ids(kept);
        REQUIRE(std::find(names.begin(), names.end(), winner.id) != names.end());
      }
    }
  }
}

TEST_CASE("selection: fifty thousand passages of one document, each one byte on, are no trouble") {
  items all;
  for (std::size_t i = 0; i < 50000; ++i) all.push_back(item("p", "page", i, i + 100000));
  CHECK(rag::drop_overlaps(all, 1).size() == 50000);
  CHECK(rag::drop_overlaps(all, 0.5).size() == 1);
}

TEST_CASE("selection: two passages of a document by default, the next document moves up") {
  const items fused{item("E41", "gateway-errors"), item("E42", "gateway-errors"),
                    item("E43", "gateway-errors"), item("R", "key-rotation")};
  drops dropped;
  const std::size_t cap = rag::selection_options{}.per_document;
  const items kept = rag::limit_per_document(fused, cap, &dropped);
  CHECK(ids(kept) == list{"E41", "E42", "R"});
  REQUIRE(dropped.size() == 1);
  CHECK(dropped[0].id == "E43");
  CHECK(dropped[0].stage == rag::drop_stage::cap);
  CHECK(dropped[0].reason == "document gateway-errors already has 2");
}

TEST_CASE("selection: a page is cut by offset and limit, and what comes after is a drop") {
  drops dropped;
  const items page = rag::take_page(passages(5), 1, 2, &dropped);
  CHECK(ids(page) == list{"p1", "p2"});
  CHECK(ids(dropped) == list{"p3", "p4"});  // p0 was on an earlier page
  CHECK(dropped[0].stage == rag::drop_stage::limit);
  CHECK(dropped[0].reason == "after 2 passages from offset 1");
}

TEST_CASE("selection: four pages of 10 are one page of 40, and a page past the end is empty") {
  random_numbers random{22};
  items fused;
  for (std::size_t i = 0; i < 60; ++i) {
    const std::size_t begin = random.below(400);
    fused.push_back(item("p" + std::to_string(i), "d" + std::to_string(i % 30), begin, begin + 40));
  }
  list pages;
  for (std::size_t offset = 0; offset < 40; offset += 10) {
    const auto page = rag::select_passages(fused, {.offset = offset, .limit = 10});
    for (const auto& one : page) pages.push_back(one.id);
  }
  CHECK(pages == ids(rag::select_passages(fused, {.limit = 40})));
  CHECK(rag::select_passages(fused, {.offset = 60, .limit = 10}).empty());
  const std::size_t most = std::numeric_limits<std::size_t>::max();
  CHECK(rag::take_page(fused, most, most).empty());
  drops dropped;
  CHECK(rag::take_page(fused, 1, most, &dropped).size() == 59);
  CHECK(dropped.empty());
}

TEST_CASE("selection: the budget ends at the first passage that does not fit") {
  const items fused{item("A", "a", 0, 1, 60), item("B", "b", 0, 1, 50), item("C", "c", 0, 1, 10),
                    item("D", "d", 0, 1, 30)};
  drops dropped;
  CHECK(ids(rag::fit_budget(fused, 100, false, &dropped)) == list{"A"});
  REQUIRE(ids(dropped) == list{"B", "C", "D"});
  CHECK(dropped[0].stage == rag::drop_stage::budget);
  CHECK(dropped[0].reason == "needs 50 tokens, 40 of 100 are left");
  CHECK(dropped[1].reason == "comes after B, which did not fit");
}

TEST_CASE("selection: filling on takes later passages that fit, in their order") {
  const items fused{item("A", "a", 0, 1, 60), item("B", "b", 0, 1, 50), item("C", "c", 0, 1, 10),
                    item("D", "d", 0, 1, 31)};
  drops dropped;
  CHECK(ids(rag::fit_budget(fused, 100, true, &dropped)) == list{"A", "C"});
  REQUIRE(ids(dropped) == list{"B", "D"});
  CHECK(dropped[1].reason == "needs 31 tokens, 30 of 100 are left");
}

TEST_CASE("selection: a budget is never exceeded, whatever the numbers") {
  const std::size_t most = std::numeric_limits<std::size_t>::max();
  const items fused{item("A", "a", 0, 1, most), item("B", "b", 0, 1, 1), item("C", "c", 0, 1, 0)};
  CHECK(ids(rag::fit_budget(fused, most, true)) == list{"A", "C"});
  CHECK(ids(rag::fit_budget(fused, most, false)) == list{"A"});
  CHECK(ids(rag::fit_budget(fused, 0, true)) == list{"C"});
  CHECK(rag::fit_budget(fused, 0, false).empty());
}

TEST_CASE("selection: each passage that went has one drop, of the first step that took it") {
  const items fused{item("A", "a", 0, 80, 10),     item("A2", "a", 0, 70, 10),
                    item("A3", "a", 100, 180, 10), item("A4", "a", 200, 280, 10),
                    item("B", "b", 0, 80, 10),     item("C", "c", 0, 80, 90),
                    item("D", "d", 0, 80, 10),     item("E", "e", 0, 80, 10)};
  drops dropped;
  const auto kept = rag::select_passages(fused, {.limit = 5, .token_budget = 100}, &dropped);
  CHECK(ids(kept) == list{"A", "A3", "B"});
  CHECK(ids(dropped) == list{"A2", "A4", "E", "C", "D"});
  list stages;
  for (const rag::drop& one : dropped) stages.push_back(std::string(rag::name_of(one.stage)));
  CHECK(stages == list{"dedupe", "cap", "limit", "budget", "budget"});
}

TEST_CASE("selection: nothing is reordered") {
  random_numbers random{23};
  for (int round = 0; round < 200; ++round) {
    items fused;
    for (std::size_t i = 0; i < 40; ++i) {
      const std::size_t begin = random.below(200);
      fused.push_back(item(std::to_string(1000 + i), "d" + std::to_string(random.below(9)), begin,
                           begin + random.below(60), random.below(50)));
    }
    drops dropped;
    const auto kept = rag::select_passages(
        fused, {.limit = 20, .token_budget = 200, .fill_budget = round % 2 == 0}, &dropped);
    list names = ids(kept);
    CHECK(std::is_sorted(names.begin(), names.end()));
    for (const rag::drop& one : dropped) names.push_back(one.id);
    std::sort(names.begin(), names.end());
    CHECK(names == ids(fused));  // kept or dropped, once
  }
}

TEST_CASE("selection: no threshold switches the overlap step off") {
  const items fused{item("A", "page", 0, 80), item("B", "page", 0, 80)};
  CHECK(ids(rag::select_passages(fused, {.overlap_threshold = std::nullopt})) == list{"A", "B"});
  CHECK(ids(rag::select_passages(fused)) == list{"A"});
}

TEST_CASE("selection: an option outside its range is named with its value") {
  const auto said = [](const rag::selection_options& options) {
    const auto checked = rag::check_selection(options);
    REQUIRE_FALSE(checked.ok());
    CHECK(checked.failure().code() == rag::errc::invalid_argument);
    CHECK_FALSE(rag::try_select_passages({}, options).ok());
    return checked.failure().message();
  };
  CHECK(said({.limit = 0}) == "limit 0 must be at least 1");
  CHECK(said({.per_document = 0}) == "per_document 0 must be at least 1");
  CHECK(said({.token_budget = 0}) == "token_budget 0 must be at least 1");
  CHECK(said({.overlap_threshold = 0.0}) == "overlap_threshold 0 must be above 0 and at most 1");
  CHECK(said({.overlap_threshold = 1.5}) == "overlap_threshold 1.5 must be above 0 and at most 1");
  CHECK(said({.overlap_threshold = -0.5}) ==
        "overlap_threshold -0.5 must be above 0 and at most 1");
  CHECK(said({.overlap_threshold = std::numeric_limits<double>::quiet_NaN()}) ==
        "overlap_threshold NaN must be above 0 and at most 1");
  CHECK(rag::check_selection({}).ok());
  CHECK(rag::check_selection({.overlap_threshold = 1.0}).ok());
}

TEST_CASE("selection: the single steps refuse the same values") {
  const items fused = passages(3);
  CHECK_THROWS_WITH_AS(static_cast<void>(rag::take_page(fused, 0, 0)), "limit 0 must be at least 1",
                       rag::error);
  CHECK_THROWS_AS(static_cast<void>(rag::limit_per_document(fused, 0)), rag::error);
  CHECK_THROWS_AS(static_cast<void>(rag::drop_overlaps(fused, 0)), rag::error);
  CHECK_THROWS_AS(static_cast<void>(rag::select_passages(fused, {.limit = 0})), rag::error);
}

TEST_CASE("selection: an empty list passes every step") {
  CHECK(rag::drop_overlaps({}, 0.5).empty());
  CHECK(rag::limit_per_document({}, 2).empty());
  CHECK(rag::take_page({}, 0, 12).empty());
  CHECK(rag::fit_budget({}, 100, false).empty());
  CHECK(rag::select_passages({}).empty());
}

TEST_CASE("selection: every stage has a name") {
  CHECK(rag::name_of(rag::drop_stage::parent) == "parent");
  CHECK(rag::name_of(rag::drop_stage::dedupe) == "dedupe");
  CHECK(rag::name_of(rag::drop_stage::cap) == "cap");
  CHECK(rag::name_of(rag::drop_stage::limit) == "limit");
  CHECK(rag::name_of(rag::drop_stage::budget) == "budget");
}

}  // namespace selection_test
