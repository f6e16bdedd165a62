"""What the package promises without a service: python3 -m unittest discover tests."""

import functools
import gc
import http
import inspect
import json
import socket
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from unittest import mock

import coatcheck
from coatcheck import clocks, errors, once


class Answers(BaseHTTPRequestHandler):
    """Answers each request with the next of the server's answers: status, media type, body. The
    server keeps the header and the body of each.
    """

    def do_POST(self):
        self.server.asked.append((self.headers, self.rfile.read(int(self.headers.get("Content-Length", 0)))))
        status, kind, body = self.server.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_DELETE = do_PUT = do_POST

    def log_message(self, *_):
        pass


def serve(*answers):
    server = HTTPServer(("127.0.0.1", 0), Answers)
    server.answers, server.asked = list(answers), []
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server


def problem(status, code):
    return status, "application/problem+json", json.dumps({"code": code, "detail": "a detail"}).encode()


def leased(seconds):
    """The answer to a lease of a worker id that is not renewed in the next third of that time."""
    now = time.time()
    moment = lambda at: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))  # noqa: E731
    lease = {
        "worker_id": 7, "datacenter": 0, "fence": 1, "lease": "secret", "layout": "41/10/12", "epoch": "2020-01-01T00:00:00Z", "server_time": moment(now),
        "not_before": moment(now - 1), "not_after": moment(now + seconds), "ttl_ms": seconds * 1000, "renew_every_ms": seconds * 1000 // 3,
    }
    return 201, "application/json", json.dumps(lease).encode()


