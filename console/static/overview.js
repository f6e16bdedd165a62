// The first page: what needs an operator, what is handed out, and what can be lost.

import { current, get, happened } from './api.js';
import { el, setText, table, when } from './dom.js';
import { history } from './history.js';
import { Plot } from './plot.js';
import { Poller } from './poll.js';
import { readiness } from './readiness.js';
import { clock, left, number, plural } from './text.js';
import { isFull } from './workers.js';

const handedOut = [
  ['counters', 'Counter values'], ['snowflakes', 'Snowflake ids'], ['segments', 'Segment ids'], ['uuids', 'UUIDs, ULIDs, TypeIDs'], ['issued', 'Tokens issued'], ['completed', 'Operations completed'], ['locks', 'Locks granted'], ['allowed', 'Let through by limits'],
];
const wentWrong = [['limited', 'Over a limit'], ['refused', 'Refused (4xx)'], ['failed', 'Failed (5xx)'], ['in_doubt', 'Refused: doubt or loss']];
const parts = 12; // of the hour, in the table
const most = 100; // things that one question lists

class Overview extends HTMLElement {
  connectedCallback() {
    this.trouble = el('p', { class: 'trouble', hidden: true });
    this.needs = el('ul', { class: 'needs' }, el('li', {}, 'Looking…'));
    this.lost = el('div');
    const height = innerWidth < 640 ? 200 : 260;
    this.plots = [new Plot('Handed out per second', handedOut, height), new Plot('Refused and failed per second', wentWrong, height / 2 + 20)];
    const lines = [...handedOut, ...wentWrong];
    this.shown = table('The last hour, in parts of five minutes (UTC)', [{ name: 'From' }, ...lines.map(([, name]) => ({ name, class: 'number' }))]);
    this.asTable = el('details', { ontoggle: () => this.#fill() }, el('summary', {}, 'The same as a table'), this.shown.frame);
    this.append(
      el('h1', {}, 'Overview'), this.trouble,
      el('section', { 'aria-labelledby': 'needs-title' }, el('h2', { id: 'needs-title' }, 'What needs you'), this.needs),
      ...this.plots.map((plot) => plot.element),
      this.asTable,
      el('p', { class: 'hint' }, 'What passed through this server process, which remembers an hour of it. Other servers have their own.'),
      el('section', { 'aria-labelledby': 'lost-title' }, el('h2', { id: 'lost-title' }, 'What can be lost'), this.lost),
    );
    for (const plot of this.plots) plot.start();
    this.listen = () => this.#showHistory();
    this.renew = () => this.#showLost();
    this.tell = () => this.#showNeeds();
    history.addEventListener('change', this.listen);
    readiness.addEventListener('change', this.tell);
    happened.addEventListener('session', this.renew);
    this.pollers = [new Poller(5000, (signal) => this.#loadHistory(signal)), new Poller(10_000, (signal) => this.#loadPools(signal))];
    for (const poller of this.pollers) poller.start();
    if (history.until) this.#showHistory();
    this.#showLost();
  }

  disconnectedCallback() {
    for (const poller of this.pollers) poller.stop();
    for (const plot of this.plots) plot.stop();
    history.removeEventListener('change', this.listen);
    readiness.removeEventListener('change', this.tell);
    happened.removeEventListener('session', this.renew);
  }

  async #loadHistory(signal) {
    try {
      await history.load(signal);
      this.trouble.hidden = true;
    } catch (error) {
      if (error.name !== 'AbortError') this.#complain(error.message);
      throw error;
    }
  }

  #complain(text) {
    setText(this.trouble, `${text} What is below is old.`);
    this.trouble.hidden = false;
  }

  #showHistory() {
    for (const plot of this.plots) plot.show();
    this.#fill();
    this.#showNeeds();
  }

  #fill() {
    if (!this.asTable.open) return;
    const sums = [...handedOut, ...wentWrong].map(([series]) => history.parts(series, parts));
    const rows = Array.from({ length: parts }, (_, i) => i).filter((i) => sums[0][i] !== null).toReversed();
    this.shown.body.replaceChildren(...rows.map((i) => {
      const from = new Date(history.until - (parts - i) * (3_600_000 / parts)).toISOString();
      return el('tr', {}, el('th', { scope: 'row' }, clock(from)), ...sums.map((sum) => el('td', { class: 'number' }, number(sum[i]))));
    }));
  }

  // loadPools asks for the pools. What the caller may not see is left out.
  async #loadPools(signal) {
    try {
      this.pools = { answer: await get(`worker?n=${most}`, { signal }), at: clock(new Date().toISOString()) };
    } catch (error) {
      if (error.name !== 'AbortError') this.pools = error.status === 403 ? {} : { ...this.pools, error };
      this.#showNeeds();
      throw error;
    }
    this.#showNeeds();
  }

  // showNeeds shows what is known of each source, whatever the others have answered.
  #showNeeds() {
    const all = [...unready(), ...operations(), ...ofPools(this.pools), ...refusals()];
    if (all.length) this.needs.replaceChildren(...all);
    else if (this.pools && readiness.answer && history.until !== 0) this.needs.replaceChildren(need('good', 'Nothing: nothing is in doubt, and nothing in quarantine.'));
  }

  #showLost() {
    const session = current();
    const lines = [session.durability?.replace('WARNING: ', ''), ...(session.hazards ?? [])].filter(Boolean);
    this.lost.replaceChildren(lines.length ? el('ul', {}, ...lines.map((line) => el('li', {}, line))) : el('p', {}, 'Nothing is known of this store.'));
  }
}

