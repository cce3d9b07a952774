"use strict";

// A chart whose legend switches lines: the axes reach from round number to round number around
// what is shown. Charts that are folded together are switched together.
function startChoosing(legend) {
  const chart = legend.closest(".chart");
  const axes = chart.querySelector(".axes");
  const [left, right, bottom, top] = axes.dataset.plot.split(" ").map(Number);
  const lines = [...chart.querySelectorAll(".choosable")];
  const boxes = [...legend.querySelectorAll("input")];
  const points = lines.map((line) => JSON.parse(line.dataset.points));

  function scaleAround(values, start, end, count) {
    let low = Math.min(...values);
    let high = Math.max(...values);
    if (low === high) {
      const margin = Math.abs(low) / 10 || 1;
      [low, high] = [low - margin, high + margin];
    }
    const rough = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((m) => m * power >= rough * (1 - 1e-9));
    const [first, last] = [Math.floor(low / step), Math.ceil(high / step)];
    const at = (value) => start + ((value / step - first) / (last - first)) * (end - start);
    const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const ticks = Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
    const label = (value) => value.toFixed(decimals).replace("-", "−");
    return { at, ticks: ticks.map((value) => [value, label(value)]) };
  }

  function text(label, attributes) {
    const element = document.createElementNS(axes.namespaceURI, "text");
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.textContent = label;
    return element;
  }

  function draw() {
    for (const box of boxes)
      lines[box.dataset.series].classList.toggle("off", !box.checked);
    const shown = points.filter((_, i) => !lines[i].classList.contains("off")).flat();
    if (!shown.length) return;
    const x = scaleAround(shown.map((p) => p[0]), left, right, 6);
    const y = scaleAround(shown.map((p) => p[1]), bottom, top, 5);
    axes.querySelectorAll("text:not(.name)").forEach((old) => old.remove());
    const rules = y.ticks.map(([value]) => `M${left},${y.at(value)}H${right}`);
    axes.querySelector(".rule").setAttribute("d", rules.join(""));
    for (const [value, label] of y.ticks)
      axes.append(text(label, { x: left - 8, y: y.at(value), dy: "0.35em", "text-anchor": "end" }));
    for (const [value, label] of x.ticks)
      axes.append(text(label, { x: x.at(value), y: bottom + 8, dy: "0.8em", "text-anchor": "middle" }));
    lines.forEach((line, i) => {
      const places = points[i].map(([px, py]) => [x.at(px), y.at(py)]);
      line.querySelector(".line").setAttribute("d", places.length ? `M${places.join("L")}` : "");
      line.querySelectorAll("[transform]").forEach((mark, j) => {
        mark.setAttribute("transform", `translate(${places[j].join(" ")})`);
      });
    });
  }

  legend.addEventListener("change", (event) => {
    const { value, checked } = event.target;
    const together = chart.closest(".folded") ?? chart;
    for (const other of together.querySelectorAll(".choice input"))
      if (other.value === value && other.checked !== checked) other.click();
    draw();
  });
}

start(".choice", startChoosing);
