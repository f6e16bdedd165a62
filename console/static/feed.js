// The live feed: GET /events, read with fetch, since EventSource cannot send a key.

import { may, parse, refusal, request } from './api.js';

const backlog = 200; // events of before that are asked for

// Feed dispatches "event", "missed", "tally" and "hello" with their messages as detail, and "state"
// when it begins or ends to listen.
class Feed extends EventTarget {
  state = 'off'; // off, waiting, live
  tally = {};
  hello = null;
  #last = '';
  #abort = null;
  #retry = 0;
  #failures = 0;
  #hide = 0;

  constructor() {
    super();
    document.addEventListener('visibilitychange', () => {
      clearTimeout(this.#hide);
      if (!document.hidden) this.start();
      else this.#hide = setTimeout(() => this.stop(), 30_000); // what happens until somebody looks again is fetched then
    });
  }

  start() {
    if (this.#abort || !may('read')) return;
    clearTimeout(this.#retry);
    this.#abort = new AbortController();
    this.#listen(this.#abort.signal);
  }

  stop() {
    clearTimeout(this.#retry);
    this.#abort?.abort();
    this.#abort = null;
    this.#set('off');
  }

  // restart begins anew, for another session.
  restart() {
    this.stop();
    this.#last = '';
    this.start();
  }

  #set(state) {
    if (this.state === state) return;
    this.state = state;
    this.dispatchEvent(new Event('state'));
  }

  async #listen(signal) {
    let wait = 1000;
    try {
      const response = await request('GET', `events?backlog=${backlog}`, { headers: this.#last ? { 'Last-Event-ID': this.#last } : {}, signal });
      if (!response.ok) {
        const problem = refusal(response, await response.json().catch(() => null));
        if (problem.status === 401 || problem.status === 403) wait = Infinity;
        else wait = Math.max(wait, problem.retryAfter);
        throw problem;
      }
      this.#failures = 0;
      this.#set('live');
      await this.#read(response.body);
    } catch (error) {
      if (signal.aborted) return;
      this.#failures++;
      wait = Math.max(wait, Math.min(1000 * 2 ** this.#failures, 15_000));
    }
    if (signal.aborted) return;
    this.#abort = null;
    this.#set('waiting');
    if (wait !== Infinity) this.#retry = setTimeout(() => this.start(), wait);
  }

  async #read(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split('\n\n');
      rest = blocks.pop();
      for (const block of blocks) this.#take(block);
    }
  }

  // take reads one message as the standard of server-sent events writes it.
  #take(block) {
    let type = 'event';
    let data = '';
    for (const line of block.split('\n')) {
      const at = line.indexOf(':');
      const [name, value] = at < 0 ? [line, ''] : [line.slice(0, at), line.slice(at + 1).replace(/^ /, '')];
      if (name === 'id') this.#last = value;
      else if (name === 'event') type = value;
      else if (name === 'data') data += value;
    }
    if (!data) return;
    const detail = parse(data);
    if (detail.tally) this.tally = detail.tally;
    if (type === 'hello') this.hello = detail;
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

export const feed = new Feed();
