#!/usr/bin/env python3
"""Runs the tool rag on small inputs: exit status, what it prints, what it complains about.

usage: tool.py RAG
"""
import json
import math
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import measures

RAG = ""
CLOSED = ("rag: nothing found: nothing is indexed that group {} may read; --group and --tenant "
          "name another reader\n")
DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
PAGES = str(DATA / "pay042")
QUESTION = ("Checkout started showing PAY-042 after I changed the gateway key. "
            "How do I get payments working again?")
STRUCTURE = ["--chunker", "structure"]
CHUNKERS = ["whole", "fixed", "sentence", "packed", "structure", "recursive"]


def rag(*arguments, given=b"", folder=None):
    done = subprocess.run([RAG, *arguments], input=given, capture_output=True, cwd=folder)
    return done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8", "replace")


class Tool(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.work.name)

    def tearDown(self):
        self.work.cleanup()

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return str(path)

    def jsonl(self, name, objects):
        return self.write(name, "".join(json.dumps(o) + "\n" for o in objects))

    def chunks(self, *arguments, **more):
        status, out, err = rag("chunk", *arguments, "--jsonl", **more)
        self.assertEqual((status, err), (0, ""))
        return [json.loads(line) for line in out.splitlines()]

    def search(self, *arguments, complaints="", **more):
        status, out, err = rag("search", *arguments, "--json", **more)
        self.assertEqual((status, err), (0, complaints))
        return json.loads(out)

    def ids(self, *arguments, key="document_id", **more):
        return [p[key] for p in self.search(*arguments, **more)["passages"]]

    def refused(self, status, *arguments):
        """Refused with this status, one line on standard error and nothing on standard output."""
        got, out, err = rag(*arguments)
        self.assertEqual((got, out, err.count("\n")), (status, "", 1), (arguments, err))
        self.assertTrue(err.endswith("\n"))
        return err


class CommandLine(Tool):
    def test_help_everywhere(self):
        for arguments in (["--help"], ["chunk", "--help"], ["search", "--help"], ["--version"],
                          ["index", "--help"], ["run", "--help"], ["eval", "--help"]):
            status, out, err = rag(*arguments)
            self.assertEqual((status, err), (0, ""))
            self.assertTrue(out)

    def test_wrong_usage_is_status_2_and_one_line(self):
        none = str(self.folder / "not-there")  # refused before any file is read
        for arguments in (
            [], ["index"], ["chunk"], ["search", none], ["chunk", none, "--nonsense"],
            ["search", none, "a", "b"], ["chunk", none, "--chunker", "nonsense"],
            ["update", none, none], ["search", none, "q", "--where", "a=b"],
            ["index", none], ["index", none, "-o", "-"], ["index", none, "-o", "x", "--ivf"],
            ["index", none, "-o", "x", "--embed-url", "u"], ["run", none, "-o", "x"],
            ["run", none, "--queries", none, "-o", "x", "--mode", "dense"],
            ["run", none, "--queries", none, "-o", "x", "--by", "word"],
            ["eval", none], ["eval", none, "--qrels", none, "--k", "0"],
            ["eval", none, "--qrels", none, "--ablation"],
            ["chunk", none, "--window", "2"], ["chunk", none, "--parent-size", "9"],
            ["chunk", none, "--chunker", "parent-child", "--chunk-size", "9"],
            ["chunk", none, "--chunker", "parent-child", "--child-size", "1024"],
            ["chunk", none, "--chunker", "semantic", "--threshold", "0.95"],
            ["chunk", none, "--chunker", "semantic", "--threshold-kind", "nonsense"],
            ["chunk", none, "--chunk-size", "0"], ["chunk", none, "--chunk-size", "-1"],
            ["chunk", none, "--chunk-size", "x"], ["chunk", none, "--unit", "token"],
            ["chunk", none, "--chunk-size", "10", "--overlap", "10", "--chunker", "fixed"],
            ["chunk", none, "--overlap", "2", "--chunker", "structure"],
            ["chunk", none, "--max-heading-level", "7"], ["chunk", none, "--identifier", "("],
            ["chunk", none, "--chunker", "fixed", "--max-heading-level", "2"],
            ["chunk", "-", "-"], ["search", "-", "-"],
            ["search", none, "q", "--groups", "a", "--access", "b"],
            ["search", none, "q", "--groups", "a,,b"], ["search", none, "q", "--group", ""],
            ["search", none, "q", "--limit", "0"],
            ["search", none, "q", "--limit", "1", "--limit", "2"],
            ["search", none, "q", "--per-document", "0"], ["search", none, "q", "--budget", "0"],
            ["search", none, "q", "--mode", "dense"], ["search", none, "q", "--mode", "hybrid"],
            ["search", none, "q", "--question-embedding", "v.json"],
        ):
            self.refused(2, *arguments)

    def test_bad_input_is_status_1_and_names_the_file(self):
        none = str(self.folder / "not-there")
        self.assertIn("not-there", self.refused(1, "chunk", none))
        self.assertIn("not-there", self.refused(1, "search", none, "question"))


