// What the package promises without a service: npm test.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import test from 'node:test';
import { runInNewContext } from 'node:vm';

import * as coatcheck from 'coatcheck';

import { problem as refusal, withClocks, withService } from '../testing/service.mjs';

/**
 * Runs a test with a server that answers each request with the next answer: status, media type,
 * body. It keeps the keys that it is shown.
 */
async function serving(answers, run, shown = []) {
  const server = http.createServer((request, response) => {
    shown.push(request.headers.authorization);
    request.resume();
    request.on('end', () => {
      const [status, type, body] = answers.shift();
      response.writeHead(status, { 'Content-Type': type }).end(body);
    });
  });
  await new Promise((listens) => server.listen(0, '127.0.0.1', listens));
  try {
    await run(`http://127.0.0.1:${server.address().port}`);
  } finally {
    await new Promise((closed) => server.close(closed));
  }
}

const problem = (status, code) => [status, 'application/problem+json', JSON.stringify({ code, detail: 'a detail' })];

test('a fingerprint is that of the other clients', () => {
  assert.equal(coatcheck.fingerprint('charge', '42', '12.99 EUR'), 'AgqwciPyqGDu_ZyYvyWkAKHc9_0mgg-KKdsI0hDr7MQ');
  assert.notEqual(coatcheck.fingerprint('ab', 'c'), coatcheck.fingerprint('a', 'bc'));
});

test('every export is in the types, and every type that is a value is exported', () => {
  const types = readFileSync(new URL('../index.d.ts', import.meta.url), 'utf8');
  const declared = [...types.matchAll(/^export (?:class|function|const) (\w+)/gm)].map(([, name]) => name);
  assert.deepEqual(declared.sort(), Object.keys(coatcheck).sort());
});

test('every public method is in the types', () => {
  const types = readFileSync(new URL('../index.d.ts', import.meta.url), 'utf8');
  for (const name of ['Client', 'Attempt']) {
    const [, body] = types.match(new RegExp(`export class ${name}[^{]*{\\n([^]*?)\\n}`));
    for (const method of Object.getOwnPropertyNames(coatcheck[name].prototype)) {
      assert.match(body, new RegExp(`\\b${method}\\(`), `${name}.${method}`);
    }
  }
});

for (const [answer, kind, code] of [
  [problem(409, 'idempotency-superseded'), coatcheck.Lost, 'idempotency-superseded'],
  [problem(503, 'store-unavailable'), coatcheck.Unavailable, 'store-unavailable'],
  [problem(503, 'store-unsuitable'), coatcheck.CoatcheckError, 'store-unsuitable'],
  [problem(503, 'store-newer'), coatcheck.CoatcheckError, 'store-newer'],
  [problem(500, 'internal-error'), coatcheck.UnknownOutcome, 'internal-error'],
  [problem(409, 'idempotency-in-progress'), coatcheck.CoatcheckError, 'idempotency-in-progress'],
  [[502, 'text/html', '<html>'], coatcheck.UnknownOutcome, 'unknown-outcome'],
  [[200, 'application/json', '{}'], coatcheck.UnknownOutcome, 'unknown-outcome'],
]) {
  test(`the answer ${answer[0]} ${code} is ${kind.name}`, () =>
    serving([answer], async (url) => {
      const error = await new coatcheck.Client(url).claim('a-token', 'f', 30).then(
        () => assert.fail('it was granted'),
        (error) => error,
      );
      assert.equal(error.constructor, kind);
      assert.equal(error.code, code);
    }));
}

for (const [type, body] of [['text/html', '<html>'], ['application/json', '{}'], ['application/json', '{"status":"ok"}']]) {
  for (const [name, argument] of [['complete', {}], ['release'], ['extend', 30]]) {
    test(`${name} that is answered 200 ${body} is not confirmed`, () =>
      serving([[200, type, body]], async (url) => {
        await assert.rejects(new coatcheck.Client(url)[name]('a-token', 'a-lease', argument), coatcheck.UnknownOutcome);
      }));
  }
}

test('a refusal after a lost claim is not its answer', () => {
  const granted = [200, 'application/json', '{"outcome":"granted","lease":"the-lease-of-the-claim","fence":1}'];
  return serving([[502, 'text/html', '<html>'], [401, 'text/html', '<html>'], granted, [204, 'text/plain', '']], async (url) => {
    const { answer, replayed } = await coatcheck.runOnce(new coatcheck.Client(url), 'a-token', 'f', () => 'paid');
    assert.deepEqual([answer.body.toString(), replayed], ['paid', false]);
  });
});

