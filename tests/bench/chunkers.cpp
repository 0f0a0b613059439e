// Bytes a second of every chunker, beside ICU's sentence iteration, a scan for line ends and, where
// it is found, cmark. chunkers.sh builds it, runs it and prints the table; chunkers.py makes the
// texts and says what each row means.
//
// usage: chunkers FOLDER [options of Google Benchmark]
//
// FOLDER holds prose.txt, wrapped.txt, and pages.txt: Markdown, a byte 0 after each page. Names are
// ROW/TEXT. The texts prose1, prose4 and prose16 are so many MiB of prose, which repeats itself;
// markdown1 ... the same of pages in one document; pages are chunked one by one.
#include <benchmark/benchmark.h>
#include <unicode/ubrk.h>
#include <unicode/ustring.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <rag_retrieve.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if defined(RAG_RETRIEVE_BENCH_CMARK)
#include <cmark.h>
#endif

namespace rag = rag_retrieve;

namespace {

// ---- texts --------------------------------------------------------------------------------------

using pages = std::vector<rag::document>;

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// So many MiB of a text, again and again; it ends with a whole character.
pages repeated(const std::string& text, std::size_t mib) {
  const std::size_t size = mib << 20;
  std::string out;
  out.reserve(size);
  while (out.size() < size) out.append(text, 0, size - out.size());
  while (!rag::is_valid_utf8(std::string_view(out).substr(out.size() - 1))) out.pop_back();
  return {{.id = "text", .text = std::move(out)}};
}

pages one_by_one(const std::string& all) {
  pages out;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = (std::min)(all.find('\0', at), all.size());
    out.push_back({.id = "page-" + std::to_string(out.size()), .text = all.substr(at, end - at)});
    at = end + 1;
  }
  return out;
}

// ---- rows ---------------------------------------------------------------------------------------

/// Does a row's work on one document; what it returns keeps the compiler from leaving it out.
using work = std::function<std::size_t(const rag::document&)>;

std::size_t line_ends(const rag::document& page) {
  std::size_t count = 0;
  const char* at = page.text.data();
  const char* const end = at + page.text.size();
  while ((at = static_cast<const char*>(
              std::memchr(at, '\n', static_cast<std::size_t>(end - at)))) != nullptr) {
    ++at;
    ++count;
  }
  return count;
}

/// Sentences by ICU as a program with UTF-8 text gets them: converted, then iterated.
class icu_sentences {
 public:
  icu_sentences() {
    UErrorCode status = U_ZERO_ERROR;
    breaks_ = ubrk_open(UBRK_SENTENCE, "en", nullptr, 0, &status);
  }
  ~icu_sentences() { ubrk_close(breaks_); }
  icu_sentences(const icu_sentences&) = delete;
  icu_sentences& operator=(const icu_sentences&) = delete;

  std::size_t count(std::string_view text) {
    wide_.resize(text.size());
    UErrorCode status = U_ZERO_ERROR;
    std::int32_t length = 0;
    u_strFromUTF8WithSub(wide_.data(), static_cast<std::int32_t>(wide_.size()), &length,
                         text.data(), static_cast<std::int32_t>(text.size()), 0xFFFD, nullptr,
                         &status);
    ubrk_setText(breaks_, wide_.data(), length, &status);
    std::size_t count = 0;
    while (ubrk_next(breaks_) != UBRK_DONE) ++count;
    return U_SUCCESS(status) ? count : 0;
  }

 private:
  UBreakIterator* breaks_ = nullptr;
  std::u16string wide_;
};

#if defined(RAG_RETRIEVE_BENCH_CMARK)
std::size_t parsed_by_cmark(const rag::document& page) {
  cmark_node* root = cmark_parse_document(page.text.data(), page.text.size(), CMARK_OPT_DEFAULT);
  const auto kind = static_cast<std::size_t>(cmark_node_get_type(root));
  cmark_node_free(root);
  return kind;
}
#endif

const rag::tokenizer bytes{.count = [](std::string_view text) { return text.size(); }, .split = {}};
constexpr std::size_t sections_stay_whole = std::size_t{1} << 40;

