// @ts-check
/**
 * All hosts, as they are now: read once, then kept up to date by events, so that ten thousand of them cost no more
 * than what changes. What an event does not tell (a provider below a host, an inventory, a complaint) is asked for,
 * host by host; if that would be many, the list is read again.
 */

import { get, getAll, send } from "./api.js";
import { redraw } from "./frame.js";
import { listen } from "./live.js";
import { may } from "./session.js";

const PAGE = 1000;
const ASK_EVERY_MS = 500;
const ASK_AT_ONCE = 8;
/** If more hosts than this would have to be asked for, the list is read again. */
const ASK_MAX = 64;
const READ_PACE_MS = 5000;
/** Reading the list again takes at most this share of the time. */
const READ_SHARE = 0.1;
const ROOTS_MAX = 100_000;

/** @typedef {Api.HostDetail} Host */

/**
 * `shape` changes when hosts come, go, or change their names, states or domains; `version` with everything.
 * @type {{ hosts: Map<string, Host>, shape: number, version: number, isWhole: boolean, error: unknown }}
 */
export const fleet = { hosts: new Map(), shape: 0, version: 0, isWhole: false, error: null };

/** @type {Map<string, string>} */
const byName = new Map();
/** The host of each provider that is none itself, as far as it was asked for. */
/** @type {Map<string, string>} */
const roots = new Map();
/** @type {Set<string>} */
const toAsk = new Set();
let isWanted = false;
let isReading = false;
let readAt = 0;
let pause = READ_PACE_MS;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let asking;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let rereading;

listen(noteEvent, () => {
  if (isWanted) readLater();
});

/** Have the fleet read, if it is not. Call it in each drawing that shows it. */
export function wantFleet() {
  if (isWanted) return;
  isWanted = true;
  void readFleet();
}

/** Forget everything: another caller may see less. */
export function dropFleet() {
  isWanted = false;
  Object.assign(fleet, { hosts: new Map(), isWhole: false, error: null });
  byName.clear();
  roots.clear();
  toAsk.clear();
}

/** @param {string} nameOrUuid */
export function findHost(nameOrUuid) {
  return fleet.hosts.get(nameOrUuid) ?? fleet.hosts.get(byName.get(nameOrUuid) ?? "");
}

async function readFleet() {
  if (isReading) return;
  isReading = true;
  const began = performance.now();
  try {
    let taken = 0;
    const isFirst = !fleet.isWhole;
    const rows = await getAll(`berth/v1/hosts?limit=${PAGE}`, "hosts", (/** @type {Host[]} */ sofar) => {
      // The first time, what has come is shown; later, nothing disappears while pages come.
      if (!isFirst) return;
      for (; taken < sofar.length; taken++) put(/** @type {Host} */ (sofar[taken]));
      touch(true);
    });
    const found = new Set(rows.map((host) => host.uuid));
    for (const uuid of [...fleet.hosts.keys()]) if (!found.has(uuid)) remove(uuid);
    if (!isFirst) for (const host of rows) put(host);
    Object.assign(fleet, { isWhole: true, error: null });
  } catch (error) {
    fleet.error = error;
    readLater();
  }
  readAt = performance.now();
  pause = Math.max(READ_PACE_MS, (readAt - began) / READ_SHARE);
  isReading = false;
  touch(true);
}

function readLater() {
  if (rereading !== undefined) return;
  rereading = setTimeout(() => {
    rereading = undefined;
    if (isWanted) void readFleet();
  }, Math.max(0, readAt + pause - performance.now()));
}

/** @param {boolean} isShape */
function touch(isShape) {
  fleet.version++;
  if (isShape) fleet.shape++;
  redraw();
}

/** @param {Host} host */
function put(host) {
  fleet.hosts.set(host.uuid, host);
  byName.set(host.name, host.uuid);
}

/** @param {string} uuid */
function remove(uuid) {
  byName.delete(fleet.hosts.get(uuid)?.name ?? "");
  fleet.hosts.delete(uuid);
}

// -- what events tell -----------------------------------------------------------------------------

/** @param {Api.Event} event */
function noteEvent(event) {
  if (!isWanted) return;
  for (const change of event.changes) noteChange(change);
}

