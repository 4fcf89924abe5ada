import type { ChildProcess } from 'node:child_process';
import type { ExecutionContext } from 'ava';
import { collect, firstLine, runCli, startCli, until } from './run-cli.js';

const SMALL = ['--no-client-socket', '--pool', '1mb', '--json', '-o', 'metrics_port=0', '-o', 'protocol=tcp'];
const FAST = ['-o', 'heartbeat_interval=0.2', '-o', 'member_ttl=1'];

export interface SourceNode {
  readonly host: string;
  readonly child: ChildProcess;
  /** Everything that it has written to stderr, at its end. */
  readonly ended: ReturnType<typeof collect>;
}

/** Starts `meshcache node` at a loopback address of its own, which stands for a host of its own. */
export function startNode(
  t: ExecutionContext,
  discoveryAddr: string,
  host: string,
  options: readonly string[] = [],
): SourceNode {
  const own = ['-o', `local_hostname=${host}`, '-o', `node_id=${host}`];
  const given = [...SMALL, ...FAST, ...own, ...options];
  const child = startCli(['node', '--discovery-addr', discoveryAddr, ...given], { env: { MESHCACHE_LOG: 'info' } });
  t.teardown(() => void child.kill('SIGKILL'));
  const ended = collect(child);
  // A test that expects the end looks at `ended`.
  void firstLine(child).catch(() => {});
  return { host, child, ended };
}

/** The ids of the members as a master at `endpoint` has them; empty if none answers there. */
export async function membersAt(endpoint: string): Promise<string> {
  const run = await runCli(['status', '--discovery-addr', endpoint, '--json']);
  if (run.status !== 0) return '';
  const { nodes } = JSON.parse(run.stdout) as { readonly nodes: readonly { readonly node_id: string }[] };
  return nodes.map(({ node_id }) => node_id).join();
}

/** Waits until a master at `endpoint` knows exactly these members. */
export function untilMembersAt(endpoint: string, hosts: readonly string[]): Promise<void> {
  const ids = [...hosts].sort().join();
  return until(async () => (await membersAt(endpoint)).split(',').sort().join() === ids);
}
