// The worked example in a terminal: three help pages, one question, and what each stage of the
// search makes of them. One function is one station, in the order of the article.
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
using vector_table = std::map<std::string, std::vector<float>>;
rag::embedder listed_model(const std::string& name, const vector_table& vector_of) {
  return {.model = name, .embed = [vector_of](auto texts, rag::text_role) {
            std::vector<std::vector<float>> out;
            for (const std::string_view text : texts) out.push_back(vector_of.at(first_line(text)));
            return out;
          }};
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

/// A real model, as far as data/pay042 holds what it gave for these texts.
rag::embedder real_model(const example& it, const std::string& name) {
  const json file = json::parse(read_file(it.folder + name + ".json"));
  vector_table vector_of;
  for (const json& group : {json::array({file["question"]}), file["entries"], file["variants"]}) {
    for (const json& entry : group) {
      vector_of[first_line(entry["text"].get<std::string>())] =
          entry["embedding"].get<std::vector<float>>();
    }
  }
  return listed_model(name, vector_of);
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

// ---- The stations -------------------------------------------------------------------------------

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

void show_postings(const example& it) {
  title("Inverted index: from a term to its chunks");
  std::map<std::string, std::string> texts;  // in order of the ids, which are the rows
  for (const rag::chunked_document& page : it.pages) {
    for (const auto& piece : page.chunks) texts[piece.id] = rag::search_text(page.source, piece);
  }
  const auto codes = rag::identifier_finder::try_make({.patterns = {"PAY-###"}}).value();
  rag::term_index terms;
  rag::identifier_index identifiers;
  strings ids;
  for (const auto& [id, text] : texts) {
    const std::uint32_t row = terms.add(rag::analyse(text));
    for (const auto& code : codes.find(text)) identifiers.add(row, code.value, false);
    ids.push_back(id);
  }
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
  std::printf("term         n     idf");
  for (const auto& [id, score] : columns) std::printf("%8s", id.c_str());
  for (std::size_t t = 0; t < columns.front().second.terms.size(); ++t) {
    const rag::term_explanation& term = columns.front().second.terms[t];
    if (term.n == 0) continue;  // no chunk holds it
    std::printf("\n%-12s%2zu%8.3f", term.term.c_str(), term.n, term.idf);
    for (const auto& [id, score] : columns) {
      score.terms[t].tf > 0 ? std::printf("%8.3f", score.terms[t].value) : std::printf("       .");
    }
  }
  std::printf("\nscore                 ");
  for (const auto& [id, score] : columns) std::printf("%8.3f", score.score);
  std::printf("\n");
}

void show_fusion(const rag::answer& found) {
  title("Both rankings, and their places added up: 1 / (60 + rank)");
  std::printf("     dense, cosine   lexical, BM25   sum\n");
  for (const rag::permitted_passage& p : found.passages) {
    std::printf("%-5s%zu     %.2f      %zu   %7.3f     1/%zu + 1/%zu = %.6f%s\n", p.id().c_str(),
                p.dense_rank(), p.similarity().value(), p.lexical_rank(), p.lexical_score().value(),
                60 + p.dense_rank(), 60 + p.lexical_rank(), p.score(),
                p.exact_match() ? "   exact code" : "");
  }
}

void show_answers(const example& it, const rag::retriever& retriever) {
  title("Reranked and cut to two: the answer for each user");
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
      const std::string ids = found.passages.empty() ? "nothing" : order_of(found);
      std::printf("%s in %-10s", word, ids.c_str());
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

void show_real_models(const example& it) {
  title("The vectors of real models instead of drawn ones");
  std::printf("model           question    dense                 fused with BM25\n");
  for (const char* name : {"minilm-l6-v2", "mpnet-base-v2", "e5-small-q4"}) {
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
  std::printf("Question: %s\n", it.questions.at("Q").c_str());
  show_windows(data);
  show_sentences(it);
  show_chunks(it);
  show_postings(it);
  const rag::query asked{.text = it.questions.at("Q"), .per_document = 5, .explain = true};
  const rag::answer found = retriever.search(asked, retriever.scope_for({.user = "ana"}));
  show_bm25(found);
  show_fusion(found);
  show_answers(it, retriever);
  show_update(it, retriever);
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
