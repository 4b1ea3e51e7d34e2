// Making and replacing elements. Texts only ever become text nodes: nothing that a fleet is called can become markup.

export function make(tag, given = {}, ...inside) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "tint" || name === "count") element.style.setProperty(`--${name}`, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...inside.flat().filter((item) => item !== null && item !== undefined && item !== ""));
  return element;
}

// Puts `made` into `home` if it differs from what is there; whoever was on something stays on it.
export function put(home, made) {
  const box = document.createElement(home.tagName);
  box.append(...made);
  if (box.innerHTML === home.dataset.drawn) return;
  const key = home.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  home.dataset.drawn = box.innerHTML;
  const [left, top] = [home.scrollLeft, home.scrollTop];
  home.replaceChildren(...box.childNodes);
  [home.scrollLeft, home.scrollTop] = [left, top];
  if (key) home.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

const UNITS = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];

export function lasting(seconds) {
  const [length, unit] = UNITS.find(([length]) => seconds >= length) ?? [1, "s"];
  return `${Math.max(0, Math.floor(seconds / length))}${unit}`;
}

// An age that goes on by itself: it is written by `tick`, so that nothing is drawn anew for it.
export function age(seconds, origin) {
  if (seconds === null || seconds === undefined) return make("time");
  return make("time", { "data-since": Math.round(origin - seconds) });
}

// A time that is left, which goes on by itself likewise.
export function until(seconds, origin) {
  return make("time", { "data-until": Math.round(origin + seconds) });
}

export function tick(now) {
  for (const element of document.querySelectorAll("time[data-since], time[data-until]")) {
    const { since, until } = element.dataset;
    const text = lasting(until === undefined ? now - Number(since) : Math.max(0, Number(until) - now));
    if (element.textContent !== text) element.textContent = text;
  }
}

export function counted(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}
