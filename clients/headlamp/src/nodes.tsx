import { CommonComponents, React } from "./headlamp";
import { type Group, nodeRows, type NodeRow } from "./group";
import { ElectionGroup } from "./resource";

const { Link, SectionBox, SimpleTable } = CommonComponents;

// NodeList shows what the cluster loses with each node.
export function NodeList() {
  const { items, error } = ElectionGroup.useList();
  return (
    <SectionBox title="Election nodes">
      <SimpleTable
        data={items && nodeRows(items.map(item => item.group))}
        errorMessage={error && ElectionGroup.getErrorMessage(error)}
        emptyMessage="No member of a group is on a node."
        columns={[
          { label: "Node", getter: (row: NodeRow) => <Link routeName="node" params={{ name: row.node }}>{row.node}</Link> },
          { label: "Zone", datum: "zone", gridTemplate: "min-content" },
          { label: "Members", datum: "members", gridTemplate: "min-content" },
          { label: "Coordinators of", getter: (row: NodeRow) => <Groups of={row.coordinators} />, gridTemplate: 2 },
          { label: "Its loss stops", getter: (row: NodeRow) => <Groups of={row.stops} />, gridTemplate: 2 },
        ]}
      />
    </SectionBox>
  );
}

// Groups links to the first few groups.
function Groups({ of }: { of: Group[] }) {
  const most = 5;
  return (
    <>
      {of.slice(0, most).map(({ metadata: { namespace, name } }, i) => (
        <React.Fragment key={`${namespace}/${name}`}>
          {i > 0 && ", "}
          <Link routeName="conclave-group" params={{ namespace, name }}>{`${namespace}/${name}`}</Link>
        </React.Fragment>
      ))}
      {of.length > most && ` and ${of.length - most} more`}
    </>
  );
}
