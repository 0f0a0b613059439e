// Section 16: an index as bytes and back; every damaged file is an error.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <ostream>
#include <rag_retrieve.hpp>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fakes.hpp"
#include "index_bytes.hpp"

namespace persistence_tests {

namespace {

namespace rag = rag_retrieve;
using namespace index_bytes;
using strings = std::vector<std::string>;

constexpr std::string_view gateway =
    "# Errors\n\n## PAY-041: Timed out\n\nThe provider did not respond.\n\n"
    "## PAY-042: Rejected\n\nThe stored credential was rejected. Rotate the key.\n";

/// A model of four numbers: how often a text holds each of four letters.
rag::embedder letters() {
  rag::embedder model{.model = "letters", .dimension = 4, .batch_size = 3};
  model.embed = [](std::span<const std::string_view> texts, rag::text_role) {
    std::vector<std::vector<float>> out;
    for (const std::string_view text : texts) {
      std::vector<float> counts(4, 0.5F);
      for (const char c : text) {
        const std::size_t place = std::string_view("aeor").find(c);
        if (place != std::string_view::npos) counts[place] += 1;
      }
      out.push_back(counts);
    }
    return out;
  };
  return model;
}

/// Some documents of two tenants; with IVF options each tenant has lists.
struct world {
  std::optional<rag::ivf_options> ivf;
  rag::access_directory people;
  rag::retriever retriever;

  explicit world(std::optional<rag::ivf_options> lists = {}) : ivf(lists), retriever(options()) {
    people.set_groups({.user = "ana"}, {"staff"});
    people.set_groups({.tenant = "acme", .user = "ana"}, {"staff"});
    rag::document page = fakes::page("gateway", std::string(gateway));
    page.title = "Gateway";
    page.metadata = {{"kind", std::string("reference")},
                     {"size", 3.5},
                     {"tags", strings{"a", std::string("b\0c", 3)}}};
    retriever.upsert(page, rag::chunk_structure(page));
    const rag::document empty = fakes::page("empty", "", {"staff"}, 2);
    retriever.upsert(empty, {});
    const rag::document closed = fakes::page("closed", "A rotated key.", {"staff", "board"});
    std::vector<rag::chunk> pieces = fakes::whole(closed);
    pieces[0].allowed_groups = strings{"board"};
    retriever.upsert(closed, pieces);
    const rag::document other =
        fakes::page("gateway", "Another\x1A\r\n tenant's key.", {"staff"}, 4, "acme");
    retriever.upsert(other, fakes::whole(other));
    retriever.set_access("empty", {"board"});
  }

