// Prints what must be the same on every compiler, library, processor and locale: cuts, terms, BM25
// in whole numbers, the order of fused and of nearest chunks. run.sh compares it with golden.txt,
// which may change only when a chunker's, analyser's or score's definition does.
//
//   golden DATA_FOLDER
#include <rag_retrieve.hpp>

#include <clocale>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

namespace rag = rag_retrieve;

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void print(const char* how, const std::vector<rag::chunk>& chunks) {
  std::printf("%s", how);
  for (const rag::chunk& piece : chunks) {
    std::printf(" %zu-%zu:%zu", piece.range.begin, piece.range.end, piece.token_count);
  }
  std::printf("\n");
}

void print_cuts(const rag::document& page) {
  std::printf("%s, %zu bytes\n", page.id.c_str(), page.text.size());
  rag::fixed_options fixed;
  fixed.chunk_size = 20;
  fixed.overlap = 5;
  rag::single_sentence_options sentences;
  sentences.chunk_size = 20;
  rag::packed_options packed;
  packed.chunk_size = 20;
  rag::structure_options structure;
  structure.chunk_size = 20;
  rag::recursive_options recursive;
  recursive.chunk_size = 20;
  print("whole", rag::chunk_whole(page));
  print("fixed", rag::chunk_fixed(page, fixed));
  print("sentence", rag::chunk_sentences(page, sentences));
  print("packed", rag::chunk_packed(page, packed));
  print("structure", rag::chunk_structure(page, structure));
  print("recursive", rag::chunk_recursive(page, recursive));
  std::printf("terms");
  for (const std::string& term : rag::analyse(page.text)) {
    std::printf(" ");
    for (const char c : term) std::printf("%02x", unsigned{static_cast<unsigned char>(c)});
  }
  std::printf("\n");
}

/// Marks, emoji, scripts without spaces, three kinds of line end, and bytes that are not UTF-8.
std::string hard_text() {
  return "# Caf\xC3\xA9 STRASSE Stra\xC3\x9F"
         "e\r\n\r\ne\xCC\x81t\xC3\xA9 No. 5 is here. Dr. Who? Yes!\rlone "
         "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9 \xF0\x9F\x87\xA9\xF0\x9F\x87\xAA "
         "\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E\xE3\x80\x82\xE6\xA4\x9C\xE7\xB4\xA2\n\n"
         "\xE0\xB8\xAA\xE0\xB8\xA7\xE0\xB8\xB1\xE0\xB8\xAA \xFF\xC0\x80 end";
}

void print_search(const std::vector<rag::document>& pages) {
  rag::access_directory people;
  people.set_groups({"", "reader"}, {"all"});
  rag::retriever_options options;
  options.permissions = &people;
  options.identifiers = {"PAY-###"};
  rag::retriever retriever(options);
  for (const rag::document& page : pages) retriever.upsert(page, rag::chunk_structure(page));
  rag::query asked;
  asked.text = "Checkout started showing PAY-042 after I changed the gateway key";
  asked.per_document = 9;
  asked.explain = true;
  const rag::scope reader = retriever.scope_for({"", "reader"});
  const rag::answer found = retriever.search(asked, reader);
  for (const auto& [id, explained] : found.trace.bm25) {
    std::printf("%s %.0f\n", id.c_str(), explained.score * 1048576.0);
    for (const rag::term_explanation& term : explained.terms) {
      if (term.tf > 0) std::printf(" %s:%.0f", term.term.c_str(), term.value * 1048576.0);
    }
    std::printf("\n");
  }
}

void print_fusion() {
  const std::vector<std::vector<std::string>> lists = {{"R", "G", "E42", "E43", "E41"},
                                                       {"E42", "R", "E43", "G", "E41"}};
  for (const auto& hit : rag::fuse_by_rank<std::string>(lists)) {
    std::printf("%s %.0f\n", hit.id.c_str(), hit.score * 1e12);
  }
}

void print_nearest() {
  const std::size_t dimension = 24;
  rag::flat_index index(dimension);
  std::uint64_t state = 1;
  const auto vector = [&] {
    std::vector<float> values(dimension);
    for (float& value : values) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      value = static_cast<float>(static_cast<int>(state >> 48) - 32768) / 32768.0F;
    }
    return values;
  };
  for (int i = 0; i < 500; ++i) static_cast<void>(index.try_add(vector(), "row").value());
  for (int i = 0; i < 3; ++i) {
    const auto hits = index.try_search(vector(), 8, rag::row_set::all(500)).value();
    for (const rag::vector_hit& hit : hits) std::printf("%u ", static_cast<unsigned>(hit.row));
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::setlocale(LC_ALL, "");
  std::vector<rag::document> pages;
  for (const char* id : {"gateway-errors.md", "reconnect-gateway.md", "checkout-failures.md"}) {
    rag::document page;
    page.id = id;
    page.text = read(std::string(argv[1]) + "/pay042/" + id);
    page.allowed_groups = {"all"};
    pages.push_back(page);
    print_cuts(page);
  }
  rag::document hard;
  hard.id = "hard";
  hard.text = hard_text();
  print_cuts(hard);
  print_search(pages);
  print_fusion();
  print_nearest();
}
