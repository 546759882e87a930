// What the probe does in the novelty viewer.
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const use = async (seen, all, one) => {
  const press = (key, target = document.body) => target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  const now = () => ({
    at: one(".viewer .at").textContent, action: one(".action").textContent, return: one(".return").textContent,
    raw: one(".raw-bonus").textContent, scaled: one(".scaled-bonus").textContent, cell: one(".cell").textContent,
  });
  const picture = one(".frame img"), slider = one(".viewer input"), play = one(".play");
  const drawn = picture.src;
  seen.first = now();
  seen["first visits"] = one('[data-map="here"] canvas').getAttribute("aria-label");
  press("ArrowRight");
  seen.right = now();
  seen.pictures = [drawn.startsWith("data:image/png") && !picture.hidden, picture.src !== drawn];
  press("ArrowLeft", slider);
  seen.left = now();
  press("End");
  seen.end = now();
  press("ArrowRight");
  seen.stays = now();
  press("Home");
  seen.home = now();
  slider.value = 2;
  slider.dispatchEvent(new Event("input"));
  seen.slid = now();
  seen.spoken = slider.getAttribute("aria-valuetext");
  seen.traces = all(".trace .mean").length;
  const plot = one(".trace .plot"), box = plot.getBoundingClientRect();
  plot.dispatchEvent(new MouseEvent("click", { clientX: box.right - 10, clientY: box.top + 20, bubbles: true }));
  seen.clicked = now().at;
  seen.maps = all(".map canvas").map((canvas) => canvas.getAttribute("aria-label"));
  const newest = one(".newest button");
  newest.click();
  seen.newest = [newest.textContent, one(".viewer select").selectedOptions[0].textContent, now().at];
  press(" ");
  seen.played = [play.textContent];
  await pause(8000);
  seen.played.push(play.textContent, now().at);
};
