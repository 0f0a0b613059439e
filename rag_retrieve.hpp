// rag_retrieve.hpp - the retrieval half of RAG in one C++20 file.                    version 0.1.0
//
//   documents -> chunks -> { BM25 terms | exact identifiers | vectors } -> permission recheck
//             -> rank fusion -> rerank -> caps -> passages
//
// USE        #include it anywhere; there is nothing to link. examples/hello.cpp is a first program:
//
//              rag::access_directory people;                          // who is in which group
//              people.set_groups({.user = "ana"}, {"payments-ops"});
//              rag::retriever retriever({.permissions = &people, .identifiers = {"PAY-###"}});
//              retriever.upsert(page, rag::chunk_structure(page));    // page: an rag::document
//              rag::scope ana = retriever.scope_for({.user = "ana"});
//              for (const auto& passage : retriever.search({.text = question}, ana).passages) ...
//
// CONTENTS   A section uses only those before it, and each can be used alone.
//
//    1  Errors and tools       result<T>, the one throw and the one try, sets of rows
//    2  Text and Unicode       UTF-8, graphemes, folding, lines, sentences
//    3  Tokens                 counting and splitting as callbacks; the default word counter
//    4  Vectors                dot product, cosine, the embedder
//    5  Documents and chunks   the records
//    6  Access control         principal, scope, permission source, the gate
//    7  Chunkers               whole, fixed, sentence, packed, structure, recursive, semantic,
//                              parent-child
//    8  Analysis               terms from text; identifier patterns
//    9  Terms                  inverted index, BM25 and its explanation, exact identifiers
//   10  Vector indexes         exact scan, IVF
//   11  Fusion                 reciprocal ranks
//   12  Reranking              a model's scores, checked
//   13  Selection              parents, overlaps, caps, pages, budgets
//   14  Retriever              updates, snapshots, the stages of a search
//   15  Evaluation             measures, intervals, ablation, TREC files
//   16  Persistence            an index as bytes, and back
//
// ARTICLE    Where each part of the article stands; tests/article.cpp holds its claims.
//
//   choosing what search can return; fixed-size, overlap, sentences, structure, recursion     7
//   semantic chunking; small chunks and larger sections (tests/article_chunking.cpp)          7, 13
//   records of the five chunks, heading and error code                                        5, 8
//   finding the repair when the words differ                                                  4, 10
//   making the exact error code count; the inverted index; BM25                               8, 9
//   combining both searches                                                                   11
//   comparing the shortlist more carefully                                                    12
//   only search what the user can read; when filtering happens                                6, 14
//   keeping the search records current; processing each question                              14
//   the tutorial's combine step                                                              11, 13
//
// CHOICES    Where sources disagree, or we depart from the article.
//
//   idf is ln(1 + (N - n + 0.5) / (n + 0.5)), never negative, as in Lucene (9)
//   N, n and the average length are counted over what the reader may read (9, 14)
//   a word that stands twice in a question counts once (9)
//   BM25 scores are whole numbers of 2^-20, the same on every platform (9)
//   chunks that hold a code of the question come first: our rule, and a switch (9)
//   ranks count from 1 and are numbered after permission checks and removal of repeats (11, 14)
//   ties: fused score, best single rank, id; the tutorial leaves them to insertion order (11)
//   stop words leave questions only, never the index (8)
//   a zero vector is at distance 1 and outside the statistics; percentiles interpolate (7)
//   children are sections even where the whole page would fit (7)
//   a parent is open only to who may read every child in it (14)
//   with IVF, what is missed may depend on rows the reader may not see; exact is the default (10)
//
// PROMISES   A chunk is a byte range of its document; none exceeds its limit by the caller's own
//            counter; no cut inside a grapheme; linear time. A search sees one state. Nobody sees
//            what he may not read: no hit, count, rank, score or message depends on it. One total
//            order everywhere. A failing callback changes nothing and leaks nothing.
//
// LIMITS     Everything is held in memory. IVF is chosen by the caller, and there is no HNSW. One
//            level of parents. No built-in stemmers. No learned sparse vectors, no late
//            interaction. Text from PDF is the loader's problem.
//
// SWITCHES   RAG_RETRIEVE_USE_ICU 0 or 1 (0 unless defined, never guessed; link icuuc with 1):
//            Unicode folding with compatibility forms, and dictionary word breaks.
//
// LICENSE    MIT, in full at the end of this file.

#ifndef RAG_RETRIEVE_HPP
#define RAG_RETRIEVE_HPP

#define RAG_RETRIEVE_VERSION_MAJOR 0
#define RAG_RETRIEVE_VERSION_MINOR 1
#define RAG_RETRIEVE_VERSION_PATCH 0
#define RAG_RETRIEVE_VERSION "0.1.0"

#ifndef RAG_RETRIEVE_USE_ICU
#define RAG_RETRIEVE_USE_ICU 0
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <condition_variable>  // with the clocks and durations of <chrono>, without its 2,400 lines
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <initializer_list>
#include <istream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#if RAG_RETRIEVE_USE_ICU
#include <unicode/ubrk.h>
#include <unicode/unorm2.h>
#include <unicode/ustring.h>
#include <unicode/utext.h>
#endif

// The inline namespace carries what changes the meaning of a name: a program whose files disagree
// about exceptions or ICU then has two sets of symbols instead of one with two bodies.
#if defined(__cpp_exceptions)
#define RAG_RETRIEVE_DETAIL_EXCEPTIONS 1
#if RAG_RETRIEVE_USE_ICU
#define RAG_RETRIEVE_DETAIL_ABI v0_icu
#else
#define RAG_RETRIEVE_DETAIL_ABI v0
#endif
#else
#define RAG_RETRIEVE_DETAIL_EXCEPTIONS 0
#if RAG_RETRIEVE_USE_ICU
#define RAG_RETRIEVE_DETAIL_ABI v0_icu_noexc
#else
#define RAG_RETRIEVE_DETAIL_ABI v0_noexc
#endif
#endif

namespace rag_retrieve {
inline namespace RAG_RETRIEVE_DETAIL_ABI {

// =================================================================================================
// 1. Errors and tools: how anything here fails, and what every section uses
//
// In   what failed, which value, what was expected.       Out   an error, returned or thrown.
//
// Every operation that data, files or callbacks can make fail exists as try_x, which returns a
// result<T>, and as x, which is try_x(...).value() and throws the error. Without exceptions only
// try_x should be called: x ends the program with the sentence. The header's only throw and only
// try stand in this section.
// =================================================================================================

/// What went wrong, as a code that programs compare. The numbers are stable.
enum class errc {
  invalid_argument = 1,    ///< an option or argument outside what its documentation allows
  duplicate_id = 2,        ///< one id names two things
  dimension_mismatch = 3,  ///< a vector of another length than its space
  not_finite = 4,          ///< NaN or infinity in a vector or score
  model_mismatch = 5,      ///< a vector of another model than its space, whatever its length
  stale_revision = 6,      ///< a document older than the one that is stored
  not_found = 7,           ///< no such document, or none that this caller may know of
  wrong_type = 8,          ///< a metadata value of another kind than a condition asks for
  bad_counter = 9,         ///< a token counter or splitter that contradicts itself
  embedder_failed = 10,    ///< the embedder threw, or gave the wrong number of vectors
  reranker_failed = 11,    ///< the same of a reranker, where the caller made it fatal
  permission_failed = 12,  ///< no usable answer from the permission source: nothing is readable
  callback_failed = 13,    ///< any other callback of the caller
  corrupt_file = 14,       ///< bytes that are no index, or no longer the ones that were saved
  incompatible_file = 15,  ///< an index made with other settings, or by a later version
  write_failed = 16,       ///< the stream took not all of an index
};

/// An error: a stable code and one sentence that names the thing, the value and the expectation.
class error : public std::exception {
 public:
  error(errc code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] errc code() const noexcept { return code_; }
  [[nodiscard]] const std::string& message() const noexcept { return message_; }
  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }

 private:
  errc code_;
  std::string message_;
};

namespace detail {

/// The one way out for an error that nobody asked to have returned. Without exceptions the program
/// ends with the sentence on standard error.
[[noreturn]] inline void raise(const error& failure) {
#if RAG_RETRIEVE_DETAIL_EXCEPTIONS
  throw failure;
#else
  std::fputs("rag_retrieve: ", stderr);
  std::fputs(failure.what(), stderr);
  std::fputs("\n", stderr);
  std::abort();
#endif
}

}  // namespace detail

/// A value, or the error that stands in its place.
template <class Value>
class [[nodiscard]] result {
 public:
  result(Value value) : value_(std::move(value)) {}
  result(error failure) : failure_(std::move(failure)) {}

  /// A callback may return whatever becomes a Value, such as a list of another element type.
  template <class Other>
    requires(std::is_convertible_v<Other &&, Value> && !std::is_convertible_v<Other &&, error> &&
             !std::is_same_v<std::decay_t<Other>, Value> &&
             !std::is_same_v<std::decay_t<Other>, result<Value>>)
  result(Other&& value) : value_(std::forward<Other>(value)) {}

  [[nodiscard]] bool ok() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }

  /// The value; throws the error if there is none.
  [[nodiscard]] Value& value() & { return (require(), *value_); }
  [[nodiscard]] const Value& value() const& { return (require(), *value_); }
  [[nodiscard]] Value value() && { return (require(), std::move(*value_)); }

  /// The error; only where ok() is false.
  [[nodiscard]] const error& failure() const { return *failure_; }

  [[nodiscard]] Value& operator*() & { return value(); }
  [[nodiscard]] const Value& operator*() const& { return value(); }
  [[nodiscard]] Value* operator->() { return &value(); }
  [[nodiscard]] const Value* operator->() const { return &value(); }

 private:
  void require() const {
    if (!ok()) detail::raise(failure());
  }

  std::optional<Value> value_;  // one of the two; std::variant would bring 1,400 lines
  std::optional<error> failure_;
};

/// Success, or an error.
template <>
class [[nodiscard]] result<void> {
 public:
  result() = default;
  result(error failure) : failure_(std::move(failure)) {}

  [[nodiscard]] bool ok() const noexcept { return !failure_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  void value() const {
    if (failure_) detail::raise(*failure_);
  }
  [[nodiscard]] const error& failure() const { return *failure_; }

 private:
  std::optional<error> failure_;
};

namespace detail {

template <class Type>
struct result_of {
  using type = result<Type>;
};
template <class Value>
struct result_of<result<Value>> {
  using type = result<Value>;
};

/// Runs code of the caller. Whatever it throws becomes an error with the given code; an error that
/// it throws or returns itself passes unchanged. `what` opens the sentence.
template <class Function>
[[nodiscard]] auto guarded(errc code, std::string_view what, Function&& function) ->
    typename result_of<std::invoke_result_t<Function>>::type {
#if RAG_RETRIEVE_DETAIL_EXCEPTIONS
  try {
    return std::forward<Function>(function)();
  } catch (const error& failure) {
    return failure;
  } catch (const std::exception& failure) {
    return error(code, std::string(what) + ": " + failure.what());
  } catch (...) {
    return error(code, std::string(what) + ": threw something that is not a std::exception");
  }
#else
  static_cast<void>(code);
  static_cast<void>(what);
  return std::forward<Function>(function)();
#endif
}

/// 42 -> "42"; the sentences of errors are built with it.
[[nodiscard]] inline std::string text_of(std::size_t number) { return std::to_string(number); }

/// Quotes a name for a sentence: at most 64 bytes of it, whole characters, control bytes and quotes
/// as '?'.
[[nodiscard]] inline std::string in_quotes(std::string_view name) {
  std::size_t length = (std::min)(name.size(), std::size_t{64});
  if (length < name.size()) {  // not inside a UTF-8 sequence, which has three further bytes at most
    const auto continues = [name](std::size_t at) {
      return (static_cast<unsigned char>(name[at]) & 0xC0) == 0x80;
    };
    for (int back = 0; back < 3 && continues(length); ++back) --length;
  }
  std::string out = "'";
  for (char c : name.substr(0, length)) {
    const auto byte = static_cast<unsigned char>(c);
    out += (byte < 0x20 || byte == 0x7F || c == '\'') ? '?' : c;
  }
  return out += name.size() > length ? "...'" : "'";
}

/// Bit test instead of std::isfinite: -ffast-math may fold that one to true.
[[nodiscard]] inline bool is_finite(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return (bits & 0x7F800000U) != 0x7F800000U;
}
[[nodiscard]] inline bool is_finite(double value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return (bits & 0x7FF0000000000000U) != 0x7FF0000000000000U;
}

/// A number for a sentence, in any locale: 0.5 -> "0.5", -3 -> "-3", 2e300 -> "2e300". Six digits
/// after the point at most.
[[nodiscard]] inline std::string decimal_text(double value) {
  const bool negative = value < 0;
  if (!is_finite(value)) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x000FFFFFFFFFFFFFU) != 0) return "NaN";
    return (bits >> 63) != 0 ? "-infinity" : "infinity";
  }
  double rest = negative ? -value : value;
  int exponent = 0;
  if (rest >= 1e12) {
    for (; rest >= 10; rest /= 10) ++exponent;
  } else if (rest > 0 && rest < 1e-4) {
    for (; rest < 1; rest *= 10) --exponent;
  }
  const auto millionths = static_cast<std::uint64_t>(rest * 1e6 + 0.5);
  std::string out = (negative ? "-" : "") + std::to_string(millionths / 1000000);
  if (millionths % 1000000 != 0) {
    const std::string digits = std::to_string(1000000 + millionths % 1000000);
    out += '.' + digits.substr(1, digits.find_last_not_of('0'));
  }
  return exponent == 0 ? out : out + 'e' + std::to_string(exponent);
}

/// Keeps the first `count` of `items` in the order of `ranks_before`, sorted; drops the rest.
/// `ranks_before` must be a total order, so that the outcome does not depend on how they came.
/// Cost: O(n + count log count).
template <class Item, class Order>
void keep_best(std::vector<Item>& items, std::size_t count, const Order& ranks_before) {
  if (items.size() > count) {
    const auto cut = items.begin() + static_cast<std::ptrdiff_t>(count);
    std::nth_element(items.begin(), cut, items.end(), ranks_before);
    items.erase(cut, items.end());
  }
  std::sort(items.begin(), items.end(), ranks_before);
}

/// Takes sorted items into a sorted list that keeps its first `count`, at least 1. Cost: O(count),
/// and O(log of the items) if none of them gets in.
template <class Item, class Order>
void take_best(std::vector<Item>& best, std::vector<Item> items, std::size_t count,
               const Order& ranks_before) {
  auto end = items.end();
  if (best.size() == count) {
    end = std::partition_point(items.begin(), end,
                               [&](const Item& each) { return ranks_before(each, best.back()); });
  }
  if (end == items.begin()) return;
  std::vector<Item> merged;
  merged.reserve(best.size() + items.size());
  std::merge(best.begin(), best.end(), items.begin(), end, std::back_inserter(merged),
             ranks_before);
  if (merged.size() > count) {
    merged.erase(merged.begin() + static_cast<std::ptrdiff_t>(count), merged.end());
  }
  best = std::move(merged);
}

/// Merges sorted runs that stand one after the other into one.
///
/// begins  of each run, rising, the first is 0; used up
/// spare   memory, to be reused from call to call
/// cost    O(items x log runs)
template <class Item, class Order>
void merge_runs(std::span<Item> items, std::vector<std::size_t>& begins, std::vector<Item>& spare,
                const Order& before) {
  if (begins.size() < 2) return;
  if (spare.size() < items.size()) spare.resize(items.size());
  std::span<Item> from = items;
  std::span<Item> to = std::span(spare).first(items.size());
  const auto at = [](std::span<Item> in, std::size_t place) {
    return in.begin() + static_cast<std::ptrdiff_t>(place);
  };
  while (begins.size() > 1) {
    std::size_t kept = 0;
    for (std::size_t run = 0; run < begins.size(); run += 2) {
      const auto begin_of = [&](std::size_t which) {
        return which < begins.size() ? begins[which] : items.size();
      };
      const std::size_t first = begins[run];
      const std::size_t middle = begin_of(run + 1);
      std::merge(at(from, first), at(from, middle), at(from, middle), at(from, begin_of(run + 2)),
                 at(to, first), before);
      begins[kept++] = first;
    }
    begins.resize(kept);
    std::swap(from, to);
  }
  if (from.data() != items.data()) std::copy(from.begin(), from.end(), items.begin());
}

}  // namespace detail

/// A set of rows (0 to size - 1): which chunks of an index a search may look at.
class row_set {
 public:
  row_set() = default;
  /// No row of an index of `size` rows.
  explicit row_set(std::size_t size) : size_(size), words_((size + 63) / 64) {}
  /// Every row of it.
  [[nodiscard]] static row_set all(std::size_t size) {
    row_set rows(size);
    for (std::uint64_t& word : rows.words_) word = ~std::uint64_t{0};
    if (size % 64 != 0) rows.words_.back() = (std::uint64_t{1} << (size % 64)) - 1;
    return rows;
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool contains(std::size_t row) const {
    return row < size_ && ((words_[row / 64] >> (row % 64)) & 1U) != 0;
  }
  void insert(std::size_t row) { words_[row / 64] |= std::uint64_t{1} << (row % 64); }
  void remove(std::size_t row) { words_[row / 64] &= ~(std::uint64_t{1} << (row % 64)); }

  /// Removes what `other` does not contain. Cost: O(size / 64).
  void keep_common(const row_set& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      words_[i] &= i < other.words_.size() ? other.words_[i] : 0;
    }
  }

  /// How many rows are in the set. Cost: O(size / 64).
  [[nodiscard]] std::size_t count() const {
    std::size_t sum = 0;
    for (const std::uint64_t word : words_) sum += static_cast<std::size_t>(std::popcount(word));
    return sum;
  }
  /// Row i is bit i mod 64 of word i / 64.
  [[nodiscard]] std::span<const std::uint64_t> words() const noexcept { return words_; }
  /// Calls visit(row) for each row, rising. Cost: O(size / 64 + rows).
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      for (std::uint64_t word = words_[i]; word != 0; word &= word - 1) {
        visit(static_cast<std::uint32_t>(i * 64 + static_cast<unsigned>(std::countr_zero(word))));
      }
    }
  }

 private:
  std::size_t size_ = 0;
  std::vector<std::uint64_t> words_;
};

namespace detail {

inline constexpr std::uint32_t no_row = 0xFFFFFFFFU;

/// A set of keys, as far as this file needs one. The standard's sets would each bring some 800
/// lines into every file of a program; the map is there anyway.
template <class Key>
class key_set {
 public:
  key_set() = default;
  template <class Iterator>
  key_set(Iterator first, Iterator last) {
    insert(first, last);
  }

  /// True if the key is new.
  bool insert(Key key) { return keys_.try_emplace(std::move(key)).second; }
  template <class Iterator>
  void insert(Iterator first, Iterator last) {
    for (; first != last; ++first) insert(Key(*first));
  }
  template <class Other>
  [[nodiscard]] bool contains(const Other& key) const {
    return keys_.contains(key);
  }
  /// True if it was there.
  bool erase(const Key& key) { return keys_.erase(key) != 0; }
  [[nodiscard]] std::size_t size() const { return keys_.size(); }

 private:
  struct nothing {};
  std::map<Key, nothing, std::less<>> keys_;
};

/// Random numbers that are the same everywhere: those of the standard library differ between
/// platforms for one seed. Not for secrets.
///
/// source  Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014 (splitmix64)
class random_source {
 public:
  explicit random_source(std::uint64_t seed) : state_(seed) {}

  /// 64 random bits.
  [[nodiscard]] std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
    return mixed ^ (mixed >> 31);
  }

  /// 0 to n - 1, each as likely as any other; 0 for n = 0. What would favour the first numbers, the
  /// incomplete last round of n, is drawn again.
  [[nodiscard]] std::uint64_t below(std::uint64_t n) {
    if (n == 0) return 0;
    const std::uint64_t incomplete = (0 - n) % n;
    std::uint64_t drawn = next();
    while (drawn < incomplete) drawn = next();
    return drawn % n;
  }

  /// At least 0 and below 1, in steps of 2^-53.
  [[nodiscard]] double unit() {
    return static_cast<double>(next() >> 11) * (1.0 / 9007199254740992.0);
  }

 private:
  std::uint64_t state_;
};

}  // namespace detail
// =================================================================================================
// 2. Text and Unicode: bytes, characters, lines, sentences
//
// In   any string of bytes, meant as UTF-8.      Out   half-open byte ranges of it, or folded text.
//
// Positions are always bytes of the caller's text. A byte that is no part of a valid sequence is a
// unit of its own, so that nothing here fails: what goes in comes out, covered by ranges.
//
//   grapheme   what a reader takes for one character: a letter with its marks, a flag, a joined
//              emoji, CR LF. Nothing is ever cut inside one.
//   line       up to LF, CR LF or CR; the other separators of Unicode end no line.
//   sentence   see sentence_ranges: when in doubt two sentences stay one, because a merged sentence
//              costs a search less than a cut one.
//
// Everything is one forward pass with a bounded look to either side. The section is longer than
// others by its tables, which stand last in it.
//
// Source   The Unicode Standard 15.0; UAX #29 (grapheme clusters); CaseFolding.txt.
// =================================================================================================

/// A half-open range of bytes [begin, end).
struct byte_range {
  std::size_t begin = 0;  ///< first byte
  std::size_t end = 0;    ///< one past the last byte

  [[nodiscard]] constexpr std::size_t size() const noexcept { return end - begin; }
  [[nodiscard]] constexpr bool empty() const noexcept { return begin >= end; }
  friend constexpr bool operator==(const byte_range&, const byte_range&) = default;
};

/// The bytes of a range. What lies past the end of the text is left out.
[[nodiscard]] constexpr std::string_view slice(std::string_view text, byte_range range) {
  if (range.begin >= text.size() || range.empty()) return {};
  return text.substr(range.begin, range.end - range.begin);
}

// ---- code points --------------------------------------------------------------------------------

/// One code point as decoded, or one byte that is none.
struct code_point {
  char32_t value = 0;       ///< U+FFFD for an invalid byte
  std::uint8_t length = 0;  ///< in bytes; 0 only at the end of the text
  bool valid = false;       ///< false: an invalid byte, or the end
};

namespace detail {

/// The same as decode for a byte above ASCII.
[[nodiscard]] inline code_point decode_sequence(std::string_view text, std::size_t at) {
  constexpr code_point invalid{0xFFFD, 1, false};
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0xC2 || lead > 0xF4) return invalid;

  const std::uint8_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (length > text.size() - at) return invalid;
  char32_t value = lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[at + i]);
    if ((next & 0xC0U) != 0x80) return invalid;
    value = (value << 6) | (next & 0x3FU);
  }
  const char32_t smallest = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < smallest || value > 0x10FFFF || surrogate) return invalid;
  return {value, length, true};
}

}  // namespace detail

/// Decodes the code point that begins at byte `at`. Strict: no surrogates, no overlong forms,
/// nothing above U+10FFFF; of an invalid sequence only the first byte is taken.
[[nodiscard]] inline code_point decode(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {0xFFFD, 0, false};
  const auto lead = static_cast<unsigned char>(text[at]);
  return lead < 0x80 ? code_point{lead, 1, true} : detail::decode_sequence(text, at);
}

/// Appends one code point as UTF-8; U+FFFD for a surrogate or what lies above U+10FFFF.
inline void append_utf8(std::string& out, char32_t value) {
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) value = 0xFFFD;
  const auto tail = [&](unsigned shift) {
    out += static_cast<char>(0x80U | ((value >> shift) & 0x3FU));
  };
  if (value < 0x80) {
    out += static_cast<char>(value);
  } else if (value < 0x800) {
    out += static_cast<char>(0xC0U | (value >> 6));
    tail(0);
  } else if (value < 0x10000) {
    out += static_cast<char>(0xE0U | (value >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0U | (value >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

/// True if every byte belongs to a valid sequence.
[[nodiscard]] inline bool is_valid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const code_point point = decode(text, at);
    if (!point.valid) return false;
    at += point.length;
  }
  return true;
}

namespace detail {

// What the tables at the end of this section answer.
enum class grapheme_class : char {
  other = 'O',
  control = 'C',     // CR and LF too
  extend = 'E',      // Extend: marks, variation selectors, emoji modifiers
  joiner = 'J',      // ZWJ
  regional = 'R',    // half of a flag
  prepend = 'P',     // joins what follows
  spacing = 'S',     // SpacingMark
  pictograph = 'X',  // Extended_Pictographic
  hangul_l = 'L',
  hangul_v = 'V',
  hangul_t = 'T',
  hangul_lv = '2',
  hangul_lvt = '3',
};
inline grapheme_class grapheme_class_of(char32_t value);
inline bool is_lower_case(char32_t value);
inline void append_folded(std::string& out, char32_t value);

/// A byte as a code point; equal to it only in ASCII.
[[nodiscard]] constexpr char32_t byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}
constexpr bool is_ascii_letter(char32_t value) {
  return (value >= 'a' && value <= 'z') || (value >= 'A' && value <= 'Z');
}
constexpr bool is_ascii_digit(char32_t value) { return value >= '0' && value <= '9'; }
constexpr char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// The code point that ends at byte `at`, not looking before `begin`. Length 0 at the begin.
[[nodiscard]] inline code_point decode_before(std::string_view text, std::size_t begin,
                                              std::size_t at) {
  if (at <= begin) return {0xFFFD, 0, false};
  if (byte_at(text, at - 1) < 0x80) return {byte_at(text, at - 1), 1, true};
  for (std::size_t length = 1; length <= 4 && length <= at - begin; ++length) {
    const code_point point = decode(text.substr(0, at), at - length);
    if (point.valid && point.length == length) return point;
    const auto byte = static_cast<unsigned char>(text[at - length]);
    if ((byte & 0xC0U) != 0x80) break;
  }
  return {0xFFFD, 1, false};
}

}  // namespace detail

/// The White_Space property of Unicode.
[[nodiscard]] constexpr bool is_white_space(char32_t value) {
  if (value < 0x80) return value == ' ' || (value >= 0x09 && value <= 0x0D);
  return value == 0x85 || value == 0xA0 || value == 0x1680 ||
         (value >= 0x2000 && value <= 0x200A) || value == 0x2028 || value == 0x2029 ||
         value == 0x202F || value == 0x205F || value == 0x3000;
}

/// Letters, marks and numbers (general categories L, M, N): marks stay with their word.
[[nodiscard]] inline bool is_letter_or_digit(char32_t value);

/// Letters of the scripts that put no space between words: Han, Hiragana, Katakana, Bopomofo, Yi,
/// Tangut, Thai, Lao, Khmer, Myanmar and the like.
[[nodiscard]] inline bool is_unspaced(char32_t value);

// ---- graphemes ----------------------------------------------------------------------------------

namespace detail {

/// Reads one grapheme cluster class by class and says where it ends (UAX #29, rules GB3 to GB13).
class grapheme_state {
 public:
  explicit grapheme_state(grapheme_class first) { enter(first); }

  /// True if `next` belongs to the cluster, which it then extends.
  bool joins(grapheme_class next) {
    const bool joined = continues(next);
    if (joined) enter(next);
    return joined;
  }

 private:
  using kind = grapheme_class;

  [[nodiscard]] bool continues(kind next) const {
    if (last_ == kind::control || next == kind::control) return false;            // GB4, GB5
    if (hangul_continues(next)) return true;                                      // GB6 - GB8
    if (next == kind::extend || next == kind::joiner) return true;                // GB9
    if (next == kind::spacing) return true;                                       // GB9a
    if (last_ == kind::prepend) return true;                                      // GB9b
    if (joined_pictograph_ && next == kind::pictograph) return true;              // GB11
    return last_ == kind::regional && next == kind::regional && regionals_ == 1;  // GB12, GB13
  }

  [[nodiscard]] bool hangul_continues(kind next) const {
    const bool vowel_next = next == kind::hangul_v;
    const bool tail_next = next == kind::hangul_t;
    switch (last_) {
      case kind::hangul_l:
        return next == kind::hangul_l || vowel_next || next == kind::hangul_lv ||
               next == kind::hangul_lvt;
      case kind::hangul_v:
      case kind::hangul_lv:
        return vowel_next || tail_next;
      case kind::hangul_t:
      case kind::hangul_lvt:
        return tail_next;
      default:
        return false;
    }
  }

  void enter(kind next) {
    joined_pictograph_ = next == kind::joiner && after_pictograph_;
    if (next != kind::extend) after_pictograph_ = next == kind::pictograph;
    if (next == kind::regional) ++regionals_;
    last_ = next;
  }

  kind last_ = kind::other;
  int regionals_ = 0;
  bool after_pictograph_ = false;   // a pictograph, then only marks
  bool joined_pictograph_ = false;  // the same, then the joiner just read
};

/// An invalid byte stands alone, like a control character.
[[nodiscard]] inline grapheme_class grapheme_class_of(const code_point& point) {
  return point.valid ? grapheme_class_of(point.value) : grapheme_class::control;
}

/// True if the code point at `at` belongs to whatever character stands before it.
[[nodiscard]] inline bool is_attached(std::string_view text, std::size_t at) {
  const code_point point = decode(text, at);
  if (!point.valid || point.value < 0x80) return false;
  const grapheme_class kind = grapheme_class_of(point.value);
  return kind == grapheme_class::extend || kind == grapheme_class::joiner ||
         kind == grapheme_class::spacing;
}

}  // namespace detail

/// The end of the extended grapheme cluster that begins at `at`, itself such a boundary. CR LF is
/// one cluster, an invalid byte too. At the end of the text: its size. Cost: O(cluster).
[[nodiscard]] inline std::size_t next_grapheme(std::string_view text, std::size_t at) {
  const code_point first = decode(text, at);
  std::size_t end = at + first.length;
  if (end >= text.size()) return text.size();
  if (first.value == '\r') return text[end] == '\n' ? end + 1 : end;
  if (first.value < 0x80 && static_cast<unsigned char>(text[end]) < 0x80) return end;

  detail::grapheme_state state(detail::grapheme_class_of(first));
  while (end < text.size()) {
    const code_point next = decode(text, end);
    if (!state.joins(detail::grapheme_class_of(next))) break;
    end += next.length;
  }
  return end;
}

namespace detail {

/// True if a mark sits on the white space at `at`; nothing sits on a line end or tab.
[[nodiscard]] inline bool carries_mark(std::string_view text, std::size_t at,
                                       const code_point& space) {
  return grapheme_class_of(space) != grapheme_class::control &&
         is_attached(text, at + space.length);
}

/// The white space that ends at `at` and is a character of its own; 0 if there is none.
[[nodiscard]] inline std::size_t white_space_before(std::string_view text, std::size_t begin,
                                                    std::size_t at) {
  const code_point space = decode_before(text, begin, at);
  if (!space.valid || !is_white_space(space.value)) return 0;
  const code_point left = decode_before(text, begin, at - space.length);
  const bool joined = grapheme_class_of(left) == grapheme_class::prepend &&
                      grapheme_class_of(space) != grapheme_class::control;
  return joined ? 0 : space.length;
}

}  // namespace detail

/// The range without the white space at its two ends. A space that carries a mark, or belongs to
/// the character before it, stays. The ends of `range` are grapheme boundaries. A blank range gives
/// an empty one at its end. Cost: O(white space taken off).
[[nodiscard]] inline byte_range trim(std::string_view text, byte_range range) {
  text = text.substr(0, range.end);
  const auto is_plain = [text](std::size_t at) {
    return text[at] > ' ' && detail::byte_at(text, at) < 0x80;
  };
  // Nothing sits on a line end or a tab.
  const auto is_line_space = [text](std::size_t at) {
    return text[at] >= '\t' && text[at] <= '\r';
  };
  while (range.begin < range.end && is_line_space(range.begin)) ++range.begin;
  while (range.begin < range.end && !is_plain(range.begin)) {
    const code_point point = decode(text, range.begin);
    if (!is_white_space(point.value) || detail::carries_mark(text, range.begin, point)) break;
    range.begin += point.length;
  }
  while (range.end > range.begin && is_line_space(range.end - 1)) --range.end;
  while (range.end > range.begin && !is_plain(range.end - 1)) {
    const std::size_t length = detail::white_space_before(text, range.begin, range.end);
    if (length == 0) break;
    range.end -= length;
  }
  return range;
}

// ---- folding ------------------------------------------------------------------------------------

/// Text in the form in which terms are compared: case folded, and the wide forms of ASCII that
/// stand in Chinese and Japanese text are ASCII; with ICU NFKC_Casefold, which unites all
/// compatibility forms and drops what is invisible. ASCII becomes lower case either way. An invalid
/// byte becomes U+FFFD, which is no letter and so separates terms.
///
/// "Stra\xC3\x9F" "e PAY-042" gives "strasse pay-042". Cost: O(bytes).
[[nodiscard]] inline std::string fold(std::string_view text);

namespace detail {

inline void append_casefold(std::string& out, std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const code_point point = decode(text, at);
    const bool wide = point.value >= 0xFF01 && point.value <= 0xFF5E;
    append_folded(out, wide ? point.value - 0xFF01 + '!' : point.value);
    at += point.length;
  }
}

#if RAG_RETRIEVE_USE_ICU

[[nodiscard]] inline std::u16string utf16_of(std::string_view text) {
  std::u16string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const code_point point = decode(text, at);
    if (point.value < 0x10000) {
      out += static_cast<char16_t>(point.value);
    } else {
      out += static_cast<char16_t>(0xD7C0 + (point.value >> 10));
      out += static_cast<char16_t>(0xDC00 + (point.value & 0x3FF));
    }
    at += point.length;
  }
  return out;
}

inline void append_utf16(std::string& out, std::u16string_view text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    char32_t value = text[at];
    if ((value & 0xFC00) == 0xD800 && at + 1 < text.size()) {
      value = 0x10000 + ((value & 0x3FF) << 10) + (text[++at] & 0x3FFU);
    }
    append_utf8(out, value);
  }
}

/// Case folding and compatibility normalising in one step. Where ICU has no data: case alone.
inline void append_nfkc_casefold(std::string& out, std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  const UNormalizer2* const folding = unorm2_getNFKCCasefoldInstance(&status);
  if (U_FAILURE(status)) return append_casefold(out, text);

  const std::u16string wide = utf16_of(text);
  std::u16string folded(wide.size() + wide.size() / 2 + 16, u'\0');
  const auto run = [&] {
    status = U_ZERO_ERROR;
    return unorm2_normalize(folding, wide.data(), static_cast<std::int32_t>(wide.size()),
                            folded.data(), static_cast<std::int32_t>(folded.size()), &status);
  };
  std::int32_t length = run();
  if (status == U_BUFFER_OVERFLOW_ERROR) {
    folded.resize(static_cast<std::size_t>(length) + 1);
    length = run();
  }
  if (U_FAILURE(status)) return append_casefold(out, text);
  append_utf16(out, std::u16string_view(folded).substr(0, static_cast<std::size_t>(length)));
}

/// Where a piece of at least `size` bytes ends: before an ASCII character, with which nothing to
/// its left combines.
[[nodiscard]] inline std::size_t end_of_piece(std::string_view text, std::size_t at,
                                              std::size_t size) {
  if (text.size() - at <= size) return text.size();
  at += size;
  while (at < text.size() && static_cast<unsigned char>(text[at]) >= 0x80) ++at;
  return at;
}

inline void append_unicode_folded(std::string& out, std::string_view text) {
  constexpr std::size_t piece = std::size_t{1} << 20;  // lengths in ICU are 32-bit
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_piece(text, at, piece);
    append_nfkc_casefold(out, text.substr(at, end - at));
    at = end;
  }
}

#else

inline void append_unicode_folded(std::string& out, std::string_view text) {
  append_casefold(out, text);
}

#endif

}  // namespace detail

inline std::string fold(std::string_view text) {
  std::string out(text);
  unsigned seen = 0;
  for (char& c : out) {
    seen |= static_cast<unsigned char>(c);
    c = detail::ascii_lower(c);
  }
  if (seen < 0x80) return out;
  out.clear();
  detail::append_unicode_folded(out, text);
  return out;
}

// ---- lines and paragraphs -----------------------------------------------------------------------

/// One line of a text.
struct text_line {
  byte_range content;    ///< without the line end
  std::size_t next = 0;  ///< where the following line begins; the text's size after the last
};

namespace detail {

/// Eight bytes as one number, the first the lowest on every processor.
[[nodiscard]] inline std::uint64_t eight_bytes(const char* at) {
  std::uint64_t number = 0;
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(&number, at, sizeof number);  // GCC would read the loop below byte by byte
  } else {
    for (unsigned i = 0; i < 8; ++i) {
      number |= std::uint64_t{static_cast<unsigned char>(at[i])} << (8 * i);
    }
  }
  return number;
}

/// How many of the eight bytes before `end` are letters of ASCII, counted back up to the first that
/// is none.
[[nodiscard]] inline std::size_t letters_before(const char* end) {
  constexpr std::uint64_t ones = 0x0101010101010101U;
  constexpr std::uint64_t tops = ones << 7;
  const std::uint64_t bytes = eight_bytes(end - 8);
  const std::uint64_t low = (bytes | ones * 0x20) & ~tops;  // in lower case, if letters
  const std::uint64_t letters = (ones * ('z' + 0x80) - low) & (low + ones * (0x80 - 'a')) & ~bytes;
  return static_cast<std::size_t>(std::countl_zero(~letters & tops)) / 8;
}

/// Finds the bytes of one kind, forward only: 64 are looked at once, as bits of a number, and the
/// 64 behind them ahead of time, so that nothing waits for a look. `Kind::is` answers 1 or 0 for a
/// byte, without a branch: compilers turn the loop over it into a few wide steps.
template <class Kind>
class byte_finder {
 public:
  byte_finder(std::string_view text, std::size_t begin)
      : text_(text), end_(begin), ahead_(look_at(begin)) {}

  /// The first such byte at or after `at`, or the text's size. `at` never moves back.
  [[nodiscard]] std::size_t next(std::size_t at) {
    for (at = (std::max)(at, begin_);; at = end_) {
      if (at >= end_) advance(at);
      const std::uint64_t open = bits_ >> (at - begin_);
      if (open != 0) return at + static_cast<std::size_t>(std::countr_zero(open));
      if (end_ >= text_.size()) return text_.size();
    }
  }

 private:
  static constexpr std::size_t width = 64;
  using block = std::array<char, width>;

  void advance(std::size_t at) {
    if (at >= end_ + width) {
      end_ = at;
      ahead_ = look_at(at);
    }
    begin_ = end_;
    bits_ = ahead_;
    end_ += width;
    ahead_ = look_at(end_);
  }

  /// One bit for each of 64 bytes.
  [[nodiscard]] std::uint64_t look_at(std::size_t at) const {
    if (text_.size() - (std::min)(at, text_.size()) >= width) return bits_of(text_.data() + at);
    block rest{};  // the end of the text, with zeros behind it
    if (at < text_.size()) std::memcpy(rest.data(), text_.data() + at, text_.size() - at);
    return bits_of(rest.data());
  }

  [[nodiscard]] static std::uint64_t bits_of(const char* bytes) {
    block found;
    unsigned char any = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const unsigned char hit = Kind::is(static_cast<unsigned char>(bytes[i]));
      any = static_cast<unsigned char>(any | hit);
      found[i] = static_cast<char>(hit);
    }
    if (Kind::is_rare && any == 0) return 0;
    std::uint64_t bits = 0;
    for (std::size_t i = width; i > 0; i -= 8) {  // of each byte the lowest bit, in order
      bits = bits << 8 | eight_bytes(&found[i - 8]) * 0x0102040810204080U >> 56;
    }
    return bits;
  }

  std::string_view text_;
  std::size_t begin_ = 0;
  std::size_t end_;
  std::uint64_t bits_ = 0;  // of [begin_, end_)
  std::uint64_t ahead_;     // of what follows
};

/// The lowest bit that is set is the top bit of the first LF or CR; zero: none of the eight bytes
/// is one. x - 1 borrows into the top bit where x is zero.
[[nodiscard]] inline std::uint64_t line_end_bits(const char* eight) {
  constexpr std::uint64_t ones = 0x0101010101010101U;
  const std::uint64_t bytes = eight_bytes(eight);
  const auto zeros = [](std::uint64_t x) { return (x - ones) & ~x & (ones << 7); };
  return zeros(bytes ^ (ones * '\n')) | zeros(bytes ^ (ones * '\r'));
}

/// The first LF or CR at or after `at`, or the text's size.
[[nodiscard]] inline std::size_t find_line_end(std::string_view text, std::size_t at) {
  for (; text.size() - at >= 8; at += 8) {
    const std::uint64_t bits = line_end_bits(text.data() + at);
    if (bits != 0) return at + static_cast<std::size_t>(std::countr_zero(bits)) / 8;
  }
  while (at < text.size() && text[at] != '\n' && text[at] != '\r') ++at;
  return at;
}

/// The line up to its LF or CR, which stands at `end`, or to the end of the text.
[[nodiscard]] inline text_line line_between(std::string_view text, std::size_t begin,
                                            std::size_t end) {
  if (end == text.size()) return {{begin, end}, end};
  const bool pair = text[end] == '\r' && end + 1 < text.size() && text[end + 1] == '\n';
  return {{begin, end}, end + (pair ? 2 : 1)};
}

}  // namespace detail

/// The line that begins at `begin`. It ends at LF, CR LF or CR. Cost: O(line).
[[nodiscard]] inline text_line line_at(std::string_view text, std::size_t begin) {
  begin = (std::min)(begin, text.size());
  return detail::line_between(text, begin, detail::find_line_end(text, begin));
}

namespace detail {

struct line_ends {
  static constexpr bool is_rare = true;
  [[nodiscard]] static constexpr unsigned char is(unsigned char byte) {
    return static_cast<unsigned char>((byte == '\n' ? 1U : 0U) | (byte == '\r' ? 1U : 0U));
  }
};

/// The lines of a text in order, for whoever reads them all: the same as line_at.
class line_reader {
 public:
  explicit line_reader(std::string_view text, std::size_t begin = 0)
      : text_(text), ends_(text, begin) {}

  /// The line that begins at `begin`, which never moves back.
  [[nodiscard]] text_line at(std::size_t begin) {
    return line_between(text_, begin, ends_.next(begin));
  }

 private:
  std::string_view text_;
  byte_finder<line_ends> ends_;
};

}  // namespace detail

/// The paragraphs of a part of a text, in order: what blank lines separate, trimmed, never blank.
/// The ends of `within` are grapheme boundaries. Cost: O(bytes).
[[nodiscard]] inline std::vector<byte_range> paragraph_ranges(std::string_view text,
                                                              byte_range within) {
  std::vector<byte_range> paragraphs;
  text = text.substr(0, within.end);
  const auto close = [&](std::size_t begin, std::size_t end) {
    const byte_range paragraph = trim(text, {begin, end});
    if (!paragraph.empty()) paragraphs.push_back(paragraph);
  };
  std::size_t begin = within.begin;
  detail::line_reader lines(text);
  for (std::size_t at = within.begin; at < text.size();) {
    const text_line line = lines.at(at);
    if (trim(text, line.content).empty()) {
      close(begin, at);
      begin = line.next;
    }
    at = line.next;
  }
  close(begin, text.size());
  return paragraphs;
}

// ---- sentences ----------------------------------------------------------------------------------

/// How text is split into sentences.
struct sentence_options {
  std::vector<std::string> abbreviations = {};  ///< more of them, as one word each: never the end
  bool newline_ends_sentence = false;           ///< true: for text with one statement a line
};

namespace detail {

// -- blocks: the lines within which a sentence may run

enum class line_kind { blank, text, heading, item, row, rule, fence };

struct fence_mark {
  char mark = 0;           // '`' or '~'; zero: none
  std::size_t length = 0;  // at least three
};

[[nodiscard]] inline std::size_t run_length(std::string_view line, std::size_t at, char c) {
  std::size_t end = at;
  while (end < line.size() && line[end] == c) ++end;
  return end - at;
}

[[nodiscard]] inline bool is_blank_at(std::string_view line, std::size_t at) {
  return at >= line.size() || line[at] == ' ' || line[at] == '\t';
}

[[nodiscard]] inline std::size_t skip_blanks(std::string_view text, std::size_t at) {
  while (at < text.size() && is_blank_at(text, at)) ++at;
  return at;
}

/// True if nothing but white space stands in the line, of which blanks have been passed over.
[[nodiscard]] inline bool is_blank_from(std::string_view line, std::size_t at) {
  if (at == line.size()) return true;
  const bool plain = line[at] > ' ' && byte_at(line, at) < 0x80;
  return !plain && trim(line, {0, line.size()}).empty();
}

/// The fence that a line opens or closes.
[[nodiscard]] inline fence_mark fence_of(std::string_view line) {
  const std::size_t at = run_length(line, 0, ' ');
  if (at > 3 || at >= line.size() || (line[at] != '`' && line[at] != '~')) return {};
  const std::size_t length = run_length(line, at, line[at]);
  if (length < 3) return {};
  const std::string_view rest = line.substr(at + length);
  if (line[at] == '`' && rest.find('`') != std::string_view::npos) return {};
  return {line[at], length};
}

/// True if the line closes the open fence: the same mark, at least as often, and nothing else.
[[nodiscard]] inline bool closes_fence(std::string_view line, const fence_mark& open) {
  const fence_mark mark = fence_of(line);
  return mark.mark == open.mark && mark.length >= open.length &&
         line.find_last_not_of(" \t") < run_length(line, 0, ' ') + mark.length;
}

/// The number of digits and its mark at the begin of "12. " or "12) ", else 0.
[[nodiscard]] inline std::size_t numbered_marker(std::string_view line, std::size_t at) {
  std::size_t digits = 0;
  while (at + digits < line.size() && digits < 10 && is_ascii_digit(byte_at(line, at + digits))) {
    ++digits;
  }
  if (digits == 0 || digits > 9 || at + digits >= line.size()) return 0;
  const char mark = line[at + digits];
  return (mark == '.' || mark == ')') && is_blank_at(line, at + digits + 1) ? digits + 1 : 0;
}

[[nodiscard]] constexpr bool is_bullet(char32_t value) {
  return value == 0x2022 || value == 0x2043 || value == 0x2023 || value == 0x25E6 ||
         value == 0x25AA || value == 0x25CF || value == 0x2219;
}

/// A list item. Inside a paragraph only the number 1 opens one, so that a wrapped line that begins
/// with a year does not.
[[nodiscard]] inline bool opens_item(std::string_view line, std::size_t at, bool in_paragraph) {
  const char c = line[at];
  if ((c == '-' || c == '*' || c == '+') && is_blank_at(line, at + 1)) return true;
  const std::size_t marker = numbered_marker(line, at);
  if (marker != 0) return !in_paragraph || (marker == 2 && c == '1');
  return static_cast<unsigned char>(c) >= 0x80 && is_bullet(decode(line, at).value);
}

/// "---", "* * *", "===": one mark, at least three times (a setext underline: once), and blanks.
[[nodiscard]] inline bool is_rule(std::string_view line, std::size_t at, bool in_paragraph) {
  const char mark = line[at];
  if (mark != '-' && mark != '*' && mark != '_' && mark != '=') return false;
  std::size_t count = 0;
  for (char c : line.substr(at)) {
    if (c == mark)
      ++count;
    else if (c != ' ' && c != '\t')
      return false;
  }
  return count >= 3 || (in_paragraph && (mark == '-' || mark == '=') && count > 0 &&
                        run_length(line, at, mark) == count);
}

[[nodiscard]] inline bool is_heading(std::string_view line, std::size_t at) {
  const std::size_t marks = run_length(line, at, '#');
  return at <= 3 && marks >= 1 && marks <= 6 && is_blank_at(line, at + marks);
}

[[nodiscard]] inline line_kind kind_of(std::string_view line, bool in_paragraph) {
  const std::size_t at = skip_blanks(line, 0);
  if (is_blank_from(line, at)) return line_kind::blank;
  const char32_t first = byte_at(line, at);
  if (is_ascii_letter(first)) return line_kind::text;
  if (first == '#') return is_heading(line, at) ? line_kind::heading : line_kind::text;
  if (first == '|') return line_kind::row;
  if (first == '`' || first == '~') {
    return fence_of(line).mark != 0 ? line_kind::fence : line_kind::text;
  }
  if (is_rule(line, at, in_paragraph)) return line_kind::rule;
  return opens_item(line, at, in_paragraph) ? line_kind::item : line_kind::text;
}

/// Calls visit(block, is_code) for each run of lines that no sentence crosses.
template <class Visit>
void for_each_block(std::string_view text, byte_range within, bool line_by_line, Visit&& visit) {
  std::size_t begin = within.begin;  // of the open block
  line_kind open = line_kind::blank;
  fence_mark fence;
  const auto close = [&](std::size_t end, line_kind next) {
    const byte_range block = trim(text, {begin, end});
    if (!block.empty()) visit(block, open == line_kind::fence);
    begin = end;
    open = next;
  };
  line_reader lines(text);
  for (std::size_t at = within.begin; at < within.end;) {
    const text_line line = lines.at(at);
    const std::string_view content = slice(text, line.content);
    if (fence.mark != 0) {
      const std::size_t blanks = skip_blanks(content, 0);
      if (is_blank_from(content, blanks)) {
        close(at, line_kind::fence);
      } else if (content[blanks] == fence.mark && closes_fence(content, fence)) {
        close(line.next, line_kind::blank);
        fence = {};
      }
      at = line.next;
      continue;
    }
    const line_kind kind = kind_of(content, open == line_kind::text);
    const bool underline = kind == line_kind::rule && open == line_kind::text;
    const bool continued = kind == line_kind::text && open != line_kind::blank;
    if (!underline && !continued) close(at, kind);
    if (kind == line_kind::fence) fence = fence_of(content);
    const bool alone = kind == line_kind::heading || kind == line_kind::row ||
                       kind == line_kind::rule || kind == line_kind::blank;
    if (alone || (line_by_line && kind != line_kind::fence)) close(line.next, line_kind::blank);
    at = line.next;
  }
  close(within.end, line_kind::blank);
}

// -- words that a full stop belongs to; each list is sorted

/// A name follows: never the end of a sentence, if written with a capital ("20 ms." may be one).
inline constexpr std::string_view title_words[] = {
    "adm", "asst", "brig", "capt", "cmdr", "col",    "cpl",  "dir", "dr",  "fr",  "gen",
    "gov", "hon",  "hr",   "lt",   "maj",  "messrs", "mlle", "mme", "mr",  "mrs", "ms",
    "mt",  "pres", "prof", "rep",  "rev",  "sen",    "sgt",  "st",  "supt"};

/// Goes on by its meaning: never the end. The last five are Greek for Dr., and Russian for years,
/// settlement, Prof. and street.
// clang-format off
inline constexpr std::string_view inner_words[] = {
    "adj", "approx", "avv", "bzw", "ca", "cf", "d.h", "dott", "dr", "e.g", "es", "esp", "evtl",
    "ggf", "i.e", "incl", "ing", "kath", "med", "prof", "psicol", "resp", "sig", "univ", "vgl",
    "viz", "vs", "z.b", "\xCE\x94\xCF\x81", "\xD0\xB3\xD0\xB3", "\xD0\xBF\xD0\xB3\xD1\x82",
    "\xD0\xBF\xD1\x80\xD0\xBE\xD1\x84", "\xD1\x83\xD0\xBB"};
// clang-format on

/// A number follows: not the end before a number. The last one is Russian for a flat.
// clang-format off
inline constexpr std::string_view reference_words[] = {
    "apr", "art", "aug", "ch", "chap", "dec", "eq", "eqs", "ext", "feb", "fig", "figs", "ft", "jan",
    "jul", "jun", "lb", "lbs", "mar", "no", "nos", "nov", "nr", "n\xC2\xB0", "n\xC2\xBA", "oct",
    "oz", "p", "page", "para", "pp", "ref", "refs", "sec", "sect", "sep", "sept", "str", "vol",
    "vols", "\xD0\x9A\xD0\xB2"};
// clang-format on

/// May stand last, but often does not: the end only before a usual opening word.
inline constexpr std::string_view optional_words[] = {"al",   "assn", "ave", "blvd", "bros", "co",
                                                      "corp", "dept", "ed",  "eds",  "est",  "inc",
                                                      "jr",   "ltd",  "rd",  "sr"};

/// Times and eras, often the last words of a sentence.
inline constexpr std::string_view time_words[] = {"a.d", "a.m", "b.c", "b.c.e", "c.e", "p.m"};

/// Academic degrees: the end before a capital that a statement follows, as in "her Ph.D. Tom was".
inline constexpr std::string_view degree_words[] = {"b.a",  "b.sc", "j.d",  "ll.b",
                                                    "ll.m", "m.a",  "m.sc", "ph.d"};

/// A number before one is a day: "am 12. Juni".
inline constexpr std::string_view month_words[] = {
    "April", "August", "Dezember",    "Februar",  "Januar",  "Juli",
    "Juni",  "Mai",    "M\xC3\xA4rz", "November", "Oktober", "September"};

/// Words that often open an English sentence and seldom follow an abbreviation inside one.
inline constexpr std::string_view opening_words[] = {
    "A",       "About", "After", "All",   "Also", "An",    "And",   "Are",    "As",      "At",
    "Both",    "But",   "By",    "Can",   "Did",  "Do",    "Does",  "Each",   "Even",    "Every",
    "For",     "From",  "Had",   "Has",   "Have", "He",    "Her",   "Here",   "His",     "How",
    "However", "I",     "If",    "In",    "Is",   "It",    "Its",   "Just",   "Let",     "Many",
    "May",     "Maybe", "More",  "Most",  "My",   "Next",  "No",    "Not",    "Now",     "Of",
    "On",      "Once",  "One",   "Only",  "Or",   "Other", "Our",   "Please", "Several", "She",
    "Since",   "So",    "Some",  "Start", "Such", "That",  "The",   "Their",  "Then",    "There",
    "These",   "They",  "This",  "Those", "Thus", "To",    "Today", "Under",  "Until",   "Use",
    "Was",     "We",    "Were",  "What",  "When", "Where", "Which", "While",  "Who",     "Why",
    "Will",    "With",  "You",   "Your"};

/// Words with which a time can open a sentence.
inline constexpr std::string_view time_openers[] = {"after", "around", "at", "before", "by",
                                                    "from",  "in",     "on", "since",  "until"};

template <std::size_t Count>
[[nodiscard]] constexpr bool in_list(const std::string_view (&list)[Count], std::string_view word) {
  return std::binary_search(std::begin(list), std::end(list), word);
}

/// Tells most words that are in none of the lists above by their length, first and last letter.
class word_filter {
 public:
  constexpr word_filter() {
    add(title_words);
    add(inner_words);
    add(reference_words);
    add(optional_words);
    add(time_words);
    add(degree_words);
    add(std::array<std::string_view, 1>{"in"});  // which may be a measure
  }
  [[nodiscard]] constexpr bool may_hold(std::string_view word) const {
    return !word.empty() && word.size() <= longest &&
           (lasts_[word.size()][code(word.front())] >> code(word.back()) & 1U) != 0;
  }

 private:
  static constexpr std::size_t longest = 8;
  static constexpr unsigned code(char letter) { return static_cast<unsigned char>(letter) & 31U; }

  constexpr void add(std::span<const std::string_view> list) {
    for (std::string_view word : list) {
      lasts_.at(word.size())[code(word.front())] |= std::uint32_t{1} << code(word.back());
    }
  }

  // By length and first letter: the last letters, one bit for each; either case alike.
  std::array<std::array<std::uint32_t, 32>, longest + 1> lasts_{};
};
inline constexpr word_filter listed_words;

// -- characters that matter

enum class mark_kind : std::uint8_t {
  none,
  stop,  // one full stop
  dots,  // an ellipsis, tight or spaced
  ask,   // ! or ? and runs with them
  full,  // ends a sentence even without a space behind it: CJK, danda, Arabic and others
};

[[nodiscard]] constexpr bool is_full_mark(char32_t v) {
  return v == 0x3002 || v == 0xFF01 || v == 0xFF0E || v == 0xFF1F || v == 0xFF61 ||  // CJK
         v == 0x0964 || v == 0x0965 ||                                               // danda
         v == 0x061F || v == 0x06D4 ||                                               // Arabic
         v == 0x0589 || v == 0x1362 || v == 0x1367 || v == 0x1368 ||  // Armenian, Ethiopic
         v == 0x17D4 || v == 0x17D5 || v == 0x104A || v == 0x104B ||  // Khmer, Myanmar
         v == 0x1803 || v == 0x1809;                                  // Mongolian
}

[[nodiscard]] constexpr mark_kind mark_of(char32_t v) {
  if (v == '.') return mark_kind::stop;
  if (v < 0x80) return v == '!' || v == '?' ? mark_kind::ask : mark_kind::none;
  if (v == 0x37E || v == 0x203C || v == 0x203D || (v >= 0x2047 && v <= 0x2049)) {
    return mark_kind::ask;
  }
  if (v == 0x2026) return mark_kind::dots;
  return is_full_mark(v) ? mark_kind::full : mark_kind::none;
}

/// Quotes open in one language and close in another.
[[nodiscard]] constexpr bool is_quote(char32_t v) {
  return v == '"' || v == '\'' || v == 0xAB || v == 0xBB || (v >= 0x2018 && v <= 0x201F) ||
         v == 0x2039 || v == 0x203A;
}

/// Marks of Markdown that wrap words.
[[nodiscard]] constexpr bool is_emphasis(char32_t v) {
  return v == '*' || v == '_' || v == '~' || v == '`';
}

/// What may stand between a mark and the end of its sentence.
[[nodiscard]] constexpr bool is_closer(char32_t v) {
  return v == ')' || v == ']' || v == '}' || is_quote(v) || is_emphasis(v) || v == 0xFF09 ||
         v == 0xFF3D || v == 0xFF5D || v == 0xFF02 || v == 0xFF63 ||
         (v >= 0x3009 && v <= 0x301B && v % 2 == 1 && v != 0x3013);
}

/// What may stand before the first word of a sentence.
[[nodiscard]] constexpr bool is_opener(char32_t v) {
  return v == '(' || v == '[' || v == '{' || v == '<' || v == '-' || v == '/' || v == '$' ||
         is_quote(v) || is_emphasis(v) || v == 0xBF || v == 0xA1 || v == 0x2013 || v == 0x2014 ||
         v == 0xFF08 || v == 0xFF3B || v == 0xFF62 ||
         (v >= 0x3008 && v <= 0x301A && v % 2 == 0 && v != 0x3012);
}

/// How a quotation opens and closes; of two that begin alike the longer comes first.
struct quote_pair {
  std::string_view open;
  std::string_view close;
};
inline constexpr quote_pair quote_pairs[] = {
    {"\"", "\""},
    {"''", "''"},
    {"'", "'"},
    {"``", "''"},
    {"`", "'"},
    {"\xC2\xAB", "\xC2\xBB"},
    {"\xC2\xBB", "\xC2\xAB"},
    {"\xE2\x80\x9C", "\xE2\x80\x9D"},
    {"\xE2\x80\x9E", "\xE2\x80\x9C"},
    {"\xE2\x80\x98", "\xE2\x80\x99"},
};

/// The bytes with which a mark, quote, bullet, list marker or code span may begin or end: most text
/// is passed over by this one look.
[[nodiscard]] constexpr std::array<bool, 256> make_mark_bytes() {
  std::array<bool, 256> mark_bytes{};
  for (char c : {'.', '!', '?', ';', ')', '`', '"', '\''}) {
    mark_bytes[static_cast<unsigned char>(c)] = true;
  }
  for (unsigned lead : {0xC2U, 0xCDU, 0xD6U, 0xD8U, 0xDBU, 0xE0U, 0xE1U, 0xE2U, 0xE3U, 0xEFU}) {
    mark_bytes[lead] = true;
  }
  return mark_bytes;
}
inline constexpr std::array<bool, 256> mark_bytes = make_mark_bytes();

/// The same, all bytes above ASCII, and few others: what can be told without a table. The number
/// becomes zero for them; compilers turn a comparison with each into steps byte by byte.
struct mark_like {
  static constexpr bool is_rare = false;
  [[nodiscard]] static constexpr unsigned char is(unsigned char byte) {
    const auto narrow = [](unsigned value) { return static_cast<unsigned char>(value); };
    const unsigned char from_quotes = narrow(byte - unsigned{'!'});  // ! " # $ % & ' ( ) are 0 to 8
    unsigned char least = narrow((std::max)(from_quotes, narrow(8)) - 8U);
    least = (std::min)(least, narrow(byte ^ unsigned{'.'}));
    least = (std::min)(least, narrow((byte & 0xFBU) ^ unsigned{';'}));  // ? too, a bit apart
    least = (std::min)(least, narrow(byte ^ unsigned{'`'}));
    least = (std::min)(least, narrow((byte & 0x80U) ^ 0x80U));
    return least == 0 ? 1 : 0;
  }
};

/// A run of marks and what closes behind it.
struct mark_run {
  mark_kind kind = mark_kind::none;
  std::size_t begin = 0;
  std::size_t end = 0;     // of the marks
  std::size_t closed = 0;  // of the closers and footnote numbers behind them
  std::size_t dots = 0;    // how many full mark_bytes
  bool spaced = false;     // ". . ."
};

/// What stands behind a run of marks.
struct follower {
  std::size_t at = 0;    // the first character that is no white space
  std::size_t word = 0;  // the first that is no opener either
  code_point first;      // the character there
  bool space = false;    // white space lies between
  bool code = false;     // it opens a code span
};

/// The marker of a list: "2.)" after "1.)", "b." after "a.", "ii)" after "i)", or the bullet once
/// more.
struct list_marker {
  enum class sort : std::uint8_t { none, bullet, number, letter, roman };

  std::string text;
  std::size_t head = 0;  // bytes before its first '.' or ')'
  std::size_t size = 0;  // in bytes; 0: no list
  sort kind = sort::none;
  bool in_line = false;  // Roman numerals that go on in one line with a stop alone: words, no list

  [[nodiscard]] bool has_bracket() const { return text.find(')') != std::string::npos; }
};

inline constexpr std::string_view roman_numerals[] = {"i",    "ii", "iii", "iv", "v",   "vi", "vii",
                                                      "viii", "ix", "x",   "xi", "xii", ""};

/// True for a numeral of more than one letter: one alone is a letter too.
[[nodiscard]] inline bool is_roman(std::string_view word) {
  return word.size() > 1 && word.find_first_not_of("ivx") == std::string_view::npos;
}

/// Reads "7.", "7)", "7.)", "(7)", "b.", "ii)" or a bullet and says how the list goes on; `last`:
/// by which marker this one was expected. "(7)." is a reference.
[[nodiscard]] inline list_marker next_marker(std::string_view text, std::size_t begin,
                                             const list_marker& last = {}) {
  using sort = list_marker::sort;
  const code_point first = decode(text, begin);
  const bool may_number = first.value >= 0x80 || first.value == '(' ||
                          is_ascii_digit(first.value) || (first.value >= 'a' && first.value <= 'y');
  if (!may_number) return {};
  if (is_bullet(first.value)) {
    return {std::string(text.substr(begin, first.length)), 0, first.length, sort::bullet};
  }
  std::string next;
  sort kind = sort::number;
  const auto run = [text](std::size_t from, std::string_view of) {
    return text.substr(from, (std::min)(text.find_first_not_of(of, from), text.size()) - from);
  };
  std::size_t at = begin;
  if (first.value == '(') next += text[at++];
  const std::size_t digits = at;
  std::size_t number = 0;
  while (at < text.size() && at - digits < 4 && is_ascii_digit(byte_at(text, at))) {
    number = number * 10 + (byte_at(text, at++) - '0');
  }
  const bool may_be_roman =
      at < text.size() && (text[at] == 'i' || text[at] == 'v' || text[at] == 'x');
  const std::string_view numeral = may_be_roman ? run(at, "ivx") : std::string_view();
  const auto* const roman =
      std::find(std::begin(roman_numerals), std::end(roman_numerals) - 2, numeral);
  if (at > digits) {
    next += text_of(number + 1);
  } else if (roman != std::end(roman_numerals) - 2 &&
             (last.kind == sort::roman ||
              (last.kind == sort::none && (numeral == "i" || is_roman(numeral))))) {
    kind = sort::roman;
    next += roman[1];
    at += numeral.size();
  } else if (at < text.size() && text[at] >= 'a' && text[at] <= 'y') {
    kind = sort::letter;
    next += static_cast<char>(text[at++] + 1);
  } else {
    return {};
  }
  const std::size_t head = next.size();
  const std::size_t mark = at;
  while (at < text.size() && at - mark < 2 && (text[at] == '.' || text[at] == ')')) ++at;
  if (at == mark || at >= text.size() || text[at] != ' ') return {};
  if (text.substr(mark, at - mark) == ")." && next[0] == '(') return {};
  next += text.substr(mark, at - mark);
  return {next, head, next.size(), kind};
}

/// Splits one block. Every step moves forward; looking back is bounded by `longest` bytes.
class sentence_scanner {
 public:
  sentence_scanner(std::string_view text, std::span<const std::string> extra,
                   std::vector<byte_range>& out)
      : whole_(text), marks_(text, 0), extra_(extra), out_(out) {}

  /// Splits one block; the next one stands behind it.
  void run(byte_range block) {
    text_ = whole_.substr(0, block.end);
    sentence_ = first_word_ = block.begin;
    unclosed_ = {};
    lettered_ = false;
    quote_end_ = 0;
    open_list();
    if (is_short_item()) return cut(text_.size());
    for (std::size_t at = sentence_; (at = marks_.next(at)) < text_.size();) {
      const bool done = is_plain(at) || !mark_bytes[byte_at(text_, at)];
      at = done ? at + 1 : step(at);
    }
    cut(text_.size());
  }

  /// Bytes looked at beyond the one pass, which a test compares with the length of the text.
  [[nodiscard]] std::size_t extra_work() const { return work_; }

 private:
  static constexpr std::size_t longest = 24;  // bytes of the longest word that is looked up
  static constexpr std::size_t longest_quotation = 240;  // bytes; a longer one is parted

  /// The quick way for most marks outside lists: true if the bytes around one tell what step()
  /// would find out, and it is done. A stop before a letter or digit, or a space and a small
  /// letter, ends nothing; one before a space and a capital ends a sentence, if it stands behind a
  /// word of letters that no list has.
  bool is_plain(std::size_t at) {
    if (list_.size != 0) return false;
    if (at + 1 == text_.size()) return true;  // the sentence ends here anyway
    if (text_[at] == ')' || (text_[at] == ';' && !is_greek_question(at))) return true;
    if (at + 2 >= text_.size() || at <= sentence_ + longest + 9) return false;
    if (text_[at] != '.') return text_[at] == '\'' && is_ascii_letter(byte_at(text_, at - 1));
    const char32_t next = byte_at(text_, at + 1);
    if (is_ascii_letter(next) || is_ascii_digit(next)) return true;
    const char32_t first = byte_at(text_, at + 2);
    if ((next != ' ' && next != '\n') || !is_ascii_letter(first)) return false;
    if (first >= 'a') return text_[at - 1] != ')';
    if (at < quote_end_ || !extra_.empty() || !ends_with_word(text_[at - 1] == ' ' ? at - 1 : at)) {
      return false;
    }
    cut(at + 1);
    return true;
  }

  /// True if a word of letters ends at `at` that no list has; false also where this is not sure.
  bool ends_with_word(std::size_t at) const {
    const std::size_t letters = letters_before(text_.data() + at);
    const char32_t before = byte_at(text_, at - letters - 1);
    if (letters == 8 && is_ascii_letter(before)) return true;
    return letters > 1 && (before == ' ' || before == '-' || before == '\n') &&
           !listed_words.may_hold(text_.substr(at - letters, letters));
  }

  /// Handles what begins at a byte that may matter; returns where to go on.
  std::size_t step(std::size_t at) {
    if (text_[at] == '`') return end_of_code(at);
    if (const std::size_t after = open_quotation(at)) return after;
    if (const std::size_t after = list_item(at)) return after;
    const code_point point = decode(text_, at);
    if (mark_of(point.value) == mark_kind::none && !is_greek_question(at)) return at + point.length;
    const mark_run run = read_run(at);
    if (splits_off_first_dot(run)) {
      cut(run.begin + 1);
    } else if (ends_sentence(run)) {
      cut(run.closed);
    }
    return run.closed;
  }

  void cut(std::size_t end) {
    const byte_range sentence = trim(text_, {sentence_, end});
    work_ += end - sentence_ - sentence.size();
    if (!sentence.empty()) out_.push_back(sentence);
    sentence_ = first_word_ = end;
  }

  // -- reading

  /// Past a code span, whose marks end nothing but for one behind its last word; past the quotes
  /// alone if they open none. A failed search is remembered for its length, so that each length is
  /// searched for in vain only once.
  std::size_t end_of_code(std::size_t at) {
    const std::size_t length = run_length(text_, at, '`');
    std::size_t from = at + length;
    if (const std::size_t end = end_of_quoted_so(at, from)) return end;
    if (length >= unclosed_.size() || unclosed_[length]) return from;
    while ((from = text_.find('`', from)) != std::string_view::npos) {
      const std::size_t closing = run_length(text_, from, '`');
      if (closing == length) {
        work_ += from - at;
        const bool marked = mark_of(byte_at(text_, from - 1)) != mark_kind::none &&
                            is_letter_or_digit(byte_at(text_, from - 2));
        return marked ? from - 1 : from + closing;
      }
      from += closing;
    }
    unclosed_[length] = true;
    work_ += text_.size() - at;
    return at + length;
  }

  /// Past the backquotes of `quoted so.' or ``so''; 0: another one comes before the apostrophe.
  std::size_t end_of_quoted_so(std::size_t at, std::size_t from) {
    const std::size_t next = (std::min)(text_.find('`', from), text_.size());
    work_ += next - from;
    const std::size_t before = quote_end_;
    const bool apostrophe = text_.substr(from, next - from).find('\'') != std::string_view::npos;
    if (before <= at && !apostrophe) return 0;
    const std::size_t end = open_quotation(at);
    if (end != 0 && quote_end_ > at && next > quote_end_) return end;
    quote_end_ = before;
    return 0;
  }

  // -- quotations, within which no sentence ends if they are short

  /// True for a quote of ASCII and for the first byte of those that quote_pairs has, and few
  /// others.
  bool may_be_quote(std::size_t at) const {
    const char32_t byte = byte_at(text_, at);
    if (byte < 0x80) return byte == '"' || byte == '\'' || byte == '`';
    if ((byte != 0xC2 && byte != 0xE2) || at + 2 >= text_.size()) return false;
    const char32_t last = byte_at(text_, byte == 0xC2 ? at + 1 : at + 2);
    return byte == 0xC2 ? last == 0xAB || last == 0xBB : last >= 0x98 && last <= 0x9E;
  }

  /// Steps over a quote and notes where the quotation that it opens will end; 0: it is no quote.
  std::size_t open_quotation(std::size_t at) {
    if (!may_be_quote(at)) return 0;
    if (at > sentence_ && (is_ascii_letter(byte_at(text_, at - 1)))) return at + 1;
    const auto* const pair =
        std::find_if(std::begin(quote_pairs), std::end(quote_pairs), [&](const quote_pair& each) {
          return text_[at] == each.open[0] && text_.substr(at, each.open.size()) == each.open;
        });
    if (pair == std::end(quote_pairs)) return 0;
    const std::size_t inside = at + pair->open.size();
    if (inside <= quote_end_) return inside;
    const code_point before = decode_before(text_, sentence_, at);
    if (before.valid && !is_white_space(before.value) && !is_opener(before.value)) return inside;
    if (text_.substr(inside).starts_with(' ') && !opens_spaced(inside)) return inside;
    const std::size_t close = closing_quote(*pair, inside);
    const bool open = close != 0 && (pair->close[0] != '\'' || is_spoken(close));
    if (open) quote_end_ = close + pair->close.size();
    return inside;
  }

  /// Of the quotes of "as '' Chaos '' is" the first opens: a capital or an ellipsis follows.
  bool opens_spaced(std::size_t at) const {
    at = (std::min)(text_.find_first_not_of(' ', at), text_.size());
    const char32_t first = decode(text_, at).value;
    return text_.substr(at).starts_with("..") ||
           (is_letter_or_digit(first) && !is_lower_case(first));
  }

  /// Where the quote stands that closes a quotation with its first byte at `inside`; 0: none near.
  /// Each place is looked at once for all that open before it.
  std::size_t closing_quote(const quote_pair& pair, std::size_t inside) {
    const bool spaced = text_.substr(inside).starts_with(' ');
    const auto kind = static_cast<std::size_t>(&pair - std::begin(quote_pairs));
    std::size_t& known = closes_[2 * kind + (spaced ? 1 : 0)];  // none before it
    const std::string_view reach = text_.substr(0, inside + longest_quotation);
    std::size_t at = (std::max)(inside, known);
    work_ += 1;
    while (at < reach.size() && (at = reach.find(pair.close, at)) != std::string_view::npos) {
      if (pair.close[0] != '\'' || may_close(at, pair.close.size(), spaced)) {
        work_ += at - (std::max)(inside, known);
        known = at;
        return at;
      }
      at += run_length(text_, at, '\'');
    }
    if (reach.size() > known) work_ += reach.size() - (std::max)(inside, known);
    known = (std::max)(known, reach.size());
    return 0;
  }

  /// An apostrophe closes a quotation behind a word, or behind a space what a space follows too.
  bool may_close(std::size_t at, std::size_t length, bool spaced) const {
    if (run_length(text_, at, '\'') != length) return false;
    const code_point after = decode(text_, at + length);
    if (text_[at - 1] == ' ') return spaced && (after.length == 0 || after.value == ' ');
    return !is_letter_or_digit(after.value) && (!spaced || is_spoken(at));
  }

  /// True if what an apostrophe closes is more than a word or two: it ends with a mark, or stands
  /// between spaces.
  bool is_spoken(std::size_t close) const {
    const char before = text_[close - 1];
    return before == '.' || before == '!' || before == '?' || before == ',' || before == ' ';
  }

  /// Past the quote of "end . '' Next" if it belongs to what ends: if it closes a quotation, or is
  /// the first and opens none that surely closes.
  std::size_t end_of_spaced_quote(std::size_t at) {
    if (at + 1 >= text_.size() || text_[at] != ' ') return at;
    if (text_[at + 1] == '"') return at + 2 == quote_end_ ? quote_end_ : at;
    if (text_[at + 1] != '\'') return at;
    const std::size_t length = run_length(text_, at + 1, '\'');
    const std::size_t end = at + 1 + length;
    if (length > 2 || (end < text_.size() && text_[end] != ' ')) return at;
    if (end == quote_end_) return end;
    const std::size_t close = closing_quote(quote_pairs[3 - length], end);
    if (close == 0) return quote_end_ == 0 ? end : at;
    std::size_t after = close + length;
    for (int i = 0; i < 2 && text_.substr(after).starts_with(' '); ++i) ++after;
    const bool goes_on = is_lower_case(decode(text_, after).value);
    return text_[close - 1] != ' ' || goes_on ? at : end;
  }

  /// A semicolon behind a Greek letter is a question mark.
  bool is_greek_question(std::size_t at) const {
    if (text_[at] != ';') return false;
    const char32_t before = decode_before(text_, sentence_, at).value;
    return (before >= 0x370 && before <= 0x3FF) || (before >= 0x1F00 && before <= 0x1FFF);
  }

  mark_run read_run(std::size_t at) {
    mark_run run;
    run.begin = run.end = at;
    if (text_[at] == ';') run.kind = mark_kind::ask, ++run.end;
    for (;;) {
      const code_point point = decode(text_, run.end);
      const mark_kind kind = mark_of(point.value);
      if (kind == mark_kind::none) break;
      run.dots += kind == mark_kind::stop ? 1 : 0;
      run.kind = (std::max)(run.kind, run.dots > 1 ? mark_kind::dots : kind);
      run.end += point.length;
    }
    if (run.kind == mark_kind::stop) read_spaced_dots(run);
    run.closed = end_of_closers(run.end);
    if (run.closed == run.end) run.closed = end_of_spaced_quote(run.end);
    work_ += run.closed - at;
    return run;
  }

  /// ". . ." is one mark.
  void read_spaced_dots(mark_run& run) const {
    while (text_.substr(run.end).starts_with(" .")) {
      run.end += 2;
      ++run.dots;
      run.spaced = true;
      run.kind = mark_kind::dots;
    }
  }

  /// Quotes and brackets, and numbers of footnotes: "end.)", "end.[12]" or "end. [1] [2] Next".
  std::size_t end_of_closers(std::size_t at) const {
    for (;;) {
      const code_point point = decode(text_, at);
      if (point.value == '[') {
        const std::size_t end = end_of_footnote(at);
        if (end == at) return at;
        at = end;
      } else if (point.value == ' ' && at + 1 < text_.size() && text_[at + 1] == '[') {
        const std::size_t end = end_of_footnote(at + 1);
        if (end == at + 1 || (end < text_.size() && text_[end] != ' ' && text_[end] != '[')) {
          return at;
        }
        at = end;
      } else if (is_closer(point.value)) {
        at += point.length;
      } else {
        return at;
      }
    }
  }

  /// Past "[12]", or `at`.
  std::size_t end_of_footnote(std::size_t at) const {
    std::size_t end = at + 1;
    while (end < text_.size() && end - at < 5 && is_ascii_digit(byte_at(text_, end))) ++end;
    return end == at + 1 || end >= text_.size() || text_[end] != ']' ? at : end + 1;
  }

  follower read_follower(std::size_t at) {
    constexpr std::size_t most_openers = 8;
    follower next;
    next.at = at;
    for (;;) {
      const code_point point = decode(text_, next.at);
      if (!is_white_space(point.value)) break;
      next.at += point.length;
      next.space = true;
    }
    next.word = next.at;
    for (std::size_t count = 0; count < most_openers; ++count) {
      next.first = decode(text_, next.word);
      if (is_ascii_letter(next.first.value)) break;
      const bool gap = count > 0 && next.first.value == ' ';
      if (!gap && !is_opener(next.first.value)) break;
      next.code = next.code || next.first.value == '`';
      next.word += next.first.length;
    }
    work_ += next.word - at;
    return next;
  }

  /// The word before `at`, up to white space or an opening mark; empty if it is longer than any
  /// that is looked up.
  std::string_view word_before(std::size_t at) {
    std::size_t begin = at;
    while (begin > sentence_ && is_ascii_letter(byte_at(text_, begin - 1))) {
      if (at - --begin > longest) return {};
    }
    while (begin > sentence_) {
      const code_point point = decode_before(text_, sentence_, begin);
      if (is_white_space(point.value) || is_opener(point.value) || is_bullet(point.value)) break;
      begin -= point.length;
      if (at - begin > longest) return {};
    }
    work_ += at - begin;
    return text_.substr(begin, at - begin);
  }

  std::string_view word_at(std::size_t at) const {
    std::size_t end = at;
    while (end < text_.size() && end - at < longest && is_ascii_letter(byte_at(text_, end))) ++end;
    return text_.substr(at, end - at);
  }

  /// Where the first word of the open sentence begins, a bullet left out.
  std::size_t opening_word() const {
    const std::size_t bound = (std::min)(text_.size(), sentence_ + longest);
    std::size_t at = sentence_;
    while (at < bound) {
      const code_point point = decode(text_, at);
      const bool bullet =
          is_bullet(point.value) || point.value == '-' || point.value == '*' || point.value == '+';
      if (!bullet && !is_white_space(point.value)) break;
      at += point.length;
    }
    return at;
  }

  // -- deciding

  bool ends_sentence(const mark_run& run) {
    if (run.closed >= text_.size()) return false;  // the block ends here anyway
    if (run.closed < quote_end_) return false;
    if (!has_word_before(run.begin) || is_attached(text_, run.closed)) return false;
    if (in_brackets(run)) return false;
    const follower next = read_follower(run.closed);
    if (run.kind == mark_kind::full) return ends_full(run, next);
    if (next.space && closes_reference(run)) return true;
    if (!next.space || !may_open(next)) return false;
    if (run.kind == mark_kind::dots) return ends_dots(run, next);
    if (run.kind == mark_kind::ask) return true;
    return ends_stop(run, next);
  }

  /// A sentence needs a word. The cursor only moves forward.
  bool has_word_before(std::size_t at) {
    while (first_word_ < at) {
      const char32_t byte = byte_at(text_, first_word_);
      if (byte >= 0x80 || is_letter_or_digit(byte)) return true;
      ++first_word_;
      ++work_;
    }
    return false;
  }

  /// "[...]" and "(!)" are remarks.
  bool in_brackets(const mark_run& run) const {
    if (run.begin == sentence_ || run.closed == run.end) return false;
    const char left = text_[run.begin - 1];
    return left == '(' || left == '[';
  }

  /// True if a sentence can begin so: not with a small letter or with a mark that goes on. A code
  /// span may, whatever it begins with.
  bool may_open(const follower& next) const {
    const char32_t first = next.first.value;
    if (is_lower_case(first)) return next.code;
    return first != ',' && first != ';' && first != ':' && first != ')' &&
           mark_of(decode(text_, next.at).value) == mark_kind::none;
  }

  /// "(12)." ends a sentence whatever follows: "... as shown (12). mTOR is ..."
  bool closes_reference(const mark_run& run) const {
    std::size_t at = run.begin;
    if (run.kind != mark_kind::stop || at < sentence_ + 3 || text_[--at] != ')') return false;
    const std::size_t close = at;
    while (at > sentence_ && close - at < 4 && is_ascii_digit(byte_at(text_, at - 1))) --at;
    return at < close && at > sentence_ && text_[at - 1] == '(';
  }

  bool ends_full(const mark_run& run, const follower& next) const {
    const char32_t first = next.first.value;
    if (next.space) return true;
    // A full-width full stop is a decimal point too.
    const bool point = decode(text_, run.begin).value == 0xFF0E;
    if (point && is_letter_or_digit(first) && !is_unspaced(first)) return false;
    // A quotation goes on with the Hiragana particle behind its closing mark.
    const bool hiragana = first >= 0x3041 && first <= 0x309F;
    return run.closed == run.end || !hiragana;
  }

  /// An ellipsis ends a sentence before a capital; "I" is one anyway and proves nothing.
  bool ends_dots(const mark_run& run, const follower& next) const {
    return run.dots > 3 || word_at(next.word) != "I";
  }

  /// "word. . . . The": the first dot ends the sentence, the other three open the next.
  bool splits_off_first_dot(const mark_run& run) {
    if (!run.spaced || run.dots != 4 || run.closed > run.end) return false;
    if (run.begin == sentence_ || text_[run.begin - 1] == ' ') return false;
    if (run.closed < quote_end_) return false;
    const follower next = read_follower(run.closed);
    return next.space && may_open(next);
  }

  /// The case of a single full stop before what may open a sentence.
  bool ends_stop(const mark_run& run, const follower& next) {
    std::string_view word = word_before(run.begin);
    const bool apart = word.empty() && run.begin > sentence_ && text_[run.begin - 1] == ' ';
    if (apart) word = word_before(run.begin - 1);  // "Mr . Smith": texts in tokens stand so
    if (word.empty()) return true;
    if (is_item_number(word)) return false;
    if (!extra_.empty() && std::binary_search(extra_.begin(), extra_.end(), fold(word))) {
      return false;
    }
    bool uncertain = is_initial(word, next) || is_acronym(word);
    if (listed_words.may_hold(word)) {
      char buffer[longest] = {};
      const std::string_view lower = lower_case(word, buffer);
      if (in_list(title_words, lower) && is_capitalised(word)) return false;
      if (in_list(inner_words, lower)) return false;
      if (in_list(reference_words, lower)) return !is_number(next);
      if (in_list(time_words, lower)) return ends_time(word, next, lower.ends_with('m'));
      if (in_list(degree_words, lower)) return opens_sentence(next) || opens_statement(next);
      uncertain = uncertain || in_list(optional_words, lower);
    }
    if (word == "in" && is_digits(word_left_of(word))) return !is_number(next);  // "3 in. 2 lb."
    if (word.size() <= 2 && is_digits(word)) return !is_month(next);
    return !uncertain || opens_sentence(next);
  }

  static bool is_capitalised(std::string_view word) {
    return word.size() > 1 && ascii_lower(word[0]) != word[0] && ascii_lower(word[1]) == word[1];
  }

  static std::string_view lower_case(std::string_view word, char (&buffer)[longest]) {
    std::transform(word.begin(), word.end(), std::begin(buffer), ascii_lower);
    return {buffer, word.size()};
  }

  /// A usual opening word, but no initial such as in "J. A. Smith".
  bool opens_sentence(const follower& next) const {
    return in_list(opening_words, word_at(next.word)) && !is_dotted_letter(next);
  }

  /// A capital, and a small letter at the next word: "Tom was".
  bool opens_statement(const follower& next) const {
    const std::string_view word = word_at(next.word);
    const std::size_t after = next.word + word.size();
    return is_capitalised(word) && after + 1 < text_.size() && text_[after] == ' ' &&
           is_lower_case(decode(text_, after + 1).value);
  }

  static bool is_digits(std::string_view word) {
    return !word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos;
  }

  bool is_month(const follower& next) const {
    const std::size_t end = text_.find_first_of(" \n\r\t.,;?!", next.word);
    return in_list(month_words, text_.substr(next.word, (std::min)(end, text_.size()) - next.word));
  }

  /// The word before a word of the open sentence, a space between them.
  std::string_view word_left_of(std::string_view word) {
    if (word.empty()) return {};
    const auto begin = static_cast<std::size_t>(word.data() - text_.data());
    return begin > sentence_ && text_[begin - 1] == ' ' ? word_before(begin - 1)
                                                        : std::string_view();
  }

  /// One letter and a full stop.
  bool is_dotted_letter(const follower& next) const {
    const std::size_t end = next.word + next.first.length;
    return is_letter_or_digit(next.first.value) && end < text_.size() && text_[end] == '.';
  }

  /// Digits, or a Roman numeral of at least two letters.
  bool is_number(const follower& next) const {
    const std::string_view word = word_at(next.word);
    return is_ascii_digit(next.first.value) ||
           (word.size() > 1 && word.find_first_not_of("IVXLC") == std::string_view::npos);
  }

  /// The first word of a sentence, if it only numbers it: "1", "1.2", "b", "iv".
  bool is_item_number(std::string_view word) const {
    if (word.data() > text_.data() + sentence_ + longest) return false;
    if (word.data() != text_.data() + opening_word()) return false;
    if (word.size() == 1) return is_letter_or_digit(byte_at(word, 0));
    if (is_roman(word)) return word.size() <= 5 && !list_.in_line;
    const bool digits = word.find_first_not_of("0123456789.") == std::string_view::npos;
    return digits && (word.size() <= 3 || word.find('.') != std::string_view::npos);
  }

  /// A time ends a sentence before a usual opening word; a time of day before a title or another
  /// time too and an era before any capital, unless it opened the sentence or what stands behind a
  /// colon: "At 5 a.m. Mr. Smith left.", "He noted: In 44 B.C. Caesar died."
  bool ends_time(std::string_view word, const follower& next, bool of_day) {
    if (opens_sentence(next)) return true;
    char buffer[longest] = {};
    const std::string_view after = word_at(next.word);
    const bool ends =
        of_day ? in_list(title_words, lower_case(after, buffer)) || is_time(next) : !after.empty();
    if (!ends || in_list(time_openers, lower_case(word_at(opening_word()), buffer))) return false;
    const std::string_view opener = word_left_of(word_left_of(word));
    return !(is_capitalised(opener) && in_list(time_openers, lower_case(opener, buffer)));
  }

  /// "7 a.m."
  bool is_time(const follower& next) const {
    const std::size_t space = text_.find_first_not_of("0123456789:", next.word);
    if (space == next.word || space >= text_.size() || text_[space] != ' ') return false;
    const std::string_view rest = text_.substr(space + 1, 3);
    return in_list(time_words, rest) && rest.ends_with('m');
  }

  /// "J" of "J. Smith", or "z" of "z. B.". A small letter of ASCII alone is a variable.
  bool is_initial(std::string_view word, const follower& next) const {
    const code_point letter = decode(word, 0);
    if (letter.length != word.size() || !is_letter_or_digit(letter.value)) return false;
    if (letter.value < 0x80 && !(letter.value >= 'A' && letter.value <= 'Z')) {
      return is_ascii_letter(letter.value) && is_dotted_letter(next);
    }
    return !is_unspaced(letter.value);
  }

  /// Letters, one or two at a time, with full mark_bytes between them: "U.S", "Ph.D".
  static bool is_acronym(std::string_view word) {
    std::size_t letters = 0;
    bool inner = false;
    for (std::size_t at = 0; at < word.size();) {
      const code_point point = decode(word, at);
      at += point.length;
      if (point.value == '.' && letters > 0) {
        letters = 0;
        inner = true;
      } else if (!is_letter_or_digit(point.value) || is_ascii_digit(point.value) || ++letters > 2) {
        return false;
      }
    }
    return inner && letters > 0;
  }

  // -- lists

  /// A bulleted item of a few words is one sentence, whatever marks it holds.
  bool is_short_item() const {
    constexpr std::size_t few = 48;  // bytes
    const char first = text_[sentence_];
    return (first == '*' || first == '-' || first == '+') && is_blank_at(text_, sentence_ + 1) &&
           text_.size() - sentence_ <= few;
  }

  // Items may follow one another inside a block.

  /// The list that the block may be.
  void open_list() {
    list_ = next_marker(text_, sentence_);
    const bool plain = list_.kind == list_marker::sort::roman && !list_.has_bracket();
    if (plain && text_.find(' ' + list_.text + ' ', sentence_) != std::string_view::npos) {
      list_ = {};
      list_.in_line = true;
    }
  }

  /// If the marker of the next item stands around `at`: cuts before it, returns where it ends.
  std::size_t list_item(std::size_t at) {
    if (list_.size == 0 || at <= sentence_ + list_.head) return 0;
    const std::size_t begin = at - list_.head;
    const char before = text_[begin - 1];
    if (before != ' ' && before != '\n' && before != '\r') return 0;
    if (!text_.substr(begin).starts_with(list_.text)) return 0;
    const std::size_t end = begin + list_.size;
    const bool bullet = list_.kind == list_marker::sort::bullet;
    if (!bullet && (end >= text_.size() || text_[end] != ' ')) return 0;
    const list_marker next = next_marker(text_, begin, list_);
    const bool plain = list_.kind == list_marker::sort::letter && !list_.has_bracket();
    if (plain && before == ' ' && !lettered_) {  // two letters make no list, three do
      lettered_ = text_.find(' ' + next.text + ' ', end) != std::string_view::npos;
      if (!lettered_) {
        list_ = {};
        return end;
      }
    }
    cut(begin);
    list_ = next;
    return end;
  }

  std::string_view whole_;
  byte_finder<mark_like> marks_;
  std::string_view text_;       // up to the end of the block
  std::size_t sentence_ = 0;    // where the open sentence begins
  std::size_t first_word_ = 0;  // no letter or digit lies between sentence_ and here
  list_marker list_;            // the item that would come next
  bool lettered_ = false;       // a list by plain letters is proven
  std::size_t quote_end_ = 0;   // no sentence ends inside the quotation that closes here
  std::array<std::size_t, 2 * std::size(quote_pairs)> closes_{};  // see closing_quote
  std::size_t work_ = 0;                                          // see extra_work()
  std::array<bool, 8> unclosed_{};      // by length: no such run of backquotes follows
  std::span<const std::string> extra_;  // folded and sorted
  std::vector<byte_range>& out_;
};

}  // namespace detail

/// The sentences of a part of a text, in order, trimmed, never blank. Every byte of `within` that
/// is not white space lies in exactly one; all ends are grapheme boundaries if those of `within`
/// are.
///
/// A sentence ends at . ! ? or their kin in other scripts, with the quotes and brackets that close
/// behind them, if what follows may open one. It does not end before a small letter, inside
/// numbers, names of files and hosts, after initials, titles and other abbreviations, after the
/// number that opens a list item, or inside a quotation of up to 240 bytes. A blank line, heading,
/// list item, table row or fence always ends one; a single line end does not, unless the options
/// say so. Fenced code has no sentences but what blank lines separate.
///
/// "Dr. May saw p. 5. It was short." gives "Dr. May saw p. 5." and "It was short."
/// Cost: O(bytes).
[[nodiscard]] inline std::vector<byte_range> sentence_ranges(std::string_view text,
                                                             byte_range within,
                                                             const sentence_options& options = {}) {
  std::vector<byte_range> sentences;
  within.end = (std::min)(within.end, text.size());
  within.begin = (std::min)(within.begin, within.end);
  text = text.substr(0, within.end);

  std::vector<std::string> extra;
  for (std::string_view word : options.abbreviations) {
    while (word.ends_with('.')) word.remove_suffix(1);
    extra.push_back(fold(word));
  }
  std::sort(extra.begin(), extra.end());

  detail::sentence_scanner scanner(text, extra, sentences);
  const auto split = [&](byte_range block, bool is_code) {
    is_code ? sentences.push_back(block) : scanner.run(block);
  };
  detail::for_each_block(text, within, options.newline_ends_sentence, split);
  return sentences;
}

// ---- Unicode tables and their look-up -----------------------------------------------------------

namespace detail {

struct code_range {
  char32_t first;
  char32_t last;
};
struct strided_range {
  char32_t first;
  char32_t last;
  std::uint8_t step;
  std::int32_t delta;
};
struct long_fold {
  char32_t from;
  char32_t to[3];  // zero: unused
};
struct grapheme_range {
  char32_t first;
  char32_t last;
  char kind;
};

// clang-format off
// Made by tests/unicode_tables.py from the data files of Unicode 15.0: begin
/// General categories L, M and N.
inline constexpr code_range word_table[] = {
    {0xAA, 0xAA}, {0xB2, 0xB3}, {0xB5, 0xB5}, {0xB9, 0xBA}, {0xBC, 0xBE}, {0xC0, 0xD6},
    {0xD8, 0xF6}, {0xF8, 0x2C1}, {0x2C6, 0x2D1}, {0x2E0, 0x2E4}, {0x2EC, 0x2EC}, {0x2EE, 0x2EE},
    {0x300, 0x374}, {0x376, 0x377}, {0x37A, 0x37D}, {0x37F, 0x37F}, {0x386, 0x386}, {0x388, 0x38A},
    {0x38C, 0x38C}, {0x38E, 0x3A1}, {0x3A3, 0x3F5}, {0x3F7, 0x481}, {0x483, 0x52F}, {0x531, 0x556},
    {0x559, 0x559}, {0x560, 0x588}, {0x591, 0x5BD}, {0x5BF, 0x5BF}, {0x5C1, 0x5C2}, {0x5C4, 0x5C5},
    {0x5C7, 0x5C7}, {0x5D0, 0x5EA}, {0x5EF, 0x5F2}, {0x610, 0x61A}, {0x620, 0x669}, {0x66E, 0x6D3},
    {0x6D5, 0x6DC}, {0x6DF, 0x6E8}, {0x6EA, 0x6FC}, {0x6FF, 0x6FF}, {0x710, 0x74A}, {0x74D, 0x7B1},
    {0x7C0, 0x7F5}, {0x7FA, 0x7FA}, {0x7FD, 0x7FD}, {0x800, 0x82D}, {0x840, 0x85B}, {0x860, 0x86A},
    {0x870, 0x887}, {0x889, 0x88E}, {0x898, 0x8E1}, {0x8E3, 0x963}, {0x966, 0x96F}, {0x971, 0x983},
    {0x985, 0x98C}, {0x98F, 0x990}, {0x993, 0x9A8}, {0x9AA, 0x9B0}, {0x9B2, 0x9B2}, {0x9B6, 0x9B9},
    {0x9BC, 0x9C4}, {0x9C7, 0x9C8}, {0x9CB, 0x9CE}, {0x9D7, 0x9D7}, {0x9DC, 0x9DD}, {0x9DF, 0x9E3},
    {0x9E6, 0x9F1}, {0x9F4, 0x9F9}, {0x9FC, 0x9FC}, {0x9FE, 0x9FE}, {0xA01, 0xA03}, {0xA05, 0xA0A},
    {0xA0F, 0xA10}, {0xA13, 0xA28}, {0xA2A, 0xA30}, {0xA32, 0xA33}, {0xA35, 0xA36}, {0xA38, 0xA39},
    {0xA3C, 0xA3C}, {0xA3E, 0xA42}, {0xA47, 0xA48}, {0xA4B, 0xA4D}, {0xA51, 0xA51}, {0xA59, 0xA5C},
    {0xA5E, 0xA5E}, {0xA66, 0xA75}, {0xA81, 0xA83}, {0xA85, 0xA8D}, {0xA8F, 0xA91}, {0xA93, 0xAA8},
    {0xAAA, 0xAB0}, {0xAB2, 0xAB3}, {0xAB5, 0xAB9}, {0xABC, 0xAC5}, {0xAC7, 0xAC9}, {0xACB, 0xACD},
    {0xAD0, 0xAD0}, {0xAE0, 0xAE3}, {0xAE6, 0xAEF}, {0xAF9, 0xAFF}, {0xB01, 0xB03}, {0xB05, 0xB0C},
    {0xB0F, 0xB10}, {0xB13, 0xB28}, {0xB2A, 0xB30}, {0xB32, 0xB33}, {0xB35, 0xB39}, {0xB3C, 0xB44},
    {0xB47, 0xB48}, {0xB4B, 0xB4D}, {0xB55, 0xB57}, {0xB5C, 0xB5D}, {0xB5F, 0xB63}, {0xB66, 0xB6F},
    {0xB71, 0xB77}, {0xB82, 0xB83}, {0xB85, 0xB8A}, {0xB8E, 0xB90}, {0xB92, 0xB95}, {0xB99, 0xB9A},
    {0xB9C, 0xB9C}, {0xB9E, 0xB9F}, {0xBA3, 0xBA4}, {0xBA8, 0xBAA}, {0xBAE, 0xBB9}, {0xBBE, 0xBC2},
    {0xBC6, 0xBC8}, {0xBCA, 0xBCD}, {0xBD0, 0xBD0}, {0xBD7, 0xBD7}, {0xBE6, 0xBF2}, {0xC00, 0xC0C},
    {0xC0E, 0xC10}, {0xC12, 0xC28}, {0xC2A, 0xC39}, {0xC3C, 0xC44}, {0xC46, 0xC48}, {0xC4A, 0xC4D},
    {0xC55, 0xC56}, {0xC58, 0xC5A}, {0xC5D, 0xC5D}, {0xC60, 0xC63}, {0xC66, 0xC6F}, {0xC78, 0xC7E},
    {0xC80, 0xC83}, {0xC85, 0xC8C}, {0xC8E, 0xC90}, {0xC92, 0xCA8}, {0xCAA, 0xCB3}, {0xCB5, 0xCB9},
    {0xCBC, 0xCC4}, {0xCC6, 0xCC8}, {0xCCA, 0xCCD}, {0xCD5, 0xCD6}, {0xCDD, 0xCDE}, {0xCE0, 0xCE3},
    {0xCE6, 0xCEF}, {0xCF1, 0xCF3}, {0xD00, 0xD0C}, {0xD0E, 0xD10}, {0xD12, 0xD44}, {0xD46, 0xD48},
    {0xD4A, 0xD4E}, {0xD54, 0xD63}, {0xD66, 0xD78}, {0xD7A, 0xD7F}, {0xD81, 0xD83}, {0xD85, 0xD96},
    {0xD9A, 0xDB1}, {0xDB3, 0xDBB}, {0xDBD, 0xDBD}, {0xDC0, 0xDC6}, {0xDCA, 0xDCA}, {0xDCF, 0xDD4},
    {0xDD6, 0xDD6}, {0xDD8, 0xDDF}, {0xDE6, 0xDEF}, {0xDF2, 0xDF3}, {0xE01, 0xE3A}, {0xE40, 0xE4E},
    {0xE50, 0xE59}, {0xE81, 0xE82}, {0xE84, 0xE84}, {0xE86, 0xE8A}, {0xE8C, 0xEA3}, {0xEA5, 0xEA5},
    {0xEA7, 0xEBD}, {0xEC0, 0xEC4}, {0xEC6, 0xEC6}, {0xEC8, 0xECE}, {0xED0, 0xED9}, {0xEDC, 0xEDF},
    {0xF00, 0xF00}, {0xF18, 0xF19}, {0xF20, 0xF33}, {0xF35, 0xF35}, {0xF37, 0xF37}, {0xF39, 0xF39},
    {0xF3E, 0xF47}, {0xF49, 0xF6C}, {0xF71, 0xF84}, {0xF86, 0xF97}, {0xF99, 0xFBC}, {0xFC6, 0xFC6},
    {0x1000, 0x1049}, {0x1050, 0x109D}, {0x10A0, 0x10C5}, {0x10C7, 0x10C7}, {0x10CD, 0x10CD},
    {0x10D0, 0x10FA}, {0x10FC, 0x1248}, {0x124A, 0x124D}, {0x1250, 0x1256}, {0x1258, 0x1258},
    {0x125A, 0x125D}, {0x1260, 0x1288}, {0x128A, 0x128D}, {0x1290, 0x12B0}, {0x12B2, 0x12B5},
    {0x12B8, 0x12BE}, {0x12C0, 0x12C0}, {0x12C2, 0x12C5}, {0x12C8, 0x12D6}, {0x12D8, 0x1310},
    {0x1312, 0x1315}, {0x1318, 0x135A}, {0x135D, 0x135F}, {0x1369, 0x137C}, {0x1380, 0x138F},
    {0x13A0, 0x13F5}, {0x13F8, 0x13FD}, {0x1401, 0x166C}, {0x166F, 0x167F}, {0x1681, 0x169A},
    {0x16A0, 0x16EA}, {0x16EE, 0x16F8}, {0x1700, 0x1715}, {0x171F, 0x1734}, {0x1740, 0x1753},
    {0x1760, 0x176C}, {0x176E, 0x1770}, {0x1772, 0x1773}, {0x1780, 0x17D3}, {0x17D7, 0x17D7},
    {0x17DC, 0x17DD}, {0x17E0, 0x17E9}, {0x17F0, 0x17F9}, {0x180B, 0x180D}, {0x180F, 0x1819},
    {0x1820, 0x1878}, {0x1880, 0x18AA}, {0x18B0, 0x18F5}, {0x1900, 0x191E}, {0x1920, 0x192B},
    {0x1930, 0x193B}, {0x1946, 0x196D}, {0x1970, 0x1974}, {0x1980, 0x19AB}, {0x19B0, 0x19C9},
    {0x19D0, 0x19DA}, {0x1A00, 0x1A1B}, {0x1A20, 0x1A5E}, {0x1A60, 0x1A7C}, {0x1A7F, 0x1A89},
    {0x1A90, 0x1A99}, {0x1AA7, 0x1AA7}, {0x1AB0, 0x1ACE}, {0x1B00, 0x1B4C}, {0x1B50, 0x1B59},
    {0x1B6B, 0x1B73}, {0x1B80, 0x1BF3}, {0x1C00, 0x1C37}, {0x1C40, 0x1C49}, {0x1C4D, 0x1C7D},
    {0x1C80, 0x1C88}, {0x1C90, 0x1CBA}, {0x1CBD, 0x1CBF}, {0x1CD0, 0x1CD2}, {0x1CD4, 0x1CFA},
    {0x1D00, 0x1F15}, {0x1F18, 0x1F1D}, {0x1F20, 0x1F45}, {0x1F48, 0x1F4D}, {0x1F50, 0x1F57},
    {0x1F59, 0x1F59}, {0x1F5B, 0x1F5B}, {0x1F5D, 0x1F5D}, {0x1F5F, 0x1F7D}, {0x1F80, 0x1FB4},
    {0x1FB6, 0x1FBC}, {0x1FBE, 0x1FBE}, {0x1FC2, 0x1FC4}, {0x1FC6, 0x1FCC}, {0x1FD0, 0x1FD3},
    {0x1FD6, 0x1FDB}, {0x1FE0, 0x1FEC}, {0x1FF2, 0x1FF4}, {0x1FF6, 0x1FFC}, {0x2070, 0x2071},
    {0x2074, 0x2079}, {0x207F, 0x2089}, {0x2090, 0x209C}, {0x20D0, 0x20F0}, {0x2102, 0x2102},
    {0x2107, 0x2107}, {0x210A, 0x2113}, {0x2115, 0x2115}, {0x2119, 0x211D}, {0x2124, 0x2124},
    {0x2126, 0x2126}, {0x2128, 0x2128}, {0x212A, 0x212D}, {0x212F, 0x2139}, {0x213C, 0x213F},
    {0x2145, 0x2149}, {0x214E, 0x214E}, {0x2150, 0x2189}, {0x2460, 0x249B}, {0x24EA, 0x24FF},
    {0x2776, 0x2793}, {0x2C00, 0x2CE4}, {0x2CEB, 0x2CF3}, {0x2CFD, 0x2CFD}, {0x2D00, 0x2D25},
    {0x2D27, 0x2D27}, {0x2D2D, 0x2D2D}, {0x2D30, 0x2D67}, {0x2D6F, 0x2D6F}, {0x2D7F, 0x2D96},
    {0x2DA0, 0x2DA6}, {0x2DA8, 0x2DAE}, {0x2DB0, 0x2DB6}, {0x2DB8, 0x2DBE}, {0x2DC0, 0x2DC6},
    {0x2DC8, 0x2DCE}, {0x2DD0, 0x2DD6}, {0x2DD8, 0x2DDE}, {0x2DE0, 0x2DFF}, {0x2E2F, 0x2E2F},
    {0x3005, 0x3007}, {0x3021, 0x302F}, {0x3031, 0x3035}, {0x3038, 0x303C}, {0x3041, 0x3096},
    {0x3099, 0x309A}, {0x309D, 0x309F}, {0x30A1, 0x30FA}, {0x30FC, 0x30FF}, {0x3105, 0x312F},
    {0x3131, 0x318E}, {0x3192, 0x3195}, {0x31A0, 0x31BF}, {0x31F0, 0x31FF}, {0x3220, 0x3229},
    {0x3248, 0x324F}, {0x3251, 0x325F}, {0x3280, 0x3289}, {0x32B1, 0x32BF}, {0x3400, 0x4DBF},
    {0x4E00, 0xA48C}, {0xA4D0, 0xA4FD}, {0xA500, 0xA60C}, {0xA610, 0xA62B}, {0xA640, 0xA672},
    {0xA674, 0xA67D}, {0xA67F, 0xA6F1}, {0xA717, 0xA71F}, {0xA722, 0xA788}, {0xA78B, 0xA7CA},
    {0xA7D0, 0xA7D1}, {0xA7D3, 0xA7D3}, {0xA7D5, 0xA7D9}, {0xA7F2, 0xA827}, {0xA82C, 0xA82C},
    {0xA830, 0xA835}, {0xA840, 0xA873}, {0xA880, 0xA8C5}, {0xA8D0, 0xA8D9}, {0xA8E0, 0xA8F7},
    {0xA8FB, 0xA8FB}, {0xA8FD, 0xA92D}, {0xA930, 0xA953}, {0xA960, 0xA97C}, {0xA980, 0xA9C0},
    {0xA9CF, 0xA9D9}, {0xA9E0, 0xA9FE}, {0xAA00, 0xAA36}, {0xAA40, 0xAA4D}, {0xAA50, 0xAA59},
    {0xAA60, 0xAA76}, {0xAA7A, 0xAAC2}, {0xAADB, 0xAADD}, {0xAAE0, 0xAAEF}, {0xAAF2, 0xAAF6},
    {0xAB01, 0xAB06}, {0xAB09, 0xAB0E}, {0xAB11, 0xAB16}, {0xAB20, 0xAB26}, {0xAB28, 0xAB2E},
    {0xAB30, 0xAB5A}, {0xAB5C, 0xAB69}, {0xAB70, 0xABEA}, {0xABEC, 0xABED}, {0xABF0, 0xABF9},
    {0xAC00, 0xD7A3}, {0xD7B0, 0xD7C6}, {0xD7CB, 0xD7FB}, {0xF900, 0xFA6D}, {0xFA70, 0xFAD9},
    {0xFB00, 0xFB06}, {0xFB13, 0xFB17}, {0xFB1D, 0xFB28}, {0xFB2A, 0xFB36}, {0xFB38, 0xFB3C},
    {0xFB3E, 0xFB3E}, {0xFB40, 0xFB41}, {0xFB43, 0xFB44}, {0xFB46, 0xFBB1}, {0xFBD3, 0xFD3D},
    {0xFD50, 0xFD8F}, {0xFD92, 0xFDC7}, {0xFDF0, 0xFDFB}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F},
    {0xFE70, 0xFE74}, {0xFE76, 0xFEFC}, {0xFF10, 0xFF19}, {0xFF21, 0xFF3A}, {0xFF41, 0xFF5A},
    {0xFF66, 0xFFBE}, {0xFFC2, 0xFFC7}, {0xFFCA, 0xFFCF}, {0xFFD2, 0xFFD7}, {0xFFDA, 0xFFDC},
    {0x10000, 0x1000B}, {0x1000D, 0x10026}, {0x10028, 0x1003A}, {0x1003C, 0x1003D},
    {0x1003F, 0x1004D}, {0x10050, 0x1005D}, {0x10080, 0x100FA}, {0x10107, 0x10133},
    {0x10140, 0x10178}, {0x1018A, 0x1018B}, {0x101FD, 0x101FD}, {0x10280, 0x1029C},
    {0x102A0, 0x102D0}, {0x102E0, 0x102FB}, {0x10300, 0x10323}, {0x1032D, 0x1034A},
    {0x10350, 0x1037A}, {0x10380, 0x1039D}, {0x103A0, 0x103C3}, {0x103C8, 0x103CF},
    {0x103D1, 0x103D5}, {0x10400, 0x1049D}, {0x104A0, 0x104A9}, {0x104B0, 0x104D3},
    {0x104D8, 0x104FB}, {0x10500, 0x10527}, {0x10530, 0x10563}, {0x10570, 0x1057A},
    {0x1057C, 0x1058A}, {0x1058C, 0x10592}, {0x10594, 0x10595}, {0x10597, 0x105A1},
    {0x105A3, 0x105B1}, {0x105B3, 0x105B9}, {0x105BB, 0x105BC}, {0x10600, 0x10736},
    {0x10740, 0x10755}, {0x10760, 0x10767}, {0x10780, 0x10785}, {0x10787, 0x107B0},
    {0x107B2, 0x107BA}, {0x10800, 0x10805}, {0x10808, 0x10808}, {0x1080A, 0x10835},
    {0x10837, 0x10838}, {0x1083C, 0x1083C}, {0x1083F, 0x10855}, {0x10858, 0x10876},
    {0x10879, 0x1089E}, {0x108A7, 0x108AF}, {0x108E0, 0x108F2}, {0x108F4, 0x108F5},
    {0x108FB, 0x1091B}, {0x10920, 0x10939}, {0x10980, 0x109B7}, {0x109BC, 0x109CF},
    {0x109D2, 0x10A03}, {0x10A05, 0x10A06}, {0x10A0C, 0x10A13}, {0x10A15, 0x10A17},
    {0x10A19, 0x10A35}, {0x10A38, 0x10A3A}, {0x10A3F, 0x10A48}, {0x10A60, 0x10A7E},
    {0x10A80, 0x10A9F}, {0x10AC0, 0x10AC7}, {0x10AC9, 0x10AE6}, {0x10AEB, 0x10AEF},
    {0x10B00, 0x10B35}, {0x10B40, 0x10B55}, {0x10B58, 0x10B72}, {0x10B78, 0x10B91},
    {0x10BA9, 0x10BAF}, {0x10C00, 0x10C48}, {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2},
    {0x10CFA, 0x10D27}, {0x10D30, 0x10D39}, {0x10E60, 0x10E7E}, {0x10E80, 0x10EA9},
    {0x10EAB, 0x10EAC}, {0x10EB0, 0x10EB1}, {0x10EFD, 0x10F27}, {0x10F30, 0x10F54},
    {0x10F70, 0x10F85}, {0x10FB0, 0x10FCB}, {0x10FE0, 0x10FF6}, {0x11000, 0x11046},
    {0x11052, 0x11075}, {0x1107F, 0x110BA}, {0x110C2, 0x110C2}, {0x110D0, 0x110E8},
    {0x110F0, 0x110F9}, {0x11100, 0x11134}, {0x11136, 0x1113F}, {0x11144, 0x11147},
    {0x11150, 0x11173}, {0x11176, 0x11176}, {0x11180, 0x111C4}, {0x111C9, 0x111CC},
    {0x111CE, 0x111DA}, {0x111DC, 0x111DC}, {0x111E1, 0x111F4}, {0x11200, 0x11211},
    {0x11213, 0x11237}, {0x1123E, 0x11241}, {0x11280, 0x11286}, {0x11288, 0x11288},
    {0x1128A, 0x1128D}, {0x1128F, 0x1129D}, {0x1129F, 0x112A8}, {0x112B0, 0x112EA},
    {0x112F0, 0x112F9}, {0x11300, 0x11303}, {0x11305, 0x1130C}, {0x1130F, 0x11310},
    {0x11313, 0x11328}, {0x1132A, 0x11330}, {0x11332, 0x11333}, {0x11335, 0x11339},
    {0x1133B, 0x11344}, {0x11347, 0x11348}, {0x1134B, 0x1134D}, {0x11350, 0x11350},
    {0x11357, 0x11357}, {0x1135D, 0x11363}, {0x11366, 0x1136C}, {0x11370, 0x11374},
    {0x11400, 0x1144A}, {0x11450, 0x11459}, {0x1145E, 0x11461}, {0x11480, 0x114C5},
    {0x114C7, 0x114C7}, {0x114D0, 0x114D9}, {0x11580, 0x115B5}, {0x115B8, 0x115C0},
    {0x115D8, 0x115DD}, {0x11600, 0x11640}, {0x11644, 0x11644}, {0x11650, 0x11659},
    {0x11680, 0x116B8}, {0x116C0, 0x116C9}, {0x11700, 0x1171A}, {0x1171D, 0x1172B},
    {0x11730, 0x1173B}, {0x11740, 0x11746}, {0x11800, 0x1183A}, {0x118A0, 0x118F2},
    {0x118FF, 0x11906}, {0x11909, 0x11909}, {0x1190C, 0x11913}, {0x11915, 0x11916},
    {0x11918, 0x11935}, {0x11937, 0x11938}, {0x1193B, 0x11943}, {0x11950, 0x11959},
    {0x119A0, 0x119A7}, {0x119AA, 0x119D7}, {0x119DA, 0x119E1}, {0x119E3, 0x119E4},
    {0x11A00, 0x11A3E}, {0x11A47, 0x11A47}, {0x11A50, 0x11A99}, {0x11A9D, 0x11A9D},
    {0x11AB0, 0x11AF8}, {0x11C00, 0x11C08}, {0x11C0A, 0x11C36}, {0x11C38, 0x11C40},
    {0x11C50, 0x11C6C}, {0x11C72, 0x11C8F}, {0x11C92, 0x11CA7}, {0x11CA9, 0x11CB6},
    {0x11D00, 0x11D06}, {0x11D08, 0x11D09}, {0x11D0B, 0x11D36}, {0x11D3A, 0x11D3A},
    {0x11D3C, 0x11D3D}, {0x11D3F, 0x11D47}, {0x11D50, 0x11D59}, {0x11D60, 0x11D65},
    {0x11D67, 0x11D68}, {0x11D6A, 0x11D8E}, {0x11D90, 0x11D91}, {0x11D93, 0x11D98},
    {0x11DA0, 0x11DA9}, {0x11EE0, 0x11EF6}, {0x11F00, 0x11F10}, {0x11F12, 0x11F3A},
    {0x11F3E, 0x11F42}, {0x11F50, 0x11F59}, {0x11FB0, 0x11FB0}, {0x11FC0, 0x11FD4},
    {0x12000, 0x12399}, {0x12400, 0x1246E}, {0x12480, 0x12543}, {0x12F90, 0x12FF0},
    {0x13000, 0x1342F}, {0x13440, 0x13455}, {0x14400, 0x14646}, {0x16800, 0x16A38},
    {0x16A40, 0x16A5E}, {0x16A60, 0x16A69}, {0x16A70, 0x16ABE}, {0x16AC0, 0x16AC9},
    {0x16AD0, 0x16AED}, {0x16AF0, 0x16AF4}, {0x16B00, 0x16B36}, {0x16B40, 0x16B43},
    {0x16B50, 0x16B59}, {0x16B5B, 0x16B61}, {0x16B63, 0x16B77}, {0x16B7D, 0x16B8F},
    {0x16E40, 0x16E96}, {0x16F00, 0x16F4A}, {0x16F4F, 0x16F87}, {0x16F8F, 0x16F9F},
    {0x16FE0, 0x16FE1}, {0x16FE3, 0x16FE4}, {0x16FF0, 0x16FF1}, {0x17000, 0x187F7},
    {0x18800, 0x18CD5}, {0x18D00, 0x18D08}, {0x1AFF0, 0x1AFF3}, {0x1AFF5, 0x1AFFB},
    {0x1AFFD, 0x1AFFE}, {0x1B000, 0x1B122}, {0x1B132, 0x1B132}, {0x1B150, 0x1B152},
    {0x1B155, 0x1B155}, {0x1B164, 0x1B167}, {0x1B170, 0x1B2FB}, {0x1BC00, 0x1BC6A},
    {0x1BC70, 0x1BC7C}, {0x1BC80, 0x1BC88}, {0x1BC90, 0x1BC99}, {0x1BC9D, 0x1BC9E},
    {0x1CF00, 0x1CF2D}, {0x1CF30, 0x1CF46}, {0x1D165, 0x1D169}, {0x1D16D, 0x1D172},
    {0x1D17B, 0x1D182}, {0x1D185, 0x1D18B}, {0x1D1AA, 0x1D1AD}, {0x1D242, 0x1D244},
    {0x1D2C0, 0x1D2D3}, {0x1D2E0, 0x1D2F3}, {0x1D360, 0x1D378}, {0x1D400, 0x1D454},
    {0x1D456, 0x1D49C}, {0x1D49E, 0x1D49F}, {0x1D4A2, 0x1D4A2}, {0x1D4A5, 0x1D4A6},
    {0x1D4A9, 0x1D4AC}, {0x1D4AE, 0x1D4B9}, {0x1D4BB, 0x1D4BB}, {0x1D4BD, 0x1D4C3},
    {0x1D4C5, 0x1D505}, {0x1D507, 0x1D50A}, {0x1D50D, 0x1D514}, {0x1D516, 0x1D51C},
    {0x1D51E, 0x1D539}, {0x1D53B, 0x1D53E}, {0x1D540, 0x1D544}, {0x1D546, 0x1D546},
    {0x1D54A, 0x1D550}, {0x1D552, 0x1D6A5}, {0x1D6A8, 0x1D6C0}, {0x1D6C2, 0x1D6DA},
    {0x1D6DC, 0x1D6FA}, {0x1D6FC, 0x1D714}, {0x1D716, 0x1D734}, {0x1D736, 0x1D74E},
    {0x1D750, 0x1D76E}, {0x1D770, 0x1D788}, {0x1D78A, 0x1D7A8}, {0x1D7AA, 0x1D7C2},
    {0x1D7C4, 0x1D7CB}, {0x1D7CE, 0x1D7FF}, {0x1DA00, 0x1DA36}, {0x1DA3B, 0x1DA6C},
    {0x1DA75, 0x1DA75}, {0x1DA84, 0x1DA84}, {0x1DA9B, 0x1DA9F}, {0x1DAA1, 0x1DAAF},
    {0x1DF00, 0x1DF1E}, {0x1DF25, 0x1DF2A}, {0x1E000, 0x1E006}, {0x1E008, 0x1E018},
    {0x1E01B, 0x1E021}, {0x1E023, 0x1E024}, {0x1E026, 0x1E02A}, {0x1E030, 0x1E06D},
    {0x1E08F, 0x1E08F}, {0x1E100, 0x1E12C}, {0x1E130, 0x1E13D}, {0x1E140, 0x1E149},
    {0x1E14E, 0x1E14E}, {0x1E290, 0x1E2AE}, {0x1E2C0, 0x1E2F9}, {0x1E4D0, 0x1E4F9},
    {0x1E7E0, 0x1E7E6}, {0x1E7E8, 0x1E7EB}, {0x1E7ED, 0x1E7EE}, {0x1E7F0, 0x1E7FE},
    {0x1E800, 0x1E8C4}, {0x1E8C7, 0x1E8D6}, {0x1E900, 0x1E94B}, {0x1E950, 0x1E959},
    {0x1EC71, 0x1ECAB}, {0x1ECAD, 0x1ECAF}, {0x1ECB1, 0x1ECB4}, {0x1ED01, 0x1ED2D},
    {0x1ED2F, 0x1ED3D}, {0x1EE00, 0x1EE03}, {0x1EE05, 0x1EE1F}, {0x1EE21, 0x1EE22},
    {0x1EE24, 0x1EE24}, {0x1EE27, 0x1EE27}, {0x1EE29, 0x1EE32}, {0x1EE34, 0x1EE37},
    {0x1EE39, 0x1EE39}, {0x1EE3B, 0x1EE3B}, {0x1EE42, 0x1EE42}, {0x1EE47, 0x1EE47},
    {0x1EE49, 0x1EE49}, {0x1EE4B, 0x1EE4B}, {0x1EE4D, 0x1EE4F}, {0x1EE51, 0x1EE52},
    {0x1EE54, 0x1EE54}, {0x1EE57, 0x1EE57}, {0x1EE59, 0x1EE59}, {0x1EE5B, 0x1EE5B},
    {0x1EE5D, 0x1EE5D}, {0x1EE5F, 0x1EE5F}, {0x1EE61, 0x1EE62}, {0x1EE64, 0x1EE64},
    {0x1EE67, 0x1EE6A}, {0x1EE6C, 0x1EE72}, {0x1EE74, 0x1EE77}, {0x1EE79, 0x1EE7C},
    {0x1EE7E, 0x1EE7E}, {0x1EE80, 0x1EE89}, {0x1EE8B, 0x1EE9B}, {0x1EEA1, 0x1EEA3},
    {0x1EEA5, 0x1EEA9}, {0x1EEAB, 0x1EEBB}, {0x1F100, 0x1F10C}, {0x1FBF0, 0x1FBF9},
    {0x20000, 0x2A6DF}, {0x2A700, 0x2B739}, {0x2B740, 0x2B81D}, {0x2B820, 0x2CEA1},
    {0x2CEB0, 0x2EBE0}, {0x2F800, 0x2FA1D}, {0x30000, 0x3134A}, {0x31350, 0x323AF},
    {0xE0100, 0xE01EF},
};

/// Letters of scripts that put no space between words.
inline constexpr code_range unspaced_table[] = {
    {0xE01, 0xE3A}, {0xE40, 0xE4E}, {0xE81, 0xE82}, {0xE84, 0xE84}, {0xE86, 0xE8A}, {0xE8C, 0xEA3},
    {0xEA5, 0xEA5}, {0xEA7, 0xEBD}, {0xEC0, 0xEC4}, {0xEC6, 0xEC6}, {0xEC8, 0xECE}, {0xEDC, 0xEDF},
    {0x1000, 0x103F}, {0x1050, 0x108F}, {0x109A, 0x109D}, {0x1780, 0x17D3}, {0x17D7, 0x17D7},
    {0x17DC, 0x17DD}, {0x1950, 0x196D}, {0x1970, 0x1974}, {0x1980, 0x19AB}, {0x19B0, 0x19C9},
    {0x19DA, 0x19DA}, {0x1A20, 0x1A5E}, {0x1A60, 0x1A7C}, {0x1AA7, 0x1AA7}, {0x3005, 0x3005},
    {0x3007, 0x3007}, {0x3021, 0x3029}, {0x3038, 0x303B}, {0x3041, 0x3096}, {0x309D, 0x309F},
    {0x30A1, 0x30FA}, {0x30FC, 0x30FF}, {0x3105, 0x312F}, {0x31A0, 0x31BF}, {0x31F0, 0x31FF},
    {0x3400, 0x4DBF}, {0x4E00, 0xA48C}, {0xA9E0, 0xA9EF}, {0xA9FA, 0xA9FE}, {0xAA60, 0xAA76},
    {0xAA7A, 0xAAC2}, {0xAADB, 0xAADD}, {0xF900, 0xFA6D}, {0xFA70, 0xFAD9}, {0xFF66, 0xFF9D},
    {0x11700, 0x1171A}, {0x1171D, 0x1172B}, {0x1173A, 0x1173B}, {0x11740, 0x11746},
    {0x16FE0, 0x16FE1}, {0x16FE3, 0x16FE4}, {0x16FF0, 0x16FF1}, {0x17000, 0x187F7},
    {0x18800, 0x18CD5}, {0x18D00, 0x18D08}, {0x1AFF0, 0x1AFF3}, {0x1AFF5, 0x1AFFB},
    {0x1AFFD, 0x1AFFE}, {0x1B000, 0x1B122}, {0x1B132, 0x1B132}, {0x1B150, 0x1B152},
    {0x1B155, 0x1B155}, {0x1B164, 0x1B167}, {0x1B170, 0x1B2FB}, {0x20000, 0x2A6DF},
    {0x2A700, 0x2B739}, {0x2B740, 0x2B81D}, {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0},
    {0x2F800, 0x2FA1D}, {0x30000, 0x3134A}, {0x31350, 0x323AF},
};

/// Lowercase: first, last, step.
inline constexpr strided_range lower_table[] = {
    {0xAA, 0xAA, 1, 0}, {0xB5, 0xB5, 1, 0}, {0xBA, 0xBA, 1, 0}, {0xDF, 0xF6, 1, 0},
    {0xF8, 0xFF, 1, 0}, {0x101, 0x137, 2, 0}, {0x138, 0x148, 2, 0}, {0x149, 0x177, 2, 0},
    {0x17A, 0x17E, 2, 0}, {0x17F, 0x180, 1, 0}, {0x183, 0x185, 2, 0}, {0x188, 0x188, 1, 0},
    {0x18C, 0x18D, 1, 0}, {0x192, 0x192, 1, 0}, {0x195, 0x195, 1, 0}, {0x199, 0x19B, 1, 0},
    {0x19E, 0x19E, 1, 0}, {0x1A1, 0x1A5, 2, 0}, {0x1A8, 0x1AA, 2, 0}, {0x1AB, 0x1AD, 2, 0},
    {0x1B0, 0x1B0, 1, 0}, {0x1B4, 0x1B6, 2, 0}, {0x1B9, 0x1BA, 1, 0}, {0x1BD, 0x1BF, 1, 0},
    {0x1C6, 0x1C6, 1, 0}, {0x1C9, 0x1C9, 1, 0}, {0x1CC, 0x1DC, 2, 0}, {0x1DD, 0x1EF, 2, 0},
    {0x1F0, 0x1F0, 1, 0}, {0x1F3, 0x1F5, 2, 0}, {0x1F9, 0x233, 2, 0}, {0x234, 0x239, 1, 0},
    {0x23C, 0x23C, 1, 0}, {0x23F, 0x240, 1, 0}, {0x242, 0x242, 1, 0}, {0x247, 0x24F, 2, 0},
    {0x250, 0x293, 1, 0}, {0x295, 0x2B8, 1, 0}, {0x2C0, 0x2C1, 1, 0}, {0x2E0, 0x2E4, 1, 0},
    {0x345, 0x345, 1, 0}, {0x371, 0x373, 2, 0}, {0x377, 0x377, 1, 0}, {0x37A, 0x37D, 1, 0},
    {0x390, 0x390, 1, 0}, {0x3AC, 0x3CE, 1, 0}, {0x3D0, 0x3D1, 1, 0}, {0x3D5, 0x3D7, 1, 0},
    {0x3D9, 0x3EF, 2, 0}, {0x3F0, 0x3F3, 1, 0}, {0x3F5, 0x3F5, 1, 0}, {0x3F8, 0x3F8, 1, 0},
    {0x3FB, 0x3FC, 1, 0}, {0x430, 0x45F, 1, 0}, {0x461, 0x481, 2, 0}, {0x48B, 0x4BF, 2, 0},
    {0x4C2, 0x4CE, 2, 0}, {0x4CF, 0x52F, 2, 0}, {0x560, 0x588, 1, 0}, {0x10D0, 0x10FA, 1, 0},
    {0x10FC, 0x10FF, 1, 0}, {0x13F8, 0x13FD, 1, 0}, {0x1C80, 0x1C88, 1, 0}, {0x1D00, 0x1DBF, 1, 0},
    {0x1E01, 0x1E95, 2, 0}, {0x1E96, 0x1E9D, 1, 0}, {0x1E9F, 0x1EFF, 2, 0}, {0x1F00, 0x1F07, 1, 0},
    {0x1F10, 0x1F15, 1, 0}, {0x1F20, 0x1F27, 1, 0}, {0x1F30, 0x1F37, 1, 0}, {0x1F40, 0x1F45, 1, 0},
    {0x1F50, 0x1F57, 1, 0}, {0x1F60, 0x1F67, 1, 0}, {0x1F70, 0x1F7D, 1, 0}, {0x1F80, 0x1F87, 1, 0},
    {0x1F90, 0x1F97, 1, 0}, {0x1FA0, 0x1FA7, 1, 0}, {0x1FB0, 0x1FB4, 1, 0}, {0x1FB6, 0x1FB7, 1, 0},
    {0x1FBE, 0x1FBE, 1, 0}, {0x1FC2, 0x1FC4, 1, 0}, {0x1FC6, 0x1FC7, 1, 0}, {0x1FD0, 0x1FD3, 1, 0},
    {0x1FD6, 0x1FD7, 1, 0}, {0x1FE0, 0x1FE7, 1, 0}, {0x1FF2, 0x1FF4, 1, 0}, {0x1FF6, 0x1FF7, 1, 0},
    {0x2071, 0x2071, 1, 0}, {0x207F, 0x207F, 1, 0}, {0x2090, 0x209C, 1, 0}, {0x210A, 0x210A, 1, 0},
    {0x210E, 0x210F, 1, 0}, {0x2113, 0x2113, 1, 0}, {0x212F, 0x212F, 1, 0}, {0x2134, 0x2134, 1, 0},
    {0x2139, 0x2139, 1, 0}, {0x213C, 0x213D, 1, 0}, {0x2146, 0x2149, 1, 0}, {0x214E, 0x214E, 1, 0},
    {0x2170, 0x217F, 1, 0}, {0x2184, 0x2184, 1, 0}, {0x24D0, 0x24E9, 1, 0}, {0x2C30, 0x2C5F, 1, 0},
    {0x2C61, 0x2C61, 1, 0}, {0x2C65, 0x2C66, 1, 0}, {0x2C68, 0x2C6C, 2, 0}, {0x2C71, 0x2C73, 2, 0},
    {0x2C74, 0x2C76, 2, 0}, {0x2C77, 0x2C7D, 1, 0}, {0x2C81, 0x2CE3, 2, 0}, {0x2CE4, 0x2CE4, 1, 0},
    {0x2CEC, 0x2CEE, 2, 0}, {0x2CF3, 0x2CF3, 1, 0}, {0x2D00, 0x2D25, 1, 0}, {0x2D27, 0x2D27, 1, 0},
    {0x2D2D, 0x2D2D, 1, 0}, {0xA641, 0xA66D, 2, 0}, {0xA681, 0xA69B, 2, 0}, {0xA69C, 0xA69D, 1, 0},
    {0xA723, 0xA72F, 2, 0}, {0xA730, 0xA731, 1, 0}, {0xA733, 0xA76F, 2, 0}, {0xA770, 0xA778, 1, 0},
    {0xA77A, 0xA77C, 2, 0}, {0xA77F, 0xA787, 2, 0}, {0xA78C, 0xA78E, 2, 0}, {0xA791, 0xA793, 2, 0},
    {0xA794, 0xA795, 1, 0}, {0xA797, 0xA7A9, 2, 0}, {0xA7AF, 0xA7AF, 1, 0}, {0xA7B5, 0xA7C3, 2, 0},
    {0xA7C8, 0xA7CA, 2, 0}, {0xA7D1, 0xA7D9, 2, 0}, {0xA7F2, 0xA7F4, 1, 0}, {0xA7F6, 0xA7F8, 2, 0},
    {0xA7F9, 0xA7FA, 1, 0}, {0xAB30, 0xAB5A, 1, 0}, {0xAB5C, 0xAB69, 1, 0}, {0xAB70, 0xABBF, 1, 0},
    {0xFB00, 0xFB06, 1, 0}, {0xFB13, 0xFB17, 1, 0}, {0xFF41, 0xFF5A, 1, 0},
    {0x10428, 0x1044F, 1, 0}, {0x104D8, 0x104FB, 1, 0}, {0x10597, 0x105A1, 1, 0},
    {0x105A3, 0x105B1, 1, 0}, {0x105B3, 0x105B9, 1, 0}, {0x105BB, 0x105BC, 1, 0},
    {0x10780, 0x10780, 1, 0}, {0x10783, 0x10785, 1, 0}, {0x10787, 0x107B0, 1, 0},
    {0x107B2, 0x107BA, 1, 0}, {0x10CC0, 0x10CF2, 1, 0}, {0x118C0, 0x118DF, 1, 0},
    {0x16E60, 0x16E7F, 1, 0}, {0x1D41A, 0x1D433, 1, 0}, {0x1D44E, 0x1D454, 1, 0},
    {0x1D456, 0x1D467, 1, 0}, {0x1D482, 0x1D49B, 1, 0}, {0x1D4B6, 0x1D4B9, 1, 0},
    {0x1D4BB, 0x1D4BD, 2, 0}, {0x1D4BE, 0x1D4C3, 1, 0}, {0x1D4C5, 0x1D4CF, 1, 0},
    {0x1D4EA, 0x1D503, 1, 0}, {0x1D51E, 0x1D537, 1, 0}, {0x1D552, 0x1D56B, 1, 0},
    {0x1D586, 0x1D59F, 1, 0}, {0x1D5BA, 0x1D5D3, 1, 0}, {0x1D5EE, 0x1D607, 1, 0},
    {0x1D622, 0x1D63B, 1, 0}, {0x1D656, 0x1D66F, 1, 0}, {0x1D68A, 0x1D6A5, 1, 0},
    {0x1D6C2, 0x1D6DA, 1, 0}, {0x1D6DC, 0x1D6E1, 1, 0}, {0x1D6FC, 0x1D714, 1, 0},
    {0x1D716, 0x1D71B, 1, 0}, {0x1D736, 0x1D74E, 1, 0}, {0x1D750, 0x1D755, 1, 0},
    {0x1D770, 0x1D788, 1, 0}, {0x1D78A, 0x1D78F, 1, 0}, {0x1D7AA, 0x1D7C2, 1, 0},
    {0x1D7C4, 0x1D7C9, 1, 0}, {0x1D7CB, 0x1D7CB, 1, 0}, {0x1DF00, 0x1DF09, 1, 0},
    {0x1DF0B, 0x1DF1E, 1, 0}, {0x1DF25, 0x1DF2A, 1, 0}, {0x1E030, 0x1E06D, 1, 0},
    {0x1E922, 0x1E943, 1, 0},
};

/// Case folding to one code point: first, last, step, what to add.
inline constexpr strided_range fold_table[] = {
    {0xB5, 0xB5, 1, 775}, {0xC0, 0xD6, 1, 32}, {0xD8, 0xDE, 1, 32}, {0x100, 0x12E, 2, 1},
    {0x132, 0x136, 2, 1}, {0x139, 0x147, 2, 1}, {0x14A, 0x176, 2, 1}, {0x178, 0x178, 1, -121},
    {0x179, 0x17D, 2, 1}, {0x17F, 0x17F, 1, -268}, {0x181, 0x181, 1, 210}, {0x182, 0x184, 2, 1},
    {0x186, 0x186, 1, 206}, {0x187, 0x187, 1, 1}, {0x189, 0x18A, 1, 205}, {0x18B, 0x18B, 1, 1},
    {0x18E, 0x18E, 1, 79}, {0x18F, 0x18F, 1, 202}, {0x190, 0x190, 1, 203}, {0x191, 0x191, 1, 1},
    {0x193, 0x193, 1, 205}, {0x194, 0x194, 1, 207}, {0x196, 0x196, 1, 211}, {0x197, 0x197, 1, 209},
    {0x198, 0x198, 1, 1}, {0x19C, 0x19C, 1, 211}, {0x19D, 0x19D, 1, 213}, {0x19F, 0x19F, 1, 214},
    {0x1A0, 0x1A4, 2, 1}, {0x1A6, 0x1A6, 1, 218}, {0x1A7, 0x1A7, 1, 1}, {0x1A9, 0x1A9, 1, 218},
    {0x1AC, 0x1AC, 1, 1}, {0x1AE, 0x1AE, 1, 218}, {0x1AF, 0x1AF, 1, 1}, {0x1B1, 0x1B2, 1, 217},
    {0x1B3, 0x1B5, 2, 1}, {0x1B7, 0x1B7, 1, 219}, {0x1B8, 0x1B8, 1, 1}, {0x1BC, 0x1BC, 1, 1},
    {0x1C4, 0x1C4, 1, 2}, {0x1C5, 0x1C5, 1, 1}, {0x1C7, 0x1C7, 1, 2}, {0x1C8, 0x1C8, 1, 1},
    {0x1CA, 0x1CA, 1, 2}, {0x1CB, 0x1DB, 2, 1}, {0x1DE, 0x1EE, 2, 1}, {0x1F1, 0x1F1, 1, 2},
    {0x1F2, 0x1F4, 2, 1}, {0x1F6, 0x1F6, 1, -97}, {0x1F7, 0x1F7, 1, -56}, {0x1F8, 0x21E, 2, 1},
    {0x220, 0x220, 1, -130}, {0x222, 0x232, 2, 1}, {0x23A, 0x23A, 1, 10795}, {0x23B, 0x23B, 1, 1},
    {0x23D, 0x23D, 1, -163}, {0x23E, 0x23E, 1, 10792}, {0x241, 0x241, 1, 1},
    {0x243, 0x243, 1, -195}, {0x244, 0x244, 1, 69}, {0x245, 0x245, 1, 71}, {0x246, 0x24E, 2, 1},
    {0x345, 0x345, 1, 116}, {0x370, 0x372, 2, 1}, {0x376, 0x376, 1, 1}, {0x37F, 0x37F, 1, 116},
    {0x386, 0x386, 1, 38}, {0x388, 0x38A, 1, 37}, {0x38C, 0x38C, 1, 64}, {0x38E, 0x38F, 1, 63},
    {0x391, 0x3A1, 1, 32}, {0x3A3, 0x3AB, 1, 32}, {0x3C2, 0x3C2, 1, 1}, {0x3CF, 0x3CF, 1, 8},
    {0x3D0, 0x3D0, 1, -30}, {0x3D1, 0x3D1, 1, -25}, {0x3D5, 0x3D5, 1, -15}, {0x3D6, 0x3D6, 1, -22},
    {0x3D8, 0x3EE, 2, 1}, {0x3F0, 0x3F0, 1, -54}, {0x3F1, 0x3F1, 1, -48}, {0x3F4, 0x3F4, 1, -60},
    {0x3F5, 0x3F5, 1, -64}, {0x3F7, 0x3F7, 1, 1}, {0x3F9, 0x3F9, 1, -7}, {0x3FA, 0x3FA, 1, 1},
    {0x3FD, 0x3FF, 1, -130}, {0x400, 0x40F, 1, 80}, {0x410, 0x42F, 1, 32}, {0x460, 0x480, 2, 1},
    {0x48A, 0x4BE, 2, 1}, {0x4C0, 0x4C0, 1, 15}, {0x4C1, 0x4CD, 2, 1}, {0x4D0, 0x52E, 2, 1},
    {0x531, 0x556, 1, 48}, {0x10A0, 0x10C5, 1, 7264}, {0x10C7, 0x10C7, 1, 7264},
    {0x10CD, 0x10CD, 1, 7264}, {0x13F8, 0x13FD, 1, -8}, {0x1C80, 0x1C80, 1, -6222},
    {0x1C81, 0x1C81, 1, -6221}, {0x1C82, 0x1C82, 1, -6212}, {0x1C83, 0x1C84, 1, -6210},
    {0x1C85, 0x1C85, 1, -6211}, {0x1C86, 0x1C86, 1, -6204}, {0x1C87, 0x1C87, 1, -6180},
    {0x1C88, 0x1C88, 1, 35267}, {0x1C90, 0x1CBA, 1, -3008}, {0x1CBD, 0x1CBF, 1, -3008},
    {0x1E00, 0x1E94, 2, 1}, {0x1E9B, 0x1E9B, 1, -58}, {0x1EA0, 0x1EFE, 2, 1},
    {0x1F08, 0x1F0F, 1, -8}, {0x1F18, 0x1F1D, 1, -8}, {0x1F28, 0x1F2F, 1, -8},
    {0x1F38, 0x1F3F, 1, -8}, {0x1F48, 0x1F4D, 1, -8}, {0x1F59, 0x1F5F, 2, -8},
    {0x1F68, 0x1F6F, 1, -8}, {0x1FB8, 0x1FB9, 1, -8}, {0x1FBA, 0x1FBB, 1, -74},
    {0x1FBE, 0x1FBE, 1, -7173}, {0x1FC8, 0x1FCB, 1, -86}, {0x1FD8, 0x1FD9, 1, -8},
    {0x1FDA, 0x1FDB, 1, -100}, {0x1FE8, 0x1FE9, 1, -8}, {0x1FEA, 0x1FEB, 1, -112},
    {0x1FEC, 0x1FEC, 1, -7}, {0x1FF8, 0x1FF9, 1, -128}, {0x1FFA, 0x1FFB, 1, -126},
    {0x2126, 0x2126, 1, -7517}, {0x212A, 0x212A, 1, -8383}, {0x212B, 0x212B, 1, -8262},
    {0x2132, 0x2132, 1, 28}, {0x2160, 0x216F, 1, 16}, {0x2183, 0x2183, 1, 1},
    {0x24B6, 0x24CF, 1, 26}, {0x2C00, 0x2C2F, 1, 48}, {0x2C60, 0x2C60, 1, 1},
    {0x2C62, 0x2C62, 1, -10743}, {0x2C63, 0x2C63, 1, -3814}, {0x2C64, 0x2C64, 1, -10727},
    {0x2C67, 0x2C6B, 2, 1}, {0x2C6D, 0x2C6D, 1, -10780}, {0x2C6E, 0x2C6E, 1, -10749},
    {0x2C6F, 0x2C6F, 1, -10783}, {0x2C70, 0x2C70, 1, -10782}, {0x2C72, 0x2C72, 1, 1},
    {0x2C75, 0x2C75, 1, 1}, {0x2C7E, 0x2C7F, 1, -10815}, {0x2C80, 0x2CE2, 2, 1},
    {0x2CEB, 0x2CED, 2, 1}, {0x2CF2, 0x2CF2, 1, 1}, {0xA640, 0xA66C, 2, 1}, {0xA680, 0xA69A, 2, 1},
    {0xA722, 0xA72E, 2, 1}, {0xA732, 0xA76E, 2, 1}, {0xA779, 0xA77B, 2, 1},
    {0xA77D, 0xA77D, 1, -35332}, {0xA77E, 0xA786, 2, 1}, {0xA78B, 0xA78B, 1, 1},
    {0xA78D, 0xA78D, 1, -42280}, {0xA790, 0xA792, 2, 1}, {0xA796, 0xA7A8, 2, 1},
    {0xA7AA, 0xA7AA, 1, -42308}, {0xA7AB, 0xA7AB, 1, -42319}, {0xA7AC, 0xA7AC, 1, -42315},
    {0xA7AD, 0xA7AD, 1, -42305}, {0xA7AE, 0xA7AE, 1, -42308}, {0xA7B0, 0xA7B0, 1, -42258},
    {0xA7B1, 0xA7B1, 1, -42282}, {0xA7B2, 0xA7B2, 1, -42261}, {0xA7B3, 0xA7B3, 1, 928},
    {0xA7B4, 0xA7C2, 2, 1}, {0xA7C4, 0xA7C4, 1, -48}, {0xA7C5, 0xA7C5, 1, -42307},
    {0xA7C6, 0xA7C6, 1, -35384}, {0xA7C7, 0xA7C9, 2, 1}, {0xA7D0, 0xA7D0, 1, 1},
    {0xA7D6, 0xA7D8, 2, 1}, {0xA7F5, 0xA7F5, 1, 1}, {0xAB70, 0xABBF, 1, -38864},
    {0xFF21, 0xFF3A, 1, 32}, {0x10400, 0x10427, 1, 40}, {0x104B0, 0x104D3, 1, 40},
    {0x10570, 0x1057A, 1, 39}, {0x1057C, 0x1058A, 1, 39}, {0x1058C, 0x10592, 1, 39},
    {0x10594, 0x10595, 1, 39}, {0x10C80, 0x10CB2, 1, 64}, {0x118A0, 0x118BF, 1, 32},
    {0x16E40, 0x16E5F, 1, 32}, {0x1E900, 0x1E921, 1, 34},
};

/// Case folding to two or three code points.
inline constexpr long_fold long_fold_table[] = {
    {0xDF, {0x73, 0x73, 0x0}}, {0x130, {0x69, 0x307, 0x0}}, {0x149, {0x2BC, 0x6E, 0x0}},
    {0x1F0, {0x6A, 0x30C, 0x0}}, {0x390, {0x3B9, 0x308, 0x301}}, {0x3B0, {0x3C5, 0x308, 0x301}},
    {0x587, {0x565, 0x582, 0x0}}, {0x1E96, {0x68, 0x331, 0x0}}, {0x1E97, {0x74, 0x308, 0x0}},
    {0x1E98, {0x77, 0x30A, 0x0}}, {0x1E99, {0x79, 0x30A, 0x0}}, {0x1E9A, {0x61, 0x2BE, 0x0}},
    {0x1E9E, {0x73, 0x73, 0x0}}, {0x1F50, {0x3C5, 0x313, 0x0}}, {0x1F52, {0x3C5, 0x313, 0x300}},
    {0x1F54, {0x3C5, 0x313, 0x301}}, {0x1F56, {0x3C5, 0x313, 0x342}},
    {0x1F80, {0x1F00, 0x3B9, 0x0}}, {0x1F81, {0x1F01, 0x3B9, 0x0}}, {0x1F82, {0x1F02, 0x3B9, 0x0}},
    {0x1F83, {0x1F03, 0x3B9, 0x0}}, {0x1F84, {0x1F04, 0x3B9, 0x0}}, {0x1F85, {0x1F05, 0x3B9, 0x0}},
    {0x1F86, {0x1F06, 0x3B9, 0x0}}, {0x1F87, {0x1F07, 0x3B9, 0x0}}, {0x1F88, {0x1F00, 0x3B9, 0x0}},
    {0x1F89, {0x1F01, 0x3B9, 0x0}}, {0x1F8A, {0x1F02, 0x3B9, 0x0}}, {0x1F8B, {0x1F03, 0x3B9, 0x0}},
    {0x1F8C, {0x1F04, 0x3B9, 0x0}}, {0x1F8D, {0x1F05, 0x3B9, 0x0}}, {0x1F8E, {0x1F06, 0x3B9, 0x0}},
    {0x1F8F, {0x1F07, 0x3B9, 0x0}}, {0x1F90, {0x1F20, 0x3B9, 0x0}}, {0x1F91, {0x1F21, 0x3B9, 0x0}},
    {0x1F92, {0x1F22, 0x3B9, 0x0}}, {0x1F93, {0x1F23, 0x3B9, 0x0}}, {0x1F94, {0x1F24, 0x3B9, 0x0}},
    {0x1F95, {0x1F25, 0x3B9, 0x0}}, {0x1F96, {0x1F26, 0x3B9, 0x0}}, {0x1F97, {0x1F27, 0x3B9, 0x0}},
    {0x1F98, {0x1F20, 0x3B9, 0x0}}, {0x1F99, {0x1F21, 0x3B9, 0x0}}, {0x1F9A, {0x1F22, 0x3B9, 0x0}},
    {0x1F9B, {0x1F23, 0x3B9, 0x0}}, {0x1F9C, {0x1F24, 0x3B9, 0x0}}, {0x1F9D, {0x1F25, 0x3B9, 0x0}},
    {0x1F9E, {0x1F26, 0x3B9, 0x0}}, {0x1F9F, {0x1F27, 0x3B9, 0x0}}, {0x1FA0, {0x1F60, 0x3B9, 0x0}},
    {0x1FA1, {0x1F61, 0x3B9, 0x0}}, {0x1FA2, {0x1F62, 0x3B9, 0x0}}, {0x1FA3, {0x1F63, 0x3B9, 0x0}},
    {0x1FA4, {0x1F64, 0x3B9, 0x0}}, {0x1FA5, {0x1F65, 0x3B9, 0x0}}, {0x1FA6, {0x1F66, 0x3B9, 0x0}},
    {0x1FA7, {0x1F67, 0x3B9, 0x0}}, {0x1FA8, {0x1F60, 0x3B9, 0x0}}, {0x1FA9, {0x1F61, 0x3B9, 0x0}},
    {0x1FAA, {0x1F62, 0x3B9, 0x0}}, {0x1FAB, {0x1F63, 0x3B9, 0x0}}, {0x1FAC, {0x1F64, 0x3B9, 0x0}},
    {0x1FAD, {0x1F65, 0x3B9, 0x0}}, {0x1FAE, {0x1F66, 0x3B9, 0x0}}, {0x1FAF, {0x1F67, 0x3B9, 0x0}},
    {0x1FB2, {0x1F70, 0x3B9, 0x0}}, {0x1FB3, {0x3B1, 0x3B9, 0x0}}, {0x1FB4, {0x3AC, 0x3B9, 0x0}},
    {0x1FB6, {0x3B1, 0x342, 0x0}}, {0x1FB7, {0x3B1, 0x342, 0x3B9}}, {0x1FBC, {0x3B1, 0x3B9, 0x0}},
    {0x1FC2, {0x1F74, 0x3B9, 0x0}}, {0x1FC3, {0x3B7, 0x3B9, 0x0}}, {0x1FC4, {0x3AE, 0x3B9, 0x0}},
    {0x1FC6, {0x3B7, 0x342, 0x0}}, {0x1FC7, {0x3B7, 0x342, 0x3B9}}, {0x1FCC, {0x3B7, 0x3B9, 0x0}},
    {0x1FD2, {0x3B9, 0x308, 0x300}}, {0x1FD3, {0x3B9, 0x308, 0x301}},
    {0x1FD6, {0x3B9, 0x342, 0x0}}, {0x1FD7, {0x3B9, 0x308, 0x342}},
    {0x1FE2, {0x3C5, 0x308, 0x300}}, {0x1FE3, {0x3C5, 0x308, 0x301}},
    {0x1FE4, {0x3C1, 0x313, 0x0}}, {0x1FE6, {0x3C5, 0x342, 0x0}}, {0x1FE7, {0x3C5, 0x308, 0x342}},
    {0x1FF2, {0x1F7C, 0x3B9, 0x0}}, {0x1FF3, {0x3C9, 0x3B9, 0x0}}, {0x1FF4, {0x3CE, 0x3B9, 0x0}},
    {0x1FF6, {0x3C9, 0x342, 0x0}}, {0x1FF7, {0x3C9, 0x342, 0x3B9}}, {0x1FFC, {0x3C9, 0x3B9, 0x0}},
    {0xFB00, {0x66, 0x66, 0x0}}, {0xFB01, {0x66, 0x69, 0x0}}, {0xFB02, {0x66, 0x6C, 0x0}},
    {0xFB03, {0x66, 0x66, 0x69}}, {0xFB04, {0x66, 0x66, 0x6C}}, {0xFB05, {0x73, 0x74, 0x0}},
    {0xFB06, {0x73, 0x74, 0x0}}, {0xFB13, {0x574, 0x576, 0x0}}, {0xFB14, {0x574, 0x565, 0x0}},
    {0xFB15, {0x574, 0x56B, 0x0}}, {0xFB16, {0x57E, 0x576, 0x0}}, {0xFB17, {0x574, 0x56D, 0x0}},
};

/// Grapheme_Cluster_Break, Extended_Pictographic; the letters are grapheme_class.
inline constexpr grapheme_range grapheme_table[] = {
    {0x7F, 0x9F, 'C'}, {0xA9, 0xA9, 'X'}, {0xAD, 0xAD, 'C'}, {0xAE, 0xAE, 'X'},
    {0x300, 0x36F, 'E'}, {0x483, 0x489, 'E'}, {0x591, 0x5BD, 'E'}, {0x5BF, 0x5BF, 'E'},
    {0x5C1, 0x5C2, 'E'}, {0x5C4, 0x5C5, 'E'}, {0x5C7, 0x5C7, 'E'}, {0x600, 0x605, 'P'},
    {0x610, 0x61A, 'E'}, {0x61C, 0x61C, 'C'}, {0x64B, 0x65F, 'E'}, {0x670, 0x670, 'E'},
    {0x6D6, 0x6DC, 'E'}, {0x6DD, 0x6DD, 'P'}, {0x6DF, 0x6E4, 'E'}, {0x6E7, 0x6E8, 'E'},
    {0x6EA, 0x6ED, 'E'}, {0x70F, 0x70F, 'P'}, {0x711, 0x711, 'E'}, {0x730, 0x74A, 'E'},
    {0x7A6, 0x7B0, 'E'}, {0x7EB, 0x7F3, 'E'}, {0x7FD, 0x7FD, 'E'}, {0x816, 0x819, 'E'},
    {0x81B, 0x823, 'E'}, {0x825, 0x827, 'E'}, {0x829, 0x82D, 'E'}, {0x859, 0x85B, 'E'},
    {0x890, 0x891, 'P'}, {0x898, 0x89F, 'E'}, {0x8CA, 0x8E1, 'E'}, {0x8E2, 0x8E2, 'P'},
    {0x8E3, 0x902, 'E'}, {0x903, 0x903, 'S'}, {0x93A, 0x93A, 'E'}, {0x93B, 0x93B, 'S'},
    {0x93C, 0x93C, 'E'}, {0x93E, 0x940, 'S'}, {0x941, 0x948, 'E'}, {0x949, 0x94C, 'S'},
    {0x94D, 0x94D, 'E'}, {0x94E, 0x94F, 'S'}, {0x951, 0x957, 'E'}, {0x962, 0x963, 'E'},
    {0x981, 0x981, 'E'}, {0x982, 0x983, 'S'}, {0x9BC, 0x9BC, 'E'}, {0x9BE, 0x9BE, 'E'},
    {0x9BF, 0x9C0, 'S'}, {0x9C1, 0x9C4, 'E'}, {0x9C7, 0x9C8, 'S'}, {0x9CB, 0x9CC, 'S'},
    {0x9CD, 0x9CD, 'E'}, {0x9D7, 0x9D7, 'E'}, {0x9E2, 0x9E3, 'E'}, {0x9FE, 0x9FE, 'E'},
    {0xA01, 0xA02, 'E'}, {0xA03, 0xA03, 'S'}, {0xA3C, 0xA3C, 'E'}, {0xA3E, 0xA40, 'S'},
    {0xA41, 0xA42, 'E'}, {0xA47, 0xA48, 'E'}, {0xA4B, 0xA4D, 'E'}, {0xA51, 0xA51, 'E'},
    {0xA70, 0xA71, 'E'}, {0xA75, 0xA75, 'E'}, {0xA81, 0xA82, 'E'}, {0xA83, 0xA83, 'S'},
    {0xABC, 0xABC, 'E'}, {0xABE, 0xAC0, 'S'}, {0xAC1, 0xAC5, 'E'}, {0xAC7, 0xAC8, 'E'},
    {0xAC9, 0xAC9, 'S'}, {0xACB, 0xACC, 'S'}, {0xACD, 0xACD, 'E'}, {0xAE2, 0xAE3, 'E'},
    {0xAFA, 0xAFF, 'E'}, {0xB01, 0xB01, 'E'}, {0xB02, 0xB03, 'S'}, {0xB3C, 0xB3C, 'E'},
    {0xB3E, 0xB3F, 'E'}, {0xB40, 0xB40, 'S'}, {0xB41, 0xB44, 'E'}, {0xB47, 0xB48, 'S'},
    {0xB4B, 0xB4C, 'S'}, {0xB4D, 0xB4D, 'E'}, {0xB55, 0xB57, 'E'}, {0xB62, 0xB63, 'E'},
    {0xB82, 0xB82, 'E'}, {0xBBE, 0xBBE, 'E'}, {0xBBF, 0xBBF, 'S'}, {0xBC0, 0xBC0, 'E'},
    {0xBC1, 0xBC2, 'S'}, {0xBC6, 0xBC8, 'S'}, {0xBCA, 0xBCC, 'S'}, {0xBCD, 0xBCD, 'E'},
    {0xBD7, 0xBD7, 'E'}, {0xC00, 0xC00, 'E'}, {0xC01, 0xC03, 'S'}, {0xC04, 0xC04, 'E'},
    {0xC3C, 0xC3C, 'E'}, {0xC3E, 0xC40, 'E'}, {0xC41, 0xC44, 'S'}, {0xC46, 0xC48, 'E'},
    {0xC4A, 0xC4D, 'E'}, {0xC55, 0xC56, 'E'}, {0xC62, 0xC63, 'E'}, {0xC81, 0xC81, 'E'},
    {0xC82, 0xC83, 'S'}, {0xCBC, 0xCBC, 'E'}, {0xCBE, 0xCBE, 'S'}, {0xCBF, 0xCBF, 'E'},
    {0xCC0, 0xCC1, 'S'}, {0xCC2, 0xCC2, 'E'}, {0xCC3, 0xCC4, 'S'}, {0xCC6, 0xCC6, 'E'},
    {0xCC7, 0xCC8, 'S'}, {0xCCA, 0xCCB, 'S'}, {0xCCC, 0xCCD, 'E'}, {0xCD5, 0xCD6, 'E'},
    {0xCE2, 0xCE3, 'E'}, {0xCF3, 0xCF3, 'S'}, {0xD00, 0xD01, 'E'}, {0xD02, 0xD03, 'S'},
    {0xD3B, 0xD3C, 'E'}, {0xD3E, 0xD3E, 'E'}, {0xD3F, 0xD40, 'S'}, {0xD41, 0xD44, 'E'},
    {0xD46, 0xD48, 'S'}, {0xD4A, 0xD4C, 'S'}, {0xD4D, 0xD4D, 'E'}, {0xD4E, 0xD4E, 'P'},
    {0xD57, 0xD57, 'E'}, {0xD62, 0xD63, 'E'}, {0xD81, 0xD81, 'E'}, {0xD82, 0xD83, 'S'},
    {0xDCA, 0xDCA, 'E'}, {0xDCF, 0xDCF, 'E'}, {0xDD0, 0xDD1, 'S'}, {0xDD2, 0xDD4, 'E'},
    {0xDD6, 0xDD6, 'E'}, {0xDD8, 0xDDE, 'S'}, {0xDDF, 0xDDF, 'E'}, {0xDF2, 0xDF3, 'S'},
    {0xE31, 0xE31, 'E'}, {0xE33, 0xE33, 'S'}, {0xE34, 0xE3A, 'E'}, {0xE47, 0xE4E, 'E'},
    {0xEB1, 0xEB1, 'E'}, {0xEB3, 0xEB3, 'S'}, {0xEB4, 0xEBC, 'E'}, {0xEC8, 0xECE, 'E'},
    {0xF18, 0xF19, 'E'}, {0xF35, 0xF35, 'E'}, {0xF37, 0xF37, 'E'}, {0xF39, 0xF39, 'E'},
    {0xF3E, 0xF3F, 'S'}, {0xF71, 0xF7E, 'E'}, {0xF7F, 0xF7F, 'S'}, {0xF80, 0xF84, 'E'},
    {0xF86, 0xF87, 'E'}, {0xF8D, 0xF97, 'E'}, {0xF99, 0xFBC, 'E'}, {0xFC6, 0xFC6, 'E'},
    {0x102D, 0x1030, 'E'}, {0x1031, 0x1031, 'S'}, {0x1032, 0x1037, 'E'}, {0x1039, 0x103A, 'E'},
    {0x103B, 0x103C, 'S'}, {0x103D, 0x103E, 'E'}, {0x1056, 0x1057, 'S'}, {0x1058, 0x1059, 'E'},
    {0x105E, 0x1060, 'E'}, {0x1071, 0x1074, 'E'}, {0x1082, 0x1082, 'E'}, {0x1084, 0x1084, 'S'},
    {0x1085, 0x1086, 'E'}, {0x108D, 0x108D, 'E'}, {0x109D, 0x109D, 'E'}, {0x135D, 0x135F, 'E'},
    {0x1712, 0x1714, 'E'}, {0x1715, 0x1715, 'S'}, {0x1732, 0x1733, 'E'}, {0x1734, 0x1734, 'S'},
    {0x1752, 0x1753, 'E'}, {0x1772, 0x1773, 'E'}, {0x17B4, 0x17B5, 'E'}, {0x17B6, 0x17B6, 'S'},
    {0x17B7, 0x17BD, 'E'}, {0x17BE, 0x17C5, 'S'}, {0x17C6, 0x17C6, 'E'}, {0x17C7, 0x17C8, 'S'},
    {0x17C9, 0x17D3, 'E'}, {0x17DD, 0x17DD, 'E'}, {0x180B, 0x180D, 'E'}, {0x180E, 0x180E, 'C'},
    {0x180F, 0x180F, 'E'}, {0x1885, 0x1886, 'E'}, {0x18A9, 0x18A9, 'E'}, {0x1920, 0x1922, 'E'},
    {0x1923, 0x1926, 'S'}, {0x1927, 0x1928, 'E'}, {0x1929, 0x192B, 'S'}, {0x1930, 0x1931, 'S'},
    {0x1932, 0x1932, 'E'}, {0x1933, 0x1938, 'S'}, {0x1939, 0x193B, 'E'}, {0x1A17, 0x1A18, 'E'},
    {0x1A19, 0x1A1A, 'S'}, {0x1A1B, 0x1A1B, 'E'}, {0x1A55, 0x1A55, 'S'}, {0x1A56, 0x1A56, 'E'},
    {0x1A57, 0x1A57, 'S'}, {0x1A58, 0x1A5E, 'E'}, {0x1A60, 0x1A60, 'E'}, {0x1A62, 0x1A62, 'E'},
    {0x1A65, 0x1A6C, 'E'}, {0x1A6D, 0x1A72, 'S'}, {0x1A73, 0x1A7C, 'E'}, {0x1A7F, 0x1A7F, 'E'},
    {0x1AB0, 0x1ACE, 'E'}, {0x1B00, 0x1B03, 'E'}, {0x1B04, 0x1B04, 'S'}, {0x1B34, 0x1B3A, 'E'},
    {0x1B3B, 0x1B3B, 'S'}, {0x1B3C, 0x1B3C, 'E'}, {0x1B3D, 0x1B41, 'S'}, {0x1B42, 0x1B42, 'E'},
    {0x1B43, 0x1B44, 'S'}, {0x1B6B, 0x1B73, 'E'}, {0x1B80, 0x1B81, 'E'}, {0x1B82, 0x1B82, 'S'},
    {0x1BA1, 0x1BA1, 'S'}, {0x1BA2, 0x1BA5, 'E'}, {0x1BA6, 0x1BA7, 'S'}, {0x1BA8, 0x1BA9, 'E'},
    {0x1BAA, 0x1BAA, 'S'}, {0x1BAB, 0x1BAD, 'E'}, {0x1BE6, 0x1BE6, 'E'}, {0x1BE7, 0x1BE7, 'S'},
    {0x1BE8, 0x1BE9, 'E'}, {0x1BEA, 0x1BEC, 'S'}, {0x1BED, 0x1BED, 'E'}, {0x1BEE, 0x1BEE, 'S'},
    {0x1BEF, 0x1BF1, 'E'}, {0x1BF2, 0x1BF3, 'S'}, {0x1C24, 0x1C2B, 'S'}, {0x1C2C, 0x1C33, 'E'},
    {0x1C34, 0x1C35, 'S'}, {0x1C36, 0x1C37, 'E'}, {0x1CD0, 0x1CD2, 'E'}, {0x1CD4, 0x1CE0, 'E'},
    {0x1CE1, 0x1CE1, 'S'}, {0x1CE2, 0x1CE8, 'E'}, {0x1CED, 0x1CED, 'E'}, {0x1CF4, 0x1CF4, 'E'},
    {0x1CF7, 0x1CF7, 'S'}, {0x1CF8, 0x1CF9, 'E'}, {0x1DC0, 0x1DFF, 'E'}, {0x200B, 0x200B, 'C'},
    {0x200C, 0x200C, 'E'}, {0x200D, 0x200D, 'J'}, {0x200E, 0x200F, 'C'}, {0x2028, 0x202E, 'C'},
    {0x203C, 0x203C, 'X'}, {0x2049, 0x2049, 'X'}, {0x2060, 0x206F, 'C'}, {0x20D0, 0x20F0, 'E'},
    {0x2122, 0x2122, 'X'}, {0x2139, 0x2139, 'X'}, {0x2194, 0x2199, 'X'}, {0x21A9, 0x21AA, 'X'},
    {0x231A, 0x231B, 'X'}, {0x2328, 0x2328, 'X'}, {0x2388, 0x2388, 'X'}, {0x23CF, 0x23CF, 'X'},
    {0x23E9, 0x23F3, 'X'}, {0x23F8, 0x23FA, 'X'}, {0x24C2, 0x24C2, 'X'}, {0x25AA, 0x25AB, 'X'},
    {0x25B6, 0x25B6, 'X'}, {0x25C0, 0x25C0, 'X'}, {0x25FB, 0x25FE, 'X'}, {0x2600, 0x2605, 'X'},
    {0x2607, 0x2612, 'X'}, {0x2614, 0x2685, 'X'}, {0x2690, 0x2705, 'X'}, {0x2708, 0x2712, 'X'},
    {0x2714, 0x2714, 'X'}, {0x2716, 0x2716, 'X'}, {0x271D, 0x271D, 'X'}, {0x2721, 0x2721, 'X'},
    {0x2728, 0x2728, 'X'}, {0x2733, 0x2734, 'X'}, {0x2744, 0x2744, 'X'}, {0x2747, 0x2747, 'X'},
    {0x274C, 0x274C, 'X'}, {0x274E, 0x274E, 'X'}, {0x2753, 0x2755, 'X'}, {0x2757, 0x2757, 'X'},
    {0x2763, 0x2767, 'X'}, {0x2795, 0x2797, 'X'}, {0x27A1, 0x27A1, 'X'}, {0x27B0, 0x27B0, 'X'},
    {0x27BF, 0x27BF, 'X'}, {0x2934, 0x2935, 'X'}, {0x2B05, 0x2B07, 'X'}, {0x2B1B, 0x2B1C, 'X'},
    {0x2B50, 0x2B50, 'X'}, {0x2B55, 0x2B55, 'X'}, {0x2CEF, 0x2CF1, 'E'}, {0x2D7F, 0x2D7F, 'E'},
    {0x2DE0, 0x2DFF, 'E'}, {0x302A, 0x302F, 'E'}, {0x3030, 0x3030, 'X'}, {0x303D, 0x303D, 'X'},
    {0x3099, 0x309A, 'E'}, {0x3297, 0x3297, 'X'}, {0x3299, 0x3299, 'X'}, {0xA66F, 0xA672, 'E'},
    {0xA674, 0xA67D, 'E'}, {0xA69E, 0xA69F, 'E'}, {0xA6F0, 0xA6F1, 'E'}, {0xA802, 0xA802, 'E'},
    {0xA806, 0xA806, 'E'}, {0xA80B, 0xA80B, 'E'}, {0xA823, 0xA824, 'S'}, {0xA825, 0xA826, 'E'},
    {0xA827, 0xA827, 'S'}, {0xA82C, 0xA82C, 'E'}, {0xA880, 0xA881, 'S'}, {0xA8B4, 0xA8C3, 'S'},
    {0xA8C4, 0xA8C5, 'E'}, {0xA8E0, 0xA8F1, 'E'}, {0xA8FF, 0xA8FF, 'E'}, {0xA926, 0xA92D, 'E'},
    {0xA947, 0xA951, 'E'}, {0xA952, 0xA953, 'S'}, {0xA980, 0xA982, 'E'}, {0xA983, 0xA983, 'S'},
    {0xA9B3, 0xA9B3, 'E'}, {0xA9B4, 0xA9B5, 'S'}, {0xA9B6, 0xA9B9, 'E'}, {0xA9BA, 0xA9BB, 'S'},
    {0xA9BC, 0xA9BD, 'E'}, {0xA9BE, 0xA9C0, 'S'}, {0xA9E5, 0xA9E5, 'E'}, {0xAA29, 0xAA2E, 'E'},
    {0xAA2F, 0xAA30, 'S'}, {0xAA31, 0xAA32, 'E'}, {0xAA33, 0xAA34, 'S'}, {0xAA35, 0xAA36, 'E'},
    {0xAA43, 0xAA43, 'E'}, {0xAA4C, 0xAA4C, 'E'}, {0xAA4D, 0xAA4D, 'S'}, {0xAA7C, 0xAA7C, 'E'},
    {0xAAB0, 0xAAB0, 'E'}, {0xAAB2, 0xAAB4, 'E'}, {0xAAB7, 0xAAB8, 'E'}, {0xAABE, 0xAABF, 'E'},
    {0xAAC1, 0xAAC1, 'E'}, {0xAAEB, 0xAAEB, 'S'}, {0xAAEC, 0xAAED, 'E'}, {0xAAEE, 0xAAEF, 'S'},
    {0xAAF5, 0xAAF5, 'S'}, {0xAAF6, 0xAAF6, 'E'}, {0xABE3, 0xABE4, 'S'}, {0xABE5, 0xABE5, 'E'},
    {0xABE6, 0xABE7, 'S'}, {0xABE8, 0xABE8, 'E'}, {0xABE9, 0xABEA, 'S'}, {0xABEC, 0xABEC, 'S'},
    {0xABED, 0xABED, 'E'}, {0xFB1E, 0xFB1E, 'E'}, {0xFE00, 0xFE0F, 'E'}, {0xFE20, 0xFE2F, 'E'},
    {0xFEFF, 0xFEFF, 'C'}, {0xFF9E, 0xFF9F, 'E'}, {0xFFF0, 0xFFFB, 'C'}, {0x101FD, 0x101FD, 'E'},
    {0x102E0, 0x102E0, 'E'}, {0x10376, 0x1037A, 'E'}, {0x10A01, 0x10A03, 'E'},
    {0x10A05, 0x10A06, 'E'}, {0x10A0C, 0x10A0F, 'E'}, {0x10A38, 0x10A3A, 'E'},
    {0x10A3F, 0x10A3F, 'E'}, {0x10AE5, 0x10AE6, 'E'}, {0x10D24, 0x10D27, 'E'},
    {0x10EAB, 0x10EAC, 'E'}, {0x10EFD, 0x10EFF, 'E'}, {0x10F46, 0x10F50, 'E'},
    {0x10F82, 0x10F85, 'E'}, {0x11000, 0x11000, 'S'}, {0x11001, 0x11001, 'E'},
    {0x11002, 0x11002, 'S'}, {0x11038, 0x11046, 'E'}, {0x11070, 0x11070, 'E'},
    {0x11073, 0x11074, 'E'}, {0x1107F, 0x11081, 'E'}, {0x11082, 0x11082, 'S'},
    {0x110B0, 0x110B2, 'S'}, {0x110B3, 0x110B6, 'E'}, {0x110B7, 0x110B8, 'S'},
    {0x110B9, 0x110BA, 'E'}, {0x110BD, 0x110BD, 'P'}, {0x110C2, 0x110C2, 'E'},
    {0x110CD, 0x110CD, 'P'}, {0x11100, 0x11102, 'E'}, {0x11127, 0x1112B, 'E'},
    {0x1112C, 0x1112C, 'S'}, {0x1112D, 0x11134, 'E'}, {0x11145, 0x11146, 'S'},
    {0x11173, 0x11173, 'E'}, {0x11180, 0x11181, 'E'}, {0x11182, 0x11182, 'S'},
    {0x111B3, 0x111B5, 'S'}, {0x111B6, 0x111BE, 'E'}, {0x111BF, 0x111C0, 'S'},
    {0x111C2, 0x111C3, 'P'}, {0x111C9, 0x111CC, 'E'}, {0x111CE, 0x111CE, 'S'},
    {0x111CF, 0x111CF, 'E'}, {0x1122C, 0x1122E, 'S'}, {0x1122F, 0x11231, 'E'},
    {0x11232, 0x11233, 'S'}, {0x11234, 0x11234, 'E'}, {0x11235, 0x11235, 'S'},
    {0x11236, 0x11237, 'E'}, {0x1123E, 0x1123E, 'E'}, {0x11241, 0x11241, 'E'},
    {0x112DF, 0x112DF, 'E'}, {0x112E0, 0x112E2, 'S'}, {0x112E3, 0x112EA, 'E'},
    {0x11300, 0x11301, 'E'}, {0x11302, 0x11303, 'S'}, {0x1133B, 0x1133C, 'E'},
    {0x1133E, 0x1133E, 'E'}, {0x1133F, 0x1133F, 'S'}, {0x11340, 0x11340, 'E'},
    {0x11341, 0x11344, 'S'}, {0x11347, 0x11348, 'S'}, {0x1134B, 0x1134D, 'S'},
    {0x11357, 0x11357, 'E'}, {0x11362, 0x11363, 'S'}, {0x11366, 0x1136C, 'E'},
    {0x11370, 0x11374, 'E'}, {0x11435, 0x11437, 'S'}, {0x11438, 0x1143F, 'E'},
    {0x11440, 0x11441, 'S'}, {0x11442, 0x11444, 'E'}, {0x11445, 0x11445, 'S'},
    {0x11446, 0x11446, 'E'}, {0x1145E, 0x1145E, 'E'}, {0x114B0, 0x114B0, 'E'},
    {0x114B1, 0x114B2, 'S'}, {0x114B3, 0x114B8, 'E'}, {0x114B9, 0x114B9, 'S'},
    {0x114BA, 0x114BA, 'E'}, {0x114BB, 0x114BC, 'S'}, {0x114BD, 0x114BD, 'E'},
    {0x114BE, 0x114BE, 'S'}, {0x114BF, 0x114C0, 'E'}, {0x114C1, 0x114C1, 'S'},
    {0x114C2, 0x114C3, 'E'}, {0x115AF, 0x115AF, 'E'}, {0x115B0, 0x115B1, 'S'},
    {0x115B2, 0x115B5, 'E'}, {0x115B8, 0x115BB, 'S'}, {0x115BC, 0x115BD, 'E'},
    {0x115BE, 0x115BE, 'S'}, {0x115BF, 0x115C0, 'E'}, {0x115DC, 0x115DD, 'E'},
    {0x11630, 0x11632, 'S'}, {0x11633, 0x1163A, 'E'}, {0x1163B, 0x1163C, 'S'},
    {0x1163D, 0x1163D, 'E'}, {0x1163E, 0x1163E, 'S'}, {0x1163F, 0x11640, 'E'},
    {0x116AB, 0x116AB, 'E'}, {0x116AC, 0x116AC, 'S'}, {0x116AD, 0x116AD, 'E'},
    {0x116AE, 0x116AF, 'S'}, {0x116B0, 0x116B5, 'E'}, {0x116B6, 0x116B6, 'S'},
    {0x116B7, 0x116B7, 'E'}, {0x1171D, 0x1171F, 'E'}, {0x11722, 0x11725, 'E'},
    {0x11726, 0x11726, 'S'}, {0x11727, 0x1172B, 'E'}, {0x1182C, 0x1182E, 'S'},
    {0x1182F, 0x11837, 'E'}, {0x11838, 0x11838, 'S'}, {0x11839, 0x1183A, 'E'},
    {0x11930, 0x11930, 'E'}, {0x11931, 0x11935, 'S'}, {0x11937, 0x11938, 'S'},
    {0x1193B, 0x1193C, 'E'}, {0x1193D, 0x1193D, 'S'}, {0x1193E, 0x1193E, 'E'},
    {0x1193F, 0x1193F, 'P'}, {0x11940, 0x11940, 'S'}, {0x11941, 0x11941, 'P'},
    {0x11942, 0x11942, 'S'}, {0x11943, 0x11943, 'E'}, {0x119D1, 0x119D3, 'S'},
    {0x119D4, 0x119D7, 'E'}, {0x119DA, 0x119DB, 'E'}, {0x119DC, 0x119DF, 'S'},
    {0x119E0, 0x119E0, 'E'}, {0x119E4, 0x119E4, 'S'}, {0x11A01, 0x11A0A, 'E'},
    {0x11A33, 0x11A38, 'E'}, {0x11A39, 0x11A39, 'S'}, {0x11A3A, 0x11A3A, 'P'},
    {0x11A3B, 0x11A3E, 'E'}, {0x11A47, 0x11A47, 'E'}, {0x11A51, 0x11A56, 'E'},
    {0x11A57, 0x11A58, 'S'}, {0x11A59, 0x11A5B, 'E'}, {0x11A84, 0x11A89, 'P'},
    {0x11A8A, 0x11A96, 'E'}, {0x11A97, 0x11A97, 'S'}, {0x11A98, 0x11A99, 'E'},
    {0x11C2F, 0x11C2F, 'S'}, {0x11C30, 0x11C36, 'E'}, {0x11C38, 0x11C3D, 'E'},
    {0x11C3E, 0x11C3E, 'S'}, {0x11C3F, 0x11C3F, 'E'}, {0x11C92, 0x11CA7, 'E'},
    {0x11CA9, 0x11CA9, 'S'}, {0x11CAA, 0x11CB0, 'E'}, {0x11CB1, 0x11CB1, 'S'},
    {0x11CB2, 0x11CB3, 'E'}, {0x11CB4, 0x11CB4, 'S'}, {0x11CB5, 0x11CB6, 'E'},
    {0x11D31, 0x11D36, 'E'}, {0x11D3A, 0x11D3A, 'E'}, {0x11D3C, 0x11D3D, 'E'},
    {0x11D3F, 0x11D45, 'E'}, {0x11D46, 0x11D46, 'P'}, {0x11D47, 0x11D47, 'E'},
    {0x11D8A, 0x11D8E, 'S'}, {0x11D90, 0x11D91, 'E'}, {0x11D93, 0x11D94, 'S'},
    {0x11D95, 0x11D95, 'E'}, {0x11D96, 0x11D96, 'S'}, {0x11D97, 0x11D97, 'E'},
    {0x11EF3, 0x11EF4, 'E'}, {0x11EF5, 0x11EF6, 'S'}, {0x11F00, 0x11F01, 'E'},
    {0x11F02, 0x11F02, 'P'}, {0x11F03, 0x11F03, 'S'}, {0x11F34, 0x11F35, 'S'},
    {0x11F36, 0x11F3A, 'E'}, {0x11F3E, 0x11F3F, 'S'}, {0x11F40, 0x11F40, 'E'},
    {0x11F41, 0x11F41, 'S'}, {0x11F42, 0x11F42, 'E'}, {0x13430, 0x1343F, 'C'},
    {0x13440, 0x13440, 'E'}, {0x13447, 0x13455, 'E'}, {0x16AF0, 0x16AF4, 'E'},
    {0x16B30, 0x16B36, 'E'}, {0x16F4F, 0x16F4F, 'E'}, {0x16F51, 0x16F87, 'S'},
    {0x16F8F, 0x16F92, 'E'}, {0x16FE4, 0x16FE4, 'E'}, {0x16FF0, 0x16FF1, 'S'},
    {0x1BC9D, 0x1BC9E, 'E'}, {0x1BCA0, 0x1BCA3, 'C'}, {0x1CF00, 0x1CF2D, 'E'},
    {0x1CF30, 0x1CF46, 'E'}, {0x1D165, 0x1D165, 'E'}, {0x1D166, 0x1D166, 'S'},
    {0x1D167, 0x1D169, 'E'}, {0x1D16D, 0x1D16D, 'S'}, {0x1D16E, 0x1D172, 'E'},
    {0x1D173, 0x1D17A, 'C'}, {0x1D17B, 0x1D182, 'E'}, {0x1D185, 0x1D18B, 'E'},
    {0x1D1AA, 0x1D1AD, 'E'}, {0x1D242, 0x1D244, 'E'}, {0x1DA00, 0x1DA36, 'E'},
    {0x1DA3B, 0x1DA6C, 'E'}, {0x1DA75, 0x1DA75, 'E'}, {0x1DA84, 0x1DA84, 'E'},
    {0x1DA9B, 0x1DA9F, 'E'}, {0x1DAA1, 0x1DAAF, 'E'}, {0x1E000, 0x1E006, 'E'},
    {0x1E008, 0x1E018, 'E'}, {0x1E01B, 0x1E021, 'E'}, {0x1E023, 0x1E024, 'E'},
    {0x1E026, 0x1E02A, 'E'}, {0x1E08F, 0x1E08F, 'E'}, {0x1E130, 0x1E136, 'E'},
    {0x1E2AE, 0x1E2AE, 'E'}, {0x1E2EC, 0x1E2EF, 'E'}, {0x1E4EC, 0x1E4EF, 'E'},
    {0x1E8D0, 0x1E8D6, 'E'}, {0x1E944, 0x1E94A, 'E'}, {0x1F000, 0x1F0FF, 'X'},
    {0x1F10D, 0x1F10F, 'X'}, {0x1F12F, 0x1F12F, 'X'}, {0x1F16C, 0x1F171, 'X'},
    {0x1F17E, 0x1F17F, 'X'}, {0x1F18E, 0x1F18E, 'X'}, {0x1F191, 0x1F19A, 'X'},
    {0x1F1AD, 0x1F1E5, 'X'}, {0x1F1E6, 0x1F1FF, 'R'}, {0x1F201, 0x1F20F, 'X'},
    {0x1F21A, 0x1F21A, 'X'}, {0x1F22F, 0x1F22F, 'X'}, {0x1F232, 0x1F23A, 'X'},
    {0x1F23C, 0x1F23F, 'X'}, {0x1F249, 0x1F3FA, 'X'}, {0x1F3FB, 0x1F3FF, 'E'},
    {0x1F400, 0x1F53D, 'X'}, {0x1F546, 0x1F64F, 'X'}, {0x1F680, 0x1F6FF, 'X'},
    {0x1F774, 0x1F77F, 'X'}, {0x1F7D5, 0x1F7FF, 'X'}, {0x1F80C, 0x1F80F, 'X'},
    {0x1F848, 0x1F84F, 'X'}, {0x1F85A, 0x1F85F, 'X'}, {0x1F888, 0x1F88F, 'X'},
    {0x1F8AE, 0x1F8FF, 'X'}, {0x1F90C, 0x1F93A, 'X'}, {0x1F93C, 0x1F945, 'X'},
    {0x1F947, 0x1FAFF, 'X'}, {0x1FC00, 0x1FFFD, 'X'}, {0xE0000, 0xE001F, 'C'},
    {0xE0020, 0xE007F, 'E'}, {0xE0080, 0xE00FF, 'C'}, {0xE0100, 0xE01EF, 'E'},
    {0xE01F0, 0xE0FFF, 'C'},
};
// Made by tests/unicode_tables.py: end
// clang-format on

/// The entry of a sorted table that holds `value`, or null. Cost: O(log entries).
template <class Range, std::size_t Count>
[[nodiscard]] const Range* find_range(const Range (&table)[Count], char32_t value) {
  const Range* found = std::lower_bound(
      table, table + Count, value, [](const Range& range, char32_t v) { return range.last < v; });
  return found != table + Count && found->first <= value ? found : nullptr;
}

[[nodiscard]] inline grapheme_class hangul_class_of(char32_t value) {
  if ((value >= 0x1100 && value <= 0x115F) || (value >= 0xA960 && value <= 0xA97C))
    return grapheme_class::hangul_l;
  if ((value >= 0x1160 && value <= 0x11A7) || (value >= 0xD7B0 && value <= 0xD7C6))
    return grapheme_class::hangul_v;
  if ((value >= 0x11A8 && value <= 0x11FF) || (value >= 0xD7CB && value <= 0xD7FB))
    return grapheme_class::hangul_t;
  if (value < 0xAC00 || value > 0xD7A3) return grapheme_class::other;
  // A block of 28 syllables: the bare one, then one with each of 27 tails.
  return (value - 0xAC00) % 28 == 0 ? grapheme_class::hangul_lv : grapheme_class::hangul_lvt;
}

inline grapheme_class grapheme_class_of(char32_t value) {
  if (value < 0x80)
    return value < 0x20 || value == 0x7F ? grapheme_class::control : grapheme_class::other;
  const grapheme_class hangul = hangul_class_of(value);
  if (hangul != grapheme_class::other) return hangul;
  const grapheme_range* range = find_range(grapheme_table, value);
  return range != nullptr ? static_cast<grapheme_class>(range->kind) : grapheme_class::other;
}

/// True if a strided range holds the value: in between, every second one may be missing.
[[nodiscard]] inline const strided_range* on_stride(const strided_range* range, char32_t value) {
  if (range == nullptr || (value - range->first) % range->step != 0) return nullptr;
  return range;
}

inline bool is_lower_case(char32_t value) {
  if (value < 0x80) return value >= 'a' && value <= 'z';
  return on_stride(find_range(lower_table, value), value) != nullptr;
}

inline void append_folded(std::string& out, char32_t value) {
  if (value < 0x80) {
    out += ascii_lower(static_cast<char>(value));
    return;
  }
  // Hebrew to Myanmar and the scripts of East Asia have no case; Georgian, Cherokee and others do.
  if ((value >= 0x590 && value < 0x10A0) || (value >= 0x2E80 && value < 0xA640)) {
    append_utf8(out, value);
    return;
  }
  if (const strided_range* range = on_stride(find_range(fold_table, value), value)) {
    append_utf8(out, static_cast<char32_t>(static_cast<std::int32_t>(value) + range->delta));
    return;
  }
  const long_fold* const end = std::end(long_fold_table);
  const long_fold* longer =
      std::lower_bound(std::begin(long_fold_table), end, value,
                       [](const long_fold& entry, char32_t v) { return entry.from < v; });
  if (longer == end || longer->from != value) {
    append_utf8(out, value);
    return;
  }
  for (char32_t target : longer->to) {
    if (target != 0) append_utf8(out, target);
  }
}

}  // namespace detail

inline bool is_letter_or_digit(char32_t value) {
  if (value < 0x80) return detail::is_ascii_letter(value) || detail::is_ascii_digit(value);
  return detail::find_range(detail::word_table, value) != nullptr;
}

inline bool is_unspaced(char32_t value) {
  return value >= 0xE00 && detail::find_range(detail::unspaced_table, value) != nullptr;
}

// =================================================================================================
// 3. Tokens: the unit of every size, limit and budget
//
// In   text.      Out   how many tokens it has, and where they stand.
//
// A language model counts text in pieces of its own vocabulary. Whoever has that model's tokenizer
// hands it in; without one a token is a word. Counts of parts need not add up to the count of the
// whole (a tokenizer may merge across a seam, a separator may cost a token of its own), so limits
// are tested on the final text.
// =================================================================================================

/// How many tokens a text has. Expected to grow, or stay, as the text grows.
using token_counter = std::function<std::size_t(std::string_view)>;

/// Where the tokens of a text stand: in order, apart, not empty. What lies between two tokens
/// counts as a part of the second.
using token_splitter = std::function<std::vector<byte_range>(std::string_view)>;

/// What a token is. Both empty: a word. `split` alone: the count is the number of its ranges.
/// `count` alone: text is cut at words, and inside words at graphemes.
struct tokenizer {
  token_counter count = {};   ///< decides whether a text fits
  token_splitter split = {};  ///< where windows of a fixed size may be cut
};

namespace detail {

[[nodiscard]] constexpr bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// The smaller block.
inline constexpr std::size_t word_block = 32;

/// True if the characters of such a block are whole, and letters of Latin, Greek or Cyrillic, the
/// dashes, quotes and dots from U+2010 to U+2027, or ASCII: a space among them is one of ASCII, and
/// none is attached to another.
[[nodiscard]] inline bool is_western(const char* block) {
  std::array<unsigned char, word_block + 2> bytes{};
  std::memcpy(&bytes[2], block, word_block);
  unsigned char others = 0;  // bytes above ASCII that are in no such character
  for (std::size_t i = 0; i < word_block; ++i) {
    const unsigned char a = bytes[i], b = bytes[i + 1], c = bytes[i + 2];
    const bool follows = (c & 0xC0) == 0x80;
    const bool two = follows & (((b >= 0xC3) & (b <= 0xCB)) | ((b >= 0xCE) & (b <= 0xD1)));
    const bool three = (a == 0xE2) & (b == 0x80) & (c >= 0x90) & (c <= 0xA7);
    others = static_cast<unsigned char>(others + (c >= 0x80) - 2 * two - 3 * three);
  }
  return others == 0;
}

/// How many words begin in a block of so many bytes, by the byte before it and its own; its size if
/// this cannot be told. The first bytes, `but` so many, count for none. A loop without a branch,
/// which compilers turn into wide steps.
template <std::size_t Size>
[[nodiscard]] std::size_t word_begins(const char* bytes, std::size_t but = 0) {
  unsigned char begins = 0;
  auto all = static_cast<unsigned char>(bytes[0]);
  const auto from = static_cast<unsigned char>(but);
  for (std::size_t i = 0; i < Size; ++i) {
    const auto before = static_cast<unsigned char>(bytes[i]);
    const auto here = static_cast<unsigned char>(bytes[i + 1]);
    const bool space = here == ' ' || static_cast<unsigned char>(here - 9) < 5;
    const bool space_before = before == ' ' || static_cast<unsigned char>(before - 9) < 5;
    const bool counts = static_cast<unsigned char>(i) >= from;
    begins = static_cast<unsigned char>(begins +
                                        static_cast<unsigned char>(counts & space_before & !space));
    all = static_cast<unsigned char>(all | here);
  }
  return all < 0x80 || (Size == word_block && is_western(bytes + 1)) ? begins : Size;
}

/// The same for the smaller block that a text goes on with at `at`, 1 or more, or what it has left.
[[nodiscard]] inline std::size_t next_word_begins(std::string_view text, std::size_t at) {
  const std::size_t left = text.size() - at;
  if (left >= word_block) return word_begins<word_block>(text.data() + at - 1);
  if (text.size() > word_block) {  // its last block, though it begins before `at`
    const char* const last = text.data() + text.size() - word_block;
    const std::size_t begins = word_begins<word_block>(last - 1, word_block - left);
    if (begins < word_block) return begins;
  }
  std::array<char, word_block + 1> last;
  last.fill(' ');
  std::memcpy(last.data(), text.data() + at - 1, left + 1);
  return word_begins<word_block>(last.data());
}

/// Passes over whole blocks from `at`, 1 or more, on. `count` grows by the words that begin in
/// them, but not above `most`. Returns where they end.
[[nodiscard]] inline std::size_t pass_blocks(std::string_view text, std::size_t at,
                                             std::size_t most, std::size_t& count) {
  const auto pass = [&](auto size) {
    if (text.size() - at < size) return false;
    const std::size_t begins = word_begins<size>(text.data() + at - 1);
    if (begins == size || count + begins > most) return false;
    count += begins;
    at += size;
    return true;
  };
  constexpr std::size_t larger = 4;
  for (std::size_t passed = larger; passed == larger;) {
    while (pass(std::integral_constant<std::size_t, larger * word_block>())) {
    }
    passed = 0;
    while (passed < larger && pass(std::integral_constant<std::size_t, word_block>())) ++passed;
  }
  return at;
}

/// Where the bytes end that are ASCII but no space; fewer than eight before the text's end are not
/// looked at.
[[nodiscard]] inline std::size_t end_of_plain(std::string_view text, std::size_t at) {
  constexpr std::uint64_t ones = 0x0101010101010101U;
  constexpr std::uint64_t tops = ones << 7;
  for (; text.size() - at >= 8; at += 8) {
    const std::uint64_t bytes = eight_bytes(text.data() + at);
    const std::uint64_t low = bytes & ~tops;
    const auto at_least = [low](std::uint64_t c) { return low + ones * (0x80 - c); };  // top bits
    const std::uint64_t spaces = (at_least(9) & ~at_least(14)) | (at_least(32) & ~at_least(33));
    const std::uint64_t stops = (spaces | bytes) & tops;
    if (stops != 0) return at + static_cast<std::size_t>(std::countr_zero(stops)) / 8;
  }
  return at;
}

/// Where the word begins in such a block that has `before` others in it before it.
[[nodiscard]] inline std::size_t find_word_begin(const char* bytes, std::size_t before) {
  std::array<bool, word_block> begins{};
  for (std::size_t i = 0; i < word_block; ++i) {
    begins[i] = is_ascii_space(bytes[i]) && !is_ascii_space(bytes[i + 1]);
  }
  std::size_t at = 0;
  while (!begins[at] || before-- > 0) ++at;
  return at;
}

/// Some words in a row, parted by spaces of ASCII, and the begin of the one after them.
struct word_stretch {
  std::size_t count = 0;  // 0: none
  std::size_t end = 0;    // of the last of them
  std::size_t next = 0;
};

/// Passes over up to `most` words, at least one, from the one that begins at `at` on, by whole
/// blocks: a cut is allowed at their begins and ends. They are fewer before a block that does not
/// tell its words.
[[nodiscard]] inline word_stretch skip_words(std::string_view text, std::size_t at,
                                             std::size_t most) {
  word_stretch run{0, at, at};
  std::size_t edge = pass_blocks(text, (std::min)(at + 1, text.size()), most - 1, run.count);
  if (text.size() - edge >= word_block) {
    const char* const block = text.data() + edge - 1;
    const std::size_t begins = word_begins<word_block>(block);
    if (begins < word_block && run.count + begins >= most) {
      edge += find_word_begin(block, most - run.count - 1) + 1;
      run.count = most;
    }
  }
  if (run.count == 0) return run;
  while (is_ascii_space(text[edge - 1])) --edge;
  while (!is_ascii_space(text[edge - 1])) --edge;
  run.next = edge;
  while (is_ascii_space(text[edge - 1])) --edge;
  run.end = edge;
  return run;
}

/// Where the last `most` words before `end`, at least one, begin: a cut is allowed there. Zero if
/// blocks do not tell, or it is not well behind `begin`.
[[nodiscard]] inline std::size_t skip_words_back(std::string_view text, std::size_t begin,
                                                 std::size_t end, std::size_t most) {
  while (end - begin > word_block) {
    end -= word_block;
    const char* const block = text.data() + end - 1;
    const std::size_t begins = word_begins<word_block>(block);
    if (begins == word_block) return 0;
    if (begins >= most) return end + find_word_begin(block, begins - most);
    most -= begins;
  }
  return 0;
}

/// The last word that begins, in ASCII behind spaces of ASCII, before `at`, and the end of the one
/// before it, which ends in ASCII too; both at `begin` if there is none. A cut is allowed at both.
[[nodiscard]] inline word_stretch last_word_before(std::string_view text, std::size_t begin,
                                                   std::size_t at) {
  const auto ascii = [text](std::size_t i) { return static_cast<unsigned char>(text[i]) < 0x80; };
  for (at = (std::min)(at, text.size()); at > begin + 1; --at) {
    if (!is_ascii_space(text[at - 1]) || at == text.size() || !ascii(at)) continue;
    if (is_ascii_space(text[at])) continue;
    std::size_t end = at - 1;
    while (end > begin && is_ascii_space(text[end - 1])) --end;
    if (end > begin && ascii(end - 1)) return {1, end, at};
    at = end + 1;
  }
  return {0, begin, begin};
}

/// The first word at or after `at`; an empty range at the end of the text if there is none.
[[nodiscard]] inline byte_range next_word(std::string_view text, std::size_t at) {
  const std::size_t size = text.size();
  const auto is_ascii = [text](std::size_t i) {
    return static_cast<unsigned char>(text[i]) < 0x80;
  };
  for (; at < size; ++at) {  // white space before it
    if (is_ascii(at)) {
      if (!is_ascii_space(text[at])) break;
    } else {
      const code_point point = decode(text, at);
      if (!is_white_space(point.value)) break;
      at += point.length - std::size_t{1};
    }
  }
  std::size_t end = at;
  while (end < size) {
    end = end_of_plain(text, end);
    if (end == size) break;
    if (is_ascii(end)) {
      if (is_ascii_space(text[end])) break;
      ++end;
      continue;
    }
    const code_point point = decode(text, end);
    if (is_white_space(point.value)) break;
    if (is_unspaced(point.value) && !(end > at && is_attached(text, end))) {
      if (end == at) end = next_grapheme(text, at);
      break;
    }
    end += point.length;
  }
  return {at, end};
}

/// The same, widened to grapheme boundaries: a cut is allowed on both sides. Only a space that
/// carries a mark, or hangs on a character that joins what follows, makes it differ.
[[nodiscard]] inline byte_range next_uncut_word(std::string_view text, std::size_t at) {
  byte_range word = next_word(text, at);
  if (word.empty()) return word;
  if (word.begin > at && is_attached(text, word.begin)) {
    const std::size_t space = word.begin - decode_before(text, at, word.begin).length;
    if (next_grapheme(text, space) > word.begin) word.begin = space;
  }
  while (word.end < text.size() && static_cast<unsigned char>(text[word.end - 1]) >= 0x80) {
    const std::size_t last = word.end - decode_before(text, word.begin, word.end).length;
    const std::size_t joined = next_grapheme(text, last);
    if (joined <= word.end) break;
    const byte_range next = next_word(text, word.end);  // some characters join what follows
    word.end = next.begin < joined ? (std::max)(next.end, joined) : joined;
  }
  return word;
}

/// The number of words, but no further than to somewhere above `most`.
[[nodiscard]] inline std::size_t words_up_to(std::string_view text, std::size_t most) {
  std::size_t count = 0;
  bool inside = false;     // a word is open
  std::size_t blocks = 1;  // from here on whole blocks may be counted
  for (std::size_t at = 0; at < text.size() && count <= most;) {
    if (at >= blocks && byte_at(text, at) < 0x80 && inside != is_ascii_space(text[at - 1])) {
      const std::size_t end = pass_blocks(text, at, most, count);
      const std::size_t begins = next_word_begins(text, end);
      if (begins < word_block) return count + begins;  // all, or more than `most`
      blocks = end + word_block;
      if (end > at) {
        inside = !is_ascii_space(text[end - 1]);
        at = end;
      }
    }
    if (byte_at(text, at) < 0x80) {
      const bool space = is_ascii_space(text[at++]);
      count += !space && !inside ? 1 : 0;
      inside = !space;
      continue;
    }
    const code_point point = decode(text, at);
    const bool space = is_white_space(point.value);
    const bool alone = is_unspaced(point.value) && !(inside && is_attached(text, at));
    count += !space && (alone || !inside) ? 1 : 0;
    inside = !space && !alone;
    blocks = at = alone ? next_grapheme(text, at) : at + point.length;
  }
  return count;
}

}  // namespace detail

/// The number of words: maximal runs of characters that are not white space, but each character of
/// a script written without spaces (Chinese, Japanese, Thai ...) counts by itself. The default
/// token. Cost: O(bytes).
///
/// "Reset the key." gives 3; "\xE6\x9D\xB1\xE4\xBA\xAC" (Tokyo in Japanese) gives 2.
[[nodiscard]] inline std::size_t count_words(std::string_view text) {
  return detail::words_up_to(text, text.size());
}

/// Where the words that count_words counts stand, in order. Cost: O(bytes).
[[nodiscard]] inline std::vector<byte_range> word_ranges(std::string_view text) {
  std::vector<byte_range> words;
  for (byte_range word = detail::next_word(text, 0); !word.empty();
       word = detail::next_word(text, word.end)) {
    words.push_back(word);
  }
  return words;
}

namespace detail {

/// The caller's count of a text; where he gave none, the number of his tokens or of words.
[[nodiscard]] inline std::size_t count_tokens(const tokenizer& tokens, std::string_view text) {
  if (tokens.count) return tokens.count(text);
  return tokens.split ? tokens.split(text).size() : count_words(text);
}

}  // namespace detail
// =================================================================================================
// 4. Vectors: dot product, cosine, unit length, and the embedder
//
// In   float32 vectors; texts and a callback for them.    Out   similarities; checked vectors.
//
//   dot(a, b)    = sum of a[i] * b[i]                            in float, in one fixed order
//   cosine(a, b) = dot(a, b) / (|a| * |b|)                       in double; 0 if either is zero
//
// Embedding models give directions: two texts are alike if their vectors point the same way, so
// cosine is the usual measure. Once both vectors have length 1 it is the dot product alone, and
// that is why section 10 brings vectors to unit length when they are added.
// =================================================================================================

// kernels: begin
//
// The loops in which a search among vectors spends its time. Each is written once, as a macro, and
// stamped out for the plain processor (four floats at a time: SSE2, NEON, WebAssembly) and for
// those of x86-64 that can do more. The choice falls at run time, so a program built with plain -O2
// has them too. Nothing else in this file is written like this.
//
//   dots    a question with rows. A score depends on question and row alone. Every search takes
//           its scores from here, which is why all paths agree bit for bit
//   tile    many questions with six rows. Adds up in another order: says only where to look
//   codes   a question with rows of codes (section 10). Whole numbers, hence exact
//
// Rows are named by number, four of one call being read at the same time: rows that lie far apart
// make four streams from memory, and that is worth more than any instruction. They are never
// inlined, so that a program has one copy of each, whatever flags its files were built with.
#if defined(__GNUC__)
#define RAG_RETRIEVE_DETAIL_APART __attribute__((noinline))
#define RAG_RETRIEVE_DETAIL_PREFETCH(address) __builtin_prefetch(address)
#define RAG_RETRIEVE_DETAIL_VECTOR(name, type, bytes) \
  typedef type name __attribute__((vector_size(bytes), aligned(sizeof(type)), may_alias))
#else
#define RAG_RETRIEVE_DETAIL_APART
#define RAG_RETRIEVE_DETAIL_PREFETCH(address) static_cast<void>(address)
#endif
#define RAG_RETRIEVE_DETAIL_LOAD(vector, address) (*reinterpret_cast<const vector*>(address))

// Adds question[i ...] * row[i ...] of four rows, two vectors each, to their sums.
#define RAG_RETRIEVE_DETAIL_STEP(vector, i)                              \
  {                                                                      \
    const vector q0 = RAG_RETRIEVE_DETAIL_LOAD(vector, q + (i));         \
    const vector q1 = RAG_RETRIEVE_DETAIL_LOAD(vector, q + (i) + width); \
    a0 += q0 * RAG_RETRIEVE_DETAIL_LOAD(vector, row[0] + (i));           \
    a1 += q1 * RAG_RETRIEVE_DETAIL_LOAD(vector, row[0] + (i) + width);   \
    b0 += q0 * RAG_RETRIEVE_DETAIL_LOAD(vector, row[1] + (i));           \
    b1 += q1 * RAG_RETRIEVE_DETAIL_LOAD(vector, row[1] + (i) + width);   \
    c0 += q0 * RAG_RETRIEVE_DETAIL_LOAD(vector, row[2] + (i));           \
    c1 += q1 * RAG_RETRIEVE_DETAIL_LOAD(vector, row[2] + (i) + width);   \
    d0 += q0 * RAG_RETRIEVE_DETAIL_LOAD(vector, row[3] + (i));           \
    d1 += q1 * RAG_RETRIEVE_DETAIL_LOAD(vector, row[3] + (i) + width);   \
  }

// Number i of a row goes to sum i mod 2 * width; what is left of a row at its end is filled up with
// zeros, so zeros appended to a vector change no bit. One row ahead of each stream is fetched (for
// short rows: a kilobyte), a line of 64 bytes at a time.
#define RAG_RETRIEVE_DETAIL_DOTS(name, target, vector)                                           \
  target RAG_RETRIEVE_DETAIL_APART inline void name(                                             \
      const float* question, std::size_t dimension, const float* rows,                           \
      const std::uint32_t* numbers, std::size_t count, float* scores) {                          \
    constexpr std::size_t width = sizeof(vector) / sizeof(float);                                \
    constexpr std::size_t step = width < 16 ? 16 : 2 * width;                                    \
    const std::size_t whole = dimension - dimension % step;                                      \
    const std::size_t rest = (dimension - whole) * sizeof(float);                                \
    float question_end[step] = {};                                                               \
    float ends[4][step] = {};                                                                    \
    if (rest != 0) std::memcpy(question_end, question + whole, rest);                            \
    const std::size_t ahead = 4 + 256 / dimension * 4;                                           \
    for (std::size_t first = 0; first < count; first += 4) {                                     \
      const float *row[4], *next[4];                                                             \
      for (std::size_t j = 0; j < 4; ++j) {                                                      \
        const std::size_t at = first + j < count ? first + j : count - 1;                        \
        row[j] = rows + std::size_t{numbers[at]} * dimension;                                    \
        next[j] = rows + std::size_t{numbers[at + ahead < count ? at + ahead : at]} * dimension; \
      }                                                                                          \
      vector a0{}, a1{}, b0{}, b1{}, c0{}, c1{}, d0{}, d1{};                                     \
      const float* q = question;                                                                 \
      for (std::size_t left = whole;; left = step, q = question_end) {                           \
        for (std::size_t i = 0; i < left; i += step) {                                           \
          RAG_RETRIEVE_DETAIL_PREFETCH(next[0] + i);                                             \
          RAG_RETRIEVE_DETAIL_PREFETCH(next[1] + i);                                             \
          RAG_RETRIEVE_DETAIL_PREFETCH(next[2] + i);                                             \
          RAG_RETRIEVE_DETAIL_PREFETCH(next[3] + i);                                             \
          RAG_RETRIEVE_DETAIL_STEP(vector, i)                                                    \
          if constexpr (step == 4 * width) RAG_RETRIEVE_DETAIL_STEP(vector, i + 2 * width)       \
          if constexpr (step == 32) {                                                            \
            RAG_RETRIEVE_DETAIL_PREFETCH(next[0] + i + 16);                                      \
            RAG_RETRIEVE_DETAIL_PREFETCH(next[1] + i + 16);                                      \
            RAG_RETRIEVE_DETAIL_PREFETCH(next[2] + i + 16);                                      \
            RAG_RETRIEVE_DETAIL_PREFETCH(next[3] + i + 16);                                      \
          }                                                                                      \
        }                                                                                        \
        if (rest == 0 || q == question_end) break;                                               \
        for (std::size_t j = 0; j < 4; ++j) {                                                    \
          std::memcpy(ends[j], row[j] + whole, rest);                                            \
          row[j] = next[j] = ends[j];                                                            \
        }                                                                                        \
      }                                                                                          \
      a0 += a1, b0 += b1, c0 += c1, d0 += d1;                                                    \
      alignas(64) float lanes[4][width];                                                         \
      *reinterpret_cast<vector*>(lanes[0]) = a0, *reinterpret_cast<vector*>(lanes[1]) = b0;      \
      *reinterpret_cast<vector*>(lanes[2]) = c0, *reinterpret_cast<vector*>(lanes[3]) = d0;      \
      for (std::size_t j = 0; j < 4 && first + j < count; ++j) {                                 \
        floats_4 sum = RAG_RETRIEVE_DETAIL_LOAD(floats_4, lanes[j]);                             \
        for (std::size_t k = 4; k < width; k += 4)                                               \
          sum += RAG_RETRIEVE_DETAIL_LOAD(floats_4, lanes[j] + k);                               \
        scores[first + j] = (sum[0] + sum[2]) + (sum[1] + sum[3]);                               \
      }                                                                                          \
    }                                                                                            \
  }

// Is any number of two vectors at least that of `bars` at its place? Comes to be `reaches`, not 0.
#if defined(__GNUC__)
#define RAG_RETRIEVE_DETAIL_REACHES(vector, low, high, bars)                          \
  std::uint64_t words[sizeof(vector) / 8], reaches = 0;                               \
  const auto compared = ((low) >= RAG_RETRIEVE_DETAIL_LOAD(vector, bars)) |           \
                        ((high) >= RAG_RETRIEVE_DETAIL_LOAD(vector, (bars) + width)); \
  std::memcpy(words, &compared, sizeof compared);                                     \
  for (const std::uint64_t word : words) reaches |= word;
#else
#define RAG_RETRIEVE_DETAIL_REACHES(vector, low, high, bars) \
  std::uint64_t reaches = 0;                                 \
  for (std::size_t i = 0; i < width; ++i)                    \
    reaches |= std::uint64_t{(low).at[i] >= (bars)[i] || (high).at[i] >= (bars)[width + i]};
#endif

// `packed` holds number i of 2 * width questions side by side, for each i. A number of a row meets
// all of them at once, and no sum runs across a vector. Says which rows, a bit each from the
// lowest, have a score that reaches its bar.
#define RAG_RETRIEVE_DETAIL_TILE(name, target, vector)                                             \
  target RAG_RETRIEVE_DETAIL_APART inline unsigned name(                                           \
      const float* packed, std::size_t dimension, const float* rows, const std::uint32_t* numbers, \
      const float* bars, float* scores) {                                                          \
    constexpr std::size_t width = sizeof(vector) / sizeof(float);                                  \
    const float* ra = rows + std::size_t{numbers[0]} * dimension;                                  \
    const float* rb = rows + std::size_t{numbers[1]} * dimension;                                  \
    const float* rc = rows + std::size_t{numbers[2]} * dimension;                                  \
    const float* rd = rows + std::size_t{numbers[3]} * dimension;                                  \
    const float* re = rows + std::size_t{numbers[4]} * dimension;                                  \
    const float* rf = rows + std::size_t{numbers[5]} * dimension;                                  \
    vector a0{}, a1{}, b0{}, b1{}, c0{}, c1{}, d0{}, d1{}, e0{}, e1{}, f0{}, f1{};                 \
    for (std::size_t i = 0; i < dimension; ++i, packed += 2 * width) {                             \
      const vector q0 = RAG_RETRIEVE_DETAIL_LOAD(vector, packed);                                  \
      const vector q1 = RAG_RETRIEVE_DETAIL_LOAD(vector, packed + width);                          \
      a0 += q0 * ra[i], a1 += q1 * ra[i], b0 += q0 * rb[i], b1 += q1 * rb[i];                      \
      c0 += q0 * rc[i], c1 += q1 * rc[i], d0 += q0 * rd[i], d1 += q1 * rd[i];                      \
      e0 += q0 * re[i], e1 += q1 * re[i], f0 += q0 * rf[i], f1 += q1 * rf[i];                      \
    }                                                                                              \
    vector* out = reinterpret_cast<vector*>(scores);                                               \
    out[0] = a0, out[1] = a1, out[2] = b0, out[3] = b1, out[4] = c0, out[5] = c1;                  \
    out[6] = d0, out[7] = d1, out[8] = e0, out[9] = e1, out[10] = f0, out[11] = f1;                \
    unsigned reached = 0;                                                                          \
    for (unsigned row = 0; row < 6; ++row) {                                                       \
      RAG_RETRIEVE_DETAIL_REACHES(vector, out[2 * row], out[2 * row + 1], bars)                    \
      if (reaches != 0) reached |= 1U << row;                                                      \
    }                                                                                              \
    return reached;                                                                                \
  }

namespace detail {

#if defined(__GNUC__)
RAG_RETRIEVE_DETAIL_VECTOR(floats_4, float, 16);
#else
struct floats_4 {
  float at[4];
  float operator[](int i) const { return at[i]; }
  floats_4& operator+=(const floats_4& other) {
    for (int i = 0; i < 4; ++i) at[i] += other.at[i];
    return *this;
  }
  floats_4 operator*(const floats_4& other) const {
    return {at[0] * other.at[0], at[1] * other.at[1], at[2] * other.at[2], at[3] * other.at[3]};
  }
  floats_4 operator*(float other) const { return *this * floats_4{other, other, other, other}; }
};
#endif

/// A row of codes is cut into runs of 64 bytes, 32 words of 16 bits; word i of run c holds, four
/// bits each from the lowest, the codes of dimensions 128 c + i, + 32, + 64 and + 96. `digits`: 128
/// words a run in order of the dimension, then the same as bytes in the order that codes_avx2
/// wants. A sum of 16 products of 15 and 127 fits into 16 bits.
RAG_RETRIEVE_DETAIL_APART inline void codes_plain(const std::int16_t* digits, std::size_t runs,
                                                  const std::uint16_t* rows,
                                                  const std::uint32_t* numbers, std::size_t count,
                                                  std::int32_t* sums) {
  const std::size_t ahead = 4 + 16 / runs * 4;
  for (std::size_t at = 0; at < count; ++at) {
    const std::uint16_t* row = rows + std::size_t{numbers[at]} * runs * 32;
    const std::uint32_t later = numbers[at + ahead < count ? at + ahead : at];
    const std::uint16_t* next = rows + std::size_t{later} * runs * 32;
    std::int32_t sum = 0;
#if defined(__GNUC__)
    RAG_RETRIEVE_DETAIL_VECTOR(shorts, std::int16_t, 16);
    RAG_RETRIEVE_DETAIL_VECTOR(ints, std::int32_t, 16);
    ints total{};
    for (std::size_t run = 0; run < runs; ++run, row += 32) {
      RAG_RETRIEVE_DETAIL_PREFETCH(next + run * 32);
      shorts part{};
      for (std::size_t i = 0; i < 32; i += 8) {
        const std::int16_t* q = digits + 128 * run + i;
        const shorts word = RAG_RETRIEVE_DETAIL_LOAD(shorts, row + i);
        part += (word & 15) * RAG_RETRIEVE_DETAIL_LOAD(shorts, q) +
                ((word >> 4) & 15) * RAG_RETRIEVE_DETAIL_LOAD(shorts, q + 32) +
                ((word >> 8) & 15) * RAG_RETRIEVE_DETAIL_LOAD(shorts, q + 64) +
                ((word >> 12) & 15) * RAG_RETRIEVE_DETAIL_LOAD(shorts, q + 96);
      }
      const ints pairs = reinterpret_cast<ints>(part);
      total += (pairs >> 16) + ((pairs << 16) >> 16);
    }
    sum = (total[0] + total[1]) + (total[2] + total[3]);
#else
    static_cast<void>(next);
    for (std::size_t i = 0; i < 128 * runs; ++i)
      sum += (row[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 4) & 15) * digits[i];
#endif
    sums[at] = sum;
  }
}

RAG_RETRIEVE_DETAIL_DOTS(dots_plain, , floats_4)
RAG_RETRIEVE_DETAIL_TILE(tile_plain, , floats_4)

/// The loops for one kind of processor, how many questions a tile takes, and about how many rows of
/// floats take as long as one of codes.
struct kernel_set {
  decltype(&dots_plain) dots;
  decltype(&tile_plain) tile;
  decltype(&codes_plain) codes;
  std::size_t questions;
  double codes_cost;
};

// MinGW's g++ does not align the stack for wide vectors, so it has the plain loops.
#if defined(__GNUC__) && defined(__x86_64__) && (!defined(__MINGW32__) || defined(__clang__))
#define RAG_RETRIEVE_DETAIL_AVX2 __attribute__((target("avx2,fma")))
#define RAG_RETRIEVE_DETAIL_AVX512 __attribute__((target("avx512f,avx2,fma")))
RAG_RETRIEVE_DETAIL_VECTOR(floats_8, float, 32);
RAG_RETRIEVE_DETAIL_VECTOR(floats_16, float, 64);
RAG_RETRIEVE_DETAIL_DOTS(dots_avx2, RAG_RETRIEVE_DETAIL_AVX2, floats_8)
RAG_RETRIEVE_DETAIL_DOTS(dots_avx512, RAG_RETRIEVE_DETAIL_AVX512, floats_16)
RAG_RETRIEVE_DETAIL_TILE(tile_avx2, RAG_RETRIEVE_DETAIL_AVX2, floats_8)
RAG_RETRIEVE_DETAIL_TILE(tile_avx512, RAG_RETRIEVE_DETAIL_AVX512, floats_16)

/// Adds the products of 64 codes of a row with their digits to a sum.
#define RAG_RETRIEVE_DETAIL_CODES(sum, row)                                                     \
  {                                                                                             \
    const bytes pair = RAG_RETRIEVE_DETAIL_LOAD(bytes, (row) + 32 * run + half / 2);            \
    const bytes upper = reinterpret_cast<bytes>(reinterpret_cast<shorts>(pair) >> 4) & 15;      \
    sum += __builtin_ia32_pmaddubsw256(pair & 15, q0) + __builtin_ia32_pmaddubsw256(upper, q1); \
  }

/// pmaddubsw multiplies 32 bytes and adds them in pairs into 16 bits, which hold eight such pairs.
RAG_RETRIEVE_DETAIL_AVX2 RAG_RETRIEVE_DETAIL_APART inline void codes_avx2(
    const std::int16_t* digits, std::size_t runs, const std::uint16_t* rows,
    const std::uint32_t* numbers, std::size_t count, std::int32_t* sums) {
  RAG_RETRIEVE_DETAIL_VECTOR(bytes, char, 32);
  RAG_RETRIEVE_DETAIL_VECTOR(shorts, std::int16_t, 32);
  RAG_RETRIEVE_DETAIL_VECTOR(ints, std::int32_t, 32);
  RAG_RETRIEVE_DETAIL_VECTOR(ints_4, std::int32_t, 16);
  const auto* ordered = reinterpret_cast<const char*>(digits + 128 * runs);
  const std::size_t ahead = 4 + 32 / runs * 4;
  const shorts one = shorts{} + 1;
  for (std::size_t first = 0; first < count; first += 4) {
    const std::uint16_t *row[4], *next[4];
    for (std::size_t j = 0; j < 4; ++j) {
      const std::size_t at = first + j < count ? first + j : count - 1;
      row[j] = rows + std::size_t{numbers[at]} * runs * 32;
      next[j] = rows + std::size_t{numbers[at + ahead < count ? at + ahead : at]} * runs * 32;
    }
    ints a{}, b{}, c{}, d{};
    for (std::size_t run = 0; run < runs; ++run) {
      for (std::size_t j = 0; j < 4; ++j) RAG_RETRIEVE_DETAIL_PREFETCH(next[j] + run * 32);
      shorts a_run{}, b_run{}, c_run{}, d_run{};
      for (std::size_t half = 0; half < 64; half += 32) {
        const bytes q0 = RAG_RETRIEVE_DETAIL_LOAD(bytes, ordered + 128 * run + half);
        const bytes q1 = RAG_RETRIEVE_DETAIL_LOAD(bytes, ordered + 128 * run + half + 64);
        RAG_RETRIEVE_DETAIL_CODES(a_run, row[0])
        RAG_RETRIEVE_DETAIL_CODES(b_run, row[1])
        RAG_RETRIEVE_DETAIL_CODES(c_run, row[2])
        RAG_RETRIEVE_DETAIL_CODES(d_run, row[3])
      }
      a += __builtin_ia32_pmaddwd256(a_run, one), b += __builtin_ia32_pmaddwd256(b_run, one);
      c += __builtin_ia32_pmaddwd256(c_run, one), d += __builtin_ia32_pmaddwd256(d_run, one);
    }
    // phaddd adds neighbours: twice over, a half holds one number of each row.
    const ints all =
        __builtin_ia32_phaddd256(__builtin_ia32_phaddd256(a, b), __builtin_ia32_phaddd256(c, d));
    const ints_4 four = RAG_RETRIEVE_DETAIL_LOAD(ints_4, &all) +
                        RAG_RETRIEVE_DETAIL_LOAD(ints_4, reinterpret_cast<const char*>(&all) + 16);
    for (std::size_t j = 0; j < 4 && first + j < count; ++j) sums[first + j] = four[j];
  }
}

/// 2: AVX-512, 1: AVX2 and FMA, 0: neither, as processor and operating system say.
[[nodiscard]] inline int processor_level() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  __asm__ volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(0), "c"(0));
  if (a < 7) return 0;
  __asm__ volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(1), "c"(0));
  constexpr unsigned needed = 1U << 12 | 1U << 27 | 1U << 28;  // FMA, XGETBV, AVX
  if ((c & needed) != needed) return 0;
  unsigned saved = 0;  // which registers the system keeps when it changes threads
  __asm__ volatile("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
  __asm__ volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
  if ((saved & 0x06) != 0x06 || (b & 1U << 5) == 0) return 0;
  return (saved & 0xE6) == 0xE6 && (b & 1U << 16) != 0 ? 2 : 1;
}

/// The loops of a level; only such as processor_level() allows may be run.
[[nodiscard]] inline kernel_set kernels_of(int level) {
  if (level == 2) return {&dots_avx512, &tile_avx512, &codes_avx2, 32, 0.3};
  if (level == 1) return {&dots_avx2, &tile_avx2, &codes_avx2, 16, 0.3};
  return {&dots_plain, &tile_plain, &codes_plain, 8, 0.7};
}
#else
[[nodiscard]] inline int processor_level() { return 0; }
[[nodiscard]] inline kernel_set kernels_of(int) {
  return {&dots_plain, &tile_plain, &codes_plain, 8, 0.7};
}
#endif

/// The best loops that this processor can run.
[[nodiscard]] inline const kernel_set& kernels() {
  static const kernel_set best = kernels_of(processor_level());
  return best;
}

}  // namespace detail
// kernels: end

namespace detail {

[[nodiscard]] inline double dot_in_double(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

/// What dots gave for two vectors, or what stands in its place. Products of huge numbers leave
/// float's range, and infinities of both signs would add up to NaN: such a sum is taken again in
/// double and held at the largest float.
[[nodiscard]] inline float finite_sum(float sum, std::span<const float> a,
                                      std::span<const float> b) {
  if (is_finite(sum)) return sum;
  const auto most = static_cast<double>((std::numeric_limits<float>::max)());
  return static_cast<float>((std::clamp)(dot_in_double(a, b), -most, most));
}

/// dot() for lengths that are known to be equal.
[[nodiscard]] inline float finite_dot(std::span<const float> a, std::span<const float> b) {
  if (a.empty()) return 0;
  const std::uint32_t number = 0;
  float sum = 0;
  kernels().dots(a.data(), a.size(), b.data(), &number, 1, &sum);
  return finite_sum(sum, a, b);
}

inline void require_equal_lengths(std::string_view function, std::size_t a, std::size_t b) {
  if (a == b) return;
  raise(error(errc::dimension_mismatch, std::string(function) + ": the first vector has " +
                                            text_of(a) + " numbers, the second " + text_of(b)));
}

}  // namespace detail

/// The dot product of two vectors of equal length; finite for finite numbers, held at the largest
/// float where it would leave that range. The same numbers give the same bits.
///
/// throws   error{errc::dimension_mismatch}: the lengths differ
/// cost     O(length), no allocation
///
/// {1, 2, 3} and {4, 5, 6} give 32.
[[nodiscard]] inline float dot(std::span<const float> a, std::span<const float> b) {
  detail::require_equal_lengths("dot", a.size(), b.size());
  return detail::finite_dot(a, b);
}

/// The cosine of the angle between two vectors of finite numbers: 1 same direction, 0 unrelated or
/// either is zero, -1 opposite. Never outside [-1, 1].
///
/// throws   error{errc::dimension_mismatch}: the lengths differ
/// cost     O(length), no allocation
///
/// {3, 4} and {6, 8} give 1; {1, 0} and {0, 2} give 0.
[[nodiscard]] inline double cosine(std::span<const float> a, std::span<const float> b) {
  detail::require_equal_lengths("cosine", a.size(), b.size());
  // In double the squares of the smallest and largest floats, and their product, stay in range.
  const double lengths = detail::dot_in_double(a, a) * detail::dot_in_double(b, b);
  if (lengths <= 0) return 0;
  return (std::clamp)(detail::dot_in_double(a, b) / std::sqrt(lengths), -1.0, 1.0);
}

/// Brings a vector of finite numbers to length 1 in place. A zero vector has no direction: it is
/// left unchanged and the answer is false. Cost: O(length), no allocation.
///
/// {3, 4} becomes {0.6, 0.8}.
[[nodiscard]] inline bool normalise(std::span<float> values) {
  const double length = std::sqrt(detail::dot_in_double(values, values));
  if (length <= 0) return false;
  for (float& value : values) value = static_cast<float>(static_cast<double>(value) / length);
  return true;
}

/// How alike two vectors are.
enum class metric {
  cosine,         ///< by direction alone; vectors are brought to length 1 when they are added
  inner_product,  ///< the dot product of the vectors as given; longer vectors score higher
};

/// What a text is to the model: many models embed a question otherwise than a text to be found.
enum class text_role { document, question };

/// A vector and the model that made it. Vectors of different models cannot be compared, whatever
/// their lengths.
struct embedding {
  std::string model = {};          ///< the embedder's tag
  std::vector<float> values = {};  ///< one number per dimension
};

/// Embeds texts: one vector per text, in the order of the texts. May return an error, or throw.
using embed_function = std::function<result<std::vector<std::vector<float>>>(
    std::span<const std::string_view> texts, text_role role)>;

/// The caller's embedding model.
struct embedder {
  std::string model = {};       ///< tag of model and version; another tag is another vector space
  std::size_t dimension = 0;    ///< numbers per vector; 0: whatever the first vector has
  std::size_t batch_size = 64;  ///< texts per call, at least 1; 1: each alone; large: one call
  embed_function embed = {};    ///< must be set
};

namespace detail {

/// Position of the first number that is NaN or infinite; values.size() if there is none.
[[nodiscard]] inline std::size_t first_not_finite(std::span<const float> values) {
  std::size_t i = 0;
  while (i < values.size() && is_finite(values[i])) ++i;
  return i;
}

/// "number 3 of 4 is not finite", for the position that first_not_finite gave.
[[nodiscard]] inline std::string not_finite_text(std::size_t position, std::size_t count) {
  return "number " + text_of(position + 1) + " of " + text_of(count) + " is not finite";
}

/// Is this the vector that was promised? `dimension` 0: any but none. `who()` names its text and is
/// asked only where the answer is no.
template <class Who>
[[nodiscard]] result<void> check_embedding(const embedder& source, std::span<const float> values,
                                           std::size_t dimension, const Who& who) {
  const bool right_length = !values.empty() && (dimension == 0 || values.size() == dimension);
  const std::size_t bad = right_length ? first_not_finite(values) : 0;
  if (right_length && bad == values.size()) return {};

  const std::string what = "embedder " + in_quotes(source.model) + ": the vector of " + who();
  if (right_length)
    return error(errc::not_finite, what + ": " + not_finite_text(bad, values.size()));
  const std::string wanted = dimension == 0 ? "at least 1" : text_of(dimension);
  const std::string why = source.dimension != 0 ? "the embedder's dimension" : "its first length";
  return error(errc::dimension_mismatch, what + " has " + text_of(values.size()) +
                                             " numbers, expected " + wanted +
                                             (dimension == 0 ? "" : " (" + why + ")"));
}

/// Did the embedder answer texts first to first + asked - 1 (of `all`) with one vector each?
[[nodiscard]] inline result<void> check_answer_count(const embedder& source, std::size_t answered,
                                                     std::size_t asked, std::size_t first,
                                                     std::size_t all) {
  if (answered == asked) return {};
  return error(errc::embedder_failed, "embedder " + in_quotes(source.model) + ": answered texts " +
                                          text_of(first + 1) + " to " + text_of(first + asked) +
                                          " of " + text_of(all) + " with " + text_of(answered) +
                                          " vectors, expected " + text_of(asked));
}

[[nodiscard]] inline result<void> check_embedder(const embedder& source) {
  const std::string what = "embedder " + in_quotes(source.model);
  if (!source.embed)
    return error(errc::invalid_argument, what + ": embed is not set, expected a function");
  if (source.batch_size == 0)
    return error(errc::invalid_argument, what + ": batch_size 0 must be at least 1");
  return {};
}

/// Embeds texts in batches and lets nothing through that was not promised: one vector per text, all
/// of one length, all numbers finite. An answer of another count is refused whole, as nobody knows
/// which text went missing. The first failure ends it; no later batch is asked for.
///
/// names    how an error calls each text, such as "chunk 'E42'"; none: "text 18 of 40"
/// returns  one vector per text, in their order; a zero vector is let through
/// errors   invalid_argument, embedder_failed (threw, wrong count), dimension_mismatch, not_finite;
///          an error that the callback itself returns passes unchanged
/// cost     one call per batch_size texts, none for no texts
[[nodiscard]] inline result<std::vector<std::vector<float>>> embed_checked(
    const embedder& source, std::span<const std::string_view> texts, text_role role,
    std::span<const std::string> names = {}) {
  if (const auto checked = check_embedder(source); !checked) return checked.failure();
  std::size_t dimension = source.dimension;
  std::vector<std::vector<float>> vectors;
  vectors.reserve(texts.size());
  const auto who = [&] {
    const std::size_t i = vectors.size();
    return i < names.size() ? names[i] : "text " + text_of(i + 1) + " of " + text_of(texts.size());
  };
  while (vectors.size() < texts.size()) {
    const std::size_t first = vectors.size();
    const std::size_t asked = (std::min)(source.batch_size, texts.size() - first);
    auto answer = guarded(errc::embedder_failed, "embedder " + in_quotes(source.model),
                          [&] { return source.embed(texts.subspan(first, asked), role); });
    if (!answer) return answer.failure();
    const auto counted = check_answer_count(source, answer->size(), asked, first, texts.size());
    if (!counted) return counted.failure();
    for (std::vector<float>& values : answer.value()) {
      const auto checked = check_embedding(source, values, dimension, who);
      if (!checked) return checked.failure();
      dimension = values.size();
      vectors.push_back(std::move(values));
    }
  }
  return vectors;
}

}  // namespace detail

// =================================================================================================
// 5. Documents and chunks: what goes in, and the pieces that search can return
//
// In   a source document: text, and who may read it.      Out   chunks: byte ranges of that text.
//
// A chunk never holds text. It names a half-open byte range of its document, so that what is shown
// is always document.text.substr(range), and a little about the place: the titles above it, its
// own heading. The article's record is (heading, body); search_text joins the two, and that is
// what is searched, embedded, counted and given to a reranker.
// =================================================================================================

/// A fact about a document, kept with it: a text, a number, or a list of texts. A date is a text
/// such as "2026-12-01", which sorts as dates do.
class metadata_value {
 public:
  enum class kind : std::uint8_t { text, number, texts };

  metadata_value() = default;  ///< an empty text
  metadata_value(std::string text) : text_(std::move(text)) {}
  metadata_value(std::string_view text) : text_(text) {}
  metadata_value(const char* text) : text_(text) {}
  template <class Number>
    requires(std::is_arithmetic_v<Number>)
  metadata_value(Number number) : kind_(kind::number), number_(static_cast<double>(number)) {}
  metadata_value(std::vector<std::string> texts) : kind_(kind::texts), texts_(std::move(texts)) {}

  [[nodiscard]] kind type() const noexcept { return kind_; }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }  ///< of a text; else ""
  [[nodiscard]] double number() const noexcept { return number_; }          ///< of a number; else 0
  [[nodiscard]] const std::vector<std::string>& texts() const noexcept { return texts_; }

  friend bool operator==(const metadata_value&, const metadata_value&) = default;

 private:
  kind kind_ = kind::text;
  std::string text_;
  double number_ = 0;
  std::vector<std::string> texts_;
};

/// A demand on a document's metadata. Where several parts are given, all of them must hold; a
/// document without the key meets no condition on it, negated or not.
///
///   {.key = "lang", .any_of = {"en", "de"}}        {.key = "year", .from = 2020, .to = 2026}
///   {.key = "tags", .any_of = {"error"}}           one of the tags is "error"
///   {.key = "state", .any_of = {"draft"}, .negated = true}
///   {.key = "reviewed"}                            it has the key
struct condition {
  std::string key = {};
  std::vector<metadata_value> any_of = {};  ///< equal to one of these; none: anything
  std::optional<metadata_value> from = {};  ///< at least this; texts by bytes
  std::optional<metadata_value> to = {};    ///< at most this
  bool negated = false;
};

/// A source document. Ids are unique within their tenant.
struct document {
  std::string id = {};      ///< any bytes, not empty
  std::string title = {};   ///< may be empty
  std::string text = {};    ///< Markdown or plain text; UTF-8, but any bytes do
  std::string tenant = {};  ///< a partition of its own; "" is a tenant like others
  std::vector<std::string> allowed_groups = {};  ///< who may read it; empty: nobody
  std::uint64_t revision = 0;                    ///< grows with each change; 0: not counted
  std::map<std::string, metadata_value> metadata = {};
};

/// A retrieval unit: one byte range of one document.
struct chunk {
  std::string id = {};           ///< unique within the tenant
  std::string document_id = {};  ///< the document it was cut from
  std::string parent_id = {};    ///< the larger chunk it lies in; empty: none
  std::uint64_t revision = 0;
  byte_range range = {};     ///< its own heading line, if it opens with one, and its body
  byte_range body = {};      ///< inside range
  std::string heading = {};  ///< what search_text puts above the body: its heading without marks,
                             ///< and below that, for a later part of a table, the header row
  std::vector<std::string> heading_path = {};  ///< titles from the outermost to its own
  std::string anchor = {};                     ///< of the heading, as GitHub forms it; may be empty
  std::size_t token_count = 0;                 ///< of search_text, by the chunker's counter
  bool oversize = false;                       ///< one indivisible grapheme above the limit
  std::vector<std::string> identifiers = {};   ///< codes, beside those that the patterns find
  std::optional<std::vector<std::string>> allowed_groups = {};  ///< narrower than the document's
  std::optional<embedding> vector = {};                         ///< supplied instead of embedded
};

/// The chunk's own bytes: document.text.substr(range). The view lives as long as the document.
[[nodiscard]] inline std::string_view chunk_text(const document& source, const chunk& piece) {
  return slice(source.text, piece.range);
}

/// Whether a value meets a condition on its key.
/// errors  wrong_type: the two are not comparable, such as a number and a text. The sentence names
///         the key alone: the value may be another one's secret
[[nodiscard]] inline result<bool> meets(const metadata_value& value, const condition& wanted) {
  using kind = metadata_value::kind;
  const auto wrong = [&wanted](const char* needed) {
    return error(errc::wrong_type, "where: " + detail::in_quotes(wanted.key) +
                                       " is not everywhere " + needed +
                                       ", as this condition needs it");
  };
  bool met = wanted.any_of.empty();
  for (const metadata_value& each : wanted.any_of) {
    const bool text = each.type() == kind::text;
    if (text ? value.type() == kind::number : value.type() != each.type()) {
      return wrong(text                          ? "a text or a list of texts"
                   : each.type() == kind::number ? "a number"
                                                 : "a list of texts");
    }
    const auto& texts = value.texts();
    met = met || value == each ||
          (text && std::find(texts.begin(), texts.end(), each.text()) != texts.end());
  }
  for (const auto* bound : {&wanted.from, &wanted.to}) {
    if (!*bound) continue;
    const metadata_value& limit = **bound;
    if (limit.type() == kind::texts || value.type() != limit.type()) {
      return wrong(limit.type() == kind::number ? "a number" : "a text");
    }
    const bool number = limit.type() == kind::number;
    const bool below = number ? value.number() < limit.number() : value.text() < limit.text();
    const bool above = number ? value.number() > limit.number() : value.text() > limit.text();
    met = met && !(bound == &wanted.from ? below : above);
  }
  return met != wanted.negated;
}

/// What search_text adds to a chunk's own heading and body.
struct search_text_options {
  bool title = false;      ///< the document's title comes first
  bool ancestors = false;  ///< the headings above its own come before it
};

/// What is searched, embedded and shown to a reranker: the chunk's heading, a blank line, its body.
///
/// returns  {.heading = "PAY-042: Rejected", body "Checkout returns ..."} gives
///          "PAY-042: Rejected\n\nCheckout returns ..."; without a heading the body alone
/// cost     O(length of the result)
[[nodiscard]] inline std::string search_text(const document& source, const chunk& piece,
                                             const search_text_options& options = {}) {
  std::string text;
  const auto add = [&text](std::string_view part) {
    if (part.empty()) return;
    if (!text.empty()) text += "\n\n";
    text += part;
  };
  if (options.title && source.title != piece.heading) add(source.title);
  if (options.ancestors) {
    for (const std::string& title : piece.heading_path) {
      const bool last = &title == &piece.heading_path.back();
      if (!last && !(options.title && title == source.title)) add(title);
    }
  }
  add(piece.heading);
  add(slice(source.text, piece.body));
  return text;
}
// =================================================================================================
// 6. Access control: who asks, what he may read, and the one gate that text passes
//
// In   a principal and a permission source.      Out   a scope; later, permitted passages.
//
// Three checks, each by the current word of the permission source:
//   1. scope_for asks for the principal's groups; every search looks only at chunks that allow one
//      of them, in the lexical leg, the exact codes, the vectors, and the fetch by id;
//   2. before any text is read, one batch asks again about every candidate;
//   3. if a slow stage (a reranker) lay between, the answer's passages are asked about once more.
// A parent is asked about like any chunk, and is open only to who may read every child in it too.
// Denied, unknown, an error, a short answer: no. Nobody is in no group, and no group is nobody.
//
// By type: a permitted_passage is made by the gate alone, after the check, and rerankers and
// answers take nothing else. tests/must_not_compile shows what the compiler refuses.
// =================================================================================================

/// Who asks. The tenant is compared first and apart: group names mean nothing across tenants.
struct principal {
  std::string tenant = {};  ///< "" is a tenant like any other
  std::string user = {};
};

/// Names a chunk to a permission source.
struct chunk_key {
  std::string_view document_id;
  std::string_view chunk_id;
};

/// The answer of a permission source about one chunk. Only allow is yes.
enum class verdict { deny, allow, unknown };

/// Where permissions come from: a directory, a service, a table. Called under no lock, from any
/// thread that searches. What it throws, or fails to answer, means no.
class permission_source {
 public:
  permission_source() = default;
  permission_source(const permission_source&) = delete;
  permission_source& operator=(const permission_source&) = delete;
  virtual ~permission_source() = default;

  /// The groups of a principal, now. An unknown user has none.
  [[nodiscard]] virtual result<std::vector<std::string>> groups_of(const principal& who) const = 0;

  /// Whether may_read below answers; if not, the retriever compares groups_of with the newest
  /// access records instead.
  [[nodiscard]] virtual bool judges_chunks() const { return false; }

  /// One verdict for each chunk, in the same order. Another count than asked for denies them all.
  [[nodiscard]] virtual result<std::vector<verdict>> may_read(
      const principal&, std::span<const chunk_key> chunks) const {
    return std::vector<verdict>(chunks.size(), verdict::unknown);
  }
};

/// The in-memory permission source, for programs that have users and groups at hand. Safe to
/// change while searches run.
class access_directory final : public permission_source {
 public:
  /// Sets the groups of one principal; an empty list takes all rights away.
  /// errors  invalid_argument: an empty string among the groups
  result<void> try_set_groups(const principal& who, std::vector<std::string> groups) {
    for (const std::string& group : groups) {
      if (group.empty()) {
        return error(errc::invalid_argument, "set_groups: a group of user " +
                                                 detail::in_quotes(who.user) +
                                                 " is empty; a group needs a name");
      }
    }
    const std::lock_guard lock(mutex_);
    groups_[{who.tenant, who.user}] = std::move(groups);
    return {};
  }
  void set_groups(const principal& who, std::vector<std::string> groups) {
    try_set_groups(who, std::move(groups)).value();
  }

  [[nodiscard]] result<std::vector<std::string>> groups_of(const principal& who) const override {
    const std::lock_guard lock(mutex_);
    const auto found = groups_.find({who.tenant, who.user});
    return found == groups_.end() ? std::vector<std::string>{} : found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> groups_;
};

namespace detail {
class gate;
class search_run;
}  // namespace detail

/// What one principal may read, by his groups at the time the scope was made. Made by scope_for
/// alone, so that no question can bring its own groups. The later checks ask again.
class scope {
 public:
  [[nodiscard]] const principal& who() const noexcept { return who_; }
  [[nodiscard]] const std::vector<std::string>& groups() const noexcept { return groups_; }

  /// Whether one of the principal's groups is among `allowed`, whole and case-sensitive.
  [[nodiscard]] bool meets(std::span<const std::string> allowed) const {
    return std::any_of(allowed.begin(), allowed.end(), [this](const std::string& group) {
      return std::binary_search(groups_.begin(), groups_.end(), group);
    });
  }

 private:
  friend result<scope> try_scope_for(const permission_source&, const principal&);
  scope(const permission_source& source, principal who, std::vector<std::string> groups)
      : source_(&source), who_(std::move(who)), groups_(std::move(groups)) {
    std::sort(groups_.begin(), groups_.end());
    std::erase(groups_, std::string{});  // the empty string is not a group
  }

  friend class detail::gate;
  friend class detail::search_run;
  const permission_source* source_;  // a scope is good for the source that made it
  principal who_;
  std::vector<std::string> groups_;
};

/// Asks the permission source for the principal's groups, now.
///
/// returns  the scope; an unknown user's reads nothing
/// errors   permission_failed: the source threw or returned an error. The sentence does not repeat
///          the source's words, which may name what this user must not know of.
[[nodiscard]] inline result<scope> try_scope_for(const permission_source& source,
                                                 const principal& who) {
  result<std::vector<std::string>> groups =
      detail::guarded(errc::permission_failed, "scope_for", [&] { return source.groups_of(who); });
  if (!groups) {
    return error(
        errc::permission_failed,
        "scope_for: the permission source did not answer for user " + detail::in_quotes(who.user));
  }
  return scope(source, who, std::move(*groups));
}
[[nodiscard]] inline scope scope_for(const permission_source& source, const principal& who) {
  return try_scope_for(source, who).value();
}

/// Where a passage stands in its source: enough for a link, a quotation and a mark-up.
struct citation {
  std::string document_id = {};
  std::uint64_t revision = 0;
  std::string anchor = {};               ///< of the heading, as GitHub forms it
  byte_range range = {};                 ///< in the document's text
  std::size_t first_line = 0;            ///< from 1
  std::size_t last_line = 0;             ///< inclusive
  std::vector<byte_range> matches = {};  ///< words and codes of the question; rising, apart
};

namespace detail {

/// All that a passage carries. Plain data, but only inside a permitted_passage it leaves the store.
struct passage_data {
  std::string id, document_id, parent_id, title, heading, text, body, search_text, why;
  std::uint64_t revision = 0;
  std::vector<std::string> heading_path = {}, identifiers = {}, children = {};
  byte_range range = {};
  std::size_t token_count = 0;
  std::size_t lexical_rank = 0, dense_rank = 0;
  bool exact_match = false;
  double score = 0;
  std::optional<double> lexical_score = {}, similarity = {}, rerank_score = {};
  citation source = {};
};

}  // namespace detail

/// A passage that the gate let through for one principal. It cannot be made in any other way.
class permitted_passage {
 public:
  [[nodiscard]] const std::string& id() const noexcept { return data_.id; }
  [[nodiscard]] const std::string& document_id() const noexcept { return data_.document_id; }
  /// The chunk it lies in; empty: none, or none that this reader may see.
  [[nodiscard]] const std::string& parent_id() const noexcept { return data_.parent_id; }
  /// The parts of it that were found, best first, where it stands for them; empty: it was found
  /// itself.
  [[nodiscard]] const std::vector<std::string>& children() const noexcept { return data_.children; }
  [[nodiscard]] std::uint64_t revision() const noexcept { return data_.revision; }
  [[nodiscard]] const std::string& title() const noexcept { return data_.title; }
  [[nodiscard]] const std::vector<std::string>& heading_path() const noexcept {
    return data_.heading_path;
  }
  /// What stands above the body, without marks; may be empty.
  [[nodiscard]] const std::string& heading() const noexcept { return data_.heading; }
  /// The text below the heading, byte for byte.
  [[nodiscard]] const std::string& body() const noexcept { return data_.body; }
  /// The slice of the document, heading line and body, byte for byte.
  [[nodiscard]] const std::string& text() const noexcept { return data_.text; }
  /// Heading, blank line, body: what was searched, and what a model should be sent.
  [[nodiscard]] const std::string& search_text() const noexcept { return data_.search_text; }
  /// The codes in it, as they are written there.
  [[nodiscard]] const std::vector<std::string>& identifiers() const noexcept {
    return data_.identifiers;
  }
  [[nodiscard]] byte_range range() const noexcept { return data_.range; }
  [[nodiscard]] std::size_t token_count() const noexcept { return data_.token_count; }

  /// The score of the first search: BM25 in lexical mode, the similarity in dense mode, the sum of
  /// reciprocal ranks in hybrid mode. A reranker reorders by rerank_score() and leaves it as it is.
  /// Never a confidence.
  [[nodiscard]] double score() const noexcept { return data_.score; }
  [[nodiscard]] std::size_t lexical_rank() const noexcept {
    return data_.lexical_rank;
  }  ///< 0: none
  [[nodiscard]] std::size_t dense_rank() const noexcept { return data_.dense_rank; }  ///< 0: none
  [[nodiscard]] std::optional<double> lexical_score() const noexcept { return data_.lexical_score; }
  [[nodiscard]] std::optional<double> similarity() const noexcept { return data_.similarity; }
  [[nodiscard]] std::optional<double> rerank_score() const noexcept { return data_.rerank_score; }
  /// Whether it holds a code of the question, whole.
  [[nodiscard]] bool exact_match() const noexcept { return data_.exact_match; }
  /// One line that says how it came here: "exact code; lexical rank 1; dense rank 3".
  [[nodiscard]] const std::string& why() const noexcept { return data_.why; }
  [[nodiscard]] const citation& source() const noexcept { return data_.source; }

 private:
  friend class detail::gate;
  explicit permitted_passage(detail::passage_data data) : data_(std::move(data)) {}

  detail::passage_data data_;
};

namespace detail {

/// The one place where text becomes a permitted_passage. It asks the permission source about a
/// batch of chunks, remembers the last word on each, and opens only what that allowed.
class gate {
 public:
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;

 private:
  friend class search_run;  // nobody else can ask or open

  /// limit  an answer that takes longer counts as none; none: no limit
  gate(const scope& reader, std::optional<std::chrono::milliseconds> limit)
      : reader_(&reader), limit_(limit) {}

  /// Asks about all of `chunks` in one call; what earlier calls said of them is forgotten.
  /// `records(i)` tells the groups that may read chunks[i] by the newest published records;
  /// nothing: erased. It is called after the source has answered.
  /// returns  one yes or no each. A failure of the source is a no for all, and noted.
  template <class Records>
  std::vector<bool> ask(std::span<const chunk_key> chunks, const Records& records) {
    for (const chunk_key& key : chunks) allowed_.erase(std::string(key.chunk_id));
    std::vector<bool> answers(chunks.size(), false);
    if (chunks.empty()) return answers;
    const permission_source& source = *reader_->source_;
    const auto start = std::chrono::steady_clock::now();
    result<std::vector<bool>> verdicts =
        guarded(errc::permission_failed, "recheck", [&]() -> result<std::vector<bool>> {
          return source.judges_chunks() ? ask_source(chunks) : compare_groups(chunks, records);
        });
    if (limit_ && std::chrono::steady_clock::now() - start > *limit_) {
      verdicts = error(errc::permission_failed, "recheck: the permission source took longer than " +
                                                    std::to_string(limit_->count()) + " ms");
    }
    failed_ = !verdicts.ok();
    if (failed_) {
      failures_.push_back(verdicts.failure().message());
      return answers;
    }
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      // The source may deny what the records allow, and the records what the source allows.
      const std::optional<std::span<const std::string>> groups = records(i);
      answers[i] = (*verdicts)[i] && groups.has_value() && reader_->meets(*groups);
      if (answers[i]) allowed_.insert(std::string(chunks[i].chunk_id));
    }
    return answers;
  }

  /// Whether the last word on a chunk was yes, and on each of the `parts` whose text lies in it.
  [[nodiscard]] bool allows(const std::string& id, std::span<const std::string> parts = {}) const {
    return allowed_.contains(id) &&
           std::all_of(parts.begin(), parts.end(),
                       [this](const std::string& part) { return allowed_.contains(part); });
  }

  /// The passage, if the last word on it and on all its parts was yes.
  [[nodiscard]] std::optional<permitted_passage> open(
      passage_data data, std::span<const std::string> parts = {}) const {
    if (!allows(data.id, parts)) return std::nullopt;
    return permitted_passage(std::move(data));
  }

  /// Whether the source gave no usable answer to the last question: asking on makes no sense.
  [[nodiscard]] bool failed() const { return failed_; }

  /// What the permission source answered instead of verdicts; for the operator alone.
  [[nodiscard]] const std::vector<std::string>& failures() const { return failures_; }

  result<std::vector<bool>> ask_source(std::span<const chunk_key> chunks) const {
    const result<std::vector<verdict>> said = reader_->source_->may_read(reader_->who_, chunks);
    if (!said) return said.failure();
    if (said->size() != chunks.size()) {
      return error(errc::permission_failed, "recheck: the permission source gave " +
                                                text_of(said->size()) + " verdicts for " +
                                                text_of(chunks.size()) + " chunks");
    }
    std::vector<bool> answers(chunks.size());
    for (std::size_t i = 0; i < chunks.size(); ++i) answers[i] = (*said)[i] == verdict::allow;
    return answers;
  }

  template <class Records>
  result<std::vector<bool>> compare_groups(std::span<const chunk_key> chunks,
                                           const Records& records) const {
    const result<scope> now = try_scope_for(*reader_->source_, reader_->who_);
    if (!now) return now.failure();
    std::vector<bool> answers(chunks.size());
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const std::optional<std::span<const std::string>> groups = records(i);
      answers[i] = groups.has_value() && now->meets(*groups);
    }
    return answers;
  }

  const scope* reader_;
  std::optional<std::chrono::milliseconds> limit_;
  detail::key_set<std::string> allowed_;
  bool failed_ = false;
  std::vector<std::string> failures_;
};

}  // namespace detail
// =================================================================================================
// 7. Chunkers: where one chunk ends and the next begins
//
// In   a document.      Out   its chunks, in the order of the text: byte ranges, never copies.
//
//   whole       the document as one chunk
//   fixed       windows of a set number of tokens:  stride = chunk size - overlap
//   sentence    each sentence
//   packed      whole sentences, as many as fit; lists, tables, code, headings with their text too
//   structure   sections, at the headings that the author wrote
//   recursive   sections; one that is too long by paragraphs, then sentences, words, graphemes
//   semantic    sentences, parted where an embedder finds that the subject changes
//   parent-child   large chunks to hand out, and inside each the small ones to search
//
//   distance of a sentence to the next = 1 - cosine of the windows around them;
//   semantic cut where distance > threshold
//
// For every input and every option: begins and ends strictly increase (parents and children are two
// such lists); what is not covered is white space, a byte order mark, and for structure, recursive
// and parent-child front matter and headings that stand in heading paths; no cut lies inside a
// grapheme. A table that is parted has its header row above each part, in search_text alone. No
// chunk exceeds its size by the caller's own counter, both as a slice and with its
// heading above it; only one indivisible grapheme may, and is flagged. Time is linear in the text
// and the chunks for a counter that grows with its text (semantic: see there). One that does not
// may cost more calls and shorter chunks, never the limit.
//
// The section is long because a third of it reads Markdown: a heading is only a heading outside
// code, comments, quotes and lists.
//
// Source   CommonMark 0.30 for headings; GitHub for anchors; LangChain's SemanticChunker for the
//          kinds of threshold.
// =================================================================================================

// ---- Markdown headings --------------------------------------------------------------------------

/// A heading that opens a section: not in code, HTML, a quote or a list item.
struct markdown_heading {
  std::size_t level = 1;   ///< 1 to 6
  std::string title = {};  ///< as written, without the marks; setext lines joined by a space
  byte_range lines = {};   ///< its own line or lines, the last line end included
};

namespace detail {

/// Reads a line column by column: a tab reaches to the next multiple of four.
class line_cursor {
 public:
  explicit line_cursor(std::string_view line) : line_(line) { find_text(); }

  [[nodiscard]] bool blank() const { return text_ == line_.size(); }
  [[nodiscard]] std::size_t indent() const { return text_column_ - column_; }
  [[nodiscard]] std::string_view rest() const { return line_.substr(text_); }  // from its text on

  /// Steps over white space, if need be to the middle of a tab.
  void skip_columns(std::size_t count) {
    for (; count > 0 && at_ < text_; --count) {
      ++column_;
      if (line_[at_] == ' ' || column_ % 4 == 0) ++at_;
    }
  }
  void skip_indent() { at_ = text_, column_ = text_column_; }

  /// Steps over the marker that the text begins with.
  void skip_marker(std::size_t length) {
    at_ = text_ + length;
    column_ = text_column_ + length;
    find_text();
  }

 private:
  void find_text() {
    text_ = at_, text_column_ = column_;
    for (; text_ < line_.size() && is_blank_at(line_, text_); ++text_) {
      text_column_ = line_[text_] == '\t' ? text_column_ / 4 * 4 + 4 : text_column_ + 1;
    }
  }

  std::string_view line_;
  std::size_t at_ = 0;
  std::size_t column_ = 0;
  std::size_t text_ = 0;  // the first byte from at_ on that is no blank, and its column
  std::size_t text_column_ = 0;
};

[[nodiscard]] inline std::string_view trim_blanks(std::string_view line) {
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return line.substr(begin, line.find_last_not_of(" \t") + 1 - begin);
}

/// The level of an ATX heading: 1 to 6 for "# " to "###### ", else 0.
[[nodiscard]] inline std::size_t atx_level(std::string_view text) {
  const std::size_t marks = run_length(text, 0, '#');
  return marks <= 6 && is_blank_at(text, marks) ? marks : 0;
}

/// "## Run ##" -> "Run"; "# C#" -> "C#".
[[nodiscard]] inline std::string_view atx_title(std::string_view text, std::size_t level) {
  const std::string_view title = trim_blanks(text.substr(level));
  const std::size_t last = title.find_last_not_of('#');
  if (last == std::string_view::npos) return {};
  return is_blank_at(title, last) ? trim_blanks(title.substr(0, last)) : title;
}

/// The level of a setext underline: 1 for "===", 2 for "---", else 0.
[[nodiscard]] inline std::size_t setext_level(std::string_view text) {
  if (text[0] != '=' && text[0] != '-') return 0;
  const bool alone = trim_blanks(text.substr(run_length(text, 0, text[0]))).empty();
  return !alone ? 0 : text[0] == '=' ? 1 : 2;
}

/// "---", "* * *", "___": at least three of one mark, and blanks.
[[nodiscard]] inline bool is_thematic_break(std::string_view text) {
  return text[0] != '=' && is_rule(text, 0, false);
}

/// The first line from `at` on that closes the open fence, else an empty one at the end. Looks for
/// its marks: code has few of them.
[[nodiscard]] inline text_line find_fence_end(std::string_view text, std::size_t at,
                                              const fence_mark& open) {
  for (std::size_t from = text.find(open.mark, at); from != std::string_view::npos;) {
    std::size_t begin = from;
    while (begin > at && from - begin < 3 && text[begin - 1] == ' ') --begin;
    const bool first = begin == at || text[begin - 1] == '\n' || text[begin - 1] == '\r';
    const std::size_t length = run_length(text, from, open.mark);
    from += length;
    if (first && length >= open.length) {
      text_line line = line_at(text, skip_blanks(text, from));
      if (line.content.empty()) {  // nothing but blanks behind the marks
        line.content.begin = begin;
        return line;
      }
    }
    from = text.find(open.mark, from);
  }
  return {{text.size(), text.size()}, text.size()};
}

/// The length of a list marker, or 0. Into a paragraph only a bullet or the number 1 breaks, and
/// only if text follows.
[[nodiscard]] inline std::size_t item_marker(std::string_view text, bool in_paragraph) {
  const bool bullet = (text[0] == '-' || text[0] == '*' || text[0] == '+') && is_blank_at(text, 1);
  const std::size_t length = bullet ? 1 : numbered_marker(text, 0);
  if (length == 0 || !in_paragraph) return length;
  const bool first = bullet || (text[length - 2] == '1' && run_length(text, 0, '0') == length - 2);
  return first && !trim_blanks(text.substr(length)).empty() ? length : 0;
}

/// True for a whole line such as `[label]: /address "title"`, which is no text of its paragraph.
[[nodiscard]] inline bool is_link_definition(std::string_view line) {
  line = trim_blanks(line);
  if (line.empty() || line[0] != '[') return false;
  std::size_t at = 1;
  while (at < line.size() && line[at] != ']' && line[at] != '[') at += line[at] == '\\' ? 2U : 1U;
  if (at + 1 >= line.size() || line[at] != ']' || line[at + 1] != ':') return false;
  if (trim_blanks(line.substr(1, at - 1)).empty()) return false;

  std::string_view rest = trim_blanks(line.substr(at + 2));  // the address, then a title or nothing
  const bool pointed = !rest.empty() && rest[0] == '<';
  const std::size_t end = pointed ? rest.find('>') : rest.find_first_of(" \t");
  if (rest.empty() || (pointed && end == std::string_view::npos)) return false;
  if (end == std::string_view::npos) return true;
  rest = rest.substr(end + (pointed ? 1 : 0));
  const std::string_view title = trim_blanks(rest);
  if (title.empty()) return true;
  const char close = title[0] == '(' ? ')' : title[0];
  if (!is_blank_at(rest, 0) || title.size() < 2 || title.back() != close) return false;
  return (close == '"' || close == '\'' || close == ')') &&
         title.find(close, 1) == title.size() - 1;
}

// -- HTML blocks, by the numbers that CommonMark gives their seven kinds

/// Tags whose block ends at a blank line (kind 6), in order.
inline constexpr std::string_view html_block_tags[] = {
    "address",  "article",  "aside",    "base",       "basefont", "blockquote", "body",   "caption",
    "center",   "col",      "colgroup", "dd",         "details",  "dialog",     "dir",    "div",
    "dl",       "dt",       "fieldset", "figcaption", "figure",   "footer",     "form",   "frame",
    "frameset", "h1",       "h2",       "h3",         "h4",       "h5",         "h6",     "head",
    "header",   "hr",       "html",     "iframe",     "legend",   "li",         "link",   "main",
    "menu",     "menuitem", "nav",      "noframes",   "ol",       "optgroup",   "option", "p",
    "param",    "section",  "source",   "summary",    "table",    "tbody",      "td",     "tfoot",
    "th",       "thead",    "title",    "tr",         "track",    "ul",
};

/// Tags whose block ends at a closing tag (kind 1).
inline constexpr std::string_view html_raw_tags[] = {"pre", "script", "style", "textarea"};

[[nodiscard]] constexpr bool is_tag_character(char c) {
  const auto value = static_cast<unsigned char>(c);
  return is_ascii_letter(value) || is_ascii_digit(value) || c == '-';
}

/// Steps over one attribute of a tag, `name` or `name=value`; at its begin if there is none.
[[nodiscard]] inline std::size_t skip_attribute(std::string_view text, std::size_t at) {
  const auto in_name = [text](std::size_t i) {
    return i < text.size() &&
           (is_tag_character(text[i]) || text[i] == '_' || text[i] == ':' || text[i] == '.');
  };
  const std::size_t begin = at;
  if (!in_name(at) || text[at] == '-' || text[at] == '.' ||
      is_ascii_digit(static_cast<unsigned char>(text[at]))) {
    return begin;
  }
  while (in_name(at)) ++at;
  const std::size_t sign = skip_blanks(text, at);
  if (sign >= text.size() || text[sign] != '=') return at;
  const std::size_t value = skip_blanks(text, sign + 1);
  if (value >= text.size()) return begin;
  if (text[value] == '"' || text[value] == '\'') {
    const std::size_t close = text.find(text[value], value + 1);
    return close == std::string_view::npos ? begin : close + 1;
  }
  const std::size_t end = (std::min)(text.find_first_of(" \t\"'=<>`", value), text.size());
  return end == value ? begin : end;
}

/// True if a line is one complete tag and blanks (kind 7).
[[nodiscard]] inline bool is_lone_tag(std::string_view text) {
  const bool closing = text.size() > 1 && text[1] == '/';
  std::size_t at = closing ? 2 : 1;
  if (at >= text.size() || !is_ascii_letter(static_cast<unsigned char>(text[at]))) return false;
  while (at < text.size() && is_tag_character(text[at])) ++at;
  while (!closing && is_blank_at(text, at)) {
    const std::size_t begin = skip_blanks(text, at);
    const std::size_t end = skip_attribute(text, begin);
    at = end;
    if (end == begin) break;
  }
  at = skip_blanks(text, at);
  if (!closing && at < text.size() && text[at] == '/') ++at;
  return at < text.size() && text[at] == '>' && trim_blanks(text.substr(at + 1)).empty();
}

/// The kind of HTML block that a line opens, 1 to 7; 0: none.
[[nodiscard]] inline int html_block_kind(std::string_view text, bool in_paragraph) {
  if (text.size() < 2 || text[0] != '<') return 0;
  if (text.starts_with("<!--")) return 2;
  if (text[1] == '?') return 3;
  if (text.starts_with("<![CDATA[")) return 5;
  if (text[1] == '!') {
    return text.size() > 2 && is_ascii_letter(static_cast<unsigned char>(text[2])) ? 4 : 0;
  }
  const std::size_t begin = text[1] == '/' ? 2 : 1;
  std::string name;
  std::size_t end = begin;
  while (end < text.size() && end < begin + 16 && is_tag_character(text[end])) {
    name += ascii_lower(text[end++]);
  }
  const std::string_view after = text.substr(end);
  const bool ends = is_blank_at(text, end) || after[0] == '>';
  const auto is_in = [&name](const auto& list) {
    return std::binary_search(std::begin(list), std::end(list), std::string_view(name));
  };
  if (begin == 1 && ends && is_in(html_raw_tags)) return 1;
  if ((ends || after.starts_with("/>")) && is_in(html_block_tags)) return 6;
  return !in_paragraph && is_lone_tag(text) ? 7 : 0;
}

/// True if an open HTML block of the given kind ends with this line.
[[nodiscard]] inline bool html_block_ends(std::string_view line, int kind) {
  constexpr std::string_view last[] = {"-->", "?>", ">", "]]>"};
  if (kind >= 2 && kind <= 5) return line.find(last[kind - 2]) != std::string_view::npos;
  if (kind != 1) return trim_blanks(line).empty();
  for (std::size_t at = line.find("</"); at != std::string_view::npos;
       at = line.find("</", at + 1)) {
    for (std::string_view tag : html_raw_tags) {
      const std::string_view name = line.substr(at + 2, tag.size());
      const bool same = std::equal(name.begin(), name.end(), tag.begin(), tag.end(),
                                   [](char a, char b) { return ascii_lower(a) == b; });
      if (same && line.substr(at + 2 + tag.size()).starts_with('>')) return true;
    }
  }
  return false;
}

/// Whether a line that begins with a byte may be more than text of a paragraph.
inline constexpr auto may_open_block = [] {
  std::array<bool, 256> table{};
  for (char c : {' ', '\t', '\n', '\r', '#', '>', '*', '+', '-', '_', '=', '`', '~', '<'}) {
    table[static_cast<unsigned char>(c)] = true;
  }
  for (unsigned char c = '0'; c <= '9'; ++c) table[c] = true;
  return table;
}();

/// A markdown_heading, its title a view of the text.
struct found_heading {
  std::size_t level = 0;
  std::string_view title;
  byte_range lines;
  std::unique_ptr<std::string> joined;  // what `title` views instead, if it stands on several lines
};

/// The block structure of a text, line by line, as far as it decides what is a heading: the open
/// quotes and list items, and the open paragraph, fence or HTML block inside the innermost.
class heading_scanner {
 public:
  explicit heading_scanner(std::string_view text) : text_(text) {}

  /// Most lines are settled quickly: those in a fence, empty ones, and plain text.
  [[nodiscard]] std::vector<found_heading> scan(std::size_t begin) {
    line_reader lines(text_);
    for (std::size_t at = begin; at < text_.size(); at = line_.next) {
      const bool quick = open_.empty() && leaf_ != leaf::html;
      if (quick && (leaf_ == leaf::fence || text_[at] == '\n')) {
        line_.next = leaf_ == leaf::fence ? find_fence_end(text_, at, fence_).next : at + 1;
        leaf_ = leaf::none;
        continue;
      }
      line_ = lines.at(at);
      if (may_open_block[byte_at(text_, at)] || (!quick && open_.empty())) {
        read_line();
      } else if (leaf_ != leaf::paragraph) {  // else it goes on, if need be without its marks
        open_.clear();
        leaf_ = leaf::paragraph;
        paragraph_ = at;
      }
    }
    return std::move(headings_);
  }

 private:
  struct container {
    bool quote = false;
    std::size_t offset = 0;  // of a list item: the columns by which its content is indented
    bool empty = true;       // nothing in it so far
  };
  enum class leaf { none, paragraph, fence, html };

  /// Deeper quotes and items are text, so that a blank line costs a bounded number of steps.
  static constexpr std::size_t deepest = 64;

  void open_paragraph(std::size_t depth) {
    close_to(depth);
    leaf_ = leaf::paragraph;
    paragraph_ = line_.content.begin;
  }

  void read_line() {
    line_cursor line(slice(text_, line_.content));
    std::size_t depth = match_containers(line);
    const bool inside = depth == open_.size();
    if (inside && (leaf_ == leaf::fence || leaf_ == leaf::html) && continue_leaf(line)) return;

    bool paragraph = inside && leaf_ == leaf::paragraph;  // the line may go on with it ...
    bool lazy = !inside && leaf_ == leaf::paragraph;      // ... or do so without its marks
    while (!line.blank() && line.indent() < 4 && may_open_block[byte_at(line.rest(), 0)]) {
      if (!open_container(line, depth, paragraph)) {
        if (open_leaf(line, depth, paragraph, lazy)) return;
        break;
      }
      depth = open_.size();
      paragraph = lazy = false;
    }
    if (line.blank()) {
      leave_to(depth);
    } else if (!paragraph && !lazy) {
      line.indent() < 4 ? open_paragraph(depth) : close_to(depth);  // the second is code
    }
  }

  /// Steps over the marks of the containers that go on in this line; how many they are.
  [[nodiscard]] std::size_t match_containers(line_cursor& line) const {
    std::size_t depth = 0;
    for (; depth < open_.size(); ++depth) {
      const container& next = open_[depth];
      if (next.quote) {
        if (line.blank() || line.indent() > 3 || line.rest()[0] != '>') break;
        line.skip_marker(1);
        line.skip_columns(1);
      } else if (line.indent() >= next.offset) {
        line.skip_columns(next.offset);
      } else if (line.blank() && !next.empty) {
        line.skip_indent();
      } else {
        break;
      }
    }
    return depth;
  }

  /// Takes a line of an open fence or HTML block. False: the block has ended, the line is new.
  bool continue_leaf(const line_cursor& line) {
    const std::string_view rest = line.rest();
    if (leaf_ == leaf::fence) {
      if (line.indent() < 4 && closes_fence(rest, fence_)) leaf_ = leaf::none;
      return true;
    }
    if (html_block_ends(rest, html_)) leaf_ = leaf::none;
    return leaf_ != leaf::none || html_ < 6;
  }

  void leave_to(std::size_t depth) {
    while (open_.size() > depth) open_.pop_back();
    leaf_ = leaf::none;
  }

  /// A block that stands in the innermost container begins: what was open beside it ends.
  void close_to(std::size_t depth) {
    leave_to(depth);
    if (depth > 0) open_.back().empty = false;
  }

  bool open_container(line_cursor& line, std::size_t depth, bool paragraph) {
    if (depth >= deepest) return false;
    const std::string_view rest = line.rest();
    container next;
    next.quote = rest[0] == '>';
    if (next.quote) {
      line.skip_marker(1);
      line.skip_columns(1);
    } else {
      const std::size_t length = item_marker(rest, paragraph);
      if (length == 0 || is_thematic_break(rest)) return false;
      if (paragraph && setext_level(rest) != 0) return false;
      next.offset = line.indent() + length;
      line.skip_marker(length);
      const bool far_in = line.blank() || line.indent() > 4;  // then it is code, or nothing yet
      const std::size_t gap = far_in ? 1 : line.indent();
      next.offset += gap;
      line.skip_columns(gap);
    }
    close_to(depth);
    open_.push_back(next);
    return true;
  }

  /// Opens a heading, rule, fence or HTML block; false: the line is none of these.
  bool open_leaf(const line_cursor& line, std::size_t depth, bool paragraph, bool lazy) {
    const std::string_view rest = line.rest();
    if (const std::size_t level = atx_level(rest); level != 0) {
      close_to(depth);
      add_heading({level, atx_title(rest, level), {line_.content.begin, line_.next}, nullptr});
    } else if (const fence_mark fence = fence_of(rest); fence.mark != 0) {
      close_to(depth);
      leaf_ = leaf::fence;
      fence_ = fence;
    } else if (const int kind = html_block_kind(rest, paragraph || lazy); kind != 0) {
      close_to(depth);
      html_ = kind;
      if (kind > 5 || !html_block_ends(rest, kind)) leaf_ = leaf::html;
    } else if (const std::size_t underline = setext_level(rest); paragraph && underline != 0) {
      if (!skip_definitions()) return false;  // no text above: the line is text itself
      leaf_ = leaf::none;
      add_heading(paragraph_heading(underline));
    } else if (is_thematic_break(rest)) {
      close_to(depth);
    } else {
      return false;
    }
    return true;
  }

  /// Drops link definitions from the begin of the open paragraph; false if nothing else is in it.
  bool skip_definitions() {
    while (paragraph_ < line_.content.begin) {
      const text_line line = line_at(text_, paragraph_);
      if (!is_link_definition(slice(text_, line.content))) return true;
      paragraph_ = line.next;
    }
    return false;
  }

  /// The heading that the underline makes of the open paragraph.
  [[nodiscard]] found_heading paragraph_heading(std::size_t level) const {
    found_heading heading{level, {}, {paragraph_, line_.next}, nullptr};
    for (std::size_t at = paragraph_; at < line_.content.begin;) {
      const text_line line = line_at(text_, at);
      const std::string_view content = trim_blanks(slice(text_, line.content));
      if (heading.joined) {
        (*heading.joined += ' ') += content;
      } else if (line.next == line_.content.begin) {
        heading.title = content;
      } else {
        heading.joined = std::make_unique<std::string>(content);
      }
      at = line.next;
    }
    if (heading.joined) heading.title = *heading.joined;
    return heading;
  }

  void add_heading(found_heading heading) {
    if (headings_.empty()) headings_.reserve(16);
    if (open_.empty()) headings_.push_back(std::move(heading));
  }

  std::string_view text_;
  text_line line_;
  std::vector<container> open_;
  leaf leaf_ = leaf::none;
  fence_mark fence_;
  int html_ = 0;
  std::size_t paragraph_ = 0;  // begin of the open paragraph's first line
  std::vector<found_heading> headings_;
};

/// Where the text proper begins: after a byte order mark.
[[nodiscard]] inline std::size_t after_byte_order_mark(std::string_view text) {
  return text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
}

/// The same, and after front matter: from a first line "---" or "+++", with no blank line below it,
/// to the next such line.
[[nodiscard]] inline std::size_t after_front_matter(std::string_view text) {
  const std::size_t begin = after_byte_order_mark(text);
  text_line line = line_at(text, begin);
  const std::string_view mark = trim_blanks(slice(text, line.content));
  if ((mark != "---" && mark != "+++") || text[begin] != mark[0]) return begin;
  const std::string_view second = slice(text, line_at(text, line.next).content);
  if (trim_blanks(second).empty()) return begin;
  while (line.next < text.size()) {
    line = line_at(text, line.next);
    const std::string_view content = slice(text, line.content);
    if (content.starts_with(mark) && trim_blanks(content) == mark) return line.next;
  }
  return begin;
}

}  // namespace detail

/// The headings of a Markdown text that open sections, in order, by the rules of CommonMark. Front
/// matter and a byte order mark hide none. Cost: O(bytes).
///
/// "# Setup\n\n```\n# no heading\n```\n\nRun\n---\n" gives Setup (level 1) and Run (level 2).
[[nodiscard]] inline std::vector<markdown_heading> markdown_headings(std::string_view text) {
  std::vector<markdown_heading> headings;
  for (const detail::found_heading& found :
       detail::heading_scanner(text).scan(detail::after_front_matter(text))) {
    headings.push_back({found.level, std::string(found.title), found.lines});
  }
  return headings;
}

// ---- Pieces: what a text is made of, from coarse to fine ----------------------------------------

namespace detail {

enum class cut : std::uint8_t { blocks, items, lines, rows, sentences, tokens, words, graphemes };

/// A piece of a text, and the pieces it is cut into where it is too long itself.
struct piece {
  byte_range range;
  cut finer = cut::graphemes;
};

/// "| --- | :-: |": bars, dashes, colons and blanks only.
[[nodiscard]] inline bool is_table_rule(std::string_view line) {
  return line.find_first_not_of("|-: \t") == std::string_view::npos &&
         line.find('-') != std::string_view::npos && line.find('|') != std::string_view::npos;
}

/// The header row of a table: a row with bars, and below it a row of bars, dashes and colons only.
/// A heading may stand above it. Empty if the block is no table.
[[nodiscard]] inline byte_range table_header(std::string_view text, byte_range block) {
  text = text.substr(0, block.end);
  text_line head = line_at(text, block.begin);
  while (head.next < block.end &&
         (is_heading(slice(text, head.content), run_length(slice(text, head.content), 0, ' ')) ||
          trim(text, head.content).empty())) {
    head = line_at(text, head.next);
  }
  if (head.next >= block.end || slice(text, head.content).find('|') == std::string_view::npos) {
    return {};
  }
  const bool table = is_table_rule(slice(text, line_at(text, head.next).content));
  return table ? trim(text, head.content) : byte_range{};
}

/// True for a line that begins with a letter: whatever marks a line as more than text begins with
/// something else. (A byte above ASCII may begin a space or a bullet.)
[[nodiscard]] inline bool begins_with_letter(std::string_view line) {
  return !line.empty() && is_ascii_letter(static_cast<unsigned char>(line[0]));
}

/// The blocks of a section, one line at a time: paragraphs, fences, lists, tables. A heading line
/// stays with what follows it.
class block_reader {
 public:
  block_reader(std::string_view text, byte_range within)
      : text_(text.substr(0, within.end)), begin_(within.begin) {
    blocks_.reserve((std::min)(within.size() / 64, std::size_t{1024}) + 1);
  }

  [[nodiscard]] std::vector<piece> read() {
    line_reader lines(text_);
    for (std::size_t at = begin_; at < text_.size();) {
      const bool fenced = fence_.mark != 0;
      if (!fenced && text_[at] == '\n') {
        pass_blank(++at);
        continue;
      }
      const text_line line = fenced ? find_fence_end(text_, at, fence_) : lines.at(at);
      fenced ? close_fence(line) : read_line(line);
      at = line.next;
    }
    close(text_.size());
    return std::move(blocks_);
  }

 private:
  void read_line(const text_line& line) {
    const std::string_view content = slice(text_, line.content);
    const bool letter = begins_with_letter(content);
    if (!letter && trim(text_, line.content).empty()) return pass_blank(line.next);
    text_end_ = line.content.end;
    if (letter && finer_ != cut::items) {
      after_heading_ = false;
      return;
    }
    const std::size_t at = skip_blanks(content, 0);
    const bool item =
        opens_item(content, at, finer_ == cut::sentences && begin_ < line.content.begin);
    const fence_mark fence = fence_of(content);
    const bool in_list = finer_ == cut::items && (at > 1 || item || !(after_blank_ || fence.mark));
    if (in_list) {
      after_blank_ = false;
    } else if (fence.mark != 0) {
      open(line.content.begin, cut::lines);
      fence_ = fence;
    } else if (item) {
      open(line.content.begin, cut::items);
    } else if (is_heading(content, at)) {
      open(line.content.begin, cut::sentences);
      after_heading_ = true;
    } else {
      if (finer_ == cut::items) close(line.content.begin);
      after_heading_ = false;
      if (has_rule_ || finer_ != cut::sentences || !is_table_rule(content.substr(at))) return;
      part_table(line);
      has_rule_ = true;
    }
  }

  /// A table may stand right below lines of text: with its header row, above the rule, a block
  /// opens.
  void part_table(const text_line& rule) {
    std::string_view above = text_.substr(0, rule.content.begin);
    above = above.substr(0, above.find_last_not_of("\r\n") + 1);
    const std::size_t header = above.find_last_of("\r\n") + 1;
    const bool row = header > begin_ && above.substr(header).find('|') != std::string_view::npos;
    if (row && table_header(text_, {begin_, rule.next}).empty()) close(header);
  }

  void pass_blank(std::size_t next) {
    after_blank_ = true;
    if (finer_ != cut::items && !after_heading_) close(next);
  }

  void close_fence(const text_line& line) {
    text_end_ = line.content.end;
    fence_ = {};
    close(line.next);
  }

  void open(std::size_t at, cut finer) {
    if (!after_heading_) close(at);
    finer_ = finer;
    after_heading_ = after_blank_ = false;
  }

  void close(std::size_t end) {
    const byte_range block = trim(text_, {begin_, (std::clamp)(text_end_, begin_, end)});
    const bool table = has_rule_ && !table_header(text_, block).empty();
    if (!block.empty()) blocks_.push_back({block, table ? cut::rows : finer_});
    begin_ = end;
    finer_ = cut::sentences;
    after_heading_ = after_blank_ = has_rule_ = false;
  }

  std::string_view text_;
  std::size_t begin_;         // of the open block
  std::size_t text_end_ = 0;  // of the last line with text
  cut finer_ = cut::sentences;
  fence_mark fence_;
  bool after_heading_ = false;  // the open block is a heading line so far
  bool after_blank_ = false;
  bool has_rule_ = false;  // a line below which the rows of a table would begin
  std::vector<piece> blocks_;
};

/// The lines of a block; with `items` only lines that open an item begin a piece.
[[nodiscard]] inline std::vector<piece> line_pieces(std::string_view text, byte_range within,
                                                    bool items) {
  std::vector<piece> pieces;
  text = text.substr(0, within.end);
  std::size_t begin = within.begin;
  const auto close = [&](std::size_t end) {
    const byte_range range = trim(text, {begin, end});
    if (!range.empty()) pieces.push_back({range, items ? cut::sentences : cut::words});
    begin = end;
  };
  line_reader lines(text);
  for (std::size_t at = within.begin; at < text.size();) {
    const text_line line = lines.at(at);
    const std::string_view content = slice(text, line.content);
    const std::size_t indent = skip_blanks(content, 0);
    if (!items || (indent < 2 && indent < content.size() && opens_item(content, indent, false))) {
      close(at);
    }
    at = line.next;
  }
  close(text.size());
  return pieces;
}

/// The rows of a table. The first piece is the header row and the line below it.
[[nodiscard]] inline std::vector<piece> row_pieces(std::string_view text, byte_range table) {
  std::vector<piece> pieces = line_pieces(text, table, false);
  const std::size_t below = line_at(text, table_header(text, table).begin).next;
  const auto first_row = std::find_if(pieces.begin(), pieces.end(),
                                      [&](const piece& line) { return line.range.begin > below; });
  pieces.front().range.end = std::prev(first_row)->range.end;
  pieces.front().finer = cut::lines;
  pieces.erase(pieces.begin() + 1, first_row);
  return pieces;
}

/// True if a sentence is a heading line, or lines with a setext underline.
[[nodiscard]] inline bool is_heading_sentence(std::string_view text) {
  if (text[0] == '#') return is_heading(text, 0);
  if (text.back() != '=' && text.back() != '-') return false;
  const std::size_t last = text.find_last_of("\r\n");
  const std::string_view line = last == std::string_view::npos ? "" : text.substr(last + 1);
  return !trim_blanks(line).empty() && setext_level(trim_blanks(line)) != 0;
}

/// The tokens of a text, each widened to grapheme boundaries and without outer white space.
[[nodiscard]] inline result<std::vector<piece>> token_pieces(const token_splitter& split,
                                                             std::string_view text,
                                                             byte_range within) {
  std::vector<piece> pieces;
  text = text.substr(0, within.end);
  std::size_t begin = within.begin;
  std::size_t edge = within.begin;  // a grapheme boundary
  std::size_t last = within.begin;
  const auto close = [&](std::size_t end) {
    const byte_range range = trim(text, {begin, end});
    if (!range.empty()) pieces.push_back({range, cut::graphemes});
    begin = end;
  };
  for (const byte_range& token : split(slice(text, within))) {
    if (token.begin >= token.end || token.end > within.size() ||
        within.begin + token.begin < last) {
      return error(errc::bad_counter, "the token splitter answered [" + text_of(token.begin) +
                                          ", " + text_of(token.end) + ") in a text of " +
                                          text_of(within.size()) +
                                          " bytes; tokens are expected in order, apart, not empty");
    }
    last = within.begin + token.end;
    while (edge < last) edge = next_grapheme(text, edge);
    if (edge == last) close(last);
  }
  close(text.size());
  return pieces;
}

/// The pieces of one kind in a part of a text, found as they are asked for. Asking forward, or
/// back a little, is cheap.
class piece_source {
 public:
  piece_source(std::string_view text, byte_range within, cut kind, std::vector<piece> pieces)
      : text_(text.substr(0, within.end)), kind_(kind), pieces_(std::move(pieces)) {}

  /// The first piece that begins at or after `at`, a piece's edge; an empty one if there is none.
  [[nodiscard]] piece next(std::size_t at) {
    if (kind_ == cut::words) return {next_uncut_word(text_, at), cut::graphemes};
    if (kind_ == cut::graphemes) return {next_grapheme_piece(at), cut::graphemes};
    while (cursor_ < pieces_.size() && pieces_[cursor_].range.begin < at) ++cursor_;
    while (cursor_ > 0 && pieces_[cursor_ - 1].range.begin >= at) --cursor_;
    return cursor_ < pieces_.size() ? pieces_[cursor_] : piece{};
  }

  /// The text up to where the pieces end, if these are words.
  [[nodiscard]] std::optional<std::string_view> words() const {
    return kind_ == cut::words ? std::optional(text_) : std::nullopt;
  }

 private:
  [[nodiscard]] byte_range next_grapheme_piece(std::size_t at) const {
    while (at < text_.size()) {
      const std::size_t end = next_grapheme(text_, at);
      if (!trim(text_, {at, end}).empty()) return {at, end};
      at = end;
    }
    return {at, at};
  }

  std::string_view text_;
  cut kind_;
  std::vector<piece> pieces_;
  std::size_t cursor_ = 0;
};

// ---- Sections: the tree of headings, written as a list in the order of the text -----------------

struct section {
  found_heading heading;  // level 0: the document itself, always the first of the list
  std::string anchor;
  byte_range own;          // its own text, up to the next section of the list
  std::size_t parent = 0;  // as a number of the list
  std::size_t next = 0;    // the first section of the list that is not inside it
};

/// Appends the lower case of one character where that is one character again.
inline void append_lower(std::string& out, const code_point& point, std::string_view bytes) {
  const std::size_t size = out.size();
  append_folded(out, point.value);
  if (decode(out, size).length != out.size() - size) out.replace(size, std::string::npos, bytes);
}

/// What stands in an anchor for each byte of ASCII in a title; 0: nothing, 1: it depends.
inline constexpr auto anchor_bytes = [] {
  std::array<char, 256> table{};
  for (std::size_t byte = 0x80; byte < table.size(); ++byte) table[byte] = 1;
  for (const char c : {']', '<'}) table[static_cast<unsigned char>(c)] = 1;
  for (unsigned char c = '!'; c < 0x80; ++c) {
    const char as = ascii_lower(static_cast<char>(c));
    if (is_tag_character(as) || c == '_') table[c] = as;
  }
  table[' '] = '-';
  return table;
}();

/// The anchor of a title as GitHub forms it: lower case, letters, digits, '-' and '_' kept, spaces
/// as '-', of a link its text, no tags. "PAY-042: Stored (key)" gives "pay-042-stored-key".
[[nodiscard]] inline std::string anchor_of(std::string_view title) {
  std::string anchor(title);
  std::size_t kept = 0;
  bool plain = true;
  for (const char c : title) {
    const char as = anchor_bytes[static_cast<unsigned char>(c)];
    anchor[kept] = as;
    kept += as != 0 ? 1 : 0;
    plain &= as != 1;
  }
  anchor.resize(plain ? kept : 0);
  if (plain) return anchor;
  bool in_code = false;
  std::size_t last_close = title.size();  // no ')' or '>' stands past it
  for (std::size_t at = 0; at < title.size();) {
    const char c = title[at];
    const char next = at + 1 < title.size() ? title[at + 1] : ' ';
    const bool link = c == ']' && next == '(';
    const bool tag = c == '<' && !in_code && (next == '/' || next == '!' || is_tag_character(next));
    if ((link || tag) && at < last_close) {
      const std::size_t close = title.find(link ? ')' : '>', at);
      if (close != std::string_view::npos) {
        at = close + 1;
        continue;
      }
      last_close = at;
    }
    if (c == '`') in_code = !in_code;
    const code_point point = decode(title, at);
    if (c == ' ') {
      anchor += '-';
    } else if (c == '-' || c == '_' || (point.valid && is_letter_or_digit(point.value))) {
      append_lower(anchor, point, title.substr(at, point.length));
    }
    at += point.length;
  }
  return anchor;
}

/// Numbers equal anchors as GitHub does: "notes", "notes-1", "notes-2".
class anchor_register {
 public:
  explicit anchor_register(std::size_t count) : slots_(std::bit_ceil(2 * count + 1), free) {
    used_.reserve(count);
  }

  void add(std::string anchor) {
    std::size_t slot = slot_of(anchor);
    if (slots_[slot] != free) {
      std::size_t& last = used_[slots_[slot]].last;
      const std::string base = std::move(anchor) + '-';
      do {
        slot = slot_of(anchor = base + text_of(++last));
      } while (slots_[slot] != free);
    }
    slots_[slot] = used_.size();
    used_.push_back({std::move(anchor)});
  }

  /// What the next one in order has become.
  [[nodiscard]] std::string take(std::size_t number) { return std::move(used_[number].anchor); }

 private:
  struct entry {
    std::string anchor;
    std::size_t last = 0;  // number given to one that is equal
  };
  static constexpr std::size_t free = static_cast<std::size_t>(-1);

  /// Where the anchor's number stands, or else belongs: the first free slot from its hash on.
  [[nodiscard]] std::size_t slot_of(const std::string& anchor) const {
    std::size_t slot = std::hash<std::string>{}(anchor) & (slots_.size() - 1);
    while (slots_[slot] != free && used_[slots_[slot]].anchor != anchor) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }

  std::vector<entry> used_;         // in the order of the headings
  std::vector<std::size_t> slots_;  // numbers of these; at most half are taken
};

/// A title that is cut after about a kilobyte, at a character: every chunk below it carries it.
[[nodiscard]] inline std::string_view path_title_of(std::string_view title) {
  constexpr std::size_t longest = 1024;
  std::size_t end = (std::min)(title.size(), longest);
  while (end > 0 && end < title.size() &&
         (static_cast<unsigned char>(title[end]) & 0xC0U) == 0x80) {
    --end;
  }
  return title.substr(0, end);
}

/// The document and its sections down to a level. Deeper headings are text.
[[nodiscard]] inline std::vector<section> sections_of(std::string_view text,
                                                      std::size_t max_level) {
  const std::size_t begin = after_front_matter(text);
  std::vector<found_heading> headings = heading_scanner(text).scan(begin);
  std::vector<section> sections;
  sections.reserve(headings.size() + 1);
  sections.emplace_back().own.begin = begin;
  std::size_t open = 0;  // the innermost
  const auto close_to_level = [&](std::size_t level) {
    for (; open != 0 && sections[open].heading.level >= level; open = sections[open].parent) {
      sections[open].next = sections.size();
    }
  };
  anchor_register anchors(headings.size());
  for (const found_heading& heading : headings) {
    anchors.add(anchor_of(path_title_of(heading.title)));
  }
  for (std::size_t i = 0; i < headings.size(); ++i) {
    found_heading& heading = headings[i];
    if (heading.level > max_level) continue;
    close_to_level(heading.level);
    sections.back().own.end = heading.lines.begin;
    section& next = sections.emplace_back();
    next.own.begin = heading.lines.end;
    heading.lines.begin = trim(text, heading.lines).begin;
    next.heading = std::move(heading);
    next.anchor = anchors.take(i);
    next.parent = open;
    open = sections.size() - 1;
  }
  close_to_level(0);
  sections[0].next = sections.size();
  sections.back().own.end = text.size();
  return sections;
}

// ---- The builder: measures, cuts, and writes the chunk records ----------------------------------

/// Where a text stands: in which section, and what its search text has above it.
struct place {
  byte_range lines;         // of the heading; empty once a chunk has opened with them
  std::size_t section = 0;  // whose path and anchor the chunk gets
  std::size_t group = 0;    // the section inside which it may merge with neighbours ...
  bool whole = false;       // ... of the same wholeness: undivided ones, or parts of one text
  std::size_t first = 0;    // the sections that it holds whole: [first, last), none if empty
  std::size_t last = 0;
  std::string heading = {};
  friend bool operator==(const place&, const place&) = default;
};

/// The sizes of a chunker, as far as it has them.
struct chunk_sizes {
  std::string_view chunker;
  std::size_t chunk_size = 0;
  std::size_t overlap = 0;
  cut overlap_from = cut::words;  // the coarsest pieces that may be repeated
  std::size_t min_chunk_size = 0;
  std::size_t max_heading_level = 6;
  std::string_view size_name = "chunk_size";  // what the caller calls it
  bool has_parts = true;                      // false: the one chunk has the document's id
};

[[nodiscard]] inline result<void> check_sizes(const chunk_sizes& sizes) {
  const auto refuse = [&](std::string_view option, std::size_t value, const std::string& expected) {
    return error(errc::invalid_argument, std::string(sizes.chunker) + ": " + std::string(option) +
                                             " " + text_of(value) + " must be " + expected);
  };
  const auto chunk_size = [&] {
    return std::string(sizes.size_name) + " " + text_of(sizes.chunk_size);
  };
  if (sizes.chunk_size == 0) return refuse(sizes.size_name, 0, "at least 1");
  if (sizes.overlap >= sizes.chunk_size) {
    return refuse("overlap", sizes.overlap, "below " + chunk_size());
  }
  if (sizes.min_chunk_size > sizes.chunk_size) {
    return refuse("min_chunk_size", sizes.min_chunk_size, "at most " + chunk_size());
  }
  if (sizes.max_heading_level < 1 || sizes.max_heading_level > 6) {
    return refuse("max_heading_level", sizes.max_heading_level, "1 to 6");
  }
  return {};
}

}  // namespace detail

/// Names a chunk (E41, E42 ...). Everything else of it is filled in. An empty answer keeps the
/// derived id; two equal ids in one document are errc::duplicate_id.
using chunk_namer = std::function<std::string(const document&, const chunk&)>;

namespace detail {

class chunk_builder {
 public:
  chunk_builder(const document& source, const chunk_sizes& sizes, const tokenizer& tokens,
                const sentence_options& sentences)
      : source_(source),
        text_(source.text),
        sizes_(sizes),
        tokens_(tokens),
        sentences_(sentences) {}

  [[nodiscard]] std::string_view text() const { return text_; }
  [[nodiscard]] std::size_t limit() const { return sizes_.chunk_size; }
  [[nodiscard]] bool counts_words() const { return !tokens_.count && !tokens_.split; }
  [[nodiscard]] byte_range content() const {
    return trim(text_, {after_byte_order_mark(text_), text_.size()});
  }

  /// True if the body with its heading is within the size.
  [[nodiscard]] bool fits(const place& above, byte_range body) {
    if (counts_words()) {
      const std::size_t words = words_in(body);  // of the heading's lines every byte may be one
      return words_above(above.heading) + above.lines.size() + words <= limit() ||
             heading_words(above) + words <= limit();
    }
    const std::size_t long_way =
        reach() * 4;  // a text so long that its begin alone may be too much
    if (body.size() > long_way) {
      const std::size_t end = text_.find_first_of(" \n", body.begin + long_way);
      if (end < body.end && tokens_of(above, {body.begin, end}) > limit()) return false;
    }
    return tokens_of(above, body) <= limit();
  }

  /// True if the heading leaves room for the body's first word, or for as much of that word as
  /// could stand without a heading.
  [[nodiscard]] bool has_room(const place& above, byte_range body) {
    byte_range first = next_uncut_word(text_.substr(0, body.end), body.begin);
    if (!fits({}, first)) first.end = next_grapheme(text_, first.begin);
    return fits(above, first);
  }

  /// A text under its heading: as one chunk if it fits, else block by block. A heading that leaves
  /// no room for it becomes text of its own, and the body stands without it.
  void write(place above, byte_range body) {
    body = trim(text_, body);
    if (body.empty()) return;
    const bool whole = counts_words() && fits(above, body);  // then its first word has room, too
    if (!whole && !above.heading.empty() && !has_room(above, body)) drop_heading(above);
    if (whole || fits(above, body)) return emit(std::move(above), body);
    above.group = above.section;
    above.whole = false;
    split(body, cut::blocks, above);
  }

  /// One piece: as a chunk if it fits, else cut into finer ones.
  void write(byte_range range, cut finer) {
    place none;
    fits(none, range) ? emit(none, range) : split(range, finer, none);
  }

  /// Packs pieces of one kind into chunks, as many as fit. A piece that is too long by itself is
  /// cut into finer ones: the only recursion, as deep as there are kinds.
  void split(byte_range within, cut kind, place& above) {
    if (kind == cut::rows) return split_table(within, above);
    piece_source pieces = pieces_of(within, kind);
    pack(pieces, within.begin, kind, above);
  }
  void pack(piece_source& pieces, std::size_t from, cut kind, place& above) {
    piece first = pieces.next(from);
    std::size_t known = 0;  // up to here the overlap is known to leave room
    while (!first.range.empty()) {
      const std::size_t end = (std::max)(furthest(above, first.range, pieces), known);
      if (end == first.range.begin) {
        kind == cut::graphemes ? emit_alone(above, first.range)
                               : split(first.range, first.finer, above);
        first = pieces.next(first.range.end);
        continue;
      }
      const std::size_t begin = first.range.begin;
      emit(above, {begin, end});
      const piece next = pieces.next(end);
      const bool repeats = sizes_.overlap > 0 && kind >= sizes_.overlap_from;
      known = repeats ? next.range.end : 0;
      first = next;
      if (!repeats || next.range.empty()) continue;
      first = pieces.next(overlap_begin(above, {begin, end}, next, pieces));
      if (first.range.begin == next.range.begin) known = 0;
    }
  }

  /// A table row by row. All chunks but the first have its header row above them; a row that has
  /// no room below it goes without.
  void split_table(byte_range table, place& above) {
    const byte_range header = table_header(text_, table);
    piece_source rows = pieces_of(table, cut::rows);
    const piece first = rows.next(table.begin);
    std::size_t end = furthest(above, first.range, rows);
    if (end > first.range.begin) {
      emit(above, {first.range.begin, end});
    } else {
      end = first.range.end;
      split(first.range, first.finer, above);
    }
    place below = above;
    if (!below.heading.empty()) below.heading += "\n\n";
    below.heading += slice(text_, header);
    for (piece row = rows.next(end); !row.range.empty(); row = rows.next(end)) {
      end = furthest(below, row.range, rows);
      if (end > row.range.begin) {
        emit(below, {row.range.begin, end});
      } else {
        end = row.range.end;
        fits(above, row.range) ? emit(above, row.range) : split(row.range, row.finer, above);
      }
    }
  }

  /// A text packed into chunks: its sentences, but a list, a table, fenced code, and a heading with
  /// what follows it, each as one.
  void pack_text(byte_range within) {
    std::vector<piece> pieces;
    byte_range heading;  // of one or more lines, which wait for what follows
    const auto add = [&](byte_range range, cut finer, cut below_heading) {
      const bool bare = heading.empty();
      pieces.push_back(
          {{bare ? range.begin : heading.begin, range.end}, bare ? finer : below_heading});
      heading = {};
    };
    const std::vector<byte_range> sentences = sentence_ranges(text_, within, sentences_);
    const std::vector<piece> blocks = block_reader(text_, within).read();
    pieces.reserve(sentences.size());
    auto block = blocks.begin();
    std::size_t done = within.begin;
    for (const byte_range& sentence : sentences) {
      while (block->range.end <= sentence.begin) ++block;
      const bool whole = block->finer != cut::sentences && sentence.begin == block->range.begin;
      if (whole) {
        add(block->range, block->finer, cut::blocks);
        done = block->range.end;
      }
      if (sentence.begin < done) {  // inside that block; some run on past it
        if (sentence.end <= done) continue;
        pieces.back() = {{pieces.back().range.begin, sentence.end}, cut::sentences};
      } else if (is_heading_sentence(slice(text_, sentence))) {
        heading = {heading.empty() ? sentence.begin : heading.begin, sentence.end};
      } else {
        add(sentence, cut::words, cut::sentences);
      }
      done = sentence.end;
    }
    if (!heading.empty()) pieces.push_back({heading, cut::sentences});
    piece_source all(text_, within, cut::sentences, std::move(pieces));
    place none;
    pack(all, within.begin, cut::sentences, none);
  }

  /// Sentences, packed into chunks.
  void write_packed(std::span<const byte_range> sentences) {
    std::vector<piece> pieces;
    for (const byte_range& sentence : sentences) pieces.push_back({sentence, cut::words});
    const byte_range within{sentences.front().begin, sentences.back().end};
    piece_source all(text_, within, cut::sentences, std::move(pieces));
    place none;
    pack(all, within.begin, cut::sentences, none);
  }

  /// Joins each chunk below the minimum, from the first on, with the neighbour across the smaller
  /// gap (the one before, if they are equal), or else with the other, while both fit into one.
  /// Those after it are gathered by the sum of their counts, so that few joined texts are counted.
  void merge_nearest() {
    const std::size_t least = sizes_.min_chunk_size;
    std::vector<draft> out;
    for (std::size_t i = 0; i < drafts_.size();) {
      draft here = std::move(drafts_[i++]);
      bool before = !out.empty();  // on this side it may still fit with its neighbour
      bool after = true;
      while (here.token_count < least && (before || (after && i < drafts_.size()))) {
        std::size_t end = i;
        for (std::size_t sum = here.token_count; after && end < drafts_.size() && sum < least &&
                                                 !(before && here.gap <= drafts_[end].gap);
             ++end) {
          sum += drafts_[end].token_count;
        }
        std::optional<draft> joined;
        if (const std::size_t wanted = end; wanted > i) {
          joined = merged_run(here, i, end);
          after = end == wanted;
          i = end;
        } else {
          joined = merged(out.back(), here);
          if (joined) out.pop_back();
          before = joined && !out.empty();
        }
        if (joined) here = std::move(*joined);
      }
      out.push_back(std::move(here));
    }
    drafts_ = std::move(out);
  }

  /// Writes one chunk.
  template <class Place>
  void emit(Place&& above, byte_range body) {
    const std::size_t begin = above.lines.empty() ? body.begin : above.lines.begin;
    const std::size_t tokens = count_below(above.heading, body);
    above.lines = {};
    if (places_.empty() || places_.back() != above) places_.push_back(std::forward<Place>(above));
    drafts_.push_back(
        {.begin = begin, .body = body, .token_count = tokens, .place = places_.size() - 1});
  }

  /// The chunks so far. There may be many: what neighbours share stands in their place.
  struct draft {
    std::size_t begin = 0;  // of its range, which ends with its body
    byte_range body = {};
    std::size_t token_count = 0;
    std::size_t place = 0;   // as a number of the list of places
    std::size_t parent = 0;  // as a number of the parents' list, if there is one
    double gap = 0;          // how far in meaning from the chunk before, if that is known
    bool oversize = false;
  };
  [[nodiscard]] std::vector<draft>& drafts() { return drafts_; }
  void reserve(std::size_t count) {
    drafts_.reserve(count);
    places_.reserve(count);
  }
  [[nodiscard]] const place& place_of(const draft& of) const { return places_[of.place]; }

  /// Blocks that one builder has read need not be read by the next.
  void share_blocks(std::vector<piece>& known) { known_blocks_ = &known; }

  /// Keeps the first failure of a callback; finish() then answers with it.
  void fail(const error& failure) {
    if (!failure_) {
      failure_ = error(failure.code(), std::string(sizes_.chunker) + ": " + failure.message());
    }
  }

  /// Gives out the ids of one document's chunks.
  struct id_register {
    std::vector<std::size_t> parts;  // of each section; those without an anchor count as one
    detail::key_set<std::string> used;
  };

  /// The chunk records, with paths and ids; each of the parents, if there are any, stands before
  /// its children.
  [[nodiscard]] result<std::vector<chunk>> finish(const std::vector<section>& sections,
                                                  const chunk_namer& name, id_register& ids,
                                                  std::vector<chunk> parents = {}) {
    if (sizes_.min_chunk_size > 1) merge_small();
    if (failure_) return *failure_;
    std::vector<chunk> chunks;
    chunks.reserve(parents.size() + drafts_.size());
    ids.parts.resize(sections.size());
    std::size_t moved = 0;   // so many of the parents are among the chunks
    std::size_t parent = 0;  // where the last of them is
    const auto move_parents = [&](std::size_t end) {
      for (; moved < end; ++moved) {
        parent = chunks.size();
        chunks.push_back(std::move(parents[moved]));
      }
    };
    for (std::size_t i = 0; i < drafts_.size(); ++i) {
      const draft& next = drafts_[i];
      const bool last = i + 1 == drafts_.size() || drafts_[i + 1].place > next.place;
      if (next.token_count > limit() && !next.oversize) return contradiction(next.token_count);
      if (!parents.empty()) move_parents(next.parent + 1);
      chunk& record = chunks.emplace_back();
      fill(record, next, last, sections);
      if (!parents.empty()) record.parent_id = chunks[parent].id;
      derive_id(record, place_of(next).section, ids);
      if (name) {
        if (std::string given = name(source_, record); !given.empty()) record.id = std::move(given);
        if (!ids.used.insert(record.id)) {
          return error(errc::duplicate_id, std::string(sizes_.chunker) +
                                               ": the namer gave the id " +
                                               detail::in_quotes(record.id) +
                                               " twice; one id for each chunk was expected");
        }
      }
    }
    move_parents(parents.size());
    return chunks;
  }

  /// The size of a chunker without one.
  static constexpr std::size_t no_limit = static_cast<std::size_t>(-1);

 private:
  /// What a chunk is but for its id. The last one of its place takes the heading from there.
  void fill(chunk& record, const draft& from, bool last, const std::vector<section>& sections) {
    place& above = places_[from.place];
    record.document_id = source_.id;
    record.revision = source_.revision;
    record.range = {from.begin, from.body.end};
    record.body = from.body;
    last ? record.heading = std::move(above.heading) : record.heading = above.heading;
    record.token_count = from.token_count;
    record.oversize = from.oversize;
    record.anchor = sections[above.section].anchor;
    std::size_t depth = 0;
    for (std::size_t i = above.section; i != 0; i = sections[i].parent) ++depth;
    record.heading_path.resize(depth);
    for (std::size_t i = above.section; i != 0; i = sections[i].parent) {
      record.heading_path[--depth] = path_title_of(sections[i].heading.title);
    }
  }

  void derive_id(chunk& record, std::size_t section, id_register& ids) const {
    std::size_t& part = ids.parts[record.anchor.empty() ? 0 : section];
    const std::string number = ++part > 1 ? "~" + text_of(part) : "";
    record.id.reserve(source_.id.size() + 1 + record.anchor.size() + number.size());
    record.id = source_.id;
    if (sizes_.has_parts) ((record.id += '#') += record.anchor) += number;
  }

  [[nodiscard]] error contradiction(std::size_t tokens) const {
    return error(errc::bad_counter, std::string(sizes_.chunker) + ": the token counter answered " +
                                        text_of(tokens) + " for a text that it had found within " +
                                        std::string(sizes_.size_name) + " " + text_of(limit()) +
                                        "; the same count was expected");
  }

  // -- measuring

  /// Of a heading as it stands above the text, or in it, if that is more.
  [[nodiscard]] std::size_t heading_words(const place& above) {
    if (above.lines != counted_lines_.part) {
      counted_lines_ = {above.lines, count_words(slice(text_, above.lines))};
    }
    return (std::max)(words_above(above.heading), counted_lines_.words);
  }
  [[nodiscard]] std::size_t words_above(const std::string& heading) {
    if (heading != counted_heading_) {
      counted_heading_ = heading;
      counted_heading_words_ = count_words(heading);
    }
    return counted_heading_words_;
  }

  [[nodiscard]] std::size_t count(std::string_view text) const {
    return count_tokens(tokens_, text);
  }

  /// How many words there are in a part of the text; where they are above the limit, maybe not all.
  struct counted_text {
    byte_range part = {};
    std::size_t words = 0;
  };

  [[nodiscard]] std::size_t words_in(byte_range part) {
    if (part == added_up_.part) return added_up_.words;
    if (part != counted_.part) counted_ = {part, words_up_to(slice(text_, part), limit())};
    return counted_.words;
  }

  /// The tokens of a chunk's search text. Words on the two sides of a blank line add up.
  [[nodiscard]] std::size_t count_below(const std::string& heading, byte_range body) {
    if (counts_words()) {
      const std::size_t words = words_in(body);
      return words_above(heading) + (words <= limit() ? words : count_words(slice(text_, body)));
    }
    if (heading.empty()) return count(slice(text_, body));
    joined_ = heading;
    joined_ += "\n\n";
    joined_ += slice(text_, body);
    return count(joined_);
  }

  /// The tokens of a chunk that is not written yet: of its search text or its slice, if that is
  /// more.
  [[nodiscard]] std::size_t tokens_of(const place& above, byte_range body) {
    const std::size_t tokens = count_below(above.heading, body);
    if (tokens > 0) {
      const std::size_t bytes =
          above.heading.size() + (above.heading.empty() ? 0 : 2) + body.size();
      bytes_per_token_ = static_cast<double>(bytes) / static_cast<double>(tokens);
    }
    if (above.lines.empty() || tokens > limit()) return tokens;
    return (std::max)(tokens, count(slice(text_, {above.lines.begin, body.end})));
  }

  /// About how many bytes the size is worth, as counts so far tell.
  [[nodiscard]] std::size_t reach() const {
    const double bytes = bytes_per_token_ * static_cast<double>(limit());
    const double most = static_cast<double>(text_.size()) + 1;
    return static_cast<std::size_t>((std::min)((std::max)(bytes, 1.0), most));
  }

  // -- cutting

  /// The blocks of a text. One that begins with a line and a block that are known, and ends with
  /// such a block, has those; others are read.
  [[nodiscard]] std::vector<piece> blocks_of(byte_range within) {
    if (known_blocks_ == nullptr) return block_reader(text_, within).read();
    std::vector<piece>& known = *known_blocks_;
    const auto first =
        std::lower_bound(known.begin(), known.end(), within.begin,
                         [](const piece& block, std::size_t at) { return block.range.begin < at; });
    const auto last =
        std::lower_bound(first, known.end(), within.end,
                         [](const piece& block, std::size_t at) { return block.range.end < at; });
    if (last != known.end() && first->range.begin == within.begin &&
        last->range.end == within.end && (within.begin == 0 || text_[within.begin - 1] == '\n')) {
      return {first, last + 1};
    }
    std::vector<piece> blocks = block_reader(text_, within).read();
    if (known.empty() || known.back().range.end <= within.begin) {
      known.insert(known.end(), blocks.begin(), blocks.end());
    }
    return blocks;
  }

  [[nodiscard]] piece_source pieces_of(byte_range within, cut kind) {
    std::vector<piece> pieces;
    if (kind == cut::blocks) pieces = blocks_of(within);
    if (kind == cut::rows) pieces = row_pieces(text_, within);
    if (kind == cut::items || kind == cut::lines) {
      pieces = line_pieces(text_, within, kind == cut::items);
    }
    if (kind == cut::sentences) {
      for (const byte_range& sentence : sentence_ranges(text_, within, sentences_)) {
        pieces.push_back({sentence, cut::words});
      }
    }
    if (kind == cut::tokens) {
      result<std::vector<piece>> tokens = token_pieces(tokens_.split, text_, within);
      tokens ? pieces = std::move(*tokens) : (fail(tokens.failure()), pieces);
    }
    return {text_, within, kind, std::move(pieces)};
  }

  /// The end of the longest run of pieces from `first` on that fits below the heading; the begin of
  /// `first` if that alone is too long.
  [[nodiscard]] std::size_t furthest(const place& above, byte_range first, piece_source& pieces) {
    if (!counts_words()) return furthest_by_counter(above, first, pieces);
    const std::size_t used = heading_words(above);
    std::size_t room = limit() - (std::min)(used, limit());
    std::size_t end = first.begin;
    std::size_t blocks = first.begin;  // from here on words may be passed over by blocks
    bool apart = true;  // all pieces are, by white space: then their words are those of the whole
    for (byte_range next = first; room > 0 && !next.empty(); next = pieces.next(next.end).range) {
      apart = apart && (next.begin > end || end == first.begin);
      if (pieces.words() && next.begin >= blocks) {
        const word_stretch run = skip_words(*pieces.words(), next.begin, room);
        if (run.count == 0) {
          blocks = next.begin + word_block;
        } else {
          room -= run.count;
          end = run.end;
          if (room == 0) break;
          next = pieces.next(run.next).range;
        }
      }
      const std::size_t words = words_in(next);
      if (words > room) break;
      room -= words;
      end = next.end;
    }
    if (apart && end > first.begin) added_up_ = {{first.begin, end}, limit() - used - room};
    return end;
  }

  /// The same by counts of whole texts, which need not add up: gathers pieces until the text is too
  /// long, then halves the rest. The bytes a token takes on average say where to look first.
  [[nodiscard]] std::size_t furthest_by_counter(const place& above, byte_range first,
                                                piece_source& pieces) {
    const std::size_t begin = first.begin;
    const auto aim = [&](std::size_t end, std::size_t tokens) {  // where the limit would be
      const double share =
          static_cast<double>(limit()) / static_cast<double>((std::max)(tokens, std::size_t{1}));
      const double bytes = static_cast<double>(end - begin) * (std::min)(share, 2.0);
      return begin + static_cast<std::size_t>(bytes);
    };
    ends_.clear();
    std::size_t fit = 0;   // so many pieces are known to fit ...
    std::size_t over = 0;  // ... and so many are known to be too long
    std::size_t goal = begin + reach();
    std::size_t tokens = 0;
    std::size_t known = begin;  // before these pieces others are known to fit
    for (int tries = 0; pieces.words() && known == begin && tries < 3; ++tries) {
      const word_stretch last = last_word_before(*pieces.words(), begin, goal + 1);
      if (last.count == 0) break;
      tokens = tokens_of(above, {begin, last.end});
      if (tokens <= limit()) {
        known = last.end;
        first = pieces.next(last.next).range;
      }
      if (tokens == limit()) return known;
      goal = aim(last.end, tokens);
    }
    for (std::size_t step = 1; over == 0; step *= 2) {
      for (std::size_t i = 0; !first.empty() && (i < step || ends_.back() < goal); ++i) {
        ends_.push_back(first.end);
        first = pieces.next(first.end).range;
      }
      tokens = tokens_of(above, {begin, ends_.back()});
      if (tokens > limit()) {
        over = ends_.size();
      } else if (first.empty() || tokens == limit()) {
        return ends_.back();
      } else {
        fit = ends_.size();
        goal = aim(ends_.back(), tokens);
      }
    }
    for (bool guess = true; over - fit > 1; guess = !guess) {
      std::size_t middle = fit + (over - fit) / 2;
      if (guess) {
        const std::size_t target = aim(ends_[over - 1], tokens);
        const auto found = std::upper_bound(ends_.begin(), ends_.end(), target) - ends_.begin();
        middle = (std::clamp)(static_cast<std::size_t>(found), fit + 1, over - 1);
      }
      const std::size_t there = tokens_of(above, {begin, ends_[middle - 1]});
      if (there == limit()) return ends_[middle - 1];
      if (there > limit()) {
        over = middle;
        tokens = there;
      } else {
        fit = middle;
      }
    }
    return fit == 0 ? known : ends_[fit - 1];
  }

  /// Which of begins_, at least two, is looked at first: where words each count one, or where the
  /// bytes that a token takes put the overlap.
  [[nodiscard]] std::size_t overlap_guess(byte_range last, const piece_source& pieces) const {
    const std::size_t count = begins_.size();
    if (counts_words()) return count - (pieces.words() ? (std::min)(sizes_.overlap, count - 1) : 1);
    const auto aim =
        static_cast<std::size_t>(bytes_per_token_ * static_cast<double>(sizes_.overlap));
    const std::size_t target = last.end - (std::min)(aim, last.size());
    const auto at = std::lower_bound(begins_.begin(), begins_.end(), target) - begins_.begin();
    return (std::clamp)(static_cast<std::size_t>(at), std::size_t{1}, count - 1);
  }

  /// Where the chunk after `last` begins: with the longest run of whole pieces at the end of `last`
  /// that is within the overlap and leaves room for the next piece; else with that piece.
  [[nodiscard]] std::size_t overlap_begin(const place& above, byte_range last, const piece& next,
                                          piece_source& pieces) {
    begins_.clear();
    std::size_t from = last.begin;
    if (pieces.words() && counts_words()) {
      const std::size_t used = heading_words(above) + count_words(slice(text_, next.range));
      if (last.end < next.range.begin && used < limit()) {
        const std::size_t begin = skip_words_back(text_, last.begin, last.end,
                                                  (std::min)(sizes_.overlap, limit() - used));
        if (begin != 0) return begin;
      }
      // one word more than the overlap is enough
      const std::size_t words = count_below({}, last);
      const std::size_t enough = sizes_.overlap + 1;
      if (words > enough) from = skip_words(*pieces.words(), from, words - enough).next;
    }
    for (byte_range at = pieces.next(from).range; at.begin < last.end && !at.empty();
         at = pieces.next(at.end).range) {
      begins_.push_back(at.begin);
    }
    const auto good = [&](std::size_t i) {
      return count(slice(text_, {begins_[i], last.end})) <= sizes_.overlap &&
             fits(above, {begins_[i], next.range.end});
    };
    std::size_t best =
        begins_.size();   // the first known to be good, and above the last that is not
    std::size_t bad = 0;  // the chunk's own begin would be no progress
    bool down = true;     // from a good one to earlier ones
    if (best > 1) {
      const std::size_t guess = overlap_guess(last, pieces);
      down = good(guess);
      down ? best = guess : bad = guess;
    }
    for (std::size_t step = 1; best - bad > 1; step *= 2) {
      const std::size_t stride = (std::min)(step, best - bad - 1);
      const std::size_t i = down ? best - stride : bad + stride;
      const bool good_there = good(i);
      good_there ? best = i : bad = i;
      if (good_there != down) break;
    }
    while (best - bad > 1) {
      const std::size_t middle = bad + (best - bad) / 2;
      good(middle) ? best = middle : bad = middle;
    }
    return best == begins_.size() ? next.range.begin : begins_[best];
  }

  // -- writing

  /// A heading that is in the way becomes text of its own.
  void drop_heading(place& above) {
    place bare = above;
    bare.heading.clear();
    bare.lines = {};
    bare.whole = false;
    bare.group = bare.section;
    const byte_range lines = trim(text_, above.lines);
    if (!lines.empty()) fits(bare, lines) ? emit(bare, lines) : split(lines, cut::blocks, bare);
    above = bare;
  }

  /// An indivisible grapheme that does not fit below its heading stands alone, whatever its size.
  void emit_alone(place& above, byte_range grapheme) {
    place bare = above;
    drop_heading(bare);
    above.lines = {};
    emit(bare, grapheme);
    drafts_.back().oversize = drafts_.back().token_count > limit();
  }

  // -- merging

  [[nodiscard]] bool may_merge(const draft& a, const draft& b) const {
    return place_of(a).group == place_of(b).group && place_of(a).whole == place_of(b).whole;
  }

  /// One chunk from the first to the last of some neighbours; nothing if it would be too long.
  [[nodiscard]] std::optional<draft> merged(const draft& first, const draft& last) {
    draft both = first;
    both.body.end = last.body.end;
    place above;
    above.heading = place_of(first).heading;
    above.lines = {both.begin, both.body.begin};
    if (!fits(above, both.body)) return std::nullopt;
    both.token_count = count_below(above.heading, both.body);
    return both;
  }

  /// One chunk of `first` and those from `begin` to before `end`; if that is too long, `end` moves
  /// back, and nothing if none is left.
  [[nodiscard]] std::optional<draft> merged_run(const draft& first, std::size_t begin,
                                                std::size_t& end) {
    std::optional<draft> joined;
    for (std::size_t step = 1; end > begin && !joined; step *= 2) {
      joined = merged(first, drafts_[end - 1]);
      if (!joined) end -= (std::min)(step, end - begin);
    }
    return joined;
  }

  /// Joins chunks below the minimum with those that follow, else with the one before.
  void merge_small() {
    std::vector<draft> out;
    const std::size_t least = sizes_.min_chunk_size;
    for (std::size_t i = 0; i < drafts_.size();) {
      std::size_t end = i + 1;
      for (std::size_t sum = drafts_[i].token_count;
           end < drafts_.size() && sum < least && may_merge(drafts_[i], drafts_[end]); ++end) {
        sum += drafts_[end].token_count;
      }
      std::optional<draft> joined = merged_run(drafts_[i], i + 1, end);
      draft next = joined ? std::move(*joined) : std::move(drafts_[i]);
      i = end;
      if (next.token_count < least && !out.empty() && may_merge(out.back(), next)) {
        if ((joined = merged(out.back(), next))) {
          out.back() = std::move(*joined);
          continue;
        }
      }
      out.push_back(std::move(next));
    }
    drafts_ = std::move(out);
  }

  const document& source_;
  std::string_view text_;
  const chunk_sizes& sizes_;
  const tokenizer& tokens_;
  const sentence_options& sentences_;
  double bytes_per_token_ = 4.0;
  std::string joined_;
  counted_text counted_;        // the last one
  counted_text added_up_;       // the last run of pieces
  counted_text counted_lines_;  // of the last heading, which gives much the same words ...
  std::string counted_heading_;
  std::size_t counted_heading_words_ = 0;       // ... without its marks
  std::vector<piece>* known_blocks_ = nullptr;  // in order
  std::vector<std::size_t> ends_;
  std::vector<std::size_t> begins_;
  std::vector<draft> drafts_;
  std::vector<place> places_;
  std::optional<error> failure_;
};

/// What chunkers share: the options are looked at before any text is read, and callbacks of the
/// caller run guarded. `write` puts the chunks into a builder; `sections` are theirs.
template <class Write>
[[nodiscard]] result<std::vector<chunk>> run_chunker(const document& source,
                                                     const chunk_sizes& sizes,
                                                     const tokenizer& tokens,
                                                     const sentence_options& sentences,
                                                     const chunk_namer& name, Write&& write) {
  if (result<void> sound = check_sizes(sizes); !sound) return sound.failure();
  return guarded(errc::callback_failed, sizes.chunker, [&]() -> result<std::vector<chunk>> {
    chunk_builder out(source, sizes, tokens, sentences);
    std::vector<section> sections(1);
    write(out, sections, source);
    chunk_builder::id_register ids;
    return out.finish(sections, name, ids);
  });
}

}  // namespace detail

// ---- The chunkers -------------------------------------------------------------------------------
//
// Each exists twice, as everywhere: try_chunk_x returns its errors, chunk_x throws them.
//   errors   errc::invalid_argument: a size out of range, named with its value, whatever the text
//            errc::bad_counter: a counter or splitter that contradicts itself
//            errc::duplicate_id: a namer that gives one id twice
//            errc::callback_failed: what a callback threw
//   ids      document id, '#', the heading's anchor, and ~2, ~3 ... for further parts

/// How many tokens a chunk has at most, where nothing else is said.
inline constexpr std::size_t default_chunk_size = 256;

/// The document as one chunk.
struct whole_options {
  tokenizer tokens = {};  ///< fills token_count; there is no limit
  chunk_namer name = {};
};

/// The document as one chunk, whose id is the document's. Its heading is the one the text opens
/// with, else the document's title.
///
/// returns  one chunk; none for a blank text.      cost   O(bytes)
[[nodiscard]] inline result<std::vector<chunk>> try_chunk_whole(const document& source,
                                                                const whole_options& options = {}) {
  const detail::chunk_sizes sizes{
      .chunker = "chunk_whole", .chunk_size = detail::chunk_builder::no_limit, .has_parts = false};
  return detail::run_chunker(
      source, sizes, options.tokens, {}, options.name,
      [](detail::chunk_builder& out, std::vector<detail::section>& sections, const document& page) {
        byte_range body = out.content();
        if (body.empty()) return;
        sections = detail::sections_of(page.text, 6);
        detail::place above;
        const std::size_t first =
            sections.size() > 1 ? (std::min)(sections[1].heading.lines.end, body.end) : 0;
        const byte_range below = trim(page.text, {(std::max)(first, body.begin), body.end});
        if (first > body.begin && sections[1].heading.lines.begin <= body.begin && !below.empty()) {
          above.section = 1;
          above.heading = sections[1].heading.title;
          if (!above.heading.empty()) above.lines = {body.begin, first};
        } else {
          above.heading = page.title;
        }
        out.emit(above, above.lines.empty() ? body : below);
      });
}
[[nodiscard]] inline std::vector<chunk> chunk_whole(const document& source,
                                                    const whole_options& options = {}) {
  return try_chunk_whole(source, options).value();
}

/// Windows of a set number of tokens.
struct fixed_options {
  std::size_t chunk_size = default_chunk_size;  ///< tokens, at least 1; small: less that is beside
                                                ///< the point, but what belongs together is parted
  std::size_t overlap = 0;  ///< tokens repeated from the window before; below chunk_size
  tokenizer tokens = {};
  chunk_namer name = {};
};

/// Windows of chunk_size tokens; each begins chunk_size - overlap tokens after the one before. The
/// last ends with the text, so that none lies inside the one before. Headings are text.
///
/// returns  220 tokens, size 80, overlap 20: tokens 0-79, 60-139, 120-199, 180-219
/// cost     O(bytes + bytes of the chunks)
[[nodiscard]] inline result<std::vector<chunk>> try_chunk_fixed(const document& source,
                                                                const fixed_options& options = {}) {
  const detail::chunk_sizes sizes{.chunker = "chunk_fixed",
                                  .chunk_size = options.chunk_size,
                                  .overlap = options.overlap,
                                  .overlap_from = detail::cut::tokens};
  return detail::run_chunker(
      source, sizes, options.tokens, {}, options.name, [&](detail::chunk_builder& out, auto&&...) {
        detail::place none;
        const bool has_tokens = static_cast<bool>(options.tokens.split);
        out.split(out.content(), has_tokens ? detail::cut::tokens : detail::cut::words, none);
      });
}
[[nodiscard]] inline std::vector<chunk> chunk_fixed(const document& source,
                                                    const fixed_options& options = {}) {
  return try_chunk_fixed(source, options).value();
}

/// Each sentence as a chunk.
struct single_sentence_options {
  std::size_t chunk_size = default_chunk_size;  ///< tokens; a longer sentence is cut at words
  sentence_options sentences = {};
  tokenizer tokens = {};
  chunk_namer name = {};
};

/// Each sentence as a chunk. Headings are text.
///
/// cost     O(bytes)
[[nodiscard]] inline result<std::vector<chunk>> try_chunk_sentences(
    const document& source, const single_sentence_options& options = {}) {
  const detail::chunk_sizes sizes{.chunker = "chunk_sentences", .chunk_size = options.chunk_size};
  return detail::run_chunker(source, sizes, options.tokens, options.sentences, options.name,
                             [&](detail::chunk_builder& out, auto&&...) {
                               const std::vector<byte_range> sentences =
                                   sentence_ranges(source.text, out.content(), options.sentences);
                               out.drafts().reserve(sentences.size());
                               for (const byte_range& sentence : sentences) {
                                 out.write(sentence, detail::cut::words);
                               }
                             });
}
[[nodiscard]] inline std::vector<chunk> chunk_sentences(
    const document& source, const single_sentence_options& options = {}) {
  return try_chunk_sentences(source, options).value();
}

/// Whole sentences, packed.
struct packed_options {
  std::size_t chunk_size = default_chunk_size;  ///< tokens, at least 1
  std::size_t overlap = 0;  ///< at most so many tokens are repeated, in whole sentences
  sentence_options sentences = {};
  tokenizer tokens = {};
  chunk_namer name = {};
};

/// Adds sentences to a chunk until the next would exceed the size. A list, a table, fenced code,
/// and a heading with the sentence after it are added as one if they fit into a chunk, else in
/// parts. A sentence that is too long by itself is cut at words. The overlap is the longest run of
/// whole sentences within it that leaves room for the next one; it may be none. Headings are text.
///
/// cost     O(bytes + bytes of the chunks)
[[nodiscard]] inline result<std::vector<chunk>> try_chunk_packed(
    const document& source, const packed_options& options = {}) {
  const detail::chunk_sizes sizes{.chunker = "chunk_packed",
                                  .chunk_size = options.chunk_size,
                                  .overlap = options.overlap,
                                  .overlap_from = detail::cut::sentences};
  return detail::run_chunker(
      source, sizes, options.tokens, options.sentences, options.name,
      [](detail::chunk_builder& out, auto&&...) { out.pack_text(out.content()); });
}
[[nodiscard]] inline std::vector<chunk> chunk_packed(const document& source,
                                                     const packed_options& options = {}) {
  return try_chunk_packed(source, options).value();
}

namespace detail {

/// Where a section's text stands: below its own heading and those without a body from `pending` on.
[[nodiscard]] inline place place_of(const std::vector<section>& sections, std::size_t pending,
                                    std::size_t own) {
  place above;
  for (std::size_t i = pending; i <= own; ++i) {
    if (sections[i].heading.title.empty()) continue;
    if (!above.heading.empty()) above.heading += "\n\n";
    above.heading += sections[i].heading.title;
  }
  const bool leaf = sections[own].next == own + 1;
  above.lines = {sections[pending].heading.lines.begin, sections[own].heading.lines.end};
  above.section = own;
  above.group = leaf ? sections[own].parent : own;
  above.whole = true;
  return above;
}

/// A chunk for each section. With `keep_together` a section whose subsections fit into one chunk
/// with it is not parted. A heading without text is no chunk: it stands in the path of the sections
/// inside it, or else opens the next chunk. Of the sections only [first, last) are written.
inline void write_sections(chunk_builder& out, const std::vector<section>& sections,
                           bool keep_together, std::size_t first, std::size_t last) {
  // The text under a heading; without a title its marks are text.
  const auto below = [](place& above, byte_range range) {
    if (above.heading.empty() && !above.lines.empty()) {
      range.begin = above.lines.begin;
      above.lines = {};
    }
    return range;
  };
  const auto write_as_text = [&](std::size_t heading, std::size_t end) {
    place bare = place_of(sections, heading, heading);
    bare.heading.clear();
    bare.lines = {};
    out.write(std::move(bare), {sections[heading].heading.lines.begin, end});
  };
  const auto has_text = [&](std::size_t i) { return !trim(out.text(), sections[i].own).empty(); };
  std::size_t last_text = last;  // no section from here on has one
  while (last_text > first && !has_text(last_text - 1)) --last_text;
  const auto has_text_inside = [&](std::size_t i) {
    std::size_t inner = i + 1;
    while (inner < sections[i].next && !has_text(inner)) ++inner;
    return inner < sections[i].next;
  };
  std::size_t pending = first;  // the first heading that waits for a text
  for (std::size_t i = first; i < last;) {
    const section& own = sections[i];
    const byte_range text = trim(out.text(), own.own);
    const bool leaf = own.next == i + 1;
    const bool only_child = i == 0 && text.empty() && !leaf && sections[1].next == own.next;
    if (keep_together && !leaf && !only_child) {
      place above;
      byte_range all;
      const auto fits_from = [&](std::size_t opening) {
        above = place_of(sections, opening, i);
        above.group = own.parent;
        above.first = opening;
        above.last = own.next;
        all = below(above, trim(out.text(), {own.own.begin, sections[own.next - 1].own.end}));
        return !all.empty() && out.fits(above, all);
      };
      if (fits_from(i) && (pending == i || fits_from(pending))) {
        out.emit(std::move(above), all);
        pending = i = own.next;
        continue;
      }
    }
    if (text.empty()) {
      const bool in_paths_only =
          i == 0 ||
          (!leaf && pending == i && (has_text_inside(i) || (i >= last_text && own.next >= last)));
      ++i;
      if (in_paths_only) pending = i;
      continue;
    }
    place above = place_of(sections, pending, i);
    if (pending < i && !out.has_room(above, text)) {
      write_as_text(pending, own.heading.lines.begin);
      above = place_of(sections, i, i);
    }
    const byte_range body = below(above, text);
    out.write(std::move(above), body);
    pending = ++i;
  }
  if (pending < last) write_as_text(pending, sections[last - 1].own.end);
}

}  // namespace detail

/// Sections at the author's headings.
struct structure_options {
  std::size_t max_heading_level = 6;            ///< 1 to 6; deeper headings are text
  std::size_t chunk_size = default_chunk_size;  ///< tokens, heading included
  std::size_t min_chunk_size = 0;  ///< tokens; smaller neighbours in one section merge if they fit
  sentence_options sentences = {};
  tokenizer tokens = {};
  chunk_namer name = {};
};

/// A new chunk at every heading of a level up to max_heading_level, the heading above its text. A
/// section that is too long is split as by chunk_recursive; each part keeps the heading.
///
/// cost     O(bytes + bytes of the chunks)
///
/// "# Page\n\n## A\n\nOne.\n\n## B\n\nTwo.\n" gives [8, 18) with path Page, A and [20, 30) with
/// path Page, B; "# Page" has no text of its own and stands in the paths only.
[[nodiscard]] inline result<std::vector<chunk>> try_chunk_structure(
    const document& source, const structure_options& options = {}) {
  const detail::chunk_sizes sizes{.chunker = "chunk_structure",
                                  .chunk_size = options.chunk_size,
                                  .min_chunk_size = options.min_chunk_size,
                                  .max_heading_level = options.max_heading_level};
  return detail::run_chunker(
      source, sizes, options.tokens, options.sentences, options.name,
      [&](detail::chunk_builder& out, std::vector<detail::section>& sections, const document&) {
        sections = detail::sections_of(source.text, options.max_heading_level);
        out.reserve(sections.size());
        detail::write_sections(out, sections, false, 0, sections.size());
      });
}
[[nodiscard]] inline std::vector<chunk> chunk_structure(const document& source,
                                                        const structure_options& options = {}) {
  return try_chunk_structure(source, options).value();
}

/// Sections, paragraphs, sentences, words, graphemes.
struct recursive_options {
  std::size_t chunk_size = default_chunk_size;  ///< tokens, heading included
  std::size_t overlap = 0;  ///< at most so many tokens, repeated only where a sentence was cut
  std::size_t min_chunk_size = 0;  ///< tokens; smaller neighbours in one section merge if they fit
  std::size_t max_heading_level = 6;  ///< 1 to 6; deeper headings are text
  sentence_options sentences = {};
  tokenizer tokens = {};
  chunk_namer name = {};
};

/// What fits is left alone: a document, else a section with its subsections, is one chunk. Else its
/// introduction and each subsection stand by themselves, and a text that is too long is split into
/// paragraphs (or lists, tables, code), packed as many as fit; a paragraph that is too long into
/// sentences, these into words, these into graphemes. Each part keeps its heading and path.
///
/// cost     O(bytes + bytes of the chunks)
[[nodiscard]] inline result<std::vector<chunk>> try_chunk_recursive(
    const document& source, const recursive_options& options = {}) {
  const detail::chunk_sizes sizes{.chunker = "chunk_recursive",
                                  .chunk_size = options.chunk_size,
                                  .overlap = options.overlap,
                                  .min_chunk_size = options.min_chunk_size,
                                  .max_heading_level = options.max_heading_level};
  return detail::run_chunker(
      source, sizes, options.tokens, options.sentences, options.name,
      [&](detail::chunk_builder& out, std::vector<detail::section>& sections, const document&) {
        sections = detail::sections_of(source.text, options.max_heading_level);
        detail::write_sections(out, sections, true, 0, sections.size());
      });
}
[[nodiscard]] inline std::vector<chunk> chunk_recursive(const document& source,
                                                        const recursive_options& options = {}) {
  return try_chunk_recursive(source, options).value();
}

// ---- Semantic -----------------------------------------------------------------------------------

/// From which distance on a new chunk begins; the last number is the usual threshold.
enum class semantic_threshold {
  absolute,            ///< the distance itself, 0 to 2: 0.35
  percentile,          ///< a percentile of the distances, 0 to 100: 95
  standard_deviation,  ///< so many standard deviations above the mean of the distances: 3
  interquartile,       ///< so many interquartile ranges above their mean: 1.5
  gradient,            ///< the slopes of the distances against a percentile of them, 0 to 100: 95
};

/// Sentences, parted where the subject changes.
struct semantic_options {
  embedder embed = {};     ///< must be set; texts are embedded in the role of documents
  std::size_t window = 1;  ///< sentences on either side that are embedded with each; 0: it alone;
                           ///< large: steadier, but both sides of a change look more alike
  semantic_threshold threshold_kind = semantic_threshold::percentile;
  std::optional<double> threshold = {};         ///< by its kind; low: more cuts; none: the usual
  std::size_t chunk_size = default_chunk_size;  ///< tokens, at least 1
  std::size_t min_chunk_size =
      0;  ///< tokens; a smaller chunk joins the nearer neighbour if it fits
  sentence_options sentences = {};
  tokenizer tokens = {};
  chunk_namer name = {};
};

/// Chunks, and what was found on the way to them.
struct semantic_result {
  std::vector<chunk> chunks = {};
  std::vector<byte_range> sentences = {};
  std::vector<double> distances = {};  ///< of each sentence's window to the next, 0 to 2
  std::vector<double> compared = {};   ///< with the threshold: the distances, or their slopes
  double threshold = 0;                ///< a cut wherever the compared number is above it
};

namespace detail {

[[nodiscard]] inline double threshold_of(const semantic_options& options) {
  constexpr double usual[] = {0.35, 95, 3, 1.5, 95};  // in the order of semantic_threshold
  return options.threshold.value_or(usual[static_cast<std::size_t>(options.threshold_kind)]);
}

[[nodiscard]] inline result<void> check_threshold(const semantic_options& options) {
  const double threshold = threshold_of(options);
  const bool percent = options.threshold_kind == semantic_threshold::percentile ||
                       options.threshold_kind == semantic_threshold::gradient;
  const bool absolute = options.threshold_kind == semantic_threshold::absolute;
  const bool share = percent && threshold > 0 && threshold <= 1;
  const double most = percent ? 100 : absolute ? 2 : threshold;
  if (is_finite(threshold) && threshold >= 0 && threshold <= most && !share) return {};
  std::string expected = "finite and at least 0";
  if (absolute) expected = "0 to 2, a distance";
  if (percent) expected = "0 to 100, a percentile";
  if (share) expected += "; a share such as 0.95 is written as 95";
  return error(errc::invalid_argument,
               "chunk_semantic: threshold " + decimal_text(threshold) + " must be " + expected);
}

/// The vectors of all sentences, each embedded with its neighbours as one slice of the text.
[[nodiscard]] inline result<std::vector<std::vector<float>>> embed_windows(
    const document& source, std::span<const byte_range> sentences,
    const semantic_options& options) {
  std::vector<std::string_view> texts;
  std::vector<std::string> names;
  const std::size_t last = sentences.size() - 1;
  for (std::size_t i = 0; i <= last; ++i) {
    const std::size_t begin = i - (std::min)(i, options.window);
    const std::size_t end = i + (std::min)(last - i, options.window);
    texts.push_back(slice(source.text, {sentences[begin].begin, sentences[end].end}));
    names.push_back("sentence " + text_of(i + 1) + " of " + text_of(last + 1) + " of " +
                    in_quotes(source.id));
  }
  return embed_checked(options.embed, texts, text_role::document, names);
}

/// A percentile between two numbers is interpolated on the straight line from one to the other, as
/// numeric packages do by default. `sorted` is not empty; {1, 2} and 95 give 1.95.
[[nodiscard]] inline double linear_percentile(std::span<const double> sorted, double percentile) {
  const double at = percentile / 100 * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = (std::min)(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

/// How fast numbers rise: half the difference of the two neighbours, at the ends the difference to
/// the only one.
[[nodiscard]] inline std::vector<double> slopes_of(std::span<const double> values) {
  std::vector<double> slopes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t before = i == 0 ? 0 : i - 1;
    const std::size_t after = (std::min)(i + 1, values.size() - 1);
    if (after > before) {
      slopes[i] = (values[after] - values[before]) / static_cast<double>(after - before);
    }
  }
  return slopes;
}

/// The threshold for sorted numbers, by the options' kind. Equal numbers give that number.
[[nodiscard]] inline double threshold_for(std::span<const double> sorted,
                                          const semantic_options& options) {
  const double amount = threshold_of(options);
  if (options.threshold_kind == semantic_threshold::percentile ||
      options.threshold_kind == semantic_threshold::gradient) {
    return linear_percentile(sorted, amount);
  }
  const auto count = static_cast<double>(sorted.size());
  double mean = 0;
  for (const double value : sorted) mean += value / count;
  mean = (std::clamp)(mean, sorted.front(), sorted.back());  // rounding must not part equal numbers
  if (options.threshold_kind == semantic_threshold::interquartile) {
    return mean + amount * (linear_percentile(sorted, 75) - linear_percentile(sorted, 25));
  }
  double variance = 0;
  for (const double value : sorted) variance += (value - mean) * (value - mean) / count;
  return mean + amount * std::sqrt(variance);
}

/// Fills in distances, threshold, and what is compared with it.
inline void compare_windows(const std::vector<std::vector<float>>& vectors,
                            const semantic_options& options, semantic_result& found) {
  const auto is_zero = [&](std::size_t i) { return dot_in_double(vectors[i], vectors[i]) <= 0; };
  std::vector<std::size_t> known;  // distances between two vectors that have a direction
  std::vector<double> values;
  for (std::size_t i = 0; i + 1 < vectors.size(); ++i) {
    found.distances.push_back(1.0 - cosine(vectors[i], vectors[i + 1]));
    if (is_zero(i) || is_zero(i + 1)) continue;
    known.push_back(i);
    values.push_back(found.distances[i]);
  }
  found.compared = found.distances;
  found.threshold = 1;  // the distance of a vector that has no direction
  if (options.threshold_kind == semantic_threshold::absolute) {
    found.threshold = threshold_of(options);
  } else if (!values.empty()) {
    if (options.threshold_kind == semantic_threshold::gradient) {
      values = slopes_of(values);
      for (std::size_t i = 0; i < known.size(); ++i) found.compared[known[i]] = values[i];
    }
    std::sort(values.begin(), values.end());
    found.threshold = threshold_for(values, options);
  }
}

/// Writes runs of sentences as chunks. A run that is too long is parted at its largest distance.
class semantic_writer {
 public:
  semantic_writer(chunk_builder& out, const semantic_result& found)
      : out_(out), found_(found), gaps_(found.distances.size()) {
    if (!out.counts_words()) return;
    for (const byte_range& sentence : found.sentences) {
      words_.push_back(words_.back() + count_words(slice(out.text(), sentence)));
    }
  }

  void write_all() {
    std::size_t first = 0;
    for (std::size_t i = 0; i < found_.sentences.size(); ++i) {
      const bool last = i + 1 == found_.sentences.size();
      if (!last && !(found_.compared[i] > found_.threshold)) continue;
      write(first, i + 1);
      first = i + 1;
    }
    note_gaps();
    out_.merge_nearest();
  }

 private:
  struct gap {               // between a sentence and the next
    std::size_t before = 0;  // the largest gap of the part before it, and of the part after it
    std::size_t after = 0;
    double least = 0;  // the smallest distance of these parts and of itself
  };
  struct run {
    std::size_t first = 0, end = 0;  // of sentences
    std::size_t largest = 0;         // gap in it, of more than one sentence
  };

  void write(std::size_t first, std::size_t end) {
    std::vector<run> open{{first, end, find_largest(first, end)}};
    while (!open.empty()) {
      const run next = open.back();
      open.pop_back();
      const std::span<const byte_range> sentences(found_.sentences.data() + next.first,
                                                  next.end - next.first);
      const byte_range range{sentences.front().begin, sentences.back().end};
      if (sentences.size() == 1 || fits(next, range)) {
        out_.write(range, cut::words);
      } else if (const gap& at = gaps_[next.largest]; at.least < distance(next.largest)) {
        open.push_back({next.largest + 1, next.end, at.after});
        open.push_back({next.first, next.largest + 1, at.before});
      } else {
        out_.write_packed(sentences);  // all distances are equal and say nothing
      }
    }
  }

  [[nodiscard]] double distance(std::size_t i) const { return found_.distances[i]; }

  /// Words of sentences add up; counts of the caller's counter need not.
  [[nodiscard]] bool fits(const run& sentences, byte_range range) const {
    if (!out_.counts_words()) return out_.fits({}, range);
    return words_[sentences.end] - words_[sentences.first] <= out_.limit();
  }

  /// The largest gap between sentences [first, end), the first of equals; and for each gap the
  /// largest on its either side. Each gap enters and leaves the list of open ones once.
  [[nodiscard]] std::size_t find_largest(std::size_t first, std::size_t end) {
    std::vector<std::size_t> open;  // falling distances; each is the largest after the one before
    const auto close = [&] {
      const std::size_t i = open.back();
      open.pop_back();
      if (!open.empty()) {
        gap& outer = gaps_[open.back()];
        outer.least = (std::min)(outer.least, gaps_[i].least);
      }
      return i;
    };
    for (std::size_t i = first; i + 1 < end; ++i) {
      gaps_[i] = {.before = i, .after = i, .least = distance(i)};
      while (!open.empty() && distance(open.back()) < distance(i)) {
        gaps_[i].before = close();
        gaps_[i].least = (std::min)(gaps_[i].least, gaps_[gaps_[i].before].least);
      }
      if (!open.empty()) gaps_[open.back()].after = i;
      open.push_back(i);
    }
    while (open.size() > 1) close();
    return open.empty() ? first : open.front();
  }

  /// Tells the chunks how far they are from the one before; parts of one sentence are not.
  void note_gaps() {
    std::size_t at = 0;
    for (chunk_builder::draft& next : out_.drafts()) {
      const std::size_t begin = next.begin;
      while (at < found_.sentences.size() && found_.sentences[at].begin < begin) ++at;
      const bool opens = at < found_.sentences.size() && found_.sentences[at].begin == begin;
      next.gap = opens && at > 0 ? distance(at - 1) : 0;
    }
  }

  chunk_builder& out_;
  const semantic_result& found_;
  std::vector<gap> gaps_;
  std::vector<std::size_t> words_{0};  // in the sentences before each
};

}  // namespace detail

/// Embeds each sentence with its neighbours, measures how far each of these windows is from the
/// next (1 - cosine), and begins a new chunk where that is above the threshold. A chunk that would
/// exceed chunk_size is parted at its largest distance, again and again; where all its distances
/// are equal, it is packed as by chunk_packed; a sentence too long is cut at words. Then chunks
/// below min_chunk_size join the neighbour at the smaller distance, if both fit. Headings are text.
///
/// What a distance means depends on the model and the window: an absolute threshold that parts
/// subjects under one cuts everywhere or nowhere under another. The other kinds take theirs from
/// the document's own distances, and so cut a text of a single subject too.
///
/// zeros    a vector of zeros has no direction: its distances are 1, are compared as such under
///          every kind, and stay out of all statistics; without any other the threshold is 1
/// few      no or one sentence is not embedded; a single distance, or equal ones, are above no
///          threshold but an absolute one
/// errors   beside those of all chunkers: errc::invalid_argument for an embedder that is not set or
///          a threshold out of range; errc::not_finite, errc::dimension_mismatch (both name the
///          sentence) and errc::embedder_failed for its answers
/// returns  the chunks, with sentences, distances and threshold for display
/// cost     one call per embed.batch_size sentences, each given up to 2 * window + 1 times; all
///          vectors are held at once. Beside that O(bytes); a counter of the caller's sees about
///          four chunk sizes of text again for each cut of what is too long
///
/// Five sentences at distances 0.18, 0.62, 0.21, 0.57 and an absolute threshold of 0.35 give
/// sentences 1 and 2, 3 and 4, and 5.
[[nodiscard]] inline result<semantic_result> try_semantic_cuts(const document& source,
                                                               const semantic_options& options) {
  const detail::chunk_sizes sizes{.chunker = "chunk_semantic",
                                  .chunk_size = options.chunk_size,
                                  .min_chunk_size = options.min_chunk_size};
  if (const auto sound = detail::check_threshold(options); !sound) return sound.failure();
  if (const auto sound = detail::check_embedder(options.embed); !sound) {
    return error(sound.failure().code(), "chunk_semantic: " + sound.failure().message());
  }
  semantic_result found;
  result<std::vector<chunk>> chunks = detail::run_chunker(
      source, sizes, options.tokens, options.sentences, options.name,
      [&](detail::chunk_builder& out, auto&&...) {
        found.sentences = sentence_ranges(source.text, out.content(), options.sentences);
        if (found.sentences.size() > 1) {
          const auto vectors = detail::embed_windows(source, found.sentences, options);
          if (!vectors) return out.fail(vectors.failure());
          detail::compare_windows(*vectors, options, found);
        }
        detail::semantic_writer(out, found).write_all();
      });
  if (!chunks) return chunks.failure();
  found.chunks = std::move(*chunks);
  return found;
}
[[nodiscard]] inline semantic_result semantic_cuts(const document& source,
                                                   const semantic_options& options) {
  return try_semantic_cuts(source, options).value();
}

/// The chunks of try_semantic_cuts alone.
[[nodiscard]] inline result<std::vector<chunk>> try_chunk_semantic(
    const document& source, const semantic_options& options) {
  result<semantic_result> found = try_semantic_cuts(source, options);
  if (!found) return found.failure();
  return std::move(found->chunks);
}
[[nodiscard]] inline std::vector<chunk> chunk_semantic(const document& source,
                                                       const semantic_options& options) {
  return try_chunk_semantic(source, options).value();
}

// ---- Parent-child -------------------------------------------------------------------------------

/// Large chunks and the small ones inside them.
struct parent_child_options {
  std::size_t parent_size = 1024;     ///< tokens, heading included: what is handed out
  std::size_t child_size = 128;       ///< the same of what is searched; below parent_size
  std::size_t max_heading_level = 6;  ///< 1 to 6; deeper headings are text
  sentence_options sentences = {};
  tokenizer tokens = {};
  chunk_namer name = {};  ///< is asked for all parents first, so that a child's parent_id is known
};

namespace detail {

/// The children of each parent: a chunk for each section in it, or its parts if it is no more than
/// a piece of one. A single child would say what its parent says, and is left out.
inline void write_children(chunk_builder& parents, chunk_builder& out,
                           const std::vector<section>& sections) {
  std::vector<chunk_builder::draft>& children = out.drafts();
  for (std::size_t i = 0; i < parents.drafts().size(); ++i) {
    const chunk_builder::draft& parent = parents.drafts()[i];
    const place& of_parent = parents.place_of(parent);
    const std::size_t first = children.size();
    if (of_parent.first < of_parent.last) {
      write_sections(out, sections, false, of_parent.first, of_parent.last);
    } else {
      place above;
      above.heading = of_parent.heading;
      above.lines = {parent.begin, parent.body.begin};
      above.section = of_parent.section;
      out.write(above, parent.body);
    }
    if (children.size() == first + 1) children.pop_back();
    for (std::size_t child = first; child < children.size(); ++child) children[child].parent = i;
  }
}

}  // namespace detail

/// Parents as by chunk_recursive at parent_size, with the same ids: the document, if it fits, else
/// its sections or their parts. Inside each a child for every section, and for the parts of one
/// that is longer than child_size, as by chunk_structure; together they cover their parent. A
/// parent of one piece stands for itself, without children.
///
/// Search finds a child by its few words, and hands out its parent. Many matching children of one
/// parent are one passage; how much unrelated text comes with it is parent_size.
///
/// returns  each parent before its children; a child's parent_id is its parent's id, a parent has
///          none. Where they share an anchor, children are numbered on from the last parent
/// cost     O(bytes + bytes of the chunks)
///
/// "# Page\n\n## A\n\nOne.\n\n## B\n\nTwo.\n" gives [0, 30) with the id doc#page and in it [8, 18)
/// and [20, 30), doc#a and doc#b.
[[nodiscard]] inline result<std::vector<chunk>> try_chunk_parent_child(
    const document& source, const parent_child_options& options = {}) {
  const detail::chunk_sizes large{.chunker = "chunk_parent_child",
                                  .chunk_size = options.parent_size,
                                  .max_heading_level = options.max_heading_level,
                                  .size_name = "parent_size"};
  const detail::chunk_sizes little{.chunker = "chunk_parent_child",
                                   .chunk_size = options.child_size,
                                   .max_heading_level = options.max_heading_level,
                                   .size_name = "child_size"};
  if (const auto sound = detail::check_sizes(large); !sound) return sound.failure();
  if (const auto sound = detail::check_sizes(little); !sound) return sound.failure();
  if (options.child_size >= options.parent_size) {
    return error(errc::invalid_argument,
                 "chunk_parent_child: child_size " + detail::text_of(options.child_size) +
                     " must be below parent_size " + detail::text_of(options.parent_size));
  }
  return detail::guarded(errc::callback_failed, large.chunker, [&]() -> result<std::vector<chunk>> {
    const auto sections = detail::sections_of(source.text, options.max_heading_level);
    detail::chunk_builder above(source, large, options.tokens, options.sentences);
    detail::chunk_builder below(source, little, options.tokens, options.sentences);
    std::vector<detail::piece> blocks;
    above.share_blocks(blocks);
    below.share_blocks(blocks);
    detail::write_sections(above, sections, true, 0, sections.size());
    detail::write_children(above, below, sections);
    detail::chunk_builder::id_register ids;
    auto parents = above.finish(sections, options.name, ids);
    if (!parents) return parents.failure();
    return below.finish(sections, options.name, ids, std::move(*parents));
  });
}
[[nodiscard]] inline std::vector<chunk> chunk_parent_child(
    const document& source, const parent_child_options& options = {}) {
  return try_chunk_parent_child(source, options).value();
}

// =================================================================================================
// 8. Analysis: from text to terms, and the codes that must match whole
//
// In   the search text of a chunk, or a question.
// Out  terms, and identifiers such as PAY-042, each with the bytes of the text where it stands.
//
//   terms         runs of letters, digits and their marks, folded (2); no stemming, no stop words
//                 unless the caller brings them. PAY-042 gives pay and 042, don't gives don and t.
//                 Scripts without spaces, and Korean with its endings, give every two neighbouring
//                 characters, a lone character itself; with ICU also the words of its dictionaries.
//                 ASCII is the same with and without ICU.
//   identifiers   what fits a format of the caller, as one piece: PAY-### finds PAY-042, but
//                 nothing in PAY-0421, XPAY-042 or PAY-04.
//
// Chunks and questions take the same steps in the same order; stop words leave questions only.
//
// Source   Thompson, Regular Expression Search Algorithm, 1968, for the patterns.
// =================================================================================================

/// What happens to terms beyond the default. Both callbacks get one folded word.
struct analysis_options {
  std::function<std::string(std::string_view)> stem = {};   ///< word -> term; empty: no term
  std::function<bool(std::string_view)> is_stop_word = {};  ///< asked for words of questions only
  std::string tag = {};  ///< names the two, such as "english-2", where terms are stored
};

namespace detail {

/// Characters inside a word that show nothing: soft hyphen, joiners, variation selectors. They
/// neither end a word nor stand in a term.
[[nodiscard]] constexpr bool is_silent(char32_t c) {
  return c >= 0x80 && (c == 0xAD || c == 0x34F || c == 0x200C || c == 0x200D || c == 0x2060 ||
                       c == 0xFEFF || (c >= 0xFE00 && c <= 0xFE0F));
}

[[nodiscard]] constexpr bool is_ascii_word(char c) {
  const auto value = static_cast<unsigned char>(c);
  return is_ascii_letter(value) || is_ascii_digit(value);
}

/// A mark, or what else belongs to the character before it; it begins no word.
[[nodiscard]] inline bool is_attached(char32_t c) {
  if (c < 0x80) return false;
  const grapheme_class kind = grapheme_class_of(c);
  return kind == grapheme_class::extend || kind == grapheme_class::joiner ||
         kind == grapheme_class::spacing;
}

/// True for characters whose runs are cut into pairs: of scripts without spaces, and Korean ones.
/// Korean does write spaces, but what stands between two is a word with its endings.
[[nodiscard]] inline bool is_paired(char32_t c) {
  if (c < 0xE00) return false;
  const bool korean = (c >= 0x1100 && c <= 0x11FF) || (c >= 0x3131 && c <= 0x318E) ||
                      (c >= 0xA960 && c <= 0xA97C) || (c >= 0xAC00 && c <= 0xD7FB) ||
                      (c >= 0xFFA0 && c <= 0xFFDC);
  return korean || is_unspaced(c);
}

/// A maximal run of letters, digits and marks of one kind of script.
struct word_run {
  byte_range where;     // empty: there is none
  bool ascii = true;    // every byte of it
  bool paired = false;  // its terms are pairs of characters

  [[nodiscard]] bool continues_with(char32_t c) const {
    if (is_silent(c)) return true;
    if (!is_letter_or_digit(c)) return false;
    return is_paired(c) == paired || is_attached(c);
  }
};

/// The first run that begins at byte `at` or later.
[[nodiscard]] inline word_run next_run(std::string_view text, std::size_t at) {
  code_point point = decode(text, at);
  while (point.length != 0 &&
         (is_silent(point.value) || !is_letter_or_digit(point.value) || is_attached(point.value))) {
    at += point.length;
    point = decode(text, at);
  }
  word_run run{{at, at + point.length}, point.value < 0x80, is_paired(point.value)};
  if (point.length == 0) return run;

  for (std::size_t next = run.where.end; next < text.size();) {
    if (!run.paired && is_ascii_word(text[next])) {
      run.ascii = run.ascii && next == run.where.end;  // else something silent lies between
      run.where.end = ++next;
      continue;
    }
    point = decode(text, next);
    if (!run.continues_with(point.value)) break;
    next += point.length;
    if (is_silent(point.value)) continue;  // inside the run if a letter follows
    run.where.end = next;
    run.ascii = false;
  }
  return run;
}

/// True if all is kana, unified Han or whole Korean syllables, which folding leaves as they are:
/// most of the text in these scripts, whose pairs would else be folded one by one.
[[nodiscard]] inline bool is_folded_east_asian(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const code_point point = decode(text, at);
    const char32_t c = point.value;
    const bool unchanged = (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3041 && c <= 0x3096) ||
                           (c >= 0x30A1 && c <= 0x30FA) || c == 0x30FC ||
                           (c >= 0x3400 && c <= 0x4DBF) || (c >= 0xAC00 && c <= 0xD7A3);
    if (!unchanged) return false;
    at += point.length;
  }
  return true;
}

/// Folds one word and visits it. Where folding takes a character apart (with ICU one half becomes
/// 1, fraction slash, 2) each part is a term that stands at the whole word.
template <class Visit>
void visit_folded(std::string_view text, byte_range where, bool ascii, std::string& buffer,
                  Visit& visit) {
  buffer.clear();
  if (ascii) {
    for (const char c : slice(text, where)) buffer += ascii_lower(c);
    visit(std::string_view(buffer), where);
    return;
  }
  for (std::size_t at = where.begin; at < where.end;) {
    const code_point point = decode(text, at);
    if (!is_silent(point.value)) buffer += slice(text, {at, at + point.length});
    at += point.length;
  }
  const std::string folded = fold(buffer);
  for (word_run part = next_run(folded, 0); !part.where.empty();
       part = next_run(folded, part.where.end)) {
    visit(slice(folded, part.where), where);
  }
}

#if RAG_RETRIEVE_USE_ICU

/// Word breaks of scripts without spaces by ICU's dictionaries, opened at the first use.
class dictionary_breaker {
 public:
  /// The ends of the words of `run`, rising; none if ICU cannot tell.
  [[nodiscard]] std::vector<std::size_t> word_ends(std::string_view run) {
    constexpr std::size_t longest = 0x7FFFFFFF;  // ICU counts positions in 32 bits
    std::vector<std::size_t> ends;
    UErrorCode status = U_ZERO_ERROR;
    if (run.size() > longest || !open(status)) return ends;
    const std::unique_ptr<UText, text_closer> text(
        utext_openUTF8(nullptr, run.data(), static_cast<std::int64_t>(run.size()), &status));
    ubrk_setUText(breaks_.get(), text.get(), &status);
    if (U_FAILURE(status)) return ends;
    ubrk_first(breaks_.get());
    for (std::int32_t end = ubrk_next(breaks_.get()); end >= 0; end = ubrk_next(breaks_.get())) {
      ends.push_back(static_cast<std::size_t>(end));
    }
    return ends;
  }

 private:
  struct text_closer {
    void operator()(UText* text) const { utext_close(text); }
  };
  struct break_closer {
    void operator()(UBreakIterator* breaks) const { ubrk_close(breaks); }
  };

  /// The root locale, so that no result depends on the machine's.
  [[nodiscard]] bool open(UErrorCode& status) {
    if (!breaks_) breaks_.reset(ubrk_open(UBRK_WORD, "", nullptr, 0, &status));
    return breaks_ != nullptr && !U_FAILURE(status);
  }

  std::unique_ptr<UBreakIterator, break_closer> breaks_;
};

#else

/// Without ICU there is no dictionary.
class dictionary_breaker {
 public:
  [[nodiscard]] static std::vector<std::size_t> word_ends(std::string_view) { return {}; }
};

#endif

/// Visits the ranges that are terms of such a run: pairs of neighbouring characters (graphemes),
/// and the dictionary's words where they are no such pair.
template <class Visit>
void for_each_pair(std::string_view text, byte_range run, dictionary_breaker& dictionary,
                   Visit&& visit) {
  text = text.substr(0, run.end);
  std::size_t begin = run.begin;
  std::size_t middle = next_grapheme(text, begin);
  if (middle == run.end) {
    visit(run);
    return;
  }
  const std::vector<std::size_t> ends = dictionary.word_ends(slice(text, run));
  std::size_t word = 0;                // the next dictionary word ...
  std::size_t word_begin = run.begin;  // ... and where it begins
  while (begin < run.end) {
    const std::size_t end = middle < run.end ? next_grapheme(text, middle) : middle;
    if (middle < run.end) visit(byte_range{begin, end});
    while (word < ends.size() && word_begin <= begin) {
      const byte_range where{word_begin, run.begin + ends[word++]};
      if (where.begin == begin && (where.end != end || middle == run.end)) visit(where);
      word_begin = where.end;
    }
    begin = middle;
    middle = end;
  }
}

/// Visits the folded words of a text, not yet stemmed.
template <class Visit>
void for_each_word(std::string_view text, Visit&& visit) {
  dictionary_breaker dictionary;
  std::string buffer;
  for (word_run run = next_run(text, 0); !run.where.empty(); run = next_run(text, run.where.end)) {
    if (!run.paired) {
      visit_folded(text, run.where, run.ascii, buffer, visit);
      continue;
    }
    for_each_pair(text, run.where, dictionary, [&](byte_range where) {
      const std::string_view pair = slice(text, where);
      if (is_folded_east_asian(pair)) {
        visit(pair, where);
      } else {
        visit_folded(text, where, false, buffer, visit);
      }
    });
  }
}

}  // namespace detail

/// Visits the terms of a text in order: visit(std::string_view term, byte_range where), where
/// `where` are the term's bytes in `text`. The term lives as long as the call of `visit`.
///
/// "Don't!" visits don at [0, 3) and t at [4, 5). Cost: O(bytes), and what the stemmer costs.
template <class Visit>
void for_each_term(std::string_view text, const analysis_options& options, Visit&& visit) {
  detail::for_each_word(text, [&](std::string_view word, byte_range where) {
    if (!options.stem) {
      visit(word, where);
      return;
    }
    const std::string stem = options.stem(word);
    if (!stem.empty()) visit(std::string_view(stem), where);
  });
}

/// The terms of a chunk, in order, repeats kept: what term_index::add takes.
[[nodiscard]] inline std::vector<std::string> analyse(std::string_view text,
                                                      const analysis_options& options = {}) {
  std::vector<std::string> terms;
  for_each_term(text, options,
                [&](std::string_view term, byte_range) { terms.push_back(std::string(term)); });
  return terms;
}

/// The terms of a question: each once, in order of first use, without stop words. A question of
/// stop words alone ("to be or not to be") is searched as typed.
///
/// repeats  true: all of them stay, for bm25_options.count_repeats
[[nodiscard]] inline std::vector<std::string> question_terms(std::string_view text,
                                                             const analysis_options& options = {},
                                                             bool repeats = false) {
  const auto collect = [&](bool all) {
    std::vector<std::string> terms;
    detail::key_set<std::string> seen;
    detail::for_each_word(text, [&](std::string_view word, byte_range) {
      if (!all && options.is_stop_word && options.is_stop_word(word)) return;
      std::string term = options.stem ? options.stem(word) : std::string(word);
      if (!term.empty() && (repeats || seen.insert(term))) terms.push_back(std::move(term));
    });
    return terms;
  };
  std::vector<std::string> terms = collect(false);
  if (terms.empty() && options.is_stop_word) terms = collect(true);
  return terms;
}

// ---- identifiers --------------------------------------------------------------------------------

/// The formats of the identifiers in a collection. Patterns and `find` may be used together.
///
/// A pattern:  #        one ASCII digit              @  one ASCII letter
///             *        one or more letters, digits or underscores
///             #+ @+    one or more of it            [x]  x or nothing      (a|b)  a or b
///             \x       x itself                     all else is itself: C++, C\#, PAY-###
///
/// Case is folded, and any hyphen stands for any hyphen. What matches must be whole: no letter,
/// digit or underscore touches it, nor a hyphen that has one of these on its other side, so that
/// no-empty is not found in no-empty-class. In the text a backslash before ASCII punctuation counts
/// as that character, as in Markdown: ER\_DUP\_ENTRY is ER_DUP_ENTRY.
struct identifier_options {
  std::vector<std::string> patterns = {};
  std::function<std::vector<std::string>(std::string_view)> find = {};  ///< text -> codes, in order
  bool case_matters = false;  ///< true: pay-042 is another code than PAY-042
};

/// A code as it is compared, and where it stands.
struct identifier_match {
  std::string value = {};  ///< folded unless case matters, '-' for any hyphen, escapes taken off
  byte_range where = {};   ///< its place; empty for what the callback found, which tells none
};

namespace detail {

/// What people paste for a hyphen: soft, non-breaking, dashes, minus, the wide and small forms.
[[nodiscard]] constexpr bool is_hyphen(char32_t c) {
  return c == '-' || c == 0xAD || (c >= 0x2010 && c <= 0x2015) || c == 0x2212 || c == 0xFE58 ||
         c == 0xFE63 || c == 0xFF0D;
}

/// What may not touch an identifier.
[[nodiscard]] inline bool is_code_letter(char32_t c) {
  if (c == '_' || is_letter_or_digit(c)) return true;
  if (c < 0x80) return false;
  std::string folded;  // with ICU a circled letter folds to a letter
  append_utf8(folded, c);
  folded = fold(folded);
  for (std::size_t at = 0; at < folded.size();) {
    const code_point point = decode(folded, at);
    if (is_letter_or_digit(point.value)) return true;
    at += point.length;
  }
  return false;
}

[[nodiscard]] constexpr bool is_ascii_punctuation(char c) {
  return c > ' ' && c < 0x7F && !is_ascii_word(c);
}

/// The value of a character that shows nothing. No code point has it.
inline constexpr char32_t nothing_shown = 0x110000;

/// One character of a text as identifiers see it: escapes taken off, '-' for any hyphen.
struct code_symbol {
  char32_t value = nothing_shown;
  std::size_t end = 0;  // one past its last byte
};

[[nodiscard]] inline code_symbol symbol_at(std::string_view text, std::size_t at) {
  const code_point point = decode(text, at);
  const std::size_t end = at + point.length;
  if (point.value == '\\' && end < text.size() && is_ascii_punctuation(text[end])) {
    return {static_cast<unsigned char>(text[end]), end + 1};
  }
  if (is_hyphen(point.value)) return {'-', end};
  const bool shown = !is_silent(point.value) && point.value != 0x200B;  // zero width space
  return {shown ? point.value : nothing_shown, end};
}

/// True if an identifier may end at byte `at`, for what follows there.
[[nodiscard]] inline bool ends_whole(std::string_view text, std::size_t at) {
  bool after_hyphen = false;
  while (at < text.size()) {
    const code_symbol next = symbol_at(text, at);
    at = next.end;
    if (next.value == nothing_shown) continue;
    if (is_code_letter(next.value)) return false;
    if (next.value != '-' || after_hyphen) return true;
    after_hyphen = true;
  }
  return true;
}

/// One step of a compiled pattern. The kinds before `fork` consume one character and go on to the
/// next step.
struct pattern_step {
  enum class kind : std::uint8_t { literal, digit, letter, word, fork, jump, accept };
  kind what = kind::accept;
  char32_t literal = 0;
  std::uint32_t first = 0;   // fork, jump: where to go on
  std::uint32_t second = 0;  // fork: or there

  [[nodiscard]] bool takes(char32_t c) const {
    switch (what) {
      case kind::literal:
        return c == literal;
      case kind::digit:
        return is_ascii_digit(c);
      case kind::letter:
        return is_ascii_letter(c);
      case kind::word:
        return is_code_letter(c);
      default:
        return false;
    }
  }
};

/// One ASCII character as it is compared; others unchanged.
[[nodiscard]] constexpr char32_t comparable_ascii(char32_t c, bool case_matters) {
  return !case_matters && c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

/// The characters that one symbol is compared as: itself, or its folded form.
inline void append_comparable(std::u32string& out, char32_t c, bool case_matters) {
  if (case_matters || c < 0x80) {
    out += comparable_ascii(c, case_matters);
    return;
  }
  std::string bytes;
  append_utf8(bytes, c);
  bytes = fold(bytes);
  for (std::size_t at = 0; at < bytes.size();) {
    const code_point point = decode(bytes, at);
    out += point.value;
    at += point.length;
  }
}

/// Turns a pattern into steps, from left to right; open brackets stand on a stack of their own.
class pattern_compiler {
 public:
  pattern_compiler(std::string_view pattern, bool case_matters)
      : pattern_(pattern), case_matters_(case_matters) {}

  [[nodiscard]] result<std::vector<pattern_step>> compile() {
    while (at_ < pattern_.size()) {
      if (const result<void> good = read_next(); !good) return good.failure();
    }
    if (!open_.empty()) return bad(open_.back().at, "opens a bracket that is never closed");
    if (steps_.empty()) {
      return error(errc::invalid_argument, "identifier pattern " + in_quotes(pattern_) +
                                               " is empty; expected a format such as PAY-###");
    }
    add(kind::accept);
    return std::move(steps_);
  }

 private:
  using kind = pattern_step::kind;
  struct bracket {
    char32_t kind = 0;                 // '[' or '('
    std::size_t at = 0;                // its byte in the pattern
    std::uint32_t fork = 0;            // the step that enters this alternative or passes it by
    std::vector<std::uint32_t> exits;  // the jumps at the ends of earlier alternatives
  };

  [[nodiscard]] error bad(std::size_t at, std::string_view why) const {
    return error(errc::invalid_argument, "identifier pattern " + in_quotes(pattern_) + ": byte " +
                                             text_of(at) + " " + std::string(why) +
                                             "; a backslash makes a character stand for itself");
  }

  [[nodiscard]] std::uint32_t here() const { return static_cast<std::uint32_t>(steps_.size()); }
  void add(kind what) { steps_.push_back({what, 0, here() + 1, here() + 1}); }

  void add_literal(char32_t c) {
    std::u32string compared;
    append_comparable(compared, is_hyphen(c) ? U'-' : c, case_matters_);
    for (const char32_t one : compared) {
      add(kind::literal);
      steps_.back().literal = one;
    }
  }

  /// A class of characters; `+` behind it repeats it, and `*` repeats by itself.
  void add_class(kind what) {
    const std::uint32_t begin = here();
    add(what);
    const bool plus = at_ < pattern_.size() && pattern_[at_] == '+';
    if (plus) ++at_;
    if (!plus && what != kind::word) return;
    add(kind::fork);
    steps_.back().first = begin;
  }

  [[nodiscard]] result<void> read_next() {
    const std::size_t at = at_;
    const code_point point = decode(pattern_, at);
    if (!point.valid) return bad(at, "is not valid UTF-8");
    at_ += point.length;
    switch (point.value) {
      case '#':
        add_class(kind::digit);
        return {};
      case '@':
        add_class(kind::letter);
        return {};
      case '*':
        add_class(kind::word);
        return {};
      case '\\':
        return read_escaped(at);
      case '[':
      case '(':
        open_.push_back({point.value, at, here(), {}});
        add(kind::fork);
        return {};
      case ']':
      case ')':
        return close(at, point.value == ']' ? U'[' : U'(');
      case '|':
        if (!open_.empty() && open_.back().kind == '(') return next_alternative(at);
        [[fallthrough]];
      default:
        add_literal(point.value);
        return {};
    }
  }

  [[nodiscard]] result<void> read_escaped(std::size_t at) {
    if (at_ == pattern_.size()) return bad(at, "is a backslash with nothing behind it");
    const code_point point = decode(pattern_, at_);
    if (!point.valid) return bad(at_, "is not valid UTF-8");
    at_ += point.length;
    add_literal(point.value);
    return {};
  }

  [[nodiscard]] result<void> next_alternative(std::size_t at) {
    bracket& group = open_.back();
    if (group.fork + 1 == here()) return bad(at, "ends an alternative that is empty");
    group.exits.push_back(here());
    add(kind::jump);
    steps_[group.fork].second = here();
    group.fork = here();
    add(kind::fork);
    return {};
  }

  [[nodiscard]] result<void> close(std::size_t at, char32_t opener) {
    if (open_.empty() || open_.back().kind != opener) {
      return bad(at, "closes a bracket that is not open there");
    }
    const bracket group = std::move(open_.back());
    open_.pop_back();
    if (group.fork + 1 == here()) return bad(at, "closes a bracket with nothing in it");
    if (opener == '[') steps_[group.fork].second = here();  // '(': the last has no other way
    for (const std::uint32_t exit : group.exits) steps_[exit].first = here();
    return {};
  }

  std::string_view pattern_;
  bool case_matters_;
  std::size_t at_ = 0;
  std::vector<pattern_step> steps_;
  std::vector<bracket> open_;
};

/// A compiled pattern and the ASCII characters a match may begin with.
struct code_pattern {
  std::vector<pattern_step> steps;
  std::array<bool, 128> begins{};
};

/// Follows all ways through a pattern at once, so that a text is never read twice for one start.
/// The buffers serve one call of identifier_finder::find.
class pattern_walk {
 public:
  explicit pattern_walk(bool case_matters) : case_matters_(case_matters) {}

  /// The end of the longest whole match that begins at byte `begin`; 0: none.
  [[nodiscard]] std::size_t longest_match(const code_pattern& pattern, std::string_view text,
                                          std::size_t begin) {
    start(pattern);
    std::size_t best = 0;
    for (std::size_t at = begin; at < text.size() && !now_.empty();) {
      const code_symbol symbol = symbol_at(text, at);
      at = symbol.end;
      if (symbol.value == nothing_shown) continue;
      compared_.clear();  // keeps its memory
      append_comparable(compared_, symbol.value, case_matters_);
      for (const char32_t c : compared_) advance(pattern, c);
      if (accepted_ && !compared_.empty() && ends_whole(text, at)) best = at;
    }
    return best;
  }

  /// Goes to the first steps. True if the pattern accepts nothing at all as a match.
  bool start(const code_pattern& pattern) {
    if (seen_.size() < pattern.steps.size()) seen_.resize(pattern.steps.size(), 0);
    open_round();
    follow(pattern, 0);
    now_.swap(next_);
    return accepted_;
  }

  /// True if one of the current steps takes the character.
  [[nodiscard]] bool can_take(const code_pattern& pattern, char32_t c) const {
    for (const std::uint32_t at : now_) {
      if (pattern.steps[at].takes(c)) return true;
    }
    return false;
  }

 private:
  void open_round() {
    next_.clear();
    accepted_ = false;
    ++round_;
  }

  void advance(const code_pattern& pattern, char32_t c) {
    open_round();
    for (const std::uint32_t at : now_) {
      if (pattern.steps[at].takes(c)) follow(pattern, at + 1);
    }
    now_.swap(next_);
  }

  /// Notes the consuming steps that can be reached from `from`, each once a round.
  void follow(const code_pattern& pattern, std::uint32_t from) {
    using kind = pattern_step::kind;
    pending_.push_back(from);
    while (!pending_.empty()) {
      const std::uint32_t at = pending_.back();
      pending_.pop_back();
      if (seen_[at] == round_) continue;
      seen_[at] = round_;
      const pattern_step& step = pattern.steps[at];
      if (step.what == kind::fork) pending_.push_back(step.second);
      if (step.what == kind::fork || step.what == kind::jump) {
        pending_.push_back(step.first);
      } else if (step.what == kind::accept) {
        accepted_ = true;
      } else {
        next_.push_back(at);
      }
    }
  }

  bool case_matters_;
  bool accepted_ = false;
  std::uint64_t round_ = 0;
  std::vector<std::uint64_t> seen_;  // the round in which a step was last reached
  std::vector<std::uint32_t> now_;
  std::vector<std::uint32_t> next_;
  std::vector<std::uint32_t> pending_;
  std::u32string compared_;
};

}  // namespace detail

/// The form in which codes are compared: folded unless case matters, '-' for any hyphen, Markdown
/// escapes and outer white space taken off. "PAY\xE2\x80\x91" "042" gives "pay-042".
[[nodiscard]] inline std::string normalise_identifier(std::string_view value,
                                                      bool case_matters = false) {
  const std::string_view inner = slice(value, trim(value, {0, value.size()}));
  std::string out;
  for (std::size_t at = 0; at < inner.size();) {
    const detail::code_symbol symbol = detail::symbol_at(inner, at);
    if (symbol.value != detail::nothing_shown) append_utf8(out, symbol.value);
    at = symbol.end;
  }
  return case_matters ? out : fold(out);
}

/// Finds the identifiers of a text. Made once, used for chunks and questions alike; const use from
/// many threads is safe if the callback's is.
class identifier_finder {
 public:
  /// Finds nothing.
  identifier_finder() = default;

  /// Compiles the patterns. Fails with errc::invalid_argument, naming the pattern and the byte, for
  /// a bracket that is empty, not closed or not open, an empty alternative, a backslash at the end,
  /// bytes that are not UTF-8, and a pattern that fits no character at all.
  [[nodiscard]] static result<identifier_finder> try_make(identifier_options options) {
    identifier_finder finder;
    detail::pattern_walk walk(options.case_matters);
    for (const std::string& text : options.patterns) {
      result<std::vector<detail::pattern_step>> steps =
          detail::pattern_compiler(text, options.case_matters).compile();
      if (!steps) return steps.failure();
      detail::code_pattern pattern{std::move(steps).value(), {}};
      if (walk.start(pattern)) {
        return error(errc::invalid_argument, "identifier pattern " + detail::in_quotes(text) +
                                                 ": fits the empty text, expected one character "
                                                 "at least that is not optional");
      }
      for (char32_t c = 0; c < pattern.begins.size(); ++c) {
        pattern.begins[c] =
            walk.can_take(pattern, detail::comparable_ascii(c, options.case_matters));
      }
      finder.patterns_.push_back(std::move(pattern));
    }
    finder.options_ = std::move(options);
    return finder;
  }

  /// The same; throws the error.
  [[nodiscard]] static identifier_finder make(identifier_options options) {
    return try_make(std::move(options)).value();
  }

  /// True if it can find nothing.
  [[nodiscard]] bool empty() const { return patterns_.empty() && !options_.find; }

  /// The different codes of a text, each at its first place, in order of these places; those that
  /// only the callback knows come last.
  ///
  /// "PAY-042, then `pay-041` (PAY-042)" with PAY-### gives pay-042 at [0, 7) and pay-041 at
  /// [15, 22).
  [[nodiscard]] std::vector<identifier_match> find(std::string_view text) const {
    std::vector<identifier_match> out;
    detail::key_set<std::string> seen;
    for (identifier_match& match : find_all(text)) {
      if (seen.insert(match.value)) out.push_back(std::move(match));
    }
    return out;
  }

  /// The same with all repeats. For each pattern by itself: from left to right, the longest match
  /// at each place, without overlap. Cost: O(bytes) for given patterns, and the callback's.
  [[nodiscard]] std::vector<identifier_match> find_all(std::string_view text) const {
    std::vector<identifier_match> out;
    const auto keep = [&](std::string_view code, byte_range where) {
      std::string value = normalise_identifier(code, options_.case_matters);
      if (!value.empty()) out.push_back({std::move(value), where});
    };
    for (const byte_range where : matches(text)) keep(slice(text, where), where);
    if (options_.find) {
      for (const std::string& code : options_.find(text)) keep(code, {});
    }
    return out;
  }

 private:
  /// All matches of the patterns, in order of their begins.
  [[nodiscard]] std::vector<byte_range> matches(std::string_view text) const {
    std::vector<byte_range> out;
    if (patterns_.empty()) return out;
    detail::pattern_walk walk(options_.case_matters);
    std::vector<std::size_t> free_from(patterns_.size(), 0);  // the end of a pattern's last match
    char32_t before = ' ';                                    // the character to the left ...
    char32_t before_that = ' ';                               // ... and the one beyond
    detail::code_symbol symbol;
    for (std::size_t at = 0; at < text.size(); at = symbol.end) {
      symbol = detail::symbol_at(text, at);
      if (symbol.value == detail::nothing_shown) continue;
      const bool touched =
          detail::is_code_letter(before) || (before == '-' && detail::is_code_letter(before_that));
      for (std::size_t i = 0; !touched && i < patterns_.size(); ++i) {
        if (at < free_from[i] || !may_begin(patterns_[i], symbol.value)) continue;
        const std::size_t end = walk.longest_match(patterns_[i], text, at);
        if (end == 0) continue;
        out.push_back({at, end});
        free_from[i] = end;
      }
      before_that = before;
      before = symbol.value;
    }
    return out;
  }

  [[nodiscard]] static bool may_begin(const detail::code_pattern& pattern, char32_t c) {
    return c >= pattern.begins.size() || pattern.begins[c];
  }

  identifier_options options_;
  std::vector<detail::code_pattern> patterns_;
};

// =================================================================================================
// 9. Terms: an inverted index scored with BM25, and the exact codes beside it
//
// In   the terms of chunks and of a question, the codes found in them (8), what is counted over the
//      rows that this reader may read, and the rows that this search looks at. A term_index_builder
//      takes chunks, the term_index that it builds is searched.
// Out  rows, best first, with the numbers behind their scores.
//
//   score(q, d) = sum over t in q of  idf(t) * weight(t, d)             each distinct t once
//   idf(t)       = ln(1 + (N - n + 0.5) / (n + 0.5))                    n of N chunks hold t
//   weight(t, d) = tf * (k1 + 1) / (tf + k1 * (1 - b + b * |d| / avgdl))
//
// The idf is the form of Lucene and Tantivy, which is never negative; the form without "1 +" falls
// below zero for a term in more than half of the chunks and then has to be cut off. N, n and avgdl
// are counted over the readable chunks alone: from other counts a reader could learn how often a
// word occurs in text he may not see.
//
// Scores are whole numbers in units of 2^-20. idf and weight are rounded once each, everything
// after that is integer arithmetic, so a sum is the same in whatever order it is added. A score
// is within (number of terms) * 2^-20 of the real formula for up to 2^32 chunks and every allowed
// k1 and b.
//
// Source   Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009.
// =================================================================================================

/// How the repeats of a term and the length of a chunk count.
struct bm25_options {
  double k1 = 1.2;  ///< 0 to 60. 0: a term is there or not; large: every repeat counts in full
  double b = 0.75;  ///< 0 to 1. 0: length does not matter; 1: counts are divided by it in full
  bool count_repeats = false;  ///< a word that the question repeats counts each time; false: once
};

/// Fails with errc::invalid_argument unless 0 <= k1 <= 60 and 0 <= b <= 1. Beyond a k1 of 60
/// nothing changes any more but the scale, and the whole-number scores would run out of bits.
[[nodiscard]] inline result<void> check_bm25(const bm25_options& options) {
  if (!detail::is_finite(options.k1) || options.k1 < 0.0 || options.k1 > 60.0) {
    return error(errc::invalid_argument, "bm25_options: k1 " + detail::decimal_text(options.k1) +
                                             " must be a number from 0 to 60");
  }
  if (!detail::is_finite(options.b) || options.b < 0.0 || options.b > 1.0) {
    return error(errc::invalid_argument, "bm25_options: b " + detail::decimal_text(options.b) +
                                             " must be a number from 0 to 1");
  }
  return {};
}

namespace detail {

/// ln(x) for x >= 1 with the same bits everywhere: C libraries differ in the last one. x is
/// m * 2^e with m about 1, and ln(m) = 2 (s + s^3/3 + s^5/5 + ...) with s = (m - 1) / (m + 1).
/// No product is added to anything here, so that fused multiply-add has nothing to fuse.
[[nodiscard]] inline double natural_log(double x) {
  constexpr double log2_of_e = 1.4426950408889634;
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // 0.5 <= m < 1
  if (m < 0.70710678118654752) {
    m *= 2.0;
    --exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);  // |s| < 0.172: eleven terms reach 2^-53
  double power = s;
  double sum = 0.0;
  for (int k = 1; k <= 21; k += 2) {
    sum += power / k;
    power *= s * s;
  }
  return 2.0 * sum + exponent / log2_of_e;
}

}  // namespace detail

/// How rare a term is: it stands in `chunks_with_term` (n) of `chunk_count` (N) chunks, n <= N.
/// bm25_idf(5, 1) = 1.386: one chunk of five; bm25_idf(5, 4) = 0.288: four of five.
[[nodiscard]] inline double bm25_idf(std::size_t chunk_count, std::size_t chunks_with_term) {
  const auto all = static_cast<double>(chunk_count);
  const auto with = static_cast<double>(chunks_with_term);
  return detail::natural_log(1.0 + (all - with + 0.5) / (with + 0.5));
}

/// What `count` occurrences (>= 1) of a term are worth in a chunk of `length` terms, where the
/// average chunk has `average_length` of them: from 0 to k1 + 1, and 1 for one occurrence in an
/// average chunk. It is the formula above divided through by tf, which leaves no product that is
/// added to something: the bits do not depend on fused multiply-add.
[[nodiscard]] inline double bm25_weight(std::size_t count, std::size_t length,
                                        double average_length, const bm25_options& options) {
  const double relative =
      average_length > 0.0 ? options.b * static_cast<double>(length) / average_length : 0.0;
  const double norm = (1.0 - options.b) + relative;
  return (options.k1 + 1.0) / (1.0 + options.k1 * norm / static_cast<double>(count));
}

namespace detail {

// Bits behind the point. idf < 22 (2^32 chunks) and weight <= 61 (k1 = 60) keep the product below
// 2^64; their rounding errors, 61 * 2^-28 + 22 * 2^-27, and half a unit stay below one unit.
inline constexpr unsigned idf_bits = 27;
inline constexpr unsigned weight_bits = 26;
inline constexpr unsigned score_bits = 20;

[[nodiscard]] inline std::uint64_t to_units(double value, unsigned bits) {
  return static_cast<std::uint64_t>(value * static_cast<double>(std::uint64_t{1} << bits) + 0.5);
}

[[nodiscard]] inline double from_units(std::uint64_t units, unsigned bits) {
  return static_cast<double>(units) / static_cast<double>(std::uint64_t{1} << bits);
}

[[nodiscard]] inline std::uint64_t idf_units(std::size_t chunk_count, std::size_t n) {
  return to_units(bm25_idf(chunk_count, n), idf_bits);
}

/// idf x weight in units of 2^-20, rounded.
[[nodiscard]] inline std::uint64_t term_value(std::uint64_t idf, std::uint64_t weight) {
  constexpr unsigned shift = idf_bits + weight_bits - score_bits;
  return (idf * weight + (std::uint64_t{1} << (shift - 1))) >> shift;
}

/// The distinct ones of `terms`, in order of first use.
[[nodiscard]] inline std::vector<std::string_view> distinct(std::span<const std::string> terms) {
  std::vector<std::string_view> out;
  key_set<std::string_view> seen;  // of many terms
  out.reserve(terms.size());
  for (const std::string& term : terms) {
    const bool is_new = terms.size() > 16 ? seen.insert(term)
                                          : std::find(out.begin(), out.end(), term) == out.end();
    if (is_new) out.push_back(term);
  }
  return out;
}

/// Lets a map of strings be asked with a string_view.
struct text_hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>{}(text);
  }
};

template <class Value>
using text_map = std::unordered_map<std::string, Value, text_hash, std::equal_to<>>;

/// Numbers texts 0, 1, 2 ... as they come. All of it lies in three blocks of memory: a map would
/// take about 100 bytes more for each text, and free them one by one.
class text_numbers {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

  /// The number of a text; no_row: none.
  [[nodiscard]] std::uint32_t find(std::string_view text) const {
    return slots_.empty() ? no_row : slots_[slot_of(text, hash_of_text(text))];
  }
  /// The same; a text without a number gets the next one.
  std::uint32_t add(std::string_view text) {
    const std::uint32_t hash = hash_of_text(text);
    if (slots_.size() < 2 * (size() + 1)) grow();
    std::uint32_t& number = slots_[slot_of(text, hash)];
    if (number == no_row) {
      if (bytes_.size() > no_row) {
        raise(error(errc::invalid_argument, "term_index: the terms have more than 2^32 bytes"));
      }
      number = static_cast<std::uint32_t>(size());
      entries_.push_back({static_cast<std::uint32_t>(bytes_.size()), hash});
      bytes_ += text;
    }
    return number;
  }
  /// Gives back the memory that is held to spare.
  void tighten() {
    bytes_.shrink_to_fit();
    entries_.shrink_to_fit();
  }
  [[nodiscard]] std::size_t bytes() const {
    return bytes_.capacity() + sizeof(entry) * entries_.capacity() + 4 * slots_.capacity();
  }

  [[nodiscard]] std::string_view text(std::uint32_t number) const {
    const std::size_t begin = entries_[number].begin;
    const std::size_t end = number + 1 < size() ? entries_[number + 1].begin : bytes_.size();
    return std::string_view(bytes_).substr(begin, end - begin);
  }

 private:
  struct entry {
    std::uint32_t begin = 0;  // in bytes_; it ends where the next one begins
    std::uint32_t hash = 0;
  };

  [[nodiscard]] static std::uint32_t hash_of_text(std::string_view text) {
    return static_cast<std::uint32_t>(text_hash{}(text));
  }

  /// Where the text's number stands, or else belongs: the first free slot from that of its hash on.
  [[nodiscard]] std::size_t slot_of(std::string_view wanted, std::uint32_t hash) const {
    std::size_t slot = hash & (slots_.size() - 1);
    for (; slots_[slot] != no_row; slot = (slot + 1) & (slots_.size() - 1)) {
      if (entries_[slots_[slot]].hash == hash && text(slots_[slot]) == wanted) break;
    }
    return slot;
  }

  void grow() {
    slots_.assign((std::max)(2 * slots_.size(), std::size_t{16}), no_row);
    for (std::uint32_t number = 0; number < size(); ++number) {
      std::size_t slot = entries_[number].hash & (slots_.size() - 1);
      while (slots_[slot] != no_row) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = number;
    }
  }

  std::string bytes_;                 // all texts, one after the other
  std::vector<entry> entries_;        // by number
  std::vector<std::uint32_t> slots_;  // numbers, and no_row; a power of two, at most half full
};

}  // namespace detail

/// One row of a lexical result.
struct lexical_hit {
  std::uint32_t row = 0;
  std::uint64_t units = 0;        ///< BM25 score in 2^-20
  std::size_t exact = 0;          ///< how many codes of the question stand in the chunk
  bool exact_in_heading = false;  ///< one of these codes stands in its heading or title

  /// The BM25 score as a number.
  [[nodiscard]] double score() const { return detail::from_units(units, detail::score_bits); }
  friend bool operator==(const lexical_hit&, const lexical_hit&) = default;
};

/// What one term of a question adds to the score of one chunk.
struct term_explanation {
  std::string term = {};
  std::size_t tf = 0;     ///< occurrences in the chunk
  std::size_t n = 0;      ///< readable chunks with the term
  double idf = 0;         ///< rounded to 2^-27
  double weight = 0;      ///< rounded to 2^-26; 0 where tf is 0
  std::size_t times = 1;  ///< it counts in the question
  double value = 0;       ///< times x (idf x weight, rounded to 2^-20)
};

/// The BM25 score of one chunk, taken apart.
struct score_explanation {
  double score = 0;                          ///< exactly the sum of the values: as in search
  std::size_t chunk_count = 0;               ///< N: readable chunks
  std::size_t length = 0;                    ///< |d|: terms of the chunk
  double average_length = 0;                 ///< avgdl: of the readable chunks
  std::vector<term_explanation> terms = {};  ///< each distinct term of the question, in its order
};

/// What BM25 knows about a set of chunks.
struct length_statistics {
  std::size_t chunk_count = 0;
  std::uint64_t total_length = 0;  ///< terms in all of them

  [[nodiscard]] double average() const {
    return chunk_count == 0 ? 0.0
                            : static_cast<double>(total_length) / static_cast<double>(chunk_count);
  }
};

/// What BM25 counts over a set of chunks for one question. The counts of two sets without a common
/// chunk add up to those of both together.
struct term_statistics {
  length_statistics corpus = {};
  std::vector<std::size_t> chunks_with = {};  ///< n of each distinct term, in order of first use
};

// Postings are frozen: a builder collects them and build() writes them once, in byte order of the
// terms; segments are merged list by list. They hold counts, never a score, so that they serve any
// set of readable chunks. The rows are cut into windows of 4,096. A long list has a block for each
// window it touches, with 2 bytes a posting; a short one has 4 bytes a posting.

/// A chunk that holds a term, and how often.
struct term_posting {
  std::uint32_t row = 0;
  std::uint32_t count = 0;
};

namespace detail {

// The sums of a window (16 KiB) stay in the first-level cache, and the place of a posting in its
// window and its count share 16 bits.
inline constexpr unsigned window_bits = 12;
inline constexpr std::uint32_t window_rows = 1U << window_bits;
inline constexpr std::uint32_t many = 15;             // this count or more: see large_counts
inline constexpr std::size_t long_list = 64;          // postings from which a list has blocks
inline constexpr std::uint32_t most_rows = 1U << 28;  // row and count share 32 bits
inline constexpr std::size_t most_codes = 1U << 16;   // different lengths that tables can have

/// Where the list of a term begins; it ends where the next one begins.
struct term_record {
  std::uint32_t first = 0;  // in `shorts`: the postings of a short list, the best ones of a long
  std::uint32_t block = 0;  // in `blocks`: none for a short list
  std::uint32_t count = 0;  // postings
};

/// The postings of a long list in one window. `best` bounds what they can be worth under any
/// statistics. It holds a pair (count << 12 | code of the length) for counts of 1, of 2, of 3 and
/// above: the largest count and the shortest length of these postings, which need not be of one
/// posting; 0: none.
struct posting_block {
  std::uint32_t first = 0;      // in `longs`
  std::uint32_t bits = no_row;  // in `bits`, of a full block
  std::uint16_t window = 0;
  std::uint16_t count = 0;
  std::array<std::uint16_t, 4> best = {};
};

/// The places of a full block as bits, and how many stand before each word of them: whether a place
/// has a posting, and which, without a search.
struct block_bits {
  static constexpr std::size_t from = 160;  // postings of a block

  std::array<std::uint64_t, window_rows / 64> words = {};
  std::array<std::uint16_t, window_rows / 64> before = {};

  [[nodiscard]] bool contains(std::uint32_t place) const {
    return ((words[place / 64] >> (place % 64)) & 1U) != 0;
  }
  [[nodiscard]] std::uint32_t count_before(std::uint32_t place) const {
    const std::uint64_t below = words[place / 64] & ((std::uint64_t{1} << (place % 64)) - 1);
    return before[place / 64] + static_cast<std::uint32_t>(std::popcount(below));
  }
};

/// The lists, as arrays.
struct frozen_terms {
  text_numbers terms;                 // numbered in byte order
  std::vector<term_record> lists;     // of each term, and one more as their end
  std::vector<std::uint32_t> shorts;  // row << 4 | count
  std::vector<std::uint16_t> longs;   // place in the window << 4 | count
  std::vector<posting_block> blocks;  // list after list, windows rising
  std::vector<block_bits> bits;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> large_counts;  // list << 32 | row, count
  std::uint32_t largest_count = 0;
  std::vector<std::uint32_t> lengths;       // by row
  std::vector<std::uint32_t> lengths_used;  // each once, rising
  std::vector<std::uint16_t> length_codes;  // by row: place of its length in there

  [[nodiscard]] std::span<const posting_block> blocks_of(std::uint32_t list) const {
    return std::span(blocks).subspan(lists[list].block, lists[list + 1].block - lists[list].block);
  }
  /// A short list itself; of a long one the postings that are worth most by the index's own
  /// statistics, falling.
  [[nodiscard]] std::span<const std::uint32_t> shorts_of(std::uint32_t list) const {
    return std::span(shorts).subspan(lists[list].first, lists[list + 1].first - lists[list].first);
  }
  /// Where the large count of a posting stands, or else belongs.
  [[nodiscard]] std::size_t large_at(std::uint32_t list, std::uint32_t row) const {
    const std::pair wanted(std::uint64_t{list} << 32 | row, std::uint32_t{0});
    const auto at = std::lower_bound(large_counts.begin(), large_counts.end(), wanted);
    return static_cast<std::size_t>(at - large_counts.begin());
  }
  [[nodiscard]] std::uint32_t count_of(std::uint32_t list, std::uint32_t row,
                                       std::uint32_t count) const {
    return count < many ? count : large_counts[large_at(list, row)].second;
  }

  /// visit(row, count), rows rising.
  template <class Visit>
  void for_each(std::uint32_t list, Visit&& visit) const {
    for (const posting_block& block : blocks_of(list)) {
      const std::uint32_t base = std::uint32_t{block.window} << window_bits;
      for (std::uint32_t i = 0; i < block.count; ++i) {
        const std::uint32_t code = longs[block.first + i];
        visit(base + (code >> 4), count_of(list, base + (code >> 4), code & 15U));
      }
    }
    if (!blocks_of(list).empty()) return;
    for (const std::uint32_t code : shorts_of(list)) {
      visit(code >> 4, count_of(list, code >> 4, code & 15U));
    }
  }

  /// How often a row holds a term. Cost: O(log of the list).
  [[nodiscard]] std::uint32_t count_in(std::uint32_t list, std::uint32_t row) const {
    const auto found = [&](auto begin, auto end, std::uint32_t code) -> std::uint32_t {
      const auto at = std::lower_bound(begin, end, code);  // a count is at least 1
      return at != end && (*at | 15U) == (code | 15U) ? count_of(list, row, *at & 15U) : 0;
    };
    if (row >= lengths.size()) return 0;
    const auto parts = blocks_of(list);
    const auto few = shorts_of(list);
    if (parts.empty()) return found(few.begin(), few.end(), row << 4);
    const auto block = std::lower_bound(
        parts.begin(), parts.end(), row >> window_bits,
        [](const posting_block& b, std::uint32_t window) { return b.window < window; });
    if (block == parts.end() || block->window != row >> window_bits) return 0;
    const auto begin = longs.begin() + static_cast<std::ptrdiff_t>(block->first);
    return found(begin, begin + block->count, (row % window_rows) << 4);
  }

  [[nodiscard]] std::size_t bytes() const {
    const auto of = [](const auto& array) { return array.capacity() * sizeof(array[0]); };
    return sizeof *this + terms.bytes() + of(lists) + of(shorts) + of(longs) + of(blocks) +
           of(bits) + of(large_counts) + of(lengths) + of(lengths_used) + of(length_codes);
  }

  void set_lengths(std::vector<std::uint32_t> of_rows) {
    lengths = std::move(of_rows);
    lengths.shrink_to_fit();
    length_codes.reserve(lengths.size());
    lengths_used = lengths;
    std::sort(lengths_used.begin(), lengths_used.end());
    lengths_used.erase(std::unique(lengths_used.begin(), lengths_used.end()), lengths_used.end());
    lengths_used.shrink_to_fit();
    for (const std::uint32_t length : lengths) {
      const auto at = std::lower_bound(lengths_used.begin(), lengths_used.end(), length);
      const auto code = static_cast<std::size_t>(at - lengths_used.begin());
      length_codes.push_back(static_cast<std::uint16_t>((std::min)(code, most_codes - 1)));
    }
  }
};

/// What a count is worth in a chunk of a length, for one average length: in units of 2^-26, by
/// count (0 to 15; 15: the largest there is) and code of the length.
struct weight_table {
  double average = 0;
  std::size_t width = 0;
  std::vector<std::uint32_t> units;

  weight_table(const frozen_terms& terms, const bm25_options& options, double average_length)
      : average(average_length), width((std::min)(terms.lengths_used.size(), most_codes)) {
    units.assign(width, 0);
    units.reserve(16 * width);
    for (std::uint32_t count = 1; count <= many; ++count) {
      const std::uint32_t tf = count < many ? count : (std::max)(many, terms.largest_count);
      for (std::size_t code = 0; code < width; ++code) {
        units.push_back(static_cast<std::uint32_t>(to_units(
            bm25_weight(tf, terms.lengths_used[code], average_length, options), weight_bits)));
      }
    }
  }
  [[nodiscard]] std::uint32_t of(std::uint32_t count, std::uint32_t code) const {
    return units[count * width + code];
  }
};

/// The tables of the latest averages: a scope keeps its average until something changes.
class weight_tables {
 public:
  [[nodiscard]] std::shared_ptr<const weight_table> get(const frozen_terms& terms,
                                                        const bm25_options& options,
                                                        double average) {
    const std::lock_guard lock(mutex_);
    for (const auto& known : latest_) {
      if (known && !(known->average < average) && !(known->average > average)) return known;
    }
    return latest_[next_++ % latest_.size()] =
               std::make_shared<const weight_table>(terms, options, average);
  }

 private:
  std::mutex mutex_;
  std::array<std::shared_ptr<const weight_table>, 4> latest_;
  std::size_t next_ = 0;
};

/// Writes the lists of an index one after the other, in byte order of the terms.
class term_list_writer {
 public:
  term_list_writer(const bm25_options& options, std::vector<std::uint32_t> lengths) {
    double sum = 0;
    for (const std::uint32_t length : lengths) sum += length;
    const auto rows = static_cast<double>((std::max)(lengths.size(), std::size_t{1}));
    out_.set_lengths(std::move(lengths));
    own_.emplace(out_, options, sum / rows);
  }

  /// False if this is no list: a term that comes later, rows that rise and exist, counts above 0.
  [[nodiscard]] bool add(std::string_view term, std::span<const term_posting> list) {
    const auto number = static_cast<std::uint32_t>(out_.lists.size());
    if (number > 0 && !(out_.terms.text(number - 1) < term)) return false;
    std::size_t windows = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].count == 0 || list[i].row >= out_.lengths.size()) return false;
      if (i > 0 && list[i].row <= list[i - 1].row) return false;
      windows += i == 0 || list[i].row / window_rows != list[i - 1].row / window_rows ? 1U : 0U;
    }
    if (list.empty()) return false;
    add_record(list.size());
    out_.terms.add(term);
    for (const term_posting& p : list) {
      out_.largest_count = (std::max)(out_.largest_count, p.count);
      if (p.count >= many)
        out_.large_counts.push_back({std::uint64_t{number} << 32 | p.row, p.count});
    }
    if (list.size() < long_list || list.size() < 16 * windows) {
      for (const term_posting& p : list)
        out_.shorts.push_back(p.row << 4 | (std::min)(p.count, many));
    } else {
      add_best(list);
      add_blocks(list);
    }
    return true;
  }

  [[nodiscard]] frozen_terms finish() {
    add_record(0);
    if (out_.lengths.size() > most_rows || (out_.shorts.size() | out_.longs.size()) > no_row) {
      raise(error(errc::invalid_argument, "term_index: more than 2^28 rows or 2^32 postings"));
    }
    out_.longs.push_back(0);  // count_before of the last place may point here
    out_.terms.tighten();
    const auto tighten = [](auto&... arrays) { (arrays.shrink_to_fit(), ...); };
    tighten(out_.lists, out_.shorts, out_.longs, out_.blocks, out_.bits);
    return std::move(out_);
  }

 private:
  void add_record(std::size_t count) {
    const auto at = [](std::size_t place) { return static_cast<std::uint32_t>(place); };
    out_.lists.push_back({at(out_.shorts.size()), at(out_.blocks.size()), at(count)});
  }

  /// The postings of a long list that are worth most by the index's own statistics: a search looks
  /// at them first, for a score that k rows reach.
  void add_best(std::span<const term_posting> list) {
    worth_.clear();
    for (const term_posting& p : list) {
      const std::uint32_t count = (std::min)(p.count, many);
      const std::uint64_t weight = own_->of(count, out_.length_codes[p.row]);
      worth_.push_back(weight << 32 | p.row << 4 | count);
    }
    const auto cut =
        worth_.begin() + static_cast<std::ptrdiff_t>((std::min)(list.size() / 8, std::size_t{128}));
    std::nth_element(worth_.begin(), cut, worth_.end(), std::greater<>());
    std::sort(worth_.begin(), cut, std::greater<>());
    for (auto at = worth_.begin(); at != cut; ++at) {
      out_.shorts.push_back(static_cast<std::uint32_t>(*at));
    }
  }

  void add_blocks(std::span<const term_posting> list) {
    for (std::size_t from = 0; from < list.size();) {
      posting_block block;
      const std::uint32_t window = list[from].row >> window_bits;
      block.first = static_cast<std::uint32_t>(out_.longs.size());
      block.window = static_cast<std::uint16_t>(window);
      for (; from < list.size() && list[from].row >> window_bits == window; ++from, ++block.count) {
        const term_posting& p = list[from];
        const std::uint32_t count = (std::min)(p.count, many);
        out_.longs.push_back(static_cast<std::uint16_t>((p.row % window_rows) << 4 | count));
        const std::uint32_t code = (std::min)(std::uint32_t{out_.length_codes[p.row]}, 4095U);
        std::uint16_t& best = block.best[(std::min)(count, 4U) - 1];
        best = static_cast<std::uint16_t>((std::max)(best & 0xF000U, count << 12) |
                                          (best == 0 ? code : (std::min)(best & 4095U, code)));
      }
      if (block.count >= block_bits::from) add_bits(block);
      out_.blocks.push_back(block);
    }
  }

  void add_bits(posting_block& block) {
    block.bits = static_cast<std::uint32_t>(out_.bits.size());
    block_bits& bits = out_.bits.emplace_back();
    for (std::uint32_t i = 0; i < block.count; ++i) {
      const std::uint32_t place = out_.longs[block.first + i] >> 4;
      bits.words[place / 64] |= std::uint64_t{1} << (place % 64);
    }
    for (std::size_t word = 1; word < bits.words.size(); ++word) {
      bits.before[word] =
          static_cast<std::uint16_t>(bits.before[word - 1] + std::popcount(bits.words[word - 1]));
    }
  }

  frozen_terms out_;
  std::optional<weight_table> own_;
  std::vector<std::uint64_t> worth_;
};

/// Keeps the rows that may be among the k best: the k best so far, and what equals the last one.
class best_rows {
 public:
  explicit best_rows(std::size_t k) : k_(k), limit_(k) {}

  /// No row below can be among the k best any more.
  [[nodiscard]] std::uint32_t bar() const { return bar_; }
  [[nodiscard]] std::size_t k() const { return k_; }
  [[nodiscard]] std::size_t size() const { return keys_.size(); }
  /// Takes note of different rows that have at least so many units; their order changes.
  void raise_by(std::span<std::uint32_t> units) {
    if (units.size() < k_) return;
    const auto last = units.begin() + static_cast<std::ptrdiff_t>(k_) - 1;
    std::nth_element(units.begin(), last, units.end(), std::greater<>());
    bar_ = (std::max)(bar_, *last);
  }

  void add(std::uint32_t units, std::uint32_t row) {  // units >= bar()
    keys_.push_back(std::uint64_t{units} << 32 | (no_row - row));
    if (keys_.size() >= limit_) cut();
  }

  /// The k best, highest first, equal ones in the order of before(row, row).
  template <class Before>
  [[nodiscard]] std::vector<lexical_hit> take(const Before& before) {
    if (keys_.size() > k_) cut();
    std::sort(keys_.begin(), keys_.end(), std::greater<>());
    std::vector<lexical_hit> hits;
    hits.reserve(keys_.size());
    for (const std::uint64_t key : keys_) {
      hits.push_back({.row = no_row - static_cast<std::uint32_t>(key), .units = key >> 32});
    }
    const auto comes_first = [&before](const lexical_hit& x, const lexical_hit& y) {
      return before(x.row, y.row);
    };
    const auto cut = hits.begin() + static_cast<std::ptrdiff_t>((std::min)(k_, hits.size()));
    for (auto from = hits.begin(); from < cut;) {
      const auto to = std::find_if(from, hits.end(), [units = from->units](const lexical_hit& hit) {
        return hit.units != units;
      });
      if (to > cut) std::nth_element(from, cut, to, comes_first);
      std::sort(from, (std::min)(to, cut), comes_first);
      from = to;
    }
    hits.erase(cut, hits.end());
    return hits;
  }

 private:
  void cut() {
    const auto last = keys_.begin() + static_cast<std::ptrdiff_t>(k_) - 1;
    std::nth_element(keys_.begin(), last, keys_.end(), std::greater<>());
    const std::uint64_t least = *last >> 32;
    bar_ = (std::max)(bar_, static_cast<std::uint32_t>(least));
    keys_.erase(std::partition(last, keys_.end(), [least](auto key) { return key >> 32 == least; }),
                keys_.end());
    limit_ = 2 * keys_.size();
  }

  std::size_t k_ = 0;
  std::size_t limit_ = 0;
  std::uint32_t bar_ = 1;
  std::vector<std::uint64_t> keys_;  // units << 32 | no_row - row
};

// ---- pruned search: begin -----------------------------------------------------------------------
// A search adds whole numbers window by window, and leaves out what cannot reach the bar: the score
// that k rows are known to have. Several indexes are searched as one: with one bar, their windows
// in one order.
//
//   1 bound   What can a list add to a row of a window? For a block of a long list the best of its
//             pairs; a short list is decoded, so its largest value there. Their sum bounds the
//             window.
//   2 bar     Each list's best postings, as far as the filter lets them through, give a first bar.
//   3 order   Windows go from the highest bound down, until a bound is below the bar.
//   4 window  Its lists stand by bound, rising. The first ones, which together stay below the bar,
//             are left for look-ups, but only while they are longer than all that is added: else
//             adding is cheaper, and with many terms this is plain adding. What reaches the bar
//             with all the bounds left out is a candidate; each list left out is looked up, from
//             the highest bound down, and candidates are dropped as soon as they cannot reach it.
//             If the filter leaves few rows of the window, these are the candidates, and every
//             list is looked up.
//
// Nothing depends on the order in which the bar rises: a row below it is in no result, and rows
// that equal it stay in. So every plan gives the rows and numbers of score_all.
//
// Source   Turtle and Flood, Query Evaluation: Strategies and Optimizations, 1995 (MaxScore);
//          Ding and Suel, Faster Top-k Document Retrieval Using Block-Max Indexes, 2011.

/// A term of the question, its idf, and how often it counts.
struct weighed_term {
  std::string_view text;
  std::uint64_t idf = 0;
  std::uint32_t times = 1;

  [[nodiscard]] std::uint64_t value(std::uint64_t weight) const {
    return times * term_value(idf, weight);
  }
};

/// One of the indexes of a search.
struct pruned_part {
  const frozen_terms* terms = nullptr;
  const bm25_options* options = nullptr;
  std::shared_ptr<const weight_table> table = {};
  const row_set* among = nullptr;         // the rows that may be found
  std::uint32_t first_row = 0;            // its row r is found as first_row + r
  std::vector<std::uint32_t> lists = {};  // of each term; no_row: none
};

/// One search. The rows go to `best`.
class pruned_search {
 public:
  static constexpr std::uint32_t most_units = 0x7FFFFFFFU;  // sums are compared as signed numbers

  pruned_search(std::span<const pruned_part> parts, std::span<const weighed_term> asked,
                best_rows& best)
      : parts_(parts), asked_(asked), best_(best), worth_(asked.size()) {}

  /// False if the sums might not fit: nothing was searched.
  [[nodiscard]] bool run() {
    std::size_t postings = 0;
    std::size_t windows = 0;
    for (const pruned_part& part : parts_) {
      windows += windows_of(part);
      for (const std::uint32_t list : part.lists) {
        if (list != no_row) postings += part.terms->shorts_of(list).size();
      }
    }
    slices_.assign(windows * asked_.size(), {});
    part_of_.reserve(windows);
    decoded_.reserve(postings);  // slices point into it
    for (const pruned_part& part : parts_) read(part);
    for (std::vector<std::uint32_t>& each : worth_) best_.raise_by(each);
    std::vector<std::uint64_t> order;  // bound, then the earlier window first
    for (std::uint32_t window = 0; window < windows; ++window) {
      std::uint64_t bound = 0;
      for (const slice& each : slices_of(window)) bound += each.bound;
      if (bound > most_units) return false;
      if (bound >= best_.bar()) order.push_back(bound << 32 | (no_row - window));
    }
    std::sort(order.begin(), order.end(), std::greater<>());
    for (const std::uint64_t each : order) {
      if (each >> 32 < best_.bar()) break;
      search_window(no_row - static_cast<std::uint32_t>(each));
    }
    return true;
  }

 private:
  /// The postings of one list in one window: as in `longs`.
  struct slice {
    const std::uint16_t* codes = nullptr;
    std::uint32_t count = 0;
    std::uint32_t bound = 0;
    std::uint32_t bits = no_row;
    std::uint32_t list = 0;
    const weighed_term* term = nullptr;
  };

  /// An index as its windows are searched.
  struct opened_part {
    const pruned_part* from = nullptr;
    std::uint32_t first_window = 0;
    bool all = true;  // every row may be found
  };

  [[nodiscard]] static std::size_t windows_of(const pruned_part& part) {
    return (part.terms->lengths.size() + window_rows - 1) / window_rows;
  }
  [[nodiscard]] static bool has_all(const pruned_part& part) {
    const std::size_t rows = part.terms->lengths.size();
    if (part.among->size() < rows) return false;
    for (std::size_t row = 0; row < rows; row += 64) {
      const std::uint64_t unused = rows - row < 64 ? ~std::uint64_t{0} << (rows - row) : 0;
      if (~(part.among->words()[row / 64] | unused) != 0) return false;
    }
    return true;
  }

  [[nodiscard]] std::span<slice> slices_of(std::size_t window) {
    return std::span(slices_).subspan(window * asked_.size(), asked_.size());
  }

  /// From here on windows and rows are those of this index.
  void open(const opened_part& part) {
    here_ = part;
    terms_ = part.from->terms;
    table_ = part.from->table.get();
  }

  /// The slices of an index, and what its best postings are worth.
  void read(const pruned_part& part) {
    open({&part, static_cast<std::uint32_t>(part_of_.size()), has_all(part)});
    part_of_.insert(part_of_.end(), windows_of(part), here_);
    for (std::size_t term = 0; term < asked_.size(); ++term) {
      if (part.lists[term] == no_row) continue;
      if (terms_->blocks_of(part.lists[term]).empty()) {
        read_short(term, part.lists[term]);
      } else {
        read_long(term, part.lists[term]);
      }
    }
  }

  [[nodiscard]] std::uint32_t value_of(std::uint32_t list, const weighed_term& term,
                                       std::uint32_t row, std::uint32_t count) const {
    if (count == many) return large_value(term, terms_->large_at(list, row));
    return static_cast<std::uint32_t>(term.value(table_->of(count, terms_->length_codes[row])));
  }
  [[nodiscard]] std::uint32_t large_value(const weighed_term& term, std::size_t at) const {
    const auto& [place, count] = terms_->large_counts[at];
    const std::uint32_t length = terms_->lengths[static_cast<std::uint32_t>(place)];
    const double weight = bm25_weight(count, length, table_->average, *here_.from->options);
    return static_cast<std::uint32_t>(term.value(to_units(weight, weight_bits)));
  }

  [[nodiscard]] bool may_be_found(std::uint32_t row) const {
    return here_.all || here_.from->among->contains(row);
  }
  [[nodiscard]] slice& slice_of(std::uint32_t window, std::size_t term) {
    return slices_of(here_.first_window + window)[term];
  }

  void read_short(std::size_t term, std::uint32_t list) {
    const weighed_term& asked = asked_[term];
    for (const std::uint32_t code : terms_->shorts_of(list)) {
      const std::uint32_t row = code >> 4;
      if (!may_be_found(row)) continue;
      const std::uint32_t value = value_of(list, asked, row, code & 15U);
      worth_[term].push_back(value);
      slice& at = slice_of(row >> window_bits, term);
      if (at.count++ == 0) at = {decoded_.data() + decoded_.size(), 1, 0, no_row, list, &asked};
      at.bound = (std::max)(at.bound, value);
      decoded_.push_back(static_cast<std::uint16_t>(code));  // the low bits of the row: the place
    }
  }

  void read_long(std::size_t term, std::uint32_t list) {
    const weighed_term& asked = asked_[term];
    for (const posting_block& block : terms_->blocks_of(list)) {
      std::uint32_t weight = 0;
      for (const std::uint32_t pair : block.best) {
        weight = (std::max)(weight, table_->of(pair >> 12, pair & 4095U));
      }
      const auto bound = static_cast<std::uint32_t>(asked.value(weight));
      slice_of(block.window, term) = {
          terms_->longs.data() + block.first, block.count, bound, block.bits, list, &asked};
    }
    std::size_t left = best_.k();
    for (const std::uint32_t code : terms_->shorts_of(list)) {
      if (left == 0) break;
      if (!may_be_found(code >> 4)) continue;
      worth_[term].push_back(value_of(list, asked, code >> 4, code & 15U));
      --left;
    }
  }

  /// Adds the values of one list in one window to its sums. The loop has no branch: large counts
  /// are put right afterwards.
  void add(const slice& from, std::uint32_t base) {
    const weighed_term term = *from.term;
    const std::uint16_t* length = terms_->length_codes.data() + base;
    const std::uint32_t* table = table_->units.data();
    const std::size_t width = table_->width;
    std::uint32_t* sums = sums_.data();
    const auto value = [=](std::uint32_t code) {  // of one occurrence in the question
      return static_cast<std::uint32_t>(
          term_value(term.idf, table[(code & 15U) * width + length[code >> 4]]));
    };
    const auto codes = std::span(from.codes, from.count);
    if (term.times == 1) {
      for (const std::uint32_t code : codes) sums[code >> 4] += value(code);
    } else {
      for (const std::uint32_t code : codes) sums[code >> 4] += term.times * value(code);
    }
    for (std::size_t at = terms_->large_at(from.list, base); at < terms_->large_counts.size();
         ++at) {
      const std::uint64_t place =
          terms_->large_counts[at].first - (std::uint64_t{from.list} << 32 | base);
      if (place >= window_rows) break;
      const auto row = static_cast<std::uint32_t>(place);
      if (!may_be_found(base + row)) continue;
      sums[row] += large_value(term, at) - term.times * value(row << 4 | many);
    }
  }

  void search_window(std::uint32_t window) {
    open(part_of_[window]);
    const std::uint32_t base = (window - here_.first_window) << window_bits;
    live_.clear();
    for (const slice& each : slices_of(window)) {
      if (each.count > 0) live_.push_back(each);
    }
    std::sort(live_.begin(), live_.end(),
              [](const slice& a, const slice& b) { return a.bound < b.bound; });
    below_.assign(1, 0);
    for (const slice& each : live_) below_.push_back(below_.back() + each.bound);
    std::size_t left_out = 0;
    while (left_out < live_.size() && below_[left_out + 1] < best_.bar()) ++left_out;
    std::size_t added = 0;
    for (std::size_t i = left_out; i < live_.size(); ++i) added += live_[i].count;
    for (; left_out > 0 && live_[left_out - 1].count <= added; --left_out)
      added += live_[left_out - 1].count;

    const std::uint32_t bar = best_.bar();
    if (!here_.all && take_readable(base, 2 * added / live_.size())) {
      left_out = live_.size();  // all are looked up
    } else {
      add_window(base, left_out, added);
    }
    for (std::size_t i = left_out; i-- > 0 && count_ > 0;) {
      look_up(live_[i], base);
      keep_if([need = bar - (std::min)(bar, below_[i])](candidate c) { return c.value >= need; });
    }
    for (const candidate& each : candidates()) {
      if (each.value < best_.bar()) continue;
      best_.add(each.value, here_.from->first_row + base + each.place);
    }
  }

  /// The readable rows of the window as candidates, if these are few: false if not.
  [[nodiscard]] bool take_readable(std::size_t base, std::size_t most) {
    const row_set& among = *here_.from->among;
    const std::size_t rows = (std::min)(terms_->lengths.size(), among.size());
    const auto words = among.words().first((rows + 63) / 64);
    std::size_t count = 0;
    for (std::size_t row = base; row < rows && row < base + window_rows; row += 64) {
      count += static_cast<std::size_t>(std::popcount(words[row / 64]));
    }
    if (count > most) return false;
    count_ = 0;
    for (std::size_t row = base; row < rows && row < base + window_rows; row += 64) {
      for (std::uint64_t word = words[row / 64]; word != 0; word &= word - 1) {
        const std::size_t found = row + static_cast<std::size_t>(std::countr_zero(word));
        if (found < rows) candidates_[count_++] = {static_cast<std::uint32_t>(found - base), 0};
      }
    }
    return true;
  }

  /// Adds the lists of the window from `left_out` on, and takes what reaches the bar.
  void add_window(std::uint32_t base, std::size_t left_out, std::size_t added) {
    const std::uint32_t bar = best_.bar();
    const std::uint32_t cut = bar > below_[left_out] ? bar - below_[left_out] : 1;
    const auto lists = std::span(live_).subspan(left_out);
    for (const slice& each : lists) {
      add(each, base);
    }
    if (added < window_rows / 8) {
      take_few(lists, cut, std::span(live_).first(left_out));
    } else {
      take_all(cut);
    }
    if (!here_.all) keep_if([&](candidate c) { return may_be_found(base + c.place); });
  }

  /// A row of the window that may be wanted, and what is added up of it so far.
  struct candidate {
    std::uint32_t place;
    std::uint32_t value;
  };
  [[nodiscard]] std::span<candidate> candidates() { return std::span(candidates_).first(count_); }

  /// The places whose sum reaches the cut; all sums are 0 afterwards.
  void take_all(std::uint32_t cut) {
    constexpr std::uint32_t step = 64;
    const std::uint32_t* sums = sums_.data();
    const auto least = static_cast<std::int32_t>(cut);
    std::size_t count = 0;
    for (std::uint32_t from = 0; from < window_rows; from += step) {
      std::uint32_t reached = 0;
      for (std::uint32_t i = from; i < from + step; ++i) {
        reached |= static_cast<std::int32_t>(sums[i]) >= least ? 1U : 0U;
      }
      if (reached == 0) continue;
      for (std::uint32_t i = from; i < from + step; ++i) {
        candidates_[count] = {i, sums[i]};
        count += sums[i] >= cut ? 1U : 0U;
      }
    }
    count_ = count;
    std::fill(sums_.begin(), sums_.end(), 0);
  }

  /// The same for a few postings: over them once more, not over the window.
  void take_few(std::span<const slice> lists, std::uint32_t cut, std::span<const slice> left_out) {
    std::size_t count = 0;
    const auto take = [&, sums = sums_.data(), out = candidates_.data()](std::uint32_t place) {
      out[count] = {place, sums[place]};
      count += sums[place] >= cut ? 1U : 0U;
      sums[place] = 0;
    };
    for (const slice& each : lists) {
      for (const std::uint32_t code : std::span(each.codes, each.count)) take(code >> 4);
    }
    count_ = count;
    for (const slice& each : left_out) {
      if (each.bits != no_row) continue;
      std::sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(count),
                [](candidate a, candidate b) { return a.place < b.place; });
      return;
    }
  }

  template <class Keep>
  void keep_if(const Keep& keep) {
    std::size_t kept = 0;
    for (const candidate& each : candidates()) {
      candidates_[kept] = each;
      kept += keep(candidates_[kept]) ? 1U : 0U;
    }
    count_ = kept;
  }

  /// Adds what a list is worth in the candidates.
  void look_up(const slice& from, std::uint32_t base) {
    if (from.bits != no_row) return look_up_bits(from, base);
    const std::uint16_t* at = from.codes;
    const std::uint16_t* const end = at + from.count;
    for (candidate& each : candidates()) {  // places rise
      at = std::lower_bound(at, end, each.place << 4);
      if (at == end) return;
      if (*at >> 4 != each.place) continue;
      each.value += value_of(from.list, *from.term, base + each.place, *at & 15U);
    }
  }

  /// The same for a full block. Whether it holds a candidate cannot be foreseen: no branch.
  void look_up_bits(const slice& from, std::uint32_t base) {
    const block_bits& bits = terms_->bits[from.bits];
    for (auto& [place, sum] : candidates()) {
      const std::uint32_t count = from.codes[bits.count_before(place)] & 15U;
      const std::uint32_t value = static_cast<std::uint32_t>(
          from.term->value(table_->of(count, terms_->length_codes[base + place])));
      const std::uint32_t taken = bits.contains(place) ? ~0U : 0U;
      if ((count & taken) == many) {
        sum += value_of(from.list, *from.term, base + place, count);
      } else {
        sum += value & taken;
      }
    }
  }

  std::span<const pruned_part> parts_;
  std::span<const weighed_term> asked_;
  best_rows& best_;
  std::vector<std::vector<std::uint32_t>> worth_;  // of each term the values of its best postings
  std::vector<opened_part> part_of_;               // of each window
  opened_part here_;
  const frozen_terms* terms_ = nullptr;  // of `here_`, as is the table
  const weight_table* table_ = nullptr;
  std::vector<slice> slices_;           // window after window, a place for each term
  std::vector<std::uint16_t> decoded_;  // short lists, readable rows only
  std::vector<slice> live_;             // of the window
  std::vector<std::uint32_t> below_;    // sums of their bounds: of the first 0, 1, 2 ...
  std::array<std::uint32_t, window_rows> sums_ = {};  // by place; 0 between windows
  std::size_t count_ = 0;                             // of candidates
  std::array<candidate, window_rows> candidates_;
};

// ---- pruned search: end -------------------------------------------------------------------------

}  // namespace detail

/// For each term the chunks that hold it, and how often: checkout -> E42, E43, G. It is built once,
/// by a term_index_builder or of others; a deleted chunk is a row that no set contains any more:
/// all numbers are then those of an index that never held it. Reading is const and may happen on
/// many threads at once.
class term_index {
 public:
  using posting = term_posting;

  term_index() = default;
  /// Of finished lists: see detail::term_list_writer.
  term_index(const bm25_options& options, detail::frozen_terms terms)
      : options_(options), terms_(std::move(terms)) {}

  /// Visits each term in byte order with its postings, rows rising: visit(std::string_view term,
  /// std::span<const posting>). Cost: O(postings).
  template <class Visit>
  void for_each_list(Visit&& visit) const {
    std::vector<posting> list;
    for (std::uint32_t i = 0; i < terms_.terms.size(); ++i) {
      list.clear();
      terms_.for_each(i, [&](std::uint32_t row, std::uint32_t tf) { list.push_back({row, tf}); });
      visit(terms_.terms.text(i), std::span<const posting>(list));
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return terms_.lengths.size(); }
  [[nodiscard]] std::uint32_t length(std::uint32_t row) const { return terms_.lengths[row]; }
  [[nodiscard]] const bm25_options& options() const noexcept { return options_; }
  /// Bytes of memory, all in: lists, names, hash table, lengths, bounds.
  [[nodiscard]] std::size_t bytes() const { return terms_.bytes(); }

  /// One index of the rows of several: row r of parts[i] becomes new_rows[i][r] of `size` rows, or
  /// goes where that is no row. Within a part the new numbers rise. Cost: O(postings).
  [[nodiscard]] static term_index merged(const bm25_options& options,
                                         std::span<const term_index* const> parts,
                                         std::span<const std::vector<std::uint32_t>> new_rows,
                                         std::size_t size) {
    std::vector<std::uint32_t> lengths(size);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      for (std::size_t row = 0; row < new_rows[i].size(); ++row) {
        if (new_rows[i][row] == detail::no_row) continue;
        lengths[new_rows[i][row]] = parts[i]->terms_.lengths[row];
      }
    }
    detail::term_list_writer out(options, std::move(lengths));
    std::vector<list_name> names, spare_names;
    std::vector<std::size_t> runs;
    for (std::uint32_t i = 0; i < parts.size(); ++i) {
      runs.push_back(names.size());
      const detail::text_numbers& terms = parts[i]->terms_.terms;
      for (std::uint32_t list = 0; list < terms.size(); ++list) {
        names.push_back({terms.text(list), i, list});
      }
    }
    detail::merge_runs(std::span(names), runs, spare_names,
                       [](const list_name& a, const list_name& b) { return a.term < b.term; });
    std::vector<posting> postings, spare;
    for (std::size_t at = 0; at < names.size();) {
      const std::string_view term = names[at].term;
      postings.clear();
      runs.clear();
      for (; at < names.size() && names[at].term == term; ++at) {
        runs.push_back(postings.size());
        const std::vector<std::uint32_t>& new_row = new_rows[names[at].part];
        parts[names[at].part]->terms_.for_each(names[at].list,
                                               [&](std::uint32_t row, std::uint32_t tf) {
                                                 if (new_row[row] != detail::no_row)
                                                   postings.push_back({new_row[row], tf});
                                               });
      }
      detail::merge_runs(std::span(postings), runs, spare,
                         [](const posting& a, const posting& b) { return a.row < b.row; });
      if (!postings.empty()) static_cast<void>(out.add(term, postings));
    }
    return term_index(options, out.finish());
  }

  /// N and the sum of lengths over the rows of `readable`. Cost: O(rows).
  [[nodiscard]] length_statistics statistics(const row_set& readable) const {
    length_statistics sum;
    readable.for_each([&](std::uint32_t row) {
      if (row >= size()) return;
      ++sum.chunk_count;
      sum.total_length += terms_.lengths[row];
    });
    return sum;
  }
  /// The same with n of each distinct term. Cost: O(rows + postings of the terms).
  [[nodiscard]] term_statistics statistics(std::span<const std::string> terms,
                                           const row_set& readable) const {
    term_statistics sum{statistics(readable), {}};
    for (const std::string_view term : detail::distinct(terms)) {
      sum.chunks_with.push_back(count_readable(term, readable));
    }
    return sum;
  }

  /// Every row of `among` with at least one of the terms, scored, in order of rows: the plain form,
  /// which the pruned one must equal.
  ///
  /// counted   over the rows whose statistics count, perhaps with those of other indexes
  /// among     the rows that may be in the result
  /// cost      O(rows + postings of the terms)
  [[nodiscard]] std::vector<lexical_hit> score_all(std::span<const std::string> terms,
                                                   const term_statistics& counted,
                                                   const row_set& among) const {
    const double average = counted.corpus.average();
    std::vector<std::uint64_t> units(size(), 0);
    row_set found(size());  // a value may round to 0 units, so the sums alone do not tell
    for (const detail::weighed_term& each : weighed(terms, counted)) {
      for_each_posting(each.text, [&](posting p) {
        if (!among.contains(p.row)) return;
        units[p.row] += each.value(weight_units(p.row, p.count, average));
        found.insert(p.row);
      });
    }
    std::vector<lexical_hit> hits;
    found.for_each([&](std::uint32_t row) { hits.push_back({.row = row, .units = units[row]}); });
    return hits;
  }

  /// The `k` best rows of score_all, highest score first, equal scores by row, found without
  /// scoring what cannot be among them.
  [[nodiscard]] std::vector<lexical_hit> best(std::span<const std::string> terms, std::size_t k,
                                              const term_statistics& counted,
                                              const row_set& among) const {
    const index_part only{this, &among, 0};
    return best_of(std::span(&only, 1), terms, k, counted, std::less<>());
  }

  /// One of several indexes that are searched as one; its row r is first_row + r of them all.
  struct index_part {
    const term_index* index = nullptr;
    const row_set* among = nullptr;  ///< the rows of this index that may be in the result
    std::uint32_t first_row = 0;
  };

  /// The `k` best rows of several indexes, as if they were one: they share one bar.
  ///
  /// counted   over the rows of all
  /// before    which of two rows, as numbered in all, comes first if their scores are equal
  template <class Before>
  [[nodiscard]] static std::vector<lexical_hit> best_of(std::span<const index_part> parts,
                                                        std::span<const std::string> terms,
                                                        std::size_t k,
                                                        const term_statistics& counted,
                                                        const Before& before) {
    if (k == 0 || parts.empty()) return {};
    if (auto found = find_pruned(parts, parts.front().index->weighed(terms, counted), k,
                                 counted.corpus.average())) {
      return found->take(before);
    }
    std::vector<lexical_hit> hits;
    for (const index_part& part : parts) {
      for (lexical_hit hit : part.index->score_all(terms, counted, *part.among)) {
        hit.row += part.first_row;
        hits.push_back(hit);
      }
    }
    detail::keep_best(hits, k, [&before](const lexical_hit& x, const lexical_hit& y) {
      return x.units != y.units ? x.units > y.units : before(x.row, y.row);
    });
    return hits;
  }

  /// The `k` best of these rows, highest score first, equal scores by row, with the statistics of
  /// `readable`; a row outside of it is never in the result.
  [[nodiscard]] std::vector<lexical_hit> search(std::span<const std::string> terms, std::size_t k,
                                                const row_set& readable,
                                                const row_set& among) const {
    row_set both = among;
    both.keep_common(readable);
    return best(terms, k, statistics(terms, readable), both);
  }

  /// The units of rows that exist, a hit each; the other members stay. Cost: O(rows x terms x log).
  void score(std::span<lexical_hit> hits, std::span<const std::string> terms,
             const term_statistics& counted) const {
    const double average = counted.corpus.average();
    for (const detail::weighed_term& each : weighed(terms, counted)) {
      const std::uint32_t list = terms_.terms.find(each.text);
      if (list == detail::no_row) continue;
      for (lexical_hit& hit : hits) {
        const std::uint32_t tf = terms_.count_in(list, hit.row);
        if (tf > 0) hit.units += each.value(weight_units(hit.row, tf, average));
      }
    }
  }

  /// The score of one row, which must exist, term by term; a term that the row lacks stands there
  /// with tf 0.
  [[nodiscard]] score_explanation explain(std::uint32_t row, std::span<const std::string> terms,
                                          const term_statistics& counted) const {
    score_explanation out;
    out.chunk_count = counted.corpus.chunk_count;
    out.average_length = counted.corpus.average();
    out.length = terms_.lengths[row];
    const std::vector<std::uint32_t> times = times_of(terms);
    std::uint64_t sum = 0;
    std::size_t place = 0;
    for (const std::string_view term : detail::distinct(terms)) {
      const std::size_t n = counted.chunks_with[place];
      const std::uint32_t tf = count_in(term, row);
      const detail::weighed_term weighed{term, detail::idf_units(out.chunk_count, n),
                                         times[place++]};
      const std::uint64_t weight =
          tf == 0 || n == 0 ? 0 : weight_units(row, tf, out.average_length);
      const std::uint64_t value = weighed.value(weight);
      sum += value;
      out.terms.push_back({std::string(term), tf, n,
                           detail::from_units(weighed.idf, detail::idf_bits),
                           detail::from_units(weight, detail::weight_bits), weighed.times,
                           detail::from_units(value, detail::score_bits)});
    }
    out.score = detail::from_units(sum, detail::score_bits);
    return out;
  }
  /// The same with the statistics of `readable`. A row that does not exist or is not readable has
  /// length 0, score 0 and no terms.
  [[nodiscard]] score_explanation explain(std::uint32_t row, std::span<const std::string> terms,
                                          const row_set& readable) const {
    const term_statistics counted = statistics(terms, readable);
    if (row < size() && readable.contains(row)) return explain(row, terms, counted);
    score_explanation out;
    out.chunk_count = counted.corpus.chunk_count;
    out.average_length = counted.corpus.average();
    return out;
  }

  /// How rare a term is among the readable rows, rounded as in scores. A term that none of them
  /// holds is the rarest of all, whether another row holds it or not. Cost: O(rows + its postings).
  [[nodiscard]] double idf(std::string_view term, const row_set& readable) const {
    const std::size_t all = statistics(readable).chunk_count;
    return detail::from_units(detail::idf_units(all, count_readable(term, readable)),
                              detail::idf_bits);
  }

  /// The number of a term, below the number of distinct terms; nothing: no row holds it.
  [[nodiscard]] std::optional<std::uint32_t> number_of(std::string_view term) const {
    const std::uint32_t list = terms_.terms.find(term);
    return list == detail::no_row ? std::nullopt : std::optional(list);
  }

  /// Visits the postings of a term by its number, rows rising: visit(posting). Cost: O(they).
  template <class Visit>
  void for_each_posting(std::uint32_t number, Visit&& visit) const {
    terms_.for_each(number, [&](std::uint32_t row, std::uint32_t tf) { visit(posting{row, tf}); });
  }
  template <class Visit>
  void for_each_posting(std::string_view term, Visit&& visit) const {
    if (const auto number = number_of(term)) for_each_posting(*number, visit);
  }

  /// How many rows hold the term of a number, whoever may read them. Cost: O(1).
  [[nodiscard]] std::size_t row_count(std::uint32_t number) const {
    return terms_.lists[number].count;
  }

  /// True if the row holds the term. Cost: O(log of the term's postings).
  [[nodiscard]] bool contains(std::uint32_t row, std::uint32_t number) const {
    return terms_.count_in(number, row) != 0;
  }
  [[nodiscard]] bool contains(std::uint32_t row, std::string_view term) const {
    return count_in(term, row) != 0;
  }

  /// The posting list of a term without its counts: the rows that hold it, in order.
  [[nodiscard]] std::vector<std::uint32_t> rows_with(std::string_view term) const {
    std::vector<std::uint32_t> rows;
    for_each_posting(term, [&](const posting& p) { rows.push_back(p.row); });
    return rows;
  }

 private:
  struct list_name {
    std::string_view term;
    std::uint32_t part, list;
  };

  /// The distinct terms of a question that a counted chunk holds.
  [[nodiscard]] std::vector<detail::weighed_term> weighed(std::span<const std::string> terms,
                                                          const term_statistics& counted) const {
    const std::vector<std::uint32_t> times = times_of(terms);
    std::vector<detail::weighed_term> found;
    std::size_t place = 0;
    for (const std::string_view term : detail::distinct(terms)) {
      const std::size_t n = counted.chunks_with[place];
      if (n > 0) {
        found.push_back({term, detail::idf_units(counted.corpus.chunk_count, n), times[place]});
      }
      ++place;
    }
    return found;
  }
  /// How often each distinct term counts.
  [[nodiscard]] std::vector<std::uint32_t> times_of(std::span<const std::string> terms) const {
    if (!options_.count_repeats) return std::vector<std::uint32_t>(terms.size(), 1);
    std::unordered_map<std::string_view, std::size_t> place_of;
    std::vector<std::uint32_t> times;
    for (const std::string& term : terms) {
      const auto [place, is_new] = place_of.try_emplace(term, times.size());
      if (is_new) times.push_back(0);
      ++times[place->second];
    }
    return times;
  }

  /// The k best rows; nothing if they have to be found another way: sums or lengths are out of
  /// range, or rows are wanted whose score rounds to 0.
  [[nodiscard]] static std::optional<detail::best_rows> find_pruned(
      std::span<const index_part> parts, std::span<const detail::weighed_term> asked, std::size_t k,
      double average) {
    std::vector<detail::pruned_part> opened;
    std::size_t rows = 0;
    bool may_be_0 = false;
    for (const index_part& part : parts) {
      const term_index& index = *part.index;
      if (index.terms_.lengths_used.size() > detail::most_codes) return std::nullopt;
      rows += index.size();
      std::vector<std::uint32_t> lists;
      for (const auto& term : asked) lists.push_back(index.terms_.terms.find(term.text));
      if (std::count(lists.begin(), lists.end(), detail::no_row) == std::ssize(lists)) continue;
      const auto table = index.tables_->get(index.terms_, index.options_, average);
      const std::uint64_t least = table->of(1, static_cast<std::uint32_t>(table->width - 1));
      const auto most = detail::to_units(index.options_.k1 + 1, detail::weight_bits);
      for (std::size_t i = 0; i < asked.size(); ++i) {
        may_be_0 = may_be_0 || (lists[i] != detail::no_row && asked[i].value(least) == 0);
        if (asked[i].value(most) > detail::pruned_search::most_units) return std::nullopt;
      }
      opened.push_back(
          {&index.terms_, &index.options_, table, part.among, part.first_row, std::move(lists)});
    }
    detail::best_rows found((std::min)(k, (std::max)(rows, std::size_t{1})));
    if (!detail::pruned_search(opened, asked, found).run()) return std::nullopt;
    if (found.size() < k && may_be_0) return std::nullopt;
    return found;
  }

  [[nodiscard]] std::size_t count_readable(std::string_view term, const row_set& readable) const {
    std::size_t n = 0;
    for_each_posting(term, [&](const posting& p) { n += readable.contains(p.row) ? 1U : 0U; });
    return n;
  }

  [[nodiscard]] std::uint32_t count_in(std::string_view term, std::uint32_t row) const {
    const std::uint32_t list = terms_.terms.find(term);
    return list == detail::no_row ? 0 : terms_.count_in(list, row);
  }

  [[nodiscard]] std::uint64_t weight_units(std::uint32_t row, std::uint32_t tf,
                                           double average) const {
    return detail::to_units(bm25_weight(tf, terms_.lengths[row], average, options_),
                            detail::weight_bits);
  }

  bm25_options options_;
  detail::frozen_terms terms_;
  std::shared_ptr<detail::weight_tables> tables_ = std::make_shared<detail::weight_tables>();
};

/// Collects the terms of chunks, and makes an index of them. Rows are numbered 0, 1, 2 ... as they
/// are added.
class term_index_builder {
 public:
  term_index_builder() = default;

  /// Throws errc::invalid_argument for options outside their limits; try_make returns it.
  explicit term_index_builder(const bm25_options& options) : options_(options) {
    check_bm25(options).value();
  }
  [[nodiscard]] static result<term_index_builder> try_make(const bm25_options& options) {
    if (const result<void> good = check_bm25(options); !good) return good.failure();
    return term_index_builder(options);
  }

  /// Adds a chunk by its terms, repeats included, in any order; none is allowed. Returns its row.
  std::uint32_t add(std::span<const std::string> terms) {
    const auto row = static_cast<std::uint32_t>(lengths_.size());
    for (const std::string& term : terms) entries_.push_back({terms_.add(term), row});
    lengths_.push_back(static_cast<std::uint32_t>(terms.size()));
    return row;
  }

  /// The index of all that was added; the builder is empty then. Cost: O(postings + terms log
  /// terms).
  [[nodiscard]] term_index build() {
    std::vector<std::size_t> ends(terms_.size() + 1, 0);  // of each term's rows
    for (const entry& each : entries_) ++ends[each.term + 1];
    for (std::size_t term = 1; term < ends.size(); ++term) ends[term] += ends[term - 1];
    std::vector<std::uint32_t> rows(entries_.size());  // term after term, with repeats
    for (const entry& each : entries_) rows[ends[each.term]++] = each.row;
    std::vector<std::uint32_t> order(terms_.size());
    for (std::uint32_t term = 0; term < order.size(); ++term) order[term] = term;
    std::sort(order.begin(), order.end(),
              [this](std::uint32_t a, std::uint32_t b) { return terms_.text(a) < terms_.text(b); });
    detail::term_list_writer out(options_, std::move(lengths_));
    std::vector<term_posting> list;
    for (const std::uint32_t term : order) {
      list.clear();
      for (std::size_t i = term == 0 ? 0 : ends[term - 1]; i < ends[term]; ++i) {
        if (list.empty() || list.back().row != rows[i]) list.push_back({rows[i], 0});
        ++list.back().count;
      }
      static_cast<void>(out.add(terms_.text(term), list));
    }
    const bm25_options options = options_;
    *this = {};
    options_ = options;
    return term_index(options, out.finish());
  }

 private:
  struct entry {
    std::uint32_t term, row;
  };

  bm25_options options_;
  detail::text_numbers terms_;
  std::vector<entry> entries_;  // row after row, with repeats
  std::vector<std::uint32_t> lengths_;
};

/// The codes of chunks (error numbers, product names, options) in a field of their own, looked up
/// whole: PAY-042 -> E42. A code is compared byte by byte, in the form normalise_identifier gives.
class identifier_index {
 public:
  /// Notes that `identifier` stands in the chunk of this row; in_heading: in its heading or title.
  /// The order of calls does not matter; a repeat changes nothing, save that a heading is kept.
  void add(std::uint32_t row, std::string_view identifier, bool in_heading) {
    if (const auto at = places_.find(identifier); at != places_.end()) {
      at->second.push_back({row, in_heading});
    } else {
      places_.emplace(std::string(identifier), std::vector<place>{{row, in_heading}});
    }
  }

  /// The rows of `among` that hold at least one of the codes, in order of rows: `exact` is the
  /// number of different codes, `units` is 0. Cost: O(h log h) for h places of the codes.
  [[nodiscard]] std::vector<lexical_hit> look_up(std::span<const std::string> codes,
                                                 const row_set& among) const {
    struct match {
      std::uint32_t row = 0;
      std::size_t code = 0;
      bool in_heading = false;
    };
    std::vector<match> matches;
    std::size_t code = 0;
    for (const std::string_view wanted : detail::distinct(codes)) {
      const auto at = places_.find(wanted);
      ++code;
      if (at == places_.end()) continue;
      for (const place& p : at->second) {
        if (among.contains(p.row)) matches.push_back({p.row, code, p.in_heading});
      }
    }
    std::sort(matches.begin(), matches.end(), [](const match& x, const match& y) {
      return x.row != y.row ? x.row < y.row : x.code < y.code;
    });

    std::vector<lexical_hit> hits;
    std::size_t last_code = 0;  // of the last hit; codes count from 1
    for (const match& m : matches) {
      if (hits.empty() || hits.back().row != m.row) {
        hits.push_back({.row = m.row});
        last_code = 0;
      }
      if (m.code != last_code) ++hits.back().exact;
      last_code = m.code;
      hits.back().exact_in_heading = hits.back().exact_in_heading || m.in_heading;
    }
    return hits;
  }

 private:
  struct place {
    std::uint32_t row = 0;
    bool in_heading = false;
  };

  detail::text_map<std::vector<place>> places_;
};

namespace detail {

/// Whether a hit comes before another one, by all but the tie between equals.
/// returns  -1: before, 1: after, 0: equal
[[nodiscard]] inline int compare_lexical(const lexical_hit& x, const lexical_hit& y,
                                         bool exact_first) {
  if (exact_first && x.exact != y.exact) return x.exact > y.exact ? -1 : 1;
  if (exact_first && x.exact_in_heading != y.exact_in_heading) return x.exact_in_heading ? -1 : 1;
  return x.units == y.units ? 0 : x.units > y.units ? -1 : 1;
}

}  // namespace detail

/// One of several pairs of indexes that are searched as one.
struct lexical_part {
  term_index::index_part terms = {};
  const identifier_index* codes = nullptr;  ///< of the same rows
};

/// The lexical list: chunks that hold a code of the question first, then the rest by BM25.
///
/// parts         one or several; rows are numbered as in all of them
/// terms, codes  of the question (8)
/// k             at most so many rows
/// counted       over the rows whose statistics count
/// exact_first   BM25 knows nothing of whole codes, so this order is a rule of its own: more codes,
///               then a code in heading or title before a mention, then BM25, then `before`. false:
///               BM25, then `before`; a row that holds a code but no term is still there, last
/// before        which of two rows comes first if all else is equal
/// returns       best first; `exact` is filled either way
/// cost          at most O(rows + postings of the terms + h log h + k log k) for h places of codes
template <class Before>
[[nodiscard]] std::vector<lexical_hit> search_lexical(std::span<const lexical_part> parts,
                                                      std::span<const std::string> terms,
                                                      std::span<const std::string> codes,
                                                      std::size_t k, const term_statistics& counted,
                                                      bool exact_first, const Before& before) {
  std::vector<term_index::index_part> indexes;
  std::vector<lexical_hit> exact;
  detail::key_set<std::uint32_t> with_code;
  for (const auto& [part, part_codes] : parts) {
    indexes.push_back(part);
    std::vector<lexical_hit> own = part_codes->look_up(codes, *part.among);
    part.index->score(own, terms, counted);
    for (lexical_hit& hit : own) {
      hit.row += part.first_row;
      with_code.insert(hit.row);
      exact.push_back(hit);
    }
  }
  std::vector<lexical_hit> hits;
  // A row without a code that is among the k best of both kinds is among the k best by BM25.
  if (!exact_first || exact.size() < k) {
    hits = term_index::best_of(indexes, terms, k, counted, before);
  }
  if (exact.empty()) return hits;
  std::erase_if(hits, [&](const lexical_hit& hit) { return with_code.contains(hit.row); });
  hits.insert(hits.end(), exact.begin(), exact.end());
  detail::keep_best(hits, k, [&](const lexical_hit& x, const lexical_hit& y) {
    const int order = detail::compare_lexical(x, y, exact_first);
    return order != 0 ? order < 0 : before(x.row, y.row);
  });
  return hits;
}
/// The same over one pair of indexes; equal ones in order of rows.
[[nodiscard]] inline std::vector<lexical_hit> search_lexical(
    const term_index& index, const identifier_index& identifiers,
    std::span<const std::string> terms, std::span<const std::string> codes, std::size_t k,
    const term_statistics& counted, const row_set& among, bool exact_first = true) {
  const lexical_part only{{&index, &among, 0}, &identifiers};
  return search_lexical(std::span(&only, 1), terms, codes, k, counted, exact_first, std::less<>());
}
/// The same with the statistics of `readable`; a row outside of it is never in the result.
[[nodiscard]] inline std::vector<lexical_hit> search_lexical(
    const term_index& index, const identifier_index& identifiers,
    std::span<const std::string> terms, std::span<const std::string> codes, std::size_t k,
    const row_set& readable, const row_set& among, bool exact_first = true) {
  row_set both = among;
  both.keep_common(readable);
  return search_lexical(index, identifiers, terms, codes, k, index.statistics(terms, readable),
                        both, exact_first);
}

// =================================================================================================
// 10. Vector indexes: exact search, and IVF for large sets
//
// In   one vector per row (4); the rows this search may look at.        Out   hits, best first.
//
//   hits = the k allowed rows with the largest score;  ties: the smaller row
//
// flat_index compares every allowed row, so its answer is exact: always min(k, allowed rows that
// have a vector) hits, never a made-up one. The set of rows is tested inside the scan. Cutting to k
// first and testing afterwards would return too few hits, and their number would tell what is
// hidden. With bounds it reads a compressed copy first and the floats of those rows alone that may
// still enter the answer, which stays the same bit for bit.
//
// ivf_index sorts the rows into lists by direction and reads the lists nearest to the question
// only. It is faster and may miss a row whose list it did not read; it still gives as many hits.
// =================================================================================================

/// A row and how alike it is to the question.
struct vector_hit {
  std::uint32_t row = 0;  ///< counted from 0 in order of adding
  float score = 0;        ///< cosine or inner product; larger is closer
};

/// Many questions at once.
using question_list = std::span<const std::vector<float>>;

namespace detail {

using number_list = std::span<const std::uint32_t>;
using float_list = std::span<const float>;

[[nodiscard]] inline bool scores_before(const vector_hit& a, const vector_hit& b) {
  return a.score != b.score ? a.score > b.score : a.row < b.row;
}

/// The k best of any number of hits, offered in any order, in a heap whose top is the worst.
/// Cost: one comparison for an offer below the bar, else O(log k).
class best_hits {
 public:
  explicit best_hits(std::size_t k) : k_(k) {}

  /// What scores less cannot enter any more.
  [[nodiscard]] float bar() const { return bar_; }

  void offer(vector_hit hit) {
    if (hits_.size() == k_) {
      if (!scores_before(hit, hits_.front())) return;
      std::pop_heap(hits_.begin(), hits_.end(), scores_before);
      hits_.back() = hit;
      std::push_heap(hits_.begin(), hits_.end(), scores_before);
    } else {
      hits_.push_back(hit);
      if (hits_.size() < k_) return;
      std::make_heap(hits_.begin(), hits_.end(), scores_before);
    }
    raise_bar(hits_.front().score);
  }
  /// For one who knows of k rows that score as much.
  void raise_bar(float score) { bar_ = (std::max)(bar_, score); }

  /// At most k hits, best first. Leaves this empty.
  [[nodiscard]] std::vector<vector_hit> take() {
    std::sort(hits_.begin(), hits_.end(), scores_before);
    return std::move(hits_);
  }

 private:
  std::size_t k_;
  float bar_ = std::numeric_limits<float>::lowest();
  std::vector<vector_hit> hits_;
};

/// Memory that begins at a multiple of 64 bytes, a line of the cache. The byte before it tells how
/// far it was moved.
template <class Value>
struct line_allocator {
  using value_type = Value;
  line_allocator() = default;
  template <class Other>
  line_allocator(const line_allocator<Other>&) {}

  [[nodiscard]] Value* allocate(std::size_t count) {
    unsigned char* whole = std::allocator<unsigned char>().allocate(count * sizeof(Value) + 64);
    const std::size_t moved = 64 - reinterpret_cast<std::uintptr_t>(whole) % 64;
    whole[moved - 1] = static_cast<unsigned char>(moved);
    return reinterpret_cast<Value*>(whole + moved);
  }
  void deallocate(Value* values, std::size_t count) {
    auto* moved = reinterpret_cast<unsigned char*>(values);
    std::allocator<unsigned char>().deallocate(moved - moved[-1], count * sizeof(Value) + 64);
  }
  bool operator==(const line_allocator&) const = default;
};
template <class Value>
using line_vector = std::vector<Value, line_allocator<Value>>;

/// Places in a block of vectors: those that `listed` names, or all from `first` on.
struct place_list {
  std::size_t count = 0;
  std::uint32_t first = 0;
  const std::uint32_t* listed = nullptr;

  [[nodiscard]] std::uint32_t operator[](std::size_t i) const {
    return listed != nullptr ? listed[i] : first + static_cast<std::uint32_t>(i);
  }
};

inline constexpr std::size_t places_at_once = 1024;

/// Hands out places in blocks of at most `size`, itself at most places_at_once. Four that follow
/// each other there are a quarter of the list apart, so that the kernels, which take four at a
/// time, read four streams.
template <class Each>
void in_blocks(const place_list& places, std::size_t size, const Each& each) {
  std::array<std::uint32_t, places_at_once> block;
  const std::size_t quarter = (places.count + 3) / 4;
  for (std::size_t at = 0; at < quarter;) {
    std::size_t count = 0;
    for (; at < quarter && count + 4 <= size; ++at) {
      for (std::size_t i = at; i < places.count; i += quarter) block[count++] = places[i];
    }
    each(number_list(block.data(), count));
  }
}

/// Which row stands at a place, and whether it may be found.
struct place_names {
  const std::uint32_t* rows = nullptr;  // none: row i at place i
  const row_set* among = nullptr;       // none: all of them

  [[nodiscard]] std::uint32_t row(std::uint32_t place) const {
    return rows != nullptr ? rows[place] : place;
  }
  [[nodiscard]] bool allows(std::uint32_t place) const {
    return among == nullptr || among->contains(row(place));
  }
};

/// Vectors one after the other, and the loops to compare them with.
struct vector_block {
  const kernel_set* with = nullptr;
  const float* values = nullptr;
  std::size_t dimension = 0;
  double longest = 0;  // no vector is longer

  [[nodiscard]] float_list operator[](std::size_t place) const {
    return {values + place * dimension, dimension};
  }
  void score(float_list question, number_list places, float* scores) const {
    if (places.empty()) return;
    with->dots(question.data(), dimension, values, places.data(), places.size(), scores);
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (!is_finite(scores[i])) scores[i] = finite_sum(scores[i], question, (*this)[places[i]]);
    }
  }
  /// Scores at most places_at_once places and offers what may be found.
  void offer(float_list question, number_list places, const place_names& names,
             best_hits& best) const {
    std::array<float, places_at_once> scores;
    score(question, places, scores.data());
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (scores[i] < best.bar() || !names.allows(places[i])) continue;
      best.offer({names.row(places[i]), scores[i]});
    }
  }
  void scan(float_list question, const place_list& places, const place_names& names,
            best_hits& best) const {
    in_blocks(places, places_at_once,
              [&](number_list some) { offer(question, some, names, best); });
  }
};

/// Compares many questions with the same vectors. The vectors pass through the cache once for all
/// questions, a few hundred at a time, six of them against a group of questions in one tile.
///
/// A tile adds up in another order than dots. Either sum of d products is off by less than
/// d 2^-24 |q| |x| (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1), so
/// a pair whose tile score lies more than twice that below the bar cannot enter; all others are
/// given to dots. Hence the hits are those of one question at a time, bit for bit.
class batch_scan {
 public:
  /// best     of each question
  /// nearly   the tiles' own scores will do, as for k-means
  batch_scan(const vector_block& block, std::span<const float_list> questions, place_names names,
             std::span<best_hits> best, bool nearly = false)
      : block_(block), questions_(questions), names_(names), best_(best), nearly_(nearly) {
    for (const float_list question : questions)
      lengths_.push_back(nearly ? 0 : std::sqrt(dot_in_double(question, question)));
  }

  /// asked   which of the questions
  void run(number_list asked, const place_list& places) {
    if (asked.size() == 1)
      return block_.scan(questions_[asked[0]], places, names_, best_[asked[0]]);
    const std::size_t lanes = block_.with->questions;
    const std::size_t fit = (std::size_t{384} << 10) / (block_.dimension * sizeof(float));
    if (!few(asked.size())) pack(asked);
    in_blocks(places, (std::clamp)(fit, std::size_t{48}, std::size_t{252}), [&](number_list some) {
      for (std::size_t at = 0; at < asked.size(); at += lanes) {
        const auto group = asked.subspan(at, (std::min)(lanes, asked.size() - at));
        compare(group, packed_.data() + at * block_.dimension, some);
      }
    });
  }

 private:
  /// A tile takes as long as six questions whose vectors are in the cache.
  [[nodiscard]] static bool few(std::size_t questions) { return questions < 7; }

  void pack(number_list asked) {
    const std::size_t lanes = block_.with->questions;
    packed_.assign((asked.size() + lanes - 1) / lanes * lanes * block_.dimension, 0);
    for (std::size_t at = 0; at < asked.size(); ++at) {
      const float_list question = questions_[asked[at]];
      float* lane = &packed_[at / lanes * lanes * block_.dimension + at % lanes];
      for (std::size_t i = 0; i < block_.dimension; ++i) lane[i * lanes] = question[i];
    }
  }

  /// What a question's lane must reach to be looked at.
  [[nodiscard]] float bar_of(std::uint32_t question) const {
    const auto least = static_cast<double>(std::numeric_limits<float>::lowest());
    const double error = 2.1 * static_cast<double>(block_.dimension + 64) * 0x1p-24;
    const double slack = nearly_ ? 0 : error * lengths_[question] * block_.longest + 1e-30;
    const auto bar = static_cast<double>(best_[question].bar());
    return static_cast<float>((std::max)(bar - slack, least));
  }

  void compare(number_list group, const float* packed, number_list places) {
    double most = 0;
    for (const std::uint32_t each : group) most = (std::max)(most, lengths_[each]);
    if (few(group.size()) || most * block_.longest > 1e30) {  // nor may a tile's sum overflow
      for (const std::uint32_t each : group)
        block_.offer(questions_[each], places, names_, best_[each]);
      return;
    }
    const std::size_t lanes = block_.with->questions;
    bars_.assign(lanes, (std::numeric_limits<float>::max)());
    for (std::size_t lane = 0; lane < group.size(); ++lane) bars_[lane] = bar_of(group[lane]);
    scores_.resize(6 * lanes);
    waiting_.resize(lanes);
    for (std::size_t at = 0; at < places.size(); at += 6) {
      std::array<std::uint32_t, 6> six;  // the last one again where there are fewer
      for (std::size_t i = 0; i < 6; ++i) six[i] = places[(std::min)(at + i, places.size() - 1)];
      const unsigned reach = block_.with->tile(packed, block_.dimension, block_.values, six.data(),
                                               bars_.data(), scores_.data());
      for (std::size_t i = 0; i < (std::min)(places.size() - at, std::size_t{6}); ++i) {
        if ((reach >> i & 1) == 0) continue;
        for (std::size_t lane = 0; lane < group.size(); ++lane) {
          if (scores_[i * lanes + lane] >= bars_[lane])
            reached(lane, group, six[i], scores_[i * lanes + lane]);
        }
      }
    }
    for (std::size_t lane = 0; lane < group.size() && !nearly_; ++lane) {
      block_.offer(questions_[group[lane]], waiting_[lane], names_, best_[group[lane]]);
      waiting_[lane].clear();
    }
  }

  void reached(std::size_t lane, number_list group, std::uint32_t place, float score) {
    if (!nearly_) return waiting_[lane].push_back(place);
    best_[group[lane]].offer({place, score});
    bars_[lane] = best_[group[lane]].bar();
  }

  const vector_block& block_;
  std::span<const float_list> questions_;
  place_names names_;
  std::span<best_hits> best_;
  bool nearly_;
  std::vector<float> packed_ = {}, bars_ = {}, scores_ = {};
  std::vector<double> lengths_ = {};
  std::vector<std::vector<std::uint32_t>> waiting_ = {};  // places for dots, by lane
};

/// Can an index of this dimension (0: none yet) be asked this? `index` opens the sentence.
[[nodiscard]] inline result<void> check_question(const std::string& index, float_list question,
                                                 std::size_t k, std::size_t dimension) {
  if (k == 0) return error(errc::invalid_argument, index + ": k 0 must be at least 1");
  if (dimension != 0 && question.size() != dimension) {
    return error(errc::dimension_mismatch, index + ": question has " + text_of(question.size()) +
                                               " numbers, the index holds " + text_of(dimension));
  }
  const std::size_t bad = first_not_finite(question);
  if (bad == question.size()) return {};
  return error(errc::not_finite, index + ": question: " + not_finite_text(bad, question.size()));
}

/// Questions as they are compared, and the numbers of those that have a direction.
struct checked_questions {
  std::vector<std::vector<float>> wanted = {};
  std::vector<std::uint32_t> asked = {};

  [[nodiscard]] std::vector<float_list> views() const { return {wanted.begin(), wanted.end()}; }
};
[[nodiscard]] inline result<checked_questions> check_questions(const std::string& index,
                                                               question_list questions,
                                                               std::size_t k, std::size_t dimension,
                                                               metric measure) {
  checked_questions all;
  all.wanted.assign(questions.begin(), questions.end());
  for (std::uint32_t i = 0; i < questions.size(); ++i) {
    const auto checked = check_question(index, questions[i], k, dimension);
    if (!checked) return checked.failure();
    if (measure == metric::inner_product || normalise(all.wanted[i])) all.asked.push_back(i);
  }
  return all;
}

// ---- bounds: exact search that reads few floats
//
// Beside its floats a row x has a code of 8 bits a dimension, in two planes: the upper four bits of
// all dimensions stand together, h, and the lower four. With the mean m and the width w of each
// dimension, and a step a of the row, code c stands for  z8 = a w (c - 127.5), h alone for
// z4 = 16 a w (h - 7.5). A question q becomes digits p of -127 to 127, step b. Then S = sum of p h
// is a whole number, an eighth of the floats' bytes give it, and with P = sum of p
//
//   U = q.m + a (8 b (2 S - 15 P) + 16 E M) + |q| R   is at least the score s that dots gives,
//
//   where M >= |h - 7.5| of every row, E >= |q w - b p|, u = 2^-24, and for d dimensions
//   R >= |x - m - z4| + (d + 64) u (|x| + |m| + |z4|).
//
// Proof. q.x = q.m + q.z4 + q.(x - m - z4). The second is 16 a (q w).(h - 7.5), that is
// 8 a b (2 S - 15 P) + 16 a (q w - b p).(h - 7.5), whose last term is at most 16 a E M; the third
// is at most |q| |x - m - z4| (both: Cauchy-Schwarz). dots errs by less than d u |q| |x| in
// whatever order it adds, and by d 2^-124 (1 + |q|) where numbers are denormal. To evaluate U in
// float takes eight roundings of terms of at most |q| (|m| + |z4|), E, and |q| R: the first are
// inside 64 u, E is raised by 2^-16, |q.m| and R by 2^-18. R itself is summed in double and rounded
// up. The same holds of z8.
//
// So a row with U below the k-th best score so far cannot enter the hits, and any other is scored
// by dots: the hits are those of the float scan, bit for bit. Tests make R, E and M a little too
// small and see it fail.

/// At least `value`, as float.
[[nodiscard]] inline float float_above(double value) {
  const float rounded = static_cast<float>(value);
  return static_cast<double>(rounded) < value
             ? std::nextafter(rounded, std::numeric_limits<float>::infinity())
             : rounded;
}

/// Where the code of dimension i stands: in which word of a row, from which bit on.
[[nodiscard]] inline std::size_t code_word(std::size_t i) { return i / 128 * 32 + i % 32; }
[[nodiscard]] inline int code_shift(std::size_t i) { return static_cast<int>(i / 32 % 4) * 4; }
/// Where its digit stands among the bytes that follow the words of a question: first those of the
/// codes in the lower halves of the bytes, then the others, for each run.
[[nodiscard]] inline std::size_t digit_place(std::size_t i) {
  return i / 128 * 128 + i / 32 % 2 * 64 + i % 32 * 2 + i / 64 % 2;
}

/// A question in digits, and what its bounds have in common.
struct coded_question {
  std::vector<std::int16_t> digits = {};
  float constant = 0, half_step = 0, length = 0;
  std::array<float, 2> error = {};  // from the upper plane, from both
  std::int32_t sum = 0;
  bool usable = false;  // not if it is so long or short that floats leave their range
};
struct row_code {
  float step = 0;
  std::array<float, 2> error = {};
};

/// The codes of the first rows of a block.
class row_bounds {
 public:
  row_bounds() = default;
  /// looseness   times the errors; a wrong one is for the test that sees it
  row_bounds(const vector_block& block, std::size_t count, double looseness = 1)
      : runs_((block.dimension + 127) / 128), rows_(count), looseness_(looseness) {
    for (auto& plane : planes_) plane.resize(count * runs_ * 32);
    find_widths(block);
    for (std::size_t at = 0; at < count; ++at) encode(at, block[at]);
  }

  [[nodiscard]] std::size_t count() const { return rows_.size(); }
  [[nodiscard]] float step(std::uint32_t place) const { return rows_[place].step; }
  /// Sums of digits times codes of the upper (0) or lower (1) plane. What bound() wants next is
  /// fetched meanwhile.
  void add_up(const kernel_set& with, const coded_question& asked, std::size_t plane,
              number_list places, std::int32_t* sums) const {
    for (const std::uint32_t place : places) RAG_RETRIEVE_DETAIL_PREFETCH(&rows_[place]);
    with.codes(asked.digits.data(), runs_, planes_[plane].data(), places.data(), places.size(),
               sums);
  }
  /// U; with the lower plane's sum the one of both planes.
  [[nodiscard]] float bound(const coded_question& asked, std::uint32_t place,
                            std::int32_t high) const {
    return bound(asked, rows_[place], 0, 32 * high - 240 * asked.sum);
  }
  [[nodiscard]] float bound(const coded_question& asked, std::uint32_t place, std::int32_t high,
                            std::int32_t low) const {
    return bound(asked, rows_[place], 1, 32 * high + 2 * low - 255 * asked.sum);
  }

  [[nodiscard]] coded_question ask(float_list question) const {
    coded_question asked;
    const double square = dot_in_double(question, question);
    const double length = std::sqrt(square) * (1 + 1e-9);
    double most = 0;
    for (std::size_t i = 0; i < question.size(); ++i)
      most = (std::max)(most, std::abs(static_cast<double>(question[i]) * width_[i]));
    asked.usable = square > 0x1p-100 && square < 0x1p100 && most > 0;
    if (!asked.usable) return asked;
    asked.half_step = static_cast<float>(most / 254);
    const double step = 2 * static_cast<double>(asked.half_step);
    asked.digits.resize(192 * runs_);
    auto* bytes = reinterpret_cast<signed char*>(asked.digits.data() + 128 * runs_);
    double errors = 0;
    for (std::size_t i = 0; i < question.size(); ++i) {
      const double wide = static_cast<double>(question[i]) * width_[i];
      const double digit = (std::clamp)(std::floor(wide / step + 0.5), -127.0, 127.0);
      asked.digits[i] = static_cast<std::int16_t>(digit);
      bytes[digit_place(i)] = static_cast<signed char>(digit);
      errors += (wide - step * digit) * (wide - step * digit);
      asked.sum += static_cast<std::int32_t>(digit);
    }
    const double error = (std::sqrt(errors) + length * 1e-10) * (1 + 0x1p-16);
    asked.error = {float_above(16 * error * most_[0]), float_above(error * most_[1])};
    asked.length = float_above(length);
    const double mean = dot_in_double(question, mean_);
    asked.constant = float_above(mean + (std::abs(mean) + length * mean_length_) * 0x1p-18 +
                                 (1 + length) * static_cast<double>(question.size()) * 0x1p-124);
    return asked;
  }

 private:
  [[nodiscard]] static float bound(const coded_question& asked, const row_code& row,
                                   std::size_t planes, std::int32_t doubled) {
    return asked.constant +
           row.step * (asked.half_step * static_cast<float>(doubled) + asked.error[planes]) +
           asked.length * row.error[planes];
  }

  /// Mean and width of each dimension, from some rows: any are right, good ones make bounds tight.
  void find_widths(const vector_block& block) {
    std::vector<double> sums(block.dimension), squares(block.dimension);
    mean_.resize(block.dimension);
    width_.assign(block.dimension, 1);
    double used = 0;
    const std::size_t sample = (std::min)(count(), std::size_t{16384});
    for (std::size_t i = 0; i < sample; ++i) {
      const float_list row = block[i * count() / sample];
      const double square = dot_in_double(row, row);
      if (!(square > 1e-30 && square < 1e30)) continue;
      ++used;
      for (std::size_t j = 0; j < row.size(); ++j) {
        sums[j] += static_cast<double>(row[j]);
        squares[j] += static_cast<double>(row[j]) * static_cast<double>(row[j]);
      }
    }
    if (used < 1) return;
    double all = 0;
    for (std::size_t j = 0; j < mean_.size(); ++j) {
      const double mean = sums[j] / used;
      mean_[j] = static_cast<float>(mean);
      width_[j] = std::sqrt((std::max)(0.0, squares[j] / used - mean * mean));
      all += width_[j] / static_cast<double>(mean_.size());
    }
    for (double& width : width_)  // rounded to float, so that products with a step are exact
      width = all > 1e-15
                  ? static_cast<double>(static_cast<float>((std::clamp)(width / all, 0.02, 50.0)))
                  : 1;
    mean_length_ = std::sqrt(dot_in_double(mean_, mean_)) * (1 + 1e-9);
  }

  void encode(std::size_t at, float_list row) {
    double most = 0;
    std::vector<double> offs, wide(width_);  // x - m, and in units of w
    for (std::size_t i = 0; i < row.size(); ++i) {
      offs.push_back(static_cast<double>(row[i]) - static_cast<double>(mean_[i]));
      wide[i] = offs[i] / width_[i];
      most = (std::max)(most, std::abs(wide[i]));
    }
    const double square = dot_in_double(row, row);
    constexpr float always = std::numeric_limits<float>::infinity();
    rows_[at] = {0, {always, always}};
    if (square >= 0x1p100) return;
    if (most > 1e-26) rows_[at].step = static_cast<float>(most / 127.5);
    const auto step = static_cast<double>(rows_[at].step);
    const double per = step > 0 ? 1 / step : 0;
    std::array<double, 2> errors{}, middle{};
    double codes = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const int code = (std::clamp)(static_cast<int>(wide[i] * per + 128), 0, 255);
      const std::array<double, 2> centred{(code >> 4) - 7.5, code - 127.5};
      for (std::size_t plane = 0; plane < 2; ++plane) {
        std::uint16_t& word = planes_[plane][at * runs_ * 32 + code_word(i)];
        const int half = plane == 0 ? code >> 4 : code & 15;
        word = static_cast<std::uint16_t>(word | half << code_shift(i));
        const double z = (plane == 0 ? 16 : 1) * step * width_[i] * centred[plane];
        codes += z * z;
        errors[plane] += (offs[i] - z) * (offs[i] - z);
        middle[plane] += centred[plane] * centred[plane];
      }
    }
    const double rounding = static_cast<double>(row.size() + 64) * 0x1p-24 *
                            (std::sqrt(square) + mean_length_ + std::sqrt(codes));
    for (std::size_t plane = 0; plane < 2; ++plane) {
      most_[plane] = (std::max)(most_[plane], std::sqrt(middle[plane]) * (1 + 1e-9));
      const double error = (std::sqrt(errors[plane]) + rounding) * (1 + 0x1p-18);
      rows_[at].error[plane] = float_above(error * looseness_);
    }
  }

  std::size_t runs_ = 0;  // of 64 bytes, in each plane of a row
  std::vector<row_code> rows_;
  std::array<line_vector<std::uint16_t>, 2> planes_;
  double looseness_ = 1;
  std::vector<float> mean_;
  std::vector<double> width_;
  double mean_length_ = 0;
  std::array<double, 2> most_ = {};
};

/// One question among rows that have bounds. Where they do not pay, as among rows that hardly
/// differ, it notices after a few that these took as long as their floats would, and reads the next
/// rows without looking at bounds: 32 times as many, then 64 times, and so on.
class bounded_search {
 public:
  bounded_search(const row_bounds& bounds, const vector_block& block, float_list question,
                 const place_names& names, best_hits& best)
      : bounds_(bounds),
        block_(block),
        question_(question),
        asked_(bounds.ask(question)),
        names_(names),
        best_(best) {}

  void run(std::size_t k, const place_list& places) {
    if (!asked_.usable) return block_.scan(question_, places, names_, best_);
    raise_bar(k, places);
    in_blocks(places, places_at_once, [&](number_list some) {
      const bool fresh = unbounded_ == 0 && seen_ == 0;  // a few tell whether it pays
      const std::size_t few = fresh ? (std::min)(some.size(), std::size_t{256}) : 0;
      if (few > 0) compare(some.first(few));
      some = some.subspan(few);
      if (unbounded_ == 0) return compare(some);
      unbounded_ -= (std::min)(unbounded_, some.size());
      block_.offer(question_, some, names_, best_);
    });
    settle();
  }

 private:
  struct candidate {
    std::uint32_t place = 0;
    std::int32_t high = 0;
    float bound = 0;
  };

  /// Scores the best k of some rows by their codes, so that the bar is high from the start.
  void raise_bar(std::size_t k, const place_list& places) {
    const std::size_t count =
        (std::min)((std::max)(std::size_t{1024}, places.count / 512), places.count / 32);
    std::vector<std::uint32_t> some;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t place = places[i * places.count / count];
      if (names_.allows(place)) some.push_back(place);
    }
    if (some.size() < k) return;
    std::vector<std::int32_t> sums(some.size());
    bounds_.add_up(*block_.with, asked_, 0, some, sums.data());
    std::vector<vector_hit> rough;
    for (std::size_t i = 0; i < some.size(); ++i) {
      const auto twice = static_cast<float>(2 * sums[i] - 15 * asked_.sum);
      rough.push_back({some[i], bounds_.step(some[i]) * twice});
    }
    keep_best(rough, k, scores_before);
    some.clear();
    for (const vector_hit& each : rough) some.push_back(each.row);
    best_hits first(k);
    block_.scan(question_, {k, 0, some.data()}, {}, first);
    best_.raise_bar(first.bar());
  }

  /// Puts aside what the upper plane does not rule out; looks at it at once if it is most.
  void compare(number_list some) {
    std::array<std::int32_t, places_at_once> sums;
    bounds_.add_up(*block_.with, asked_, 0, some, sums.data());
    const float bar = best_.bar();
    for (std::size_t i = 0; i < some.size(); ++i) {
      if (bounds_.bound(asked_, some[i], sums[i]) < bar) continue;
      if (names_.allows(some[i])) waiting_.push_back({some[i], sums[i]});
    }
    seen_ += some.size();
    if (waiting_.size() >= 2048 || 4 * waiting_.size() > seen_) settle();
  }

  /// Looks at the lower plane of what waits, then at the floats.
  void settle() {
    const auto drop = [&] {
      std::erase_if(waiting_, [&](const candidate& each) { return each.bound < best_.bar(); });
    };
    std::vector<std::uint32_t> places;
    for (candidate& each : waiting_) each.bound = bounds_.bound(asked_, each.place, each.high);
    drop();
    for (const candidate& each : waiting_) places.push_back(each.place);
    std::vector<std::int32_t> lows(places.size());
    bounds_.add_up(*block_.with, asked_, 1, places, lows.data());
    for (std::size_t i = 0; i < waiting_.size(); ++i)
      waiting_[i].bound = bounds_.bound(asked_, places[i], waiting_[i].high, lows[i]);
    drop();
    const auto seen = static_cast<double>(seen_);
    const double codes = (seen + static_cast<double>(places.size())) * block_.with->codes_cost;
    if (codes + static_cast<double>(score_waiting()) > 0.9 * seen) {
      unbounded_ = patience_ * seen_;
      patience_ *= 2;
    }
    waiting_.clear();
    seen_ = 0;
  }

  /// Scores the highest bound first, until no other reaches the bar; all as they come if they are
  /// many. Returns how many.
  [[nodiscard]] std::size_t score_waiting() {
    const bool unordered = waiting_.size() * 4 > seen_;
    const std::size_t at_once = unordered ? places_at_once : 16;
    if (!unordered) {
      std::sort(waiting_.begin(), waiting_.end(),
                [](const candidate& a, const candidate& b) { return a.bound > b.bound; });
    }
    std::vector<std::uint32_t> places;
    std::size_t scored = 0;
    while (scored < waiting_.size() && (unordered || !(waiting_[scored].bound < best_.bar()))) {
      places.clear();
      for (; scored < waiting_.size() && places.size() < at_once; ++scored)
        places.push_back(waiting_[scored].place);
      block_.offer(question_, places, {names_.rows, nullptr}, best_);
    }
    return scored;
  }

  const row_bounds& bounds_;
  const vector_block& block_;
  float_list question_;
  coded_question asked_;
  place_names names_;
  best_hits& best_;
  std::vector<candidate> waiting_ = {};  // their upper plane did not rule them out
  std::size_t seen_ = 0;                 // rows since anything was settled
  std::size_t unbounded_ = 0;            // rows to read as floats
  std::size_t patience_ = 32;            // how many for each that was looked at in vain
};

}  // namespace detail

/// Whether exact search reads a compressed copy first. The hits are the same bit for bit.
enum class vector_bounds { off, on };

/// Vectors in one contiguous block, searched by comparing every allowed row. Searching is const and
/// may run in any number of threads at once; adding needs the index for itself. Holds fewer than
/// 2^32 rows.
class flat_index {
 public:
  /// dimension   numbers per vector; 0: as many as the first vector has
  /// measure     cosine brings vectors to length 1 on entry; inner_product keeps them as given
  explicit flat_index(std::size_t dimension, metric measure = metric::cosine)
      : dimension_(dimension), measure_(measure) {}

  /// An index over vectors of the caller, row after row, which are not copied: they must stay
  /// where and as they are while it is used. The first row that is added copies them after all.
  ///
  /// errors   dimension_mismatch: no whole number of rows; not_finite; invalid_argument: under
  ///          cosine, a row whose length is not 1
  /// cost     O(numbers), to check them
  [[nodiscard]] static result<flat_index> try_view(std::span<const float> values,
                                                   std::size_t dimension,
                                                   metric measure = metric::cosine) {
    flat_index index(dimension, measure);
    if (dimension == 0 || values.size() % dimension != 0) {
      return error(errc::dimension_mismatch, "flat_index: " + detail::text_of(values.size()) +
                                                 " numbers are no rows of " +
                                                 detail::text_of(dimension));
    }
    for (std::size_t at = 0; at < values.size(); at += dimension) {
      const auto row = values.subspan(at, dimension);
      const auto checked = index.check_stored(row, "row " + detail::text_of(at / dimension));
      if (!checked) return checked.failure();
      index.note_length(row);
    }
    index.viewed_ = values;
    index.size_ = values.size() / dimension;
    return index;
  }
  [[nodiscard]] static flat_index view(std::span<const float> values, std::size_t dimension,
                                       metric measure = metric::cosine) {
    return try_view(values, dimension, measure).value();
  }

  /// Adds a vector as the next row. Under cosine a zero vector has no direction: its row is kept
  /// but never found, as with add_missing().
  ///
  /// name     how an error calls it, such as "chunk 'E42'"
  /// errors   dimension_mismatch, not_finite; the index is then unchanged
  /// cost     O(dimension) amortised
  [[nodiscard]] result<std::uint32_t> try_add(std::span<const float> values,
                                              std::string_view name) {
    if (const auto checked = checked_row(values, name); !checked) return checked.failure();
    std::vector<float> stored(values.begin(), values.end());
    const bool found = measure_ == metric::inner_product || normalise(stored);
    return append(stored, found);
  }
  std::uint32_t add(std::span<const float> values, std::string_view name) {
    return try_add(values, name).value();
  }

  /// Adds a row without a vector: it keeps its number and is never found.
  std::uint32_t add_missing() { return append({}, false); }

  /// Adds a vector that is as row() gave it, in this index or another one of the same measure: the
  /// numbers stay bit for bit. To normalise a second time could change the last bit.
  ///
  /// errors   as try_add; invalid_argument: under cosine, a length that is not 1
  [[nodiscard]] result<std::uint32_t> try_add_stored(std::span<const float> values,
                                                     std::string_view name) {
    if (const auto checked = check_stored(values, name); !checked) return checked.failure();
    return append({values.begin(), values.end()}, true);
  }

  /// Adds a row of another index as it is stored there, bit for bit, as the merging of indexes
  /// needs.
  ///
  /// errors   invalid_argument (another measure), dimension_mismatch, not_found (no such row)
  [[nodiscard]] result<std::uint32_t> try_add_from(const flat_index& other, std::uint32_t at) {
    if (other.measure_ != measure_)
      return error(errc::invalid_argument, "flat_index: the other index has another measure");
    if (at >= other.size()) {
      return error(errc::not_found, "flat_index: row " + detail::text_of(at) +
                                        " of the other index, which has " +
                                        detail::text_of(other.size()));
    }
    if (!other.has_vector(at)) return add_missing();
    const std::vector<float> stored(other.row(at).begin(), other.row(at).end());
    if (const auto checked = checked_row(stored, "the other index's row"); !checked)
      return checked.failure();
    return append(stored, true);
  }

  /// Searches through a compressed copy of the present rows first, or no longer: the hits stay the
  /// same bit for bit. Takes a quarter of the vectors' memory once more. Rows that are added later
  /// have no copy; large k, few allowed rows and questions in large batches do without it.
  ///
  /// from   fewer rows, or less than 192 dimensions, get none, since it would not pay, and searches
  ///        among less than a quarter as many do without; 0: always
  /// cost   O(numbers), some 50 searches; a search is then 3 to 6 times as fast (see bench/)
  void set_bounds(vector_bounds wanted, std::size_t from = 32768) {
    const bool pays = count() >= from && (dimension_ >= 192 || from == 0) && dimension_ <= 32768;
    const bool builds = wanted == vector_bounds::on && pays && count() > 0;
    bounds_ = builds ? detail::row_bounds(block(), count()) : detail::row_bounds();
    bounds_from_ = from / 4;
  }

  /// The k rows of `among` that are closest to the question, or all of them that have a vector if
  /// they are fewer. A zero question under cosine points nowhere: no hits.
  ///
  /// question   dimension() finite numbers; its length does not matter under cosine
  /// k          at least 1
  /// returns    score descending, then row ascending; under cosine a score may leave [-1, 1] by
  ///            a rounding error; the hits for a smaller k open those for a larger
  /// errors     invalid_argument (k 0), dimension_mismatch, not_finite
  /// cost       O(size() / 64 + searched rows x dimension); memory O(k + searched rows)
  [[nodiscard]] result<std::vector<vector_hit>> try_search(std::span<const float> question,
                                                           std::size_t k,
                                                           const row_set& among) const {
    const std::vector<std::vector<float>> one{{question.begin(), question.end()}};
    auto hits = try_search(one, k, among);
    if (!hits) return hits.failure();
    return std::move(hits->front());
  }
  [[nodiscard]] std::vector<vector_hit> search(std::span<const float> question, std::size_t k,
                                               const row_set& among) const {
    return try_search(question, k, among).value();
  }

  /// The same for many questions at once, bit for bit; the rows are read once for all of them.
  ///
  /// returns   the hits of each question, in order of the questions
  /// errors    as above, for the first question that has one
  [[nodiscard]] result<std::vector<std::vector<vector_hit>>> try_search(
      question_list questions, std::size_t k, const row_set& among) const {
    const auto all = detail::check_questions("flat_index", questions, k, dimension_, measure_);
    if (!all) return all.failure();
    std::vector<detail::best_hits> best(questions.size(),
                                        detail::best_hits((std::min)(k, count())));
    const chosen_places chosen = choose(among);
    if (all->asked.size() > 1 && tiles_pay(all->asked.size())) {
      const detail::vector_block rows = block();
      const auto wanted = all->views();
      detail::batch_scan(rows, wanted, chosen.names, best).run(all->asked, chosen.places);
    } else {
      for (const std::uint32_t i : all->asked) search_one(all->wanted[i], k, chosen, best[i]);
    }
    std::vector<std::vector<vector_hit>> hits;
    for (detail::best_hits& each : best) hits.push_back(each.take());
    return hits;
  }
  [[nodiscard]] std::vector<std::vector<vector_hit>> search(question_list questions, std::size_t k,
                                                            const row_set& among) const {
    return try_search(questions, k, among).value();
  }

  /// The numbers of a row as they are compared; none where it has no vector. Valid until the next
  /// row is added.
  [[nodiscard]] std::span<const float> row(std::uint32_t at) const {
    if (!has_vector(at)) return {};
    return values().subspan(place_of(at) * dimension_, dimension_);
  }
  [[nodiscard]] bool has_vector(std::uint32_t at) const {
    return at < size() && place_of(at) != detail::no_row;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t dimension() const noexcept { return dimension_; }
  [[nodiscard]] metric measure() const noexcept { return measure_; }

  /// Another set of the same loops; for tests and measurements.
  void set_kernels(const detail::kernel_set& with) { kernels_ = with; }
  [[nodiscard]] const detail::kernel_set& kernels() const noexcept { return kernels_; }
  /// All vectors, without the rows that have none.
  [[nodiscard]] detail::vector_block block() const {
    return {&kernels_, values().data(), dimension_, longest_};
  }

 private:
  /// The places that a search goes through, and what it may find there.
  struct chosen_places {
    std::vector<std::uint32_t> listed = {};
    detail::place_list places = {};
    detail::place_names names = {};
    std::size_t allowed = 0;  // about how many of them may be found
  };

  /// Where few rows are allowed, they are listed; else all are read and each is looked up in the
  /// set once its score is good enough.
  [[nodiscard]] chosen_places choose(const row_set& among) const {
    chosen_places chosen;
    chosen.places = {count(), 0, nullptr};
    chosen.names.rows = rows_.empty() ? nullptr : rows_.data();
    chosen.allowed = (std::min)(among.count(), count());
    chosen.names.among = &among;
    if (static_cast<double>(chosen.allowed) > dense_share() * static_cast<double>(count()))
      return chosen;
    chosen.names.among = nullptr;
    chosen.listed.reserve(chosen.allowed);
    among.for_each([&](std::uint32_t at) {
      if (has_vector(at)) chosen.listed.push_back(place_of(at));
    });
    chosen.allowed = chosen.listed.size();
    chosen.places = {chosen.listed.size(), 0, chosen.listed.data()};
    return chosen;
  }

  [[nodiscard]] double dense_share() const { return bounds_.count() > 0 ? 0.4 : 0.85; }
  /// Against rows with bounds a tile must be well filled; the plain loops' tile is never as fast.
  [[nodiscard]] bool tiles_pay(std::size_t questions) const {
    if (bounds_.count() == 0) return true;
    return kernels_.questions > 8 && questions * 2 >= kernels_.questions;
  }

  void search_one(std::span<const float> wanted, std::size_t k, const chosen_places& chosen,
                  detail::best_hits& best) const {
    const detail::vector_block rows = block();
    detail::place_list rest = chosen.places;
    if (bounds_.count() > 0 && k <= chosen.allowed / 50 && chosen.allowed >= bounds_from_) {
      detail::place_list bounded = rest;
      bounded.count = (std::min)(bounds_.count(), rest.count);
      if (rest.listed != nullptr) {
        const auto last = std::lower_bound(rest.listed, rest.listed + rest.count, bounds_.count());
        bounded.count = static_cast<std::size_t>(last - rest.listed);
        rest.listed += bounded.count;
      }
      detail::bounded_search(bounds_, rows, wanted, chosen.names, best).run(k, bounded);
      rest.first += static_cast<std::uint32_t>(bounded.count);
      rest.count -= bounded.count;
    }
    rows.scan(wanted, rest, chosen.names, best);
  }

  [[nodiscard]] std::span<const float> values() const {
    return viewed_.empty() ? std::span<const float>(own_) : viewed_;
  }
  /// How many vectors.
  [[nodiscard]] std::size_t count() const {
    return dimension_ == 0 ? 0 : values().size() / dimension_;
  }
  [[nodiscard]] std::uint32_t place_of(std::uint32_t at) const {
    return places_.empty() ? at : places_[at];
  }

  [[nodiscard]] result<void> checked_row(std::span<const float> values,
                                         std::string_view name) const {
    const bool right_length = !values.empty() && (dimension_ == 0 || values.size() == dimension_);
    const std::size_t bad = right_length ? detail::first_not_finite(values) : 0;
    if (right_length && bad == values.size()) return {};

    const std::string what = "flat_index: the vector of " + std::string(name);
    if (right_length)
      return error(errc::not_finite, what + ": " + detail::not_finite_text(bad, values.size()));
    return error(errc::dimension_mismatch,
                 what + " has " + detail::text_of(values.size()) + " numbers, the index holds " +
                     (dimension_ == 0 ? "at least 1" : detail::text_of(dimension_)));
  }

  /// As checked_row; under cosine the length must be 1.
  [[nodiscard]] result<void> check_stored(std::span<const float> values,
                                          std::string_view name) const {
    if (const auto checked = checked_row(values, name); !checked) return checked.failure();
    if (measure_ != metric::cosine) return {};
    const double length = std::sqrt(detail::dot_in_double(values, values));
    if (length > 0.999 && length < 1.001) return {};
    return error(errc::invalid_argument, "flat_index: the vector of " + std::string(name) +
                                             " has length " + detail::decimal_text(length) +
                                             ", expected 1");
  }

  void note_length(std::span<const float> stored) {
    if (measure_ == metric::cosine) return;
    longest_ = (std::max)(longest_, std::sqrt(detail::dot_in_double(stored, stored)));
  }

  /// Appends a row with these numbers, or one without. A row without takes no room for numbers:
  /// how much is held never exceeds what was added.
  std::uint32_t append(const std::vector<float>& stored, bool found) {
    if (!viewed_.empty()) {
      own_.assign(viewed_.begin(), viewed_.end());
      viewed_ = {};
    }
    if (dimension_ == 0) dimension_ = stored.size();
    const auto at = static_cast<std::uint32_t>(size_++);
    if (!found && places_.empty()) {  // the first: so far every row was where its number says
      for (std::uint32_t i = 0; i < at; ++i) places_.push_back(i);
      rows_ = places_;
    }
    if (!found) places_.push_back(detail::no_row);
    if (!found) return at;
    if (!places_.empty()) {
      places_.push_back(static_cast<std::uint32_t>(count()));
      rows_.push_back(at);
    }
    own_.insert(own_.end(), stored.begin(), stored.end());
    note_length(stored);
    return at;
  }

  std::size_t dimension_;
  metric measure_;
  detail::kernel_set kernels_ = detail::kernels();
  std::size_t size_ = 0;
  detail::line_vector<float> own_;     // dimension numbers for each row that has a vector
  std::span<const float> viewed_;      // or these of the caller
  double longest_ = 1.001;             // no vector is longer
  std::vector<std::uint32_t> places_;  // of row i among the vectors; no_row: it is never found
  std::vector<std::uint32_t> rows_;    // at place i; both empty as long as every row has a vector
  detail::row_bounds bounds_;          // of the first vectors; none unless wanted
  std::size_t bounds_from_ = 0;        // not for searches among fewer rows
};

// ---- IVF ----------------------------------------------------------------------------------------
//
//   train    k-means: put each vector into the list of the nearest centroid, move each centroid to
//            the mean direction of its list, and again
//   search   read the lists of the nearest centroids; a filter that leaves few rows reads further
//
// The name: an inverted file, which leads from a centroid to the rows around it as an inverted
// index leads from a word to the chunks that hold it.
//
// Source   Sivic and Zisserman, Video Google, ICCV 2003; Dhillon and Modha, Concept decompositions,
//          Machine Learning 42, 2001 (spherical k-means).

/// How an ivf_index divides its rows and how much of them it reads.
struct ivf_options {
  /// How many lists; 0: the square root of the number of vectors, rounded. Never more than vectors,
  /// and 1 is exact search. Four times the root takes four times the training and reads about half
  /// the rows for the same recall.
  std::size_t lists = 0;
  std::size_t probes = 16;      ///< lists read at least, 1 or more; all of them: exact search
  std::uint64_t seed = 1;       ///< of the training: the same seed and rows give the same lists
  std::size_t iterations = 10;  ///< rounds of k-means; 0: lists around vectors drawn at random
  /// Vectors that k-means looks at: this many times the lists, 1 or more. Few: faster training and
  /// worse lists.
  std::size_t sample_per_list = 256;
};

/// Options for so many vectors that should find this share of the exact hits, such as 0.95: four
/// times the root for the number of lists, and as many probes as the worst of three collections
/// needed (all-MiniLM-L6-v2, 3,204 to 6,673 texts, ten hits). The larger a collection, the more it
/// finds with the same share; try_measure_recall tells for one's own.
///
///   share of the lists that is read   1 %   2 %   4 %   8 %   12 %   16 %   25 %   33 %   50 %
///   share of the hits, the worst      .56   .74   .83   .90   .94    .96    .98    .99    1.00
///                      the best       .69   .84   .91   .96   .98    .99    .99    1.00   1.00
[[nodiscard]] inline ivf_options ivf_options_for(std::size_t vectors, double recall = 0.95) {
  const auto lists = static_cast<std::size_t>(4 * std::sqrt(static_cast<double>(vectors))) + 1;
  const double share = 0.008 / (std::clamp)(1 - recall, 0.008, 1.0);
  return {.lists = lists,
          .probes = static_cast<std::size_t>(std::ceil(share * static_cast<double>(lists)))};
}

/// What a search in lists found, and how much it read.
struct ivf_result {
  std::vector<vector_hit> hits = {};  ///< best first
  std::size_t lists_read = 0;
  std::size_t rows_compared = 0;  ///< allowed rows in these lists
};

/// What training leaves behind besides the rows themselves: enough to have the same ivf_index again
/// without training.
struct ivf_lists {
  std::vector<float> centroids = {};      ///< `dimension` numbers a list: a direction of length 1
  std::vector<std::uint32_t> sizes = {};  ///< rows in each list, at least 1
  std::vector<std::uint32_t> rows = {};   ///< list after list, rising within a list
};

namespace detail {

[[nodiscard]] inline result<void> check_ivf(const ivf_options& options) {
  if (options.probes == 0)
    return error(errc::invalid_argument, "ivf_index: probes 0 must be at least 1");
  if (options.sample_per_list == 0)
    return error(errc::invalid_argument, "ivf_index: sample_per_list 0 must be at least 1");
  return {};
}

/// Directions in one block, list after list. A zero direction stands for rows that cancel out.
struct centroid_block {
  std::size_t dimension = 0;
  std::vector<float> values = {};

  [[nodiscard]] std::size_t size() const { return dimension == 0 ? 0 : values.size() / dimension; }
  [[nodiscard]] std::span<const float> operator[](std::size_t list) const {
    return std::span(values).subspan(list * dimension, dimension);
  }
  /// Puts the direction of a vector in the place of a list's centroid; a zero vector changes
  /// nothing.
  void set_direction(std::size_t list, std::span<const float> vector) {
    std::vector<float> direction(vector.begin(), vector.end());
    if (!normalise(direction)) return;
    std::copy(direction.begin(), direction.end(),
              values.begin() + static_cast<std::ptrdiff_t>(list * dimension));
  }
  [[nodiscard]] vector_block block(const kernel_set& with) const {
    return {&with, values.data(), dimension, 1.001};
  }
};

/// Draws `count` of the rows without repeats: the first steps of a shuffle.
[[nodiscard]] inline std::vector<std::uint32_t> draw_rows(std::vector<std::uint32_t> rows,
                                                          std::size_t count,
                                                          random_source& random) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t other = i + static_cast<std::size_t>(random.below(rows.size() - i));
    std::swap(rows[i], rows[other]);
  }
  rows.resize(count);
  return rows;
}

/// For each of these rows the list whose centroid lies nearest in direction. The rows take the part
/// of questions here.
/// returns  whether `goes_on(rows done)` said so until the end
template <class GoesOn>
[[nodiscard]] bool find_lists(const centroid_block& centroids, const flat_index& index,
                              detail::number_list rows, std::span<std::uint32_t> list_of,
                              const GoesOn& goes_on) {
  const vector_block block = centroids.block(index.kernels());
  std::vector<float_list> some;
  std::vector<std::uint32_t> all;
  for (std::size_t first = 0; first < rows.size(); first += some.size()) {
    const std::size_t count = (std::min)(std::size_t{256}, rows.size() - first);
    some.resize(count);
    all.resize(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      some[i] = index.row(rows[first + i]);
      all[i] = i;
    }
    std::vector<best_hits> best(count, best_hits(1));
    batch_scan(block, some, {}, best, true).run(all, {centroids.size(), 0, nullptr});
    for (std::size_t i = 0; i < count; ++i) list_of[first + i] = best[i].take().front().row;
    if (!goes_on(count)) return false;
  }
  return true;
}

/// Gives a list without rows a part of the largest: around the row of it that lies farthest from
/// its centroid. Equal rows stay together, so a list may stay empty.
inline void repair_lists(centroid_block& centroids, const flat_index& index,
                         detail::number_list rows, std::span<std::uint32_t> list_of) {
  std::vector<std::size_t> counts(centroids.size());
  for (const std::uint32_t list : list_of) ++counts[list];
  for (std::uint32_t empty = 0; empty < counts.size(); ++empty) {
    while (counts[empty] == 0) {
      const auto largest = std::max_element(counts.begin(), counts.end());
      if (*largest < 2) return;
      const auto from = static_cast<std::uint32_t>(largest - counts.begin());
      std::vector<std::pair<double, std::size_t>> members;  // from the farthest on
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (list_of[i] == from) members.push_back({cosine(index.row(rows[i]), centroids[from]), i});
      }
      std::sort(members.begin(), members.end());
      centroids.set_direction(empty, index.row(rows[members.front().second]));
      for (const auto& [old, i] : members) {
        if (cosine(index.row(rows[i]), centroids[empty]) <= old) continue;
        list_of[i] = empty;
        ++counts[empty];
      }
      counts[from] = counts[empty] == 0 ? 1 : counts[from] - counts[empty];  // 1: not divisible
    }
  }
}

/// Each centroid becomes the mean direction of the rows in its list.
inline void move_centroids(centroid_block& centroids, const flat_index& index,
                           detail::number_list rows, detail::number_list list_of) {
  const std::size_t dimension = centroids.dimension;
  std::vector<double> sums(centroids.values.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::span<const float> row = index.row(rows[i]);
    const double square = index.measure() == metric::cosine ? 1 : dot_in_double(row, row);
    const double weight = square > 0 ? 1 / std::sqrt(square) : 0;
    double* sum = &sums[list_of[i] * dimension];
    for (std::size_t j = 0; j < dimension; ++j) sum[j] += static_cast<double>(row[j]) * weight;
  }
  for (std::size_t list = 0; list < centroids.size(); ++list) {
    const double* sum = &sums[list * dimension];
    centroids.set_direction(list, std::vector<float>(sum, sum + dimension));
  }
}

/// Are these numbers directions? A zero one stands for zero vectors, which cosine does not find.
[[nodiscard]] inline result<void> check_centroids(std::span<const float> values,
                                                  std::size_t dimension, metric measure) {
  for (std::size_t at = 0; at < values.size(); at += dimension) {
    const std::span<const float> centroid = values.subspan(at, dimension);
    const std::string what = "ivf_index: centroid " + text_of(at / dimension + 1);
    if (const std::size_t bad = first_not_finite(centroid); bad != dimension)
      return error(errc::not_finite, what + ": " + not_finite_text(bad, dimension));
    const double square = dot_in_double(centroid, centroid);
    const bool zero = square <= 0 && measure == metric::inner_product;
    if (std::abs(square - 1) > 1e-4 && !zero)
      return error(errc::invalid_argument, what + " is not of length 1");
  }
  return {};
}

/// Does each of these `present` rows with a vector stand in exactly one list, in rising order?
[[nodiscard]] inline result<void> check_lists(const ivf_lists& lists, const flat_index& index,
                                              std::size_t present) {
  const auto wrong = [](const std::string& what) {
    return error(errc::invalid_argument, "ivf_index: " + what);
  };
  row_set seen(index.size());
  std::size_t first = 0;
  for (const std::uint32_t size : lists.sizes) {
    if (size == 0 || size > lists.rows.size() - first) {
      return wrong("a list of " + text_of(size) + " rows, with " +
                   text_of(lists.rows.size() - first) + " rows left");
    }
    for (std::size_t i = first; i < first + size; ++i) {
      const std::uint32_t row = lists.rows[i];
      if (!index.has_vector(row)) return wrong("row " + text_of(row) + " has no vector");
      if (seen.contains(row)) return wrong("row " + text_of(row) + " stands there twice");
      if (i > first && row < lists.rows[i - 1]) return wrong("the rows of a list do not rise");
      seen.insert(row);
    }
    first += size;
  }
  if (first == present && present == lists.rows.size()) return {};
  return wrong(text_of(first) + " of " + text_of(lists.rows.size()) + " rows are in lists, " +
               text_of(present) + " have a vector");
}

}  // namespace detail

/// Told how many of all steps of a training are done; `false` ends it.
using training_progress = std::function<bool(std::size_t done, std::size_t all)>;

/// The rows of a flat_index, sorted into lists by direction (an inverted file). Searching reads the
/// lists nearest to the question and is const: any number of threads may search at once. A row that
/// is deleted is left out of the set that a search is given; rows that come later stand in a
/// flat_index beside this one (the retriever's segments do so) until all are trained anew.
///
/// Under inner_product lists are formed by direction too, so long vectors are missed more easily.
/// The lists follow from all rows, so which hits are missed may depend on rows that are not
/// allowed; the hits themselves never are such rows.
class ivf_index {
 public:
  explicit ivf_index(ivf_options options = {}) : options_(options) {}

  /// Divides the rows of an index into lists and copies them. Rows without a vector are in no list.
  /// A list without rows is given the half of a large one; only where too few rows differ are there
  /// fewer lists than asked for.
  ///
  /// progress  called now and then
  /// errors    invalid_argument: probes or sample_per_list 0; callback_failed: progress said no, or
  ///           threw; what was trained before then stays
  /// cost      O((sample x iterations + rows) x lists x dimension); memory: the rows once more, and
  ///           8 bytes a row
  [[nodiscard]] result<void> try_train(const flat_index& rows,
                                       const training_progress& progress = {}) {
    if (const auto checked = detail::check_ivf(options_); !checked) return checked.failure();
    const std::vector<std::uint32_t> present = rows_with_vectors(rows);
    ivf_index next = without_lists(rows);
    if (!present.empty()) {
      const auto trained = next.make_lists(rows, present, progress);
      if (!trained) return trained.failure();
    }
    *this = std::move(next);
    return {};
  }
  void train(const flat_index& rows, const training_progress& progress = {}) {
    try_train(rows, progress).value();
  }

  /// Takes the lists that parts() gave of an index trained from the same rows, in place of
  /// training: afterwards it answers as that one did, bit for bit. Lists of other rows are refused
  /// where it shows, and else do no more harm than to miss more.
  ///
  /// errors  invalid_argument: more lists than the options allow, a centroid not of length 1, a row
  ///         in no list, in two, or without a vector; probes or sample_per_list 0; not_finite; what
  ///         was trained before then stays
  /// cost    O(rows x dimension), of which nothing is k-means
  [[nodiscard]] result<void> try_restore(const flat_index& rows, ivf_lists lists) {
    if (const auto checked = detail::check_ivf(options_); !checked) return checked.failure();
    const std::size_t present = rows_with_vectors(rows).size();
    const std::size_t count = lists.sizes.size();
    if (count > most_lists(present) || lists.centroids.size() != count * rows.dimension()) {
      return error(errc::invalid_argument, "ivf_index: " + detail::text_of(count) + " lists and " +
                                               detail::text_of(lists.centroids.size()) +
                                               " numbers for " + detail::text_of(present) +
                                               " vectors of " + detail::text_of(rows.dimension()));
    }
    const auto directed =
        detail::check_centroids(lists.centroids, rows.dimension(), rows.measure());
    if (!directed) return directed.failure();
    const auto complete = detail::check_lists(lists, rows, present);
    if (!complete) return complete.failure();
    ivf_index next = without_lists(rows);
    next.centroids_.values = std::move(lists.centroids);
    for (const std::uint32_t size : lists.sizes) next.begins_.push_back(next.begins_.back() + size);
    next.row_ids_ = std::move(lists.rows);
    next.copy_rows(rows);
    *this = std::move(next);
    return {};
  }
  void restore(const flat_index& rows, ivf_lists lists) {
    try_restore(rows, std::move(lists)).value();
  }

  /// What try_restore takes.
  [[nodiscard]] ivf_lists parts() const {
    ivf_lists lists{centroids_.values, {}, row_ids_};
    for (std::size_t number = 0; number < this->lists(); ++number)
      lists.sizes.push_back(static_cast<std::uint32_t>(list_size(number)));
    return lists;
  }

  /// The k rows of `among` that are closest to the question, of those in the lists it reads.
  ///
  /// Reads `probes` lists, nearest first. A filter gets as many rows to compare as it would have
  /// without: if all that are allowed are no more than that (or than k), they are all compared;
  /// else it reads on until it has compared as many. So a filter neither thins out what is compared
  /// nor costs more than about twice, and there are always min(k, allowed rows with a vector) hits.
  /// Only where all that are allowed lie far from the question, and are more than it compares, does
  /// it find less: the nearest lists tell little about them.
  ///
  /// question   dimension() finite numbers
  /// k          at least 1
  /// probes     0: as in the options; lists() or more: bit for bit what flat_index gives
  /// returns    score descending, then row ascending; the scores are those of flat_index
  /// errors     invalid_argument (not trained, k 0), dimension_mismatch, not_finite
  /// cost       O(size() / 64 + lists x dimension + rows compared x dimension), and with a filter
  ///            the rows of the lists that it reads
  [[nodiscard]] result<ivf_result> try_search(std::span<const float> question, std::size_t k,
                                              const row_set& among, std::size_t probes = 0) const {
    const std::vector<std::vector<float>> one{{question.begin(), question.end()}};
    auto found = try_search(one, k, among, probes);
    if (!found) return found.failure();
    return std::move(found->front());
  }
  [[nodiscard]] ivf_result search(std::span<const float> question, std::size_t k,
                                  const row_set& among, std::size_t probes = 0) const {
    return try_search(question, k, among, probes).value();
  }

  /// The same for many questions at once, bit for bit: each list is read once for all questions
  /// that read it.
  ///
  /// returns   what each question finds, in order of the questions
  [[nodiscard]] result<std::vector<ivf_result>> try_search(question_list questions, std::size_t k,
                                                           const row_set& among,
                                                           std::size_t probes = 0) const {
    if (!trained_)
      return error(errc::invalid_argument, "ivf_index: not trained; call train before search");
    const auto all = detail::check_questions("ivf_index", questions, k, dimension(), measure_);
    if (!all) return all.failure();
    std::vector<ivf_result> results(questions.size());
    std::vector<detail::best_hits> best(questions.size(), detail::best_hits((std::min)(k, size())));
    allowed_rows allowed(*this, among);
    const std::vector<reader> readers = readers_of(*all, k, probes, allowed, results);
    const detail::vector_block rows{&kernels_, values_.data(), dimension(), longest_};
    const auto wanted = all->views();
    detail::batch_scan scan(rows, wanted, {row_ids_.data(), nullptr}, best);
    std::vector<std::uint32_t> asked;
    for (std::size_t i = 0; i < readers.size(); ++i) {
      asked.push_back(readers[i].question);
      if (i + 1 < readers.size() && readers[i + 1].list == readers[i].list) continue;
      scan.run(asked, allowed.places_of(readers[i].list));
      asked.clear();
    }
    for (std::size_t i = 0; i < best.size(); ++i) results[i].hits = best[i].take();
    return results;
  }
  [[nodiscard]] std::vector<ivf_result> search(question_list questions, std::size_t k,
                                               const row_set& among, std::size_t probes = 0) const {
    return try_search(questions, k, among, probes).value();
  }

  /// The rows of a list in rising order; every row with a vector is in one list.
  [[nodiscard]] detail::number_list list(std::size_t number) const {
    return std::span(row_ids_).subspan(begins_[number], list_size(number));
  }
  [[nodiscard]] bool trained() const noexcept { return trained_; }
  [[nodiscard]] std::size_t lists() const { return centroids_.size(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }  ///< with rows in no list
  [[nodiscard]] std::size_t dimension() const noexcept { return centroids_.dimension; }
  [[nodiscard]] metric measure() const noexcept { return measure_; }
  [[nodiscard]] const ivf_options& options() const noexcept { return options_; }

 private:
  static constexpr std::uint32_t everything = 0xFFFFFFFFU;  // in place of a list: all of them

  /// The rows that a search may find, list by list.
  class allowed_rows {
   public:
    allowed_rows(const ivf_index& index, const row_set& among)
        : index_(index), rows_(among), counts_(index.lists(), detail::no_row) {
      rows_.keep_common(index.present_);
      count_ = rows_.count();
      filters_ = count_ < index.row_ids_.size();
    }
    [[nodiscard]] std::size_t count() const { return count_; }
    [[nodiscard]] bool filters() const { return filters_; }
    [[nodiscard]] std::size_t count_in(std::uint32_t list) {
      if (!filters_) return index_.list_size(list);
      if (counts_[list] == detail::no_row)
        counts_[list] = static_cast<std::uint32_t>(places_of(list).count);
      return counts_[list];
    }
    /// Their places; valid until the next call.
    [[nodiscard]] detail::place_list places_of(std::uint32_t list) {
      if (list == everything && !filters_) return {count_, 0, nullptr};
      if (!filters_) return {index_.list_size(list), index_.begins_[list], nullptr};
      listed_.clear();
      if (list == everything) {
        rows_.for_each([&](std::uint32_t row) { listed_.push_back(index_.places_[row]); });
      } else {
        for (std::uint32_t at = index_.begins_[list]; at < index_.begins_[list + 1]; ++at) {
          if (rows_.contains(index_.row_ids_[at])) listed_.push_back(at);
        }
      }
      return {listed_.size(), 0, listed_.data()};
    }

   private:
    const ivf_index& index_;
    row_set rows_;
    std::size_t count_ = 0;
    bool filters_ = false;
    std::vector<std::uint32_t> counts_;  // by list, where known
    std::vector<std::uint32_t> listed_ = {};
  };
  struct reader {
    std::uint32_t list = 0;
    std::uint32_t question = 0;
  };

  [[nodiscard]] std::size_t list_size(std::size_t number) const {
    return begins_[number + 1] - begins_[number];
  }

  /// Which lists a question reads. `nearest`: some lists or all, best first; false if they are too
  /// few.
  [[nodiscard]] bool choose(const std::vector<vector_hit>& nearest, std::uint32_t question,
                            std::size_t k, std::size_t probes, allowed_rows& allowed,
                            ivf_result& result, std::vector<reader>& readers) const {
    std::size_t enough = 0;  // rows that a search without a filter would compare
    for (std::size_t i = 0; i < probes; ++i) enough += list_size(nearest[i].row);
    enough = (std::max)(enough, k);
    if (allowed.count() <= enough || probes == lists()) {
      readers.push_back({everything, question});
      result.lists_read = lists();
      result.rows_compared = allowed.count();
      return true;
    }
    const std::size_t before = readers.size();
    for (const vector_hit& list : nearest) {
      if (result.lists_read >= probes && result.rows_compared >= enough) return true;
      readers.push_back({list.row, question});
      result.rows_compared += allowed.count_in(list.row);
      ++result.lists_read;
    }
    if (result.lists_read == lists() || result.rows_compared >= enough) return true;
    readers.resize(before);
    result = {};
    return false;
  }

  /// Who reads which list, list after list; notes in `results` how much each question reads.
  [[nodiscard]] std::vector<reader> readers_of(const detail::checked_questions& all, std::size_t k,
                                               std::size_t probes, allowed_rows& allowed,
                                               std::vector<ivf_result>& results) const {
    probes = (std::min)(probes == 0 ? options_.probes : probes, lists());
    // Without a filter nobody asks for more than these, unless k is large.
    const std::size_t wanted = allowed.filters() ? lists() : probes;
    std::vector<detail::best_hits> nearest(all.wanted.size(), detail::best_hits(wanted));
    const detail::vector_block centroids = centroids_.block(kernels_);
    const detail::place_list every{lists(), 0, nullptr};
    const auto questions = all.views();
    if (wanted > 0) detail::batch_scan(centroids, questions, {}, nearest).run(all.asked, every);
    std::vector<reader> readers;
    for (const std::uint32_t i : all.asked) {
      if (choose(nearest[i].take(), i, k, probes, allowed, results[i], readers)) continue;
      detail::best_hits order(lists());
      centroids.scan(all.wanted[i], every, {}, order);
      static_cast<void>(choose(order.take(), i, k, probes, allowed, results[i], readers));
    }
    std::sort(readers.begin(), readers.end(), [](const reader& a, const reader& b) {
      return a.list != b.list ? a.list < b.list : a.question < b.question;
    });
    return readers;
  }

  [[nodiscard]] static std::vector<std::uint32_t> rows_with_vectors(const flat_index& rows) {
    std::vector<std::uint32_t> present;
    for (std::uint32_t at = 0; at < rows.size(); ++at) {
      if (rows.has_vector(at)) present.push_back(at);
    }
    return present;
  }

  /// An index of these options over these rows that has no lists yet.
  [[nodiscard]] ivf_index without_lists(const flat_index& rows) const {
    ivf_index next(options_);
    next.measure_ = rows.measure();
    next.size_ = rows.size();
    next.kernels_ = rows.kernels();
    next.centroids_.dimension = rows.dimension();
    next.trained_ = true;
    return next;
  }

  /// How many lists are begun with for so many vectors.
  [[nodiscard]] std::size_t most_lists(std::size_t vectors) const {
    const double root = std::sqrt(static_cast<double>(vectors));
    const auto wanted =
        options_.lists == 0 ? static_cast<std::size_t>(std::lround(root)) : options_.lists;
    return (std::min)(wanted, vectors);
  }

  [[nodiscard]] result<void> make_lists(const flat_index& rows,
                                        const std::vector<std::uint32_t>& present,
                                        const training_progress& progress) {
    const std::size_t all = present.size();
    const std::size_t count = most_lists(all);
    const std::size_t wanted = options_.sample_per_list;
    const std::size_t sampled = wanted > all / count ? all : count * wanted;
    detail::random_source random(options_.seed);
    std::vector<std::uint32_t> sample = detail::draw_rows(present, sampled, random);
    centroids_.values.resize(count * rows.dimension());
    for (std::size_t list = 0; list < count; ++list)
      centroids_.set_direction(list, rows.row(sample[list]));
    std::sort(sample.begin(), sample.end());  // from here on read in the order of memory
    std::optional<error> stopped;
    std::size_t done = 0;
    const auto goes_on = [&](std::size_t more) {
      done += more;
      if (!progress) return true;
      const auto answer = detail::guarded(errc::callback_failed, "ivf_index: training", [&] {
        return progress(done, options_.iterations * sampled + all);
      });
      if (answer && *answer) return true;
      stopped = answer ? error(errc::callback_failed, "ivf_index: training was told to end")
                       : answer.failure();
      return false;
    };
    std::vector<std::uint32_t> list_of(all);
    const auto some = std::span(list_of).first(sampled);
    for (std::size_t round = 0; round < options_.iterations; ++round) {
      if (!detail::find_lists(centroids_, rows, sample, some, goes_on)) return *stopped;
      detail::repair_lists(centroids_, rows, sample, some);
      detail::move_centroids(centroids_, rows, sample, some);
    }
    if (!detail::find_lists(centroids_, rows, present, list_of, goes_on)) return *stopped;
    detail::repair_lists(centroids_, rows, present, list_of);
    fill_lists(rows, present, list_of);
    return {};
  }

  /// Sorts the rows into lists, within a list in rising order.
  void fill_lists(const flat_index& rows, const std::vector<std::uint32_t>& present,
                  std::vector<std::uint32_t>& list_of) {
    std::vector<std::uint32_t> counts(lists());
    for (const std::uint32_t list : list_of) ++counts[list];
    drop_empty_lists(counts, list_of);
    std::vector<std::uint32_t> next = begins_;  // where the next row of each list goes
    row_ids_.resize(present.size());
    for (std::size_t i = 0; i < present.size(); ++i) row_ids_[next[list_of[i]]++] = present[i];
    copy_rows(rows);
  }

  void copy_rows(const flat_index& rows) {
    places_.resize(size_, detail::no_row);
    present_ = row_set(size_);
    longest_ = rows.block().longest;
    values_.reserve(row_ids_.size() * dimension());
    for (std::size_t place = 0; place < row_ids_.size(); ++place) {
      const std::span<const float> row = rows.row(row_ids_[place]);
      values_.insert(values_.end(), row.begin(), row.end());
      places_[row_ids_[place]] = static_cast<std::uint32_t>(place);
      present_.insert(row_ids_[place]);
    }
  }

  /// Numbers the lists that hold rows anew, and lays down where each begins.
  void drop_empty_lists(const std::vector<std::uint32_t>& counts,
                        std::vector<std::uint32_t>& list_of) {
    std::vector<std::uint32_t> number_of(counts.size());
    detail::centroid_block kept{dimension(), {}};
    for (std::size_t list = 0; list < counts.size(); ++list) {
      if (counts[list] == 0) continue;
      number_of[list] = static_cast<std::uint32_t>(kept.size());
      const std::span<const float> direction = centroids_[list];
      kept.values.insert(kept.values.end(), direction.begin(), direction.end());
      begins_.push_back(begins_.back() + counts[list]);
    }
    for (std::uint32_t& list : list_of) list = number_of[list];
    centroids_ = std::move(kept);
  }

  ivf_options options_;
  metric measure_ = metric::cosine;
  bool trained_ = false;
  std::size_t size_ = 0;
  double longest_ = 1.001;
  detail::kernel_set kernels_ = detail::kernels();
  detail::centroid_block centroids_;
  std::vector<std::uint32_t> begins_ = {0};  // of list i in the two blocks below, and one end
  std::vector<std::uint32_t> row_ids_;       // list after list
  detail::line_vector<float> values_;  // the same rows' numbers, bit for bit as in the flat_index
  std::vector<std::uint32_t> places_;  // of row i in these two
  row_set present_;                    // the rows that have one
};

/// How much of the exact answer an ivf_index finds, averaged over questions.
struct recall_report {
  double recall = 1;      ///< share of the exact hits that were found, or others as close; 0 to 1
  double lists_read = 0;  ///< a question
  double rows_compared = 0;  ///< a question; exact search compares all allowed rows
};

/// Asks both indexes the same questions and compares: the one call that says whether `probes` is
/// enough for one's own data. A hit counts as found if it scores no less than the last exact hit:
/// of equal scores neither is better.
///
/// lists, exact   trained from the same rows
/// k, among       of each search
/// probes         0: as in the options
/// errors         invalid_argument: not trained, k 0, or indexes of different size, dimension or
///                measure; those of the searches
/// cost           that of both searches for each question
[[nodiscard]] inline result<recall_report> try_measure_recall(const ivf_index& lists,
                                                              const flat_index& exact,
                                                              question_list questions,
                                                              std::size_t k, const row_set& among,
                                                              std::size_t probes = 0) {
  if (lists.trained() && (lists.size() != exact.size() || lists.dimension() != exact.dimension() ||
                          lists.measure() != exact.measure())) {
    return error(errc::invalid_argument,
                 "measure_recall: the lists were trained from other rows: " +
                     detail::text_of(lists.size()) + " of " + detail::text_of(lists.dimension()) +
                     " numbers; the exact index holds " + detail::text_of(exact.size()) + " of " +
                     detail::text_of(exact.dimension()) + ", or has another measure");
  }
  recall_report report;
  std::size_t wanted = 0;
  std::size_t found = 0;
  const auto some = lists.try_search(questions, k, among, probes);
  if (!some) return some.failure();
  const auto truth = exact.try_search(questions, k, among);
  if (!truth) return truth.failure();
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const std::vector<vector_hit>& all = (*truth)[i];
    const ivf_result& read = (*some)[i];
    wanted += all.size();
    for (const vector_hit& hit : read.hits) found += hit.score >= all.back().score ? 1U : 0U;
    report.lists_read += static_cast<double>(read.lists_read);
    report.rows_compared += static_cast<double>(read.rows_compared);
  }
  if (wanted > 0) report.recall = static_cast<double>(found) / static_cast<double>(wanted);
  if (!questions.empty()) {
    report.lists_read /= static_cast<double>(questions.size());
    report.rows_compared /= static_cast<double>(questions.size());
  }
  return report;
}
[[nodiscard]] inline recall_report measure_recall(const ivf_index& lists, const flat_index& exact,
                                                  question_list questions, std::size_t k,
                                                  const row_set& among, std::size_t probes = 0) {
  return try_measure_recall(lists, exact, questions, k, among, probes).value();
}

// =================================================================================================
// 11. Fusion: several ranked lists become one, by rank alone
//
// In   ranked lists of ids, best first; what may not be read is already gone.   Out   one list.
//
//   score(c) = sum over the lists that hold c of  weight / (k + rank)         ranks count from 1
//
// BM25 values and cosines have different scales, so adding them means nothing; ranks can be added.
// The price: a narrow lead and a wide one count the same. The score orders, it does not say how
// sure one can be. Other programs call other formulas by this name (ranks from 0; k = 2); only
// k = 60 with ranks from 1 gives the source's numbers.
//
// Source   Cormack, Clarke and Buettcher, Reciprocal Rank Fusion, SIGIR 2009.
// =================================================================================================

/// How much a place in a list counts.
struct fusion_options {
  double k = 60;  ///< above 0; near 0: first places decide; large: all ranks count alike
  std::vector<double> weights = {};  ///< one per list, or none: all 1; 0 leaves a list out
};

/// One id of the merged list, with what its score is made of.
template <class Id>
struct fused_hit {
  Id id;
  double score = 0;                ///< sum of weight / (k + rank)
  std::size_t best_rank = 0;       ///< the smallest of its ranks, from 1
  std::vector<std::size_t> ranks;  ///< its rank in each list, from 1; 0: not in that list
};

namespace detail {

[[nodiscard]] inline result<void> check_fusion(const fusion_options& options, std::size_t lists) {
  const auto refuse = [](const std::string& sentence) {
    return error(errc::invalid_argument, "fuse_by_rank: " + sentence);
  };
  if (!is_finite(options.k) || options.k <= 0) {
    return refuse("k " + decimal_text(options.k) + " must be finite and above 0");
  }
  const std::vector<double>& weights = options.weights;
  if (weights.empty()) return {};
  if (weights.size() != lists) {
    return refuse(text_of(weights.size()) + " weights for " + text_of(lists) +
                  " lists, expected one per list or none");
  }
  double sum = 0;
  for (std::size_t list = 0; list < lists; ++list) {
    if (!is_finite(weights[list]) || weights[list] < 0) {
      return refuse("weight " + decimal_text(weights[list]) + " of list " + text_of(list + 1) +
                    " must be finite and at least 0");
    }
    sum += weights[list];
  }
  if (sum <= 0) return refuse("all weights are 0, at least one must be above 0");
  if (!is_finite(sum)) return refuse("the sum of the weights must be finite");
  return {};
}

/// An id of one of the lists and its hash, taken once, so that a look-up never hashes again.
template <class Id>
struct hashed_id {
  const Id* id = nullptr;
  std::size_t hash = 0;
  friend bool operator==(const hashed_id& a, const hashed_id& b) {
    return a.hash == b.hash && *a.id == *b.id;
  }
};
struct take_hash {
  template <class Id>
  std::size_t operator()(const hashed_id<Id>& key) const noexcept {
    return key.hash;
  }
};

/// Every id once, in order of first appearance, with its ranks; scores are not filled in. Lists of
/// weight 0 count as empty. A repeat inside a list is passed over before the next rank is given.
template <class Id, class Hash>
[[nodiscard]] std::vector<fused_hit<Id>> collect_ranks(std::span<const std::vector<Id>> lists,
                                                       const std::vector<double>& weights) {
  std::size_t entries = 0;
  for (const std::vector<Id>& list : lists) entries += list.size();
  std::unordered_map<hashed_id<Id>, std::size_t, take_hash> position;
  position.reserve(entries);

  std::vector<fused_hit<Id>> hits;
  const Hash hash_of{};
  for (std::size_t list = 0; list < lists.size(); ++list) {
    if (!weights.empty() && weights[list] <= 0) continue;
    std::size_t rank = 0;
    for (const Id& id : lists[list]) {
      const auto [found, is_new] = position.try_emplace({&id, hash_of(id)}, hits.size());
      if (is_new) hits.push_back({id, 0.0, 0, std::vector<std::size_t>(lists.size())});
      fused_hit<Id>& hit = hits[found->second];
      if (hit.ranks[list] != 0) continue;
      hit.ranks[list] = ++rank;
      hit.best_rank = hit.best_rank == 0 ? rank : (std::min)(hit.best_rank, rank);
    }
  }
  return hits;
}

/// The sum of weight / (k + rank), largest term first. In this order equal terms give equal bits
/// whichever lists they come from; with three lists in list order, ties would break at random.
[[nodiscard]] inline double sum_of_places(const std::vector<std::size_t>& ranks, double k,
                                          const std::vector<double>& weights,
                                          std::vector<double>& scratch) {
  scratch.clear();
  for (std::size_t list = 0; list < ranks.size(); ++list) {
    if (ranks[list] == 0) continue;
    const double weight = weights.empty() ? 1.0 : weights[list];
    scratch.push_back(weight / (k + static_cast<double>(ranks[list])));
  }
  std::sort(scratch.begin(), scratch.end(), std::greater<>());
  double sum = 0;
  for (const double each : scratch) sum += each;
  return sum;
}

}  // namespace detail

/// Merges ranked lists by rank alone: score(c) = sum of weight / (k + rank), ranks from 1. An id
/// that a list does not hold gets nothing from it.
///
/// lists    best first, any number of them; a repeat inside a list is passed over and takes no
///          rank. Remove what the reader may not see before, or gaps in the ranks would show it
/// options  see fusion_options; a list of weight 0 gives neither score nor candidates nor ranks
/// returns  each id once: score descending, then best single rank, then id ascending (operator<);
///          the order of the lists does not matter where their weights are equal
/// errors   invalid_argument: k not finite or not above 0; weights negative, not finite, all 0, or
///          not one per list
/// cost     one hash of each entry and one look-up, O(L + S) expected for two lists of L and S;
///          then one sort of the K distinct ids, O(K log K); memory O(entries + K x lists)
/// source   Cormack, Clarke and Buettcher, SIGIR 2009
///
/// {R, G, E42} and {E42, R, E43, G} with k = 60 give R 1/61 + 1/62 = 0.032522,
/// E42 1/63 + 1/61 = 0.032266, G 1/62 + 1/64 = 0.031754 and E43 1/63 = 0.015873.
template <class Id, class Hash = std::hash<Id>>
[[nodiscard]] result<std::vector<fused_hit<Id>>> try_fuse_by_rank(
    std::span<const std::vector<Id>> lists, const fusion_options& options = {}) {
  const auto checked = detail::check_fusion(options, lists.size());
  if (!checked) return checked.failure();

  // Weights are divided by the largest: only their ratios decide the order, so that weights 2 and 2
  // can never break a tie that 1 and 1 leave.
  std::vector<double> relative = options.weights;
  double largest = 1;
  if (!relative.empty()) largest = *std::max_element(relative.begin(), relative.end());
  for (double& weight : relative) weight /= largest;

  std::vector<fused_hit<Id>> hits = detail::collect_ranks<Id, Hash>(lists, relative);
  std::vector<double> scratch;
  for (fused_hit<Id>& hit : hits) {
    hit.score = detail::sum_of_places(hit.ranks, options.k, relative, scratch);
  }
  std::sort(hits.begin(), hits.end(), [](const fused_hit<Id>& a, const fused_hit<Id>& b) {
    if (a.score != b.score) return a.score > b.score;
    if (a.best_rank != b.best_rank) return a.best_rank < b.best_rank;
    return a.id < b.id;
  });
  for (fused_hit<Id>& hit : hits) hit.score *= largest;
  return hits;
}
template <class Id, class Hash = std::hash<Id>>
[[nodiscard]] result<std::vector<fused_hit<Id>>> try_fuse_by_rank(
    const std::vector<std::vector<Id>>& lists, const fusion_options& options = {}) {
  return try_fuse_by_rank<Id, Hash>(std::span<const std::vector<Id>>(lists), options);
}

/// try_fuse_by_rank, throwing its error.
template <class Id, class Hash = std::hash<Id>>
[[nodiscard]] std::vector<fused_hit<Id>> fuse_by_rank(std::span<const std::vector<Id>> lists,
                                                      const fusion_options& options = {}) {
  return try_fuse_by_rank<Id, Hash>(lists, options).value();
}
template <class Id, class Hash = std::hash<Id>>
[[nodiscard]] std::vector<fused_hit<Id>> fuse_by_rank(const std::vector<std::vector<Id>>& lists,
                                                      const fusion_options& options = {}) {
  return try_fuse_by_rank<Id, Hash>(lists, options).value();
}

// =================================================================================================
// 12. Reranking: a closer look at a few passages, by a model of the caller
//
// In   the question and a shortlist of permitted passages.      Out   one finite score for each.
//
// The first searches compared texts that were prepared apart; a cross-encoder reads question and
// passage together. It can only reorder: what the shortlist missed stays missed. A shortlist of n
// passages makes n pairs. Whatever is not one finite score per passage, in time, is a failed stage:
// nothing of it is used and the fused order stands (or the search fails, by option).
// =================================================================================================

/// Tells a running reranker that nobody waits for it any more. Copies share one flag.
class stop_flag {
 public:
  [[nodiscard]] bool stop_requested() const noexcept { return *stopped_; }
  void request_stop() const noexcept { *stopped_ = true; }

 private:
  std::shared_ptr<std::atomic<bool>> stopped_ = std::make_shared<std::atomic<bool>>(false);
};

using clock = std::chrono::steady_clock;

/// One batch of work for a reranker.
struct rerank_request {
  std::string_view question = {};
  std::span<const permitted_passage> passages = {};
  clock::time_point deadline = (clock::time_point::max)();  ///< later answers are thrown away
  stop_flag stop = {};
};

/// returns  one finite score per passage, in their order; higher is better, negative is fine
using rerank_function = std::function<result<std::vector<double>>(const rerank_request&)>;

/// Runs a task, usually on a thread of the caller's pool.
using executor = std::function<void(std::function<void()>)>;

/// A reranking model and how to use it.
struct reranker {
  rerank_function score = {};   ///< empty: no reranking
  std::size_t batch_size = 32;  ///< passages in one call, at most
  std::size_t window = 20;      ///< length of the shortlist: the pairs that are scored
  std::optional<std::chrono::milliseconds> time_limit = {};  ///< none: as long as it takes
  executor run_on = {};  ///< empty: in the searching thread, where a call that never returns blocks
  bool required = false;  ///< a failure fails the search instead of keeping the fused order
};

namespace detail {

/// Calls the reranker batch by batch and checks every answer.
[[nodiscard]] inline result<std::vector<double>> score_batches(
    const reranker& model, std::string_view question, std::span<const permitted_passage> passages,
    clock::time_point deadline, const stop_flag& stop) {
  std::vector<double> scores;
  scores.reserve(passages.size());
  for (std::size_t at = 0; at < passages.size(); at += model.batch_size) {
    if (clock::now() > deadline) return error(errc::reranker_failed, "rerank: timed out");
    const auto batch = passages.subspan(at, (std::min)(model.batch_size, passages.size() - at));
    const auto answer = guarded(errc::reranker_failed, "rerank",
                                [&] { return model.score({question, batch, deadline, stop}); });
    if (!answer) return answer.failure();
    if (answer->size() != batch.size()) {
      return error(errc::reranker_failed, "rerank: " + text_of(answer->size()) + " scores for " +
                                              text_of(batch.size()) + " passages");
    }
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (is_finite((*answer)[i])) continue;
      return error(errc::reranker_failed, "rerank: the score of passage " +
                                              in_quotes(batch[i].id()) + " is not a finite number");
    }
    scores.insert(scores.end(), answer->begin(), answer->end());
  }
  if (clock::now() > deadline) return error(errc::reranker_failed, "rerank: timed out");
  return scores;
}

/// A rerank that another thread does while the search waits, at most to the deadline. The task
/// shares this job and owns copies of all it reads, so that it may be abandoned.
struct rerank_job {
  reranker model;  // without the executor, which may own the thread that runs this
  std::string question;
  std::vector<permitted_passage> passages;
  clock::time_point deadline;
  stop_flag stop;
  std::mutex mutex;
  std::condition_variable finished;
  std::optional<result<std::vector<double>>> outcome;

  /// The first outcome counts.
  void finish(result<std::vector<double>> with) {
    const std::lock_guard lock(mutex);
    if (!outcome) outcome = std::move(with);
    finished.notify_all();
  }
};

/// What the executor holds. An executor that drops its task, as a closed pool does, ends the wait.
struct rerank_task {
  explicit rerank_task(std::shared_ptr<rerank_job> of) : job(std::move(of)) {}
  rerank_task(const rerank_task&) = delete;
  rerank_task& operator=(const rerank_task&) = delete;
  ~rerank_task() { job->finish(error(errc::reranker_failed, "rerank: the executor dropped it")); }

  void run() const {
    job->finish(score_batches(job->model, job->question, job->passages, job->deadline, job->stop));
  }

  std::shared_ptr<rerank_job> job;
};

[[nodiscard]] inline result<std::vector<double>> score_on_executor(
    const reranker& model, std::string_view question, std::span<const permitted_passage> passages,
    clock::time_point deadline) {
  const auto job = std::make_shared<rerank_job>();
  job->model.score = model.score;
  job->model.batch_size = model.batch_size;
  job->question = question;
  job->passages.assign(passages.begin(), passages.end());
  job->deadline = deadline;
  const auto started = guarded(errc::reranker_failed, "rerank: executor", [&] {
    model.run_on([task = std::make_shared<const rerank_task>(job)] { task->run(); });
    return true;
  });
  if (!started) {
    job->stop.request_stop();
    return started.failure();
  }
  std::unique_lock lock(job->mutex);
  const auto done = [&job] { return job->outcome.has_value(); };
  if (deadline == (clock::time_point::max)()) {
    job->finished.wait(lock, done);
  } else if (!job->finished.wait_until(lock, deadline, done)) {
    job->stop.request_stop();
    return error(errc::reranker_failed, "rerank: timed out");
  }
  return *job->outcome;
}

/// returns  one finite score per passage, or why there is none
[[nodiscard]] inline result<std::vector<double>> rerank_checked(
    const reranker& model, std::string_view question, std::span<const permitted_passage> passages,
    clock::time_point deadline) {
  if (model.run_on) return score_on_executor(model, question, passages, deadline);
  return score_batches(model, question, passages, deadline, {});
}

}  // namespace detail
// =================================================================================================
// 13. Selection: from a ranked list to what is handed out
//
// In   ranked passages, byte ranges of documents.      Out   what stays; why each other one went.
//
//   parents -> overlaps -> cap per document -> (rerank) -> page -> token budget
//
// Each step is one walk from the best passage to the worst. It drops and never reorders, so that
// what stands further down moves up into a freed place, and whatever is dropped is dropped by one
// step for one reason.
// =================================================================================================

/// The step that dropped a passage.
enum class drop_stage {
  parent,  ///< its parent stands in its place
  dedupe,  ///< shares too many bytes with a better passage
  cap,     ///< its document already has enough passages
  limit,   ///< beyond the page
  budget,  ///< does not fit into the token budget
};

/// "dedupe" and so on, for traces.
[[nodiscard]] inline std::string_view name_of(drop_stage stage) {
  switch (stage) {
    case drop_stage::parent:
      return "parent";
    case drop_stage::dedupe:
      return "dedupe";
    case drop_stage::cap:
      return "cap";
    case drop_stage::limit:
      return "limit";
    case drop_stage::budget:
      return "budget";
  }
  return "unknown";
}

/// What was dropped, where and why.
struct drop {
  std::string id = {};                   ///< of the passage
  drop_stage stage = drop_stage::limit;  ///< the one step that dropped it
  std::string reason = {};               ///< such as "overlaps W1 by 60 of 60 bytes"
};

/// A ranked passage, as far as selection looks at it.
struct selection_item {
  std::string id = {};           ///< of the passage
  std::string document_id = {};  ///< caps and overlaps are counted within a document
  std::uint64_t revision = 0;    ///< ranges of different revisions are not compared
  byte_range range = {};         ///< half open, bytes of the document's text
  std::size_t tokens = 0;        ///< what it costs of the budget
};

/// What to keep of a ranked list.
struct selection_options {
  std::optional<double> overlap_threshold = 0.5;  ///< above 0, at most 1; 1: drop only what is
                                                  ///< wholly shared; none: drop no overlaps
  std::size_t per_document = 2;  ///< passages of one document, at least 1; large: no cap
  std::size_t offset = 0;        ///< passages on earlier pages
  std::size_t limit = 12;        ///< passages on this page, at least 1
  std::optional<std::size_t> token_budget = std::nullopt;  ///< tokens in all, at least 1; none:
                                                           ///< no bound
  bool fill_budget = false;  ///< false: stop at the first that does not fit; true: go on with less
};

namespace detail {

[[nodiscard]] inline result<void> check_overlap_threshold(double threshold) {
  if (is_finite(threshold) && threshold > 0 && threshold <= 1) return {};
  return error(errc::invalid_argument,
               "overlap_threshold " + decimal_text(threshold) + " must be above 0 and at most 1");
}

[[nodiscard]] inline result<void> check_at_least_1(std::string_view name, std::size_t value) {
  if (value > 0) return {};
  return error(errc::invalid_argument, std::string(name) + " 0 must be at least 1");
}

inline void note_drop(std::vector<drop>* dropped, const selection_item& item, drop_stage stage,
                      const std::string& reason) {
  if (dropped != nullptr) dropped->push_back({item.id, stage, reason});
}

[[nodiscard]] inline std::size_t length_of(byte_range range) {
  return range.end > range.begin ? range.end - range.begin : 0;
}

[[nodiscard]] inline std::size_t shared_bytes(byte_range a, byte_range b) {
  return length_of({(std::max)(a.begin, b.begin), (std::min)(a.end, b.end)});
}

}  // namespace detail

/// A passage after the collapse, and the ranked items that it stands for.
struct collapsed_item {
  selection_item item = {};
  std::vector<std::size_t> from = {};  ///< places in the ranked list, best first, at least one
};

/// Puts a parent in the place of the best of its children; the others are dropped.
///
/// items    best first
/// parents  one per item: the parent that shall stand for it, or null where it stands for itself.
///          Whether the reader may see the parent, and whether it is too large, is decided before
/// dropped  if given, receives the drops in their order
/// returns  what stays, in the order of the best children
/// errors   invalid_argument: another count of parents than of items
/// cost     O(n) expected
///
/// a1, b1, a2 with the parents A, B, A give A (for a1 and a2), B (for b1).
[[nodiscard]] inline result<std::vector<collapsed_item>> try_collapse_to_parents(
    std::span<const selection_item> items, std::span<const selection_item* const> parents,
    std::vector<drop>* dropped = nullptr) {
  if (items.size() != parents.size()) {
    return error(errc::invalid_argument, "collapse_to_parents: " + detail::text_of(parents.size()) +
                                             " parents for " + detail::text_of(items.size()) +
                                             " items; one each was expected");
  }
  std::vector<collapsed_item> kept;
  std::unordered_map<std::string_view, std::size_t> place_of_parent;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (parents[i] == nullptr) {
      kept.push_back({items[i], {i}});
      continue;
    }
    const auto [place, is_new] = place_of_parent.try_emplace(parents[i]->id, kept.size());
    if (is_new) {
      kept.push_back({*parents[i], {i}});
      continue;
    }
    collapsed_item& parent = kept[place->second];
    detail::note_drop(dropped, items[i], drop_stage::parent,
                      "its parent " + parent.item.id + " stands at the place of " +
                          items[parent.from.front()].id);
    parent.from.push_back(i);
  }
  return kept;
}
[[nodiscard]] inline std::vector<collapsed_item> collapse_to_parents(
    std::span<const selection_item> items, std::span<const selection_item* const> parents,
    std::vector<drop>* dropped = nullptr) {
  return try_collapse_to_parents(items, parents, dropped).value();
}

namespace detail {

/// Where a passage begins. Passages of one revision of one document stand together, by first byte.
struct passage_start {
  std::string_view document_id;
  std::uint64_t revision = 0;
  std::size_t begin = 0;

  [[nodiscard]] bool same_text(const passage_start& other) const {
    return revision == other.revision && document_id == other.document_id;
  }
  friend bool operator<(const passage_start& a, const passage_start& b) {
    if (a.document_id != b.document_id) return a.document_id < b.document_id;
    if (a.revision != b.revision) return a.revision < b.revision;
    return a.begin < b.begin;
  }
};

/// The passages kept so far, to ask which of them a further one overlaps.
///
/// No kept passage lies inside another (it would have been dropped), so in order of their begins
/// their ends rise too. Of those that begin before a new passage, the last reaches furthest into
/// it, and has most of its own bytes there: no other before it has a larger shared part. The same
/// holds, mirrored, for the first that begins after. So two neighbours answer for all.
class kept_passages {
 public:
  explicit kept_passages(double threshold) : threshold_(threshold) {}

  /// The kept passage that `item` overlaps too much, or null. Cost: O(log n).
  [[nodiscard]] const selection_item* winner_over(const selection_item& item) const {
    const passage_start start = start_of(item);
    const auto next = by_start_.upper_bound(start);
    if (next != by_start_.begin()) {
      const auto before = std::prev(next);
      if (before->first.same_text(start) && overlaps(*before->second, item)) return before->second;
    }
    if (next == by_start_.end() || !next->first.same_text(start)) return nullptr;
    return overlaps(*next->second, item) ? next->second : nullptr;
  }

  void keep(const selection_item& item) {
    if (length_of(item.range) > 0) by_start_.insert({start_of(item), &item});
  }

 private:
  [[nodiscard]] static passage_start start_of(const selection_item& item) {
    return {item.document_id, item.revision, item.range.begin};
  }

  [[nodiscard]] bool overlaps(const selection_item& a, const selection_item& b) const {
    const std::size_t shorter = (std::min)(length_of(a.range), length_of(b.range));
    if (shorter == 0) return false;
    const auto shared = static_cast<double>(shared_bytes(a.range, b.range));
    return shared / static_cast<double>(shorter) >= threshold_;
  }

  double threshold_;
  std::map<passage_start, const selection_item*> by_start_;
};

}  // namespace detail

/// Drops each passage that shares too much of its text with a better one that stays: same document,
/// same revision, and shared bytes / bytes of the shorter >= threshold. A range without bytes
/// overlaps nothing.
///
/// items      best first
/// threshold  above 0, at most 1; 1: only what lies wholly inside the other, or around it
/// dropped    if given, receives the drops in their order
/// returns    what stays, in its order
/// throws     error{errc::invalid_argument}: threshold
/// cost       O(n log n), however many passages a document has
///
/// Bytes 0-80, 10-70 and 60-140 with 0.5: 10-70 lies inside the first and goes; 60-140 shares 20 of
/// 80 bytes with it and stays.
[[nodiscard]] inline std::vector<selection_item> drop_overlaps(
    std::span<const selection_item> items, double threshold, std::vector<drop>* dropped = nullptr) {
  detail::check_overlap_threshold(threshold).value();
  std::vector<selection_item> kept;
  detail::kept_passages passages(threshold);
  for (const selection_item& item : items) {
    const selection_item* winner = passages.winner_over(item);
    if (winner == nullptr) {
      passages.keep(item);
      kept.push_back(item);
      continue;
    }
    const std::size_t shared = detail::shared_bytes(winner->range, item.range);
    const std::size_t shorter =
        (std::min)(detail::length_of(winner->range), detail::length_of(item.range));
    detail::note_drop(dropped, item, drop_stage::dedupe,
                      "overlaps " + winner->id + " by " + detail::text_of(shared) + " of " +
                          detail::text_of(shorter) + " bytes");
  }
  return kept;
}

/// Keeps the first `cap` passages of each document.
///
/// items    best first
/// cap      at least 1
/// dropped  if given, receives the drops in their order
/// returns  what stays, in its order
/// throws   error{errc::invalid_argument}: cap
/// cost     O(n) expected
[[nodiscard]] inline std::vector<selection_item> limit_per_document(
    std::span<const selection_item> items, std::size_t cap, std::vector<drop>* dropped = nullptr) {
  detail::check_at_least_1("per_document", cap).value();
  std::vector<selection_item> kept;
  std::unordered_map<std::string_view, std::size_t> count_of;
  for (const selection_item& item : items) {
    std::size_t& count = count_of[item.document_id];
    if (count < cap) {
      ++count;
      kept.push_back(item);
      continue;
    }
    detail::note_drop(dropped, item, drop_stage::cap,
                      "document " + item.document_id + " already has " + detail::text_of(cap));
  }
  return kept;
}

/// The passages at places offset to offset + limit - 1. Those before belong to earlier pages and
/// are no drops; those after are dropped. A page past the end is empty. Pages that follow each
/// other neither repeat nor skip, because nothing here depends on offset or limit but the cut.
///
/// limit    at least 1
/// dropped  if given, receives the drops in their order
/// throws   error{errc::invalid_argument}: limit
/// cost     O(n)
[[nodiscard]] inline std::vector<selection_item> take_page(std::span<const selection_item> items,
                                                           std::size_t offset, std::size_t limit,
                                                           std::vector<drop>* dropped = nullptr) {
  detail::check_at_least_1("limit", limit).value();
  const std::size_t first = (std::min)(offset, items.size());
  const std::size_t count = (std::min)(limit, items.size() - first);
  for (const selection_item& item : items.subspan(first + count)) {
    detail::note_drop(
        dropped, item, drop_stage::limit,
        "after " + detail::text_of(limit) + " passages from offset " + detail::text_of(offset));
  }
  const auto page = items.subspan(first, count);
  return {page.begin(), page.end()};
}

/// Keeps passages while their tokens fit into the budget, which is never exceeded.
///
/// budget   tokens in all; 0 keeps only passages of no tokens
/// fill     false: the first that does not fit ends it, so that no worse passage overtakes it;
///          true: it is dropped and later ones that fit are kept
/// dropped  if given, receives the drops in their order
/// returns  what stays, in its order
/// cost     O(n)
[[nodiscard]] inline std::vector<selection_item> fit_budget(std::span<const selection_item> items,
                                                            std::size_t budget, bool fill,
                                                            std::vector<drop>* dropped = nullptr) {
  std::vector<selection_item> kept;
  std::size_t left = budget;
  const selection_item* stopper = nullptr;
  for (const selection_item& item : items) {
    if (stopper != nullptr) {
      detail::note_drop(dropped, item, drop_stage::budget,
                        "comes after " + stopper->id + ", which did not fit");
      continue;
    }
    if (item.tokens <= left) {
      left -= item.tokens;
      kept.push_back(item);
      continue;
    }
    detail::note_drop(dropped, item, drop_stage::budget,
                      "needs " + detail::text_of(item.tokens) + " tokens, " +
                          detail::text_of(left) + " of " + detail::text_of(budget) + " are left");
    if (!fill) stopper = &item;
  }
  return kept;
}

/// Are these options usable? The error names the option, its value and what was expected.
[[nodiscard]] inline result<void> check_selection(const selection_options& options) {
  if (options.overlap_threshold) {
    const auto checked = detail::check_overlap_threshold(*options.overlap_threshold);
    if (!checked) return checked;
  }
  if (auto checked = detail::check_at_least_1("per_document", options.per_document); !checked) {
    return checked;
  }
  if (auto checked = detail::check_at_least_1("limit", options.limit); !checked) return checked;
  return detail::check_at_least_1("token_budget", options.token_budget.value_or(1));
}

/// All steps in their order, for programs without a reranker between them: overlaps, cap per
/// document, page, budget.
///
/// items    best first
/// dropped  if given, receives the drops, step by step
/// returns  what stays, in its order
/// errors   those of check_selection
/// cost     O(n log n)
[[nodiscard]] inline result<std::vector<selection_item>> try_select_passages(
    std::span<const selection_item> items, const selection_options& options = {},
    std::vector<drop>* dropped = nullptr) {
  if (const auto checked = check_selection(options); !checked) return checked.failure();
  std::vector<selection_item> kept(items.begin(), items.end());
  if (options.overlap_threshold) kept = drop_overlaps(kept, *options.overlap_threshold, dropped);
  kept = limit_per_document(kept, options.per_document, dropped);
  kept = take_page(kept, options.offset, options.limit, dropped);
  if (options.token_budget) {
    kept = fit_budget(kept, *options.token_budget, options.fill_budget, dropped);
  }
  return kept;
}
[[nodiscard]] inline std::vector<selection_item> select_passages(
    std::span<const selection_item> items, const selection_options& options = {},
    std::vector<drop>* dropped = nullptr) {
  return try_select_passages(items, options, dropped).value();
}

// =================================================================================================
// 14. Retriever: documents in, permitted passages out
//
// In   documents with their chunks; questions with a scope.      Out   answers.
//
//   question -> lexical leg, dense leg (inside the scope) -> recheck -> fusion -> parents
//            -> overlap dedupe -> cap per document -> rerank -> offset, limit, token budget
//            -> recheck -> passages -> neighbours
//
// A parent is a chunk that another chunk of its document names as its parent. It is stored but not
// searched: no terms, codes or vector of it are in any index, and no statistics count it. When its
// children are found it may stand for them, if the reader may see it and every child in it. To a
// reader who may not, there is no parent: neither a passage nor a trace names it.
//
// A search reads one immutable state that it pins at its start: text, terms, codes, vectors and
// access records of one moment. An update prepares everything beside it (the embedder runs here),
// then publishes a new state by one pointer; when it fails, the old state simply stays.
// User code (embedder, reranker, permission source, counters, stemmers) runs under no lock.
// The embedder belongs to the state, so that vectors and questions change to another model in the
// same step, and a pinned state keeps the model of its vectors.
//
// The longest section: it holds the one place where all the others meet, updates first, then the
// stages of a search in the order in which they run, then the two public classes.
// =================================================================================================

/// A document and the chunks that were cut from it.
struct chunked_document {
  document source = {};
  std::vector<chunk> chunks = {};
};

/// Whose chunks N, n and the average length of BM25 are counted over.
enum class statistics_of {
  reader,  ///< what this reader may read: nothing leaks, each reader has scores of his own
  tenant,  ///< all chunks: scores then tell how common a word is in text he may not read
};

enum class search_mode { automatic, lexical, dense, hybrid };

/// What a first-stage searcher of the caller's is asked: once for each question, and again with a
/// larger depth while too little of what it found may be read.
struct searcher_request {
  std::string_view text = {};             ///< the question's
  std::span<const float> vector = {};     ///< the question's; empty: none
  const scope& reader;                    ///< search within its tenant and groups
  std::span<const condition> where = {};  ///< all must hold for a document
  std::size_t depth = 0;                  ///< ids wanted
};

/// One chunk that a searcher found.
struct searcher_hit {
  std::string id = {};  ///< of the chunk, as it is stored here
  double score = 0;     ///< finite; shown with the passage, never compared
};

/// Another engine in the place of a built-in leg: all after the first stage stays here, recheck,
/// fusion, parents, selection, reranking, traces.
///
/// returns  hits, best first. An id that names no chunk which this reader may find, or that came
///          before, is passed over and counted in operator_trace.rejected.
/// errors   as an error or thrown: the leg is left out; the search fails if it was the only one
using searcher = std::function<result<std::vector<searcher_hit>>(const searcher_request&)>;

/// How sure a caller may be that the passages answer: raw signals, none of them a probability.
struct evidence {
  bool exact_code = false;  ///< a passage holds a code of the question
  double idf_share = 0;     ///< of the question's idf mass, what the passages hold
  std::optional<double> best_similarity = {};  ///< highest cosine or inner product
  std::optional<double> best_rerank = {};      ///< highest rerank score
  std::size_t agreeing_legs = 0;               ///< lists in which the first passage stands
};

/// Another wording of the question, a part of it, or a made-up answer to it.
struct further_question {
  std::string text = {};
  std::optional<embedding> vector = {};  ///< none: the embedder makes it of the text
  double weight = 1;                     ///< of its lists in the fusion, times that of the leg
};

/// One question and how it is to be searched.
struct query {
  std::string text = {};
  std::optional<embedding> vector = {};        ///< of the question; none: the embedder makes it
  std::vector<further_question> further = {};  ///< searched beside it; their lists are fused too
  search_mode mode = search_mode::automatic;   ///< hybrid if the question has a vector
  std::vector<condition> where = {};           ///< all must hold for a document to be searched
  std::size_t limit = 12;                      ///< passages wanted, at least 1
  std::size_t offset = 0;                      ///< passages that earlier pages held
  std::size_t depth = 100;       ///< candidates of each leg; limit + offset beyond it find no more
  std::size_t per_document = 2;  ///< candidates of one document, at least 1
  std::optional<double> overlap_threshold = 0.5;  ///< shared part that makes a repeat; none: off
  std::optional<std::size_t> token_budget = {};   ///< of all passages together; none: no budget
  bool fill_budget = false;                       ///< go on past a passage that does not fit
  fusion_options fusion = {};                     ///< weights: none, or lexical and dense
  bool exact_first = true;       ///< chunks that hold a code of the question lead the lexical list
  bool collapse_parents = true;  ///< a readable parent stands for its children; rerankers see it
  std::optional<std::size_t> max_parent_tokens = {};  ///< a larger parent leaves its children;
                                                      ///< none: token_budget alone bounds it
  std::size_t neighbours = 0;  ///< chunks before and after each passage to add, see neighbour
  reranker rerank = {};        ///< its window is the shortlist
  std::optional<std::chrono::milliseconds> time_limit =
      {};                                 ///< of the whole search; bounds the rerank
  std::chrono::milliseconds reserve{20};  ///< of time_limit, kept for the steps after the rerank
  std::size_t recheck_rounds = 0;  ///< how often a leg is refilled after denials; 0: until full
  bool explain = false;            ///< fill answer.trace
  std::function<bool(const evidence&)> sufficient = {};  ///< false makes the status insufficient
};

enum class search_status {
  ok,
  degraded,      ///< a stage was left out; answer.notes say which and why
  insufficient,  ///< the caller's rule over the evidence said no
};

enum class rerank_status { off, applied, degraded };

/// Milliseconds of one search, by stage. A stage that did not run took 0.
struct stage_timings {
  double embedding = 0, lexical = 0, dense = 0, recheck = 0, fusion = 0, rerank = 0, selection = 0;
  double total = 0;
};

/// How one readable candidate fared.
struct candidate_trace {
  std::string id = {};
  std::size_t lexical_rank = 0;  ///< from 1; 0: not in that list; of further lists the best
  std::size_t dense_rank = 0;
  bool exact_match = false;
  std::optional<double> lexical_score = {}, similarity = {}, rerank_score = {};
  double fused_score = 0;
  std::string parent = {};       ///< the parent that stands for it; empty: it stands for itself
  std::string parent_note = {};  ///< why its readable parent does not, such as "parent P has 900
                                 ///< tokens, more than 300"
};

/// What the reader may know of his search: it speaks of readable chunks only.
struct reader_trace {
  search_mode mode = search_mode::automatic;
  double fusion_constant = 60;                                       ///< ranks count from 1
  std::vector<candidate_trace> candidates = {};                      ///< in fused order
  std::vector<std::pair<std::string, score_explanation>> bm25 = {};  ///< of the lexical candidates
  std::vector<drop> dropped = {};  ///< one stage and one reason each
};

/// One question to the permission source during a search.
struct permission_check {
  double at_ms = 0;  ///< since the search began
  std::size_t asked = 0;
  std::vector<std::string> denied = {};  ///< chunk ids
};

/// What the operator may know: also of what was denied. It never reaches an answer.
struct operator_trace {
  principal who = {};
  std::uint64_t state = 0;      ///< number of the pinned state
  std::size_t chunk_count = 0;  ///< of the tenant
  std::size_t readable = 0;     ///< by the records, before the recheck
  std::vector<permission_check> checks = {};
  std::size_t rejected = 0;  ///< ids of the caller's searchers that named nothing to be found
  std::vector<std::string> failures = {};  ///< of permission source, searchers and reranker
  std::vector<std::string> parents = {};   ///< why children were shown instead of a parent
  stage_timings timings = {};
};

/// A chunk that stands beside a passage: in the same document, under the same headings, and in the
/// same parent or, like the passage, in none that the reader may see. It passed the same checks. It
/// is given once, and not if it is a passage of the answer itself; it changes no passage's place
/// and takes only what the passages leave of the token budget.
struct neighbour {
  std::string of;             ///< id of the passage
  permitted_passage passage;  ///< its ranks are those it had as a candidate; 0: it was none
};

/// What a search found.
struct answer {
  search_status status = search_status::ok;
  std::vector<std::string> notes = {};  ///< why a stage was left out, or why nothing could be found
  std::vector<permitted_passage> passages = {};  ///< best first
  std::vector<neighbour> neighbours = {};        ///< in the passages' order, then in the document's
  search_mode mode = search_mode::lexical;       ///< what ran
  rerank_status reranking = rerank_status::off;
  evidence signals = {};
  stage_timings timings = {};
  reader_trace trace = {};  ///< empty unless query.explain
};

/// What an update did.
struct update_report {
  std::size_t documents = 0;  ///< replaced or added
  std::size_t unchanged = 0;  ///< documents whose revision and content were stored already
  std::size_t chunks = 0;     ///< of the documents replaced or added
  std::size_t embedded = 0;   ///< inputs that the embedder was given
  std::size_t reused = 0;     ///< vectors kept because model and input bytes are the same
};

/// What a change to another model did.
struct migration_report {
  std::size_t chunks = 0;    ///< searched chunks, each of which the new model has embedded now
  std::size_t embedded = 0;  ///< inputs that the new embedder was given
  std::size_t reused = 0;    ///< inputs that an earlier attempt, which failed, had finished
};

/// How a retriever works. Callbacks may be called from any thread that searches or updates.
struct retriever_options {
  embedder embed = {};    ///< to begin with, see migrate; empty: lexical search only
  searcher lexical = {};  ///< in the place of BM25; what holds a code of the question still leads
  searcher dense = {};    ///< in the place of the vectors here; runs also without an embedder
  const permission_source* permissions = nullptr;  ///< outlives the retriever; none: nobody reads
  /// An answer of the permission source to a recheck that takes longer means no. It is waited for:
  /// to cut a slow one short is the source's own business.
  std::optional<std::chrono::milliseconds> permission_time_limit = {};
  std::vector<std::string> identifiers = {};  ///< formats of codes, such as "PAY-###"
  std::function<std::vector<std::string>(std::string_view)> find_identifiers =
      {};  ///< or a callback
  bool identifier_case_matters = false;
  analysis_options analysis = {};
  bm25_options bm25 = {};
  search_text_options search_text = {};
  metric similarity = metric::cosine;
  vector_bounds bounds = vector_bounds::off;  ///< on: faster exact search, a quarter more memory
  std::optional<ivf_options> ivf = {};        ///< none: exact search; else merges train anew
  std::size_t ivf_from = 10000;               ///< chunks; a segment with fewer is searched exactly
  statistics_of statistics = statistics_of::reader;
  std::function<void(const operator_trace&)> on_search =
      {};  ///< after every search with valid options
};

namespace detail {

struct stored_code {
  std::string value;    // as it is compared
  std::string written;  // as it first stands
  bool in_heading = false;
};

/// A chunk with what was computed from it, once, when it came in.
struct stored_chunk {
  chunk record;
  std::vector<stored_code> codes;
  std::uint64_t input_hash = 0;               // of search_text, the embedder's input
  std::vector<std::string> brought;           // the codes that came with it
  std::size_t first_line = 1, last_line = 1;  // from 1
};

struct stored_document {
  document source;
  std::vector<stored_chunk> chunks;
};

/// What a chunk brings for the indexes, which take it over.
struct prepared_chunk {
  std::vector<std::string> terms = {};
  std::vector<float> vector = {};  // empty: none
  bool supplied = false;           // the vector came with the chunk; it is not reused for others
  bool as_compared = false;        // the vector's numbers are a row's of an index, bit for bit
};

struct prepared_document {
  stored_document stored;
  std::vector<prepared_chunk> chunks;  // one for each of the stored
};

/// FNV-1a, 64 bits: the same on every platform.
[[nodiscard]] inline std::uint64_t hash_of(std::string_view bytes) {
  std::uint64_t hash = 14695981039346656037U;
  for (char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash;
}

// ---- segments -----------------------------------------------------------------------------------
//
// A tenant's data is a list of segments. What a segment says of its chunks never changes; what
// changes with time stands beside it and is replaced as a whole:
//
//   records   documents, chunks, postings, codes, families            never changes
//   vectors   one for each searched chunk                             another model: replaced
//   access    class of each document and chunk; the classes' groups   set_access: replaced
//   live      which documents are left, and their statistics          erase, replace: replaced
//
// An update adds one small segment and marks what it replaces as dead in the others. Eight segments
// of about one size become one (merging), so that a chunk is copied once for each eightfold growth
// and a search meets few segments.

/// Finds numbers by the hash of a text. 16 bytes an entry, in one block.
class hashed_numbers {
 public:
  void add(std::uint64_t hash, std::uint32_t number) { entries_.push_back({hash, number}); }
  /// To be called after the last add.
  void sort() {
    std::sort(entries_.begin(), entries_.end(), [](const entry& a, const entry& b) {
      return a.hash != b.hash ? a.hash < b.hash : a.number < b.number;
    });
  }
  /// The first number of that hash that `is_it` accepts. Hashes lie evenly, so that the place is
  /// close to where it would be if they did so exactly.
  template <class IsIt>
  [[nodiscard]] std::optional<std::uint32_t> find(std::uint64_t hash, const IsIt& is_it) const {
    const std::size_t size = entries_.size();
    auto first = static_cast<std::size_t>(((hash >> 32) * size) >> 32);
    std::size_t last = first;
    for (std::size_t step = 16; first > 0 && entries_[first - 1].hash >= hash; step *= 2) {
      first -= (std::min)(first, step);
    }
    for (std::size_t step = 16; last < size && entries_[last].hash < hash; step *= 2) {
      last += (std::min)(size - last, step);
    }
    auto at = std::lower_bound(
        entries_.begin() + static_cast<std::ptrdiff_t>(first),
        entries_.begin() + static_cast<std::ptrdiff_t>(last), hash,
        [](const entry& each, std::uint64_t wanted) { return each.hash < wanted; });
    for (; at != entries_.end() && at->hash == hash; ++at) {
      if (is_it(at->number)) return at->number;
    }
    return std::nullopt;
  }

 private:
  struct entry {
    std::uint64_t hash = 0;
    std::uint32_t number = 0;
  };
  std::vector<entry> entries_;
};

/// Which row lies in which, one level deep, and which stand in one document.
struct family_rows {
  std::vector<std::uint32_t> parent_of;                             // by row; no_row: none
  std::map<std::uint32_t, std::vector<std::uint32_t>> children_of;  // of parents alone, rising
  std::vector<std::uint32_t> in_documents;  // rows, document after document, by first byte
  std::vector<std::uint32_t> begins;        // of each document in there, and one end

  [[nodiscard]] bool is_parent(std::uint32_t row) const { return children_of.contains(row); }
  [[nodiscard]] std::span<const std::uint32_t> of_document(std::uint32_t document) const {
    return std::span(in_documents)
        .subspan(begins[document], begins[document + 1] - begins[document]);
  }
};

/// What a segment says of its chunks. Rows stand in byte order of the chunk ids, so that within a
/// segment "the smaller row wins" is "the smaller id wins" in every index.
struct segment_records {
  struct place {
    std::uint32_t document = 0;
    std::uint32_t chunk = 0;
  };

  std::vector<std::shared_ptr<const stored_document>> documents;  // in byte order of their ids
  std::vector<place> rows;
  term_index terms;
  identifier_index codes;
  family_rows families;
  hashed_numbers document_of_id, row_of_id, row_of_input;  // inputs: of searched rows
  // By key, each document that has it, rising, and its value there.
  std::map<std::string_view, std::vector<std::pair<std::uint32_t, const metadata_value*>>> metadata;

  [[nodiscard]] const stored_document& document_of(std::uint32_t row) const {
    return *documents[rows[row].document];
  }
  [[nodiscard]] const stored_chunk& at(std::uint32_t row) const {
    return document_of(row).chunks[rows[row].chunk];
  }
  [[nodiscard]] std::optional<std::uint32_t> find_document(std::string_view id) const {
    return document_of_id.find(hash_of(id),
                               [&](std::uint32_t at) { return documents[at]->source.id == id; });
  }
  [[nodiscard]] std::optional<std::uint32_t> find_chunk(std::string_view id) const {
    return row_of_id.find(hash_of(id), [&](std::uint32_t row) { return at(row).record.id == id; });
  }
};

/// The vectors of a segment, row for row.
struct segment_vectors {
  flat_index rows;
  std::optional<ivf_index> lists;  // of the same vectors; none: search is exact
  row_set supplied;                // they came with their chunks
};

/// What BM25 counts over some classes of a segment, as far as somebody asked for it. Of one state:
/// the newest that was asked about, known by the number of changes before it.
class class_sums {
 public:
  static constexpr std::size_t capacity = 4096;  // terms

  [[nodiscard]] std::optional<length_statistics> corpus(std::size_t changes) const {
    const std::lock_guard lock(mutex_);
    return changes == changes_ ? corpus_ : std::nullopt;
  }
  [[nodiscard]] std::optional<std::size_t> n(std::uint32_t term, std::size_t changes) const {
    const std::lock_guard lock(mutex_);
    const auto found = changes == changes_ ? n_.find(term) : n_.end();
    return found == n_.end() ? std::optional<std::size_t>() : found->second;
  }
  void set_corpus(const length_statistics& corpus, std::size_t changes) {
    const std::lock_guard lock(mutex_);
    if (go_to(changes)) corpus_ = corpus;
  }
  void set_n(std::uint32_t term, std::size_t n, std::size_t changes) {
    const std::lock_guard lock(mutex_);
    if (!go_to(changes)) return;
    if (n_.size() == capacity) n_.clear();
    n_.insert_or_assign(term, n);
  }

 private:
  /// False for a state that is not the newest.
  [[nodiscard]] bool go_to(std::size_t changes) {
    if (changes > changes_) {
      n_.clear();
      corpus_.reset();
      changes_ = changes;
    }
    return changes == changes_;
  }

  mutable std::mutex mutex_;
  std::size_t changes_ = 0;
  std::optional<length_statistics> corpus_;
  std::unordered_map<std::uint32_t, std::size_t> n_;  // by number of the term in the segment
};

/// What one list of groups opens of a segment.
struct open_rows {
  std::vector<bool> classes;
  row_set rows;
  mutable class_sums sums;
};

/// Remembers what the latest scopes open. The lists of groups are the key, so that scopes of equal
/// rights share an entry, and a scope whose groups have changed can never meet an old one.
class open_rows_cache {
 public:
  static constexpr std::size_t capacity = 64;

  [[nodiscard]] std::shared_ptr<const open_rows> find(
      const std::vector<std::string>& groups) const {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(groups);
    return found == entries_.end() ? nullptr : found->second;
  }
  void add(const std::vector<std::string>& groups, std::shared_ptr<const open_rows> rows) {
    const std::lock_guard lock(mutex_);
    if (entries_.size() == capacity) entries_.clear();
    entries_.insert_or_assign(groups, std::move(rows));
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::vector<std::string>, std::shared_ptr<const open_rows>> entries_;
};

/// Gives each list of groups its class. Lists are sorted, without repeats; an empty one: nobody.
class class_table {
 public:
  [[nodiscard]] std::optional<std::uint32_t> find(const std::vector<std::string>& groups) const {
    const auto found = number_of_.find(groups);
    return found == number_of_.end() ? std::optional<std::uint32_t>() : found->second;
  }
  std::uint32_t add(const std::vector<std::string>& groups) {
    const auto next = static_cast<std::uint32_t>(classes_.size());
    const auto [place, is_new] = number_of_.try_emplace(groups, next);
    if (is_new) classes_.push_back(groups);
    return place->second;
  }
  [[nodiscard]] std::size_t size() const { return classes_.size(); }
  [[nodiscard]] const std::vector<std::string>& operator[](std::size_t number) const {
    return classes_[number];
  }

 private:
  std::vector<std::vector<std::string>> classes_;
  std::map<std::vector<std::string>, std::uint32_t> number_of_;
};

/// Numbers by place, in pages. A copy shares them all; the one that is changed next is copied.
class paged_numbers {
 public:
  paged_numbers() = default;
  explicit paged_numbers(std::span<const std::uint32_t> numbers) : size_(numbers.size()) {
    for (std::size_t at = 0; at < size_; at += page_size) {
      const auto own = numbers.subspan(at, (std::min)(page_size, size_ - at));
      pages_.push_back(std::make_shared<const page>(own.begin(), own.end()));
    }
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::uint32_t operator[](std::size_t at) const {
    return (*pages_[at / page_size])[at % page_size];
  }
  void set(std::size_t at, std::uint32_t number) {
    page changed = *pages_[at / page_size];
    changed[at % page_size] = number;
    pages_[at / page_size] = std::make_shared<const page>(std::move(changed));
  }

 private:
  using page = std::vector<std::uint32_t>;
  static constexpr std::size_t page_size = 1024;

  std::size_t size_ = 0;
  std::vector<std::shared_ptr<const page>> pages_;
};

/// Who may read what of a segment. Equal lists of groups are one class, so that a scope is compared
/// with each class once, not with each chunk.
struct segment_access {
  std::shared_ptr<const class_table> classes = std::make_shared<class_table>();
  paged_numbers class_of_document;
  paged_numbers class_of_row;  // what chunk and document allow, both
  std::shared_ptr<open_rows_cache> cache = std::make_shared<open_rows_cache>();

  [[nodiscard]] std::span<const std::string> groups_of_row(std::uint32_t row) const {
    return (*classes)[class_of_row[row]];
  }
  [[nodiscard]] const std::vector<std::string>& groups_of_document(std::uint32_t place) const {
    return (*classes)[class_of_document[place]];
  }

  /// What a scope opens, dead rows included. Cost: O(classes x log groups + rows) at first.
  [[nodiscard]] std::shared_ptr<const open_rows> open_to(const scope& reader) const {
    if (auto known = cache->find(reader.groups())) return known;
    auto open = std::make_shared<open_rows>();
    for (std::size_t i = 0; i < classes->size(); ++i) {
      open->classes.push_back(reader.meets((*classes)[i]));
    }
    open->rows = row_set(class_of_row.size());
    for (std::size_t row = 0; row < class_of_row.size(); ++row) {
      if (open->classes[class_of_row[row]]) open->rows.insert(row);
    }
    cache->add(reader.groups(), open);
    return open;
  }
};

/// What is left of a segment.
struct segment_live {
  row_set rows, documents;
  std::size_t row_count = 0, document_count = 0;
  std::vector<length_statistics> of_class;  // by class: of the searched rows alone
  std::size_t changes = 0;                  // entries of the segment's log that are in here
};

/// A row that has gone to another class, or (no_row) died.
struct class_change {
  std::uint32_t row = 0;
  std::uint32_t from = 0;
  std::uint32_t to = no_row;
};

/// In how many chunks of each class a term stands: counted in the postings when it is first asked
/// for, and from then on kept up to date by the log of what died or changed its class, unless
/// counting again is less work. Shared by all states of a segment; the newest state's numbers are
/// kept.
class class_counts {
 public:
  using counts = std::vector<std::pair<std::uint32_t, std::uint32_t>>;  // class and n, by class
  class_sums of_all;                                                    // over every class

  /// Adds to the log of the state with `known` entries; what a failed update left there goes.
  /// returns  the entries of the next state
  std::size_t record(std::size_t known, const std::vector<class_change>& changes) {
    const std::lock_guard lock(mutex_);
    log_.resize(known);
    log_.insert(log_.end(), changes.begin(), changes.end());
    return log_.size();
  }

  /// The numbers of a term in one state. Cost: O(its postings) at first, then O(classes of it) and
  /// a look-up for each new entry of the log, but never more than O(its postings).
  ///
  /// term  its number in the segment
  [[nodiscard]] std::shared_ptr<const counts> of(std::uint32_t term, const segment_records& records,
                                                 const segment_access& access,
                                                 const segment_live& live) {
    // To find a row in the list costs as much as to read some of it.
    const std::size_t most_changes = records.terms.row_count(term) / 16;
    entry known;
    std::vector<class_change> missed;
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = entries_.find(term); found != entries_.end()) known = found->second;
      if (known.numbers && known.changes == live.changes) return known.numbers;
      if (known.changes < live.changes && live.changes - known.changes <= most_changes) {
        missed.assign(log_.begin() + static_cast<std::ptrdiff_t>(known.changes),
                      log_.begin() + static_cast<std::ptrdiff_t>(live.changes));
      }
    }
    auto numbers = std::make_shared<const counts>(
        known.numbers && !missed.empty() ? changed(term, records, *known.numbers, missed)
                                         : count(term, records, access, live));
    if (known.changes > live.changes) return numbers;  // of a state that is not the newest
    const std::lock_guard lock(mutex_);
    auto [place, is_new] = entries_.try_emplace(term);
    if (is_new || place->second.changes < live.changes) {
      place->second = {numbers, live.changes};
    }
    return numbers;
  }

 private:
  struct entry {
    std::shared_ptr<const counts> numbers = {};
    std::size_t changes = 0;
  };

  [[nodiscard]] static counts count(std::uint32_t term, const segment_records& records,
                                    const segment_access& access, const segment_live& live) {
    std::vector<std::uint32_t> n_of_class(access.classes->size());
    records.terms.for_each_posting(term, [&](const term_index::posting& p) {
      if (live.rows.contains(p.row)) ++n_of_class[access.class_of_row[p.row]];
    });
    counts numbers;
    for (std::uint32_t i = 0; i < n_of_class.size(); ++i) {
      if (n_of_class[i] != 0) numbers.push_back({i, n_of_class[i]});
    }
    return numbers;
  }

  [[nodiscard]] static counts changed(std::uint32_t term, const segment_records& records,
                                      const counts& before,
                                      const std::vector<class_change>& changes) {
    std::map<std::uint32_t, std::uint32_t> n_of_class(before.begin(), before.end());
    for (const class_change& each : changes) {
      if (!records.terms.contains(each.row, term)) continue;
      --n_of_class[each.from];
      if (each.to != no_row) ++n_of_class[each.to];
    }
    std::erase_if(n_of_class, [](const auto& each) { return each.second == 0; });
    return {n_of_class.begin(), n_of_class.end()};
  }

  std::mutex mutex_;
  std::vector<class_change> log_;
  std::unordered_map<std::uint32_t, entry> entries_;  // by term
};

/// One piece of a tenant's data, as one state sees it. None of the pointers is null.
struct segment {
  std::shared_ptr<const segment_records> records;
  std::shared_ptr<const segment_vectors> vectors;
  std::shared_ptr<const segment_access> access;
  std::shared_ptr<const segment_live> live;
  std::shared_ptr<class_counts> counts;

  /// The live row of a chunk, and the live place of a document.
  [[nodiscard]] std::optional<std::uint32_t> find_chunk(std::string_view id) const {
    const auto row = records->find_chunk(id);
    return row && live->rows.contains(*row) ? row : std::nullopt;
  }
  [[nodiscard]] std::optional<std::uint32_t> find_document(std::string_view id) const {
    const auto place = records->find_document(id);
    return place && live->documents.contains(*place) ? place : std::nullopt;
  }
};

/// The data of one tenant. Of all segments together ids of live documents and chunks are unique.
struct tenant_state {
  std::vector<segment> segments;  // in the order in which they came; no order is relied on

  /// A document or chunk of one of the segments.
  struct place {
    std::size_t segment = 0;
    std::uint32_t number = 0;
  };
  [[nodiscard]] std::optional<place> find_document(std::string_view id) const {
    for (std::size_t i = 0; i < segments.size(); ++i) {
      if (const auto found = segments[i].find_document(id)) return place{i, *found};
    }
    return std::nullopt;
  }
  [[nodiscard]] std::optional<place> find_chunk(std::string_view id) const {
    for (std::size_t i = 0; i < segments.size(); ++i) {
      if (const auto found = segments[i].find_chunk(id)) return place{i, *found};
    }
    return std::nullopt;
  }
};

/// The tenants by name. A copy shares all but the part that is changed next, so that an update does
/// not cost more where there are many tenants.
class tenant_table {
 public:
  /// Null: nothing is stored for this tenant.
  [[nodiscard]] const tenant_state* find(std::string_view tenant) const {
    const part* own = parts_[number_of(tenant)].get();
    if (own == nullptr) return nullptr;
    const auto found = own->find(tenant);
    return found == own->end() ? nullptr : found->second.get();
  }
  /// Where a live document of a tenant stands.
  [[nodiscard]] std::optional<tenant_state::place> find_document(std::string_view tenant,
                                                                 std::string_view id) const {
    const tenant_state* own = find(tenant);
    return own == nullptr ? std::nullopt : own->find_document(id);
  }
  /// A tenant without documents is none.
  void put(std::string_view tenant, tenant_state state) {
    std::shared_ptr<const part>& own = parts_[number_of(tenant)];
    auto next = own ? std::make_shared<part>(*own) : std::make_shared<part>();
    std::erase_if(state.segments,
                  [](const segment& each) { return each.live->document_count == 0; });
    if (!state.segments.empty()) {
      next->insert_or_assign(std::string(tenant),
                             std::make_shared<const tenant_state>(std::move(state)));
    } else if (const auto old = next->find(tenant); old != next->end()) {
      next->erase(old);
    }
    own = std::move(next);
  }
  /// All of them in byte order of their names.
  [[nodiscard]] std::map<std::string_view, const tenant_state*> all() const {
    std::map<std::string_view, const tenant_state*> tenants;
    for (const auto& own : parts_) {
      if (!own) continue;
      for (const auto& [tenant, state] : *own) tenants.emplace(tenant, state.get());
    }
    return tenants;
  }

 private:
  using part = std::map<std::string, std::shared_ptr<const tenant_state>, std::less<>>;

  [[nodiscard]] static std::size_t number_of(std::string_view tenant) {
    return static_cast<std::size_t>(hash_of(tenant) % 64);
  }

  std::array<std::shared_ptr<const part>, 64> parts_;
};

/// All that a search can see, of one moment.
struct index_state {
  tenant_table tenants;
  std::size_t dimension = 0;  // of every vector; 0: there is none yet
  std::uint64_t number = 0;   // grows by one with each publication
  // The model of every vector, and of questions; never null.
  std::shared_ptr<const embedder> model = std::make_shared<const embedder>();
};

/// Vectors of the model that the retriever is on its way to, by the embedder's exact input: what an
/// attempt that failed had finished, the next one need not do again.
class migration_vectors {
 public:
  /// Starts an attempt; false if another one runs. Keeps what is of the same model and dimension.
  [[nodiscard]] bool begin(const embedder& next) {
    const std::lock_guard lock(mutex_);
    if (running_) return false;
    running_ = true;
    const bool same_length = next.dimension == 0 || dimension_ == 0 || next.dimension == dimension_;
    if (model_ != next.model || !same_length) forget();
    model_ = next.model;
    if (next.dimension != 0) dimension_ = next.dimension;
    return true;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    running_ = false;
  }

  /// Numbers per vector; 0: not known yet.
  [[nodiscard]] std::size_t dimension() const {
    const std::lock_guard lock(mutex_);
    return dimension_;
  }
  [[nodiscard]] std::optional<std::vector<float>> find(std::string_view input) const {
    const std::lock_guard lock(mutex_);
    const auto found = vectors_.find(input);
    return found == vectors_.end() ? std::optional<std::vector<float>>() : found->second;
  }
  [[nodiscard]] bool contains(std::string_view input) const {
    const std::lock_guard lock(mutex_);
    return vectors_.contains(input);
  }
  void add(std::string_view input, std::vector<float> vector) {
    const std::lock_guard lock(mutex_);
    dimension_ = vector.size();
    vectors_.insert_or_assign(std::string(input), std::move(vector));
  }
  void erase(std::string_view input) {
    const std::lock_guard lock(mutex_);
    if (const auto found = vectors_.find(input); found != vectors_.end()) vectors_.erase(found);
  }
  /// Keeps only these inputs.
  void keep(const detail::key_set<std::string>& inputs) {
    const std::lock_guard lock(mutex_);
    std::erase_if(vectors_, [&](const auto& each) { return !inputs.contains(each.first); });
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    forget();
  }

 private:
  void forget() {
    vectors_.clear();
    model_.clear();
    dimension_ = 0;
  }

  mutable std::mutex mutex_;
  bool running_ = false;
  std::string model_;
  std::size_t dimension_ = 0;
  text_map<std::vector<float>> vectors_;
};

/// What a retriever and its snapshots share.
struct retriever_core {
  retriever_options options;
  identifier_finder finder;
  std::mutex writer;   // one publication at a time; no user code runs under it
  std::mutex merging;  // one merge at a time; taken before writer
  migration_vectors migration;

  [[nodiscard]] std::shared_ptr<const index_state> current() const {
    const std::lock_guard lock(pointer_mutex);
    return state;
  }
  /// Under the writer's lock.
  void publish(std::shared_ptr<const index_state> next) {
    {
      const std::lock_guard lock(pointer_mutex);
      state.swap(next);
    }
    replaced.push_back(std::move(next));
  }
  /// Frees the replaced states that nobody reads any more; the others wait for the next call. To
  /// free a large segment takes long: an update does it, never a search.
  void free_replaced() {
    std::vector<std::shared_ptr<const index_state>> unread;  // freed after the lock
    const std::lock_guard lock(writer);
    for (auto& old : replaced) {
      if (old.use_count() == 1) unread.push_back(std::move(old));
    }
    std::erase(replaced, nullptr);
  }

 private:
  mutable std::mutex pointer_mutex;
  std::shared_ptr<const index_state> state = std::make_shared<index_state>();
  std::vector<std::shared_ptr<const index_state>> replaced;  // guarded by `writer`
};

/// Stands first in each update, so that it ends last.
class update_end {
 public:
  explicit update_end(retriever_core& core) : core_(core) {}
  update_end(const update_end&) = delete;
  update_end& operator=(const update_end&) = delete;
  ~update_end() { core_.free_replaced(); }

 private:
  retriever_core& core_;
};

// ---- updates: prepare ---------------------------------------------------------------------------

/// The ids that chunks of a document name as their parents.
[[nodiscard]] inline detail::key_set<std::string_view> parent_ids_of(
    std::span<const chunk> chunks) {
  detail::key_set<std::string_view> ids;
  for (const chunk& piece : chunks) {
    if (!piece.parent_id.empty()) ids.insert(piece.parent_id);
  }
  return ids;
}

/// What is wrong with a chunk's parent, if anything. The parent shows all that its children hold,
/// so whoever may read it must be allowed to read each of them.
[[nodiscard]] inline result<void> check_parent(const document& source, const chunk& child,
                                               const chunk* parent) {
  const auto refuse = [&](const std::string& sentence) {
    return error(errc::invalid_argument,
                 "upsert: document " + in_quotes(source.id) + ": " + sentence);
  };
  const std::string name =
      "parent " + in_quotes(child.parent_id) + " of chunk " + in_quotes(child.id);
  if (parent == nullptr) return refuse("the " + name + " is not among its chunks");
  if (parent == &child) return refuse("chunk " + in_quotes(child.id) + " is its own parent");
  if (!parent->parent_id.empty()) return refuse("the " + name + " has a parent itself");
  if (child.range.begin < parent->range.begin || child.range.end > parent->range.end) {
    return refuse("the " + name + " does not contain its range");
  }
  if (!child.allowed_groups || !parent->allowed_groups) return {};
  for (const std::string& group : *parent->allowed_groups) {
    if (std::find(child.allowed_groups->begin(), child.allowed_groups->end(), group) ==
        child.allowed_groups->end()) {
      return refuse("the " + name + " allows group " + in_quotes(group) +
                    ", which the chunk does not");
    }
  }
  return {};
}

[[nodiscard]] inline result<void> check_parents(const document& source,
                                                std::span<const chunk> chunks) {
  std::unordered_map<std::string_view, const chunk*> chunk_of_id;
  for (const chunk& piece : chunks) chunk_of_id.emplace(piece.id, &piece);
  for (const chunk& piece : chunks) {
    if (piece.parent_id.empty()) continue;
    const auto parent = chunk_of_id.find(piece.parent_id);
    const auto checked =
        check_parent(source, piece, parent == chunk_of_id.end() ? nullptr : parent->second);
    if (!checked) return checked;
  }
  return {};
}

/// What is wrong with a document and its chunks, if anything.
[[nodiscard]] inline result<void> check_document(const document& source,
                                                 std::span<const chunk> chunks) {
  const auto refuse = [&source](errc code, const std::string& sentence) {
    return error(code, "upsert: document " + in_quotes(source.id) + ": " + sentence);
  };
  if (source.id.empty()) return refuse(errc::invalid_argument, "its id is empty");
  for (const std::string& group : source.allowed_groups) {
    if (group.empty()) return refuse(errc::invalid_argument, "an allowed group is empty");
  }
  for (const auto& [key, value] : source.metadata) {
    if (is_finite(value.number())) continue;
    return refuse(errc::not_finite,
                  "the number of its metadata " + in_quotes(key) + " is not finite");
  }
  for (const chunk& piece : chunks) {
    const std::string name = "chunk " + in_quotes(piece.id);
    const byte_range range = piece.range;
    if (piece.vector && piece.vector->values.empty()) {
      return refuse(errc::dimension_mismatch, "the vector of " + name + " has no numbers");
    }
    if (piece.id.empty()) return refuse(errc::invalid_argument, "a chunk's id is empty");
    if (!piece.document_id.empty() && piece.document_id != source.id) {
      return refuse(errc::invalid_argument,
                    name + " belongs to document " + in_quotes(piece.document_id));
    }
    if (range.begin > range.end || range.end > source.text.size()) {
      return refuse(errc::invalid_argument, name + " ends at byte " + text_of(range.end) +
                                                "; the text has " + text_of(source.text.size()));
    }
    if (piece.body.begin < range.begin || piece.body.begin > piece.body.end ||
        piece.body.end > range.end) {
      return refuse(errc::invalid_argument, "the body of " + name + " lies outside its range");
    }
    for (const std::string& group : piece.allowed_groups.value_or(std::vector<std::string>{})) {
      if (std::find(source.allowed_groups.begin(), source.allowed_groups.end(), group) ==
          source.allowed_groups.end()) {
        return refuse(errc::invalid_argument,
                      name + " allows group " + in_quotes(group) + ", which its document does not");
      }
    }
  }
  return check_parents(source, chunks);
}

/// How many titles two heading paths share from the outermost on.
[[nodiscard]] inline std::size_t shared_titles(const chunk& a, const chunk& b) {
  const std::size_t most = (std::min)(a.heading_path.size(), b.heading_path.size());
  std::size_t shared = 0;
  while (shared < most && a.heading_path[shared] == b.heading_path[shared]) ++shared;
  return shared;
}

/// The chunk's codes: of the title and its headings, then of its body, then those it brought. A
/// title heads the chunk that opens the document, and a heading the first chunk below it; for the
/// other parts they are a mention. So the code leads to where it is explained first. `before` is
/// the chunk searched before this one, or null.
[[nodiscard]] inline std::vector<stored_code> codes_of(const retriever_core& core,
                                                       const document& source, const chunk& piece,
                                                       const chunk* before, bool opens_document) {
  std::vector<stored_code> codes;
  std::unordered_map<std::string, std::size_t> place_of;
  const auto add = [&](const std::string& value, std::string_view written, bool in_heading) {
    const auto [place, is_new] = place_of.try_emplace(value, codes.size());
    if (is_new) codes.push_back({value, std::string(written), false});
    stored_code& code = codes[place->second];
    code.in_heading = code.in_heading || in_heading;
  };
  const auto add_found = [&](std::string_view text, bool in_heading) {
    for (const identifier_match& found : core.finder.find(text)) {
      const std::string_view written = slice(text, found.where);
      add(found.value, written.empty() ? found.value : written, in_heading);
    }
  };
  add_found(source.title, opens_document);
  const std::size_t shared = before == nullptr ? 0 : shared_titles(*before, piece);
  for (std::size_t level = 0; level + 1 < piece.heading_path.size(); ++level) {
    add_found(piece.heading_path[level], level >= shared);
  }
  add_found(piece.heading, piece.range.begin < piece.body.begin || opens_document);
  add_found(slice(source.text, piece.body), false);
  for (const std::string& code : piece.identifiers) {
    add(normalise_identifier(code, core.options.identifier_case_matters), code, false);
  }
  return codes;
}

/// Notes the lines on which the chunks begin and end; LF, CRLF and CR end a line.
inline void number_lines(stored_document& stored) {
  const std::string_view text = stored.source.text;
  std::vector<std::size_t> begins;
  line_reader lines(text);
  for (std::size_t at = 0; at < text.size(); at = lines.at(at).next) begins.push_back(at);
  const auto line_of = [&begins](std::size_t at) {
    const auto after = std::upper_bound(begins.begin(), begins.end(), at);
    return (std::max)(static_cast<std::size_t>(after - begins.begin()), std::size_t{1});
  };
  for (stored_chunk& item : stored.chunks) {
    const byte_range range = item.record.range;
    item.first_line = line_of(range.begin);
    item.last_line = range.empty() ? item.first_line : line_of(range.end - 1);
  }
}

/// Computes of one chunk what needs no embedder. A parent is stored, not searched: it has no terms,
/// no codes and no vector of its own.
[[nodiscard]] inline result<void> prepare_chunk(const retriever_core& core,
                                                const std::string& model, const chunk& piece,
                                                bool searched, const chunk* before,
                                                bool opens_document, prepared_document& into) {
  const document& source = into.stored.source;
  stored_chunk item;
  prepared_chunk own;
  item.record = piece;
  item.record.document_id = source.id;
  item.record.revision = source.revision;
  item.brought = piece.identifiers;
  const std::string text = search_text(source, piece, core.options.search_text);
  if (piece.token_count == 0) item.record.token_count = count_words(text);
  if (searched) own.terms = analyse(text, core.options.analysis);
  item.codes = codes_of(core, source, piece, before, opens_document);
  item.record.identifiers.clear();
  for (const stored_code& code : item.codes) item.record.identifiers.push_back(code.written);
  if (!searched) item.codes.clear();
  item.input_hash = hash_of(text);
  if (piece.vector) {
    if (piece.vector->model != model) {
      return error(errc::model_mismatch, "upsert: the vector of chunk " + in_quotes(piece.id) +
                                             " is of model " + in_quotes(piece.vector->model) +
                                             "; this index holds " + in_quotes(model));
    }
    own.supplied = searched;
    if (searched) own.vector = piece.vector->values;
    item.record.vector.reset();
  }
  into.stored.chunks.push_back(std::move(item));
  into.chunks.push_back(std::move(own));
  return {};
}

/// Checks one document and computes what needs no embedder.
[[nodiscard]] inline result<prepared_document> prepare_document(const retriever_core& core,
                                                                const std::string& model,
                                                                const chunked_document& input) {
  const document& source = input.source;
  if (const auto checked = check_document(source, input.chunks); !checked) {
    return checked.failure();
  }
  const detail::key_set<std::string_view> parents = parent_ids_of(input.chunks);
  const auto prepare = [&]() -> result<prepared_document> {
    prepared_document made{{source, {}}, {}};
    made.stored.chunks.reserve(input.chunks.size());
    const std::size_t proper = after_front_matter(source.text);
    const std::size_t first = trim(source.text, {proper, source.text.size()}).begin;
    const chunk* before = nullptr;
    for (const chunk& piece : input.chunks) {
      const bool searched = !parents.contains(piece.id);
      const auto done =
          prepare_chunk(core, model, piece, searched, before, piece.range.begin <= first, made);
      if (!done) return done.failure();
      if (searched) before = &piece;
    }
    number_lines(made.stored);
    return made;
  };
  return guarded(errc::callback_failed, "upsert: document " + in_quotes(source.id), prepare);
}

/// Gives a chunk the vector of an equal input that the tenant's data holds already.
/// returns  whether there is one
[[nodiscard]] inline bool reuse_vector(const tenant_state* tenant, std::uint64_t input_hash,
                                       std::string_view input, const search_text_options& options,
                                       prepared_chunk& into) {
  if (tenant == nullptr) return false;
  for (const segment& each : tenant->segments) {
    const segment_records& records = *each.records;
    const segment_vectors& vectors = *each.vectors;
    const auto row = records.row_of_input.find(input_hash, [&](std::uint32_t at) {
      return each.live->rows.contains(at) && vectors.rows.has_vector(at) &&
             !vectors.supplied.contains(at) &&
             search_text(records.document_of(at).source, records.at(at).record, options) == input;
    });
    if (!row) continue;
    into.vector.assign(vectors.rows.row(*row).begin(), vectors.rows.row(*row).end());
    into.as_compared = true;
    return true;
  }
  return false;
}

/// Gives every chunk its vector: supplied, reused, or embedded in batches across documents.
[[nodiscard]] inline result<void> fill_vectors(const retriever_core& core, const index_state& base,
                                               std::span<prepared_document> documents,
                                               update_report& report) {
  if (!base.model->embed) return {};
  std::vector<std::string> inputs;  // distinct
  std::vector<std::string> names;
  std::vector<std::pair<prepared_chunk*, std::size_t>> waiting;  // chunk and its input
  std::unordered_map<std::string, std::size_t> place_of_input;
  for (prepared_document& each : documents) {
    const document& source = each.stored.source;
    detail::key_set<std::string_view> parents;
    for (const stored_chunk& item : each.stored.chunks) parents.insert(item.record.parent_id);
    for (std::size_t i = 0; i < each.chunks.size(); ++i) {
      const stored_chunk& item = each.stored.chunks[i];
      prepared_chunk& own = each.chunks[i];
      if (!own.vector.empty() || parents.contains(std::string_view(item.record.id))) continue;
      std::string text = search_text(source, item.record, core.options.search_text);
      if (reuse_vector(base.tenants.find(source.tenant), item.input_hash, text,
                       core.options.search_text, own)) {
        ++report.reused;
        continue;
      }
      const auto [place, is_new] = place_of_input.try_emplace(text, inputs.size());
      if (is_new) {
        inputs.push_back(std::move(text));
        names.push_back("chunk " + in_quotes(item.record.id));
      }
      waiting.push_back({&own, place->second});
    }
  }
  if (inputs.empty()) return {};
  const std::vector<std::string_view> views(inputs.begin(), inputs.end());
  const auto vectors = embed_checked(*base.model, views, text_role::document, names);
  if (!vectors) return vectors.failure();
  report.embedded += inputs.size();
  for (const auto& [own, input] : waiting) own->vector = (*vectors)[input];
  return {};
}

// ---- segments: made, merged, changed ------------------------------------------------------------

/// Finds for every row its parent, and for every document its rows. What upsert refuses (a parent
/// that is missing or in another document, a second level) is no parent here.
[[nodiscard]] inline family_rows link_families(const segment_records& records) {
  family_rows families;
  const auto row_count = static_cast<std::uint32_t>(records.rows.size());
  families.parent_of.assign(row_count, no_row);
  families.begins.assign(records.documents.size() + 1, 0);
  for (std::uint32_t row = 0; row < row_count; ++row) {
    ++families.begins[records.rows[row].document + 1];
    const std::string& parent_id = records.at(row).record.parent_id;
    if (parent_id.empty()) continue;
    const auto parent = records.find_chunk(parent_id);
    if (!parent || records.rows[*parent].document != records.rows[row].document ||
        !records.at(*parent).record.parent_id.empty()) {
      continue;
    }
    families.parent_of[row] = *parent;
    families.children_of[*parent].push_back(row);
  }
  for (std::size_t i = 1; i < families.begins.size(); ++i) {
    families.begins[i] += families.begins[i - 1];
  }
  families.in_documents.resize(row_count);
  std::vector<std::uint32_t> next = families.begins;
  for (std::uint32_t row = 0; row < row_count; ++row) {
    families.in_documents[next[records.rows[row].document]++] = row;
  }
  for (std::size_t i = 0; i < records.documents.size(); ++i) {
    const auto at = [&](std::uint32_t place) {
      return families.in_documents.begin() + static_cast<std::ptrdiff_t>(place);
    };
    std::sort(at(families.begins[i]), at(families.begins[i + 1]),
              [&](std::uint32_t a, std::uint32_t b) {
                const std::size_t first = records.at(a).record.range.begin;
                const std::size_t second = records.at(b).record.range.begin;
                return first != second ? first < second : a < b;
              });
  }
  return families;
}

/// All that follows from documents and rows, but for the postings.
inline void link_records(segment_records& records) {
  for (std::uint32_t place = 0; place < records.documents.size(); ++place) {
    const document& source = records.documents[place]->source;
    records.document_of_id.add(hash_of(source.id), place);
    for (const auto& [key, value] : source.metadata) {
      records.metadata[key].push_back({place, &value});
    }
  }
  for (std::uint32_t row = 0; row < records.rows.size(); ++row) {
    const stored_chunk& item = records.at(row);
    records.row_of_id.add(hash_of(item.record.id), row);
    for (const stored_code& code : item.codes) records.codes.add(row, code.value, code.in_heading);
  }
  records.document_of_id.sort();
  records.row_of_id.sort();
  records.families = link_families(records);
  for (std::uint32_t row = 0; row < records.rows.size(); ++row) {
    if (!records.families.is_parent(row)) records.row_of_input.add(records.at(row).input_hash, row);
  }
  records.row_of_input.sort();
}

/// Indexes of a segment that are at hand already, as from a file.
struct ready_indexes {
  std::optional<term_index> terms = {};
  std::optional<ivf_lists> lists = {};
};

/// Whether the vectors of a segment with so many rows are searched in lists.
[[nodiscard]] inline bool wants_lists(const retriever_options& options, std::size_t rows) {
  return options.ivf && rows >= options.ivf_from;
}

[[nodiscard]] inline result<void> make_lists(const retriever_options& options,
                                             segment_vectors& vectors,
                                             std::optional<ivf_lists> ready = {}) {
  const bool listed = wants_lists(options, vectors.rows.size());
  vectors.rows.set_bounds(listed ? vector_bounds::off : options.bounds);
  if (!listed) return {};
  ivf_index& lists = vectors.lists.emplace(*options.ivf);
  return ready ? lists.try_restore(vectors.rows, std::move(*ready)) : lists.try_train(vectors.rows);
}

[[nodiscard]] inline std::vector<std::string> sorted_groups(std::vector<std::string> groups) {
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  return groups;
}

/// What a chunk's own groups leave of `groups`: they never reach beyond the document's present
/// ones.
[[nodiscard]] inline std::vector<std::string> narrowed(std::vector<std::string> groups,
                                                       const chunk& piece) {
  if (!piece.allowed_groups) return groups;
  const std::vector<std::string>& own = *piece.allowed_groups;
  std::erase_if(groups, [&own](const std::string& group) {
    return std::find(own.begin(), own.end(), group) == own.end();
  });
  return groups;
}

/// The groups that may read a row where `of_document` may read its document. A parent's never reach
/// beyond those of any of its children.
[[nodiscard]] inline std::vector<std::string> effective_groups(
    const segment_records& records, std::uint32_t row, std::vector<std::string> of_document) {
  std::vector<std::string> groups = narrowed(std::move(of_document), records.at(row).record);
  const auto children = records.families.children_of.find(row);
  if (children == records.families.children_of.end()) return groups;
  for (const std::uint32_t child : children->second) {
    groups = narrowed(std::move(groups), records.at(child).record);
  }
  return groups;
}

/// groups  of each document, in the order of the records
[[nodiscard]] inline std::shared_ptr<const segment_access> build_access(
    const segment_records& records, std::span<const std::vector<std::string>> groups) {
  auto table = std::make_shared<class_table>();
  std::vector<std::uint32_t> of_documents;
  std::vector<std::uint32_t> of_rows;
  for (const auto& each : groups) of_documents.push_back(table->add(sorted_groups(each)));
  for (std::uint32_t row = 0; row < records.rows.size(); ++row) {
    const std::uint32_t of_document = of_documents[records.rows[row].document];
    const bool narrower = records.at(row).record.allowed_groups || records.families.is_parent(row);
    of_rows.push_back(narrower ? table->add(effective_groups(records, row, (*table)[of_document]))
                               : of_document);
  }
  auto access = std::make_shared<segment_access>();
  access->classes = std::move(table);
  access->class_of_document = paged_numbers(of_documents);
  access->class_of_row = paged_numbers(of_rows);
  return access;
}

[[nodiscard]] inline std::shared_ptr<const segment_live> all_live(const segment_records& records,
                                                                  const segment_access& access) {
  auto live = std::make_shared<segment_live>();
  live->rows = row_set::all(records.rows.size());
  live->documents = row_set::all(records.documents.size());
  live->row_count = records.rows.size();
  live->document_count = records.documents.size();
  live->of_class.resize(access.classes->size());
  for (std::uint32_t row = 0; row < records.rows.size(); ++row) {
    if (records.families.is_parent(row)) continue;
    length_statistics& sum = live->of_class[access.class_of_row[row]];
    ++sum.chunk_count;
    sum.total_length += records.terms.length(row);
  }
  return live;
}

/// Adds the next row's vector, or none.
[[nodiscard]] inline result<void> add_vector(segment_vectors& vectors, const prepared_chunk& own,
                                             const std::string& id) {
  const std::size_t row = vectors.rows.size();
  if (own.vector.empty()) {
    vectors.rows.add_missing();
    return {};
  }
  const std::string name = "chunk " + in_quotes(id);
  const auto added = own.as_compared ? vectors.rows.try_add_stored(own.vector, name)
                                     : vectors.rows.try_add(own.vector, name);
  if (!added) return added.failure();
  if (own.supplied) vectors.supplied.insert(row);
  return {};
}

/// A segment of which all is live.
[[nodiscard]] inline segment assemble(std::shared_ptr<const segment_records> records,
                                      std::shared_ptr<const segment_vectors> vectors,
                                      std::span<const std::vector<std::string>> groups) {
  segment made;
  made.access = build_access(*records, groups);
  made.live = all_live(*records, *made.access);
  made.counts = std::make_shared<class_counts>();
  made.records = std::move(records);
  made.vectors = std::move(vectors);
  return made;
}

/// A new segment of these documents, all of them live. No user code runs here.
///
/// documents  of distinct ids; taken over
/// groups     that may read each document now
/// ready      indexes of theirs that are at hand already; they are taken
/// errors     duplicate_id: two chunks of one id; dimension_mismatch, not_finite: a vector
[[nodiscard]] inline result<segment> build_segment(const retriever_options& options,
                                                   std::vector<prepared_document> documents,
                                                   std::vector<std::vector<std::string>> groups,
                                                   std::size_t dimension,
                                                   ready_indexes ready = {}) {
  auto records = std::make_shared<segment_records>();
  std::vector<std::uint32_t> order(documents.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return documents[a].stored.source.id < documents[b].stored.source.id;
  });
  std::vector<std::vector<std::string>> groups_in_order;
  std::vector<std::vector<prepared_chunk>> news;  // by document
  for (const std::uint32_t from : order) {
    const auto place = static_cast<std::uint32_t>(records->documents.size());
    prepared_document& each = documents[from];
    news.push_back(std::move(each.chunks));
    groups_in_order.push_back(std::move(groups[from]));
    for (std::uint32_t i = 0; i < each.stored.chunks.size(); ++i)
      records->rows.push_back({place, i});
    records->documents.push_back(std::make_shared<const stored_document>(std::move(each.stored)));
  }
  const auto chunk_at = [&](segment_records::place place) -> const chunk& {
    return records->documents[place.document]->chunks[place.chunk].record;
  };
  std::sort(records->rows.begin(), records->rows.end(),
            [&](segment_records::place a, segment_records::place b) {
              return chunk_at(a).id < chunk_at(b).id;
            });
  link_records(*records);

  auto vectors = std::make_shared<segment_vectors>(segment_vectors{
      flat_index(dimension, options.similarity), {}, row_set(records->rows.size())});
  term_index_builder terms(options.bm25);
  for (std::uint32_t row = 0; row < records->rows.size(); ++row) {
    const chunk& record = records->at(row).record;
    if (row > 0 && records->at(row - 1).record.id == record.id) {
      return error(errc::duplicate_id,
                   "upsert: chunk id " + in_quotes(record.id) + " is used in document " +
                       in_quotes(records->document_of(row - 1).source.id) +
                       " and again in document " + in_quotes(records->document_of(row).source.id));
    }
    prepared_chunk& own = news[records->rows[row].document][records->rows[row].chunk];
    if (!ready.terms) terms.add(own.terms);
    if (const auto added = add_vector(*vectors, own, record.id); !added) return added.failure();
    own = {};  // so that terms and postings never stand in memory both
  }
  records->terms = ready.terms ? std::move(*ready.terms) : terms.build();
  if (const auto trained = make_lists(options, *vectors, std::move(ready.lists)); !trained)
    return trained.failure();
  return assemble(std::move(records), std::move(vectors), groups_in_order);
}

/// A document or row of one of several segments.
struct part_number {
  std::uint32_t part = 0;
  std::uint32_t number = 0;
};

/// The live documents or rows of several segments, in byte order of their ids.
template <class Live, class Id>
[[nodiscard]] std::vector<part_number> live_in_order(std::span<const segment> parts,
                                                     const Live& live_of, const Id& id_of) {
  std::vector<part_number> items;
  std::vector<std::size_t> begins;
  for (std::uint32_t part = 0; part < parts.size(); ++part) {
    begins.push_back(items.size());
    live_of(parts[part]).for_each([&](std::uint32_t number) { items.push_back({part, number}); });
  }
  std::vector<part_number> spare;
  merge_runs(std::span(items), begins, spare, [&](const part_number& a, const part_number& b) {
    return id_of(parts[a.part], a.number) < id_of(parts[b.part], b.number);
  });
  return items;
}

/// By part, what each old number has become; no_row: gone.
[[nodiscard]] inline std::vector<std::vector<std::uint32_t>> new_numbers(
    std::span<const part_number> items, const std::vector<std::size_t>& old_counts) {
  std::vector<std::vector<std::uint32_t>> numbers;
  for (const std::size_t count : old_counts) numbers.emplace_back(count, no_row);
  for (std::uint32_t i = 0; i < items.size(); ++i) numbers[items[i].part][items[i].number] = i;
  return numbers;
}

/// One segment of all that lives in several. Nothing is analysed or embedded, and no user code
/// runs; vectors keep their bits.
[[nodiscard]] inline result<segment> merge_segments(const retriever_options& options,
                                                    std::span<const segment> parts,
                                                    std::size_t dimension) {
  const auto documents = live_in_order(
      parts, [](const segment& part) -> const row_set& { return part.live->documents; },
      [](const segment& part, std::uint32_t place) -> const std::string& {
        return part.records->documents[place]->source.id;
      });
  const auto rows = live_in_order(
      parts, [](const segment& part) -> const row_set& { return part.live->rows; },
      [](const segment& part, std::uint32_t row) -> const std::string& {
        return part.records->at(row).record.id;
      });
  std::vector<std::size_t> document_counts;
  std::vector<std::size_t> row_counts;
  std::vector<const term_index*> terms;
  for (const segment& part : parts) {
    document_counts.push_back(part.records->documents.size());
    row_counts.push_back(part.records->rows.size());
    terms.push_back(&part.records->terms);
  }
  const auto new_document = new_numbers(documents, document_counts);

  auto records = std::make_shared<segment_records>();
  std::vector<std::vector<std::string>> groups;
  for (const part_number& from : documents) {
    const segment& part = parts[from.part];
    records->documents.push_back(part.records->documents[from.number]);
    groups.push_back(part.access->groups_of_document(from.number));
  }
  auto vectors = std::make_shared<segment_vectors>(
      segment_vectors{flat_index(dimension, options.similarity), {}, row_set(rows.size())});
  for (const part_number& from : rows) {
    const segment& part = parts[from.part];
    const segment_records::place old = part.records->rows[from.number];
    if (part.vectors->supplied.contains(from.number))
      vectors->supplied.insert(records->rows.size());
    records->rows.push_back({new_document[from.part][old.document], old.chunk});
    const auto added = vectors->rows.try_add_from(part.vectors->rows, from.number);
    if (!added) return added.failure();
  }
  link_records(*records);
  records->terms =
      term_index::merged(options.bm25, terms, new_numbers(rows, row_counts), rows.size());
  if (const auto trained = make_lists(options, *vectors); !trained) return trained.failure();
  return assemble(std::move(records), std::move(vectors), groups);
}

/// The next state of a segment: documents die or change their groups. What is copied is the live
/// bits and the classes' statistics, and for a change of groups the pages that hold it.
class segment_edit {
 public:
  explicit segment_edit(const segment& base) : base_(base), live_(*base.live) {}

  void kill(std::uint32_t document) {
    for (const std::uint32_t row : base_.records->families.of_document(document)) {
      move(row, no_row);
      live_.rows.remove(row);
      --live_.row_count;
    }
    live_.documents.remove(document);
    --live_.document_count;
  }

  void set_groups(std::uint32_t document, const std::vector<std::string>& groups) {
    if (!access_) access_.emplace(*base_.access);
    access_->class_of_document.set(document, class_of(groups));
    for (const std::uint32_t row : base_.records->families.of_document(document)) {
      const std::uint32_t next = class_of(effective_groups(*base_.records, row, groups));
      move(row, next);
      access_->class_of_row.set(row, next);
    }
  }

  /// The state to publish.
  [[nodiscard]] segment finish() {
    segment next = base_;
    live_.changes = base_.counts->record(base_.live->changes, changes_);
    next.live = std::make_shared<const segment_live>(std::move(live_));
    if (access_) {
      access_->cache = std::make_shared<open_rows_cache>();
      next.access = std::make_shared<const segment_access>(std::move(*access_));
    }
    return next;
  }

 private:
  /// The class of a list of groups; only a new one makes a copy of the table.
  [[nodiscard]] std::uint32_t class_of(const std::vector<std::string>& groups) {
    if (const auto known = access_->classes->find(groups)) return *known;
    auto table = std::make_shared<class_table>(*access_->classes);
    const std::uint32_t number = table->add(groups);
    access_->classes = std::move(table);
    live_.of_class.resize(access_->classes->size());
    return number;
  }

  /// Takes a row's share of the statistics to another class.
  void move(std::uint32_t row, std::uint32_t to) {
    const std::uint32_t from = (access_ ? *access_ : *base_.access).class_of_row[row];
    if (from == to || base_.records->families.is_parent(row)) return;
    const std::uint32_t length = base_.records->terms.length(row);
    --live_.of_class[from].chunk_count;
    live_.of_class[from].total_length -= length;
    if (to != no_row) {
      ++live_.of_class[to].chunk_count;
      live_.of_class[to].total_length += length;
    }
    changes_.push_back({row, from, to});
  }

  const segment& base_;
  segment_live live_;
  std::optional<segment_access> access_;
  std::vector<class_change> changes_;
};

/// The next state of a tenant.
class tenant_edit {
 public:
  explicit tenant_edit(const tenant_state* base) : base_(base == nullptr ? tenant_state{} : *base) {
    edits_.resize(base_.segments.size());
  }

  [[nodiscard]] segment_edit& edit(std::size_t number) {
    if (!edits_[number]) edits_[number].emplace(base_.segments[number]);
    return *edits_[number];
  }
  void add(segment fresh) { added_.push_back(std::move(fresh)); }

  [[nodiscard]] tenant_state finish() {
    tenant_state next;
    for (std::size_t i = 0; i < edits_.size(); ++i) {
      next.segments.push_back(edits_[i] ? edits_[i]->finish() : base_.segments[i]);
    }
    for (segment& fresh : added_) next.segments.push_back(std::move(fresh));
    return next;
  }

 private:
  tenant_state base_;
  std::vector<std::optional<segment_edit>> edits_;  // by segment
  std::vector<segment> added_;
};

// ---- updates: merging ---------------------------------------------------------------------------

/// A segment's tier: 0 up to 64 rows, then one more for each eightfold.
[[nodiscard]] inline std::size_t tier_of(const segment& each) {
  std::size_t tier = 0;
  for (std::size_t most = 64; each.live->row_count > most; most *= 8) ++tier;
  return tier;
}

/// The segments to merge next, if any: eight of the same tier, the smallest first; or one in which
/// more rows are dead than live.
[[nodiscard]] inline std::vector<segment> due_for_merging(const tenant_state& tenant) {
  constexpr std::size_t fan_in = 8;
  std::map<std::size_t, std::vector<segment>> tiers;
  for (const segment& each : tenant.segments) {
    if (each.records->rows.size() > 2 * each.live->row_count + 8) return {each};
    tiers[tier_of(each)].push_back(each);
  }
  for (auto& [tier, segments] : tiers) {
    if (segments.size() >= fan_in) return std::move(segments);
  }
  return {};
}

/// The state in which the newest tenant holds a segment; null: nothing of it is left.
[[nodiscard]] inline const segment* find_segment(const tenant_state& newest, const segment& then) {
  for (const segment& now : newest.segments) {
    if (now.records == then.records) return &now;
  }
  return nullptr;
}

/// Whether a merge has copied the vectors that count now. What is erased has none.
[[nodiscard]] inline bool has_vectors_of(const tenant_state& newest,
                                         std::span<const segment> parts) {
  return std::all_of(parts.begin(), parts.end(), [&newest](const segment& part) {
    const segment* const now = find_segment(newest, part);
    return now == nullptr || now->vectors == part.vectors;
  });
}

/// Does to a merged segment what has been done to one of its parts since it was copied.
///
/// now  null: all that was left of the part has been erased
inline void catch_up(segment_edit& edit, const segment_records& merged, const segment& then,
                     const segment* now) {
  for (std::uint32_t place = 0; place < then.records->documents.size(); ++place) {
    if (!then.live->documents.contains(place)) continue;
    const std::uint32_t next = *merged.find_document(then.records->documents[place]->source.id);
    if (now == nullptr || !now->live->documents.contains(place)) {
      edit.kill(next);
    } else if (now->access->groups_of_document(place) != then.access->groups_of_document(place)) {
      edit.set_groups(next, now->access->groups_of_document(place));
    }
  }
}

/// Puts a merged segment in the place of its parts, with what has happened to them meanwhile.
[[nodiscard]] inline tenant_state with_merged(const tenant_state& newest,
                                              std::span<const segment> parts,
                                              const segment& merged) {
  tenant_state next;
  segment_edit edit(merged);
  for (const segment& part : parts) {
    const segment* const now = find_segment(newest, part);
    if (now == nullptr || part.live != now->live || part.access != now->access) {
      catch_up(edit, *merged.records, part, now);
    }
  }
  for (const segment& each : newest.segments) {
    const bool is_part = std::any_of(parts.begin(), parts.end(), [&each](const segment& part) {
      return part.records == each.records;
    });
    if (!is_part) next.segments.push_back(each);
  }
  next.segments.push_back(edit.finish());
  return next;
}

/// Merges parts of a tenant beside the published state, then publishes. Searches go on meanwhile,
/// and so do updates: the copying runs under no lock but the merges' own, which the caller holds.
/// returns  false: another model took over meanwhile, and nothing was published
[[nodiscard]] inline result<bool> merge_parts(retriever_core& core, std::string_view tenant,
                                              std::span<const segment> parts,
                                              std::size_t dimension) {
  const auto merged = merge_segments(core.options, parts, dimension);
  if (!merged) return merged.failure();
  const std::lock_guard lock(core.writer);
  const auto newest = core.current();
  const tenant_state* now = newest->tenants.find(tenant);
  if (now == nullptr) return true;  // all of it was erased
  if (!has_vectors_of(*now, parts)) return false;
  auto next = std::make_shared<index_state>(*newest);
  next->tenants.put(tenant, with_merged(*now, parts, *merged));
  ++next->number;
  core.publish(std::move(next));
  return true;
}

/// Whether a tenant has one segment, in which nothing is dead.
[[nodiscard]] inline bool is_merged(const tenant_state& tenant) {
  const segment& first = tenant.segments.front();
  return tenant.segments.size() == 1 &&
         first.live->document_count == first.records->documents.size();
}

/// Merges all of a tenant into one segment without what is dead. The caller holds the merges' lock.
inline void merge_all(retriever_core& core, std::string_view tenant) {
  for (;;) {  // once more only if another model takes over in the meantime
    const auto state = core.current();
    const tenant_state* own = state->tenants.find(tenant);
    if (own == nullptr) return;
    if (is_merged(*own)) return;
    const auto merged = merge_parts(core, tenant, own->segments, state->dimension);
    if (!merged || *merged) return;
  }
}

/// Merges what is due in a tenant, if no other thread is merging; then the next update looks again.
inline void merge_due(retriever_core& core, std::string_view tenant) {
  const std::unique_lock lock(core.merging, std::try_to_lock);
  while (lock.owns_lock()) {
    const auto state = core.current();
    const tenant_state* own = state->tenants.find(tenant);
    if (own == nullptr) return;
    const std::vector<segment> parts = due_for_merging(*own);
    if (parts.empty() || !merge_parts(core, tenant, parts, state->dimension)) return;
  }
}

// ---- updates: publish ---------------------------------------------------------------------------

/// Whether a stored document has the content of a new one, vectors apart.
[[nodiscard]] inline bool same_content(const stored_document& a, const stored_document& b) {
  if (a.source.title != b.source.title || a.source.text != b.source.text ||
      a.source.metadata != b.source.metadata || a.chunks.size() != b.chunks.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.chunks.size(); ++i) {
    const chunk& x = a.chunks[i].record;
    const chunk& y = b.chunks[i].record;
    if (x.id != y.id || x.parent_id != y.parent_id || x.range != y.range || x.body != y.body ||
        x.heading != y.heading || x.heading_path != y.heading_path || x.anchor != y.anchor ||
        x.identifiers != y.identifiers || x.allowed_groups != y.allowed_groups) {
      return false;
    }
  }
  return true;
}

/// Whether two documents of the same content have the same vectors. Those that the model makes
/// follow from the content; those that were supplied are compared.
[[nodiscard]] inline bool same_vectors(const segment& a, std::uint32_t place, const segment& b) {
  for (const std::uint32_t row : a.records->families.of_document(place)) {
    const auto other = b.records->find_chunk(a.records->at(row).record.id);
    if (!other) return false;
    const segment_vectors& x = *a.vectors;
    const segment_vectors& y = *b.vectors;
    if (!x.supplied.contains(row) && !y.supplied.contains(*other)) continue;
    if (x.rows.has_vector(row) != y.rows.has_vector(*other)) return false;
    if (!x.rows.has_vector(row)) continue;
    const std::span<const float> left = x.rows.row(row);
    const std::span<const float> right = y.rows.row(*other);
    if (!std::equal(left.begin(), left.end(), right.begin(), right.end())) return false;
  }
  return true;
}

enum class replacement { needed, unchanged };

/// Whether `next` may take the place of `stored`: revisions grow.
[[nodiscard]] inline result<replacement> check_revision(const stored_document& stored,
                                                        const stored_document& next, bool same) {
  const std::uint64_t was = stored.source.revision;
  const std::uint64_t is = next.source.revision;
  const std::string name = "upsert: document " + in_quotes(next.source.id);
  if (is < was) {
    return error(errc::stale_revision, name + " has revision " + std::to_string(is) +
                                           "; revision " + std::to_string(was) + " is stored");
  }
  if (is != was) return replacement::needed;
  if (same) {
    // Against the groups it came with: the same document again does not undo a set_access.
    return stored.source.allowed_groups == next.source.allowed_groups ? replacement::unchanged
                                                                      : replacement::needed;
  }
  if (is == 0) return replacement::needed;
  return error(errc::stale_revision, name +
                                         " differs from what is stored under the same revision " +
                                         std::to_string(is) + "; a change needs a higher one");
}

/// Documents as they are stored; another pointer is another revision of one, or the same anew.
using stored_documents = std::vector<std::shared_ptr<const stored_document>>;

/// Takes out what is stored already, and refuses what is older than what is stored, before anything
/// is embedded for it. publish_documents asks again, as others may publish in between.
/// returns  what is stored of the documents taken out
[[nodiscard]] inline result<stored_documents> drop_unchanged(const index_state& base,
                                                             std::vector<prepared_document>& news,
                                                             update_report& report) {
  stored_documents unchanged_ones;
  std::optional<error> failure;
  std::erase_if(news, [&](const prepared_document& next) {
    const document& source = next.stored.source;
    const auto old = base.tenants.find_document(source.tenant, source.id);
    if (!old || failure) return false;
    const segment& from = base.tenants.find(source.tenant)->segments[old->segment];
    bool supplied = std::any_of(next.chunks.begin(), next.chunks.end(),
                                [](const prepared_chunk& each) { return each.supplied; });
    for (const std::uint32_t row : from.records->families.of_document(old->number)) {
      supplied = supplied || from.vectors->supplied.contains(row);
    }
    const stored_document& stored = *from.records->documents[old->number];
    const auto verdict =  // supplied vectors are compared later; here only the revisions count
        check_revision(stored, next.stored, supplied || same_content(stored, next.stored));
    if (!verdict) failure = verdict.failure();
    const bool unchanged = verdict && !supplied && *verdict == replacement::unchanged;
    report.unchanged += unchanged ? 1U : 0U;
    if (unchanged) unchanged_ones.push_back(from.records->documents[old->number]);
    return unchanged;
  });
  if (failure) return *failure;
  return unchanged_ones;
}

/// Whether a state holds these very documents still.
[[nodiscard]] inline bool holds_all(const index_state& state, const stored_documents& documents) {
  return std::all_of(documents.begin(), documents.end(), [&state](const auto& each) {
    const document& source = each->source;
    const auto place = state.tenants.find_document(source.tenant, source.id);
    if (!place) return false;
    const segment& from = state.tenants.find(source.tenant)->segments[place->segment];
    return from.records->documents[place->number] == each;
  });
}

/// The dimension of the space: fixed by the options or by the first vector ever.
[[nodiscard]] inline std::size_t dimension_of(const index_state& base,
                                              std::span<const prepared_document> news) {
  if (base.model->dimension != 0) return base.model->dimension;
  if (base.dimension != 0) return base.dimension;
  for (const prepared_document& each : news) {
    for (const prepared_chunk& item : each.chunks) {
      if (!item.vector.empty()) return item.vector.size();
    }
  }
  return 0;
}

using segments_by_tenant = std::map<std::string, segment, std::less<>>;

/// A segment for each tenant of these documents.
[[nodiscard]] inline result<segments_by_tenant> build_segments(const retriever_options& options,
                                                               std::vector<prepared_document> news,
                                                               std::size_t dimension) {
  std::map<std::string, std::vector<prepared_document>> by_tenant;
  for (prepared_document& each : news) {
    std::string tenant = each.stored.source.tenant;
    by_tenant[std::move(tenant)].push_back(std::move(each));
  }
  segments_by_tenant segments;
  for (auto& [tenant, documents] : by_tenant) {
    std::vector<std::vector<std::string>> groups;
    for (const prepared_document& each : documents) {
      groups.push_back(each.stored.source.allowed_groups);
    }
    auto made = build_segment(options, std::move(documents), std::move(groups), dimension);
    if (!made) return made.failure();
    segments.emplace(tenant, std::move(*made));
  }
  return segments;
}

/// Refuses a chunk id that a document which stays uses already.
[[nodiscard]] inline result<void> check_chunk_ids(const tenant_state& tenant,
                                                  const segment& fresh) {
  for (std::uint32_t row = 0; row < fresh.records->rows.size(); ++row) {
    const std::string& id = fresh.records->at(row).record.id;
    const std::string& document_id = fresh.records->document_of(row).source.id;
    const auto used = tenant.find_chunk(id);
    if (!used) continue;
    const segment& from = tenant.segments[used->segment];
    const std::string& other = from.records->document_of(used->number).source.id;
    if (fresh.records->find_document(other)) continue;  // is replaced in this very step
    return error(errc::duplicate_id, "upsert: chunk id " + in_quotes(id) + " is used in document " +
                                         in_quotes(other) + " and again in document " +
                                         in_quotes(document_id));
  }
  return {};
}

/// The tenant with the documents of a new segment in the place of their older selves.
[[nodiscard]] inline result<tenant_state> with_segment(const tenant_state* base, segment fresh,
                                                       update_report& report) {
  if (base != nullptr) {
    if (const auto checked = check_chunk_ids(*base, fresh); !checked) return checked.failure();
  }
  tenant_edit edit(base);
  segment_edit born(fresh);
  for (std::uint32_t place = 0; place < fresh.records->documents.size(); ++place) {
    const stored_document& next = *fresh.records->documents[place];
    const auto old = base == nullptr ? std::nullopt : base->find_document(next.source.id);
    if (old) {
      const segment& from = base->segments[old->segment];
      const stored_document& stored = *from.records->documents[old->number];
      const bool same = same_content(stored, next) && same_vectors(from, old->number, fresh);
      const auto verdict = check_revision(stored, next, same);
      if (!verdict) return verdict.failure();
      if (*verdict == replacement::unchanged) {
        ++report.unchanged;
        born.kill(place);
        continue;
      }
      edit.edit(old->segment).kill(old->number);
    }
    ++report.documents;
    report.chunks += next.chunks.size();
  }
  edit.add(born.finish());
  return edit.finish();
}

enum class publication { done, start_again };

/// Publishes prepared documents in one step, or nothing of them. To be started again if the index
/// has changed to another model or got its dimension since they were prepared, or if one of the
/// `unchanged` documents of the same update has changed since.
[[nodiscard]] inline result<publication> publish_documents(retriever_core& core,
                                                           const index_state& prepared_for,
                                                           std::vector<prepared_document> news,
                                                           const stored_documents& unchanged,
                                                           update_report& report) {
  if (news.empty()) return publication::done;
  const std::size_t dimension = dimension_of(prepared_for, news);
  const auto fresh = build_segments(core.options, std::move(news), dimension);
  if (!fresh) return fresh.failure();
  {
    const std::lock_guard lock(core.writer);
    const std::shared_ptr<const index_state> base = core.current();
    if (base->model != prepared_for.model) return publication::start_again;
    if (base->dimension != prepared_for.dimension && base->dimension != dimension) {
      return publication::start_again;
    }
    if (!holds_all(*base, unchanged)) return publication::start_again;
    auto next = std::make_shared<index_state>(*base);
    next->dimension = dimension;
    const std::size_t changed_before = report.documents;
    for (const auto& [tenant, each] : *fresh) {
      auto state = with_segment(base->tenants.find(tenant), each, report);
      if (!state) return state.failure();
      next->tenants.put(tenant, std::move(*state));
    }
    if (report.documents == changed_before) return publication::done;
    ++next->number;
    core.publish(std::move(next));
  }
  for (const auto& [tenant, each] : *fresh) merge_due(core, tenant);
  return publication::done;
}

// ---- updates: another model ---------------------------------------------------------------------

/// Calls f(row, input) for each searched chunk that lives with what an embedder is given of it.
template <class Function>
void for_each_input(const retriever_core& core, const segment& each, const Function& f) {
  const segment_records& records = *each.records;
  for (std::uint32_t row = 0; row < records.rows.size(); ++row) {
    if (!each.live->rows.contains(row) || records.families.is_parent(row)) continue;
    f(row, search_text(records.document_of(row).source, records.at(row).record,
                       core.options.search_text));
  }
}

/// The distinct inputs of a state, and the first chunk of each, as an error would call it.
[[nodiscard]] inline std::map<std::string, std::string> inputs_of(const retriever_core& core,
                                                                  const index_state& state) {
  std::map<std::string, std::string> name_of_input;
  for (const auto& [tenant, own] : state.tenants.all()) {
    for (const segment& each : own->segments) {
      for_each_input(core, each, [&](std::uint32_t row, std::string input) {
        name_of_input.try_emplace(std::move(input),
                                  "chunk " + in_quotes(each.records->at(row).record.id));
      });
    }
  }
  return name_of_input;
}

/// Has the next model embed all inputs of a state that it has not embedded yet. What is finished
/// is kept batch by batch, also when a later batch fails.
[[nodiscard]] inline result<void> embed_missing(retriever_core& core, const embedder& next,
                                                const index_state& state,
                                                migration_report& report) {
  std::vector<std::string> inputs;
  std::vector<std::string> names;
  for (auto& [input, name] : inputs_of(core, state)) {
    if (core.migration.contains(input)) continue;
    inputs.push_back(input);
    names.push_back(name);
  }
  embedder model = next;
  for (std::size_t at = 0; at < inputs.size(); at += model.batch_size) {
    const std::size_t count = (std::min)(model.batch_size, inputs.size() - at);
    const std::vector<std::string_view> views(
        inputs.begin() + static_cast<std::ptrdiff_t>(at),
        inputs.begin() + static_cast<std::ptrdiff_t>(at + count));
    model.dimension = core.migration.dimension();
    auto vectors = embed_checked(model, views, text_role::document,
                                 std::span<const std::string>(names).subspan(at, count));
    if (!vectors) {
      // Which of the two lengths is wrong nobody knows, so none of them is kept.
      if (vectors.failure().code() == errc::dimension_mismatch) core.migration.clear();
      return vectors.failure();
    }
    for (std::size_t i = 0; i < count; ++i) {
      core.migration.add(views[i], std::move((*vectors)[i]));
    }
    report.embedded += count;
  }
  return {};
}

/// Vectors of the next model for segments, by their records, which they keep alive.
using migrated_segments =
    std::map<std::shared_ptr<const segment_records>, std::shared_ptr<const segment_vectors>>;

/// The vectors of the next model for a segment; null if one is not there yet.
[[nodiscard]] inline result<std::shared_ptr<const segment_vectors>> next_vectors(
    const retriever_core& core, const segment& each) {
  auto vectors = std::make_shared<segment_vectors>(
      segment_vectors{flat_index(core.migration.dimension(), core.options.similarity),
                      {},
                      row_set(each.records->rows.size())});
  std::optional<error> failure;
  bool complete = true;
  for_each_input(core, each, [&](std::uint32_t row, const std::string& input) {
    while (vectors->rows.size() < row) vectors->rows.add_missing();  // parents, and what died
    const auto vector = core.migration.find(input);
    complete = complete && vector.has_value();
    if (!complete || failure) return;
    const auto added =
        vectors->rows.try_add(*vector, "chunk " + in_quotes(each.records->at(row).record.id));
    if (!added) failure = added.failure();
  });
  if (failure) return *failure;
  if (!complete) return std::shared_ptr<const segment_vectors>();
  while (vectors->rows.size() < each.records->rows.size()) vectors->rows.add_missing();
  if (const auto trained = make_lists(core.options, *vectors); !trained) return trained.failure();
  return std::shared_ptr<const segment_vectors>(std::move(vectors));
}

/// Brings `built` up to a state; segments that are there already are not built again. No user code
/// runs here.
/// returns  whether all vectors were there
[[nodiscard]] inline result<bool> build_migrated(const retriever_core& core,
                                                 const index_state& state,
                                                 migrated_segments& built) {
  for (const auto& [tenant, own] : state.tenants.all()) {
    for (const segment& each : own->segments) {
      if (built.contains(each.records)) continue;
      auto vectors = next_vectors(core, each);
      if (!vectors) return vectors.failure();
      if (!*vectors) return false;
      built.emplace(each.records, std::move(*vectors));
    }
  }
  return true;
}

/// The state with the next model's vectors in the place of the present ones.
[[nodiscard]] inline index_state with_vectors(const index_state& from,
                                              const migrated_segments& built,
                                              migration_report& report) {
  index_state next = from;
  for (const auto& [tenant, own] : from.tenants.all()) {
    tenant_state state = *own;
    for (segment& each : state.segments) {
      each.vectors = built.find(each.records)->second;
      for (const length_statistics& of_class : each.live->of_class) {
        report.chunks += of_class.chunk_count;
      }
    }
    next.tenants.put(tenant, std::move(state));
  }
  return next;
}

/// Embeds, builds, and switches once nothing is missing: what others publish in the meantime is
/// followed until a look under the writer's lock finds every vector there.
[[nodiscard]] inline result<migration_report> migrate_to(retriever_core& core,
                                                         const embedder& next) {
  migration_report report;
  for (const auto& [input, name] : inputs_of(core, *core.current())) {
    if (core.migration.contains(input)) ++report.reused;
  }
  const auto model = std::make_shared<const embedder>(next);
  migrated_segments built;
  for (;;) {
    const auto base = core.current();
    if (const auto done = embed_missing(core, next, *base, report); !done) return done.failure();
    if (const auto done = build_migrated(core, *base, built); !done) return done.failure();

    const std::lock_guard lock(core.writer);
    const auto newest = core.current();
    const auto complete = build_migrated(core, *newest, built);
    if (!complete) return complete.failure();
    if (!*complete) continue;
    auto state = std::make_shared<index_state>(with_vectors(*newest, built, report));
    state->model = model;
    state->dimension = core.migration.dimension();
    ++state->number;
    core.publish(std::move(state));
    return report;
  }
}

/// Another model needs another tag.
[[nodiscard]] inline result<void> check_next_model(const index_state& state, const embedder& next) {
  const bool in_use = state.model->embed || state.dimension != 0;
  if (!in_use || state.model->model != next.model) return {};
  return error(errc::invalid_argument, "migrate: this index holds model " + in_quotes(next.model) +
                                           " already; another model needs another tag");
}

/// Marks a migration as running as long as it lives. What nobody can use any more is freed at its
/// end: after success all, after a failure the inputs that are no longer stored.
class migration_attempt {
 public:
  explicit migration_attempt(retriever_core& core) : core_(core) {}
  migration_attempt(const migration_attempt&) = delete;
  migration_attempt& operator=(const migration_attempt&) = delete;
  ~migration_attempt() { core_.migration.end(); }

  [[nodiscard]] result<migration_report> run(const embedder& next) {
    // Once more: a migration to this very model may have ended just before this one began.
    const auto checked = check_next_model(*core_.current(), next);
    if (!checked) return checked.failure();
    auto report = migrate_to(core_, next);
    if (report) {
      core_.migration.clear();
      return report;
    }
    detail::key_set<std::string> stored;
    for (const auto& [input, name] : inputs_of(core_, *core_.current())) stored.insert(input);
    core_.migration.keep(stored);
    return report;
  }

 private:
  retriever_core& core_;
};

}  // namespace detail

// ---- searching ----------------------------------------------------------------------------------

namespace detail {

[[nodiscard]] inline double milliseconds_since(clock::time_point start) {
  return std::chrono::duration<double, std::milli>(clock::now() - start).count();
}

/// Adds the milliseconds until its end to a stage's time.
class stopwatch {
 public:
  explicit stopwatch(double& stage) : stage_(&stage) {}
  stopwatch(const stopwatch&) = delete;
  stopwatch& operator=(const stopwatch&) = delete;
  ~stopwatch() { *stage_ += milliseconds_since(start_); }

 private:
  double* stage_;
  clock::time_point start_ = clock::now();
};

/// A chunk on its way through the stages.
struct candidate {
  std::uint32_t row = 0;
  std::size_t place = 0;  // in fused order
  double fused = 0;
  std::size_t lexical_rank = 0;  // from 1; 0: not in that list
  std::size_t dense_rank = 0;
  std::size_t exact = 0;  // codes of the question that it holds
  std::size_t lists = 0;  // that it stands in
  std::optional<double> lexical_score = {}, similarity = {}, rerank_score = {};
  std::vector<std::uint32_t> children = {};  // rows that it stands for, best first
};

/// What became of a fused candidate's parent.
enum class parent_fate { none, stands, closed, too_large };

/// The values of one condition are of one kind: no stored value could be compared with both.
[[nodiscard]] inline result<void> check_condition(const condition& wanted) {
  std::vector<metadata_value::kind> kinds;
  for (const metadata_value& each : wanted.any_of) kinds.push_back(each.type());
  if (wanted.from) kinds.push_back(wanted.from->type());
  if (wanted.to) kinds.push_back(wanted.to->type());
  if (std::all_of(kinds.begin(), kinds.end(), [&kinds](auto each) { return each == kinds[0]; })) {
    return {};
  }
  return error(errc::wrong_type, "search: where: the values of the condition on " +
                                     in_quotes(wanted.key) + " are of different kinds");
}

[[nodiscard]] inline result<void> check_query(const query& asked) {
  const selection_options selection{.overlap_threshold = asked.overlap_threshold,
                                    .per_document = asked.per_document,
                                    .offset = asked.offset,
                                    .limit = asked.limit,
                                    .token_budget = asked.token_budget,
                                    .fill_budget = asked.fill_budget};
  if (const auto checked = check_selection(selection); !checked) {
    return error(checked.failure().code(), "search: " + checked.failure().message());
  }
  if (asked.depth == 0) return error(errc::invalid_argument, "search: depth 0 must be at least 1");
  if (asked.max_parent_tokens == std::size_t{0}) {
    return error(errc::invalid_argument, "search: max_parent_tokens 0 must be at least 1");
  }
  if (asked.rerank.score && (asked.rerank.batch_size == 0 || asked.rerank.window == 0)) {
    return error(errc::invalid_argument,
                 "search: the reranker's batch_size and window must be at least 1");
  }
  for (const condition& each : asked.where) {
    if (const auto checked = check_condition(each); !checked) return checked.failure();
  }
  for (const further_question& each : asked.further) {
    if (is_finite(each.weight) && each.weight >= 0) continue;
    return error(errc::invalid_argument, "search: the weight " + decimal_text(each.weight) +
                                             " of a further question must be at least 0");
  }
  return check_fusion(asked.fusion, 2);  // whichever legs will run
}

/// A chunk in the list of a leg.
struct leg_hit {
  std::uint32_t row = 0;
  double score = 0;
  std::size_t exact = 0;  // codes of the question that stand in the chunk
};

/// A question on its way through the legs: the main one, or a further one.
struct leg_question {
  std::string_view text;
  const std::optional<embedding>* supplied = nullptr;
  double weight = 1;
  std::vector<std::string> terms = {}, codes = {};
  std::vector<float> vector = {};  // empty: its dense leg does not run
  term_statistics counted = {};    // over what this reader may read
  std::vector<leg_hit> lexical = {}, dense = {};

  [[nodiscard]] bool has_words() const { return !terms.empty() || !codes.empty(); }
};

/// A segment as one search sees it.
struct search_part {
  const segment* from = nullptr;
  std::uint32_t first = 0;                     // number of its first row
  std::shared_ptr<const open_rows> open = {};  // to this reader, dead rows included
  row_set readable = {};                       // what lives of them
  row_set among = {};                          // what a leg may still find of them
};

/// The rows of a pinned tenant under one numbering: the first segment's, then the second's ...
class search_rows {
 public:
  explicit search_rows(const tenant_state* tenant) {
    if (tenant == nullptr) return;
    std::uint32_t first = 0;
    for (const segment& each : tenant->segments) {
      parts_.push_back({.from = &each, .first = first});
      first += static_cast<std::uint32_t>(each.records->rows.size());
      live_ += each.live->row_count;
    }
  }

  [[nodiscard]] std::span<search_part> parts() { return parts_; }
  [[nodiscard]] std::size_t live() const { return live_; }
  [[nodiscard]] search_part& part_of(std::uint32_t row) { return parts_[number_of_part(row)]; }
  [[nodiscard]] const search_part& part_of(std::uint32_t row) const {
    return parts_[number_of_part(row)];
  }

  [[nodiscard]] const stored_chunk& at(std::uint32_t row) const {
    const search_part& part = part_of(row);
    return part.from->records->at(row - part.first);
  }
  [[nodiscard]] const document& document_of(std::uint32_t row) const {
    const search_part& part = part_of(row);
    return part.from->records->document_of(row - part.first).source;
  }
  [[nodiscard]] const std::string& id_of(std::uint32_t row) const { return at(row).record.id; }
  /// The order of the ids' bytes; in a segment rows stand in it.
  [[nodiscard]] bool id_before(std::uint32_t a, std::uint32_t b) const {
    return number_of_part(a) == number_of_part(b) ? a < b : id_of(a) < id_of(b);
  }
  [[nodiscard]] std::optional<std::uint32_t> find_chunk(std::string_view id) const {
    for (const search_part& part : parts_) {
      if (const auto row = part.from->find_chunk(id)) return part.first + *row;
    }
    return std::nullopt;
  }

  /// rows  rising
  [[nodiscard]] std::vector<std::uint32_t> in_order_of_ids(std::vector<std::uint32_t> rows) const {
    std::vector<std::size_t> begins;
    std::vector<std::uint32_t> spare;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (i == 0 || number_of_part(rows[i]) != number_of_part(rows[i - 1])) begins.push_back(i);
    }
    merge_runs(std::span(rows), begins, spare,
               [this](std::uint32_t a, std::uint32_t b) { return id_of(a) < id_of(b); });
    return rows;
  }

  [[nodiscard]] bool readable(std::uint32_t row) const {
    const search_part& part = part_of(row);
    return part.readable.contains(row - part.first);
  }
  [[nodiscard]] bool still_among(std::uint32_t row) const {
    const search_part& part = part_of(row);
    return part.among.contains(row - part.first);
  }
  void remove(std::uint32_t row) {
    search_part& part = part_of(row);
    part.among.remove(row - part.first);
  }

  /// The row in which a row lies; no_row: none.
  [[nodiscard]] std::uint32_t parent_of(std::uint32_t row) const {
    const search_part& part = part_of(row);
    const std::uint32_t parent = part.from->records->families.parent_of[row - part.first];
    return parent == no_row ? no_row : part.first + parent;
  }
  /// The rows that lie in a row; none unless it is a parent.
  [[nodiscard]] std::vector<std::uint32_t> children_of(std::uint32_t row) const {
    const search_part& part = part_of(row);
    const auto& all = part.from->records->families.children_of;
    const auto found = all.find(row - part.first);
    std::vector<std::uint32_t> children;
    if (found == all.end()) return children;
    for (const std::uint32_t child : found->second) children.push_back(part.first + child);
    return children;
  }
  /// The rows of a row's document, by first byte.
  [[nodiscard]] std::vector<std::uint32_t> beside(std::uint32_t row) const {
    const search_part& part = part_of(row);
    const segment_records& records = *part.from->records;
    std::vector<std::uint32_t> rows;
    for (const std::uint32_t each :
         records.families.of_document(records.rows[row - part.first].document)) {
      rows.push_back(part.first + each);
    }
    return rows;
  }

 private:
  [[nodiscard]] std::size_t number_of_part(std::uint32_t row) const {
    const auto after = std::upper_bound(
        parts_.begin(), parts_.end(), row,
        [](std::uint32_t wanted, const search_part& each) { return wanted < each.first; });
    return static_cast<std::size_t>(after - parts_.begin()) - 1;
  }

  std::vector<search_part> parts_;
  std::size_t live_ = 0;
};

/// One search, or one fetch, over one pinned state: the stages in the order in which they run.
class search_run {
 public:
  search_run(const retriever_core& core, const index_state& state, const scope& reader)
      : core_(core),
        reader_(reader),
        model_(*state.model),
        rows_(state.tenants.find(reader.who_.tenant)),
        gate_(reader, core.options.permission_time_limit) {
    dimension_ = model_.dimension != 0 ? model_.dimension : state.dimension;
    operator_.who = reader.who_;
    operator_.state = state.number;
  }

  /// The whole way from a question to an answer.
  result<answer> search(const query& asked) {
    asked_ = &asked;
    if (const auto checked = check_scope(); !checked) return checked.failure();
    if (const auto checked = check_query(asked); !checked) return checked.failure();
    auto outcome = run_stages();
    answer_.timings.total = milliseconds_since(begin_);
    operator_.timings = answer_.timings;
    operator_.failures.insert(operator_.failures.end(), gate_.failures().begin(),
                              gate_.failures().end());
    tell_operator();
    if (!outcome) return outcome.failure();
    return std::move(answer_);
  }

  /// The passages with these ids that the reader may read now, in the order asked for.
  result<std::vector<permitted_passage>> fetch(std::span<const std::string> ids) {
    if (const auto checked = check_scope(); !checked) return checked.failure();
    find_readable();
    std::vector<candidate> wanted;
    for (const std::string& id : ids) {
      const auto row = rows_.find_chunk(id);
      if (row && rows_.readable(*row)) wanted.push_back({.row = *row});
    }
    std::vector<permitted_passage> passages;
    std::vector<std::uint32_t> rows;
    for (const candidate& each : wanted) rows.push_back(each.row);
    static_cast<void>(ask(with_families(std::move(rows))));
    for (const candidate& each : wanted) {
      if (auto passage = open(each)) passages.push_back(std::move(*passage));
    }
    return passages;
  }

  /// How many chunks the reader may read now.
  result<std::size_t> count() {
    if (const auto checked = check_scope(); !checked) return checked.failure();
    find_readable();
    std::vector<candidate> all;
    for (const search_part& part : rows_.parts()) {
      part.readable.for_each([&](std::uint32_t row) { all.push_back({.row = part.first + row}); });
    }
    static_cast<void>(ask(all));
    return static_cast<std::size_t>(std::count_if(
        all.begin(), all.end(), [this](const candidate& each) { return is_permitted(each.row); }));
  }

 private:
  result<void> run_stages() {
    find_readable();
    if (const auto filtered = apply_where(); !filtered) return filtered.failure();
    if (const auto read = read_question(); !read) return read.failure();
    if (const auto found = search_legs(); !found) return found.failure();
    if (const auto arranged = arrange(); !arranged) return arranged.failure();
    if (rerank()) {
      if (const auto checked = recheck(); !checked) return checked.failure();
      if (const auto told = tell_of_rerank(); !told) return told.failure();
    }
    hand_out();
    hand_out_neighbours();
    return weigh_evidence();
  }

  /// A scope holds for the permission source that made it, and for no other.
  [[nodiscard]] result<void> check_scope() const {
    if (reader_.source_ == core_.options.permissions) return {};
    return error(errc::invalid_argument,
                 "search: the scope was made by another permission source than this retriever's");
  }

  void tell_operator() const {
    if (!core_.options.on_search) return;
    static_cast<void>(guarded(errc::callback_failed, "on_search", [this] {
      core_.options.on_search(operator_);
      return true;
    }));
  }

  /// The rows whose recorded groups meet the reader's: what every leg looks at.
  void find_readable() {
    operator_.chunk_count = rows_.live();
    for (search_part& part : rows_.parts()) {
      part.open = part.from->access->open_to(reader_);
      part.readable = part.open->rows;
      part.readable.keep_common(part.from->live->rows);
      part.among = part.readable;
      operator_.readable += part.readable.count();
    }
  }

  /// Leaves the legs only the documents that meet every condition. Statistics stay the scope's.
  /// Only readable documents are looked at, and a wrong type is an error only where the permission
  /// source allows a chunk of the document, so that no error tells of another one.
  result<void> apply_where() {
    for (const condition& wanted : asked_->where) {
      std::vector<std::pair<std::uint32_t, error>> wrong;  // by a readable row
      for (search_part& part : rows_.parts()) {
        const segment_records& records = *part.from->records;
        row_set met(records.documents.size());
        const auto column = records.metadata.find(wanted.key);
        if (column != records.metadata.end()) {
          for (const auto& [place, value] : column->second) {
            if (!is_readable_document(part, place)) continue;
            const result<bool> met_here = meets(*value, wanted);
            if (met_here && *met_here) met.insert(place);
            if (met_here) continue;
            for (const std::uint32_t row : records.families.of_document(place)) {
              if (!part.readable.contains(row)) continue;
              wrong.push_back({part.first + row, met_here.failure()});
            }
          }
        }
        part.among.for_each([&](std::uint32_t row) {
          if (!met.contains(records.rows[row].document)) part.among.remove(row);
        });
      }
      if (const auto checked = fail_if_permitted(wrong); !checked) return checked;
    }
    return {};
  }

  result<void> fail_if_permitted(std::span<const std::pair<std::uint32_t, error>> wrong) {
    if (wrong.empty()) return {};
    std::vector<std::uint32_t> rows;
    for (const auto& [row, failure] : wrong) rows.push_back(row);
    static_cast<void>(ask(with_families(std::move(rows))));
    for (const auto& [row, failure] : wrong) {
      if (is_permitted(row)) return failure;
    }
    return {};
  }

  [[nodiscard]] static bool is_readable_document(const search_part& part, std::uint32_t place) {
    const auto rows = part.from->records->families.of_document(place);
    return std::any_of(rows.begin(), rows.end(),
                       [&part](std::uint32_t row) { return part.readable.contains(row); });
  }

  /// What BM25 counts for a question's terms: sums over the classes that this reader may read.
  void count_terms(leg_question& question) {
    const std::vector<std::string_view> terms = distinct(question.terms);
    term_statistics& sum = question.counted;
    sum.chunks_with.assign(terms.size(), 0);
    for (const search_part& part : rows_.parts()) {
      const length_statistics corpus = count_corpus(part);
      sum.corpus.chunk_count += corpus.chunk_count;
      sum.corpus.total_length += corpus.total_length;
      for (std::size_t i = 0; i < terms.size(); ++i) {
        sum.chunks_with[i] += count_term(part, terms[i]);
      }
    }
  }

  [[nodiscard]] bool counts(const search_part& part, std::size_t of_class) const {
    return core_.options.statistics == statistics_of::tenant || part.open->classes[of_class];
  }
  [[nodiscard]] class_sums& sums_of(const search_part& part) const {
    return core_.options.statistics == statistics_of::tenant ? part.from->counts->of_all
                                                             : part.open->sums;
  }

  [[nodiscard]] length_statistics count_corpus(const search_part& part) const {
    const segment_live& live = *part.from->live;
    if (const auto known = sums_of(part).corpus(live.changes)) return *known;
    length_statistics sum;
    for (std::size_t i = 0; i < live.of_class.size(); ++i) {
      if (!counts(part, i)) continue;
      sum.chunk_count += live.of_class[i].chunk_count;
      sum.total_length += live.of_class[i].total_length;
    }
    sums_of(part).set_corpus(sum, live.changes);
    return sum;
  }

  [[nodiscard]] std::size_t count_term(const search_part& part, std::string_view text) const {
    const segment& from = *part.from;
    const auto term = from.records->terms.number_of(text);
    if (!term) return 0;
    std::size_t sum = 0;
    if (from.records->terms.row_count(*term) <= 64) {  // as soon read as remembered
      from.records->terms.for_each_posting(*term, [&](const term_index::posting& p) {
        const bool counted = from.live->rows.contains(p.row);
        sum += counted && counts(part, from.access->class_of_row[p.row]) ? 1U : 0U;
      });
      return sum;
    }
    if (const auto known = sums_of(part).n(*term, from.live->changes)) return *known;
    const auto numbers = from.counts->of(*term, *from.records, *from.access, *from.live);
    for (const auto& [of_class, n] : *numbers) {
      if (counts(part, of_class)) sum += n;
    }
    sums_of(part).set_n(*term, sum, from.live->changes);
    return sum;
  }

  // ---- the question -----------------------------------------------------------------------------

  /// Terms, codes and vectors of the questions, and which legs will run.
  result<void> read_question() {
    questions_.push_back({.text = asked_->text, .supplied = &asked_->vector});
    for (const further_question& each : asked_->further) {
      questions_.push_back({.text = each.text, .supplied = &each.vector, .weight = each.weight});
    }
    for (leg_question& each : questions_) {
      auto terms = guarded(errc::callback_failed, "search: analysis", [&] {
        for (identifier_match& code : core_.finder.find(each.text)) {
          each.codes.push_back(std::move(code.value));
        }
        return question_terms(each.text, core_.options.analysis, core_.options.bm25.count_repeats);
      });
      if (!terms) return terms.failure();
      each.terms = std::move(*terms);
      count_terms(each);
    }
    lexical_on_ = asked_->mode != search_mode::dense;
    if (asked_->mode == search_mode::lexical) return {};
    if (const auto read = read_vectors(); !read) return read.failure();
    dense_on_ = std::any_of(questions_.begin(), questions_.end(),
                            [this](const leg_question& each) { return has_dense_leg(each); });
    answer_.mode =
        dense_on_ ? (lexical_on_ ? search_mode::hybrid : search_mode::dense) : search_mode::lexical;
    if (!dense_on_ && asked_->mode == search_mode::dense) answer_.mode = search_mode::dense;
    return {};
  }

  [[nodiscard]] bool has_dense_leg(const leg_question& question) const {
    return !question.vector.empty() || (core_.options.dense && question.has_words());
  }

  /// The questions' vectors: the caller's, or the embedder's; none where there is no question.
  result<void> read_vectors() {
    std::vector<leg_question*> waiting;
    for (leg_question& each : questions_) {
      if (*each.supplied) {
        if (const auto taken = take_vector(each, **each.supplied); !taken) return taken.failure();
      } else if (model_.embed && each.has_words()) {
        waiting.push_back(&each);
      } else if (asked_->mode != search_mode::automatic && !has_dense_leg(each)) {
        note(model_.embed
                 ? "dense leg left out: the question holds no word"
                 : "dense leg left out: the question has no vector and there is no embedder");
      }
    }
    return waiting.empty() ? result<void>() : embed_questions(waiting);
  }

  result<void> take_vector(leg_question& question, const embedding& supplied) {
    if (supplied.model != model_.model) {
      return error(errc::model_mismatch, "search: the question's vector is of model " +
                                             in_quotes(supplied.model) + "; this index holds " +
                                             in_quotes(model_.model));
    }
    question.vector = supplied.values;
    return check_vector(question);
  }

  /// All questions in one batch. A failure leaves out the dense leg of all of them.
  result<void> embed_questions(std::span<leg_question* const> waiting) {
    const stopwatch watch(answer_.timings.embedding);
    std::vector<std::string_view> texts;
    for (const leg_question* each : waiting) texts.push_back(each->text);
    auto made = embed_checked(model_, texts, text_role::question);
    result<void> checked = made ? result<void>() : result<void>(made.failure());
    for (std::size_t i = 0; checked && i < waiting.size(); ++i) {
      waiting[i]->vector = std::move((*made)[i]);
      checked = check_vector(*waiting[i]);
    }
    if (checked) return {};
    for (leg_question* each : waiting) each->vector.clear();
    if (asked_->mode == search_mode::dense) return checked.failure();
    note("dense leg left out: " + checked.failure().message());
    return {};
  }

  result<void> check_vector(leg_question& question) {
    std::vector<float>& vector = question.vector;
    if (vector.empty() || (dimension_ != 0 && vector.size() != dimension_)) {
      return error(errc::dimension_mismatch,
                   "search: the question's vector has " + text_of(vector.size()) +
                       " numbers; this index holds " + text_of(dimension_));
    }
    if (first_not_finite(vector) != vector.size()) {
      return error(errc::not_finite, "search: the question's vector holds NaN or infinity");
    }
    if (std::all_of(vector.begin(), vector.end(), [](float value) { return value == 0.0F; })) {
      note("dense leg left out: the question's vector is zero");
      vector.clear();
    }
    return {};
  }

  void note(std::string reason) {
    answer_.status = search_status::degraded;
    answer_.notes.push_back(std::move(reason));
  }

  // ---- the legs, and the first recheck ----------------------------------------------------------

  /// Searches both legs and asks about the union of what they found, in one batch. A leg that lost
  /// candidates is filled up from behind, until nothing new is denied.
  result<void> search_legs() {
    if (const auto found = search_once(); !found) return found.failure();
    return ask_and_refill();
  }

  /// The second check, after a slow stage: asks once more about all that the legs found, also what
  /// only the trace would name. If something is denied now, the legs are filled up and everything
  /// from the fusion on is done again, so that nothing tells of it: no rank, no drop.
  result<void> recheck() {
    const std::size_t lost_before = lost_;
    asked_rows_ = {};  // no word from before the slow stage counts any more, of whatever row
    if (const auto asked = ask_and_refill(); !asked) return asked;
    return lost_ == lost_before ? result<void>() : arrange();
  }

  /// Asks about what the legs found and nobody was asked about yet; what is denied leaves the legs,
  /// they are filled up, and the new ones are asked about in turn.
  result<void> ask_and_refill() {
    for (std::size_t round = 1; remove_denied(not_yet_asked()); ++round) {
      remove_from_legs();
      if (gate_.failed() || round == asked_->recheck_rounds) return {};
      if (const auto found = search_once(); !found) return found.failure();
    }
    return {};
  }

  /// Asks about candidates; what is denied no leg may find any more. Returns whether any was.
  bool remove_denied(std::span<const candidate> candidates) {
    const std::vector<bool> allowed = ask(candidates);
    const std::size_t lost_before = lost_;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (allowed[i]) continue;
      rows_.remove(candidates[i].row);
      ++lost_;
    }
    if (gate_.failed()) note("passages left out: the permission source did not answer");
    return lost_ != lost_before;
  }

  void remove_from_legs() {
    const auto lost = [this](const leg_hit& hit) { return !rows_.still_among(hit.row); };
    for (leg_question& each : questions_) {
      std::erase_if(each.lexical, lost);
      std::erase_if(each.dense, lost);
    }
  }

  /// From the legs to the candidates, in order: fused, chosen, and by the reranker's scores.
  result<void> arrange() {
    candidates_.clear();
    answer_.trace = {};
    if (const auto fused = fuse(); !fused) return fused.failure();
    choose_candidates();
    order_by_rerank_scores();
    return {};
  }

  /// Each leg over all segments, as if they were one: equal scores in order of the chunk ids.
  result<void> search_once() {
    for (leg_question& each : questions_) {
      if (lexical_on_) {
        const result<void> found = core_.options.lexical
                                       ? ask_searcher(core_.options.lexical, each, each.lexical)
                                       : search_lexical_leg(each);
        if (!found && !leave_out(lexical_on_, found.failure())) return found.failure();
      }
      if (dense_on_ && has_dense_leg(each)) {
        const result<void> found = core_.options.dense
                                       ? ask_searcher(core_.options.dense, each, each.dense)
                                       : search_dense_leg(each);
        if (!found && !leave_out(dense_on_, found.failure())) return found.failure();
      }
    }
    return {};
  }

  /// Goes on without a leg whose searcher failed, if there is another leg.
  bool leave_out(bool& leg, const error& failure) {
    if (failure.code() != errc::callback_failed || !lexical_on_ || !dense_on_) return false;
    leg = false;
    for (leg_question& each : questions_) {
      (lexical_on_ ? each.dense : each.lexical).clear();
    }
    answer_.mode = lexical_on_ ? search_mode::lexical : search_mode::dense;
    note((lexical_on_ ? "dense leg left out: " : "lexical leg left out: ") + failure.message());
    return true;
  }

  /// One leg by another engine: of what it finds, what this reader may find here, in its order. It
  /// is asked for more while that is too little and it has more.
  result<void> ask_searcher(const searcher& find, leg_question& question,
                            std::vector<leg_hit>& list) {
    const bool lexical = &list == &question.lexical;
    const stopwatch watch(lexical ? answer_.timings.lexical : answer_.timings.dense);
    for (std::size_t depth = asked_->depth;; depth *= 2) {
      const auto found = guarded(errc::callback_failed, "searcher", [&] {
        return find({question.text, question.vector, reader_, asked_->where, depth});
      });
      if (!found) return searcher_failed(lexical, found.failure().message());
      for (const searcher_hit& each : *found) {
        if (!is_finite(each.score)) return searcher_failed(lexical, "a score is not finite");
      }
      const std::size_t rejected = take_found(*found, list);
      const bool more = found->size() >= depth && depth < rows_.live();
      if (more && list.size() < asked_->depth) continue;
      operator_.rejected += rejected;
      if (lexical) count_codes(question);
      if (list.size() > asked_->depth) list.resize(asked_->depth);
      return {};
    }
  }

  /// The engine's own words, which may name what this reader must not know of, are the operator's.
  error searcher_failed(bool lexical, const std::string& reason) {
    const std::string which = lexical ? "the lexical searcher" : "the dense searcher";
    operator_.failures.push_back(which + ": " + reason);
    return error(errc::callback_failed, "search: " + which + " failed");
  }

  /// Returns how many hits name nothing that may be found. Parents are not searched.
  std::size_t take_found(std::span<const searcher_hit> found, std::vector<leg_hit>& list) const {
    list.clear();
    key_set<std::uint32_t> taken;
    for (const searcher_hit& each : found) {
      const auto row = rows_.find_chunk(each.id);
      if (!row || !rows_.still_among(*row) || !rows_.children_of(*row).empty()) continue;
      if (taken.contains(*row)) continue;
      taken.insert(*row);
      list.push_back({*row, each.score, 0});
    }
    return found.size() - list.size();
  }

  /// Notes the question's codes in what another engine found; with exact_first, chunks that hold
  /// more of them lead, and the engine's order stands among equals.
  void count_codes(leg_question& question) const {
    std::size_t most = 0;
    for (leg_hit& hit : question.lexical) {
      const std::vector<stored_code>& held = rows_.at(hit.row).codes;
      hit.exact = static_cast<std::size_t>(
          std::count_if(question.codes.begin(), question.codes.end(), [&held](const auto& code) {
            return std::any_of(held.begin(), held.end(),
                               [&code](const stored_code& each) { return each.value == code; });
          }));
      most = (std::max)(most, hit.exact);
    }
    if (!asked_->exact_first) return;
    std::vector<leg_hit> ordered;
    for (std::size_t codes = most + 1; codes-- > 0;) {
      std::copy_if(question.lexical.begin(), question.lexical.end(), std::back_inserter(ordered),
                   [codes](const leg_hit& each) { return each.exact == codes; });
    }
    question.lexical = std::move(ordered);
  }

  result<void> search_lexical_leg(leg_question& question) {
    const stopwatch watch(answer_.timings.lexical);
    std::vector<lexical_part> parts;
    for (const search_part& part : rows_.parts()) {
      const segment_records& records = *part.from->records;
      parts.push_back({{&records.terms, &part.among, part.first}, &records.codes});
    }
    question.lexical.clear();
    for (const lexical_hit& hit : search_lexical(
             parts, question.terms, question.codes, asked_->depth, question.counted,
             asked_->exact_first,
             [this](std::uint32_t a, std::uint32_t b) { return rows_.id_before(a, b); })) {
      question.lexical.push_back({hit.row, hit.score(), hit.exact});
    }
    return {};
  }

  result<void> search_dense_leg(leg_question& question) {
    const stopwatch watch(answer_.timings.dense);
    std::vector<vector_hit> best;
    const auto before = [this](const vector_hit& a, const vector_hit& b) {
      return a.score != b.score ? a.score > b.score : rows_.id_before(a.row, b.row);
    };
    for (const search_part& part : rows_.parts()) {
      const segment_vectors& vectors = *part.from->vectors;
      if (vectors.rows.dimension() == 0) continue;
      auto hits = search_vectors(vectors, question.vector, part.among);
      if (!hits) return hits.failure();
      for (vector_hit& hit : *hits) hit.row += part.first;
      take_best(best, std::move(*hits), asked_->depth, before);
    }
    question.dense.clear();
    for (const vector_hit& hit : best) {
      question.dense.push_back({hit.row, static_cast<double>(hit.score), 0});
    }
    return {};
  }

  [[nodiscard]] result<std::vector<vector_hit>> search_vectors(const segment_vectors& vectors,
                                                               std::span<const float> wanted,
                                                               const row_set& among) const {
    if (!vectors.lists) return vectors.rows.try_search(wanted, asked_->depth, among);
    auto found = vectors.lists->try_search(wanted, asked_->depth, among);
    if (!found) return found.failure();
    return std::move(found->hits);
  }

  [[nodiscard]] std::vector<std::uint32_t> rows_found() const {
    std::vector<std::uint32_t> rows;
    for (const leg_question& each : questions_) {
      for (const leg_hit& hit : each.lexical) rows.push_back(hit.row);
      for (const leg_hit& hit : each.dense) rows.push_back(hit.row);
    }
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    return rows;
  }

  /// Rows to ask about: these, their parents, and all that lies in one parent with them. What the
  /// records do not let this reader read is not asked about; its parent is closed anyway.
  [[nodiscard]] std::vector<candidate> with_families(std::vector<std::uint32_t> rows) const {
    std::vector<std::uint32_t> parents;
    for (std::uint32_t row : rows) {
      const std::uint32_t parent = rows_.parent_of(row);
      if (parent == no_row) {
        parents.push_back(row);  // or one itself
      } else if (rows_.readable(parent)) {
        parents.push_back(parent);
      }
    }
    for (std::uint32_t parent : parents) {
      const std::vector<std::uint32_t> children = rows_.children_of(parent);
      if (!children.empty()) rows.push_back(parent);
      rows.insert(rows.end(), children.begin(), children.end());
    }
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    std::vector<candidate> out;
    for (std::uint32_t row : rows) {
      if (rows_.readable(row)) out.push_back({.row = row});
    }
    return out;
  }

  /// What the legs found, with families, as far as nobody was asked about it yet.
  [[nodiscard]] std::vector<candidate> not_yet_asked() {
    std::vector<candidate> fresh = with_families(rows_found());
    std::erase_if(fresh, [this](const candidate& each) { return asked_rows_.contains(each.row); });
    for (const candidate& each : fresh) asked_rows_.insert(each.row);
    return fresh;
  }

  /// Asks the permission source about candidates, now, in one batch.
  std::vector<bool> ask(std::span<const candidate> candidates) {
    if (candidates.empty()) return {};
    const stopwatch watch(answer_.timings.recheck);
    std::vector<chunk_key> keys;
    for (const candidate& each : candidates) {
      const chunk& record = rows_.at(each.row).record;
      keys.push_back({record.document_id, record.id});
    }
    std::shared_ptr<const index_state> newest;  // read when the source, which may be slow, is done
    permitted_.clear();
    const std::vector<bool> allowed = gate_.ask(keys, [&](std::size_t i) {
      if (!newest) newest = core_.current();
      return newest_groups(newest->tenants.find(reader_.who_.tenant), candidates[i].row);
    });
    permission_check check{milliseconds_since(begin_), keys.size(), {}};
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (!allowed[i]) check.denied.emplace_back(keys[i].chunk_id);
    }
    operator_.checks.push_back(std::move(check));
    return allowed;
  }

  /// The groups that may read a chunk by the newest records. Nothing: its document was erased, or
  /// the chunk was replaced and had groups of its own, which no record holds any more.
  [[nodiscard]] std::optional<std::span<const std::string>> newest_groups(const tenant_state* now,
                                                                          std::uint32_t row) const {
    if (now == nullptr) return std::nullopt;
    const search_part& part = rows_.part_of(row);
    const segment* same = find_segment(*now, *part.from);  // most often it is where it was
    if (same != nullptr && same->live->rows.contains(row - part.first)) {
      return same->access->groups_of_row(row - part.first);
    }
    const chunk& record = rows_.at(row).record;
    if (const auto found = now->find_chunk(record.id)) {
      const segment& from = now->segments[found->segment];
      if (from.records->at(found->number).record.document_id == record.document_id) {
        return from.access->groups_of_row(found->number);
      }
    }
    const auto document = now->find_document(record.document_id);
    if (!document || record.allowed_groups) return std::nullopt;
    return now->segments[document->segment].access->groups_of_document(document->number);
  }

  /// The chunks whose text lies in a row too: of a parent, its children.
  [[nodiscard]] std::vector<std::string> parts_of(std::uint32_t row) const {
    std::vector<std::string> ids;
    for (std::uint32_t child : rows_.children_of(row)) ids.push_back(rows_.id_of(child));
    return ids;
  }

  /// Whether the last word on a row, and on all that lies in it, was yes.
  [[nodiscard]] bool is_permitted(std::uint32_t row) {
    const auto [known, is_new] = permitted_.try_emplace(row, false);
    if (is_new) {
      known->second = gate_.allows(rows_.at(row).record.id, parts_of(row));
    }
    return known->second;
  }

  /// The parent that the reader may see; no_row: none.
  [[nodiscard]] std::uint32_t open_parent_of(std::uint32_t row) {
    const std::uint32_t parent = rows_.parent_of(row);
    return parent != no_row && is_permitted(parent) ? parent : no_row;
  }

  /// The passage, if is_permitted.
  [[nodiscard]] std::optional<permitted_passage> open(const candidate& each,
                                                      std::vector<byte_range> matches = {}) {
    passage_data data = describe(each);
    data.source.matches = std::move(matches);
    return gate_.open(std::move(data), parts_of(each.row));
  }

  // ---- fusion and selection ---------------------------------------------------------------------

  /// Merges the legs by rank. Ranks are numbered here, after the recheck: a gap would tell that
  /// something is hidden.
  result<void> fuse() {
    const stopwatch watch(answer_.timings.fusion);
    // Rows are called by their place in the order of the ids, which decides between equals.
    std::vector<std::uint32_t> found = rows_.in_order_of_ids(rows_found());
    std::unordered_map<std::uint32_t, std::uint32_t> place_of;
    for (std::uint32_t i = 0; i < found.size(); ++i) place_of.emplace(found[i], i);
    std::vector<std::vector<std::uint32_t>> lists;
    fusion_options options{asked_->fusion.k, {}};
    legs_.clear();
    const auto add_list = [&](const leg_question& question, const std::vector<leg_hit>& hits,
                              bool lexical) {
      lists.emplace_back();
      for (const leg_hit& hit : hits) lists.back().push_back(place_of[hit.row]);
      legs_.push_back({&question, lexical});
      const std::vector<double>& of_leg = asked_->fusion.weights;
      const bool both = lexical_on_ && dense_on_;  // the weight of an only leg changes nothing
      options.weights.push_back(question.weight *
                                (of_leg.empty() || !both ? 1 : of_leg[lexical ? 0 : 1]));
    };
    for (const leg_question& each : questions_) {
      if (lexical_on_) add_list(each, each.lexical, true);
      if (dense_on_) add_list(each, each.dense, false);
    }
    if (lists.empty()) return {};
    const auto fused = try_fuse_by_rank<std::uint32_t>(lists, options);
    if (!fused) return fused.failure();
    for (const auto& hit : *fused) {
      candidates_.push_back(
          {.row = found[hit.id], .place = candidates_.size(), .fused = hit.score});
      for (std::size_t list = 0; list < legs_.size(); ++list) {
        note_rank(candidates_.back(), legs_[list], hit.ranks[list]);
      }
    }
    fused_ = candidates_;
    fates_.assign(fused_.size(), parent_fate::none);
    return {};
  }

  /// One list that is fused.
  struct fused_leg {
    const leg_question* question = nullptr;
    bool lexical = false;
  };

  /// Notes a rank in one list; of several lists of one kind the best, and of equals the first.
  static void note_rank(candidate& each, const fused_leg& leg, std::size_t rank) {
    if (rank == 0) return;
    ++each.lists;
    std::size_t& best = leg.lexical ? each.lexical_rank : each.dense_rank;
    const bool better = best == 0 || rank < best;
    if (better) best = rank;
    const leg_hit& own = (leg.lexical ? leg.question->lexical : leg.question->dense)[rank - 1];
    each.exact = (std::max)(each.exact, own.exact);
    if (better) (leg.lexical ? each.lexical_score : each.similarity) = own.score;
  }

  void trace_candidates() {
    answer_.trace.mode = answer_.mode;
    answer_.trace.fusion_constant = asked_->fusion.k;
    for (const candidate& each : fused_) {
      const std::string& id = rows_.id_of(each.row);
      const auto scored = rerank_scores_.find(each.row);
      answer_.trace.candidates.push_back({id,
                                          each.lexical_rank,
                                          each.dense_rank,
                                          each.exact > 0,
                                          each.lexical_score,
                                          each.similarity,
                                          scored == rerank_scores_.end()
                                              ? std::optional<double>()
                                              : std::optional<double>(scored->second),
                                          each.fused,
                                          {},
                                          {}});
      tell_of_parent(each, answer_.trace.candidates.back());
    }
    if (core_.options.lexical) return;  // its scores are not BM25's of here
    const leg_question& main = questions_.front();
    for (const leg_hit& hit : main.lexical) {
      const search_part& part = rows_.part_of(hit.row);
      answer_.trace.bm25.push_back(
          {rows_.id_of(hit.row),
           part.from->records->terms.explain(hit.row - part.first, main.terms, main.counted)});
    }
  }

  [[nodiscard]] selection_item item_of(std::uint32_t row) const {
    const chunk& record = rows_.at(row).record;
    return {record.id, record.document_id, record.revision, record.range, record.token_count};
  }
  [[nodiscard]] std::vector<selection_item> items_of_candidates() const {
    std::vector<selection_item> items;
    items.reserve(candidates_.size());
    for (const candidate& each : candidates_) items.push_back(item_of(each.row));
    return items;
  }

  /// Keeps the candidates that a step of selection kept. It drops and never reorders.
  void keep(const std::vector<selection_item>& kept) {
    std::size_t next = 0;
    std::erase_if(candidates_, [&](const candidate& each) {
      if (next < kept.size() && rows_.at(each.row).record.id == kept[next].id) {
        ++next;
        return false;
      }
      return true;
    });
  }

  [[nodiscard]] std::vector<drop>* drops() {
    return asked_->explain ? &answer_.trace.dropped : nullptr;
  }

  /// Children give way to their parent, if the reader may see it and it is not too large.
  void collapse() {
    if (!asked_->collapse_parents) return;
    struct decision {
      parent_fate fate = parent_fate::none;
      selection_item item = {};
      std::uint32_t row = no_row;
    };
    std::map<std::uint32_t, decision> decisions;  // by the parent's row
    std::vector<const selection_item*> parents;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      const std::uint32_t row = rows_.parent_of(candidates_[i].row);
      parents.push_back(nullptr);
      if (row == no_row) continue;
      const auto [place, is_new] = decisions.try_emplace(row);
      decision& of = place->second;
      if (is_new) of = {fate_of_parent(row), item_of(row), row};
      fates_[i] = of.fate;
      if (of.fate == parent_fate::stands) parents.back() = &of.item;
    }
    if (decisions.empty()) return;
    std::vector<candidate> kept;
    for (const auto& each : collapse_to_parents(items_of_candidates(), parents, drops())) {
      candidate best = candidates_[each.from.front()];
      if (parents[each.from.front()] != nullptr) {
        for (std::size_t from : each.from) {
          best.children.push_back(candidates_[from].row);
          best.exact = (std::max)(best.exact, candidates_[from].exact);
        }
        best.row = rows_.parent_of(best.row);
      }
      kept.push_back(std::move(best));
    }
    candidates_ = std::move(kept);
  }

  [[nodiscard]] parent_fate fate_of_parent(std::uint32_t row) {
    if (!is_permitted(row)) return parent_fate::closed;
    return rows_.at(row).record.token_count > parent_token_limit() ? parent_fate::too_large
                                                                   : parent_fate::stands;
  }

  /// A parent above the budget could never be handed out.
  [[nodiscard]] std::size_t parent_token_limit() const {
    const std::size_t none = (std::numeric_limits<std::size_t>::max)();
    return (std::min)(asked_->max_parent_tokens.value_or(none),
                      asked_->token_budget.value_or(none));
  }

  /// What the reader's trace says of a candidate's parent. A closed one is as if it did not exist.
  void tell_of_parent(const candidate& each, candidate_trace& told) const {
    const parent_fate fate = fates_[each.place];
    if (fate == parent_fate::none || fate == parent_fate::closed) return;
    const std::uint32_t row = rows_.parent_of(each.row);
    const chunk& parent = rows_.at(row).record;
    if (fate == parent_fate::stands) told.parent = parent.id;
    if (fate == parent_fate::too_large) told.parent_note = too_large_text(parent);
  }

  [[nodiscard]] std::string too_large_text(const chunk& parent) const {
    return "parent " + parent.id + " has " + text_of(parent.token_count) + " tokens, more than " +
           text_of(parent_token_limit());
  }

  void tell_operator_of_parents() {
    for (const candidate& each : fused_) {
      const parent_fate fate = fates_[each.place];
      if (fate == parent_fate::none || fate == parent_fate::stands) continue;
      const std::uint32_t row = rows_.parent_of(each.row);
      const chunk& parent = rows_.at(row).record;
      operator_.parents.push_back(
          "chunk " + in_quotes(rows_.at(each.row).record.id) + " stands for itself: " +
          (fate == parent_fate::too_large ? too_large_text(parent)
                                          : "parent " + parent.id + " is closed to this reader"));
    }
  }

  /// Parents, overlap dedupe and the cap per document, in fused order: they bound the reranker's
  /// work.
  void choose_candidates() {
    const stopwatch watch(answer_.timings.selection);
    collapse();
    std::vector<selection_item> items = items_of_candidates();
    if (asked_->overlap_threshold) {
      items = drop_overlaps(items, *asked_->overlap_threshold, drops());
    }
    keep(limit_per_document(items, asked_->per_document, drops()));
  }

  // ---- reranking --------------------------------------------------------------------------------

  /// Returns whether the reranker was called, however it ended.
  bool rerank() {
    const reranker& model = asked_->rerank;
    if (!model.score || candidates_.empty()) return false;
    const stopwatch watch(answer_.timings.rerank);
    std::vector<permitted_passage> shortlist;
    while (shortlist.size() < (std::min)(model.window, candidates_.size())) {
      auto passage = open(candidates_[shortlist.size()]);
      if (!passage) break;  // cannot be: what was denied is no candidate
      shortlist.push_back(std::move(*passage));
      shortlist_rows_.push_back(candidates_[shortlist_rows_.size()].row);
    }
    auto scores = rerank_checked(model, asked_->text, shortlist, rerank_deadline());
    if (!scores) {
      rerank_failure_ = scores.failure();
      return true;
    }
    answer_.reranking = rerank_status::applied;
    for (std::size_t i = 0; i < shortlist_rows_.size(); ++i) {
      rerank_scores_.emplace(shortlist_rows_[i], (*scores)[i]);
    }
    order_by_rerank_scores();
    return true;
  }

  /// Scored candidates first, best first; equal scores keep the fused order, as do the others.
  void order_by_rerank_scores() {
    if (rerank_scores_.empty()) return;
    for (candidate& each : candidates_) {
      const auto scored = rerank_scores_.find(each.row);
      if (scored != rerank_scores_.end()) each.rerank_score = scored->second;
    }
    std::sort(candidates_.begin(), candidates_.end(), [](const candidate& a, const candidate& b) {
      if (a.rerank_score.has_value() != b.rerank_score.has_value()) {
        return a.rerank_score.has_value();
      }
      if (a.rerank_score && *a.rerank_score != *b.rerank_score) {
        return *a.rerank_score > *b.rerank_score;
      }
      return a.place < b.place;
    });
  }

  /// What is said of a reranker that failed. Its own words, and a passage's name in ours, are for
  /// the operator if something that it was shown may not be read any more.
  result<void> tell_of_rerank() {
    if (rerank_failure_) operator_.failures.push_back(rerank_failure_->message());
    if (candidates_.empty()) answer_.reranking = rerank_status::off;  // as if there had been none
    if (!rerank_failure_ || candidates_.empty()) return {};
    const bool still_readable =
        std::all_of(shortlist_rows_.begin(), shortlist_rows_.end(),
                    [this](std::uint32_t row) { return is_permitted(row); });
    const error told =
        still_readable ? *rerank_failure_ : error(errc::reranker_failed, "rerank: failed");
    if (asked_->rerank.required) return told;
    answer_.reranking = rerank_status::degraded;
    note(told.message() + "; the fused order stands");
    return {};
  }

  /// The earlier of the reranker's own limit and what the search's limit leaves.
  [[nodiscard]] clock::time_point rerank_deadline() const {
    auto deadline = (clock::time_point::max)();
    if (asked_->rerank.time_limit) deadline = later_by(clock::now(), *asked_->rerank.time_limit);
    if (asked_->time_limit) {
      const auto none = std::chrono::milliseconds::zero();
      const auto limit = (std::max)(*asked_->time_limit, none);
      const auto reserve = (std::clamp)(asked_->reserve, none, limit);
      deadline = (std::min)(deadline, later_by(begin_, limit - reserve));
    }
    return deadline;
  }

  /// The sum, held at the clock's last moment: the longest limit is none.
  [[nodiscard]] static clock::time_point later_by(clock::time_point start,
                                                  std::chrono::milliseconds wait) {
    using std::chrono::milliseconds;
    const auto last =
        std::chrono::duration_cast<milliseconds>((clock::time_point::max)().time_since_epoch());
    const auto room = last - std::chrono::duration_cast<milliseconds>(start.time_since_epoch());
    if (wait >= room) return (clock::time_point::max)();
    return start + (std::max)(wait, milliseconds::zero());
  }

  // ---- handing out ------------------------------------------------------------------------------

  /// The asked-for page within the token budget.
  void hand_out() {
    const stopwatch watch(answer_.timings.selection);
    std::vector<selection_item> page =
        take_page(items_of_candidates(), asked_->offset, asked_->limit, drops());
    if (asked_->token_budget) {
      page = fit_budget(page, *asked_->token_budget, asked_->fill_budget, drops());
    }
    keep(page);
    if (asked_->explain) trace_candidates();
    tell_operator_of_parents();
    for (const leg_question& each : questions_) {
      for (const std::string& term : each.terms) words_.emplace(term, true);
      for (const std::string& code : each.codes) codes_.emplace(code, true);
    }
    for (const candidate& each : candidates_) {
      if (auto passage = open(each, matches_in(each.row))) {
        answer_.passages.push_back(std::move(*passage));
      }
    }
    const bool asked_nothing = std::all_of(
        questions_.begin(), questions_.end(),
        [](const leg_question& each) { return !each.has_words() && each.vector.empty(); });
    if (candidates_.empty() && asked_nothing) {
      answer_.notes.push_back("the question holds no word to search for");
    }
  }

  /// All about a candidate that a reader may see. Only the gate turns it into a passage.
  [[nodiscard]] passage_data describe(const candidate& each) {
    const document& source = rows_.document_of(each.row);
    const chunk& record = rows_.at(each.row).record;
    passage_data data;
    data.id = record.id;
    data.document_id = record.document_id;
    if (open_parent_of(each.row) != no_row) data.parent_id = record.parent_id;
    for (std::uint32_t row : each.children) {
      data.children.push_back(rows_.at(row).record.id);
    }
    data.revision = record.revision;
    data.title = source.title;
    data.heading_path = record.heading_path;
    data.identifiers = record.identifiers;
    data.heading = record.heading;
    data.body = slice(source.text, record.body);
    data.text = chunk_text(source, record);
    data.search_text = rag_retrieve::search_text(source, record, core_.options.search_text);
    data.range = record.range;
    data.token_count = record.token_count;
    data.lexical_rank = each.lexical_rank;
    data.dense_rank = each.dense_rank;
    data.exact_match = each.exact > 0;
    data.lexical_score = each.lexical_score;
    data.similarity = each.similarity;
    data.rerank_score = each.rerank_score;
    data.score = score_of(each);
    data.why = reason_of(each);
    data.source = {record.document_id, record.revision, record.anchor, record.range, 0, 0, {}};
    data.source.first_line = rows_.at(each.row).first_line;
    data.source.last_line = rows_.at(each.row).last_line;
    return data;
  }

  [[nodiscard]] double score_of(const candidate& each) const {
    if (legs_.size() != 1) return each.fused;
    return answer_.mode == search_mode::lexical ? each.lexical_score.value_or(0)
                                                : each.similarity.value_or(0);
  }

  [[nodiscard]] std::string reason_of(const candidate& each) const {
    std::string why;
    const auto add = [&why](const std::string& part) { why += (why.empty() ? "" : "; ") + part; };
    if (each.exact > 0) add(each.exact == 1 ? "exact code" : text_of(each.exact) + " exact codes");
    if (each.lexical_rank != 0) add("lexical rank " + text_of(each.lexical_rank));
    if (each.dense_rank != 0) add("dense rank " + text_of(each.dense_rank));
    for (std::uint32_t row : each.children) add("for " + rows_.at(row).record.id);
    if (each.rerank_score) add("reranked");
    return why;
  }

  /// Where the question's words and codes stand in a chunk, in bytes of the document.
  [[nodiscard]] std::vector<byte_range> matches_in(std::uint32_t row) const {
    const document& source = rows_.document_of(row);
    const byte_range range = rows_.at(row).record.range;
    const std::string_view text = slice(source.text, range);
    std::vector<byte_range> matches;
    const auto add = [&](byte_range where) {
      if (!where.empty()) matches.push_back({range.begin + where.begin, range.begin + where.end});
    };
    const auto found = guarded(errc::callback_failed, "search: matches", [&] {
      for_each_term(text, core_.options.analysis, [&](std::string_view term, byte_range where) {
        if (words_.contains(term)) add(where);
      });
      for (const identifier_match& code : core_.finder.find_all(text)) {
        if (codes_.contains(code.value)) add(code.where);
      }
      return true;
    });
    return found ? joined_where_they_overlap(std::move(matches)) : std::vector<byte_range>();
  }

  [[nodiscard]] static std::vector<byte_range> joined_where_they_overlap(
      std::vector<byte_range> ranges) {
    std::sort(ranges.begin(), ranges.end(), [](byte_range a, byte_range b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    std::vector<byte_range> apart;
    for (const byte_range& range : ranges) {
      if (apart.empty() || range.begin >= apart.back().end) {
        apart.push_back(range);
      } else {
        apart.back().end = (std::max)(apart.back().end, range.end);
      }
    }
    return apart;
  }

  // ---- neighbours -------------------------------------------------------------------------------

  /// Adds what stands beside the passages, within what they left of the token budget: the better
  /// passage's neighbours first, of one passage the closer ones first.
  void hand_out_neighbours() {
    if (asked_->neighbours == 0 || candidates_.empty() || !ask_about_neighbours()) return;
    const stopwatch watch(answer_.timings.selection);
    std::size_t left = asked_->token_budget.value_or((std::numeric_limits<std::size_t>::max)());
    detail::key_set<std::uint32_t> shown;
    for (const candidate& each : candidates_) {
      shown.insert(each.row);
      left -= (std::min)(left, rows_.at(each.row).record.token_count);
    }
    bool full = false;
    for (const candidate& each : candidates_) {
      std::vector<std::uint32_t> taken;
      for (std::uint32_t row : rows_beside(each.row)) {
        const std::size_t tokens = rows_.at(row).record.token_count;
        if (full || shown.contains(row)) continue;
        full = tokens > left && !asked_->fill_budget;
        if (tokens > left) continue;
        left -= tokens;
        shown.insert(row);
        taken.push_back(row);
      }
      open_neighbours(each.row, taken);
    }
  }

  /// taken  rows, to be given in the order of their document
  void open_neighbours(std::uint32_t of, const std::vector<std::uint32_t>& taken) {
    for (std::uint32_t row : rows_.beside(of)) {
      if (std::find(taken.begin(), taken.end(), row) == taken.end()) continue;
      const auto known = std::find_if(fused_.begin(), fused_.end(),
                                      [row](const candidate& each) { return each.row == row; });
      const candidate found = known == fused_.end() ? candidate{.row = row} : *known;
      if (auto passage = open(found, matches_in(row))) {
        answer_.neighbours.push_back({rows_.at(of).record.id, std::move(*passage)});
      }
    }
  }

  /// Asks about all that may be a neighbour, in one batch; where something is denied, the next
  /// chunk comes into view, and is asked about in turn. Returns whether the source answered.
  bool ask_about_neighbours() {
    for (;;) {
      std::vector<std::uint32_t> rows;
      for (const candidate& each : candidates_) {
        for (std::uint32_t row : rows_beside(each.row)) {
          if (!asked_rows_.contains(row)) rows.push_back(row);
        }
      }
      if (rows.empty()) return true;
      const std::vector<candidate> fresh = with_families(std::move(rows));
      for (const candidate& each : fresh) asked_rows_.insert(each.row);
      static_cast<void>(remove_denied(fresh));
      if (gate_.failed()) return false;
    }
  }

  /// Up to `neighbours` rows before and after a row, closest first; one that nobody was asked about
  /// yet counts as permitted.
  [[nodiscard]] std::vector<std::uint32_t> rows_beside(std::uint32_t of) {
    const std::vector<std::uint32_t> order = rows_.beside(of);
    const auto here =
        static_cast<std::size_t>(std::find(order.begin(), order.end(), of) - order.begin());
    std::vector<std::uint32_t> before;
    std::vector<std::uint32_t> after;
    for (std::size_t at = here; at-- > 0 && before.size() < asked_->neighbours;) {
      if (stands_beside(of, order[at])) before.push_back(order[at]);
    }
    for (std::size_t at = here + 1; at < order.size() && after.size() < asked_->neighbours; ++at) {
      if (stands_beside(of, order[at])) after.push_back(order[at]);
    }
    std::vector<std::uint32_t> rows;
    for (std::size_t i = 0; i < (std::max)(before.size(), after.size()); ++i) {
      if (i < before.size()) rows.push_back(before[i]);
      if (i < after.size()) rows.push_back(after[i]);
    }
    return rows;
  }

  [[nodiscard]] bool stands_beside(std::uint32_t of, std::uint32_t row) {
    if (!rows_.readable(row)) return false;
    if (rows_.at(row).record.heading_path != rows_.at(of).record.heading_path) {
      return false;
    }
    const std::uint32_t level = open_parent_of(of);
    if (level != no_row) return rows_.parent_of(row) == level;
    if (!asked_rows_.contains(row)) return true;
    return is_permitted(row) && open_parent_of(row) == no_row;
  }

  // ---- evidence ---------------------------------------------------------------------------------

  result<void> weigh_evidence() {
    evidence& signals = answer_.signals;
    for (const permitted_passage& passage : answer_.passages) {
      signals.exact_code = signals.exact_code || passage.exact_match();
      if (passage.similarity() > signals.best_similarity) {
        signals.best_similarity = passage.similarity();
      }
      if (passage.rerank_score() > signals.best_rerank) {
        signals.best_rerank = passage.rerank_score();
      }
    }
    if (!candidates_.empty()) signals.agreeing_legs = candidates_.front().lists;
    signals.idf_share = idf_share();
    if (!asked_->sufficient) return {};
    const auto enough = guarded(errc::callback_failed, "search: sufficient",
                                [&] { return asked_->sufficient(signals); });
    if (!enough) return enough.failure();
    if (!*enough) {
      answer_.status = search_status::insufficient;
      answer_.notes.push_back("the caller's rule finds the evidence insufficient");
    }
    return {};
  }

  /// How much of the question's idf mass the handed-out passages hold, 0 to 1. A parent holds what
  /// its children hold; no index knows its own terms.
  [[nodiscard]] double idf_share() const {
    if (candidates_.empty()) return 0;
    double all = 0;
    double held = 0;
    std::size_t place = 0;
    const leg_question& main = questions_.front();
    for (const std::string_view term : distinct(main.terms)) {
      const std::size_t n = main.counted.chunks_with[place++];
      const double rarity = from_units(idf_units(main.counted.corpus.chunk_count, n), idf_bits);
      all += rarity;
      const bool found = std::any_of(candidates_.begin(), candidates_.end(),
                                     [&](const candidate& each) { return holds(each.row, term); });
      if (found) held += rarity;
    }
    return all > 0 ? held / all : 0;
  }

  [[nodiscard]] bool holds(std::uint32_t row, std::string_view term) const {
    const std::vector<std::uint32_t> children = rows_.children_of(row);
    if (!children.empty()) {
      return std::any_of(children.begin(), children.end(),
                         [&](std::uint32_t child) { return holds(child, term); });
    }
    const search_part& part = rows_.part_of(row);
    return part.from->records->terms.contains(row - part.first, term);
  }

  const retriever_core& core_;
  const scope& reader_;
  const embedder& model_;  // of the pinned state
  search_rows rows_;
  std::size_t dimension_ = 0;
  gate gate_;
  clock::time_point begin_ = clock::now();
  const query* asked_ = nullptr;
  std::vector<leg_question> questions_;  // the main one first
  bool lexical_on_ = false, dense_on_ = false;
  std::unordered_map<std::string_view, bool> words_, codes_;  // of all questions, to mark them
  std::vector<fused_leg> legs_;        // the lists, in the order of the fusion
  key_set<std::uint32_t> asked_rows_;  // what the permission source was asked about so far
  std::size_t lost_ = 0;               // how many of these were denied
  std::unordered_map<std::uint32_t, bool> permitted_;  // by row, since it was asked last
  std::vector<candidate> fused_, candidates_;
  std::vector<parent_fate> fates_;  // by place in fused order
  std::vector<std::uint32_t> shortlist_rows_;
  std::unordered_map<std::uint32_t, double> rerank_scores_;  // by row
  std::optional<error> rerank_failure_;
  answer answer_;
  operator_trace operator_;
};

}  // namespace detail

/// A pinned state of a retriever: every search in it sees the same documents, so that pages by
/// offset neither repeat nor skip. The recheck still asks for the permissions of the moment.
class snapshot {
 public:
  /// Finds what answers a question, within what the reader may read.
  ///
  /// returns  at most asked.limit passages, best first; the tie rule of every list ends in the id
  /// errors   invalid_argument: an option outside its range, or a scope of another source;
  ///          dimension_mismatch, model_mismatch, not_finite: the question's vector;
  ///          embedder_failed in dense mode; reranker_failed where the reranker is required
  /// cost     O(postings of the question's terms + readable vectors), then O(depth)
  [[nodiscard]] result<answer> try_search(const query& asked, const scope& reader) const {
    return detail::search_run(*core_, *state_, reader).search(asked);
  }
  [[nodiscard]] answer search(const query& asked, const scope& reader) const {
    return try_search(asked, reader).value();
  }

  /// The chunks with these ids, as far as the reader may read them now; others are left out
  /// without a word, whether they exist or not. Order: as asked for.
  [[nodiscard]] result<std::vector<permitted_passage>> try_fetch(std::span<const std::string> ids,
                                                                 const scope& reader) const {
    return detail::search_run(*core_, *state_, reader).fetch(ids);
  }
  [[nodiscard]] std::vector<permitted_passage> fetch(std::span<const std::string> ids,
                                                     const scope& reader) const {
    return try_fetch(ids, reader).value();
  }

  /// How many chunks the reader may read now. Cost: one question about each.
  [[nodiscard]] result<std::size_t> try_count(const scope& reader) const {
    return detail::search_run(*core_, *state_, reader).count();
  }
  [[nodiscard]] std::size_t count(const scope& reader) const { return try_count(reader).value(); }

  /// Grows by one with each update.
  [[nodiscard]] std::uint64_t number() const { return state_->number; }

 private:
  friend class retriever;
  snapshot(std::shared_ptr<const detail::retriever_core> core,
           std::shared_ptr<const detail::index_state> state)
      : core_(std::move(core)), state_(std::move(state)) {}

  std::shared_ptr<const detail::retriever_core> core_;
  std::shared_ptr<const detail::index_state> state_;
};

namespace detail {
struct index_file;
}  // namespace detail

/// Documents, their indexes, and searches over them. Safe to use from many threads: searches are
/// const and never wait for an update; updates publish one after the other.
class retriever {
 public:
  explicit retriever(retriever_options options = {})
      : retriever(try_make(std::move(options)).value()) {}

  /// errors  invalid_argument: a malformed identifier pattern, bm25 or ivf options out of range
  [[nodiscard]] static result<retriever> try_make(retriever_options options) {
    auto finder = identifier_finder::try_make(
        {options.identifiers, options.find_identifiers, options.identifier_case_matters});
    if (!finder) return finder.failure();
    if (const auto checked = check_bm25(options.bm25); !checked) return checked.failure();
    const auto checked_ivf = detail::check_ivf(options.ivf.value_or(ivf_options{}));
    if (!checked_ivf) return checked_ivf.failure();
    auto core = std::make_shared<detail::retriever_core>();
    core->options = std::move(options);
    core->finder = std::move(*finder);
    auto empty = std::make_shared<detail::index_state>();
    empty->model = std::make_shared<const embedder>(core->options.embed);
    core->publish(std::move(empty));
    return retriever(std::move(core));
  }

  retriever(retriever&&) noexcept = default;
  retriever& operator=(retriever&&) noexcept = default;
  retriever(const retriever&) = delete;
  retriever& operator=(const retriever&) = delete;
  ~retriever() = default;

  /// Adds documents, or puts them in the place of their older selves: text, terms, codes, vectors
  /// and access records of all of them become visible in one step, or none of them.
  ///
  /// returns  what was embedded and what was reused; an input whose model and bytes are stored
  ///          already is not embedded again, whatever its permissions
  /// errors   stale_revision, duplicate_id, invalid_argument, model_mismatch, dimension_mismatch,
  ///          not_finite, embedder_failed, callback_failed; nothing has changed then
  /// cost     the new documents' own, a copy of each replaced document's live bits (1 bit a row of
  ///          its segment), and from time to time a merge, which takes each chunk once per
  ///          eightfold growth of the tenant
  result<update_report> try_upsert(std::span<const chunked_document> documents) {
    const detail::update_end end(*core_);
    detail::key_set<std::pair<std::string_view, std::string_view>> seen;
    for (const chunked_document& input : documents) {
      if (seen.insert({input.source.tenant, input.source.id})) continue;
      return error(errc::duplicate_id,
                   "upsert: document " + detail::in_quotes(input.source.id) + " is given twice");
    }
    for (;;) {  // once more only if publish_documents says so
      const auto base = core_->current();
      std::vector<detail::prepared_document> prepared;
      prepared.reserve(documents.size());
      for (const chunked_document& input : documents) {
        auto one = detail::prepare_document(*core_, base->model->model, input);
        if (!one) return one.failure();
        prepared.push_back(std::move(*one));
      }
      update_report report;
      const auto unchanged = detail::drop_unchanged(*base, prepared, report);
      if (!unchanged) return unchanged.failure();
      const auto filled = detail::fill_vectors(*core_, *base, prepared, report);
      if (!filled) return filled.failure();
      const auto published =
          detail::publish_documents(*core_, *base, std::move(prepared), *unchanged, report);
      if (!published) return published.failure();
      if (*published == detail::publication::done) return report;
    }
  }
  update_report upsert(std::span<const chunked_document> documents) {
    return try_upsert(documents).value();
  }

  /// The same for one document. The chunks must be cut from this very text; in one call do not
  /// move the document and cut it: which comes first is the compiler's choice.
  result<update_report> try_upsert(document source, std::vector<chunk> chunks) {
    const std::array<chunked_document, 1> one{
        chunked_document{std::move(source), std::move(chunks)}};
    return try_upsert(one);
  }
  update_report upsert(document source, std::vector<chunk> chunks) {
    return try_upsert(std::move(source), std::move(chunks)).value();
  }

  /// Removes a document with all its chunks in one step. From then on it is in no answer, count or
  /// saved file; its memory goes when its segment is merged, see purge, and no snapshot holds it.
  /// errors  not_found: there is no such document
  /// cost    a copy of its segment's live bits; from time to time a merge
  result<void> try_erase(std::string_view document_id, std::string_view tenant = {}) {
    const detail::update_end end(*core_);
    {
      const std::lock_guard lock(core_->writer);
      const auto base = core_->current();
      const auto place = base->tenants.find_document(tenant, document_id);
      if (!place) return missing("erase", document_id);
      const detail::tenant_state* own = base->tenants.find(tenant);
      const detail::segment_records& records = *own->segments[place->segment].records;
      const detail::stored_document& stored = *records.documents[place->number];
      for (const detail::stored_chunk& item : stored.chunks) {
        core_->migration.erase(search_text(stored.source, item.record, core_->options.search_text));
      }
      detail::tenant_edit edit(own);
      edit.edit(place->segment).kill(place->number);
      publish(*base, tenant, edit.finish());
    }
    detail::merge_due(*core_, tenant);
    return {};
  }
  void erase(std::string_view document_id, std::string_view tenant = {}) {
    try_erase(document_id, tenant).value();
  }

  /// Changes who may read a document. Nothing is embedded or analysed again; chunks with narrower
  /// groups of their own keep what both lists allow.
  /// cost    a copy of its segment's live bits and of a few pages of its access table; where the
  ///         list of groups is new to the segment, a copy of its lists; no user code runs
  /// errors  not_found; invalid_argument: an empty string among the groups
  result<void> try_set_access(std::string_view document_id, std::vector<std::string> groups,
                              std::string_view tenant = {}) {
    if (std::find(groups.begin(), groups.end(), std::string{}) != groups.end()) {
      return error(
          errc::invalid_argument,
          "set_access: document " + detail::in_quotes(document_id) + ": an allowed group is empty");
    }
    const detail::update_end end(*core_);
    const std::lock_guard lock(core_->writer);
    const auto base = core_->current();
    const auto place = base->tenants.find_document(tenant, document_id);
    if (!place) return missing("set_access", document_id);
    detail::tenant_edit edit(base->tenants.find(tenant));
    edit.edit(place->segment).set_groups(place->number, detail::sorted_groups(std::move(groups)));
    publish(*base, tenant, edit.finish());
    return {};
  }
  void set_access(std::string_view document_id, std::vector<std::string> groups,
                  std::string_view tenant = {}) {
    try_set_access(document_id, std::move(groups), tenant).value();
  }

  /// Merges now: what was erased or replaced leaves the memory, and each tenant has one
  /// segment. What a snapshot, or a search that is running, still holds is freed by an update after
  /// its end. Searches and updates go on meanwhile. cost    every chunk of
  /// each tenant with more than one segment, or with erased chunks, once
  void purge() {
    const detail::update_end end(*core_);
    const std::lock_guard lock(core_->merging);
    const auto state = core_->current();
    for (const auto& [tenant, own] : state->tenants.all()) detail::merge_all(*core_, tenant);
  }

  /// Changes to another embedding model. Vectors of all stored chunks are made beside the old ones,
  /// supplied ones included; then vectors and questions change over in one step. Until then every
  /// search uses the old model for both, and snapshots that are pinned before keep it. Updates go
  /// on meanwhile and are followed; with texts coming in faster than `next` embeds them, the call
  /// does not end.
  ///
  /// next     its tag differs from the present model's
  /// returns  what was embedded; unchanged text is embedded again, as the model is another
  /// errors   invalid_argument: no embed function, batch_size 0, the present model's tag, or a
  ///          change that is running already; embedder_failed, dimension_mismatch, not_finite, or
  ///          what `next` returns. The old model stays then, and finished vectors are kept for the
  ///          next attempt with the same tag
  /// cost     one embedding of each distinct input, and a new vector index for each segment
  result<migration_report> try_migrate(const embedder& next) {
    if (const auto checked = detail::check_embedder(next); !checked) return checked.failure();
    const auto is_another = detail::check_next_model(*core_->current(), next);
    if (!is_another) return is_another.failure();
    if (!core_->migration.begin(next)) {
      return error(errc::invalid_argument,
                   "migrate: another migration of this retriever is running");
    }
    const detail::update_end end(*core_);
    return detail::migration_attempt(*core_).run(next);
  }
  migration_report migrate(const embedder& next) { return try_migrate(next).value(); }

  /// Asks the permission source what a principal may read, now.
  /// errors  permission_failed: no source, or it did not answer
  [[nodiscard]] result<scope> try_scope_for(const principal& who) const {
    if (core_->options.permissions == nullptr) {
      return error(errc::permission_failed,
                   "scope_for: the retriever has no permission source, so nobody may read");
    }
    return rag_retrieve::try_scope_for(*core_->options.permissions, who);
  }
  [[nodiscard]] scope scope_for(const principal& who) const { return try_scope_for(who).value(); }

  /// The present state, pinned.
  [[nodiscard]] rag_retrieve::snapshot snapshot() const { return {core_, core_->current()}; }

  /// Searches the present state; see snapshot::try_search.
  [[nodiscard]] result<answer> try_search(const query& asked, const scope& reader) const {
    return snapshot().try_search(asked, reader);
  }
  [[nodiscard]] answer search(const query& asked, const scope& reader) const {
    return try_search(asked, reader).value();
  }
  [[nodiscard]] result<std::vector<permitted_passage>> try_fetch(std::span<const std::string> ids,
                                                                 const scope& reader) const {
    return snapshot().try_fetch(ids, reader);
  }
  [[nodiscard]] std::vector<permitted_passage> fetch(std::span<const std::string> ids,
                                                     const scope& reader) const {
    return try_fetch(ids, reader).value();
  }
  [[nodiscard]] result<std::size_t> try_count(const scope& reader) const {
    return snapshot().try_count(reader);
  }
  [[nodiscard]] std::size_t count(const scope& reader) const { return try_count(reader).value(); }

 private:
  explicit retriever(std::shared_ptr<detail::retriever_core> core) : core_(std::move(core)) {}

  [[nodiscard]] static error missing(std::string_view call, std::string_view document_id) {
    return error(errc::not_found,
                 std::string(call) + ": there is no document " + detail::in_quotes(document_id));
  }

  /// Publishes one tenant's new state; the caller holds the writer's lock.
  void publish(const detail::index_state& base, std::string_view tenant,
               detail::tenant_state state) {
    auto next = std::make_shared<detail::index_state>(base);
    next->tenants.put(tenant, std::move(state));
    ++next->number;
    core_->publish(std::move(next));
  }

  friend struct detail::index_file;
  std::shared_ptr<detail::retriever_core> core_;
};

// =================================================================================================
// 15. Evaluation: how well a search finds what people judged to be the answer
//
// In   judged questions; ranked lists, of a retriever or a file.      Out   measures, intervals.
//
//   P@k       relevant among the first k / k
//   recall@k  relevant among the first k / all relevant
//   MRR       mean over questions of 1 / rank of the first relevant
//   MAP       mean over questions of (sum of P@rank over the relevant in the list) / all relevant
//   nDCG@k    DCG / DCG of the best order
//   DCG       sum over the first k of relevance / log2(rank + 1)
//   recall at the budget: required passages among those that are sent / all required
//
// Each question's list and judgements are made sets first; the order is the list's, whatever its
// scores say. A judged question without results counts 0; one without judgements is left out and
// named; one that has no answer has no recall and is kept apart, and so is one whose answer this
// reader may not read. Every mean says how many questions stand behind it.
//
// The section is long because it is three: measures with their intervals; run and judgement files,
// whose numbers are read and written exactly in every locale; and the variants of one retriever
// side by side.
//
// Source   Jarvelin and Kekalainen, TOIS 2002 (nDCG); trec_eval for the others and the file forms;
//          Efron and Tibshirani 1993 (bootstrap); Smucker, Allan and Carterette, CIKM 2007
//          (randomization test); Holm, Scand. J. Statistics 1979.
// =================================================================================================

/// The kind of a question that nothing in the collection answers.
inline constexpr std::string_view unanswerable_kind = "unanswerable";

/// What someone found about one passage, or one document, and one question.
struct judgement {
  std::string id = {};  ///< of a passage or a document, as the ranked lists name it
  int relevance = 1;    ///< 0 or less: looked at and not relevant; above: the gain of nDCG
  std::optional<std::uint64_t> revision = {};  ///< of the text that was judged; none: not compared
};

/// A question with what its answer needs.
struct judged_question {
  std::string id = {};
  std::string text = {};
  std::string kind = {};  ///< "exact-code", "paraphrase", "multi-section", "unanswerable", any text
  std::vector<std::string> required = {};  ///< all needed for an answer; none: all that is relevant
  std::vector<judgement> judgements = {};  ///< what is required need not stand here again
  std::vector<std::string> forbidden = {};  ///< what this reader may not see: a leak if it appears
  std::optional<principal> who = {};        ///< for an ablation: who asks, if not its reader
  std::optional<embedding> vector = {};     ///< for an ablation: the question's; none: embedder's
};

/// What a search returned for one question.
struct ranked_list {
  std::string question = {};                  ///< id of the judged question
  std::vector<std::string> ids = {};          ///< best first: this order counts, never the scores
  std::vector<double> scores = {};            ///< one for each id, or none
  std::vector<std::uint64_t> revisions = {};  ///< one for each id, or none
  std::optional<std::vector<std::string>> sent = {};  ///< what a model is sent; none: unknown
  std::optional<bool> sufficient = {};  ///< what the caller's evidence rule said; none: no rule
  std::string failure = {};             ///< not empty: the search failed, and why
};

// ---- measures -----------------------------------------------------------------------------------

/// The measures of one question. Each lies between 0 and 1.
enum class measure {
  ndcg,               ///< of the first k
  average_precision,  ///< of the whole list; its mean is MAP
  reciprocal_rank,    ///< 1 / rank of the first relevant; 0: none; its mean is MRR
  precision,          ///< relevant among the first k / k
  recall,             ///< relevant among the first k / all relevant
  budget_recall,      ///< required among what is sent / all required; only where that is known
  first_required,     ///< 1 / rank of the first required; 0: none
  all_required,       ///< 1: all required are sent (where unknown: are among the first k), else 0
  unjudged,           ///< share of the first k that nobody judged; only where there is a list
};
inline constexpr std::size_t measure_count = 9;

/// "ndcg" and so on.
[[nodiscard]] inline std::string_view name_of(measure which) {
  constexpr std::array<std::string_view, measure_count> names{
      "ndcg",          "average_precision", "reciprocal_rank", "precision", "recall",
      "budget_recall", "first_required",    "all_required",    "unjudged"};
  return names[static_cast<std::size_t>(which)];
}

/// Why a question counts in the means, or does not.
enum class question_outcome {
  measured,      ///< counts
  no_result,     ///< judged, but the list is empty or missing: counts 0
  failed,        ///< the search failed: counts 0
  unanswerable,  ///< by its kind: kept apart
  forbidden,     ///< not answerable for this reader, who may not see what is required: kept apart
  not_judged,    ///< nothing relevant is known: left out
};

/// One judged question, measured.
struct question_measures {
  std::string id = {};
  std::string kind = {};
  question_outcome outcome = question_outcome::measured;
  std::array<std::optional<double>, measure_count> values = {};
  std::size_t first_required_rank = 0;  ///< from 1; 0: not in the list

  [[nodiscard]] const std::optional<double>& operator[](measure which) const {
    return values[static_cast<std::size_t>(which)];
  }
};

/// A mean and the number of questions behind it; without questions 0 of 0.
struct mean_value {
  double value = 0;
  std::size_t n = 0;
};

/// The means of some questions.
struct measure_means {
  std::size_t questions = 0;  ///< that count, those without a result included
  std::array<mean_value, measure_count> values = {};

  [[nodiscard]] const mean_value& operator[](measure which) const {
    return values[static_cast<std::size_t>(which)];
  }
};

/// Questions without an answer: there is no recall, only whether the system knew.
struct unanswerable_counts {
  std::size_t questions = 0;
  std::size_t returned = 0;      ///< something was returned all the same
  std::size_t with_rule = 0;     ///< an evidence rule was asked
  std::size_t passed_rule = 0;   ///< ... and called the evidence enough, with something returned
  std::size_t insufficient = 0;  ///< ... and said that it is not enough
};

/// An id that deserves a look, and the question that it belongs to.
struct evaluation_note {
  std::string question = {};
  std::string id = {};
  friend bool operator==(const evaluation_note&, const evaluation_note&) = default;
};

/// All that evaluate found.
struct evaluation {
  std::size_t k = 10;
  measure_means overall = {};
  std::map<std::string, measure_means> by_kind = {};  ///< answerable kinds
  unanswerable_counts unanswerable = {};
  std::size_t wrongly_insufficient = 0;           ///< answerable, yet the rule said not enough
  std::vector<question_measures> questions = {};  ///< in the order of the judged questions
  std::vector<evaluation_note> leaks = {};        ///< forbidden, and yet in a list: this run failed
  std::vector<evaluation_note> repeated_results = {};     ///< an id again in one list
  std::vector<evaluation_note> repeated_judgements = {};  ///< an id again among the judged, or the
                                                          ///< required; the larger relevance holds
  std::vector<evaluation_note> stale = {};  ///< the text has another revision than the judged one
  std::vector<std::string> unjudged_questions = {};  ///< have a list and no relevant judgement
  std::vector<evaluation_note> failures = {};        ///< question, and why its search failed

  /// The ids of the questions with this outcome.
  [[nodiscard]] std::vector<std::string> with(question_outcome outcome) const {
    std::vector<std::string> ids;
    for (const question_measures& each : questions) {
      if (each.outcome == outcome) ids.push_back(each.id);
    }
    return ids;
  }
};

struct evaluation_options {
  std::size_t k = 10;  ///< places that nDCG, P, recall and the unjudged share look at, at least 1
};

namespace detail {

/// A question's judgements as sets, without what its reader may not see.
struct judged_sets {
  std::unordered_map<std::string_view, int> relevance;
  detail::key_set<std::string_view> required, forbidden;
  std::vector<int> gains;        // of the relevant, largest first
  bool needs_forbidden = false;  // no answer without what is forbidden

  [[nodiscard]] int gain_of(std::string_view id) const {
    const auto found = relevance.find(id);
    return found == relevance.end() ? 0 : (std::max)(found->second, 0);
  }
};

[[nodiscard]] inline judged_sets sets_of(const judged_question& question,
                                         std::vector<evaluation_note>& repeated) {
  judged_sets sets;
  sets.forbidden.insert(question.forbidden.begin(), question.forbidden.end());
  for (const judgement& each : question.judgements) {
    const auto [found, fresh] = sets.relevance.try_emplace(each.id, each.relevance);
    if (fresh) continue;
    repeated.push_back({question.id, each.id});
    found->second = (std::max)(found->second, each.relevance);
  }
  for (const std::string& id : question.required) {
    if (!sets.required.insert(id)) repeated.push_back({question.id, id});
    const auto known = sets.relevance.try_emplace(id, 1).first;
    known->second = (std::max)(known->second, 1);  // what is needed is relevant
  }
  bool lost_relevant = false;
  for (const std::string& id : question.forbidden) {
    if (sets.required.erase(id)) sets.needs_forbidden = true;
    if (sets.gain_of(id) > 0) lost_relevant = true;
    sets.relevance.erase(id);
  }
  for (const auto& [id, relevance] : sets.relevance) {
    if (relevance <= 0) continue;
    sets.gains.push_back(relevance);
    if (question.required.empty()) sets.required.insert(id);
  }
  if (sets.gains.empty() && lost_relevant) sets.needs_forbidden = true;
  std::sort(sets.gains.begin(), sets.gains.end(), std::greater<>());
  return sets;
}

/// The ids of a list, each once, in its order.
[[nodiscard]] inline std::vector<std::string_view> distinct_ids(
    const std::string& question, const std::vector<std::string>& ids,
    std::vector<evaluation_note>* repeated) {
  std::vector<std::string_view> out;
  detail::key_set<std::string_view> seen;
  for (const std::string& id : ids) {
    if (seen.insert(id)) {
      out.push_back(id);
    } else if (repeated != nullptr) {
      repeated->push_back({question, id});
    }
  }
  return out;
}

[[nodiscard]] inline double discounted(double gain, std::size_t rank) {
  return gain / std::log2(static_cast<double>(rank) + 1.0);
}

/// nDCG, average precision, reciprocal rank, P and recall of one list.
inline void measure_relevance(question_measures& out, const judged_sets& sets,
                              std::span<const std::string_view> ids, std::size_t k) {
  double dcg = 0;
  double precisions = 0;
  double first = 0;
  std::size_t found = 0;
  std::size_t found_in_k = 0;
  for (std::size_t rank = 1; rank <= ids.size(); ++rank) {
    const int gain = sets.gain_of(ids[rank - 1]);
    if (gain == 0) continue;
    ++found;
    precisions += static_cast<double>(found) / static_cast<double>(rank);
    if (found == 1) first = 1.0 / static_cast<double>(rank);
    if (rank > k) continue;
    found_in_k = found;
    dcg += discounted(gain, rank);
  }
  double best = 0;
  for (std::size_t i = 0; i < (std::min)(k, sets.gains.size()); ++i) {
    best += discounted(sets.gains[i], i + 1);
  }
  const auto relevant = static_cast<double>(sets.gains.size());
  const auto set = [&out](measure which, double value) {
    out.values[static_cast<std::size_t>(which)] = value;
  };
  set(measure::ndcg, dcg / best);
  set(measure::average_precision, precisions / relevant);
  set(measure::reciprocal_rank, first);
  set(measure::precision, static_cast<double>(found_in_k) / static_cast<double>(k));
  set(measure::recall, static_cast<double>(found_in_k) / relevant);
}

/// Where the required ones stand, how many of them are sent, and what nobody judged.
inline void measure_required(question_measures& out, const judged_sets& sets,
                             std::span<const std::string_view> ids,
                             const std::vector<std::string>* sent, std::size_t k) {
  const auto set = [&out](measure which, double value) {
    out.values[static_cast<std::size_t>(which)] = value;
  };
  const auto required_in = [&sets](std::span<const std::string_view> some) {
    return static_cast<std::size_t>(std::count_if(
        some.begin(), some.end(), [&](std::string_view id) { return sets.required.contains(id); }));
  };
  std::size_t rank = 0;
  for (std::size_t i = 0; i < ids.size() && rank == 0; ++i) {
    if (sets.required.contains(ids[i])) rank = i + 1;
  }
  out.first_required_rank = rank;
  set(measure::first_required, rank == 0 ? 0.0 : 1.0 / static_cast<double>(rank));

  const auto first_k = ids.first((std::min)(k, ids.size()));
  std::size_t handed_out = required_in(first_k);
  if (sent != nullptr) {
    handed_out = required_in(distinct_ids(out.id, *sent, nullptr));
    set(measure::budget_recall,
        static_cast<double>(handed_out) / static_cast<double>(sets.required.size()));
  }
  set(measure::all_required, handed_out == sets.required.size() ? 1.0 : 0.0);
  if (first_k.empty()) return;
  const auto unjudged = std::count_if(first_k.begin(), first_k.end(), [&](std::string_view id) {
    return !sets.relevance.contains(id) && !sets.forbidden.contains(id);
  });
  set(measure::unjudged, static_cast<double>(unjudged) / static_cast<double>(first_k.size()));
}

[[nodiscard]] inline question_outcome outcome_of(const judged_question& question,
                                                 const judged_sets& sets, const ranked_list* list,
                                                 std::size_t found) {
  if (question.kind == unanswerable_kind) return question_outcome::unanswerable;
  if (sets.needs_forbidden) return question_outcome::forbidden;
  if (sets.gains.empty()) return question_outcome::not_judged;
  if (list != nullptr && !list->failure.empty()) return question_outcome::failed;
  return found == 0 ? question_outcome::no_result : question_outcome::measured;
}

[[nodiscard]] inline bool counts(question_outcome outcome) {
  return outcome == question_outcome::measured || outcome == question_outcome::no_result ||
         outcome == question_outcome::failed;
}

/// Adds up; the last step divides.
inline void add_to(measure_means& sums, const question_measures& question) {
  ++sums.questions;
  for (std::size_t i = 0; i < measure_count; ++i) {
    if (!question.values[i]) continue;
    sums.values[i].value += *question.values[i];
    ++sums.values[i].n;
  }
}
inline void divide(measure_means& sums) {
  for (mean_value& each : sums.values) {
    if (each.n != 0) each.value /= static_cast<double>(each.n);
  }
}

/// What is wrong with the questions and lists, if anything; else the list of each question.
[[nodiscard]] inline result<std::unordered_map<std::string_view, const ranked_list*>> match_lists(
    std::span<const judged_question> questions, std::span<const ranked_list> lists, std::size_t k) {
  if (k == 0) return error(errc::invalid_argument, "evaluate: k 0 must be at least 1");
  std::unordered_map<std::string_view, const ranked_list*> list_of;
  for (const ranked_list& list : lists) {
    if (!list_of.try_emplace(list.question, &list).second) {
      return error(errc::duplicate_id,
                   "evaluate: question " + in_quotes(list.question) + " has two ranked lists");
    }
    for (const std::size_t count : {list.scores.size(), list.revisions.size()}) {
      if (count == 0 || count == list.ids.size()) continue;
      return error(errc::invalid_argument,
                   "evaluate: the list of question " + in_quotes(list.question) + " has " +
                       text_of(list.ids.size()) + " ids and " + text_of(count) +
                       " scores or revisions, expected one for each id or none");
    }
  }
  detail::key_set<std::string_view> seen;
  for (const judged_question& question : questions) {
    if (!seen.insert(question.id)) {
      return error(errc::duplicate_id,
                   "evaluate: question " + in_quotes(question.id) + " is judged twice");
    }
  }
  return list_of;
}

/// Leaks, stale judgements and the failure of one question: what must be seen beside the numbers.
inline void note_oddities(evaluation& out, const judged_question& question, const judged_sets& sets,
                          const ranked_list& list) {
  if (!list.failure.empty()) out.failures.push_back({question.id, list.failure});
  detail::key_set<std::string_view> told;
  const auto look_for_leaks = [&](const std::vector<std::string>& ids) {
    for (const std::string& id : ids) {
      if (!sets.forbidden.contains(id) || !told.insert(id)) continue;
      out.leaks.push_back({question.id, id});
    }
  };
  look_for_leaks(list.ids);
  if (list.sent) look_for_leaks(*list.sent);
  if (list.revisions.empty()) return;
  std::unordered_map<std::string_view, std::uint64_t> now;
  for (std::size_t i = 0; i < list.ids.size(); ++i) now.emplace(list.ids[i], list.revisions[i]);
  for (const judgement& each : question.judgements) {
    const auto found = now.find(each.id);
    if (!each.revision || found == now.end() || found->second == *each.revision) continue;
    out.stale.push_back({question.id, each.id});
  }
}

inline void count_unanswerable(unanswerable_counts& counts, const ranked_list* list) {
  ++counts.questions;
  if (list == nullptr) return;
  const bool returned = list->sent ? !list->sent->empty() : !list->ids.empty();
  if (returned) ++counts.returned;
  if (!list->sufficient) return;
  ++counts.with_rule;
  if (!*list->sufficient) ++counts.insufficient;
  if (*list->sufficient && returned) ++counts.passed_rule;
}

/// Measures one question and adds it to the means and the lists of `out`. `sent_known`: this run
/// says what is sent, so that for a question without a list nothing was.
inline void measure_question(evaluation& out, const judged_question& question,
                             const ranked_list* list, bool sent_known) {
  const judged_sets sets = sets_of(question, out.repeated_judgements);
  std::vector<std::string_view> ids;
  if (list != nullptr) {
    ids = distinct_ids(question.id, list->ids, &out.repeated_results);
    note_oddities(out, question, sets, *list);
    if (!list->failure.empty()) ids.clear();
  }
  question_measures measured{.id = question.id, .kind = question.kind};
  measured.outcome = outcome_of(question, sets, list, ids.size());
  if (measured.outcome == question_outcome::unanswerable) {
    count_unanswerable(out.unanswerable, list);
  } else if (measured.outcome == question_outcome::not_judged && list != nullptr) {
    out.unjudged_questions.push_back(question.id);
  }
  if (counts(measured.outcome)) {
    measure_relevance(measured, sets, ids, out.k);
    const std::vector<std::string> nothing;
    const bool usable = list != nullptr && list->failure.empty();
    const auto* sent = !usable ? &nothing : list->sent ? &*list->sent : nullptr;
    measure_required(measured, sets, ids, sent_known ? sent : nullptr, out.k);
    add_to(out.overall, measured);
    add_to(out.by_kind[question.kind], measured);
    if (list != nullptr && list->sufficient == false) ++out.wrongly_insufficient;
  }
  out.questions.push_back(std::move(measured));
}

}  // namespace detail

/// Measures ranked lists against judged questions.
///
/// questions  each id once; required and relevant ones that are forbidden leave the question's sets
/// lists      at most one for each question, in any order; others are named and left out
/// returns    measures of each question, their means overall and by kind, and what needs a look
/// errors     invalid_argument: k 0, or scores or revisions of another count than ids;
///            duplicate_id: two questions or two lists of one id
/// cost       O(ids + judgements), expected
///
/// Required A and B, list A, A, X: repeats are reported, recall is 1/2, the first required rank 1.
[[nodiscard]] inline result<evaluation> try_evaluate(std::span<const judged_question> questions,
                                                     std::span<const ranked_list> lists,
                                                     const evaluation_options& options = {}) {
  const auto list_of = detail::match_lists(questions, lists, options.k);
  if (!list_of) return list_of.failure();
  evaluation out;
  out.k = options.k;
  const bool sent_known = std::any_of(
      lists.begin(), lists.end(), [](const ranked_list& list) { return list.sent.has_value(); });
  detail::key_set<std::string_view> judged;
  for (const judged_question& question : questions) {
    judged.insert(question.id);
    const auto found = list_of->find(question.id);
    const ranked_list* list = found == list_of->end() ? nullptr : found->second;
    detail::measure_question(out, question, list, sent_known);
  }
  for (const ranked_list& list : lists) {
    if (!judged.contains(list.question)) out.unjudged_questions.push_back(list.question);
  }
  detail::divide(out.overall);
  for (auto& [kind, means] : out.by_kind) detail::divide(means);
  return out;
}
[[nodiscard]] inline evaluation evaluate(std::span<const judged_question> questions,
                                         std::span<const ranked_list> lists,
                                         const evaluation_options& options = {}) {
  return try_evaluate(questions, lists, options).value();
}

// ---- percentiles, intervals, corrections --------------------------------------------------------

/// A percentile by nearest rank: always one of the samples.
struct percentile_value {
  double value = 0;
  std::size_t n = 0;        ///< samples behind it
  bool few_samples = true;  ///< fewer than 20: a high percentile is then little but the maximum
};

/// The sample at place ceil(p n) - 1 of the sorted samples. Without samples: 0, of 0.
///
/// p       above 0, at most 1: 0.5 is the median, 0.95 what one of twenty exceeds
/// errors  invalid_argument: p; not_finite: a sample
/// cost    O(n log n)
///
/// Of 1, 2, ... 20 ms: p50 is 10 ms and p95 is 19 ms. Percentiles of stages do not add up to the
/// percentile of their total.
[[nodiscard]] inline result<percentile_value> try_percentile(std::vector<double> samples,
                                                             double p) {
  if (!detail::is_finite(p) || p <= 0 || p > 1) {
    return error(errc::invalid_argument,
                 "percentile: p " + detail::decimal_text(p) + " must be above 0 and at most 1");
  }
  for (double sample : samples) {
    if (!detail::is_finite(sample)) {
      return error(errc::not_finite, "percentile: a sample is NaN or infinite");
    }
  }
  const std::size_t n = samples.size();
  if (n == 0) return percentile_value{};
  // The small part keeps 0.07 x 100 at 7, although the product of the doubles is a little more.
  const double place = std::ceil(p * static_cast<double>(n) - 1e-9);
  const std::size_t index = place < 1 ? 0 : (std::min)(static_cast<std::size_t>(place), n) - 1;
  std::sort(samples.begin(), samples.end());
  return percentile_value{samples[index], n, n < 20};
}
[[nodiscard]] inline percentile_value percentile(std::vector<double> samples, double p) {
  return try_percentile(std::move(samples), p).value();
}

/// How to compare two runs over the same questions.
struct bootstrap_options {
  std::size_t rounds = 10000;  ///< resamples, and sign draws, at least 1; more: smoother
  std::uint64_t seed = 1;      ///< the same seed gives the same interval on every platform
  double level = 0.95;         ///< of the interval, above 0 and below 1
};

/// What the second of two runs adds, question by question.
struct comparison {
  std::size_t n = 0;         ///< questions that both runs have a value for
  double difference = 0;     ///< mean of second minus first
  double low = 0, high = 0;  ///< percentile interval of that mean, by paired bootstrap
  std::size_t wins = 0, ties = 0, losses = 0;  ///< questions on which the second is better, ...
  double p = 1;                                ///< two-sided, by flipping signs at random
  double adjusted_p = 1;  ///< after Holm's correction, where several were made; else p
  double level = 0.95;

  /// Whether the sign of the difference may be believed: it withstands the correction and the
  /// interval leaves out 0.
  [[nodiscard]] bool decided() const { return adjusted_p < 1 - level && (low > 0 || high < 0); }
};

namespace detail {

/// Means of as many draws, with putting back, as there are differences.
[[nodiscard]] inline std::vector<double> resampled_means(std::span<const double> differences,
                                                         std::size_t rounds,
                                                         random_source& random) {
  std::vector<double> means(rounds);
  for (double& mean : means) {
    for (std::size_t i = 0; i < differences.size(); ++i) {
      mean += differences[static_cast<std::size_t>(random.below(differences.size()))];
    }
    mean /= static_cast<double>(differences.size());
  }
  return means;
}

/// How often a sum of at least this size arises if which run is which is decided by a coin for
/// each question.
[[nodiscard]] inline double sign_flip_p(std::span<const double> differences, double sum,
                                        std::size_t rounds, random_source& random) {
  const double bound = sum * (1 - 1e-12);  // equal sums may differ in their last bit
  std::size_t as_extreme = 1;
  for (std::size_t round = 0; round < rounds; ++round) {
    double flipped = 0;
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < differences.size(); ++i, bits >>= 1) {
      if (i % 64 == 0) bits = random.next();
      flipped += (bits & 1U) != 0 ? differences[i] : -differences[i];
    }
    if (std::fabs(flipped) >= bound) ++as_extreme;
  }
  return static_cast<double>(as_extreme) / (static_cast<double>(rounds) + 1);
}

}  // namespace detail

/// Compares two runs by paired values: both hold the same questions in the same order.
///
/// returns  the mean difference, its bootstrap interval over questions, and the p-value of a
///          randomization test; p is never 0, but (as extreme + 1) / (rounds + 1)
/// errors   invalid_argument: other counts, rounds 0, level; not_finite: a value
/// cost     O(rounds x n)
[[nodiscard]] inline result<comparison> try_compare_paired(std::span<const double> first,
                                                           std::span<const double> second,
                                                           const bootstrap_options& options = {}) {
  const auto refuse = [](errc code, const std::string& sentence) {
    return error(code, "compare_paired: " + sentence);
  };
  if (first.size() != second.size()) {
    return refuse(errc::invalid_argument, detail::text_of(first.size()) + " values and " +
                                              detail::text_of(second.size()) +
                                              ", expected as many");
  }
  if (options.rounds == 0) return refuse(errc::invalid_argument, "rounds 0 must be at least 1");
  if (!detail::is_finite(options.level) || options.level <= 0 || options.level >= 1) {
    return refuse(errc::invalid_argument,
                  "level " + detail::decimal_text(options.level) + " must be above 0 and below 1");
  }
  comparison out{.n = first.size(), .level = options.level};
  std::vector<double> differences;
  double sum = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    differences.push_back(second[i] - first[i]);
    if (!detail::is_finite(differences.back())) {
      return refuse(errc::not_finite, "value " + detail::text_of(i + 1) + " is NaN or infinite");
    }
    sum += differences.back();
    ++(differences.back() > 0 ? out.wins : differences.back() < 0 ? out.losses : out.ties);
  }
  if (differences.empty()) return out;

  out.difference = sum / static_cast<double>(differences.size());
  detail::random_source random(options.seed);
  std::vector<double> means = detail::resampled_means(differences, options.rounds, random);
  const double tail = (1 - options.level) / 2;
  out.low = percentile(means, tail).value;
  out.high = percentile(std::move(means), 1 - tail).value;
  out.p = detail::sign_flip_p(differences, std::fabs(sum), options.rounds, random);
  out.adjusted_p = out.p;
  return out;
}
[[nodiscard]] inline comparison compare_paired(std::span<const double> first,
                                               std::span<const double> second,
                                               const bootstrap_options& options = {}) {
  return try_compare_paired(first, second, options).value();
}

/// Compares one measure of two evaluations over the questions that have a value in both.
/// errors  as try_compare_paired; invalid_argument: the evaluations are of other questions
[[nodiscard]] inline result<comparison> try_compare(const evaluation& first,
                                                    const evaluation& second, measure which,
                                                    const bootstrap_options& options = {}) {
  const bool same = std::equal(
      first.questions.begin(), first.questions.end(), second.questions.begin(),
      second.questions.end(),
      [](const question_measures& a, const question_measures& b) { return a.id == b.id; });
  if (!same) {
    return error(errc::invalid_argument,
                 "compare: the two evaluations hold other questions, or in another order");
  }
  std::vector<double> before, after;
  for (std::size_t i = 0; i < first.questions.size(); ++i) {
    const auto& a = first.questions[i][which];
    const auto& b = second.questions[i][which];
    if (!a || !b) continue;
    before.push_back(*a);
    after.push_back(*b);
  }
  return try_compare_paired(before, after, options);
}
[[nodiscard]] inline comparison compare(const evaluation& first, const evaluation& second,
                                        measure which, const bootstrap_options& options = {}) {
  return try_compare(first, second, which, options).value();
}

/// Holm's step-down correction: p-values of several comparisons, made fit to be read together.
///
/// returns  adjusted p-values in the order given, each at least its p and at most 1
/// cost     O(n log n)
///
/// 0.01, 0.04, 0.03 become 0.03, 0.06, 0.06.
[[nodiscard]] inline std::vector<double> holm_adjusted(std::span<const double> p_values) {
  std::vector<std::size_t> order(p_values.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [p_values](std::size_t a, std::size_t b) {
    return p_values[a] != p_values[b] ? p_values[a] < p_values[b] : a < b;
  });
  std::vector<double> adjusted(p_values.size());
  double largest = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto left = static_cast<double>(order.size() - i);
    largest = (std::max)(largest, (std::min)(1.0, left * p_values[order[i]]));
    adjusted[order[i]] = largest;
  }
  return adjusted;
}

// ---- numbers in files ---------------------------------------------------------------------------

namespace detail {

/// A whole number of any size, least significant word first: what exact conversion between decimal
/// and binary fractions needs. The standard conversions follow the locale or are not everywhere.
class big_number {
 public:
  explicit big_number(std::uint64_t value = 0) {
    for (; value != 0; value >>= 32) words_.push_back(static_cast<std::uint32_t>(value));
  }

  void multiply_add(std::uint32_t factor, std::uint32_t addend) {
    std::uint64_t carry = addend;
    for (std::uint32_t& word : words_) {
      carry += std::uint64_t{word} * factor;
      word = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) words_.push_back(static_cast<std::uint32_t>(carry));
  }
  void multiply_by_power_of_10(int exponent) {
    for (; exponent > 0; --exponent) multiply_add(10, 0);
  }
  void shift_left(std::size_t bits) {
    if (words_.empty()) return;
    if (bits % 32 != 0) multiply_add(std::uint32_t{1} << (bits % 32), 0);
    words_.insert(words_.begin(), bits / 32, 0);
  }
  /// Only where `other` is not larger.
  void subtract(const big_number& other) {
    std::uint64_t borrow = 0;
    for (std::size_t i = 0; i < words_.size(); ++i) {
      const std::uint64_t taken = borrow + (i < other.words_.size() ? other.words_[i] : 0U);
      borrow = words_[i] < taken ? 1 : 0;
      words_[i] = static_cast<std::uint32_t>(words_[i] - taken);
    }
    while (!words_.empty() && words_.back() == 0) words_.pop_back();
  }
  [[nodiscard]] std::size_t bit_length() const {
    if (words_.empty()) return 0;
    std::size_t bits = 32 * (words_.size() - 1);
    for (std::uint32_t top = words_.back(); top != 0; top >>= 1) ++bits;
    return bits;
  }
  /// Below 0, 0 or above 0, as this is smaller, equal or larger.
  [[nodiscard]] int compared_to(const big_number& other) const {
    if (words_.size() != other.words_.size()) return words_.size() < other.words_.size() ? -1 : 1;
    for (std::size_t i = words_.size(); i-- > 0;) {
      if (words_[i] != other.words_[i]) return words_[i] < other.words_[i] ? -1 : 1;
    }
    return 0;
  }

 private:
  std::vector<std::uint32_t> words_;
};

/// The double closest to top / bottom, both above 0; ties to even. Nothing: too large for one.
[[nodiscard]] inline std::optional<double> closest_double(big_number top, big_number bottom) {
  const auto exponent_of = [](const big_number& number) {
    return static_cast<int>(number.bit_length());
  };
  int exponent = exponent_of(top) - exponent_of(bottom);
  if (exponent < 0) top.shift_left(static_cast<std::size_t>(-exponent));
  if (exponent > 0) bottom.shift_left(static_cast<std::size_t>(exponent));
  if (top.compared_to(bottom) < 0) {
    top.shift_left(1);
    --exponent;
  }
  // Now 1 <= top / bottom < 2. A double holds 53 bits of it, fewer below 2^-1022.
  const int bits = (std::min)(53, 53 + exponent + 1022);
  if (bits < 0) return 0.0;
  std::uint64_t mantissa = 0;
  for (int i = 0; i < bits; ++i) {
    const bool bit = top.compared_to(bottom) >= 0;
    if (bit) top.subtract(bottom);
    top.shift_left(1);
    mantissa = 2 * mantissa + (bit ? 1 : 0);
  }
  const int rest = top.compared_to(bottom);
  if (rest > 0 || (rest == 0 && mantissa % 2 != 0)) ++mantissa;
  if (exponent > 1023 || (exponent == 1023 && mantissa == std::uint64_t{1} << 53)) {
    return std::nullopt;
  }
  return std::ldexp(static_cast<double>(mantissa), exponent - (bits - 1));
}

/// A decimal number as JSON and TREC files write it: sign, digits with or without a point,
/// exponent. Nothing: not such a number, longer than 800 bytes, or too large for a double.
[[nodiscard]] inline std::optional<double> parse_number(std::string_view text) {
  if (text.size() > 800) return std::nullopt;
  std::size_t at = 0;
  const auto sees = [&](std::string_view any) {
    return at < text.size() && any.find(text[at]) != std::string_view::npos;
  };
  const bool negative = sees("-");
  if (sees("+-")) ++at;
  big_number digits;
  bool any_digit = false;
  int significant = 0;  // digits from the first that is not 0
  int exponent = 0;
  for (bool after_point = false; sees("0123456789") || (sees(".") && !after_point); ++at) {
    if (text[at] == '.') {
      after_point = true;
      continue;
    }
    const auto digit = static_cast<std::uint32_t>(text[at] - '0');
    digits.multiply_add(10, digit);
    any_digit = true;
    if (significant > 0 || digit != 0) ++significant;
    if (after_point) --exponent;
  }
  if (!any_digit) return std::nullopt;
  if (sees("eE")) {
    ++at;
    const bool down = sees("-");
    if (sees("+-")) ++at;
    if (!sees("0123456789")) return std::nullopt;
    int written = 0;
    for (; sees("0123456789"); ++at) written = (std::min)(written * 10 + (text[at] - '0'), 5000);
    exponent += down ? -written : written;
  }
  if (at != text.size()) return std::nullopt;
  if (significant == 0 || significant + exponent < -330) return negative ? -0.0 : 0.0;
  if (significant + exponent > 310) return std::nullopt;
  big_number bottom(1);
  digits.multiply_by_power_of_10(exponent);
  bottom.multiply_by_power_of_10(-exponent);
  const std::optional<double> size = closest_double(std::move(digits), std::move(bottom));
  if (!size) return std::nullopt;
  return negative ? -*size : *size;
}

/// `count` significant digits of a finite value above 0, rounded, and the exponent of the first.
[[nodiscard]] inline std::pair<std::string, int> decimal_digits(double value, std::size_t count) {
  int binary = 0;
  const double fraction = std::frexp(value, &binary);  // value = fraction x 2^binary
  big_number top(static_cast<std::uint64_t>(std::ldexp(fraction, 53)));
  big_number bottom(1);
  binary -= 53;
  if (binary > 0) top.shift_left(static_cast<std::size_t>(binary));
  if (binary < 0) bottom.shift_left(static_cast<std::size_t>(-binary));
  int exponent = static_cast<int>(std::floor(std::log10(value)));  // at most one off
  top.multiply_by_power_of_10(-exponent);
  bottom.multiply_by_power_of_10(exponent);
  for (; top.compared_to(bottom) < 0; --exponent) top.multiply_add(10, 0);
  const auto ten_times = [](big_number number) {
    number.multiply_add(10, 0);
    return number;
  };
  for (; top.compared_to(ten_times(bottom)) >= 0; ++exponent) bottom.multiply_add(10, 0);

  std::string digits;
  while (digits.size() < count) {
    char digit = '0';
    for (; top.compared_to(bottom) >= 0; ++digit) top.subtract(bottom);
    digits += digit;
    top.multiply_add(10, 0);
  }
  bottom.multiply_add(5, 0);
  if (top.compared_to(bottom) >= 0) {
    std::size_t last = digits.find_last_not_of('9');
    if (last == std::string::npos) return {"1" + std::string(count - 1, '0'), exponent + 1};
    ++digits[last];
    std::fill(digits.begin() + static_cast<std::ptrdiff_t>(last) + 1, digits.end(), '0');
  }
  return {digits, exponent};
}

/// As many of 15, 16 or 17 digits as read back to the same double, zeros at the end left out: 0.1,
/// 12.033, 1.5e-7, in any locale. Only for finite values.
[[nodiscard]] inline std::string exact_text(double value) {
  if (value == 0) return std::signbit(value) ? "-0" : "0";
  const double size = std::fabs(value);
  std::string out;
  for (std::size_t count = 15; count <= 17; ++count) {
    auto [digits, exponent] = decimal_digits(size, count);
    digits.erase(digits.find_last_not_of('0') + 1);
    out = value < 0 ? "-" : "";
    const auto places = static_cast<int>(digits.size());
    if (exponent < -5 || exponent > 16) {
      out += digits.substr(0, 1) + (places > 1 ? "." + digits.substr(1) : "");
      out += 'e' + std::to_string(exponent);
    } else if (exponent < 0) {
      out += "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
    } else if (places <= exponent + 1) {
      out += digits + std::string(static_cast<std::size_t>(exponent + 1 - places), '0');
    } else {
      const auto whole = static_cast<std::size_t>(exponent) + 1;
      out += digits.substr(0, whole) + '.' + digits.substr(whole);
    }
    if (parse_number(out) == value) break;
  }
  return out;
}

// ---- TREC files ---------------------------------------------------------------------------------

/// A whole number that fits into an int. Nothing: not one.
[[nodiscard]] inline std::optional<int> parse_int(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text.size() > 10) return std::nullopt;
  std::int64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  if (negative) value = -value;
  const bool fits =
      value >= (std::numeric_limits<int>::min)() && value <= (std::numeric_limits<int>::max)();
  return fits ? std::optional<int>(static_cast<int>(value)) : std::nullopt;
}

/// The fields of a line: what tabs separate, or what runs of white space separate.
[[nodiscard]] inline std::vector<std::string_view> fields_of(std::string_view line, bool by_tabs) {
  std::vector<std::string_view> fields;
  for (std::size_t at = 0; at <= line.size();) {
    const std::size_t end = (std::min)(line.find_first_of(by_tabs ? "\t" : " \t", at), line.size());
    if (by_tabs || end > at) fields.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return fields;
}

/// Calls visit(number, line) for each line that is not blank, from 1, until one is refused. A byte
/// order mark is no part of the first. Errors say which line.
template <class Visit>
[[nodiscard]] result<void> for_each_line(std::string_view text, std::string_view what,
                                         const Visit& visit) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const text_line line = line_at(text, at);
    at = line.next;
    ++number;
    const std::string_view content = slice(text, line.content);
    if (content.find_first_not_of(" \t") == std::string_view::npos) continue;
    const std::string wrong = visit(content);
    if (wrong.empty()) continue;
    return error(errc::invalid_argument,
                 std::string(what) + ": line " + text_of(number) + ": " + wrong);
  }
  return {};
}

/// The position of a question in a list that grows by those that are new.
template <class Entry>
[[nodiscard]] std::size_t place_of(std::vector<Entry>& entries, text_map<std::size_t>& places,
                                   std::string_view question, std::string Entry::* id) {
  const auto found = places.find(question);
  if (found != places.end()) return found->second;
  places.emplace(std::string(question), entries.size());
  entries.emplace_back();
  entries.back().*id = std::string(question);
  return entries.size() - 1;
}

[[nodiscard]] inline result<void> check_field(std::string_view call, std::string_view field,
                                              std::string_view value, bool spaces_allowed) {
  const std::string_view separators = spaces_allowed ? "\t\r\n" : " \t\r\n\v\f";
  if (!value.empty() && value.find_first_of(separators) == std::string_view::npos) return {};
  return error(errc::invalid_argument, std::string(call) + ": " + std::string(field) + " " +
                                           in_quotes(value) +
                                           " is empty or holds white space, which this form of "
                                           "file cannot carry");
}

}  // namespace detail

/// Reads a TREC run: lines of `question Q0 id rank score tag`, separated by white space.
///
/// returns  one list for each question, questions in order of first appearance; within a list the
///          order is that of the ranks, and of the lines where ranks are equal. Scores are kept,
///          but order nothing
/// errors   invalid_argument, with the line: not six fields, a rank that is no whole number of at
///          least 0, a score that is no number
/// cost     O(bytes + n log n)
[[nodiscard]] inline result<std::vector<ranked_list>> try_read_run(std::string_view text) {
  struct entry {
    int rank;
    std::size_t line;  // among the lines of its question
    std::string_view id;
    double score;
  };
  std::vector<ranked_list> lists;
  std::vector<std::vector<entry>> entries;
  detail::text_map<std::size_t> places;
  const auto read = detail::for_each_line(text, "run", [&](std::string_view line) -> std::string {
    const auto fields = detail::fields_of(line, false);
    if (fields.size() != 6) {
      return detail::text_of(fields.size()) + " fields, expected 6: question Q0 id rank score tag";
    }
    const auto rank = detail::parse_int(fields[3]);
    if (!rank || *rank < 0) {
      return "rank " + detail::in_quotes(fields[3]) + " is no whole number of at least 0";
    }
    const auto score = detail::parse_number(fields[4]);
    if (!score) return "score " + detail::in_quotes(fields[4]) + " is no number";
    const std::size_t place = detail::place_of(lists, places, fields[0], &ranked_list::question);
    entries.resize(lists.size());
    entries[place].push_back({*rank, entries[place].size(), fields[2], *score});
    return {};
  });
  if (!read) return read.failure();
  for (std::size_t i = 0; i < lists.size(); ++i) {
    std::sort(entries[i].begin(), entries[i].end(), [](const entry& a, const entry& b) {
      return a.rank != b.rank ? a.rank < b.rank : a.line < b.line;
    });
    for (const entry& each : entries[i]) {
      lists[i].ids.emplace_back(each.id);
      lists[i].scores.push_back(each.score);
    }
  }
  return lists;
}
[[nodiscard]] inline std::vector<ranked_list> read_run(std::string_view text) {
  return try_read_run(text).value();
}

/// Writes a TREC run, ranks from 1. Other programs order by score and not by rank, so where the
/// scores of a list are missing or rise from one place to the next (exact codes that were put
/// first), falling whole numbers stand in their place. Scores read back to the same doubles.
///
/// errors  invalid_argument: an id or the tag is empty or holds white space; another count of
///         scores than ids. not_finite: a score
[[nodiscard]] inline result<std::string> try_write_run(std::span<const ranked_list> lists,
                                                       std::string_view tag = "rag_retrieve") {
  if (auto checked = detail::check_field("write_run", "tag", tag, false); !checked) {
    return checked.failure();
  }
  std::string out;
  for (const ranked_list& list : lists) {
    if (auto checked = detail::check_field("write_run", "question", list.question, false);
        !checked) {
      return checked.failure();
    }
    const std::size_t count = list.ids.size();
    if (!list.scores.empty() && list.scores.size() != count) {
      return error(errc::invalid_argument, "write_run: question " +
                                               detail::in_quotes(list.question) + " has " +
                                               detail::text_of(list.scores.size()) +
                                               " scores for " + detail::text_of(count) + " ids");
    }
    for (double score : list.scores) {
      if (detail::is_finite(score)) continue;
      return error(errc::not_finite, "write_run: question " + detail::in_quotes(list.question) +
                                         " has a score that is NaN or infinite");
    }
    const bool falls = !list.scores.empty() &&
                       std::is_sorted(list.scores.begin(), list.scores.end(), std::greater<>());
    for (std::size_t i = 0; i < count; ++i) {
      if (auto checked = detail::check_field("write_run", "id", list.ids[i], false); !checked) {
        return checked.failure();
      }
      out += list.question + " Q0 " + list.ids[i] + ' ' + detail::text_of(i + 1) + ' ';
      out += falls ? detail::exact_text(list.scores[i]) : detail::text_of(count - i);
      out.append(" ").append(tag) += '\n';
    }
  }
  return out;
}
[[nodiscard]] inline std::string write_run(std::span<const ranked_list> lists,
                                           std::string_view tag = "rag_retrieve") {
  return try_write_run(lists, tag).value();
}

/// How a file of judgements is laid out.
enum class qrels_form {
  tabs,  ///< question, id, relevance with tabs between: ids may hold spaces
  trec,  ///< question, 0, id, relevance with spaces between
};

/// Reads judgements, each line in one of two forms: `question<TAB>id<TAB>relevance`, or TREC's
/// `question 0 id relevance`. A first line `query-id<TAB>corpus-id<TAB>score` is passed over.
///
/// returns  one question for each id, in order of first appearance, without text and kind; a line
///          that stands twice stays twice, for evaluate to report
/// errors   invalid_argument, with the line: other fields, a relevance that is no whole number, an
///          id that is judged twice and differently
/// cost     O(bytes)
[[nodiscard]] inline result<std::vector<judged_question>> try_read_qrels(std::string_view text) {
  std::vector<judged_question> questions;
  detail::text_map<std::size_t> places;
  std::vector<detail::text_map<int>> known;
  bool first = true;
  const auto read = detail::for_each_line(text, "qrels", [&](std::string_view line) -> std::string {
    const bool heading = first && line == "query-id\tcorpus-id\tscore";
    first = false;
    if (heading) return {};
    auto fields = detail::fields_of(line, true);
    if (fields.size() != 3) fields = detail::fields_of(line, false);
    if (fields.size() != 3 && fields.size() != 4) {
      return detail::text_of(fields.size()) +
             " fields, expected question<TAB>id<TAB>relevance or question 0 id relevance";
    }
    const std::string_view id = fields[fields.size() - 2];
    if (fields[0].empty() || id.empty()) return "the question or the id is empty";
    const auto relevance = detail::parse_int(fields.back());
    if (!relevance) {
      return "relevance " + detail::in_quotes(fields.back()) + " is no whole number";
    }
    const std::size_t place = detail::place_of(questions, places, fields[0], &judged_question::id);
    known.resize(questions.size());
    const auto before = known[place].emplace(std::string(id), *relevance).first->second;
    if (before != *relevance) {
      return detail::in_quotes(id) + " was judged " + std::to_string(before) +
             " for this question before, now " + std::to_string(*relevance);
    }
    questions[place].judgements.push_back({std::string(id), *relevance});
    return {};
  });
  if (!read) return read.failure();
  return questions;
}
[[nodiscard]] inline std::vector<judged_question> read_qrels(std::string_view text) {
  return try_read_qrels(text).value();
}

/// Writes judgements; what is required and judged nowhere else has relevance 1.
/// errors  invalid_argument: an id is empty, or holds what the form cannot carry
[[nodiscard]] inline result<std::string> try_write_qrels(std::span<const judged_question> questions,
                                                         qrels_form form = qrels_form::tabs) {
  const bool tabs = form == qrels_form::tabs;
  std::string out;
  for (const judged_question& question : questions) {
    std::vector<judgement> all = question.judgements;
    detail::key_set<std::string_view> judged;
    for (const judgement& each : question.judgements) judged.insert(each.id);
    for (const std::string& id : question.required) {
      if (judged.insert(id)) all.push_back({id, 1});
    }
    for (const judgement& each : all) {
      for (const std::string* id : {&question.id, &each.id}) {
        if (auto checked = detail::check_field("write_qrels", "id", *id, tabs); !checked) {
          return checked.failure();
        }
      }
      out += question.id + (tabs ? "\t" : " 0 ") + each.id + (tabs ? '\t' : ' ') +
             std::to_string(each.relevance) + '\n';
    }
  }
  return out;
}
[[nodiscard]] inline std::string write_qrels(std::span<const judged_question> questions,
                                             qrels_form form = qrels_form::tabs) {
  return try_write_qrels(questions, form).value();
}

// ---- runs and ablations over a retriever --------------------------------------------------------

/// What the ids of a ranked list name.
enum class ranked_by {
  chunk,
  document,  ///< each document once, at its best chunk's rank
};

namespace detail {

inline void add_ranked(ranked_list& list, const std::vector<permitted_passage>& passages,
                       ranked_by by) {
  detail::key_set<std::string_view> seen;
  for (const permitted_passage& passage : passages) {
    const std::string& id = by == ranked_by::chunk ? passage.id() : passage.document_id();
    if (!seen.insert(id)) continue;
    list.ids.push_back(id);
    list.scores.push_back(passage.score());
    list.revisions.push_back(passage.revision());
  }
}

/// One search of an ablation: the list, and what it says of the run.
struct ablation_search {
  ranked_list list;
  stage_timings timings;
  bool as_planned = false;  // the legs, and the reranker if wanted, did run
  bool degraded = false;
  std::string note;
};

}  // namespace detail

/// The candidates of one question in their order, as a run file lists them: without overlap dedupe,
/// cap per document, budget and page, which asked's own values do not change.
///
/// asked    its depth is the depth of each leg and of the list
/// returns  ids with scores and revisions; `question` is left empty
/// errors   as snapshot::try_search
[[nodiscard]] inline result<ranked_list> try_rank_candidates(const snapshot& state, query asked,
                                                             const scope& reader,
                                                             ranked_by by = ranked_by::chunk) {
  constexpr std::size_t no_limit = (std::numeric_limits<std::size_t>::max)();
  asked.overlap_threshold.reset();
  asked.token_budget.reset();
  asked.per_document = no_limit;
  asked.limit = no_limit;
  asked.offset = 0;
  const result<answer> found = state.try_search(asked, reader);
  if (!found) return found.failure();
  ranked_list list;
  detail::add_ranked(list, found->passages, by);
  list.ids.resize((std::min)(list.ids.size(), asked.depth));
  list.scores.resize(list.ids.size());
  list.revisions.resize(list.ids.size());
  return list;
}
[[nodiscard]] inline ranked_list rank_candidates(const snapshot& state, query asked,
                                                 const scope& reader,
                                                 ranked_by by = ranked_by::chunk) {
  return try_rank_candidates(state, std::move(asked), reader, by).value();
}

/// What an ablation runs and what it must reach.
struct ablation_options {
  query asked = {};  ///< limit, depth, caps, budget, fusion, reranker, evidence rule; its text,
                     ///< vector, mode and exact_first are replaced
  std::size_t k = 10;
  ranked_by by = ranked_by::chunk;            ///< what the judgements name
  measure compared = measure::budget_recall;  ///< what the intervals are about
  std::optional<double> recall_target = {};   ///< least mean recall at the budget, 0 to 1
  std::optional<double> p95_target = {};      ///< most milliseconds of a whole search, p95
  std::size_t warm_up = 1;                    ///< questions searched before the clock counts
  bootstrap_options bootstrap = {};
};

/// The times of one stage over all questions.
struct stage_percentiles {
  std::string_view stage = {};  ///< embedding, lexical, dense, recheck, fusion, rerank, selection,
                                ///< total; stages do not add up to the total's percentile
  percentile_value p50 = {}, p95 = {};  ///< milliseconds
};

/// p50 and p95 of each stage over the timings of some answers, the total last.
[[nodiscard]] inline std::vector<stage_percentiles> percentiles_by_stage(
    std::span<const stage_timings> times) {
  constexpr std::array<std::pair<std::string_view, double stage_timings::*>, 8> stages{
      {{"embedding", &stage_timings::embedding},
       {"lexical", &stage_timings::lexical},
       {"dense", &stage_timings::dense},
       {"recheck", &stage_timings::recheck},
       {"fusion", &stage_timings::fusion},
       {"rerank", &stage_timings::rerank},
       {"selection", &stage_timings::selection},
       {"total", &stage_timings::total}}};
  std::vector<stage_percentiles> out;
  for (const auto& [name, member] : stages) {
    std::vector<double> samples;
    for (const stage_timings& each : times) samples.push_back(each.*member);
    out.push_back({name, percentile(samples, 0.5), percentile(samples, 0.95)});
  }
  return out;
}

/// One variant of the search, measured.
struct variant_report {
  std::string name = {};
  search_mode mode = search_mode::lexical;
  bool exact_codes = false;
  bool reranked = false;
  bool ran = false;          ///< false: what it needs is not there; the rest is then empty
  std::string why_not = {};  ///< ... and why
  evaluation quality = {};
  std::vector<stage_percentiles> stages = {};
  std::size_t degraded = 0;  ///< searches that left a stage out

  /// Milliseconds of the whole search.
  [[nodiscard]] const percentile_value& p95() const { return stages.back().p95; }
};

/// Two variants compared.
struct ablation_step {
  std::size_t first = 0, second = 0;  ///< places among the variants
  comparison outcome = {};
  std::string sentence = {};  ///< "hybrid against dense: +0.04 [0.00, 0.09] recall ..."
};

struct ablation_report {
  std::vector<variant_report> variants = {};      ///< lexical, exact + lexical, dense, hybrid, and
                                                  ///< hybrid + rerank
  std::vector<ablation_step> steps = {};          ///< p-values corrected together
  std::optional<std::size_t> cheapest = {};       ///< lowest p95 of those that meet both targets
  std::string verdict = {};                       ///< the same in a sentence
  std::vector<evaluation_note> unreachable = {};  ///< required chunks that the question's reader
                                                  ///< cannot fetch: hidden, or a wrong id
};

namespace detail {

/// Runs every question through one variant.
class ablation_runner {
 public:
  ablation_runner(const retriever& index, const scope& reader, const ablation_options& options)
      : index_(index), state_(index.snapshot()), reader_(reader), options_(options) {}

  /// Fills in what `variant` only names. Errors: an option that no question could be asked with.
  result<void> run(variant_report& variant, std::span<const judged_question> questions) const {
    if (variant.reranked && !options_.asked.rerank.score) {
      variant.why_not = "there is no reranker";
      return {};
    }
    std::vector<ranked_list> lists;
    std::vector<stage_timings> times;
    for (std::size_t i = 0; i < (std::min)(options_.warm_up, questions.size()); ++i) {
      static_cast<void>(search(variant, questions[i]));
    }
    for (const judged_question& question : questions) {
      auto one = search(variant, question);
      if (!one) return one.failure();
      variant.ran = variant.ran || one->as_planned;
      if (variant.why_not.empty()) variant.why_not = one->note;
      if (one->degraded) ++variant.degraded;
      if (one->list.failure.empty()) times.push_back(one->timings);
      lists.push_back(std::move(one->list));
    }
    if (!variant.ran) {
      if (variant.why_not.empty()) variant.why_not = "no question could be searched so";
      return {};
    }
    variant.why_not.clear();
    auto measured = try_evaluate(questions, lists, {.k = options_.k});
    if (!measured) return measured.failure();
    variant.quality = std::move(*measured);
    variant.stages = percentiles_by_stage(times);
    return {};
  }

  /// Required chunks that no search of this question's reader could return.
  [[nodiscard]] result<std::vector<evaluation_note>> unreachable(
      std::span<const judged_question> questions) const {
    std::vector<evaluation_note> out;
    if (options_.by == ranked_by::document) return out;
    for (const judged_question& question : questions) {
      const result<scope> reader = reader_of(question);
      if (!reader) continue;  // its searches say why
      const auto passages = state_.try_fetch(question.required, *reader);
      if (!passages) return passages.failure();
      detail::key_set<std::string_view> there;
      for (const permitted_passage& passage : *passages) there.insert(passage.id());
      for (const std::string& id : question.required) {
        if (there.insert(id)) out.push_back({question.id, id});
      }
    }
    return out;
  }

 private:
  [[nodiscard]] query query_of(const variant_report& variant,
                               const judged_question& question) const {
    query asked = options_.asked;
    asked.text = question.text;
    asked.vector = question.vector;
    asked.mode = variant.mode;
    asked.exact_first = variant.exact_codes;
    if (!variant.reranked) asked.rerank.score = nullptr;
    return asked;
  }

  [[nodiscard]] result<scope> reader_of(const judged_question& question) const {
    return question.who ? index_.try_scope_for(*question.who) : reader_;
  }
  [[nodiscard]] result<answer> ask(const query& asked, const judged_question& question) const {
    const result<scope> reader = reader_of(question);
    if (!reader) return reader.failure();
    return state_.try_search(asked, *reader);
  }

  /// One question. What is sent, the evidence and the times are those of the search as the caller
  /// has it; under a token budget a second search without it gives the list for the ranks.
  [[nodiscard]] result<ablation_search> search(const variant_report& variant,
                                               const judged_question& question) const {
    ablation_search out;
    out.list.question = question.id;
    query asked = query_of(variant, question);
    result<answer> found = ask(asked, question);
    if (!found) return failed(std::move(out), found.failure());
    out.timings = found->timings;
    out.degraded = found->status == search_status::degraded;
    out.as_planned = ran_as_planned(variant, *found);
    if (!found->notes.empty()) out.note = found->notes.front();
    if (asked.sufficient) out.list.sufficient = found->status != search_status::insufficient;
    ranked_list sent;
    add_ranked(sent, found->passages, options_.by);
    out.list.sent = std::move(sent.ids);
    if (asked.token_budget) {
      asked.token_budget.reset();
      found = ask(asked, question);
      if (!found) return failed(std::move(out), found.failure());
    }
    add_ranked(out.list, found->passages, options_.by);
    return out;
  }

  /// A question that fails counts 0 and is listed; options that no question can be asked with end
  /// the ablation.
  [[nodiscard]] static result<ablation_search> failed(ablation_search out, const error& why) {
    if (why.code() == errc::invalid_argument) return why;
    out.list.failure = why.message();
    out.note = why.message();
    return out;
  }

  /// A dense search without its leg finds nothing and says that it is degraded.
  [[nodiscard]] static bool ran_as_planned(const variant_report& variant, const answer& found) {
    if (variant.reranked && found.reranking != rerank_status::applied) return false;
    if (variant.mode != search_mode::dense) return found.mode == variant.mode;
    return !found.passages.empty() || found.status != search_status::degraded;
  }

  const retriever& index_;
  rag_retrieve::snapshot state_;
  const scope& reader_;
  const ablation_options& options_;
};

/// 0.04166 -> "0.042"; with a sign where asked for.
[[nodiscard]] inline std::string rounded_text(double value, bool with_sign = false) {
  const std::string text = decimal_text(std::round(value * 1000) / 1000);
  return with_sign && value >= 0 ? "+" + text : text;
}

/// Each variant against what it grew from, and the two kinds of search against each other. A fixed
/// list: pairs chosen by their results would make every p-value too small.
[[nodiscard]] inline result<std::vector<ablation_step>> compare_variants(
    std::span<const variant_report> variants, const ablation_options& options) {
  constexpr std::array<std::pair<std::size_t, std::size_t>, 5> pairs{
      {{0, 1}, {1, 2}, {1, 3}, {2, 3}, {3, 4}}};
  std::vector<ablation_step> steps;
  std::vector<double> p_values;
  for (const auto& [first, second] : pairs) {
    if (!variants[first].ran || !variants[second].ran) continue;
    const auto outcome = try_compare(variants[first].quality, variants[second].quality,
                                     options.compared, options.bootstrap);
    if (!outcome) return outcome.failure();
    steps.push_back({first, second, *outcome, {}});
    p_values.push_back(outcome->p);
  }
  const std::vector<double> adjusted = holm_adjusted(p_values);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    comparison& found = steps[i].outcome;
    found.adjusted_p = adjusted[i];
    const variant_report& a = variants[steps[i].first];
    const variant_report& b = variants[steps[i].second];
    steps[i].sentence =
        b.name + " against " + a.name + ": " + rounded_text(found.difference, true) + " [" +
        rounded_text(found.low) + ", " + rounded_text(found.high) + "] " +
        std::string(name_of(options.compared)) + " over " + text_of(found.n) + " questions for " +
        rounded_text(b.p95().value - a.p95().value, true) + " ms p95: " +
        (!found.decided()         ? "undecided"
         : found.difference > 0.0 ? "better"
                                  : "worse");
  }
  return steps;
}

[[nodiscard]] inline bool meets_targets(const variant_report& variant,
                                        const ablation_options& options) {
  if (!variant.ran || !variant.quality.leaks.empty()) return false;
  const mean_value& recall = variant.quality.overall[measure::budget_recall];
  if (options.recall_target && (recall.n == 0 || recall.value < *options.recall_target)) {
    return false;
  }
  return !options.p95_target ||
         (variant.p95().n != 0 && variant.p95().value <= *options.p95_target);
}

/// Chooses the variant and says so.
inline void choose_cheapest(ablation_report& report, const ablation_options& options) {
  std::string targets;
  if (options.recall_target) targets += "recall " + decimal_text(*options.recall_target);
  if (options.p95_target) {
    targets += (targets.empty() ? "p95 " : " and p95 ") + decimal_text(*options.p95_target) + " ms";
  }
  if (targets.empty()) {
    report.verdict = "no targets were given";
    return;
  }
  for (std::size_t i = 0; i < report.variants.size(); ++i) {
    if (!meets_targets(report.variants[i], options)) continue;
    if (report.cheapest &&
        report.variants[i].p95().value >= report.variants[*report.cheapest].p95().value) {
      continue;
    }
    report.cheapest = i;
  }
  if (!report.cheapest) {
    report.verdict = "no variant meets " + targets;
    return;
  }
  const variant_report& chosen = report.variants[*report.cheapest];
  const mean_value& recall = chosen.quality.overall[measure::budget_recall];
  report.verdict = "the cheapest that meets " + targets + ": " + chosen.name + " (recall " +
                   rounded_text(recall.value) + " over " + text_of(recall.n) + " questions, p95 " +
                   rounded_text(chosen.p95().value) + " ms of " + text_of(chosen.p95().n) +
                   " searches" + (chosen.p95().few_samples ? ", too few for a p95)" : ")");
}

[[nodiscard]] inline result<void> check_ablation(const ablation_options& options) {
  const auto refuse = [](const std::string& sentence) {
    return error(errc::invalid_argument, "ablate: " + sentence);
  };
  if (options.k == 0) return refuse("k 0 must be at least 1");
  if (const auto& target = options.recall_target;
      target && !(is_finite(*target) && *target >= 0 && *target <= 1)) {
    return refuse("recall_target " + decimal_text(*target) + " must be between 0 and 1");
  }
  if (const auto& target = options.p95_target; target && !(is_finite(*target) && *target > 0)) {
    return refuse("p95_target " + decimal_text(*target) + " must be above 0");
  }
  return {};
}

}  // namespace detail

/// Runs the judged questions through five variants of the search, over one state of the retriever:
/// lexical without exact codes; exact + lexical; dense; hybrid; hybrid + rerank. A variant whose
/// vectors or reranker are missing is reported as not run.
///
/// questions  with texts; a question's own principal and vector are used where given
/// returns    quality, stage times, paired comparisons with Holm's correction, and the cheapest
///            variant that meets the targets; one that leaks meets none
/// errors     invalid_argument: options; duplicate_id: questions. A question whose search fails
///            counts 0 in that variant and is listed there
/// cost       five searches a question, ten under a token budget; bootstrap rounds x questions
[[nodiscard]] inline result<ablation_report> try_ablate(const retriever& index,
                                                        std::span<const judged_question> questions,
                                                        const scope& reader,
                                                        const ablation_options& options = {}) {
  if (const auto checked = detail::check_ablation(options); !checked) return checked.failure();
  ablation_report report;
  report.variants = {{.name = "lexical", .mode = search_mode::lexical},
                     {.name = "exact + lexical", .mode = search_mode::lexical, .exact_codes = true},
                     {.name = "dense", .mode = search_mode::dense},
                     {.name = "hybrid", .mode = search_mode::hybrid, .exact_codes = true},
                     {.name = "hybrid + rerank",
                      .mode = search_mode::hybrid,
                      .exact_codes = true,
                      .reranked = true}};
  const detail::ablation_runner runner(index, reader, options);
  for (variant_report& variant : report.variants) {
    if (const auto ran = runner.run(variant, questions); !ran) return ran.failure();
  }
  auto unreachable = runner.unreachable(questions);
  if (!unreachable) return unreachable.failure();
  report.unreachable = std::move(*unreachable);
  auto steps = detail::compare_variants(report.variants, options);
  if (!steps) return steps.failure();
  report.steps = std::move(*steps);
  detail::choose_cheapest(report, options);
  return report;
}
[[nodiscard]] inline ablation_report ablate(const retriever& index,
                                            std::span<const judged_question> questions,
                                            const scope& reader,
                                            const ablation_options& options = {}) {
  return try_ablate(index, questions, reader, options).value();
}

// =================================================================================================
// 16. Persistence: an index as bytes, and back
//
// In   a retriever.      Out   bytes, the same on every platform; from them a retriever.
//
//   magic, version, number of sections, length of the table, hash of all before the sections
//   table     for each section: kind, tenant, length, hash
//   sections  tags once; then documents, postings, vectors and, if it has them, IVF lists of each
//             tenant
//
// Numbers are little-endian and written byte by byte, texts are their length and their bytes.
// Postings and IVF lists are stored, not made again. What is read is believed only after the hash
// of its section was compared; every count is held against the bytes that are left before anything
// is allocated for it, and every number against what it points to: also a file with right hashes
// may be hostile. A tenant is written as one segment (14) of what lives, whatever its updates were:
// equal content gives equal bytes.
//
// Source   the hash is FNV-1a, 64 bits (14): it shows damage, it does not prove who wrote the file.
// =================================================================================================

/// How a file that was made with other settings is treated.
struct load_options {
  /// true: analyse the texts again, or train the IVF lists again, whichever was made with other
  /// settings; vectors and access records are kept
  bool rebuild = false;
};

namespace detail {

inline constexpr std::string_view file_magic{"RAGRTRV\x1A\r\n\0\n", 12};  // shows text-mode damage
inline constexpr std::uint32_t file_version = 2;

/// Puts numbers and texts into bytes.
class byte_writer {
 public:
  void put_u8(std::uint8_t value) { bytes_ += static_cast<char>(value); }
  void put_u32(std::uint32_t value) { put_little_endian(value, 4); }
  void put_u64(std::uint64_t value) { put_little_endian(value, 8); }
  void put_size(std::size_t value) { put_little_endian(value, 8); }
  void put_float(float value) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    put_u32(bits);
  }
  void put_double(double value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    put_u64(bits);
  }
  void put_text(std::string_view text) {
    put_size(text.size());
    bytes_ += text;
  }
  void put_texts(std::span<const std::string> texts) {
    put_size(texts.size());
    for (const std::string& text : texts) put_text(text);
  }
  void put_raw(std::string_view bytes) { bytes_ += bytes; }

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  void put_little_endian(std::uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes_ += static_cast<char>((value >> (8 * i)) & 0xFFU);
  }

  std::string bytes_;
};

/// Takes numbers and texts out of bytes. Past the end it gives zeros and empty texts and remembers
/// that it did, so that a reader checks once, before it believes anything.
class byte_reader {
 public:
  explicit byte_reader(std::string_view bytes) : bytes_(bytes) {}

  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] bool finished() const { return good_ && at_ == bytes_.size(); }
  void fail() { good_ = false; }

  std::uint8_t take_u8() { return static_cast<std::uint8_t>(take_little_endian(1)); }
  std::uint32_t take_u32() { return static_cast<std::uint32_t>(take_little_endian(4)); }
  std::uint64_t take_u64() { return take_little_endian(8); }
  float take_float() {
    const std::uint32_t bits = take_u32();
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  double take_double() {
    const std::uint64_t bits = take_u64();
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  /// A position in memory.
  std::size_t take_size() {
    const std::uint64_t value = take_u64();
    if (value > (std::numeric_limits<std::size_t>::max)()) fail();
    return good_ ? static_cast<std::size_t>(value) : 0;
  }
  /// A number of things of at least `bytes_each`: no more than the bytes left can hold.
  std::size_t take_count(std::size_t bytes_each) {
    const std::size_t count = take_size();
    if (count > (bytes_.size() - at_) / bytes_each) fail();
    return good_ ? count : 0;
  }
  bool take_flag() {
    const std::uint8_t value = take_u8();
    if (value > 1) fail();
    return value == 1;
  }
  std::string_view take_view(std::size_t length) {
    if (length > bytes_.size() - at_) fail();
    if (!good_) return {};
    at_ += length;
    return bytes_.substr(at_ - length, length);
  }
  std::string take_text() { return std::string(take_view(take_count(1))); }
  std::vector<std::string> take_texts() {
    std::vector<std::string> texts(take_count(8));
    for (std::string& text : texts) text = take_text();
    return texts;
  }

 private:
  std::uint64_t take_little_endian(std::size_t count) {
    const std::string_view bytes = take_view(count);
    std::uint64_t value = 0;
    for (std::size_t i = bytes.size(); i-- > 0;) {
      value = (value << 8) | static_cast<unsigned char>(bytes[i]);
    }
    return value;
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  bool good_ = true;
};

/// What a file says about the settings that made it.
struct file_tags {
  std::string analyser;     // the caller's tag
  std::string identifiers;  // the patterns, one a line, and whether case matters
  std::string unicode;      // version of the tables, and whether ICU folds
  std::string model;
  std::uint64_t dimension = 0;
  std::uint64_t state = 0;
  std::uint8_t similarity = 0;
  bool with_title = false, with_ancestors = false;

  [[nodiscard]] static file_tags of(const retriever_options& options, const index_state& state) {
    file_tags tags;
    tags.analyser = options.analysis.tag;
    for (const std::string& pattern : options.identifiers) tags.identifiers += pattern + '\n';
    tags.identifiers += options.identifier_case_matters ? "case matters" : "case folded";
    if (options.find_identifiers) tags.identifiers += ", and a callback";
    tags.unicode = RAG_RETRIEVE_USE_ICU ? "15.0 with ICU, words 2" : "15.0, words 2";
    tags.model = state.model->model;
    tags.dimension = state.dimension;
    tags.state = state.number;
    tags.similarity = options.similarity == metric::cosine ? 0 : 1;
    tags.with_title = options.search_text.title;
    tags.with_ancestors = options.search_text.ancestors;
    return tags;
  }

  void write(byte_writer& out) const {
    for (const std::string* text : {&analyser, &identifiers, &unicode, &model}) {
      out.put_text(*text);
    }
    out.put_u64(dimension);
    out.put_u64(state);
    out.put_u8(similarity);
    out.put_u8(with_title ? 1 : 0);
    out.put_u8(with_ancestors ? 1 : 0);
  }
  void read(byte_reader& in) {
    for (std::string* text : {&analyser, &identifiers, &unicode, &model}) *text = in.take_text();
    dimension = in.take_size();
    state = in.take_u64();
    similarity = in.take_u8();
    with_title = in.take_flag();
    with_ancestors = in.take_flag();
    if (similarity > 1) in.fail();
  }

  /// The vectors belong to a model and a metric: nothing makes them fit another.
  [[nodiscard]] result<void> check_space(const file_tags& wanted) const {
    if (model != wanted.model) return differs("embedding model", model, wanted.model);
    if (similarity != wanted.similarity) {
      return differs("metric", name_of_metric(), wanted.name_of_metric());
    }
    if (wanted.dimension != 0 && dimension != 0 && dimension != wanted.dimension) {
      return differs("dimension", std::to_string(dimension), std::to_string(wanted.dimension));
    }
    return {};
  }
  /// The terms and codes belong to an analysis; another can be made by analysing again.
  [[nodiscard]] result<void> check_analysis(const file_tags& wanted) const {
    if (analyser != wanted.analyser) return differs("analyser", analyser, wanted.analyser);
    if (identifiers != wanted.identifiers) {
      return differs("identifier patterns", identifiers, wanted.identifiers);
    }
    if (unicode != wanted.unicode) return differs("Unicode version", unicode, wanted.unicode);
    if (with_title != wanted.with_title || with_ancestors != wanted.with_ancestors) {
      return differs("search text", "other parts", "its own");
    }
    return {};
  }
  [[nodiscard]] static error differs(std::string_view what, std::string_view file,
                                     std::string_view program) {
    return error(errc::incompatible_file, "load: the file's " + std::string(what) + " is " +
                                              in_quotes(file) + ", this retriever's is " +
                                              in_quotes(program));
  }

 private:
  [[nodiscard]] std::string name_of_metric() const {
    return similarity == 0 ? "cosine" : "inner product";
  }
};

inline void write_metadata(byte_writer& out, const document& source) {
  out.put_size(source.metadata.size());
  for (const auto& [key, value] : source.metadata) {
    out.put_text(key);
    out.put_u8(static_cast<std::uint8_t>(value.type()));
    if (value.type() == metadata_value::kind::text) out.put_text(value.text());
    if (value.type() == metadata_value::kind::number) out.put_double(value.number());
    if (value.type() == metadata_value::kind::texts) out.put_texts(value.texts());
  }
}

inline void read_metadata(byte_reader& in, document& source) {
  for (std::size_t left = in.take_count(17); left > 0; --left) {
    std::string key = in.take_text();
    metadata_value value;
    switch (in.take_u8()) {
      case 0:
        value = in.take_text();
        break;
      case 1:
        value = in.take_double();
        break;
      case 2:
        value = in.take_texts();
        break;
      default:
        in.fail();
    }
    if (!source.metadata.emplace(std::move(key), std::move(value)).second) in.fail();
  }
}

inline void write_chunk(byte_writer& out, const stored_chunk& item) {
  const chunk& record = item.record;
  out.put_text(record.id);
  out.put_text(record.parent_id);
  for (const byte_range& range : {record.range, record.body}) {
    out.put_size(range.begin);
    out.put_size(range.end);
  }
  out.put_text(record.heading);
  out.put_texts(record.heading_path);
  out.put_text(record.anchor);
  out.put_size(record.token_count);
  out.put_u8(record.oversize ? 1 : 0);
  out.put_u8(record.allowed_groups ? 1 : 0);
  if (record.allowed_groups) out.put_texts(*record.allowed_groups);
  out.put_texts(record.identifiers);
  out.put_texts(item.brought);
  out.put_size(item.codes.size());
  for (const stored_code& code : item.codes) {
    out.put_text(code.value);
    out.put_u8(code.in_heading ? 1 : 0);
  }
  out.put_u64(item.input_hash);
}

[[nodiscard]] inline stored_chunk read_chunk(byte_reader& in, const document& source) {
  stored_chunk item;
  chunk& record = item.record;
  record.id = in.take_text();
  record.document_id = source.id;
  record.parent_id = in.take_text();
  record.revision = source.revision;
  for (byte_range* range : {&record.range, &record.body}) {
    range->begin = in.take_size();
    range->end = in.take_size();
  }
  record.heading = in.take_text();
  record.heading_path = in.take_texts();
  record.anchor = in.take_text();
  record.token_count = in.take_size();
  record.oversize = in.take_flag();
  if (in.take_flag()) record.allowed_groups = in.take_texts();
  record.identifiers = in.take_texts();
  item.brought = in.take_texts();
  for (std::size_t left = in.take_count(9); left > 0; --left) {
    std::string value = in.take_text();
    item.codes.push_back({std::move(value), {}, in.take_flag()});
  }
  item.input_hash = in.take_u64();
  return item;
}

/// A segment's documents in byte order of their ids, with the groups that may read each now.
[[nodiscard]] inline std::string write_documents(const segment& whole) {
  byte_writer out;
  out.put_size(whole.records->documents.size());
  for (std::uint32_t place = 0; place < whole.records->documents.size(); ++place) {
    const stored_document& stored = *whole.records->documents[place];
    const document& source = stored.source;
    out.put_text(source.id);
    out.put_text(source.title);
    out.put_text(source.text);
    out.put_texts(source.allowed_groups);
    out.put_u64(source.revision);
    write_metadata(out, source);
    out.put_texts(whole.access->groups_of_document(place));
    out.put_size(stored.chunks.size());
    for (const stored_chunk& item : stored.chunks) write_chunk(out, item);
  }
  return out.bytes();
}

/// The terms in byte order with their postings; rows are those of the segment.
[[nodiscard]] inline std::string write_postings(const term_index& terms) {
  byte_writer lists;
  std::size_t count = 0;
  terms.for_each_list([&](std::string_view term, auto postings) {
    ++count;
    lists.put_text(term);
    lists.put_size(postings.size());
    for (const term_index::posting& each : postings) {
      lists.put_u32(each.row);
      lists.put_u32(each.count);
    }
  });
  byte_writer out;
  out.put_size(terms.size());
  for (std::uint32_t row = 0; row < terms.size(); ++row) out.put_u32(terms.length(row));
  out.put_size(count);
  out.put_raw(lists.bytes());
  return out.bytes();
}

/// For each row 0 (no vector), 1 (embedded) or 2 (supplied), then the vectors of those that have
/// one, as they are compared.
[[nodiscard]] inline std::string write_vectors(const segment_vectors& vectors) {
  byte_writer out;
  const auto count = static_cast<std::uint32_t>(vectors.rows.size());
  out.put_size(count);
  for (std::uint32_t row = 0; row < count; ++row) {
    out.put_u8(!vectors.rows.has_vector(row) ? 0 : vectors.supplied.contains(row) ? 2 : 1);
  }
  for (std::uint32_t row = 0; row < count; ++row) {
    for (const float value : vectors.rows.row(row)) out.put_float(value);
  }
  return out.bytes();
}

/// The options that IVF lists follow from; with how many probes they are read is not among them.
using ivf_training = std::array<std::uint64_t, 4>;

[[nodiscard]] inline ivf_training training_of(const ivf_options& options) {
  return {options.lists, options.seed, options.iterations, options.sample_per_list};
}
[[nodiscard]] inline std::string text_of_training(const ivf_training& made) {
  return std::to_string(made[0]) + " lists, seed " + std::to_string(made[1]) + ", iterations " +
         std::to_string(made[2]) + ", sample " + std::to_string(made[3]);
}

/// What they were trained with, then centroids, sizes and rows of the lists.
[[nodiscard]] inline std::string write_lists(const ivf_index& index) {
  const ivf_lists lists = index.parts();
  byte_writer out;
  for (const std::uint64_t each : training_of(index.options())) out.put_u64(each);
  out.put_size(lists.sizes.size());
  out.put_size(lists.rows.size());
  for (const float value : lists.centroids) out.put_float(value);
  for (const std::uint32_t size : lists.sizes) out.put_u32(size);
  for (const std::uint32_t row : lists.rows) out.put_u32(row);
  return out.bytes();
}

/// One section of a file, found and compared with its hash.
struct file_entry {
  std::uint32_t kind = 0;  // 1 tags, 2 documents, 3 postings, 4 vectors, 5 IVF lists
  std::string tenant;
  std::string_view bytes;
};

/// The whole of a file: writing, reading, and what stands between.
struct index_file {
  [[nodiscard]] static result<void> save(const retriever& source, std::ostream& out) {
    const std::shared_ptr<const index_state> state = source.core_->current();
    std::vector<std::pair<file_entry, std::string>> sections;
    byte_writer tags;
    file_tags::of(source.core_->options, *state).write(tags);
    sections.push_back({{1, {}, {}}, tags.bytes()});
    for (const auto& [tenant, each] : state->tenants.all()) {
      const std::string name(tenant);
      const auto whole = in_one_segment(source.core_->options, *each, state->dimension);
      if (!whole) return whole.failure();
      sections.push_back({{2, name, {}}, write_documents(*whole)});
      sections.push_back({{3, name, {}}, write_postings(whole->records->terms)});
      sections.push_back({{4, name, {}}, write_vectors(*whole->vectors)});
      if (!whole->vectors->lists) continue;
      sections.push_back({{5, name, {}}, write_lists(*whole->vectors->lists)});
    }
    byte_writer table;
    for (const auto& [entry, bytes] : sections) {
      table.put_u32(entry.kind);
      table.put_text(entry.tenant);
      table.put_size(bytes.size());
      table.put_u64(hash_of(bytes));
    }
    byte_writer head;
    head.put_raw(file_magic);
    head.put_u32(file_version);
    head.put_size(sections.size());
    head.put_size(table.bytes().size());
    head.put_u64(hash_of(head.bytes() + table.bytes()));
    const auto write = [&out](std::string_view bytes) {
      out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    };
    write(head.bytes());
    write(table.bytes());
    for (const auto& section : sections) write(section.second);
    out.flush();
    if (!out) return error(errc::write_failed, "save: the stream did not take the whole index");
    return {};
  }

  /// What lives of a tenant, whatever its updates were: equal content gives equal bytes.
  [[nodiscard]] static result<segment> in_one_segment(const retriever_options& options,
                                                      const tenant_state& tenant,
                                                      std::size_t dimension) {
    if (is_merged(tenant)) return tenant.segments.front();
    return merge_segments(options, tenant.segments, dimension);
  }

  [[nodiscard]] static error damaged(const std::string& what) {
    return error(errc::corrupt_file, "load: " + what);
  }

  /// The sections of a file whose hashes are right.
  [[nodiscard]] static result<std::vector<file_entry>> read_table(std::string_view file) {
    byte_reader head(file);
    if (head.take_view(file_magic.size()) != file_magic) {
      return damaged("these bytes do not begin as an index does");
    }
    const std::uint32_t version = head.take_u32();
    const std::size_t count = head.take_size();
    const std::size_t length = head.take_count(1);
    const std::uint64_t hash = head.take_u64();
    const std::string_view table = head.take_view(length);
    if (!head.good()) return damaged("the file ends inside its table of sections");
    const std::size_t before = file_magic.size() + 4 + 8 + 8;
    if (hash_of(std::string(file.substr(0, before)) + std::string(table)) != hash) {
      return damaged("the table of sections is not as it was saved");
    }
    if (version != file_version) {
      return error(errc::incompatible_file, "load: the file has format " + std::to_string(version) +
                                                ", this version reads format " +
                                                std::to_string(file_version));
    }
    byte_reader in(table);
    std::vector<file_entry> entries;
    std::size_t at = before + 8 + table.size();
    for (std::size_t i = 0; i < count && in.good(); ++i) {
      file_entry entry;
      entry.kind = in.take_u32();
      entry.tenant = in.take_text();
      const std::size_t size = in.take_size();
      const std::uint64_t wanted = in.take_u64();
      if (size > file.size() - at) return damaged("the file ends inside a section");
      entry.bytes = file.substr(at, size);
      at += size;
      if (hash_of(entry.bytes) != wanted) {
        return damaged("section " + text_of(i + 1) + " is not as it was saved");
      }
      entries.push_back(std::move(entry));
    }
    if (!in.finished() || at != file.size()) return damaged("bytes are left over");
    return entries;
  }

  /// The documents of a tenant, and the groups that may read each.
  struct tenant_documents {
    std::vector<prepared_document> prepared;
    std::vector<std::vector<std::string>> groups;
  };

  [[nodiscard]] static result<tenant_documents> read_documents(const file_entry& entry) {
    byte_reader in(entry.bytes);
    tenant_documents documents;
    key_set<std::string> ids;
    for (std::size_t left = in.take_count(1); left > 0 && in.good(); --left) {
      prepared_document next;
      document& source = next.stored.source;
      source.id = in.take_text();
      source.title = in.take_text();
      source.text = in.take_text();
      source.tenant = entry.tenant;
      source.allowed_groups = in.take_texts();
      source.revision = in.take_u64();
      read_metadata(in, source);
      if (!ids.insert(source.id)) in.fail();
      documents.groups.push_back(in.take_texts());
      std::vector<chunk> records;
      for (std::size_t chunks = in.take_count(1); chunks > 0 && in.good(); --chunks) {
        next.stored.chunks.push_back(read_chunk(in, source));
        records.push_back(next.stored.chunks.back().record);
      }
      if (!in.good()) break;
      if (const auto checked = check_document(source, records); !checked) {
        return damaged(checked.failure().message());
      }
      number_lines(next.stored);
      next.chunks.resize(records.size());
      documents.prepared.push_back(std::move(next));
    }
    if (!in.finished()) return damaged("the documents do not fill their section");
    return documents;
  }

  struct row_item {
    std::string_view id;
    prepared_chunk* chunk = nullptr;
    std::size_t most_terms = 0;  // more than its text can have
  };

  /// The chunks of all documents in the order of rows.
  [[nodiscard]] static std::vector<row_item> rows_of(std::span<prepared_document> documents) {
    std::vector<row_item> rows;
    for (prepared_document& each : documents) {
      for (std::size_t i = 0; i < each.chunks.size(); ++i) {
        const chunk& record = each.stored.chunks[i].record;
        const std::string text =
            search_text(each.stored.source, record, {.title = true, .ancestors = true});
        // ICU gives pairs of characters, and words
        rows.push_back({record.id, &each.chunks[i], 2 * text.size()});
      }
    }
    std::sort(rows.begin(), rows.end(),
              [](const row_item& a, const row_item& b) { return a.id < b.id; });
    return rows;
  }

  [[nodiscard]] static result<term_index> read_postings(const file_entry& entry,
                                                        const bm25_options& options,
                                                        std::span<const row_item> rows) {
    byte_reader in(entry.bytes);
    std::vector<std::uint32_t> lengths(in.take_count(4));
    for (std::uint32_t& length : lengths) length = in.take_u32();
    if (lengths.size() != rows.size()) return damaged("postings and documents do not agree");
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (lengths[row] > rows[row].most_terms) return damaged("a length is beyond its text");
    }
    term_list_writer lists(options, lengths);
    std::vector<std::uint64_t> sums(rows.size(), 0);
    for (std::size_t left = in.take_count(16); left > 0 && in.good(); --left) {
      const std::string term = in.take_text();
      std::vector<term_index::posting> list(in.take_count(8));
      for (term_index::posting& each : list) {
        each.row = in.take_u32();
        each.count = in.take_u32();
        if (each.row >= rows.size()) return damaged("a posting names a row that does not exist");
        sums[each.row] += each.count;
      }
      if (!in.good() || !lists.add(term, list)) {
        return damaged("a posting list is not one");
      }
    }
    if (!in.finished()) return damaged("the postings do not fill their section");
    if (!std::equal(sums.begin(), sums.end(), lengths.begin())) {
      return damaged("postings and lengths do not agree");
    }
    return term_index(options, lists.finish());
  }

  [[nodiscard]] static result<void> read_vectors(const file_entry& entry, std::size_t dimension,
                                                 std::span<const row_item> rows) {
    byte_reader in(entry.bytes);
    const std::size_t count = in.take_count(1);
    if (count != rows.size()) return damaged("vectors and documents do not agree");
    std::vector<std::uint8_t> kinds(count);
    for (std::uint8_t& kind : kinds) {
      kind = in.take_u8();
      if (kind > 2) return damaged("a row has an unknown kind of vector");
    }
    for (std::size_t row = 0; row < count && in.good(); ++row) {
      if (kinds[row] == 0) continue;
      const std::string_view bytes =
          dimension > entry.bytes.size() / 4 ? std::string_view() : in.take_view(dimension * 4);
      if (bytes.empty()) return damaged("the vectors do not fill their section");
      byte_reader numbers(bytes);
      prepared_chunk& own = *rows[row].chunk;
      own.supplied = kinds[row] == 2;
      own.as_compared = true;
      own.vector.resize(dimension);
      for (float& value : own.vector) value = numbers.take_float();
    }
    if (!in.finished()) return damaged("the vectors do not fill their section");
    return {};
  }

  /// The IVF lists of a tenant. Whether they fit its vectors is seen when they are restored.
  ///
  /// sections  those of the tenant
  /// returns   none: they are to be trained, which `rebuild` allows where the file has none, or
  /// such
  ///           as these options do not train
  [[nodiscard]] static result<std::optional<ivf_lists>> read_lists(
      const ivf_options& options, std::span<const file_entry> sections, std::size_t dimension,
      bool rebuild) {
    const std::string_view bytes = sections.size() < 4 ? std::string_view() : sections[3].bytes;
    const ivf_training wanted = training_of(options);
    ivf_training made{};
    byte_reader in(bytes);
    for (std::uint64_t& each : made) each = in.take_u64();
    if (sections.size() < 4 || (in.good() && made != wanted)) {
      if (rebuild) return std::optional<ivf_lists>();
      return file_tags::differs("IVF training",
                                sections.size() < 4 ? "none" : text_of_training(made),
                                text_of_training(wanted));
    }
    // A list is a centroid, a size, and one row at least.
    const std::size_t numbers = (std::min)(dimension, bytes.size() / 4 + 1);
    ivf_lists lists;
    lists.sizes.resize(in.take_count(4 * numbers + 8));
    lists.rows.resize(in.take_count(4));
    lists.centroids.resize(lists.sizes.size() * numbers);
    for (float& value : lists.centroids) value = in.take_float();
    for (std::uint32_t& size : lists.sizes) size = in.take_u32();
    for (std::uint32_t& row : lists.rows) row = in.take_u32();
    if (!in.finished()) return damaged("the IVF lists do not fill their section");
    return std::optional(std::move(lists));
  }

  /// One tenant from its sections. `analyse`: its texts, again.
  [[nodiscard]] static result<tenant_state> read_tenant(const retriever_core& core,
                                                        std::span<const file_entry> sections,
                                                        std::size_t dimension, bool rebuild,
                                                        bool analyse) {
    auto documents = read_documents(sections[0]);
    if (!documents) return documents.failure();
    const std::vector<row_item> rows = rows_of(documents->prepared);
    auto terms = read_postings(sections[1], core.options.bm25, rows);
    if (!terms) return terms.failure();
    if (const auto read = read_vectors(sections[2], dimension, rows); !read) return read.failure();
    ready_indexes ready;
    if (wants_lists(core.options, rows.size())) {
      auto lists = read_lists(*core.options.ivf, sections, dimension, rebuild);
      if (!lists) return lists.failure();
      ready.lists = std::move(*lists);
    }
    if (analyse) {
      const auto made = analyse_again(core, documents->prepared);
      if (!made) return made.failure();
    } else {
      ready.terms = std::move(*terms);
    }
    auto whole = build_segment(core.options, std::move(documents->prepared),
                               std::move(documents->groups), dimension, std::move(ready));
    if (!whole) return damaged(whole.failure().message());
    tenant_state state;
    state.segments.push_back(std::move(*whole));
    return state;
  }

  [[nodiscard]] static result<void> analyse_again(const retriever_core& core,
                                                  std::span<prepared_document> documents) {
    for (prepared_document& each : documents) {
      chunked_document input{each.stored.source, {}};
      for (const stored_chunk& item : each.stored.chunks) {
        input.chunks.push_back(item.record);
        input.chunks.back().identifiers = item.brought;
      }
      auto fresh = prepare_document(core, core.current()->model->model, input);
      if (!fresh) return fresh.failure();
      for (std::size_t i = 0; i < each.chunks.size(); ++i) {
        each.chunks[i].terms = std::move(fresh->chunks[i].terms);
      }
      each.stored = std::move(fresh->stored);
    }
    return {};
  }

  /// The three or four sections of one tenant that these begin with; none if they do not.
  [[nodiscard]] static std::span<const file_entry> sections_of_tenant(
      std::span<const file_entry> rest) {
    const std::size_t count = rest.size() > 3 && rest[3].kind == 5 ? 4 : 3;
    if (rest.size() < count) return {};
    for (std::uint32_t i = 0; i < count; ++i) {
      if (rest[i].kind != i + 2 || rest[i].tenant != rest[0].tenant) return {};
    }
    return rest.first(count);
  }

  [[nodiscard]] static result<retriever> load(std::string_view file, retriever_options options,
                                              const load_options& how) {
    auto made = retriever::try_make(std::move(options));
    if (!made) return made.failure();
    retriever_core& core = *made->core_;
    const auto entries = read_table(file);
    if (!entries) return entries.failure();
    file_tags tags;
    byte_reader in(entries->empty() ? std::string_view() : entries->front().bytes);
    tags.read(in);
    if (!in.finished() || entries->front().kind != 1) {
      return damaged("the sections are not those of an index");
    }
    index_state wanted = *core.current();  // empty, but for the model
    wanted.dimension = core.options.embed.dimension;
    const file_tags mine = file_tags::of(core.options, wanted);
    if (const auto fits = tags.check_space(mine); !fits) return fits.failure();
    const auto same = tags.check_analysis(mine);
    if (!same && !how.rebuild) return same.failure();
    auto state = std::make_shared<index_state>(*core.current());
    state->dimension = static_cast<std::size_t>(tags.dimension);
    state->number = tags.state;
    for (auto rest = std::span(*entries).subspan(1); !rest.empty();) {
      const auto parts = sections_of_tenant(rest);
      if (parts.empty()) return damaged("the sections of a tenant are not in order");
      rest = rest.subspan(parts.size());
      auto each = read_tenant(core, parts, state->dimension, how.rebuild, !same);
      if (!each) return each.failure();
      if (state->tenants.find(parts[0].tenant) != nullptr)
        return damaged("a tenant stands there twice");
      state->tenants.put(parts[0].tenant, std::move(*each));
    }
    core.publish(std::move(state));
    return made;
  }
};

}  // namespace detail

/// Writes the present state of a retriever: documents, chunks, postings, codes, vectors, IVF
/// lists, access records. What was erased before is not in it. The stream must be binary.
/// Each tenant is written as purge would leave it, so that with IVF, whose lists belong to a
/// segment, what is missed may be something else after loading.
///
/// errors   write_failed
/// cost     O(bytes written); they are held in memory once
[[nodiscard]] inline result<void> try_save(const retriever& source, std::ostream& out) {
  return detail::index_file::save(source, out);
}
inline void save(const retriever& source, std::ostream& out) { try_save(source, out).value(); }

/// Makes a retriever from the bytes of a file. `options` are those that made it: callbacks cannot
/// be stored; what they were is compared by their tags.
///
/// errors   corrupt_file: not an index, cut short, or changed; incompatible_file: another model,
///          metric, format, or (unless how.rebuild) another analyser, identifier pattern, Unicode
///          version or training of IVF lists; invalid_argument: options
/// cost     O(bytes), and nothing is trained unless how.rebuild asks for it; memory is bounded by a
///          multiple of what is really there
[[nodiscard]] inline result<retriever> try_load(std::span<const std::byte> bytes,
                                                retriever_options options,
                                                const load_options& how = {}) {
  const auto* first = reinterpret_cast<const char*>(bytes.data());
  return detail::index_file::load({first, bytes.size()}, std::move(options), how);
}
[[nodiscard]] inline retriever load(std::span<const std::byte> bytes, retriever_options options,
                                    const load_options& how = {}) {
  return try_load(bytes, std::move(options), how).value();
}

/// The same from a binary stream, read to its end.
[[nodiscard]] inline result<retriever> try_load(std::istream& in, retriever_options options,
                                                const load_options& how = {}) {
  std::string bytes;
  std::array<char, 65536> block{};
  while (in.read(block.data(), block.size()) || in.gcount() > 0) {
    bytes.append(block.data(), static_cast<std::size_t>(in.gcount()));
  }
  return detail::index_file::load(bytes, std::move(options), how);
}
[[nodiscard]] inline retriever load(std::istream& in, retriever_options options,
                                    const load_options& how = {}) {
  return try_load(in, std::move(options), how).value();
}

}  // namespace RAG_RETRIEVE_DETAIL_ABI
}  // namespace rag_retrieve

#endif  // RAG_RETRIEVE_HPP

// MIT License
//
// Copyright (c) 2026 the authors of rag_retrieve
//
// Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
// associated documentation files (the "Software"), to deal in the Software without restriction,
// including without limitation the rights to use, copy, modify, merge, publish, distribute,
// sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
// furnished to do so, subject to the following conditions:
//
// The above copyright notice and this permission notice shall be included in all copies or
// substantial portions of the Software.
//
// THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
// NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
// NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
// DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
// OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
