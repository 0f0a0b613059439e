// The index file of the tool rag, and the vectors that come with documents and questions.
//
//   magic | 16 hexadecimal digits: hash of the next line | one line of JSON: settings | the bytes
//   that rag_retrieve::save writes
//
// The settings are what rag_retrieve::load must be told: the identifier patterns above all.
#pragma once

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <rag_retrieve.hpp>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rag_input.hpp"

#if defined(_WIN32)
#include <process.h>
#endif

namespace rag_tool {

// ---- Files written whole or not at all ----------------------------------------------------------

/// A temporary file beside the wanted one. It goes when the program fails or is interrupted.
class temporary_file {
 public:
  explicit temporary_file(const std::string& wanted) : wanted_(wanted) {
    name_ = wanted + "." + std::to_string(process()) + ".tmp";
    if (name_.size() >= sizeof pending) fail(wanted + ": the name is too long");
    std::memcpy(pending, name_.c_str(), name_.size() + 1);
    std::signal(SIGINT, interrupted);
    std::signal(SIGTERM, interrupted);
#if !defined(_WIN32)
    std::signal(SIGHUP, interrupted);
#endif
    file_ = std::fopen(name_.c_str(), "wbx");
    if (file_ == nullptr) {
      pending[0] = '\0';
      fail(wanted + ": cannot be written there");
    }
  }
  temporary_file(const temporary_file&) = delete;
  temporary_file& operator=(const temporary_file&) = delete;
  ~temporary_file() {
    if (file_ != nullptr) std::fclose(file_);
    if (pending[0] != '\0') std::remove(name_.c_str());
    pending[0] = '\0';
  }

  void write(std::string_view bytes) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) cannot();
  }

  /// Flushes to the disk and puts the file in the place of the wanted one.
  void finish() {
    if (std::fflush(file_) != 0 || !synchronised()) cannot();
    const bool closed = std::fclose(file_) == 0;
    file_ = nullptr;
    if (!closed) cannot();
    std::error_code problem;
    fs::rename(name_, wanted_, problem);
    if (problem) cannot();
    pending[0] = '\0';
  }

 private:
  [[noreturn]] void cannot() const { fail(wanted_ + ": cannot be written"); }

  static int process() {
#if defined(_WIN32)
    return _getpid();
#else
    return getpid();
#endif
  }
  [[nodiscard]] bool synchronised() const {
#if defined(_WIN32)
    return _commit(_fileno(file_)) == 0;
#else
    return fsync(fileno(file_)) == 0;
#endif
  }
  static void interrupted(int signal) {
#if defined(_WIN32)
    if (pending[0] != '\0') _unlink(pending);
#else
    if (pending[0] != '\0') unlink(pending);
#endif
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }

  inline static char pending[4096] = "";  // what the signal handler removes
  std::string wanted_, name_;
  std::FILE* file_ = nullptr;
};

/// Refuses a place for a file before the work for it is done.
inline void check_output(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  if (fs::is_directory(path)) fail(path + ": is a folder; a file was expected");
  if (!folder.empty() && !fs::is_directory(folder)) fail(folder.string() + ": no such folder");
}

inline void write_file(const std::string& path, std::string_view bytes) {
  temporary_file file(path);
  file.write(bytes);
  file.finish();
}

// ---- Vectors ------------------------------------------------------------------------------------

/// The tag of vectors that come from files.
inline constexpr const char* supplied_model = "supplied";

inline std::vector<float> checked_vector(std::vector<float> values) {
  if (values.empty()) throw bad_line{"the embedding has no numbers"};
  for (const float value : values) {
    if (!std::isfinite(value)) throw bad_line{"the embedding holds a number that is not finite"};
  }
  return values;
}

inline std::vector<float> numbers_of(const json& list) {
  if (!list.is_array()) throw bad_line{"\"embedding\" must be a list of numbers"};
  std::vector<float> values;
  for (const json& item : list) {
    if (!item.is_number()) throw bad_line{"\"embedding\" must be a list of numbers"};
    values.push_back(static_cast<float>(item.get<double>()));
  }
  return checked_vector(std::move(values));
}

