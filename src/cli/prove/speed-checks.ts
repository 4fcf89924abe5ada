import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { rdmaSupport } from '../../native/devices/rdma-support.js';
import { findProgram } from '../../processes/programs.js';
import type { Configuration } from '../settings/configuration.js';
import { wantedDevices } from './byte-checks.js';
import { failed, notRun, passed, type Step, type Verdict } from './proof.js';

const AREA = 'Speed';
const BENCH_MAX_MS = 280_000;
const THOROUGH = ['--rounds', '3'] as const;
const QUICK = ['--rounds', '1', '--quick'] as const;
/** Least share of the rate of ib_read_bw, for pages of 1 MiB and more. */
const RATIO_MIN = 0.5;
const ADVICE = 'run it by itself on an idle machine: meshcache bench rdma';

interface BenchRow {
  readonly [name: string]: string | number;
}

/** Reads over RDMA compared with perftest's `ib_read_bw`, by the benchmark of that name. */
export function speedSteps({ mapping }: Configuration, isQuick: boolean): Step[] {
  const run = (): Promise<Verdict> => besidePerftest(wantedDevices(mapping)[0], isQuick);
  return [{ area: AREA, check: 'RDMA reads beside ib_read_bw', advice: ADVICE, run }];
}

async function besidePerftest(device: string | undefined, isQuick: boolean): Promise<Verdict> {
  const { usable, step, reason, advice } = rdmaSupport();
  if (!usable) return notRun(`RDMA cannot be used; step "${step}" fails: ${reason}`, advice);
  if ((await findProgram('ib_read_bw')) === undefined) {
    return notRun('there is no ib_read_bw on PATH', 'install perftest (Debian: apt-get install perftest)');
  }
  // A process of its own, because commands other than `bench` do not load the benchmarks.
  const words = [process.argv[1] as string, 'bench', 'rdma', '--json', ...(isQuick ? QUICK : THOROUGH)];
  if (device !== undefined) words.push('--device', device);
  const { stdout } = await promisify(execFile)(process.execPath, words, { timeout: BENCH_MAX_MS });
  const { rows } = JSON.parse(stdout) as { readonly rows: readonly BenchRow[] };
  return ratioOf(rows, isQuick);
}

function ratioOf(rows: readonly BenchRow[], isQuick: boolean): Verdict {
  const ours = rows.filter(({ contender }) => String(contender).startsWith('batchGetV1'));
  if (ours.length === 0) return failed('the benchmark has printed no figures', ADVICE);
  const texts = ours.map(({ page, mb_per_s, ratio }) => `${page}: ${mb_per_s} MB/s, ${ratio} of ib_read_bw`);
  const figures = Object.fromEntries(
    ours.map(({ page, ratio }) => [`ratio_${String(page).replace(' ', '_')}`, Number(ratio)]),
  );
  const slow = ours.filter(({ page, ratio }) => String(page).endsWith('MiB') && Number(ratio) < RATIO_MIN);
  if (isQuick) return passed(`too short to judge: ${texts.join('; ')}`, figures);
  if (slow.length === 0) return passed(texts.join('; '), figures);
  return failed(
    `large pages come with less than ${RATIO_MIN} of the rate of ib_read_bw: ${texts.join('; ')}`,
    ADVICE,
    figures,
  );
}
