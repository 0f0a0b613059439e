#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <rag_retrieve.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rag = rag_retrieve;

namespace vectors_test {

using vectors = std::vector<std::vector<float>>;

constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float largest = std::numeric_limits<float>::max();
constexpr float smallest = std::numeric_limits<float>::denorm_min();

/// splitmix64: the same numbers everywhere.
struct random_numbers {
  std::uint64_t state = 1;
  std::uint64_t next() {
    std::uint64_t z = (state += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  float from_minus_1_to_1() {
    return static_cast<float>(static_cast<double>(next() >> 40) / 8388608.0 - 1.0);
  }
  std::vector<float> vector(std::size_t dimension) {
    std::vector<float> values(dimension);
    for (float& value : values) value = from_minus_1_to_1();
    return values;
  }
};

/// An embedder that answers every text with {length of the text, 1} and notes the sizes of batches.
inline rag::embedder lengths_embedder(std::vector<std::size_t>* batches = nullptr) {
  rag::embedder source;
  source.model = "lengths-1";
  source.dimension = 2;
  source.embed = [batches](std::span<const std::string_view> texts, rag::text_role) {
    if (batches != nullptr) batches->push_back(texts.size());
    vectors answer;
    for (std::string_view text : texts) answer.push_back({static_cast<float>(text.size()), 1});
    return answer;
  };
  return source;
}

/// An embedder that answers its first call with `answer`, whatever it was asked.
inline rag::embedder fixed_embedder(vectors answer, std::size_t dimension = 0) {
  rag::embedder source;
  source.model = "fixed-1";
  source.dimension = dimension;
  source.embed = [answer](std::span<const std::string_view>, rag::text_role) { return answer; };
  return source;
}

inline rag::result<vectors> embed(const rag::embedder& source, std::size_t count,
                                  std::span<const std::string> names = {}) {
  const std::vector<std::string_view> texts(count, "text");
  return rag::detail::embed_checked(source, texts, rag::text_role::document, names);
}

inline bool mentions(const rag::error& failure, std::string_view part) {
  return failure.message().find(part) != std::string::npos;
}

TEST_CASE("vectors: {1, 2, 3} . {4, 5, 6} is 32, and no numbers give 0") {
  CHECK(static_cast<int>(rag::dot(std::vector<float>{1, 2, 3}, std::vector<float>{4, 5, 6})) == 32);
  CHECK(static_cast<int>(rag::dot({}, {})) == 0);
}

TEST_CASE("vectors: dot agrees with a sum in double for every dimension from 1 to 67") {
  random_numbers random{7};
  for (std::size_t dimension = 1; dimension <= 67; ++dimension) {
    const auto a = random.vector(dimension);
    const auto b = random.vector(dimension);
    double sum = 0;
    for (std::size_t i = 0; i < dimension; ++i) {
      sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    }
    CHECK(static_cast<double>(rag::dot(a, b)) == doctest::Approx(sum).epsilon(1e-5));
  }
}

TEST_CASE("vectors: zeros appended to both vectors change no bit of dot") {
  random_numbers random{8};
  auto a = random.vector(387);
  auto b = random.vector(387);
  const float expected = rag::dot(a, b);
  for (std::size_t dimension : {388U, 400U, 401U, 1024U}) {
    a.resize(dimension);
    b.resize(dimension);
    CHECK_FALSE(rag::dot(a, b) < expected);
    CHECK_FALSE(rag::dot(a, b) > expected);
  }
}

TEST_CASE("vectors: dot of finite numbers is finite, also where products leave the range") {
  const std::vector<float> a{largest, largest, 1};
  const std::vector<float> b{largest, -largest, 1};
  CHECK(static_cast<int>(rag::dot(a, b)) == 1);  // infinity minus infinity would be NaN
  CHECK_FALSE(rag::dot(a, a) < largest);
  CHECK(rag::detail::is_finite(rag::dot(a, a)));
  const std::vector<float> c{-largest, -largest, 1};
  CHECK_FALSE(rag::dot(a, c) > -largest);
  CHECK(rag::detail::is_finite(rag::dot(a, c)));
}

// ---- kernels ------------------------------------------------------------------------------------

namespace detail = rag::detail;

/// Every set of loops that this processor can run.
inline std::vector<detail::kernel_set> kernel_sets() {
  std::vector<detail::kernel_set> sets;
  for (int level = 0; level <= detail::processor_level(); ++level)
    sets.push_back(detail::kernels_of(level));
  return sets;
}

inline std::vector<std::size_t> dimensions() {
  std::vector<std::size_t> all{127, 128, 129, 383, 384, 385, 768, 1024, 1025};
  for (std::size_t dimension = 1; dimension <= 70; ++dimension) all.push_back(dimension);
  return all;
}

/// |a| |b|, the measure of rounding errors of their product.
inline double lengths_of(std::span<const float> a, std::span<const float> b) {
  return std::sqrt(detail::dot_in_double(a, a) * detail::dot_in_double(b, b));
}

TEST_CASE("kernels: dots agree with sums in double, and a row's bits with no other row") {
  random_numbers random{21};
  for (const detail::kernel_set& with : kernel_sets()) {
    for (const std::size_t dimension : dimensions()) {
      const std::size_t count = 11;
      const auto rows = random.vector(count * dimension);
      const auto question = random.vector(dimension);
      std::vector<std::uint32_t> numbers;
      for (std::uint32_t i = 0; i < 2 * count; ++i) numbers.push_back(i * 7 % count);
      std::vector<float> scores(numbers.size());
      with.dots(question.data(), dimension, rows.data(), numbers.data(), numbers.size(),
                scores.data());
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const auto row = std::span(rows).subspan(numbers[i] * dimension, dimension);
        const double sum = detail::dot_in_double(question, row);
        CHECK(std::abs(static_cast<double>(scores[i]) - sum) <= 2e-7 * lengths_of(question, row));
        float alone = 0;
        with.dots(question.data(), dimension, rows.data(), &numbers[i], 1, &alone);
        CHECK(std::memcmp(&alone, &scores[i], sizeof alone) == 0);
        std::vector<float> moved(dimension + 3);  // another address, another alignment
        std::copy(row.begin(), row.end(), moved.begin() + 3);
        const std::uint32_t first = 0;
        with.dots(question.data(), dimension, moved.data() + 3, &first, 1, &alone);
        CHECK(std::memcmp(&alone, &scores[i], sizeof alone) == 0);
      }
    }
  }
}

TEST_CASE("kernels: zeros appended to both vectors change no bit, on any path") {
  random_numbers random{22};
  for (const detail::kernel_set& with : kernel_sets()) {
    for (const std::size_t dimension : {1U, 5U, 31U, 100U, 387U}) {
      auto row = random.vector(dimension);
      auto question = random.vector(dimension);
      const std::uint32_t first = 0;
      float expected = 0;
      with.dots(question.data(), dimension, row.data(), &first, 1, &expected);
      for (std::size_t longer = dimension; longer < dimension + 40; ++longer) {
        row.resize(longer);
        question.resize(longer);
        float padded = 0;
        with.dots(question.data(), longer, row.data(), &first, 1, &padded);
        CHECK(std::memcmp(&padded, &expected, sizeof padded) == 0);
      }
    }
  }
}

TEST_CASE("kernels: tiles lie within the error that batches allow for, and report what reaches") {
  random_numbers random{23};
  for (const detail::kernel_set& with : kernel_sets()) {
    for (const std::size_t dimension : dimensions()) {
      const std::size_t lanes = with.questions;
      const auto rows = random.vector(6 * dimension);
      const auto packed = random.vector(lanes * dimension);
      const std::vector<std::uint32_t> numbers{3, 1, 5, 0, 2, 4};
      std::vector<float> scores(6 * lanes);
      std::vector<float> bars(lanes, largest);
      CHECK(with.tile(packed.data(), dimension, rows.data(), numbers.data(), bars.data(),
                      scores.data()) == 0);
      for (std::size_t i = 0; i < scores.size(); ++i) {
        std::vector<float> question(dimension);
        for (std::size_t j = 0; j < dimension; ++j) question[j] = packed[j * lanes + i % lanes];
        const auto row = std::span(rows).subspan(numbers[i / lanes] * dimension, dimension);
        const double error =
            std::abs(static_cast<double>(scores[i]) - detail::dot_in_double(question, row));
        CHECK(error <= static_cast<double>(dimension + 1) * 0x1p-24 * lengths_of(question, row));
      }
      for (const std::size_t row : {0U, 2U, 5U}) {  // the best of a row, at each of its lanes once
        const std::size_t lane = (dimension + row) % lanes;
        std::fill(bars.begin(), bars.end(), largest);
        bars[lane] = scores[row * lanes + lane];
        unsigned expected = 0;
        for (std::size_t other = 0; other < 6; ++other)
          expected |= scores[other * lanes + lane] >= bars[lane] ? 1U << other : 0U;
        CHECK(with.tile(packed.data(), dimension, rows.data(), numbers.data(), bars.data(),
                        scores.data()) == expected);
      }
    }
  }
}

TEST_CASE("kernels: sums over codes are exact on every path") {
  random_numbers random{24};
  for (const std::size_t runs : {1U, 2U, 3U, 5U, 8U, 20U}) {
    std::vector<std::uint16_t> rows(7 * runs * 32);
    for (auto& word : rows) word = static_cast<std::uint16_t>(random.next());
    if (runs == 3) std::fill(rows.begin(), rows.end(), std::uint16_t{0xFFFF});
    std::vector<int> by_dimension;
    std::vector<std::int16_t> digits(192 * runs);
    auto* bytes = reinterpret_cast<signed char*>(digits.data() + 128 * runs);
    for (std::size_t i = 0; i < 128 * runs; ++i) {
      const int digit = runs == 3 ? 127 : static_cast<int>(random.next() % 255) - 127;
      by_dimension.push_back(digit);
      digits[i] = static_cast<std::int16_t>(digit);
      bytes[detail::digit_place(i)] = static_cast<signed char>(digit);
    }
    const std::vector<std::uint32_t> numbers{6, 2, 2, 0, 5};
    for (const detail::kernel_set& with : kernel_sets()) {
      std::vector<std::int32_t> sums(numbers.size());
      with.codes(digits.data(), runs, rows.data(), numbers.data(), numbers.size(), sums.data());
      for (std::size_t at = 0; at < numbers.size(); ++at) {
        int expected = 0;
        for (std::size_t i = 0; i < 128 * runs; ++i) {
          const int word = rows[numbers[at] * runs * 32 + i / 128 * 32 + i % 32];
          expected += (word >> (i / 32 % 4 * 4) & 15) * by_dimension[i];
        }
        CHECK(sums[at] == expected);
      }
    }
  }
}

TEST_CASE("vectors: cosine is 1 for one direction, 0 at a right angle, -1 for the opposite") {
  const std::vector<float> a{3, 4};
  CHECK(rag::cosine(a, std::vector<float>{6, 8}) == doctest::Approx(1));
  CHECK(rag::cosine(a, std::vector<float>{-4, 3}) == doctest::Approx(0));
  CHECK(rag::cosine(a, std::vector<float>{-3, -4}) == doctest::Approx(-1));
}

TEST_CASE("vectors: cosine with a zero vector is 0, from either side") {
  const std::vector<float> a{3, 4};
  const std::vector<float> zero{0, 0};
  CHECK(rag::cosine(a, zero) == doctest::Approx(0));
  CHECK(rag::cosine(zero, a) == doctest::Approx(0));
  CHECK(rag::cosine(zero, zero) == doctest::Approx(0));
}

TEST_CASE("vectors: cosine stays within [-1, 1] and does not overflow") {
  random_numbers random{9};
  for (int round = 0; round < 200; ++round) {
    const auto a = random.vector(33);
    CHECK(rag::cosine(a, a) <= 1.0);
    CHECK(rag::cosine(a, a) == doctest::Approx(1));
  }
  const std::vector<float> giant{largest, largest};
  CHECK(rag::cosine(giant, giant) == doctest::Approx(1));
}

TEST_CASE("vectors: normalise turns {3, 4} into {0.6, 0.8} and says so") {
  std::vector<float> a{3, 4};
  CHECK(rag::normalise(a));
  CHECK(a[0] == doctest::Approx(0.6F));
  CHECK(a[1] == doctest::Approx(0.8F));
}

TEST_CASE("vectors: normalise leaves a zero vector unchanged and says no") {
  std::vector<float> zero{0, 0, 0};
  CHECK_FALSE(rag::normalise(zero));
  CHECK(zero == std::vector<float>{0, 0, 0});
}

TEST_CASE("vectors: normalise neither overflows nor loses giant vectors") {
  std::vector<float> giant{largest, 0, largest};
  CHECK(rag::normalise(giant));
  CHECK(giant[2] == doctest::Approx(0.70710678F));
}

#if !defined(__FAST_MATH__)
TEST_CASE("vectors: the smallest denormals have a direction") {
  std::vector<float> tiny{smallest, 0, 0};
  CHECK(rag::cosine(tiny, std::vector<float>{5, 0, 0}) == doctest::Approx(1));
  CHECK(rag::normalise(tiny));
  CHECK(tiny[0] == doctest::Approx(1.0F));
}
#endif

TEST_CASE("vectors: dot and cosine of different lengths are refused with both lengths") {
  const std::vector<float> a{1, 2, 3};
  const std::vector<float> b{1, 2};
  CHECK_THROWS_AS(static_cast<void>(rag::dot(a, b)), rag::error);
  CHECK_THROWS_WITH_AS(static_cast<void>(rag::cosine(a, b)),
                       "cosine: the first vector has 3 numbers, the second 2", rag::error);
}

TEST_CASE("embedder: 150 texts in batches of 64 are 3 calls, in the order of the texts") {
  std::vector<std::size_t> batches;
  const rag::embedder source = lengths_embedder(&batches);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < 150; ++i) texts.push_back(std::string(i, 'x'));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const auto answer = rag::detail::embed_checked(source, views, rag::text_role::document);
  REQUIRE(answer.ok());
  CHECK(batches == std::vector<std::size_t>{64, 64, 22});
  REQUIRE(answer->size() == 150);
  for (std::size_t i = 0; i < 150; ++i) CHECK(static_cast<std::size_t>((*answer)[i][0]) == i);
}

TEST_CASE("embedder: no texts need no call") {
  std::vector<std::size_t> batches;
  const auto answer = embed(lengths_embedder(&batches), 0);
  REQUIRE(answer.ok());
  CHECK(answer->empty());
  CHECK(batches.empty());
}

TEST_CASE("embedder: the callback learns whether it embeds documents or a question") {
  rag::embedder source = lengths_embedder();
  std::vector<rag::text_role> roles;
  source.embed = [&](std::span<const std::string_view>, rag::text_role role) {
    roles.push_back(role);
    return vectors{{1, 2}};
  };
  const std::vector<std::string_view> text{"why?"};
  CHECK(rag::detail::embed_checked(source, text, rag::text_role::question).ok());
  CHECK(rag::detail::embed_checked(source, text, rag::text_role::document).ok());
  CHECK(roles == std::vector<rag::text_role>{rag::text_role::question, rag::text_role::document});
}

TEST_CASE("embedder: 20 vectors for 25 texts are refused whole, never paired by position") {
  const auto answer = embed(fixed_embedder(vectors(20, {1, 2})), 25);
  REQUIRE_FALSE(answer.ok());
  CHECK(answer.failure().code() == rag::errc::embedder_failed);
  CHECK(answer.failure().message() ==
        "embedder 'fixed-1': answered texts 1 to 25 of 25 with 20 vectors, expected 25");
}

TEST_CASE("embedder: too many vectors are refused as well, and the second batch is named") {
  rag::embedder source = lengths_embedder();
  source.batch_size = 10;
  int calls = 0;
  source.embed = [&](std::span<const std::string_view> texts, rag::text_role) {
    return vectors(texts.size() + (++calls == 2 ? 1 : 0), {1, 2});
  };
  const auto answer = embed(source, 25);
  REQUIRE_FALSE(answer.ok());
  CHECK(mentions(answer.failure(), "texts 11 to 20 of 25 with 11 vectors, expected 10"));
  CHECK(calls == 2);  // nothing is asked for after a failure
}

TEST_CASE("embedder: a vector of another length is refused and its text is named") {
  vectors answer(5, {1, 2, 3});
  answer[3] = {1, 2};
  const auto declared = embed(fixed_embedder(answer, 3), 5);
  REQUIRE_FALSE(declared.ok());
  CHECK(declared.failure().code() == rag::errc::dimension_mismatch);
  CHECK(declared.failure().message() ==
        "embedder 'fixed-1': the vector of text 4 of 5 has 2 numbers, expected 3 (the embedder's "
        "dimension)");

  const std::vector<std::string> names{"chunk 'A'", "chunk 'B'", "chunk 'C'", "chunk 'D'",
                                       "chunk 'E'"};
  const auto first = embed(fixed_embedder(answer), 5, names);
  REQUIRE_FALSE(first.ok());
  CHECK(first.failure().message() ==
        "embedder 'fixed-1': the vector of chunk 'D' has 2 numbers, expected 3 (its first length)");
}

TEST_CASE("embedder: a vector without numbers is refused") {
  const auto answer = embed(fixed_embedder({{}}), 1);
  REQUIRE_FALSE(answer.ok());
  CHECK(answer.failure().message() ==
        "embedder 'fixed-1': the vector of text 1 of 1 has 0 numbers, expected at least 1");
}

TEST_CASE("embedder: the dimension holds across batches") {
  rag::embedder source = fixed_embedder({});
  source.batch_size = 1;
  std::size_t calls = 0;
  source.embed = [&](std::span<const std::string_view>, rag::text_role) {
    return vectors{std::vector<float>(++calls == 3 ? 5 : 4, 1.0F)};
  };
  const auto answer = embed(source, 4);
  REQUIRE_FALSE(answer.ok());
  CHECK(mentions(answer.failure(), "text 3 of 4 has 5 numbers, expected 4"));
}

TEST_CASE("embedder: NaN and infinity are refused with text and position") {
  for (float bad : {quiet_nan, infinity, -infinity}) {
    const auto answer = embed(fixed_embedder({{1, 2}, {1, bad}}), 2);
    REQUIRE_FALSE(answer.ok());
    CHECK(answer.failure().code() == rag::errc::not_finite);
    CHECK(answer.failure().message() ==
          "embedder 'fixed-1': the vector of text 2 of 2: number 2 of 2 is not finite");
  }
}

TEST_CASE("embedder: a vector of zeros is let through; the index never finds it") {
  const auto answer = embed(fixed_embedder({{0, 0}}), 1);
  REQUIRE(answer.ok());
  rag::flat_index index(2);
  CHECK(index.add((*answer)[0], "zero") == 0);
  CHECK(index.search(std::vector<float>{1, 0}, 1, rag::row_set::all(1)).empty());
}

TEST_CASE("embedder: what the callback throws becomes embedder_failed with its words") {
  rag::embedder source = lengths_embedder();
  source.embed = [](std::span<const std::string_view>, rag::text_role) -> rag::result<vectors> {
    throw std::runtime_error("connection lost");
  };
  const auto answer = embed(source, 3);
  REQUIRE_FALSE(answer.ok());
  CHECK(answer.failure().code() == rag::errc::embedder_failed);
  CHECK(answer.failure().message() == "embedder 'lengths-1': connection lost");
}

TEST_CASE("embedder: an error that the callback returns passes unchanged") {
  rag::embedder source = lengths_embedder();
  source.embed = [](std::span<const std::string_view>, rag::text_role) -> rag::result<vectors> {
    return rag::error(rag::errc::callback_failed, "quota used up");
  };
  const auto answer = embed(source, 3);
  REQUIRE_FALSE(answer.ok());
  CHECK(answer.failure().code() == rag::errc::callback_failed);
  CHECK(answer.failure().message() == "quota used up");
}

TEST_CASE("embedder: a batch size of 0 and a missing function are named") {
  rag::embedder source = lengths_embedder();
  source.batch_size = 0;
  const auto zero = embed(source, 3);
  REQUIRE_FALSE(zero.ok());
  CHECK(zero.failure().code() == rag::errc::invalid_argument);
  CHECK(zero.failure().message() == "embedder 'lengths-1': batch_size 0 must be at least 1");

  const auto missing = embed(rag::embedder{}, 3);
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.failure().code() == rag::errc::invalid_argument);
  CHECK(missing.failure().message() == "embedder '': embed is not set, expected a function");
}

TEST_CASE("embedder: the largest batch size is one call") {
  std::vector<std::size_t> batches;
  rag::embedder source = lengths_embedder(&batches);
  source.batch_size = std::numeric_limits<std::size_t>::max();
  CHECK(embed(source, 100).ok());
  CHECK(batches == std::vector<std::size_t>{100});
}

}  // namespace vectors_test
