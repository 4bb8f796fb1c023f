// The newest matches of a view whose rows are rings, such as triangles, drawn as one graph. A
// force-directed layout: edges pull their nodes together, all nodes repel each other, and the movement
// ends within about two seconds.

import { svgElement, element, plural, setText } from "/assets/build.js";

const prefersReducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
const EDGE_LENGTH = 64, TICKS = 240, NARROW = 480, MAX_NARROW_MATCHES = 12;

export class Picture {
  constructor(view) {
    this.view = view;
    this.edges = view.pattern.edges;
    this.cycle = cycleOf(view.pattern);
    this.nodes = new Map();
    this.links = new Map();
    this.faces = [];
    this.matches = [];
    this.svg = svgElement("svg", { role: "img", "aria-label": `Newest matches of ${view.name}, drawn; the list has them as text` });
    this.list = element("ol", { tabindex: 0, "aria-label": `Newest matches of ${view.name}` });
    this.count = element("small");
    this.node = element("article", { class: "card picture" },
      element("h3", {}, view.name, " ", this.count), this.svg, this.list);
    this.list.addEventListener("keydown", (event) => this.moveFocus(event));
    this.selected = null;
    this.key = "";
    this.ticksLeft = 0;
    new ResizeObserver(() => this.animate(40)).observe(this.svg);
  }

  show(matches) {
    const key = JSON.stringify(matches);
    if (key === this.key) return;
    this.key = key;
    this.selected = null;
    const maxMatches = this.svg.clientWidth < NARROW ? MAX_NARROW_MATCHES : matches.length;
    this.matches = matches.map((match) => ({ ...match, nodes: match.nodes.map((value) => value ?? "null") }));
    const newest = Math.max(...matches.map((match) => match.batch));
    const before = this.nodes;
    this.nodes = new Map();
    for (const match of this.matches) match.isNew = match.batch === newest;
    this.list.replaceChildren(...[...this.matches].reverse().map((match) => this.item(match)));
    this.matches = this.matches.slice(-maxMatches);
    for (const match of this.matches) {
      match.nodes.forEach((name, i) => {
        const node = this.nodes.get(name) ?? before.get(name) ?? this.createNode(match, i, before);
        node.isNew = match.isNew || (this.nodes.has(name) && node.isNew);
        this.nodes.set(name, node);
      });
    }
    this.links = new Map();
    for (const match of this.matches) {
      for (const [a, b] of this.edges) {
        const start = match.nodes[a], end = match.nodes[b];
        if (start !== end) this.links.set(`${start}\u0000${end}`, { start, end, isNew: match.isNew });
      }
    }
    const text = matches.length ? `the newest ${plural(matches.length, "match", "es")}` : "no matches now";
    setText(this.count, matches.length === 1 ? "1 match" : text);
    this.build();
    this.animate(TICKS);
  }

  item(match) {
    const node = element("li", { class: match.isNew ? "new" : null, tabindex: -1 }, match.nodes.join(" → "));
    for (const [event, value] of [["pointerenter", match], ["pointerleave", null], ["focus", match], ["blur", null]]) {
      node.addEventListener(event, () => { this.selected = value; this.fade(); });
    }
    return node;
  }

  moveFocus(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const items = [...this.list.children];
    items[Math.max(0, Math.min(items.length - 1, items.indexOf(document.activeElement) + step))]?.focus();
  }

  createNode(match, i, before) {
    const near = match.nodes.map((name) => before.get(name) ?? this.nodes.get(name)).find(Boolean);
    const angle = 2.4 * (this.nodes.size + before.size) + i;
    const distance = near ? 30 : 20 + 14 * Math.sqrt(this.nodes.size);
    return { x: (near?.x ?? 0) + distance * Math.cos(angle), y: (near?.y ?? 0) + distance * Math.sin(angle), dx: 0, dy: 0 };
  }