/// Little-endian float32.
inline std::vector<float> floats_in(std::string_view bytes) {
  std::vector<float> values(bytes.size() / 4);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint32_t bits = 0;
    for (std::size_t k = 4; k-- > 0;) {
      bits = (bits << 8) | static_cast<unsigned char>(bytes[4 * i + k]);
    }
    std::memcpy(&values[i], &bits, sizeof bits);
  }
  return checked_vector(std::move(values));
}

/// Vectors by the ids of what they stand for. Anything wrong with their file is fatal.
class vectors_by_id {
 public:
  static vectors_by_id read(const std::string& path) {
    vectors_by_id vectors;
    if (fs::path(path).extension() == ".f32") {
      vectors.read_rows(path);
    } else {
      const std::string text = read_file(path);
      for_each_line(text, [&](std::string_view line, std::size_t number) {
        vectors.guarded(path, number, [&] {
          const json object = parse_object(line);
          const auto found = object.find("embedding");
          if (found == object.end()) throw bad_line{"\"embedding\" is missing"};
          vectors.add(required_text(object, "id"), numbers_of(*found));
        });
      });
    }
    if (vectors.values_.empty()) fail(path + ": holds no embeddings");
    return vectors;
  }

  [[nodiscard]] const std::vector<float>* find(const std::string& id) const {
    const auto found = values_.find(id);
    return found == values_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] std::size_t size() const { return values_.size(); }

 private:
  /// A .f32 file with a .ids file beside it, one id a line.
  void read_rows(const std::string& path) {
    const std::string ids_path = fs::path(path).replace_extension(".ids").string();
    const std::string rows = read_file(path), text = read_file(ids_path);
    std::vector<std::pair<std::string, std::size_t>> ids;
    for_each_line(text, [&](std::string_view line, std::size_t number) {
      while (line.ends_with('\r')) line.remove_suffix(1);
      ids.emplace_back(line, number);
    });
    if (ids.empty() || rows.empty() || rows.size() % (4 * ids.size()) != 0) {
      fail(path + ": " + counted(rows.size(), "byte") + " in all; rows of float32 for the " +
           counted(ids.size(), "id") + " of " + ids_path + " were expected");
    }
    const std::size_t width = rows.size() / ids.size();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      guarded(ids_path, ids[i].second, [&] {
        add(ids[i].first, floats_in(std::string_view(rows).substr(i * width, width)));
      });
    }
  }

  void add(const std::string& id, std::vector<float> values) {
    if (dimension_ == 0) dimension_ = values.size();
    if (values.size() != dimension_) {
      throw bad_line{"the embedding has " + counted(values.size(), "number") +
                     ", those before it have " + std::to_string(dimension_)};
    }
    if (!values_.emplace(id, std::move(values)).second) {
      throw bad_line{"id " + written(json(id)) + " stands in an earlier line"};
    }
  }

  template <class Work>
  static void guarded(const std::string& path, std::size_t line, const Work& work) {
    try {
      work();
    } catch (const bad_line& problem) {
      throw failure{1, at_line(path, line, problem.message)};
    }
  }

  std::map<std::string, std::vector<float>> values_;
  std::size_t dimension_ = 0;
};

/// The vector of one question: a JSON array, an object with "embedding", or a .f32 file of one row.
inline rag::embedding question_vector(const std::string& path) {
  const std::string bytes = read_file(path);
  try {
    if (fs::path(path).extension() == ".f32") {
      if (bytes.size() % 4 != 0) throw bad_line{"is not a row of float32"};
      return {supplied_model, floats_in(bytes)};
    }
    const json value = json::parse(bytes, nullptr, false);
    if (value.is_object() && value.contains("embedding")) {
      return {supplied_model, numbers_of(value["embedding"])};
    }
    if (!value.is_array()) {
      throw bad_line{"a JSON array of numbers or an object with \"embedding\" was expected"};
    }
    return {supplied_model, numbers_of(value)};
  } catch (const bad_line& problem) {
    fail(path + ": " + problem.message);
  }
}

// ---- The index file -----------------------------------------------------------------------------

