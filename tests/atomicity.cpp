// Every kind of update at once on several threads, with searches beside them: each answer is of one
// state, and no update is lost to another or to a merge. Data races are for ThreadSanitizer.
//
// RAG_RETRIEVE_PROPERTY_RUNS sets the number of searches of each thread.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <rag_retrieve.hpp>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "made.hpp"
#include "revisions.hpp"
#include "threading.hpp"

namespace atomicity_tests {

namespace rag = rag_retrieve;
using namespace revisions;
using threading::latch;
using threading::threads;

namespace {

/// doctest's checks are made in the main thread: here the others leave the first thing that was
/// wrong, and how many were.
class findings {
 public:
  void add(const std::string& what) {
    if (what.empty()) return;
    const std::lock_guard lock(mutex_);
    if (count_++ == 0) first_ = what;
  }
  std::size_t count() const { return count_; }
  const std::string& first() const { return first_; }

 private:
  std::mutex mutex_;
  std::size_t count_ = 0;
  std::string first_;
};

std::size_t pick(std::mt19937& random, std::size_t below) { return random() % below; }

/// ana is of the staff, bob of the board.
struct shop : setup {
  explicit shop(rag::retriever_options options) : setup(std::move(options)) {
    permissions.groups[{"", "bob"}] = {"board"};
  }
  rag::scope bob() const { return store.scope_for({"", "bob"}); }
};

/// A document that is closed now and then: odd while it is.
using phase = std::atomic<std::uint64_t>;

/// The store of the first test, and what happens to it.
struct busy_shop : shop {
  strings plain{"p0", "p1", "p2", "o0", "o1", "c0", "c1", "f0"};
  std::vector<std::atomic<std::uint64_t>> revision = std::vector<std::atomic<std::uint64_t>>(8);
  std::atomic<std::uint64_t> batch{1};
  phase closed{0}, erased{0};
  std::atomic<std::uint64_t> searches{0}, passages{0}, updates{0}, migrations{0};
  findings wrong;

  busy_shop() : shop(with_model(0)) {
    for (std::size_t i = 0; i < plain.size(); ++i) {
      revision[i] = 1;
      put(store, plain[i], 1);
    }
    for (const char* id : {"b0", "b1", "b2", "a0", "e0"}) put(store, id, 1);
  }

  void replace_one(std::mt19937& random) {
    const std::size_t i = pick(random, plain.size());
    const auto done = try_put(store, plain[i], ++revision[i]);
    if (!done && done.failure().code() != rag::errc::stale_revision) {
      wrong.add(done.failure().message());
    }
  }
  void replace_many() {
    std::vector<rag::chunked_document> documents;
    const std::uint64_t next = ++batch;
    for (const char* id : {"b0", "b1", "b2"}) documents.push_back(revised(id, next));
    const auto done = store.try_upsert(documents);
    if (!done && done.failure().code() != rag::errc::stale_revision) {
      wrong.add(done.failure().message());
    }
  }
  void close_and_open() {
    store.set_access("a0", {"nobody"});
    ++closed;
    std::this_thread::yield();
    ++closed;
    store.set_access("a0", {"staff", "board"});
  }
  void erase_and_add(std::uint64_t next) {
    store.erase("e0");
    ++erased;
    std::this_thread::yield();
    ++erased;
    put(store, "e0", next);
  }

