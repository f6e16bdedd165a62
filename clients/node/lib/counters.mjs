// Counters.

import { ask, millis, named, optionsOf, withQuery } from './ask.mjs';

const ADDITION = {
  by: 1, limit: undefined, ttl: undefined, afterLoss: undefined, requestId: undefined, template: undefined, calendar: undefined, zone: undefined,
};

export const counters = {
  /** Adds 1 and returns the value, which no other call gets. After UnknownOutcome: a gap. */
  async incr(key) {
    return (await this.add(key)).value;
  },

  /**
   * Adds by, and returns {key, first, value, numbers}: the caller owns first to value. Values are
   * numbers, exact below 2^53; beyond that the answer cannot be read. With a requestId asking again
   * gets the same values, and adds once; without one a lost answer leaves a gap.
   */
  async add(key, options) {
    const { by, limit, ttl, afterLoss, requestId, template, calendar, zone } = optionsOf(options, ADDITION);
    const query = { by, limit, ttl_ms: ttl === undefined ? undefined : millis(ttl), after_loss: afterLoss, template, calendar, zone };
    const whole = (added) => Number.isSafeInteger(added?.value) && added.value - added.first + 1 === by && (added.key === key || added.key?.startsWith(`${key}:`));
    const { number, ...added } = await this[ask]('POST', withQuery(named('/incr', key), query), whole, { repeat: requestId });
    return { key: added.key, first: added.first, value: added.value, numbers: added.numbers ?? (number === undefined ? [] : [number]) };
  },

  /** The last value that was handed out. It changes nothing. */
  async counter(key) {
    const read = await this[ask]('GET', named('/counter', key), (read) => read?.key === key && Number.isSafeInteger(read.value));
    return read.value;
  },

  /**
   * Sets a counter: the next value is one more. A ttl is in seconds; without one it has no end. A
   * value below the counter is refused ("counter-back") unless back: it hands values out again. For
   * the role admin.
   */
  async setCounter(key, value, options) {
    const { ttl, back } = optionsOf(options, { ttl: undefined, back: false });
    const path = withQuery(named('/counter', key), { back: back ? true : undefined });
    const message = { value, ttl_ms: ttl === undefined ? undefined : millis(ttl) };
    await this[ask]('PUT', path, (now) => now?.key === key && now.value === value, { message });
  },
};