const marks = { good: '●', bad: '▲', calm: '◆' };

function need(kind, ...children) {
  return el('li', { class: kind }, el('span', { class: 'mark-text', 'aria-hidden': 'true' }, marks[kind]), el('span', {}, ...children));
}

function link(to, text) {
  return el('a', { href: `#/${to}` }, text);
}

function unready() {
  const { answer, error } = readiness;
  if (error) return [need('bad', `It is not known whether the server is ready: ${error.message}`)];
  if (answer?.ready !== false) return [];
  const since = answer.since ? [', since ', when(answer.since)] : [];
  const look = answer.address ? ['. What is wrong: ', el('code', {}, `coatcheck doctor --redis ${answer.address}`)] : [];
  return [need('bad', el('strong', {}, 'The server is not ready'), `: ${answer.reason ?? 'it does not say why'}`, ...(answer.address ? [` at ${answer.address}`] : []), ...since, ...look, '. It is ready again by itself when that is over.')];
}

// operations are those in doubt: the number that the metrics have as well.
function operations() {
  const { doubt } = history;
  if (!doubt) return history.until === 0 ? [] : [need('bad', 'It is not known how many operations are in doubt.')];
  if (doubt.operations === 0) return [];
  const now = readiness.well ? ['is', 'are', ''] : ['was', 'were', ' when that was last known'];
  const many = doubt.operations === 1 ? `One operation ${now[0]}` : `${number(doubt.operations)} operations ${now[1]}`;
  const oldest = doubt.since ? [doubt.operations === 1 ? ', since ' : ', the oldest since ', when(doubt.since)] : [];
  const settle = current().role === 'admin' ? [link('doubt', doubt.operations === 1 ? 'Settle it' : 'Settle them')] : ['Somebody of role admin has to settle them: ', link('doubt', 'In doubt')];
  return [need('bad', el('strong', {}, `${many} in doubt${now[2]}`), ...oldest, ': every repeat is refused until an operator says what became of it. ', ...settle)];
}

// ofPools are the pools that need somebody, and since when nothing newer is known of them.
function ofPools({ answer, at, error } = {}) {
  const why = error ? `: ${error.message}` : '.';
  const unknown = at ? `Of worker pools nothing newer is known than of ${at} UTC${why}` : `It is not known which worker pools need you${why}`;
  return [...(error || (at && !readiness.well) ? [need('bad', unknown)] : []), ...waiting(answer), ...full(answer), ...quarantined(answer)];
}

// full are pools whose worker ids are all held.
function full(pools) {
  return (pools?.pools ?? []).filter(isFull).map((pool) => need('bad', el('strong', {}, `Pool ${pool.pool} is full`), `: all ${plural(pool.size, 'worker id')} are held, and whoever asks for another is refused until one is given back or its lease ends. `, link(`workers/${encodeURIComponent(pool.pool)}`, 'Who holds them')));
}

// waiting are pools that have granted nothing yet.
function waiting(pools) {
  return (pools?.waiting ?? []).map((pool) => need(pool.new ? 'calm' : 'bad', el('strong', {}, pool.new ? `Pool ${pool.pool} is new to this Redis` : `Pool ${pool.pool} grants nothing yet`),
    `. It grants by itself in ${left(pool.wait_ms)}. `, pool.new ? el('span', {}, 'If none of its worker ids is in use elsewhere, it grants at once after ', el('code', {}, `coatcheck worker create ${pool.pool}`), '. ') : `${pool.reason}. `, link(`workers/${encodeURIComponent(pool.pool)}`, 'Look at the pool')));
}

// quarantined are pools that may have lost leases. Of one that nobody asks there is nothing to do.
function quarantined(pools) {
  return (pools?.pools ?? []).filter((pool) => pool.quarantined_ms).map((pool) => need(pool.unasked ? 'calm' : 'bad',
    el('strong', {}, pool.unasked ? `Pool ${pool.pool} will wait when it is asked` : `Pool ${pool.pool} is in quarantine`), `: it grants no worker id for ${left(pool.quarantined_ms)}. ${pool.reason || 'Leases may have been lost'}. ${pool.unasked ? 'The time begins when somebody asks for one; nothing is to be done' : 'That ends by itself'}. `, link(`workers/${encodeURIComponent(pool.pool)}`, 'Look at the pool')));
}

function refusals() {
  const list = [];
  const others = history.sum('in_doubt') - history.sum('operations_in_doubt');
  if (others > 0) {
    list.push(need('bad', el('strong', {}, `${plural(others, 'request')} for counters, worker ids or locks`), ' were refused in the last hour, since it is not known here what was handed out before. ', link('events', 'Which'), ', and ', link('counters', 'the counters')));
  }
  const failed = history.sum('failed', 300_000);
  if (failed > 0) list.push(need('bad', el('strong', {}, `${plural(failed, 'request')} failed`), ' in the last five minutes, with a status 5xx: the log says why. ', link('events', 'Events')));
  return list;
}

customElements.define('cc-overview', Overview);
