// Worker ids: leases of the integer inside a Snowflake id, and the ids that are stamped with them.
// https://github.com/coatcheck/coatcheck/blob/main/docs/remote.md has the five rules.

import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';

import { ask, done, millis, named, optionsOf, withQuery } from './ask.mjs';
import { CoatcheckError, NoLease, UnknownOutcome } from './errors.mjs';
import { Lease, disposable, now } from './lease.mjs';
import { Generator, layoutOf } from './snowflake.mjs';

export const workers = {
  /**
   * Leases a worker id of a pool, and renews it until release: {identity, ttl, layout, epoch,
   * datacenter}, ttl in seconds, epoch a Date. Unavailable says with retryAfter when to ask again.
   * After UnknownOutcome a worker id is no one's until its TTL has passed: ask again.
   */
  async holdWorker(pool, options) {
    const { identity, ttl, layout, epoch, datacenter } = optionsOf(
      options, { identity: undefined, ttl: undefined, layout: undefined, epoch: undefined, datacenter: undefined },
    );
    const path = named('/worker', pool);
    const message = { identity, ttl_ms: ttl === undefined ? undefined : millis(ttl), layout, epoch: epoch?.toISOString(), datacenter };
    const sent = now();
    const granted = await this[ask]('POST', path, isGrant, { message });
    return new WorkerId(this, `${path}/${granted.worker_id}`, granted, sent);
  },
};

/** ms since 1970 of a time as the service writes it; undefined for another text. */
const moment = (text) => (/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,3}0*)?Z$/.test(text) ? Date.parse(text) : undefined);

const isIn = (value, bits) => Number.isInteger(value) && value >= 0 && value < 2 ** bits;

/** Reports whether a grant is complete enough to stamp ids with it. */
function isGrant(granted) {
  const layout = layoutOf(granted?.layout);
  return layout && granted.lease && granted.fence > 0 && granted.ttl_ms > 0 && granted.renew_every_ms > 0
    && isIn(granted.worker_id, layout.worker) && isIn(granted.datacenter, layout.datacenter)
    && moment(granted.epoch) !== undefined && moment(granted.server_time) !== undefined && moment(granted.not_before) < moment(granted.not_after);
}

/** What grant and renewals have told: the window, the time, and what goes back as proof. */
class Window {
  #then; // the service's time at the reading
  #reading;

  constructor(granted) {
    const { worker_id, server_time, ttl_ms, not_after, fence, identity, layout, epoch, datacenter } = granted;
    this.workerId = worker_id;
    this.proof = { ttl_ms, not_after, fence, identity, layout, epoch, datacenter };
    this.#anchor(moment(server_time), performance.now()); // never ahead: the service read its clock before
  }

  get notAfter() {
    return moment(this.proof.not_after);
  }

  /** The service's time at a reading of the monotonic clock. No wall clock has a part in it. */
  at(reading) {
    return this.#then + (reading - this.#reading);
  }

  /** Notes a renewal that was sent at a reading: it is now between what it told and that later. */
  take({ worker_id, not_after, server_time }, sent) {
    const [answered, told] = [performance.now(), moment(server_time)];
    if (worker_id !== this.workerId || told === undefined || !(moment(not_after) >= this.notAfter)) {
      throw new UnknownOutcome('unknown-outcome', 'the answer is of another lease');
    }
    this.#anchor(Math.min(Math.max(this.at(answered), told), told + (answered - sent)), answered);
    this.proof.not_after = not_after;
  }

  #anchor(time, reading) {
    this.#then = time;
    this.#reading = reading;
  }
}

/** One lease of a worker id, from its grant to its end, and the ids of it. */
export class WorkerId {
  #client;
  #path;
  #token;
  #window;
  #ids;
  #lease;
  #released;
  #turned = 0; // when timers and answers last had their turn

  constructor(client, path, granted, sent) {
    const window = new Window(granted);
    const { worker_id: workerId, datacenter, fence, lease: token, ttl_ms: ttl, renew_every_ms: every } = granted;
    const notBefore = moment(granted.not_before);
    this.#client = client;
    this.#path = path;
    this.#token = token;
    this.#window = window;
    this.#ids = new Generator({ layout: layoutOf(granted.layout), epoch: moment(granted.epoch), notBefore, datacenter, workerId });
    const renew = (timeout) => client[ask]('PUT', path, (renewed) => renewed?.not_after, { message: window.proof, lease: token, timeout });
    const take = (renewed, at) => window.take(renewed, at);
    this.#lease = new Lease({ ttl, every, sent, renew, take, Kind: NoLease }).heldBy(this);
    this.workerId = workerId;
    this.datacenter = datacenter;
    this.fence = fence;
    this.ttl = ttl / 1000;
    this.notBefore = notBefore;
  }

  /** The end of the window that is confirmed, in ms since 1970. */
  get notAfter() {
    return this.#window.notAfter;
  }

  /** Ends when nothing may be stamped any more. */
  get signal() {
    return this.#lease.signal;
  }

  /** Throws NoLease if nothing may be stamped any more. */
  check() {
    this.#lease.check();
  }

  /**
   * Stamps an id, a BigInt, larger than the one before. It waits where the sequence of a unit of
   * time is used up, and for a window that begins later. NoLease ends it.
   */
  async nextId() {
    for (;;) {
      const reading = performance.now();
      this.#lease.check(reading);
      if (reading - this.#turned > 10) { // a loop of ids must not keep the renewals waiting
        await turn();
        this.#turned = performance.now();
        continue;
      }
      const made = this.#stamp(reading);
      if (typeof made === 'bigint') return made;
      await sleep(Math.min(made, 100)); // not longer: the lease may end
    }
  }

  /** Stamps n ids, as nextId does. */
  async nextIds(n) {
    const made = [];
    while (made.length < n) made.push(await this.nextId());
    return made;
  }

  #stamp(reading) {
    try {
      return this.#ids.stamp(this.#window.at(reading), this.#window.notAfter);
    } catch (error) {
      this.#lease.end('layout-used-up', error.message);
      throw this.signal.reason;
    }
  }

  /**
   * Stops stamping, then gives the worker id back, for a window that begins after the last id. On
   * an error it ends with its window instead. Releasing again does nothing and returns the same.
   */
  release() {
    this.#lease.end('released', 'the worker id was given back');
    this.#released ??= this.#giveBack();
    return this.#released;
  }

  async #giveBack() {
    await this.#lease.settled(); // a renewal that comes after the release would be refused
    const until = new Date(this.#ids.usedUntil).toISOString();
    await this.#client[ask]('DELETE', withQuery(this.#path, { used_until: until }), done, { lease: this.#token });
  }
}

// An error of the release changes nothing for the caller: the lease ends with its window.
disposable(WorkerId, (worker) => worker.release().catch((error) => {
  if (!(error instanceof CoatcheckError)) throw error;
}));
