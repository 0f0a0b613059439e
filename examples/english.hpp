// English words for the analyser: Porter's stems by Debian's libstemmer, and 33 stop words. Both
// are callbacks; the header itself knows no language.
#pragma once

#include <libstemmer.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <rag_retrieve.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

/// The stem of one folded word: "connections" and "connected" give "connect". A stemmer keeps its
/// last word in itself, so each thread has its own.
inline std::string porter_stem(std::string_view word) {
  struct closer {
    void operator()(sb_stemmer* stemmer) const { sb_stemmer_delete(stemmer); }
  };
  thread_local const std::unique_ptr<sb_stemmer, closer> stemmer(sb_stemmer_new("porter", "UTF_8"));
  if (!stemmer) throw std::runtime_error("libstemmer has no stemmer called porter");
  const sb_symbol* stem =
      sb_stemmer_stem(stemmer.get(), reinterpret_cast<const sb_symbol*>(word.data()),
                      static_cast<int>(word.size()));
  if (stem == nullptr) throw std::runtime_error("libstemmer is out of memory");
  return {reinterpret_cast<const char*>(stem),
          static_cast<std::size_t>(sb_stemmer_length(stemmer.get()))};
}

/// The words that Lucene's English analyser leaves out.
inline bool is_english_stop_word(std::string_view word) {
  static constexpr std::array<std::string_view, 33> words{
      "a",   "an",    "and",  "are",   "as",    "at",   "be",   "but", "by",  "for",  "if",
      "in",  "into",  "is",   "it",    "no",    "not",  "of",   "on",  "or",  "such", "that",
      "the", "their", "then", "there", "these", "they", "this", "to",  "was", "will", "with"};
  return std::binary_search(words.begin(), words.end(), word);
}

/// Stop words leave chunks too and so do not count in their lengths, as in the engines that
/// published figures come from. A question of stop words alone finds nothing then; whoever wants
/// it answered sets `is_stop_word` instead, which touches questions only.
inline rag_retrieve::analysis_options english_analysis() {
  return {.stem =
              [](std::string_view word) {
                return is_english_stop_word(word) ? std::string() : porter_stem(word);
              },
          .tag = "porter-33"};
}
