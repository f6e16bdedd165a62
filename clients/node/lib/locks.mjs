// Locks: a lease that is renewed, and a holder that is told when it may not count on it any more.

import { randomBytes } from 'node:crypto';

import { ask, done, millis, named } from './ask.mjs';
import { CoatcheckError, Lost, UnknownOutcome } from './errors.mjs';

export const locks = {
  /**
   * Acquires a lock and renews it until release: {ttl, wait, mode, permits, take, owner}, ttl and
   * wait (60 at most) in seconds. "lock-held" is a CoatcheckError. Where no answer came, the lock
   * is given back if the service takes that in time, else it ends with its TTL.
   */
  async acquireLock(name, { ttl = 30, wait = 0, mode, permits, take, owner } = {}) {
    if (wait > 60) throw new RangeError('wait: 60 seconds at most');
    const path = named('/lock', name);
    const place = randomBytes(16).toString('base64url'); // with it a grant that was lost can be given back
    const message = { ttl_ms: millis(ttl), wait_ms: millis(wait), mode, permits, take, owner };
    const sent = now();
    let granted;
    try {
      granted = await this[ask]('POST', path, (granted) => granted?.lease && granted.fence > 0, { message, lease: place, wait });
    } catch (error) {
      if (error instanceof UnknownOutcome) await this[ask]('DELETE', path, done, { lease: place, timeout: 2 }).catch(() => {});
      throw error;
    }
    const lock = new Lock(this, path, granted, ttl, sent);
    return lock.begin(sent);
  },

  /** Holders and waiters of a lock, as the service tells them. */
  async lock(name) {
    return this[ask]('GET', named('/lock', name), (shown) => Array.isArray(shown?.holders));
  },
};

/** The monotonic and the wall clock in ms: the first stands still while a machine sleeps. */
const now = () => ({ monotonic: performance.now(), wall: Date.now() });

const passed = (since) => Math.max(performance.now() - since.monotonic, Date.now() - since.wall);

/** A lock that is held and renewed, for as long as check does not throw. */
export class Lock {
  #client;
  #path;
  #lease;
  #ttl; // ms
  #confirmed; // when the last confirmed request was sent
  #lost = new AbortController();
  #renewal;
  #end;
  #released;

  constructor(client, path, { name, lease, fence }, ttl, sent) {
    this.#client = client;
    this.#path = path;
    this.#lease = lease;
    this.#ttl = millis(ttl);
    this.#confirmed = sent;
    this.name = name;
    this.fence = fence; // larger for every later grant: give it to what can refuse an older one
  }

  /** Renews once if the grant was waited for: its lease began at an unknown moment. */
  async begin(sent) {
    try {
      if (passed(sent) > this.#ttl / 4) await this.#renew();
      this.#trust();
      this.check();
    } catch (error) {
      await this.release().catch(() => {});
      throw error;
    }
    this.#later();
    return this;
  }

  /** Ends when the lock may not be counted on any more. */
  get signal() {
    return this.#lost.signal;
  }

  /** ms for which the lock may be counted on if no renewal is confirmed. */
  get validity() {
    const margin = Math.min(this.#ttl / 10, 1000);
    return this.signal.aborted ? 0 : Math.max(0, this.#ttl - margin - passed(this.#confirmed));
  }

  /** Call it before each use: it throws Lost when the lock may be another's. */
  check() {
    if (this.validity === 0) this.#lose();
    if (this.signal.aborted) throw this.signal.reason;
  }

  /**
   * Gives the lock back; Lost if it had ended by then. After another error it ends with its TTL.
   * Releasing again does nothing and returns the same.
   */
  release() {
    this.#lose(new Lost('released', 'the lock was given back'));
    this.#released ??= this.#client[ask]('DELETE', this.#path, done, { lease: this.#lease, timeout: 2 }).then(() => {});
    return this.#released;
  }

  #lose(reason = new Lost('lease-lost', 'no renewal was confirmed in time, or another has the lock')) {
    clearTimeout(this.#renewal);
    clearTimeout(this.#end);
    this.#lost.abort(reason);
  }

  #trust() {
    clearTimeout(this.#end);
    this.#end = setTimeout(() => (this.validity === 0 ? this.#lose() : this.#trust()), this.validity).unref();
  }

  #later() {
    this.#renewal = setTimeout(() => this.#beat(), this.#ttl / 3).unref();
  }

  async #beat() {
    try {
      await this.#renew();
      if (!this.signal.aborted) this.#trust();
    } catch (error) {
      // what is no answer of a service is tried again: until then the deadline counts
      if (error instanceof Lost || !(error instanceof CoatcheckError)) this.#lose(error);
    }
    if (!this.signal.aborted) this.#later();
  }

  /** A renewal that is confirmed after the deadline revives nothing. */
  async #renew() {
    const sent = now();
    await this.#client[ask]('PUT', this.#path, (renewed) => renewed?.expires_at, { message: { ttl_ms: this.#ttl }, lease: this.#lease, timeout: this.#ttl / 3000 });
    if (this.#renewal !== undefined) this.check();
    this.#confirmed = sent;
  }
}

if (Symbol.asyncDispose) {
  Object.defineProperty(Lock.prototype, Symbol.asyncDispose, { value() { return this.release(); } });
}
