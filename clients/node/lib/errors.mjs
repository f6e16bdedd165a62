// What a call fails with, and which failure an answer is.

/**
 * What a call failed with. No text of it holds an API key, a token or a lease, nor characters that
 * a terminal does not print, whatever the service has answered.
 */
export class CoatcheckError extends Error {
  /**
   * @param {string} code of docs/remote.md; "unavailable" and "unknown-outcome" where the service
   *   itself did not say one
   * @param {string} detail
   * @param {{status?: number, retryAfter?: number, field?: string, operation?: string}} [facts]
   *   status of the HTTP answer, if one came; retryAfter in seconds, if known; field, the part of
   *   the request that is wrong; operation, the name of one in doubt
   */
  constructor(code, detail, facts = {}) {
    super(`${code}: ${detail}`);
    this.code = code;
    this.detail = detail;
    this.status = facts.status;
    this.retryAfter = facts.retryAfter;
    this.field = facts.field;
    this.operation = facts.operation;
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

/** Nothing may be stamped any more with a worker id. The text says why. Lease another. */
export class NoLease extends CoatcheckError {}

/**
 * The work threw the error of another call, which is the cause. That says nothing of this
 * operation, which may have happened; operation is its name, undefined for a token.
 */
export class WorkError extends Error {
  constructor(operation, cause) {
    super('the work was begun, and ended with the error of another call', { cause });
    this.operation = operation;
  }
}

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

export function object(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === 'object' && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

const LONGEST = 500; // characters of a text of the service
const YEAR = 365 * 24 * 3600; // the longest wait

/**
 * The error that an answer to a request with these secrets is. Only the service's own word says
 * that nothing was done.
 */
export function problem(status, type, wait, text, secrets) {
  const facts = { status, retryAfter: /^\d{1,18}$/.test(wait ?? '') ? Math.min(Number(wait), YEAR) : undefined };
  const said = type.split(';')[0].trim() === 'application/problem+json' && status >= 400 ? object(text) : undefined;
  if (!isProblem(said)) return foreign(status, facts);
  const { code, title, detail, field, operation } = plain(said, secrets);
  if (code !== said.code) return foreign(status, facts);
  Object.assign(facts, { field, operation });
  const ms = code === 'limit-reached' ? said.retry_after_ms : undefined;
  if (Number.isInteger(ms) && ms > 0 && ms <= YEAR * 1000) facts.retryAfter = ms / 1000;
  const Kind = Object.hasOwn(kinds, code) ? kinds[code] : status < 500 ? CoatcheckError : UnknownOutcome;
  return new Kind(code, detail || title || '', facts);
}

const texts = ['code', 'title', 'detail', 'field', 'operation'];

const isProblem = (said) => /^[a-z0-9-]{1,64}$/.test(said?.code ?? '') && texts.every((name) => ['string', 'undefined'].includes(typeof said[name]));

/**
 * The texts of a problem, fit for an error. Characters that are not printed go first: a secret with
 * one in it would stay whole otherwise.
 */
function plain(said, secrets) {
  return Object.fromEntries(texts.filter((name) => said[name] !== undefined).map((name) => {
    let text = said[name].replace(/[\p{C}\p{Z}\uFFFD]/gu, (one) => (one === ' ' ? one : ''));
    for (const secret of secrets) {
      if (secret.length >= 8) text = text.replaceAll(secret, '…'); // what is shorter may be part of a word
    }
    const characters = [...text];
    return [name, characters.length > LONGEST ? `${characters.slice(0, LONGEST).join('')}…` : text];
  }));
}

/** The codes whose class the status does not tell. */
const kinds = {
  'idempotency-superseded': Lost,
  'lease-lost': Lost,
  'store-unavailable': Unavailable,
  'upstream-unavailable': Unavailable,
  'pool-exhausted': Unavailable,
  'pool-quarantined': Unavailable,
  'too-many-requests': Unavailable,
  overloaded: Unavailable,
  'store-unsuitable': CoatcheckError, // nothing was done, and asking again does not help
  'store-newer': CoatcheckError,
  'layout-used-up': CoatcheckError,
};

/**
 * The error that an answer of another server is. It may have passed the request on, whatever its
 * status, unless it says that the request is too large for it.
 */
function foreign(status, facts) {
  const detail = `status ${status} from something that is not the service`;
  return status === 413 ? new CoatcheckError('refused', detail, facts) : new UnknownOutcome('unknown-outcome', detail, facts);
}
