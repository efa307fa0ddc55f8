// @ts-check
/** Clusters: servers with roles that are requested together, and where their nodes stand. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { askFirst, tell } from "../actions.js";
import { goTo, linkTo } from "../address.js";
import { Refused, ask, get, getAll } from "../api.js";
import { COMPUTE } from "../compute.js";
import { count } from "../format.js";
import { redraw } from "../frame.js";
import { ago, chip, facts, link, panel, refusalOf, show, table } from "../parts.js";
import { may } from "../session.js";
import { ofKind, use } from "../sources.js";
import { drawSpread } from "./groups.js";

/** @typedef {Api.ClusterDetail} Cluster */

const GROUPS_SPREAD = 8;
const concerns = ofKind("cluster", "server", "host");
/** @type {Record<string, import("../parts.js").Tone>} */
const TONES = { active: "good", degraded: "warn", error: "bad" };

export function drawClusters() {
  const source = use("clusters", () => /** @type {Promise<Api.ClusterSummary[]>} */ (getAll("berth/v1/clusters?limit=1000", "clusters")), concerns);
  /** @type {import("../parts.js").Column<Api.ClusterSummary>[]} */
  const columns = [
    { name: "cluster", label: "Name", by: (one) => one.name, cell: (one) => link("cluster", one.uuid, one.name) },
    { name: "state", label: "State", by: (one) => one.state, cell: (one) => html`${chip(TONES[one.state] ?? "busy", one.state)}${one.fault ? html`<div class="quiet">${one.fault}</div>` : nothing}` },
    { name: "ready", label: "Nodes ready", by: (one) => one.progress.ready, cell: (one) => `${one.progress.ready} of ${one.progress.wanted}`, isNumber: true },
    { name: "apart", label: "Keeps apart", by: (one) => one.anti_affinity.join(", "), cell: (one) => tellRule(one), isWide: true },
    { name: "project", label: "Project", by: (one) => one.project_id, isWide: true },
    { name: "updated", label: "Changed", by: (one) => one.updated_at, cell: (one) => ago(one.updated_at), isWide: true },
  ];
  return html`<div class="head"><h1>Clusters</h1></div>
    ${may("berth:clusters:create") ? drawNew() : nothing}
    <section class="panel" aria-label="Clusters">${show(source, (clusters) => table("Clusters", columns, clusters, (one) => one.uuid, { sort: "cluster", empty: "There are no clusters." }))}</section>`;
}

/** @param {Api.ClusterSummary | Cluster} cluster */
function tellRule(cluster) {
  if (cluster.anti_affinity.length === 0) return html`<span class="quiet">nothing</span>`;
  return `${cluster.anti_affinity.join(", ")}: at most ${cluster.anti_affinity_ratio} on each ${cluster.anti_affinity_domain}`;
}

// -- the form -------------------------------------------------------------------------------------

/** @typedef {{ name: string, flavor: string, image: string, count: string, processes: string }} DraftGroup */

/** @returns {DraftGroup} */
const newGroup = () => ({ name: "", flavor: "", image: "", count: "3", processes: "" });

let draft = { isOpen: false, name: "", groups: [newGroup()], isApart: false, apart: "", ratio: "1", domain: "host" };
/** @type {unknown} */
let refusal = null;

function drawNew() {
  if (!draft.isOpen) return html`<p><button @click=${() => edit({ isOpen: true })}>New cluster …</button></p>`;
  const choices = use("choices for clusters", readChoices, ofKind("flavor", "image"));
  return panel("New cluster", show(choices, ({ flavors, images }) => html`<form class="draft" @submit=${create}>
    <div class="filters">${field("Name", draft.name, (name) => edit({ name }))}</div>
    ${draft.groups.map((group, place) => drawGroup(group, place, flavors, images))}
    <p><button type="button" @click=${() => edit({ groups: [...draft.groups, newGroup()] })}>Another node group</button></p>
    <label class="check"><input type="checkbox" .checked=${draft.isApart} @change=${() => edit({ isApart: !draft.isApart })}> Nodes keep apart (anti-affinity)</label>
    ${draft.isApart
      ? html`<div class="filters">
          ${field("Processes that keep apart", draft.apart, (apart) => edit({ apart }), "voter")}
          ${field("Ratio: nodes on each", draft.ratio, (ratio) => edit({ ratio }), "", "number")}
          ${field("On each", draft.domain, (domain) => edit({ domain }), "host, rack or zone")}
        </div>`
      : nothing}
    ${refusal === null ? nothing : html`${refusalOf(refusal)}${drawOffer(refusal)}`}
    <p><button class="main">Create</button> <button type="button" @click=${() => edit({ isOpen: false })}>Cancel</button></p>
  </form>`));
}

/**
 * @param {DraftGroup} group
 * @param {number} place
 * @param {string[]} flavors
 * @param {string[]} images
 */
