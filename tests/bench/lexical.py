#!/usr/bin/env python3
"""Measures lexical search and prints the table of the README.

usage: lexical.py FOLDER [--rounds N] [--work FOLDER] [--flags "-O3 -march=native"] [--parts LIST]

FOLDER holds corpus.tsv (or corpus.tsv.xz: id, tab, text) and queries.txt, as cppdocs-passages does.
Peers are taken where they are found: SQLite FTS5 (libsqlite3-dev), Xapian (libxapian-dev), and, by
their harnesses in the folder that the environment variable RAG_RETRIEVE_BENCH names, Tantivy (cargo),
Lucene 8 (a JDK, liblucene8-java) and a prototype with its variants.
Engines run in turn, round after round; each number is the median of the rounds, in one thread's
processor time. Ratios are good within one run only.
"""
import argparse
import json
import lzma
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SIZES = (12_500, 25_000, 50_000)


def make_files(source, work):
    """Token files of all passages and of samples, and questions of 40 words joined from short ones."""
    packed = source / "corpus.tsv.xz"
    raw = lzma.open(packed).read() if packed.exists() else (source / "corpus.tsv").read_bytes()
    (work / "corpus.tsv").write_bytes(raw)
    lines = []
    for line in raw.decode("utf-8").splitlines():
        name, _, text = line.partition("\t")
        lines.append(name + "\t" + " ".join(w[:64] for w in re.findall("[a-z0-9]+", text.lower())))
    sizes = [size for size in SIZES if size < len(lines)] + [len(lines)]
    order = sorted(range(len(lines)), key=lambda i: (i * 2654435761) % 4294967296)
    for size in sizes:
        kept = [lines[i] for i in sorted(order[:size])]
        (work / f"tokens-{size}.tsv").write_text("\n".join(kept) + "\n", encoding="ascii")
    queries = (source / "queries.txt").read_text(encoding="ascii").split("\n")
    queries = [q for q in queries if q]
    (work / "queries.txt").write_text("\n".join(queries) + "\n", encoding="ascii")
    with open(work / "long.txt", "w", encoding="ascii") as out:
        for i in range(100):
            words, at = [], i * len(queries) // 100
            while len(words) < 40:
                words += [w for w in dict.fromkeys(queries[at % len(queries)].split()) if w not in words]
                at += 1
            out.write(" ".join(words[:40]) + "\n")
    return sizes


def compile_program(work, compiler, flags):
    """Our program, with the peers whose headers and libraries are there."""
    extra = []
    for define, library, header in (("BENCH_FTS5", "sqlite3", "sqlite3.h"), ("BENCH_XAPIAN", "xapian", "xapian.h")):
        probe = subprocess.run([compiler, "-x", "c++", "-", "-l" + library, "-o", str(work / "probe")],
                               input=f"#include <{header}>\nint main() {{}}\n".encode(), capture_output=True)
        if probe.returncode == 0:
            extra += ["-D" + define, "-l" + library]
        else:
            print(f"left out: {library} is not installed", file=sys.stderr)
    subprocess.run([compiler, "-std=c++20", *flags, f"-I{HERE.parent.parent}", str(HERE / "lexical.cpp"), "-o",
                    str(work / "lexical"), *extra], check=True)
    return [e for e in ("fts5", "xapian") if "-DBENCH_" + e.upper() in extra]


def compile_harnesses(work, compiler, flags):
    """Engine -> command, of those in the folder RAG_RETRIEVE_BENCH. Each takes TOKENS QUERIES and prints a JSON line."""
    folder = os.environ.get("RAG_RETRIEVE_BENCH")
    if not folder:
        print("left out: Tantivy, Lucene and the prototype (RAG_RETRIEVE_BENCH is not set)", file=sys.stderr)
        return {}
    folder = pathlib.Path(folder)
    subprocess.run([compiler, "-std=c++20", *flags, f"-I{folder}", folder / "lexical_baseline.cpp", "-o",
                    work / "prototype"], check=True)
    found = {name: [work / "prototype", "--variant", name] for name in ("packed", "fixed", "taat")}
    tantivy = folder / "peers_lexical/lexical_tantivy"
    if shutil.which("cargo") and tantivy.is_dir():
        shutil.copytree(tantivy, work / "tantivy", dirs_exist_ok=True)
        subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=work / "tantivy",
                       env={**os.environ, "RUSTFLAGS": "-C target-cpu=native"})
    made = work / "tantivy/target/release/lexical_tantivy"
    if made.exists():
        found["tantivy"] = [made, "--variant", "pruned", "--dir", work]
    else:
        print("left out: Tantivy (needs cargo and the crates)", file=sys.stderr)
    jars = [*pathlib.Path("/usr/share/java").glob("lucene-core-8*.jar"),
            *pathlib.Path("/usr/share/java").glob("lucene-analyzers-common-8*.jar")]
    if shutil.which("javac") and jars:
        path = ":".join(map(str, jars))
        subprocess.run(["javac", "-cp", path, "-d", work / "lucene", folder / "LexicalLucene.java"], check=True)
        found["lucene"] = ["java", "-Xmx4g", "-cp", f"{path}:{work / 'lucene'}", "LexicalLucene", "--variant", "pruned",
                           "--dir", work]
    else:
        print("left out: Lucene (needs a JDK and liblucene8-java)", file=sys.stderr)
    return found


