'use strict';
// Reads ../live once a second and draws it. Texts become text nodes, never markup.
(() => {
  const period = 1000, limit = 200, maxTotals = 120, maxRates = 60, maxProblems = 10, patience = 5000;
  const byId = (id) => document.getElementById(id);
  const integer = new Intl.NumberFormat('en', {maximumFractionDigits: 0});
  const decimal = new Intl.NumberFormat('en', {maximumFractionDigits: 1});

  let before = null, now = null; // readings; before is an earlier one
  let rates = noRates();
  let totals = []; // rates of all connections, oldest first
  const histories = new Map(); // rates by Service
  let sort = {key: 'rate', descending: true};
  let paused = false, asked = 0, timer = 0;

  const nameOf = (s) => s.namespace + '/' + s.name;
  const detailOf = () => decodeURIComponent(location.hash.slice(1));

  function noRates() {
    return {total: null, services: new Map(), frontends: new Map(), endpoints: new Map()};
  }

  // perSecond returns the growth of a counter, or null: one that has fallen has lost a part.
  function perSecond(old, value, seconds) {
    return old === undefined || value === undefined || value < old ? null : (value - old) / seconds;
  }

  function ratesOf(a, b) {
    const r = noRates();
    const seconds = a && b ? b.uptime - a.uptime : 0;
    if (seconds <= 0 || a.instance !== b.instance || !a.counted || !b.counted) return r;
    r.total = perSecond(a.totals.connections, b.totals.connections, seconds);
    const old = new Map();
    for (const s of listed(a)) old.set(nameOf(s), s.connections);
    for (const s of listed(b)) {
      let rate = perSecond(old.get(nameOf(s)), s.connections, seconds);
      if (!old.has(nameOf(s)) && s.recent !== undefined && b.recentSince < b.uptime) rate = s.recent / (b.uptime - b.recentSince);
      if (rate !== null) r.services.set(nameOf(s), rate);
    }
    if (a.detail && b.detail && nameOf(a.detail) === nameOf(b.detail)) {
      const known = frontendCounts(a.detail);
      for (const [key, n] of frontendCounts(b.detail)) r.frontends.set(key, perSecond(known.get(key) ?? 0, n, seconds));
      const passed = b.detail.read - a.detail.read, counts = endpointCounts(a.detail);
      if (passed > 0) for (const [key, n] of endpointCounts(b.detail)) r.endpoints.set(key, perSecond(counts.get(key) ?? 0, n, passed));
    }
    return r;
  }

  const listed = (s) => [...(s.services ?? []), ...(s.detail ? [s.detail] : [])];

  function frontendCounts(detail) {
    const out = new Map();
    for (const p of detail.ports) {
      for (const f of p.frontends) if (f.connections !== undefined) out.set(p.protocol + ' ' + f.address, f.connections);
    }
    return out;
  }

  const endpointKey = (p, e) => [p.port, p.protocol, e.address].join(' ');

  function endpointCounts(detail) {
    const out = new Map();
    for (const p of detail.ports) {
      for (const e of p.endpointList ?? []) if (e.connections !== undefined) out.set(endpointKey(p, e), e.connections);
    }
    return out;
  }

  // element makes an element with text or other elements in it.
  function element(tag, attributes, ...content) {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(attributes ?? {})) e.setAttribute(k, v);
    e.append(...content);
    return e;
  }

  const cell = (text, name) => element('td', name ? {class: name} : null, text);
  const text = (id, value, name) => {
    const e = byId(id);
    if (e.textContent !== value) e.textContent = value;
    if (name !== undefined) e.className = name;
  };

  function rateText(r) {
    if (r === null || r === undefined) return '-';
    if (r > 0 && r < 0.1) return '<0.1';
    return r < 10 ? decimal.format(r) : integer.format(r);
  }
  const countText = (n) => n === undefined ? '-' : integer.format(n);

  // say returns a text of this page in the words for what the node serves.
  const words = {
    balance: {
      Service: 'Balance', Services: 'Balances', Endpoint: 'Server', Endpoints: 'Servers', 'Without endpoints': 'Without servers',
      ' without endpoints': ' without servers', ': endpoints': ': servers', 'this node': 'this machine', 'load balancer IP': 'address',
      'This node serves no Service of that name.': 'This machine serves no Balance of that name.',
    },
    mixed: {
      Service: 'Service or Balance', Services: 'Services and Balances', 'This node serves no Service of that name.': 'This node serves no Service or Balance of that name.',
    },
  };
  const say = (what) => words[now?.words]?.[what] ?? what;
  const label = () => document.querySelectorAll('[data-word]').forEach((e) => {
    e.dataset.word ||= e.textContent;
    e.textContent = say(e.dataset.word);
  });

  const plural = (n, what) => integer.format(n) + ' ' + what + (n === 1 ? '' : 's');

  function seconds(s) {
    if (s < 0.001) return integer.format(s * 1e6) + ' µs';
    if (s < 1) return decimal.format(s * 1e3) + ' ms';
    return decimal.format(s) + ' s';
  }

  const age = (from) => ageText(Math.max(0, (Date.parse(now.time) - Date.parse(from)) / 1000));

  function ageText(s) {
    if (s < 60) return integer.format(s) + ' s';
    if (s < 3600) return integer.format(s / 60) + ' min';
    if (s < 172800) return integer.format(s / 3600) + ' h';
    return integer.format(s / 86400) + ' days';
  }

  // graph draws values as a line, the newest at the right.
  function graph(svg, values, most) {
    const width = 100, height = 20, top = Math.max(1e-9, ...values);
    svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    svg.setAttribute('preserveAspectRatio', 'none');
    const first = most - values.length;
    const points = values.map((v, i) => `${((first + i) * width / (most - 1)).toFixed(1)},${(height - 1 - v / top * (height - 2)).toFixed(1)}`);
    let line = svg.firstElementChild;
    if (!line) {
      line = document.createElementNS('http://www.w3.org/2000/svg', 'polyline');
      svg.append(line);
    }
    line.setAttribute('points', points.join(' '));
  }

  function take(sample) {
    const another = !now || now.instance !== sample.instance || now.uptime !== sample.uptime;
    if (another) before = now;
    now = sample;
    rates = ratesOf(before, now);
    if (!another || rates.total === null) return;
    totals = [...totals, rates.total].slice(-maxTotals);
    for (const name of histories.keys()) if (!rates.services.has(name)) histories.delete(name);
    for (const [name, r] of rates.services) histories.set(name, [...(histories.get(name) ?? []), r].slice(-maxRates));
  }

  function drawHead(error) {
    document.title = (now.node ? now.node + ' – ' : '') + 'nftproxy';
    text('node', now.node ? 'on ' + now.node : '');
    text('about', `${now.version}, up ${age(now.started)}, ${now.source}`);
    if (error) text('health', 'no answer', 'bad');
    else if (paused) text('health', 'paused', 'warn');
    else text('health', now.healthy ? 'healthy' : 'not healthy', now.healthy ? 'good' : 'bad');
    label();
    const t = now.totals, s = now.syncs;
    text('rate', now.counted ? rateText(rates.total) : 'not counted');
    graph(byId('rateGraph'), totals, maxTotals);
    text('services', integer.format(t.services));
    text('frontends', plural(t.frontends, 'frontend'));
    text('endpoints', integer.format(t.endpoints));
    text('unserved', t.unserved ? plural(t.unserved, 'frontend') + say(' without endpoints') : '', 'warn');
    text('starting', t.starting ? `${integer.format(t.starting)} ${t.starting === 1 ? 'starts' : 'start'} slowly` : '');
    text('sync', s.total ? seconds(s.p50) : '-');
    text('syncs', `median; p99 ${seconds(s.p99)}, max ${seconds(s.max)}; ${integer.format(s.total)} in all` + (s.failed ? `, ${integer.format(s.failed)} failed` : ''));
  }

  // objectText returns an object as messages name it: one that only files have, without its default namespace.
  function objectText(o) {
    const within = o.namespace && (o.kind !== 'Balance' || o.namespace !== 'default') ? o.namespace + '/' : '';
    return o.name ? `${o.kind} ${within}${o.name}` : o.kind;
  }

  function drawProblems(error) {
    const lines = [];
    const add = (name, line) => lines.push(element('li', {class: name}, line));
    if (error) add('bad', error);
    if (now.sourceError) add('bad', `The source cannot be used since ${age(now.sourceError.since)}: ${now.sourceError.message}`);
    if (!now.counted) add('warn', 'Connections are not counted: start nftproxy with --service-metrics.');
    for (const p of (now.problems ?? []).slice(0, maxProblems)) add('warn', objectText(p.object) + ': ' + p.message);
    if (now.problemCount > maxProblems) add('warn', `and ${integer.format(now.problemCount - maxProblems)} more: nftproxy status --problems`);
    byId('problems').replaceChildren(...lines);
    byId('problems').hidden = lines.length === 0;
  }

  const keys = {
    name: (s) => nameOf(s),
    rate: (s) => rates.services.get(nameOf(s)) ?? -1,
    connections: (s) => s.connections ?? -1,
    endpoints: (s) => s.endpoints,
    unserved: (s) => s.unserved ?? 0,
  };

  function sorted() {
    const key = keys[sort.key], sign = sort.descending ? -1 : 1;
    const order = (a, b) => a < b ? -1 : a > b ? 1 : 0;
    return [...(now.services ?? [])].sort((a, b) => sign * order(key(a), key(b)) || order(nameOf(a), nameOf(b)));
  }

  const rows = new Map(); // of the list, by Service: they keep the focus

  function row(s) {
    const name = nameOf(s);
    let r = rows.get(name);
    if (!r) {
      const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
      svg.setAttribute('aria-hidden', 'true');
      r = element('tr', null, element('th', {scope: 'row'}, element('a', {href: '#' + encodeURIComponent(name)}, name)),
        cell('', 'n'), element('td', {class: 'graph'}, svg), cell('', 'n'), cell('', 'n'), cell('', 'n'));
      rows.set(name, r);
    }
    const [, rate, chart, connections, endpoints, unserved] = r.children;
    rate.textContent = rateText(rates.services.get(name));
    graph(chart.firstElementChild, histories.get(name) ?? [], maxRates);
    connections.textContent = countText(s.connections);
    endpoints.textContent = countText(s.endpoints) + (s.startingCount ? ` (${integer.format(s.startingCount)} slow)` : '');
    unserved.textContent = s.unserved ? countText(s.unserved) : '';
    unserved.className = 'n warn';
    r.className = name === detailOf() ? 'selected' : '';
    return r;
  }

  function drawList() {
    const all = sorted(), body = byId('list').tBodies[0];
    const names = new Set(all.map(nameOf));
    for (const name of rows.keys()) {
      if (!names.has(name)) {
        rows.get(name).remove();
        rows.delete(name);
      }
    }
    all.forEach((s, i) => {
      const r = row(s);
      if (body.children[i] !== r) body.insertBefore(r, body.children[i] ?? null);
    });
    for (const th of byId('list').tHead.rows[0].cells) {
      const key = th.firstElementChild?.dataset.sort;
      if (key === sort.key) th.setAttribute('aria-sort', sort.descending ? 'descending' : 'ascending');
      else th.removeAttribute('aria-sort');
    }
    const shown = all.length;
    text('matching', shown < now.matching ? `${integer.format(shown)} of ${integer.format(now.matching)}, the busiest` : integer.format(now.matching) + ' ' + say(now.matching === 1 ? 'Service' : 'Services'));
  }

  function drawChanges() {
    const lines = (now.changes ?? []).slice(0, 50).map((c) => {
      const services = (c.services ?? []).join(' ') + (c.more ? ` and ${integer.format(c.more)} more` : '');
      const what = c.error ? element('span', {class: 'bad'}, 'failed: ' + c.error + (c.repeated ? ` (${c.repeated + 1} times)` : '')) : services;
      return element('tr', null, cell(age(c.time) + ' ago'), cell(c.cause), element('td', {class: 'wrap'}, what),
        cell(countText(c.added), 'n'), cell(countText(c.changed), 'n'), cell(countText(c.deleted), 'n'), cell(seconds(c.seconds), 'n'));
    });
    byId('changes').tBodies[0].replaceChildren(...lines);
  }

  const serviceOf = (o) => o.service ? o.namespace + '/' + o.service + (o.port ? ':' + o.port : '') : '';
  const ago = (at, from) => ageText(Math.max(0, (Date.parse(at) - Date.parse(from)) / 1000)) + ' ago';

  // problemOf returns what the answer of ../observe lacks.
  function problemOf(o) {
    if (o.error) return 'events are not read: ' + o.error;
    if (o.lost) return integer.format(o.lost) + ' events are lost: they were not read fast enough';
    return o.skipped ? plural(o.skipped, 'connection') + ' were not followed, because too many were open' : '';
  }

  function eventRow(o, e) {
    const bytes = e.sent === undefined ? '' : integer.format(e.sent) + ', ' + integer.format(e.received);
    const failed = e.outcome !== 'served';
    return element('tr', null, cell(ago(o.time, e.time)), cell(e.client), cell(e.frontend + '/' + e.protocol), cell(serviceOf(e)), cell(e.endpoint ?? '', 'served'),
      cell(e.ends || e.outcome, failed ? 'bad' : 'good'), cell(e.reason), cell(e.outcome === 'refused' ? '' : e.seconds ? seconds(e.seconds) : '<1 ms', 'served n'), cell(bytes, 'served n'));
  }

  // drawObserved draws the answer of ../observe; the section is hidden where nothing is observed.
  function drawObserved(o) {
    byId('observed').hidden = !o || o.level === 'off';
    if (!o || o.level === 'off') return;
    const problem = problemOf(o), connections = o.events.some((e) => e.outcome !== 'refused');
    text('observedText', problem || plural(o.total, 'event') + '; refusals are samples', problem ? 'warn' : '');
    if (connections) text('observedName', 'Refused and observed connections');
    text('sumsName', 'What refused whom in the last ' + plural(o.minutes, 'minute'));
    byId('sums').tBodies[0].replaceChildren(...(o.refused ?? []).map((r) => element('tr', null, cell(r.client),
      cell(serviceOf(r) || r.frontend + '/' + r.protocol), cell(r.reason), cell(integer.format(r.events), 'n'), cell(ago(o.time, r.last)))));
    byId('events').classList.toggle('rulesOnly', !connections);
    byId('events').tBodies[0].replaceChildren(...[...o.events].reverse().map((e) => eventRow(o, e)));
    const choice = byId('reason'), known = new Set([...choice.options].map((option) => option.value));
    for (const r of o.meanings ?? []) if (!known.has(r.reason)) choice.append(element('option', {value: r.reason}, r.reason));
    const chosen = (o.meanings ?? []).find((r) => r.reason === choice.value);
    text('advice', chosen ? chosen.text + (chosen.advice ? '; ' + chosen.advice : '') + '.' : '');
  }

  // askObserved asks for events, with each other sample.
  async function askObserved(number) {
    const query = new URLSearchParams({limit: 50, top: 20});
    for (const [name, id] of [['reason', 'reason'], ['client', 'client'], ['service', 'of']]) if (byId(id).value) query.append(name, byId(id).value);
    const outcome = byId('outcome').value;
    for (const o of outcome === 'failed' ? ['refused', 'endpoint-refused', 'unanswered'] : outcome ? [outcome] : []) query.append('outcome', o);
    try {
      const response = await fetch('../observe?' + query, {cache: 'no-store', signal: AbortSignal.timeout(patience)});
      if (number !== asked) return;
      if (response.ok) drawObserved(await response.json());
      else text('observedText', (await response.text()).trim() || response.statusText, 'bad');
    } catch { /* the other question shows it */ }
  }

  const verdict = (d) => d.verdict === 'forward' ? countText(d.endpoints) : d.verdict + 's';

  // dataTable returns a table that scrolls by itself. Columns from the third on are numbers.
  function dataTable(caption, headings, lines) {
    const name = (i) => i > 1 ? 'n' : '';
    const head = element('tr', null, ...headings.map((h, i) => element('th', {scope: 'col', class: name(i)}, h)));
    const rows = lines.map((line) => element('tr', null, ...line.map((value, i) => cell(value, name(i)))));
    return element('div', {class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption},
      element('table', null, element('caption', null, caption), element('thead', null, head), element('tbody', null, ...rows)));
  }

  function portTables(p) {
    const name = 'Port ' + (p.port ? p.port + ', ' : '') + p.protocol;
    const frontends = p.frontends.map((f) => [f.address, say(f.kind), rateText(rates.frontends.get(p.protocol + ' ' + f.address)), countText(f.connections),
      verdict(f) + (f.outside ? ', outside ' + verdict(f.outside) : '')]);
    const tables = [dataTable(name, ['Frontend', 'Kind', 'Conn/s', 'Connections', say('Endpoints')], frontends)];
    const list = p.endpointList ?? [];
    const counted = list.some((e) => e.connections !== undefined), slow = list.some((e) => e.starting);
    const endpoints = list.map((e) => [e.address, e.local ? say('this node') : '',
      ...(counted ? [rateText(rates.endpoints.get(endpointKey(p, e))), countText(e.connections)] : []), ...(slow ? [weight(e.starting)] : [])]);
    const headings = [say('Endpoint'), 'Where', ...(counted ? ['Conn/s', 'Connections'] : []), ...(slow ? ['Of its weight'] : [])];
    if (list.length > 0) tables.push(dataTable(name + say(': endpoints'), headings, endpoints));
    return tables;
  }

  // weight returns what an endpoint has of its weight.
  function weight(starting) {
    if (!starting) return 'all';
    const rest = (Date.parse(starting.full) - Date.parse(now.time)) / 1000;
    return `${integer.format(100 * starting.part)} %, all in ${ageText(Math.max(0, rest))}`;
  }

  // failingTables has the endpoints that fail their health check.
  function failingTables(d) {
    if (!d.failing?.length) return [];
    const more = d.failingCount - d.failing.length;
    const lines = d.failing.map((f) => [f.address, f.message, age(f.since) + ' ago']);
    if (more > 0) lines.push(['and ' + integer.format(more) + ' more', '', '']);
    return [dataTable('Failing health checks', [say('Endpoint'), 'Error', 'Since'], lines)];
  }

  function drawDetail() {
    const name = detailOf(), d = now.detail;
    byId('detail').hidden = !name;
    if (!name) {
      byId('detailPorts').replaceChildren();
      return;
    }
    text('detailName', name);
    const found = d && nameOf(d) === name;
    text('detailText', found ? `${rateText(rates.services.get(name))} connections/s, ${countText(d.connections)} in all` : now.asked === name ? say('This node serves no Service of that name.') : 'asking');
    byId('detailPorts').replaceChildren(...(found ? d.ports.flatMap(portTables).concat(failingTables(d)) : []));
  }

  function draw(error) {
    if (!now) {
      text('health', error ? 'no answer' : 'asking', error ? 'bad' : '');
      text('about', error ?? '');
      return;
    }
    drawHead(error);
    drawProblems(error);
    drawDetail();
    drawList();
    drawChanges();
  }

  async function ask() {
    clearTimeout(timer);
    const number = ++asked, service = detailOf();
    const query = new URLSearchParams({limit, filter: byId('filter').value, service});
    let error = null;
    try {
      const response = await fetch('../live?' + query, {cache: 'no-store', signal: AbortSignal.timeout(patience)});
      if (!response.ok) throw new Error((await response.text()).trim() || response.statusText);
      const sample = await response.json();
      if (number !== asked) return;
      sample.asked = service;
      take(sample);
    } catch (e) {
      if (number !== asked) return;
      error = 'nftproxy does not answer: ' + e.message;
    }
    draw(error);
    if (!error && now.observe) askObserved(number);
    if (!paused) timer = setTimeout(ask, period);
  }

  for (const id of ['filter', 'outcome', 'reason', 'client', 'of']) byId(id).addEventListener('input', ask);
  byId('pause').addEventListener('click', () => {
    paused = !paused;
    byId('pause').setAttribute('aria-pressed', String(paused));
    byId('pause').textContent = paused ? 'Continue' : 'Pause';
    if (paused) {
      clearTimeout(timer);
      draw(null);
    } else ask();
  });
  for (const button of document.querySelectorAll('[data-sort]')) {
    button.addEventListener('click', () => {
      const key = button.dataset.sort;
      sort = {key, descending: key === sort.key ? !sort.descending : key !== 'name'};
      if (now) draw(null);
    });
  }
  addEventListener('hashchange', ask);
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) clearTimeout(timer);
    else if (!paused) ask();
  });
  document.addEventListener('keydown', (e) => {
    if (e.key === '/' && e.target.tagName !== 'INPUT') {
      e.preventDefault();
      byId('filter').focus();
    }
    if (e.key === 'Escape' && location.hash) location.hash = '';
  });
  ask();
})();
