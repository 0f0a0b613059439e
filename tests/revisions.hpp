// Documents of which every part names the revision: text, title, terms, code, headings and vector.
// An answer that mixes two revisions, or two models, shows it. Shared by the tests of updates.
#ifndef RAG_RETRIEVE_TESTS_REVISIONS_HPP
#define RAG_RETRIEVE_TESTS_REVISIONS_HPP

#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <rag_retrieve.hpp>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "fakes.hpp"

namespace revisions {

namespace rag = rag_retrieve;
using namespace fakes;

// ---- documents ----------------------------------------------------------------------------------

inline std::string word_of(std::uint64_t revision) { return "rev" + std::to_string(revision); }
inline std::string code_of(std::uint64_t revision) {
  return "REV-" + std::to_string(100 + revision % 900);
}
inline std::size_t lines_of(std::uint64_t revision) { return 1 + revision % 3; }
inline std::string line_of(const std::string& id, std::uint64_t revision, std::size_t line) {
  return "common " + id + " " + word_of(revision) + " " + code_of(revision) + " line" +
         std::to_string(line);
}

/// The kind is the id's first letter:
///
///   o   read by the board in odd revisions, by the staff in even ones
///   c   the lines of even (revision + number) are for the board alone
///   f   lines that lie in one parent, ID.P
///   others are read by both
inline char kind_of(const std::string& id) { return id.front(); }
inline bool is_for_the_board_alone(const std::string& id, std::uint64_t revision,
                                   std::size_t line) {
  return kind_of(id) == 'c' && (revision + line) % 2 == 0;
}
inline strings groups_of(const std::string& id, std::uint64_t revision) {
  if (kind_of(id) == 'o') return {revision % 2 == 1 ? "board" : "staff"};
  return {"staff", "board"};
}

/// A document in one of its revisions; `shorter`: without its last line.
inline rag::chunked_document revised(const std::string& id, std::uint64_t revision,
                                     const std::string& tenant = {}, bool shorter = false) {
  std::string text;
  for (std::size_t line = 1; line + (shorter ? 1 : 0) <= lines_of(revision); ++line) {
    text += line_of(id, revision, line) + "\n";
  }
  rag::document source = page(id, text, groups_of(id, revision), revision, tenant);
  source.title = id + " at " + word_of(revision);
  std::vector<rag::chunk> chunks = lines(source);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    chunks[i].heading_path = {word_of(revision)};
    chunks[i].anchor = word_of(revision);
    if (is_for_the_board_alone(id, revision, i + 1)) chunks[i].allowed_groups = strings{"board"};
    if (kind_of(id) == 'f') chunks[i].parent_id = id + ".P";
  }
  if (kind_of(id) == 'f') {
    chunks.push_back(piece(source, id + ".P", 0, text.size()));
    chunks.back().heading_path = {word_of(revision)};
    chunks.back().anchor = word_of(revision);
  }
  return {source, chunks};
}

inline rag::result<rag::update_report> try_put(rag::retriever& store, const std::string& id,
                                               std::uint64_t revision,
                                               const std::string& tenant = {}) {
  const rag::chunked_document next = revised(id, revision, tenant);
  return store.try_upsert(next.source, next.chunks);
}
inline void put(rag::retriever& store, const std::string& id, std::uint64_t revision,
                const std::string& tenant = {}) {
  static_cast<void>(try_put(store, id, revision, tenant).value());
}

// ---- models -------------------------------------------------------------------------------------

/// The similarity of a question and a chunk of this revision, in every model.
inline double similarity_of(std::uint64_t revision) {
  return std::cos(0.1 + 0.1 * static_cast<double>(revision % 13));
}

/// The number behind "rev" in a text; 0: none.
inline std::uint64_t revision_in(std::string_view text) {
  for (std::size_t at = text.find("rev"); at != std::string_view::npos;
       at = text.find("rev", at + 1)) {
    if (at + 3 >= text.size() || std::isdigit(static_cast<unsigned char>(text[at + 3])) == 0) {
      continue;
    }
    return std::strtoull(std::string(text.substr(at + 3, 20)).c_str(), nullptr, 10);
  }
  return 0;
}

/// Model number n: its vectors lie in a plane of their own, and their length differs from that of
/// the next two models, so that vectors of two models together give another similarity or an error.
inline rag::embedder model(std::size_t number, std::size_t batch_size = 3) {
  rag::embedder out;
  out.model = "model" + std::to_string(number);
  out.batch_size = batch_size;
  out.embed = [number](std::span<const std::string_view> texts, rag::text_role role) {
    std::vector<std::vector<float>> vectors;
    for (const std::string_view text : texts) {
      std::vector<float> values(4 + number % 3, 0.0F);
      const double cosine =
          role == rag::text_role::question ? 1.0 : similarity_of(revision_in(text));
      values[number % 4] = static_cast<float>(cosine);
      values[(number + 1) % 4] = static_cast<float>(std::sqrt(1.0 - cosine * cosine));
      vectors.push_back(std::move(values));
    }
    return vectors;
  };
  return out;
}

inline rag::retriever_options with_model(std::size_t number) {
  rag::retriever_options out;
  out.embed = model(number);
  out.identifiers = {"REV-###"};
  return out;
}

// ---- answers ------------------------------------------------------------------------------------

/// What finds every line of every document.
inline rag::query all_of(std::string text = "common") {
  rag::query out = about(std::move(text));
  out.limit = 100000;
  out.depth = 100000;
  return out;
}

