// The operator's trace, which names what was denied, is nothing an answer can hold.
// reason: no match|no viable|cannot convert|could not convert
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

void keep(rag::answer& found, const rag::operator_trace& full, const rag::reader_trace& own);
void keep(rag::answer& found, const rag::operator_trace& full, const rag::reader_trace& own) {
#ifdef MUST_NOT_COMPILE
  found.trace = full;
  static_cast<void>(own);
#else
  found.trace = own;
  static_cast<void>(full);
#endif
}
