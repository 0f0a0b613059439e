// Migration: another embedding model takes over in one step, or not at all.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <rag_retrieve.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "fakes.hpp"

namespace migration_tests {

namespace rag = rag_retrieve;
using namespace fakes;

namespace {

/// Another model of the same dimension: its space is that of the letters, turned round, so that
/// vectors of the two never fit together.
struct turned_model {
  letter_model letters;
  std::mutex mutex;     // the letters write down what they are given
  bool locked = false;  // only where several threads embed
  std::size_t fail_after = static_cast<std::size_t>(-1);  // inputs
  std::size_t extra = 0;                                  // further dimensions

  std::vector<float> vector_of(std::string_view text) const {
    std::vector<float> out = letter_model::vector_of(text);
    std::reverse(out.begin(), out.end());
    for (float& value : out) value = -value;
    out.resize(out.size() + extra, 0.5F);
    return out;
  }

  rag::embedder embedder(std::size_t batch_size = 1, std::string tag = "turned") {
    rag::embedder out = letters.embedder(batch_size);
    out.model = std::move(tag);
    out.embed = [this, inner = out.embed](
                    std::span<const std::string_view> texts,
                    rag::text_role role) -> rag::result<std::vector<std::vector<float>>> {
      if (static_cast<std::size_t>(letters.inputs) >= fail_after) {
        return rag::error(rag::errc::embedder_failed, "the model is down");
      }
      std::unique_lock lock(mutex, std::defer_lock);
      if (locked) lock.lock();
      const auto counted = inner(texts, role);
      if (!counted) return counted.failure();
      std::vector<std::vector<float>> vectors;
      for (std::string_view text : texts) vectors.push_back(vector_of(text));
      return vectors;
    };
    return out;
  }
};

rag::retriever_options with_model(letter_model& model) {
  rag::retriever_options out;
  out.embed = model.embedder();
  return out;
}

rag::query dense(std::string text) {
  rag::query out = about(std::move(text));
  out.mode = rag::search_mode::dense;
  return out;
}

template <class Value>
rag::errc code_of(const rag::result<Value>& outcome) {
  REQUIRE_FALSE(outcome.ok());
  return outcome.failure().code();
}

/// The best cosine of a question with the same words as a stored chunk: 1 within one space.
double best(const rag::retriever& store, const rag::scope& reader, const std::string& text) {
  const rag::answer found = store.search(dense(text), reader);
  return found.passages.empty() ? -2.0 : found.passages[0].similarity().value_or(-2.0);
}

}  // namespace

TEST_CASE("migration: index and question embedder change together; text and access stay") {
  letter_model old_model;
  turned_model next;
  setup one(with_model(old_model));
  one.add(page("d", "aab\nbcc\n"));
  one.add(page("e", "cab\nbcc\n"));
  one.store.set_access("e", {"board"});
  CHECK(best(one.store, one.ana(), "aab") == doctest::Approx(1.0));
  const std::uint64_t number = one.store.snapshot().number();

  const rag::migration_report report = one.store.migrate(next.embedder());
  CHECK(report.chunks == 4);
  CHECK(report.embedded == 3);  // distinct inputs
  CHECK(report.reused == 0);
  CHECK(one.store.snapshot().number() == number + 1);

  const int asked_old = old_model.inputs;
  CHECK(best(one.store, one.ana(), "aab") == doctest::Approx(1.0));
  CHECK(old_model.inputs == asked_old);
  CHECK(ids(one.store.search(dense("bcc"), one.ana())) == strings{"d.2", "d.1"});
  CHECK(ids(one.store.search(about("bcc"), one.ana())) == strings{"d.2", "d.1"});

  // Later updates use the new model, and know what it has embedded.
  const auto added = one.store.upsert(page("f", "bcc"), whole(page("f", "bcc")));
  CHECK(added.embedded == 0);
  CHECK(added.reused == 1);
}

TEST_CASE("migration: a vector of the other model is refused at equal dimension") {
  letter_model old_model;
  turned_model next;
  setup one(with_model(old_model));
  one.add(page("d", "aab"));
  rag::query of_old = about("aab");
  of_old.vector = rag::embedding{"letters", {1, 1, 0, 0}};
  rag::query of_next = about("aab");
  of_next.vector = rag::embedding{"turned", {1, 1, 0, 0}};
  CHECK(one.store.try_search(of_old, one.ana()).ok());
  CHECK(code_of(one.store.try_search(of_next, one.ana())) == rag::errc::model_mismatch);
  const rag::snapshot before = one.store.snapshot();
  one.store.migrate(next.embedder());
  CHECK(code_of(one.store.try_search(of_old, one.ana())) == rag::errc::model_mismatch);
  CHECK(one.store.try_search(of_next, one.ana()).ok());
  CHECK(before.try_search(of_old, one.ana()).ok());
  CHECK(code_of(before.try_search(of_next, one.ana())) == rag::errc::model_mismatch);

  const rag::document d = page("late", "aab");
  rag::chunk supplied = whole(d).front();
  supplied.vector = rag::embedding{"letters", {1, 1, 0, 0}};
  CHECK(code_of(one.store.try_upsert(d, {supplied})) == rag::errc::model_mismatch);
}

TEST_CASE("migration: a pinned snapshot keeps its vectors and its model for questions") {
  letter_model old_model;
  turned_model next;
  next.extra = 3;
  setup one(with_model(old_model));
  one.add(page("d", "aab\nbcc\n"));
  const rag::snapshot before = one.store.snapshot();
  one.store.migrate(next.embedder());
  const int asked = old_model.inputs;
  const rag::answer found = before.search(dense("aab"), one.ana());
  CHECK(found.passages.front().similarity().value_or(0) == doctest::Approx(1.0));
  CHECK(old_model.inputs == asked + 1);
  CHECK(best(one.store, one.ana(), "aab") == doctest::Approx(1.0));  // seven numbers now
}

TEST_CASE("migration: all tenants, supplied vectors and lexical-only chunks; parents are none") {
  turned_model next;
  setup one;  // model "m" without an embedder
  one.add({placed("a", "aab", {1, 0}), placed("b", "bcc", {0, 1})});
  const rag::document d = page("d", "abc\ncab\n");
  rag::chunk child = piece(d, "d.1", 0, 3);
  child.parent_id = "d.P";
  one.store.upsert(d, {piece(d, "d.P", 0, 7), child});
  const rag::document other = page("x", "ccc", {"staff"}, 1, "acme");
  one.store.upsert(other, whole(other));
  one.permissions.groups[{"acme", "eva"}] = {"staff"};
  CHECK(one.store.search(about("aab"), one.ana()).mode == rag::search_mode::lexical);

  const auto report = one.store.migrate(next.embedder());
  CHECK(report.chunks == 4);
  strings embedded = next.letters.texts;
  std::sort(embedded.begin(), embedded.end());
  CHECK(embedded == strings{"aab", "abc", "bcc", "ccc"});
  CHECK(best(one.store, one.ana(), "aab") == doctest::Approx(1.0));
  CHECK(best(one.store, one.ana(), "abc") == doctest::Approx(1.0));
  CHECK(best(one.store, one.store.scope_for({"acme", "eva"}), "ccc") == doctest::Approx(1.0));
  CHECK(code_of(one.store.try_search(near_to({1, 0}), one.ana())) == rag::errc::model_mismatch);
}

TEST_CASE("migration: updates and erasures meanwhile are followed, in the old model and the new") {
  letter_model old_model;
  turned_model next;
  setup one(with_model(old_model));
  one.add(page("d", "aab\nbcc\n"));
  one.add(page("e", "abc\nacc\n"));
  one.add(page("f", "ccc\n"));
  next.letters.before = [&](std::size_t inputs) {
    CHECK(best(one.store, one.ana(), "aab") == doctest::Approx(1.0));  // still the old one
    if (inputs == 2) {
      one.add(page("d", "aab\nbbbb\n", {"staff"}, 2));
      CHECK(best(one.store, one.ana(), "bbbb") == doctest::Approx(1.0));
    }
    if (inputs == 3) one.store.erase("e");
    if (inputs == 4) one.store.set_access("f", {"board"});
    if (inputs == 5) one.add(page("g", "caaac\n"));  // in the second round
  };
  const auto report = one.store.migrate(next.embedder());
  next.letters.before = nullptr;
  CHECK(report.chunks == 4);
  CHECK(report.embedded == 7);
  CHECK(next.letters.texts.size() == 7);
  CHECK(best(one.store, one.ana(), "bbbb") == doctest::Approx(1.0));
  CHECK(best(one.store, one.ana(), "caaac") == doctest::Approx(1.0));
  const strings wanted{"d.1", "d.2", "e.1", "f.1", "g.1"};
  CHECK(ids(one.store.fetch(wanted, one.ana())) == strings{"d.1", "d.2", "g.1"});
}

TEST_CASE("migration: a failure changes nothing; a retry reuses what was finished") {
  letter_model old_model;
  turned_model next;
  setup one(with_model(old_model));
  one.add(page("d", "aab\nbcc\n"));
  one.add(page("e", "abc\nacc\n"));
  const std::string before = everything(one.store.search(about("aab"), one.ana()));
  const std::uint64_t number = one.store.snapshot().number();
  next.fail_after = 2;
  CHECK(code_of(one.store.try_migrate(next.embedder())) == rag::errc::embedder_failed);
  CHECK(one.store.snapshot().number() == number);
  CHECK(everything(one.store.search(about("aab"), one.ana())) == before);
  CHECK(next.letters.texts == strings{"aab", "abc"});  // in byte order of the inputs

  // One document is updated and one erased before the second attempt.
  one.add(page("d", "aab\nbbbb\n", {"staff"}, 2));
  one.store.erase("e");
  one.add(page("f", "abc\n"));  // the text of an erased chunk is embedded again
  next.fail_after = 1000;
  const auto report = one.store.migrate(next.embedder());
  CHECK(report.chunks == 3);
  CHECK(report.reused == 1);
  CHECK(report.embedded == 2);
  CHECK(next.letters.texts == strings{"aab", "abc", "abc", "bbbb"});
  CHECK(best(one.store, one.ana(), "bbbb") == doctest::Approx(1.0));
  CHECK(best(one.store, one.ana(), "abc") == doctest::Approx(1.0));

  // Nothing is kept after a success: back to the first model, everything is embedded again.
  const int inputs = old_model.inputs;
  CHECK(one.store.migrate(old_model.embedder()).embedded == 3);
  CHECK(old_model.inputs == inputs + 3);
}

TEST_CASE("migration: finished vectors are of one tag and one dimension") {
  letter_model old_model;
  turned_model next;
  setup one(with_model(old_model));
  one.add(page("d", "aab\nbcc\nccc\n"));
  next.fail_after = 1;
  CHECK_FALSE(one.store.try_migrate(next.embedder()).ok());
  next.fail_after = 1000;
  turned_model another;
  another.fail_after = 2;
  CHECK_FALSE(one.store.try_migrate(another.embedder(1, "another")).ok());
  CHECK(another.letters.texts.size() == 2);

  // A model that changes its length midway: nothing of it is kept.
  turned_model growing;
  growing.letters.before = [&](std::size_t inputs) { growing.extra = inputs; };
  CHECK(code_of(one.store.try_migrate(growing.embedder())) == rag::errc::dimension_mismatch);
  growing.letters.before = nullptr;
  growing.extra = 2;
  const auto report = one.store.migrate(growing.embedder());
  CHECK(report.reused == 0);
  CHECK(report.embedded == 3);
  CHECK(best(one.store, one.ana(), "bcc") == doctest::Approx(1.0));
}

TEST_CASE("migration: a throwing model is an error like others; NaN is named") {
  letter_model old_model;
  setup one(with_model(old_model));
  one.add(page("d", "aab\n"));
  rag::embedder bad;
  bad.model = "bad";
  bad.embed = [](std::span<const std::string_view>,
                 rag::text_role) -> rag::result<std::vector<std::vector<float>>> {
    throw std::runtime_error("no memory on the card");
  };
  CHECK(code_of(one.store.try_migrate(bad)) == rag::errc::embedder_failed);
  bad.embed = [](std::span<const std::string_view>,
                 rag::text_role) -> rag::result<std::vector<std::vector<float>>> {
    return std::vector<std::vector<float>>{{1.0F, std::numeric_limits<float>::quiet_NaN()}};
  };
  const auto outcome = one.store.try_migrate(bad);
  CHECK(code_of(outcome) == rag::errc::not_finite);
  CHECK(outcome.failure().message().find("chunk 'd.1'") != std::string::npos);
  CHECK(best(one.store, one.ana(), "aab") == doctest::Approx(1.0));
}

TEST_CASE("migration: the present tag, no function, no batch, a second one at once are refused") {
  letter_model old_model;
  turned_model next;
  setup one(with_model(old_model));
  one.add(page("d", "aab\n"));
  CHECK(code_of(one.store.try_migrate(old_model.embedder())) == rag::errc::invalid_argument);
  CHECK(code_of(one.store.try_migrate({})) == rag::errc::invalid_argument);
  CHECK(code_of(one.store.try_migrate(next.embedder(0))) == rag::errc::invalid_argument);
  turned_model second;
  next.letters.before = [&](std::size_t) {
    CHECK(code_of(one.store.try_migrate(second.embedder(1, "second"))) ==
          rag::errc::invalid_argument);
  };
  one.store.migrate(next.embedder());
  CHECK(second.letters.inputs == 0);
  CHECK(one.store.try_migrate(second.embedder(1, "second")).ok());  // and free again
}

TEST_CASE("migration: an empty retriever changes its model too") {
  letter_model old_model;
  turned_model next;
  setup one(with_model(old_model));
  CHECK(one.store.migrate(next.embedder()).chunks == 0);
  one.add(page("d", "aab\n"));
  CHECK(best(one.store, one.ana(), "aab") == doctest::Approx(1.0));
  CHECK(next.letters.texts == strings{"aab"});
}

TEST_CASE("migration: an update that was prepared for the old model is prepared again") {
  letter_model old_model;
  turned_model next;
  setup one(with_model(old_model));
  one.add(page("d", "aab\n"));
  bool done = false;
  old_model.before = [&](std::size_t) {
    if (done) return;
    done = true;
    one.store.migrate(next.embedder());
  };
  const auto report = one.store.upsert(page("e", "bcc"), whole(page("e", "bcc")));
  CHECK(report.embedded == 1);
  CHECK(report.chunks == 1);
  CHECK(next.letters.texts == strings{"aab", "bcc"});
  CHECK(best(one.store, one.ana(), "bcc") == doctest::Approx(1.0));
}

TEST_CASE("migration: searches and updates from other threads never see two models mixed") {
  letter_model old_model;
  turned_model there, back;
  there.locked = back.locked = true;
  setup one(with_model(old_model));
  one.add(page("d", "aab\nbcc\nabc\n"));
  const rag::scope ana = one.ana();
  std::atomic<bool> stop{false};
  std::atomic<int> searches{0};
  std::atomic<int> wrong{0};
  std::thread searcher([&] {
    while (!stop) {
      if (best(one.store, ana, "aab") < 0.999) ++wrong;
      ++searches;
    }
  });
  std::thread updater([&] {
    for (std::uint64_t revision = 1; revision <= 40; ++revision) {
      const std::string text(static_cast<std::size_t>(revision), 'b');
      one.add(page("u", text + "\n", {"staff"}, revision));
    }
  });
  for (int round = 0; round < 5; ++round) {
    one.store.migrate(there.embedder(2, "there"));
    one.store.migrate(back.embedder(2, "back"));
  }
  updater.join();
  while (searches < 20) std::this_thread::yield();
  stop = true;
  searcher.join();
  CHECK(wrong == 0);
  CHECK(best(one.store, ana, std::string(40, 'b')) > 0.999);
}

}  // namespace migration_tests
