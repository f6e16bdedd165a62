// Operations by a key of the caller's own: the id of a message, an event, or a job and its day.

import { ask, done, millis, optionsOf } from './ask.mjs';
import { isText } from './fingerprint.mjs';
import { isClaim, recorded } from './tokens.mjs';

const path = (operation, verb) => `/operation/${encodeURIComponent(operation)}${verb}`;

export const operations = {
  /**
   * Claims an operation by a key of your own: {key, scope, retention}, retention in seconds. The
   * answer is as that of claim, with the operation's name for the calls below.
   */
  async claimKey({ key, scope, retention }, fingerprint, lease, policy = 'hold', leaseToken) {
    if (!isText(key) || key === '') throw new TypeError('a key is a string of 1 to 1,024 bytes, without lone surrogates');
    if (!isText(fingerprint)) throw new TypeError('a fingerprint is a string without lone surrogates: see fingerprint()');
    const message = { key, scope, retention_ms: retention === undefined ? undefined : millis(retention), fingerprint, lease_ms: millis(lease), policy };
    return this[ask]('POST', '/operation/claim', (claimed) => isText(claimed?.operation) && isClaim(claimed), { message, lease: leaseToken });
  },

  /** As complete, for what claimKey has granted. */
  async completeOperation(operation, lease, answer) {
    await this[ask]('POST', path(operation, '/complete'), done, { message: recorded(answer), lease });
  },

  /** As extend, for what claimKey has granted. */
  async extendOperation(operation, lease, span, timeout) {
    await this[ask]('POST', path(operation, '/extend'), (extended) => isText(extended?.lease_until), { message: { lease_ms: millis(span) }, lease, timeout });
  },

  /** As release, for what claimKey has granted. */
  async releaseOperation(operation, lease) {
    await this[ask]('POST', path(operation, '/release'), done, { lease });
  },

  /** The state of an operation, as the service tells it. */
  async operation(operation) {
    return this[ask]('GET', path(operation, ''), (status) => isText(status?.state));
  },

  /** Has an answer forgotten: the next claim is granted. Repeating it is harmless. Role admin. */
  async forgetOperation(operation) {
    await this[ask]('DELETE', path(operation, ''), done);
  },

  /**
   * Begins to find out what became of an operation in doubt. The answer tells the fence to close,
   * at whatever keeps the effect, for attempts with it or a smaller one, and the lease to settle
   * with. With a leaseToken, as of claim, it may be repeated.
   */
  async beginResolving(operation, lease = 30, leaseToken) {
    const isWhole = (begun) => isText(begun?.lease) && Number.isInteger(begun.fence);
    return this[ask]('POST', path(operation, '/resolve'), isWhole, { message: { lease_ms: millis(lease) }, lease: leaseToken });
  },

  /** Says that nothing was found out: the next one may ask soon. */
  async endResolving(operation, lease) {
    await this[ask]('POST', path(operation, '/resolve'), done, { message: { lease_ms: 0 }, lease });
  },

  /**
   * Ends doubt: outcome is "completed" (with the answer), "not-begun" or, without a lease of
   * beginResolving, "refused". Repeating it is harmless. Without a lease it is for an operator.
   */
  async settle(operation, outcome, options) {
    const { answer, reason, lease } = optionsOf(options, { answer: undefined, reason: undefined, lease: undefined });
    const { body_not_kept, ...whole } = answer ? recorded(answer) : {};
    await this[ask]('POST', path(operation, '/settle'), done, { message: { outcome, ...whole, reason }, lease });
  },
};
