// Ids that the service makes. After an error ask again: lost ids are a gap.

import { ask, named, withQuery } from './ask.mjs';

const digits = (id) => typeof id === 'string' && /^\d{1,19}$/.test(id);

/** Asks for n ids, and checks that so many came. */
async function take(client, path, n, parameters, fits) {
  const whole = (made) => listed(made).length === n && listed(made).every(fits);
  return listed(await client[ask]('GET', withQuery(path, { n, ...parameters }), whole));
}

const listed = (made) => made?.ids ?? (made?.id === undefined ? [] : [made.id]);

export const ids = {
  /** n Snowflake ids as BigInts, by the service's own worker id of a pool, or of its default. */
  async snowflakeIds(pool, n = 1) {
    const path = pool === undefined ? '/id/snowflake' : named('/id/snowflake', pool);
    return (await take(this, path, n, {}, digits)).map(BigInt);
  },

  /** n ids of a tag as BigInts, from the range that the service has fetched ahead. */
  async segmentIds(tag, n = 1) {
    return (await take(this, named('/id/segment', tag), n, {}, digits)).map(BigInt);
  },

  /** n UUIDs of version 4 or 7. */
  async uuids(n = 1, version = 7) {
    return take(this, '/id/uuid', n, { version }, (id) => typeof id === 'string' && id.length === 36);
  },

  /** n ULIDs. */
  async ulids(n = 1) {
    return take(this, '/id/ulid', n, {}, (id) => typeof id === 'string' && id.length === 26);
  },

  /** n TypeIDs, with a prefix such as "order". */
  async typeids(prefix, n = 1) {
    return take(this, '/id/typeid', n, { prefix }, (id) => typeof id === 'string' && (!prefix || id.startsWith(`${prefix}_`)));
  },

  /** The parts of a Snowflake id of a pool, or of the default layout, as the service tells them. */
  async decodeId(id, pool) {
    return this[ask]('GET', withQuery(`/id/decode/${encodeURIComponent(id)}`, { pool }), (parts) => parts?.time !== undefined);
  },
};
