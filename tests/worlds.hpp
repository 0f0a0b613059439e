// Random worlds: a retriever after a random history, beside a plain list of what it should hold;
// retrievers that hold only a part of that list; and the plainest search over such a part. For the
// tests that compare them.
#ifndef RAG_RETRIEVE_TESTS_WORLDS_HPP
#define RAG_RETRIEVE_TESTS_WORLDS_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <rag_retrieve.hpp>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fakes.hpp"
#include "made.hpp"

namespace worlds {

namespace rag = rag_retrieve;
using namespace fakes;
using made::dice;
using made::property_runs;
using id_set = std::set<std::string, std::less<>>;

// ---- chance -------------------------------------------------------------------------------------

inline strings some_of(dice& random, const strings& all, std::size_t percent) {
  strings out;
  for (const std::string& each : all) {
    if (random.chance(percent)) out.push_back(each);
  }
  return out;
}

// ---- marks --------------------------------------------------------------------------------------

/// What could leak has a mark, a word that stands nowhere else: a kind, 'k', a number, 'x'.
inline std::string mark(char kind, std::size_t number) {
  return std::string(1, kind) + "k" + std::to_string(number) + "x";
}

inline void add_marks(std::string_view text, id_set& into) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::size_t at = 1; at < text.size(); ++at) {
    if (text[at] != 'k') continue;
    std::size_t end = at + 1;
    while (end < text.size() && is_digit(text[end])) ++end;
    if (end == at + 1 || end == text.size() || text[end] != 'x') continue;
    into.emplace(text.substr(at - 1, end - at + 2));
  }
}

// ---- a model ------------------------------------------------------------------------------------

/// Vectors of small whole numbers, so that ties are frequent and some are zero.
class toy_model {
 public:
  explicit toy_model(std::size_t number) : number_(number) {}
  toy_model(const toy_model&) = delete;
  toy_model& operator=(const toy_model&) = delete;

  std::optional<std::size_t> fails_after;  // so many inputs of documents
  std::function<void()> meanwhile;         // once, while documents are being embedded
  strings questions;                       // what it was given of questions

  std::string tag() const { return "m" + std::to_string(number_); }
  std::size_t dimension() const { return 3 + number_ % 2; }
  std::vector<float> vector_of(std::string_view text) const {
    std::vector<std::size_t> sums(dimension(), number_);
    for (char c : text) ++sums[static_cast<unsigned char>(c) % sums.size()];
    std::vector<float> out;
    for (std::size_t sum : sums) out.push_back(static_cast<float>(sum % 3) - 1.0F);
    return out;
  }

  rag::embedder embedder(std::size_t batch_size, bool says_dimension) {
    rag::embedder out;
    out.model = tag();
    out.batch_size = batch_size;
    if (says_dimension) out.dimension = dimension();
    out.embed = [this](std::span<const std::string_view> batch, rag::text_role role) {
      if (role == rag::text_role::document && meanwhile) std::exchange(meanwhile, nullptr)();
      std::vector<std::vector<float>> vectors;
      for (std::string_view text : batch) {
        if (role == rag::text_role::question) questions.emplace_back(text);
        if (role == rag::text_role::document && fails_after && (*fails_after)-- == 0) {
          fails_after.reset();
          throw std::runtime_error("the model is out of order");
        }
        vectors.push_back(vector_of(text));
      }
      return vectors;
    };
    return out;
  }

 private:
  std::size_t number_;
};

// ---- what is stored -----------------------------------------------------------------------------

/// A document as it was last given, and its groups of the moment.
struct kept {
  std::shared_ptr<const rag::chunked_document> given;
  strings groups;
};
using stock = std::map<std::pair<std::string, std::string>, kept>;  // by tenant and id

inline strings common(strings groups, const std::optional<strings>& own) {
  if (!own) return groups;
  std::erase_if(groups, [&](const std::string& group) {
    return std::find(own->begin(), own->end(), group) == own->end();
  });
  return groups;
}

/// The groups that may read a chunk: a parent's children count as well.
inline strings groups_of(const kept& of, const rag::chunk& item) {
  strings groups = common(of.groups, item.allowed_groups);
  for (const rag::chunk& child : of.given->chunks) {
    if (child.parent_id == item.id) groups = common(std::move(groups), child.allowed_groups);
  }
  return groups;
}

/// The chunk ids that a scope may read by the records.
inline id_set readable(const stock& stored, const rag::scope& reader) {
  id_set out;
  for (const auto& [key, each] : stored) {
    if (key.first != reader.who().tenant) continue;
    for (const rag::chunk& item : each.given->chunks) {
      if (reader.meets(groups_of(each, item))) out.insert(item.id);
    }
  }
  return out;
}

/// The same without each parent of which not all children are there: it is open to nobody who may
/// not read them all.
inline id_set without_closed_parents(const stock& stored, const std::string& tenant, id_set ids) {
  id_set closed;
  for (const auto& [key, each] : stored) {
    if (key.first != tenant) continue;
    for (const rag::chunk& item : each.given->chunks) {
      if (!ids.contains(item.id)) closed.insert(item.parent_id);
    }
  }
  for (const std::string& id : closed) ids.erase(id);
  return ids;
}

/// The marks that somebody who may read these chunks may see.
inline id_set marks_of(const stock& stored, const std::string& tenant, const id_set& ids) {
  id_set out;
  for (const auto& [key, each] : stored) {
    if (key.first != tenant) continue;
    const rag::document& source = each.given->source;
    for (const rag::chunk& item : each.given->chunks) {
      if (!ids.contains(item.id)) continue;
      for (std::string_view text : {std::string_view(source.id), std::string_view(source.title),
                                    std::string_view(item.id), std::string_view(item.heading),
                                    std::string_view(item.anchor), chunk_text(source, item)}) {
        add_marks(text, out);
      }
      for (const std::string& text : item.heading_path) add_marks(text, out);
      for (const std::string& text : item.identifiers) add_marks(text, out);
    }
  }
  return out;
}

