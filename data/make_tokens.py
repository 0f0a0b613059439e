#!/usr/bin/env python3
"""Writes data/synthetic/tokens-220.txt: a document of exactly 220 tokens whose names are their numbers.

usage: make_tokens.py [FILE [COUNT]]

The article reasons about an error reference of 220 tokens; the page printed there has 88 words. So
the windows are shown on this text: token number n is the word t000 ... t219, ten words a line, and
a window's first and last word say at once which tokens it holds.
"""
import pathlib
import sys


def main() -> int:
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else (
        pathlib.Path(__file__).resolve().parent / "synthetic" / "tokens-220.txt")
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 220
    names = [f"t{n:03}" for n in range(count)]
    lines = [" ".join(names[at:at + 10]) + "\n" for at in range(0, count, 10)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(lines).encode("ascii"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
