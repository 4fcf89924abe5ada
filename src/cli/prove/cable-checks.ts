import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { findProgram } from '../../processes/programs.js';
import { type FailureOptions, loseAndRegain, PAGE_BYTES, victimOf } from './failure-checks.js';
import { withNodes } from './own-nodes.js';
import { notRun, type Step, type Verdict } from './proof.js';

const run = promisify(execFile);

/** Addresses for documentation (RFC 5737); nobody outside the two network namespaces sees them. */
const ADDRESSES = ['192.0.2.1', '192.0.2.2'] as const;
const DISCOVERY_PORT = 31990;
const INTERFACE = 'cable';
const ADVICE = 'run it as root on a machine with iproute2, outside of a container, to have this check';

/** The cable between two nodes is cut, and joined again. The network of the machine is not touched. */
export function cableStep(options: FailureOptions): Step {
  return {
    area: 'Failures',
    check: 'the cable is cut',
    advice: ADVICE,
    run: async () => {
      if (process.getuid?.() !== 0) return notRun('only root may make network namespaces', ADVICE);
      const ip = await findProgram('ip');
      if (ip === undefined) return notRun('there is no program ip on PATH', ADVICE);
      const names = [0, 1].map((index) => `meshcache-prove-${process.pid}-${index}`) as [string, string];
      try {
        const reason = await cabled(ip, names);
        if (reason !== undefined) return notRun(`network namespaces cannot be made: ${reason}`, ADVICE);
        return await cutAndJoin(ip, names, options);
      } finally {
        for (const name of names) await run(ip, ['netns', 'delete', name]).catch(() => {});
      }
    },
  };
}

/** Makes two network namespaces with a cable between them. Resolves with the reason if this machine does not let it. */
async function cabled(ip: string, names: readonly [string, string]): Promise<string | undefined> {
  try {
    for (const name of names) await run(ip, ['netns', 'add', name]);
    await run(ip, [
      ...['-n', names[0], 'link', 'add', INTERFACE, 'type', 'veth'],
      ...['peer', 'name', INTERFACE, 'netns', names[1]],
    ]);
    for (const [index, name] of names.entries()) {
      await run(ip, ['-n', name, 'address', 'add', `${ADDRESSES[index]}/24`, 'dev', INTERFACE]);
      await run(ip, ['-n', name, 'link', 'set', INTERFACE, 'up']);
      await run(ip, ['-n', name, 'link', 'set', 'lo', 'up']);
    }
    return undefined;
  } catch (error) {
    return (error as Error).message.split('\n').filter(Boolean).join('; ');
  }
}

function cutAndJoin(ip: string, names: readonly [string, string], options: FailureOptions): Promise<Verdict> {
  const nodes = {
    nodes: 2,
    pageBytes: PAGE_BYTES,
    ...options,
    discoveryAddr: `${ADDRESSES[0]}:${DISCOVERY_PORT}`,
    config: { ...options.config, protocol: 'tcp' },
    nodeConfig: (index: number) => ({ local_hostname: ADDRESSES[index] }),
    under: (index: number) => [ip, 'netns', 'exec', names[index] as string],
  };
  const cable = (state: string) => async (): Promise<void> => {
    await run(ip, ['-n', names[0], 'link', 'set', INTERFACE, state]);
  };
  const { clock } = options;
  return withNodes(nodes, (cluster) =>
    loseAndRegain(cluster, victimOf(cluster), { clock, lose: cable('down'), regain: cable('up') }),
  );
}
