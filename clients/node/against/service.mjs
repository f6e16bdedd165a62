// What the client does against a real service, one step a subject: node service.mjs URL. It ends
// with a line "ok", or fails. The test TestNodeClientAgainstAService runs it.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

import { Client, Lost, NOT_BEGUN, NoLease, Response, fingerprint, runOnce } from 'coatcheck';

const client = new Client(process.argv[2]);
const print = fingerprint('charge', '42');

async function ownKeys() {
  let runs = 0;
  for (const wanted of [false, true]) {
    const { answer, replayed } = await runOnce(client, { key: 'evt_1', scope: 'hooks' }, print, () => `paid ${++runs}`);
    assert.deepEqual([replayed, answer.body.toString()], [wanted, 'paid 1']);
  }
  await assert.rejects(runOnce(client, { key: 'evt_1', scope: 'hooks' }, fingerprint('other'), () => 1), { code: 'idempotency-payload-mismatch' });
}

async function doubtIsSettled() {
  const key = { key: 'evt_2' };
  const { operation, lease } = await client.claimKey(key, print, 30);
  await client.extendOperation(operation, lease, 20);
  assert.equal((await client.operation(operation)).state, 'claimed');
  await client.releaseOperation(operation, lease);
  await client.claimKey(key, print, 0.1);
  while ((await client.operation(operation)).state !== 'in-doubt') await sleep(20);
  await assert.rejects(client.claimKey(key, print, 30), { code: 'idempotency-outcome-unknown', operation });
  await client.settle(operation, 'completed', { answer: { status: 201, body: 'paid' }, reason: 'seen' });
  const { outcome, response } = await client.claimKey(key, print, 30);
  assert.deepEqual([outcome, response.status], ['replay', 201]);
  await client.forgetOperation(operation);
  assert.equal((await client.claimKey(key, print, 30)).outcome, 'granted');
}

/** Work fails before or after its effect, and the next call finds out which. */
async function doubtIsResolved() {
  for (const happened of [false, true]) {
    const runs = [];
    const asked = [];
    const work = ({ fence }) => {
      runs.push(fence);
      if (runs.length === 1) throw new RangeError('it failed');
      return 'paid';
    };
    const resolve = (operation, fence) => {
      asked.push([operation.length, fence]);
      if (asked.length === 1) return undefined; // it does not know
      return happened ? new Response('paid', { status: 201 }) : NOT_BEGUN;
    };
    const once = () => runOnce(client, { key: `evt_resolved_${happened}` }, print, work, { lease: 0.1, resolve });
    await assert.rejects(once(), RangeError);
    let done;
    while (!done) {
      done = await once().catch((error) => assert.match(error.code, /^idempotency-(in-progress|outcome-unknown)$/));
      await sleep(20);
    }
    assert.deepEqual([done.answer.body.toString(), done.replayed, runs.length], ['paid', happened, happened ? 1 : 2]);
    assert.deepEqual(asked, [[32, runs[0]], [32, runs[0]]]);
  }
}

async function tokens() {
  const { token, scope } = await client.issue({ ttl: 60, scope: 'payments' });
  assert.deepEqual([scope, (await client.status(token)).state], ['payments', 'issued']);
}

async function counters() {
  assert.equal(await client.incr('orders'), 1);
  const added = await client.add('orders', { by: 5, requestId: 'a' });
  assert.deepEqual(added, { key: 'orders', first: 2, value: 6, numbers: [] });
  assert.deepEqual(await client.add('orders', { by: 5, requestId: 'a' }), added);
  await assert.rejects(client.add('orders', { by: 5, limit: 7 }), { code: 'counter-limit', status: 409 });
  await assert.rejects(client.add('orders', { ttl: 60 }), { code: 'counter-permanent', status: 409 });
  await assert.rejects(client.add('orders', { by: -1 }), { code: 'invalid-request', field: 'by' });
  assert.equal((await client.add('tries', { limit: 9, ttl: 60, afterLoss: 'stay' })).value, 1);
  await assert.rejects(client.add('tries', { afterLoss: 'stay' }), { code: 'invalid-request', field: 'after_loss' });
  assert.equal(await client.counter('orders'), 6);
  await assert.rejects(client.setCounter('orders', 5), { code: 'counter-back', status: 409 });
  await client.setCounter('orders', 5, { ttl: 60, back: true });
  assert.equal((await client.add('orders', { ttl: 60 })).value, 6);
  const { numbers } = await client.add('bills', { by: 2, template: 'B-{n:4}' });
  assert.deepEqual(numbers, ['B-0001', 'B-0002']);
}

async function limits() {
  const rate = { rate: 1, per: 3600 };
  assert.equal((await client.takeLimit('mail', rate)).remaining, 0);
  await assert.rejects(client.takeLimit('mail', rate), (error) => error.code === 'limit-reached' && error.retryAfter > 0);
  await client.takeLimit('mail', { ...rate, cost: -1 });
  await client.takeLimit('mail', rate);
  await client.resetLimit('mail');
  await client.takeLimit('mail', rate);
}

