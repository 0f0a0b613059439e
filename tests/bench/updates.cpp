// Cost of updates, of access control and of memory, measured with Google Benchmark on made-up text.
// run.sh builds it, runs it and prints the tables of the README; table.py says what each row means.
//
// usage: updates [--largest=CHUNKS] [options of Google Benchmark]
//
// Documents have five sections of 100 words, drawn from 200,000 words by Zipf's law (the word of
// rank r comes as 1 / r). Ids are mixed numbers, so that new documents fall anywhere in their
// order. All repetitions take the same number of steps at every size; with random interleaving
// (run.sh) the sizes are measured side by side, so that a busy machine slows all of them alike.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <rag_retrieve.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace rag = rag_retrieve;

namespace {

constexpr std::size_t chunks_per_document = 5;

double time_of_day() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

/// Seconds of the calling thread's own work, where the system counts them: what other programs do
/// to a shared machine is then left out, but for caches and memory. Elsewhere the time of day.
double now() {
#if defined(CLOCK_THREAD_CPUTIME_ID)
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
#else
  return time_of_day();
#endif
}

// ---- text ---------------------------------------------------------------------------------------

/// The word of a rank: ba, be ... for the 70 most frequent ones, then two syllables, then three.
std::string word_of(std::size_t rank) {
  constexpr std::string_view consonants = "bdfghjklmnprst";
  constexpr std::string_view vowels = "aeiou";
  std::string word;
  for (++rank; rank > 0; rank /= 71) {
    const std::size_t syllable = (rank - 1) % 70;
    word += consonants[syllable / 5];
    word += vowels[syllable % 5];
  }
  return word;
}

/// Random words. P(rank r) = ln((r + 2) / (r + 1)) / ln(200001), which is nearly 1 / r.
class writer {
 public:
  explicit writer(std::uint64_t seed) : random_(seed) {
    for (std::size_t rank = 0; rank < vocabulary; ++rank) words_.push_back(word_of(rank));
  }
  const std::string& word() {
    const double rank = std::exp(random_.unit() * std::log(vocabulary + 1.0)) - 1.0;
    return words_[(std::min)(static_cast<std::size_t>(rank), vocabulary - 1)];
  }
  std::string line(std::size_t count) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) text += (i == 0 ? "" : " ") + word();
    return text;
  }
  std::uint64_t below(std::uint64_t n) { return random_.below(n); }
  float coordinate() { return static_cast<float>(random_.unit() - 0.5); }

 private:
  static constexpr std::size_t vocabulary = 200000;
  rag::detail::random_source random_;
  std::vector<std::string> words_;
};

// ---- a collection -------------------------------------------------------------------------------

/// How a collection is made.
struct shape {
  std::size_t chunks = 0;
  std::size_t classes = 100;  // distinct lists of groups; a reader of "even" may read every other
  std::size_t dimension = 0;  // of vectors; 0: none
  rag::statistics_of statistics = rag::statistics_of::reader;
  std::vector<std::size_t> segments = {};  // chunks of each; none: batches of 5,000
  auto key() const { return std::tuple(chunks, classes, dimension, statistics, segments); }
};

/// A retriever with documents 0, 1, 2 ... and a reader of about half of them.
class collection {
 public:
  explicit collection(const shape& form) : form_(form), write_(form.chunks + 1) {
    people_.set_groups({.user = "reader"}, {form.classes == 1 ? "list 0" : "even"});
    std::vector<std::size_t> batches = form.segments;
    for (std::size_t made = 0; form.segments.empty() && made < form.chunks; made += 5000) {
      batches.push_back((std::min)(form.chunks - made, std::size_t{5000}));
    }
    for (const std::size_t batch : batches) {
      std::vector<rag::chunked_document> documents;
      for (std::size_t i = 0; i < batch / chunks_per_document; ++i) {
        documents.push_back(make(documents_++));
      }
      retriever_.upsert(documents);
    }
  }

