"""What the client does against a real service, one step a subject: service.py URL. It ends with a
line "ok", or fails. The test TestPythonClientAgainstAService runs it.
"""

import signal
import subprocess
import sys
import threading
import time

import coatcheck

URL = sys.argv[1]
client = coatcheck.Client(URL)
PRINT = coatcheck.fingerprint("charge", "42")


def refused(code, call, *args, **terms):
    """The error that a call must end with."""
    try:
        result = call(*args, **terms)
    except coatcheck.Error as error:
        assert error.code == code, error
        return error
    raise AssertionError(f"got {result!r}, want {code}")


def own_keys():
    runs = []
    for wanted in (False, True):
        answer, replayed = coatcheck.run_once(
            client, key="evt_1", scope="hooks", fingerprint=PRINT, work=lambda _: f"paid {runs.append(1) or len(runs)}"
        )
        assert (replayed, answer["body"]) == (wanted, b"paid 1"), (replayed, answer)
    other = coatcheck.fingerprint("other")
    refused("idempotency-payload-mismatch", coatcheck.run_once, client, key="evt_1", scope="hooks", fingerprint=other, work=lambda _: 1)


def doubt_is_settled():
    claimed = client.claim_key("evt_2", PRINT)
    operation, lease = claimed["operation"], claimed["lease"]
    client.extend_operation(operation, lease, 20)
    assert client.operation(operation)["state"] == "claimed"
    client.release_operation(operation, lease)
    client.claim_key("evt_2", PRINT, 0.1)
    while client.operation(operation)["state"] != "in-doubt":
        time.sleep(0.02)
    assert refused("idempotency-outcome-unknown", client.claim_key, "evt_2", PRINT).operation == operation
    client.settle(operation, "completed", "seen", status=201, body=b"paid")
    assert client.claim_key("evt_2", PRINT)["response"]["status"] == 201
    client.forget_operation(operation)
    claimed = client.claim_key("evt_2", PRINT)
    client.complete_operation(operation, claimed["lease"], 200, {"X-A": "b"}, b"again")
    assert client.claim_key("evt_2", PRINT)["outcome"] == "replay"


def doubt_is_resolved():
    """Work fails before or after its effect, and the next call finds out which."""
    for happened in (False, True):
        key, runs, asked = f"evt_resolved_{happened}", [], []

        def work(attempt):
            runs.append(attempt.fence)
            if len(runs) == 1:
                raise RuntimeError("it failed")
            return "paid"

        def resolve(operation, fence):
            asked.append((len(operation), fence))
            if len(asked) == 1:
                return None  # it does not know
            return coatcheck.Response("paid", 201) if happened else coatcheck.NOT_BEGUN

        def once():
            return coatcheck.run_once(client, key=key, fingerprint=PRINT, work=work, lease=0.1, resolve=resolve)

        try:
            once()
        except RuntimeError:
            pass
        while len(asked) < 2:
            try:
                answer, replayed = once()
            except coatcheck.Error as error:
                assert error.code in ("idempotency-in-progress", "idempotency-outcome-unknown"), error
                time.sleep(0.02)
        assert (answer["body"], replayed, len(runs)) == (b"paid", happened, 1 if happened else 2), (answer, replayed, runs)
        assert set(asked) == {(32, runs[0])}, asked


def tokens():
    issued = client.issue("payments", ttl=60)
    token = issued["token"]
    assert (issued["scope"], client.status(token)["state"]) == ("payments", "issued")
    claimed = client.claim(token, PRINT, 30)
    client.extend(token, claimed["lease"], 30)
    client.release(token, claimed["lease"])
    answer, replayed = coatcheck.run_once(client, token, PRINT, lambda attempt: {"fence": attempt.fence > claimed["fence"]})
    assert (answer["body"], replayed) == (b'{"fence":true}', False)
    assert coatcheck.run_once(client, token, PRINT, lambda _: 1 / 0)[1]


def counters():
    assert client.incr("orders") == 1
    added = client.add("orders", 5, request_id='a "b"')
    assert added == {"key": "orders", "first": 2, "value": 6, "numbers": []}, added
    assert client.add("orders", 5, request_id='a "b"') == added
    assert refused("counter-limit", client.add, "orders", 5, limit=7).status == 409
    assert refused("counter-permanent", client.add, "orders", ttl=60).status == 409
    assert refused("invalid-request", client.add, "orders", -1).field == "by"
    assert client.add("tries", limit=9, ttl=60, after_loss="stay")["value"] == 1
    assert refused("invalid-request", client.add, "tries", after_loss="stay").field == "after_loss"
    assert client.counter("orders") == 6
    refused("counter-back", client.set_counter, "orders", 5)
    client.set_counter("orders", 5, ttl=60, back=True)
    assert client.add("orders", ttl=60)["value"] == 6
    refused("not-found", client.counter, "never")
    assert client.add("bills", 2, template="B-{n:4}")["numbers"] == ["B-0001", "B-0002"]
    assert client.add("bills", template="B-{n:4}")["numbers"] == ["B-0003"]


