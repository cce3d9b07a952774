// Parts of the page come and go: each is started when it comes. What is marked `live` goes into the
// cells of the slider, so that the slider stays where it is while the pictures in it change.
(() => {
  let wipe = null;

  function exchange(live) {
    const link = live.querySelector("[data-link]")?.dataset.link;
    if (link) follow(link);
    const { run } = live.querySelector("[data-run]")?.dataset ?? {};
    const comparison = document.querySelector(`#result [data-run="${run}"] .comparison`);
    if (!comparison) return; // another run is shown
    for (const cell of live.querySelectorAll("[data-method]")) {
      const { method, words } = cell.dataset;
      const button = comparison.querySelector(`.sheet button[data-method="${method}"]`);
      if (!button) continue;
      button.querySelector(".media").replaceChildren(...cell.cloneNode(true).childNodes);
      button.querySelector(".score").textContent = words;
    }
    comparison.dispatchEvent(new Event("refresh"));
  }

  // The address follows what was run; the theme that it names stays.
  function follow(link) {
    const query = new URLSearchParams(link);
    const theme = new URLSearchParams(location.search).get("__theme");
    if (theme) query.set("__theme", theme);
    history.replaceState(history.state, "", `?${query}`);
  }

  // A new slider stands where the last one stood.
  function restore(part) {
    const input = part.querySelector("#result .wipe") ?? part.closest("#result")?.querySelector(".wipe");
    if (!input || wipe === null || input.value === wipe) return;
    input.value = wipe;
    input.dispatchEvent(new Event("input"));
  }

  function come(part) {
    startWithin(part);
    restore(part);
    const live = part.matches("#live .geoshrink") ? part : part.querySelector("#live .geoshrink");
    if (live) exchange(live);
  }

  function remember({ target }) {
    const input = target.closest?.("#result .stage")?.querySelector(".wipe");
    if (input) wipe = input.value;
  }

  for (const kind of ["pointerup", "keyup"]) document.addEventListener(kind, remember);
  new MutationObserver((changes) => {
    for (const { addedNodes } of changes)
      for (const node of addedNodes) if (node.nodeType === Node.ELEMENT_NODE) come(node);
  }).observe(document, { childList: true, subtree: true });
})();
