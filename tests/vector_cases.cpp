// Faults that other vector searches had, one test for each by a short name. Faults of Euclidean
// distance are left out, since there is none here.
//
//   name                     source
//   padded-results           facebookresearch/faiss#1016, #4333
//   filter-starves-probes    NVIDIA/cuvs#481
//   selector-dropped         facebookresearch/faiss#5584, #5592
//   rows-not-finite          facebookresearch/faiss#2986
//   zero-row-under-cosine    vlasky/sqlite-vec#8
//   zero-by-instruction-set  ArcadeData/arcadedb#4583
//   add-beside-search        facebookresearch/faiss#1781
//   added-again              nmslib/hnswlib#309
//   fewer-points-than-lists  facebookresearch/faiss#414, #154; TileDB-Inc/TileDB-Vector-Search#491
//   searched-untrained       facebookresearch/faiss#5114
//   question-too-long        weaviate/weaviate#12207, typesense/typesense#2967
//   counts-disagree          nmslib/hnswlib#673
//   product-wraps            facebookresearch/faiss#5313, #5400
//   unaligned-rows           nmslib/hnswlib#87, #339; spotify/annoy#456
//   older-processor          nomonosound/numpy-minmax#43, ashvardanian/NumKong#254: here as equal
//                            results of all instruction sets; portability/run.sh runs the program
//                            on emulated processors that have fewer
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <mutex>
#include <rag_retrieve.hpp>
#include <shared_mutex>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "fakes.hpp"
#include "index_bytes.hpp"
#include "made.hpp"
#include "threading.hpp"

namespace rag = rag_retrieve;

