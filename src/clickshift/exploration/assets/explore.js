"use strict";
// The page: charts of the log, a search over its queries, and what is known of the query that was chosen.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const RESULTS_SHOWN = 50;

/** Queries whose id contains a text, an exact match first, then the most frequent ones: {queries, total}. */
async function search(text) {
  if (data.served) return ask(`api/queries?text=${encodeURIComponent(text)}&limit=${RESULTS_SHOWN}`);
  const wanted = text.trim().toLowerCase();
  const found = data.queries.filter((one) => one.query.toLowerCase().includes(wanted));
  const exact = (one) => one.query.toLowerCase() === wanted;
  const ordered = [...found.filter(exact), ...found.filter((one) => !exact(one))];
  return { queries: ordered.slice(0, RESULTS_SHOWN), total: found.length };
}

const load = (number) =>
  data.served ? ask(`api/query?number=${number}`) : Promise.resolve(data.queries.find((one) => one.number === number));

/** The search box and its list of queries, which the keyboard can use. */
function queryPicker() {
  const [box, list, note] = [byId("search"), byId("found"), byId("found-note")];
  let [found, active, request] = [[], -1, 0];

  function mark(next) {
    active = Math.min(Math.max(next, 0), found.length - 1);
    [...list.children].forEach((item, i) => item.classList.toggle("active", i === active));
    const item = list.children[active];
    if (!item) return box.removeAttribute("aria-activedescendant");
    box.setAttribute("aria-activedescendant", item.id);
    const [top, bottom] = [item.offsetTop, item.offsetTop + item.offsetHeight];
    if (top < list.scrollTop) list.scrollTop = top;
    else if (bottom > list.scrollTop + list.clientHeight) list.scrollTop = bottom - list.clientHeight;
  }

  async function open(i) {
    if (!found[i]) return;
    mark(i);
    [...list.children].forEach((item, k) => item.setAttribute("aria-selected", String(k === i)));
    try {
      showQuery(await load(found[i].number));
    } catch (error) {
      byId("query").replaceChildren(make("p", { class: "error" }, `The query cannot be shown: ${error.message}`));
    }
  }

  async function refresh() {
    const mine = ++request;
    let answer;
    try {
      answer = await search(box.value);
    } catch (error) {
      note.textContent = `No answer: ${error.message}`;
      return;
    }
    if (mine !== request) return;
    found = answer.queries;
    list.replaceChildren(...found.map((one, i) => make("li", { id: `found-${i}`, role: "option", "aria-selected": "false", onclick: () => open(i) },
      make("span", { class: "doc", title: one.query }, one.query), make("span", { class: "quiet" }, count(one.sessions)))));
    const all = data.served || data.queries.length === data.n_queries;
    const where = all ? "" : ` of the ${count(data.queries.length)} most frequent queries in this page (the log has ${count(data.n_queries)})`;
    note.textContent = answer.total > found.length ? `${count(found.length)} of ${count(answer.total)} matches${where}, by sessions` : `${count(answer.total)} matches${where}, by sessions`;
    mark(found.length ? 0 : -1);
  }

  box.addEventListener("input", refresh);
  box.addEventListener("keydown", (event) => {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 };
    if (event.key in steps) {
      event.preventDefault();
      mark(active + steps[event.key]);
    } else if (event.key === "Enter") {
      event.preventDefault();
      open(active);
    }
  });
  refresh().then(() => open(0));
}

/** Show a query: documents, why, what if, lists. */
function showQuery(query) {
  const ranked = byRelevance(query.documents, query.documents.map((_, i) => i));
  const panel = byId("query");
  panel.dataset.number = query.number;
  const more = query.n_documents > query.documents.length ? `, of which the ${count(query.documents.length)} most shown are listed` : "";
  panel.replaceChildren(
    make("h3", { class: "doc" }, query.query),
    make("p", { class: "quiet" }, `${count(query.sessions)} sessions, ${decimal(query.clicks / query.sessions, 2)} clicks each; ${count(query.n_lists)} different lists of ${count(query.n_documents)} documents${more}.`));
  panel.append(make("h4", { id: "documents" }, "Documents, most relevant first"), documentTable(query, ranked));
  if (query.documents.length > 1 && known(query.documents[0].relevance)) panel.append(make("h4", { id: "why" }, "Why is one document preferred to another?"), why(query, ranked));
  panel.append(make("h4", { id: "what-if" }, "What if the order were different?"), whatIf(data, query),
    make("h4", { id: "lists" }, "Lists that were shown"), listTable(query));
}

