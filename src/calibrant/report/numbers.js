// Numbers: the same computations as in the package, from the embedded samples.

// Text made by packed() in _page.py, as a typed array.
async function unpack(field) {
  const types = { Float64Array, Float32Array, Uint32Array, Int32Array, Int16Array, Uint8Array };
  return new types[field.type](await inflate(field.data));
}

async function inflate(text) {
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

async function readModel(given) {
  const model = { ...given };
  for (const name of ["confidence", "count", "hits", "correct", "label", "gaps", "second", "weight"]) {
    if (given[name]) model[name] = await unpack(given[name]);
  }
  model.series = await Promise.all(given.series.map(async (column) => (
    { values: await unpack(column), scale: column.scale })));
  model.moves = model.correct !== undefined; // confidences alone have no temperature
  return model;
}

// Samples at temperature T: distinct confidences in rising order with counts and hits, and the NLL.
function atTemperature(model, T) {
  if (!model.moves) return { ranked: model, nll: NaN };
  const odds = model.gaps ? oddsOfGaps(model, T) : oddsOfSeries(model, T);
  const ranked = T === 1 ? model : model.weight ? rankWeighted(odds, model) : rank(odds, model.correct);
  return { ranked, nll: meanNll(model.label, odds, T, model.weight) };
}

// The odds against the predicted class: the sum over the other classes of exp(gap / T).
function oddsOfGaps({ gaps, correct }, T) {
  const others = gaps.length / correct.length;
  return Float64Array.from(correct, (_, i) => {
    let sum = 0;
    for (let j = i * others; j < (i + 1) * others; j++) sum += Math.exp(gaps[j] / T);
    return sum;
  });
}

// ln of the odds is g / T + h(T), with h as a Chebyshev series in ln T / ln R.
function oddsOfSeries({ second, series, reach }, T) {
  const sum = Float64Array.from(second, (gap) => gap / T);
  const x = Math.log(T) / Math.log(reach);
  let [now, next] = [1, x];
  for (const { values, scale } of series) {
    const weight = now * scale;
    for (let i = 0; i < sum.length; i++) sum[i] += weight * values[i];
    [now, next] = [next, 2 * x * next - now];
  }
  for (let i = 0; i < sum.length; i++) {
    const s = Math.exp(sum[i]), whole = Math.round(s);
    // Equal logits give whole odds at every temperature, and confidences on the edges of bins.
    sum[i] = Math.abs(s - whole) < 2e-6 * s ? whole : s;
  }
  return sum;
}

function meanNll(label, odds, T, weight) {
  let sum = 0, total = 0;
  for (let i = 0; i < label.length; i++) {
    const counts = weight ? weight[i] : 1;
    sum += counts * (Math.log1p(odds[i]) - label[i] / T);
    total += counts;
  }
  return sum / total;
}

// With sampling weights a sample counts as many times as it stands for others.
function rankWeighted(odds, { correct, weight }) {
  const order = Uint32Array.from(odds, (_, i) => i).sort((i, j) => odds[j] - odds[i]);
  const confidence = [], count = [], hits = [];
  let last = NaN;
  for (const i of order) {
    if (odds[i] !== last) {
      confidence.push(1 / (1 + odds[i]));
      count.push(0);
      hits.push(0);
      last = odds[i];
    }
    count[count.length - 1] += weight[i];
    hits[hits.length - 1] += weight[i] * correct[i];
  }
  return { confidence, count, hits };
}

// Typed arrays are sorted fast; right and wrong samples apart, so that no index has to be sorted.
function rank(odds, correct) {
  const right = odds.filter((_, i) => correct[i]).sort();
  const wrong = odds.filter((_, i) => !correct[i]).sort();
  const confidence = [], count = [], hits = [];
  let a = right.length - 1, b = wrong.length - 1;
  while (a >= 0 || b >= 0) {
    const top = Math.max(a >= 0 ? right[a] : -1, b >= 0 ? wrong[b] : -1);
    const [hadA, hadB] = [a, b];
    while (a >= 0 && right[a] === top) a--;
    while (b >= 0 && wrong[b] === top) b--;
    confidence.push(1 / (1 + top));
    count.push(hadA - a + hadB - b);
    hits.push(hadA - a);
  }
  return { confidence, count, hits };
}

// Where each bin begins among the distinct confidences, and where the last one ends.
function binCuts(ranked, bins, binning) {
  const size = ranked.confidence.length, cuts = [0];
  if (binning === "width") { // (lo, hi]: a value on an edge belongs to the bin below
    for (let b = 1, i = 0; b < bins; b++) {
      while (i < size && ranked.confidence[i] <= b / bins) i++;
      cuts.push(i);
    }
  } else { // a group of equal confidences goes where its middle sample falls
    const total = ranked.count.reduce((sum, n) => sum + n, 0);
    const small = Math.floor(total / bins), larger = total % bins;
    for (let b = 1, i = 0, seen = 0; b < bins; b++) {
      const first = b * small + Math.min(b, larger);
      while (i < size && seen + (ranked.count[i] - 1) / 2 < first) seen += ranked.count[i++];
      cuts.push(i);
    }
  }
  return [...cuts, size];
}

// The table of bins: edges, count, mean confidence, accuracy and its interval.
function reliability(ranked, bins, binning, z) {
  const cuts = binCuts(ranked, bins, binning), rows = [];
  for (let b = 0; b < bins; b++) {
    let count = 0, said = 0, hits = 0;
    for (let i = cuts[b]; i < cuts[b + 1]; i++) {
      count += ranked.count[i];
      said += ranked.count[i] * ranked.confidence[i];
      hits += ranked.hits[i];
    }
    const [low, high] = wilson(hits, count, z);
    rows.push({
      from: binEdge(ranked, cuts, b, bins, binning), to: binEdge(ranked, cuts, b + 1, bins, binning),
      count, confidence: said / count, accuracy: hits / count, low, high,
    });
  }
  return rows;
}

function binEdge(ranked, cuts, b, bins, binning) {
  if (binning === "width" || b === 0 || b === bins) return b / bins;
  const after = cuts[b], size = ranked.confidence.length;
  if (after === 0 || after === size) return after === 0 ? 0 : 1;
  return (ranked.confidence[after - 1] + ranked.confidence[after]) / 2;
}

function wilson(hits, n, z) {
  if (n === 0) return [NaN, NaN];
  const share = hits / n, z2 = z * z;
  const middle = (share + z2 / (2 * n)) / (1 + z2 / n);
  const half = z / (1 + z2 / n) * Math.sqrt(share * (1 - share) / n + z2 / (4 * n * n));
  return [Math.min(Math.max(middle - half, 0), share), Math.max(Math.min(middle + half, 1), share)];
}

function ece(rows) {
  const full = rows.filter((row) => row.count);
  const total = full.reduce((sum, row) => sum + row.count, 0);
  return full.reduce((sum, row) => sum + row.count * Math.abs(row.accuracy - row.confidence), 0) / total;
}

function meanConfidence(ranked) {
  let sum = 0, total = 0;
  for (let i = 0; i < ranked.count.length; i++) {
    sum += ranked.count[i] * ranked.confidence[i];
    total += ranked.count[i];
  }
  return sum / total;
}

function percent(value, digits = 2) {
  return Number.isNaN(value) ? "undefined" : `${(100 * value).toFixed(digits)} %`;
}

function decimal(value, digits = 4) {
  if (Number.isNaN(value)) return "undefined";
  return Number.isFinite(value) ? value.toFixed(digits) : "∞";
}
