import { Command } from 'commander';
import { type CommandContext, checkWritable, EXIT_FAILURE, printResult, writePage } from '../../command/context.js';
import { jsonOption } from '../../command/options.js';
import type { Paint, Tone } from '../../command/terminal.js';
import { reportPage } from '../../sim/report/page.js';
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
import { engineSteps, pythonVersions } from './engine-checks.js';
import { failureSteps } from './failure-checks.js';
import { type Outcome, type Proof, prove, type Step } from './proof.js';
import { installationOf, type ProveResult, proveReport, proveResult } from './prove-report.js';

interface ProveOptions extends ConfigurationOptions {
  readonly html?: string;
  readonly json: boolean;
}

const TONES: Readonly<Record<Outcome, Tone>> = { passed: 'good', failed: 'bad', 'not run': 'faint' };

/** `meshcache prove`: checks an installation with real nodes, and writes a report that can be sent. */
export function proveCommand(context: CommandContext): Command {
  return addConfigurationOptions(new Command('prove'))
    .description('prove that this installation works: real nodes, every byte, failures, an engine; with a report')
    .option('--html <file>', 'also write the result as one HTML page, to be kept or sent')
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Examples:
  meshcache prove --html report.html
  meshcache prove --config node.json --html report.html
  meshcache prove -o protocol=rdma -o device_name=mlx5_0 --json

It makes the checks of \`meshcache doctor\` with these options, and starts nodes of its own on this machine: pages of three
sizes over TCP and over each RDMA device, a node that is killed, a node that is frozen, engines in Python. It takes a minute
or two, 1 GiB of memory, and most of two processors. Nodes that run already are not touched.
${CONFIGURATION_HELP}

Each check has passed, has failed, or has not run, with the reason and what to do. Ends with status 1 when one has failed.`,
    )
    .action(async (options: ProveOptions) => {
      if (options.html !== undefined) await checkWritable(options.html);
      const result = await proveInstallation(await readConfiguration(options), context);
      if (options.html !== undefined) await writePage(options.html, reportPage(proveReport(result)));
      printResult(context, result, { json: options.json, asText: (shown) => formatResult(shown, context.paint) });
      if (options.html !== undefined) context.tell(`report: ${options.html}`);
      if (result.failed > 0) context.setExitStatus(EXIT_FAILURE);
    });
}

async function proveInstallation(configuration: Configuration, context: CommandContext): Promise<ProveResult> {
  const { clock, signal } = context;
  const progress = context.progress();
  const startMs = clock.nowMs();
  try {
    const checks: Proof[] = await machineProofs(configuration, (subject) => progress.update(`checking: ${subject}`));
    for (const step of stepsFor(configuration, context)) {
      progress.update(`checking: ${step.area}: ${step.check}`);
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

function stepsFor(configuration: Configuration, { clock, signal }: CommandContext): Step[] {
  return [...byteSteps(configuration, signal), ...failureSteps({ clock, signal, config: {} }), ...engineSteps(signal)];
}

/** The findings of `meshcache doctor`. A warning is something that works with limits, so it has passed. */
async function machineProofs(configuration: Configuration, onCheck: (subject: string) => void): Promise<Proof[]> {
  const findings = await examine({ configuration, onCheck });
  return findings.map(({ subject, state, detail, advice }) => ({
    area: 'This machine',
    check: subject,
    outcome: OUTCOMES[state],
    detail: state === 'warning' ? `warning: ${detail}` : detail,
    ...(advice === undefined ? {} : { advice }),
    seconds: 0,
  }));
}

const OUTCOMES: Readonly<Record<Finding['state'], Outcome>> = {
  problem: 'failed',
  warning: 'passed',
  ok: 'passed',
  'n/a': 'not run',
};

function formatResult({ checks, passed, failed, not_run, seconds }: ProveResult, paint: Paint): string {
  const width = Math.max(...checks.map(({ check }) => check.length));
  const lines = checks.flatMap(({ area, check, outcome, detail, advice }, i) => {
    const heading = area === checks[i - 1]?.area ? [] : [...(i === 0 ? [] : ['']), area];
    const line = `  ${paint(TONES[outcome], outcome.padEnd(7))}  ${check.padEnd(width)}  ${detail}`;
    return [...heading, line, ...(advice === undefined ? [] : [`${' '.repeat(width + 13)}-> ${advice}`])];
  });
  const verdict = failed === 0 ? 'everything that ran was right' : 'something is wrong';
  const summary = `${verdict}: ${passed} passed, ${failed} failed, ${not_run} not run, in ${Math.round(seconds)} s`;
  return [...lines, '', paint(failed === 0 ? 'good' : 'bad', summary)].join('\n');
}
