// Vector search, measured as ratios inside one run: rounds go through all rows of a table in turn,
// and each figure is the median over the rounds, so that a busy machine slows all rows alike.
//
// usage: vectors [ROWS [DIMENSION [ROUNDS [PART [DOCUMENTS QUESTIONS]]]]]   (100000 384 9 all;
// vectors.sh builds and runs it). PART: exact; one (of that, one question alone); flat (data where
// bounds cannot pay); ivf (speed, training, memory, filters); recall (IVF with three seeds each);
// graph (IVF beside hnswlib: recall against questions a second; 20000 96 3 builds in seconds).
//
// Vectors are real ones from two files of little-endian float32, rows of length 1 (embed.py makes
// such), or follow from their number alone: 2,000 topics in 48 dimensions, spread into many by a
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
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <rag_retrieve.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

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
  /// Prints milliseconds, and how often the row `unit` takes as long, or the fastest of those whose
  /// names begin so.
  void print(std::size_t rounds, const std::string& unit) {
    print(rounds, std::vector<std::string>{unit});
  }
  /// The same with a column for each unit.
  void print(std::size_t rounds, const std::vector<std::string>& units) {
    for (std::size_t round = 0; round < rounds; ++round) {
      for (entry& each : rows_) {
        const double start = now();
        each.run(round);
        each.times.push_back(now() - start);
      }
    }
    std::printf("\n%s\n", title_.c_str());
    std::vector<const entry*> ones;
    if (units.size() > 1) std::printf("  %-44s %13s", "", "");
    for (const std::string& unit : units) {
      ones.push_back(fastest(unit));
      if (units.size() > 1) std::printf("  %17s", unit.c_str());
    }
    if (units.size() > 1) std::printf("\n");
    for (const entry& each : rows_) {
      std::printf("  %-44s %10.3f ms", each.name.c_str(), 1000 * median(each.times));
      for (const entry* one : ones) {
        std::vector<double> ratios;
        for (std::size_t round = 0; round < rounds; ++round)
          ratios.push_back(one->times[round] / each.times[round]);
        std::printf("  %*.3f x", units.size() > 1 ? 15 : 8, median(ratios));
      }
      std::printf("\n");
    }
    std::fflush(stdout);
  }

 private:
  struct entry {
    std::string name;
    std::function<void(std::size_t)> run;
    std::vector<double> times;
  };
  const entry* fastest(const std::string& unit) const {
    const entry* one = nullptr;
    for (const entry& each : rows_) {
      if (!each.name.starts_with(unit)) continue;
      if (one == nullptr || median(each.times) < median(one->times)) one = &each;
    }
    return one;
  }
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

/// Reads all numbers in four streams: the dot product with ones of rows of some length, by the
/// loops of some level. Which is fastest depends on where the rows lie, so several are tried.
void read_all(const std::vector<float>& rows, std::size_t length, int level) {
  const std::vector<float> ones(length, 1);
  const rag::detail::kernel_set with = rag::detail::kernels_of(level);
  rag::detail::in_blocks({rows.size() / length, 0, nullptr}, 1024, [&](auto numbers) {
    std::array<float, 1024> sums;
    with.dots(ones.data(), length, rows.data(), numbers.data(), numbers.size(), sums.data());
    sink = sums[0];
  });
}

struct setting {
  std::size_t rows = 100000;
  std::size_t dimension = 384;
  std::size_t rounds = 9;
};

const char* level_name(int level) { return level == 2 ? "AVX-512" : level == 1 ? "AVX2" : "plain"; }

std::vector<float> side_by_side(std::span<const std::vector<float>> questions) {
  std::vector<float> packed;
  for (const auto& each : questions) packed.insert(packed.end(), each.begin(), each.end());
  return packed;
}

/// Asks a peer the questions that lie side by side; empty where the peer is left out.
using peer_search = std::function<void(std::span<const float> packed, std::size_t k)>;

peer_search faiss_flat([[maybe_unused]] const setting& size,
                       [[maybe_unused]] const std::vector<float>& rows) {
#if defined(RAG_RETRIEVE_BENCH_FAISS)
  auto index = std::make_shared<faiss::IndexFlatIP>(static_cast<std::int64_t>(size.dimension));
  index->add(static_cast<std::int64_t>(size.rows), rows.data());
  return [index, distances = std::vector<float>(), labels = std::vector<std::int64_t>()](
             std::span<const float> packed, std::size_t k) mutable {
    const std::size_t count = packed.size() / static_cast<std::size_t>(index->d);
    distances.resize(count * k);
    labels.resize(count * k);
    index->search(static_cast<std::int64_t>(count), packed.data(), static_cast<std::int64_t>(k),
                  distances.data(), labels.data());
  };
#else
  std::printf("  left out: FAISS (header not found)\n");
  return {};
#endif
}

