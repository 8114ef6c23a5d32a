'use strict';
// Draws the pictures of the page from the numbers in it. Text from outside is set as text, never as
// markup.
const data = JSON.parse(document.getElementById('data').textContent);
const redraws = [];

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
}

// Neighbouring requests get colours that are far apart.
function requestColor(request, strong) {
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  const hue = (request * 137.508) % 360;
  const light = dark ? (strong ? 60 : 30) : (strong ? 50 : 84);
  return `hsl(${hue.toFixed(0)} ${strong ? 52 : 40}% ${light}%)`;
}

function element(tag, parent, properties) {
  const made = document.createElement(tag);
  Object.assign(made, properties || {});
  parent.append(made);
  return made;
}

function drawn(tag, parent, attributes, text) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function number(value) {
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e9) return (value / 1e9).toPrecision(3) + ' G';
  if (size >= 1e6) return (value / 1e6).toPrecision(3) + ' M';
  if (size >= 1e4) return (value / 1e3).toPrecision(3) + ' k';
  if (size >= 100) return value.toFixed(0);
  return String(Number(value.toPrecision(3)));
}

function seconds(value) {
  if (value === 0) return '0 s';
  if (value < 1e-3) return number(value * 1e6) + ' µs';
  if (value < 1) return number(value * 1e3) + ' ms';
  if (value < 600) return number(value) + ' s';
  if (value < 36000) return number(value / 60) + ' min';
  return number(value / 3600) + ' h';
}

function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    ++at;
  }
  return number(value) + ' ' + units[at];
}

// As ticks, but round in the unit that bytes are shown in.
function byteTicks(low, high, count) {
  let unit = 1;
  while (high / unit >= 1024) unit *= 1024;
  return ticks(low / unit, high / unit, count).map(t => t * unit);
}

// Round values from 0 (or `low`) to `high`, about `count` of them.
function ticks(low, high, count) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const rough = span / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= rough);
  const list = [];
  for (let t = Math.ceil(low / step) * step; t <= high * 1.0000001; t += step) list.push(t);
  return list;
}

function legend(parent, entries) {
  const box = element('div', parent, {className: 'legend'});
  for (const [name, text, kind] of entries) {
    const item = element('span', box);
    const mark = element('i', item, {className: kind || ''});
    if (kind) mark.style.color = name; else mark.style.background = name;
    item.append(text);
  }
}

// Keeps a picture as wide as its place, and in the colours of day or night.
function picture(parent, draw) {
  const place = element('div', parent);
  let width = 0;
  const again = () => {
    if (place.clientWidth < 10) return;
    width = place.clientWidth;
    place.replaceChildren();
    draw(place, width);
  };
  redraws.push(again);
  new ResizeObserver(() => { if (place.clientWidth !== width) again(); }).observe(place);
}

function chartFrame(place, width, height, box) {
  const svg = drawn('svg', place, {viewBox: `0 0 ${width} ${height}`, height, role: 'img'});
  const left = box.left || 52, right = 10, top = 10, bottom = 34;
  const x = value => left + (value - box.x0) / (box.x1 - box.x0 || 1) * (width - left - right);
  const log = box.logY;
  const lift = value => log ? Math.log10(Math.max(value, box.y0)) : value;
  const y = value => height - bottom -
      (lift(value) - lift(box.y0)) / (lift(box.y1) - lift(box.y0) || 1) * (height - top - bottom);
  const rows = log ? powers(box.y0, box.y1) : (box.yTicks || ticks)(box.y0, box.y1, 4);
  for (const t of rows) {
    drawn('line', svg, {x1: left, x2: width - right, y1: y(t), y2: y(t), class: 'axis'});
    drawn('text', svg, {x: left - 6, y: y(t) + 4, 'text-anchor': 'end'}, box.yText(t));
  }
  for (const t of ticks(box.x0, box.x1, Math.max(2, Math.floor(width / 110)))) {
    const near = x(t) > width - right - 16;
    drawn('text', svg, {x: Math.min(x(t), width - right), y: height - bottom + 16,
                        'text-anchor': near ? 'end' : 'middle'}, box.xText(t));
  }
  drawn('text', svg, {x: width - right, y: height - 3, 'text-anchor': 'end'}, box.xLabel);
  return {svg, x, y};
}

