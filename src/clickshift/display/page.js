// Tables are sorted by the button in a column's header; what has no value stays last.
document.querySelectorAll("th[aria-sort] button").forEach((button) => {
  button.addEventListener("click", () => {
    const header = button.closest("th");
    const column = [...header.parentNode.children].indexOf(header);
    const rising = header.getAttribute("aria-sort") !== "ascending";
    const body = header.closest("table").tBodies[0];
    const keyed = [...body.rows].map((row) => {
      const cell = row.cells[column];
      const number = cell.dataset.value === undefined ? NaN : Number(cell.dataset.value);
      return { row, number, text: cell.textContent, empty: cell.textContent === "" || cell.textContent === "–" };
    });
    keyed.sort((a, b) => {
      if (a.empty || b.empty) return a.empty - b.empty;
      const both = !Number.isNaN(a.number) && !Number.isNaN(b.number);
      const order = both ? a.number - b.number : a.text.localeCompare(b.text, undefined, { numeric: true });
      return rising ? order : -order;
    });
    body.append(...keyed.map((one) => one.row));
    for (const other of header.parentNode.children) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", rising ? "ascending" : "descending");
  });
});
