// The fields of an ElectionGroup that the pages show, and what follows from them. docs/api.md describes the fields.
import type { KubeCondition, KubeObjectInterface } from "@kinvolk/headlamp-plugin/lib/lib/k8s/cluster";

export interface Process {
  pod: string;
  priority: number;
  status: string;
  reason?: string;
  message?: string;
  since?: string;
  node?: string;
  zone?: string;
}

export interface Tenure {
  number: number;
  pod: string;
  term: number;
  from: string;
  until?: string;
  endReason?: string;
  endedBy?: string;
  gapMicros?: number;
}

interface MemberList {
  state: string;
  members: { pod: string }[];
  previous?: { members: { pod: string }[] };
}

export interface Group extends KubeObjectInterface {
  spec: { algorithm: string; safety: { mode: string }; timing?: { drainMillis?: number }; service?: { via?: string } };
  status?: {
    coordinator?: { pod: string; priority: number; term: number; electedAt: string };
    term?: number;
    members?: number;
    readyMembers?: number;
    processes?: Process[];
    history?: Tenure[];
    protocol?: { memberList: MemberList };
    conditions?: KubeCondition[];
  };
}

export const condition = (g: Group, type: string) => g.status?.conditions?.find(c => c.type === type);

// isProblem reports whether a condition isn't as it normally is.
export const isProblem = (c: KubeCondition) => (["Progressing", "Degraded", "Stalled"].includes(c.type) ? "True" : "False") === c.status || c.status === "Unknown";

// healths are the states of a group, with the worst first. The web page of kubectl conclave dashboard has the same ones.
export const healths = ["Unavailable", "Degraded", "Unknown", "Updating", "Healthy"] as const;

export function health(g: Group): (typeof healths)[number] {
  const has = (type: string, status: string) => condition(g, type)?.status === status;
  if (has("Available", "False")) return "Unavailable";
  if (!has("Available", "True")) return has("AgentsConnected", "False") && g.status?.readyMembers === 0 ? "Unavailable" : "Unknown";
  if (has("Degraded", "True")) return "Degraded";
  if (has("Progressing", "True")) return "Updating";
  return has("Ready", "False") ? "Degraded" : "Healthy";
}

const isUp = (p: Process) => p.status === "Coordinator" || p.status === "Normal";

// wouldStop reports whether a group would have no coordinator while these members are down: it would lack a majority of a member
// list in force, or an eligible member.
function wouldStop(g: Group, lost: string[]): boolean {
  const processes = g.status?.processes ?? [];
  const up = processes.filter(p => isUp(p) && !lost.includes(p.pod)).map(p => p.pod);
  const list = g.status?.protocol?.memberList;
  const lists = [list?.members ?? processes];
  if (list?.state === "Adopting" && list.previous) lists.push(list.previous.members);
  const hasMajority = (members: { pod: string }[]) => 2 * members.filter(m => up.includes(m.pod)).length > members.length;
  if (g.spec.safety.mode !== "Available" && !lists.every(hasMajority)) return true;
  const coordinator = g.status?.coordinator?.pod;
  if (coordinator && !lost.includes(coordinator)) return false;
  return !processes.some(
    p => p.pod !== coordinator && up.includes(p.pod) && p.priority > 0 && p.reason !== "NotEligible" && p.reason !== "PodTerminating");
}

// NodeRow is what a cluster loses with a node.
export interface NodeRow {
  node: string;
  zone: string;
  coordinators: Group[];
  members: number;
  stops: Group[];
}

// nodeRows returns the nodes on which members are, as kubectl conclave nodes does: those with the most coordinators first.
export function nodeRows(groups: Group[]): NodeRow[] {
  const rows = new Map<string, NodeRow>();
  for (const g of groups) {
    const processes = g.status?.processes ?? [];
    const stopped = wouldStop(g, []);
    for (const node of new Set(processes.flatMap(p => p.node ?? []))) {
      const row = rows.get(node) ?? { node, zone: "", coordinators: [], members: 0, stops: [] };
      rows.set(node, row);
      const there = processes.filter(p => p.node === node);
      const pods = there.map(p => p.pod);
      row.zone = there.find(p => p.zone)?.zone ?? row.zone;
      row.members += there.length;
      if (pods.includes(g.status?.coordinator?.pod ?? "")) row.coordinators.push(g);
      if (!stopped && wouldStop(g, pods)) row.stops.push(g);
    }
  }
  return [...rows.values()].sort(
    (a, b) => b.coordinators.length - a.coordinators.length || b.members - a.members || (a.node < b.node ? -1 : 1));
}

// duration formats milliseconds with two units at most.
export function duration(ms: number): string {
  if (ms < 10) return `${ms.toFixed(2)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const units: [string, number][] = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const seconds = Math.round(ms / 1000);
  const first = units.findIndex(([, size]) => seconds >= size);
  let rest = seconds;
  const parts = units.slice(first, first + 2).flatMap(([name, size]) => {
    const count = Math.floor(rest / size);
    rest -= count * size;
    return count ? [`${count} ${name}`] : [];
  });
  return parts.join(" ");
}
