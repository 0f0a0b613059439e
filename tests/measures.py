"""The measures of a TREC run, computed without the header, to compare with.

    python3 tests/measures.py RUN QRELS [K]

Means over the questions with a relevant judgement; one without results counts 0. The order is that
of the file's ranks. Prints one measure a line with 17 digits.
"""
import math
import pathlib
import sys


def read_qrels(path):
    judged = {}
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if fields:
            judged.setdefault(fields[0], {})[fields[-2]] = int(fields[-1])
    return judged


def read_run(path):
    lists = {}
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if fields:
            lists.setdefault(fields[0], []).append((int(fields[3]), fields[2]))
    return {q: [d for _, d in sorted(entries, key=lambda e: e[0])] for q, entries in lists.items()}


def measures(ranked, judged, k):
    relevant = {d: r for d, r in judged.items() if r > 0}
    hits = [d in relevant for d in ranked]
    gain = lambda grades: sum(g / math.log2(i + 2) for i, g in enumerate(grades[:k]))
    ideal = gain(sorted(relevant.values(), reverse=True))
    return {
        "ndcg": gain([relevant.get(d, 0) for d in ranked]) / ideal,
        "map": sum(sum(hits[: i + 1]) / (i + 1) for i, h in enumerate(hits) if h) / len(relevant),
        "mrr": next((1 / (i + 1) for i, h in enumerate(hits) if h), 0.0),
        "precision": sum(hits[:k]) / k,
        "recall": sum(hits[:k]) / len(relevant),
        "unjudged": sum(d not in judged for d in ranked[:k]) / max(1, len(ranked[:k])),
    }


def means(run_path, qrels_path, k):
    run, qrels = read_run(run_path), read_qrels(qrels_path)
    counted = [q for q in qrels if any(r > 0 for r in qrels[q].values())]
    rows = [measures(list(dict.fromkeys(run.get(q, []))), qrels[q], k) for q in counted]
    return {"questions": len(rows)} | {
        name: math.fsum(row[name] for row in rows) / len(rows) for name in rows[0]
    }


def main():
    k = int(sys.argv[3]) if len(sys.argv) > 3 else 10
    found = means(sys.argv[1], sys.argv[2], k)
    print("questions", found.pop("questions"), "k", k)
    for name, value in found.items():
        print(name, repr(value))


if __name__ == "__main__":
    main()