function drawGroup(group, place, flavors, images) {
  const change = (/** @type {Partial<DraftGroup>} */ changes) => edit({ groups: draft.groups.map((one, at) => (at === place ? { ...one, ...changes } : one)) });
  return html`<fieldset class="filters"><legend>Node group ${place + 1}</legend>
    ${field("Name of the group", group.name, (name) => change({ name }), "voters")}
    ${selection("Flavor", group.flavor, flavors, (flavor) => change({ flavor }))}
    ${selection("Image", group.image, images, (image) => change({ image }))}
    ${field("Nodes", group.count, (nodes) => change({ count: nodes }), "", "number")}
    ${field("Processes", group.processes, (processes) => change({ processes }), "voter, storage", "text", false)}
    ${draft.groups.length > 1 ? html`<button type="button" @click=${() => edit({ groups: draft.groups.filter((_, at) => at !== place) })}>Remove</button>` : nothing}
  </fieldset>`;
}

/**
 * @param {string} label
 * @param {string} value
 * @param {(value: string) => void} change
 * @param {string} [placeholder]
 * @param {string} [type]
 * @param {boolean} [isRequired]
 */
function field(label, value, change, placeholder = "", type = "text", isRequired = true) {
  return html`<label>${label}<input type=${type} min="1" .value=${value} placeholder=${placeholder} ?required=${isRequired} maxlength="255" autocomplete="off"
    @input=${(/** @type {InputEvent} */ event) => change(/** @type {HTMLInputElement} */ (event.target).value)}></label>`;
}

/**
 * @param {string} label
 * @param {string} value
 * @param {string[]} options
 * @param {(value: string) => void} change
 */
function selection(label, value, options, change) {
  return html`<label>${label}<select required @change=${(/** @type {Event} */ event) => change(/** @type {HTMLSelectElement} */ (event.target).value)}>
    <option value="">choose</option>${options.map((one) => html`<option value=${one} ?selected=${one === value}>${one}</option>`)}</select></label>`;
}

/** The ratio that would fit, if a refusal has one. @param {unknown} error */
function drawOffer(error) {
  const ratio = error instanceof Refused ? error.details.fitting_ratio : null;
  return ratio ? html`<p><button type="button" @click=${() => edit({ ratio: String(ratio) })}>Use a ratio of ${ratio}</button></p>` : nothing;
}

/** @param {Partial<typeof draft>} changes */
function edit(changes) {
  draft = { ...draft, ...changes };
  redraw();
}

async function readChoices() {
  /** @type {[Array<{ name: string }>, { images: Array<{ name: string }> }]} */
  const [flavors, { images }] = await Promise.all([getAll(`${COMPUTE}/flavors/detail`, "flavors"), get("image/v2/images?limit=200")]);
  return { flavors: flavors.map((one) => one.name), images: images.map((one) => one.name) };
}

/** @param {SubmitEvent} event */
async function create(event) {
  event.preventDefault();
  const words = (/** @type {string} */ text) => text.split(",").map((word) => word.trim()).filter((word) => word !== "");
  const apart = draft.isApart ? { anti_affinity: words(draft.apart), anti_affinity_ratio: Number(draft.ratio), anti_affinity_domain: draft.domain } : {};
  const node_groups = draft.groups.map(({ count: nodes, processes, ...rest }) => ({ ...rest, count: Number(nodes), processes: words(processes) }));
  try {
    /** @type {Api.OneCluster} */
    const { cluster } = await ask("POST", "berth/v1/clusters", { cluster: { name: draft.name, node_groups, ...apart } });
    refusal = null;
    edit({ isOpen: false, name: "", groups: [newGroup()] });
    tell(html`<p>The cluster ${cluster.name} is being built.</p>`);
    goTo(linkTo("cluster", cluster.uuid));
  } catch (error) {
    refusal = error;
    redraw();
  }
}

// -- one cluster ----------------------------------------------------------------------------------

/** @type {{ id: string, name: string }} */
let last = { id: "", name: "Cluster" };

/** @param {import("../address.js").Address} address */
export function titleOfCluster({ id }) {
  return last.id === id ? last.name : "Cluster";
}

/** @param {import("../address.js").Address} address */
export function drawCluster({ id }) {
  const source = use(`cluster ${id}`, () => readCluster(id), concerns);
  return show(source, (cluster) => html`
    <div class="head"><h1>${cluster.name}</h1>${chip(TONES[cluster.state] ?? "busy", cluster.state)}<span class="quiet">${cluster.progress.ready} of ${count(cluster.progress.wanted, "node")} ready</span>
      <div class="beside">
        ${may("berth:events:list") ? html`<a class="button" href=${linkTo("journal", "", { subject: cluster.uuid })}>History</a>` : nothing}
        ${may("berth:clusters:delete") ? html`<button class="danger" @click=${() => askFirst(deleting(cluster))}>Delete</button>` : nothing}
      </div></div>
    ${cluster.fault ? html`<div class="refusal"><p>${cluster.fault}</p></div>` : nothing}
    ${panel("What it is", facts([["Id", html`<code>${cluster.uuid}</code>`], ["Keeps apart", tellRule(cluster)], ...groupsOf(cluster), ["Project", cluster.project_id], ...cluster.node_groups.map((group) => /** @type {[string, string]} */ ([`Node group ${group.name}`, `${group.count} × ${group.flavor}`]))]))}
    ${cluster.nodes.some((node) => node.host_name !== null) ? panel("Nodes by host", drawGrid(cluster)) : nothing}
    ${cluster.anti_affinity_domain !== "host" && may("berth:groups:show") ? cluster.groups.slice(0, GROUPS_SPREAD).map(drawSpread) : nothing}
    ${panel("Nodes", table("Nodes", nodeColumns(cluster), cluster.nodes, (one) => one.name, { empty: "It has no nodes." }))}`);
}

