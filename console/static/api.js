// Calls of the HTTP interface. The key goes into their Authorization header, and nowhere else.

import { keep, shownKey } from './key.js';

let session = { role: 'none', names: [], access: true, readonly: true };

// happened notifies the page of a new session, and of a key that is needed.
export const happened = new EventTarget();

const roles = ['none', 'read', 'use', 'admin'];

// may reports whether this page may show an action of a role: views need read, changes a higher
// role.
export function may(role) {
  return roles.indexOf(session.role) >= roles.indexOf(role) && (role === 'read' || !session.readonly);
}

export function current() {
  return session;
}

export function hasKey() {
  return shownKey() !== '';
}

// open asks for the session of the key, and notifies the page.
export async function open(newKey) {
  keep(newKey);
  session = await get('console/api/session');
  happened.dispatchEvent(new Event(session.role === 'none' ? 'needed' : 'session'));
  return session;
}

// Problem is an answer that is an error, or no answer.
export class Problem extends Error {
  constructor(status, body, retryAfter) {
    super(body.detail || body.title || `HTTP ${status}`);
    this.status = status;
    this.code = body.code ?? '';
    this.retryAfter = retryAfter;
  }

  // unknown reports whether the request may have taken effect.
  get unknown() {
    return this.status === 0 || this.code === 'outcome-unknown';
  }
}

const base = new URL('../', new URL(document.baseURI).href.split('#')[0]); // a proxy may serve the page under another path

// request sends a request and returns the response with any status.
export async function request(method, path, { headers = {}, json, signal } = {}) {
  const all = { ...headers };
  if (json) all['Content-Type'] = 'application/json';
  if (shownKey()) all.Authorization = `Bearer ${shownKey()}`;
  return fetch(new URL(path, base), { method, headers: all, body: json && JSON.stringify(json), signal, cache: 'no-store', redirect: 'error', referrerPolicy: 'no-referrer' });
}

const took = []; // how long the last calls took, in milliseconds
const remembered = 200;

// latency is how long the page's last calls took.
export function latency() {
  const sorted = took.toSorted((a, b) => a - b);
  const at = (share) => (sorted.length ? sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)] : null);
  return { calls: sorted.length, p50: at(0.5), p99: at(0.99) };
}

// call sends a request and reads its answer; it throws an error as a Problem. allowed are error
// statuses that count as answers.
export async function call(method, path, options = {}) {
  const begun = performance.now();
  let response, text;
  try {
    response = await request(method, path, options);
    text = await response.text();
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem(0, { title: 'The server does not answer.' });
  }
  took.push(performance.now() - begun);
  if (took.length > remembered) took.shift();
  const body = parse(text);
  if (response.ok || options.allowed?.includes(response.status)) return body;
  throw refusal(response, body);
}

export const get = (path, options) => call('GET', path, options);

// refusal makes an error of an answer. If the answer refuses the key, it asks for another key.
export function refusal(response, body) {
  if (response.status === 401) {
    session = { ...session, role: 'none', refused: body?.detail ?? '' };
    happened.dispatchEvent(new Event('needed'));
  }
  const wait = Number(response.headers.get('Retry-After'));
  return new Problem(response.status, body ?? {}, Number.isFinite(wait) ? wait * 1000 : 0);
}

// parse reads JSON. Whole numbers beyond 2^53, which counters reach, become BigInts where the
// browser gives their digits, and otherwise the nearest number.
export function parse(text) {
  if (!text) return null;
  try {
    return JSON.parse(text, (_, value, context) =>
      typeof value === 'number' && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? '') ? BigInt(context.source) : value,
    );
  } catch {
    return null;
  }
}

// query writes the parameters that have a value.
export function query(path, parameters) {
  const search = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== '' && value !== null && value !== undefined));
  if (!search.size) return path;
  return `${path}${path.includes('?') ? '&' : '?'}${search}`;
}
