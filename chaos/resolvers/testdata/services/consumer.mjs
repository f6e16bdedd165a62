// A consumer of a table of jobs, until it is killed. Each job is paid once, under the job's id,
// with the table of operations of docs/effects.md. SERVICE is coatcheck's URL, and PACKAGE its
// client.
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';

const { Client, NOT_BEGUN, Response, fingerprint, runOnce } = await import(process.env.PACKAGE);
const recipe = JSON.parse(readFileSync(process.env.RECIPE, 'utf8'));
const client = new Client(process.env.SERVICE);
const database = new pg.Client(); // PGHOST and so on say where
await database.connect();

const run = (statement, values) => database.query(statement.sql, statement.args.map((name) => values[name]));

const paymentOf = (job) => async (attempt) => {
  await database.query('INSERT INTO begun (pid) VALUES ($1)', [process.pid]);
  await sleep(Math.random() * 50);
  const payment = randomBytes(8).toString('hex');
  const answer = `paid ${job} ${payment}`;
  const { operation, fence } = attempt;
  let changed;
  for (const statement of recipe.effect.slice(0, -1)) changed = (await run(statement, { operation, fence, answer })).rowCount;
  if (changed === 0) {
    await database.query('ROLLBACK');
    const former = (await run(recipe.resolver.at(-2), { operation })).rows[0].answer;
    if (former !== null) return former;
    throw new Error('the operation is closed for this attempt');
  }
  await database.query('INSERT INTO payments (id, client_key) VALUES ($1, $2)', [payment, job]);
  await sleep(Math.random() * 20);
  await run(recipe.effect.at(-1), {});
  await sleep(Math.random() * 50);
  return answer;
};

async function resolve(operation, fence) {
  let answer;
  for (const statement of recipe.resolver) {
    const { rows } = await run(statement, { operation, fence });
    if (rows.length > 0) ({ answer } = rows[0]);
  }
  return answer === null ? NOT_BEGUN : new Response(answer);
}

for (;;) {
  const { rows } = await database.query('SELECT id FROM jobs WHERE NOT done ORDER BY random() LIMIT 1');
  if (rows.length === 0) {
    await sleep(50);
    continue;
  }
  const [{ id }] = rows;
  let done;
  try {
    done = await runOnce(client, { key: id, scope: 'jobs' }, fingerprint(id), paymentOf(id), { lease: 1, resolve });
  } catch { // the job is still there
    await sleep(50);
    continue;
  }
  await database.query('INSERT INTO told (client_key, answer) VALUES ($1, $2)', [id, done.answer.body.toString()]);
  await database.query('UPDATE jobs SET done = true WHERE id = $1', [id]);
}
