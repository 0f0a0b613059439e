// The worked example in a terminal: three help pages, one question, and what each stage of the
// search makes of them. One function is one station, in the order of the article.
//
// What the article drew and did not compute is drawn here too, and said to be: the distances
// between sentences, the vectors of the first dense search, the reranker.
//
//   pay042 [DATA]        DATA: the data folder of the project; default: where it was built
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <rag_retrieve.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rag = rag_retrieve;
using nlohmann::json;
using strings = std::vector<std::string>;

// ---- Reading and printing -----------------------------------------------------------------------

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<json> read_lines(const std::string& path) {
  std::istringstream text(read_file(path));
  std::vector<json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  return lines;
}

void title(const std::string& text) {
  std::printf("\n---- %s %s\n\n", text.c_str(), std::string(92 - text.size(), '-').c_str());
}

std::string joined(const strings& parts, const std::string& between = ", ") {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : between) + part;
  return out;
}

/// "E42, E43 = R": ids from the best on; equal scores are joined by an equals sign.
std::string order_of(const rag::answer& found) {
  std::string out;
  const rag::permitted_passage* before = nullptr;
  for (const rag::permitted_passage& passage : found.passages) {
    if (before != nullptr) out += before->score() != passage.score() ? ", " : " = ";
    out += passage.id();
    before = &passage;
  }
  return out;
}

