"""Makes the texts that chunkers.sh measures, and prints what it measured as tables.

usage: python3 tests/bench/chunkers.py texts DATASETS FOLDER    (writes three .txt)
       python3 tests/bench/chunkers.py table FOLDER             (reads chunkers.json)

Prose is 1 MiB of paragraphs, one a line (XQuAD's, Chroma's and passages of cppdocs without
code); wrapped
text is 1 MiB of MEDLINE's abstracts, at 50 to 70 bytes a line; pages are Markdown of 4 to 64 KB (the
rules of ESLint, Rust's error codes, ACH's manuals).
"""
import collections
import json
import lzma
import pathlib
import statistics
import sys

PROSE = ["xquad-en", "chroma-chunking-a", "cppdocs-passages"]
WRAPPED = ["med"]
PAGES = ["eslint-rules", "rust-errors", "ach-payments"]
TEXTS = ["prose1", "prose4", "prose16", "wrapped", "pages", "markdown1", "markdown4", "markdown16"]
ROWS = [
    ("icu", "ICU's sentence iteration, from UTF-8"),
    ("lines", "line ends by memchr"),
    ("cmark", "cmark, parsing alone"),
    ("words", "count_words"),
    ("sentence_ranges", "sentence_ranges"),
    ("headings", "markdown_headings"),
    ("sentences", "sentences"),
    ("structure", "structure, sections whole"),
    ("structure_whole_bytes", "structure, sections whole, in bytes"),
    ("structure_256", "structure, 256 words"),
    ("recursive_words_200", "recursive, 200 words"),
    ("recursive_words_1000", "recursive, 1,000 words"),
    ("recursive_words_4000", "recursive, 4,000 words"),
    ("recursive_bytes_1000", "recursive, 1,000 bytes"),
    ("recursive_bytes_4000", "recursive, 4,000 bytes"),
    ("fixed_words", "fixed, 200 words, overlap 20"),
    ("fixed_bytes_1000", "fixed, 1,000 bytes"),
    ("fixed_bytes_4000", "fixed, 4,000 bytes"),
    ("packed", "packed, 200 words"),
    ("parent_child", "parent-child, 1,024 and 128 words"),
]


def texts_of(datasets, names):
    for name in names:
        path = datasets / name / "docs.jsonl"
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                yield json.loads(line)["text"].encode()
        passages = datasets / name / "corpus.tsv.xz"
        if passages.exists():
            with lzma.open(passages) as lines:  # id, tab, "title | heading | text"
                for line in lines:
                    text = line.rstrip(b"\n").split(b" | ", 2)[-1]
                    if len(text) > 200 and text.endswith(b".") and not set(b"`|#<>:*\\\\") & set(text):
                        yield text


def write_texts(datasets, folder):
    prose = b"\n\n".join(texts_of(datasets, PROSE))[: 1 << 20]
    wrapped = b"\n\n".join(texts_of(datasets, WRAPPED))[: 1 << 20]
    pages = [page for page in texts_of(datasets, PAGES) if 4096 <= len(page) <= 65536]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prose.txt").write_bytes(prose)
    (folder / "wrapped.txt").write_bytes(wrapped)
    (folder / "pages.txt").write_bytes(b"".join(page + b"\0" for page in pages))
    if len(prose) < 1 << 20 or not wrapped or not pages:
        sys.exit(f"{datasets}: too little text in {', '.join(PROSE + WRAPPED + PAGES)}")


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def print_table(title, head, rows):
    print(f"\n{title}\n")
    print("| " + " | ".join(["", *head]) + " |")
    print("| --- " + "| --: " * len(head) + "|")
    for name, cells in rows:
        print("| " + " | ".join([name, *cells]) + " |")


def print_tables(folder):
    speeds = collections.defaultdict(list)
    for run in json.loads((folder / "chunkers.json").read_text())["benchmarks"]:
        if run.get("run_type") == "iteration":
            speeds[tuple(run["name"].split("/")[:2])].append(run["bytes_per_second"])
    speed = {key: statistics.median(values) for key, values in speeds.items()}
    rows = [(row, name) for row, name in ROWS if (row, "pages") in speed]
    for scale, what in [("icu", "ICU's sentence iteration = 1"), ("lines", "memchr = 1")]:
        print_table(f"Speed, {what}", TEXTS, [
            (name, [number(speed[row, text] / speed[scale, text]) if scale == "icu" else
                    f"{speed[row, text] / speed[scale, text]:.3f}" for text in TEXTS])
            for row, name in rows])
    print_table("MB a second", TEXTS, [
        (name, [number(speed[row, text] / 1e6) for text in TEXTS]) for row, name in rows])
    print_table("Cost a byte, by size", ["prose 4x", "prose 16x", "markdown 4x", "markdown 16x"], [
        (name, [f"{speed[row, kind + '1'] / speed[row, kind + size]:.2f}"
                for kind in ("prose", "markdown") for size in ("4", "16")])
        for row, name in rows])


if sys.argv[1] == "texts":
    write_texts(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
else:
    print_tables(pathlib.Path(sys.argv[2]))
