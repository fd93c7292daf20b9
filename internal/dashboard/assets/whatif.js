// What happens if members crash: the question, and the answer of the server's simulator.
import { el } from "./dom.js";
import { sequence } from "./sequence.js";

// membersMax is the server's limit.
const membersMax = 50;

// whatIf returns the content of the card. The nodes are the members, and the detail is the present state.
export function whatIf(path, nodes, { coordinator, nodes: present }) {
  if (nodes.length > membersMax) return [el("p", { class: "muted" }, `Groups of up to ${membersMax} members are simulated here, and larger ones by kubectl conclave simulate.`)];
  // By default the coordinator crashes, and the members that are down are down, too. So are those above it: they don't lead for another reason.
  const from = nodes.find((n) => n.pod === coordinator)?.priority ?? Math.max(...nodes.map((n) => n.priority));
  const down = new Set(present.filter((n) => ["Crashed", "Unknown"].includes(n.status)).map((n) => n.pod));
  const boxes = nodes.map((n) => el("label", { class: "choice" }, el("input", { type: "checkbox", value: n.pod, checked: n.priority >= from || down.has(n.pod) }), n.pod,
    down.has(n.pod) ? el("span", { class: "muted" }, " (down)") : null));
  const delay = el("select", { id: "delay" }, [[200, "0.2 ms"], [1000, "1 ms"], [5000, "5 ms"], [20000, "20 ms"]].map(([micros, text]) =>
    el("option", { value: micros, selected: micros === 1000 }, text)));
  const answer = el("div", { class: "answer", role: "status" }), details = el("div");
  const form = el("form", { onsubmit: ask }, el("fieldset", {}, el("legend", {}, "Members that are down, or crash at the same moment"), boxes),
    el("div", { class: "ask" }, el("label", { for: "delay" }, "A message takes"), delay, el("button", { class: "button" }, "Simulate")));

  async function ask(event) {
    event.preventDefault();
    const query = new URLSearchParams({ micros: delay.value });
    for (const box of form.querySelectorAll("input:checked")) query.append("down", box.value);
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

  return [el("p", { class: "muted" }, "The simulator elects with the members, priorities, algorithm, safety mode and timing of this group. Members that are down now are selected."), form, answer, details];
}
