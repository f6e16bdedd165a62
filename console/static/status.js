// The line at the top: readiness, kind of store, latency, and a link to what can be lost.

import { current, happened, latency, may } from './api.js';
import { el, setText } from './dom.js';
import { Poller } from './poll.js';
import { readiness } from './readiness.js';
import { milliseconds, plural } from './text.js';

class Status extends HTMLElement {
  connectedCallback() {
    this.ready = el('strong', { class: 'ready' }, 'Asking…');
    this.store = el('span');
    this.speed = el('span', { class: 'wide', title: 'how long the calls of this page took, there and back' });
    this.who = el('span');
    this.worry = el('a', { class: 'worry', href: '#/overview', hidden: true });
    this.append(el('p', { class: 'status' }, this.ready, this.worry, this.store, this.speed, this.who));
    this.poller = new Poller(5000, (signal) => this.#load(signal));
    this.poller.start();
    happened.addEventListener('session', () => this.#showSession());
    this.ticker = setInterval(() => !document.hidden && this.#showSpeed(), 1000);
  }

  async #load(signal) {
    try {
      await readiness.load(signal);
      this.#show(readiness.answer);
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      this.#say(false, error.message);
      setText(this.store, '');
      throw error;
    }
  }

  #show(ready) {
    if (!ready || ready.store === undefined) {
      this.#say(false, 'The answer is not understood.');
      return;
    }
    const waits = (ready.workers ?? []).filter((worker) => worker.state === 'waiting');
    const ids = waits.length ? `ids of ${waits.slice(0, 2).map((worker) => worker.pool).join(', ')}${waits.length > 2 ? ' …' : ''} are refused` : '';
    this.#say(ready.ready, ready.reason ?? '', ids);
    const role = ready.ready && ready.store !== 'embedded' ? ', its master takes writes' : '';
    const ack = ready.ack ? `, each write confirmed by ${plural(ready.ack, 'replica')}` : '';
    setText(this.store, `Store: ${ready.store}${role}${ack}`);
  }

  #say(good, reason, refused = '') {
    setText(this.ready, good && refused ? `▲ Works, but ${refused}` : good ? '● Ready' : `▲ Not ready${reason ? `: ${reason}` : ''}`);
    this.ready.classList.toggle('bad', !good || refused !== '');
  }

  #showSpeed() {
    const { calls, p50, p99 } = latency();
    setText(this.speed, calls ? `Answers in ${milliseconds(p50)} (p50), ${milliseconds(p99)} (p99)` : '');
  }

  #showSession() {
    const session = current();
    const names = session.names.length ? `, names ${session.names.slice(0, 3).join(' ')}${session.names.length > 3 ? ' …' : ''}` : '';
    setText(this.who, `You: ${session.access ? `${session.principal || 'anybody'}, ${session.role}${names}` : 'everybody, no access control'}${session.readonly ? '; this page changes nothing' : ''}`);
    const n = [session.durability, ...(session.hazards ?? [])].filter(Boolean).length;
    const warning = /WARNING/.test(session.durability ?? '') || session.hazards?.length;
    this.worry.hidden = !may('read') || n === 0;
    setText(this.worry, warning ? `▲ What can be lost (${n})` : 'What is kept');
    this.worry.classList.toggle('bad', Boolean(warning));
  }
}

customElements.define('cc-status', Status);
