"use strict";
const number = text => { const found = text.replaceAll(",", "").match(/-?\d+(\.\d+)?(e[-+]?\d+)?/i); return found ? parseFloat(found[0]) : NaN; };
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows].map(row => [row.cells[column].textContent, row]);
      rows.sort(([a], [b]) => {
        const x = number(a), y = number(b);
        const order = isNaN(x) || isNaN(y) ? (isNaN(x) - isNaN(y)) || a.localeCompare(b) : x - y;
        return up ? order : -order;
      });
      table.tBodies[0].append(...rows.map(([, row]) => row));
    });
  });
}
for (const filter of document.querySelectorAll(".filter")) {
  filter.hidden = false;
  const rows = [...filter.nextElementSibling.querySelectorAll("tbody tr")];
  filter.addEventListener("input", event => {
    const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
  });
}
let kept = null;
function choose(name) {
  document.body.classList.toggle("chosen", name !== null);
  for (const line of document.querySelectorAll("g.line")) line.classList.toggle("on", line.dataset.name === name);
}
for (const button of document.querySelectorAll(".legend button")) {
  const name = button.dataset.name;
  button.addEventListener("click", () => {
    kept = kept === name ? null : name;
    for (const each of document.querySelectorAll(".legend button")) each.setAttribute("aria-pressed", each.dataset.name === kept);
    choose(kept);
  });
  button.addEventListener("mouseenter", () => choose(name));
  button.addEventListener("mouseleave", () => choose(kept));
  button.addEventListener("focus", () => choose(name));
  button.addEventListener("blur", () => choose(kept));
}
for (const line of document.querySelectorAll(".panels g.line")) {
  line.addEventListener("mouseenter", () => choose(line.dataset.name));
  line.addEventListener("mouseleave", () => choose(kept));
}