  rag::retriever_options options() const {
    return {.embed = letters(),
            .permissions = &people,
            .identifiers = {"PAY-###"},
            .ivf = ivf,
            .ivf_from = 0};
  }
};

constexpr rag::ivf_options two_lists{.lists = 2, .probes = 1};
const std::vector<std::optional<rag::ivf_options>> without_and_with_lists{{}, two_lists};

std::string saved(const rag::retriever& retriever) {
  std::ostringstream out(std::ios::binary);
  rag::save(retriever, out);
  return out.str();
}

rag::result<rag::retriever> loaded(const std::string& bytes, rag::retriever_options options,
                                   const rag::load_options& how = {}) {
  return rag::try_load(std::as_bytes(std::span(bytes)), std::move(options), how);
}

/// What ana finds, with every number.
std::string findings(const rag::retriever& retriever, const std::string& tenant = {}) {
  const rag::scope ana = retriever.scope_for({.tenant = tenant, .user = "ana"});
  std::ostringstream out;
  for (const char* text : {"What is PAY-042?", "rotated key", "provider"}) {
    const rag::answer found = retriever.search({.text = text, .explain = true}, ana);
    for (const auto& passage : found.passages) {
      out << passage.id() << ' ' << passage.score() << ' ' << passage.why() << ' ' << passage.text()
          << ' ' << passage.title() << '\n';
    }
    for (const auto& [id, bm25] : found.trace.bm25) out << id << ' ' << bm25.score << '\n';
  }
  return out.str();
}

// ---- files taken apart and put together under right hashes --------------------------------------

struct section {
  std::uint64_t kind = 0;
  std::string tenant;
  std::string bytes;
};
enum kinds : std::uint64_t { tags, documents = 2, postings, vectors, lists };

std::string number_of(std::uint64_t value, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += static_cast<char>((value >> (8 * i)) & 0xFF);
  return out;
}

std::vector<section> sections_of(const std::string& file) {
  std::vector<section> sections;
  std::size_t at = 40;
  std::size_t bytes_at = at + static_cast<std::size_t>(number_at(file, 24, 8));
  for (std::uint64_t left = number_at(file, 16, 8); left > 0; --left) {
    const auto tenant = static_cast<std::size_t>(number_at(file, at + 4, 8));
    const auto size = static_cast<std::size_t>(number_at(file, at + 12 + tenant, 8));
    sections.push_back(
        {number_at(file, at, 4), file.substr(at + 12, tenant), file.substr(bytes_at, size)});
    at += 28 + tenant;
    bytes_at += size;
  }
  return sections;
}

std::string file_of(const std::string& file, const std::vector<section>& sections) {
  std::string table;
  std::string bytes;
  for (const section& each : sections) {
    table += number_of(each.kind, 4) + number_of(each.tenant.size(), 8) + each.tenant +
             number_of(each.bytes.size(), 8) + number_of(hash_of(each.bytes), 8);
    bytes += each.bytes;
  }
  const std::string head =
      file.substr(0, 16) + number_of(sections.size(), 8) + number_of(table.size(), 8);
  return head + number_of(hash_of(head + table), 8) + table + bytes;
}

/// An IVF section in its parts.
struct stored_lists {
  std::vector<std::uint64_t> training;  // lists, seed, iterations, sample_per_list
  std::uint64_t dimension = 0;
  std::vector<float> centroids;
  std::vector<std::uint32_t> sizes;
  std::vector<std::uint32_t> rows;

  stored_lists(const std::string& bytes, std::uint64_t numbers) : dimension(numbers) {
    for (std::size_t i = 0; i < 4; ++i) training.push_back(number_at(bytes, 8 * i, 8));
    sizes.resize(static_cast<std::size_t>(number_at(bytes, 32, 8)));
    rows.resize(static_cast<std::size_t>(number_at(bytes, 40, 8)));
    centroids.resize(sizes.size() * static_cast<std::size_t>(dimension));
    std::size_t at = 48;
    for (float& value : centroids) {
      const auto bits = static_cast<std::uint32_t>(number_at(bytes, at, 4));
      std::memcpy(&value, &bits, sizeof value);
      at += 4;
    }
    for (auto* list : {&sizes, &rows}) {
      for (std::uint32_t& value : *list) {
        value = static_cast<std::uint32_t>(number_at(bytes, at, 4));
        at += 4;
      }
    }
    REQUIRE(at == bytes.size());
  }

  std::string bytes() const {
    std::string out;
    for (const std::uint64_t value : training) out += number_of(value, 8);
    out += number_of(sizes.size(), 8) + number_of(rows.size(), 8);
    for (const float value : centroids) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      out += number_of(bits, 4);
    }
    for (const std::uint32_t value : sizes) out += number_of(value, 4);
    for (const std::uint32_t value : rows) out += number_of(value, 4);
    return out;
  }
};

/// The file with the first IVF section changed.
std::string with_lists(const std::string& file, const std::function<void(stored_lists&)>& change) {
  std::vector<section> sections = sections_of(file);
  for (section& each : sections) {
    if (each.kind != lists) continue;
    stored_lists parts(each.bytes, 4);
    change(parts);
    each.bytes = parts.bytes();
    return file_of(file, sections);
  }
  FAIL("there is no IVF section");
  return {};
}

/// 200 chunks with drawn vectors of four numbers, in many lists of which one is read.
rag::retriever_options many_lists(rag::metric similarity = rag::metric::cosine) {
  rag::retriever_options options;
  options.embed.model = "m";
  options.embed.dimension = 4;
  options.similarity = similarity;
  options.ivf = rag::ivf_options{.lists = 12, .probes = 1, .seed = 7};
  options.ivf_from = 100;
  return options;
}
void add_drawn(fakes::setup& set) {
  rag::detail::random_source random(5);
  std::vector<rag::chunked_document> drawn;
  for (int i = 0; i < 200; ++i) {
    std::vector<float> vector(4);
    for (float& value : vector) value = static_cast<float>(2 * random.unit() - 1);
    if (i % 20 == 0) vector = {0, 0, 0, 0};
    drawn.push_back(fakes::placed("d" + std::to_string(1000 + i), "a note", vector));
  }
  set.add(drawn);
}

}  // namespace

