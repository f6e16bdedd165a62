// Operations in doubt: their list, and one with the steps that end its doubt. An operator's input
// goes to the server only.

import { call, get, may } from './api.js';
import { confirmed } from './confirm.js';
import { el, facts, field, say, setText, table, when } from './dom.js';
import { Paged, Rows } from './paged.js';
import { left, number, plural } from './text.js';

class Doubts extends Paged {
  path = 'token?state=in-doubt';
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
    ];
  }

  list() {
    const columns = [{ name: 'Operation' }, { name: 'Route or scope' }, { name: 'Since' }, { name: 'Ran for', class: 'number' }, { name: 'Attempts', class: 'number' }, { name: 'Request' }];
    const shown = table('Operations in doubt, the oldest first', columns);
    this.rows = new Rows(shown.body, (operation) => new DoubtRow(operation));
    return shown.frame;
  }

  show(operations) {
    this.rows.show(operations, (operation) => operation.operation);
  }
}

class DoubtRow {
  constructor(operation) {
    const ran = operation.ran_for_ms === undefined ? '?' : left(operation.ran_for_ms);
    this.element = el('tr', {},
      el('th', { scope: 'row', class: 'name' }, el('a', { href: `#/doubt/${encodeURIComponent(operation.operation)}` }, operation.operation)),
      el('td', {}, operation.route || '–'), el('td', {}, when(operation.since)), el('td', { class: 'number' }, ran), el('td', { class: 'number' }, number(operation.attempts)),
      el('td', {}, operation.request_id || '–'));
  }

  update() {}
}

const decisions = [
  ['completed', 'It happened', 'Its answer is recorded, and every repeat gets it.'],
  ['not-begun', 'It did not happen', 'The next request with its token or key runs it, with a larger fence.'],
  ['refused', 'It is not known, or it must not run', 'Repeats are told that an operator has closed it.'],
];

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
    this.form.replaceChildren(...(shown.state === 'in-doubt' && may('admin') ? this.#steps(shown) : []));
  }

  // steps are the actions in order.
  #steps(shown) {
    // Nothing is chosen for the operator, and nothing is settled by one press: it is for good.
    this.choice = el('select', { required: true, onchange: () => this.#chosen() }, el('option', { value: '' }, 'Choose…'), ...decisions.map(([value, text]) => el('option', { value }, text)));
    this.status = el('input', { type: 'number', min: '200', max: '599', required: true });
    this.body = el('textarea', { rows: '4', maxlength: '100000', spellcheck: 'false' });
    this.type = el('input', { type: 'text', value: 'application/json', maxlength: '200' });
    this.reason = el('input', { type: 'text', maxlength: '500', autocomplete: 'off', required: true });
    this.effect = el('p', { class: 'hint' });
    this.answer = el('div', {}, field('Status of the answer', this.status), field('Content type', this.type), field('Body of the answer', this.body));
    const submit = el('button', { type: 'submit', class: 'danger' }, 'Settle');
    this.#chosen();
    return [
      el('h2', {}, 'Settle it'),
      el('ol', {},
        el('li', {}, `Look for operation ${shown.operation}${shown.request_id ? `, or request ${shown.request_id},` : ''} in the records of the service.`),
        el('li', {}, 'Say what you have found. An attempt that still ends has lost its claim by it.')),
      el('form', { class: 'settle', onsubmit: (event) => this.#settle(event) }, field('What became of it', this.choice), this.effect, this.answer, field('Why', this.reason, 'It is kept in the events and the log.'), submit),
    ];
  }

  #chosen() {
    setText(this.effect, decisions.find(([value]) => value === this.choice.value)?.[2] ?? '');
    this.answer.hidden = this.choice.value !== 'completed';
    this.status.disabled = this.answer.hidden;
  }

  // question shows what every repeat will get.
  #question(json) {
    const [, text, effect] = decisions.find(([value]) => value === json.outcome);
    const answer = [['Every repeat gets', `status ${json.status}`], ['Content type', json.headers?.['Content-Type'] ?? '–'], ['Body', this.body.value ? el('pre', {}, this.body.value) : 'none: it is empty']];
    return {
      title: `Settle operation ${this.operation}: ${text.toLowerCase()}?`,
      text: `${effect} This cannot be undone.`,
      more: [facts([...(json.outcome === 'completed' ? answer : []), ['Why', json.reason]])],
      no: 'Go back',
      yes: 'Settle for good',
    };
  }

  async #settle(event) {
    event.preventDefault();
    const outcome = this.choice.value;
    const json = { outcome, reason: this.reason.value };
    if (outcome === 'completed') {
      json.status = Number(this.status.value);
      if (this.body.value) {
        json.headers = { 'Content-Type': this.type.value };
        json.body_base64 = encoded(this.body.value);
      }
    }
    if (!(await confirmed(this.#question(json)))) return;
    try {
      await call('POST', `${this.#path}/settle`, { json });
      say(`The operation is settled: ${outcome}.`);
    } catch (error) {
      say(error.unknown ? 'It is not known whether the operation is settled. Settling it again the same way is harmless.' : error.message, true);
    }
    this.#load();
  }
}

// encoded is a text as base64 of its UTF-8.
function encoded(text) {
  return btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join(''));
}

customElements.define('cc-doubts', Doubts);
customElements.define('cc-doubt', Doubt);
