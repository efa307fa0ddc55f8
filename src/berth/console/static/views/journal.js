// @ts-check
/** Journal: who changed what, when, and by which request. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { changeQuery, linkTo } from "../address.js";
import { get } from "../api.js";
import { drawChanges, isNoise, subjectOf } from "../changes.js";
import { wantFleet } from "../fleet.js";
import { count, formatNumber } from "../format.js";
import { choice, filters, show, textFilter, time } from "../parts.js";
import { may } from "../session.js";
import { use } from "../sources.js";

/** @typedef {{ kind: string, subject: string, user: string, request_id: string }} Wanted */
/** @typedef {{ events: Api.Event[], from: number, isStart: boolean }} Found */

const WINDOW = 500;
const WINDOWS_MAX = 20;
const PAGE = 1000;
const FOUND_MAX = 200;
const CHANGES_SHOWN = 8;
const KINDS = ["server", "migration", "action", "consumer", "host", "compute_host", "provider", "inventory", "provider_traits", "provider_aggregates", "aggregate", "group", "member", "cluster", "flavor", "image", "quotas", "assignment"];

/** @param {import("../address.js").Address} address */
export function drawJournal({ query }) {
  if (may("berth:hosts:list")) wantFleet();
  const wanted = { kind: query.get("kind") ?? "", subject: query.get("subject") ?? "", user: query.get("user") ?? "", request_id: query.get("request_id") ?? "" };
  const before = query.get("before");
  const source = use(`journal ${JSON.stringify(wanted)} ${before ?? ""}`, () => readJournal(wanted, before === null ? null : Number(before)), (change, event) => before === null && isWanted(event, wanted) && !isNoise(change));
  return html`<div class="head"><h1>Journal</h1></div>
    <section class="panel" aria-label="Journal">
      ${filters(
        choice("kind", "Kind", [["", "any"], ...KINDS.map((kind) => /** @type {[string, string]} */ ([kind, kind.replaceAll("_", " ")]))]),
        textFilter("subject", "Object: uuid or name", "host-0001"),
        textFilter("user", "User", "admin"),
        textFilter("request_id", "Request", "req-…"),
      )}
      ${show(source, (found) => drawFound(found, wanted))}
    </section>`;
}

/**
 * The newest events that are wanted, newest first, up to an index. It looks back a bounded way, and says how far.
 * @param {Wanted} wanted
 * @param {number | null} before
 * @returns {Promise<Found>}
 */
async function readJournal(wanted, before) {
  /** @type {Api.Event[]} */
  const events = [];
  let end = before ?? (await readPage(0, 1)).index + 1;
  for (let windows = 0; windows < WINDOWS_MAX && end > 1 && events.length < FOUND_MAX; windows++) {
    const start = Math.max(0, end - 1 - WINDOW);
    const { found, oldest } = await readWindow(start, end);
    events.push(...found.reverse().filter((event) => isWanted(event, wanted)));
    end = start + 1;
    if (oldest > start + 1) return { events: events.slice(0, FOUND_MAX), from: oldest, isStart: true };
  }
  const cut = events.slice(0, FOUND_MAX);
  const from = events.length > FOUND_MAX ? (cut.at(-1)?.index ?? end) : end;
  return { events: cut, from, isStart: from <= 1 };
}

/**
 * Events from behind an index up to before another; `oldest` is above `start + 1` where older ones are not kept.
 * @param {number} start
 * @param {number} end
 */
async function readWindow(start, end) {
  /** @type {Api.Event[]} */
  const found = [];
  let after = start;
  let oldest = start + 1;
  while (after < end - 1) {
    let page;
    try {
      page = await readPage(after, PAGE);
    } catch (error) {
      if (/** @type {any} */ (error).status !== 410) throw error;
      // The oldest that are kept come without an index to begin at.
      page = /** @type {Api.Events} */ (await get(`berth/v1/events?limit=${PAGE}`));
      oldest = page.events[0]?.index ?? end;
    }
    found.push(...page.events.filter((event) => event.index < end));
    if (page.next <= after) break;
    after = page.next;
  }
  return { found, oldest };
}

/**
 * @param {number} after
 * @param {number} limit
 * @returns {Promise<Api.Events>}
 */
function readPage(after, limit) {
  return get(`berth/v1/events?after=${after}&limit=${limit}`);
}

/**
 * @param {Api.Event} event
 * @param {Wanted} wanted
 */
function isWanted(event, { kind, subject, user, request_id }) {
  if (user !== "" && event.user !== user) return false;
  if (request_id !== "" && event.request_id !== request_id) return false;
  if (kind !== "" && !event.changes.some((change) => change.kind === kind)) return false;
  return subject === "" || event.action.includes(subject) || event.changes.some((change) => JSON.stringify(change).includes(subject));
}

/**
 * @param {Found} found
 * @param {Wanted} wanted
 */
function drawFound({ events, from, isStart }, wanted) {
  const shown = events.filter((event) => !event.changes.every(isNoise));
  return html`<p class="quiet" role="status">${count(shown.length, "change")}, newest first. ${isStart ? "The journal is not kept further back." : `Looked back to index ${formatNumber(from)}.`}</p>
    <ol class="journal">${repeat(shown, (event) => `${event.index} ${event.request_id} ${event.action}`, (event) => drawEvent(event, wanted))}</ol>
    ${isStart ? nothing : html`<p><button @click=${() => changeQuery({ before: from })}>Older</button></p>`}`;
}

/**
 * @param {Api.Event} event
 * @param {Wanted} wanted
 */
function drawEvent(event, { kind, subject }) {
  const changes = event.changes.filter((change) => !isNoise(change));
  // What was asked for comes first.
  changes.sort((one, other) => Number(isMeant(other, kind, subject)) - Number(isMeant(one, kind, subject)));
  const rest = changes.length - CHANGES_SHOWN;
  return html`<li>
    <div class="head">${time(event.at)} <b>${event.action}</b> ${event.user === null || event.user === event.action ? nothing : html`<span class="quiet">by ${event.user}${event.project ? ` of ${event.project}` : ""}</span>`}
      ${event.request_id === "" ? nothing : html`<a href=${linkTo("journal", "", { request_id: event.request_id })}><code>${event.request_id}</code></a>`} <span class="quiet">index ${event.index}</span></div>
    ${drawChanges(changes, CHANGES_SHOWN)}
    ${rest > 0 ? html`<div class="quiet">and ${count(rest, "more change", "more changes")}</div>` : nothing}
  </li>`;
}

/**
 * @param {import("../sources.js").AnyChange} change
 * @param {string} kind
 * @param {string} subject
 */
function isMeant(change, kind, subject) {
  const about = subjectOf(change);
  return about.kind === kind || (subject !== "" && (about.id === subject || about.name === subject));
}
