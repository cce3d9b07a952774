"use strict";

// A table: each heading sorts one way, then the other, then restores the order given.
function startSorting(table) {
  const body = table.tBodies[0];
  const given = [...body.rows];
  const headings = [...table.tHead.rows[0].cells];

  function compare(a, b, sign) {
    const missing = ("missing" in a.dataset) - ("missing" in b.dataset);
    if (missing) return missing;
    const numbers = ("value" in b.dataset) - ("value" in a.dataset);
    if (numbers) return numbers;
    if ("value" in a.dataset) return sign * (number(a) - number(b) || 0);
    return sign * a.textContent.localeCompare(b.textContent, undefined, { numeric: true });
  }

  function sort(heading) {
    const first = heading.dataset.first === "higher" ? "descending" : "ascending";
    const second = first === "ascending" ? "descending" : "ascending";
    const now = heading.getAttribute("aria-sort");
    const next = now === "none" ? first : now === first ? second : "none";
    for (const each of headings) each.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", next);
    table.toggleAttribute("data-sorted", next !== "none");
    const i = heading.cellIndex;
    const sign = next === "ascending" ? 1 : -1;
    const rows = [...given];
    if (next !== "none") rows.sort((a, b) => compare(a.cells[i], b.cells[i], sign));
    body.append(...rows);
  }

  for (const heading of headings)
    heading.querySelector("button").addEventListener("click", () => sort(heading));
}

function number(cell) {
  const text = cell.dataset.value; // as Python writes it
  return Number(text.replace("inf", "Infinity"));
}

start(".sortable", startSorting);