test('a key is shown with every request and is in no error', async () => {
  const shown = [];
  const refused = [problem(401, 'unauthorized'), problem(401, 'unauthorized')];
  await serving(refused, async (url) => {
    const client = new coatcheck.Client(url, undefined, 'cck_a_secret');
    await assert.rejects(client.claim('a-token', 'f', 30), coatcheck.CoatcheckError);
    await assert.rejects(client.release('a-token', 'a-lease'), coatcheck.CoatcheckError);
    assert.throws(() => new coatcheck.Client(url, undefined, 'cck_a_secret\n'), (error) => error instanceof TypeError && !error.message.includes('secret'));
  }, shown);
  assert.deepEqual(shown, ['Bearer cck_a_secret', 'Bearer cck_a_secret']);
});

test('an answer that is too large is recorded without its body', async () => {
  const recorded = [];
  const granted = '{"outcome":"granted","lease":"the-lease-of-the-claim","fence":1}';
  const server = http.createServer(async (request, response) => {
    if (request.headers['content-length'] > 1 << 20) return request.destroy();
    const parts = await request.toArray();
    if (request.url.endsWith('/claim')) return response.writeHead(200).end(granted);
    recorded.push(JSON.parse(Buffer.concat(parts)));
    response.writeHead(204).end();
  });
  server.on('checkContinue', (request, response) => {
    if (request.headers['content-length'] <= 1 << 20) {
      response.writeContinue();
      return server.emit('request', request, response);
    }
    const [status, type, body] = problem(413, 'payload-too-large');
    response.writeHead(status, { 'Content-Type': type, Connection: 'close' }).end(body);
  });
  await new Promise((listens) => server.listen(0, '127.0.0.1', listens));
  const client = new coatcheck.Client(`http://127.0.0.1:${server.address().port}`);
  for (const size of [500_000, 30_000_000]) {
    await coatcheck.runOnce(client, 'a-token', 'f', () => Buffer.alloc(size));
  }
  await new Promise((closed) => server.close(closed));
  assert.deepEqual(recorded.map((one) => one.body_not_kept), [false, true]);
});

for (const [monotonic, wall, lost] of [[9_999, 9_999, false], [10_000, 9_999, true], [9_999, 10_000, true], [9_999, -100_000, false]]) {
  test(`under takeover either clock ends the trust: ${monotonic} and ${wall} of 10,000 ms`, () => withClocks((clocks) => {
    const attempt = new coatcheck.Attempt(1, 1);
    attempt.trustFor(10_000, { monotonic: clocks.monotonic, wall: clocks.wall });
    clocks.pass(monotonic, wall);
    if (lost) assert.throws(() => attempt.check(), coatcheck.Lost);
    else attempt.check();
    attempt.trustFor(undefined);
  }));
}

test('a duration is the milliseconds that it says', async () => {
  const asked = [];
  const answer = ({ body }) => {
    asked.push(body.ttl_ms);
    return refusal(503, 'overloaded');
  };
  await withService(answer, async (url) => {
    for (const ttl of [16.1, 2.01, 0.57, 1.1]) await assert.rejects(new coatcheck.Client(url).issue({ ttl }), coatcheck.Unavailable);
  });
  assert.deepEqual(asked, [16_100, 2010, 570, 1100]);
});

test('no connection means that nothing was done', async () => {
  let gone;
  await serving([], async (url) => (gone = url));
  await assert.rejects(new coatcheck.Client(gone).claim('a-token', 'f', 30), coatcheck.Unavailable);
});

test('a URL of another kind is refused', () => {
  assert.throws(() => new coatcheck.Client('redis://127.0.0.1:6379'), TypeError);
});

for (const [name, part] of Object.entries({
  ArrayBuffer: new ArrayBuffer(4),
  DataView: new DataView(new ArrayBuffer(4)),
  'typed array': new Uint16Array(2),
  object: { amount: 1 },
  array: [1],
  Map: new Map(),
  Headers: new Headers(),
  number: 1,
  undefined: undefined,
  'lone surrogate': 'a\ud800',
})) {
  test(`a fingerprint of ${name} is a TypeError`, () => {
    assert.throws(() => coatcheck.fingerprint('charge', part), TypeError);
  });
}

