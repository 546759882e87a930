// Steps through the episodes: frame, numbers, bonus curves and maps all show the same step.
const { episodes, frames, shape, training } = data;
const one = (selector, root = document) => root.querySelector(selector);
const slider = one(".viewer input"), chooser = one(".viewer select"), play = one(".play");
const picture = one(".frame img"), words = one(".frame pre");
let at = 0; // the step
let timer = null;
const steps = () => episodes[+chooser.value].steps;

function show(step = at) {
  at = Math.max(0, Math.min(steps().length - 1, step));
  const now = steps()[at];
  const place = `step ${at + 1} of ${steps().length}`;
  slider.max = steps().length - 1;
  slider.value = at;
  slider.setAttribute("aria-valuetext", `${place}; raw bonus ${short(now.raw)}; scaled ${short(now.scaled)}`);
  one(".viewer .at").textContent = at === steps().length - 1 ? `${place}, ${episodes[+chooser.value].end}` : place;
  one(".action").textContent = now.action;
  one(".reward").textContent = short(now.reward);
  one(".return").textContent = short(steps().slice(0, at + 1).reduce((sum, s) => sum + s.reward, 0));
  one(".raw-bonus").textContent = short(now.raw);
  one(".scaled-bonus").textContent = short(now.scaled);
  one(".where").hidden = !shape;
  one(".cell").textContent = now.cell ? now.cell.join(", ") : "—";

  const frame = now.frame === null ? null : frames[now.frame];
  const drawn = frame?.startsWith("data:image/");
  picture.hidden = !drawn;
  words.hidden = frame === null || drawn;
  if (drawn) {
    picture.src = frame;
    picture.alt = `What there is to see at ${place}`;
    picture.classList.toggle("pixels", frame.startsWith("data:image/png"));
  } else words.textContent = frame ?? "";
  one(".frame").hidden = frame === null;
  for (const figure of document.querySelectorAll(".trace")) trace(figure);
  if (shape) maps();
}

