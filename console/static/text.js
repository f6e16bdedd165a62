// How numbers, times and spans are written for people.

const whole = new Intl.NumberFormat('en');

export function number(value) {
  return whole.format(value); // of a BigInt, too
}

export function rate(perSecond) {
  if (perSecond === null) return '–';
  if (perSecond === 0) return '0';
  const digits = Math.abs(perSecond) < 10 ? 1 : 0;
  return perSecond.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export function milliseconds(ms) {
  if (ms === null) return '–';
  return ms < 10 ? `${ms.toFixed(1)} ms` : `${Math.round(ms)} ms`;
}

// left formats a remaining time.
export function left(ms) {
  if (ms <= 0) return 'over';
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.floor((ms % 60_000) / 1000)} s`;
  return `${Math.floor(ms / 3_600_000)} h ${Math.floor((ms % 3_600_000) / 60_000)} min`;
}

export function span(ms) {
  if (ms % 3_600_000 === 0) return `${ms / 3_600_000} h`;
  if (ms % 60_000 === 0) return `${ms / 60_000} min`;
  return ms % 1000 === 0 ? `${ms / 1000} s` : `${ms} ms`;
}

// moment writes a time of the server, which is RFC 3339, as UTC.
export function moment(text) {
  return text ? text.replace('T', ' ').replace(/(\.\d{3})\d*/, '$1').replace('Z', ' UTC') : '–';
}

// ago writes a time of the server by how far it is from now, by this machine's clock.
export function ago(text, now = Date.now()) {
  const ms = now - Date.parse(text);
  const n = Math.abs(ms);
  if (n < 2000) return 'now';
  const [unit, size] = [['s', 1000], ['min', 60_000], ['h', 3_600_000], ['days', 86_400_000]].findLast(([, size]) => n >= size);
  const many = Math.floor(n / size);
  const words = unit === 'days' && many === 1 ? '1 day' : `${many} ${unit}`;
  return ms < 0 ? `in ${words}` : `${words} ago`;
}

export function clock(text) {
  return text.slice(11, 19);
}

export function plural(n, word) {
  return `${number(n)} ${word}${n === 1 ? '' : 's'}`;
}
