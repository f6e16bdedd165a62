// Worker-id pools: the list of them, and one as a ring of cells.

import { get, query } from './api.js';
import { bar, el, facts, field, say, setText, svg, table, when } from './dom.js';
import { Paged, Rows } from './paged.js';
import { Poller } from './poll.js';
import { ago, left, moment, number, plural, span } from './text.js';

class Pools extends Paged {
  path = 'worker';
  member = 'pools';
  word = 'pool';
  period = 5000;

  head() {
    return [el('h1', {}, 'Worker pools')];
  }

  list() {
    const columns = [{ name: 'Pool' }, { name: 'Layout' }, { name: 'Held' }, { name: 'Ever leased', class: 'number' }, { name: 'TTL', class: 'number' }, { name: 'Ends' }, { name: 'State' }];
    const shown = table('Pools of worker ids', columns);
    this.rows = new Rows(shown.body, (pool) => poolRow(pool));
    return shown.frame;
  }

  connectedCallback() {
    super.connectedCallback();
    this.ticker = setInterval(() => !document.hidden && this.#tick(), 500);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this.ticker);
  }

  show(pools, answer) {
    this.pools = [...pools, ...(answer.waiting ?? []).map((pool) => ({ ...pool, waits: true, quarantined_ms: pool.wait_ms }))];
    this.told = performance.now();
    this.#tick();
    return this.pools.length;
  }

  // tick counts the quarantines down.
  #tick() {
    const since = performance.now() - (this.told ?? 0);
    const now = (this.pools ?? []).map((pool) => (pool.quarantined_ms ? { ...pool, quarantined_ms: Math.max(pool.quarantined_ms - since, 0) } : pool));
    if (this.pools) this.rows.show(now, (pool) => pool.pool);
  }
}

function poolRow({ pool }) {
  const held = bar();
  const cells = ['', '', 'number', 'number', 'date', ''].map((kind) => el('td', { class: kind || null }));
  cells[1].append(held.element);
  const element = el('tr', {}, el('th', { scope: 'row', class: 'name' }, el('a', { href: `#/workers/${encodeURIComponent(pool)}` }, pool)), ...cells);
  const update = (now) => {
    held.element.hidden = Boolean(now.waits);
    if (!now.waits) held.show(now.held ?? 0, now.size);
    const texts = now.waits ? ['–', null, '–', '–', '–', stateOf(now)] : [now.layout, null, number(now.used), span(now.ttl_ms), now.ends_at?.slice(0, 10) ?? 'never', stateOf(now)];
    texts.forEach((text, i) => text !== null && setText(cells[i], text));
  };
  return { element, update };
}

// isFull reports whether a pool grants no worker id because all of them are held.
export function isFull(pool) {
  return pool.held === pool.size && !pool.quarantined_ms;
}

function stateOf(pool) {
  if (pool.new) return `new to this Redis: grants in ${left(pool.quarantined_ms)}, or at once after: coatcheck worker create ${pool.pool}`;
  if (pool.waits) return `waits, grants in ${left(pool.quarantined_ms)}: ${pool.reason}`;
  if (Date.parse(pool.ends_at) <= Date.now()) return 'ended: its layout has no timestamps left';
  if (pool.unasked) return `waits for ${left(pool.quarantined_ms)} when it is asked${pool.reason ? `: ${pool.reason}` : ''}`;
  if (pool.quarantined_ms) return `quarantined, ${left(pool.quarantined_ms)} left${pool.reason ? `: ${pool.reason}` : ''}`;
  return isFull(pool) ? 'full: all worker ids are held' : 'grants';
}