/// The same, or "-" for nothing.
std::string order_or_dash(const rag::answer& found) {
  return found.passages.empty() ? "-" : order_of(found);
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

// ---- The example --------------------------------------------------------------------------------

/// The chunk ids of the article: E41, E42, E43 for the errors, R and G for the other pages.
std::string article_id(const rag::document& page, const rag::chunk& piece) {
  if (page.id == "reconnect-gateway.md") return "R";
  if (page.id == "checkout-failures.md") return "G";
  return "E" + piece.heading.substr(piece.heading.find(':') - 2, 2);
}

std::vector<rag::chunk> cut(const rag::document& page) {
  if (page.id != "gateway-errors.md") return rag::chunk_whole(page, {.name = article_id});
  return rag::chunk_structure(page, {.max_heading_level = 2, .name = article_id});
}

/// What data/pay042 holds.
struct example {
  std::string folder;
  std::map<std::string, std::string> questions;  // by id: Q, Q-failing, ...
  std::vector<rag::chunked_document> pages;
  rag::access_directory people;
  json drawn;  // the article's illustrative orders and scores

  explicit example(const std::string& data) : folder(data + "/pay042/") {
    for (const json& line : read_lines(folder + "queries.jsonl")) {
      questions[line["id"].get<std::string>()] = line["text"].get<std::string>();
    }
    for (const json& line : read_lines(folder + "access.jsonl")) {
      rag::document page{.id = line["id"].get<std::string>(), .revision = 1};
      page.text = read_file(folder + page.id);
      page.title = rag::markdown_headings(page.text).front().title;
      page.allowed_groups = line["allowed_groups"].get<strings>();
      pages.push_back({page, cut(page)});
    }
    for (const json& line : read_lines(folder + "users.jsonl")) {
      people.set_groups({.user = line["user"].get<std::string>()}, line["groups"].get<strings>());
    }
    drawn = json::parse(read_file(folder + "illustration.json"));
  }

  rag::retriever index(rag::embedder model) const {
    rag::retriever retriever(
        {.embed = std::move(model), .permissions = &people, .identifiers = {"PAY-###"}});
    retriever.upsert(pages);
    return retriever;
  }
};

/// A model that is a list of texts, told apart by their first lines, with their vectors.
using vectors = std::vector<std::vector<float>>;
using vector_table = std::map<std::string, std::vector<float>>;
rag::embedder listed_model(const std::string& name, const vector_table& vector_of) {
  const auto embed = [vector_of](auto texts, rag::text_role) -> rag::result<vectors> {
    vectors out;
    for (const std::string_view text : texts) {
      const auto known = vector_of.find(first_line(text));
      if (known == vector_of.end()) {
        return rag::error(rag::errc::embedder_failed, "no vector for: " + first_line(text));
      }
      out.push_back(known->second);
    }
    return out;
  };
  return {.model = name, .batch_size = 1, .embed = embed};
}

/// Vectors of two numbers, drawn so that the dense order is the article's: the cosine with the
/// question falls by 0.1 from place to place.
rag::embedder drawn_model(const example& it) {
  vector_table vector_of = {{it.questions.at("Q"), {1.0F, 0.0F}}};
  const auto order = it.drawn["dense_order"].get<strings>();
  for (const rag::chunked_document& page : it.pages) {
    for (const rag::chunk& piece : page.chunks) {
      const auto place = std::find(order.begin(), order.end(), piece.id) - order.begin();
      const float cosine = 0.85F - 0.1F * static_cast<float>(place);
      vector_of[piece.heading] = {cosine, std::sqrt(1 - cosine * cosine)};
    }
  }
  return listed_model("drawn", vector_of);
}

constexpr const char* real_models[] = {"minilm-l6-v2", "mpnet-base-v2", "e5-small-q4"};

/// What a real model gave for the texts of the example.
vector_table real_vectors(const example& it, const std::string& name) {
  const json file = json::parse(read_file(it.folder + name + ".json"));
  vector_table vector_of;
  for (const json& group : {json::array({file["question"]}), file["entries"], file["variants"],
                            file["sentences"], file["windows"]}) {
    for (const json& entry : group) {
      vector_of[first_line(entry["text"].get<std::string>())] =
          entry["embedding"].get<std::vector<float>>();
    }
  }
  return vector_of;
}

rag::embedder real_model(const example& it, const std::string& name) {
  return listed_model(name, real_vectors(it, name));
}

/// A cross-encoder, with the scores of the illustration.
rag::reranker drawn_reranker(const example& it) {
  const auto scores = it.drawn["rerank_scores"].get<std::map<std::string, double>>();
  return {.score = [scores](const rag::rerank_request& asked) {
    std::vector<double> out;
    for (const rag::permitted_passage& passage : asked.passages) {
      const auto known = scores.find(passage.id());
      out.push_back(known == scores.end() ? 0.1 : known->second);
    }
    return out;
  }};
}

// ---- The stations: cutting ----------------------------------------------------------------------

void show_legend(const example& it) {
  std::printf("Question: %s\n\n", it.questions.at("Q").c_str());
  std::printf("E41, E42, E43   the sections on PAY-041, PAY-042, PAY-043 of the error reference\n");
  std::printf("R, G            the pages 'Reconnect a payment gateway' and 'Checkout failures'\n");
  std::printf("ana, sam        an engineer of payments-ops, an agent of support\n");
  std::printf("drawn           invented, to show a calculation; so are the reranker's scores\n");
  std::printf("-               nothing\n");
}

void show_windows(const std::string& data) {
  title("Fixed windows: 220 tokens, t000 to t219, cut at 80");
  rag::document tokens{.id = "tokens"};
  tokens.text = read_file(data + "/synthetic/tokens-220.txt");
  for (const std::size_t overlap : {0U, 20U}) {
    std::printf("overlap %2zu   ", overlap);
    std::size_t positions = 0;
    for (const auto& piece : rag::chunk_fixed(tokens, {.chunk_size = 80, .overlap = overlap})) {
      const std::string text(rag::chunk_text(tokens, piece));
      std::printf("%.4s-%s   ", text.c_str(), text.substr(text.size() - 4).c_str());
      positions += piece.token_count;
    }
    std::printf("%zu positions, %zu repeated\n", positions, positions - 220);
  }
}

void show_sentences(const example& it) {
  title("Sentences: the PAY-042 paragraph, and packed to a limit");
  const rag::chunk& e42 = it.pages.front().chunks.at(1);
  rag::document paragraph{.id = "paragraph"};
  paragraph.text = rag::slice(it.pages.front().source.text, e42.body);
  for (const rag::chunk& piece : rag::chunk_sentences(paragraph)) {
    std::printf("%2zu tokens   %s\n", piece.token_count,
                std::string(rag::chunk_text(paragraph, piece)).c_str());
  }
  for (const std::size_t limit : {80U, 30U, 10U}) {
    strings sizes;
    for (const rag::chunk& piece : rag::chunk_packed(paragraph, {.chunk_size = limit})) {
      sizes.push_back(std::to_string(piece.token_count));
    }
    std::printf("limit %2zu    chunks of %s tokens%s\n", limit, joined(sizes).c_str(),
                limit == 10 ? ": no sentence fits, so words decide" : "");
  }
}

/// S1 to S5 on one line, as if the headings of the error reference were missing.
rag::document five_sentences(const example& it) {
  rag::document plain{.id = "plain"};
  const rag::chunked_document& page = it.pages.front();
  for (const rag::chunk& section : page.chunks) {
    if (!plain.text.empty()) plain.text += ' ';
    plain.text += rag::slice(page.source.text, section.body);
  }
  return plain;
}

/// Each sentence's vector is turned from the one before it by the angle of a drawn distance.
rag::embedder drawn_sentences(const rag::document& plain) {
  const double distances[] = {0, 0.18, 0.62, 0.21, 0.57};
  vector_table vector_of;
  double angle = 0;
  for (const rag::chunk& sentence : rag::chunk_sentences(plain)) {
    angle += std::acos(1 - distances[vector_of.size()]);
    vector_of[std::string(rag::chunk_text(plain, sentence))] = {
        static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))};
  }
  return listed_model("drawn", vector_of);
}

