// The page of all nodes on which members are.
import { el } from "./dom.js";
import { open } from "./stream.js";

// show fills the page, and returns the function that ends it.
export function show(main, page) {
  const groups = new Map(); // key -> the nodes of the group
  let scheduled = false, loaded = false;
  const body = el("tbody");
  const table = el("div", { class: "card scroll", tabindex: "0", role: "region", "aria-label": "Nodes" }, el("table", { class: "nodes", "aria-label": "Nodes" },
    el("thead", {}, el("tr", {}, ["Node", "Zone", "Coordinators", "Members", "Stops"].map((title) => el("th", { scope: "col" }, title)))), body));
  const empty = el("div", { class: "empty", hidden: true }, el("p", {}, "No member of a group that you may see is on a node."));
  main.replaceChildren(
    el("nav", { "aria-label": "Breadcrumb" }, el("a", { href: "#/" }, "← All groups")),
    el("div", { class: "title" }, el("h1", {}, "Nodes")),
    el("p", { class: "muted" }, "Stops: the groups that would have no coordinator if the node failed or was drained, until enough members are up elsewhere."),
    table, empty);
  page.title("Nodes");

  function schedule() {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => { scheduled = false; render(); });
  }

  function render() {
    const rows = merge(groups.values());
    const focused = document.activeElement?.closest(".nodes a")?.getAttribute("href");
    body.replaceChildren(...rows.map(drawRow));
    if (focused) [...body.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused)?.focus({ preventScroll: true });
    table.hidden = rows.length === 0;
    empty.hidden = !loaded || rows.length > 0;
  }

  function set(group) { groups.set(`${group.namespace}/${group.name}`, group.places ?? []); }

  const close = open("events", {
    connection: page.connection,
    groups: (all) => {
      loaded = page.state() !== "connecting" || all.length > 0;
      groups.clear();
      all.forEach(set);
      schedule();
    },
    group: (group) => { loaded = true; set(group); schedule(); },
    deleted: (key) => { groups.delete(key); schedule(); },
  }, page.lost);
  page.onConnected(() => { loaded = true; schedule(); });
  return close;
}

// merge adds up the nodes of all groups, those with the most coordinators first.
function merge(all) {
  const nodes = new Map();
  for (const place of [...all].flat()) {
    const row = nodes.get(place.node) ?? { node: place.node, zone: "", coordinators: 0, members: 0, stops: [] };
    row.zone = place.zone || row.zone;
    row.coordinators += place.coordinators.length;
    row.members += place.members;
    row.stops.push(...place.stops);
    nodes.set(place.node, row);
  }
  return [...nodes.values()].sort((a, b) => b.coordinators - a.coordinators || b.members - a.members || a.node.localeCompare(b.node, undefined, { numeric: true }));
}

function drawRow(row) {
  const links = row.stops.sort().flatMap((key, i) => [i ? ", " : null, el("a", { href: `#/${key}` }, key)]);
  const cell = (name, title, ...content) => el("td", { class: name, "data-title": title }, ...content);
  return el("tr", { "data-node": row.node }, el("th", { scope: "row" }, row.node), cell("zone", "Zone", row.zone || "–"),
    cell("number", "Coordinators", String(row.coordinators)), cell("number", "Members", String(row.members)), cell("stops", "Stops", links.length ? links : "–"));
}
