"use strict";
const form = document.getElementById("choose"), count = document.getElementById("count");
const fields = [...form.elements].filter(field => field.name);
const cards = [...document.querySelectorAll(".card")].map(card => {
  const head = [card.querySelector("h3"), card.querySelector(".summary"), ...card.querySelectorAll(".when"), card.querySelector("dl"), ...card.querySelectorAll('.wide[aria-label="options"]')];
  return { card, head: head.map(part => part.textContent).join(" ").toLowerCase(), all: card.textContent.toLowerCase(), data: card.dataset };
});
const matches = ({ head, all, data }, wanted) => {
  const text = wanted.all ? all : head;
  if (!wanted.q.toLowerCase().split(/\s+/).every(word => text.includes(word))) return false;
  for (const name of ["learned", "beyond", "reported", "plain"]) if (wanted[name] && data[name] !== wanted[name]) return false;
  if (wanted.use && (data.use || "none") !== wanted.use) return false;
  if (wanted.slot.startsWith("place:") ? data.place !== wanted.slot.slice(6) : wanted.slot && !data.slots.split(" ").includes(wanted.slot)) return false;
  const year = Number(data.year);
  return !((wanted.from && !(year >= Number(wanted.from))) || (wanted.to && !(year && year <= Number(wanted.to))));
};
const value = field => field.type === "checkbox" ? (field.checked ? field.value : "") : field.value;
function show() {
  const wanted = Object.fromEntries(fields.map(field => [field.name, value(field)]));
  let shown = 0;
  for (const each of cards) { each.card.hidden = !matches(each, wanted); shown += !each.card.hidden; }
  for (const group of document.querySelectorAll(".group")) group.hidden = !group.querySelector(".card:not([hidden])");
  for (const link of document.querySelectorAll("nav a")) link.hidden = document.getElementById(link.hash.slice(1)).hidden;
  for (const line of document.querySelectorAll("nav dl > div")) line.hidden = !line.querySelector("a:not([hidden])");
  count.textContent = shown ? `${shown} of ${cards.length}` : "No encoding matches these filters";
  return wanted;
}
function keep() {
  const set = Object.entries(show()).filter(([, each]) => each);
  history.replaceState(null, "", set.length ? "#" + new URLSearchParams(set) : location.pathname + location.search);
}
function read() {
  const hash = location.hash.slice(1), asked = new URLSearchParams(hash.includes("=") ? hash : "");
  const target = hash.includes("=") ? null : document.getElementById(hash);
  if (target && !target.hidden) return;
  for (const field of fields) if (field.type === "checkbox") field.checked = asked.get(field.name) === field.value; else field.value = asked.get(field.name) ?? "";
  show();
  if (target) target.scrollIntoView();
}
form.hidden = false;
form.addEventListener("input", keep);
form.addEventListener("submit", event => event.preventDefault());
form.addEventListener("reset", () => setTimeout(keep));
window.addEventListener("hashchange", read);
read();
