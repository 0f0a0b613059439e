#!/usr/bin/env python3
"""Writes data/rust-errors: one Markdown page for every line of a docs.jsonl.

usage: make_rust_errors.py DOCS_JSONL [FOLDER]

DOCS_JSONL holds one object a line, {"id", "title", "text"}: the pages
compiler/rustc_error_codes/src/error_codes/E*.md of rust-lang/rust, whose text is taken over byte
for byte. A page carries its code in its name only, so the title becomes its first line, a level-1
heading, followed by a blank line. FOLDER is data/rust-errors unless given; pages that DOCS_JSONL
does not name are removed from it.
"""
import json
import pathlib
import sys


def main() -> int:
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else (
        pathlib.Path(__file__).resolve().parent / "rust-errors")
    folder.mkdir(parents=True, exist_ok=True)
    kept = set()
    with open(sys.argv[1], encoding="utf-8", newline="") as lines:
        for line in lines:
            page = json.loads(line)
            path = folder / (page["id"] + ".md")
            text = "# " + page["title"] + "\n\n" + page["text"]
            path.write_bytes(text.encode("utf-8"))
            kept.add(path.name)
    for path in folder.glob("*.md"):
        if path.name not in kept:
            path.unlink()
    print(f"{folder}: {len(kept)} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
