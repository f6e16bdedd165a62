// Rate limits.

import { ask, done, millis, named, optionsOf } from './ask.mjs';

const isTaken = (taken) => taken?.allowed === true && Number.isSafeInteger(taken.remaining) && Number.isSafeInteger(taken.reset_ms);

export const limits = {
  /**
   * Takes a cost, all of it or nothing: {remaining, reset}, reset in seconds. "limit-reached" is a
   * CoatcheckError; its retryAfter is when there is room. A negative cost gives back, for the role
   * admin; 0 only looks. per is in seconds. After UnknownOutcome the cost may have been taken.
   */
  async takeLimit(name, options) {
    const { rate, per, burst, cost } = optionsOf(options, { rate: undefined, per: undefined, burst: undefined, cost: 1 });
    const message = { rate, per_ms: millis(per), burst, cost };
    const taken = await this[ask]('POST', named('/limit', name), isTaken, { message });
    return { remaining: taken.remaining, reset: taken.reset_ms / 1000 };
  },

  /** Forgets what is in use. Repeating it is harmless. For the role admin. */
  async resetLimit(name) {
    await this[ask]('DELETE', named('/limit', name), done);
  },
};
