// One request and its answer, over node:http, and the connections that are kept for more.

import http from 'node:http';
import https from 'node:https';
import { setImmediate as turn } from 'node:timers/promises';
import { urlToHttpOptions } from 'node:url';

import { Unavailable, UnknownOutcome } from './errors.mjs';
import { now, passed } from './lease.mjs';

export const MOST = 16 << 20; // bytes of an answer that are read

// How many connections a client keeps without a request, and for how many ms: each less than the
// two minutes after which a service closes them, and from the first request on no longer than AGE,
// so that a service with another address is found.
export const KEPT = 8;
export const IDLE = 30_000;
export const AGE = 60_000;

// bytes from which on a body waits until the service accepts it: one that refuses it unread closes
// the connection, and its answer would be lost
const LARGE = 128 << 10;

/** The connections of one client. Each request has a connection to itself. */
export class Connections {
  #url;
  #kept = []; // the last used is at the end
  #most = KEPT;

  constructor(url) {
    this.#url = url;
  }

  /** Ends the connections that are kept, and keeps none from now on. */
  close() {
    this.#most = 0;
    this.#drop();
  }

  /**
   * One exchange. Before it is sent nothing can have been done: a kept connection that the other
   * side has closed is found by then, and another is opened. After that it is not known unless an
   * answer comes.
   */
  async send(method, path, headers, body, timeout) {
    const signal = AbortSignal.timeout(Math.ceil(timeout));
    const connection = (await this.#take()) ?? new Connection(this.#url, (freed) => this.#put(freed));
    return connection.exchange({ method, path, headers, signal }, body);
  }

  /** A connection that is kept and still good. */
  async #take() {
    for (let connection; (connection = this.#kept.pop()); connection.close()) {
      // once the event loop has waited for events, what came until now is known
      await turn();
      await turn();
      if (connection.isGood()) return connection;
    }
    return undefined;
  }

  #put(connection) {
    this.#kept.push(connection);
    this.#drop();
  }

  /** Closes what is too much, the longest unused first. */
  #drop() {
    while (this.#kept.length > this.#most) this.#kept.shift().close();
  }
}

/** One connection, for one request after the other: an agent that has no more. */
class Connection {
  #web;
  #service;
  #agent;
  #socket;
  #opened = now();
  #used;
  #spare = IDLE; // ms for which it may be kept
  #read; // bytes of all answers

  /** free is called with the connection when another request may be sent. */
  constructor(url, free) {
    this.#web = url.protocol === 'https:' ? https : http;
    // not the URL itself: https of Node 18 takes the path of that
    const { protocol, hostname, port, auth } = urlToHttpOptions(url);
    this.#service = { protocol, hostname, port, auth };
    const { Agent } = this.#web;
    this.#agent = new Agent({ keepAlive: true, maxSockets: 1, maxCachedSessions: 0, timeout: IDLE });
    this.#agent.keepSocketAlive = (socket) => {
      if (!Agent.prototype.keepSocketAlive.call(this.#agent, socket)) return false;
      this.#socket = socket;
      this.#read = socket.bytesRead;
      this.#used = now();
      free(this);
      return true;
    };
  }

  close() {
    this.#agent.destroy();
  }

  /**
   * Reports whether a request may be sent: the other side has sent nothing since its last answer,
   * not even that it has closed.
   */
  isGood() {
    const { destroyed, readableEnded, bytesRead } = this.#socket;
    return !destroyed && !readableEnded && bytesRead === this.#read && passed(this.#used) < this.#spare && passed(this.#opened) < AGE;
  }

  /** Sends a request and reads its answer. node:http follows no redirect and repeats nothing. */
  exchange(options, body) {
    return new Promise((resolve, reject) => {
      let connected = false;
      const fail = (error) => {
        const reason = error.code ?? error.name;
        reject(connected ? new UnknownOutcome('unknown-outcome', `no answer: ${reason}`) : new Unavailable('unavailable', `no connection: ${reason}`));
      };
      const { headers } = options;
      if (headers['Content-Length'] > LARGE) headers.Expect = '100-continue';
      const request = this.#web.request({ ...this.#service, ...options, agent: this.#agent });
      request.on('socket', (socket) => {
        connected = request.reusedSocket;
        if (!connected) socket.once(this.#web === https ? 'secureConnect' : 'connect', () => (connected = true));
      });
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
          const { 'content-type': type = '', 'retry-after': wait, 'keep-alive': told = '' } = response.headers;
          this.#spare = spareOf(told);
          resolve(freed(request, { status: response.statusCode, type, wait, text: Buffer.concat(parts).toString() }));
        });
      });
    });
  }
}

/** The answer to a request, once another one may be sent. */
async function freed(request, answer) {
  if (!request.writableFinished) await turn(); // by TLS the end of a write is told late
  if (!request.writableFinished) request.destroy(); // its body is not wanted
  return answer;
}

/** ms to keep a connection: less than the other side says that it keeps it. */
function spareOf(told) {
  const [, seconds = Infinity] = /^timeout=(\d+)/.exec(told) ?? [];
  return Math.min(IDLE, (seconds - 1) * 1000);
}
