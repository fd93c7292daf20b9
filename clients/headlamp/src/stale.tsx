import { ApiProxy, MuiMaterial, React } from "./headlamp";
import { duration } from "./group";

// staleAfter is the age from which a status counts as stale, as in the other views. The operator renews its Lease more than twice meanwhile.
const staleAfter = 5000;

// Stale says for how long the operator has not shown that it runs. It says nothing if the user may not read the Lease.
export function Stale() {
  const age = useSilence();
  if (!(age > staleAfter)) return null; // It is NaN if the Lease was never renewed.
  return (
    <MuiMaterial.Alert severity="warning" role="status" sx={{ mt: 2 }}>
      The operator has not shown that it runs. Elections continue without it, but this may be an earlier state.
      <span aria-hidden="true">{` Age: ${duration(age)}.`}</span>
    </MuiMaterial.Alert>
  );
}

// useSilence returns for how many milliseconds the operator has not renewed its Lease. It compares a Lease with the one before, so only
// the first one depends on two clocks.
function useSilence() {
  const [age, setAge] = React.useState(0);
  React.useEffect(() => {
    let ended = false, last = "", since = Infinity;
    const path = leasePath();
    const observe = async () => {
      try {
        const { spec } = await get(await path);
        const read = JSON.stringify(spec);
        if (read !== last) since = last ? Date.now() : Math.min(Date.now(), Date.parse(spec.renewTime));
        last = read;
      } catch (e) {
        if ([401, 403, 404].includes((e as { status?: number }).status ?? 0)) [last, since] = ["", Infinity];
      }
      if (!ended) setAge(Date.now() - since);
    };
    void observe();
    const timer = setInterval(() => void observe(), staleAfter / 2);
    return () => {
      ended = true;
      clearInterval(timer);
    };
  }, []);
  return age;
}

const get = (path: string) => ApiProxy.request(path, { timeout: staleAfter }, false);

// leasePath returns where the Lease of the operator is: in the default namespace, unless its Deployment is found elsewhere.
async function leasePath() {
  const labels = "app.kubernetes.io/name=conclave,app.kubernetes.io/component=manager";
  const found = await get(`/apis/apps/v1/deployments?labelSelector=${encodeURIComponent(labels)}`).catch(() => ({ items: [] }));
  const namespace = found.items.length === 1 ? found.items[0].metadata.namespace : "conclave-system";
  return `/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases/conclave-manager`;
}
