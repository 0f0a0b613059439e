// rag - cuts documents into chunks, and searches them.
//
//   rag chunk notes.md --chunker structure --jsonl
//   rag search data/rust-errors "what does E0382 mean and how do I fix it" --identifier 'E####'
//
// The tool is a thin coat over rag_retrieve.hpp: it reads files, says what is wrong with them, and
// prints what the header returns. Results go to standard output, all else to standard error.
// Exit status: 0 done, 1 the input is bad, 2 wrong usage.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <rag_retrieve.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if defined(_WIN32)
#include <io.h>
#else
#include <unistd.h>
#endif

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace {

namespace fs = std::filesystem;
namespace rag = rag_retrieve;
using json = nlohmann::ordered_json;

// ---- Failures, messages and numbers -------------------------------------------------------------

/// Ends the program with a status and one line on standard error.
struct failure {
  int status = 1;
  std::string message;
};

[[noreturn]] void fail(const std::string& message) { throw failure{1, "rag: " + message}; }
[[noreturn]] void misuse(const std::string& message) { throw failure{2, "rag: " + message}; }

std::string at_line(std::string_view file, std::size_t line, std::string_view message) {
  return std::string(file) + ":" + std::to_string(line) + ": " + std::string(message);
}

/// What is wrong with the input without making it useless: a line each, or the end with --strict.
class complaints {
 public:
  explicit complaints(bool strict) : strict_(strict) {}

  void about(std::string_view file, std::size_t line, std::string_view message) const {
    const std::string sentence = at_line(file, line, message);
    if (strict_) throw failure{1, sentence};
    std::cerr << sentence << '\n';
  }

 private:
  bool strict_;
};

/// One line of JSON. Bytes that are not UTF-8 are written as U+FFFD.
std::string written(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// The shortest decimal number that reads back to the same double.
std::string written(double number) { return json(number).dump(); }

std::string joined(const std::vector<std::string>& parts, std::string_view between) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += between;
    text += part;
  }
  return text;
}

/// A bar on standard error, once work has lasted a second and if somebody is there to see it.
class progress {
 public:
  progress(std::string label, std::size_t total) : label_(std::move(label)), total_(total) {}
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;
  ~progress() {
    if (shown_) std::cerr << "\r\033[K" << std::flush;
  }

  void step() {
    ++done_;
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || now - begin_ < std::chrono::seconds(1)) return;
    if (shown_ && now - last_ < std::chrono::milliseconds(100)) return;
    const std::size_t width = 30;
    const std::size_t filled = width * done_ / (std::max)(total_, std::size_t{1});
    std::cerr << '\r' << label_ << " [" << std::string(filled, '#')
              << std::string(width - filled, ' ') << "] " << done_ << '/' << total_ << std::flush;
    shown_ = true;
    last_ = now;
  }

 private:
  static bool is_terminal() {
#if defined(_WIN32)
    return _isatty(2) != 0;
#else
    return isatty(2) != 0;
#endif
  }

  std::string label_;
  std::size_t total_, done_ = 0;
  bool terminal_ = is_terminal(), shown_ = false;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now(), last_;
};

// ---- Reading files ------------------------------------------------------------------------------

/// The bytes of a file; "-" is standard input.
std::string read_file(const std::string& path) {
  if (path == "-") {
    return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  }
  const fs::path name(path);
  if (!fs::exists(name)) fail(path + ": no such file or folder");
  if (fs::is_directory(name)) fail(path + ": is a folder; a file was expected");
  std::ifstream file(name, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) fail(path + ": cannot be read");
  return bytes;
}

/// Where the first byte stands that is not UTF-8, as a line from 1; 0: nowhere.
std::size_t first_invalid_line(std::string_view text) {
  if (rag::is_valid_utf8(text)) return 0;
  std::size_t line = 1;
  for (std::size_t at = 0; at < text.size();) {
    const rag::code_point next = rag::decode(text, at);
    if (!next.valid) return line;
    if (next.value == U'\n') ++line;
    at += next.length;
  }
  return line;
}

