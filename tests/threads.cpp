// Searches beside constant updates. A data race is for ThreadSanitizer to find; what is checked
// here is that each answer is of one state: every document in it is whole and of one revision.
//
// RAG_RETRIEVE_PROPERTY_RUNS sets the number of searches of each thread.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <rag_retrieve.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fakes.hpp"
#include "made.hpp"
#include "threading.hpp"

namespace threads_tests {

namespace rag = rag_retrieve;
using namespace fakes;
using threading::threads;

namespace {

/// Revision r of a document: 1 + r % 3 lines that all name r, its code and its letter.
rag::document revision_of(const std::string& id, std::uint64_t revision) {
  const std::string number = std::to_string(revision);
  std::string text;
  for (std::uint64_t i = 0; i < 1 + revision % 3; ++i) {
    text += "common " + id + " revision " + number + " ";
    text += "REV-" + std::to_string(100 + revision % 900) + " ";
    text += std::string(1 + revision % 5, 'a') + " line " + std::to_string(i) + "\n";
  }
  return page(id, text, {"staff"}, revision);
}

rag::query everything_common() {
  rag::query out = about("common revision");
  out.limit = 1000;
  out.depth = 1000;
  return out;
}

/// Counts what is wrong: doctest's checks are made in the main thread, after all.
struct observer {
  std::atomic<std::uint64_t> searches{0};
  std::atomic<std::uint64_t> passages{0};
  std::atomic<std::uint64_t> mixed{0};
  std::atomic<std::uint64_t> incomplete{0};
  std::atomic<std::uint64_t> wrong_vector{0};
  std::atomic<std::uint64_t> failed{0};

