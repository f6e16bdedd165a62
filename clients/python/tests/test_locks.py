"""Locks, with a server that answers by a script."""

import gc
import os
import unittest
from unittest import mock

import coatcheck
from coatcheck import clocks
from script import scripted

NONE = {"status": 204}
RENEWED = {"status": 200, "body": {"expires_at": "2026-11-21T21:16:18Z"}}
LOST = {"status": 410, "type": "application/problem+json", "body": {"code": "lease-lost"}}
PROXY = {"status": 502, "type": "text/html", "body": "<html>"}


def granted(lease="the-lease"):
    return {"status": 201, "body": {"name": "deploy", "lease": lease, "fence": 7, "expires_at": "2026-11-21T21:16:18Z"}}


def at(server, **terms):
    return coatcheck.Client(f"http://127.0.0.1:{server.server_port}").acquire_lock("deploy", **terms)


def methods(server):
    return [asked["method"] for asked in server.asked]


class Locks(unittest.TestCase):
    def test_a_lock_is_given_back_at_the_end_of_its_with(self):
        for failure in (None, ValueError("of the work")):
            with self.subTest(failure=failure), scripted([granted(), NONE]) as server:
                raised = None
                try:
                    with at(server) as lock:
                        lock.check()
                        if failure:
                            raise failure
                except ValueError as error:
                    raised = error
                self.assertIs(raised, failure)
                self.assertEqual(methods(server), ["POST", "DELETE"])
                self.assertEqual(server.asked[1]["headers"], {"Lease-Token": "the-lease"})
                self.assertRaises(coatcheck.Lost, lock.check)

    def test_a_lock_that_was_lost_within_its_with_is_told(self):
        with scripted([granted(), LOST]) as server, self.assertRaises(coatcheck.Lost), at(server):
            pass
        # but does not hide what the work has raised, and an outage changes nothing
        with scripted([granted(), LOST]) as server, self.assertRaises(ZeroDivisionError), at(server):
            raise ZeroDivisionError
        with scripted([granted(), PROXY]) as server, at(server):
            pass

    def test_a_lock_is_renewed_until_another_has_it(self):
        with scripted([granted(), RENEWED, PROXY, {"fault": "lost"}, RENEWED, LOST]) as server:
            lock = at(server, ttl=3600)
            # in seconds: sooner after a failure, and never after the loss
            self.assertEqual([lock._beat() for _ in range(5)], [1200, 300, 300, 1200, None])
            self.assertEqual(server.asked[1]["body"], {"ttl_ms": 3600000})
            self.assertEqual({asked["headers"]["Lease-Token"] for asked in server.asked[1:]}, {"the-lease"})
            self.assertRaises(coatcheck.Lost, lock.check)
            self.assertEqual(lock.validity, 0)
            lock._keeper.join(60)
            self.assertFalse(lock._keeper.is_alive(), "the thread that renews a lost lock")
            self.assertEqual(methods(server), ["POST"] + ["PUT"] * 5)

    def test_either_clock_ends_the_trust_and_no_renewal_revives_it(self):
        with scripted([granted(), granted(), RENEWED, granted(), RENEWED]) as server:
            for monotonic, wall, is_lost in ((8.9, 8.9, False), (9, 0, True), (0, 9, True)):
                with self.subTest(monotonic=monotonic, wall=wall):
                    lock = at(server, ttl=10)
                    now = clocks.after(lock._trusted, 0)
                    with mock.patch.object(clocks, "read", lambda later=(now[0] + monotonic, now[1] + wall): later):
                        if not is_lost:
                            lock.check()
                            continue
                        self.assertRaises(coatcheck.Lost, lock.check)
                    self.assertRaises(coatcheck.Lost, lock._renew)  # though the clocks are right again
                    self.assertRaises(coatcheck.Lost, lock.check)

    def test_a_lock_that_was_waited_for_is_renewed_before_it_counts(self):
        readings = iter([(0, 0), (50, 50), (50, 50)])
        with scripted([granted(), RENEWED]) as server:
            with mock.patch.object(clocks, "read", lambda: next(readings, (50, 50))):
                self.assertGreater(at(server, ttl=10, wait=60).validity, 8)
            self.assertEqual(methods(server), ["POST", "PUT"])
        readings = iter([(0, 0)])
        with scripted([granted(), LOST, NONE]) as server:
            with mock.patch.object(clocks, "read", lambda: next(readings, (50, 50))), self.assertRaises(coatcheck.Lost):
                at(server, ttl=10, wait=60)
            self.assertEqual(methods(server), ["POST", "PUT", "DELETE"])

    def test_what_interrupts_a_wait_gives_up_the_place(self):
        with scripted([NONE]) as server:
            client, ask = coatcheck.Client(f"http://127.0.0.1:{server.server_port}"), coatcheck.Client._ask

            def interrupted(self, method, *rest, **terms):
                if method == "POST":
                    raise KeyboardInterrupt
                return ask(self, method, *rest, **terms)

            with mock.patch.object(coatcheck.Client, "_ask", interrupted), self.assertRaises(KeyboardInterrupt):
                client.acquire_lock("deploy", wait=60)
            self.assertEqual(methods(server), ["DELETE"])

    def test_a_lock_that_is_dropped_is_not_renewed(self):
        with scripted([granted(), granted()]) as server:
            dropped, in_a_cycle = at(server, ttl=3600), at(server, ttl=3600)
            in_a_cycle.itself = in_a_cycle
            keepers = [dropped._keeper, in_a_cycle._keeper]
            del dropped, in_a_cycle
            gc.collect()
            for keeper in keepers:
                keeper.join(60)
                self.assertFalse(keeper.is_alive(), "the thread that renews a dropped lock")
            self.assertEqual(methods(server), ["POST", "POST"])

    def test_a_fork_has_no_lock_and_gives_none_back(self):
        with scripted([granted(), NONE]) as server:
            lock = at(server)
            child = os.fork()
            if child == 0:
                refused = 0
                try:
                    lock.__exit__(None, None, None)
                    for use in (lock.check, lock.release):
                        try:
                            use()
                        except coatcheck.Lost:
                            refused += 1
                finally:
                    os._exit(0 if refused == 2 else 1)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            lock.check()
            self.assertEqual(methods(server), ["POST"])
            lock.release()


if __name__ == "__main__":
    unittest.main()
