// Which search is good enough? Five variants of it over three pages, judged by hand. A question
// that nothing answers has no recall and stays out of the means.
#include <cstdio>
#include <fstream>
#include <rag_retrieve.hpp>
#include <string>
#include <vector>

namespace rag = rag_retrieve;

std::string read_file(const std::string& name) {
  std::ifstream file(std::string(RAG_RETRIEVE_DATA_DIR) + "/pay042/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A toy model of three ideas: trouble, keys, getting back to work. A real one learns hundreds.
std::vector<float> ideas_in(std::string_view text) {
  const std::vector<std::vector<std::string>> ideas{
      {"error", "fail", "reject"}, {"key", "credential", "secret"}, {"replace", "mend", "repair"}};
  std::vector<float> found;
  for (const auto& words : ideas) {
    found.push_back(0.1F);
    for (const auto& word : words) found.back() += text.find(word) != text.npos ? 1.0F : 0.0F;
  }
  return found;
}

rag::embedder toy_model() {
  return {.model = "ideas", .embed = [](auto texts, rag::text_role) {
            std::vector<std::vector<float>> vectors;
            for (const std::string_view text : texts) vectors.push_back(ideas_in(text));
            return vectors;
          }};
}

/// A toy reranker: a code of the question counts most, then the ideas.
std::vector<double> rescore(const rag::rerank_request& asked) {
  std::vector<double> scores;
  for (const rag::permitted_passage& passage : asked.passages) {
    const auto ideas = ideas_in(passage.search_text());
    scores.push_back((passage.exact_match() ? 1 : 0) +
                     rag::cosine(ideas_in(asked.question), ideas));
  }
  return scores;
}

int main() {
  rag::access_directory people;
  people.set_groups({.user = "ana"}, {"staff"});
  rag::retriever retriever(
      {.embed = toy_model(), .permissions = &people, .identifiers = {"PAY-###"}});
  for (const std::string id : {"gateway-errors", "reconnect-gateway", "checkout-failures"}) {
    rag::document page{.id = id, .text = read_file(id + ".md"), .allowed_groups = {"staff"}};
    retriever.upsert(page, rag::chunk_structure(page, {.max_heading_level = 2}));
  }
  const std::string key = "gateway-errors#pay-042-stored-credential-was-rejected";
  const std::string repair = "reconnect-gateway#reconnect-a-payment-gateway";
  const std::vector<rag::judged_question> questions{
      {"1", "What does PAY-042 mean?", "exact-code", {key}},
      {"2", "Our secret was swapped. How to mend that?", "paraphrase", {repair}},
      {"3", "PAY-042: our secret was swapped. How to mend that?", "multi-section", {key, repair}},
      {"4", "Who won the football match?", "unanswerable"}};

  rag::ablation_options options{.recall_target = 1.0};
  options.asked.limit = 2;
  options.asked.rerank = {.score = rescore};
  const auto report =
      rag::ablate(retriever, questions, retriever.scope_for({.user = "ana"}), options);
  std::printf("%-18s %8s %8s %8s\n", "", "recall", "nDCG@10", "MRR");
  for (const rag::variant_report& variant : report.variants) {
    const rag::measure_means& means = variant.quality.overall;
    std::printf("%-18s %8.3f %8.3f %8.3f   over %zu questions\n", variant.name.c_str(),
                means[rag::measure::budget_recall].value, means[rag::measure::ndcg].value,
                means[rag::measure::reciprocal_rank].value, means.questions);
  }
  if (report.cheapest)
    std::printf("cheapest with recall 1: %s\n", report.variants[*report.cheapest].name.c_str());
}
