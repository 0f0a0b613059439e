// A search takes a scope: the permission source has to be asked before.
// reason: no matching|no viable|cannot convert|no known conversion|invalid initialization
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

rag::answer find(const rag::retriever& store, const rag::principal& who);
rag::answer find(const rag::retriever& store, const rag::principal& who) {
#ifdef MUST_NOT_COMPILE
  return store.search({}, who);
#else
  return store.search({}, store.scope_for(who));
#endif
}
