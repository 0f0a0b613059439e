// All ways to search the same vectors give the same hits, bit for bit: one question or many, with
// and without a filter, with and without bounds, in a copy or a view, all lists of an IVF.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <rag_retrieve.hpp>
#include <span>
#include <string>
#include <vector>

#include "made.hpp"
#include "real.hpp"

namespace rag = rag_retrieve;

namespace vector_paths_test {

using made::some_of;
using numbers = std::vector<float>;
using rows_of_numbers = std::vector<numbers>;
using hits = std::vector<rag::vector_hit>;

inline numbers draw(rag::detail::random_source& random, std::size_t dimension) {
  numbers values(dimension);
  for (float& value : values) {
    value = static_cast<float>(random.unit() + random.unit() + random.unit() - 1.5);
  }
  return values;
}

inline bool same_bits(const hits& a, const hits& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].row != b[i].row) return false;
    if (std::memcmp(&a[i].score, &b[i].score, sizeof(float)) != 0) return false;
  }
  return true;
}

/// The k best by the definition: every allowed row's dot product, sorted.
inline hits by_definition(const rag::flat_index& index, const numbers& question, std::size_t k,
                          const rag::row_set& among) {
  numbers wanted = question;
  if (index.measure() == rag::metric::cosine && !rag::normalise(wanted)) return {};
  hits all;
  for (std::uint32_t row = 0; row < index.size(); ++row) {
    if (!index.has_vector(row) || !among.contains(row)) continue;
    float score = 0;
    const std::uint32_t first = 0;
    index.kernels().dots(wanted.data(), wanted.size(), index.row(row).data(), &first, 1, &score);
    all.push_back({row, rag::detail::finite_sum(score, wanted, index.row(row))});
  }
  std::sort(all.begin(), all.end(), rag::detail::scores_before);
  if (all.size() > k) all.resize(k);
  return all;
}

// ---- data that is hard on bounds, tiles or sums -------------------------------------------------

constexpr int kinds = 16;

/// Data set number `kind`.
inline rows_of_numbers data_of(int kind, std::size_t count, std::size_t dimension) {
  rag::detail::random_source random(static_cast<std::uint64_t>(kind) * 1000 + dimension);
  const auto largest = std::numeric_limits<float>::max();
  const auto tiny = std::numeric_limits<float>::min();
  const numbers base = draw(random, dimension);
  rows_of_numbers rows;
  for (std::size_t i = 0; i < count; ++i) {
    numbers row = draw(random, dimension);
    const auto at = static_cast<std::size_t>(random.below(dimension));
    const auto scaled = [&](double by) {
      for (float& value : row) value = static_cast<float>(static_cast<double>(value) * by);
    };
    if (kind == 1) row = rows.size() > 9 ? rows[i % 10] : row;              // repeated
    if (kind == 2) row = base;                                              // all equal
    if (kind == 3) scaled(std::ldexp(1.0, static_cast<int>(i % 80) - 40));  // of any length
    if (kind == 4 && i % 50 == 0) row[at] *= 1e6F;                          // a giant coordinate
    if (kind == 5 && i % 3 != 0) row.assign(dimension, i % 2 == 0 ? 0.0F : -0.0F);
    if (kind == 6) {  // every score is negative
      for (std::size_t j = 0; j < dimension; ++j) row[j] = -std::abs(row[j]) - 0.1F;
    }
    if (kind == 7) scaled(static_cast<double>(tiny));  // denormal, where those are not flushed
    if (kind == 8 && i % 7 == 0) scaled(1e25);
    if (kind == 9) {  // one coordinate each
      row.assign(dimension, 0);
      row[at] = 1;
    }
    if (kind == 10) {
      for (float& value : row) value = std::round(value * 2);
    }
    if (kind == 11 || kind == 12) {  // nearly equal
      for (std::size_t j = 0; j < dimension; ++j)
        row[j] = base[j] + row[j] * (kind == 11 ? 1e-3F : 1e-6F);
    }
    if (kind == 13) {  // energy in the first dimensions, as after a rotation
      for (std::size_t j = 0; j < dimension; ++j) row[j] /= static_cast<float>(1 + j * j);
    }
    if (kind == 14) {  // a narrow cone
      for (float& value : row) value += 4;
    }
    if (kind == 15 && i % 11 == 0) row[at] = i % 2 == 0 ? largest : -largest;
    rows.push_back(row);
  }
  return rows;
}

