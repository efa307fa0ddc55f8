// @ts-check
/** Overview: is everything well? What is wrong comes first, then how much room there is, and what changed last. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { linkTo } from "../address.js";
import { get } from "../api.js";
import { drawChanges, isNoise } from "../changes.js";
import { count, formatDuration, formatNumber, secondsSince } from "../format.js";
import { classesOf } from "../hosts.js";
import { ago, bar, chip, panel, shareBar, show, time } from "../parts.js";
import { may } from "../session.js";
import { use } from "../sources.js";

/** @typedef {Api.OverviewDetail} Overview */

const HOW = { paceMs: 2000, ageMaxMs: 10_000 };
const CHANGES_SHOWN = 3;
const EVENTS_SHOWN = 8;
const REQUEST_ID = /(req-[0-9a-f]{8}-[0-9a-f-]{27})/;
/** @type {Record<Api.Wrong["kind"], [import("../parts.js").Tone, string, string]>} */
const KINDS = {
  cell_unreachable: ["bad", "cell away", ""],
  conductor_silent: ["bad", "conductor silent", ""],
  host_down: ["bad", "host down", "host"],
  operation_overdue: ["warn", "operation overdue", "server"],
  server_in_error: ["bad", "server in error", "server"],
  host_complaining: ["warn", "host complaining", "host"],
  doctor: ["warn", "does not agree", "doctor"],
};
/** @type {Record<string, string>} */
const STATUSES = { active: "ACTIVE", building: "BUILD", error: "ERROR", stopped: "SHUTOFF", resized: "VERIFY_RESIZE", shelved_offloaded: "SHELVED_OFFLOADED" };

export function drawOverview() {
  const source = use("overview", readOverview, (change) => !isNoise(change), HOW);
  return html`<div class="head"><h1>Overview</h1>${source.value === undefined ? nothing : drawVerdict(source.value)}</div>
    ${show(source, (overview) => html`
      ${overview.wrong.length === 0 ? nothing : panel("What is wrong", drawWrong(overview))}
      <div class="two">
        ${panel("Capacity", drawCapacity(overview))}
        ${panel("Room for more", drawFlavors(overview), { beside: overview.flavors_counted_at === null ? nothing : html`<span class="quiet">counted ${ago(overview.flavors_counted_at)}</span>` })}
        ${panel("Hosts and servers", drawNumbers(overview))}
        ${may("berth:cells:list") ? drawCells() : nothing}
      </div>
      ${panel("Last changes", drawLast(overview), { beside: html`<a href=${linkTo("journal")}>all of them</a>` })}`)}`;
}

async function readOverview() {
  /** @type {Api.OneOverview} */
  const { overview } = await get("berth/v1/overview");
  return overview;
}

/** @param {Overview} overview */
function drawVerdict(overview) {
  const wrong = Object.values(overview.wrong_total).reduce((sum, one) => sum + one, 0);
  return html`<span class="verdict" role="status">${wrong === 0 ? chip("good", "Everything is well") : chip("bad", count(wrong, "thing is wrong", "things are wrong"))}</span>`;
}

/** @param {Overview} overview */
function drawWrong(overview) {
  const shown = overview.wrong.length;
  const all = Object.values(overview.wrong_total).reduce((sum, one) => sum + one, 0);
  return html`<ul class="wrong">${overview.wrong.map((one) => {
      const [tone, word, view] = KINDS[one.kind];
      const name = one.name ?? one.object;
      return html`<li>
        <div>${chip(tone, word)}</div>
        <div><b>${view === "" ? name : html`<a href=${view === "doctor" ? linkTo("doctor") : linkTo(view, one.object)}>${name}</a>`}</b>
          ${one.since === null ? nothing : html`<span class="quiet">for ${formatDuration(secondsSince(one.since))}</span>`}
          <div>${linkRequests(one.text)}</div>
          <div class="quiet">${one.what_to_do}${one.kind === "server_in_error" && may("berth:explain") ? html` <a href=${linkTo("why", "", { server: one.object })}>Would it fit now?</a>` : nothing}</div></div>
      </li>`;
    })}</ul>
    ${all > shown ? html`<p class="quiet">${formatNumber(all - shown)} more of the same kinds.</p>` : nothing}`;
}

/** A text whose request ids lead to what was done by them. @param {string} text */
function linkRequests(text) {
  if (!may("berth:events:list")) return text;
  return html`${text.split(REQUEST_ID).map((part) => (REQUEST_ID.test(part) ? html`<a href=${linkTo("journal", "", { request_id: part })}>${part}</a>` : part))}`;
}

/** @param {Overview} overview */
function drawCapacity({ capacity }) {
  const names = classesOf([capacity.total]);
  const zones = Object.keys(capacity.by_zone).length > 0;
  return html`<dl class="uses">${names.map((name) => html`<div><dt>${name}</dt><dd>${bar(name, capacity.total[name]?.used ?? 0, capacity.total[name]?.capacity ?? 0)}</dd></div>`)}</dl>
    ${drawBy("Cell", capacity.by_cell, names)}${zones ? drawBy("Zone", capacity.by_zone, names) : nothing}`;
}

/**
 * @param {string} what
 * @param {Record<string, Record<string, Api.ClassUse>>} uses
 * @param {string[]} names
 */
