// Create elements, and format numbers. Values of rows become text nodes only, never markup.

const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svgElement(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

// Set a text only if it changes, so that a selection, or a screen reader, is not interrupted.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const integer = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

export function amount(value) {
  if (value == null) return "–";
  return Number.isInteger(value) || Math.abs(value) >= 1e6 ? integer.format(value) : digits.format(value);
}

export function shortAmount(value) {
  return Math.abs(value) < 10000 ? amount(value) : compact.format(value);
}

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 999.95 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${unit ? value.toFixed(1) : value} ${units[unit]}`;
}

export function milliseconds(value) {
  if (value >= 1000) return `${(value / 1000).toPrecision(3)} s`;
  return `${value >= 100 ? value.toFixed(0) : value.toPrecision(value >= 10 ? 3 : 2)} ms`;
}

export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

export function plural(count, word, end = "s") {
  return `${amount(count)} ${word}${count === 1 ? "" : end}`;
}

// Return round values that divide a range into about `count` parts; at least one value.
export function ticks(low, high, count) {
  const values = multiplesInRange(low, high, count);
  return values.length > 1 ? values : multiplesInRange(low, high, 2 * count);
}

function multiplesInRange(low, high, count) {
  const span = high - low || 1;
  const raw = span / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw);
  const values = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) {
    values.push(Math.abs(value) < step * 1e-9 ? 0 : Number(value.toPrecision(12)));
  }
  return values;
}