/// A retriever's state of one moment, and what it should hold.
struct moment {
  rag::snapshot view;
  stock stored;
  rag::retriever_options options;  // with the model of the moment
  toy_model* model;
};

/// A retriever that holds only these chunks of a tenant, filled in one step.
inline rag::retriever only(const moment& of, const std::string& tenant, const id_set& ids) {
  rag::retriever out(of.options);
  std::vector<rag::chunked_document> documents;
  for (const auto& [key, each] : of.stored) {
    if (key.first != tenant) continue;
    rag::chunked_document part = *each.given;
    std::erase_if(part.chunks, [&](const rag::chunk& item) { return !ids.contains(item.id); });
    for (rag::chunk& item : part.chunks) {
      if (!ids.contains(item.parent_id)) item.parent_id.clear();
    }
    if (!part.chunks.empty()) documents.push_back(std::move(part));
  }
  std::reverse(documents.begin(), documents.end());
  out.upsert(documents);
  for (const rag::chunked_document& part : documents) {
    const strings& now = of.stored.at({tenant, part.source.id}).groups;
    if (now != part.source.allowed_groups) out.set_access(part.source.id, now, tenant);
  }
  return out;
}

/// A retriever that holds all that is stored now, given in another order.
inline rag::retriever all_again(const moment& of, dice& random) {
  rag::retriever out(of.options);
  std::vector<rag::chunked_document> documents;
  for (const auto& [key, each] : of.stored) documents.push_back(*each.given);
  for (std::size_t left = documents.size(); left > 1; --left) {
    std::swap(documents[left - 1], documents[random.below(left)]);
  }
  for (std::size_t at = 0; at < documents.size();) {
    const std::size_t count = (std::min)(random.below(40) + 1, documents.size() - at);
    out.upsert(std::span(documents).subspan(at, count));
    at += count;
  }
  for (const auto& [key, each] : of.stored) {
    if (each.groups != each.given->source.allowed_groups) {
      out.set_access(key.second, each.groups, key.first);
    }
  }
  return out;
}

// ---- the world ----------------------------------------------------------------------------------

inline const strings all_groups{"g0", "g1", "g2", "g3"};
inline const strings tenants{"", "acme"};
inline const strings users{"u0", "u1", "everybody", "stranger"};
inline const strings vocabulary{"key", "rotated", "gateway", "checkout", "a",       "bc",
                                "aab", "PAY-001", "PAY-002", "PAY-003",  "PAY-012", "credential"};

inline const strings languages{"de", "en", "fr"};

inline std::string some_words(dice& random, std::size_t most) {
  std::string out;
  for (std::size_t left = random.below(most) + 1; left > 0; --left) {
    out += random.of(vocabulary);
    out += left > 1 ? " " : "";
  }
  return out;
}

inline std::vector<float> some_vector(dice& random, std::size_t dimension) {
  std::vector<float> out;
  while (out.size() < dimension) out.push_back(static_cast<float>(random.below(5)) - 2.0F);
  return out;
}

/// What happened to a world; more than one publication of an update are merges.
struct history {
  std::size_t updates = 0, merges = 0, cascades = 0, rewritten = 0, refused = 0, migrations = 0;
};

class world {
  std::size_t documents_;
  std::size_t marks_ = 0;
  bool says_dimension_ = true, supplies_ = false, wandering_ = true;
  std::vector<std::unique_ptr<toy_model>> models_;  // the last is in use
  rag::retriever_options options_;
  stock stored_;

 public:
  judge people;
  rag::retriever store;
  history happened;

  /// size  of the collection: documents that take turns in being there
  world(dice& random, std::size_t documents) : documents_(documents), store(make(random)) {
    people.judges = random.chance(50);
    for (const std::string& tenant : tenants) {
      for (const char* user : {"u0", "u1"}) {
        people.groups[{tenant, user}] = some_of(random, all_groups, 40);
      }
      people.groups[{tenant, "everybody"}] = all_groups;
    }
  }
  world(const world&) = delete;
  world& operator=(const world&) = delete;

  moment now() const { return {store.snapshot(), stored_, options_, models_.back().get()}; }
  const stock& stored() const { return stored_; }
  toy_model& model() { return *models_.back(); }

  /// Many documents in one step, so that segments of several tiers come into being and merge.
  void grow(dice& random) {
    wandering_ = false;
    upsert(random, random.below(30) + 40);
    wandering_ = true;
  }

  /// One random update, the same in the retriever and in what should be stored.
  void change(dice& random) {
    const std::size_t roll = random.below(100);
    if (roll < 50) return upsert(random, 1);
    if (roll < 60) return upsert(random, random.below(5) + 2);
    if (roll < 64) return upsert_in_vain(random);
    if (roll < 78) return erase(random);
    if (roll < 94) return set_access(random);
    if (roll < 97) return fail_to_embed(random);
    if (roll < 99) return purge();
    migrate(random);
  }

  /// Which of these chunks of a moment the permission source and the newest records allow now.
  id_set allowed_now(const moment& of, const rag::scope& reader, const id_set& ids,
                     const id_set& denied = {}) const {
    const std::string& tenant = reader.who().tenant;
    std::map<std::string, std::pair<const kept*, const rag::chunk*>, std::less<>> newest;
    for (const auto& [key, each] : stored_) {
      if (key.first != tenant) continue;
      for (const rag::chunk& item : each.given->chunks) newest[item.id] = {&each, &item};
    }
    const rag::scope present = store.scope_for(reader.who());
    id_set out;
    for (const auto& [key, each] : of.stored) {
      if (key.first != tenant) continue;
      for (const rag::chunk& item : each.given->chunks) {
        if (!ids.contains(item.id) || denied.contains(item.id)) continue;
        strings groups;
        const auto chunk = newest.find(item.id);
        const auto document = stored_.find(key);
        if (chunk != newest.end() && chunk->second.first->given->source.id == key.second) {
          groups = groups_of(*chunk->second.first, *chunk->second.second);
        } else if (document != stored_.end() && !item.allowed_groups) {
          groups = document->second.groups;
        }
        if (!reader.meets(groups) || (!people.judges && !present.meets(groups))) continue;
        out.insert(item.id);
      }
    }
    return out;
  }

