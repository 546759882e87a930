// What every page of ours uses: the JSON beside the script, numbers, SVG, colours. Text goes in as text, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
document.documentElement.classList.add("js");

const SVG = "http://www.w3.org/2000/svg";
const add = (parent, tag, attributes, text) => {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return parent.appendChild(element);
};
const colour = (method) => `var(--c${method % data.colours})`;
const whole = (value) => Math.round(value).toLocaleString("en");
const short = (value) => (value === null ? "—" : Math.abs(value) >= 1000 ? whole(value) : String(+value.toPrecision(3)));

/** Round numbers from low to high, about `count` of them. */
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
  return found;
}

/** Labels of ticks, with as many digits as it takes to tell them apart. */
function labels(values, digits = 3) {
  const found = values.map((value) => {
    const size = Math.abs(value), rounded = +value.toPrecision(digits);
    if (size >= 1) return value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: digits });
    return value && size < 1e-3 ? rounded.toExponential() : String(rounded);
  });
  return digits < 12 && new Set(found).size < found.length ? labels(values, digits + 1) : found;
}

// Viridis, which is even in brightness and safe for the colour-blind, by a few of its colours.
const VIRIDIS = [[68, 1, 84], [65, 68, 135], [42, 120, 142], [34, 168, 132], [122, 209, 81], [253, 231, 37]];
function viridis(level) {
  const t = Math.max(0, Math.min(1, level)) * (VIRIDIS.length - 1);
  const i = Math.min(Math.floor(t), VIRIDIS.length - 2);
  return VIRIDIS[i].map((c, k) => c + (t - i) * (VIRIDIS[i + 1][k] - c));
}

function paint(canvas, levels, cols) {
  canvas.width = cols;
  canvas.height = levels.length / cols;
  const image = new ImageData(cols, canvas.height);
  levels.forEach((level, i) => {
    if (level) image.data.set([...viridis((level - 1) / 254), 255], 4 * i); // 0: transparent, never visited
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
}
