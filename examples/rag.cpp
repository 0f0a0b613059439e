// rag - cuts documents into chunks, indexes them, searches them, and measures the search.
//
//   rag chunk notes.md --chunker structure --jsonl
//   rag search data/rust-errors "what does E0382 mean and how do I fix it" --identifier 'E####'
//   rag index data/rust-errors -o rust.idx --identifier 'E####'
//   rag search rust.idx "what does E0382 mean"
//   rag run rust.idx --queries queries.jsonl --by document -o bm25.run
//   rag eval bm25.run --qrels qrels.tsv
//
// The tool is a thin coat over rag_retrieve.hpp: it reads files, says what is wrong with them, and
// prints what the header returns. Results go to standard output, all else to standard error.
// Exit status: 0 done, 1 the input or the index is bad, 2 wrong usage.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <rag_retrieve.hpp>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rag_chunkers.hpp"
#include "rag_index.hpp"
#include "rag_input.hpp"

namespace rag_tool {
namespace {

// ---- rag chunk ----------------------------------------------------------------------------------

struct chunk_command {
  std::vector<std::string> files;
  chunker_settings chunking;
  bool jsonl = false;
  bool strict = false;
};

json chunk_as_json(const rag::document& page, const rag::chunk& piece,
                   const rag::identifier_finder& finder) {
  json line = {{"id", piece.id},
               {"document_id", page.id},
               {"begin", piece.range.begin},
               {"end", piece.range.end},
               {"body_begin", piece.body.begin},
               {"body_end", piece.body.end},
               {"text", std::string(rag::chunk_text(page, piece))},
               {"heading_path", piece.heading_path},
               {"token_count", piece.token_count}};
  if (!piece.parent_id.empty()) line["parent_id"] = piece.parent_id;
  if (piece.oversize) line["oversize"] = true;
  line["identifiers"] = codes_of(page, piece, finder);
  return line;
}

std::string bracketed(rag::byte_range range) {
  return "[" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")";
}

/// What lies in no chunk, such as a title whose text stands in the chunks' heading paths.
void list_gap(std::ostream& out, const rag::document& page, rag::byte_range between) {
  const rag::byte_range gap = rag::trim(page.text, between);
  if (gap.empty()) return;
  out << "---- " << bracketed(gap) << " in no chunk\n" << rag::slice(page.text, gap) << "\n\n";
}

/// One chunk of the listing: where it was cut, what it repeats, and its text.
void list_chunk(std::ostream& out, const rag::document& page, const rag::chunk& piece,
                std::size_t number, std::size_t reached, const rag::identifier_finder& finder) {
  list_gap(out, page, {reached, (std::max)(reached, piece.range.begin)});
  out << "---- " << number << "  " << piece.id << "  " << bracketed(piece.range) << "  "
      << counted(piece.token_count, "token") << (piece.oversize ? ", above the limit\n" : "\n");
  if (!piece.heading_path.empty()) {
    out << "     " << joined(piece.heading_path, " > ") << '\n';
  }
  if (const auto codes = codes_of(page, piece, finder); !codes.empty()) {
    out << "     codes: " << joined(codes, ", ") << '\n';
  }
  if (!piece.parent_id.empty()) {
    out << "     in " << piece.parent_id << '\n';
  } else if (piece.range.begin < reached) {
    const rag::byte_range repeated{piece.range.begin, (std::min)(reached, piece.range.end)};
    out << "     repeats " << bracketed(repeated) << " of the chunk before\n";
  }
  out << rag::chunk_text(page, piece) << "\n\n";
}

void list_chunks(const rag::document& page, const std::vector<rag::chunk>& chunks,
                 const rag::identifier_finder& finder) {
  std::ostringstream out;
  out << "==== " << page.id << "  " << counted(page.text.size(), "byte") << ", "
      << counted(chunks.size(), "chunk") << "\n\n";
  std::size_t reached = 0;  // every byte before it has been shown
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    list_chunk(out, page, chunks[i], i + 1, reached, finder);
    reached = (std::max)(reached, chunks[i].range.end);
  }
  list_gap(out, page, {reached, page.text.size()});
  std::cout << printable(out.view());
}

/// Files of the same name in different folders take their paths as ids.
void tell_apart(std::vector<std::pair<std::string, std::vector<rag::document>>>& sources) {
  std::map<std::string, std::size_t> uses;
  for (const auto& [path, pages] : sources) {
    for (const rag::document& page : pages) ++uses[page.id];
  }
  for (auto& [path, pages] : sources) {
    for (rag::document& page : pages) {
      if (uses[page.id] < 2) continue;
      const std::string outer = fs::path(path).generic_string();
      page.id = pages.size() == 1 && !fs::is_directory(path) ? outer : outer + "/" + page.id;
    }
  }
}

int run(const chunk_command& command) {
  check(command.chunking);
  if (std::count(command.files.begin(), command.files.end(), "-") > 1) {
    misuse("standard input (-) can be read once");
  }
  const rag::identifier_finder finder = finder_for(command.chunking);
  announce(command.chunking);
  document_reader reader(access_rules({"everyone"}), command.strict);
  std::vector<std::pair<std::string, std::vector<rag::document>>> sources;
  for (const std::string& file : command.files) {
    sources.push_back({file, reader.read(file)});
    if (sources.back().second.empty()) say_empty(file, "cut");
  }
  tell_apart(sources);
  for (const auto& [path, pages] : sources) {
    for (const rag::document& page : pages) {
      const std::vector<rag::chunk> chunks = cut(page, command.chunking);
      if (!command.jsonl) {
        list_chunks(page, chunks, finder);
        continue;
      }
      for (const rag::chunk& piece : chunks) {
        std::cout << written(chunk_as_json(page, piece, finder)) << '\n';
      }
    }
  }
  return 0;
}

// ---- rag index ----------------------------------------------------------------------------------

/// Documents, how they are cut, and who may read them.
struct source_settings {
  std::string path;
  chunker_settings chunking;
  std::string groups, access_file, embeddings;
  bool groups_given = false, access_given = false, ivf = false, strict = false;
};

/// "a,b" as a list; an empty name among them is wrong usage.
std::vector<std::string> group_list(std::string_view text, const std::string& option) {
  std::vector<std::string> groups;
  for (bool more = true; more;) {
    const std::size_t end = text.find(',');
    more = end != std::string_view::npos;
    groups.emplace_back(text.substr(0, end));
    if (groups.back().empty()) misuse(option + ": a group needs a name");
    if (more) text.remove_prefix(end + 1);
  }
  return groups;
}

/// Standard input can be read once, by one of these.
void check_standard_input(std::initializer_list<std::string_view> paths) {
  if (std::count(paths.begin(), paths.end(), "-") < 2) return;
  misuse("standard input (-) can be read once");
}

void check(const source_settings& from) {
  check(from.chunking);
  if (from.groups_given && from.access_given) {
    misuse("--groups and --access contradict each other: both say who may read the documents");
  }
  if (from.groups_given) group_list(from.groups, "--groups");
  if (from.ivf && from.embeddings.empty()) misuse("--ivf needs vectors, which --embeddings brings");
}

access_rules rules_for(const source_settings& from) {
  if (from.access_given) return access_rules::from_file(from.access_file);
  if (!from.groups_given) return access_rules({"everyone"});
  return access_rules(group_list(from.groups, "--groups"));
}

/// What an index holds, for the person who made it.
struct index_counts {
  std::size_t documents = 0, chunks = 0, vectors = 0;
};

std::vector<rag::chunked_document> cut_all(std::vector<rag::document> documents,
                                           const chunker_settings& settings) {
  std::vector<rag::chunked_document> inputs;
  progress bar("cutting", documents.size());
  for (rag::document& page : documents) {
    std::vector<rag::chunk> chunks = cut(page, settings);
    for (rag::chunk& piece : chunks) {  // a budget counts words, whatever the unit of the sizes
      piece.token_count = rag::count_words(rag::search_text(page, piece));
    }
    inputs.push_back({std::move(page), std::move(chunks)});
    bar.step();
  }
  return inputs;
}

/// Gives each searched chunk the vector of its id, or a whole document that of the document.
/// Returns how many have one.
std::size_t attach(std::vector<rag::chunked_document>& inputs, const std::string& path) {
  const vectors_by_id vectors = vectors_by_id::read(path);
  std::set<std::string> used;
  std::size_t given = 0, searched = 0;
  for (rag::chunked_document& input : inputs) {
    std::set<std::string> parents;
    for (const rag::chunk& piece : input.chunks) parents.insert(piece.parent_id);
    for (rag::chunk& piece : input.chunks) {
      std::string id = piece.id;
      if (vectors.find(id) == nullptr && input.chunks.size() == 1) id = input.source.id;
      const std::vector<float>* values = vectors.find(id);
      if (values != nullptr) used.insert(id);
      if (parents.contains(piece.id)) continue;  // a parent is not searched
      ++searched;
      if (values == nullptr) continue;
      piece.vector = rag::embedding{supplied_model, *values};
      ++given;
    }
  }
  if (given == 0) {
    fail(path + ": none of its ids is that of a chunk, or of a document that is one chunk");
  }
  if (given < searched) {
    say("rag: without an embedding, searched by words alone: " + std::to_string(searched - given) +
        " of " + counted(searched, "chunk"));
  }
  if (used.size() < vectors.size()) {
    say("rag: " + path + ": without a chunk: " + std::to_string(vectors.size() - used.size()) +
        " of " + counted(vectors.size(), "embedding"));
  }
  return given;
}

/// Documents read, cut and indexed.
std::pair<loaded_index, index_counts> indexed(const source_settings& from,
                                              const rag::access_directory& people) {
  announce(from.chunking);
  document_reader reader(rules_for(from), from.strict);
  std::vector<rag::document> documents = reader.read(from.path);
  if (documents.empty()) say_empty(from.path, "indexed");
  auto inputs = cut_all(std::move(documents), from.chunking);
  index_counts counts{.documents = inputs.size()};
  for (const rag::chunked_document& input : inputs) counts.chunks += input.chunks.size();
  if (!from.embeddings.empty()) counts.vectors = attach(inputs, from.embeddings);
  index_settings settings{from.chunking.identifiers, counts.vectors != 0, from.ivf};
  rag::retriever retriever(options_for(settings, people));
  retriever.upsert(inputs);
  return {loaded_index{std::move(settings), std::move(retriever)}, counts};
}

struct index_command {
  source_settings from;
  std::string output;
};

/// A result never takes the place of what it is made from.
void check_not_input(const std::string& output, std::initializer_list<std::string> inputs) {
  if (output == "-") misuse("-o -: a file is written, not standard output");
  for (const std::string& input : inputs) {
    std::error_code problem;
    if (fs::equivalent(output, input, problem)) misuse("-o " + output + " is also read");
  }
}

int run(const index_command& command) {
  const source_settings& from = command.from;
  check(from);
  check_standard_input({from.path, from.access_file, from.embeddings});
  check_not_input(command.output, {from.path, from.access_file, from.embeddings});
  check_output(command.output);
  const rag::access_directory nobody;
  const auto [index, counts] = indexed(from, nobody);
  const index_counts made = counts;
  write_index(command.output, index, [&] {
    std::cout << printable(command.output) << ": " << counted(made.documents, "document") << ", "
              << counted(made.chunks, "chunk") << ", " << counted(made.vectors, "vector") << '\n';
    if (!std::cout.flush()) fail("standard output cannot be written");
  });
  return 0;
}

// ---- rag search ---------------------------------------------------------------------------------

/// Who asks.
struct reader_settings {
  std::vector<std::string> groups = {};
  std::string tenant = {};

