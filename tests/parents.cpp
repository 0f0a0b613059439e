// Parents: what is refused, who may read one, and what stands where after the collapse.
//
// RAG_RETRIEVE_PROPERTY_RUNS sets the number of random worlds.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <rag_retrieve.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fakes.hpp"
#include "made.hpp"

namespace parents_tests {

namespace rag = rag_retrieve;
using namespace fakes;
using made::dice;

namespace {

/// A chunk over lines `first` to `last`, from 1, of a document whose lines all have eight bytes.
rag::chunk over(const rag::document& source, std::string id, std::size_t first, std::size_t last,
                std::string parent = {}) {
  rag::chunk out = piece(source, std::move(id), 8 * (first - 1), 8 * last - 1);
  out.parent_id = std::move(parent);
  return out;
}

rag::document six_lines(std::string id = "d", strings groups = {"staff", "board"}) {
  return page(std::move(id), "apple a\nberry b\ncedar c\ndwarf d\nelder e\nfruit f\n",
              std::move(groups));
}

/// P over lines 1 to 3 with the children 1, 2 and 3; Q over 4 and 5 with 4 and 5; 6 alone.
std::vector<rag::chunk> family(const rag::document& source) {
  const std::string& d = source.id;
  return {over(source, d + ".P", 1, 3),           over(source, d + ".1", 1, 1, d + ".P"),
          over(source, d + ".2", 2, 2, d + ".P"), over(source, d + ".3", 3, 3, d + ".P"),
          over(source, d + ".Q", 4, 5),           over(source, d + ".4", 4, 4, d + ".Q"),
          over(source, d + ".5", 5, 5, d + ".Q"), over(source, d + ".6", 6, 6)};
}

std::vector<rag::chunk> with_groups(std::vector<rag::chunk> chunks, const std::string& id,
                                    strings groups) {
  for (rag::chunk& each : chunks) {
    if (each.id == id) each.allowed_groups = groups;
  }
  return chunks;
}

rag::query explained(std::string text) {
  rag::query out = about(std::move(text));
  out.explain = true;
  return out;
}

std::string refusal(const rag::document& source, const std::vector<rag::chunk>& chunks) {
  setup one;
  const auto outcome = one.store.try_upsert(source, chunks);
  if (outcome) return "accepted";
  CHECK(outcome.failure().code() == rag::errc::invalid_argument);
  CHECK(one.store.snapshot().number() == 0);
  return outcome.failure().message();
}

bool mentions(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

/// All of an answer, with what parents and neighbours add to it.
std::string all_of(const rag::result<rag::answer>& found) {
  writer out;
  if (found) {
    for (const rag::permitted_passage& passage : found->passages) {
      for (const std::string& child : passage.children()) out.put(child);
      out.end_of("children");
    }
    for (const rag::neighbour& each : found->neighbours) {
      out.put(each.of);
      write(out, each.passage);
    }
    for (const rag::candidate_trace& each : found->trace.candidates) {
      out.put(each.id).put(each.parent).put(each.parent_note).end_of("parent");
    }
  }
  return everything(found) + out.text();
}

}  // namespace

// ---- what is refused ----------------------------------------------------------------------------

TEST_CASE("parents: a parent is a chunk of the same document, above the child, one level up") {
  const rag::document d = six_lines();
  CHECK(refusal(d, family(d)) == "accepted");
  CHECK(mentions(refusal(d, {over(d, "c", 1, 1, "nobody")}), "'nobody' of chunk 'c' is not among"));
  CHECK(mentions(refusal(d, {over(d, "c", 1, 1, "c")}), "'c' is its own parent"));
  CHECK(mentions(refusal(d, {over(d, "p", 1, 2), over(d, "c", 2, 3, "p")}), "does not contain"));
  CHECK(mentions(refusal(d, {over(d, "g", 1, 3), over(d, "p", 1, 2, "g"), over(d, "c", 1, 1, "p")}),
                 "has a parent itself"));
  CHECK(mentions(refusal(d, {over(d, "p", 1, 1, "c"), over(d, "c", 1, 1, "p")}),
                 "has a parent itself"));
  setup one;  // another document's chunk is none either
  one.store.upsert(d, family(d));
  const rag::document other = six_lines("other");
  CHECK_FALSE(one.store.try_upsert(other, {over(other, "c", 1, 1, "d.P")}).ok());
}

TEST_CASE("parents: groups wider than a child's are refused, equal and narrower ones are not") {
  const rag::document d = six_lines();
  const auto narrow_child = with_groups(family(d), "d.2", {"board"});
  CHECK(refusal(d, narrow_child) == "accepted");
  CHECK(refusal(d, with_groups(narrow_child, "d.P", {"board"})) == "accepted");
  CHECK(refusal(d, with_groups(narrow_child, "d.P", {})) == "accepted");
  CHECK(mentions(refusal(d, with_groups(narrow_child, "d.P", {"board", "staff"})),
                 "allows group 'staff', which the chunk does not"));
}

// ---- what is searched ---------------------------------------------------------------------------

TEST_CASE("parents: a parent is in no index and no statistic, but can be fetched and is counted") {
  letter_model model;
  rag::retriever_options options{.embed = model.embedder(), .identifiers = {"PAY-###"}};
  setup one(options);
  const rag::document d = page("d", "PAY-042\nPAY-043\n");
  one.store.upsert(d, {over(d, "P", 1, 2), over(d, "1", 1, 1, "P"), over(d, "2", 2, 2, "P")});
  CHECK(model.texts == strings{"PAY-042", "PAY-043"});

  rag::query asked = explained("PAY-042");
  asked.collapse_parents = false;
  const rag::answer found = one.store.search(asked, one.ana());
  CHECK(ids(found) == strings{"1", "2"});
  REQUIRE_FALSE(found.trace.bm25.empty());
  CHECK(found.trace.bm25[0].second.chunk_count == 2);
  CHECK(found.passages[0].parent_id() == "P");

  const strings wanted{"P", "1"};
  const auto fetched = one.store.fetch(wanted, one.ana());
  CHECK(ids(fetched) == wanted);
  CHECK(fetched[0].text() == "PAY-042\nPAY-043");
  CHECK(fetched[0].identifiers() == strings{"PAY-042", "PAY-043"});
  CHECK(one.store.count(one.ana()) == 3);
}

TEST_CASE("parents: a supplied vector of a parent is not searched, and not of another model") {
  setup one;
  const rag::document d = six_lines();
  auto chunks = family(d);
  chunks[0] = with_vector(chunks[0], {1, 0});
  chunks[1] = with_vector(chunks[1], {1, 0.5F});
  one.store.upsert(d, chunks);
  rag::query asked = near_to({1, 0});
  asked.collapse_parents = false;
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"d.1"});
  chunks[0].vector->model = "another";
  CHECK(one.store.try_upsert(d, chunks).failure().code() == rag::errc::model_mismatch);
}

