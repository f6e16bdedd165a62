// What index.mjs exports. Times are seconds, where no name says otherwise.

/** What a call failed with. No text of it holds an API key, a token or a lease. */
export class CoatcheckError extends Error {
  constructor(code: string, detail: string, facts?: { status?: number; retryAfter?: number; field?: string; operation?: string });
  /**
   * of docs/remote.md; "unavailable" and "unknown-outcome" where the service itself did not say one
   */
  readonly code: string;
  /** of the HTTP answer, if one came */
  readonly status?: number;
  readonly retryAfter?: number;
  readonly detail: string;
  /** the part of the request that is wrong */
  readonly field?: string;
  /** the name of an operation in doubt, for settle */
  readonly operation?: string;
}

/** Nothing was done. Trying later is harmless. */
export class Unavailable extends CoatcheckError {}

/** The request may or may not have been done. */
export class UnknownOutcome extends CoatcheckError {}

/** Another attempt has the claim: stop, and do not use what was done. */
export class Lost extends CoatcheckError {}

/** Nothing may be stamped any more with a worker id. The text says why. Lease another. */
export class NoLease extends CoatcheckError {}

/** What the work of a token came to. */
export interface Answer {
  status: number;
  headers: Record<string, string>;
  body: Buffer;
  /** its body was too large to be kept */
  notKept: boolean;
}

/**
 * A result with a status and headers of its own, for the work of runOnce to return. Any other
 * result is the body of a Response with status 200.
 */
export class Response {
  /**
   * body is a string or bytes, which are recorded as they are, nothing, or JSON: booleans, finite
   * numbers, strings, arrays, plain objects, and what has toJSON. Anything else is a TypeError.
   */
  constructor(body?: unknown, terms?: { status?: number; headers?: Record<string, string> });
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body: Buffer;
}

/**
 * The work threw the error of another call, which is the cause. That says nothing of this
 * operation, which may have happened.
 */
export class WorkError extends Error {
  constructor(operation: string | undefined, cause: unknown);
  readonly operation: string | undefined;
}

/** The work is done, but its answer may not be recorded. The cause says why. */
export class NotRecorded extends Error {
  constructor(answer: Answer, cause: unknown);
  readonly answer: Answer;
}

export type Policy = 'hold' | 'takeover';

/** What a claim is answered. */
export type Claim =
  | { outcome: 'granted'; lease: string; fence: number; attempt?: number; [more: string]: unknown }
  | {
      outcome: 'replay';
      response: { status: number; headers?: Record<string, string>; body_base64?: string; body_not_kept?: boolean };
      [more: string]: unknown;
    };

/** A digest of what makes a request the same: SHA-256 over the parts, each after its length. */
export function fingerprint(...parts: string[]): string;

/**
 * A key of the caller's own; retention in seconds from the answer on, up to 400 days; a day by
 * default.
 */
export interface OwnKey {
  key: string;
  scope?: string;
  retention?: number;
}

export interface RecordedAnswer {
  status?: number;
  headers?: Record<string, string>;
  body?: string | Uint8Array;
  notKept?: boolean;
}

/** The state of a token or an operation. */
export interface Status {
  state: 'issued' | 'claimed' | 'completed' | 'in-doubt';
  attempts?: number;
  fence?: number;
  [more: string]: unknown;
}

/**
 * Asks one service. Each request has a connection to itself, which is then kept for the next, and
 * is sent once. Where Symbol.asyncDispose is there, `await using` closes it.
 */