  /// One search, of the present or of a pinned state.
  void search(std::mt19937& random, const rag::scope& reader, const std::string& group) {
    std::string text = "common";
    const std::uint64_t near = revision[pick(random, plain.size())];
    if (random() % 2 == 0) text += " " + word_of(near);
    if (random() % 2 == 0) text += " " + code_of(near);
    rag::query asked = all_of(text);
    const auto modes = {rag::search_mode::automatic, rag::search_mode::lexical,
                        rag::search_mode::dense, rag::search_mode::hybrid};
    asked.mode = *(modes.begin() + pick(random, 4));
    asked.explain = random() % 2 == 0;
    asked.collapse_parents = random() % 4 != 0;
    if (random() % 4 == 0) {
      asked.rerank.window = 1000;
      asked.rerank.score = [this](const rag::rerank_request& request) {
        std::vector<double> scores;
        for (const rag::permitted_passage& passage : request.passages) {
          wrong.add(mixed(passage));
          scores.push_back(static_cast<double>(passage.revision() % 5));
        }
        return scores;
      };
    }
    const std::uint64_t closed_before = closed;
    const std::uint64_t erased_before = erased;
    const rag::snapshot state = store.snapshot();
    const auto found = state.try_search(asked, reader);
    const bool was_closed = closed_before % 2 == 1 && closed == closed_before;
    const bool was_erased = erased_before % 2 == 1 && erased == erased_before;
    ++searches;
    if (!found) return wrong.add(found.failure().message());
    passages += found->passages.size();
    if (!found->notes.empty()) wrong.add(found->notes.front());
    wrong.add(wrong_with(*found, asked, group));
    std::map<std::string, std::uint64_t> seen;
    for (const rag::permitted_passage& passage : found->passages) {
      seen[passage.document_id()] = passage.revision();
    }
    if (was_closed && seen.contains("a0")) wrong.add("a0 is shown while it is closed");
    if (was_erased && seen.contains("e0")) wrong.add("e0 is shown while it is erased");
    for (const char* id : {"p0", "p1", "p2", "f0", "b0", "b1", "b2"}) {
      if (!seen.contains(id)) wrong.add(std::string(id) + " is missing");
    }
    if (seen["b0"] != seen["b1"] || seen["b0"] != seen["b2"]) {
      wrong.add("documents of one update are of two");
    }
    if (random() % 8 == 0) fetch(state, reader, group);
  }

  void fetch(const rag::snapshot& state, const rag::scope& reader, const std::string& group) {
    strings wanted;
    for (const char* id : {"p0", "o0", "o1", "b0", "e0"}) {
      for (const char* line : {".1", ".2", ".3"}) wanted.push_back(std::string(id) + line);
    }
    rag::answer found;
    found.passages = state.fetch(wanted, reader);
    found.mode = rag::search_mode::dense;  // nothing was asked
    wrong.add(wrong_with(found, all_of(), group));
    if (state.count(reader) == 0) wrong.add("nothing is counted");
  }
};

}  // namespace

TEST_CASE("atomicity: searches beside every kind of update see one revision of each document") {
  busy_shop one;
  std::atomic<bool> done{false};
  threads writers;
  const auto repeat = [&](std::function<void(std::mt19937&)> step) {
    writers.start([&done, &one, step, seed = static_cast<std::uint32_t>(one.updates++)] {
      std::mt19937 random(seed);
      while (!done) {
        step(random);
        ++one.updates;
        // A long run wants searches: updates leave them most of the processors.
        std::this_thread::sleep_for(std::chrono::milliseconds(made::property_runs(1) > 1 ? 2 : 0));
      }
    });
  };
  for (int i = 0; i < 2; ++i) repeat([&one](std::mt19937& random) { one.replace_one(random); });
  repeat([&one](std::mt19937&) { one.replace_many(); });
  repeat([&one](std::mt19937&) { one.close_and_open(); });
  repeat([&one, next = std::uint64_t{1}](std::mt19937&) mutable { one.erase_and_add(++next); });
  repeat([&one](std::mt19937&) { one.store.purge(); });
  repeat([&one, number = std::size_t{0}](std::mt19937&) mutable {
    const auto moved = one.store.try_migrate(model(++number));
    if (!moved) one.wrong.add(moved.failure().message());
    ++one.migrations;
  });
  threads readers;
  for (std::uint32_t reader = 0; reader < 3; ++reader) {
    readers.start([&one, reader] {
      std::mt19937 random(100 + reader);
      const bool is_ana = reader != 1;
      const rag::scope scope = is_ana ? one.ana() : one.bob();
      for (std::uint64_t i = 0; i < made::property_runs(1000); ++i) {
        one.search(random, scope, is_ana ? "staff" : "board");
      }
    });
  }
  readers.join();
  done = true;
  writers.join();
  CHECK(one.searches == 3 * made::property_runs(1000));
  CHECK(one.passages >= 10 * one.searches);
  CHECK(one.updates > 100);
  CHECK(one.migrations > 0);
  CHECK(one.wrong.first() == "");
  CHECK(one.wrong.count() == 0);
  MESSAGE(one.searches.load(), " searches, ", one.passages.load(), " passages, ",
          one.updates.load(), " updates, ", one.migrations.load(), " migrations");
}

namespace {

/// What a document should be in the end.
struct record {
  std::uint64_t revision = 0;  // 0: erased
  strings groups = {};
};

/// Some documents that one thread alone changes, and what it has done to them.
class owner {
 public:
  owner(std::uint32_t number, std::size_t documents) : random_(number) {
    for (std::size_t i = 0; i < documents; ++i) {
      const char kind = "pocf"[i % 4];
      ids_.push_back(std::string(1, kind) + std::to_string(number) + "x" + std::to_string(i));
    }
  }

