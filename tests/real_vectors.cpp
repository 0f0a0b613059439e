// Exact search over real embeddings: the figures that were published for them, and the same hits as
// a scan in double. The vectors are read from the folder that RAG_RETRIEVE_DATASETS names.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <rag_retrieve.hpp>
#include <string>
#include <utility>
#include <vector>

#include "real.hpp"

namespace rag = rag_retrieve;

namespace real_vectors_test {

/// Vectors of texts and questions, and which texts people judged to answer which question.
struct judged_vectors {
  judged_vectors(const std::string& set, const std::string& documents, const std::string& questions,
                 std::size_t dimension)
      : index(dimension),
        ids(real::read_lines(set + documents + ".ids")),
        question_ids(real::read_lines(set + questions + ".ids")),
        asked(real::read_vectors(set + questions + ".f32", dimension)),
        judged(rag::read_qrels(real::read_bytes(set + "qrels.tsv"))) {
    for (const auto& row : real::read_vectors(set + documents + ".f32", dimension))
      index.add(row, "row");
    REQUIRE(index.size() == ids.size());
    REQUIRE(asked.size() == question_ids.size());
  }

  /// The means over the judged questions, of the first k of k hits.
  [[nodiscard]] rag::measure_means measured(std::size_t k) const {
    const auto hits = index.search(asked, k, rag::row_set::all(index.size()));
    std::vector<rag::ranked_list> lists;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      rag::ranked_list list;
      list.question = question_ids[i];
      for (const rag::vector_hit& hit : hits[i]) list.ids.push_back(ids[hit.row]);
      lists.push_back(std::move(list));
    }
    return rag::evaluate(judged, lists, {.k = k}).overall;
  }

  rag::flat_index index;
  std::vector<std::string> ids, question_ids;
  std::vector<std::vector<float>> asked;
  std::vector<rag::judged_question> judged;
};

/// Equal as far as a figure was printed.
inline bool prints_as(double value, double printed, double unit) {
  return std::abs(value - printed) <= unit / 2;
}

TEST_CASE("real vectors: SciFact's MiniLM vectors give the figures published for exact search") {
  const auto folder = real::folder();
  if (!folder) return;
  struct figures {
    std::string size;
    std::size_t dimension = 0;
    double first = 0, five = 0, ten = 0, reciprocal = 0;  // R@1, R@5, R@10, MRR in percent
  };
  // RafaelCherman/projeto_final, results_readable/faiss: FAISS, inner product, flat.
  for (const figures& published : {figures{"128", 128, 45.28, 67.81, 76.10, 56.55},
                                   figures{"64", 64, 35.61, 58.37, 68.16, 46.71}}) {
    const judged_vectors set(*folder + "scifact-minilm/", "docs" + published.size,
                             "queries" + published.size, published.dimension);
    const auto recall = [&](std::size_t k) {
      return 100 * set.measured(k)[rag::measure::recall].value;
    };
    const auto means = set.measured(10);
    MESSAGE("SciFact, ", published.size, " dimensions: R@1/5/10 ", recall(1), " ", recall(5), " ",
            recall(10), ", MRR ", 100 * means[rag::measure::reciprocal_rank].value);
    CHECK(means.questions == 300);
    CHECK(prints_as(recall(1), published.first, 0.01));
    CHECK(prints_as(recall(5), published.five, 0.01));
    CHECK(prints_as(recall(10), published.ten, 0.01));
    CHECK(prints_as(100 * means[rag::measure::reciprocal_rank].value, published.reciprocal, 0.01));
  }
}

TEST_CASE(
    "real vectors: seven collections as all-MiniLM-L6-v2 vectors give their recorded figures") {
  const auto folder = real::folder();
  if (!folder) return;
  struct figures {
    std::string name;
    std::size_t questions = 0;
    double ndcg = 0, recall = 0, reciprocal = 0, first = 0;  // nDCG@10, R@100, MRR@10, P@1
  };
  for (const figures& recorded : {figures{"adi", 35, 0.4975, 1.0000, 0.6139, 0.4857},
                                  figures{"cacm", 52, 0.4590, 0.7337, 0.6407, 0.5385},
                                  figures{"cranfield", 225, 0.3817, 0.7724, 0.5380, 0.3511},
                                  figures{"med", 30, 0.7875, 0.9579, 0.9111, 0.8333},
                                  figures{"rust-errors", 2406, 0.1872, 0.4497, 0.1736, 0.1484},
                                  figures{"eslint-rules", 1241, 0.8937, 0.9976, 0.8632, 0.7776},
                                  figures{"xquad-en", 1190, 0.9433, 1.0000, 0.9277, 0.8849}}) {
    CAPTURE(recorded.name);
    const judged_vectors set(*folder + recorded.name + "/", "minilm-docs", "minilm-queries", 384);
    const auto ten = set.measured(10);
    CHECK(ten.questions == recorded.questions);
    CHECK(prints_as(ten[rag::measure::ndcg].value, recorded.ndcg, 0.0001));
    CHECK(prints_as(ten[rag::measure::reciprocal_rank].value, recorded.reciprocal, 0.0001));
    CHECK(prints_as(set.measured(100)[rag::measure::recall].value, recorded.recall, 0.0001));
    CHECK(prints_as(set.measured(1)[rag::measure::precision].value, recorded.first, 0.0001));
  }
}

TEST_CASE("real vectors: no row differs from a scan in double but near-ties of 1e-5 |q| |x|") {
  const auto folder = real::folder();
  if (!folder) return;
  const std::vector<judged_vectors> sets{
      {*folder + "scifact-minilm/", "docs128", "queries128", 128},
      {*folder + "cacm/", "minilm-docs", "minilm-queries", 384},
      {*folder + "cranfield/", "minilm-docs", "minilm-queries", 384},
  };
  for (const judged_vectors& set : sets) {
    const auto hits = set.index.search(set.asked, 10, rag::row_set::all(set.index.size()));
    int wrong = 0;
    int near_ties = 0;
    for (std::size_t i = 0; i < set.asked.size(); ++i) {
      std::vector<std::pair<double, std::uint32_t>> order;  // rows have length 1
      for (std::uint32_t row = 0; row < set.index.size(); ++row) {
        if (!set.index.has_vector(row)) continue;  // Cranfield has two texts without a word
        order.push_back({-rag::detail::dot_in_double(set.asked[i], set.index.row(row)), row});
      }
      std::partial_sort(order.begin(), order.begin() + 10, order.end());
      const double tie = 1e-5 * std::sqrt(rag::detail::dot_in_double(set.asked[i], set.asked[i]));
      for (std::size_t place = 0; place < 10; ++place) {
        const std::uint32_t row = hits[i][place].row;
        if (row == order[place].second) continue;
        const double score = rag::detail::dot_in_double(set.asked[i], set.index.row(row));
        ++(std::abs(score + order[place].first) <= tie ? near_ties : wrong);
      }
    }
    MESSAGE(set.asked.size(), " questions to ", set.index.size(), " rows: ", near_ties,
            " near-ties in another order");
    CHECK(wrong == 0);
  }
}

}  // namespace real_vectors_test
