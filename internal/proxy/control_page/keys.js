// Keys: those in flight and unknown, one that is looked up, and the release.

import { at, count, element, moment, put, span } from "./words.js";

const words = { free: "free", "in-progress": "in flight", unknown: "unknown", completed: "completed", unreadable: "unreadable" };
const tones = { free: "calm", "in-progress": "busy", unknown: "bad", completed: "good", unreadable: "bad" };

let proxy; // {call, now, readOnly}
let inQuestion; // the key that the dialog is about

function state(k) {
  const pill = element("span", words[k.state] || k.state, "pill");
  pill.dataset.tone = tones[k.state] || "calm";
  return pill;
}

// story says what is known of a key in sentences.
function story(k) {
  const p = element("p", "", "story");
  const when = k.since ? moment(k.since, proxy.now()) : undefined;
  const by = k.owner ? " by " + k.owner : "";
  const left = k.ttl_left_seconds ? " for " + span(k.ttl_left_seconds) + " more" : "";
  switch (k.state) {
    case "free":
      p.append("Nothing is known of this key: the next request with it is executed.");
      break;
    case "in-progress":
      p.append("Being executed" + by);
      if (when) p.append(", claimed ", when);
      p.append(". Its lease is renewed while it runs; it has " + span(k.lease_left_seconds || 0) + " left.");
      break;
    case "unknown":
      p.append("Nobody knows whether the request was executed");
      if (when) p.append("; it was claimed ", when, by);
      p.append(". Retries are refused" + left + ", or until the key is released.");
      break;
    case "completed":
      p.append("Answered with status " + k.status);
      if (when) p.append(", ", when);
      p.append(k.response_not_stored ? ". The answer was too large to keep: retries are refused" + left + "." : ". Retries get this answer again" + left + ".");
      break;
    default:
      p.append("There is an entry that this proxy can't read; requests with the key are refused.");
  }
  return p;
}

const held = (k) => k.state === "unknown" || k.state === "in-progress";

function button(text, label, act, cls) {
  const b = element("button", text, cls);
  b.type = "button";
  if (label) b.setAttribute("aria-label", label);
  b.addEventListener("click", () => act(b));
  return b;
}

function row(k) {
  const li = element("li");
  li.dataset.hash = k.key_hash;
  li.dataset.state = k.state;
  const about = element("div");
  const line = element("div", "", "line");
  line.append(state(k), element("strong", k.route || "route not known"));
  about.append(line, story(k), element("p", k.key_hash, "hash"));
  li.append(about, button("Look", "Look at " + k.key_hash.slice(0, 8), () => { find(k.key_hash, true); }));
  return li;
}

// fill changes the rows in place, so that a focused button stays where it is.
function fill(list, keys) {
  const old = new Map([...list.children].map((li) => [li.dataset.hash, li]));
  keys.forEach((k, i) => {
    const was = old.get(k.key_hash);
    let is = row(k);
    old.delete(k.key_hash);
    if (was && was.dataset.state === k.state) {
      was.firstChild.replaceWith(is.firstChild);
      is = was;
    } else {
      was?.remove();
    }
    if (list.children[i] !== is) list.insertBefore(is, list.children[i] || null);
  });
  for (const li of old.values()) li.remove();
}

const most = 200; // rows
const pagesATime = 6; // of a thousand keys looked at: a big store is gone through over several looks
let walk; // through the store, as far as it has come
let whole; // what the last whole walk found

// step goes on through the store, unknown outcomes first.
async function step() {
  walk ??= { keys: [], states: ["unknown", "in-progress"], looked: 0 };
  for (let n = 0; n < pagesATime && walk.states.length > 0; n++) {
    const after = walk.next === undefined ? "" : "&cursor=" + encodeURIComponent(walk.next);
    const page = await proxy.call("GET", "/api/keys?limit=1000&state=" + walk.states[0] + after);
    walk.keys.push(...page.keys);
    walk.looked += page.looked;
    walk.next = page.next;
    if (page.next === undefined) walk.states.shift();
  }
  if (walk.states.length > 0) return;
  whole = walk.keys;
  walk = undefined;
}

// listAgain forgets how far the look through the store has come.
export function listAgain() { walk = whole = undefined; }