  void step(rag::retriever& store) {
    const std::string& id = ids_[pick(random_, ids_.size())];
    record& known = records_[id];
    switch (known.revision == 0 ? 0 : pick(random_, 6)) {
      case 0:
      case 1:
      case 2:
        known = {++last_, groups_of(id, last_)};
        put(store, id, last_);
        break;
      case 3:
        store.erase(id);
        known.revision = 0;
        break;
      default:
        known.groups = strings{"nobody"};
        if (random_() % 2 == 0) known.groups.push_back("staff");
        if (random_() % 2 == 0) known.groups.push_back("board");
        store.set_access(id, known.groups);
    }
  }

  const std::map<std::string, record>& records() const { return records_; }

 private:
  std::mt19937 random_;
  strings ids_;
  std::map<std::string, record> records_;
  std::uint64_t last_ = 0;
};

/// The same documents in a new index, added at once.
void fill_fresh(rag::retriever& fresh, const std::map<std::string, record>& records) {
  std::vector<rag::chunked_document> documents;
  for (const auto& [id, known] : records) {
    if (known.revision != 0) documents.push_back(revised(id, known.revision));
  }
  fresh.upsert(documents);
  for (const auto& [id, known] : records) {
    if (known.revision == 0) continue;
    fresh.set_access(id, known.groups);
  }
}

/// Checks that a store is as if its documents had just come in.
void check_like_fresh(shop& store, shop& fresh, const std::map<std::string, record>& records) {
  fill_fresh(fresh.store, records);
  rag::query asked = all_of("common line1 " + word_of(7) + " " + code_of(9));
  asked.explain = true;
  CHECK(difference(everything(store.store.search(asked, store.ana())),
                   everything(fresh.store.search(asked, fresh.ana()))) == "");
  CHECK(difference(everything(store.store.search(asked, store.bob())),
                   everything(fresh.store.search(asked, fresh.bob()))) == "");
  CHECK(same_files(store.store, fresh.store));
}

}  // namespace

TEST_CASE("atomicity: what happens to documents while they are merged is not lost") {
  // Two threads change documents of their own while a third merges without a pause, and in every
  // other round a fourth changes the model.
  for (std::uint32_t round = 0; round < 16; ++round) {
    CAPTURE(round);
    rag::retriever_options options = with_model(0);
    if (round % 4 >= 2) options.ivf = rag::ivf_options{.lists = 4};
    options.ivf_from = 20;
    shop one(options);
    std::vector<owner> owners{{2 * round, 30}, {2 * round + 1, 30}};
    std::atomic<int> busy{2};
    findings wrong;
    std::size_t last_model = 0;
    threads all;
    for (owner& each : owners) {
      all.start([&one, &each, &busy] {
        for (int i = 0; i < 300; ++i) each.step(one.store);
        --busy;
      });
    }
    all.start([&] {
      while (busy > 0) one.store.purge();
    });
    if (round % 2 == 1) {
      all.start([&] {
        while (busy > 0) {
          const auto moved = one.store.try_migrate(model(++last_model, 64));
          if (!moved) wrong.add(moved.failure().message());
        }
      });
    }
    all.join();
    CHECK(wrong.first() == "");
    std::map<std::string, record> records = owners[0].records();
    records.insert(owners[1].records().begin(), owners[1].records().end());
    options.embed = model(last_model);
    shop fresh(options);
    check_like_fresh(one, fresh, records);
  }
}

namespace {

/// Erases one document after the other and merges after each, as long as it lives. A large store is
/// so nearly always in the middle of a merge.
class merges {
 public:
  merges(rag::retriever& store, std::map<std::string, record>& records, std::size_t& next)
      : store_(store), records_(records), next_(next), first_(next), left_(next + 100) {
    thread_ = std::thread([this] { run(); });
    begun_.wait();
  }
  merges(const merges&) = delete;
  merges& operator=(const merges&) = delete;
  ~merges() { stop(); }