/// What is wrong with a passage by itself; empty: every part of it is of one revision.
inline std::string mixed(const rag::permitted_passage& passage) {
  const std::string& id = passage.document_id();
  const std::uint64_t revision = passage.revision();
  const rag::chunked_document whole = revised(id, revision);
  const std::string wrong = passage.id() + " of revision " + std::to_string(revision) + ": ";
  const bool is_parent = passage.id() == id + ".P";
  std::size_t line = 0;
  if (!is_parent) line = std::strtoull(passage.id().c_str() + id.size() + 1, nullptr, 10);
  if (passage.text() != (is_parent ? whole.source.text : line_of(id, revision, line))) {
    return wrong + "text '" + passage.text() + "'";
  }
  if (passage.title() != whole.source.title) return wrong + "title " + passage.title();
  if (passage.identifiers() != strings{code_of(revision)}) return wrong + "its codes";
  if (passage.heading_path() != strings{word_of(revision)}) return wrong + "its headings";
  if (passage.source().revision != revision) return wrong + "the revision of its citation";
  if (passage.source().anchor != word_of(revision)) return wrong + "the anchor of its citation";
  if (passage.similarity() && std::abs(*passage.similarity() - similarity_of(revision)) > 1e-4) {
    return wrong + "its vector, of similarity " + std::to_string(*passage.similarity());
  }
  return {};
}

/// What is wrong with an answer to all_of (with a word or a code of some revision in its question,
/// or without), for a reader of `group`; empty: it shows one revision of each document, of that one
/// all that the reader may read and nothing else, and its ranks have no gap.
inline std::string wrong_with(const rag::answer& found, const rag::query& asked,
                              const std::string& group) {
  std::map<std::string, std::uint64_t> revision_of;
  std::map<std::string, std::size_t> shown;
  std::set<std::string> ids;
  for (const rag::permitted_passage& passage : found.passages) {
    if (std::string what = mixed(passage); !what.empty()) return what;
    const std::string& id = passage.document_id();
    const std::uint64_t revision = passage.revision();
    if (!ids.insert(passage.id()).second) return passage.id() + " is there twice";
    if (revision_of.try_emplace(id, revision).first->second != revision) {
      return id + " is there in two revisions";
    }
    const strings groups = groups_of(id, revision);
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) {
      return passage.id() + " of revision " + std::to_string(revision) + " is not for " + group;
    }
    std::size_t count = 1;
    if (passage.id() == id + ".P") {
      count = lines_of(revision);
      if (passage.children().size() != count) return passage.id() + " lacks a child";
    } else {
      const std::size_t line = std::strtoull(passage.id().c_str() + id.size() + 1, nullptr, 10);
      if (group == "staff" && is_for_the_board_alone(id, revision, line)) {
        return passage.id() + " of revision " + std::to_string(revision) + " is for the board";
      }
    }
    shown[id] += count;
    const bool has_code = asked.text.find(code_of(revision)) != std::string::npos;
    if (found.mode != rag::search_mode::dense && passage.exact_match() != has_code) {
      return passage.id() + ": its exact match";
    }
  }
  for (const auto& [id, revision] : revision_of) {
    // Of kind c a line that was closed since is left out alone; all others go or stay together.
    if (kind_of(id) != 'c' && shown[id] != lines_of(revision)) return id + " is incomplete";
  }
  if (!asked.explain) return {};
  std::set<std::size_t> lexical;
  std::set<std::size_t> dense;
  std::size_t lexical_count = 0;
  std::size_t dense_count = 0;
  for (const rag::candidate_trace& each : found.trace.candidates) {
    if (each.lexical_rank != 0) lexical.insert(each.lexical_rank), ++lexical_count;
    if (each.dense_rank != 0) dense.insert(each.dense_rank), ++dense_count;
  }
  if (lexical.size() != lexical_count || (lexical_count != 0 && *lexical.rbegin() != lexical_count))
    return "the lexical ranks have a gap";
  if (dense.size() != dense_count || (dense_count != 0 && *dense.rbegin() != dense_count))
    return "the dense ranks have a gap";
  for (const auto& [id, explained] : found.trace.bm25) {
    if (explained.chunk_count < found.trace.bm25.size()) return id + ": N is too small";
    const std::string document_id = id.substr(0, id.find('.'));
    const auto revision = revision_of.find(document_id);
    if (revision == revision_of.end()) continue;
    for (const rag::term_explanation& term : explained.terms) {
      if (term.term.rfind("rev", 0) != 0 || revision_in(term.term) == 0) continue;
      if ((term.tf != 0) != (term.term == word_of(revision->second))) return id + ": its terms";
      if (term.tf != 0 && term.n == 0) return id + ": n is 0 for a term that it holds";
    }
  }
  return {};
}

// ---- files --------------------------------------------------------------------------------------

inline std::string saved(const rag::retriever& store) {
  std::ostringstream out;
  rag::save(store, out);
  return out.str();
}

/// Whether two stores are saved as the same bytes. The number of the state is in the file, so the
/// one that is behind is brought to the other's first, by a document that goes again.
inline bool same_files(rag::retriever& a, rag::retriever& b) {
  for (rag::retriever* each : {&a, &b}) put(*each, "p", 1, "counts");
  while (a.snapshot().number() != b.snapshot().number()) {
    (a.snapshot().number() < b.snapshot().number() ? a : b).set_access("p", {"staff"}, "counts");
  }
  for (rag::retriever* each : {&a, &b}) each->erase("p", "counts");
  return saved(a) == saved(b);
}

}  // namespace revisions

#endif
