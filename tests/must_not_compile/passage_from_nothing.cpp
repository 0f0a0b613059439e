// There is no empty passage to be filled later.
// reason: no matching|no default constructor|deleted
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

std::size_t count_of(const rag::permitted_passage& passage);
std::size_t count_of(const rag::permitted_passage& passage) {
#ifdef MUST_NOT_COMPILE
  return rag::permitted_passage().text().size() + passage.text().size();
#else
  return passage.text().size();
#endif
}