/** @param {import("./sources.js").AnyChange} change */
function noteChange(change) {
  switch (change.kind) {
    case "consumer":
      addUse(change.before?.allocations ?? {}, -1);
      addUse(change.after?.allocations ?? {}, 1);
      break;
    case "server":
      countServer(change.before?.host, -1);
      countServer(change.after?.host, 1);
      break;
    case "host":
      setStatus(change.provider, change.after);
      break;
    case "compute_host":
      askFor(change.id);
      break;
    case "provider":
      if (change.after === null) {
        if (fleet.hosts.has(change.provider)) {
          remove(change.provider);
          touch(true);
        }
      } else askFor(change.provider);
      break;
    case "inventory":
    case "provider_aggregates":
      askFor(change.provider);
      break;
    case "aggregate":
      readLater();
      break;
    default:
  }
}

/**
 * @param {Record<string, Record<string, number>>} allocations
 * @param {1 | -1} sign
 */
function addUse(allocations, sign) {
  for (const [provider, amounts] of Object.entries(allocations)) {
    const host = fleet.hosts.get(provider);
    if (host === undefined) {
      askFor(provider);
      continue;
    }
    for (const [name, amount] of Object.entries(amounts)) {
      const use = host.usage[name];
      if (use !== undefined) use.used += sign * amount;
    }
    touch(false);
  }
}

/**
 * @param {string | null | undefined} place the host's name or uuid
 * @param {1 | -1} sign
 */
function countServer(place, sign) {
  const host = place ? findHost(place) : undefined;
  if (host === undefined) return;
  host.servers += sign;
  touch(false);
}

/**
 * @param {string} uuid
 * @param {Api.HostState | null} status
 */
function setStatus(uuid, status) {
  const host = fleet.hosts.get(uuid);
  if (host === undefined) return askFor(uuid);
  Object.assign(host, status ?? { disabled: false, down: false, build_failures: 0, reason: null });
  host.state = host.down ? "down" : host.disabled ? "disabled" : "up";
  // What an agent says weighs in too, and is not in this event.
  askFor(uuid);
  touch(true);
}

// -- what has to be asked for ---------------------------------------------------------------------

/** @param {string} provider a host, or what is below one */
function askFor(provider) {
  toAsk.add(roots.get(provider) ?? provider);
  asking ??= setTimeout(() => void askNow(), ASK_EVERY_MS);
}

async function askNow() {
  const uuids = [...toAsk];
  toAsk.clear();
  if (uuids.length > ASK_MAX) {
    readLater();
  } else {
    while (uuids.length > 0) await Promise.all(uuids.splice(0, ASK_AT_ONCE).map(askOne));
  }
  asking = toAsk.size > 0 ? setTimeout(() => void askNow(), ASK_EVERY_MS) : undefined;
}

/** @param {string} uuid */
async function askOne(uuid) {
  try {
    if (!fleet.hosts.has(uuid)) {
      const root = await findRoot(uuid);
      if (root === null) return;
      uuid = root;
    }
    /** @type {Api.OneHostTree} */
    const { host } = await get(`berth/v1/hosts/${uuid}`);
    const { providers, providers_total, consumers, consumers_total, ...row } = host;
    void [providers_total, consumers, consumers_total];
    for (const { uuid: one } of providers) if (one !== host.uuid && roots.size < ROOTS_MAX) roots.set(one, host.uuid);
    put(row);
    touch(true);
  } catch {
    // It is gone, or no host. If it was one, the list knows.
    if (fleet.hosts.has(uuid)) readLater();
  }
}

/**
 * The host that a provider is below; null if that cannot be known, or if it is a pool.
 * @param {string} provider
 */
async function findRoot(provider) {
  if (!may("placement:resource_providers:show")) {
    readLater();
    return null;
  }
  try {
    const response = await send("GET", `resource_providers/${provider}`, { headers: { "OpenStack-API-Version": "placement 1.39" } });
    const root = String((await response.json()).root_provider_uuid);
    if (roots.size < ROOTS_MAX) roots.set(provider, root);
    return root;
  } catch {
    return null;
  }
}
