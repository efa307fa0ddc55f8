// @ts-check
/** Pools: what is shared between hosts, how full it is, and who uses it. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { linkTo } from "../address.js";
import { get, getAll } from "../api.js";
import { count, formatAmount, formatNumber, sortKeyOf } from "../format.js";
import { bar, facts, link, panel, show, table } from "../parts.js";
import { may } from "../session.js";
import { ofKind, use } from "../sources.js";
import { amounts } from "./server.js";

export const aboutPools = ofKind("provider", "inventory", "consumer", "provider_aggregates", "provider_traits");
const SHOWN_MAX = 500;

export function drawPools() {
  const source = use("pools", readPools, aboutPools);
  /** @type {import("../parts.js").Column<Api.PoolDetail>[]} */
  const columns = [
    { name: "pool", label: "Name", by: (one) => one.name, cell: (one) => link("pool", one.uuid, one.name) },
    { name: "used", label: "Used", by: (one) => Math.max(0, ...Object.values(one.inventories).map((all) => all.used / Math.max(1, all.capacity))), cell: drawUse },
    { name: "hosts", label: "Hosts", by: (one) => one.hosts, isNumber: true },
    { name: "consumers", label: "Consumers", by: (one) => one.consumers, isNumber: true },
    { name: "shared", label: "Shared in", by: (one) => one.aggregates.map((all) => all.name ?? all.uuid).join(", "), isWide: true },
  ];
  return html`<div class="head"><h1>Pools</h1></div>
    <section class="panel" aria-label="Pools">${show(source, (pools) => table("Pools", columns, pools, (one) => one.uuid, { sort: "pool", empty: "There are no pools: nothing is shared between hosts." }))}</section>`;
}

/** @returns {Promise<Api.PoolDetail[]>} */
export function readPools() {
  return getAll("berth/v1/pools?limit=1000", "pools");
}

/** @param {Api.PoolDetail} pool */
function drawUse(pool) {
  return html`${Object.entries(pool.inventories).map(([name, one]) => html`<div class="use"><span class="quiet">${name}</span> ${bar(name, one.used, one.capacity)}</div>`)}`;
}

/** @type {{ id: string, name: string }} */
let last = { id: "", name: "Pool" };

/** @param {import("../address.js").Address} address */
export function titleOfPool({ id }) {
  return last.id === id ? last.name : "Pool";
}

/** @param {import("../address.js").Address} address */
export function drawPool({ id }) {
  const source = use(`pool ${id}`, () => readPool(id), aboutPools);
  return show(source, ({ pool, hosts, allocations }) => html`
    <div class="head"><h1>${pool.name}</h1><div class="beside">${may("berth:events:list") ? html`<a class="button" href=${linkTo("journal", "", { subject: pool.uuid })}>History</a>` : nothing}</div></div>
    ${panel("What it has", html`${facts([["Id", html`<code>${pool.uuid}</code>`], ["Shared in", pool.aggregates.map((one) => `${one.kind ?? "aggregate"} ${one.name ?? one.uuid}`).join(", ") || "no aggregate"], ["Traits", pool.traits.join(", ") || "none"]])}
      <div class="scroll" tabindex="0" role="region" aria-label="Inventories"><table><caption class="hidden">Inventories</caption><thead><tr><th scope="col">Class</th><th scope="col">Used</th><th scope="col" class="number">Total</th><th scope="col" class="number">Reserved</th><th scope="col" class="number">Ratio</th></tr></thead>
      <tbody>${Object.entries(pool.inventories).map(([name, one]) => html`<tr><th scope="row">${name}</th><td>${bar(name, one.used, one.capacity)}</td><td class="number">${formatAmount(name, one.total)}</td><td class="number">${formatAmount(name, one.reserved)}</td><td class="number">${one.allocation_ratio}</td></tr>`)}</tbody></table></div>`)}
    <div class="two">
      ${panel("Who uses it", table("Consumers", consumerColumns, allocations, (one) => one.consumer_uuid, { empty: "Nobody." }), { beside: html`<span class="quiet">${count(pool.consumers, "consumer")}${pool.consumers > allocations.length ? `, ${formatNumber(allocations.length)} shown` : ""}</span>` })}
      ${panel("Which hosts may use it", hosts.length === 0 ? html`<p class="quiet">None.</p>` : html`<p class="list">${[...hosts].sort(byName).map((host) => html`${link("host", host.uuid, host.name)} `)}</p>`, { beside: html`<span class="quiet">${count(pool.hosts, "host")}${pool.hosts > hosts.length ? `, ${formatNumber(hosts.length)} shown` : ""}</span>` })}
    </div>`);
}

/**
 * @param {{ name: string }} one
 * @param {{ name: string }} other
 */
function byName(one, other) {
  return sortKeyOf(one.name) < sortKeyOf(other.name) ? -1 : 1;
}

/** @type {import("../parts.js").Column<Api.AllocationDetail>[]} */
const consumerColumns = [
  { name: "consumer", label: "Consumer", by: (one) => one.consumer_name ?? one.consumer_uuid, cell: (one) => (one.consumer_type === "INSTANCE" && one.consumer_name !== null && may("os_compute_api:servers:show") ? link("server", one.consumer_uuid, one.consumer_name) : html`${one.consumer_name ?? ""} <code>${one.consumer_uuid}</code>`) },
  { name: "project", label: "Project", by: (one) => one.project_id },
  { name: "holds", label: "Holds", by: (one) => Math.max(0, ...Object.values(one.resources)), cell: (one) => amounts(one.resources) },
];

/** @param {string} id */
async function readPool(id) {
  const uuid = encodeURIComponent(id);
  /** @type {[Api.OnePool, Api.PoolHostsPage, Api.Allocations]} */
  const [{ pool }, { hosts }, { allocations }] = await Promise.all([
    get(`berth/v1/pools/${uuid}`),
    get(`berth/v1/pools/${uuid}/hosts?limit=${SHOWN_MAX}`),
    get(`berth/v1/allocations?provider=${uuid}&limit=${SHOWN_MAX}`),
  ]);
  last = { id, name: pool.name };
  return { pool, hosts, allocations };
}
