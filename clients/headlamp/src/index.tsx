// The pages of Conclave in Headlamp: the election groups of a cluster, a group, and the nodes.
import { React, registerRoute, registerSidebarEntry } from "./headlamp";
import { Details } from "./details";
import { GroupList } from "./list";
import { NodeList } from "./nodes";
import { Stale } from "./stale";

// A name of an icon would make Headlamp ask a server on the internet for it.
const icon = { body: '<path fill="none" stroke="currentColor" stroke-width="2" d="M12 5 5 17h14z"/><g fill="currentColor"><circle cx="5" cy="18" r="3"/><circle cx="19" cy="18" r="3"/><circle cx="12" cy="6" r="4"/></g>', width: 24, height: 24 };
registerSidebarEntry({ parent: null, name: "conclave", label: "Conclave", url: "/conclave/groups", icon });
for (const { name, label, path, component: Page, sidebar } of [
  { name: "conclave-groups", label: "Election groups", path: "/conclave/groups", component: GroupList, sidebar: "conclave-groups" },
  { name: "conclave-nodes", label: "Election nodes", path: "/conclave/nodes", component: NodeList, sidebar: "conclave-nodes" },
  { name: "conclave-group", label: "", path: "/conclave/groups/:namespace/:name", component: Details, sidebar: "conclave-groups" },
]) {
  if (label) registerSidebarEntry({ parent: "conclave", name, label, url: path });
  registerRoute({ path, sidebar, name, exact: true, component: () => <><Stale /><Page /></> });
}