 private:
  rag::retriever make(dice& random) {
    models_.push_back(std::make_unique<toy_model>(0));
    says_dimension_ = random.chance(75);
    supplies_ = random.chance(50);
    options_.embed = models_.back()->embedder(random.below(5) + 1, says_dimension_);
    if (supplies_ && random.chance(50)) options_.embed.embed = nullptr;
    options_.permissions = &people;
    options_.identifiers = {"PAY-###"};
    options_.search_text = {.title = random.chance(20), .ancestors = random.chance(20)};
    if (random.chance(30)) options_.similarity = rag::metric::inner_product;
    if (random.chance(30)) options_.bm25 = {.k1 = 0.9, .b = 0.4};
    if (random.chance(5)) {  // all lists read: exact search
      options_.ivf = rag::ivf_options{.lists = 3, .probes = 1000};
      options_.ivf_from = 10;
    }
    return rag::retriever(options_);
  }

  static std::string id_of_document(std::size_t number) { return mark('d', number); }
  static std::string id_of_chunk(std::size_t document, std::size_t chunk) {
    return mark('c', document * 100 + chunk);
  }
  /// Ids of chunks that wander from document to document.
  static bool wanders(const std::string& id) { return id.starts_with("ck9000"); }
  std::string next_mark(char kind) { return mark(kind, ++marks_); }

  /// A document of some lines, each a chunk, some of them in parents, and sometimes a chunk across.
  rag::chunked_document some_document(dice& random, const std::string& tenant, std::size_t number) {
    rag::chunked_document out;
    rag::document& source = out.source;
    source = page(id_of_document(number), {}, some_of(random, all_groups, 50), 1, tenant);
    const auto old = stored_.find({tenant, source.id});
    if (old != stored_.end()) {
      const std::uint64_t revision = old->second.given->source.revision;
      source.revision = revision == 0 ? 0 : revision + 1 + random.below(2);
    } else if (random.chance(20)) {
      source.revision = 0;
    }
    if (random.chance(30)) source.title = some_words(random, 2) + " " + next_mark('t');
    source.metadata["note"] = next_mark('m');
    if (random.chance(70)) source.metadata["lang"] = random.of(languages);
    if (random.chance(60)) source.metadata["year"] = 2020 + random.below(4);
    if (random.chance(40)) source.metadata["tags"] = some_of(random, vocabulary, 20);
    if (random.chance(2)) source.metadata["year"] = "unknown";  // no question may tell
    const std::size_t lines_count = random.below(6);
    for (std::size_t i = 0; i < lines_count; ++i) {
      source.text += some_words(random, 5) + " " + next_mark('l') + "\n";
    }
    out.chunks = lines(source);
    for (std::size_t i = 0; i < out.chunks.size(); ++i) out.chunks[i].id = id_of_chunk(number, i);
    if (out.chunks.size() > 1 && random.chance(30)) {
      out.chunks.push_back(piece(source, id_of_chunk(number, 50), out.chunks[0].range.begin,
                                 out.chunks[1].range.end));
      if (wandering_ && random.chance(20))
        out.chunks.back().id = "ck9000" + std::to_string(random.below(3)) + "x";
    }
    if (random.chance(5)) out.chunks.push_back(piece(source, id_of_chunk(number, 51), 0, 0));
    for (rag::chunk& each : out.chunks) furnish(random, source, each);
    if (random.chance(50)) add_parents(random, number, lines_count, out);
    return out;
  }

  void furnish(dice& random, const rag::document& source, rag::chunk& each) {
    if (random.chance(15)) each.heading = some_words(random, 2) + " " + next_mark('h');
    if (random.chance(40)) each.heading_path = {"section"};
    if (random.chance(10)) each.heading_path.push_back(next_mark('p'));
    if (random.chance(10)) each.anchor = next_mark('a');
    if (random.chance(10)) each.identifiers = {"PAY-004"};
    if (random.chance(5)) each.identifiers.push_back(next_mark('i'));
    if (random.chance(30)) each.allowed_groups = some_of(random, source.allowed_groups, 50);
    if (supplies_ && random.chance(70)) {
      each.vector = rag::embedding{model().tag(), some_vector(random, model().dimension())};
    }
  }

  void add_parents(dice& random, std::size_t number, std::size_t lines_count,
                   rag::chunked_document& into) {
    std::vector<rag::chunk> parents;
    for (std::size_t at = 0; at < lines_count;) {
      const std::size_t end = at + random.below((std::min)(lines_count - at, std::size_t{3})) + 1;
      if (random.chance(70)) {
        rag::chunk parent = piece(into.source, id_of_chunk(number, 60 + at),
                                  into.chunks[at].range.begin, into.chunks[end - 1].range.end);
        if (random.chance(20)) parent.heading = next_mark('h');
        if (random.chance(20))
          parent.allowed_groups = some_of(random, into.source.allowed_groups, 80);
        for (std::size_t i = at; i < end; ++i) {
          into.chunks[i].parent_id = parent.id;
          if (parent.allowed_groups) {
            parent.allowed_groups = common(*parent.allowed_groups, into.chunks[i].allowed_groups);
          }
        }
        parents.push_back(parent);
      }
      at = end;
    }
    const bool first = random.chance(50);
    into.chunks.insert(first ? into.chunks.begin() : into.chunks.end(), parents.begin(),
                       parents.end());
  }

