// -- the first section, what to label next, training; and off we go ---------------------------------------------------

function startOverview() {
  const { agreement, classes, confidence } = report.overview;
  if (!classes) return;
  if (agreement.length) draw(at("chart-agreement"), "agreement", { agreement });
  const shares = [["labels", classes.labels], ["consensus", classes.consensus]].filter(([, values]) => values.some(Boolean));
  draw(at("chart-classes"), "classes", { classes: report.classes.flatMap((name, code) => shares.map(([what, values]) => ({ class: name, what, share: values[code] }))) });
  for (const table of at("overview").querySelectorAll("table")) table.after(withDownload(table.cloneNode(true), table.closest("details") ? "agreement" : "accuracy")[1]);
  if (!confidence.length) return;
  const first = Math.min(confidence.findIndex(Boolean), confidence.length / 2);
  const bins = confidence.map((items, bin) => ({ low: bin / confidence.length, high: (bin + 1) / confidence.length, items }));
  draw(at("chart-confidence"), "confidence", { confidence: bins.slice(Math.max(0, first)) });
}

function startNext() {
  const rows = report.next;
  if (!rows.length) return;
  const budget = () => Math.min(Math.max(Math.round(Number(at("next-budget").value)) || 1, 1), rows.length);

  function show() {
    const chosen = rows.slice(0, budget());
    let right = 0;
    const gain = [{ number: 0, right: 0 }, ...chosen.map((row, place) => ({ number: place + 1, right: (right += row.better) }))];
    const asked = new Set(chosen.map((row) => row.annotator)).size;
    at("next-words").textContent = `${counted(chosen.length, "label")} from ${counted(asked, "annotator")} ${chosen.length === 1 ? "is" : "are"} expected to put ${right < 0.05 ? "hardly any" : right.toFixed(1)} items right.`;
    fill(document.querySelector("#next-table tbody"), chosen.map((row) => make("tr", {}, make("th", { scope: "row", class: "data", title: row.item }, row.item), make("td", { class: "data", title: row.annotator }, row.annotator),
      make("td", { class: "data", title: row.label }, row.label), make("td", { class: "number" }, percent(row.sure)), make("td", { class: "number" }, row.gain.toFixed(2)))));
    draw(at("chart-gain"), "gain", { gain });
  }

  at("next-budget").addEventListener("input", show);
  at("next-download").addEventListener("click", () => download("label-next.csv", [["item", "annotator", "expected_gain"], ...rows.slice(0, budget()).map((row) => [row.item, row.annotator, row.gain])]));
  show();
}

function showTraining(training) {
  for (const [element, name] of [["chart-loss", "loss"], ["chart-agreeing", "agreeing"]]) if (at(element)) draw(at(element), name, { training });
}

function startRanking() {
  const { chart } = report.ranking;
  if (!chart) return;
  draw(at("chart-ranking"), "ranking", { comparison: chart }, { height: 32 * chart.length, title: chart[0].metric });
  at("ranking-table").after(withDownload(at("ranking-table").cloneNode(true), "methods")[1]);
}

function startTraining() {
  showTraining(report.training);
  if (!report.comparison.length) return;
  const settings = [...new Set(report.comparison.map((row) => row.column))];
  for (const setting of settings) {
    const comparison = report.comparison.filter((row) => row.column === setting).sort((a, b) => b.mean - a.mean);
    const chart = make("div", { class: "chart" });
    const lines = comparison.map((row) => make("tr", {}, make("th", { scope: "row", class: "data" }, row.row),
      make("td", { class: "number" }, row.mean.toFixed(row.digits ?? 2)), make("td", { class: "number" }, row.spread == null ? "–" : row.spread.toFixed(row.digits ?? 2)), make("td", { class: "number" }, row.runs)));
    const heads = ["Method", sentence(comparison[0].metric ?? "test accuracy, %"), "Standard deviation", "Runs"].map((title, place) => make("th", { scope: "col", class: place ? "number" : null }, title));
    at("comparison").append(make("figure", { class: "card" }, make("figcaption", { class: "data" }, setting.replaceAll("|", " · ")), chart,
      make("details", {}, make("summary", {}, "As a table"), withDownload(make("table", {}, make("thead", {}, make("tr", {}, heads)), make("tbody", {}, lines)), `methods on ${setting}`))));
    draw(chart, "comparison", { comparison }, { height: 32 * comparison.length, title: comparison[0].metric });
  }
}

// While it is served: follow the training, and load the page anew when anything else that it is made from has changed.
function startWatching() {
  if (report.live == null) return;
  const shape = ({ training, comparison }) => JSON.stringify([training.length > 0, training.some((row) => row.agreement != null), comparison]);
  setInterval(async () => {
    try {
      const answer = await fetch("progress");
      const now = answer.ok ? await answer.json() : null;
      if (now && (now.crowd !== report.live || shape(now) !== shape(report))) location.reload();
      else if (now && at("state") && now.state !== at("state").textContent) {
        at("state").textContent = now.state;
        showTraining(now.training);
      }
    } catch { /* the server is gone: what is shown stays */ }
  }, 2000);
}

startTheme();
startNavigation();
startOverview();
startAnnotators();
startMap();
startItems();
startNext();
startRanking();
startTraining();
if (people.length) { // the last one that was looked at, or else the first of the table
  const last = people.findIndex((row) => row.name === remember("crowdwise-picked"));
  pick(last >= 0 ? last : people.reduce((best, row, id) => ((row.skill ?? -1) > (people[best].skill ?? -1) ? id : best), 0));
}
followers.push((id) => remember("crowdwise-picked", people[id].name));
startWatching();
allDrawn().then(() => { document.documentElement.dataset.complete = "true"; });
