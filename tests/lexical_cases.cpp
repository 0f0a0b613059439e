// Faults that people found in other lexical engines, each a short test here, by the name of the
// fault and the public issue that tells of it. Most are asked twice: of a whole retriever, by words
// alone and as it is asked by default, and of term_index by itself.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <rag_retrieve.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fakes.hpp"

namespace lexical_cases_tests {

namespace rag = rag_retrieve;
using namespace fakes;

namespace {

constexpr rag::search_mode both_modes[] = {rag::search_mode::automatic, rag::search_mode::lexical};

/// Passages named "1", "2" and so on, one document each, in a retriever without vectors.
struct shelf : setup {
  explicit shelf(const strings& texts, rag::retriever_options options = {})
      : setup(std::move(options)) {
    for (const std::string& text : texts) put(std::to_string(++last_), text);
  }

  void put(const std::string& id, const std::string& text, std::uint64_t revision = 1) {
    const rag::document source = page(id, text, {"staff"}, revision);
    store.upsert(source, whole(source));
  }

  rag::answer ask(const std::string& text, rag::search_mode mode = rag::search_mode::automatic,
                  std::size_t limit = 10) const {
    rag::query asked = about(text);
    asked.mode = mode;
    asked.limit = limit;
    asked.explain = true;
    return store.search(asked, ana());
  }

  /// The ids found, which must be the same in both modes.
  strings find(const std::string& text, std::size_t limit = 10) const {
    const strings found = ids(ask(text, rag::search_mode::automatic, limit));
    CHECK(ids(ask(text, rag::search_mode::lexical, limit)) == found);
    return found;
  }

  /// The ids among them that hold a code of the question.
  std::set<std::string> exact(const std::string& text) const {
    std::set<std::string> out;
    for (const auto& passage : ask(text).passages) {
      if (passage.exact_match()) out.insert(passage.id());
    }
    return out;
  }

  /// Scores by id, as bits compare.
  std::vector<std::pair<std::string, double>> scores(const std::string& text) const {
    std::vector<std::pair<std::string, double>> out;
    for (const auto& passage : ask(text).passages) {
      out.emplace_back(passage.id(), passage.lexical_score().value());
    }
    return out;
  }

