// What is shown of an analysis, whoever is asked for it: TensorBoard, or the file that it stands in.
import { comparison, figureTable } from './candidates.js';
import { elements, findingList } from './document.js';
import { el, list } from './dom.js';
import { NOTHING_OF_IT } from './format.js';
import { Layers } from './layers.js';
import { Timeline } from './timeline.js';

// Pixels for each of the page, on paper.
const PAPER_RATIO = 3;
// Version of the files that are shown.
const SCHEMA_VERSION = 3;
// Of a candidate of which nothing is known.
const NO_DETAILS = {
  layers: null,
  cuts: null,
  copies: [{ text: NOTHING_OF_IT }],
  tensors: [],
  activities: [],
  lanes: [],
  timelines: [],
};

// `shown` and `details` say of what version the overview and the candidate's details are there.
const state = { runs: [], run: null, shown: null, overview: null, chosen: null, details: null };
const parts = {};
const kept = new Map();
let source = null;
let isFile = false;

/**
 * Adds the page, still empty. `ask` is called with a route and a query; it returns what that
 * answers, null if there is nothing, and what is to be said of it.
 */
export function addPage(ask, { hasOneRun = false, date = null } = {}) {
  source = ask;
  isFile = hasOneRun;
  parts.date = date;
  parts.timeline = new Timeline();
  parts.layers = new Layers();
  parts.select = el('select', { id: 'run', onchange: (event) => openRun(event.target.value) });
  parts.notice = el('p', { class: 'failure', role: 'status' });
  parts.name = el('h1');
  parts.facts = el('dl', { class: 'facts' });
  parts.answer = el('p', { class: 'answer' });
  parts.headline = el('p', { class: 'headline', role: 'status' });
  parts.actions = el('ol', { class: 'actions' });
  for (const name of ['verdict', 'some', 'findings', 'candidates', 'figures']) parts[name] = el('div');
  for (const name of ['copies', 'activities']) parts[name] = el('div', { class: name });
  parts.rationale = el('p', { class: 'hint' });
  parts.content = el(
    'div',
    { hidden: true },
    el(
      'div',
      { class: 'sides' },
      section('Candidates', parts.candidates, parts.rationale),
      section('Timeline', parts.timeline.element),
    ),
    parts.some,
    folded('Findings', parts.findings),
    folded('Figures', parts.figures),
    folded('Layers', parts.layers.element),
    folded('Copies', parts.copies),
    folded('Activities', parts.activities),
  );
  const title = el('div', { class: 'title' }, parts.name, parts.facts);
  const card = el('div', { class: 'card' }, parts.answer, parts.headline, parts.actions, parts.verdict);
  const header = el(
    'header',
    { hidden: hasOneRun },
    el('label', { for: 'run' }, 'Analysis'),
    parts.select,
  );
  document.documentElement.lang = 'en';
  document.body.append(el('main', {}, header, parts.notice, title, card, parts.content));
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

/** Returns a section of which the file shows the title alone until it is asked for more. */
const folded = (name, ...content) =>
  el(
    'section',
    { 'aria-label': name },
    el('details', { open: !isFile }, el('summary', {}, el('h2', {}, name)), ...content),
  );

/** Shows what is new. */
export async function refresh() {
  const runs = await load('runs');
  if (runs === null) return;
  state.runs = runs;
  state.run = sameRun(state.run) ?? newest(runs);
  showRuns();
  if (!state.run) showNothing('There is no analysis in the log directory yet.');
  else if (version(state.run) !== state.shown) await showRun();
  else await showDetails();
}

const version = (run) => `${run.name} ${run.changed}`;

function showNothing(why) {
  Object.assign(state, { shown: null, overview: null, chosen: null, details: null });
  parts.content.hidden = true;
  for (const name of ['name', 'facts', 'answer', 'actions', 'verdict']) parts[name].replaceChildren();
  parts.headline.textContent = why;
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
  if (overview.schema_version !== SCHEMA_VERSION) {
    showNothing('Another version of placement-advisor wrote this analysis: analyze the model again.');
    state.shown = version(run);
    return;
  }
  Object.assign(state, { overview, shown: version(run) });
  const { candidates, verdict, warnings = [], findings = [], sections, answer = '', actions = [] } = overview;
  const facts = [...overview.facts, ...(parts.date ? [['Date', parts.date]] : [])];
  if (!candidates.some((each) => each.name === state.chosen)) {
    const shown = candidates.find((each) => each.name === overview.chosen) ?? candidates[0];
    state.chosen = shown?.name ?? null;
  }
  parts.content.hidden = false;
  parts.name.textContent = overview.name;
  parts.facts.replaceChildren(
    ...facts.map(([label, text]) => el('div', {}, el('dt', {}, label), el('dd', {}, text))),
  );
  parts.answer.textContent = answer;
  parts.headline.textContent = overview.headline;
  parts.actions.replaceChildren(...actions.map((text) => el('li', {}, text)));
  parts.verdict.replaceChildren(
    ...elements(verdict),
    warnings.length ? el('div', { class: 'warnings' }, el('b', {}, 'Warnings'), list(warnings)) : '',
  );
  if (parts.layers.takeGraph(overview.graph)) state.details = null;
  parts.findings.replaceChildren(...findingList(findings, overview.no_findings));
  showCandidates();
  parts.some.replaceChildren(
    ...sections.map(({ title, parts: inner }) =>
      (inner.some((each) => each.charts) ? section : folded)(title, ...elements(inner)),
    ),
  );
  await showDetails();
}

async function choose(name) {
  state.chosen = name;
  await showDetails();
}

/** Shows the details of the chosen candidate, unless they are there. */
async function showDetails() {
  const { run, overview, chosen } = state;
  const candidate = overview?.candidates.find((each) => each.name === chosen);
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
  const shown = details ?? NO_DETAILS;
  parts.timeline.show(shown, overview.devices);
  parts.layers.showCandidate(shown, overview, candidate.samples);
  parts.copies.replaceChildren(...elements([...shown.copies, ...shown.tensors]));
  parts.activities.replaceChildren(
    ...(shown.activities.length
      ? elements(shown.activities)
      : [el('p', {}, 'No profile of it is kept here.')]),
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

function showCandidates() {
  const { overview, chosen } = state;
  const hadFocus = parts.candidates.contains(document.activeElement);
  parts.candidates.replaceChildren(
    overview.candidates.length
      ? comparison(overview, chosen, choose)
      : el('p', {}, 'Not yet known.'),
  );
  parts.figures.replaceChildren(figureTable(overview));
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