inline rag::flat_index index_of(const rows_of_numbers& rows, rag::metric measure) {
  rag::flat_index index(rows.front().size(), measure);
  for (const numbers& row : rows) index.add(row, "row");
  return index;
}

inline rows_of_numbers questions_for(const rows_of_numbers& data) {
  const std::size_t dimension = data.front().size();
  rag::detail::random_source random(dimension);
  rows_of_numbers questions{data[data.size() / 2], numbers(dimension, 0.0F)};
  for (int i = 0; i < 40; ++i) {
    questions.push_back(i % 3 == 0 ? data[static_cast<std::size_t>(random.below(data.size()))]
                                   : draw(random, dimension));
    for (float& value : questions.back()) {
      if (i % 5 == 1) value = -value;
      if (i == 7) value *= 1e12F;
      if (i == 8) value *= 1e-30F;
    }
  }
  numbers one(dimension, 0.0F);
  one.back() = 1;
  questions.push_back(one);
  return questions;
}

/// Every path against the definition; how many searches differ from it.
inline int differing(rag::flat_index index, const rows_of_numbers& data,
                     const std::vector<std::size_t>& depths) {
  int wrong = 0;
  const rows_of_numbers questions = questions_for(data);
  rag::flat_index bounded = index;
  bounded.set_bounds(rag::vector_bounds::on, 0);
  numbers block;
  for (std::uint32_t row = 0; row < index.size(); ++row)
    block.insert(block.end(), index.row(row).begin(), index.row(row).end());
  const bool complete = block.size() == data.size() * data.front().size();
  rag::flat_index view(data.front().size(), index.measure());
  if (complete) view = rag::flat_index::view(block, data.front().size(), index.measure());
  view.set_kernels(index.kernels());
  for (const double share : {1.1, 0.9, 0.5, 0.1, 0.01}) {
    const rag::row_set among = some_of(data.size(), share, 3);
    for (const std::size_t k : depths) {
      const auto many = index.search(questions, k, among);
      const auto many_bounded = bounded.search(questions, k, among);
      for (std::size_t i = 0; i < questions.size(); ++i) {
        const hits expected = by_definition(index, questions[i], k, among);
        wrong += same_bits(many[i], expected) ? 0 : 1;
        wrong += same_bits(many_bounded[i], expected) ? 0 : 1;
        wrong += same_bits(index.search(questions[i], k, among), expected) ? 0 : 1;
        wrong += same_bits(bounded.search(questions[i], k, among), expected) ? 0 : 1;
        if (complete) wrong += same_bits(view.search(questions[i], k, among), expected) ? 0 : 1;
      }
    }
  }
  return wrong;
}

TEST_CASE("vector paths: one by one, batch, filter, bounds and view agree bit for bit") {
  for (int kind = 0; kind < kinds; ++kind) {
    for (const std::size_t dimension : {1U, 7U, 64U, 129U, 383U}) {
      const auto data = data_of(kind, dimension < 100 ? 700 : 400, dimension);
      for (const rag::metric measure : {rag::metric::cosine, rag::metric::inner_product}) {
        for (int level = 0; level <= rag::detail::processor_level(); ++level) {
          if (level > 0 && dimension == 7) continue;
          rag::flat_index index = index_of(data, measure);
          index.set_kernels(rag::detail::kernels_of(level));
          CAPTURE(kind);
          CAPTURE(dimension);
          CAPTURE(level);
          CHECK(differing(index, data, {1, 5}) == 0);
        }
      }
    }
  }
}