  void stop() {
    done_ = true;
    if (!thread_.joinable()) return;
    thread_.join();
    for (std::size_t i = first_; i < next_; ++i) records_[name(i)].revision = 0;
  }
  /// Whether something was published in the middle of one. After stop.
  bool met() const { return met_; }
  /// States that it has published, if it gave up none. After stop.
  std::uint64_t published() const { return 2 * (next_ - first_); }

  static std::string name(std::size_t i) { return "x" + std::to_string(i); }

 private:
  void run() {
    while ((!done_ && next_ < left_) || next_ == first_) {
      store_.erase(name(next_++));
      const std::uint64_t before = store_.snapshot().number();
      begun_.open();
      store_.purge();
      met_ = met_ || store_.snapshot().number() > before + 1;
    }
  }

  rag::retriever& store_;
  std::map<std::string, record>& records_;
  std::size_t& next_;
  std::size_t first_, left_;
  latch begun_;
  std::atomic<bool> done_{false};
  bool met_ = false;
  std::thread thread_;
};

/// A store with as many documents of each kind, of which those of kind x are for the merges.
struct large_shop : shop {
  std::map<std::string, record> records;
  std::uint64_t last = 1, published = 0;
  std::size_t merged = 0;

  explicit large_shop(std::size_t documents) : shop(with_model(0)) {
    for (const char kind : {'p', 'o', 'c', 'f', 'x'}) {
      for (std::size_t i = 0; i < documents; ++i) {
        const std::string id = kind + std::to_string(i);
        records[id] = {1, groups_of(id, 1)};
      }
    }
    fill_fresh(store, records);
  }
  void replace(const std::string& id) {
    ++published;
    records[id] = {++last, groups_of(id, last)};
    put(store, id, last);
  }
  void erase(const std::string& id) {
    ++published;
    store.erase(id);
    records[id].revision = 0;
  }
  void set_access(const std::string& id, strings groups) {
    ++published;
    store.set_access(id, groups);
    records[id].groups = std::move(groups);
  }
};

}  // namespace

TEST_CASE("atomicity: each change that falls into a merge is kept, and so is the merge") {
  // Copying has no user code in which a test could stop it; so one merge follows the other, and
  // each change is made until it has fallen into one.
  large_shop one(800);
  using change = std::function<void(const std::string&)>;
  const std::vector<std::pair<std::string, change>> changes{
      {"closed", [&](const std::string& id) { one.set_access("p" + id, {"nobody"}); }},
      {"opened", [&](const std::string& id) { one.set_access("o" + id, {"board", "staff"}); }},
      {"chunks of their own groups",
       [&](const std::string& id) { one.set_access("c" + id, {"staff"}); }},
      {"a family", [&](const std::string& id) { one.set_access("f" + id, {"staff"}); }},
      {"erased", [&](const std::string& id) { one.erase("p" + id); }},
      {"replaced", [&](const std::string& id) { one.replace("c" + id); }},
      {"closed, then erased",
       [&](const std::string& id) {
         one.set_access("f" + id, {"nobody"});
         one.erase("f" + id);
       }},
      {"erased, then added",
       [&](const std::string& id) {
         one.erase("o" + id);
         one.replace("o" + id);
       }},
      {"closed, replaced, closed",
       [&](const std::string& id) {
         one.set_access("p" + id, {"nobody"});
         one.replace("p" + id);
         one.set_access("p" + id, {"board"});
       }},
      {"several",
       [&](const std::string& id) {
         for (const char kind : {'p', 'o', 'c', 'f'}) one.erase(kind + id);
       }},
      {"a whole segment erased",
       [&](const std::string& id) {
         // Three times in the hope that a merge begins between the two, and ends after both.
         for (const int wait : {1, 3, 10}) {
           one.replace("plone" + id);
           std::this_thread::sleep_for(std::chrono::milliseconds(wait));
           one.erase("plone" + id);
         }
       }},
  };
  std::size_t id = 0;
  for (const auto& [name, act] : changes) {
    CAPTURE(name);
    bool met = false;
    for (int attempt = 0; attempt < 60 && !(met && attempt >= 3); ++attempt) {
      const std::uint64_t before = one.store.snapshot().number();
      one.published = 0;
      merges all(one.store, one.records, one.merged);
      act(std::to_string(id++));
      all.stop();
      met = met || all.met();
      CHECK(one.store.snapshot().number() == before + one.published + all.published());
      REQUIRE(one.merged + 100 < 800);
    }
    CHECK(met);
  }
  shop fresh(with_model(0));
  check_like_fresh(one, fresh, one.records);
}

TEST_CASE("atomicity: a merge into which a change of the model falls is made again") {
  large_shop one(400);
  std::size_t number = 0;
  bool met = false;
  for (int attempt = 0; attempt < 10 && !met; ++attempt) {
    const std::uint64_t before = one.store.snapshot().number();
    merges all(one.store, one.records, one.merged);
    one.store.migrate(model(++number, 100));
    all.stop();
    met = all.met();
    CHECK(one.store.snapshot().number() == before + 1 + all.published());
    REQUIRE(one.merged + 100 < 400);
  }
  CHECK(met);
  shop fresh(with_model(number));
  check_like_fresh(one, fresh, one.records);
}

// ---- two writers --------------------------------------------------------------------------------

namespace {

/// Blocks the embedding of one revision until it is let go.
struct blocked_model {
  std::uint64_t blocks = 0;
  latch reached, go_on;

