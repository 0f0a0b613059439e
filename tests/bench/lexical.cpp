// Lexical search measured: our index, SQLite FTS5 and Xapian over the same tokens. lexical.py
// builds and runs it, beside the prototype where that is at hand, and prints the table.
//
//   lexical ENGINE TOKENS QUERIES [--long QUERIES] [--raw CORPUS] [--passes N]
//
// ENGINE   ours, fts5 (with BENCH_FTS5) or xapian (with BENCH_XAPIAN)
// TOKENS   a passage a line: id, tab, lower-case words with a space between
// prints   a measure a line: name, tab, value. Times are processor time of this thread, medians
// over
//          passes, in microseconds a query

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <rag_retrieve.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#ifdef BENCH_FTS5
#include <sqlite3.h>
#endif
#ifdef BENCH_XAPIAN
#include <xapian.h>
#endif

namespace rag = rag_retrieve;

namespace {

using strings = std::vector<std::string>;

double seconds() {
#ifdef CLOCK_THREAD_CPUTIME_ID
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
#else
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
#endif
}

strings lines_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  strings lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// What stands behind the tab.
strings texts_of(const std::string& path) {
  strings lines = lines_of(path);
  for (std::string& line : lines) line.erase(0, line.find('\t') + 1);
  return lines;
}

strings words_of(const std::string& text) {
  strings words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = (std::min)(text.find(' ', at), text.size());
    if (end > at) words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

void report(const std::string& name, double value) {
  std::printf("%s\t%.4f\n", name.c_str(), value);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::size_t found = 0;  // so that no search is optimised away

/// Reports the mean of whole passes, and the 95th percentile of the queries' own medians.
void measure(const std::string& name, std::size_t queries, int passes,
             const std::function<std::size_t(std::size_t)>& run) {
  for (std::size_t q = 0; q < queries && passes > 1; ++q) found += run(q);
  std::vector<double> whole;
  std::vector<std::vector<double>> single(queries);
  for (int pass = 0; pass < passes; ++pass) {
    const double begin = seconds();
    for (std::size_t q = 0; q < queries; ++q) found += run(q);
    whole.push_back((seconds() - begin) * 1e6 / static_cast<double>(queries));
    for (std::size_t q = 0; q < queries && passes > 1; ++q) {
      const double start = seconds();
      found += run(q);
      single[q].push_back((seconds() - start) * 1e6);
    }
  }
  report(name, median(whole));
  if (passes < 2) return;
  std::vector<double> each;
  for (auto& times : single) each.push_back(median(times));
  std::sort(each.begin(), each.end());
  report(name + " p95", each[each.size() * 95 / 100]);
}

struct arguments {
  std::string engine, tokens, queries, long_queries, raw;
  int passes = 3;
};

// ---- ours ---------------------------------------------------------------------------------------

/// One index or several, with the statistics of all rows.
struct collection {
  std::vector<rag::term_index> parts;
  std::vector<rag::row_set> among;

  [[nodiscard]] rag::term_statistics count(const strings& terms) const {
    rag::term_statistics sum;
    sum.chunks_with.assign(terms.size(), 0);
    for (const rag::term_index& part : parts) {
      const auto own = part.statistics(terms, rag::row_set::all(part.size()));
      sum.corpus.chunk_count += own.corpus.chunk_count;
      sum.corpus.total_length += own.corpus.total_length;
      for (std::size_t i = 0; i < terms.size(); ++i) sum.chunks_with[i] += own.chunks_with[i];
    }
    return sum;
  }

  [[nodiscard]] std::vector<rag::lexical_hit> search(const strings& terms, std::size_t k,
                                                     const rag::term_statistics& counted) const {
    std::vector<rag::term_index::index_part> searched;
    std::uint32_t first = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      searched.push_back({&parts[i], &among[i], first});
      first += static_cast<std::uint32_t>(parts[i].size());
    }
    return rag::term_index::best_of(searched, terms, k, counted, std::less<>());
  }
};

collection build(const strings& texts, std::size_t count) {
  collection made;
  for (std::size_t part = 0; part < count; ++part) {
    rag::term_index_builder builder;
    for (std::size_t i = part; i < texts.size(); i += count) builder.add(words_of(texts[i]));
    made.parts.push_back(builder.build());
    made.among.push_back(rag::row_set::all(made.parts.back().size()));
  }
  return made;
}

struct question {
  strings terms;
  rag::term_statistics counted;
};

std::vector<question> questions_of(const std::string& path, const collection& of) {
  std::vector<question> questions;
  for (const std::string& line : lines_of(path)) {
    const strings terms = rag::question_terms(line);
    questions.push_back({terms, of.count(terms)});
  }
  return questions;
}

/// Lists that differ from exhaustive scoring, over every tenth question.
std::size_t differences(const collection& of, const std::vector<question>& questions) {
  std::size_t different = 0;
  for (std::size_t q = 0; q < questions.size(); q += 10) {
    const auto& [terms, counted] = questions[q];
    auto all = of.parts[0].score_all(terms, counted, of.among[0]);
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return a.units != b.units ? a.units > b.units : a.row < b.row;
    });
    for (const std::size_t k : {1U, 10U, 100U, 1000U}) {
      const auto best = of.search(terms, k, counted);
      const std::size_t size = (std::min)(k, all.size());
      if (best.size() != size || !std::equal(best.begin(), best.end(), all.begin())) ++different;
    }
  }
  return different;
}

