// What the fleet's answers look like. Each function takes them and gives elements; none asks or remembers anything.

import { age, counted, make, until } from "./dom.js";

const GOOD = new Set(["ready", "healthy", "steady"]);
const BAD = new Set(["failed", "lost", "fenced", "safe mode", "unavailable", "set aside", "foreign", "silent", "behind"]);
const SIGNS = { good: "●", bad: "▲", busy: "◐", quiet: "○" };

export function state(word) {
  const shown = word.replaceAll("_", " ");
  const quiet = shown === "asleep" || shown === "unknown";
  const tone = GOOD.has(shown) ? "good" : BAD.has(shown) ? "bad" : quiet ? "quiet" : "busy";
  const sign = make("span", { "aria-hidden": "true" }, `${SIGNS[tone]} `);
  return make("span", { class: `state ${tone}` }, sign, shown);
}

// A model's hue and letters follow from its place in the list of all, so that neighbours differ as much as they can.
export function tints(models) {
  const found = new Map();
  models.forEach((name, index) => {
    const hue = (index * 137.508 + 205) % 360;
    const light = [72, 80, 64][Math.floor(index / 12) % 3];
    found.set(name, { tint: `hsl(${hue.toFixed(0)} 68% ${light}%)`, letters: letters(name) });
  });
  return found;
}

function letters(name) {
  const parts = name.split("/").at(-1).match(/[A-Za-z]+|\d+/g) ?? ["?"];
  return (parts.length > 1 ? parts[0][0] + parts[1][0] : parts[0].slice(0, 2)).toLowerCase();
}

const why = (subject, text, extra = {}) =>
  make("button", { type: "button", class: "link", "data-subject": subject, "data-key": subject, ...extra }, text);

export function headline(status) {
  return [state(status.phase), status.phase_text ? ` ${status.phase_text}` : ""];
}

export function alarms(status) {
  const held = status.held ? [`A catalog is ${status.held.text}`] : [];
  const last = status.last_catalog;
  const refused = last?.judgement === "refused" ? [`The last catalog was refused: ${last.problems.join("; ")}`] : [];
  const texts = [status.safe_mode && `Safe mode: ${status.safe_mode}`, status.fenced_by && `Fenced: ${status.fenced_by}`];
  return [...texts.filter(Boolean), ...status.warnings, ...held, ...refused].map((text) => make("p", {}, text));
}

export function numbers({ status, models }) {
  const sum = (of) => models.reduce((total, model) => total + of(model), 0);
  const devices = status.device_states;
  const spoiled = (devices.quarantined ?? 0) + (devices.bad ?? 0);
  const tell = (counts) => Object.entries(counts).map(([word, count]) => `${count} ${word.replaceAll("_", " ")}`).join(", ");
  const rows = [
    [`${sum((m) => Math.min(m.ready, m.wanted))} of ${sum((m) => m.wanted)}`, "wanted replicas ready"],
    [String(models.length), `models: ${tell(status.models) || "none"}`],
    [String(Object.values(status.nodes).reduce((a, b) => a + b, 0)), `nodes: ${tell(status.nodes) || "none"}`],
    [`${devices.free ?? 0} of ${status.devices}`, ["devices free", devices.closed && `${devices.closed} on closed nodes`, devices.others && `${devices.others} used by others`, spoiled && `${spoiled} out of use`].filter(Boolean).join(", ")],
    [String(status.generation), status.digest ? `catalog generation, ${status.digest.slice(0, 8)}` : "no catalog yet"],
    [String(status.endpoints), `endpoints, table revision ${status.table_revision}`],
  ];
  return rows.map(([big, text]) => make("div", { class: "number" }, make("b", {}, big), text));
}