  void look_at(const rag::result<rag::answer>& found) {
    ++searches;
    if (!found) {
      ++failed;
      return;
    }
    std::map<std::string, std::set<std::uint64_t>> revisions;
    std::map<std::string, std::size_t> chunks;
    for (const rag::permitted_passage& passage : found->passages) {
      ++passages;
      revisions[passage.document_id()].insert(passage.revision());
      ++chunks[passage.document_id()];
      const std::string number = " revision " + std::to_string(passage.revision()) + " ";
      if (passage.text().find(number) == std::string::npos) ++mixed;
      if (passage.lexical_rank() == 0 || passage.dense_rank() == 0) ++wrong_vector;
    }
    for (const auto& [id, of] : revisions) {
      if (of.size() != 1) ++mixed;
      if (chunks[id] != 1 + *of.begin() % 3) ++incomplete;
    }
  }
};

rag::retriever_options with_letters() {
  rag::retriever_options out;
  out.identifiers = {"REV-###"};
  out.embed.model = "letters";
  out.embed.batch_size = 2;
  out.embed.embed = [](std::span<const std::string_view> texts, rag::text_role) {
    std::vector<std::vector<float>> vectors;
    for (std::string_view text : texts) vectors.push_back(letter_model::vector_of(text));
    return vectors;
  };
  return out;
}

}  // namespace

TEST_CASE("threads: searches beside constant updates see each document whole, of one revision") {
  setup one(with_letters());
  const strings documents{"d0", "d1", "d2", "d3"};
  for (const std::string& id : documents) {
    const rag::document first = revision_of(id, 1);
    one.store.upsert(first, lines(first));
  }
  observer seen;
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> updates{0};
  threads writers;
  for (std::size_t which : {0U, 1U}) {
    writers.start([&, which] {
      for (std::uint64_t revision = 2; !done; ++revision) {
        for (std::size_t i = which; i < documents.size(); i += 2) {
          const rag::document next = revision_of(documents[i], revision);
          if (one.store.try_upsert(next, lines(next))) ++updates;
        }
      }
    });
  }
  threads readers;
  for (int reader = 0; reader < 2; ++reader) {
    readers.start([&] {
      const rag::scope ana = one.ana();
      for (std::uint64_t i = 0; i < made::property_runs(1000); ++i) {
        seen.look_at(one.store.try_search(everything_common(), ana));
      }
    });
  }
  readers.join();
  done = true;
  writers.join();
  CHECK(updates.load() > 0);
  CHECK(seen.searches.load() == 2 * made::property_runs(1000));
  CHECK(seen.passages.load() >= 4 * seen.searches.load());
  CHECK(seen.failed.load() == 0);
  CHECK(seen.mixed.load() == 0);
  CHECK(seen.incomplete.load() == 0);
  CHECK(seen.wrong_vector.load() == 0);
}

TEST_CASE("threads: a pinned snapshot answers the same while the present changes") {
  setup one(with_letters());
  for (const char* id : {"d0", "d1"}) {
    const rag::document first = revision_of(id, 5);
    one.store.upsert(first, lines(first));
  }
  const rag::snapshot pinned = one.store.snapshot();
  const std::string expected = everything(pinned.search(everything_common(), one.ana()));
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> different{0};
  threads writer;
  writer.start([&] {
    for (std::uint64_t revision = 6; !done; ++revision) {
      const rag::document next = revision_of("d0", revision);
      one.store.upsert(next, lines(next));
    }
  });
  threads readers;
  for (int reader = 0; reader < 2; ++reader) {
    readers.start([&] {
      const rag::scope ana = one.ana();
      for (std::uint64_t i = 0; i < made::property_runs(1000) / 2; ++i) {
        if (everything(pinned.search(everything_common(), ana)) != expected) ++different;
      }
    });
  }
  readers.join();
  done = true;
  writer.join();
  CHECK(different.load() == 0);
}

TEST_CASE("threads: after access is taken away no later answer shows the document") {
  setup one(with_letters());
  const rag::document open = revision_of("open", 1);
  const rag::document guarded = revision_of("guarded", 1);
  one.store.upsert(open, lines(open));
  one.store.upsert(guarded, lines(guarded));
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> leaks{0};
  std::atomic<std::uint64_t> partial{0};
  // Odd while the document is closed: an answer whose whole search lay inside one closed phase
  // may not show it.
  std::atomic<std::uint64_t> phase{0};
  threads writer;
  writer.start([&] {
    while (!done) {
      one.store.set_access("guarded", {"board"});
      ++phase;
      std::this_thread::yield();
      ++phase;
      one.store.set_access("guarded", {"staff"});
    }
  });
  threads readers;
  for (int reader = 0; reader < 2; ++reader) {
    readers.start([&] {
      const rag::scope ana = one.ana();
      for (std::uint64_t i = 0; i < made::property_runs(1000); ++i) {
        const std::uint64_t before = phase;
        const rag::answer found = one.store.search(everything_common(), ana);
        const bool closed = before % 2 == 1 && phase == before;
        std::size_t shown = 0;
        for (const std::string& id : ids(found)) shown += id.rfind("guarded", 0) == 0 ? 1U : 0U;
        if (closed && shown != 0) ++leaks;
        if (shown != 0 && shown != 2) ++partial;
      }
    });
  }
  readers.join();
  done = true;
  writer.join();
  CHECK(leaks.load() == 0);
  CHECK(partial.load() == 0);
}

TEST_CASE("threads: many writers of many documents lose no update") {
  setup one(with_letters());
  threads writers;
  for (std::size_t which = 0; which < 4; ++which) {
    writers.start([&, which] {
      for (std::uint64_t revision = 1; revision <= 30; ++revision) {
        const rag::document mine = revision_of("w" + std::to_string(which), revision);
        one.store.upsert(mine, lines(mine));
        const rag::document shared = revision_of("shared", revision);
        static_cast<void>(one.store.try_upsert(shared, lines(shared)));  // stale for most
      }
    });
  }
  writers.join();
  std::map<std::string, std::uint64_t> last;
  const rag::answer found = one.store.search(everything_common(), one.ana());
  for (const rag::permitted_passage& passage : found.passages) {
    last[passage.document_id()] = passage.revision();
  }
  CHECK(last.size() == 5);
  for (const auto& [id, revision] : last) CHECK(revision == 30);
}

TEST_CASE("threads: reranks on another thread, abandoned or not, race with nothing") {
  setup one(with_letters());
  const rag::document first = revision_of("d0", 5);
  one.store.upsert(first, lines(first));
  std::atomic<std::uint64_t> wrong{0};
  std::mutex mutex;
  std::vector<std::thread> pool;
  threads readers;
  for (int reader = 0; reader < 2; ++reader) {
    readers.start([&] {
      const rag::scope ana = one.ana();
      for (int i = 0; i < 100; ++i) {
        rag::query asked = everything_common();
        asked.rerank.time_limit = std::chrono::milliseconds(i % 3);
        asked.rerank.batch_size = 1;
        asked.rerank.run_on = [&](std::function<void()> task) {
          const std::lock_guard lock(mutex);
          pool.emplace_back(std::move(task));
        };
        asked.rerank.score = [](const rag::rerank_request& request) {
          std::this_thread::sleep_for(std::chrono::microseconds(300));
          return std::vector<double>(request.passages.size(),
                                     static_cast<double>(request.passages[0].text().size()));
        };
        const auto found = one.store.try_search(asked, ana);
        if (!found || found->passages.size() != 3) ++wrong;
      }
    });
  }
  readers.join();
  for (std::thread& each : pool) each.join();
  CHECK(wrong.load() == 0);
}

}  // namespace threads_tests