void run_ours(const arguments& given) {
  const strings texts = texts_of(given.tokens);
  double bytes = 0;
  for (const std::string& text : texts) bytes += static_cast<double>(text.size());
  const double begin = seconds();
  collection one = build(texts, 1);
  report("build MB/s, tokens", bytes / 1e6 / (seconds() - begin));
  std::size_t postings = 0;
  one.parts[0].for_each_list([&](auto, auto list) { postings += list.size(); });
  report("bytes a posting",
         static_cast<double>(one.parts[0].bytes()) / static_cast<double>(postings));

  const auto questions = questions_of(given.queries, one);
  const auto measure_all = [&](const std::string& name, const collection& of,
                               const std::vector<question>& asked) {
    for (const std::size_t k : {std::size_t{10}, std::size_t{100}}) {
      measure("top " + std::to_string(k) + name, asked.size(), given.passes,
              [&](std::size_t q) { return of.search(asked[q].terms, k, asked[q].counted).size(); });
    }
  };
  measure_all("", one, questions);
  double different = static_cast<double>(differences(one, questions));
  if (given.long_queries.empty()) return;
  measure_all(", 40 words", one, questions_of(given.long_queries, one));
  for (const unsigned share : {1000U, 500U, 100U, 10U, 1U}) {
    rag::row_set some(texts.size());
    for (std::uint32_t row = 0; row < texts.size(); ++row) {
      if ((row * 2654435761U >> 8) % 1000 < share) some.insert(row);
    }
    one.among[0] = some;
    measure_all(", filter " + std::to_string(share) + "/1000", one, questions);
    different += static_cast<double>(differences(one, questions));
  }
  report("differing lists", different);
  const collection ten = build(texts, 10);
  measure_all(", ten segments", ten, questions);
  if (given.raw.empty()) return;
  const strings raw = texts_of(given.raw);
  bytes = 0;
  for (const std::string& text : raw) bytes += static_cast<double>(text.size());
  const double start = seconds();
  rag::term_index_builder builder;
  for (const std::string& text : raw) builder.add(rag::analyse(text));
  found += builder.build().size();
  report("build MB/s, raw UTF-8", bytes / 1e6 / (seconds() - start));
}

// ---- peers --------------------------------------------------------------------------------------