  static std::string id_of(std::size_t number) {
    std::uint64_t mixed = rag::detail::random_source(number).next();
    std::string id = "d";
    for (int i = 0; i < 10; ++i, mixed /= 26) id += static_cast<char>('a' + mixed % 26);
    return id + std::to_string(number);
  }
  std::vector<std::string> groups_of(std::size_t number) const {
    const std::size_t list = number % form_.classes;
    return {"list " + std::to_string(list), list % 2 == 0 ? "even" : "odd"};
  }

  rag::chunked_document make(std::size_t number) {
    rag::document page{.id = id_of(number), .title = write_.line(4)};
    page.allowed_groups = groups_of(number);
    for (std::size_t i = 0; i < chunks_per_document; ++i) {
      page.text += "## " + write_.line(3) + "\n\n" + write_.line(100) + "\n\n";
    }
    std::vector<rag::chunk> chunks = rag::chunk_structure(page);
    for (rag::chunk& piece : chunks) {
      if (form_.dimension == 0) break;
      piece.vector.emplace();
      for (std::size_t i = 0; i < form_.dimension; ++i) {
        piece.vector->values.push_back(write_.coordinate());
      }
    }
    return {std::move(page), std::move(chunks)};
  }

  rag::query question(std::size_t words = 4) {
    rag::query asked{.text = write_.line(words), .limit = 10};
    if (form_.dimension != 0) {
      asked.vector.emplace();
      for (std::size_t i = 0; i < form_.dimension; ++i) {
        asked.vector->values.push_back(write_.coordinate());
      }
    }
    return asked;
  }

  /// Replaces a document by new text, or adds one. Returns the seconds of the upsert alone.
  double upsert(std::size_t number) {
    rag::chunked_document made = make(number);
    const double start = now();
    retriever_.upsert(std::move(made.source), std::move(made.chunks));
    const double took = now() - start;
    documents_ = (std::max)(documents_, number + 1);
    return took;
  }

  rag::scope reader() const { return retriever_.scope_for({.user = "reader"}); }
  /// A reader of the same chunks with a group of his own, so that nothing is known of his rights.
  rag::scope stranger() {
    const std::string name = "stranger " + std::to_string(++strangers_);
    people_.set_groups({.user = name}, {form_.classes == 1 ? "list 0" : "even", name});
    return retriever_.scope_for({.user = name});
  }

  rag::retriever& retriever() { return retriever_; }
  writer& write() { return write_; }
  std::size_t documents() const { return documents_; }
  const shape& form() const { return form_; }

 private:
  shape form_;
  writer write_;
  rag::access_directory people_;
  rag::retriever retriever_{{.permissions = &people_, .statistics = form_.statistics}};
  std::size_t documents_ = 0;
  std::size_t strangers_ = 0;
};

/// The collection of a shape; made at its first use and kept for all repetitions.
collection& shared(const shape& form, const std::string& use) {
  static std::map<std::pair<decltype(form.key()), std::string>, std::unique_ptr<collection>> made;
  std::unique_ptr<collection>& place = made[{form.key(), use}];
  if (!place) place = std::make_unique<collection>(form);
  return *place;
}

/// Times `count` calls of step(), which returns seconds, and reports the longest.
template <class Step>
void time_steps(benchmark::State& state, const Step& step) {
  double worst = 0;
  for (auto _ : state) {
    const double took = step();
    worst = (std::max)(worst, took);
    state.SetIterationTime(took);
  }
  state.counters["worst"] = worst;
}

double time_search(collection& data, const rag::query& asked, const rag::scope& reader) {
  const double start = now();
  const rag::answer found = data.retriever().search(asked, reader);
  const double took = now() - start;
  benchmark::DoNotOptimize(found.passages.size());
  return took;
}

