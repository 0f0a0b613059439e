// Section 9: the pruned search gives the rows and numbers of exhaustive scoring, whatever the data,
// the filter, the number of rows wanted, the statistics and the segments.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <rag_retrieve.hpp>
#include <string>
#include <utility>
#include <vector>

#include "made.hpp"

namespace terms_exhaustive_tests {

namespace rag = rag_retrieve;
using made::dice;
using made::random_rows;

namespace {

using strings = std::vector<std::string>;

/// The k best by the plain formula of score_all.
std::vector<rag::lexical_hit> exhaustive(const rag::term_index& index, const strings& terms,
                                         std::size_t k, const rag::term_statistics& counted,
                                         const rag::row_set& among) {
  std::vector<rag::lexical_hit> hits = index.score_all(terms, counted, among);
  std::sort(hits.begin(), hits.end(), [](const auto& a, const auto& b) {
    return a.units != b.units ? a.units > b.units : a.row < b.row;
  });
  if (hits.size() > k) hits.resize(k);
  return hits;
}

strings names(std::size_t count) {
  strings out;
  for (std::size_t i = 0; i < count; ++i) out.push_back("t" + std::to_string(i));
  return out;
}

/// Rows whose terms are drawn by a kind of law: 0 frequent and rare ones, 1 bursts (counts of 15
/// and more, in clusters of rows), 2 every term in every row, 3 few lengths and many ties, 4
/// lengths from 0 to huge, 5 each term in one stretch of rows.
strings random_chunk(dice& random, std::size_t kind, std::size_t row, std::size_t rows,
                     const strings& vocabulary) {
  const std::size_t words = vocabulary.size();
  strings out;
  const auto draw = [&] {
    return vocabulary[random.below(1 + random.below(1 + random.below(words)))];
  };
  if (kind == 0) {
    for (std::size_t left = random.below(40); left > 0; --left) out.push_back(draw());
  } else if (kind == 1) {
    for (std::size_t left = random.below(3); left > 0; --left) {
      out.insert(out.end(), 1 + random.below(row / 512 % 3 == 0 ? 60 : 4), draw());
    }
  } else if (kind == 2) {
    for (const std::string& term : vocabulary) out.insert(out.end(), 1 + random.below(2), term);
  } else if (kind == 3) {
    for (std::size_t left = 1 + random.below(2); left > 0; --left)
      out.push_back(vocabulary[random.below(4)]);
  } else if (kind == 4) {
    const std::size_t length = random.below(50) == 0 ? random.below(3000) : random.below(12);
    for (std::size_t left = length; left > 0; --left) out.push_back(draw());
  } else {
    out.push_back(vocabulary[row * words / rows]);
    if (random.below(3) == 0) out.push_back(draw());
  }
  return out;
}

rag::term_index random_index(dice& random, std::size_t kind, std::size_t rows,
                             const strings& vocabulary, const rag::bm25_options& options) {
  rag::term_index_builder builder(options);
  for (std::size_t row = 0; row < rows; ++row) {
    builder.add(random_chunk(random, kind, row, rows, vocabulary));
  }
  return builder.build();
}

strings random_question(dice& random, const strings& vocabulary) {
  strings out;
  const std::size_t most = random.below(6) == 0 ? 40 : 6;
  for (std::size_t left = 1 + random.below(most); left > 0; --left) {
    out.push_back(random.below(12) == 0 ? "unknown" : vocabulary[random.below(vocabulary.size())]);
  }
  return out;
}

}  // namespace

TEST_CASE("pruned: the lists of exhaustive scoring for any data, filter, k and statistics") {
  dice random{2024};
  const strings vocabulary = names(50);
  std::size_t different = 0;
  std::size_t compared = 0;
  for (std::size_t round = 0; round < 18; ++round) {
    const std::size_t rows = round % 3 == 0 ? 9000 + random.below(9000) : random.below(6000);
    const rag::bm25_options options{.k1 = static_cast<double>(random.below(4)) * 0.6,
                                    .b = static_cast<double>(random.below(5)) * 0.25,
                                    .count_repeats = random.below(2) == 0};
    const rag::term_index index = random_index(random, round % 6, rows, vocabulary, options);
    for (const std::size_t share : {1000U, 500U, 100U, 10U, 1U}) {
      const rag::row_set among = random_rows(random, rows, share, 1000);
      for (int i = 0; i < 4; ++i) {
        const strings question = random_question(random, vocabulary);
        // What is counted may be any set of rows, and rows of other indexes besides.
        rag::term_statistics counted =
            index.statistics(question, random_rows(random, rows, 1 + random.below(1000), 1000));
        if (random.below(3) == 0) counted.corpus.total_length *= 1 + random.below(50);
        if (random.below(3) == 0) counted.corpus.chunk_count += random.below(100000);
        for (const std::size_t k :
             {std::size_t{1}, std::size_t{10}, std::size_t{100}, std::size_t{1000}, rows + 7}) {
          const auto expected = exhaustive(index, question, k, counted, among);
          ++compared;
          if (index.best(question, k, counted, among) != expected) ++different;
          if (expected.empty()) continue;
          const auto& last = expected.back();
          if (k % 2 == 0 && index.explain(last.row, question, counted).score != last.score())
            ++different;
          std::vector<rag::lexical_hit> alone{{.row = last.row}};
          index.score(alone, question, counted);
          if (alone[0] != last) ++different;
        }
      }
    }
  }
  CHECK(compared > 1000);
  CHECK(different == 0);
}

TEST_CASE("pruned: values of less than half a unit, and sums beyond 32 bits") {
  rag::term_index_builder builder({.k1 = 60.0, .b = 1.0});
  const strings vocabulary = names(200);
  for (std::size_t row = 0; row < 300; ++row) {
    strings terms(vocabulary.begin(), vocabulary.begin() + static_cast<std::ptrdiff_t>(row % 200));
    if (row == 17) terms.insert(terms.end(), 70000, "t3");
    builder.add(terms);
  }
  const rag::term_index index = builder.build();
  const rag::row_set all = rag::row_set::all(300);
  rag::term_statistics counted = index.statistics(vocabulary, all);
  for (const std::size_t n : {std::size_t{1}, std::size_t{4000000000U}}) {
    counted.corpus.chunk_count = 4000000000U;  // n = 1: an idf of 22; n = N: next to nothing
    counted.chunks_with.assign(200, n);
    for (const std::uint64_t total : {std::uint64_t{1}, std::uint64_t{1} << 50}) {
      counted.corpus.total_length = total;
      for (const std::size_t k : {std::size_t{1}, std::size_t{10}, std::size_t{300}}) {
        CHECK(index.best(vocabulary, k, counted, all) ==
              exhaustive(index, vocabulary, k, counted, all));
      }
    }
  }
}

TEST_CASE("pruned: a merged index equals one built at once, bytes of memory included") {
  dice random{5};
  const strings vocabulary = names(50);
  for (std::size_t round = 0; round < 6; ++round) {
    const std::size_t rows = 1 + random.below(9000);
    std::vector<strings> chunks;
    for (std::size_t row = 0; row < rows; ++row) {
      chunks.push_back(random_chunk(random, round, row, rows, vocabulary));
    }
    std::vector<rag::term_index_builder> builders(3);
    std::vector<std::vector<std::uint32_t>> new_rows(3);
    rag::term_index_builder whole;
    std::uint32_t kept = 0;
    for (const strings& chunk : chunks) {
      const std::size_t part = random.below(3);
      const bool stays = random.below(10) != 0;
      builders[part].add(chunk);
      new_rows[part].push_back(stays ? kept++ : rag::detail::no_row);
      if (stays) whole.add(chunk);
    }
    std::vector<rag::term_index> parts;
    for (auto& each : builders) parts.push_back(each.build());
    const rag::term_index merged = rag::term_index::merged(
        {}, std::vector<const rag::term_index*>{&parts[0], &parts[1], &parts[2]}, new_rows, kept);
    const rag::term_index expected = whole.build();
    CHECK(merged.bytes() == expected.bytes());
    using list = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
    std::vector<std::pair<std::string, list>> lists;
    expected.for_each_list([&](std::string_view term, auto postings) {
      lists.push_back({std::string(term), {}});
      for (const auto& p : postings) lists.back().second.push_back({p.row, p.count});
    });
    std::size_t at = 0;
    merged.for_each_list([&](std::string_view term, auto postings) {
      list found;
      for (const auto& p : postings) found.push_back({p.row, p.count});
      REQUIRE(at < lists.size());
      CHECK(lists[at].first == term);
      CHECK(lists[at++].second == found);
    });
    CHECK(at == lists.size());
    for (std::uint32_t row = 0; row < kept; ++row)
      REQUIRE(merged.length(row) == expected.length(row));
  }
}

TEST_CASE("pruned: segments with one bar give the list of one index") {
  dice random{77};
  const strings vocabulary = names(50);
  for (std::size_t round = 0; round < 12; ++round) {
    const std::size_t rows = 500 + random.below(6000);
    const std::size_t count = 1 + random.below(10);
    const rag::bm25_options options{.count_repeats = round % 2 == 0};
    std::vector<rag::term_index_builder> builders(count, rag::term_index_builder(options));
    std::vector<std::vector<std::uint32_t>> rows_of(count);
    rag::term_index_builder whole(options);
    for (std::uint32_t row = 0; row < rows; ++row) {
      const strings chunk = random_chunk(random, round % 6, row, rows, vocabulary);
      const std::size_t part = random.below(1 + random.below(count));
      builders[part].add(chunk);
      rows_of[part].push_back(row);
      whole.add(chunk);
    }
    const rag::term_index index = whole.build();
    std::vector<rag::term_index> parts;
    std::vector<rag::row_set> here;
    for (auto& each : builders) {
      parts.push_back(each.build());
      here.emplace_back();
    }
    const rag::row_set all = rag::row_set::all(rows);
    for (int i = 0; i < 8; ++i) {
      const rag::row_set among = random_rows(random, rows, i % 3 == 0 ? 1000 : 300, 1000);
      for (std::size_t part = 0; part < count; ++part) {
        here[part] = rag::row_set(parts[part].size());
        for (std::uint32_t row = 0; row < rows_of[part].size(); ++row) {
          if (among.contains(rows_of[part][row])) here[part].insert(row);
        }
      }
      const strings question = random_question(random, vocabulary);
      const rag::term_statistics counted = index.statistics(question, all);
      for (const std::size_t k : {std::size_t{1}, std::size_t{10}, std::size_t{100}}) {
        std::vector<rag::term_index::index_part> searched;
        std::vector<std::uint32_t> number;  // in the one index
        for (std::size_t part = 0; part < count; ++part) {
          searched.push_back(
              {&parts[part], &here[part], static_cast<std::uint32_t>(number.size())});
          number.insert(number.end(), rows_of[part].begin(), rows_of[part].end());
        }
        auto found = rag::term_index::best_of(
            searched, question, k, counted,
            [&number](std::uint32_t a, std::uint32_t b) { return number[a] < number[b]; });
        for (rag::lexical_hit& hit : found) hit.row = number[hit.row];
        CHECK(found == exhaustive(index, question, k, counted, among));
      }
    }
  }
}

}  // namespace terms_exhaustive_tests
