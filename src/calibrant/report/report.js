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

// On a phone the first chart must not be pages below the verdict.
function foldAnswers() {
  const answers = document.querySelectorAll("details.answers");
  const set = (open) => answers.forEach((part) => { part.open = open; });
  if (matchMedia("(max-width: 40rem)").matches) set(false);
  addEventListener("beforeprint", () => set(true));
}

async function loadPlotly() {
  const script = document.createElement("script");
  script.textContent = new TextDecoder().decode(await inflate(element("plotly").textContent));
  document.head.append(script);
}

try {
  wireTheme();
  wirePrint();
  foldAnswers();
  document.querySelectorAll("table.sortable").forEach(makeSortable);
  const data = JSON.parse(element("data").textContent);
  await loadPlotly();
  if (data.study) redraw = await exploreStudy(data.study);
  else if (data.models) redraw = await exploreModels(data); // a page on labels has no live charts
  document.documentElement.dataset.ready = Math.round(performance.now());
} catch (error) {
  element("problem").hidden = false;
  element("problem").textContent = `The charts could not be drawn in this browser: ${error.message}`;
  throw error;
}