  [[nodiscard]] rag::principal who() const { return {.tenant = tenant, .user = "reader"}; }
  [[nodiscard]] std::vector<std::string> all_groups() const {
    return groups.empty() ? std::vector<std::string>{"everyone"} : groups;
  }
  void enter(rag::access_directory& people) const { people.set_groups(who(), all_groups()); }
  /// "group a", "groups a, b of tenant t"
  [[nodiscard]] std::string text() const {
    return (groups.size() > 1 ? "groups " : "group ") + joined(all_groups(), ", ") +
           (tenant.empty() ? "" : " of tenant " + tenant);
  }
};

void check(const reader_settings& reader) {
  for (const std::string& group : reader.groups) {
    if (group.empty()) misuse("--group: a group needs a name");
  }
}

struct search_command {
  source_settings from;
  std::vector<std::string> source_options;  // those given that only a SOURCE has
  std::string question, question_embedding;
  reader_settings reader;
  std::string mode;  // empty: by what there is
  std::size_t limit = 12, offset = 0, per_document = 2;
  std::optional<std::size_t> budget;
  bool explain = false, as_json = false;
};

void check(const search_command& command) {
  check(command.from);
  check(command.reader);
  check_standard_input({command.from.path, command.question, command.from.access_file,
                        command.from.embeddings, command.question_embedding});
  if (command.question_embedding.empty() && command.mode != "lexical" && !command.mode.empty()) {
    misuse("--mode " + command.mode + " needs --question-embedding");
  }
  if (is_index(command.from.path)) {
    if (command.source_options.empty()) return;
    misuse(command.source_options.front() + " belongs to a SOURCE, and " + command.from.path +
           " is an index");
  }
  if (!command.question_embedding.empty() && command.from.embeddings.empty()) {
    misuse("--question-embedding needs vectors of the documents, which --embeddings brings");
  }
}

/// The mode that runs: as asked, else hybrid where index and question have vectors.
rag::search_mode mode_for(const std::string& asked, bool question_has_vector,
                          const index_settings& settings, const std::string& path) {
  if (asked == "lexical") return rag::search_mode::lexical;
  if (!asked.empty() && !settings.vectors) {
    fail(path + ": the index has no vectors, which --mode " + asked + " needs");
  }
  if (asked == "dense") return rag::search_mode::dense;
  if (asked == "hybrid") return rag::search_mode::hybrid;
  const bool both = question_has_vector && settings.vectors;
  return both ? rag::search_mode::hybrid : rag::search_mode::lexical;
}

std::string name_of(rag::search_mode mode) {
  switch (mode) {
    case rag::search_mode::lexical:
      return "lexical";
    case rag::search_mode::dense:
      return "dense";
    case rag::search_mode::hybrid:
      return "hybrid";
    case rag::search_mode::automatic:
      break;
  }
  return "automatic";
}

std::string status_of(const rag::answer& found) {
  return found.status == rag::search_status::ok ? "ok" : joined(found.notes, "; ");
}

json passage_as_json(const rag::permitted_passage& passage, std::size_t rank) {
  json object = {{"rank", rank},
                 {"id", passage.id()},
                 {"document_id", passage.document_id()},
                 {"revision", passage.revision()},
                 {"heading_path", passage.heading_path()},
                 {"text", passage.text()},
                 {"begin", passage.range().begin},
                 {"end", passage.range().end},
                 {"score", passage.score()}};
  if (passage.lexical_rank() != 0) object["lexical_rank"] = passage.lexical_rank();
  if (passage.dense_rank() != 0) object["dense_rank"] = passage.dense_rank();
  object["exact_match"] = passage.exact_match();
  object["why"] = passage.why();
  return object;
}

/// Why a candidate was dropped, with the option that decides it.
std::string reason_of(const rag::drop& each, const search_command& command) {
  switch (each.stage) {
    case rag::drop_stage::cap:
      return "beyond " + counted(command.per_document, "candidate") +
             " per document (--per-document)";
    case rag::drop_stage::limit:
      return "after " + counted(command.limit, "passage") + " from offset " +
             std::to_string(command.offset);
    default:
      return each.reason;
  }
}

json explanation_as_json(const search_command& command, const rag::answer& found) {
  json bm25 = json::array(), rrf = json::array(), dropped = json::array();
  for (const auto& [id, explained] : found.trace.bm25) {
    json terms = json::array();
    for (const rag::term_explanation& term : explained.terms) {
      if (term.tf == 0) continue;
      terms.push_back(
          {{"term", term.term}, {"tf", term.tf}, {"idf", term.idf}, {"value", term.value}});
    }
    bm25.push_back({{"id", id}, {"score", explained.score}, {"terms", std::move(terms)}});
  }
  if (found.mode == rag::search_mode::hybrid) {
    for (const rag::candidate_trace& each : found.trace.candidates) {
      rrf.push_back({{"id", each.id},
                     {"lexical_rank", each.lexical_rank},
                     {"dense_rank", each.dense_rank},
                     {"score", each.fused_score}});
    }
  }
  for (const rag::drop& each : found.trace.dropped) {
    dropped.push_back({{"id", each.id},
                       {"stage", std::string(rag::name_of(each.stage))},
                       {"reason", reason_of(each, command)}});
  }
  return {{"bm25", std::move(bm25)}, {"rrf", std::move(rrf)}, {"dropped", std::move(dropped)}};
}

void print_json(const search_command& command, const rag::answer& found) {
  const rag::stage_timings& took = found.timings;
  json object = {{"question", command.question},
                 {"mode", name_of(found.mode)},
                 {"status", status_of(found)},
                 {"timings_ms",
                  {{"lexical", took.lexical},
                   {"dense", took.dense},
                   {"fusion", took.fusion},
                   {"recheck", took.recheck},
                   {"rerank", took.rerank},
                   {"selection", took.selection},
                   {"total", took.total}}},
                 {"passages", json::array()}};
  for (std::size_t i = 0; i < found.passages.size(); ++i) {
    object["passages"].push_back(passage_as_json(found.passages[i], command.offset + i + 1));
  }
  if (command.explain) object["explain"] = explanation_as_json(command, found);
  std::cout << written(object) << '\n';
}

void print_passage(std::ostream& out, const rag::permitted_passage& passage, std::size_t rank) {
  std::vector<std::string> titles = passage.heading_path();
  if (!passage.title().empty() && (titles.empty() || titles.front() != passage.title())) {
    titles.insert(titles.begin(), passage.title());
  }
  out << '[' << rank << "] " << passage.id() << '\n';
  if (!titles.empty()) out << "    " << joined(titles, " > ") << '\n';
  out << "    score " << rounded(passage.score()) << "; " << passage.why() << "\n\n"
      << passage.text() << "\n\n";
}

/// Each term's numbers for the passages that are shown, and what became of the other candidates.
void print_explanation(std::ostream& out, const search_command& command, const rag::answer& found) {
  out << "BM25: what each term of the question adds\n";
  for (const auto& [id, explained] : found.trace.bm25) {
    const bool shown =
        std::any_of(found.passages.begin(), found.passages.end(),
                    [&wanted = id](const auto& passage) { return passage.id() == wanted; });
    if (!shown) continue;
    out << "  " << id << "  " << rounded(explained.score) << ", "
        << counted(explained.length, "term") << ", on average " << rounded(explained.average_length)
        << '\n';
    for (const rag::term_explanation& term : explained.terms) {
      if (term.tf == 0) continue;
      out << "    " << term.term << ": " << term.tf << " here, in " << term.n << " of "
          << counted(explained.chunk_count, "chunk") << ", idf " << rounded(term.idf) << ", adds "
          << rounded(term.value) << '\n';
    }
  }
  if (found.mode == rag::search_mode::hybrid) {
    out << "Sums of 1 / (" << rounded(found.trace.fusion_constant) << " + rank)\n";
    for (const rag::candidate_trace& each : found.trace.candidates) {
      out << "  " << each.id << "  lexical " << each.lexical_rank << ", dense " << each.dense_rank
          << ", sum " << rounded(each.fused_score) << '\n';
    }
  }
  out << (found.trace.dropped.empty() ? "Nothing was dropped\n" : "Dropped\n");
  std::size_t beyond = 0;
  for (const rag::drop& each : found.trace.dropped) {
    if (each.stage == rag::drop_stage::limit && ++beyond > 5) continue;
    out << "  " << each.id << "  " << rag::name_of(each.stage) << ": " << reason_of(each, command)
        << '\n';
  }
  if (beyond > 5) out << "  ... and " << beyond - 5 << " more beyond the limit\n";
}

/// A question from the command line or standard input, without the line's end.
std::string question_of(const search_command& command) {
  if (command.question != "-") return command.question;
  std::string text = read_file("-");
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  return text;
}

void print_text(const search_command& command, const rag::answer& found) {
  std::ostringstream out;
  for (std::size_t i = 0; i < found.passages.size(); ++i) {
    print_passage(out, found.passages[i], command.offset + i + 1);
  }
  if (command.explain) print_explanation(out, command, found);
  std::cout << printable(out.view());
}

/// Why nothing was found, and what to try. It speaks of what the reader may read alone.
std::string why_nothing(const search_command& command, const rag::retriever& retriever,
                        rag::query asked) {
  const rag::scope reader = retriever.scope_for(command.reader.who());
  const std::size_t readable = retriever.count(reader);
  if (readable == 0) {
    return "nothing is indexed that " + command.reader.text() +
           " may read; --group and --tenant name another reader";
  }
  asked.explain = true;
  const rag::answer found = retriever.search(asked, reader);
  for (const rag::drop& each : found.trace.dropped) {
    if (each.stage != rag::drop_stage::budget) continue;
    return each.id + " " + each.reason + "; try a larger --budget";
  }
  if (!found.trace.candidates.empty()) {
    return "no passage stands behind --offset " + std::to_string(command.offset);
  }
  if (!found.notes.empty()) return joined(found.notes, "; ");
  return "in " + counted(readable, "chunk") + " that " + command.reader.text() +
         " may read there is " +
         (asked.mode == rag::search_mode::dense ? "no vector"
                                                : "no word of the question; try other words");
}

int run(search_command command) {
  check(command);
  command.question = question_of(command);
  rag::access_directory people;
  command.reader.enter(people);
  const std::string& path = command.from.path;
  bool empty = false;  // and said to be
  const auto open = [&]() -> loaded_index {
    if (is_index(path)) return read_index(path, people);
    auto [index, counts] = indexed(command.from, people);
    empty = counts.documents == 0;
    return std::move(index);
  };
  const loaded_index index = open();
  rag::query asked{.text = command.question,
                   .limit = command.limit,
                   .offset = command.offset,
                   .per_document = command.per_document,
                   .token_budget = command.budget,
                   .explain = command.explain};
  const bool has_vector = !command.question_embedding.empty();
  asked.mode = mode_for(command.mode, has_vector, index.settings, path);
  if (has_vector) {
    rag::embedding vector = question_vector(command.question_embedding);
    if (asked.mode != rag::search_mode::lexical) asked.vector = std::move(vector);
  }
  const rag::answer found =
      index.retriever.search(asked, index.retriever.scope_for(command.reader.who()));
  command.as_json ? print_json(command, found) : print_text(command, found);
  if (found.passages.empty() && !empty) {
    say("rag: nothing found: " + why_nothing(command, index.retriever, asked));
  }
  return 0;
}

// ---- rag run ------------------------------------------------------------------------------------

/// Many questions to one index.
struct batch_settings {
  std::string queries, embeddings, mode, by;
  std::size_t depth = 100;
  reader_settings reader;
};

void check(const batch_settings& batch) {
  check(batch.reader);
  if (batch.embeddings.empty() && batch.mode != "lexical" && !batch.mode.empty()) {
    misuse("--mode " + batch.mode + " needs --embeddings of the queries");
  }
}

struct given_query {
  std::string id, text, kind;
  std::optional<rag::embedding> vector = {};
};

/// JSON lines {"id", "text", "kind"?}. Any bad line is fatal.
std::vector<given_query> read_queries(const std::string& path) {
  std::vector<given_query> queries;
  std::set<std::string> ids;
  const std::string text = read_file(path);
  for_each_line(text, [&](std::string_view line, std::size_t number) {
    try {
      const json object = parse_object(line);
      given_query query{required_text(object, "id"), required_text(object, "text"),
                        text_member(object, "kind").value_or("")};
      if (query.id.empty()) throw bad_line{"\"id\" is empty"};
      if (!ids.insert(query.id).second) {
        throw bad_line{"id " + written(json(query.id)) + " stands in an earlier line"};
      }
      queries.push_back(std::move(query));
    } catch (const bad_line& problem) {
      throw failure{1, at_line(path, number, problem.message)};
    }
  });
  if (queries.empty()) fail(path + ": holds no queries");
  return queries;
}

void add_vectors(std::vector<given_query>& queries, const std::string& path) {
  const vectors_by_id vectors = vectors_by_id::read(path);
  for (given_query& query : queries) {
    const std::vector<float>* values = vectors.find(query.id);
    if (values == nullptr) fail(path + ": no embedding for query " + written(json(query.id)));
    query.vector = rag::embedding{supplied_model, *values};
  }
}

/// An index with the questions to it.
class batch {
 public:
  batch(const std::string& path, batch_settings settings)
      : settings_(std::move(settings)), queries_(read_queries(settings_.queries)) {
    if (!settings_.embeddings.empty()) add_vectors(queries_, settings_.embeddings);
    settings_.reader.enter(people_);
    index_.emplace(read_index(path, people_));
    mode_ = mode_for(settings_.mode, !settings_.embeddings.empty(), index_->settings, path);
  }