export function waiting(status, origin) {
  const rows = status.waiting.filter((item) => !isSaidAbove(item)).map((item) => {
    const left = item.left_s ? make("span", { class: "quiet" }, " — for another ", until(item.left_s, origin), " at most") : "";
    return make("li", {}, age(item.age_s, origin), make("div", {}, why(item.subject, item.subject), ` ${waits(item)}`, left));
  });
  const more = status.waiting_total - status.waiting.length;
  return more > 0 ? [...rows, make("li", {}, make("span"), `and ${more} more`)] : rows;
}

// What the whole fleet waits for is told by its phase, or first of all.
const isSaidAbove = (item) => item.subject === "fleet" && ["hold", "brake", "held"].includes(item.code);

const waits = (item) => [item.text, item.meanwhile].filter(Boolean).join("; ");

export function drains(status, origin) {
  return status.drains.map((row) => make("li", {}, age(row.age_s, origin), make("div", {}, why(`node/${row.node}`, row.node, { "data-key": `drained/${row.node}` }), ` ${row.text}`)));
}

function swatch(model, palette) {
  const { tint, letters: shown } = palette.get(model);
  return make("span", { class: "cell", "aria-hidden": "true", tint }, shown);
}

export function modelTable({ models, replicas }, palette, origin) {
  if (!models.length) return [make("p", { class: "number" }, "No models: `llmgw apply FILE` gives the fleet a catalog.")];
  const mine = Map.groupBy(replicas, (replica) => replica.model);
  const head = ["Model", "State", "Ready", "Replicas", "Waiting"].map((text) => make("th", { scope: "col" }, text));
  const rows = models.map((model) =>
    make("tr", {},
      make("th", { scope: "row" }, make("div", { class: "named" }, swatch(model.name, palette),
        make("div", {}, why(`model/${model.name}`, model.name),
          make("div", { class: "quiet" }, model.aliases.join(", "))))),
      make("td", {}, state(model.state)),
      make("td", {}, `${model.ready}/${model.wanted}`, make("div", { class: "quiet" }, model.override)),
      make("td", {}, make("div", { class: "chips" }, (mine.get(model.name) ?? []).map((replica) => chip(replica, origin)))),
      make("td", {}, model.waiting ? [age(model.waiting.age_s, origin), ` ${waits(model.waiting)}`] : former(model))));
  return [make("table", {}, make("thead", {}, make("tr", {}, head)), make("tbody", {}, rows))];
}

const former = (model) => model.former ? `the version before the edit serves meanwhile (${model.former} of ${model.wanted})` : "";

function chip(replica, origin) {
  return make("span", { class: "chip", title: replica.reason || undefined },
    why(`replica/${replica.id}`, replica.id), ` on ${replica.node} `, state(replica.state), " ", age(replica.age_s, origin));
}

export function racks({ nodes, replicas }, palette) {
  if (!nodes.length) return [make("p", { class: "number" }, "No nodes: `llmgw nodes add URL` adds one.")];
  const byId = new Map(replicas.map((replica) => [replica.id, replica]));
  const zoned = Map.groupBy(nodes, (node) => [node.zone && `zone ${node.zone}`, `pool ${node.pool}`].filter(Boolean).join(", "));
  return [...zoned].sort().map(([name, mine]) =>
    make("div", { class: "rack", count: String(mine.length) }, make("h3", {}, `${name}: ${counted(mine.length, "node")}`),
      make("div", { class: "shelf" }, mine.map((node) => nodeCard(node, byId, palette)))));
}

const SILENT = new Set(["suspect", "lost", "unknown"]);

