// What holds for the chunks of every document: ranges, limits, edges, coverage, ids. Each check
// answers with its first fault, or an empty string.
#ifndef RAG_RETRIEVE_TESTS_CHUNK_PROPERTIES_HPP
#define RAG_RETRIEVE_TESTS_CHUNK_PROPERTIES_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <rag_retrieve.hpp>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace properties {

namespace rag = rag_retrieve;

// ---- counters ----------------------------------------------------------------------------------

inline std::size_t count_bytes(std::string_view text) { return text.size(); }

inline std::size_t count_code_points(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += rag::decode(text, at).length) ++count;
  return count;
}

// Grows with its text, but parts do not add up: three bytes a token, and one for each line end
// that stands inside.
inline std::size_t count_unevenly(std::string_view text) {
  const auto inside = std::count(text.begin(), text.end(), '\n');
  return (text.size() + 2) / 3 + static_cast<std::size_t>(inside);
}

inline std::vector<rag::byte_range> split_bytes(std::string_view text) {
  std::vector<rag::byte_range> out;
  for (std::size_t i = 0; i < text.size(); ++i) out.push_back({i, i + 1});
  return out;
}

struct named_tokenizer {
  std::string_view name;
  rag::tokenizer tokens;
};

inline std::vector<named_tokenizer> tokenizers() {
  return {{"words", {}},
          {"bytes", {.count = count_bytes, .split = {}}},
          {"code points", {.count = count_code_points, .split = {}}},
          {"uneven", {.count = count_unevenly, .split = {}}},
          {"byte tokens", {.count = {}, .split = split_bytes}}};
}

inline std::size_t count_of(const rag::tokenizer& tokens, std::string_view text) {
  if (tokens.count) return tokens.count(text);
  return tokens.split ? tokens.split(text).size() : rag::count_words(text);
}

// ---- the properties ----------------------------------------------------------------------------

struct trial {
  std::string_view chunker;
  std::string_view counter;
  rag::tokenizer tokens;
  std::size_t size = 0;
  std::size_t overlap = 0;
  bool sections = false;
};

inline std::vector<bool> grapheme_edges(std::string_view text) {
  std::vector<bool> edges(text.size() + 1, false);
  for (std::size_t at = 0; at < text.size(); at = rag::next_grapheme(text, at)) edges[at] = true;
  edges[text.size()] = true;
  return edges;
}

inline std::string fault_in_chunk(const rag::document& page, const rag::chunk& piece,
                                  const trial& t, const std::vector<bool>& edges) {
  const std::string_view text = page.text;
  if (piece.range.begin >= piece.range.end || piece.range.end > text.size()) return "range";
  if (piece.body.begin < piece.range.begin || piece.body.end != piece.range.end) return "body";
  if (piece.body.empty()) return "no body";
  if (rag::trim(text, piece.range) != piece.range) return "outer white space";
  if (!edges[piece.range.begin] || !edges[piece.range.end]) return "edge inside a grapheme";
  if (piece.heading.empty() && piece.range != piece.body) return "body without heading";
  const std::string searched = rag::search_text(page, piece);
  if (piece.token_count != count_of(t.tokens, searched)) return "token count";
  const std::size_t most =
      (std::max)(piece.token_count, count_of(t.tokens, rag::chunk_text(page, piece)));
  if (piece.oversize != (piece.token_count > t.size)) return "flag";
  if (most > t.size &&
      !(piece.oversize && rag::next_grapheme(text, piece.range.begin) == piece.range.end)) {
    return "limit";
  }
  if (piece.document_id != page.id || piece.revision != page.revision) return "document";
  return {};
}

inline std::string fault_in_order(const std::vector<rag::chunk>& chunks, const rag::document& page,
                                  const trial& t) {
  std::unordered_set<std::string> ids;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (!ids.insert(chunks[i].id).second) return "repeated id " + chunks[i].id;
    if (i == 0) continue;
    const rag::byte_range a = chunks[i - 1].range, b = chunks[i].range;
    if (b.begin <= a.begin || b.end <= a.end) return "no progress";
    if (b.begin >= a.end) continue;
    const std::string_view shared = rag::slice(page.text, {b.begin, a.end});
    if (count_of(t.tokens, shared) > t.overlap) return "overlap";
  }
  return {};
}

// What need not be covered: white space, a byte order mark; with sections front matter, headings.
inline std::string fault_in_cover(const std::vector<rag::chunk>& chunks, const rag::document& page,
                                  const trial& t) {
  const std::string_view text = page.text;
  std::vector<bool> covered(text.size(), false);
  for (const rag::chunk& piece : chunks) {
    for (std::size_t i = piece.range.begin; i < piece.range.end; ++i) covered[i] = true;
  }
  if (text.starts_with("\xEF\xBB\xBF")) std::fill_n(covered.begin(), 3, true);
  if (t.sections) {
    const auto headings = rag::markdown_headings(text);
    std::size_t matter = rag::detail::after_front_matter(text);
    std::fill_n(covered.begin(), matter, true);
    for (const rag::markdown_heading& heading : headings) {
      if (covered[rag::trim(text, heading.lines).begin]) continue;
      const bool in_path = std::any_of(chunks.begin(), chunks.end(), [&](const rag::chunk& piece) {
        const auto& path = piece.heading_path;
        return piece.range.begin >= heading.lines.end &&
               std::find(path.begin(), path.end(), heading.title) != path.end();
      });
      if (!in_path) return "a heading is neither covered nor in a path: " + heading.title;
      for (std::size_t i = heading.lines.begin; i < heading.lines.end; ++i) covered[i] = true;
    }
  }
  for (std::size_t at = 0; at < text.size();) {
    const rag::code_point point = rag::decode(text, at);
    if (!covered[at] && !rag::is_white_space(point.value)) return "lost byte " + std::to_string(at);
    at += point.length;
  }
  return {};
}

