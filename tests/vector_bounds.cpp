// The bounds of exact search: no score lies above its bound, and not by a wide margin that would
// hide a wrong bound. The data here is made so that a bound is all but reached: each of its terms,
// made a few hundredths too small, is then found out.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <rag_retrieve.hpp>
#include <span>
#include <vector>

#include "made.hpp"

namespace rag = rag_retrieve;
namespace detail = rag_retrieve::detail;

namespace vector_bounds_test {

using numbers = std::vector<float>;

/// Rows and their negatives, every dimension with the same numbers: its mean is 0, its width 1.
struct even_rows {
  std::size_t dimension = 0;
  numbers values = {};

  void add_with_negative(const numbers& row) {
    values.insert(values.end(), row.begin(), row.end());
    for (const float value : row) values.push_back(-value);
  }
  /// Every rotation of a row.
  static even_rows rotated(numbers row) {
    even_rows all{row.size(), {}};
    for (std::size_t i = 0; i < row.size(); ++i) {
      all.add_with_negative(row);
      std::rotate(row.begin(), row.begin() + 1, row.end());
    }
    return all;
  }
  [[nodiscard]] std::size_t size() const { return values.size() / dimension; }
  [[nodiscard]] std::span<const float> operator[](std::size_t row) const {
    return std::span(values).subspan(row * dimension, dimension);
  }
  [[nodiscard]] detail::vector_block block(const detail::kernel_set& with) const {
    return {&with, values.data(), dimension, 1e3};
  }
};

/// The code of each dimension of a row, as sums with a question that has one digit 1 tell: of the
/// upper plane 0 to 15, of both 0 to 255.
std::vector<double> codes_of(const detail::row_bounds& bounds, std::size_t dimension,
                             std::uint32_t row, int planes) {
  const std::size_t runs = (dimension + 127) / 128;
  std::vector<double> codes;
  for (std::size_t i = 0; i < dimension; ++i) {
    detail::coded_question one;
    one.digits.assign(192 * runs, 0);
    one.digits[i] = 1;
    reinterpret_cast<signed char*>(one.digits.data() + 128 * runs)[detail::digit_place(i)] = 1;
    std::int32_t high = 0;
    std::int32_t low = 0;
    bounds.add_up(detail::kernels(), one, 0, std::span(&row, 1), &high);
    bounds.add_up(detail::kernels(), one, 1, std::span(&row, 1), &low);
    codes.push_back(planes == 1 ? high : 16 * high + low);
  }
  return codes;
}

/// How far the bound of a row lies above its score; below 0 it is wrong.
double margin(const detail::row_bounds& bounds, const detail::coded_question& asked,
              const detail::vector_block& block, std::span<const float> question, std::uint32_t row,
              int planes) {
  std::int32_t high = 0;
  std::int32_t low = 0;
  bounds.add_up(*block.with, asked, 0, std::span(&row, 1), &high);
  bounds.add_up(*block.with, asked, 1, std::span(&row, 1), &low);
  const float bound =
      planes == 1 ? bounds.bound(asked, row, high) : bounds.bound(asked, row, high, low);
  float score = 0;
  block.score(question, std::span(&row, 1), &score);
  return static_cast<double>(bound) - static_cast<double>(score);
}

/// A question along what a row's code leaves out, so that the product with it is as large as it can
/// be. Its digits are exact: the step is a power of two.
numbers along_the_rest(const detail::row_bounds& bounds, std::span<const float> row,
                       std::uint32_t number, int planes) {
  const auto codes = codes_of(bounds, row.size(), number, planes);
  const auto step = static_cast<double>(bounds.step(number));
  std::vector<double> rest;
  double most = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double coded = planes == 1 ? 16 * step * (codes[i] - 7.5) : step * (codes[i] - 127.5);
    rest.push_back(static_cast<double>(row[i]) - coded);
    most = (std::max)(most, std::abs(rest.back()));
  }
  numbers question;
  for (const double each : rest)
    question.push_back(static_cast<float>(std::round(127 * each / most) / 128));
  return question;
}

numbers odd_parts(std::uint64_t seed, std::size_t dimension) {
  made::dice random(seed);
  numbers row;
  for (std::size_t i = 0; i < dimension; ++i)
    row.push_back((static_cast<float>(2 * random.below(1024) + 1) - 1024) / 1024);
  return row;
}

/// How many rows' bounds lie below the score, for questions made against each.
int wrong_along_the_rest(const even_rows& rows, double looseness, int planes) {
  const auto block = rows.block(detail::kernels());
  const detail::row_bounds bounds(block, rows.size(), looseness);
  int wrong = 0;
  for (std::uint32_t row = 0; row < rows.size(); ++row) {
    const numbers question = along_the_rest(bounds, rows[row], row, planes);
    const auto asked = bounds.ask(question);
    REQUIRE(asked.usable);
    wrong += margin(bounds, asked, block, question, row, planes) < 0 ? 1 : 0;
  }
  return wrong;
}

