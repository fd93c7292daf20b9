// index.d.ts documents the exported functions. There is no compilation: this is what runs.

import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import {setTimeout as sleep} from "node:timers/promises";

const defaultAddress = "http://127.0.0.1:7374";
// Times are in milliseconds.
const responseTimeout = 5000;
// Three times the interval at which agents send data in a stream.
const silenceMax = 15_000;
const responseMax = 64 << 10;
const delayMin = 40, delayMax = 1000;
// The time between two queries while a new tenure isn't confirmed.
const queryInterval = 20;
// The interval of renewals without a lease. They show the agent that this process doesn't hang.
const aliveInterval = 1000;
// The share of the lease by which the deadline precedes its end, and the longest such margin. The function is told twice as early.
const marginShare = 8, marginMax = 2000;

/** @type {Record<import("./index.js").Cause, string>} */
const causes = {
  stop: "the office is being handed over",
  lost: "the tenure has ended",
  "not-renewed": "the agent didn't confirm the tenure in time",
  "agent-gone": "the connection to the agent is lost",
  ended: "this process takes part no longer",
};

export class TenureEnded extends Error {
  /** @param {import("./index.js").Cause} code */
  constructor(code) {
    super(causes[code]);
    this.code = code;
  }
}

export class AgentError extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Reports whether the agent rejected the request as invalid. Otherwise, a retry may succeed. @param {unknown} error */
const isFinal = (error) => error instanceof AgentError && error.status >= 400 && error.status < 500;

const bootOffset = os.uptime() * 1000 - performance.now();
let suspended = 0;

/** Returns a monotonic time that includes suspension of the machine, as the agent's lease does. os.uptime is less exact. */
function now() {
  const drift = os.uptime() * 1000 - performance.now() - bootOffset;
  if (drift > suspended + 50) suspended = drift;
  return performance.now() + suspended;
}

/** Yields delays between attempts to reach the agent. */
function* backoff() {
  for (let delay = 0; ; ) {
    delay = Math.min(Math.max(2 * delay, delayMin), delayMax);
    yield delay / 2 + (Math.random() * delay) / 2;
  }
}

/** Parses JSON. Terms and tokens become bigint, since a number can't represent all of them. @param {string} text */
function parse(text) {
  return JSON.parse(text.replace(/"(term|token)":(\d+)/g, '"$1":"$2"'), (key, value) =>
    (key === "term" || key === "token") && typeof value === "string" ? BigInt(value) : value);
}

/** @param {string} text */
function parseEvent(text) {
  try {
    return parse(text);
  } catch {
    throw new Error(`invalid event ${JSON.stringify(text.slice(0, 100))}`);
  }
}

/** @param {any} data @returns {import("./index.js").State} */
function stateOf({group, self, coordinator, leading, priority, term, token}) {
  return {group, self, coordinator, leading, priority, term, token};
}

/** @param {number} status @param {string} body */
function statusError(status, body) {
  let reason = JSON.stringify(body.slice(0, 100));
  try {
    reason = JSON.parse(body).error ?? reason;
  } catch {}
  return new AgentError(status, `the agent responded with status ${status}: ${reason}`);
}

/** The API of the agent for one group. */
class Agent {
  /** @param {string | undefined} group @param {string | undefined} address */
  constructor(group, address) {
    this.group = group;
    this.address = address || process.env.CONCLAVE_AGENT || defaultAddress;
    const url = URL.canParse(this.address) ? new URL(this.address) : undefined;
    if (url?.protocol === "unix:" && this.address.startsWith("unix:///") && url.pathname !== "/") {
      this.target = {socketPath: url.pathname};
    } else if (url?.protocol === "http:" && url.pathname === "/" && !url.search) {
      this.target = {host: url.hostname.replace(/^\[|\]$/g, ""), port: url.port || 80};
    } else {
      throw new TypeError(`the agent's address must be an http URL without a path, such as ${defaultAddress}, or a Unix socket, ` +
        `such as unix:///run/conclave/agent.sock, got ${JSON.stringify(this.address)}`);
    }
    if (group === "") throw new TypeError("the name of the group must not be empty");
    this.base = group === undefined ? "" : "/v1/groups/" + encodeURIComponent(group);
    // Connections are kept, so that a renewal takes one round trip.
    this.connections = new http.Agent({keepAlive: true});
  }

