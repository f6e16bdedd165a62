// What runOnce refuses before anything is sent.

import assert from 'node:assert/strict';
import test from 'node:test';

import { Client, runOnce } from 'coatcheck';

import { closedPort } from '../testing/script.mjs';

test('an option in the wrong place is a TypeError, and not without effect', async () => {
  const client = new Client(`http://127.0.0.1:${await closedPort()}`);
  const work = () => assert.fail('the work ran');
  for (const [token, options, named] of [
    [{ key: 'k', resolve() {} }, {}, /resolve/],
    [{ key: 'k', lease: 5 }, {}, /lease/],
    ['a-token', { retention: 5 }, /retention/],
  ]) {
    await assert.rejects(runOnce(client, token, 'f', work, options), (error) => error instanceof TypeError && named.test(error.message));
  }
});