/// Shows what the file is, and whether it was copied as text.
inline constexpr std::string_view index_magic{"RAGINDX\x1A\r\n\0\n", 12};

/// What a search must know again.
struct index_settings {
  std::vector<std::string> identifiers;
  bool vectors = false;  ///< some chunk has one
  bool ivf = false;
};

/// A retriever with the settings it was made with.
struct loaded_index {
  index_settings settings;
  rag::retriever retriever;
};

inline rag::retriever_options options_for(const index_settings& settings,
                                          const rag::access_directory& people) {
  rag::retriever_options options{.permissions = &people, .identifiers = settings.identifiers};
  if (settings.vectors) options.embed.model = supplied_model;
  if (settings.ivf) options.ivf = rag::ivf_options{};
  if (settings.ivf) options.ivf_from = 0;  // it was asked for, whatever the size
  return options;
}

/// FNV-1a in hexadecimal: shows damage.
inline std::string hash_digits(std::string_view bytes) {
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  std::string digits;
  for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[(hash >> shift) & 15U];
  return digits;
}

/// Whether a file opens with the magic bytes. Nothing else is read of it.
inline bool is_index(const std::string& path) {
  std::error_code problem;
  if (path == "-" || !fs::is_regular_file(path, problem)) return false;
  std::ifstream file(path, std::ios::binary);
  std::string first(index_magic.size(), '\0');
  file.read(first.data(), static_cast<std::streamsize>(first.size()));
  return file && first == index_magic;
}

/// Writes all of it, calls announce(), and only then puts it in its place.
template <class Announce>
void write_index(const std::string& path, const loaded_index& index, const Announce& announce) {
  json patterns = json::array();
  for (const std::string& pattern : index.settings.identifiers) {
    patterns.push_back(with_stand_ins(pattern));
  }
  const std::string line = written(json{{"format", 1},
                                        {"identifiers", std::move(patterns)},
                                        {"vectors", index.settings.vectors},
                                        {"ivf", index.settings.ivf}});
  std::ostringstream content(std::ios::binary);
  rag::save(index.retriever, content);
  temporary_file file(path);
  file.write(index_magic);
  file.write(hash_digits(line) + line + "\n");
  file.write(content.view());
  announce();
  file.finish();
}

/// The settings, and where the library's bytes begin. Nothing: the file is damaged.
inline std::optional<std::pair<index_settings, std::size_t>> settings_in(std::string_view bytes) {
  const std::size_t begin = index_magic.size() + 16;
  const std::size_t end = bytes.find('\n', (std::min)(begin, bytes.size()));
  if (!bytes.starts_with(index_magic) || end == std::string_view::npos) return std::nullopt;
  const std::string_view line = bytes.substr(begin, end - begin);
  if (hash_digits(line) != bytes.substr(index_magic.size(), 16)) return std::nullopt;
  try {
    const json object = json::parse(line);
    index_settings settings;
    if (object.at("format") != 1) return std::nullopt;
    for (const json& pattern : object.at("identifiers")) {
      settings.identifiers.push_back(without_stand_ins(pattern.get<std::string>()));
    }
    settings.vectors = object.at("vectors").get<bool>();
    settings.ivf = object.at("ivf").get<bool>();
    return std::pair(std::move(settings), end + 1);
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

inline loaded_index read_index(const std::string& path, const rag::access_directory& people) {
  if (path != "-" && !fs::exists(path)) fail(path + ": no such file");
  const std::string bytes = read_file(path);
  if (!std::string_view(bytes).starts_with(index_magic)) {
    fail(path + ": is no index; a file that `rag index` wrote was expected");
  }
  auto opened = settings_in(bytes);
  if (!opened) fail(path + ": the index is damaged, or of another version");
  auto& [settings, begin] = *opened;
  auto retriever = rag::try_load(std::as_bytes(std::span(bytes)).subspan(begin),
                                 options_for(settings, people), {.rebuild = true});
  if (!retriever) fail(path + ": " + retriever.failure().message());
  return {std::move(settings), std::move(*retriever)};
}

}  // namespace rag_tool