export class Client {
  /**
   * timeout is how many seconds one request may take, 10 by default; key is an API key, for a
   * service that asks for one: use https then.
   */
  constructor(url: string, timeout?: number, key?: string);
  /**
   * Ends the connections that are kept. A call under way goes on, and a later one opens a
   * connection, which is not kept. A program ends without it.
   */
  close(): void;
  /** leaseToken is a secret of 22 characters of base64url, new for each attempt. */
  claim(token: string, fingerprint: string, lease: number, policy?: Policy, leaseToken?: string): Promise<Claim>;
  /** Records the answer of the attempt that lease proves. Repeating it is harmless. */
  complete(
    token: string,
    lease: string,
    answer: RecordedAnswer,
  ): Promise<void>;
  /** The heartbeat: the lease ends span seconds from now. */
  extend(token: string, lease: string, span: number, timeout?: number): Promise<void>;
  /** Gives a claim back. Only for an attempt that provably never began. */
  release(token: string, lease: string): Promise<void>;
  /** One whose answer was lost was not handed out: issue another. */
  issue(terms?: { ttl?: number; scope?: string }): Promise<{ token: string; scope: string; expiresAt: Date }>;
  status(token: string): Promise<Status>;

  /** As claim, for a key of your own; the answer names the operation. */
  claimKey(key: OwnKey, fingerprint: string, lease: number, policy?: Policy, leaseToken?: string): Promise<Claim & { operation: string }>;
  completeOperation(operation: string, lease: string, answer: RecordedAnswer): Promise<void>;
  extendOperation(operation: string, lease: string, span: number, timeout?: number): Promise<void>;
  releaseOperation(operation: string, lease: string): Promise<void>;
  operation(operation: string): Promise<Status>;
  /** Has an answer forgotten: the next claim is granted. For the role admin. */
  forgetOperation(operation: string): Promise<void>;
  /** Ends doubt. For an operator. Repeating it is harmless. */
  settle(operation: string, outcome: 'completed' | 'not-begun' | 'refused', terms?: { answer?: RecordedAnswer; reason?: string; lease?: string }): Promise<void>;
  /** Begins to find out what became of an operation in doubt: see runOnce, which does all of it. */
  beginResolving(operation: string, lease?: number, leaseToken?: string): Promise<{ lease: string; fence: number; [more: string]: unknown }>;
  /** Says that nothing was found out: the next one may ask soon. */
  endResolving(operation: string, lease: string): Promise<void>;

  /** Adds 1 and returns the value. */
  incr(key: string): Promise<number>;
  /** Adds by: the caller owns first to value. With a requestId asking again is harmless. A ttl is
      only for the call that begins the counter; of one without an end it is refused (counter-permanent). */
  add(
    key: string,
    terms?: {
      by?: number; limit?: number; ttl?: number; afterLoss?: "stay"; requestId?: string; template?: string; calendar?: string; zone?: string;
    },
  ): Promise<{ key: string; first: number; value: number; numbers: string[] }>;
  counter(key: string): Promise<number>;
  /** Sets a counter, back only if that is said. For the role admin. */
  setCounter(key: string, value: number, terms?: { ttl?: number; back?: boolean }): Promise<void>;

  /** Takes a cost, all of it or nothing; "limit-reached" is an error, with retryAfter. */
  takeLimit(name: string, terms: { rate: number; per: number; burst?: number; cost?: number }): Promise<{ remaining: number; reset: number }>;
  /** For the role admin. */
  resetLimit(name: string): Promise<void>;

  /** Acquires a lock and renews it until release. ttl and wait (60 at most) in seconds. */
  acquireLock(
    name: string,
    terms?: { ttl?: number; wait?: number; mode?: 'exclusive' | 'shared' | 'permits'; permits?: number; take?: number; owner?: string },
  ): Promise<Lock>;
  lock(name: string): Promise<{ name: string; holders: { fence?: number; owner?: string }[]; waiting: number; [more: string]: unknown }>;

  /**
   * Leases a worker id of a pool and renews it until release. A pool's ttl (seconds), layout, epoch
   * and datacenter are fixed by its first grant. Unavailable says with retryAfter when to ask
   * again.
   */
  holdWorker(pool: string, terms?: { identity?: string; ttl?: number; layout?: string; epoch?: Date; datacenter?: number }): Promise<WorkerId>;