class Chunk(Tool):
    def test_text_is_the_slice_and_nothing_is_lost(self):
        path = DATA / "pay042" / "gateway-errors.md"
        page = path.read_bytes()
        for chunker in CHUNKERS:
            pieces = self.chunks(str(path), "--chunker", chunker, "--chunk-size", "20")
            covered = bytearray(len(page))
            for piece in pieces:
                begin, end = piece["begin"], piece["end"]
                self.assertEqual(piece["text"].encode(), page[begin:end])
                self.assertTrue(begin <= piece["body_begin"] <= piece["body_end"] <= end)
                if chunker != "whole":
                    self.assertLessEqual(piece["token_count"], 20)
                covered[begin:end] = b"x" * (end - begin)
                path_titles = " ".join(piece["heading_path"])
                self.assertIsInstance(path_titles, str)
            lost = bytes(c for c, seen in zip(page, covered) if not seen).strip()
            self.assertIn(lost.replace(b"\n", b""), (b"", b"# Gateway error reference"))

    def test_sections_of_the_worked_example(self):
        pieces = self.chunks(PAGES + "/gateway-errors.md", "--chunker", "structure",
                             "--identifier", "PAY-###")
        self.assertEqual([p["identifiers"] for p in pieces],
                         [["PAY-041"], ["PAY-042"], ["PAY-043"]])
        self.assertEqual(pieces[1]["heading_path"],
                         ["Gateway error reference", "PAY-042: Stored credential was rejected"])
        self.assertEqual(pieces[1]["id"],
                         "gateway-errors.md#pay-042-stored-credential-was-rejected")
        self.assertTrue(pieces[1]["text"].startswith("## PAY-042"))
        self.assertNotIn("parent_id", pieces[1])
        self.assertNotIn("oversize", pieces[1])

    def test_windows_of_220_tokens(self):
        tokens = str(DATA / "synthetic" / "tokens-220.txt")
        plain = self.chunks(tokens, "--chunker", "fixed", "--chunk-size", "80")
        self.assertEqual([p["token_count"] for p in plain], [80, 80, 60])
        pieces = self.chunks(tokens, "--chunker", "fixed", "--chunk-size", "80", "--overlap", "20")
        ends = [(p["text"].split()[0], p["text"].split()[-1]) for p in pieces]
        self.assertEqual(ends, [("t000", "t079"), ("t060", "t139"),
                                ("t120", "t199"), ("t180", "t219")])

    def test_units(self):
        path = self.write("a.txt", "\u00e9\u00e9\u00e9\u00e9 bbbb cccc")
        for unit, size in (("word", 1), ("code-point", 5), ("byte", 9)):
            for chunker in CHUNKERS[1:]:
                pieces = self.chunks(path, "--chunker", chunker, "--unit", unit,
                                     "--chunk-size", str(size))
                for piece in pieces:
                    count = {"word": len(piece["text"].split()), "code-point": len(piece["text"]),
                             "byte": len(piece["text"].encode())}[unit]
                    self.assertLessEqual(count, size)
                self.assertEqual("".join("".join(p["text"].split()) for p in pieces),
                                 "\u00e9\u00e9\u00e9\u00e9bbbbcccc")

    def test_indivisible_grapheme_is_flagged(self):
        path = self.write("family.txt", "\U0001F468\u200D\U0001F469\u200D\U0001F467")
        pieces = self.chunks(path, "--chunker", "fixed", "--unit", "code-point",
                             "--chunk-size", "2")
        self.assertEqual([(len(p["text"]), p.get("oversize")) for p in pieces], [(5, True)])

    def test_standard_input_and_several_files(self):
        pieces = self.chunks("-", given=b"# A\n\ntext")
        self.assertEqual(pieces[0]["document_id"], "-")
        one, two = self.write("x/n.md", "one"), self.write("y/n.md", "two")
        ids = [p["document_id"] for p in self.chunks(one, two)]
        self.assertEqual(len(set(ids)), 2)
        self.assertEqual(self.chunks(one)[0]["document_id"], "n.md")

    def test_listing_marks_the_cuts(self):
        status, out, err = rag("chunk", PAGES + "/gateway-errors.md", "--chunker", "structure")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(out.count("\n---- "), 4)
        self.assertIn("[0, 25) in no chunk\n# Gateway error reference", out)

    def test_invalid_utf8_is_kept_and_reported(self):
        path = self.write("bad.txt", b"good line\nbad \xff byte\n")
        status, out, err = rag("chunk", path, "--jsonl", "--chunker", "whole")
        self.assertEqual(status, 0)
        self.assertTrue(err.startswith(path + ":2: "), err)
        piece = json.loads(out)
        self.assertIn("bad \ufffd byte", piece["text"])
        self.assertEqual(piece["end"] - piece["begin"], len(b"good line\nbad \xff byte"))
        self.assertTrue(self.refused(1, "chunk", path, "--strict").startswith(path + ":2: "))