  close() {
    this.connections.destroy();
  }

  /**
   * Sends a request, and returns the response without its body.
   * @param {string} method @param {string} path @param {{body?: string, headers?: object, signal?: AbortSignal}} [options]
   * @returns {Promise<http.IncomingMessage>}
   */
  open(method, path, {body, headers, signal} = {}) {
    return new Promise((resolve, reject) => {
      const request = http.request({...this.target, method, path: this.base + path, headers: {...headers}, agent: this.connections, signal});
      const timer = setTimeout(() => request.destroy(new Error("the agent doesn't respond")), responseTimeout);
      request.on("error", (error) => { clearTimeout(timer); reject(error); });
      request.on("response", (response) => { clearTimeout(timer); resolve(response); });
      request.end(body);
    });
  }

  /** @param {string} method @param {string} path @param {string} [body] @param {AbortSignal} [signal] */
  async request(method, path, body, signal) {
    // Not AbortSignal.any, which keeps memory for each request as long as the signal lives.
    const limit = new AbortController();
    const abort = () => limit.abort();
    const timer = setTimeout(abort, responseTimeout);
    signal?.addEventListener("abort", abort);
    if (signal?.aborted) abort();
    try {
      const response = await this.open(method, path, {body, signal: limit.signal});
      return {status: response.statusCode ?? 0, body: await textOf(response)};
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    }
  }

  /**
   * Returns the state, and the time until which this process is coordinator, if there is one. The response may have taken long, so the
   * time counts from before the request.
   * @param {string} [parameters] @param {AbortSignal} [signal]
   */
  async query(parameters = "", signal) {
    const sent = now();
    const {status, body} = await this.request("GET", "/leader" + parameters, undefined, signal);
    let data;
    try {
      data = parse(body);
    } catch {}
    if (data?.group !== this.group || data.leading !== (status === 200)) throw statusError(status, body);
    return {state: stateOf(data), until: data.remainingMillis === undefined ? undefined : sent + data.remainingMillis};
  }

  /**
   * Calls handle for each event of a stream, until that ends. It rejects in any case.
   * @param {string} path @param {AbortSignal} signal
   * @param {() => void} accepted @param {(kind: string, data: any) => void} handle
   */
  async events(path, signal, accepted, handle) {
    const response = await this.open("GET", path, {headers: {Accept: "text/event-stream"}, signal});
    if (response.statusCode !== 200 || !response.headers["content-type"]?.startsWith("text/event-stream")) {
      throw statusError(response.statusCode ?? 0, await textOf(response));
    }
    accepted();
    const silence = setTimeout(() => response.destroy(new Error("the agent sent no data for 15 s")), silenceMax);
    let rest = "", kind = "", data = "";
    try {
      for await (const chunk of response.setEncoding("utf8")) {
        silence.refresh();
        const lines = (rest + chunk).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) {
          const [, field, value] = /** @type {RegExpExecArray} */ (/^([^:]*):? ?(.*?)\r?$/s.exec(line));
          if (field === "event") kind = value;
          else if (field === "data") data += (data && "\n") + value;
          else if (!line.trim() && data) {
            handle(kind, parseEvent(data));
            kind = data = "";
          }
        }
        if (rest.length + data.length > responseMax) throw new Error(`event must have at most ${responseMax} bytes`);
      }
    } finally {
      clearTimeout(silence);
    }
    throw new Error("the agent closed the stream");
  }
}

/** @param {http.IncomingMessage} response */
async function textOf(response) {
  let text = "";
  for await (const chunk of response.setEncoding("utf8")) {
    text += chunk;
    if (text.length > responseMax) break;
  }
  return text;
}

class Tenure {
  /** @param {bigint} term @param {bigint} token @param {number} drain @param {number} led */
  constructor(term, token, drain, led) {
    this.term = term;
    this.token = token;
    this.controller = new AbortController();
    this.drain = drain;
    // When the last request was sent to which the agent responded that this process leads.
    this.led = led;
    this.until = this.drainEnd = this.told = Infinity;
    this.interval = aliveInterval;
    this.margin = 0;
    // The tenure has ended, maybe after the function was asked to stop: there is nothing to renew.
    this.over = false;
    // The deadline has passed.
    this.late = false;
  }

