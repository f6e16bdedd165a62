// Small helpers to build the page. Answers of the server become text here, never HTML.

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

// table makes a table whose columns have headers, in a frame of its own that scrolls where the
// screen is narrow.
export function table(caption, columns) {
  const body = el('tbody');
  const heads = columns.map((column) => el('th', { scope: 'col', class: column.class }, column.name));
  const whole = el('table', {}, el('caption', {}, caption), el('thead', {}, el('tr', {}, ...heads)), body);
  const frame = el('div', { class: 'frame', tabindex: '0', role: 'region', 'aria-label': caption }, whole);
  return { frame, body, caption: whole.caption };
}