function powers(low, high) {
  const list = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); ++p) {
    const t = 10 ** p;
    if (t >= low * 0.999 && t <= high * 1.001) list.push(t);
  }
  return list.length > 1 ? list : ticks(low, high, 3).filter(t => t > 0);
}

function line(points, frame) {
  return points.map(([px, py], i) =>
      (i ? 'L' : 'M') + frame.x(px).toFixed(1) + ' ' + frame.y(py).toFixed(1)).join('');
}

// --- What the cache's memory held -----------------------------------------------------------------

function memoryChart(panel, variant, end) {
  const steps = variant.steps;
  const blockBytes = variant.block_bytes;
  const total = variant.blocks_count * blockBytes;
  const slot = blockBytes / variant.block_tokens;
  const layers = [
    ['filled', 'keys and values', i => steps.filled[i] * slot],
    ['wasted', 'held in vain', i => steps.wasted[i] * slot],
    ['cached', 'kept for later prompts', i => steps.cached[i] * blockBytes],
  ];
  legend(panel, [...layers.map(([name, text]) => [color(name), text]), [color('free'), 'free']]);
  picture(panel, (place, width) => {
    const frame = chartFrame(place, width, 190, {x0: 0, x1: end, y0: 0, y1: total, left: 66,
      yText: bytes, yTicks: byteTicks, xText: seconds, xLabel: 'simulated time'});
    const count = steps.t.length;
    drawn('rect', frame.svg, {x: frame.x(0), y: frame.y(total), fill: color('free'),
      width: Math.max(0, frame.x(Math.min(end, variant.end_s)) - frame.x(0)),
      height: frame.y(0) - frame.y(total)});
    let below = new Array(count).fill(0);
    for (const [name, , value] of layers) {
      const above = below.map((v, i) => v + value(i));
      const path = line(steps.t.map((t, i) => [t, above[i]]), frame) +
          line(steps.t.map((t, i) => [t, below[i]]).reverse(), frame).replace('M', 'L') + 'Z';
      drawn('path', frame.svg, {d: path, fill: color(name)});
      below = above;
    }
  });
}

// --- The map: which block belonged to whom --------------------------------------------------------

function unpack(snapshot) {
  const owners = [];
  for (let i = 0; i < snapshot.runs.length; i += 2) {
    for (let k = 0; k < snapshot.runs[i + 1]; ++k) owners.push(snapshot.runs[i]);
  }
  return owners;
}

// Blocks that are held and hold nothing yet.
function emptyOf(snapshot) {
  const empty = new Set();
  for (let i = 0; i < snapshot.partial.length; i += 2) {
    if (snapshot.partial[i + 1] === 0) empty.add(snapshot.partial[i]);
  }
  return empty;
}

function ownerColor(owner, strong) {
  if (owner === -2) return color('cached');
  if (owner < 0) return color('free');
  return requestColor(owner, strong);
}

function canvas(place, width, height) {
  const made = element('canvas', place);
  const scale = Math.min(2, devicePixelRatio || 1);
  made.width = Math.round(width * scale);
  made.height = Math.round(height * scale);
  made.style.height = height + 'px';
  const pen = made.getContext('2d');
  pen.scale(scale, scale);
  return [made, pen];
}

