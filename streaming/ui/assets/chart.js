// Charts: numbers over time as steps, and times of micro-batches as stacked bars. Both can be read
// with the pointer, and with the arrow keys when they have the focus; the values are shown as text below the chart.

import { amount, shortAmount, clock, svgElement, element, milliseconds, setText, ticks } from "/assets/build.js";

class Chart {
  constructor(height, label) {
    this.height = height;
    this.svg = svgElement("svg", { class: "plot", height, tabindex: 0, role: "img", "aria-label": label });
    this.reading = element("p", { class: "reading", "aria-live": "polite" });
    this.node = element("div", {}, this.svg, this.reading);
    this.at = null;
    this.isDrawPending = false;
    new ResizeObserver(() => this.redraw()).observe(this.node);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.read(null));
    this.svg.addEventListener("blur", () => this.read(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }

  redraw() {
    if (this.isDrawPending) return;
    this.isDrawPending = true;
    requestAnimationFrame(() => {
      this.isDrawPending = false;
      this.width = this.node.clientWidth;
      if (this.width) {
        this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
        this.draw();
      }
    });
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    this.read(this.count() ? this.nearest(event.clientX - box.left) : null);
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || !this.count()) return;
    event.preventDefault();
    const last = this.count() - 1;
    this.read(Math.max(0, Math.min(last, (this.at ?? last + (step < 0 ? 1 : 0)) + step)));
  }

  read(at) {
    this.at = at;
    this.redraw();
  }
}

const LEFT = 46, RIGHT = 10, TOP = 8, BOTTOM = 20, GAP = 22;
const BAND_HEIGHTS = [104, 56, 44]; // the height of a band in a chart of 1, 2, or more bands

export class Lines extends Chart {
  constructor(label, names) {
    const bandHeight = BAND_HEIGHTS[names.length - 1] ?? BAND_HEIGHTS.at(-1);
    super(TOP + names.length * (bandHeight + GAP) - GAP + BOTTOM, label);
    this.bandHeight = bandHeight;
    this.names = names;
    this.points = [];
  }

  show(points) {
    this.points = points;
    this.node.hidden = !points.some((point) => point.values.some((value) => value != null));
    this.redraw();
  }

  count() { return this.points.length; }

  x(i) {
    const first = this.points[0].time, last = this.points.at(-1).time;
    const share = last > first ? (this.points[i].time - first) / (last - first) : 1;
    return LEFT + share * (this.width - LEFT - RIGHT);
  }

  nearest(x) {
    let best = 0;
    for (let i = 0; i < this.points.length; i += 1) {
      if (Math.abs(this.x(i) - x) <= Math.abs(this.x(best) - x)) best = i;
    }
    return best;
  }

  draw() {
    if (!this.points.length) { this.svg.replaceChildren(); setText(this.reading, ""); return; }
    const bottom = this.height - BOTTOM;
    const parts = this.names.flatMap((_, k) => this.band(k, TOP + k * (this.bandHeight + GAP)));
    parts.push(
      svgElement("text", { x: LEFT, y: this.height - 4 }, clock(this.points[0].time)),
      svgElement("text", { x: this.width - RIGHT, y: this.height - 4, "text-anchor": "end" },
        clock(this.points.at(-1).time)),
    );
    const at = this.at != null && this.at < this.count() ? this.at : null;
    if (at != null) {
      parts.push(svgElement("line", { class: "cross", x1: this.x(at), x2: this.x(at), y1: TOP, y2: bottom }));
      const point = this.points[at];
      const values = this.names.map((name, k) => `${name} ${amount(point.values[k])}`);
      setText(this.reading, `${clock(point.time)}, micro-batch ${point.id}: ${values.join(", ")}`);
    } else setText(this.reading, "");
    this.svg.replaceChildren(...parts);
  }

