// A client of coatcheck's remote token protocol: one token, one start of the work, one answer.
//
// Node 18 or later, no packages. https://github.com/coatcheck/coatcheck/blob/main/docs/remote.md
// says what each answer and each lost answer means; this is that page as code.

import { createHash, randomBytes } from 'node:crypto';
import http from 'node:http';
import https from 'node:https';

const MOST = 16 << 20; // bytes of an answer that are read
// bytes from which on a body waits until the service accepts it: one that refuses it unread closes
// the connection, and its answer would be lost
const LARGE = 128 << 10;

/** What a call failed with. No text of it holds a token or a lease. */
export class CoatcheckError extends Error {
  /**
   * @param {string} code of docs/remote.md; "unavailable" and "unknown-outcome" where the service
   *   itself did not say one
   * @param {string} detail
   * @param {{status?: number, retryAfter?: number}} [facts] status of the HTTP answer, if one came;
   *   retryAfter in seconds, if known
   */
  constructor(code, detail, facts = {}) {
    super(`${code}: ${detail}`);
    this.code = code;
    this.status = facts.status;
    this.retryAfter = facts.retryAfter;
  }
}

/**
 * Nothing was done: no connection came about, or the service said that its store is not available.
 * Trying later is harmless.
 */
export class Unavailable extends CoatcheckError {}

/**
 * The request may or may not have been done: it was sent, and no answer of the service itself came
 * back.
 */
export class UnknownOutcome extends CoatcheckError {}

/** Another attempt has the claim: stop, and do not use what was done. */
export class Lost extends CoatcheckError {}

/**
 * The work is done, but its answer may not be recorded. The cause says why; answer is what the work
 * returned.
 */
export class NotRecorded extends Error {
  constructor(answer, cause) {
    super('the work is done, but its answer may not be recorded', { cause });
    this.answer = answer;
  }
}

/**
 * A digest of what makes a request the same: SHA-256 over the parts, each after its length. A part
 * is a string, or bytes in a Buffer or Uint8Array; of anything else two could look the same, and it
 * is a TypeError.
 */
export function fingerprint(...parts) {
  const digest = createHash('sha256');
  for (const part of parts) {
    if (!isText(part) && !(part instanceof Uint8Array)) {
      throw new TypeError('a part of a fingerprint is a string without lone surrogates, or a Buffer or Uint8Array: make it one, such as by JSON.stringify');
    }
    digest.update(`${Buffer.byteLength(part)}:`).update(part).update(',');
  }
  return digest.digest('base64url');
}

/** Reports whether a value is a string that UTF-8 can write: a lone surrogate becomes another. */
const isText = (value) => typeof value === 'string' && Buffer.from(value).toString() === value;

/** Asks one service. Each request has a connection of its own, and is sent once. */
export class Client {
  #url;
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
    this.#timeout = timeout;
    this.#key = key;
  }

  /**
   * Looks at a token and takes it: {outcome: "granted", lease, fence, …} or {outcome: "replay",
   * response: {…}}.
   *
   * owner is a secret of 16 to 128 characters, new for each attempt: repeating the claim with the
   * same one gets the same grant.
   */
  async claim(token, fingerprint, lease, policy = 'hold', owner = '') {
    const whole = (claimed) => (claimed?.outcome === 'granted' && claimed.lease && claimed.fence) || (claimed?.outcome === 'replay' && claimed.response);
    return this.#post(token, 'claim', whole, { fingerprint, lease_ms: millis(lease), policy, owner });
  }

  /**
   * Records the answer of the attempt that lease proves. Repeating it is harmless. notKept records
   * that there is one, without its body.
   */
  async complete(token, lease, { status = 200, headers = {}, body = '', notKept = false }) {
    const body_base64 = notKept ? '' : Buffer.from(body).toString('base64');
    await this.#post(token, 'complete', done, { status, headers, body_base64, body_not_kept: notKept }, lease);
  }

  /** The heartbeat: the lease ends that many seconds from now. Repeating it is harmless. */
  async extend(token, lease, span, timeout) {
    await this.#post(token, 'extend', (extended) => extended?.lease_until, { lease_ms: millis(span) }, lease, timeout);
  }

  /**
   * Gives a claim back. Only for an attempt that provably never began. Repeating it is harmless.
   */
  async release(token, lease) {
    await this.#post(token, 'release', done, undefined, lease);
  }

  /**
   * Sends one request, once, and returns the JSON of its answer, null where it has none. node:http
   * follows no redirect, and with no agent repeats nothing. whole tells an answer of the service
   * from that of a server in between with the same status.
   */
  async #post(token, verb, whole, message, lease, timeout = this.#timeout) {
    const body = message === undefined ? '' : JSON.stringify(message);
    const headers = { 'Content-Type': 'application/json', Accept: 'application/json', 'Content-Length': Buffer.byteLength(body) };
    if (this.#key) headers.Authorization = `Bearer ${this.#key}`;
    if (lease !== undefined) headers['Lease-Token'] = lease; // never in the path: paths are logged
    const path = `${this.#url.pathname.replace(/\/$/, '')}/token/${encodeURIComponent(token)}/${verb}`;
    const { status, type, wait, text } = await send(this.#url, path, headers, body, timeout * 1000);
    if (status !== 200 && status !== 204) throw problem(status, type, wait, text);
    const answer = status === 204 ? null : object(text);
    if (!whole(answer)) throw new UnknownOutcome('unknown-outcome', 'the answer cannot be read', { status });
    return answer;
  }
}