function nodeCard(node, byId, palette) {
  const marks = closed(node);
  const held = Object.entries(Object.groupBy(node.devices.filter((d) => d.holders.length), (d) => modelOf(d, byId)));
  const said = [`${node.id}, ${node.state.replaceAll("_", " ")}`, ...marks, room(node),
    ...held.map(([model, devices]) => `${devices.length} held by ${model}`),
    ...node.devices.filter((device) => device.problem).map((device) => `device ${device.index}: ${device.problem}`), node.note, ...node.problems];
  const more = node.more_devices ? make("span", { class: "quiet" }, `+${node.more_devices}`) : "";
  return make("button", { type: "button", class: `node ${SILENT.has(node.state) ? "silent" : ""} ${marks.length ? "closed" : ""}`,
    "data-subject": `node/${node.id}`, "data-key": `node/${node.id}`, "aria-label": said.filter(Boolean).join("; ") },
    make("span", { class: "top" }, make("b", {}, node.id), make("span", {}, marks.map(state), state(node.state))),
    make("span", { class: "cells" }, node.devices.map((device) => cell(device, byId, palette)), more),
    make("span", { class: "quiet" }, [room(node), kinds(node), node.note, ...node.problems].filter(Boolean).join(" · ")));
}

const isUnused = (device) => !device.free && !device.holders.length && !device.problem;

// Free is what may be used at once; on a node that takes nothing new the rest is only unused.
function room(node) {
  const free = node.devices.filter((device) => device.free).length;
  const unused = node.devices.filter(isUnused).length;
  return `${free} of ${counted(node.devices.length, "device")} free${unused ? `, ${unused} unused` : ""}`;
}

// Why a node takes nothing new, the strongest word alone.
function closed(node) {
  if (node.leaving) return ["leaving"];
  if (node.drained) return [node.replicas ? "draining" : "drained"];
  return node.cordoned ? ["cordoned"] : [];
}

const modelOf = (device, byId) => byId.get(device.holders[0])?.model ?? device.holders[0];

function kinds(node) {
  const names = [...new Set(node.devices.map((device) => device.kind))];
  return names.slice(0, 2).join(", ") + (names.length > 2 ? "…" : "");
}

const GOING = new Set(["draining", "stopping"]);
const SOON = new Set(["waiting", "starting", "loading"]);

function cell(device, byId, palette) {
  const holder = byId.get(device.holders.at(-1));
  const memory = device.memory_mib ? `, ${(device.memory_mib / 1024).toFixed(0)} GiB` : "";
  const who = holder ? `${holder.id} (${holder.state})` : device.holders.join(", ") || (device.free ? "free" : isUnused(device) ? "unused" : "");
  const title = `${device.index}: ${device.kind}${memory}: ${[who, device.problem].filter(Boolean).join("; ")}`;
  if (device.problem) return make("span", { class: "cell broken", title }, "✕");
  if (!device.holders.length) return make("span", { class: `cell ${device.free ? "free" : "unused"}`, title });
  const look = palette.get(holder?.model) ?? { tint: "gray", letters: "?" };
  const kind = GOING.has(holder?.state) ? "going" : SOON.has(holder?.state) ? "soon" : "";
  return make("span", { class: `cell ${kind}`, title, tint: look.tint }, look.letters);
}

export function events(status, origin) {
  if (!status.events.length) return [make("li", {}, make("span"), "Nothing has happened lately.")];
  return status.events.map((event) =>
    make("li", {}, age(event.age_s, origin), make("div", {}, why(event.subject, event.subject, { "data-key": null }), ` ${event.text}`)));
}

export function routers(status, origin) {
  if (!status.routers.length) return [make("li", {}, make("span"), "No routers: `llmgw routers add URL` adds one.")];
  return status.routers.map((router) => {
    const word = router.heard === null ? "unknown" : !router.heard ? "silent" : router.current ? "ready" : "behind";
    const held = router.confirmed_revision < 0 ? "has no table yet" : `has table ${router.confirmed_revision}`;
    const text = ` ${held}${router.draining ? `, ${router.draining} draining` : ""}${router.problem ? `: ${router.problem}` : ""}`;
    return make("li", {}, age(router.confirmed_age_s, origin), make("div", {}, why(`router/${router.id}`, router.id), " ", state(word), text));
  });
}

export function explanation(found) {
  const log = found.log_tail.length ? [make("p", {}, "The engine's last lines:"), make("pre", {}, found.log_tail.join("\n"))] : [];
  return [...found.sentences.map((sentence) => make("p", {}, sentence)), ...log];
}