  get signal() {
    return this.controller.signal;
  }

  get cause() {
    return this.signal.aborted ? this.signal.reason.code : undefined;
  }

  remaining() {
    return Math.max(0, Math.min(this.until, this.drainEnd) - now());
  }

  /** @param {import("./index.js").Cause} cause */
  end(cause) {
    if (cause !== "stop" && cause !== "ended") this.over = true;
    if (this.signal.aborted) return;
    this.told = now();
    // The agent has decided to hand over after it has sent that response.
    this.drainEnd = (cause === "stop" ? this.led : this.told) + this.drain;
    this.controller.abort(new TenureEnded(cause));
  }

  /** Extends the lease. A response that took longer, or a lease that has become shorter, may have an earlier end, but the former one remains true. @param {number} sent @param {number | undefined} until */
  renew(sent, until) {
    if (until === undefined) return;
    this.interval = Math.max(1, (until - now()) / 4);
    if (this.until !== Infinity && until <= this.until) return;
    this.until = until;
    this.margin = Math.min((until - sent) / marginShare, marginMax);
  }

  tellAt() {
    return this.until - 2 * this.margin;
  }

  /** When the function must have returned. If the process was paused, the function has a moment after it was told. */
  deadline() {
    return Math.max(Math.min(this.until, this.drainEnd) - this.margin, this.told + this.margin);
  }
}

/** A stream, and what happens in it. The agent considers this process alive as long as it is open. */
class Session {
  /**
   * @param {Agent} agent @param {(tenure: Tenure) => any} lead
   * @param {{exitLate: boolean, log: (message: string, error?: unknown) => void, signal?: AbortSignal, prepare?: import("./index.js").Prepare}} options
   */
  constructor(agent, lead, options) {
    this.agent = agent;
    this.lead = lead;
    this.options = options;
    this.id = "";
    this.drain = 0;
    /** The tenure for which the function runs. @type {Tenure | undefined} */
    this.tenure = undefined;
    /** An event "lead" for which the function hasn't been called yet. @type {{term: bigint, token: bigint} | undefined} */
    this.pendingLead = undefined;
    // The term of the election for which prepare was called, and what ends it.
    this.prepared = 0n;
    /** @type {AbortController | undefined} */
    this.unprepare = undefined;
    // The term for which the agent waits until the function has stopped, or 0.
    this.pendingStop = 0n;
    this.querying = this.introduced = this.warned = false;
    this.queryAt = Infinity;
    /** Why the session has ended. @type {unknown} */
    this.error = undefined;
    /** What the function has returned before its tenure ended. @type {{result: any} | {failure: any} | undefined} */
    this.outcome = undefined;
    this.stream = new AbortController();
    /** @type {NodeJS.Timeout | undefined} */
    this.timer = undefined;
    /** @type {() => void} */
    this.finished = () => {};
  }

  /** Returns when the session has ended, and the function has returned. @returns {Promise<void>} */
  run() {
    return new Promise((resolve) => {
      const quit = () => this.quit();
      this.finished = () => {
        clearTimeout(this.timer);
        this.endPreparation(this.prepared);
        this.options.signal?.removeEventListener("abort", quit);
        resolve();
      };
      this.agent.events("/session?renews=true", this.stream.signal, () => {}, (kind, data) => {
        if (this.error === undefined) this.handleEvent(kind, data);
      }).catch((error) => this.close(error));
      this.options.signal?.addEventListener("abort", quit);
      if (this.options.signal?.aborted) quit();
    });
  }

  quit() {
    if (this.tenure) this.tenure.end("ended");
    else this.close(new TenureEnded("ended"));
    this.schedule();
  }

  /** Ends the session: the agent considers this process dead. @param {unknown} error */
  close(error) {
    if (this.error === undefined) {
      this.error = error;
      this.queryAt = Infinity;
      this.stream.abort(); // This ends the queries, too.
    }
    this.tenure?.end("agent-gone");
    this.schedule();
    if (!this.tenure) this.finished();
  }

