// What a call fails with, and which failure an answer is.

/** What a call failed with. No text of it holds a token or a lease. */
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
    return value !== null && typeof value === 'object' ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The error that an answer is. Only the service's own word says that nothing was done. */
export function problem(status, type, wait, text) {
  const facts = { status, retryAfter: /^\d+$/.test(wait ?? '') ? Number(wait) : undefined };
  const said = type.split(';')[0].trim() === 'application/problem+json' && status >= 400 ? object(text) : undefined;
  if (typeof said?.code !== 'string') return foreign(status, facts);
  Object.assign(facts, { field: said.field, operation: said.operation });
  if (said.code === 'limit-reached' && Number.isInteger(said.retry_after_ms)) facts.retryAfter = said.retry_after_ms / 1000;
  const Kind = Object.hasOwn(kinds, said.code) ? kinds[said.code] : status < 500 ? CoatcheckError : UnknownOutcome;
  return new Kind(said.code, said.detail ?? said.title ?? '', facts);
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
