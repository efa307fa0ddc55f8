// @ts-check
/** Fleet: every host a square, grouped and coloured as asked for; or the same as a table. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { goTo, linkTo } from "../address.js";
import { get } from "../api.js";
import { findHost, fleet, hostsByName, wantFleet } from "../fleet.js";
import { count, formatAmount, formatShare, sortKeyOf } from "../format.js";
import { redraw } from "../frame.js";
import { classesOf, domainOf, stateChip } from "../hosts.js";
import { bar, choice, filters, link, refusalOf, table, textFilter } from "../parts.js";
import { ofKind, use } from "../sources.js";
import "../squares.js";

/** @typedef {Api.HostDetail} Host */
/** @typedef {{ name: string, hosts: Host[] }} Block */

const HOLDERS_SHOWN = 6;
const HOSTS_ASKED_FOR_CLASSES = 200;
const REST_MS = 250;
const TABLE_FOR_MS = 1000;
const HOSTS_DRAWN_LIVE = 1000;
/** So many builds that failed in a row make a full square. */
const FAILURES_FULL = 5;

/** @type {{ uuid: string | null, isResting: boolean }} */
let pointed = { uuid: null, isResting: false };
/** @type {ReturnType<typeof setTimeout> | undefined} */
let resting;

/** @param {import("../address.js").Address} address */
export function drawFleet({ query }) {
  wantFleet();
  const { blocks, classes } = makeBlocks(query);
  const by = query.get("by") ?? classes[0] ?? "state";
  const isTable = query.get("as") === "table";
  const shown = blocks.reduce((sum, block) => sum + block.hosts.length, 0);
  return html`<div class="head"><h1>Fleet</h1><span class="quiet" role="status">${tellCount(shown)}</span></div>
    ${fleet.error === null ? nothing : refusalOf(fleet.error)}
    <section class="panel" aria-label="What is shown">
      ${filters(
        choice("as", "Show as", [["", "squares"], ["table", "table"]]),
        isTable ? html`` : choice("group", "Group by", groupings(), "cell"),
        isTable ? html`` : choice("by", "Colour by", [...classes.map((name) => /** @type {[string, string]} */ ([name, `fullness of ${name}`])), ["state", "state alone"], ["failures", "failed builds"]], by),
        textFilter("name", "Name has", "host-00"),
        choice("state", "State", [["", "any"], ["up", "up"], ["down", "down"], ["disabled", "disabled"], ["wrong", "down, failing or complaining"]]),
      )}
      ${isTable ? nothing : drawLegend(by)}
    </section>
    ${isTable ? drawTable(blocks, classes) : drawSquares(blocks, by, shown)}`;
}

/** @param {number} shown */
function tellCount(shown) {
  const all = fleet.hosts.size;
  if (!fleet.isWhole) return `${count(all, "host")} so far …`;
  return shown === all ? `${count(all, "host")}.` : `${count(shown, "host")} of ${count(all, "host")}.`;
}

// -- which hosts, in which blocks -----------------------------------------------------------------

/** @type {{ key: string, blocks: Block[], kinds: Array<[string, string]>, classes: string[] }} */
let made = { key: "", blocks: [], kinds: [], classes: [] };

/**
 * The blocks, made again only if hosts, states, names or domains have changed, or something else is asked for.
 * @param {URLSearchParams} query
 */
function makeBlocks(query) {
  const group = query.get("group") ?? "cell";
  const name = (query.get("name") ?? "").toLowerCase();
  const state = query.get("state") ?? "";
  const key = [fleet.shape, group, name, state].join("\n");
  if (made.key === key) return made;
  /** @type {Map<string, Host[]>} */
  const groups = new Map();
  const kinds = new Set(["cell"]);
  const all = hostsByName();
  for (const host of all) {
    for (const { kind } of host.domains) kinds.add(kind);
    if ((name !== "" && !host.name.toLowerCase().includes(name)) || !isInState(host, state)) continue;
    const at = group === "none" ? "" : domainOf(host, group);
    const hosts = groups.get(at);
    if (hosts === undefined) groups.set(at, [host]);
    else hosts.push(host);
  }
  const blocks = [...groups]
    .map(([at, hosts]) => ({ at: sortKeyOf(at), name: at === "" ? (group === "none" ? "All hosts" : `In no ${group}`) : at, hosts }))
    .sort((one, other) => (one.at < other.at ? -1 : 1));
  const some = all.slice(0, HOSTS_ASKED_FOR_CLASSES);
  made = { key, blocks, kinds: [...kinds].sort().map((kind) => [kind, kind]), classes: classesOf(some.map((host) => host.usage)) };
  return made;
}

