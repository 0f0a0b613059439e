// Chroma's chunking evaluation: how much of what answers a question do the first five chunks hold,
// and how much else. chroma.sh builds it, runs it and prints the published table beside it.
//
// usage: chroma FOLDER [VECTORS]
//
//   FOLDER    docs.jsonl, queries.jsonl, spans.jsonl: {"query", "doc", "start", "end"} in bytes
//   VECTORS   lines {"text", "vector"}; then each chunker is searched by vectors too. Texts without
//             a vector are written to VECTORS.missing, one JSON string a line, and their rows are
//             left out until they have one.
//
// For one question, with the excerpts that answer it and the five chunks that were found, in bytes:
//   recall      excerpts covered by the chunks / excerpts
//   precision   the same / all chunks, what two of them share counted twice
//   IoU         the same / all chunks and what of the excerpts they leave out
//   omega       precision of the best search there can be: of all chunks that touch an excerpt
// Each is the mean over the questions.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <rag_retrieve.hpp>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

namespace rag = rag_retrieve;
using nlohmann::json;
using ranges = std::vector<rag::byte_range>;
using chunks = std::vector<rag::chunk>;

std::vector<json> read_lines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::cerr << "chroma: cannot read " << path << '\n';
    std::exit(2);
  }
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

// ---- the collection -----------------------------------------------------------------------------

struct question {
  std::string id;
  std::string text;
  std::map<std::string, ranges> excerpts;  // by document
};

struct collection {
  std::vector<rag::document> pages;
  std::vector<question> questions;
};

collection read_collection(const std::string& folder) {
  collection all;
  for (const json& line : read_lines(folder + "/docs.jsonl")) {
    rag::document page{.id = line["id"].get<std::string>(), .allowed_groups = {"everyone"}};
    page.text = line["text"].get<std::string>();
    all.pages.push_back(std::move(page));
  }
  std::map<std::string, std::map<std::string, ranges>> excerpts;
  for (const json& line : read_lines(folder + "/spans.jsonl")) {
    excerpts[line["query"].get<std::string>()][line["doc"].get<std::string>()].push_back(
        {line["start"].get<std::size_t>(), line["end"].get<std::size_t>()});
  }
  for (const json& line : read_lines(folder + "/queries.jsonl")) {
    const std::string id = line["id"].get<std::string>();
    all.questions.push_back({id, line["text"].get<std::string>(), excerpts[id]});
  }
  return all;
}

// ---- vectors that were made before --------------------------------------------------------------

class vector_store {
 public:
  explicit vector_store(std::string path) : path_(std::move(path)) {
    if (path_.empty()) return;
    std::ifstream file(path_, std::ios::binary);
    for (std::string line; std::getline(file, line);) {
      const json entry = json::parse(line);
      vectors_[entry["text"].get<std::string>()] = entry["vector"].get<std::vector<float>>();
    }
  }

  [[nodiscard]] bool used() const { return !path_.empty(); }
  [[nodiscard]] std::size_t missing() const { return missing_.size(); }
  [[nodiscard]] std::size_t failures() const { return failures_; }  // looked for in vain so often

  /// An embedder that notes what it does not know, and answers zeros for it.
  [[nodiscard]] rag::embedder embedder() {
    return {.model = "given",
            .embed = [this](std::span<const std::string_view> texts, rag::text_role) {
              std::vector<std::vector<float>> out;
              for (const std::string_view text : texts) {
                const std::string known(text);
                out.push_back(knows(known) ? vectors_.at(known) : std::vector<float>(dimension()));
              }
              return out;
            }};
  }

  /// Notes a text of which the vector will be needed.
  [[nodiscard]] bool knows(const std::string& text) {
    if (vectors_.count(text) != 0) return true;
    ++failures_;
    missing_.insert(text);
    return false;
  }

  [[nodiscard]] std::size_t dimension() const {
    return vectors_.empty() ? 1 : vectors_.begin()->second.size();
  }

  void write_missing() const {
    std::ofstream file(path_ + ".missing", std::ios::binary);
    for (const std::string& text : missing_) {
      file << json(text).dump(-1, ' ', false, json::error_handler_t::replace) << '\n';
    }
  }

 private:
  std::string path_;
  std::unordered_map<std::string, std::vector<float>> vectors_;
  std::set<std::string> missing_;
  std::size_t failures_ = 0;
};

