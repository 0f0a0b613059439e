// Who may read is no part of the question.
// reason: no member named|has no non-static data member
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

void ask(rag::query& asked);
void ask(rag::query& asked) {
#ifdef MUST_NOT_COMPILE
  asked.groups = {"payments-ops"};
#else
  asked.text = "payments-ops";
#endif
}
