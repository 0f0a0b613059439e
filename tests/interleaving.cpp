// Step by step, in one thread: at each point where the retriever calls its user, another operation
// is run from inside. User code runs under no lock, so all of them are allowed there, and each
// outcome is exactly that of one operation after the other.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <rag_retrieve.hpp>
#include <span>
#include <sstream>
#include <stdexcept>
#include <streambuf>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "revisions.hpp"

namespace interleaving_tests {

namespace rag = rag_retrieve;
using namespace revisions;

namespace {

/// Where user code is called.
enum class spot {
  embed_document,
  embed_question,
  codes,
  stem,
  stop_word,
  groups,
  judges,
  verdicts,
  rerank,
  executor,
  sufficient,
  told,
  written,  // of a stream that takes a file
  read,
  freed,  // a model that nobody needs any more
};
constexpr std::array all_spots{
    spot::embed_document, spot::embed_question, spot::codes,    spot::stem,   spot::stop_word,
    spot::groups,         spot::judges,         spot::verdicts, spot::rerank, spot::executor,
    spot::sufficient,     spot::told,           spot::written,  spot::read,   spot::freed};
constexpr std::array<const char*, all_spots.size()> names{
    "embed_document", "embed_question", "codes",    "stem",   "stop_word",
    "groups",         "judges",         "verdicts", "rerank", "executor",
    "sufficient",     "told",           "written",  "read",   "freed"};
std::string name_of(spot where) { return names[static_cast<std::size_t>(where)]; }

/// Runs an action at one call of one spot. What the action itself calls is not counted.
class steps {
 public:
  void reach(spot where) {
    if (inside_) return;
    const int call = calls_[static_cast<std::size_t>(where)]++;
    if (!act_ || where != where_ || call != call_) return;
    inside_ = true;
    act_();
    inside_ = false;
    ran_ = true;
  }
  void at(spot where, int call, std::function<void()> act) {
    where_ = where;
    call_ = call;
    act_ = std::move(act);
    for (auto& each : calls_) each = 0;
    ran_ = false;
  }
  void clear() { at(spot::told, -1, {}); }
  bool ran() const { return ran_; }
  int calls(spot where) const { return calls_[static_cast<std::size_t>(where)]; }

 private:
  std::array<std::atomic<int>, all_spots.size()> calls_{};
  spot where_ = spot::told;
  int call_ = -1;
  std::function<void()> act_;
  std::atomic<bool> inside_{false};
  std::atomic<bool> ran_{false};
};

rag::embedder watched_model(steps& at, std::size_t number) {
  rag::embedder out = model(number, 2);
  // Says when it is freed.
  const std::shared_ptr<void> end(nullptr, [&at](void*) { at.reach(spot::freed); });
  out.embed = [&at, end, inner = out.embed](std::span<const std::string_view> texts,
                                            rag::text_role role) {
    at.reach(role == rag::text_role::document ? spot::embed_document : spot::embed_question);
    return inner(texts, role);
  };
  return out;
}

rag::retriever_options watched(steps& at) {
  rag::retriever_options out;
  out.embed = watched_model(at, 0);
  out.identifiers = {"REV-###"};
  out.find_identifiers = [&at](std::string_view) {
    at.reach(spot::codes);
    return strings{};
  };
  out.analysis.stem = [&at](std::string_view word) {
    at.reach(spot::stem);
    return std::string(word);
  };
  out.analysis.is_stop_word = [&at](std::string_view) {
    at.reach(spot::stop_word);
    return false;
  };
  out.on_search = [&at](const rag::operator_trace&) { at.reach(spot::told); };
  return out;
}

class watched_people final : public rag::permission_source {
 public:
  explicit watched_people(steps& at) : at_(at) {}
  bool asks_for_verdicts = false;

  rag::result<strings> groups_of(const rag::principal& who) const override {
    at_.reach(spot::groups);
    return strings{who.user == "ana" ? "staff" : "board"};
  }
  bool judges_chunks() const override {
    at_.reach(spot::judges);
    return asks_for_verdicts;
  }
  rag::result<std::vector<rag::verdict>> may_read(
      const rag::principal&, std::span<const rag::chunk_key> chunks) const override {
    at_.reach(spot::verdicts);
    return std::vector<rag::verdict>(chunks.size(), rag::verdict::allow);
  }

