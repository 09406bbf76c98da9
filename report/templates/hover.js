// Shows the record of a table under the pointer, and the plan at the memory under the pointer.
(() => {
  'use strict';
  const labels = ['first key', 'last key', 'keys', 'entries', 'size', 'sequence', 'filter', 'memory'];
  const stored = document.getElementById('records');
  const records = stored ? JSON.parse(stored.textContent) : [];
  const cells = [...document.querySelectorAll('svg.run rect')];
  const places = new Map(cells.map((cell, place) => [cell, place]));
  const tip = document.getElementById('tip');
  let selected = null;

  const element = (name, text) => {
    const made = document.createElement(name);
    made.textContent = text;
    return made;
  };

  // Puts the tip next to a point and inside of the window.
  const place = (x, y) => {
    const { width, height } = tip.getBoundingClientRect();
    const left = Math.min(x + 16, innerWidth - width - 12);
    const top = y + 20 + height > innerHeight ? y - height - 16 : y + 20;
    tip.style.left = Math.max(12, left) + 'px';
    tip.style.top = Math.max(12, top) + 'px';
  };

  const fill = (title, pairs) => {
    const list = document.createElement('dl');
    for (const [label, value] of pairs) if (value) list.append(element('dt', label), element('dd', value));
    tip.replaceChildren(element('h4', title), list);
    tip.hidden = false;
  };

  const clear = () => {
    tip.hidden = true;
    selected = null;
    for (const cell of document.querySelectorAll('rect.on, rect.over')) cell.classList.remove('on', 'over');
    for (const run of document.querySelectorAll('svg.dim')) run.classList.remove('dim');
  };

  // Marks the cells of the same keyspace that have keys in the range of the cell.
  const mark = (cell, from, to) => {
    const keyspace = cell.closest('.keyspace');
    for (const run of keyspace.querySelectorAll('svg.run')) run.classList.add('dim');
    let overlapping = 0;
    for (const other of keyspace.querySelectorAll('svg.run rect')) {
      const [, first, last] = records[places.get(other)];
      const overlaps = other !== cell && first <= to && from <= last;
      other.classList.toggle('over', overlaps);
      if (overlaps) overlapping += 1;
    }
    cell.classList.add('on');
    return overlapping;
  };

  const show = (cell, x, y) => {
    if (cell !== selected) {
      clear();
      const [record, from, to] = records[places.get(cell)];
      const overlapping = mark(cell, from, to);
      const pairs = labels.map((label, at) => [label, record[at + 1]]);
      fill(record[0], [...pairs, ['overlaps', overlapping ? overlapping + ' others' : 'no other']]);
      selected = cell;
    }
    place(x, y);
  };

  const point = (event) => {
    const cell = event.target.closest && event.target.closest('svg.run rect');
    if (cell) show(cell, event.clientX, event.clientY);
    else if (selected) clear();
  };
  addEventListener('pointermove', point);
  addEventListener('pointerdown', point);

  // The arrow keys go through the tables of a run that has the focus.
  addEventListener('keydown', (event) => {
    if (event.key === 'Escape') return clear();
    const run = document.activeElement.closest && document.activeElement.closest('svg.run');
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!run || !step) return;
    const siblings = [...run.children];
    const at = siblings.indexOf(selected);
    const next = at < 0 ? 0 : Math.min(siblings.length - 1, Math.max(0, at + step));
    const box = siblings[next].getBoundingClientRect();
    show(siblings[next], box.left, box.bottom);
    event.preventDefault();
  });

  for (const chart of document.querySelectorAll('.chart')) {
    const { names, places } = JSON.parse(chart.querySelector('script').textContent);
    const cursor = chart.querySelector('.cursor');
    const move = (event) => {
      const box = chart.getBoundingClientRect();
      const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      const [bits, memory, ...values] = places[Math.round(share * (places.length - 1))];
      cursor.style.left = 100 * share + '%';
      cursor.hidden = false;
      fill(bits + ' bits per key', [['memory', memory], ...names.map((name, at) => [name, values[at]])]);
      place(event.clientX, event.clientY);
      event.stopPropagation();
    };
    chart.addEventListener('pointermove', move);
    chart.addEventListener('pointerdown', move);
    chart.addEventListener('pointerleave', () => { cursor.hidden = true; clear(); });
  }
})();
