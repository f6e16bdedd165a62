// Prints Snowflake ids that no other process makes, one a line: node ids.mjs --server URL --pool
// orders --n 10
//
// It stamps them itself, with a worker id that it leases. Ctrl-C and SIGTERM end it in order: the
// worker id is given back. Exit codes: 0 done, 1 failed, 2 wrong usage, 75 try again later, among
// others when the lease could not be kept.

import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';

import { Client, CoatcheckError, NoLease, Unavailable, UnknownOutcome } from 'coatcheck';

const TRY_LATER = 75;

async function main(options) {
  const stopped = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => stopped.abort());
  process.stdout.on('error', () => stopped.abort()); // the reader has had enough
  let worker;
  try {
    worker = await lease(options);
  } catch (error) {
    if (!(error instanceof CoatcheckError)) throw error;
    console.error(error.message);
    return error instanceof Unavailable || error instanceof UnknownOutcome ? TRY_LATER : 1;
  }
  console.error(`worker id ${worker.workerId}, fence ${worker.fence}`);
  let code = 0;
  try {
    await stamp(worker, options, stopped.signal);
  } catch (error) {
    if (!(error instanceof NoLease)) throw error;
    console.error(error.message);
    code = TRY_LATER;
  }
  await worker.release().catch((error) => console.error(`not given back, it ends with its window: ${error.message}`));
  return code;
}

/** Leases a worker id, and waits for one as long as --patience says. */
async function lease({ server, pool, identity, ttl, layout, patience }) {
  const client = new Client(server, undefined, process.env.COATCHECK_API_KEY);
  const until = performance.now() + patience * 1000;
  for (;;) {
    try {
      return await client.holdWorker(pool, { identity, ttl, layout });
    } catch (error) {
      if (!(error instanceof Unavailable || error instanceof UnknownOutcome)) throw error;
      const wait = Math.min(error.retryAfter ?? 1, 5); // not longer: another process may give one back
      if (performance.now() + wait * 1000 > until) throw error;
      await sleep(wait * 1000);
    }
  }
}

async function stamp(worker, { n, rate }, signal) {
  for (let made = 0; (n === 0 || made < n) && !signal.aborted; made++) {
    const room = process.stdout.write(`${await worker.nextId()}\n`);
    if (!room) await once(process.stdout, 'drain', { signal }).catch(() => {});
    if (rate) await sleep(1000 / rate, undefined, { signal }).catch(() => {});
  }
}

function options() {
  const { values } = parseArgs({
    options: {
      server: { type: 'string', default: process.env.COATCHECK_SERVER ?? 'http://127.0.0.1:8080' },
      pool: { type: 'string', default: 'default' }, // whose worker ids to use
      identity: { type: 'string' }, // a name of this process: it gets the worker id again that it had last, if that is free
      n: { type: 'string', default: '10' }, // how many ids; 0 = until it is ended
      rate: { type: 'string', default: '0' }, // ids in a second; 0 = as fast as it goes
      'ttl-ms': { type: 'string' }, // of a pool that is new: how long a window is
      layout: { type: 'string' }, // of a pool that is new: bits of timestamp/worker/sequence
      patience: { type: 'string', default: '0' }, // how many seconds to wait for a worker id
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  const ttl = values['ttl-ms'] === undefined ? undefined : Number(values['ttl-ms']) / 1000;
  const numbers = { n: Number(values.n), rate: Number(values.rate), patience: Number(values.patience), ttl };
  for (const [name, value] of Object.entries(numbers)) {
    if (value !== undefined && !(value >= 0)) throw new TypeError(`--${name} is a number`);
  }
  return { ...values, ...numbers };
}

const USAGE = `Prints Snowflake ids that no other process makes, one a line.

  node ids.mjs [--server URL] [--pool POOL] [--identity NAME] [--n N] [--rate N] [--patience SECONDS]
               [--ttl-ms N] [--layout BITS]`;

/** The options, or the exit code of a command line without any. */
function read() {
  try {
    const given = options();
    if (!given.help) return given;
    console.log(USAGE);
    return 0;
  } catch (error) {
    console.error(`${error.message}\n\n${USAGE}`);
    return 2;
  }
}

const given = read();
process.exitCode = typeof given === 'number' ? given : await main(given);
