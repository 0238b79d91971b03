"use strict";
// What if: documents of a query in another order, and the clicks that the model predicts for it.

/** Predict a list, in the page or by asking the server. Returns a promise. */
async function predict(data, query, order) {
  if (!data.served) return predictList(data.model.offline, order.map((k) => query.documents[k]));
  const pairs = order.map((k) => query.documents[k].pair).join(",");
  return ask(`api/predict?query=${query.number}&pairs=${pairs}`);
}

async function ask(address) {
  const answer = await fetch(address);
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}

/** The what-if panel of a query. */
function whatIf(data, query) {
  if (!data.served && !data.model.offline) {
    return make("p", {}, `${data.model.label} does not predict in a written page. Serve the page to ask it what if: clickshift explore LOG --model DIR --serve`);
  }
  const state = { logged: 0, order: [...query.lists[0].documents], request: 0 };
  const items = make("ol", { class: "order", "aria-label": "Order of the list" });
  const status = make("p", { class: "visually-hidden", "aria-live": "polite" });
  const totals = make("div", { class: "totals" });
  const place = make("div", { class: "chart-place" });
  const bestFirst = () => { state.order = byRelevance(query.documents, state.order); };
  const start = make("select", { "aria-label": "Logged list to start from", onchange: () => {
    state.logged = Number(start.value);
    state.order = [...query.lists[state.logged].documents];
    update();
  } }, ...query.lists.map((list, i) => make("option", { value: i }, `logged list ${i + 1} (shown ${count(list.sessions)} times)`)));
  const outside = make("select", { "aria-label": "Document for the last rank", onchange: () => {
    if (outside.value !== "") state.order[state.order.length - 1] = Number(outside.value);
    update();
  } });
  const buttons = make("div", { class: "controls" },
    make("label", {}, "Start from ", start),
    make("button", { type: "button", onclick: () => { state.order = [...query.lists[state.logged].documents]; update(); } }, "Logged order"),
    known(query.documents[0].relevance) ? make("button", { type: "button", onclick: () => { bestFirst(); update(); } }, "Most relevant first") : null,
    make("label", {}, "Put at the last rank ", outside));

  function move(from, to, focus) {
    if (to < 0 || to >= state.order.length || to === from) return;
    state.order.splice(to, 0, ...state.order.splice(from, 1));
    update();
    status.textContent = `${query.documents[state.order[to]].doc} is at rank ${to + 1}.`;
    if (focus) items.children[to].querySelector(`.${focus}`).focus();
  }

  function drag(event, from) {
    event.preventDefault();
    const item = items.children[from];
    const handle = item.querySelector(".handle");
    handle.setPointerCapture(event.pointerId);
    item.classList.add("dragged");
    let to = from;
    const boxes = [...items.children].map((one) => one.getBoundingClientRect());
    const follow = ({ clientY }) => {
      item.style.transform = `translateY(${clientY - event.clientY}px)`;
      const above = boxes.filter((box, i) => i !== from && box.top + box.height / 2 < clientY).length;
      to = above;
      [...items.children].forEach((one, i) => {
        one.classList.toggle("drop-before", i !== from && i === (to < from ? to : to + 1) && to < from);
        one.classList.toggle("drop-after", i !== from && i === to && to > from);
      });
    };
    const finish = (ended) => {
      handle.removeEventListener("pointermove", follow);
      item.style.transform = "";
      item.classList.remove("dragged");
      [...items.children].forEach((one) => one.classList.remove("drop-before", "drop-after"));
      if (ended.type === "pointerup") move(from, to, "handle");
    };
    handle.addEventListener("pointermove", follow);
    handle.addEventListener("pointerup", finish, { once: true });
    handle.addEventListener("pointercancel", finish, { once: true });
  }

  function arrow(event, rank) {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    move(rank, rank + step, "handle");
  }

  function row(k, rank) {
    const document = query.documents[k];
    const before = query.lists[state.logged].documents.indexOf(k);
    const moved = before === rank ? "" : before < 0 ? "new" : `was ${before + 1}`;
    const button = (kind, text, label, to) => make("button", {
      type: "button", class: kind, "aria-label": `${label} ${document.doc}`,
      disabled: to < 0 || to >= state.order.length, onclick: () => move(rank, to, kind),
    }, text);
    return make("li", {},
      make("button", { type: "button", class: "handle", "aria-label": `Drag ${document.doc}, or move it by the arrow keys`,
        onpointerdown: (event) => drag(event, rank), onkeydown: (event) => arrow(event, rank) }, "⠿"),
      make("span", { class: "rank" }, String(rank + 1)),
      make("span", { class: "doc", title: document.doc }, document.doc),
      make("span", { class: "moved" }, moved),
      make("span", { class: "predicted" }),
      button("up", "↑", "Move up", rank - 1),
      button("down", "↓", "Move down", rank + 1));
  }

  function listOthers() {
    const others = query.documents.map((_, k) => k).filter((k) => !state.order.includes(k));
    outside.replaceChildren(make("option", { value: "" }, others.length ? "choose a document" : "no other document"),
      ...others.map((k) => make("option", { value: k }, query.documents[k].doc)));
  }

  async function update() {
    items.replaceChildren(...state.order.map(row));
    listOthers();
    const request = ++state.request;
    try {
      const logged = query.lists[state.logged];
      const [before, after] = await Promise.all([predict(data, query, logged.documents), predict(data, query, state.order)]);
      if (request === state.request) show(logged, before, after);
    } catch (error) {
      totals.replaceChildren(make("p", { class: "error" }, `No prediction: ${error.message}`));
    }
  }

  function show(logged, before, after) {
    [...items.children].forEach((item, rank) => {
      const text = decimal(after.click_prob[rank], 4);
      Object.assign(item.querySelector(".predicted"), { textContent: text, title: interval(after.low[rank], after.high[rank], 4) });
      item.dataset.probability = after.click_prob[rank];
      item.dataset.low = after.low[rank] ?? "";
      item.dataset.high = after.high[rank] ?? "";
    });
    const observed = logged.clicks.reduce((a, b) => a + b, 0) / logged.sessions;
    const line = (name, value, low, high) => make("tr", {}, make("th", { scope: "row" }, name),
      make("td", { class: "number" }, decimal(value, 4)), make("td", { class: "number" }, interval(low, high, 4)));
    const difference = after.expected_clicks - before.expected_clicks;
    totals.dataset.expected = after.expected_clicks;
    totals.replaceChildren(
      make("table", {}, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "expected clicks per list"),
        make("th", { scope: "col" }, "value"), make("th", { scope: "col" }, known(after.expected_low) ? "95 % interval" : ""))),
        make("tbody", {},
          line("this order", after.expected_clicks, after.expected_low, after.expected_high),
          line("logged order", before.expected_clicks, before.expected_low, before.expected_high),
          line("observed, logged order", observed))),
      make("p", { class: "note" }, `${difference >= 0 ? "+" : "−"}${Math.abs(difference).toFixed(4)} clicks per list. `
        + (known(after.expected_low) ? "Both predictions share their errors, so the difference is more precise than the two intervals."
          : `${data.model.label} has no standard errors: there are no intervals.`)));
    const points = (one) => one.click_prob.map((value, rank) => ({ rank: rank + 1, value, low: one.low[rank], high: one.high[rank] }));
    draw(place, (width) => rankChart(
      [{ name: "logged order", points: points(before) }, { name: "this order", points: points(after) }],
      { label: "Predicted clicks by rank", width, height: 260 }));
  }

  const holes = query.lists.some((list) => list.ranks)
    ? make("p", { class: "quiet" }, "Some logged lists have holes, ranks where nothing was recorded: here their documents move up.") : null;
  const panel = make("div", { class: "what-if" }, buttons, holes, make("div", { class: "columns" }, items,
    make("div", { class: "outcome" }, totals, make("h4", {}, "Predicted click probability by rank, with 95 % intervals"), place)), status);
  observer.observe(place);
  update();
  return panel;
}