class Search(Tool):
    def test_shape_of_the_json(self):
        found = self.search(PAGES, QUESTION, "--identifier", "PAY-###", *STRUCTURE)
        self.assertEqual(list(found), ["question", "mode", "status", "timings_ms", "passages"])
        self.assertEqual((found["mode"], found["status"]), ("lexical", "ok"))
        self.assertEqual(list(found["timings_ms"]), ["lexical", "dense", "fusion", "recheck",
                                                     "rerank", "selection", "total"])
        first = found["passages"][0]
        self.assertEqual(first["rank"], 1)
        self.assertEqual(first["heading_path"][-1], "PAY-042: Stored credential was rejected")
        self.assertIs(first["exact_match"], True)
        self.assertEqual((first["revision"], first["lexical_rank"]), (0, 1))
        self.assertNotIn("dense_rank", first)
        self.assertIsInstance(first["why"], str)
        page = (DATA / "pay042" / first["document_id"]).read_bytes()
        self.assertEqual(page[first["begin"]:first["end"]].decode(), first["text"])

    def test_payments_ops_gets_cause_and_repair_and_support_never_the_repair(self):
        common = [PAGES, QUESTION, *STRUCTURE, "--identifier", "PAY-###",
                  "--access", PAGES + "/access.jsonl"]
        documents = lambda group: self.ids(*common, "--group", group)
        ops = documents("payments-ops")
        self.assertEqual(ops[0], "gateway-errors.md")
        self.assertIn("reconnect-gateway.md", ops)
        self.assertNotIn("reconnect-gateway.md", documents("support"))
        self.assertIn("checkout-failures.md", documents("support"))

    def test_a_forbidden_page_changes_nothing_for_a_reader(self):
        common = ["--identifier", "PAY-###", "--group", "support", "--explain"]
        with_it = self.search(PAGES, QUESTION, "--access", PAGES + "/access.jsonl", *common)
        for name in ("gateway-errors.md", "checkout-failures.md"):
            self.write("pages/" + name, (DATA / "pay042" / name).read_bytes())
        without = self.search(str(self.folder / "pages"), QUESTION, "--groups", "support", *common)
        del with_it["timings_ms"], without["timings_ms"]
        self.assertEqual(with_it, without)

    def test_the_same_command_prints_the_same(self):
        twice = [self.search(PAGES, QUESTION, "--explain") for _ in range(2)]
        for found in twice:
            del found["timings_ms"]
        self.assertEqual(twice[0], twice[1])

    def test_explanation_adds_up(self):
        found = self.search(PAGES, QUESTION, "--explain")
        self.assertEqual(list(found["explain"]), ["bm25", "rrf", "dropped"])
        for each in found["explain"]["bm25"]:
            self.assertEqual(sum(t["value"] for t in each["terms"]), each["score"])
        self.assertEqual([p["score"] for p in found["passages"]],
                         [e["score"] for e in found["explain"]["bm25"]
                          if e["id"] in [p["id"] for p in found["passages"]]])

    def test_caps_limits_and_offsets_say_what_they_dropped(self):
        found = self.search(PAGES, QUESTION, *STRUCTURE, "--explain", "--limit", "1")
        self.assertEqual({d["stage"] for d in found["explain"]["dropped"]}, {"cap", "limit"})
        everything = self.ids(PAGES, QUESTION, *STRUCTURE, "--per-document", "9", key="id")
        self.assertEqual(len(everything), 5)
        pages = sum((self.ids(PAGES, QUESTION, *STRUCTURE, "--per-document", "9", "--limit", "2",
                              "--offset", str(o), key="id")
                     for o in (0, 2, 4)), [])
        self.assertEqual(pages, everything)

    def test_budget_counts_words_whatever_the_unit(self):
        for unit in ("word", "byte"):
            found = self.search(PAGES, QUESTION, "--budget", "60", "--unit", unit,
                                "--chunk-size", "400", "--explain", *STRUCTURE)
            words = sum(len(p["text"].replace("#", "").split()) for p in found["passages"])
            self.assertTrue(0 < words <= 60)
            self.assertIn("budget", {d["stage"] for d in found["explain"]["dropped"]})

    def test_nothing_found_is_an_empty_list_and_one_line(self):
        status, out, err = rag("search", PAGES, "zebra", "--json")
        self.assertEqual((status, err.count("\n")), (0, 1))
        self.assertEqual(json.loads(out)["passages"], [])
        self.assertEqual(rag("search", PAGES, "zebra")[1], "")

    def test_nothing_found_says_why_and_what_to_try(self):
        path = self.write("a.txt", "apples and pears")
        for options, why in (
                (["zebra"], "in 1 chunk that group everyone may read there is no word of the "
                            "question; try other words"),
                (["pears", "--budget", "2"], "a.txt# needs 3 tokens, 2 of 2 are left; try a larger "
                                             "--budget"),
                (["pears", "--offset", "7"], "no passage stands behind --offset 7")):
            for form in ([], ["--json"]):
                status, out, err = rag("search", path, *options, *form)
                self.assertEqual((status, err), (0, "rag: nothing found: " + why + "\n"))

    def test_one_is_written_in_the_singular(self):
        path = self.write("a.md", "## A\n\napples\n\n## B\n\napples pears\n")
        common = ["search", path, "apples", *STRUCTURE, "--explain"]
        self.assertIn("limit: after 1 passage from offset 0\n", rag(*common, "--limit", "1")[1])
        self.assertIn("in 2 of 2 chunks", rag(*common)[1])
        one = self.write("one.txt", "apples")
        self.assertIn("1 term, on average", rag("search", one, "apples", "--explain")[1])
        self.assertIn("==== one.txt  6 bytes, 1 chunk\n", rag("chunk", one)[1])
        self.assertIn("  1 token\n", rag("chunk", one)[1])

    def test_a_drop_by_the_cap_names_the_cap(self):
        path = self.write("a.md", "".join(f"## S{i}\n\napples\n\n" for i in range(4)))
        for cap, reason in (("1", "beyond 1 candidate per document (--per-document)"),
                            ("2", "beyond 2 candidates per document (--per-document)")):
            common = [path, "apples", *STRUCTURE, "--per-document", cap, "--explain"]
            dropped = self.search(*common)["explain"]["dropped"]
            self.assertEqual([(d["stage"], d["reason"]) for d in dropped],
                             [("cap", reason)] * (4 - int(cap)))
            self.assertIn("  cap: " + reason + "\n", rag("search", *common)[1])

    def test_readable_form(self):
        status, out, err = rag("search", PAGES, QUESTION, "--identifier", "PAY-###",
                               "--limit", "1", *STRUCTURE)
        self.assertEqual((status, err), (0, ""))
        self.assertTrue(out.startswith("[1] gateway-errors.md#pay-042"))
        self.assertIn("Gateway error reference > PAY-042", out)

    def test_codes_of_the_rust_pages(self):
        for code in ("E0382", "E0001", "E0277"):
            question = f"what does {code} mean and how do I fix it"
            found = self.ids(str(DATA / "rust-errors"), question, "--identifier", "E####")
            self.assertEqual(found[0], code + ".md")

    def test_standard_input(self):
        self.assertEqual(self.ids("-", "apples", given=b"apples"), ["-"])
        lines = b'{"id":"a","text":"apples"}\n{"id":"b","text":"pears"}\n'
        self.assertEqual(self.ids("-", "pears", given=lines), ["b"])
        self.assertEqual(self.search(PAGES, "-", given=b"PAY-042\n")["question"], "PAY-042")


