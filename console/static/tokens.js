// One-use tokens: this server's numbers, and the state of one. Only the field holds a token that is
// looked up, until the view is left.

import { get } from './api.js';
import { el, facts, field, say, setText, table, when } from './dom.js';
import { feed } from './feed.js';
import { history } from './history.js';
import { Poller } from './poll.js';
import { readiness } from './readiness.js';
import { Spark } from './spark.js';
import { moment, number, plural } from './text.js';

const kinds = [
  ['token.issued', 'issued', 'Issued', 'by POST /token'],
  ['operation.claimed', 'claimed', 'Claimed', 'an attempt began'],
  ['operation.replayed', 'replayed', 'Replayed', 'a caller came again and got the recorded answer'],
  ['operation.completed', 'completed', 'Completed', 'the answer of an attempt was recorded'],
  ['operation.released', 'released', 'Released', 'over HTTP: an attempt never began'],
  ['operation.in-doubt', 'operations_in_doubt', 'Repeats refused', 'a caller came again, and the first attempt had ended without an answer'],
];

const meaning = {
  issued: 'It has not been used yet.',
  claimed: 'An attempt is running.',
  completed: 'Its answer is recorded: every repeat gets it.',
  'in-doubt': 'An attempt began and ended without an answer. It may have had its effect: look at the effect itself.',
  refused: 'An operator has closed it: no request begins. It may be settled otherwise.',
};

class Tokens extends HTMLElement {
  connectedCallback() {
    this.input = el('input', { type: 'text', autocomplete: 'off', spellcheck: 'false', autocapitalize: 'none', maxlength: '255', required: true });
    this.found = el('div', { class: 'detail' });
    const shown = table('Tokens in this server process since it began', [{ name: 'What' }, { name: 'How often', class: 'number' }, { name: 'Last hour', class: 'wide' }, { name: 'Meaning', class: 'wide' }]);
    this.rows = kinds.map(([kind, series, name, text]) => {
      const value = el('td', { class: 'number' }, '–');
      const spark = new Spark();
      shown.body.append(el('tr', {}, el('th', { scope: 'row' }, name), value, el('td', { class: 'wide' }, spark.drawing), el('td', { class: 'wide' }, text)));
      return { kind, series, value, spark };
    });
    this.scope = el('p', { class: 'hint' });
    this.doubt = el('p', { class: 'doubt' });
    this.append(
      el('h1', {}, 'Tokens'),
      this.doubt,
      el('form', { class: 'search', onsubmit: (event) => this.#look(event) }, field('Token', this.input, 'It is sent to this server only, and kept nowhere.'), el('button', { type: 'submit' }, 'Look up')),
      this.found, shown.frame, this.scope,
    );
    this.poller = new Poller(5000, (signal) => history.load(signal));
    this.poller.start();
    this.draw = () => this.#draw();
    history.addEventListener('change', this.draw);
    this.tell = () => this.#showDoubt();
    readiness.addEventListener('change', this.tell);
    this.listen = () => this.#tally();
    feed.addEventListener('hello', this.listen);
    feed.addEventListener('tally', this.listen);
    feed.addEventListener('event', this.listen);
    this.#tally();
    if (history.until) this.#draw();
  }

  disconnectedCallback() {
    this.poller.stop();
    history.removeEventListener('change', this.draw);
    readiness.removeEventListener('change', this.tell);
    for (const type of ['hello', 'tally', 'event']) feed.removeEventListener(type, this.listen);
    this.input.value = '';
  }

  #tally() {
    for (const row of this.rows) {
      const n = feed.tally[row.kind];
      if (n !== undefined) setText(row.value, number(n));
    }
    if (feed.hello) setText(this.scope, `Only what passed through this server process since ${moment(feed.hello.since)}. Others count their own.`);
  }

  #draw() {
    this.#showDoubt();
    for (const row of this.rows) row.spark.show(history.parts(row.series, 60).map((n) => n ?? 0));
  }

  // showDoubt shows how many are in doubt, in the whole store and whether or not they come again.
  #showDoubt() {
    const { doubt } = history;
    const n = doubt?.operations;
    const many = n === undefined ? 'It is not known how many operations are in doubt now: ' : `In doubt ${readiness.well ? 'now' : 'when that was last known'}: ${number(n)}${n ? ', the oldest since ' : '. '}`;
    this.doubt.classList.toggle('bad', n > 0);
    this.doubt.replaceChildren(many, ...(n && doubt.since ? [when(doubt.since), '. '] : []), el('a', { href: '#/doubt' }, 'Operations in doubt'), ', and how they are settled.');
  }

  async #look(event) {
    event.preventDefault();
    const token = this.input.value.trim();
    try {
      const status = await get(`token/${encodeURIComponent(token)}`);
      const leased = status.state === 'claimed' && status.lease_until ? [['Attempt may be silent until', when(status.lease_until)]] : [];
      this.found.replaceChildren(
        el('p', {}, el('strong', { class: `state ${status.state}` }, status.state), ` ${meaning[status.state] ?? ''}`),
        facts([['Attempts', number(status.attempts)], ['Fence', status.fence ? String(status.fence) : '–'], ['Scope', status.scope || '–'], ['Expires', when(status.expires_at)], ...leased]),
      );
      say(`The token is ${status.state}, after ${plural(status.attempts, 'attempt')}.`);
    } catch (error) {
      this.found.replaceChildren(el('p', { class: 'trouble' }, error.message));
      say(error.message, true);
    }
  }
}

customElements.define('cc-tokens', Tokens);
