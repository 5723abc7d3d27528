// -- items: filters, pages, cards -------------------------------------------------------------------------------------

const PER_PAGE = 10;
let showItemsOf = () => {};

const votes = (item) => Array.from({ length: item.labels.length / 2 }, (_, k) => [item.labels[2 * k], item.labels[2 * k + 1]]);

function tally(item) { // class -> annotators, the most chosen class first
  const by = new Map();
  for (const [who, label] of votes(item)) by.set(label, [...(by.get(label) || []), who]);
  return [...by].sort((a, b) => b[1].length - a[1].length || a[0] - b[0]);
}

const kinds = [
  ["all", "all items", () => true],
  ["differ", "labels differ", (item) => tally(item).length > 1],
  ["tied", "votes are tied", (item) => { const found = tally(item); return found.length > 1 && found[0][1].length === found[1][1].length; }],
  ["changed", "consensus is not the majority", (item) => { const found = tally(item); return found.length > 0 && !found.some(([label, who]) => label === item.likely[0][0] && who.length === found[0][1].length); }],
  ["classifier", "classifier disagrees", (item) => item.predicted && item.predicted[0] !== item.likely[0][0]],
  ["wrong", "consensus is not the truth", (item) => item.truth != null && item.truth !== item.likely[0][0]],
];

// A long text begins folded.
function folded(text) {
  const quote = make("blockquote", { class: "data" }, short(text, 280));
  if ([...text].length > 280) quote.append(" ", make("button", { type: "button", class: "plain", "aria-label": "Show the whole text", click: () => fill(quote, text) }, "more"));
  return quote;
}

// Items that are most like it: their label, how sure that is, and what they look like.
function similarItems(item) {
  const words = ([place, id, label, sure, text]) => {
    const picture = report.items.rows[place]?.picture;
    return make("li", {}, picture ? make("img", { src: picture, alt: "" }) : null, make("span", {}, own(id), ": ", make("b", { class: "data" }, report.classes[label]), sure == null ? "" : ` (${percent(sure)})`, text ? make("span", { class: "muted data" }, ` ${text}`) : null));
  };
  return item.near?.length ? make("div", { class: "near" }, make("h4", {}, "Most similar items"), make("ul", {}, item.near.map(words))) : null;
}

function card(item) {
  const name = (code) => report.classes[code];
  const likely = make("div", { class: "likely" }, item.likely.flatMap(([label, share]) => {
    if (share == null) return []; // the votes say it all
    const bar = make("i");
    bar.style.width = `${100 * share}%`;
    return [make("span", { class: "data" }, name(label)), bar, make("span", { class: "number" }, percent(share))];
  }));
  const given = make("dl", { class: "votes" }, tally(item).map(([label, who]) => make("div", {}, make("dt", {}, own(name(label)), ` (${who.length})`), who.map((id) => make("dd", {}, nameButton(id))))));
  const truth = item.truth == null ? null : make("span", { class: `tag ${item.truth === item.likely[0][0] ? "good" : "bad"}` }, "truth: ", own(name(item.truth)));
  const predicted = item.predicted ? make("span", { class: "tag" }, "classifier: ", own(name(item.predicted[0])), ` (${percent(item.predicted[1])})`) : null;
  const more = make("dl", { class: "votes" }, (item.more || []).map(([column, value, id]) => make("div", {}, make("dt", { class: "data" }, column), id >= 0 ? make("dd", {}, nameButton(id)) : null, make("dd", { class: "data" }, value))));
  return make("li", { class: `card item${item.picture ? " pictured" : ""}` },
    item.picture ? make("img", { src: item.picture, alt: `Item ${item.id}` }) : null,
    make("h3", {}, make("span", { class: "data" }, item.id), item.doubt == null ? null : make("span", { class: "muted" }, `${percent(item.doubt)} likely wrong`)),
    item.text != null ? folded(item.text) : null,
    item.address != null && !item.picture ? make("p", { class: "muted data" }, item.address) : null,
    likely, predicted || truth ? make("p", {}, predicted, predicted && truth ? " " : null, truth) : null, item.labels.length ? given : null, item.more?.length ? more : null, similarItems(item));
}

function startItems() {
  const rows = report.items.rows;
  if (!rows) return;
  let found = [];
  let page = 0;
  const names = report.items.people.map((name, id) => [id, name]).slice(0, Math.max(people.length, 300));
  options(at("item-class"), [["", "any class"], ...report.classes.map((name, code) => [code, name])]);
  options(at("item-kind"), kinds.filter(([, , test]) => rows.some(test)).map(([key, words]) => [key, words]));
  options(at("item-annotator"), [["", "anybody"], ...names.sort((a, b) => a[1].localeCompare(b[1], "en", { numeric: true }))]);

  function show() {
    const pages = Math.max(1, Math.ceil(found.length / PER_PAGE));
    page = Math.min(Math.max(page, 0), pages - 1);
    fill(at("item-list"), found.slice(page * PER_PAGE, (page + 1) * PER_PAGE).map(card));
    at("item-page").textContent = `page ${count(page + 1)} of ${count(pages)}`;
    at("item-back").disabled = page === 0;
    at("item-on").disabled = page === pages - 1;
  }

  function filter() {
    const label = at("item-class").value;
    const who = at("item-annotator").value;
    const test = kinds.find(([key]) => key === at("item-kind").value)[2];
    const wanted = at("item-search").value.trim().toLowerCase();
    found = rows.filter((item) => (label === "" || item.likely[0][0] === Number(label)) && test(item)
      && (who === "" || votes(item).some(([id]) => id === Number(who)))
      && (wanted === "" || `${item.id}\n${item.text ?? ""}`.toLowerCase().includes(wanted)));
    page = 0;
    at("item-count").textContent = found.length === rows.length ? counted(found.length, "item") : `${count(found.length)} of ${counted(rows.length, "item")}`;
    at("item-none").hidden = found.length > 0;
    show();
  }

  for (const id of ["item-class", "item-kind", "item-annotator"]) at(id).addEventListener("change", filter);
  at("item-search").addEventListener("input", filter);
  at("item-download").addEventListener("click", () => download("items.csv", [["item", "consensus", "probability", "likely_wrong", "labels", "truth", "text"], ...found.map((item) => [
    item.id, report.classes[item.likely[0][0]], item.likely[0][1] ?? "", item.doubt ?? "", votes(item).map(([who, label]) => `${report.items.people[who]}: ${report.classes[label]}`).join("; "),
    item.truth == null ? "" : report.classes[item.truth], item.text ?? ""])]));
  at("item-back").addEventListener("click", () => { page -= 1; show(); });
  at("item-on").addEventListener("click", () => { page += 1; show(); });
  showItemsOf = (id) => { at("item-annotator").value = id; filter(); at("items").scrollIntoView(); };
  filter();
}
