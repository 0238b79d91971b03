// Charts of a page: the library is stored compressed; figures are drawn in the reader's colours and for the box they have.
const LIGHT = { ink: "#1b2530", quiet: "#55616e", line: "#e3e8ed", zero: "#aeb8c2", page: "#ffffff", tip: "#ffffff" };
const DARK = { ink: "#e4e9ee", quiet: "#a3afbb", line: "#29333d", zero: "#55626f", page: "#11161c", tip: "#1c242c" };
// The colours of figures.py, lighter, for a dark background.
const ON_DARK = {
  "#1b6ca8": "#62b0ee", "#d1495b": "#f2808e", "#3d8361": "#62bd92", "#edae49": "#f2c063", "#7b5ea7": "#ac90da",
  "#8d6346": "#c89a76", "#5c677d": "#9fabbd", "#8d99ae": "#aab5c6", "#222222": "#e4e9ee", "#c9d3dd": "#55626f",
  "#2b3742": "#c5ced7", "#cdd5dd": "#3a4550", "rgba(255,255,255,0.6)": "rgba(17,22,28,0.6)",
};
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const CHARACTER = 6.9; // usual width of a character of 12 pixels
const SMALLEST = 11;
const dark = matchMedia("(prefers-color-scheme: dark)");
const printing = matchMedia("print");

// Text of a label without Plotly's tags; a parsed document runs nothing and loads nothing.
const parser = new DOMParser();
const plainText = (text) => /[<&]/.test(text)
  ? parser.parseFromString(String(text).replace(/<br\s*\/?>/gi, " "), "text/html").documentElement.textContent
  : String(text);
const escapeText = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

// Lines of at most so many characters; a longer word is broken.
function lines(text, most) {
  const found = [];
  for (let word of text.split(" ")) {
    if (found.length && found.at(-1).length + 1 + word.length <= most) { found.push(`${found.pop()} ${word}`); continue; }
    while (word.length > most) { found.push(word.slice(0, most)); word = word.slice(most); }
    found.push(word);
  }
  return found.filter((line) => line);
}
const wrapped = (text, most, atMost = 3) => {
  const all = lines(plainText(text), Math.max(most, 6));
  if (all.length > atMost) {
    all.length = atMost;
    all[atMost - 1] = `${all[atMost - 1].slice(0, most - 1)}…`;
  }
  return all.map(escapeText).join("<br>");
};

function template(colours) {
  const axis = { automargin: true, gridcolor: colours.line, linecolor: colours.line, zerolinecolor: colours.zero,
    zerolinewidth: 1, tickfont: { size: 12 }, title: { standoff: 10, font: { size: 13 } }, ticks: "" };
  const ring = { gridcolor: colours.line, linecolor: colours.line, ticks: "" };
  return {
    layout: {
      font: { family: FONT, size: 12, color: colours.ink }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      colorway: ["#1b6ca8", "#d1495b", "#3d8361", "#edae49", "#7b5ea7", "#8d6346", "#5c677d"]
        .map((colour) => (colours === DARK ? ON_DARK[colour] : colour)),
      xaxis: axis, yaxis: axis, polar: { bgcolor: "rgba(0,0,0,0)", angularaxis: ring, radialaxis: ring },
      hoverlabel: { bgcolor: colours.tip, bordercolor: colours.zero, font: { family: FONT, size: 13, color: colours.ink }, align: "left" },
      annotationdefaults: { arrowhead: 0, arrowwidth: 1 },
    },
  };
}

// Figures name their own colours; maps of colours and the texts on them stay as they are.
function recoloured(value) {
  if (typeof value === "string") return ON_DARK[value.toLowerCase()] || value;
  if (Array.isArray(value)) return value.map(recoloured);
  if (value === null || typeof value !== "object" || value.type === "heatmap") return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, recoloured(part)]));
}

