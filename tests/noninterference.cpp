// What a reader gets never depends on what he may not read: for random worlds the whole answer, all
// but its times, is bit for bit that of a retriever that holds only his chunks.
//
// RAG_RETRIEVE_PROPERTY_RUNS sets the number of worlds.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <rag_retrieve.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fakes.hpp"

namespace rag = rag_retrieve;
using namespace fakes;

namespace {

std::uint64_t property_runs(std::uint64_t usual) {
  const char* asked = std::getenv("RAG_RETRIEVE_PROPERTY_RUNS");
  const std::uint64_t runs = asked == nullptr ? 0 : std::strtoull(asked, nullptr, 10);
  return runs == 0 ? usual : runs;
}

/// splitmix64: the same numbers on every platform.
class dice {
 public:
  explicit dice(std::uint64_t seed) : state_(seed) {}
  std::size_t below(std::size_t bound) {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return static_cast<std::size_t>((z ^ (z >> 31)) % bound);
  }
  bool chance(std::size_t percent) { return below(100) < percent; }

 private:
  std::uint64_t state_;
};

const strings vocabulary{"key", "rotated", "gateway", "checkout", "a",       "bc",
                         "aab", "PAY-001", "PAY-002", "PAY-003",  "PAY-012", "credential"};

strings some_groups(dice& random) {
  strings out;
  for (const char* group : {"g0", "g1", "g2", "g3"}) {
    if (random.chance(40)) out.emplace_back(group);
  }
  return out;
}

std::string some_words(dice& random, std::size_t most) {
  std::string out;
  for (std::size_t left = random.below(most) + 1; left > 0; --left) {
    out += vocabulary[random.below(vocabulary.size())];
    out += left > 1 ? " " : "";
  }
  return out;
}

std::vector<float> some_vector(dice& random) {
  return {static_cast<float>(random.below(5)) - 2.0F, static_cast<float>(random.below(5)) - 2.0F,
          static_cast<float>(random.below(3)) - 1.0F, 0.0F};
}

/// A document of up to five lines, each a chunk, and sometimes a chunk over two of them.
rag::chunked_document some_document(dice& random, const std::string& tenant, const std::string& id,
                                    std::uint64_t revision, bool supply_vectors) {
  rag::document source = page(id, {}, some_groups(random), revision, tenant);
  if (random.chance(30)) source.title = some_words(random, 2);
  for (std::size_t left = random.below(5) + 1; left > 0; --left) {
    source.text += some_words(random, 6) + "\n";
  }
  std::vector<rag::chunk> chunks = lines(source);
  if (chunks.size() > 1 && random.chance(50)) {
    chunks.push_back(piece(source, id + ".both", chunks[0].range.begin, chunks[1].range.end));
  }
  for (rag::chunk& each : chunks) {
    if (random.chance(20)) each.heading = some_words(random, 2);
    if (random.chance(10)) each.identifiers = {"PAY-004"};
    if (random.chance(30)) {
      each.allowed_groups = source.allowed_groups;
      std::erase_if(*each.allowed_groups, [&](const std::string&) { return random.chance(50); });
    }
    if (supply_vectors && random.chance(85)) {
      each.vector = rag::embedding{"letters", some_vector(random)};
    }
  }
  return {source, chunks};
}

rag::rerank_function by_length() {
  return [](const rag::rerank_request& request) {
    std::vector<double> scores;
    for (const rag::permitted_passage& passage : request.passages) {
      scores.push_back(static_cast<double>(passage.search_text().size() % 5));
    }
    return scores;
  };
}

rag::query some_question(dice& random) {
  rag::query out;
  out.text = random.chance(90) ? some_words(random, 4) : "";
  if (random.chance(60)) out.vector = rag::embedding{"letters", some_vector(random)};
  out.mode = static_cast<rag::search_mode>(random.below(4));
  out.limit = random.below(6) + 1;
  out.offset = random.chance(30) ? random.below(4) : 0;
  out.depth = random.chance(50) ? 100 : random.below(6) + 1;
  out.per_document = random.below(4) + 1;
  if (random.chance(20)) out.overlap_threshold = std::nullopt;
  if (random.chance(30)) out.token_budget = random.below(20) + 1;
  out.fill_budget = random.chance(50);
  if (random.chance(30)) out.fusion.weights = {static_cast<double>(random.below(3)), 1.0};
  out.exact_first = random.chance(80);
  if (random.chance(30)) {
    out.rerank.score = by_length();
    out.rerank.window = random.below(6) + 1;
    out.rerank.batch_size = random.below(3) + 1;
  }
  out.explain = true;
  if (random.chance(20)) out.sufficient = [](const rag::evidence& e) { return e.idf_share > 0.5; };
  return out;
}

/// What should be stored: the documents as last given, and their groups of the moment.
using stock = std::map<std::pair<std::string, std::string>, rag::chunked_document>;

struct world {
  judge people;
  letter_model model;
  bool supply_vectors = false;
  rag::retriever full;
  stock stored;

