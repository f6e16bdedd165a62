// One request and its answer, over node:http.

import http from 'node:http';
import https from 'node:https';

import { Unavailable, UnknownOutcome } from './errors.mjs';

const MOST = 16 << 20; // bytes of an answer that are read
// bytes from which on a body waits until the service accepts it: one that refuses it unread closes
// the connection, and its answer would be lost
const LARGE = 128 << 10;

/**
 * One exchange. Before a connection is there nothing can have been done; after that it is not known
 * unless an answer comes.
 */
export function send(url, method, path, headers, body, timeout) {
  const secure = url.protocol === 'https:';
  return new Promise((resolve, reject) => {
    let connected = false;
    const fail = (error) => {
      const reason = error.code ?? error.name;
      reject(connected ? new UnknownOutcome('unknown-outcome', `no answer: ${reason}`) : new Unavailable('unavailable', `no connection: ${reason}`));
    };
    const options = { method, path, headers, agent: false, signal: AbortSignal.timeout(Math.ceil(timeout)) };
    if (headers['Content-Length'] > LARGE) headers.Expect = '100-continue';
    const request = (secure ? https : http).request(url, options);
    request.on('socket', (socket) => socket.once(secure ? 'secureConnect' : 'connect', () => (connected = true)));
    request.on('error', fail);
    // nobody asked for it: without a listener the promise would stay open
    request.on('upgrade', (_, socket) => {
      socket.destroy();
      fail(new Error('another protocol'));
    });
    if (headers.Expect) {
      const sendBody = () => request.writableEnded || request.end(body);
      const unasked = setTimeout(sendBody, 1000); // not every proxy answers that
      request.on('continue', sendBody);
      for (const event of ['continue', 'response', 'close']) request.on(event, () => clearTimeout(unasked));
    } else {
      request.end(body);
    }
    request.on('response', (response) => {
      const parts = [];
      let size = 0;
      response.on('error', fail);
      response.on('data', (part) => {
        size += part.length;
        if (size > MOST) response.destroy(new Error('too long'));
        parts.push(part);
      });
      response.on('end', () => {
        const { 'content-type': type = '', 'retry-after': wait } = response.headers;
        resolve({ status: response.statusCode, type, wait, text: Buffer.concat(parts).toString() });
        if (!request.writableEnded) request.destroy(); // its body is not wanted
      });
    });
  });
}
