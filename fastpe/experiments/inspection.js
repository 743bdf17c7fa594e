{
  const { words, weights, heads } = JSON.parse(document.getElementById("data").textContent);
  const bytes = Uint8Array.from(atob(weights), c => c.charCodeAt(0)), n = words.length;
  const map = document.getElementById("map"), select = document.getElementById("head"), marked = document.getElementById("row");
  const cells = [...document.querySelectorAll("#cells rect")];
  const cell = +map.dataset.cell, top = +map.dataset.top;
  let row = null;
  const place = () => { const [layer, head] = select.value.split(".").map(Number); return layer * heads + head; };
  const weight = (query, key) => bytes[(place() * n + query) * n + key] / 255;
  const told = index => `${index} “${words[index]}”`;
  function say() {
    document.getElementById("named").textContent = select.value;
    if (row === null) return;
    marked.setAttribute("visibility", "visible");
    marked.setAttribute("y", top + row * cell);
    const seen = [...Array(row + 1).keys()].map(key => [weight(row, key), key]).sort((a, b) => b[0] - a[0]).slice(0, 8);
    const lines = seen.filter(([share]) => share >= .005).map(([share, key]) => `${(100 * share).toFixed(0).padStart(3)} %  ${told(key)}`);
    document.getElementById("said").textContent = [`Token ${told(row)} attends to:`, ...lines].join("\n");
  }
  function draw() {
    let at = 0;
    for (let query = 0; query < n; query++) for (let key = 0; key <= query; key++) cells[at++].setAttribute("fill-opacity", weight(query, key).toFixed(2));
    map.setAttribute("aria-label", `Attention map of head ${select.value}: queries down, keys along, ${n} tokens`);
    say();
  }
  document.querySelector(".choose").hidden = false;
  select.addEventListener("change", draw);
  map.addEventListener("click", event => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());
    row = Math.min(n - 1, Math.max(0, Math.floor((at.y - top) / cell)));
    say();
  });
  map.addEventListener("keydown", event => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    row = row === null ? 0 : Math.min(n - 1, Math.max(0, row + step));
    say();
  });
}