  /** Sets the timer for the next thing that is due. */
  schedule() {
    clearTimeout(this.timer);
    let at = this.queryAt;
    const tenure = this.tenure;
    if (tenure) {
      if (!tenure.signal.aborted) at = Math.min(at, tenure.tellAt());
      else if (!tenure.late) at = Math.min(at, tenure.deadline());
      if (this.error === undefined) at = Math.min(at, tenure.drainEnd);
    }
    if (at !== Infinity) this.timer = setTimeout(() => this.handleTime(), Math.max(0, at - now()));
  }

  handleTime() {
    const tenure = this.tenure, at = now();
    if (tenure) {
      if (!tenure.signal.aborted && at >= tenure.tellAt()) tenure.end("not-renewed");
      if (tenure.signal.aborted && at >= tenure.deadline() && !tenure.late) {
        tenure.late = true;
        if (this.options.exitLate && this.drain) exitLate(this.agent.group, tenure);
      }
      if (this.error === undefined && at >= tenure.drainEnd) this.close(new Error("the function didn't return within the drain timeout"));
    }
    if (at >= this.queryAt) this.query();
    this.schedule();
  }

  /** Handles an event of the agent. Newer agents may send unknown kinds, which are ignored. @param {string} kind @param {any} data */
  handleEvent(kind, data) {
    switch (kind) {
      case "session":
        this.id = data.session;
        this.drain = data.drainMillis;
        if (this.tenure) this.tenure.drain = this.drain;
        this.query();
        break;
      case "elect":
        this.prepare(data.term, data.withinMillis);
        break;
      case "follow":
        this.endPreparation(data.term);
        break;
      case "lead":
        this.revoke(data.term - 1n, "lost");
        this.pendingLead = data;
        this.query();
        break;
      case "stop":
        this.revoke(data.term, "stop");
        this.pendingStop = data.term;
        this.confirmStop();
        break;
      case "lost":
        this.revoke(data.term, "lost");
        if (this.pendingStop <= data.term) this.pendingStop = 0n;
    }
    this.schedule();
  }

  /** Calls prepare, unless what it has prepared for an earlier election still counts. @param {bigint} term @param {number} within */
  prepare(term, within) {
    this.prepared = term;
    if (!this.options.prepare || this.unprepare) return;
    const {signal} = (this.unprepare = new AbortController());
    Promise.resolve().then(() => this.options.prepare?.(within, signal)).catch((error) => {
      if (!signal.aborted) this.options.log(`the preparation for group ${this.agent.group} failed`, error);
    });
  }

  /** @param {bigint} term */
  endPreparation(term) {
    if (this.prepared > term) return;
    this.unprepare?.abort();
    this.unprepare = undefined;
  }

  /** Ends all tenures up to a term. @param {bigint} term @param {import("./index.js").Cause} cause */
  revoke(term, cause) {
    if (this.pendingLead && this.pendingLead.term <= term) this.pendingLead = undefined;
    if (!this.tenure) this.endPreparation(term);
    else if (this.tenure.term <= term) this.tenure.end(cause);
  }

  /**
   * Queries the coordinator if there is a tenure to confirm or renew, or a session to introduce, unless a query is in progress. A pending
   * tenure is renewed while the function of the former one returns: the agent closes a session that doesn't answer.
   */
  query() {
    this.queryAt = Infinity;
    const renew = this.tenure && !this.tenure.over;
    const introduce = !this.tenure && !this.introduced;
    if (this.querying || !(this.pendingLead || renew || introduce)) return;
    this.querying = this.introduced = true;
    const sent = now();
    this.agent.query("?session=" + this.id, this.stream.signal).catch((error) => ({error})).then((result) => {
      this.querying = false;
      if (this.error === undefined) {
        this.handleResult(sent, result);
        this.schedule();
      }
    });
  }

