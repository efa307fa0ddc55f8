// @ts-check
/** Draining a host: the plan before it begins, and how far it is. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { askFirst } from "../actions.js";
import { linkTo } from "../address.js";
import { ask, getAll } from "../api.js";
import { count, formatNumber } from "../format.js";
import { ago, chip, facts, link, panel, show, table } from "../parts.js";
import { may } from "../session.js";
import { ofKind, use } from "../sources.js";

/** @typedef {Api.DrainDetail} Drain */

const concerns = ofKind("drain", "host");
/** @type {Record<Api.DrainMoveDetail["state"], import("../parts.js").Tone>} */
const TONES = { planned: "quiet", waiting: "quiet", moving: "busy", blocked: "bad" };
const WAYS = { live: "live migration", cold: "cold migration", offload: "offload" };

/** Those that there are. */
export function useDrains() {
  return use("drains", () => /** @type {Promise<Drain[]>} */ (getAll("berth/v1/drains?limit=100", "drains")), concerns);
}

/** All drains, for a page that shows what is under way. */
export function drawDrains() {
  return show(useDrains(), (drains) => drains.length === 0 ? nothing : panel("Drains", table("Drains", columns, drains, (one) => one.host_uuid)));
}

/** @type {import("../parts.js").Column<Drain>[]} */
const columns = [
  { name: "drained", label: "Host", by: (one) => one.host_name, cell: (one) => html`<a href=${linkTo("drain", one.host_name)}>${one.host_name}</a>` },
  { name: "drain-state", label: "State", by: (one) => one.state, cell: stateOf },
  { name: "moved", label: "Moved", by: (one) => one.moved, isNumber: true },
  { name: "left", label: "Left", by: (one) => one.moves.length + one.stays_total, isNumber: true },
  { name: "against", label: "What stands against it", by: againstOf, isWide: true },
  { name: "begun", label: "Begun", by: (one) => one.began_at ?? "", cell: (one) => ago(one.began_at), isWide: true },
];

/** @param {Drain} drain */
function stateOf(drain) {
  if (drain.state === "done") return drain.stays_total > 0 ? chip("warn", "done, but for what stays") : chip("good", "done");
  return drain.moves.some((move) => move.state === "blocked") ? chip("warn", "blocked") : chip("busy", drain.state);
}

/** @param {Drain} drain */
function againstOf(drain) {
  return drain.moves.find((move) => move.state === "blocked")?.text ?? drain.stays[0]?.text ?? "";
}

// -- of one host ----------------------------------------------------------------------------------

/** @param {import("../address.js").Address} address */
export function titleOfDrain({ id }) {
  return `Drain ${id}`;
}

/** @param {import("../address.js").Address} address */
export function drawDrain({ id }) {
  return show(useDrains(), (drains) => {
    const drain = drains.find((one) => one.host_name === id || one.host_uuid === id);
    return html`<div class="head"><h1>Drain ${link("host", id, drain?.host_name ?? id)}</h1>${drain === undefined ? nothing : stateOf(drain)}
        <div class="beside">${drain !== undefined && drain.state !== "done" && may("berth:drains:delete") ? html`<button class="danger" @click=${() => askFirst(stopping(drain))}>Stop</button>` : nothing}</div></div>
      ${drain === undefined ? drawPlan(id) : drawProgress(drain)}`;
  });
}

/** @param {string} id */
function drawPlan(id) {
  if (!may("berth:drains:create")) return html`<p class="quiet">It is not being drained.</p>`;
  const source = use(`plan to drain ${id}`, () => readPlan(id), () => false);
  return show(source, (plan) => {
    const blocked = plan.moves.filter((move) => move.state === "blocked");
    return html`${panel("The plan", html`<p>${count(plan.moves.length, "server")} ${plan.moves.length === 1 ? "leaves" : "leave"} one after the other${blocked.length === 0 ? "." : `; ${formatNumber(blocked.length)} of them cannot.`} Nothing has been changed yet.</p>
      <p><button class="danger" @click=${() => askFirst(starting(plan))}>Drain ${plan.host_name} …</button></p>`)}
      ${drawMoves(plan)}${drawStays(plan)}`;
  });
}