TEST_CASE("persistence: a loaded index answers as the saved one, bit for bit, tenant by tenant") {
  for (const auto& ivf : without_and_with_lists) {
    const world here(ivf);
    const std::string bytes = saved(here.retriever);
    const rag::retriever again = loaded(bytes, here.options()).value();
    CHECK(findings(again) == findings(here.retriever));
    CHECK(findings(again, "acme") == findings(here.retriever, "acme"));
    CHECK(findings(again).find("gateway#pay-042-rejected") != std::string::npos);
    CHECK(again.snapshot().number() == here.retriever.snapshot().number());
  }
}

TEST_CASE("persistence: saving what was loaded gives the same bytes, through streams as well") {
  for (const auto& ivf : without_and_with_lists) {
    const world here(ivf);
    const std::string bytes = saved(here.retriever);
    CHECK(saved(loaded(bytes, here.options()).value()) == bytes);
    std::istringstream in(bytes, std::ios::binary);
    CHECK(saved(rag::load(in, here.options())) == bytes);
  }
}

TEST_CASE("persistence: parents, children and IVF come back as they were") {
  fakes::letter_model model;
  fakes::judge people;
  people.groups[{"", "ana"}] = {"staff"};
  people.groups[{"", "bob"}] = {"staff", "board"};
  people.judges = false;
  rag::retriever_options options{.embed = model.embedder(), .permissions = &people};
  options.ivf = rag::ivf_options{.lists = 8, .probes = 1};
  options.ivf_from = 0;
  rag::retriever first(options);
  rag::detail::random_source random(4);
  for (int i = 0; i < 40; ++i) {
    std::string text;
    for (int line = 0; line < 3; ++line) {
      for (std::uint64_t left = 1 + random.below(9); left > 0; --left) {
        text += static_cast<char>('a' + random.below(3));
      }
      text += " w" + std::to_string(random.below(6)) + "\n";
    }
    const rag::document page = fakes::page("d" + std::to_string(i), text, {"staff", "board"});
    auto chunks = fakes::lines(page);
    const std::string parent = page.id + ".P";
    chunks[0].parent_id = chunks[1].parent_id = parent;
    if (i % 3 == 0) chunks[1].allowed_groups = strings{"board"};
    chunks.push_back(fakes::piece(page, parent, 0, chunks[1].range.end));
    first.upsert(page, chunks);
  }
  first.purge();  // lists belong to a segment, and a file holds one
  const rag::retriever again = loaded(saved(first), options).value();
  CHECK(saved(again) == saved(first));
  rag::retriever_options exact = options;
  exact.ivf.reset();
  const rag::retriever without_lists = loaded(saved(first), exact).value();
  std::size_t parents = 0, missed = 0;
  for (const char* user : {"ana", "bob"}) {
    const rag::scope reader = first.scope_for({.user = user});
    for (const char* text : {"aab w1", "bcc w2", "cab w3", "bbbb w4", "acca w5"}) {
      rag::query asked{.text = text, .depth = 6, .neighbours = 1, .explain = true};
      const rag::answer here = first.search(asked, reader);
      CHECK(fakes::difference(fakes::everything(here),
                              fakes::everything(again.search(asked, reader))) == "");
      for (const auto& each : here.passages) parents += each.children().empty() ? 0U : 1U;
      const auto other = fakes::everything(without_lists.search(asked, reader));
      missed += other == fakes::everything(here) ? 0U : 1U;
    }
    CHECK(again.count(reader) == first.count(reader));
  }
  CHECK(parents > 10);
  CHECK(missed > 0);  // the lists are in use, and say the same after loading
}

TEST_CASE("persistence: an empty retriever is saved and loaded") {
  const rag::retriever empty;
  const auto again = loaded(saved(empty), {});
  REQUIRE(again.ok());
  CHECK(again->snapshot().number() == 0);
}