function cacheMap(panel, variant) {
  const snapshots = variant.snapshots.map(s => ({...s, owners: unpack(s), empty: emptyOf(s)}));
  if (snapshots.length < 2) return;
  const count = snapshots[0].owners.length;
  const end = snapshots[snapshots.length - 1].t;
  let at = Math.floor(snapshots.length / 2);
  const update = [];
  picture(panel, (place, width) => {
    const height = 180;
    const [made, pen] = canvas(place, width, height);
    const rows = Math.min(count, height);
    snapshots.forEach((snapshot, i) => {
      const x0 = snapshot.t / end * width;
      const x1 = i + 1 < snapshots.length ? snapshots[i + 1].t / end * width : width;
      for (let row = 0; row < rows; ++row) {
        const block = Math.floor((row + 0.5) * count / rows);
        pen.fillStyle = ownerColor(snapshot.owners[block], !snapshot.empty.has(block));
        pen.fillRect(x0, row * height / rows, Math.max(1, x1 - x0 + 0.5), height / rows + 0.5);
      }
    });
    made.setAttribute('role', 'img');
    made.setAttribute('aria-label', 'blocks of the cache over time');
    made.onclick = event => {
      const t = event.offsetX / width * end;
      at = snapshots.findIndex((s, i) => i + 1 === snapshots.length || snapshots[i + 1].t > t);
      slider.value = at;
      update.forEach(f => f());
    };
  });
  element('div', panel, {className: 'soft say',
    textContent: `Each row is ${count < variant.blocks_count ?
        `a block of the pool (${count} of its ${variant.blocks_count} are drawn, at equal distances)`
        : 'a block of the pool'}, time runs to the right (to ${seconds(end)}).` +
        ' One colour is one request; faint blocks are held, but empty. Below, the moment that the' +
        ' slider chooses.'});
  const slider = element('input', panel, {type: 'range', min: 0, max: snapshots.length - 1, value: at});
  slider.setAttribute('aria-label', 'moment');
  const say = element('div', panel, {className: 'soft say', role: 'status'});
  slider.oninput = () => { at = Number(slider.value); update.forEach(f => f()); };
  picture(panel, (place, width) => {
    const cell = Math.max(3, Math.min(14, Math.floor(Math.sqrt(width * 200 / count))));
    const columns = Math.max(1, Math.floor(width / cell));
    const [, pen] = canvas(place, width, Math.ceil(count / columns) * cell);
    const gap = cell > 5 ? 1 : 0;
    const draw = () => {
      const snapshot = snapshots[at];
      pen.clearRect(0, 0, width, 10000);
      const partial = new Map();
      for (let i = 0; i < snapshot.partial.length; i += 2) {
        partial.set(snapshot.partial[i], snapshot.partial[i + 1]);
      }
      snapshot.owners.forEach((owner, block) => {
        const x = block % columns * cell, y = Math.floor(block / columns) * cell;
        pen.fillStyle = ownerColor(owner, !partial.has(block));
        pen.fillRect(x, y, cell - gap, cell - gap);
        if (partial.has(block)) {
          pen.fillStyle = color('panel');
          const part = (cell - gap) * (1 - partial.get(block) / variant.block_tokens);
          pen.globalAlpha = 0.75;
          pen.fillRect(x + (cell - gap) - part, y, part, cell - gap);
          pen.globalAlpha = 1;
        }
      });
      if (cell >= 6) {
        pen.strokeStyle = color('ink');
        for (const block of snapshot.shared) {
          pen.strokeRect(block % columns * cell + 0.5, Math.floor(block / columns) * cell + 0.5,
                         cell - gap - 1, cell - gap - 1);
        }
      }
    };
    update[1] = draw;
    draw();
  });
  update[0] = () => {
    const snapshot = snapshots[at];
    const users = new Set(snapshot.owners.filter(o => o >= 0));
    const used = snapshot.owners.filter(o => o >= 0).length;
    const those = count < variant.blocks_count ? 'blocks that are drawn' : 'blocks';
    say.textContent = `at ${seconds(snapshot.t)}: ${users.size} request${users.size === 1 ? '' : 's'}` +
        ` hold${users.size === 1 ? 's' : ''} ${used} of ${count} ${those}, ${snapshot.owners.filter(o => o === -2).length} are kept for later prompts, ` +
        `${snapshot.shared.length} are shared`;
  };
  update[0]();
  legend(panel, [[color('cached'), 'kept for later prompts'], [color('free'), 'free'],
                 [requestColor(1, false), 'faint: held, but partly or wholly empty']]);
}

