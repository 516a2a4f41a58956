import { Canvas, fitted } from './canvas.js';
import { el } from './dom.js';
import { formatNs } from './format.js';
import { color, deviceColor } from './theme.js';

const LANE = 24;
const HEAD = 26;
const AXIS = 26;
const LABELS = 170;
const NARROWEST_NS = 100;
const HELP =
  'Drag or ← → to move, + − or Ctrl and wheel to zoom, 0 for the whole step, ' +
  '↑ ↓ for the lane, n and p for the next and previous bar.';

/** One step over time: a lane per device and link, simulated above measured. */
export class Timeline {
  constructor() {
    this.canvas = new Canvas('Timeline of a step', (...where) => this.draw(...where));
    this.told = el('p', { class: 'told', 'aria-live': 'polite' });
    this.element = el(
      'div',
      {},
      el(
        'div',
        { class: 'tools' },
        button('+', 'Zoom in', () => this.zoom(0.5)),
        button('−', 'Zoom out', () => this.zoom(2)),
        button('0', 'Show the whole step', () => this.whole()),
        el('span', { class: 'hint' }, HELP),
      ),
      this.canvas.element,
      this.told,
    );
    this.rows = [];
    this.chosen = null;
    this.canvas.onPointer({
      over: (x, y) => this.tell(this.barAt(x, y)),
      drag: (dx) => this.move((-dx / this.room) * (this.to - this.from)),
      click: (x, y) => this.choose(this.barAt(x, y)),
    });
    this.canvas.onZoom((factor, x) => this.zoom(factor, (x - LABELS) / this.room));
    this.canvas.onKey({
      ArrowLeft: () => this.move((this.from - this.to) / 5),
      ArrowRight: () => this.move((this.to - this.from) / 5),
      ArrowUp: () => this.chooseLane(-1),
      ArrowDown: () => this.chooseLane(1),
      '+': () => this.zoom(0.5),
      '=': () => this.zoom(0.5),
      '-': () => this.zoom(2),
      0: () => this.whole(),
      n: () => this.chooseNext(1),
      p: () => this.chooseNext(-1),
    });
  }

  get room() {
    return Math.max(1, this.canvas.width - LABELS - 8);
  }

  show(details, devices) {
    this.rows = [];
    this.steps = [];
    this.chosen = null;
    this.end = 1;
    let top = 0;
    for (const [which, timeline] of Object.entries(details.timelines)) {
      if (timeline === null) continue;
      const first = top;
      this.rows.push({ heading: `${which}, step ${formatNs(timeline.step_ns)}`, top });
      top += HEAD;
      const byLane = details.lanes.map(() => []);
      for (const [lane, name, start, end] of timeline.spans) {
        byLane[lane].push({ name, start, end });
        this.end = Math.max(this.end, end);
      }
      details.lanes.forEach((name, lane) => {
        const isCopy = timeline.copies.includes(lane);
        const device = devices.indexOf(name);
        const bars = byLane[lane];
        if (!bars.length && device < 0) return;
        this.rows.push({ which, name, top, bars, isCopy, device, names: timeline.names });
        top += LANE;
      });
      this.steps.push({ at: timeline.step_ns, top: first + HEAD, bottom: top });
      this.end = Math.max(this.end, timeline.step_ns ?? 0);
    }
    this.canvas.height = top ? top + AXIS : 0;
    this.element.hidden = !top;
    this.told.textContent = '';
    this.whole();
  }

  whole() {
    [this.from, this.to] = [0, this.end * 1.01];
    this.canvas.redraw();
  }

  zoom(factor, at = 0.5) {
    const whole = this.end * 1.01;
    const span = this.to - this.from;
    const width = Math.min(whole, Math.max(NARROWEST_NS, span * factor));
    const from = this.from + (span - width) * Math.min(1, Math.max(0, at));
    this.from = Math.min(Math.max(0, from), whole - width);
    this.to = this.from + width;
    this.canvas.redraw();
  }

  move(by) {
    const shift = Math.min(Math.max(by, -this.from), this.end * 1.01 - this.to);
    this.from += shift;
    this.to += shift;
    this.canvas.redraw();
  }

  barAt(x, y) {
    const row = this.rows.find((each) => each.bars && y >= each.top && y < each.top + LANE);
    if (!row || x < LABELS) return null;
    const pixel = (this.to - this.from) / this.room;
    const at = this.from + (x - LABELS) * pixel;
    const bar = row.bars.find((each) => each.start - pixel <= at && at <= each.end + pixel);
    return bar ? { row, bar } : null;
  }

  tell(found) {
    const shown = found ?? this.chosen;
    this.told.textContent = shown ? words(shown) : '';
  }

  choose(found) {
    this.chosen = found;
    this.tell(found);
    this.canvas.redraw();
  }