/** @returns {Array<[string, string]>} */
function groupings() {
  return [...made.kinds, ["none", "nothing"]];
}

/**
 * @param {Host} host
 * @param {string} state
 */
function isInState(host, state) {
  if (state === "") return true;
  if (state === "wrong") return host.down || host.complaints.length > 0 || host.build_failures > 0;
  return host.state === state;
}

// -- squares --------------------------------------------------------------------------------------

/**
 * @param {Block[]} blocks
 * @param {string} by
 * @param {number} shown
 */
function drawSquares(blocks, by, shown) {
  if (blocks.length === 0) return fleet.isWhole ? html`<p class="quiet">No host is as asked for.</p>` : html`<p class="quiet" role="status">Reading …</p>`;
  const size = shown > 3000 ? 9 : shown > 600 ? 14 : shown > 100 ? 24 : 36;
  const keyOf = (/** @type {Host} */ host) => host.uuid;
  const shareOf = (/** @type {Host} */ host) => (by === "failures" ? failuresOf(host) : Math.max(0, usedShareOf(host, by)));
  return html`<div class="map">
    <div class="blocks">${repeat(blocks, (block) => block.name, (block) => html`<section class="panel block">
      <header><h2>${block.name}</h2><span class="quiet">${tellBlock(block, by)}</span></header>
      <host-squares role="group" aria-label="${block.name}: ${count(block.hosts.length, "host")}. Arrow keys choose a host, Enter opens it."
        .content=${{ items: block.hosts, size, keyOf, shareOf, markOf }}
        @point=${(/** @type {CustomEvent} */ event) => point(event.detail)}
        @open=${(/** @type {CustomEvent} */ event) => goTo(linkTo("host", event.detail))}></host-squares>
    </section>`)}</div>
    <aside class="panel card" aria-live="polite">${drawPointed()}</aside>
  </div>`;
}

/**
 * @param {Block} block
 * @param {string} by
 */
function tellBlock(block, by) {
  const words = [count(block.hosts.length, "host")];
  let used = 0;
  let capacity = 0;
  let down = 0;
  for (const host of block.hosts) {
    used += host.usage[by]?.used ?? 0;
    capacity += host.usage[by]?.capacity ?? 0;
    if (host.down) down++;
  }
  if (capacity > 0) words.push(`${formatShare(used, capacity)} of ${by} used`);
  if (down > 0) words.push(`${down} down`);
  return words.join(", ");
}

/**
 * @param {Host} host
 * @returns {import("../squares.js").Mark}
 */
function markOf(host) {
  return host.down ? "down" : host.disabled ? "disabled" : host.complaints.length > 0 || host.build_failures > 0 ? "warn" : "";
}

/** @param {string} by */
function drawLegend(by) {
  return html`<p class="legend quiet">
    ${by === "state"
      ? nothing
      : by === "failures"
        ? html`<span>Filled: failed builds in a row</span> <span class="key high">1 to ${FAILURES_FULL - 1}</span> <span class="key full">${FAILURES_FULL} or more</span>`
        : html`<span>Filled: used part of ${by}</span> <span class="key low">below 80 %</span> <span class="key high">from 80 %</span> <span class="key full">from 95 %</span>`}
    <span><b>✕</b> down</span> <span><b>///</b> disabled</span> <span><b>▲</b> in the corner: complaining or failing builds</span>
  </p>`;
}

/** @param {string | null} uuid */
function point(uuid) {
  clearTimeout(resting);
  pointed = { uuid, isResting: false };
  if (uuid !== null) {
    resting = setTimeout(() => {
      pointed = { uuid, isResting: true };
      redraw();
    }, REST_MS);
  }
  redraw();
}

function drawPointed() {
  const host = pointed.uuid === null ? undefined : findHost(pointed.uuid);
  if (host === undefined) return html`<p class="quiet">Point at a host to see what it has and who holds it. A click opens it.</p>`;
  return html`<header><h2>${host.name}</h2>${stateChip(host)}</header>
    ${host.reason === null ? nothing : html`<p>${host.reason}</p>`}
    ${host.complaints.slice(0, 3).map((complaint) => html`<p class="warn">${complaint}</p>`)}
    <dl class="uses">${classesOf([host.usage]).map((name) => {
      const use = host.usage[name];
      return html`<div><dt>${name}</dt><dd>${bar(name, use?.used ?? 0, use?.capacity ?? 0)}</dd></div>`;
    })}</dl>
    <p class="quiet">${count(host.servers, "server")}${host.domains.map((domain) => `, ${domain.kind} ${domain.name ?? ""}`)}</p>
    ${pointed.isResting ? drawHolders(host) : nothing}`;
}

