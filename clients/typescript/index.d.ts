/**
 * Takes part in the election of a group's coordinator, by means of the agent that runs beside this process.
 *
 *     import {run} from "@conclave-dev/client";
 *
 *     await run("ledger", async ({token, signal}) => {
 *       while (!signal.aborted) await step(token, signal);
 *     });
 *
 * A JavaScript function can't be stopped from outside. It must return when its signal is aborted. If it doesn't, the process exits with
 * status 1 before another process may be coordinator, unless exitLate is false. It acts longer if it blocks the event loop, or if
 * the process was paused. So send the token with each write, and let the storage reject lower ones.
 */

export interface Options {
  /** The agent's address, by default that of the environment variable CONCLAVE_AGENT, or else http://127.0.0.1:7374. */
  address?: string;
  /** Ends what the function does. */
  signal?: AbortSignal;
}

export interface RunOptions extends Options {
  /** The process exits if the function hasn't returned in time. The default is true. */
  exitLate?: boolean;
  /** Gets why there is no session, and the errors of functions whose tenure had ended. The default is console.warn. */
  log?: (message: string, error?: unknown) => void;
  prepare?: Prepare;
}

/**
 * Called as soon as this process is elected, if a former lease has to end before it may lead, with the milliseconds within which it leads
 * or isn't elected any more. It is for what needs no office, such as filling caches. Nothing waits for it. The signal is aborted when the
 * process isn't elected any more, and otherwise at the end of the tenure.
 */
export type Prepare = (within: number, signal: AbortSignal) => unknown;

/** The time for which this process is coordinator. */
export interface Tenure {
  readonly term: bigint;
  /** The fencing token: higher than those of all earlier tenures. */
  readonly token: bigint;
  /** Aborted when the function must stop and return. Its reason is a TenureEnded. */
  readonly signal: AbortSignal;
  /**
   * Returns the milliseconds within which the function must have returned, as far as is known now. It is Infinity in the mode
   * Available, as long as the tenure lasts.
   */
  remaining(): number;
}

/**
 * stop: the office is being handed over. lost: the tenure has ended. not-renewed: the agent didn't confirm the tenure in time.
 * agent-gone: the connection to the agent is lost. ended: the signal of the options is aborted.
 */
export type Cause = "stop" | "lost" | "not-renewed" | "agent-gone" | "ended";

/** Why a tenure has ended for the function. */
export class TenureEnded extends Error {
  readonly code: Cause;
}

/** The agent responded with an unexpected status. */
export class AgentError extends Error {
  readonly status: number;
}

/** The state of a group, as this process's agent reported it. It may be outdated: act as coordinator only in run. */
export interface State {
  group: string;
  /** The name of this process. */
  self: string;
  /** Empty while there is none. */
  coordinator: string;
  /** This process is the coordinator. */
  leading: boolean;
  priority: number;
  term: bigint;
  /** The fencing token, 0 unless leading. */
  token: bigint;
}

/**
 * Takes part in the election until the signal is aborted, or until lead returns before its tenure has ended.
 *
 * Each time this process has become coordinator, run calls lead. When its signal is aborted, lead must return. Its result then is
 * ignored, and run waits for the next tenure. If lead returns before, the agent gives up the office, and run settles as lead has.
 *
 * run opens a session with the agent, and a new one whenever the session breaks. It waits for an agent that it cannot reach. If the
 * agent's first response is that the group doesn't exist, it rejects with an AgentError. When the signal is aborted, run waits for lead
 * and resolves with undefined.
 */
export function run<T>(group: string, lead: (tenure: Tenure) => T | Promise<T>, options?: RunOptions): Promise<T | undefined>;

/**
 * Yields the state of the group, and then each change, in order. After an interruption, it continues with the current state.
 *
 * It yields undefined once when it cannot reach the agent: the last state may then be outdated. The state follows as soon as the agent is
 * reachable again. If the agent's first response is that the group doesn't exist, it throws an AgentError.
 */
export function watch(group: string, options?: Options): AsyncGenerator<State | undefined, void>;

/** Returns the state of the group. A group without a coordinator isn't an error, an agent that doesn't respond is. */
export function leader(group: string, options?: Options): Promise<State>;

/** Returns why the agent makes no progress, a line for each group, and [] if it does. It rejects if the agent doesn't respond. */
export function health(options?: Options): Promise<string[]>;
