// -- annotators: table, selection, the matrix of the selected one -----------------------------------------------------

let picked = -1;
const followers = []; // functions that are told who was picked

const columns = [
  { key: "name", title: "Annotator" },
  { key: "labels", title: "Labels", number: true },
  { key: "skill", title: "Skill", number: true },
  { key: "verdict", title: "What to do" },
  { key: "agreement", title: "Agrees", number: true, hint: "share of labels that are the consensus" },
  { key: "worst", title: "Worst class" },
  { key: "confused", title: "Confuses" },
  { key: "spammer", title: "Spammer", number: true, hint: "1: labels do not depend on the item; 0: perfect" },
  { key: "off", title: "Off by", number: true, hint: "mean distance from the true class, in steps of the scale" },
  { key: "seconds", title: "Seconds", number: true, hint: "median time per label" },
  { key: "drift", title: "Drift", number: true, hint: "change of skill from the first label to the last" },
  { key: "group", title: "Group", number: true },
].filter((column) => people.some((row) => row[column.key] != null));

const groupName = (group) => `group ${group + 1}`;
const confusion = (row, cut = (name) => name) => [own(cut(row.confused)), " as ", own(cut(row.with))];
const signed = (value) => (value == null ? "–" : `${value > 0 ? "+" : ""}${(100 * value).toFixed(0)}%`);

// Colour and shape of a group, as on the map.
const dot = (group) => make("span", { class: `dot shape${Math.min(group, 6)}`, "aria-hidden": "true" });

function pick(id, { scroll = false } = {}) {
  if (!people[id]) return;
  picked = id;
  followers.forEach((follow) => follow(id));
  if (scroll) at("annotator-detail").scrollIntoView({ block: "nearest" });
}

function nameButton(id) {
  const name = report.items.people?.[id] ?? people[id].name; // people beyond those of the table have labelled items, too
  return id < people.length ? make("button", { type: "button", class: "plain data", click: () => pick(id, { scroll: true }) }, name) : make("span", { class: "data" }, name);
}

function skillBar(row) {
  const bar = make("span", { class: "skill", "aria-hidden": "true" }, make("i"), make("b"));
  bar.children[0].style.left = `${100 * row.low}%`;
  bar.children[0].style.right = `${100 - 100 * row.high}%`;
  bar.children[1].style.left = `${100 * row.skill}%`;
  return bar;
}

function cell(row, id, column) {
  const value = row[column.key];
  const content = {
    name: () => [make("button", { type: "button", class: "plain data", tabindex: -1, title: row.name.length > 20 ? row.name : null }, row.name), row.kind ? make("span", { class: "tag" }, row.kind) : null],
    labels: () => count(value), agreement: () => percent(value), confused: () => confusion(row, (name) => short(name, 16)), spammer: () => value.toFixed(2), off: () => value.toFixed(2), verdict: () => value,
    skill: () => [percent(value), ...(row.low == null ? [] : [make("span", { class: "hidden" }, `, ${percent(row.low)} to ${percent(row.high)}`), skillBar(row)])],
    worst: () => [own(short(value)), ` (${percent(row.worstSkill)})`], seconds: () => value.toFixed(1), drift: () => signed(value), group: () => [dot(value), ` ${value + 1}`],
  }[column.key];
  const attributes = column.key === "name" ? { scope: "row" } : { class: `${column.number ? "number" : "words"} of-${column.key}` };
  return make(column.key === "name" ? "th" : "td", attributes, value == null ? "–" : content());
}