std::vector<std::pair<std::string, work>> rows() {
  using page = rag::document;
  std::vector<std::pair<std::string, work>> all{
      {"icu",
       [icu = std::make_shared<icu_sentences>()](const page& p) { return icu->count(p.text); }},
      {"lines", line_ends},
#if defined(RAG_RETRIEVE_BENCH_CMARK)
      {"cmark", parsed_by_cmark},
#endif
      {"words", [](const page& p) { return rag::count_words(p.text); }},
      {"sentence_ranges",
       [](const page& p) { return rag::sentence_ranges(p.text, {0, p.text.size()}).size(); }},
      {"headings", [](const page& p) { return rag::markdown_headings(p.text).size(); }},
      {"sentences", [](const page& p) { return rag::chunk_sentences(p).size(); }},
      {"structure",
       [](const page& p) {
         return rag::chunk_structure(p, {.chunk_size = sections_stay_whole}).size();
       }},
      {"structure_whole_bytes",
       [](const page& p) {
         return rag::chunk_structure(p, {.chunk_size = sections_stay_whole, .tokens = bytes})
             .size();
       }},
      {"structure_256", [](const page& p) { return rag::chunk_structure(p).size(); }},
  };
  for (const std::size_t size : {200, 1000, 4000}) {
    all.emplace_back("recursive_words_" + std::to_string(size), [size](const page& p) {
      return rag::chunk_recursive(p, {.chunk_size = size}).size();
    });
  }
  for (const std::size_t size : {1000, 4000}) {
    all.emplace_back("recursive_bytes_" + std::to_string(size), [size](const page& p) {
      return rag::chunk_recursive(p, {.chunk_size = size, .tokens = bytes}).size();
    });
  }
  all.emplace_back("fixed_words", [](const page& p) {
    return rag::chunk_fixed(p, {.chunk_size = 200, .overlap = 20}).size();
  });
  for (const std::size_t size : {1000, 4000}) {
    all.emplace_back("fixed_bytes_" + std::to_string(size), [size](const page& p) {
      return rag::chunk_fixed(p, {.chunk_size = size, .tokens = bytes}).size();
    });
  }
  all.emplace_back("packed",
                   [](const page& p) { return rag::chunk_packed(p, {.chunk_size = 200}).size(); });
  all.emplace_back("parent_child", [](const page& p) { return rag::chunk_parent_child(p).size(); });
  return all;
}

void measure(benchmark::State& state, const work& run, const pages& texts) {
  std::size_t size = 0;
  for (const rag::document& page : texts) size += page.text.size();
  std::size_t results = 0;
  for (auto _ : state) {
    for (const rag::document& page : texts) results += run(page);
    benchmark::DoNotOptimize(results);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(size) * state.iterations());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fputs("usage: chunkers FOLDER [options]\n", stderr), 2;
  const std::string folder = argv[1];
  const std::string prose = read(folder + "/prose.txt");
  const std::string markdown = read(folder + "/pages.txt");
  if (prose.empty() || markdown.empty()) return std::fputs("chunkers: no texts\n", stderr), 1;
  std::string one_page = markdown;
  std::replace(one_page.begin(), one_page.end(), '\0', '\n');

  std::vector<std::pair<std::string, pages>> texts{
      {"pages", one_by_one(markdown)}, {"wrapped", repeated(read(folder + "/wrapped.txt"), 1)}};
  for (const std::size_t mib : {1, 4, 16}) {
    texts.emplace_back("prose" + std::to_string(mib), repeated(prose, mib));
    texts.emplace_back("markdown" + std::to_string(mib), repeated(one_page, mib));
  }
  for (const auto& [row, run] : rows()) {
    for (const auto& [text, list] : texts) {
      benchmark::RegisterBenchmark((row + "/" + text).c_str(), [&run = *new work(run),
                                                                &list](benchmark::State& s) {
        measure(s, run, list);
      })->Unit(benchmark::kMillisecond);
    }
  }
  argv[1] = argv[0];
  int count = argc - 1;
  benchmark::Initialize(&count, argv + 1);
  if (benchmark::ReportUnrecognizedArguments(count, argv + 1)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