test('a fingerprint is of bytes as they are', () => {
  assert.equal(coatcheck.fingerprint(Buffer.from('charge')), coatcheck.fingerprint('charge'));
  assert.equal(coatcheck.fingerprint(new Uint8Array([1, 2])), coatcheck.fingerprint(Buffer.from([1, 2])));
  assert.notEqual(coatcheck.fingerprint(Buffer.from([0xff])), coatcheck.fingerprint(Buffer.from([0xfe])));
});

test('a fingerprint that is no string is refused before anything is sent', async () => {
  const client = new coatcheck.Client('http://127.0.0.1:9');
  let ran = false;
  for (const wrong of [undefined, '', {}, new ArrayBuffer(4), 'a\ud800']) {
    await assert.rejects(coatcheck.runOnce(client, 't', wrong, () => (ran = true)), TypeError);
  }
  await assert.rejects(coatcheck.runOnce(client, 't', 'f', 'work'), TypeError);
  assert.equal(ran, false);
});

for (const [name, result, want] of [
  ['an object', { paid: true }, { status: 200, type: 'application/json', body: '{"paid":true}', notKept: false }],
  ['an array', [1, 'a'], { status: 200, type: 'application/json', body: '[1,"a"]', notKept: false }],
  ['a number', 42, { status: 200, type: 'application/json', body: '42', notKept: false }],
  ['a string', 'paid', { status: 200, type: undefined, body: 'paid', notKept: false }],
  ['bytes', Buffer.from('paid'), { status: 200, type: undefined, body: 'paid', notKept: false }],
  ['nothing', undefined, { status: 200, type: undefined, body: '', notKept: false }],
  ['null', null, { status: 200, type: undefined, body: '', notKept: false }],
  ['a Response', new coatcheck.Response('paid', { status: 201, headers: { 'X-A': 'b' } }), { status: 201, type: undefined, body: 'paid', notKept: false }],
  ['a Response with an object', new coatcheck.Response({ paid: true }, { status: 201 }), { status: 201, type: 'application/json', body: '{"paid":true}', notKept: false }],
  ['a Response with a type', new coatcheck.Response({ paid: true }, { headers: { 'content-type': 'a/b' } }), { status: 200, type: 'a/b', body: '{"paid":true}', notKept: false }],
  ['an empty object', {}, { status: 200, type: 'application/json', body: '{}', notKept: false }],
  ['an object of another realm', runInNewContext('({ paid: [undefined, null] })'), { status: 200, type: 'application/json', body: '{"paid":[null,null]}', notKept: false }],
  ['what has toJSON', { at: new Date(0), in: new URL('http://host/') }, { status: 200, type: 'application/json', body: '{"at":"1970-01-01T00:00:00.000Z","in":"http://host/"}', notKept: false }],
]) {
  test(`work that returns ${name} is recorded`, () =>
    serving([[200, 'application/json', '{"outcome":"granted","lease":"l","fence":1}'], [204, '', '']], async (url) => {
      const { answer } = await coatcheck.runOnce(new coatcheck.Client(url), 't', 'f', async () => result);
      const type = answer.headers['Content-Type'] ?? answer.headers['content-type'];
      assert.deepEqual({ status: answer.status, type, body: answer.body.toString(), notKept: answer.notKept }, want);
    }));
}

test('a Response that the service would refuse is not made', () => {
  for (const terms of [{ status: 199 }, { status: 600 }, { status: '200' }, { headers: { 'X-A': 1 } }, { headers: { 'X-A': '\ud83d' } }, { headers: new Headers() }, { headers: [['X-A', 'b']] }]) {
    assert.throws(() => new coatcheck.Response('paid', terms), TypeError, JSON.stringify(terms));
  }
});

test('an option that is none is refused, and nothing is sent', async () => {
  const client = new coatcheck.Client('http://127.0.0.1:9'); // nobody answers there
  for (const call of [
    () => client.add('orders', 5),
    () => client.add('orders', { By: 5 }),
    () => client.add('orders', null),
    () => client.setCounter('orders', 5, { Back: true }),
    () => client.acquireLock('orders', 30),
    () => client.acquireLock('orders', { TTL: 30 }),
    () => client.issue({ TTL: 30 }),
    () => client.settle('operation', 'refused', 'a reason'),
    () => client.holdWorker('orders', { name: 'a' }),
    () => client.takeLimit('orders', { rate: 1, per: 1, Burst: 2 }),
  ]) {
    await assert.rejects(call, TypeError, call.toString());
  }
});
