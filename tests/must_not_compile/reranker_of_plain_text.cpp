// A reranker is given permitted passages; one that takes bare text does not fit.
// reason: conver|no match|no viable|cannot
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

rag::reranker model();
rag::reranker model() {
  rag::reranker made;
#ifdef MUST_NOT_COMPILE
  made.score = [](const std::vector<std::string>& texts) {
    return std::vector<double>(texts.size());
  };
#else
  made.score = [](const rag::rerank_request& asked) {
    return std::vector<double>(asked.passages.size());
  };
#endif
  return made;
}