  [[nodiscard]] const std::vector<given_query>& queries() const { return queries_; }

  /// All candidates: no cap, no repeats left out, no parents.
  [[nodiscard]] rag::ranked_list candidates(const given_query& query) const {
    const std::size_t most = (std::numeric_limits<std::size_t>::max)();
    const std::size_t depth = settings_.depth;
    const rag::answer found = search(query, {.limit = most / 2 < depth ? most : 2 * depth,
                                             .depth = depth,
                                             .per_document = most,
                                             .overlap_threshold = {},
                                             .collapse_parents = false});
    rag::ranked_list list{.question = query.id};
    std::set<std::string> seen;
    for (const rag::permitted_passage& passage : found.passages) {
      if (list.ids.size() == depth) break;
      if (!seen.insert(name_of(passage)).second) continue;
      list.ids.push_back(name_of(passage));
      list.scores.push_back(passage.score());
    }
    return list;
  }

  /// What a reader is handed out.
  [[nodiscard]] rag::answer search(const given_query& query, rag::query asked) const {
    asked.text = query.text;
    asked.mode = mode_;
    if (mode_ != rag::search_mode::lexical) asked.vector = query.vector;
    const rag::retriever& retriever = index_->retriever;
    auto found = retriever.try_search(asked, retriever.scope_for(settings_.reader.who()));
    if (!found) {
      fail(settings_.queries + ": query " + written(json(query.id)) + ": " +
           found.failure().message());
    }
    return std::move(*found);
  }

