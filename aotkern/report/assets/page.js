"use strict";
// Without this script the page is complete; with it the table can be filtered and sorted, and the theme chosen.
document.documentElement.classList.add("scripted");
document.addEventListener("DOMContentLoaded", () => {
  const byId = (id) => document.getElementById(id);

  const theme = byId("theme");
  const themes = ["system", "light", "dark"];
  let chosen = "system";
  const apply = () => {
    if (chosen === "system") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.dataset.theme = chosen;
    theme.textContent = `Theme: ${chosen}`;
  };
  // A page opened from a file may have no storage; the choice then lasts as long as the page.
  try { chosen = themes.find((name) => name === localStorage.getItem("aotkern-theme")) ?? "system"; } catch { /* none */ }
  theme.addEventListener("click", () => {
    chosen = themes[(themes.indexOf(chosen) + 1) % themes.length];
    try { localStorage.setItem("aotkern-theme", chosen); } catch { /* none */ }
    apply();
  });
  theme.hidden = false;
  apply();

  // Closed details are not printed: open them for the time of printing.
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const item of opened) item.open = true;
  });
  window.addEventListener("afterprint", () => { for (const item of opened) item.open = false; });

  const table = byId("all");
  if (!table) return;
  const body = table.tBodies[0];
  const form = byId("filters"), more = byId("more"), words = byId("words"), kernel = byId("kernel"), target = byId("target"), tone = byId("tone");
  const rows = [...body.rows].map((row) => ({
    row, text: row.textContent.toLowerCase(), kernel: row.cells[1].textContent, target: row.cells[2].textContent,
    tone: row.dataset.tone,
  }));

  // Only so many rows are laid out at first; printing and the button show all.
  const few = 250;
  let most = few;
  const filter = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const item of rows) {
      const fits = (!kernel.value || item.kernel === kernel.value) && (!target.value || item.target === target.value) &&
        (!tone.value || item.tone === tone.value) && wanted.every((word) => item.text.includes(word));
      count += fits;
      item.row.hidden = !fits || count > most;
    }
    more.hidden = count <= most;
    byId("shown").textContent =
      count > most ? `first ${most} of ${count} shown` : `${count} of ${rows.length} shown`;
  };
  const filterAnew = () => { most = few; filter(); };
  const showAll = () => { most = Infinity; filter(); };
  more.addEventListener("click", showAll);
  window.addEventListener("beforeprint", showAll);
  form.addEventListener("input", filterAnew);
  form.addEventListener("reset", () => setTimeout(filterAnew));
  form.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing) { event.preventDefault(); words.focus(); }
    if (event.key === "Escape" && document.activeElement === words) { words.value = ""; filterAnew(); }
  });
  for (const button of document.querySelectorAll("button[data-kernel]")) {
    button.addEventListener("click", () => {
      form.reset();
      kernel.value = button.dataset.kernel;
      target.value = button.dataset.target;
      setTimeout(() => { filterAnew(); byId("variants").scrollIntoView(); kernel.focus({ preventScroll: true }); });
    });
  }

  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    const numeric = heading.classList.contains("number");
    button.addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (item) => item.row.cells[column].textContent;
      const order = numeric ? (a, b) => Number(value(a)) - Number(value(b)) : (a, b) => value(a).localeCompare(value(b));
      rows.sort((a, b) => (down ? order(b, a) : order(a, b)));
      body.append(...rows.map((item) => item.row));
      filter();
    });
  });
  form.hidden = false;
  filter();
  table.classList.add("ready");
});