/** The bonus of every step of the episode, the present one marked. */
function trace(figure) {
  const key = figure.dataset.key, plot = one(".plot", figure);
  const values = steps().map((s) => s[key]);
  const width = plot.clientWidth, height = 150, left = 52, right = 10, top = 10, bottom = 24;
  let low = Math.min(0, ...values), high = Math.max(0, ...values);
  if (high === low) high = low + 1;
  const px = (i) => left + (i / Math.max(values.length - 1, 1)) * (width - left - right);
  const py = (v) => top + ((high - v) / (high - low)) * (height - top - bottom);
  plot.replaceChildren();
  const svg = add(plot, "svg", { width, height, "aria-hidden": "true" });
  const marked = ticks(low, high, 4);
  labels(marked).forEach((label, i) => {
    add(svg, "line", { class: "grid", x1: left, x2: width - right, y1: py(marked[i]), y2: py(marked[i]) });
    add(svg, "text", { x: left - 6, y: py(marked[i]) + 4, "text-anchor": "end" }, label);
  });
  add(svg, "text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, "step of the episode");
  add(svg, "text", { x: px(0), y: height - 6, "text-anchor": "middle" }, "1");
  add(svg, "text", { x: px(values.length - 1), y: height - 6, "text-anchor": "end" }, whole(values.length));
  add(svg, "path", { class: "mean", stroke: colour(key === "raw" ? 0 : 1), d: `M${values.map((v, i) => `${px(i).toFixed(1)} ${py(v).toFixed(1)}`).join("L")}` });
  add(svg, "line", { class: "cursor", x1: px(at), x2: px(at), y1: top, y2: height - bottom });
  add(svg, "circle", { cx: px(at), cy: py(values[at]), r: 4, fill: colour(key === "raw" ? 0 : 1) });
  plot.onclick = (event) => {
    const share = (event.clientX - plot.getBoundingClientRect().left - left) / (width - left - right);
    halt();
    show(Math.round(share * (values.length - 1)));
  };
}

/** Counts or means by cell, [rows · columns], from (cell, value) pairs. */
function byCell(entries, reduce) {
  const table = Array.from({ length: shape[0] * shape[1] }, () => []);
  for (const [cell, value] of entries) if (cell) table[cell[0] * shape[1] + cell[1]].push(value);
  return table.map((values) => (values.length ? reduce(values) : null));
}
const everything = episodes.flatMap((episode) => episode.steps);
const novelty = shape && byCell(everything.map((s) => [s.cell, s.raw]), (v) => v.reduce((a, b) => a + b) / v.length);
const before = shape && training && byCell(
  training.flatMap((row, r) => row.map((n, c) => [n ? [r, c] : null, n])), (values) => values[0],
);

function maps() {
  const episode = +chooser.value;
  const past = episodes.slice(0, episode).flatMap((e) => e.steps).concat(steps().slice(0, at + 1));
  const here = byCell(past.map((s) => [s.cell, 1]), (values) => values.length);
  heat("here", here, Math.log1p, (n) => `${n} of ${shape[0] * shape[1]} cells`);
  heat("novelty", novelty, (v) => v, () => "");
  heat("training", before, Math.log1p, (n) => `${n} of ${shape[0] * shape[1]} cells`);
}

function heat(name, values, scale, say) {
  const map = one(`[data-map="${name}"]`);
  map.hidden = !values;
  if (!values) return;
  const known = values.filter((v) => v !== null).map(scale);
  const low = Math.min(0, ...known), high = Math.max(...known, 1e-12);
  const canvas = one("canvas", map);
  paint(canvas, values.map((v) => (v === null ? 0 : 1 + Math.round((254 * (scale(v) - low)) / (high - low || 1)))), shape[1]);
  const said = say(known.length), cell = steps()[at].cell;
  one(".value", map).textContent = said;
  canvas.setAttribute("aria-label", `${one("strong", map).textContent}${said ? `: ${said}` : ""}`);
  let ring = one(".ring", map) ?? map.appendChild(Object.assign(document.createElement("span"), { className: "ring" }));
  ring.hidden = !cell;
  if (cell) {
    const [w, h] = [canvas.clientWidth / shape[1], canvas.clientHeight / shape[0]];
    Object.assign(ring.style, { left: `${canvas.offsetLeft + cell[1] * w}px`, top: `${canvas.offsetTop + cell[0] * h}px`, width: `${w}px`, height: `${h}px` });
  }
}

function halt() {
  clearInterval(timer);
  timer = null;
  play.textContent = "Play";
}
function toggle() {
  if (timer !== null) return halt();
  if (at === steps().length - 1) show(0);
  play.textContent = "Pause";
  timer = setInterval(() => {
    show(at + 1);
    if (at === steps().length - 1) halt();
  }, Math.max(40, Math.min(400, 8000 / steps().length)));
}

play.addEventListener("click", toggle);
slider.addEventListener("input", () => { halt(); show(+slider.value); });
chooser.addEventListener("change", () => { halt(); show(0); });
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || ["SELECT", "BUTTON", "A"].includes(event.target.tagName) && event.key === " ") return;
  if (event.target.tagName === "SELECT") return;
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: steps().length - 1 }[event.key];
  if (to !== undefined) { event.preventDefault(); halt(); show(to); }
  else if (event.key === " ") { event.preventDefault(); toggle(); }
});

const order = episodes.flatMap((e, i) => e.steps.map((s, j) => [s.raw, i, j])).sort((a, b) => b[0] - a[0]);
for (const [raw, episode, step] of order.slice(0, 6)) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = `episode ${episode + 1}, step ${step + 1}: ${short(raw)}`;
  button.addEventListener("click", () => { halt(); chooser.value = episode; show(step); });
  one(".newest").append(button);
}
one(".maps-card").hidden = !shape;
new ResizeObserver(() => show()).observe(one(".trace .plot"));
show(0);
