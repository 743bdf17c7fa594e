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
const csv = () => document.getElementById("csv").textContent.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&quot;", '"').replaceAll("&#x27;", "'").replaceAll("&amp;", "&");
const cells = line => { const found = []; line.replace(/("([^"]|"")*"|[^,]*)(,|$)/g, (_, cell, __, end, at) => { if (at < line.length || end) found.push(cell.startsWith('"') ? cell.slice(1, -1).replaceAll('""', '"') : cell); return ""; }); return found; };
document.getElementById("show").addEventListener("click", event => {
  const [head, ...rows] = csv().trim().split("\n").map(cells);
  const table = document.createElement("table");
  table.className = "sortable";
  const top = table.createTHead().insertRow();
  for (const name of head) { const th = document.createElement("th"), button = document.createElement("button"); button.type = "button"; button.textContent = name; th.append(button); top.append(th); }
  const body = table.createTBody();
  for (const row of rows) { const tr = body.insertRow(); head.forEach((_, place) => { tr.insertCell().textContent = row[place] ?? ""; }); }
  const wide = document.createElement("div");
  wide.className = "wide";
  wide.append(table);
  document.getElementById("raw").replaceChildren(wide);
  event.target.disabled = true;
});
document.getElementById("download").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csv()], {type: "text/csv"}));
  link.download = "results.csv";
  link.click();
});
