// One page, one reader, one question: the smallest program that goes the whole way.
#include <iostream>
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

int main() {
  rag::access_directory people;
  people.set_groups({.user = "ana"}, {"support"});
  rag::retriever retriever({.permissions = &people, .identifiers = {"PAY-###"}});
  rag::document page{.id = "errors", .title = "Error codes", .allowed_groups = {"support"}};
  page.text = "## PAY-041\nThe provider timed out.\n\n## PAY-042\nThe stored key was rejected.\n";
  retriever.upsert(page, rag::chunk_structure(page));
  const rag::scope ana = retriever.scope_for({.user = "ana"});
  const rag::answer answer = retriever.search({.text = "What is PAY-042?", .limit = 1}, ana);
  for (const rag::permitted_passage& passage : answer.passages)
    std::cout << passage.id() << " (" << passage.why() << ")\n" << passage.text() << "\n";
}
