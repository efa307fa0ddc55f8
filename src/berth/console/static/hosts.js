// @ts-check
/** How a host is shown, wherever it is. */

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { askFirst } from "./actions.js";
import { linkTo } from "./address.js";
import { ask } from "./api.js";
import { count } from "./format.js";
import { chip } from "./parts.js";
import { may, session } from "./session.js";

/** @typedef {Api.HostDetail} Host */

/** Classes that every host has come first. */
const FIRST = ["VCPU", "PCPU", "MEMORY_MB", "DISK_GB"];

/** @param {Iterable<Record<string, unknown>>} usages */
export function classesOf(usages) {
  const found = new Set();
  for (const usage of usages) for (const name of Object.keys(usage)) found.add(name);
  const rest = [...found].filter((name) => !FIRST.includes(name)).sort();
  return [...FIRST.filter((name) => found.has(name)), ...rest];
}

/** @param {Host} host */
export function stateChip(host) {
  if (host.state === "down") return chip("bad", "down");
  if (host.state === "disabled") return chip("quiet", "disabled");
  if (host.complaints.length > 0) return chip("warn", "up, complaining");
  if (host.build_failures > 0) return chip("warn", `up, ${count(host.build_failures, "failed build")}`);
  return chip("good", "up");
}

/**
 * @param {Host} host
 * @param {string} kind
 */
export function domainOf(host, kind) {
  if (kind === "cell" && host.cell !== null) return host.cell;
  const domain = host.domains.find((one) => one.kind === kind);
  return domain === undefined ? "" : (domain.name ?? domain.uuid);
}

/** What can be done with a host, for those who may. @param {Host} host */
export function hostButtons(host) {
  if (!may("berth:hosts:update")) return nothing;
  const drain = may("berth:drains:create") && session.settings?.has_servers ? html`<a class="button" href=${linkTo("drain", host.name)}>Drain …</a>` : nothing;
  return host.disabled
    ? html`${drain}<button @click=${() => askFirst(enabling(host))}>Enable</button>`
    : html`${drain}<button @click=${() => askFirst(disabling(host))}>Disable</button>`;
}

/**
 * @param {Host} host
 * @returns {import("./actions.js").Question}
 */
function disabling(host) {
  return {
    title: `Disable ${host.name}?`,
    text: "What runs there goes on. Nothing new is scheduled to it until it is enabled.",
    button: "Disable",
    isDanger: true,
    fields: [{ name: "reason", label: "Reason", isRequired: true }],
    act: async ({ reason }) => {
      await ask("PATCH", `berth/v1/hosts/${host.uuid}`, { host: { disabled: true, reason } });
      return `${host.name} is disabled.`;
    },
  };
}

/**
 * @param {Host} host
 * @returns {import("./actions.js").Question}
 */
function enabling(host) {
  return {
    title: `Enable ${host.name}?`,
    text: host.reason === null ? "Servers can be scheduled to it again." : `It was disabled because: ${host.reason}`,
    button: "Enable",
    act: async () => {
      await ask("PATCH", `berth/v1/hosts/${host.uuid}`, { host: { disabled: false } });
      return `${host.name} is enabled.`;
    },
  };
}
