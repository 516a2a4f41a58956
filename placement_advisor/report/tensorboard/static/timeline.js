import { fitted } from './canvas.js';
import { NOTHING_OF_IT, formatNs, shortName } from './format.js';
import { Panel } from './panel.js';
import { color } from './theme.js';

const LANE = 24;
const HEAD = 26;
const AXIS = 26;
const LABELS = 170;
const LABELS_SHARE = 0.3;
const NAMED = 36;
const NARROWEST_NS = 100;
const HELP =
  'Drag or ← → to move, + − or Ctrl and wheel to zoom, 0 for the whole step, ' +
  '↑ ↓ for the lane, n and p for the next and previous bar.';

/** One step over time: a lane per device and link, simulated above measured. */
export class Timeline extends Panel {
  constructor() {
    super('Timeline of a step', {
      all: 'Whole step',
      help: HELP,
      keys: {
        ArrowLeft: () => this.move((this.from - this.to) / 5),
        ArrowRight: () => this.move((this.to - this.from) / 5),
        ArrowUp: () => this.chooseLane(-1),
        ArrowDown: () => this.chooseLane(1),
      },
    });
    this.rows = [];
  }

  /** Where the bars begin: what is left of it has the names of lanes. */
  get left() {
    return Math.min(LABELS, Math.round(this.canvas.width * LABELS_SHARE));
  }

  get room() {
    return Math.max(1, this.canvas.width - this.left - 8);
  }

  show(details, devices) {
    this.rows = [];
    this.steps = [];
    this.chosen = null;
    this.end = 1;
    let top = 0;
    for (const timeline of details.timelines) {
      const [which] = timeline.heading.split(',');
      const first = top;
      this.rows.push({ heading: timeline.heading, top });
      top += HEAD;
      const byLane = details.lanes.map(() => []);
      for (const [lane, name, start, end] of timeline.spans) {
        byLane[lane].push({ name, start, end });
        this.end = Math.max(this.end, end);
      }
      details.lanes.forEach((name, lane) => {
        const isCopy = timeline.copies.includes(lane);
        const bars = byLane[lane];
        if (!bars.length && !devices.includes(name)) return;
        this.rows.push({ which, name, top, bars, isCopy, names: timeline.names });
        top += LANE;
      });
      this.steps.push({ at: timeline.step_ns, top: first + HEAD, bottom: top });
      this.end = Math.max(this.end, timeline.step_ns);
    }
    this.canvas.height = top ? top + AXIS : 0;
    this.sayNothing(top ? null : details.left_out ?? NOTHING_OF_IT);
    this.tell(null);
    this.whole();
  }

  whole() {
    [this.from, this.to] = [0, this.end * 1.01];
    this.canvas.redraw();
  }

  zoom(factor, x = this.left + this.room / 2) {
    const at = (x - this.left) / this.room;
    const whole = this.end * 1.01;
    const span = this.to - this.from;
    const width = Math.min(whole, Math.max(NARROWEST_NS, span * factor));
    const from = this.from + (span - width) * Math.min(1, Math.max(0, at));
    this.from = Math.min(Math.max(0, from), whole - width);
    this.to = this.from + width;
    this.canvas.redraw();
  }

  drag(dx) {
    this.move((-dx / this.room) * (this.to - this.from));
  }

  move(by) {
    const shift = Math.min(Math.max(by, -this.from), this.end * 1.01 - this.to);
    this.from += shift;
    this.to += shift;
    this.canvas.redraw();
  }

  at(x, y) {
    const row = this.rows.find((each) => each.bars && y >= each.top && y < each.top + LANE);
    if (!row || x < this.left) return null;
    const pixel = (this.to - this.from) / this.room;
    const at = this.from + (x - this.left) * pixel;
    // Of bars one over the other, the one on top.
    const bar = row.bars.findLast((each) => each.start - pixel <= at && at <= each.end + pixel);
    return bar ? { row, bar } : null;
  }

  words({ row, bar }) {
    const time = `${formatNs(bar.end - bar.start)} from ${formatNs(bar.start)}`;
    return `${row.which}, ${row.name}: ${row.names[bar.name]}, ${time}`;
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
        this.drawLane(context, row);
      }
    }
    this.drawStepEnds(context);
  }

  x(time) {
    return this.left + ((time - this.from) / (this.to - this.from)) * this.room;
  }

  drawAxis(context, height) {
    const wanted = (this.to - this.from) / Math.max(2, this.room / 110);
    const power = 10 ** Math.floor(Math.log10(wanted));
    const step = power * [1, 2, 5, 10].find((times) => power * times >= wanted);
    context.save();
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
      const x = Math.round(this.x(at)) + 0.5;
      context.fillStyle = color('line');
      context.fillRect(x, 0, 1, height - AXIS);
      context.fillStyle = color('faint');
      const text = at ? formatNs(at) : '0';
      const fits = x + 3 + context.measureText(text).width <= this.canvas.width;
      context.textAlign = fits ? 'start' : 'end';
      context.fillText(text, fits ? x + 3 : x - 3, height - AXIS / 2);
    }
    context.restore();
  }

  drawLane(context, row) {
    context.fillStyle = color('band');
    context.fillRect(this.left, row.top + 2, this.room, LANE - 4);
    context.fillStyle = color('ink');
    context.fillText(fitted(context, row.name, this.left - 16), 8, row.top + LANE / 2);
    const fill = color(row.isCopy ? 'copy' : 'compute');
    const text = color(row.isCopy ? 'on-copy' : 'on-compute');
    context.save();
    context.beginPath();
    context.rect(this.left, row.top, this.room, LANE);
    context.clip();
    const named = [];
    context.fillStyle = fill;
    for (const { bar, left, right, busy } of this.drawn(row.bars)) {
      const width = Math.max(right - left, 1);
      // What is drawn is as large as its time, however short its bars.
      const high = ((LANE - 6) * busy) / width;
      context.fillRect(left, row.top + LANE - 3 - high, width, high);
      if (width > 4) {
        context.fillStyle = color('background');
        context.fillRect(left, row.top + 3, 0.6, LANE - 6);
        context.fillStyle = fill;
      }
      if (bar && width > NAMED) named.push({ bar, left: Math.max(left, this.left), right });
    }
    context.fillStyle = text;
    named.forEach(({ bar, left, right }, number) => {
      // Bars may lie one over the other: a name ends where that of the next one begins.
      const room = Math.min(right, named[number + 1]?.left ?? Infinity) - left;
      if (room <= NAMED) return;
      const name = fitted(context, shortName(row.names[bar.name]), room - 8);
      context.fillText(name, left + 4, row.top + LANE / 2);
    });
    if (this.chosen?.row === row) this.drawChosen(context, row);
    context.restore();
  }

  /** Returns what to draw of bars, in pixels; tiny ones with less than one between them as one. */
  drawn(bars) {
    const found = [];
    for (const bar of bars) {
      if (bar.end < this.from || bar.start > this.to) continue;
      const [left, right] = [this.x(bar.start), this.x(bar.end)];
      const isTiny = right - left < 2;
      const last = found.at(-1);
      if (last?.isTiny && isTiny && left - last.right < 1) {
        last.busy += Math.max(0, right - Math.max(left, last.right));
        last.right = Math.max(last.right, right);
        last.bar = null;
      } else if (!last || right > last.right) {
        found.push({ bar, left, right, busy: right - left, isTiny });
      }
    }
    return found;
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
      if (at < this.from || at > this.to) continue;
      context.beginPath();
      context.moveTo(this.x(at), top);
      context.lineTo(this.x(at), bottom);
      context.stroke();
    }
    context.setLineDash([]);
  }
}
