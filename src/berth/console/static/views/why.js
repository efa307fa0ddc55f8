// @ts-check
/** Why: where a request would go now, or what keeps it from fitting, constraint by constraint. */

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { askFirst } from "../actions.js";
import { changeQuery, linkTo } from "../address.js";
import { ask, get, getAll } from "../api.js";
import { COMPUTE } from "../compute.js";
import { count, formatNumber } from "../format.js";
import { chip, link, panel, refusalOf, show } from "../parts.js";
import { may, session } from "../session.js";
import { ofKind, use } from "../sources.js";

/** @typedef {import("../compute.js").Flavor & { ephemeral: number, swap: number | "", extra_specs?: Record<string, string> }} FullFlavor */
/** @typedef {{ flavors: FullFlavor[], zones: string[], groups: Api.GroupSummary[] }} Choices */

const HOSTS_SHOWN = 20;
/** Fields of a question that are amounts of a flavor, and the classes that they stand for. */
const AMOUNTS = /** @type {const} */ ({ vcpus: ["VCPU", "PCPU"], ram: ["MEMORY_MB"], disk: ["DISK_GB"] });

/** @param {import("../address.js").Address} address */
export function drawWhy({ query }) {
  const choices = use("choices for why", readChoices, ofKind("flavor", "group", "compute_aggregate"));
  return html`<div class="head"><h1>Why</h1><span class="quiet">Where would it go, and if nowhere, why not? The address has the question: send it to a colleague.</span></div>
    ${show(choices, (found) => {
      const asked = askedOf(query, found);
      const server = query.get("server");
      if (server) {
        return html`${panel("The question", html`<p class="change"><span>Would the server ${link("server", server, nameOf(server))} fit now, with all that it needs?</span>
            <button class="main" @click=${() => changeQuery({ asked: Date.now() })}>Ask again</button> <a href=${linkTo("why")}>Ask something else</a></p>`)}
          ${drawAnswer({ server }, query, found.groups)}`;
      }
      return html`${panel("The question", drawForm(query, found, asked))}
        ${asked === null ? nothing : drawAnswer(asked, query, found.groups)}`;
    })}`;
}

/** What a server is called, as soon as that is known. @param {string} id */
function nameOf(id) {
  const source = use(`name of ${id}`, () => /** @type {Promise<{ server: { name: string } }>} */ (get(`${COMPUTE}/servers/${encodeURIComponent(id)}`)), () => false);
  return source.value?.server.name ?? id;
}

/** @returns {Promise<Choices>} */
async function readChoices() {
  const [flavors, zones, groups] = await Promise.all([
    session.settings?.has_servers ? /** @type {Promise<FullFlavor[]>} */ (getAll(`${COMPUTE}/flavors/detail?is_public=None`, "flavors")) : [],
    session.settings?.has_servers ? readZones() : [],
    may("berth:groups:list") ? /** @type {Promise<Api.GroupSummary[]>} */ (getAll("berth/v1/groups?limit=1000", "groups")) : [],
  ]);
  return { flavors, zones, groups };
}

async function readZones() {
  /** @type {{ availabilityZoneInfo: Array<{ zoneName: string }> }} */
  const { availabilityZoneInfo } = await get(`${COMPUTE}/os-availability-zone`);
  return availabilityZoneInfo.map(({ zoneName }) => zoneName).filter((name) => name !== "internal");
}

// -- the question ---------------------------------------------------------------------------------

/**
 * The body that asks it; null if nothing is asked yet.
 * @param {URLSearchParams} query
 * @param {Choices} choices
 * @returns {Api.Explain | null}
 */
function askedOf(query, choices) {
  const flavor = choices.flavors.find((one) => one.name === query.get("flavor"));
  const amount = (/** @type {string} */ name, /** @type {number} */ standard) => Number(query.get(name) ?? standard);
  const vcpus = amount("vcpus", flavor?.vcpus ?? 0);
  const ram = amount("ram", flavor?.ram ?? 0);
  if (!(vcpus > 0 && ram > 0)) return null;
  /** @type {Api.Explain} */
  const asked = { count: Math.max(1, amount("count", 1)), flavor: { vcpus, ram, disk: amount("disk", flavor?.disk ?? 0), ephemeral: flavor?.ephemeral ?? 0, swap: flavor?.swap || 0, extra_specs: flavor?.extra_specs ?? {} } };
  if (query.get("group")) asked.group = query.get("group");
  if (query.get("zone")) asked.zone = query.get("zone");
  return asked;
}

/**
 * @param {URLSearchParams} query
 * @param {Choices} choices
 * @param {Api.Explain | null} asked
 */
