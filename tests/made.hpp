// What tests on made data share: random numbers, sets of rows, and how often to try.
#ifndef RAG_RETRIEVE_TESTS_MADE_HPP
#define RAG_RETRIEVE_TESTS_MADE_HPP

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <rag_retrieve.hpp>
#include <string>
#include <string_view>

namespace made {

/// splitmix64: the same numbers on every platform.
class dice {
 public:
  explicit dice(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }
  bool chance(std::size_t percent) { return below(100) < percent; }
  template <class List>
  const auto& of(const List& list) {
    return list[below(std::size(list))];
  }

 private:
  std::uint64_t state_;
};

/// Rows of an index of `size`, each with a chance of so many `of` a hundred or another number.
inline rag_retrieve::row_set random_rows(dice& random, std::size_t size, std::size_t chance,
                                         std::size_t of = 100) {
  rag_retrieve::row_set rows(size);
  for (std::size_t row = 0; row < size; ++row) {
    if (random.below(of) < chance) rows.insert(row);
  }
  return rows;
}

/// The same with a share from 0 to 1.
inline rag_retrieve::row_set some_of(std::size_t size, double share, std::uint64_t seed) {
  rag_retrieve::detail::random_source random(seed);
  rag_retrieve::row_set rows(size);
  for (std::size_t row = 0; row < size; ++row) {
    if (random.unit() < share) rows.insert(row);
  }
  return rows;
}

/// RAG_RETRIEVE_PROPERTY_RUNS where that is set: a long run asks for more.
inline std::uint64_t property_runs(std::uint64_t usual) {
  const char* asked = std::getenv("RAG_RETRIEVE_PROPERTY_RUNS");
  const std::uint64_t runs = asked == nullptr ? 0 : std::strtoull(asked, nullptr, 10);
  return runs == 0 ? usual : runs;
}

/// A text over and over.
inline std::string repeated(std::string_view unit, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += unit;
  return out;
}

/// Counts how often a counter of tokens is asked and how many bytes it is shown.
struct watched_counter {
  std::size_t calls = 0;
  std::size_t seen = 0;

  rag_retrieve::tokenizer tokens(std::size_t (*count)(std::string_view)) {
    return {.count =
                [this, count](std::string_view text) {
                  ++calls;
                  seen += text.size();
                  return count(text);
                },
            .split = {}};
  }
};

}  // namespace made

#endif