/// Calls visit(line, number) for every line that is not blank, numbered from 1.
template <class Visit>
void for_each_line(std::string_view text, const Visit& visit) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = (std::min)(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) visit(line, number);
    text.remove_prefix((std::min)(end + 1, text.size()));
  }
}

/// A line that is not what it should be.
struct bad_line {
  std::string message;
};

// JSON text must be UTF-8, but a document whose text is not is kept, byte for byte. So a byte that
// is not UTF-8 goes through the parser as a character of its own, from a corner of the private
// planes: byte 0x80 + n as U+10FF80 + n.
constexpr char32_t stand_in_base = 0x10FF00;

std::string with_stand_ins(std::string_view line) {
  std::string text;
  for (std::size_t at = 0; at < line.size();) {
    const rag::code_point next = rag::decode(line, at);
    if (next.valid) {
      text += line.substr(at, next.length);
    } else {
      rag::append_utf8(text, stand_in_base + static_cast<unsigned char>(line[at]));
    }
    at += next.length;
  }
  return text;
}

std::string without_stand_ins(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const rag::code_point next = rag::decode(text, at);
    if (next.valid && next.value >= stand_in_base + 0x80 && next.value <= stand_in_base + 0xFF) {
      bytes += static_cast<char>(static_cast<unsigned char>(next.value - stand_in_base));
    } else {
      bytes += text.substr(at, next.length);
    }
    at += next.length;
  }
  return bytes;
}

/// Down to the lists inside metadata; what lies deeper is no field of a document.
void restore_bytes(json& value, int levels = 3) {
  if (value.is_string()) {
    value = without_stand_ins(value.get_ref<const std::string&>());
  } else if (value.is_structured() && levels > 0) {
    for (json& item : value) restore_bytes(item, levels - 1);
  }
}

/// Parses a line that holds one JSON object.
json parse_object(std::string_view line) {
  const bool valid = rag::is_valid_utf8(line);
  json object;
  try {
    object = json::parse(valid ? std::string(line) : with_stand_ins(line));
  } catch (const json::exception& problem) {
    // "[json.exception.parse_error.101] parse error at line 1, column 9: ...; last read: '...'"
    std::string message = problem.what();
    message.erase((std::min)(message.find("; last read"), message.size()));
    message.erase(0, (std::min)(message.find("column "), message.size()));
    throw bad_line{"not JSON: " + message};
  }
  if (!object.is_object()) throw bad_line{"a JSON object was expected"};
  if (!valid) restore_bytes(object);
  return object;
}

/// A member that is text; nothing if it is absent.
std::optional<std::string> text_member(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return std::nullopt;
  if (!found->is_string()) throw bad_line{std::string("\"") + name + "\" must be text"};
  return found->get<std::string>();
}

std::string required_text(const json& object, const char* name) {
  auto text = text_member(object, name);
  if (!text) throw bad_line{std::string("\"") + name + "\" is missing"};
  return *text;
}

std::vector<std::string> list_of_text(const json& value, const std::string& name) {
  std::vector<std::string> items;
  if (!value.is_array()) throw bad_line{"\"" + name + "\" must be a list of text"};
  for (const json& item : value) {
    if (!item.is_string()) throw bad_line{"\"" + name + "\" must be a list of text"};
    items.push_back(item.get<std::string>());
  }
  return items;
}

/// Who may read; nothing if the line does not say.
std::optional<std::vector<std::string>> groups_member(const json& object) {
  const auto found = object.find("allowed_groups");
  if (found == object.end()) return std::nullopt;
  auto groups = list_of_text(*found, "allowed_groups");
  if (std::find(groups.begin(), groups.end(), "") != groups.end()) {
    throw bad_line{"\"allowed_groups\" holds an empty group"};
  }
  return groups;
}

// ---- Who may read which document ----------------------------------------------------------------

/// What an access file says about a document, or about all whose ids begin alike.
struct access_rule {
  std::optional<std::string> tenant;
  std::vector<std::string> groups;
};

