// What becomes of what the work returns.

import { isText } from './fingerprint.mjs';

/**
 * A result with a status and headers of its own, for the work of runOnce to return. Any other
 * result is the body of a Response with status 200.
 *
 * body is a string or bytes, which are recorded as they are, nothing, or JSON: booleans, finite
 * numbers, strings, arrays, plain objects, and what has toJSON. Anything else is a TypeError, such
 * as a generator, a promise in an array, a Map, an Error or the Response of fetch.
 */
export class Response {
  constructor(body, { status = 200, headers = {} } = {}) {
    if (!Number.isInteger(status) || status < 200 || status > 599) throw new TypeError('a status is a number of 200 to 599');
    if (!isPlain(headers) || !Object.entries(headers).flat().every(isText)) throw new TypeError('headers are an object of strings without lone surrogates');
    const typed = Object.keys(headers).some((name) => name.toLowerCase() === 'content-type');
    const bytes = bytesOf(body);
    this.status = status;
    this.headers = bytes || typed ? { ...headers } : { ...headers, 'Content-Type': 'application/json' };
    this.body = bytes ?? json(body);
  }
}

/**
 * The response that a result of the work is. A TypeError leaves the operation in doubt: what cannot
 * be read, such as a promise, does not show that the work has ended.
 */
export const responseOf = (result) => (result instanceof Response ? result : new Response(result));

/** The bytes of what is recorded as it is; undefined for what is written as JSON. */
function bytesOf(body) {
  if (body === undefined || body === null) return Buffer.alloc(0);
  if (isText(body)) return Buffer.from(body);
  if (ArrayBuffer.isView(body)) return Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  return body instanceof ArrayBuffer ? Buffer.from(body) : undefined;
}

function json(body) {
  try {
    if (typeof body === 'string') throw new TypeError('it has half of a surrogate pair, which is no text');
    return Buffer.from(JSON.stringify(body, (_, value) => {
      if (isData(value)) return value;
      throw new TypeError(`JSON has no ${kindOf(value)}`);
    }));
  } catch (cause) {
    throw new TypeError(`a result of type ${kindOf(body)} cannot be recorded: ${cause.message}`, { cause });
  }
}

/** Reports whether JSON.stringify writes the whole of a value, but for what is within. */
const isData = (value) => (typeof value === 'object'
  ? value === null || Array.isArray(value) || isPlain(value)
  : ['string', 'boolean', 'undefined'].includes(typeof value) || Number.isFinite(value));

/** Reports whether an object is a literal, of any realm, and no instance of a class. */
function isPlain(value) {
  const above = Object.getPrototypeOf(Object(value));
  return above === null || Object.getPrototypeOf(above) === null;
}

const kindOf = (value) => (typeof value === 'object' ? value?.constructor?.name ?? 'object' : typeof value === 'number' ? String(value) : typeof value);
