// What the subjects have in common: how they ask, and what they refuse to send.

/** The client's method that sends one request. */
export const ask = Symbol('ask');

/** Reports whether an answer is one without a body. */
export const done = (answer) => answer === null;

/** Seconds as they are sent, rounded up. */
export const millis = (seconds) => {
  if (!Number.isFinite(seconds)) throw new TypeError('a duration is a number of seconds');
  return Math.ceil(Math.round(seconds * 1e6) / 1000); // 16.1 s are 16,100 ms
};

/**
 * The options of a call, each as it is given or as in all. One that is misspelt would be without
 * effect, and nobody would see it.
 */
export function optionsOf(given, all) {
  if (given !== undefined && (given === null || typeof given !== 'object')) throw new TypeError(`options are an object of ${Object.keys(all).join(', ')}`);
  const stranger = Object.keys(given ?? {}).find((name) => !Object.hasOwn(all, name));
  if (stranger !== undefined) throw new TypeError(`there is no option ${stranger}, only ${Object.keys(all).join(', ')}`);
  return { ...all, ...Object.fromEntries(Object.entries(given ?? {}).filter(([, value]) => value !== undefined)) };
}

/** The path of something with a name. What cannot be one is not sent: it would be another path. */
export function named(base, name) {
  if (typeof name !== 'string' || !/^[A-Za-z0-9._:~@-]{1,200}$/.test(name) || /^\.+$/.test(name)) {
    throw new TypeError('a name has 1 to 200 characters of A–Z a–z 0–9 . _ : ~ @ -, and more than dots');
  }
  return `${base}/${name}`;
}

/** A path with those of the parameters that are given. */
export function withQuery(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined);
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}
