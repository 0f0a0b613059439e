// A passage is made by the gate, after the permission check, and by nothing else.
// reason: private
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

std::string shown(const rag::permitted_passage& passage);
std::string shown(const rag::permitted_passage& passage) {
#ifdef MUST_NOT_COMPILE
  return rag::permitted_passage(rag::detail::passage_data{}).text() + passage.text();
#else
  return passage.text();
#endif
}
