// The overview of all groups.
import { age, badge, el, now, state } from "./dom.js";
import { open } from "./stream.js";

const states = ["Unavailable", "Flapping", "Degraded", "Unknown", "Updating", "Healthy"];
const byText = (of) => (a, b) => of(a).localeCompare(of(b), undefined, { numeric: true });
const byName = byText((g) => `${g.namespace}/${g.name}`);
const columns = [
  { id: "health", title: "Health", compare: (a, b) => states.indexOf(state(a)) - states.indexOf(state(b)), cell: (g) => badge(state(g)) },
  { id: "name", title: "Group", compare: byName, cell: nameCell },
  { id: "coordinator", title: "Coordinator", compare: byText((g) => g.coordinator ?? ""), cell: (g) => g.coordinator ?? el("span", { class: "muted" }, "none") },
  { id: "algorithm", title: "Algorithm", compare: byText((g) => g.algorithm), cell: (g) => g.algorithm },
  { id: "up", title: "Members up", compare: (a, b) => a.up - a.members - (b.up - b.members), cell: (g) => `${g.up} of ${g.members}` },
  { id: "failovers", title: "Failures, 1 h", compare: (a, b) => failovers(b) - failovers(a), cell: (g) => failovers(g) ? `${failovers(g)}${g.endedMore ? "+" : ""}` : "" },
  { id: "change", title: "Last change", compare: (a, b) => Date.parse(b.lastChange ?? 0) - Date.parse(a.lastChange ?? 0), cell: (g) => age(g.lastChange) },
];

// view is what the user has chosen. The address has it, so that it can be sent to a colleague, and it remains while the page of a group is open.
const view = { text: "", namespace: "", health: "", sort: "health", descending: false };

// address returns the address of the overview with what the user has chosen.
export function address() {
  const query = new URLSearchParams();
  if (view.text) query.set("filter", view.text);
  if (view.namespace) query.set("namespace", view.namespace);
  if (view.health) query.set("health", view.health);
  if (view.sort !== "health" || view.descending) query.set("sort", (view.descending ? "-" : "") + view.sort);
  return query.size ? `#/?${query}` : "#/";
}

// readAddress chooses what the address has.
function readAddress() {
  const query = new URLSearchParams(location.hash.split("?")[1] ?? "");
  const sort = query.get("sort") ?? "health", id = sort.replace(/^-/, "");
  Object.assign(view, { text: query.get("filter") ?? "", namespace: query.get("namespace") ?? "", health: states.includes(query.get("health")) ? query.get("health") : "" });
  Object.assign(view, columns.some((c) => c.id === id) ? { sort: id, descending: id !== sort } : { sort: "health", descending: false });
}

// failovers counts the tenures that ended by a failure in the last hour.
function failovers(g) {
  const hourAgo = now() - 3600000;
  return (g.ended ?? []).filter((at) => Date.parse(at) > hourAgo).length;
}

function nameCell(g) {
  return el("a", { href: `#/${g.namespace}/${g.name}`, class: "row-link" }, el("span", { class: "muted" }, `${g.namespace}/`), el("wbr"), g.name);
}