// How a cell looks: a colour, and a mark that shows the state without colour. Marks are drawn into
// a square of 14.
const states = {
  free: { name: 'free', mark: '' },
  rested: { name: 'free, was leased', mark: 'M6 7a1 1 0 1 0 2 0a1 1 0 1 0-2 0' },
  held: { name: 'held', mark: '' },
  expiring: { name: 'held, expiring', mark: 'M2 12 12 2' },
  cooling: { name: 'cooling', mark: 'M2 7H12' },
  quarantined: { name: 'quarantined', mark: 'M3 3 11 11M11 3 3 11' },
};

const pageOf = 1024;
const across = 32;
const pitch = 16;

class Ring extends HTMLElement {
  #from = 0;
  #chosen = null;
  #slots = [];
  #cells = [];
  #ahead = 0; // the server's clock less this one's, in milliseconds
  #opens = 0; // when the quarantine ends, by this page's monotonic clock; 0 = there is none

  connectedCallback() {
    this.pool = this.getAttribute('pool');
    this.summary = el('div');
    this.grants = el('span');
    this.trouble = el('p', { class: 'trouble', hidden: true });
    this.drawing = svg('svg', { class: 'ring', 'aria-hidden': 'true' });
    this.drawing.addEventListener('click', (event) => this.#click(event));
    this.number = el('input', { type: 'number', min: '0', value: '', inputmode: 'numeric', oninput: () => this.#choose(this.number.value === '' ? null : Number(this.number.value)) });
    this.detail = el('div', { class: 'detail' });
    this.legend = el('ul', { class: 'legend', 'aria-label': 'Slots by state' });
    this.rowsShown = table('Slots that are not free', [{ name: 'Worker id', class: 'number' }, { name: 'State' }, { name: 'Holder' }, { name: 'Fence', class: 'number' }, { name: 'Window from' }, { name: 'to' }, { name: 'Left', class: 'number' }]);
    this.all = el('input', { type: 'checkbox', id: 'all-slots', onchange: () => this.#fillTable() });
    this.asTable = el('details', { ontoggle: () => this.#fillTable() }, el('summary', {}, 'The same as a table'), el('p', {}, this.all, ' ', el('label', { for: 'all-slots' }, 'free slots as well')), this.rowsShown.frame);
    this.pager = el('nav', { class: 'pager', 'aria-label': 'Parts of the ring', hidden: true });
    this.append(
      el('p', {}, el('a', { href: '#/workers' }, '← All pools')),
      el('h1', {}, `Pool ${this.pool}`),
      this.trouble,
      this.summary,
      el('div', { class: 'halves' }, el('div', {}, this.legend, this.drawing, this.pager), el('section', { 'aria-label': 'One slot' }, field('Worker id', this.number, 'Type one, use the arrow keys, or click a cell.'), this.detail)),
      this.asTable,
    );
    this.poller = new Poller(2000, (signal) => this.#load(signal));
    this.poller.start();
    this.ticker = setInterval(() => !document.hidden && this.#tick(), 500);
  }

  disconnectedCallback() {
    this.poller.stop();
    clearInterval(this.ticker);
  }

  async #load(signal) {
    try {
      const ring = await get(query(`worker/${encodeURIComponent(this.pool)}`, { cursor: this.#from || '', n: pageOf }), { signal });
      this.#ahead = Date.parse(ring.server_time) - Date.now();
      this.trouble.hidden = true;
      this.ring = ring;
      this.#slots = ring.slots;
      this.#opens = ring.quarantined_ms ? performance.now() + ring.quarantined_ms : 0;
      this.#show();
    } catch (error) {
      if (error.code === 'pool-quarantined') {
        this.#await(error);
        return;
      }
      if (error.name !== 'AbortError') {
        this.trouble.textContent = error.message;
        this.trouble.classList.remove('calm');
        this.trouble.hidden = false;
      }
      throw error;
    }
  }

  // await shows a pool that has no ring yet, since it waits for its first grant. It may be declared
  // new at any time, so the page asks as often as otherwise.
  #await(error) {
    this.#opens = performance.now() + error.retryAfter;
    this.summary.replaceChildren(facts([['Grants', this.grants]]));
    this.trouble.textContent = error.message;
    this.trouble.classList.toggle('calm', error.message.includes('new to this Redis'));
    this.trouble.hidden = false;
    this.#tick();
  }

  // tick shows what changes with time alone.
  #tick() {
    const wait = this.#opens - performance.now();
    setText(this.grants, wait > 0 ? `none for ${left(wait)}${this.ring?.reason ? `: ${this.ring.reason}` : ''}` : this.ring && isFull(this.ring) ? 'none: all worker ids are held' : 'yes');
    this.#showDetail();
  }

  #now() {
    return Date.now() + this.#ahead;
  }

  // stateOf returns the state in which a slot is drawn. Expiring is a slot whose holder has missed
  // its renewals, which are due at each third of the TTL.
  #stateOf(slot) {
    if (slot.state === 'held') return Date.parse(slot.not_after) - this.#now() < this.ring.ttl_ms / 3 ? 'expiring' : 'held';
    if (this.ring.quarantined_ms) return 'quarantined';
    if (slot.state === 'cooling') return 'cooling';
    return slot.fence ? 'rested' : 'free';
  }

  #show() {
    const { ring } = this;
    this.summary.replaceChildren(facts([
      ['Layout', ring.layout], ['Epoch', moment(ring.epoch)], ['Slots', number(ring.size)], ['Ever leased', number(ring.used)], ['TTL', span(ring.ttl_ms)],
      ['Grants', this.grants],
    ]));
    this.#draw();
    this.#showPager();
    this.#tick();
    if (this.asTable.open) this.#fillTable();
  }

  #draw() {
    if (this.#cells.length !== this.#slots.length) this.#lay();
    const counts = {};
    this.#slots.forEach((slot, i) => {
      const state = this.#stateOf(slot);
      counts[state] = (counts[state] ?? 0) + 1;
      this.#cells[i].show(state, slot.worker_id, slot.worker_id === this.#chosen);
    });
    const shown = Object.entries(states).map(([state, { name }]) => el('li', {}, sample(state), ` ${name}: ${number(counts[state] ?? 0)}`));
    this.legend.replaceChildren(...shown);
  }

  // lay makes the cells, once for each size of the ring.
  #lay() {
    const columns = Math.min(across, this.#slots.length);
    const rows = Math.ceil(this.#slots.length / columns);
    this.drawing.setAttribute('viewBox', `0 0 ${columns * pitch} ${rows * pitch}`);
    this.drawing.classList.toggle('small', columns < across);
    this.#cells = this.#slots.map((_, i) => new Cell((i % columns) * pitch + 1, Math.floor(i / columns) * pitch + 1));
    this.drawing.replaceChildren(...this.#cells.flatMap((cell) => [cell.square, cell.mark]));
  }

  #showPager() {
    const { size } = this.ring;
    this.number.max = size - 1;
    this.pager.hidden = size <= pageOf;
    if (size <= pageOf) return;
    if (!this.pager.firstChild) {
      this.back = el('button', { type: 'button', onclick: () => this.#turn(this.#from - pageOf) }, 'Previous');
      this.where = el('span', { class: 'count' });
      this.forth = el('button', { type: 'button', onclick: () => this.#turn(this.#from + pageOf) }, 'Next');
      this.pager.append(this.back, this.where, this.forth);
    }
    setText(this.where, `${number(this.#from)} to ${number(this.#from + this.#slots.length - 1)} of ${number(size)}`);
    this.back.disabled = this.#from === 0;
    this.forth.disabled = this.#from + pageOf >= size;
  }

  #turn(from) {
    this.#from = from;
    this.poller.renew();
  }

  #click(event) {
    const id = event.target.dataset?.id;
    if (id === undefined) return;
    this.number.value = id;
    this.#choose(Number(id));
  }

  #choose(id) {
    const most = this.ring ? this.ring.size - 1 : 0;
    this.#chosen = id !== null && Number.isInteger(id) && id >= 0 && id <= most ? id : null;
    if (this.#chosen !== null && (this.#chosen < this.#from || this.#chosen >= this.#from + pageOf)) this.#turn(Math.floor(this.#chosen / pageOf) * pageOf);
    if (!this.ring) return;
    this.#draw();
    this.#showDetail();
    const slot = this.#slot();
    if (slot) say(`Worker id ${slot.worker_id}: ${states[this.#stateOf(slot)].name}${slot.holder ? `, ${slot.state === 'held' ? 'held' : 'last held'} by ${slot.holder}` : ''}`);
  }

  #slot() {
    return this.#slots.find((slot) => slot.worker_id === this.#chosen);
  }

  #showDetail() {
    const slot = this.#slot();
    if (!slot) {
      this.detail.replaceChildren();
      return;
    }
    const state = this.#stateOf(slot);
    this.detail.replaceChildren(facts([
      ['State', el('span', {}, sample(state), ` ${states[state].name}`)], [slot.state === 'held' ? 'Holder' : 'Last holder', slot.holder || '–'], ['Fence', slot.fence ? String(slot.fence) : '–'],
      ['Window from', both(slot.not_before)], ['to', both(slot.not_after)], ['Left', slot.state === 'held' ? left(Date.parse(slot.not_after) - this.#now()) : '–'],
    ]));
  }

  #fillTable() {
    if (!this.asTable.open) return;
    const shown = this.#slots.filter((slot) => this.all.checked || !['free', 'rested'].includes(this.#stateOf(slot)));
    this.rowsShown.body.replaceChildren(...shown.map((slot) => this.#row(slot)));
    setText(this.rowsShown.caption, this.all.checked ? `All ${plural(shown.length, 'slot')}` : `${plural(shown.length, 'slot')} not free`);
  }

  #row(slot) {
    const texts = [states[this.#stateOf(slot)].name, slot.holder || '–', slot.fence ? String(slot.fence) : '–', when(slot.not_before), when(slot.not_after), slot.state === 'held' ? left(Date.parse(slot.not_after) - this.#now()) : '–'];
    const cells = texts.map((text, i) => el('td', { class: [2, 5].includes(i) ? 'number' : null }, text));
    return el('tr', {}, el('th', { scope: 'row', class: 'number' }, slot.worker_id), ...cells);
  }
}

// both is a time as it is written where it is drawn anew all the time.
function both(text) {
  return text && !Number.isNaN(Date.parse(text)) ? `${moment(text)} (${ago(text)})` : moment(text);
}

class Cell {
  #state = '';
  #id = -1;
  #chosen = false;

  constructor(x, y) {
    this.square = svg('rect', { x, y, width: pitch - 2, height: pitch - 2, rx: 2 });
    this.mark = svg('path', { d: '', transform: `translate(${x} ${y})`, class: 'mark' });
  }

  // show touches the drawing only where something is new.
  show(state, id, chosen) {
    if (this.#state === state && this.#id === id && this.#chosen === chosen) return;
    [this.#state, this.#id, this.#chosen] = [state, id, chosen];
    this.square.setAttribute('class', `cell ${state}${chosen ? ' chosen' : ''}`);
    this.square.dataset.id = id;
    this.mark.setAttribute('class', `mark ${state}`);
    this.mark.setAttribute('d', states[state].mark);
  }
}

// sample draws one cell beside its name.
function sample(state) {
  return svg('svg', { viewBox: '0 0 14 14', width: 14, height: 14, class: 'sample', 'aria-hidden': 'true' },
    svg('rect', { x: 0.5, y: 0.5, width: 13, height: 13, rx: 2, class: `cell ${state}` }), svg('path', { d: states[state].mark, class: `mark ${state}` }));
}

customElements.define('cc-pools', Pools);
customElements.define('cc-ring', Ring);
