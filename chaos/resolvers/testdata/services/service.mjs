// Payments on Node and PostgreSQL, with the table of operations of docs/effects.md: a primary and
// three workers. RECIPE is a file with the statements of that page, and LIMIT_MS the time after
// which the gateway gives up.
import cluster from 'node:cluster';
import { randomBytes, randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';

const recipe = JSON.parse(readFileSync(process.env.RECIPE, 'utf8'));
const limit = Number(process.env.LIMIT_MS);

const run = (client, statement, values) => client.query(statement.sql, statement.args.map((name) => values[name]));

/** One payment of fifteen takes about as long as the gateway waits, and a lone one half of it. */
function delay(key) {
  if (key.startsWith('lone')) return limit / 2;
  return randomInt(15) > 0 ? Math.random() * 60 : limit + Math.random() * 200 - 100;
}

async function pay(client, operation, fence, key) {
  const payment = randomBytes(8).toString('hex');
  const answer = `paid ${key} ${payment}`;
  try {
    let changed;
    for (const statement of recipe.effect.slice(0, -1)) changed = (await run(client, statement, { operation, fence, answer })).rowCount;
    if (changed === 0) {
      await client.query('ROLLBACK');
      const former = (await run(client, recipe.resolver.at(-2), { operation })).rows[0].answer;
      if (former !== null) return [201, { 'content-type': 'text/plain' }, former];
      return [409, { 'content-type': 'application/problem+json' }, '{"code": "idempotency-superseded"}'];
    }
    await client.query('INSERT INTO payments (id, client_key) VALUES ($1, $2)', [payment, key]);
    await sleep(Math.random() * 10);
  } catch (error) {
    error.rolledBack = true; // by the connection's end
    throw error;
  }
  await run(client, recipe.effect.at(-1), {});
  await sleep(Math.random() * 40);
  return [201, { 'content-type': 'text/plain' }, answer];
}

async function close(client, operation, fence) {
  let answer;
  for (const statement of recipe.resolver) {
    const { rows } = await run(client, statement, { operation, fence });
    if (rows.length > 0) ({ answer } = rows[0]);
  }
  if (answer === null) return [204, { 'idempotency-resolution': 'not-begun' }, ''];
  return [201, { 'content-type': 'text/plain', 'idempotency-resolution': 'completed' }, answer];
}

/** Does something with a connection of the pool, which is closed if that fails. */
async function connected(pool, action) {
  let client;
  try {
    client = await pool.connect(); // PGHOST and so on say where
  } catch (error) {
    error.rolledBack = true;
    throw error;
  }
  try {
    const result = await action(client);
    client.release();
    return result;
  } catch (error) {
    client.release(true);
    throw error;
  }
}

function serve() {
  const pool = new pg.Pool({ max: 8 });
  pool.on('error', () => {}); // of a connection that nobody uses
  const server = createServer(async (request, answer) => {
    let body = '';
    for await (const piece of request) body += piece;
    const operation = request.headers['idempotency-operation'] ?? '';
    const fence = request.headers['idempotency-fence'];
    let said = [404, {}, ''];
    try {
      if (request.method === 'POST' && request.url === '/payments') {
        await sleep(delay(body));
        said = await connected(pool, (client) => pay(client, operation, fence, body));
      } else if (request.method === 'PUT' && request.url === `/operations/${operation}` && request.headers['idempotency-resolve'] === 'true') {
        said = await connected(pool, (client) => close(client, operation, fence));
      }
    } catch (error) {
      said = [503, error.rolledBack && request.method === 'POST' ? { 'idempotency-not-begun': 'true' } : {}, String(error)];
    }
    answer.writeHead(said[0], said[1]).end(said[2]);
  });
  server.keepAliveTimeout = 60_000;
  server.listen(Number(process.env.PORT), '127.0.0.1');
}

if (cluster.isPrimary) {
  for (let n = 0; n < 3; n++) cluster.fork();
  cluster.on('exit', () => cluster.fork());
} else {
  serve();
}