TEST_CASE("persistence: a loaded index goes on: updates, access changes, reuse of vectors") {
  for (const auto& ivf : without_and_with_lists) {
    world here(ivf);
    rag::retriever again = loaded(saved(here.retriever), here.options()).value();
    for (rag::retriever* each : {&here.retriever, &again}) {
      rag::document page =
          fakes::page("gateway", std::string(gateway) + "\nAsk again.\n", {"staff"}, 2);
      page.title = "Gateway";
      const rag::update_report report = each->upsert(page, rag::chunk_structure(page));
      CHECK(report.embedded == 1);
      CHECK(report.reused == 1);
      each->set_access("closed", {"board"});
    }
    CHECK(findings(again) == findings(here.retriever));
    CHECK(saved(again) == saved(here.retriever));
  }
}

TEST_CASE("persistence: what was erased is in no newly saved file") {
  world here;
  CHECK(saved(here.retriever).find("A rotated key.") != std::string::npos);
  here.retriever.erase("closed");
  CHECK(saved(here.retriever).find("A rotated key.") == std::string::npos);
}

TEST_CASE("persistence: every flipped byte is refused as corrupt_file, from memory and stream") {
  for (const auto& ivf : without_and_with_lists) {
    const world here(ivf);
    const std::string bytes = saved(here.retriever);
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      for (const int mask : {0x01, 0x80, 0xFF}) {
        std::string changed = bytes;
        changed[at] = static_cast<char>(static_cast<unsigned char>(changed[at]) ^ mask);
        const auto again = loaded(changed, here.options());
        REQUIRE_MESSAGE(!again.ok(), "byte ", at);
        REQUIRE(again.failure().code() == rag::errc::corrupt_file);
        if (mask != 0x80) continue;
        std::istringstream in(changed, std::ios::binary);
        REQUIRE_FALSE(rag::try_load(in, here.options()).ok());
      }
    }
  }
}

TEST_CASE("persistence: every truncation and every byte too many is refused as corrupt_file") {
  for (const auto& ivf : without_and_with_lists) {
    const world here(ivf);
    const std::string bytes = saved(here.retriever);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      const auto again = loaded(bytes.substr(0, length), here.options());
      REQUIRE_MESSAGE(!again.ok(), "length ", length);
      REQUIRE(again.failure().code() == rag::errc::corrupt_file);
    }
    CHECK(!loaded(bytes + '\0', here.options()).ok());
  }
}

TEST_CASE("persistence: hostile bytes under right hashes give an error or a sound index") {
  for (const auto& ivf : without_and_with_lists) {
    const world here(ivf);
    const std::string bytes = saved(here.retriever);
    std::size_t refused = 0;
    for (std::size_t at = 40; at < bytes.size(); ++at) {
      for (const int value : {0x00, 0x01, 0x7F, 0xFF}) {
        std::string changed = bytes;
        changed[at] = static_cast<char>(value);
        if (!rehash(changed)) continue;
        const auto again = loaded(changed, here.options());
        refused += again.ok() ? 0U : 1U;
        if (again.ok()) static_cast<void>(findings(*again));
      }
    }
    CHECK(refused > bytes.size() / 2);
  }
}

TEST_CASE("persistence: a count of 2^62 is refused before anything is allocated for it") {
  for (const auto& ivf : without_and_with_lists) {
    const world here(ivf);
    const std::string bytes = saved(here.retriever);
    for (std::size_t at = 40; at + 8 < bytes.size(); ++at) {
      std::string changed = bytes;
      put_number(changed, at, std::uint64_t{1} << 62);
      if (rehash(changed)) static_cast<void>(loaded(changed, here.options()).ok());
    }
    CHECK(loaded(bytes, here.options()).ok());
  }
}

TEST_CASE("persistence: a huge dimension costs nothing where there are no vectors") {
  world here;
  rag::retriever_options lexical = here.options();
  lexical.embed = {};
  rag::retriever store(lexical);
  const rag::document page = fakes::page("a", "A rotated key.");
  store.upsert(page, fakes::whole(page));
  const std::string bytes = saved(store);
  for (const int bits : {40, 62}) {
    std::vector<section> sections = sections_of(bytes);
    std::string& of_file = sections[0].bytes;
    REQUIRE(of_file.size() > 19);
    put_number(of_file, of_file.size() - 19, std::uint64_t{1} << bits);
    const auto again = loaded(file_of(bytes, sections), lexical);
    if (sizeof(std::size_t) > 4) CHECK(findings(again.value()) == findings(store));
  }
}