/** @param {Host} host */
function drawHolders(host) {
  const source = use(`holders ${host.uuid}`, () => readHolders(host.uuid), ofKind("consumer"));
  const found = source.value;
  if (found === undefined || found.consumers.length === 0) return nothing;
  const more = found.consumers_total - Math.min(found.consumers.length, HOLDERS_SHOWN);
  return html`<ul class="holders">${found.consumers.slice(0, HOLDERS_SHOWN).map((one) => html`<li>${one.name ?? one.uuid.slice(0, 8)} <span class="quiet" title="${one.type} of ${one.project_id}">${tellBriefly(sumOf(Object.values(one.allocations)))}</span></li>`)}
    ${more > 0 ? html`<li class="quiet">and ${more} more</li>` : nothing}</ul>`;
}

/** @param {Array<Record<string, number>>} held */
function sumOf(held) {
  /** @type {Record<string, number>} */
  const sum = {};
  for (const resources of held) for (const [name, amount] of Object.entries(resources)) sum[name] = (sum[name] ?? 0) + amount;
  return sum;
}

/** Amounts in little room: the unit tells what memory and disk are. @param {Record<string, number>} resources */
function tellBriefly(resources) {
  return classesOf([resources]).map((name) => `${formatAmount(name, resources[name] ?? 0)}${/_[MG]B$/.test(name) ? "" : ` ${name}`}`).join(", ");
}

/** @param {string} uuid */
async function readHolders(uuid) {
  /** @type {Api.OneHostTree} */
  const { host } = await get(`berth/v1/hosts/${uuid}`);
  return host;
}

// -- the table ------------------------------------------------------------------------------------

/** @type {{ key: string, at: number, content: import("../parts.js").Shown }} */
let drawn = { key: "", at: -Infinity, content: nothing };
/** @type {ReturnType<typeof setTimeout> | undefined} */
let redrawing;

/**
 * The table; of a large fleet the same for a second. To lay it out and paint it takes longer than a frame has.
 * @param {Block[]} blocks
 * @param {string[]} classes
 */
function drawTable(blocks, classes) {
  const key = `${made.key}\n${location.hash}`;
  const left = drawn.at + TABLE_FOR_MS - performance.now();
  if (fleet.hosts.size > HOSTS_DRAWN_LIVE && drawn.key === key && left > 0) {
    redrawing ??= setTimeout(() => {
      redrawing = undefined;
      redraw();
    }, left);
  } else drawn = { key, at: performance.now(), content: drawRows(blocks, classes) };
  return drawn.content;
}

/**
 * @param {Block[]} blocks
 * @param {string[]} classes
 */
function drawRows(blocks, classes) {
  /** @type {import("../parts.js").Column<Host>[]} */
  const columns = [
    { name: "host", label: "Name", by: (one) => one.name, cell: (one) => link("host", one.uuid, one.name) },
    { name: "state", label: "State", by: (one) => one.state, cell: stateChip },
    { name: "cell", label: "Cell", by: (one) => one.cell ?? "", isWide: true },
    { name: "servers", label: "Servers", by: (one) => one.servers, isNumber: true, isWide: true },
    ...classes.slice(0, 4).map((name) => ({
      name,
      label: name,
      by: (/** @type {Host} */ one) => usedShareOf(one, name),
      cell: (/** @type {Host} */ one) => (one.usage[name] === undefined ? html`<span class="quiet">none</span>` : bar(name, one.usage[name].used, one.usage[name].capacity)),
      isWide: name !== classes[0],
    })),
    { name: "reason", label: "Reason", by: (one) => one.reason ?? one.complaints[0] ?? "", isWide: true },
  ];
  return html`<section class="panel" aria-label="Hosts">${table("Hosts", columns, blocks.flatMap((block) => block.hosts), (one) => one.uuid, { empty: "No host is as asked for.", sort: "host" })}</section>`;
}

/** How full the square of a host is for the builds that failed there: one is worth a look. @param {Host} host */
function failuresOf({ build_failures }) {
  return build_failures === 0 ? 0 : build_failures >= FAILURES_FULL ? 1 : 0.8 + 0.03 * build_failures;
}

/**
 * The used part of a class; -1 if the host has none of it.
 * @param {Host} host
 * @param {string} name
 */
function usedShareOf(host, name) {
  const use = host.usage[name];
  return use === undefined || use.capacity === 0 ? -1 : use.used / use.capacity;
}
