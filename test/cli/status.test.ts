import { stripVTControlCharacters } from 'node:util';
import test from 'ava';
import { isStatus } from '../../src/cli/status/cluster-query.js';
import { type NodeRow, nodeRow, statusResult } from '../../src/cli/status/status-report.js';
import { formatStatus } from '../../src/cli/status/status-text.js';
import { NodeInfo } from '../../src/types.js';

const SHARE = { ringShare: 0.5 };

function member(controlHost: string, metricsHost: string, metricsPort = 31997): NodeInfo {
  return new NodeInfo({ nodeId: `node at ${controlHost}`, controlHost, controlPort: 7001, metricsHost, metricsPort });
}

test('status: a metrics server on the loopback of another machine has no URL here', (t) => {
  const answer = { error: 'gone' };
  const urlOf = (metricsHost: string, isHere: boolean, port?: number): string =>
    nodeRow(member('10.0.0.2', metricsHost, port), answer, { ...SHARE, isHere }).metrics_url;
  for (const host of ['127.0.0.1', '::1', 'localhost']) {
    t.is(urlOf(host, false), '', host);
    t.not(urlOf(host, true), '', host);
  }
  t.is(urlOf('127.0.0.1', true), 'http://127.0.0.1:31997/');
  t.is(urlOf('10.0.0.2', false), 'http://10.0.0.2:31997/');
  t.is(urlOf('0.0.0.0', false), 'http://10.0.0.2:31997/');
  t.is(urlOf('', false), 'http://10.0.0.2:31997/');
  t.is(urlOf('10.0.0.2', true, 0), '');
});

function resultOf(nodes: readonly NodeRow[]) {
  return statusResult(nodes, { discoveryAddr: '10.0.0.1:1', timeMs: 1_000_000 });
}

/** A node's own report, with everything that is shown. */
function report(nodeId: string, more: object = {}) {
  return {
    node_id: nodeId,
    version: '0.1.0',
    uptime_s: 7_500,
    is_meta: false,
    data_protocol: 'tcp',
    data_endpoint: '10.0.0.2:41435',
    reads: { local: 60, remote: 30, disk: 0, misses: 10 },
    lookups: { asked: 200, found: 150 },
    pool: { entries: 1200, used_bytes: 3 * 2 ** 30, capacity_bytes: 4 * 2 ** 30, quarantined_bytes: 0, evictions: 7 },
    disk: null,
    directory: { keys: 1300 },
    event_loop_delay: { p50_s: 0.001, p99_s: 0.0123, max_s: 0.1 },
    rss_bytes: 5 * 2 ** 30,
    recent: {
      window_s: 10,
      read_p50_s: 0.001,
      read_p99_s: 0.00241,
      read_bytes_per_s: 123 * 2 ** 20,
      written_bytes_per_s: 45 * 2 ** 20,
      evictions_per_s: 12.34,
      lookups: { asked: 40, found: 38 },
      page_lifetime_s: 754,
    },
    ...more,
  } as never;
}

const NODE = 'node-3f9c2a71d05be846';

function rowOf(nodeId: string, answer: object): NodeRow {
  const info = new NodeInfo({ nodeId, controlHost: '10.0.0.2', controlPort: 41234, metricsPort: 31997 });
  return nodeRow(info, answer as never, { ...SHARE, isHere: true });
}

