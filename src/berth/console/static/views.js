// @ts-check
/** The views, in the order of the menu. Each is in it for those whom the policy lets in. */

import { may, session } from "./session.js";
import { drawCluster, drawClusters, titleOfCluster } from "./views/clusters.js";
import { drawDrain, titleOfDrain } from "./views/drain.js";
import { drawFleet } from "./views/fleet.js";
import { drawGroup, drawGroups, titleOfGroup } from "./views/groups.js";
import { drawHost, titleOfHost } from "./views/host.js";
import { drawDoctor } from "./views/doctor.js";
import { drawJournal } from "./views/journal.js";
import { drawMoves } from "./views/moves.js";
import { drawOverview } from "./views/overview.js";
import { drawPool, drawPools, titleOfPool } from "./views/pools.js";
import { drawServer, titleOfServer } from "./views/server.js";
import { drawServers } from "./views/servers.js";
import { drawWhy } from "./views/why.js";

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
  { name: "overview", label: "Overview", draw: drawOverview, rule: "berth:overview:show" },
  { name: "fleet", label: "Fleet", draw: drawFleet, rule: "berth:hosts:list" },
  { name: "host", label: "Host", draw: drawHost, rule: "berth:hosts:list", isHidden: true, below: "fleet", titleOf: titleOfHost },
  { name: "servers", label: "Servers", draw: drawServers, rule: "os_compute_api:servers:detail", needsServers: true },
  { name: "server", label: "Server", draw: drawServer, rule: "os_compute_api:servers:show", needsServers: true, isHidden: true, below: "servers", titleOf: titleOfServer },
  { name: "moves", label: "Moves", draw: drawMoves, rule: "berth:operations:list", needsServers: true },
  { name: "drain", label: "Drain", draw: drawDrain, rule: "berth:drains:list", isHidden: true, below: "moves", titleOf: titleOfDrain },
  { name: "why", label: "Why", draw: drawWhy, rule: "berth:explain" },
  { name: "groups", label: "Groups", draw: drawGroups, rule: "berth:groups:list" },
  { name: "group", label: "Group", draw: drawGroup, rule: "berth:groups:show", isHidden: true, below: "groups", titleOf: titleOfGroup },
  { name: "clusters", label: "Clusters", draw: drawClusters, rule: "berth:clusters:list", needsServers: true },
  { name: "cluster", label: "Cluster", draw: drawCluster, rule: "berth:clusters:show", needsServers: true, isHidden: true, below: "clusters", titleOf: titleOfCluster },
  { name: "pools", label: "Pools", draw: drawPools, rule: "berth:pools:list" },
  { name: "pool", label: "Pool", draw: drawPool, rule: "berth:pools:list", isHidden: true, below: "pools", titleOf: titleOfPool },
  { name: "journal", label: "Journal", draw: drawJournal, rule: "berth:events:list" },
  { name: "doctor", label: "Doctor", draw: drawDoctor, rule: "berth:doctor:examine" },
];

/** Those that the caller may see. */
export function viewsOf() {
  return VIEWS.filter((view) => may(view.rule) && (!view.needsServers || session.settings?.has_servers));
}
