// Section 7: the semantic chunker. The embedders here are made so that distances are known.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <rag_retrieve.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace semantic_tests {

namespace semantic_test {

namespace rag = rag_retrieve;
using doctest::Approx;
using kind = rag::semantic_threshold;
using strings = std::vector<std::string>;
using vectors = std::vector<std::vector<float>>;

inline rag::document page(std::string text) {
  rag::document made;
  made.id = "doc";
  made.text = std::move(text);
  return made;
}

inline strings texts_of(const rag::document& source, const std::vector<rag::chunk>& pieces) {
  strings out;
  for (const rag::chunk& piece : pieces) out.emplace_back(rag::chunk_text(source, piece));
  return out;
}

/// Answers the n-th text with the n-th vector.
inline rag::embedder scripted(vectors answers) {
  return {.model = "m",
          .embed = [answers = std::move(answers), at = std::size_t{0}](
                       std::span<const std::string_view> texts, rag::text_role) mutable {
            vectors out;
            for (std::size_t i = 0; i < texts.size(); ++i) out.push_back(answers.at(at++));
            return out;
          }};
}

/// Vectors in the plane, each so far from the one before as `distances` say.
inline rag::embedder at_distances(const std::vector<double>& distances) {
  double angle = 0;
  vectors answers{{1, 0}};
  for (const double distance : distances) {
    angle += std::acos(1 - distance);
    answers.push_back({static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))});
  }
  return scripted(std::move(answers));
}

inline rag::embedder always(std::vector<float> values) {
  return {.model = "m", .embed = [values](std::span<const std::string_view> texts, rag::text_role) {
            return vectors(texts.size(), values);
          }};
}

/// "A0 is. A1 is. ..."
inline std::string numbered(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += "Item " + std::to_string(i) + " is red. ";
  text.pop_back();
  return text;
}

/// How many sentences each chunk has.
inline std::vector<std::size_t> sizes_of(const rag::semantic_result& found) {
  std::vector<std::size_t> out;
  for (const rag::chunk& piece : found.chunks) {
    const auto inside = [&](const rag::byte_range& sentence) {
      return sentence.begin >= piece.range.begin && sentence.end <= piece.range.end;
    };
    out.push_back(static_cast<std::size_t>(
        std::count_if(found.sentences.begin(), found.sentences.end(), inside)));
  }
  return out;
}
using sizes = std::vector<std::size_t>;

inline rag::semantic_result cut(const std::vector<double>& distances, kind how, double threshold,
                                std::size_t chunk_size = 256, std::size_t min_chunk_size = 0) {
  return rag::semantic_cuts(page(numbered(distances.size() + 1)),
                            {.embed = at_distances(distances),
                             .window = 0,
                             .threshold_kind = how,
                             .threshold = threshold,
                             .chunk_size = chunk_size,
                             .min_chunk_size = min_chunk_size});
}

inline std::string refusal(const rag::semantic_options& options, std::string text = {}) {
  const auto made = rag::try_chunk_semantic(page(std::move(text)), options);
  if (made) return "accepted";
  CHECK(made.failure().code() == rag::errc::invalid_argument);
  return made.failure().message();
}

}  // namespace semantic_test

using namespace semantic_test;

TEST_CASE("semantic: a cut stands where the distance is above the threshold, not at it") {
  CHECK(sizes_of(cut({0.1, 0.6, 0.2, 0.5}, kind::absolute, 0.35)) == sizes{2, 2, 1});
  // (1,0) and (0,1) are exactly 1 apart.
  const auto at = [](double threshold) {
    return rag::chunk_semantic(page("Aa one. Bb two."), {.embed = scripted({{1, 0}, {0, 1}}),
                                                         .window = 0,
                                                         .threshold_kind = kind::absolute,
                                                         .threshold = threshold})
        .size();
  };
  CHECK(at(1) == 1);
  CHECK(at(0.999) == 2);
}

TEST_CASE("semantic: distances, sentences and threshold come back for display") {
  const rag::semantic_result found = cut({0.1, 0.6, 0.2}, kind::absolute, 0.35);
  CHECK(found.sentences.size() == 4);
  REQUIRE(found.distances.size() == 3);
  CHECK(found.distances[0] == Approx(0.1));
  CHECK(found.distances[1] == Approx(0.6));
  CHECK(found.distances[2] == Approx(0.2));
  CHECK(found.compared == found.distances);
  CHECK(found.threshold == Approx(0.35));
}