class Terminal(Tool):
    """What a document holds is shown and never obeyed."""

    def none_raw(self, text):
        for c in text:
            self.assertFalse(c not in "\n\t" and (c < " " or "\x7f" <= c < "\xa0"), repr(text))

    def test_control_characters_are_visible(self):
        bad = "\x1b[2J\x07\x00\x7f\x9b31m"
        seen = r"\x1B[2J\x07\x00\x7F\xC2\x9B31m"
        name = "a\x1b[1m.md"
        path = self.write(name, f"# Title {bad}\n\none\ttwo {bad}\n")
        out = rag("chunk", path, *STRUCTURE)[1] + rag("search", path, "two", "--explain")[1]
        self.none_raw(out)
        for what in ("one\ttwo " + seen, "Title " + seen, r"a\x1B[1m.md"):
            self.assertIn(what, out)
        for command in (["chunk", path, "--jsonl"], ["search", path, "two", "--json"]):
            out = rag(*command)[1]
            self.none_raw(out)
            found = json.loads(out)
            text = found["passages"][0]["text"] if "passages" in found else found["text"]
            self.assertTrue(text.endswith("one\ttwo " + bad))
        err = rag("search", path, "zebra")[2] + rag("chunk", path + "x")[2]
        self.none_raw(err)

    def test_bytes_that_are_not_utf8_are_visible_and_line_ends_stay(self):
        path = self.write("a.txt", b"one\r\ntwo\rthree \x9b \xff")
        done = subprocess.run([RAG, "chunk", path], capture_output=True)
        self.assertIn(b"one\r\ntwo\\x0Dthree \\x9B \\xFF\n", done.stdout)

    def test_kinds_of_questions(self):
        queries = self.jsonl("q.jsonl", [{"id": "1", "text": "x", "kind": "k\x1b[1m"}])
        found = rag("eval", self.write("r", "1 Q0 a 1 1 t\n"), "--qrels",
                    self.write("j", "1\ta\t1\n"), "--queries", queries)
        self.assertEqual(found[::2], (0, ""))
        self.assertIn(r"k\x1B[1m", found[1])
        self.none_raw(found[1])


class DocumentsAsLines(Tool):
    def test_fields(self):
        path = self.jsonl("docs.jsonl", [
            {"id": "a", "title": "T", "text": "apples", "revision": 7,
             "metadata": {"n": 1, "l": ["x"]}},
            {"id": "b", "text": "apples and pears", "allowed_groups": ["staff"]},
            {"id": "c", "text": "apples", "allowed_groups": []},
            {"id": "d", "text": "apples", "tenant": "acme"}])
        found = self.search(path, "apples")
        self.assertEqual([(p["document_id"], p["revision"]) for p in found["passages"]], [("a", 7)])
        self.assertEqual(self.ids(path, "apples", "--group", "staff"), ["b"])
        self.assertEqual(self.ids(path, "apples", "--tenant", "acme"), ["d"])
        self.assertEqual(sorted(self.ids(path, "apples", "--groups", "staff", "--group", "staff")),
                         ["a", "b"])

    def test_bad_lines_are_reported_and_left_out(self):
        good = b'{"id":"good","text":"apples"}\n'
        for bad in (b"{", b"[]", b'{"text":"apples"}', b'{"id":"x"}',
                    b'{"id":"","text":"apples"}',
                    b'{"id":1,"text":"apples"}', b'{"id":"x","text":"apples","title":3}',
                    b'{"id":"x","text":"apples","revision":-1}',
                    b'{"id":"x","text":"apples","revision":1.5}',
                    b'{"id":"x","text":"apples","allowed_groups":"a"}',
                    b'{"id":"x","text":"apples","allowed_groups":[""]}',
                    b'{"id":"x","text":"apples","allowed_groups":null}',
                    b'{"id":"x","text":"apples","metadata":{"k":true}}',
                    b'{"id":"good","text":"apples"}'):
            path = self.write("docs.jsonl", good + b"\n" + bad + b"\n")
            status, out, err = rag("search", path, "apples", "--json")
            self.assertEqual((status, err.count("\n")), (0, 1), bad)
            self.assertTrue(err.startswith(path + ":3: "), err)
            found = json.loads(out)["passages"]
            self.assertEqual([p["document_id"] for p in found], ["good"])
            err = self.refused(1, "search", path, "apples", "--strict")
            self.assertTrue(err.startswith(path + ":3: "), err)

    def test_one_id_may_stand_in_two_tenants(self):
        path = self.jsonl("docs.jsonl", [{"id": "a", "text": "apples"},
                                         {"id": "a", "text": "apples", "tenant": "t"}])
        self.assertEqual(self.ids(path, "apples", "--strict"), ["a"])

    def test_invalid_utf8_is_kept_byte_for_byte(self):
        path = self.write("docs.jsonl", b'{"id":"a","text":"apples \xff\xfe pears"}\n')
        status, out, err = rag("chunk", path, "--jsonl")
        piece = json.loads(out)
        self.assertEqual(status, 0)
        self.assertTrue(err.startswith(path + ":1: "))
        self.assertEqual((piece["begin"], piece["end"]), (0, len(b"apples \xff\xfe pears")))

    def test_without_a_title_there_is_none(self):
        path = self.jsonl("docs.jsonl", [{"id": "a", "text": "# Fruit\n\napples"}])
        self.assertEqual(self.ids(path, "apples", key="id"), ["a#fruit"])


