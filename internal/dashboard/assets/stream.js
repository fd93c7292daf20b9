// A stream of server-sent events that reconnects by itself.
import { setClock } from "./dom.js";

// staleAfter is the silence of the server after which what the page shows is stale. The server says how long that is.
let staleAfter = Infinity;
const retryAfter = 1000;

function alive(event) {
  setClock(event.now);
  staleAfter = event.staleMillis;
}

// open receives events until the returned function is called. onLost is called when the
// server of this page doesn't answer; the first event after that shows that it does again.
export function open(path, handlers, onLost) {
  let source, lastEvent, closed = false, retry;
  const connect = () => {
    source?.close();
    lastEvent = Date.now();
    source = new EventSource(path);
    for (const [name, handle] of Object.entries({ alive, ...handlers })) {
      source.addEventListener(name, (event) => {
        lastEvent = Date.now();
        handle(JSON.parse(event.data));
      });
    }
    source.onerror = lost;
  };
  const lost = () => {
    source.close();
    onLost();
    lastEvent = Date.now(); // Otherwise the watchdog would put off the next attempt each time, for ever.
    clearTimeout(retry);
    if (!closed) retry = setTimeout(connect, retryAfter);
  };
  const watchdog = setInterval(() => { if (Date.now() - lastEvent > staleAfter) lost(); }, retryAfter);
  connect();
  return () => {
    closed = true;
    clearInterval(watchdog);
    clearTimeout(retry);
    source.close();
  };
}
