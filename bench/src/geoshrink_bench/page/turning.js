"use strict";

// A comparison of meshes: over the poster of each side a canvas, both seen from one eye, so that the
// two turn together.
function startTurning(root) {
  const stage = root.querySelector(".stage");
  const wipe = root.querySelector(".wipe");
  const eye = { azimuth: 0.6, elevation: 0.436, reach: 1.45 }; // where mesh.py's poster is seen from
  const sides = {};
  const row = document.createElement("div");
  let turning = !matchMedia("(prefers-reduced-motion: reduce)").matches;
  let frame = 0;
  let last = 0;
  let held = null;
  let inView = true;

  function draw() {
    const { azimuth, elevation, reach } = eye;
    const [ca, sa] = [Math.cos(azimuth), Math.sin(azimuth)];
    const [ce, se] = [Math.cos(elevation), Math.sin(elevation)];
    const axes = [ca, sa, 0, -sa * se, ca * se, ce, sa * ce, -ca * ce, se];
    for (const side of Object.values(sides)) if (side?.shows) side.draw(axes, reach);
  }

  function tick(now) {
    cancelAnimationFrame(frame);
    if (!turning || row.hidden || !inView || !root.isConnected) return;
    eye.azimuth += 0.0004 * Math.min(50, now - last);
    last = now;
    draw();
    frame = requestAnimationFrame(tick);
  }

  function keepTurning(on) {
    turning = on;
    row.querySelector("[aria-pressed]").setAttribute("aria-pressed", on);
    if (on) tick(performance.now());
  }

  function move(across, up, factor = 1) {
    keepTurning(false);
    eye.azimuth += across;
    eye.elevation = Math.min(1.5, Math.max(-1.5, eye.elevation + up));
    eye.reach = Math.min(6, Math.max(0.1, eye.reach * factor));
    draw();
  }

  // A canvas lives as long as the page does; it moves into what is shown.
  function renew() {
    row.hidden = true;
    for (const name of ["left", "right"]) {
      const poster = stage.querySelector(`.layer.${name} [data-mesh]`);
      if (poster && !(name in sides)) sides[name] = meshCanvas();
      const side = sides[name];
      if (!side) continue;
      side.shows = Boolean(poster);
      if (!poster) continue;
      if (side.loaded !== poster.dataset.mesh) side.load(poster.dataset.mesh);
      side.loaded = poster.dataset.mesh;
      poster.after(side.canvas);
      row.hidden = false;
    }
    stage.title = row.hidden
      ? "Drag to wipe; x exchanges left and right"
      : "Drag to wipe; drag with shift or the right button to turn; wheel with ctrl to zoom";
    draw();
    tick(performance.now());
  }

  const moves = {
    ArrowLeft: ["◂", "Turn to the left", () => move(0.25, 0)],
    ArrowRight: ["▸", "Turn to the right", () => move(-0.25, 0)],
    ArrowUp: ["▴", "Tilt up", () => move(0, 0.2)],
    ArrowDown: ["▾", "Tilt down", () => move(0, -0.2)],
    "+": ["+", "Nearer", () => move(0, 0, 1 / 1.25)],
    "-": ["−", "Farther", () => move(0, 0, 1.25)],
  };
  function button(text, label, act) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.title = label;
    made.setAttribute("aria-label", label);
    made.addEventListener("click", act);
    return made;
  }
  const pause = button("turning", "Keep turning", () => keepTurning(!turning));
  pause.setAttribute("aria-pressed", turning);
  row.className = "turn";
  row.hidden = true;
  row.setAttribute("role", "group");
  row.setAttribute("aria-label", "Turn both meshes, with arrow keys too");
  row.append(pause, ...Object.values(moves).map((each) => button(...each)));
  stage.after(row);

  root.addEventListener("keydown", (event) => {
    const here = row.contains(event.target) || (event.target === wipe && event.shiftKey);
    if (row.hidden || !here || !(event.key in moves)) return;
    event.preventDefault();
    moves[event.key][2]();
  });
  stage.addEventListener("pointerdown", (event) => {
    if (row.hidden || !(event.button === 2 || (event.button === 0 && event.shiftKey))) return;
    stage.setPointerCapture(event.pointerId);
    held = [event.clientX, event.clientY];
  });
  stage.addEventListener("pointermove", (event) => {
    if (!held) return;
    const [dx, dy] = [event.clientX - held[0], event.clientY - held[1]];
    held = [event.clientX, event.clientY];
    move(-dx / 120, dy / 120);
  });
  stage.addEventListener("lostpointercapture", () => {
    held = null;
  });
  stage.addEventListener("contextmenu", (event) => row.hidden || event.preventDefault());
  stage.addEventListener(
    "wheel",
    (event) => {
      if (row.hidden || !event.ctrlKey) return;
      event.preventDefault();
      move(0, 0, Math.exp(event.deltaY / 400));
    },
    { passive: false },
  );
  new ResizeObserver(draw).observe(stage);
  new IntersectionObserver(([entry]) => {
    inView = entry.isIntersecting;
    tick(performance.now());
  }).observe(stage);
  root.addEventListener("shown", renew);
}

start(".comparison", startTurning);