TEST_CASE("persistence: another model, metric or dimension is refused and named") {
  const world here;
  const std::string bytes = saved(here.retriever);
  rag::retriever_options other = here.options();
  other.embed.model = "words";
  CHECK(loaded(bytes, other).failure().code() == rag::errc::incompatible_file);
  CHECK(loaded(bytes, other).failure().message() ==
        "load: the file's embedding model is 'letters', this retriever's is 'words'");
  other = here.options();
  other.similarity = rag::metric::inner_product;
  CHECK(loaded(bytes, other).failure().code() == rag::errc::incompatible_file);
  other = here.options();
  other.embed.dimension = 5;
  CHECK(loaded(bytes, other).failure().code() == rag::errc::incompatible_file);
}

TEST_CASE("persistence: another analyser or pattern is refused, or analysed again by option") {
  const world here;
  const std::string bytes = saved(here.retriever);
  rag::retriever_options other = here.options();
  other.identifiers = {"PAY-##"};
  CHECK(loaded(bytes, other).failure().code() == rag::errc::incompatible_file);
  other.analysis.tag = "first-letters";
  other.analysis.stem = [](std::string_view word) { return std::string(word.substr(0, 3)); };
  const auto again = loaded(bytes, other, {.rebuild = true});
  REQUIRE(again.ok());
  const rag::scope ana = again->scope_for({.user = "ana"});
  const rag::answer found = again->search({.text = "rejecting"}, ana);
  REQUIRE(!found.passages.empty());
  CHECK(found.passages[0].id() == "gateway#pay-042-rejected");
  CHECK(!again->search({.text = "PAY-042"}, ana).signals.exact_code);
}

TEST_CASE("persistence: a stream that takes not everything is write_failed") {
  const world here;
  std::ostringstream out(std::ios::binary);
  out.setstate(std::ios::badbit);
  const auto done = rag::try_save(here.retriever, out);
  REQUIRE(!done.ok());
  CHECK(done.failure().code() == rag::errc::write_failed);
}

// ---- IVF lists ----------------------------------------------------------------------------------

TEST_CASE("persistence: IVF lists are loaded as they were saved and answer bit for bit the same") {
  for (const rag::metric similarity : {rag::metric::cosine, rag::metric::inner_product}) {
    fakes::setup set(many_lists(similarity));
    add_drawn(set);
    rag::retriever_options options = many_lists(similarity);
    options.permissions = &set.permissions;
    const std::string bytes = saved(set.store);
    const rag::retriever again = loaded(bytes, options).value();
    CHECK(saved(again) == bytes);
    options.ivf.reset();
    const rag::retriever exact = loaded(bytes, options).value();
    const rag::scope ana = again.scope_for({.user = "ana"});
    rag::detail::random_source random(8);
    int missed = 0;
    for (int i = 0; i < 30; ++i) {
      std::vector<float> question(4);
      for (float& value : question) value = static_cast<float>(2 * random.unit() - 1);
      rag::query asked = fakes::near_to(question, i % 2 == 0 ? "" : "note");
      asked.explain = true;
      const std::string answer = fakes::everything(set.store.search(asked, set.ana()));
      CHECK(fakes::difference(answer, fakes::everything(again.search(asked, ana))) == "");
      asked.depth = 20;
      missed += fakes::everything(again.search(asked, ana)) ==
                        fakes::everything(exact.search(asked, exact.scope_for({.user = "ana"})))
                    ? 0
                    : 1;
    }
    CHECK(missed > 0);  // one list of twelve was read, not all
  }
}

TEST_CASE("persistence: loading trains nothing") {
  fakes::setup set(many_lists());
  add_drawn(set);
  rag::retriever_options options = many_lists();
  options.permissions = &set.permissions;
  // A row in another list than training puts it into stays there, until an update trains anew.
  const std::string moved = with_lists(saved(set.store), [](stored_lists& parts) {
    const auto end = parts.rows.begin() + static_cast<std::ptrdiff_t>(parts.sizes[0]);
    const auto until = end + static_cast<std::ptrdiff_t>(parts.sizes[1]);
    --parts.sizes[0];
    ++parts.sizes[1];
    std::sort(end - 1, until);
  });
  rag::retriever again = loaded(moved, options).value();
  CHECK(saved(again) == moved);
  const auto news = fakes::placed("new", "another note", {1, 0, 0, 0});
  for (rag::retriever* each : {&again, &set.store}) each->upsert(news.source, news.chunks);
  CHECK(saved(again) == saved(set.store));

  // Rounds without end.
  options.ivf->iterations = (std::numeric_limits<std::size_t>::max)();
  const std::string endless = with_lists(
      saved(set.store), [&](stored_lists& parts) { parts.training[2] = options.ivf->iterations; });
  CHECK(saved(loaded(endless, options).value()) == endless);
}

