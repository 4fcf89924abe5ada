import test from 'ava';
import { lineBlock, scaleOf } from '../../src/sim/report/line-chart.js';
import { markup } from '../../src/sim/report/markup.js';
import { reportPage } from '../../src/sim/report/page.js';
import type { Axis, LineChart } from '../../src/sim/report/report.js';
import { HOSTILE, sampleReport } from '../_support/sim/sample-report.js';

function chart(part: Partial<LineChart>): string {
  const axis: Axis = { label: 'axis', format: String };
  return lineBlock({ kind: 'lines', title: 'chart', x: axis, y: axis, series: [], ...part }).html;
}

test('report: whatever texts contain, they are text', (t) => {
  const page = reportPage(sampleReport(HOSTILE));
  t.notRegex(page, /<script|<img/);
  for (const character of ['\u0000', '\u202e']) t.false(page.includes(character));
  t.regex(page, /&lt;script&gt;alert\(&quot;x&quot;\)/);
  const plain = reportPage(sampleReport());
  const tags = (html: string) => html.match(/<[a-z/][^\s>]*/g);
  t.deepEqual(tags(page), tags(plain), 'the same elements');
});

test('report: markup escapes what it is given, lists and nested templates aside', (t) => {
  t.is(
    markup`<p title="${'"'}">${['<', markup`<b>${'&'}</b>`]}${undefined}${1}</p>`.html,
    '<p title="&quot;">&lt;<b>&amp;</b>1</p>',
  );
});

test('report: the page loads nothing and runs nothing', (t) => {
  const page = reportPage(sampleReport());
  t.notRegex(page, /https?:|src=|@import|url\(|<link(?! rel="icon" href="data:,")|\son[a-z]+=/);
  t.regex(page, /content="default-src 'none'; style-src 'unsafe-inline'; img-src data:"/);
});

test('report: the same report gives the same bytes', (t) => {
  t.is(reportPage(sampleReport()), reportPage(sampleReport()));
});

test('report: a value that is not known is a gap in its line and an empty cell', (t) => {
  const html = chart({
    series: [
      {
        name: 'a',
        points: [
          [0, 1],
          [1, 2],
          [2, null],
          [3, 1],
          [4, 0],
        ],
      },
    ],
  });
  const [path] = /<path class="line s0" d="(M[^"]*L[^"]*M[^"]*L[^"]*)"/.exec(html)?.slice(1) ?? [];
  t.is(path?.split('M').length, 3);
  t.regex(html, /<th scope="row" class="number">2<\/th><td class="number"><\/td>/);
  t.notRegex(html, /NaN|Infinity/);
});

test('report: charts of nothing, of one point and of equal values have whole numbers of pixels', (t) => {
  for (const scale of ['linear', 'log'] as const) {
    const axis: Axis = { label: 'axis', format: String, scale };
    for (const points of [
      [],
      [[5, 5]],
      [
        [1, 0],
        [2, 0],
      ],
      [
        [1, 7],
        [9, 7],
      ],
    ] as [number, number][][]) {
      const html = chart({ x: axis, y: { ...axis, scale: 'linear' }, series: [{ name: 'a', points }] });
      t.notRegex(html, /NaN|Infinity|undefined/, `${scale} ${JSON.stringify(points)}`);
    }
  }
});

test('report: marks have a line, a name in a list, and a stretch where they have an end', (t) => {
  const html = chart({
    series: [
      {
        name: 'a',
        points: [
          [0, 1],
          [10, 1],
        ],
      },
    ],
    marks: [
      { x: 2, label: 'killed', kind: 'fault' },
      { x: 4, endX: 12, label: 'partition' },
    ],
  });
  t.is(html.match(/<g class="mark (fault|change)">/g)?.length, 2);
  t.is(html.match(/<rect class="stretch"/g)?.length, 1);
  t.regex(html, /<li><span class="when">4 to 12<\/span> partition<\/li>/);
});

test('report: scales have round ticks and room for every value', (t) => {
  const axis = { label: '', format: String };
  t.deepEqual(scaleOf(axis, [0.02, 0.366]).ticks, [0, 0.1, 0.2, 0.3, 0.4]);
  t.deepEqual(scaleOf(axis, [0, 59]).ticks, [0, 20, 40, 60]);
  t.deepEqual(scaleOf({ ...axis, max: 1 }, [0.4]).ticks, [0, 0.2, 0.4, 0.6, 0.8, 1]);
  t.deepEqual(scaleOf(axis, [-3, 4]).ticks, [-2, 0, 2, 4]);
  const log = scaleOf({ ...axis, scale: 'log' }, [10, 1000]);
  t.deepEqual([log.ticks, log.place(10), log.place(100), log.place(1000)], [[10, 100, 1000], 0, 0.5, 1]);
  for (const values of [[5], [0.001, 7], [1e9, 2e9]]) {
    const scale = scaleOf(axis, values);
    for (const value of values) t.true(scale.place(value) >= 0 && scale.place(value) <= 1);
  }
});
