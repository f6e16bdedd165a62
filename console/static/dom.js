// Small helpers to build the page. Answers of the server become text here, never HTML.

import { ago, moment, number } from './text.js';

// el makes an element. Properties that begin with "on" are listeners, true is an attribute without
// a value, null and false are none; children are nodes or text.
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(...children.flat().map(asNode));
  return element;
}

function asNode(child) {
  return child instanceof Node ? child : document.createTextNode(String(child ?? ''));
}

const svgNamespace = 'http://www.w3.org/2000/svg';

// svg makes an element of a drawing.
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(svgNamespace, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

// announce says a text to screen readers alone: the page shows it elsewhere.
export function announce(text) {
  document.getElementById('announced').textContent = text;
}

// say announces a text to screen readers, and shows it below the page until the view changes.
export function say(text, bad = false) {
  const place = document.getElementById('said');
  place.textContent = text;
  place.classList.toggle('bad', bad);
}

// setText changes a text only if it differs, so that nothing is drawn or read out anew.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

let names = 0;

// fresh returns an id that no other element has.
export function fresh(word) {
  names++;
  return `${word}-${names}`;
}

// field is a control with its label.
export function field(label, control, hint = '') {
  control.id ||= fresh('field');
  const parts = [el('label', { for: control.id }, label), control];
  if (hint) {
    const id = `${control.id}-hint`;
    control.setAttribute('aria-describedby', id);
    parts.push(el('small', { id }, hint));
  }
  return el('div', { class: 'field' }, ...parts);
}

// facts is a list of names and values.
export function facts(entries) {
  const list = el('dl');
  for (const [name, value] of entries) list.append(el('div', {}, el('dt', {}, name), el('dd', {}, value)));
  return list;
}

// when shows a time of the server by how far it is from now. The exact one is its title, and takes
// its place with a click, a tap or Enter, until the next one.
export function when(text) {
  if (!text || Number.isNaN(Date.parse(text))) return moment(text);
  const shown = el('time', { datetime: text, title: moment(text), class: 'when', tabindex: '0', role: 'button' });
  const turn = () => {
    shown.classList.toggle('exact');
    tell(shown);
  };
  shown.addEventListener('click', turn);
  shown.addEventListener('keydown', (event) => event.key === 'Enter' && turn());
  tell(shown);
  return shown;
}

function tell(shown) {
  const { dateTime } = shown;
  setText(shown, shown.classList.contains('exact') ? moment(dateTime) : ago(dateTime));
}

// tellTimes has all times on the page go on.
export function tellTimes() {
  for (const shown of document.querySelectorAll('time.when')) tell(shown);
}

// bar is a drawing of a part of a whole, with its text beside it.
export function bar() {
  const part = svg('rect', { class: 'part', width: 0, height: 8, rx: 2 });
  const drawing = svg('svg', { class: 'fill', viewBox: '0 0 80 8', width: 80, height: 8, 'aria-hidden': 'true' }, svg('rect', { class: 'whole', width: 80, height: 8, rx: 2 }), part);
  const words = el('span');
  const show = (n, of) => {
    const share = of > 0 ? n / of : 0;
    part.setAttribute('width', String(n > 0 ? Math.max(Math.min(share, 1) * 80, 1.5) : 0));
    part.classList.toggle('full', share >= 0.8);
    setText(words, `${number(n)} of ${number(of)}${share >= 0.01 ? ` (${Math.floor(share * 100)} %)` : ''}`);
  };
  return { element: el('span', { class: 'filled' }, drawing, words), show };
}

// table makes a table whose columns have headers, in a frame of its own that scrolls where it is
// too wide. On a narrow screen each row is a card: its cells stand one below the other, each beside
// the name of its column. What such a table is to a screen reader is said in roles, since its boxes
// are no longer those of a table.
export function table(caption, columns) {
  const body = el('tbody', { role: 'rowgroup' });
  const heads = columns.map((column) => el('th', { scope: 'col', role: 'columnheader', class: column.class }, column.name));
  const whole = el('table', { role: 'table' }, el('caption', {}, caption), el('thead', { role: 'rowgroup' }, el('tr', { role: 'row' }, ...heads)), body);
  new MutationObserver((changes) => changes.forEach((change) => change.addedNodes.forEach((row) => label(row, columns)))).observe(body, { childList: true });
  const frame = el('div', { class: 'frame', tabindex: '0', role: 'region', 'aria-label': caption }, whole);
  return { frame, body, caption: whole.caption };
}

// label names the cells of a row by their columns.
function label(row, columns) {
  row.setAttribute('role', 'row');
  [...row.cells].forEach((cell, i) => {
    cell.setAttribute('role', cell.tagName === 'TH' ? 'rowheader' : 'cell');
    if (columns[i]?.name && cell.colSpan === 1) cell.dataset.label = columns[i].name;
  });
}
