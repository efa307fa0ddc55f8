// @ts-check
/** Doctor: what does not agree between servers, migrations and what they hold, and how it can be repaired. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { askFirst } from "../actions.js";
import { linkTo } from "../address.js";
import { ask, get } from "../api.js";
import { count } from "../format.js";
import { chip, show } from "../parts.js";
import { may } from "../session.js";
import { spoilAll, use } from "../sources.js";
import { amounts } from "./server.js";

/** @typedef {Api.FindingDetail} Finding */

export function drawDoctor() {
  // Looking is work for the server: it is done when somebody comes here or asks again, not with every event.
  const source = use("doctor", () => /** @type {Promise<Api.Findings>} */ (get("berth/v1/doctor")), () => false);
  return html`<div class="head"><h1>Doctor</h1><div class="beside"><button ?disabled=${source.isReading} @click=${spoilAll}>Look again</button></div></div>
    ${show(source, ({ findings, truncated }) => findings.length === 0
      ? html`<section class="panel">${chip("good", "Nothing is wrong: servers, migrations and what they hold agree.")}</section>`
      : html`<p role="status">${count(findings.length, "finding")}${truncated ? ", and more that are not shown" : ""}.</p>
        ${findings.map(drawFinding)}`)}`;
}

/** @param {Finding} finding */
function drawFinding(finding) {
  const canRepair = finding.repair !== null && may("berth:doctor:repair");
  return html`<section class="panel" aria-label=${finding.kind}>
    <header><h2>${chip("warn", finding.kind)}</h2><a href=${linkTo("journal", "", { subject: finding.subject })}><code>${finding.subject}</code></a></header>
    <p>${finding.sentence}</p>
    ${drawAmounts("Holds", finding.holds)}${drawAmounts("Should hold", finding.should_hold)}
    ${finding.repair === null ? html`<p class="quiet">No repair is known. Somebody has to look.</p>` : html`<p>Repair: ${finding.repair}</p>`}
    ${finding.unsafe === null ? nothing : html`<p class="bad">${finding.unsafe}</p>`}
    ${canRepair ? html`<button class="danger" @click=${() => askFirst(repairing(finding))}>Repair</button>` : nothing}
  </section>`;
}

/**
 * @param {string} title
 * @param {Record<string, Record<string, number>>} held
 */
function drawAmounts(title, held) {
  const rows = Object.entries(held);
  return rows.length === 0 ? nothing : html`<p class="quiet">${title}: ${rows.map(([provider, one]) => html`${amounts(one)} on <code>${provider}</code> `)}</p>`;
}

/**
 * @param {Finding} finding
 * @returns {import("../actions.js").Question}
 */
function repairing(finding) {
  return {
    title: "Repair this?",
    text: `${finding.sentence} Repair: ${finding.repair ?? ""}`,
    button: "Repair",
    isDanger: true,
    act: async () => {
      /** @type {Api.Repairs} */
      const { repairs } = await ask("POST", "berth/v1/doctor/repair", { findings: [finding.id], dry_run: false });
      const refused = repairs.find((one) => one.outcome === "refused");
      if (refused !== undefined) throw new Error(refused.detail);
      return repairs.length === 0 ? "There is nothing left to repair." : "Repaired.";
    },
  };
}
