// Groups that a request brings along make no scope.
// reason: is private|a private|private constructor|private member
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

rag::scope reader_of(const rag::permission_source& source, const rag::principal& who);
rag::scope reader_of(const rag::permission_source& source, const rag::principal& who) {
#ifdef MUST_NOT_COMPILE
  return rag::scope(source, who, {"payments-ops"});
#else
  return rag::scope_for(source, who);
#endif
}
