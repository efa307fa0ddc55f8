// @ts-check
/**
 * The event stream, read with fetch: EventSource cannot send a token.
 *
 *     connecting -> catching up -> live -> lost -> (a pause) -> connecting
 *     hidden tab: paused, and resumed from the last index when it is shown again
 *
 * Every event comes once, in order: those that were written together are handed on together, as soon as the last of
 * them, which has the id, is there. Where the journal no longer has what comes next (410), `onReset` is called
 * and the stream goes on from the end: whoever listens reads its lists again.
 */

import { Refused, get, send } from "./api.js";

/** @typedef {"connecting" | "catching up" | "live" | "lost" | "paused"} Condition */

const PAUSE_MIN_MS = 500;
const PAUSE_MAX_MS = 10_000;
/** So many heartbeats of the server may be missing before the connection is given up. */
const HEARTBEATS_MISSED_MAX = 3;

export class EventStream {
  /**
   * @param {number} heartbeatSeconds how often the server sends at least a comment
   * @param {{ onEvent: (event: Api.Event) => void, room: () => Promise<void>, onReset: () => void, onCondition: (condition: Condition) => void }} calls
   *   `room`: until there is room for more events
   */
  constructor(heartbeatSeconds, calls) {
    this.calls = calls;
    this.silenceMs = heartbeatSeconds * HEARTBEATS_MISSED_MAX * 1000;
    /** @type {Condition} */
    this.condition = "connecting";
    /** The last index that has come whole, null before the first. */
    /** @type {number | null} */
    this.index = null;
    /** Where the journal ended when this connection began: below it, the stream is catching up. */
    this.end = 0;
    /** Events whose id has not come yet. */
    /** @type {Api.Event[]} */
    this.batch = [];
    this.failures = 0;
    /** @type {AbortController | null} */
    this.connection = null;
    this.isStopped = false;
    this.onVisibility = () => this.follow();
  }

  start() {
    document.addEventListener("visibilitychange", this.onVisibility);
    this.follow();
  }

  stop() {
    this.isStopped = true;
    document.removeEventListener("visibilitychange", this.onVisibility);
    this.connection?.abort();
  }

  /** Connect if the tab is shown and there is no connection; disconnect if it is hidden. */
  follow() {
    if (this.isStopped) return;
    if (document.hidden) {
      this.connection?.abort();
      this.connection = null;
      this.become("paused");
    } else if (this.connection === null) {
      this.connection = new AbortController();
      void this.run(this.connection);
    }
  }

  /** @param {Condition} condition */
  become(condition) {
    if (this.condition === condition) return;
    this.condition = condition;
    this.calls.onCondition(condition);
  }

  /** @param {AbortController} connection */
  async run(connection) {
    while (!connection.signal.aborted) {
      try {
        await this.read(connection.signal);
      } catch (error) {
        if (connection.signal.aborted) return;
        if (error instanceof Refused && error.status === 410) {
          this.index = null;
          this.calls.onReset();
          continue;
        }
        if (error instanceof Refused && error.status === 401) return;
      }
      if (connection.signal.aborted) return;
      this.become("lost");
      this.failures++;
      const pause = Math.min(PAUSE_MIN_MS * 2 ** Math.min(this.failures - 1, 6), PAUSE_MAX_MS);
      await sleep(pause * (0.75 + Math.random() / 2), connection.signal);
    }
  }

  /**
   * One connection, until it ends.
   * @param {AbortSignal} signal
   */
  async read(signal) {
    /** @type {Api.Events} */
    const page = await get(`berth/v1/events?limit=1${this.index === null ? "" : `&after=${this.index}`}`, signal);
    // The tab may have been hidden and shown meanwhile: another connection has taken over.
    if (signal.aborted) return;
    this.end = page.index;
    this.index ??= page.index;
    this.batch = [];
    const ended = new AbortController();
    const giveUp = () => ended.abort();
    signal.addEventListener("abort", giveUp);
    let watchdog = setTimeout(giveUp, this.silenceMs);
    try {
      const response = await send("GET", `berth/v1/events?stream=true&after=${this.index}`, {
        headers: { Accept: "text/event-stream" },
        signal: ended.signal,
      });
      if (response.body === null) return;
      this.become(this.index >= this.end ? "live" : "catching up");
      this.failures = 0;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(watchdog);
        text += value;
        const parts = text.split("\n\n");
        text = parts.pop() ?? "";
        for (const part of parts) {
          this.take(part);
          await this.calls.room();
          if (ended.signal.aborted) return;
        }
        if (this.condition === "catching up" && this.index >= this.end) this.become("live");
        watchdog = setTimeout(giveUp, this.silenceMs);
      }
    } finally {
      clearTimeout(watchdog);
      signal.removeEventListener("abort", giveUp);
      ended.abort();
    }
  }

  /**
   * One server-sent event.
   * @param {string} text
   */
  take(text) {
    let id = "";
    let kind = "message";
    let data = "";
    for (const line of text.split("\n")) {
      if (line.startsWith("data:")) data += line.slice(5);
      else if (line.startsWith("id:")) id = line.slice(3).trim();
      else if (line.startsWith("event:")) kind = line.slice(6).trim();
    }
    if (kind === "error") {
      const refusal = JSON.parse(data);
      throw new Refused(refusal.detail ?? "The stream has ended.", refusal.status ?? 0, refusal.request_id ?? "");
    }
    if (data !== "") this.batch.push(JSON.parse(data));
    if (id === "") return;
    for (const event of this.batch.splice(0)) this.calls.onEvent(event);
    this.index = Number(id);
  }
}

/**
 * @param {number} ms
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
function sleep(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
