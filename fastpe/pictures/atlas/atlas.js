"use strict";
const title = document.title, form = document.getElementById("choose"), count = document.getElementById("count"), empty = document.getElementById("empty");
const fields = [...form.elements].filter(field => field.name);
const tiles = [...document.querySelectorAll(".tile")].map(tile => ({ tile, data: tile.dataset, card: document.getElementById(tile.querySelector("a").hash.slice(1)) }));
const matches = ({ data, card }, wanted) => {
  const text = wanted.all ? data.text + " " + card.textContent.toLowerCase() : data.text;
  if (!wanted.q.toLowerCase().split(/\s+/).every(word => text.includes(word))) return false;
  for (const name of ["use", "learned", "beyond", "reported", "plain"]) if (wanted[name] && data[name] !== wanted[name]) return false;
  if (wanted.slot.startsWith("place:") ? data.place !== wanted.slot.slice(6) : wanted.slot && !data.slots.split(" ").includes(wanted.slot)) return false;
  const year = Number(data.year);
  return !((wanted.from && !(year >= Number(wanted.from))) || (wanted.to && !(year && year <= Number(wanted.to))));
};
const value = field => field.type === "checkbox" ? (field.checked ? field.value : "") : field.value;
let filters = "#gallery";
function show() {
  const wanted = Object.fromEntries(fields.map(field => [field.name, value(field)]));
  let shown = 0;
  for (const each of tiles) { each.tile.hidden = !matches(each, wanted); shown += !each.tile.hidden; }
  for (const group of document.querySelectorAll(".group")) group.hidden = !group.querySelector(".tile:not([hidden])");
  count.textContent = `${shown} of ${tiles.length}`;
  empty.hidden = shown > 0;
  const set = Object.entries(wanted).filter(([, each]) => each);
  filters = set.length ? "#" + new URLSearchParams(set) : "#gallery";
  for (const link of document.querySelectorAll(".back a")) link.href = filters;
}
function keep() { show(); history.replaceState(null, "", filters); }
function read() {
  const hash = location.hash.slice(1), card = tiles.find(each => each.card.id === hash)?.card;
  document.title = card ? `${card.id} - ${title}` : title;
  if (card) { scrollTo(0, 0); card.querySelector("h2").focus({ preventScroll: true }); return; }
  const asked = new URLSearchParams(hash.includes("=") ? hash : "");
  for (const field of fields) if (field.type === "checkbox") field.checked = asked.get(field.name) === field.value; else field.value = asked.get(field.name) ?? "";
  form.querySelector(".filters").open ||= fields.some(field => field.closest(".filters") && value(field));
  show();
}
async function copy(button) {
  const lines = button.parentNode.querySelector("pre"), said = button.firstChild;
  try { await navigator.clipboard.writeText(lines.textContent); said.data = "Copied"; }
  catch { getSelection().selectAllChildren(lines); said.data = "Selected"; }
  setTimeout(() => { said.data = "Copy"; }, 1500);
}
form.hidden = false;
for (const button of document.querySelectorAll(".copy")) { button.hidden = false; button.addEventListener("click", () => copy(button)); }
form.addEventListener("input", keep);
form.addEventListener("submit", event => event.preventDefault());
form.addEventListener("reset", () => setTimeout(keep));
empty.querySelector("button").addEventListener("click", () => { form.reset(); fields[0].focus(); });
window.addEventListener("hashchange", read);
read();