// --- The batch: who sat in which step -------------------------------------------------------------

const kinds = {p: 'prompt', d: 'decode', s: 'held', w: 'waiting'};
const kindWords = {
  p: 'its prompt was computed', d: 'it drew a token a step', s: 'it sat out, its blocks held',
  w: 'it waited in the queue',
};

function batchTimeline(panel, variant, end) {
  const timeline = variant.timeline;
  const rowOf = new Map(timeline.rows.map((row, i) => [row.r, i]));
  legend(panel, [[color('waiting'), 'waits'], [color('prompt'), 'prompt'],
                 [color('decode'), 'answer'], [color('held'), 'held back'],
                 [color('wasted'), 'waited for', 'rule']]);
  const say = document.createElement('div');
  picture(panel, (place, width) => {
    const row = timeline.rows.length > 48 ? 7 : timeline.rows.length > 24 ? 10 : 16;
    const left = 40, bottom = 34;
    const height = timeline.rows.length * row + bottom + 4;
    const svg = drawn('svg', place, {viewBox: `0 0 ${width} ${height}`, height, role: 'img'});
    const x = t => left + t / end * (width - left - 8);
    timeline.rows.forEach((entry, i) => {
      const y = 4 + i * row;
      const group = drawn('g', svg, {});
      if (row > 12 || i % 5 === 0) {
        drawn('text', group, {x: left - 6, y: y + row / 2 + 4, 'text-anchor': 'end'}, '#' + entry.r);
      }
      for (const [kind, from, to] of entry.spans) {
        const thin = kind === 'w';
        const bar = drawn('rect', group, {x: x(from), width: Math.max(0.6, x(to) - x(from)),
          y: thin ? y + row / 2 - 1.5 : y + 1, height: thin ? 3 : row - 2,
          fill: color(kinds[kind])});
        bar.onclick = bar.onmouseenter = () => {
          say.textContent = `#${entry.r}, ${seconds(from)} to ${seconds(to)}: ${kindWords[kind]}. ` +
              `${entry.prompt} prompt tokens, ${entry.output} of the answer` +
              (entry.cached ? `, ${entry.cached} of the prompt found in the cache` : '') + '.';
        };
      }
    });
    for (const wait of timeline.waits) {
      const from = rowOf.get(wait.for[0]), to = rowOf.get(wait.r);
      if (from === undefined || to === undefined || wait.for.length > 1) continue;
      drawn('line', svg, {x1: x(wait.to), x2: x(wait.to), y1: 4 + (from + 0.5) * row,
        y2: 4 + (to + 0.5) * row, stroke: color('wasted'), 'stroke-width': 1.2,
        'stroke-dasharray': '3 2'});
    }
    for (const t of ticks(0, end, Math.max(2, Math.floor(width / 110)))) {
      drawn('text', svg, {x: Math.min(x(t), width - 8), y: height - bottom + 16,
        'text-anchor': x(t) > width - 24 ? 'end' : 'middle'}, seconds(t));
    }
    drawn('text', svg, {x: width - 8, y: height - 4, 'text-anchor': 'end'}, 'simulated time');
  });
  say.className = 'soft say';
  say.textContent = `The first ${timeline.steps} steps, to ${seconds(timeline.end)}. ` +
      'Point at a bar, or tap it, to read what happened there.';
  panel.append(say);
  const longest = [...timeline.waits].sort((a, b) => (b.to - b.from) - (a.to - a.from)).slice(0, 5);
  if (longest.length === 0) return;
  element('h3', panel, {textContent: 'The longest waits'}).style.marginTop = '10px';
  const list = element('ul', panel);
  for (const wait of longest) {
    const names = wait.for.slice(0, 6).map(r => '#' + r).join(', ') +
        (wait.for.length > 6 ? ` and ${wait.for.length - 6} more` : '');
    const why = wait.for.length === 0 ? '' :
        wait.left ? `, until ${names} had ended` : `, while the prompt of ${names} was computed`;
    element('li', list, {textContent: `#${wait.r} waited ${seconds(wait.to - wait.from)}${why}`});
  }
}

