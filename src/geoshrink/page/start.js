"use strict";

// Every script says what it begins where; startWithin(root) begins it in a part that came later.
const starters = [];

function start(selector, begin) {
  const begun = new WeakSet();
  const starter = (root) => {
    for (const found of [root, ...root.querySelectorAll(selector)]) {
      if (!found.matches?.(selector) || begun.has(found)) continue;
      begun.add(found);
      begin(found);
    }
  };
  starters.push(starter);
  starter(document);
}

function startWithin(root) {
  for (const starter of starters) starter(root);
}
