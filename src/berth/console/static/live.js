// @ts-check
/**
 * Keeps what is shown up to date: by the event stream for those who may read it, and by asking every few seconds
 * for all others. Events wait for the next frame, and are handed on together.
 */

import { redraw } from "./frame.js";
import { may, session } from "./session.js";
import { noteEvent, spoilAll } from "./sources.js";
import { EventStream } from "./stream.js";

/** @typedef {import("./stream.js").Condition | "polling"} LiveCondition */

const POLL_MS = 5000;

/** @type {{ condition: LiveCondition }} */
export const live = { condition: "connecting" };

/** @type {EventStream | null} */
let stream = null;
/** @type {ReturnType<typeof setInterval> | undefined} */
let polling;
/** @type {Api.Event[]} */
let waiting = [];
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
    stream = new EventStream(session.settings?.event_heartbeat_seconds ?? 15, {
      onEvent: (event) => {
        waiting.push(event);
        if (waiting.length === 1) redraw();
      },
      onReset: () => {
        waiting = [];
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
  waiting = [];
}

/** Hand on what has come since the last frame. */
export function takeEvents() {
  const events = waiting;
  waiting = [];
  for (const event of events) {
    for (const listener of listeners) listener(event);
  }
}
