import { Command, InvalidArgumentError, Option } from 'commander';
import {
  type CommandContext,
  checkWritable,
  EXIT_FAILURE,
  printResult,
  writePage,
  wrongUsage,
} from '../../command/context.js';
import { jsonOption, listOf } from '../../command/options.js';
import type { Paint, Tone } from '../../command/terminal.js';
import { reportPage } from '../../sim/report/page.js';
import { checkConfiguration } from '../doctor/configuration.js';
import { examine } from '../doctor/doctor.js';
import type { Finding } from '../doctor/finding.js';
import {
  addConfigurationOptions,
  CONFIGURATION_HELP,
  type Configuration,
  type ConfigurationOptions,
  readConfiguration,
} from '../settings/configuration.js';
import { byteSteps } from './byte-checks.js';
import { cableStep } from './cable-checks.js';
import { clusterSteps } from './cluster-checks.js';
import { engineSteps, pythonVersions } from './engine-checks.js';
import { failureSteps } from './failure-checks.js';
import { transportSettings } from './own-nodes.js';
import { type Outcome, type Proof, prove, type Step } from './proof.js';
import { installationOf, type ProveResult, proveReport, proveResult, VERDICTS } from './prove-report.js';
import { speedSteps } from './speed-checks.js';

interface ProveOptions extends ConfigurationOptions {
  readonly html?: string;
  readonly only: readonly Part[];
  readonly quick: boolean;
  readonly json: boolean;
}

/** The parts of a proof, in the order in which they run; `rdma` is the share of `machine` that concerns RDMA. */
const PARTS = ['machine', 'rdma', 'cluster', 'bytes', 'speed', 'failures', 'engine'] as const;
type Part = (typeof PARTS)[number];

const TONES: Readonly<Record<Outcome, Tone>> = { passed: 'good', failed: 'bad', 'not run': 'faint' };

/** `meshcache prove`: checks an installation with real nodes, and writes a report that can be sent. */
export function proveCommand(context: CommandContext): Command {
  return addConfigurationOptions(new Command('prove'))
    .description('prove that this installation works: real nodes, every byte, failures, an engine; with a report')
    .option('--html <file>', 'also write the result as one HTML page, to be kept or sent')
    .addOption(
      new Option('--only <parts>', `parts to run, comma-separated: ${PARTS.join(', ')}`)
        .argParser(listOf(part))
        .default([...PARTS], 'all'),
    )
    .option('--quick', 'a tenth of the pages, to see that it works', false)
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Examples:
  meshcache prove --html report.html
  meshcache prove --config node.json --html report.html
  meshcache prove -o protocol=rdma -o device_name=mlx5_0 --json
  meshcache prove --discovery-addr 10.0.0.1:31990 --only cluster

It makes the checks of \`meshcache doctor\` with these options (\`rdma\`: only those that concern RDMA), and starts nodes of its
own on this machine: pages of three sizes over TCP and over each RDMA device, reads over RDMA beside ib_read_bw,
a node that is killed, a node that is frozen, a cable that is cut, engines in Python. It takes some minutes, 2 GiB of memory,
and most of two processors. With --discovery-addr two further nodes join that cluster for a moment, set pages in a namespace
of their own, and read them.
${CONFIGURATION_HELP}

Each check has passed, has failed, or has not run, with the reason and what to do. Ends with status 1 when one has failed,
and when none has run.`,
    )
    .action(async (options: ProveOptions) => {
      if (options.html !== undefined) await checkWritable(options.html);
      const configuration = await readConfiguration(options);
      if (!options.only.includes('machine')) refuseWrongSettings(configuration);
      const result = await proveInstallation(configuration, options, context);
      // Printed first: a disk that is full costs the page only.
      printResult(context, result, { json: options.json, asText: (shown) => formatResult(shown, context.paint) });
      if (result.verdict !== 'passed') context.setExitStatus(EXIT_FAILURE);
      if (options.html === undefined) return;
      await writePage(options.html, reportPage(proveReport(result)));
      context.tell(`report: ${options.html}`);
    });
}

