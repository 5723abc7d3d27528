// -- the map: annotators before and after purifying the graph ---------------------------------------------------------

function startMap() {
  const { x, y, counts } = report.map;
  if (!x) return;
  const groups = people.map((row) => row.group);
  const neighbours = (id) => people[id].similar.map((other) => people[other].name).join(", ");
  const nodes = people.map((row, id) => ({
    id, x: x[id], y: y[id], name: row.name, group: groupName(groups[id]), shade: Math.min(groups[id], 6), skill: row.skill, neighbours: neighbours(id),
  }));
  const edges = (list) => list.map(([from, to, weight]) => ({ from, to, weight, x: x[from], y: y[from], x2: x[to], y2: y[to] }));
  const charts = [["chart-before", edges(report.map.before), counts[0]], ["chart-after", edges(report.map.after), counts[1]]];
  let seen = -1;

  function look(id) { // without picking
    if (id === seen || !people[id]) return;
    seen = id;
    charts.forEach(([element]) => signal(at(element), { picked: id }));
    const row = people[id];
    fill(at("map-detail"), make("h3", { class: "data" }, row.name),
      facts([
        ["Group", [dot(row.group), ` ${groupName(row.group)}`]],
        ["Skill", skill(row)],
        ["Errs like", row.similar.length ? similar(row) : "nobody"],
      ]), matrix(row, "map", false));
  }

  let waiting;
  const listeners = {
    click: (datum) => datum && datum.name != null && pick(datum.id),
    pointerover: (datum) => { clearTimeout(waiting); if (datum && datum.name != null) waiting = setTimeout(() => look(datum.id), 120); },
    pointerout: () => { clearTimeout(waiting); waiting = setTimeout(() => look(picked), 400); },
  };
  for (const [element, lines, total] of charts) {
    draw(at(element), "map", { nodes, edges: lines }, { signals: { picked }, listeners });
    at(`map-${element.slice(6)}-count`).textContent = `${counted(total, "pair")}${lines.length < total ? `, the ${count(lines.length)} strongest drawn` : ""}`;
  }
  fill(at("map-legend"), [...new Set(groups)].sort((a, b) => a - b).filter((group) => group < 7).map((group) =>
    make("span", { role: "listitem" }, dot(group), `${groupName(group)}${group === 6 ? " and further" : ""} (${groups.filter((each) => Math.min(each, 6) === group).length})`)));
  const names = people.map((row, id) => [id, row.name]).sort((a, b) => a[1].localeCompare(b[1], "en", { numeric: true }));
  options(at("map-select"), names);
  at("map-select").addEventListener("change", (event) => pick(Number(event.target.value)));
  followers.push((id) => { at("map-select").value = id; look(id); });
}
