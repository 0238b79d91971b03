// What is wrong with a page, as lists of texts: see test_pages.py.
() => {
  const all = (what, inside = document) => [...inside.querySelectorAll(what)];
  const box = (one) => one.getBoundingClientRect();
  const visible = (one) => box(one).width > 0 && box(one).height > 0;
  const name = (one) => `${one.tagName.toLowerCase()}.${one.className && one.className.baseVal === undefined ? one.className : ""}: ${one.textContent.trim().slice(0, 40)}`;

  // Corners of a text as it is turned, and whether two such quadrilaterals overlap (separating axes).
  const corners = (text) => {
    const b = text.getBBox(), m = text.getScreenCTM(), inset = 1.5;
    return [[b.x + inset, b.y + inset], [b.x + b.width - inset, b.y + inset], [b.x + b.width - inset, b.y + b.height - inset], [b.x + inset, b.y + b.height - inset]]
      .map(([x, y]) => [m.a * x + m.c * y + m.e, m.b * x + m.d * y + m.f]);
  };
  const apart = (one, other) => [one, other].some((shape) => shape.some(([x, y], k) => {
    const [nx, ny] = shape[(k + 1) % 4], axis = [y - ny, nx - x];
    const on = (points) => points.map(([px, py]) => px * axis[0] + py * axis[1]);
    const [a, b] = [on(one), on(other)];
    return Math.max(...a) <= Math.min(...b) || Math.max(...b) <= Math.min(...a);
  }));

  // Contrast of a text of a chart with what is behind it: the page, and perhaps a plate of its own.
  const channels = (colour) => { const [r, g, b, a = 1] = (colour.match(/[\d.]+/g) || []).map(Number); return { rgb: [r, g, b], a }; };
  const luminance = (rgb) => rgb.map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  const background = channels(getComputedStyle(document.documentElement).backgroundColor).rgb;
  const contrast = (text) => {
    const plate = text.closest("g.annotation")?.querySelector("rect.bg");
    const over = plate ? { rgb: channels(plate.style.fill).rgb, a: Number(plate.style.fillOpacity || 1) * Number(plate.style.opacity || 1) } : { rgb: background, a: 0 };
    const behind = luminance(background.map((c, k) => over.a * over.rgb[k] + (1 - over.a) * c));
    const ink = luminance(channels(getComputedStyle(text).fill).rgb);
    return (Math.max(ink, behind) + 0.05) / (Math.min(ink, behind) + 0.05);
  };

  const cut = [], overlapping = [], small = [], clipped = [], faint = [];
  for (const chart of all(".js-plotly-plot").filter(visible)) {
    const outer = box(chart);
    const texts = all("svg.main-svg text", chart).filter((text) => visible(text) && text.textContent.trim());
    for (const text of texts) {
      const inner = box(text);
      if (inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1) cut.push(text.textContent);
      if (!text.closest(".heatmaplayer") && contrast(text) < 4.5) faint.push(`${text.textContent}: ${contrast(text).toFixed(1)}`);
      if (parseFloat(getComputedStyle(text).fontSize) < 10.99) small.push(`${text.textContent}: ${getComputedStyle(text).fontSize}`);
    }
    for (const kind of ["xtick", "ytick", "x2tick", "y2tick", "angularaxistick"]) {
      const labels = texts.filter((text) => text.closest(`.${kind}`));
      const places = labels.map(corners);
      for (let i = 0; i < labels.length; i++) for (let j = i + 1; j < labels.length; j++) {
        if (!apart(places[i], places[j])) overlapping.push(`${labels[i].textContent} | ${labels[j].textContent}`);
      }
    }
    const areas = all(".nsewdrag", chart).map(box);
    const plot = { left: Math.min(...areas.map((one) => one.left)), right: Math.max(...areas.map((one) => one.right)) };
    if (areas.length) for (const mark of all(".scatterlayer .point, .scatterlayer .errorbar path", chart)) {
      const inner = box(mark);
      if (inner.right > plot.right + 1 || inner.left < plot.left - 1) clipped.push(chart.closest("figure").dataset.chart);
    }
  }
  const first = all("figure[data-chart]").find((figure) => visible(figure) && visible(figure.querySelector(".chart")));
  const lead = document.querySelector(".lead");
  return {
    wide: document.documentElement.scrollWidth > innerWidth ? all("main *, header *").filter((one) => box(one).right > innerWidth + 1 && !one.closest(".scroll, nav, svg")).map(name) .concat(`page is ${document.documentElement.scrollWidth} wide`) : [],
    undrawn: all("figure[data-chart]").filter((figure) => visible(figure.querySelector(".chart")) && !figure.querySelector("svg.main-svg")).map((figure) => figure.dataset.chart),
    cut, overlapping, small, clipped, faint,
    below: [["title", document.querySelector("h1")], ["conclusion", lead], ["badge", document.querySelector(".verdict")], ["data", document.querySelector(".data")]]
      .filter(([, one]) => one && box(one).bottom > innerHeight).map(([what]) => what)
      .concat(document.querySelector(".shown figure") && first && box(first).bottom > innerHeight + 1 ? [`first figure ends at ${Math.round(box(first).bottom)} of ${innerHeight}`] : []),
    hacked: typeof window.hacked === "undefined" && ![...document.images].length ? [] : ["a script of a name ran, or its image was loaded"],
    unreachable: all("nav a").filter((one) => !document.getElementById(one.getAttribute("href").slice(1))).map(name),
  };
}
