// What the page is made of, and how often it looks. The token stays in this page's memory.

import { at, count, element, put, rate, span } from "./words.js";
import { every } from "./plot.js";
import { gap, redraw, showRoutes } from "./routes.js";
import { listKeys, offerRoutes, startKeys } from "./keys.js";

let token = "";
let status; // the last one
let lost; // since when there has been no answer
let timer;
let looks = 0;
let unknown;

async function call(method, path, body) {
  const headers = token ? { Authorization: "Bearer " + token } : {};
  if (body) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), credentials: "omit", cache: "no-store" });
  } catch {
    throw new Error("The proxy can't be reached.");
  }
  const told = await answer.json().catch(() => ({}));
  if (answer.ok) return told;
  if (answer.status === 401) lock(token ? "The token was refused: it is not, or no longer, the one in the file." : "");
  const error = new Error(told.detail || "The proxy answered with status " + answer.status + ".");
  error.status = answer.status;
  throw error;
}

// lock asks for the token. What was shown stays, out of sight, until it is right.
function lock(why) {
  token = "";
  clearTimeout(timer);
  const already = !at("signin").hidden;
  if (at("release").open) at("release").close();
  at("signin").hidden = false;
  at("open").hidden = at("lock").hidden = true;
  health("calm", "locked");
  put(at("build"), "");
  notice("");
  put(at("token-error"), why);
  at("token").setAttribute("aria-invalid", String(why !== ""));
  if (!already || why) at("token").select();
  at("token").focus();
}

function health(tone, text) {
  at("health").dataset.tone = tone;
  put(at("health"), text);
}

function notice(text, tone) {
  at("notice").hidden = text === "";
  at("notice").dataset.tone = tone || "";
  put(at("notice"), text);
}

function figure(id, title, value, unit, tone) {
  let box = at("glance-" + id);
  if (!box) {
    box = element("div");
    box.id = "glance-" + id;
    const dd = element("dd");
    dd.append(element("span", "", "value"), element("span", "", "unit"));
    box.append(element("dt", title), dd);
    at("glance").append(box);
  }
  box.dataset.tone = tone || "";
  put(box.querySelector(".value"), value);
  put(box.querySelector(".unit"), unit);
  return box;
}

// showUnknown counts what waits for a person, and leads there.
function showUnknown() {
  const some = unknown && unknown.unknown > 0;
  const value = unknown ? count(unknown.unknown) + (unknown.more ? "+" : "") : "–";
  const box = figure("unknown", "Unknown outcomes", value, some ? "" : unknown ? "nothing to decide" : "not known", some ? "bad" : "");
  const link = box.querySelector("a");
  if (!some) link?.remove();
  if (some && !link) {
    const a = element("a", "decide below");
    a.href = "#attention";
    box.querySelector("dd").append(a);
  }
}

function show(all) {
  put(at("build"), [status.replica, status.version, "up " + span(status.uptime_seconds), "log level " + status.log_level].filter(Boolean).join(" · "));
  figure("rate", "Requests", all.measured ? rate(all.rate) : "–", "a second");
  figure("flight", "In flight", count(all.inFlight), all.inFlight === 1 ? "request" : "requests");
  figure("replayed", "Replayed", count(all.replayed), "answered again");
  showUnknown();
  figure("passed", "Outside all routes", count(status.passed_through), "passed through");
  if (status.draining) {
    health("warn", "draining");
    notice("This replica is draining: it tells that it is not ready, so that no more requests are led to it, and serves on until it is stopped.", "warn");
  } else {
    health("good", "serving");
    notice(status.read_only ? "Without control.token_file this page only shows: nothing can be released here." : "", "calm");
  }
}

function missed() {
  lost ??= new Date();
  gap();
  redraw();
  health("bad", "not reached");
  notice("The proxy has not answered since " + lost.toLocaleTimeString() + ". What is below is from before; the page asks again every two seconds.", "bad");
}

// look asks for everything once, and again after a while.
async function look() {
  clearTimeout(timer);
  let next;
  try {
    next = await call("GET", "/api/status");
  } catch (error) {
    if (error.status === 401) return;
    missed();
    timer = setTimeout(look, every);
    return;
  }
  lost = undefined;
  status = next;
  at("signin").hidden = true;
  at("open").hidden = false;
  at("lock").hidden = status.read_only;
  offerRoutes(status.routes);
  const all = showRoutes(at("routes"), status.routes, performance.now());
  show(all);
  try {
    // Listing goes through the store: not each time.
    if (looks++ % 2 === 0) unknown = await listKeys();
  } catch (error) {
    unknown = undefined;
    if (error.status === 401) return;
  }
  show(all);
  clearTimeout(timer);
  timer = setTimeout(look, every);
}

at("token-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  token = at("token").value.trim();
  if (token === "") {
    lock("Type the token.");
    return;
  }
  looks = 0;
  await look();
  if (token === "" || lost) return;
  at("token").value = "";
  at("lock").focus();
});
at("lock").addEventListener("click", () => location.reload()); // forgets all that was shown, too
startKeys({
  call,
  now: () => Date.parse(status.started) + status.uptime_seconds * 1000,
  readOnly: () => status.read_only,
  routes: () => status.routes,
  again: () => { looks = 0; return look(); },
});
addEventListener("resize", redraw);
look();
