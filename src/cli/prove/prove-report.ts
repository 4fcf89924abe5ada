import { cpus, release } from 'node:os';
import { formatSize } from '../../base/sizes.js';
import { loadNative } from '../../native/addon/loader.js';
import { systemRdmaHost } from '../../native/devices/rdma-devices.js';
import { packageVersion } from '../../node/reporting/package-version.js';
import type { Report, ReportSection } from '../../sim/report/report.js';
import { ownMemory } from '../../system/memory-limit.js';
import type { PythonVersions } from './engine-checks.js';
import type { Outcome, Proof } from './proof.js';

/** What `--json` prints. */
export interface ProveResult {
  /** `not run`: no check could run, so that nothing is known about the installation. */
  readonly verdict: Outcome;
  readonly passed: number;
  readonly failed: number;
  readonly not_run: number;
  readonly seconds: number;
  readonly installation: Readonly<Record<string, string>>;
  readonly checks: readonly Proof[];
}

export const VERDICTS: Readonly<Record<ProveResult['verdict'], string>> = {
  passed: 'everything that ran was right',
  failed: 'something is wrong',
  'not run': 'nothing has run',
};

export function proveResult(
  checks: readonly Proof[],
  { seconds, installation }: Pick<ProveResult, 'seconds' | 'installation'>,
): ProveResult {
  const count = (wanted: Outcome): number => checks.filter(({ outcome }) => outcome === wanted).length;
  const [passed, failed] = [count('passed'), count('failed')];
  return {
    verdict: failed > 0 ? 'failed' : passed > 0 ? 'passed' : 'not run',
    passed,
    failed,
    not_run: count('not run'),
    seconds,
    installation,
    checks,
  };
}

/** Versions and hardware. Nothing in it is secret or names a person. */
export function installationOf(python: PythonVersions | undefined, atMs: number): Record<string, string> {
  const { addon, reason } = loadNative();
  const processors = cpus();
  const devices = systemRdmaHost.devices().map(({ name, ports }) => {
    const shown = ports.map(({ number, state, linkLayer, rate }) => `port ${number} ${state} ${linkLayer} ${rate}`);
    return `${name} (${shown.join(', ')})`;
  });
  return {
    date: new Date(atMs).toISOString(),
    meshcache: packageVersion(),
    node_js: process.version,
    addon:
      addon === null
        ? `none: ${reason}`
        : `${addon.hasRdma ? 'with' : 'without'} RDMA; CRC-32 by ${addon.checksumPath}`,
    system: `${process.platform} ${process.arch} ${release()}`,
    processors: `${processors.length} × ${processors[0]?.model.trim() ?? 'unknown'}`,
    memory: formatSize(ownMemory().totalBytes),
    rdma_devices: devices.join('; ') || 'none',
    ...Object.fromEntries(
      Object.entries(python ?? {}).map(([name, version]) => [
        name === 'meshcache' ? 'python_client' : name,
        version ?? 'not installed',
      ]),
    ),
  };
}

/** The report that `--html` writes. */
export function proveReport(result: ProveResult): Report {
  const { verdict, passed, failed, not_run, seconds, installation, checks } = result;
  const areas = [...new Set(checks.map(({ area }) => area))];
  return {
    title: `meshcache prove: ${failed === 0 ? VERDICTS[verdict] : `${failed} ${failed === 1 ? 'check has' : 'checks have'} failed`}`,
    summary:
      'Each check ran on the machine whose versions and hardware are at the end. A check that did not run says what it lacks.',
    highlights: [
      { label: 'Passed', value: String(passed), note: 'checks that ran, and found all right' },
      { label: 'Failed', value: String(failed), note: 'checks that ran, and found something wrong' },
      { label: 'Not run', value: String(not_run), note: 'this machine or its settings lack what they need' },
      { label: 'Duration', value: `${Math.round(seconds)} s`, note: 'all checks, one after the other' },
    ],
    sections: [...failedSection(checks), ...areas.map((area) => sectionOf(area, checks))],
    parameters: Object.entries(installation).map(([name, value]) => ({ name, value })),
  };
}

function failedSection(checks: readonly Proof[]): ReportSection[] {
  const wrong = checks.filter(({ outcome }) => outcome === 'failed');
  return wrong.length === 0 ? [] : [section('What is wrong', wrong)];
}

function sectionOf(area: string, checks: readonly Proof[]): ReportSection {
  return section(
    area,
    checks.filter((each) => each.area === area),
  );
}

function section(title: string, checks: readonly Proof[]): ReportSection {
  const columns = [
    { name: 'Check' },
    { name: 'Outcome' },
    { name: 'Detail', isProse: true },
    { name: 'What to do', isProse: true },
    { name: 'Seconds', isNumeric: true },
  ];
  const rows = checks.map(({ check, outcome, detail, advice = '', seconds }) => [
    check,
    outcome,
    detail,
    advice,
    seconds.toFixed(1),
  ]);
  return { title, blocks: [{ kind: 'table', title: `${title}: checks`, columns, rows }] };
}