  struct given_document {
    rag::chunked_document document;
    bool stored_already = false;
  };

  given_document some_upsert(dice& random) {
    const std::string& tenant = random.chance(70) ? tenants[0] : tenants[1];
    const std::size_t number = random.below(documents_);
    const auto old = stored_.find({tenant, id_of_document(number)});
    if (old == stored_.end() || random.chance(75)) {
      return {some_document(random, tenant, number)};
    }
    given_document again{*old->second.given, true};
    if (random.chance(50)) return again;
    strings& groups = again.document.source.allowed_groups;  // as it came, but for more groups
    for (const std::string& group : all_groups) {
      if (std::find(groups.begin(), groups.end(), group) != groups.end()) continue;
      groups.push_back(group);
      again.stored_already = false;
      break;
    }
    return again;
  }

  /// Whether each chunk id would name one chunk of its tenant.
  bool ids_are_free(const std::vector<given_document>& news) const {
    std::set<std::pair<std::string, std::string>> documents;
    std::set<std::pair<std::string, std::string>> wanderers;
    for (const given_document& each : news) {
      const rag::document& source = each.document.source;
      documents.insert({source.tenant, source.id});
      for (const rag::chunk& item : each.document.chunks) {
        if (!wanders(item.id)) continue;
        if (!wanderers.insert({source.tenant, item.id}).second) return false;
      }
    }
    if (wanderers.empty()) return true;
    for (const auto& [key, each] : stored_) {
      if (documents.contains(key)) continue;
      for (const rag::chunk& item : each.given->chunks) {
        if (wanderers.contains({key.first, item.id})) return false;
      }
    }
    return true;
  }

  /// Offers documents and notes what should be stored then.
  /// must_pass  whether only an id that is in use may make it fail
  void offer(const std::vector<given_document>& news, bool must_pass) {
    const std::uint64_t before = store.snapshot().number();
    std::vector<rag::chunked_document> documents;
    std::size_t known = 0;
    for (const given_document& each : news) {
      documents.push_back(each.document);
      known += each.stored_already ? 1U : 0U;
    }
    const auto done = documents.size() == 1
                          ? store.try_upsert(documents[0].source, documents[0].chunks)
                          : store.try_upsert(documents);
    const bool should = ids_are_free(news);
    if (done.ok() != should && (must_pass || done)) {
      throw std::logic_error(done ? "an upsert went through that should not"
                                  : "upsert: " + done.failure().message());
    }
    if (!done) {
      ++happened.refused;
      return check(store.snapshot().number() == before, "a refused upsert changed something");
    }
    if (done->unchanged != known || done->documents != news.size() - known) {
      throw std::logic_error("an upsert of " + std::to_string(news.size()) + " documents, " +
                             std::to_string(known) + " of them known, found " +
                             std::to_string(done->unchanged) + " unchanged");
    }
    count_publications(before, known < news.size() ? 1 : 0);
    for (const given_document& each : news) {
      if (each.stored_already) continue;
      const rag::document& source = each.document.source;
      stored_[{source.tenant, source.id}] = {
          std::make_shared<const rag::chunked_document>(each.document), source.allowed_groups};
    }
  }

  void upsert(dice& random, std::size_t count, bool must_pass = true) {
    std::vector<given_document> news;
    std::set<std::pair<std::string, std::string>> names;
    for (; count > 0; --count) {
      given_document next = some_upsert(random);
      const rag::document& source = next.document.source;
      if (names.insert({source.tenant, source.id}).second) news.push_back(std::move(next));
    }
    offer(news, must_pass);
  }

  /// What is refused changes nothing: older, or different under the same revision, or twice.
  void upsert_in_vain(dice& random) {
    const stock::const_iterator any = some_stored(random);
    if (any == stored_.end() || any->second.given->source.revision == 0) return;
    std::vector<rag::chunked_document> documents{*any->second.given};
    documents[0].source.title += next_mark('t');
    if (random.chance(30)) --documents[0].source.revision;
    if (random.chance(30)) documents.push_back(documents[0]);
    const std::uint64_t before = store.snapshot().number();
    check(!store.try_upsert(documents), "an upsert went through that should not");
    check(store.snapshot().number() == before, "a refused upsert changed something");
    ++happened.refused;
  }

  void fail_to_embed(dice& random) {
    model().fails_after = random.below(6);
    upsert(random, random.below(4) + 1, false);
    model().fails_after.reset();
  }

  void erase(dice& random) {
    const stock::const_iterator any = some_stored(random);
    if (any == stored_.end()) {
      check(!store.try_erase("nothing"), "what is not there was erased");
      return;
    }
    const std::uint64_t before = store.snapshot().number();
    store.erase(any->first.second, any->first.first);
    stored_.erase(any);
    happened.rewritten += count_publications(before, 1);
  }

  void set_access(dice& random) {
    const stock::const_iterator any = some_stored(random);
    if (any == stored_.end()) return;
    kept& of = stored_[any->first];
    of.groups = some_of(random, all_groups, 50);
    store.set_access(any->first.second, of.groups, any->first.first);
    ++happened.updates;
  }

  void purge() {
    const std::uint64_t before = store.snapshot().number();
    store.purge();
    count_publications(before, 0);
  }

