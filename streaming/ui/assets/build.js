// Elements, and numbers as texts. What comes from rows becomes text nodes only, never markup.

const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

// Set a text only where it changes, so that what is selected or read aloud stays.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

export function amount(value) {
  if (value == null) return "–";
  return Number.isInteger(value) || Math.abs(value) >= 1e6 ? whole.format(value) : digits.format(value);
}

export function brief(value) {
  return Math.abs(value) < 10000 ? amount(value) : short.format(value);
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

// Round steps that part a range into about so many, and at least one.
export function ticks(low, high, about) {
  const found = stepped(low, high, about);
  return found.length > 1 ? found : stepped(low, high, 2 * about);
}

function stepped(low, high, about) {
  const span = high - low || 1;
  const raw = span / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) {
    found.push(Math.abs(at) < step * 1e-9 ? 0 : Number(at.toPrecision(12)));
  }
  return found;
}
