import { CommonComponents, MuiMaterial, React, ReactRouter } from "./headlamp";
import { Connections } from "./connections";
import { duration, type Group, isProblem, type Process, type Tenure } from "./group";
import { Health } from "./list";
import { ElectionGroup } from "./resource";
import { MayForward, StepDownButton } from "./stepdownbutton";

const { DateLabel, Link, SectionBox, SimpleTable, StatusLabel } = CommonComponents;

const ago = (date?: string) => (date ? <DateLabel date={date} format="mini" /> : "");
const podLink = (g: Group, pod: string) => <Link routeName="pod" params={{ namespace: g.metadata.namespace, name: pod }}>{pod}</Link>;

// Details is the page of a group.
export function Details() {
  const { namespace, name } = ReactRouter.useParams<{ namespace: string; name: string }>();
  return (
    <CommonComponents.DetailsGrid
      resourceType={ElectionGroup}
      namespace={namespace}
      name={name}
      withEvents
      actions={item => (item ? [{ id: "conclave-step-down", action: <StepDownButton item={item} /> }] : [])}
      extraInfo={item => (item ? facts(item.group) : [])}
      extraSections={item => sections(item).map(section => ({ id: `conclave-${section.title}`, section: <SectionBox {...section} key={section.title} /> }))}
    />
  );
}

function facts(g: Group) {
  const coordinator = g.status?.coordinator;
  return [
    { name: "Health", value: <Health group={g} /> },
    { name: "Coordinator", value: coordinator ? podLink(g, coordinator.pod) : "none" },
    { name: "Elected", value: coordinator ? ago(coordinator.electedAt) : "", hide: !coordinator },
    { name: "Term", value: String(g.status?.term ?? "") },
    { name: "Members up", value: `${g.status?.readyMembers ?? 0} of ${g.status?.members ?? 0}` },
    { name: "Algorithm", value: g.spec.algorithm },
    { name: "Safety mode", value: g.spec.safety.mode },
  ];
}

// sections returns none until the group has been read.
function sections(item: ElectionGroup | null) {
  if (!item) return [];
  const g = item.group;
  const conditions = [...(g.status?.conditions ?? [])].sort((a, b) => Number(isProblem(b)) - Number(isProblem(a)));
  return [
    {
      title: "Conditions",
      children: (
        <SimpleTable
          data={conditions}
          emptyMessage="The operator has not reconciled this group yet."
          columns={[
            { label: "Condition", getter: c => <StatusLabel status={isProblem(c) ? "warning" : "success"}>{`${c.type}: ${c.status}`}</StatusLabel>, gridTemplate: "min-content" },
            { label: "Reason", datum: "reason", gridTemplate: "min-content" },
            { label: "Message", datum: "message", gridTemplate: 3 },
            { label: "Since", getter: c => ago(c.lastTransitionTime), gridTemplate: "min-content" },
          ]}
        />
      ),
    },
    {
      title: "Processes",
      children: (
        <SimpleTable
          data={g.status?.processes ?? []}
          emptyMessage="The group has no members yet."
          columns={[
            { label: "Pod", getter: (p: Process) => podLink(g, p.pod) },
            { label: "Priority", datum: "priority", gridTemplate: "min-content" },
            { label: "Status", getter: (p: Process) => <StatusLabel status={statusColor(p)}>{p.status}</StatusLabel>, gridTemplate: "min-content" },
            { label: "Reason", getter: (p: Process) => (p.message ? `${p.reason}: ${p.message}` : p.reason ?? ""), gridTemplate: 2 },
            { label: "Node", getter: (p: Process) => (p.node ? <Link routeName="node" params={{ name: p.node }}>{p.node}</Link> : "") },
            { label: "Zone", datum: "zone", gridTemplate: "min-content" },
            { label: "Since", getter: (p: Process) => ago(p.since), gridTemplate: "min-content" },
          ]}
        />
      ),
    },
    {
      title: "Coordinators",
      children: (
        <SimpleTable
          data={g.status?.history ?? []}
          emptyMessage="The operator has not seen a coordinator yet."
          columns={[
            { label: "No.", datum: "number", gridTemplate: "min-content" },
            { label: "Coordinator", getter: (t: Tenure) => podLink(g, t.pod) },
            { label: "Term", datum: "term", gridTemplate: "min-content" },
            { label: "From", getter: (t: Tenure) => <DateLabel date={t.from} /> },
            { label: "Lasted", getter: (t: Tenure) => (t.until ? duration(Date.parse(t.until) - Date.parse(t.from)) : "until now") },
            { label: "Ended by", getter: (t: Tenure) => (t.endedBy ? `${t.endReason} (${t.endedBy})` : t.endReason ?? "") },
            { label: "Gap before", getter: (t: Tenure) => (t.gapMicros === undefined ? "" : duration(t.gapMicros / 1000)) },
          ]}
        />
      ),
    },
    ...(g.spec.service?.via === "Agents" ? [{ title: "Connections", children: <MayForward item={item}><Connections item={item} /></MayForward> }] : []),
    { title: "Commands", children: <Commands group={g} /> },
  ];
}

function statusColor(p: Process) {
  if (p.status === "Coordinator") return "success";
  if (p.status === "Normal") return p.reason ? "warning" : "";
  return "error";
}

// Commands shows the commands that tell more than the status.
function Commands({ group }: { group: Group }) {
  const { name, namespace } = group.metadata;
  const commands = [`explain ${name}`, `status ${name}`, "check"];
  return <>{commands.map(command => <Command key={command} text={`kubectl conclave ${command} -n ${namespace}`} />)}</>;
}

// Command can be copied. Where a browser doesn't permit that, the button selects the text.
function Command({ text }: { text: string }) {
  const [done, setDone] = React.useState("");
  const code = React.useRef<HTMLElement>(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone("Copied");
    } catch {
      getSelection()?.selectAllChildren(code.current!);
      setDone("Selected");
    }
  };
  return (
    <MuiMaterial.Box sx={{ display: "flex", alignItems: "center", gap: 1 }}>
      <code ref={code}>{text}</code>
      <MuiMaterial.Button size="small" aria-label={`Copy ${text}`} onClick={() => void copy()}>
        {done || "Copy"}
      </MuiMaterial.Button>
    </MuiMaterial.Box>
  );
}
