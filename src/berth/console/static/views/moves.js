// @ts-check
/** Moves: what is under way with servers, both sides of a move and what each holds, and what failed last. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { askFirst } from "../actions.js";
import { linkTo } from "../address.js";
import { ask, get } from "../api.js";
import { COMPUTE } from "../compute.js";
import { count, formatDuration, secondsSince, timeOf } from "../format.js";
import { ago, chip, filters, link, panel, show, textFilter, time } from "../parts.js";
import { may } from "../session.js";
import { ofKind, use } from "../sources.js";
import { drawDrains } from "./drain.js";
import { allocationsTable, concernsOf, readHoldings } from "./server.js";

/** @typedef {Api.OperationDetail} Operation */

const concerns = ofKind("action", "migration", "server");
const SIDES_SHOWN = 10;

/** @param {import("../address.js").Address} address */
export function drawMoves({ query }) {
  const asked = new URLSearchParams([...query].filter(([name]) => name === "host" || name === "server")).toString();
  const source = use(`operations ${asked}`, () => /** @type {Promise<Api.Operations>} */ (get(`berth/v1/operations?${asked}`)), concerns, { ageMaxMs: 5000 });
  return html`<div class="head"><h1>Moves</h1><span class="quiet">and every other operation on servers</span></div>
    <section class="panel" aria-label="What is shown">${filters(textFilter("host", "Host", "host-0001"), textFilter("server", "Server: uuid or name", "web-1"))}</section>
    ${show(source, ({ operations, truncated }) => {
      const running = operations.filter((one) => one.state === "running");
      const failed = operations.filter((one) => one.state === "failed");
      return html`${may("berth:drains:list") ? drawDrains() : nothing}
        ${panel("Under way", running.length === 0 ? html`<p class="quiet">Nothing is under way.</p>` : html`<ul class="operations">${repeat(running, (one) => one.id, (one, place) => drawRunning(one, place < SIDES_SHOWN))}</ul>`, running.length === 0 ? {} : { beside: html`<span class="quiet">${count(running.length, "operation")}</span>` })}
        ${panel("Failed last", failed.length === 0 ? html`<p class="quiet">Nothing has failed.</p>` : html`<ul class="operations">${repeat(failed, (one) => one.id, drawFailed)}</ul>`)}
        ${truncated ? html`<p class="quiet">There are more than are shown: name a host or a server.</p>` : nothing}`;
    })}`;
}

/** What is under way, and what failed last, in a panel of another view. @param {Operation[]} operations */
export function drawOperations(operations) {
  if (operations.length === 0) return html`<p class="quiet">Nothing is under way, and nothing has failed.</p>`;
  return html`<ul class="operations">${repeat(operations, (one) => one.id, (one) => (one.state === "running" ? drawRunning(one, false) : drawFailed(one)))}</ul>`;
}

/**
 * @param {Operation} one
 * @param {boolean} hasSides whether what each side holds is shown
 */
function drawRunning(one, hasSides) {
  const left = one.deadline === null ? null : (timeOf(one.deadline) - Date.now()) / 1000;
  return html`<li>
    <div class="head"><h3>${one.operation}</h3>${link("server", one.server, one.server_name ?? one.server)}
      ${one.overdue ? chip("warn", "overdue") : chip("busy", "under way")}
      ${drawSides(one)}
      <div class="beside">${may("os_compute_api:servers:migrations:delete") && one.operation === "live-migration" ? html`<button class="danger" @click=${() => askFirst(aborting(one))}>Abort</button>` : nothing}</div></div>
    <p>Step <b>${one.step ?? "not begun"}</b>${one.host === null ? "" : html` at ${link("host", one.host)}`}${one.attempt > 1 ? `, attempt ${one.attempt}` : ""},
      begun ${ago(one.began)}${left === null ? "" : left >= 0 ? `, deadline in ${formatDuration(left)}` : `, ${formatDuration(-left)} past its deadline`}.
      ${drawRequest(one)}</p>
    ${drawSteps(one)}
    ${one.destination !== null && hasSides ? drawHoldings(one) : nothing}
  </li>`;
}

/** @param {Operation} one */
function drawSides(one) {
  if (one.source === null && one.destination === null) return nothing;
  const host = (/** @type {string | null} */ name) => (name === null ? html`<span class="quiet">nowhere</span>` : link("host", name));
  return one.destination === null || one.source === one.destination ? host(one.source ?? one.destination) : html`<span>${host(one.source)} → ${host(one.destination)}</span>`;
}

/** @param {Operation} one */
function drawRequest(one) {
  return one.request_id === "" ? nothing : html`<a href=${linkTo("journal", "", { request_id: one.request_id })}><code>${one.request_id}</code></a>`;
}

/** @param {Operation} one */
function drawSteps(one) {
  if (one.steps.length === 0) return nothing;
  return html`<ol class="steps">${one.steps.map((step) => html`<li>${step.result === null ? chip("busy", step.name) : step.result === "Success" ? chip("good", step.name) : chip("bad", step.name)}
    <span class="quiet">${step.host ?? ""} ${step.finished === null ? formatDuration(secondsSince(step.started)) : formatDuration((timeOf(step.finished) - timeOf(step.started)) / 1000)}</span>${step.details && step.details !== one.fault ? html`<div class="quiet">${step.details}</div>` : nothing}</li>`)}</ol>`;
}

/** @param {Operation} one */
function drawHoldings(one) {
  if (!may("berth:servers:show")) return nothing;
  const source = use(`holdings ${one.server}`, () => readHoldings(one.server), concernsOf(one.server));
  return show(source, ({ server, migration, names }) => html`<div class="two"><div><h4>The server holds</h4>${allocationsTable(server.holds, server.added_by_others, names)}</div>
    ${migration === null ? nothing : html`<div><h4>Its migration holds</h4>${allocationsTable(migration, {}, names)}</div>`}</div>`);
}

/** @param {Operation} one */
function drawFailed(one) {
  return html`<li><div class="head"><h3>${one.operation}</h3>${link("server", one.server, one.server_name ?? one.server)}${chip("bad", "failed")}${drawSides(one)}${time(one.updated)}${drawRequest(one)}</div>
    ${one.fault === null ? nothing : html`<p class="bad">${one.fault}</p>`}${drawSteps(one)}</li>`;
}

/**
 * @param {Operation} one
 * @returns {import("../actions.js").Question}
 */
function aborting(one) {
  return {
    title: `Abort the live migration of ${one.server_name ?? one.server}?`,
    text: "The server stays where it is.",
    button: "Abort",
    isDanger: true,
    act: async () => {
      /** @type {{ migrations: Array<{ id: number }> }} */
      const { migrations } = await get(`${COMPUTE}/servers/${one.server}/migrations`);
      const running = migrations[0];
      if (running === undefined) return "The migration has ended meanwhile.";
      await ask("DELETE", `${COMPUTE}/servers/${one.server}/migrations/${running.id}`);
      return "The migration is being aborted.";
    },
  };
}
