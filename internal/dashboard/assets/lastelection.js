// The last election, which the agents keep in memory. It is read only when the user asks for it.
import { request } from "./actions.js";
import { el } from "./dom.js";
import { describe, sequence } from "./sequence.js";

// lastElection returns the content of the card, and a function for the present state of the group.
export function lastElection(path, namespace, name, permission) {
  const content = el("div", { class: "election" }, el("p", { class: "muted" }, "The agents keep recent elections in memory. With the permission to forward ports, ",
    el("code", {}, "kubectl conclave dashboard"), " shows the last one here, at the address that it prints. In a terminal, use:"),
  el("pre", { class: "command", tabindex: "0" }, `kubectl conclave explain ${name} -n ${namespace}`));
  const answer = el("div", { class: "answer", role: "status" }), details = el("div");
  const changed = el("p", { class: "notice", role: "status", hidden: true }, "The group has elected again since. Read the journals again to see that.");
  const button = el("button", { class: "button", type: "button", onclick: read }, "Read the agents’ journals");
  let detail = null, shown = null;

  // compare shows whether there was another election since. There may be no coordinator any more.
  function compare() {
    const latest = Math.max(detail?.coordinator ? detail.term : 0, detail?.tenures[0]?.term ?? 0);
    const another = shown && (shown.coordinator ? latest > shown.term || latest === shown.term && detail.coordinator && detail.coordinator !== shown.coordinator
      : detail?.coordinator);
    changed.hidden = !another;
  }

  async function read() {
    button.disabled = true;
    answer.replaceChildren(el("p", { class: "muted" }, `Reading the journals of ${detail?.members ?? "all"} agents …`));
    let found;
    try {
      found = await (await request(`${path}/last-election`)).json();
    } catch {
      found = { error: "the dashboard does not answer" };
    }
    shown = found.error ? null : found;
    answer.replaceChildren(...found.error ? [el("p", { class: "bad" }, `Error: ${found.error}`)] : describe(found));
    details.replaceChildren(...found.steps?.length ? [sequence(found)] : []);
    button.disabled = false;
    button.textContent = "Read again";
    compare();
  }

  permission.then((may) => {
    if (!may) return;
    content.replaceChildren(el("div", {}, el("p", { class: "muted" }, "The agents keep recent elections in memory. Each step is from the journal of an agent."),
      button, changed, answer), details);
  });
  return { content, update: (now) => { detail = now; compare(); } };
}
