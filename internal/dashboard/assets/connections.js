// What agents carry for clients. Only they know it, and they are asked only when the user wants that.
import { request } from "./actions.js";
import { el } from "./dom.js";

const columns = [["Open", "open"], ["Waiting", "waiting"], ["Waited in vain", "waitedInVain"], ["Reset", "reset"], ["Refused", "refused"], ["Failed dials", "failedDials"]];

// connections returns the content of the card.
export function connections(path, namespace, name, permission) {
  const content = el("div", {}, el("p", { class: "muted" }, "The agents carry connections of clients to the coordinator. In a terminal, their numbers are shown by:"),
    el("pre", { class: "command", tabindex: "0" }, `kubectl conclave status ${name} -n ${namespace}`));
  const answer = el("div", { class: "answer", role: "status" });
  const button = el("button", { class: "button", type: "button", onclick: read }, "Ask the agents");

  async function read() {
    button.disabled = true;
    let found;
    try {
      found = await (await request(`${path}/connections`)).json();
    } catch {
      found = { error: "the dashboard does not answer" };
    }
    answer.replaceChildren(found.error ? el("p", { class: "bad" }, `Error: ${found.error}`) : draw(found.rows));
    button.disabled = false;
    button.textContent = "Ask again";
  }

  permission.then((may) => {
    if (may) content.replaceChildren(el("p", { class: "muted" }, "The agents carry connections of clients to the coordinator. What ended or failed is counted since the agent started."), button, answer);
  });
  return content;
}

function draw(rows) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Connections" }, el("table", { class: "connections", "aria-label": "Connections" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Agent"), columns.map(([title]) => el("th", { scope: "col" }, title)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, el("th", { scope: "row" }, row.pod),
      row.missing ? el("td", { class: "reason", colspan: columns.length }, row.missing) : columns.map(([, key]) => el("td", { class: "number" }, String(row[key]))))))));
}