TEST_CASE("bounds: what a code leaves out is bounded, and a bound of it 3 % too small is found") {
  for (const std::size_t dimension : {64U, 100U, 130U}) {
    const even_rows rows = even_rows::rotated(odd_parts(dimension, dimension));
    const auto all = static_cast<int>(rows.size());
    CHECK(wrong_along_the_rest(rows, 1, 1) == 0);
    CHECK(wrong_along_the_rest(rows, 0.995, 1) == all);  // upper plane alone
    CHECK(wrong_along_the_rest(rows, 1, 2) == 0);
    CHECK(wrong_along_the_rest(rows, 0.97, 2) == all);
  }
}

TEST_CASE("bounds: what a digit leaves out is bounded, and a bound of it 2 % too small is found") {
  const std::size_t dimension = 128;
  made::dice random(4);
  even_rows rows{dimension, {}};
  for (int i = 0; i < 20; ++i) {  // codes at both ends alone
    numbers row;
    for (std::size_t j = 0; j < dimension; ++j) row.push_back(random.chance(50) ? 1.0F : -1.0F);
    rows.add_with_negative(row);
  }
  const std::size_t wide = rows.size();
  numbers one(dimension, 0.0F);  // codes in the middle: the bound must go by the other rows
  one[0] = 1;
  const even_rows narrow = even_rows::rotated(one);
  rows.values.insert(rows.values.end(), narrow.values.begin(), narrow.values.end());
  const auto block = rows.block(detail::kernels());
  const detail::row_bounds bounds(block, rows.size());
  for (std::uint32_t row = 0; row < wide; ++row) {
    numbers question;  // each digit almost half a step short, on the side of the row
    for (const float side : rows[row]) question.push_back(side * 100.499F / 128);
    question[0] = rows[row][0] * 127.0F / 128;
    for (const int planes : {1, 2}) {
      auto asked = bounds.ask(question);
      CHECK(margin(bounds, asked, block, question, row, planes) >= 0);
      for (float& error : asked.error) error *= 0.98F;
      CHECK(margin(bounds, asked, block, question, row, planes) < 0);
    }
  }
}

TEST_CASE("bounds: rounding is bounded: without its share rows whose codes are exact go wrong") {
  const std::size_t dimension = 8192;  // so long that a float cannot hold the sum
  made::dice random(5);
  numbers some{127.5F / 128};
  while (some.size() < 16) some.push_back((static_cast<float>(random.below(256)) - 127.5F) / 128);
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < dimension; ++i) begins.push_back(random.below(16));
  even_rows rows{dimension, {}};
  for (std::size_t turn = 0; turn < 16; ++turn) {  // each number once in each dimension
    numbers row;
    for (const std::size_t begin : begins) row.push_back(some[(begin + turn) % 16]);
    rows.add_with_negative(row);
  }
  for (int level = 0; level <= detail::processor_level(); ++level) {
    const detail::kernel_set with = detail::kernels_of(level);
    const auto block = rows.block(with);
    for (const double looseness : {1.0, 0.0}) {
      const detail::row_bounds bounds(block, rows.size(), looseness);
      int wrong = 0;
      for (std::uint32_t i = 0; i < 10 * rows.size(); ++i) {
        const std::uint32_t row = i / 10;
        numbers question{127.0F / 128};
        while (question.size() < dimension) {
          const float side = rows[row][question.size()] < 0 ? -1 : 1;
          question.push_back(side * static_cast<float>(random.below(128)) / 128);
        }
        const auto asked = bounds.ask(question);
        wrong += margin(bounds, asked, block, question, row, 2) < 0 ? 1 : 0;
      }
      MESSAGE(wrong, " of ", 10 * rows.size(), " bounds wrong with errors times ", looseness);
      if (looseness > 0) CHECK(wrong == 0);
      if (looseness <= 0) CHECK(wrong > 0);
    }
  }
}

TEST_CASE("bounds: a search loses the best row if bounds are too small, and not otherwise") {
  const even_rows rows = even_rows::rotated(odd_parts(7, 96));
  for (int level = 0; level <= detail::processor_level(); ++level) {
    const detail::kernel_set with = detail::kernels_of(level);
    const auto block = rows.block(with);
    const detail::row_bounds right(block, rows.size());
    const detail::row_bounds wrong(block, rows.size(), 0.97);
    for (std::uint32_t row = 0; row < rows.size(); row += 5) {
      const numbers question = along_the_rest(right, rows[row], row, 1);
      float score = 0;
      block.score(question, std::span(&row, 1), &score);
      const auto finds = [&](const detail::row_bounds& bounds) {
        detail::best_hits best(rows.size());
        best.raise_bar(score);  // somebody knows of rows that score as much
        detail::bounded_search(bounds, block, question, {}, best)
            .run(rows.size(), {rows.size(), 0, nullptr});
        const auto hits = best.take();
        return std::any_of(hits.begin(), hits.end(),
                           [&](const rag::vector_hit& hit) { return hit.row == row; });
      };
      CHECK(finds(right));
      CHECK_FALSE(finds(wrong));
    }
  }
}

}  // namespace vector_bounds_test
