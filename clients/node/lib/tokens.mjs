// Tokens that the service issues: https://github.com/coatcheck/coatcheck/blob/main/docs/remote.md

import { ask, done, millis, optionsOf } from './ask.mjs';
import { isText } from './fingerprint.mjs';
import { Response } from './response.mjs';

const path = (token, verb) => `/token/${encodeURIComponent(token)}${verb}`;

/** Reports whether an answer to a claim is a whole one. */
export const isClaim = (claimed) => (claimed?.outcome === 'granted' && isText(claimed.lease) && claimed.lease && Number.isSafeInteger(claimed.fence))
  || (claimed?.outcome === 'replay' && Number.isInteger(claimed.response.status) && isText(claimed.response.body_base64 ?? ''));

/** An answer as it is sent to be recorded. */
export function recorded({ status, headers, body, notKept = false }) {
  const response = new Response(notKept ? undefined : body, { status, headers });
  return { ...response, body: undefined, body_base64: response.body.toString('base64'), body_not_kept: notKept };
}

export const tokens = {
  /** Issues a token. One whose answer was lost was not handed out: issue another. */
  async issue(options) {
    const { ttl, scope } = optionsOf(options, { ttl: undefined, scope: undefined });
    const message = { ttl_ms: ttl === undefined ? undefined : millis(ttl), scope };
    const issued = await this[ask]('POST', '/token', (issued) => isText(issued?.token), { message });
    return { token: issued.token, scope: issued.scope, expiresAt: new Date(issued.expires_at) };
  },

  /** The state of a token, as the service tells it. */
  async status(token) {
    return this[ask]('GET', path(token, ''), (status) => isText(status?.state));
  },

  /**
   * Looks at a token and takes it: {outcome: "granted", lease, fence, …} or {outcome: "replay",
   * response: {…}}.
   *
   * leaseToken is the secret to be the lease, randomBytes(16).toString('base64url'), a new one for
   * each attempt: repeating the claim with the same one gets the same grant.
   */
  async claim(token, fingerprint, lease, policy = 'hold', leaseToken) {
    if (!isText(fingerprint)) throw new TypeError('a fingerprint is a string without lone surrogates: see fingerprint()');
    return this[ask]('POST', path(token, '/claim'), isClaim, { message: { fingerprint, lease_ms: millis(lease), policy }, lease: leaseToken });
  },

  /**
   * Records the answer of the attempt that lease proves. Repeating it is harmless. notKept records
   * that there is one, without its body.
   */
  async complete(token, lease, answer) {
    await this[ask]('POST', path(token, '/complete'), done, { message: recorded(answer), lease });
  },

  /** The heartbeat: the lease ends that many seconds from now. Repeating it is harmless. */
  async extend(token, lease, span, timeout) {
    await this[ask]('POST', path(token, '/extend'), (extended) => isText(extended?.lease_until), { message: { lease_ms: millis(span) }, lease, timeout });
  },

  /**
   * Gives a claim back. Only for an attempt that provably never began. Repeating it is harmless.
   */
  async release(token, lease) {
    await this[ask]('POST', path(token, '/release'), done, { lease });
  },
};
