// The page: which view is shown, and the state of the connections.
import { takeKey } from "./actions.js";
import { link } from "./cards.js";
import { age, el, formatClock, now, refreshAges } from "./dom.js";
import * as group from "./group.js";
import * as nodes from "./nodes.js";
import * as overview from "./overview.js";

const main = document.getElementById("main");
const indicator = document.getElementById("connection");
const banner = document.getElementById("banner");
const announcer = document.getElementById("announce");
let close = () => {};
let current = { state: "connecting" };
let lostAt = null;
let onConnected = () => {};

const page = {
  title: (title) => { document.title = `${title} · Conclave`; },
  announce: (text) => { announcer.textContent = text; },
  state: () => current.state,
  onConnected: (call) => { onConnected = call; },
  connection: (connection) => {
    current = connection;
    showConnection();
    if (connection.state === "connected") onConnected();
  },
  lost: () => {
    const error = "the dashboard does not answer. If you stopped it, run again: kubectl conclave dashboard";
    current = { state: "lost", error, own: true };
    showConnection();
  },
};

function showConnection() {
  const lost = current.state === "lost", failing = current.state === "connecting" && Boolean(current.error);
  const silent = current.state === "connected" && Boolean(current.silentSince);
  indicator.textContent = silent ? "Stale" : { connecting: "Connecting …", connected: "Live", lost: "Not connected" }[current.state];
  indicator.className = `connection ${silent ? "lost" : current.state}`;
  document.body.classList.toggle("lost", lost || silent);
  if (!lost) lostAt = null;
  else lostAt ??= new Date(now());
  const text = failing ? `No connection to the API server. Trying again: ${current.error}`
    : silent ? `The operator has not shown that it runs since ${formatClock(current.silentSince)}. Elections continue without it, but this may be an earlier state.`
    : !lost ? "" : current.own ? `Not connected since ${formatClock(lostAt)}: ${current.error}`
    : `No connection to the API server since ${formatClock(lostAt)}. This is the last known state. Trying again: ${current.error}`;
  if (banner.dataset.text !== text) {
    banner.dataset.text = text;
    // Screen readers would announce the age each second.
    banner.replaceChildren(text, lost || silent ? el("span", { "aria-hidden": "true" }, " Age: ", age(lost ? lostAt.toISOString() : current.silentSince, ".")) : "", ...silent ? [" ", link(current.runbook, "Runbook")] : []);
  }
  banner.hidden = !lost && !silent && !failing;
}

function route(event) {
  takeKey();
  close();
  onConnected = () => {};
  const [, namespace, name] = /^#\/([a-z0-9-]+)\/([a-z0-9.-]+)$/.exec(location.hash) ?? []; // what Kubernetes permits in names
  close = namespace ? group.show(main, page, namespace, name) : (location.hash === "#/nodes" ? nodes : overview).show(main, page);
  if (event) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
}

addEventListener("hashchange", route);
addEventListener("pagehide", () => close());
addEventListener("pageshow", (event) => { if (event.persisted) route(); });
setInterval(refreshAges, 1000);
route();
