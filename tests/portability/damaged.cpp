// Damaged index files where exceptions are off: every byte flipped, every truncation, and hostile
// numbers under right hashes. Each is an error or a sound index, and none takes more memory than a
// fixed multiple of the file. With exceptions on it says the same.
#include <cstdio>
#include <cstdlib>
#include <new>
#include <rag_retrieve.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "../index_bytes.hpp"

namespace {

std::size_t held = 0;  // bytes that operator new has given out and not got back
std::size_t most_held = 0;
constexpr std::size_t most_at_once = std::size_t{1} << 30;
constexpr std::size_t before = 16;  // room for the size, and for any alignment

void* take(std::size_t size) {
  void* block = size > most_at_once ? nullptr : std::malloc(size + before);
  if (block == nullptr) {
    std::puts("an allocation failed");
    std::exit(1);
  }
  *static_cast<std::size_t*>(block) = size;
  held += size;
  if (held > most_held) most_held = held;
  return static_cast<char*>(block) + before;
}
void give(void* at) {
  if (at == nullptr) return;
  void* block = static_cast<char*>(at) - before;
  held -= *static_cast<std::size_t*>(block);
  std::free(block);
}

}  // namespace

void* operator new(std::size_t size) { return take(size); }
void* operator new[](std::size_t size) { return take(size); }
void operator delete(void* at) noexcept { give(at); }
void operator delete[](void* at) noexcept { give(at); }
void operator delete(void* at, std::size_t) noexcept { give(at); }
void operator delete[](void* at, std::size_t) noexcept { give(at); }

namespace {

namespace rag = rag_retrieve;

struct counts {
  std::size_t tried = 0, loaded = 0, most = 0;
};

rag::retriever_options options_for(const rag::access_directory& people) {
  // The dimension is not known before the first vector comes.
  rag::retriever_options options;
  options.permissions = &people;
  options.identifiers = {"PAY-###"};
  options.embed.model = "m";
  return options;
}

/// A page of a parent and two children with vectors, and a page of another tenant.
std::string small_index(const rag::access_directory& people, bool vectors) {
  rag::retriever retriever = rag::retriever::try_make(options_for(people)).value();
  rag::document page;
  page.id = "a";
  page.text = "# Page\n\n## A\n\nPAY-042 is stale.\n\n## B\n\nRotate the key.\n";
  page.allowed_groups = {"all"};
  page.metadata = {{"kind", std::string("page")}, {"size", 3.5}};
  std::vector<rag::chunk> chunks = rag::try_chunk_parent_child(page).value();
  for (std::size_t i = 1; i < chunks.size() && vectors; ++i) {
    chunks[i].vector = rag::embedding{"m", {1.0F, static_cast<float>(i)}};
  }
  static_cast<void>(retriever.try_upsert(page, chunks).value());
  rag::document other;
  other.id = "a";
  other.tenant = "acme";
  other.text = "Another key.";
  other.allowed_groups = {"all"};
  static_cast<void>(retriever.try_upsert(other, rag::try_chunk_recursive(other).value()).value());
  std::ostringstream out(std::ios::binary);
  rag::try_save(retriever, out).value();
  return out.str();
}

/// Loads, asks something where that works, and notes how much memory it took.
bool loads(const std::string& bytes, const rag::access_directory& people, counts& seen) {
  const std::size_t at_first = held;
  most_held = held;
  const auto back = rag::try_load(std::as_bytes(std::span(bytes)), options_for(people));
  if (back) {
    const auto reader = back->try_scope_for({"", "reader"});
    rag::query asked;
    asked.text = "PAY-042 key";
    if (reader) static_cast<void>(back->try_search(asked, *reader).ok());
    ++seen.loaded;
  }
  ++seen.tried;
  if (most_held - at_first > seen.most) seen.most = most_held - at_first;
  return back.ok();
}

/// Twenty chunks over the same 2,000 words: what is read of them is not twenty times the text.
bool overlaps_are_bounded(const rag::access_directory& people) {
  rag::retriever retriever = rag::retriever::try_make(options_for(people)).value();
  rag::document page;
  page.id = "o";
  for (int i = 0; i < 2000; ++i) page.text += "a ";
  std::vector<rag::chunk> chunks(20);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    chunks[i].id = "o" + std::to_string(i);
    chunks[i].document_id = page.id;
    chunks[i].range = chunks[i].body = {0, page.text.size()};
  }
  static_cast<void>(retriever.try_upsert(page, chunks).value());
  std::ostringstream out(std::ios::binary);
  rag::try_save(retriever, out).value();
  counts seen;
  loads(out.str(), people, seen);
  std::printf("overlaps: the file %zu bytes, memory for it %zu\n", out.str().size(), seen.most);
  return seen.loaded == 1 && seen.most <= 16 * out.str().size();
}

bool all_refused(const rag::access_directory& people, bool vectors) {
  const std::string bytes = small_index(people, vectors);
  counts whole, damaged, hostile;
  if (!loads(bytes, people, whole)) {
    std::puts("the index itself was refused");
    return false;
  }
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const int mask : {0x01, 0x80, 0xFF}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(static_cast<unsigned char>(changed[at]) ^ mask);
      loads(changed, people, damaged);
    }
    loads(bytes.substr(0, at), people, damaged);
  }
  constexpr std::uint64_t one = 1;
  for (std::size_t at = 12; at + 8 < bytes.size(); ++at) {
    for (const std::uint64_t number :
         {one << 20, one << 31, one << 40, one << 62, ~std::uint64_t{0}}) {
      std::string changed = bytes;
      index_bytes::put_number(changed, at, number);
      if (index_bytes::rehash(changed)) loads(changed, people, hostile);
    }
  }
  const bool bounded = damaged.most <= 8 * bytes.size() && hostile.most <= 4 * whole.most;
  std::printf("%zu damaged files, %zu of them loaded; %zu hostile ones; memory %s\n", damaged.tried,
              damaged.loaded, hostile.tried, bounded ? "bounded" : "not bounded");
  std::printf(
      "bytes: the file %zu, memory for it %zu, for damaged ones %zu, for hostile ones %zu\n",
      bytes.size(), whole.most, damaged.most, hostile.most);
  return damaged.loaded == 0 && bounded && hostile.loaded < hostile.tried / 2;
}

}  // namespace

int main() {
  rag::access_directory people;
  people.set_groups({"", "reader"}, {"all"});
  const bool good = all_refused(people, true) && all_refused(people, false);
  return overlaps_are_bounded(people) && good ? 0 : 1;
}
