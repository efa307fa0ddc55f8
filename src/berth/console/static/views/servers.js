// @ts-check
/** Servers: which there are, in which state, and where. */

import { html } from "../vendor/lit-html/lit-html.js";
import { get } from "../api.js";
import { COMPUTE, allProjects, statusChip } from "../compute.js";
import { count } from "../format.js";
import { ago, choice, filters, link, show, table, textFilter } from "../parts.js";
import { may } from "../session.js";
import { ofKind, use } from "../sources.js";

/** @typedef {import("../compute.js").ComputeServer} ComputeServer */

const PAGE = 1000;
/** @type {Array<[string, string]>} */
const STATES = [["", "any"], ...["ACTIVE", "BUILD", "ERROR", "MIGRATING", "REBUILD", "RESIZE", "REVERT_RESIZE", "SHELVED", "SHELVED_OFFLOADED", "SHUTOFF", "VERIFY_RESIZE"].map((state) => /** @type {[string, string]} */ ([state, state]))];

/** @param {import("../address.js").Address} address */
export function drawServers({ query }) {
  const asked = queryOf(query);
  const source = use(`servers ${asked}`, () => readServers(asked), ofKind("server"));
  return html`<div class="head"><h1>Servers</h1></div>
    <section class="panel" aria-label="Servers">
      ${filters(
        textFilter("name", "Name", "web or ^web-1$"),
        choice("status", "State", STATES),
        may("os_compute_api:os-extended-server-attributes") ? textFilter("host", "Host", "host-0001") : html``,
      )}
      ${show(source, drawRows)}
    </section>`;
}

/** @param {URLSearchParams} query */
function queryOf(query) {
  const words = new URLSearchParams();
  for (const name of ["name", "status", "host"]) {
    const value = query.get(name);
    if (value) words.set(name, value);
  }
  return words.toString();
}

/**
 * @param {string} asked
 * @returns {Promise<{ servers: ComputeServer[], isCut: boolean }>}
 */
async function readServers(asked) {
  /** @type {{ servers: ComputeServer[], servers_links?: unknown[] }} */
  const page = await get(`${COMPUTE}/servers/detail?${allProjects()}limit=${PAGE}&${asked}`);
  return { servers: page.servers, isCut: (page.servers_links ?? []).length > 0 };
}

/** @param {{ servers: ComputeServer[], isCut: boolean }} page */
function drawRows({ servers, isCut }) {
  const hasHosts = servers.some((server) => server["OS-EXT-SRV-ATTR:host"] !== undefined);
  /** @type {import("../parts.js").Column<ComputeServer>[]} */
  const columns = [
    { name: "name", label: "Name", by: (one) => one.name, cell: (one) => link("server", one.id, one.name || one.id) },
    { name: "status", label: "State", by: (one) => one.status, cell: statusChip },
    ...(hasHosts ? [hostColumn] : []),
    { name: "flavor", label: "Flavor", by: (one) => one.flavor.original_name },
    { name: "project", label: "Project", by: (one) => one.tenant_id, isWide: true },
    { name: "zone", label: "Zone", by: (one) => one["OS-EXT-AZ:availability_zone"] ?? "", isWide: true },
    { name: "updated", label: "Changed", by: (one) => one.updated, cell: (one) => ago(one.updated), isWide: true },
  ];
  return html`<p class="quiet" role="status">${isCut ? `The newest ${count(servers.length, "server")}: narrow the filters to see others.` : `${count(servers.length, "server")}.`}</p>
    ${table("Servers", columns, servers, (one) => one.id, { empty: "No server is as asked for." })}`;
}

/** @type {import("../parts.js").Column<ComputeServer>} */
const hostColumn = {
  name: "host",
  label: "Host",
  by: (one) => one["OS-EXT-SRV-ATTR:host"] ?? "",
  cell: (one) => {
    const host = one["OS-EXT-SRV-ATTR:host"];
    return host ? link("host", host) : html`<span class="quiet">none</span>`;
  },
};
