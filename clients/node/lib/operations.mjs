// Operations by a key of the caller's own: the id of a message, an event, or a job and its day.

import { ask, done, millis } from './ask.mjs';
import { isText } from './fingerprint.mjs';
import { isClaim, recorded } from './tokens.mjs';

const path = (operation, verb) => `/operation/${encodeURIComponent(operation)}${verb}`;

export const operations = {
  /**
   * Claims an operation by a key of your own: {key, scope, retention}, retention in seconds. The
   * answer is as that of claim, with the operation's name for the calls below.
   */
  async claimKey({ key, scope, retention }, fingerprint, lease, policy = 'hold', owner = '') {
    if (!isText(key) || key === '') throw new TypeError('a key is a string of 1 to 1,024 bytes, without lone surrogates');
    if (!isText(fingerprint)) throw new TypeError('a fingerprint is a string without lone surrogates: see fingerprint()');
    const message = { key, scope, retention_ms: retention === undefined ? undefined : millis(retention), fingerprint, lease_ms: millis(lease), policy, owner };
    return this[ask]('POST', '/operation/claim', (claimed) => claimed?.operation && isClaim(claimed), { message });
  },

  /** As complete, for what claimKey has granted. */
  async completeOperation(operation, lease, answer) {
    await this[ask]('POST', path(operation, '/complete'), done, { message: recorded(answer), lease });
  },

  /** As extend, for what claimKey has granted. */
  async extendOperation(operation, lease, span, timeout) {
    await this[ask]('POST', path(operation, '/extend'), (extended) => extended?.lease_until, { message: { lease_ms: millis(span) }, lease, timeout });
  },

  /** As release, for what claimKey has granted. */
  async releaseOperation(operation, lease) {
    await this[ask]('POST', path(operation, '/release'), done, { lease });
  },

  /** The state of an operation, as the service tells it. */
  async operation(operation) {
    return this[ask]('GET', path(operation, ''), (status) => status?.state);
  },

  /** Has an answer forgotten: the next claim is granted. Repeating it is harmless. Role admin. */
  async forgetOperation(operation) {
    await this[ask]('DELETE', path(operation, ''), done);
  },

  /**
   * Ends doubt: outcome is "completed" (with the answer), "not-begun" or "refused". Repeating it is
   * harmless. For an operator.
   */
  async settle(operation, outcome, { answer, reason } = {}) {
    const { body_not_kept, ...whole } = answer ? recorded(answer) : {};
    await this[ask]('POST', path(operation, '/settle'), done, { message: { outcome, ...whole, reason } });
  },
};
