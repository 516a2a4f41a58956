import { candidateTable } from './candidates.js';
import { copyTables } from './copies.js';
import { el } from './dom.js';
import { findingList } from './findings.js';
import { formatBytes } from './format.js';
import { Layers } from './layers.js';
import { followTheme } from './theme.js';
import { Timeline } from './timeline.js';

const RUNNING_MS = 2_000;
const COMPLETE_MS = 5_000;

const state = { runs: [], run: null, overview: null, chosen: null, details: null };
const parts = {};

/** What TensorBoard calls once its frame for the tab is there. */
export async function render() {
  const styled = style();
  parts.timeline = new Timeline();
  parts.layers = new Layers();
  parts.select = el('select', { id: 'run', onchange: (event) => openRun(event.target.value) });
  for (const name of ['verdict', 'candidates', 'copies', 'findings']) parts[name] = el('div');
  document.body.append(
    el(
      'main',
      {},
      el('header', {}, el('label', { for: 'run' }, 'Analysis'), parts.select),
      parts.verdict,
      section('Candidates', parts.candidates),
      section('Timeline', parts.timeline.element),
      section('Layers', parts.layers.element),
      section('Copies', parts.copies),
      section('Findings', parts.findings),
    ),
  );
  await styled;
  followTheme(() => {
    parts.timeline.canvas.redraw();
    parts.layers.canvas.redraw();
  });
  await follow();
}

/** Loads the style sheet, whose colours the canvases take. */
function style() {
  const href = new URL('style.css', import.meta.url).href;
  return new Promise((onload) => {
    document.head.append(el('link', { rel: 'stylesheet', href, onload }));
  });
}

const section = (name, content) => el('section', { 'aria-label': name }, el('h2', {}, name), content);

/** Shows what is new, and looks again after a while. */
async function follow() {
  try {
    if (!document.hidden) await refresh();
  } finally {
    setTimeout(follow, state.run?.running ? RUNNING_MS : COMPLETE_MS);
  }
}

async function refresh() {
  const runs = await load('runs');
  if (runs === null) return;
  const before = state.run;
  state.runs = runs;
  state.run = sameRun(before) ?? newest(runs);
  showRuns();
  if (state.run && (state.run.name !== before?.name || state.run.changed !== before?.changed)) {
    await showRun();
  } else if (!state.overview) {
    parts.verdict.replaceChildren(el('p', {}, 'There is no analysis in the log directory yet.'));
  }
}

/** Returns the run that was shown, under the name that it has once it is complete. */
function sameRun(before) {
  const named = (name) => state.runs.find((run) => run.name === name);
  return before && (named(before.name) ?? named(before.name.replace(/ \(running\)$/, '')));
}

const newest = (runs) =>
  runs.toSorted((one, other) => Number(BigInt(other.changed) - BigInt(one.changed)))[0] ?? null;

async function openRun(name) {
  state.run = state.runs.find((run) => run.name === name);
  state.chosen = null;
  await showRun();
}

async function showRun() {
  const { run } = state;
  const overview = await load('overview', { run: run.name });
  if (overview === null || run.name !== state.run?.name) return;
  state.overview = overview;
  const { candidates, verdict } = overview;
  if (!candidates.some((each) => each.name === state.chosen)) {
    const shown = candidates.find((each) => each.name === verdict?.candidate) ?? candidates[0];
    state.chosen = shown?.name ?? null;
  }
  showVerdict();
  parts.layers.showGraph(overview.graph);
  parts.findings.replaceChildren(
    overview.verdict ? findingList(overview.findings) : el('p', {}, 'Not yet known.'),
  );
  await showChosen();
}

async function choose(name) {
  state.chosen = name;
  await showChosen();
}

async function showChosen() {
  const { run, overview, chosen } = state;
  showCandidates();
  const candidate = overview.candidates.find((each) => each.name === chosen);
  const version = run.running ? candidate?.details : run.changed;
  const key = `${run.name} ${chosen} ${version}`;
  if (!candidate || key === state.details) return;
  const details = candidate.details
    ? await load('details', { run: run.name, candidate: chosen })
    : null;
  if (chosen !== state.chosen || run.name !== state.run?.name) return;
  state.details = key;
  const shown = details ?? { layers: null, cuts: null, lanes: [], timelines: {} };
  parts.timeline.show(shown, overview.devices);
  parts.layers.showCandidate(shown, overview.devices, candidate.samples);
  parts.copies.replaceChildren(
    details ? copyTables(details, overview.devices) : el('p', {}, candidate.rationale),
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
  const { doing, verdict, model, testbed, warnings } = state.overview;
  const batch = model.batch_size === null ? '' : `, batch of ${model.batch_size}`;
  const facts = `${model.path}: ${model.name} (${model.mode}${batch}), ${model.ops} ops, ${formatBytes(model.parameter_bytes)} of parameters`;
  const list = (texts) => el('ul', {}, ...texts.map((text) => el('li', {}, text)));
  parts.verdict.replaceChildren(
    el('p', { class: 'headline', role: 'status' }, verdict?.headline ?? `Running: ${doing}`),
    el('p', { class: 'hint' }, testbed ? `${facts}; ${testbed}` : facts),
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
      ? candidateTable(overview.candidates, chosen, choose)
      : el('p', {}, 'Not yet known.'),
  );
  if (hadFocus) parts.candidates.querySelector('input:checked')?.focus();
}

/** Returns what a route answers, null if there is nothing, or TensorBoard has been ended. */
async function load(route, query = {}) {
  const answer = await fetch(`./${route}?${new URLSearchParams(query)}`).catch(() => null);
  return answer?.ok ? answer.json() : null;
}