/// "S1+S2 | S3+S4 | S5": which sentences each chunk holds.
std::string cut_of(const rag::semantic_result& found) {
  std::string out;
  std::size_t number = 1;
  auto sentence = found.sentences.begin();
  for (const rag::chunk& piece : found.chunks) {
    strings names;
    for (; sentence != found.sentences.end() && sentence->end <= piece.range.end; ++sentence) {
      names.push_back("S" + std::to_string(number++));
    }
    out += (out.empty() ? "" : " | ") + joined(names, "+");
  }
  return out;
}

void show_distances(const rag::document& plain, const rag::embedder& model, std::size_t window) {
  const auto found = rag::semantic_cuts(plain, {.embed = model,
                                                .window = window,
                                                .threshold_kind = rag::semantic_threshold::absolute,
                                                .threshold = 0.35});
  std::printf("%-16s%-9s", model.model.c_str(), window == 0 ? "alone" : "with both");
  for (const double distance : found.distances) std::printf("%8.2f", distance);
  std::printf("   %s\n", cut_of(found).c_str());
}

void show_semantic(const example& it) {
  title("Semantic chunks: no headings, and a cut where the distance is above 0.35");
  const rag::document plain = five_sentences(it);
  int number = 0;
  for (const rag::chunk& sentence : rag::chunk_sentences(plain)) {
    std::printf("S%d   %s\n", ++number, std::string(rag::chunk_text(plain, sentence)).c_str());
  }
  std::printf("\nvectors                    S1-S2   S2-S3   S3-S4   S4-S5   chunks\n");
  show_distances(plain, drawn_sentences(plain), 0);
  for (const char* name : real_models) {
    for (const std::size_t window : {0U, 1U}) show_distances(plain, real_model(it, name), window);
  }
  std::printf(
      "\nThe drawn distances are ours. A sentence is embedded alone, or with both neighbours.\n"
      "With real models 0.35 cuts everywhere or nowhere: a threshold belongs to one model\n"
      "and one window.\n");
}

/// The reconnection page as the article lets it grow.
rag::document grown_page() {
  rag::document page{.id = "R", .allowed_groups = {"support", "payments-ops"}, .revision = 1};
  page.text =
      "# Reconnect a payment gateway\n\n"
      "## Before you begin\n"
      "Only a workspace admin can change the gateway credential.\n\n"
      "## Replace the credential\n"
      "Open Settings > Payments > Gateways and replace the stored credential.\n\n"
      "## Verify the repair\n"
      "Choose Verify connection and confirm that a test request succeeds.\n\n"
      "## Warnings\n"
      "Do not disable the gateway before replacing the credential.\n";
  return page;
}