/** @param {string} id */
async function readPlan(id) {
  /** @type {Api.OneDrain} */
  const { drain } = await ask("POST", `berth/v1/hosts/${encodeURIComponent(id)}/drain`, { drain: { dry_run: true } });
  return drain;
}

/** @param {Drain} drain */
function drawProgress(drain) {
  const all = drain.moved + drain.moves.length;
  return html`${panel("How far it is", html`<p>${formatNumber(drain.moved)} of ${count(all, "server")} ${drain.moved === 1 ? "has" : "have"} left.</p>
      <progress max=${Math.max(1, all)} .value=${all === 0 ? 1 : drain.moved} aria-label="Servers that have left"></progress>
      ${facts([["Asked for by", drain.user_id], ["Request", html`<a href=${linkTo("journal", "", { request_id: drain.request_id })}><code>${drain.request_id}</code></a>`], ["Begun", ago(drain.began_at)], ["Last change", ago(drain.updated_at)]])}`)}
    ${drawMoves(drain)}${drawStays(drain)}`;
}

/** @param {Drain} drain */
function drawMoves(drain) {
  /** @type {import("../parts.js").Column<Api.DrainMoveDetail>[]} */
  const moves = [
    { name: "server", label: "Server", by: (one) => one.name, cell: (one) => link("server", one.server, one.name) },
    { name: "move-state", label: "State", by: (one) => one.state, cell: (one) => html`${chip(TONES[one.state], one.state)}${one.text ? html`<div class="quiet">${one.text}</div>` : nothing}` },
    { name: "to", label: "To", by: (one) => one.destination ?? "", cell: (one) => (one.destination === null ? html`<span class="quiet">nowhere</span>` : link("host", one.destination)) },
    { name: "how", label: "How", by: (one) => (one.how === null ? "" : WAYS[one.how]), isWide: true },
    { name: "attempts", label: "Attempts", by: (one) => one.attempts ?? 0, isNumber: true, isWide: true },
  ];
  return drain.moves.length === 0 ? nothing : panel("Servers that leave", table("Servers that leave", moves, drain.moves, (one) => one.server));
}

/** @param {Drain} drain */
function drawStays(drain) {
  if (drain.stays_total === 0) return nothing;
  return panel("What stays", html`<ul>${drain.stays.map((one) => html`<li>${one.name ?? html`<code>${one.consumer}</code>`}: ${one.text}</li>`)}</ul>`, { beside: html`<span class="quiet">${count(drain.stays_total, "consumer")}</span>` });
}

/**
 * @param {Drain} plan
 * @returns {import("../actions.js").Question}
 */
function starting(plan) {
  return {
    title: `Drain ${plan.host_name}?`,
    text: `The host is disabled, and ${count(plan.moves.length, "server")} ${plan.moves.length === 1 ? "leaves" : "leave"} it. It can be stopped at any time.`,
    button: "Drain",
    isDanger: true,
    fields: [{ name: "reason", label: "Reason", isRequired: true }],
    act: async ({ reason }) => {
      await ask("POST", `berth/v1/hosts/${plan.host_uuid}/drain`, { drain: { reason } });
      return `${plan.host_name} is being drained.`;
    },
  };
}

/**
 * @param {Drain} drain
 * @returns {import("../actions.js").Question}
 */
function stopping(drain) {
  return {
    title: `Stop draining ${drain.host_name}?`,
    text: "The move that is under way goes on, no other begins. The host stays disabled.",
    button: "Stop",
    isDanger: true,
    act: async () => {
      await ask("DELETE", `berth/v1/hosts/${drain.host_uuid}/drain`);
      return `The drain of ${drain.host_name} is stopped.`;
    },
  };
}
