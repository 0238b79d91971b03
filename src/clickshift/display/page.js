// The button in a column's header sorts the table by that column; empty cells stay last.
document.querySelectorAll("th[aria-sort] button").forEach((button) => {
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

// A link to a folded section opens it.
const openTarget = () => document.getElementById(location.hash.slice(1))?.querySelector("details")?.setAttribute("open", "");
addEventListener("hashchange", openTarget);
if (location.hash) openTarget();
