// A tenant comes with the scope, not with the question.
// reason: no member named|has no non-static data member
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

void ask(rag::query& asked);
void ask(rag::query& asked) {
#ifdef MUST_NOT_COMPILE
  asked.tenant = "acme";
#else
  asked.text = "acme";
#endif
}