TEST_CASE("semantic: each statistical threshold is the number that numpy gives") {
  const std::vector<double> distances = {0.1, 0.6, 0.2, 0.5, 0.3};
  CHECK(cut(distances, kind::percentile, 95).threshold == Approx(0.58));
  CHECK(cut(distances, kind::percentile, 50).threshold == Approx(0.3));
  CHECK(cut(distances, kind::percentile, 0).threshold == Approx(0.1));
  CHECK(cut(distances, kind::percentile, 100).threshold == Approx(0.6));
  CHECK(cut(distances, kind::standard_deviation, 1).threshold == Approx(0.34 + 0.18547237));
  CHECK(cut(distances, kind::interquartile, 1.5).threshold == Approx(0.34 + 1.5 * 0.3));
  const rag::semantic_result found = cut(distances, kind::gradient, 50);
  const std::vector<double> slopes = {0.5, 0.05, -0.05, 0.05, -0.2};
  REQUIRE(found.compared.size() == slopes.size());
  for (std::size_t i = 0; i < slopes.size(); ++i) CHECK(found.compared[i] == Approx(slopes[i]));
  CHECK(found.threshold == Approx(0.05));
}

TEST_CASE("semantic: without a threshold each kind takes its usual one") {
  const auto usual = [](kind how) {
    return rag::semantic_cuts(
               page(numbered(4)),
               {.embed = at_distances({0.1, 0.6, 0.2}), .window = 0, .threshold_kind = how})
        .threshold;
  };
  CHECK(usual(kind::absolute) == Approx(0.35));
  CHECK(usual(kind::percentile) == Approx(0.56));
  CHECK(usual(kind::standard_deviation) == Approx(0.3 + 3 * 0.21602469));
  CHECK(usual(kind::interquartile) == Approx(0.3 + 1.5 * 0.25));
  // slopes 0.5, 0.05, -0.4: 0.05 + 0.9 * 0.45
  CHECK(usual(kind::gradient) == Approx(0.455));
}

TEST_CASE("semantic: equal distances make no cut under any kind that is not absolute") {
  for (const kind how :
       {kind::percentile, kind::standard_deviation, kind::interquartile, kind::gradient}) {
    const double threshold = how == kind::standard_deviation || how == kind::interquartile ? 0 : 95;
    // A third of a turn each time: equal distances that no binary number holds exactly.
    for (const std::size_t count : {2U, 3U, 4U, 11U}) {
      vectors answers;
      for (std::size_t i = 0; i < count; ++i) {
        answers.push_back(i % 2 == 0 ? std::vector<float>{0.1F, 0.2F, 0.3F}
                                     : std::vector<float>{0.3F, 0.1F, 0.2F});
      }
      const auto found = rag::semantic_cuts(
          page(numbered(count)),
          {.embed = scripted(answers), .window = 0, .threshold_kind = how, .threshold = threshold});
      CHECK(found.distances.front() > 0.1);
      CHECK(found.chunks.size() == 1);
    }
  }
}

TEST_CASE("semantic: no sentence and one sentence ask no embedder; two have one distance") {
  std::size_t calls = 0;
  rag::embedder model = always({1, 0});
  model.embed = [&calls, inner = model.embed](std::span<const std::string_view> texts,
                                              rag::text_role role) {
    ++calls;
    CHECK(role == rag::text_role::document);
    return inner(texts, role);
  };
  CHECK(rag::chunk_semantic(page(" \n "), {.embed = model}).empty());
  CHECK(rag::chunk_semantic(page("Only one."), {.embed = model}).size() == 1);
  CHECK(calls == 0);
  CHECK(rag::chunk_semantic(page("Aa one. Bb two."), {.embed = model}).size() == 1);
  CHECK(calls == 1);
  for (const kind how :
       {kind::percentile, kind::standard_deviation, kind::interquartile, kind::gradient}) {
    const auto made = rag::chunk_semantic(
        page("Aa one. Bb two."),
        {.embed = scripted({{1, 0}, {-1, 0}}), .window = 0, .threshold_kind = how});
    CHECK(made.size() == 1);
  }
}

