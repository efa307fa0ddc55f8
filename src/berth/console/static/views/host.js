// @ts-check
/** Host: its providers as a picture, who holds what of them, and what can be done with it. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { linkTo } from "../address.js";
import { get } from "../api.js";
import { count, formatAmount, formatNumber } from "../format.js";
import { classesOf, hostButtons, stateChip } from "../hosts.js";
import { bar, facts, link, panel, show, table } from "../parts.js";
import { may, session } from "../session.js";
import { ofKind, use } from "../sources.js";
import { drawEvents } from "./journal.js";
import { drawOperations } from "./moves.js";
import { aboutPools, readPools } from "./pools.js";
import { amounts } from "./server.js";

/** @typedef {Api.HostTreeDetail} Tree */
/** @typedef {Api.TreePart} Part */
/** @typedef {Api.HostConsumer} Consumer */

const HOLDERS_SHOWN = 12;
const OPERATIONS_SHOWN = 5;
const EVENTS_SHOWN = 5;

/** @type {{ id: string, name: string }} */
let last = { id: "", name: "Host" };

/** @param {import("../address.js").Address} address */
export function titleOfHost({ id }) {
  return last.id === id ? last.name : "Host";
}

/** @param {import("../address.js").Address} address */
export function drawHost({ id }) {
  /** @type {import("../sources.js").Source<Tree>} */
  const source = use(`host ${id}`, () => readHost(id), (change) => isAbout(source.value, change));
  return show(source, (host) => html`
    <div class="head"><h1>${host.name}</h1>${stateChip(host)}
      <div class="beside">
        ${may("berth:events:list") ? html`<a class="button" href=${linkTo("journal", "", { subject: host.uuid })}>History</a>` : nothing}
        ${hostButtons(host)}
      </div>
    </div>
    ${host.complaints.length === 0 ? nothing : panel("Complaints of its agent", html`<p class="quiet">The host is up. What its agent reported and could not be written:</p>
      <ul>${host.complaints.map((complaint) => html`<li>${complaint}</li>`)}</ul>`)}
    ${panel("How it is", factsOf(host))}
    ${panel("What it has", html`${host.providers.length === 0 ? html`<p class="quiet">It has no inventory.</p>` : drawTree(host)}${may("berth:pools:list") ? drawPools(host) : nothing}`, {
      beside: host.providers_total > host.providers.length ? html`<span class="quiet">${formatNumber(host.providers.length)} of ${formatNumber(host.providers_total)} providers</span>` : nothing,
    })}
    ${panel("Who holds it", drawConsumers(host), { beside: html`<span class="quiet">${count(host.consumers_total, "consumer")}</span>` })}
    ${may("berth:operations:list") && session.settings?.has_servers ? drawUnderWay(host) : nothing}
    ${may("berth:events:list") ? drawHistory(host) : nothing}`);
}

/** @param {Tree} host */
function drawUnderWay(host) {
  const source = use(`operations at ${host.uuid}`, () => /** @type {Promise<Api.Operations>} */ (get(`berth/v1/operations?limit=${OPERATIONS_SHOWN}&host=${host.uuid}`)), ofKind("action", "migration"), { ageMaxMs: 5000 });
  return panel("Operations", show(source, ({ operations }) => drawOperations(operations)), { beside: html`<a href=${linkTo("moves", "", { host: host.name })}>all of them</a>` });
}

/** @param {Tree} host */
function drawHistory(host) {
  const source = use(`last changes of ${host.uuid}`, () => /** @type {Promise<Api.Events>} */ (get(`berth/v1/events?newest=true&limit=${EVENTS_SHOWN}&subject=${host.uuid}`)), (change) => isAbout(host, change), { paceMs: 2000 });
  return panel("Last changes", show(source, ({ events }) => drawEvents(events, "", host.uuid)), { beside: html`<a href=${linkTo("journal", "", { subject: host.uuid })}>all of them</a>` });
}

