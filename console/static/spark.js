// A small graph of the last values. The value stands beside it as a number, so the graph is hidden
// from screen readers.

import { svg } from './dom.js';

const width = 96;
const height = 24;
const points = 40;

export class Spark {
  #values = [];
  #line = svg('polyline', { points: '', class: 'spark-line' });

  constructor() {
    this.drawing = svg('svg', { viewBox: `0 0 ${width} ${height}`, width, height, class: 'spark', 'aria-hidden': 'true' }, this.#line);
  }

  add(value) {
    this.#values.push(value);
    if (this.#values.length > points) this.#values.shift();
    const most = Math.max(...this.#values, 1e-9);
    const least = Math.min(...this.#values, 0);
    const place = (one, i) => `${(width - (this.#values.length - 1 - i) * (width / (points - 1))).toFixed(1)},${(height - 2 - ((one - least) / (most - least)) * (height - 4)).toFixed(1)}`;
    this.#line.setAttribute('points', this.#values.map(place).join(' '));
  }
}