/// Gives documents their groups: one list for all, or the lines of an access file.
class access_rules {
 public:
  /// The same groups for all documents.
  explicit access_rules(std::vector<std::string> groups) : for_all_(std::move(groups)) {}

  /// The lines of an access file. Any bad line is fatal.
  static access_rules from_file(const std::string& path) {
    access_rules rules{std::vector<std::string>{}};
    rules.from_file_ = true;
    const std::string text = read_file(path);
    for_each_line(text, [&](std::string_view line, std::size_t number) {
      try {
        rules.add(parse_object(line));
      } catch (const bad_line& problem) {
        throw failure{1, at_line(path, number, problem.message)};
      }
    });
    return rules;
  }

  /// Sets what the document does not say of itself.
  void apply(rag::document& page, bool has_groups) const {
    if (!from_file_) {
      if (!has_groups) page.allowed_groups = for_all_;
      return;
    }
    const access_rule* rule = find(page.id);
    if (rule == nullptr) return;
    if (rule->tenant && page.tenant.empty()) page.tenant = *rule->tenant;
    if (rule->tenant && page.tenant != *rule->tenant) return;  // groups of another tenant
    if (!has_groups) page.allowed_groups = rule->groups;
  }

 private:
  void add(const json& line) {
    const auto id = text_member(line, "id");
    const auto prefix = text_member(line, "prefix");
    if (id.has_value() == prefix.has_value()) {
      throw bad_line{"either \"id\" or \"prefix\" was expected"};
    }
    auto groups = groups_member(line);
    if (!groups) throw bad_line{"\"allowed_groups\" is missing"};
    const access_rule rule{text_member(line, "tenant"), std::move(*groups)};
    if (!(id ? by_id_ : by_prefix_).try_emplace(id ? *id : *prefix, rule).second) {
      throw bad_line{(id ? "id " : "prefix ") + written(json(id ? *id : *prefix)) +
                     " stands in an earlier line"};
    }
    if (prefix) prefix_lengths_.insert(prefix->size());
  }

  /// A line with the id wins, else the longest prefix.
  const access_rule* find(const std::string& id) const {
    if (const auto found = by_id_.find(id); found != by_id_.end()) return &found->second;
    for (const std::size_t length : prefix_lengths_) {
      if (length > id.size()) continue;
      const auto found = by_prefix_.find(id.substr(0, length));
      if (found != by_prefix_.end()) return &found->second;
    }
    return nullptr;
  }

  bool from_file_ = false;
  std::vector<std::string> for_all_;
  std::map<std::string, access_rule> by_id_, by_prefix_;
  std::set<std::size_t, std::greater<>> prefix_lengths_;
};

// ---- Reading documents --------------------------------------------------------------------------

/// The first level-1 heading, else the name of the file without its extension.
std::string title_of(std::string_view text, const fs::path& name) {
  for (const rag::markdown_heading& heading : rag::markdown_headings(text)) {
    if (heading.level == 1) return heading.title;
  }
  return name.stem().string();
}

std::uint64_t revision_member(const json& object) {
  const auto found = object.find("revision");
  if (found == object.end()) return 0;
  if (!found->is_number_unsigned()) throw bad_line{"\"revision\" must be a whole number from 0"};
  return found->get<std::uint64_t>();
}

std::map<std::string, rag::metadata_value> metadata_member(const json& object) {
  std::map<std::string, rag::metadata_value> metadata;
  const auto found = object.find("metadata");
  if (found == object.end()) return metadata;
  if (!found->is_object()) throw bad_line{"\"metadata\" must be an object"};
  for (const auto& [key, value] : found->items()) {
    if (value.is_string()) {
      metadata[key] = value.get<std::string>();
    } else if (value.is_number()) {
      metadata[key] = value.get<double>();
    } else {
      metadata[key] = list_of_text(value, "metadata." + key);
    }
  }
  return metadata;
}

