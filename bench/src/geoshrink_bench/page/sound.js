"use strict";

// A comparison with sound: under the stage a player for each side. They share one position, so that
// a change of sides is heard at the same instant; over a picture of time a line shows it.
function startListening(root) {
  const stage = root.querySelector(".stage");
  const players = { left: new Audio(), right: new Audio() };
  const buttons = {};
  let playing = null;
  let at = 0; // seconds
  let frame = 0;

  const made = (name, kind) => Object.assign(document.createElement(name), { className: kind });
  const row = made("div", "listen");
  const time = made("span", "time");
  const line = made("div", "position");
  const shown = (side) => stage.querySelector(`.layer.${side} [data-sound]`);

  function follow() {
    cancelAnimationFrame(frame);
    if (!root.isConnected) pause();
    if (playing) at = players[playing].currentTime;
    const seconds = Number(shown("left")?.dataset.seconds);
    line.hidden = !(seconds && (playing || at));
    line.style.left = `${(100 * at) / seconds}%`;
    time.textContent = playing || at ? `${at.toFixed(1)} s` : "";
    if (playing) frame = requestAnimationFrame(follow);
  }

  function mark() {
    for (const [side, button] of Object.entries(buttons))
      button.setAttribute("aria-pressed", side === playing);
    follow();
  }

  function pause() {
    if (!playing) return;
    at = players[playing].currentTime;
    players[playing].pause();
    playing = null;
    mark();
  }

  function play(side) {
    pause();
    playing = side;
    if (!at && "moving" in shown(side).dataset) root.dispatchEvent(new Event("refresh"));
    players[side].currentTime = at;
    players[side].play().catch((error) => {
      if (playing === side && error.name !== "AbortError") end();
    });
    mark();
  }

  function end() {
    playing = null;
    at = 0;
    mark();
  }

  // Other media are heard from where the old ones were.
  function renew() {
    row.hidden = !shown("left") && !shown("right");
    for (const side of Object.keys(players)) {
      const source = shown(side)?.dataset.sound ?? "";
      buttons[side].disabled = !source;
      if (source === (players[side].getAttribute("src") ?? "")) continue;
      const goesOn = playing === side;
      if (goesOn) pause();
      if (source) players[side].src = source;
      else players[side].removeAttribute("src");
      if (goesOn && source) play(side);
    }
    follow();
  }

  for (const [side, player] of Object.entries(players)) {
    const button = made("button", "");
    button.type = "button";
    button.textContent = side;
    button.setAttribute("aria-label", `Play ${side}`);
    button.addEventListener("click", () => (playing === side ? pause() : play(side)));
    player.addEventListener("ended", end);
    buttons[side] = button;
  }
  row.hidden = line.hidden = true;
  row.append(buttons.left, time, buttons.right);
  stage.append(line);
  stage.after(row);
  mark();
  root.addEventListener("shown", renew);
}

start(".comparison", startListening);