function drawForm(query, { flavors, zones, groups }, asked) {
  const size = /** @type {Api.AskedFlavor | undefined} */ (asked?.flavor);
  const option = (/** @type {string} */ value, /** @type {string} */ text, /** @type {string | null} */ chosen) => html`<option value=${value} ?selected=${value === (chosen ?? "")}>${text}</option>`;
  return html`<form class="filters" @submit=${submit}>
    <label>Flavor<select name="flavor" @change=${chooseFlavor}>
      ${option("", "amounts of my own", query.get("flavor"))}${flavors.map((one) => option(one.name, one.name, query.get("flavor")))}
    </select></label>
    ${numberField("vcpus", "VCPUs", size?.vcpus ?? "", 1, 65536)}
    ${numberField("ram", "Memory, MiB", size?.ram ?? "", 1, 1 << 30)}
    ${numberField("disk", "Disk, GiB", size?.disk ?? "", 0, 1 << 30)}
    ${groups.length === 0 ? nothing : html`<label>Group<select name="group">${option("", "none", query.get("group"))}${groups.map((one) => option(one.uuid, `${one.name} (${one.policy})`, query.get("group")))}</select></label>`}
    ${zones.length === 0 ? nothing : html`<label>Zone<select name="zone">${option("", "any", query.get("zone"))}${zones.map((name) => option(name, name, query.get("zone")))}</select></label>`}
    ${numberField("count", "How many", asked?.count ?? 1, 1, 1000)}
    <button class="main">Ask</button>
  </form>`;
}

/**
 * @param {string} name
 * @param {string} label
 * @param {number | string} value
 * @param {number} min
 * @param {number} max
 */
function numberField(name, label, value, min, max) {
  return html`<label>${label}<input type="number" name=${name} min=${min} max=${max} required .value=${String(value)}></label>`;
}

/** @param {Event} event */
function chooseFlavor(event) {
  changeQuery({ flavor: /** @type {HTMLSelectElement} */ (event.target).value, vcpus: null, ram: null, disk: null });
}

/** @param {SubmitEvent} event */
function submit(event) {
  event.preventDefault();
  const given = Object.fromEntries(new FormData(/** @type {HTMLFormElement} */ (event.target)));
  changeQuery({ asked: String(Date.now()), ...Object.fromEntries(Object.entries(given).map(([name, value]) => [name, String(value)])) });
}

// -- the answer -----------------------------------------------------------------------------------

/**
 * @param {Api.Explain} asked
 * @param {URLSearchParams} query
 * @param {Api.GroupSummary[]} groups
 */
function drawAnswer(asked, query, groups) {
  const source = use(`why ${JSON.stringify(asked)} ${query.get("asked") ?? ""}`, () => readAnswer(asked), () => false);
  return show(source, ({ explanation, places, more }) => {
    const fits = explanation.fitting >= explanation.needed;
    return html`
      <section class="panel" aria-label="The answer">
        <header><h2>${fits ? chip("good", "It fits") : chip("bad", "It does not fit")}</h2><span class="quiet">at index ${formatNumber(explanation.index)}</span></header>
        <p>${explanation.text}</p>
        ${more === null ? nothing : html`<p><b>${more.exact ? "" : "at least "}${count(more.count, "of them fits", "of them fit")}</b> in all, on ${count(more.hosts, "host")}.</p>`}
        ${drawChange(explanation.change, asked, groups)}
      </section>
      ${places.length === 0 ? nothing : panel("Where it would go", html`<ol>${places.map((place) => html`<li>${link("host", place.host_uuid, place.host_name)}</li>`)}</ol>`)}
      ${panel("Constraint by constraint", drawFunnel(explanation))}
      ${explanation.hosts.length === 0 ? nothing : panel("The nearest hosts", drawHosts(explanation.hosts))}`;
  });
}

/** @param {Api.Explain} asked */
async function readAnswer(asked) {
  const { count: wanted, server, ...body } = asked;
  /** @type {Api.OneExplanation} */
  const { explanation } = await ask("POST", "berth/v1/explain", asked);
  const fits = explanation.fitting >= explanation.needed;
  const [places, more] = await Promise.all([
    fits && !server && may("berth:schedule") ? readPlaces({ ...body, max_count: wanted ?? 1, min_count: wanted ?? 1, dry_run: true }) : [],
    !server && may("berth:capacity") ? readCapacity(body) : null,
  ]);
  return { explanation, places, more };
}

/** @param {Api.NewSchedule} body */
async function readPlaces(body) {
  /** @type {Api.Schedule} */
  const { placements } = await ask("POST", "berth/v1/schedule", body);
  return placements;
}

/** @param {Api.Ask} body */
async function readCapacity(body) {
  /** @type {Api.OneCapacity} */
  const { capacity } = await ask("POST", "berth/v1/capacity", body);
  return capacity;
}

/**
 * @param {Api.SmallestChange | null} change
 * @param {Api.Explain} asked
 * @param {Api.GroupSummary[]} groups
 */
function drawChange(change, asked, groups) {
  if (change === null) return nothing;
  // What a server needs cannot be changed here.
  const applied = change.best && !asked.server ? applyTo(change.best) : null;
  const group = groups.find((one) => one.uuid === asked.group);
  const remedies = [...(change.best ? [change.best] : []), ...(change.others ?? [])];
  const deeds = remedies.map((remedy) => deedOf(remedy, group)).filter((one) => one !== null);
  return html`<p class="change"><b>${change.text}</b>
    ${applied === null ? nothing : html`<button @click=${() => changeQuery(applied)}>Change the question so</button>`}
    ${deeds.map((one) => html`<button @click=${() => askFirst(one)}>${one.button} …</button>`)}</p>`;
}

