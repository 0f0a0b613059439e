// Any bytes: sentences stand apart and in order, at grapheme boundaries, and cover all but white
// space; words are counted as they are listed. run.sh builds it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <rag_retrieve.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "../chunk_properties.hpp"

namespace rag = rag_retrieve;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void examine(std::string_view text, const rag::sentence_options& options) {
  const std::vector<bool> edges = properties::grapheme_edges(text);
  std::vector<bool> covered(text.size(), false);
  std::size_t last = 0;
  for (const rag::byte_range& sentence : rag::sentence_ranges(text, {0, text.size()}, options)) {
    require(sentence.begin >= last && sentence.begin < sentence.end);
    require(sentence.end <= text.size());
    require(edges[sentence.begin] && edges[sentence.end]);
    require(rag::trim(text, sentence) == sentence);
    for (std::size_t i = sentence.begin; i < sentence.end; ++i) covered[i] = true;
    last = sentence.end;
  }
  for (std::size_t at = 0; at < text.size();) {
    const rag::code_point point = rag::decode(text, at);
    require(covered[at] || rag::is_white_space(point.value));
    at += point.length;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  examine(text, {});
  examine(text, {.abbreviations = {"Abb.", "x"}, .newline_ends_sentence = true});
  // An abbreviation that cannot stand in a text turns off the quick way for plain full stops.
  require(rag::sentence_ranges(text, {0, text.size()}) ==
          rag::sentence_ranges(text, {0, text.size()}, {.abbreviations = {std::string(40, 'q')}}));
  require(rag::count_words(text) == rag::word_ranges(text).size());
  return 0;
}