  /** of the service's own worker id of a pool; undefined: its default pool */
  snowflakeIds(pool?: string, n?: number): Promise<bigint[]>;
  segmentIds(tag: string, n?: number): Promise<bigint[]>;
  uuids(n?: number, version?: 4 | 7): Promise<string[]>;
  ulids(n?: number): Promise<string[]>;
  typeids(prefix?: string, n?: number): Promise<string[]>;
  /** of the pool, or of the default layout */
  decodeId(id: string | bigint, pool?: string): Promise<{ id: string; time: string; [more: string]: unknown }>;
}

/**
 * A lock that is held and renewed. Where Symbol.asyncDispose is there, `await using` gives it back.
 * One that is dropped is not renewed any more, and ends with its TTL.
 */
export class Lock {
  private constructor();
  readonly name: string;
  /** larger for every later grant: give it to what can refuse an older one */
  readonly fence: number;
  /** Ends when the lock may not be counted on any more. */
  get signal(): AbortSignal;
  /** ms for which the lock may be counted on if no renewal is confirmed */
  get validity(): number;
  /** Call it before each use: it throws Lost when the lock may be another's. */
  check(): void;
  release(): Promise<void>;
}

/**
 * One lease of a worker id, from its grant to its end, and the ids that this process stamps with
 * it. Where Symbol.asyncDispose is there, `await using` gives it back. One that is dropped is
 * not renewed any more, and ends with its window.
 */
export class WorkerId {
  private constructor();
  readonly workerId: number;
  readonly datacenter: number;
  /** larger for every later grant */
  readonly fence: number;
  /** seconds */
  readonly ttl: number;
  /** ms since 1970: the window in which ids are stamped */
  readonly notBefore: number;
  get notAfter(): number;
  /** Ends when nothing may be stamped any more. */
  get signal(): AbortSignal;
  /** Throws NoLease if nothing may be stamped any more. */
  check(): void;
  /**
   * Stamps an id, larger than the one before. It waits where the sequence of a unit of time is used
   * up, and for a window that begins later. NoLease ends it.
   */
  nextId(): Promise<bigint>;
  nextIds(n: number): Promise<bigint[]>;
  /** Gives the worker id back. On an error it ends with its window instead. */
  release(): Promise<void>;
}

/** What the work may know of its claim. */
export class Attempt {
  constructor(fence: number, number: number, operation?: string);
  /** larger than that of every attempt before it */
  readonly fence: number;
  readonly number: number;
  /** of an own key: the operation's name, by which it is settled; empty under a token */
  readonly operation: string;
  /**
   * Call this if the work provably had no effect, whether it then returns or throws: the claim is
   * given back, and nothing is recorded.
   */
  release(): void;
  /** Whether release was called. */
  get released(): boolean;
  /** Ends when the claim is another's, or may be. */
  get signal(): AbortSignal;
  /** Call this before every effect: it throws Lost when the claim is another's, or may be. */
  check(): void;
  lose(reason?: unknown): void;
  /** Trusts the claim for so many ms from both clocks' reading on; undefined ends the watch. */
  trustFor(ms: number | undefined, since?: { monotonic: number; wall: number }): void;
}

/**
 * Runs work under a token, or a key of your own, once whatever fails: an answer that was recorded
 * before is returned instead.
 */
export function runOnce(
  client: Client,
  token: string | OwnKey,
  fingerprint: string,
  /**
   * It returns its result, or a Response: see there. What cannot be recorded is a TypeError, and
   * the operation is in doubt, as if it had thrown.
   */
  work: (attempt: Attempt) => unknown,
  terms?: { lease?: number; policy?: Policy; resolve?: Resolver },
): Promise<{ answer: Answer; replayed: boolean }>;

/** What a resolver returns if nothing had happened, and nothing can any more. */
export const NOT_BEGUN: unique symbol;

/**
 * Closes an operation in doubt, so that no attempt with this fence or a smaller one has an effect
 * from then on, and says what had happened: NOT_BEGUN, or the Response that the attempt gave or
 * would have given. Anything else says that nothing is known.
 */
export type Resolver = (operation: string, fence: number) => unknown;
