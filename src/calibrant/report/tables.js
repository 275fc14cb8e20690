// Tables, sortable by their headings.

function makeTable(caption, head, rows, numeric) {
  const made = document.createElement("table");
  made.createCaption().textContent = caption;
  const top = made.createTHead().insertRow();
  for (const text of head) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = text;
    top.append(cell);
  }
  const body = made.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    row.forEach((text, i) => {
      const cell = line.insertCell();
      cell.textContent = text;
      if (numeric(i)) cell.className = "number";
    });
  }
  return made;
}

// A heading becomes a button that sorts: first one way, then the other.
function sortHeading(heading, sort) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...heading.childNodes);
  heading.append(button);
  heading.setAttribute("aria-sort", "none");
  button.addEventListener("click", () => {
    const rising = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of heading.parentElement.children) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
    sort(rising);
  });
}

// Numbers by their values, all else as text with its numbers as numbers; what is missing goes last.
function compareCells(a, b, rising) {
  const missing = (value) => value === null || value === "" || Number.isNaN(value);
  if (missing(a) || missing(b)) return missing(a) - missing(b);
  const order = typeof a === "number" && typeof b === "number" ? a - b
    : String(a).localeCompare(String(b), "en", { numeric: true });
  return rising ? order : -order;
}

function makeSortable(sorted) {
  const value = (row, i) => {
    const cell = row.cells[i];
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    return cell.classList.contains("number") ? null : cell.textContent;
  };
  [...sorted.tHead.rows[0].cells].forEach((heading, i) => {
    if (!heading.textContent) return;
    sortHeading(heading, (rising) => {
      const rows = [...sorted.tBodies[0].rows];
      rows.sort((a, b) => compareCells(value(a, i), value(b, i), rising));
      sorted.tBodies[0].append(...rows);
    });
  });
}
