"use strict";

// A comparison: two methods of one subject, wiped against each other.
function startComparison(root) {
  const find = (selector) => root.querySelector(selector);
  const stage = find(".stage");
  const wipe = find(".wipe");
  const selects = { left: find("select.left"), right: find("select.right") };
  const picks = [...root.querySelectorAll(".sheet button")];
  const subjects = [...root.querySelectorAll(".subjects button")];
  let subject = "0";

  const pick = (of, by) =>
    picks.find(({ dataset }) => dataset.subject === of && dataset.method === by);
  const copy = (button) => button.querySelector(".media").firstElementChild.cloneNode(true);

  function showSide(side) {
    const select = selects[side];
    const shown = pick(subject, select.value);
    const box = document.createElement("div");
    box.className = "media";
    box.append(copy(shown));
    const tag = document.createElement("span");
    tag.className = "tag";
    tag.textContent = select.selectedOptions[0].textContent;
    find(`.layer.${side}`).replaceChildren(box, tag);
    const reading = find(`output.${side}`);
    if (reading) reading.textContent = shown.querySelector(".score").textContent;
  }

  function show() {
    Object.keys(selects).forEach(showSide);
    const methods = [selects.left.value, selects.right.value];
    for (const button of subjects)
      button.setAttribute("aria-pressed", button.dataset.subject === subject);
    for (const button of picks) {
      const { subject: of, method } = button.dataset;
      button.setAttribute("aria-pressed", of === subject && methods.includes(method));
    }
  }

  function moveTo(percent) {
    wipe.value = percent;
    stage.style.setProperty("--wipe", `${wipe.value}%`);
    wipe.setAttribute("aria-valuetext", `${wipe.value}% left`);
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
  moveTo(wipe.value);
  show();
}

document.querySelectorAll(".comparison").forEach(startComparison);
