// What a worker id promises, with a service that answers as the test says, and with clocks that the
// test sets.

import assert from 'node:assert/strict';
import test from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

import { Client, NoLease, Unavailable, UnknownOutcome } from 'coatcheck';

import { problem, withClocks, withService } from '../testing/service.mjs';

const EPOCH = Date.UTC(2020, 0, 1);
const START = Date.UTC(2026, 10, 28, 10);
const moment = (ms) => new Date(ms).toISOString();

const grant = (more = {}) => ({
  worker_id: 5, lease: 'secret', fence: 7, not_before: moment(START), not_after: moment(START + 30_000), ttl_ms: 30_000, renew_every_ms: 3_600_000,
  layout: '41/10/12', epoch: moment(EPOCH), datacenter: 0, identity: 'me', server_time: moment(START), later: 'unknown', ...more,
});

/**
 * Runs a test with a worker id and the clocks: grants renews each so many ms, and renew(n, clocks)
 * is the answer to the nth renewal.
 */
function holding(run, { more = {}, renew = () => problem(503, 'store-unavailable'), given = () => [204], onGrant = () => {} } = {}) {
  const asked = [];
  return withClocks((clocks) => withService((request) => {
    asked.push(request);
    const renewals = asked.filter(({ method }) => method === 'PUT').length;
    if (request.method === 'PUT') return renew(renewals, clocks);
    if (request.method === 'DELETE') return given();
    onGrant(clocks);
    return [201, grant(more)];
  }, async (url) => {
    const worker = await new Client(url).holdWorker('orders', { identity: 'me', ttl: 30 });
    try {
      await run(worker, clocks, asked);
    } finally {
      await worker.release().catch(() => {});
    }
  }));
}

const renewed = (more = {}) => [200, { worker_id: 5, not_after: moment(START + 60_000), ttl_ms: 30_000, renew_every_ms: 1, server_time: moment(START), ...more }];
const timeOf = (id) => Number(id >> 22n) + EPOCH;

/** Lets answers come until something is so. */
async function until(so) {
  while (!so()) await turn();
}

test('time is the service\'s, and passes as the monotonic clock counts', () => holding(async (worker, clocks) => {
  assert.equal(timeOf(await worker.nextId()), START);
  clocks.pass(1500, -10_000_000); // the wall clock is set back
  const [a, b] = await worker.nextIds(2);
  assert.deepEqual([timeOf(a), timeOf(b), Number((a >> 12n) & 1023n), b > a], [START + 1500, START + 1500, 5, true]);
}));

for (const [name, ...passed] of [['both clocks', 29_000], ['the monotonic clock', 29_000, 0], ['the wall clock', 0, 29_000]]) {
  test(`nothing is stamped when by ${name} the lease can end within its margin`, () => holding(async (worker, clocks) => {
    clocks.pass(28_999);
    await worker.nextId();
    clocks.pass(-28_999);
    clocks.pass(...passed);
    assert.throws(() => worker.check(), (error) => error instanceof NoLease && error.code === 'lease-lost');
    await assert.rejects(worker.nextId(), NoLease);
    clocks.pass(-20_000); // what has ended stays ended
    await assert.rejects(worker.nextId(), NoLease);
    assert.equal(worker.signal.aborted, true);
  }));
}

test('a short lease has a margin of a tenth', () => holding(async (worker, clocks) => {
  clocks.pass(899);
  worker.check();
  clocks.pass(1);
  assert.throws(() => worker.check(), NoLease);
}, { more: { ttl_ms: 1000, not_after: moment(START + 1000) } }));

test('the trust counts from before the request was sent', () => holding(async (worker, clocks) => {
  clocks.pass(9_000);
  assert.throws(() => worker.check(), NoLease);
}, { onGrant: (clocks) => clocks.pass(20_000) }));

test('a renewal that is confirmed moves the window, with the whole proof', () => holding(async (worker, clocks, asked) => {
  await until(() => worker.notAfter === START + 60_000);
  clocks.pass(28_000);
  await worker.nextId();
  const proofs = asked.filter(({ method }) => method === 'PUT');
  const proof = { ttl_ms: 30_000, not_after: moment(START + 30_000), fence: 7, identity: 'me', layout: '41/10/12', epoch: moment(EPOCH), datacenter: 0 };
  assert.deepEqual(proofs[0].body, proof);
  assert.deepEqual([proofs[0].url, proofs[0].headers['lease-token']], ['/worker/orders/5', 'secret']);
  await until(() => asked.length > 4);
  assert.deepEqual(asked.at(-1).body, { ...proof, not_after: moment(START + 60_000) });
}, { more: { renew_every_ms: 1 }, renew: () => renewed() }));

test('a renewal that is confirmed after the deadline revives nothing', () => holding(async (worker, clocks, asked) => {
  await until(() => asked.length > 1 && worker.signal.aborted);
  await assert.rejects(worker.nextId(), NoLease);
  assert.equal(worker.notAfter, START + 30_000);
}, {
  more: { renew_every_ms: 1 },
  renew: (_, clocks) => {
    clocks.pass(29_500);
    return renewed();
  },
}));

