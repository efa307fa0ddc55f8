// @ts-check
/** Server: where it is, what it holds, and what was done with it, step by step. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { linkTo } from "../address.js";
import { Refused, get, send } from "../api.js";
import { COMPUTE, statusChip } from "../compute.js";
import { formatAmount, formatDuration, timeOf } from "../format.js";
import { ago, chip, facts, link, panel, shortId, show, time } from "../parts.js";
import { may } from "../session.js";
import { use } from "../sources.js";

/** @typedef {import("../compute.js").ComputeServer} ComputeServer */
/** @typedef {import("../compute.js").InstanceAction} InstanceAction */

const ACTIONS_MAX = 12;
const PROVIDERS_NAMED = 20;

/** @type {Map<string, string>} */
const names = new Map();

/** @param {import("../address.js").Address} address */
export function titleOfServer({ id }) {
  return names.get(id) ?? "Server";
}

/** @param {import("../address.js").Address} address */
export function drawServer({ id }) {
  const concerns = concernsOf(id);
  const server = use(`server ${id}`, () => readServer(id), concerns);
  return show(server, (value) => html`
    <div class="head"><h1>${value.name}</h1>${statusChip(value)}
      <div class="beside">
        ${may("berth:explain") ? html`<a class="button" href=${linkTo("why", "", { server: id })}>Would it fit now?</a>` : nothing}
        ${may("berth:events:list") ? html`<a class="button" href=${linkTo("journal", "", { subject: id })}>History</a>` : nothing}
      </div>
    </div>
    ${value.fault === undefined ? nothing : drawFault(value.fault)}
    ${panel("Where and what", factsOf(value))}
    ${may("berth:servers:show") ? drawHoldings(id, concerns) : nothing}
    ${may("os_compute_api:os-instance-actions:list") ? drawTimeline(id, concerns) : nothing}`);
}

/**
 * @param {string} id
 * @returns {import("../sources.js").Concerns}
 */
export function concernsOf(id) {
  return (change) => {
    switch (change.kind) {
      case "server":
        return change.id === id;
      case "action":
      case "migration":
      case "assignment":
        return (change.after ?? change.before)?.server === id;
      case "consumer":
        return change.consumer === id;
      default:
        return false;
    }
  };
}

/** @param {string} id */
async function readServer(id) {
  /** @type {{ server: ComputeServer }} */
  const { server } = await get(`${COMPUTE}/servers/${encodeURIComponent(id)}`);
  names.clear();
  names.set(id, server.name);
  return server;
}

/** @param {NonNullable<ComputeServer["fault"]>} fault */
function drawFault(fault) {
  return html`<section class="panel refusal" aria-label="Why it is in error">
    <header><h2>Why is it in error?</h2><span class="quiet">${time(fault.created)}</span></header>
    <p>${fault.message}</p>
    ${fault.details ? html`<details><summary>Details</summary><pre>${fault.details}</pre></details>` : nothing}
  </section>`;
}

/** @param {ComputeServer} server */
function factsOf(server) {
  const host = server["OS-EXT-SRV-ATTR:host"];
  /** @type {Array<[string, import("../parts.js").Shown]>} */
  const pairs = [["Id", html`<code>${server.id}</code>`]];
  if (host !== undefined) pairs.push(["Host", host ? link("host", host) : "none"]);
  pairs.push(["Zone", server["OS-EXT-AZ:availability_zone"] || "none"]);
  pairs.push(["Running since", server["OS-SRV-USG:launched_at"] ? ago(server["OS-SRV-USG:launched_at"]) : "not started yet"]);
  pairs.push(["Flavor", `${server.flavor.original_name}: ${server.flavor.vcpus} VCPU, ${formatAmount("MEMORY_MB", server.flavor.ram)}, ${formatAmount("DISK_GB", server.flavor.disk)}`]);
  pairs.push(["Project", server.tenant_id], ["User", server.user_id], ["Created", time(server.created)]);
  if (server.image) pairs.push(["Image", html`<code>${server.image.id}</code>`]);
  for (const group of server.server_groups ?? []) pairs.push(["Group", may("berth:groups:show") ? link("group", group) : html`<code>${group}</code>`]);
  if (server.locked) pairs.push(["Locked", server.locked_reason ?? "yes"]);
  if (server.description) pairs.push(["Description", server.description]);
  const metadata = Object.entries(server.metadata);
  if (metadata.length > 0) pairs.push(["Metadata", metadata.map(([name, value]) => `${name}=${value}`).join(", ")]);
  const specs = Object.entries(server.flavor.extra_specs ?? {});
  if (specs.length > 0) pairs.push(["Extra specs", specs.map(([name, value]) => `${name}=${value}`).join(", ")]);
  return facts(pairs);
}

// -- what it holds --------------------------------------------------------------------------------

/**
 * @param {string} id
 * @param {import("../sources.js").Concerns} concerns
 */
