"""Own keys, counters, limits and ids, against a server that answers by a script."""

import json
import socket
import threading
import unittest

import coatcheck
from test_package import problem, serve

GRANTED = {"outcome": "granted", "operation": "o" * 32, "lease": "the-lease", "fence": 7}


def answered(*values):
    return [value if isinstance(value, tuple) else (200, "application/json", json.dumps(value).encode()) for value in values]


class Subjects(unittest.TestCase):
    def asking(self, *values):
        server = serve(*answered(*values))
        server.RequestHandlerClass.do_GET = server.RequestHandlerClass.do_POST
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server, coatcheck.Client(f"http://127.0.0.1:{server.server_port}")

    def test_a_key_runs_its_work_once_and_a_lost_claim_is_asked_again_with_its_owner(self):
        server, client = self.asking((502, "text/html", b""), GRANTED, (204, "", b""))
        ran = []
        answer, replayed = coatcheck.run_once(client, fingerprint="f", work=lambda a: ran.append(a.operation) or b"done", key="evt/1", scope="webhooks")
        self.assertEqual((ran, answer["body"], replayed), (["o" * 32], b"done", False))
        first, again = (json.loads(body) for _, body in server.asked[:2])
        self.assertEqual(first, again)
        self.assertEqual((first["key"], first["scope"]), ("evt/1", "webhooks"))
        self.assertEqual(server.asked[2][0].get("Lease-Token"), "the-lease")

    def test_a_token_or_a_key_but_not_both(self):
        client = coatcheck.Client("http://127.0.0.1:9")
        for token, key in ((None, None), ("t", "k")):
            with self.assertRaises(TypeError):
                coatcheck.run_once(client, token, "f", lambda _: None, key=key)

    def test_an_addition_is_sent_once_and_with_its_request_id(self):
        server, client = self.asking({"key": "a", "first": 1, "value": 2}, (502, "text/html", b""), problem(409, "counter-limit"))
        self.assertEqual(client.add("a", 2, limit=9, ttl=1.5, request_id="r1")["first"], 1)
        self.assertEqual(server.asked[0][0].get("Idempotency-Key"), "r1")
        for kind, code in ((coatcheck.UnknownOutcome, "unknown-outcome"), (coatcheck.Error, "counter-limit")):
            with self.assertRaises(coatcheck.Error) as raised:
                client.incr("a")
            self.assertEqual((type(raised.exception), raised.exception.code), (kind, code))
        self.assertEqual(len(server.asked), 3)

    def test_a_limit_that_is_reached_tells_what_is_left(self):
        reached = json.dumps({"code": "limit-reached", "allowed": False, "remaining": 0, "reset_ms": 60000}).encode()
        server, client = self.asking({"allowed": True, "remaining": 1, "reset_ms": 5}, (429, "application/problem+json", reached))
        self.assertEqual(client.take_limit("l", 2, 60, cost=-1)["remaining"], 1)
        self.assertEqual(json.loads(server.asked[0][1]), {"rate": 2, "per_ms": 60000, "cost": -1})
        with self.assertRaises(coatcheck.Unavailable) as raised:
            client.take_limit("l", 2, 60)
        self.assertEqual((raised.exception.code, raised.exception.facts["remaining"]), ("limit-reached", 0))

    def test_ids_are_as_many_as_were_asked_for(self):
        _, client = self.asking({"ids": ["914449816992350480"]}, {"ids": ["1"]}, {"ids": ["order_01h455vb4pex5vsknk084sn02q"]})
        self.assertEqual(client.snowflake_ids(), [914449816992350480])
        with self.assertRaises(coatcheck.UnknownOutcome):
            client.segment_ids("s", 2)
        self.assertEqual(client.typeids("order"), ["order_01h455vb4pex5vsknk084sn02q"])

    def test_no_answer_in_time_is_an_unknown_outcome_of_its_own_type_and_is_sent_once(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        accepted = []

        def accept():
            try:
                while True:
                    accepted.append(listener.accept()[0])
            except OSError:
                for connection in accepted:
                    connection.close()

        threading.Thread(target=accept, daemon=True).start()
        with self.assertRaises(coatcheck.TimedOut) as raised:
            coatcheck.Client(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.2).incr("a")
        self.assertIsInstance(raised.exception, coatcheck.UnknownOutcome)
        self.assertLessEqual(len(accepted), 1)

    def test_a_refusal_names_its_field(self):
        refused = json.dumps({"code": "invalid-name", "detail": "key: 1 to 200", "field": "key"}).encode()
        _, client = self.asking((400, "application/problem+json", refused))
        with self.assertRaises(coatcheck.Error) as raised:
            client.counter("a b")
        self.assertEqual(raised.exception.field, "key")


if __name__ == "__main__":
    unittest.main()
