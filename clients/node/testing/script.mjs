// A server that answers by a script, and keeps what it was asked.

import http from 'node:http';
import net from 'node:net';

const CREDENTIALS = ['Authorization', 'Lease-Token', 'Idempotency-Key'];

/**
 * Serves the replies in order, as clients/cases.json describes them, to run(port). It returns
 * {wanted, asked}: the requests of the case with their secrets, and those that came.
 */
export async function scripted(replies, requests, run) {
  const asked = [];
  const secrets = {};
  const left = [...replies];
  const server = http.createServer(async (request, response) => {
    const text = Buffer.concat(await request.toArray()).toString();
    const url = new URL(request.url, 'http://host');
    const headers = Object.fromEntries(CREDENTIALS.filter((name) => name.toLowerCase() in request.headers).map((name) => [name, request.headers[name.toLowerCase()]]));
    const got = { method: request.method, path: url.pathname, query: Object.fromEntries(url.searchParams), headers, body: text ? JSON.parse(text) : {} };
    learn(requests[asked.length], got, secrets);
    asked.push(got);
    const reply = left.shift() ?? { fault: 'lost' };
    faults[reply.fault ?? 'whole'](response, reply, secrets);
  });
  await listening(server);
  try {
    await run(server.address().port);
  } finally {
    server.closeAllConnections();
    await new Promise((closed) => server.close(closed));
  }
  return { wanted: filled(requests, secrets), asked };
}

const listening = (server) => new Promise((listens) => server.listen(0, '127.0.0.1', listens));

/** A port where nothing listens. */
export async function closedPort() {
  const server = net.createServer();
  await listening(server);
  const { port } = server.address();
  await new Promise((closed) => server.close(closed));
  return port;
}

const faults = {
  whole(response, { status, type = 'application/json', headers = {}, body = '' }, secrets) {
    const text = typeof body === 'string' ? body : JSON.stringify(filled(body, secrets));
    response.writeHead(status, { 'Content-Type': type, Connection: 'close', ...headers }).end(status === 204 ? undefined : text);
  },
  lost: (response) => response.destroy(),
  cut(response) {
    response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': 100 });
    response.write('{"key":"ord', () => response.destroy());
  },
  silent() {},
  switched({ socket }) {
    socket.on('error', () => {});
    socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n');
  },
  slow({ socket }) {
    socket.on('error', () => {});
    socket.write('HTTP/1.1 200 OK\r\nX-A: ');
    const drip = setInterval(() => socket.write('a'), 20);
    socket.on('close', () => clearInterval(drip));
  },
};

const SECRET = /<secret:(\w+)>/g;

/** Notes the secrets of a request, by its place in the case's. */
function learn(wanted, got, secrets) {
  if (wanted !== null && typeof wanted === 'object') {
    for (const name of Object.keys(wanted)) learn(wanted[name], got?.[name], secrets);
  } else if (typeof wanted === 'string' && /^[\w-]{22}$/.test(got)) {
    const [, name] = /^<secret:(\w+)>$/.exec(wanted) ?? [];
    if (name) secrets[name] ??= got;
  }
}

const filled = (value, secrets) => JSON.parse(JSON.stringify(value).replace(SECRET, (text, name) => secrets[name] ?? text));
