// A line over two logarithmic axes, with the level above which a split wins.
const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [320, 180, 40, 24, 18];
const [LEAST, MOST] = [0.33, 10];

/** Returns a figure of the best split's speed-up along an axis. */
export function chart({ title, level, points, here, wins }) {
  const values = points.map(([value]) => Math.log(value));
  const [from, to] = [Math.min(...values), Math.max(...values)];
  const speedups = points.map(([, speedup]) => Math.min(MOST, Math.max(LEAST, speedup)));
  const low = Math.log(Math.min(0.85, ...speedups) * 0.95);
  const high = Math.log(Math.max(level, ...speedups) * 1.15);
  const x = (value) => LEFT + ((Math.log(value) - from) / (to - from || 1)) * (WIDTH - LEFT - 8);
  const y = (speedup) => TOP + ((high - Math.log(speedup)) / (high - low)) * (HEIGHT - BOTTOM - TOP);
  const line = points.map(([value], i) => `${i ? 'L' : 'M'}${x(value)} ${y(speedups[i])}`).join('');
  const floor = HEIGHT - BOTTOM;
  const mark = ([value, text], at) => {
    const isRight = x(value) > WIDTH / 2;
    return [
      svg('line', { x1: x(value), x2: x(value), y1: TOP, y2: floor }),
      svg('text', { x: x(value) + (isRight ? -4 : 4), y: at, class: 'mark', 'text-anchor': isRight ? 'end' : 'start' }, text),
    ];
  };
  const ends = [points[0], points.at(-1)];
  const figure = document.createElement('figure');
  const caption = document.createElement('figcaption');
  figure.className = 'chart';
  caption.textContent = title;
  figure.append(
    caption,
    svg(
      'svg',
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': title },
      svg('rect', { class: 'wins', x: LEFT, width: WIDTH - LEFT - 8, y: TOP, height: Math.max(0, y(level) - TOP) }),
      svg('line', { class: 'level', x1: LEFT, x2: WIDTH - 8, y1: y(level), y2: y(level) }),
      svg('text', { x: LEFT - 4, y: y(level) - 2, 'text-anchor': 'end' }, `${level.toFixed(2)}×`),
      svg('text', { x: LEFT - 4, y: y(1) + 8, 'text-anchor': 'end' }, '1×'),
      svg('path', { d: line }),
      ...points.map(([value], i) => svg('circle', { cx: x(value), cy: y(speedups[i]), r: 2.2 })),
      ...mark(here, floor - 4),
      ...(wins ? mark(wins, floor - 18) : []),
      ...ends.map(([value, , text], i) => svg('text', { x: x(value), y: HEIGHT - 10, 'text-anchor': i ? 'end' : 'start' }, text)),
      svg('text', { x: LEFT, y: TOP - 6 }, 'in the band a split wins'),
    ),
  );
  return figure;
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