  /// Changes the model, sometimes while documents come in, sometimes in vain.
  void migrate(dice& random) {
    models_.push_back(std::make_unique<toy_model>(models_.size()));
    toy_model& next = *models_.back();
    std::swap(models_.back(), models_[models_.size() - 2]);  // the old one is the model until then
    if (random.chance(30)) next.fails_after = random.below(20);
    if (random.chance(50)) {
      next.meanwhile = [&] {
        for (std::size_t left = random.below(3); left > 0; --left) {
          const std::size_t roll = random.below(3);
          roll == 0 ? upsert(random, 1) : roll == 1 ? erase(random) : set_access(random);
        }
      };
    }
    const rag::embedder embedder = next.embedder(random.below(5) + 1, says_dimension_);
    const auto done = store.try_migrate(embedder);
    next.meanwhile = nullptr;
    if (!done) {
      ++happened.refused;
      next.fails_after.reset();
      return;  // the model stays, and so does the other among those that were tried
    }
    std::swap(models_.back(), models_[models_.size() - 2]);
    next.fails_after.reset();
    options_.embed = embedder;
    for (auto& [key, each] : stored_) {  // the new model made all vectors
      rag::chunked_document copy = *each.given;
      for (rag::chunk& item : copy.chunks) item.vector.reset();
      each.given = std::make_shared<const rag::chunked_document>(std::move(copy));
    }
    ++happened.migrations;
  }

  stock::const_iterator some_stored(dice& random) const {
    if (stored_.empty()) return stored_.end();
    return std::next(stored_.begin(), static_cast<std::ptrdiff_t>(random.below(stored_.size())));
  }

  /// An update publishes once, and once for each merge that follows. Returns the merges.
  std::size_t count_publications(std::uint64_t before, std::size_t own) {
    const std::uint64_t grown = store.snapshot().number() - before;
    check(grown >= own, "an update was not published");
    const std::size_t merges = static_cast<std::size_t>(grown) - own;
    ++happened.updates;
    happened.merges += merges;
    happened.cascades += merges > 1 ? 1U : 0U;
    return merges;
  }

  static void check(bool good, const char* sentence) {
    if (!good) throw std::logic_error(sentence);
  }
};

// ---- questions ----------------------------------------------------------------------------------

/// What a reranker and a caller's rule were shown.
struct witness {
  writer seen;
};

enum class rerank_kind { none, by_length, all_equal, throws, not_a_number, short_answer };

inline double length_score(std::string_view search_text) {
  return static_cast<double>(search_text.size() % 5);
}

/// A question, and what the plain search has to know of its callbacks.
struct question {
  rag::query asked;
  rerank_kind reranker = rerank_kind::none;
};

inline rag::rerank_function reranker_of(rerank_kind kind, witness& who) {
  return [kind, &who](const rag::rerank_request& request) {
    who.seen.put(request.question).put(std::uint64_t{request.passages.size()});
    std::vector<double> scores;
    for (const rag::permitted_passage& passage : request.passages) {
      write(who.seen, passage);
      scores.push_back(kind == rerank_kind::by_length ? length_score(passage.search_text()) : 1.0);
    }
    if (kind == rerank_kind::throws) {
      throw std::runtime_error("cannot score " + request.passages.front().id());
    }
    if (kind == rerank_kind::not_a_number) scores.back() = std::nan("");
    if (kind == rerank_kind::short_answer) scores.pop_back();
    return scores;
  };
}

inline rag::condition some_condition(dice& random) {
  rag::condition out;
  switch (random.below(5)) {
    case 0:
      out = {.key = "lang", .any_of = {random.of(languages), random.of(languages)}};
      break;
    case 1:
      out = {.key = "year", .from = 2020 + random.below(3)};
      if (random.chance(50)) out.to = 2021 + random.below(3);
      break;
    case 2:
      out = {.key = "tags", .any_of = {random.of(vocabulary)}};
      break;
    case 3:
      out = {.key = "note", .any_of = {mark('m', random.below(400) + 1)}};
      break;
    default:
      out = {.key = random.of(strings{"tags", "year", "nothing"})};
  }
  out.negated = random.chance(25);
  return out;
}

inline rag::further_question some_further(dice& random, const moment& at) {
  rag::further_question out;
  if (random.chance(80)) out.text = some_words(random, 3);
  if (random.chance(50)) {
    out.vector = rag::embedding{at.options.embed.model, some_vector(random, at.model->dimension())};
  }
  out.weight = random.chance(60) ? 1.0 : static_cast<double>(random.below(4)) / 2;
  return out;
}

/// All the words that somebody has asked with.
inline std::string words_of(const rag::query& asked) {
  std::string out = asked.text;
  for (const rag::further_question& each : asked.further) out += "\n" + each.text;
  return out;
}

/// dense_only  without words, which have statistics
inline question some_question(dice& random, const moment& at, witness& who,
                              bool dense_only = false) {
  question out;
  rag::query& asked = out.asked;
  const std::string tag = at.options.embed.model;
  const std::size_t dimension = at.model->dimension();
  if (!dense_only) {
    asked.text = random.chance(90) ? some_words(random, 4) : "";
    if (random.chance(20)) asked.text += " " + mark('l', random.below(400) + 1);
    asked.mode = static_cast<rag::search_mode>(random.below(4));
  } else {
    asked.mode = rag::search_mode::dense;
  }
  if (dense_only || random.chance(60)) {
    asked.vector = rag::embedding{tag, some_vector(random, dimension)};
  }
  if (!dense_only && random.chance(25)) {
    for (std::size_t left = random.below(2) + 1; left > 0; --left) {
      asked.further.push_back(some_further(random, at));
    }
  }
  if (random.chance(25)) {
    for (std::size_t left = random.below(2) + 1; left > 0; --left) {
      asked.where.push_back(some_condition(random));
    }
  }
  asked.limit = random.below(6) + 1;
  asked.offset = random.chance(30) ? random.below(4) : 0;
  asked.depth = random.chance(50) ? 100 : random.below(6) + 1;
  asked.per_document = random.below(4) + 1;
  if (random.chance(20)) asked.overlap_threshold = std::nullopt;
  if (random.chance(30)) asked.token_budget = random.below(20) + 1;
  asked.fill_budget = random.chance(50);
  if (random.chance(30)) asked.fusion.weights = {static_cast<double>(random.below(3)), 1.0};
  if (random.chance(10)) asked.fusion.k = 2;
  asked.exact_first = random.chance(80);
  asked.collapse_parents = random.chance(80);
  if (random.chance(20)) asked.max_parent_tokens = random.below(12) + 1;
  asked.neighbours = random.chance(40) ? random.below(3) : 0;
  if (random.chance(40)) {
    out.reranker =
        static_cast<rerank_kind>(random.chance(70) ? random.below(2) + 1 : random.below(3) + 3);
    asked.rerank.score = reranker_of(out.reranker, who);
    asked.rerank.window = random.below(6) + 1;
    asked.rerank.batch_size = random.below(3) + 1;
    asked.rerank.required = random.chance(20);
  }
  asked.explain = random.chance(90);
  if (random.chance(20)) {
    asked.sufficient = [&who](const rag::evidence& signals) {
      who.seen.put(signals.idf_share).put(signals.best_similarity);
      return signals.idf_share > 0.5;
    };
  }
  return out;
}

