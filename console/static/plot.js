// A plot over the last hour, drawn by uPlot (uplot.js, a script of its own), with a button for each
// line that shows its name, its rate and its sum, and hides it.

import { el, setText } from './dom.js';
import { history } from './history.js';
import { clock, number, rate } from './text.js';

const dashes = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 5], [14, 4], [3, 6], [6, 2]];

// colour is what a property of the style sheet is in the present theme.
function colour(element, property) {
  return getComputedStyle(element).getPropertyValue(property);
}

export class Plot {
  #plot = null;

  // lines are [series, name]; the style sheet has the colour of each.
  constructor(title, lines, height) {
    this.title = title;
    this.height = height;
    this.lines = lines.map(([series, name], i) => this.#line(series, name, i));
    this.host = el('div', { class: 'plot', role: 'img', 'aria-label': `${title}, over the last hour; the table has the numbers` });
    this.at = el('p', { class: 'hint' });
    this.element = el('section', { 'aria-label': title }, el('h2', {}, title), this.host, this.at, el('div', { class: 'lines' }, ...this.lines.map((line) => line.button)));
    this.resized = new ResizeObserver(() => this.#plot?.setSize(this.#size()));
    this.renew = () => this.#make();
    this.dark = matchMedia('(prefers-color-scheme: dark)');
  }

  start() {
    this.resized.observe(this.host);
    this.dark.addEventListener('change', this.renew);
    document.getElementById('theme').addEventListener('change', this.renew);
    this.#make();
  }

  stop() {
    this.resized.disconnect();
    this.dark.removeEventListener('change', this.renew);
    document.getElementById('theme').removeEventListener('change', this.renew);
    this.#plot?.destroy();
    this.#plot = null;
  }

  #line(series, name, i) {
    const swatch = el('span', { class: `swatch line-${series}`, 'aria-hidden': 'true' });
    const now = el('strong', {}, '–');
    const sum = el('small', {}, '');
    const button = el('button', { type: 'button', class: 'line', 'aria-pressed': 'true', onclick: () => this.#toggle(line) }, swatch, el('span', { class: 'line-name' }, name), now, sum);
    const line = { series, name, swatch, now, sum, button, dash: dashes[i], shown: true };
    return line;
  }

  #toggle(line) {
    line.shown = !line.shown;
    line.button.setAttribute('aria-pressed', String(line.shown));
    this.#plot?.setSeries(this.lines.indexOf(line) + 1, { show: line.shown });
  }

  #size() {
    return { width: Math.max(this.host.clientWidth, 200), height: this.height };
  }

  #make() {
    this.#plot?.destroy();
    const soft = colour(this.at, 'color');
    const axis = { stroke: soft, grid: { stroke: colour(this.host, 'border-top-color'), width: 1 }, ticks: { show: false }, font: '12px system-ui, sans-serif' };
    this.#plot = new window.uPlot({
      ...this.#size(),
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false } },
      scales: { x: { range: () => [(history.until - history.shown()) / 1000, history.until / 1000] }, y: { range: (_, __, most) => [0, Math.max(most * 1.05, 1)] } },
      axes: [{ ...axis, space: 70, size: 30, values: (_, times) => times.map((time) => clock(new Date(time * 1000).toISOString()).slice(0, times[1] - times[0] < 60 ? 8 : 5)) }, { ...axis, size: 56, values: (_, values) => values.map((value) => number(value)) }],
      series: [{}, ...this.lines.map((line) => ({ label: line.name, show: line.shown, stroke: colour(line.swatch, 'color'), width: 2, dash: line.dash, points: { show: false } }))],
      hooks: { setCursor: [(plot) => this.#tell(plot.cursor.idx)] },
    }, this.#data(), this.host);
  }

  #data() {
    const points = this.lines.map((line) => history.rates(line.series));
    const n = points[0].length;
    const end = history.until - history.step; // the newest step still goes on
    return [Array.from({ length: n }, (_, i) => (end - (n - 1 - i) * history.step) / 1000), ...points];
  }

  // show draws what is new.
  show() {
    const data = this.#data();
    this.#plot?.setData(data);
    this.#tell(this.#plot?.cursor.idx);
    for (const line of this.lines) setText(line.sum, `${number(history.sum(line.series))} in the hour`);
  }

  // tell shows the rates under the pointer, or the newest.
  #tell(i) {
    const data = this.#plot?.data ?? [[]];
    const pointed = i !== null && i !== undefined && i < data[0].length;
    const at = pointed ? i : data[0].length - 1;
    this.lines.forEach((line, n) => setText(line.now, at < 0 ? '–' : `${rate(data[n + 1][at])}/s`));
    setText(this.at, pointed ? `At ${clock(new Date(data[0][at] * 1000).toISOString())} UTC` : 'Now. Times are UTC; a button hides its line.');
  }
}
