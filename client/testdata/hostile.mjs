// Makes the calls of hostile.json at a server that lies or stalls:
// node hostile.mjs URL TABLE.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { inspect } from 'node:util';

import * as coatcheck from '../../clients/node/index.mjs';

const [url, table] = process.argv.slice(2);
const { secrets, rows } = JSON.parse(readFileSync(table, 'utf8'));

const calls = {
  incr: (client) => client.incr('orders'),
  counter: (client) => client.counter('orders'),
  extend: (client) => client.extend(secrets.token, secrets.lease, 1),
  claim: (client) => client.claim(secrets.token, 'f', 1, 'hold', secrets.lease),
  take_limit: (client) => client.takeLimit('mail', { rate: 2, per: 60 }),
};

const kinds = { ...coatcheck, Error: coatcheck.CoatcheckError };

for (const [place, { name, call, stays, again, gets }] of rows.entries()) {
  const client = new coatcheck.Client(`${url}/${place}`, stays || again ? 0.3 : 60, secrets.key);
  const { returned, error } = await calls[call](client).then((returned) => ({ returned }), (error) => ({ error }));
  if (gets.kind === undefined) {
    assert.equal(returned, gets.returns, `${name}: ${error}`);
    continue;
  }
  assert.equal(error?.constructor, kinds[gets.kind], `${name}: ${error?.stack ?? returned}`);
  for (const fact of ['code', 'status']) assert.equal(error[fact], gets[fact] ?? error[fact], `${name}: ${fact}`);
  if ('retry_after' in gets) assert.equal(error.retryAfter ?? null, gets.retry_after, name);
  assert.ok(!/[\p{C}]/u.test(error.message) && error.message.length < 2000, `${name}: ${JSON.stringify(error.message)}`);
  for (const text of [String(error), error.stack, JSON.stringify(error), inspect(error, { depth: Infinity, showHidden: true })]) {
    for (const secret of Object.values(secrets)) assert.ok(!text.includes(secret), `${name}: ${text}`);
    assert.doesNotMatch(text, /\\u001[bB]|\\x1[bB]|(?!\n)\p{C}/u, name);
  }
}
console.log('ok');
