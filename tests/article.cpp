// The article "RAG Retrieval: Finding the Right Information", claim by claim in its order, then the
// combine step of the tutorial. Pages, question, groups and records come from data/pay042; what is
// ours there because the article's tables were pictures is said in data/README.md.
//
// The numbers are golden values. They may change only if a page of data/pay042, the analyser or a
// default (k1, b, the constant 60) changes, and then together with the table in README.md.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <rag_retrieve.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace article_test {

namespace rag = rag_retrieve;
using doctest::Approx;
using json = nlohmann::json;
using strings = std::vector<std::string>;

// ---- The example's data -------------------------------------------------------------------------

inline std::string read_data(const std::string& name) {
  std::ifstream file(std::string(RAG_RETRIEVE_DATA_DIR) + "/" + name, std::ios::binary);
  REQUIRE_MESSAGE(file.good(), "cannot read data file ", name);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::vector<json> read_lines(const std::string& name) {
  const std::string text = read_data(name);
  std::vector<json> lines;
  for (std::size_t at = 0; at < text.size();) {
    const rag::text_line line = rag::line_at(text, at);
    lines.push_back(json::parse(rag::slice(text, line.content)));
    at = line.next;
  }
  return lines;
}

inline std::string question(std::string_view id = "Q") {
  for (const json& line : read_lines("pay042/queries.jsonl")) {
    if (line["id"].get<std::string>() == id) return line["text"].get<std::string>();
  }
  return {};
}

inline strings groups_of_page(std::string_view id) {
  for (const json& line : read_lines("pay042/access.jsonl")) {
    if (line["id"].get<std::string>() == id) return line["allowed_groups"].get<strings>();
  }
  return {};
}

/// One of the three help pages; its title is its first heading.
inline rag::document page(const std::string& id) {
  rag::document out;
  out.id = id;
  out.text = read_data("pay042/" + id);
  out.title = rag::markdown_headings(out.text).at(0).title;
  out.allowed_groups = groups_of_page(id);
  out.revision = 1;
  return out;
}
inline rag::document error_page() { return page("gateway-errors.md"); }

/// The article's ids: E and the last two digits of the code for an error, R and G for the others.
inline std::string article_id(const rag::document& source, const rag::chunk& piece) {
  if (source.id == "reconnect-gateway.md") return "R";
  if (source.id == "checkout-failures.md") return "G";
  return "E" + piece.heading.substr(piece.heading.find(':') - 2, 2);
}

/// The article's approach: the error reference at its ## headings, each short page whole.
inline std::vector<rag::chunk> cut(const rag::document& source) {
  if (source.id != "gateway-errors.md") return rag::chunk_whole(source, {.name = article_id});
  return rag::chunk_structure(source, {.max_heading_level = 2, .name = article_id});
}

inline std::vector<rag::chunked_document> all_pages() {
  std::vector<rag::chunked_document> pages;
  for (const char* id : {"gateway-errors.md", "reconnect-gateway.md", "checkout-failures.md"}) {
    pages.push_back({page(id), cut(page(id))});
  }
  return pages;
}

inline std::string joined(const strings& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : " ") + part;
  return out;
}
template <class Items>
std::string ids_of(const Items& items) {
  strings ids;
  for (const auto& item : items) ids.push_back(item.id);
  return joined(ids);
}
inline std::string ids_of(const std::vector<rag::permitted_passage>& passages) {
  strings ids;
  for (const rag::permitted_passage& passage : passages) ids.push_back(passage.id());
  return joined(ids);
}
inline strings split(std::string_view text) {
  strings words;
  for (const rag::byte_range word : rag::word_ranges(text)) {
    words.emplace_back(rag::slice(text, word));
  }
  return words;
}

/// Vectors of two numbers, ours, that give the article's illustrative dense order: the cosine with
/// the question, which is (1, 0), falls from R over G, E42 and E43 to E41.
inline std::vector<float> drawn_vector(std::string_view text) {
  const std::vector<std::pair<std::string_view, double>> cosines = {
      {"Reconnect a payment gateway", 0.82},
      {"Checkout failures", 0.78},
      {"PAY-042", 0.74},
      {"PAY-043", 0.55},
      {"PAY-041", 0.41}};
  for (const auto& [opening, cosine] : cosines) {
    if (!text.starts_with(opening)) continue;
    return {static_cast<float>(cosine), static_cast<float>(std::sqrt(1 - cosine * cosine))};
  }
  return {1.0F, 0.0F};
}

/// An embedder of drawn vectors. `inputs`, if given, receives every document text it is asked for.
inline rag::embedder drawn_model(strings* inputs = nullptr) {
  return {.model = "drawn",
          .dimension = 2,
          .batch_size = 64,
          .embed = [inputs](std::span<const std::string_view> texts, rag::text_role role) {
            std::vector<std::vector<float>> vectors;
            for (const std::string_view text : texts) {
              vectors.push_back(drawn_vector(text));
              if (inputs != nullptr && role == rag::text_role::document) {
                inputs->emplace_back(text);
              }
            }
            return vectors;
          }};
}

/// The texts and vectors of a real model, as stored in data/pay042.
inline rag::embedder real_model(const std::string& name) {
  const json file = json::parse(read_data("pay042/" + name + ".json"));
  std::map<std::string, std::vector<float>, std::less<>> known;
  const auto learn = [&known](const json& entry) {
    known[entry["text"].get<std::string>()] = entry["embedding"].get<std::vector<float>>();
  };
  learn(file["question"]);
  for (const json& entry : file["entries"]) learn(entry);
  for (const json& entry : file["variants"]) learn(entry);
  return {.model = name,
          .dimension = file["dimension"].get<std::size_t>(),
          .batch_size = 64,
          .embed = [known](std::span<const std::string_view> texts, rag::text_role) {
            std::vector<std::vector<float>> vectors;
            for (const std::string_view text : texts) {
              const auto found = known.find(text);
              if (found != known.end()) vectors.push_back(found->second);
            }
            return vectors;  // an unknown text makes the count wrong, which the header refuses
          }};
}

/// The judgement of the article's cross-encoder (the numbers are ours). `seen`, if given, receives
/// what it was shown.
inline rag::rerank_function illustrated_reranker(strings* seen = nullptr) {
  const auto scores = json::parse(read_data("pay042/illustration.json"))["rerank_scores"]
                          .get<std::map<std::string, double>>();
  return [scores, seen](const rag::rerank_request& asked) {
    std::vector<double> out;
    for (const rag::permitted_passage& passage : asked.passages) {
      const auto found = scores.find(passage.id());
      out.push_back(found == scores.end() ? 0.1 : found->second);
      if (seen != nullptr) {
        seen->push_back(std::string(asked.question) + " + " + passage.search_text());
      }
    }
    return out;
  };
}

/// The payment-support assistant: three pages, an engineer (ana) and a support agent (sam).
struct assistant {
  rag::access_directory people;
  strings embedded;  // inputs of documents, in order
  std::vector<rag::operator_trace> log;
  rag::retriever retriever;

  assistant() : assistant(drawn_model(&embedded)) {}
  explicit assistant(rag::embedder model)
      : retriever({.embed = std::move(model),
                   .permissions = &people,
                   .identifiers = {"PAY-###"},
                   .on_search = [this](const rag::operator_trace& t) { log.push_back(t); }}) {
    for (const json& line : read_lines("pay042/users.jsonl")) {
      people.set_groups({.user = line["user"].get<std::string>()}, line["groups"].get<strings>());
    }
    retriever.upsert(all_pages());
  }
  assistant(const assistant&) = delete;
  assistant& operator=(const assistant&) = delete;

  [[nodiscard]] rag::scope scope(const std::string& user) const {
    return retriever.scope_for({.user = user});
  }
  [[nodiscard]] rag::answer ask(const std::string& user, const rag::query& asked) const {
    return retriever.search(asked, scope(user));
  }
};

// ---- Choosing what search can return ------------------------------------------------------------

/// The 220 tokens t000 to t219, or other words at some of these places.
inline rag::document numbered_tokens(const std::map<std::size_t, std::string>& replaced = {}) {
  rag::document out;
  out.id = "numbered";
  strings words = split(read_data("synthetic/tokens-220.txt"));
  for (const auto& [place, word] : replaced) words.at(place) = word;
  out.text = joined(words);
  return out;
}

/// "t000-t079 t060-t139": first and last token of each chunk.
inline std::string windows_of(const rag::document& source, std::span<const rag::chunk> chunks) {
  strings out;
  for (const rag::chunk& piece : chunks) {
    const strings words = split(rag::chunk_text(source, piece));
    out.push_back(words.front() + "-" + words.back());
  }
  return joined(out);
}
/// "80 80 60": the tokens of each chunk.
inline std::string sizes_of(std::span<const rag::chunk> chunks) {
  strings sizes;
  for (const rag::chunk& piece : chunks) sizes.push_back(std::to_string(piece.token_count));
  return joined(sizes);
}

/// How many chunks hold all of these words of the source, which stand in it one after the other.
inline std::size_t holders(const rag::document& source, std::span<const rag::chunk> chunks,
                           std::string_view words) {
  return static_cast<std::size_t>(
      std::count_if(chunks.begin(), chunks.end(), [&](const rag::chunk& piece) {
        return rag::chunk_text(source, piece).find(words) != std::string_view::npos;
      }));
}

/// The heading and the explanation of one error, as they stand on the page.
inline std::string entry(const rag::document& source, std::string_view code) {
  for (const rag::chunk& piece : cut(source)) {
    if (piece.heading.starts_with(code)) return std::string(rag::chunk_text(source, piece));
  }
  return {};
}

TEST_CASE("article, chunks: the whole error reference as one chunk holds three different errors") {
  const rag::document source = error_page();
  const std::vector<rag::chunk> chunks = rag::chunk_whole(source);
  REQUIRE(chunks.size() == 1);
  for (const char* code : {"PAY-041", "PAY-042", "PAY-043"}) {
    CHECK(holders(source, chunks, code) == 1);
  }
}

