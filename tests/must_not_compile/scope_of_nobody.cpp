// There is no scope before somebody was asked about.
// reason: no matching|no default|default constructor
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

std::size_t groups_of(const rag::scope& given);
std::size_t groups_of(const rag::scope& given) {
#ifdef MUST_NOT_COMPILE
  rag::scope reader;
#else
  rag::scope reader = given;
#endif
  return reader.groups().size();
}
