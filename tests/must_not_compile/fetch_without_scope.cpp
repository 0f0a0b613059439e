// A chunk is not to be had by its id alone.
// reason: no matching|too few arguments
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

std::size_t find(const rag::retriever& store, const std::vector<std::string>& ids,
                 const rag::scope& reader);
std::size_t find(const rag::retriever& store, const std::vector<std::string>& ids,
                 const rag::scope& reader) {
#ifdef MUST_NOT_COMPILE
  static_cast<void>(reader);
  return store.fetch(ids).size();
#else
  return store.fetch(ids, reader).size();
#endif
}
