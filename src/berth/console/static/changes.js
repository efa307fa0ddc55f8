// @ts-check
/** What an event says, for people: which object, and what of it is different now. */

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { linkTo } from "./address.js";
import { findHost } from "./fleet.js";
import { formatAmount } from "./format.js";

/** @typedef {import("./sources.js").AnyChange} AnyChange */

const FIELDS_SHOWN = 6;
const TEXT_SHOWN = 80;
/** Where an object of a kind is shown. */
/** @type {Record<string, string>} */
const VIEWS = { server: "server", group: "group", cluster: "cluster", host: "host", compute_host: "host" };
/** No status of its own is that of a healthy host. */
const HEALTHY = { disabled: false, down: false, build_failures: 0, reason: null };
/** What changes with everything, and says nothing. */
const NOISE = new Set(["updated_at", "generation", "left_out", "action", "power_state"]);

/**
 * What a change is about: its kind in words, its id, and its name if it has one.
 * @param {AnyChange} change
 */
export function subjectOf(change) {
  const all = /** @type {Record<string, any>} */ (change);
  const id = String(all["id"] ?? all["provider"] ?? all["consumer"] ?? all["group"] ?? all["aggregate"] ?? all["trait"] ?? all["record"] ?? all["event"] ?? all["number"] ?? "");
  const name = (all["after"] ?? all["before"])?.name;
  return { kind: change.kind, id, name: typeof name === "string" ? name : "" };
}

/**
 * Whether a change says nothing to people: it is of a version, of what only programs read, of how far an action is
 * without a step that has ended, or of a cell that is as it was.
 * @param {AnyChange} change
 * @param {string} [kind] that is asked for: none of it is noise
 */
export function isNoise(change, kind = "") {
  switch (change.kind) {
    case kind:
      return false;
    case "provider_version":
    case "internal":
      return true;
    case "action":
      return !isDifferent(change);
    case "cell":
      return change.before !== null && change.after !== null && changedFields(change.before, change.after).every((name) => name === "conductor_heard");
    default:
      return false;
  }
}

/**
 * The changes of one request. What one of them calls by its name, the others are called by too.
 * @param {AnyChange[]} changes
 * @param {number} most
 * @param {string} [kind] that is asked for
 */
export function drawChanges(changes, most, kind = "") {
  const shown = changes.filter((change) => !isNoise(change, kind));
  const names = new Map(shown.map(subjectOf).filter(({ name }) => name !== "").map(({ id, name }) => [id, name]));
  return shown.slice(0, most).map((change) => drawChange(change, names));
}

/**
 * @param {AnyChange} change
 * @param {Map<string, string>} names
 */
function drawChange(change, names) {
  const { kind, id } = subjectOf(change);
  const view = VIEWS[kind];
  const shown = names.get(id) ?? findHost(id)?.name ?? id;
  return html`<div class="changed"><span class="quiet">${kind.replaceAll("_", " ")}</span>
    ${view === undefined ? html`<a href=${linkTo("journal", "", { subject: id })}>${shown}</a>` : html`<a href=${linkTo(view, id)}>${shown}</a>`}
    ${drawDifference(change)}</div>`;
}

/**
 * @param {AnyChange} change
 * @returns {{ before: any, after: any } | null} null: it is told by its name alone
 */
function sidesOf(change) {
  if (!("before" in change)) return null;
  const { before, after } = /** @type {{ before: any, after: any }} */ (change);
  return change.kind === "host" ? { before: before ?? HEALTHY, after: after ?? HEALTHY } : { before, after };
}

/** Whether a change has anything to show. @param {AnyChange} change */
function isDifferent(change) {
  const sides = sidesOf(change);
  if (sides === null || sides.before === null || sides.after === null) return true;
  return isPlain(sides.after) || changedFields(sides.before, sides.after).length > 0;
}

/** @param {AnyChange} change */
function drawDifference(change) {
  const sides = sidesOf(change);
  if (sides === null) return nothing;
  const { before, after } = sides;
  if (before === null) return html`<span class="chip good">new</span> ${drawFields({ name: after.name }, after)}`;
  if (after === null) return html`<span class="chip quiet">gone</span>`;
  return drawFields(before, after);
}

/**
 * @param {any} before
 * @param {any} after
 */
function drawFields(before, after) {
  if (isPlain(after)) return html`<span>${tell(before)} → ${tell(after)}</span>`;
  const names = changedFields(before, after);
  const rest = names.length - FIELDS_SHOWN;
  return html`${names.slice(0, FIELDS_SHOWN).map((name) => html`<span class="field">${name} ${before[name] === undefined ? nothing : html`${tell(before[name], name)} → `}<b>${tell(after[name], name)}</b></span> `)}${rest > 0 ? html`<span class="quiet">and ${rest} more</span>` : nothing}`;
}

/** @param {unknown} value */
function isPlain(value) {
  return typeof value !== "object" || Array.isArray(value);
}

/**
 * @param {any} before
 * @param {any} after
 */
function changedFields(before, after) {
  return Object.keys({ ...before, ...after }).filter((name) => !NOISE.has(name) && JSON.stringify(before[name]) !== JSON.stringify(after[name]));
}

/**
 * @param {unknown} value
 * @param {string} [name] of the field
 */
function tell(value, name = "") {
  const text = name === "allocations" ? tellAllocations(/** @type {any} */ (value ?? {})) : value === null || value === undefined ? "none" : typeof value === "object" ? JSON.stringify(value).replaceAll('"', "") : String(value);
  return text.length > TEXT_SHOWN ? `${text.slice(0, TEXT_SHOWN)} …` : text;
}

/**
 * What is held of which provider. Hosts have their names, as far as they are known.
 * @param {Record<string, Record<string, number>>} allocations
 */
function tellAllocations(allocations) {
  const parts = Object.entries(allocations).map(([provider, held]) => `${Object.entries(held).map(([name, amount]) => `${name} ${formatAmount(name, amount)}`).join(", ")} on ${findHost(provider)?.name ?? provider.slice(0, 8)}`);
  return parts.join("; ") || "nothing";
}