/** @param {string} id */
async function readHost(id) {
  /** @type {Api.OneHostTree} */
  const { host } = await get(`berth/v1/hosts/${encodeURIComponent(id)}`);
  last = { id, name: host.name };
  return host;
}

/**
 * @param {Tree | undefined} host
 * @param {import("../sources.js").AnyChange} change
 */
function isAbout(host, change) {
  if (host === undefined) return false;
  const isOurs = (/** @type {string} */ uuid) => host.providers.some((part) => part.uuid === uuid) || uuid === host.uuid;
  switch (change.kind) {
    case "host":
    case "inventory":
    case "provider_traits":
    case "provider_aggregates":
      return isOurs(change.provider);
    case "provider":
      return isOurs(change.provider) || isOurs(change.after?.parent_provider_uuid ?? "");
    case "compute_host":
      return change.id === host.uuid;
    case "consumer":
      return [change.before, change.after].some((state) => Object.keys(state?.allocations ?? {}).some(isOurs));
    case "server":
      return [change.before, change.after].some((state) => state?.host === host.name || state?.host === host.uuid);
    default:
      return false;
  }
}

/** @param {Tree} host */
function factsOf(host) {
  /** @type {Array<[string, import("../parts.js").Shown]>} */
  const pairs = [["Id", html`<code>${host.uuid}</code>`], ["Cell", host.cell ?? "none"], ["Driver", host.driver ?? "no agent"], ["Servers", may("os_compute_api:servers:detail") ? html`<a href=${linkTo("servers", "", { host: host.name })}>${formatNumber(host.servers)}</a>` : formatNumber(host.servers)]];
  for (const domain of host.domains) if (domain.kind !== "cell") pairs.push([domain.kind, domain.name ?? domain.uuid]);
  if (host.reason !== null) pairs.push([host.disabled ? "Disabled because" : "Reason", host.reason]);
  if (host.build_failures > 0) pairs.push(["Failed builds in a row", formatNumber(host.build_failures)]);
  return html`${facts(pairs)}<dl class="uses in-all">${classesOf([host.usage]).map((name) => html`<div><dt>${name}</dt><dd>${bar(name, host.usage[name]?.used ?? 0, host.usage[name]?.capacity ?? 0)}</dd></div>`)}</dl>`;
}

// -- the tree -------------------------------------------------------------------------------------

/** @param {Tree} host */
function drawTree(host) {
  /** @type {Map<string | null, Part[]>} */
  const below = new Map();
  for (const part of host.providers) below.set(part.parent, [...(below.get(part.parent) ?? []), part]);
  /** @type {Map<string, Consumer[]>} */
  const holders = new Map();
  for (const consumer of host.consumers) for (const provider of Object.keys(consumer.allocations)) holders.set(provider, [...(holders.get(provider) ?? []), consumer]);
  return html`<ul class="tree">${(below.get(null) ?? []).map((part) => drawPart(part, "", below, holders))}</ul>`;
}

/** The pools that it can use: those that are shared in an aggregate it is in. @param {Tree} host */
function drawPools(host) {
  const source = use("pools", readPools, aboutPools);
  const here = new Set(host.providers.flatMap((part) => part.aggregates));
  return show(source, (pools) => {
    const usable = pools.filter((pool) => pool.aggregates.some((one) => here.has(one.uuid)));
    if (usable.length === 0) return nothing;
    return html`<h3 class="below">Pools that it can use</h3><ul class="tree">${usable.map((pool) => html`<li class="part">
      <div class="head"><h3>${link("pool", pool.uuid, pool.name)}</h3><span class="quiet">shared by ${count(pool.hosts, "host")}</span></div>${drawInventories(pool)}</li>`)}</ul>`;
  });
}

/**
 * One provider as a box, with those below it inside.
 * @param {Part} part
 * @param {string} above the name of what it is in: names repeat it, and the picture need not
 * @param {Map<string | null, Part[]>} below
 * @param {Map<string, Consumer[]>} holders
 * @returns {import("../parts.js").Template}
 */