for (const [name, answer] of Object.entries({
  'no window': [200, {}],
  'an earlier window': renewed({ not_after: moment(START + 99) }),
  'another worker id': renewed({ worker_id: 6 }),
  'no time': renewed({ server_time: 'soon' }),
  'an outage': problem(503, 'store-unavailable'),
  'a proxy': [502, undefined, 'text/html'],
})) {
  test(`a renewal that is answered with ${name} confirms nothing, and is sent again`, () => holding(async (worker, clocks, asked) => {
    await until(() => asked.length > 3);
    worker.check();
    assert.equal(worker.notAfter, START + 100);
    clocks.pass(90);
    assert.throws(() => worker.check(), NoLease);
  }, { more: { renew_every_ms: 1, ttl_ms: 100, not_after: moment(START + 100) }, renew: () => answer }));
}

test('a lease that the service says is lost is told before the next use', () => holding(async (worker) => {
  await until(() => worker.signal.aborted);
  await assert.rejects(worker.nextId(), (error) => error instanceof NoLease && error.code === 'lease-lost' && error.status === 410);
}, { more: { renew_every_ms: 1 }, renew: () => problem(410, 'lease-lost') }));

test('after a renewal by a slower clock time stands still, and ids rise', () => holding(async (worker, clocks) => {
  clocks.pass(5_000);
  const before = await worker.nextId();
  await until(() => worker.notAfter === START + 60_000);
  const after = await worker.nextId();
  assert.ok(after > before);
  assert.equal(timeOf(after), START + 5_000);
  clocks.pass(10_000); // the service's clock has passed by now
  assert.equal(timeOf(await worker.nextId()), START + 11_000);
}, { more: { renew_every_ms: 1 }, renew: (_, clocks) => (clocks.monotonic > 1e6 ? renewed({ server_time: moment(START + 1_000) }) : problem(503, 'overloaded')) }));

for (const [name, told, want] of [['between', 600, 1000], ['ahead', 1400, 1400], ['behind', -300, 700]]) {
  test(`after a renewal by a clock that is ${name} time is the nearest that it can be`, () => holding(async (worker) => {
    await until(() => worker.notAfter === START + 60_000);
    assert.equal(timeOf(await worker.nextId()), START + want);
  }, {
    more: { renew_every_ms: 1 },
    renew: (n, clocks) => {
      if (n > 1) return problem(503, 'overloaded');
      clocks.pass(1000); // the request took that long
      return renewed({ server_time: moment(START + told) });
    },
  }));
}

test('a loop of ids does not keep the renewals waiting', { timeout: 60_000 }, () => withService(
  ({ method }) => (method === 'POST' ? [201, grant({ renew_every_ms: 20, layout: '41/2/20', worker_id: 1 })] : method === 'PUT' ? renewed({ worker_id: 1 }) : [204]),
  async (url) => {
    const worker = await new Client(url).holdWorker('orders');
    while (worker.notAfter !== START + 60_000) await worker.nextId();
    await worker.release();
  },
));

test('a release gives the worker id back from the last id on, once', () => holding(async (worker, clocks, asked) => {
  clocks.pass(1234);
  await worker.nextId();
  await Promise.all([worker.release(), worker.release()]);
  assert.deepEqual(asked.map(({ method, url }) => [method, decodeURIComponent(url)]).slice(1), [['DELETE', `/worker/orders/5?used_until=${moment(START + 1235)}`]]);
  await assert.rejects(worker.nextId(), (error) => error instanceof NoLease && error.code === 'released');
}));

if (Symbol.asyncDispose) { // a later Node than 18
  test('await using gives it back, whatever the service says', () => holding(async (worker, _, asked) => {
    await worker[Symbol.asyncDispose]();
    assert.equal(asked.at(-1).method, 'DELETE');
  }, { given: () => problem(503, 'store-unavailable') }));
}

for (const [name, answer, kind] of [
  ['an exhausted pool', problem(503, 'pool-exhausted'), Unavailable],
  ['a quarantined pool', problem(503, 'pool-quarantined'), Unavailable],
  ['a grant that is not whole', [201, { worker_id: 1 }], UnknownOutcome],
  ['a worker id that does not fit the layout', [201, grant({ worker_id: 1024 })], UnknownOutcome],
  ['a window that does not begin', [201, grant({ not_before: moment(START + 30_000) })], UnknownOutcome],
]) {
  test(`${name} is ${kind.name}`, () => withService(() => answer, (url) => assert.rejects(new Client(url).holdWorker('orders'), kind)));
}

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc');

for (const [name, acquire] of [
  ['worker id', (client) => client.holdWorker('orders')],
  ['lock', (client) => client.acquireLock('deploy', { ttl: 30 })],
]) {
  test(`a ${name} that is dropped is not renewed for ever, and its signal says so`, { timeout: 60_000 }, async () => {
    const answer = ({ method }) => (method === 'POST' ? [201, grant({ renew_every_ms: 1, name: 'deploy' })] : renewed({ expires_at: moment(START) }));
    await withService(answer, async (url) => {
      const { signal } = await acquire(new Client(url));
      while (!signal.aborted) {
        collect();
        await turn();
      }
      assert.equal(signal.reason.code, 'dropped');
    });
  });
}
