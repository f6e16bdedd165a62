// The API key, in the storage of this tab's session: it outlives a reload, ends with the tab, and
// no other tab reads it. Where that storage is closed, the key is in the page's memory alone.

const place = 'coatcheck-key';
let key = '';
try {
  key = sessionStorage.getItem(place) ?? '';
} catch {
  // Then it is asked for after each reload.
}

export function shownKey() {
  return key;
}

// keep remembers a key; '' forgets it.
export function keep(newKey) {
  key = newKey;
  try {
    if (key) sessionStorage.setItem(place, key);
    else sessionStorage.removeItem(place);
  } catch {
    // It is in memory.
  }
}
