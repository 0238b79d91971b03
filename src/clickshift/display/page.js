// Tables sort and are copied; links open what is folded; charts are drawn. `charts.js` comes before this text.
function sortTables(root) {
  // The button in a column's header sorts the table by that column; empty cells stay last.
  root.querySelectorAll("th[aria-sort] button").forEach((button) => {
    button.addEventListener("click", () => {
      const header = button.closest("th");
      const column = [...header.parentNode.children].indexOf(header);
      const ascending = header.getAttribute("aria-sort") !== "ascending";
      const body = header.closest("table").tBodies[0];
      const entries = [...body.rows].map((row) => {
        const cell = row.cells[column];
        const number = cell.dataset.value === undefined ? NaN : Number(cell.dataset.value);
        return { row, number, text: cell.textContent, empty: cell.textContent === "" || cell.textContent === "–" };
      });
      entries.sort((a, b) => {
        if (a.empty || b.empty) return a.empty - b.empty;
        const bothNumbers = !Number.isNaN(a.number) && !Number.isNaN(b.number);
        const order = bothNumbers ? a.number - b.number : a.text.localeCompare(b.text, undefined, { numeric: true });
        return ascending ? order : -order;
      });
      body.append(...entries.map((entry) => entry.row));
      for (const other of header.parentNode.children) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
      header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    });
  });
}

async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const place = document.body.appendChild(document.createElement("textarea"));
    place.value = text;
    place.select();
    document.execCommand("copy");
    place.remove();
  }
}

function copyTables(root) {
  root.querySelectorAll("button[data-copy]").forEach((button) => {
    const label = button.textContent;
    button.addEventListener("click", async () => {
      await toClipboard(JSON.parse(button.closest(".table").querySelector("script.csv").textContent));
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = label; }, 2000);
    });
  });
}

// A link to a folded section opens it.
function openTarget() {
  const id = decodeURIComponent(location.hash.slice(1));
  document.getElementById(id)?.querySelector("details.section")?.setAttribute("open", "");
}

// What is folded is printed, too.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll(".clickshift details:not([open])")];
  opened.forEach((one) => one.setAttribute("open", ""));
});
addEventListener("afterprint", () => opened.forEach((one) => one.removeAttribute("open")));
addEventListener("hashchange", openTarget);

for (const root of document.querySelectorAll(".clickshift:not([data-started])")) {
  root.dataset.started = "";
  sortTables(root);
  copyTables(root);
  if (root.matches("body")) openTarget();
  drawCharts(root);
}
