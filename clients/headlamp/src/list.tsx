import { CommonComponents, React } from "./headlamp";
import { condition, type Group, health, healths } from "./group";
import { ElectionGroup } from "./resource";

const colors = { Unavailable: "error", Degraded: "warning", Unknown: "warning", Updating: "", Healthy: "success" } as const;

export function Health({ group }: { group: Group }) {
  const state = health(group);
  return <CommonComponents.StatusLabel status={colors[state]}>{state}</CommonComponents.StatusLabel>;
}

// GroupList lists the groups, those with problems first.
export function GroupList() {
  const rank = (g: Group) => healths.indexOf(health(g));
  const name = (g: Group) => `${g.metadata.namespace}/${g.metadata.name}`;
  return (
    <CommonComponents.ResourceListView
      title="Election groups"
      id="conclave-groups"
      resourceClass={ElectionGroup}
      enableRowActions={false}
      enableRowSelection={false}
      defaultSortingColumn={{ id: "health", desc: false }}
      columns={[
        "name",
        "namespace",
        "cluster",
        {
          id: "health",
          label: "Health",
          gridTemplate: "min-content",
          getValue: item => health(item.group),
          render: item => <Health group={item.group} />,
          sort: (a, b) => rank(a.group) - rank(b.group) || name(a.group).localeCompare(name(b.group)),
        },
        { id: "coordinator", label: "Coordinator", getValue: item => item.group.status?.coordinator?.pod ?? "" },
        { id: "ready", label: "Ready", gridTemplate: "min-content", getValue: item => condition(item.group, "Ready")?.status ?? "" },
        { id: "reason", label: "Reason", gridTemplate: "min-content", getValue: item => condition(item.group, "Ready")?.reason ?? "" },
        {
          id: "up",
          label: "Up",
          gridTemplate: "min-content",
          getValue: item => item.group.status?.readyMembers ?? 0,
          render: item => <>{`${item.group.status?.readyMembers ?? 0} of ${item.group.status?.members ?? 0}`}</>,
        },
        { id: "algorithm", label: "Algorithm", gridTemplate: "min-content", getValue: item => item.group.spec.algorithm },
        "age",
      ]}
    />
  );
}
