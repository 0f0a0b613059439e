#include "two_files.hpp"

std::uint64_t other_file();

int main() { return retrieval_in_numbers() == other_file() ? 0 : 1; }
