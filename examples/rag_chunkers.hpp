// How the tool rag cuts documents: the chunkers of the header, by the options of the command line.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iostream>
#include <iterator>
#include <optional>
#include <rag_retrieve.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rag_input.hpp"

namespace rag_tool {

/// What the command line says about cutting.
struct chunker_settings {
  std::string chunker = "recursive";
  std::string unit = "word";
  std::size_t chunk_size = rag::default_chunk_size;
  std::size_t overlap = 0;
  std::size_t max_heading_level = 6;
  std::size_t window = 1, parent_size = 1024, child_size = 128;
  std::string threshold_kind = "percentile";
  std::optional<double> threshold;
  bool size_given = false, heading_level_given = false;
  bool semantic_given = false, family_given = false;  ///< an option of semantic, of parent-child
  std::vector<std::string> identifiers;

  [[nodiscard]] bool is_one_of(std::initializer_list<std::string_view> names) const {
    return std::find(names.begin(), names.end(), chunker) != names.end();
  }
};

inline rag::identifier_finder finder_for(const chunker_settings& settings) {
  auto finder = rag::identifier_finder::try_make({.patterns = settings.identifiers});
  if (!finder) misuse("--identifier: " + finder.failure().message());
  return std::move(*finder);
}

/// One token for each code point, white space included.
inline rag::tokenizer code_points() {
  return {.split = [](std::string_view text) {
    std::vector<rag::byte_range> tokens;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t next = at + rag::decode(text, at).length;
      tokens.push_back({at, next});
      at = next;
    }
    return tokens;
  }};
}

/// One token for each byte.
inline rag::tokenizer bytes() {
  return {.count = [](std::string_view text) { return text.size(); },
          .split =
              [](std::string_view text) {
                std::vector<rag::byte_range> tokens(text.size());
                for (std::size_t at = 0; at < text.size(); ++at) tokens[at] = {at, at + 1};
                return tokens;
              }};
}

inline rag::tokenizer tokenizer_for(const std::string& unit) {
  if (unit == "code-point") return code_points();
  if (unit == "byte") return bytes();
  return {};
}

/// Words hashed to places of a vector, for the semantic chunker where there is no model: texts are
/// alike if they share words. It knows no meaning.
inline std::vector<float> hashed_words(std::string_view text) {
  std::vector<float> values(256);
  std::uint32_t hash = 2166136261U;
  bool inside = false;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(at < text.size() ? text[at] : ' ');
    if (byte >= 0x80 || std::isalnum(byte) != 0) {
      hash = (hash ^ static_cast<std::uint32_t>(std::tolower(byte))) * 16777619U;
      inside = true;
    } else if (inside) {
      values[hash % values.size()] += (hash >> 16) % 2 == 0 ? 1.0F : -1.0F;
      hash = 2166136261U;
      inside = false;
    }
  }
  return values;
}

inline rag::semantic_options semantic_settings(const chunker_settings& settings) {
  constexpr std::string_view kinds[] = {"absolute", "percentile", "standard-deviation",
                                        "interquartile", "gradient"};
  const auto* const kind = std::find(std::begin(kinds), std::end(kinds), settings.threshold_kind);
  rag::semantic_options options{.window = settings.window, .threshold = settings.threshold};
  options.threshold_kind = static_cast<rag::semantic_threshold>(kind - std::begin(kinds));
  options.chunk_size = settings.chunk_size;
  options.tokens = tokenizer_for(settings.unit);
  options.embed = {.model = "hashed words", .embed = [](auto texts, rag::text_role) {
                     std::vector<std::vector<float>> vectors;
                     for (const auto text : texts) vectors.push_back(hashed_words(text));
                     return vectors;
                   }};
  return options;
}

/// Says once what the semantic chunker embeds with.
inline void announce(const chunker_settings& settings) {
  if (settings.chunker != "semantic") return;
  say("rag: the semantic chunker uses a built-in hashed word vector; it compares words, not "
      "meaning");
}

