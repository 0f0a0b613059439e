// Nobody searches as nobody in particular.
// reason: no matching|too few arguments
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

rag::answer find(const rag::retriever& store, const rag::scope& reader);
rag::answer find(const rag::retriever& store, const rag::scope& reader) {
#ifdef MUST_NOT_COMPILE
  static_cast<void>(reader);
  return store.search({});
#else
  return store.search({}, reader);
#endif
}
