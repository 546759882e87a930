// Draws the charts and heat maps of the report.
function chart(figure) {
  const section = data.sections[figure.dataset.section];
  const { x, log, ylabel, series } = section.curves[figure.dataset.key];
  const plot = figure.querySelector(".plot");
  const raw = figure.querySelector(".raw") ?? { checked: false, addEventListener() {} };
  const at = figure.querySelector(".at");
  const small = figure.classList.contains("small");
  const buttons = new Map([...figure.querySelectorAll(".legend [data-method]")].map((b) => [+b.dataset.method, b]));
  const visible = () => series.filter((s) => buttons.get(s.method).getAttribute("aria-pressed") !== "false");
  const scale = log ? Math.log10 : (v) => v;
  const known = (v) => v !== null && (!log || v > 0);
  let cursor = x.length - 1;
  let place = () => 0; // grid index → pixel; set by draw

  function range() {
    const values = [];
    for (const s of visible()) {
      s.mean.forEach((m, i) => values.push(m, ...(s.std[i] === null || m === null ? [] : [m - s.std[i], m + s.std[i]])));
      if (raw.checked) s.seeds.forEach((seed) => values.push(...seed));
    }
    const scaled = values.filter(known).map(scale);
    if (!scaled.length) return [0, 1];
    let low = scaled.reduce((a, b) => Math.min(a, b));
    let high = scaled.reduce((a, b) => Math.max(a, b));
    const varies = high - low > 1e-5 * Math.abs(high); // the data have six digits
    const pad = varies ? (high - low) * 0.05 : Math.abs(high) * 0.1 || 1;
    return [low - pad, high + pad];
  }

  function draw() {
    const width = plot.clientWidth;
    const height = small ? 190 : width < 520 ? 240 : 320;
    const left = 52, right = 10, top = 22, bottom = 40;
    const [low, high] = range();
    const last = x[x.length - 1], first = Math.min(0, x[0]);
    const px = (v) => left + ((v - first) / (last - first || 1)) * (width - left - right);
    const py = (v) => top + ((high - v) / (high - low)) * (height - top - bottom);
    const y = (v) => (log && v <= 0 ? height - bottom : Math.max(top, Math.min(height - bottom, py(scale(v)))));
    place = (i) => px(x[i]);

    plot.replaceChildren();
    const svg = add(plot, "svg", { width, height, "aria-hidden": "true" });
    const marked = ticks(low, high, small ? 4 : width < 520 ? 5 : 7).filter((t) => !log || t === Math.round(t) || high - low <= 1);
    labels(marked.map((t) => (log ? 10 ** t : t))).forEach((label, i) => {
      const at = py(marked[i]);
      add(svg, "line", { class: "grid", x1: left, x2: width - right, y1: at, y2: at });
      add(svg, "text", { x: left - 6, y: at + 4, "text-anchor": "end" }, label);
    });
    const steps = ticks(first, last, width < 520 ? 3 : 6);
    labels(steps).forEach((label, i) => {
      const at = px(steps[i]);
      add(svg, "text", { x: at, y: height - bottom + 18, "text-anchor": at > width - 30 ? "end" : "middle" }, label);
    });
    add(svg, "text", { x: 0, y: 12 }, ylabel);
    add(svg, "text", { x: width - right, y: height - 4, "text-anchor": "end" }, "environment steps");

    const line = (values) =>
      values.map((v, i) => (known(v) ? `${i && known(values[i - 1]) ? "L" : "M"}${px(x[i]).toFixed(1)} ${y(v).toFixed(1)}` : "")).join("");
    for (const s of visible()) {
      const style = { stroke: colour(s.method), "stroke-dasharray": data.dashes[s.method % data.dashes.length] };
      for (const part of parts(s)) {
        const edge = (sign) => part.map((i) => `${px(x[i]).toFixed(1)} ${y(s.mean[i] + sign * s.std[i]).toFixed(1)}`);
        add(svg, "path", { class: "band", fill: colour(s.method), d: `M${[...edge(1), ...edge(-1).reverse()].join("L")}Z` });
      }
      if (raw.checked) for (const seed of s.seeds) add(svg, "path", { class: "seed", stroke: style.stroke, d: line(seed) });
      add(svg, "path", { class: "mean", ...style, d: line(s.mean) });
    }
    const marks = add(svg, "g", {});
    add(marks, "line", { class: "cursor", x1: place(cursor), x2: place(cursor), y1: top, y2: height - bottom });
    for (const s of visible()) {
      if (known(s.mean[cursor])) add(marks, "circle", { cx: place(cursor), cy: y(s.mean[cursor]), r: 4, fill: colour(s.method) });
    }
    read();
  }

  /** Stretches of the grid where a series has a band. */
  function parts(s) {
    const found = [];
    s.std.forEach((v, i) => {
      if (v === null || s.mean[i] === null) return;
      if (i && s.std[i - 1] !== null && s.mean[i - 1] !== null && found.length) found[found.length - 1].push(i);
      else found.push([i]);
    });
    return found;
  }

  function read() {
    const spoken = [`step ${whole(x[cursor])}`];
    at.textContent = `at step ${whole(x[cursor])}`;
    for (const s of series) {
      const [mean, std, n] = [s.mean[cursor], s.std[cursor], s.n[cursor]];
      const value = mean === null ? "—" : `${short(mean)}${std === null ? "" : ` ± ${short(std)}`} (n=${n})`;
      buttons.get(s.method).querySelector(".value").textContent = value;
      if (visible().includes(s)) spoken.push(`${section.labels[s.method]} ${value}`);
    }
    plot.setAttribute("aria-valuemax", x.length - 1);
    plot.setAttribute("aria-valuenow", cursor);
    plot.setAttribute("aria-valuetext", spoken.join("; "));
  }

  const move = (i) => { cursor = Math.max(0, Math.min(x.length - 1, i)); draw(); };
  const point = (event) => {
    const pixel = event.clientX - plot.getBoundingClientRect().left;
    move(x.reduce((best, _, i) => (Math.abs(place(i) - pixel) < Math.abs(place(best) - pixel) ? i : best), 0));
  };
  plot.addEventListener("pointermove", point);
  plot.addEventListener("pointerdown", point);
  plot.addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.round(x.length / 10));
    const to = {
      ArrowLeft: cursor - 1, ArrowDown: cursor - 1, ArrowRight: cursor + 1, ArrowUp: cursor + 1,
      PageDown: cursor - page, PageUp: cursor + page, Home: 0, End: x.length - 1,
    }[event.key];
    if (to !== undefined) { event.preventDefault(); move(to); }
  });
  raw.addEventListener("change", draw);
  for (const button of figure.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      draw();
    });
  }
  new ResizeObserver(draw).observe(plot);
  draw();
}

