// Shared parts of all charts. Untrusted names never reach Plotly as markup.

const PALETTES = { // Okabe and Ito's colours, darkened on white to a contrast of 4.5 or more
  light: ["#0072b2", "#b84a00", "#00704f", "#9c3f75", "#7a5900", "#2b6a99", "#333333", "#6b6200"],
  dark: ["#56b4e9", "#f08a4b", "#2fc59b", "#e09bc2", "#e6a93c", "#8fc9f0", "#e6e6e6", "#f0e442"],
};
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon"];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash"];
const element = (id) => document.getElementById(id);

// Plotly reads <b>, <br> and links in texts; an isolated, escaped name stays a name.
function plotText(name) {
  const escaped = String(name).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  return `\u2068${escaped}\u2069`;
}

let printing = false;
function isDark() {
  if (printing) return false;
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

const colour = (index) => PALETTES[isDark() ? "dark" : "light"][index % 8];

function layout(extra) {
  const [ink, grid] = isDark() ? ["#e8eaed", "#3c4147"] : ["#1b1d1f", "#d9dce0"];
  const axis = { gridcolor: grid, zerolinecolor: grid, linecolor: ink, ticks: "outside", tickcolor: grid,
    automargin: true, fixedrange: true };
  const made = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "closest",
    font: { color: ink, size: 13, family: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif" },
    margin: { l: 56, r: 16, t: 12, b: 48 }, hoverdistance: 40,
    hoverlabel: { align: "left", bgcolor: isDark() ? "#23272b" : "#ffffff", bordercolor: ink, font: { color: ink } },
    ...extra,
  };
  for (const key of Object.keys(made).filter((name) => /^[xy]axis/.test(name))) made[key] = { ...axis, ...made[key] };
  return made;
}

function draw(id, traces, extra, words) {
  const plot = element(id);
  plot.setAttribute("aria-label", words);
  const size = printing ? { width: plot.clientWidth, height: plot.clientHeight } : { autosize: true };
  Plotly.react(plot, traces, layout({ ...extra, ...size }), { displayModeBar: false, responsive: true });
  if (!plot.dataset.keys) steppable(plot);
}

// The arrow keys visit the labelled points, as the mouse does.
function steppable(plot) {
  plot.dataset.keys = "on";
  const said = element(`${plot.id}-said`);
  const points = () => plot.data.flatMap((trace, curveNumber) => (trace.meta?.step ? trace.meta.said : []).map(
    (text, pointNumber) => ({ curveNumber, pointNumber, text })));
  let at = -1;
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    const all = points();
    if (step === undefined || !all.length) return;
    event.preventDefault();
    at = Math.min(Math.max(at + step, 0), all.length - 1);
    said.textContent = all[at].text;
    const { xaxis = "x", yaxis = "y" } = plot.data[all[at].curveNumber];
    Plotly.Fx.hover(plot, [all[at]], xaxis + yaxis);
  });
  plot.addEventListener("blur", () => { at = -1; Plotly.Fx.unhover(plot); });
  plot.on("plotly_hover", (event) => {
    const point = event.points[0];
    const text = point?.data.meta?.said?.[point.pointNumber];
    if (text) said.textContent = text;
  });
}