async function locks() {
  const lock = await client.acquireLock('deploy', { ttl: 0.9 });
  await assert.rejects(client.acquireLock('deploy'), { code: 'lock-held' });
  await sleep(1500); // it is renewed meanwhile
  lock.check();
  assert.equal((await client.lock('deploy')).holders[0].fence, lock.fence);
  await lock.release();
  assert.throws(() => lock.check(), Lost);
  const next = await client.acquireLock('deploy', { ttl: 0.9 });
  assert.ok(next.fence > lock.fence);
  if (Symbol.asyncDispose) await next[Symbol.asyncDispose]();
  else await next.release();
}

/** A process that was stopped until another had its lock is told so before its next use. */
async function lockOfAStoppedProcess() {
  const holder = spawn(process.execPath, [fileURLToPath(import.meta.url), process.argv[2], 'hold'], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: holder.stdout })[Symbol.asyncIterator]();
  assert.equal((await lines.next()).value, 'held');
  holder.kill('SIGSTOP');
  const lock = await client.acquireLock('stopped', { wait: 30 });
  holder.stdin.write('use\n');
  holder.kill('SIGCONT');
  assert.equal((await lines.next()).value, 'Lost');
  await lock.release();
}

async function hold() {
  const lock = await client.acquireLock('stopped', { ttl: 1 });
  process.stdin.once('data', () => {
    try {
      lock.check();
      console.log('used');
    } catch (error) {
      console.log(error.constructor.name);
    }
    process.exit();
  });
  console.log('held');
}

async function ids() {
  const [a, b] = await client.snowflakeIds('shop', 2);
  assert.ok(a < b);
  assert.equal((await client.decodeId(a)).id, String(a));
  assert.deepEqual(await client.segmentIds('rows', 2), [1n, 2n]);
  assert.equal(new Set(await client.ulids(3)).size, 3);
  for (const id of await client.typeids('order', 2)) assert.match(id, /^order_[0-9a-z]{26}$/);
}

/** The service takes the ids of a worker id apart, and knows the window that they are of. */
async function workerIds() {
  const worker = await client.holdWorker('stamped', { identity: 'me', ttl: 2, layout: '41/5/5/12', epoch: new Date('2024-01-01T00:00:00Z'), datacenter: 3 });
  const first = worker.notAfter;
  const made = await worker.nextIds(5000);
  while (worker.notAfter === first) await worker.nextIds(1); // until a renewal
  made.push(...await worker.nextIds(2));
  assert.equal(new Set(made).size, made.length);
  assert.deepEqual(made, [...made].sort((a, b) => (a < b ? -1 : 1)));
  for (const id of [made[0], made.at(-1)]) {
    const parts = await client.decodeId(id, 'stamped');
    assert.deepEqual([parts.worker_id, parts.datacenter], [worker.workerId, 3]);
    const time = Date.parse(parts.time);
    assert.ok(worker.notBefore <= time && time + 1 <= worker.notAfter, `${parts.time} outside of the window`);
  }
  await assert.rejects(client.holdWorker('stamped', { layout: '41/10/12' }), { code: 'layout-mismatch' });
  await worker.release();
  await assert.rejects(worker.nextId(), NoLease);
  const again = await client.holdWorker('stamped', { identity: 'me' }); // the same one, after the last id
  assert.equal(again.workerId, worker.workerId);
  assert.ok(again.fence > worker.fence && await again.nextId() > made.at(-1));
  await again.release();
}

/** 300 ids, 10 ms apart: each remainder of 8 comes 300/8 times, within 4 standard deviations. */
async function idsAreEven() {
  const worker = await client.holdWorker('shop');
  for (const one of [async () => (await client.snowflakeIds('shop'))[0], () => worker.nextId()]) await even(one);
  await worker.release();
}

async function even(one) {
  const counts = Array(8).fill(0);
  for (let n = 0, last = 0n; n < 300; n++) {
    const id = await one();
    assert.ok(id > last);
    last = id;
    counts[Number(id % 8n)]++;
    await sleep(10);
  }
  const deviation = Math.sqrt(300 * (1 / 8) * (7 / 8));
  for (const count of counts) assert.ok(Math.abs(count - 300 / 8) < 4 * deviation, `of each remainder: ${counts}`);
}

async function all() {
  for (const subject of [ownKeys, doubtIsSettled, doubtIsResolved, tokens, counters, limits, locks, lockOfAStoppedProcess, workerIds, ids, idsAreEven]) {
    await subject();
  }
  await assert.rejects(client.incr('a/b'), TypeError);
  console.log('ok');
}

await (process.argv[3] === 'hold' ? hold() : all());
