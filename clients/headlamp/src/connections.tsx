import { ask } from "./agent";
import { CommonComponents, MuiMaterial, React } from "./headlamp";
import type { ElectionGroup } from "./resource";

// Carried are the connections of clients that an agent carries. docs/openapi.yaml describes the fields.
type Carried = { open: number; waiting: number; waitedInVain: number; reset: number; refused: number; failedDials: number };

interface Row {
  pod: string;
  carried?: Carried;
  missing?: string;
}

const columns: [string, keyof Carried][] = [
  ["Open", "open"], ["Waiting", "waiting"], ["Waited in vain", "waitedInVain"], ["Reset", "reset"], ["Refused", "refused"], ["Failed dials", "failedDials"],
];

async function read(item: ElectionGroup, pod: string): Promise<Row> {
  const { namespace = "", name } = item.group.metadata;
  try {
    const { text } = await ask(item.cluster, namespace, pod, `GET /v1/groups/${name}/status HTTP/1.0\r\nHost: localhost\r\n\r\n`, 5000);
    const { connections, error } = JSON.parse(text) as { connections?: Carried; error?: string };
    return { pod, carried: connections, missing: error ?? "its agent carries none" };
  } catch (e) {
    return { pod, missing: (e as Error).message };
  }
}

// Connections shows what the agents of a group carry. Only they know it, and they are asked only when the user wants that.
export function Connections({ item }: { item: ElectionGroup }) {
  const [rows, setRows] = React.useState<Row[]>();
  const [busy, setBusy] = React.useState(false);
  const press = async () => {
    setBusy(true);
    setRows(await Promise.all((item.group.status?.processes ?? []).map(p => read(item, p.pod))));
    setBusy(false);
  };
  return (
    <>
      <MuiMaterial.Button variant="outlined" size="small" sx={{ mb: 1 }} disabled={busy} onClick={() => void press()}>
        {rows ? "Ask again" : "Ask the agents"}
      </MuiMaterial.Button>
      {rows && (
        <CommonComponents.SimpleTable
          data={rows}
          columns={[
            { label: "Agent", datum: "pod" },
            ...columns.map(([label, key]) => ({ label, getter: (row: Row) => row.carried?.[key] ?? "", gridTemplate: "min-content" })),
            { label: "Missing", getter: (row: Row) => (row.carried ? "" : row.missing) },
          ]}
        />
      )}
    </>
  );
}
