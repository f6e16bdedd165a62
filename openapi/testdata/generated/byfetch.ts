// Does with the types of openapi-typescript what each program here does, and prints what came.
import createClient from 'openapi-fetch';
import type { paths } from './schema.js';

const service = createClient<paths>({ baseUrl: process.argv[2] });

const issued = await service.POST('/token');
const path = { token: issued.data!.token };
const claim = () => service.POST('/token/{token}/claim', { params: { path }, body: { fingerprint: 'charge-42' } });
const granted = await claim();
console.log('claim:', granted.data!.outcome);
const completed = await service.POST('/token/{token}/complete', { params: { path, header: { 'Lease-Token': granted.data!.lease! } }, body: { status: 201 } });
console.log('complete:', completed.response.status);
const replayed = await claim();
console.log('claim:', replayed.data!.outcome, replayed.data!.response!.status);

const values = await service.POST('/incr/{key}', { params: { path: { key: 'orders' }, query: { by: 3 } } });
if (typeof values.data === 'string') throw new Error('the values are text');
console.log('values:', values.data!.first, values.data!.value);

const params = { path: { name: 'report' } };
const lock = await service.POST('/lock/{name}', { params });
console.log('lock:', lock.response.status, lock.data!.name);
const refused = await service.POST('/lock/{name}', { params });
console.log('problem:', refused.error!.status, refused.error!.code, refused.error!.retryable);
const released = await service.DELETE('/lock/{name}', { params: { ...params, header: { 'Lease-Token': lock.data!.lease } } });
console.log('release:', released.response.status);
