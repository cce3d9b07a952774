"use strict";

// A comparison with sound: under the stage a button for each side plays what is shown there.
function startListening(root) {
  if (!root.querySelector("[data-sound]")) return;
  const stage = root.querySelector(".stage");
  const row = document.createElement("div");
  row.className = "listen";
  let playing = null;
  for (const side of ["left", "right"]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = side;
    button.setAttribute("aria-label", `Play ${side}`);
    button.addEventListener("click", () => {
      playing?.pause();
      playing = new Audio(stage.querySelector(`.layer.${side} img`).dataset.sound);
      playing.play();
    });
    row.append(button);
  }
  stage.after(row);
}

document.querySelectorAll(".comparison").forEach(startListening);