function drawPart(part, above, below, holders) {
  const children = below.get(part.uuid) ?? [];
  const short = above !== "" && part.name.startsWith(above) ? part.name.slice(above.length).replace(/^[_\-:.]+/, "") : part.name;
  return html`<li class="part">
    <div class="head"><h3 title=${part.name}>${short || part.name}</h3>
      ${part.traits.length === 0 ? nothing : html`<details><summary>${count(part.traits.length, "trait")}</summary><p class="traits">${part.traits.map((trait) => html`<code>${trait}</code> `)}</p></details>`}
    </div>
    ${drawInventories(part)}
    ${part.parent === null ? nothing : drawHolders(holders.get(part.uuid) ?? [])}
    ${children.length === 0 ? nothing : html`<ul class="tree">${children.map((child) => drawPart(child, part.name, below, holders))}</ul>`}
  </li>`;
}

/**
 * Who holds a part of a host: a device, or some of a NUMA cell. Of the host itself, the table says it.
 * @param {Consumer[]} holders
 */
function drawHolders(holders) {
  if (holders.length === 0) return nothing;
  const more = holders.length - HOLDERS_SHOWN;
  return html`<p class="held"><span class="quiet">Held by</span> ${holders.slice(0, HOLDERS_SHOWN).map((one, place) => html`${place === 0 ? "" : ", "}${nameOf(one)}`)}${more > 0 ? ` and ${formatNumber(more)} more` : ""}</p>`;
}

/** @param {Consumer} consumer */
function nameOf(consumer) {
  return consumer.type === "INSTANCE" && consumer.name !== null ? link("server", consumer.uuid, consumer.name) : html`${consumer.name ?? ""} <code>${consumer.uuid}</code>`;
}

/** @param {Part | Api.PoolDetail} part */
function drawInventories(part) {
  const names = classesOf([part.inventories]);
  if (names.length === 0) return html`<p class="quiet">No inventory of its own.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Inventories of ${part.name}"><table class="inventories"><caption class="hidden">Inventories of ${part.name}</caption>
    <thead><tr><th scope="col">Class</th><th scope="col">Used</th><th scope="col" class="number">Total</th><th scope="col" class="number">Reserved</th><th scope="col" class="number">Ratio</th></tr></thead>
    <tbody>${names.map((name) => {
      const one = /** @type {Api.InventoryUse} */ (part.inventories[name]);
      const capacity = Math.trunc((one.total - one.reserved) * one.allocation_ratio);
      return html`<tr><th scope="row">${name}</th><td>${bar(name, one.used, capacity)}</td><td class="number">${formatAmount(name, one.total)}</td><td class="number">${formatAmount(name, one.reserved)}</td><td class="number">${one.allocation_ratio}</td></tr>`;
    })}</tbody></table></div>`;
}

// -- who holds it ---------------------------------------------------------------------------------

/** @param {Tree} host */
function drawConsumers(host) {
  const names = new Map(host.providers.map((part) => [part.uuid, part.name]));
  /** @type {import("../parts.js").Column<Consumer>[]} */
  const columns = [
    { name: "consumer", label: "Consumer", by: (one) => one.name ?? one.uuid, cell: nameOf },
    { name: "type", label: "Type", by: (one) => one.type, isWide: true },
    { name: "project", label: "Project", by: (one) => one.project_id, isWide: true },
    {
      name: "holds",
      label: "Holds",
      by: (one) => Object.values(one.allocations).reduce((sum, held) => sum + (held["VCPU"] ?? held["PCPU"] ?? 0), 0),
      cell: (one) => html`${Object.entries(one.allocations).map(([provider, held]) => html`<div>${amounts(held)}${provider === host.uuid ? "" : html` <span class="quiet">from ${names.get(provider) ?? provider}</span>`}</div>`)}`,
    },
  ];
  return table("Consumers", columns, host.consumers, (one) => one.uuid, { empty: "Nobody.", sort: "consumer" });
}