/// The questions that a collection is asked again and again, all of them known to its reader.
const std::vector<rag::query>& known_questions(collection& data) {
  static std::map<collection*, std::vector<rag::query>> all;
  std::vector<rag::query>& known = all[&data];
  while (known.size() < 200) {
    known.push_back(data.question());
    time_search(data, known.back(), data.reader());
  }
  return known;
}

// ---- updates ------------------------------------------------------------------------------------

/// Replaces documents in a random order, each once before any a second time.
void replace(benchmark::State& state, std::size_t chunks) {
  collection& data = shared({.chunks = chunks}, "replace");
  static std::map<std::size_t, std::vector<std::size_t>> orders;
  std::vector<std::size_t>& order = orders[chunks];
  time_steps(state, [&] {
    if (order.empty()) {
      for (std::size_t i = 0; i < data.documents(); ++i) {
        order.push_back(i);
        std::swap(order.back(), order[data.write().below(order.size())]);
      }
    }
    const std::size_t number = order.back();
    order.pop_back();
    return data.upsert(number);
  });
}

/// Adds documents until there are twice as many, then starts with a new collection.
void add(benchmark::State& state, std::size_t chunks) {
  static std::map<std::size_t, std::unique_ptr<collection>> growing;
  std::unique_ptr<collection>& data = growing[chunks];
  time_steps(state, [&] {
    if (!data || data->documents() == 2 * chunks / chunks_per_document) {
      data = std::make_unique<collection>(shape{.chunks = chunks});
    }
    return data->upsert(data->documents());
  });
}

/// Erases documents in a random order; each comes back at once with new text, untimed.
void erase(benchmark::State& state, std::size_t chunks) {
  collection& data = shared({.chunks = chunks}, "replace");
  time_steps(state, [&] {
    const std::size_t number = data.write().below(data.documents());
    const std::string id = collection::id_of(number);
    const double start = now();
    data.retriever().erase(id);
    const double took = now() - start;
    data.upsert(number);
    return took;
  });
}

void set_access(benchmark::State& state, std::size_t chunks) {
  collection& data = shared({.chunks = chunks}, "replace");
  time_steps(state, [&] {
    const std::string id = collection::id_of(data.write().below(data.documents()));
    const auto groups = data.groups_of(data.write().below(data.documents()));
    const double start = now();
    data.retriever().set_access(id, groups);
    return now() - start;
  });
}

/// The first search after a change of access.
void search_after_set_access(benchmark::State& state, std::size_t chunks) {
  collection& data = shared({.chunks = chunks}, "replace");
  const rag::scope reader = data.reader();
  time_steps(state, [&] {
    const std::string id = collection::id_of(data.write().below(data.documents()));
    data.retriever().set_access(id, data.groups_of(data.write().below(data.documents())));
    return time_search(data, data.question(), reader);
  });
}

// ---- searches -----------------------------------------------------------------------------------

/// Replaces random documents from the start of its life to the end.
class update_load {
 public:
  explicit update_load(collection& data) : thread_([this, &data] { run(data); }) {}
  ~update_load() {
    stop_ = true;
    thread_.join();
  }
  std::size_t done() const { return done_; }

 private:
  void run(collection& data) {
    writer write(7);
    while (!stop_) {
      data.upsert(write.below(data.documents()));
      ++done_;
    }
  }
  std::atomic<bool> stop_{false};
  std::atomic<std::size_t> done_{0};
  std::thread thread_;
};

enum class beside { nothing, updates, other_updates };

/// One searching thread. `other_updates` go to another collection: what they cost a search is the
/// machine's doing (shared caches and memory), not the retriever's.
void search_beside(benchmark::State& state, std::size_t chunks, beside load) {
  collection& data = shared({.chunks = chunks}, "search");
  collection& other = shared({.chunks = chunks}, "other");
  const rag::scope reader = data.reader();
  const std::vector<rag::query>& asked = known_questions(data);
  std::unique_ptr<update_load> running;
  if (load != beside::nothing) {
    running = std::make_unique<update_load>(load == beside::updates ? data : other);
  }
  std::size_t next = 0;
  const double start = time_of_day();
  time_steps(state, [&] { return time_search(data, asked[next++ % asked.size()], reader); });
  if (running) {
    state.counters["updates"] = static_cast<double>(running->done()) / (time_of_day() - start);
  }
}

