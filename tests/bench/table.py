"""Prints what run.sh measured as tables.

usage: python3 tests/bench/table.py FOLDER

Updates are means over all repetitions, which make up a full cycle of merges; searches are medians
of the repetitions' means.
"""
import json
import pathlib
import statistics
import sys

folder = pathlib.Path(sys.argv[1])


def read(name):
    """{benchmark: {argument: [runs]}} of one process."""
    path = folder / (name + ".json")
    found = {}
    if not path.exists() or path.stat().st_size == 0:  # nothing of that size was asked for
        return found
    for run in json.loads(path.read_text())["benchmarks"]:
        if run.get("run_type") == "iteration":
            kind, argument = run["name"].split("/")[:2]
            found.setdefault(kind, {}).setdefault(int(argument), []).append(run)
    return found


def mean(runs):
    return statistics.fmean(run["real_time"] for run in runs)


def median(runs):
    return statistics.median(run["real_time"] for run in runs)


def worst_ms(runs):
    return 1000 * max(run["worst"] for run in runs)


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(title, head, rows):
    print(f"\n{title}\n")
    print("| " + " | ".join(["", *head]) + " |")
    print("| --- " + "| --: " * len(head) + "|")
    for name, cells in rows:
        print("| " + " | ".join([name, *(c if isinstance(c, str) else number(c) for c in cells)])
              + " |")


def growth(values):
    return ["", *(f"{b / a:.2f}" for a, b in zip(values, values[1:]))]


rows = []
sizes = []
updates = {**read("updates"), **read("add")}
for kind, what, average in [("replace", "upsert that replaces, mean, µs", mean),
                            ("add", "upsert that adds, mean, µs", mean),
                            ("erase", "erase, median, µs", median)]:
    if kind not in updates:
        continue
    sizes = sorted(updates["replace"])
    times = [average(updates[kind][size]) for size in sorted(updates[kind])]
    worst = [worst_ms(updates[kind][size]) for size in sorted(updates[kind])]
    missing = [""] * (len(sizes) - len(times))
    rows.append((what, times + missing))
    rows.append(("growth", growth(times) + missing))
    rows.append(("worst single one, ms", worst + missing))
access = read("access")
if access:
    sizes = sorted(access["set_access"])
    medians = [median(access["set_access"][size]) for size in sizes]
    rows.append(("set_access, median, µs", medians))
    rows.append(("growth", growth(medians)))
    for kind, what in [("chunks", "search, µs"),
                       ("after_set_access", "first search after set_access, µs")]:
        rows.append((what, [median(access[kind][size]) for size in sizes]))
table("Updates, by chunks in the tenant", [f"{size:,}" for size in sizes], rows)

beside = read("beside")
if beside:
    sizes = sorted(beside["idle"])
    idle, own, other = ([median(beside[kind][size]) for size in sizes]
                        for kind in ("idle", "updates", "others"))
    table("Search beside updates, by chunks", [f"{size:,}" for size in sizes], [
        ("idle, µs", idle),
        ("while another thread updates, µs", own),
        ("ratio", [f"{b / a:.2f}" for a, b in zip(idle, own)]),
        ("ratio while it updates another retriever",
         [f"{b / a:.2f}" for a, b in zip(idle, other)]),
        ("updates a second",
         [statistics.median(run["updates"] for run in beside["updates"][size]) for size in sizes]),
    ])

scopes = read("scopes")
if scopes:
    sizes = sorted(scopes["scope"])
    own, shared, stranger, first = ([median(scopes[kind][size]) for size in sizes]
                                    for kind in ("scope", "shared", "stranger", "first"))
    table("Statistics of the scope, by lists of groups", [f"{size:,}" for size in sizes], [
        ("shared statistics, µs", shared),
        ("of a known scope, µs", own),
        ("ratio", [f"{b / a:.2f}" for a, b in zip(shared, own)]),
        ("of a scope that is new, µs", stranger),
        ("and no word of the question counted yet, µs", first),
    ])

segments = read("segments")
if segments:
    sizes = sorted(segments["segments"])
    table("Search, by segments of 100,000 chunks", [f"{size:,}" for size in sizes], [
        ("lexical, µs", [median(segments["segments"][size]) for size in sizes]),
        ("hybrid with vectors of 32 numbers, µs",
         [median(segments["dense_segments"][size]) for size in sizes]),
    ])

for runs in read("memory").get("memory", {}).values():
    run = runs[0]
    parts = ["documents", "text", "postings", "vectors", "ids", "places", "families", "access",
             "live", "all"]
    table("Memory, bytes a chunk", ["bytes"], [(part, [run[part]]) for part in parts])