namespace vector_cases {

using numbers = std::vector<float>;
using rows_of_numbers = std::vector<numbers>;
using found = std::vector<std::uint32_t>;

inline rag::flat_index flat_of(const rows_of_numbers& rows, rag::metric measure) {
  rag::flat_index index(rows.front().size(), measure);
  for (const numbers& row : rows) index.add(row, "row");
  return index;
}

inline rag::ivf_index lists_of(const rag::flat_index& rows, const rag::ivf_options& options) {
  rag::ivf_index index(options);
  index.train(rows);
  return index;
}

inline rag::row_set rows(std::size_t size, const std::vector<std::size_t>& members) {
  rag::row_set set(size);
  for (const std::size_t row : members) set.insert(row);
  return set;
}

inline found rows_of(const std::vector<rag::vector_hit>& hits) {
  found ids;
  for (const rag::vector_hit& hit : hits) ids.push_back(hit.row);
  return ids;
}

inline rows_of_numbers drawn(std::uint64_t seed, std::size_t count, std::size_t dimension) {
  rag::detail::random_source random(seed);
  rows_of_numbers all(count, numbers(dimension));
  for (numbers& row : all) {
    for (float& value : row) value = static_cast<float>(2 * random.unit() - 1);
  }
  return all;
}

/// Every set of loops that this processor can run.
inline std::vector<rag::detail::kernel_set> kernel_sets() {
  std::vector<rag::detail::kernel_set> sets;
  for (int level = 0; level <= rag::detail::processor_level(); ++level)
    sets.push_back(rag::detail::kernels_of(level));
  return sets;
}

template <class Value>
std::string failure_of(const rag::result<Value>& outcome, rag::errc code) {
  REQUIRE_FALSE(outcome.ok());
  CHECK(outcome.failure().code() == code);
  return outcome.failure().message();
}

TEST_CASE("case padded-results: one readable row gives one hit, no row -1, no made-up score") {
  const auto flat = flat_of({{1, 0}, {0.8F, 0.6F}, {0, 1}, {0.6F, 0.8F}, {-1, 0}, {-0.8F, 0.6F}},
                            rag::metric::inner_product);
  const auto lists = lists_of(flat, {.lists = 3, .probes = 1});
  for (const std::size_t probes : {1U, 2U, 3U}) {
    const auto hits = lists.search(numbers{1, 0}, 4, rows(6, {5}), probes).hits;
    REQUIRE(rows_of(hits) == found{5});
    CHECK(hits[0].score == doctest::Approx(-0.8));
  }
  CHECK(rows_of(flat.search(numbers{1, 0}, 4, rows(6, {5}))) == found{5});
}

TEST_CASE(
    "case filter-starves-probes: 8 readable of 4,096 rows, one probe of 16: all 8 each time") {
  const auto data = drawn(1, 4096, 16);
  const auto flat = flat_of(data, rag::metric::cosine);
  const auto lists = lists_of(flat, {.lists = 16, .probes = 1});
  made::dice random(2);
  rag::row_set eight(4096);
  while (eight.count() < 8) eight.insert(random.below(4096));
  for (const numbers& question : drawn(3, 50, 16)) {
    const auto truth = rows_of(flat.search(question, 8, eight));
    CHECK(truth.size() == 8);
    CHECK(rows_of(lists.search(question, 8, eight).hits) == truth);
  }
}

TEST_CASE("case selector-dropped: rows that may not be seen come back on no path") {
  const rows_of_numbers data{{1, 0}, {0.9F, 0.1F}, {0, 1}};
  const rag::row_set only = rows(3, {2});
  const numbers question{1, 0};
  const rows_of_numbers many(33, question);
  auto flat = flat_of(data, rag::metric::inner_product);
  auto bounded = flat;
  bounded.set_bounds(rag::vector_bounds::on, 0);
  for (const rag::detail::kernel_set& with : kernel_sets()) {
    for (rag::flat_index* index : {&flat, &bounded}) {
      index->set_kernels(with);
      CHECK(rows_of(index->search(question, 3, only)) == found{2});
      for (const auto& hits : index->search(many, 3, only)) CHECK(rows_of(hits) == found{2});
    }
    for (const std::size_t count : {1U, 2U, 3U}) {
      const auto lists = lists_of(flat, {.lists = count, .probes = 1});
      for (const std::size_t probes : {1U, 2U, 3U}) {
        CHECK(rows_of(lists.search(question, 3, only, probes).hits) == found{2});
        for (const auto& each : lists.search(many, 3, only, probes))
          CHECK(rows_of(each.hits) == found{2});
      }
    }
  }
  std::vector<found> answers(2);
  {
    threading::threads both;
    for (found& answer : answers)
      both.start([&] { answer = rows_of(flat.search(question, 3, only)); });
  }
  CHECK(answers == std::vector<found>{{2}, {2}});
}

TEST_CASE("case rows-not-finite: NaN and infinity are refused by row, and nothing changes") {
  rag::flat_index flat(2, rag::metric::inner_product);
  const float bad = std::numeric_limits<float>::quiet_NaN();
  const float endless = std::numeric_limits<float>::infinity();
  flat.add(numbers{1, 0}, "row 0");
  CHECK(failure_of(flat.try_add(numbers{bad, 0}, "row 1"), rag::errc::not_finite).find("row 1") !=
        std::string::npos);
  flat.add(numbers{0.5F, 0}, "row 2");
  CHECK(
      failure_of(flat.try_add(numbers{endless, 0}, "row 3"), rag::errc::not_finite).find("row 3") !=
      std::string::npos);
  const auto hits = flat.search(numbers{1, 0}, 4, rag::row_set::all(2));
  CHECK(rows_of(hits) == found{0, 1});
  CHECK(hits[1].score == doctest::Approx(0.5));
}

TEST_CASE("case zero-row-under-cosine: a zero row is never found, and upsets no order") {
  const auto flat = flat_of({{1, 0, 0}, {0, 0, 0}, {0.9F, 0.1F, 0}}, rag::metric::cosine);
  CHECK(rows_of(flat.search(numbers{1, 0, 0}, 3, rag::row_set::all(3))) == found{0, 2});
}

TEST_CASE("case zero-by-instruction-set: zero rows and questions score alike on each") {
  for (const rag::detail::kernel_set& with : kernel_sets()) {
    auto product = flat_of({{0, 0, 0, 0}, {1, 2, 3, 4}}, rag::metric::inner_product);
    product.set_kernels(with);
    for (const auto& hit : product.search(numbers(4, 0.0F), 2, rag::row_set::all(2)))
      CHECK(hit.score == doctest::Approx(0));
    CHECK(rows_of(product.search(numbers{0, 0, 0, 1}, 2, rag::row_set::all(2))) == found{1, 0});
    auto cosine = flat_of({{0, 0, 0, 0}, {1, 2, 3, 4}}, rag::metric::cosine);
    cosine.set_kernels(with);
    CHECK(cosine.search(numbers(4, 0.0F), 2, rag::row_set::all(2)).empty());
    CHECK(rows_of(cosine.search(numbers{1, 0, 0, 0}, 2, rag::row_set::all(2))) == found{1});
  }
}

TEST_CASE("case add-beside-search: one thread adds 10,000 rows, another searches, under a lock") {
  // As documented: searches may run at once, adding needs the index for itself.
  const auto data = drawn(5, 10000, 8);
  rag::flat_index flat(8);
  flat.add(data[0], "row");
  std::shared_mutex lock;
  std::size_t searches = 0;
  bool sound = true;
  {
    threading::threads both;
    both.start([&] {
      for (std::size_t row = 1; row < data.size(); ++row) {
        const std::unique_lock alone(lock);
        flat.add(data[row], "row");
      }
    });
    both.start([&] {
      for (std::size_t size = 0; size < data.size(); ++searches) {
        const std::shared_lock beside(lock);
        size = flat.size();
        const auto hits = flat.search(data[0], 5, rag::row_set::all(size));
        sound = sound && hits.size() == (std::min)(size, std::size_t{5}) && hits[0].row == 0;
      }
    });
  }
  CHECK(sound);
  CHECK(searches > 0);
  CHECK(flat.size() == 10000);
}

TEST_CASE("case add-beside-search: the retriever needs no lock") {
  fakes::setup one;
  one.add({fakes::placed("first", "text", {1, 0})});
  bool sound = true;
  {
    threading::threads both;
    both.start([&] {
      for (int i = 0; i < 300; ++i)
        one.add({fakes::placed("d" + std::to_string(i), "text", {1, 1})});
    });
    both.start([&] {
      for (std::size_t known = 0; known < 301;) {
        const auto ids = fakes::ids(one.store.search(fakes::near_to({1, 0}), one.ana()));
        sound = sound && !ids.empty() && ids[0] == "first";
        known = one.store.count(one.ana());
      }
    });
  }
  CHECK(sound);
}

TEST_CASE("case added-again: an id that was deleted comes back by its new vector alone") {
  fakes::setup one;
  one.add({fakes::placed("7", "text", {1, 0}), fakes::placed("8", "text", {0, 1})});
  one.store.erase("7");
  CHECK(fakes::ids(one.store.search(fakes::near_to({0, 1}), one.ana())) == fakes::strings{"8"});
  one.add({fakes::placed("7", "text", {0, 1})});
  const auto answer = one.store.search(fakes::near_to({0, 1}), one.ana());
  CHECK(fakes::ids(answer) == fakes::strings{"7", "8"});
  for (const auto& passage : answer.passages) CHECK(passage.similarity() == doctest::Approx(1.0));
}

TEST_CASE("case fewer-points-than-lists: 3 points asked for 8 lists train 3, at once") {
  const auto flat = flat_of({{1, 0}, {0, 1}, {-1, 0}}, rag::metric::inner_product);
  std::size_t steps = 0;
  rag::ivf_index lists({.lists = 8});
  lists.train(flat, [&](std::size_t, std::size_t) { return ++steps < 1000; });
  CHECK(lists.lists() == 3);
  CHECK(rows_of(lists.search(numbers{0, 1}, 1, rag::row_set::all(3), 1).hits) == found{1});
}

TEST_CASE("case searched-untrained: a clear error, no crash") {
  const rag::ivf_index lists({.lists = 4});
  const auto outcome = lists.try_search(numbers{1, 0, 0, 0}, 1, rag::row_set::all(1));
  CHECK(failure_of(outcome, rag::errc::invalid_argument).find("not trained") != std::string::npos);
}

TEST_CASE(
    "case question-too-long: both lengths are named on every way in, never an empty success") {
  const numbers row(1024, 1.0F);
  const numbers question(1536, 1.0F);
  const auto flat = flat_of({row}, rag::metric::cosine);
  const auto lists = lists_of(flat, {});
  const rag::row_set all = rag::row_set::all(1);
  const std::string lengths = "question has 1536 numbers, the index holds 1024";
  const auto says = [&](const std::string& message) {
    return message.find(lengths) != std::string::npos;
  };
  const rows_of_numbers two{row, question};
  constexpr auto mismatch = rag::errc::dimension_mismatch;
  CHECK(says(failure_of(flat.try_search(question, 5, all), mismatch)));
  CHECK(says(failure_of(flat.try_search(two, 5, all), mismatch)));
  CHECK(says(failure_of(lists.try_search(question, 5, all), mismatch)));
  CHECK(says(failure_of(lists.try_search(two, 5, all), mismatch)));
  for (const bool with_lists : {false, true}) {
    rag::retriever_options options;
    if (with_lists) options.ivf = rag::ivf_options{};
    options.ivf_from = 0;
    fakes::setup one(options);
    one.add({fakes::placed("d", "some text", row)});
    for (const char* text : {"", "text"}) {  // by vector alone, and by words and vector
      const auto asked = fakes::near_to(question, text);
      const std::string message = failure_of(one.store.try_search(asked, one.ana()), mismatch);
      CHECK(message.find("1536") != std::string::npos);
      CHECK(message.find("1024") != std::string::npos);
    }
  }
}

/// Ten rows of four numbers in a file.
struct ten_rows {
  ten_rows() {
    std::vector<rag::chunked_document> documents;
    for (int i = 0; i < 10; ++i) {
      const auto at = static_cast<float>(i);
      documents.push_back(fakes::placed("d" + std::to_string(i), "text", {1, at, at * at, 2}));
    }
    one.add(documents);
    std::ostringstream out(std::ios::binary);
    rag::save(one.store, out);
    bytes = out.str();
  }
  [[nodiscard]] rag::retriever_options options() {
    rag::retriever_options wanted;
    wanted.embed.model = "m";
    wanted.permissions = &one.permissions;
    return wanted;
  }
  /// Whether the bytes load; what does, must answer in a sound way.
  [[nodiscard]] bool loads(const std::string& changed) {
    const auto again = rag::try_load(std::as_bytes(std::span(changed)), options());
    if (!again) return false;
    const rag::scope ana = again->scope_for({.user = "ana"});
    const auto answer = again->try_search(fakes::near_to({1, 2, 3, 4}), ana);
    if (answer) CHECK(answer->passages.size() <= again->count(ana));
    return true;
  }
  fakes::setup one;
  std::string bytes;
};

TEST_CASE("case counts-disagree: one count changed, or one bit, is refused or sound in itself") {
  ten_rows file;
  REQUIRE(file.loads(file.bytes));
  const std::size_t header = 40 + index_bytes::number_at(file.bytes, 24, 8);
  for (std::size_t at = 0; at < header; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = file.bytes;
      changed[at] = static_cast<char>(static_cast<unsigned char>(changed[at]) ^ (1U << bit));
      CHECK_FALSE(file.loads(changed));
    }
  }
  std::size_t refused = 0;  // under right hashes, as only an attacker would have it
  for (std::size_t at = 16; at + 8 <= file.bytes.size(); ++at) {
    std::string changed = file.bytes;
    index_bytes::put_number(changed, at, index_bytes::number_at(changed, at, 8) + 1);
    if (index_bytes::rehash(changed) && !file.loads(changed)) ++refused;
  }
  CHECK(refused > 100);
}

