// An election in words, and as a sequence diagram that can be stepped through: a lifeline for each member, an arrow for each message, and a mark for each note
// on what a member found out.
import { el, formatDate, svg } from "./dom.js";

const top = 40, rowHeight = 30;

// describe returns the result of an election that agents recorded, its phases, and what is missing.
export function describe(election) {
  return [
    el("p", {}, el("strong", {}, `${election.text}, at `, el("time", { datetime: election.began, title: election.began }, formatDate(election.began)), ".")),
    el("ol", { class: "milestones" }, election.milestones.map((m) => el("li", {}, el("span", { class: "after" }, `${(m.micros / 1000).toFixed(2)} ms`), m.text))),
    el("p", { class: "muted" }, `Messages: ${election.cost}.`),
    ...election.waited ? [el("p", { class: "muted" }, `Clients: ${election.waited}.`)] : [],
    ...election.missing.map((m) => el("p", { class: "muted" }, `Missing: ${m.agent} (${m.reason}).`)),
  ];
}

// sequence returns the diagram, with a choice to show the probes, too: they say who is alive, and most of them change nothing.
export function sequence(election) {
  const essential = election.steps.filter((s) => s.kind !== "PROBE");
  if (essential.length === 0 || essential.length === election.steps.length) return diagram(election);
  const holder = el("div", {}, diagram({ ...election, steps: essential }));
  const box = el("input", { type: "checkbox", onchange: () => holder.replaceChildren(diagram(box.checked ? election : { ...election, steps: essential })) });
  return el("div", {}, el("label", { class: "choice" }, box, `Show ${election.steps.length - essential.length} probes`), holder);
}

function diagram({ members, steps, omitted }) {
  const narrow = matchMedia("(max-width: 760px)").matches;
  const margin = narrow ? 36 : 56, gap = narrow ? 62 : 96;
  const width = 2 * margin + gap * (members.length - 1), height = top + rowHeight * (steps.length + 1);
  const x = (i) => margin + gap * i;
  const lines = members.map((m, i) => svg("g", { class: m.down ? "lifeline down" : "lifeline" },
    svg("text", { x: x(i), y: 18 }, m.pod.length > 14 ? `…${m.pod.slice(-13)}` : m.pod, svg("title", {}, m.pod)),
    svg("line", { x1: x(i), x2: x(i), y1: 28, y2: height })));
  const rows = steps.map((s, i) => (s.note ? mark : arrow)(s, x(s.from), x(s.to), top + rowHeight * (i + 1)));
  const messages = steps.filter((s) => !s.note).length;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${messages} messages between ${members.length} members; the buttons describe one step after the other` }, lines, rows);
  const scroll = el("div", { class: "sequence", tabindex: "0", role: "region", "aria-label": "Sequence of the messages" }, picture);
  const caption = el("p", { class: "caption", role: "status" });
  const back = el("button", { class: "button", type: "button", onclick: () => show(at - 1) }, "Back");
  const next = el("button", { class: "button", type: "button", onclick: () => show(at + 1) }, "Next");
  const all = el("button", { class: "button", type: "button", onclick: () => show(steps.length) }, "All");
  const play = el("button", { class: "button", type: "button", onclick: () => (timer ? pause() : start()) }, "Play");
  let at, timer = null;

  // show shows the steps up to one, or all of them.
  function show(index) {
    at = Math.max(0, index > steps.length ? 0 : index);
    const whole = at === steps.length;
    rows.forEach((row, i) => {
      row.classList.toggle("later", i > at);
      row.classList.toggle("now", i === at);
    });
    if (at === 0 && document.activeElement === back) next.focus(); // A disabled button loses the focus.
    back.disabled = at === 0;
    caption.textContent = whole ? `${steps.length} steps${omitted ? `; ${omitted} more are not shown` : ""}. Next begins with the first one.`
      : `${at + 1} of ${steps.length}, after ${format(steps[at].millis)} ms: ${steps[at].text}`;
    if (!whole) reveal(x(steps[at].from), x(steps[at].to));
  }

  // reveal scrolls to a step, whose sender comes first if there isn't room for both ends.
  function reveal(from, to) {
    scroll.scrollTop = Math.max(0, rowHeight * (at - 3));
    for (const end of [to, from]) {
      if (end < scroll.scrollLeft + margin) scroll.scrollLeft = end - margin;
      else if (end > scroll.scrollLeft + scroll.clientWidth - margin) scroll.scrollLeft = end + margin - scroll.clientWidth;
    }
  }

  // start shows one step after the other, from the first one if all are shown, and pause stops that.
  function start() {
    play.textContent = "Pause";
    if (at >= steps.length - 1) show(0);
    timer = setInterval(() => {
      show(at + 1);
      if (at === steps.length || !picture.isConnected) pause();
    }, 700);
  }

  function pause() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }

  // keys are an alternative to the buttons while one of them has the focus.
  function keys(event) {
    const index = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: steps.length }[event.key];
    if (index === undefined) return;
    event.preventDefault();
    show(index);
  }

  show(steps.length);
  const buttons = el("div", { class: "steps", role: "group", "aria-label": "Step through the election, also by the arrow keys", onkeydown: keys }, back, next, all, play);
  return el("div", {}, buttons, caption, scroll);
}

function format(millis) { return String(Number(millis.toFixed(3))); }

function arrow(m, from, to, y) {
  const ahead = to > from ? 1 : -1, end = to - 3 * ahead;
  const head = m.lost ? `M${end - 5} ${y - 5}l10 10m0 -10l-10 10` : `M${end - 7 * ahead} ${y - 4}L${end} ${y}L${end - 7 * ahead} ${y + 4}`;
  return svg("g", { class: `message${m.lost ? " lost" : ""}${m.office ? " office" : ""}` },
    svg("line", { x1: from, x2: end, y1: y, y2: y }), svg("path", { d: head }),
    svg("text", { x: (from + to) / 2, y: y - 5 }, m.kind));
}

function mark(note, x, _, y) {
  return svg("g", { class: "message note" }, svg("circle", { cx: x, cy: y, r: 4 }), svg("text", { x, y: y - 7 }, note.kind));
}
