// A card for each view: its current numbers, their chart, and the newest changed rows.

import { Lines } from "/assets/chart.js";
import { amount, element, plural, setText } from "/assets/build.js";

export class View {
  constructor(view) {
    this.view = view;
    this.values = view.numbers.map(() => element("b", {}, "–"));
    const hasSeveral = view.numbers.length > 1;
    const numbers = view.numbers.map((name, k) => {
      const mark = element("i");
      mark.style.background = `var(--series-${k + 1})`;
      return element("div", { class: "number" }, this.values[k], element("span", {}, hasSeveral ? mark : null, name));
    });
    this.change = element("p", { class: "change" });
    this.chart = new Lines(`${view.name} over time`, view.numbers);
    this.partial = element("p", { class: "none", hidden: true },
      "number of rows unknown: the view is not materialized, and was not empty before");
    this.rows = element("div", { class: "rows", tabindex: 0, role: "region", "aria-label": `Newest rows of ${view.name}` });
    this.noRows = element("p", { class: "none" }, "no rows yet");
    this.numbers = element("div", { class: "numbers" }, ...numbers);
    this.node = element(
      "article", { class: "card view" },
      element("div", { class: "view-head" }, element("h3", {}, view.name), this.change),
      this.numbers,
      this.partial, this.chart.node, this.noRows, this.rows,
    );
    this.rows.hidden = true;
    this.shownBatch = null;
  }

  show(timeline, newest, isPartial) {
    const points = timeline.map((point) => ({
      id: point.id, time: point.time, values: point.values[this.view.name] ?? this.view.numbers.map(() => null),
    }));
    this.partial.hidden = !isPartial;
    this.numbers.hidden = isPartial;
    this.chart.show(points);
    const current = points.at(-1)?.values ?? [];
    this.values.forEach((node, k) => setText(node, amount(current[k])));
    if (!newest || this.shownBatch === newest.batch) return;
    this.shownBatch = newest.batch;
    this.noRows.hidden = true;
    this.rows.hidden = false;
    this.change.replaceChildren(...this.changeParts(newest));
    this.rows.replaceChildren(this.table(newest));
  }

  changeParts(newest) {
    const parts = [`micro-batch ${amount(newest.batch)}: `];
    if (newest.mode === "complete") return [...parts, plural(newest.count, "row")];
    if (newest.inserted) parts.push(element("span", { class: "inserted" }, `+${amount(newest.inserted)}`));
    if (newest.inserted && newest.deleted) parts.push(" ");
    if (newest.deleted) parts.push(element("span", { class: "deleted" }, `−${amount(newest.deleted)}`));
    return parts;
  }

  table(newest) {
    const alignment = (column) => (column.number ? "right" : null);
    const columns = this.view.columns;
    const head = element("tr", {}, element("th", { scope: "col", class: "right" }, "±"),
      ...columns.map((column) => element("th", { scope: "col", class: alignment(column) }, column.name)));
    const body = newest.rows.map(([weight, values]) => element(
      "tr", {},
      element("td", { class: `weight right ${weight < 0 ? "deleted" : "inserted"}` },
        `${weight < 0 ? "−" : "+"}${amount(Math.abs(weight))}`),
      ...values.map((value, k) => (value == null
        ? element("td", { class: "null" }, "null")
        : element("td", { class: alignment(columns[k]) }, value))),
    ));
    if (newest.count > newest.rows.length) {
      body.push(element("tr", {}, element("td", {}),
        element("td", { class: "null", colspan: Math.max(1, columns.length) }, `and ${amount(newest.count - newest.rows.length)} more`)));
    }
    return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
  }
}
