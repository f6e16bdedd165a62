// What /readyz says. The line at the top asks for it, and views show it as well.

import { get } from './api.js';

class Readiness extends EventTarget {
  answer = null; // the newest
  error = null; // why there is no newer one

  async load(signal) {
    try {
      [this.answer, this.error] = [await get('readyz', { signal, allowed: [503] }), null];
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      this.error = error;
      throw error;
    } finally {
      this.dispatchEvent(new Event('change'));
    }
  }

  // well is false while what the store holds may have changed since it was last asked.
  get well() {
    return !this.error && this.answer?.ready !== false;
  }
}

export const readiness = new Readiness();
