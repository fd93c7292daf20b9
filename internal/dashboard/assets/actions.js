// Requests for what the page does with the permissions of the user. They need the key in the address that the command has printed.

const keyName = "conclave-key";

// takeKey keeps the key that is in the address, and removes it from there, so that a copied address or a screenshot doesn't
// contain it.
export function takeKey() {
  const found = /^#key=(\w+)$/.exec(location.hash);
  if (!found) return;
  sessionStorage.setItem(keyName, found[1]);
  history.replaceState(null, "", location.pathname);
}

// request sends a request about a group.
export function request(path, options = {}) {
  return fetch(`actions/${path}`, { ...options, headers: { "X-Conclave-Key": sessionStorage.getItem(keyName) } });
}

// permitted returns whether the user may connect to the agents of a group.
export async function permitted(path) {
  if (!sessionStorage.getItem(keyName)) return false;
  try {
    return (await (await request(path)).json()).permitted;
  } catch {
    return false; // The page shows that the server doesn't answer.
  }
}
