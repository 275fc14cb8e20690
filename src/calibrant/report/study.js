// The explorer of a study: a table that is sorted and filtered, and charts that follow it.

const FIRST_ROWS = 200;
const MOST_LINES = 12;
const MOST_BARS = 4; // error bars of more lines hide one another

async function exploreStudy(data) {
  const study = {
    ...data, seeds: await unpack(data.seeds),
    dimensions: await Promise.all(data.dimensions.map(async (d) => ({ ...d, codes: await unpack(d.codes) }))),
    metrics: await Promise.all(data.metrics.map(async (m) => (
      { ...m, mean: await unpack(m.mean), spread: await unpack(m.spread) }))),
  };
  const state = { filters: {}, words: "", sort: null, limit: FIRST_ROWS };
  const refresh = () => showStudy(study, state);

  addFilters(study, state, refresh);
  const search = element("search");
  search.addEventListener("input", () => { state.words = search.value.toLowerCase(); refresh(); });
  element("filters").addEventListener("submit", (event) => event.preventDefault());
  element("show-all").addEventListener("click", () => { state.limit = Infinity; refresh(); });
  addChoices("front-x", study, "accuracy", 0, refresh);
  addChoices("front-y", study, "ece", 1, refresh);
  if (element("shift-metric")) {
    addChoices("shift-metric", study, "ece", 0, refresh);
    const family = element("shift-family");
    study.families.forEach(({ name }, i) => family.append(new Option(name, i)));
    family.addEventListener("change", refresh);
  }
  wireHeatMaps();
  makeStudyTable(study, state, refresh);
  refresh();
  return refresh;
}

// The heat maps are in the page already; the box chooses the metric that is shown.
function wireHeatMaps() {
  const box = element("heat-metric");
  if (!box) return;
  const choose = () => document.querySelectorAll(".heat-map").forEach((map) => { map.hidden = map.dataset.metric !== box.value; });
  box.addEventListener("change", choose);
  choose();
}

// One box for each dimension that has more than one value; the test samples come first.
function addFilters(study, state, refresh) {
  const form = element("filters");
  for (const { key, label, names } of study.dimensions.filter((d) => d.names.length > 1)) {
    const box = document.createElement("select");
    box.id = `filter-${key}`;
    box.append(new Option("all", ""), ...names.map((name, code) => new Option(name, code)));
    if (key === "part" && names.includes("test")) box.value = String(names.indexOf("test"));
    const set = () => { state.filters[key] = box.value === "" ? null : Number(box.value); };
    set();
    box.addEventListener("change", () => { set(); refresh(); });
    const words = document.createElement("label");
    words.append(`${label} `, box);
    form.insertBefore(words, form.lastElementChild);
  }
}

function addChoices(id, study, wanted, fallback, refresh) {
  const box = element(id);
  study.metrics.forEach(({ label }, i) => box.append(new Option(label, i)));
  const at = study.metrics.findIndex(({ key }) => key === wanted);
  box.value = String(at >= 0 ? at : Math.min(fallback, study.metrics.length - 1));
  box.addEventListener("change", refresh);
}

const nameIn = (dimension, row) => dimension.names[dimension.codes[row]];
const shownValue = (metric, value) => metric.percent ? percent(value) : decimal(value);

function passes(study, state, row, without) {
  const inside = study.dimensions.every(({ key, codes }) =>
    key === without || state.filters[key] == null || codes[row] === state.filters[key]);
  return inside && (!state.words || study.dimensions.some((dimension) =>
    dimension.key !== without && nameIn(dimension, row).toLowerCase().includes(state.words)));
}

function makeStudyTable(study, state, refresh) {
  const varying = study.dimensions.filter((d) => d.names.length > 1);
  const dimensions = varying.length ? varying : study.dimensions;
  study.columns = [
    ...dimensions.map((d) => ({ label: d.label, text: (row) => nameIn(d, row), value: (row) => nameIn(d, row) })),
    { label: "seeds", numeric: true, text: (row) => String(study.seeds[row]), value: (row) => study.seeds[row] },
    ...study.metrics.map((m) => ({ label: m.percent ? `${m.label} (%)` : m.label, numeric: true, metric: m, text: (row) => cellText(m, row), value: (row) => m.mean[row] })),
  ];
  const fixed = study.dimensions.filter((d) => d.names.length === 1).map((d) => `${d.label}: ${d.names[0]}`);
  const made = makeTable(fixed.join(", ") || "All settings", study.columns.map(({ label }) => label), [], () => false);
  [...made.tHead.rows[0].cells].forEach((heading, i) => {
    if (study.columns[i].numeric) heading.className = "number";
    sortHeading(heading, (rising) => { state.sort = { column: study.columns[i], rising }; refresh(); });
  });
  element("study-table").replaceChildren(made);
}