TEST_CASE("persistence: lists of another training are refused, or trained again by option") {
  const rag::ivf_options mine = two_lists;
  const world here(mine);
  const world plain;
  const std::string bytes = saved(here.retriever);
  const std::vector<rag::ivf_options> others{{.lists = 1},
                                             {.lists = 2, .seed = 2},
                                             {.lists = 2, .iterations = 3},
                                             {.lists = 2, .sample_per_list = 1}};
  for (const rag::ivf_options& other : others) {
    const world wanted(other);
    const auto refused = loaded(bytes, wanted.options());
    REQUIRE(!refused.ok());
    CHECK(refused.failure().code() == rag::errc::incompatible_file);
    const rag::retriever trained = loaded(bytes, wanted.options(), {.rebuild = true}).value();
    CHECK(saved(trained) == saved(wanted.retriever));
  }
  CHECK(loaded(bytes, world(others[1]).options()).failure().message() ==
        "load: the file's IVF training is '2 lists, seed 1, iterations 10, sample 256', this "
        "retriever's is '2 lists, seed 2, iterations 10, sample 256'");
  CHECK(loaded(saved(plain.retriever), here.options()).failure().message() ==
        "load: the file's IVF training is 'none', this retriever's is '2 lists, seed 1, "
        "iterations 10, sample 256'");
  CHECK(saved(loaded(saved(plain.retriever), here.options(), {.rebuild = true}).value()) == bytes);
  // Exact search needs no lists, and how many are read is no matter of training.
  CHECK(saved(loaded(bytes, plain.options()).value()) == saved(plain.retriever));
  const world wide(rag::ivf_options{.lists = 2, .probes = 2});
  const rag::retriever again = loaded(bytes, wide.options()).value();
  CHECK(findings(again) == findings(plain.retriever));
  CHECK(saved(again) == bytes);
}

TEST_CASE("persistence: texts analysed again keep the lists, which belong to the vectors") {
  const world here(two_lists);
  rag::retriever_options other = here.options();
  other.identifiers = {"PAY-##"};
  const std::string moved = with_lists(saved(here.retriever), [](stored_lists& parts) {
    for (std::size_t i = 0; i < 4; ++i) std::swap(parts.centroids[i], parts.centroids[4 + i]);
  });
  const rag::retriever again = loaded(moved, other, {.rebuild = true}).value();
  for (const section& each : sections_of(saved(again))) {
    if (each.kind != lists || !each.tenant.empty()) continue;
    CHECK(stored_lists(each.bytes, 4).centroids ==
          stored_lists(sections_of(moved)[4].bytes, 4).centroids);
  }
}

