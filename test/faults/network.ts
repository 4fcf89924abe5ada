import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

const NAME = 'mcfault';
const SUBNET = '10.89.0';
/** Ports of a node's servers; the proxy of a node listens {@link PROXY_OFFSET} further on. */
export const PORTS = { discovery: 31990, control: 31001, data: 31002 } as const;
export const PROXY_OFFSET = 10_000;
/** Address of servers beside the nodes. */
export const HUB_HOST = `${SUBNET}.254`;

/** What a node does not let in. */
export interface Barrier {
  readonly unheard: ReadonlySet<number>;
  readonly lossPercent: number;
}

/** Why network namespaces cannot be made here; undefined: they can. */
export function whyNoNetworks(): string | undefined {
  if (process.platform !== 'linux') return `needs Linux, this is ${process.platform}`;
  if (process.getuid?.() !== 0) return 'needs root';
  for (const [tool, args] of [
    ['ip', ['-V']],
    ['nft', ['-v']],
  ] as const) {
    if (spawnSync(tool, args).status !== 0) return `needs ${tool} (Debian: apt install iproute2 nftables)`;
  }
  const name = `${NAME}${process.pid}-try`;
  try {
    ip('netns', 'add', name);
    ip('-n', name, 'link', 'add', 'br0', 'type', 'bridge');
    ip('-n', name, 'link', 'add', 'veth1', 'type', 'veth', 'peer', 'name', 'veth2');
    filter(name, 'table ip t { chain in { type filter hook input priority 0; numgen random mod 100 < 1 drop; }; }');
    filter(name, 'table ip u { chain p { type nat hook prerouting priority -100; tcp dport 1 redirect to :2; }; }');
    return undefined;
  } catch (error) {
    return String((error as { stderr?: unknown }).stderr ?? error)
      .trim()
      .split('\n')[0];
  } finally {
    spawnSync('ip', ['netns', 'del', name]);
  }
}

/**
 * One network namespace a node, joined by a bridge in a further one. Names have this process's id: several suites at a
 * time are in nobody's way, and what a killed one has left is known.
 */
export class FaultNetwork {
  readonly #nodes: number;

  constructor(nodes: number) {
    this.#nodes = nodes;
    try {
      this.#make();
    } catch (error) {
      this.remove();
      throw error;
    }
  }

  nameOf(node: number): string {
    return this.#name(String(node));
  }

  /** The namespace with the bridge, where servers beside the nodes run, at {@link HUB_HOST}. */
  get hub(): string {
    return this.#name('hub');
  }

  /** Cuts and joins the node's link. */
  setLink(node: number, isUp: boolean): void {
    ip('-n', this.#name('hub'), 'link', 'set', `n${node}`, isUp ? 'up' : 'down');
  }

  setBarrier(node: number, { unheard, lossPercent }: Barrier): void {
    const rules = ['flush chain ip faults in'];
    const from = (hosts: string, what: string) => `add rule ip faults in iifname "eth0" ip saddr ${hosts} ${what}`;
    if (unheard.size > 0) rules.push(from(`{ ${[...unheard].map(hostOf).join(', ')} }`, 'drop'));
    if (lossPercent > 0) rules.push(from(`${SUBNET}.0/24`, `numgen random mod 100 < ${lossPercent} drop`));
    filter(this.nameOf(node), rules.join('\n'));
  }

  /**
   * New connections of others to these nodes' servers come to a proxy there instead; those of the proxy itself do not.
   */
  setProxied(nodes: readonly number[]): void {
    for (let node = 1; node <= this.#nodes; node++) {
      const rules = ['table ip proxy { }', 'delete table ip proxy'];
      if (nodes.includes(node)) {
        rules.push('table ip proxy { chain pre { type nat hook prerouting priority -100; }; }');
        for (const port of Object.values(PORTS)) {
          const to = port + PROXY_OFFSET;
          rules.push(`add rule ip proxy pre iifname "eth0" tcp dport ${port} redirect to :${to}`);
        }
      }
      filter(this.nameOf(node), rules.join('\n'));
    }
  }

  /** All links joined, nothing dropped. */
  heal(): void {
    for (let node = 1; node <= this.#nodes; node++) {
      this.setLink(node, true);
      this.setBarrier(node, { unheard: new Set(), lossPercent: 0 });
    }
  }

  /** Ends what is left in the namespaces, and them. */
  remove(): void {
    removeNamespaces((name) => name.startsWith(this.#name('')));
  }

  #make(): void {
    const hub = this.#name('hub');
    ip('netns', 'add', hub);
    ip('-n', hub, 'link', 'add', 'br0', 'type', 'bridge');
    ip('-n', hub, 'addr', 'add', `${HUB_HOST}/24`, 'dev', 'br0');
    for (const device of ['lo', 'br0']) ip('-n', hub, 'link', 'set', device, 'up');
    for (let node = 1; node <= this.#nodes; node++) {
      const name = this.nameOf(node);
      ip('netns', 'add', name);
      ip('-n', hub, 'link', 'add', `n${node}`, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', name);
      ip('-n', hub, 'link', 'set', `n${node}`, 'master', 'br0', 'up');
      ip('-n', name, 'addr', 'add', `${hostOf(node)}/24`, 'dev', 'eth0');
      for (const device of ['lo', 'eth0']) ip('-n', name, 'link', 'set', device, 'up');
      filter(name, 'table ip faults { chain in { type filter hook input priority 0; policy accept; }; }');
    }
  }

  #name(part: string): string {
    return `${NAME}${process.pid}-${part}`;
  }
}

export function hostOf(node: number): string {
  return `${SUBNET}.${node}`;
}

/** Ids of suites that run no more, among those that namespaces are left of; removes these. */
export function removeLeftNetworks(): void {
  removeNamespaces((name) => {
    const pid = new RegExp(`^${NAME}(\\d+)-`).exec(name)?.[1];
    return pid !== undefined && !isSuite(Number(pid));
  });
}

/** Whether the process is a fault suite, and not one that got its id. */
export function isSuite(pid: number): boolean {
  if (pid === process.pid) return true;
  try {
    return /faults-(run|suite)/.test(readFileSync(`/proc/${pid}/cmdline`, 'utf8'));
  } catch {
    return false;
  }
}

function removeNamespaces(isOurs: (name: string) => boolean): void {
  const { stdout } = spawnSync('ip', ['netns', 'list'], { encoding: 'utf8' });
  for (const name of stdout.split('\n').map((line) => line.split(' ')[0] as string)) {
    if (name === '' || !isOurs(name)) continue;
    const pids = spawnSync('ip', ['netns', 'pids', name], { encoding: 'utf8' }).stdout;
    for (const pid of pids.split('\n').filter(Boolean)) {
      try {
        process.kill(Number(pid), 'SIGKILL');
      } catch {
        // It has ended by itself.
      }
    }
    spawnSync('ip', ['netns', 'del', name]);
  }
}

function ip(...args: string[]): void {
  execFileSync('ip', args, { stdio: ['ignore', 'pipe', 'pipe'] });
}

function filter(name: string, rules: string): void {
  execFileSync('ip', ['netns', 'exec', name, 'nft', '-f', '-'], { input: `${rules}\n`, stdio: 'pipe' });
}
