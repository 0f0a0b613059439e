#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <rag_retrieve.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rag = rag_retrieve;

namespace vector_index_test {

using rows_of_numbers = std::vector<std::vector<float>>;

constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float largest = std::numeric_limits<float>::max();
constexpr float smallest = std::numeric_limits<float>::denorm_min();

struct random_numbers {
  std::uint64_t state = 1;
  std::uint64_t next() {
    std::uint64_t z = (state += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }
  std::vector<float> vector(std::size_t dimension) {
    std::vector<float> values(dimension);
    for (float& value : values) {
      value = static_cast<float>(static_cast<double>(next() >> 40) / 8388608.0 - 1.0);
    }
    return values;
  }
};

inline rag::flat_index index_of(const rows_of_numbers& rows, rag::metric measure) {
  rag::flat_index index(rows.front().size(), measure);
  for (const auto& row : rows) index.add(row, "row");
  return index;
}

inline rag::row_set all_of(const rag::flat_index& index) { return rag::row_set::all(index.size()); }

inline rag::row_set rows(std::size_t size, const std::vector<std::size_t>& members) {
  rag::row_set set(size);
  for (std::size_t row : members) set.insert(row);
  return set;
}

inline std::vector<std::uint32_t> rows_of(const std::vector<rag::vector_hit>& hits) {
  std::vector<std::uint32_t> found;
  for (const rag::vector_hit& hit : hits) found.push_back(hit.row);
  return found;
}

using found = std::vector<std::uint32_t>;

inline double exact_dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

/// The similarity as the formula says, all in double.
inline double exact_score(std::span<const float> a, std::span<const float> b, rag::metric measure) {
  if (measure == rag::metric::inner_product) return exact_dot(a, b);
  return exact_dot(a, b) / (std::sqrt(exact_dot(a, a)) * std::sqrt(exact_dot(b, b)));
}

inline bool is_zero(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return !(v < 0) && !(v > 0); });
}

/// Searches for k hits and compares with scores in double: same number of hits, strictly in order,
/// and at each place a row whose true score is the true one of that place, but for near-ties.
inline void compare_with_double(const rows_of_numbers& data, std::span<const float> question,
                                std::size_t k, const rag::row_set& among, rag::metric measure) {
  const rag::flat_index index = index_of(data, measure);
  const auto hits = index.search(question, k, among);
  std::vector<double> truth;
  double scale = 1;
  for (std::size_t row = 0; row < data.size(); ++row) {
    if (!among.contains(row)) continue;
    if (measure == rag::metric::cosine && is_zero(data[row])) continue;
    truth.push_back(exact_score(question, data[row], measure));
    if (measure == rag::metric::inner_product) {
      scale = (std::max)(
          scale, std::sqrt(exact_dot(data[row], data[row]) * exact_dot(question, question)));
    }
  }
  std::sort(truth.begin(), truth.end(), [](double a, double b) { return a > b; });
  REQUIRE(hits.size() == (std::min)(k, truth.size()));
  bool ordered = true;
  bool near_truth = true;
  bool allowed = true;
  for (std::size_t i = 0; i < hits.size(); ++i) {
    if (i > 0 && !rag::detail::scores_before(hits[i - 1], hits[i])) ordered = false;
    if (!among.contains(hits[i].row)) allowed = false;
    const double score = exact_score(question, data[hits[i].row], measure);
    if (std::abs(score - truth[i]) > 1e-5 * scale) near_truth = false;
    if (std::abs(static_cast<double>(hits[i].score) - score) > 1e-5 * scale) near_truth = false;
  }
  CHECK(ordered);
  CHECK(allowed);
  CHECK(near_truth);
}

inline bool same_bits(const std::vector<rag::vector_hit>& a,
                      const std::vector<rag::vector_hit>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].row != b[i].row) return false;
    if (std::memcmp(&a[i].score, &b[i].score, sizeof(float)) != 0) return false;
  }
  return true;
}

TEST_CASE("flat index: the closest row comes first, equal rows in row order") {
  const auto index = index_of({{0, 1}, {1, 0}, {0.8F, 0.6F}, {1, 0}}, rag::metric::cosine);
  CHECK(rows_of(index.search(std::vector<float>{1, 0}, 4, all_of(index))) == found{1, 3, 2, 0});
}

