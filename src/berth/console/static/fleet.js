// @ts-check
/**
 * All hosts, as they are now: read once, then kept up to date by events, so that ten thousand of them cost no more
 * than what changes. What an event does not tell (a provider below a host, an inventory, a complaint) is asked for,
 * host by host; if that would be many, the list is read again.
 *
 * An answer and the events come by different ways, and either may be ahead. So a host is known as of an index, that of
 * the answer it was in: events up to it are in it already. Those that come while an answer is under way are kept, and
 * the ones behind its index are added to its hosts.
 */

import { Refused, get, getAll, send } from "./api.js";
import { sortKeyOf } from "./format.js";
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
/** If more events than this come while answers are under way, the list is read again. */
const SINCE_MAX = 20_000;

/** @typedef {Api.HostDetail} Host */

/**
 * `shape` changes when hosts come, go, or change their names, states or domains.
 * @type {{ hosts: Map<string, Host>, shape: number, isWhole: boolean, error: unknown }}
 */
export const fleet = { hosts: new Map(), shape: 0, isWhole: false, error: null };

/** The hosts in the order of their names; null if that is to be found out again. */
/** @type {string[] | null} */
let order = null;

/** @type {Map<string, string>} */
const byName = new Map();
/** The index that each host is known as of. */
/** @type {Map<string, number>} */
const knownAt = new Map();
/** How many answers are under way, and the events that have come since the first of them was asked for. */
let underWay = 0;
/** @type {Api.Event[]} */
let since = [];
/** The host of each provider that is none itself, as far as it was asked for. */
/** @type {Map<string, string>} */
const roots = new Map();
/** Providers that are neither hosts nor below one. */
/** @type {Set<string>} */
const pools = new Set();
/** Hosts that have changed in a way that has to be asked for. */
/** @type {Set<string>} */
const toAsk = new Set();
/** Providers that were claimed from, and of which no host is known. */
/** @type {Set<string>} */
const unknown = new Set();
let isWanted = false;
let isReading = false;
/** Whether the list has to be read again once it is read: something is missing in it. */
let isAskedAgain = false;
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
  order = null;
  byName.clear();
  knownAt.clear();
  roots.clear();
  pools.clear();
  toAsk.clear();
  unknown.clear();
  clearTimeout(asking);
  asking = undefined;
}

/** All hosts, by their names. Sorting them takes long: it is done only if hosts come, go or change their names. */
export function hostsByName() {
  order ??= [...fleet.hosts.values()]
    .map(({ uuid, name }) => ({ uuid, key: sortKeyOf(name) }))
    .sort((one, other) => (one.key < other.key ? -1 : one.key > other.key ? 1 : 0))
    .map(({ uuid }) => uuid);
  return order.map((uuid) => /** @type {Host} */ (fleet.hosts.get(uuid)));
}

/** @param {string} nameOrUuid */
export function findHost(nameOrUuid) {
  return fleet.hosts.get(nameOrUuid) ?? fleet.hosts.get(byName.get(nameOrUuid) ?? "");
}

async function readFleet() {
  if (isReading) {
    isAskedAgain = true;
    return;
  }
  isReading = true;
  isAskedAgain = false;
  const began = performance.now();
  const { hosts } = fleet;
  const before = [...hosts.keys()];
  // What is answered to somebody who has signed out meanwhile is not kept.
  const isOurs = () => fleet.hosts === hosts;
  try {
    const rows = await following(() => getAll(`berth/v1/hosts?limit=${PAGE}`, "hosts", (page, answer) => isOurs() && put(page, answer)));
    if (isOurs()) {
      const found = new Set(rows.map((/** @type {Host} */ host) => host.uuid));
      for (const uuid of before) if (!found.has(uuid)) remove(uuid);
      Object.assign(fleet, { isWhole: true, error: null });
    }
  } catch (error) {
    if (isOurs()) {
      fleet.error = error;
      readLater();
    }
  }
  readAt = performance.now();
  pause = Math.max(READ_PACE_MS, (readAt - began) / READ_SHARE);
  isReading = false;
  if (isOurs()) touch(true);
  else if (isWanted) void readFleet();
  if (isAskedAgain) readLater();
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
  if (isShape) fleet.shape++;
  redraw();
}

/**
 * Have hosts as an answer says they are, and as the events behind it have changed them.
 * @param {Host[]} hosts
 * @param {{ index: number }} answer
 */
function put(hosts, { index }) {
  for (const host of hosts) {
    const known = fleet.hosts.get(host.uuid);
    if (known?.name !== host.name) {
      order = null;
      if (known !== undefined) byName.delete(known.name);
    }
    fleet.hosts.set(host.uuid, host);
    byName.set(host.name, host.uuid);
    knownAt.set(host.uuid, index);
  }
  const these = new Set(hosts.map((host) => host.uuid));
  for (const event of since) {
    if (event.index > index) for (const change of event.changes) addChange(change, (uuid) => these.has(uuid));
  }
  touch(true);
}

/** @param {string} uuid */
function remove(uuid) {
  byName.delete(fleet.hosts.get(uuid)?.name ?? "");
  knownAt.delete(uuid);
  fleet.hosts.delete(uuid);
  order = null;
}

// -- what events tell -----------------------------------------------------------------------------

