import type { Report } from '../../../src/sim/report/report.js';

/** Text that would become markup, a script or another direction if it were not escaped. */
export const HOSTILE = `</title><script>alert("x")</script>&'\u0000\u202e<img src=x onerror=alert(1)>`;

/** A report with every element; every text of it can be made hostile. */
export function sampleReport(text = 'plain'): Report {
  const hour = Array.from({ length: 60 }, (_, minute) => minute);
  return {
    title: `Report ${text}`,
    summary: `Summary ${text}`,
    parameters: [{ name: `seed ${text}`, value: `42 ${text}` }],
    highlights: [{ label: `Hit rate ${text}`, value: '0.366', note: `of all ${text}` }],
    sections: [
      {
        title: `Over time ${text}`,
        note: `Minutes ${text}`,
        blocks: [
          {
            kind: 'lines',
            title: `Hit rate ${text}`,
            note: `Each minute ${text}`,
            isWide: true,
            x: { label: `minutes ${text}`, format: (value) => `${value} ${text}` },
            y: { label: 'hit rate', format: (value) => value.toFixed(2) },
            series: [
              { name: `node-1 ${text}`, points: hour.map((x) => [x, x === 30 ? null : Math.sin(x) ** 2]) },
              { name: 'nothing known', points: hour.map((x) => [x, null]) },
              { name: 'limit', isBound: true, points: hour.map((x) => [x, 1.2]) },
            ],
            marks: [
              { x: 12, label: `node-2 killed ${text}`, kind: 'fault' },
              { x: 20, endX: 35, label: `drain ${text}` },
            ],
          },
          {
            kind: 'lines',
            title: 'By size',
            x: { label: 'pages', format: String, scale: 'log', ticks: [1000, 30_000] },
            y: { label: 'share', format: String, max: 1 },
            series: [
              {
                name: 'lru',
                points: [
                  [1000, 0.25],
                  [30_000, 0.5],
                ],
              },
            ],
          },
        ],
      },
      {
        title: 'Sources',
        blocks: [
          {
            kind: 'bars',
            title: `Sources ${text}`,
            note: `Shares ${text}`,
            parts: [`local ${text}`, 'remote', 'missed'],
            isLastRest: true,
            bars: [
              { name: `lru ${text}`, values: [0.25, 0.25, 0.5] },
              { name: 'none', values: [0, 0, 0] },
            ],
            format: (value) => `${100 * value} % ${text}`,
          },
          {
            kind: 'table',
            title: `Table ${text}`,
            note: `Note ${text}`,
            columns: [{ name: `Name ${text}` }, { name: 'Count', isNumeric: true }],
            rows: [[`cell ${text}`, '1']],
          },
        ],
      },
    ],
  };
}