// ---- the collapse -------------------------------------------------------------------------------

TEST_CASE("parents: a parent stands at the place of its best child, and says for which") {
  setup one;
  const rag::document d = six_lines();
  one.store.upsert(d, family(d));
  const rag::answer found = one.store.search(explained("berry cedar cedar fruit dwarf"), one.ana());
  CHECK(ids(found) == strings{"d.P", "d.Q", "d.6"});
  const rag::permitted_passage& parent = found.passages[0];
  CHECK(parent.text() == "apple a\nberry b\ncedar c");
  CHECK(parent.children() == strings{"d.2", "d.3"});
  CHECK(parent.lexical_rank() == 1);
  CHECK(mentions(parent.why(), "for d.2; for d.3"));
  CHECK(found.passages[1].children() == strings{"d.4"});
  CHECK(found.passages[2].children().empty());
  strings marked;
  for (const rag::byte_range match : parent.source().matches) {
    marked.emplace_back(rag::slice(d.text, match));
  }
  CHECK(marked == strings{"berry", "cedar"});
  CHECK(found.signals.idf_share == doctest::Approx(1.0));

  REQUIRE(found.trace.dropped.size() == 1);
  CHECK(found.trace.dropped[0].id == "d.3");
  CHECK(found.trace.dropped[0].stage == rag::drop_stage::parent);
  CHECK(found.trace.dropped[0].reason == "its parent d.P stands at the place of d.2");
  std::map<std::string, std::string> parent_of;
  for (const auto& each : found.trace.candidates) parent_of[each.id] = each.parent;
  CHECK(parent_of == std::map<std::string, std::string>{
                         {"d.2", "d.P"}, {"d.3", "d.P"}, {"d.4", "d.Q"}, {"d.6", ""}});
}