  /// The id by which a passage stands in lists.
  [[nodiscard]] const std::string& name_of(const rag::permitted_passage& passage) const {
    return settings_.by == "document" ? passage.document_id() : passage.id();
  }

 private:
  batch_settings settings_;
  std::vector<given_query> queries_;
  rag::access_directory people_;
  std::optional<loaded_index> index_;
  rag::search_mode mode_ = rag::search_mode::lexical;
};

struct run_command {
  std::string index, output;
  batch_settings asked;
};

int run(const run_command& command) {
  check(command.asked);
  check_standard_input({command.index, command.asked.queries, command.asked.embeddings});
  check_not_input(command.output, {command.index, command.asked.queries, command.asked.embeddings});
  check_output(command.output);
  const batch questions(command.index, command.asked);
  std::vector<rag::ranked_list> lists;
  progress bar("searching", questions.queries().size());
  for (const given_query& query : questions.queries()) {
    lists.push_back(questions.candidates(query));
    bar.step();
  }
  write_file(command.output, rag::write_run(lists, "rag"));
  return 0;
}

// ---- rag eval -----------------------------------------------------------------------------------

struct eval_command {
  std::string path, qrels;
  std::vector<std::string> index_options;  // those given that only an INDEX has
  batch_settings asked;
  std::optional<std::size_t> budget;
  std::size_t k = 10;
  bool as_json = false;
};

void check(const eval_command& command, bool saved) {
  check(command.asked);
  check_standard_input(
      {command.path, command.qrels, command.asked.queries, command.asked.embeddings});
  if (saved && command.asked.queries.empty()) misuse("eval INDEX needs --queries");
  if (!saved && !command.index_options.empty()) {
    misuse(command.index_options.front() + " belongs to an index, and " + command.path +
           " is none");
  }
}

/// What reads a file of judgements or ranks says, as FILE:LINE: ...
[[noreturn]] void fail_in(const std::string& path, const std::string& message) {
  const std::size_t begin = message.find(": line ");
  if (begin == std::string::npos) fail(path + ": " + message);
  throw failure{1, path + ":" + message.substr(begin + 7)};
}

/// The judgements, with the kinds that the queries carry.
std::vector<rag::judged_question> judged(const std::string& path,
                                         const std::vector<given_query>& queries) {
  auto questions = rag::try_read_qrels(read_file(path));
  if (!questions) fail_in(path, questions.failure().message());
  if (questions->empty()) fail(path + ": holds no judgements");
  std::map<std::string, std::string> kinds;
  for (const given_query& query : queries) kinds[query.id] = query.kind;
  for (rag::judged_question& question : *questions) {
    const auto found = kinds.find(question.id);
    if (found == kinds.end()) continue;
    question.kind = found->second;
    kinds.erase(found);
  }
  for (const auto& [id, kind] : kinds) {  // nothing is relevant to them: there is no line
    if (kind == rag::unanswerable_kind) questions->push_back({.id = id, .kind = kind});
  }
  return std::move(*questions);
}

using stage_samples = std::map<std::string, std::vector<double>>;

void add_times(stage_samples& samples, const rag::stage_timings& took) {
  samples["lexical"].push_back(took.lexical);
  samples["dense"].push_back(took.dense);
  samples["fusion"].push_back(took.fusion);
  samples["recheck"].push_back(took.recheck);
  samples["selection"].push_back(took.selection);
  samples["total"].push_back(took.total);
}

/// The candidates of each query, what a reader is sent of them, and how long that took.
std::vector<rag::ranked_list> searched(const batch& questions, std::optional<std::size_t> budget,
                                       stage_samples& samples) {
  std::vector<rag::ranked_list> lists;
  progress bar("searching", questions.queries().size());
  for (const given_query& query : questions.queries()) {
    rag::ranked_list list = questions.candidates(query);
    const rag::answer found = questions.search(query, {.token_budget = budget});
    list.sent.emplace();
    for (const rag::permitted_passage& passage : found.passages) {
      list.sent->push_back(questions.name_of(passage));
    }
    add_times(samples, found.timings);
    lists.push_back(std::move(list));
    bar.step();
  }
  return lists;
}

json means_as_json(const rag::measure_means& means, std::size_t k) {
  json object = {{"queries", means.questions},
                 {"k", k},
                 {"ndcg", means[rag::measure::ndcg].value},
                 {"map", means[rag::measure::average_precision].value},
                 {"precision", means[rag::measure::precision].value},
                 {"mrr", means[rag::measure::reciprocal_rank].value},
                 {"recall", means[rag::measure::recall].value},
                 {"first_required", means[rag::measure::first_required].value},
                 {"all_required", means[rag::measure::all_required].value},
                 {"unjudged", means[rag::measure::unjudged].value}};
  const rag::mean_value& sent = means[rag::measure::budget_recall];
  if (sent.n != 0) object["budget_recall"] = sent.value;
  return object;
}

void print_json(const rag::evaluation& found, const stage_samples& samples) {
  json object = means_as_json(found.overall, found.k);
  object["by_kind"] = json::object();
  for (const auto& [kind, means] : found.by_kind) {
    if (!kind.empty()) object["by_kind"][kind] = means_as_json(means, found.k);
  }
  if (found.unanswerable.questions != 0) {
    object["unanswerable"] = {{"queries", found.unanswerable.questions},
                              {"returned", found.unanswerable.returned}};
  }
  json ranks = json::object();
  for (const rag::question_measures& each : found.questions) {
    if (each[rag::measure::first_required]) ranks[each.id] = each.first_required_rank;
  }
  object["first_required_rank"] = std::move(ranks);
  for (const auto& [stage, times] : samples) {
    object["timings_ms"][stage] = {{"p50", rag::percentile(times, 0.5).value},
                                   {"p95", rag::percentile(times, 0.95).value}};
  }
  std::cout << written(object) << '\n';
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.insert(0, width - text.size(), ' ');
  return text;
}

std::string four_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", value);
  return text;
}

