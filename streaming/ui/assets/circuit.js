// The drawing of the circuit: boxes in layers, from the inputs to the views. The bar in a box is its
// share of the time of all operators. The more rows an operator has emitted, the thicker its lines.
// The drawing runs to the right; in a narrow window it runs down.

import { amount, svgElement, element, milliseconds, setText } from "/assets/build.js";

const NARROW = 700;

export class Circuit {
  constructor(picture, name) {
    this.picture = picture;
    this.svg = svgElement("svg", { role: "group", "aria-label": `Operators of ${name}` });
    this.drawing = element("div", { class: "drawing" }, this.svg);
    this.label = element("code");
    this.description = element("p");
    this.about = element("div", { class: "about", "aria-live": "polite" }, this.label, this.description);
    this.node = element("div", {}, this.drawing, this.about);
    this.totals = [];
    this.selected = null;
    this.isDown = null;
    new ResizeObserver(() => this.fit()).observe(this.node);
    this.svg.addEventListener("keydown", (event) => this.moveFocus(event));
  }

  fit() {
    const isDown = this.node.clientWidth < NARROW;
    if (isDown !== this.isDown && this.node.clientWidth) { this.isDown = isDown; this.build(); this.show(this.totals); }
    else if (this.size) this.scale();
  }

  build() {
    const { boxes, lines, widths } = this.picture;
    const gap = this.isDown ? 30 : 40;
    const [w, h] = this.isDown ? [150, 56] : [178, 56];
    const [along, across] = this.isDown ? [h + gap, w + 14] : [w + gap, h + 14];
    const widest = Math.max(1, ...widths);
    // Layers are centred; the function returns the center of a box.
    const center = ([layer, index]) => {
      const u = layer * along, v = (index + (widest - widths[layer]) / 2) * across;
      return this.isDown ? [v + w / 2 + 4, u + h / 2 + 4] : [u + w / 2 + 4, v + h / 2 + 4];
    };
    const size = this.isDown ? [widest * across, widths.length * along] : [widths.length * along, widest * across];
    this.size = [size[0] + 8 - (this.isDown ? 14 : gap), size[1] + 8 - (this.isDown ? gap : 14)];
    this.scale();
    this.lines = lines.map((line) => {
      const points = [boxes[line.from].position, ...line.bends, boxes[line.to].position].map(center);
      const [out, into] = this.isDown ? [[0, h / 2], [0, -h / 2]] : [[w / 2, 0], [-w / 2, 0]];
      points[0] = points[0].map((value, i) => value + out[i]);
      points[points.length - 1] = points.at(-1).map((value, i) => value + into[i]);
      return svgElement("path", { class: "line", d: curve(points, this.isDown) });
    });
    this.boxes = boxes.map((box, i) => {
      const [x, y] = center(box.position);
      const timeBar = svgElement("rect", { class: "heat", x: 1, y: h - 5, height: 4, width: 0, rx: 2 });
      const sizeText = svgElement("text", { class: "size", x: 10, y: 44 });
      const maxLetters = Math.floor((w - 18) / 6.1);
      const [first, second] = boxTexts(box, maxLetters);
      const node = svgElement("g", {
        class: `op ${box.kind}${box.kind === "view" && !box.published ? " hidden" : ""}`, tabindex: i ? -1 : 0, role: "button",
        transform: `translate(${x - w / 2} ${y - h / 2})`, "aria-label": `${box.kind} ${box.label || box.name}`,
      },
        svgElement("rect", { class: "box", width: w, height: h, rx: 8 }), timeBar,
        svgElement("text", { class: "kind", x: 10, y: 16 }, first), svgElement("text", { x: 10, y: 30 }, second), sizeText,
        svgElement("title", {}, box.label || box.name));
      node.addEventListener("click", () => this.select(i));
      node.addEventListener("focus", () => this.select(i));
      return { box, node, timeBar, sizeText, x, y, w };
    });
    this.svg.replaceChildren(...this.lines, ...this.boxes.map((box) => box.node));
    this.scrollToInputs();
    if (this.selected != null) this.select(this.selected);
  }

  // Shrink the drawing to the width of the page, but not below a readable size; beyond that it scrolls.
  scale() {
    const [width, height] = this.size;
    const available = this.drawing.clientWidth || width;
    const scale = Math.max(this.isDown ? 0.85 : 0.72, Math.min(1, available / width));
    this.scaleFactor = scale;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("width", Math.floor(scale * width));
    this.svg.setAttribute("height", Math.floor(scale * height));
  }