void add_reads(table& one, const std::vector<float>& rows, std::vector<float>& copy) {
  for (const std::size_t length : {384U, 512U, 1024U}) {
    for (int level = 0; level <= rag::detail::processor_level(); ++level) {
      one.add("read, rows of " + std::to_string(length) + ", " + level_name(level),
              [&rows, length, level](std::size_t) { read_all(rows, length, level); });
    }
  }
  one.add("memcpy", [&rows, &copy](std::size_t) {
    std::memcpy(copy.data(), rows.data(), rows.size() * sizeof(float));
    sink = copy[rows.size() / 2];
  });
}

/// One question at a time. After a scan of the floats the codes of the bounds have left the cache,
/// and after them the floats; "again" asks the next question, for which the codes lie where the
/// last one left them.
void one_question_table(const setting& size, const std::vector<float>& rows,
                        const vectors& questions, const rag::flat_index& flat,
                        const rag::flat_index& bounded, const peer_search& peer, std::size_t k) {
  const rag::row_set all = rag::row_set::all(size.rows);
  std::vector<float> copy(rows.size());
  table one("one question, k = " + std::to_string(k) + "; times faster than each column's row");
  std::vector<std::string> units{"read"};
  add_reads(one, rows, copy);
  one.add("plain loop", [&](std::size_t i) { plain_loop(rows, questions[i], k); });
  std::vector<rag::flat_index> flats, boundeds;
  for (int level = 0; level <= rag::detail::processor_level(); ++level) {
    flats.push_back(flat);
    flats.back().set_kernels(rag::detail::kernels_of(level));
    boundeds.push_back(bounded);
    boundeds.back().set_kernels(rag::detail::kernels_of(level));
  }
  for (std::size_t level = 0; level < flats.size(); ++level) {
    const std::string name = level_name(static_cast<int>(level));
    for (const std::size_t next : {0U, 1U}) {
      one.add("bounds, " + name + (next == 0 ? "" : ", again"), [&, level, next](std::size_t i) {
        const auto& question = questions[(i + next) % questions.size()];
        sink = boundeds[level].search(question, k, all)[0].score;
      });
    }
    units.push_back("floats, " + name);
    one.add(units.back(), [&, level](std::size_t i) {
      sink = flats[level].search(questions[i], k, all)[0].score;
    });
  }
#if defined(RAG_RETRIEVE_BENCH_PROTOTYPE)
  one.add("prototype, floats", [&](std::size_t i) {
    vk::TopK best(static_cast<int>(k));
    const auto dimension = static_cast<int>(size.dimension);
    const auto scan = vk::detect() == vk::Isa::avx512 ? &vk::scan4_avx512<true, 1024>
                      : vk::detect() == vk::Isa::avx2 ? &vk::scan4_avx2<true, 1024>
                                                      : &vk::scan4_portable<1024>;
    scan(questions[i].data(), rows.data(), size.rows, dimension, 0, best);
    sink = best.s[0];
  });
#else
  if (k == 10) std::printf("  left out: prototype (RAG_RETRIEVE_BENCH is not set)\n");
#endif
  if (peer) {
    units.push_back("FAISS IndexFlatIP");
    one.add(units.back(), [&](std::size_t i) { peer(questions[i], k); });
  }
  one.print(size.rounds, units);
}

