// @ts-check
/**
 * What views show, read from the API when a view first asks for it, read again when an event concerns it, and
 * dropped when no view shows it any more.
 *
 *     asked for -> reading -> there -> (an event concerns it) stale -> reading -> there ...
 *
 * A source is read at most once in its pace, a second unless it says otherwise, whatever comes; what time alone
 * can change is read again when it is older than it may be. While it is read again, and after a read has failed,
 * what was there before stays, with the refusal beside it. What the server did not answer, or could not, is asked again.
 */

import { Refused } from "./api.js";
import { redraw } from "./frame.js";

const PACE_MS = 1000;
/** After a read that failed, the pace is this much slower. */
const PACE_OF_FAILING = 5;
const LOOK_EVERY_MS = 1000;

/** @typedef {Api.Event["changes"][number]} AnyChange */
/** @typedef {(change: AnyChange, event: Api.Event) => boolean} Concerns */

/**
 * @template T
 * @typedef {object} Source
 * @property {T | undefined} value
 * @property {unknown} error why the last read failed, null if it did not
 * @property {boolean} isReading
 * @property {boolean} isStale
 * @property {number} readAt when the last read began, on the clock of performance.now
 * @property {number} usedIn the number of the drawing that last used it
 * @property {() => Promise<T>} read
 * @property {Concerns} concerns
 * @property {number} paceMs
 * @property {number} ageMaxMs
 */

/** @type {Map<string, Source<any>>} */
const sources = new Map();
let drawing = 0;

/**
 * What is known under a key; it is read if nothing is.
 * @template T
 * @param {string} key
 * @param {() => Promise<T>} read
 * @param {Concerns} concerns which changes make it stale
 * @param {{ paceMs?: number, ageMaxMs?: number }} [how]
 * @returns {Source<T>}
 */
export function use(key, read, concerns, { paceMs = PACE_MS, ageMaxMs = Infinity } = {}) {
  let source = sources.get(key);
  if (source === undefined) {
    source = { value: undefined, error: null, isReading: false, isStale: true, readAt: -Infinity, usedIn: 0, read, concerns, paceMs, ageMaxMs };
    sources.set(key, source);
    void readAgain(key, source);
  }
  source.read = read;
  source.concerns = concerns;
  source.usedIn = drawing;
  return source;
}

/**
 * @param {string} key
 * @param {Source<any>} source
 */
async function readAgain(key, source) {
  if (source.isReading) return;
  source.isReading = true;
  source.isStale = false;
  source.readAt = performance.now();
  try {
    source.value = await source.read();
    source.error = null;
  } catch (error) {
    source.error = error;
    if (mayPass(error)) source.isStale = true;
  }
  source.isReading = false;
  if (source.isStale) plan(key, source);
  redraw();
}

/** Whether something else may be answered a little later, though nothing has changed. @param {unknown} error */
function mayPass(error) {
  return error instanceof Refused && (error.status === 0 || error.status >= 500);
}

/**
 * @param {string} key
 * @param {Source<any>} source
 */
function plan(key, source) {
  const pace = source.paceMs * (mayPass(source.error) ? PACE_OF_FAILING : 1);
  const wait = Math.max(0, source.readAt + pace - performance.now());
  setTimeout(() => {
    if (sources.get(key) !== source || !source.isStale) return;
    // A hidden tab asks for nothing. If it stays hidden long, the browser makes the pauses longer.
    if (document.hidden) setTimeout(() => plan(key, source), source.paceMs);
    else void readAgain(key, source);
  }, wait);
}

/**
 * @param {string} key
 * @param {Source<any>} source
 */
function spoil(key, source) {
  if (source.isStale) return;
  source.isStale = true;
  if (!source.isReading) plan(key, source);
}

/** @param {Api.Event} event */
export function noteEvent(event) {
  for (const [key, source] of sources) {
    if (!source.isStale && event.changes.some((change) => source.concerns(change, event))) spoil(key, source);
  }
}

setInterval(() => {
  if (document.hidden) return;
  const now = performance.now();
  for (const [key, source] of sources) if (now - source.readAt > source.ageMaxMs) spoil(key, source);
}, LOOK_EVERY_MS);

/** Read everything again that is shown: the events between are not known. */
export function spoilAll() {
  for (const [key, source] of sources) spoil(key, source);
}

/** Drop everything. */
export function dropAll() {
  sources.clear();
}

/** Begin a drawing. */
export function beginDrawing() {
  drawing++;
}

/** End a drawing: drop what it has not used. */
export function endDrawing() {
  for (const [key, source] of sources) {
    if (source.usedIn < drawing) sources.delete(key);
  }
}

/**
 * Whether a change is of one of some kinds.
 * @param {...AnyChange["kind"]} kinds
 * @returns {Concerns}
 */
export function ofKind(...kinds) {
  return (change) => kinds.includes(change.kind);
}