TEST_CASE("semantic: windows are slices of the text, as many on either side, cut off at its ends") {
  strings seen;
  const rag::document source = page("Ann ran.  Bob sat.\nCy sang. Di hid. Ed won.");
  std::vector<std::size_t> calls;
  const rag::embedder model{
      .model = "m", .batch_size = 2, .embed = [&](std::span<const std::string_view> texts, auto) {
        calls.push_back(texts.size());
        for (const std::string_view text : texts) {
          seen.emplace_back(text);
          CHECK(text.data() >= source.text.data());
          CHECK(text.data() + text.size() <= source.text.data() + source.text.size());
        }
        return vectors(texts.size(), {1, 0});
      }};
  CHECK(rag::chunk_semantic(source, {.embed = model, .window = 1}).size() == 1);
  CHECK(seen == strings{"Ann ran.  Bob sat.", "Ann ran.  Bob sat.\nCy sang.",
                        "Bob sat.\nCy sang. Di hid.", "Cy sang. Di hid. Ed won.",
                        "Di hid. Ed won."});
  CHECK(calls == std::vector<std::size_t>{2, 2, 1});

  seen.clear();
  CHECK(rag::chunk_semantic(source, {.embed = model, .window = 0}).size() == 1);
  CHECK(seen == strings{"Ann ran.", "Bob sat.", "Cy sang.", "Di hid.", "Ed won."});

  seen.clear();
  const std::size_t all = (std::numeric_limits<std::size_t>::max)();
  CHECK(rag::chunk_semantic(source, {.embed = model, .window = all}).size() == 1);
  CHECK(seen == strings(5, source.text));
}

TEST_CASE("semantic: a vector that is not finite is an error that names its sentence") {
  const rag::document source = page("Aa one. Bb two. Cc three. Dd four. Ee five.");
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    const auto made = rag::try_chunk_semantic(
        source, {.embed = scripted({{1, 0}, {0, 0}, {1, 0}, {0, bad}, {1, 0}}), .window = 0});
    REQUIRE(!made);
    CHECK(made.failure().code() == rag::errc::not_finite);
    CHECK(made.failure().message() ==
          "chunk_semantic: embedder 'm': the vector of sentence 4 of 5 of 'doc': number 2 of 2 is "
          "not finite");
  }
}

TEST_CASE("semantic: distances of a zero vector are 1 and poison no statistics") {
  const auto found = rag::semantic_cuts(
      page("Aa one. Bb two. Cc three. Dd four. Ee five."),
      {.embed = scripted({{1, 0}, {0, 0}, {1, 0}, {1, 0}, {1, 0}}), .window = 0});
  CHECK(found.distances == std::vector<double>{1, 1, 0, 0});
  CHECK(found.threshold <= 0);
  CHECK(sizes_of(found) == sizes{1, 1, 3});

  const auto blind = rag::semantic_cuts(page(numbered(4)), {.embed = always({0, 0})});
  CHECK(blind.distances == std::vector<double>{1, 1, 1});
  CHECK(blind.chunks.size() == 1);

  const auto slopes = rag::semantic_cuts(
      page(numbered(5)), {.embed = scripted({{1, 0}, {0, 1}, {0, 0}, {1, 0}, {1, 1}}),
                          .window = 0,
                          .threshold_kind = kind::gradient,
                          .threshold = 100.0});
  CHECK(sizes_of(slopes) == sizes{2, 1, 2});
}

TEST_CASE("semantic: what is too long is parted at its largest distance, again and again") {
  // Sentences of four words; at most two fit into eight.
  CHECK(sizes_of(cut({0.1, 0.3, 0.2, 0.1}, kind::absolute, 2, 12)) == sizes{2, 3});
  CHECK(sizes_of(cut({0.1, 0.3, 0.2, 0.1}, kind::absolute, 2, 8)) == sizes{2, 1, 2});
  CHECK(sizes_of(cut({0.4, 0.3, 0.2, 0.1}, kind::absolute, 2, 8)) == sizes{1, 1, 1, 2});
  CHECK(sizes_of(cut({0.1, 0.2, 0.3, 0.4}, kind::absolute, 2, 8)) == sizes{2, 1, 1, 1});
  CHECK(sizes_of(cut({0.1, 0.3, 0.2, 0.1}, kind::absolute, 2, 20)) == sizes{5});
}

TEST_CASE("semantic: equal distances say nothing, so what is too long is packed") {
  const rag::document source = page(numbered(60));
  const auto made = rag::chunk_semantic(
      source, {.embed = always({1, 0}), .window = 0, .threshold = 95.0, .chunk_size = 40});
  REQUIRE(made.size() == 6);
  std::size_t words = 0;
  for (const rag::chunk& piece : made) {
    CHECK(piece.token_count == 40);
    CHECK(rag::chunk_text(source, piece).starts_with("Item "));
    CHECK(rag::chunk_text(source, piece).ends_with(" red."));
    words += piece.token_count;
  }
  CHECK(words == 240);
}