TEST_CASE("flat index: cosine ignores lengths, inner product does not") {
  const rows_of_numbers data{{1, 0}, {10, 10}};
  const auto by_cosine = index_of(data, rag::metric::cosine);
  const auto by_product = index_of(data, rag::metric::inner_product);
  const std::vector<float> question{1, 0};
  CHECK(rows_of(by_cosine.search(question, 2, all_of(by_cosine))) == found{0, 1});
  CHECK(rows_of(by_product.search(question, 2, all_of(by_product))) == found{1, 0});
}

TEST_CASE("flat index: inner product keeps the numbers as given, cosine keeps length 1") {
  const auto given = index_of({{3, 4}}, rag::metric::inner_product);
  CHECK(static_cast<int>(given.row(0)[0]) == 3);
  const auto unit = index_of({{3, 4}}, rag::metric::cosine);
  CHECK(unit.row(0)[1] == doctest::Approx(0.8F));
}

TEST_CASE("flat index: scores agree with a scan in double, any metric, dimension and filter") {
  random_numbers random{11};
  for (std::size_t dimension : {1U, 2U, 7U, 16U, 383U, 1025U}) {
    for (rag::metric measure : {rag::metric::cosine, rag::metric::inner_product}) {
      rows_of_numbers data;
      for (std::size_t row = 0; row < 60; ++row) data.push_back(random.vector(dimension));
      data.push_back(data[3]);  // duplicates
      data.push_back(data[3]);
      data.push_back(std::vector<float>(dimension, 0.0F));
      const auto question = random.vector(dimension);
      rag::row_set some(data.size());
      for (std::size_t row = 0; row < data.size(); ++row) {
        if (random.below(3) == 0) some.insert(row);
      }
      for (std::size_t k : {1U, 2U, 10U, 63U, 64U, 1000U}) {
        compare_with_double(data, question, k, rag::row_set::all(data.size()), measure);
        compare_with_double(data, question, k, some, measure);
      }
    }
  }
}

TEST_CASE("flat index: a giant coordinate or a denormal row upsets nobody") {
  rows_of_numbers data{{largest, 0, 0}, {0, 1, 0}, {1, 1, 0}, {largest, largest, 1}, {-1, 0, 0}};
#if !defined(__FAST_MATH__)
  data.push_back({smallest, 0, 0});
  data.push_back({0, smallest, smallest});
#endif
  const std::vector<float> question{1, 0.5F, 0};
  compare_with_double(data, question, 7, rag::row_set::all(data.size()), rag::metric::cosine);
  compare_with_double(data, question, 3, rag::row_set::all(data.size()), rag::metric::cosine);
}

TEST_CASE("flat index: an inner product beyond the range of float is held there, never NaN") {
  const auto index = index_of({{1, 1}, {largest, -largest}, {largest, largest}, {-largest, -1}},
                              rag::metric::inner_product);
  const auto hits = index.search(std::vector<float>{largest, largest}, 4, all_of(index));
  CHECK(rows_of(hits) == found{0, 2, 1, 3});
  for (const auto& hit : hits) CHECK(rag::detail::is_finite(hit.score));
}

TEST_CASE("flat index: the hits for a smaller k open those for a larger, bit for bit") {
  random_numbers random{12};
  rag::flat_index index(5);
  for (int row = 0; row < 300; ++row) {
    auto values = random.vector(5);
    for (float& value : values) value = std::round(value * 2);  // many ties, some zero vectors
    index.add(values, "row");
  }
  const auto question = random.vector(5);
  const auto all = index.search(question, index.size(), all_of(index));
  for (std::size_t k = 1; k <= index.size(); ++k) {
    const auto hits = index.search(question, k, all_of(index));
    const std::size_t count = (std::min)(k, all.size());
    CHECK(same_bits(hits, {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count)}));
  }
}