/// A question that is refused, or would be by an index of another model.
inline void spoil(dice& random, const moment& at, rag::query& asked) {
  switch (random.below(4)) {
    case 0:
      asked.limit = 0;
      break;
    case 1:
      asked.vector = rag::embedding{"another", {1, 0, 0}};
      break;
    case 2:  // how long vectors are is no secret where the model says it
      if (at.options.embed.dimension != 0) {
        asked.vector = rag::embedding{at.options.embed.model, {1, 0}};
      }
      break;
    default:
      asked.fusion.weights = {0, 0};
  }
}

/// All that a reader gets for a question: the answer or the error, thrown by half; and what was
/// shown to his reranker, to his rule over the evidence and to the model.
template <class Store>
std::string told(const Store& store, const rag::query& asked, const rag::scope& reader,
                 witness& who, toy_model& model, bool thrown = false) {
  who.seen = {};
  model.questions.clear();
  std::string out;
  if (!thrown) {
    out = everything(store.try_search(asked, reader));
  } else {
    try {
      out = everything(store.search(asked, reader));
    } catch (const rag::error& failure) {
      out = "thrown " + std::to_string(static_cast<int>(failure.code())) + " " + failure.what();
    }
  }
  out += "\n" + who.seen.text();
  for (const std::string& text : model.questions) out += "embedded " + text + "\n";
  return out;
}

/// What a reader gets without a question.
template <class Store>
std::string fetched(const Store& store, const strings& wanted, const rag::scope& reader) {
  writer out;
  for (const rag::permitted_passage& passage : store.fetch(wanted, reader)) write(out, passage);
  out.put(std::uint64_t{store.count(reader)});
  return out.text();
}

/// The marks in a text that are not among the allowed ones; nothing: there are none.
inline std::string forbidden_in(std::string_view text, const id_set& allowed) {
  id_set found;
  add_marks(text, found);
  std::string out;
  for (const std::string& each : found) {
    if (!allowed.contains(each)) out += each + " ";
  }
  return out;
}

// ---- the plain search ---------------------------------------------------------------------------

/// The search as the design words it, over one list: everything that is permitted is scored, with
/// the statistics of what the records allow; then each step once. No segments, no legs that are
/// filled up.
class plain_search {
 public:
  /// recorded  what the scope may read by the records of the moment
  plain_search(const moment& of, const std::string& tenant, const id_set& recorded)
      : options_(of.options),
        finder_(rag::identifier_finder::make({of.options.identifiers, {}, false})),
        builder_(of.options.bm25),
        vectors_(of.model->dimension(), of.options.similarity) {
    for (const auto& [key, each] : of.stored) {
      if (key.first != tenant) continue;
      for (const rag::chunk& record : each.given->chunks) {
        if (recorded.contains(record.id)) items_.push_back({&each.given->source, &record});
      }
    }
    std::sort(items_.begin(), items_.end(),
              [](const item& a, const item& b) { return a.record->id < b.record->id; });
    for (std::size_t i = 0; i < items_.size(); ++i) number_of_[items_[i].record->id] = i;
    for (const auto& [key, each] : of.stored) {
      if (key.first != tenant) continue;
      for (const rag::chunk& record : each.given->chunks) {
        if (record.parent_id.empty()) continue;
        if (const auto at = number_of_.find(record.parent_id); at != number_of_.end()) {
          items_[at->second].children.push_back(record.id);
        }
      }
    }
    for (item& each : items_) add(each, *of.model);
    terms_ = builder_.build();
  }

  struct place {
    std::string id, parent_id;
    strings children;
    std::size_t lexical_rank = 0, dense_rank = 0, exact = 0;
    std::optional<double> lexical_score, similarity, rerank_score;
    double fused = 0, score = 0;
  };
  struct outcome {
    std::vector<place> fused, passages;
  };

  /// permitted  what the permission source allows of it, parents not yet closed by their children
  /// later      the same after the reranker has run
  outcome search(const question& what, const id_set& permitted, const id_set& later) {
    const rag::query& asked = what.asked;
    std::map<std::string, double> scores;
    if (what.reranker == rerank_kind::by_length || what.reranker == rerank_kind::all_equal) {
      const std::vector<place> shortlist = choose(asked, fuse(asked, permitted), permitted);
      for (std::size_t i = 0; i < (std::min)(asked.rerank.window, shortlist.size()); ++i) {
        scores[shortlist[i].id] = what.reranker == rerank_kind::all_equal
                                      ? 1.0
                                      : length_score(text_of(item_of(shortlist[i].id)));
      }
    }
    outcome out;
    out.fused = fuse(asked, later);
    std::vector<place> chosen = choose(asked, out.fused, later);
    for (place& each : chosen) {
      if (const auto at = scores.find(each.id); at != scores.end()) each.rerank_score = at->second;
    }
    std::stable_sort(chosen.begin(), chosen.end(), [](const place& a, const place& b) {
      return a.rerank_score && (!b.rerank_score || *a.rerank_score > *b.rerank_score);
    });
    auto page = rag::take_page(selection_of(chosen), asked.offset, asked.limit);
    if (asked.token_budget) page = rag::fit_budget(page, *asked.token_budget, asked.fill_budget);
    for (const rag::selection_item& kept_item : page) {
      for (const place& each : chosen) {
        if (each.id == kept_item.id) out.passages.push_back(each);
      }
    }
    return out;
  }