/** Without the part `machine`, no check would name a setting with which no node starts. */
function refuseWrongSettings(configuration: Configuration): void {
  const wrong = checkConfiguration(configuration).findings.find(({ state }) => state === 'problem');
  if (wrong !== undefined) throw wrongUsage(wrong.detail);
}

async function proveInstallation(
  configuration: Configuration,
  { only, quick }: ProveOptions,
  context: CommandContext,
): Promise<ProveResult> {
  const { clock, signal } = context;
  const progress = context.progress();
  const startMs = clock.nowMs();
  try {
    const onCheck = (subject: string): void => progress.update(`checking: ${subject}`);
    const isRdmaOnly = !only.includes('machine');
    const isExamined = only.includes('machine') || only.includes('rdma');
    const checks = isExamined ? await machineProofs({ configuration, onCheck, isRdmaOnly }) : [];
    const steps = stepsFor(configuration, quick, context);
    for (const step of PARTS.flatMap((each) => (only.includes(each) ? steps[each] : []))) {
      onCheck(`${step.area}: ${step.check}`);
      checks.push(await prove(step, context));
    }
    signal.throwIfAborted();
    const python = await pythonVersions().catch(() => undefined);
    const installation = installationOf(python, clock.wallMs());
    return proveResult(checks, { seconds: (clock.nowMs() - startMs) / 1000, installation });
  } finally {
    progress.end();
  }
}

function stepsFor(
  configuration: Configuration,
  quick: boolean,
  { clock, signal }: CommandContext,
): Record<Part, Step[]> {
  const failures = { clock, signal, config: transportSettings(configuration.mapping) };
  return {
    machine: [],
    rdma: [],
    cluster: clusterSteps(configuration, signal),
    bytes: byteSteps(configuration, { signal, quick }),
    speed: speedSteps(configuration, quick),
    failures: [...failureSteps(failures), cableStep(failures)],
    engine: engineSteps(signal),
  };
}

function part(text: string): Part {
  const found = PARTS.find((each) => each === text);
  if (found !== undefined) return found;
  throw new InvalidArgumentError(`Allowed are ${PARTS.join(', ')}.`);
}

/** The findings of `meshcache doctor`. */
async function machineProofs(options: Parameters<typeof examine>[0]): Promise<Proof[]> {
  const findings = await examine(options);
  return findings.map(({ subject, state, detail, advice }) => {
    const outcome = subject === ASKED_SUBJECT && state === 'warning' ? 'failed' : OUTCOMES[state];
    return {
      area: 'This machine',
      check: subject,
      outcome,
      detail: outcome === 'passed' && state === 'warning' ? `warning: ${detail}` : detail,
      ...(advice === undefined ? {} : { advice }),
      seconds: 0,
    };
  });
}

/** A node with another transport than the one that is asked for runs, which is enough for `doctor` but no acceptance. */
const ASKED_SUBJECT = 'transport';
/** A warning is something that works with limits, so it has passed. */
const OUTCOMES: Readonly<Record<Finding['state'], Outcome>> = {
  problem: 'failed',
  warning: 'passed',
  ok: 'passed',
  'n/a': 'not run',
};

function formatResult(result: ProveResult, paint: Paint): string {
  const { checks, verdict, passed, failed, not_run, seconds } = result;
  const width = Math.max(...checks.map(({ check }) => check.length));
  const lines = checks.flatMap(({ area, check, outcome, detail, advice }, i) => {
    const heading = area === checks[i - 1]?.area ? [] : [...(i === 0 ? [] : ['']), area];
    const line = `  ${paint(TONES[outcome], outcome.padEnd(7))}  ${check.padEnd(width)}  ${detail}`;
    return [...heading, line, ...(advice === undefined ? [] : [`${' '.repeat(width + 13)}-> ${advice}`])];
  });
  const summary = `${VERDICTS[verdict]}: ${passed} passed, ${failed} failed, ${not_run} not run, in ${Math.round(seconds)} s`;
  return [...lines, '', paint(TONES[verdict], summary)].join('\n');
}
