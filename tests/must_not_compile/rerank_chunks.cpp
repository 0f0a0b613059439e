// A reranker scores permitted passages; chunks are not handed to it.
// reason: no match|no viable|could not convert|cannot convert|no known conversion
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

std::size_t pairs(rag::rerank_request& request, const std::vector<rag::chunk>& pieces,
                  const std::vector<rag::permitted_passage>& passages);
std::size_t pairs(rag::rerank_request& request, const std::vector<rag::chunk>& pieces,
                  const std::vector<rag::permitted_passage>& passages) {
#ifdef MUST_NOT_COMPILE
  request.passages = pieces;
  return passages.size();
#else
  request.passages = passages;
  return pieces.size();
#endif
}
