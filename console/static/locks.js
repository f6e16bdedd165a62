// Locks: the list of held locks, and one with its holders and its queue.

import { call, get, may } from './api.js';
import { confirmed } from './confirm.js';
import { el, facts, say, setText, table, when } from './dom.js';
import { Paged, Rows } from './paged.js';
import { Poller } from './poll.js';
import { left, number } from './text.js';

const tick = 500;

class Locks extends Paged {
  path = 'lock';
  member = 'locks';
  word = 'lock';

  head() {
    return [el('h1', {}, 'Locks'), el('p', { class: 'hint' }, 'A lock is listed from a quarter of a second after it was granted.')];
  }

  list() {
    const columns = [{ name: 'Lock' }, { name: 'Mode' }, { name: 'Holder' }, { name: 'Fence', class: 'number' }, { name: 'Left', class: 'number' }, { name: 'Waiting', class: 'number' }];
    const shown = table('Locks that are held', columns);
    this.rows = new Rows(shown.body, (lock) => new LockRow(lock));
    this.ticker = setInterval(() => !document.hidden && this.rows.all.forEach((row) => row.tick()), tick);
    return shown.frame;
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this.ticker);
  }

  show(locks) {
    this.rows.show(locks, (lock) => lock.name);
  }
}

// until returns the end of a lease by this page's clock; null = never.
function until(holder, lock) {
  return holder.until ? Date.parse(holder.until) - Date.parse(lock.server_time) + Date.now() : null;
}

function remaining(end) {
  return end === null ? 'for ever' : left(end - Date.now());
}

class LockRow {
  #cells = ['', '', 'number', 'number', 'number'].map((kind) => el('td', { class: kind || null }));
  #end = null;

  constructor({ name }) {
    this.element = el('tr', {}, el('th', { scope: 'row', class: 'name' }, el('a', { href: `#/locks/${encodeURIComponent(name)}` }, name)), ...this.#cells);
  }

  update(lock) {
    const [first, ...others] = lock.holders;
    this.held = Boolean(first);
    this.#end = first ? until(first, lock) : null;
    const [mode, holder, fence, , waiting] = this.#cells;
    setText(mode, lock.mode ? lock.mode + (lock.permits ? ` (${number(lock.permits)})` : '') : '–');
    setText(holder, first ? (first.owner || 'not named') + (others.length ? `, and ${number(others.length)} more` : '') : 'nobody');
    setText(fence, first?.fence ? String(first.fence) : '–');
    setText(waiting, number(lock.waiting));
    this.tick();
  }

  tick() {
    setText(this.#cells[3], this.held ? remaining(this.#end) : '–');
  }
}

class Lock extends HTMLElement {
  connectedCallback() {
    this.name = this.getAttribute('name');
    this.trouble = el('p', { class: 'trouble', hidden: true });
    this.summary = el('div');
    const columns = [{ name: 'Holder' }, { name: 'Fence', class: 'number' }, { name: 'Since' }, { name: 'Left', class: 'number' }, { name: 'Permits', class: 'number' }];
    if (may('admin')) columns.push({ name: 'Take away' });
    const holders = table('Who holds it', columns);
    this.holders = new Rows(holders.body, (holder) => new HolderRow(holder, this));
    const queue = table('Who waits, in order', [{ name: 'Place', class: 'number' }, { name: 'Who' }, { name: 'Mode' }, { name: 'Since' }]);
    this.queue = queue.body;
    this.append(el('p', {}, el('a', { href: '#/locks' }, '← All locks')), el('h1', {}, `Lock ${this.name}`), this.trouble, this.summary, holders.frame, queue.frame);
    this.poller = new Poller(1000, (signal) => this.#load(signal));
    this.poller.start();
    this.ticker = setInterval(() => !document.hidden && this.holders.all.forEach((row) => row.tick()), tick);
  }

  disconnectedCallback() {
    this.poller.stop();
    clearInterval(this.ticker);
  }

  async #load(signal) {
    try {
      this.#show(await get(`lock/${encodeURIComponent(this.name)}`, { signal }));
      this.trouble.hidden = true;
    } catch (error) {
      if (error.name !== 'AbortError') {
        this.trouble.textContent = error.message;
        this.trouble.hidden = false;
      }
      throw error;
    }
  }

  #show(lock) {
    this.summary.replaceChildren(facts([
      ['Mode', lock.mode || 'not held'], ['Permits', lock.permits ? number(lock.permits) : '–'], ['Last fence', lock.fence ? String(lock.fence) : '–'], ['Waiting', number(lock.waiting)],
    ]));
    this.holders.show(lock.holders.map((holder) => ({ ...holder, lock })), (holder) => `${holder.fence ?? 0} ${holder.since ?? ''}`);
    const waiting = (lock.queue ?? []).map((waiter, i) => el('tr', {}, el('th', { scope: 'row', class: 'number' }, i + 1), el('td', {}, waiter.owner || 'not named'), el('td', {}, waiter.mode + (waiter.take ? ` (${waiter.take})` : '')), el('td', {}, when(waiter.since))));
    if (lock.waiting > waiting.length) waiting.push(el('tr', {}, el('td', { colspan: '4' }, `and ${number(lock.waiting - waiting.length)} more`)));
    this.queue.replaceChildren(...waiting);
  }

  // take asks once more, and then takes the lock from its holder.
  async take(holder) {
    if (!(await confirmed(question(this.name, holder)))) return;
    try {
      const { fence } = await call('DELETE', `lock/${encodeURIComponent(this.name)}?force=${holder.fence ?? 0}`);
      say(`${this.name} was taken from ${holder.owner || 'its holder'}. Fences from ${fence} on are valid.`);
    } catch (error) {
      say(error.unknown ? `${this.name}: it is not known whether it was taken away. Look at who holds it.` : `${this.name}: ${error.message}`, true);
    }
    this.poller.now();
  }
}

class HolderRow {
  #left = el('td', { class: 'number' });
  #end = null;

  constructor(holder, view) {
    const who = holder.owner || 'not named';
    this.element = el('tr', {},
      el('th', { scope: 'row', class: 'name' }, who), el('td', { class: 'number' }, holder.fence ? String(holder.fence) : '–'), el('td', {}, when(holder.since)), this.#left,
      el('td', { class: 'number' }, holder.take ? number(holder.take) : '–'));
    if (!may('admin')) return;
    this.element.append(el('td', {}, el('button', { type: 'button', class: 'danger', onclick: () => view.take(holder), 'aria-label': `Force release: take it from ${who}` }, 'Force release')));
  }

  update(holder) {
    this.#end = until(holder, holder.lock);
    this.tick();
  }

  tick() {
    setText(this.#left, remaining(this.#end));
  }
}

// question asks whether to take a lock from its holder.
function question(name, holder) {
  return {
    title: `Take lock ${name} from ${holder.owner || 'its holder'}?`,
    text: `The holder with fence ${holder.fence ?? 0} learns of it at its next renewal and may work on until then. Only a resource that compares fences refuses it from now on. The lock goes to the next waiter.`,
    no: 'Leave it',
    yes: 'Force release',
  };
}

customElements.define('cc-locks', Locks);
customElements.define('cc-lock', Lock);
