// Section 16: an index as bytes and back; every damaged file is an error.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <rag_retrieve.hpp>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "fakes.hpp"

namespace {

namespace rag = rag_retrieve;
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

struct world {
  rag::access_directory people;
  rag::retriever retriever{options()};

  world() {
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
    return {.embed = letters(), .permissions = &people, .identifiers = {"PAY-###"}};
  }
};

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

/// FNV-1a, to give changed bytes right hashes again.
std::uint64_t hash_of(std::string_view bytes) {
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash;
}
std::uint64_t number_at(const std::string& bytes, std::size_t at, int count) {
  std::uint64_t value = 0;
  for (int i = count; i-- > 0;) {
    value = (value << 8) | static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)]);
  }
  return value;
}
void put_number(std::string& bytes, std::size_t at, std::uint64_t value) {
  for (std::size_t i = 0; i < 8; ++i) bytes[at + i] = static_cast<char>((value >> (8 * i)) & 0xFF);
}

/// Makes all hashes of a file right, as an attacker would. False if the table itself is broken.
bool rehash(std::string& file) {
  constexpr std::size_t head = 32;  // magic, version, count, length of the table; then its hash
  const std::uint64_t count = number_at(file, 16, 8);
  const std::uint64_t length = number_at(file, 24, 8);
  if (length > file.size() - head - 8) return false;
  std::size_t at = head + 8;
  std::size_t bytes_at = at + static_cast<std::size_t>(length);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (at + 12 > file.size()) return false;
    const std::uint64_t tenant = number_at(file, at + 4, 8);
    if (tenant > file.size() - at - 12) return false;
    at += 12 + static_cast<std::size_t>(tenant);
    if (at + 16 > file.size() || bytes_at > file.size()) return false;
    const std::uint64_t size = number_at(file, at, 8);
    if (size > file.size() - bytes_at) return false;
    const auto bytes = std::string_view(file).substr(bytes_at, static_cast<std::size_t>(size));
    put_number(file, at + 8, hash_of(bytes));
    at += 16;
    bytes_at += bytes.size();
  }
  put_number(
      file, head,
      hash_of(file.substr(0, head) + file.substr(head + 8, static_cast<std::size_t>(length))));
  return true;
}

}  // namespace

TEST_CASE("persistence: a loaded index answers as the saved one, bit for bit, tenant by tenant") {
  const world here;
  const std::string bytes = saved(here.retriever);
  const rag::retriever again = loaded(bytes, here.options()).value();
  CHECK(findings(again) == findings(here.retriever));
  CHECK(findings(again, "acme") == findings(here.retriever, "acme"));
  CHECK(findings(again).find("gateway#pay-042-rejected") != std::string::npos);
  CHECK(again.snapshot().number() == here.retriever.snapshot().number());
}

TEST_CASE("persistence: saving what was loaded gives the same bytes, through streams as well") {
  const world here;
  const std::string bytes = saved(here.retriever);
  CHECK(saved(loaded(bytes, here.options()).value()) == bytes);
  std::istringstream in(bytes, std::ios::binary);
  CHECK(saved(rag::load(in, here.options())) == bytes);
}

TEST_CASE("persistence: an empty retriever is saved and loaded") {
  const rag::retriever empty;
  const auto again = loaded(saved(empty), {});
  REQUIRE(again.ok());
  CHECK(again->snapshot().number() == 0);
}

TEST_CASE("persistence: a loaded index goes on: updates, access changes, reuse of vectors") {
  world here;
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

TEST_CASE("persistence: what was erased is in no newly saved file") {
  world here;
  CHECK(saved(here.retriever).find("A rotated key.") != std::string::npos);
  here.retriever.erase("closed");
  CHECK(saved(here.retriever).find("A rotated key.") == std::string::npos);
}

TEST_CASE("persistence: every flipped byte is refused as corrupt_file or an incompatible format") {
  const world here;
  const std::string bytes = saved(here.retriever);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const int mask : {0x01, 0x80, 0xFF}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(static_cast<unsigned char>(changed[at]) ^ mask);
      const auto again = loaded(changed, here.options());
      REQUIRE_MESSAGE(!again.ok(), "byte ", at);
      REQUIRE(again.failure().code() == rag::errc::corrupt_file);
    }
  }
}

TEST_CASE("persistence: every truncation and every byte too many is refused as corrupt_file") {
  const world here;
  const std::string bytes = saved(here.retriever);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const auto again = loaded(bytes.substr(0, length), here.options());
    REQUIRE_MESSAGE(!again.ok(), "length ", length);
    REQUIRE(again.failure().code() == rag::errc::corrupt_file);
  }
  CHECK(!loaded(bytes + '\0', here.options()).ok());
}

TEST_CASE("persistence: hostile bytes under right hashes give an error or a sound index") {
  const world here;
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

TEST_CASE("persistence: a count of 2^62 is refused before anything is allocated for it") {
  const world here;
  const std::string bytes = saved(here.retriever);
  for (std::size_t at = 40; at + 8 < bytes.size(); ++at) {
    std::string changed = bytes;
    put_number(changed, at, std::uint64_t{1} << 62);
    if (rehash(changed)) static_cast<void>(loaded(changed, here.options()).ok());
  }
  CHECK(loaded(bytes, here.options()).ok());
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
