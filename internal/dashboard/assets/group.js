// The page of one group.
import { permitted } from "./actions.js";
import { age, badge, commands, el, formatClock, formatDate, formatDuration, now, state, svg } from "./dom.js";
import { lastElection } from "./lastelection.js";
import { picture } from "./picture.js";
import { stepDownButton } from "./stepdown.js";
import { address } from "./overview.js";
import { open } from "./stream.js";
import { whatIf } from "./whatif.js";

// show fills the page, and returns the function that ends it.
export function show(main, page, namespace, name) {
  const notice = el("div", { class: "notice", role: "status", hidden: true });
  const heading = el("h1", {}, el("span", { class: "muted" }, `${namespace}/`), el("wbr"), name);
  const health = el("span", { class: "health" });
  const path = `${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const permission = permitted(path);
  const stepDown = stepDownButton(path, permission), election = lastElection(path, namespace, name, permission);
  const content = el("div", { class: "sections" });
  main.replaceChildren(
    el("nav", { "aria-label": "Breadcrumb" }, el("a", { href: address() }, "← All groups")),
    el("div", { class: "title" }, heading, health, stepDown.button), notice, content);
  page.title(`${namespace}/${name}`);
  const left = el("div", { class: "column" }), right = el("div", { class: "column" });
  let last, sections = {};

  function section(id, data, draw) {
    const text = JSON.stringify(data);
    if (sections[id]?.text !== text) {
      const drawn = data === null ? null : draw(data);
      drawn?.setAttribute("data-section", id);
      sections[id] = { text, element: drawn };
    }
    return sections[id].element;
  }

  function render(detail) {
    stepDown.update(detail);
    if (detail === null) {
      showMissing();
      return;
    }
    election.update(detail);
    notice.hidden = true;
    content.classList.remove("stale");
    if (last?.coordinator !== detail.coordinator && last) {
      page.announce(detail.coordinator ? `${detail.coordinator} is the coordinator of ${name}` : `${name} has no coordinator`);
    }
    last = detail;
    health.replaceChildren(badge(state(detail)));
    // What has been asked stays while the members are the same.
    const members = detail.nodes.map((n) => ({ pod: n.pod, priority: n.priority }));
    arrange(content, [section("facts", facts(detail), drawFacts), section("problems", problems(detail), drawProblems), left, right,
      section("election", members.length ? "" : null, () => card("Last election", election.content))]);
    arrange(left, [section("picture", { nodes: detail.nodes, ring: detail.ring, description: detail.description }, drawPicture),
      section("failovers", detail.gaps || detail.failovers ? { gaps: detail.gaps, longest: detail.longestGaps ?? [], failovers: detail.failovers } : null, drawGaps),
      section("whatif", members.length ? members : null, (nodes) => card("What if?", ...whatIf(path, nodes, detail)))]);
    arrange(right, [section("processes", detail.processes, drawProcesses), section("tenures", detail.tenures, drawTenures)]);
  }

  function showMissing() {
    if (!last && page.state() === "connecting") return;
    const gone = page.local() ? "was deleted" : "was deleted, or you may not see it any more,";
    notice.textContent = last ? `This group ${gone} at ${formatClock(now())}. Below is its last known state. If it is created again, it appears here.`
      : "There is no group of this name, or you may not see it. If it is created, it appears here.";
    notice.hidden = false;
    content.classList.add("stale");
    health.replaceChildren();
  }

  const close = open(`events/${path}`, { connection: page.connection, detail: render }, page.lost);
  page.onConnected(() => { if (!last) showMissing(); });
  return close;
}

// arrange makes these the children of an element, and leaves those that have not changed alone.
function arrange(element, children) {
  const wanted = children.filter(Boolean);
  if (wanted.length !== element.children.length || wanted.some((child, i) => element.children[i] !== child)) element.replaceChildren(...wanted);
}

function card(title, ...children) {
  return el("section", { class: "card" }, el("h2", {}, title), ...children.flat());
}

function facts(d) {
  return { coordinator: d.coordinator, electedAt: d.electedAt, ordinal: d.ordinal, term: d.term, algorithm: d.algorithm, safety: d.safety,
    up: d.up, members: d.members, memberList: d.memberList, adopting: d.adopting };
}

function drawFacts(d) {
  const fact = (title, ...value) => el("div", {}, el("dt", {}, title), el("dd", {}, ...value));
  return el("section", { class: "card facts", "aria-label": "Facts" }, el("dl", {},
    fact("Coordinator", d.coordinator ? el("strong", { id: "coordinator" }, d.coordinator) : el("strong", { id: "coordinator", class: "bad" }, "none")),
    d.electedAt ? fact("Elected", age(d.electedAt)) : null,
    fact("Term", String(d.term ?? "–"), d.ordinal && d.coordinator ? el("span", { class: "muted" }, ` ${d.ordinal} election`) : null),
    fact("Members up", `${d.up} of ${d.members}`),
    fact("Algorithm", d.algorithm), fact("Safety", d.safety),
    fact("Member list", d.memberList ? `version ${d.memberList}` : "none", d.adopting ? el("span", { class: "muted" }, " being adopted") : null)));
}

// problems returns the problems and warnings of a group, or null.
function problems({ problems, warnings, downTogether }) {
  return problems?.length || warnings?.length ? { problems: problems ?? [], warnings: warnings ?? [], together: downTogether } : null;
}

function drawProblems({ problems, warnings, together }) {
  const count = (list, word) => list.length === 0 ? [] : [list.length === 1 ? `1 ${word}` : `${list.length} ${word}s`];
  const title = [...count(problems, "problem"), ...count(warnings, "warning")].join(", ");
  return el("section", { class: "card problems" }, el("h2", {}, title), el("ul", {}, [...problems, ...warnings].map((p) => el("li", {},
    el("p", {}, p.type ? el("strong", {}, `${p.type} is ${p.status}`) : p.reason ? el("strong", {}, `Warning (${p.reason})`) : null,
      p.type ? ` (${p.reason}) for ` : null, p.type ? age(p.since, "") : null, p.type || p.reason ? ": " : null, p.message),
    p.advice ? el("p", { class: "advice" }, commands(p.advice)) : null))), together ? el("p", { class: "together" }, together) : null);
}

function drawPicture(d) {
  const legend = ["Coordinator", "Normal", "Crashed", "Unknown"].filter((s) => d.nodes.some((n) => n.status === s));
  return card(d.ring ? "Ring" : "Members", d.nodes.length ? picture(d) : el("p", { class: "muted" }, "There are no members yet."),
    el("ul", { class: "legend", "aria-hidden": "true" }, legend.map((s) => el("li", { class: s }, el("span", { class: "dot" }), s)),
      el("li", {}, "The number is the priority.")));
}

function drawProcesses(rows) {
  const places = [["Node", "node", rows.some((row) => row.node)], ["Zone", "zone", new Set(rows.map((row) => row.zone).filter(Boolean)).size > 1]].filter(([, , shown]) => shown);
  const titles = ["Pod", "Priority", "Status", "Since", ...places.map(([title]) => title)];
  return card("Process status table", el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Process status table" }, el("table", { class: "processes", "aria-label": "Process status table" },
    el("thead", {}, el("tr", {}, titles.map((t) => el("th", { scope: "col" }, t)))),
    el("tbody", {}, rows.flatMap((row) => [el("tr", {}, el("th", { scope: "row", title: `priority ${row.priority}` }, row.pod), el("td", { class: "number" }, String(row.priority)),
      el("td", {}, el("span", { class: `status ${row.status}` }, el("span", { class: "dot" }), row.status)),
      el("td", {}, age(row.since, "")), places.map(([, key]) => el("td", { class: "place" }, row[key] ?? ""))),
    row.reason ? el("tr", { class: "why" }, el("td", { class: "reason", colspan: titles.length }, row.reason)) : null])))));
}

function drawTenures(tenures) {
  if (!tenures.length) return card("Tenures", el("p", { class: "muted" }, "The operator has not seen an election yet."));
  const items = [];
  tenures.forEach((t, i) => {
    items.push(drawTenure(t));
    const before = tenures[i + 1];
    if (before) items.push(drawGap(t, before));
  });
  if (tenures[0].until) items.unshift(el("li", { class: "gap now" }, el("strong", {}, "No coordinator"), ` for `, age(tenures[0].until, ""), tenures[0].end ? `: ${tenures[0].end}` : null));
  return card("Tenures", el("ol", { class: "timeline", reversed: true }, items));
}

function drawTenure(t) {
  const from = Date.parse(t.from), until = t.until ? Date.parse(t.until) : null;
  const bar = el("span", { class: "bar", "aria-hidden": "true" });
  const length = (until ?? now()) - from;
  bar.style.width = `${Math.min(100, 6 + 94 * Math.log10(1 + Math.max(0, length) / 1000) / 6)}%`; // a week is full
  return el("li", { class: `tenure${until ? "" : " current"}` },
    el("span", { class: "ordinal", title: `tenure ${t.number} of the group` }, `#${t.number}`),
    el("span", { class: "who" }, el("strong", {}, t.pod), el("span", { class: "muted" }, ` term ${t.term}`)),
    el("span", { class: "when" }, until ? formatDuration(length + 500) : age(t.from, " so far"), el("span", { class: "muted" }, `, from ${formatTime(from)}`)), bar);
}

