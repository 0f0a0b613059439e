// Any bytes and any options: what holds for chunks holds. The first bytes choose chunker, counter
// and sizes, the rest is the document. run.sh builds it.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <rag_retrieve.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "../chunk_properties.hpp"

namespace rag = rag_retrieve;

namespace {

void require(const std::string& fault, std::string_view chunker) {
  if (fault.empty()) return;
  std::fprintf(stderr, "%.*s: %s\n", static_cast<int>(chunker.size()), chunker.data(),
               fault.c_str());
  std::abort();
}

/// The options of a run, read from the input's first bytes.
struct choices {
  rag::tokenizer tokens = {};
  std::size_t size = 1;
  std::size_t overlap = 0;
  std::size_t least = 0;
  std::size_t level = 6;
  rag::sentence_options sentences = {};
  std::size_t window = 0;
  rag::semantic_threshold kind = rag::semantic_threshold::absolute;
};

choices read(std::string_view bytes) {
  const auto byte = [bytes](std::size_t i) {
    return static_cast<std::size_t>(static_cast<unsigned char>(bytes[i]));
  };
  choices made;
  const auto counters = properties::tokenizers();
  made.tokens = counters[byte(0) % counters.size()].tokens;
  made.size = 1 + byte(1) * byte(1) / 32;  // 1 to 2033, small ones more often
  made.overlap = byte(2) % made.size;
  made.least = byte(3) % (made.size + 1);
  made.level = 1 + byte(4) % 6;
  made.sentences.newline_ends_sentence = (byte(4) & 0x80U) != 0;
  made.window = byte(5) / 5 % 3;
  made.kind = static_cast<rag::semantic_threshold>(byte(5) % 5);
  return made;
}

void examine(const rag::document& page, const choices& with, std::string_view chunker,
             const rag::result<std::vector<rag::chunk>>& made, std::size_t overlap, bool sections) {
  if (!made) require(made.failure().message(), chunker);
  properties::trial t{.chunker = chunker, .counter = {}, .tokens = with.tokens};
  t.size = with.size;
  t.overlap = overlap;
  t.sections = sections;
  const auto edges = properties::grapheme_edges(page.text);
  require(properties::fault_in_chunks(made.value(), page, t, edges), chunker);
  require(properties::fault_in_cover(made.value(), page, t), chunker);
}

void examine_all(const rag::document& page, const choices& c) {
  examine(
      page, c, "fixed",
      rag::try_chunk_fixed(page, {.chunk_size = c.size, .overlap = c.overlap, .tokens = c.tokens}),
      c.overlap, false);
  examine(page, c, "sentences",
          rag::try_chunk_sentences(
              page, {.chunk_size = c.size, .sentences = c.sentences, .tokens = c.tokens}),
          0, false);
  examine(page, c, "packed",
          rag::try_chunk_packed(page, {.chunk_size = c.size,
                                       .overlap = c.overlap,
                                       .sentences = c.sentences,
                                       .tokens = c.tokens}),
          c.overlap, false);
  examine(page, c, "structure",
          rag::try_chunk_structure(page, {.max_heading_level = c.level,
                                          .chunk_size = c.size,
                                          .min_chunk_size = c.least,
                                          .sentences = c.sentences,
                                          .tokens = c.tokens}),
          0, true);
  examine(page, c, "recursive",
          rag::try_chunk_recursive(page, {.chunk_size = c.size,
                                          .overlap = c.overlap,
                                          .min_chunk_size = c.least,
                                          .max_heading_level = c.level,
                                          .sentences = c.sentences,
                                          .tokens = c.tokens}),
          c.overlap, true);
  examine(
      page, c, "semantic",
      rag::try_chunk_semantic(
          page, {.embed = {.model = "rough", .batch_size = 7, .embed = properties::embed_roughly},
                 .window = c.window,
                 .threshold_kind = c.kind,
                 .chunk_size = c.size,
                 .min_chunk_size = c.least,
                 .sentences = c.sentences,
                 .tokens = c.tokens}),
      0, false);
  choices no_limit = c;
  no_limit.size = static_cast<std::size_t>(-1);
  examine(page, no_limit, "whole", rag::try_chunk_whole(page, {.tokens = c.tokens}), 0, false);
  const properties::trial family{.chunker = {}, .counter = {}, .tokens = c.tokens};
  require(properties::fault_in_families(page,
                                        {.parent_size = c.size + 1 + c.least,
                                         .child_size = c.size,
                                         .max_heading_level = c.level,
                                         .sentences = c.sentences,
                                         .tokens = c.tokens},
                                        family, properties::grapheme_edges(page.text)),
          "parent-child");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t options = 6;
  if (size < options) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const rag::document page{.id = "d", .text = std::string(bytes.substr(options))};
  examine_all(page, read(bytes));
  return 0;
}
