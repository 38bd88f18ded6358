// The routes: what comes of their requests, and the rules that are in force.

import { count, element, put, rate } from "./words.js";
import { latest, newPlot, outcomes, plot, points } from "./plot.js";

const cards = new Map(); // by route: {box, series, last, at}
const zero = () => Object.fromEntries(outcomes.map(([o]) => [o, 0]));
const sum = (counts) => Object.values(counts || {}).reduce((a, b) => a + b, 0);

// add appends what was counted since the look before, as rates; null where nothing is known.
function add(card, requests, now) {
  if (card.last) {
    const seconds = Math.max(0.001, (now - card.at) / 1000);
    const point = zero();
    let anew = false; // the process began anew: its counters too
    for (const o of Object.keys(point)) {
      const more = (requests[o] || 0) - (card.last[o] || 0);
      anew = anew || more < 0;
      point[o] = Math.max(0, more) / seconds;
    }
    card.series.push(anew ? null : point);
    if (card.series.length > points) card.series.shift();
  }
  card.last = { ...requests };
  card.at = now;
}

// gap says that the proxy did not answer: a hole in every plot, not a zero, and as wide as
// it lasts, for the axis is one of time.
export function gap() {
  for (const card of cards.values()) {
    if (card.last || card.series.length > 0) card.series.push(null);
    if (card.series.length > points) card.series.shift();
    card.last = undefined;
  }
}

function newCard() {
  const card = { box: element("article", "", "card route"), series: [] };
  card.title = element("h3");
  card.mode = element("span", "", "pill");
  card.where = element("p", "", "where");
  card.picture = newPlot();
  const caption = element("figcaption", "requests a second, by outcome");
  const figure = element("figure");
  figure.append(caption, card.picture);
  const legend = element("table", "", "legend");
  const head = element("tr");
  for (const text of ["Outcome", "a second", "in all"]) {
    const cell = element("th", text);
    cell.scope = "col";
    head.append(cell);
  }
  card.numbers = new Map();
  const rows = outcomes.map(([o, words]) => {
    const row = element("tr");
    const name = element("th");
    name.scope = "row";
    name.append(element("span", "", "swatch " + o), words);
    const cells = [element("td"), element("td")];
    row.append(name, ...cells);
    card.numbers.set(o, { row, cells });
    return row;
  });
  const thead = element("thead"), tbody = element("tbody");
  thead.append(head);
  tbody.append(...rows);
  legend.append(thead, tbody);
  card.more = element("p", "", "note");
  card.rule = element("div", "", "rule");
  const details = element("details");
  details.append(element("summary", "Effective rule"), card.rule);
  const line = element("div", "", "line");
  line.append(card.title, card.mode);
  const data = element("div", "", "data");
  data.append(figure, legend);
  card.box.append(line, card.where, data, card.more, details);
  return card;
}

// value is that of a setting, as one would say it.
function value(v) {
  if (Array.isArray(v)) return v.length === 0 ? "none" : v.map(value).join(", ");
  if (v === "" || v === null) return "none";
  return typeof v === "object" ? (Object.keys(v).length === 0 ? "none" : JSON.stringify(v)) : String(v);
}

// showRule lists the settings: first those that somebody chose, then the defaults.
function showRule(card, settings) {
  const text = JSON.stringify(settings || []);
  if (card.settings === text) return; // leaves what somebody selected in it alone
  card.settings = text;
  const groups = [["Set for this route", (s) => s.from !== "default"], ["Defaults", (s) => s.from === "default"]];
  card.rule.replaceChildren(...groups.flatMap(([title, belongs]) => {
    const some = (settings || []).filter(belongs);
    if (some.length === 0) return [];
    const table = element("table", "", "settings");
    table.append(element("caption", title));
    const body = element("tbody");
    for (const s of some) {
      const row = element("tr");
      const name = element("th", s.path);
      name.scope = "row";
      const cell = element("td", value(s.value));
      if (s.from !== "default") cell.append(element("span", s.from, "from"));
      row.append(name, cell);
      body.append(row);
    }
    table.append(body);
    return [table];
  }));
}

const conflictWords = (counts) => Object.entries(counts || {}).filter(([, n]) => n > 0)
  .map(([reason, n]) => count(n) + " " + reason.replaceAll("_", " ")).join(", ");

function showCard(card, route, now) {
  put(card.title, route.name);
  put(card.mode, route.mode);
  card.mode.dataset.tone = route.mode === "enforce" ? "good" : "calm";
  put(card.where, route.methods.join(" ") + " " + (route.host || "") + route.path);
  add(card, route.requests || {}, now);
  plot(card.picture, card.series, route.name);
  const mean = latest(card.series) || zero();
  for (const [o, { row, cells }] of card.numbers) {
    const all = (route.requests || {})[o] || 0;
    put(cells[0], rate(mean[o]));
    put(cells[1], count(all));
    row.className = all === 0 ? "none" : "";
  }
  const refused = [conflictWords(route.conflicts), conflictWords(route.rejects)].filter(Boolean).join(", ");
  put(card.more, "In flight " + count(route.in_flight) + (route.waiting ? ", waiting " + count(route.waiting) : "") + ". Rejected so far: " + (refused || "none") + ".");
  showRule(card, route.settings);
}

// showRoutes shows all of them, and returns what they do together.
export function showRoutes(into, routes, now) {
  const all = { rate: 0, replayed: 0, inFlight: 0, measured: false };
  const names = new Set(routes.map((r) => r.name));
  for (const [name, card] of cards) {
    if (names.has(name)) continue;
    card.box.remove();
    cards.delete(name);
  }
  for (const route of routes) {
    let card = cards.get(route.name);
    if (!card) {
      card = newCard();
      cards.set(route.name, card);
      into.append(card.box);
    }
    showCard(card, route, now);
    const point = latest(card.series);
    if (point) all.rate += sum(point);
    all.measured = all.measured || Boolean(point);
    all.replayed += (route.requests || {}).replayed || 0;
    all.inFlight += route.in_flight;
  }
  into.querySelector(".empty")?.remove();
  if (routes.length === 0) into.append(element("p", "No route is configured: every request passes through, unguarded.", "card empty"));
  return all;
}

// redraw fits the plots to a new width.
export function redraw() {
  for (const [name, card] of cards) plot(card.picture, card.series, name);
}
