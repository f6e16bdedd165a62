// Live events of the server process that this page talks to.

import { el, field, setText, when } from './dom.js';
import { feed } from './feed.js';
import { number } from './text.js';

const most = 200; // entries of the list

const poolOf = (e) => (e.name ? `pool ${e.name}` : 'the pool of this server');

const words = {
  'counter.set': (e) => `counter ${e.name} was set to ${e.value}`,
  'counter.removed': (e) => `counter ${e.name} was removed`,
  'counter.in-doubt': (e) => `counter ${e.name} is refused: ${e.reason || 'values may have been lost'}`,
  'limit.reset': (e) => `limit ${e.name} was reset`,
  'limit.returned': (e) => `limit ${e.name} was given back to`,
  'segment.set': (e) => `tag ${e.name} goes on at ${e.value}`,
  'pool.created': (e) => `pool ${e.name} was declared`,
  'worker.granted': (e) => `worker id ${e.worker_id} of ${e.name} was granted${e.holder ? ` to ${e.holder}` : ''}, fence ${e.fence}`,
  'worker.released': (e) => `worker id ${e.worker_id} of ${e.name} was given back`,
  'worker.lost': (e) => `a caller came with a lease of worker id ${e.worker_id ?? '?'} of ${e.name} that is not theirs, or no longer`,
  'pool.quarantined': (e) => `${poolOf(e)} grants nothing yet: ${e.reason || 'state may have been lost'}`,
  'pool.exhausted': (e) => `${poolOf(e)} has no free worker id`,
  'lock.granted': (e) => `lock ${e.name} was granted to ${e.holder}, fence ${e.fence}`,
  'lock.released': (e) => `lock ${e.name} was given back`,
  'lock.lost': (e) => `a caller came with a lease of lock ${e.name} that is not theirs, or no longer`,
  'lock.broken': (e) => `lock ${e.name} was taken by force from fence ${e.fence ?? 0}`,
  'lock.quarantined': (e) => `lock ${e.name} waits: ${e.reason || 'leases may have been lost'}`,
  'operation.forgotten': (e) => `the answer of operation ${e.operation} was forgotten${e.by ? ` by ${e.by}` : ''}`,
  'operation.settled': (e) => `operation ${e.operation} was settled as ${e.outcome}${e.by ? ` by ${e.by}` : ''}${e.reason ? `: ${e.reason}` : ''}`,
  'request.refused': (e) => `${e.route ?? 'a request'}${e.name ? ` for ${e.name}` : ''} was refused: ${e.code ?? ''}, from ${[e.principal, e.key_id, e.certificate, e.address].filter(Boolean).join(', ')}`,
  'operation.in-doubt': () => 'an operation is in doubt: its attempt ended without an answer',
  'store.replicas-gone': () => 'an operator has said that replicas are gone for good',
  'store.changed': () => 'the store is another incarnation: confirmed writes may be missing',
};

const groups = [...new Set(Object.keys(words).map((kind) => kind.split('.')[0]))];

const grave = new Set(['counter.in-doubt', 'worker.lost', 'pool.quarantined', 'pool.exhausted', 'lock.lost', 'lock.broken', 'lock.quarantined', 'operation.in-doubt', 'store.changed']);

// The page remembers events that came while another view was open.
const heard = [];
feed.addEventListener('event', ({ detail }) => remember({ at: detail.at, kind: detail.kind, text: words[detail.kind]?.(detail) ?? detail.kind, grave: grave.has(detail.kind) && !detail.new }));
feed.addEventListener('missed', ({ detail }) => remember({ at: new Date().toISOString(), kind: 'missed', grave: true, text: detail.at_most ? `up to ${number(detail.at_most)} events are missing: there were too many` : 'the server restarted: earlier events are missing' }));

function remember(entry) {
  heard.unshift(entry);
  if (heard.length > most) heard.pop();
}

class Events extends HTMLElement {
  connectedCallback() {
    this.group = el('select', { onchange: () => this.#fill() }, el('option', { value: '' }, 'everything'), ...groups.map((name) => el('option', { value: name }, `${name}s`)));
    this.paused = el('input', { type: 'checkbox', id: 'events-paused', onchange: () => this.#fill() });
    this.state = el('p', { class: 'hint' });
    this.list = el('ol');
    const log = el('div', { class: 'log', role: 'log', 'aria-label': 'Events, the newest first', 'aria-live': 'polite', tabindex: '0' }, this.list);
    this.append(
      el('h1', {}, 'Events'),
      el('form', { class: 'search', onsubmit: (event) => event.preventDefault() }, field('Show', this.group), el('p', { class: 'check' }, this.paused, ' ', el('label', { for: 'events-paused' }, 'stand still'))),
      this.state, log,
    );
    this.listen = () => this.paused.checked || this.#fill();
    this.changed = () => this.#showState();
    feed.addEventListener('event', this.listen);
    feed.addEventListener('missed', this.listen);
    feed.addEventListener('state', this.changed);
    feed.addEventListener('hello', this.changed);
    this.#showState();
    this.#fill();
  }

  disconnectedCallback() {
    feed.removeEventListener('event', this.listen);
    feed.removeEventListener('missed', this.listen);
    feed.removeEventListener('state', this.changed);
    feed.removeEventListener('hello', this.changed);
  }

  #showState() {
    const text = { live: 'Live. These are the events of this server process; the other views show the whole store.', waiting: 'Not connected; trying again.', off: 'Not connected.' };
    setText(this.state, text[feed.state]);
    this.state.dataset.state = feed.state;
  }

  // fill adds new events at the top, so that screen readers read only those.
  #fill() {
    const wanted = heard.filter((entry) => !this.group.value || entry.kind.startsWith(`${this.group.value}.`) || entry.kind === 'missed');
    const shown = new Set([...this.list.children].map((item) => item.entry));
    const keep = new Set(wanted);
    for (const item of [...this.list.children]) if (!keep.has(item.entry)) item.remove();
    for (const entry of wanted.filter((one) => !shown.has(one)).reverse()) this.#place(entry, wanted);
  }

  #place(entry, wanted) {
    const item = el('li', { class: entry.grave ? 'grave' : null }, when(entry.at), el('code', {}, entry.kind), el('span', {}, entry.text));
    item.entry = entry;
    const next = [...this.list.children].find((other) => wanted.indexOf(other.entry) > wanted.indexOf(entry));
    this.list.insertBefore(item, next ?? null);
  }
}

customElements.define('cc-events', Events);