 private:
  struct item {
    const rag::document* source = nullptr;
    const rag::chunk* record = nullptr;
    strings children = {};
    std::size_t tokens = 0;
  };

  std::string text_of(const item& of) const {
    return rag::search_text(*of.source, *of.record, options_.search_text);
  }
  const item& item_of(const std::string& id) const { return items_[number_of_.at(id)]; }

  void add(item& each, const toy_model& model) {
    const std::string text = text_of(each);
    each.tokens = rag::count_words(text);
    if (!each.children.empty()) return;  // a parent is not searched
    const std::uint32_t row = builder_.add(rag::analyse(text, options_.analysis));
    rows_.push_back(each.record->id);
    const bool opens = each.record->range.begin == 0;
    for (const auto& code : finder_.find(each.source->title)) codes_.add(row, code.value, opens);
    const bool heads = opens || each.record->range.begin < each.record->body.begin;
    for (const auto& code : finder_.find(each.record->heading)) codes_.add(row, code.value, heads);
    const std::string body = each.source->text.substr(
        each.record->body.begin, each.record->body.end - each.record->body.begin);
    for (const auto& code : finder_.find(body)) codes_.add(row, code.value, false);
    for (const std::string& code : each.record->identifiers) {
      codes_.add(row, rag::normalise_identifier(code, false), false);
    }
    if (each.record->vector) {
      vectors_.add(each.record->vector->values, each.record->id);
    } else if (options_.embed.embed) {
      vectors_.add(model.vector_of(text), each.record->id);
    } else {
      vectors_.add_missing();
    }
    question_vector_ = [&model](const std::string& asked) { return model.vector_of(asked); };
  }

  /// Whether somebody who is allowed these chunks may see one, with all that lies in it.
  bool open(const std::string& id, const id_set& permitted) const {
    const auto at = number_of_.find(id);
    if (at == number_of_.end() || !permitted.contains(id)) return false;
    const strings& children = items_[at->second].children;
    return std::all_of(children.begin(), children.end(),
                       [&](const std::string& child) { return permitted.contains(child); });
  }

  static bool meets_all(const rag::document& source, const std::vector<rag::condition>& where) {
    return std::all_of(where.begin(), where.end(), [&](const rag::condition& wanted) {
      const auto value = source.metadata.find(wanted.key);
      return value != source.metadata.end() && rag::meets(value->second, wanted).value();
    });
  }

  /// One list to fuse.
  struct ranked {
    bool is_lexical = false;
    std::vector<rag::lexical_hit> lexical = {};
    std::vector<rag::vector_hit> dense = {};
  };

  std::vector<place> fuse(const rag::query& asked, const id_set& permitted) {
    rag::row_set among(rows_.size());
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      const rag::document& source = *item_of(rows_[row]).source;
      if (permitted.contains(rows_[row]) && meets_all(source, asked.where)) among.insert(row);
    }
    std::vector<rag::further_question> questions{{asked.text, asked.vector, 1.0}};
    questions.insert(questions.end(), asked.further.begin(), asked.further.end());
    std::vector<std::vector<float>> vectors;
    bool dense_on = false;
    for (const rag::further_question& each : questions) {
      vectors.push_back(asked.mode == rag::search_mode::lexical ? std::vector<float>()
                                                                : vector_of(each));
      dense_on = dense_on || !vectors.back().empty();
    }
    const bool lexical_on = asked.mode != rag::search_mode::dense;
    const bool weighted = lexical_on && dense_on && !asked.fusion.weights.empty();

