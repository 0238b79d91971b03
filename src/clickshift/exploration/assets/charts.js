"use strict";
// Small charts as SVG: values with intervals by rank, and dots with intervals by name. Colours come from the style sheet.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element; attributes are set as text, children are elements or text, never markup. */
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "line", "path", "circle", "rect", "text", "title"].includes(tag) && tag !== "title";
  const element = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

/** Round steps of an axis from 0 to at least `highest`. */
function ticksTo(highest) {
  const raw = (highest || 1) / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((one) => one * power >= raw) * power;
  return Array.from({ length: Math.ceil(highest / step - 1e-9) + 1 }, (_, i) => i * step);
}

const shortNumber = (value) => String(Number(value.toPrecision(3)));

/**
 * Chart of series by rank: [{name, points: [{rank, value, low, high}]}]. Returns a figure with a legend above.
 */
function rankChart(series, { label, width = 640, height = 300, maximum = null }) {
  const all = series.flatMap((one) => one.points);
  const ranks = Math.max(...all.map((point) => point.rank), 1);
  const top = maximum ?? Math.max(...all.map((point) => (known(point.high) ? point.high : point.value ?? 0)), 1e-6);
  const ticks = ticksTo(top);
  const [left, right, above, below] = [52, 12, 10, 40];
  const x = (rank) => left + ((rank - 0.5) / ranks) * (width - left - right);
  const y = (value) => height - below - (value / ticks.at(-1)) * (height - above - below);
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  for (const tick of ticks) {
    svg.append(
      make("line", { class: "grid-line", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
      make("text", { class: "axis", x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, shortNumber(tick)),
    );
  }
  const every = Math.max(1, Math.ceil(ranks / Math.max(2, Math.floor((width - left) / 34))));
  for (let rank = 1; rank <= ranks; rank += every) {
    svg.append(make("text", { class: "axis", x: x(rank), y: height - below + 18, "text-anchor": "middle" }, String(rank)));
  }
  svg.append(make("text", { class: "axis", x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, "rank"));
  const space = Math.min(10, (width - left - right) / ranks / (series.length + 1));
  series.forEach(({ name, points }, k) => {
    const dx = (k - (series.length - 1) / 2) * space;
    const shown = points.filter((point) => known(point.value));
    const group = make("g", { class: `series-${k + 1}` });
    group.append(make("path", { class: "curve", d: shown.map((p, i) => `${i ? "L" : "M"}${x(p.rank) + dx} ${y(p.value)}`).join("") }));
    for (const point of shown) {
      if (known(point.low) && known(point.high)) {
        group.append(make("line", { class: "interval", x1: x(point.rank) + dx, x2: x(point.rank) + dx, y1: y(point.low), y2: y(point.high) }));
      }
      const bounds = known(point.low) ? ` [${point.low.toFixed(4)}, ${point.high.toFixed(4)}]` : "";
      const dot = k % 2
        ? make("rect", { class: "dot", x: x(point.rank) + dx - 4, y: y(point.value) - 4, width: 8, height: 8 })
        : make("circle", { class: "dot", cx: x(point.rank) + dx, cy: y(point.value), r: 4.5 });
      const hint = document.createElementNS(SVG, "title");
      hint.textContent = `${name}, rank ${point.rank}: ${point.value.toFixed(4)}${bounds}`;
      dot.append(hint);
      group.append(dot);
    }
    svg.append(group);
  });
  return make("figure", { class: "svg-chart" }, series.length > 1 ? legend(series.map(({ name }) => name)) : null, svg);
}

function legend(names) {
  return make("figcaption", { class: "keys" },
    ...names.map((name, k) => make("span", { class: `key series-${k + 1}` }, name)));
}

/** Largest value that is drawn: a value far above the others would press them together. */
function axisLimit(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const median = sorted[Math.floor((sorted.length - 1) / 2)];
  return median + 4 * (median - sorted[0]) + 1e-9;
}

/** Chart of values with intervals by name, the first row on top: [{name, value, low, high, marked}]. */
function dotChart(rows, { label, axis, width = 640 }) {
  const limit = axisLimit(rows.map((row) => row.value));
  const inside = rows.filter((row) => row.value <= limit);
  const ends = inside.flatMap((row) => [row.low ?? row.value, row.high ?? row.value]);
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const margin = (high - low || 0.01) * 0.08;
  const [left, right, above, below, step] = [72, 20, 6, 44, 24];
  const height = above + below + rows.length * step;
  const x = (value) => left + ((value - low + margin) / (high - low + 2 * margin)) * (width - left - right);
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  const count = width < 420 ? 3 : 5;
  for (let i = 0; i < count; i++) {
    const value = low + ((high - low) * i) / (count - 1);
    svg.append(
      make("line", { class: "grid-line", x1: x(value), x2: x(value), y1: above, y2: height - below }),
      make("text", { class: "axis", x: x(value), y: height - below + 18, "text-anchor": "middle" }, value.toFixed(high - low < 0.02 ? 4 : 3)),
    );
  }
  svg.append(make("text", { class: "axis", x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, axis));
  rows.forEach((row, i) => {
    const y = above + (i + 0.5) * step;
    const group = make("g", { class: row.marked ? "series-2" : "series-1" });
    group.append(make("text", { class: "name", x: left - 10, y: y + 4, "text-anchor": "end" }, row.name));
    if (row.value > limit) {
      group.append(make("text", { class: "name", x: width - 4, y: y + 4, "text-anchor": "end" }, `${row.value.toFixed(3)} →`));
      svg.append(group);
      return;
    }
    if (known(row.low)) group.append(make("line", { class: "interval", x1: x(row.low), x2: x(row.high), y1: y, y2: y }));
    group.append(row.marked
      ? make("rect", { class: "dot", x: x(row.value) - 5, y: y - 5, width: 10, height: 10 })
      : make("circle", { class: "dot", cx: x(row.value), cy: y, r: 5 }));
    svg.append(group);
  });
  return make("figure", { class: "svg-chart" }, svg);
}

/** Draw a chart into a place at its width, and again when the width changes. */
function draw(place, chart) {
  place.chart = chart;
  const width = Math.max(Math.floor(place.clientWidth), 260);
  place.replaceChildren(chart(width));
}

const observer = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.chart && target.firstElementChild && target.drawnAt !== target.clientWidth) {
      target.drawnAt = target.clientWidth;
      draw(target, target.chart);
    }
  }
});