function drawGap(tenure, before) {
  return el("li", { class: before.failure ? "gap failure" : "gap" }, before.end || "the end was not observed",
    tenure.gap ? [", ", el("strong", {}, tenure.gap), " without a coordinator"] : null);
}

function formatTime(ms) {
  const at = new Date(ms), today = new Date(now()).toDateString() === at.toDateString();
  return today ? formatClock(at) : formatDate(at);
}

function drawGaps({ gaps, longest, failovers }) {
  return card("Time without a coordinator", gaps ? el("p", {}, `${gaps}.`) : null, longest.length ? el("ol", { class: "gaps" }, longest.map((text) => el("li", {}, text))) : null,
    failovers ? drawFailovers(failovers) : null);
}

function drawFailovers(h) {
  const width = 460, height = 150, base = 112, step = width / h.buckets.length;
  const highest = Math.max(...h.buckets.map((b) => b.count));
  const bars = h.buckets.map((b, i) => {
    const size = b.count ? Math.max(4, 84 * b.count / highest) : 0, x = i * step;
    return svg("g", {}, svg("rect", { x: x + 4, y: base - size, width: step - 8, height: size, rx: 3 }),
      b.count ? svg("text", { x: x + step / 2, y: base - size - 5 }, String(b.count)) : null,
      svg("text", { x: x + step / 2, y: base + 17, class: "axis" }, b.upTo.split(" ")[0]),
      svg("text", { x: x + step / 2, y: base + 30, class: "axis" }, b.upTo.split(" ")[1] ?? ""));
  });
  return [el("p", { class: "muted" }, h.text),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "histogram", role: "img", "aria-label": `Histogram: ${describeBuckets(h)}` },
      svg("line", { x1: 0, x2: width, y1: base, y2: base, class: "edge" }), bars),
    el("p", { class: "muted small" }, "How many of the last failovers took up to this time, and longer than the one to the left.")];
}

function describeBuckets(h) {
  return h.buckets.filter((b) => b.count).map((b) => `${b.count} ${b.upTo === "more" ? "longer" : `up to ${b.upTo}`}`).join(", ");
}