/// A parent and its four children, one of which is not for support.
std::vector<rag::chunk> family_of(const rag::document& page) {
  std::vector<rag::chunk> family = rag::chunk_parent_child(page);
  for (rag::chunk& piece : family) {
    if (piece.heading == "Replace the credential") piece.allowed_groups = {"payments-ops"};
  }
  return family;
}

rag::answer show_family_search(const rag::retriever& retriever, const char* user,
                               const char* text) {
  const rag::scope reader = retriever.scope_for({.user = user});
  rag::query asked{.text = text, .per_document = 5, .collapse_parents = false};
  const rag::answer children = retriever.search(asked, reader);
  asked.collapse_parents = true;
  const rag::answer found = retriever.search(asked, reader);
  std::printf("\n%s asks for: %s\n  matches      %s\n  handed out   %s\n", user, text,
              order_or_dash(children).c_str(), order_or_dash(found).c_str());
  return found;
}

void show_parents(const example& it) {
  title("Parent and child: small chunks are searched, the whole procedure is handed out");
  rag::document page = grown_page();
  const std::vector<rag::chunk> family = family_of(page);
  for (const rag::chunk& piece : family) {
    std::printf("%2zu tokens   %-31s%s%s\n", piece.token_count, piece.id.c_str(),
                piece.parent_id.empty() ? "the parent" : ("in " + piece.parent_id).c_str(),
                piece.allowed_groups ? ", not for support" : "");
  }
  rag::retriever retriever({.permissions = &it.people});
  retriever.upsert(page, family);
  const rag::answer found = show_family_search(retriever, "ana", "verify connection");
  std::printf("\n%s\n", found.passages.at(0).text().c_str());
  show_family_search(retriever, "ana", "credential");
  show_family_search(retriever, "sam", "credential");
  std::printf(
      "\nMany matches or one: ana gets the procedure once. For sam the sections stand alone,\n"
      "as their parent holds one that he may not read.\n");

  page.text.insert(page.text.find("Choose Verify"), "Wait a minute. ");
  page.revision = 2;
  const std::vector<rag::chunk> after = family_of(page);
  retriever.upsert(page, after);
  const auto same_ids = [](const rag::chunk& one, const rag::chunk& two) {
    return one.id == two.id && one.parent_id == two.parent_id;
  };
  const bool same = std::equal(family.begin(), family.end(), after.begin(), after.end(), same_ids);
  std::printf("\nA section gains the words 'Wait a minute.': ids and parent ids %s.\n",
              same ? "are as before" : "have changed");
  show_family_search(retriever, "ana", "wait");
}

void show_chunks(const example& it) {
  title("Sections and whole pages: the five chunks");
  for (const rag::chunked_document& page : it.pages) {
    for (const rag::chunk& piece : page.chunks) {
      std::printf("%-4s%3zu tokens   %-22s  %s\n", piece.id.c_str(), piece.token_count,
                  joined(page.source.allowed_groups).c_str(),
                  joined(piece.heading_path, " > ").c_str());
    }
  }
}

// ---- The stations: searching --------------------------------------------------------------------

void show_postings(const example& it) {
  title("Inverted index: from a term to its chunks");
  std::map<std::string, std::string> texts;  // in order of the ids, which are the rows
  for (const rag::chunked_document& page : it.pages) {
    for (const auto& piece : page.chunks) texts[piece.id] = rag::search_text(page.source, piece);
  }
  const auto codes = rag::identifier_finder::try_make({.patterns = {"PAY-###"}}).value();
  rag::term_index_builder builder;
  rag::identifier_index identifiers;
  strings ids;
  for (const auto& [id, text] : texts) {
    const std::uint32_t row = builder.add(rag::analyse(text));
    for (const auto& code : codes.find(text)) identifiers.add(row, code.value, false);
    ids.push_back(id);
  }
  const rag::term_index terms = builder.build();
  for (const char* term : {"checkout", "credential", "rotated", "key", "gateway"}) {
    strings holders;
    for (const std::uint32_t row : terms.rows_with(term)) holders.push_back(ids[row]);
    std::printf("%-12s-> %s\n", term, joined(holders).c_str());
  }
  const strings code = {rag::normalise_identifier("PAY-042")};
  for (const auto& hit : identifiers.look_up(code, rag::row_set::all(ids.size()))) {
    std::printf("PAY-042     -> %s, by the field of codes; its words are %s\n",
                ids[hit.row].c_str(), joined(rag::analyse("PAY-042")).c_str());
  }
}