/// more   filters and batches too, not one question alone
void exact_tables(const setting& size, const std::vector<float>& rows, const vectors& questions,
                  bool more) {
  const rag::flat_index flat = rag::flat_index::view(rows, size.dimension);
  rag::flat_index bounded = flat;
  const double start = now();
  bounded.set_bounds(rag::vector_bounds::on, 0);
  std::printf("  bounds: built in %.2f us a row\n",
              (now() - start) * 1e6 / static_cast<double>(size.rows));
  const rag::row_set all = rag::row_set::all(size.rows);
  const peer_search peer = faiss_flat(size, rows);
  for (const std::size_t k : {10U, 100U})
    one_question_table(size, rows, questions, flat, bounded, peer, k);
  if (!more) return;

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

  for (const std::size_t most : {2U, 8U, 32U, 1000U}) {
    const std::size_t count = (std::min)(std::size_t{most}, questions.size());
    const auto asked = std::span(questions).first(count);
    table batch(std::to_string(count) + " questions; times faster than one by one");
    batch.add("one by one", [&](std::size_t) {
      for (const auto& question : asked) sink = flat.search(question, 10, all)[0].score;
    });
    batch.add("batch", [&](std::size_t) { sink = flat.search(asked, 10, all)[0][0].score; });
    batch.add("batch, bounds",
              [&](std::size_t) { sink = bounded.search(asked, 10, all)[0][0].score; });
    const std::vector<float> packed = side_by_side(asked);
    if (peer) batch.add("FAISS IndexFlatIP", [&](std::size_t) { peer(packed, 10); });
    batch.print(count > 100 ? 3 : size.rounds, "one by one");
  }
}

/// Data that bounds cannot help with: how many float scans a search takes that tries them first.
void flat_tables(const setting& size) {
  const auto measure = [&](const std::string& name, const std::vector<float>& rows, std::size_t k,
                           std::span<const std::vector<float>> questions, std::size_t allowed) {
    rag::row_set some(rows.size() / size.dimension);
    for (std::size_t i = 0; i < allowed; ++i) some.insert(i * some.size() / allowed);
    const std::size_t repeats = (std::max)(std::size_t{1}, 20000 / allowed);
    for (const int level : {0, rag::detail::processor_level()}) {
      rag::flat_index flat =
          rag::flat_index::view(rows, size.dimension, rag::metric::inner_product);
      flat.set_kernels(rag::detail::kernels_of(level));
      rag::flat_index bounded = flat;
      bounded.set_bounds(rag::vector_bounds::on);
      table one(name + ", " + std::to_string(allowed) + " rows, k " + std::to_string(k) + ", " +
                level_name(level) + "; times faster than the float scan");
      const auto search = [&](const rag::flat_index& index, std::size_t round) {
        for (std::size_t i = 0; i < repeats; ++i)
          sink = index.search(questions[round % questions.size()], k, some)[0].score;
      };
      one.add("floats", [&](std::size_t round) { search(flat, round); });
      one.add("bounds", [&](std::size_t round) { search(bounded, round); });
      one.print(2 * size.rounds, "floats");
    }
  };
  rag::detail::random_source random(5);
  const auto drawn = [&](std::size_t count) {
    std::vector<float> values(count);
    for (float& value : values)
      value = static_cast<float>(random.unit() + random.unit() + random.unit() - 1.5);
    return values;
  };
  vectors questions;
  while (questions.size() < 2 * size.rounds) questions.push_back(drawn(size.dimension));
  const std::vector<float> base = drawn(size.dimension);
  for (const float spread : {1e-3F, 1e-6F, 0.0F}) {
    std::vector<float> rows = drawn(size.rows * size.dimension);
    for (std::size_t i = 0; i < rows.size(); ++i)
      rows[i] = base[i % size.dimension] + spread * rows[i];
    char name[64];
    std::snprintf(name, sizeof name, "rows that differ by %g", static_cast<double>(spread));
    measure(name, rows, 10, questions, size.rows);
  }
  std::vector<float> rows = drawn(size.rows * size.dimension);
  measure("no direction preferred", rows, 10, questions, size.rows);
  for (const std::size_t share : {10U, 50U, 200U})
    measure("large k", rows, size.rows / share, questions, size.rows);
  for (const std::size_t allowed : {1000U, 5000U})
    measure("a filter", rows, 10, questions, (std::min)(allowed, size.rows));
  rows = drawn(size.rows * size.dimension);
  for (float& value : rows) value += 4;
  measure("a narrow cone", rows, 10, questions, size.rows);
}

/// Memory in use, where the C library tells.
double megabytes() {
#if defined(__GLIBC__)
  const auto in_use = mallinfo2();
  return static_cast<double>(in_use.uordblks + in_use.hblkhd) / 1e6;
#else
  return 0;
#endif
}

