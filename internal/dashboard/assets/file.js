// The page of a file: a group at the time at which the file was written, and its last elections. There is no server.
import { card, drawFacts, drawFailovers, drawPicture, drawProblems, drawProcesses, drawTenures, facts, problems } from "./cards.js";
import { badge, el, formatDate, setClock, state } from "./dom.js";
import { describe, sequence } from "./sequence.js";

const { at, detail, elections, missing } = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main"), versions = document.getElementById("versions"), text = document.getElementById("text");

function drawElection(election, i) {
  const gap = detail.tenures.find((t) => t.term === election.term)?.gap;
  const title = `${i === 0 ? "Last election" : `Election in term ${election.term}`}${gap ? `: ${gap} without a coordinator` : ""}`;
  const drawn = card(title, el("div", { class: "election" }, el("div", { class: "answer" }, describe(election)), election.steps?.length ? sequence(election) : null));
  drawn.classList.add("wide");
  return drawn;
}

function draw(data, drawing) { return data ? drawing(data) : null; }

setClock(Date.parse(at)); // Ages are those at that time, whenever the file is opened.
main.replaceChildren(
  el("div", { class: "title" }, el("h1", {}, el("span", { class: "muted" }, `${detail.namespace}/`), detail.name), badge(state(detail))),
  el("p", { class: "muted" }, "The group and its last elections, as of ", el("time", { datetime: at, title: at }, formatDate(at)), ". This page does not change any more."),
  el("div", { class: "sections" }, ...[
    drawFacts(facts(detail)), draw(problems(detail), drawProblems),
    ...elections.map(drawElection), missing ? el("p", { class: "notice wide" }, `The elections are missing: ${missing}.`) : null,
    el("div", { class: "column" }, drawPicture(detail), draw(detail.failovers, drawFailovers) ?? ""),
    el("div", { class: "column" }, drawProcesses(detail.processes), drawTenures(detail.tenures), card("Versions", versions)),
    el("details", { class: "card wide" }, el("summary", {}, "All of this as text, with each step of the elections"), text),
  ].filter(Boolean)));
