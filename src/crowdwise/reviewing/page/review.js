"use strict";
// The page works without this script, by links and forms; with it, one key is enough and nothing is loaded anew.
// Text from data comes escaped from the server, or becomes a text node here.
(() => {
const at = (id) => document.getElementById(id);
const main = at("main"), list = at("queue"), rows = at("rows");
const HEIGHT = 58, CHUNK = 100, LONGEST = 500000, SPARE = 8;
const address = new URLSearchParams(location.search);
address.delete("item");
const query = (more) => { const all = new URLSearchParams(address); for (const [name, value] of Object.entries(more)) if (value != null) all.set(name, value); return `?${all}`; };
const trail = []; // items that were shown before
const drafts = new Map(); // comments that were typed when an undo brought another item up
let shownAt = performance.now(), saving = false, resend = null;

// -- the item ---------------------------------------------------------------------------------------------------------

const current = () => { const value = at("item").dataset.item; return value === "" ? null : Number(value); };

function swap(html) {
  if (current() != null) trail.push(current());
  const open = at("evidence")?.open, blind = address.has("blind");
  main.innerHTML = html; // made and escaped by the server; the policy of the page lets no script in it run
  if (at("evidence")) at("evidence").open = blind ? false : open ?? true;
  const item = current(), draft = drafts.get(item);
  if (draft != null && at("comment")) { at("comment").value = draft; drafts.delete(item); }
  shownAt = performance.now();
  main.scrollTop = 0;
  if (matchMedia("(max-width: 900px)").matches) at("item").scrollIntoView({ block: "start" });
  at("item").focus({ preventScroll: true });
  follow();
}

function fail(message) {
  at("failed").textContent = message;
  at("failed").hidden = false;
}

// Sends what a button stands for; the page that the server answers with, or null where nothing was saved.
async function send(button) {
  saving = true;
  const form = new FormData(at("answers"));
  form.set("do", button.value);
  form.set("seconds", ((performance.now() - shownAt) / 1000).toFixed(2));
  if (resend && resend.do === button.value && resend.item === form.get("item")) form.set("key", resend.key);
  main.setAttribute("aria-busy", "true");
  try {
    const reply = await fetch(`/answer${query({ fragment: 1 })}`, { method: "POST", body: new URLSearchParams(form) });
    if (!reply.ok) throw new Error(await reply.text());
    const html = await reply.text();
    resend = null;
    return html;
  } catch (error) {
    // The same answer again counts once. Another one counts, though it has the same key: the server looks at its content, too.
    resend = { do: button.value, item: form.get("item"), key: form.get("key") };
    fail(error instanceof TypeError ? "Not saved: the review does not answer. What was saved before is safe. Start `crowdwise review` again and open its new link." : `Not saved: ${error.message}`);
    return null;
  } finally {
    saving = false;
    main.removeAttribute("aria-busy");
  }
}

async function answer(button) {
  if (saving || button.disabled) return;
  const item = current(), name = button.querySelector("bdi")?.textContent, typed = unsaved();
  const html = await send(button);
  if (html == null) return;
  if (button.value.startsWith("label")) tick(item, name);
  if (button.value === "undo") { // another item comes up; what was typed here waits for this one
    cache.clear();
    if (typed != null) drafts.set(item, typed);
  }
  swap(html);
  ask(250);
}

// A comment that was typed and is not saved yet; null if there is none.
function unsaved() {
  const field = at("comment");
  return field && field.value.trim() !== field.defaultValue.trim() ? field.value : null;
}

async function visit(item) {
  if (saving) return;
  if (unsaved() != null && (await send(main.querySelector("[value=comment]"))) == null) return;
  try {
    const reply = await fetch(`/${query({ fragment: 1, item })}`);
    if (!reply.ok) throw new Error(await reply.text());
    swap(await reply.text());
  } catch (error) {
    fail(`The item cannot be shown: ${error.message}`);
  }
}

addEventListener("beforeunload", (event) => { if (unsaved() != null || drafts.size) event.preventDefault(); });
main.addEventListener("submit", (event) => {
  event.preventDefault();
  if (event.submitter) answer(event.submitter);
});
main.addEventListener("input", (event) => {
  if (event.target.id !== "find") return;
  const wanted = event.target.value.trim().toLowerCase();
  for (const button of main.querySelectorAll(".class")) button.hidden = !button.textContent.toLowerCase().includes(wanted);
});

const keys = {
  c: () => at("comment")?.focus(),
  v: () => { if (at("evidence")) at("evidence").open = !at("evidence").open; },
  j: onward, k: back,
  "/": () => at("find")?.focus(),
  "?": () => { at("help").open = !at("help").open; },
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const field = event.target.closest("input, select, textarea");
  if (event.key === "Escape") {
    for (const menu of document.querySelectorAll(".menu[open]")) menu.open = false;
    field?.blur();
    return;
  }
  if (field && field.type !== "checkbox") {
    if (field.id !== "find" || event.key !== "Enter") return;
    event.preventDefault();
    const found = [...main.querySelectorAll(".class:not([hidden])")];
    if (field.value.trim() && found.length) answer(found[0]);
    return;
  }
  if (event.repeat) return; // a key held down labels one item only
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const button = [...main.querySelectorAll("[data-key]")].find((each) => each.dataset.key === key);
  if (!button && !keys[key]) return;
  event.preventDefault();
  if (button) answer(button); else keys[key]();
});
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll(".menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});

// -- the list: only lines in sight exist, and their order stays as it is while somebody is at it -----------------------

const cache = new Map(), wanted = new Map(), ticked = new Map();
let version = Number(at("item").dataset.version), total = Number(at("item").dataset.total), first = current();
let latest = version, touched = -Infinity, drawn = new Map();
const size = () => Math.min(total, LONGEST);
const busy = () => performance.now() - touched < 4000 || list.matches(":hover") || list.contains(document.activeElement);
const row = (place) => cache.get(Math.floor(place / CHUNK))?.[place % CHUNK];

function line(place) {
  const entry = document.createElement("li"), link = document.createElement("a");
  const part = (tag, name, text) => { const element = document.createElement(tag); element.className = name; element.textContent = text; return element; };
  entry.style.transform = `translateY(${place * HEIGHT}px)`;
  entry.setAttribute("aria-setsize", total);
  entry.setAttribute("aria-posinset", place + 1);
  const data = row(place);
  if (data) {
    const mine = ticked.get(data.item) ?? data.mine, done = mine != null || data.done;
    link.href = `/${query({ item: data.item })}`;
    link.dataset.item = data.item;
    link.className = done ? "done" : "";
    if (data.item === current()) link.setAttribute("aria-current", "true");
    const share = 100 * (1 - data.doubt), sure = data.doubt == null ? "" : ` · ${share >= 99.5 ? share.toFixed(1) : share.toFixed(0)} %`;
    link.append(part("bdi", "name", data.id), part("span", "guess", done ? `✓ ${mine ?? "reviewed"}` : `${data.label ?? ""}${sure}`), part("span", "words", data.text ?? ""));
    link.lastChild.dir = "auto";
  } else link.append(part("span", "words", "…"));
  entry.append(link);
  return entry;
}

function load(chunk) {
  if (cache.has(chunk)) return Promise.resolve();
  if (!wanted.has(chunk)) wanted.set(chunk, fetchRows(chunk).finally(() => wanted.delete(chunk)));
  return wanted.get(chunk);
}

async function fetchRows(chunk) {
  const asked = version;
  try {
    const reply = await fetch(`/queue${query({ version: asked, first, start: chunk * CHUNK, count: CHUNK })}`);
    if (!reply.ok) return;
    const got = await reply.json();
    if (asked !== version) return;
    if (got.version !== version) { adopt(got.version); return; } // that order is gone
    total = got.total;
    cache.set(chunk, got.rows);
    for (const place of drawn.keys()) if (Math.floor(place / CHUNK) === chunk) { drawn.get(place).remove(); drawn.delete(place); }
    draw();
  } catch { /* the server is gone; the next answer says so */ }
}

let due = false, resting;
function scrolled() {
  if (!due) { due = true; requestAnimationFrame(() => { due = false; draw(); }); }
}

function draw() {
  rows.style.height = `${size() * HEIGHT}px`;
  const start = Math.max(0, Math.floor(list.scrollTop / HEIGHT) - SPARE);
  const end = Math.min(size(), Math.ceil((list.scrollTop + list.clientHeight) / HEIGHT) + SPARE);
  for (const [place, element] of drawn) if (place < start || place >= end) { element.remove(); drawn.delete(place); }
  const fresh = document.createDocumentFragment();
  for (let place = start; place < end; place += 1) if (!drawn.has(place)) { const element = line(place); drawn.set(place, element); fresh.append(element); }
  rows.append(fresh);
  clearTimeout(resting); // only what is looked at is fetched, not what flies by
  resting = setTimeout(() => { for (let chunk = Math.floor(start / CHUNK); chunk * CHUNK < end; chunk += 1) load(chunk); }, cache.size ? 60 : 0);
}

function redraw() {
  for (const element of drawn.values()) element.remove();
  drawn.clear();
  draw();
}

function adopt(newer) {
  version = newer;
  first = current();
  cache.clear(); wanted.clear(); ticked.clear();
  at("adopt").hidden = true;
  list.scrollTop = 0;
  touched = -Infinity;
  redraw();
}

function place() {
  for (const [chunk, data] of cache) { const found = data.findIndex((each) => each.item === current()); if (found >= 0) return chunk * CHUNK + found; }
  return -1;
}

// After a new item or a new consensus: take over its order, unless somebody is looking through the list.
function follow() {
  latest = Math.max(latest, Number(at("item").dataset.version));
  if (latest > version && !busy()) { total = Number(at("item").dataset.total); adopt(latest); return; }
  at("adopt").hidden = latest <= version;
  redraw();
  const now = place();
  if (now >= 0 && !busy() && (now * HEIGHT < list.scrollTop || (now + 1) * HEIGHT > list.scrollTop + list.clientHeight)) { list.scrollTop = (now - 1) * HEIGHT; touched = -Infinity; }
}

function tick(item, name) { ticked.set(item, name); }

async function onward() {
  if (place() < 0) await load(0);
  const next = place() + 1;
  if (next === 0) return;
  await load(Math.floor(next / CHUNK));
  if (row(next)) visit(row(next).item);
}

async function back() {
  const item = trail.pop();
  if (item == null) return;
  await visit(item);
  trail.pop(); // where it came from is no step of its own
}

list.addEventListener("scroll", scrolled, { passive: true });
for (const sign of ["wheel", "touchmove", "pointerdown", "keydown"]) list.addEventListener(sign, () => { touched = performance.now(); }, { passive: true });
rows.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-item]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  visit(Number(link.dataset.item));
});
at("adopt").addEventListener("click", () => adopt(latest));
addEventListener("resize", draw);

// -- how far the review is: asked for after an answer, and now and then, as others may be at it -------------------------

let timer;
function ask(delay) {
  clearTimeout(timer);
  timer = setTimeout(async () => {
    try {
      const reply = document.hidden ? null : await fetch("/state");
      const now = reply?.ok ? await reply.json() : null;
      if (now) {
        at("progress").innerHTML = now.progress;
        if (now.version > latest) { latest = now.version; follow(); }
      }
    } catch { /* asked again in a while */ }
    ask(2500);
  }, delay);
}

rows.replaceChildren();
rows.classList.add("virtual");
draw();
ask(2500);
document.documentElement.dataset.ready = "true";
})();
