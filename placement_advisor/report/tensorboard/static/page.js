// What is shown of an analysis, whoever is asked for it: TensorBoard, or the file that it stands in.
import { activityTable } from './activities.js';
import { breakEven } from './break_even.js';
import { candidateTable } from './candidates.js';
import { copyTables } from './copies.js';
import { el, list } from './dom.js';
import { findingList } from './findings.js';
import { NOTHING_OF_IT, formatBytes } from './format.js';
import { Layers } from './layers.js';
import { scalingTable } from './scaling.js';
import { howToSplit } from './split.js';
import { Timeline } from './timeline.js';

// Pixels for each of the page, on paper.
const PAPER_RATIO = 3;
// Sections that only some analyses have, with what their content is made of and by.
const SOME = [
  ['how', (how) => how.title, howToSplit],
  ['break_even', () => 'Break-even', breakEven],
  ['scaling', () => 'Scaling', scalingTable],
];

// `shown` and `details` say of what version the overview and the candidate's details are there.
const state = { runs: [], run: null, shown: null, overview: null, chosen: null, details: null };
const parts = {};
const kept = new Map();
let source = null;

/**
 * Adds the page, still empty. `ask` is called with a route and a query; it returns what that
 * answers, null if there is nothing, and what is to be said of it.
 */
export function addPage(ask, { hasOneRun = false } = {}) {
  source = ask;
  parts.timeline = new Timeline();
  parts.layers = new Layers();
  parts.select = el('select', { id: 'run', onchange: (event) => openRun(event.target.value) });
  parts.notice = el('p', { class: 'failure', role: 'status' });
  parts.headline = el('p', { class: 'headline', role: 'status' });
  for (const name of ['verdict', 'some', 'copies', 'activities', 'findings']) parts[name] = el('div');
  parts.candidates = el('div', { class: 'wide' });
  parts.rationale = el('p', { class: 'hint' });
  parts.content = el(
    'div',
    { hidden: true },
    parts.verdict,
    section('Candidates', parts.candidates, parts.rationale),
    section('Timeline', parts.timeline.element),
    section('Layers', parts.layers.element),
    section('Copies', parts.copies),
    section('Activities', parts.activities),
    section('Findings', parts.findings),
    parts.some,
  );
  const header = el(
    'header',
    { hidden: hasOneRun },
    el('label', { for: 'run' }, 'Analysis'),
    parts.select,
  );
  document.documentElement.lang = 'en';
  document.body.append(el('main', {}, header, parts.notice, parts.headline, parts.content));
}

/** Draws the canvases anew, with the colours and the width that they have now. */
export const redraw = () => canvases().forEach((canvas) => canvas.redraw());

/** The same before this function returns, sharp enough to be printed. */
export const drawForPaper = () => canvases().forEach((canvas) => canvas.paint(PAPER_RATIO));

const canvases = () => [parts.timeline.canvas, parts.layers.canvas];

/** Returns whether the analysis that is shown goes on. */
export const isRunning = () => Boolean(state.run?.running);

const section = (name, ...content) =>
  el('section', { 'aria-label': name }, el('h2', {}, name), ...content);

/** Shows what is new. */
export async function refresh() {
  const runs = await load('runs');
  if (runs === null) return;
  state.runs = runs;
  state.run = sameRun(state.run) ?? newest(runs);
  showRuns();
  if (!state.run) showNothing();
  else if (version(state.run) !== state.shown) await showRun();
  else await showDetails();
}

const version = (run) => `${run.name} ${run.changed}`;

function showNothing() {
  Object.assign(state, { shown: null, overview: null, chosen: null, details: null });
  parts.content.hidden = true;
  parts.headline.textContent = 'There is no analysis in the log directory yet.';
}

/** Returns the run that was shown, under the name that it has once it is complete. */
function sameRun(before) {
  const named = (name) => state.runs.find((run) => run.name === name);
  return before && (named(before.name) ?? named(before.name.replace(/ \(running\)$/, '')));
}

const newest = (runs) =>
  runs.toSorted((one, other) => Number(BigInt(other.changed) - BigInt(one.changed)))[0] ?? null;

/** Shows another run; if it cannot be loaded, the one before stays. */
async function openRun(name) {
  const { run, chosen } = state;
  const opened = state.runs.find((each) => each.name === name);
  Object.assign(state, { run: opened, chosen: null });
  await showRun();
  if (state.run === opened && state.shown !== version(opened)) {
    Object.assign(state, { run, chosen });
    showRuns();
  }
}

