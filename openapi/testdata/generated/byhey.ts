// Does with the client of hey-api what each program here does, and prints what came.
import { client } from './hey/client.gen.js';
import { acquireLock, claimToken, completeToken, incr, issueToken, releaseLock } from './hey/index.js';

client.setConfig({ baseUrl: process.argv[2] });

const issued = await issueToken();
const path = { token: issued.data!.token };
const claim = () => claimToken({ path, body: { fingerprint: 'charge-42' } });
const granted = await claim();
console.log('claim:', granted.data!.outcome);
const completed = await completeToken({ path, headers: { 'Lease-Token': granted.data!.lease! }, body: { status: 201 } });
console.log('complete:', completed.response!.status);
const replayed = await claim();
console.log('claim:', replayed.data!.outcome, replayed.data!.response!.status);

const values = await incr({ path: { key: 'orders' }, query: { by: 3 } });
if (typeof values.data === 'string') throw new Error('the values are text');
console.log('values:', values.data!.first, values.data!.value);

const lock = await acquireLock({ path: { name: 'report' } });
console.log('lock:', lock.response!.status, lock.data!.name);
const refused = await acquireLock({ path: { name: 'report' } });
console.log('problem:', refused.error!.status, refused.error!.code, refused.error!.retryable);
const released = await releaseLock({ path: { name: 'report' }, headers: { 'Lease-Token': lock.data!.lease } });
console.log('release:', released.response!.status);