TEST_CASE("vector paths: they agree on more rows than a block, on long rows, and for large k") {
  for (const int kind : {0, 4, 11, 14}) {
    const auto data = data_of(kind, 6000, 96);
    CHECK(differing(index_of(data, rag::metric::inner_product), data, {10, 100}) == 0);
  }
  const auto wide = data_of(0, 150, 1025);
  CHECK(differing(index_of(wide, rag::metric::cosine), wide, {1, 200}) == 0);
}

TEST_CASE("vector paths: rows without a vector and rows added after the bounds change nothing") {
  const auto data = data_of(0, 3000, 64);
  rag::flat_index plain(64);
  rag::flat_index bounded(64);
  for (std::size_t row = 0; row < data.size(); ++row) {
    for (rag::flat_index* index : {&plain, &bounded}) {
      if (row % 9 == 4) index->add_missing();
      index->add(data[row], "row");
    }
    if (row == 2000) bounded.set_bounds(rag::vector_bounds::on, 0);
  }
  for (const double share : {1.1, 0.5, 0.2}) {
    const auto among = some_of(plain.size(), share, 5);
    for (const numbers& question : questions_for(data)) {
      const hits expected = by_definition(plain, question, 8, among);
      CHECK(same_bits(plain.search(question, 8, among), expected));
      CHECK(same_bits(bounded.search(question, 8, among), expected));
    }
  }
  bounded.set_bounds(rag::vector_bounds::off);
  const auto all = rag::row_set::all(plain.size());
  CHECK(same_bits(bounded.search(data[1], 5, all), plain.search(data[1], 5, all)));
}

/// Of all rows and some questions: how many bounds lie below the score, and how far the others lie
/// above it on average, in units of |q| |x|.
struct bound_check {
  int wrong = 0;
  std::array<double, 2> above = {};  // of the upper plane, of both
};
inline bound_check check_bounds(const rag::flat_index& index, const rows_of_numbers& questions) {
  const rag::detail::vector_block block = index.block();
  const auto count = static_cast<std::uint32_t>(index.size());
  const rag::detail::row_bounds bounds(block, count);
  bound_check check;
  double compared = 0;
  for (const numbers& question : questions) {
    const auto asked = bounds.ask(question);
    if (!asked.usable) continue;
    for (std::uint32_t row = 0; row < count; ++row) {
      std::int32_t high = 0;
      std::int32_t low = 0;
      float score = 0;
      bounds.add_up(*block.with, asked, 0, std::span(&row, 1), &high);
      bounds.add_up(*block.with, asked, 1, std::span(&row, 1), &low);
      block.score(question, std::span(&row, 1), &score);
      const std::array<float, 2> upper{bounds.bound(asked, row, high),
                                       bounds.bound(asked, row, high, low)};
      const double lengths = std::sqrt(rag::detail::dot_in_double(question, question) *
                                       rag::detail::dot_in_double(block[row], block[row]));
      for (std::size_t plane = 0; plane < 2; ++plane) {
        if (upper[plane] < score) ++check.wrong;
        if (lengths > 0) check.above[plane] += static_cast<double>(upper[plane] - score) / lengths;
      }
      ++compared;
    }
  }
  for (double& above : check.above) above /= compared;
  return check;
}

TEST_CASE("vector paths: no score lies above its bound, whatever the data") {
  for (int kind = 0; kind < kinds; ++kind) {
    for (const std::size_t dimension : {1U, 7U, 64U, 129U, 383U, 1025U}) {
      if (dimension > 400 && kind % 4 != 0) continue;
      const auto data = data_of(kind, 150, dimension);
      for (int level = 0; level <= rag::detail::processor_level(); ++level) {
        rag::flat_index index = index_of(data, rag::metric::inner_product);
        index.set_kernels(rag::detail::kernels_of(level));
        CAPTURE(kind);
        CAPTURE(dimension);
        CHECK(check_bounds(index, questions_for(data)).wrong == 0);
      }
    }
  }
}

TEST_CASE("vector paths: bounds are near: .15 |q| |x| by four bits, .02 by eight") {
  for (const std::size_t dimension : {96U, 384U}) {
    const auto data = data_of(0, 500, dimension);
    const auto found = check_bounds(index_of(data, rag::metric::cosine), questions_for(data));
    MESSAGE("above the score by ", found.above[0], " and ", found.above[1], " |q| |x|");
    CHECK(found.wrong == 0);
    CHECK(found.above[0] < 0.15);
    CHECK(found.above[1] < 0.02);
  }
}