#if defined(RAG_RETRIEVE_BENCH_FAISS)
/// FAISS's IVF, and room for its answers.
struct faiss_lists {
  faiss_lists(const setting& size, std::size_t lists, std::uint64_t seed)
      : coarse(static_cast<std::int64_t>(size.dimension)),
        index(&coarse, size.dimension, lists, faiss::METRIC_INNER_PRODUCT) {
    index.cp.seed = static_cast<int>(seed);
  }
  void train(const setting& size, const std::vector<float>& rows) {
    index.train(static_cast<std::int64_t>(size.rows), rows.data());
    index.add(static_cast<std::int64_t>(size.rows), rows.data());
  }
  void search(std::span<const float> packed, std::size_t probes) {
    const std::size_t count = packed.size() / static_cast<std::size_t>(index.d);
    index.nprobe = probes;
    distances.resize(count * 10);
    labels.resize(count * 10);
    index.search(static_cast<std::int64_t>(count), packed.data(), 10, distances.data(),
                 labels.data());
  }
  faiss::IndexFlatIP coarse;
  faiss::IndexIVFFlat index;
  std::vector<float> distances;
  std::vector<std::int64_t> labels;
};
#endif

using hit_lists = std::vector<std::vector<rag::vector_hit>>;

/// The share of the exact hits among what `found(question)` names.
template <class Found>
double share_of(const hit_lists& truth, const Found& found) {
  std::size_t wanted = 0;
  std::size_t held = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const auto rows = found(i);
    wanted += truth[i].size();
    for (const rag::vector_hit& hit : truth[i])
      held += static_cast<std::size_t>(std::count(rows.begin(), rows.end(), hit.row));
  }
  return static_cast<double>(held) / static_cast<double>(wanted);
}

double ours_of(const hit_lists& truth, const std::vector<rag::ivf_result>& found) {
  return share_of(truth, [&](std::size_t i) {
    std::vector<std::uint32_t> rows;
    for (const rag::vector_hit& hit : found[i].hits) rows.push_back(hit.row);
    return rows;
  });
}

/// Recall at equal numbers of lists and probes, the mean of three seeds each.
void recall_table(const setting& size, const std::vector<float>& rows, const vectors& questions) {
  const rag::flat_index flat = rag::flat_index::view(rows, size.dimension);
  const rag::row_set all = rag::row_set::all(size.rows);
  const hit_lists truth = flat.search(questions, 10, all);
  const std::vector<std::size_t> probes{1, 2, 4, 8, 16, 32, 64};
  std::vector<double> ours(probes.size()), peers(probes.size());
  std::vector<double> seconds, peer_seconds;
  std::size_t count = 0;
  [[maybe_unused]] const std::vector<float> packed = side_by_side(questions);
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    rag::ivf_index lists({.seed = seed});
    double start = now();
    lists.train(flat);
    seconds.push_back(now() - start);
    count = lists.lists();
    for (std::size_t i = 0; i < probes.size(); ++i)
      ours[i] += ours_of(truth, lists.search(questions, 10, all, probes[i])) / 3;
#if defined(RAG_RETRIEVE_BENCH_FAISS)
    faiss_lists peer(size, lists.lists(), seed);
    start = now();
    peer.train(size, rows);
    peer_seconds.push_back(now() - start);
    for (std::size_t i = 0; i < probes.size(); ++i) {
      peer.search(packed, probes[i]);
      peers[i] += share_of(truth,
                           [&](std::size_t question) {
                             return std::span(peer.labels).subspan(question * 10, 10);
                           }) /
                  3;
    }
#endif
  }
  std::printf("\nIVF, %zu lists: recall@10 of %zu questions, mean of three seeds\n", count,
              questions.size());
  for (std::size_t i = 0; i < probes.size(); ++i) {
    std::printf("  probes %2zu   %.4f", probes[i], ours[i]);
    if (!peer_seconds.empty())
      std::printf("   FAISS %.4f   difference %+.4f", peers[i], ours[i] - peers[i]);
    std::printf("\n");
  }
  std::printf("  trained in %.2f s", median(seconds));
  if (!peer_seconds.empty())
    std::printf("   FAISS %.2f s   share %.3f", median(peer_seconds),
                median(seconds) / median(peer_seconds));
  std::printf("\n");
  if (peer_seconds.empty()) std::printf("  left out: FAISS (header not found)\n");
}

/// A filter for each question: its name, and which rows the question may find.
struct question_filters {
  std::string name;
  std::vector<rag::row_set> sets;
  const rag::row_set& of(std::size_t question) const { return sets[question % sets.size()]; }
};

