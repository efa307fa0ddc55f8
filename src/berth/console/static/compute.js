// @ts-check
/** What the console reads of the compute API, and how it shows it. */

import { chip } from "./parts.js";
import { may } from "./session.js";

/**
 * @typedef {{
 *   id: string, name: string, status: string, tenant_id: string, user_id: string, created: string, updated: string,
 *   image: { id: string } | "", metadata: Record<string, string>, locked: boolean, locked_reason?: string | null,
 *   flavor: { original_name: string, vcpus: number, ram: number, disk: number, extra_specs?: Record<string, string> },
 *   description?: string | null, server_groups?: string[],
 *   fault?: { message: string, code: number, created: string, details?: string },
 *   "OS-EXT-SRV-ATTR:host"?: string | null, "OS-EXT-STS:task_state"?: string | null,
 *   "OS-SRV-USG:launched_at"?: string | null, "OS-EXT-AZ:availability_zone"?: string,
 * }} ComputeServer
 */

/**
 * @typedef {object} ActionEvent
 * @property {string} event
 * @property {string} start_time
 * @property {string | null} finish_time
 * @property {string | null} result
 * @property {string | null} [host]
 * @property {string | null} [details]
 */

/**
 * @typedef {object} InstanceAction
 * @property {string} action
 * @property {string} request_id
 * @property {string} user_id
 * @property {string} start_time
 * @property {string | null} message
 * @property {string | null} [updated_at]
 * @property {ActionEvent[]} [events]
 */

/** @typedef {{ id: string, name: string, vcpus: number, ram: number, disk: number }} Flavor */

export const COMPUTE = "compute/v2.1";

/** @type {Record<string, import("./parts.js").Tone>} */
const TONES = { ACTIVE: "good", ERROR: "bad", SHUTOFF: "quiet", SHELVED: "quiet", SHELVED_OFFLOADED: "quiet", VERIFY_RESIZE: "warn" };

/** @param {ComputeServer} server */
export function statusChip(server) {
  const task = server["OS-EXT-STS:task_state"];
  const isSaid = !task || task.toUpperCase() === server.status;
  return chip(TONES[server.status] ?? "busy", isSaid ? server.status : `${server.status}, ${task}`);
}

/** The part of a query that asks for the servers of all projects, where the caller may. */
export function allProjects() {
  return may("os_compute_api:servers:detail:get_all_tenants") ? "all_tenants=1&" : "";
}
