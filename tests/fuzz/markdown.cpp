// Any bytes as Markdown: headings stand in order, on whole lines, with titles of one line.
// run.sh builds it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <rag_retrieve.hpp>
#include <string_view>

namespace rag = rag_retrieve;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

bool begins_line(std::string_view text, std::size_t at) {
  if (at == 0 || (at == 3 && text.starts_with("\xEF\xBB\xBF"))) return true;
  if (text[at - 1] == '\n') return true;
  return text[at - 1] == '\r' && (at == text.size() || text[at] != '\n');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::size_t last = rag::detail::after_front_matter(text);
  require(last <= text.size());
  for (const rag::markdown_heading& heading : rag::markdown_headings(text)) {
    require(heading.level >= 1 && heading.level <= 6);
    require(heading.lines.begin >= last && heading.lines.begin < heading.lines.end);
    require(heading.lines.end <= text.size());
    require(begins_line(text, heading.lines.begin));
    require(heading.lines.end == text.size() || begins_line(text, heading.lines.end));
    require(heading.title.find_first_of("\r\n") == std::string_view::npos);
    last = heading.lines.end;
  }
  rag::detail::line_reader lines(text);
  for (std::size_t at = 0; at < text.size();) {  // lines end at the first LF or CR
    const rag::text_line line = rag::line_at(text, at);
    const rag::text_line same = lines.at(at);
    require(line.content == same.content && line.next == same.next);
    const std::string_view content = rag::slice(text, line.content);
    require(line.content.begin == at && line.next > at && line.next <= text.size());
    require(content.find_first_of("\r\n") == std::string_view::npos);
    require(line.next == text.size() || begins_line(text, line.next));
    at = line.next;
  }
  return 0;
}
