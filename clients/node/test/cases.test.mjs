// What the clients do alike: every case of clients/cases.json, whose head explains it.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { Readable } from 'node:stream';
import test from 'node:test';

import * as coatcheck from 'coatcheck';

import { closedPort, scripted } from '../testing/script.mjs';

const { cases } = JSON.parse(readFileSync(new URL('../../cases.json', import.meta.url), 'utf8'));

/** The failure of the work itself. */
class Work extends Error {}

const KINDS = { ...coatcheck, Error: coatcheck.CoatcheckError, TimedOut: coatcheck.UnknownOutcome, Work };

const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
const spelled = (named) => Object.fromEntries(Object.entries(named).map(([name, value]) => [camel(name), value]));

/** How the arguments of a call stand in this client; of others they are as the table has them. */
const order = {
  add: ({ key, ...terms }) => [key, terms],
  setCounter: ({ key, value, ...terms }) => [key, value, terms],
  takeLimit: ({ name, ...rate }) => [name, rate],
  acquireLock: ({ name, ...terms }) => [name, terms],
  holdWorker: ({ pool, ...terms }) => [pool, terms],
  issue: (terms) => [terms],
  claim: ({ token, fingerprint, lease, policy, leaseToken }) => [token, fingerprint, lease, policy, leaseToken],
  claimKey: ({ key, scope, retention, fingerprint, lease, policy, leaseToken }) => [{ key, scope, retention }, fingerprint, lease, policy, leaseToken],
  complete: ({ token, lease, ...answer }) => [token, lease, answer],
  completeOperation: ({ operation, lease, ...answer }) => [operation, lease, answer],
  extend: ({ token, lease, span }) => [token, lease, span],
  extendOperation: ({ operation, lease, span }) => [operation, lease, span],
  release: ({ token, lease }) => [token, lease],
  releaseOperation: ({ operation, lease }) => [operation, lease],
  settle: ({ operation, outcome, reason, ...answer }) => [operation, outcome, { reason, answer: Object.keys(answer).length ? answer : undefined }],
  snowflakeIds: ({ pool, n }) => [pool, n],
  segmentIds: ({ tag, n }) => [tag, n],
  typeids: ({ prefix, n }) => [prefix, n],
  uuids: ({ n, version }) => [n, version],
};

function call(client, { call: name, arguments: given, work }, ran) {
  const [method, named] = [camel(name), spelled(given)];
  if (method !== 'runOnce') return client[method](...(order[method]?.(named) ?? Object.values(named)));
  const { token, fingerprint, ...key } = named;
  const once = (attempt) => {
    ran();
    if (work.released) attempt.release();
    if (work.refused) throw new coatcheck.CoatcheckError(work.refused, '');
    if (work.raises) throw new Work();
    if (work.makes) return made[work.makes]();
    return work.response ? new coatcheck.Response(work.response.body, work.response) : work.returns;
  };
  const yields = { once: function* (attempt) { yield once(attempt); }, 'at times': async function* (attempt) { yield once(attempt); } };
  return coatcheck.runOnce(client, token ?? key, fingerprint, yields[work.yields] ?? once);
}

/** What the table knows by name only. */
const made = {
  'work in a list': () => [Promise.resolve('paid')],
  'an iterator': () => ['paid'].values(),
  'a generator': () => (function* () { yield 'paid'; })(),
  'a function': () => () => 'paid',
  'a stream': () => Readable.from(['paid']),
  'an error': () => new Error('declined'),
  'a set': () => new Set(['paid']),
  'an object of a class': () => new (class {})(),
  'an object of a class in a Response': () => new coatcheck.Response(new (class {})()),
  'NaN': () => ({ cents: NaN }),
  'a list within itself': () => {
    const list = [];
    list.push(list);
    return list;
  },
};

/** A result as the table writes it: texts for bytes and big integers. */
function plain(value) {
  if (typeof value === 'bigint' || Buffer.isBuffer(value)) return String(value);
  if (Array.isArray(value)) return value.map(plain);
  return value;
}

function has(got, wanted, what) {
  if (wanted === null || typeof wanted !== 'object' || Array.isArray(wanted)) {
    return assert.deepEqual(plain(got) ?? null, wanted, what);
  }
  for (const [name, value] of Object.entries(wanted)) has(got[camel(name)] ?? got[name], value, `${what}: ${name}`);
}

async function expected(wanted, run) {
  if (!wanted.raises) {
    const result = await run();
    has(result, wanted.returns ?? null, 'the result');
    return result;
  }
  const error = await run().then((result) => assert.fail(`got ${result}, want ${JSON.stringify(wanted.raises)}`), (error) => error);
  failed(error, wanted.raises);
  return undefined;
}

function failed(error, { kind, cause, ...facts }) {
  if (kind === 'Invalid') return assert.ok(error instanceof TypeError || error instanceof RangeError, String(error));
  assert.equal(error.constructor, KINDS[kind], String(error));
  assert.doesNotMatch(String(error), /secret/);
  if (cause) failed(error.cause, cause);
  has(error, facts, 'the error');
}

const withoutEmpty = (requests) => requests.map(({ query = {}, headers = {}, body = {}, ...one }) => ({
  ...one, query, headers, body: Object.fromEntries(Object.entries(body).filter(([, value]) => value !== '')),
}));

for (const one of cases) {
  test(one.name, async () => {
    let runs = 0;
    const { wanted, asked } = await scripted(one.replies, one.requests, async (port) => {
      const at = one.connection === 'refused' ? await closedPort() : port;
      const client = new coatcheck.Client(`http://127.0.0.1:${at}${one.path ?? ''}`, one.timeout, one.key);
      const result = await expected(one, async () => call(client, one, () => runs++));
      for (const step of one.then ?? []) await expected(step, async () => result[step.call]());
    });
    assert.deepEqual(withoutEmpty(asked), withoutEmpty(wanted), 'the requests');
    assert.equal(runs, one.runs ?? 0, 'how often the work ran');
  });
}
