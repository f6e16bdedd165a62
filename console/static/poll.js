// Poller asks repeatedly while the page is visible, never twice at once, and less often when the
// server has trouble.

export class Poller {
  #timer = 0;
  #running = false;
  #again = false;
  #stopped = true;
  #failures = 0;

  // ask is called with an abort signal; its errors slow the polling down.
  constructor(period, ask) {
    this.period = period;
    this.ask = ask;
    this.look = () => (document.hidden ? this.#pause() : this.now());
  }

  start() {
    this.#stopped = false;
    document.addEventListener('visibilitychange', this.look);
    return this.now();
  }

  stop() {
    this.#stopped = true;
    this.#pause();
    document.removeEventListener('visibilitychange', this.look);
  }

  #pause() {
    clearTimeout(this.#timer);
    this.abort?.abort();
  }

  // renew asks at once and aborts the present request, which is out of date.
  renew() {
    this.abort?.abort();
    return this.now();
  }

  // now asks at once, or after the present request.
  async now() {
    clearTimeout(this.#timer);
    if (this.#running) {
      this.#again = true;
      return;
    }
    if (this.#stopped || document.hidden) return;
    this.#running = true;
    this.abort = new AbortController();
    let wait = this.period;
    try {
      await this.ask(this.abort.signal);
      this.#failures = 0;
    } catch (error) {
      if (error.name !== 'AbortError') {
        this.#failures++;
        wait = Math.max(error.retryAfter ?? 0, Math.min(this.period * 2 ** this.#failures, 30_000));
      }
    }
    this.#running = false;
    if (this.#again) {
      this.#again = false;
      this.now();
    } else if (!this.#stopped && !document.hidden) {
      this.#timer = setTimeout(() => this.now(), wait);
    }
  }
}