  // Scroll to the inputs; they are in the middle of the first layer.
  scrollToInputs() {
    const inputs = this.boxes.filter(({ box }) => box.position[0] === 0);
    const middle = (name) => inputs.reduce((sum, box) => sum + box[name], 0) / Math.max(1, inputs.length);
    this.drawing.scrollLeft = this.scaleFactor * middle("x") - this.drawing.clientWidth / 2;
    this.drawing.scrollTop = this.scaleFactor * middle("y") - this.drawing.clientHeight / 2;
  }

  totalsOf(box, i) { return this.totals[box.kind === "view" ? box.operator : i] ?? [0, 0]; }

  show(totals, isOnExecutors = this.isOnExecutors) {
    Object.assign(this, { totals, isOnExecutors });
    if (!this.boxes) return;
    if (this.selected == null) {
      setText(this.description, isOnExecutors
        ? "This circuit runs on Spark's executors, so rows and times of its operators are not available."
        : "Select an operator to see its output rows and its time since this process began.");
    }
    const total = totals.reduce((sum, [, ms]) => sum + ms, 0) || 1;
    this.boxes.forEach(({ box, timeBar, sizeText, w }, i) => {
      const [rows, ms] = this.totalsOf(box, i);
      if (isOnExecutors) { setText(sizeText, ""); return; }
      if (box.kind === "view") { setText(sizeText, box.published ? "published" : ""); return; }
      setText(sizeText, ms >= 0.05 && box.kind !== "input" ? `${amount(rows)} rows · ${milliseconds(ms)}` : `${amount(rows)} rows`);
      timeBar.setAttribute("width", Math.max(0, (w - 2) * (ms / total)).toFixed(1));
    });
    this.lines.forEach((line, k) => {
      const from = this.picture.lines[k].from;
      const [rows] = this.totalsOf(this.picture.boxes[from], from);
      line.style.strokeWidth = `${(0.8 + 0.45 * Math.log10(1 + rows)).toFixed(2)}px`;
    });
    if (this.selected != null) this.describe();
  }

  select(i) {
    this.boxes.forEach(({ node }, k) => {
      node.classList.toggle("selected", k === i);
      node.setAttribute("tabindex", k === i ? 0 : -1);
    });
    this.selected = i;
    this.describe();
  }

  describe() {
    const box = this.picture.boxes[this.selected];
    const [rows, ms] = this.totalsOf(box, this.selected);
    const total = this.totals.reduce((sum, [, ms]) => sum + ms, 0) || 1;
    setText(this.label, box.kind === "view" ? `view ${box.name}` : box.label);
    if (box.kind === "view") setText(this.description, box.published ? "published after each micro-batch" : "only read by other views");
    else setText(this.description, `${box.kind} ${box.name}: ${amount(rows)} output rows, ${milliseconds(ms)}, ${(100 * ms / total).toFixed(1)} % of the time of all operators`);
  }

  moveFocus(event) {
    const directions = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); return; }
    const direction = directions[event.key];
    if (!direction || this.selected == null) return;
    event.preventDefault();
    const current = this.boxes[this.selected];
    let best = null, bestDistance = Infinity;
    this.boxes.forEach((other, i) => {
      const x = other.x - current.x, y = other.y - current.y;
      const ahead = direction[0] * x + direction[1] * y, aside = Math.abs(direction[1] * x) + Math.abs(direction[0] * y);
      if (ahead > 1 && ahead + 2 * aside < bestDistance) { bestDistance = ahead + 2 * aside; best = i; }
    });
    if (best != null) this.boxes[best].node.focus();
  }
}

// Return the two lines of text in a box.
function boxTexts(box, maxLetters) {
  const cut = (text) => (text.length > maxLetters ? `${text.slice(0, maxLetters - 1)}…` : text);
  if (box.kind === "view") return [cut(box.name), "view"];
  if (box.kind === "input") return [cut(box.name), cut(box.label.replace(/^input [^(]*\(/, "").replace(/\)[^)]*$/, ""))];
  const details = box.kind === "join" ? box.label.replace(/^.*?:-\s*/, "") : box.label.replace(new RegExp(`^${box.kind} ?`), "");
  return [cut(`${box.kind} ${box.name}`), cut(details)];
}

function curve(points, isDown) {
  let path = `M${points[0]}`;
  for (let i = 1; i < points.length; i += 1) {
    const [a, b] = points[i - 1], [c, d] = points[i];
    path += isDown ? `C${a} ${(b + d) / 2} ${c} ${(b + d) / 2} ${c} ${d}` : `C${(a + c) / 2} ${b} ${(a + c) / 2} ${d} ${c} ${d}`;
  }
  return path;
}
