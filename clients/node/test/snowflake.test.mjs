// The ids of a generator that is told what time it is.

import assert from 'node:assert/strict';
import test from 'node:test';

import { Generator, layoutOf } from '../lib/snowflake.mjs';

const EPOCH = Date.UTC(2020, 0, 1);
const NEVER = EPOCH + 2 ** 45;

const generator = (layout, more = {}) => new Generator({ layout: layoutOf(layout), epoch: EPOCH, notBefore: EPOCH, datacenter: 0, workerId: 5, ...more });

/** The parts of an id, as docs/remote.md has them. */
function parts(layout, id) {
  const { datacenter, worker, sequence, unit } = layoutOf(layout);
  const cut = (bits) => {
    const part = id & ((1n << BigInt(bits)) - 1n);
    id >>= BigInt(bits);
    return Number(part);
  };
  const [s, w, d] = [cut(sequence), cut(worker), cut(datacenter)];
  return { time: Number(id) * unit, datacenter: d, worker: w, sequence: s };
}

function withoutSpread(run) {
  const random = Math.random;
  Math.random = () => 0;
  try {
    run();
  } finally {
    Math.random = random;
  }
}

test('ids are those of docs/remote.md', () => withoutSpread(() => {
  const ids = generator('41/10/12');
  assert.deepEqual([ids.stamp(EPOCH + 1000, NEVER), ids.stamp(EPOCH + 1000, NEVER)], [4194324480n, 4194324481n]);
}));

for (const [layout, datacenter, time, want] of [
  ['41/5/5/12', 3, 1000.9, { time: 1000, datacenter: 3, worker: 5, sequence: 0 }],
  ['32/10/21@s', 0, 5999, { time: 5000, datacenter: 0, worker: 5, sequence: 0 }],
  ['41/4/4/0', 9, 7, { time: 7, datacenter: 9, worker: 5, sequence: 0 }],
  ['45/8/10', 0, 2 ** 42, { time: 2 ** 42, datacenter: 0, worker: 5, sequence: 0 }],
]) {
  test(`an id of ${layout} has its parts in their places`, () => withoutSpread(() => {
    assert.deepEqual(parts(layout, generator(layout, { datacenter }).stamp(EPOCH + time, NEVER)), want);
  }));
}

test('a full sequence waits for the next unit, and a clock that goes back for the last one', () => withoutSpread(() => {
  const ids = generator('41/10/2');
  const made = Array.from({ length: 4 }, () => ids.stamp(EPOCH + 10.25, NEVER));
  assert.deepEqual(made.map((id) => parts('41/10/2', id).sequence), [0, 1, 2, 3]);
  assert.equal(ids.stamp(EPOCH + 10.25, NEVER), 0.75);
  assert.equal(ids.stamp(EPOCH + 7, NEVER), 4);
  assert.ok(ids.stamp(EPOCH + 11, NEVER) > made[3]);
  assert.ok(ids.stamp(EPOCH + 9, NEVER) > made[3], 'an id of the last unit, while there is room in it');
}));

test('the whole unit of an id lies in the window', () => {
  const ids = generator('32/10/21@s', { notBefore: EPOCH + 1500 });
  assert.equal(ids.stamp(EPOCH + 1600, NEVER), 400);
  assert.equal(typeof ids.stamp(EPOCH + 3999, EPOCH + 3999), 'number');
  assert.equal(parts('32/10/21@s', ids.stamp(EPOCH + 3999, EPOCH + 4000)).time, 3000);
  assert.equal(typeof ids.stamp(EPOCH + 4000, EPOCH + 4000), 'number');
  assert.equal(ids.usedUntil, EPOCH + 4000);
});

test('a worker id that stamped nothing was used until its window began', () => {
  assert.equal(generator('41/10/12', { notBefore: EPOCH + 7 }).usedUntil, EPOCH + 7);
});

test('a layout without timestamps stamps nothing', () => {
  const ids = generator('20/10/12');
  assert.equal(typeof ids.stamp(EPOCH + 2 ** 20 - 1, NEVER), 'bigint');
  assert.throws(() => ids.stamp(EPOCH + 2 ** 20, NEVER), RangeError);
});

test('rare ids are even modulo a number, and rise', () => {
  const [ids, counts, n] = [generator('41/10/12'), Array(8).fill(0), 4000];
  for (let at = 0, last = 0n; at < n; at++) {
    const id = ids.stamp(EPOCH + at, NEVER);
    assert.ok(id > last);
    last = id;
    counts[Number(id % 8n)]++;
  }
  const deviation = Math.sqrt(n * (1 / 8) * (7 / 8));
  for (const count of counts) assert.ok(Math.abs(count - n / 8) < 6 * deviation, `of each remainder: ${counts}`);
});

test('what is no layout is none', () => {
  for (const text of [undefined, '', '41/10', '41/10/12/1/1', '41/10/12@ms', '41/10/13', '19/10/12', '41/0/12', 'a/b/c', '041/10/12']) {
    assert.equal(layoutOf(text), undefined, text);
  }
});
