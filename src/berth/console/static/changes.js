// @ts-check
/** What an event says, for people: which object, and what of it is different now. */

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { linkTo } from "./address.js";
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
 * @param {Record<string, string>} names of what has none in a change
 * @param {number} most
 * @param {string} [kind] that is asked for
 */
export function drawChanges(changes, names, most, kind = "") {
  const shown = changes.filter((change) => !isNoise(change, kind));
  const own = shown.map(subjectOf).filter(({ name }) => name !== "");
  const all = new Map([...Object.entries(names), ...own.map(({ id, name }) => /** @type {[string, string]} */ ([id, name]))]);
  return shown.slice(0, most).map((change) => drawChange(change, all));
}

/**
 * @param {AnyChange} change
 * @param {Map<string, string>} names
 */
function drawChange(change, names) {
  const { kind, id } = subjectOf(change);
  const view = VIEWS[kind];
  const shown = names.get(id) ?? id;
  return html`<div class="changed"><span class="quiet">${kind.replaceAll("_", " ")}${change.kind === "inventory" ? ` ${change.resource_class}` : ""}</span>
    ${view === undefined ? html`<a href=${linkTo("journal", "", { subject: id })}>${shown}</a>` : html`<a href=${linkTo(view, id)}>${shown}</a>`}
    ${drawDifference(change, names)}</div>`;
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

/**
 * @param {AnyChange} change
 * @param {Map<string, string>} names
 */
function drawDifference(change, names) {
  const sides = sidesOf(change);
  if (sides === null) return nothing;
  const { before, after } = sides;
  if (before === null) return html`<span class="chip good">new</span> ${drawFields({ name: after.name }, after, names)}`;
  if (after === null) return html`<span class="chip quiet">gone</span>`;
  return drawFields(before, after, names);
}

/**
 * @param {any} before
 * @param {any} after
 * @param {Map<string, string>} names of objects
 */
function drawFields(before, after, names) {
  if (Array.isArray(before) && Array.isArray(after)) return drawList(before, after);
  if (isPlain(after)) return html`<span>${tell(before)} → ${tell(after)}</span>`;
  const fields = changedFields(before, after);
  const rest = fields.length - FIELDS_SHOWN;
  const show = (/** @type {any} */ side, /** @type {string} */ field) => (field === "allocations" ? cut(tellAllocations(side[field] ?? {}, names)) : tell(side[field]));
  return html`${fields.slice(0, FIELDS_SHOWN).map((field) => html`<span class="field">${field} ${before[field] === undefined ? nothing : html`${show(before, field)} → `}<b>${show(after, field)}</b></span> `)}${rest > 0 ? html`<span class="quiet">and ${rest} more</span>` : nothing}`;
}

/**
 * What has come into a list, and what has gone from it.
 * @param {unknown[]} before
 * @param {unknown[]} after
 */
function drawList(before, after) {
  const came = after.filter((one) => !before.includes(one));
  const went = before.filter((one) => !after.includes(one));
  return html`${came.length === 0 ? nothing : html`<span class="field">with <b>${cut(came.join(", "))}</b></span> `}${went.length === 0 ? nothing : html`<span class="field">without <b>${cut(went.join(", "))}</b></span>`}`;
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

/** @param {unknown} value */
function tell(value) {
  return cut(value === null || value === undefined ? "none" : typeof value === "object" ? JSON.stringify(value).replaceAll('"', "") : String(value));
}

/** @param {string} text */
function cut(text) {
  return text.length > TEXT_SHOWN ? `${text.slice(0, TEXT_SHOWN)} …` : text;
}

/**
 * What is held of which provider.
 * @param {Record<string, Record<string, number>>} allocations
 * @param {Map<string, string>} names
 */
function tellAllocations(allocations, names) {
  const parts = Object.entries(allocations).map(([provider, held]) => `${Object.entries(held).map(([name, amount]) => `${name} ${formatAmount(name, amount)}`).join(", ")} on ${names.get(provider) ?? provider.slice(0, 8)}`);
  return parts.join("; ") || "nothing";
}