/// Reads documents from folders, files and lines of JSON, and gives each its groups.
class document_reader {
 public:
  document_reader(access_rules access, bool strict)
      : access_(std::move(access)), complaints_(strict) {}

  /// A folder, a file, docs.jsonl, or "-". Returns the documents in the order of their ids, those
  /// of JSON lines in the order of the lines.
  std::vector<rag::document> read(const std::string& source) {
    std::vector<rag::document> documents;
    if (source != "-" && fs::is_directory(source)) {
      read_folder(source, documents);
    } else {
      std::string text = read_file(source);
      const bool lines =
          source == "-" ? opens_with_document(text) : fs::path(source).extension() == ".jsonl";
      if (lines) {
        read_lines(source, text, documents);
      } else {
        const fs::path name = fs::path(source).filename();
        documents.push_back(whole_file(source, name.string(), std::move(text)));
      }
    }
    return documents;
  }

 private:
  /// Every .md, .markdown and .txt below; the id is the path relative to the folder.
  void read_folder(const fs::path& folder, std::vector<rag::document>& documents) {
    std::map<std::string, fs::path> files;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
      const std::string ending = entry.path().extension().string();
      if (ending != ".md" && ending != ".markdown" && ending != ".txt") continue;
      if (!entry.is_regular_file()) continue;
      files.emplace(entry.path().lexically_relative(folder).generic_string(), entry.path());
    }
    progress bar("reading", files.size());
    for (const auto& [id, path] : files) {
      documents.push_back(whole_file(path.string(), id, read_file(path.string())));
      bar.step();
    }
  }

  rag::document whole_file(const std::string& path, const std::string& id, std::string text) {
    if (const std::size_t line = first_invalid_line(text); line != 0) {
      complaints_.about(path, line, "not valid UTF-8; the text is kept as it is");
    }
    rag::document page{.id = id, .title = title_of(text, fs::path(id)), .text = std::move(text)};
    access_.apply(page, false);
    return page;
  }

  /// Whether standard input is lines of JSON: its first line is an object with an id.
  static bool opens_with_document(std::string_view text) {
    const std::size_t end = (std::min)(text.find('\n'), text.size());
    const json line = json::parse(with_stand_ins(text.substr(0, end)), nullptr, false);
    return line.is_object() && line.contains("id");
  }

  void read_lines(const std::string& path, std::string_view text,
                  std::vector<rag::document>& documents) {
    std::map<std::pair<std::string, std::string>, std::size_t> line_of;  // (tenant, id)
    for_each_line(text, [&](std::string_view line, std::size_t number) {
      try {
        rag::document page = from_line(line);
        const auto [seen, is_new] = line_of.try_emplace({page.tenant, page.id}, number);
        if (!is_new) {
          throw bad_line{"id " + written(json(page.id)) + " stands in line " +
                         std::to_string(seen->second)};
        }
        if (!rag::is_valid_utf8(line)) {
          complaints_.about(path, number, "not valid UTF-8; the text is kept as it is");
        }
        documents.push_back(std::move(page));
      } catch (const bad_line& problem) {
        complaints_.about(path, number, problem.message + "; the line is left out");
      }
    });
  }

  rag::document from_line(std::string_view line) const {
    const json object = parse_object(line);
    rag::document page;
    page.id = required_text(object, "id");
    if (page.id.empty()) throw bad_line{"\"id\" is empty"};
    page.text = required_text(object, "text");
    page.title = text_member(object, "title").value_or("");
    page.tenant = text_member(object, "tenant").value_or("");
    page.revision = revision_member(object);
    page.metadata = metadata_member(object);
    const auto groups = groups_member(object);
    page.allowed_groups = groups.value_or(std::vector<std::string>{});
    access_.apply(page, groups.has_value());
    return page;
  }

  access_rules access_;
  complaints complaints_;
};

// ---- Chunkers -----------------------------------------------------------------------------------