TEST_CASE("article, windows: 220 tokens cut at 80 give 80, 80 and 60") {
  const rag::document source = numbered_tokens();
  const auto chunks = rag::chunk_fixed(source, {.chunk_size = 80});
  CHECK(windows_of(source, chunks) == "t000-t079 t080-t159 t160-t219");
  CHECK(sizes_of(chunks) == "80 80 60");
}

TEST_CASE("article, windows: the cut does not ask whether it stands inside an entry") {
  const rag::document source = error_page();  // PAY-042 holds its tokens 30 to 71
  const auto chunks = rag::chunk_fixed(source, {.chunk_size = 40});
  CHECK(sizes_of(chunks) == "40 40 8");
  CHECK(holders(source, chunks, "## PAY-042: Stored credential was rejected") == 1);
  CHECK(holders(source, chunks, entry(source, "PAY-042")) == 0);
}

TEST_CASE("article, windows: a size that keeps PAY-042 whole cuts another entry") {
  const rag::document source = error_page();
  const auto chunks = rag::chunk_fixed(source, {.chunk_size = 80});
  CHECK(holders(source, chunks, entry(source, "PAY-042")) == 1);
  CHECK(holders(source, chunks, entry(source, "PAY-043")) == 0);

  // The same from 80 to 120, with PAY-042 in tokens 70 to 109 and PAY-043 in 110 to 149.
  const rag::document longer = numbered_tokens({{70, "PAY-042"}, {110, "PAY-043"}});
  const auto whole_entry = [&longer](std::string_view from, std::string_view to) {
    const std::size_t begin = longer.text.find(from);
    return longer.text.substr(begin, longer.text.find(to) - begin);
  };
  const auto at_80 = rag::chunk_fixed(longer, {.chunk_size = 80});
  const auto at_120 = rag::chunk_fixed(longer, {.chunk_size = 120});
  CHECK(holders(longer, at_80, whole_entry("PAY-042", " PAY-043")) == 0);
  CHECK(holders(longer, at_120, whole_entry("PAY-042", " PAY-043")) == 1);
  CHECK(holders(longer, at_120, whole_entry("PAY-043", " t150")) == 0);
}

TEST_CASE("article, windows: smaller sizes make more records") {
  const rag::document source = numbered_tokens();
  std::vector<std::size_t> records;
  for (const std::size_t size : {220U, 120U, 80U, 40U, 20U}) {
    records.push_back(rag::chunk_fixed(source, {.chunk_size = size}).size());
  }
  CHECK(records == std::vector<std::size_t>{1, 2, 3, 6, 11});
}

TEST_CASE("article, overlap: 80 with 20 gives four windows at a stride of 60") {
  const rag::document source = numbered_tokens();
  const auto chunks = rag::chunk_fixed(source, {.chunk_size = 80, .overlap = 20});
  CHECK(windows_of(source, chunks) == "t000-t079 t060-t139 t120-t199 t180-t219");
  CHECK(sizes_of(chunks) == "80 80 80 40");
}

TEST_CASE("article, overlap: 280 positions for 220 tokens, and which 60 are repeated") {
  const rag::document source = numbered_tokens();
  std::map<std::string, std::size_t> times;
  std::size_t positions = 0;
  for (const auto& piece : rag::chunk_fixed(source, {.chunk_size = 80, .overlap = 20})) {
    for (const std::string& token : split(rag::chunk_text(source, piece))) {
      ++times[token];
      ++positions;
    }
  }
  CHECK(positions == 280);
  CHECK(times.size() == 220);
  strings repeated;
  for (const auto& [token, count] : times) {
    CHECK(count <= 2);
    if (count == 2) repeated.push_back(token);
  }
  strings expected;
  const strings words = split(source.text);
  for (const std::size_t first : {60U, 120U, 180U}) {
    for (std::size_t i = first; i < first + 20; ++i) expected.push_back(words.at(i));
  }
  CHECK(repeated.size() == 60);
  CHECK(repeated == expected);
}

TEST_CASE("article, overlap: text within the repeated 20 tokens has its context on both sides") {
  const rag::document source = numbered_tokens();
  const std::string_view split_by_the_cut = "t075 t076 t077 t078 t079";
  CHECK(holders(source, rag::chunk_fixed(source, {.chunk_size = 80}), split_by_the_cut) == 1);
  const auto chunks = rag::chunk_fixed(source, {.chunk_size = 80, .overlap = 20});
  CHECK(holders(source, chunks, split_by_the_cut) == 2);
}

TEST_CASE("article, overlap: 20 do not carry a heading that stands 30 tokens before the cut") {
  const rag::document source = numbered_tokens({{50, "PAY-042"}});
  const auto second = [&source](std::size_t overlap) {
    return rag::chunk_fixed(source, {.chunk_size = 80, .overlap = overlap}).at(1);
  };
  CHECK(rag::chunk_text(source, second(20)).starts_with("t060"));
  CHECK(rag::chunk_text(source, second(20)).find("PAY-042") == std::string_view::npos);
  // A larger overlap preserves it, but repeats more.
  CHECK(rag::chunk_text(source, second(30)).starts_with("PAY-042"));
  std::size_t positions = 0;
  for (const auto& piece : rag::chunk_fixed(source, {.chunk_size = 80, .overlap = 30})) {
    positions += piece.token_count;
  }
  CHECK(positions > 280);
}

TEST_CASE("article, overlap: near-copies crowd a needed chunk out, and dedupe restores it") {
  rag::access_directory people;
  people.set_groups({.user = "ana"}, {"payments-ops"});
  rag::retriever retriever({.permissions = &people, .identifiers = {"PAY-###"}});
  const rag::document errors = error_page();
  const rag::document runbook = page("reconnect-gateway.md");
  // A stride of four tokens: the windows around PAY-042 are nearly the same.
  retriever.upsert(errors, rag::chunk_fixed(errors, {.chunk_size = 40, .overlap = 36}));
  retriever.upsert(runbook, cut(runbook));

  const rag::scope ana = retriever.scope_for({.user = "ana"});
  rag::query asked{.text = question(), .limit = 3, .per_document = 100};
  asked.overlap_threshold.reset();
  const rag::answer crowded = retriever.search(asked, ana);
  REQUIRE(crowded.passages.size() == 3);
  for (const rag::permitted_passage& passage : crowded.passages) {
    CHECK(passage.document_id() == errors.id);
    CHECK(passage.text().find("PAY-042") != std::string::npos);
  }

  asked.overlap_threshold = 0.5;
  asked.explain = true;
  const rag::answer restored = retriever.search(asked, ana);
  REQUIRE(restored.passages.size() == 3);
  CHECK(ids_of(restored.passages).find(" R") != std::string::npos);
  CHECK(restored.passages[0].id() == crowded.passages[0].id());
  CHECK(std::any_of(restored.trace.dropped.begin(), restored.trace.dropped.end(),
                    [&crowded](const rag::drop& gone) {
                      return gone.stage == rag::drop_stage::dedupe &&
                             gone.id == crowded.passages[1].id();
                    }));
}

// ---- Sentences ----------------------------------------------------------------------------------

constexpr std::string_view sentence_1 =
    "Checkout returns PAY-042 when the provider rejects the credential saved for the active "
    "gateway connection.";
constexpr std::string_view sentence_2 =
    "This can happen after the provider key has been rotated but the new value has not been saved "
    "in the product.";
constexpr std::string_view sentence_of_43 =
    "The active gateway account does not accept the checkout currency.";

/// The PAY-042 paragraph, without its heading; then, if asked for, the text of PAY-043.
inline rag::document explanation(bool with_next = false) {
  rag::document out;
  out.id = "explanation";
  out.text = std::string(sentence_1) + " " + std::string(sentence_2);
  if (with_next) out.text += " " + std::string(sentence_of_43);
  return out;
}
inline strings texts_of(const rag::document& source, std::span<const rag::chunk> chunks) {
  strings texts;
  for (const rag::chunk& piece : chunks) texts.emplace_back(rag::chunk_text(source, piece));
  return texts;
}

TEST_CASE("article, sentences: PAY-042 has one up to 'connection', one up to 'product'") {
  const rag::document source = explanation();
  CHECK(entry(error_page(), "PAY-042").find(source.text) != std::string::npos);
  const auto found = rag::sentence_ranges(source.text, {0, source.text.size()});
  REQUIRE(found.size() == 2);
  CHECK(rag::slice(source.text, found[0]) == sentence_1);
  CHECK(rag::slice(source.text, found[1]) == sentence_2);
}

TEST_CASE("article, sentences: one each are complete, but 'This' leans on the one before") {
  const rag::document source = explanation();
  const strings texts = texts_of(source, rag::chunk_sentences(source));
  CHECK(texts == strings{std::string(sentence_1), std::string(sentence_2)});
  CHECK(texts.at(1).starts_with("This "));
}

TEST_CASE("article, sentences: packing to 80 keeps both sentences in one chunk") {
  const rag::document source = explanation();
  const auto chunks = rag::chunk_packed(source, {.chunk_size = 80});
  CHECK(texts_of(source, chunks) == strings{source.text});
  CHECK(sizes_of(chunks) == "36");
}

TEST_CASE("article, sentences: what does not fit together is cut between the sentences") {
  const rag::document source = explanation();
  const auto at_the_limit = rag::chunk_packed(source, {.chunk_size = 36});
  CHECK(at_the_limit.size() == 1);
  const auto chunks = rag::chunk_packed(source, {.chunk_size = 35});
  CHECK(texts_of(source, chunks) == strings{std::string(sentence_1), std::string(sentence_2)});
}

TEST_CASE("article, sentences: packing takes in PAY-043's sentence, because it fits") {
  const rag::document source = explanation(true);
  const auto chunks = rag::chunk_packed(source, {.chunk_size = 80});
  CHECK(texts_of(source, chunks) == strings{source.text});
  CHECK(sizes_of(chunks) == "46");
}

