// The page: the view shown, the session, and the colours.

import { current, happened, hasKey, open } from './api.js';
import { el, field, say, setText, tellTimes } from './dom.js';
import { feed } from './feed.js';
import { history } from './history.js';
import { keep, shownKey } from './key.js';
import './counters.js';
import './decode.js';
import './doubt.js';
import './events.js';
import './limits.js';
import './locks.js';
import './many.js';
import './overview.js';
import './status.js';
import './tokens.js';
import './workers.js';

const main = document.getElementById('main');

// The views by the first part of the address after the #; the second is a name.
const views = {
  overview: () => el('cc-overview'),
  counters: () => el('cc-counters'),
  workers: (pool) => (pool ? el('cc-ring', { pool }) : el('cc-pools')),
  locks: (name) => (name ? el('cc-lock', { name }) : el('cc-locks')),
  limits: () => el('cc-limits'),
  tokens: () => el('cc-tokens'),
  doubt: (name) => (name ? el('cc-doubt', { name }) : el('cc-doubts')),
  decode: () => el('cc-decode'),
  events: () => el('cc-events'),
};

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return '';
  }
}

// show shows the view that the address names.
function show(focus) {
  if (current().role === 'none') return;
  const [, word = '', name = ''] = location.hash.split('/');
  const view = word || 'overview';
  say('');
  main.replaceChildren(Object.hasOwn(views, view) ? views[view](decoded(name)) : missing(view));
  document.getElementById('page').scrollTop = 0;
  for (const link of document.querySelectorAll('#views a')) {
    if (link.getAttribute('href') !== `#/${view}`) {
      link.removeAttribute('aria-current');
      continue;
    }
    link.setAttribute('aria-current', 'page');
    link.scrollIntoView({ block: 'nearest', inline: 'center' });
  }
  const title = main.querySelector('h1');
  document.title = `${title?.textContent ?? 'console'} · coatcheck`;
  if (!focus || !title) return;
  title.tabIndex = -1;
  title.focus();
}

// missing is the page for an address that names no view.
function missing(word) {
  const links = [...document.querySelectorAll('#views a')].map((link) => el('li', {}, el('a', { href: link.getAttribute('href') }, link.textContent)));
  return el('div', {}, el('h1', {}, 'There is no such view'), el('p', {}, `This page has no view “${decoded(word)}”. It has:`), el('ul', {}, ...links));
}

let asking = null;
const forget = document.getElementById('forget');

// askForKey shows the dialog for a key, once. The view stays of a caller that may look without one.
function askForKey() {
  if (current().role === 'none') {
    feed.stop();
    main.replaceChildren(el('h1', {}, 'Who is asking?'), el('p', {}, 'This server wants to know. Show it an API key.'), el('button', { type: 'button', onclick: askForKey }, 'Show a key'));
    forget.hidden = true;
  }
  const refused = hasKey() ? current().refused || 'That key is not taken.' : '';
  keep('');
  if (asking?.dialog.open) {
    asking.complain(refused);
    return;
  }
  const input = el('input', { type: 'password', autocomplete: 'off', spellcheck: 'false', required: true, maxlength: '300' });
  const trouble = el('p', { class: 'trouble', role: 'alert' });
  const submit = async (event) => {
    event.preventDefault();
    trouble.textContent = '';
    try {
      await open(input.value.trim());
    } catch (error) {
      trouble.textContent = error.message;
    }
  };
  const dialog = el('dialog', { 'aria-labelledby': 'key-title' },
    el('h2', { id: 'key-title' }, 'An API key, please'),
    el('form', { onsubmit: submit }, field('API key', input, 'It begins with cck_. This tab keeps it until it is closed, or until you press Forget key.'), trouble,
      el('div', { class: 'buttons' }, el('button', { type: 'button', onclick: () => dialog.close() }, 'Not now'), el('button', { type: 'submit' }, 'Show it'))));
  dialog.addEventListener('close', () => {
    input.value = '';
    dialog.remove();
    if (asking?.dialog === dialog) asking = null; // the event comes late: somebody may have asked again
  });
  asking = {
    dialog,
    complain(text) {
      trouble.textContent = text;
      input.select();
    },
  };
  asking.complain(refused);
  document.body.append(dialog);
  dialog.showModal();
}

happened.addEventListener('needed', askForKey);
happened.addEventListener('session', () => {
  asking?.dialog.close();
  forget.hidden = !current().access;
  setText(forget, hasKey() ? 'Forget key' : 'Show a key');
  feed.restart();
  history.forget();
  show(false);
});

forget.addEventListener('click', () => (hasKey() ? begin('') : askForKey()));
document.getElementById('skip').addEventListener('click', () => main.focus());
addEventListener('hashchange', () => show(true));

const theme = document.getElementById('theme');
theme.value = document.documentElement.dataset.theme ?? '';
theme.addEventListener('change', () => {
  if (theme.value) document.documentElement.dataset.theme = theme.value;
  else delete document.documentElement.dataset.theme;
  try {
    localStorage.setItem('coatcheck-theme', theme.value);
  } catch {
    // Then the choice lasts as long as the page.
  }
});

// begin asks for the session until the server answers.
async function begin(key) {
  try {
    await open(key);
  } catch (error) {
    say(`${error.message} Trying again…`, true);
    setTimeout(() => begin(key), Math.max(error.retryAfter ?? 0, 3000));
  }
}

begin(shownKey());

setInterval(() => !document.hidden && tellTimes(), 1000);
