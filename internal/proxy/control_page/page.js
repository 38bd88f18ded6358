"use strict";
// Everything shown is set as text, never as markup. The token stays in this page's memory.

const outcomes = ["executed", "replayed", "passed_through", "rejected", "released", "failed"];
const every = 2000; // milliseconds between two looks at the counters
const points = 150; // five minutes
const history = new Map(); // by route: {rates: [{executed: …}], last, at}
let looks = 0;

const at = (id) => document.getElementById(id);

function element(name, text, cls) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (cls) e.className = cls;
  return e;
}

async function call(method, path) {
  const token = at("token").value.trim();
  const headers = token ? { Authorization: "Bearer " + token } : {};
  const answer = await fetch(path, { method, headers, credentials: "omit", cache: "no-store" });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.detail || "status " + answer.status);
  return body;
}

function tell(error) { at("message").textContent = error ? error.message : ""; }

// rates are the requests of each outcome a second since the look before; none at first, and
// none below zero when the process began anew.
function rates(route, now) {
  const h = history.get(route.name) || { rates: [] };
  if (h.last) {
    const seconds = Math.max(0.001, (now - h.at) / 1000);
    const point = {};
    for (const o of outcomes) point[o] = Math.max(0, (route.requests[o] || 0) - (h.last[o] || 0)) / seconds;
    h.rates.push(point);
    if (h.rates.length > points) h.rates.shift();
  }
  h.last = { ...route.requests };
  h.at = now;
  history.set(route.name, h);
  return h.rates;
}

function plot(series) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 " + points + " 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "requests a second, by outcome");
  const top = Math.max(1, ...series.flatMap((p) => outcomes.map((o) => p[o])));
  for (const o of outcomes) {
    if (!series.some((p) => p[o] > 0)) continue;
    const line = document.createElementNS(space, "polyline");
    line.setAttribute("class", o);
    line.setAttribute("points", series.map((p, i) => (points - series.length + i) + "," + (97 - 94 * p[o] / top)).join(" "));
    svg.append(line);
  }
  return svg;
}

function settings(route) {
  const table = element("table");
  for (const s of route.settings || []) {
    const row = element("tr");
    const value = typeof s.value === "string" ? s.value : JSON.stringify(s.value);
    row.append(element("td", s.path), element("td", value), element("td", s.from));
    table.append(row);
  }
  return table;
}

function showRoute(route, now) {
  let box = document.querySelector("[data-route=" + JSON.stringify(route.name) + "]");
  if (!box) {
    box = element("div");
    box.dataset.route = route.name;
    const rules = element("details");
    rules.append(element("summary", "effective rule"), element("div"));
    box.append(element("h3"), element("div"), element("p", "", "legend"), rules);
    at("routes").append(box);
  }
  const [title, picture, legend, rules] = box.children;
  title.textContent = [route.name, route.methods.join(" "), (route.host || "") + route.path, route.mode, "in flight " + route.in_flight, "waiting " + route.waiting].join(" · ");
  const series = rates(route, now);
  picture.replaceChildren(plot(series));
  const last = series.at(-1) || {};
  legend.replaceChildren(...outcomes.map((o) => element("span", o.replace("_", " ") + " " + (last[o] || 0).toFixed(1) + "/s, " + (route.requests[o] || 0), o)));
  rules.lastChild.replaceChildren(settings(route));
}

async function look() {
  try {
    const status = await call("GET", "/api/status");
    at("build").textContent = [status.version, status.replica, status.draining ? "draining" : "", "log level " + status.log_level].filter(Boolean).join(" · ");
    const now = performance.now();
    for (const route of status.routes) showRoute(route, now);
    const names = new Set(status.routes.map((r) => r.name));
    for (const box of [...at("routes").children]) if (!names.has(box.dataset.route)) box.remove();
    if (looks++ % 5 === 0) await listKeys();
    tell();
  } catch (error) {
    tell(error);
  }
  setTimeout(look, every);
}

function button(text, act) {
  const b = element("button", text);
  b.type = "button";
  b.addEventListener("click", act);
  return b;
}

async function listKeys() {
  const rows = [];
  let more = false;
  for (const state of ["in-progress", "unknown"]) {
    const page = await call("GET", "/api/keys?limit=200&state=" + state);
    more = more || page.next !== undefined;
    for (const k of page.keys) {
      const row = element("tr");
      for (const text of [k.key_hash, k.state, k.route, k.owner, k.since]) row.append(element("td", text || ""));
      const cell = element("td");
      cell.append(button("look", () => find(k.key_hash)));
      row.append(cell);
      rows.push(row);
    }
  }
  at("keys").replaceChildren(...rows);
  at("more").textContent = more ? "There are more keys than were looked at: `idemproxy keys list` goes through all." : "";
}

async function find(hash) {
  at("hash").value = hash;
  at("actions").replaceChildren();
  try {
    const k = await call("GET", "/api/keys/" + encodeURIComponent(hash));
    at("found").textContent = JSON.stringify(k, null, 2);
    if (k.state === "unknown" || k.state === "in-progress") at("actions").append(button("Release", () => release(k)));
    tell();
  } catch (error) {
    at("found").textContent = error.message;
  }
}

async function release(k) {
  const live = k.state === "in-progress";
  const question = live
    ? "A request with this key is being executed. If you release it, the next one is executed beside it. Release it?"
    : "Nobody knows whether the request was executed. The next one with this key will be. Release it?";
  if (!confirm(question)) return;
  try {
    await call("POST", "/api/keys/" + encodeURIComponent(k.key_hash) + "/release" + (live ? "?force=1" : ""));
    await find(k.key_hash);
    await listKeys();
  } catch (error) {
    at("found").textContent = error.message;
  }
}

at("lookup").addEventListener("submit", (event) => {
  event.preventDefault();
  find(at("hash").value.trim());
});
look();