TEST_CASE("article, sentences: one that is longer than the limit is cut at words, none over it") {
  const rag::document source = explanation();
  for (const std::size_t size : {1U, 7U, 10U, 15U, 20U}) {
    CAPTURE(size);
    const auto chunks = rag::chunk_packed(source, {.chunk_size = size});
    strings words;
    for (const rag::chunk& piece : chunks) {
      CHECK(piece.token_count <= size);
      CHECK_FALSE(piece.oversize);
      for (const std::string& word : split(rag::chunk_text(source, piece))) words.push_back(word);
    }
    CHECK(words == split(source.text));  // every word, in order, in one chunk
  }
}

TEST_CASE("article, sentences: U.S. ends none, and neither does a line break inside one") {
  const std::string text = "The U.S. gateway is down. Use another one.";
  const auto found = rag::sentence_ranges(text, {0, text.size()});
  REQUIRE(found.size() == 2);
  CHECK(rag::slice(text, found[0]) == "The U.S. gateway is down.");

  const rag::document runbook = page("reconnect-gateway.md");
  const rag::chunk whole = cut(runbook).at(0);
  const auto steps = rag::sentence_ranges(runbook.text, whole.body);
  REQUIRE(steps.size() == 2);
  CHECK(rag::slice(runbook.text, steps[1]).find("disabling it\nstops") != std::string_view::npos);
}

// ---- Structure ----------------------------------------------------------------------------------

TEST_CASE("article, structure: a new chunk at each ## heading gives E41, E42 and E43") {
  const rag::document source = error_page();
  const auto chunks = cut(source);
  CHECK(ids_of(chunks) == "E41 E42 E43");
  for (const rag::chunk& piece : chunks) {
    CHECK(rag::chunk_text(source, piece).starts_with("## PAY-04"));
    CHECK(piece.document_id == source.id);
  }
  // Without names from the caller the ids lead back to the headings of the page.
  CHECK(ids_of(rag::chunk_structure(source, {.max_heading_level = 2})) ==
        "gateway-errors.md#pay-041-provider-request-timed-out "
        "gateway-errors.md#pay-042-stored-credential-was-rejected "
        "gateway-errors.md#pay-043-currency-is-not-enabled");
}

TEST_CASE("article, structure: the document title is source information, not a chunk") {
  const rag::document source = error_page();
  CHECK(source.title == "Gateway error reference");
  for (const rag::chunk& piece : cut(source)) {
    CHECK(piece.heading_path == strings{source.title, piece.heading});
    CHECK(rag::search_text(source, piece).find(source.title) == std::string::npos);
  }
  CHECK(holders(source, cut(source), source.title) == 0);
}

TEST_CASE("article, structure: the searched text of E42 is its heading and its paragraph") {
  const rag::document source = error_page();
  CHECK(rag::search_text(source, cut(source).at(1)) ==
        "PAY-042: Stored credential was rejected\n\n" + explanation().text);
}

/// The error reference, with a PAY-042 section of three paragraphs.
inline rag::document grown_page() {
  rag::document out = error_page();
  const std::string causes =
      "\n\nThe usual cause is a key that was rotated at the provider and not here. A second cause "
      "is a key of the test environment in the live one.";
  const std::string repair =
      "\n\nOpen the gateway, replace the stored credential, and verify the connection. Then repeat "
      "one checkout and watch for the code.";
  out.text.insert(out.text.find(sentence_2) + sentence_2.size(), causes + repair);
  out.revision = 2;
  return out;
}

TEST_CASE("article, recursive: too long a PAY-042 becomes paragraphs that keep the heading") {
  const rag::document source = grown_page();
  const auto chunks = rag::chunk_recursive(source, {.chunk_size = 45, .max_heading_level = 2});
  strings headings;
  strings openings;
  for (const rag::chunk& piece : chunks) {
    headings.push_back(piece.heading.substr(0, 7));
    openings.push_back(split(rag::slice(source.text, piece.body)).at(0));
    CHECK(piece.token_count <= 45);
    CHECK(piece.token_count == rag::count_words(rag::search_text(source, piece)));
    CHECK(piece.document_id == source.id);
    CHECK(piece.heading_path == strings{"Gateway error reference", piece.heading});
  }
  CHECK(joined(headings) == "PAY-041 PAY-042 PAY-042 PAY-042 PAY-043");
  CHECK(joined(openings) == "The Checkout The Open The");
  CHECK(chunks.at(2).id == chunks.at(1).id + "~2");
  CHECK(chunks.at(3).id == chunks.at(1).id + "~3");
}

TEST_CASE("article, recursive: pieces that already fit are left alone") {
  const rag::document source = grown_page();
  const auto sections = rag::chunk_structure(source, {.max_heading_level = 2});
  const auto pieces = rag::chunk_recursive(source, {.chunk_size = 45, .max_heading_level = 2});
  CHECK(pieces.front().range == sections.front().range);
  CHECK(pieces.back().range == sections.back().range);
  // The article's own page: its sections fit, so nothing is cut below them; and a limit that the
  // whole page fits into leaves even that alone.
  const rag::document small = error_page();
  CHECK(texts_of(small, rag::chunk_recursive(small, {.chunk_size = 45, .max_heading_level = 2})) ==
        texts_of(small, cut(small)));
  CHECK(rag::chunk_recursive(small, {.chunk_size = 220, .max_heading_level = 2}).size() == 1);
}

TEST_CASE("article, recursive: then sentences, and token boundaries only where nothing else fits") {
  const rag::document source = grown_page();
  const auto bodies = [&source](std::size_t size) {
    strings out;
    for (const rag::chunk& piece :
         rag::chunk_recursive(source, {.chunk_size = size, .max_heading_level = 2})) {
      CHECK(piece.token_count <= size);
      if (piece.heading.starts_with("PAY-042")) {
        out.emplace_back(rag::slice(source.text, piece.body));
      }
    }
    return out;
  };
  const strings by_sentence = bodies(30);
  REQUIRE(by_sentence.size() >= 2);
  CHECK(by_sentence[0] == sentence_1);
  CHECK(by_sentence[1] == sentence_2);
  const strings by_token = bodies(15);
  CHECK(std::find(by_token.begin(), by_token.end(), std::string(sentence_1)) == by_token.end());
  strings words;
  for (const std::string& body : by_token) {
    for (const std::string& word : split(body)) words.push_back(word);
  }
  strings expected;
  for (const std::string& body : by_sentence) {
    for (const std::string& word : split(body)) expected.push_back(word);
  }
  CHECK(words == expected);
}

// ---- The approach we will use -------------------------------------------------------------------

TEST_CASE("article, records: five chunks E41, E42, E43, R and G, each saying where it comes from") {
  const rag::identifier_finder codes =
      rag::identifier_finder::try_make({.patterns = {"PAY-###"}}).value();
  const json records = json::parse(read_data("pay042/records.json"));
  std::size_t at = 0;
  for (const rag::chunked_document& input : all_pages()) {
    for (const rag::chunk& piece : input.chunks) {
      REQUIRE(at < records.size());
      const json& record = records[at++];
      CAPTURE(piece.id);
      CHECK(record["id"] == piece.id);
      CHECK(record["document"] == piece.document_id);
      CHECK(record["title"] == input.source.title);
      CHECK(record["heading"] == piece.heading);
      CHECK(record["heading_path"] == piece.heading_path);
      CHECK(record["text"] == std::string(rag::slice(input.source.text, piece.body)));
      CHECK(record["allowed_groups"] == input.source.allowed_groups);
      const auto found = codes.find(piece.heading);
      REQUIRE(found.size() == (record["error_code"].is_null() ? 0U : 1U));
      if (!found.empty()) {
        const auto code = record["error_code"].get<std::string>();
        CHECK(found[0].value == rag::normalise_identifier(code));
      }
    }
  }
  CHECK(at == 5);
}

TEST_CASE("article, records: a result links back to the page and the section it came from") {
  const assistant desk;
  const strings wanted = {"E42"};
  const auto passages = desk.retriever.fetch(wanted, desk.scope("ana"));
  REQUIRE(passages.size() == 1);
  const rag::citation& source = passages[0].source();
  CHECK(source.document_id == "gateway-errors.md");
  CHECK(source.revision == 1);
  CHECK(source.anchor == "pay-042-stored-credential-was-rejected");
  CHECK(source.first_line == 7);
  CHECK(source.last_line == 9);
  CHECK(passages[0].title() == "Gateway error reference");
  CHECK(passages[0].text() == entry(error_page(), "PAY-042"));
}

// ---- Finding the repair when the words differ ---------------------------------------------------

TEST_CASE("article, dense: the engineer 'changed' a key, the page says 'rotated'") {
  const strings asked = rag::question_terms(question());
  CHECK(std::count(asked.begin(), asked.end(), "changed") == 1);
  CHECK(std::count(asked.begin(), asked.end(), "rotated") == 0);
  const rag::document runbook = page("reconnect-gateway.md");
  const strings stored = rag::analyse(rag::search_text(runbook, cut(runbook).at(0)));
  CHECK(std::count(stored.begin(), stored.end(), "rotated") == 1);
  CHECK(std::count(stored.begin(), stored.end(), "changed") == 0);
}

TEST_CASE("article, dense: heading and text of each chunk are embedded once, when it is stored") {
  const assistant desk;
  CHECK(desk.embedded.size() == 5);
  for (const rag::chunked_document& input : all_pages()) {
    for (const rag::chunk& piece : input.chunks) {
      CHECK(std::count(desk.embedded.begin(), desk.embedded.end(),
                       rag::search_text(input.source, piece)) == 1);
    }
  }
}

TEST_CASE("article, dense: the illustrative order is R, G, E42, E43, E41 (drawn vectors, ours)") {
  const assistant desk;
  const rag::answer found =
      desk.ask("ana", {.text = question(), .mode = rag::search_mode::dense, .per_document = 5});
  CHECK(ids_of(found.passages) == "R G E42 E43 E41");
  CHECK(found.passages.at(0).similarity().value() == Approx(0.82));
  CHECK(found.passages.at(2).dense_rank() == 3);  // E42 is only third
}

