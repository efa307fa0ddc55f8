// @ts-check
/** Signing in: what is asked for depends on how this server knows its callers. */

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { redraw } from "./frame.js";
import { refusalOf } from "./parts.js";
import { session, signIn } from "./session.js";

/** @type {unknown} */
let refusal = null;
let isAsking = false;

const HINTS = {
  noauth: "This server believes every name: admin is an administrator, all others are members.",
  tokens: "",
  keystone: "You sign in with the Keystone that this server is set up for.",
};

export function drawSignIn() {
  const settings = /** @type {import("./session.js").Settings} */ (session.settings);
  const withPassword = settings.auth !== "noauth";
  const onlyToken = withPassword && settings.identity === null;
  return html`<main class="sign-in"><form @submit=${submit}>
    <h1><img src="icon.svg" alt="">Berth</h1>
    ${session.notice === "" ? nothing : html`<p role="status">${session.notice}</p>`}
    ${onlyToken ? nothing : field("user", "User", "text", "username", true)}
    ${withPassword ? field("password", onlyToken ? "Token" : "Password", "password", "current-password", true) : nothing}
    ${onlyToken ? nothing : field("project", settings.auth === "keystone" ? "Project" : "Project (your own if empty)", "text", "off", settings.auth === "keystone")}
    ${settings.auth === "keystone" ? field("domain", "Domain", "text", "off", true, "Default") : nothing}
    ${refusal === null ? nothing : refusalOf(refusal)}
    <button class="main" ?disabled=${isAsking}>Sign in</button>
    ${HINTS[settings.auth] === "" ? nothing : html`<p class="quiet">${HINTS[settings.auth]}</p>`}
  </form></main>`;
}

/**
 * @param {string} name
 * @param {string} label
 * @param {string} type
 * @param {string} autocomplete
 * @param {boolean} isRequired
 * @param {string} [value]
 */
function field(name, label, type, autocomplete, isRequired, value = "") {
  return html`<label>${label}<input name=${name} type=${type} autocomplete=${autocomplete} value=${value} ?required=${isRequired} maxlength="255" spellcheck="false" autocapitalize="off"></label>`;
}

/** @param {SubmitEvent} event */
async function submit(event) {
  event.preventDefault();
  const given = new FormData(/** @type {HTMLFormElement} */ (event.target));
  const value = (/** @type {string} */ name) => String(given.get(name) ?? "");
  isAsking = true;
  refusal = null;
  redraw();
  try {
    await signIn({ user: value("user").trim(), password: value("password"), project: value("project").trim(), domain: value("domain").trim() || "Default" });
  } catch (error) {
    refusal = error;
  }
  isAsking = false;
  redraw();
}
