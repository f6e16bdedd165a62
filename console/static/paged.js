// A list of names that the server pages and searches: it asks only for the visible page, and again
// while that is visible.

import { get, query } from './api.js';
import { announce, el, field } from './dom.js';
import { Poller } from './poll.js';
import { clock, number, plural } from './text.js';

const typing = 250; // milliseconds after the last key

export class Paged extends HTMLElement {
  // The settings of a list: path and member of the answer, the words for its entries, and how often
  // it asks.
  path = '';
  member = '';
  word = '';
  plural = '';
  label = 'Names that begin with';
  pattern = '[A-Za-z0-9._:~@\\-]*';
  period = 2000;

  #cursors = ['']; // of the pages up to this one
  #next = '';
  #timer = 0;
  #announce = true;
  #shown = 0;
  #at = ''; // when the list was that

  connectedCallback() {
    this.begins = el('input', { type: 'search', autocomplete: 'off', spellcheck: 'false', maxlength: '200', pattern: this.pattern, oninput: () => this.#search() });
    this.size = el('select', { onchange: () => this.#go(['']) }, ...[25, 50, 100].map((n) => el('option', { value: n, selected: n === 50 }, n)));
    this.back = el('button', { type: 'button', onclick: () => this.#go(this.#cursors.slice(0, -1)) }, 'Previous');
    this.forth = el('button', { type: 'button', onclick: () => this.#go([...this.#cursors, this.#next]) }, 'Next');
    this.count = el('span', { class: 'count' });
    this.trouble = el('p', { class: 'trouble', hidden: true });
    this.append(
      ...this.head(),
      el('form', { class: 'search', role: 'search', onsubmit: (event) => event.preventDefault() }, field(this.label, this.begins), field('On a page', this.size)),
      this.trouble,
      this.list(),
      el('nav', { class: 'pager', 'aria-label': 'Pages' }, this.back, this.count, this.forth),
    );
    this.poller = new Poller(this.period, (signal) => this.#load(signal));
    this.poller.start();
  }

  disconnectedCallback() {
    clearTimeout(this.#timer);
    this.poller.stop();
  }

  // head stands above the search; list shows the entries, and show fills it.
  head() {
    return [];
  }

  #search() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#go(['']), typing);
  }

  #go(cursors) {
    this.#cursors = cursors;
    this.#announce = true;
    this.poller.renew();
  }

  async #load(signal) {
    if (!this.begins.validity.valid) {
      this.#complain('Names have letters, digits and . _ : ~ @ - only.');
      return;
    }
    const cursor = this.#cursors.at(-1);
    try {
      const answer = await get(query(this.path, { prefix: this.begins.value, cursor, n: this.size.value }), { signal });
      const things = answer[this.member] ?? [];
      this.#next = answer.next ?? '';
      this.trouble.hidden = true;
      this.#tell(this.show(things, answer) ?? things.length); // show returns how many, if others than these
    } catch (error) {
      if (error.name !== 'AbortError') this.#complain(error.message);
      throw error;
    }
  }

  #tell(n) {
    [this.#shown, this.#at] = [n, clock(new Date().toISOString())];
    this.classList.remove('stale');
    const page = this.#cursors.length;
    const more = this.#next ? ', and more after them' : '';
    this.count.textContent = n === 0 ? `No ${this.#words}${this.begins.value ? ' of such a name' : ' yet'}` : `Page ${page}: ${n === 1 ? plural(n, this.word) : `${number(n)} ${this.#words}`}${more}`;
    this.lock(this.back, page === 1);
    this.lock(this.forth, !this.#next);
    if (this.#announce) announce(this.count.textContent);
    this.#announce = false;
  }

  get #words() {
    return this.plural || `${this.word}s`;
  }

  // lock disables a button but keeps it in the keyboard's order.
  lock(button, locked) {
    button.disabled = locked;
  }

  // complain says what is wrong, and how old the list is: an empty one says nothing any more.
  #complain(text) {
    this.trouble.textContent = text;
    this.trouble.hidden = false;
    this.count.textContent = this.#shown ? `As of ${this.#at} UTC` : '';
    this.classList.add('stale');
  }
}

// Rows keeps the rows of a table by name, so that a row stays the same element while its thing is
// on the page: a focused button keeps the focus.
export class Rows {
  #rows = new Map();

  constructor(body, make) {
    this.body = body;
    this.make = make;
  }

  show(things, nameOf) {
    const seen = new Set();
    let before = null;
    for (const thing of things) {
      const name = nameOf(thing);
      seen.add(name);
      let row = this.#rows.get(name);
      if (!row) {
        row = this.make(thing);
        this.#rows.set(name, row);
      }
      const place = before ? before.nextSibling : this.body.firstChild;
      if (place !== row.element) this.body.insertBefore(row.element, place);
      before = row.element;
      row.update(thing);
    }
    for (const [name, row] of this.#rows) {
      if (seen.has(name)) continue;
      row.element.remove();
      this.#rows.delete(name);
    }
  }

  get all() {
    return [...this.#rows.values()];
  }
}
