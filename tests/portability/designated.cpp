// Every option struct is an aggregate whose members all have defaults: a user may name one member
// and leave out the rest, and no compiler warns.
#include <rag_retrieve.hpp>

namespace rag = rag_retrieve;

template <class... Options>
constexpr bool all_aggregates = (std::is_aggregate_v<Options> && ...);

static_assert(all_aggregates<rag::document, rag::chunk, rag::embedding, rag::embedder,
                             rag::principal, rag::tokenizer, rag::sentence_options, rag::whole_options,
                             rag::fixed_options, rag::single_sentence_options, rag::packed_options,
                             rag::structure_options, rag::recursive_options, rag::analysis_options,
                             rag::identifier_options, rag::bm25_options, rag::fusion_options,
                             rag::reranker, rag::selection_options, rag::search_text_options,
                             rag::query, rag::retriever_options>);

bool uses_them_all();
bool uses_them_all() {
  const rag::document page{.id = "a", .text = "text", .revision = 1};
  const rag::chunk piece{.id = "a", .heading = "h", .token_count = 1};
  const rag::embedding vector{.model = "m"};
  const rag::embedder embedder{.model = "m", .batch_size = 8};
  const rag::principal who{.user = "ana"};
  const rag::tokenizer tokens{.count = [](std::string_view text) { return text.size(); }};
  const rag::sentence_options sentences{.newline_ends_sentence = true};
  const rag::whole_options whole{.tokens = tokens};
  const rag::fixed_options fixed{.chunk_size = 80, .overlap = 20};
  const rag::single_sentence_options single{.chunk_size = 80};
  const rag::packed_options packed{.overlap = 1};
  const rag::structure_options structure{.max_heading_level = 2};
  const rag::recursive_options recursive{.max_heading_level = 2};
  const rag::analysis_options analysis{.tag = "plain"};
  const rag::identifier_options identifiers{.patterns = {"PAY-###"}};
  const rag::bm25_options bm25{.b = 0.4};
  const rag::fusion_options fusion{.k = 10};
  const rag::reranker model{.window = 3};
  const rag::selection_options selection{.limit = 3};
  const rag::search_text_options text{.title = true};
  const rag::query asked{.text = "q", .limit = 1};
  const rag::ivf_options lists{.lists = 64, .probes = 8};
  const rag::semantic_options semantic{.window = 2};
  const rag::parent_child_options family{.child_size = 64};
  const rag::load_options loading{.rebuild = true};
  const rag::retriever_options retriever{.identifiers = {"PAY-###"}};
  return page.id == piece.id && vector.model == embedder.model && !who.user.empty() &&
         sentences.newline_ends_sentence && whole.tokens.count &&
         fixed.overlap < single.chunk_size &&
         packed.overlap == 1 && structure.max_heading_level == recursive.max_heading_level &&
         !analysis.tag.empty() && identifiers.patterns == retriever.identifiers &&
         bm25.b < fusion.k &&
         model.window == selection.limit && lists.probes == 8 && semantic.window == 2 &&
         family.child_size == 64 && loading.rebuild && text.title && asked.limit == 1;
}
