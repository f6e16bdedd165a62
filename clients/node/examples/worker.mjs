// Charges an order once, however often it is asked to: node worker.mjs --server URL --token TOKEN
// --order 42 --ledger FILE
//
// It prints the answer as one line of JSON, with "replayed": true if it was recorded before. A
// failure is a line with "error". Exit codes: 0 done, 1 failed, 2 wrong usage, 75 try again later.

import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';

import { Client, CoatcheckError, NotRecorded, Response, Unavailable, fingerprint, runOnce } from 'coatcheck';

const TRY_LATER = 75;

async function main(options) {
  const client = new Client(options.server, undefined, process.env.COATCHECK_API_KEY);
  const print = fingerprint('charge', options.order, options.payload);
  try {
    const terms = { lease: Number(options['lease-ms']) / 1000, policy: options.policy };
    const { answer, replayed } = await runOnce(client, options.token, print, (attempt) => charge(options, attempt), terms);
    console.log(JSON.stringify({ ...JSON.parse(answer.body), status: answer.status, replayed }));
    return 0;
  } catch (error) {
    if (error instanceof NotRecorded) return fail(error.cause, { recorded: false });
    if (error instanceof CoatcheckError) return fail(error);
    throw error;
  }
}

/**
 * The work: one line in the ledger. A real one would ask a payment provider, and give it the token
 * as well, if it takes one.
 */
async function charge(options, attempt) {
  if (options['crash-after-claim']) process.exit(70); // as a power cut would
  while (options['wait-for'] && !existsSync(options['wait-for'])) {
    attempt.check();
    await sleep(20);
  }
  attempt.check();
  const payment = { order: options.order, payload: options.payload, payment: 'pay_' + randomBytes(8).toString('hex'), fence: attempt.fence };
  const ledger = await open(options.ledger, 'a', 0o600);
  try {
    // one write: lines of several processes do not mix
    await ledger.write(JSON.stringify(payment) + '\n');
    await ledger.sync();
  } finally {
    await ledger.close();
  }
  return new Response(payment, { status: 201 });
}

function fail(error, more = {}) {
  console.log(JSON.stringify({ error: error.code, detail: error.message, retry_after: error.retryAfter ?? null, ...more }));
  return error instanceof Unavailable || error.code === 'idempotency-in-progress' ? TRY_LATER : 1;
}

function options() {
  const { values } = parseArgs({
    args: glued(process.argv.slice(2)),
    options: {
      server: { type: 'string', default: process.env.COATCHECK_SERVER ?? 'http://127.0.0.1:8080' },
      token: { type: 'string' },
      order: { type: 'string' },
      ledger: { type: 'string', default: 'ledger.jsonl' },
      payload: { type: 'string', default: '12.99 EUR' }, // what else makes the request the same
      policy: { type: 'string', default: 'hold' }, // or takeover
      'lease-ms': { type: 'string', default: '30000' }, // how long the worker may be silent
      // for trying it out: end at once, with the token claimed
      'crash-after-claim': { type: 'boolean', default: false },
      'wait-for': { type: 'string' }, // for trying it out: do not charge before this file exists
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) return undefined;
  if (!values.token || !values.order) throw new TypeError('--token and --order are needed');
  return values;
}

/**
 * The command line with --token=TOKEN for --token TOKEN: a token may begin with a dash, and
 * parseArgs would take it for a flag.
 */
function glued(words) {
  const at = words.indexOf('--token');
  return at < 0 || at + 1 === words.length ? words : [...words.slice(0, at), `--token=${words[at + 1]}`, ...words.slice(at + 2)];
}

const USAGE = `Charges an order once, however often it is asked to.

  node worker.mjs --token TOKEN --order ORDER [--server URL] [--ledger FILE] [--payload TEXT]
                  [--policy hold|takeover] [--lease-ms N] [--crash-after-claim] [--wait-for FILE]`;

/** The options, or the exit code of a command line without any. */
function read() {
  try {
    const read = options();
    if (read) return read;
    console.log(USAGE);
    return 0;
  } catch (error) {
    console.error(`${error.message}\n\n${USAGE}`);
    return 2;
  }
}

const given = read();
process.exitCode = typeof given === 'number' ? given : await main(given);
