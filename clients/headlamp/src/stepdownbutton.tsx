import { CommonComponents, K8s, MuiMaterial, React } from "./headlamp";
import type { Group } from "./group";
import type { ElectionGroup } from "./resource";
import { nameUser, stepDown } from "./stepdown";

const { AuthVisible } = CommonComponents;
const { Alert, Button, Dialog, DialogActions, DialogContent, DialogContentText, DialogTitle, MenuItem, TextField } = MuiMaterial;

// MayForward shows its children if the user may forward ports to the pods of a group. A WebSocket needs both verbs: the API server
// checks get, and since Kubernetes 1.35 create, too.
export function MayForward({ item, children }: { item: ElectionGroup; children: React.ReactNode }) {
  const may = { item: K8s.ResourceClasses.Pod, subresource: "portforward", namespace: item.getNamespace() };
  return (
    <AuthVisible {...may} authVerb="get">
      <AuthVisible {...may} authVerb="create">{children}</AuthVisible>
    </AuthVisible>
  );
}

// StepDownButton is shown if the group has a coordinator, and the user may forward a port to it.
export function StepDownButton({ item }: { item: ElectionGroup }) {
  const [asking, setAsking] = React.useState<Group>();
  if (!item.group.status?.coordinator && !asking) return null;
  return (
    <MayForward item={item}>
      <Button variant="outlined" size="small" onClick={() => setAsking(item.group)}>
        Step down …
      </Button>
      {asking && <Confirmation group={asking} cluster={item.cluster} close={() => setAsking(undefined)} />}
    </MayForward>
  );
}

// Confirmation is about the coordinator that the user saw. If another one leads by now, its agent refuses.
function Confirmation({ group, cluster, close }: { group: Group; cluster: string; close: () => void }) {
  const [to, setTo] = React.useState("");
  const [state, setState] = React.useState<{ busy?: boolean; done?: string; error?: string }>({});
  const coordinator = group.status!.coordinator!.pod;
  const others = (group.status?.processes ?? []).filter(p => p.status === "Normal" && p.priority > 0);
  const { namespace = "", name } = group.metadata;

  async function send() {
    setState({ busy: true });
    const takeBack = await nameUser(cluster, namespace, coordinator, name, group.status!.coordinator!.term);
    try {
      const timeout = (group.spec.timing?.drainMillis ?? 5000) + 15000;
      setState({ done: `${await stepDown(cluster, namespace, coordinator, name, to, timeout)} leads` });
    } catch (e) {
      takeBack();
      setState({ error: (e as Error).message });
    }
  }

  return (
    <Dialog open onClose={state.busy ? undefined : close} aria-labelledby="conclave-step-down">
      <DialogTitle id="conclave-step-down">{`Make ${coordinator} hand over?`}</DialogTitle>
      <DialogContent>
        <DialogContentText sx={{ mb: 2 }}>Its application stops first; then the next coordinator starts.</DialogContentText>
        <TextField select fullWidth label="Next coordinator" value={to} disabled={state.busy || !!state.done} onChange={e => setTo(e.target.value)}
          SelectProps={{ displayEmpty: true }} InputLabelProps={{ shrink: true }}>
          <MenuItem value="">the eligible member of the highest priority</MenuItem>
          {others.map(p => <MenuItem key={p.pod} value={p.pod}>{`${p.pod} (priority ${p.priority})`}</MenuItem>)}
        </TextField>
        <div role="status">
          {state.done && <Alert severity="success" sx={{ mt: 2 }}>{state.done}</Alert>}
          {state.error && <Alert severity="error" sx={{ mt: 2 }}>{state.error}</Alert>}
        </div>
      </DialogContent>
      <DialogActions>
        <Button onClick={close} disabled={state.busy}>{state.done ? "Close" : "Cancel"}</Button>
        {!state.done && <Button color="error" onClick={() => void send()} disabled={state.busy}>Step down</Button>}
      </DialogActions>
    </Dialog>
  );
}
