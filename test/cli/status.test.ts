import test from 'ava';
import { isStatus } from '../../src/cli/status/cluster-query.js';
import { formatStatus, nodeRow } from '../../src/cli/status/status.js';
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

test('status: a table where there is room, else a block for each node, none of it lost', (t) => {
  const nodes = [
    nodeRow(member('10.0.0.2', '127.0.0.1'), { node_id: 'x', data_protocol: 'tcp' }, { ...SHARE, isHere: false }),
    nodeRow(member('10.0.0.3', '10.0.0.3', 0), { error: 'gone' }, { ...SHARE, isHere: false }),
  ];
  const result = { discovery_addr: '10.0.0.1:1', nodes };
  const table = formatStatus(result);
  t.regex(table, /^node +control +ring .* metrics$/m);
  t.regex(table, /^node at 10\.0\.0\.2 .* up .* 31997, only on that host$/m);
  const width = Math.max(...table.split('\n').map((line) => line.length));
  t.is(formatStatus(result, width), table);
  const blocks = formatStatus(result, width - 1);
  for (const line of blocks.split('\n')) t.true(line.length <= 80, line);
  t.regex(blocks, /^node at 10\.0\.0\.2\n {2}control +10\.0\.0\.2:7001\n/m);
  t.regex(blocks, /^ {2}metrics +31997, only on that host$/m);
  t.regex(blocks, /^node at 10\.0\.0\.3\n(.*\n)+ {2}state +unreachable: gone$/m);
});

test('status: the discovery masters are named, so that a new node can be given one of them', (t) => {
  const answer = { node_id: 'x', masters: ['10.0.0.2:31990', '10.0.0.3:31990'] };
  const row = nodeRow(member('10.0.0.2', ''), answer, { ...SHARE, isHere: false });
  const text = formatStatus({ discovery_addr: '10.0.0.1:1', nodes: [row] });
  t.regex(text, /reachable\ndiscovery masters: 10\.0\.0\.2:31990, 10\.0\.0\.3:31990\n\n/);
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
    busiest: [client, { ...client, name: 'b\u001b[2J' }],
  };
  const row = (host: string, more: object) =>
    nodeRow(member(host, ''), { node_id: 'x', ...more }, { ...SHARE, isHere: false });
  const nodes = [row('10.0.0.2', { clients }), row('10.0.0.3', { clients: { ...clients, attached: 0, busiest: [] } })];
  nodes.push(row('10.0.0.4', {}));
  const result = { discovery_addr: '10.0.0.1:1', nodes };
  const text = formatStatus(result);
  const [head, ...rows] = text.split('\n\n')[1]!.split('\n');
  const column = head!.indexOf('clients');
  t.deepEqual(
    rows.slice(1).map((line) => line.slice(column).split(' ')[0]),
    ['40', '0', '-'],
  );
  t.regex(text, /^client +process +node +mode +requests +in flight +hits +read +written +errors +mapped$/m);
  t.regex(text, /^engine-0 +4711 +node at 10\.0\.0\.2 +direct +1,200 +2 +75\.0 % +3 MiB +1 GiB +3 +2 GiB$/m);
  t.regex(text, /^b\?\[2J /m);
  t.regex(text, /^node at 10\.0\.0\.2: 38 more clients/m);
  t.notRegex(formatStatus({ ...result, nodes: nodes.slice(1) }), /^client/m);
  for (const line of formatStatus(result, 80).split('\n')) t.true(line.length <= 80, line);
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