def limits():
    rate = {"rate": 1, "per": 3600}
    assert client.take_limit("mail", **rate)["remaining"] == 0
    assert refused("limit-reached", client.take_limit, "mail", **rate).retry_after > 0
    client.take_limit("mail", cost=-1, **rate)
    client.take_limit("mail", **rate)
    client.reset_limit("mail")
    client.take_limit("mail", **rate)


def locks():
    with client.acquire_lock("deploy", ttl=6) as lock:
        assert refused("lock-held", client.acquire_lock, "deploy").retry_after is not None
        granted = client.lock("deploy")["holders"][0]
        assert granted["fence"] == lock.fence
        while client.lock("deploy")["holders"][0]["until"] == granted["until"]:
            time.sleep(0.1)  # until it is renewed
        lock.check()
    refused("released", lock.check)
    with client.acquire_lock("deploy") as later:
        assert later.fence > lock.fence
    with client.acquire_lock("pair", mode="permits", permits=2), client.acquire_lock("pair", mode="permits", permits=2):
        refused("lock-held", client.acquire_lock, "pair", mode="permits", permits=2)
    with client.acquire_lock("report", mode="shared"), client.acquire_lock("report", mode="shared"):
        pass


def a_wait_is_in_turn_or_given_up():
    first = client.acquire_lock("queue")
    refused("lock-held", client.acquire_lock, "queue", wait=0.05)
    assert client.lock("queue")["waiting"] == 0
    waiting = []
    waiter = threading.Thread(target=lambda: waiting.append(client.acquire_lock("queue", wait=60)))
    waiter.start()
    while client.lock("queue")["waiting"] == 0:
        time.sleep(0.02)
    first.release()
    waiter.join()
    waiting[0].check()
    assert waiting[0].fence > first.fence
    waiting[0].release()


def another_has_broken_the_lock():
    lock = client.acquire_lock("broken", ttl=3)
    other = coatcheck.Client(URL)
    other._ask("DELETE", f"/lock/broken?force={lock.fence}", lambda broken: broken["fence"] > lock.fence)
    while lock.validity > 0:
        time.sleep(0.02)
    refused("lease-lost", lock.check)
    refused("lease-lost", lock.release)


def lock_of_a_stopped_process():
    """A process that was stopped until another had its lock is told so before its next use."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, __file__, URL, "hold"], **pipes) as holder:
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGSTOP)
        try:
            lock = client.acquire_lock("stopped", wait=30)
        finally:
            holder.send_signal(signal.SIGCONT)
        holder.stdin.write("use\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "Lost\n"
    lock.release()


def hold():
    lock = client.acquire_lock("stopped", ttl=1)
    print("held", flush=True)
    sys.stdin.readline()
    try:
        lock.check()
        print("used")
    except coatcheck.Lost as error:
        print(type(error).__name__)


def ids():
    first, second = client.snowflake_ids("shop", 2)
    assert first < second
    assert client.decode_id(first, "shop")["id"] == str(first)
    assert client.segment_ids("rows", 2) == [1, 2]
    assert len(set(client.ulids(3))) == 3
    assert len(set(client.uuids(3, version=4))) == 3
    assert all(made.startswith("order_") for made in client.typeids("order", 2))


def worker_ids():
    with client.hold_worker("shop", identity="shop-0") as worker:
        made = worker.next_ids(1000)
    assert made == sorted(set(made))
    assert client.decode_id(made[0], "shop")["worker_id"] == worker.worker_id


def ids_are_even():
    """300 ids, 10 ms apart: each remainder of 8 comes 300/8 times, within 4 standard deviations."""
    with client.hold_worker("shop") as worker:
        for source in (lambda: client.snowflake_ids("shop")[0], worker.next_id):
            counts, last = [0] * 8, 0
            for _ in range(300):
                made = source()
                assert made > last
                last = made
                counts[made % 8] += 1
                time.sleep(0.01)
            bound = 4 * (300 * 1 / 8 * 7 / 8) ** 0.5
            assert all(abs(count - 300 / 8) < bound for count in counts), counts


def main():
    for subject in (
        own_keys, doubt_is_settled, doubt_is_resolved, tokens, counters, limits, locks, a_wait_is_in_turn_or_given_up, another_has_broken_the_lock,
        lock_of_a_stopped_process, ids, worker_ids, ids_are_even,
    ):
        subject()
    print("ok")


if __name__ == "__main__":
    hold() if sys.argv[2:] == ["hold"] else main()