/// What the command line says about cutting.
struct chunker_settings {
  std::string chunker = "recursive";
  std::string unit = "word";
  std::size_t chunk_size = rag::default_chunk_size;
  std::size_t overlap = 0;
  std::size_t max_heading_level = 6;
  bool heading_level_given = false;
  std::vector<std::string> identifiers;

  [[nodiscard]] bool is_one_of(std::initializer_list<std::string_view> names) const {
    return std::find(names.begin(), names.end(), chunker) != names.end();
  }
};

/// Refuses what cannot hold together, before any file is read.
void check(const chunker_settings& settings) {
  if (settings.overlap > 0 && !settings.is_one_of({"fixed", "packed", "recursive"})) {
    misuse("--overlap has no meaning with --chunker " + settings.chunker +
           "; fixed, packed and recursive overlap");
  }
  if (settings.overlap >= settings.chunk_size) {
    misuse("--overlap " + std::to_string(settings.overlap) + " must be below --chunk-size " +
           std::to_string(settings.chunk_size));
  }
  if (settings.heading_level_given && !settings.is_one_of({"structure", "recursive"})) {
    misuse("--max-heading-level has no meaning with --chunker " + settings.chunker +
           "; structure and recursive look at headings");
  }
}

rag::identifier_finder finder_for(const chunker_settings& settings) {
  auto finder = rag::identifier_finder::try_make({.patterns = settings.identifiers});
  if (!finder) misuse("--identifier: " + finder.failure().message());
  return std::move(*finder);
}

/// One token for each code point, white space included.
rag::tokenizer code_points() {
  return {.split = [](std::string_view text) {
    std::vector<rag::byte_range> tokens;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t next = at + rag::decode(text, at).length;
      tokens.push_back({at, next});
      at = next;
    }
    return tokens;
  }};
}

/// One token for each byte.
rag::tokenizer bytes() {
  return {.count = [](std::string_view text) { return text.size(); },
          .split =
              [](std::string_view text) {
                std::vector<rag::byte_range> tokens(text.size());
                for (std::size_t at = 0; at < text.size(); ++at) tokens[at] = {at, at + 1};
                return tokens;
              }};
}

rag::tokenizer tokenizer_for(const std::string& unit) {
  if (unit == "code-point") return code_points();
  if (unit == "byte") return bytes();
  return {};
}

std::vector<rag::chunk> cut(const rag::document& page, const chunker_settings& settings) {
  const rag::tokenizer tokens = tokenizer_for(settings.unit);
  const std::size_t size = settings.chunk_size;
  if (settings.chunker == "whole") return rag::chunk_whole(page, {.tokens = tokens});
  if (settings.chunker == "fixed") {
    return rag::chunk_fixed(page,
                            {.chunk_size = size, .overlap = settings.overlap, .tokens = tokens});
  }
  if (settings.chunker == "sentence") {
    return rag::chunk_sentences(page, {.chunk_size = size, .tokens = tokens});
  }
  if (settings.chunker == "packed") {
    return rag::chunk_packed(page,
                             {.chunk_size = size, .overlap = settings.overlap, .tokens = tokens});
  }
  if (settings.chunker == "structure") {
    return rag::chunk_structure(
        page,
        {.max_heading_level = settings.max_heading_level, .chunk_size = size, .tokens = tokens});
  }
  return rag::chunk_recursive(page, {.chunk_size = size,
                                     .overlap = settings.overlap,
                                     .max_heading_level = settings.max_heading_level,
                                     .tokens = tokens});
}

/// The codes of a chunk as they are written, each once: of the title, its heading, its body.
std::vector<std::string> codes_of(const rag::document& page, const rag::chunk& piece,
                                  const rag::identifier_finder& finder) {
  std::vector<std::string> codes;
  std::set<std::string> seen;
  const auto collect = [&](std::string_view text) {
    for (const rag::identifier_match& match : finder.find(text)) {
      if (!seen.insert(match.value).second) continue;
      codes.push_back(rag::normalise_identifier(rag::slice(text, match.where), true));
    }
  };
  collect(page.title);
  collect(piece.heading);
  collect(rag::slice(page.text, piece.body));
  return codes;
}

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
void list_gap(const rag::document& page, rag::byte_range between) {
  const rag::byte_range gap = rag::trim(page.text, between);
  if (gap.empty()) return;
  std::cout << "---- " << bracketed(gap) << " in no chunk\n"
            << rag::slice(page.text, gap) << "\n\n";
}

