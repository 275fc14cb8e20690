// Start: theme, print, unpack Plotly, then draw the page.

const THEMES = ["", "light", "dark"];
let redraw = () => {};

function wireTheme() {
  const button = element("theme");
  button.addEventListener("click", () => {
    const root = document.documentElement;
    const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "") + 1) % THEMES.length];
    if (next) root.dataset.theme = next;
    else delete root.dataset.theme;
    button.textContent = `Theme: ${next || "automatic"}`;
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());
}

// Charts are drawn again in light colours and at the width of the paper.
function wirePrint() {
  element("print").addEventListener("click", () => print());
  const change = (now) => { printing = now; document.body.classList.toggle("printing", now); redraw(); };
  addEventListener("beforeprint", () => change(true));
  addEventListener("afterprint", () => change(false));
}

async function loadPlotly() {
  const script = document.createElement("script");
  script.textContent = new TextDecoder().decode(await inflate(element("plotly").textContent));
  document.head.append(script);
}

try {
  wireTheme();
  wirePrint();
  document.querySelectorAll("table.sortable").forEach(makeSortable);
  const data = JSON.parse(element("data").textContent);
  await loadPlotly();
  redraw = data.study ? await exploreStudy(data.study) : await exploreModels(data);
  document.documentElement.dataset.ready = Math.round(performance.now());
} catch (error) {
  element("problem").hidden = false;
  element("problem").textContent = `The charts could not be drawn in this browser: ${error.message}`;
  throw error;
}