const axesOf = (layout, letter) => Object.keys(layout).filter((name) => new RegExp(`^${letter}axis[0-9]*$`).test(name));
const isPolar = (spec) => Object.keys(spec.layout).some((name) => name.startsWith("polar"));
const valuesOf = (spec, letter, name) => {
  const own = letter + name.slice(5);
  const found = spec.data.filter((trace) => (trace[`${letter}axis`] || letter) === own && Array.isArray(trace[letter]));
  return [...new Set(found.flatMap((trace) => trace[letter]))];
};
const isCategory = (values, axis) => axis.type === "category" || (!axis.type && values.length && values.every((one) => typeof one === "string" && Number.isNaN(Number(one))));

// The figure for a box: margins follow the labels, long labels are wrapped, labels of many categories are thinned out.
function fitted(original, box) {
  const spec = { data: original.data.map((trace) => ({ ...trace })), layout: structuredClone(original.layout) };
  const { layout } = spec;
  const width = box.clientWidth;
  let height = box.clientHeight;
  const narrow = width < 560;
  for (const name of ["xaxis", "yaxis"]) if (!isPolar(spec) && !layout[name]) layout[name] = {};
  for (const letter of ["x", "y"]) {
    for (const name of axesOf(layout, letter)) {
      const axis = layout[name];
      const share = axis.domain ? axis.domain[1] - axis.domain[0] : 1;
      const title = typeof axis.title === "string" ? { text: axis.title } : axis.title || {};
      const room = (letter === "x" ? width - 70 : height - 60) * share;
      if (title.text) axis.title = { ...title, text: wrapped(title.text, Math.floor(room / 7.2)) };
      axis.automargin = true;
      const values = valuesOf(spec, letter, name);
      if (letter === "y" && axis.ticktext) {
        const most = Math.max(10, Math.floor((width * (narrow ? 0.36 : 0.3)) / CHARACTER));
        axis.ticktext = axis.ticktext.map((one) => (plainText(one).length > most ? wrapped(one, most, 2) : one));
      }
      if (axis.tickvals || !isCategory(values, axis)) continue;
      const labels = values.map((one) => plainText(one));
      const longest = Math.max(0, ...labels.map((label) => label.length));
      if (letter === "y") {
        const most = Math.max(10, Math.floor((width * (narrow ? 0.36 : 0.3)) / CHARACTER));
        if (longest > most) [axis.tickvals, axis.ticktext] = [values, values.map((one) => wrapped(one, most))];
        const deepest = Math.max(1, ...(axis.ticktext || []).map((label) => label.split("<br>").length));
        const needed = 85 + values.length * (deepest * 15 + 6);
        if (share === 1 && needed > height) {
          box.style.height = `${needed}px`;
          height = needed;
        }
      } else if (labels.length * (longest * CHARACTER + 10) > width * 0.88 * share && longest * CHARACTER < 90) {
        const step = Math.ceil((labels.length * (longest * CHARACTER + 14)) / (width * 0.88 * share));
        const shown = values.filter((_, k) => k % step === 0);
        [axis.tickvals, axis.ticktext, axis.tickangle] = [shown, shown, 0];
      }
    }
  }
  const given = layout.margin || {};
  const notes = (layout.annotations || []).filter((note) => note.yref === "paper" || / domain$/.test(note.yref || ""));
  for (const note of notes) {
    const most = Math.floor((width - 24) / 7.2);
    if (plainText(note.text).length > most) note.text = wrapped(note.text, most, 1);
  }
  const placed = notes.some((note) => note.xshift || note.x < 0 || note.x > 1 || note.y < 0 || note.y > 1.02);
  // texts beside the axes count on these margins; rings need none for a title
  if (placed) layout.margin = isPolar(spec) ? { ...given, t: Math.min(given.t, given.b) } : given;
  else if (isPolar(spec)) layout.margin = { ...given, b: Math.min(given.b ?? 40, Math.max(given.t ?? 40, 40)) };
  else layout.margin = { l: 8, r: 16, b: 8, t: notes.length ? 30 : 12 };
  Object.assign(layout, { autosize: false, width, height, dragmode: false, showlegend: false });
  for (const gone of ["title", "legend", "modebar"]) delete layout[gone];
  const enlarge = (part) => {
    for (const [name, value] of Object.entries(part || {})) {
      if (/font$/.test(name) && value && value.size < SMALLEST) value.size = SMALLEST;
      else if (value && typeof value === "object" && !Array.isArray(value)) enlarge(value);
      else if (name === "annotations") value.forEach(enlarge);
    }
  };
  enlarge(layout);
  spec.data.forEach((trace) => { if (trace.textfont?.size < SMALLEST) trace.textfont = { ...trace.textfont, size: SMALLEST }; });
  const inDark = dark.matches && !printing.matches;
  const themed = inDark ? { data: spec.data.map(recoloured), layout: spec.data.some((trace) => trace.type === "heatmap") ? layout : recoloured(layout) } : spec;
  themed.layout.template = template(inDark ? DARK : LIGHT);
  return themed;
}

