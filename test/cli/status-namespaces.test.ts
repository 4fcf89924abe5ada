import test from 'ava';
import { type ClusterNamespace, namespaceColumns, namespaceWarnings } from '../../src/cli/status/differences.js';
import { nodeRow, statusResult } from '../../src/cli/status/status-report.js';
import { formatStatus } from '../../src/cli/status/status-text.js';
import { fitTable } from '../../src/command/table.js';
import type { NamespaceReport } from '../../src/metrics/node-report.js';
import { isReportLike } from '../../src/metrics/report-checks.js';
import { NodeInfo } from '../../src/types.js';

const LAYOUT = 'sglang/1 cp=0/1 heads=8x128 layout=page_first page=64';

let lastDigest = 0;

function report(more: Partial<NamespaceReport> = {}): NamespaceReport {
  return {
    digest: String(++lastDigest).padStart(32, 'f'),
    model_name: 'llama',
    dtype: 'bfloat16',
    layout: LAYOUT,
    tag: '',
    fingerprint: '',
    tp_rank: 0,
    tp_size: 1,
    pp_rank: 0,
    pp_size: 1,
    is_mla: false,
    attached: 1,
    clients: ['x'],
    ...more,
  };
}

/**
 * The warnings about namespaces, each of which has one client on a node of its own: x on node-1, y on node-2, and so
 * on.
 */
function warningsOf(...all: Partial<NamespaceReport>[]): string[] {
  return namespaceWarnings(
    all.map((more, i): ClusterNamespace => {
      const clients = [{ client: 'xyzuvw'[i] ?? `c${i}`, node_id: `node-${i + 1}` }];
      return { ...report(more), clients };
    }),
  );
}

const withLayout = (from: string, to: string): Partial<NamespaceReport> => ({ layout: LAYOUT.replace(from, to) });
const apart = (what: string): string[] => [
  `clients x on node-1 and y on node-2 share no pages: their namespaces differ only in ${what}`,
];

const PAIRS: readonly (readonly [name: string, more: Partial<NamespaceReport>, what: string])[] = [
  ['the name of the model', { model_name: '/models/llama' }, "model: 'llama' and '/models/llama'"],
  ['dtype', { dtype: 'float16' }, "dtype: 'bfloat16' and 'float16'"],
  ['tag', { tag: 't' }, "tag: none and 't'"],
  ['fingerprint', { fingerprint: 'f' }, "fingerprint (other weights): none and 'f'"],
  ['size of tensor parallelism', { tp_size: 2 }, "tp_size: '1' and '2'"],
  ['a pair', withLayout('8x128', '4x256'), "layout heads: '8x128' and '4x256'"],
  ['a pair that one lacks', withLayout(' page=64', ''), "layout page: '64' and none"],
  ['a size', withLayout('0/1', '0/2'), "layout cp: '1 ranks' and '2 ranks'"],
  ['version of the list', withLayout('sglang/1', 'sglang/2'), "layout version: '1' and '2'"],
  ['a text that has no pairs', { layout: 'page_first' }, ''],
];

for (const [name, more, what] of PAIRS) {
  test(`status namespaces: two that differ in one fact are told: ${name}`, (t) => {
    t.deepEqual(warningsOf({}, more), what === '' ? [] : apart(what));
    t.deepEqual(warningsOf({}, { ...more, model_name: 'other', dtype: 'fp8' }), [], 'further facts: another model');
  });
}

test('status namespaces: texts without pairs are one fact each', (t) => {
  const [a, b] = [{ layout: 'page_first' }, { layout: 'layer_first' }];
  t.deepEqual(warningsOf(a, b), apart("layout: 'page_first' and 'layer_first'"));
  t.deepEqual(warningsOf({ layout: '' }, b), apart("layout: none and 'layer_first'"));
  t.deepEqual(warningsOf({ layout: 'a b=1' }, { layout: 'a b=1 c' }).length, 0, 'one has pairs, the other none');
  const pairs = (kind: string) => ({ layout: `kind=${kind} page=64` });
  t.deepEqual(warningsOf(pairs('a'), pairs('b')), apart("layout kind: 'a' and 'b'"), 'pairs without a framework');
});

test('status namespaces: ranks of one engine are no difference, nor are frameworks', (t) => {
  const ranks = [0, 1, 2, 3].map((tp_rank) => ({ tp_rank, tp_size: 4 }));
  t.deepEqual(warningsOf(...ranks), []);
  t.deepEqual(warningsOf({ pp_rank: 0, pp_size: 2 }, { pp_rank: 1, pp_size: 2, ...withLayout('heads', 'head') }), []);
  t.deepEqual(warningsOf(withLayout('0/1', '0/2'), withLayout('0/1', '1/2')), []);
  const second = { layout: LAYOUT.replace('0/1', '1/2').replace('page=64', 'page=63') };
  t.deepEqual(warningsOf(withLayout('0/1', '0/2'), second), [], 'what differs by rank');
  t.deepEqual(warningsOf({}, withLayout('sglang', 'vllm')), []);
  t.deepEqual(warningsOf({ is_mla: true, tp_size: 2 }, { is_mla: true, tp_size: 2, tp_rank: 1 }), []);
});