  /** Updates the tenure, or starts the pending one if the agent confirms it. @param {number} sent @param {any} result */
  handleResult(sent, {error, state, until}) {
    const tenure = this.tenure, lead = this.pendingLead;
    if (tenure) {
      if (!tenure.over) this.update(tenure, sent, error, state, until);
      if (!tenure.over || this.pendingLead) this.queryAt = now() + tenure.interval;
    } else if (lead) {
      const confirmed = state?.leading && state.token === lead.token;
      if (confirmed && (until === undefined || now() < until)) {
        this.pendingLead = undefined;
        this.start(new Tenure(lead.term, lead.token, this.drain, sent), sent, until);
        return;
      }
      // The query failed, or its result is older or newer than the event. If the tenure has ended, the agent sends an event.
      if (confirmed && !this.drain && !this.warned) {
        this.warned = true;
        this.options.log(`cannot lead in group ${this.agent.group}: its drainMillis is 0, so a handover doesn't wait for this process`);
      }
      this.queryAt = now() + queryInterval;
    }
  }

  /**
   * Renews the tenure, or ends it before the agent's event arrives. It is renewed while the function stops, too: the agent must not take
   * this process for one that hangs, and the lease may end before the drain timeout.
   * @param {Tenure} tenure @param {number} sent @param {unknown} error @param {any} state @param {number | undefined} until
   */
  update(tenure, sent, error, state, until) {
    if (isFinal(error)) {
      // The agent no longer has this session, so it considers this process dead.
      this.revoke(tenure.term, "lost");
    } else if (!state) {
      return;
    } else if (state.leading && state.token === tenure.token) {
      if (!tenure.signal.aborted) tenure.led = sent;
      tenure.renew(sent, until);
    } else if (!state.leading && state.coordinator === state.self && state.term === tenure.term) {
      // The agent still holds the office but may not act: it is handing over.
      tenure.end("stop");
      tenure.renew(sent, until);
    } else {
      this.revoke(tenure.term, "lost");
    }
  }

  /** Calls the function. @param {Tenure} tenure @param {number} sent @param {number | undefined} until */
  start(tenure, sent, until) {
    this.tenure = tenure;
    tenure.renew(sent, until);
    this.queryAt = now() + tenure.interval;
    // The function begins in a turn of its own, after the timer is set.
    const {term, token, signal} = tenure;
    const given = {term, token, signal, remaining: () => tenure.remaining()};
    Promise.resolve().then(() => this.lead(/** @type {any} */ (given)))
      .then((result) => this.handleReturn(tenure, {result}), (failure) => this.handleReturn(tenure, {failure}));
  }

  /** Continues the session after the function has returned. @param {Tenure} tenure @param {{result: any} | {failure: any}} outcome */
  handleReturn(tenure, outcome) {
    this.tenure = undefined;
    this.endPreparation(tenure.term);
    this.queryAt = Infinity;
    const failure = "failure" in outcome ? outcome.failure : undefined;
    if (!tenure.cause) {
      this.outcome = outcome;
    } else if (failure !== undefined && failure !== tenure.signal.reason && failure?.name !== "AbortError") {
      this.options.log(`the function for group ${this.agent.group} failed after its tenure ${tenure.token}`, failure);
    }
    if (this.error !== undefined) {
      this.finished();
    } else if (!tenure.cause || this.options.signal?.aborted) {
      this.close(new TenureEnded("ended"));
    } else if (tenure.cause === "not-renewed") {
      // The agent may still assume that the function acts. It learns otherwise when the session ends.
      this.close(tenure.signal.reason);
    } else {
      this.confirmStop();
      this.query();
      this.schedule();
    }
  }

  /** Tells the agent that the function has stopped, until it responds, whatever the response is. */
  async confirmStop() {
    if (!this.pendingStop || this.tenure) return;
    const body = `{"term":${this.pendingStop}}`;
    this.pendingStop = 0n;
    for (const delay of backoff()) {
      if (this.error !== undefined) return;
      try {
        return void await this.agent.request("POST", `/session/${this.id}/stopped`, body, this.stream.signal);
      } catch {
        await sleep(delay);
      }
    }
  }
}

/** Exits at once. The message must not delay that, if nobody reads it. @param {string | undefined} group @param {Tenure} tenure */
function exitLate(group, tenure) {
  try {
    const stderr = fs.openSync("/proc/self/fd/2", fs.constants.O_WRONLY | fs.constants.O_NONBLOCK | fs.constants.O_APPEND);
    fs.writeSync(stderr, `conclave: exiting: the function for group ${group} hasn't returned in time, although ${tenure.signal.reason.message}\n`);
  } catch {}
  process.exit(1);
}

