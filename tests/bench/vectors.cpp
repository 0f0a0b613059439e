// Vector search, measured as ratios inside one run: rounds go through all rows of a table in turn,
// and each figure is the median over the rounds, so that a busy machine slows all rows alike.
//
// usage: vectors [ROWS [DIMENSION [ROUNDS [exact]]]]   (100000 384 9; vectors.sh builds and runs
// it)
//
// Vectors follow from their number alone: 2,000 topics in 48 dimensions, spread into many by a
// fixed map, with noise, length 1; "hard" topics overlap more. Peers are compared where their
// headers are found (FAISS, hnswlib), prototypes where the folder that RAG_RETRIEVE_BENCH named at
// build time has them; what is left out is said.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <rag_retrieve.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#if defined(RAG_RETRIEVE_BENCH_FAISS)
#include <faiss/IndexFlat.h>
#include <faiss/IndexIVFFlat.h>
#endif
#if defined(RAG_RETRIEVE_BENCH_HNSWLIB)
#include <hnswlib/hnswlib.h>
#endif
#if defined(RAG_RETRIEVE_BENCH_PROTOTYPE)
#include <vector_kernels.hpp>
#endif

namespace rag = rag_retrieve;

namespace {

using vectors = std::vector<std::vector<float>>;

/// Seconds of this program alone, which has one thread: what others do on the machine costs less.
double now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// The made vectors.
class mixture {
 public:
  mixture(std::size_t dimension, double spread) : dimension_(dimension), spread_(spread) {
    rag::detail::random_source random(7);
    for (double& value : map_) value = normal(random);
    for (double& value : topics_) value = normal(random);
  }
  void write(std::size_t row, std::span<float> out) const {
    rag::detail::random_source random(row * 1000003 + 17);
    const double* topic = &topics_[static_cast<std::size_t>(random.below(2000)) * inner];
    std::vector<double> sum(dimension_);
    for (double& value : sum) value = normal(random);
    for (std::size_t i = 0; i < inner; ++i) {
      const double at = topic[i] + spread_ * normal(random);
      for (std::size_t j = 0; j < dimension_; ++j) sum[j] += at * map_[i * dimension_ + j];
    }
    for (std::size_t j = 0; j < dimension_; ++j) out[j] = static_cast<float>(sum[j]);
    static_cast<void>(rag::normalise(out));
  }

 private:
  static constexpr std::size_t inner = 48;
  static double normal(rag::detail::random_source& random) {
    const auto bits = random.next();
    const auto sum = (bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48);
    return (static_cast<double>(sum) - 131070) * (1.7320508 / 65536);
  }
  std::size_t dimension_;
  double spread_;
  std::vector<double> map_ = std::vector<double>(inner * dimension_);
  std::vector<double> topics_ = std::vector<double>(2000 * inner);
};

/// Rows of a table: a name, and what to run in each round.
class table {
 public:
  explicit table(std::string title) : title_(std::move(title)) {}
  void add(std::string name, std::function<void(std::size_t)> run) {
    rows_.push_back({std::move(name), std::move(run), {}});
  }
  /// Prints milliseconds, and how often the row `unit` takes as long.
  void print(std::size_t rounds, const std::string& unit) {
    for (std::size_t round = 0; round < rounds; ++round) {
      for (entry& each : rows_) {
        const double start = now();
        each.run(round);
        each.times.push_back(now() - start);
      }
    }
    std::printf("\n%s\n", title_.c_str());
    const entry* one = &rows_.front();
    for (const entry& each : rows_) one = each.name == unit ? &each : one;
    for (const entry& each : rows_) {
      std::vector<double> ratios;
      for (std::size_t round = 0; round < rounds; ++round)
        ratios.push_back(one->times[round] / each.times[round]);
      std::printf("  %-44s %10.3f ms  %8.3f x\n", each.name.c_str(), 1000 * median(each.times),
                  median(ratios));
    }
    std::fflush(stdout);
  }