function drawHoldings(id, concerns) {
  const source = use(`holdings ${id}`, () => readHoldings(id), concerns);
  return show(source, ({ server, migration, devices, needs, names: called }) => html`<div class="two">
    ${panel("What it holds", html`
      ${holdingsTable(server, called)}
      ${migration === null
        ? nothing
        : html`<h3>What its migration holds</h3>${allocationsTable(migration, {}, called)}`}
      ${server.conflict === null
        ? nothing
        : html`<div class="refusal"><p>Another client changed what this server holds, ${time(server.conflict.at)}, while “${server.conflict.asked}” was asked for. Ask again to go on.</p></div>`}`)}
    ${devices.length === 0 ? nothing : panel("Devices and cpus", html`<table><caption class="hidden">Assignments</caption><thead><tr><th scope="col">Class</th><th scope="col">From</th><th scope="col">Units</th></tr></thead>
      <tbody>${devices.map((device) => html`<tr><td>${device.resource_class}</td><td>${device.provider_name ?? device.of}</td><td>${device.units?.join(", ") ?? device.count}</td></tr>`)}</tbody></table>`)}
    ${needs.length === 0 ? nothing : panel("Needs", html`<table><caption class="hidden">Needs</caption><thead><tr><th scope="col">Need</th><th scope="col">Resources</th><th scope="col">Traits</th></tr></thead>
      <tbody>${needs.map((need) => html`<tr><td>${need.name}</td><td>${amounts(need.resources)}</td><td>${[...need.required, ...need.forbidden.map((trait) => `not ${trait}`)].join(", ") || "none"}</td></tr>`)}</tbody></table>`)}
  </div>`);
}

/** @param {string} id */
export async function readHoldings(id) {
  /** @type {[Api.OneServer, Api.Devices, Api.Needs]} */
  const [{ server }, { devices }, { needs }] = await Promise.all([
    get(`berth/v1/servers/${id}`),
    get(`berth/v1/servers/${id}/devices`),
    get(`berth/v1/servers/${id}/needs`),
  ]);
  const migration = server.migration === null ? null : await readMigration(server.migration);
  const providers = may("placement:resource_providers:show") ? Object.keys({ ...server.allocations, ...server.holds, ...migration }) : [];
  const names = new Map(await Promise.all(providers.slice(0, PROVIDERS_NAMED).map(readProviderName)));
  return { server, migration, devices, needs, names };
}

/**
 * @param {string} provider
 * @returns {Promise<[string, string]>} its uuid, and what it is called
 */
async function readProviderName(provider) {
  try {
    /** @type {{ name: string }} */
    const { name } = await get(`resource_providers/${provider}`);
    return [provider, name];
  } catch (error) {
    // It is gone: its uuid has to do.
    if (error instanceof Refused && error.status === 404) return [provider, provider];
    throw error;
  }
}

/** @param {string} consumer */
async function readMigration(consumer) {
  if (!may("placement:allocations:list")) return null;
  const response = await send("GET", `allocations/${consumer}`, { headers: { "OpenStack-API-Version": "placement 1.39" } });
  /** @type {{ allocations: Record<string, { resources: Record<string, number> }> }} */
  const { allocations } = await response.json();
  return Object.fromEntries(Object.entries(allocations).map(([provider, held]) => [provider, held.resources]));
}

/**
 * What it holds beside what it should hold. They differ if another client has changed the one, and nobody yet the other.
 * @param {Api.ServerDetail} server
 * @param {Map<string, string>} names of providers, as far as they are known
 */
