import { fitted } from './canvas.js';
import { el } from './dom.js';
import { formatBytes, formatFlops, shortName } from './format.js';
import { Panel } from './panel.js';
import { color, deviceColor, deviceColorName } from './theme.js';

const HEIGHT = 460;
const MARGIN = 24;
const READABLE = 60;
const LARGEST = 120;
const HEAD = 7;
const HELP =
  'Drag or arrow keys to move, + − or Ctrl and wheel to zoom, 0 for all, ' +
  'n and p for the next and previous layer.';

/** The layers of the forward pass in the colours of their devices, with what crosses between. */
export class Layers extends Panel {
  constructor() {
    const legend = el('div', { class: 'legend' });
    const note = el('p', { class: 'hint' });
    super('Layers by device', {
      all: 'All layers',
      help: HELP,
      above: [legend, note],
      keys: {
        ArrowLeft: () => this.drag(80, 0),
        ArrowRight: () => this.drag(-80, 0),
        ArrowUp: () => this.drag(0, 80),
        ArrowDown: () => this.drag(0, -80),
      },
    });
    [this.legend, this.note] = [legend, note];
    this.search = el('input', {
      type: 'search',
      placeholder: 'Find a layer',
      'aria-label': 'Find a layer',
      oninput: () => this.find(0),
      onkeydown: (event) => event.key === 'Enter' && this.find(1),
    });
    this.tools.prepend(this.search);
    this.canvas.height = HEIGHT;
    this.graph = { layers: [], flows: [], box: [1, 1] };
    this.deviceOf = [];
    this.cuts = new Map();
    // Whether it was said that no layer is called so.
    this.isMissing = false;
    // Scale and shift: chosen, null for all layers whatever the width, and as drawn last.
    this.view = null;
    this.shown = { scale: 1, x: 0, y: 0 };
  }

  /**
   * Takes a graph, whose layers stand where they do for any candidate; returns whether it is another.
   * It is drawn with a candidate: drawn twice, a thousand layers take their time.
   */
  takeGraph(graph) {
    if (JSON.stringify(graph) === JSON.stringify(this.graph)) return false;
    this.graph = graph;
    this.deviceOf = [];
    this.cuts = new Map();
    this.chosen = null;
    this.view = null;
    this.sayNothing(graph.layers.length ? null : 'Its ops belong to no layers.');
    return true;
  }

  /** Colours it for a candidate; `samples` are given where the batch is split. */
  showCandidate(details, { devices, hosts }, samples) {
    this.devices = devices;
    this.deviceOf = details.layers ?? [];
    this.cuts = new Map(details.cuts ?? []);
    const used = new Set(this.deviceOf);
    const named = (names) =>
      devices.flatMap((name, number) =>
        used.has(number) && names.includes(name)
          ? [el('span', {}, el('i', { class: `swatch ${deviceColorName(number)}`, 'data-number': number }), name)]
          : [],
      );
    this.legend.replaceChildren(
      ...(Object.keys(hosts).length
        ? Object.entries(hosts).map(([host, names]) =>
            el('span', { class: 'host' }, el('b', {}, host), ...named(names)),
          )
        : named(devices)),
    );
    this.note.textContent = this.noteOf(details, samples);
    this.tell(null);
    this.canvas.redraw();
  }

  noteOf(details, samples) {
    if (samples) return `Every device has all layers, for ${samples.join(' + ')} samples.`;
    if (!details.layers) return 'On which devices it has them is not known.';
    if (!this.cuts.size) return 'No forward tensor crosses to another device.';
    return `${this.cuts.size} of ${this.graph.flows.length} arrows cross to another device.`;
  }

  whole() {
    this.view = null;
    this.canvas.redraw();
  }

