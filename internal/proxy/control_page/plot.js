// The picture of a route's traffic: requests a second by outcome, one on top of another.

import { span } from "./words.js";

export const outcomes = [
  ["executed", "executed"], ["replayed", "replayed"], ["passed_through", "passed through"],
  ["rejected", "rejected"], ["released", "released"], ["failed", "failed"],
];
export const every = 2000; // milliseconds between two looks at the counters
export const points = 150; // five minutes
const first = 30; // a page just opened shows one minute, or there would be nothing to see

const height = 150;
const edge = { left: 38, right: 8, top: 12, bottom: 20 };

function shape(name, attributes, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  return e;
}

// ceiling is the next of 1, 2, 5, 10, 20, 50, … : an axis that people can read.
export function ceiling(n) {
  const ten = 10 ** Math.floor(Math.log10(Math.max(1, n)));
  return [1, 2, 5, 10].map((f) => f * ten).find((v) => v >= n);
}

const total = (point) => outcomes.reduce((sum, [o]) => sum + point[o], 0);

// runs cuts a series where there was no answer: nothing is drawn over a gap.
function runs(series) {
  const all = [[]];
  series.forEach((p, i) => {
    if (p) all.at(-1).push([i, p]);
    else if (all.at(-1).length) all.push([]);
  });
  return all.filter((run) => run.length > 0);
}

// plot draws a series, newest last, into an svg as wide as it is shown. Null is a gap.
export function plot(svg, series, name) {
  const width = Math.max(200, svg.clientWidth);
  const top = ceiling(Math.max(1, ...series.filter(Boolean).map(total)));
  const right = width - edge.right, bottom = height - edge.bottom;
  const shown = series.length > first ? points : first;
  const x = (i) => right - (series.length - 1 - i) * (right - edge.left) / (shown - 1);
  const y = (v) => bottom - v * (bottom - edge.top) / top;
  const waiting = series.filter(Boolean).length < 2;
  const parts = [];
  for (const v of waiting ? [0, top] : [0, top / 2, top]) {
    parts.push(shape("line", { class: "grid", x1: edge.left, x2: right, y1: y(v), y2: y(v) }));
    parts.push(shape("text", { x: edge.left - 6, y: y(v) + 4, "text-anchor": "end" }, String(v)));
  }
  parts.push(shape("text", { x: edge.left, y: height - 4 }, span(shown * every / 1000) + " ago"));
  parts.push(shape("text", { x: right, y: height - 4, "text-anchor": "end" }, "now"));
  for (const run of runs(series)) {
    const floor = run.map(() => 0);
    for (const [o] of outcomes) {
      if (!run.some(([, p]) => p[o] > 0)) continue;
      const below = run.map(([i], n) => x(i) + "," + y(floor[n])).reverse();
      run.forEach(([, p], n) => { floor[n] += p[o]; });
      const above = run.map(([i], n) => x(i) + "," + y(floor[n]));
      parts.push(shape("polygon", { class: o, points: [...above, ...below].join(" ") }));
    }
  }
  if (waiting) {
    parts.push(shape("text", { class: "waiting", x: (edge.left + right) / 2, y: (edge.top + bottom) / 2 + 4, "text-anchor": "middle" }, "Watching…"));
  }
  svg.setAttribute("viewBox", "0 0 " + width + " " + height);
  svg.setAttribute("aria-label", "Requests a second of " + name + " in the last " + span(shown * every / 1000) + "; the axis ends at " + top);
  svg.replaceChildren(...parts);
}

// latest is the mean of the last ten seconds: a number that people can read while it moves.
export function latest(series) {
  const some = series.slice(-5).filter(Boolean);
  if (some.length === 0) return undefined;
  return Object.fromEntries(outcomes.map(([o]) => [o, some.reduce((sum, p) => sum + p[o], 0) / some.length]));
}

// newPlot is an empty svg for plot.
export const newPlot = () => shape("svg", { role: "img", class: "plot" });