void print_means(std::ostream& out, const std::string& name, const rag::measure_means& means) {
  out << name << std::string(name.size() < 20 ? 20 - name.size() : 1, ' ')
      << padded(std::to_string(means.questions), 7);
  for (const rag::measure which :
       {rag::measure::ndcg, rag::measure::precision, rag::measure::average_precision,
        rag::measure::reciprocal_rank, rag::measure::recall, rag::measure::first_required,
        rag::measure::budget_recall}) {
    const rag::mean_value& mean = means[which];
    out << padded(mean.n == 0 ? "-" : four_digits(mean.value), 12);
  }
  out << '\n';
}

void print_text(const rag::evaluation& found, const stage_samples& samples) {
  const std::string k = "@" + std::to_string(found.k);
  std::ostringstream out;
  out << std::string(20, ' ') << "queries";
  for (const std::string& name : {"nDCG" + k, "P" + k, std::string("MAP"), std::string("MRR"),
                                  "recall" + k, std::string("1/required"), std::string("sent")}) {
    out << padded(name, 12);
  }
  out << '\n';
  print_means(out, "all", found.overall);
  for (const auto& [kind, means] : found.by_kind) {
    if (!kind.empty()) print_means(out, kind, means);
  }
  out << "1/required: mean of 1 / rank of the first required passage; sent: recall of what a "
         "search hands out\n";
  if (found.unanswerable.questions != 0) {
    out << "unanswerable: " << found.unanswerable.returned << " of " << found.unanswerable.questions
        << " returned something\n";
  }
  for (const auto& [stage, times] : samples) {
    out << stage << ": p50 " << rounded(rag::percentile(times, 0.5).value) << " ms, p95 "
        << rounded(rag::percentile(times, 0.95).value) << " ms\n";
  }
  std::cout << printable(out.view());
}

