// The explorer of one or several models: temperature, bins, models on and off.

const CURVE_POINTS = 41;
const SAY_AFTER = 400; // milliseconds of rest before a screen reader is told the new figures
const NAMES = { width: "equal width", mass: "equal mass" };

async function exploreModels(data) {
  const models = await Promise.all(data.models.map(readModel));
  const state = { T: 1, own: false, bins: data.bins, binning: "width", shown: models.map(() => true) };
  const slider = element("temperature");
  let waiting = false, curveRun = 0, curve = [];

  const refresh = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; showModels(models, state); });
  };
  const setTemperature = (T, own = false) => {
    Object.assign(state, { T, own });
    slider.value = T;
    slider.setAttribute("aria-valuetext", temperatureName(state));
    element("temperature-shown").value = temperatureName(state);
    refresh();
    if (curve.length) Plotly.relayout("curve", { shapes: marker(state) });
  };
  const redrawCurve = async () => {
    if (!slider) return;
    const run = ++curveRun;
    const found = await curves(models, state, () => run === curveRun);
    if (run === curveRun) showCurve(state, curve = found);
  };

  // Confidences alone have no temperature, so the page has neither the slider nor the curve.
  slider?.addEventListener("input", () => setTemperature(Number(slider.value)));
  element("temperature-reset")?.addEventListener("click", () => setTemperature(1));
  element("temperature-best")?.addEventListener("click", () => setTemperature(1, true));
  for (const button of document.querySelectorAll("[data-temperature]")) {
    button.addEventListener("click", () => setTemperature(Number(button.dataset.temperature)));
  }
  for (const button of document.querySelectorAll("[data-binning]")) {
    button.addEventListener("click", () => {
      state.binning = button.dataset.binning;
      for (const other of document.querySelectorAll("[data-binning]")) {
        other.setAttribute("aria-pressed", other === button);
      }
      refresh();
      redrawCurve();
    });
  }
  const bins = element("bins");
  bins.addEventListener("input", () => {
    if (!bins.checkValidity() || bins.value === "") return;
    state.bins = Number(bins.value);
    refresh();
    redrawCurve();
  });
  for (const box of document.querySelectorAll(".toggle input")) {
    box.addEventListener("change", () => {
      state.shown[Number(box.dataset.model)] = box.checked;
      refresh();
      redrawCurve();
    });
  }
  document.querySelector(".controls").addEventListener("submit", (event) => event.preventDefault());

  showModels(models, state);
  redrawCurve();
  return () => { showModels(models, state); if (slider) showCurve(state, curve); };
}

const temperatureName = (state) => state.own ? "each at its best" : `T = ${state.T.toFixed(2)}`;

function temperatureOf(model, state) {
  if (!model.moves) return 1;
  return state.own ? Math.min(Math.max(model.best, 1 / model.reach), model.reach) : state.T;
}

function showModels(models, state) {
  for (const swatch of document.querySelectorAll(".swatch")) {
    swatch.style.background = colour(Number(swatch.dataset.index));
  }
  const found = models.map((model) => {
    const { ranked, nll } = atTemperature(model, temperatureOf(model, state));
    const rows = reliability(ranked, state.bins, state.binning, model.z);
    return { rows, ece: ece(rows), nll, confidence: meanConfidence(ranked) };
  });
  found.forEach((now, i) => {
    const write = (metric, text) => {
      const output = document.querySelector(`output[data-model="${i}"][data-metric="${metric}"]`);
      if (output) output.value = text;
    };
    write("ece", percent(now.ece));
    write("nll", models[i].moves ? decimal(now.nll) : "–");
    write("confidence", percent(now.confidence));
  });
  const bins = `in ${state.bins} bins of ${NAMES[state.binning]}`;
  const where = element("temperature") ? `${temperatureName(state)}, ${bins}` : bins;
  document.querySelector(".readout caption").textContent = `Now: ${where}`;
  say(`${where}: ` + models.map((model, i) => `${model.name} ECE ${percent(found[i].ece)}` +
    (model.moves ? `, NLL ${decimal(found[i].nll)}` : "")).join("; "));
  const shown = models.map((model, index) => ({ model, index, ...found[index] }))
    .filter(({ index }) => state.shown[index]);
  drawReliability(shown, where);
  const head = ["model", "bin", "samples", "says", "is right", "interval"];
  element("bins-table").replaceChildren(makeTable(
    `The bins: ${where}`, head,
    shown.flatMap(({ model, rows }) => rows.filter((row) => row.count).map((row) => [
      model.name, binName(row), shownCount(row.count), percent(row.confidence), percent(row.accuracy),
      `${(100 * row.low).toFixed(1)} … ${percent(row.high, 1)}`])),
    (i) => i > 1));
}