/**
 * One exchange. Before a connection is there nothing can have been done; after that it is not known
 * unless an answer comes.
 */
function send(url, path, headers, body, timeout) {
  const secure = url.protocol === 'https:';
  return new Promise((resolve, reject) => {
    let connected = false;
    const fail = (error) => {
      const reason = error.code ?? error.name;
      reject(connected ? new UnknownOutcome('unknown-outcome', `no answer: ${reason}`) : new Unavailable('unavailable', `no connection: ${reason}`));
    };
    const options = { method: 'POST', path, headers, agent: false, signal: AbortSignal.timeout(Math.ceil(timeout)) };
    if (headers['Content-Length'] > LARGE) headers.Expect = '100-continue';
    const request = (secure ? https : http).request(url, options);
    request.on('socket', (socket) => socket.once(secure ? 'secureConnect' : 'connect', () => (connected = true)));
    request.on('error', fail);
    if (headers.Expect) {
      const sendBody = () => request.writableEnded || request.end(body);
      const unasked = setTimeout(sendBody, 1000); // not every proxy answers that
      request.on('continue', sendBody);
      for (const event of ['continue', 'response', 'close']) request.on(event, () => clearTimeout(unasked));
    } else {
      request.end(body);
    }
    request.on('response', (response) => {
      const parts = [];
      let size = 0;
      response.on('error', fail);
      response.on('data', (part) => {
        size += part.length;
        if (size > MOST) response.destroy(new Error('too long'));
        parts.push(part);
      });
      response.on('end', () => {
        const { 'content-type': type = '', 'retry-after': wait } = response.headers;
        resolve({ status: response.statusCode, type, wait, text: Buffer.concat(parts).toString() });
        if (!request.writableEnded) request.destroy(); // its body is not wanted
      });
    });
  });
}

/** Reports whether an answer is one without a body, as complete and release get it. */
const done = (answer) => answer === null;

const millis = (seconds) => Math.ceil(seconds * 1000);