// ---- measures -----------------------------------------------------------------------------------

/// The bytes that some of the ranges hold.
std::size_t bytes_of(ranges all) {
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::size_t bytes = 0;
  std::size_t reached = 0;
  for (const rag::byte_range& each : all) {
    const std::size_t begin = (std::max)(each.begin, reached);
    if (each.end > begin) bytes += each.end - begin;
    reached = (std::max)(reached, each.end);
  }
  return bytes;
}

/// What two lists of ranges share.
ranges shared(const ranges& a, const ranges& b) {
  ranges out;
  for (const rag::byte_range& x : a) {
    for (const rag::byte_range& y : b) {
      const rag::byte_range both{(std::max)(x.begin, y.begin), (std::min)(x.end, y.end)};
      if (both.begin < both.end) out.push_back(both);
    }
  }
  return out;
}

struct measures {
  double recall = 0, precision = 0, omega = 0, iou = 0;
};

/// `found` and `all` by document.
measures measure(const question& asked, const std::map<std::string, ranges>& found,
                 const std::map<std::string, ranges>& all) {
  double wanted = 0, covered = 0, given = 0, touching = 0, reachable = 0;
  for (const auto& [doc, excerpts] : asked.excerpts) {
    wanted += static_cast<double>(bytes_of(excerpts));
    if (const auto here = found.find(doc); here != found.end()) {
      covered += static_cast<double>(bytes_of(shared(here->second, excerpts)));
    }
    ranges touched;
    for (const rag::byte_range& chunk : all.at(doc)) {
      if (!shared({chunk}, excerpts).empty()) touched.push_back(chunk);
    }
    touching += static_cast<double>(bytes_of(touched));
    reachable += static_cast<double>(bytes_of(shared(touched, excerpts)));
  }
  for (const auto& [doc, each] : found) {
    for (const rag::byte_range& chunk : each) given += static_cast<double>(chunk.size());
  }
  const auto share = [](double part, double whole) { return whole > 0 ? part / whole : 0; };
  return {share(covered, wanted), share(covered, given), share(reachable, touching),
          share(covered, given + wanted - covered)};
}

// ---- one row of the table -----------------------------------------------------------------------

struct cutting {
  std::string name;
  std::string size;
  std::function<rag::result<chunks>(const rag::document&)> cut;
};

class table {
 public:
  table(const collection& all, vector_store& vectors) : all_(all), vectors_(vectors) {}

  void add(const cutting& way) {
    std::vector<rag::chunked_document> cut;
    std::map<std::string, ranges> by_document;
    double bytes = 0, words = 0, count = 0;
    const std::size_t failures = vectors_.failures();
    for (const rag::document& page : all_.pages) {
      rag::result<chunks> made = way.cut(page);
      if (!made) {
        std::cerr << "chroma: " << made.failure().message() << '\n';
        std::exit(1);
      }
      std::set<std::string> parents;
      for (const rag::chunk& piece : *made) parents.insert(piece.parent_id);
      for (const rag::chunk& piece : *made) {
        // A parent stands for its children in what is handed out.
        if (!piece.parent_id.empty()) continue;
        by_document[page.id].push_back(piece.range);
        bytes += static_cast<double>(piece.range.size());
        words += static_cast<double>(rag::count_words(rag::chunk_text(page, piece)));
        ++count;
      }
      cut.push_back({page, std::move(*made)});
    }
    if (vectors_.failures() != failures) return;  // it was cut by vectors that are not there yet
    const std::string sizes = " | " + number(words / count, 0) + " | " + number(bytes / count, 0);
    row(way, sizes, "BM25", cut, by_document, rag::search_mode::lexical);
    if (!vectors_.used() || !has_vectors(cut)) return;
    row(way, sizes, "dense", cut, by_document, rag::search_mode::dense);
    row(way, sizes, "both", cut, by_document, rag::search_mode::hybrid);
  }

