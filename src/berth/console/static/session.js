// @ts-check
/**
 * Who has signed in. The token is in the sessionStorage of this tab: it ends with the tab, no other site can
 * have it sent, and no cookie exists.
 */

import { Refused, ask, get, onUnknownToken, send, useToken } from "./api.js";
import { redraw } from "./frame.js";

/** @typedef {{ version: string, auth: "noauth" | "tokens" | "keystone", identity: string | null, has_servers: boolean, event_heartbeat_seconds: number }} Settings */

const KEPT = "berth.token";

/** @type {{ settings: Settings | null, caller: Api.CallerDetail | null, notice: string }} */
export const session = { settings: null, caller: null, notice: "" };

/** @type {() => void} */
let onEnd = () => {};

/** @param {() => void} call what to do when nobody is signed in any more */
export function onSessionEnd(call) {
  onEnd = call;
}

/** Read the settings, and go on with the token of this tab if there is one. */
export async function resume() {
  onUnknownToken(() => forget("The session has ended. Sign in again."));
  session.settings = await get("console/settings.json");
  const kept = sessionStorage.getItem(KEPT);
  if (kept === null) return;
  useToken(kept);
  try {
    session.caller = await get("berth/v1/caller");
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return;
    throw error;
  }
}

/**
 * @param {{ user: string, password: string, project: string, domain: string }} who
 */
export async function signIn(who) {
  const token = await fetchToken(who);
  useToken(token);
  try {
    session.caller = await ask("GET", "berth/v1/caller");
  } catch (error) {
    useToken(null);
    throw error;
  }
  session.notice = "";
  sessionStorage.setItem(KEPT, token);
  redraw();
}

/**
 * @param {{ user: string, password: string, project: string, domain: string }} who
 * @returns {Promise<string>}
 */
async function fetchToken({ user, password, project, domain }) {
  const { auth, identity } = /** @type {Settings} */ (session.settings);
  if (auth === "noauth") return checkToken(project === "" ? user : `${user}:${project}`, "The names");
  if (identity === null) return checkToken(password, "The token");
  const scope = project === "" ? {} : { scope: { project: { name: project, domain: { name: domain } } } };
  const body = {
    auth: { identity: { methods: ["password"], password: { user: { name: user, password, domain: { name: domain } } } }, ...scope },
  };
  useToken(null);
  const response = await send("POST", `${identity}/auth/tokens`, { body });
  const token = response.headers.get("x-subject-token");
  if (token === null) throw new Refused("The server issued no token.", response.status);
  return token;
}

/**
 * What is to be the token itself, if a browser can send it.
 * @param {string} token
 * @param {string} what what was typed in
 */
function checkToken(token, what) {
  if (/^[\x20-\x7e]+$/.test(token)) return token;
  throw new Refused(`${what} may have letters from a to z, digits and ASCII signs alone: they are sent in the header X-Auth-Token, which carries no others.`);
}

/** Revoke the token and forget it. What cannot be revoked (a token of the operator's file) is forgotten. */
export async function signOut() {
  const kept = sessionStorage.getItem(KEPT);
  const { auth, identity } = /** @type {Settings} */ (session.settings);
  try {
    if (kept !== null && identity !== null && auth !== "noauth") {
      await send("DELETE", `${identity}/auth/tokens`, { headers: { "X-Subject-Token": kept } });
    }
    forget("You have signed out.");
  } catch (error) {
    forget(error instanceof Refused ? `The token could not be revoked: ${error.message}` : String(error));
  }
}

/** @param {string} notice */
function forget(notice) {
  sessionStorage.removeItem(KEPT);
  useToken(null);
  session.caller = null;
  session.notice = notice;
  onEnd();
  redraw();
}

/**
 * Whether the policy lets the caller in at routes of a rule. What it refuses is not offered.
 * @param {string} rule
 */
export function may(rule) {
  return session.caller?.rules.includes(rule) ?? false;
}