  /** Returns the scale and shift that show all layers. */
  fit(width, height) {
    const [boxWidth, boxHeight] = this.graph.box;
    const xs = this.graph.layers.map((layer) => layer.at[0]);
    const ys = this.graph.layers.map((layer) => layer.at[1]);
    const [left, right] = [Math.min(...xs) - boxWidth / 2, Math.max(...xs) + boxWidth / 2];
    const [top, bottom] = [Math.min(...ys) - boxHeight / 2, Math.max(...ys) + boxHeight / 2];
    const scale = Math.min(
      (width - 2 * MARGIN) / (right - left),
      (height - 2 * MARGIN) / (bottom - top),
      LARGEST,
    );
    return {
      scale,
      x: width / 2 - ((left + right) / 2) * scale,
      y: height / 2 - ((top + bottom) / 2) * scale,
    };
  }

  zoom(factor, x = this.canvas.width / 2, y = this.canvas.height / 2) {
    const view = this.view ?? this.shown;
    const scale = Math.min(LARGEST * 2, Math.max(0.5, view.scale / factor));
    this.view = {
      scale,
      x: x - ((x - view.x) * scale) / view.scale,
      y: y - ((y - view.y) * scale) / view.scale,
    };
    this.canvas.redraw();
  }

  drag(dx, dy) {
    const { scale, x, y } = this.view ?? this.shown;
    this.view = { scale, x: x + dx, y: y + dy };
    this.canvas.redraw();
  }

  point([x, y]) {
    return [this.shown.x + x * this.shown.scale, this.shown.y + y * this.shown.scale];
  }

  at(x, y) {
    const [halfX, halfY] = this.graph.box.map((side) => (side * this.shown.scale) / 2);
    const found = this.graph.layers.findIndex((layer) => {
      const [cx, cy] = this.point(layer.at);
      return Math.abs(cx - x) <= halfX && Math.abs(cy - y) <= halfY;
    });
    return found < 0 ? null : found;
  }

  words(number) {
    const layer = this.graph.layers[number];
    const device = this.devices?.[this.deviceOf[number]];
    const parts = [layer.name, device, `${layer.ops} ops`, formatFlops(layer.flops)];
    for (const [flow, bytes] of this.cuts) {
      const { source, target } = this.graph.flows[flow];
      if (source === number) {
        parts.push(`${formatBytes(bytes)} cross to ${this.graph.layers[target].name}`);
      } else if (target === number) {
        parts.push(`${formatBytes(bytes)} cross from ${this.graph.layers[source].name}`);
      }
    }
    return parts.filter(Boolean).join(' · ');
  }

  chooseNext(by) {
    const count = this.graph.layers.length;
    this.goTo(this.chosen === null ? 0 : (this.chosen + by + count) % count);
  }

  find(skip) {
    const isWanted = pattern(this.search.value.trim().toLowerCase());
    const { layers } = this.graph;
    if (!isWanted) {
      if (this.isMissing) this.tell(null);
      this.isMissing = false;
      return;
    }
    const start = this.chosen === null ? 0 : this.chosen + skip;
    for (let i = 0; i < layers.length; i += 1) {
      const number = (start + i) % layers.length;
      if (isWanted(layers[number].name.toLowerCase())) {
        this.isMissing = false;
        this.goTo(number);
        return;
      }
    }
    this.isMissing = true;
    this.told.textContent = 'No layer is called so.';
  }

  /** Chooses a layer and moves it to the middle, large enough to read. */
  goTo(number) {
    const scale = Math.max((this.view ?? this.shown).scale, READABLE);
    const [x, y] = this.graph.layers[number].at;
    this.view = {
      scale,
      x: this.canvas.width / 2 - x * scale,
      y: this.canvas.height / 2 - y * scale,
    };
    this.choose(number);
  }

  draw(context, width, height) {
    context.fillStyle = color('background');
    context.fillRect(0, 0, width, height);
    if (!this.graph.layers.length) return;
    this.shown = this.view ?? this.fit(width, height);
    context.textBaseline = 'middle';
    const colors = { line: color('flow'), cut: color('copy'), ink: color('ink') };
    this.graph.flows.forEach((flow, number) => {
      if (!this.cuts.has(number)) this.drawFlow(context, flow, colors.line, 1);
    });
    for (const number of this.cuts.keys()) {
      this.drawFlow(context, this.graph.flows[number], colors.cut, 2.5);
    }
    this.drawBoxes(context, width, height);
    if (this.shown.scale >= READABLE * 0.6) this.drawCutBytes(context, colors);
  }