void show_bm25(const rag::answer& found) {
  title("BM25: what each term of the question adds to each chunk");
  const auto& columns = found.trace.bm25;
  std::printf(
      "n: how many of the 5 chunks hold the term; idf = ln(1 + (5 - n + 0.5) / (n + 0.5))\n\n");
  std::printf("term         n     idf");
  for (const auto& [id, score] : columns) std::printf("%8s", id.c_str());
  for (std::size_t t = 0; t < columns.front().second.terms.size(); ++t) {
    const rag::term_explanation& term = columns.front().second.terms[t];
    if (term.n == 0) continue;  // no chunk holds it
    std::printf("\n%-12s%2zu%8.3f", term.term.c_str(), term.n, term.idf);
    for (const auto& [id, score] : columns) {
      score.terms[t].tf > 0 ? std::printf("%8.3f", score.terms[t].value) : std::printf("       -");
    }
  }
  std::printf("\nscore                 ");
  for (const auto& [id, score] : columns) std::printf("%8.3f", score.score);
  std::printf("\n");
}

void show_fusion(const rag::answer& found) {
  title("Both rankings, and their places added up: 1 / (60 + rank)");
  std::printf("     dense, drawn    lexical, BM25   sum\n");
  for (const rag::permitted_passage& p : found.passages) {
    std::printf("%-5s%zu     %.2f      %zu   %7.3f     1/%zu + 1/%zu = %.6f%s\n", p.id().c_str(),
                p.dense_rank(), p.similarity().value(), p.lexical_rank(), p.lexical_score().value(),
                60 + p.dense_rank(), 60 + p.lexical_rank(), p.score(),
                p.exact_match() ? "   exact code" : "");
  }
}

void show_answers(const example& it, const rag::retriever& retriever) {
  title("Reranked (scores drawn) and cut to two: the answer for each user");
  for (const char* user : {"ana", "sam"}) {
    const rag::scope reader = retriever.scope_for({.user = user});
    const rag::answer found = retriever.search(
        {.text = it.questions.at("Q"), .limit = 2, .rerank = drawn_reranker(it)}, reader);
    std::printf("%s (%s): %s\n", user, joined(reader.groups()).c_str(), order_of(found).c_str());
    for (const rag::permitted_passage& p : found.passages) {
      std::printf("  %-5sreranker %.2f   BM25 %.3f   %s\n", p.id().c_str(),
                  p.rerank_score().value(), p.lexical_score().value(), p.why().c_str());
    }
  }
  // Why the filter stands inside the search: of the two best, one is not sam's to read.
  const rag::query two{.text = it.questions.at("Q"), .mode = rag::search_mode::dense, .limit = 2};
  strings after;
  for (const auto& p : retriever.search(two, retriever.scope_for({.user = "ana"})).passages) {
    if (p.id() != "R") after.push_back(p.id());
  }
  const rag::answer inside = retriever.search(two, retriever.scope_for({.user = "sam"}));
  std::printf("\nsam, dense search for two, filtered after it:  %s\n", joined(after).c_str());
  std::printf("sam, dense search for two, filtered inside it: %s\n", order_of(inside).c_str());
}