TEST_CASE("parents: the collapse comes before overlaps, cap, window and limit") {
  setup one;
  const rag::document d = six_lines();
  one.store.upsert(d, family(d));
  rag::query asked = explained("apple berry cedar dwarf elder fruit");
  asked.per_document = 2;
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"d.P", "d.Q"});
  asked.per_document = 3;
  asked.limit = 1;
  asked.offset = 2;
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"d.6"});
  asked = explained("apple berry cedar dwarf elder fruit");
  asked.collapse_parents = false;
  CHECK(one.store.search(asked, one.ana()).passages.size() == 6);
  asked.collapse_parents = true;
  strings shown;
  asked.rerank.score = [&](const rag::rerank_request& request) {
    std::vector<double> scores;
    for (const auto& passage : request.passages) {
      shown.push_back(passage.search_text());
      scores.push_back(static_cast<double>(scores.size()));
    }
    return scores;
  };
  asked.rerank.window = 2;
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"d.Q", "d.P", "d.6"});
  CHECK(shown == strings{"apple a\nberry b\ncedar c", "dwarf d\nelder e"});
}

TEST_CASE("parents: a parent too large for the budget or the option leaves its children") {
  setup one;
  const rag::document d = six_lines();
  one.store.upsert(d, family(d));  // d.P has 6 words, d.Q 4
  rag::query asked = explained("berry cedar dwarf");
  asked.max_parent_tokens = 5;
  rag::answer found = one.store.search(asked, one.ana());
  CHECK(ids(found) == strings{"d.2", "d.3", "d.Q"});
  CHECK(found.passages[0].parent_id() == "d.P");
  CHECK(found.trace.candidates[0].parent_note == "parent d.P has 6 tokens, more than 5");
  CHECK(found.trace.candidates[0].parent.empty());
  asked.max_parent_tokens = 6;
  asked.token_budget = 5;
  found = one.store.search(asked, one.ana());
  CHECK(ids(found) == strings{"d.2", "d.3"});
  CHECK(found.trace.candidates[1].parent_note == "parent d.P has 6 tokens, more than 5");
  asked.token_budget = 10;
  CHECK(ids(one.store.search(asked, one.ana())) == strings{"d.P", "d.Q"});
  asked.max_parent_tokens = 0;
  CHECK(one.store.try_search(asked, one.ana()).failure().code() == rag::errc::invalid_argument);
}

TEST_CASE("selection: children collapse to the parent of the best, places are remembered") {
  const std::vector<rag::selection_item> items{
      {.id = "a1"}, {.id = "b1"}, {.id = "x"}, {.id = "a2"}};
  const rag::selection_item a{.id = "A"}, b{.id = "B"};
  const std::vector<const rag::selection_item*> parents{&a, &b, nullptr, &a};
  std::vector<rag::drop> dropped;
  const auto kept = rag::collapse_to_parents(items, parents, &dropped);
  REQUIRE(kept.size() == 3);
  CHECK(kept[0].item.id == "A");
  CHECK(kept[0].from == std::vector<std::size_t>{0, 3});
  CHECK(kept[1].item.id == "B");
  CHECK(kept[2].item.id == "x");
  REQUIRE(dropped.size() == 1);
  CHECK(dropped[0].id == "a2");
  CHECK(rag::try_collapse_to_parents(items, {}).failure().code() == rag::errc::invalid_argument);
}

// ---- who may see a parent -----------------------------------------------------------------------

TEST_CASE("parents: a parent is open only to who may read every child, also after set_access") {
  setup one;
  one.permissions.groups[{"", "bob"}] = {"board"};
  const rag::document d = six_lines();
  one.store.upsert(d, with_groups(family(d), "d.2", {"board"}));
  const rag::scope bob = one.store.scope_for({"", "bob"});
  const auto seen_by = [&](const rag::scope& reader) {
    return ids(one.store.search(about("apple cedar"), reader));
  };
  CHECK(seen_by(one.ana()) == strings{"d.1", "d.3"});
  CHECK(seen_by(bob) == strings{"d.P"});
  const strings wanted{"d.P", "d.1"};
  CHECK(ids(one.store.fetch(wanted, one.ana())) == strings{"d.1"});
  CHECK(one.store.count(one.ana()) == 6);
  CHECK(one.store.count(bob) == 8);

  one.store.set_access("d", {"staff"});  // d.2 is open to nobody now, and so is d.P
  CHECK(seen_by(one.ana()) == strings{"d.1", "d.3"});
  CHECK(seen_by(bob).empty());
  one.store.set_access("d", {"staff", "board", "guests"});
  CHECK(seen_by(bob) == strings{"d.P"});
  CHECK(seen_by(one.ana()) == strings{"d.1", "d.3"});
}

