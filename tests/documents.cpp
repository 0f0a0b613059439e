#include <doctest/doctest.h>

#include <rag_retrieve.hpp>
#include <string>
#include <type_traits>
#include <vector>

namespace documents_tests {

namespace rag = rag_retrieve;

static_assert(std::is_aggregate_v<rag::document>);
static_assert(std::is_aggregate_v<rag::chunk>);
static_assert(std::is_aggregate_v<rag::search_text_options>);
static_assert(std::is_aggregate_v<rag::chunked_document>);

namespace {

/// "# Gateway errors", "## PAY-042: Rejected" and its body.
rag::document gateway_page() {
  rag::document out;
  out.id = "gateway";
  out.title = "Gateway error reference";
  out.text =
      "# Gateway errors\n\n## PAY-042: Rejected\n\nCheckout returns it when the key was rotated.\n";
  out.allowed_groups = {"support"};
  out.revision = 7;
  return out;
}

rag::chunk rejected(const rag::document& source) {
  rag::chunk out;
  out.id = "E42";
  out.document_id = source.id;
  out.range = {source.text.find("## PAY"), source.text.size() - 1};
  out.body = {source.text.find("Checkout"), source.text.size() - 1};
  out.heading = "PAY-042: Rejected";
  out.heading_path = {"Gateway errors", "PAY-042: Rejected"};
  return out;
}

const std::string body = "Checkout returns it when the key was rotated.";

}  // namespace

TEST_CASE("documents: a chunk's text is the slice of its document, marks and all") {
  const rag::document source = gateway_page();
  const rag::chunk piece = rejected(source);
  const std::string_view text = rag::chunk_text(source, piece);
  CHECK(text == "## PAY-042: Rejected\n\n" + body);
  CHECK(text == std::string_view(source.text).substr(piece.range.begin, piece.range.size()));
  CHECK(text.data() == source.text.data() + piece.range.begin);  // a view, no copy
}

TEST_CASE("documents: what is searched is heading without marks, blank line, body") {
  const rag::document source = gateway_page();
  CHECK(rag::search_text(source, rejected(source)) == "PAY-042: Rejected\n\n" + body);
}

TEST_CASE("documents: without a heading what is searched is the body alone") {
  const rag::document source = gateway_page();
  rag::chunk piece = rejected(source);
  piece.heading.clear();
  CHECK(rag::search_text(source, piece) == body);
  piece.body = piece.range;
  CHECK(rag::search_text(source, piece) == rag::chunk_text(source, piece));
}

TEST_CASE("documents: the title is source information and joins only by option") {
  const rag::document source = gateway_page();
  const rag::chunk piece = rejected(source);
  CHECK(rag::search_text(source, piece).find("reference") == std::string::npos);
  CHECK(rag::search_text(source, piece, {.title = true}) ==
        "Gateway error reference\n\nPAY-042: Rejected\n\n" + body);
}

TEST_CASE("documents: ancestors join by option, outermost first, the own heading once") {
  const rag::document source = gateway_page();
  const rag::chunk piece = rejected(source);
  CHECK(rag::search_text(source, piece, {.ancestors = true}) ==
        "Gateway errors\n\nPAY-042: Rejected\n\n" + body);
  CHECK(rag::search_text(source, piece, {.title = true, .ancestors = true}) ==
        "Gateway error reference\n\nGateway errors\n\nPAY-042: Rejected\n\n" + body);
}

TEST_CASE("documents: a title that is also a heading is written once") {
  rag::document source = gateway_page();
  source.title = "Gateway errors";
  const rag::chunk piece = rejected(source);
  CHECK(rag::search_text(source, piece, {.title = true, .ancestors = true}) ==
        "Gateway errors\n\nPAY-042: Rejected\n\n" + body);
  source.title = "PAY-042: Rejected";
  CHECK(rag::search_text(source, piece, {.title = true}) == "PAY-042: Rejected\n\n" + body);
}

TEST_CASE("documents: a piece that continues a section keeps its path among the ancestors") {
  // Without a heading of its own the last title of the path stands above it all the same.
  const rag::document source = gateway_page();
  rag::chunk piece = rejected(source);
  piece.range = piece.body;
  piece.heading.clear();
  const std::string text = rag::search_text(source, piece, {.ancestors = true});
  CHECK(text.find("Gateway errors") == 0);
  CHECK(text.substr(text.size() - body.size()) == body);
}

TEST_CASE("documents: a heading without a body is searched alone, and any bytes are text") {
  rag::document source = gateway_page();
  rag::chunk piece = rejected(source);
  piece.body = {piece.range.end, piece.range.end};
  CHECK(rag::search_text(source, piece) == "PAY-042: Rejected");

  source.text = std::string("\xFF\x00\xC3", 3);
  piece = {};
  piece.range = piece.body = {0, 3};
  CHECK(rag::search_text(source, piece) == source.text);
  CHECK(rag::chunk_text(source, piece) == source.text);
}

TEST_CASE("documents: metadata holds text, numbers and lists of text") {
  rag::document source = gateway_page();
  source.metadata["product"] = "gateway";
  source.metadata["year"] = 2024;
  source.metadata["tags"] = std::vector<std::string>{"error", "checkout"};
  CHECK(source.metadata.at("product").text() == "gateway");
  CHECK(source.metadata.at("year").number() == doctest::Approx(2024.0));
  CHECK(source.metadata.at("tags").texts().size() == 2);
}

}  // namespace documents_tests