/// The lists that are farthest from a question, as many as hold `share` of the rows, or one.
rag::row_set far_lists(const rag::ivf_index& lists, std::span<const float> question, double share) {
  const auto parts = lists.parts();
  std::vector<std::pair<float, std::size_t>> order;
  for (std::size_t list = 0; list < lists.lists(); ++list) {
    const auto centroid = std::span(parts.centroids).subspan(list * question.size());
    order.push_back({rag::dot(question, centroid.first(question.size())), list});
  }
  std::sort(order.begin(), order.end());
  rag::row_set rows(lists.size());
  std::size_t count = 0;
  for (const auto& [score, list] : order) {
    for (const std::uint32_t row : lists.list(list)) rows.insert(row);
    count += lists.list(list).size();
    if (static_cast<double>(count) >= share * static_cast<double>(lists.size())) break;
  }
  return rows;
}

/// Recall and time under filters; every question must get min(10, readable) hits.
void filter_table(const rag::flat_index& flat, const rag::ivf_index& lists,
                  std::span<const std::vector<float>> questions) {
  std::vector<question_filters> filters{{"none", {rag::row_set::all(flat.size())}}};
  for (const double share : {0.5, 0.1, 0.01, 0.001}) {
    rag::row_set some(flat.size());
    rag::detail::random_source random(3);
    for (std::size_t row = 0; row < flat.size(); ++row) {
      if (random.unit() < share) some.insert(row);
    }
    filters.push_back({std::to_string(share) + " of the rows, drawn", {some}});
  }
  for (const double share : {0.0, 0.1, 0.5}) {
    question_filters far{share > 0 ? std::to_string(share) + " of the rows, the farthest lists"
                                   : "one topic: the farthest list",
                         {}};
    for (const auto& question : questions) far.sets.push_back(far_lists(lists, question, share));
    filters.push_back(std::move(far));
  }
  for (const std::size_t probes : {8U, 16U}) {
    table filtered(std::to_string(probes) + " probes, under filters; times faster than with none");
    std::vector<std::string> notes;
    for (const question_filters& filter : filters) {
      hit_lists truth;
      std::vector<rag::ivf_result> found;
      std::size_t missing = 0;
      for (std::size_t i = 0; i < questions.size(); ++i) {
        truth.push_back(flat.search(questions[i], 10, filter.of(i)));
        found.push_back(lists.search(questions[i], 10, filter.of(i), probes));
        missing += truth[i].size() - found[i].hits.size();
      }
      char line[120];
      std::snprintf(line, sizeof line, "  %-44s recall@10 %.4f, %zu hits missing",
                    filter.name.c_str(), ours_of(truth, found), missing);
      notes.push_back(line);
      filtered.add(filter.name, [&, probes](std::size_t) {
        for (std::size_t i = 0; i < questions.size(); ++i)
          sink = lists.search(questions[i], 10, filter.of(i), probes).hits[0].score;
      });
    }
    filtered.print(3, "none");
    for (const std::string& line : notes) std::printf("%s\n", line.c_str());
  }
}

void ivf_tables(const setting& size, const std::vector<float>& rows, const vectors& questions) {
  const rag::flat_index flat = rag::flat_index::view(rows, size.dimension);
  const rag::row_set all = rag::row_set::all(size.rows);
  const double data = static_cast<double>(rows.size() * sizeof(float)) / 1e6;
  rag::ivf_index lists;
  double before = megabytes();
  double start = now();
  lists.train(flat);
  const double trained = now() - start;
  const double centroids = static_cast<double>(lists.lists() * size.dimension * 4) / 1e6;
  std::printf("\nIVF, %zu lists: trained in %.2f s; %.4f x the vectors' memory and centroids\n",
              lists.lists(), trained, (megabytes() - before - centroids) / data);
  const auto some = std::span(questions).first((std::min)(std::size_t{200}, questions.size()));
#if defined(RAG_RETRIEVE_BENCH_FAISS)
  before = megabytes();
  faiss_lists peer(size, lists.lists(), 1);
  start = now();
  peer.train(size, rows);
  std::printf("  FAISS: %.2f s with adding; %.4f x\n", now() - start,
              (megabytes() - before - centroids) / data);
  const std::vector<float> packed = side_by_side(questions);
#endif
  for (const std::size_t probes : {1U, 4U, 8U, 16U, 64U}) {
    table searching("probes " + std::to_string(probes) + ": 200 questions one by one, " +
                    std::to_string(questions.size()) + " at once");
    searching.add("one by one", [&](std::size_t) {
      for (const auto& question : some)
        sink = lists.search(question, 10, all, probes).hits[0].score;
    });
    searching.add("at once", [&](std::size_t) {
      sink = lists.search(questions, 10, all, probes)[0].hits[0].score;
    });
#if defined(RAG_RETRIEVE_BENCH_FAISS)
    searching.add("FAISS, one by one", [&](std::size_t) {
      for (const auto& question : some) peer.search(question, probes);
    });
    searching.add("FAISS, at once", [&](std::size_t) { peer.search(packed, probes); });
#endif
    searching.print(3, "one by one");
  }
  filter_table(flat, lists, some);
}