def run(command):
    out = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout
    return dict(line.split("\t") for line in out.splitlines())


def run_harness(command, tokens, queries, passes):
    """The harnesses take the files first, and options in any order behind them."""
    first = next((i for i, part in enumerate(command) if str(part).startswith("--variant")), len(command))
    line = [*command[:first], tokens, queries, "--reps", passes, *command[first:]]
    out = subprocess.run([str(c) for c in line], check=True, capture_output=True, text=True).stdout
    got = json.loads(out)
    return {"top 10": 1e6 / got["k10"]["qps"], "top 10 p95": got["k10"]["p95_us"],
            "top 100": 1e6 / got["k100"]["qps"], "top 100 p95": got["k100"]["p95_us"],
            "build MB/s, tokens": got["build_mb_s"]}


class Table:
    def __init__(self):
        self.values, self.versions = {}, {}

    def add(self, engine, suffix, got):
        for name, value in got.items():
            if name == "version":
                self.versions[engine] = value
            else:
                self.values.setdefault((engine, name + suffix), []).append(float(value))

    def get(self, engine, name):
        values = self.values.get((engine, name))
        return statistics.median(values) if values else None

    def show(self):
        engines = list(dict.fromkeys(engine for engine, _ in self.values))
        names = list(dict.fromkeys(name for _, name in self.values))
        titles = [f"{e} {self.versions[e]}" if e in self.versions else e for e in engines]
        print("| us a query, or as named | " + " | ".join(titles) + " |")
        print("| --- |" + " ---: |" * len(engines))
        for name in names:
            ours = self.get("ours", name)
            cells = []
            for engine in engines:
                value = self.get(engine, name)
                text = "" if value is None else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"
                if value and ours and engine != "ours" and name.startswith("top"):
                    text += f" ({value / ours:,.2f})"
                cells.append(text)
            print(f"| {name} | " + " | ".join(cells) + " |")
        print("\nIn brackets: how many times faster ours is.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--flags", default="-O3 -march=native")
    parser.add_argument("--parts", default="full,growth,peers,prototype")
    given = parser.parse_args()
    work = given.work or pathlib.Path(tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    parts, flags = given.parts.split(","), given.flags.split()
    sizes = make_files(given.folder, work)
    peers = compile_program(work, given.compiler, flags)
    harnesses = compile_harnesses(work, given.compiler, flags) if "prototype" in parts else {}
    queries, long = work / "queries.txt", work / "long.txt"
    passes = ["--passes", given.passes]
    table = Table()
    for number in range(given.rounds):
        tokens = work / f"tokens-{sizes[-1]}.tsv"
        if "full" in parts:
            table.add("ours", "", run([work / "lexical", "ours", tokens, queries, "--long", long, "--raw",
                                       work / "corpus.tsv", *passes]))
        for name, command in harnesses.items():
            table.add(name, "", run_harness(command, tokens, queries, given.passes))
            got = run_harness(command, tokens, long, given.passes)
            table.add(name, ", 40 words", {k: v for k, v in got.items() if k in ("top 10", "top 100")})
        if "growth" in parts:
            for size in sizes[:-1]:
                small = work / f"tokens-{size}.tsv"
                keep = lambda got: {k: v for k, v in got.items() if k in ("top 10", "top 100")}
                table.add("ours", f", {size} passages", keep(run([work / "lexical", "ours", small, queries, *passes])))
                for name in ("packed", "taat") if harnesses else ():
                    table.add(name, f", {size} passages",
                              keep(run_harness(harnesses[name], small, queries, given.passes)))
        for peer in peers if "peers" in parts and number == 0 else ():
            table.add(peer, "", run([work / "lexical", peer, tokens, queries, *passes]))
    table.show()
    last = None
    for size in sizes if "growth" in parts else ():
        value = table.get("ours", "top 10" + ("" if size == sizes[-1] else f", {size} passages"))
        if last and value:
            print(f"growth to {size} passages: {(value / last[1]) ** (1 / math.log2(size / last[0])):.2f} a doubling")
        last = (size, value) if value else last


if __name__ == "__main__":
    main()