// Legends are HTML: one for all charts of a grid, wrapped where the page is narrow, never over a point.
const SHAPES = {
  circle: "M8 3a5 5 0 1 0 .01 0z", square: "M3.5 3.5h9v9h-9z", diamond: "M8 2l6 6-6 6-6-6z", "triangle-up": "M8 2.5l6 11H2z",
  x: "M3 5l2-2 3 3 3-3 2 2-3 3 3 3-2 2-3-3-3 3-2-2 3-3z", star: "M8 1.5l2 4.4 4.7.5-3.5 3.2 1 4.7L8 11.9l-4.2 2.4 1-4.7L1.3 6.4 6 5.9z",
  cross: "M6.3 2.5h3.4v3.8h3.8v3.4H9.700v3.800H6.300V9.700H2.500V6.300h3.800z", "line-ns": "M7 2h2v12H7z",
};
function entriesOf(spec) {
  if (spec.layout.showlegend === false) return [];
  const way = template(LIGHT).layout.colorway;
  const found = new Map();
  const named = spec.data.map((trace, k) => ({ trace, k })).filter(({ trace }) => trace.name && trace.showlegend !== false && trace.type !== "heatmap");
  if (named.length < 2 && spec.layout.showlegend !== true) return [];
  for (const { trace, k } of named) {
    const marker = trace.marker || {};
    const colour = [marker.color, (trace.line || {}).color, trace.fillcolor].find((one) => typeof one === "string") || way[k % way.length];
    const name = plainText(trace.name);
    const line = /lines/.test(trace.mode || (trace.type === "scatterpolar" ? "lines" : "")) ? (trace.line || {}).dash || "solid" : "";
    const points = trace.type === "bar" || trace.type === "barpolar" ? "square" : /markers/.test(trace.mode || "") ? String(typeof marker.symbol === "string" ? marker.symbol : "circle") : line ? "" : "square";
    if (!found.has(name)) found.set(name, { name, colour, line, points });
  }
  return found.size > 1 || spec.layout.showlegend === true ? [...found.values()] : [];
}
function legend(entries) {
  const list = document.createElement("ul");
  list.className = "legend";
  for (const { name, colour, line, points } of entries) {
    const item = list.appendChild(document.createElement("li"));
    const picture = item.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "svg"));
    picture.setAttribute("viewBox", "0 0 16 16");
    picture.setAttribute("aria-hidden", "true");
    const shown = dark.matches ? ON_DARK[colour.toLowerCase()] || colour : colour;
    const add = (path, attributes) => {
      const one = picture.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "path"));
      for (const [key, value] of Object.entries({ d: path, ...attributes })) one.setAttribute(key, value);
    };
    if (line) add("M0 8h16", { stroke: shown, "stroke-width": 2, "stroke-dasharray": { dash: "5 3", dot: "2 2" }[line] || "none" });
    if (points) {
      const open = points.endsWith("-open");
      add(SHAPES[points.replace("-open", "")] || SHAPES.circle, open ? { fill: "none", stroke: shown, "stroke-width": 1.5 } : { fill: shown });
    }
    item.append(document.createTextNode(name));
  }
  return list;
}
function placeLegends(root, figures) {
  root.querySelectorAll(".legend").forEach((one) => one.remove());
  const groups = Map.groupBy ? Map.groupBy(figures, (one) => one.figure.closest(".grid") || one.figure)
    : figures.reduce((all, one) => { const key = one.figure.closest(".grid") || one.figure; return all.set(key, [...(all.get(key) || []), one]); }, new Map());
  for (const [place, members] of groups) {
    const union = new Map();
    let alike = true;
    for (const { spec } of members) for (const entry of entriesOf(spec)) {
      const known = union.get(entry.name);
      alike &&= !known || JSON.stringify(known) === JSON.stringify(entry);
      union.set(entry.name, entry);
    }
    if (alike && union.size) place.insertBefore(legend([...union.values()]), place.querySelector(":scope > figcaption")?.nextSibling || place.firstChild);
    else if (!alike) for (const { figure, spec, box } of members) figure.insertBefore(legend(entriesOf(spec)), box);
  }
}

