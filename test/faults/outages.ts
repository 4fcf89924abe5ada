import { setTimeout as sleep } from 'node:timers/promises';
import type { FaultCluster } from './cluster.js';
import type { NodeProcess } from './node-process.js';
import { ownStalls } from './own-stalls.js';
import type { Progress, Violation } from './protocol.js';
import { SOURCE_TROUBLES, type SourceTrouble } from './source.js';

/** Time from the return of the source in which a new node must have joined, on a machine that is idle enough. */
const JOIN_MAX_MS = 5_000;
/** Time for which running nodes are looked at while the source is in trouble: longer than their time-to-live. */
const LOOK_MS = 3_000;
const LOOK_EVERY_MS = 100;
/** Time after which a node that does not join is given up. */
const GIVE_UP_MS = 30_000;

export interface OutagesOptions {
  readonly cluster: FaultCluster;
  readonly nodes: number;
  readonly onViolation: (violation: Violation) => void;
  readonly onEvent: (what: string, fields: object) => void;
}

/**
 * Brings the source of addresses into each trouble, while the nodes have no other. Nodes that run must keep each other,
 * and one that is killed and started again meanwhile must have joined soon after the return. Resolves with the longest
 * time that this took.
 */
export async function sourceOutages(options: OutagesOptions): Promise<number> {
  let longestMs = 0;
  for (const [index, trouble] of SOURCE_TROUBLES.entries()) {
    longestMs = Math.max(longestMs, await outage(options, { trouble, node: 1 + (index % options.nodes) }));
  }
  return longestMs;
}

async function outage(
  { cluster, nodes, onViolation, onEvent }: OutagesOptions,
  { trouble, node }: { readonly trouble: SourceTrouble; readonly node: number },
): Promise<number> {
  const { source } = cluster;
  if (source === undefined) return 0;
  const others = cluster.running().filter((process) => process.node !== node);
  onEvent('outage', { trouble, node });
  const end = await source.trouble(trouble);
  await cluster.node(node).kill();
  const started = cluster.startNode(node);
  await look(others, { trouble, onViolation });
  await started;
  const starvedBefore = await starvedMs(cluster);
  const fromMs = performance.now();
  await end();
  const returnedMs = performance.now();
  const all = cluster.running();
  while (!(await allKnowAll(all, nodes)) && performance.now() - returnedMs < GIVE_UP_MS) await sleep(LOOK_EVERY_MS);
  const tookMs = Math.round(performance.now() - returnedMs);
  const starved = (await starvedMs(cluster)) - starvedBefore;
  onEvent('joined', { trouble, node, tookMs, starved });
  if (tookMs > JOIN_MAX_MS + Math.max(0, starved) + ownStalls.msWithin(fromMs, performance.now())) {
    onViolation({
      kind: 'membership',
      node,
      detail: `has joined ${tookMs} ms after the return of its source (${trouble})`,
    });
  }
  return tookMs;
}

/** Each of the nodes must know the others all the time. */
async function look(
  processes: readonly NodeProcess[],
  { trouble, onViolation }: Pick<OutagesOptions, 'onViolation'> & { readonly trouble: SourceTrouble },
): Promise<void> {
  const untilMs = performance.now() + LOOK_MS;
  const wanted = processes.map(({ node }) => `node-${node}`);
  while (performance.now() < untilMs) {
    for (const process of processes) {
      const members = await membersOf(process);
      const lost = members === undefined ? [] : wanted.filter((id) => !members.includes(id));
      if (lost.length === 0) continue;
      onViolation({ kind: 'membership', node: process.node, detail: `has lost ${lost.join()} (source: ${trouble})` });
      return;
    }
    await sleep(LOOK_EVERY_MS);
  }
}

async function allKnowAll(processes: readonly NodeProcess[], nodes: number): Promise<boolean> {
  const seen = await Promise.all(processes.map(membersOf));
  return seen.every((members) => members?.length === nodes);
}

/** Undefined: it does not say. */
function membersOf(process: NodeProcess): Promise<readonly string[] | undefined> {
  return process.ask<string[]>({ what: 'members' }).catch(() => undefined);
}

/** The longest time for which one of the processes has waited for a processor until now. */
async function starvedMs(cluster: FaultCluster): Promise<number> {
  const all = await Promise.all(
    cluster.running().map((process) => process.ask<Progress>({ what: 'progress' }).catch(() => undefined)),
  );
  return Math.max(0, ...all.map((progress) => progress?.starvedMs ?? 0));
}