/// What a real model finds for one of the questions, in all three modes.
inline std::string order_with(const std::string& model, std::string_view question_id,
                              rag::search_mode mode) {
  const assistant desk(real_model(model));
  const rag::answer found =
      desk.ask("ana", {.text = question(question_id), .mode = mode, .per_document = 5});
  CHECK(found.status == rag::search_status::ok);
  return ids_of(found.passages);
}

TEST_CASE("models, dense: with the code in the question none gives the illustrative order") {
  const auto dense = [](const std::string& model) {
    return order_with(model, "Q", rag::search_mode::dense);
  };
  CHECK(dense("minilm-l6-v2") == "E42 E43 R E41 G");
  CHECK(dense("mpnet-base-v2") == "E42 R E43 E41 G");
  CHECK(dense("e5-small-q4") == "E42 R G E43 E41");
}

TEST_CASE("models, dense: an embedding model is not an error-code lookup table") {
  const auto dense = [](const std::string& model, std::string_view id) {
    return order_with(model, id, rag::search_mode::dense);
  };
  CHECK(dense("minilm-l6-v2", "Q-041") == "E43 E41 E42 R G");
  CHECK(dense("mpnet-base-v2", "Q-041") == "R E42 E43 E41 G");
  CHECK(dense("e5-small-q4", "Q-041") == "E42 R G E43 E41");
  CHECK(dense("minilm-l6-v2", "Q-043") == "E43 E42 R E41 G");
  CHECK(dense("mpnet-base-v2", "Q-043") == "R E42 E43 E41 G");
  CHECK(dense("e5-small-q4", "Q-043") == "E42 R G E43 E41");
  // The lexical leg has no such doubt: the code that is asked for leads.
  CHECK(order_with("minilm-l6-v2", "Q-041", rag::search_mode::lexical).starts_with("E41 "));
  CHECK(order_with("minilm-l6-v2", "Q-043", rag::search_mode::lexical).starts_with("E43 "));
}

TEST_CASE("models, dense: without the code mpnet and e5 give exactly R, G, E42, E43, E41") {
  const auto dense = [](const std::string& model, std::string_view id) {
    return order_with(model, id, rag::search_mode::dense);
  };
  CHECK(dense("mpnet-base-v2", "Q-failing") == "R G E42 E43 E41");
  CHECK(dense("e5-small-q4", "Q-failing") == "R G E42 E43 E41");
  CHECK(dense("minilm-l6-v2", "Q-failing") == "G R E43 E41 E42");
  CHECK(dense("mpnet-base-v2", "Q-error") == "R G E43 E42 E41");
  CHECK(dense("e5-small-q4", "Q-error") == "R G E42 E43 E41");
  CHECK(dense("minilm-l6-v2", "Q-error") == "G R E43 E42 E41");
}

// ---- Making the exact error code count ----------------------------------------------------------

/// The five chunks as an inverted index; row 0 is E41, then E42, E43, G, R: byte order of the ids.
struct shelf {
  std::vector<std::string> ids;
  rag::term_index terms;
  rag::identifier_index codes;

  shelf() {
    std::map<std::string, std::pair<std::string, std::string>> texts;  // id: heading, all of it
    for (const rag::chunked_document& input : all_pages()) {
      for (const rag::chunk& piece : input.chunks) {
        texts[piece.id] = {piece.heading, rag::search_text(input.source, piece)};
      }
    }
    const auto finder = rag::identifier_finder::try_make({.patterns = {"PAY-###"}}).value();
    rag::term_index_builder builder;
    for (const auto& [id, text] : texts) {
      const std::uint32_t row = builder.add(rag::analyse(text.second));
      ids.push_back(id);
      for (const auto& code : finder.find(text.first)) codes.add(row, code.value, true);
      for (const auto& code : finder.find(text.second)) codes.add(row, code.value, false);
    }
    terms = builder.build();
  }
  [[nodiscard]] rag::row_set all() const { return rag::row_set::all(ids.size()); }
  [[nodiscard]] rag::row_set without(std::string_view id) const {
    rag::row_set rows = all();
    for (std::size_t row = 0; row < ids.size(); ++row) {
      if (ids[row] == id) rows.remove(row);
    }
    return rows;
  }
  [[nodiscard]] std::string chunks_with(std::string_view term) const {
    strings found;
    for (const std::uint32_t row : terms.rows_with(term)) found.push_back(ids[row]);
    return joined(found);
  }
  [[nodiscard]] std::string names(const std::vector<rag::lexical_hit>& hits) const {
    strings found;
    for (const rag::lexical_hit& hit : hits) found.push_back(ids[hit.row]);
    return joined(found);
  }
};

TEST_CASE("article, lexical: a general analyser turns PAY-042 into pay and 042") {
  CHECK(rag::analyse("PAY-042") == strings{"pay", "042"});
}

TEST_CASE("article, lexical: the inverted index points from a term to its chunks") {
  const shelf index;
  CHECK(index.chunks_with("checkout") == "E42 E43 G");
  CHECK(index.chunks_with("credential") == "E42 G R");
  CHECK(index.chunks_with("rotated") == "E42 R");
  CHECK(index.chunks_with("pay-042") == "");  // not a term of the text field ...
  const strings code = {rag::normalise_identifier("PAY-042")};
  CHECK(index.names(index.codes.look_up(code, index.all())) == "E42");  // ... but an error code
}

TEST_CASE("article, lexical: the code is one exact value, never a part of another") {
  const shelf index;
  for (const char* other : {"PAY-04", "PAY-0421", "XPAY-042", "042", "PAY"}) {
    const strings code = {rag::normalise_identifier(other)};
    CHECK(index.codes.look_up(code, index.all()).empty());
  }
}

TEST_CASE("article, BM25: key is in two chunks, gateway in four, so key weighs more") {
  const shelf index;
  CHECK(index.terms.rows_with("key").size() == 2);
  CHECK(index.terms.rows_with("gateway").size() == 4);
  CHECK(rag::bm25_idf(5, 2) == Approx(0.875469).epsilon(1e-5));
  CHECK(rag::bm25_idf(5, 4) == Approx(0.287682).epsilon(1e-5));
  CHECK(rag::bm25_idf(5, 5) > 0);  // even a term of every chunk takes nothing away
}

TEST_CASE("article, BM25: each further gateway adds less, and ten are not ten times as useful") {
  const double one = rag::bm25_weight(1, 40, 40, {});
  double gain = one;
  for (std::size_t times = 2; times <= 10; ++times) {
    const double next =
        rag::bm25_weight(times, 40, 40, {}) - rag::bm25_weight(times - 1, 40, 40, {});
    CHECK(next > 0);
    CHECK(next < gain);
    gain = next;
  }
  CHECK(rag::bm25_weight(10, 40, 40, {}) < 10 * one);
  CHECK(rag::bm25_weight(1000000, 40, 40, {}) < 2.2);  // k1 + 1 is never reached

  // The same seen from outside: two chunks of forty terms, one with gateway once, one ten times.
  rag::term_index_builder builder;
  strings once(40, "filler");
  once[0] = "gateway";
  strings ten(40, "filler");
  std::fill(ten.begin(), ten.begin() + 10, "gateway");
  builder.add(once);
  builder.add(ten);
  const rag::term_index index = builder.build();
  const strings asked = {"gateway"};
  const rag::row_set all = rag::row_set::all(2);
  const auto hits = index.search(asked, 2, all, all);
  REQUIRE(hits.size() == 2);
  CHECK(hits[0].row == 1);
  CHECK(hits[0].units < 10 * hits[1].units);
}

TEST_CASE("article, BM25: the same mention counts less in a chunk above the average length") {
  CHECK(rag::bm25_weight(1, 20, 40, {}) > rag::bm25_weight(1, 40, 40, {}));
  CHECK(rag::bm25_weight(1, 40, 40, {}) > rag::bm25_weight(1, 80, 40, {}));
  CHECK(rag::bm25_weight(1, 40, 40, {}) == Approx(1.0));
  CHECK(rag::bm25_weight(1, 80, 40, {.b = 0}) == Approx(rag::bm25_weight(1, 20, 40, {.b = 0})));
}

inline std::vector<std::pair<std::string, double>> scores_of(const rag::answer& found) {
  std::vector<std::pair<std::string, double>> out;
  for (const auto& passage : found.passages) {
    out.push_back({passage.id(), passage.lexical_score().value_or(0)});
  }
  return out;
}

TEST_CASE("article, BM25: E42 5.288, R 3.583, E43 1.859, G 1.197, E41 0.728") {
  const assistant desk;
  const auto found = scores_of(
      desk.ask("ana", {.text = question(), .mode = rag::search_mode::lexical, .per_document = 5}));
  const std::vector<std::pair<std::string, double>> expected = {
      {"E42", 5.288}, {"R", 3.583}, {"E43", 1.859}, {"G", 1.197}, {"E41", 0.728}};
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(found[i].first == expected[i].first);
    CHECK(std::fabs(found[i].second - expected[i].second) < 0.0005);
  }
}

TEST_CASE("article, BM25: the support reader's four chunks have statistics of their own") {
  const assistant desk;
  const auto found = scores_of(
      desk.ask("sam", {.text = question(), .mode = rag::search_mode::lexical, .per_document = 5}));
  const std::vector<std::pair<std::string, double>> expected = {
      {"E42", 4.624}, {"E43", 1.466}, {"G", 0.995}, {"E41", 0.537}};
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(found[i].first == expected[i].first);
    CHECK(std::fabs(found[i].second - expected[i].second) < 0.0005);
  }
}

TEST_CASE("article, BM25: a score is the sum of what each term of the question adds") {
  const assistant desk;
  const rag::answer found = desk.ask(
      "ana",
      {.text = question(), .mode = rag::search_mode::lexical, .per_document = 5, .explain = true});
  REQUIRE(found.trace.bm25.size() == 5);
  for (const auto& [id, explained] : found.trace.bm25) {
    CHECK_FALSE(id.empty());
    CHECK(explained.chunk_count == 5);
    double sum = 0;
    for (const rag::term_explanation& term : explained.terms) {
      CHECK(std::fabs(term.value - term.idf * term.weight) < 1e-6);
      sum += term.value;
    }
    CHECK(sum == Approx(explained.score));
  }
  CHECK(found.trace.bm25[0].first == "E42");
  CHECK(found.trace.bm25[0].second.score == Approx(found.passages[0].score()));
}