TEST_CASE("flat index: a filtered search is the search of an index of those rows alone") {
  random_numbers random{13};
  rag::flat_index whole(19);
  rag::flat_index part(19);
  rag::row_set some(400);
  std::vector<std::uint32_t> number_of;
  for (std::size_t row = 0; row < 400; ++row) {
    const auto values = random.vector(19);
    whole.add(values, "row");
    if (random.below(4) != 0) continue;
    some.insert(row);
    part.add(values, "row");
    number_of.push_back(static_cast<std::uint32_t>(row));
  }
  for (std::size_t k : {1U, 5U, 50U, 400U}) {
    const auto question = random.vector(19);
    auto expected = part.search(question, k, all_of(part));
    for (auto& hit : expected) hit.row = number_of[hit.row];
    CHECK(same_bits(whole.search(question, k, some), expected));
  }
}

TEST_CASE("flat index: exactly min(k, allowed) hits, no padding with made-up rows") {
  const auto index = index_of({{1, 0}, {0.8F, 0.6F}, {0, 1}, {0.6F, 0.8F}, {-1, 0}, {-0.8F, 0.6F}},
                              rag::metric::inner_product);
  const auto hits = index.search(std::vector<float>{1, 0}, 4, rows(6, {5}));
  REQUIRE(hits.size() == 1);
  CHECK(hits[0].row == 5);
  CHECK(hits[0].score == doctest::Approx(-0.8F));
}

TEST_CASE("flat index: a row outside the set never comes back") {
  const auto index = index_of({{1, 0}, {0.9F, 0.1F}, {0, 1}}, rag::metric::inner_product);
  CHECK(rows_of(index.search(std::vector<float>{1, 0}, 3, rows(3, {2}))) == found{2});
  CHECK(index.search(std::vector<float>{1, 0}, 3, rows(3, {})).empty());
  CHECK(index.search(std::vector<float>{1, 0}, 3, rag::row_set{}).empty());
}

TEST_CASE("flat index: a set of another size allows nothing beyond either") {
  const auto index = index_of({{1, 0}, {0, 1}}, rag::metric::cosine);
  CHECK(rows_of(index.search(std::vector<float>{1, 0}, 9, rag::row_set::all(100))) == found{0, 1});
  CHECK(rows_of(index.search(std::vector<float>{1, 0}, 9, rag::row_set::all(1))) == found{0});
}

TEST_CASE("flat index: 5 readable rows among 1000, all farther than the rest, are all found") {
  rows_of_numbers data(1000, {1, 0});
  const std::vector<std::size_t> readable{17, 230, 231, 640, 999};
  for (std::size_t i = 0; i < readable.size(); ++i) {
    data[readable[i]] = {-1, static_cast<float>(i)};
  }
  const auto index = index_of(data, rag::metric::cosine);
  const auto hits = index.search(std::vector<float>{1, 0}, 5, rows(1000, readable));
  CHECK(rows_of(hits) == found{999, 640, 231, 230, 17});
}

TEST_CASE("flat index: rows that were taken out of the set take no place in the result") {
  rag::flat_index index(2);
  for (int row = 0; row < 100; ++row) {
    index.add(std::vector<float>{1, static_cast<float>(row)}, "row");
  }
  rag::row_set live = rag::row_set::all(100);
  for (std::size_t row = 0; row < 20; ++row) live.remove(row);
  const auto hits = index.search(std::vector<float>{1, 0}, 10, live);
  CHECK(rows_of(hits) == found{20, 21, 22, 23, 24, 25, 26, 27, 28, 29});
}

TEST_CASE("flat index: what was removed and added again is found by its new vector only") {
  auto index = index_of({{1, 0}, {0, 1}}, rag::metric::inner_product);
  index.add(std::vector<float>{0, 1}, "row 0 again");
  CHECK(rows_of(index.search(std::vector<float>{0, 1}, 2, rows(3, {1, 2}))) == found{1, 2});
}

TEST_CASE("flat index: NaN and infinity are refused with name and position, nothing changes") {
  rag::flat_index index(2, rag::metric::inner_product);
  index.add(std::vector<float>{1, 0}, "chunk 'A'");
  for (float bad : {quiet_nan, infinity, -infinity}) {
    const auto added = index.try_add(std::vector<float>{bad, 0}, "chunk 'B'");
    REQUIRE_FALSE(added.ok());
    CHECK(added.failure().code() == rag::errc::not_finite);
    CHECK(added.failure().message() ==
          "flat_index: the vector of chunk 'B': number 1 of 2 is not finite");
  }
  CHECK(index.size() == 1);
  CHECK(index.add(std::vector<float>{0.5F, 0}, "chunk 'C'") == 1);
  CHECK(rows_of(index.search(std::vector<float>{1, 0}, 4, all_of(index))) == found{0, 1});
}

