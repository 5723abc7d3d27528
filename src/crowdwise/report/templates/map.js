// -- the map: annotators, and lines between those who err alike -------------------------------------------------------

const MAP_HEIGHT = 440;

// Names that do not cover each other, those of the busiest annotators first.
function nameTags(nodes, width) {
  const spread = (key) => { const values = nodes.map((node) => node[key]); const low = Math.min(...values); return [low, Math.max(...values) - low || 1]; };
  const [[left, across], [bottom, up]] = [spread("x"), spread("y")];
  const place = (node) => [((node.x - left) / across) * (width - 60), ((node.y - bottom) / up) * (MAP_HEIGHT - 60)];
  const points = nodes.map(place);
  const taken = [];
  for (const node of [...nodes].sort((a, b) => (people[b.id].labels ?? 0) - (people[a.id].labels ?? 0))) {
    const text = short(node.name, 18), half = 3.4 * text.length;
    const [x, y] = place(node);
    const covers = nodes.length > 40 ? points.filter(([px, py]) => Math.abs(px - x) < half && py > y + 4 && py < y + 19).length : 0;
    if (covers > 1) continue;
    if (taken.some((other) => Math.abs(other.x - x) < other.half + half + 4 && Math.abs(other.y - y) < 17)) continue;
    taken.push({ x, y, half });
    node.tag = text;
  }
}

function startMap() {
  const { x, y, counts } = report.map;
  if (!x) return;
  const groups = people.map((row) => row.group);
  const neighbours = (id) => people[id].similar.map((other) => people[other].name).join(", ");
  const nodes = people.map((row, id) => ({
    id, x: x[id], y: y[id], name: row.name, group: groupName(groups[id]), shade: Math.min(groups[id], 6), skill: row.skill, neighbours: neighbours(id),
  }));
  const edges = (list) => list.map(([from, to, weight]) => ({ from, to, weight, x: x[from], y: y[from], x2: x[to], y2: y[to] }));
  const lines = { before: [edges(report.map.before), counts[0]], after: [edges(report.map.after), counts[1]] };
  const words = {
    before: "Lines join each annotator with those who err most alike.",
    after: "Of the near pairs, these are left when pairs count less that share few further neighbours: chance resemblance goes, groups stay.",
  };
  let seen = -1;
  let drawnLines = "after";

  function look(id) { // without picking
    if (id === seen || !people[id]) return;
    seen = id;
    signal(at("chart-map"), { picked: id });
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
  nameTags(nodes, at("chart-map").clientWidth || 700);

  function show(which) {
    drawnLines = which;
    const [shown, total] = lines[which];
    draw(at("chart-map"), "map", { nodes, edges: shown }, { signals: { picked: seen < 0 ? picked : seen }, listeners });
    at("map-words").textContent = `${words[which]} ${sentence(counted(total, "pair"))}${shown.length < total ? `, the ${count(shown.length)} strongest drawn` : ""}.`;
  }

  show(drawnLines);
  for (const choice of document.getElementsByName("map-lines")) choice.addEventListener("change", () => show(choice.value));
  fill(at("map-legend"), [...new Set(groups)].sort((a, b) => a - b).filter((group) => group < 7).map((group) =>
    make("span", { role: "listitem" }, dot(group), `${groupName(group)}${group === 6 ? " and further" : ""} (${groups.filter((each) => Math.min(each, 6) === group).length})`)));
  const names = people.map((row, id) => [id, row.name]).sort((a, b) => a[1].localeCompare(b[1], "en", { numeric: true }));
  options(at("map-select"), names);
  at("map-select").addEventListener("change", (event) => pick(Number(event.target.value)));
  followers.push((id) => { at("map-select").value = id; look(id); });
}
