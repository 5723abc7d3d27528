"use strict";
// Text from data goes into the page as text nodes only: nothing here writes markup.
const report = JSON.parse(document.getElementById("report-data").textContent);
const people = report.annotators.rows || [];
const at = (id) => document.getElementById(id);
const percent = (share, digits = 0) => (share == null ? "–" : `${(100 * share).toFixed(digits)}%`);
const count = (value) => value.toLocaleString("en");
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const counted = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
const short = (text, most = 24) => ([...text].length > most ? `${[...text].slice(0, most - 1).join("")}…` : text);
const own = (text) => make("bdi", {}, text); // text from data inside a sentence, whichever way it is written

// An element with attributes, listeners (functions) and children; a string becomes text.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
}

function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child != null));
}

function options(select, entries) {
  fill(select, entries.map(([value, text]) => make("option", { value }, text)));
}

// A file of comma-separated values; text that a spreadsheet would compute is marked as text.
function download(name, lines) {
  const plain = (value) => (typeof value === "string" && /^'*[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : String(value));
  const quoted = (value) => `"${plain(value).replaceAll('"', '""')}"`;
  const file = new Blob([lines.map((line) => line.map(quoted).join(",")).join("\r\n") + "\r\n"], { type: "text/csv" });
  const link = make("a", { href: URL.createObjectURL(file), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// A table, and a button that downloads it.
function withDownload(table, name) {
  const lines = () => [...table.rows].map((row) => [...row.cells].map((each) => each.textContent));
  return [table, make("button", { type: "button", class: "quiet", click: () => download(`${name}.csv`, lines()) }, "Download as CSV")];
}

function facts(pairs) {
  return make("dl", {}, pairs.filter(([, value]) => value != null && value !== "").flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

// -- charts: drawn again when the theme changes -----------------------------------------------------------------------

const drawn = new Map();

function theme() {
  const chosen = document.documentElement.dataset.theme;
  return chosen || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

async function embed(element, chart) {
  const spec = { ...report.specs[chart.name], datasets: chart.datasets, ...(chart.height ? { height: chart.height } : {}) };
  if (chart.title) spec.layer = spec.layer.map((layer) => ({ ...layer, encoding: { ...layer.encoding, x: { ...layer.encoding.x, title: chart.title } } }));
  if (chart.signals && spec.params) spec.params = spec.params.map((param) => ({ ...param, value: chart.signals[param.name] ?? param.value }));
  const result = await vegaEmbed(element, spec, { config: report.themes[theme()], renderer: chart.renderer || "svg", actions: false, ast: true, tooltip: { theme: theme() } });
  chart.view = result.view;
  for (const [type, listener] of Object.entries(chart.listeners || {})) chart.view.addEventListener(type, (event, item) => listener(item && item.datum));
}

// Charts in sight are drawn at once, the others one by one when the browser has time: the page answers sooner.
const waiting = [];
const soon = (function_) => (window.requestIdleCallback ? requestIdleCallback(function_, { timeout: 300 }) : setTimeout(function_, 30)); // a browser may never be idle

function turn(element) {
  if (element.getBoundingClientRect().top < 1.2 * innerHeight) return Promise.resolve();
  return new Promise((resolve) => {
    if (waiting.push(resolve) === 1) soon(nextTurn);
  });
}

function nextTurn() {
  waiting[0]();
  soon(() => { waiting.shift(); if (waiting.length) nextTurn(); });
}

// Draw a chart, or give one that is there new data and signals.
function draw(element, name, datasets, { signals, listeners, height, renderer, title } = {}) {
  const chart = drawn.get(element);
  if (!element) return Promise.resolve();
  if (!chart || !element.isConnected) {
    const fresh = { name, datasets, signals, listeners, height, renderer, title };
    fresh.ready = turn(element).then(() => embed(element, fresh));
    drawn.set(element, fresh);
    return fresh.ready;
  }
  Object.assign(chart, { datasets, signals });
  chart.ready = chart.ready.then(() => {
    for (const [key, rows] of Object.entries(datasets)) chart.view.data(key, rows);
    for (const [key, value] of Object.entries(signals || {})) chart.view.signal(key, value);
    return chart.view.runAsync();
  });
  return chart.ready;
}

function signal(element, signals) {
  const chart = drawn.get(element);
  if (chart) draw(element, chart.name, chart.datasets, { signals });
}

const allDrawn = () => Promise.all([...drawn.values()].map((chart) => chart.ready));

function redraw() {
  for (const [element, chart] of drawn) {
    if (element.isConnected) chart.ready = chart.ready.then(() => { chart.view.finalize(); return embed(element, chart); });
    else drawn.delete(element);
  }
}

// -- the theme, printing ----------------------------------------------------------------------------------------------

function remember(key, value) {
  try {
    if (value === undefined) return localStorage.getItem(key);
    localStorage.setItem(key, value);
  } catch { /* a browser that keeps nothing for files */ }
  return null;
}

function showTheme(name) {
  document.documentElement.dataset.theme = name;
  at("theme").textContent = name === "dark" ? "Light" : "Dark";
  at("theme").setAttribute("aria-pressed", String(name === "dark"));
}

function startTheme() {
  const kept = remember("crowdwise-theme");
  showTheme(kept === "dark" || kept === "light" ? kept : theme());
  at("theme").addEventListener("click", () => {
    showTheme(theme() === "dark" ? "light" : "dark");
    remember("crowdwise-theme", theme());
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
    if (remember("crowdwise-theme")) return;
    showTheme(event.matches ? "dark" : "light");
    redraw();
  });
  at("print").addEventListener("click", printLight);
}

// Paper is light.
async function printLight() {
  const dark = theme() === "dark";
  if (dark) { showTheme("light"); redraw(); }
  await allDrawn();
  print();
  if (dark) { showTheme("dark"); redraw(); }
}

// The section in sight, in the navigation.
function startNavigation() {
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((each) => each.isIntersecting)) {
      for (const [id, link] of links) {
        if (id === entry.target.id) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    }
  }, { rootMargin: "-15% 0px -75% 0px" });
  for (const id of links.keys()) if (at(id)) watcher.observe(at(id));
}
