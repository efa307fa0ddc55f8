// @ts-check
/** Groups: which members are on which host, rack or zone, and how much room the policy leaves there. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { askFirst } from "../actions.js";
import { goTo, linkTo } from "../address.js";
import { ask, get, getAll } from "../api.js";
import { count } from "../format.js";
import { redraw } from "../frame.js";
import { facts, link, panel, refusalOf, show, table, time } from "../parts.js";
import { may } from "../session.js";
import { ofKind, use } from "../sources.js";

/** @typedef {Api.GroupDetail} Group */

const concerns = ofKind("group", "member", "consumer");
const POLICIES = ["anti-affinity", "affinity", "soft-anti-affinity", "soft-affinity"];
const SLOTS_SHOWN = 12;

export function drawGroups() {
  const source = use("groups", () => /** @type {Promise<Api.GroupSummary[]>} */ (getAll("berth/v1/groups?limit=1000", "groups")), concerns);
  /** @type {import("../parts.js").Column<Api.GroupSummary>[]} */
  const columns = [
    { name: "group", label: "Name", by: (one) => one.name, cell: (one) => link("group", one.uuid, one.name) },
    { name: "policy", label: "Policy", by: (one) => one.policy },
    { name: "domain", label: "On each", by: (one) => one.domain, cell: (one) => tellRule(one) },
    { name: "members", label: "Members", by: (one) => one.member_count, isNumber: true },
    { name: "project", label: "Project", by: (one) => one.project_id, isWide: true },
    { name: "created", label: "Created", by: (one) => one.created_at, cell: (one) => time(one.created_at), isWide: true },
  ];
  return html`<div class="head"><h1>Groups</h1></div>
    ${may("berth:groups:create") ? panel("New group", drawForm()) : nothing}
    <section class="panel" aria-label="Groups">${show(source, (groups) => table("Groups", columns, groups, (one) => one.uuid, { sort: "group", empty: "There are no groups." }))}</section>`;
}

/** @param {Api.GroupSummary | Group} group */
function tellRule(group) {
  const most = mostOf(group);
  return `${group.domain}${most === null ? "" : `, at most ${most}`}${group.max_skew === null ? "" : `, skew ${group.max_skew}`}`;
}

/**
 * How many members a domain may have; null if the policy has no such limit.
 * @param {Api.GroupSummary | Group} group
 */
function mostOf(group) {
  return group.max_per_domain ?? (group.policy === "anti-affinity" ? 1 : null);
}

// -- the form -------------------------------------------------------------------------------------

let policy = "anti-affinity";
/** @type {unknown} */
let refusal = null;

function drawForm() {
  return html`<form class="filters" @submit=${create}>
    <label>Name<input name="name" required maxlength="255" autocomplete="off"></label>
    <label>Policy<select name="policy" @change=${(/** @type {Event} */ event) => {
      policy = /** @type {HTMLSelectElement} */ (event.target).value;
      redraw();
    }}>${POLICIES.map((one) => html`<option ?selected=${one === policy}>${one}</option>`)}</select></label>
    <label>On each<input name="domain" value="host" required maxlength="64" list="kinds"></label>
    <datalist id="kinds"><option value="host"></option><option value="rack"></option><option value="zone"></option></datalist>
    ${policy === "anti-affinity" ? html`<label>Ratio: members on each<input type="number" name="ratio" min="1" max="1000" value="1" required></label>` : nothing}
    <button class="main">Create</button>
  </form>${refusal === null ? nothing : refusalOf(refusal)}`;
}

/** @param {SubmitEvent} event */
async function create(event) {
  event.preventDefault();
  const form = /** @type {HTMLFormElement} */ (event.target);
  const given = new FormData(form);
  const ratio = given.get("ratio");
  const body = { name: given.get("name"), policy: given.get("policy"), domain: given.get("domain"), ...(ratio === null ? {} : { max_per_domain: Number(ratio) }) };
  try {
    /** @type {Api.OneGroup} */
    const { group } = await ask("POST", "berth/v1/groups", { group: body });
    refusal = null;
    form.reset();
    goTo(linkTo("group", group.uuid));
  } catch (error) {
    refusal = error;
  }
  redraw();
}

// -- one group ------------------------------------------------------------------------------------

