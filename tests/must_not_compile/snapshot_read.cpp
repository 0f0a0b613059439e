// What a snapshot holds is reached by its searches alone.
// reason: is private|a private|private member
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

bool has_documents(const rag::snapshot& pinned, const rag::scope& reader);
bool has_documents(const rag::snapshot& pinned, const rag::scope& reader) {
#ifdef MUST_NOT_COMPILE
  static_cast<void>(reader);
  return !pinned.state_->tenants.empty();
#else
  return pinned.count(reader) > 0;
#endif
}
