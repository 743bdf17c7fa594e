"use strict";
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
