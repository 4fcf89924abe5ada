/**
 * The fault suite: real nodes in network namespaces, faults by a seeded schedule, every byte checked. `--help` says the
 * rest.
 */
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { systemRandom } from '../../src/system/system-random.js';
import { DEADLINE_MS, GRACE_MS, longest } from './call-watch.js';
import { type FaultCluster, removeLeftFolders } from './cluster.js';
import { FaultNetwork, removeLeftNetworks, whyNoNetworks } from './network.js';
import type { Canary, Violation } from './protocol.js';
import { type Outcome, runScenario } from './scenario.js';
import { FAULT_KINDS, type FaultKind, type Schedule, type ScheduleOptions, scheduleOf } from './schedule.js';
import { SoakSamples } from './soak.js';
import { type SourceKind, whyNoSource } from './source.js';

const HELP = `node build/test/faults-run.js [options]

  --runs N         runs, each with a seed by chance (1)
  --seed N,...     these seeds instead
  --seconds N      time for faults in each run (30)
  --nodes N        (5)
  --faults K,...   ${FAULT_KINDS.join(', ')} (all)
  --source S,...   list, dns, etcd: where nodes find each other (each run by its seed: half of them list)
  --gap MS         mean time between two faults (900)
  --schedule FILE  one run by a schedule that an earlier run has written
  --canary         plants faults in the suite's own nodes: each must be found
  --ci             a fixed seed, and two by chance with DNS and with etcd, 8 s each, and the canaries
  --soak MINUTES   one run with few faults; what the processes take must not grow

Schedules, logs and the nodes' output: build/faults/SEED/. Exit status 0: nothing was found.
`;

const OUTPUT = fileURLToPath(new URL('./', import.meta.url));
const CI = { seeds: [1], byChance: ['dns', 'etcd'], seconds: 8 } as const;
const SOAK_GAP_MS = 12_000;