/** @type {{ id: string, name: string }} */
let last = { id: "", name: "Group" };

/** @param {import("../address.js").Address} address */
export function titleOfGroup({ id }) {
  return last.id === id ? last.name : "Group";
}

/** @param {import("../address.js").Address} address */
export function drawGroup({ id }) {
  return show(useGroup(id), (group) => html`
    <div class="head"><h1>${group.name}</h1><span class="quiet">${group.policy}</span>
      <div class="beside">
        ${may("berth:events:list") ? html`<a class="button" href=${linkTo("journal", "", { subject: group.uuid })}>History</a>` : nothing}
        ${may("berth:explain") ? html`<a class="button" href=${linkTo("why", "", { group: group.uuid })}>Would another fit?</a>` : nothing}
        ${may("berth:groups:delete") && group.member_count === 0 ? html`<button class="danger" @click=${() => askFirst(deleting(group))}>Delete</button>` : nothing}
      </div></div>
    ${panel("The rule", facts([["Id", html`<code>${group.uuid}</code>`], ["Policy", group.policy], ["On each", tellRule(group)], ["Members", String(group.member_count)], ["Project", group.project_id]]))}
    ${panel(`Members by ${group.domain}`, drawGrid(group))}
    ${panel("Members", table("Members", memberColumns, group.members, (one) => one.consumer_uuid, { empty: "It has no members." }))}`);
}

/** @param {string} id */
function useGroup(id) {
  return use(`group ${id}`, () => readGroup(id), concerns);
}

/** How the members of a group are spread, in another view. @param {string} id */
export function drawSpread(id) {
  return show(useGroup(id), (group) => panel(`${group.name} by ${group.domain}`, drawGrid(group), { beside: link("group", id, "the group") }));
}

/** @param {string} id */
async function readGroup(id) {
  /** @type {Api.OneGroup} */
  const { group } = await get(`berth/v1/groups/${encodeURIComponent(id)}`);
  last = { id, name: group.name };
  return group;
}

/** @param {Group} group */
function drawGrid(group) {
  const most = mostOf(group);
  const empty = group.domains_total - group.domains.length;
  return html`<ul class="grid">${group.domains.map((domain) => {
    const free = most === null ? 0 : Math.max(0, most - domain.members);
    const over = most !== null && domain.members > most;
    return html`<li class=${over ? "over" : ""}>
      <div class="slots" aria-hidden="true">${[...Array(Math.min(domain.members, SLOTS_SHOWN)).keys()].map(() => html`<span class="slot taken"></span>`)}${[...Array(Math.min(free, SLOTS_SHOWN)).keys()].map(() => html`<span class="slot"></span>`)}</div>
      <div>${domain.name}</div>
      <div class="quiet">${count(domain.members, "member")}${most === null ? "" : over ? `, ${domain.members - most} too many` : free === 0 ? ", full" : `, room for ${free}`}</div>
    </li>`;
  })}${empty <= 0 ? nothing : html`<li class="quiet">${group.domains.length === 0 ? "" : "and "}${count(empty, group.domain)} without a member${most === null ? "" : `, room for ${most}${empty === 1 ? "" : " on each"}`}</li>`}</ul>`;
}

/** @type {import("../parts.js").Column<Api.Member>[]} */
const memberColumns = [
  { name: "member", label: "Consumer", by: (one) => one.name ?? one.consumer_uuid, cell: (one) => html`${one.name === null ? html`<code>${one.consumer_uuid}</code>` : link("server", one.stands_for, one.name)}${one.stands_for === one.consumer_uuid ? "" : html` <span class="quiet">of a migration</span>`}` },
  { name: "host", label: "Host", by: (one) => one.standing[0]?.host_name ?? "", cell: (one) => (one.standing.length === 0 ? html`<span class="quiet">none</span>` : html`${one.standing.map((place) => html`${link("host", place.host_uuid, place.host_name)} `)}`) },
];

/**
 * @param {Group} group
 * @returns {import("../actions.js").Question}
 */
function deleting(group) {
  return {
    title: `Delete the group ${group.name}?`,
    button: "Delete",
    isDanger: true,
    act: async () => {
      await ask("DELETE", `berth/v1/groups/${group.uuid}`);
      goTo(linkTo("groups"));
      return `The group ${group.name} is deleted.`;
    },
  };
}
