// @ts-check
/**
 * Keeps what is shown up to date: by the event stream for those who may read it, and by asking every few seconds
 * for all others. Events wait for the next frame, and are handed on together. A frame hands on as many as it has
 * time for; if too many wait, the stream is not read until they are fewer.
 */

import { redraw } from "./frame.js";
import { may, session } from "./session.js";
import { noteEvent, spoilAll } from "./sources.js";
import { EventStream } from "./stream.js";

/** @typedef {import("./stream.js").Condition | "polling"} LiveCondition */

const POLL_MS = 5000;
const WAITING_MAX = 2000;
/** How long a frame may hand on events. */
const TAKE_MS = 8;

/** @type {{ condition: LiveCondition }} */
export const live = { condition: "connecting" };

/** @type {EventStream | null} */
let stream = null;
/** @type {ReturnType<typeof setInterval> | undefined} */
let polling;
/** @type {Api.Event[]} */
let waiting = [];
/** Streams that wait for room. */
/** @type {Array<() => void>} */
const halted = [];
/** @type {Array<(event: Api.Event) => void>} */
const listeners = [noteEvent];
/** @type {Array<() => void>} */
const resetters = [spoilAll];

/**
 * Have every event, once, in order.
 * @param {(event: Api.Event) => void} onEvent
 * @param {() => void} onReset some events are missing: what was made of them has to be read again
 */
export function listen(onEvent, onReset) {
  listeners.push(onEvent);
  resetters.push(onReset);
}

/** Begin, or go on, for the caller who has signed in. */
export function startLive() {
  if (stream !== null || polling !== undefined) return;
  if (may("berth:events:list")) {
    live.condition = "connecting";
    stream = new EventStream(session.settings?.event_heartbeat_seconds ?? 15, {
      onEvent: (event) => {
        waiting.push(event);
        redraw();
      },
      room: () => (waiting.length < WAITING_MAX ? Promise.resolve() : new Promise((resolve) => halted.push(resolve))),
      onReset: () => {
        keepWaiting([]);
        for (const reset of resetters) reset();
      },
      onCondition: (condition) => {
        live.condition = condition;
        redraw();
      },
    });
    stream.start();
  } else {
    live.condition = "polling";
    polling = setInterval(() => {
      if (!document.hidden) spoilAll();
    }, POLL_MS);
  }
}

export function stopLive() {
  stream?.stop();
  stream = null;
  clearInterval(polling);
  polling = undefined;
  keepWaiting([]);
}

/** Hand on what has come since the last frame, as far as there is time. */
export function takeEvents() {
  const events = waiting;
  const end = performance.now() + TAKE_MS;
  let taken = 0;
  for (; taken < events.length && performance.now() < end; taken++) {
    for (const listener of listeners) listener(/** @type {Api.Event} */ (events[taken]));
  }
  keepWaiting(events.slice(taken));
  if (waiting.length > 0) redraw();
}

/** @param {Api.Event[]} events */
function keepWaiting(events) {
  waiting = events;
  if (waiting.length >= WAITING_MAX) return;
  for (const go of halted.splice(0)) go();
}
