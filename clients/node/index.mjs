// A client of a coatcheck service. Node 18 or later, no packages.
//
// https://github.com/coatcheck/coatcheck/blob/main/docs/remote.md says what each answer and each
// lost answer means; this is that page as code.

export { Client } from './lib/client.mjs';
export { CoatcheckError, Lost, NoLease, NotRecorded, Unavailable, UnknownOutcome, WorkError } from './lib/errors.mjs';
export { fingerprint } from './lib/fingerprint.mjs';
export { Lock } from './lib/locks.mjs';
export { Response } from './lib/response.mjs';
export { Attempt, NOT_BEGUN, runOnce } from './lib/run_once.mjs';
export { WorkerId } from './lib/workers.mjs';