// The library, inflated once per page.
async function library(root) {
  if (window.Plotly) return window.Plotly;
  const stored = root.querySelector(".chart-library") || document.querySelector(".chart-library");
  if (!stored) throw new Error("Charts need the chart library, which is in the first result of the notebook: run that cell again.");
  if (!window.DecompressionStream) throw new Error("Charts need a browser of 2023 or newer. Tables and texts are complete.");
  const bytes = Uint8Array.from(atob(stored.textContent.trim()), (one) => one.charCodeAt(0));
  const code = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  const script = document.createElement("script");
  script.textContent = code;
  document.head.append(script);
  if (!window.Plotly) throw new Error("The chart library did not start. Tables and texts are complete.");
  return window.Plotly;
}

async function drawCharts(root) {
  const figures = [...root.querySelectorAll("figure[data-chart]")].map((figure) => ({
    figure, box: figure.querySelector(".chart"), spec: JSON.parse(figure.querySelector("script.spec").textContent), width: 0,
  }));
  if (!figures.length) return;
  let Plotly;
  try {
    window.clickshiftLibrary ??= library(root);
    Plotly = await window.clickshiftLibrary;
  } catch (error) {
    window.clickshiftLibrary = undefined;
    for (const { box } of figures) { box.textContent = error.message; box.classList.add("missing"); }
    return;
  }
  placeLegends(root, figures);
  const config = { displayModeBar: false, displaylogo: false, showSendToCloud: false, plotlyServerURL: "", doubleClick: false };
  const draw = async (one) => {
    if (!one.box.clientWidth) return; // folded: drawn when it is opened
    one.width = one.box.clientWidth;
    const { data, layout } = fitted(one.spec, one.box);
    await Plotly.react(one.box, data, layout, config);
    one.figure.dataset.drawn = "";
  };
  for (const one of figures) {
    await draw(one);
    if (one === figures[0]) performance.mark("clickshift-first-chart");
  }
  const observer = new ResizeObserver((seen) => {
    for (const { target } of seen) {
      const one = figures.find(({ box }) => box === target);
      if (one && target.clientWidth && Math.abs(target.clientWidth - one.width) > 1) draw(one);
    }
  });
  figures.forEach(({ box }) => observer.observe(box));
  const again = async () => {
    root.dataset.charts = "drawing";
    placeLegends(root, figures);
    for (const one of figures) await draw(one);
    root.dataset.charts = "drawn";
  };
  dark.addEventListener("change", again);
  printing.addEventListener("change", again);
  root.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-save]");
    if (!button) return;
    const one = figures.find(({ figure }) => figure === button.closest(".pictured").querySelector("figure"));
    const { data, layout } = structuredClone(one.spec);
    const size = { width: layout.width || Math.max(one.box.clientWidth, 640), height: layout.height || one.box.clientHeight };
    layout.template = template(LIGHT);
    Plotly.downloadImage({ data, layout: { ...layout, ...size, paper_bgcolor: "#fff" } }, { format: button.dataset.save, filename: one.figure.dataset.chart, scale: 2, ...size });
  });
  root.dataset.charts = "drawn";
}
