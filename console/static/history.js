// What passed through this server process in the last hour, as the server remembers it: asked for
// once as a whole, and then only for its newest part.

import { get, query } from './api.js';

const all = 720; // points

class History extends EventTarget {
  until = 0; // end of the newest point, in milliseconds
  step = 5000;
  series = {};
  doubt = null; // operations in doubt now, of the whole store; null = that is not known
  #asked = 0;

  async load(signal) {
    const n = this.until ? Math.min(all, Math.ceil((performance.now() - this.#asked) / this.step) + 2) : all;
    const answer = await get(query('console/api/history', { n }), { signal });
    this.#asked = performance.now();
    const until = Date.parse(answer.until);
    const passed = Math.round((until - this.until) / this.step);
    if (this.until && passed > n) {
      this.until = 0; // this machine slept, and performance.now with it
      await this.load(signal);
      return;
    }
    for (const [name, points] of Object.entries(answer.series)) {
      // a process that has fewer points than asked for began a moment ago
      const known = points.length < n ? [] : (this.series[name] ?? []);
      this.series[name] = [...known.slice(0, Math.max(known.length + passed - points.length, 0)), ...points].slice(-all);
    }
    [this.until, this.step] = [until, answer.step_ms];
    this.doubt = answer.in_doubt ?? null;
    this.dispatchEvent(new Event('change'));
  }

  // forget is for another session.
  forget() {
    [this.until, this.series, this.doubt] = [0, {}, null];
  }

  // whole are the points of steps that have ended.
  whole(name) {
    return (this.series[name] ?? []).slice(0, -1);
  }

  // rates are the points of whole steps per second.
  rates(name) {
    return this.whole(name).map((n) => (n * 1000) / this.step);
  }

  sum(name, ms = 3_600_000) {
    return (this.series[name] ?? []).slice(-Math.ceil(ms / this.step)).reduce((sum, n) => sum + n, 0);
  }

  // shown is how much of the hour a plot shows, in milliseconds: less of a process that began.
  shown() {
    return Math.min(Math.max((this.series.counters?.length ?? 0) * this.step, 300_000), 3_600_000);
  }

  // parts are the sums of n equal parts of the hour, the newest last; null where nothing is known.
  parts(name, n) {
    const points = this.series[name] ?? [];
    const size = all / n;
    return Array.from({ length: n }, (_, i) => {
      const part = points.slice(Math.max(points.length - (n - i) * size, 0), Math.max(points.length - (n - 1 - i) * size, 0));
      return part.length ? part.reduce((sum, one) => sum + one, 0) : null;
    });
  }
}

export const history = new History();