inline std::string fault_in_chunks(const std::vector<rag::chunk>& chunks, const rag::document& page,
                                   const trial& t, const std::vector<bool>& edges) {
  for (const rag::chunk& piece : chunks) {
    const std::string fault = fault_in_chunk(page, piece, t, edges);
    if (!fault.empty()) {
      return fault + " of " + piece.id + " [" + std::to_string(piece.range.begin) + ", " +
             std::to_string(piece.range.end) + ")";
    }
  }
  return fault_in_order(chunks, page, t);
}

// What a parent's children leave uncovered: white space, and headings that stand in their paths.
inline std::string fault_in_family(const rag::chunk& parent,
                                   const std::vector<rag::chunk>& children,
                                   const rag::document& page) {
  std::vector<bool> covered(page.text.size(), false);
  for (const rag::chunk& child : children) {
    if (child.parent_id != parent.id) return "a child stands behind another parent";
    if (child.range.begin < parent.range.begin || child.range.end > parent.range.end) {
      return "a child reaches out of its parent";
    }
    for (std::size_t i = child.range.begin; i < child.range.end; ++i) covered[i] = true;
  }
  if (children.size() == 1) return "a single child";
  if (children.empty()) return {};
  for (const rag::markdown_heading& heading : rag::markdown_headings(page.text)) {
    const bool in_path =
        std::any_of(children.begin(), children.end(), [&](const rag::chunk& piece) {
          const auto& path = piece.heading_path;
          return piece.range.begin >= heading.lines.end &&
                 std::find(path.begin(), path.end(), heading.title) != path.end();
        });
    if (!in_path) continue;
    for (std::size_t i = heading.lines.begin; i < heading.lines.end; ++i) covered[i] = true;
  }
  for (std::size_t at = parent.range.begin; at < parent.range.end;) {
    const rag::code_point point = rag::decode(page.text, at);
    if (!covered[at] && !rag::is_white_space(point.value)) {
      return "no child covers byte " + std::to_string(at);
    }
    at += point.length;
  }
  return {};
}

// Parents are the recursive chunks; children hold to the child size and lie in their parents.
inline std::string fault_in_families(const rag::document& page,
                                     const rag::parent_child_options& options, trial t,
                                     const std::vector<bool>& edges) {
  const auto made = rag::try_chunk_parent_child(page, options);
  const auto alone = rag::try_chunk_recursive(page, {.chunk_size = options.parent_size,
                                                     .max_heading_level = options.max_heading_level,
                                                     .sentences = options.sentences,
                                                     .tokens = options.tokens});
  if (!made || !alone) return "refused";
  std::vector<rag::chunk> parents, children;
  std::unordered_set<std::string> ids;
  for (std::size_t i = 0; i < made->size();) {
    const rag::chunk& parent = made.value()[i++];
    std::vector<rag::chunk> own;
    while (i < made->size() && !made.value()[i].parent_id.empty()) own.push_back(made.value()[i++]);
    const std::string fault = fault_in_family(parent, own, page);
    if (!fault.empty()) return fault;
    parents.push_back(parent);
    for (rag::chunk& child : own) children.push_back(std::move(child));
  }
  for (const rag::chunk& piece : made.value()) {
    if (!ids.insert(piece.id).second) return "repeated id " + piece.id;
  }
  if (parents.size() != alone->size()) return "other parents than recursive chunks";
  for (std::size_t i = 0; i < parents.size(); ++i) {
    const rag::chunk& other = alone.value()[i];
    if (parents[i].id != other.id || parents[i].range != other.range) return "not " + other.id;
    if (!parents[i].parent_id.empty()) return "a parent has a parent";
  }
  t.size = options.parent_size;
  const std::string fault = fault_in_chunks(parents, page, t, edges);
  if (!fault.empty()) return fault;
  t.size = options.child_size;
  return fault_in_chunks(children, page, t, edges);
}

// ---- an embedder -------------------------------------------------------------------------------

// Few directions, so that there are equal distances and zero vectors.
inline rag::result<std::vector<std::vector<float>>> embed_roughly(
    std::span<const std::string_view> texts, rag::text_role) {
  std::vector<std::vector<float>> out;
  for (const std::string_view text : texts) {
    std::uint64_t hash = 7;
    for (char c : text) hash = hash * 31 + static_cast<unsigned char>(c);
    std::vector<float> values;
    for (int i = 0; i < 3; ++i) {
      hash ^= hash >> 29;
      hash *= 0xBF58476D1CE4E5B9U;
      values.push_back(static_cast<float>((hash >> 33) % 3) - 1.0F);
    }
    out.push_back(std::move(values));
  }
  return out;
}

}  // namespace properties

#endif
