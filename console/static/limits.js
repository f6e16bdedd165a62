// Rate limits: this server's numbers, and the state of one. Nothing lists them, since a limit that
// is not in use leaves nothing behind; its rate is stated by who asks.

import { call, may } from './api.js';
import { confirmed } from './confirm.js';
import { el, facts, field, say, setText, table } from './dom.js';
import { history } from './history.js';
import { Poller } from './poll.js';
import { Spark } from './spark.js';
import { left, number } from './text.js';

const kinds = [['allowed', 'Let through'], ['limited', 'Over a limit']];

class Limits extends HTMLElement {
  connectedCallback() {
    const whole = (value) => el('input', { type: 'number', min: '1', max: '1000000', required: true, value });
    this.limit = el('input', { type: 'text', autocomplete: 'off', spellcheck: 'false', maxlength: '200', pattern: '[A-Za-z0-9._:~@\\-]+', required: true });
    this.rate = whole('100');
    this.seconds = el('input', { type: 'number', min: '0.001', max: '31622400', step: 'any', required: true, value: '60' });
    this.burst = el('input', { type: 'number', min: '1', max: '1000000' });
    this.found = el('div', { class: 'detail' });
    const shown = table('Requests to rate limits in this server process', [{ name: 'What' }, { name: 'Last hour', class: 'number' }, { name: '', class: 'wide' }]);
    this.rows = kinds.map(([series, name]) => {
      const sum = el('td', { class: 'number' }, '–');
      const spark = new Spark();
      shown.body.append(el('tr', {}, el('th', { scope: 'row' }, name), sum, el('td', { class: 'wide' }, spark.drawing)));
      return { series, sum, spark };
    });
    this.append(el('h1', {}, 'Rate limits'), shown.frame);
    if (may('use')) {
      this.append(
        el('form', { class: 'search', onsubmit: (event) => this.#look(event) },
          field('Limit', this.limit), field('Rate', this.rate), field('in seconds', this.seconds), field('Burst', this.burst, 'none: as much as the rate'), el('button', { type: 'submit' }, 'Look up')),
        el('p', { class: 'hint' }, 'Nothing is taken. State the rate that its callers state: the answer is for that one.'));
    }
    this.append(this.found);
    this.poller = new Poller(5000, (signal) => history.load(signal));
    this.poller.start();
    this.draw = () => this.#draw();
    history.addEventListener('change', this.draw);
  }

  disconnectedCallback() {
    this.poller.stop();
    history.removeEventListener('change', this.draw);
  }

  #draw() {
    for (const { series, sum, spark } of this.rows) {
      const minutes = history.parts(series, 60).map((n) => n ?? 0);
      spark.show(minutes);
      setText(sum, number(minutes.reduce((all, n) => all + n, 0)));
    }
  }

  async #look(event) {
    event?.preventDefault();
    const name = this.limit.value.trim();
    const json = { rate: Number(this.rate.value), per_ms: Math.round(Number(this.seconds.value) * 1000), cost: 0 };
    if (this.burst.value) json.burst = Number(this.burst.value);
    try {
      const state = await call('POST', `limit/${encodeURIComponent(name)}`, { json });
      const buttons = may('admin') ? [el('button', { type: 'button', class: 'danger', onclick: () => this.#reset(name) }, 'Reset')] : [];
      this.found.replaceChildren(facts([['Can be taken at once', number(state.remaining)], ['All of it in', state.reset_ms ? left(state.reset_ms) : 'now']]), ...buttons);
      say(`${name}: ${number(state.remaining)} can be taken at once.`);
    } catch (error) {
      this.found.replaceChildren(el('p', { class: 'trouble' }, error.message));
      say(error.message, true);
    }
  }

  async #reset(name) {
    const question = { title: `Reset limit ${name}?`, text: 'What was taken is forgotten: the whole burst is free at once.', no: 'Leave it', yes: 'Reset it' };
    if (!(await confirmed(question))) return;
    try {
      await call('DELETE', `limit/${encodeURIComponent(name)}`);
    } catch (error) {
      say(error.unknown ? `${name}: it is not known whether it was reset. Resetting it again is harmless.` : `${name}: ${error.message}`, true);
      return;
    }
    this.#look();
  }
}

customElements.define('cc-limits', Limits);