void show_update(const example& it, rag::retriever& retriever) {
  title("Updates: a word of E42 changes, then the groups of its page");
  const auto show_finds = [&retriever](const char* user, const std::string& when) {
    std::printf("%s finds   ", user);
    for (const char* word : {"rotated", "revoked"}) {
      const rag::query asked{.text = word, .mode = rag::search_mode::lexical};
      const rag::answer found = retriever.search(asked, retriever.scope_for({.user = user}));
      std::printf("%s in %-10s", word, order_or_dash(found).c_str());
    }
    std::printf("%s\n", when.c_str());
  };
  show_finds("ana", "before");
  rag::document page = it.pages.front().source;
  page.text.replace(page.text.find("been rotated") + 5, 7, "revoked");
  page.revision = 2;
  const rag::update_report report = retriever.upsert(page, cut(page));
  show_finds("ana", std::to_string(report.embedded) + " text embedded, " +
                        std::to_string(report.reused) + " vectors kept");
  show_finds("sam", "may still read it");
  retriever.set_access(page.id, {"payments-ops"});
  show_finds("sam", "the page is closed to support, nothing embedded");
}

/// What a dense search finds, or why it is refused.
void show_dense(const std::string& what, const rag::retriever& retriever, const rag::query& asked) {
  const auto found = retriever.try_search(asked, retriever.scope_for({.user = "ana"}));
  std::printf("%-26s%s\n", what.c_str(),
              (found ? order_of(*found) : found.failure().message()).c_str());
}

void show_model_change(const example& it) {
  const std::string name = real_models[0];
  title("Another model: from drawn vectors to those of " + name);
  const vector_table vector_of = real_vectors(it, name);
  rag::retriever retriever = it.index(drawn_model(it));
  const rag::query asked{
      .text = it.questions.at("Q"), .mode = rag::search_mode::dense, .per_document = 5};
  rag::query of_old = asked, of_new = asked;
  of_old.vector = rag::embedding{"drawn", {1.0F, 0.0F}};
  of_new.vector = rag::embedding{name, vector_of.at(asked.text)};
  show_dense("dense search", retriever, asked);
  show_dense("new question, old index", retriever, of_new);

  vector_table incomplete = vector_of;
  incomplete.erase("Reconnect a payment gateway");
  const auto failed = retriever.try_migrate(listed_model(name, incomplete));
  std::printf("%-26s%s\n", "change, but R fails", failed.failure().message().c_str());
  show_dense("dense search", retriever, asked);

  const rag::migration_report report = retriever.migrate(listed_model(name, vector_of));
  std::printf("%-26s%zu chunks: %zu embedded, %zu from the attempt before\n", "change",
              report.chunks, report.embedded, report.reused);
  show_dense("dense search", retriever, asked);
  show_dense("old question, new index", retriever, of_old);
}

void show_real_models(const example& it) {
  title("The vectors of real models instead of drawn ones");
  std::printf("model           question    dense                 fused with BM25\n");
  for (const char* name : real_models) {
    const rag::retriever retriever = it.index(real_model(it, name));
    const rag::scope ana = retriever.scope_for({.user = "ana"});
    for (const char* id : {"Q", "Q-failing"}) {
      rag::query asked{.text = it.questions.at(id), .per_document = 5};
      const rag::answer fused = retriever.search(asked, ana);
      asked.mode = rag::search_mode::dense;
      std::printf("%-16s%-12s%-22s%s\n", name, id, order_of(retriever.search(asked, ana)).c_str(),
                  order_of(fused).c_str());
    }
  }
  std::printf("\nQ is the question; Q-failing says 'started failing' in the place of the code.\n");
  std::printf("Of two that are equal (=) the smaller id comes first.\n");
}

void show_all(const std::string& data) {
  const example it(data);
  rag::retriever retriever = it.index(drawn_model(it));
  show_legend(it);
  show_windows(data);
  show_sentences(it);
  show_semantic(it);
  show_parents(it);
  show_chunks(it);
  show_postings(it);
  const rag::query asked{.text = it.questions.at("Q"), .per_document = 5, .explain = true};
  const rag::answer found = retriever.search(asked, retriever.scope_for({.user = "ana"}));
  show_bm25(found);
  show_fusion(found);
  show_answers(it, retriever);
  show_update(it, retriever);
  show_model_change(it);
  show_real_models(it);
}

int main(int count, char** arguments) {
  try {
    show_all(count > 1 ? arguments[1] : RAG_RETRIEVE_DATA_DIR);
    return 0;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "pay042: %s\n", failure.what());
    return 1;
  }
}
