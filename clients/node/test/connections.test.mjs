// What becomes of the connections: when one is kept and used again, and what a lost one means.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import net from 'node:net';
import test from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { Client, CoatcheckError, Unavailable, UnknownOutcome } from 'coatcheck';

import { AGE, IDLE, KEPT, MOST } from '../lib/exchange.mjs';
import { withClocks } from '../testing/service.mjs';

const whole = (value, ...headers) => {
  const body = JSON.stringify({ key: 'orders', first: value, value });
  return ['HTTP/1.1 200 OK', ...headers, `Content-Length: ${body.length}`, '', body].join('\r\n');
};

/**
 * A service that keeps connections, and counts them: run(client, service) asks it. It answers
 * request n, from 1 on, by answers[n](socket, n), else with the value n.
 */
async function serving(answers, run) {
  const service = { asked: 0, accepted: 0, open: new Set() };
  const server = net.createServer((socket) => {
    service.accepted++;
    service.open.add(socket);
    let text = '';
    socket.on('error', () => {}); // a connection that the client has broken
    socket.on('close', () => service.open.delete(socket));
    socket.on('data', (data) => {
      for (text += data; text.includes('\r\n\r\n'); text = text.slice(text.indexOf('\r\n\r\n') + 4 + length(text))) {
        if (text.length < text.indexOf('\r\n\r\n') + 4 + length(text)) return;
        const n = ++service.asked;
        (answers[n] ?? answer)(socket, n);
      }
    });
  });
  await new Promise((listens) => server.listen(0, '127.0.0.1', listens));
  service.url = `http://127.0.0.1:${server.address().port}`;
  service.ends = async () => {
    server.close();
    for (const socket of service.open) socket.destroy();
    await once(server, 'close');
  };
  const client = new Client(service.url, 60);
  try {
    await run(client, service);
  } finally {
    client.close();
    if (server.listening) await service.ends();
  }
}

const length = (head) => Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
const answer = (socket, n) => socket.write(whole(n));
const answerAndClose = (socket, n) => socket.end(whole(n)); // and says nothing of it
const close = (socket) => socket.destroy();

/** Waits until the service has so many connections, for less than a client keeps one. */
async function left(service, n) {
  for (const end = Date.now() + (IDLE * 2) / 3; service.open.size !== n; await sleep(1)) {
    assert.ok(Date.now() < end, `${service.open.size} connections stay, want ${n}`);
  }
}

const counts = ({ asked, accepted }, ...wanted) => assert.deepEqual({ asked, accepted }, { asked: wanted[0], accepted: wanted[1] });

test('many calls are one connection', () => serving({}, async (client, service) => {
  for (let n = 1; n <= 50; n++) assert.equal(await client.incr('orders'), n);
  counts(service, 50, 1);
}));

test('a connection that the service closed meanwhile loses no call', () =>
  serving(Object.fromEntries(Array.from({ length: 20 }, (_, n) => [n, answerAndClose])), async (client, service) => {
    for (let n = 1; n < 20; n++) {
      assert.equal(await client.incr('orders'), n);
      await left(service, 0);
    }
    counts(service, 19, 19);
  }));

test('no answer on a kept connection is an unknown outcome, and is not sent again', () => serving({ 2: close }, async (client, service) => {
  await client.incr('orders');
  await assert.rejects(client.incr('orders'), UnknownOutcome);
  counts(service, 2, 1);
  assert.equal(await client.incr('orders'), 3);
  counts(service, 3, 2);
}));

test('a service that has gone meanwhile has done nothing', () => serving({}, async (client, service) => {
  await client.incr('orders');
  await service.ends();
  await assert.rejects(client.incr('orders'), Unavailable);
}));

const cutOff = (text) => (socket) => socket.end(text);
const stays = (text) => (socket) => socket.write(text);

for (const [name, says] of Object.entries({
  'cut': cutOff('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{'),
  'cut in a chunk': cutOff('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n{'),
  'without the last chunk': cutOff('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n'),
  'without a length': cutOff('HTTP/1.1 200 OK\r\n\r\n{}'),
  'of another protocol': stays('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n'),
  'to be closed': stays(whole(1, 'Connection: close')),
  'of HTTP/1.0': stays(whole(1).replace('HTTP/1.1', 'HTTP/1.0')),
  'too long': stays(`HTTP/1.1 200 OK\r\nContent-Length: ${MOST + 1}\r\n\r\n${' '.repeat(MOST + 1)}`),
  'no HTTP': stays('what?\r\n\r\n'),
})) {
  test(`after an answer that is ${name} another connection is opened`, () => serving({ 1: says }, async (client, service) => {
    await client.incr('orders').catch((error) => assert.ok(error instanceof UnknownOutcome, error));
    await left(service, 0);
    assert.equal(await client.incr('orders'), 2);
    counts(service, 2, 2);
  }));
}

