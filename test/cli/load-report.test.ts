import test from 'ava';
import { noCounts, type RunCounts } from '../../src/cli/cluster/agent-protocol.js';
import { formatLoadReport, type LoadReport, loadReport, printLoadReport } from '../../src/cli/load/load-report.js';
import type { CommandContext } from '../../src/command/context.js';
import { silentProgress } from '../../src/command/progress.js';
import { formatTable } from '../../src/command/table.js';
import { plainPaint } from '../../src/command/terminal.js';
import { systemClock } from '../../src/system/system-clock.js';

function reportOf(counts: Partial<RunCounts>): LoadReport {
  const load = {
    counts: { ...noCounts(), ...counts },
    readLatenciesUs: Float64Array.of(100, 200, 3000),
    lookupLatenciesUs: new Float64Array(),
    wallMs: 1500,
  };
  const status = {
    poolEntries: 1,
    poolUsedBytes: 1,
    poolCapacityBytes: 1,
    checksumFailures: 2,
    rssBytes: 1024,
    hits: { local: 0, remote: 0, disk: 0 },
    disk: null,
  };
  const statuses = [
    { ...status, evictions: 3 },
    { ...status, evictions: 4 },
  ];
  return loadReport(load, { statuses, pageBytes: 4096 });
}

function print(report: LoadReport, json: boolean): { printed: string[]; exitStatus: number } {
  const printed: string[] = [];
  let exitStatus = 0;
  const context: CommandContext = {
    clock: systemClock,
    signal: new AbortController().signal,
    print: (text) => printed.push(text),
    progress: () => silentProgress,
    warn() {},
    tell() {},
    outliveReader() {},
    columns: undefined,
    paint: plainPaint,
    screen: undefined,
    write: (text) => printed.push(text),
    setExitStatus: (status) => {
      exitStatus = status;
    },
  };
  printLoadReport(context, report, { json, asText: formatLoadReport });
  return { printed, exitStatus };
}

test('load report: one wrong byte makes the exit status 1, none makes it 0', (t) => {
  for (const json of [true, false]) {
    t.is(print(reportOf({ wrongBytes: 0 }), json).exitStatus, 0);
    const { printed, exitStatus } = print(reportOf({ wrongBytes: 1 }), json);
    t.is(exitStatus, 1);
    t.regex(printed.join(), json ? /"wrong_bytes":1\b/ : /wrong bytes +1$/m);
  }
});

test('load report: rates, speeds and sums over the nodes', (t) => {
  t.like(reportOf({ asked: 200, prefixHits: 50, readBytes: 4e9, readUs: 2e6, setBytes: 0, setUs: 0 }), {
    nodes: 2,
    prefix_hit_rate: 0.25,
    read_gb_per_s: 2,
    set_gb_per_s: 0,
    read_p50_us: 200,
    read_p99_us: 3000,
    lookup_p99_us: 0,
    evictions: 7,
    checksum_failures: 4,
    nodes_rss_bytes: 2048,
    wall_s: 1.5,
  });
  t.is(reportOf({}).prefix_hit_rate, 0);
});

test('load report: disks add up, and are left out where there are none', (t) => {
  const load = {
    counts: noCounts(),
    readLatenciesUs: new Float64Array(),
    lookupLatenciesUs: new Float64Array(),
    wallMs: 1,
  };
  const status = {
    poolEntries: 1,
    poolUsedBytes: 1,
    poolCapacityBytes: 1,
    evictions: 0,
    checksumFailures: 0,
    rssBytes: 1,
    hits: { local: 0, remote: 0, disk: 0 },
  };
  const disk = {
    entries: 10,
    usedBytes: 4096,
    capacityBytes: 8192,
    evictions: 1,
    skippedPages: 2,
    corruptPages: 3,
    writeErrors: 0,
    readPages: 6,
  };
  const statuses = [
    { ...status, disk },
    { ...status, disk: null },
    { ...status, disk },
  ];
  const report = loadReport(load, { statuses, pageBytes: 4096 });
  t.deepEqual(report.disk, {
    entries: 20,
    used_bytes: 8192,
    capacity_bytes: 16384,
    evictions: 2,
    skipped_pages: 4,
    corrupt_pages: 6,
    write_errors: 0,
    read_pages: 12,
  });
  const text = formatLoadReport(report);
  t.regex(text, /on disk +20 pages, 8 KiB of 16 KiB, 2 evicted/);
  t.regex(text, /from disks +12 of 0 pages read \(.*\), own ones and of other nodes$/m);
  t.regex(text, /not put on disk +4 pages/);
  t.regex(text, /damaged on disk +6 pages caught/);
  t.notRegex(text, /disk errors/);
  t.is(reportOf({}).disk, null);
  t.notRegex(formatLoadReport(reportOf({})), /on disk/);
});

test('load report: what went wrong is in the text, what did not is left out', (t) => {
  const bad = formatLoadReport(reportOf({ staleMisses: 1, setFailures: 5 }));
  t.regex(bad, /stale prefixes +1/);
  t.regex(bad, /pages not set +5/);
  t.notRegex(formatLoadReport(reportOf({})), /stale|not set/);
});

test('table: columns are as wide as their cells, numbers stand to the right, missing cells are empty', (t) => {
  const table = formatTable([
    { name: 'a', gb_per_s: 4.56789 },
    { name: 'longer', gb_per_s: 12, more: 'x' },
  ]);
  t.is(
    table,
    ['name    gb_per_s  more', '------  --------  ----', 'a          4.568', 'longer        12  x'].join('\n'),
  );
});