TEST_CASE("flat index: a vector of another length is refused with its name and both lengths") {
  rag::flat_index index(384);
  const auto added = index.try_add(std::vector<float>(383, 1.0F), "chunk 'E42'");
  REQUIRE_FALSE(added.ok());
  CHECK(added.failure().code() == rag::errc::dimension_mismatch);
  CHECK(added.failure().message() ==
        "flat_index: the vector of chunk 'E42' has 383 numbers, the index holds 384");
  CHECK(index.size() == 0);
}

TEST_CASE("flat index: dimension 0 takes the length of the first vector") {
  rag::flat_index index(0);
  CHECK(index.add_missing() == 0);
  CHECK_FALSE(index.try_add({}, "nothing").ok());
  CHECK(index.search(std::vector<float>{1}, 1, all_of(index)).empty());
  CHECK(index.add(std::vector<float>{0, 2, 0}, "first") == 1);
  CHECK(index.dimension() == 3);
  CHECK(index.row(0).empty());
  CHECK(index.row(1).size() == 3);
  CHECK(index.row(1)[1] == doctest::Approx(1.0F));
  CHECK_FALSE(index.try_add(std::vector<float>{1, 2}, "second").ok());
  CHECK(rows_of(index.search(std::vector<float>{0, 1, 0}, 2, all_of(index))) == found{1});
}

TEST_CASE("flat index: a zero vector under cosine is kept as a row and never found") {
  const auto index = index_of({{1, 0, 0}, {0, 0, 0}, {0.9F, 0.1F, 0}}, rag::metric::cosine);
  CHECK(index.size() == 3);
  CHECK_FALSE(index.has_vector(1));
  CHECK(index.has_vector(2));
  CHECK(rows_of(index.search(std::vector<float>{1, 0, 0}, 3, all_of(index))) == found{0, 2});
}

TEST_CASE("flat index: a zero vector under inner product scores 0 like any other") {
  const auto index = index_of({{-1, 0}, {0, 0}, {1, 0}}, rag::metric::inner_product);
  CHECK(rows_of(index.search(std::vector<float>{1, 0}, 3, all_of(index))) == found{2, 1, 0});
}

TEST_CASE("flat index: a row without a vector keeps its number and is never found") {
  rag::flat_index index(2);
  CHECK(index.add(std::vector<float>{0, 1}, "A") == 0);
  CHECK(index.add_missing() == 1);
  CHECK(index.add(std::vector<float>{1, 0}, "C") == 2);
  CHECK_FALSE(index.has_vector(1));
  CHECK_FALSE(index.has_vector(3));
  CHECK(rows_of(index.search(std::vector<float>{1, 0}, 3, all_of(index))) == found{2, 0});
}

TEST_CASE("flat index: a zero question has no direction: no hits under cosine, no NaN") {
  const rows_of_numbers data{{0, 0, 0, 0}, {1, 2, 3, 4}};
  const std::vector<float> zero(4, 0.0F);
  const auto by_cosine = index_of(data, rag::metric::cosine);
  CHECK(by_cosine.search(zero, 2, all_of(by_cosine)).empty());
  const auto by_product = index_of(data, rag::metric::inner_product);
  CHECK(rows_of(by_product.search(zero, 2, all_of(by_product))) == found{0, 1});
}

TEST_CASE("flat index: a question of another length is an error with both lengths") {
  rag::flat_index index(1024);
  const auto hits = index.try_search(std::vector<float>(1536, 1.0F), 5, all_of(index));
  REQUIRE_FALSE(hits.ok());
  CHECK(hits.failure().code() == rag::errc::dimension_mismatch);
  CHECK(hits.failure().message() == "flat_index: question has 1536 numbers, the index holds 1024");
}