function cellText(metric, row) {
  const [mean, spread] = [metric.mean[row], metric.spread[row]];
  if (Number.isNaN(mean)) return "–";
  const text = (value) => metric.percent ? decimal(100 * value, 2) : decimal(value);
  return Number.isNaN(spread) ? text(mean) : `${text(mean)} ± ${text(spread)}`;
}

function showStudy(study, state) {
  const rows = [...study.seeds.keys()].filter((row) => passes(study, state, row));
  if (state.sort) {
    const { column, rising } = state.sort;
    rows.sort((a, b) => compareCells(column.value(a), column.value(b), rising));
  }
  const best = study.columns.map((column) => bestOf(column, rows));
  const lines = rows.slice(0, state.limit).map((row) => {
    const line = document.createElement("tr");
    study.columns.forEach((column, i) => {
      const cell = line.insertCell();
      cell.textContent = column.text(row);
      cell.dir = column.numeric ? "" : "auto";
      cell.className = [column.numeric && "number", best[i] === cell.textContent && "best"].filter(Boolean).join(" ");
    });
    return line;
  });
  element("study-table").querySelector("tbody").replaceChildren(...lines);
  element("table-count").textContent = `${lines.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} settings ` +
    `match the filter, ${study.seeds.length.toLocaleString("en")} in total.`;
  element("show-all").hidden = lines.length === rows.length;
  drawFront(study, rows);
  if (element("shift")) drawShift(study, state);
}

// The text of the best mean: cells that read the same share it.
function bestOf(column, rows) {
  const direction = { lower: -1, higher: 1 }[column.metric?.better];
  const sound = rows.filter((row) => !Number.isNaN(column.value(row)));
  if (!direction || sound.length < 2) return null;
  return column.text(sound.reduce((a, b) => direction * column.value(b) > direction * column.value(a) ? b : a));
}

const sign = (metric) => metric.better === "higher" ? 1 : -1;

// The Pareto front of a group, from left to right.
function frontOf(rows, x, y) {
  const [a, b] = [sign(x), sign(y)];
  const beats = (p, q) => a * x.mean[p] >= a * x.mean[q] && b * y.mean[p] >= b * y.mean[q] &&
    (x.mean[p] !== x.mean[q] || y.mean[p] !== y.mean[q]);
  const front = [];
  for (const row of rows.toSorted((p, q) => a * (x.mean[q] - x.mean[p]) || b * (y.mean[q] - y.mean[p]))) {
    if (!front.some((other) => beats(other, row))) front.push(row);
  }
  return front.sort((p, q) => x.mean[p] - x.mean[q]);
}

function settingName(study, row) {
  return study.dimensions.filter((d) => d.names.length > 1).map((d) => nameIn(d, row)).join(", ") || "the setting";
}

function groups(rows, key) {
  const found = new Map();
  for (const row of rows) {
    if (!found.has(key(row))) found.set(key(row), []);
    found.get(key(row)).push(row);
  }
  return found;
}

function drawFront(study, rows) {
  const [x, y] = ["front-x", "front-y"].map((id) => study.metrics[Number(element(id).value)]);
  const of = Object.fromEntries(study.dimensions.map((d) => [d.key, d]));
  const sound = rows.filter((row) => Number.isFinite(x.mean[row]) && Number.isFinite(y.mean[row]));
  const fronts = [...groups(sound, (row) => ["data", "model", "part"].map((key) => of[key].codes[row]).join()).values()]
    .map((some) => frontOf(some, x, y));
  const points = (some) => ({ x: some.map((row) => x.mean[row]), y: some.map((row) => y.mean[row]) });
  const traces = fronts.map((front) => ({ ...points(front), mode: "lines", hoverinfo: "skip", showlegend: false,
    line: { color: "#888888", width: 1.5, dash: "dot" } }));
  const on = new Set(fronts.flat());
  const said = (row) => `${settingName(study, row)}: ${x.label} ${shownValue(x, x.mean[row])}, ` +
    `${y.label} ${shownValue(y, y.mean[row])}${on.has(row) ? ", on the Pareto front" : ""}`;
  // The points of the front are numbered; the list below names them. Names in the chart would overlap.
  const number = new Map([...on].map((row, i) => [row, i + 1]));
  element("front-names").replaceChildren(...[...on].map((row) => {
    const line = document.createElement("li");
    line.textContent = said(row).replace(", on the Pareto front", "");
    return line;
  }));
  for (const [code, some] of groups(sound, (row) => of.calibrator.codes[row])) {
    traces.push({
      ...points(some), mode: "markers+text", cliponaxis: false, name: plotText(of.calibrator.names[code]), meta: { step: true, said: some.map(said) },
      text: some.map((row) => String(number.get(row) ?? "")), textposition: "top center", customdata: some.map((row) => plotText(settingName(study, row))),
      marker: { color: colour(code), symbol: SYMBOLS[code % 8], size: some.map((row) => on.has(row) ? 13 : 8),
        opacity: some.map((row) => on.has(row) ? 1 : 0.6) },
      hovertemplate: `%{customdata}<br>${x.label} %{x:${x.percent ? ".2%" : ".4f"}}<br>${y.label} %{y:${y.percent ? ".2%" : ".4f"}}<extra></extra>`,
    });
  }
  const arrow = (metric) => ({ lower: " (lower is better)", higher: " (higher is better)" })[metric.better] ?? "";
  draw("pareto", traces, {
    showlegend: true, legend: { orientation: "h", y: 1.08 },
    xaxis: { title: { text: x.label + arrow(x) }, tickformat: x.percent ? ".1%" : "" },
    yaxis: { title: { text: y.label + arrow(y) }, tickformat: y.percent ? ".1%" : "" },
  }, `${y.label} against ${x.label} of ${sound.length} settings. On the Pareto front: ` +
    `${[...on].slice(0, 12).map(said).join("; ") || "none"}`);
}