function object(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === 'object' ? value : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The error that an answer is. Only the service's own word says that nothing was done where the
 * status is 500 or more.
 */
function problem(status, type, wait, text) {
  const facts = { status, retryAfter: /^\d+$/.test(wait ?? '') ? Number(wait) : undefined };
  const said = type.split(';')[0].trim() === 'application/problem+json' && status >= 400 ? object(text) : undefined;
  const refused = status >= 400 && status < 500;
  if (typeof said?.code !== 'string') {
    const Kind = refused ? CoatcheckError : UnknownOutcome;
    return new Kind(refused ? 'refused' : 'unknown-outcome', `status ${status} from something that is not the service`, facts);
  }
  const kinds = {
    'idempotency-superseded': Lost,
    'store-unavailable': Unavailable,
    'store-unsuitable': CoatcheckError, // nothing was done, and asking again does not help
    'too-many-requests': Unavailable,
    overloaded: Unavailable,
  };
  const Kind = kinds[said.code] ?? (refused ? CoatcheckError : UnknownOutcome);
  return new Kind(said.code, said.detail ?? said.title ?? '', facts);
}

/** What the work may know of its claim. */
export class Attempt {
  #lost = new AbortController();
  #deadline; // by performance.now(); undefined under hold, where no one else can begin
  #timer;

  constructor(fence, number) {
    // larger than that of every attempt before it: give it to what must refuse an older attempt
    this.fence = fence;
    this.number = number;
    // set it if the work provably had no effect: the claim is given back, and nothing is recorded
    this.notBegun = false;
  }

  /** Ends when the claim is another's, or may be. */
  get signal() {
    return this.#lost.signal;
  }

  /** Call this before every effect: it throws Lost when the claim is another's, or may be. */
  check() {
    if (this.#deadline !== undefined && performance.now() >= this.#deadline) this.lose();
    if (this.signal.aborted) throw this.signal.reason;
  }

  lose(reason = new Lost('idempotency-superseded', 'another attempt has the claim, or may have')) {
    this.#lost.abort(reason);
  }

  /** Trusts the claim until a moment by performance.now(); undefined ends the watch. */
  trustUntil(deadline) {
    clearTimeout(this.#timer);
    this.#deadline = deadline;
    if (deadline !== undefined) this.#timer = setTimeout(() => this.lose(), Math.max(0, deadline - performance.now()));
  }
}

/**
 * Runs work(attempt) under a token, and returns {answer, replayed}, where the answer is {status,
 * headers, body, notKept} with the body as a Buffer.
 *
 * work returns {status, headers, body}, or its result: bytes and strings as they are, nothing as an
 * empty body, any other value as JSON. If it throws, the operation may have happened: nothing is
 * given back, the lease lapses, and then the token is in doubt, under takeover free for the next.
 * Errors: those of Client.claim (the work did not run), what work threw, Lost (do not use what was
 * done), NotRecorded.
 *
 * The heartbeat runs in the same thread: work that blocks it for longer than the lease loses its
 * claim.
 */
export async function runOnce(client, token, fingerprint, work, { lease = 30, policy = 'hold' } = {}) {
  if (!isText(fingerprint) || fingerprint === '') throw new TypeError('the fingerprint is a string: see fingerprint()');
  if (typeof work !== 'function') throw new TypeError('the work is a function');
  // before the claim is sent: from here one lease is what this process trusts its claim for
  const claimedAt = performance.now();
  const claimed = await claimAgain(client, token, fingerprint, lease, policy);
  if (claimed.outcome === 'replay') {
    const { status, headers, body_base64, body_not_kept = false } = claimed.response;
    return { answer: { status, headers: headers ?? {}, body: Buffer.from(body_base64 ?? '', 'base64'), notKept: body_not_kept }, replayed: true };
  }
  const attempt = new Attempt(claimed.fence, claimed.attempt ?? 1);
  if (policy === 'takeover') attempt.trustUntil(claimedAt + lease * 1000);
  const stop = heartbeat(client, token, claimed.lease, attempt, lease, policy);
  let answer;
  try {
    answer = answerOf(await work(attempt));
  } finally {
    await stop();
    // If it cannot be given back, the token is in doubt when its lease has lapsed.
    if (attempt.notBegun) await settle(() => client.release(token, claimed.lease)).catch(() => {});
  }
  if (!attempt.notBegun) await record(client, token, claimed.lease, answer);
  return { answer, replayed: false };
}

/** The answer that a result of the work is. It never throws: the work is done. */
function answerOf(result) {
  const isAnswer = result !== null && typeof result === 'object' && Object.getPrototypeOf(result) === Object.prototype
    && Object.keys(result).length > 0 && Object.keys(result).every((name) => ['status', 'headers', 'body'].includes(name));
  const { status = 200, headers = {}, body } = isAnswer ? result : { body: result };
  const bytes = bytesOf(body);
  if (bytes === undefined) return { status, headers, body: Buffer.alloc(0), notKept: true };
  const typed = Object.keys(headers).some((name) => name.toLowerCase() === 'content-type');
  return { status, headers: bytes.type && !typed ? { ...headers, 'Content-Type': bytes.type } : headers, body: bytes.body, notKept: false };
}

/** A body's bytes, and its type where that is ours to say; undefined for what JSON cannot write. */
function bytesOf(body) {
  if (body === undefined || body === null) return { body: Buffer.alloc(0) };
  if (typeof body === 'string') return { body: Buffer.from(body) };
  if (ArrayBuffer.isView(body)) return { body: Buffer.from(body.buffer, body.byteOffset, body.byteLength) };
  if (body instanceof ArrayBuffer) return { body: Buffer.from(body) };
  try {
    const text = JSON.stringify(body);
    return text === undefined ? undefined : { body: Buffer.from(text), type: 'application/json' };
  } catch {
    return undefined;
  }
}

// What says of a claim whose answer was lost that it does not stand.
const DECIDES = ['idempotency-in-progress', 'idempotency-outcome-unknown', 'idempotency-payload-mismatch', 'idempotency-token-unknown'];

/**
 * Claims a token, and asks again after a lost answer. From then on only an answer about the token
 * itself counts: a refusal says nothing of the claim that went before. If none comes, the claim is
 * given back: nothing was begun.
 */
async function claimAgain(client, token, fingerprint, lease, policy) {
  const owner = randomBytes(16).toString('base64url');
  let unknown;
  for (let tries = 5, wait = 0.1; tries > 0; tries--, wait *= 2) {
    try {
      return await client.claim(token, fingerprint, lease, policy, owner);
    } catch (error) {
      const isOpen = error instanceof UnknownOutcome || (unknown && error instanceof CoatcheckError);
      if (!isOpen || DECIDES.includes(error.code)) throw error;
      unknown ??= error;
    }
    await pause(wait);
  }
  // else the token is in doubt when the lease has lapsed, if the claim was made
  await client.release(token, owner).catch(() => {});
  throw unknown;
}

/**
 * Extends the lease every third of it. One that hangs makes room for the next. It returns what ends
 * it.
 */
function heartbeat(client, token, proof, attempt, lease, policy) {
  const ended = new AbortController();
  const beat = async () => {
    while (await pause(lease / 3, ended.signal)) {
      const sent = performance.now();
      try {
        await client.extend(token, proof, lease, lease / 3);
      } catch (error) {
        if (error instanceof Lost || error.code === 'idempotency-token-unknown') return attempt.lose();
        // a fault of this program
        if (!(error instanceof CoatcheckError)) return attempt.lose(error);
        continue; // the next one may get through; until then the deadline counts
      }
      if (policy === 'takeover') attempt.trustUntil(sent + lease * 1000);
    }
  };
  const running = beat();
  return async () => {
    ended.abort();
    await running;
    attempt.trustUntil(undefined);
  };
}

/** Waits; false if it was ended. */
function pause(seconds, signal) {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve(false);
    const end = (whole) => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', cut);
      resolve(whole);
    };
    const cut = () => end(false);
    const timer = setTimeout(() => end(true), seconds * 1000);
    signal?.addEventListener('abort', cut);
  });
}

/**
 * Records an answer, without its body if that is too large: the token must not stay in doubt for
 * that.
 */
async function record(client, token, proof, answer) {
  try {
    await settle(() => client.complete(token, proof, answer)).catch((error) => {
      if (error.status !== 413) throw error;
      return settle(() => client.complete(token, proof, { ...answer, notKept: true }));
    });
  } catch (error) {
    throw error instanceof Lost ? error : new NotRecorded(answer, error);
  }
}

/**
 * Makes a call that is harmless to repeat until it is known what became of it, or it was tried
 * often enough.
 */
async function settle(call, tries = 8) {
  for (let wait = 0.1; ; wait = Math.min(2 * wait, 2)) {
    try {
      return await call();
    } catch (error) {
      if (--tries === 0 || !(error instanceof Unavailable || error instanceof UnknownOutcome)) throw error;
    }
    await pause(wait);
  }
}
