// Section 2: sentences against sets that others made. Unicode's own cases, where each difference
// has its reason; the cases of sentencex and the golden rules, with a table beside other splitters.
//
//   RAG_RETRIEVE_UNICODE_DATA   the Unicode 15.0 files; default: Debian's unicode-data package
//   RAG_RETRIEVE_DATASETS       golden-rules/en.jsonl and sentences/LANGUAGE.jsonl: one object
//                               {"text", "sentences"} a line

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <map>
#include <nlohmann/json.hpp>
#include <rag_retrieve.hpp>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#if RAG_RETRIEVE_USE_ICU
#include <unicode/ubrk.h>
#endif

namespace sentence_sets_tests {

namespace sentence_sets {

namespace rag = rag_retrieve;
using strings = std::vector<std::string>;
using positions = std::set<std::size_t>;

// ---- Unicode's cases ----------------------------------------------------------------------------

struct break_case {
  std::string text;
  positions breaks;  // inside the text
};

/// "÷ 0041 × 002E ÷" with the sign of division where a sentence ends.
inline break_case read_case(const std::string& line) {
  break_case one;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (word == "\xC3\xB7") {
      one.breaks.insert(one.text.size());
    } else if (word != "\xC3\x97") {
      rag::append_utf8(one.text, static_cast<char32_t>(std::stoul(word, nullptr, 16)));
    }
  }
  return one;
}

inline std::size_t after_white_space(std::string_view text, std::size_t at) {
  for (rag::code_point point = rag::decode(text, at);
       point.length != 0 && rag::is_white_space(point.value); point = rag::decode(text, at)) {
    at += point.length;
  }
  return at;
}

/// White space between two sentences is neither's: a break stands behind it, and none at the ends.
inline positions between(std::string_view text, const positions& breaks) {
  positions out;
  for (const std::size_t at : breaks) {
    const std::size_t next = after_white_space(text, at);
    if (next < text.size() && at > after_white_space(text, 0)) out.insert(next);
  }
  return out;
}

/// Marks and characters that show nothing, by which the file parts all others.
inline bool is_silent(char32_t value) { return value == 0x308 || value == 0xAD || value == 0x2060; }

/// Why a sentence ends at a place for Unicode alone; empty: no reason is known.
inline std::string reason(std::string_view text, std::size_t at) {
  bool line_end = false;
  bool space = false;
  bool word = false;
  bool silent = is_silent(rag::decode(text, at).value);
  char32_t mark = 0;
  for (std::size_t i = 0; i < at; i += rag::decode(text, i).length) {
    const char32_t value = rag::decode(text, i).value;
    const bool separates =
        value == '\n' || value == '\r' || value == 0x85 || value == 0x2028 || value == 0x2029;
    if (rag::is_white_space(value)) {
      line_end = line_end || separates;
      space = true;
    } else if (is_silent(value)) {
      silent = true;
    } else {
      line_end = space = silent = false;
      word = word || rag::is_letter_or_digit(value);
      mark = value;
    }
  }
  if (line_end) return "a single line end goes on";
  if (!word) return "a mark without a word before it ends nothing";
  if (rag::detail::is_lower_case(rag::decode(text, at).value)) return "a small letter goes on";
  const bool ascii = mark == '.' || mark == '!' || mark == '?';
  if (ascii && !space) return "a mark of ASCII needs white space behind it";
  return silent ? "a mark on a space, or what shows nothing, is text like other" : "";
}

// ---- cases of other splitters -------------------------------------------------------------------

inline std::string squeezed(std::string_view text) {  // white space as single spaces
  std::string out;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (!space) {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

struct sentence_case {
  std::string text;
  strings sentences;
};

/// The cases of a file; none if it is not there. In the file format of their origin a line that
/// begins with '#' is a remark: two whole blocks that are, "#..." with a line "#---", are left out,
/// and of two texts that begin with the mark it is taken off.
inline std::vector<sentence_case> read_cases(const std::string& name) {
  std::vector<sentence_case> cases;
  const char* folder = std::getenv("RAG_RETRIEVE_DATASETS");
  std::ifstream file(std::string(folder != nullptr ? folder : "") + "/" + name);
  if (folder == nullptr || !file) return cases;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json object = nlohmann::json::parse(line);
    sentence_case one{object.at("text").get<std::string>(), {}};
    const bool remark = one.text.starts_with('#');
    if (remark && one.text.find("\n#---") != std::string::npos) continue;
    for (const auto& sentence : object.at("sentences")) {
      one.sentences.push_back(squeezed(sentence.get<std::string>()));
      if (remark && one.sentences.back().starts_with('#')) one.sentences.back().erase(0, 1);
    }
    if (remark) one.text.erase(0, 1);
    cases.push_back(std::move(one));
  }
  return cases;
}

inline strings by_rules(const std::string& text) {
  strings out;
  for (const rag::byte_range& each : rag::sentence_ranges(text, {0, text.size()})) {
    out.push_back(squeezed(rag::slice(text, each)));
  }
  return out;
}

#if RAG_RETRIEVE_USE_ICU
/// What ICU's sentence iteration gives, in the root locale.
inline strings by_icu(const std::string& text) {
  strings out;
  const std::u16string wide = rag::detail::utf16_of(text);
  UErrorCode status = U_ZERO_ERROR;
  UBreakIterator* breaks =
      ubrk_open(UBRK_SENTENCE, "", wide.data(), static_cast<std::int32_t>(wide.size()), &status);
  REQUIRE(U_SUCCESS(status));
  for (std::int32_t at = 0, end = ubrk_next(breaks); end != UBRK_DONE; end = ubrk_next(breaks)) {
    std::string bytes;
    rag::detail::append_utf16(bytes,
                              std::u16string_view(wide).substr(static_cast<std::size_t>(at),
                                                               static_cast<std::size_t>(end - at)));
    out.push_back(squeezed(bytes));
    if (out.back().empty()) out.pop_back();
    at = end;
  }
  ubrk_close(breaks);
  return out;
}
#endif

template <class Split>
std::size_t right_in(const std::vector<sentence_case>& cases, Split&& split) {
  return static_cast<std::size_t>(
      std::count_if(cases.begin(), cases.end(),
                    [&](const sentence_case& one) { return split(one.text) == one.sentences; }));
}

/// A file of cases, how many of them have to be right here, and how many were right in others:
/// sentencex 1.0.32, pySBD 0.3.4 and ICU 72, measured on the same files without taking marks off.
struct case_set {
  const char* name;
  std::size_t least;
  std::size_t sentencex, pysbd, icu;
};
constexpr case_set case_sets[] = {
    {"golden-rules/en.jsonl", 48, 43, 47, 28}, {"sentences/en.jsonl", 232, 234, 136, 164},
    {"sentences/lists.jsonl", 25, 25, 19, 15}, {"sentences/de.jsonl", 25, 25, 23, 11},
    {"sentences/el.jsonl", 1, 2, 1, 0},        {"sentences/fr.jsonl", 5, 5, 5, 5},
    {"sentences/it.jsonl", 35, 36, 36, 28},    {"sentences/ja.jsonl", 4, 6, 4, 4},
    {"sentences/ru.jsonl", 37, 37, 37, 31},
};

}  // namespace sentence_sets

using namespace sentence_sets;

TEST_CASE("sentences: every difference from SentenceBreakTest.txt has its reason") {
  const char* folder = std::getenv("RAG_RETRIEVE_UNICODE_DATA");
  std::ifstream file(std::string(folder != nullptr ? folder : "/usr/share/unicode") +
                     "/auxiliary/SentenceBreakTest.txt");
  if (!file) {
    MESSAGE("skipped: no Unicode data files");
    return;
  }
  std::size_t cases = 0, same = 0;
  std::map<std::string, std::size_t> reasons;
  for (std::string line; std::getline(file, line);) {
    const break_case one = read_case(line.substr(0, line.find('#')));
    if (one.text.empty()) continue;
    ++cases;
    positions begins;
    for (const rag::byte_range& each : rag::sentence_ranges(one.text, {0, one.text.size()})) {
      begins.insert(each.begin);
    }
    const positions wanted = between(one.text, one.breaks);
    const positions got = between(one.text, begins);
    same += wanted == got ? 1U : 0U;
    for (const std::size_t at : wanted) {
      if (got.count(at) != 0) continue;
      const std::string why = reason(one.text, at);
      CHECK_MESSAGE(!why.empty(), line);
      ++reasons[why];
    }
    for (const std::size_t at : got) {
      if (wanted.count(at) != 0) continue;
      const rag::code_point before = rag::detail::decode_before(one.text, 0, at);
      const bool silent = is_silent(before.value) || is_silent(rag::decode(one.text, at).value);
      CHECK_MESSAGE(silent, "a sentence ends here alone: ", line);
    }
  }
  MESSAGE("SentenceBreakTest.txt: ", same, " of ", cases, " cases are the same");
  for (const auto& [why, count] : reasons) MESSAGE("  ", count, ": ", why);
  CHECK(cases == 502);
  CHECK(same == 468);
  CHECK(reasons == std::map<std::string, std::size_t>{
                       {"a mark of ASCII needs white space behind it", 4},
                       {"a mark on a space, or what shows nothing, is text like other", 10},
                       {"a mark without a word before it ends nothing", 16},
                       {"a single line end goes on", 2}});
}

TEST_CASE(
    "sentences: cases of other splitters: English 98 of 100, lists 25 of 26, golden rules all") {
  std::ostringstream table;
  table << "| set | cases | here | sentencex | pySBD | ICU 72 | ICU linked |\n"
           "|---|--:|--:|--:|--:|--:|--:|\n";
  for (const case_set& set : case_sets) {
    const std::vector<sentence_case> cases = read_cases(set.name);
    if (cases.empty()) {
      MESSAGE("skipped: RAG_RETRIEVE_DATASETS names no folder with ", set.name);
      continue;
    }
    const std::size_t right = right_in(cases, by_rules);
    CHECK_MESSAGE(right >= set.least, set.name);
    table << "| " << set.name << " | " << cases.size() << " | " << right << " | " << set.sentencex
          << " | " << set.pysbd << " | " << set.icu << " | ";
#if RAG_RETRIEVE_USE_ICU
    table << right_in(cases, by_icu);
#else
    table << '-';
#endif
    table << " |\n";
    for (const sentence_case& one : cases) {
      if (by_rules(one.text) != one.sentences) MESSAGE(set.name, " differs: ", one.text);
    }
    if (std::string_view(set.name) == "sentences/en.jsonl") {
      CHECK(cases.size() == 235);
      CHECK(right * 100 >= cases.size() * 98);
    }
  }
  MESSAGE("exact cases\n", table.str());
}

}  // namespace sentence_sets_tests
