#include "two_files.hpp"

std::uint64_t other_file();
std::uint64_t other_file() { return retrieval_in_numbers(); }
