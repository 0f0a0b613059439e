// A scope that exists gets no further group.
// reason: discards qualifiers|marked const|no matching member
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

std::size_t groups_of(rag::scope& reader);
std::size_t groups_of(rag::scope& reader) {
#ifdef MUST_NOT_COMPILE
  reader.groups().push_back("payments-ops");
  return reader.groups().size();
#else
  return reader.groups().size();
#endif
}
