// What happens if members crash: the question, and the answer of the server's simulator.
import { el } from "./dom.js";
import { sequence } from "./sequence.js";

// membersMax is the server's limit.
const membersMax = 50;

// whatIf returns the content of the card, and a function for the present places of the members. The nodes are the members, and the detail is the present state.
export function whatIf(path, nodes, { coordinator, nodes: present }) {
  if (nodes.length > membersMax) return { update: () => {}, content: [el("p", { class: "muted" }, `Groups of up to ${membersMax} members are simulated here, and larger ones by kubectl conclave simulate.`)] };
  // By default the coordinator crashes, and the members that are down are down, too. So are those above it: they don't lead for another reason.
  const from = nodes.find((n) => n.pod === coordinator)?.priority ?? Math.max(...nodes.map((n) => n.priority));
  const down = new Set(present.filter(isDown).map((n) => n.pod));
  const boxes = nodes.map((n) => el("label", { class: "choice" }, el("input", { type: "checkbox", value: n.pod, checked: n.priority >= from || down.has(n.pod) }), n.pod,
    down.has(n.pod) ? el("span", { class: "muted" }, " (down)") : null));
  const delay = el("select", { id: "delay" }, [[200, "0.2 ms"], [1000, "1 ms"], [5000, "5 ms"], [20000, "20 ms"]].map(([micros, text]) =>
    el("option", { value: micros, selected: micros === 1000 }, text)));
  const place = el("select", { id: "place", onchange: fail });
  const answer = el("div", { class: "answer", role: "status" }), details = el("div");
  const form = el("form", { onsubmit: ask },
    el("div", { class: "ask" }, el("label", { for: "place" }, "A node or zone fails"), place),
    el("fieldset", { onchange: () => { place.value = ""; } }, el("legend", {}, "Members that are down, or crash at the same moment"), boxes),
    el("div", { class: "ask" }, el("label", { for: "delay" }, "A message takes"), delay, el("button", { class: "button" }, "Simulate")));

  let latest = [];

  // fail asks what happens if a node or a zone fails while others are down.
  function fail() {
    if (!place.value) return;
    const failed = place.selectedOptions[0].dataset.pods.split(" ").concat(latest.filter(isDown).map((row) => row.pod));
    for (const box of form.querySelectorAll("input")) box.checked = failed.includes(box.value);
    form.requestSubmit();
  }

  async function ask(event) {
    event.preventDefault();
    const query = new URLSearchParams({ micros: delay.value });
    for (const box of form.querySelectorAll("input:checked")) query.append("down", box.value);
    if (place.value) query.set("silent", "true");
    let found;
    try {
      found = await (await fetch(`what-if/${path}?${query}`)).json();
    } catch {
      found = { error: "the dashboard does not answer" };
    }
    answer.replaceChildren(el("p", found.error ? { class: "bad" } : {}, found.error ? `Error: ${found.error}` : el("strong", {}, found.text)),
      found.cost ? el("p", { class: "muted" }, `${found.cost}.`) : "");
    details.replaceChildren(...found.steps?.length ? [sequence(found)] : []);
  }

  function update(rows) {
    latest = rows;
    const choices = [["", "–", ""], ...["node", "zone"].flatMap((kind) => placesOf(rows, kind))], text = JSON.stringify(choices);
    if (place.dataset.text === text) return;
    const before = place.value;
    place.dataset.text = text;
    place.replaceChildren(...choices.map(([value, label, pods]) => el("option", { value, "data-pods": pods, selected: value === before }, label)));
    place.parentElement.hidden = choices.length === 1;
  }

  const content = [el("p", { class: "muted" }, "The simulator elects with the members, priorities, algorithm, safety mode and timing of this group. Members that are down now are selected."), form, answer, details];
  return { content, update };
}

function isDown(row) { return ["Crashed", "Unknown"].includes(row.status); }

// placesOf returns the choices of a kind of places, node or zone: the value, the text and the members in it.
function placesOf(rows, kind) {
  const names = [...new Set(rows.map((row) => row[kind]).filter(Boolean))].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  return names.map((name) => {
    const pods = rows.filter((row) => row[kind] === name).map((row) => row.pod);
    return [`${kind}/${name}`, `${kind === "zone" ? "zone " : ""}${name}: ${pods.slice(0, 5).join(", ")}${pods.length > 5 ? " …" : ""}`, pods.join(" ")];
  });
}