  chooseLane(by) {
    const lanes = this.rows.filter((row) => row.bars?.length);
    if (!lanes.length) return;
    const place = this.chosen ? lanes.indexOf(this.chosen.row) + by : 0;
    const row = lanes[Math.min(Math.max(place, 0), lanes.length - 1)];
    const middle = (this.from + this.to) / 2;
    this.choose({ row, bar: row.bars.find((bar) => bar.end >= middle) ?? row.bars.at(-1) });
  }

  chooseNext(by) {
    if (!this.chosen) {
      this.chooseLane(0);
      return;
    }
    const { row, bar } = this.chosen;
    const next = row.bars[row.bars.indexOf(bar) + by];
    if (!next) return;
    this.choose({ row, bar: next });
    if (next.start < this.from || next.end > this.to) {
      this.move((next.start + next.end) / 2 - (this.from + this.to) / 2);
    }
  }

  draw(context, width, height) {
    context.fillStyle = color('background');
    context.fillRect(0, 0, width, height);
    context.font = `12px ${color('font')}`;
    context.textBaseline = 'middle';
    this.drawAxis(context, height);
    for (const row of this.rows) {
      if (row.heading) {
        context.fillStyle = color('ink');
        context.fillText(row.heading, 8, row.top + HEAD / 2 + 2);
      } else {
        this.drawLane(context, row, width);
      }
    }
    this.drawStepEnds(context);
  }

  x(time) {
    return LABELS + ((time - this.from) / (this.to - this.from)) * this.room;
  }

  drawAxis(context, height) {
    const wanted = (this.to - this.from) / Math.max(2, this.room / 110);
    const power = 10 ** Math.floor(Math.log10(wanted));
    const step = power * [1, 2, 5, 10].find((times) => power * times >= wanted);
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
      const x = Math.round(this.x(at)) + 0.5;
      context.fillStyle = color('line');
      context.fillRect(x, 0, 1, height - AXIS);
      context.fillStyle = color('faint');
      context.fillText(at ? formatNs(at) : '0', x + 3, height - AXIS / 2);
    }
  }

  drawLane(context, row, width) {
    context.fillStyle = color('band');
    context.fillRect(LABELS, row.top + 2, width - LABELS - 8, LANE - 4);
    context.fillStyle = color('ink');
    context.fillText(fitted(context, row.name, LABELS - 24), 16, row.top + LANE / 2);
    const fill = row.isCopy ? color('copy') : deviceColor(row.device < 0 ? null : row.device);
    const text = row.isCopy ? color('on-copy') : color('on-device');
    context.save();
    context.beginPath();
    context.rect(LABELS, row.top, this.room, LANE);
    context.clip();
    // What no pixel can show apart is drawn once.
    let drawnTo = -Infinity;
    for (const bar of row.bars) {
      if (bar.end < this.from || bar.start > this.to) continue;
      const left = this.x(bar.start);
      const right = Math.max(this.x(bar.end), left + 1);
      if (right <= drawnTo) continue;
      drawnTo = right;
      context.fillStyle = fill;
      context.fillRect(left, row.top + 3, right - left, LANE - 6);
      if (right - left > 4) {
        context.fillStyle = color('background');
        context.fillRect(left, row.top + 3, 0.6, LANE - 6);
      }
      if (right - left > 36) {
        context.fillStyle = text;
        const inside = Math.max(left, LABELS);
        const name = shortName(row.names[bar.name]);
        context.fillText(fitted(context, name, right - inside - 8), inside + 4, row.top + LANE / 2);
      }
    }
    if (this.chosen?.row === row) this.drawChosen(context, row);
    context.restore();
  }

  drawChosen(context, row) {
    const { start, end } = this.chosen.bar;
    const left = this.x(start);
    context.strokeStyle = color('ink');
    context.lineWidth = 2;
    context.strokeRect(left, row.top + 2, Math.max(2, this.x(end) - left), LANE - 4);
  }

  drawStepEnds(context) {
    context.strokeStyle = color('ink');
    context.lineWidth = 1.2;
    context.setLineDash([5, 4]);
    for (const { at, top, bottom } of this.steps) {
      if (at === null || at < this.from || at > this.to) continue;
      context.beginPath();
      context.moveTo(this.x(at), top);
      context.lineTo(this.x(at), bottom);
      context.stroke();
    }
    context.setLineDash([]);
  }
}

/** Returns the last part of a path. */
export const shortName = (name) => name.slice(name.lastIndexOf('/') + 1);

function words({ row, bar }) {
  const from = formatNs(bar.start);
  return `${row.which}, ${row.name}: ${row.names[bar.name]}, ${formatNs(bar.end - bar.start)} from ${from}`;
}

/** Returns a button with a sign, and in words what it does. */
export function button(text, label, onclick) {
  return el('button', { type: 'button', 'aria-label': label, title: label, onclick }, text);
}
