// What the probe does on the view of a suite.
const use = async (seen, all, one) => {
  const words = (row) => [...row.cells].map((cell) => cell.textContent.trim());
  const rows = all(".table tbody tr:not(.group)");
  seen.groups = all(".table .group").map((row) => row.textContent.trim());
  seen.rows = rows.length;
  seen.row = words(rows[0]);
  seen.empty = words(rows[6]);
  seen.notes = all("#suite .note").map((note) => note.textContent);
  seen.panels = all(".chart.small").map((panel) => [one("h4", panel).textContent, all(".mean", panel).length]);
  seen.columns = getComputedStyle(one(".panels")).gridTemplateColumns.split(" ").length;

  const panel = one(".chart.small"), plot = one(".plot", panel);
  const press = (key) => plot.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  plot.focus();
  seen.focus = document.activeElement === plot;
  press("Home");
  seen.home = [plot.getAttribute("aria-valuetext"), one(".legend [data-method]", panel).textContent.trim().replace(/\s+/g, " ")];
  press("End");
  seen.end = plot.getAttribute("aria-valuetext");

  seen.cards = all("#suite .costs h4").map((h) => h.textContent);
  seen.clock = all(".clock tbody tr:not(.group)").length;
  seen.links = all(".runs td a").length;
  seen.unfinished = all(".runs td a").map((a) => a.getAttribute("aria-label")).filter((label) => label.includes("not finished"));
};
