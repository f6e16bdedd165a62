// Makes N calls of one client, and one more after the service closed its connection:
// node kept.mjs URL N. It prints the milliseconds of a call.

import { Client } from '../../clients/node/index.mjs';

const [url, n] = process.argv.slice(2);
const client = new Client(url, 60);
await client.incr('orders');
const began = performance.now();
for (let i = 0; i < n; i++) await client.incr('orders');
console.log(((performance.now() - began) / n).toFixed(3));
await new Client(url, 60).incr('close');
await client.incr('orders');