test('status: a setting that is rolled out is named, with its values and who has which', (t) => {
  // Cause: nothing that an operator could see told which settings a node runs with.
  const settings = { eviction_policy: 'lru', global_segment_size: 2 ** 32, verify_reads: true };
  const rolled = { ...settings, eviction_policy: 'yield', global_segment_size: 2 ** 33, pin_max_s: 60 };
  const rows = [
    rowOf('a', { node_id: 'a', role: 'peer', settings: rolled }),
    rowOf('b', { node_id: 'b', role: 'peer', settings }),
    rowOf('c', { node_id: 'c', role: 'peer', settings }),
    rowOf('storage', { node_id: 'storage', role: 'storage', settings: { ...settings, global_segment_size: 2 ** 38 } }),
    rowOf('older', { node_id: 'older', role: 'peer' }),
    rowOf('odd', { node_id: 'odd', role: 'peer', settings: 7 }),
    rowOf('gone', { error: 'connect ECONNREFUSED 10.0.0.2:41234' }),
  ];
  const result = resultOf(rows);
  t.deepEqual(result.setting_differences, [
    {
      key: 'eviction_policy',
      values: [
        { value: 'lru', nodes: ['b', 'c'] },
        { value: 'yield', nodes: ['a'] },
      ],
    },
    {
      key: 'global_segment_size',
      values: [
        { value: 2 ** 32, nodes: ['b', 'c'] },
        { value: 2 ** 33, nodes: ['a'] },
      ],
    },
    {
      key: 'pin_max_s',
      values: [
        { value: null, nodes: ['b', 'c'] },
        { value: 60, nodes: ['a'] },
      ],
    },
  ]);
  const text = formatStatus(result);
  t.regex(text, /^setting eviction_policy differs: lru on b, c; yield on a$/m);
  t.regex(text, /^setting global_segment_size differs: 4 GiB on b, c; 8 GiB on a$/m);
  t.regex(text, /^setting pin_max_s differs: not set on b, c; 60 on a$/m);
  t.regex(formatStatus(result, { isBrief: true }), /setting eviction_policy differs/);
  t.notRegex(formatStatus(resultOf(rows.slice(1))), /differs/);
});

test('status: totals come first, then members; all of it fits into 100 columns, and into fewer', (t) => {
  const departed = [
    { node_id: 'node-gone', incarnation: 1, control_endpoint: '10.0.0.9:1', how: 'lost', time_ms: 880_000 },
    { node_id: 'node-scaled-down', incarnation: 1, control_endpoint: '10.0.0.8:1', how: 'left', time_ms: 400_000 },
  ];
  const slow = { ...(report('x') as { recent: object }).recent, read_p99_s: 0.0312, lookups: { asked: 60, found: 37 } };
  const nodes = [
    rowOf(NODE, report(NODE, { departed })),
    rowOf('node-2', report('node-2', { recent: slow, departed })),
    rowOf('node-10', { error: 'connect ECONNREFUSED 10.0.0.2:41234' }),
  ];
  const text = formatStatus(resultOf(nodes));
  const lines = text.split('\n');
  t.deepEqual(lines.slice(0, 7), [
    '3 members at 10.0.0.1:1: 2 up, 1 unreachable',
    '  prefix hits  75.0 % of 100 pages in the last 10 s, 75.0 % since the nodes started',
    '  throughput   246 MiB/s read, 90 MiB/s written, 25/s evicted',
    '  read p99     31.2 ms at the slowest node, node-2',
    '  lost nodes   node-gone (2 min ago)',
    '  left nodes   node-scaled-down (10 min ago)',
    '  pool         6 GiB of 8 GiB (75.0 %), 2,400 pages',
  ]);
  t.is(lines[8], 'node                   state          pool    hits      p99       read   written  evicted  lifetime');
  t.is(
    lines[10],
    'node-3f9c2a71d05be846  up           75.0 %  95.0 %  2.41 ms  123 MiB/s  45 MiB/s     12/s    13 min',
  );
  t.regex(text, /^node-10 +unreachable$/m);
  t.regex(text, /^node-gone +lost$/m);
  t.notRegex(text, /^node-scaled-down/m);
  t.regex(text, /^node-10: unreachable: connect ECONNREFUSED/m);
  for (const columns of [100, 80, 60, 40]) {
    const narrow = formatStatus(resultOf(nodes), { columns });
    for (const line of narrow.split('\n')) t.true(line.length <= columns, `${columns}: ${line}`);
  }
  const wide = formatStatus(resultOf(nodes), { columns: 400 });
  t.regex(
    wide,
    /^node +state +ring +uptime +version +pool +pages +disk +disk pages +keys +hits +remote +from disk +p99 .* loop p99 +clients +memory$/m,
  );
  t.regex(wide, /^node-2 +up +50\.0 % +2\.1 h +0\.1\.0 .* 12\.3 ms +- +5 GiB$/m);
});