TEST_CASE("semantic: a sentence above the size is cut at words, and its parts belong together") {
  const rag::document source = page("One two three four five. Six seven. Eight.");
  const auto made = rag::chunk_semantic(source, {.embed = scripted({{1, 0}, {0, 1}, {0, 1}}),
                                                 .window = 0,
                                                 .threshold_kind = kind::absolute,
                                                 .chunk_size = 3});
  CHECK(texts_of(source, made) == strings{"One two three", "four five.", "Six seven. Eight."});
}

TEST_CASE("semantic: what is too short joins the neighbour that is nearer in meaning, if it fits") {
  // Sentences of four words, each a chunk of its own at this threshold.
  const auto joined = [](const std::vector<double>& distances, std::size_t most,
                         std::size_t least) {
    return sizes_of(cut(distances, kind::absolute, 0.05, most, least));
  };
  CHECK(joined({0.01, 0.5, 0.3, 0.01}, 20, 0) == sizes{2, 1, 2});
  CHECK(joined({0.01, 0.5, 0.3, 0.01}, 20, 5) == sizes{2, 3});
  CHECK(joined({0.01, 0.3, 0.5, 0.01}, 20, 5) == sizes{3, 2});
  CHECK(joined({0.01, 0.02, 0.3, 0.5}, 12, 5) == sizes{3, 2});
  CHECK(joined({0.01, 0.3, 0.5, 0.01}, 8, 5) == sizes{2, 1, 2});  // neither fits
  CHECK(joined({0.01, 0.3, 0.5, 0.5}, 8, 5) == sizes{2, 2, 1});   // the nearer one does not
  CHECK(joined({0.5, 0.5, 0.5, 0.5}, 256, 256) == sizes{5});

  const auto equal = rag::semantic_cuts(
      page(numbered(5)), {.embed = scripted({{1, 0}, {1, 0}, {0, 1}, {1, 0}, {1, 0}}),
                          .window = 0,
                          .threshold_kind = kind::absolute,
                          .min_chunk_size = 5});
  CHECK(sizes_of(equal) == sizes{3, 2});  // as near to either: to the one before
}

TEST_CASE("semantic: headings are text, ids number on, and the namer names") {
  const rag::document source = page("# Title\n\nAa one. Bb two.");
  const rag::semantic_options options{
      .embed = scripted({{1, 0}, {1, 0}, {0, 1}}), .window = 0, .threshold_kind = kind::absolute};
  const auto made = rag::chunk_semantic(source, options);
  CHECK(texts_of(source, made) == strings{"# Title\n\nAa one.", "Bb two."});
  CHECK(made[0].heading.empty());
  CHECK(made[0].id == "doc#");
  CHECK(made[1].id == "doc#~2");
}

TEST_CASE("semantic: options out of range are refused before any text is read") {
  const rag::embedder model = always({1, 0});
  const auto threshold = [&](kind how, double value) {
    return refusal({.embed = model, .threshold_kind = how, .threshold = value});
  };
  CHECK(threshold(kind::percentile, 0.95) ==
        "chunk_semantic: threshold 0.95 must be 0 to 100, a percentile; a share such as 0.95 is "
        "written as 95");
  CHECK(threshold(kind::gradient, 1) ==
        "chunk_semantic: threshold 1 must be 0 to 100, a percentile; a share such as 0.95 is "
        "written as 95");
  CHECK(threshold(kind::percentile, 100.5) ==
        "chunk_semantic: threshold 100.5 must be 0 to 100, a percentile");
  CHECK(threshold(kind::absolute, 2.5) ==
        "chunk_semantic: threshold 2.5 must be 0 to 2, a distance");
  CHECK(threshold(kind::standard_deviation, -1) ==
        "chunk_semantic: threshold -1 must be finite and at least 0");
  for (const kind how : {kind::absolute, kind::percentile, kind::standard_deviation,
                         kind::interquartile, kind::gradient}) {
    const std::string no_number = threshold(how, std::numeric_limits<double>::quiet_NaN());
    CHECK(no_number.starts_with("chunk_semantic: threshold NaN must be "));
    const std::string endless = threshold(how, std::numeric_limits<double>::infinity());
    CHECK(endless.starts_with("chunk_semantic: threshold infinity must be "));
  }
  CHECK(refusal({}) == "chunk_semantic: embedder '': embed is not set, expected a function");
  CHECK(refusal({.embed = model, .chunk_size = 0}) ==
        "chunk_semantic: chunk_size 0 must be at least 1");
  CHECK(refusal({.embed = model, .chunk_size = 8, .min_chunk_size = 9}) ==
        "chunk_semantic: min_chunk_size 9 must be at most chunk_size 8");
}

