// What both files of the link test compute with the header. Inline functions of the header are
// compiled in both, so the two answers must agree and the linker must see one definition of each.
#include <rag_retrieve.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace {

std::uint64_t mix(std::uint64_t seed, std::uint64_t value) {
  return (seed ^ value) * 1099511628211U;
}

std::uint64_t retrieval_in_numbers() {
  namespace rag = rag_retrieve;
  const std::vector<std::vector<std::string>> lists = {{"R", "G", "E42", "E43", "E41"},
                                                       {"E42", "R", "E43", "G", "E41"}};
  std::uint64_t sum = 14695981039346656037U;
  for (const auto& hit : rag::fuse_by_rank<std::string>(lists)) {
    sum = mix(sum, static_cast<std::uint64_t>(hit.score * 1e12));
    sum = mix(sum, static_cast<unsigned char>(hit.id.back()));
  }
  const std::vector<float> one = {0.6F, 0.8F, 0.0F};
  const std::vector<float> two = {0.0F, 1.0F, 0.0F};
  return mix(sum, static_cast<std::uint64_t>(rag::cosine(one, two) * 1e6));
}

}  // namespace