/** @param {Api.Event} event */
function noteEvent(event) {
  if (!isWanted) return;
  if (underWay > 0 && since.push(event) > SINCE_MAX) {
    since = [];
    readLater();
  }
  const isNews = (/** @type {string} */ uuid) => event.index > (knownAt.get(uuid) ?? -1);
  for (const change of event.changes) {
    addChange(change, isNews);
    askAbout(change);
  }
}

/**
 * Change the hosts that are meant as an event says.
 * @param {import("./sources.js").AnyChange} change
 * @param {(uuid: string) => boolean} isMeant
 */
function addChange(change, isMeant) {
  switch (change.kind) {
    case "consumer":
      addUse(change.before?.allocations ?? {}, -1, isMeant);
      addUse(change.after?.allocations ?? {}, 1, isMeant);
      break;
    case "server":
      countServer(change.before?.host, -1, isMeant);
      countServer(change.after?.host, 1, isMeant);
      break;
    case "host":
      setStatus(change.provider, change.after, isMeant);
      break;
    case "provider":
      if (change.after === null && fleet.hosts.has(change.provider) && isMeant(change.provider)) {
        remove(change.provider);
        touch(true);
      }
      break;
    default:
  }
}

/**
 * @param {Record<string, Record<string, number>>} allocations
 * @param {1 | -1} sign
 * @param {(uuid: string) => boolean} isMeant
 */
function addUse(allocations, sign, isMeant) {
  for (const [provider, amounts] of Object.entries(allocations)) {
    const host = fleet.hosts.get(rootOf(provider));
    if (host === undefined || !isMeant(host.uuid)) continue;
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
 * @param {(uuid: string) => boolean} isMeant
 */
function countServer(place, sign, isMeant) {
  const host = place ? findHost(place) : undefined;
  if (host === undefined || !isMeant(host.uuid)) return;
  host.servers += sign;
  touch(false);
}

/**
 * @param {string} uuid
 * @param {Api.HostState | null} status
 * @param {(uuid: string) => boolean} isMeant
 */
function setStatus(uuid, status, isMeant) {
  const host = fleet.hosts.get(uuid);
  if (host === undefined || !isMeant(uuid)) return;
  Object.assign(host, status ?? { disabled: false, down: false, build_failures: 0, reason: null });
  host.state = host.down ? "down" : host.disabled ? "disabled" : "up";
  touch(true);
}

// -- what has to be asked for ---------------------------------------------------------------------

/** Ask for what a change does not tell. @param {import("./sources.js").AnyChange} change */
function askAbout(change) {
  switch (change.kind) {
    case "consumer":
      for (const state of [change.before, change.after]) {
        for (const provider of Object.keys(state?.allocations ?? {})) if (!fleet.hosts.has(rootOf(provider))) askLater(unknown, provider);
      }
      break;
    case "provider":
      pools.delete(change.provider);
      if (change.after !== null) askLater(toAsk, change.provider);
      break;
    case "host":
      // What an agent says weighs in too, and is not in this event.
    case "inventory":
    case "provider_aggregates":
      askLater(toAsk, change.provider);
      break;
    case "compute_host":
      askLater(toAsk, change.id);
      break;
    case "aggregate":
      readLater();
      break;
    default:
  }
}

/** @param {string} provider a host, or what is below one */
function rootOf(provider) {
  return roots.get(provider) ?? provider;
}

/**
 * @param {Set<string>} which
 * @param {string} provider
 */
function askLater(which, provider) {
  if (pools.has(provider)) return;
  which.add(rootOf(provider));
  asking ??= setTimeout(() => void askNow(), ASK_EVERY_MS);
}

async function askNow() {
  asking = undefined;
  if (!fleet.isWhole) {
    // Most of it is in the pages that are still to come.
    asking = setTimeout(() => void askNow(), ASK_EVERY_MS);
    return;
  }
  const uuids = [...toAsk, ...[...unknown].filter((provider) => !fleet.hosts.has(provider))];
  toAsk.clear();
  unknown.clear();
  if (uuids.length > ASK_MAX) readLater();
  else while (uuids.length > 0) await Promise.all(uuids.splice(0, ASK_AT_ONCE).map(askOne));
}

/** @param {string} uuid */
async function askOne(uuid) {
  const { hosts } = fleet;
  const root = fleet.hosts.has(uuid) ? uuid : await findRoot(uuid);
  if (root === null) return;
  try {
    await following(async () => {
      /** @type {Api.OneHostTree} */
      const answer = await get(`berth/v1/hosts/${root}`);
      const { providers, providers_total, consumers, consumers_total, ...row } = answer.host;
      void [providers_total, consumers, consumers_total];
      for (const part of providers) if (part.uuid !== row.uuid && roots.size < ROOTS_MAX) roots.set(part.uuid, row.uuid);
      if (fleet.hosts === hosts) put([row], answer);
    });
  } catch (error) {
    // It is gone, or no host. If it was one, the list knows.
    if (fleet.hosts.has(root)) readLater();
    else if (error instanceof Refused && error.status >= 400 && error.status < 500 && pools.size < ROOTS_MAX) pools.add(root);
  }
}

/**
 * Ask for hosts, and keep the events that come meanwhile.
 * @template T
 * @param {() => Promise<T>} read
 * @returns {Promise<T>}
 */
async function following(read) {
  underWay++;
  try {
    return await read();
  } finally {
    if (--underWay === 0) since = [];
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
