// Section 8: terms of texts and questions, and identifiers that match whole.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <rag_retrieve.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "made.hpp"

namespace analysis_tests {

namespace rag = rag_retrieve;
using made::dice;

static_assert(std::is_aggregate_v<rag::analysis_options>);
static_assert(std::is_aggregate_v<rag::identifier_options>);

namespace {

using strings = std::vector<std::string>;

strings found(const strings& patterns, std::string_view text, bool case_matters = false) {
  strings values;
  const auto finder =
      rag::identifier_finder::make({.patterns = patterns, .case_matters = case_matters});
  for (const auto& match : finder.find(text)) values.push_back(match.value);
  return values;
}

/// The sentence of the error for a pattern; empty if it is accepted.
std::string refusal(const std::string& pattern) {
  const auto made = rag::identifier_finder::try_make({.patterns = {"ok", pattern}});
  if (made) return {};
  CHECK(made.failure().code() == rag::errc::invalid_argument);
  return made.failure().message();
}

bool has(const strings& terms, std::string_view term) {
  return std::find(terms.begin(), terms.end(), term) != terms.end();
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

// ---- terms --------------------------------------------------------------------------------------

TEST_CASE("terms: ASCII text is folded and split at what is neither letter nor digit") {
  CHECK(rag::analyse("Checkout returns PAY-042, again!") ==
        strings{"checkout", "returns", "pay", "042", "again"});
  CHECK(rag::analyse("don't snake_case C++ 3.14") ==
        strings{"don", "t", "snake", "case", "c", "3", "14"});
  CHECK(rag::analyse("").empty());
  CHECK(rag::analyse(" \t\n!!! ???").empty());
  CHECK(rag::analyse("\xE2\x80\x91").empty());  // a non-breaking hyphen alone
}

TEST_CASE("terms: no stemming and no stop words by default") {
  CHECK(rag::analyse("the checkouts of the credentials") ==
        strings{"the", "checkouts", "of", "the", "credentials"});
}

TEST_CASE("terms: each term tells the bytes it stands at") {
  const std::string text = "Don't! \xC3\x84gypten, \xE6\x9D\xB1\xE4\xBA\xAC\xE9\x83\xBD x";
  struct expected_term {
    std::string term;
    rag::byte_range where;
  };
  std::vector<expected_term> terms;
  rag::for_each_term(text, {}, [&](std::string_view term, rag::byte_range where) {
    terms.push_back({std::string(term), where});
  });
  REQUIRE(terms.size() >= 6);
  CHECK(terms[0].where == rag::byte_range{0, 3});
  CHECK(terms[1].where == rag::byte_range{4, 5});
  CHECK(terms[2].term == "\xC3\xA4gypten");
  CHECK(rag::slice(text, terms[2].where) == "\xC3\x84gypten");
  CHECK(terms[3].term == "\xE6\x9D\xB1\xE4\xBA\xAC");
  CHECK(terms[3].where == rag::byte_range{17, 23});
  CHECK(terms.back().term == "x");
  CHECK(terms.back().where == rag::byte_range{27, 28});
}

TEST_CASE("terms: letters beyond ASCII are folded, marks stay in their word") {
  CHECK(rag::analyse("STRA\xC3\x9F"
                     "E Stra\xC3\x9F"
                     "e strasse") == strings{"strasse", "strasse", "strasse"});
  CHECK(rag::analyse("\xD0\x9C\xD0\x98\xD0\xA0 \xD0\xBC\xD0\xB8\xD1\x80") ==
        strings{"\xD0\xBC\xD0\xB8\xD1\x80", "\xD0\xBC\xD0\xB8\xD1\x80"});
  const strings hindi = rag::analyse(
      "\xE0\xA4\xB9\xE0\xA4\xBF\xE0\xA4\xA8\xE0\xA5\x8D\xE0\xA4\xA6"
      "\xE0\xA5\x80");  // vowel signs and a virama inside
  CHECK(hindi.size() == 1);
  CHECK(rag::analyse("e\xCC\x81t\xC3\xA9").size() == 1);
}

TEST_CASE("terms: what shows nothing neither ends a word nor counts in it") {
  CHECK(rag::analyse("co\xC2\xADop\xC3\xA9ra") == strings{"coop\xC3\xA9ra"});  // soft hyphen
  CHECK(rag::analyse("co\xC2\xADop") == strings{"coop"});
  CHECK(rag::analyse("\xD9\x85\xDB\x8C\xE2\x80\x8C\xD8\xB1").size() == 1);  // non-joiner
  CHECK(rag::analyse("\xE2\x9D\xA4\xEF\xB8\x8F").empty());                  // a red heart
  CHECK(rag::analyse("a\xE2\x80\x8D b") == strings{"a", "b"});
  rag::for_each_term("a\xE2\x80\x8D b", {}, [](std::string_view term, rag::byte_range where) {
    CHECK(where.size() == term.size());
  });
}

TEST_CASE("terms: scripts without spaces give pairs of characters, one alone gives itself") {
  // Four Han characters, then Latin without a space, then one Han character.
  const strings terms = rag::analyse(
      "\xE6\x94\xAF\xE4\xBB\x98\xE7\xBD\x91\xE5\x85\xB3"
      "gateway \xE9\x92\xA5");
  CHECK(has(terms, "\xE6\x94\xAF\xE4\xBB\x98"));
  CHECK(has(terms, "\xE4\xBB\x98\xE7\xBD\x91"));
  CHECK(has(terms, "\xE7\xBD\x91\xE5\x85\xB3"));
  CHECK(has(terms, "gateway"));
  CHECK(has(terms, "\xE9\x92\xA5"));
#if !RAG_RETRIEVE_USE_ICU
  CHECK(terms.size() == 5);
#endif
}

TEST_CASE("terms: a Thai question finds its words in a longer text") {
  const std::string word = "\xE0\xB8\xA0\xE0\xB8\xB2\xE0\xB8\xA9\xE0\xB8\xB2";  // language
  const std::string other = "\xE0\xB9\x84\xE0\xB8\x97\xE0\xB8\xA2";             // Thai
  const strings in_text = rag::analyse(word + other);
  for (const std::string& term : rag::question_terms(word)) {
    CHECK(has(in_text, term));
  }
#if RAG_RETRIEVE_USE_ICU
  CHECK(has(in_text, word));  // by the dictionary
  CHECK(has(in_text, other));
#endif
}

TEST_CASE("terms: Japanese gives pairs, also where its scripts meet") {
  const strings terms = rag::analyse(
      "\xE6\x9D\xB1\xE4\xBA\xAC\xE3\x82\xBF\xE3\x83\xAF\xE3\x83\xBC");  // Tokyo Tower, in two
                                                                        // scripts
  for (const char* pair : {"\xE6\x9D\xB1\xE4\xBA\xAC", "\xE4\xBA\xAC\xE3\x82\xBF",
                           "\xE3\x82\xBF\xE3\x83\xAF", "\xE3\x83\xAF\xE3\x83\xBC"}) {
    CHECK(has(terms, pair));
  }
  CHECK(has(rag::analyse("\xE6\x9D\xB1\xE4\xBA\xACTower\xE3\x81\xB8"),
            "\xE6\x9D\xB1\xE4\xBA\xAC"));  // and again with a word in Latin letters
}

TEST_CASE("terms: what is taken for folded does fold to itself") {
  std::size_t taken = 0;
  for (char32_t value = 0x3000; value < 0xD800; ++value) {
    std::string text;
    rag::append_utf8(text, value);
    if (!rag::detail::is_folded_east_asian(text)) continue;
    ++taken;
    CHECK(rag::fold(text + text) == text + text);
  }
  CHECK(taken > 30000);
  const std::string marked = "\xE3\x81\x8B\xE3\x82\x99";  // ka and a voicing mark: ga, with ICU
  CHECK_FALSE(rag::detail::is_folded_east_asian(marked));
  CHECK(rag::analyse(marked) == strings{rag::fold(marked)});
}

TEST_CASE("terms: Korean gives pairs, so that a word is found with other endings") {
  const std::string seoul = "\xEC\x84\x9C\xEC\x9A\xB8";
  const std::string in_seoul = "\xEC\x84\x9C\xEC\x9A\xB8\xEC\x97\x90\xEC\x84\x9C";
  CHECK(has(rag::analyse(in_seoul + " abc"), seoul));
  CHECK(has(rag::analyse(in_seoul + " abc"), "abc"));
  CHECK(rag::question_terms(seoul) == strings{seoul});
  CHECK(rag::analyse("\xEB\xAC\xBC") == strings{"\xEB\xAC\xBC"});  // one syllable
#if !RAG_RETRIEVE_USE_ICU
  CHECK(rag::analyse(in_seoul).size() == 3);
#endif
}

TEST_CASE("terms: Khmer, Lao and Burmese are cut without spaces too") {
  for (const char* text :
       {"\xE1\x9E\x97\xE1\x9E\xB6\xE1\x9E\x9F\xE1\x9E\xB6\xE1\x9E\x81\xE1\x9F\x92\xE1\x9E\x98\xE1"
        "\x9F\x82\xE1\x9E\x9A",
        "\xE0\xBA\x9E\xE0\xBA\xB2\xE0\xBA\xAA\xE0\xBA\xB2\xE0\xBA\xA5\xE0\xBA\xB2\xE0\xBA\xA7",
        "\xE1\x80\x99\xE1\x80\xBC\xE1\x80\x94\xE1\x80\xBA\xE1\x80\x99\xE1\x80\xAC\xE1\x80\x98\xE1"
        "\x80\xAC\xE1\x80\x9E\xE1\x80\xAC"}) {
    CHECK(rag::analyse(text).size() >= 2);
  }
}

TEST_CASE("terms: words of Hindi, Bengali, Tamil, Hebrew and Arabic keep their marks") {
  for (const char* word :
       {"\xE0\xA4\xB9\xE0\xA4\xBF\xE0\xA4\xA8\xE0\xA5\x8D\xE0\xA4\xA6\xE0\xA5\x80",
        "\xE0\xA6\xAC\xE0\xA6\xBE\xE0\xA6\x82\xE0\xA6\xB2\xE0\xA6\xBE",
        "\xE0\xAE\xA4\xE0\xAE\xAE\xE0\xAE\xBF\xE0\xAE\xB4\xE0\xAF\x8D",
        "\xD7\xA9\xD6\xB8\xD7\x81\xD7\x9C\xD7\x95\xD6\xB9\xD7\x9D",
        "\xD8\xA7\xD9\x84\xD8\xB9\xD9\x8E\xD8\xB1\xD9\x8E\xD8\xA8\xD9\x90\xD9\x8A\xD9\x8E\xD9\x91"
        "\xD8\xA9"}) {
    CHECK(rag::analyse(std::string("a ") + word + ", b").size() == 3);
    CHECK(rag::analyse(word).at(0).size() == std::string_view(word).size());
  }
}

TEST_CASE("terms: capitals of Latin, Greek and Cyrillic are folded") {
  struct pair {
    const char* capital;
    const char* small;
  };
  for (const pair& each : {pair{"\xC3\x85NGSTR\xC3\x96M", "\xC3\xA5ngstr\xC3\xB6m"},
                           pair{"\xC5\x81\xC3\x93"
                                "D\xC5\xB9",
                                "\xC5\x82\xC3\xB3"
                                "d\xC5\xBA"},
                           pair{"\xCE\xA3\xCE\x8A\xCE\xA3\xCE\xA5\xCE\xA6\xCE\x9F\xCE\xA3",
                                "\xCF\x83\xCE\xAF\xCF\x83\xCF\x85\xCF\x86\xCE\xBF\xCF\x82"},
                           pair{"\xD0\x9F\xD0\xA0\xD0\x98\xD0\x92\xD0\x95\xD0\xA2",
                                "\xD0\xBF\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82"},
                           pair{"\xD4\xB5\xD5\x90\xD4\xB5\xD5\x8E\xD4\xB1\xD5\x86",
                                "\xD5\xA5\xD6\x80\xD5\xA5\xD5\xBE\xD5\xA1\xD5\xB6"}}) {
    CHECK(rag::analyse(each.capital) == rag::analyse(each.small));
    CHECK(rag::analyse(each.capital).size() == 1);
  }
}

TEST_CASE("terms: wide letters and digits, as in Chinese and Japanese text, are ASCII") {
  CHECK(rag::analyse("\xEF\xBC\xA1\xEF\xBD\x82\xEF\xBC\xBA "
                     "\xEF\xBC\x92\xEF\xBC\x90\xEF\xBC\x92\xEF\xBC\x96") == strings{"abz", "2026"});
  CHECK(rag::fold("\xEF\xBC\xB0\xEF\xBC\xA1\xEF\xBC\xB9\xEF\xBC\x8D\xEF\xBC\x90\xEF\xBC\x94\xEF\xBC"
                  "\x92\xEF\xBC\x81") == "pay-042!");
}

#if RAG_RETRIEVE_USE_ICU
TEST_CASE("terms: compatibility forms become what they stand for (ICU)") {
  CHECK(rag::analyse("\xEF\xBC\xA1\xEF\xBC\xA2\xEF\xBC\x91") == strings{"ab1"});  // wide AB1
  CHECK(rag::analyse("\xC2\xBD") == strings{"1", "2"});                           // one half
  CHECK(rag::analyse("\xEF\xAC\x81nd") == strings{"find"});                       // ligature fi
  CHECK(rag::analyse("e\xCC\x81") == rag::analyse("\xC3\xA9"));
}
#endif

TEST_CASE("terms: every ASCII string gives what a byte loop gives") {
  dice random{3};
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (std::size_t i = random.below(80); i > 0; --i) text += static_cast<char>(random.below(128));
    strings expected;
    std::string word;
    for (const char c : text + " ") {
      const bool upper = c >= 'A' && c <= 'Z';
      if (upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
        word += upper ? static_cast<char>(c - 'A' + 'a') : c;
      } else if (!word.empty()) {
        expected.push_back(word);
        word.clear();
      }
    }
    CHECK(rag::analyse(text) == expected);
  }
}

TEST_CASE("terms: hostile bytes give ranges in order, inside the text, and never fail") {
  dice random{4};
  const strings pieces{"\xE2\x80\x8D",
                       "\xCC\x81",
                       "\xE6\x9D\xB1",
                       "\xFF",
                       "\xC3",
                       "a",
                       "\xE0\xB8\xB2",
                       "-",
                       "\xC2\xAD",
                       "\\",
                       "\xF0\x9F\x91\xA9",
                       "PAY-042",
                       "_",
                       "\xEF\xB8\x8F",
                       "\0",
                       "\xE2\x80\x91"};
  const auto finder = rag::identifier_finder::make({.patterns = {"PAY-###", "*-*", "@+[#]"}});
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (std::size_t i = random.below(30); i > 0; --i) {
      if (random.below(4) == 0) {
        text += static_cast<char>(random.below(256));
      } else {
        text += pieces[random.below(pieces.size())];
      }
    }
    std::size_t last = 0;
    rag::for_each_term(text, {}, [&](std::string_view term, rag::byte_range where) {
      CHECK(!term.empty());
      CHECK(where.begin >= last);
      CHECK(where.begin < where.end);
      CHECK(where.end <= text.size());
      last = where.begin;
    });
    for (const auto& match : finder.find(text)) {
      CHECK(match.where.begin < match.where.end);
      CHECK(match.where.end <= text.size());
      CHECK(rag::normalise_identifier(rag::slice(text, match.where)) == match.value);
    }
  }
}

TEST_CASE("questions: each term once, in order of first use") {
  CHECK(rag::question_terms("Error error, then the ERROR log") ==
        strings{"error", "then", "the", "log"});
  CHECK(rag::question_terms("!!!").empty());
}

TEST_CASE("questions: stop words leave questions only, and never a question made of them") {
  const rag::analysis_options english{
      .is_stop_word = [](std::string_view w) { return w == "to" || w == "be" || w == "not"; }};
  CHECK(rag::question_terms("not to be found", english) == strings{"found"});
  CHECK(rag::question_terms("to be or not to be", english) == strings{"or"});
  CHECK(rag::question_terms("To be not to be", english) == strings{"to", "be", "not"});
  CHECK(rag::analyse("to be found", english) == strings{"to", "be", "found"});
}

TEST_CASE("questions: a stemmer works on both sides; an empty stem is no term") {
  const rag::analysis_options plural{
      .stem =
          [](std::string_view word) {
            if (word == "x") return std::string();
            return std::string(word.ends_with("s") ? word.substr(0, word.size() - 1) : word);
          },
      .is_stop_word = [](std::string_view word) { return word == "keys"; }};
  CHECK(rag::analyse("Keys x locks", plural) == strings{"key", "lock"});
  CHECK(rag::question_terms("lock locks keys", plural) == strings{"lock"});
}

// ---- identifiers: the pattern language ----------------------------------------------------------

TEST_CASE("identifiers: PAY-### matches PAY-042, never PAY-0421, XPAY-042 or PAY-04") {
  const strings patterns{"PAY-###"};
  CHECK(found(patterns, "It failed with PAY-042.") == strings{"pay-042"});
  for (const char* other : {"PAY-0421", "XPAY-042", "PAY-04", "PAY042", "_PAY-042", "PAY-042_",
                            "PAY-042-B", "X-PAY-042", "1PAY-042", "PAY--042", "PAY- 042",
                            "\xC3\xA9PAY-042", "PAY-042\xC3\xA9", "PAY-042\\_x"}) {
    CAPTURE(other);
    CHECK(found(patterns, other).empty());
  }
}

TEST_CASE("identifiers: punctuation, quotes and Markdown around a code do not matter") {
  for (const char* text : {"(PAY-042), again", "see PAY-042: retry", "PAY-042?", "pay-042",
                           "`PAY-042`", "**PAY-042**", "[PAY-042](x)", "\"PAY-042\"", "-PAY-042-",
                           "PAY-042 - x", "--PAY-042", "\nPAY-042\n", "PAY\\-042", "x/PAY-042/y",
                           "`PAY-042`s", "\xE2\x80\x9CPAY-042\xE2\x80\x9D", "PAY-042\xFF"}) {
    CAPTURE(text);
    CHECK(found({"PAY-###"}, text) == strings{"pay-042"});
  }
}

TEST_CASE("identifiers: any hyphen is any hyphen") {
  for (const char* hyphen :
       {"\xE2\x80\x90", "\xE2\x80\x91", "\xE2\x80\x92", "\xE2\x80\x93", "\xE2\x80\x94",
        "\xE2\x80\x95", "\xE2\x88\x92", "\xC2\xAD", "\xEF\xBC\x8D", "\xEF\xB9\xA3"}) {
    const std::string text = std::string("PAY") + hyphen + "042";
    CAPTURE(text);
    CHECK(found({"PAY-###"}, text) == strings{"pay-042"});
    CHECK(found({std::string("PAY") + hyphen + "###"}, "pay-042") == strings{"pay-042"});
    CHECK(rag::normalise_identifier(text) == "pay-042");
    CHECK(found({"PAY-###"}, text + hyphen + "X").empty());
  }
}

TEST_CASE("identifiers: digits, letters and words, once or more") {
  CHECK(found({"@#"},
              "a1 ab1 a12 \xC3\xA9"
              "1") == strings{"a1"});
  CHECK(found({"@+-#+"}, "C-8 AR-7 PGMP-15 7-AR") == strings{"c-8", "ar-7", "pgmp-15"});
  CHECK(found({"ERR_*"}, "ERR_DUP_KEY err_1 ERR_ XERR_A") == strings{"err_dup_key", "err_1"});
  CHECK(found({"*.hpp"}, "a.hpp, rag_retrieve.hpp .hpp") == strings{"a.hpp", "rag_retrieve.hpp"});
  CHECK(found({"*+x"}, "abcx x") == strings{"abcx"});
  CHECK(found({"##-@@######"}, "54-OR323014 54-OR32301 54-OR3230145") == strings{"54-or323014"});
  CHECK(found({"*"}, "na\xC3\xAFve") == strings{"na\xC3\xAFve"});
}

TEST_CASE("identifiers: optional parts and alternatives, nested, the longest first") {
  const strings patterns{"E[RR]-(1|2[0]|(30|40)#)"};
  CHECK(found(patterns, "E-1 ERR-20 E-2 E-305 ER-1 E-30 E-40") ==
        strings{"e-1", "err-20", "e-2", "e-305"});
  CHECK(found({"v#+[.#+[.#+]]"}, "v1 v1.22 v1.2.3 v1.2.3.4") == strings{"v1", "v1.22", "v1.2.3"});
  CHECK(found({"(ab|abc|a)"}, "abc") == strings{"abc"});
  CHECK(found({"a[b|c]"}, "a ab|c ab") == strings{"a", "ab|c"});  // '|' means itself here
}

TEST_CASE("identifiers: all else is itself, with a backslash anything is") {
  CHECK(found({"C++", "C\\#"}, "C++ and C# but C+ and C") == strings{"c++", "c#"});
  CHECK(found({"\\[\\*\\]"}, "x [*] y") == strings{"[*]"});
  CHECK(found({".NET"}, "use .NET, not ASP.NET") == strings{".net"});
  CHECK(found({"\\#+"}, "#+ ##") == strings{"#+"});
  CHECK(found({"ISO ####"}, "by ISO 9001.") == strings{"iso 9001"});
  CHECK(found({"a|b"}, "a|b a b") == strings{"a|b"});
  CHECK(found({"C:\\\\*"}, "see C:\\temp") == strings{"c:\\temp"});
}

TEST_CASE("identifiers: the forms of a pattern, one by one") {
  struct form {
    const char* pattern;
    const char* text;
    strings codes;
  };
  const form forms[] = {
      {"PAY-###", "PAY-042 PAY-42 PAY-AB1", {"pay-042"}},
      {"E####", "E0382 E382 E03825 0382", {"e0382"}},
      {"CVE-####-####+",
       "CVE-2021-44228 CVE-2014-0160 CVE-2021-442",
       {"cve-2021-44228", "cve-2014-0160"}},
      {"@@@-#+", "ABC-1 AB-1 ABCD-12 xyz-345", {"abc-1", "xyz-345"}},
      {"@+_@+", "key_value key_ _value a1_b", {"key_value"}},
      {"*::*", "std::vector, rag_retrieve::fold2", {"std::vector", "rag_retrieve::fold2"}},
      {"KB[-]######", "KB123456 kb-123456 KB--123456", {"kb123456", "kb-123456"}},
      {"(PAY|REF)-###", "PAY-001 REF-002 XPAY-003 ORD-004", {"pay-001", "ref-002"}},
      {"R##[(a|b)]", "R01 R02a R03b R04c", {"r01", "r02a", "r03b"}},
      {"C++", "C++, C+ and C", {"c++"}},
      {"C\\#", "C#, C and F#", {"c#"}},
      {"\\@@+", "write to @anna", {"@anna"}},
      {"+##", "+49 and 49", {"+49"}},
      {"-Wall", "g++ -Wall -Wallet", {"-wall"}},
      {"/##/", "a /12/ b", {"/12/"}},
  };
  for (const form& each : forms) {
    CAPTURE(each.pattern);
    CHECK(found({each.pattern}, each.text) == each.codes);
  }
}

TEST_CASE(
    "identifiers: a code inside another is no match; with both patterns each is found whole") {
  CHECK(found({"PAY-###"}, "PAY-042-EU and EU-PAY-042").empty());
  CHECK(found({"PAY-###", "PAY-###-@@"}, "PAY-042-EU, PAY-042") ==
        strings{"pay-042-eu", "pay-042"});
  CHECK(found({"ERR-*", "E####"}, "ERR-E0382 or E0382") == strings{"err-e0382", "e0382"});
  CHECK(found({"ER_*"}, "ER_DUP_ENTRY_WITH_KEY_NAME") == strings{"er_dup_entry_with_key_name"});
  CHECK(found({"ER_DUP_ENTRY"}, "ER_DUP_ENTRY_WITH_KEY_NAME").empty());
  CHECK(found({"no-empty", "no-empty-class"}, "no-empty-class") == strings{"no-empty-class"});
  CHECK(found({"#.#[.#]", "#"}, "1.2.3") == strings{"1.2.3", "1", "2", "3"});  // dots part codes
}

TEST_CASE("identifiers: Markdown around and inside a code") {
  for (const char* text : {"`ER_DUP_ENTRY`", "``ER_DUP_ENTRY``", "ER\\_DUP\\_ENTRY",
                           "**ER\\_DUP\\_ENTRY**", "[ER\\_DUP\\_ENTRY](#er)", "# ER_DUP_ENTRY #",
                           "| ER\\_DUP_ENTRY |", "<b>ER_DUP_ENTRY</b>", "~~er_dup_entry~~"}) {
    CAPTURE(text);
    CHECK(found({"ER_*"}, text) == strings{"er_dup_entry"});
    CHECK(found({"ER\\_DUP\\_ENTRY"}, text) == strings{"er_dup_entry"});
  }
  CHECK(found({"C++", "C\\#"}, "C\\+\\+ and C\\#, `C++` and `C#`") == strings{"c++", "c#"});
  CHECK(found({"C++"}, "C++17, XC++ and C+++").size() == 1);  // C+++ is C++ and a plus
}

TEST_CASE("identifiers: wide letters, digits and hyphens fit as their ASCII forms do") {
  const std::string wide =
      "\xEF\xBC\xB0\xEF\xBC\xA1\xEF\xBC\xB9\xEF\xBC\x8D\xEF\xBC\x90\xEF\xBC\x94\xEF\xBC\x92";
  CHECK(found({"PAY-###"}, wide) == strings{"pay-042"});
  CHECK(rag::normalise_identifier(wide) == "pay-042");
  CHECK(found({"PAY-###"}, wide + "\xEF\xBC\x99").empty());
}

TEST_CASE("identifiers: a Markdown escape counts as the character it stands for") {
  CHECK(found({"ER_*"}, "ER\\_DUP\\_ENTRY and ER_X") == strings{"er_dup_entry", "er_x"});
  CHECK(rag::normalise_identifier("ER\\_DUP\\_ENTRY") == "er_dup_entry");
  CHECK(rag::normalise_identifier(" PAY-042\n") == "pay-042");
}

TEST_CASE("identifiers: a hyphen belongs to a code only with a letter beyond it") {
  const strings rule{"no-empty"};
  CHECK(found(rule, "no-empty-class") == strings{});
  CHECK(found(rule, "x-no-empty") == strings{});
  CHECK(found(rule, "no-empty- and -no-empty, no-empty") == strings{"no-empty"});
  CHECK(found({"@+-@+"}, "no-empty-class") == strings{});
}

TEST_CASE("identifiers: case matters only if asked for") {
  CHECK(found({"PAY-###"}, "PAY-042 pay-042 Pay-042") == strings{"pay-042"});
  CHECK(found({"PAY-###"}, "PAY-042 pay-042", true) == strings{"PAY-042"});
  CHECK(found({"@@-###"}, "Ab-123 aB-123", true) == strings{"Ab-123", "aB-123"});
  CHECK(rag::normalise_identifier("PAY\xE2\x80\x91"
                                  "042",
                                  true) == "PAY-042");
}

TEST_CASE("identifiers: what shows nothing does not part a code, nor hide what touches it") {
  CHECK(found({"PAY-###"},
              "PAY-\xE2\x81\xA0"
              "042") == strings{"pay-042"});
  CHECK(found({"PAY-###"},
              "PAY-042\xE2\x81\xA0"
              "1")
            .empty());
  CHECK(found({"PAY-###"}, "PAY-042\xE2\x80\x8B") == strings{"pay-042"});
}

TEST_CASE("identifiers: distinct values in order of first appearance, with their bytes") {
  const auto finder = rag::identifier_finder::make({.patterns = {"PAY-###", "E##"}});
  const std::string text = "PAY-042, E41, then `pay-041` (PAY-042) e41";
  const auto matches = finder.find(text);
  REQUIRE(matches.size() == 3);
  CHECK(matches[0].value == "pay-042");
  CHECK(matches[0].where == rag::byte_range{0, 7});
  CHECK(matches[1].value == "e41");
  CHECK(matches[1].where == rag::byte_range{9, 12});
  CHECK(rag::slice(text, matches[2].where) == "pay-041");

  const auto all = finder.find_all(text);
  REQUIRE(all.size() == 5);
  CHECK(all[3].value == "pay-042");
  CHECK(rag::slice(text, all[3].where) == "PAY-042");
  CHECK(all[4].value == "e41");
}

TEST_CASE("identifiers: a pattern finds the same beside others") {
  const std::string text = "10.1000/abc and 1000, ERR_7";
  CHECK(found({"##.####/*"}, text) == strings{"10.1000/abc"});
  CHECK(found({"####"}, text) == strings{"1000"});
  CHECK(found({"##.####/*", "####"}, text) == strings{"10.1000/abc", "1000"});
}

TEST_CASE("identifiers: one digit off is another code") {
  const strings isbn{"#############"};
  CHECK(found(isbn, "ISBN 9789525557992") == strings{"9789525557992"});
  CHECK(found(isbn, "9789525157992") != found(isbn, "ISBN 9789525557992"));
  CHECK(found({"###-####-###"}, "000-9999-999 0009999999") == strings{"000-9999-999"});
}

TEST_CASE("identifiers: a callback may stand beside or instead of patterns") {
  const auto callback = [](std::string_view text) {
    strings out;
    if (text.find("Visa") != std::string_view::npos)
      out = {"Visa",
             "PAY\xE2\x80\x91"
             "042",
             " "};
    return out;
  };
  const auto both = rag::identifier_finder::make({.patterns = {"PAY-###"}, .find = callback});
  const auto matches = both.find("Visa and PAY-042");
  REQUIRE(matches.size() == 2);
  CHECK(matches[0].value == "pay-042");
  CHECK(matches[1].value == "visa");
  CHECK(matches[1].where.empty());
  const auto alone = rag::identifier_finder::make({.find = callback});
  CHECK(!alone.empty());
  CHECK(alone.find("Visa").size() == 2);
  CHECK(rag::identifier_finder().empty());
  CHECK(rag::identifier_finder().find("PAY-042").empty());
}

TEST_CASE("identifiers: a bad pattern is invalid_argument that names it and the byte") {
  CHECK(contains(refusal("PAY-[##"), "'PAY-[##': byte 4"));
  CHECK(contains(refusal("(a|b"), "byte 0 opens"));
  CHECK(contains(refusal("a]"), "byte 1 closes"));
  CHECK(contains(refusal("a)"), "byte 1 closes"));
  CHECK(contains(refusal("(a]"), "byte 2 closes"));
  CHECK(contains(refusal("a[]"), "byte 2"));
  CHECK(contains(refusal("()"), "byte 1"));
  CHECK(contains(refusal("(a|)"), "byte 3"));
  CHECK(contains(refusal("(|a)"), "byte 1"));
  CHECK(contains(refusal("(a||b)"), "byte 3"));
  CHECK(contains(refusal("a\\"), "byte 1"));
  CHECK(contains(refusal("a\xFF"), "byte 1"));
  CHECK(contains(refusal(""), "empty"));
  CHECK(contains(refusal("[a]"), "'[a]'"));
  CHECK(contains(refusal("([a]|b)"), "optional"));
  CHECK(refusal("a+|b-").empty());
  CHECK(refusal(std::string(100000, '(') + "a" + std::string(100000, ')')).empty());
}

// ---- identifiers: properties --------------------------------------------------------------------

TEST_CASE("identifiers: planted codes are found, their neighbours are not") {
  dice random{5};
  const auto finder = rag::identifier_finder::make({.patterns = {"PAY-###", "ERR_@@[#]"}});
  const strings fillers{"checkout",          "PAY",       "042",       "PAY-04",
                        "PAY-0421",          "XPAY-042",  "ERR_",      "ERR_A",
                        "ERR_AB12",          "a-PAY-042", "PAY-042-b", "PAY.042",
                        "\xC3\xA9t\xC3\xA9", "C++",       "ERR-AB",    "_PAY-042"};
  const strings borders{" ", "\n", ". ", " (", ") ", "`", ", ", "/", "\xE2\x80\xA6", "\xFF"};
  for (int round = 0; round < 500; ++round) {
    std::string text;
    strings planted;
    std::vector<rag::byte_range> places;
    const std::size_t words = random.below(20);
    for (std::size_t i = 0; i < words; ++i) {
      if (random.below(3) == 0) {
        std::string code = random.below(2) == 0 ? "pay-" : "err_";
        const bool pay = code[0] == 'p';
        for (int j = 0; j < 3; ++j) {
          const bool digit = pay || j == 2;
          code += static_cast<char>(digit ? '0' + random.below(10) : 'a' + random.below(26));
        }
        std::string written = code;
        for (char& c : written) {
          if (c >= 'a' && random.below(2) == 0) c = static_cast<char>(c - 'a' + 'A');
        }
        if (std::find(planted.begin(), planted.end(), code) == planted.end()) {
          planted.push_back(code);
          places.push_back({text.size(), text.size() + written.size()});
        }
        text += written;
      } else {
        text += fillers[random.below(fillers.size())];
      }
      text += borders[random.below(borders.size())];
    }
    CAPTURE(text);
    const auto matches = finder.find(text);
    REQUIRE(matches.size() == planted.size());
    for (std::size_t i = 0; i < matches.size(); ++i) {
      CHECK(matches[i].value == planted[i]);
      CHECK(matches[i].where == places[i]);
    }
  }
}

TEST_CASE("identifiers: patterns that trouble backtracking engines end on long texts") {
  const std::string letters(200000, 'a');
  CHECK(found({"@+@+@+@+#"}, letters).empty());
  CHECK(found({"[a][a][a][a][a][a][a][a]@+!"}, letters).empty());
  std::string dotted;
  for (int i = 0; i < 50000; ++i) dotted += "a.";
  CHECK(found({"*.*.*.*.#"}, dotted).empty());
  CHECK(found({"(@+|*)(@+|*)[.]!"}, dotted).empty());
  const std::string hyphens = std::string(100000, '-') + "a";
  CHECK(found({"--*"}, hyphens) == strings{"--a"});
}

TEST_CASE("identifiers: a normal form stays what it is") {
  for (const char* text : {"PAY-042",
                           "Stra\xC3\x9F"
                           "e",
                           "C++", "a b", "\xEF\xBC\xA1-1", "_x_"}) {
    const std::string once = rag::normalise_identifier(text);
    CHECK(rag::normalise_identifier(once) == once);
  }
}

TEST_CASE("identifiers: a sign that folds to a letter touches a code, and starts no walk") {
  const auto finder = rag::identifier_finder::make({.patterns = {"@+-#", "PAY-###"}});
  const std::string circled = "\xE2\x92\xB6";  // with ICU it folds to a
  std::string many;
  for (int i = 0; i < 20000; ++i) many += circled;
  CHECK(finder.find(many).empty());
  if (rag::fold(circled) == "a") CHECK(finder.find("PAY-042" + circled).empty());
}

}  // namespace analysis_tests