/** @type {typeof import("./index.js").run} */
export async function run(group, lead, {address, signal, exitLate = true, log = console.warn, prepare} = {}) {
  const agent = new Agent(group, address);
  let delays = backoff(), exists = false, logged = false;
  try {
    while (!signal?.aborted) {
      const start = now();
      const session = new Session(agent, lead, {exitLate, log, signal, prepare});
      await session.run();
      if (session.outcome) {
        if ("failure" in session.outcome) throw session.outcome.failure;
        return session.outcome.result;
      }
      const error = session.error;
      exists ||= session.id !== "";
      if (isFinal(error) && !exists) {
        const {status, message} = /** @type {AgentError} */ (error);
        throw new AgentError(status, `cannot join group ${group}: ${message}`);
      }
      if (signal?.aborted) break;
      if (session.id || !logged) {
        log(`no session with agent ${agent.address} for group ${group}; retrying: ${messageOf(error)}`);
        logged = true;
      }
      if (session.id && now() - start > delayMax) delays = backoff();
      await pause(delays.next().value, signal);
    }
  } finally {
    agent.close();
  }
  return undefined;
}

/** @param {unknown} error */
const messageOf = (error) => (error instanceof Error ? error.message : String(error));

/** Waits, or until the signal is aborted. @param {number | void} delay @param {AbortSignal} [signal] */
const pause = (delay, signal) => sleep(delay || 0, undefined, {signal}).catch(() => {});

/** @type {typeof import("./index.js").watch} */
export async function* watch(group, {address, signal} = {}) {
  const agent = new Agent(group, address);
  const end = new AbortController();
  const stop = () => end.abort();
  signal?.addEventListener("abort", stop);
  if (signal?.aborted) stop();
  /** @type {(import("./index.js").State | undefined)[]} */
  const states = [];
  let wake = () => {}, last = "", delays = backoff(), exists = false, reported = false;
  /** @type {unknown} */
  let failure;
  const follow = async () => {
    while (!end.signal.aborted) {
      let accepted = false;
      try {
        await agent.events("/watch", end.signal, () => {
          // An interruption, for example because the agent restarts, is reported only if the next attempt fails.
          accepted = exists = true;
          reported = false;
          delays = backoff();
        }, (_, data) => {
          const state = stateOf(data), text = Object.values(state).join("\0");
          if (text === last) return;
          last = text;
          states.push(state);
          wake();
        });
      } catch (error) {
        if (end.signal.aborted) break;
        if (isFinal(error) && !exists) {
          const {status, message} = /** @type {AgentError} */ (error);
          failure = new AgentError(status, `cannot watch group ${group}: ${message}`);
          break;
        }
        if (!accepted && !reported) {
          // Even if the state hasn't changed, it shows that the agent is reachable again.
          reported = true;
          last = "";
          states.push(undefined);
          wake();
        }
      }
      await pause(delays.next().value, end.signal);
    }
    end.abort();
    wake();
  };
  follow();
  try {
    for (;;) {
      while (states.length) yield states.shift();
      if (failure) throw failure;
      if (end.signal.aborted) return;
      await /** @type {Promise<void>} */ (new Promise((resolve) => { wake = resolve; }));
    }
  } finally {
    signal?.removeEventListener("abort", stop);
    end.abort();
    agent.close();
  }
}

/** @type {typeof import("./index.js").leader} */
export async function leader(group, {address, signal} = {}) {
  const agent = new Agent(group, address);
  try {
    return (await agent.query("", signal)).state;
  } finally {
    agent.close();
  }
}

/** @type {typeof import("./index.js").health} */
export async function health({address, signal} = {}) {
  const agent = new Agent(undefined, address);
  try {
    const {status, body} = await agent.request("GET", "/healthz", undefined, signal);
    if (status === 200) return [];
    if (status !== 503) throw statusError(status, body);
    return body.split("\n").filter(Boolean);
  } finally {
    agent.close();
  }
}
