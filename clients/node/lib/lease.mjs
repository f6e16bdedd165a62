// A lease that is renewed in the background: what a lock and a worker id have in common. It ends by
// the clocks of this process before it can end at the service, whatever answer comes later.

import { CoatcheckError, Lost } from './errors.mjs';

/** The monotonic and the wall clock in ms: the first stands still while a machine sleeps. */
export const now = () => ({ monotonic: performance.now(), wall: Date.now() });

/** The ms that have passed, by the clock that counted more of them. */
export const passed = (since, reading = performance.now()) => Math.max(reading - since.monotonic, Date.now() - since.wall);

/** Ends the leases of holders that were dropped. */
const dropped = new FinalizationRegistry((lease) => lease.end('dropped', 'its holder was dropped'));

/**
 * One lease, until end, its loss, or the local deadline. It must not know its holder, so that one
 * that is dropped can be noticed.
 */
export class Lease {
  #ttl; // ms
  #every; // ms from one renewal to the next
  #renew;
  #take;
  #Kind;
  #confirmed; // when the last confirmed request was sent
  #over = new AbortController();
  #renewal;
  #deadline;
  #underWay;

  /**
   * sent is when the request that was granted left. renew(timeout), in seconds, sends a renewal;
   * take(renewed, sent) notes its answer, and throws UnknownOutcome for one that is of no use.
   * Kind is the class of what check throws.
   */
  constructor({ ttl, every = ttl / 3, sent, renew, take = () => {}, Kind = Lost }) {
    this.#ttl = ttl;
    this.#every = every;
    this.#renew = renew;
    this.#take = take;
    this.#Kind = Kind;
    this.#confirmed = sent;
    this.#watch();
    this.#later(every);
  }

  /** Has it end when nothing refers to the holder any more. */
  heldBy(holder) {
    dropped.register(holder, this);
    return this;
  }

  /** Ends when the lease may not be counted on any more. */
  get signal() {
    return this.#over.signal;
  }

  /** ms for which the lease may be counted on if no renewal is confirmed. */
  get validity() {
    return this.#left(performance.now());
  }

  /** Throws when the lease may be another's, by this reading of the monotonic clock. */
  check(reading = performance.now()) {
    if (this.#left(reading) === 0) this.end('lease-lost', 'no renewal was confirmed before the lease could end');
    this.signal.throwIfAborted();
  }

  /** Ends it, and its renewals. The first reason stays. */
  end(code, detail, facts) {
    this.#abort(new this.#Kind(code, detail, facts));
  }

  /** Waits for a renewal that is under way. */
  async settled() {
    await this.#underWay;
  }

  #left(reading) {
    const margin = Math.min(this.#ttl / 10, 1000);
    return this.signal.aborted ? 0 : Math.max(0, this.#ttl - margin - passed(this.#confirmed, reading));
  }

  #abort(reason) {
    clearTimeout(this.#renewal);
    clearTimeout(this.#deadline);
    this.#over.abort(reason);
  }

  /** Tells of the deadline when it comes. */
  #watch() {
    clearTimeout(this.#deadline);
    const look = () => {
      try {
        this.check();
        this.#watch();
      } catch {
        // it has ended, and the signal says so
      }
    };
    this.#deadline = setTimeout(look, this.validity).unref();
  }

  #later(wait) {
    this.#renewal = setTimeout(() => (this.#underWay = this.#beat()), wait).unref();
  }

  /** A renewal that is confirmed after the deadline revives nothing. */
  async #beat() {
    let wait = this.#every;
    try {
      const sent = now();
      const renewed = await this.#renew(this.#ttl / 3000);
      this.check();
      this.#take(renewed, sent.monotonic);
      this.#confirmed = sent;
      this.#watch();
    } catch (error) {
      if (error instanceof Lost) this.end(error.code, error.detail, error);
      else if (!(error instanceof CoatcheckError)) this.#abort(error); // a fault of this program
      wait = this.#ttl / 12; // the next one may get through: until then the deadline counts
    }
    if (!this.signal.aborted) this.#later(wait);
  }
}

/** Lets `await using` end an object, where there is such a thing. */
export function disposable(Kind, dispose) {
  if (!Symbol.asyncDispose) return;
  Object.defineProperty(Kind.prototype, Symbol.asyncDispose, { value() { return dispose(this); } });
}
