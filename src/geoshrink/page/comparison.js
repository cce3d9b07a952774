"use strict";

// The picture once it can be shown at once, an animation from its first frame. A browser plays on
// what it has shown before, so that two would run apart; at an address of its own it starts when it
// is put on the page.
async function ready(picture) {
  try {
    if ("moving" in picture.dataset) {
      const address = URL.createObjectURL(await (await fetch(picture.src)).blob());
      picture.src = address;
      await picture.decode();
      URL.revokeObjectURL(address);
    } else await picture.decode?.();
  } catch {
    // It is shown all the same, where it happens to be.
  }
  return picture;
}

// A comparison: two methods of one subject, wiped against each other. Who puts other media into the
// sheet says so by the event "refresh"; the comparison says "shown" when the stage has changed.
function startComparison(root) {
  const find = (selector) => root.querySelector(selector);
  const stage = find(".stage");
  const wipe = find(".wipe");
  const selects = { left: find("select.left"), right: find("select.right") };
  const picks = [...root.querySelectorAll(".sheet button")];
  const subjects = [...root.querySelectorAll(".subjects button")];
  let subject = "0";
  let turns = 0;
  let latest = 0;
  let at = wipe.value;
  let wiping = false;

  const pick = (of, by) =>
    picks.find(({ dataset }) => dataset.subject === of && dataset.method === by);
  const original = (button) => button.querySelector(".media").firstElementChild;
  const copy = (button) => original(button)?.cloneNode(true) ?? document.createElement("span");

  function showSide(side, name, score, picture) {
    const box = document.createElement("div");
    box.className = "media";
    box.append(picture);
    const tag = document.createElement("span");
    tag.className = "tag";
    tag.textContent = name;
    find(`.layer.${side}`).replaceChildren(box, tag);
    const reading = find(`output.${side}`);
    if (reading) reading.textContent = score;
  }

  async function showSides() {
    const turn = ++turns;
    const sides = Object.entries(selects).map(([side, select]) => {
      const button = pick(subject, select.value);
      const score = button.querySelector(".score").textContent;
      return [side, select.selectedOptions[0].textContent, score, ready(copy(button))];
    });
    const pictures = await Promise.all(sides.map((side) => side[3]));
    if (turn < latest) return; // what was chosen later is shown already
    latest = turn;
    sides.forEach(([side, name, score], i) => showSide(side, name, score, pictures[i]));
    root.dispatchEvent(new Event("shown"));
  }

  function show() {
    showSides();
    const methods = [selects.left.value, selects.right.value];
    for (const button of subjects)
      button.setAttribute("aria-pressed", button.dataset.subject === subject);
    for (const button of picks) {
      const { subject: of, method } = button.dataset;
      button.setAttribute("aria-pressed", of === subject && methods.includes(method));
    }
  }

  // The boxes take the shape of the first picture.
  async function fit(picture) {
    if (!picture?.decode) return;
    await picture.decode();
    root.style.setProperty("--ratio", picture.naturalWidth / picture.naturalHeight);
  }

  function moveTo(percent) {
    wipe.value = percent;
    stage.style.setProperty("--wipe", `${wipe.value}%`);
    wipe.setAttribute("aria-valuetext", `${wipe.value}% left`);
    if (["0", "100"].includes(at) && at !== wipe.value) showSides(); // what was hidden stood still
    at = wipe.value;
  }

  function follow(event) {
    const { left, width } = stage.getBoundingClientRect();
    moveTo((100 * (event.clientX - left)) / width);
  }

  async function showSubject(button) {
    const picture = await ready(copy(pick(button.dataset.subject, "0")));
    button.querySelector(".media").replaceChildren(picture);
  }

  function refresh() {
    fit(original(picks[0])).catch(() => {});
    subjects.forEach(showSubject);
    show();
  }

  function exchange(event) {
    if (event.key !== "x" || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.target.matches("select, textarea, input:not([type=range])")) return;
    const { left, right } = selects;
    [left.value, right.value] = [right.value, left.value];
    show();
  }

  stage.addEventListener("mousedown", (event) => event.preventDefault()); // the wipe keeps the focus
  stage.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.shiftKey) return;
    wipe.focus({ preventScroll: true });
    stage.setPointerCapture(event.pointerId);
    wiping = true;
    follow(event);
  });
  stage.addEventListener("pointermove", (event) => {
    if (wiping) follow(event);
  });
  stage.addEventListener("lostpointercapture", () => {
    wiping = false;
  });
  wipe.addEventListener("input", () => moveTo(wipe.value));
  for (const select of Object.values(selects)) select.addEventListener("change", show);
  for (const button of [...subjects, ...picks])
    button.addEventListener("click", () => {
      subject = button.dataset.subject;
      if (button.dataset.method) selects.right.value = button.dataset.method;
      show();
    });

  root.addEventListener("keydown", exchange);
  root.addEventListener("refresh", refresh);

  moveTo(wipe.value);
  refresh();
}

start(".comparison", startComparison);
