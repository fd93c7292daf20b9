import { ask } from "./agent";
import { ApiProxy } from "./headlamp";

// stepDown makes the coordinator of a group hand over, as kubectl conclave step-down does: it sends the request to the agent in the
// coordinator's pod, through a forwarded port. It returns who leads afterwards.
export async function stepDown(cluster: string, namespace: string, pod: string, group: string, to: string, timeoutMillis: number): Promise<string> {
  const body = JSON.stringify({ to });
  const request = `POST /v1/groups/${group}/step-down HTTP/1.0\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  const { status, text } = await ask(cluster, namespace, pod, request, timeoutMillis).catch((e: Error) => {
    throw new Error(`${e.message}. Try: kubectl conclave step-down ${group} -n ${namespace}`);
  });
  let answer: { coordinator?: string; error?: string } = {};
  try {
    answer = JSON.parse(text);
  } catch {
    // The status says enough.
  }
  if (status !== 200 || !answer.coordinator) throw new Error(`the agent in pod ${pod} refused to step down: ${answer.error ?? `status ${status || "unknown"}`}`);
  return answer.coordinator;
}

// annotation names the user in the coordinator's pod, so that the operator can name them, too: the API server knows who they are, and
// refuses another name. It isn't necessary for a step-down, and the user may not be permitted to change the pod. The function that it
// returns takes the name back.
export async function nameUser(cluster: string, namespace: string, pod: string, group: string, term: number): Promise<() => void> {
  const annotate = (value: string | null) => {
    const patch = { metadata: { annotations: { "conclave.dev/step-down-by": value } } };
    return ApiProxy.patch(`/api/v1/namespaces/${namespace}/pods/${pod}`, patch, false, { cluster });
  };
  try {
    const review = { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };
    const { status } = await ApiProxy.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review, false, { cluster });
    await annotate(`${group}/${term} ${status.userInfo.username}`);
  } catch {
    return () => {};
  }
  return () => void annotate(null).catch(() => {});
}
