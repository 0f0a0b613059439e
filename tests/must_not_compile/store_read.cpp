// What a retriever holds is reached by its searches alone.
// reason: is private|a private|private member
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

bool has_documents(const rag::retriever& store, const rag::scope& reader);
bool has_documents(const rag::retriever& store, const rag::scope& reader) {
#ifdef MUST_NOT_COMPILE
  static_cast<void>(reader);
  return !store.core_->current()->tenants.empty();
#else
  return store.snapshot().count(reader) > 0;
#endif
}