class Access(Tool):
    def setUp(self):
        super().setUp()
        for name in ("hr/pay.md", "hr/leave.md", "it/vpn.md", "notes.txt", "image.png"):
            self.write("pages/" + name, "apples")
        self.pages = str(self.folder / "pages")

    def test_every_page_is_for_everyone_without_rules(self):
        self.assertEqual(sorted(self.ids(self.pages, "apples")),
                         ["hr/leave.md", "hr/pay.md", "it/vpn.md", "notes.txt"])
        self.assertEqual(self.ids(self.pages, "apples", "--group", "staff",
                                  complaints=CLOSED.format("staff")), [])
        other = ["--group", "a", "--group", "b", "--tenant", "t"]
        err = rag("search", self.pages, "apples", *other)[2]
        self.assertIn("groups a, b of tenant t may read", err)

    def test_id_wins_then_the_longest_prefix_and_what_no_line_names_is_nobodys(self):
        access = self.jsonl("access.jsonl", [
            {"prefix": "", "allowed_groups": ["all"]}, {"prefix": "hr/", "allowed_groups": ["hr"]},
            {"id": "hr/pay.md", "allowed_groups": ["boss"]}])
        ids = lambda group: sorted(self.ids(self.pages, "apples", "--access", access,
                                            "--group", group))
        self.assertEqual(ids("all"), ["it/vpn.md", "notes.txt"])
        self.assertEqual(ids("hr"), ["hr/leave.md"])
        self.assertEqual(ids("boss"), ["hr/pay.md"])
        few = self.jsonl("few.jsonl", [{"id": "notes.txt", "allowed_groups": ["everyone"]}])
        self.assertEqual(self.ids(self.pages, "apples", "--access", few), ["notes.txt"])

    def test_tenants(self):
        access = self.jsonl("access.jsonl", [
            {"prefix": "hr/", "tenant": "acme", "allowed_groups": ["staff"]},
            {"prefix": "it/", "allowed_groups": ["staff"]}])
        common = [self.pages, "apples", "--access", access, "--group", "staff"]
        self.assertEqual(self.ids(*common), ["it/vpn.md"])
        self.assertEqual(sorted(self.ids(*common, "--tenant", "acme")),
                         ["hr/leave.md", "hr/pay.md"])

    def test_bad_rules_are_fatal(self):
        good = '{"id":"notes.txt","allowed_groups":["a"]}\n'
        for bad in ("{", "[]", '{"allowed_groups":["a"]}', '{"id":"x"}', '{"prefix":"x"}',
                    '{"id":"x","prefix":"y","allowed_groups":["a"]}',
                    '{"id":"x","allowed_groups":[""]}', '{"id":"x","allowed_groups":"a"}',
                    '{"id":"notes.txt","allowed_groups":["b"]}'):
            access = self.write("access.jsonl", good + bad + "\n")
            err = self.refused(1, "search", self.pages, "apples", "--access", access)
            self.assertTrue(err.startswith(access + ":2: "), err)

    def test_titles(self):
        self.write("more/setext.md", "intro\n\nBig title\n=========\n\nplums")
        self.write("more/plain-name.txt", "plums")
        path = str(self.folder / "more")
        status, out, err = rag("search", path, "plums")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("    Big title", out)
        self.assertIn("    plain-name", out)


class OtherChunkers(Tool):
    def test_semantic_says_what_it_embeds_with(self):
        path = self.write("a.txt", "Cats purr. Cats sleep. Cats purr and sleep. "
                                   "Gears turn. Gears grind. Gears turn and grind.")
        common = ["chunk", path, "--chunker", "semantic", "--jsonl", "--window", "0",
                  "--threshold-kind", "absolute", "--threshold"]
        counts = []
        for threshold in ("0", "0.7", "2"):
            status, out, err = rag(*common, threshold)
            self.assertEqual((status, err.count("\n")), (0, 1))
            self.assertIn("hashed word vector", err)
            pieces = [json.loads(line) for line in out.splitlines()]
            self.assertEqual("".join("".join(p["text"].split()) for p in pieces),
                             "".join(pathlib.Path(path).read_text().split()))
            counts.append(len(pieces))
        self.assertEqual((counts[0], counts[2]), (6, 1))
        self.assertTrue(counts[0] >= counts[1] >= counts[2])

    def test_parents_stand_before_their_children(self):
        path = self.write("a.md", "# Page\n\n## A\n\nOne apple.\n\n## B\n\nTwo pears.\n")
        pieces = self.chunks(path, "--chunker", "parent-child")
        self.assertEqual([p.get("parent_id") for p in pieces], [None, pieces[0]["id"],
                                                                pieces[0]["id"]])
        found = self.search(path, "apple pears", "--chunker", "parent-child")
        self.assertEqual([p["id"] for p in found["passages"]], [pieces[0]["id"]])
        self.assertIn("in " + pieces[0]["id"], rag("chunk", path, "--chunker", "parent-child")[1])


class Indexed(Tool):
    def setUp(self):
        super().setUp()
        self.index_path = str(self.folder / "pages.idx")

    def index(self, *arguments, complaints=""):
        status, out, err = rag("index", *arguments, "-o", self.index_path)
        self.assertEqual((status, err), (0, complaints))
        return self.index_path

    def left(self):
        return sorted(p.name for p in self.folder.iterdir())