void search(benchmark::State& state, const shape& form) {
  collection& data = shared(form, "search");
  const rag::scope reader = data.reader();
  const std::vector<rag::query>& asked = known_questions(data);
  std::size_t next = 0;
  time_steps(state, [&] { return time_search(data, asked[next++ % asked.size()], reader); });
}

/// The same of readers whose rights are new, each of them for one question.
void search_as_stranger(benchmark::State& state, const shape& form) {
  collection& data = shared(form, "search");
  const std::vector<rag::query>& asked = known_questions(data);
  std::size_t next = 0;
  time_steps(state,
             [&] { return time_search(data, asked[next++ % asked.size()], data.stranger()); });
}

/// The same of the known reader just after everything has been merged: no word of a question has
/// been counted yet, and no rights are known.
void search_first(benchmark::State& state, const shape& form) {
  collection& data = shared(form, "first");
  const std::vector<rag::query>& asked = known_questions(data);
  static std::size_t next = 0;
  time_steps(state, [&] {
    data.upsert(0);
    data.retriever().purge();
    return time_search(data, asked[next++ % asked.size()], data.reader());
  });
}

// ---- memory -------------------------------------------------------------------------------------

double heap_bytes() {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
#else
  return 0;
#endif
}

/// Bytes of heap that each part of a segment gives back, per chunk: the parts are freed one by one.
void memory(benchmark::State& state, std::size_t chunks) {
  namespace detail = rag::detail;
  for (auto _ : state) {
    collection maker({.chunks = 0, .dimension = 32});
    const detail::retriever_core core;
    std::vector<detail::prepared_document> news;
    std::vector<std::vector<std::string>> groups;
    double text = 0;
    for (std::size_t i = 0; i < chunks / chunks_per_document; ++i) {
      const rag::chunked_document made = maker.make(i);
      text += static_cast<double>(made.source.text.size());
      news.push_back(detail::prepare_document(core, "", made).value());
      groups.push_back(made.source.allowed_groups);
    }
    detail::segment made =
        detail::build_segment(core.options, std::move(news), std::move(groups), 32).value();
    // Merged, as the bulk of a tenant's data is: a merge also sheds what growing lists have spare.
    made = detail::merge_segments(core.options, std::span(&made, 1), 32).value();

    double before = heap_bytes();
    const double all = before;
    const auto part = [&](const char* name, const auto& free_it) {
      free_it();
      const double after = heap_bytes();
      state.counters[name] = (before - after) / static_cast<double>(chunks);
      before = after;
    };
    auto& records = const_cast<detail::segment_records&>(*made.records);
    part("vectors", [&] { made.vectors.reset(); });
    part("access", [&] { made.access.reset(); });
    part("live", [&] { made.live.reset(); });
    part("postings", [&] { records.terms = rag::term_index(); });
    part("codes", [&] { records.codes = {}; });
    part("families", [&] { records.families = {}; });
    part("ids", [&] {
      records.document_of_id = {};
      records.row_of_id = {};
      records.row_of_input = {};
    });
    part("places", [&] { decltype(records.rows)().swap(records.rows); });
    part("documents", [&] { decltype(records.documents)().swap(records.documents); });
    state.counters["text"] = text / static_cast<double>(chunks);
    state.counters["all"] = (all - before) / static_cast<double>(chunks);
  }
}

// ---- which are run ------------------------------------------------------------------------------

using body = std::function<void(benchmark::State&)>;