TEST_CASE("semantic: an embedder that fails, throws or miscounts fails the call, with its reason") {
  const rag::document source = page("Aa one. Bb two.");
  const auto failure = [&](rag::embed_function embed) {
    const auto made = rag::try_chunk_semantic(source, {.embed = {.model = "m", .embed = embed}});
    REQUIRE(!made);
    return made.failure();
  };
  const rag::error own = failure(
      [](auto, auto) -> rag::result<vectors> { return rag::error(rag::errc::not_found, "gone"); });
  CHECK(own.code() == rag::errc::not_found);
  CHECK(own.message() == "chunk_semantic: gone");
  const rag::error count = failure([](auto, auto) { return vectors{{1, 0}}; });
  CHECK(count.code() == rag::errc::embedder_failed);
  const rag::error length = failure([](auto, auto) { return vectors{{1, 0}, {1, 0, 0}}; });
  CHECK(length.code() == rag::errc::dimension_mismatch);
  CHECK(length.message().find("sentence 2 of 2 of 'doc'") != std::string::npos);
#if defined(__cpp_exceptions)
  const rag::error thrown =
      failure([](auto, auto) -> rag::result<vectors> { throw std::runtime_error("no model"); });
  CHECK(thrown.code() == rag::errc::embedder_failed);
  CHECK(thrown.message() == "chunk_semantic: embedder 'm': no model");
  CHECK_THROWS_AS(static_cast<void>(rag::chunk_semantic(source, {})), rag::error);
#endif
}

TEST_CASE("semantic: the caller's counter holds for each chunk, also where parts do not add up") {
  const auto count = [](std::string_view text) {
    return rag::count_words(text) +
           static_cast<std::size_t>(std::count(text.begin(), text.end(), '.'));
  };
  const rag::document source = page(numbered(20));
  const auto made = rag::chunk_semantic(source, {.embed = always({1, 0}),
                                                 .chunk_size = 12,
                                                 .min_chunk_size = 6,
                                                 .tokens = {.count = count, .split = {}}});
  CHECK(made.size() == 10);
  for (const rag::chunk& piece : made) CHECK(count(rag::chunk_text(source, piece)) <= 12);
}

TEST_CASE("semantic: what a counter sees grows with the text, whatever the distances are") {
  enum class shape { falling, rising, wild };
  const auto seen_for = [](std::size_t sentences, shape form, bool join) {
    std::vector<double> distances;
    std::size_t state = 1;
    for (std::size_t i = 0; i + 1 < sentences; ++i) {
      state = (state * 48271) % 2147483647;
      const double share = static_cast<double>(i) / static_cast<double>(sentences);
      distances.push_back(form == shape::falling  ? 0.9 - 0.5 * share
                          : form == shape::rising ? 0.1 + 0.5 * share
                                                  : static_cast<double>(state % 1000) / 1000);
    }
    std::size_t bytes = 0;
    const auto count = [&bytes](std::string_view text) {
      bytes += text.size();
      return rag::count_words(text);
    };
    // Either nothing is cut and all is too long, or all is cut and too short; then in large pieces.
    const auto made = rag::try_chunk_semantic(page(numbered(sentences)),
                                              {.embed = at_distances(distances),
                                               .window = 0,
                                               .threshold_kind = kind::absolute,
                                               .threshold = join ? 0.0 : 2.0,
                                               .chunk_size = join ? sentences : 40,
                                               .min_chunk_size = join ? sentences : 12,
                                               .tokens = {.count = count, .split = {}}});
    CHECK(made.ok());
    return static_cast<double>(bytes);
  };
  for (const shape form : {shape::falling, shape::rising, shape::wild}) {
    for (const bool join : {false, true}) {
      CHECK(seen_for(4000, form, join) <= 2.4 * seen_for(2000, form, join));
    }
  }
}

}  // namespace semantic_tests
