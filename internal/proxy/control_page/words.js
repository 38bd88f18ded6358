// Numbers and times as people say them, and elements that hold nothing but text.

// element makes an element. Whatever the proxy tells is set as text, never as markup.
export function element(name, text, cls) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (cls) e.className = cls;
  return e;
}

export const at = (id) => document.getElementById(id);

// put sets a text only where it changes, so that a screen reader isn't told the same again.
export function put(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

// span is a number of seconds in words: "3 minutes", "1 day 4 hours". Exact enough to act on.
export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  const part = (n, [name]) => n + " " + name + (n === 1 ? "" : "s");
  // 90 seconds are still seconds: "1 minute" would hide half of them.
  const i = units.findIndex(([name, size]) => s >= size && (name !== "minute" || s === size || s >= 2 * size));
  if (i < 0) return part(s, units[3]);
  const size = units[i][1];
  if (i < 2 && s < 10 * size) {
    const smaller = units[i + 1][1];
    const all = Math.round(s / smaller) * smaller; // so that 23 hours and 60 minutes never are
    const rest = Math.round((all % size) / smaller);
    return part(Math.floor(all / size), units[i]) + (rest ? " " + part(rest, units[i + 1]) : "");
  }
  const n = Math.round(s / size);
  return i > 0 && i < 3 && n * size >= units[i - 1][1] ? part(1, units[i - 1]) : part(n, units[i]);
}

// rate is a number of requests a second.
export function rate(n) {
  if (n === 0) return "0";
  if (n < 0.1) return "< 0.1";
  return n < 10 ? n.toFixed(1) : count(Math.round(n));
}

export const count = (n) => n.toLocaleString("en-US");

// moment is an instant as the distance from now, with the instant itself for who points at it.
export function moment(iso, now) {
  const seconds = (now - Date.parse(iso)) / 1000;
  const e = element("time", seconds < 1.5 ? "just now" : span(seconds) + " ago");
  e.dateTime = iso;
  e.title = new Date(iso).toLocaleString();
  return e;
}
