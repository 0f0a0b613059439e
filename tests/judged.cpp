// Real error-code pages with judged questions: the page of a code that is asked for stands first.
// Needs the folder of data sets that RAG_RETRIEVE_DATASETS names.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <rag_retrieve.hpp>
#include <set>
#include <string>
#include <vector>

namespace {

namespace rag = rag_retrieve;
using nlohmann::json;

std::vector<json> read_lines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE_MESSAGE(file.good(), path);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

/// Names of rules in a text: runs of letters, digits and hyphens that are one of `names`.
std::vector<std::string> known_names(std::string_view text, const std::set<std::string>& names) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789-";
  std::vector<std::string> found;
  for (std::size_t at = 0; at < text.size();) {
    at = text.find_first_of(letters, at);
    if (at == std::string_view::npos) break;
    const std::size_t end = (std::min)(text.find_first_not_of(letters, at), text.size());
    const std::string name(text.substr(at, end - at));
    if (names.count(name) != 0) found.push_back(name);
    at = end;
  }
  return found;
}

/// A judged set, indexed: docs.jsonl with its titles, recursive chunks, plain BM25 with codes.
struct judged_set {
  std::string folder;
  rag::access_directory people;
  std::set<std::string> ids;
  rag::retriever retriever;

  judged_set(const std::string& where, bool with_codes) : folder(where) {
    std::vector<rag::chunked_document> pages;
    for (const json& line : read_lines(folder + "/docs.jsonl")) {
      rag::document page{.id = line["id"].get<std::string>(), .allowed_groups = {"everyone"}};
      page.title = line.value("title", "");
      page.text = line["text"].get<std::string>();
      ids.insert(page.id);
      pages.push_back({page, rag::chunk_recursive(page)});
    }
    people.set_groups({.user = "reader"}, {"everyone"});
    rag::retriever_options options{.permissions = &people};
    if (with_codes && ids.count("E0382") != 0) options.identifiers = {"E####"};
    if (with_codes && ids.count("E0382") == 0) {
      options.find_identifiers = [this](std::string_view text) { return known_names(text, ids); };
    }
    retriever = rag::retriever(std::move(options));
    retriever.upsert(pages);
  }

  /// Of the questions of one kind: how many have their judged page first, and how many there are.
  std::pair<std::size_t, std::size_t> first_page_right(const std::string& kind) const {
    std::map<std::string, std::string> wanted;
    std::ifstream qrels(folder + "/qrels.tsv");
    for (std::string query, page, grade; qrels >> query >> page >> grade;) wanted[query] = page;
    const rag::scope reader = retriever.scope_for({.user = "reader"});
    std::size_t right = 0;
    std::size_t all = 0;
    for (const json& line : read_lines(folder + "/queries.jsonl")) {
      if (line["kind"] != kind) continue;
      ++all;
      const auto found = retriever.search({.text = line["text"].get<std::string>()}, reader);
      if (found.passages.empty()) continue;
      if (found.passages[0].document_id() == wanted[line["id"].get<std::string>()]) ++right;
    }
    return {right, all};
  }

  /// Questions for a code that no page has: how many passages claim an exact match.
  std::size_t false_matches() const {
    const rag::scope reader = retriever.scope_for({.user = "reader"});
    std::size_t wrong = 0;
    for (const json& line : read_lines(folder + "/traps.jsonl")) {
      if (!line["want"].is_null()) continue;
      const auto found = retriever.search({.text = line["text"].get<std::string>()}, reader);
      for (const auto& passage : found.passages) wrong += passage.exact_match() ? 1U : 0U;
    }
    return wrong;
  }
};

}  // namespace

TEST_CASE("judged pages: the page of the code that is asked for is first in 99 of 100 questions") {
  const char* folder = std::getenv("RAG_RETRIEVE_DATASETS");
  if (folder == nullptr) {
    MESSAGE("skipped: RAG_RETRIEVE_DATASETS is not set");
    return;
  }
  for (const std::string name : {"rust-errors", "eslint-rules"}) {
    const judged_set codes(std::string(folder) + "/" + name, true);
    const judged_set words(std::string(folder) + "/" + name, false);
    for (const std::string kind : {"ask", "bare", "log"}) {
      const auto [right, all] = codes.first_page_right(kind);
      const auto [plain, same] = words.first_page_right(kind);
      MESSAGE(name, " ", kind, ": ", right, " of ", all, " with codes, ", plain, " without");
      CHECK(all > 0);
      CHECK(right * 100 >= all * 99);
      CHECK(plain <= right);
    }
    CHECK(codes.false_matches() == 0);
  }
}
