"""What becomes of the connections: when one is kept and used again, and what a lost one means."""

import contextlib
import gc
import json
import os
import pickle
import subprocess
import sys
import threading
import unittest
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock

import coatcheck
from coatcheck import clocks, exchange


class Service(ThreadingHTTPServer):
    """A service that keeps connections, and counts them. It answers request n, from 1 on, by
    answers[n](handler), else with the value n.
    """

    daemon_threads = True

    def __init__(self, answers):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers, self.asked, self.accepted, self.ended = answers, 0, 0, threading.Semaphore(0)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.counting = threading.Lock()

    def get_request(self):
        accepted = super().get_request()
        self.accepted += 1
        return accepted

    def shutdown_request(self, request):
        super().shutdown_request(request)
        self.ended.release()

    def wait_closed(self, connections=1):
        """Waits until it has closed more connections, by itself or after the client."""
        for _ in range(connections):
            if not self.ended.acquire(timeout=60):
                raise AssertionError("a connection stays open")

    def handle_error(self, request, client_address):
        pass  # a connection that the client has broken

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.server.counting:
            self.server.asked += 1
            self.place = self.server.asked
        self.server.answers.get(self.place, answer)(self)

    def log_message(self, *_):
        pass


def says(handler, text):
    handler.wfile.write(text.encode())


def whole(value, *headers):
    body = json.dumps({"key": "orders", "first": value, "value": value})
    return "\r\n".join(["HTTP/1.1 200 OK", *headers, f"Content-Length: {len(body)}", "", body])


def answer(handler):
    says(handler, whole(handler.place))


def answer_and_close(handler):
    answer(handler)
    handler.close_connection = True  # and says nothing of it


def close(handler):
    handler.close_connection = True


@contextlib.contextmanager
def serving(answers=None):
    """A service, and a client of it."""
    with Service(answers or {}) as service, contextlib.closing(coatcheck.Client(service.url, 60.0)) as client:
        yield service, client