let saying;
function say(text) {
  clearTimeout(saying);
  saying = setTimeout(() => { element("live-said").textContent = text; }, SAY_AFTER);
}

const shownCount = (count) => count.toLocaleString("en", { maximumFractionDigits: 1 }); // of weighted samples a fraction
const binName = (row) => `${(100 * row.from).toFixed(1)} … ${percent(row.to, 1)}`;

function saidOf(model, row) {
  return `${model.name}, bin ${binName(row)}: ${shownCount(row.count)} samples, says ` +
    `${percent(row.confidence, 1)}, is right ${percent(row.accuracy, 1)} ` +
    `(interval ${(100 * row.low).toFixed(1)} … ${percent(row.high, 1)})`;
}

function drawReliability(shown, where) {
  const traces = [{ x: [0, 1], y: [0, 1], mode: "lines", hoverinfo: "skip", line: { color: "#888888", dash: "dash", width: 1.5 } }];
  for (const { model, index, rows } of shown) {
    const full = rows.filter((row) => row.count), total = full.reduce((sum, row) => sum + row.count, 0);
    const look = {
      name: plotText(model.name), meta: { step: true, said: full.map((row) => saidOf(model, row)) },
      customdata: full.map((row) => [binName(row), shownCount(row.count), percent(row.confidence, 1),
        percent(row.accuracy, 1), `${(100 * row.low).toFixed(1)} … ${percent(row.high, 1)}`]),
      hovertemplate: "<b>%{fullData.name}</b><br>bin %{customdata[0]}<br>%{customdata[1]} samples<br>" +
        "says %{customdata[2]}<br>is right %{customdata[3]}<br>interval %{customdata[4]}<extra></extra>",
    };
    traces.push({
      ...look, x: full.map((row) => row.confidence), y: full.map((row) => row.accuracy), mode: "lines+markers",
      line: { color: colour(index), width: 2, dash: DASHES[index % 8] },
      marker: { color: colour(index), size: 9, symbol: SYMBOLS[index % 8] },
      error_y: { type: "data", symmetric: false, array: full.map((row) => row.high - row.accuracy),
        arrayminus: full.map((row) => row.accuracy - row.low), color: colour(index), thickness: 1.2, width: 4 },
    });
    const width = (row) => Math.max(row.to - row.from, 0.002);
    traces.push({
      ...look, type: "bar", yaxis: "y2", x: full.map((row) => row.from + width(row) / 2), y: full.map((row) => row.count / total),
      width: full.map(width), meta: { ...look.meta, step: false },
      marker: { color: colour(index), opacity: shown.length > 1 ? 0.45 : 0.8, line: { width: 1, color: colour(index) } },
    });
  }
  const fixed = { automargin: false }; // to measure the margins anew would take half of the time of drawing
  const words = shown.map(({ model, ece: now }) => `${model.name}: ECE ${percent(now)}`).join("; ");
  return draw("reliability", traces, {
    barmode: "overlay",
    margin: { l: 72, r: 20, t: 12, b: 52 },
    xaxis: { ...fixed, title: { text: "confidence" }, range: [-0.01, 1.01], tickformat: ".0%", anchor: "y2" },
    yaxis: { ...fixed, title: { text: "accuracy" }, range: [-0.02, 1.02], tickformat: ".0%", domain: [0.27, 1] },
    yaxis2: { ...fixed, title: { text: "share" }, tickformat: ".0%", domain: [0, 0.2], rangemode: "tozero", nticks: 3 },
  }, `Reliability diagram, ${where}. ${words}`);
}

