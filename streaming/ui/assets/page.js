// The page: receives the events of the stream, and shows their data. Starts the other modules.

import { amount, bytes, element, milliseconds, plural, setText } from "/assets/build.js";
import { Bars, PHASES } from "/assets/chart.js";
import { Circuit } from "/assets/circuit.js";
import { Picture } from "/assets/matches.js";
import { View } from "/assets/views.js";

const MAX_POINTS = 1024, MAX_RECENT = 120, QUIET_AFTER_S = 10;
const byId = (id) => document.getElementById(id);
const SECTIONS = [["views", "Views"], ["matches", "Matches"], ["latency", "Latency"], ["state", "State"], ["circuit", "Circuit"]];

const page = { batches: 0, latest: null, recent: [], timeline: [], views: [], pictures: [], isPaused: false, isLost: true, lastEventMs: 0 };

// ---------------------------------------------------------------- receiving data

function showSnapshot(snapshot) {
  document.title = `${snapshot.name} · dbsp-wcoj`;
  setText(byId("name"), snapshot.name);
  Object.assign(page, { batches: snapshot.batches, recent: snapshot.recent, timeline: snapshot.timeline, latest: snapshot });
  page.views = snapshot.views.map((view) => new View(view));
  const views = byId("views").querySelector("div");
  views.classList.toggle("one", page.views.length === 1);
  views.replaceChildren(...page.views.map((view) => view.node));
  page.pictures = snapshot.views.filter((view) => view.pattern).map((view) => new Picture(view));
  byId("matches").hidden = !page.pictures.length;
  byId("matches").querySelector("div").replaceChildren(...page.pictures.map((picture) => picture.node));
  page.bars = new Bars("Time of each micro-batch by phase");
  page.legend = element("ul", { class: "legend" });
  byId("latency").querySelector(".card").replaceChildren(page.bars.node, page.legend);
  page.arrangements = element("ul", { class: "arrangements", tabindex: 0, "aria-label": "Arrangements" });
  byId("state").querySelector(".card").replaceChildren(page.arrangements);
  page.boxes = new Map(snapshot.circuit.boxes.filter((box) => box.kind !== "view").map((box) => [box.name, box]));
  page.circuit = new Circuit(snapshot.circuit, snapshot.name);
  byId("circuit").querySelector(".card").replaceChildren(page.circuit.node);
  showSections();
}

function addUpdate(update) {
  for (const batch of update.recent) {
    if (batch.number <= page.batches) continue;
    page.recent.push(batch);
    page.timeline.push({ number: batch.number, id: batch.id, time: batch.time, values: batch.values });
  }
  page.recent = page.recent.slice(-MAX_RECENT);
  if (page.timeline.length > MAX_POINTS) {
    const last = page.timeline.at(-1);
    page.timeline = page.timeline.filter((_, i) => i % 2 === 0);
    if (page.timeline.at(-1) !== last) page.timeline.push(last);
  }
  page.batches = update.batches;
  page.latest = update;
}

// ---------------------------------------------------------------- showing it

function show() {
  if (!page.latest) return;
  const { latest } = page;
  showStatus();
  if (page.isPaused) return;
  showTiles();
  for (const view of page.views) {
    view.show(page.timeline, latest.newest[view.view.name], latest.partial.includes(view.view.name));
  }
  for (const picture of page.pictures) picture.show(latest.matches[picture.view.name] ?? []);
  page.bars.show(page.recent);
  showLegend();
  showArrangements();
  page.circuit.show(latest.operators, latest.on_executors);
}

