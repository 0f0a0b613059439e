#!/usr/bin/env python3
"""Cuts every document of a folder with every chunker and checks what holds for any input.

usage: hard_documents.py RAG FOLDER

A chunk is a slice of its document; its begin and end grow; none but a flagged one is above the
size; what lies in no chunk is white space, or, where headings are understood, a byte order mark,
front matter or a heading.
"""
import json
import pathlib
import subprocess
import sys

CHUNKERS = ["whole", "fixed", "sentence", "packed", "structure", "recursive"]
UNITS = {"word": 40, "code-point": 120, "byte": 120}


def check(rag, path, chunker, unit, size):
    page = path.read_bytes()
    command = [rag, "chunk", str(path), "--jsonl", "--chunker", chunker, "--unit", unit,
               "--chunk-size", str(size)]
    done = subprocess.run(command, capture_output=True)
    if done.returncode != 0:
        return f"status {done.returncode}: {done.stderr.decode('utf-8', 'replace')[:300]}"
    covered = bytearray(len(page))
    before = (-1, -1)
    for line in done.stdout.splitlines():
        piece = json.loads(line)
        begin, end = piece["begin"], piece["end"]
        if not (before[0] < begin < end and before[1] < end <= len(page)):
            return f"chunk [{begin}, {end}) after {before}"
        before = (begin, end)
        if piece["text"].encode() != page[begin:end] and "\ufffd" not in piece["text"]:
            return f"the text of [{begin}, {end}) is not the slice"
        if chunker != "whole" and piece["token_count"] > size and not piece.get("oversize"):
            return f"chunk [{begin}, {end}) has {piece['token_count']} of at most {size}"
        covered[begin:end] = b"x" * (end - begin)
    lost = bytes(b for b, seen in zip(page, covered) if not seen).decode("utf-8", "replace")
    if chunker not in ("structure", "recursive") and lost.replace("\ufeff", "").strip():
        return f"lost: {lost.strip()[:200]!r}"
    return None


def main():
    rag, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    paths = [p for p in sorted(folder.iterdir()) if p.suffix in (".md", ".txt") and p.name != "README.md"]
    failures = cuts = 0
    for path in paths:
        for chunker in CHUNKERS:
            for unit, size in UNITS.items():
                problem = check(rag, path, chunker, unit, size)
                cuts += 1
                if problem:
                    failures += 1
                    print(f"{path.name}, {chunker}, {unit} {size}: {problem}")
    print(f"{len(paths)} documents cut {cuts} times, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