/** A table from columns {name, cell, value}: `cell` returns text or an element, `value` what the column sorts by. */
function table(label, columns, rows) {
  const body = make("tbody");
  const fill = (ordered) => body.replaceChildren(...ordered.map((row, i) => make("tr", {},
    ...columns.map((column, k) => make(k ? "td" : "th", { class: column.kind ?? "number", scope: k ? null : "row" }, column.cell(row, i))))));
  const heads = columns.map((column) => {
    if (!column.value) return make("th", { scope: "col", class: column.kind ?? "number" }, column.name);
    const head = make("th", { scope: "col", class: column.kind ?? "number", "aria-sort": "none" });
    head.append(make("button", { type: "button", title: column.hint ?? "", onclick: () => {
      const direction = head.getAttribute("aria-sort") === "descending" ? "ascending" : "descending";
      heads.forEach((one) => one.hasAttribute("aria-sort") && one.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", direction);
      const sign = direction === "ascending" ? 1 : -1;
      fill([...rows].sort((a, b) => sign * (column.value(a) - column.value(b))));
    } }, column.name));
    return head;
  });
  fill(rows);
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
    make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body));
}

const SUPPORT = { log: "log", prior: "log and prior", "not identified": "not identified", convention: "fixed", "": "–" };

function documentTable(query, ranked) {
  const certain = query.documents.filter((one) => one.support === "log" && known(one.high)); // others may be as wide as 1
  const top = Math.max(...(certain.length ? certain.map((one) => one.high) : [0]), ...query.documents.map((one) => one.relevance ?? 0));
  const position = new Map(ranked.map((i, rank) => [query.documents[i], rank + 1]));
  const columns = [
    { name: "document", kind: "text", cell: (one) => make("span", { class: "doc", title: one.doc }, one.doc) },
    { name: "#", hint: "rank by corrected relevance", cell: (one) => String(position.get(one)), value: (one) => -position.get(one) },
    { name: data.model.relevance, kind: "text", cell: (one) => bar(one, top), value: (one) => one.relevance },
    { name: "raw CTR", cell: (one) => percent(one.ctr), value: (one) => one.ctr },
    { name: "clicks", cell: (one) => count(one.clicks), value: (one) => one.clicks },
    ...(query.documents[0].conversions ?? []).map((first, k) => ({
      name: first.signal, hint: "mean value per click, with its 95 % interval",
      cell: (one) => { const own = one.conversions[k]; return own.clicks ? make("span", {}, `${decimal(own.value)} `, make("small", {}, interval(own.low, own.high))) : "–"; },
      value: (one) => one.conversions[k].value,
    })),
    { name: "shown", hint: "impressions", cell: (one) => count(one.impressions), value: (one) => one.impressions },
    { name: "mean rank", cell: (one) => decimal(one.mean_rank, 1), value: (one) => -one.mean_rank },
    { name: "examined", hint: "expected share of its impressions in which it was examined", cell: (one) => (known(one.examined) ? percent(one.examined / one.impressions, 0) : "–"), value: (one) => (one.examined ?? 0) / one.impressions },
    { name: "rests on", kind: "text", cell: (one) => SUPPORT[one.support] ?? one.support },
  ].filter((column) => known(query.documents[0].relevance) || !["#", data.model.relevance, "rests on"].includes(column.name));
  return table("Documents", columns, ranked.map((i) => query.documents[i]));
}

/** A relevance with its interval, as numbers and as a bar. */
function bar(one, top) {
  if (!known(one.relevance)) return "–";
  const x = (value) => 1 + 98 * Math.min(value / (top || 1), 1);
  const svg = make("svg", { viewBox: "0 0 100 12", width: 100, height: 12, class: "series-1", "aria-hidden": "true" });
  svg.append(make("line", { class: "grid-line", x1: 1, x2: 99, y1: 6, y2: 6 }));
  if (known(one.low)) svg.append(make("line", { class: "interval", x1: x(one.low), x2: x(one.high), y1: 6, y2: 6 }));
  svg.append(make("circle", { class: "dot", cx: x(one.relevance), cy: 6, r: 4 }));
  return make("span", { class: "bar" }, svg, make("span", {}, `${decimal(one.relevance)} `, make("small", {}, interval(one.low, one.high))));
}