class Index(Indexed):
    def test_an_index_answers_as_its_source(self):
        options = ["--identifier", "PAY-###", *STRUCTURE, "--access", PAGES + "/access.jsonl"]
        index = self.index(PAGES, *options)
        for group in ("support", "payments-ops", "everyone"):
            found = [self.search(s, QUESTION, "--group", group, "--explain", *o)
                     for s, o in ((PAGES, options), (index, []))
                     if group != "everyone"]
            for each in found:
                del each["timings_ms"]
            self.assertEqual(found[:1], found[1:])
        self.assertEqual(self.ids(index, QUESTION, complaints=CLOSED.format("everyone")), [])
        self.assertEqual(self.left(), ["pages.idx"])

    def test_the_same_command_writes_the_same_bytes(self):
        first = pathlib.Path(self.index(PAGES)).read_bytes()
        self.assertEqual(pathlib.Path(self.index(PAGES)).read_bytes(), first)

    def test_options_of_a_source_contradict_an_index(self):
        index = self.index(PAGES)
        for options in (["--chunker", "whole"], ["--identifier", "#"], ["--ivf", "--embeddings",
                                                                        "x"]):
            self.refused(2, "search", index, "q", *options)
        self.refused(1, "search", index, "q", "--mode", "dense", "--question-embedding",
                     self.write("q.json", "[1]"))

    def test_a_failing_command_leaves_an_older_file_as_it_was(self):
        path = self.write("docs.jsonl", "{\n")
        self.refused(1, "index", path, "--strict", "-o", self.index_path)
        self.assertEqual(self.left(), ["docs.jsonl"])
        self.write("pages.idx", "older")
        self.refused(1, "index", path, "--strict", "-o", self.index_path)
        self.refused(1, "index", str(self.folder / "none"), "-o", self.index_path)
        self.refused(1, "index", PAGES, "-o", str(self.folder))
        self.refused(1, "index", PAGES, "-o", str(self.folder / "no" / "x"))
        self.refused(2, "index", path, "-o", path)
        self.assertEqual(self.left(), ["docs.jsonl", "pages.idx"])
        self.assertEqual(pathlib.Path(self.index_path).read_text(), "older")

    def test_an_interrupt_leaves_nothing(self):
        for wait in (0.0, 0.05, 0.2):
            work = subprocess.Popen([RAG, "index", str(DATA / "rust-errors"), "-o",
                                     self.index_path], stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL)
            time.sleep(wait)
            work.send_signal(signal.SIGINT)
            if work.wait() == 0:  # it was faster
                os.remove(self.index_path)
            self.assertEqual(self.left(), [])

    def test_damaged_files_are_refused(self):
        path = self.jsonl("docs.jsonl", [{"id": "a", "text": "apples"}])
        good = pathlib.Path(self.index(path, "--identifier", "A-#")).read_bytes()
        for at in range(12, len(good), 7):
            bad = self.write("bad.idx", good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
            self.assertIn("bad.idx", self.refused(1, "search", bad, "apples"))
            self.refused(1, "search", self.write("bad.idx", good[:at]), "apples")
        self.refused(1, "run", path, "--queries", path, "-o", self.index_path + "2")

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs a full device")
    def test_a_summary_that_cannot_be_written_leaves_no_index(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([RAG, "index", PAGES, "-o", self.index_path], stdout=full,
                                  stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stderr.count(b"\n")), (1, 1))
        self.assertEqual(self.left(), [])

    def test_the_readable_form_is_short(self):
        status, out, err = rag("search", str(DATA / "rust-errors"), "borrow moved value",
                               "--explain", "--limit", "1")
        self.assertEqual((status, err, out.count("  limit: ")), (0, "", 5))
        self.assertRegex(out, r"\n  \.\.\. and [0-9]+ more beyond the limit\n")
        self.assertRegex(out, r"    score [0-9.]{4}; ")
        err = rag("search", PAGES, "")[2]
        self.assertEqual(err, "rag: nothing found: the question holds no word to search for\n")

    def test_a_folder_without_documents_says_so(self):
        (self.folder / "empty").mkdir()
        status, out, err = rag("search", str(self.folder / "empty"), "q", "--json")
        self.assertEqual((status, err.count("\n"), json.loads(out)["passages"]), (0, 1, []))
        self.assertTrue(err.endswith("no .md, .markdown or .txt below this folder; nothing is "
                                     "indexed\n"))
        self.assertIn("nothing is cut", rag("chunk", str(self.folder / "empty"))[2])
        none = self.write("none.jsonl", "")
        self.assertEqual(rag("search", none, "q")[1:],
                         ("", f"rag: {none}: no documents; nothing is indexed\n"))

    def test_the_summary_counts(self):
        path = self.jsonl("docs.jsonl", [{"id": "a", "text": "apples"}])
        out = rag("index", path, "-o", self.index_path)[1]
        self.assertEqual(out, self.index_path + ": 1 document, 1 chunk, 0 vectors\n")


class Vectors(Indexed):
    def setUp(self):
        super().setUp()
        self.docs = self.jsonl("docs.jsonl", [{"id": i, "text": t} for i, t in
                                              (("a", "apples"), ("b", "pears"), ("c", "plums"))])
        self.rows = {"a": [1, 0], "b": [0, 1], "c": [0.6, 0.8]}
        self.lines = self.jsonl("v.jsonl", [{"id": i, "embedding": v}
                                            for i, v in self.rows.items()])
        self.write("w.f32", b"".join(struct.pack("<2f", *v) for v in self.rows.values()))
        self.write("w.ids", "a\nb\nc\n")
        self.floats = str(self.folder / "w.f32")

    def test_both_forms_and_every_mode(self):
        one = pathlib.Path(self.index(self.docs, "--embeddings", self.lines)).read_bytes()
        two = pathlib.Path(self.index(self.docs, "--embeddings", self.floats)).read_bytes()
        self.assertEqual(one, two)
        vectors = [self.write("q.json", "[1, 0]"), self.write("o.json", '{"embedding":[1,0]}'),
                   self.write("q.f32", struct.pack("<2f", 1, 0))]
        for vector in vectors:
            for source in ([self.index_path], [self.docs, "--embeddings", self.lines]):
                found = self.search(source[0], "pears", *source[1:], "--mode", "dense",
                                    "--question-embedding", vector)
                self.assertEqual([p["document_id"] for p in found["passages"]], ["a", "c", "b"])
                self.assertEqual(found["passages"][0]["score"], 1)
        common = [self.index_path, "pears", "--question-embedding", vectors[0]]
        self.assertEqual(self.search(*common)["mode"], "hybrid")
        self.assertEqual(self.search(*common, "--mode", "lexical")["mode"], "lexical")
        self.assertEqual(self.search(*common[:2])["mode"], "lexical")

    def test_a_zero_question_leaves_the_dense_leg_out(self):
        self.index(self.docs, "--embeddings", self.lines)
        zero = self.write("z.json", "[0, 0]")
        found = self.search(self.index_path, "pears", "--question-embedding", zero)
        self.assertNotEqual(found["status"], "ok")
        self.assertEqual([p["document_id"] for p in found["passages"]], ["b"])

    def test_ivf_finds_the_same_in_a_small_index(self):
        self.index(self.docs, "--embeddings", self.lines, "--ivf")
        found = self.ids(self.index_path, "q", "--mode", "dense", "--question-embedding",
                         self.write("q.json", "[1, 0]"))
        self.assertEqual(found, ["a", "c", "b"])

    def test_bad_vectors_are_fatal(self):
        for bad in ("{", "[]", '{"id":"a"}', '{"embedding":[1,2]}', '{"id":"b","embedding":[1]}',
                    '{"id":"b","embedding":[]}', '{"id":"b","embedding":["x",1]}',
                    '{"id":"b","embedding":[1e39,1]}', '{"id":"a","embedding":[1,2]}'):
            path = self.write("bad.jsonl", '{"id":"a","embedding":[1,2]}\n' + bad + "\n")
            err = self.refused(1, "index", self.docs, "--embeddings", path, "-o", self.index_path)
            self.assertTrue(err.startswith(path + ":2: "), err)
        self.write("w.ids", "a\nb\n\n")
        self.write("w.f32", b"1234567")
        self.refused(1, "index", self.docs, "--embeddings", self.floats, "-o", self.index_path)
        other = self.jsonl("other.jsonl", [{"id": "x", "embedding": [1]}])
        self.refused(1, "index", self.docs, "--embeddings", other, "-o", self.index_path)
        self.index(self.docs, "--embeddings", self.lines)
        for bad in ("", "{}", "[1]", "[]", '["a"]', "[1,2,3]", '{"embedding":7}'):
            self.refused(1, "search", self.index_path, "q", "--question-embedding",
                         self.write("q.json", bad))
        self.assertEqual([n for n in self.left() if n.endswith(".tmp")], [])


class Runs(Indexed):
    def setUp(self):
        super().setUp()
        self.docs = self.jsonl("docs.jsonl", [
            {"id": "a", "text": "# One\n\napples\n\n# Two\n\napples pears\n"},
            {"id": "b", "text": "apples apples apples"}, {"id": "c", "text": "plums A-1 and more"},
            {"id": "d", "text": "A-2", "allowed_groups": ["staff"]}])
        self.queries = self.jsonl("queries.jsonl", [
            {"id": "1", "text": "apples", "kind": "fruit"},
            {"id": "2", "text": "plums more apples A-2 A-1", "kind": "code"},
            {"id": "3", "text": "zebra", "kind": "fruit"}])
        self.qrels = self.write("qrels.tsv", "1\ta\t1\n1\tb\t2\n2\tc\t1\n3\tb\t1\n")
        self.index(self.docs, *STRUCTURE, "--identifier", "A-#")
        self.run_path = str(self.folder / "out.run")

    def lines(self, *options):
        status, out, err = rag("run", self.index_path, "--queries", self.queries, *options, "-o",
                               self.run_path)
        self.assertEqual((status, out, err), (0, "", ""))
        rows = [line.split() for line in pathlib.Path(self.run_path).read_text().splitlines()]
        for row, after in zip(rows, rows[1:]):
            if row[0] == after[0]:
                self.assertEqual(int(after[3]), int(row[3]) + 1)
                self.assertLessEqual(float(after[4]), float(row[4]))
        return [(row[0], row[2]) for row in rows]

    def test_candidates(self):
        chunks = self.lines()
        self.assertEqual(sum(1 for q, i in chunks if q == "1"), 3)
        documents = self.lines("--by", "document")
        self.assertEqual(sorted(i for q, i in documents if q == "1"), ["a", "b"])
        self.assertEqual([i for q, i in documents if q == "2"][0], "c")
        self.assertNotIn(("2", "d"), documents)
        self.assertIn(("2", "d"), self.lines("--by", "document", "--group", "staff", "--group",
                                             "everyone"))
        self.assertEqual(len([q for q, _ in self.lines("--depth", "1")]), 2)

    def test_measures_of_a_run(self):
        self.write("my.run", "1 Q0 b 1 3.0 t\n1 Q0 x 2 2.0 t\n1 Q0 a 3 1.0 t\n2 Q0 x 1 1 t\n")
        path = str(self.folder / "my.run")
        status, out, err = rag("eval", path, "--qrels", self.qrels, "--queries", self.queries,
                               "--k", "2", "--json")
        self.assertEqual((status, err), (0, ""))
        found = json.loads(out)
        self.assertEqual(list(found)[:7], ["queries", "k", "ndcg", "map", "precision", "mrr",
                                           "recall"])
        self.assertEqual((found["queries"], found["k"]), (3, 2))
        best = 2 + 1 / math.log2(3)
        for name, value in (("ndcg", 2 / best / 3), ("map", (1 + 2 / 3) / 2 / 3), ("mrr", 1 / 3),
                            ("precision", 0.5 / 3), ("recall", 0.5 / 3)):
            self.assertAlmostEqual(found[name], value, 12)
        self.assertEqual(set(found["by_kind"]), {"fruit", "code"})
        self.assertEqual(found["by_kind"]["fruit"]["queries"], 2)
        self.assertEqual(rag("eval", path, "--qrels", self.qrels)[0], 0)

    def test_an_index_is_measured_as_its_run(self):
        self.lines("--by", "document")
        both = [json.loads(rag("eval", *what, "--qrels", self.qrels, "--json")[1])
                for what in ([self.run_path], [self.index_path, "--queries", self.queries])]
        for name in ("queries", "ndcg", "map", "precision", "mrr", "recall"):
            self.assertEqual(both[0][name], both[1][name])
        self.assertIn("budget_recall", both[1])
        self.assertIn("p95", both[1]["timings_ms"]["total"])

    def test_wrong_use_and_bad_files(self):
        self.lines()
        before = pathlib.Path(self.run_path).read_bytes()
        self.refused(2, "eval", self.run_path, "--qrels", self.qrels, "--mode", "lexical")
        self.refused(2, "eval", self.index_path, "--qrels", self.qrels)
        bad = self.write("bad", "1 Q0 a 1 1 t\n1 Q0\n")
        self.assertTrue(self.refused(1, "eval", bad, "--qrels", self.qrels).startswith(bad + ":2"))
        bad = self.write("bad", "1\ta\t1\n1\tb\tx\n")
        err = self.refused(1, "eval", self.run_path, "--qrels", bad)
        self.assertTrue(err.startswith(bad + ":2: "), err)
        for line in ("{", '{"id":"1"}', '{"text":"x"}', '{"id":"9","text":"again"}'):
            bad = self.write("bad", '{"id":"9","text":"x"}\n' + line + "\n")
            err = self.refused(1, "run", self.index_path, "--queries", bad, "-o", self.run_path)
            self.assertTrue(err.startswith(bad + ":2: "), err)
        self.assertEqual(pathlib.Path(self.run_path).read_bytes(), before)


class IndependentMeasures(Indexed):
    """What `rag eval` says equals what measures.py computes without the header, to 1e-9."""

    def compare(self, run, qrels, k):
        status, out, err = rag("eval", run, "--qrels", qrels, "--k", str(k), "--json")
        self.assertEqual(status, 0, err)
        found = json.loads(out)
        wanted = measures.means(run, qrels, k)
        self.assertEqual(found["queries"], wanted["questions"])
        for name in ("ndcg", "map", "mrr", "precision", "recall"):
            self.assertLessEqual(abs(found[name] - wanted[name]), 1e-9, (run, k, name))
        return found

    def test_made_runs_with_grades(self):
        dice = random.Random(7)
        for world in range(20):
            run, qrels = [], []
            for query in range(dice.randrange(1, 30)):
                ids = [f"d{i}" for i in range(dice.randrange(1, 60))]
                listed = dice.sample(ids, dice.randrange(len(ids)))
                score = 100.0
                for rank, i in enumerate(listed, 1):
                    score -= dice.choice((0, 0.5, 3))  # ties, too
                    run.append(f"{query} Q0 {i} {rank} {score} t\n")
                for i in dice.sample(ids, dice.randrange(1, len(ids) + 1)):
                    qrels.append(f"{query}\t{i}\t{dice.randrange(-1, 5)}\n")
            run.append("9999 Q0 d0 1 1 t\n")  # a query that nobody judged
            qrels.append("8888\td0\t2\n")  # and one without a result
            for lines in (run, qrels):
                dice.shuffle(lines)
            paths = self.write("made.run", "".join(run)), self.write("made.tsv", "".join(qrels))
            for k in (1, 10, 100):
                self.compare(*paths, k)

    @unittest.skipUnless(os.environ.get("RAG_RETRIEVE_DATASETS"),
                         "RAG_RETRIEVE_DATASETS is not set")
    def test_judged_collections(self):
        sets = pathlib.Path(os.environ["RAG_RETRIEVE_DATASETS"])
        run = str(self.folder / "a.run")
        for name, dense in (("adi", 0.4975), ("med", 0.7875), ("cranfield", 0.3817)):
            folder = str(sets / name)
            status, out, err = rag("index", folder + "/docs.jsonl", "-o", self.index_path,
                                   "--chunker", "whole", "--embeddings",
                                   folder + "/minilm-docs.f32")
            self.assertEqual(status, 0, err)
            for mode in ("lexical", "dense", "hybrid"):
                vectors = ["--embeddings", folder + "/minilm-queries.f32"]
                done = rag("run", self.index_path, "--queries", folder + "/queries.jsonl", "--mode",
                           mode, "--by", "document", "-o", run,
                           *(vectors if mode != "lexical" else []))
                self.assertEqual(done[0], 0, done[2])
                found = self.compare(run, folder + "/qrels.tsv", 10)
                if mode == "dense":  # as the set's README says of exact search over its vectors
                    self.assertLess(abs(found["ndcg"] - dense), 0.00005)
        published = self.compare(str(sets / "cacm" / "run-anserini-bm25.txt"),
                                 str(sets / "cacm" / "qrels-as-published.tsv"), 30)
        self.assertEqual(round(published["precision"], 4), 0.1942)


if __name__ == "__main__":
    RAG = os.path.abspath(sys.argv.pop(1))
    unittest.main()