 private:
  int last_ = 0;
};

/// The numbers of the texts that term_index finds, from 1; all rows may be read.
std::vector<int> rows_found(const strings& texts, const std::string& question, std::size_t k = 10) {
  rag::term_index_builder builder;
  for (const std::string& text : texts) builder.add(rag::analyse(text));
  const rag::term_index index = builder.build();
  const rag::row_set all = rag::row_set::all(index.size());
  std::vector<int> out;
  for (const auto& hit : index.search(rag::question_terms(question), k, all, all)) {
    out.push_back(static_cast<int>(hit.row) + 1);
  }
  return out;
}
using numbers = std::vector<int>;

/// What the trace says of one passage.
rag::score_explanation explained(const rag::answer& found, const std::string& id) {
  for (const auto& [key, value] : found.trace.bm25) {
    if (key == id) return value;
  }
  FAIL("not explained: " << id);
  return {};
}

}  // namespace

TEST_CASE("case camel-case-both-sides (jgravelle/jdocmunch-mcp 91): one way to cut, both sides") {
  const strings texts{"class OvertimeService", "overtime rules"};
  const shelf one(texts);
  for (const char* question : {"OvertimeService", "overtimeservice", "OVERTIMESERVICE"}) {
    CHECK(one.find(question) == strings{"1"});
    CHECK(rows_found(texts, question) == numbers{1});
  }
  for (const char* text :
       {"\xC3\x9C"
        "berstunden",
        "\xD0\xBE\xD1\x82\xD0\xBF\xD1\x83\xD1\x81\xD0\xBA", "\xE5\x8A\xA0\xE7\x8F\xAD",
        "\xE0\xA4\x9B\xE0\xA5\x81\xE0\xA4\x9F\xE0"
        "\xA5\x8D\xE0\xA4\x9F\xE0\xA5\x80"}) {
    CHECK_FALSE(rag::analyse(text).empty());
    CHECK(rag::question_terms(text) == rag::analyse(text));
  }
}

TEST_CASE("case cpp-csharp-c (oramasearch/orama 409): C++ and C# are not the letter c") {
  const strings texts{"Templates in C++", "Generics in C#", "Pointers in C"};
  const shelf one(texts, {.identifiers = {"C++", "C\\#"}});
  CHECK(one.find("C++").at(0) == "1");
  CHECK(one.exact("C++") == std::set<std::string>{"1"});
  CHECK(one.find("c#").at(0) == "2");
  CHECK(one.exact("c#") == std::set<std::string>{"2"});
  CHECK(one.exact("C").empty());
  CHECK(one.ask("C#").passages.at(0).lexical_rank() == 1);

  // By words alone all three hold the letter once. The code leads their list, and so the fused
  // score is above the others', also where another passage is nearer by its vector.
  setup fused({.identifiers = {"C++", "C\\#"}});
  fused.add({placed("1", texts[0], {0, 1}), placed("2", texts[1], {1, 1}),
             placed("3", texts[2], {1, 0})});
  rag::query asked = near_to({1, 0}, "C#");
  asked.mode = rag::search_mode::hybrid;
  const rag::answer found = fused.store.search(asked, fused.ana());
  REQUIRE(found.passages.size() == 3);
  CHECK(found.passages[0].id() == "2");
  CHECK(found.passages[0].score() > found.passages[1].score());
}

TEST_CASE("case delete-equals-fresh (deepset-ai/haystack 11993): what is gone never was") {
  shelf one({"red fox", "red hen", "blue hen", "gone red red"});
  CHECK(ids(one.ask("gone")) == strings{"4"});
  one.store.erase("4");
  const shelf fresh({"red fox", "red hen", "blue hen"});
  for (const char* question : {"red hen", "gone", "red", "fox hen blue"}) {
    for (const rag::search_mode mode : both_modes) {
      CHECK(everything(one.ask(question, mode)) == everything(fresh.ask(question, mode)));
    }
  }
  one.store.purge();
  CHECK(everything(one.ask("red hen")) == everything(fresh.ask("red hen")));
}

TEST_CASE("case df-after-delete (quickwit-oss/tantivy 798): a deleted passage counts nowhere") {
  shelf one({"field a", "field b"});
  one.store.erase("1");
  CHECK(one.find("a").empty());
  const rag::score_explanation why = explained(one.ask("a b"), "2");
  CHECK(why.chunk_count == 1);
  REQUIRE(why.terms.size() == 2);
  CHECK(why.terms[0].n == 0);
  CHECK(why.terms[1].n == 1);
  shelf alone({});
  alone.put("2", "field b");
  CHECK(one.scores("b") == alone.scores("b"));

  rag::term_index_builder builder;
  builder.add(rag::analyse("field a"));
  builder.add(rag::analyse("field b"));
  const rag::term_index index = builder.build();
  rag::row_set left(2);
  left.insert(1);
  CHECK(index.search(strings{"a"}, 10, left, left).empty());
  CHECK(index.search(strings{"b"}, 10, left, left).size() == 1);
}

TEST_CASE("case df-counts-documents (Michael-JB/bm25 20): ten times in one passage is one") {
  const strings texts{"oak oak oak oak oak oak oak oak oak oak", "elm elm elm elm oak",
                      "ash ash elm yew oak"};
  const shelf one(texts);
  CHECK(one.find("oak").at(0) == "1");
  CHECK(rows_found(texts, "oak").at(0) == 1);
  const rag::term_explanation oak = explained(one.ask("oak"), "1").terms.at(0);
  CHECK(oak.tf == 10);
  CHECK(oak.n == 3);
  CHECK(oak.idf > 0);
  CHECK(oak.idf == doctest::Approx(rag::bm25_idf(3, 3)));
}

TEST_CASE("case digits-with-hyphens (paradedb/paradedb 2132): 000-9999-999 is not 0009999999") {
  const shelf one({"000-9999-999", "0009999999", "test-term"}, {.identifiers = {"###-####-###"}});
  CHECK(one.find("000-9999-999").at(0) == "1");
  CHECK(one.exact("000-9999-999") == std::set<std::string>{"1"});
  CHECK(one.exact("0009999999").empty());
}

TEST_CASE("case empty-document-among-others (RediSearch 5958): it is counted and never found") {
  const strings texts{"", "alpha beta", "alpha"};
  const shelf one(texts);
  CHECK(one.find("alpha") == strings{"3", "2"});  // the shorter one first
  CHECK(rows_found(texts, "alpha") == numbers{3, 2});
  for (const auto& [id, score] : one.scores("alpha")) {
    CHECK(score > 0);
    CHECK(score < 10);
  }
}

TEST_CASE("case empty-query (bojieli/ai-agent-book 511): nothing asked, nothing found, no error") {
  const shelf one({"alpha beta"}, {.identifiers = {"PAY-###"}});
  for (const char* question : {"", "   ", "!!! ???", "\xE2\x80\x91", "\t\n"}) {
    CHECK(one.find(question).empty());
    CHECK(rows_found({"alpha beta"}, question).empty());
  }
}

TEST_CASE("case hyphen-short-codes (lucaong/minisearch 108): AR-7 is neither AR nor 7") {
  const strings texts{"C-8 trainer", "AR-7 kit", "PGMP-15 module", "AR glossary, chapter 7"};
  const shelf one(texts, {.identifiers = {"@+-#+"}});
  CHECK(one.find("AR-7") == strings{"2", "4"});  // 4 by its two words
  CHECK(one.exact("AR-7") == std::set<std::string>{"2"});
  CHECK(one.exact("AR").empty());
  CHECK(rows_found(texts, "AR-7") == numbers{2, 4});
}

TEST_CASE("case near-identical-refs (typesense/typesense 201): siblings and prefixes are others") {
  const shelf one({"54-OR323014", "54-OR323015", "54-OR32301"}, {.identifiers = {"##-@@#+"}});
  for (const char* code : {"54-OR323014", "54-or323014"}) {
    CHECK(one.find(code).at(0) == "1");
    CHECK(one.exact(code) == std::set<std::string>{"1"});
  }
  CHECK(one.exact("54-OR32301") == std::set<std::string>{"3"});
  CHECK(one.exact("54-OR3230") == std::set<std::string>{});
}

TEST_CASE("case no-zero-score-filler (deepset-ai/haystack 5982): k is a maximum") {
  const strings texts{"javascript widgets ship weekly", "java widgets ship weekly",
                      "python widgets ship weekly", "ruby widgets ship weekly",
                      "perl widgets ship weekly"};
  const shelf one(texts);
  CHECK(one.find("Java", 5) == strings{"2"});
  CHECK(rows_found(texts, "Java", 5) == numbers{2});
}

TEST_CASE("case one-digit-off (Smile-SA/elasticsuite 1166): no edit distance for codes") {
  const strings texts{"ISBN 9789525557992"};
  const shelf one(texts, {.identifiers = {"#############"}});
  CHECK(one.find("9789525157992").empty());
  CHECK_FALSE(one.ask("9789525157992").signals.exact_code);
  CHECK(one.exact("9789525557992") == std::set<std::string>{"1"});
  CHECK(rows_found(texts, "9789525157992").empty());
}

TEST_CASE("case only-empty-documents (deepset-ai/haystack 11598): an average length of zero") {
  const strings texts{"", "", ""};
  const shelf one(texts);
  CHECK(one.find("anything at all", 3).empty());
  CHECK(rows_found(texts, "anything at all", 3).empty());
}

TEST_CASE("case prefix-of-larger-k (lance-format/lance 7846): a shorter list is a prefix") {
  std::vector<rag::chunked_document> many;
  strings names;
  for (int i = 500; i >= 1; --i) {  // the bytes of the id order them, not their arrival
    const rag::document source = page("p" + std::to_string(1000 + i).substr(1), "tie word");
    many.push_back({source, whole(source)});
  }
  for (int i = 1; i <= 100; ++i) names.push_back("p" + std::to_string(1000 + i).substr(1));
  shelf one({});
  one.add(many);
  for (const std::size_t k : {3U, 10U, 100U}) {
    CHECK(one.find("tie", k) == strings(names.begin(), names.begin() + static_cast<int>(k)));
  }
  const strings texts(500, "tie word");
  const numbers longest = rows_found(texts, "tie", 500);
  CHECK(longest.size() == 500);
  for (const std::size_t k : {3U, 10U, 100U}) {
    CHECK(rows_found(texts, "tie", k) ==
          numbers(longest.begin(), longest.begin() + static_cast<int>(k)));
  }
}

TEST_CASE("case repeated-query-term (dorianbrown/rank_bm25 19): a word asked twice counts once") {
  const strings texts{"error error log", "error handling", "handling"};
  const shelf one(texts);
  CHECK(one.find("error error handling") == one.find("error handling"));
  CHECK(one.scores("error error handling") == one.scores("error handling"));
  CHECK(rag::question_terms("error error handling") == strings{"error", "handling"});
  CHECK(explained(one.ask("error error handling"), "1").terms.size() == 2);

  rag::term_index_builder builder;  // handed the repeats themselves, term_index has the same rule
  for (const std::string& text : texts) builder.add(rag::analyse(text));
  const rag::term_index index = builder.build();
  const rag::row_set all = rag::row_set::all(3);
  CHECK(index.search(strings{"error", "error", "handling"}, 10, all, all) ==
        index.search(strings{"error", "handling"}, 10, all, all));
}

TEST_CASE("case replace-with-same-text (redis/docs 2989): an update is no further passage") {
  shelf one({"alpha beta", "alpha gamma", "beta"});
  const auto before = one.scores("alpha beta");
  REQUIRE(before.size() == 3);
  for (std::uint64_t revision = 2; revision < 5; ++revision) one.put("2", "alpha gamma", revision);
  CHECK(one.scores("alpha beta") == before);
  one.store.purge();
  CHECK(one.scores("alpha beta") == before);
  CHECK(explained(one.ask("alpha beta"), "1").chunk_count == 3);
}

TEST_CASE("case stopwords-only (algolia/algoliasearch-zendesk 15): to be or not to be") {
  const strings texts{"to be or not to be", "being and nothing", "not this or that"};
  const std::string question = "to be or not to be";
  CHECK(rows_found(texts, question).at(0) == 1);
  CHECK(shelf(texts).find(question).at(0) == "1");
  rag::retriever_options with_list;
  with_list.analysis.is_stop_word = [](std::string_view word) {
    return word == "to" || word == "be" || word == "or" || word == "not";
  };
  with_list.analysis.tag = "four";
  const shelf one(texts, with_list);
  CHECK(one.find(question) == strings{"1", "3"});
  CHECK(one.find("not being") == strings{"2"});
}

TEST_CASE("case trailing-punctuation (meilisearch/meilisearch 178): PAY-042. is PAY-042") {
  const shelf one({"It failed with PAY-042.", "(PAY-042), again", "see PAY-042: retry",
                   "PAY-0421 is another code"},
                  {.identifiers = {"PAY-###"}});
  for (const char* question : {"pay-042", "PAY-042?", "\"PAY-042\"", "Pay-042!"}) {
    CHECK(one.exact(question) == std::set<std::string>{"1", "2", "3"});
    const strings found = one.find(question);
    CHECK(std::set<std::string>(found.begin(), found.begin() + 3) ==
          std::set<std::string>{"1", "2", "3"});
  }
}

}  // namespace lexical_cases_tests
