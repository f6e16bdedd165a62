// What an operator says became of operations in doubt: the fields for it, and the last question.

import { confirmed } from './confirm.js';
import { el, facts, field, setText } from './dom.js';

const decisions = [
  ['completed', 'It happened', 'Its answer is recorded, and every repeat gets it.'],
  ['not-begun', 'It did not happen', 'The next request with its token or key runs it, with a larger fence.'],
  ['refused', 'It is not known, or it must not run', 'Repeats are told that an operator has closed it.'],
];

export class Settlement {
  constructor() {
    // Nothing is chosen for the operator, and nothing is settled by one press: it is for good.
    this.choice = el('select', { required: true, onchange: () => this.#chosen() }, el('option', { value: '' }, 'Choose…'), ...decisions.map(([value, text]) => el('option', { value }, text)));
    this.status = el('input', { type: 'number', min: '200', max: '599', required: true });
    this.body = el('textarea', { rows: '4', maxlength: '100000', spellcheck: 'false' });
    this.type = el('input', { type: 'text', value: 'application/json', maxlength: '200' });
    this.reason = el('input', { type: 'text', maxlength: '500', autocomplete: 'off', required: true });
    this.effect = el('p', { class: 'hint' });
    this.answer = el('div', {}, field('Status of the answer', this.status));
    this.fields = [field('What became of it', this.choice), this.effect, this.answer, field('Why', this.reason, 'It is kept in the events and the log.')];
    this.#chosen();
  }

  // withBody adds the fields for the body of the answer, which is empty without them.
  withBody() {
    this.answer.append(field('Content type', this.type), field('Body of the answer', this.body));
    return this;
  }

  #chosen() {
    setText(this.effect, this.#decision?.[2] ?? '');
    this.answer.hidden = this.choice.value !== 'completed';
    this.status.disabled = this.answer.hidden;
  }

  get #decision() {
    return decisions.find(([value]) => value === this.choice.value);
  }

  // text is the decision within a sentence.
  get text() {
    return this.#decision[1].toLowerCase();
  }

  // json is the body of the request that settles an operation.
  json() {
    const json = { outcome: this.choice.value, reason: this.reason.value };
    if (json.outcome !== 'completed') return json;
    json.status = Number(this.status.value);
    if (this.body.value) {
      json.headers = { 'Content-Type': this.type.value };
      json.body_base64 = encoded(this.body.value);
    }
    return json;
  }

  // confirmed asks whether to settle, and shows what every repeat will get. More facts come first.
  confirmed(what, more = []) {
    const json = this.json();
    const answer = [['Every repeat gets', `status ${json.status}`], ['Content type', json.headers?.['Content-Type'] ?? '–'], ['Body', this.body.value ? el('pre', {}, this.body.value) : 'none: it is empty']];
    return confirmed({
      title: `Settle ${what}: ${this.text}?`,
      text: `${this.#decision[2]} This cannot be undone.`,
      more: [facts([...more, ...(json.outcome === 'completed' ? answer : []), ['Why', json.reason]])],
      no: 'Go back',
      yes: 'Settle for good',
    });
  }
}

// encoded is a text as base64 of its UTF-8.
function encoded(text) {
  return btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join(''));
}