TEST_CASE("flat index: a question that is not finite is an error with the position") {
  const auto index = index_of({{1, 0}}, rag::metric::cosine);
  for (float bad : {quiet_nan, infinity, -infinity}) {
    const auto hits = index.try_search(std::vector<float>{1, bad}, 5, all_of(index));
    REQUIRE_FALSE(hits.ok());
    CHECK(hits.failure().code() == rag::errc::not_finite);
    CHECK(hits.failure().message() == "flat_index: question: number 2 of 2 is not finite");
  }
}

TEST_CASE("flat index: k 0 is refused, also by an empty index; the largest k is fine") {
  rag::flat_index index(2);
  const std::vector<float> question{1, 0};
  const auto none = index.try_search(question, 0, all_of(index));
  REQUIRE_FALSE(none.ok());
  CHECK(none.failure().code() == rag::errc::invalid_argument);
  CHECK(none.failure().message() == "flat_index: k 0 must be at least 1");
  const auto most = std::numeric_limits<std::size_t>::max();
  CHECK(index.search(question, most, all_of(index)).empty());
  index.add(question, "A");
  CHECK(index.search(question, most, all_of(index)).size() == 1);
}

TEST_CASE("flat index: search throws what try_search returns") {
  rag::flat_index index(2);
  CHECK_THROWS_AS(static_cast<void>(index.search(std::vector<float>{1}, 1, all_of(index))),
                  rag::error);
  CHECK_THROWS_AS(index.add(std::vector<float>{1}, "A"), rag::error);
}

TEST_CASE("flat index: neither the address of a question nor that of a row changes a bit") {
  random_numbers random{15};
  rag::flat_index index(387);
  for (int row = 0; row < 20; ++row) index.add(random.vector(387), "row");
  const auto question = random.vector(387);
  const auto expected = index.search(question, 20, all_of(index));
  for (std::size_t offset : {1U, 3U, 7U, 15U}) {
    std::vector<float> moved(387 + offset);
    std::copy(question.begin(), question.end(),
              moved.begin() + static_cast<std::ptrdiff_t>(offset));
    const auto view = std::span<const float>(moved).subspan(offset);
    CHECK(same_bits(index.search(view, 20, all_of(index)), expected));
  }
}

TEST_CASE("flat index: zeros appended to every vector change no inner product") {
  random_numbers random{16};
  rows_of_numbers data;
  for (int row = 0; row < 30; ++row) data.push_back(random.vector(5));
  auto question = random.vector(5);
  const auto plain = index_of(data, rag::metric::inner_product);
  const auto expected = plain.search(question, 30, all_of(plain));
  for (std::size_t dimension : {6U, 16U, 17U, 1024U}) {
    for (auto& row : data) row.resize(dimension);
    question.resize(dimension);
    const auto padded = index_of(data, rag::metric::inner_product);
    CHECK(same_bits(padded.search(question, 30, all_of(padded)), expected));
  }
}

TEST_CASE("flat index: a row of the index itself can be added again") {
  rag::flat_index index(3, rag::metric::inner_product);
  index.add(std::vector<float>{1, 2, 3}, "first");
  for (int i = 0; i < 100; ++i) index.add(index.row(0), "again");
  CHECK(index.size() == 101);
  CHECK(static_cast<int>(index.row(100)[2]) == 3);
}

TEST_CASE("flat index: rows taken over from another index keep their bits") {
  random_numbers random{17};
  rag::flat_index source(33);
  rag::flat_index copy(33);
  for (int row = 0; row < 200; ++row) source.add(random.vector(33), "row");
  source.add_missing();
  for (std::uint32_t row = 0; row < source.size(); ++row) {
    REQUIRE(copy.try_add_from(source, row).ok());
  }
  CHECK_FALSE(copy.has_vector(200));
  const auto question = random.vector(33);
  CHECK(same_bits(copy.search(question, 300, all_of(copy)),
                  source.search(question, 300, all_of(source))));

  rag::flat_index other_measure(33, rag::metric::inner_product);
  CHECK_FALSE(other_measure.try_add_from(source, 0).ok());
  rag::flat_index other_length(32);
  CHECK_FALSE(other_length.try_add_from(source, 0).ok());
  CHECK_FALSE(copy.try_add_from(source, 201).ok());
}

}  // namespace vector_index_test
