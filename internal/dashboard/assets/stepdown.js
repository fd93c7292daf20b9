// The button that makes the coordinator of a group hand over. It is shown only to a user who may do that, and who has opened the
// address that the command has printed.
import { request } from "./actions.js";
import { el } from "./dom.js";

// stepDownButton returns the button, and a function that shows it for the present state of the group.
export function stepDownButton(path, permission) {
  const button = el("button", { class: "button", type: "button", hidden: true, onclick: () => ask(path, detail) }, "Step down …");
  let detail = null, may = false;
  const show = () => { button.hidden = !may || !detail?.coordinator; };
  permission.then((answer) => {
    may = answer;
    show();
  });
  return { button, update: (now) => { detail = now; show(); } };
}

// ask asks for a confirmation, sends the request, and shows the result.
function ask(path, detail) {
  const others = detail.processes.filter((p) => p.status === "Normal" && p.priority > 0);
  const to = el("select", { id: "to" }, el("option", { value: "" }, "the eligible member of the highest priority"),
    others.map((p) => el("option", { value: p.pod }, `${p.pod} (priority ${p.priority})`)));
  const outcome = el("p", { class: "outcome", role: "status" });
  const confirm = el("button", { class: "button danger", type: "button", onclick: send }, "Step down");
  const cancel = el("button", { class: "button", type: "button", onclick: () => dialog.close() }, "Cancel");
  const form = el("div", {}, el("p", {}, "Its application stops first; then the next coordinator starts."), el("label", { for: "to" }, "Next coordinator"), to);
  const dialog = el("dialog", { "aria-labelledby": "ask" }, el("h2", { id: "ask" }, `Make ${detail.coordinator} hand over?`), form, outcome,
    el("div", { class: "choices" }, cancel, confirm));
  dialog.addEventListener("close", () => dialog.remove());

  async function send() {
    confirm.disabled = true;
    outcome.className = "outcome";
    outcome.textContent = `Waiting until ${detail.coordinator} has handed over …`;
    let failed = null, message = "";
    try {
      const answer = await request(`${path}/step-down`, { method: "POST", body: JSON.stringify({ coordinator: detail.coordinator, to: to.value }) });
      const result = await answer.json();
      [failed, message] = [result.error, result.message];
    } catch {
      failed = "the dashboard does not answer";
    }
    outcome.className = failed ? "outcome bad" : "outcome";
    outcome.textContent = failed ? `Error: ${failed}` : message;
    form.hidden = true;
    confirm.remove();
    cancel.textContent = "Close";
    cancel.focus();
  }

  document.body.append(dialog);
  dialog.showModal();
}