    std::vector<ranked> legs;
    rag::fusion_options options{asked.fusion.k, {}};
    for (std::size_t i = 0; i < questions.size(); ++i) {
      if (lexical_on) {
        legs.push_back({true, lexical_list(questions[i].text, asked, among), {}});
        options.weights.push_back(questions[i].weight * (weighted ? asked.fusion.weights[0] : 1));
      }
      if (dense_on) {
        legs.push_back({});
        if (!vectors[i].empty()) {
          legs.back().dense = vectors_.search(vectors[i], asked.depth, among);
        }
        options.weights.push_back(questions[i].weight * (weighted ? asked.fusion.weights[1] : 1));
      }
    }
    return fused_of(legs, options);
  }

  std::vector<rag::lexical_hit> lexical_list(const std::string& text, const rag::query& asked,
                                             const rag::row_set& among) const {
    strings codes;
    for (const auto& code : finder_.find(text)) codes.push_back(code.value);
    const strings words = rag::question_terms(text, options_.analysis);
    const auto counted = terms_.statistics(words, rag::row_set::all(rows_.size()));
    return rag::search_lexical(terms_, codes_, words, codes, asked.depth, counted, among,
                               asked.exact_first);
  }

  std::vector<place> fused_of(const std::vector<ranked>& legs,
                              const rag::fusion_options& options) const {
    std::vector<std::vector<std::uint32_t>> lists;
    for (const ranked& leg : legs) {
      lists.emplace_back();
      for (const auto& hit : leg.lexical) lists.back().push_back(hit.row);
      for (const auto& hit : leg.dense) lists.back().push_back(hit.row);
    }
    std::vector<place> out;
    if (lists.empty()) return out;
    for (const auto& hit : rag::fuse_by_rank(lists, options)) {
      place each;
      each.id = rows_[hit.id];
      each.fused = hit.score;
      for (std::size_t i = 0; i < legs.size(); ++i) {
        const std::size_t rank = hit.ranks[i];
        if (rank == 0) continue;
        std::size_t& best = legs[i].is_lexical ? each.lexical_rank : each.dense_rank;
        const bool better = best == 0 || rank < best;
        if (better) best = rank;
        if (legs[i].is_lexical) {
          const rag::lexical_hit& own = legs[i].lexical[rank - 1];
          each.exact = (std::max)(each.exact, own.exact);
          if (better) each.lexical_score = own.score();
        } else if (better) {
          each.similarity = static_cast<double>(legs[i].dense[rank - 1].score);
        }
      }
      each.score = legs.size() > 1      ? each.fused
                   : legs[0].is_lexical ? each.lexical_score.value_or(0)
                                        : each.similarity.value_or(0);
      out.push_back(std::move(each));
    }
    return out;
  }

  std::vector<float> vector_of(const rag::further_question& asked) const {
    std::vector<float> out;
    if (asked.vector) {
      out = asked.vector->values;
    } else if (options_.embed.embed && question_vector_) {
      const bool holds_a_word = !rag::question_terms(asked.text, options_.analysis).empty() ||
                                !finder_.find(asked.text).empty();
      if (holds_a_word) out = question_vector_(asked.text);
    }
    const bool zero = std::all_of(out.begin(), out.end(), [](float v) { return v == 0.0F; });
    return zero ? std::vector<float>() : out;
  }

  /// Parents, overlaps, cap.
  std::vector<place> choose(const rag::query& asked, const std::vector<place>& fused,
                            const id_set& permitted) const {
    const std::size_t none = static_cast<std::size_t>(-1);
    const std::size_t largest =
        (std::min)(asked.max_parent_tokens.value_or(none), asked.token_budget.value_or(none));
    std::vector<place> out;
    for (const place& each : fused) {
      const std::string& parent = item_of(each.id).record->parent_id;
      const bool is_open = !parent.empty() && open(parent, permitted);
      if (!is_open || !asked.collapse_parents || item_of(parent).tokens > largest) {
        out.push_back(each);
        if (is_open) out.back().parent_id = parent;
        continue;
      }
      auto stands = std::find_if(out.begin(), out.end(),
                                 [&](const place& other) { return other.id == parent; });
      if (stands == out.end()) {
        out.push_back(each);
        out.back().id = parent;
        stands = std::prev(out.end());
      }
      stands->children.push_back(each.id);
      stands->exact = (std::max)(stands->exact, each.exact);
    }
    std::vector<rag::selection_item> items = selection_of(out);
    if (asked.overlap_threshold) items = rag::drop_overlaps(items, *asked.overlap_threshold);
    items = rag::limit_per_document(items, asked.per_document);
    std::erase_if(out, [&](const place& each) {
      return std::none_of(items.begin(), items.end(),
                          [&](const auto& stays) { return stays.id == each.id; });
    });
    return out;
  }

  std::vector<rag::selection_item> selection_of(const std::vector<place>& places) const {
    std::vector<rag::selection_item> out;
    for (const place& each : places) {
      const item& of = item_of(each.id);
      out.push_back({each.id, of.source->id, of.source->revision, of.record->range, of.tokens});
    }
    return out;
  }

  const rag::retriever_options& options_;
  rag::identifier_finder finder_;
  rag::term_index_builder builder_;
  rag::term_index terms_;
  rag::flat_index vectors_;
  rag::identifier_index codes_;
  std::vector<item> items_;  // by id, parents too
  std::map<std::string, std::size_t> number_of_;
  strings rows_;  // ids of what is searched, in order
  std::function<std::vector<float>(const std::string&)> question_vector_;
};

inline void write(writer& out, const plain_search::place& each) {
  out.put(each.id).put(each.parent_id);
  for (const std::string& child : each.children) out.put(child);
  out.put(std::uint64_t{each.lexical_rank}).put(std::uint64_t{each.dense_rank});
  out.put(std::uint64_t{each.exact > 0}).put(each.lexical_score).put(each.similarity);
  out.put(each.rerank_score).put(each.score).end_of("passage");
}

/// A plain outcome, and the same of an answer.
inline std::string ranking(const plain_search::outcome& found, bool explained) {
  writer out;
  for (const plain_search::place& each : found.passages) write(out, each);
  if (!explained) return out.text();
  for (const plain_search::place& each : found.fused) {
    out.put(each.id).put(std::uint64_t{each.lexical_rank}).put(std::uint64_t{each.dense_rank});
    out.put(std::uint64_t{each.exact > 0}).put(each.fused).end_of("candidate");
  }
  return out.text();
}
inline std::string ranking(const rag::answer& found, bool explained) {
  writer out;
  for (const rag::permitted_passage& passage : found.passages) {
    out.put(passage.id()).put(passage.parent_id());
    for (const std::string& child : passage.children()) out.put(child);
    out.put(std::uint64_t{passage.lexical_rank()}).put(std::uint64_t{passage.dense_rank()});
    out.put(std::uint64_t{passage.exact_match()}).put(passage.lexical_score());
    out.put(passage.similarity()).put(passage.rerank_score()).put(passage.score());
    out.end_of("passage");
  }
  if (!explained) return out.text();
  for (const rag::candidate_trace& each : found.trace.candidates) {
    out.put(each.id).put(std::uint64_t{each.lexical_rank}).put(std::uint64_t{each.dense_rank});
    out.put(std::uint64_t{each.exact_match}).put(each.fused_score).end_of("candidate");
  }
  return out.text();
}

}  // namespace worlds

#endif
