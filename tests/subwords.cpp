// Sections 3 and 7 with a real subword vocabulary: byte pairs, learnt here from the pages in data/.
// Counts do not add up: a word costs less behind a space than alone, and a cut inside a word undoes
// its merges. Limits must hold by the count of the final text all the same, with few counts.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <rag_retrieve.hpp>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace subwords_tests {

namespace subwords {

namespace rag = rag_retrieve;
using chunks = std::vector<rag::chunk>;
using ranges = std::vector<rag::byte_range>;

/// Some pages of the collection of error codes, joined.
inline std::string pages(std::size_t bytes) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(RAG_RETRIEVE_DATA_DIR "/rust-errors")) {
    if (entry.path().extension() == ".md") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::string text;
  for (const auto& file : files) {
    if (text.size() >= bytes) break;
    std::ifstream in(file, std::ios::binary);
    text.append(std::istreambuf_iterator<char>(in), {});
    text += "\n\n";
  }
  return text;
}

/// Byte-pair encoding: a text falls into words, each with the space before it; a word into bytes,
/// of which the pairs that were joined most often in the training text are joined again, in the
/// order in which they were learnt.
class byte_pairs {
 public:
  byte_pairs(std::string_view text, std::size_t merges) {
    std::map<std::vector<int>, std::size_t> words;
    for_each_word(text, [&](rag::byte_range word) { ++words[bytes_of(rag::slice(text, word))]; });
    for (std::size_t n = 0; n < merges; ++n) {
      std::map<std::pair<int, int>, std::size_t> pairs;
      for (const auto& [word, count] : words) {
        for (std::size_t i = 0; i + 1 < word.size(); ++i) pairs[{word[i], word[i + 1]}] += count;
      }
      const auto best =
          std::max_element(pairs.begin(), pairs.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
      if (best == pairs.end() || best->second < 2) break;
      const int made = 256 + static_cast<int>(n);
      ranks_[best->first] = made;
      std::map<std::vector<int>, std::size_t> joined;
      for (const auto& [word, count] : words) {
        std::vector<int> next = word;
        join(next, best->first, made);
        joined[next] += count;
      }
      words = std::move(joined);
    }
  }

  [[nodiscard]] std::size_t pieces() const { return 256 + ranks_.size(); }

  [[nodiscard]] std::size_t count(std::string_view text) const {
    std::size_t tokens = 0;
    for_each_word(
        text, [&](rag::byte_range word) { tokens += lengths_of(rag::slice(text, word)).size(); });
    return tokens;
  }

  [[nodiscard]] ranges split(std::string_view text) const {
    ranges out;
    for_each_word(text, [&](rag::byte_range word) {
      std::size_t at = word.begin;
      for (const std::size_t length : lengths_of(rag::slice(text, word))) {
        out.push_back({at, at + length});
        at += length;
      }
    });
    return out;
  }

 private:
  template <class Visit>
  static void for_each_word(std::string_view text, Visit&& visit) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t word = (std::min)(text.find_first_not_of(' ', at), text.size());
      const std::size_t begin = word > at && word < text.size() ? word - 1 : at;
      if (begin > at) visit({at, begin});  // further spaces
      std::size_t end = (std::min)(text.find_first_of(" \n", word + 1), text.size());
      if (word == text.size()) end = word;
      visit({begin, end});
      at = end;
    }
  }

  static std::vector<int> bytes_of(std::string_view word) {
    std::vector<int> out;
    for (const char c : word) out.push_back(static_cast<unsigned char>(c));
    return out;
  }

  static void join(std::vector<int>& word, std::pair<int, int> pair, int made) {
    std::vector<int> out;
    for (std::size_t i = 0; i < word.size(); ++i) {
      const bool both = i + 1 < word.size() && word[i] == pair.first && word[i + 1] == pair.second;
      out.push_back(both ? made : word[i]);
      i += both ? 1U : 0U;
    }
    word = std::move(out);
  }

  /// The lengths of a word's tokens, in bytes.
  const std::vector<std::size_t>& lengths_of(std::string_view word) const {
    auto& known = cache_[std::string(word)];
    if (!known.empty() || word.empty()) return known;
    std::vector<int> tokens = bytes_of(word);
    known.assign(word.size(), 1);
    for (;;) {
      std::size_t best = tokens.size();
      int least = 0;
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
        const auto found = ranks_.find({tokens[i], tokens[i + 1]});
        if (found == ranks_.end() || (best < tokens.size() && found->second >= least)) continue;
        best = i;
        least = found->second;
      }
      if (best == tokens.size()) return known;
      const auto at = static_cast<std::ptrdiff_t>(best);
      tokens[best] = least;
      known[best] += known[best + 1];
      tokens.erase(tokens.begin() + at + 1);
      known.erase(known.begin() + at + 1);
    }
  }

  std::map<std::pair<int, int>, int> ranks_;
  mutable std::unordered_map<std::string, std::vector<std::size_t>> cache_;
};

inline const byte_pairs& vocabulary() {
  static const byte_pairs made(pages(40000), 400);
  return made;
}

struct watched {
  std::size_t calls = 0;
  std::size_t seen = 0;

  rag::tokenizer tokens() {
    return {.count =
                [this](std::string_view text) {
                  ++calls;
                  seen += text.size();
                  return vocabulary().count(text);
                },
            .split = {}};
  }
};

/// Two directions, by the length of a text.
inline rag::embedder embedder() {
  return {
      .model = "lengths", .embed = [](std::span<const std::string_view> texts, rag::text_role) {
        std::vector<std::vector<float>> out;
        for (const std::string_view text : texts) {
          out.push_back(text.size() % 3 == 0 ? std::vector<float>{1, 0} : std::vector<float>{1, 1});
        }
        return out;
      }};
}

