// A card for each view: its numbers now and over time, and the rows that changed last.

import { Lines } from "/assets/chart.js";
import { amount, element, plural, say } from "/assets/build.js";

export class View {
  constructor(view) {
    this.view = view;
    this.values = view.numbers.map(() => element("b", {}, "–"));
    const many = view.numbers.length > 1;
    const numbers = view.numbers.map((name, k) => {
      const mark = element("i");
      mark.style.background = `var(--series-${k + 1})`;
      return element("div", { class: "number" }, this.values[k], element("span", {}, many ? mark : null, name));
    });
    this.change = element("p", { class: "change" });
    this.chart = new Lines(`${view.name} over time`, view.numbers);
    this.partial = element("p", { class: "none", hidden: true },
      "number of rows unknown: the view is not materialized, and was not empty before");
    this.rows = element("div", { class: "rows", tabindex: 0, role: "region", "aria-label": `Newest rows of ${view.name}` });
    this.none = element("p", { class: "none" }, "nothing yet");
    this.numbers = element("div", { class: "numbers" }, ...numbers);
    this.node = element(
      "article", { class: "card view" },
      element("div", { class: "view-head" }, element("h3", {}, view.name), this.change),
      this.numbers,
      this.partial, this.chart.node, this.none, this.rows,
    );
    this.rows.hidden = true;
    this.shown = null;
  }

  show(course, newest, isPartial) {
    const moments = course.map((moment) => ({
      id: moment.id, at: moment.at, values: moment.values[this.view.name] ?? this.view.numbers.map(() => null),
    }));
    this.partial.hidden = !isPartial;
    this.numbers.hidden = isPartial;
    this.chart.show(moments);
    const now = moments.at(-1)?.values ?? [];
    this.values.forEach((node, k) => say(node, amount(now[k])));
    if (!newest || this.shown === newest.batch) return;
    this.shown = newest.batch;
    this.none.hidden = true;
    this.rows.hidden = false;
    this.change.replaceChildren(...this.changed(newest));
    this.rows.replaceChildren(this.table(newest));
  }

  changed(newest) {
    const parts = [`micro-batch ${amount(newest.batch)}: `];
    if (newest.mode === "complete") return [...parts, plural(newest.count, "row")];
    if (newest.inserted) parts.push(element("span", { class: "inserted" }, `+${amount(newest.inserted)}`));
    if (newest.inserted && newest.deleted) parts.push(" ");
    if (newest.deleted) parts.push(element("span", { class: "deleted" }, `−${amount(newest.deleted)}`));
    return parts;
  }

  table(newest) {
    const side = (column) => (column.number ? "right" : null);
    const columns = this.view.columns;
    const head = element("tr", {}, element("th", { scope: "col", class: "right" }, "±"),
      ...columns.map((column) => element("th", { scope: "col", class: side(column) }, column.name)));
    const body = newest.rows.map(([weight, values]) => element(
      "tr", {},
      element("td", { class: `weight right ${weight < 0 ? "deleted" : "inserted"}` },
        `${weight < 0 ? "−" : "+"}${amount(Math.abs(weight))}`),
      ...values.map((value, k) => (value == null
        ? element("td", { class: "null" }, "null")
        : element("td", { class: side(columns[k]) }, value))),
    ));
    if (newest.count > newest.rows.length) {
      body.push(element("tr", {}, element("td", {}),
        element("td", { class: "null", colspan: Math.max(1, columns.length) }, `and ${amount(newest.count - newest.rows.length)} more`)));
    }
    return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
  }
}