benchmark::internal::Benchmark* measure(const std::string& name, const body& run) {
  return benchmark::RegisterBenchmark(name.c_str(), [run](benchmark::State& state) { run(state); })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

void register_all(std::size_t largest) {
  for (std::size_t chunks = 1000; chunks <= largest; chunks *= 10) {
    const std::string size = "/" + std::to_string(chunks);
    // run.sh asks for 100 repetitions: they replace each document of the largest collection once.
    const int cycle = static_cast<int>(largest / chunks_per_document / 100);
    measure("replace" + size, [=](auto& state) { replace(state, chunks); })->Iterations(cycle);
    // A tenth of it doubles a collection that is a tenth of the largest.
    const int tenth = (std::max)(cycle / 10, 1);
    measure("erase" + size, [=](auto& state) { erase(state, chunks); })->Iterations(tenth);
    if (chunks < largest) {
      measure("add" + size, [=](auto& state) { add(state, chunks); })->Iterations(tenth);
    }
    measure("set_access" + size, [=](auto& s) { set_access(s, chunks); })->Iterations(20);
    measure("after_set_access" + size, [=](auto& s) {
      search_after_set_access(s, chunks);
    })->Iterations(20);
    if (chunks > 100000) continue;
    measure("idle" + size, [=](auto& s) {
      search_beside(s, chunks, beside::nothing);
    })->Iterations(200);
    measure("updates" + size, [=](auto& s) {
      search_beside(s, chunks, beside::updates);
    })->Iterations(200);
    measure("others" + size, [=](auto& s) {
      search_beside(s, chunks, beside::other_updates);
    })->Iterations(200);
  }
  for (std::size_t chunks = 1000; chunks <= largest; chunks *= 10) {
    const shape form{.chunks = chunks};
    measure("chunks/" + std::to_string(chunks), [=](auto& s) { search(s, form); })->Iterations(200);
  }
  const std::size_t chunks = (std::min)(largest, std::size_t{100000});
  for (const std::size_t classes : {std::size_t{1}, std::size_t{100}, std::size_t{10000}}) {
    const std::string name = "/" + std::to_string(classes);
    shape form{.chunks = chunks, .classes = classes};
    measure("scope" + name, [=](auto& s) { search(s, form); })->Iterations(200);
    measure("stranger" + name, [=](auto& s) { search_as_stranger(s, form); })->Iterations(200);
    measure("first" + name, [=](auto& s) { search_first(s, form); })->Iterations(5);
    form.statistics = rag::statistics_of::tenant;
    measure("shared" + name, [=](auto& s) { search(s, form); })->Iterations(200);
  }
  // As many segments as the rules of merging allow at one size: seven of each tier.
  const std::vector<std::pair<std::string, std::vector<std::size_t>>> pieces{
      {"1", {chunks}},
      {"8", {chunks / 3, 9500, 9500, 9500, 9500, 9500, 9500, chunks * 2 / 3 - 57000}},
      {"30",
       {33000, 33000, 4100, 4100, 4100, 4100, 4100, 4100, 4100, 600, 600, 600, 600, 600, 600,
        600,   70,    70,   70,   70,   70,   70,   70,   20,   20,  20,  20,  20,  20,  20}}};
  for (const auto& [name, segments] : pieces) {
    const shape form{.chunks = 100000, .segments = segments};
    if (largest < 100000) break;
    measure("segments/" + name, [=](auto& s) { search(s, form); })->Iterations(200);
    shape dense = form;
    dense.dimension = 32;
    measure("dense_segments/" + name, [=](auto& s) { search(s, dense); })->Iterations(200);
  }
  measure("memory/" + std::to_string(chunks), [=](auto& s) { memory(s, chunks); })->Iterations(1);
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t largest = 1000000;
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--largest=")) {
      largest = std::strtoull(argv[i] + 10, nullptr, 10);
    } else {
      rest.push_back(argv[i]);
    }
  }
  int count = static_cast<int>(rest.size());
  register_all(largest);
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