/// Each chunk is within its size by the vocabulary's count, as a slice and with its heading.
inline void limit_holds(const rag::document& page, const chunks& pieces, std::size_t size) {
  CHECK(!pieces.empty());
  for (const rag::chunk& piece : pieces) {
    const std::size_t searched = vocabulary().count(rag::search_text(page, piece));
    const std::size_t shown = vocabulary().count(rag::chunk_text(page, piece));
    if (searched == piece.token_count && (std::max)(searched, shown) <= size) continue;
    if (piece.oversize && rag::next_grapheme(page.text, piece.range.begin) == piece.range.end) {
      continue;
    }
    FAIL_CHECK("a chunk of ", (std::max)(searched, shown), " tokens, limit ", size, ": ",
               std::string(rag::chunk_text(page, piece)));
  }
}

}  // namespace subwords

using namespace subwords;

TEST_CASE("subwords: a vocabulary of some hundred pieces, whose counts do not add up") {
  const byte_pairs& words = vocabulary();
  CHECK(words.pieces() == 656);
  const std::string_view text = "This error occurs when a trait is used. The type is unknown.";
  CHECK(words.count(text) < text.size() / 2);
  std::size_t more = 0, fewer = 0;
  for (std::size_t at = 1; at < text.size(); ++at) {
    const std::size_t parts = words.count(text.substr(0, at)) + words.count(text.substr(at));
    const std::size_t trimmed =
        text[at] == ' ' ? words.count(text.substr(0, at)) + words.count(text.substr(at + 1))
                        : parts;
    more += parts > words.count(text) || trimmed > words.count(text) ? 1U : 0U;
    fewer += trimmed < words.count(text) ? 1U : 0U;
  }
  CHECK(more > 20);
  CHECK(fewer > 0);
  std::string joined;
  for (const rag::byte_range& token : words.split(text)) joined += rag::slice(text, token);
  CHECK(joined == text);
}

TEST_CASE("subwords: every chunker keeps its limit by the count of the final text, in few counts") {
  const rag::document page{.id = "doc", .text = pages(30000)};
  for (const std::size_t size : {8U, 24U, 64U, 200U, 600U}) {
    const auto look = [&](std::string_view name, double most, auto cut) {
      watched counter;
      const rag::result<chunks> made = cut(counter.tokens());
      REQUIRE_MESSAGE(made.ok(), name);
      limit_holds(page, *made, size);
      const double calls =
          static_cast<double>(counter.calls) / static_cast<double>(made.value().size());
      const double seen = static_cast<double>(counter.seen) / static_cast<double>(page.text.size());
      MESSAGE(name, " at ", size, ": ", made.value().size(), " chunks, ", calls,
              " counts for each, ", seen, " times the text");
      CHECK_MESSAGE(calls <= most, name, " at ", size);
    };
    look("fixed", 8, [&](const rag::tokenizer& tokens) {
      return rag::try_chunk_fixed(page, {.chunk_size = size, .tokens = tokens});
    });
    look("fixed, overlapping", 16, [&](const rag::tokenizer& tokens) {
      return rag::try_chunk_fixed(page,
                                  {.chunk_size = size, .overlap = size / 4, .tokens = tokens});
    });
    look("sentences", 8, [&](const rag::tokenizer& tokens) {
      return rag::try_chunk_sentences(page, {.chunk_size = size, .tokens = tokens});
    });
    look("packed", 8, [&](const rag::tokenizer& tokens) {
      return rag::try_chunk_packed(page, {.chunk_size = size, .tokens = tokens});
    });
    look("packed, overlapping", 16, [&](const rag::tokenizer& tokens) {
      return rag::try_chunk_packed(page,
                                   {.chunk_size = size, .overlap = size / 4, .tokens = tokens});
    });
    look("structure", 10, [&](const rag::tokenizer& tokens) {
      return rag::try_chunk_structure(
          page, {.chunk_size = size, .min_chunk_size = size / 4, .tokens = tokens});
    });
    look("recursive", 10, [&](const rag::tokenizer& tokens) {
      return rag::try_chunk_recursive(
          page,
          {.chunk_size = size, .overlap = size / 4, .min_chunk_size = size / 4, .tokens = tokens});
    });
    // A text is parted again and again at its largest distance, then what is too short is joined:
    // counts go with the cuts, of which there are more than chunks.
    look("semantic", 40, [&](const rag::tokenizer& tokens) {
      return rag::try_chunk_semantic(
          page,
          {.embed = embedder(), .chunk_size = size, .min_chunk_size = size / 4, .tokens = tokens});
    });
    look("parent-child", 12, [&](const rag::tokenizer& tokens) {
      return rag::try_chunk_parent_child(
          page, {.parent_size = size, .child_size = size / 2, .tokens = tokens});
    });
  }
}

TEST_CASE(
    "subwords: windows by the tokens themselves have exactly their number, but at graphemes") {
  const rag::document page{.id = "doc", .text = pages(6000)};
  const rag::tokenizer tokens{
      .count = {}, .split = [](std::string_view text) { return vocabulary().split(text); }};
  const chunks pieces = rag::chunk_fixed(page, {.chunk_size = 50, .overlap = 10, .tokens = tokens});
  limit_holds(page, pieces, 50);
  for (std::size_t i = 1; i < pieces.size(); ++i) {
    const rag::byte_range shared{pieces[i].range.begin, pieces[i - 1].range.end};
    CHECK(pieces[i].range.begin <= pieces[i - 1].range.end);
    CHECK(vocabulary().count(rag::slice(page.text, shared)) <= 10);
  }
}

}  // namespace subwords_tests