TEST_CASE(
    "parents: the record of a parent is no wider than all its children's, so none is asked for") {
  setup one;
  one.permissions.judges = true;
  strings asked;
  one.permissions.answer = [&](std::span<const rag::chunk_key> keys) -> judge::verdicts {
    for (const rag::chunk_key& key : keys) asked.emplace_back(key.chunk_id);
    return std::vector<rag::verdict>(keys.size(), rag::verdict::allow);
  };
  const auto asked_for = [&] {
    asked.clear();
    static_cast<void>(one.store.search(about("apple cedar"), one.ana()));
    std::sort(asked.begin(), asked.end());
    asked.erase(std::unique(asked.begin(), asked.end()), asked.end());
    return asked;
  };
  rag::document d = six_lines();
  one.store.upsert(d, family(d));
  CHECK(asked_for() == strings{"d.1", "d.2", "d.3", "d.P"});
  d.revision = 2;
  one.store.upsert(d, with_groups(family(d), "d.2", {"board"}));
  CHECK(asked_for() == strings{"d.1", "d.3"});
  one.store.set_access("d", {"staff"});
  CHECK(asked_for() == strings{"d.1", "d.3"});
}

TEST_CASE("parents: the source's word on a parent, or on any child in it, closes it; once asked") {
  std::vector<rag::operator_trace> operators;
  rag::retriever_options options;
  options.on_search = [&](const rag::operator_trace& trace) { operators.push_back(trace); };
  setup one(options);
  one.permissions.judges = true;
  const rag::document d = six_lines();
  one.store.upsert(d, family(d));
  for (const std::string denied : {"d.P", "d.2"}) {
    CAPTURE(denied);
    one.permissions.deny({denied});
    operators.clear();
    const rag::answer found = one.store.search(explained("apple cedar elder"), one.ana());
    CHECK(ids(found) == strings{"d.1", "d.3", "d.Q"});
    CHECK(found.passages[0].parent_id().empty());
    CHECK_FALSE(mentions(all_of(found), "d.P"));
    CHECK_FALSE(mentions(all_of(found), "d.2"));
    REQUIRE(operators.size() == 1);
    REQUIRE(operators[0].checks.size() == 1);  // parents and siblings are in the same batch
    CHECK(operators[0].checks[0].asked == 7);
    CHECK(operators[0].parents ==
          strings{"chunk 'd.1' stands for itself: parent d.P is closed to this reader",
                  "chunk 'd.3' stands for itself: parent d.P is closed to this reader"});
    const strings wanted{"d.P", "d.2", "d.3", "d.4"};
    const auto fetched = one.store.fetch(wanted, one.ana());
    CHECK_FALSE(mentions(ids(fetched).front(), "d.P"));
    CHECK(one.store.count(one.ana()) == (denied == "d.P" ? 7 : 6));
  }
}

TEST_CASE("parents: a parent closed while the reranker runs gives way to its child") {
  for (const std::string denied : {"d.P", "d.2"}) {
    setup one;
    one.permissions.judges = true;
    const rag::document d = six_lines();
    one.store.upsert(d, family(d));
    rag::query asked = explained("apple cedar elder");
    asked.rerank.score = [&](const rag::rerank_request& request) {
      one.permissions.deny({denied});
      return std::vector<double>(request.passages.size(), 1.0);
    };
    const rag::answer found = one.store.search(asked, one.ana());
    CHECK(ids(found) == strings{"d.Q", "d.1", "d.3"});
    CHECK_FALSE(mentions(all_of(found), "d.P"));
    asked.rerank.score = [&](const rag::rerank_request&) -> rag::result<std::vector<double>> {
      one.permissions.deny({denied});
      return rag::error(rag::errc::reranker_failed, "I was shown " + denied);
    };
    one.permissions.deny({});
    CHECK_FALSE(mentions(all_of(one.store.try_search(asked, one.ana())), "d.P"));
  }
}