TEST_CASE("article, lexical: exact codes come first, then BM25, and that is a rule of ours") {
  const shelf index;
  // Every word but the code speaks for the others.
  const std::string asked = "PAY-041: gateway credential rotated, checkout currency, connection";
  const strings terms = rag::question_terms(asked);
  const strings code = {rag::normalise_identifier("PAY-041")};
  const auto search = [&](bool exact_first) {
    return index.names(rag::search_lexical(index.terms, index.codes, terms, code, 5, index.all(),
                                           index.all(), exact_first));
  };
  const std::string by_bm25 = index.names(index.terms.search(terms, 5, index.all(), index.all()));
  CHECK_FALSE(by_bm25.starts_with("E41"));  // BM25 alone does not require it
  CHECK(search(false) == by_bm25);
  CHECK(search(true).starts_with("E41 "));
  std::string rest = by_bm25;
  rest.erase(rest.find(" E41"), 4);
  CHECK(search(true) == "E41 " + rest);  // the others stay in their order
}

TEST_CASE("article, lexical: the illustrative order E42, R, E43, G, E41 is what BM25 computes") {
  const assistant desk;
  const auto illustrated = json::parse(read_data("pay042/illustration.json"))["lexical_order"];
  for (const bool exact_first : {true, false}) {
    const rag::answer found = desk.ask("ana", {.text = question(),
                                               .mode = rag::search_mode::lexical,
                                               .per_document = 5,
                                               .exact_first = exact_first});
    CHECK(ids_of(found.passages) == joined(illustrated.get<strings>()));
    CHECK(found.passages.at(0).exact_match());
    CHECK_FALSE(found.passages.at(1).exact_match());
  }
}

// ---- Combining both searches --------------------------------------------------------------------

inline const strings dense_order = {"R", "G", "E42", "E43", "E41"};
inline const strings lexical_order = {"E42", "R", "E43", "G", "E41"};

TEST_CASE("article, RRF: R 0.032522, E42 0.032266, G 0.031754") {
  const auto fused = rag::fuse_by_rank(std::vector<strings>{lexical_order, dense_order});
  CHECK(ids_of(fused) == "R E42 G E43 E41");
  CHECK(fused.at(0).score == Approx(1.0 / 61 + 1.0 / 62).epsilon(1e-12));
  CHECK(fused.at(1).score == Approx(1.0 / 63 + 1.0 / 61).epsilon(1e-12));
  CHECK(fused.at(2).score == Approx(1.0 / 62 + 1.0 / 64).epsilon(1e-12));
  const std::vector<double> printed = {0.032522, 0.032266, 0.031754};
  for (std::size_t i = 0; i < printed.size(); ++i) {
    CHECK(std::fabs(fused.at(i).score - printed[i]) < 0.0000006);
  }
}

TEST_CASE("article, RRF: ranks start at 1, and a list adds nothing for a chunk it does not hold") {
  const auto fused = rag::fuse_by_rank(std::vector<strings>{{"E42"}, {"R", "E42"}});
  REQUIRE(ids_of(fused) == "E42 R");
  CHECK(fused[0].score == Approx(1.0 / 61 + 1.0 / 62));
  CHECK(fused[1].score == Approx(1.0 / 61));
  CHECK(fused[1].ranks == std::vector<std::size_t>{0, 1});
}

TEST_CASE("article, RRF: by hybrid search R and E42 come first, with the sums of the article") {
  const assistant desk;
  const rag::answer found = desk.ask("ana", {.text = question(), .per_document = 5});
  CHECK(found.mode == rag::search_mode::hybrid);
  CHECK(ids_of(found.passages) == "R E42 G E43 E41");
  CHECK(std::fabs(found.passages[0].score() - 0.032522) < 0.0000006);
  CHECK(std::fabs(found.passages[1].score() - 0.032266) < 0.0000006);
  CHECK(std::fabs(found.passages[2].score() - 0.031754) < 0.0000006);
  CHECK(found.passages[0].dense_rank() == 1);
  CHECK(found.passages[0].lexical_rank() == 2);
}

TEST_CASE("article, RRF: almost equal or far apart, the raw scores do not move the sums") {
  const auto fused_with = [](const std::vector<double>& cosines) {
    rag::access_directory people;
    people.set_groups({.user = "ana"}, {"payments-ops"});
    rag::retriever retriever(
        {.embed = {.model = "supplied"}, .permissions = &people, .identifiers = {"PAY-###"}});
    auto pages = all_pages();
    for (rag::chunked_document& input : pages) {
      for (rag::chunk& piece : input.chunks) {
        const auto at = std::find(dense_order.begin(), dense_order.end(), piece.id);
        const double x = cosines.at(static_cast<std::size_t>(at - dense_order.begin()));
        piece.vector = rag::embedding{
            "supplied", {static_cast<float>(x), static_cast<float>(std::sqrt(1 - x * x))}};
      }
    }
    retriever.upsert(pages);
    return retriever.search(
        {.text = question(), .vector = rag::embedding{"supplied", {1.0F, 0.0F}}, .per_document = 5},
        retriever.scope_for({.user = "ana"}));
  };
  const rag::answer narrow = fused_with({0.82, 0.8199, 0.8198, 0.8197, 0.8196});
  const rag::answer wide = fused_with({0.99, 0.5, 0.3, 0.1, 0.05});
  CHECK(ids_of(narrow.passages) == "R E42 G E43 E41");
  REQUIRE(ids_of(wide.passages) == ids_of(narrow.passages));
  for (std::size_t i = 0; i < narrow.passages.size(); ++i) {
    CHECK(std::fabs(wide.passages[i].score() - narrow.passages[i].score()) < 1e-15);
  }
  CHECK(wide.passages[0].similarity().value() > narrow.passages[0].similarity().value() + 0.1);
}

TEST_CASE("models, RRF: fusion puts E42 and R first with mpnet and e5") {
  const auto hybrid = [](const std::string& model) {
    return order_with(model, "Q", rag::search_mode::hybrid);
  };
  CHECK(hybrid("mpnet-base-v2") == "E42 R E43 E41 G");
  CHECK(hybrid("e5-small-q4") == "E42 R E43 G E41");
}

TEST_CASE("models, RRF: with MiniLM E43 and R tie in sum and best rank, so the id decides") {
  const assistant desk(real_model("minilm-l6-v2"));
  const rag::answer found = desk.ask("ana", {.text = question(), .per_document = 5});
  CHECK(ids_of(found.passages) == "E42 E43 R E41 G");
  const rag::permitted_passage& e43 = found.passages.at(1);
  const rag::permitted_passage& r = found.passages.at(2);
  CHECK(std::fabs(e43.score() - 0.032002) < 0.0000006);
  CHECK((e43.score() >= r.score() && e43.score() <= r.score()));  // equal bit for bit
  CHECK(e43.dense_rank() == r.lexical_rank());
  CHECK(e43.lexical_rank() == r.dense_rank());
}

// ---- Comparing the shortlist more carefully -----------------------------------------------------

TEST_CASE("article, rerank: question and chunk are read together, one pair for each of the three") {
  const assistant desk;
  strings pairs;
  static_cast<void>(desk.ask(
      "ana", {.text = question(), .rerank = {.score = illustrated_reranker(&pairs), .window = 3}}));
  REQUIRE(pairs.size() == 3);
  const rag::document general = page("checkout-failures.md");
  CHECK(pairs[2] == question() + " + " + rag::search_text(general, cut(general).at(0)));
  CHECK(pairs[0].find("Reconnect a payment gateway\n\nIf a provider") != std::string::npos);
  CHECK(pairs[1].find("PAY-042: Stored credential was rejected\n\nCheckout") != std::string::npos);
}

TEST_CASE("article, rerank: E42 and R are kept, the cause and the repair") {
  const assistant desk;
  const rag::answer found = desk.ask(
      "ana",
      {.text = question(), .limit = 2, .rerank = {.score = illustrated_reranker(), .window = 3}});
  CHECK(found.reranking == rag::rerank_status::applied);
  CHECK(ids_of(found.passages) == "E42 R");
  CHECK(found.passages[0].rerank_score().value() > found.passages[1].rerank_score().value());
  const std::string judged = read_data("pay042/judged.tsv");
  CHECK(judged == "Q\tE42\t1\nQ\tR\t1\n");
}

TEST_CASE("article, rerank: it cannot return what the shortlist missed") {
  // A first search that finds R, G and E43 and stops there.
  rag::embedder model = drawn_model();
  model.embed = [](std::span<const std::string_view> texts, rag::text_role) {
    std::vector<std::vector<float>> vectors;
    for (const std::string_view text : texts) {
      vectors.push_back(drawn_vector(text));
      if (text.starts_with("PAY-042")) vectors.back() = {0.0F, 1.0F};
    }
    return vectors;
  };
  const assistant desk(model);
  strings pairs;
  const rag::answer found =
      desk.ask("ana", {.text = question(),
                       .mode = rag::search_mode::dense,
                       .depth = 3,
                       .rerank = {.score = illustrated_reranker(&pairs), .window = 3}});
  CHECK(pairs.size() == 3);
  CHECK(ids_of(found.passages) == "R G E43");
  for (const std::string& pair : pairs) {
    CHECK(pair.find("PAY-042: Stored credential") == std::string::npos);
  }
}

