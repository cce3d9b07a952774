"use strict";

// An animation from its first frame. A browser plays on what it has shown before, so that two would
// run apart; at an address of its own it starts when it is put on the page.
async function restarted(picture) {
  if (!("moving" in picture.dataset)) return picture;
  try {
    const address = URL.createObjectURL(await (await fetch(picture.src)).blob());
    picture.src = address;
    await picture.decode();
    URL.revokeObjectURL(address);
  } catch {
    // It is shown all the same, where it happens to be.
  }
  return picture;
}

// A comparison: two methods of one subject, wiped against each other.
function startComparison(root) {
  const find = (selector) => root.querySelector(selector);
  const stage = find(".stage");
  const wipe = find(".wipe");
  const selects = { left: find("select.left"), right: find("select.right") };
  const picks = [...root.querySelectorAll(".sheet button")];
  const subjects = [...root.querySelectorAll(".subjects button")];
  let subject = "0";
  let turns = 0;
  let at = wipe.value;

  const pick = (of, by) =>
    picks.find(({ dataset }) => dataset.subject === of && dataset.method === by);
  const original = (button) => button.querySelector(".media").firstElementChild;
  const copy = (button) => original(button).cloneNode(true);

  function showSide(side, shown, picture) {
    const select = selects[side];
    const box = document.createElement("div");
    box.className = "media";
    box.append(picture);
    const tag = document.createElement("span");
    tag.className = "tag";
    tag.textContent = select.selectedOptions[0].textContent;
    find(`.layer.${side}`).replaceChildren(box, tag);
    const reading = find(`output.${side}`);
    if (reading) reading.textContent = shown.querySelector(".score").textContent;
  }

  async function showBoth() {
    const turn = ++turns;
    const shown = Object.values(selects).map((select) => pick(subject, select.value));
    const pictures = await Promise.all(shown.map((button) => restarted(copy(button))));
    if (turn !== turns) return; // another choice was made meanwhile
    Object.keys(selects).forEach((side, i) => showSide(side, shown[i], pictures[i]));
  }

  function show() {
    showBoth();
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
    if (!picture.decode) return;
    await picture.decode();
    root.style.setProperty("--ratio", picture.naturalWidth / picture.naturalHeight);
  }

  function moveTo(percent) {
    wipe.value = percent;
    stage.style.setProperty("--wipe", `${wipe.value}%`);
    wipe.setAttribute("aria-valuetext", `${wipe.value}% left`);
    if (["0", "100"].includes(at) && at !== wipe.value) showBoth(); // what was hidden stood still
    at = wipe.value;
  }

  function follow(event) {
    const { left, width } = stage.getBoundingClientRect();
    moveTo((100 * (event.clientX - left)) / width);
  }

  stage.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    stage.setPointerCapture(event.pointerId);
    follow(event);
  });
  stage.addEventListener("pointermove", (event) => {
    if (stage.hasPointerCapture(event.pointerId)) follow(event);
  });
  wipe.addEventListener("input", () => moveTo(wipe.value));
  for (const select of Object.values(selects)) select.addEventListener("change", show);
  for (const button of [...subjects, ...picks])
    button.addEventListener("click", () => {
      subject = button.dataset.subject;
      if (button.dataset.method) selects.right.value = button.dataset.method;
      show();
    });

  for (const button of subjects)
    button.querySelector(".media").append(copy(pick(button.dataset.subject, "0")));
  fit(original(picks[0])).catch(() => {});
  moveTo(wipe.value);
  show();
}

document.querySelectorAll(".comparison").forEach(startComparison);