function showStatus() {
  const node = byId("status");
  let { state, reason } = page.latest?.status ?? { state: "waiting", reason: "" };
  const silence = (performance.now() - page.lastEventMs) / 1000;
  if (state === "running" && silence > QUIET_AFTER_S) state = "quiet";
  const texts = {
    waiting: "waiting for the first micro-batch", running: "running", ended: reason || "ended",
    failed: `failed: ${reason}`, quiet: `quiet for ${plural(Math.floor(silence), "second")}`,
  };
  let text = texts[state];
  if (page.isLost && state !== "ended" && state !== "failed") [state, text] = ["lost", page.latest ? "no connection, trying again" : "connecting"];
  else if (page.isPaused) [state, text] = ["paused", `updates paused; ${text}`];
  node.dataset.state = state;
  setText(node, text);
}

function showTiles() {
  const last = page.recent.at(-1);
  const times = page.recent.map((batch) => 1000 * batch.seconds.all).sort((a, b) => a - b);
  const quantile = (share) => times[Math.floor(share * (times.length - 1))];
  const lastBatches = page.recent.slice(-31);
  const span = lastBatches.length > 1 ? lastBatches.at(-1).time - lastBatches[0].time : 0;
  const rows = (batch) => Object.values(batch.rows_in).reduce((sum, value) => sum + value, 0);
  const rowCount = lastBatches.slice(1).reduce((sum, batch) => sum + rows(batch), 0);
  const isIdle = (performance.now() - page.lastEventMs) / 1000 > QUIET_AFTER_S || page.latest.status.state !== "running";
  const total = page.latest.state.reduce((sum, arrangement) => sum + arrangement.bytes, 0);
  const stateRows = page.latest.state.reduce((sum, arrangement) => sum + arrangement.rows, 0);
  const contents = [
    ["Micro-batch", last ? amount(last.id) : "–", last ? plural(rows(last), "row") : ""],
    ["Rows per second", span ? amount(isIdle ? 0 : Math.round(rowCount / span)) : "–",
      span ? (isIdle ? `${amount(Math.round(rowCount / span))} when it ran` : `over ${span.toFixed(0) || "1"} s`) : ""],
    ["Latency", last ? milliseconds(quantile(0.5)) : "–", last ? `95 %: ${milliseconds(quantile(0.95))}` : ""],
    ["State", bytes(total), last?.heap_bytes || last?.mapped_bytes
      ? `heap ${bytes(last.heap_bytes)}, mapped ${bytes(last.mapped_bytes)}` : plural(stateRows, "row")],
    ["Bad rows", amount(last?.dead_letters_total ?? 0), last?.dead_letters ? `${amount(last.dead_letters)} in the last` : ""],
  ];
  const node = byId("now");
  if (node.children.length !== contents.length) {
    node.replaceChildren(...contents.map(([name]) => element("dl", { class: "tile" }, element("dt", {}, name), element("dd", {}, element("span"), element("small")))));
  }
  contents.forEach(([, value, note], i) => {
    setText(node.children[i].querySelector("span"), value);
    setText(node.children[i].querySelector("small"), note);
  });
}

function showLegend() {
  const secondsOf = {};
  for (const { parts } of page.bars.batches) {
    for (const [phase, seconds] of Object.entries(parts)) secondsOf[phase] = (secondsOf[phase] ?? 0) + seconds;
  }
  const total = Object.values(secondsOf).reduce((sum, value) => sum + value, 0);
  const shown = Object.keys(PHASES).filter((phase) => secondsOf[phase] / total > 0.005);
  const key = shown.map((phase) => `${phase} ${Math.round((100 * secondsOf[phase]) / total)}`).join();
  if (page.legend.dataset.key === key) return;
  page.legend.dataset.key = key;
  page.legend.replaceChildren(...shown.map((phase) => {
    const mark = element("i");
    mark.style.background = `var(--phase-${phase})`;
    return element("li", { title: PHASES[phase] }, mark, `${phase} ${Math.round((100 * secondsOf[phase]) / total)} %`);
  }));
}

