// @ts-check
/** Journal: who changed what, when, and by which request. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { changeQuery, linkTo, readAddress } from "../address.js";
import { get } from "../api.js";
import { drawChanges, isNoise, subjectOf } from "../changes.js";
import { count, formatNumber } from "../format.js";
import { choice, filters, show, textFilter, time } from "../parts.js";
import { use } from "../sources.js";

const PAGE = 100;
const PAGE_OF_OLDER = 500;
const PAGES_MAX = 10;
/** So many events that say something are enough to be shown. */
const NEWS_MIN = 10;
const FIELDS = ["kind", "subject", "user", "project", "request_id", "since", "until", "before"];
const CHANGES_SHOWN = 8;
const KINDS = ["server", "migration", "action", "consumer", "host", "compute_host", "provider", "inventory", "provider_traits", "provider_aggregates", "aggregate", "group", "member", "cluster", "drain", "cell", "flavor", "image", "quotas", "assignment"];

/** @param {import("../address.js").Address} address */
export function drawJournal({ query }) {
  const asked = askedOf(query);
  // Whether an event is meant is for the server to say: every one may be.
  const source = use(`journal ${asked}`, () => readJournal(asked), (change) => !query.get("before") && !isNoise(change, query.get("kind") ?? ""));
  return html`<div class="head"><h1>Journal</h1></div>
    <section class="panel" aria-label="Journal">
      ${filters(
        choice("kind", "Kind", [["", "any"], ...KINDS.map((kind) => /** @type {[string, string]} */ ([kind, kind.replaceAll("_", " ")]))]),
        textFilter("subject", "Object: uuid or name", "host-0001"),
        textFilter("user", "User", "admin"),
        textFilter("request_id", "Request", "req-…"),
        moment("since", "From"),
        moment("until", "To"),
      )}
      ${show(source, (found) => drawFound(found, query))}
    </section>`;
}

/**
 * The newest events. Where they say next to nothing to people, older ones are looked for.
 * @param {string} asked
 * @returns {Promise<Api.Events>}
 */
async function readJournal(asked) {
  const query = new URLSearchParams(asked);
  const kind = query.get("kind") ?? "";
  /** @type {Api.Events} */
  let found = await get(`berth/v1/events?newest=true&limit=${PAGE}&${query}`);
  for (let pages = 1; pages < PAGES_MAX && !found.complete && newsOf(found.events, kind).length < NEWS_MIN; pages++) {
    query.set("before", String(found.next));
    /** @type {Api.Events} */
    const older = await get(`berth/v1/events?newest=true&limit=${PAGE_OF_OLDER}&${query}`);
    found = { ...older, events: [...found.events, ...newsOf(older.events, kind)] };
  }
  return found;
}

/**
 * @param {Api.Event[]} events
 * @param {string} kind that is asked for
 */
function newsOf(events, kind) {
  return events.filter((event) => !event.changes.every((change) => isNoise(change, kind)));
}

/**
 * The part of a query that the API is asked, and what of it the fields have.
 * @param {URLSearchParams} query
 */
function askedOf(query) {
  return new URLSearchParams(FIELDS.flatMap((name) => (query.get(name) ? [[name, query.get(name) ?? ""]] : []))).toString();
}

/**
 * A time of the filters: local in the field, UTC in the address.
 * @param {string} name
 * @param {string} label
 */
function moment(name, label) {
  const time = new Date(readAddress().query.get(name) ?? "");
  // What is no time is for the API to refuse.
  const local = Number.isNaN(time.getTime()) ? "" : new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
  return html`<label>${label}<input type="datetime-local" .value=${local} @change=${(/** @type {Event} */ event) => {
    const { value } = /** @type {HTMLInputElement} */ (event.target);
    changeQuery({ [name]: value === "" ? "" : `${new Date(value).toISOString().slice(0, 19)}Z` });
  }}></label>`;
}

/**
 * @param {Api.Events} found
 * @param {URLSearchParams} query
 */
function drawFound({ events, next, complete, looked_back_to, looked_back_at }, query) {
  const shown = newsOf(events, query.get("kind") ?? "");
  return html`<p class="quiet" role="status">${count(shown.length, "change")}, newest first. ${complete ? "There are no older ones." : looked_back_to === null ? "" : html`Looked back to ${time(looked_back_at)}, index ${formatNumber(looked_back_to)}.`}</p>
    ${drawEvents(shown, query.get("kind") ?? "", query.get("subject") ?? "")}
    ${complete ? nothing : html`<p><button @click=${() => changeQuery({ before: next })}>Older</button></p>`}`;
}

/**
 * Events without those that say nothing to people. Of each, what is of a kind or about a subject comes first.
 * @param {Api.Event[]} events
 * @param {string} kind
 * @param {string} subject
 */
export function drawEvents(events, kind, subject) {
  const shown = newsOf(events, kind);
  return shown.length === 0 ? html`<p class="quiet">Nothing.</p>` : html`<ol class="journal">${shown.map((event) => drawEvent(event, kind, subject))}</ol>`;
}

/**
 * @param {Api.Event} event
 * @param {string} kind
 * @param {string} subject
 */
function drawEvent(event, kind, subject) {
  const changes = event.changes.filter((change) => !isNoise(change, kind));
  // What was asked for comes first.
  changes.sort((one, other) => Number(isMeant(other, kind, subject)) - Number(isMeant(one, kind, subject)));
  const rest = changes.length - CHANGES_SHOWN;
  return html`<li>
    <div class="head">${time(event.at)} <b>${event.action}</b> ${event.user === null || event.user === event.action ? nothing : html`<span class="quiet">by ${event.user}${event.project ? ` of ${event.project}` : ""}</span>`}
      ${event.request_id === "" ? nothing : html`<a href=${linkTo("journal", "", { request_id: event.request_id })}><code>${event.request_id}</code></a>`} <span class="quiet">index ${event.index}</span></div>
    ${drawChanges(changes, event.names ?? {}, CHANGES_SHOWN, kind)}
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