/** Two documents to choose, and why the model prefers one of them. */
function why(query, ranked) {
  const [first, second] = mostSurprising(query.documents);
  const choose = (label, chosen) => make("select", { "aria-label": label, onchange: () => show() },
    ...ranked.map((i, rank) => make("option", { value: i, selected: i === chosen }, `${rank + 1}. ${query.documents[i].doc}`)));
  const [one, other] = [choose("First document", first), choose("Second document", second)];
  const answer = make("div", { class: "explanation", "aria-live": "polite" });
  function show() {
    let [x, y] = [query.documents[one.value], query.documents[other.value]];
    if (x === y) return answer.replaceChildren(make("p", {}, "Choose two different documents."));
    if (y.relevance > x.relevance) [x, y] = [y, x];
    const { title, sentences, verdict } = explain(x, y, data.model, data.groups);
    answer.dataset.verdict = verdict;
    answer.replaceChildren(make("p", { class: "title" }, title), make("ul", {}, ...sentences.map((text) => make("li", {}, text))));
  }
  show();
  return make("div", { class: "why" }, make("div", { class: "controls" }, make("label", {}, "Compare ", one), make("label", {}, "with ", other)), answer);
}

function listTable(query) {
  const columns = [
    { name: "list", kind: "text", cell: (one, i) => String(query.lists.indexOf(one) + 1) },
    { name: "shown", cell: (one) => count(one.sessions), value: (one) => one.sessions },
    { name: "clicks per list", cell: (one) => decimal(one.clicks.reduce((a, b) => a + b, 0) / one.sessions, 3), value: (one) => one.clicks.reduce((a, b) => a + b, 0) / one.sessions },
    { name: "documents by rank (clicks)", kind: "long", cell: (one) => make("ol", { class: "ranked" }, ...one.documents.map((k, rank) => make("li", { class: one.clicks[rank] ? "clicked" : "" },
      make("span", { class: "quiet" }, `${one.ranks ? one.ranks[rank] : rank + 1}.`), make("span", { class: "doc", title: query.documents[k].doc }, query.documents[k].doc),
      make("span", { class: "quiet" }, `(${count(one.clicks[rank])})`)))) },
  ];
  const more = query.n_lists > query.lists.length ? make("p", { class: "quiet" }, `The ${query.lists.length} most frequent of ${count(query.n_lists)} lists.`) : null;
  const found = table("Lists", columns, query.lists);
  if (more) found.append(more);
  return found;
}

function healthCharts() {
  const points = (value, low, high, rows = data.by_rank) => rows.map((row) => ({ rank: row.rank, value: row[value], low: row[low], high: row[high] }));
  const charts = { "chart-ctr": (width) => rankChart([{ name: "click-through rate", points: points("ctr", "low", "high") }], { label: "Click-through rate by rank", width, height: 230 }) };
  const examination = [
    { name: `examination (${data.model.label})`, points: points("examination", "examination_low", "examination_high") },
    { name: "observed in views", points: points("observed_examination", "observed_low", "observed_high") },
    { name: "from clicks alone", points: points("examination_from_clicks") },
  ].filter((one) => one.points.some((point) => known(point.value)));
  if (examination.length) {
    charts["chart-examination"] = (width) => rankChart(examination, { label: "Examination by rank", width, height: 230, maximum: 1 });
  }
  (data.segments ?? []).forEach(({ segment, labels }, k) => {
    const curves = labels.map(({ label, by_rank }) => ({ name: label, points: points("ctr", "low", "high", by_rank) }));
    charts[`chart-segment-${k}`] = (width) => rankChart(curves, { label: `Click-through rate by rank and ${segment}`, width: Math.min(width, 760) });
  });
  if (data.comparison.length) {
    const rows = data.comparison.map((row) => ({ name: row.model, value: row.value, low: row.value - 1.96 * row.error, high: row.value + 1.96 * row.error, marked: row.model === data.model.label }));
    charts["chart-models"] = (width) => dotChart(rows, { label: "Models", axis: "conditional perplexity, lower is better", width: Math.min(width, 760) });
  }
  for (const [id, chart] of Object.entries(charts)) {
    draw(byId(id), chart);
    observer.observe(byId(id));
  }
}

healthCharts();
queryPicker();
