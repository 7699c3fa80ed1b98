"""Messages, keys, trace contexts and the check by schema: no network."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from everfresh_client import Message, MessageError, Trace, UnsupportedVersion, generate_key, page_handle, prewarm_key
from everfresh_client.check import check_schema, check_text
from everfresh_client.schema import PUBLISHED, SchemaError
from everfresh_client.trigger import signature

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ROOT = "Root=1-5759e988-bd862e3fe1be46a994272793"


class Messages(unittest.TestCase):
    def test_message_is_written_in_one_form(self):
        written = Message("acme", path="/é?a=1", key="order-42:v3").to_json()
        self.assertEqual(json.loads(written), {"v": 1, "tenant": "acme", "path": "/é?a=1", "reason": "changed", "idempotency_key": "order-42:v3"})
        self.assertEqual(Message.parse(written), Message("acme", path="/é?a=1", key="order-42:v3"))

    def test_invalid_messages_are_refused_by_field(self):
        for fields, field in [
            ({"tenant": "ACME", "path": "/a"}, "tenant"),
            ({"tenant": "acme"}, "path"),
            ({"tenant": "acme", "path": "/a", "tag": "b"}, "tag"),
            ({"tenant": "acme", "path": "a"}, "path"),
            ({"tenant": "acme", "path": "/" + "é" * 2048}, "4097 bytes"),
            ({"tenant": "acme", "path": "/\ud800"}, "Unicode"),
            ({"tenant": "acme", "tag": "b\n"}, "tag"),
            ({"tenant": "acme", "path": "/a", "reason": "because"}, "reason"),
            ({"tenant": "acme", "path": "/a", "key": "a b"}, "idempotency_key"),
            ({"tenant": "acme", "path": "/a", "key": ""}, "idempotency_key"),
            ({"tenant": "acme", "path": "/a", "key": "k" * 129}, "idempotency_key"),
        ]:
            with self.subTest(fields), self.assertRaisesRegex(MessageError, field):
                Message(**fields)

    def test_other_bodies_are_refused_when_parsed(self):
        for body in ["this is not JSON", "[]", "7", '{"v":1,"tenant":"a","path":"/a","path":"/b"}', '{"v":1.0,"tenant":"a","path":"/a"}']:
            with self.subTest(body), self.assertRaises(MessageError):
                Message.parse(body)

    def test_later_version_is_reported_as_version(self):
        with self.assertRaises(UnsupportedVersion) as caught:
            Message.parse('{"v":2,"tenant":"acme","page":"/a"}')
        self.assertEqual(caught.exception.found, 2)

    def test_prewarm_key_depends_on_all_its_parts(self):
        parts = [("/a", 7, "p1"), ("/b", 7, "p1"), ("/a", 8, "p1"), ("/a", 7, "p2")]
        self.assertEqual(len({prewarm_key(*part) for part in parts}), 4)
        for message in [Message("acme", path="/a"), Message("acme", tag="a", reason="prewarm")]:
            with self.assertRaises(MessageError):
                message.with_prewarm_key(7, "p1")

    def test_generated_keys_are_valid_and_differ(self):
        keys = {generate_key() for _ in range(1000)}
        self.assertEqual(len(keys), 1000)
        Message("acme", path="/a", key=keys.pop())

    def test_handle_is_the_hash_of_the_path(self):
        handle = "436fe5ee94e6015495cf816b5b7b7fdedfce8833c2478839a4e2b0d25bf92aff.k@7"
        self.assertEqual(page_handle("/products/figs", "k", 7), handle)

    def test_signature_matches_the_serving_function(self):
        # The vector of crates/serve/src/trigger/signature_tests.rs.
        secret = "0123456789abcdef0123456789abcdef"
        request = ["POST", "www.acme.example", "/_everfresh/revalidate", "1763270000", "5f0c3a1e9b7d4c2688aa01f3", "order-4711"]
        signed = signature(secret, *request, b'{"path":"/products/42"}')
        self.assertEqual(signed, "7058345cd8cff5c393376e9bad75bc9731b704d131dc00ae7159ea1e89511bac")

    def test_malformed_trace_contexts_are_dropped(self):
        for parent in [PARENT, f"01{PARENT[2:]}-more"]:
            state = "congo=t61rcWkgMzE, rojo=00f0"
            trace = Trace(parent, state, f"{ROOT};Parent=53995c3f42cd8ad8;Sampled=1")
            self.assertEqual((trace.traceparent, trace.tracestate), (parent, state))
            self.assertTrue(trace.xray)
        zeros = f"00-{'0' * 32}-b7ad6b7169203331-01"
        for parent in ["", "00", PARENT.upper(), f"{PARENT}-more", f"ff{PARENT[2:]}", PARENT[1:], zeros, f"{PARENT}\n"]:
            self.assertEqual(Trace(parent, "a=1"), Trace(), parent)
        for state in ["", "novalue", "k=", "k=v\n", ",".join(f"k{n}=v" for n in range(33)), f"k={'v' * 511}"]:
            self.assertEqual(Trace(PARENT, state), Trace(PARENT), state)
        for header in ["", "Sampled=1", "Root=1-5759e988", "Root", f"{ROOT};Evil=1"]:
            self.assertEqual(Trace(xray=header), Trace(), header)


class Checks(unittest.TestCase):
    def test_published_schema_fits_this_client(self):
        self.assertEqual(check_schema(PUBLISHED), [])

    def test_schema_of_another_version_is_refused(self):
        later = json.loads(json.dumps(PUBLISHED))
        later["properties"]["v"]["const"] = 2
        self.assertEqual(check_schema(later), ["the schema has version 2; this client writes version 1"])

    def test_schema_that_requires_more_is_refused(self):
        self.assertIn("field `shard` is missing", check_schema(PUBLISHED | {"required": ["v", "tenant", "shard"]}))

    def test_unknown_keyword_is_not_ignored(self):
        with self.assertRaises(SchemaError):
            check_schema(PUBLISHED | {"minProperties": 3})

    def test_messages_in_a_file_are_checked_by_number(self):
        lines = '{"v":1,"tenant":"acme","path":"/a"}\n\n{"v":1,"tenant":"acme"}\nnonsense\n'
        count, found = check_text(lines)
        self.assertEqual((count, [problem.split(":")[0] for problem in found]), (3, ["3", "4"]))
        self.assertEqual(check_text('[{"v":1,"tenant":"acme","tag":"t"}]'), (1, []))

    def test_command_exits_with_one_for_an_invalid_message(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "messages.jsonl"
            for text, code in [('{"v":1,"tenant":"acme","path":"/a"}', 0), ('{"v":1,"tenant":"acme","path":"a"}', 1)]:
                file.write_text(text)
                done = subprocess.run([sys.executable, "-m", "everfresh_client.check", str(file)], capture_output=True, text=True)
                self.assertEqual(done.returncode, code, done.stderr)


if __name__ == "__main__":
    unittest.main()