TEST_CASE("persistence: hostile IVF lists under right hashes are refused with a clear sentence") {
  fakes::setup set(many_lists());
  add_drawn(set);
  const rag::document plain = fakes::page("plain", "without a vector");
  set.store.upsert(plain, fakes::whole(plain));
  rag::retriever_options options = many_lists();
  options.permissions = &set.permissions;
  const std::string bytes = saved(set.store);
  const auto refused = [&](const std::function<void(stored_lists&)>& change) {
    const auto again = loaded(with_lists(bytes, change), options);
    REQUIRE(!again.ok());
    CHECK(again.failure().code() == rag::errc::corrupt_file);
    return again.failure().message();
  };
  using lists_of = stored_lists;
  CHECK(refused([](lists_of& it) { it.centroids[5] = std::numeric_limits<float>::quiet_NaN(); }) ==
        "load: ivf_index: centroid 2: number 2 of 4 is not finite");
  CHECK(refused([](lists_of& it) { it.centroids[4] += 0.01F; }) ==
        "load: ivf_index: centroid 2 is not of length 1");
  CHECK(refused([](lists_of& it) {
          for (std::size_t i = 0; i < 4; ++i) it.centroids[i] = 0;
        }) == "load: ivf_index: centroid 1 is not of length 1");
  CHECK(refused([](lists_of& it) { it.rows[0] = 0; }) == "load: ivf_index: row 0 has no vector");
  CHECK(refused([](lists_of& it) { it.rows[0] = 201; }) ==
        "load: ivf_index: row 201 has no vector");
  CHECK(refused([](lists_of& it) { it.rows[0] = 0xFFFFFFFF; }) ==
        "load: ivf_index: row 4294967295 has no vector");
  CHECK(refused([](lists_of& it) { it.rows[1] = it.rows[0]; }).ends_with(" stands there twice"));
  CHECK(
      refused([](lists_of& it) { it.rows.back() = it.rows[0]; }).ends_with(" stands there twice"));
  CHECK(refused([](lists_of& it) { std::swap(it.rows[0], it.rows[1]); }) ==
        "load: ivf_index: the rows of a list do not rise");
  CHECK(refused([](lists_of& it) {
          it.rows.pop_back();
          --it.sizes.back();
        }) == "load: ivf_index: 189 of 189 rows are in lists, 190 have a vector");
  CHECK(refused([](lists_of& it) { --it.sizes.back(); }) ==
        "load: ivf_index: 189 of 190 rows are in lists, 190 have a vector");
  CHECK(refused([](lists_of& it) { it.sizes[0] = 0; }) ==
        "load: ivf_index: a list of 0 rows, with 190 rows left");
  CHECK(refused([](lists_of& it) { it.sizes[0] = 0xFFFFFFFF; }) ==
        "load: ivf_index: a list of 4294967295 rows, with 190 rows left");
  CHECK(refused([](lists_of& it) {
          it.sizes = {};
          it.rows = {};
          it.centroids = {};
        }) == "load: ivf_index: 0 of 0 rows are in lists, 190 have a vector");
  CHECK(refused([](lists_of& it) {  // more lists than the options allow
          it.sizes.insert(it.sizes.begin(), 1);
          --it.sizes[1];
          for (int i = 0; i < 4; ++i) it.centroids.push_back(0.5F);
        }) == "load: ivf_index: 13 lists and 52 numbers for 190 vectors of 4");
  CHECK(refused([](lists_of& it) { it.centroids.pop_back(); }) ==
        "load: the IVF lists do not fill their section");
  CHECK(refused([](lists_of& it) { it.rows.push_back(0); }).find("rows") != std::string::npos);
}

TEST_CASE("persistence: sections of IVF lists in wrong places are refused") {
  const world here(two_lists);
  const std::string bytes = saved(here.retriever);
  const std::vector<section> right = sections_of(bytes);
  REQUIRE(right.size() == 9);
  CHECK(file_of(bytes, right) == bytes);
  const auto code = [&](const std::function<void(std::vector<section>&)>& change) {
    std::vector<section> sections = right;
    change(sections);
    const auto again = loaded(file_of(bytes, sections), here.options());
    return again.ok() ? rag::errc{} : again.failure().code();
  };
  using table = std::vector<section>;
  CHECK(code([](table& it) { it.erase(it.begin() + 4); }) == rag::errc::incompatible_file);
  CHECK(code([](table& it) { it.insert(it.begin() + 4, it[4]); }) == rag::errc::corrupt_file);
  CHECK(code([](table& it) { std::swap(it[3], it[4]); }) == rag::errc::corrupt_file);
  CHECK(code([](table& it) { std::swap(it[4], it[8]); }) == rag::errc::corrupt_file);
  CHECK(code([](table& it) { it[4].tenant = "acme"; }) == rag::errc::corrupt_file);
  CHECK(code([](table& it) { it[4].kind = 6; }) != rag::errc{});
  CHECK(code([](table& it) { it.resize(3); }) == rag::errc::corrupt_file);
  CHECK(code([](table& it) { it[4].bytes.clear(); }) == rag::errc::corrupt_file);
  CHECK(code([](table& it) { std::swap(it[4].bytes, it[8].bytes); }) == rag::errc::corrupt_file);
}

}  // namespace persistence_tests
