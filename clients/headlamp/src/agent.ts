import { ApiProxy } from "./headlamp";

// agentPort is the port of the agent's local API in each pod.
const agentPort = 7374;

// The channels of a forwarded port. The first message of each is the number of the port.
const dataChannel = 0;
const errorChannel = 1;

// parse reads a response as far as it has arrived. Its texts are ASCII: names and English sentences.
function parse(response: string) {
  const [head, ...rest] = response.split("\r\n\r\n");
  const text = rest.join("\r\n\r\n");
  const length = Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? NaN);
  return { status: Number(head.split(" ")[1]), text, complete: rest.length > 0 && text.length >= length };
}

// ask sends a request to the agent in a pod, through a forwarded port, and returns the response. In HTTP/1.0, its body isn't divided
// into chunks.
export function ask(cluster: string, namespace: string, pod: string, request: string, timeoutMillis: number): Promise<ReturnType<typeof parse>> {
  return new Promise((resolve, reject) => {
    const decoder = new TextDecoder();
    let response = "";
    let failure = "";
    let open = false;
    const end = (because: string) => {
      clearTimeout(timer);
      connection.cancel();
      if (response) resolve(parse(response));
      else reject(new Error(`cannot reach the agent in pod ${pod}: ${failure || because}`));
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
