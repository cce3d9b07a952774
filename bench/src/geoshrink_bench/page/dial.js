"use strict";

// A knob that shows one of several parts; the arrow keys turn it by one.
function startDial(root) {
  const knob = root.querySelector("input");
  const reading = root.querySelector("output");
  const parts = [...root.querySelectorAll("[data-reading]")];

  function turn() {
    parts.forEach((part, i) => (part.hidden = i !== Number(knob.value)));
    reading.textContent = parts[Number(knob.value)].dataset.reading;
  }

  knob.addEventListener("input", turn);
  turn();
}

start(".dialled", startDial);
