// Elements, texts and times. Text is always set as text, never parsed as HTML.

// el creates an element. Attributes whose value is null or false are left out.
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// svg creates an SVG element.
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// formatDuration formats milliseconds, as in 45s, 3m11s, 47m, 3h12m and 2d.
export function formatDuration(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
  if (s < 120) return `${s}s`;
  if (m < 10) return `${m}m${s % 60 ? `${s % 60}s` : ""}`;
  if (h < 3) return `${m}m`;
  if (h < 10) return `${h}h${m % 60 ? `${m % 60}m` : ""}`;
  return h < 48 ? `${h}h` : `${d}d`;
}

// formatClock and formatDate format a time like logs do: with 24 hours, and with the zone, which is that of this machine.
export const formatClock = at => new Date(at).toLocaleTimeString(undefined, { hourCycle: "h23", timeZoneName: "short" });
export const formatDate = at => new Date(at).toLocaleString(undefined, { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short" });

// age returns an element with the time since a moment, which refreshAges updates.
export function age(at, suffix = " ago") {
  if (!at) return "";
  const element = el("time", { datetime: at, title: new Date(at).toISOString(), "data-suffix": suffix });
  refresh(element);
  return element;
}

// ahead is by how many milliseconds the clock of this machine is ahead of the server's. Small differences are the network's.
let ahead = 0;
const aheadMin = 5000;

// setClock stores the server's time. The times of the groups are from the cluster, so a wrong clock here would make each age wrong.
export function setClock(at) {
  const difference = Date.now() - at;
  ahead = Math.abs(difference) < aheadMin ? 0 : difference;
}

// now returns the server's time.
export function now() { return Date.now() - ahead; }

function refresh(element) {
  const text = formatDuration(now() - Date.parse(element.dateTime)) + element.dataset.suffix;
  if (element.textContent !== text) element.textContent = text;
}

export function refreshAges() {
  document.querySelectorAll("time[data-suffix]").forEach(refresh);
}

// commands returns a text with its commands in code, each with a button that copies it.
export function commands(text) {
  return text.split(/(kubectl (?:(?![.,;:](?:\s|$)).)+)/).map((part, i) => i % 2 === 0 ? part : el("span", { class: "copyable" }, el("code", {}, part),
    el("button", { type: "button", class: "copy", title: "Copy", "aria-label": `Copy ${part}`, onclick: copy }, "Copy")));
}

async function copy({ currentTarget: button }) {
  try {
    await navigator.clipboard.writeText(button.previousSibling.textContent);
    button.textContent = "Copied";
  } catch { // Without the permission, the user can copy the selected text.
    getSelection().selectAllChildren(button.previousSibling);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

const icons = {
  Healthy: "M3 8.5 6.5 12 13 4.5",
  Degraded: "M8 2.5 14 13H2zM8 6.5v3M8 11v.5",
  Flapping: "M2 9l3-5 3 8 3-8 3 5",
  Unavailable: "M4 4l8 8M12 4l-8 8",
  Unknown: "M5.5 6a2.5 2.5 0 1 1 3.6 2.3Q8 8.9 8 10M8 12v.6",
  Updating: "M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3",
};

// state returns the health of a group, or Flapping if it is up but has lost its coordinator often.
export function state(group) {
  return ["Unavailable", "Unknown"].includes(group.health) || !(Date.parse(group.flapsUntil) > now()) ? group.health : "Flapping";
}

// badge shows a state by a word, an icon and a color.
export function badge(health) {
  return el("span", { class: `badge ${health}` },
    svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: icons[health] ?? icons.Unknown })), health);
}