int run(eval_command command) {
  const bool saved = is_index(command.path);
  check(command, saved);
  stage_samples samples;
  std::vector<given_query> queries;
  std::vector<rag::ranked_list> lists;
  if (command.asked.by.empty()) command.asked.by = "document";
  if (saved) {
    const batch questions(command.path, command.asked);
    queries = questions.queries();
    lists = searched(questions, command.budget, samples);
  } else {
    auto read = rag::try_read_run(read_file(command.path));
    if (!read) fail_in(command.path, read.failure().message());
    lists = std::move(*read);
    if (!command.asked.queries.empty()) queries = read_queries(command.asked.queries);
  }
  const rag::evaluation found =
      rag::evaluate(judged(command.qrels, queries), lists, {.k = command.k});
  if (found.overall.questions == 0) {
    say("rag: no query has a relevant judgement");
  } else if (!found.unjudged_questions.empty()) {
    say("rag: left out, with results and no relevant judgement: " +
        counted(found.unjudged_questions.size(), "query", "queries"));
  }
  command.as_json ? print_json(found, samples) : print_text(found, samples);
  return 0;
}

// ---- The command line ---------------------------------------------------------------------------

/// Refuses 0 and what is no number, in words that fit a count.
CLI::Validator at_least_one() {
  const auto verdict = [](const std::string& text) {
    const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
    const bool positive = digits && text.find_first_not_of('0') != std::string::npos;
    return positive ? std::string() : "a whole number from 1 was expected, not '" + text + "'";
  };
  return CLI::Validator(verdict, "> 0");
}