  rag::embedder embedder() {
    rag::embedder out = model(0);
    out.embed = [this, inner = out.embed](std::span<const std::string_view> texts,
                                          rag::text_role role) {
      if (role == rag::text_role::document && revision_in(texts[0]) == blocks) {
        reached.open();
        go_on.wait();
      }
      return inner(texts, role);
    };
    return out;
  }
};

}  // namespace

TEST_CASE("atomicity: of revisions 7 and 8 at once 8 stays, whichever is finished first") {
  for (const std::uint64_t late : {7U, 8U}) {
    CAPTURE(late);
    blocked_model blocked;
    blocked.blocks = late;
    rag::retriever_options options = with_model(0);
    options.embed = blocked.embedder();
    shop one(options);
    put(one.store, "p0", 6);
    put(one.store, "p1", 1);
    rag::errc code{};
    bool refused = false;
    threads writer;
    writer.start([&] {
      const auto done = try_put(one.store, "p0", late);
      refused = !done;
      if (refused) code = done.failure().code();
    });
    blocked.reached.wait();
    const std::uint64_t early = 15 - late;
    const std::uint64_t number = one.store.snapshot().number();
    CHECK(try_put(one.store, "p0", early).ok());
    CHECK(one.store.snapshot().number() == number + 1);
    blocked.go_on.open();
    writer.join();
    CHECK(refused == (late == 7));
    if (refused) CHECK(code == rag::errc::stale_revision);
    const rag::answer found = one.store.search(all_of(), one.ana());
    CHECK(wrong_with(found, all_of(), "staff") == "");
    for (const rag::permitted_passage& passage : found.passages) {
      if (passage.document_id() == "p0") CHECK(passage.revision() == 8);
    }
    CHECK(found.passages.size() == lines_of(8) + lines_of(1));
    shop fresh(with_model(0));
    check_like_fresh(one, fresh,
                     {{"p0", {8, groups_of("p0", 8)}}, {"p1", {1, groups_of("p1", 1)}}});
  }
}

TEST_CASE("atomicity: an update of several documents that comes too late for one changes none") {
  blocked_model blocked;
  blocked.blocks = 7;
  rag::retriever_options options = with_model(0);
  options.embed = blocked.embedder();
  shop one(options);
  bool refused = false;
  threads writer;
  writer.start([&] {
    const std::vector<rag::chunked_document> both{revised("p0", 7), revised("p1", 7, "other"),
                                                  revised("p2", 7)};
    const auto done = one.store.try_upsert(both);
    refused = !done && done.failure().code() == rag::errc::stale_revision;
  });
  blocked.reached.wait();
  put(one.store, "p1", 8, "other");
  const std::uint64_t number = one.store.snapshot().number();
  blocked.go_on.open();
  writer.join();
  CHECK(refused);
  CHECK(one.store.snapshot().number() == number);
  CHECK(one.store.count(one.ana()) == 0);
}

TEST_CASE("atomicity: of two migrations at once one is refused, and then it is its turn") {
  shop one(with_model(0));
  for (const char* id : {"p0", "p1", "f0"}) put(one.store, id, 2);
  latch reached, go_on;
  rag::embedder slow = model(1);
  slow.embed = [&, inner = slow.embed](std::span<const std::string_view> texts,
                                       rag::text_role role) {
    if (role == rag::text_role::document) {
      reached.open();
      go_on.wait();
    }
    return inner(texts, role);
  };
  bool first = false;
  threads migration;
  migration.start([&] { first = one.store.try_migrate(slow).ok(); });
  reached.wait();
  const auto second = one.store.try_migrate(model(2));
  CHECK_FALSE(second.ok());
  CHECK(second.failure().code() == rag::errc::invalid_argument);
  CHECK(second.failure().message().find("another migration") != std::string::npos);
  CHECK(wrong_with(one.store.search(all_of(), one.ana()), all_of(), "staff") == "");
  go_on.open();
  migration.join();
  CHECK(first);
  CHECK(one.store.try_migrate(model(2)).ok());
  CHECK(wrong_with(one.store.search(all_of(), one.ana()), all_of(), "staff") == "");
}

TEST_CASE("atomicity: of many migrations to one tag exactly one succeeds") {
  for (std::size_t round = 0; round < 300; ++round) {
    CAPTURE(round);
    shop one(with_model(0));
    put(one.store, "p0", 1);
    std::atomic<int> succeeded{0};
    std::atomic<int> waiting{3};
    threads all;
    for (int i = 0; i < 3; ++i) {
      all.start([&] {
        --waiting;
        while (waiting > 0) std::this_thread::yield();
        for (int again = 0; again < 3; ++again) {
          if (one.store.try_migrate(model(1)).ok()) ++succeeded;
        }
      });
    }
    all.join();
    REQUIRE(succeeded == 1);
  }
}

// ---- statistics ---------------------------------------------------------------------------------

namespace {

/// What each state held, written down by the one thread that changes the store.
class history {
 public:
  using records = std::map<std::string, record>;