test('status: nodes without recent figures, as without a metrics server, have no rates', (t) => {
  const { totals } = resultOf([rowOf('a', { node_id: 'a' })]);
  t.like(totals, { window_s: null, slowest: null, lost: 0, disk: null });
  const text = formatStatus(resultOf([rowOf('a', { node_id: 'a' })]));
  t.regex(text, /^1 member at 10\.0\.0\.1:1: 1 up\n {2}prefix hits +- since the nodes started\n {2}lost nodes +none\n/);
  t.notRegex(text, /throughput|read p99/);
});

test('status: what all nodes have in common is said once', (t) => {
  const tcp = { transport: { wanted: 'rdma', reason: 'no RDMA' }, data_protocol: 'tcp' };
  const nodes = [rowOf('a', report('a', tcp)), rowOf('b', report('b', tcp))];
  t.regex(formatStatus(resultOf(nodes)), /\nall nodes: reads over tcp, not rdma: no RDMA$/);
  nodes.push(rowOf('c', report('c')));
  t.regex(formatStatus(resultOf(nodes)), /\na, b: reads over tcp, not rdma: no RDMA$/);
});

test('status: states have colours, which take no room', (t) => {
  const nodes = [rowOf('a', report('a')), rowOf('b', { error: 'gone' })];
  const paint = (tone: string, text: string): string => `\u001b[${tone.length}m${text}\u001b[0m`;
  const text = formatStatus(resultOf(nodes), { paint });
  t.true(text.includes('\u001b[4mup         \u001b[0m'), text);
  t.true(text.includes('\u001b[3munreachable\u001b[0m'), text);
  t.is(stripVTControlCharacters(text), formatStatus(resultOf(nodes)));
});

test('status: addresses are in a table of their own, each as far as it can be reached from here', (t) => {
  const nodes = [
    nodeRow(
      member('10.0.0.2', '127.0.0.1'),
      { node_id: 'x', data_protocol: 'tcp', is_meta: true },
      { ...SHARE, isHere: false },
    ),
    nodeRow(member('10.0.0.3', '10.0.0.3', 0), { error: 'gone' }, { ...SHARE, isHere: false }),
  ];
  const text = formatStatus(resultOf(nodes));
  t.regex(text, /^node +head +control +data +metrics$/m);
  t.regex(text, /^node at 10\.0\.0\.2 +head +10\.0\.0\.2:7001 +tcp +31997, only on that host$/m);
  t.regex(text, /^node at 10\.0\.0\.3 +10\.0\.0\.3:7001 +- +-$/m);
  t.notRegex(formatStatus(resultOf(nodes), { isBrief: true }), /control/);
});

test('status: the discovery masters are named, so that a new node can be given one of them', (t) => {
  const answer = { node_id: 'x', masters: ['10.0.0.2:31990', '10.0.0.3:31990'] };
  const text = formatStatus(resultOf([rowOf('x', answer)]));
  t.regex(text, /^ {2}masters +10\.0\.0\.2:31990, 10\.0\.0\.3:31990$/m);
});

