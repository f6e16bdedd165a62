// A question before what cannot be undone.

import { el } from './dom.js';

// confirmed asks in a dialog, and is true if the answer was yes. The first button, which Enter and
// Escape mean, changes nothing. More of the question follows its text.
export function confirmed({ title, text, more = [], no, yes }) {
  return new Promise((resolve) => {
    const close = (answer) => () => {
      dialog.returnValue = answer;
      dialog.close();
    };
    const dialog = el('dialog', { 'aria-labelledby': 'confirm-title', 'aria-describedby': 'confirm-text' },
      el('h2', { id: 'confirm-title' }, title), el('p', { id: 'confirm-text' }, text), ...more,
      el('div', { class: 'buttons' }, el('button', { type: 'button', onclick: close(''), autofocus: true }, no), el('button', { type: 'button', class: 'danger', onclick: close('yes') }, yes)));
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'yes');
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
