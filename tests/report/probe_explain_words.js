// What the probe does in the viewer of a task that is drawn in letters, and not at every step.
const use = async (seen, all, one) => {
  const words = one(".frame pre");
  seen.words = [words.textContent, words.hidden];
  document.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
  seen.nothing = one(".frame").hidden;
  seen.maps = one(".maps-card").hidden && one(".where").hidden;
};
