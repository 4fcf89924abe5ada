import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { seededRandom } from '../../src/base/environment/random.js';
import { withReturnsTold } from '../../src/cli/sim/trace-run.js';
import { SessionFigures, type SimTraceSessions } from '../../src/cli/sim/trace-sessions.js';
import { EVICTION_POLICIES } from '../../src/config.js';
import { runCli } from '../_support/cli/run-cli.js';
import { unless } from '../_support/unless.js';

const folder = mkdtempSync(join(tmpdir(), 'meshcache-agents-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

/** Real recorded sessions, if they are here; they are not part of the project. */
const RECORDING = process.env.MESHCACHE_AGENTS ?? '../shared/data/agentic_sessions.jsonl';
const withRecording = unless(existsSync(RECORDING) ? '' : `no ${RECORDING}, see MESHCACHE_AGENTS`, test.serial);

/** Twelve sessions of ten to thirty requests. Each has a tool prompt of four pages in common with the others. */
const SESSIONS = join(folder, 'sessions.jsonl');
writeFileSync(SESSIONS, recordedSessions());

function recordedSessions(): string {
  const random = seededRandom(5);
  const lines: object[] = [];
  for (let conversation = 0; conversation < 12; conversation++) {
    lines.push({ conversation, toolTokens: 2048, systemTokens: 100 });
    let blocks = 60 + (random.u32() % 40);
    let t = 0;
    for (let left = 10 + (random.u32() % 21); left > 0; left--) {
      const [api, think] = [1 + (random.u32() % 9), random.u32() % 60];
      lines.push({ t, in: 64 * blocks, out: 100, h: [1, blocks], api, ...(t === 0 ? {} : { think }) });
      blocks += random.u32() % 30;
      t += api + think;
    }
  }
  return lines.map((line) => `${JSON.stringify(line)}\n`).join('');
}

interface Counts {
  readonly prefix_hits: number;
  readonly hits: { readonly local: number; readonly remote: number };
  readonly pages_set: number;
  readonly evictions: number;
  readonly prefix_hit_rate: number;
}

interface SimResult {
  readonly requests: number;
  readonly pages_asked: number;
  readonly unique_pages: number;
  readonly unbounded_hit_rate: number;
  readonly runs: readonly (Counts & { readonly policy: string; readonly sessions: SimTraceSessions | null })[];
}

async function jsonOf<T>(...args: readonly string[]): Promise<T> {
  const run = await runCli([...args, '--json']);
  if (run.status !== 0) throw new Error(run.stderr);
  return JSON.parse(run.stdout) as T;
}

function countsOf({ prefix_hits, hits: { local, remote }, pages_set, evictions }: Counts) {
  return { prefix_hits, local, remote, pages_set, evictions };
}

test('sim trace: figures by session count each session once, and requests that found nothing', (t) => {
  const figures = new SessionFigures(100);
  t.is(figures.result(), null);
  const add = (session: number, hashIds: number[], prefixHits: number, remoteHits = 0) =>
    figures.add({ session, hashIds }, { node: 0, prefixHits, remoteHits });
  add(7, [1, 2], 0);
  add(7, [1, 2, 3, 4], 2, 1);
  add(8, [5], 0);
  add(8, [5], 0);
  add(8, [5, 6], 0);
  add(9, [1, 2], 2, 2);
  figures.add({ hashIds: [1] }, { node: 0, prefixHits: 0, remoteHits: 0 });
  t.deepEqual(figures.result(), {
    count: 3,
    hit_rate_mean: 0.4444,
    hit_rate_p10: 0,
    hit_rate_p50: 0.3333,
    empty_requests: 2,
    empty_request_share: 0.3333,
    moved_bytes_mean: 100,
  });
});

test('sim trace: callers are told to have said what the trace says of their next request', (t) => {
  const request = { timestampMs: 0, hashIds: [1, 2], nextInMs: 1234 };
  const [said, inferred, last] = withReturnsTold(
    [request, { timestampMs: 500, hashIds: [1, 2] }, { timestampMs: 700, hashIds: [1, 2] }],
    { returnsTold: 1, toldWrong: 0 },
  );
  t.is(said?.returnsInMs, 1234);
  t.is(inferred?.returnsInMs, 200);
  t.is(last?.returnsInMs, Number.POSITIVE_INFINITY);
  t.is(withReturnsTold([request], { returnsTold: 0, toldWrong: 0 })[0]?.returnsInMs, undefined);
});

test.serial('sim trace: recorded agent sessions are known by their first line and reported by session', async (t) => {
  const args = ['sim', 'trace', SESSIONS, '--users', '4', '--pool', '150', '--nodes', '2', '--policy', 'lru,yield'];
  const result = await jsonOf<SimResult>(...args);
  for (const { sessions, prefix_hit_rate, hits } of result.runs) {
    t.is(sessions?.count, 12);
    t.true(sessions!.hit_rate_p10 < sessions!.hit_rate_p50);
    t.true(Math.abs(sessions!.hit_rate_mean - prefix_hit_rate) < 0.2);
    t.is(sessions!.moved_bytes_mean, Math.round((hits.remote * 64 * 1024) / 12));
  }
  const run = await runCli(args);
  t.is(run.status, 0, run.stderr);
  t.regex(run.stdout, /\n\nBy session, 12 sessions played; found nothing: /);
  t.regex(run.stdout, /\n +2 +150 +yield +round-robin +0\.\d{4} +0\.\d{4} +0\.\d{4} +0\.\d{4} +[\d.]+ MiB(\n|$)/);
  const some = await jsonOf<SimResult>(...args, '--sessions', '3', '--requests', '5');
  t.is(some.requests, 5);
});

test.serial('sim trace: options say how long pages are and whether sessions share their tool prompts', async (t) => {
  const args = ['sim', 'trace', SESSIONS, '--pool', '10000', '--policy', 'lru'];
  const shared = await jsonOf<SimResult>(...args);
  const own = await jsonOf<SimResult>(...args, '--no-shared-tools');
  t.is(own.pages_asked, shared.pages_asked);
  t.is(own.unique_pages, shared.unique_pages + 11 * 4, 'the first four pages of eleven sessions');
  const small = await jsonOf<SimResult>(...args, '--block', '64');
  t.true(small.pages_asked > 8 * shared.pages_asked && small.pages_asked < 9 * shared.pages_asked);
  const wrong = await runCli([...args, '--block', '100']);
  t.is(wrong.status, 2);
  t.regex(wrong.stderr, /--block .*'100'.* multiples of 64/);
});

test.serial('sim trace: told when agents go on, yield keeps more of what they need', async (t) => {
  const args = ['sim', 'trace', SESSIONS, '--users', '6', '--pool', '100', '--policy', 'yield'];
  const rateOf = async (...more: string[]) => (await jsonOf<SimResult>(...args, ...more)).runs[0]?.prefix_hit_rate ?? 0;
  const [none, all, wrong] = [
    await rateOf(),
    await rateOf('--returns-told', '1'),
    await rateOf('--returns-told', '1', '--told-wrong', '1'),
  ];
  t.true(all > none + 0.02 && all > wrong, `${none} ${all} ${wrong}`);
});

const shape = ['--page-bytes', '4kb', '--quarantine-ms', '0', '--users', '4'];

for (const policy of EVICTION_POLICIES) {
  test.serial(`replay: agent sessions on one real node hit what the simulation says, ${policy}`, async (t) => {
    const args = [SESSIONS, '--nodes', '1', '--policy', policy, ...shape];
    const real = await jsonOf<Counts>('replay', ...args, '--pool', '150p');
    const { runs } = await jsonOf<SimResult>('sim', 'trace', ...args, '--pool', '150');
    t.true(real.evictions > 0 && real.prefix_hits > 0, 'the pool is full and is of use');
    t.deepEqual(runs.map(countsOf), [countsOf(real)]);
  });
}

/** The hit rates of a replay on three nodes and of its simulation, which are within .005 of each other. */
async function bothRates(t: ExecutionContext, pages: number, ...args: readonly string[]): Promise<[Counts, Counts]> {
  const all = [...args, '--nodes', '3', '--page-bytes', '4kb', '--quarantine-ms', '0'];
  const real = await jsonOf<Counts>('replay', ...all, '--pool', `${pages}p`);
  const simulated = (await jsonOf<SimResult>('sim', 'trace', ...all, '--pool', String(pages))).runs[0] as Counts;
  const [rate, expected] = [real.prefix_hit_rate, simulated.prefix_hit_rate];
  t.true(Math.abs(rate - expected) <= 0.005, `${rate}, simulated ${expected}`);
  return [real, simulated];
}

for (const policy of EVICTION_POLICIES) {
  test.serial(`replay: agent sessions on three real nodes hit what the simulation says, ${policy}`, async (t) => {
    const [real] = await bothRates(t, 60, SESSIONS, '--users', '4', '--policy', policy);
    t.true(real.evictions > 0 && real.hits.remote > 0);
  });
}

for (const routing of ['session', 'prefix']) {
  test.serial(`replay: agent sessions reach the nodes that the simulation chooses, ${routing}`, async (t) => {
    // By the first two pages, all would go to one node: sessions have a tool prompt of four in common.
    const route = ['--routing', routing, '--routing-pages', '5'];
    const [real, simulated] = await bothRates(t, 1000, SESSIONS, '--users', '4', '--policy', 'lru', ...route);
    t.true(real.hits.local > 0 && real.hits.remote > 0);
    t.true(Math.abs(real.hits.local - simulated.hits.local) <= 0.005 * simulated.prefix_hits);
  });
}

withRecording('replay: recorded sessions on three real nodes hit what the simulation says', async (t) => {
  const args = ['--users', '8', '--sessions', '8', '--requests', '200', '--policy', 'yield'];
  const [real] = await bothRates(t, 400, RECORDING, ...args);
  t.true(real.evictions > 0 && real.hits.remote > 0);
});