 private:
  steps& at_;
};

/// A small store of several segments and two tenants.
struct world {
  steps at;
  watched_people people{at};
  rag::retriever store;

  world() : store(make()) {
    for (const char* id : {"p1", "o2", "c3", "f4", "p5"}) put(store, id, 2);
    put(store, "p1", 2, "zone");
    store.set_access("p5", {"board"});
  }

  rag::scope ana() const { return store.scope_for({"", "ana"}); }
  rag::scope bob() const { return store.scope_for({"", "bob"}); }

 private:
  rag::retriever make() {
    rag::retriever_options options = watched(at);
    options.permissions = &people;
    return rag::retriever(std::move(options));
  }
};

rag::query watched_query(steps& at) {
  rag::query asked = all_of("common " + word_of(2) + " " + code_of(3));
  asked.explain = true;
  asked.neighbours = 1;
  asked.rerank.window = 1000;
  asked.rerank.score = [&at](const rag::rerank_request& request) {
    at.reach(spot::rerank);
    std::vector<double> scores;
    for (const rag::permitted_passage& passage : request.passages) {
      scores.push_back(static_cast<double>(passage.text().size() % 7));
    }
    return scores;
  };
  asked.rerank.run_on = [&at](std::function<void()> task) {
    at.reach(spot::executor);
    task();
  };
  asked.sufficient = [&at](const rag::evidence&) {
    at.reach(spot::sufficient);
    return true;
  };
  return asked;
}

/// An operation that another one may meet: what it returns is written down.
struct operation {
  std::string name;
  std::function<std::string(world&)> run;
};

std::string told(const rag::result<rag::update_report>& done) {
  if (!done) return "error " + std::to_string(static_cast<int>(done.failure().code()));
  return std::to_string(done->documents) + " documents, " + std::to_string(done->unchanged) +
         " unchanged, " + std::to_string(done->chunks) + " chunks";
}
std::string told(const rag::result<rag::migration_report>& done) {
  if (!done) return "error " + std::to_string(static_cast<int>(done.failure().code()));
  return std::to_string(done->chunks) + " chunks";
}
std::string told(const rag::result<void>& done) {
  return done ? "done" : "error " + std::to_string(static_cast<int>(done.failure().code()));
}

std::string put_all(world& in, const std::vector<rag::chunked_document>& documents) {
  return told(in.store.try_upsert(documents));
}

std::vector<operation> updates() {
  return {
      {"nothing", [](world&) { return std::string(); }},
      {"replace p1", [](world& in) { return told(try_put(in.store, "p1", 3)); }},
      {"replace p1 with 9", [](world& in) { return told(try_put(in.store, "p1", 9)); }},
      {"replace o2, now the board's", [](world& in) { return told(try_put(in.store, "o2", 3)); }},
      {"replace c3, other lines closed",
       [](world& in) { return told(try_put(in.store, "c3", 5)); }},
      {"replace f4", [](world& in) { return told(try_put(in.store, "f4", 3)); }},
      {"add n1", [](world& in) { return told(try_put(in.store, "n1", 4)); }},
      {"add n1, one line less",
       [](world& in) {
         const auto other = revised("n1", 4, {}, true);
         return told(in.store.try_upsert(other.source, other.chunks));
       }},
      {"add nine, which are merged",
       [](world& in) {
         std::string all;
         for (int i = 0; i < 9; ++i) {
           all += told(try_put(in.store, "m" + std::to_string(i), 2));
         }
         return all;
       }},
      {"several in two tenants",
       [](world& in) {
         return put_all(in, {revised("p1", 5), revised("n1", 5), revised("p1", 5, "zone")});
       }},
      {"several, one of them stale",
       [](world& in) { return put_all(in, {revised("n1", 5), revised("p1", 1, "zone")}); }},
      {"erase p1", [](world& in) { return told(in.store.try_erase("p1")); }},
      {"erase c3 and add it again",
       [](world& in) { return told(in.store.try_erase("c3")) + told(try_put(in.store, "c3", 2)); }},
      {"erase all",
       [](world& in) {
         std::string all;
         for (const char* id : {"p1", "o2", "c3", "f4", "p5"}) all += told(in.store.try_erase(id));
         return all;
       }},
      {"close f4", [](world& in) { return told(in.store.try_set_access("f4", {"board"})); }},
      {"close c3 but to the staff",
       [](world& in) { return told(in.store.try_set_access("c3", {"staff"})); }},
      {"open p5", [](world& in) { return told(in.store.try_set_access("p5", {"staff"})); }},
      {"close p1 and open it",
       [](world& in) {
         return told(in.store.try_set_access("p1", {"nobody"})) +
                told(in.store.try_set_access("p1", {"staff", "board"}));
       }},
      {"purge",
       [](world& in) {
         in.store.purge();
         return std::string();
       }},
      {"erase p5, then purge",
       [](world& in) {
         const std::string done = told(in.store.try_erase("p5"));
         in.store.purge();
         return done;
       }},
      {"migrate", [](world& in) { return told(in.store.try_migrate(watched_model(in.at, 1))); }},
      {"migrate, close p1, purge",
       [](world& in) {
         std::string done = told(in.store.try_migrate(watched_model(in.at, 1)));
         done += told(in.store.try_set_access("p1", {"board"}));
         in.store.purge();
         return done;
       }},
  };
}

/// The first calls of a spot, and the last.
std::vector<int> some_of(int calls) {
  std::vector<int> out;
  for (int i = 0; i < calls; ++i) {
    if (i < 3 || i + 2 >= calls || i == calls / 2) out.push_back(i);
  }
  return out;
}

/// What a reader can do.
struct reading {
  std::string name;
  bool by_verdicts;
  std::function<std::string(world&, const rag::snapshot&, const rag::scope&)> run;
};

std::string everything(const std::vector<rag::permitted_passage>& passages) {
  writer out;
  for (const rag::permitted_passage& passage : passages) write(out, passage);
  return out.text();
}

std::vector<reading> readings() {
  const auto search = [](world& in, const rag::snapshot& state, const rag::scope& reader) {
    return fakes::everything(state.try_search(watched_query(in.at), reader));
  };
  const auto plain = [](world& in, const rag::snapshot& state, const rag::scope& reader) {
    rag::query asked = watched_query(in.at);
    asked.rerank = {};
    asked.collapse_parents = false;
    return fakes::everything(state.try_search(asked, reader));
  };
  const auto fetch = [](world&, const rag::snapshot& state, const rag::scope& reader) {
    const strings wanted{"p1.1", "p1.2", "o2.1", "c3.1", "c3.2", "c3.3",
                         "f4.P", "f4.1", "p5.1", "n1.1", "gone"};
    return everything(state.fetch(wanted, reader));
  };
  const auto count = [](world&, const rag::snapshot& state, const rag::scope& reader) {
    return std::to_string(state.count(reader));
  };
  return {{"search", false, search}, {"search, judged", true, search},
          {"plain", false, plain},   {"plain, judged", true, plain},
          {"fetch", false, fetch},   {"fetch, judged", true, fetch},
          {"count", false, count},   {"count, judged", true, count}};
}

}  // namespace

TEST_CASE("interleaving: an update inside a search never mixes states, and the recheck knows it") {
  // The pinned state is asked before and after: an answer is one of the two, whole. It is the
  // second wherever the update came before the last word of the permission source.
  std::size_t cases = 0;
  for (const reading& look : readings()) {
    world counted;
    counted.people.asks_for_verdicts = look.by_verdicts;
    const rag::scope counted_ana = counted.ana();
    counted.at.clear();
    look.run(counted, counted.store.snapshot(), counted_ana);
    for (const spot where : all_spots) {
      for (const int call : some_of(counted.at.calls(where))) {
        for (const operation& update : updates()) {
          world one;
          one.people.asks_for_verdicts = look.by_verdicts;
          const rag::scope reader = one.ana();
          const rag::snapshot pinned = one.store.snapshot();
          const std::string before = look.run(one, pinned, reader);
          one.at.at(where, call, [&] { update.run(one); });
          const std::string found = look.run(one, pinned, reader);
          REQUIRE(one.at.ran());
          one.at.clear();
          const std::string after = look.run(one, pinned, reader);
          const bool is_late = where == spot::sufficient || where == spot::told;
          const bool may_be_late = where == spot::stem || where == spot::codes;
          const bool right =
              is_late ? found == before : found == after || (may_be_late && found == before);
          CAPTURE(look.name);
          CAPTURE(name_of(where));
          CAPTURE(call);
          CAPTURE(update.name);
          CHECK_MESSAGE(right, difference(found, is_late ? before : after));
          ++cases;
        }
      }
    }
  }
  CHECK(cases > 1000);
  MESSAGE(cases, " cases");
}

namespace {

/// What an update is interrupted in.
std::vector<operation> interrupted() {
  return {
      {"replace p1", [](world& in) { return told(try_put(in.store, "p1", 4)); }},
      {"add n1", [](world& in) { return told(try_put(in.store, "n1", 4)); }},
      {"the same c3", [](world& in) { return told(try_put(in.store, "c3", 2)); }},
      {"several",
       [](world& in) {
         return put_all(in, {revised("p1", 4), revised("n1", 4), revised("n2", 1), revised("f4", 6),
                             revised("p1", 4, "zone")});
       }},
      {"the same p1 and c3, a new n3",
       [](world& in) {
         return put_all(in, {revised("p1", 2), revised("c3", 2), revised("n3", 1)});
       }},
      {"migrate", [](world& in) { return told(in.store.try_migrate(watched_model(in.at, 2))); }},
  };
}

}  // namespace

TEST_CASE("interleaving: an update inside an update leaves what the one after the other leaves") {
  // What the outer one publishes comes after the inner one, so that is the order; only an outer one
  // that publishes nothing may as well be the first.
  std::size_t cases = 0;
  for (const operation& outer : interrupted()) {
    const bool migrates = outer.name == "migrate";
    world counted;
    counted.at.clear();
    outer.run(counted);
    for (const spot where : all_spots) {
      for (const int call : some_of(counted.at.calls(where))) {
        for (const operation& inner : updates()) {
          if (migrates && inner.name.rfind("migrate", 0) == 0) continue;
          CAPTURE(outer.name);
          CAPTURE(name_of(where));
          CAPTURE(call);
          CAPTURE(inner.name);
          world one;
          std::string inner_told;
          std::string between;
          std::uint64_t number = 0;
          one.at.at(where, call, [&] {
            inner_told = inner.run(one);
            between = fakes::everything(one.store.search(watched_query(one.at), one.bob()));
            number = one.store.snapshot().number();
          });
          const std::string outer_told = outer.run(one);
          REQUIRE(one.at.ran());
          const bool published = one.store.snapshot().number() != number;
          one.at.clear();

          world serial;
          serial.at.clear();
          const std::string inner_alone = inner.run(serial);
          CHECK(difference(between, fakes::everything(serial.store.search(watched_query(serial.at),
                                                                          serial.bob()))) == "");
          const std::string outer_after = outer.run(serial);
          if (where == spot::freed) continue;  // the outer one is through
          bool right = inner_told == inner_alone && outer_told == outer_after;
          if (right) right = same_files(one.store, serial.store);
          if (!right && !published) {
            world reversed;
            reversed.at.clear();
            right = outer.run(reversed) == outer_told && inner.run(reversed) == inner_told &&
                    same_files(one.store, reversed.store);
          }
          CHECK_MESSAGE(right, inner_told, " | ", inner_alone, " || ", outer_told, " | ",
                        outer_after);
          ++cases;
        }
      }
    }
  }
  CHECK(cases > 500);
  MESSAGE(cases, " cases");
}

namespace {

/// Calls a spot at each byte that passes.
class watched_buffer final : public std::streambuf {
 public:
  watched_buffer(steps& at, std::string bytes) : at_(at), bytes_(std::move(bytes)) {}
  const std::string& bytes() const { return bytes_; }

