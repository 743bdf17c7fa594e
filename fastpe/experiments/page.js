"use strict";
const number = text => { const found = text.match(/-?\d+(\.\d+)?(e[-+]?\d+)?/i); return found ? parseFloat(found[0]) : NaN; };
function sort(table, column, head) {
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const body = table.tBodies[0];
  const rows = [...body.rows].map(row => [row.cells[column].textContent, row]);
  rows.sort(([a], [b]) => {
    const x = number(a), y = number(b);
    const order = isNaN(x) || isNaN(y) ? (isNaN(x) - isNaN(y)) || a.localeCompare(b) : x - y;
    return up ? order : -order;
  });
  body.append(...rows.map(([, row]) => row));
}
document.addEventListener("click", event => {
  const button = event.target.closest("table.sortable th button");
  if (button) sort(button.closest("table"), button.parentNode.cellIndex, button.parentNode);
});
for (const field of document.querySelectorAll(".filter")) field.addEventListener("input", () => {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  const body = field.closest("section").querySelector("table").tBodies[0];
  for (const row of body.rows) row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
});
function choose(name) {
  document.body.classList.toggle("chosen", name !== null);
  for (const line of document.querySelectorAll("g.line")) line.classList.toggle("on", line.dataset.name === name);
  for (const each of document.querySelectorAll(".legend button")) each.setAttribute("aria-pressed", each.dataset.name === name);
}
let kept = null;
for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => { kept = kept === button.dataset.name ? null : button.dataset.name; choose(kept); });
  button.addEventListener("mouseenter", () => choose(button.dataset.name));
  button.addEventListener("mouseleave", () => choose(kept));
}
