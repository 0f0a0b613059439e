// Words by their stems: what an English stemmer and stop words change. Links Debian's libstemmer.
//
//   build/examples/stemming              two sentences
//   build/examples/stemming FOLDER...    measures: docs.jsonl, queries.jsonl and qrels*.tsv of each
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <rag_retrieve.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "english.hpp"

namespace fs = std::filesystem;
namespace rag = rag_retrieve;
using strings = std::vector<std::string>;

strings read_lines(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path.string() + ": cannot be read");
  strings lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

/// The words of some texts, looked up in one way.
struct word_search {
  rag::analysis_options analysis;
  rag::bm25_options bm25;
  rag::term_index index = {};
  strings ids = {};

  void build(const std::vector<rag::document>& documents) {
    rag::term_index_builder builder(bm25);
    for (const rag::document& each : documents) {
      builder.add(rag::analyse(each.title + "\n\n" + each.text, analysis));
      ids.push_back(each.id);
    }
    index = builder.build();
  }

  /// The ids of the best `depth`, best first.
  strings find(const std::string& question, std::size_t depth = 1000) const {
    const rag::row_set all = rag::row_set::all(index.size());
    const strings terms = rag::question_terms(question, analysis, bm25.count_repeats);
    strings found;
    for (const auto& hit : index.search(terms, depth, all, all)) found.push_back(ids[hit.row]);
    return found;
  }
};

/// As the README of a data set measured it, the same with each word of a question once, and as
/// shipped.
std::vector<word_search> three_ways(const std::vector<rag::document>& documents) {
  std::vector<word_search> ways{{english_analysis(), {.k1 = 0.9, .b = 0.4, .count_repeats = true}},
                                {english_analysis(), {.k1 = 0.9, .b = 0.4}},
                                {}};
  for (word_search& each : ways) each.build(documents);
  return ways;
}

void show_sentences() {
  const auto ways = three_ways({{.id = "A", .text = "The gateway rejected both connections."},
                                {.id = "B", .text = "How to connect to a gateway"}});
  for (const std::string question : {"connecting gateways", "connection rejected"}) {
    std::printf("%-20s stems:", question.c_str());
    for (const std::string& id : ways[1].find(question)) std::printf(" %s", id.c_str());
    std::printf("%*sas shipped:", 4, "");
    for (const std::string& id : ways[2].find(question)) std::printf(" %s", id.c_str());
    std::printf("\n");
  }
}

void measure(const fs::path& folder) {
  std::vector<rag::document> documents;
  for (const std::string& line : read_lines(folder / "docs.jsonl")) {
    const auto page = nlohmann::json::parse(line);
    documents.push_back({.id = page["id"], .title = page.value("title", ""), .text = page["text"]});
  }
  const auto ways = three_ways(documents);
  std::vector<std::vector<rag::ranked_list>> runs(ways.size());
  for (const std::string& line : read_lines(folder / "queries.jsonl")) {
    const auto question = nlohmann::json::parse(line);
    for (std::size_t i = 0; i < ways.size(); ++i) {
      runs[i].push_back({.question = question["id"], .ids = ways[i].find(question["text"])});
    }
  }
  std::set<fs::path> judgements;
  for (const auto& file : fs::directory_iterator(folder)) {
    if (file.path().filename().string().starts_with("qrels")) judgements.insert(file.path());
  }
  for (const fs::path& file : judgements) {
    std::string text;
    for (const std::string& line : read_lines(file)) text += line + "\n";
    const auto judged = rag::read_qrels(text);
    const fs::path name = fs::weakly_canonical(folder).filename() / file.filename();
    std::printf("%-28s", name.generic_string().c_str());
    for (const auto& run : runs) {
      const rag::measure_means means = rag::evaluate(judged, run).overall;
      std::printf("  %.4f %.4f", means[rag::measure::average_precision].value,
                  means[rag::measure::ndcg].value);
    }
    std::printf("\n");
  }
}

int main(int count, char** arguments) try {
  if (count < 2) {
    show_sentences();
    return 0;
  }
  std::printf("MAP and nDCG@10             stems, repeats   stems            as shipped\n");
  for (int i = 1; i < count; ++i) measure(arguments[i]);
} catch (const std::exception& problem) {
  std::fprintf(stderr, "%s\n", problem.what());
  return 1;
}
