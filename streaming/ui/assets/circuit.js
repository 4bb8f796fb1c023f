// The circuit: boxes in layers, from the inputs to the views; the bar in a box is its share of all
// the time, and a line is the thicker the more rows went along it. On a narrow window it runs down
// instead of to the right.

import { amount, drawn, element, milliseconds, say } from "/assets/build.js";

const NARROW = 700;

export class Circuit {
  constructor(picture, name) {
    this.picture = picture;
    this.svg = drawn("svg", { role: "group", "aria-label": `Operators of ${name}` });
    this.drawing = element("div", { class: "drawing" }, this.svg);
    this.label = element("code");
    this.told = element("p");
    this.about = element("div", { class: "about", "aria-live": "polite" }, this.label, this.told);
    this.node = element("div", {}, this.drawing, this.about);
    this.done = [];
    this.chosen = null;
    this.isDown = null;
    new ResizeObserver(() => this.fit()).observe(this.node);
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }

  fit() {
    const isDown = this.node.clientWidth < NARROW;
    if (isDown !== this.isDown && this.node.clientWidth) { this.isDown = isDown; this.build(); this.show(this.done); }
    else if (this.size) this.scale();
  }

  build() {
    const { boxes, lines, widths } = this.picture;
    const gap = this.isDown ? 30 : 40;
    const [w, h] = this.isDown ? [150, 56] : [178, 56];
    const [along, across] = this.isDown ? [h + gap, w + 14] : [w + gap, h + 14];
    const widest = Math.max(1, ...widths);
    // Layers are centred; a place is the middle of a box.
    const at = ([layer, place]) => {
      const u = layer * along, v = (place + (widest - widths[layer]) / 2) * across;
      return this.isDown ? [v + w / 2 + 4, u + h / 2 + 4] : [u + w / 2 + 4, v + h / 2 + 4];
    };
    const size = this.isDown ? [widest * across, widths.length * along] : [widths.length * along, widest * across];
    this.size = [size[0] + 8 - (this.isDown ? 14 : gap), size[1] + 8 - (this.isDown ? gap : 14)];
    this.scale();
    this.lines = lines.map((line) => {
      const points = [boxes[line.from].at, ...line.bends, boxes[line.to].at].map(at);
      const [out, into] = this.isDown ? [[0, h / 2], [0, -h / 2]] : [[w / 2, 0], [-w / 2, 0]];
      points[0] = points[0].map((one, i) => one + out[i]);
      points[points.length - 1] = points.at(-1).map((one, i) => one + into[i]);
      return drawn("path", { class: "line", d: curve(points, this.isDown) });
    });
    this.boxes = boxes.map((box, i) => {
      const [x, y] = at(box.at);
      const heat = drawn("rect", { class: "heat", x: 1, y: h - 5, height: 4, width: 0, rx: 2 });
      const much = drawn("text", { class: "much", x: 10, y: 44 });
      const letters = Math.floor((w - 18) / 6.1);
      const [first, second] = texts(box, letters);
      const node = drawn("g", {
        class: `op ${box.kind}${box.kind === "view" && !box.given ? " hidden" : ""}`, tabindex: i ? -1 : 0, role: "button",
        transform: `translate(${x - w / 2} ${y - h / 2})`, "aria-label": `${box.kind} ${box.label || box.name}`,
      },
        drawn("rect", { class: "box", width: w, height: h, rx: 8 }), heat,
        drawn("text", { class: "kind", x: 10, y: 16 }, first), drawn("text", { x: 10, y: 30 }, second), much,
        drawn("title", {}, box.label || box.name));
      node.addEventListener("click", () => this.choose(i));
      node.addEventListener("focus", () => this.choose(i));
      return { box, node, heat, much, x, y, w };
    });
    this.svg.replaceChildren(...this.lines, ...this.boxes.map((one) => one.node));
    this.open();
    if (this.chosen != null) this.choose(this.chosen);
  }

  // Smaller where that makes it fit; what is wider still can be scrolled.
  scale() {
    const [width, height] = this.size;
    const room = this.drawing.clientWidth || width;
    const scale = Math.max(this.isDown ? 0.85 : 0.72, Math.min(1, room / width));
    this.shrunk = scale;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("width", Math.floor(scale * width));
    this.svg.setAttribute("height", Math.floor(scale * height));
  }