// ECE and NLL at many temperatures, a few at a time so that the page stays responsive.
async function curves(models, state, wanted) {
  const found = [];
  for (const [index, model] of models.entries()) {
    if (!model.moves || !state.shown[index]) continue;
    const points = [];
    for (let i = 0; i < CURVE_POINTS && wanted(); i++) {
      if (i % 2 === 0) await new Promise((resume) => setTimeout(resume));
      const T = model.reach ** (2 * i / (CURVE_POINTS - 1) - 1);
      const { ranked, nll } = atTemperature(model, Math.abs(T - 1) < 1e-9 ? 1 : T);
      points.push({ T, nll, ece: ece(reliability(ranked, state.bins, state.binning, model.z)) });
    }
    found.push({ model, index, points });
  }
  return found;
}

function marker({ T, own }) {
  return own ? [] : ["x", "x2"].map((xref, i) => ({ type: "line", xref, yref: i ? "y2 domain" : "y domain", x0: T, x1: T,
    y0: 0, y1: 1, line: { color: "#888888", width: 1.5, dash: "dot" } }));
}

function showCurve(state, found) {
  const traces = found.flatMap(({ model, index, points }) => ["ece", "nll"].map((metric, i) => ({
    x: points.map((point) => point.T), y: points.map((point) => point[metric]), xaxis: i ? "x2" : "x", yaxis: i ? "y2" : "y",
    mode: "lines", line: { color: colour(index), width: 2.5, dash: DASHES[index % 8] }, name: plotText(model.name),
    meta: { step: true, said: points.map((point) => `${model.name} at T = ${point.T.toFixed(2)}: ` +
      (i ? `NLL ${decimal(point.nll)}` : `ECE ${percent(point.ece)}`)) },
    hovertemplate: `<b>%{fullData.name}</b><br>T = %{x:.2f}<br>${i ? "NLL %{y:.4f}" : "ECE %{y:.2%}"}<extra></extra>`,
  })));
  const lowest = (points, metric) => points.reduce((best, point) => point[metric] < best[metric] ? point : best);
  const words = found.filter(({ points }) => points.length).map(({ model, points }) =>
    `${model.name}: lowest ECE ${percent(lowest(points, "ece").ece)} near T = ${lowest(points, "ece").T.toFixed(2)}, ` +
    `lowest NLL ${decimal(lowest(points, "nll").nll)} near T = ${lowest(points, "nll").T.toFixed(2)}`).join("; ");
  element("curve").closest("figure").hidden = !found.length;
  if (!found.length) return;
  const axis = { title: { text: "temperature" }, type: "log", tickvals: [0.1, 0.25, 0.5, 1, 2, 4, 10], tickangle: 0 };
  const narrow = element("curve").clientWidth < 560; // one below the other instead of side by side
  const [left, right, upper, lower] = narrow ? [[0, 1], [0, 1], [0.6, 1], [0, 0.4]] : [[0, 0.45], [0.56, 1], [0, 1], [0, 1]];
  draw("curve", traces, {
    xaxis: { ...axis, domain: left }, xaxis2: { ...axis, domain: right, anchor: "y2" },
    yaxis: { title: { text: "ECE" }, tickformat: ".1%", rangemode: "tozero", domain: upper },
    yaxis2: { title: { text: "NLL" }, anchor: "x2", domain: lower }, shapes: marker(state),
  }, `ECE and NLL against temperature. ${words}`);
  element("curve-table").replaceChildren(makeTable("ECE and NLL by temperature", ["model", "T", "ECE", "NLL"],
    found.flatMap(({ model, points }) => points.map((point) =>
      [model.name, point.T.toFixed(2), percent(point.ece), decimal(point.nll)])), (i) => i > 0));
}
