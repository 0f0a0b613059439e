// A gate opens for the search that owns it, not for whoever holds a reference.
// reason: is private|a private|private member
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

bool opens(const rag::detail::gate& gate);
bool opens(const rag::detail::gate& gate) {
#ifdef MUST_NOT_COMPILE
  return gate.open(rag::detail::passage_data{}).has_value();
#else
  return sizeof(gate) > 0;
#endif
}
