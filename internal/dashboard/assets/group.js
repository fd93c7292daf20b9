// The page of one group.
import { permitted } from "./actions.js";
import { card, drawFacts, drawFailovers, drawLinks, drawPicture, drawProblems, drawProcesses, drawTenures, facts, problems } from "./cards.js";
import { connections } from "./connections.js";
import { badge, el, formatClock, now, state } from "./dom.js";
import { lastElection } from "./lastelection.js";
import { stepDownButton } from "./stepdown.js";
import { address } from "./overview.js";
import { open } from "./stream.js";

// show fills the page, and returns the function that ends it.
export function show(main, page, namespace, name) {
  const notice = el("div", { class: "notice", role: "status", hidden: true });
  const heading = el("h1", {}, el("span", { class: "muted" }, `${namespace}/`), el("wbr"), name);
  const health = el("span", { class: "health" });
  const path = `${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const permission = permitted(path);
  const stepDown = stepDownButton(path, permission), election = lastElection(path, namespace, name, permission);
  const carried = connections(path, namespace, name, permission);
  const content = el("div", { class: "sections" });
  main.replaceChildren(
    el("nav", { "aria-label": "Breadcrumb" }, el("a", { href: address() }, "← All groups")),
    el("div", { class: "title" }, heading, health, stepDown.button), notice, content);
  page.title(`${namespace}/${name}`);
  const left = el("div", { class: "column" }), right = el("div", { class: "column" });
  let last, grafana, sections = {};

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
    arrange(content, [section("facts", facts(detail), drawFacts), section("problems", problems(detail), drawProblems), left, right,
      section("election", detail.nodes.length ? "" : null, () => card("Last election", election.content))]);
    arrange(left, [section("picture", { nodes: detail.nodes, ring: detail.ring, description: detail.description }, drawPicture),
      section("failovers", detail.failovers ?? null, drawFailovers)]);
    arrange(right, [section("processes", detail.processes, drawProcesses), section("tenures", detail.tenures, drawTenures),
      section("connections", detail.carried ? "" : null, () => card("Connections", carried)), section("links", { namespace, name, grafana }, drawLinks)]);
  }

  function showMissing() {
    if (!last && page.state() === "connecting") return;
    notice.textContent = last ? `This group was deleted at ${formatClock(now())}. Below is its last known state. If it is created again, it appears here.`
      : "There is no group of this name. If it is created, it appears here.";
    notice.hidden = false;
    content.classList.add("stale");
    health.replaceChildren();
  }

  const close = open(`events/${path}`, { connection: page.connection, grafana: (address) => { grafana = address; }, detail: render }, page.lost);
  page.onConnected(() => { if (!last) showMissing(); });
  return close;
}

// arrange makes these the children of an element, and leaves those that have not changed alone.
function arrange(element, children) {
  const wanted = children.filter(Boolean);
  if (wanted.length !== element.children.length || wanted.some((child, i) => element.children[i] !== child)) element.replaceChildren(...wanted);
}
