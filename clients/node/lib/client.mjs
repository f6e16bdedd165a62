// The client: how a request is made. What can be asked for is in the file of each subject.

import { Unavailable, UnknownOutcome, object, problem } from './errors.mjs';
import { Connections } from './exchange.mjs';
import { counters } from './counters.mjs';
import { ids } from './ids.mjs';
import { disposable } from './lease.mjs';
import { limits } from './limits.mjs';
import { locks } from './locks.mjs';
import { operations } from './operations.mjs';
import { tokens } from './tokens.mjs';
import { workers } from './workers.mjs';
import { ask } from './ask.mjs';

/** A text as a header has it (RFC 8941). */
function quoted(text) {
  if (!/^[ -~]+$/.test(text)) throw new TypeError('a request id has printable ASCII characters only');
  return `"${text.replace(/["\\]/g, '\\$&')}"`;
}

/** What no error may hold: the longest first, which can have another one in it. */
function secretsOf(key, path, lease = '') {
  const [, token = ''] = /^\/token\/([^/]+)/.exec(path) ?? [];
  return [key, lease, token, decodeURIComponent(token)].sort((a, b) => b.length - a.length);
}

/** Reports whether an answer is a whole one. One with members of other types is none. */
function holds(whole, answer) {
  try {
    return whole(answer);
  } catch {
    return false;
  }
}

/**
 * Asks one service. Each request has a connection to itself, which is then kept for the next, and
 * is sent once. Where Symbol.asyncDispose is there, `await using` closes it.
 */
export class Client {
  #url;
  #connections;
  #timeout;
  #key;

  /**
   * @param {string} url
   * @param {number} [timeout] seconds that one request may take
   * @param {string} [key] an API key, for a service that asks for one; use https then
   */
  constructor(url, timeout = 10, key = '') {
    this.#url = new URL(url);
    if (!['http:', 'https:'].includes(this.#url.protocol)) throw new TypeError("the service's URL is http://host:port or https://host");
    if (!/^[!-~]*$/.test(key)) throw new TypeError('the API key has characters that no key has');
    this.#connections = new Connections(this.#url);
    this.#timeout = timeout;
    this.#key = key;
  }

  /**
   * Ends the connections that are kept. A call under way goes on, and a later one opens a
   * connection, which is not kept. A program ends without it.
   */
  close() {
    this.#connections.close();
  }

  /**
   * Sends one request, once, and returns the JSON of its answer, null where it has none. whole
   * tells an answer of the service from that of a server in between with the same status. A GET
   * changes nothing: where no answer comes to it, nothing was done.
   */
  async [ask](method, path, whole, { message, lease, repeat, wait: longer = 0, timeout = this.#timeout + longer } = {}) {
    const body = message === undefined ? '' : JSON.stringify(message);
    const headers = { Accept: 'application/json' };
    if (method !== 'GET') Object.assign(headers, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) });
    if (this.#key) headers.Authorization = `Bearer ${this.#key}`;
    if (lease !== undefined) headers['Lease-Token'] = lease; // never in the path: paths are logged
    if (repeat !== undefined) headers['Idempotency-Key'] = quoted(repeat);
    try {
      const { status, type, wait, text } = await this.#connections.send(method, this.#url.pathname.replace(/\/$/, '') + path, headers, body, timeout * 1000);
      if (![200, 201, 204].includes(status)) throw problem(status, type, wait, text, secretsOf(this.#key, path, lease));
      const answer = status === 204 ? null : object(text);
      if (!holds(whole, answer)) throw new UnknownOutcome('unknown-outcome', 'the answer cannot be read', { status });
      return answer;
    } catch (error) {
      if (method !== 'GET' || !(error instanceof UnknownOutcome)) throw error;
      throw new Unavailable(error.code === 'unknown-outcome' ? 'unavailable' : error.code, error.detail, error);
    }
  }
}

disposable(Client, (client) => client.close());

for (const subject of [tokens, operations, counters, limits, locks, workers, ids]) {
  for (const [name, value] of Object.entries(subject)) {
    Object.defineProperty(Client.prototype, name, { value, writable: true, configurable: true });
  }
}