function drawShift(study, state) {
  const metric = study.metrics[Number(element("shift-metric").value)];
  const family = study.families[Number(element("shift-family").value)];
  const parts = study.dimensions.find((d) => d.key === "part");
  const others = study.dimensions.filter((d) => d.key !== "part");
  const rows = [...study.seeds.keys()].filter((row) => passes(study, state, row, "part") && Number.isFinite(metric.mean[row]));
  const place = new Map(family.parts.map((name, i) => [name, i]));
  const lines = [...groups(rows.filter((row) => place.has(nameIn(parts, row))),
    (row) => others.map((d) => d.codes[row]).join()).values()].map((some) => {
    const ordered = some.sort((a, b) => place.get(nameIn(parts, a)) - place.get(nameIn(parts, b)));
    return { ordered, mean: ordered.reduce((sum, row) => sum + metric.mean[row], 0) / ordered.length };
  }).sort((a, b) => sign(metric) * (b.mean - a.mean));
  const shown = lines.slice(0, MOST_LINES);
  const label = (row) => others.filter((d) => d.names.length > 1).map((d) => nameIn(d, row)).join(", ") || "the setting";
  const traces = shown.map(({ ordered }, i) => ({
    x: ordered.map((row) => family.levels ? family.levels[place.get(nameIn(parts, row))] : plotText(nameIn(parts, row))),
    y: ordered.map((row) => metric.mean[row]), mode: "lines+markers", name: plotText(label(ordered[0])),
    line: { color: colour(i), dash: DASHES[Math.floor(i / 8) * 2 % 8], width: 2 }, marker: { symbol: SYMBOLS[i % 8], size: 8 },
    error_y: { visible: shown.length <= MOST_BARS, type: "data", array: ordered.map((row) => metric.spread[row] || 0), thickness: 1, width: 3 },
    meta: { step: true, said: ordered.map((row) => `${label(row)} on ${nameIn(parts, row)}: ${metric.label} ${cellText(metric, row)}${metric.percent ? " %" : ""}`) },
    text: ordered.map((row) => plotText(nameIn(parts, row))),
    hovertemplate: `<b>%{fullData.name}</b><br>%{text}<br>${metric.label} %{y:${metric.percent ? ".2%" : ".4f"}}<extra></extra>`,
  }));
  element("shift-note").textContent = lines.length > shown.length
    ? `The ${shown.length} best of ${lines.length} settings on average; filter the table above to see others.` : "";
  draw("shift", traces, {
    showlegend: true, legend: { orientation: "h", y: -0.2 },
    xaxis: family.levels ? { title: { text: `level of ${plotText(family.name)} (0: test samples)` }, dtick: 1 } : { type: "category" },
    yaxis: { title: { text: metric.label }, tickformat: metric.percent ? ".1%" : "", rangemode: metric.better === "lower" ? "tozero" : "normal" },
  }, `${metric.label} under shift, the best first. ${shown.slice(0, 5).map(({ ordered }) =>
    `${label(ordered[0])}: ${ordered.map((row) => `${nameIn(parts, row)} ${shownValue(metric, metric.mean[row])}`).join(", ")}`).join("; ")}`);
}
