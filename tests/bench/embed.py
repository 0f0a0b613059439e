#!/usr/bin/env python3
"""Makes real vectors for vectors.sh: the texts of a folder through a public static model.

usage: embed.py FOLDER OUT        (needs: pip install wordllama)

FOLDER holds corpus.tsv.xz or corpus.tsv (id, tab, text) and queries.txt (one question a line), as
cppdocs-passages does. Writes OUT.docs.f32 and OUT.queries.f32: rows of 256 little-endian float32,
length 1, in the order of the lines; prints the command that measures with them.

The model is WordLlama's l2_supercat, whose weights and tokenizer lie in the Python package: nothing
is fetched. A text's vector is the mean of its tokens' vectors: cheap to make, and yet spread as
real texts are.
"""
import lzma
import pathlib
import sys

import numpy
import wordllama


def unit_rows(model, texts):
    """The texts' vectors, divided by their lengths in double precision."""
    rows = model.embed(texts).astype(numpy.float64)
    lengths = numpy.linalg.norm(rows, axis=1, keepdims=True)
    empty = numpy.flatnonzero(~(lengths[:, 0] > 0))
    if empty.size:
        sys.exit(f"text {empty[0]} has no direction: {texts[empty[0]][:60]!r}")
    return (rows / lengths).astype("<f4")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder, out = pathlib.Path(sys.argv[1]), str(pathlib.Path(sys.argv[2]).resolve())
    packed = folder / "corpus.tsv.xz"
    corpus = lzma.open(packed) if packed.exists() else (folder / "corpus.tsv").open("rb")
    with corpus:
        lines = corpus.read().decode().rstrip("\n").split("\n")
    texts = [line.split("\t", 1)[1] for line in lines]
    questions = (folder / "queries.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")

    # The package looks for its tokenizer beside a cache only, so that it is named as one.
    inside = pathlib.Path(wordllama.__file__).parent
    model = wordllama.WordLlama.load(cache_dir=inside, disable_download=True)
    documents = unit_rows(model, texts)
    documents.tofile(out + ".docs.f32")
    unit_rows(model, questions).tofile(out + ".queries.f32")
    count, dimension = documents.shape
    print(f"{count} documents and {len(questions)} questions of {dimension} numbers; measure with")
    print(f"vectors.sh {count} {dimension} 25 one {out}.docs.f32 {out}.queries.f32")


main()
