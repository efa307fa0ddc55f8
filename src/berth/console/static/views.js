// @ts-check
/** The views, in the order of the menu. Each is in it for those whom the policy lets in. */

import { may, session } from "./session.js";
import { drawServer, titleOfServer } from "./views/server.js";
import { drawServers } from "./views/servers.js";

/** @typedef {import("./address.js").Address} Address */
/** @typedef {import("./parts.js").Shown} Shown */

/**
 * @typedef {object} View
 * @property {string} name as the address has it
 * @property {string} label
 * @property {(address: Address) => Shown} draw
 * @property {string} rule who may see it
 * @property {boolean} [needsServers] there is nothing to see in a deployment without servers
 * @property {boolean} [isHidden] not in the menu: it is of one object
 * @property {string} [below] which entry of the menu it belongs to
 * @property {(address: Address) => string} [titleOf] the title of the page
 */

/** @type {View[]} */
const VIEWS = [
  { name: "servers", label: "Servers", draw: drawServers, rule: "os_compute_api:servers:detail", needsServers: true },
  { name: "server", label: "Server", draw: drawServer, rule: "os_compute_api:servers:show", needsServers: true, isHidden: true, below: "servers", titleOf: titleOfServer },
];

/** Those that the caller may see. */
export function viewsOf() {
  return VIEWS.filter((view) => may(view.rule) && (!view.needsServers || session.settings?.has_servers));
}
