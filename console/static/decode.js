// Takes a Snowflake id apart. The id is not a secret; the layout with which it is read has to be
// known.

import { get, query } from './api.js';
import { el, facts, field, say, table } from './dom.js';
import { moment } from './text.js';

const formats = ['decimal', 'padded', 'base36', 'base62', 'base32', 'timed'];

class Decode extends HTMLElement {
  connectedCallback() {
    this.id_ = el('input', { type: 'text', autocomplete: 'off', spellcheck: 'false', autocapitalize: 'none', required: true, maxlength: '100' });
    this.format = el('select', {}, ...formats.map((name) => el('option', { value: name }, name)));
    this.pool = el('input', { type: 'text', autocomplete: 'off', spellcheck: 'false', maxlength: '200' });
    this.layout = el('input', { type: 'text', autocomplete: 'off', spellcheck: 'false', maxlength: '40', placeholder: '41/10/12' });
    this.epoch = el('input', { type: 'text', autocomplete: 'off', spellcheck: 'false', maxlength: '40', placeholder: '2020-01-01T00:00:00Z' });
    this.found = el('div', { class: 'detail' });
    this.append(
      el('h1', {}, 'Decode an id'),
      el('form', { class: 'search', onsubmit: (event) => this.#decode(event) },
        field('Id', this.id_), field('Format', this.format), field('Pool', this.pool, 'whose layout and epoch it has; or:'), field('Layout', this.layout), field('Epoch', this.epoch), el('button', { type: 'submit' }, 'Decode')),
      this.found,
    );
  }

  async #decode(event) {
    event.preventDefault();
    const path = query(`id/decode/${encodeURIComponent(this.id_.value.trim())}`, {
      format: this.format.value === 'decimal' ? '' : this.format.value, pool: this.pool.value.trim(), layout: this.layout.value.trim(), epoch: this.epoch.value.trim(),
    });
    try {
      this.#show(await get(path));
    } catch (error) {
      this.found.replaceChildren(el('p', { class: 'trouble' }, error.message));
      say(error.message, true);
    }
  }

  #show(parts) {
    const bits = parts.layout.replace('@s', '').split('/');
    const names = bits.length === 4 ? ['Time', 'Datacenter', 'Worker id', 'Sequence'] : ['Time', 'Worker id', 'Sequence'];
    const values = { Time: moment(parts.time), Datacenter: parts.datacenter, 'Worker id': parts.worker_id, Sequence: parts.sequence };
    const shown = table('Parts of the id', [{ name: 'Part' }, { name: 'Bits', class: 'number' }, { name: 'Value' }]);
    names.forEach((name, i) => shown.body.append(el('tr', {}, el('th', { scope: 'row' }, name), el('td', { class: 'number' }, bits[i]), el('td', {}, values[name]))));
    this.found.replaceChildren(shown.frame, facts([['In decimal', parts.id], ['Layout', parts.layout], ['Epoch', moment(parts.epoch)]]), el('p', { class: 'hint' }, 'Whether the id was ever handed out it does not tell.'));
    say(`Worker id ${parts.worker_id}, sequence ${parts.sequence}, ${moment(parts.time)}`);
  }
}

customElements.define('cc-decode', Decode);
