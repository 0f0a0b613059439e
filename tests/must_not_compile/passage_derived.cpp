// A class of the caller's own cannot put text into a passage either.
// reason: is private|a private|private member
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

struct marked : rag::permitted_passage {
  explicit marked(const rag::permitted_passage& real) : permitted_passage(real) {
#ifdef MUST_NOT_COMPILE
    data_.text = "text of a document that was never checked";
#endif
  }
};