#ifdef BENCH_FTS5
void run_fts5(const arguments& given) {
  sqlite3* db = nullptr;
  sqlite3_open(":memory:", &db);
  sqlite3_exec(db, "CREATE VIRTUAL TABLE t USING fts5(x, content='', detail=full)", nullptr,
               nullptr, nullptr);
  sqlite3_stmt* statement = nullptr;
  sqlite3_prepare_v2(db, "INSERT INTO t(rowid, x) VALUES (?1, ?2)", -1, &statement, nullptr);
  const strings texts = texts_of(given.tokens);
  double bytes = 0;
  const double begin = seconds();
  sqlite3_exec(db, "BEGIN", nullptr, nullptr, nullptr);
  for (std::size_t row = 0; row < texts.size(); ++row) {
    bytes += static_cast<double>(texts[row].size());
    sqlite3_bind_int64(statement, 1, static_cast<sqlite3_int64>(row + 1));
    sqlite3_bind_text(statement, 2, texts[row].data(), static_cast<int>(texts[row].size()),
                      SQLITE_STATIC);
    sqlite3_step(statement);
    sqlite3_reset(statement);
  }
  sqlite3_exec(db, "COMMIT; INSERT INTO t(t) VALUES ('optimize')", nullptr, nullptr, nullptr);
  report("build MB/s, tokens", bytes / 1e6 / (seconds() - begin));
  sqlite3_finalize(statement);
  sqlite3_prepare_v2(db, "SELECT rowid, rank FROM t WHERE t MATCH ?1 ORDER BY rank LIMIT ?2", -1,
                     &statement, nullptr);
  strings queries;
  for (const std::string& line : lines_of(given.queries)) {
    std::string query;
    for (const std::string& word : words_of(line))
      query += (query.empty() ? "\"" : " OR \"") + word + "\"";
    queries.push_back(query);
  }
  queries.resize((std::min)(queries.size(), std::size_t{60}));  // it takes some 50 ms for each
  for (const int k : {10, 100}) {
    measure("top " + std::to_string(k), queries.size(), 1, [&](std::size_t q) {
      sqlite3_bind_text(statement, 1, queries[q].data(), static_cast<int>(queries[q].size()),
                        SQLITE_STATIC);
      sqlite3_bind_int(statement, 2, k);
      std::size_t rows = 0;
      while (sqlite3_step(statement) == SQLITE_ROW) ++rows;
      sqlite3_reset(statement);
      return rows;
    });
  }
  sqlite3_finalize(statement);
  sqlite3_close(db);
  std::printf("version\t%s\n", sqlite3_libversion());
}
#endif

#ifdef BENCH_XAPIAN
void run_xapian(const arguments& given) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("bench_xapian_" +
                       std::to_string(std::chrono::steady_clock::now().time_since_epoch().count()));
  const strings texts = texts_of(given.tokens);
  double bytes = 0;
  const double begin = seconds();
  {
    Xapian::WritableDatabase out(folder.string(),
                                 Xapian::DB_CREATE_OR_OVERWRITE | Xapian::DB_NO_SYNC);
    for (const std::string& text : texts) {
      bytes += static_cast<double>(text.size());
      Xapian::Document document;
      for (const std::string& word : words_of(text)) document.add_term(word);
      out.add_document(document);
    }
    out.commit();
  }
  report("build MB/s, tokens", bytes / 1e6 / (seconds() - begin));
  {
    const Xapian::Database db(folder.string());
    std::vector<strings> queries;
    for (const std::string& line : lines_of(given.queries)) queries.push_back(words_of(line));
    for (const unsigned k : {10U, 100U}) {
      measure("top " + std::to_string(k), queries.size(), given.passes, [&](std::size_t q) {
        Xapian::Enquire enquire(db);
        enquire.set_weighting_scheme(Xapian::BM25Weight(1.2, 0, 1, 0.75, 0));
        enquire.set_query(
            Xapian::Query(Xapian::Query::OP_OR, queries[q].begin(), queries[q].end()));
        return static_cast<std::size_t>(enquire.get_mset(0, k).size());
      });
    }
  }
  std::filesystem::remove_all(folder);
  std::printf("version\t%s\n", Xapian::version_string());
}
#endif

}  // namespace

int main(int count, char** values) {
  arguments given;
  strings plain;
  for (int i = 1; i < count; ++i) {
    const std::string value = values[i];
    const std::string next = i + 1 < count ? values[i + 1] : "";
    if (value == "--long")
      given.long_queries = next;
    else if (value == "--raw")
      given.raw = next;
    else if (value == "--passes")
      given.passes = std::atoi(next.c_str());
    else {
      plain.push_back(value);
      continue;
    }
    ++i;
  }
  if (plain.size() == 3) {
    given.engine = plain[0];
    given.tokens = plain[1];
    given.queries = plain[2];
  }
  if (given.engine == "ours") run_ours(given);
#ifdef BENCH_FTS5
  else if (given.engine == "fts5")
    run_fts5(given);
#endif
#ifdef BENCH_XAPIAN
  else if (given.engine == "xapian")
    run_xapian(given);
#endif
  else {
    std::fprintf(stderr,
                 "usage: lexical ours|fts5|xapian TOKENS QUERIES [--long QUERIES] [--raw CORPUS] "
                 "[--passes N]\n");
    return 2;
  }
  return found == 0 ? 1 : 0;
}
