// What makes a request the same.

import { createHash } from 'node:crypto';

/**
 * A digest of what makes a request the same: SHA-256 over the parts, each after its length. A part
 * is a string, or bytes in a Buffer or Uint8Array; of anything else two could look the same, and it
 * is a TypeError.
 */
export function fingerprint(...parts) {
  const digest = createHash('sha256');
  for (const part of parts) {
    if (!isText(part) && !(part instanceof Uint8Array)) {
      throw new TypeError('a part of a fingerprint is a string without lone surrogates, or a Buffer or Uint8Array: make it one, such as by JSON.stringify');
    }
    digest.update(`${Buffer.byteLength(part)}:`).update(part).update(',');
  }
  return digest.digest('base64url');
}

/** Reports whether a value is a string that UTF-8 can write: a lone surrogate becomes another. */
export const isText = (value) => typeof value === 'string' && Buffer.from(value).toString() === value;
