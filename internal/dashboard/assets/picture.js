// The picture of a group: its members on a circle, and who is connected to whom.
import { svg } from "./dom.js";

const width = 460, height = 350, centerX = width / 2, centerY = height / 2, radius = 128;
// Up to these numbers of members, the picture has names and all connections.
const named = 16, meshed = 16, longNames = 6;

export function picture(detail) {
  const nodes = detail.nodes;
  const size = nodes.length <= 8 ? 24 : nodes.length <= named ? 18 : Math.max(3, 330 / nodes.length);
  const placed = nodes.map((node, i) => {
    const angle = 2 * Math.PI * i / nodes.length - Math.PI / 2;
    const distance = nodes.length === 1 ? 0 : radius;
    return { ...node, x: centerX + distance * Math.cos(angle), y: centerY + distance * Math.sin(angle), up: isUp(node) };
  });
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": detail.description, class: "picture" },
    svg("defs", {}, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
      svg("path", { d: "M0 0 8 4 0 8z", class: "arrow" }))));
  drawing.append(...(detail.ring ? ringEdges(placed, size) : meshEdges(placed)));
  const prefix = nodes.length > longNames ? commonPrefix(nodes.map((node) => node.pod)) : "";
  drawing.append(...placed.map((node) => drawNode(node, size, nodes.length <= named, prefix)));
  return drawing;
}

function isUp(node) { return node.status === "Coordinator" || node.status === "Normal"; }

// meshEdges connects each member to each other. The coordinator's heartbeats are emphasized.
function meshEdges(nodes) {
  const edges = [], beats = [];
  nodes.forEach((a, i) => nodes.slice(i + 1).forEach((b) => {
    const beat = a.status === "Coordinator" || b.status === "Coordinator";
    if (!beat && nodes.length > meshed) return;
    const line = svg("line", { x1: a.x, y1: a.y, x2: b.x, y2: b.y, class: `edge${beat ? " beat" : ""}${a.up && b.up ? "" : " broken"}` });
    (beat ? beats : edges).push(line);
  }));
  return [...edges, ...beats];
}

// ringEdges connects each member to its successor.
function ringEdges(nodes, size) {
  if (nodes.length < 2) return [];
  return nodes.map((a, i) => {
    const b = nodes[(i + 1) % nodes.length];
    const length = Math.hypot(b.x - a.x, b.y - a.y) || 1, gap = (node) => (size + (node.status === "Coordinator" ? 9 : 3)) / length;
    const at = (share) => [a.x + (b.x - a.x) * share, a.y + (b.y - a.y) * share];
    const [x1, y1] = at(gap(a)), [x2, y2] = at(1 - gap(b));
    return svg("line", { x1, y1, x2, y2, class: `edge ring${a.up && b.up ? "" : " broken"}`, "marker-end": "url(#arrow)" });
  });
}

function drawNode(node, size, withName, prefix) {
  const group = svg("g", { class: `node ${node.status}` },
    svg("title", {}, `${node.pod}: ${node.status}, priority ${node.priority}`));
  if (node.status === "Coordinator") group.append(svg("circle", { cx: node.x, cy: node.y, r: size + 5, class: "halo" }));
  group.append(svg("circle", { cx: node.x, cy: node.y, r: size, class: "body" }));
  if (!withName) return group;
  group.append(svg("text", { x: node.x, y: node.y + 4.5, class: "priority" }, String(node.priority)));
  if (!isUp(node)) group.append(mark(node, size));
  const above = node.y < centerY - radius / 3;
  const distance = size + (node.status === "Coordinator" ? 11 : 7);
  group.append(svg("text", { x: node.x, y: above ? node.y - distance : node.y + distance + 10, class: "name" }, shorten(node.pod, prefix)));
  return group;
}

// mark shows by a sign, and not only by a color, that a member isn't up.
function mark(node, size) {
  const x = node.x + size * 0.72, y = node.y - size * 0.72;
  const sign = node.status === "Crashed"
    ? svg("path", { d: `M${x - 3.5} ${y - 3.5}l7 7m0-7l-7 7`, class: "sign" })
    : svg("text", { x, y: y + 4.5, class: "sign-text" }, "?");
  return svg("g", { class: "mark" }, svg("circle", { cx: x, cy: y, r: 8 }), sign);
}

function commonPrefix(names) {
  let prefix = names[0] ?? "";
  for (const name of names) while (!name.startsWith(prefix)) prefix = prefix.slice(0, -1);
  return prefix.slice(0, prefix.lastIndexOf("-") + 1);
}

function shorten(name, prefix) {
  const longest = 18;
  if (prefix && name.length > prefix.length) return `…${name.slice(prefix.length - 1)}`;
  return name.length <= longest ? name : `…${name.slice(1 - longest)}`;
}