TEST_CASE("parents: forbidden bytes reach no passage, reranker, trace, note or error") {
  for (const bool record_is_stale : {false, true}) {
    letter_model model;
    std::string seen;
    rag::retriever_options options{.embed = model.embedder(), .identifiers = {"PAY-###"}};
    setup one(options);
    one.permissions.judges = true;
    const rag::document d =
        page("d", "open words one\nFORBIDDEN words PAY-777\nopen words two\n", {"staff", "board"});
    std::vector<rag::chunk> chunks = lines(d);
    for (rag::chunk& each : chunks) each.parent_id = "FORBIDDEN-parent";
    chunks[1].id = "FORBIDDEN-child";
    if (!record_is_stale) chunks[1].allowed_groups = strings{"board"};
    chunks.insert(chunks.begin(), piece(d, "FORBIDDEN-parent", 0, d.text.size()));
    chunks.front().heading_path = {"FORBIDDEN"};
    one.store.upsert(d, chunks);
    one.permissions.deny({"FORBIDDEN-child"});
    for (const char* text : {"open words", "PAY-777", "two", "forbidden", "one two words"}) {
      for (const bool collapse : {true, false}) {
        rag::query asked = explained(text);
        asked.collapse_parents = collapse;
        asked.rerank.score = [&](const rag::rerank_request& request) {
          writer out;
          for (const rag::permitted_passage& passage : request.passages) write(out, passage);
          seen += out.text();
          return std::vector<double>(request.passages.size(), 1.0);
        };
        seen += all_of(one.store.try_search(asked, one.ana()));
      }
    }
    const strings wanted{"FORBIDDEN-parent", "FORBIDDEN-child", "d.1"};
    writer out;
    for (const rag::permitted_passage& passage : one.store.fetch(wanted, one.ana())) {
      write(out, passage);
    }
    seen += out.text();
    CHECK(mentions(seen, "open words"));
    CHECK_FALSE(mentions(seen, "FORBIDDEN"));
    CHECK(one.store.count(one.ana()) == 2);
  }
}

TEST_CASE("parents: a replaced document's parent is judged by the newest records") {
  setup one;
  rag::document d = six_lines();
  one.store.upsert(d, with_groups(family(d), "d.2", {"board"}));
  one.permissions.groups[{"", "ana"}] = {"board"};
  const rag::scope ana = one.ana();
  const rag::snapshot pinned = one.store.snapshot();
  CHECK(ids(pinned.search(about("apple"), ana)) == strings{"d.P"});
  d.revision = 2;
  one.store.upsert(d, {over(d, "d.1", 1, 1)});  // no record of d.2's own groups is left
  CHECK(ids(pinned.search(about("apple"), ana)) == strings{"d.1"});
}

// ---- non-interference ---------------------------------------------------------------------------

namespace {

strings some_groups(dice& random) {
  strings out;
  for (const char* group : {"g0", "g1", "g2"}) {
    if (random.chance(60)) out.emplace_back(group);
  }
  return out;
}

const strings vocabulary{"apple", "berry", "cedar", "PAY-001", "a", "bc"};

/// Lines, some of them children of parents over two or three lines.
rag::chunked_document some_document(dice& random, const std::string& id) {
  rag::document source = page(id, {}, some_groups(random));
  for (std::size_t left = random.below(6) + 2; left > 0; --left) {
    for (std::size_t words = random.below(4) + 1; words > 0; --words) {
      source.text += vocabulary[random.below(vocabulary.size())] + " ";
    }
    source.text += "\n";
  }
  std::vector<rag::chunk> chunks = lines(source);
  for (rag::chunk& each : chunks) {
    if (random.chance(30)) each.heading_path = {"section"};
    if (!random.chance(30)) continue;
    each.allowed_groups = source.allowed_groups;
    std::erase_if(*each.allowed_groups, [&](const std::string&) { return random.chance(40); });
  }
  const std::size_t lines_count = chunks.size();
  for (std::size_t at = 0; at + 2 <= lines_count;) {
    const std::size_t most = (std::min)(lines_count - at, std::size_t{3});
    const std::size_t count = random.below(most) + 1;
    if (random.chance(70)) {
      const std::string name = id + ".p" + std::to_string(at);
      rag::chunk parent =
          piece(source, name, chunks[at].range.begin, chunks[at + count - 1].range.end);
      for (std::size_t i = at; i < at + count; ++i) chunks[i].parent_id = name;
      chunks.push_back(parent);
    }
    at += count;
  }
  return {source, chunks};
}

/// Only what a reader may see of a document: a parent if he may see it and all children of it.
rag::chunked_document only_for(const rag::scope& reader, const rag::chunked_document& of,
                               const std::set<std::string>& denied) {
  std::set<std::string> closed;
  for (const rag::chunk& item : of.chunks) {
    strings groups = of.source.allowed_groups;
    if (item.allowed_groups) {
      std::erase_if(groups, [&](const std::string& group) {
        const strings& own = *item.allowed_groups;
        return std::find(own.begin(), own.end(), group) == own.end();
      });
    }
    if (reader.meets(groups) && !denied.contains(item.id)) continue;
    closed.insert(item.id);
    if (!item.parent_id.empty()) closed.insert(item.parent_id);
  }
  rag::chunked_document mine = of;
  std::erase_if(mine.chunks, [&](const rag::chunk& item) { return closed.contains(item.id); });
  for (rag::chunk& item : mine.chunks) {
    if (closed.contains(item.parent_id)) item.parent_id.clear();
    // A parent without groups of its own takes its children's; here they are all readable.
  }
  return mine;
}

}  // namespace