  build() {
    const arrow = (id, colour) => {
      const tip = svgElement("path", { d: "M0 0 8 4 0 8Z" });
      tip.style.fill = colour;
      return svgElement("marker", { id, viewBox: "0 0 8 8", refX: 14, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, tip);
    };
    const name = `tip-${this.view.name}`.replaceAll(/\W/g, "-");
    this.faces = this.cycle ? this.matches.map((match) => ({
      match, node: svgElement("polygon", { class: match.isNew ? "face new" : "face" }),
    })) : [];
    const newClass = (part) => (part.isNew ? " new" : "");
    for (const link of this.links.values()) {
      link.node = svgElement("line", { class: `edge${newClass(link)}`, "marker-end": `url(#${name}${link.isNew ? "-new" : ""})` });
    }
    for (const [value, node] of this.nodes) {
      node.node = svgElement("circle", { class: `node${newClass(node)}`, r: 5 }, svgElement("title", {}, value));
      node.name = value.length > 18 ? `${value.slice(0, 17)}…` : value;
      node.text = svgElement("text", {}, node.name);
    }
    this.layer = svgElement("g", {},
      ...this.faces.map((face) => face.node), ...[...this.links.values()].map((link) => link.node),
      ...[...this.nodes.values()].map((node) => node.node),
      ...[...this.nodes.values()].map((node) => node.text));
    this.svg.replaceChildren(svgElement("defs", {}, arrow(name, "var(--quiet)"), arrow(`${name}-new`, "var(--accent)")), this.layer);
  }

  fade() {
    const names = this.selected && new Set(this.selected.nodes);
    const faded = (isIn) => Boolean(names) && !isIn;
    for (const [value, node] of this.nodes) {
      node.node.classList.toggle("dim", faded(names?.has(value)));
      node.text.classList.toggle("dim", faded(names?.has(value)));
    }
    for (const link of this.links.values()) {
      link.node.classList.toggle("dim", faded(names?.has(link.start) && names.has(link.end)));
    }
    for (const face of this.faces) face.node.classList.toggle("dim", faded(face.match === this.selected));
  }

  animate(ticks) {
    const isStopped = this.ticksLeft <= 0;
    this.ticksLeft = Math.max(this.ticksLeft, ticks);
    if (prefersReducedMotion.matches) {
      while (this.ticksLeft > 0) this.tick();
      this.draw();
    } else if (isStopped) requestAnimationFrame(() => this.frame());
  }

  frame() {
    for (let i = 0; i < 3 && this.ticksLeft > 0; i += 1) this.tick();
    this.draw();
    if (this.ticksLeft > 0) requestAnimationFrame(() => this.frame());
  }

  tick() {
    const heat = Math.min(1, this.ticksLeft / 120);
    this.ticksLeft -= 1;
    const nodes = [...this.nodes.values()];
    nodes.forEach((a, i) => {
      for (let j = 0; j < i; j += 1) {
        const b = nodes[j];
        const x = a.x - b.x || 0.1 * (i - j), y = a.y - b.y || 0.1;
        const push = 2600 / Math.max(60, x * x + y * y);
        const distance = Math.hypot(x, y);
        a.dx += (push * x) / distance; a.dy += (push * y) / distance;
        b.dx -= (push * x) / distance; b.dy -= (push * y) / distance;
      }
      a.dx -= 0.012 * a.x; a.dy -= 0.02 * a.y;
    });
    for (const { start, end } of this.links.values()) {
      const a = this.nodes.get(start), b = this.nodes.get(end);
      const x = b.x - a.x, y = b.y - a.y, distance = Math.hypot(x, y) || 1;
      const pull = (0.06 * (distance - EDGE_LENGTH)) / distance;
      a.dx += pull * x; a.dy += pull * y;
      b.dx -= pull * x; b.dy -= pull * y;
    }
    for (const node of nodes) {
      const distance = Math.hypot(node.dx, node.dy), maxDistance = 14 * heat;
      const share = distance > maxDistance ? maxDistance / distance : 1;
      node.x += share * node.dx; node.y += share * node.dy;
      node.dx *= 0.55; node.dy *= 0.55;
    }
  }

  // A name is shown beside its node if there is space; names of the newest matches have priority.
  placeNames(x, y, width) {
    const nodes = [...this.nodes.values()];
    const occupied = nodes.map((node) => [x(node) - 5, y(node) - 5, x(node) + 5, y(node) + 5]);
    for (const node of nodes.sort((a, b) => b.isNew - a.isNew)) {
      const wide = 6.4 * node.name.length, right = x(node) + 8, left = x(node) - 8 - wide;
      const places = [[right, -3], [left, -3], [right, 11], [left, 11], [x(node) - wide / 2, -10], [x(node) - wide / 2, 19]];
      const place = places.map(([at, below]) => [at, y(node) + below]).find(([at, base]) => at > 2 && at + wide < width - 2
        && occupied.every(([a, b, c, d]) => at + wide < a || at > c || base + 2 < b || base - 9 > d));
      node.text.setAttribute("visibility", place ? "visible" : "hidden");
      if (!place) continue;
      node.text.setAttribute("x", place[0].toFixed(1));
      node.text.setAttribute("y", place[1].toFixed(1));
      occupied.push([place[0], place[1] - 9, place[0] + wide, place[1] + 2]);
    }
  }

  draw() {
    if (!this.nodes.size || !this.layer) return;
    const xs = [...this.nodes.values()].map((node) => node.x);
    const ys = [...this.nodes.values()].map((node) => node.y);
    const width = this.svg.clientWidth || 400, height = this.svg.clientHeight || 300;
    const low = Math.min(...xs), wide = Math.max(...xs) - low || 1;
    const top = Math.min(...ys), high = Math.max(...ys) - top || 1;
    // Use the available space; one direction is scaled at most twice as much as the other.
    let across = Math.min(2, (width - 120) / wide), down = Math.min(2, (height - 56) / high);
    [across, down] = [Math.min(across, 2 * down), Math.min(down, 2 * across)];
    const x = (node) => (width + across * (2 * (node.x - low) - wide)) / 2;
    const y = (node) => (height + down * (2 * (node.y - top) - high)) / 2;
    for (const node of this.nodes.values()) {
      node.node.setAttribute("cx", x(node).toFixed(1));
      node.node.setAttribute("cy", y(node).toFixed(1));
    }
    this.placeNames(x, y, width);
    for (const link of this.links.values()) {
      const a = this.nodes.get(link.start), b = this.nodes.get(link.end);
      link.node.setAttribute("x1", x(a).toFixed(1)); link.node.setAttribute("y1", y(a).toFixed(1));
      link.node.setAttribute("x2", x(b).toFixed(1)); link.node.setAttribute("y2", y(b).toFixed(1));
    }
    for (const face of this.faces) {
      const corners = this.cycle.map((i) => this.nodes.get(face.match.nodes[i]));
      face.node.setAttribute("points", corners.map((node) => `${x(node).toFixed(1)},${y(node).toFixed(1)}`).join(" "));
    }
  }
}

// Return the nodes of a pattern in the order of its ring; null if it is not a single ring.
function cycleOf(pattern) {
  const neighbours = pattern.nodes.map(() => new Set());
  for (const [a, b] of pattern.edges) { neighbours[a].add(b); neighbours[b].add(a); }
  if (neighbours.some((others) => others.size !== 2)) return null;
  const order = [0];
  while (order.length < neighbours.length) {
    const next = [...neighbours[order.at(-1)]].find((i) => !order.includes(i));
    if (next === undefined) return null;
    order.push(next);
  }
  return order;
}