 protected:
  int_type overflow(int_type c) override {
    at_.reach(spot::written);
    if (c != traits_type::eof()) bytes_ += traits_type::to_char_type(c);
    return traits_type::not_eof(c);
  }
  std::streamsize xsputn(const char* data, std::streamsize count) override {
    at_.reach(spot::written);
    bytes_.append(data, static_cast<std::size_t>(count));
    return count;
  }
  int_type underflow() override {
    at_.reach(spot::read);
    if (next_ == bytes_.size()) return traits_type::eof();
    const std::size_t count = (std::min)(bytes_.size() - next_, std::size_t{100});
    setg(bytes_.data() + next_, bytes_.data() + next_, bytes_.data() + next_ + count);
    next_ += count;
    return traits_type::to_int_type(*gptr());
  }

 private:
  steps& at_;
  std::string bytes_;
  std::size_t next_ = 0;
};

std::string saved_watched(world& in) {
  watched_buffer buffer(in.at, {});
  std::ostream out(&buffer);
  rag::save(in.store, out);
  return buffer.bytes();
}

}  // namespace

TEST_CASE("interleaving: a file is of the state in which its saving began") {
  world counted;
  counted.at.clear();
  saved_watched(counted);
  for (const int call : some_of(counted.at.calls(spot::written))) {
    for (const operation& update : updates()) {
      CAPTURE(call);
      CAPTURE(update.name);
      world one;
      const std::string before = saved(one.store);
      one.at.at(spot::written, call, [&] { update.run(one); });
      CHECK((saved_watched(one) == before));
      CHECK(one.at.ran());
    }
  }
}

TEST_CASE("interleaving: an embedder that fails at any batch changes nothing") {
  enum class failing { none, error, exception, fewer, nan, length };
  for (const bool migrates : {false, true}) {
    for (int batch = 0; batch < 5; ++batch) {
      for (const failing how : {failing::error, failing::exception, failing::fewer, failing::nan,
                                failing::length, failing::none}) {
        CAPTURE(migrates);
        CAPTURE(batch);
        CAPTURE(static_cast<int>(how));
        world one;
        int calls = 0;
        failing now = how;
        rag::embedder broken = model(1, 1);
        broken.embed = [&, inner = broken.embed](
                           std::span<const std::string_view> texts,
                           rag::text_role role) -> rag::result<std::vector<std::vector<float>>> {
          auto vectors = inner(texts, role);
          if (role == rag::text_role::question || calls++ != batch) return vectors;
          switch (now) {
            case failing::error:
              return rag::error(rag::errc::embedder_failed, "down");
            case failing::exception:
              throw std::runtime_error("down");
            case failing::fewer:
              vectors->pop_back();
              break;
            case failing::nan:
              (*vectors)[0][0] = std::nanf("");
              break;
            case failing::length:
              (*vectors)[0].push_back(1);
              break;
            case failing::none:
              break;
          }
          return vectors;
        };
        if (!migrates) {
          now = failing::none;
          one.store.migrate(broken);
          now = how;
          calls = 0;
        }
        const auto run = [&] {
          if (migrates) return one.store.try_migrate(broken).ok();
          const std::vector<rag::chunked_document> several{
              revised("p1", 3), revised("n1", 4), revised("p1", 5, "zone"), revised("f4", 7)};
          return one.store.try_upsert(several).ok();
        };
        const std::string file = saved(one.store);
        const rag::snapshot before = one.store.snapshot();
        const std::string answer =
            fakes::everything(one.store.search(watched_query(one.at), one.bob()));
        CHECK(run() == (how == failing::none));
        if (how == failing::none) continue;
        if (how != failing::length || batch != 0) CHECK(calls == batch + 1);
        CHECK(one.store.snapshot().number() == before.number());
        CHECK((saved(one.store) == file));
        CHECK(difference(fakes::everything(one.store.search(watched_query(one.at), one.bob())),
                         answer) == "");
        now = failing::none;
        CHECK(run());
        CHECK(one.store.snapshot().number() > before.number());
      }
    }
  }
}

TEST_CASE("interleaving: a pinned state stays itself through everything; the recheck takes away") {
  world one;
  const rag::snapshot pinned = one.store.snapshot();
  const rag::scope reader = one.bob();
  const auto look = [&] { return fakes::everything(pinned.search(watched_query(one.at), reader)); };
  const auto shown = [&] {
    strings documents;
    for (const auto& passage : pinned.search(watched_query(one.at), reader).passages) {
      documents.push_back(passage.document_id());
      CHECK(mixed(passage) == "");
      CHECK(passage.revision() == 2);
    }
    std::sort(documents.begin(), documents.end());
    documents.erase(std::unique(documents.begin(), documents.end()), documents.end());
    return documents;
  };
  const std::string before = look();
  CHECK(shown() == strings{"c3", "f4", "p1", "p5"});
  CHECK(pinned.count(reader) == 13);
  const auto everything_moves = [&](std::uint64_t revision, std::size_t model_number) {
    for (const char* id : {"p1", "o2", "f4", "p5"}) put(one.store, id, revision);
    for (int i = 0; i < 9; ++i) put(one.store, "m" + std::to_string(i), revision);
    one.store.purge();
    one.store.migrate(watched_model(one.at, model_number));
    one.store.erase("m0");
    one.store.purge();
  };
  everything_moves(5, 1);  // as many lines as in revision 2
  CHECK(difference(look(), before) == "");
  everything_moves(8, 2);
  CHECK(difference(look(), before) == "");
  one.store.set_access("f4", {"staff"});
  CHECK(shown() == strings{"c3", "p1", "p5"});
  one.store.erase("p1");
  one.store.purge();
  CHECK(shown() == strings{"c3", "p5"});
  CHECK(pinned.fetch(strings{"p1.1", "f4.1", "f4.P", "p5.1"}, reader).size() == 1);
  CHECK(pinned.count(reader) == 6);
  one.store.set_access("f4", {"board"});
  put(one.store, "p1", 9);
  CHECK(difference(look(), before) == "");
}

TEST_CASE("interleaving: a migration goes on through merges, erasures and replacements") {
  // At each input of the new model one step, in all rotations of the order.
  const std::vector<operation> all = updates();
  for (std::size_t first = 0; first < all.size(); ++first) {
    CAPTURE(first);
    world one;
    world serial;
    serial.at.clear();
    std::size_t step = 0;
    rag::embedder next = watched_model(one.at, 2);
    next.batch_size = 1;
    next.embed = [&, inner = next.embed](std::span<const std::string_view> texts,
                                         rag::text_role role) {
      if (role == rag::text_role::document && step < all.size()) {
        const operation& inside = all[(first + step++) % all.size()];
        if (inside.name.rfind("migrate", 0) != 0) {
          CHECK(inside.run(one) == inside.run(serial));
        }
        const rag::answer found = one.store.search(watched_query(one.at), one.bob());
        CHECK(found.notes.empty());
        for (const auto& passage : found.passages) CHECK(mixed(passage) == "");
      }
      return inner(texts, role);
    };
    const auto moved = one.store.migrate(next);
    const auto as_if = serial.store.migrate(watched_model(serial.at, 2));
    CHECK(moved.chunks == as_if.chunks);
    CHECK(step >= 12);
    CHECK(same_files(one.store, serial.store));
    CHECK(difference(fakes::everything(one.store.search(watched_query(one.at), one.bob())),
                     fakes::everything(
                         serial.store.search(watched_query(serial.at), serial.bob()))) == "");
  }
}

// ---- no deadlock --------------------------------------------------------------------------------

namespace {

/// Ends the program if a test hangs, with the name of what it did.
class watchdog {
 public:
  watchdog() : thread_([this] { watch(); }) {}
  watchdog(const watchdog&) = delete;
  watchdog& operator=(const watchdog&) = delete;
  ~watchdog() {
    done_ = true;
    thread_.join();
  }
  void note(std::string what) {
    const std::lock_guard lock(mutex_);
    what_ = std::move(what);
    ++step_;
  }

