// What the probe does on the report of single runs.
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const use = async (seen, all, one) => {
  seen.charts = all(".chart").map((chart) => [chart.dataset.key, all(".mean", chart).length]);
  seen.labels = all(".chart").map((chart) => all('text[text-anchor="end"]', chart).map((text) => text.textContent));

  const chart = one('.chart[data-key="return"]');
  const plot = one(".plot", chart), button = one(".legend button", chart), raw = one(".raw", chart);
  const press = (key) => plot.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  plot.focus();
  seen.focus = document.activeElement === plot;
  press("Home");
  seen.home = [plot.getAttribute("aria-valuenow"), plot.getAttribute("aria-valuetext")];
  press("ArrowRight");
  seen.right = plot.getAttribute("aria-valuenow");
  press("End");
  seen.end = [plot.getAttribute("aria-valuenow"), plot.getAttribute("aria-valuemax"), plot.getAttribute("aria-valuetext")];
  const box = plot.getBoundingClientRect();
  plot.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left, clientY: box.top + 50 }));
  seen.hover = one(".at", chart).textContent;
  button.click();
  seen.hidden = [button.getAttribute("aria-pressed"), all(".mean", chart).length];
  button.click();
  seen.shown = [button.getAttribute("aria-pressed"), all(".mean", chart).length];
  raw.click();
  seen.seeds = all(".seed", chart).length;
  raw.click();
  seen.noSeeds = all(".seed", chart).length;

  const maps = one(".visits"), slider = one("input[type=range]", maps), play = one(".play", maps), canvas = one("canvas", maps);
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, 1).data;
  seen.map = { size: [canvas.width, canvas.height], corner: pixels[3], never: pixels[pixels.length - 1], end: canvas.getAttribute("aria-label") };
  slider.value = 0;
  slider.dispatchEvent(new Event("input"));
  seen.map.start = canvas.getAttribute("aria-label");
  play.click();
  seen.playing = play.textContent;
  await pause(10000);
  seen.played = [play.textContent, slider.value === slider.max, canvas.getAttribute("aria-label")];

  const rows = () => all(".configs tbody tr").filter((row) => row.getClientRects().length).length;
  seen.rows = [rows()];
  one(".differences").click();
  seen.rows.push(rows(), all(".configs tbody tr.differs").length);
};
