// Stand-ins for what a program brings: documents, an embedder, a permission source; and a way to
// write down every byte of an answer. Shared by the tests of sections 6, 12 and 14.
#ifndef RAG_RETRIEVE_TESTS_FAKES_HPP
#define RAG_RETRIEVE_TESTS_FAKES_HPP

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <rag_retrieve.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fakes {

namespace rag = rag_retrieve;

using strings = std::vector<std::string>;

// ---- documents ----------------------------------------------------------------------------------

inline rag::document page(std::string id, std::string text, strings groups = {"staff"},
                          std::uint64_t revision = 1, std::string tenant = {}) {
  rag::document out;
  out.id = std::move(id);
  out.text = std::move(text);
  out.tenant = std::move(tenant);
  out.allowed_groups = std::move(groups);
  out.revision = revision;
  return out;
}

inline rag::chunk piece(const rag::document& source, std::string id, std::size_t begin,
                        std::size_t end) {
  rag::chunk out;
  out.id = std::move(id);
  out.document_id = source.id;
  out.revision = source.revision;
  out.range = {begin, end};
  out.body = out.range;
  return out;
}

/// One chunk that is the whole text; its id is the document's.
inline std::vector<rag::chunk> whole(const rag::document& source) {
  return {piece(source, source.id, 0, source.text.size())};
}

/// One chunk for each line that is not empty, named DOCUMENT.1, DOCUMENT.2 and so on.
inline std::vector<rag::chunk> lines(const rag::document& source) {
  std::vector<rag::chunk> out;
  for (std::size_t at = 0; at < source.text.size();) {
    const std::size_t found = source.text.find('\n', at);
    const std::size_t end = found == std::string::npos ? source.text.size() : found;
    if (end > at) {
      out.push_back(piece(source, source.id + "." + std::to_string(out.size() + 1), at, end));
    }
    at = end + 1;
  }
  return out;
}

/// The same chunk with a vector of the model "m".
inline rag::chunk with_vector(rag::chunk item, std::vector<float> values) {
  item.vector = rag::embedding{"m", std::move(values)};
  return item;
}

/// A one-chunk document with a vector of the model "m".
inline rag::chunked_document placed(std::string id, std::string text, std::vector<float> values,
                                    strings groups = {"staff"}) {
  const rag::document source = page(std::move(id), std::move(text), std::move(groups));
  return {source, {with_vector(whole(source).front(), std::move(values))}};
}

inline rag::query about(std::string text) {
  rag::query out;
  out.text = std::move(text);
  out.per_document = 1000;
  return out;
}

inline rag::query near_to(std::vector<float> values, std::string text = {}) {
  rag::query out = about(std::move(text));
  out.vector = rag::embedding{"m", std::move(values)};
  if (out.text.empty()) out.mode = rag::search_mode::dense;
  return out;
}

inline strings ids(const std::vector<rag::permitted_passage>& passages) {
  strings out;
  for (const rag::permitted_passage& passage : passages) out.push_back(passage.id());
  return out;
}
inline strings ids(const rag::answer& found) { return ids(found.passages); }

// ---- permissions --------------------------------------------------------------------------------

/// A permission source that a test can bend. Safe to use from many threads.
class judge final : public rag::permission_source {
 public:
  using verdicts = rag::result<std::vector<rag::verdict>>;

  std::map<std::pair<std::string, std::string>, strings> groups;  // (tenant, user) -> groups
  bool judges = true;
  std::function<verdicts(std::span<const rag::chunk_key>)> answer;           // empty: allows all
  std::function<rag::result<strings>(const rag::principal&)> answer_groups;  // empty: the map
  mutable std::atomic<int> asked{0};
  mutable std::atomic<int> asked_groups{0};

  rag::result<strings> groups_of(const rag::principal& who) const override {
    ++asked_groups;
    if (answer_groups) return answer_groups(who);
    const auto found = groups.find({who.tenant, who.user});
    return found == groups.end() ? strings{} : found->second;
  }
  bool judges_chunks() const override { return judges; }
  verdicts may_read(const rag::principal&, std::span<const rag::chunk_key> keys) const override {
    ++asked;
    if (answer) return answer(keys);
    return std::vector<rag::verdict>(keys.size(), rag::verdict::allow);
  }

  /// Denies these chunk ids and allows the rest.
  void deny(strings denied) {
    answer = [denied](std::span<const rag::chunk_key> keys) -> verdicts {
      std::vector<rag::verdict> out;
      for (const rag::chunk_key& key : keys) {
        const bool no = std::find(denied.begin(), denied.end(), key.chunk_id) != denied.end();
        out.push_back(no ? rag::verdict::deny : rag::verdict::allow);
      }
      return out;
    };
  }
};

// ---- an embedder --------------------------------------------------------------------------------

/// Counts the letters a, b and c, plus a fixed part so that no text has a zero vector. Remembers
/// what it was given, and can be told to fail.
struct letter_model {
  std::atomic<int> calls{0};
  std::atomic<int> inputs{0};
  strings texts;                            // of documents, in order
  std::function<void(std::size_t)> before;  // called with the number of inputs so far

  static std::vector<float> vector_of(std::string_view text) {
    std::vector<float> out{1.0F, 0.0F, 0.0F, 0.0F};
    for (char c : text) {
      if (c >= 'a' && c <= 'c') out[static_cast<std::size_t>(c - 'a') + 1] += 1.0F;
    }
    return out;
  }

  rag::embedder embedder(std::size_t batch_size = 64) {
    rag::embedder out;
    out.model = "letters";
    out.batch_size = batch_size;
    out.embed = [this](std::span<const std::string_view> batch,
                       rag::text_role role) -> rag::result<std::vector<std::vector<float>>> {
      ++calls;
      std::vector<std::vector<float>> vectors;
      for (std::string_view text : batch) {
        if (before) before(static_cast<std::size_t>(inputs));
        ++inputs;
        if (role == rag::text_role::document) texts.emplace_back(text);
        vectors.push_back(vector_of(text));
      }
      return vectors;
    };
    return out;
  }
};

// ---- a whole set-up -----------------------------------------------------------------------------

/// A retriever with one reader, ana, in the group "staff".
struct setup {
  judge permissions;
  rag::retriever store;

  explicit setup(rag::retriever_options options = {}) : store(make(std::move(options))) {
    permissions.groups[{"", "ana"}] = {"staff"};
    permissions.judges = false;
  }

  rag::scope ana() const { return store.scope_for({"", "ana"}); }
  void add(const rag::document& source) { store.upsert(source, lines(source)); }
  void add(std::vector<rag::chunked_document> documents) { store.upsert(documents); }

 private:
  rag::retriever make(rag::retriever_options options) {
    options.permissions = &permissions;
    if (!options.embed.embed && options.embed.model.empty()) options.embed.model = "m";
    return rag::retriever(std::move(options));
  }
};

// ---- every byte of an answer --------------------------------------------------------------------

/// Writes down values so that two texts are equal exactly if the values are equal bit for bit.
class writer {
 public:
  writer& put(std::string_view text) {
    out_ += std::to_string(text.size());
    out_ += ':';
    out_ += text;
    out_ += ' ';
    return *this;
  }
  writer& put(std::uint64_t number) { return put(std::to_string(number)); }
  writer& put(double value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return put(bits);
  }
  writer& put(const std::optional<double>& value) {
    return value ? put(*value) : put(std::string_view("none"));
  }
  writer& put(rag::byte_range range) {
    return put(std::uint64_t{range.begin}).put(std::uint64_t{range.end});
  }
  writer& end_of(std::string_view what) {
    out_ += what;
    out_ += '\n';
    return *this;
  }
  const std::string& text() const { return out_; }

 private:
  std::string out_;
};

inline void write(writer& out, const rag::permitted_passage& passage) {
  out.put(passage.id()).put(passage.document_id()).put(passage.parent_id());
  out.put(std::uint64_t{passage.revision()}).put(passage.title());
  out.put(std::uint64_t{passage.children().size()});
  for (const std::string& child : passage.children()) out.put(child);
  out.put(std::uint64_t{passage.heading_path().size()});
  for (const std::string& heading : passage.heading_path()) out.put(heading);
  out.put(passage.heading()).put(passage.body()).put(passage.text()).put(passage.search_text());
  for (const std::string& code : passage.identifiers()) out.put(code);
  out.put(passage.range());
  out.put(std::uint64_t{passage.token_count()}).put(passage.score());
  out.put(std::uint64_t{passage.lexical_rank()}).put(std::uint64_t{passage.dense_rank()});
  out.put(passage.lexical_score()).put(passage.similarity()).put(passage.rerank_score());
  out.put(std::uint64_t{passage.exact_match()}).put(passage.why());
  const rag::citation& source = passage.source();
  out.put(source.document_id).put(std::uint64_t{source.revision}).put(source.anchor);
  out.put(source.range).put(std::uint64_t{source.first_line}).put(std::uint64_t{source.last_line});
  for (const rag::byte_range match : source.matches) out.put(match);
  out.end_of("passage");
}

inline void write(writer& out, const rag::reader_trace& trace) {
  out.put(static_cast<std::uint64_t>(trace.mode)).put(trace.fusion_constant);
  for (const rag::candidate_trace& each : trace.candidates) {
    out.put(each.id).put(std::uint64_t{each.lexical_rank}).put(std::uint64_t{each.dense_rank});
    out.put(std::uint64_t{each.exact_match}).put(each.lexical_score).put(each.similarity);
    out.put(each.rerank_score).put(each.fused_score);
    out.put(each.parent).put(each.parent_note).end_of("candidate");
  }
  for (const auto& [id, explained] : trace.bm25) {
    out.put(id).put(explained.score).put(std::uint64_t{explained.chunk_count});
    out.put(std::uint64_t{explained.length}).put(explained.average_length);
    for (const rag::term_explanation& term : explained.terms) {
      out.put(term.term).put(std::uint64_t{term.tf}).put(std::uint64_t{term.n});
      out.put(term.idf).put(term.weight).put(term.value);
    }
    out.end_of("bm25");
  }
  for (const rag::drop& each : trace.dropped) {
    out.put(each.id).put(rag::name_of(each.stage)).put(each.reason).end_of("drop");
  }
}

/// All of an answer but its times.
inline std::string everything(const rag::answer& found) {
  writer out;
  out.put(static_cast<std::uint64_t>(found.status)).put(static_cast<std::uint64_t>(found.mode));
  out.put(static_cast<std::uint64_t>(found.reranking)).end_of("answer");
  for (const std::string& note : found.notes) out.put(note).end_of("note");
  for (const rag::permitted_passage& passage : found.passages) write(out, passage);
  for (const rag::neighbour& each : found.neighbours) {
    out.put(each.of);
    write(out, each.passage);
  }
  out.put(std::uint64_t{found.signals.exact_code}).put(found.signals.idf_share);
  out.put(found.signals.best_similarity).put(found.signals.best_rerank);
  out.put(std::uint64_t{found.signals.agreeing_legs}).end_of("signals");
  write(out, found.trace);
  return out.text();
}

/// What a caller gets: the answer, or the error's code and sentence.
inline std::string everything(const rag::result<rag::answer>& found) {
  if (found) return everything(*found);
  return "error " + std::to_string(static_cast<int>(found.failure().code())) + " " +
         found.failure().message();
}

/// The first line in which two answers differ, from both; nothing if they are equal.
inline std::string difference(std::string_view a, std::string_view b) {
  for (;;) {
    const std::string_view left = a.substr(0, a.find('\n'));
    const std::string_view right = b.substr(0, b.find('\n'));
    if (left != right) return "'" + std::string(left) + "' and '" + std::string(right) + "'";
    if (a.empty() && b.empty()) return {};
    a.remove_prefix((std::min)(left.size() + 1, a.size()));
    b.remove_prefix((std::min)(right.size() + 1, b.size()));
  }
}

}  // namespace fakes

#endif
