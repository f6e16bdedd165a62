// What becomes of an operation by what its work is and returns: node work.mjs PACKAGE URL GROUP.
// Each line names a work, what runOnce returns or throws, and what a repeat of its operation gets.

import { Blob } from 'node:buffer';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';

const [, , home, url, group] = process.argv;
const { Client, CoatcheckError, Response: OurResponse, runOnce } = await import(home);
const client = new Client(url);

const circular = [];
circular.push(circular);
const pay = async () => 'paid';
function* yields() {
  yield 'paid';
}
async function* yieldsAtTimes() {
  yield 'paid';
}

const noData = {
  'map of async': () => ['order'].map(pay),
  'a generator': () => yields(),
  'an asynchronous generator': () => yieldsAtTimes(),
  'an iterator': () => ['paid'].values(),
  'a function': () => pay,
  'a Response of fetch': () => new Response('paid'),
  'a stream': () => Readable.from(['paid']),
  'a stream of the web': () => new Blob(['paid']).stream(),
  'a Map': () => new Map([['paid', true]]),
  'a Set': () => new Set(['paid']),
  'an Error': () => new Error('declined'),
  'an Error with a code': () => Object.assign(new Error('declined'), { code: 'EPAY' }),
  'a Blob': () => new Blob(['paid']),
  'a symbol': () => Symbol('paid'),
  'a BigInt': () => 42n,
  NaN: () => NaN,
  Infinity: () => Infinity,
  'an object of a class': () => new (class Payment { cents = 42; })(),
  'an array within itself': () => circular,
};
const places = {
  '': (result) => result,
  ' in an array': (result) => [result],
  ' in an object': (result) => ({ paid: result }),
  ' in a Response': (result) => new OurResponse(result, { status: 201 }),
};
const groups = {
  later: { 'function*': yields, 'async function*': yieldsAtTimes, 'a method*': { *charge() { yield 'paid'; } }.charge },
  data: {
    'a status': () => ({ status: 'paid' }),
    'an object like a Response': () => ({ status: 201, headers: {}, body: 'paid' }),
  },
  responses: { 'a Response': async () => new OurResponse({ paid: true }, { status: 201 }) },
  'no data': Object.fromEntries(Object.entries(noData).flatMap(([kind, made]) => Object.entries(places).map(([place, put]) => [kind + place, () => put(made())]))),
};

async function told(key, work, lease) {
  try {
    const { answer, replayed } = await runOnce(client, { key }, 'f', work, { lease });
    return `${answer.status} ${answer.body}${replayed ? ' again' : ''}`;
  } catch (error) {
    return error instanceof CoatcheckError ? error.code : error.constructor.name;
  }
}

for (const [name, work] of Object.entries(groups[group])) {
  const first = await told(name, work, 0.1);
  let repeat;
  while ((repeat = await told(name, () => 'ran', 30)) === 'idempotency-in-progress') await sleep(50);
  console.log(`${name}: ${first}, then ${repeat}`);
}
