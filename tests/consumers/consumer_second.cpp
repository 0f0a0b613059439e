#include <rag_retrieve.hpp>

std::size_t in_second_file() {
  rag_retrieve::row_set rows(3);
  rows.insert(2);
  return rows.count();
}