// show fills the page, and returns the function that ends it.
export function show(main, page) {
  const rows = new Map(); // key -> { group, element }
  let scheduled = false, loaded = false;
  readAddress();

  const search = el("input", {
    type: "search", id: "filter", placeholder: "Name, namespace, pod, node or algorithm", value: view.text, autocomplete: "off", spellcheck: "false",
    oninput: () => { view.text = search.value; chosen(); },
  });
  const namespace = el("select", { id: "namespace", "aria-label": "Namespace", hidden: true, onchange: () => { view.namespace = namespace.value; chosen(); } });
  const chips = el("div", { class: "chips", role: "group", "aria-label": "Filter by health" });
  const head = el("tr", { role: "row" });
  const body = el("tbody", { role: "rowgroup" });
  const empty = el("div", { class: "empty", hidden: true });
  const table = el("table", { class: "groups", role: "table" },
    el("caption", { class: "visually-hidden" }, "Election groups"), el("thead", { role: "rowgroup" }, head), body);
  main.replaceChildren(
    el("div", { class: "title" }, el("h1", {}, "Election groups"), el("span", { id: "count", class: "muted", role: "status" }), el("a", { href: "#/nodes", class: "aside" }, "Nodes")),
    el("div", { class: "tools" }, el("label", { for: "filter", class: "visually-hidden" }, "Filter groups"), search, namespace, chips), table, empty);
  const count = main.querySelector("#count");
  const headers = columns.map((column) => {
    const button = el("button", { type: "button", onclick: () => sortBy(column.id) }, column.title);
    const cell = el("th", { scope: "col", role: "columnheader", class: column.id }, button);
    head.append(cell);
    return { column, cell };
  });
  const buttons = ["", ...states].map((state) => {
    const button = el("button", { type: "button", class: `chip ${state}`, onclick: () => { view.health = state; chosen(); } });
    chips.append(button);
    return { state, button };
  });
  page.title("Election groups");

  function sortBy(id) {
    view.descending = view.sort === id && !view.descending;
    view.sort = id;
    chosen();
  }

  // chosen shows what the user has chosen, and writes it into the address.
  function chosen() {
    history.replaceState(history.state, "", address());
    schedule();
  }

  function schedule() {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => { scheduled = false; render(); });
  }

  function set(group) {
    const key = `${group.namespace}/${group.name}`;
    const row = rows.get(key) ?? { element: el("tr", { role: "row", "data-key": key }) };
    row.group = group;
    row.element.replaceChildren(...columns.map((c) => el("td", { role: "cell", class: c.id, "data-title": c.title }, c.cell(group))));
    rows.set(key, row);
    return row;
  }

  // forget counts the failures again: those that are more than an hour ago no longer count, and a group may have ceased to flap.
  function forget() {
    for (const { group, element } of rows.values()) {
      if (!group.ended) continue;
      for (const id of ["health", "failovers"]) element.querySelector(`.${id}`).replaceChildren(columns.find((c) => c.id === id).cell(group));
    }
    schedule();
  }

  function matches(g) {
    const words = view.text.toLowerCase().split(/\s+/);
    const text = `${g.namespace}/${g.name} ${g.coordinator ?? ""} ${g.algorithm} ${state(g)} ${(g.places ?? []).map((p) => p.node).join(" ")}`.toLowerCase();
    return (view.namespace === "" || g.namespace === view.namespace) && (view.health === "" || state(g) === view.health) && words.every((word) => text.includes(word));
  }

  // slash focuses the filter, as on other pages with one.
  function slash(event) {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea, dialog")) return;
    event.preventDefault();
    search.focus();
  }

  // showNamespaces offers the namespaces that have groups, and the chosen one, if that are several.
  function showNamespaces() {
    const all = [...new Set([...rows.values()].map((row) => row.group.namespace)).add(view.namespace)].filter(Boolean).sort();
    if (namespace.dataset.all !== all.join()) {
      namespace.dataset.all = all.join();
      namespace.replaceChildren(el("option", { value: "" }, "All namespaces"), ...all.map((n) => el("option", { value: n }, n)));
      namespace.hidden = all.length < 2 && !view.namespace;
    }
    namespace.value = view.namespace;
  }

  function render() {
    showNamespaces();
    const compare = columns.find((c) => c.id === view.sort).compare;
    const sign = view.descending ? -1 : 1;
    const shown = [...rows.values()].filter((row) => matches(row.group))
      .sort((a, b) => sign * compare(a.group, b.group) || byName(a.group, b.group)).map((row) => row.element);
    if (shown.length !== body.children.length || shown.some((element, i) => body.children[i] !== element)) {
      const focused = document.activeElement;
      body.replaceChildren(...shown);
      if (body.contains(focused)) focused.focus({ preventScroll: true });
    }
    for (const { column, cell } of headers) {
      if (column.id !== view.sort) cell.removeAttribute("aria-sort");
      else cell.setAttribute("aria-sort", view.descending ? "descending" : "ascending");
    }
    const totals = {};
    for (const { group } of rows.values()) totals[state(group)] = (totals[state(group)] ?? 0) + 1;
    for (const { state, button } of buttons) {
      const total = state === "" ? rows.size : totals[state] ?? 0;
      button.textContent = `${state || "All"} ${total}`;
      button.setAttribute("aria-pressed", String(view.health === state));
      button.hidden = total === 0 && state !== "" && view.health !== state;
    }
    setText(count, shown.length === rows.size ? `${rows.size}` : `${shown.length} of ${rows.size}`);
    table.hidden = shown.length === 0;
    empty.hidden = !loaded || shown.length > 0;
    if (!empty.hidden) showEmpty();
  }

  function showEmpty() {
    const why = rows.size > 0 ? "filter" : "none";
    if (empty.dataset.why === why) return; // A click needs the same button when it begins and ends.
    empty.dataset.why = why;
    if (why === "filter") {
      empty.replaceChildren(el("p", {}, "No group matches."), el("button", { type: "button", onclick: reset }, "Show all groups"));
    } else {
      empty.replaceChildren(el("p", {}, "There are no election groups."), el("p", {}, "Create one: ", el("code", {}, "kubectl apply -f sample-statefulset.yaml")));
    }
  }

  function reset() {
    view.text = view.namespace = view.health = search.value = "";
    search.focus();
    chosen();
  }

  const close = open("events", {
    connection: page.connection,
    groups: (groups) => {
      loaded = page.state() !== "connecting" || groups.length > 0;
      rows.clear();
      groups.forEach(set);
      schedule();
    },
    group: (group) => { loaded = true; flash(set(group).element); schedule(); },
    deleted: (key) => { rows.delete(key); schedule(); },
  }, page.lost);
  page.onConnected(() => { loaded = true; schedule(); });
  const minute = setInterval(forget, 60000);
  addEventListener("keydown", slash);
  return () => { removeEventListener("keydown", slash); clearInterval(minute); close(); };
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// flash highlights a changed row for a moment.
function flash(element) {
  element.classList.remove("changed");
  requestAnimationFrame(() => element.classList.add("changed"));
}