test('status: clients have a table of their own, where there are any; no other node’s words steer the terminal', (t) => {
  const client = {
    name: 'engine-0',
    pid: 4711,
    mode: 'direct',
    requests: 1200,
    errors: 3,
    in_flight: 2,
    hits: 3,
    misses: 1,
    pages_written: 9,
    read_bytes: 3 * 2 ** 20,
    written_bytes: 2 ** 30,
    mapped_bytes: 2 ** 31,
  };
  const clients = {
    socket: '/run/meshcache/node.sock',
    attached: 40,
    busiest: [client, { ...client, name: 'b\u001b[2J', lookups: 8, found: 2 }],
  };
  const row = (host: string, more: object) =>
    nodeRow(member(host, ''), { node_id: 'x', ...more }, { ...SHARE, isHere: false });
  const nodes = [row('10.0.0.2', { clients }), row('10.0.0.3', { clients: { ...clients, attached: 0, busiest: [] } })];
  nodes.push(row('10.0.0.4', {}));
  const result = resultOf(nodes);
  const text = formatStatus(result, { columns: 140 });
  t.is(result.totals.clients, 40);
  t.regex(text, /^client +process +node +mode +requests +in flight +hits +read +written +errors +mapped$/m);
  t.regex(text, /^engine-0 +4711 +node at 10\.0\.0\.2 +direct +1,200 +2 +75\.0 % +3 MiB +1 GiB +3 +2 GiB$/m);
  t.regex(text, /^b\?\[2J +4711 .* 2 +25\.0 % +3 MiB/m, 'of its lookups, not of its reads');
  t.regex(text, /^node at 10\.0\.0\.2: 38 more clients/m);
  t.notRegex(formatStatus(resultOf(nodes.slice(1)), { columns: 140 }), /^client/m);
  t.notRegex(formatStatus(result, { columns: 140, isBrief: true }), /^client/m);
  for (const line of formatStatus(result, { columns: 80 }).split('\n')) t.true(line.length <= 80, line);
  t.deepEqual(JSON.parse(JSON.stringify(result)).nodes[0].clients, clients);
});

test('status: an answer with clients that cannot be shown is none of this version', (t) => {
  t.true(isStatus({ node_id: 'x' }));
  t.true(isStatus({ node_id: 'x', clients: { socket: '', attached: 0, busiest: [] } }));
  for (const clients of [null, 'many', [], { attached: 1 }, { attached: '1', busiest: [] }]) {
    t.false(isStatus({ node_id: 'x', clients }), JSON.stringify(clients));
  }
  for (const client of [null, 'engine', {}, { name: 'engine' }]) {
    t.false(isStatus({ node_id: 'x', clients: { attached: 1, busiest: [client] } }), JSON.stringify(client));
  }
});

test('status: doors for Redis clients have a table of their own, where there are any', (t) => {
  const redis = { addresses: ['10.0.0.2:6379', '/run/redis\u001b[2J'], connections: 12, commands: 3456 };
  const nodes = [rowOf('node-1', report('node-1', { redis })), rowOf('node-2', report('node-2'))];
  const text = formatStatus(resultOf(nodes), { columns: 140 });
  t.regex(text, /^node +redis +connections +commands$/m);
  t.regex(text, /^node-1 +10\.0\.0\.2:6379, \/run\/redis\?\[2J +12 +3,456$/m);
  t.notRegex(text, /^node-2 .* 0$/m);
  t.notRegex(formatStatus(resultOf(nodes.slice(1)), { columns: 140 }), /redis/);
  t.notRegex(formatStatus(resultOf(nodes), { columns: 140, isBrief: true }), /redis/);
  t.true(isStatus({ node_id: 'x', redis }));
  for (const other of [null, 'door', {}, { ...redis, addresses: [1] }, { ...redis, commands: '1' }]) {
    t.false(isStatus({ node_id: 'x', redis: other }), JSON.stringify(other));
  }
});

test('status: prefetched pages stand in a table of their own, and are checked', (t) => {
  const prefetched = { brought: 1200, used: 1000, wasted: 50, unread_bytes: 3 * 2 ** 20 };
  const nodes = [rowOf('node-1', report('node-1', { prefetched })), rowOf('node-2', report('node-2'))];
  const text = formatStatus(resultOf(nodes));
  t.regex(text, /^node +prefetched +used +wasted +unread\n[- ]+\nnode-1 +1,200 +1,000 +50 +3 MiB$/m);
  t.is(text.match(/unread/g)?.length, 1);
  t.true(isStatus({ node_id: 'x', prefetched }));
  for (const wrong of [null, [], { ...prefetched, used: '1' }]) {
    t.false(isStatus({ node_id: 'x', prefetched: wrong }), JSON.stringify(wrong));
  }
});

test('status: pins with names have a table of their own, where there are any', (t) => {
  const named_pins = [
    { namespace: 'llama\u001b[2J', name: 'system-prompt', pages: 1200, bytes: 2 ** 30 },
    { namespace: '', name: 'b\u001b[2J', pages: 1, bytes: 4096 },
  ];
  const nodes = [rowOf('node-1', report('node-1', { named_pins })), rowOf('node-2', report('node-2'))];
  const text = formatStatus(resultOf(nodes), { columns: 140 });
  t.regex(text, /^pin by name +node +namespace +pages +pinned$/m);
  t.regex(text, /^system-prompt +node-1 +llama\?\[2J +1,200 +1 GiB$/m);
  t.regex(text, /^b\?\[2J +node-1 +1 +4 KiB$/m);
  t.notRegex(formatStatus(resultOf(nodes.slice(1)), { columns: 140 }), /pin by name/);
  t.notRegex(formatStatus(resultOf(nodes), { columns: 140, isBrief: true }), /pin by name/);
  t.deepEqual(JSON.parse(JSON.stringify(resultOf(nodes))).nodes[0].named_pins, named_pins);
  t.true(isStatus({ node_id: 'x', named_pins }));
  const [pin] = named_pins;
  for (const wrong of [null, 'pins', {}, [null], [{ ...pin, name: 1 }], [{ ...pin, pages: '1' }], [{ name: 'a' }]]) {
    t.false(isStatus({ node_id: 'x', named_pins: wrong }), JSON.stringify(wrong));
  }
});

test('status: quotas have a table of their own, where there are any', (t) => {
  const use = { entries: 1200, used_bytes: 2 ** 30, min_bytes: 2 ** 29, max_bytes: 2 ** 31, evictions: 3456 };
  const quotas = [
    { namespace: 'other', pool: { ...use, min_bytes: 0 }, disk: null },
    { namespace: 'a\u001b[2J', pool: use, disk: { ...use, entries: 7 } },
  ];
  const nodes = [rowOf('node-1', report('node-1', { quotas })), rowOf('node-2', report('node-2'))];
  nodes.push(rowOf('node-3', { error: 'gone' }));
  const text = formatStatus(resultOf(nodes), { columns: 140 });
  t.regex(text, /^node +namespace +tier +pages +used +min +max +evictions$/m);
  t.regex(text, /^node-1 +other +pool +1,200 +1 GiB +0 B +2 GiB +3,456$/m);
  t.regex(text, /^node-1 +a\?\[2J +pool +1,200 +1 GiB +512 MiB +2 GiB +3,456$/m);
  t.regex(text, /^node-1 +a\?\[2J +disk +7 +1 GiB +512 MiB +2 GiB +3,456$/m);
  t.notRegex(formatStatus(resultOf(nodes.slice(1)), { columns: 140 }), /namespace/);
  t.notRegex(formatStatus(resultOf(nodes), { columns: 140, isBrief: true }), /namespace/);
  for (const line of formatStatus(resultOf(nodes), { columns: 60 }).split('\n')) t.true(line.length <= 60, line);
  t.deepEqual(JSON.parse(JSON.stringify(resultOf(nodes))).nodes[0].quotas, quotas);
  t.true(isStatus({ node_id: 'x', quotas }));
  t.true(isStatus({ node_id: 'x', quotas: [] }));
  const [other] = quotas;
  const { evictions: _, ...fewer } = use;
  for (const wrong of [
    null,
    'quotas',
    {},
    [null],
    [{}],
    [{ ...other, namespace: 1 }],
    [{ ...other, pool: null }],
    [{ ...other, pool: fewer }],
    [{ ...other, disk: undefined }],
    [{ ...other, disk: fewer }],
  ]) {
    t.false(isStatus({ node_id: 'x', quotas: wrong }), JSON.stringify(wrong));
  }
});