inline std::vector<rag::chunk> cut(const rag::document& page, const chunker_settings& settings) {
  const rag::tokenizer tokens = tokenizer_for(settings.unit);
  const std::size_t size = settings.chunk_size;
  if (settings.chunker == "whole") return rag::chunk_whole(page, {.tokens = tokens});
  if (settings.chunker == "fixed") {
    return rag::chunk_fixed(page,
                            {.chunk_size = size, .overlap = settings.overlap, .tokens = tokens});
  }
  if (settings.chunker == "sentence") {
    return rag::chunk_sentences(page, {.chunk_size = size, .tokens = tokens});
  }
  if (settings.chunker == "packed") {
    return rag::chunk_packed(page,
                             {.chunk_size = size, .overlap = settings.overlap, .tokens = tokens});
  }
  if (settings.chunker == "structure") {
    return rag::chunk_structure(
        page,
        {.max_heading_level = settings.max_heading_level, .chunk_size = size, .tokens = tokens});
  }
  if (settings.chunker == "semantic") return rag::chunk_semantic(page, semantic_settings(settings));
  if (settings.chunker == "parent-child") {
    return rag::chunk_parent_child(page, {.parent_size = settings.parent_size,
                                          .child_size = settings.child_size,
                                          .max_heading_level = settings.max_heading_level,
                                          .tokens = tokens});
  }
  return rag::chunk_recursive(page, {.chunk_size = size,
                                     .overlap = settings.overlap,
                                     .max_heading_level = settings.max_heading_level,
                                     .tokens = tokens});
}

/// Refuses what cannot hold together, before any file is read.
inline void check(const chunker_settings& settings) {
  if (settings.overlap > 0 && !settings.is_one_of({"fixed", "packed", "recursive"})) {
    misuse("--overlap has no meaning with --chunker " + settings.chunker +
           "; fixed, packed and recursive overlap");
  }
  if (settings.overlap >= settings.chunk_size) {
    misuse("--overlap " + std::to_string(settings.overlap) + " must be below --chunk-size " +
           std::to_string(settings.chunk_size));
  }
  if (settings.heading_level_given &&
      !settings.is_one_of({"structure", "recursive", "parent-child"})) {
    misuse("--max-heading-level has no meaning with --chunker " + settings.chunker +
           "; structure, recursive and parent-child look at headings");
  }
  if (settings.semantic_given && settings.chunker != "semantic") {
    misuse("--window, --threshold-kind and --threshold need --chunker semantic");
  }
  if (settings.family_given && settings.chunker != "parent-child") {
    misuse("--parent-size and --child-size need --chunker parent-child");
  }
  if (settings.size_given && settings.chunker == "parent-child") {
    misuse(
        "--chunk-size has no meaning with --chunker parent-child, which has --parent-size and "
        "--child-size");
  }
  try {
    static_cast<void>(cut(rag::document{.id = "-"}, settings));  // sizes and thresholds in range
  } catch (const rag::error& problem) {
    misuse(problem.message());
  }
  static_cast<void>(finder_for(settings));
}

/// The codes of a chunk as they are written, each once: of the title, its headings, its body.
inline std::vector<std::string> codes_of(const rag::document& page, const rag::chunk& piece,
                                         const rag::identifier_finder& finder) {
  std::vector<std::string> codes;
  std::set<std::string> seen;
  const auto collect = [&](std::string_view text) {
    for (const rag::identifier_match& match : finder.find(text)) {
      if (!seen.insert(match.value).second) continue;
      codes.push_back(rag::normalise_identifier(rag::slice(text, match.where), true));
    }
  };
  collect(page.title);
  for (const std::string& title : piece.heading_path) collect(title);
  collect(piece.heading);
  collect(rag::slice(page.text, piece.body));
  return codes;
}

}  // namespace rag_tool
