// @ts-check
/** Asks the APIs of this server, with the token of whoever has signed in. Nothing else here uses fetch. */

const ROOT = new URL("..", document.baseURI);
const PAGES_MAX = 200;
/** How long an answer may take, all of it. A stream has a signal of its own. */
const ANSWER_MS = 60_000;
const NEWEST_COMPUTE = "compute 2.94";

/** @type {string | null} */
let token = null;

/** @type {() => void} */
let onUnknown = () => {};

/** A request that was refused, or got no answer: the API's own sentence, and the id to find it in the log. */
export class Refused extends Error {
  /**
   * @param {string} sentence
   * @param {number} [status] 0: there was no answer
   * @param {string} [requestId]
   * @param {Partial<Api.Refusal>} [details] what Berth's own API says of it beside the sentence
   */
  constructor(sentence, status = 0, requestId = "", details = {}) {
    super(sentence);
    this.status = status;
    this.requestId = requestId;
    this.details = details;
  }
}

/** @param {string | null} value */
export function useToken(value) {
  token = value;
}

/** @param {() => void} call what to do when the token is no longer known */
export function onUnknownToken(call) {
  onUnknown = call;
}

/**
 * @param {string} method
 * @param {string} path from the root of the server, without a slash in front
 * @param {{ body?: unknown, headers?: Record<string, string>, signal?: AbortSignal }} [how]
 * @returns {Promise<Response>} an answer below 400; Refused if there is none
 */
export async function send(method, path, how = {}) {
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json", ...how.headers };
  if (token !== null) headers["X-Auth-Token"] ??= token;
  if (path.startsWith("compute/")) headers["OpenStack-API-Version"] = NEWEST_COMPUTE;
  /** @type {RequestInit} */
  const init = { method, headers, credentials: "omit", redirect: "error", signal: how.signal ?? AbortSignal.timeout(ANSWER_MS) };
  if (how.body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(how.body);
  }
  let response;
  try {
    response = await fetch(new URL(path, ROOT), init);
  } catch (error) {
    throw noAnswer(error);
  }
  if (response.ok) return response;
  const refused = await readRefusal(response);
  if (refused.status === 401 && headers["X-Auth-Token"] === token && token !== null) onUnknown();
  throw refused;
}

/**
 * What it means that a request or its answer ended early: somebody has given it up, or there is no answer.
 * @param {unknown} error
 */
function noAnswer(error) {
  return error instanceof DOMException && error.name === "AbortError" ? error : new Refused("The server does not answer.");
}

/**
 * What is asked for, as JSON.
 * @template T
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {AbortSignal} [signal] gives it up
 * @returns {Promise<T>}
 */
export async function ask(method, path, body, signal) {
  const ended = AbortSignal.timeout(ANSWER_MS);
  const response = await send(method, path, { body, signal: signal === undefined ? ended : AbortSignal.any([signal, ended]) });
  let text;
  try {
    text = await response.text();
  } catch (error) {
    throw noAnswer(error);
  }
  return /** @type {T} */ (text === "" ? null : JSON.parse(text));
}

/**
 * @template T
 * @param {string} path
 * @param {AbortSignal} [signal] gives it up
 * @returns {Promise<T>}
 */
export function get(path, signal) {
  return ask("GET", path, undefined, signal);
}

/**
 * All rows of a list that comes in pages, following its links.
 * @template T
 * @param {string} path
 * @param {string} field the field that has the rows
 * @param {(rows: T[], answer: any) => void} [onPage] is called with the rows of each page, and with all that was answered
 * @returns {Promise<T[]>}
 */
export async function getAll(path, field, onPage) {
  /** @type {T[]} */
  const rows = [];
  /** @type {string | null} */
  let next = path;
  for (let pages = 0; next !== null && pages < PAGES_MAX; pages++) {
    /** @type {Record<string, any>} */
    const answer = await get(next);
    rows.push(...answer[field]);
    onPage?.(answer[field], answer);
    next = nextOf(answer, field);
  }
  return rows;
}

/**
 * The next page: Berth names it in `next`, the compute API in links.
 * @param {Record<string, any>} answer
 * @param {string} field
 * @returns {string | null}
 */
function nextOf(answer, field) {
  const link = answer["next"] ?? answer[`${field}_links`]?.find((/** @type {any} */ one) => one.rel === "next")?.href;
  if (!link) return null;
  const url = new URL(link, ROOT);
  // A link names the server as a proxy knows it; what is asked is always the origin of the page.
  const at = url.pathname.search(/\/(berth|compute)\//);
  return url.pathname.slice(at + 1) + url.search;
}

/** @param {Response} response */
async function readRefusal(response) {
  const requestId = response.headers.get("x-openstack-request-id") ?? "";
  const sentence = `The server answered ${response.status}.`;
  try {
    const body = JSON.parse(await response.text());
    return new Refused(sentenceOf(body) ?? sentence, response.status, requestId, body?.errors?.[0]);
  } catch {
    // Not JSON: the status has to do.
    return new Refused(sentence, response.status, requestId);
  }
}

/**
 * Placement and Berth have {errors: [{detail}]}, the others {anything: {message}}.
 * @param {any} body
 * @returns {string | undefined}
 */
function sentenceOf(body) {
  const detail = body?.errors?.[0]?.detail;
  if (typeof detail === "string") return detail;
  for (const value of Object.values(body ?? {})) {
    const message = /** @type {any} */ (value)?.message;
    if (typeof message === "string") return message;
  }
  return undefined;
}
