// Operations in doubt: their list, and one with the steps that end its doubt. An operator's input
// goes to the server only.

import { call, get, may } from './api.js';
import { el, facts, say, table, when } from './dom.js';
import { Paged, Rows } from './paged.js';
import { Settlement } from './settlement.js';
import { left, number, plural } from './text.js';

class Doubts extends Paged {
  path = 'operation?state=in-doubt';
  member = 'operations';
  word = 'operation in doubt';
  plural = 'operations in doubt';
  period = 5000;
  label = 'Name or scope that begins with';
  pattern = '.*';

  head() {
    return [
      el('h1', {}, 'In doubt'),
      el('p', { class: 'hint' }, 'An attempt began and ended without an answer: only the records of the service show whether it had its effect. Until an operator settles it, every repeat is refused.'),
      may('admin') ? el('cc-many', { onsettled: () => this.poller.now() }) : '',
    ];
  }

  list() {
    const shown = doubts('Operations in doubt, the oldest first');
    this.rows = new Rows(shown.body, (operation) => new DoubtRow(operation));
    return shown.frame;
  }

  show(operations) {
    this.rows.show(operations, (operation) => operation.operation);
  }
}

// doubts makes a table for rows of operations in doubt.
export function doubts(caption) {
  return table(caption, [{ name: 'Operation' }, { name: 'Route or scope' }, { name: 'Since' }, { name: 'Ran for', class: 'number' }, { name: 'Attempts', class: 'number' }, { name: 'Request' }]);
}

export class DoubtRow {
  constructor(operation) {
    const ran = operation.ran_for_ms === undefined ? '?' : left(operation.ran_for_ms);
    this.element = el('tr', {},
      el('th', { scope: 'row', class: 'name' }, el('a', { href: `#/doubt/${encodeURIComponent(operation.operation)}` }, operation.operation)),
      el('td', {}, operation.route || '–'), el('td', {}, when(operation.since)), el('td', { class: 'number' }, ran), el('td', { class: 'number' }, number(operation.attempts)),
      el('td', {}, operation.request_id || '–'));
  }

  update() {}
}

class Doubt extends HTMLElement {
  connectedCallback() {
    this.operation = this.getAttribute('name');
    this.trouble = el('p', { class: 'trouble', hidden: true });
    this.found = el('div', { class: 'detail' });
    this.form = el('div');
    this.append(el('p', {}, el('a', { href: '#/doubt' }, '← All in doubt')), el('h1', {}, `Operation ${this.operation}`), this.trouble, this.found, this.form);
    this.#load();
  }

  get #path() {
    return `operation/${encodeURIComponent(this.operation)}`;
  }

  async #load() {
    try {
      this.#show(await get(this.#path));
    } catch (error) {
      this.trouble.textContent = error.message;
      this.trouble.hidden = false;
    }
  }

  #show(shown) {
    this.found.replaceChildren(
      el('p', {}, el('strong', { class: `state ${shown.state}` }, shown.state), shown.decision ? ` settled as ${shown.decision}` : ''),
      facts([
        ['Route or scope', shown.route || '–'], ['In doubt since', when(shown.since)], ['Ran for', shown.ran_for_ms === undefined ? '–' : left(shown.ran_for_ms)],
        ['Attempts', plural(shown.attempts, 'attempt')], ['Fence', shown.fence ? String(shown.fence) : '–'], ['Request', shown.request_id || '–'], ['Kept until', when(shown.expires_at)],
      ]));
    this.form.replaceChildren(...(['in-doubt', 'refused'].includes(shown.state) && may('admin') ? this.#steps(shown) : []));
  }

  // steps are the actions in order.
  #steps(shown) {
    this.settlement = new Settlement().withBody();
    return [
      el('h2', {}, 'Settle it'),
      el('ol', {},
        el('li', {}, `Look for operation ${shown.operation}${shown.request_id ? `, or request ${shown.request_id},` : ''} in the records of the service.`),
        el('li', {}, 'Say what you have found. An attempt that still ends has lost its claim by it.')),
      el('form', { class: 'settle', onsubmit: (event) => this.#settle(event) }, ...this.settlement.fields, el('button', { type: 'submit', class: 'danger' }, 'Settle')),
    ];
  }

  async #settle(event) {
    event.preventDefault();
    const json = this.settlement.json();
    if (!(await this.settlement.confirmed(`operation ${this.operation}`))) return;
    try {
      await call('POST', `${this.#path}/settle`, { json });
      say(`The operation is settled: ${json.outcome}.`);
    } catch (error) {
      say(error.unknown ? 'It is not known whether the operation is settled. Settling it again the same way is harmless.' : error.message, true);
    }
    this.#load();
  }
}

customElements.define('cc-doubts', Doubts);
customElements.define('cc-doubt', Doubt);