/// One chunk of the listing: where it was cut, what it repeats, and its text.
void list_chunk(const rag::document& page, const rag::chunk& piece, std::size_t number,
                std::size_t reached, const rag::identifier_finder& finder) {
  list_gap(page, {reached, (std::max)(reached, piece.range.begin)});
  std::cout << "---- " << number << "  " << piece.id << "  " << bracketed(piece.range) << "  "
            << piece.token_count << " tokens" << (piece.oversize ? ", above the limit\n" : "\n");
  if (!piece.heading_path.empty()) {
    std::cout << "     " << joined(piece.heading_path, " > ") << '\n';
  }
  if (const auto codes = codes_of(page, piece, finder); !codes.empty()) {
    std::cout << "     codes: " << joined(codes, ", ") << '\n';
  }
  if (piece.range.begin < reached) {
    const rag::byte_range repeated{piece.range.begin, (std::min)(reached, piece.range.end)};
    std::cout << "     repeats " << bracketed(repeated) << " of the chunk before\n";
  }
  std::cout << rag::chunk_text(page, piece) << "\n\n";
}

void list_chunks(const rag::document& page, const std::vector<rag::chunk>& chunks,
                 const rag::identifier_finder& finder) {
  std::cout << "==== " << page.id << "  " << page.text.size() << " bytes, " << chunks.size()
            << (chunks.size() == 1 ? " chunk\n\n" : " chunks\n\n");
  std::size_t reached = 0;  // every byte before it has been shown
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    list_chunk(page, chunks[i], i + 1, reached, finder);
    reached = (std::max)(reached, chunks[i].range.end);
  }
  list_gap(page, {reached, page.text.size()});
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
  document_reader reader(access_rules({"everyone"}), command.strict);
  std::vector<std::pair<std::string, std::vector<rag::document>>> sources;
  for (const std::string& file : command.files) sources.push_back({file, reader.read(file)});
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

// ---- rag search ---------------------------------------------------------------------------------

struct search_command {
  std::string source, question;
  chunker_settings chunking;
  std::string groups_of_documents, access_file, tenant;
  bool groups_given = false, access_given = false;
  std::vector<std::string> reader_groups;
  std::string mode = "lexical";
  std::size_t limit = 12, offset = 0, per_document = 2;
  std::optional<std::size_t> budget;
  bool explain = false, as_json = false, strict = false;
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

void check(const search_command& command) {
  check(command.chunking);
  if (command.groups_given && command.access_given) {
    misuse("--groups and --access contradict each other: both say who may read the documents");
  }
  if (command.mode != "lexical") {
    misuse("--mode " + command.mode + " needs vectors, and the documents have none");
  }
  if ((command.source == "-") + (command.question == "-") + (command.access_file == "-") > 1) {
    misuse("standard input (-) can be read once");
  }
  for (const std::string& group : command.reader_groups) {
    if (group.empty()) misuse("--group: a group needs a name");
  }
}

access_rules rules_for(const search_command& command) {
  if (command.access_given) return access_rules::from_file(command.access_file);
  if (!command.groups_given) return access_rules({"everyone"});
  return access_rules(group_list(command.groups_of_documents, "--groups"));
}

/// Documents cut and indexed in memory.
rag::retriever indexed(std::vector<rag::document> documents, const chunker_settings& settings,
                       const rag::access_directory& people) {
  std::vector<rag::chunked_document> inputs;
  progress bar("indexing", documents.size());
  for (rag::document& page : documents) {
    std::vector<rag::chunk> chunks = cut(page, settings);
    for (rag::chunk& piece : chunks) {  // a budget counts words, whatever the unit of the sizes
      piece.token_count = rag::count_words(rag::search_text(page, piece));
    }
    inputs.push_back({std::move(page), std::move(chunks)});
    bar.step();
  }
  rag::retriever retriever({.permissions = &people, .identifiers = settings.identifiers});
  retriever.upsert(inputs);
  return retriever;
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

json explanation_as_json(const rag::answer& found) {
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
                       {"reason", each.reason}});
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
  if (command.explain) object["explain"] = explanation_as_json(found);
  std::cout << written(object) << '\n';
}