test('status namespaces: engines of several ranks have one warning, with the clients of all', (t) => {
  const engine = (model_name: string) => [0, 1].map((tp_rank) => ({ model_name, tp_rank, tp_size: 2 }));
  t.deepEqual(warningsOf(...engine('a'), ...engine('b')), [
    "clients x on node-1, y on node-2 and z on node-3, u on node-4 share no pages: their namespaces differ only in model: 'a' and 'b'",
  ]);
  const many = ['a', 'b', 'c'].map((model_name) => ({ model_name }));
  t.deepEqual(warningsOf(...many), [
    "clients x on node-1, y on node-2 and z on node-3 share no pages: their namespaces differ only in model: 'a', 'b' and 'c'",
  ]);
  const clients = Array.from({ length: 9 }, (_, i) => ({ client: `c${i}`, node_id: 'node' }));
  const [warning] = namespaceWarnings([
    { ...report(), clients },
    { ...report({ dtype: 'fp8' }), clients: [] },
  ]);
  t.regex(warning as string, /^clients c0 on node, c1 on node, c2 on node \(and 6 more\) and/);
});

test('status namespaces: an engine that shares with nobody is told, and compared with nobody', (t) => {
  const secret = (random: string) => ({ layout: `${LAYOUT} private=${random}` });
  t.deepEqual(warningsOf({}, secret('a1')), [
    'y on node-2 shares with nobody: private namespace; its log says which fact is missing',
  ]);
  t.deepEqual(warningsOf(secret('a1'), secret('b2')), [
    'x on node-1, y on node-2 share with nobody: private namespace; their logs say which fact is missing',
  ]);
});

test('status namespaces: of very many warnings some are told', (t) => {
  const all = Array.from({ length: 60 }, (_, i) => ({ model_name: `m${i >> 1}`, dtype: `d${i}` }));
  const warnings = warningsOf(...all);
  t.is(warnings.length, 21);
  t.is(warnings[20], '10 more warnings about namespaces are left out; --json has all namespaces');
});

test('status namespaces: those of all nodes are in one table, and each once in --json', (t) => {
  const shared = report({ clients: ['a', 'b'], attached: 3, tp_size: 2, tp_rank: 1 });
  const other = report({ model_name: '/models/llama', clients: ['c\u001b[2J'], tp_size: 2, tp_rank: 1 });
  const row = (nodeId: string, namespaces: readonly NamespaceReport[]) => {
    const member = new NodeInfo({ nodeId, controlHost: '10.0.0.2', controlPort: 1, metricsHost: '', metricsPort: 0 });
    const clients = { socket: '', attached: 3, busiest: [], namespaces };
    t.true(isReportLike({ clients }));
    return nodeRow(member, { node_id: nodeId, clients }, { ringShare: 1, isHere: false });
  };
  const nodes = [row('node-1', [shared]), row('node-2', [shared, other])];
  const result = statusResult(nodes, { discoveryAddr: 'x:1', timeMs: 1 });
  t.deepEqual(
    result.namespaces.map(({ digest, attached }) => [digest, attached]),
    [
      [other.digest, 1],
      [shared.digest, 6],
    ],
  );
  t.is(result.namespaces[1]?.clients.length, 4);
  t.deepEqual(result.namespace_warnings.length, 1);
  const text = formatStatus(result, { columns: 200 });
  t.regex(text, /^namespace +model +dtype +tag +fingerprint +ranks +clients +nodes +layout$/m);
  t.regex(text, /^ffffffff +llama +bfloat16 +tp 1\/2 +6 +node-1, node-2 +sglang\/1 cp=0\/1 heads=8x128/m);
  t.true(text.includes("share no pages: their namespaces differ only in model: '/models/llama' and 'llama'"), text);
  t.false(text.includes('\u001b'));
  t.notRegex(formatStatus(result, { columns: 200, isBrief: true }), /^namespace|share no pages/m);
  for (const line of formatStatus(result, { columns: 80 }).split('\n')) t.true(line.length <= 80, line);
  t.false(isReportLike({ clients: { namespaces: [{ ...shared, clients: 'a' }] } }));
});

test('status namespaces: no column is left out that tells two of one model apart', (t) => {
  const rows = (first: string, second: string) =>
    [first, second].map((layout) => ({ namespace: 'digest', model: 'llama', dtype: 'bf16', clients: '1', layout }));
  t.deepEqual(namespaceColumns(rows('heads=8', 'heads=8')).optional, [
    'layout',
    'fingerprint',
    'tag',
    'dtype',
    'ranks',
  ]);
  const differing = rows('heads=8x128 page=64', 'heads=4x128 page=64');
  t.deepEqual(namespaceColumns(differing).optional, ['fingerprint', 'tag', 'dtype', 'ranks']);
  const text = fitTable(differing, 20, namespaceColumns(differing));
  for (const { layout } of differing) t.true(text.includes(layout.split(' ')[0] as string), text);
});