function holdingsTable({ holds, allocations, added_by_others }, names) {
  const providers = Object.keys({ ...allocations, ...holds });
  if (providers.length === 0) return html`<p class="quiet">Nothing, and it should hold nothing.</p>`;
  const isSame = (/** @type {string} */ provider) => amounts(holds[provider] ?? {}, true) === amounts(allocations[provider] ?? {}, true);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Allocations"><table><caption class="hidden">Allocations</caption>
    <thead><tr><th scope="col">Provider</th><th scope="col">Holds</th><th scope="col">Should hold</th></tr></thead>
    <tbody>${providers.map((provider) => html`<tr><td title=${provider}>${names.get(provider) ?? shortId(provider)}</td><td>${amounts(holds[provider] ?? {}) || "nothing"}</td>
      <td>${isSame(provider) ? chip("good", "the same") : html`${chip("bad", amounts(allocations[provider] ?? {}) || "nothing")}`}${added_by_others[provider] ? html`<div class="quiet">of it added by others: ${amounts(added_by_others[provider])}</div>` : nothing}</td></tr>`)}</tbody></table></div>
    ${providers.every(isSame) || !may("berth:doctor:examine") ? nothing : html`<p>Another client has changed what it holds: the <a href=${linkTo("doctor")}>doctor</a> says what can be done.</p>`}`;
}

/**
 * @param {Record<string, Record<string, number>>} held
 * @param {Record<string, Record<string, number>>} added
 * @param {Map<string, string>} names of providers, as far as they are known
 */
export function allocationsTable(held, added, names) {
  const rows = Object.entries(held);
  if (rows.length === 0) return html`<p class="quiet">Nothing.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Allocations"><table><caption class="hidden">Allocations</caption>
    <thead><tr><th scope="col">Provider</th><th scope="col">Amounts</th></tr></thead>
    <tbody>${rows.map(([provider, resources]) => html`<tr><td title=${provider}>${names.get(provider) ?? shortId(provider)}</td><td>${amounts(resources)}${added[provider] ? html`<div class="quiet">of it added by others: ${amounts(added[provider])}</div>` : nothing}</td></tr>`)}</tbody></table></div>`;
}

/**
 * @param {Record<string, number>} resources
 * @param {boolean} [isOrdered] by the names of the classes
 */
export function amounts(resources, isOrdered = false) {
  const entries = Object.entries(resources);
  return (isOrdered ? entries.sort() : entries)
    .map(([name, value]) => `${name} ${formatAmount(name, value)}`)
    .join(", ");
}

// -- what was done with it ------------------------------------------------------------------------

/**
 * @param {string} id
 * @param {import("../sources.js").Concerns} concerns
 */
function drawTimeline(id, concerns) {
  const source = use(`actions ${id}`, () => readActions(id), concerns, { ageMaxMs: 5000 });
  return panel("Operations", show(source, ({ actions, running }) => html`<ol class="timeline">${actions.map((action) => drawAction(action, running.find((one) => one.request_id === action.request_id)))}</ol>`));
}

/**
 * The last actions with the steps that have ended, and what is under way.
 * @param {string} id
 * @returns {Promise<{ actions: InstanceAction[], running: Api.OperationDetail[] }>}
 */
async function readActions(id) {
  const base = `${COMPUTE}/servers/${encodeURIComponent(id)}/os-instance-actions`;
  /** @type {{ instanceActions: InstanceAction[] }} */
  const { instanceActions } = await get(`${base}?limit=${ACTIONS_MAX}`);
  const actions = may("os_compute_api:os-instance-actions:show") ? await Promise.all(instanceActions.map(({ request_id }) => readAction(`${base}/${request_id}`))) : instanceActions;
  return { actions, running: may("berth:operations:list") ? await readRunning(id) : [] };
}

/** @param {string} path */
async function readAction(path) {
  /** @type {{ instanceAction: InstanceAction }} */
  const { instanceAction } = await get(path);
  return instanceAction;
}

/** @param {string} id */
async function readRunning(id) {
  /** @type {Api.Operations} */
  const { operations } = await get(`berth/v1/operations?state=running&server=${encodeURIComponent(id)}`);
  return operations;
}

/**
 * @param {InstanceAction} action
 * @param {Api.OperationDetail} [running] the same, if it is under way
 */
function drawAction(action, running) {
  const ended = action.events ?? [];
  return html`<li>
    <div class="head"><h3>${action.action}</h3>${time(action.start_time)}<span class="quiet">by ${action.user_id}</span>
      ${may("berth:events:list") ? html`<a href=${linkTo("journal", "", { request_id: action.request_id })}><code>${action.request_id}</code></a>` : html`<code>${action.request_id}</code>`}</div>
    ${action.message ? html`<p class="bad">${action.message}</p>` : nothing}
    ${ended.length === 0 && !running?.step ? nothing : html`<div class="scroll" tabindex="0" role="region" aria-label="Steps of ${action.action}"><table><caption class="hidden">Steps of ${action.action}</caption>
      <thead><tr><th scope="col">Step</th><th scope="col">Result</th><th scope="col">Host</th><th scope="col" class="number">Took</th><th scope="col" class="wide">Began</th></tr></thead>
      <tbody>${ended.map((step) => drawStep(step, action.message))}${running?.step ? drawRunning(running) : nothing}</tbody></table></div>`}
  </li>`;
}

/** The step that is under way. @param {Api.OperationDetail} running */
function drawRunning(running) {
  const attempt = running.attempt > 1 ? `, attempt ${running.attempt}` : "";
  const { deadline } = running;
  return html`<tr><td>${running.step}</td><td>${running.overdue ? chip("warn", `overdue${attempt}`) : chip("busy", `under way${attempt}`)}${deadline === null ? nothing : html`<div class="quiet">should end by ${time(deadline)}</div>`}</td>
    <td>${running.host ? link("host", running.host) : ""}</td><td></td><td class="wide"></td></tr>`;
}

/**
 * @param {import("../compute.js").ActionEvent} step
 * @param {string | null} said what stands above it already
 */
function drawStep(step, said) {
  const took = step.finish_time === null ? "" : formatDuration((timeOf(step.finish_time) - timeOf(step.start_time)) / 1000);
  const result = step.result === null ? chip("busy", "under way") : step.result === "Success" ? chip("good", "done") : chip("bad", step.result);
  return html`<tr><td>${step.event}</td><td>${result}${step.details && step.details !== said ? html`<div class="quiet">${step.details}</div>` : nothing}</td>
    <td>${step.host ? link("host", step.host) : ""}</td><td class="number">${took}</td><td class="wide">${time(step.start_time)}</td></tr>`;
}
