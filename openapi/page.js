// The page as an index, a search, one operation at a time, and a form that tries it. Without this
// script the page shows everything at once. What the server answers is shown as text. The key is
// that of the console in the same tab.
(() => {
  const place = 'coatcheck-key';
  const $ = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  let key = '';
  try {
    key = sessionStorage.getItem(place) ?? '';
  } catch {
    // The key is then in the memory of the page.
  }

  function make(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
      else if (value !== false && value !== undefined) element.setAttribute(name, value === true ? '' : value);
    }
    element.append(...children);
    return element;
  }

  function field(label, input) {
    return make('label', { class: 'field' }, make('span', {}, label), input);
  }

  // show shows what the address names: an operation, the headings of a part, or the beginning.
  function show(moved) {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)) || 'docs-start');
    const article = target?.closest('article');
    const section = target?.closest('main > section');
    for (const one of all('main > section')) one.className = one !== section ? '' : article ? 'shown' : 'shown folded';
    for (const one of all('main article')) one.classList.toggle('shown', one === article);
    for (const link of all('nav a')) {
      if (target && link.getAttribute('href') === `#${target.id}`) link.setAttribute('aria-current', 'page');
      else link.removeAttribute('aria-current');
    }
    $('#docs-start').classList.toggle('shown', !section);
    if (article?.dataset.path && !$('form', article)) $('dl', article).previousElementSibling.before(tryIt(article));
    const title = (article ?? section) && $('h2, h3', article ?? section);
    document.title = `${title?.textContent ?? 'The HTTP interface'} · coatcheck`;
    if (!moved) return;
    if (narrow.matches) $('#docs-index').open = false;
    scrollTo(0, 0);
    const heading = title ?? $('h1');
    heading.tabIndex = -1;
    heading.focus();
  }

  function search() {
    const words = $('#docs-find').value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const list of all('nav ul')) {
      const items = all('li', list);
      for (const item of items) {
        item.hidden = !words.every((word) => item.textContent.toLowerCase().includes(word));
        if (!item.hidden) found++;
      }
      list.previousElementSibling.hidden = list.hidden = items.every((item) => item.hidden);
    }
    $('#docs-found').textContent = words.length ? `${found} found` : '';
  }

  // tryIt is the form of an operation. Its fields have the examples of the document.
  function tryIt(article) {
    const { method, path } = article.dataset;
    const inputs = all('[data-in]', article).map((row) => {
      const { name, example = '', in: where, required } = row.dataset;
      const input = make('input', { type: 'text', value: where === 'path' ? example : '', placeholder: example, required: Boolean(required), autocomplete: 'off', spellcheck: 'false' });
      return { name, where, input, shown: field(`${name} (${where})`, input) };
    });
    const body = $('[data-media]', article);
    const text = body && make('textarea', { rows: 5, spellcheck: 'false' });
    if (text) text.value = $('pre', body)?.textContent ?? '';
    const call = make('pre', { tabindex: 0, role: 'region', 'aria-label': 'The call' });
    const answer = make('div', { role: 'status' });
    const changes = !['GET', 'HEAD'].includes(method);
    const form = make('form', { class: 'try' }, make('h4', {}, 'Try it'), ...inputs.map((one) => one.shown), ...(text ? [field(`Body (${body.dataset.media})`, text)] : []),
      make('button', { type: 'submit', class: changes ? 'changes' : '' }, `Send ${method}${changes ? ', which changes what the service has' : ''}`), call, answer);
    const asked = () => requestOf(method, path, inputs, text?.value, body?.dataset.media);
    const draw = () => {
      call.textContent = curl(asked());
    };
    form.addEventListener('input', draw);
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      send(asked(), answer);
    });
    draw();
    return form;
  }

  function requestOf(method, path, inputs, text, media) {
    const query = new URLSearchParams();
    const headers = {};
    for (const { name, where, input } of inputs) {
      if (where === 'path') path = path.replace(`{${name}}`, encodeURIComponent(input.value));
      else if (input.value && where === 'query') query.append(name, input.value);
      else if (input.value && where === 'header') headers[name] = input.value;
    }
    const body = text || undefined;
    if (body) headers['Content-Type'] = media;
    return { method, headers, body, url: new URL(path.slice(1) + (query.size ? `?${query}` : ''), new URL('.', location.href)) };
  }

  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

  function curl({ method, headers, body, url }) {
    const parts = ['curl', method === 'HEAD' ? '--head' : method === 'GET' ? '' : `-X ${method}`, quoted(url.href)];
    if (key) parts.push('-H "Authorization: Bearer $COATCHECK_API_KEY"');
    for (const [name, value] of Object.entries(headers)) parts.push(`-H ${quoted(`${name}: ${value}`)}`);
    if (body) parts.push(`-d ${quoted(body)}`);
    return parts.filter(Boolean).join(' ');
  }

  async function send({ method, headers, body, url }, place) {
    place.replaceChildren('Asking…');
    try {
      const all = key ? { ...headers, Authorization: `Bearer ${key}` } : headers;
      const begun = performance.now();
      const response = await fetch(url, { method, headers: all, body, cache: 'no-store', redirect: 'manual' });
      const text = await textOf(response);
      const took = Math.round(performance.now() - begun);
      const status = response.type === 'opaqueredirect' ? 'It leads elsewhere, which this page does not follow.' : `${response.status} ${response.statusText}, after ${took} ms`;
      place.replaceChildren(make('p', {}, make('strong', {}, status)),
        make('pre', { tabindex: 0, role: 'region', 'aria-label': 'The answer' }, [...response.headers].map(([name, value]) => `${name}: ${value}`).join('\n') + (text ? `\n\n${text}` : '')));
    } catch (error) {
      place.replaceChildren(make('p', {}, `There is no answer: ${error.message}. It is not known whether the request took effect.`));
    }
  }

  // textOf reads an answer. Of one without an end it is what comes in three seconds.
  async function textOf(response) {
    if (!response.headers.get('Content-Type')?.startsWith('text/event-stream')) {
      const text = await response.text();
      return /json/.test(response.headers.get('Content-Type')) ? pretty(text) : text;
    }
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    setTimeout(() => reader.cancel(), 3000);
    let text = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return text;
      text += value;
    }
  }

  // pretty is JSON in several lines, its numbers as they came.
  function pretty(text) {
    try {
      return JSON.stringify(JSON.parse(text, (_, value, context) => (typeof value === 'number' && JSON.rawJSON && context?.source ? JSON.rawJSON(context.source) : value)), null, 2);
    } catch {
      return text;
    }
  }

  function keep(event) {
    event.preventDefault();
    key = $('#docs-key').value.trim();
    $('#docs-key').value = '';
    try {
      if (key) sessionStorage.setItem(place, key);
      else sessionStorage.removeItem(place);
    } catch {
      // It is in memory.
    }
    tellKey();
    for (const form of all('form.try')) form.dispatchEvent(new Event('input'));
  }

  function tellKey() {
    $('#docs-kept').textContent = key ? 'A key is kept in this tab, and goes along with what you try.' : 'No key: what you try goes without one.';
  }

  const narrow = matchMedia('(max-width: 56rem)');
  document.documentElement.classList.add('one');
  for (const one of all('[data-script]')) one.hidden = false;
  $('#docs-index').open = !narrow.matches;
  $('#docs-find').addEventListener('input', search);
  $('#docs-find').closest('form').addEventListener('submit', (event) => {
    event.preventDefault();
    $('nav li:not([hidden]) a')?.click();
  });
  $('#docs-key').closest('form').addEventListener('submit', keep);
  addEventListener('hashchange', () => show(true));
  narrow.addEventListener('change', () => {
    $('#docs-index').open = !narrow.matches;
  });
  tellKey();
  show(false);
})();