/**
 * What can be done to the region, and not to the question, so that it fits; null if it is nothing that can be done here.
 * @param {Api.Remedy} remedy
 * @param {Api.GroupSummary | undefined} group the one that is asked for
 * @returns {import("../actions.js").Question | null}
 */
function deedOf(remedy, group) {
  const [change, another] = remedy.changes;
  if (change === undefined || another !== undefined) return null;
  const { kind, subject, text, after } = change;
  if (kind === "enable_host" && after == null && may("berth:hosts:update")) {
    return deed(`Enable ${subject}`, text, `berth/v1/hosts/${encodeURIComponent(subject)}`, { host: { disabled: false } }, `${subject} is enabled.`);
  }
  if (group === undefined || !may("berth:groups:update")) return null;
  const path = `berth/v1/groups/${group.uuid}`;
  if (kind === "soften_group") return deed(`Make the group ${group.name} soft`, text, path, { group: { policy: `soft-${group.policy}` } }, `The group ${group.name} is soft.`);
  const limit = /^raise_(max_.*)$/.exec(kind)?.[1];
  const allowing = limit === "max_skew" ? `Allow a skew of ${after} in ${group.name}` : `Allow ${after} of ${group.name} on each ${group.domain}`;
  return limit === undefined || after == null ? null : deed(allowing, text, path, { group: { [limit]: after } }, `The group ${group.name} is changed.`);
}

/**
 * @param {string} button
 * @param {string} text
 * @param {string} path
 * @param {unknown} body
 * @param {string} done
 * @returns {import("../actions.js").Question}
 */
function deed(button, text, path, body, done) {
  return {
    title: `${button}?`,
    text: `The request fits ${text}.`,
    button,
    isDanger: true,
    act: async () => {
      await ask("PATCH", path, body);
      changeQuery({ asked: Date.now() });
      return done;
    },
  };
}

/**
 * What the question becomes; null if it is about something that the form does not have.
 * @param {Api.Remedy} remedy
 * @returns {Record<string, string | number> | null}
 */
function applyTo(remedy) {
  /** @type {Record<string, string | number>} */
  const changed = {};
  for (const change of remedy.changes) {
    const field = Object.entries(AMOUNTS).find(([, names]) => /** @type {readonly string[]} */ (names).includes(change.subject))?.[0];
    if (["less", "more", "without_resource"].includes(change.kind) && field !== undefined && change.after != null) changed[field] = change.after;
    else if (change.kind === "fewer_members" && change.after != null) changed["count"] = change.after;
    else if (change.kind === "without_zone") changed["zone"] = "";
    else return null;
  }
  return changed;
}

/** @param {Api.ExplanationDetail} explanation */
function drawFunnel(explanation) {
  const all = Math.max(1, explanation.hosts_total);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="What each constraint left"><table class="funnel"><caption class="hidden">What each constraint left</caption>
    <thead><tr><th scope="col">Constraint</th><th scope="col">Asked for</th><th scope="col" class="number">Removed</th><th scope="col" class="number">Left</th><th scope="col" class="wide">of ${count(explanation.hosts_total, "host")}</th></tr></thead>
    <tbody>${explanation.steps.map((step) => html`<tr class=${step.removed > 0 ? "removes" : ""}>
      <th scope="row">${step.constraint}</th>
      <td>${step.asked}${step.nearest ? html`<div class="quiet">${step.nearest}</div>` : nothing}
        ${step.hosts.length === 0 ? nothing : html`<details><summary>which hosts</summary><p class="list">${step.hosts.map((host) => html`${link("host", host)} `)}${step.removed > step.hosts.length ? html`<span class="quiet">and ${formatNumber(step.removed - step.hosts.length)} more</span>` : nothing}</p></details>`}
        ${step.pools.map((pool) => html`<div class="quiet">${pool.pool} has ${formatNumber(pool.free)} ${pool.resource_class} free of ${formatNumber(pool.capacity)}</div>`)}</td>
      <td class="number">${step.removed === 0 ? "" : formatNumber(step.removed)}</td>
      <td class="number">${formatNumber(step.left)}</td>
      <td class="wide"><svg class="left" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect class="all" width="100" height="8"></rect><rect class="some" width=${(step.left / all) * 100} height="8"></rect></svg></td>
    </tr>`)}</tbody></table></div>`;
}

/** @param {Api.HostExplanation[]} hosts */
function drawHosts(hosts) {
  return html`<ul class="nearest">${hosts.slice(0, HOSTS_SHOWN).map((host) => html`<li>
    <h3>${host.host_uuid === null ? host.host : html`<a href=${linkTo("host", host.host_uuid)}>${host.host}</a>`} ${host.fits ? chip("good", "fits") : chip("bad", "does not fit")}</h3>
    ${host.refused === null ? nothing : refusalOf(new Error(host.refused))}
    <ul>${host.checks.filter((check) => !check.ok).map((check) => html`<li>${check.constraint}: asked ${check.asked}, found ${check.found}</li>`)}</ul>
  </li>`)}</ul>`;
}