class Package(unittest.TestCase):
    def test_fingerprint_is_that_of_the_other_clients(self):
        self.assertEqual(coatcheck.fingerprint("charge", "42", "12.99 EUR"), "AgqwciPyqGDu_ZyYvyWkAKHc9_0mgg-KKdsI0hDr7MQ")
        self.assertNotEqual(coatcheck.fingerprint("ab", "c"), coatcheck.fingerprint("a", "bc"))

    def test_every_public_function_is_typed(self):
        for name in coatcheck.__all__:
            thing = getattr(coatcheck, name)
            parts = [thing] if inspect.isfunction(thing) else [part for part in vars(thing).values() if inspect.isfunction(part)]
            for part in parts:
                if part.__name__.startswith("_") and part.__name__ != "__init__":
                    continue
                for parameter in list(inspect.signature(part).parameters.values()):
                    if parameter.name != "self":
                        self.assertIsNot(parameter.annotation, inspect.Parameter.empty, f"{name}.{part.__name__}({parameter.name})")
                self.assertIsNot(inspect.signature(part).return_annotation, inspect.Signature.empty, f"{name}.{part.__name__}")

    def test_an_answer_of_another_server_confirms_nothing(self):
        for name, args in (("complete", ()), ("release", ()), ("extend", (30,))):
            for kind, body in (("text/html", b"<html>"), ("application/json", b"{}"), ("application/json", b'{"status":"ok"}')):
                server = serve((200, kind, body))
                try:
                    client = coatcheck.Client(f"http://127.0.0.1:{server.server_port}")
                    with self.assertRaises(coatcheck.UnknownOutcome, msg=f"{name}, answered {body!r}"):
                        getattr(client, name)("a-token", "a-lease", *args)
                finally:
                    server.shutdown()
                    server.server_close()

    def test_a_key_is_shown_with_every_request_and_is_in_no_error(self):
        server = serve(problem(401, "unauthorized"), problem(503, "pool-quarantined"))
        url = f"http://127.0.0.1:{server.server_port}"
        try:
            with self.assertRaises(coatcheck.Error):
                coatcheck.Client(url, key="cck_a_secret").claim("a-token", "f", 30)
            with self.assertRaises(coatcheck.Unavailable):
                coatcheck.WorkerId(url, "a-pool", key="cck_a_secret")
        finally:
            server.shutdown()
            server.server_close()
        self.assertEqual([header.get("Authorization") for header, _ in server.asked], ["Bearer cck_a_secret"] * 2)
        with self.assertRaises(ValueError) as raised:
            coatcheck.Client(url, key="cck_a_secret\n")
        self.assertNotIn("secret", str(raised.exception))

    def test_a_worker_id_that_is_dropped_is_not_renewed(self):
        server = serve(leased(3600), leased(3600))
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            dropped, in_a_cycle = coatcheck.WorkerId(url, "a-pool"), coatcheck.WorkerId(url, "a-pool")
            in_a_cycle.itself = in_a_cycle
            keepers = [dropped._keeper, in_a_cycle._keeper]
            del dropped, in_a_cycle
            gc.collect()
            for keeper in keepers:
                keeper.join(60)
                self.assertFalse(keeper.is_alive(), "the thread that renews a dropped worker id")
        finally:
            server.shutdown()
            server.server_close()
        self.assertEqual(len(server.asked), 2)

    def test_a_worker_id_is_given_back_at_the_end_of_its_with(self):
        # an outage changes nothing: the lease ends with its window
        for gives_back in [(204, "application/json", b""), problem(503, "store-unavailable")]:
            for failure in [None, ValueError("of the work")]:
                server = serve(leased(3600), gives_back)
                raised = None
                try:
                    with coatcheck.WorkerId(f"http://127.0.0.1:{server.server_port}", "a-pool") as worker:
                        self.assertGreater(worker.next_id(), 0)
                        if failure:
                            raise failure
                except ValueError as error:
                    raised = error
                finally:
                    server.shutdown()
                    server.server_close()
                self.assertIs(raised, failure)
                self.assertEqual(server.asked[-1][0].get("Lease-Token"), "secret")
                self.assertEqual(len(server.asked), 2)
                with self.assertRaises(coatcheck.NoLease):
                    worker.next_id()

    def test_a_ttl_is_the_milliseconds_that_it_says(self):
        server = serve(*[problem(503, "pool-quarantined")] * 3)
        try:
            for ttl in (2.01, 0.57, 30):
                with self.assertRaises(coatcheck.Unavailable):
                    coatcheck.WorkerId(f"http://127.0.0.1:{server.server_port}", "a-pool", ttl=ttl)
        finally:
            server.shutdown()
            server.server_close()
        self.assertEqual([json.loads(body)["ttl_ms"] for _, body in server.asked], [2010, 570, 30000])

    def test_an_answer_that_is_too_large_is_recorded_without_its_body(self):
        listener = socket.create_server(("127.0.0.1", 0))
        refusal = b"HTTP/1.1 413 Payload Too Large\r\nContent-Type: application/problem+json\r\nConnection: close\r\n\r\n" + b'{"code":"payload-too-large"}'

        def refuse_large_bodies_unread():
            while True:
                connection, _ = listener.accept()
                with connection:
                    length = int(connection.recv(4096).lower().partition(b"content-length: ")[2].partition(b"\r")[0])
                    connection.sendall(refusal if length > 1 << 20 else b"HTTP/1.1 204 No Content\r\n\r\n")
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(1 << 20)

        threading.Thread(target=refuse_large_bodies_unread, daemon=True).start()
        client = coatcheck.Client(f"http://127.0.0.1:{listener.getsockname()[1]}")
        once._record(once._ByToken(client, "a-token"), "a-lease", {"status": 200, "headers": {}, "body": b"x" * (30 << 20)})

    def test_a_result_of_the_work_is_recorded_whatever_it_is(self):
        for result, status, kind, body, not_kept in [
            ({"paid": True}, 200, "application/json", b'{"paid":true}', False),
            ([1, "a"], 200, "application/json", b'[1,"a"]', False),
            (42, 200, "application/json", b"42", False),
            ("paid", 200, None, b"paid", False),
            (b"paid", 200, None, b"paid", False),
            (None, 200, None, b"", False),
            (coatcheck.Response(b"paid", 201, {"X-A": "b"}), 201, None, b"paid", False),
            (coatcheck.Response("paid", http.HTTPStatus.CREATED), 201, None, b"paid", False),
            (coatcheck.Response({"paid": True}, 201), 201, "application/json", b'{"paid":true}', False),
            (coatcheck.Response({"paid": True}, headers={"content-type": "a/b"}), 200, "a/b", b'{"paid":true}', False),
        ]:
            with self.subTest(result=type(result).__name__, status=status):
                granted = json.dumps({"outcome": "granted", "lease": "l", "fence": 1}).encode()
                server = serve((200, "application/json", granted), (204, "", b""))
                client = coatcheck.Client(f"http://127.0.0.1:{server.server_port}")
                answer, replayed = coatcheck.run_once(client, "t", "f", lambda _: result)
                server.shutdown()
                server.server_close()
                told = {name.lower(): value for name, value in answer["headers"].items()}.get("content-type")
                self.assertEqual((answer["status"], told, answer["body"], answer["not_kept"], replayed), (status, kind, body, not_kept, False))
                self.assertEqual(json.loads(server.asked[1][1])["body_not_kept"], not_kept)

    def test_what_cannot_run_is_refused_before_anything_is_sent(self):
        client, ran = coatcheck.Client("http://127.0.0.1:9"), []

        async def work(_):
            ran.append(1)

        class Work:
            async def __call__(self, _):
                ran.append(1)

            def yields(self, _):
                yield ran.append(1)

        later = [("f", Work().yields), ("f", functools.partial(Work.yields, None)), ("f", work), ("f", Work())]
        for fingerprint, what in later + [("f", "work"), ("f", None), ("", ran.append), (None, ran.append), (b"f", ran.append)]:
            with self.assertRaises(TypeError):
                coatcheck.run_once(client, "t", fingerprint, what)
        self.assertEqual(ran, [])

    def test_a_response_that_the_service_would_refuse_is_not_made(self):
        for status, headers in [(199, {}), (600, {}), ("200", {}), (True, {}), (200, {"X-A": 1}), (200, {"X-A": "\ud83d"}), (200, {b"X-A": "b"})]:
            with self.assertRaises((TypeError, ValueError), msg=f"{status} {headers}"):
                coatcheck.Response("paid", status, headers)

    def test_under_takeover_either_clock_ends_the_trust(self):
        for monotonic, wall, lost in [(9, 9, False), (10, 9, True), (9, 10, True), (9, -100, False)]:
            attempt = coatcheck.Attempt(1, 1)
            attempt._deadline = (10, 10)
            with mock.patch.object(clocks, "read", lambda now=(monotonic, wall): now):
                if lost:
                    self.assertRaises(coatcheck.Lost, attempt.check)
                else:
                    attempt.check()

    def test_what_interrupts_a_claim_gives_it_back(self):
        server = serve((204, "", b""))
        try:
            client = coatcheck.Client(f"http://127.0.0.1:{server.server_port}")
            with mock.patch.object(coatcheck.Client, "claim", side_effect=KeyboardInterrupt) as claim, self.assertRaises(KeyboardInterrupt):
                coatcheck.run_once(client, "t", "f", lambda _: 1)
        finally:
            server.shutdown()
            server.server_close()
        self.assertEqual([header.get("Lease-Token") for header, _ in server.asked], [claim.call_args.args[-1]])

    def test_a_token_or_a_key_but_not_both(self):
        client = coatcheck.Client("http://127.0.0.1:9")
        for token, key in ((None, None), ("t", "k")):
            with self.assertRaises(TypeError):
                coatcheck.run_once(client, token, "f", lambda _: None, key=key)

    def test_what_no_header_can_hold_is_refused_and_not_shown(self):
        client = coatcheck.Client("http://127.0.0.1:9")
        for call in (lambda: client.release("t", "a-secret\n"), lambda: client.add("k", request_id="a-secret\u00e4")):
            with self.assertRaises(ValueError) as raised:
                call()
            self.assertNotIn("secret", str(raised.exception))

    def test_a_duration_is_a_finite_number(self):
        client = coatcheck.Client("http://127.0.0.1:9")
        for seconds in (float("nan"), float("inf")):
            with self.assertRaises(ValueError):
                client.extend("t", "l", seconds)

    def test_a_wait_that_is_no_number_is_not_known(self):
        for wait, seconds in ((None, None), ("7", 7), ("soon", None), ("²", None)):
            error = errors.problem(503, "text/html", wait, b"", ())
            self.assertEqual((type(error), error.retry_after), (coatcheck.UnknownOutcome, seconds), wait)

    def test_a_url_of_another_kind_is_refused(self):
        with self.assertRaises(ValueError):
            coatcheck.Client("redis://127.0.0.1:6379")


if __name__ == "__main__":
    unittest.main()