// --- Latency over load ----------------------------------------------------------------------------

function variantColor(index) {
  return color('line' + index % 6);
}

function loadCurves(root) {
  const variants = data.variants.filter(v => v.curve.length > 1);
  if (variants.length === 0) return;
  element('h2', root, {textContent: 'Latency over load'});
  element('p', root, {className: 'soft', textContent:
      'The same traffic, faster and faster. Where a curve turns upward, requests come faster than' +
      ' they are served, and the queue grows for as long as that goes on.'});
  legend(root, variants.map((v, i) =>
      [variantColor(i), v.name || 'as configured', 'rule']));
  const grid = element('div', root, {className: 'variants three'});
  const x1 = Math.max(...variants.flatMap(v => v.curve.map(p => p.load)));
  const charts = [
    ['Time to first token', 'ttft_p50', 'ttft_p99', seconds],
    ['Time between tokens', 'itl_p50', 'itl_p99', seconds],
    ['Answers, tokens a second', 'output_rate', null, number],
  ];
  for (const [title, middle, high, text] of charts) {
    const panel = element('div', grid, {className: 'panel'});
    element('h3', panel, {textContent: title});
    if (high) {
      legend(panel, [['currentColor', 'half of the requests', 'rule'],
                     ['currentColor', '99 % of them', 'dash']]);
    }
    picture(panel, (place, width) => {
      const values = variants.flatMap(v => v.curve.flatMap(p => [p[middle], high ? p[high] : p[middle]]))
          .filter(v => v > 0);
      const top = Math.max(...values), low = Math.min(...values);
      const logY = Boolean(high) && top / low > 30;
      const frame = chartFrame(place, width, 220, {x0: 0, x1, y0: logY ? low * 0.8 : 0, y1: top * 1.05,
        left: 62, logY, yText: text, xText: number, xLabel: data.load_unit});
      variants.forEach((v, i) => {
        for (const [key, dash] of [[middle, ''], [high, '5 4']]) {
          if (!key) continue;
          drawn('path', frame.svg, {d: line(v.curve.map(p => [p.load, p[key]]), frame), fill: 'none',
            stroke: variantColor(i), 'stroke-width': 2, 'stroke-dasharray': dash});
        }
        for (const p of v.curve) {
          drawn('circle', frame.svg, {cx: frame.x(p.load), cy: frame.y(p[middle]), r: 2.5,
            fill: variantColor(i)});
        }
      });
    });
  }
}

function section(root, title, text, wanted, draw) {
  const variants = data.variants.filter(wanted);
  if (variants.length === 0) return;
  element('h2', root, {textContent: title});
  element('p', root, {className: 'soft', textContent: text});
  const grid = element('div', root, {className: 'variants'});
  for (const variant of variants) {
    const panel = element('div', grid, {className: 'panel'});
    if (variant.name) element('h3', panel, {textContent: variant.name});
    draw(panel, variant, variants);
  }
}

const root = document.getElementById('pictures');
loadCurves(root);
section(root, 'The batch: who sat in which step',
    'A row is a request, from its arrival to its end. Those with a bar at the same moment shared a' +
    ' step. A dashed line leads from a request that ended to the one that' +
    ' had waited for its place.',
    v => v.timeline.rows.length > 0, (panel, v, all) => {
      // One scale for all, unless it leaves one of them too narrow to be read.
      const longest = Math.max(...all.map(o => o.timeline.end));
      batchTimeline(panel, v, v.timeline.end * 3 < longest ? v.timeline.end : longest);
    });
section(root, 'The memory of the cache over time',
    'Held in vain is what was set aside for tokens that have not come, or what no later token' +
    ' will read.',
    v => v.steps.t.length > 1, (panel, v, all) =>
        memoryChart(panel, v, Math.max(...all.map(o => o.end_s))));
section(root, 'The cache, block by block', '',
    v => v.snapshots.length > 1, (panel, v) => cacheMap(panel, v));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => location.reload());