/** @param {string} id */
async function readCluster(id) {
  /** @type {Api.OneCluster} */
  const { cluster } = await get(`berth/v1/clusters/${encodeURIComponent(id)}`);
  last = { id, name: cluster.name };
  return cluster;
}

/**
 * The groups that keep its nodes apart: what room they leave is there.
 * @param {Cluster} cluster
 * @returns {Array<[string, import("../parts.js").Shown]>}
 */
function groupsOf({ groups }) {
  if (groups.length === 0 || !may("berth:groups:show")) return [];
  return [[groups.length === 1 ? "Group" : "Groups", html`${groups.map((uuid, place) => html`${link("group", uuid, `group ${place + 1}`)} `)}`]];
}

/** @param {Cluster} cluster */
function drawGrid(cluster) {
  const isByHost = cluster.anti_affinity_domain === "host" && cluster.groups.length > 0;
  /** @type {Map<string, Api.ClusterNode[]>} */
  const hosts = new Map();
  for (const node of cluster.nodes) if (node.host_name !== null) hosts.set(node.host_name, [...(hosts.get(node.host_name) ?? []), node]);
  return html`<ul class="grid">${[...hosts].sort().map(([host, nodes]) => html`<li>
    <div>${link("host", host)}</div>
    ${nodes.map((node) => html`<div class="quiet">${node.name}${node.group_uuid === null || cluster.groups.length === 1 ? "" : ` (group ${cluster.groups.indexOf(node.group_uuid) + 1})`}</div>`)}
    ${isByHost ? html`<div class="quiet">room for ${Math.max(0, cluster.anti_affinity_ratio - nodes.filter((node) => node.group_uuid !== null).length)} that keep apart</div>` : nothing}
    ${nodes.some((node) => node.host_down) ? chip("bad", "down") : nothing}
  </li>`)}</ul>`;
}

/**
 * @param {Cluster} cluster
 * @returns {import("../parts.js").Column<Api.ClusterNode>[]}
 */
function nodeColumns(cluster) {
  const hasHosts = cluster.nodes.some((node) => node.host_name !== null);
  return [
    { name: "node", label: "Node", by: (one) => one.name, cell: (one) => link("server", one.server_uuid, one.name) },
    { name: "status", label: "State", by: (one) => one.status, cell: (one) => html`${chip(one.status === "ACTIVE" && !one.host_down ? "good" : one.status === "ERROR" || one.host_down ? "bad" : "busy", [one.status, ...(one.state === "wanted" ? [] : [one.state]), ...(one.host_down ? ["host down"] : [])].join(", "))}${one.fault ? html`<div class="quiet">${one.fault}</div>` : nothing}` },
    ...(hasHosts ? [{ name: "host", label: "Host", by: (/** @type {Api.ClusterNode} */ one) => one.host_name ?? "", cell: (/** @type {Api.ClusterNode} */ one) => (one.host_name === null ? html`` : link("host", one.host_name)) }] : []),
    { name: "group", label: "Group", by: (one) => (one.group_uuid === null ? 0 : cluster.groups.indexOf(one.group_uuid) + 1), isNumber: true, isWide: true },
    { name: "do", label: "", by: () => "", cell: (one) => (may("berth:clusters:update") && (one.host_down || one.status === "ERROR") ? html`<button @click=${() => askFirst(replacing(cluster, one))}>Replace</button>` : html``) },
  ];
}

/**
 * @param {Cluster} cluster
 * @param {Api.ClusterNode} node
 * @returns {import("../actions.js").Question}
 */
function replacing(cluster, node) {
  return {
    title: `Replace ${node.name}?`,
    text: "A new server takes its place, with the same name and in the same group. The old one is deleted.",
    button: "Replace",
    isDanger: true,
    act: async () => {
      await ask("POST", `berth/v1/clusters/${cluster.uuid}/nodes/${encodeURIComponent(node.name)}/replace`, {});
      return `${node.name} is being replaced.`;
    },
  };
}

/**
 * @param {Cluster} cluster
 * @returns {import("../actions.js").Question}
 */
function deleting(cluster) {
  return {
    title: `Delete the cluster ${cluster.name}?`,
    text: `All of its ${count(cluster.nodes.length, "node")} are deleted.`,
    button: "Delete",
    isDanger: true,
    act: async () => {
      await ask("DELETE", `berth/v1/clusters/${cluster.uuid}`);
      goTo(linkTo("clusters"));
      return `The cluster ${cluster.name} is being deleted.`;
    },
  };
}
