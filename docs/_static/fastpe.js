// Names for screen readers, where the theme has none, or another than the text that is shown.
document.addEventListener("DOMContentLoaded", () => {
  for (const summary of document.querySelectorAll("li.has-children > details > summary"))
    summary.setAttribute("aria-label", `Pages of ${summary.closest("li").querySelector("a").textContent.trim()}`);
  for (const button of document.querySelectorAll(".search-button__button[aria-label]:not(:empty)"))
    if (button.innerText.trim()) button.removeAttribute("aria-label");
});