  // Begin at the inputs; they are in the middle of the first layer.
  open() {
    const inputs = this.boxes.filter(({ box }) => box.at[0] === 0);
    const middle = (name) => inputs.reduce((sum, one) => sum + one[name], 0) / Math.max(1, inputs.length);
    this.drawing.scrollLeft = this.shrunk * middle("x") - this.drawing.clientWidth / 2;
    this.drawing.scrollTop = this.shrunk * middle("y") - this.drawing.clientHeight / 2;
  }

  of(box, i) { return this.done[box.kind === "view" ? box.of : i] ?? [0, 0]; }

  show(done, isElsewhere = this.isElsewhere) {
    Object.assign(this, { done, isElsewhere });
    if (!this.boxes) return;
    if (this.chosen == null) {
      say(this.told, isElsewhere
        ? "This circuit runs on Spark's executors; what its operators do is not known here."
        : "Choose an operator to read what it does: rows it put out, time it took since this process began.");
    }
    const total = done.reduce((sum, [, ms]) => sum + ms, 0) || 1;
    this.boxes.forEach(({ box, heat, much, w }, i) => {
      const [rows, ms] = this.of(box, i);
      if (isElsewhere) { say(much, ""); return; }
      if (box.kind === "view") { say(much, box.given ? "given out" : ""); return; }
      say(much, ms >= 0.05 && box.kind !== "input" ? `${amount(rows)} rows · ${milliseconds(ms)}` : `${amount(rows)} rows`);
      heat.setAttribute("width", Math.max(0, (w - 2) * (ms / total)).toFixed(1));
    });
    this.lines.forEach((line, k) => {
      const from = this.picture.lines[k].from;
      const [rows] = this.of(this.picture.boxes[from], from);
      line.style.strokeWidth = `${(0.8 + 0.45 * Math.log10(1 + rows)).toFixed(2)}px`;
    });
    if (this.chosen != null) this.tell();
  }

  choose(i) {
    this.boxes.forEach((one, k) => {
      one.node.classList.toggle("chosen", k === i);
      one.node.setAttribute("tabindex", k === i ? 0 : -1);
    });
    this.chosen = i;
    this.tell();
  }

  tell() {
    const box = this.picture.boxes[this.chosen];
    const [rows, ms] = this.of(box, this.chosen);
    const total = this.done.reduce((sum, [, one]) => sum + one, 0) || 1;
    say(this.label, box.kind === "view" ? `view ${box.name}` : box.label);
    if (box.kind === "view") say(this.told, box.given ? "given out after each micro-batch" : "read by other views only");
    else say(this.told, `${box.kind} ${box.name}: ${amount(rows)} rows put out, ${milliseconds(ms)}, ${(100 * ms / total).toFixed(1)} % of the time of all operators`);
  }

  key(event) {
    const ways = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); return; }
    const way = ways[event.key];
    if (!way || this.chosen == null) return;
    event.preventDefault();
    const here = this.boxes[this.chosen];
    let best = null, least = Infinity;
    this.boxes.forEach((one, i) => {
      const x = one.x - here.x, y = one.y - here.y;
      const ahead = way[0] * x + way[1] * y, aside = Math.abs(way[1] * x) + Math.abs(way[0] * y);
      if (ahead > 1 && ahead + 2 * aside < least) { least = ahead + 2 * aside; best = i; }
    });
    if (best != null) this.boxes[best].node.focus();
  }
}

function texts(box, letters) {
  const cut = (text) => (text.length > letters ? `${text.slice(0, letters - 1)}…` : text);
  if (box.kind === "view") return [cut(box.name), "view"];
  if (box.kind === "input") return [cut(box.name), cut(box.label.replace(/^input [^(]*\(/, "").replace(/\)[^)]*$/, ""))];
  const words = { cutrows: "distinct", join: "join" };
  const kind = words[box.kind] ?? box.kind;
  const rest = box.kind === "join" ? box.label.replace(/^.*?:-\s*/, "") : box.label.replace(new RegExp(`^${box.kind} ?`), "");
  return [cut(`${kind} ${box.name}`), cut(rest)];
}

function curve(points, isDown) {
  let path = `M${points[0]}`;
  for (let i = 1; i < points.length; i += 1) {
    const [a, b] = points[i - 1], [c, d] = points[i];
    path += isDown ? `C${a} ${(b + d) / 2} ${c} ${(b + d) / 2} ${c} ${d}` : `C${(a + c) / 2} ${b} ${(a + c) / 2} ${d} ${c} ${d}`;
  }
  return path;
}
