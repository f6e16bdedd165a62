// Counters: value, how fast it rises, and a button that takes a value.

import { call, may } from './api.js';
import { el, say, setText, table } from './dom.js';
import { Paged, Rows } from './paged.js';
import { Spark } from './spark.js';
import { number, rate } from './text.js';

class Counters extends Paged {
  path = 'counter';
  member = 'counters';
  word = 'counter';

  head() {
    return [el('h1', {}, 'Counters')];
  }

  list() {
    const columns = [{ name: 'Counter' }, { name: 'Value', class: 'number' }, { name: 'Per second', class: 'number' }, { name: 'Lately', class: 'wide' }];
    if (may('use')) columns.push({ name: 'Take' });
    const shown = table('Counters and the last value that each has handed out', columns);
    this.rows = new Rows(shown.body, (counter) => new Row(counter, this));
    return shown.frame;
  }

  show(counters) {
    this.rows.show(counters, (counter) => counter.key);
  }
}

class Row {
  #value = el('td', { class: 'number' });
  #rate = el('td', { class: 'number' });
  #spark = new Spark();
  #last = null;
  #pending = ''; // names a request whose outcome is not known

  constructor({ key }, view) {
    this.key = key;
    this.view = view;
    this.element = el('tr', {}, el('th', { scope: 'row', class: 'name' }, key), this.#value, this.#rate, el('td', { class: 'wide' }, this.#spark.drawing));
    if (!may('use')) return;
    this.button = el('button', { type: 'button', 'aria-label': `INCR ${key}`, onclick: () => this.#take() }, 'INCR');
    this.element.append(el('td', {}, this.button));
  }

  update({ value, error }) {
    if (value === null) {
      setText(this.#value, error ?? 'unreadable');
      setText(this.#rate, '–');
      this.#last = null;
      return;
    }
    const now = performance.now();
    setText(this.#value, number(value));
    if (this.#last) {
      const perSecond = (Number(BigInt(value) - BigInt(this.#last.value)) * 1000) / (now - this.#last.at);
      setText(this.#rate, rate(perSecond));
      this.#spark.add(perSecond);
    } else {
      setText(this.#rate, '–');
    }
    this.#last = { value, at: now };
  }

  // take adds one. After a lost answer, the next click asks for the same value again.
  async #take() {
    this.#pending ||= crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`; // an address without TLS has no randomUUID
    this.button.setAttribute('aria-busy', 'true');
    try {
      const { value } = await call('POST', `incr/${encodeURIComponent(this.key)}`, { headers: { 'Idempotency-Key': this.#pending } });
      this.#pending = '';
      setText(this.#value, number(value));
      say(`${this.key}: ${number(value)} is yours`);
      this.view.poller.now();
    } catch (error) {
      if (!error.unknown) this.#pending = '';
      say(error.unknown ? `${this.key}: it is not known whether a value was taken. The next click asks for that same one.` : `${this.key}: ${error.message}`, true);
    } finally {
      this.button.removeAttribute('aria-busy');
    }
  }
}

customElements.define('cc-counters', Counters);
