// The page: takes the events of the stream and shows what they say.

import { amount, bytes, element, milliseconds, plural, say } from "/assets/build.js";
import { Bars, PHASES } from "/assets/chart.js";
import { Circuit } from "/assets/circuit.js";
import { Picture } from "/assets/matches.js";
import { View } from "/assets/views.js";

const COURSE = 1024, RECENT = 120, QUIET = 10;
const by = (id) => document.getElementById(id);
const SECTIONS = [["views", "Views"], ["matches", "Matches"], ["latency", "Latency"], ["state", "State"], ["circuit", "Circuit"]];

const page = { batches: 0, now: null, recent: [], course: [], views: [], pictures: [], isPaused: false, isLost: true, heard: 0 };

// ---------------------------------------------------------------- what there is

function begin(whole) {
  document.title = `${whole.name} · dbsp-wcoj`;
  say(by("name"), whole.name);
  Object.assign(page, { batches: whole.batches, recent: whole.recent, course: whole.course, now: whole });
  page.views = whole.views.map((view) => new View(view));
  const views = by("views").querySelector("div");
  views.classList.toggle("one", page.views.length === 1);
  views.replaceChildren(...page.views.map((view) => view.node));
  page.pictures = whole.views.filter((view) => view.pattern).map((view) => new Picture(view));
  by("matches").hidden = !page.pictures.length;
  by("matches").querySelector("div").replaceChildren(...page.pictures.map((picture) => picture.node));
  page.bars = new Bars("Time of each micro-batch by phase");
  page.legend = element("ul", { class: "legend" });
  by("latency").querySelector(".card").replaceChildren(page.bars.node, page.legend);
  page.holdings = element("ul", { class: "holdings", tabindex: 0, "aria-label": "Arrangements" });
  by("state").querySelector(".card").replaceChildren(page.holdings);
  page.boxes = new Map(whole.circuit.boxes.filter((box) => box.kind !== "view").map((box) => [box.name, box]));
  page.kept = whole.circuit.kept;
  page.circuit = new Circuit(whole.circuit, whole.name);
  by("circuit").querySelector(".card").replaceChildren(page.circuit.node);
  sections();
}

function add(more) {
  for (const batch of more.recent) {
    if (batch.n <= page.batches) continue;
    page.recent.push(batch);
    page.course.push({ n: batch.n, id: batch.id, at: batch.at, values: batch.values });
  }
  page.recent = page.recent.slice(-RECENT);
  if (page.course.length > COURSE) {
    const last = page.course.at(-1);
    page.course = page.course.filter((_, i) => i % 2 === 0);
    if (page.course.at(-1) !== last) page.course.push(last);
  }
  page.batches = more.batches;
  page.now = more;
}

// ---------------------------------------------------------------- showing it

function show() {
  if (!page.now) return;
  const { now } = page;
  status();
  if (page.isPaused) return;
  tiles();
  for (const view of page.views) {
    view.show(page.course, now.newest[view.view.name], now.partial.includes(view.view.name));
  }
  for (const picture of page.pictures) picture.show(now.matches[picture.view.name] ?? []);
  page.bars.show(page.recent);
  legend();
  holdings();
  page.circuit.show(now.operators, now.elsewhere);
}

function status() {
  const node = by("status");
  let { state, reason } = page.now?.status ?? { state: "waiting", reason: "" };
  const silence = (performance.now() - page.heard) / 1000;
  if (state === "running" && silence > QUIET) state = "quiet";
  const texts = {
    waiting: "waiting for the first micro-batch", running: "running", ended: reason || "ended",
    failed: `failed: ${reason}`, quiet: `quiet for ${plural(Math.floor(silence), "second")}`,
  };
  let text = texts[state];
  if (page.isLost && state !== "ended" && state !== "failed") [state, text] = ["lost", page.now ? "no connection, trying again" : "connecting"];
  else if (page.isPaused) [state, text] = ["paused", `held still; ${text}`];
  node.dataset.state = state;
  say(node, text);
}

function tiles() {
  const last = page.recent.at(-1);
  const times = page.recent.map((batch) => 1000 * batch.seconds.all).sort((a, b) => a - b);
  const at = (share) => times[Math.floor(share * (times.length - 1))];
  const latest = page.recent.slice(-31);
  const span = latest.length > 1 ? latest.at(-1).at - latest[0].at : 0;
  const rows = (batch) => Object.values(batch.in).reduce((sum, one) => sum + one, 0);
  const came = latest.slice(1).reduce((sum, batch) => sum + rows(batch), 0);
  const isStill = (performance.now() - page.heard) / 1000 > QUIET || page.now.status.state !== "running";
  const total = page.now.state.reduce((sum, one) => sum + one.bytes, 0);
  const held = page.now.state.reduce((sum, one) => sum + one.rows, 0);
  const all = [
    ["Micro-batch", last ? amount(last.id) : "–", last ? plural(rows(last), "row") : ""],
    ["Rows per second", span ? amount(isStill ? 0 : Math.round(came / span)) : "–",
      span ? (isStill ? `${amount(Math.round(came / span))} when it ran` : `over ${span.toFixed(0) || "1"} s`) : ""],
    ["Latency", last ? milliseconds(at(0.5)) : "–", last ? `95 %: ${milliseconds(at(0.95))}` : ""],
    ["State", bytes(total), plural(held, "row")],
    ["Bad rows", amount(last?.dead_letters_total ?? 0), last?.dead_letters ? `${amount(last.dead_letters)} in the last` : ""],
  ];
  const node = by("now");
  if (node.children.length !== all.length) {
    node.replaceChildren(...all.map(([name]) => element("dl", { class: "tile" }, element("dt", {}, name), element("dd", {}, element("span"), element("small")))));
  }
  all.forEach(([, value, note], i) => {
    say(node.children[i].querySelector("span"), value);
    say(node.children[i].querySelector("small"), note);
  });
}