  explicit world(dice& random) : supply_vectors(random.chance(50)), full(make()) {
    people.judges = false;
    for (const char* tenant : {"", "acme"}) {
      for (const char* user : {"u0", "u1", "u2"}) {
        people.groups[{tenant, user}] = some_groups(random);
      }
    }
    for (std::size_t left = random.below(25) + 3; left > 0; --left) change(random);
  }

  rag::retriever make() {
    rag::retriever_options options;
    // One or the other: a vector is kept for equal texts, so the two have to agree.
    options.embed.model = "letters";
    if (!supply_vectors) options.embed = model.embedder(5);
    options.permissions = &people;
    options.identifiers = {"PAY-###"};
    return rag::retriever(options);
  }

  /// One random update, the same in the retriever and in what should be stored.
  void change(dice& random) {
    const std::string tenant = random.chance(70) ? "" : "acme";
    const std::string id = "d" + std::to_string(random.below(10));
    const auto known = stored.find({tenant, id});
    if (known == stored.end() || random.chance(60)) {
      const std::uint64_t revision = known == stored.end() ? 1 : known->second.source.revision + 1;
      rag::chunked_document next = some_document(random, tenant, id, revision, supply_vectors);
      full.upsert(std::vector<rag::chunked_document>{next});
      stored[{tenant, id}] = std::move(next);
    } else if (random.chance(50)) {
      full.erase(id, tenant);
      stored.erase(known);
    } else {
      known->second.source.allowed_groups = some_groups(random);
      full.set_access(id, known->second.source.allowed_groups, tenant);
    }
  }

  /// A retriever with the reader's chunks alone, but for the denied ones; filled from behind.
  rag::retriever only_for(const rag::scope& reader, const std::set<std::string>& denied) {
    rag::retriever out = make();
    for (auto each = stored.rbegin(); each != stored.rend(); ++each) {
      if (each->first.first != reader.who().tenant) continue;
      rag::chunked_document mine = each->second;
      std::erase_if(mine.chunks, [&](rag::chunk& item) {
        strings groups = mine.source.allowed_groups;
        if (item.allowed_groups) {
          std::erase_if(groups, [&](const std::string& group) {
            const strings& own = *item.allowed_groups;
            return std::find(own.begin(), own.end(), group) == own.end();
          });
          item.allowed_groups = groups;
        }
        return !reader.meets(groups) || denied.contains(item.id);
      });
      if (!mine.chunks.empty()) out.upsert(std::vector<rag::chunked_document>{mine});
    }
    return out;
  }
};

std::string fetched(const rag::retriever& store, const strings& wanted, const rag::scope& reader) {
  writer out;
  for (const rag::permitted_passage& passage : store.fetch(wanted, reader)) write(out, passage);
  out.put(std::uint64_t{store.snapshot().count(reader)});
  return out.text();
}

const strings some_ids{"d0.1", "d1.2", "d2.both", "d3.1", "d4.3", "d5.1", "d9.both", "none"};

}  // namespace

TEST_CASE("non-interference: an answer is that of an index with nothing but the reader's chunks") {
  std::size_t with_passages = 0;
  const std::uint64_t runs = property_runs(300);
  for (std::uint64_t seed = 1; seed <= runs; ++seed) {
    CAPTURE(seed);
    dice random(seed);
    world all(random);
    for (const char* tenant : {"", "acme"}) {
      for (const char* user : {"u0", "u1", "stranger"}) {
        const rag::scope reader = all.full.scope_for({tenant, user});
        const rag::retriever mine = all.only_for(reader, {});
        REQUIRE(fetched(all.full, some_ids, reader) == fetched(mine, some_ids, reader));
        for (int question = 0; question < 4; ++question) {
          const rag::query asked = some_question(random);
          CAPTURE(asked.text);
          const auto there = all.full.try_search(asked, reader);
          const auto here = mine.try_search(asked, reader);
          REQUIRE(difference(everything(there), everything(here)) == "");
          if (there && !there->passages.empty()) ++with_passages;
        }
      }
    }
  }
  CHECK(with_passages > runs);  // the worlds are not trivial
}

