// Snowflake ids: a timestamp, a worker id and a sequence. Nothing here reads a clock or asks
// anyone: what time it is, and for when it may stamp, a generator is told.

/** The bits of a layout, and its unit in ms; undefined for what the service does not write. */
export function layoutOf(text) {
  const form = /^(\d{1,2})\/(?:(\d{1,2})\/)?(\d{1,2})\/(\d{1,2})(@s)?$/.exec(text);
  if (!form) return undefined;
  const [timestamp, datacenter, worker, sequence] = form.slice(1, 5).map((bits) => Number(bits ?? 0));
  if (timestamp < 20 || worker < 1 || timestamp + datacenter + worker + sequence > 63) return undefined;
  return { timestamp, datacenter, worker, sequence, unit: form[5] ? 1000 : 1 };
}

/** Stamps ids that rise, with one worker id. */
export class Generator {
  #layout;
  #epoch; // ms since 1970
  #first; // ms since 1970: no id is of before
  #who; // datacenter and worker id, in their place in the id
  #unit = -1; // of the last id, since the epoch
  #sequence = 0;

  constructor({ layout, epoch, notBefore, datacenter, workerId }) {
    this.#layout = layout;
    this.#epoch = epoch;
    this.#first = notBefore;
    this.#who = (BigInt(datacenter) << BigInt(layout.worker) | BigInt(workerId)) << BigInt(layout.sequence);
  }

  /**
   * Stamps an id at a time, for a window that ends at notAfter, both in ms since 1970. It returns a
   * BigInt, or as a number in how many ms to ask again: the whole unit of an id lies in the window.
   * A time before that of the last id counts as that one. RangeError: the layout's timestamp is
   * used up.
   */
  stamp(time, notAfter) {
    const { timestamp, datacenter, worker, sequence: bits, unit: length } = this.#layout;
    const unit = Math.max(Math.floor((time - this.#epoch) / length), this.#unit);
    const starts = this.#epoch + unit * length;
    if (starts < this.#first) return this.#epoch + Math.ceil((this.#first - this.#epoch) / length) * length - time;
    if (starts + length > notAfter) return 10; // a renewal moves the end, or the lease ends
    if (unit >= 2 ** timestamp) throw new RangeError("the layout's timestamp is used up");
    // a fresh unit begins anywhere in the lower half, so that ids modulo a number are even
    const sequence = unit === this.#unit ? this.#sequence + 1 : Math.floor(Math.random() * Math.floor(2 ** bits / 2));
    if (sequence >= 2 ** bits) return Math.max(starts + length - time, 0);
    this.#unit = unit;
    this.#sequence = sequence;
    return BigInt(unit) << BigInt(datacenter + worker + bits) | this.#who | BigInt(sequence);
  }

  /** The end of the last id's unit, in ms since 1970, where another's window may begin. */
  get usedUntil() {
    return this.#unit < 0 ? this.#first : this.#epoch + (this.#unit + 1) * this.#layout.unit;
  }
}