function visits(figure) {
  const section = data.sections[figure.dataset.section];
  const { rows, cols, top, steps, maps } = section.visits;
  const slider = figure.querySelector("input[type=range]");
  const play = figure.querySelector(".play");
  const places = new Map([...figure.querySelectorAll(".map")].map((m) => [+m.dataset.method, m]));
  let timer = null;

  function show() {
    const f = +slider.value;
    figure.querySelector(".at").textContent = `step ${whole(steps[f])}`;
    slider.setAttribute("aria-valuetext", `step ${whole(steps[f])}`);
    for (const map of maps) {
      const place = places.get(map.method);
      const levels = Uint8Array.from(atob(map.frames[f]), (c) => c.charCodeAt(0));
      const canvas = place.querySelector("canvas");
      paint(canvas, levels, cols);
      const visited = `${short(map.visited[f])} of ${whole(rows * cols)} cells visited`;
      place.querySelector(".value").textContent = visited;
      canvas.setAttribute("aria-label", `${section.labels[map.method]}, step ${whole(steps[f])}: ${visited}`);
    }
  }
  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }
  play.addEventListener("click", () => {
    if (timer !== null) return stop();
    if (+slider.value === steps.length - 1) slider.value = 0;
    play.textContent = "Pause";
    timer = setInterval(() => {
      slider.value = +slider.value + 1;
      show();
      if (+slider.value === steps.length - 1) stop();
    }, Math.max(60, 6000 / steps.length));
    show();
  });
  slider.addEventListener("input", () => { stop(); show(); });
  const bar = figure.querySelector(".scale canvas");
  paint(bar, Uint8Array.from({ length: 255 }, (_, i) => i + 1), 255);
  figure.querySelector(".scale .top").textContent = `${short(top)} visits`;
  show();
}

for (const figure of document.querySelectorAll(".chart")) chart(figure);
for (const figure of document.querySelectorAll(".visits")) visits(figure);
for (const box of document.querySelectorAll(".differences")) {
  const table = box.closest(".configs").querySelector("table");
  const apply = () => table.classList.toggle("only", box.checked);
  box.addEventListener("change", apply);
  apply();
}