for (const [name, text] of Object.entries({
  'a refusal': 'HTTP/1.1 409 Conflict\r\nContent-Type: application/problem+json\r\nContent-Length: 24\r\n\r\n{"code":"counter-limit"}',
  'chunks': 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n',
  'no body': 'HTTP/1.1 204 No Content\r\n\r\n',
  'hints and an answer': `HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n${whole(1)}`,
})) {
  test(`after ${name} the connection is used again`, () => serving({ 1: (socket) => socket.write(text) }, async (client, service) => {
    await client.incr('orders').catch((error) => assert.ok(error instanceof CoatcheckError, error));
    assert.equal(await client.incr('orders'), 2);
    counts(service, 2, 1);
  }));
}

for (const [name, unasked] of Object.entries({ 'at once': (socket) => socket.write(whole(1) + whole(99)), 'later': answer })) {
  test(`what comes unasked ${name} is no answer to the next call`, () => serving({ 1: unasked }, async (client, service) => {
    assert.equal(await client.incr('orders'), 1);
    for (const socket of service.open) if (name === 'later') await new Promise((written) => socket.write(whole(99), written));
    assert.equal(await client.incr('orders'), 2);
    counts(service, 2, 2);
  }));
}

for (const [name, waits, accepted, ...headers] of [
  ['idle', [IDLE + 100], 2],
  ['used', Array(3).fill(IDLE / 2), 1],
  ['old', Array(1 + (AGE / IDLE) * 2).fill(IDLE / 2), 2],
  ['as the service says', [4100], 2, 'Keep-Alive: timeout=5, max=100'],
  ['as the service says, and sooner', [3900], 1, 'Keep-Alive: timeout=5'],
  ['no longer, whatever it says', [IDLE + 100], 2, 'Keep-Alive: timeout=99999'],
]) {
  for (const clock of [0, 1]) { // a machine that sleeps stops the monotonic one
    test(`a connection is kept for a time only: ${name}, by clock ${clock}`, () => withClocks(({ pass }) =>
      serving(Object.fromEntries(Array.from({ length: 9 }, (_, n) => [n, (socket, n) => socket.write(whole(n, ...headers))])), async (client, service) => {
        await client.incr('orders');
        for (const wait of waits) {
          pass(...(clock ? [0, wait] : [wait, 0]));
          await client.incr('orders');
        }
        counts(service, waits.length + 1, accepted);
      })));
  }
}

test('calls at one time have a connection each, and leave few', () => serving({}, async (client, service) => {
  const got = [];
  const asking = Array.from({ length: 3 * KEPT }, async () => {
    for (let n = 0; n < 20; n++) got.push(await client.incr('orders'));
  });
  await Promise.all(asking);
  assert.deepEqual(got.sort((a, b) => a - b), Array.from({ length: 60 * KEPT }, (_, n) => n + 1));
  await left(service, KEPT);
}));

test('close ends what is kept, and no call that is under way', () => {
  let go;
  const came = new Promise((comes) => (go = comes));
  return serving({ 2: (socket) => go(socket) }, async (client, service) => {
    await client.incr('orders');
    const asking = client.incr('orders');
    const socket = await came;
    client.close();
    socket.write(whole(2));
    assert.equal(await asking, 2);
    await left(service, 0);
    assert.equal(await client.incr('orders'), 3);
    await left(service, 0);
    counts(service, 3, 2);
  });
});

test('await using ends what is kept', () => serving({}, async (client, service) => {
  await client.incr('orders');
  if (Symbol.asyncDispose) await client[Symbol.asyncDispose]();
  else client.close();
  await left(service, 0);
}));

test('a process ends while a connection is kept', () => serving({}, async (_, service) => {
  const program = "const { Client } = await import(process.argv[1]); console.log(await new Client(process.argv[2]).incr('orders'));";
  const index = fileURLToPath(new URL('../index.mjs', import.meta.url));
  const { stdout, stderr } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program, index, service.url]);
  assert.deepEqual([stdout, stderr], ['1\n', '']);
}));

test('a program that was busy sees what came meanwhile before it sends', () => serving({}, async (client, service) => {
  await client.incr('orders');
  const [socket] = service.open;
  await new Promise((turns) => setImmediate(turns));
  socket.destroy(); // nothing of this process has run since
  assert.equal(await client.incr('orders'), 2);
  counts(service, 2, 2);
}));

test('each call has its own time limit', () => {
  let late;
  return serving({ 2: (socket) => (late = socket), 4: (socket, n) => setTimeout(answer, 300, socket, n) }, async (client, service) => {
    await client.incr('orders');
    await assert.rejects(client.extend('a-token', 'a-lease', 1, 0.1), UnknownOutcome);
    late.write(whole(2));
    assert.equal(await client.incr('orders'), 3);
    assert.equal(await client.incr('orders'), 4);
    counts(service, 4, 2);
  });
});
