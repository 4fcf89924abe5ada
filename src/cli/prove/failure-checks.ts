import { type Clock, within } from '../../base/environment/clock.js';
import { CommandFailure } from '../../command/context.js';
import type { Cluster, ClusterAgent } from '../cluster/cluster.js';
import { freshKeys, trip, withNodes } from './own-nodes.js';
import { failed, passed, type Step, type Verdict } from './proof.js';

const AREA = 'Failures';
const ADVICE =
  'the nodes of this check could not start, or did not find each other again; the detail has the end of their log';
export const PAGE_BYTES = 64 * 2 ** 10;
const PAGES = 200;
const NODES = 3;
/** How long a call of a healthy node may take while another one is lost, in milliseconds. */
const CALL_MAX_MS = 30_000;
/** How long the nodes may take to work together again, in milliseconds. */
const BACK_MAX_MS = 60_000;

export interface FailureOptions {
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly config: Readonly<Record<string, unknown>>;
}

/** A node is lost in some way, and comes back; the others must go on, and no byte may be wrong. */
export function failureSteps(options: FailureOptions): Step[] {
  const step = (check: string, run: (cluster: Cluster, victim: ClusterAgent) => Promise<Verdict>): Step => ({
    area: AREA,
    check,
    advice: ADVICE,
    run: () =>
      withNodes({ nodes: NODES, pageBytes: PAGE_BYTES, ...options }, (cluster) => run(cluster, victimOf(cluster))),
  });
  const { clock } = options;
  return [
    step('a node is killed', (cluster, victim) =>
      loseAndRegain(cluster, victim, {
        clock,
        lose: () => cluster.kill(victim.index),
        regain: () => cluster.restart(victim.index),
      }),
    ),
    step('a node is frozen', (cluster, victim) => {
      const signalled = (signal: NodeJS.Signals) => async (): Promise<void> => void process.kill(victim.pid, signal);
      return loseAndRegain(cluster, victim, { clock, lose: signalled('SIGSTOP'), regain: signalled('SIGCONT') });
    }),
  ];
}

/** A node that holds pages and does not run the discovery. */
export function victimOf(cluster: Cluster): ClusterAgent {
  return cluster.agents.find(({ isMeta }) => !isMeta) ?? (cluster.agents.at(-1) as ClusterAgent);
}

interface Loss {
  readonly clock: Clock;
  lose(): Promise<void>;
  regain(): Promise<void>;
}

/**
 * The lost node has pages that a healthy one reads while it is away: each is a miss or right. Pages of healthy nodes
 * stay readable, and the node that is back takes part again.
 */
export async function loseAndRegain(cluster: Cluster, victim: ClusterAgent, loss: Loss): Promise<Verdict> {
  const { clock } = loss;
  const healthy = cluster.agents.filter(({ index }) => index !== victim.index);
  const [first, last] = [healthy[0] as ClusterAgent, healthy.at(-1) as ClusterAgent];
  const lostKeys = freshKeys(PAGES);
  await victim.run([lostKeys]);
  let wrongBytes = 0;
  await loss.lose();
  const startMs = clock.nowMs();
  const reads = first.run([lostKeys]).then(({ counts }) => {
    wrongBytes += counts.wrongBytes;
  });
  if (!(await within(clock, CALL_MAX_MS, reads))) {
    await loss.regain();
    return failed(`a healthy node read for more than ${CALL_MAX_MS / 1000} s while another one was away`, ADVICE);
  }
  const answeredMs = clock.nowMs() - startMs;
  if (first !== last) wrongBytes += await pagesOfHealthy(first, last, clock);
  await loss.regain();
  const backStartMs = clock.nowMs();
  const back = cluster.agents[victim.index] as ClusterAgent;
  wrongBytes += await takesPart(first, back, clock);
  const { counts } = await back.run([lostKeys]);
  wrongBytes += counts.wrongBytes;
  const figures = {
    wrong_bytes: wrongBytes,
    answered_ms: Math.round(answeredMs),
    back_ms: Math.round(clock.nowMs() - backStartMs),
  };
  if (wrongBytes > 0) {
    return failed(
      `${wrongBytes} wrong bytes were delivered`,
      'stop using this installation, and send this report',
      figures,
    );
  }
  const detail = `over ${first.protocol.toUpperCase()}: no wrong byte; a node that asked for ${PAGES} lost pages had its answer after ${figures.answered_ms} ms, and the node that was away took part again after ${figures.back_ms} ms`;
  return passed(detail, figures);
}

/** Pages go between the healthy nodes while the other one is away. Returns the wrong bytes. */
async function pagesOfHealthy(first: ClusterAgent, last: ClusterAgent, clock: Clock): Promise<number> {
  return untilComplete(first, last, clock, 'the healthy nodes could not read pages of each other');
}

async function takesPart(first: ClusterAgent, back: ClusterAgent, clock: Clock): Promise<number> {
  const failure = 'the node that was away has not taken part again';
  return (await untilComplete(back, first, clock, failure)) + (await untilComplete(first, back, clock, failure));
}

/** Trips with fresh pages until one is complete. Returns the wrong bytes of all. Throws when none is in a minute. */
async function untilComplete(
  writer: ClusterAgent,
  reader: ClusterAgent,
  clock: Clock,
  failure: string,
): Promise<number> {
  const untilMs = clock.nowMs() + BACK_MAX_MS;
  let wrongBytes = 0;
  while (clock.nowMs() < untilMs) {
    const done = await trip(writer, reader, freshKeys(PAGES));
    wrongBytes += done.wrongBytes;
    if (done.read === done.pages) return wrongBytes;
  }
  throw new CommandFailure(`${failure} within ${BACK_MAX_MS / 1000} s`);
}