  void write(std::uint64_t from, std::uint64_t to, const records& held) {
    const std::lock_guard lock(mutex_);
    held_.insert_or_assign(from, std::make_shared<const records>(held));
    last_ = to;
  }
  /// Null: it is not written yet.
  std::shared_ptr<const records> of(std::uint64_t number) const {
    const std::lock_guard lock(mutex_);
    if (number > last_) return nullptr;
    return std::prev(held_.upper_bound(number))->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<const records>> held_;  // by the first state
  std::uint64_t last_ = 0;
};

/// Compares an explanation with what the records say, chunk by chunk.
std::string wrong_counts(const rag::answer& found, const std::map<std::string, record>& held,
                         const std::string& group) {
  std::size_t count = 0;
  std::size_t length = 0;
  std::map<std::string, std::size_t> n;
  for (const auto& [id, known] : held) {
    if (known.revision == 0) continue;
    if (std::find(known.groups.begin(), known.groups.end(), group) == known.groups.end()) continue;
    for (std::size_t line = 1; line <= lines_of(known.revision); ++line) {
      if (group == "staff" && is_for_the_board_alone(id, known.revision, line)) continue;
      ++count;
      length += 6;  // common, the id, revN, rev, its number, lineN
      ++n["common"];
      ++n["line" + std::to_string(line)];
      ++n[word_of(known.revision)];
    }
  }
  for (const auto& [id, explained] : found.trace.bm25) {
    if (explained.chunk_count != count) {
      return id + ": N is " + std::to_string(explained.chunk_count) + ", not " +
             std::to_string(count);
    }
    if (explained.average_length != static_cast<double>(length) / static_cast<double>(count)) {
      return id + ": the average length is " + std::to_string(explained.average_length);
    }
    for (const rag::term_explanation& term : explained.terms) {
      if (term.n != n[term.term]) {
        return id + ": n of " + term.term + " is " + std::to_string(term.n) + ", not " +
               std::to_string(n[term.term]);
      }
    }
  }
  return {};
}

rag::query counting(std::mt19937& random, std::uint64_t near) {
  rag::query asked = all_of("common line1 line2 line3 " + word_of(near));
  if (random() % 2 == 0) asked.text += " " + word_of(near + 1);
  asked.mode = rag::search_mode::lexical;
  asked.explain = true;
  return asked;
}

}  // namespace

TEST_CASE("atomicity: an old state and the newest, asked in turn, count each for itself") {
  for (std::uint32_t round = 0; round < 3; ++round) {
    CAPTURE(round);
    std::mt19937 random(round);
    shop one(with_model(0));
    owner writer(round, 20);
    rag::chunked_document used = revised("p9", 1, "zone");
    one.store.upsert(used.source, used.chunks);
    std::vector<std::pair<rag::snapshot, std::map<std::string, record>>> states;
    for (int i = 0; i < 120; ++i) {
      writer.step(one.store);
      if (random() % 40 == 0) one.store.purge();
      if (random() % 4 == 0 && !writer.records().empty()) {
        // An update of two tenants, of which the second is refused when the first was through
        // already: what was written down for it must go again.
        std::vector<rag::chunked_document> both{revised("p1", 1000, "zone")};
        both[0].chunks[0].id = "p9.1";
        for (const auto& [id, known] : writer.records()) {
          if (known.revision != 0) both.push_back(revised(id, 2000));
        }
        CHECK_FALSE(one.store.try_upsert(both).ok());
      }
      states.emplace_back(one.store.snapshot(), writer.records());
      for (int look = 0; look < 4; ++look) {
        const auto& [state, held] =
            look % 2 == 0 ? states.back() : states[pick(random, states.size())];
        const rag::query asked = counting(random, static_cast<std::uint64_t>(i));
        CHECK(wrong_counts(state.search(asked, one.ana()), held, "staff") == "");
        CHECK(wrong_counts(state.search(asked, one.bob()), held, "board") == "");
      }
    }
  }
}

TEST_CASE("atomicity: readers of old states and of the newest count beside updates") {
  shop one(with_model(0));
  owner writer(77, 20);
  history held;
  held.write(0, 0, {});
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> compared{0};
  findings wrong;
  threads writers;
  writers.start([&] {
    std::uint64_t before = one.store.snapshot().number();
    for (std::uint64_t step = 0; !done; ++step) {
      writer.step(one.store);
      if (step % 50 == 0) one.store.purge();
      const std::uint64_t after = one.store.snapshot().number();
      held.write(before + 1, after, writer.records());
      before = after;
    }
  });
  threads readers;
  for (std::uint32_t reader = 0; reader < 2; ++reader) {
    readers.start([&, reader] {
      std::mt19937 random(reader);
      const rag::scope scope = reader == 0 ? one.ana() : one.bob();
      const std::string group = reader == 0 ? "staff" : "board";
      rag::snapshot old = one.store.snapshot();
      for (std::uint64_t i = 0; i < made::property_runs(1000); ++i) {
        const rag::snapshot newest = one.store.snapshot();
        for (const bool is_newest : {true, false}) {
          const rag::snapshot* const state = is_newest ? &newest : &old;
          const auto found = state->search(counting(random, state->number() / 2), scope);
          std::shared_ptr<const std::map<std::string, record>> records;
          while (!(records = held.of(state->number()))) std::this_thread::yield();
          wrong.add(wrong_counts(found, *records, group));
          compared += found.trace.bm25.size();
        }
        if (random() % 10 == 0) old = newest;
      }
    });
  }
  readers.join();
  done = true;
  writers.join();
  CHECK(compared > made::property_runs(1000));
  CHECK(wrong.first() == "");
  CHECK(wrong.count() == 0);
}

}  // namespace atomicity_tests
