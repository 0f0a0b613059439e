#!/usr/bin/env python3
"""Runs the tool rag on small inputs: exit status, what it prints, what it complains about.

usage: tool.py RAG
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

RAG = ""
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
        for arguments in (["--help"], ["chunk", "--help"], ["search", "--help"], ["--version"]):
            status, out, err = rag(*arguments)
            self.assertEqual((status, err), (0, ""))
            self.assertTrue(out)

    def test_wrong_usage_is_status_2_and_one_line(self):
        none = str(self.folder / "not-there")  # refused before any file is read
        for arguments in (
            [], ["index"], ["chunk"], ["search", none], ["chunk", none, "--nonsense"],
            ["search", none, "a", "b"], ["chunk", none, "--chunker", "semantic"],
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
                                  complaints="rag: nothing found\n"), [])

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


if __name__ == "__main__":
    RAG = os.path.abspath(sys.argv.pop(1))
    unittest.main()
