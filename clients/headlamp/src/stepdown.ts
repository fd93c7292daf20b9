import { ApiProxy } from "./headlamp";

// agentPort is the port of the agent's local API in each pod.
const agentPort = 7374;

// The channels of a forwarded port. The first message of each is the number of the port.
const dataChannel = 0;
const errorChannel = 1;

// stepDown makes the coordinator of a group hand over, as kubectl conclave step-down does: it sends the request to the agent in the
// coordinator's pod, through a forwarded port. It returns who leads afterwards.
export async function stepDown(cluster: string, namespace: string, pod: string, group: string, to: string, timeoutMillis: number): Promise<string> {
  const body = JSON.stringify({ to });
  // In HTTP/1.0, the body of the response isn't divided into chunks.
  const request = `POST /v1/groups/${group}/step-down HTTP/1.0\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  const { status, text } = parse(await exchange(cluster, namespace, pod, group, request, timeoutMillis));
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

// parse reads a response as far as it has arrived. Its texts are ASCII: names and English sentences.
function parse(response: string) {
  const [head, ...rest] = response.split("\r\n\r\n");
  const text = rest.join("\r\n\r\n");
  const length = Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? NaN);
  return { status: Number(head.split(" ")[1]), text, complete: rest.length > 0 && text.length >= length };
}

// exchange sends a request to the agent in a pod and returns the whole response.
function exchange(cluster: string, namespace: string, pod: string, group: string, request: string, timeoutMillis: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const decoder = new TextDecoder();
    let response = "";
    let failure = "";
    let open = false;
    const end = (because: string) => {
      clearTimeout(timer);
      connection.cancel();
      if (response) resolve(response);
      else reject(new Error(`cannot reach the agent in pod ${pod}: ${failure || because}. Try: kubectl conclave step-down ${group} -n ${namespace}`));
    };
    const timer = setTimeout(() => end(`no answer within ${timeoutMillis / 1000} s`), timeoutMillis);
    const receive = (message: ArrayBuffer) => {
      const [channel, ...bytes] = new Uint8Array(message);
      if (channel === dataChannel && !open) {
        open = true;
        const text = new TextEncoder().encode(request);
        connection.getSocket()?.send(new Uint8Array([dataChannel, ...text]));
      } else if (channel === dataChannel) {
        response += decoder.decode(new Uint8Array(bytes), { stream: true });
        if (parse(response).complete) end("");
      } else if (channel === errorChannel && bytes.length > 2) {
        failure = decoder.decode(new Uint8Array(bytes));
      }
    };
    const connection = ApiProxy.stream(`/api/v1/namespaces/${namespace}/pods/${pod}/portforward?ports=${agentPort}`, receive, {
      cluster,
      isJson: false,
      additionalProtocols: ["v4.channel.k8s.io"],
      reconnectOnFailure: false,
      failCb: () => end("the API server or the node refused or closed the connection"),
    });
  });
}