function showArrangements() {
  const state = [...page.latest.state].sort((a, b) => b.bytes - a.bytes);
  const maxBytes = Math.max(1, ...state.map((arrangement) => arrangement.bytes));
  if (page.arrangements.children.length !== Math.max(1, state.length)) {
    page.arrangements.replaceChildren(...(state.length ? state.map(() => element(
      "li", { class: "arrangement" },
      element("span", { class: "label" }, element("span"), " ", element("code")),
      element("span", { class: "size" }, element("b"), element("span")),
      element("div", { class: "bar" }, element("span")),
    )) : [element("li", { class: "none" }, "no data yet")]));
  }
  state.forEach((arrangement, i) => {
    const [label, size, bar] = page.arrangements.children[i].children;
    setText(label.children[0], `${arrangement.kind} ${arrangement.name}`.trim());
    label.title = [arrangement.label, arrangement.views.length ? `for ${arrangement.views.join(", ")}` : ""].filter(Boolean).join("\n");
    setText(label.children[1], arrangement.order.length ? `[${arrangement.order.join(",")}]` : "");
    setText(size.children[0], bytes(arrangement.bytes));
    setText(size.children[1], ` · ${plural(arrangement.rows, "row")}${arrangement.runs == null ? "" : ` · ${plural(arrangement.runs, "run")}`}`);
    bar.firstChild.style.width = `${(100 * arrangement.bytes) / maxBytes}%`;
  });
}

// ---------------------------------------------------------------- keys and buttons

function showSections() {
  const visible = SECTIONS.filter(([id]) => !byId(id).hidden);
  byId("sections").replaceChildren(...visible.map(([id, name], i) => element(
    "a", { href: `#${id}`, "aria-keyshortcuts": i + 1 }, name)));
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  setText(byId("theme"), name === "dark" ? "Light" : "Dark");
}

function togglePause() {
  page.isPaused = !page.isPaused;
  byId("pause").setAttribute("aria-pressed", page.isPaused);
  setText(byId("pause"), page.isPaused ? "Resume" : "Pause");
  show();
}

const system = matchMedia("(prefers-color-scheme: dark)");
const preferredTheme = () => localStorage.getItem("theme") ?? (system.matches ? "dark" : "light");
setTheme(preferredTheme());
system.addEventListener("change", () => setTheme(preferredTheme()));

function toggleTheme() {
  const name = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("theme", name);
  setTheme(name);
}

byId("theme").addEventListener("click", toggleTheme);
byId("pause").addEventListener("click", togglePause);
byId("help").addEventListener("click", () => byId("keys").showModal());
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  if (event.key === "p") togglePause();
  else if (event.key === "t") toggleTheme();
  else if (event.key === "?") byId("keys").showModal();
  else if (/^[1-9]$/.test(event.key)) {
    const link = byId("sections").children[Number(event.key) - 1];
    if (!link) return;
    const section = document.querySelector(link.getAttribute("href"));
    section.scrollIntoView();
    section.focus({ preventScroll: true });
  } else return;
  event.preventDefault();
});

// ---------------------------------------------------------------- the stream

// After an interruption the browser reconnects by itself, but not after an error response.
const RECONNECT_MS = 5000;

function openStream() {
  const stream = new EventSource("/events");
  stream.addEventListener("snapshot", (event) => { page.isLost = false; page.lastEventMs = performance.now(); showSnapshot(JSON.parse(event.data)); show(); });
  stream.addEventListener("update", (event) => { page.lastEventMs = performance.now(); addUpdate(JSON.parse(event.data)); show(); });
  stream.addEventListener("error", () => {
    page.isLost = true;
    showStatus();
    if (stream.readyState === EventSource.CLOSED) setTimeout(reconnect, RECONNECT_MS);
  });
}

async function reconnect() {
  const response = await fetch("/", { method: "HEAD" }).catch(() => null);
  if (response?.status === 401) location.reload(); // to sign in
  else openStream();
}

openStream();
setInterval(() => { showStatus(); if (page.latest && !page.isPaused) showTiles(); }, 1000);