TEST_CASE("case product-wraps: 2^62 in place of a count or a dimension is refused, not allocated") {
  ten_rows file;
  std::size_t tens = 0;
  for (std::size_t at = 40; at + 8 <= file.bytes.size(); ++at) {
    const std::uint64_t was = index_bytes::number_at(file.bytes, at, 8);
    if (was != 10 && was != 4) continue;  // rows, and numbers a row
    std::string changed = file.bytes;
    index_bytes::put_number(changed, at, std::uint64_t{1} << 62);
    if (!index_bytes::rehash(changed)) continue;
    ++tens;
    CAPTURE(at);
    CHECK_FALSE(file.loads(changed));
  }
  CHECK(tens > 2);
}

TEST_CASE("case unaligned-rows: at any address the same rows and score bits, on each loop") {
  const std::size_t dimension = 387;
  const auto data = drawn(9, 40, dimension);
  const auto flat = flat_of(data, rag::metric::inner_product);
  for (const std::size_t offset : {0U, 1U, 3U, 7U, 15U}) {
    numbers block(offset);
    for (const numbers& row : data) block.insert(block.end(), row.begin(), row.end());
    const auto moved = std::span<const float>(block).subspan(offset);
    auto view = rag::flat_index::view(moved, dimension, rag::metric::inner_product);
    for (const rag::detail::kernel_set& with : kernel_sets()) {
      auto copy = flat;
      copy.set_kernels(with);
      view.set_kernels(with);
      for (const numbers& question : drawn(10, 5, dimension)) {
        const auto expected = copy.search(question, 40, rag::row_set::all(40));
        const auto hits = view.search(question, 40, rag::row_set::all(40));
        REQUIRE(rows_of(hits) == rows_of(expected));
        for (std::size_t i = 0; i < hits.size(); ++i)
          CHECK(std::memcmp(&hits[i].score, &expected[i].score, sizeof(float)) == 0);
      }
    }
  }
}

TEST_CASE("case older-processor: each instruction set that may be chosen finds the same rows") {
  const auto data = drawn(11, 500, 100);
  auto flat = flat_of(data, rag::metric::cosine);
  const auto questions = drawn(12, 40, 100);
  flat.set_kernels(rag::detail::kernels_of(0));
  const auto plain = flat.search(questions, 10, rag::row_set::all(500));
  MESSAGE("instruction sets: ", kernel_sets().size(), " of 3");
  for (const rag::detail::kernel_set& with : kernel_sets()) {
    flat.set_kernels(with);
    const auto hits = flat.search(questions, 10, rag::row_set::all(500));
    for (std::size_t i = 0; i < hits.size(); ++i) {
      for (std::size_t place = 0; place < 10; ++place) {
        const rag::vector_hit& a = hits[i][place];
        const rag::vector_hit& b = plain[i][place];
        CHECK(std::abs(static_cast<double>(a.score) - static_cast<double>(b.score)) < 1e-6);
        CHECK(a.row == b.row);
      }
    }
  }
}

}  // namespace vector_cases