function drawBy(what, uses, names) {
  const shown = names.slice(0, 3);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Used by ${what.toLowerCase()}"><table><caption class="hidden">Capacity by ${what}</caption><thead><tr><th scope="col">${what}</th>${shown.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${Object.entries(uses).map(([place, use]) => html`<tr><th scope="row">${place}</th>${shown.map((name) => html`<td>${shareBar(name, use[name]?.used ?? 0, use[name]?.capacity ?? 0)}</td>`)}</tr>`)}</tbody></table></div>`;
}

/** @param {Overview} overview */
function drawFlavors({ flavors, flavors_total }) {
  if (flavors.length === 0) return html`<p class="quiet">There are no flavors.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="How many more of each flavor fit"><table><caption class="hidden">How many more of each flavor fit</caption><thead><tr><th scope="col">Flavor</th><th scope="col" class="number">More that fit</th><th scope="col"></th></tr></thead>
    <tbody>${flavors.map((one) => html`<tr><td>${one.name}</td><td class="number">${one.fits === null ? html`<span class="quiet" title=${one.text ?? ""}>not counted</span>` : `${one.exact ? "" : "≥ "}${formatNumber(one.fits)}`}</td>
      <td>${one.fits === 0 && may("berth:explain") ? html`<a href=${linkTo("why", "", { flavor: one.name })}>why?</a>` : nothing}</td></tr>`)}</tbody></table></div>
    ${flavors_total > flavors.length ? html`<p class="quiet">${count(flavors_total - flavors.length, "more flavor")}.</p>` : nothing}`;
}

/** @param {Overview} overview */
function drawNumbers({ hosts, servers, servers_total }) {
  return html`<table class="numbers"><caption class="hidden">Hosts and servers by state</caption><tbody>
    ${drawNumber(chip("good", "hosts up"), hosts.up, linkTo("fleet", "", { state: "up" }))}
    ${drawNumber(chip(hosts.down > 0 ? "bad" : "quiet", "hosts down"), hosts.down, linkTo("fleet", "", { state: "down" }))}
    ${drawNumber(chip("quiet", "hosts disabled"), hosts.disabled, linkTo("fleet", "", { state: "disabled" }))}
    ${hosts.complaining > 0 ? drawNumber(chip("warn", "hosts complaining"), hosts.complaining, linkTo("fleet", "", { state: "wrong" })) : nothing}
    ${drawNumber(html`servers in all`, servers_total, linkTo("servers"))}
    ${Object.entries(servers).sort().map(([state, number]) => drawNumber(chip(state === "error" ? "bad" : state === "active" ? "good" : "quiet", `servers ${state}`), number, linkTo("servers", "", { status: STATUSES[state] ?? "" })))}
  </tbody></table>`;
}

/**
 * @param {import("../parts.js").Shown} label
 * @param {number} number
 * @param {string} link
 */
function drawNumber(label, number, link) {
  return html`<tr><th scope="row">${label}</th><td class="number"><a href=${link}>${formatNumber(number)}</a></td></tr>`;
}

function drawCells() {
  const source = use("cells", () => /** @type {Promise<Api.Cells>} */ (get("berth/v1/cells")), (change) => change.kind === "host" || change.kind === "compute_host", HOW);
  return panel("Cells", show(source, ({ cells }) => cells.length === 0 ? html`<p class="quiet">There are no cells.</p>` : html`<div class="scroll" tabindex="0" role="region" aria-label="Their states"><table><caption class="hidden">Cells</caption>
    <thead><tr><th scope="col">Cell</th><th scope="col">State</th><th scope="col" class="number">Hosts up</th><th scope="col" class="number">down</th><th scope="col" class="number">disabled</th><th scope="col" class="number">Orders waiting</th></tr></thead>
    <tbody>${cells.map((cell) => html`<tr><th scope="row">${cell.name}</th><td>${chip(cell.state === "well" ? "good" : cell.state === "unknown" ? "quiet" : "bad", cell.state)}${cell.text === null ? nothing : html`<div class="quiet">${cell.text}${cell.database_text === null ? "" : ` ${cell.database_text}`}</div>`}</td>
      <td class="number">${formatNumber(cell.hosts.up)}</td><td class="number">${formatNumber(cell.hosts.down)}</td><td class="number">${formatNumber(cell.hosts.disabled)}</td><td class="number">${formatNumber(cell.waiting)}</td></tr>`)}</tbody></table></div>`));
}

/** @param {Overview} overview */
function drawLast({ last_changes }) {
  const shown = last_changes.filter((event) => !event.changes.every((change) => isNoise(change))).slice(0, EVENTS_SHOWN);
  if (shown.length === 0) return html`<p class="quiet">Nothing has changed yet.</p>`;
  return html`<ol class="journal">${shown.map((event) => {
    return html`<li><div class="head">${time(event.at)} <b>${event.action}</b>
      ${event.user === null || event.user === event.action ? nothing : html`<span class="quiet">by ${event.user}</span>`}
      ${event.request_id === "" ? nothing : html`<a href=${linkTo("journal", "", { request_id: event.request_id })}><code>${event.request_id}</code></a>`}</div>
      ${drawChanges(event.changes, event.names, CHANGES_SHOWN)}
      ${event.changes_total > CHANGES_SHOWN ? html`<div class="changed quiet">${count(event.changes_total, "change")} in all</div>` : nothing}</li>`;
  })}</ol>`;
}