async function showRun() {
  const { run } = state;
  const overview = await loadOnce(run, 'overview');
  if (overview === null || run.name !== state.run?.name) return;
  Object.assign(state, { overview, shown: version(run) });
  const { candidates, verdict } = overview;
  if (!candidates.some((each) => each.name === state.chosen)) {
    const shown = candidates.find((each) => each.name === verdict?.candidate) ?? candidates[0];
    state.chosen = shown?.name ?? null;
  }
  parts.content.hidden = false;
  showVerdict();
  if (parts.layers.takeGraph(overview.graph)) state.details = null;
  parts.findings.replaceChildren(
    verdict ? findingList(overview.findings, overview.no_findings) : el('p', {}, 'Not yet known.'),
  );
  showCandidates();
  showSome();
  await showDetails();
}

function showSome() {
  const { overview } = state;
  const there = SOME.filter(([name]) => overview[name]);
  parts.some.replaceChildren(
    ...there.map(([name, title, content]) => section(title(overview[name]), content(overview[name]))),
  );
}

async function choose(name) {
  state.chosen = name;
  await showDetails();
}

/** Shows the details of the chosen candidate, unless they are there. */
async function showDetails() {
  const { run, overview, chosen } = state;
  const candidate = overview.candidates.find((each) => each.name === chosen);
  parts.rationale.textContent = candidate ? `${chosen}: ${candidate.rationale}` : '';
  // While it runs, the overview changes after every round, and details when there is more of them.
  const known = run.running ? candidate?.details : run.changed;
  const key = `${run.name} ${chosen} ${known}`;
  if (!candidate || key === state.details) return;
  const details = candidate.details
    ? await loadOnce(run, 'details', { candidate: chosen })
    : null;
  if (chosen !== state.chosen || run.name !== state.run?.name) return;
  // What could not be loaded is asked for again.
  state.details = details || !candidate.details ? key : null;
  const shown = details ?? { layers: null, cuts: null, lanes: [], timelines: {} };
  parts.timeline.show(shown, overview.devices);
  parts.layers.showCandidate(shown, overview, candidate.samples);
  parts.copies.replaceChildren(
    details ? copyTables(details, overview.devices) : el('p', {}, NOTHING_OF_IT),
  );
  const { activities } = shown;
  parts.activities.replaceChildren(
    activities ? activityTable(activities) : el('p', {}, 'No profile of it is kept here.'),
  );
}

function showRuns() {
  const names = state.runs.map((run) => run.name);
  const shown = [...parts.select.options].map((option) => option.value);
  if (names.join('\n') !== shown.join('\n')) {
    parts.select.replaceChildren(...names.map((name) => el('option', { value: name }, name)));
  }
  parts.select.value = state.run?.name ?? '';
}

function showVerdict() {
  const { doing, verdict, model, testbed, left_out: leftOut, warnings } = state.overview;
  const batch = model.batch_size === null ? '' : `, batch of ${model.batch_size}`;
  const facts = `${model.path}: ${model.name} (${model.mode}${batch}), ${model.ops} ops, ${formatBytes(model.parameter_bytes)} of parameters`;
  parts.headline.textContent = verdict?.headline ?? `Running: ${doing}`;
  parts.verdict.replaceChildren(
    el('p', { class: 'hint' }, testbed ? `${facts}; ${testbed}` : facts),
    leftOut ? el('p', { class: 'hint' }, leftOut) : '',
    verdict ? list(verdict.reasons) : '',
    verdict?.others.length
      ? el('details', {}, el('summary', {}, 'The other candidates'), list(verdict.others))
      : '',
    warnings.length ? el('div', { class: 'warnings' }, el('b', {}, 'Warnings'), list(warnings)) : '',
  );
}

function showCandidates() {
  const { overview, chosen } = state;
  const hadFocus = parts.candidates.contains(document.activeElement);
  parts.candidates.replaceChildren(
    overview.candidates.length
      ? candidateTable(overview, chosen, choose)
      : el('p', {}, 'Not yet known.'),
  );
  if (hadFocus) parts.candidates.querySelector('input:checked')?.focus();
}

/**
 * Returns what a route answers for a run. That of a complete one is kept: to compare is to go back
 * and forth.
 */
async function loadOnce(run, route, query = {}) {
  const key = `${version(run)} ${route} ${query.candidate}`;
  const answer = kept.get(key) ?? (await load(route, { run: run.name, ...query }));
  if (answer !== null && !run.running) kept.set(key, answer);
  return answer;
}

/** Returns what the source answers, null if there is nothing; shows what is to be said of it. */
async function load(route, query = {}) {
  const { content, notice } = await source(route, query);
  parts.notice.textContent = notice;
  return content;
}
