// The newest matches of a view whose rows are rings, triangles or the like, drawn as one graph.
// Springs pull what is joined, all nodes push each other; it comes to rest within a second or two.

import { drawn, element, plural, say } from "/assets/build.js";

const calm = matchMedia("(prefers-reduced-motion: reduce)");
const LENGTH = 64, TICKS = 240, NARROW = 480, FEW = 12;

export class Picture {
  constructor(view) {
    this.view = view;
    this.edges = view.pattern.edges;
    this.cycle = cycleOf(view.pattern);
    this.nodes = new Map();
    this.links = new Map();
    this.faces = [];
    this.matches = [];
    this.svg = drawn("svg", { role: "img", "aria-label": `Newest matches of ${view.name}, drawn; the list has them as text` });
    this.list = element("ol", { tabindex: 0, "aria-label": `Newest matches of ${view.name}` });
    this.count = element("small");
    this.node = element("article", { class: "card picture" },
      element("h3", {}, view.name, " ", this.count), this.svg, this.list);
    this.list.addEventListener("keydown", (event) => this.walk(event));
    this.chosen = null;
    this.key = "";
    this.left = 0;
    new ResizeObserver(() => this.wake(40)).observe(this.svg);
  }

  show(matches) {
    const key = JSON.stringify(matches);
    if (key === this.key) return;
    this.key = key;
    this.chosen = null;
    const most = this.svg.clientWidth < NARROW ? FEW : matches.length;
    this.matches = matches.map((match) => ({ ...match, nodes: match.nodes.map((value) => value ?? "null") }));
    const newest = Math.max(...matches.map((match) => match.batch));
    const before = this.nodes;
    this.nodes = new Map();
    for (const match of this.matches) match.isNew = match.batch === newest;
    this.list.replaceChildren(...[...this.matches].reverse().map((match) => this.item(match)));
    this.matches = this.matches.slice(-most);
    for (const match of this.matches) {
      match.nodes.forEach((name, i) => {
        const node = this.nodes.get(name) ?? before.get(name) ?? this.born(match, i, before);
        node.isNew = match.isNew || (this.nodes.has(name) && node.isNew);
        this.nodes.set(name, node);
      });
    }
    this.links = new Map();
    for (const match of this.matches) {
      for (const [a, b] of this.edges) {
        const one = match.nodes[a], other = match.nodes[b];
        if (one !== other) this.links.set(`${one}\u0000${other}`, { one, other, isNew: match.isNew });
      }
    }
    const told = matches.length ? `the newest ${plural(matches.length, "match", "es")} that are there` : "none at present";
    say(this.count, matches.length === 1 ? "the one match that is there" : told);
    this.build();
    this.wake(TICKS);
  }

  item(match) {
    const node = element("li", { class: match.isNew ? "new" : null, tabindex: -1 }, match.nodes.join(" → "));
    for (const [event, value] of [["pointerenter", match], ["pointerleave", null], ["focus", match], ["blur", null]]) {
      node.addEventListener(event, () => { this.chosen = value; this.mark(); });
    }
    return node;
  }

  walk(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const items = [...this.list.children];
    items[Math.max(0, Math.min(items.length - 1, items.indexOf(document.activeElement) + step))]?.focus();
  }

  born(match, i, before) {
    const near = match.nodes.map((name) => before.get(name) ?? this.nodes.get(name)).find(Boolean);
    const angle = 2.4 * (this.nodes.size + before.size) + i;
    const far = near ? 30 : 20 + 14 * Math.sqrt(this.nodes.size);
    return { x: (near?.x ?? 0) + far * Math.cos(angle), y: (near?.y ?? 0) + far * Math.sin(angle), dx: 0, dy: 0 };
  }