void print_passage(const rag::permitted_passage& passage, std::size_t rank) {
  std::vector<std::string> titles = passage.heading_path();
  if (!passage.title().empty() && (titles.empty() || titles.front() != passage.title())) {
    titles.insert(titles.begin(), passage.title());
  }
  std::cout << '[' << rank << "] " << passage.id() << '\n';
  if (!titles.empty()) std::cout << "    " << joined(titles, " > ") << '\n';
  std::cout << "    score " << written(passage.score()) << "; " << passage.why() << "\n\n"
            << passage.text() << "\n\n";
}

/// Each term's numbers for the passages that are shown, and what became of the other candidates.
void print_explanation(const rag::answer& found) {
  std::cout << "BM25: what each term of the question adds\n";
  for (const auto& [id, explained] : found.trace.bm25) {
    const bool shown = std::any_of(found.passages.begin(), found.passages.end(),
                                   [&id = id](const auto& passage) { return passage.id() == id; });
    if (!shown) continue;
    std::cout << "  " << id << "  " << written(explained.score) << ", " << explained.length
              << " terms, on average " << written(explained.average_length) << '\n';
    for (const rag::term_explanation& term : explained.terms) {
      if (term.tf == 0) continue;
      std::cout << "    " << term.term << ": " << term.tf << " here, in " << term.n << " of "
                << explained.chunk_count << " chunks, idf " << written(term.idf) << ", adds "
                << written(term.value) << '\n';
    }
  }
  if (found.mode == rag::search_mode::hybrid) {
    std::cout << "Sums of 1 / (" << written(found.trace.fusion_constant) << " + rank)\n";
    for (const rag::candidate_trace& each : found.trace.candidates) {
      std::cout << "  " << each.id << "  lexical " << each.lexical_rank << ", dense "
                << each.dense_rank << ", sum " << written(each.fused_score) << '\n';
    }
  }
  std::cout << (found.trace.dropped.empty() ? "Nothing was dropped\n" : "Dropped\n");
  for (const rag::drop& each : found.trace.dropped) {
    std::cout << "  " << each.id << "  " << rag::name_of(each.stage) << ": " << each.reason << '\n';
  }
}

