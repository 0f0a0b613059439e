// What the gate let through cannot be changed into something it has not seen.
// reason: const|no match|no viable
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

std::string shown(rag::permitted_passage& passage);
std::string shown(rag::permitted_passage& passage) {
#ifdef MUST_NOT_COMPILE
  passage.text() = "text of a document that was never checked";
#endif
  return passage.text();
}