TEST_CASE("vector paths: ids are those of a scan in double, near-ties of 1e-5 |q| |x| aside") {
  for (int kind = 0; kind < kinds; ++kind) {
    for (const std::size_t dimension : {1U, 7U, 383U, 1025U}) {
      const auto data = data_of(kind, 300, dimension);
      const rag::flat_index index = index_of(data, rag::metric::cosine);
      const auto all = rag::row_set::all(index.size());
      int wrong = 0;
      for (numbers question : questions_for(data)) {
        const hits found = index.search(question, 10, all);
        if (!rag::normalise(question)) continue;
        std::vector<double> scores;  // rows and question have length 1
        for (std::uint32_t row = 0; row < index.size(); ++row) {
          if (index.has_vector(row))
            scores.push_back(rag::detail::dot_in_double(question, index.row(row)));
        }
        std::sort(scores.begin(), scores.end(), std::greater<>());
        REQUIRE(found.size() == (std::min)(scores.size(), std::size_t{10}));
        for (std::size_t i = 0; i < found.size(); ++i) {
          const double score = rag::detail::dot_in_double(question, index.row(found[i].row));
          wrong += std::abs(score - scores[i]) > 1e-5 ? 1 : 0;
        }
      }
      CAPTURE(kind);
      CAPTURE(dimension);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("vector paths: IVF with some lists finds the same one by one and in batches") {
  for (const rag::metric measure : {rag::metric::cosine, rag::metric::inner_product}) {
    const auto data = data_of(measure == rag::metric::cosine ? 0 : 4, 5000, 40);
    const rag::flat_index flat = index_of(data, measure);
    rag::ivf_index lists({.lists = 50, .probes = 4, .iterations = 3});
    lists.train(flat);
    rows_of_numbers questions;
    while (questions.size() < 150) {
      for (const numbers& each : questions_for(data)) questions.push_back(each);
    }
    for (const double share : {1.1, 0.5, 0.02}) {
      const auto among = some_of(flat.size(), share, 7);
      for (const std::size_t probes : {1U, 4U, 50U}) {
        const auto many = lists.search(questions, 10, among, probes);
        for (std::size_t i = 0; i < questions.size(); ++i) {
          const auto one = lists.search(questions[i], 10, among, probes);
          CHECK(same_bits(many[i].hits, one.hits));
          CHECK(many[i].lists_read == one.lists_read);
          CHECK(many[i].rows_compared == one.rows_compared);
          if (probes < 50) continue;
          CHECK(same_bits(one.hits, flat.search(questions[i], 10, among)));
        }
      }
    }
  }
}

// ---- views --------------------------------------------------------------------------------------

TEST_CASE("flat index: a view searches the caller's numbers at any address, and copies to add") {
  rag::detail::random_source random(2);
  for (const std::size_t offset : {0U, 1U, 3U, 7U, 15U}) {
    numbers block = draw(random, offset);
    rows_of_numbers data;
    for (int row = 0; row < 50; ++row) {
      data.push_back(draw(random, 387));
      REQUIRE(rag::normalise(data.back()));
      block.insert(block.end(), data.back().begin(), data.back().end());
    }
    const auto rows = std::span<const float>(block).subspan(offset);
    rag::flat_index view = rag::flat_index::view(rows, 387);
    CHECK(view.row(0).data() == rows.data());
    rag::flat_index copy(387);
    for (const numbers& row : data) CHECK(copy.try_add_stored(row, "row").ok());
    const auto all = rag::row_set::all(51);
    CHECK(same_bits(view.search(data[3], 50, all), copy.search(data[3], 50, all)));
    view.add(data[7], "another");
    CHECK(view.row(0).data() != rows.data());
    CHECK(view.size() == 51);
    CHECK(view.search(data[3], 1, all).front().row == 3);
  }
}

TEST_CASE("flat index: a view of rows that cannot be is refused, and the row is named") {
  const numbers block{1, 0, 0.6F, 0.8F, 3, 4};
  const auto refused = [&](std::size_t count, std::size_t dimension, rag::metric measure) {
    const auto made = rag::flat_index::try_view(std::span(block).first(count), dimension, measure);
    return made.ok() ? std::string() : made.failure().message();
  };
  CHECK(refused(4, 2, rag::metric::cosine) == "");
  CHECK(refused(0, 2, rag::metric::cosine) == "");
  CHECK(refused(6, 2, rag::metric::inner_product) == "");
  CHECK(refused(6, 2, rag::metric::cosine) ==
        "flat_index: the vector of row 2 has length 5, expected 1");
  CHECK(refused(5, 2, rag::metric::cosine) == "flat_index: 5 numbers are no rows of 2");
  CHECK(refused(6, 0, rag::metric::cosine) == "flat_index: 6 numbers are no rows of 0");
}

// ---- training -----------------------------------------------------------------------------------

TEST_CASE("ivf: training reports its steps, and ends where it is told to") {
  const auto data = data_of(0, 3000, 16);
  const rag::flat_index flat = index_of(data, rag::metric::cosine);
  rag::ivf_index lists({.lists = 30, .iterations = 3, .sample_per_list = 20});
  std::size_t last = 0;
  std::size_t calls = 0;
  lists.train(flat, [&](std::size_t done, std::size_t all) {
    CHECK(done > last);
    CHECK(all == 3 * 600 + 3000);
    last = done;
    ++calls;
    return true;
  });
  CHECK(last == 3 * 600 + 3000);
  CHECK(calls > 10);
  const auto before = lists.parts();
  calls = 0;
  const auto ended = lists.try_train(flat, [&](std::size_t, std::size_t) { return ++calls < 4; });
  REQUIRE_FALSE(ended.ok());
  CHECK(ended.failure().code() == rag::errc::callback_failed);
  CHECK(ended.failure().message() == "ivf_index: training was told to end");
  CHECK(calls == 4);
  CHECK(lists.parts().rows == before.rows);
}

// ---- real vectors -------------------------------------------------------------------------------

TEST_CASE("vector paths: they agree on real embeddings") {
  const auto folder = real::folder();
  if (!folder) return;
  const auto at = [&](const std::string& name) { return *folder + name; };
  rows_of_numbers all;  // the MiniLM vectors of several collections as one
  for (const char* name : {"cacm", "cranfield", "med", "rust-errors", "eslint-rules", "xquad-en"}) {
    for (const numbers& row : real::read_vectors(at(name) + std::string("/minilm-docs.f32"), 384))
      all.push_back(row);
  }
  struct real_set {
    rows_of_numbers rows, questions;
  };
  const std::vector<real_set> sets{
      {all, real::read_vectors(at("cacm/minilm-queries.f32"), 384)},
      {real::read_vectors(at("scifact-minilm/docs128.f32"), 128),
       real::read_vectors(at("scifact-minilm/queries128.f32"), 128)},
      {real::read_vectors(at("cranfield/vectors/docs200.f32"), 200),
       real::read_vectors(at("cranfield/vectors/queries200.f32"), 200)},
  };
  for (const real_set& set : sets) {
    const rag::flat_index index = index_of(set.rows, rag::metric::cosine);
    rag::flat_index bounded = index;
    bounded.set_bounds(rag::vector_bounds::on, 0);
    const auto among = rag::row_set::all(index.size());
    const auto many = index.search(set.questions, 10, among);
    int wrong = 0;
    for (std::size_t i = 0; i < set.questions.size(); ++i) {
      wrong += same_bits(index.search(set.questions[i], 10, among), many[i]) ? 0 : 1;
      wrong += same_bits(bounded.search(set.questions[i], 10, among), many[i]) ? 0 : 1;
      if (i % 20 != 0) continue;
      wrong += same_bits(by_definition(index, set.questions[i], 10, among), many[i]) ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

}  // namespace vector_paths_test