/// Points of curves of recall against speed, measured in turn round after round. Each asks its
/// questions twice, so that the second time what one point reads lies where it would stay.
class curves {
 public:
  using answer = std::vector<std::size_t>;  ///< the rows that were found for one question
  explicit curves(std::span<const std::vector<float>> questions) : questions_(questions) {}
  void add(std::string name, std::function<answer(const std::vector<float>&)> ask) {
    points_.push_back({std::move(name), std::move(ask), {}});
  }
  void print(std::size_t rounds, const hit_lists& truth) {
    for (std::size_t round = 0; round < rounds; ++round) {
      for (point& each : points_) {
        ask_all(each);
        const double start = now();
        ask_all(each);
        each.times.push_back((now() - start) / static_cast<double>(questions_.size()));
      }
    }
    std::printf("  %-32s %9s %14s %12s\n", "", "recall@10", "us a question", "questions/s");
    for (const point& each : points_) {
      const double recall = share_of(truth, [&](std::size_t i) { return each.ask(questions_[i]); });
      const double seconds = median(each.times);
      std::printf("  %-32s %9.4f %14.1f %12.0f\n", each.name.c_str(), recall, seconds * 1e6,
                  1 / seconds);
    }
    std::fflush(stdout);
  }

 private:
  struct point {
    std::string name;
    std::function<answer(const std::vector<float>&)> ask;
    std::vector<double> times;
  };
  void ask_all(const point& asked) const {
    for (const auto& question : questions_) sink = static_cast<float>(asked.ask(question).size());
  }
  std::span<const std::vector<float>> questions_;
  std::vector<point> points_;
};

curves::answer rows_of(const std::vector<rag::vector_hit>& hits) {
  curves::answer rows;
  for (const rag::vector_hit& hit : hits) rows.push_back(hit.row);
  return rows;
}

/// Our lists beside hnswlib's graph, one question at a time. Without flags hnswlib runs SSE, ours
/// what the processor has: CXX="g++ -march=native" gives hnswlib AVX.
void graph_table(const setting& size, const std::vector<float>& rows, const vectors& questions) {
  const rag::flat_index flat = rag::flat_index::view(rows, size.dimension);
  rag::flat_index bounded = flat;
  bounded.set_bounds(rag::vector_bounds::on);
  const rag::row_set all = rag::row_set::all(size.rows);
  const auto some = std::span(questions).first((std::min)(std::size_t{200}, questions.size()));
  curves both(some);
  both.add("floats", [&](const auto& asked) { return rows_of(flat.search(asked, 10, all)); });
  both.add("bounds", [&](const auto& asked) { return rows_of(bounded.search(asked, 10, all)); });

  std::printf("\nrecall against questions a second, k = 10\n");
  std::vector<rag::ivf_index> trained;
  trained.emplace_back();
  trained.emplace_back(rag::ivf_options{.lists = rag::ivf_options_for(size.rows).lists});
  for (rag::ivf_index& lists : trained) {
    const double start = now();
    lists.train(flat);
    const std::string name = "IVF, " + std::to_string(lists.lists()) + " lists";
    std::printf("  %s: trained in %.2f s\n", name.c_str(), now() - start);
    for (const std::size_t probes : {1U, 2U, 4U, 8U, 16U, 32U, 64U}) {
      both.add(name + ", probes " + std::to_string(probes), [&, probes](const auto& asked) {
        return rows_of(lists.search(asked, 10, all, probes).hits);
      });
    }
  }
#if defined(RAG_RETRIEVE_BENCH_HNSWLIB)
  hnswlib::InnerProductSpace space(size.dimension);
  const double before = megabytes();
  hnswlib::HierarchicalNSW<float> graph(&space, size.rows, 16, 200);
  const double start = now();
  for (std::size_t row = 0; row < size.rows; ++row)
    graph.addPoint(&rows[row * size.dimension], row);
  std::printf("  hnswlib, M 16, ef_construction 200: built in %.2f s, %.0f bytes a vector\n",
              now() - start, (megabytes() - before) * 1e6 / static_cast<double>(size.rows));
  for (const std::size_t width : {16U, 32U, 64U, 128U}) {
    both.add("hnswlib, ef " + std::to_string(width), [&, width](const auto& asked) {
      graph.setEf(width);
      curves::answer found;
      for (auto hits = graph.searchKnn(asked.data(), 10); !hits.empty(); hits.pop())
        found.push_back(hits.top().second);
      return found;
    });
  }
#else
  std::printf("  left out: hnswlib (header not found)\n");
#endif
  both.print(size.rounds, flat.search(some, 10, all));
}

