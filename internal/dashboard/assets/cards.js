// The cards of a group's page. Each draws a part of the group's details.
import { age, commands, el, formatClock, formatDate, formatDuration, now, svg } from "./dom.js";
import { picture } from "./picture.js";

export function card(title, ...children) {
  return el("section", { class: "card" }, el("h2", {}, title), ...children.flat());
}

export function facts(d) {
  return { coordinator: d.coordinator, electedAt: d.electedAt, ordinal: d.ordinal, term: d.term, algorithm: d.algorithm, safety: d.safety,
    up: d.up, members: d.members, memberList: d.memberList, adopting: d.adopting };
}

export function drawFacts(d) {
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
export function problems({ problems, warnings, downTogether }) {
  return problems?.length || warnings?.length ? { problems: problems ?? [], warnings: warnings ?? [], together: downTogether } : null;
}

export function drawProblems({ problems, warnings, together }) {
  const count = (list, word) => list.length === 0 ? [] : [list.length === 1 ? `1 ${word}` : `${list.length} ${word}s`];
  const title = [...count(problems, "problem"), ...count(warnings, "warning")].join(", ");
  return el("section", { class: "card problems" }, el("h2", {}, title), el("ul", {}, [...problems, ...warnings].map((p) => el("li", {},
    el("p", {}, p.type ? el("strong", {}, `${p.type} is ${p.status}`) : p.reason ? el("strong", {}, `Warning (${p.reason})`) : null,
      p.type ? ` (${p.reason}) for ` : null, p.type ? age(p.since, "") : null, p.type || p.reason ? ": " : null, p.message),
    p.advice || p.runbook ? el("p", { class: "advice" }, p.advice ? commands(p.advice) : null, p.runbook ? [" ", link(p.runbook, "Runbook")] : null) : null))), together ? el("p", { class: "together" }, together) : null);
}

// link returns a link to another site.
export function link(href, text) {
  return el("a", { href, target: "_blank", rel: "noopener noreferrer" }, text);
}

// drawLinks shows where more about a group is.
export function drawLinks({ namespace, name, grafana }) {
  const group = new URLSearchParams({ "var-namespace": namespace, "var-group": name });
  return card("See also", el("p", {}, "Events: ", commands(`kubectl events --for electiongroup/${name} -n ${namespace}`)),
    grafana ? el("p", {}, link(`${grafana}/d/conclave-group?${group}`, "Metrics in Grafana")) : null);
}

export function drawPicture(d) {
  const legend = ["Coordinator", "Normal", "Crashed", "Unknown"].filter((s) => d.nodes.some((n) => n.status === s));
  return card(d.ring ? "Ring" : "Members", d.nodes.length ? picture(d) : el("p", { class: "muted" }, "There are no members yet."),
    el("ul", { class: "legend", "aria-hidden": "true" }, legend.map((s) => el("li", { class: s }, el("span", { class: "dot" }), s)),
      el("li", {}, "The number is the priority.")));
}

export function drawProcesses(rows) {
  const places = [["Node", "node", rows.some((row) => row.node)], ["Zone", "zone", new Set(rows.map((row) => row.zone).filter(Boolean)).size > 1]].filter(([, , shown]) => shown);
  const titles = ["Pod", "Priority", "Status", "Since", ...places.map(([title]) => title)];
  return card("Process status table", el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Process status table" }, el("table", { class: "processes", "aria-label": "Process status table" },
    el("thead", {}, el("tr", {}, titles.map((t) => el("th", { scope: "col" }, t)))),
    el("tbody", {}, rows.flatMap((row) => [el("tr", {}, el("th", { scope: "row", title: `priority ${row.priority}` }, row.pod), el("td", { class: "number" }, String(row.priority)),
      el("td", {}, el("span", { class: `status ${row.status}` }, el("span", { class: "dot" }), row.status)),
      el("td", {}, age(row.since, "")), places.map(([, key]) => el("td", { class: "place" }, row[key] ?? ""))),
    row.reason || row.message ? el("tr", { class: "why" }, el("td", { class: "reason", colspan: titles.length }, [row.reason, row.message].filter(Boolean).join(": "))) : null])))));
}

export function drawTenures(tenures) {
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

export function drawFailovers(h) {
  const width = 460, height = 150, base = 112, step = width / h.buckets.length;
  const highest = Math.max(...h.buckets.map((b) => b.count));
  const bars = h.buckets.map((b, i) => {
    const size = b.count ? Math.max(4, 84 * b.count / highest) : 0, x = i * step;
    return svg("g", {}, svg("rect", { x: x + 4, y: base - size, width: step - 8, height: size, rx: 3 }),
      b.count ? svg("text", { x: x + step / 2, y: base - size - 5 }, String(b.count)) : null,
      svg("text", { x: x + step / 2, y: base + 17, class: "axis" }, b.upTo.split(" ")[0]),
      svg("text", { x: x + step / 2, y: base + 30, class: "axis" }, b.upTo.split(" ")[1] ?? ""));
  });
  return card("Time without a coordinator", el("p", { class: "muted" }, h.text),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "histogram", role: "img", "aria-label": `Histogram: ${describeBuckets(h)}` },
      svg("line", { x1: 0, x2: width, y1: base, y2: base, class: "edge" }), bars),
    el("p", { class: "muted small" }, "How many of the last failovers took up to this time, and longer than the one to the left."));
}

function describeBuckets(h) {
  return h.buckets.filter((b) => b.count).map((b) => `${b.count} ${b.upTo === "more" ? "longer" : `up to ${b.upTo}`}`).join(", ");
}
