// A service for tests, and clocks that they set.

import http from 'node:http';

/**
 * Runs a test with a service that answers each request by answer({method, url, headers, body}),
 * with the body as JSON: [status, body], or [status, body, media type].
 */
export async function withService(answer, run) {
  const server = http.createServer(async (request, response) => {
    const text = Buffer.concat(await request.toArray()).toString();
    const [status, body, type = 'application/json'] = await answer({ method: request.method, url: request.url, headers: request.headers, body: text && JSON.parse(text) });
    response.writeHead(status, { 'Content-Type': type }).end(body && JSON.stringify(body));
  });
  await new Promise((listens) => server.listen(0, '127.0.0.1', listens));
  try {
    return await run(`http://127.0.0.1:${server.address().port}`);
  } finally {
    await new Promise((closed) => server.close(closed));
  }
}

export const problem = (status, code) => [status, { code, detail: 'a detail' }, 'application/problem+json'];

/** Runs a test with a monotonic and a wall clock in ms that only pass moves, both or one. */
export async function withClocks(run) {
  const real = { monotonic: performance.now, wall: Date.now };
  const clocks = { monotonic: 1e6, wall: 1.8e12, pass: (monotonic, wall = monotonic) => { clocks.monotonic += monotonic; clocks.wall += wall; } };
  performance.now = () => clocks.monotonic;
  Date.now = () => clocks.wall;
  try {
    return await run(clocks);
  } finally {
    performance.now = real.monotonic;
    Date.now = real.wall;
  }
}