  build() {
    const arrow = (id, colour) => {
      const tip = drawn("path", { d: "M0 0 8 4 0 8Z" });
      tip.style.fill = colour;
      return drawn("marker", { id, viewBox: "0 0 8 8", refX: 14, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, tip);
    };
    const name = `tip-${this.view.name}`.replaceAll(/\W/g, "-");
    this.faces = this.cycle ? this.matches.map((match) => ({
      match, node: drawn("polygon", { class: match.isNew ? "face new" : "face" }),
    })) : [];
    const isNew = (one) => (one.isNew ? " new" : "");
    for (const link of this.links.values()) {
      link.node = drawn("line", { class: `edge${isNew(link)}`, "marker-end": `url(#${name}${link.isNew ? "-new" : ""})` });
    }
    for (const [value, node] of this.nodes) {
      node.node = drawn("circle", { class: `node${isNew(node)}`, r: 5 }, drawn("title", {}, value));
      node.name = value.length > 18 ? `${value.slice(0, 17)}…` : value;
      node.text = drawn("text", {}, node.name);
    }
    this.layer = drawn("g", {},
      ...this.faces.map((face) => face.node), ...[...this.links.values()].map((link) => link.node),
      ...[...this.nodes.values()].map((node) => node.node),
      ...[...this.nodes.values()].map((node) => node.text));
    this.svg.replaceChildren(drawn("defs", {}, arrow(name, "var(--quiet)"), arrow(`${name}-new`, "var(--accent)")), this.layer);
  }

  mark() {
    const names = this.chosen && new Set(this.chosen.nodes);
    const faded = (isIn) => Boolean(names) && !isIn;
    for (const [value, node] of this.nodes) {
      node.node.classList.toggle("dim", faded(names?.has(value)));
      node.text.classList.toggle("dim", faded(names?.has(value)));
    }
    for (const link of this.links.values()) {
      link.node.classList.toggle("dim", faded(names?.has(link.one) && names.has(link.other)));
    }
    for (const face of this.faces) face.node.classList.toggle("dim", faded(face.match === this.chosen));
  }

  wake(ticks) {
    const isAsleep = this.left <= 0;
    this.left = Math.max(this.left, ticks);
    if (calm.matches) {
      while (this.left > 0) this.tick();
      this.place();
    } else if (isAsleep) requestAnimationFrame(() => this.frame());
  }

  frame() {
    for (let i = 0; i < 3 && this.left > 0; i += 1) this.tick();
    this.place();
    if (this.left > 0) requestAnimationFrame(() => this.frame());
  }

  tick() {
    const heat = Math.min(1, this.left / 120);
    this.left -= 1;
    const nodes = [...this.nodes.values()];
    nodes.forEach((a, i) => {
      for (let j = 0; j < i; j += 1) {
        const b = nodes[j];
        const x = a.x - b.x || 0.1 * (i - j), y = a.y - b.y || 0.1;
        const push = 2600 / Math.max(60, x * x + y * y);
        const far = Math.hypot(x, y);
        a.dx += (push * x) / far; a.dy += (push * y) / far;
        b.dx -= (push * x) / far; b.dy -= (push * y) / far;
      }
      a.dx -= 0.012 * a.x; a.dy -= 0.02 * a.y;
    });
    for (const { one, other } of this.links.values()) {
      const a = this.nodes.get(one), b = this.nodes.get(other);
      const x = b.x - a.x, y = b.y - a.y, far = Math.hypot(x, y) || 1;
      const pull = (0.06 * (far - LENGTH)) / far;
      a.dx += pull * x; a.dy += pull * y;
      b.dx -= pull * x; b.dy -= pull * y;
    }
    for (const node of nodes) {
      const far = Math.hypot(node.dx, node.dy), most = 14 * heat;
      const share = far > most ? most / far : 1;
      node.x += share * node.dx; node.y += share * node.dy;
      node.dx *= 0.55; node.dy *= 0.55;
    }
  }

  // Names stand beside their nodes where there is room for them; those of the newest come first.
  label(x, y, width) {
    const nodes = [...this.nodes.values()];
    const taken = nodes.map((node) => [x(node) - 5, y(node) - 5, x(node) + 5, y(node) + 5]);
    for (const node of nodes.sort((a, b) => b.isNew - a.isNew)) {
      const wide = 6.4 * node.name.length, right = x(node) + 8, left = x(node) - 8 - wide;
      const places = [[right, -3], [left, -3], [right, 11], [left, 11], [x(node) - wide / 2, -10], [x(node) - wide / 2, 19]];
      const place = places.map(([at, below]) => [at, y(node) + below]).find(([at, base]) => at > 2 && at + wide < width - 2
        && taken.every(([a, b, c, d]) => at + wide < a || at > c || base + 2 < b || base - 9 > d));
      node.text.setAttribute("visibility", place ? "visible" : "hidden");
      if (!place) continue;
      node.text.setAttribute("x", place[0].toFixed(1));
      node.text.setAttribute("y", place[1].toFixed(1));
      taken.push([place[0], place[1] - 9, place[0] + wide, place[1] + 2]);
    }
  }

  place() {
    if (!this.nodes.size || !this.layer) return;
    const xs = [...this.nodes.values()].map((node) => node.x);
    const ys = [...this.nodes.values()].map((node) => node.y);
    const width = this.svg.clientWidth || 400, height = this.svg.clientHeight || 300;
    const low = Math.min(...xs), wide = Math.max(...xs) - low || 1;
    const top = Math.min(...ys), high = Math.max(...ys) - top || 1;
    // As large as there is room; one way up to twice as much as the other.
    let across = Math.min(2, (width - 120) / wide), down = Math.min(2, (height - 56) / high);
    [across, down] = [Math.min(across, 2 * down), Math.min(down, 2 * across)];
    const x = (node) => (width + across * (2 * (node.x - low) - wide)) / 2;
    const y = (node) => (height + down * (2 * (node.y - top) - high)) / 2;
    for (const node of this.nodes.values()) {
      node.node.setAttribute("cx", x(node).toFixed(1));
      node.node.setAttribute("cy", y(node).toFixed(1));
    }
    this.label(x, y, width);
    for (const link of this.links.values()) {
      const a = this.nodes.get(link.one), b = this.nodes.get(link.other);
      link.node.setAttribute("x1", x(a).toFixed(1)); link.node.setAttribute("y1", y(a).toFixed(1));
      link.node.setAttribute("x2", x(b).toFixed(1)); link.node.setAttribute("y2", y(b).toFixed(1));
    }
    for (const face of this.faces) {
      const corners = this.cycle.map((i) => this.nodes.get(face.match.nodes[i]));
      face.node.setAttribute("points", corners.map((node) => `${x(node).toFixed(1)},${y(node).toFixed(1)}`).join(" "));
    }
  }
}

// The nodes of a pattern in the order of a ring, if it is one ring.
function cycleOf(pattern) {
  const met = pattern.nodes.map(() => new Set());
  for (const [a, b] of pattern.edges) { met[a].add(b); met[b].add(a); }
  if (met.some((others) => others.size !== 2)) return null;
  const order = [0];
  while (order.length < met.length) {
    const next = [...met[order.at(-1)]].find((i) => !order.includes(i));
    if (next === undefined) return null;
    order.push(next);
  }
  return order;
}