function startAnnotators() {
  const body = document.querySelector("#annotator-table tbody");
  if (!body) return;
  const lines = people.map((row, id) => make("tr", { "data-id": id }, columns.map((column) => cell(row, id, column))));
  const heads = columns.map((column) => make("th", { scope: "col", class: `${column.number ? "number" : ""} of-${column.key}`, title: column.hint },
    make("button", { type: "button", click: () => sort(column) }, column.title)));
  fill(document.querySelector("#annotator-table thead tr"), heads);
  let order = { key: null, ascending: true };

  function sort(column) {
    const ascending = order.key === column.key ? !order.ascending : !column.number;
    order = { key: column.key, ascending };
    const missing = (id) => people[id][column.key] == null;
    const compare = (a, b) => {
      const [one, other] = [people[a][column.key], people[b][column.key]];
      return typeof one === "number" ? one - other : String(one).localeCompare(String(other), "en", { numeric: true });
    };
    const ids = people.map((_, id) => id).sort((a, b) => missing(a) - missing(b) || (missing(a) ? 0 : compare(a, b) * (ascending ? 1 : -1)) || a - b);
    body.append(...ids.map((id) => lines[id]));
    heads.forEach((head, place) => {
      if (columns[place] === column) head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
  }

  function search() {
    const wanted = at("annotator-search").value.trim().toLowerCase();
    let shown = 0;
    lines.forEach((line, id) => {
      const row = people[id];
      const text = [row.name, row.worst, row.confused, row.with].join("\n").toLowerCase();
      line.hidden = !text.includes(wanted);
      shown += !line.hidden;
    });
    at("annotator-count").textContent = shown === people.length ? counted(shown, "annotator") : `${count(shown)} of ${counted(people.length, "annotator")}`;
  }

  body.addEventListener("click", (event) => pick(Number(event.target.closest("tr").dataset.id)));
  body.addEventListener("keydown", (event) => {
    const shown = [...body.rows].filter((line) => !line.hidden);
    const place = shown.indexOf(event.target.closest("tr"));
    const line = shown[{ ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: shown.length - 1 }[event.key]];
    if (!line) return;
    event.preventDefault();
    pick(Number(line.dataset.id));
    line.querySelector("button").focus();
  });
  at("annotator-search").addEventListener("input", search);
  at("annotator-download").addEventListener("click", () => {
    const kept = [...new Set(people.flatMap((row) => Object.keys(row)))].filter((key) => people.every((row) => row[key] == null || typeof row[key] !== "object"));
    download("annotators.csv", [kept, ...people.map((row) => kept.map((key) => row[key] ?? ""))]);
  });
  followers.push((id) => {
    lines.forEach((line, place) => { // one stop of the tab key is enough: arrow keys go on from there
      line.classList.toggle("picked", place === id);
      if (place === id) line.setAttribute("aria-current", "true");
      else line.removeAttribute("aria-current");
      line.querySelector("button").tabIndex = place === id ? 0 : -1;
    });
    const [frame, line, head] = [body.closest(".scroll"), lines[id], body.parentElement.tHead.offsetHeight];
    if (line.offsetTop < frame.scrollTop + head) frame.scrollTop = line.offsetTop - head;
    else if (line.offsetTop + line.offsetHeight > frame.scrollTop + frame.clientHeight) frame.scrollTop = line.offsetTop + line.offsetHeight - frame.clientHeight;
    detail(id);
    if (at("chart-skills")) signal(at("chart-skills"), { picked: id });
  });
  body.append(...lines);
  search();
  sort(columns.find((column) => column.key === "skill") || columns[0]);
  if (!at("chart-skills")) return;
  const ranked = people.map((row, id) => ({ ...row, id })).filter((row) => row.skill != null).sort((a, b) => b.skill - a.skill);
  const every = Math.ceil(ranked.length / Math.max(4, Math.floor((at("chart-skills").clientWidth || 900) / (ranked.length > 30 ? 28 : 20)))); // so that names have room
  const points = ranked.map(({ id, name, skill, low, high, labels }, rank) => ({ id, name, skill, low, high, labels, rank, tag: rank % every ? "" : short(name, 16) }));
  draw(at("chart-skills"), "skills", { skills: points }, { signals: { picked }, listeners: { click: (datum) => datum && pick(datum.id) } });
}

function cells(flat) {
  const size = report.classes.length;
  return flat.map((share, place) => ({ true: report.classes[Math.floor(place / size)], label: report.classes[place % size], share: share / 100, whole: share }));
}

function matrixTable(flat) {
  const size = report.classes.length;
  const rows = report.classes.map((name, row) => make("tr", {}, make("th", { scope: "row", class: "data" }, name),
    flat.slice(row * size, (row + 1) * size).map((share) => make("td", { class: "number" }, `${share}%`))));
  return make("table", {}, make("caption", {}, "Share of each label (columns) given to each true class (rows)"),
    make("thead", {}, make("tr", {}, make("td"), report.classes.map((name) => make("th", { scope: "col", class: "data" }, name)))), make("tbody", {}, rows));
}

// The most frequent errors in words, where there are too many classes for a table of all.
function errorTable(flat) {
  const size = report.classes.length;
  const errors = [...flat.entries()].filter(([place, share]) => share > 0 && Math.floor(place / size) !== place % size).sort((a, b) => b[1] - a[1]).slice(0, 10);
  const rows = errors.map(([place, share]) => make("tr", {}, make("th", { scope: "row", class: "data" }, report.classes[Math.floor(place / size)]),
    make("td", { class: "data" }, report.classes[place % size]), make("td", { class: "number" }, `${share}%`)));
  const heads = ["True class", "Label given", "Share"].map((title, place) => make("th", { scope: "col", class: place === 2 ? "number" : null }, title));
  return make("table", {}, make("thead", {}, make("tr", {}, heads)), make("tbody", {}, rows));
}

// The matrix of an annotator; where it depends on the item, and there is room, with a slider through some of the items.
function matrix(row, prefix, slides) {
  if (!people.some((each) => each.matrix)) return [];
  if (!row.matrix) return [make("p", { class: "muted" }, "The matrix is left out to keep this page small.")];
  const many = report.classes.length > 12;
  const chart = make("div", { class: "chart matrix", id: `${prefix}-matrix` });
  const table = make("details", {}, make("summary", {}, many ? "Most frequent errors" : "As a table"));
  const parts = [chart, table];
  const mean = "Mean over the annotator's items. Move the slider to see how it changes with the item.";
  const words = make("p", { class: "muted data", role: "status" }, mean);
  const slider = make("input", { type: "range", min: 0, max: row.moments?.length, value: 0, step: 1, "aria-label": "Item at which the matrix is shown", "aria-valuetext": mean, input: move });

  function show({ matrix: flat }) {
    table.replaceChildren(table.firstChild, ...withDownload(many ? errorTable(flat) : matrixTable(flat), `matrix of ${row.name}`));
    draw(chart, "matrix", { matrix: cells(flat).filter(({ whole }) => !many || whole > 0) }, { renderer: many ? "canvas" : "svg" }); // thousands of cells
  }

  function move() {
    const moment = row.moments[slider.value - 1];
    fill(words, moment ? ["At item ", own(moment.item), `: ${percent(moment.right)} likely to be right.`] : [mean]);
    slider.setAttribute("aria-valuetext", words.textContent);
    show(moment || row);
  }

  if (slides && row.moments?.length > 1) parts.splice(1, 0, slider, words);
  queueMicrotask(() => show(row));
  return parts;
}

const skill = (row) => (row.skill == null ? null : `${percent(row.skill)}${row.low == null ? "" : `, from ${percent(row.low)} to ${percent(row.high)}`}`);

function similar(row) {
  return make("span", { class: "names" }, row.similar.map(nameButton));
}

function detail(id) {
  const row = people[id];
  const curve = row.curve ? make("div", { class: "chart" }) : null;
  fill(at("annotator-detail"),
    make("h3", { class: "data" }, row.name),
    facts([
      ["Kind", row.kind],
      ["Labels", row.labels == null ? null : count(row.labels)],
      ["Skill", skill(row)],
      ["Worst class", row.worst == null ? null : [own(row.worst), `, recognised ${percent(row.worstSkill)}`]],
      ["Main error", row.confused == null ? null : confusion(row)],
      ["Overuses", row.overused],
      ["Group", row.group == null ? null : [dot(row.group), ` ${groupName(row.group)}`]],
      ["Errs like", row.similar?.length ? similar(row) : null],
      ["Pace", row.seconds == null ? null : `${row.seconds.toFixed(1)} s per label`],
      ["Drift", row.drift == null ? null : `${signed(row.drift)} from first to last label (${signed(row.driftLow)} to ${signed(row.driftHigh)})`],
      ["Items", report.items.rows && report.items.people.length ? make("button", { type: "button", class: "plain", click: () => showItemsOf(id) }, "show those labelled") : null],
    ]),
    matrix(row, "annotator", true),
    curve ? [make("h4", {}, "Over time"), curve] : null);
  if (curve) draw(curve, "curve", { curve: row.curve.map(([labels, right]) => ({ labels, right })) });
}