TEST_CASE("article, rerank: 20 in the shortlist make 20 pairs, 100 make 100, in batches as asked") {
  rag::access_directory people;
  people.set_groups({.user = "ana"}, {"everyone"});
  rag::retriever retriever({.permissions = &people});
  std::vector<rag::chunked_document> pages;
  for (std::size_t i = 0; i < 120; ++i) {
    rag::document source{.id = "page-" + std::to_string(i), .allowed_groups = {"everyone"}};
    source.text = "Gateway note " + std::to_string(i);
    pages.push_back({source, rag::chunk_whole(source)});
  }
  retriever.upsert(pages);
  const rag::scope ana = retriever.scope_for({.user = "ana"});
  const auto batches = [&](std::size_t window, std::size_t batch_size) {
    std::vector<std::size_t> sizes;
    const auto count = [&sizes](const rag::rerank_request& asked) {
      sizes.push_back(asked.passages.size());
      return std::vector<double>(asked.passages.size(), 1.0);
    };
    static_cast<void>(
        retriever.search({.text = "gateway",
                          .depth = 200,
                          .rerank = {.score = count, .batch_size = batch_size, .window = window}},
                         ana));
    return sizes;
  };
  CHECK(batches(20, 32) == std::vector<std::size_t>{20});
  CHECK(batches(20, 8) == std::vector<std::size_t>{8, 8, 4});
  CHECK(batches(100, 32) == std::vector<std::size_t>{32, 32, 32, 4});
  CHECK(batches(100, 1) == std::vector<std::size_t>(100, 1));
}

// ---- Only search what the user can read ---------------------------------------------------------

/// All strings of an answer, its trace included.
inline std::string everything_in(const rag::answer& found) {
  std::string all;
  const auto add = [&all](std::string_view text) { all.append(text).append("\n"); };
  for (const std::string& note : found.notes) add(note);
  for (const rag::permitted_passage& passage : found.passages) {
    for (const std::string* text :
         {&passage.id(), &passage.document_id(), &passage.parent_id(), &passage.title(),
          &passage.text(), &passage.search_text(), &passage.why(), &passage.source().document_id,
          &passage.source().anchor}) {
      add(*text);
    }
    for (const std::string& title : passage.heading_path()) add(title);
  }
  for (const rag::candidate_trace& each : found.trace.candidates) add(each.id);
  for (const auto& [id, explained] : found.trace.bm25) {
    add(id);
    for (const rag::term_explanation& term : explained.terms) add(term.term);
  }
  for (const rag::drop& gone : found.trace.dropped) {
    add(gone.id);
    add(gone.reason);
  }
  return all;
}

/// Whether any of R's own words, its id or its page's name stands in a text.
inline bool shows_r(const std::string& text) {
  for (const char* mark : {"Reconnect a payment gateway", "If a provider API key",
                           "workspace admin", "Settings > Payments", "Verify connection",
                           "Do not disable", "stops new checkouts", "reconnect-gateway"}) {
    if (text.find(mark) != std::string::npos) return true;
  }
  return ("\n" + text).find("\nR\n") != std::string::npos;
}

TEST_CASE("article, access: the groups of a page are the groups of its chunks") {
  const assistant desk;
  const strings all = {"E41", "E42", "E43", "G", "R"};
  CHECK(ids_of(desk.retriever.fetch(all, desk.scope("ana"))) == "E41 E42 E43 G R");
  CHECK(ids_of(desk.retriever.fetch(all, desk.scope("sam"))) == "E41 E42 E43 G");
  CHECK(ids_of(desk.retriever.fetch(all, desk.scope("nobody"))) == "");
  CHECK(desk.retriever.snapshot().count(desk.scope("ana")) == 5);
  CHECK(desk.retriever.snapshot().count(desk.scope("sam")) == 4);
}

TEST_CASE("article, access: of two results filtered after it G is left, inside it G and E42") {
  const shelf index;
  rag::flat_index vectors(2);
  std::map<std::string, std::string> text_of;
  for (const rag::chunked_document& input : all_pages()) {
    for (const rag::chunk& piece : input.chunks) {
      text_of[piece.id] = rag::search_text(input.source, piece);
    }
  }
  for (const auto& [id, text] : text_of) vectors.add(drawn_vector(text), id);
  const std::vector<float> asked = {1.0F, 0.0F};
  const auto names = [&index](const std::vector<rag::vector_hit>& hits) {
    strings out;
    for (const rag::vector_hit& hit : hits) out.push_back(index.ids[hit.row]);
    return out;
  };
  strings post = names(vectors.search(asked, 2, index.all()));
  CHECK(joined(post) == "R G");
  std::erase(post, "R");
  CHECK(joined(post) == "G");
  CHECK(joined(names(vectors.search(asked, 2, index.without("R")))) == "G E42");

  const assistant desk;
  const rag::answer found = desk.ask(
      "sam", {.text = question(), .mode = rag::search_mode::dense, .limit = 2, .depth = 2});
  CHECK(ids_of(found.passages) == "G E42");
}

TEST_CASE("article, access: words, vectors and the exact-code look-up are restricted alike") {
  assistant desk;
  rag::document internal{.id = "internal.md", .allowed_groups = {"payments-ops"}, .revision = 1};
  internal.text = "# Vault\n\nPAY-099 means that the vault quarantined the gateway key.\n";
  desk.retriever.upsert(internal, rag::chunk_whole(internal));
  const std::string asked = "What does PAY-099 mean for a quarantined vault?";
  CHECK(desk.ask("ana", {.text = asked}).signals.exact_code);
  for (const auto mode :
       {rag::search_mode::lexical, rag::search_mode::dense, rag::search_mode::hybrid}) {
    const rag::answer found = desk.ask("sam", {.text = asked, .mode = mode, .explain = true});
    CHECK_FALSE(found.signals.exact_code);
    CHECK(everything_in(found).find("internal.md") == std::string::npos);
    CHECK(everything_in(found).find("quarantined the gateway") == std::string::npos);
  }
}

TEST_CASE("article, access: the recheck blocks a stale permission before the reranker sees it") {
  assistant desk;
  const rag::scope stale = desk.scope("ana");  // made while ana was in payments-ops
  desk.people.set_groups({.user = "ana"}, {"support"});
  strings pairs;
  const rag::answer found = desk.retriever.search(
      {.text = question(), .rerank = {.score = illustrated_reranker(&pairs)}, .explain = true},
      stale);
  CHECK(ids_of(found.passages) == "E42 G E43");  // E41: a third of its page, beyond the cap
  CHECK_FALSE(shows_r(everything_in(found)));
  CHECK_FALSE(pairs.empty());
  for (const std::string& pair : pairs) CHECK_FALSE(shows_r(pair));
  for (const rag::permitted_passage& passage : found.passages) {
    CHECK(passage.dense_rank() >= 1);  // ranks are numbered after the recheck: no gap
    CHECK(passage.dense_rank() <= 4);
  }
  const strings wanted = {"R"};
  CHECK(desk.retriever.fetch(wanted, stale).empty());
  // The operator, and he alone, is told.
  REQUIRE_FALSE(desk.log.empty());
  CHECK(desk.log.back().checks.at(0).denied == strings{"R"});
}

TEST_CASE("article, access: the newest records count, also for a search in an older snapshot") {
  assistant desk;
  const rag::snapshot before = desk.retriever.snapshot();
  const rag::scope ana = desk.scope("ana");
  desk.retriever.set_access("reconnect-gateway.md", {"auditors"});
  CHECK_FALSE(shows_r(everything_in(before.search({.text = question(), .explain = true}, ana))));
}

// ---- Keeping the search records current ---------------------------------------------------------

/// The error page, edited, as its next revision.
inline rag::document edited(std::string_view from, std::string_view to,
                            std::uint64_t revision = 2) {
  rag::document out = error_page();
  const std::size_t at = out.text.find(from);
  REQUIRE(at != std::string::npos);
  out.text.replace(at, from.size(), to);
  out.revision = revision;
  return out;
}
inline std::string lexical_ids(const assistant& desk, const std::string& text) {
  return ids_of(
      desk.ask("ana", {.text = text, .mode = rag::search_mode::lexical, .per_document = 5})
          .passages);
}

TEST_CASE("article, updates: changed text replaces text, terms and vector together") {
  strings inputs;
  rag::embedder model = drawn_model(&inputs);
  model.embed = [draw = model.embed](std::span<const std::string_view> texts, rag::text_role role) {
    auto vectors = draw(texts, role);
    for (std::size_t i = 0; i < texts.size() && vectors; ++i) {
      if (texts[i].find("quarantined") != std::string_view::npos) vectors.value()[i] = {1.0F, 0.0F};
    }
    return vectors;
  };
  assistant desk(model);
  CHECK(lexical_ids(desk, "rotated") == "E42 R");
  CHECK(lexical_ids(desk, "quarantined").empty());
  const rag::snapshot before = desk.retriever.snapshot();

  inputs.clear();
  const rag::document changed = edited("has been rotated but", "was quarantined and");
  const rag::update_report report = desk.retriever.upsert(changed, cut(changed));
  CHECK(report.embedded == 1);
  CHECK(report.reused == 2);
  REQUIRE(inputs.size() == 1);
  CHECK(inputs[0].starts_with("PAY-042"));  // only the input that changed

  const strings wanted = {"E42"};
  const auto stored = desk.retriever.fetch(wanted, desk.scope("ana"));
  CHECK(stored.at(0).text().find("quarantined") != std::string::npos);
  CHECK(stored.at(0).revision() == 2);
  CHECK(lexical_ids(desk, "rotated") == "R");
  CHECK(lexical_ids(desk, "quarantined") == "E42");
  const rag::query dense{.text = question(), .mode = rag::search_mode::dense, .limit = 1};
  CHECK(ids_of(desk.ask("ana", dense).passages) == "E42");

  // A search that began before sees the old text, the old terms and the old vector.
  const rag::scope ana = desk.scope("ana");
  CHECK(before.fetch(wanted, ana).at(0).text().find("rotated") != std::string::npos);
  CHECK(before.search({.text = "quarantined", .mode = rag::search_mode::lexical}, ana)
            .passages.empty());
  CHECK(ids_of(before.search(dense, ana).passages) == "R");
}

TEST_CASE("article, updates: a failing embedder leaves text, terms and vectors as they were") {
  bool broken = false;
  rag::embedder model = drawn_model();
  model.embed = [&broken](std::span<const std::string_view> texts,
                          rag::text_role) -> rag::result<std::vector<std::vector<float>>> {
    if (broken) return rag::error(rag::errc::embedder_failed, "the model is away");
    std::vector<std::vector<float>> vectors;
    for (const std::string_view text : texts) vectors.push_back(drawn_vector(text));
    return vectors;
  };
  assistant desk(model);
  broken = true;
  const rag::document changed = edited("has been rotated but", "was quarantined and");
  CHECK_FALSE(desk.retriever.try_upsert(changed, cut(changed)).ok());
  broken = false;
  CHECK(lexical_ids(desk, "rotated") == "E42 R");
  CHECK(lexical_ids(desk, "quarantined").empty());
}

