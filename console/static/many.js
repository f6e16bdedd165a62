// Operations in doubt of one route that are settled together: exactly those that were shown, each
// by a request of its own.

import { call, get, query } from './api.js';
import { DoubtRow, doubts } from './doubt.js';
import { announce, bar, el, field, say, table } from './dom.js';
import { Settlement } from './settlement.js';
import { moment, number, plural } from './text.js';

const atOnce = 1000; // on a page of the list, the most that the server takes

class Many extends HTMLElement {
  #reading = null;
  #stopped = false;

  connectedCallback() {
    this.append(el('details', { ontoggle: (event) => event.target.open && this.#open() }, el('summary', {}, 'Settle many at once')));
  }

  // open makes the form at the first opening.
  #open() {
    if (this.choice) {
      this.#read();
      return;
    }
    this.route = el('select', { required: true });
    this.since = el('input', { type: 'datetime-local', step: '1' });
    this.until = el('input', { type: 'datetime-local', step: '1' });
    this.choice = el('form', { class: 'search', onsubmit: (event) => this.#show(event), oninput: () => this.#clear() },
      field('Route or scope', this.route), field('Since (UTC)', this.since, 'In doubt since then, or later. Empty: all.'), field('Until (UTC)', this.until, 'In doubt since before then. Empty: all.'),
      el('button', { type: 'submit' }, 'Show them'));
    this.trouble = el('p', { class: 'trouble', role: 'alert' });
    this.shown = el('div');
    this.firstChild.append(this.choice, this.trouble, this.shown);
    this.#read();
  }

  // clear takes away what was shown, which is not what is chosen now.
  #clear() {
    this.#reading = null;
    this.shown.replaceChildren();
  }

  // read returns all operations in doubt, and offers their routes. It returns null if something
  // else was chosen meanwhile, or if it fails.
  async #read() {
    const mine = {};
    this.#reading = mine;
    this.trouble.textContent = '';
    try {
      const all = await inDoubt();
      if (this.#reading !== mine) return null;
      const chosen = this.route.value;
      const routes = [...new Set(all.map(routeOf))].sort();
      this.route.replaceChildren(el('option', { value: '' }, 'Choose…'), ...routes.map((route) => el('option', { value: JSON.stringify(route) }, route || 'without one')));
      this.route.value = routes.some((route) => JSON.stringify(route) === chosen) ? chosen : '';
      return all;
    } catch (error) {
      if (this.#reading === mine) this.trouble.textContent = error.message;
      return null;
    }
  }

  async #show(event) {
    event.preventDefault();
    this.#clear();
    const route = JSON.parse(this.route.value);
    const [since, until] = [time(this.since, -Infinity), time(this.until, Infinity)];
    const all = await this.#read();
    if (!all) return;
    const list = all.filter((operation) => routeOf(operation) === route && Date.parse(operation.since) >= since && Date.parse(operation.since) < until);
    const found = `${list.length ? plural(list.length, 'operation') : 'No operations'} in doubt of ${route || 'no route'}`;
    announce(found);
    if (list.length === 0) {
      this.shown.replaceChildren(el('p', {}, `${found}.`));
      return;
    }
    const rows = doubts(found);
    rows.body.append(...list.map((operation) => new DoubtRow(operation).element));
    const settlement = new Settlement();
    this.shown.replaceChildren(
      rows.frame,
      el('p', { class: 'hint' }, 'Say what you have found. It is recorded for each of them, and for no operation that comes into doubt later.'),
      el('form', { class: 'settle', onsubmit: (submitted) => this.#ask(submitted, list, route, settlement) }, ...settlement.fields, el('button', { type: 'submit', class: 'danger' }, 'Settle all shown')),
    );
  }

  async #ask(event, list, route, settlement) {
    event.preventDefault();
    const since = [['In doubt since', `${moment(list[0].since)} to ${moment(list.at(-1).since)}`]];
    if (await settlement.confirmed(`${plural(list.length, 'operation')} of ${route || 'no route'}`, since)) this.#settle(list, settlement.json(), settlement.text);
  }

  // settle settles one after the other, until all are, the operator stops it or leaves the view, or
  // the server does not answer. Nothing else can be chosen meanwhile.
  async #settle(list, json, text) {
    const progress = bar();
    const stop = el('button', { type: 'button', onclick: () => (this.#stopped = true) }, 'Stop');
    this.#stopped = false;
    this.choice.hidden = true;
    this.shown.replaceChildren(el('p', {}, progress.element), el('p', {}, stop));
    stop.focus();
    progress.show(0, list.length);
    const left = [];
    let [done, trouble] = [0, ''];
    for (; done < list.length && !trouble && !this.#stopped && this.isConnected; done++) {
      try {
        const why = await settled(list[done], json);
        if (why) left.push([list[done], why]);
      } catch (error) {
        trouble = error.message;
        left.push([list[done], error.unknown ? 'It is not known whether it is settled. Settling it again the same way is harmless.' : error.message]);
      }
      progress.show(done + 1, list.length);
    }
    left.push(...list.slice(done).map((operation) => [operation, 'Not settled: it was stopped before.']));
    const result = `${number(list.length - left.length)} of ${plural(list.length, 'operation')} settled: ${text}.${left.length ? ` ${number(left.length)} left.` : ''}`;
    say(trouble ? `${trouble} ${result}` : result, Boolean(trouble));
    this.choice.hidden = false;
    this.#report(result, left);
    this.dispatchEvent(new Event('settled'));
  }

  #report(result, left) {
    const title = el('h2', { tabindex: '-1' }, result);
    const rows = table('Operations that are left', [{ name: 'Operation' }, { name: 'Request' }, { name: 'Why' }]);
    rows.body.append(...left.map(([{ operation, request_id: request }, why]) => el('tr', {},
      el('th', { scope: 'row', class: 'name' }, el('a', { href: `#/doubt/${encodeURIComponent(operation)}` }, operation)), el('td', {}, request || '–'), el('td', {}, why))));
    this.shown.replaceChildren(title, ...(left.length ? [rows.frame] : []));
    title.focus();
  }
}

// inDoubt returns all operations in doubt, the oldest first.
async function inDoubt() {
  const all = new Map(); // an operation that comes into doubt again meanwhile is listed twice
  let cursor = '';
  do {
    const page = await get(query('operation?state=in-doubt', { cursor, n: atOnce }));
    for (const operation of page.operations) all.set(operation.operation, operation);
    cursor = page.next;
  } while (cursor);
  return [...all.values()];
}

function routeOf(operation) {
  return operation.route ?? '';
}

// time returns the time of a field in milliseconds, or what an empty one means.
function time(input, empty) {
  return input.value ? Date.parse(`${input.value}Z`) : empty;
}

const leaves = ['attempt-running', 'not-in-doubt', 'operation-unknown'];

// settled settles an operation, and returns '', or why it is left.
async function settled(shown, json) {
  const path = `operation/${encodeURIComponent(shown.operation)}`;
  try {
    const why = changed(shown, await patiently(() => get(path)));
    if (!why) await patiently(() => call('POST', `${path}/settle`, { json }));
    return why;
  } catch (error) {
    if (leaves.includes(error.code)) return error.message;
    throw error;
  }
}

// changed returns how an operation differs from what was shown: the decision was not about that.
function changed(shown, now) {
  if (now.state === 'claimed') return 'An attempt is running.';
  if (now.state !== 'in-doubt') return `Not in doubt any more: it is ${now.state}.`;
  return now.fence === shown.fence ? '' : 'Another attempt came into doubt, which was not shown.';
}

// patiently makes a call, and again after each wait that a rate limit asks for.
async function patiently(make) {
  for (;;) {
    try {
      return await make();
    } catch (error) {
      if (error.status !== 429) throw error;
      await new Promise((resume) => setTimeout(resume, error.retryAfter || 1000));
    }
  }
}

customElements.define('cc-many', Many);