class Connections(unittest.TestCase):
    def assertCounts(self, service, asked, accepted):
        self.assertEqual({"asked": service.asked, "accepted": service.accepted}, {"asked": asked, "accepted": accepted})

    def test_many_calls_are_one_connection(self):
        with serving() as (service, client):
            self.assertEqual([client.incr("orders") for _ in range(50)], list(range(1, 51)))
            self.assertCounts(service, 50, 1)

    def test_a_connection_that_the_service_closed_meanwhile_loses_no_call(self):
        with serving({n: answer_and_close for n in range(1, 20)}) as (service, client):
            for n in range(1, 20):
                self.assertEqual(client.incr("orders"), n)
                service.wait_closed()
            self.assertCounts(service, 19, 19)

    def test_no_answer_on_a_kept_connection_is_an_unknown_outcome_and_is_not_sent_again(self):
        with serving({2: close}) as (service, client):
            client.incr("orders")
            with self.assertRaises(coatcheck.UnknownOutcome):
                client.incr("orders")
            self.assertCounts(service, 2, 1)
            self.assertEqual(client.incr("orders"), 3)
            self.assertCounts(service, 3, 2)

    def test_a_service_that_has_gone_meanwhile_has_done_nothing(self):
        with serving({1: answer_and_close}) as (service, client):
            client.incr("orders")
            service.wait_closed()
            service.shutdown()
            service.server_close()
            with self.assertRaises(coatcheck.Unavailable):
                client.incr("orders")

    def test_only_a_whole_answer_leaves_a_connection(self):
        faults = {
            "cut": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
            "cut in a chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n{",
            "without the last chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
            "no length": "HTTP/1.1 200 OK\r\n\r\n{}",
            "to be closed": whole(1, "Connection: close"),
            "of HTTP/1.0": whole(1).replace("HTTP/1.1", "HTTP/1.0"),
            "another protocol": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
            "too long": f"HTTP/1.1 200 OK\r\nContent-Length: {exchange.MOST + 1}\r\n\r\n" + " " * (exchange.MOST + 1),
            "no HTTP": "what?\r\n\r\n",
        }
        for name, text in faults.items():
            ends = close if name in ("cut", "cut in a chunk", "without the last chunk", "no length") else str
            with self.subTest(name), serving({1: lambda handler: says(handler, text) or ends(handler)}) as (service, client):
                with contextlib.suppress(coatcheck.UnknownOutcome):
                    client.incr("orders")
                service.wait_closed()
                self.assertEqual(client.incr("orders"), 2)
                self.assertCounts(service, 2, 2)

    def test_a_connection_stays_after_a_refusal_and_other_whole_answers(self):
        answers = {
            "a refusal": "HTTP/1.1 409 Conflict\r\nContent-Type: application/problem+json\r\n"
            + 'Content-Length: 24\r\n\r\n{"code":"counter-limit"}',
            "chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            "no body": "HTTP/1.1 204 No Content\r\n\r\n",
            "hints first": "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + whole(1),
        }
        for name, text in answers.items():
            with self.subTest(name), serving({1: lambda handler: says(handler, text)}) as (service, client):
                with contextlib.suppress(coatcheck.Error):
                    client.incr("orders")
                self.assertEqual(client.incr("orders"), 2)
                self.assertCounts(service, 2, 1)

    def test_what_comes_unasked_is_no_answer_to_the_next_call(self):
        later, sent = threading.Event(), threading.Semaphore(0)

        def at_once(handler):
            says(handler, whole(1) + whole(99))
            sent.release()

        def after_the_answer(handler):
            answer(handler)
            later.wait()
            says(handler, whole(99))
            sent.release()

        for unasked in (at_once, after_the_answer):
            with self.subTest(unasked.__name__), serving({1: unasked}) as (service, client):
                self.assertEqual(client.incr("orders"), 1)
                later.set()
                sent.acquire()
                self.assertEqual(client.incr("orders"), 2)
                self.assertCounts(service, 2, 2)

    def test_a_connection_is_kept_for_a_time_only(self):
        for name, waits, accepted, headers in [
            ("idle", [exchange.IDLE + 0.1], 2, []),
            ("used", [exchange.IDLE / 2] * 3, 1, []),
            ("old", [exchange.IDLE / 2] * 5, 2, []),
            ("as the service says", [4.1], 2, ["Keep-Alive: timeout=5, max=100"]),
            ("as the service says, and sooner", [3.9], 1, ["Keep-Alive: timeout=5"]),
            ("not longer, whatever it says", [exchange.IDLE + 0.1], 2, ["Keep-Alive: timeout=99999"]),
        ]:
            told = {n: lambda handler: says(handler, whole(handler.place, *headers)) for n in range(1, 9)}
            for clock in (0, 1):  # a machine that sleeps stops the monotonic one
                now = [1000.0, 1000.0]
                reading = mock.patch.object(clocks, "read", lambda: tuple(now))
                with self.subTest(name, clock=clock), serving(told) as (service, client), reading:
                    client.incr("orders")
                    for wait in waits:
                        now[clock] += wait
                        client.incr("orders")
                    self.assertCounts(service, len(waits) + 1, accepted)

    def test_threads_have_a_connection_each_and_leave_few(self):
        with serving() as (service, client):
            threads, together = 3 * exchange.KEPT, threading.Barrier(3 * exchange.KEPT)
            got = []

            def asks():
                together.wait()
                for _ in range(20):
                    got.append(client.incr("orders"))

            asking = [threading.Thread(target=asks) for _ in range(threads)]
            for thread in asking:
                thread.start()
            for thread in asking:
                thread.join()
            self.assertEqual(sorted(got), list(range(1, 20 * threads + 1)))
            service.wait_closed(service.accepted - exchange.KEPT)

    def test_a_fork_has_a_connection_of_its_own(self):
        with serving() as (service, client):
            client.incr("orders")
            child = os.fork()
            if child == 0:
                try:
                    os._exit(0 if [client.incr("orders") for _ in range(3)] == [2, 3, 4] else 1)
                finally:
                    os._exit(2)
            self.assertEqual(os.waitpid(child, 0), (child, 0))
            self.assertEqual([client.incr("orders") for _ in range(3)], [5, 6, 7])
            self.assertCounts(service, 7, 2)

    def test_a_client_can_be_sent_to_another_process(self):
        with serving() as (service, client):
            client.incr("orders")
            with contextlib.closing(pickle.loads(pickle.dumps(client))) as other:
                self.assertEqual(other.incr("orders"), 2)
            self.assertCounts(service, 2, 2)

    def test_close_ends_what_is_kept_and_no_call_that_is_under_way(self):
        came, go = threading.Event(), threading.Event()
        with serving({2: lambda handler: came.set() or go.wait() and answer(handler)}) as (service, client):
            client.incr("orders")
            got = []
            asking = threading.Thread(target=lambda: got.append(client.incr("orders")))
            asking.start()
            came.wait()
            client.close()
            go.set()
            asking.join()
            service.wait_closed()
            self.assertEqual((got, client.incr("orders")), ([2], 3))
            service.wait_closed()
            self.assertCounts(service, 3, 2)

    def test_a_with_and_a_client_that_is_dropped_end_what_is_kept(self):
        def dropped():
            coatcheck.Client(service.url).incr("orders")
            gc.collect()

        def ended():
            with coatcheck.Client(service.url) as client:
                client.incr("orders")

        with serving() as (service, _), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", ResourceWarning)
            for end in (dropped, ended):
                with self.subTest(end.__name__):
                    end()
                    service.wait_closed()
            self.assertEqual([str(one.message) for one in warned if one.category is ResourceWarning], [])

    def test_a_process_ends_while_a_connection_is_kept(self):
        program = "import coatcheck; client = coatcheck.Client('URL'); print(client.incr('orders'))"
        with serving() as (service, _):
            path = os.pathsep.join(sys.path)
            command = [sys.executable, "-X", "dev", "-c", program.replace("URL", service.url)]
            ran = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
            self.assertEqual((ran.stdout, ran.stderr), ("1\n", ""))

    def test_what_interrupts_a_call_ends_its_connection(self):
        with serving() as (service, client):
            client.incr("orders")
            with mock.patch.object(exchange, "_whole", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
                client.incr("orders")
            service.wait_closed()
            self.assertEqual(client.incr("orders"), 3)

    def test_each_call_has_its_own_time_limit(self):
        go = threading.Event()
        with serving({2: lambda handler: go.wait()}) as (service, client):
            client.incr("orders")
            with self.assertRaises(coatcheck.TimedOut):
                client.extend("a-token", "a-lease", 1, timeout=0.1)
            go.set()
            self.assertEqual(client.incr("orders"), 3)
            self.assertCounts(service, 3, 2)


if __name__ == "__main__":
    unittest.main()