TEST_CASE(
    "non-interference: with parents and neighbours, an answer is that of an index of the reader's "
    "chunks") {
  std::size_t parents_shown = 0;
  std::size_t children_shown = 0;
  std::size_t neighbours_shown = 0;
  const std::uint64_t runs = made::property_runs(300);
  for (std::uint64_t seed = 1; seed <= runs; ++seed) {
    CAPTURE(seed);
    dice random(seed);
    letter_model model;
    judge people;
    people.groups[{"", "u"}] = some_groups(random);
    rag::retriever_options options{
        .embed = model.embedder(5), .permissions = &people, .identifiers = {"PAY-###"}};
    rag::retriever full(options);
    rag::retriever mine(options);
    const rag::scope reader = full.scope_for({"", "u"});
    std::set<std::string> denied;
    const bool verdicts = random.chance(50);  // then without terms: no statistics over the records
    for (std::size_t i = random.below(4) + 1; i > 0; --i) {
      const rag::chunked_document next = some_document(random, "d" + std::to_string(i));
      for (const rag::chunk& item : next.chunks) {
        if (verdicts && random.chance(20)) denied.insert(item.id);
      }
      full.upsert(std::vector<rag::chunked_document>{next});
      const rag::chunked_document part = only_for(reader, next, denied);
      if (!part.chunks.empty()) mine.upsert(std::vector<rag::chunked_document>{part});
    }
    people.deny({denied.begin(), denied.end()});
    REQUIRE(full.count(reader) == mine.count(reader));
    for (int question = 0; question < 6; ++question) {
      rag::query asked = explained(vocabulary[random.below(6)] + " " + vocabulary[random.below(6)]);
      if (verdicts) {
        asked.mode = rag::search_mode::dense;
        asked.vector = rag::embedding{"letters", letter_model::vector_of(asked.text)};
        asked.text.clear();
      }
      asked.collapse_parents = random.chance(80);
      asked.depth = random.chance(50) ? 100 : random.below(6) + 1;
      asked.per_document = random.below(4) + 1;
      asked.neighbours = random.chance(50) ? random.below(3) : 0;
      asked.limit = random.below(6) + 1;
      if (random.chance(30)) asked.token_budget = random.below(20) + 1;
      if (random.chance(30)) asked.max_parent_tokens = random.below(9) + 1;
      if (random.chance(30)) {
        asked.rerank.score = [](const rag::rerank_request& request) {
          std::vector<double> scores;
          for (const auto& each : request.passages) {
            scores.push_back(static_cast<double>(each.search_text().size() % 5));
          }
          return scores;
        };
      }
      const auto there = full.try_search(asked, reader);
      const auto here = mine.try_search(asked, reader);
      REQUIRE(difference(all_of(there), all_of(here)) == "");
      neighbours_shown += there->neighbours.size();
      for (const rag::permitted_passage& passage : there->passages) {
        ++(passage.children().empty() ? children_shown : parents_shown);
      }
    }
  }
  CHECK(parents_shown > runs);
  CHECK(children_shown > runs);
  CHECK(neighbours_shown > runs);
}

}  // namespace parents_tests
