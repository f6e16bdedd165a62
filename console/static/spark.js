// A small graph of the last values, over its whole width however few there are. The value stands
// beside it as a number, so the graph is hidden from screen readers.

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
    this.show([...this.#values, value].slice(-points));
  }

  // show draws these values; one alone is a level line.
  show(values) {
    this.#values = values;
    const drawn = values.length === 1 ? [values[0], values[0]] : values;
    const most = Math.max(...drawn, 1e-9);
    const least = Math.min(...drawn, 0);
    const place = (one, i) => `${((i * width) / (drawn.length - 1)).toFixed(1)},${(height - 2 - ((one - least) / (most - least)) * (height - 4)).toFixed(1)}`;
    this.#line.setAttribute('points', drawn.map(place).join(' '));
  }
}
