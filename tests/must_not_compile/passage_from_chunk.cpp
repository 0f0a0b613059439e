// A chunk that nobody checked is no passage of an answer.
// reason: no matching|no viable|could not convert|cannot convert|no known conversion
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

void add(rag::answer& found, const rag::chunk& piece, const rag::permitted_passage& passage);
void add(rag::answer& found, const rag::chunk& piece, const rag::permitted_passage& passage) {
#ifdef MUST_NOT_COMPILE
  found.passages.push_back(piece);
  static_cast<void>(passage);
#else
  found.passages.push_back(passage);
  static_cast<void>(piece);
#endif
}
