// The driver of the TypeScript client. driver_test.go has the protocol.

import fs from "node:fs";
import readline from "node:readline";

import {health, leader, run, watch} from "../../../clients/typescript/index.js";

const [name, group] = process.argv.slice(2);
const exitLate = process.env.EXIT_LATE === "true";
const stop = new AbortController();
let tenure, hold = false, order = () => {};

const say = (...words) => fs.writeSync(1, [name, ...words].join(" ") + "\n");
const reason = (error) => error.message;

async function lead(given) {
  tenure = given;
  const next = () => new Promise((resolve) => { order = resolve; });
  say("lead", given.token, process.pid);
  const told = new Promise((resolve) => given.signal.addEventListener("abort", () => resolve("told")));
  let command = await Promise.race([next(), told]);
  if (command === "told") {
    say("told", given.signal.reason.code);
    if (hold) command = await next();
  }
  say("done");
  if (command === "fail") throw new Error("boom");
}

const prepare = (within, signal) => {
  say("elected", within);
  signal.addEventListener("abort", () => say("unelected"));
};

async function follow() {
  for await (const state of watch(group, {signal: stop.signal})) {
    say("watch", state ? `${state.coordinator || "-"} ${state.term}` : "gone");
  }
  say("watch end");
}

const commands = {
  run: () => run(group, lead, {signal: stop.signal, exitLate, prepare}).then(() => say("returned nil"), (error) => say("returned", reason(error))),
  watch: () => follow().catch((error) => say("watch", reason(error))),
  act: () => say("act", tenure && !tenure.signal.aborted ? `${tenure.token} ${Math.min(1e6, Math.round(tenure.remaining()))}` : "idle"),
  hold: () => { hold = true; },
  quit: () => stop.abort(),
  return: () => order("return"),
  fail: () => order("fail"),
  leader: () => leader(group).then((s) => say("leader", s.coordinator, s.leading, s.token), (error) => say("leader error:", reason(error))),
  health: () => health().then((lines) => say("health", lines.length), (error) => say("health error:", reason(error))),
};

readline.createInterface({input: process.stdin}).on("line", (line) => commands[line]()).on("close", () => process.exit());