void add_semantic_options(CLI::App& app, chunker_settings& settings) {
  const auto given = [&settings](const std::string&) { settings.semantic_given = true; };
  app.add_option("--window", settings.window, "semantic: sentences on either side of each")
      ->capture_default_str()
      ->each(given);
  app.add_option("--threshold-kind", settings.threshold_kind, "semantic: what a distance must pass")
      ->check(CLI::IsMember(
          {"absolute", "percentile", "standard-deviation", "interquartile", "gradient"}))
      ->capture_default_str()
      ->each(given);
  app.add_option("--threshold", settings.threshold,
                 "semantic: by its kind, usually 0.35, 95, 3, 1.5 or 95; lower cuts more")
      ->each(given);
}

void add_family_options(CLI::App& app, chunker_settings& settings) {
  const auto given = [&settings](const std::string&) { settings.family_given = true; };
  app.add_option("--parent-size", settings.parent_size, "parent-child: what is handed out")
      ->check(at_least_one())
      ->capture_default_str()
      ->each(given);
  app.add_option("--child-size", settings.child_size, "parent-child: what is searched")
      ->check(at_least_one())
      ->capture_default_str()
      ->each(given);
}

void add_chunker_options(CLI::App& app, chunker_settings& settings) {
  app.add_option("--chunker", settings.chunker, "how documents are cut")
      ->check(CLI::IsMember({"whole", "fixed", "sentence", "packed", "structure", "recursive",
                             "semantic", "parent-child"}))
      ->capture_default_str();
  app.add_option("--chunk-size", settings.chunk_size,
                 "no chunk is larger (whole: as large as the document)")
      ->check(at_least_one())
      ->capture_default_str()
      ->each([&settings](const std::string&) { settings.size_given = true; });
  app.add_option("--overlap", settings.overlap, "what a chunk repeats of the one before it")
      ->capture_default_str();
  app.add_option("--unit", settings.unit, "what sizes and overlap count")
      ->check(CLI::IsMember({"word", "code-point", "byte"}))
      ->capture_default_str();
  app.add_option("--max-heading-level", settings.max_heading_level,
                 "headings below this level do not begin a chunk")
      ->check(CLI::Range(1, 6))
      ->capture_default_str()
      ->each([&settings](const std::string&) { settings.heading_level_given = true; });
  app.add_option("--identifier", settings.identifiers,
                 "format of codes, may be repeated: # a digit, @ a letter, * letters, digits or "
                 "underscores, + repeats, [x] optional, (a|b) either, \\ the next as itself")
      ->type_name("PATTERN")
      ->allow_extra_args(false);
  add_semantic_options(app, settings);
  add_family_options(app, settings);
}

CLI::App* add_chunk(CLI::App& app, chunk_command& command) {
  CLI::App* sub = app.add_subcommand("chunk", "Shows where documents are cut");
  sub->add_option("files", command.files, "files, folders, docs.jsonl; - is standard input")
      ->required()
      ->type_name("FILE");
  add_chunker_options(*sub, command.chunking);
  sub->add_flag("--jsonl", command.jsonl, "one JSON object a line");
  sub->add_flag("--strict", command.strict, "bad input ends the program");
  return sub;
}

/// The options of everything that cuts and indexes documents.
void add_source_options(CLI::App& sub, source_settings& from) {
  add_chunker_options(sub, from.chunking);
  sub.add_option("--groups", from.groups, "a,b: who may read the documents (default: everyone)")
      ->type_name("GROUPS")
      ->each([&from](const std::string&) { from.groups_given = true; });
  sub.add_option("--access", from.access_file,
                 "JSON lines {\"id\" or \"prefix\", \"tenant\"?, \"allowed_groups\"}")
      ->type_name("FILE")
      ->each([&from](const std::string&) { from.access_given = true; });
  sub.add_option("--embeddings", from.embeddings,
                 "vectors of chunks, or of documents that are one chunk: JSON lines "
                 "{\"id\",\"embedding\"}, or float32 rows in X.f32 and their ids in X.ids")
      ->type_name("FILE");
  sub.add_flag("--ivf", from.ivf, "search vectors in lists of neighbours, not all of them");
  sub.add_flag("--strict", from.strict, "bad input ends the program");
}

void add_reader_options(CLI::App& sub, reader_settings& reader) {
  sub.add_option("--group", reader.groups,
                 "a group of the reader, may be repeated (default: everyone)")
      ->allow_extra_args(false);
  sub.add_option("--tenant", reader.tenant, "the reader's tenant");
}

void add_mode(CLI::App& sub, std::string& mode) {
  sub.add_option("--mode", mode, "default: hybrid where index and question have vectors")
      ->check(CLI::IsMember({"lexical", "dense", "hybrid"}));
}

/// Those of the options that were given.
std::vector<std::string> given_of(const CLI::App& sub, std::initializer_list<const char*> names) {
  std::vector<std::string> given;
  for (const char* name : names) {
    if (sub.get_option(name)->count() != 0) given.emplace_back(name);
  }
  return given;
}

constexpr const char* source_help =
    "a folder of .md, .markdown and .txt, a file, docs.jsonl; - is standard input";

CLI::App* add_index(CLI::App& app, index_command& command) {
  CLI::App* sub = app.add_subcommand("index", "Writes documents into one file, ready to search");
  sub->add_option("source", command.from.path, source_help)->required()->type_name("SOURCE");
  sub->add_option("-o,--output", command.output, "the file")->required()->type_name("INDEX");
  add_source_options(*sub, command.from);
  return sub;
}

