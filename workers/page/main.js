// Asks the fleet again and again while somebody looks, and draws what changed.

import * as draw from "./draw.js";
import { lasting, make, put, tick } from "./dom.js";

const EVERY_MS = 2000;
const LATE_S = 10;
const byId = (id) => document.getElementById(id);
const now = () => Date.now() / 1000;

let token = sessionStorage.getItem("token") ?? "";
let heard = 0;
let problem = "";

async function ask(path) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, signal: AbortSignal.timeout(15000) });
  if (answer.status === 401) throw Object.assign(new Error("a token is wanted"), { wanted: true });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.problem ?? answer.statusText);
  return body;
}

async function look() {
  if (document.hidden) return;
  try {
    show(await ask("v1/fleet"));
    [heard, problem] = [now(), ""];
    lock(false);
  } catch (error) {
    if (error.wanted) return lock(true, token ? "No such token." : "");
    problem = error.message;
  }
  tell();
}

function lock(locked, text = "") {
  byId("key").hidden = !locked;
  byId("all").hidden = locked || !heard;
  byId("wrong").textContent = text;
  if (locked) [byId("phase").textContent, byId("age").textContent] = ["", ""];
}

function show(found) {
  const { status } = found;
  const origin = Math.round(now());
  const names = new Set([...found.models.map((m) => m.name), ...found.replicas.map((r) => r.model)]);
  const palette = draw.tints([...names].sort());
  document.title = `${status.fleet}: ${status.phase.replaceAll("_", " ")}`;
  byId("fleet").textContent = status.fleet;
  put(byId("phase"), draw.headline(status));
  const alarms = draw.alarms(status);
  byId("alarms").hidden = !alarms.length;
  put(byId("alarms"), alarms);
  put(byId("numbers"), draw.numbers(found));
  const waiting = draw.waiting(status, origin);
  byId("waiting").hidden = !waiting.length;
  put(byId("waiting-list"), waiting);
  byId("drains").hidden = !status.drains.length;
  put(byId("drains-list"), draw.drains(status, origin));
  put(byId("models-table"), draw.modelTable(found, palette, origin));
  put(byId("racks"), draw.racks(found, palette));
  put(byId("events"), draw.events(status, origin));
  put(byId("routers"), draw.routers(status, origin));
  byId("all").hidden = false;
}

// How old what is shown is; said aloud by its colour and words only when it is no longer live.
function tell() {
  tick(now());
  if (!byId("key").hidden) return;
  const since = now() - heard;
  const late = heard && since > LATE_S;
  const old = heard ? `${problem || "no answer"}: this is ${lasting(since)} old` : problem || "asking…";
  const text = heard && !late && !problem ? "live" : old;
  byId("age").className = late || problem ? "state bad" : "quiet";
  byId("age").textContent = text;
}

async function explain(subject) {
  byId("why-title").textContent = subject;
  byId("why-text").replaceChildren(make("p", {}, "asking…"));
  byId("why").showModal();
  try {
    const found = await ask(`v1/explain?subject=${encodeURIComponent(subject)}`);
    byId("why-text").replaceChildren(...draw.explanation(found));
  } catch (error) {
    byId("why-text").replaceChildren(make("p", { class: "bad" }, error.message));
  }
}

document.addEventListener("click", (event) => {
  const subject = event.target.closest?.("[data-subject]")?.dataset.subject;
  if (subject) explain(subject);
});

// Arrow keys go from node to node, as they are seen: left and right, and up and down by their places.
byId("racks").addEventListener("keydown", (event) => {
  const nodes = [...byId("racks").querySelectorAll(".node")];
  const at = nodes.indexOf(document.activeElement);
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  let next;
  if (at >= 0 && step) next = nodes[at + step];
  if (at >= 0 && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
    const here = nodes[at].getBoundingClientRect();
    const down = event.key === "ArrowDown";
    const there = nodes.filter((node) => down ? node.getBoundingClientRect().top >= here.bottom : node.getBoundingClientRect().bottom <= here.top);
    const far = (node) => { const box = node.getBoundingClientRect(); return Math.abs(box.top - here.top) * 10 + Math.abs(box.left - here.left); };
    next = there.sort((a, b) => far(a) - far(b))[0];
  }
  if (!next) return;
  event.preventDefault();
  next.focus();
});

byId("close").addEventListener("click", () => byId("why").close());
byId("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark"
    || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  theme(dark ? "light" : "dark");
});
byId("key").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  sessionStorage.setItem("token", token);
  byId("token").value = "";
  look();
});
document.addEventListener("visibilitychange", look);

function theme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem("theme", name);
}

const kept = localStorage.getItem("theme");
if (kept) theme(kept);
setInterval(tell, 1000);

async function forever() {
  for (;;) {
    await look();
    await new Promise((done) => setTimeout(done, EVERY_MS));
  }
}

forever();