int run(search_command command) {
  check(command);
  static_cast<void>(finder_for(command.chunking));
  if (command.groups_given) group_list(command.groups_of_documents, "--groups");
  document_reader reader(rules_for(command), command.strict);
  if (command.question == "-") {
    command.question = read_file("-");
    while (command.question.ends_with('\n') || command.question.ends_with('\r')) {
      command.question.pop_back();
    }
  }
  rag::access_directory people;
  const rag::principal who{.tenant = command.tenant, .user = "reader"};
  if (command.reader_groups.empty()) command.reader_groups = {"everyone"};
  people.set_groups(who, command.reader_groups);
  const rag::retriever retriever = indexed(reader.read(command.source), command.chunking, people);

  const rag::answer found = retriever.search({.text = command.question,
                                              .mode = rag::search_mode::lexical,
                                              .limit = command.limit,
                                              .offset = command.offset,
                                              .per_document = command.per_document,
                                              .token_budget = command.budget,
                                              .explain = command.explain},
                                             retriever.scope_for(who));
  if (command.as_json) {
    print_json(command, found);
  } else {
    for (std::size_t i = 0; i < found.passages.size(); ++i) {
      print_passage(found.passages[i], command.offset + i + 1);
    }
    if (command.explain) print_explanation(found);
  }
  if (found.passages.empty()) std::cerr << "rag: nothing found\n";
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

void add_chunker_options(CLI::App& app, chunker_settings& settings) {
  app.add_option("--chunker", settings.chunker, "how documents are cut")
      ->check(CLI::IsMember({"whole", "fixed", "sentence", "packed", "structure", "recursive"}))
      ->capture_default_str();
  app.add_option("--chunk-size", settings.chunk_size,
                 "no chunk is larger (whole: as large as the document)")
      ->check(at_least_one())
      ->capture_default_str();
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

void add_reader_options(CLI::App& sub, search_command& command) {
  sub.add_option("--groups", command.groups_of_documents,
                 "a,b: who may read the documents (default: everyone)")
      ->type_name("GROUPS")
      ->each([&command](const std::string&) { command.groups_given = true; });
  sub.add_option("--access", command.access_file,
                 "JSON lines {\"id\" or \"prefix\", \"tenant\"?, \"allowed_groups\"}")
      ->type_name("FILE")
      ->each([&command](const std::string&) { command.access_given = true; });
  sub.add_option("--group", command.reader_groups,
                 "a group of the reader, may be repeated (default: everyone)")
      ->allow_extra_args(false);
  sub.add_option("--tenant", command.tenant, "the reader's tenant");
}

CLI::App* add_search(CLI::App& app, search_command& command) {
  CLI::App* sub = app.add_subcommand("search", "Finds the passages that answer a question");
  sub->add_option("source", command.source,
                  "a folder of .md, .markdown and .txt, a file, docs.jsonl; - is standard input")
      ->required()
      ->type_name("SOURCE");
  sub->add_option("question", command.question, "the question; - is standard input")
      ->required()
      ->type_name("QUESTION");
  add_reader_options(*sub, command);
  sub->add_option("--limit", command.limit, "passages wanted")
      ->check(at_least_one())
      ->capture_default_str();
  sub->add_option("--offset", command.offset, "passages to skip")->capture_default_str();
  sub->add_option("--mode", command.mode, "lexical, until documents have vectors")
      ->check(CLI::IsMember({"lexical", "dense", "hybrid"}))
      ->capture_default_str();
  sub->add_option("--per-document", command.per_document, "passages of one document at most")
      ->check(at_least_one())
      ->capture_default_str();
  sub->add_option("--budget", command.budget, "words of all passages together, headings included")
      ->check(at_least_one());
  add_chunker_options(*sub, command.chunking);
  sub->add_flag("--explain", command.explain, "each term's numbers, and what was dropped and why");
  sub->add_flag("--json", command.as_json, "one JSON object");
  sub->add_flag("--strict", command.strict, "bad input ends the program");
  return sub;
}

/// One line on standard error.
void complain(std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::cerr << message << '\n';
}

int run(int argc, char** argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  if (!word.empty() && !word.starts_with('-') && word != "chunk" && word != "search") {
    misuse("there is no command '" + std::string(word) + "'; there are chunk and search");
  }
  CLI::App app("Cuts documents into chunks, and searches them.", "rag");
  app.set_version_flag("--version", std::string("rag ") + RAG_RETRIEVE_VERSION);
  app.require_subcommand(1);
  chunk_command chunk;
  search_command search;
  const CLI::App* chunk_app = add_chunk(app, chunk);
  add_search(app, search);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {  // --help and --version
    return app.exit(help);
  } catch (const CLI::ParseError& problem) {
    misuse(std::string(problem.what()) + " (--help says what is possible)");
  }
  return chunk_app->parsed() ? run(chunk) : run(std::move(search));
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  try {
    const int status = run(argc, argv);
    if (!std::cout.flush()) fail("standard output cannot be written");
    return status;
  } catch (const failure& problem) {
    complain(problem.message);
    return problem.status;
  } catch (const std::exception& problem) {  // rag::error, files that cannot be read
    complain(std::string("rag: ") + problem.what());
    return 1;
  }
}