function legend() {
  const spent = {};
  for (const { parts } of page.bars.batches) {
    for (const [phase, seconds] of Object.entries(parts)) spent[phase] = (spent[phase] ?? 0) + seconds;
  }
  const total = Object.values(spent).reduce((sum, one) => sum + one, 0);
  const shown = Object.keys(PHASES).filter((phase) => spent[phase] / total > 0.005);
  const key = shown.map((phase) => `${phase} ${Math.round((100 * spent[phase]) / total)}`).join();
  if (page.legend.dataset.key === key) return;
  page.legend.dataset.key = key;
  page.legend.replaceChildren(...shown.map((phase) => {
    const mark = element("i");
    mark.style.background = `var(--phase-${phase})`;
    return element("li", { title: PHASES[phase] }, mark, `${phase} ${Math.round((100 * spent[phase]) / total)} %`);
  }));
}

function holdings() {
  const state = [...page.now.state].sort((a, b) => b.bytes - a.bytes);
  const most = Math.max(1, ...state.map((one) => one.bytes));
  if (page.holdings.children.length !== Math.max(1, state.length)) {
    page.holdings.replaceChildren(...(state.length ? state.map(() => element(
      "li", { class: "holding" },
      element("span", { class: "what" }, element("span"), " ", element("code")),
      element("span", { class: "much" }, element("b"), element("span")),
      element("div", { class: "bar" }, element("span")),
    )) : [element("li", { class: "none" }, "nothing yet")]));
  }
  state.forEach((one, i) => {
    const [what, much, bar] = page.holdings.children[i].children;
    const [name, about] = named(one.name);
    say(what.children[0], name);
    what.title = about;
    say(what.children[1], one.order.length ? `[${one.order.join(",")}]` : "");
    say(much.children[0], bytes(one.bytes));
    say(much.children[1], ` · ${plural(one.rows, "row")}${one.runs == null ? "" : ` · ${plural(one.runs, "run")}`}`);
    bar.firstChild.style.width = `${(100 * one.bytes) / most}%`;
  });
}

// What an arrangement is of, in the words of the drawing.
function named(name) {
  const [, of, number] = /^(?:relation|operator) (\S+)(?: (\d+))?$/.exec(name) ?? [];
  const box = page.boxes.get(of);
  const view = page.kept[of];
  if (view) return [`view ${view}`, name];
  if (!box) return [name, name];
  const part = number === undefined || number === "0" ? "" : `, part ${Number(number) + 1}`;
  return [(box.kind === "input" ? `input ${of}` : `${box.kind} ${of}`) + part, box.label];
}

// ---------------------------------------------------------------- keys and buttons

function sections() {
  const there = SECTIONS.filter(([id]) => !by(id).hidden);
  by("sections").replaceChildren(...there.map(([id, name], i) => element(
    "a", { href: `#${id}`, "aria-keyshortcuts": i + 1 }, name)));
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  say(by("theme"), name === "dark" ? "Light" : "Dark");
}

function pause() {
  page.isPaused = !page.isPaused;
  by("pause").setAttribute("aria-pressed", page.isPaused);
  say(by("pause"), page.isPaused ? "Go on" : "Pause");
  show();
}

const system = matchMedia("(prefers-color-scheme: dark)");
const wanted = () => localStorage.getItem("theme") ?? (system.matches ? "dark" : "light");
theme(wanted());
system.addEventListener("change", () => theme(wanted()));

function turn() {
  const name = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("theme", name);
  theme(name);
}

by("theme").addEventListener("click", turn);
by("pause").addEventListener("click", pause);
by("help").addEventListener("click", () => by("keys").showModal());
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || by("keys").open) return;
  if (event.key === "p") pause();
  else if (event.key === "t") turn();
  else if (event.key === "?") by("keys").showModal();
  else if (/^[1-9]$/.test(event.key)) {
    const link = by("sections").children[Number(event.key) - 1];
    if (!link) return;
    const section = document.querySelector(link.getAttribute("href"));
    section.scrollIntoView();
    section.focus({ preventScroll: true });
  } else return;
  event.preventDefault();
});

// ---------------------------------------------------------------- the stream

// A browser connects again by itself after an interruption, but not after a refusal.
const AGAIN = 5000;

function listen() {
  const stream = new EventSource("/events");
  stream.addEventListener("whole", (event) => { page.isLost = false; page.heard = performance.now(); begin(JSON.parse(event.data)); show(); });
  stream.addEventListener("more", (event) => { page.heard = performance.now(); add(JSON.parse(event.data)); show(); });
  stream.addEventListener("error", () => {
    page.isLost = true;
    status();
    if (stream.readyState === EventSource.CLOSED) setTimeout(again, AGAIN);
  });
}

async function again() {
  const answer = await fetch("/", { method: "HEAD" }).catch(() => null);
  if (answer?.status === 401) location.reload(); // to sign in
  else listen();
}

listen();
setInterval(() => { status(); if (page.now && !page.isPaused) tiles(); }, 1000);
