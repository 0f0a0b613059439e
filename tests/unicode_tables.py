#!/usr/bin/env python3
"""Prints the Unicode tables that stand last in section 2 of rag_retrieve.hpp.

usage: unicode_tables.py [FOLDER]      FOLDER holds the Unicode 15.0 data files

The default folder is that of Debian's package unicode-data. The output is pasted between the two
comment lines that name this script; with --check HEADER the tables of HEADER are compared instead.
"""
import os
import sys

VERSION = "15.0"
LIMIT = 0x110000


def read(folder, name):
    """Yields (first, last, fields) of each data line."""
    with open(os.path.join(folder, name), encoding="utf-8") as lines:
        for line in lines:
            line = line.split("#")[0].strip()
            if not line:
                continue
            fields = [field.strip() for field in line.split(";")]
            first, _, last = fields[0].partition("..")
            yield int(first, 16), int(last or first, 16), fields[1:]


def version_of(folder):
    with open(os.path.join(folder, "CaseFolding.txt"), encoding="utf-8") as lines:
        return lines.readline().split("-")[1].removesuffix(".txt\n")


def members(folder, name, wanted):
    out = set()
    for first, last, fields in read(folder, name):
        if fields[0] in wanted:
            out.update(range(first, last + 1))
    return out


def ranges_of(points):
    """Sorted code points to [first, last] pairs."""
    out = []
    for point in sorted(points):
        if out and out[-1][1] + 1 == point:
            out[-1][1] = point
        else:
            out.append([point, point])
    return out


def strided_ranges(value_of):
    """{code point: value} to (first, last, step, value): neighbours one or two apart."""
    out = []
    for point in sorted(value_of):
        value = value_of[point]
        if out:
            first, last, step, old = out[-1]
            gap = point - last
            if old == value and (gap == step or (first == last and gap == 2)):
                out[-1] = (first, point, gap, value)
                continue
        out.append((point, point, 1, value))
    return out


def wrap(items):
    line, out = "   ", []
    for item in items:
        if len(line) + 1 + len(item) + 1 > 99:
            out.append(line)
            line = "   "
        line += " " + item + ","
    return out + [line]


def table(kind, name, comment, items):
    return [f"/// {comment}", f"inline constexpr {kind} {name}[] = {{"] + wrap(items) + ["};", ""]


def hexed(number):
    return f"0x{number:X}"


def grapheme_items(folder):
    """Everything but Hangul, which is arithmetic, and what is in no class."""
    letters = {"CR": "control", "LF": "control", "Control": "control", "Extend": "extend",
               "ZWJ": "joiner", "Regional_Indicator": "regional", "Prepend": "prepend",
               "SpacingMark": "spacing"}
    class_of = {}
    for first, last, fields in read(folder, "auxiliary/GraphemeBreakProperty.txt"):
        if fields[0] in letters:
            for point in range(first, last + 1):
                class_of[point] = letters[fields[0]]
    for first, last, fields in read(folder, "emoji/emoji-data.txt"):
        if fields[0] == "Extended_Pictographic":
            for point in range(first, last + 1):
                assert point not in class_of
                class_of[point] = "pictograph"
    rows = []
    for point in sorted(class_of):
        if rows and rows[-1][1] + 1 == point and rows[-1][2] == class_of[point]:
            rows[-1][1] = point
        else:
            rows.append([point, point, class_of[point]])
    short = {"control": "C", "extend": "E", "joiner": "J", "regional": "R", "prepend": "P",
             "spacing": "S", "pictograph": "X"}
    return [f"{{{hexed(a)}, {hexed(b)}, '{short[c]}'}}" for a, b, c in rows if b > 0x7F]


def tables(folder):
    assert version_of(folder).startswith(VERSION), version_of(folder)
    category = "extracted/DerivedGeneralCategory.txt"
    word = members(folder, category, {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                      "No"})
    unspaced = members(folder, "Scripts.txt", {
        "Han", "Hiragana", "Katakana", "Bopomofo", "Yi", "Tangut", "Nushu", "Khitan_Small_Script"})
    unspaced |= members(folder, "LineBreak.txt", {"SA"}) | {0x30FC, 0xFF70}
    unspaced &= word
    lower = members(folder, "DerivedCoreProperties.txt", {"Lowercase"})
    lower = {point: 0 for point in lower if point > 0x7F}

    simple, full = {}, {}
    for point, _, fields in read(folder, "CaseFolding.txt"):
        targets = [int(target, 16) for target in fields[1].split()]
        if fields[0] == "F":
            full[point] = targets + [0] * (3 - len(targets))
        elif fields[0] in "CS" and point > 0x7F:
            simple[point] = targets[0] - point
    simple = {point: delta for point, delta in simple.items() if point not in full}

    out = []
    out += table("code_range", "word_table", "General categories L, M and N.",
                 [f"{{{hexed(a)}, {hexed(b)}}}" for a, b in ranges_of(word) if b > 0x7F])
    out += table("code_range", "unspaced_table",
                 "Letters of scripts that put no space between words.",
                 [f"{{{hexed(a)}, {hexed(b)}}}" for a, b in ranges_of(unspaced)])
    out += table("strided_range", "lower_table", "Lowercase: first, last, step.",
                 [f"{{{hexed(a)}, {hexed(b)}, {s}, 0}}" for a, b, s, _ in strided_ranges(lower)])
    out += table("strided_range", "fold_table",
                 "Case folding to one code point: first, last, step, what to add.",
                 [f"{{{hexed(a)}, {hexed(b)}, {s}, {d}}}"
                  for a, b, s, d in strided_ranges(simple)])
    out += table("long_fold", "long_fold_table", "Case folding to two or three code points.",
                 [f"{{{hexed(p)}, {{{', '.join(hexed(t) for t in to)}}}}}"
                  for p, to in sorted(full.items())])
    out += table("grapheme_range", "grapheme_table",
                 "Grapheme_Cluster_Break, Extended_Pictographic; the letters are grapheme_class.",
                 grapheme_items(folder))
    return out[:-1]


def main(arguments):
    check = None
    if arguments[:1] == ["--check"]:
        check, arguments = arguments[1], arguments[2:]
    lines = tables(arguments[0] if arguments else "/usr/share/unicode")
    if check is None:
        print("\n".join(lines))
        return 0
    with open(check, encoding="ascii") as header:
        same = "\n".join(lines) in header.read()
    print("tables agree" if same else "tables differ")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
