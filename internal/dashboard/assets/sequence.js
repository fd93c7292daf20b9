// A sequence diagram that can be stepped through: a lifeline for each member, and an arrow for each message.
import { el, svg } from "./dom.js";

const top = 40, rowHeight = 30;

export function sequence({ members, messages, omitted }) {
  const narrow = matchMedia("(max-width: 760px)").matches;
  const margin = narrow ? 36 : 56, gap = narrow ? 62 : 96;
  const width = 2 * margin + gap * (members.length - 1), height = top + rowHeight * (messages.length + 1);
  const x = (i) => margin + gap * i;
  const lines = members.map((m, i) => svg("g", { class: m.down ? "lifeline down" : "lifeline" },
    svg("text", { x: x(i), y: 18 }, m.pod.length > 14 ? `…${m.pod.slice(-13)}` : m.pod, svg("title", {}, m.pod)),
    svg("line", { x1: x(i), x2: x(i), y1: 28, y2: height })));
  const arrows = messages.map((m, i) => arrow(m, x(m.from), x(m.to), top + rowHeight * (i + 1)));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${messages.length} messages between ${members.length} members; the buttons describe one after the other` }, lines, arrows);
  const scroll = el("div", { class: "sequence", tabindex: "0", role: "region", "aria-label": "Sequence of the messages" }, picture);
  const caption = el("p", { class: "caption", role: "status" });
  const back = el("button", { class: "button", type: "button", onclick: () => show(at - 1) }, "Back");
  const next = el("button", { class: "button", type: "button", onclick: () => show(at + 1) }, "Next");
  const all = el("button", { class: "button", type: "button", onclick: () => show(messages.length) }, "All");
  let at;

  // show shows the messages up to one, or all of them.
  function show(index) {
    at = Math.max(0, index > messages.length ? 0 : index);
    const whole = at === messages.length;
    arrows.forEach((a, i) => {
      a.classList.toggle("later", i > at);
      a.classList.toggle("now", i === at);
    });
    back.disabled = at === 0;
    caption.textContent = whole ? `${messages.length} messages${omitted ? `; ${omitted} more are not shown` : ""}. Next begins with the first one.`
      : `${at + 1} of ${messages.length}, after ${format(messages[at].millis)} ms: ${messages[at].text}${messages[at].lost ? " (lost: the receiver is down)" : ""}`;
    if (!whole) scroll.scrollTop = Math.max(0, rowHeight * (at - 3));
  }

  show(messages.length);
  return el("div", {}, el("div", { class: "steps", role: "group", "aria-label": "Step through the messages" }, back, next, all), caption, scroll);
}

function format(millis) { return String(Number(millis.toFixed(3))); }

function arrow(m, from, to, y) {
  const ahead = to > from ? 1 : -1, end = to - 3 * ahead;
  const head = m.lost ? `M${end - 5} ${y - 5}l10 10m0 -10l-10 10` : `M${end - 7 * ahead} ${y - 4}L${end} ${y}L${end - 7 * ahead} ${y + 4}`;
  return svg("g", { class: `message${m.lost ? " lost" : ""}${m.office ? " office" : ""}` },
    svg("line", { x1: from, x2: end, y1: y, y2: y }), svg("path", { d: head }),
    svg("text", { x: (from + to) / 2, y: y - 5 }, m.kind));
}
