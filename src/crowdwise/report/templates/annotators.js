// -- annotators: table, selection, the matrix of the selected one -----------------------------------------------------

let picked = -1;
const followers = []; // functions that are told who was picked

const columns = [
  { key: "name", title: "Annotator" },
  { key: "labels", title: "Labels", number: true },
  { key: "skill", title: "Skill", number: true },
  { key: "agreement", title: "Agrees", number: true, hint: "share of labels that are the consensus" },
  { key: "worst", title: "Worst class" },
  { key: "confused", title: "Confuses" },
  { key: "spammer", title: "Spammer", number: true, hint: "1: labels do not depend on the item; 0: perfect" },
  { key: "seconds", title: "Seconds", number: true, hint: "median time per label" },
  { key: "drift", title: "Drift", number: true, hint: "change of skill from the first label to the last" },
  { key: "group", title: "Group", number: true },
].filter((column) => people.some((row) => row[column.key] != null));

const groupColour = (group) => `var(--g${Math.min(group, 6)})`;
const groupName = (group) => `group ${group + 1}`;
const confusion = (row) => (row.confused == null ? "–" : `${row.confused} as ${row.with}`);
const signed = (value) => (value == null ? "–" : `${value > 0 ? "+" : ""}${(100 * value).toFixed(0)}%`);

function dot(group) {
  const mark = make("span", { class: "dot", "aria-hidden": "true" });
  mark.style.background = groupColour(group);
  return mark;
}

function pick(id, { scroll = false } = {}) {
  if (!people[id]) return;
  picked = id;
  followers.forEach((follow) => follow(id));
  if (scroll) at("annotator-detail").scrollIntoView({ block: "center" });
}

function nameButton(id) {
  const name = report.items.people?.[id] ?? people[id].name;
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
  if (column.key === "name") return make("th", { scope: "row" }, make("button", { type: "button", class: "plain data", "data-pick": id }, row.name));
  if (column.key === "skill") return make("td", { class: "number" }, percent(value), make("span", { class: "hidden" }, `, ${percent(row.low)} to ${percent(row.high)}`), skillBar(row));
  const text = {
    labels: () => count(value), agreement: () => percent(value), confused: () => confusion(row), spammer: () => value?.toFixed(2),
    worst: () => (value == null ? "–" : `${value} (${percent(row.worstSkill)})`), seconds: () => value?.toFixed(1), drift: () => signed(value),
  }[column.key];
  if (column.key === "group") return make("td", { class: "number" }, value == null ? "–" : [dot(value), ` ${value + 1}`]);
  return make("td", { class: column.number ? "number" : "data" }, text() ?? "–");
}

function startAnnotators() {
  const body = document.querySelector("#annotator-table tbody");
  if (!body) return;
  const lines = people.map((row, id) => make("tr", { "data-id": id }, columns.map((column) => cell(row, id, column))));
  const heads = columns.map((column) => make("th", { scope: "col", class: column.number ? "number" : null, title: column.hint },
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
    at("annotator-count").textContent = shown === people.length ? `${count(shown)} annotators` : `${count(shown)} of ${count(people.length)} annotators`;
  }

  body.addEventListener("click", (event) => pick(Number(event.target.closest("tr").dataset.id)));
  body.addEventListener("keydown", (event) => {
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    let line = step && event.target.closest("tr")[step];
    while (line && line.hidden) line = line[step];
    if (!line) return;
    event.preventDefault();
    line.querySelector("button").focus();
    pick(Number(line.dataset.id));
  });
  at("annotator-search").addEventListener("input", search);
  followers.push((id) => {
    lines.forEach((line, place) => {
      line.classList.toggle("picked", place === id);
      if (place === id) line.setAttribute("aria-current", "true");
      else line.removeAttribute("aria-current");
    });
    detail(id);
    signal(at("chart-skills"), { picked: id });
  });
  body.append(...lines);
  search();
  sort(columns.find((column) => column.key === "skill") || columns[0]);
  const ranked = people.map((row, id) => ({ ...row, id })).filter((row) => row.skill != null).sort((a, b) => b.skill - a.skill);
  const points = ranked.map(({ id, name, skill, low, high, labels }, rank) => ({ id, name, skill, low, high, labels, rank }));
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

// The matrix of an annotator; where it depends on the item, and there is room, with a slider through some of the items.
function matrix(row, prefix, slides) {
  if (!row.matrix) return [make("p", { class: "muted" }, "The matrix is left out to keep this page small.")];
  const chart = make("div", { class: "chart matrix", id: `${prefix}-matrix` });
  const details = report.classes.length > 12 ? null : make("details", {}, make("summary", {}, "As a table"), matrixTable(row.matrix));
  const parts = [chart, details];
  if (slides && row.moments?.length > 1) {
    const words = make("p", { class: "muted data", role: "status" });
    const slider = make("input", { type: "range", min: 0, max: row.moments.length, value: 0, step: 1, "aria-label": "Item at which the matrix is shown", input: show });
    function show() {
      const moment = row.moments[slider.value - 1];
      words.textContent = moment ? `At item ${moment.item}: ${percent(moment.right)} likely to be right.` : "Mean over the annotator's items. Move the slider to see how it changes with the item.";
      slider.setAttribute("aria-valuetext", words.textContent);
      draw(chart, "matrix", { matrix: cells((moment || row).matrix) });
    }
    words.textContent = "Mean over the annotator's items. Move the slider to see how it changes with the item.";
    slider.setAttribute("aria-valuetext", words.textContent);
    parts.splice(1, 0, slider, words);
  }
  queueMicrotask(() => draw(chart, "matrix", { matrix: cells(row.matrix) }));
  return parts;
}

function similar(row) {
  return (row.similar || []).flatMap((id, place) => [place ? ", " : "", nameButton(id)]);
}

function detail(id) {
  const row = people[id];
  const curve = row.curve ? make("div", { class: "chart" }) : null;
  fill(at("annotator-detail"),
    make("h3", { class: "data" }, row.name),
    facts([
      ["Labels", count(row.labels)],
      ["Skill", row.skill == null ? null : `${percent(row.skill)}, from ${percent(row.low)} to ${percent(row.high)}`],
      ["Worst class", row.worst == null ? null : `${row.worst}, recognised ${percent(row.worstSkill)}`],
      ["Most frequent error", row.confused == null ? null : confusion(row)],
      ["Overuses", row.overused],
      ["Group", row.group == null ? null : make("span", {}, dot(row.group), ` ${groupName(row.group)}`)],
      ["Errs like", row.similar?.length ? make("span", {}, similar(row)) : null],
      ["Seconds per label", row.seconds?.toFixed(1)],
      ["Drift", row.drift == null ? null : `${signed(row.drift)} from first to last label (${signed(row.driftLow)} to ${signed(row.driftHigh)})`],
      ["Labels to check", report.items.rows ? make("button", { type: "button", class: "plain", click: () => showItemsOf(id) }, "show the items") : null],
    ]),
    report.classes.length && people.some((each) => each.matrix) ? matrix(row, "annotator", true) : null,
    curve ? [make("h4", {}, "Over time"), curve] : null);
  if (curve) draw(curve, "curve", { curve: row.curve.map(([labels, right]) => ({ labels, right })) });
}