CLI::App* add_search(CLI::App& app, search_command& command) {
  CLI::App* sub = app.add_subcommand("search", "Finds the passages that answer a question");
  sub->add_option("source", command.from.path, std::string("an index, or ") + source_help)
      ->required()
      ->type_name("INDEX|SOURCE");
  sub->add_option("question", command.question, "the question; - is standard input")
      ->required()
      ->type_name("QUESTION");
  add_reader_options(*sub, command.reader);
  sub->add_option("--limit", command.limit, "passages wanted")
      ->check(at_least_one())
      ->capture_default_str();
  sub->add_option("--offset", command.offset, "passages to skip")->capture_default_str();
  add_mode(*sub, command.mode);
  sub->add_option("--question-embedding", command.question_embedding,
                  "a JSON array, an object with \"embedding\", or a .f32 file of one row")
      ->type_name("FILE");
  sub->add_option("--per-document", command.per_document, "passages of one document at most")
      ->check(at_least_one())
      ->capture_default_str();
  sub->add_option("--budget", command.budget, "words of all passages together, headings included")
      ->check(at_least_one());
  sub->add_flag("--explain", command.explain, "each term's numbers, and what was dropped and why");
  sub->add_flag("--json", command.as_json, "one JSON object");
  add_source_options(*sub, command.from);
  return sub;
}

void add_batch_options(CLI::App& sub, batch_settings& asked) {
  add_reader_options(sub, asked.reader);
  add_mode(sub, asked.mode);
  sub.add_option("--queries", asked.queries, "JSON lines {\"id\", \"text\", \"kind\"?}")
      ->type_name("FILE");
  sub.add_option("--embeddings", asked.embeddings,
                 "vectors of the queries: JSON lines {\"id\",\"embedding\"}, or X.f32 and X.ids")
      ->type_name("FILE");
  sub.add_option("--depth", asked.depth, "candidates of each leg, and of the list")
      ->check(at_least_one())
      ->capture_default_str();
  sub.add_option("--by", asked.by, "what the list names; each document once, at its best chunk")
      ->check(CLI::IsMember({"chunk", "document"}));
}

CLI::App* add_run(CLI::App& app, run_command& command) {
  CLI::App* sub = app.add_subcommand("run", "Writes the candidates of many queries as a TREC run");
  command.asked.by = "chunk";
  sub->add_option("index", command.index, "what rag index wrote")->required()->type_name("INDEX");
  add_batch_options(*sub, command.asked);
  sub->get_option("--queries")->required();
  sub->get_option("--by")->capture_default_str();
  sub->add_option("-o,--output", command.output, "the file")->required()->type_name("RUN");
  return sub;
}

CLI::App* add_eval(CLI::App& app, eval_command& command) {
  CLI::App* sub = app.add_subcommand("eval", "Measures a run, or an index, against judgements");
  sub->add_option("path", command.path, "an index, with --queries, or a TREC run")
      ->required()
      ->type_name("INDEX|RUN");
  sub->add_option("--qrels", command.qrels, "query<TAB>doc<TAB>relevance, or TREC's four fields")
      ->required()
      ->type_name("FILE");
  add_batch_options(*sub, command.asked);
  sub->get_option("--by")->default_str("document");
  sub->add_option("--budget", command.budget, "words of what a search hands out")
      ->check(at_least_one());
  sub->add_option("--k", command.k, "places that nDCG, P and recall look at")
      ->check(at_least_one())
      ->capture_default_str();
  sub->add_flag("--json", command.as_json, "one JSON object");
  return sub;
}

void check_command_word(std::string_view word) {
  constexpr std::string_view known[] = {"chunk", "index", "search", "run", "eval"};
  if (word.empty() || word.starts_with('-')) return;
  if (std::find(std::begin(known), std::end(known), word) != std::end(known)) return;
  misuse("there is no command '" + std::string(word) +
         "'; there are chunk, index, search, run and eval");
}

int run(int argc, char** argv) {
  check_command_word(argc > 1 ? argv[1] : "");
  CLI::App app("Cuts documents into chunks, indexes them, searches them, measures.", "rag");
  app.set_version_flag("--version", std::string("rag ") + RAG_RETRIEVE_VERSION);
  app.require_subcommand(1);
  chunk_command chunk;
  index_command index;
  search_command search;
  run_command batch_run;
  eval_command eval;
  const CLI::App* chunk_app = add_chunk(app, chunk);
  const CLI::App* index_app = add_index(app, index);
  const CLI::App* search_app = add_search(app, search);
  const CLI::App* run_app = add_run(app, batch_run);
  const CLI::App* eval_app = add_eval(app, eval);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {  // --help and --version
    return app.exit(help);
  } catch (const CLI::ParseError& problem) {
    misuse(std::string(problem.what()) + " (--help says what is possible)");
  }
  search.source_options = given_of(
      *search_app, {"--chunker", "--chunk-size", "--overlap", "--unit", "--max-heading-level",
                    "--identifier", "--window", "--threshold-kind", "--threshold", "--parent-size",
                    "--child-size", "--groups", "--access", "--embeddings", "--ivf", "--strict"});
  eval.index_options = given_of(
      *eval_app, {"--mode", "--embeddings", "--depth", "--by", "--group", "--tenant", "--budget"});
  if (chunk_app->parsed()) return run(chunk);
  if (index_app->parsed()) return run(index);
  if (run_app->parsed()) return run(batch_run);
  return eval_app->parsed() ? run(std::move(eval)) : run(std::move(search));
}

}  // namespace
}  // namespace rag_tool

int main(int argc, char** argv) {
  using namespace rag_tool;
  std::ios::sync_with_stdio(false);
  try {
    const int status = run(argc, argv);
    if (!std::cout.flush()) fail("standard output cannot be written");
    return status;
  } catch (const failure& problem) {
    say(problem.message);
    return problem.status;
  } catch (const std::exception& problem) {  // rag::error, files that cannot be read
    say(std::string("rag: ") + problem.what());
    return 1;
  }
}