TEST_CASE("non-interference: what the recheck denies leaves no gap, whatever its record says") {
  // In dense mode, where no statistics are counted over the records.
  std::size_t denials = 0;
  const std::uint64_t runs = property_runs(300);
  for (std::uint64_t seed = 1; seed <= runs; ++seed) {
    CAPTURE(seed);
    dice random(seed + 1000000);
    world all(random);
    const rag::scope reader = all.full.scope_for({"", "u0"});
    std::set<std::string> denied;
    for (const auto& [key, each] : all.stored) {
      for (const rag::chunk& item : each.chunks) {
        if (key.first.empty() && random.chance(40)) denied.insert(item.id);
      }
    }
    all.people.judges = true;
    all.people.deny({denied.begin(), denied.end()});
    const rag::retriever mine = all.only_for(reader, denied);
    REQUIRE(fetched(all.full, some_ids, reader) == fetched(mine, some_ids, reader));
    for (int question = 0; question < 6; ++question) {
      rag::query asked = some_question(random);
      asked.text.clear();
      asked.mode = rag::search_mode::dense;
      asked.vector = rag::embedding{"letters", some_vector(random)};
      const auto there = all.full.try_search(asked, reader);
      const auto here = mine.try_search(asked, reader);
      REQUIRE(difference(everything(there), everything(here)) == "");
      if (there) denials += there->passages.size();
    }
  }
  CHECK(denials > runs);
}

TEST_CASE("non-interference: what is revoked while the reranker runs leaves no trace either") {
  const std::uint64_t runs = property_runs(300);
  for (std::uint64_t seed = 1; seed <= runs; ++seed) {
    CAPTURE(seed);
    dice random(seed + 2000000);
    world all(random);
    const rag::scope reader = all.full.scope_for({"", "u0"});
    strings denied;
    for (const auto& [key, each] : all.stored) {
      for (const rag::chunk& item : each.chunks) {
        if (key.first.empty() && random.chance(30)) denied.push_back(item.id);
      }
    }
    all.people.judges = true;
    rag::query asked = some_question(random);
    asked.text.clear();
    asked.mode = rag::search_mode::dense;
    asked.vector = rag::embedding{"letters", {1, 1, 1, 0}};
    asked.offset = 0;
    asked.rerank.score = [&](const rag::rerank_request& request) {
      all.people.deny(denied);
      return std::vector<double>(request.passages.size(), 1.0);
    };
    asked.rerank.window = 1000;
    const std::string told = everything(all.full.try_search(asked, reader));
    for (const std::string& id : denied) {
      REQUIRE(told.find(std::to_string(id.size()) + ":" + id + " ") == std::string::npos);
    }
  }
}

TEST_CASE("non-interference: no answer depends on the order in which documents came in") {
  const std::uint64_t runs = property_runs(100);
  for (std::uint64_t seed = 1; seed <= runs; ++seed) {
    CAPTURE(seed);
    dice random(seed + 3000000);
    world all(random);
    const rag::scope reader = all.full.scope_for({"", "u1"});
    rag::retriever shuffled = all.make();
    std::vector<rag::chunked_document> documents;
    for (const auto& [key, each] : all.stored) {
      rag::chunked_document copy = each;
      for (rag::chunk& item : copy.chunks) {  // set_access may have left them wider
        if (!item.allowed_groups) continue;
        std::erase_if(*item.allowed_groups, [&](const std::string& group) {
          const strings& of = copy.source.allowed_groups;
          return std::find(of.begin(), of.end(), group) == of.end();
        });
      }
      documents.push_back(copy);
    }
    for (std::size_t left = documents.size(); left > 0; --left) {
      const auto pick = static_cast<std::ptrdiff_t>(random.below(left));
      const auto place = documents.begin() + pick;
      shuffled.upsert(std::vector<rag::chunked_document>{*place});
      documents.erase(place);
    }
    for (int question = 0; question < 4; ++question) {
      const rag::query asked = some_question(random);
      const auto there = all.full.try_search(asked, reader);
      const auto here = shuffled.try_search(asked, reader);
      REQUIRE(difference(everything(there), everything(here)) == "");
    }
  }
}
