// Runs inside the page: uses it as a person would, by the function `use`, and tells the page around it what it saw.
const errors = [];
addEventListener("error", (event) => errors.push(event.message));
const consoleError = console.error;
console.error = (...words) => { errors.push(words.join(" ")); consoleError(...words); };

addEventListener("load", async () => {
  const seen = { errors };
  try {
    const all = (selector, root = document) => [...root.querySelectorAll(selector)];
    const one = (selector, root = document) => root.querySelector(selector);
    seen.page = { width: innerWidth, scroll: document.documentElement.scrollWidth, background: getComputedStyle(document.body).backgroundColor };
    seen.headings = all("h1, h2, h3, h4").map((h) => h.tagName);
    const controls = all("a, button, input, [tabindex]");
    seen.unreachable = controls.filter((c) => c.tabIndex < 0).length;
    seen.nameless = controls.filter((c) => !(c.getAttribute("aria-label") || c.closest("label")?.textContent || c.textContent).trim()).map((c) => c.outerHTML);
    await use(seen, all, one);
    seen.page.scrollAfter = document.documentElement.scrollWidth;
  } catch (error) {
    errors.push(String(error.stack));
  }
  parent.postMessage(JSON.stringify(seen), "*");
});