 private:
  static std::string number(double value, int digits) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return text;
  }

  bool has_vectors(const std::vector<rag::chunked_document>& cut) {
    bool all = true;
    for (const rag::chunked_document& page : cut) {
      for (const rag::chunk& piece : page.chunks) {
        all = vectors_.knows(rag::search_text(page.source, piece)) && all;
      }
    }
    for (const question& asked : all_.questions) all = vectors_.knows(asked.text) && all;
    return all;
  }

  void row(const cutting& way, const std::string& sizes, const char* leg,
           const std::vector<rag::chunked_document>& cut,
           const std::map<std::string, ranges>& by_document, rag::search_mode mode) {
    rag::access_directory people;
    people.set_groups({.user = "reader"}, {"everyone"});
    rag::retriever_options options{.permissions = &people};
    if (mode != rag::search_mode::lexical) options.embed = vectors_.embedder();
    rag::retriever store(std::move(options));
    store.upsert(cut);
    const rag::scope reader = store.scope_for({.user = "reader"});
    measures sum;
    for (const question& asked : all_.questions) {
      rag::query query{.text = asked.text, .mode = mode, .limit = 5};
      query.per_document = 1000;  // three documents, a thousand passages
      query.overlap_threshold.reset();
      std::map<std::string, ranges> found;
      for (const rag::permitted_passage& passage : store.search(query, reader).passages) {
        found[passage.document_id()].push_back(passage.range());
      }
      const measures one = measure(asked, found, by_document);
      sum.recall += one.recall;
      sum.precision += one.precision;
      sum.omega += one.omega;
      sum.iou += one.iou;
    }
    const double share = 100 / static_cast<double>(all_.questions.size());
    std::cout << "| " << way.name << " | " << way.size << sizes << " | " << leg << " | "
              << number(sum.recall * share, 1) << " | " << number(sum.precision * share, 1) << " | "
              << number(sum.omega * share, 1) << " | " << number(sum.iou * share, 1) << " |"
              << std::endl;
  }

  const collection& all_;
  vector_store& vectors_;
};

/// Every chunker at about the sizes of the published table, which count the tokens of a model: a
/// word has four thirds of one. The documents have no headings, so structure cuts as recursive.
std::vector<cutting> cuttings(vector_store& vectors) {
  std::vector<cutting> all;
  for (const std::size_t size : {75U, 100U, 150U, 256U, 400U}) {
    const std::string named = std::to_string(size);
    const auto with = [&](const std::string& name, auto cut) { all.push_back({name, named, cut}); };
    with("fixed", [size](const rag::document& page) {
      return rag::try_chunk_fixed(page, {.chunk_size = size});
    });
    with("fixed, half overlapping", [size](const rag::document& page) {
      return rag::try_chunk_fixed(page, {.chunk_size = size, .overlap = size / 2});
    });
    with("packed", [size](const rag::document& page) {
      return rag::try_chunk_packed(page, {.chunk_size = size});
    });
    with("packed, half overlapping", [size](const rag::document& page) {
      return rag::try_chunk_packed(page, {.chunk_size = size, .overlap = size / 2});
    });
    with("recursive", [size](const rag::document& page) {
      return rag::try_chunk_recursive(page, {.chunk_size = size});
    });
    with("recursive, half overlapping", [size](const rag::document& page) {
      return rag::try_chunk_recursive(page, {.chunk_size = size, .overlap = size / 2});
    });
    if (vectors.used()) {
      with("semantic", [size, &vectors](const rag::document& page) {
        return rag::try_chunk_semantic(page, {.embed = vectors.embedder(), .chunk_size = size});
      });
    }
  }
  all.push_back({"sentence", "256",
                 [](const rag::document& page) { return rag::try_chunk_sentences(page); }});
  for (const auto& [parent, child] :
       {std::pair{256U, 64U}, std::pair{512U, 128U}, std::pair{1024U, 128U}}) {
    all.push_back({"parent-child", std::to_string(parent) + " / " + std::to_string(child),
                   [parent = parent, child = child](const rag::document& page) {
                     return rag::try_chunk_parent_child(
                         page, {.parent_size = parent, .child_size = child});
                   }});
  }
  return all;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2 || count > 3) {
    std::cerr << "usage: chroma FOLDER [VECTORS]\n";
    return 2;
  }
  const collection all = read_collection(arguments[1]);
  vector_store vectors(count > 2 ? arguments[2] : "");
  std::cout << "| chunker | size, words | mean words | mean bytes | search | recall | precision | "
               "omega | IoU |\n|---|--:|--:|--:|---|--:|--:|--:|--:|\n";
  table rows(all, vectors);
  for (const cutting& way : cuttings(vectors)) rows.add(way);
  if (vectors.used()) {
    vectors.write_missing();
    std::cerr << "chroma: " << vectors.missing() << " texts without a vector\n";
  }
}