  // One number with its own axis, because the numbers of a view may differ in size.
  band(k, top) {
    const values = this.points.map((point) => point.values[k]);
    const nonNull = values.filter((value) => value != null);
    if (!nonNull.length) return [];
    let low = Math.min(...nonNull), high = Math.max(...nonNull);
    if (low > 0 && high > 2 * low) low = 0;
    if (high < 0 && low < 2 * high) high = 0;
    if (low === high) { low = Math.min(low, 0); high = Math.max(high, low + 1); }
    let marks = ticks(low, high, this.bandHeight < 80 ? 2 : 3);
    if (nonNull.every(Number.isInteger) && marks.some(Number.isInteger)) marks = marks.filter(Number.isInteger);
    low = Math.min(low, marks[0]); high = Math.max(high, marks.at(-1));
    const bottom = top + this.bandHeight;
    const y = (value) => (bottom - ((value - low) / (high - low)) * this.bandHeight).toFixed(1);
    const colour = `var(--series-${k + 1})`;
    const parts = marks.flatMap((mark) => [
      svgElement("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: y(mark), y2: y(mark) }),
      svgElement("text", { x: LEFT - 8, y: Number(y(mark)) + 4, "text-anchor": "end" }, shortAmount(mark)),
    ]);
    let path = "", before = null;
    values.forEach((value, i) => {
      const x = this.x(i).toFixed(1);
      if (value != null) path += before == null ? `M${x} ${y(value)}` : `H${x}V${y(value)}`;
      before = value;
    });
    if (nonNull.length === values.length) {
      const ground = Math.min(high, Math.max(low, 0)); // zero, or the nearest value to it
      const area = `${path}V${y(ground)}H${this.x(0).toFixed(1)}Z`;
      parts.push(styled(svgElement("path", { class: "area", d: area }), "fill", colour));
    }
    const last = values.findLastIndex((value) => value != null);
    return [...parts, styled(svgElement("path", { class: "line", d: path }), "stroke", colour),
      styled(svgElement("circle", { cx: this.x(last), cy: y(values[last]), r: 3 }), "fill", colour)];
  }
}

export const PHASES = {
  load: "loading the state", read: "Spark, and the transfer to Python", decode: "splitting and checking rows",
  encode: "values to codes", step: "joins and operators", output: "codes to values",
  cells: "steps of cells on executors", write: "writing the state", merge: "merging arrangements", publish: "writing the targets", other: "everything else",
};

export class Bars extends Chart {
  constructor(label) {
    super(190, label);
    this.batches = [];
  }

  show(batches) {
    this.batches = batches.map((batch) => {
      const { all, ...seconds } = batch.seconds;
      const measured = Object.values(seconds).reduce((sum, value) => sum + value, 0);
      return { id: batch.id, all, parts: { ...seconds, other: Math.max(0, all - measured) }, batch };
    });
    this.redraw();
  }

  count() { return this.batches.length; }

  get step() {
    return Math.min(14, (this.width - LEFT - RIGHT) / Math.max(this.batches.length, 24));
  }

  nearest(x) {
    return Math.max(0, Math.min(this.count() - 1, Math.floor((x - LEFT) / this.step)));
  }

  draw() {
    if (!this.count()) { this.svg.replaceChildren(); return; }
    const times = this.batches.map((batch) => batch.all).sort((a, b) => a - b);
    const usual = times[Math.floor(0.95 * (times.length - 1))];
    const marks = ticks(0, Math.min(times.at(-1), 2.5 * usual) * 1000 || 1, 4);
    const high = Math.max(marks.at(-1), Math.min(times.at(-1), 2.5 * usual) * 1000);
    const bottom = this.height - BOTTOM;
    const y = (ms) => bottom - (Math.min(ms, high) / high) * (bottom - TOP);
    const parts = marks.flatMap((mark) => [
      svgElement("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: y(mark), y2: y(mark) }),
      svgElement("text", { x: LEFT - 8, y: y(mark) + 4, "text-anchor": "end" }, shortAmount(mark)),
    ]);
    this.batches.forEach((batch, i) => {
      let ms = 0;
      for (const phase of Object.keys(PHASES)) {
        const duration = 1000 * (batch.parts[phase] ?? 0);
        if (y(ms) - y(ms + duration) > 0.2) {
          parts.push(styled(svgElement("rect", {
            x: LEFT + i * this.step, width: Math.max(1, this.step - 1.5),
            y: y(ms + duration), height: y(ms) - y(ms + duration),
          }), "fill", `var(--phase-${phase})`));
        }
        ms += duration;
      }
      if (1000 * batch.all > high) {
        parts.push(svgElement("text", { x: LEFT + (i + 0.5) * this.step, y: TOP + 1, "text-anchor": "middle" }, "↑"));
      }
    });
    parts.push(
      svgElement("text", { x: 2, y: this.height - 4 }, "ms"),
      svgElement("text", { x: LEFT, y: this.height - 4 }, `micro-batch ${amount(this.batches[0].id)}`),
    );
    if (this.count() * this.step > 220) {
      parts.push(svgElement("text", { x: LEFT + this.count() * this.step, y: this.height - 4, "text-anchor": "end" },
        amount(this.batches.at(-1).id)));
    }
    const at = this.at != null && this.at < this.count() ? this.at : null;
    if (at != null) {
      const x = LEFT + (at + 0.5) * this.step;
      parts.push(svgElement("line", { class: "cross", x1: x, x2: x, y1: TOP, y2: bottom }));
      const batch = this.batches[at];
      const longest = Object.entries(batch.parts).filter(([, seconds]) => seconds >= 0.00005)
        .sort((a, b) => b[1] - a[1]).slice(0, 5).map(([name, seconds]) => `${name} ${milliseconds(1000 * seconds)}`);
      const rows = Object.values(batch.batch.rows_in).reduce((sum, value) => sum + value, 0);
      setText(this.reading, `micro-batch ${amount(batch.id)}, ${amount(rows)} rows: ` +
        `${milliseconds(1000 * batch.all)}; ${longest.join(", ")}`);
    } else setText(this.reading, "");
    this.svg.replaceChildren(...parts);
  }
}

function styled(node, name, value) {
  node.style[name] = value;
  return node;
}
