// A program of two files that both include the header.
#include <rag_retrieve.hpp>

std::size_t in_second_file();

int main() {
  return rag_retrieve::detail::text_of(42) == "42" && in_second_file() == 1 ? 0 : 1;
}
