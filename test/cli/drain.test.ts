import test from 'ava';
import type { DrainResult } from '../../src/cli/status/drain.js';
import { collect, firstLine, runCli, startCli } from '../_support/cli/run-cli.js';
import { freePort, freeze } from '../_support/support.js';

interface Ready {
  readonly node_id: string;
}

async function startNode(
  t: { teardown(fn: () => void): void },
  addr: string,
  env: Readonly<Record<string, string>> = {},
) {
  const args = ['node', '--discovery-addr', addr, '--pool', '1mb', '-o', 'metrics_port=0', '--json'];
  const child = startCli([...args, '-o', 'heartbeat_interval=0.5', '-o', 'member_ttl=60'], { env });
  t.teardown(() => child.kill('SIGKILL'));
  const ended = collect(child);
  const ready = JSON.parse(await firstLine(child)) as Ready;
  return { ...ready, child, ended };
}

test.serial('drain: a node that is drained leaves its cluster and ends with status 0', async (t) => {
  const addr = `127.0.0.1:${await freePort()}`;
  const head = await startNode(t, addr);
  const node = await startNode(t, addr);
  const run = await runCli(['drain', node.node_id, '--discovery-addr', addr, '--json']);
  t.is(run.status, 0, run.stderr);
  const result = JSON.parse(run.stdout) as DrainResult;
  t.like(result, { node_id: node.node_id, wanted_pages: 0, handed_pages: 0, left_pages: 0, has_ended: true });
  const { status, stderr } = await node.ended;
  t.is(status, 0, stderr);
  const { nodes } = JSON.parse((await runCli(['status', '--discovery-addr', addr, '--json'])).stdout);
  t.deepEqual(
    nodes.map((left: Ready) => left.node_id),
    [head.node_id],
  );

  const gone = await runCli(['drain', node.node_id, '--discovery-addr', addr]);
  t.is(gone.status, 1);
  t.regex(gone.stderr, new RegExp(`no node "${node.node_id}" in the cluster; its members are ${head.node_id}`));
  const dead = await runCli(['drain', result.control_endpoint]);
  t.is(dead.status, 1);
  t.regex(dead.stderr, /cannot be drained: 127\.0\.0\.1:\d+/);
});

test.serial(
  'drain: a master that does not answer for a while, as on a machine that is too busy, is asked once more',
  async (t) => {
    const addr = `127.0.0.1:${await freePort()}`;
    const node = await startNode(t, addr);
    await freeze(node.child);
    // Longer than one call takes to time out, and shorter than two.
    setTimeout(() => node.child.kill('SIGCONT'), 3_000);
    const run = await runCli(['drain', node.node_id, '--discovery-addr', addr]);
    t.is(run.status, 0, run.stderr);
    t.is((await node.ended).status, 0);
  },
);

test.serial('drain: by its control endpoint, the last one of a cluster; the text says what became of it', async (t) => {
  const addr = `127.0.0.1:${await freePort()}`;
  const node = await startNode(t, addr);
  const { nodes } = JSON.parse((await runCli(['status', '--discovery-addr', addr, '--json'])).stdout);
  const run = await runCli(['drain', nodes[0].control_endpoint, '--timeout', '5']);
  t.is(run.status, 0, run.stderr);
  t.regex(run.stdout, new RegExp(`^node ${node.node_id} has left its cluster and ended \\(`));
  t.is((await node.ended).status, 0);
});

test.serial('drain: with a cluster secret only who knows it drains a node', async (t) => {
  const addr = `127.0.0.1:${await freePort()}`;
  const secret = { MESHCACHE_CLUSTER_SECRET: 'what the nodes of this test know' };
  const node = await startNode(t, addr, secret);
  const status = await runCli(['status', '--discovery-addr', addr, '--json'], { env: secret });
  const endpoint = JSON.parse(status.stdout).nodes[0].control_endpoint as string;
  const refused = await runCli(['drain', endpoint]);
  t.is(refused.status, 1, refused.stdout);
  t.is(node.child.exitCode, null);
  const run = await runCli(['drain', endpoint], { env: secret });
  t.is(run.status, 0, run.stderr);
  t.is((await node.ended).status, 0);
});

test.serial('drain: what is missing or wrong is said', async (t) => {
  const noAddress = await runCli(['drain', 'node-1']);
  t.is(noAddress.status, 2);
  t.regex(noAddress.stderr, /--discovery-addr is missing: the address of node "node-1" is asked for there/);
  const noTime = await runCli(['drain', 'node-1', '--timeout', 'soon']);
  t.is(noTime.status, 2);
  t.regex(noTime.stderr, /--timeout/);
  const help = await runCli(['drain', '--help']);
  for (const line of help.stdout.split('\n')) t.true(line.length <= 132, line);
});