/// The numbers of a file of little-endian float32, in rows of `dimension`.
std::vector<float> read_numbers(const char* path, std::size_t dimension) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto bytes = file ? static_cast<std::size_t>(file.tellg()) : 0;
  std::vector<float> numbers(bytes / sizeof(float));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(numbers.data()), static_cast<std::streamsize>(bytes));
  if (!file || numbers.empty() || bytes % (dimension * sizeof(float)) != 0) {
    std::fprintf(stderr, "%s: no rows of %zu numbers\n", path, dimension);
    std::exit(2);
  }
  return numbers;
}

/// The tables of some part over some vectors.
void measure(const setting& size, std::string_view part, const std::vector<float>& rows,
             const vectors& questions) {
  const auto wanted = [&](std::string_view name) { return part == "all" || part == name; };
  if (wanted("exact") || part == "one") exact_tables(size, rows, questions, part != "one");
  if (wanted("ivf")) ivf_tables(size, rows, questions);
  if (wanted("recall")) recall_table(size, rows, questions);
  if (wanted("graph")) graph_table(size, rows, questions);
}

void measure_files(setting size, std::string_view part, const char* documents,
                   const char* questions) {
  const std::vector<float> rows = read_numbers(documents, size.dimension);
  if (rows.size() != size.rows * size.dimension) {
    std::fprintf(stderr, "%s: %zu rows, not %zu\n", documents, rows.size() / size.dimension,
                 size.rows);
    std::exit(2);
  }
  const std::vector<float> packed = read_numbers(questions, size.dimension);
  vectors asked;
  const auto dimension = static_cast<std::ptrdiff_t>(size.dimension);
  for (auto at = packed.begin(); at != packed.end(); at += dimension)
    asked.emplace_back(at, at + dimension);
  size.rounds = (std::min)(size.rounds, asked.size());
  std::printf("\n==== %zu x %zu, %s\n", size.rows, size.dimension, documents);
  measure(size, part, rows, asked);
}

void measure_made(const setting& size, std::string_view part, double spread) {
  std::printf("\n==== %zu x %zu, %s\n", size.rows, size.dimension, spread < 1 ? "easy" : "hard");
  const mixture made(size.dimension, spread);
  std::vector<float> rows(size.rows * size.dimension);
  for (std::size_t row = 0; row < size.rows; ++row)
    made.write(row, std::span(rows).subspan(row * size.dimension, size.dimension));
  vectors questions(1000, std::vector<float>(size.dimension));
  for (std::size_t i = 0; i < questions.size(); ++i) made.write(size.rows + i, questions[i]);
  measure(size, part, rows, questions);
}

}  // namespace

int main(int count, char** words) {
  setting size;
  if (count > 1) size.rows = std::strtoul(words[1], nullptr, 10);
  if (count > 2) size.dimension = std::strtoul(words[2], nullptr, 10);
  if (count > 3) size.rounds = std::strtoul(words[3], nullptr, 10);
  const std::string_view part = count > 4 ? words[4] : "all";
  if (count > 6) {
    measure_files(size, part, words[5], words[6]);
    return 0;
  }
  if (part == "all" || part == "flat") flat_tables(size);
  if (part == "flat") return 0;
  for (const double spread : {0.6, 1.0}) measure_made(size, part, spread);
}