  drawFlow(context, flow, style, thickness) {
    context.strokeStyle = style;
    context.lineWidth = thickness;
    context.beginPath();
    for (const stop of flow.route) context.lineTo(...this.point(stop));
    context.stroke();
    if (this.shown.scale >= READABLE * 0.6) this.drawHead(context, flow, style);
  }

  /** Draws the head of an arrow where it comes to the box that it leads to. */
  drawHead(context, flow, style) {
    const [[fromX, fromY], [toX, toY]] = flow.route.slice(-2).map((stop) => this.point(stop));
    const [dx, dy] = [fromX - toX, fromY - toY];
    const [halfX, halfY] = this.graph.box.map((side) => (side * this.shown.scale) / 2);
    const share = Math.min(halfX / Math.abs(dx), halfY / Math.abs(dy));
    if (share >= 1) return;
    context.save();
    context.translate(toX + dx * share, toY + dy * share);
    context.rotate(Math.atan2(dy, dx));
    context.fillStyle = style;
    context.beginPath();
    context.moveTo(0, 0);
    context.lineTo(HEAD, HEAD / 2);
    context.lineTo(HEAD, -HEAD / 2);
    context.fill();
    context.restore();
  }

  drawBoxes(context, width, height) {
    const [boxWidth, boxHeight] = this.graph.box.map((side) => side * this.shown.scale);
    const fills = (this.devices ?? []).map((_, number) => deviceColor(number));
    const noDevice = deviceColor(null);
    const hasNames = boxWidth > 40;
    context.font = `${Math.min(13, boxHeight * 0.55)}px ${color('font')}`;
    this.graph.layers.forEach((layer, number) => {
      const [x, y] = this.point(layer.at);
      const [left, top] = [x - boxWidth / 2, y - boxHeight / 2];
      if (left > width || top > height || left + boxWidth < 0 || top + boxHeight < 0) return;
      context.fillStyle = fills[this.deviceOf[number]] ?? noDevice;
      context.fillRect(left, top, boxWidth, boxHeight);
      if (number === this.chosen) {
        context.strokeStyle = color('ink');
        context.lineWidth = 3;
        context.strokeRect(left, top, boxWidth, boxHeight);
      }
      if (hasNames) {
        context.fillStyle = color('on-device');
        const device = this.deviceOf[number] ?? null;
        const mark = device === null ? '' : `${device} · `;
        const room = boxWidth - 10 - context.measureText(mark).width;
        context.fillText(mark + fittedPath(context, layer.name, room), left + 5, y);
      }
    });
  }

  drawCutBytes(context, colors) {
    context.font = `12px ${color('font')}`;
    for (const [number, bytes] of this.cuts) {
      const { route } = this.graph.flows[number];
      const middle = (route.length - 1) / 2;
      const ends = [route[Math.floor(middle)], route[Math.ceil(middle)]];
      const [low, high] = ends[0] === ends[1] ? [route[0], route[1]] : ends;
      const [x, y] = this.point([(low[0] + high[0]) / 2, (low[1] + high[1]) / 2]);
      const text = formatBytes(bytes);
      const { width } = context.measureText(text);
      context.fillStyle = color('background');
      context.fillRect(x + 5, y - 8, width + 4, 16);
      context.fillStyle = colors.ink;
      context.fillText(text, x + 7, y);
    }
  }
}

/** Returns the name of a layer if there is room for it, else the end of its path. */
function fittedPath(context, name, width) {
  const isShort = context.measureText(name).width <= width;
  return isShort ? name : fitted(context, shortName(name), width);
}

/**
 * Returns whether a name is wanted, null if nothing is. Reports shorten names to `user_*`, and to
 * `block_1_* … block_6_*`, of which the first is looked for.
 */
function pattern(wanted) {
  const [first] = wanted.split('…');
  const parts = first.trim().split('*');
  if (parts.length === 1) return parts[0] ? (name) => name.includes(parts[0]) : null;
  const between = parts.map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('.*');
  const whole = new RegExp(`^${between}$`);
  return (name) => whole.test(name);
}
