// Exact search compares the question with every vector. IVF sorts them into lists of neighbours
// and reads only the lists near the question. What does that save, and what does it miss?
#include <cstdio>
#include <rag_retrieve.hpp>
#include <random>
#include <vector>

namespace rag = rag_retrieve;

constexpr std::size_t rows = 4000;
constexpr std::size_t topics = 40;

/// A vector around the direction of its topic; all of it follows from the row's number.
std::vector<float> vector_of(std::size_t row) {
  std::mt19937 topic(static_cast<unsigned>(row % topics));
  std::mt19937 own(static_cast<unsigned>(1000 + row));
  const auto number = [](std::mt19937& random) {
    return static_cast<double>(random()) / 4294967296.0 - 0.5;
  };
  std::vector<float> values;
  for (int i = 0; i < 16; ++i) {
    values.push_back(static_cast<float>(number(topic) + 1.3 * number(own)));
  }
  return values;
}

int main() {
  rag::flat_index exact(16);
  for (std::size_t row = 0; row < rows; ++row) exact.add(vector_of(row), "row");
  std::vector<std::vector<float>> questions;
  for (std::size_t i = 0; i < 100; ++i) questions.push_back(vector_of(rows + i));

  rag::ivf_index lists({.lists = topics, .probes = 4});
  lists.train(exact);
  std::printf("%zu vectors in %zu lists, 10 hits for each of %zu questions\n\n", exact.size(),
              lists.lists(), questions.size());

  const rag::row_set all = rag::row_set::all(rows);
  std::printf("lists read   rows compared   recall\n");
  for (const std::size_t probes : {1U, 2U, 4U, 8U, 16U, 40U}) {
    const rag::recall_report report = rag::measure_recall(lists, exact, questions, 10, all, probes);
    std::printf("%10.0f   %13.0f   %6.2f\n", report.lists_read, report.rows_compared,
                report.recall);
  }

  // One reader may see topic 0 alone and asks about topic 39. What he may read lies far from his
  // question: the search goes on until it has found it.
  rag::row_set readable(rows);
  for (std::size_t row = 0; row < rows; row += topics) readable.insert(row);
  const rag::ivf_result answer = lists.search(vector_of(39), 10, readable);
  std::printf("\na reader of topic 0 asks about topic 39: %zu hits of %zu rows in %zu lists\n",
              answer.hits.size(), answer.rows_compared, answer.lists_read);

  // A retriever does the same for each tenant: {.ivf = rag::ivf_options{.probes = 4}}.
}
