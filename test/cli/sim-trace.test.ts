import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { conversationWorkload } from '../../src/cli/load/workload.js';
import { withEndsTold, withReturnsTold } from '../../src/cli/sim/trace-run.js';
import { EVICTION_POLICIES } from '../../src/config.js';
import { PLACEMENT_POLICIES } from '../../src/core/index.js';
import { runCli } from '../_support/cli/run-cli.js';

const folder = mkdtempSync(join(tmpdir(), 'meshcache-sim-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

/** The real trace, if it is here: a part of it is replayed, too. */
const REAL_TRACE = process.env.MESHCACHE_TRACE ?? '../shared/data/conversation_trace.jsonl';

/** Conversations with system prompts of their own: 1,900 pages asked for, several pools full of different ones. */
const TRACE = join(folder, 'trace.jsonl');
writeFileSync(TRACE, traceOf(conversationWorkload({ seed: 3, conversations: 50 })));
const REQUESTS = readFileSync(TRACE, 'utf8').trim().split('\n').length;

function traceOf(requests: readonly { readonly keys: readonly string[] }[]): string {
  const ids = new Map<string, number>();
  const idOf = (key: string): number => {
    const id = ids.get(key) ?? ids.size;
    ids.set(key, id);
    return id;
  };
  const lines = requests.map(({ keys }, i) =>
    JSON.stringify({ timestamp: i * 900, input_length: keys.length * 512, output_length: 1, hash_ids: keys.map(idOf) }),
  );
  return `${lines.join('\n')}\n`;
}

interface Counts {
  readonly prefix_hits: number;
  readonly hits: { readonly local: number; readonly remote: number };
  readonly pages_set: number;
  readonly set_failures: number;
  readonly evictions: number;
}

interface SimResult {
  readonly requests: number;
  readonly pages_asked: number;
  readonly unbounded_hit_rate: number;
  readonly bounds: readonly {
    readonly nodes: number;
    readonly pool_pages: number;
    readonly clairvoyant_hit_rate: number;
  }[];
  readonly runs: readonly (Counts & {
    readonly nodes: number;
    readonly pool_pages: number;
    readonly pool_bytes: number;
    readonly policy: string;
    readonly routing: string | null;
    readonly prefix_hit_rate: number;
    readonly series: Record<string, number[]>;
  })[];
}

async function jsonOf<T>(args: readonly string[]): Promise<T> {
  const run = await runCli([...args, '--json']);
  if (run.status !== 0) throw new Error(run.stderr);
  return JSON.parse(run.stdout) as T;
}

function countsOf({ prefix_hits, hits: { local, remote }, pages_set, set_failures, evictions }: Counts): Counts {
  return { prefix_hits, hits: { local, remote }, pages_set, set_failures, evictions };
}

const small = ['--page-bytes', '4kb', '--quarantine-ms', '0'];

test('sim trace: pools with room for equally many pages are one', async (t) => {
  const args = ['--pool', '16,1mb,1048000b,32', '--page-bytes', '64kb', '--policy', 'lru'];
  const { bounds, runs } = await jsonOf<{ bounds: unknown[]; runs: { pool_pages: number }[] }>([
    'sim',
    'trace',
    TRACE,
    ...args,
  ]);
  t.deepEqual(
    runs.map(({ pool_pages }) => pool_pages),
    [16, 15, 32],
  );
  t.is(bounds.length, 3);
});

test('sim trace: every policy that nodes have can be simulated', (t) => {
  t.deepEqual([...PLACEMENT_POLICIES].sort(), [...EVICTION_POLICIES].sort());
});

for (const policy of EVICTION_POLICIES) {
  test.serial(`sim trace: counts are those of a replay on one real node, ${policy}`, async (t) => {
    const traces: [string, string, string[]][] = [[TRACE, '400', []]];
    if (existsSync(REAL_TRACE)) traces.push([REAL_TRACE, '3000', ['--requests', '600']]);
    for (const [trace, pages, some] of traces) {
      const shape = [...small, ...some, '--policy', policy, '--nodes', '1'];
      const real = await jsonOf<Counts>(['replay', trace, '--pool', `${pages}p`, ...shape]);
      const { runs } = await jsonOf<SimResult>(['sim', 'trace', trace, '--pool', pages, ...shape]);
      t.true(real.evictions > 0 && real.prefix_hits > 0, 'the pool is full and is of use');
      t.deepEqual(runs.map(countsOf), [countsOf(real)], trace);
    }
  });
}

test.serial(
  'sim trace: counts of three real nodes are those of a replay, also with late reports of reads',
  async (t) => {
    for (const delay of ['0', '2000', '60000']) {
      const shape = [...small, '--policy', 'lru', '--nodes', '3', '--report-delay-ms', delay];
      const real = await jsonOf<Counts & { readonly pages_asked: number }>([
        'replay',
        TRACE,
        '--pool',
        '200p',
        ...shape,
      ]);
      const { runs } = await jsonOf<SimResult>(['sim', 'trace', TRACE, '--pool', '200', ...shape]);
      t.true(real.evictions > 0 && real.hits.remote > 0);
      // On a busy machine a request may overtake what other nodes are told of the one before it.
      const allowed = real.pages_asked * 0.005;
      for (const pick of [(c: Counts) => c.hits.local, (c: Counts) => c.hits.remote, (c: Counts) => c.evictions]) {
        const [count, simulated] = [pick(real), pick(runs[0] as Counts)];
        t.true(Math.abs(count - simulated) <= allowed, `${count}, simulated ${simulated}, delay ${delay}`);
      }
    }
  },
);

test.serial('sim trace: runs every combination once, with bounds and series', async (t) => {
  const args = [
    '--pool',
    '100,3mb,100p',
    '--nodes',
    '1,3',
    '--policy',
    'lru,s3fifo',
    '--routing',
    'round-robin,session',
  ];
  const result = await jsonOf<SimResult>(['sim', 'trace', TRACE, ...args, '--page-bytes', '4kb', '--interval-s', '30']);
  t.is(result.requests, REQUESTS);
  t.deepEqual(
    result.runs.map(({ nodes, pool_pages, routing, policy }) => [nodes, pool_pages, routing, policy].join(' ')),
    [
      '1 100  lru',
      '1 100  s3fifo',
      '1 768  lru',
      '1 768  s3fifo',
      ...[100, 768].flatMap((pages) =>
        ['round-robin', 'session'].flatMap((routing) =>
          ['lru', 's3fifo'].map((policy) => `3 ${pages} ${routing} ${policy}`),
        ),
      ),
    ],
  );
  for (const { nodes, pool_pages, prefix_hit_rate, prefix_hits, series } of result.runs) {
    const bound = result.bounds.find((one) => one.nodes === nodes && one.pool_pages === pool_pages);
    t.true(prefix_hit_rate <= (bound?.clairvoyant_hit_rate ?? 0));
    t.true((bound?.clairvoyant_hit_rate ?? 0) <= result.unbounded_hit_rate);
    t.is(
      series.prefix_hits?.reduce((sum, hits) => sum + hits, 0),
      prefix_hits,
    );
    t.is(series.start_s?.length, Math.ceil((REQUESTS * 0.9) / 30));
  }
});

test.serial('sim trace: prints a table, and the same counts each time', async (t) => {
  const args = ['sim', 'trace', TRACE, '--pool', '200', '--nodes', '1,2', '--page-bytes', '4kb'];
  const [first, second] = [await runCli(args), await runCli(args)];
  t.is(first.status, 0, first.stderr);
  t.regex(first.stdout, /^trace\.jsonl: \d+ requests, [\d,]+ pages asked for, /);
  t.regex(first.stdout, /\n +1 +200 +lru +- +0\.\d{4} /);
  t.regex(first.stdout, /\n +2 +200 +lru +round-robin +0\.\d{4} /);
  t.regex(first.stdout, /\n +1 +200 +\(clairvoyant\) +- +0\.\d{4}\n/);
  t.regex(first.stdout, /\n\nWith room for all of them the hit rate is 0\.\d{4}\.\n$/);
  const withoutTimes = (text: string) => text.replace(/ +\d+\.\d\d$/gm, '');
  t.is(withoutTimes(first.stdout), withoutTimes(second.stdout));
});

test.serial('sim trace: owners that never hear of remote reads lose pages that are read', async (t) => {
  const args = ['sim', 'trace', TRACE, '--pool', '150', '--nodes', '3', '--policy', 'lru', '--page-bytes', '4kb'];
  const rateOf = async (delay: string) => {
    const { runs } = await jsonOf<SimResult>([...args, '--report-delay-ms', delay]);
    return runs[0]?.prefix_hit_rate ?? 0;
  };
  t.true((await rateOf('0')) > (await rateOf('never')));
});

test.serial('sim trace: told which conversations end, yield keeps more of the others', async (t) => {
  const args = ['sim', 'trace', TRACE, '--pool', '400', '--policy', 'yield', '--page-bytes', '4kb'];
  const rateOf = async (share: string) => {
    const { runs } = await jsonOf<SimResult>([...args, '--ends-told', share]);
    return runs[0]?.prefix_hit_rate ?? 0;
  };
  const [none, half, all] = [await rateOf('0'), await rateOf('0.5'), await rateOf('1')];
  t.true(none < half && half < all, `${none} ${half} ${all}`);
});

test('sim trace: told when conversations go on, requests say when their last full page is asked for next', (t) => {
  const requests = [
    [0, 1, 2],
    [0, 5],
    [0, 1, 3, 4],
  ].map((hashIds, i) => ({ timestampMs: 1000 * i, hashIds }));
  const returnsOf = (returnsTold: number, toldWrong: number) =>
    withReturnsTold(requests, { returnsTold, toldWrong }).map(({ returnsInMs }) => returnsInMs);
  t.deepEqual(returnsOf(1, 0), [2000, 1000, Number.POSITIVE_INFINITY]);
  t.deepEqual(returnsOf(0, 0), [undefined, undefined, undefined]);
  const many = Array.from({ length: 400 }, (_, i) => ({ timestampMs: i, hashIds: [i] }));
  const told = withReturnsTold(many, { returnsTold: 0.5, toldWrong: 0 }).filter(({ returnsInMs }) => returnsInMs);
  t.true(told.length > 150 && told.length < 250, `${told.length}`);
});

test('sim trace: a conversation ends where nothing goes on with its last pages', (t) => {
  const placementRequests = (...pages: number[][]) => pages.map((hashIds, i) => ({ timestampMs: i, hashIds }));
  const hintsOf = (share: number, ...pages: number[][]) =>
    withEndsTold(placementRequests(...pages), share).map(({ hint }) => hint);
  // The second leaves out the last page of the first, which was not full; all have page 0.
  t.deepEqual(hintsOf(1, [0, 1, 2], [0, 1, 3, 4], [0, 5], [0, 5, 6], [0]), [
    undefined,
    'closed',
    undefined,
    'closed',
    'closed',
  ]);
  const ends = hintsOf(0.75, ...Array.from({ length: 100 }, (_, i) => [0, i + 1]));
  t.is(ends.filter((hint) => hint === 'closed').length, 75);
  t.true(hintsOf(0, [0, 1]).every((hint) => hint === undefined));
});

test.serial('sim trace: --html writes one page, whatever the name of the trace is', async (t) => {
  const hostile = join(folder, '<img src=x onerror=alert(1)>.jsonl');
  writeFileSync(hostile, readFileSync(TRACE));
  const file = join(folder, 'report.html');
  const run = await runCli(['sim', 'trace', hostile, '--pool', '100,400', '--nodes', '1,3', '--html', file]);
  t.is(run.status, 0, run.stderr);
  const page = readFileSync(file, 'utf8');
  t.regex(page, /<h1>Trace &lt;img src=x onerror=alert\(1\)&gt;\.jsonl on 1, 3 nodes<\/h1>/);
  t.notRegex(page, /<img|<script|https?:/);
  t.is(page.match(/<h2>/g)?.length, 5);
  t.is(page.match(/<figure /g)?.length, 2 + 2 + 4);
});

test.serial('sim trace: what cannot be read or written is a failure that says so', async (t) => {
  const broken = join(folder, 'broken.jsonl');
  writeFileSync(broken, '{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": ["1"]}\n');
  const empty = join(folder, 'empty.jsonl');
  writeFileSync(empty, '\n');
  for (const [args, message] of [
    [['/no/such/trace.jsonl'], /^error: cannot read the trace \/no\/such\/trace\.jsonl: ENOENT/],
    [[broken], /^error: .*broken\.jsonl line 1: hash_ids must be a list of whole numbers/],
    [[empty], /^error: the trace .*empty\.jsonl has no requests/],
    [[TRACE, '--html', '/no/such/folder/report.html'], /^error: cannot write the report .*ENOENT/],
    [[TRACE, '--html', folder], /^error: cannot write the report .*EISDIR/],
  ] as const) {
    const run = await runCli(['sim', 'trace', ...args]);
    t.is(run.status, 1, run.stderr);
    t.is(run.stdout, '');
    t.regex(run.stderr, message);
  }
});

test.serial('sim trace: a full disk costs the page, and not the result', async (t) => {
  const run = await runCli(['sim', 'trace', TRACE, '--pool', '100', '--requests', '10', '--html', '/dev/full']);
  t.is(run.status, 1);
  t.not(run.stdout, '');
  t.regex(run.stderr, /error: cannot write the report "\/dev\/full": ENOSPC/);
});

test.serial('sim trace: options for agent sessions are refused for another trace', async (t) => {
  for (const flags of [['--users', '4'], ['--no-shared-tools'], ['--seed', '2']]) {
    const run = await runCli(['sim', 'trace', TRACE, '--pool', '100', ...flags]);
    t.is(run.status, 2, run.stderr);
    t.regex(run.stderr, new RegExp(`${flags[0]} is for recorded agent sessions; give a file of them as the trace`));
  }
});