 private:
  struct entry {
    std::string name;
    std::function<void(std::size_t)> run;
    std::vector<double> times;
  };
  std::string title_;
  std::vector<entry> rows_;
};

volatile float sink = 0;

/// What one would write without thinking about it.
void plain_loop(const std::vector<float>& rows, const std::vector<float>& question, std::size_t k) {
  std::vector<std::pair<float, std::size_t>> scores;
  const std::size_t dimension = question.size();
  for (std::size_t row = 0; row < rows.size() / dimension; ++row) {
    float sum = 0;
    for (std::size_t i = 0; i < dimension; ++i) sum += question[i] * rows[row * dimension + i];
    scores.push_back({-sum, row});
  }
  std::partial_sort(scores.begin(), scores.begin() + static_cast<std::ptrdiff_t>(k), scores.end());
  sink = scores[0].first;
}

/// Reads all numbers in four streams, with the widest loops there are: the dot product with ones of
/// one row as long as a page.
void read_all(const std::vector<float>& rows) {
  const std::size_t length = 1024;
  const std::vector<float> ones(length, 1);
  const rag::detail::vector_block block{&rag::detail::kernels(), rows.data(), length, 1};
  rag::detail::in_blocks({rows.size() / length, 0, nullptr}, 1024, [&](auto numbers) {
    std::array<float, 1024> sums;
    block.with->dots(ones.data(), length, rows.data(), numbers.data(), numbers.size(), sums.data());
    sink = sums[0];
  });
}

struct setting {
  std::size_t rows = 100000;
  std::size_t dimension = 384;
  std::size_t rounds = 9;
};

const char* level_name(int level) { return level == 2 ? "AVX-512" : level == 1 ? "AVX2" : "plain"; }

void exact_tables(const setting& size, const std::vector<float>& rows, const vectors& questions) {
  const rag::flat_index flat = rag::flat_index::view(rows, size.dimension);
  rag::flat_index bounded = flat;
  const double start = now();
  bounded.set_bounds(rag::vector_bounds::on, 0);
  std::printf("  bounds: built in %.2f us a row\n",
              (now() - start) * 1e6 / static_cast<double>(size.rows));
  const rag::row_set all = rag::row_set::all(size.rows);
  std::vector<float> copy(rows.size());

  table one("one question, k = 10; times faster than reading all numbers");
  one.add("read", [&](std::size_t) { read_all(rows); });
  one.add("memcpy", [&](std::size_t) {
    std::memcpy(copy.data(), rows.data(), rows.size() * sizeof(float));
    sink = copy[rows.size() / 2];
  });
  one.add("plain loop", [&](std::size_t i) { plain_loop(rows, questions[i], 10); });
  std::vector<rag::flat_index> flats, boundeds;
  for (int level = 0; level <= rag::detail::processor_level(); ++level) {
    flats.push_back(flat);
    flats.back().set_kernels(rag::detail::kernels_of(level));
    boundeds.push_back(bounded);
    boundeds.back().set_kernels(rag::detail::kernels_of(level));
  }
  for (std::size_t level = 0; level < flats.size(); ++level) {
    const std::string name = level_name(static_cast<int>(level));
    one.add("floats, " + name, [&, level](std::size_t i) {
      sink = flats[level].search(questions[i], 10, all)[0].score;
    });
    for (const std::size_t k : {10U, 100U}) {
      one.add("bounds, k " + std::to_string(k) + ", " + name, [&, level, k](std::size_t i) {
        sink = boundeds[level].search(questions[i], k, all)[0].score;
      });
    }
  }
#if defined(RAG_RETRIEVE_BENCH_PROTOTYPE)
  one.add("prototype, floats", [&](std::size_t i) {
    vk::TopK best(10);
    const auto dimension = static_cast<int>(size.dimension);
    const auto scan = vk::detect() == vk::Isa::avx512 ? &vk::scan4_avx512<true, 1024>
                      : vk::detect() == vk::Isa::avx2 ? &vk::scan4_avx2<true, 1024>
                                                      : &vk::scan4_portable<1024>;
    scan(questions[i].data(), rows.data(), size.rows, dimension, 0, best);
    sink = best.s[0];
  });
#else
  std::printf("  left out: prototype (RAG_RETRIEVE_BENCH is not set)\n");
#endif
#if defined(RAG_RETRIEVE_BENCH_FAISS)
  faiss::IndexFlatIP peer(static_cast<std::int64_t>(size.dimension));
  peer.add(static_cast<std::int64_t>(size.rows), rows.data());
  std::vector<float> distances(1000 * 10);
  std::vector<std::int64_t> labels(1000 * 10);
  one.add("FAISS IndexFlatIP", [&](std::size_t i) {
    peer.search(1, questions[i].data(), 10, distances.data(), labels.data());
  });
#else
  std::printf("  left out: FAISS (header not found)\n");
#endif
  one.print(size.rounds, "read");

  table filters("filters, k = 10; times faster than the float scan of all rows");
  filters.add("all rows",
              [&](std::size_t i) { sink = flat.search(questions[i], 10, all)[0].score; });
  for (const double share : {0.9, 0.5, 0.1, 0.01, 0.001}) {
    rag::row_set some(size.rows);
    rag::detail::random_source random(3);
    for (std::size_t row = 0; row < size.rows; ++row) {
      if (random.unit() < share) some.insert(row);
    }
    for (const rag::flat_index* index : {&flat, static_cast<const rag::flat_index*>(&bounded)}) {
      filters.add((index == &flat ? "floats, " : "bounds, ") + std::to_string(share),
                  [&, index, some](std::size_t i) {
                    sink = index->search(questions[i], 10, some)[0].score;
                  });
    }
  }
  filters.print(size.rounds, "all rows");

  for (const std::size_t count : {2U, 8U, 32U, 200U}) {
    const auto asked = std::span(questions).first(count);
    table batch(std::to_string(count) + " questions; times faster than one by one");
    batch.add("one by one", [&](std::size_t) {
      for (const auto& question : asked) sink = flat.search(question, 10, all)[0].score;
    });
    batch.add("batch", [&](std::size_t) { sink = flat.search(asked, 10, all)[0][0].score; });
    batch.add("batch, bounds",
              [&](std::size_t) { sink = bounded.search(asked, 10, all)[0][0].score; });
#if defined(RAG_RETRIEVE_BENCH_FAISS)
    std::vector<float> packed;
    for (const auto& question : asked)
      packed.insert(packed.end(), question.begin(), question.end());
    batch.add("FAISS IndexFlatIP", [&](std::size_t) {
      peer.search(static_cast<std::int64_t>(asked.size()), packed.data(), 10, distances.data(),
                  labels.data());
    });
#endif
    batch.print(count > 100 ? 3 : size.rounds, "one by one");
  }
}

void ivf_tables(const setting& size, const std::vector<float>& rows, const vectors& questions) {
  const rag::flat_index flat = rag::flat_index::view(rows, size.dimension);
  const rag::row_set all = rag::row_set::all(size.rows);
  rag::ivf_index lists;
  double start = now();
  lists.train(flat);
  const double trained = now() - start;
  std::printf("\nIVF, %zu lists: trained in %.2f s\n", lists.lists(), trained);
#if defined(RAG_RETRIEVE_BENCH_FAISS)
  const auto dimension = static_cast<std::int64_t>(size.dimension);
  faiss::IndexFlatIP coarse(dimension);
  faiss::IndexIVFFlat peer(&coarse, size.dimension, lists.lists(), faiss::METRIC_INNER_PRODUCT);
  start = now();
  peer.train(static_cast<std::int64_t>(size.rows), rows.data());
  peer.add(static_cast<std::int64_t>(size.rows), rows.data());
  std::printf("  FAISS: %.2f s with adding\n", now() - start);
  std::vector<float> distances(questions.size() * 10), packed;
  std::vector<std::int64_t> labels(questions.size() * 10);
  for (const auto& each : questions) packed.insert(packed.end(), each.begin(), each.end());
#endif
  for (const std::size_t probes : {1U, 4U, 8U, 16U, 32U, 64U}) {
    const auto report = rag::measure_recall(lists, flat, questions, 10, all, probes);
    table searching("probes " + std::to_string(probes) + ": recall@10 " +
                    std::to_string(report.recall));
    searching.add("one by one", [&](std::size_t) {
      for (const auto& question : questions)
        sink = lists.search(question, 10, all, probes).hits[0].score;
    });
    searching.add("batch", [&](std::size_t) {
      sink = lists.search(questions, 10, all, probes)[0].hits[0].score;
    });
#if defined(RAG_RETRIEVE_BENCH_FAISS)
    peer.nprobe = probes;
    searching.add("FAISS, one by one", [&](std::size_t) {
      for (const auto& question : questions)
        peer.search(1, question.data(), 10, distances.data(), labels.data());
    });
    searching.add("FAISS, batch", [&](std::size_t) {
      peer.search(static_cast<std::int64_t>(questions.size()), packed.data(), 10, distances.data(),
                  labels.data());
    });
#endif
    searching.print(3, "one by one");
  }
  for (const double share : {0.5, 0.1, 0.01, 0.001}) {
    rag::row_set some(size.rows);
    rag::detail::random_source random(3);
    for (std::size_t row = 0; row < size.rows; ++row) {
      if (random.unit() < share) some.insert(row);
    }
    const auto report = rag::measure_recall(lists, flat, questions, 10, some, 8);
    table filtered("8 probes, " + std::to_string(share) + " of the rows readable: recall@10 " +
                   std::to_string(report.recall));
    filtered.add("unfiltered", [&](std::size_t) {
      for (const auto& question : questions)
        sink = lists.search(question, 10, all, 8).hits[0].score;
    });
    filtered.add("filtered", [&](std::size_t) {
      for (const auto& question : questions)
        sink = lists.search(question, 10, some, 8).hits[0].score;
    });
    filtered.print(3, "unfiltered");
  }
#if defined(RAG_RETRIEVE_BENCH_HNSWLIB)
  hnswlib::InnerProductSpace space(size.dimension);
  hnswlib::HierarchicalNSW<float> graph(&space, size.rows, 16, 100);
  start = now();
  for (std::size_t row = 0; row < size.rows; ++row)
    graph.addPoint(&rows[row * size.dimension], row);
  std::printf("\nhnswlib, M 16, 100 at building: built in %.2f s (IVF %.2f s)\n", now() - start,
              trained);
  for (const std::size_t width : {10U, 20U, 50U}) {
    graph.setEf(width);
    std::size_t found = 0;
    const auto truth = flat.search(questions, 10, all);
    table searching("hnswlib, width " + std::to_string(width));
    searching.add("one by one", [&](std::size_t) {
      found = 0;
      for (std::size_t i = 0; i < questions.size(); ++i) {
        auto near = graph.searchKnn(questions[i].data(), 10);
        for (; !near.empty(); near.pop()) {
          const auto same = [&](const rag::vector_hit& hit) {
            return hit.row == near.top().second;
          };
          found += static_cast<std::size_t>(std::count_if(truth[i].begin(), truth[i].end(), same));
        }
      }
    });
    searching.print(3, "one by one");
    std::printf("  recall@10 %.4f\n",
                static_cast<double>(found) / static_cast<double>(10 * questions.size()));
  }
#else
  std::printf("\nleft out: hnswlib (header not found)\n");
#endif
}

}  // namespace

int main(int count, char** words) {
  setting size;
  if (count > 1) size.rows = std::strtoul(words[1], nullptr, 10);
  if (count > 2) size.dimension = std::strtoul(words[2], nullptr, 10);
  if (count > 3) size.rounds = std::strtoul(words[3], nullptr, 10);
  for (const double spread : {0.6, 1.0}) {
    std::printf("\n==== %zu x %zu, %s\n", size.rows, size.dimension, spread < 1 ? "easy" : "hard");
    const mixture made(size.dimension, spread);
    std::vector<float> rows(size.rows * size.dimension);
    for (std::size_t row = 0; row < size.rows; ++row)
      made.write(row, std::span(rows).subspan(row * size.dimension, size.dimension));
    vectors questions(200, std::vector<float>(size.dimension));
    for (std::size_t i = 0; i < questions.size(); ++i) made.write(size.rows + i, questions[i]);
    exact_tables(size, rows, questions);
    if (count <= 4) ivf_tables(size, rows, questions);
  }
}
