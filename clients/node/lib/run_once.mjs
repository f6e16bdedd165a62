// Work that is done once: the claim, its heartbeat, and the record of the answer.

import { randomBytes } from 'node:crypto';
import { types } from 'node:util';

import { CoatcheckError, Lost, NotRecorded, Unavailable, UnknownOutcome, WorkError } from './errors.mjs';
import { isText } from './fingerprint.mjs';
import { now, passed } from './lease.mjs';
import { Response, responseOf } from './response.mjs';

/** What the work may know of its claim. */
export class Attempt {
  #lost = new AbortController();
  #trusted; // {ms, since}; undefined under hold, where no one else can begin
  #timer;
  #released = false;

  constructor(fence, number, operation = '') {
    // larger than that of every attempt before it: give it to what must refuse an older attempt
    this.fence = fence;
    this.number = number;
    this.operation = operation; // the name of one by an own key: it is settled by that
  }

  /**
   * Call this if the work provably had no effect, whether it then returns or throws: the claim is
   * given back, and nothing is recorded.
   */
  release() {
    this.#released = true;
  }

  /** Whether release was called; for runOnce. */
  get released() {
    return this.#released;
  }

  /** Ends when the claim is another's, or may be. */
  get signal() {
    return this.#lost.signal;
  }

  /** Call this before every effect: it throws Lost when the claim is another's, or may be. */
  check() {
    if (this.#left() <= 0) this.lose();
    if (this.signal.aborted) throw this.signal.reason;
  }

  lose(reason = new Lost('idempotency-superseded', 'another attempt has the claim, or may have')) {
    this.#lost.abort(reason);
  }

  /**
   * Trusts the claim for so many ms from a reading of the clocks on, by the one that counts more of
   * them; undefined ends the watch.
   */
  trustFor(ms, since) {
    clearTimeout(this.#timer);
    this.#trusted = ms === undefined ? undefined : { ms, since };
    if (ms !== undefined) this.#timer = setTimeout(() => this.#left() <= 0 ? this.lose() : this.trustFor(ms, since), Math.max(0, this.#left()));
  }

  #left() {
    return this.#trusted ? this.#trusted.ms - passed(this.#trusted.since) : Infinity;
  }
}

/**
 * Runs work(attempt) under a token, or under {key, scope, retention}, a key of your own, and
 * returns {answer, replayed}, where the answer is {status, headers, body, notKept} with the body as
 * a Buffer.
 *
 * work returns its result, or a Response for a status or headers of its own: bytes and strings as
 * they are, nothing as an empty body, anything else as JSON. If it throws, the operation may have
 * happened: nothing is given back, the lease lapses, and then the token is in doubt, under takeover
 * free for the next. If it provably had no effect, it calls attempt.release() before it throws:
 * then the claim is given back.
 *
 * A TypeError for what JSON does not write as a whole, such as a promise in an array, leaves the
 * token in doubt too: nobody can tell that such work has ended. A function* is a TypeError before
 * anything is sent. Other errors: those of Client.claim (the work did not run), what work threw,
 * WorkError if that was the error of another call, Lost (do not use what was done), NotRecorded.
 *
 * resolve(operation, fence) is asked when an earlier attempt is in doubt. It closes the operation
 * at whatever keeps the effect, so that no attempt with this fence or a smaller one has an effect
 * from then on, and returns NOT_BEGUN, upon which work runs, or the Response that the attempt gave
 * or would have given. Anything else, such as undefined, and an error say that nothing is known.
 *
 * The heartbeat runs in the same thread: work that blocks it for longer than the lease loses its
 * claim.
 */
export async function runOnce(client, token, fingerprint, work, { lease = 30, policy = 'hold', resolve, ...others } = {}) {
  // one that is in the wrong place would be without effect, and nobody would see it
  only('the options', Object.keys(others), []);
  if (typeof token !== 'string') only('the key', Object.keys(token ?? {}), ['key', 'scope', 'retention']);
  if (!isText(fingerprint) || fingerprint === '') throw new TypeError('the fingerprint is a string: see fingerprint()');
  if (typeof work !== 'function' || types.isGeneratorFunction(work)) throw new TypeError('the work is a function, and none that yields');
  const subject = typeof token === 'string' ? issued(client, token) : own(client, token);
  const { claimed, claimedAt } = await claimOrResolve(client, subject, fingerprint, lease, policy, resolve);
  if (claimed.outcome === 'replay') {
    const { status, headers, body_base64, body_not_kept = false } = claimed.response;
    return { answer: { status, headers: headers ?? {}, body: Buffer.from(body_base64 ?? '', 'base64'), notKept: body_not_kept }, replayed: true };
  }
  const attempt = new Attempt(claimed.fence, claimed.attempt ?? 1, claimed.operation);
  if (policy === 'takeover') attempt.trustFor(lease * 1000, claimedAt);
  const stop = heartbeat(subject, claimed.lease, attempt, lease, policy);
  let answer;
  try {
    answer = { ...responseOf(await work(attempt)), notKept: false };
  } catch (error) {
    const ofAnother = error instanceof CoatcheckError && error !== attempt.signal.reason;
    throw ofAnother ? new WorkError(claimed.operation, error) : error;
  } finally {
    await stop();
    // If it cannot be given back, the token is in doubt when its lease has lapsed.
    if (attempt.released) await settle(() => subject.release(claimed.lease)).catch(() => {});
  }
  if (!attempt.released) await record(subject, claimed.lease, answer);
  return { answer, replayed: false };
}

/** Throws a TypeError for names that do not belong into an argument. */
function only(what, names, known) {
  const stranger = names.find((name) => !known.includes(name));
  if (stranger !== undefined) throw new TypeError(`${what}: ${stranger} is none of theirs; {key, scope, retention} and {lease, policy, resolve} are two arguments`);
}

/** What a resolver returns if nothing had happened, and nothing can any more. */
export const NOT_BEGUN = Symbol('not begun');

/**
 * Claims, and again once the resolver has ended the doubt about an earlier attempt. claimedAt is
 * before the claim was sent: from there one lease is what this process trusts its claim for.
 */
async function claimOrResolve(client, subject, fingerprint, lease, policy, resolve) {
  let claimedAt = now();
  try {
    return { claimed: await claimAgain(subject, fingerprint, lease, policy), claimedAt };
  } catch (error) {
    const inDoubt = error.code === 'idempotency-outcome-unknown' && error.operation;
    if (!resolve || !inDoubt || !await resolved(client, error.operation, resolve)) throw error;
  }
  claimedAt = now();
  return { claimed: await claimAgain(subject, fingerprint, lease, policy), claimedAt };
}

const QUESTION = 30; // seconds that a resolver has before another one may ask

/** Asks the resolver, and reports whether the doubt is over. What it throws is thrown. */
async function resolved(client, operation, resolve) {
  const leaseToken = randomBytes(16).toString('base64url');
  let begun;
  try {
    begun = await settle(() => client.beginResolving(operation, QUESTION, leaseToken));
  } catch (error) {
    return error.code === 'not-in-doubt'; // another one has asked
  }
  const { lease, fence } = begun;
  let isSettled = false;
  try {
    const said = await resolve(operation, fence);
    if (said === NOT_BEGUN) await settle(() => client.settle(operation, 'not-begun', { lease }));
    else if (said instanceof Response) await settle(() => client.settle(operation, 'completed', { answer: said, lease }));
    else return false;
    isSettled = true;
  } finally {
    if (!isSettled) await client.endResolving(operation, lease).catch(() => {}); // else its lease ends
  }
  return true;
}

/** The steps of a token. */
const issued = (client, token) => ({
  claim: (...terms) => client.claim(token, ...terms),
  extend: (...terms) => client.extend(token, ...terms),
  complete: (...terms) => client.complete(token, ...terms),
  release: (...terms) => client.release(token, ...terms),
});

/** The steps of an own key: the answer to the claim names the operation of the others. */
function own(client, key) {
  let operation;
  return {
    claim: async (...terms) => {
      const claimed = await client.claimKey(key, ...terms);
      operation = claimed.operation;
      return claimed;
    },
    extend: (...terms) => client.extendOperation(operation, ...terms),
    complete: (...terms) => client.completeOperation(operation, ...terms),
    // a claim without any answer has no name here: it lapses
    release: async (...terms) => operation && client.releaseOperation(operation, ...terms),
  };
}

// What says of a claim whose answer was lost that it does not stand.
const DECIDES = ['idempotency-in-progress', 'idempotency-outcome-unknown', 'idempotency-payload-mismatch', 'idempotency-token-unknown'];

/**
 * Claims a token, and asks again after a lost answer. From then on only an answer about the token
 * itself counts: a refusal says nothing of the claim that went before. If none comes, the claim is
 * given back: nothing was begun.
 */
async function claimAgain(subject, fingerprint, lease, policy) {
  const leaseToken = randomBytes(16).toString('base64url');
  let unknown;
  for (let tries = 5, wait = 0.1; tries > 0; tries--, wait *= 2) {
    try {
      return await subject.claim(fingerprint, lease, policy, leaseToken);
    } catch (error) {
      const isOpen = error instanceof UnknownOutcome || (unknown && error instanceof CoatcheckError);
      if (!isOpen || DECIDES.includes(error.code)) throw error;
      unknown ??= error;
    }
    await pause(wait);
  }
  // else the token is in doubt when the lease has lapsed, if the claim was made
  await subject.release(leaseToken).catch(() => {});
  throw unknown;
}

/**
 * Extends the lease every third of it. One that hangs makes room for the next. It returns what ends
 * it.
 */
function heartbeat(subject, proof, attempt, lease, policy) {
  const ended = new AbortController();
  const beat = async () => {
    while (await pause(lease / 3, ended.signal)) {
      const sent = now();
      try {
        await subject.extend(proof, lease, lease / 3);
      } catch (error) {
        if (error instanceof Lost || ['idempotency-token-unknown', 'operation-unknown'].includes(error.code)) return attempt.lose();
        // a fault of this program
        if (!(error instanceof CoatcheckError)) return attempt.lose(error);
        continue; // the next one may get through; until then the deadline counts
      }
      if (policy === 'takeover') attempt.trustFor(lease * 1000, sent);
    }
  };
  const running = beat();
  return async () => {
    ended.abort();
    await running;
    attempt.trustFor(undefined);
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
async function record(subject, proof, answer) {
  try {
    await settle(() => subject.complete(proof, answer)).catch((error) => {
      if (error.status !== 413) throw error;
      return settle(() => subject.complete(proof, { ...answer, notKept: true }));
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
