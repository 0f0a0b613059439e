// What a reader gets never depends on what he may not read: for random worlds the whole answer, all
// but its times, is bit for bit that of a retriever that holds only his chunks; and no mark of
// another chunk stands in anything that he, his reranker or the model of his question gets. The
// worlds, and the plain search that rechecks are compared with, are in worlds.hpp.
//
// RAG_RETRIEVE_PROPERTY_RUNS sets the number of worlds; RAG_RETRIEVE_PROPERTY_SEED the first one.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <rag_retrieve.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "worlds.hpp"

namespace noninterference_tests {

namespace rag = rag_retrieve;
using namespace worlds;

namespace {

/// How much was compared, so that no property passes for want of something to compare.
struct tally {
  std::uint64_t worlds = 0, answers = 0, passages = 0, neighbours = 0, parents = 0, refusals = 0;
  history happened;

  void add(const rag::result<rag::answer>& found) {
    ++answers;
    if (!found) {
      ++refusals;
      return;
    }
    passages += found->passages.size();
    neighbours += found->neighbours.size();
    for (const rag::permitted_passage& each : found->passages) {
      parents += each.children().empty() ? 0U : 1U;
    }
  }
  void add(const history& of) {
    ++worlds;
    happened.updates += of.updates;
    happened.merges += of.merges;
    happened.cascades += of.cascades;
    happened.rewritten += of.rewritten;
    happened.refused += of.refused;
    happened.migrations += of.migrations;
  }
  void check() const {
    MESSAGE(worlds << " worlds, " << happened.updates << " updates, " << happened.merges
                   << " merges (" << happened.cascades << " in cascades, " << happened.rewritten
                   << " after an erasure), " << happened.migrations << " migrations, "
                   << happened.refused << " refused updates; " << answers << " answers, "
                   << passages << " passages, " << parents << " parents, " << neighbours
                   << " neighbours, " << refusals << " refused questions");
    CHECK(passages > worlds);
    CHECK(parents * 4 > worlds);
    CHECK(neighbours * 4 > worlds);
    CHECK(happened.merges > worlds);
  }
};

/// Calls f(dice, world, updates, tally) for many worlds; most begin empty and are small, some begin
/// with segments of three tiers.
template <class Function>
void for_each_world(std::uint64_t stream, std::uint64_t usual, const Function& f) {
  tally sum;
  const char* asked = std::getenv("RAG_RETRIEVE_PROPERTY_SEED");
  const std::uint64_t first = asked == nullptr ? 1 : std::strtoull(asked, nullptr, 10);
  const std::uint64_t runs = property_runs(usual);
  for (std::uint64_t seed = first; seed < first + runs; ++seed) {
    CAPTURE(seed);
    dice random(seed + stream * 1000000007);
    const bool large = seed % 100 == 0;
    world all(random, large ? 800 : random.below(2) == 0 ? 6 : 25);
    for (int i = 0; large && i < 14; ++i) all.grow(random);
    f(random, all, random.below(40) + 10, sum);
    sum.add(all.happened);
  }
  sum.check();
}

strings some_ids(dice& random, const world& all, std::size_t percent) {
  strings out{"nothing"};
  for (const auto& [key, each] : all.stored()) {
    for (const rag::chunk& item : each.given->chunks) {
      if (random.chance(percent)) out.push_back(item.id);
    }
  }
  return out;
}

/// What somebody may see who may read these chunks and has asked this.
id_set marks_for(const moment& at, const std::string& tenant, const id_set& ids,
                 const std::string& question) {
  id_set allowed = marks_of(at.stored, tenant, without_closed_parents(at.stored, tenant, ids));
  add_marks(question, allowed);
  return allowed;
}

/// Compares the answers of a world with those of a retriever of the reader's chunks alone.
void compare_with_own_part(dice& random, world& all, tally& sum) {
  const moment here = all.now();
  const rag::scope reader =
      all.store.scope_for({random.chance(70) ? "" : "acme", random.of(users)});
  const std::string& tenant = reader.who().tenant;
  const id_set ids = readable(here.stored, reader);
  const rag::retriever mine = only(here, tenant, ids);
  witness who;
  const strings wanted = some_ids(random, all, 10);
  const std::string by_id = fetched(all.store, wanted, reader);
  REQUIRE(difference(by_id, fetched(mine, wanted, reader)) == "");
  REQUIRE(forbidden_in(by_id, marks_for(here, tenant, ids, "")) == "");
  for (int i = 0; i < 4; ++i) {
    question what = some_question(random, here, who);
    if (random.chance(5)) spoil(random, here, what.asked);
    if (random.chance(30)) what.asked.recheck_rounds = random.below(3);
    CAPTURE(what.asked.text);
    const bool thrown = random.chance(10);
    const std::string there = told(all.store, what.asked, reader, who, *here.model, thrown);
    REQUIRE(difference(there, told(mine, what.asked, reader, who, *here.model, thrown)) == "");
    REQUIRE(forbidden_in(there, marks_for(here, tenant, ids, words_of(what.asked))) == "");
    sum.add(all.store.try_search(what.asked, reader));
  }
}

/// Questions that are compared with nothing: counts and caches of this state come into being.
void ask_in_passing(dice& random, world& all) {
  const moment here = all.now();
  witness who;
  for (std::size_t left = random.below(3); left > 0; --left) {
    const rag::scope reader = all.store.scope_for({random.of(tenants), random.of(users)});
    static_cast<void>(all.store.try_search(some_question(random, here, who).asked, reader));
  }
}

/// Compares the passages of a moment with those of the plain search over what is permitted now.
/// denied, later  by the permission source, before and after the reranker runs; it takes nothing
///                back
void compare_with_plain_search(dice& random, world& all, const moment& at, const rag::scope& reader,
                               const id_set& denied, const id_set& later, tally& sum) {
  const auto denies = [&all](const id_set& ids) { all.people.deny({ids.begin(), ids.end()}); };
  const std::string& tenant = reader.who().tenant;
  const id_set recorded = readable(at.stored, reader);
  const id_set none;
  const id_set permitted = all.allowed_now(at, reader, recorded, all.people.judges ? denied : none);
  const id_set still = all.allowed_now(at, reader, recorded, all.people.judges ? later : none);
  plain_search plain(at, tenant, recorded);
  witness who;
  for (int i = 0; i < 4; ++i) {
    const question what = some_question(random, at, who);
    rag::query asked = what.asked;
    bool reranked = false;
    if (asked.rerank.score) {
      asked.rerank.score = [&, score = asked.rerank.score](const rag::rerank_request& request) {
        reranked = true;
        denies(later);
        return score(request);
      };
    }
    denies(denied);
    who.seen = {};
    at.model->questions.clear();
    CAPTURE(asked.text);
    const auto found = at.view.try_search(asked, reader);
    sum.add(found);
    const id_set allowed = marks_for(at, tenant, permitted, words_of(asked));
    std::string seen = who.seen.text();
    for (const std::string& text : at.model->questions) seen += text;
    REQUIRE(forbidden_in(seen, allowed) == "");
    const id_set& last = reranked ? still : permitted;
    REQUIRE(forbidden_in(everything(found), marks_for(at, tenant, last, words_of(asked))) == "");
    if (!found) continue;
    const auto expected = plain.search(what, permitted, last);
    REQUIRE(difference(ranking(*found, asked.explain), ranking(expected, asked.explain)) == "");
  }
  denies(none);
}

std::string bytes_of(const rag::retriever& store) {
  std::ostringstream out;
  rag::save(store, out);
  return out.str();
}

}  // namespace

TEST_CASE("non-interference: an answer is that of an index with nothing but the reader's chunks") {
  for_each_world(1, 1000, [](dice& random, world& all, std::size_t updates, tally& sum) {
    for (std::size_t i = 0; i < updates; ++i) {
      all.change(random);
      if (random.chance(20)) ask_in_passing(random, all);
      if (random.chance(5)) compare_with_own_part(random, all, sum);
    }
    for (int i = 0; i < 3; ++i) compare_with_own_part(random, all, sum);
  });
}

TEST_CASE("non-interference: after denials, the passages of a search over what is permitted") {
  // With the statistics of what the records allow: until set_access they count what is denied.
  for_each_world(2, 700, [](dice& random, world& all, std::size_t updates, tally& sum) {
    for (std::size_t i = 0; i < updates; ++i) all.change(random);
    all.people.judges = true;
    for (int i = 0; i < 3; ++i) {
      const rag::scope reader =
          all.store.scope_for({random.chance(70) ? "" : "acme", random.of(users)});
      const std::size_t percent = random.below(60);
      const strings denied = some_ids(random, all, percent);
      strings later = random.chance(50) ? some_ids(random, all, percent) : strings{};
      later.insert(later.end(), denied.begin(), denied.end());
      compare_with_plain_search(random, all, all.now(), reader, {denied.begin(), denied.end()},
                                {later.begin(), later.end()}, sum);
    }
  });
}

TEST_CASE("non-interference: an old snapshot shows what the newest records still allow") {
  for_each_world(3, 600, [](dice& random, world& all, std::size_t updates, tally& sum) {
    for (std::size_t i = 0; i < updates; ++i) all.change(random);
    const rag::principal who{random.chance(70) ? "" : "acme", random.of(users)};
    const rag::scope reader = all.store.scope_for(who);
    const moment then = all.now();
    ask_in_passing(random, all);
    for (std::size_t left = random.below(8); left > 0; --left) {
      all.change(random);
      ask_in_passing(random, all);
    }
    if (random.chance(30)) all.people.groups[{who.tenant, who.user}] = {"g1"};
    compare_with_plain_search(random, all, then, reader, {}, {}, sum);
  });
}

TEST_CASE("non-interference: what is denied leaves no gap, parents and neighbours included") {
  // In dense mode, where no statistics are counted over the records: then the whole answer is that
  // of an index without what is denied.
  for_each_world(4, 600, [](dice& random, world& all, std::size_t updates, tally& sum) {
    for (std::size_t i = 0; i < updates; ++i) all.change(random);
    all.people.judges = true;
    const moment here = all.now();
    const rag::scope reader = all.store.scope_for({"", random.of(users)});
    id_set ids = readable(here.stored, reader);
    strings denied;
    for (const std::string& id : ids) {
      if (random.chance(30)) denied.push_back(id);
    }
    for (const std::string& id : denied) ids.erase(id);
    all.people.deny(denied);
    const rag::retriever mine = only(here, "", without_closed_parents(here.stored, "", ids));
    witness who;
    const strings wanted = some_ids(random, all, 10);
    REQUIRE(fetched(all.store, wanted, reader) == fetched(mine, wanted, reader));
    for (int i = 0; i < 6; ++i) {
      const question what = some_question(random, here, who, true);
      const std::string there = told(all.store, what.asked, reader, who, *here.model);
      REQUIRE(difference(there, told(mine, what.asked, reader, who, *here.model)) == "");
      sum.add(all.store.try_search(what.asked, reader));
    }
  });
}

TEST_CASE(
    "updates: after any of them, lists, scores, counts and files are those of a fresh index") {
  for_each_world(5, 600, [](dice& random, world& all, std::size_t updates, tally& sum) {
    for (std::size_t i = 0; i < updates; ++i) {
      all.change(random);
      if (random.chance(10)) ask_in_passing(random, all);
    }
    const moment here = all.now();
    if (here.stored.empty()) return;
    rag::retriever fresh = all_again(here, random);
    witness who;
    for (const std::string& tenant : tenants) {
      for (const std::string& user : users) {
        const rag::scope reader = all.store.scope_for({tenant, user});
        REQUIRE(all.store.count(reader) == fresh.count(reader));
        for (int i = 0; i < 2; ++i) {
          const question what = some_question(random, here, who);
          const std::string there = told(all.store, what.asked, reader, who, *here.model);
          REQUIRE(difference(there, told(fresh, what.asked, reader, who, *here.model)) == "");
          sum.add(all.store.try_search(what.asked, reader));
        }
      }
    }
    if (here.options.embed.dimension == 0) return;      // then what was erased has fixed it
    const auto& [any, as_kept] = *here.stored.begin();  // files hold the state's number
    while (fresh.snapshot().number() != all.store.snapshot().number()) {
      const bool behind = fresh.snapshot().number() < all.store.snapshot().number();
      (behind ? fresh : all.store).set_access(any.second, as_kept.groups, any.first);
    }
    REQUIRE(bytes_of(all.store) == bytes_of(fresh));
  });
}

}  // namespace noninterference_tests