TEST_CASE("article, updates: a section that the author removed is gone") {
  assistant desk;
  const rag::document changed = edited(entry(error_page(), "PAY-043"), "");
  desk.retriever.upsert(changed, cut(changed));
  const strings wanted = {"E41", "E42", "E43"};
  CHECK(ids_of(desk.retriever.fetch(wanted, desk.scope("ana"))) == "E41 E42");
  CHECK(desk.retriever.snapshot().count(desk.scope("ana")) == 4);
  CHECK_FALSE(desk.ask("ana", {.text = "PAY-043"}).signals.exact_code);
  CHECK(lexical_ids(desk, "enabled").empty());
}

TEST_CASE("article, updates: one section becomes two, and both replace the old one") {
  assistant desk;
  const rag::document changed = edited(
      sentence_2, "\n\n## PAY-044: Key was rotated\n\nThe new value has not been saved here.");
  desk.retriever.upsert(changed, cut(changed));
  const strings wanted = {"E41", "E42", "E43", "E44"};
  const auto stored = desk.retriever.fetch(wanted, desk.scope("ana"));
  REQUIRE(ids_of(stored) == "E41 E42 E43 E44");
  CHECK(stored[1].text().find("rotated") == std::string::npos);
  CHECK(stored[3].text().find("rotated") != std::string::npos);
  CHECK(lexical_ids(desk, "rotated") == "E44 R");
}

TEST_CASE("article, updates: an older revision is refused") {
  assistant desk;
  const rag::document newer = edited("has been rotated but", "was quarantined and", 3);
  desk.retriever.upsert(newer, cut(newer));
  const auto late = desk.retriever.try_upsert(error_page(), cut(error_page()));
  REQUIRE_FALSE(late.ok());
  CHECK(late.failure().code() == rag::errc::stale_revision);
  CHECK(lexical_ids(desk, "quarantined") == "E42");
}

TEST_CASE("article, updates: a permission change reaches the records, the embedder rests") {
  assistant desk;
  const std::size_t embedded = desk.embedded.size();
  const rag::query asked{.text = question(), .mode = rag::search_mode::lexical, .per_document = 5};
  CHECK(ids_of(desk.ask("sam", asked).passages) == "E42 E43 G E41");
  desk.retriever.set_access("reconnect-gateway.md", {"support", "payments-ops"});
  CHECK(ids_of(desk.ask("sam", asked).passages) == "E42 R E43 G E41");
  desk.retriever.set_access("gateway-errors.md", {"payments-ops"});
  CHECK(ids_of(desk.ask("sam", asked).passages) == "R G");
  CHECK(desk.embedded.size() == embedded);
  // The same by replacing the page: its inputs are known.
  rag::document closed = error_page();
  closed.revision = 2;
  const rag::update_report report = desk.retriever.upsert(closed, cut(closed));
  CHECK(report.embedded == 0);
  CHECK(report.reused == 3);
  CHECK(desk.embedded.size() == embedded);
}

inline std::string dense_ids(const rag::retriever& retriever, const rag::scope& reader) {
  return ids_of(
      retriever
          .search({.text = question(), .mode = rag::search_mode::dense, .per_document = 5}, reader)
          .passages);
}

/// The question as another model embeds it.
inline rag::query embedded_by(const std::string& name) {
  const std::string text = question();
  const std::string_view one[] = {text};
  const auto vectors = real_model(name).embed(one, rag::text_role::question).value();
  return {.text = text, .vector = rag::embedding{name, vectors.at(0)}};
}

TEST_CASE(
    "article, updates: another model's vectors are refused until all is rebuilt and switched") {
  // MiniLM and E5 both give 384 numbers: only the tag tells them apart.
  const std::string old_name = "minilm-l6-v2";
  const std::string new_name = "e5-small-q4";
  REQUIRE(real_model(old_name).dimension == real_model(new_name).dimension);
  assistant desk(real_model(old_name));
  const rag::scope ana = desk.scope("ana");
  const auto refused = [&](const rag::result<rag::answer>& outcome) {
    return !outcome.ok() && outcome.failure().code() == rag::errc::model_mismatch;
  };
  const std::string by_old = "E42 E43 R E41 G";
  const std::string by_new = "E42 R G E43 E41";
  CHECK(dense_ids(desk.retriever, ana) == by_old);

  // Neither the question side nor one page may go first.
  CHECK(refused(desk.retriever.try_search(embedded_by(new_name), ana)));
  rag::document page_2 = page("checkout-failures.md");
  page_2.revision = 2;
  auto chunks = cut(page_2);
  chunks.at(0).vector = embedded_by(new_name).vector;
  const auto page_first = desk.retriever.try_upsert(page_2, chunks);
  REQUIRE_FALSE(page_first.ok());
  CHECK(page_first.failure().code() == rag::errc::model_mismatch);
  CHECK(dense_ids(desk.retriever, ana) == by_old);

  // A rebuild that stops halfway switches nothing.
  std::size_t inputs = 0;
  std::size_t most = 3;
  rag::embedder next = real_model(new_name);
  next.batch_size = 1;
  next.embed = [&, whole = next.embed](
                   std::span<const std::string_view> texts,
                   rag::text_role role) -> rag::result<std::vector<std::vector<float>>> {
    if (role == rag::text_role::document) {
      CHECK(dense_ids(desk.retriever, ana) == by_old);  // searches go on in the old space
      if (inputs == most) return rag::error(rag::errc::embedder_failed, "the new model is away");
      ++inputs;
    }
    return whole(texts, role);
  };
  CHECK_FALSE(desk.retriever.try_migrate(next).ok());
  CHECK(inputs == 3);
  CHECK(dense_ids(desk.retriever, ana) == by_old);
  CHECK(refused(desk.retriever.try_search(embedded_by(new_name), ana)));
  CHECK(desk.retriever.try_search(embedded_by(old_name), ana).ok());

  // The whole space is built, and then both sides change at once.
  most = 100;
  const rag::snapshot before = desk.retriever.snapshot();
  const rag::migration_report report = desk.retriever.migrate(next);
  CHECK(report.chunks == 5);
  CHECK(report.reused == 3);  // of the first attempt
  CHECK(report.embedded == 2);
  CHECK(inputs == 5);
  CHECK(dense_ids(desk.retriever, ana) == by_new);
  CHECK(refused(desk.retriever.try_search(embedded_by(old_name), ana)));
  CHECK(desk.retriever.try_search(embedded_by(new_name), ana).ok());
  CHECK(before.try_search(embedded_by(old_name), ana).ok());
  CHECK(lexical_ids(desk, "rotated") == "E42 R");  // words and permissions are not touched
  CHECK(ids_of(desk.ask("sam", {.text = question(), .per_document = 5}).passages).find('R') ==
        std::string::npos);
}

// ---- Searching a larger collection --------------------------------------------------------------

TEST_CASE("article, exact search: the question is compared with every eligible vector") {
  const shelf index;
  for (const char* model : {"minilm-l6-v2", "mpnet-base-v2", "e5-small-q4"}) {
    CAPTURE(model);
    const json file = json::parse(read_data(std::string("pay042/") + model + ".json"));
    const auto asked = file["question"]["embedding"].get<std::vector<float>>();
    std::map<std::string, std::vector<float>> vector_of;
    for (const json& each : file["entries"]) {
      vector_of[each["id"].get<std::string>()] = each["embedding"].get<std::vector<float>>();
    }
    rag::flat_index vectors(asked.size());
    std::vector<std::pair<double, std::string>> by_hand;
    for (const auto& [id, values] : vector_of) {
      vectors.add(values, id);
      by_hand.push_back({-rag::cosine(asked, values), id});
    }
    std::sort(by_hand.begin(), by_hand.end());
    const auto hits = vectors.search(asked, 10, index.all());
    REQUIRE(hits.size() == 5);  // min(k, eligible)
    for (std::size_t i = 0; i < hits.size(); ++i) {
      CHECK(index.ids[hits[i].row] == by_hand[i].second);
      CHECK(std::fabs(static_cast<double>(hits[i].score) + by_hand[i].first) < 1e-5);
    }
    CHECK(vectors.search(asked, 10, index.without("R")).size() == 4);
  }
}

// ---- The whole way ------------------------------------------------------------------------------

TEST_CASE("article, whole way: payments-ops gets E42 and R, support no byte of R") {
  assistant desk;
  strings pairs;
  const rag::query asked{.text = question(),
                         .limit = 2,
                         .rerank = {.score = illustrated_reranker(&pairs)},
                         .explain = true};
  const rag::answer for_ana = desk.ask("ana", asked);
  CHECK(for_ana.status == rag::search_status::ok);
  CHECK(ids_of(for_ana.passages) == "E42 R");
  CHECK(shows_r(everything_in(for_ana)));  // the search for R's bytes does find them where they are
  CHECK(for_ana.signals.exact_code);

  pairs.clear();
  const rag::answer for_sam = desk.ask("sam", asked);
  CHECK(ids_of(for_sam.passages) == "E42 G");
  CHECK_FALSE(shows_r(everything_in(for_sam)));
  for (const std::string& pair : pairs) CHECK_FALSE(shows_r(pair));
}

TEST_CASE("article, whole way: support never sees R, in any mode, by any model") {
  for (const char* model : {"minilm-l6-v2", "mpnet-base-v2", "e5-small-q4"}) {
    assistant desk(real_model(model));
    for (const char* id : {"Q", "Q-041", "Q-043", "Q-error", "Q-failing"}) {
      for (const auto mode :
           {rag::search_mode::lexical, rag::search_mode::dense, rag::search_mode::hybrid}) {
        const rag::answer found = desk.ask(
            "sam", {.text = question(id), .mode = mode, .per_document = 5, .explain = true});
        CHECK(found.passages.size() >= 4);
        CHECK_FALSE(shows_r(everything_in(found)));
      }
    }
  }
}