// listKeys shows what needs a look. It returns how many are unknown, and whether there may be more.
export async function listKeys() {
  const note = at("keys-note");
  try {
    await step();
  } catch (error) {
    listAgain();
    if (error.status !== 401) {
      note.dataset.tone = "bad";
      put(note, "The keys can't be listed. " + error.message);
      at("keys").replaceChildren();
    }
    throw error;
  }
  delete note.dataset.tone;
  // Until a walk is whole, what it found so far is added to what the one before knew.
  const keys = [...new Map([...(whole || []), ...(walk ? walk.keys : [])].map((k) => [k.key_hash, k])).values()];
  const unknown = keys.filter((k) => k.state === "unknown");
  const flying = keys.filter((k) => k.state !== "unknown");
  fill(at("keys"), [...unknown, ...flying].slice(0, most));
  let text = keys.length === 0 ? "No request is in flight and no outcome is unknown." : count(unknown.length) + " unknown, " + count(flying.length) + " in flight.";
  if (!whole) text = "Looking: " + count(walk.looked) + " keys so far, " + count(keys.length) + " to show.";
  if (keys.length > most) text += " The first " + most + " are below: `idemproxy keys list` goes through all.";
  put(note, text);
  return { unknown: unknown.length, more: !whole };
}

function showFound(k, note) {
  const box = at("found");
  const line = element("div", "", "line");
  line.append(state(k), element("strong", k.route || ""));
  const parts = [line, story(k), element("p", k.key_hash, "hash")];
  if (note) parts.unshift(element("p", note, "done"));
  if (held(k)) {
    parts.push(proxy.readOnly()
      ? element("p", "It can be released here once control.token_file is set.", "note")
      : button("Release…", "", () => ask(k), "danger"));
  }
  const raw = element("details");
  raw.append(element("summary", "As the API tells it"), element("pre", JSON.stringify(k, null, 2)));
  box.replaceChildren(...parts, raw);
}

async function look(ask) {
  const box = at("found");
  box.setAttribute("aria-busy", "true");
  try {
    showFound(await ask());
  } catch (error) {
    box.replaceChildren(element("p", error.message, "error"));
  }
  box.removeAttribute("aria-busy");
}

async function find(hash, show) {
  at("hash").value = hash;
  await look(() => proxy.call("GET", "/api/keys/" + encodeURIComponent(hash)));
  if (show) at("found").scrollIntoView({ block: "nearest" });
}

function ask(k) {
  inQuestion = k;
  put(at("release-text"), k.state === "in-progress"
    ? "A request with this key is being executed right now. If you release it, the next one with the key is executed beside it: twice in all. Release it only if you know that the first has no effect."
    : "Nobody knows whether the request was executed. Once released, the next one with this key is executed. Look first at the upstream whether the first one took effect.");
  put(at("release-hash"), k.key_hash);
  put(at("release-error"), "");
  at("release").showModal();
}

async function release() {
  const k = inQuestion;
  const yes = at("release-yes");
  yes.disabled = true;
  try {
    await proxy.call("POST", "/api/keys/" + encodeURIComponent(k.key_hash) + "/release" + (k.state === "in-progress" ? "?force=1" : ""));
    at("release").close();
    showFound(await proxy.call("GET", "/api/keys/" + encodeURIComponent(k.key_hash)), "Released. The next request with this key is executed.");
    listAgain();
    await proxy.again();
  } catch (error) {
    put(at("release-error"), error.message);
  }
  yes.disabled = false;
}

// offer shows the fields that name a key of the chosen route.
function offer() {
  const route = proxy.routes().find((r) => r.name === at("route").value);
  at("by-key").hidden = !route;
  if (!route) return;
  put(at("key-header"), route.key_header);
  at("identity").replaceChildren(...route.identity_headers.flatMap((name, i) => {
    const label = element("label", "Caller, as in " + name);
    const input = element("input");
    input.id = label.htmlFor = "identity-" + i;
    input.name = name;
    input.autocomplete = "off";
    input.spellcheck = false;
    return [label, input];
  }), ...(route.identity_by_token ? [element("p", "Tokens name the callers of this route: look the key up by its key_hash.", "note")] : []));
}

// offerRoutes fills the choice of routes, if it changed.
export function offerRoutes(routes) {
  const select = at("route");
  const text = JSON.stringify(routes.map((r) => [r.name, r.key_header, r.identity_headers, r.identity_by_token]));
  if (select.dataset.routes === text) return;
  select.dataset.routes = text;
  const chosen = select.value;
  select.replaceChildren(...routes.map((r) => element("option", r.name)));
  if (routes.some((r) => r.name === chosen)) select.value = chosen;
  offer();
}

// startKeys makes the forms and the dialog work.
export function startKeys(p) {
  proxy = p;
  at("route").addEventListener("change", offer);
  at("by-key").addEventListener("submit", (event) => {
    event.preventDefault();
    const headers = {};
    for (const input of at("identity").querySelectorAll("input")) if (input.value) headers[input.name] = input.value;
    look(() => proxy.call("POST", "/api/lookup", { route: at("route").value, key: at("key").value.trim(), headers }));
  });
  at("by-hash").addEventListener("submit", (event) => {
    event.preventDefault();
    find(at("hash").value.trim());
  });
  at("release-no").addEventListener("click", () => at("release").close());
  at("release-yes").addEventListener("click", release);
}