const { values: options } = parseArgs({
  options: {
    runs: { type: 'string', default: '1' },
    seed: { type: 'string' },
    seconds: { type: 'string', default: '30' },
    nodes: { type: 'string', default: '5' },
    faults: { type: 'string' },
    gap: { type: 'string', default: '900' },
    source: { type: 'string' },
    schedule: { type: 'string' },
    canary: { type: 'boolean', default: false },
    ci: { type: 'boolean', default: false },
    soak: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});

function whole(name: 'runs' | 'seconds' | 'nodes' | 'gap' | 'soak', least: number): number {
  const value = Number(options[name]);
  if (Number.isSafeInteger(value) && value >= least) return value;
  throw new Error(`--${name}: a whole number of at least ${least}, got ${options[name]}`);
}

function kinds(): FaultKind[] {
  const names = options.faults?.split(',').filter(Boolean) ?? FAULT_KINDS;
  for (const name of names) {
    if (!FAULT_KINDS.includes(name as FaultKind))
      throw new Error(`--faults: there is no ${name}; ${FAULT_KINDS.join(', ')}`);
  }
  return names as FaultKind[];
}

function seeds(): number[] {
  const byChance = (count: number) => Array.from({ length: count }, () => systemRandom.u32());
  if (options.ci) return [...CI.seeds];
  if (options.seed === undefined) return byChance(whole('runs', 1));
  const given = options.seed.split(',').map(Number);
  if (given.every((seed) => Number.isSafeInteger(seed) && seed >= 0 && seed < 2 ** 32)) return given;
  throw new Error(`--seed: whole numbers below 2^32, comma-separated, got ${options.seed}`);
}

/** Where the nodes of a run may find each other. */
function sources(): readonly ('list' | SourceKind)[] {
  if (options.source === undefined) return options.ci ? ['list'] : ['list', 'dns', 'list', 'etcd'];
  const names = options.source.split(',').filter(Boolean);
  for (const name of names) {
    if (!['list', 'dns', 'etcd'].includes(name)) throw new Error(`--source: list, dns or etcd, got ${name}`);
  }
  return names as ('list' | SourceKind)[];
}

function schedules(): Schedule[] {
  if (options.schedule !== undefined) return [JSON.parse(readFileSync(options.schedule, 'utf8')) as Schedule];
  const seconds = options.ci ? CI.seconds : whole('seconds', 1);
  const common = { seconds, nodes: whole('nodes', 3), kinds: kinds(), gapMs: whole('gap', 1) };
  const possible = sources();
  const all = seeds().map((seed) => {
    const source = possible[seed % possible.length];
    return scheduleOf(seed, { ...common, source: source === 'list' ? undefined : source });
  });
  const ofSources = options.ci ? CI.byChance : [];
  return [...all, ...ofSources.map((source) => scheduleOf(systemRandom.u32(), { ...common, source }))];
}

/** Why the server of a schedule's source cannot run here; undefined: it can, or none is needed. */
function refusalOf({ source }: Schedule): string | undefined {
  return source && whyNoSource(source);
}

function report(outcome: Outcome, took: string): void {
  const {
    seed,
    faults,
    counts,
    calls,
    longestMs,
    survivors,
    recoveryMs,
    readsJudged,
    joinedMs,
    starvedMs,
    violations,
  } = outcome;
  const { pagesSet, hits, misses, remoteHits, diskHits, checksumFailures } = counts;
  console.log(
    `seed ${seed}: ${took}, ${faults} faults, ${calls} calls, ${pagesSet} pages set, ${hits} read ` +
      `(${remoteHits} remote, ${diskHits} disk) and checked, ${misses} misses, ${checksumFailures} caught by checksum; ` +
      `longest set ${longestMs.set}, get ${longestMs.get}, exists ${longestMs.exists}, clear ${longestMs.clear}, delete ${longestMs.delete} ms; ` +
      `${readsJudged} reads in order; ${survivors} pages found everywhere after ${recoveryMs} ms; ` +
      `${joinedMs > 0 ? `joined at most ${joinedMs} ms after the return of the source; ` : ''}` +
      `waited for a processor ${(starvedMs / 1000).toFixed(1)} s; violations: ${violations.length}`,
  );
  for (const violation of violations) console.log(`  ${inWords(violation)}`);
  if (violations.length > 0)
    console.log(`  again: npm run test:faults -- --schedule build/faults/${seed}/schedule.json`);
}

function inWords({ kind, node, detail }: Violation): string {
  return `${kind} (node ${node}): ${detail}`;
}

/** One run after the other; true: nothing was found. */
async function runAll(all: readonly Schedule[]): Promise<boolean> {
  const outcomes: Outcome[] = [];
  for (const schedule of all) {
    const { seed, nodes, seconds, faults, source, sourceFaults = [] } = schedule;
    const refusal = refusalOf(schedule);
    if (refusal !== undefined) {
      console.log(`seed ${seed}: SKIPPED: ${refusal}`);
      if (options.ci) return false;
      continue;
    }
    const by = source === undefined ? '' : `, by ${source} with ${sourceFaults.length} troubles`;
    console.log(`seed ${seed}: ${nodes} nodes, ${faults.length} faults in ${seconds} s${by}`);
    const startMs = performance.now();
    const outputFolder = join(OUTPUT, String(seed));
    const outcome = await inNetwork(nodes, (network) => runScenario(schedule, { network, outputFolder }));
    report(outcome, `${Math.round((performance.now() - startMs) / 1000)} s`);
    outcomes.push(outcome);
  }
  const bad = outcomes.filter(({ violations }) => violations.length > 0);
  const recoveryMs = outcomes.map((outcome) => outcome.recoveryMs).sort((a, b) => a - b);
  console.log(
    `${outcomes.length} runs, ${bad.length} with violations${bad.length > 0 ? ` (seeds ${bad.map(({ seed }) => seed).join()})` : ''}; ` +
      `recovery: median ${recoveryMs[Math.floor(recoveryMs.length / 2)]}, longest ${recoveryMs.at(-1)} ms; ` +
      `longest calls: ${JSON.stringify(longest(outcomes.map(({ longestMs }) => longestMs)))} ms`,
  );
  return bad.length === 0;
}

/** The nodes that have planted faults. */
const PLANTED: ReadonlyMap<number, readonly Canary[]> = new Map([
  [1, ['hang', 'leak']],
  [2, ['wrong']],
  [3, ['foreign', 'throw', 'unfreed']],
  [4, ['old', 'lost']],
  [5, ['crash']],
]);

/** What each planted fault must be found as. */
const FOUND_AS: Readonly<Partial<Record<Canary, Violation['kind']>>> = {
  wrong: 'wrong',
  foreign: 'wrong',
  old: 'wrong',
  hang: 'hang',
  throw: 'threw',
  crash: 'crash',
  lost: 'lost',
  leak: 'close',
  unfreed: 'invariant',
};

/** Planted in all nodes, in runs of their own: what must be found there, and what must not be. */
const PLANTED_ALONE: readonly {
  readonly canaries: readonly Canary[];
  readonly found?: Violation['kind'];
  readonly notFound?: Violation['kind'];
}[] = [
  { canaries: ['undelivered'], notFound: 'freed' },
  { canaries: ['undelivered', 'unstamped'], found: 'freed' },
  { canaries: ['undropped'], found: 'order' },
  { canaries: ['unordered'], found: 'order' },
];
/** Long enough for the bound of old contents to pass a few times over. */
const ORDER_CANARY = { seconds: 16, nodes: 4, kinds: ['stop'], gapMs: 700 } as const satisfies ScheduleOptions;

/** True: each planted fault was found. */
async function runCanaries(): Promise<boolean> {
  const nodes = PLANTED.size;
  // Long enough for a call to be late.
  const seconds = Math.ceil((DEADLINE_MS.exists + 3 * GRACE_MS) / 1000);
  const schedule = scheduleOf(1, { seconds, nodes, kinds: [], gapMs: 1_000 });
  const { violations } = await inNetwork(nodes, (network) =>
    runScenario(schedule, { network, outputFolder: join(OUTPUT, 'canaries'), canaries: PLANTED }),
  );
  let isWell = true;
  for (const [node, canaries] of PLANTED) {
    for (const canary of canaries) {
      // What is lost of one node is missed by the others.
      const found = violations.some(
        (each) => each.kind === FOUND_AS[canary] && (each.node === node || canary === 'lost'),
      );
      console.log(`canary ${canary}: ${found ? 'found' : 'NOT FOUND'}`);
      isWell &&= found;
    }
  }
  for (const planted of PLANTED_ALONE) isWell = (await isFoundAlone(planted)) && isWell;
  return isWell;
}

async function isFoundAlone({ canaries, found, notFound }: (typeof PLANTED_ALONE)[number]): Promise<boolean> {
  const { nodes } = ORDER_CANARY;
  // Without copies on other nodes what a node frees must be gone at once.
  const schedule = { ...scheduleOf(1, ORDER_CANARY), promotesHotReads: false };
  const planted = new Map(Array.from({ length: nodes }, (_, i) => [i + 1, canaries]));
  const outputFolder = join(OUTPUT, `canary-${canaries.join('-')}`);
  const { violations } = await inNetwork(nodes, (network) =>
    runScenario(schedule, { network, outputFolder, canaries: planted }),
  );
  const first = violations.find(({ kind }) => kind === (found ?? notFound));
  const isWell = (first !== undefined) === (found !== undefined);
  const outcome = first === undefined ? `nothing is ${found ?? notFound}` : `found: ${inWords(first)}`;
  console.log(`canary ${canaries.join(' and ')}: ${isWell ? '' : 'NOT AS IT MUST BE: '}${outcome}`);
  return isWell;
}

async function runSoak(minutes: number): Promise<boolean> {
  const nodes = whole('nodes', 3);
  const seed = Number(options.seed ?? systemRandom.u32());
  // The first two are not killed, so that what they take is seen over the whole time.
  const mortal = Array.from({ length: nodes - 2 }, (_, i) => i + 3);
  const schedule = scheduleOf(seed, { seconds: minutes * 60, nodes, kinds: kinds(), gapMs: SOAK_GAP_MS, mortal });
  const outputFolder = join(OUTPUT, `soak-${seed}`);
  const samples = new SoakSamples(outputFolder);
  console.log(`soak, seed ${seed}: ${minutes} min, ${schedule.faults.length} faults`);
  const onTurn = (cluster: FaultCluster, elapsedMs: number) => samples.take(cluster, elapsedMs);
  const outcome = await inNetwork(nodes, (network) => runScenario(schedule, { network, outputFolder, onTurn }));
  for (const { node, pid, samples: count, before, after } of samples.growths()) {
    console.log(`node ${node} (${pid}), ${count} samples: ${JSON.stringify(before)} -> ${JSON.stringify(after)}`);
  }
  const violations = [...outcome.violations, ...samples.violations()];
  report({ ...outcome, violations }, `${minutes} min`);
  return violations.length === 0;
}

async function main(): Promise<void> {
  if (options.help) {
    process.stdout.write(HELP);
    return;
  }
  const refusal = whyNoNetworks();
  if (refusal !== undefined) {
    console.log(`fault suite: SKIPPED: ${refusal}`);
    // There it must run.
    if (options.ci) process.exitCode = 1;
    return;
  }
  removeLeftNetworks();
  removeLeftFolders();
  mkdirSync(OUTPUT, { recursive: true });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => process.exit(1));
  let isWell = true;
  if (options.soak !== undefined) isWell = await runSoak(whole('soak', 1));
  else if (!options.canary) isWell = await runAll(schedules());
  if (options.canary || options.ci) isWell = (await runCanaries()) && isWell;
  process.exitCode = isWell ? 0 : 1;
}

/** What `use` gives, which has the network to itself; it is removed whatever happens. */
async function inNetwork<T>(nodes: number, use: (network: FaultNetwork) => Promise<T>): Promise<T> {
  let network: FaultNetwork | undefined;
  const remove = () => {
    network?.remove();
    removeLeftFolders(true);
  };
  process.once('exit', remove);
  try {
    network = new FaultNetwork(nodes);
    return await use(network);
  } finally {
    remove();
    process.off('exit', remove);
  }
}

await main();