 private:
  void watch() {
    int quiet = 0;
    for (std::uint64_t seen = 0; !done_ && quiet < 1200; ++quiet) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const std::lock_guard lock(mutex_);
      if (step_ != seen) quiet = 0;
      seen = step_;
    }
    if (done_) return;
    std::cerr << "deadlock: " << what_ << std::endl;
    std::abort();
  }

  std::mutex mutex_;
  std::string what_;
  std::uint64_t step_ = 0;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

/// Every public function that takes a retriever, a snapshot or a permission source.
std::vector<operation> public_functions() {
  std::vector<operation> all = updates();
  all.push_back(
      {"scope_for", [](world& in) { return in.store.scope_for({"", "eva"}).who().user; }});
  all.push_back(
      {"snapshot", [](world& in) { return std::to_string(in.store.snapshot().number()); }});
  all.push_back({"search", [](world& in) {
                   return fakes::everything(in.store.try_search(watched_query(in.at), in.bob()));
                 }});
  all.push_back({"fetch", [](world& in) {
                   return everything(in.store.fetch(strings{"p1.1", "f4.P"}, in.bob()));
                 }});
  all.push_back({"count", [](world& in) { return std::to_string(in.store.count(in.bob())); }});
  all.push_back({"save", [](world& in) { return saved_watched(in); }});
  all.push_back({"load", [](world& in) {
                   watched_buffer buffer(in.at, saved(in.store));
                   std::istream bytes(&buffer);
                   rag::retriever_options options = watched(in.at);
                   if (in.store.try_migrate(watched_model(in.at, 0)).ok()) return std::string();
                   return std::string(rag::try_load(bytes, options).ok() ? "loaded"
                                                                         : "other model");
                 }});
  all.push_back({"rank_candidates", [](world& in) {
                   const auto ranked =
                       rag::rank_candidates(in.store.snapshot(), watched_query(in.at), in.bob());
                   return std::to_string(ranked.ids.size());
                 }});
  all.push_back({"ablate", [](world& in) {
                   rag::judged_question asked;
                   asked.id = "q";
                   asked.text = "common " + word_of(2);
                   asked.required = {"p1.1"};
                   rag::ablation_options options;
                   options.asked = watched_query(in.at);
                   options.bootstrap.rounds = 10;
                   const auto report =
                       rag::try_ablate(in.store, std::span(&asked, 1), in.bob(), options);
                   return std::string(report.ok() ? "ablated" : "refused");
                 }});
  return all;
}

/// Calls user code at every spot.
void call_everything(world& in) {
  const rag::scope reader = in.bob();
  static_cast<void>(in.store.try_search(watched_query(in.at), reader));
  static_cast<void>(try_put(in.store, "p1", 40));
  static_cast<void>(saved_watched(in));
  watched_buffer buffer(in.at, saved(in.store));
  std::istream bytes(&buffer);
  static_cast<void>(rag::try_load(bytes, watched(in.at)));
  static_cast<void>(in.store.try_migrate(watched_model(in.at, 4)));
  static_cast<void>(in.store.try_migrate(watched_model(in.at, 5)));  // frees the one before
}

}  // namespace

TEST_CASE("interleaving: every public function may be called inside every callback") {
  watchdog dog;
  std::size_t cases = 0;
  for (const bool by_verdicts : {false, true}) {
    for (const bool on_another_thread : {false, true}) {
      for (const spot where : all_spots) {
        for (const operation& inner : public_functions()) {
          if ((where == spot::verdicts) != by_verdicts) continue;
          // Models are freed at two ends: the one of a load that failed, and the one before the
          // last.
          for (int call = 0; call < (where == spot::freed ? 2 : 1); ++call) {
            world one;
            one.people.asks_for_verdicts = by_verdicts;
            dog.note(inner.name + " inside " + name_of(where));
            const auto act = [&] { static_cast<void>(inner.run(one)); };
            one.at.at(where, call, [&] {
              if (!on_another_thread) return act();
              std::thread other(act);
              other.join();
            });
            call_everything(one);
            CAPTURE(inner.name);
            CAPTURE(name_of(where));
            CHECK(one.at.ran());
            one.at.clear();
            const rag::answer found = one.store.search(watched_query(one.at), one.bob());
            for (const auto& passage : found.passages) CHECK(mixed(passage) == "");
            ++cases;
          }
        }
      }
    }
  }
  MESSAGE(cases, " cases");
}

TEST_CASE("interleaving: every public function may be called inside itself, several deep") {
  watchdog dog;
  for (const operation& outer : public_functions()) {
    dog.note(outer.name);
    world one;
    int depth = 0;
    // Not through the steps, which are reached once: each call of the finder goes deeper.
    rag::retriever_options options = watched(one.at);
    options.permissions = &one.people;
    std::function<void()> deeper;
    options.find_identifiers = [&](std::string_view) {
      if (deeper && depth < 3) {
        ++depth;
        deeper();
        --depth;
      }
      return strings{};
    };
    one.store = rag::retriever(options);
    for (const char* id : {"p1", "o2", "c3", "f4", "p5"}) put(one.store, id, 2);
    int runs = 0;
    deeper = [&] {
      if (++runs > 30) return;
      static_cast<void>(outer.run(one));
      static_cast<void>(one.store.try_search(all_of(), one.bob()));
    };
    static_cast<void>(try_put(one.store, "p1", 7));
    CHECK(runs > 0);
    deeper = {};
    for (const auto& passage : one.store.search(all_of(), one.bob()).passages) {
      CHECK(mixed(passage) == "");
    }
  }
}

}  // namespace interleaving_tests
