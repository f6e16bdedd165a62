// The tool that charges.

import { appendFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';

import { Client, CoatcheckError, NotRecorded, Unavailable, fingerprint, runOnce } from 'coatcheck';

export class Charges {
  static tool = {
    name: 'charge',
    title: 'Charge an order',
    description: 'Charges the customer of an order. Calling it again with the same arguments is safe: it charges once in a run, and returns the same payment.',
    inputSchema: {
      type: 'object',
      properties: {
        order: { type: 'string', description: 'the number of the order', minLength: 1, maxLength: 100 },
        cents: { type: 'integer', description: 'the amount in euro cents', minimum: 1 },
      },
      required: ['order', 'cents'],
      additionalProperties: false,
    },
    annotations: { readOnlyHint: false, idempotentHint: true },
  };

  #client;
  #run;
  #ledger;
  #lease;

  constructor({ server, key, run, ledger, lease }) {
    this.#client = new Client(server, undefined, key);
    this.#run = run;
    this.#ledger = ledger;
    this.#lease = lease;
  }

  /** Charges once for these arguments in this run. The result is that of tools/call. */
  async call(given) {
    const wrong = faultOf(given);
    if (wrong) return failed(`Nothing was charged: ${wrong}.`);
    const { order, cents } = given;
    // the arguments as the tool understands them: neither their order nor their spelling counts
    const key = fingerprint(this.#run, Charges.tool.name, order, String(cents));
    const work = (attempt) => this.#charge(attempt, order, cents);
    for (;;) {
      try {
        const { answer } = await runOnce(this.#client, { key, scope: 'agent' }, key, work, { lease: this.#lease });
        return charged(order, answer);
      } catch (error) {
        if (error.code !== 'idempotency-in-progress') return this.#notCharged(order, error);
        await sleep(Math.min(error.retryAfter ?? 1, 5) * 1000); // another call has it: its answer is ours
      }
    }
  }

  /**
   * The effect: a line in the ledger. A real one would ask a payment provider, and give it the
   * operation's name as its reference, by which the charge can be found there.
   */
  async #charge(attempt, order, cents) {
    await sleep(2);
    attempt.check();
    const payment = `pay_${attempt.operation.slice(0, 12)}`;
    await appendFile(this.#ledger, `${JSON.stringify({ operation: attempt.operation, run: this.#run, order, cents, payment })}\n`);
    await sleep(2);
    return { order, cents, payment };
  }

  /** What to tell the model of a failure; what the operator has to know goes to stderr. */
  #notCharged(order, error) {
    if (error instanceof NotRecorded) return charged(order, error.answer);
    if (error.code === 'idempotency-outcome-unknown') {
      console.error(`order ${order}: ${error.operation} is in doubt. Look it up in ${this.#ledger}, then: `
        + `coatcheck operation settle ${error.operation} --completed, or --not-begun`);
      return failed(`Whether order ${order} was charged is not known. Do not charge it in another way: a person has to look. Call again when that is settled.`, { operation: error.operation });
    }
    if (error instanceof Unavailable) return failed(`Order ${order} was not charged: ${error.message}. Call again later.`);
    console.error(`order ${order}:`, error);
    if (error instanceof CoatcheckError) return failed(`Order ${order} may not be charged yet: ${error.message}. Call again with the same arguments to know.`);
    return failed(`Order ${order} may be charged, or not. Call again with the same arguments to know.`);
  }
}

/** What is wrong with arguments; undefined for good ones. */
function faultOf(given) {
  const { order, cents, ...more } = Object(given);
  if (typeof order !== 'string' || order.length < 1 || order.length > 100 || /[\ud800-\udfff]/u.test(order)) return 'order is a text of 1 to 100 characters';
  if (!Number.isSafeInteger(cents) || cents < 1) return 'cents is a whole number from 1 on';
  if (Object.keys(more).length > 0) return `${Object.keys(more)[0]} is no argument of this tool`;
  return undefined;
}

const text = (said, structuredContent) => ({ content: [{ type: 'text', text: said }], ...(structuredContent && { structuredContent }) });

const failed = (said, facts) => ({ ...text(said, facts), isError: true });

/** The result of a charge, now or before; of one that a person has settled there is no payment. */
function charged(order, { body }) {
  if (body.length === 0) return text(`Order ${order} was charged.`);
  return text(body.toString(), JSON.parse(body));
}
