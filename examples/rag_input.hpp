// What the tool rag reads: files, lines of JSON, documents and who may read them. Bad input ends in
// one line on standard error.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
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

#include <nlohmann/json.hpp>

namespace rag_tool {

namespace fs = std::filesystem;
namespace rag = rag_retrieve;
using json = nlohmann::ordered_json;

// ---- Failures, messages and numbers -------------------------------------------------------------

/// Ends the program with a status and one line on standard error.
struct failure {
  int status = 1;
  std::string message;
};

[[noreturn]] inline void fail(const std::string& message) { throw failure{1, "rag: " + message}; }
[[noreturn]] inline void misuse(const std::string& message) { throw failure{2, "rag: " + message}; }

inline std::string at_line(std::string_view file, std::size_t line, std::string_view message) {
  return std::string(file) + ":" + std::to_string(line) + ": " + std::string(message);
}

/// "1 passage", "2 passages".
inline std::string counted(std::size_t count, std::string_view one, std::string_view many = {}) {
  std::string text = std::to_string(count) + " ";
  if (count == 1) return text.append(one);
  return many.empty() ? text.append(one) + "s" : text.append(many);
}

/// Whether a terminal may act on a code point instead of showing it; line ends and tabs are no
/// harm.
inline bool is_control(char32_t value) {
  if (value == U'\n' || value == U'\t') return false;
  return value < 0x20 || (value >= 0x7F && value < 0xA0);
}

/// Text for a terminal, on which no document may move the cursor or change the colours: control
/// characters, and bytes that are not UTF-8, stand as \xNN. A line may end in CR LF.
inline std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const rag::code_point next = rag::decode(text, at);
    const std::string_view bytes = text.substr(at, next.length);
    if (next.valid && (!is_control(next.value) || text.substr(at).starts_with("\r\n"))) {
      out += bytes;
    } else {
      for (const char byte : bytes) {
        char code[8];
        std::snprintf(code, sizeof code, "\\x%02X", static_cast<unsigned>(byte) & 0xFFU);
        out += code;
      }
    }
    at += next.length;
  }
  return out;
}

/// One line on standard error.
inline void say(std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::cerr << printable(message) << '\n';
}

/// What is wrong with the input without making it useless: a line each, or the end with --strict.
class complaints {
 public:
  explicit complaints(bool strict) : strict_(strict) {}

  void about(std::string_view file, std::size_t line, std::string_view message) const {
    const std::string sentence = at_line(file, line, message);
    if (strict_) throw failure{1, sentence};
    say(sentence);
  }

 private:
  bool strict_;
};

/// One line of JSON. Bytes that are not UTF-8 are written as U+FFFD, control characters as \u00NN.
inline std::string written(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  for (std::size_t at = 0; at < text.size(); ++at) {  // dump leaves U+007F to U+009F as they are
    const rag::code_point next = rag::decode(text, at);
    if (!is_control(next.value)) continue;
    char code[16];
    std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(next.value));
    text.replace(at, next.length, code);
  }
  return text;
}

/// The shortest decimal number that reads back to the same double.
inline std::string written(double number) { return json(number).dump(); }

/// Three digits, for people.
inline std::string rounded(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", number);
  return text;
}

inline std::string joined(const std::vector<std::string>& parts, std::string_view between) {
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
inline std::string read_file(const std::string& path) {
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
inline std::size_t first_invalid_line(std::string_view text) {
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
inline void for_each_line(std::string_view text, const Visit& visit) {
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

inline std::string with_stand_ins(std::string_view line) {
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

inline std::string without_stand_ins(std::string_view text) {
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
inline void restore_bytes(json& value, int levels = 3) {
  if (value.is_string()) {
    value = without_stand_ins(value.get_ref<const std::string&>());
  } else if (value.is_structured() && levels > 0) {
    for (json& item : value) restore_bytes(item, levels - 1);
  }
}

/// Parses a line that holds one JSON object.
inline json parse_object(std::string_view line) {
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
inline std::optional<std::string> text_member(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return std::nullopt;
  if (!found->is_string()) throw bad_line{std::string("\"") + name + "\" must be text"};
  return found->get<std::string>();
}

inline std::string required_text(const json& object, const char* name) {
  auto text = text_member(object, name);
  if (!text) throw bad_line{std::string("\"") + name + "\" is missing"};
  return *text;
}

inline std::vector<std::string> list_of_text(const json& value, const std::string& name) {
  std::vector<std::string> items;
  if (!value.is_array()) throw bad_line{"\"" + name + "\" must be a list of text"};
  for (const json& item : value) {
    if (!item.is_string()) throw bad_line{"\"" + name + "\" must be a list of text"};
    items.push_back(item.get<std::string>());
  }
  return items;
}

/// Who may read; nothing if the line does not say.
inline std::optional<std::vector<std::string>> groups_member(const json& object) {
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
inline std::string title_of(std::string_view text, const fs::path& name) {
  for (const rag::markdown_heading& heading : rag::markdown_headings(text)) {
    if (heading.level == 1) return heading.title;
  }
  return name.stem().string();
}

inline std::uint64_t revision_member(const json& object) {
  const auto found = object.find("revision");
  if (found == object.end()) return 0;
  if (!found->is_number_unsigned()) throw bad_line{"\"revision\" must be a whole number from 0"};
  return found->get<std::uint64_t>();
}

inline std::map<std::string, rag::metadata_value> metadata_member(const json& object) {
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

/// Says that a source holds nothing that could be cut or indexed.
inline void say_empty(const std::string& source, const std::string& use) {
  const bool folder = source != "-" && fs::is_directory(source);
  say("rag: " + source +
      (folder ? ": no .md, .markdown or .txt below this folder" : ": no documents") +
      "; nothing is " + use);
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

}  // namespace rag_tool