TEST_CASE("article, whole way: support's answer is that of an index which never held R") {
  assistant desk;
  assistant without;
  without.retriever.erase("reconnect-gateway.md");
  const rag::query asked{.text = question(), .per_document = 5, .explain = true};
  const rag::answer here = desk.ask("sam", asked);
  const rag::answer there = without.ask("sam", asked);
  CHECK(everything_in(here) == everything_in(there));
  REQUIRE(here.passages.size() == there.passages.size());
  for (std::size_t i = 0; i < here.passages.size(); ++i) {
    CHECK(std::fabs(here.passages[i].score() - there.passages[i].score()) < 1e-15);
    CHECK(here.passages[i].lexical_score() == there.passages[i].lexical_score());
  }
}

// ---- The tutorial's combine step ----------------------------------------------------------------

struct tutorial_hit {
  std::string id;
  std::string document;
};
using tutorial_list = std::vector<tutorial_hit>;

/// The step as the tutorial has it, with its habits: ranks count hidden hits too, a repeat inside a
/// list is added again, and ties stay in the order in which the ids were first met.
inline strings combine_like_the_tutorial(const tutorial_list& lexical,
                                         const tutorial_list& semantic, const strings& allowed,
                                         std::size_t limit = 12) {
  struct scored {
    tutorial_hit hit;
    double score = 0;
    std::size_t met = 0;  // when the id was first met
  };
  std::vector<scored> scores;
  for (const tutorial_list* hits : {&lexical, &semantic}) {
    std::size_t rank = 0;
    for (const tutorial_hit& hit : *hits) {
      ++rank;
      if (std::find(allowed.begin(), allowed.end(), hit.id) == allowed.end()) continue;
      auto at = std::find_if(scores.begin(), scores.end(),
                             [&hit](const scored& known) { return known.hit.id == hit.id; });
      if (at == scores.end()) at = scores.insert(scores.end(), {hit, 0.0, scores.size()});
      at->score += 1.0 / (60.0 + static_cast<double>(rank));
    }
  }
  std::sort(scores.begin(), scores.end(), [](const scored& a, const scored& b) {
    return a.score > b.score || (!(b.score > a.score) && a.met < b.met);
  });
  strings selected;
  std::map<std::string, std::size_t> of_document;
  for (const scored& each : scores) {
    if (of_document[each.hit.document] >= 2) continue;
    ++of_document[each.hit.document];
    selected.push_back(each.hit.id);
    if (selected.size() == limit) break;
  }
  return selected;
}

/// The same step from the header's parts: filter, fuse, cap, page.
inline strings combine(const tutorial_list& lexical, const tutorial_list& semantic,
                       const strings& allowed, std::size_t limit = rag::selection_options{}.limit) {
  std::map<std::string, std::string> document_of;
  std::vector<strings> lists;
  for (const tutorial_list* hits : {&lexical, &semantic}) {
    lists.emplace_back();
    for (const tutorial_hit& hit : *hits) {
      if (std::find(allowed.begin(), allowed.end(), hit.id) == allowed.end()) continue;
      lists.back().push_back(hit.id);
      document_of[hit.id] = hit.document;
    }
  }
  std::vector<rag::selection_item> items;
  for (const auto& hit : rag::fuse_by_rank(lists)) {
    items.push_back({.id = hit.id, .document_id = document_of[hit.id]});
  }
  strings selected;
  const rag::selection_options options;
  for (const auto& item :
       rag::take_page(rag::limit_per_document(items, options.per_document), 0, limit)) {
    selected.push_back(item.id);
  }
  return selected;
}

TEST_CASE("tutorial: a limit of zero is an error") {
  CHECK_THROWS_WITH_AS(static_cast<void>(combine({}, {}, {}, 0)), "limit 0 must be at least 1",
                       rag::error);
  const assistant desk;
  const auto refused = desk.retriever.try_search({.text = "key", .limit = 0}, desk.scope("ana"));
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.failure().code() == rag::errc::invalid_argument);
}

TEST_CASE("tutorial: twelve passages, two of one document and a constant of 60 are the defaults") {
  CHECK(rag::selection_options{}.limit == 12);
  CHECK(rag::selection_options{}.per_document == 2);
  CHECK(rag::query{}.limit == 12);
  CHECK(rag::query{}.per_document == 2);
  CHECK(rag::fusion_options{}.k == Approx(60));
  tutorial_list many;
  strings allowed;
  for (int i = 0; i < 30; ++i) {
    many.push_back({"chunk-" + std::to_string(10 + i), "page-" + std::to_string(i)});
    allowed.push_back(many.back().id);
  }
  CHECK(combine(many, {}, allowed).size() == 12);
  CHECK(combine(many, {}, allowed) == combine_like_the_tutorial(many, {}, allowed));
  CHECK(combine(many, {}, allowed, 3).size() == 3);
}

TEST_CASE("tutorial: the article's lists, capped at two of the error reference") {
  const std::map<std::string, std::string> pages = {
      {"E41", "errors"}, {"E42", "errors"}, {"E43", "errors"}, {"R", "runbook"}, {"G", "general"}};
  const auto list = [&pages](const strings& ids) {
    tutorial_list out;
    for (const std::string& id : ids) out.push_back({id, pages.at(id)});
    return out;
  };
  const strings all = {"E41", "E42", "E43", "R", "G"};
  CHECK(joined(combine(list(lexical_order), list(dense_order), all)) == "R E42 G E43");
  CHECK(combine(list(lexical_order), list(dense_order), all) ==
        combine_like_the_tutorial(list(lexical_order), list(dense_order), all));
  const strings support = {"E41", "E42", "E43", "G"};
  CHECK(joined(combine(list(lexical_order), list(dense_order), support)) == "E42 G E43");
}

TEST_CASE("tutorial, trap 1: ranks are numbered after hidden hits are gone, or gaps tell") {
  const tutorial_list lexical = {{"hidden-1", "x"}, {"hidden-2", "x"}, {"A", "a"}};
  const tutorial_list semantic = {{"B", "b"}};
  const strings allowed = {"A", "B"};
  CHECK(joined(combine_like_the_tutorial(lexical, semantic, allowed)) == "B A");
  CHECK(joined(combine(lexical, semantic, allowed)) == "A B");
  CHECK(combine(lexical, semantic, allowed) == combine({{"A", "a"}}, semantic, allowed));
}

TEST_CASE("tutorial, trap 2: a repeat inside one list is not a second vote, and takes no rank") {
  const tutorial_list lexical = {{"A", "a"}, {"B", "b"}, {"B", "b"}, {"C", "c"}};
  const strings allowed = {"A", "B", "C"};
  CHECK(joined(combine_like_the_tutorial(lexical, {}, allowed)) == "B A C");
  CHECK(joined(combine(lexical, {}, allowed)) == "A B C");
  const auto fused = rag::fuse_by_rank(std::vector<strings>{{"A", "B", "B", "C"}});
  CHECK(fused.at(2).ranks == std::vector<std::size_t>{3});
}

TEST_CASE("tutorial, trap 3: a tie is decided by the id, not by which list came first") {
  const tutorial_list one = {{"B", "b"}};
  const tutorial_list other = {{"A", "a"}};
  const strings allowed = {"A", "B"};
  CHECK(joined(combine_like_the_tutorial(one, other, allowed)) == "B A");
  CHECK(joined(combine_like_the_tutorial(other, one, allowed)) == "A B");
  CHECK(joined(combine(one, other, allowed)) == "A B");
  CHECK(joined(combine(other, one, allowed)) == "A B");
}

struct operations {
  std::size_t hashes = 0;
  std::size_t equalities = 0;
  std::size_t orderings = 0;
};
inline operations counted;

/// An id that counts what is done with it.
struct counted_id {
  std::size_t value = 0;
  friend bool operator==(const counted_id& a, const counted_id& b) {
    ++counted.equalities;
    return a.value == b.value;
  }
  friend bool operator<(const counted_id& a, const counted_id& b) {
    ++counted.orderings;
    return a.value < b.value;
  }
};
struct counted_hash {
  std::size_t operator()(const counted_id& id) const {
    ++counted.hashes;
    return id.value * 0x9E3779B1U;
  }
};

TEST_CASE("tutorial, cost: merging L and S hits hashes each of them once, O(L + S)") {
  for (const std::size_t length : {100U, 1000U, 10000U}) {
    std::vector<std::vector<counted_id>> lists(2);
    for (std::size_t i = 0; i < length; ++i) lists[0].push_back({i});
    for (std::size_t i = 0; i < length / 2; ++i) lists[1].push_back({3 * i});  // a third shared
    const std::size_t entries = lists[0].size() + lists[1].size();
    counted = {};
    const auto fused = rag::fuse_by_rank<counted_id, counted_hash>(lists);
    CHECK(counted.hashes == entries);
    CHECK(counted.equalities <= entries);
    CHECK(fused.size() < entries);
  }
}

TEST_CASE("tutorial, cost: sorting K unique hits compares O(K log K) times") {
  for (const std::size_t unique : {64U, 256U, 1024U}) {
    // Each id alone in a list of its own: all sums and ranks are equal, so that every comparison of
    // the sort reaches the id and is counted.
    std::vector<std::vector<counted_id>> lists;
    for (std::size_t i = 0; i < unique; ++i) lists.push_back({{(i * 389) % unique}});
    counted = {};
    const auto fused = rag::fuse_by_rank<counted_id, counted_hash>(lists);
    REQUIRE(fused.size() == unique);
    CHECK(counted.hashes == unique);
    const double bound = 2 * static_cast<double>(unique) * std::log2(static_cast<double>(unique));
    CHECK(static_cast<double>(counted.orderings) >= static_cast<double>(unique) - 1);
    CHECK(static_cast<double>(counted.orderings) <= bound);
    for (std::size_t i = 0; i < unique; ++i) CHECK(fused[i].id.value == i);
  }
}

}  // namespace article_test
