// Locks: a lease that is renewed, and a holder that is told when it may not count on it any more.

import { randomBytes } from 'node:crypto';

import { ask, done, millis, named, optionsOf } from './ask.mjs';
import { UnknownOutcome } from './errors.mjs';
import { Lease, disposable, now, passed } from './lease.mjs';

export const locks = {
  /**
   * Acquires a lock and renews it until release: {ttl, wait, mode, permits, take, owner}, ttl and
   * wait (60 at most) in seconds. "lock-held" is a CoatcheckError. Where no answer came, the lock
   * is given back if the service takes that in time, else it ends with its TTL.
   */
  async acquireLock(name, options) {
    const { ttl, wait, mode, permits, take, owner } = optionsOf(
      options, { ttl: 30, wait: 0, mode: undefined, permits: undefined, take: undefined, owner: undefined },
    );
    if (!(wait >= 0 && wait <= 60)) throw new RangeError('wait: 0 to 60 seconds');
    const path = named('/lock', name);
    const place = randomBytes(16).toString('base64url'); // with it a grant that was lost can be given back
    const message = { ttl_ms: millis(ttl), wait_ms: millis(wait), mode, permits, take, owner };
    let sent = now();
    let granted;
    try {
      granted = await this[ask]('POST', path, (granted) => granted?.lease && granted.fence > 0, { message, lease: place, wait });
    } catch (error) {
      // the place in the queue, or the lock, may be there
      const left = error instanceof UnknownOutcome || (wait > 0 && error.code === 'lock-held');
      if (left) await this[ask]('DELETE', path, done, { lease: place, timeout: 2 }).catch(() => {});
      throw error;
    }
    const lease = granted.lease;
    const renew = (timeout) => this[ask]('PUT', path, (renewed) => renewed?.expires_at, { message: { ttl_ms: message.ttl_ms }, lease, timeout });
    const release = () => this[ask]('DELETE', path, done, { lease, timeout: 2 }).then(() => {});
    try {
      if (passed(sent) > message.ttl_ms / 4) { // it was waited for: its lease began at an unknown moment
        sent = now();
        await renew(message.ttl_ms / 3000);
      }
    } catch (error) {
      await release().catch(() => {});
      throw error;
    }
    return new Lock(granted, new Lease({ ttl: message.ttl_ms, sent, renew }), release);
  },

  /** Holders and waiters of a lock, as the service tells them. */
  async lock(name) {
    return this[ask]('GET', named('/lock', name), (shown) => Array.isArray(shown?.holders));
  },
};

/** A lock that is held and renewed, for as long as check does not throw. */
export class Lock {
  #lease;
  #release;
  #released;

  constructor({ name, fence }, lease, release) {
    this.#lease = lease.heldBy(this);
    this.#release = release;
    this.name = name;
    this.fence = fence; // larger for every later grant: give it to what can refuse an older one
  }

  /** Ends when the lock may not be counted on any more. */
  get signal() {
    return this.#lease.signal;
  }

  /** ms for which the lock may be counted on if no renewal is confirmed. */
  get validity() {
    return this.#lease.validity;
  }

  /** Call it before each use: it throws Lost when the lock may be another's. */
  check() {
    this.#lease.check();
  }

  /**
   * Gives the lock back; Lost if it had ended by then. After another error it ends with its TTL.
   * Releasing again does nothing and returns the same.
   */
  release() {
    this.#lease.end('released', 'the lock was given back');
    this.#released ??= this.#release();
    return this.#released;
  }
}

disposable(Lock, (lock) => lock.release());
