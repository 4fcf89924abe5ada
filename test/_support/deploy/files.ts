import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { freePort, until } from '../support.js';

/** Files of the chart that are also used without Kubernetes. */
export const ALERTS = 'helm/meshcache/files/prometheus-alerts.yml';
export const DASHBOARD = 'helm/meshcache/files/grafana-dashboard.json';

/** The path of a file of deploy/; bundled tests lie two folders below the project. */
export function deployFile(name: string): string {
  return fileURLToPath(new URL(`../../deploy/${name}`, import.meta.url));
}

/** Reason why a test that needs this program cannot run; undefined if it can. */
export function missingProgram(program: string): string | undefined {
  const { error } = spawnSync(program, ['--version'], { stdio: 'ignore' });
  return error === undefined ? undefined : `${program} is not installed here (Debian: apt install prometheus)`;
}

export interface PromtoolRun {
  readonly status: number | null;
  readonly output: string;
}

export function promtool(...args: string[]): PromtoolRun {
  const { status, stdout, stderr } = spawnSync('promtool', args, { encoding: 'utf8' });
  return { status, output: stdout + stderr };
}

/** One series of an instant query. */
export interface Sample {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: number;
}

/** An alert rule as Prometheus has loaded it. */
export interface Rule {
  readonly name: string;
  readonly query: string;
  /** `ok` once the rule has been evaluated. */
  readonly health: string;
  readonly lastError?: string;
}

interface Answer {
  readonly status: 'success' | 'error';
  readonly error?: string;
  readonly data: unknown;
}

/** A Prometheus server in a temporary folder, on a free port of loopback. */
export class PrometheusServer {
  readonly #folder: string;
  readonly #child: ChildProcess;
  readonly #url: string;
  readonly #ended: Promise<void>;
  #log = '';

  private constructor(folder: string, port: number) {
    this.#folder = folder;
    this.#url = `http://127.0.0.1:${port}`;
    this.#child = spawn(
      'prometheus',
      [
        `--config.file=${join(folder, 'prometheus.yml')}`,
        `--storage.tsdb.path=${join(folder, 'data')}`,
        `--web.listen-address=127.0.0.1:${port}`,
      ],
      { stdio: ['ignore', 'ignore', 'pipe'] },
    );
    this.#child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#log += text;
    });
    this.#ended = new Promise((resolve) => this.#child.once('close', () => resolve()));
  }

  /** Starts the server with this configuration; resolves when it answers queries. */
  static async start(config: string): Promise<PrometheusServer> {
    const folder = mkdtempSync(join(tmpdir(), 'meshcache-prometheus-'));
    writeFileSync(join(folder, 'prometheus.yml'), config);
    const server = new PrometheusServer(folder, await freePort());
    try {
      await until(() => server.#isReady());
    } catch (error) {
      await server.stop();
      throw new Error(`prometheus did not come up; it wrote:\n${server.#log}`, { cause: error });
    }
    return server;
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  get folder(): string {
    return this.#folder;
  }

  /** Evaluates an expression at a time in seconds since 1970; default: now. */
  async query(expression: string, atS?: number): Promise<Sample[]> {
    const at = atS === undefined ? '' : `&time=${atS}`;
    const data = (await this.#get(`query?query=${encodeURIComponent(expression)}${at}`)) as {
      readonly resultType: string;
      readonly result: readonly { readonly metric: Record<string, string>; readonly value: [number, string] }[];
    };
    return data.result.map(({ metric, value }) => ({ metric, value: Number(value[1]) }));
  }

  /** The single number that an expression yields. */
  async number(expression: string, atS?: number): Promise<number> {
    const samples = await this.query(expression, atS);
    if (samples.length !== 1) throw new Error(`${expression} gives ${samples.length} series`);
    return samples[0]?.value ?? Number.NaN;
  }

  async rules(): Promise<Rule[]> {
    const { groups } = (await this.#get('rules')) as { readonly groups: readonly { readonly rules: Rule[] }[] };
    return groups.flatMap(({ rules }) => rules);
  }

  /** Types of the metric families of this name, as the scraped nodes describe them. */
  async typesOf(family: string): Promise<string[]> {
    const data = (await this.#get(`targets/metadata?metric=${family}`)) as { readonly type: string }[];
    return data.map(({ type }) => type);
  }

  async targetErrors(): Promise<string[]> {
    const { activeTargets } = (await this.#get('targets')) as { activeTargets: { lastError: string }[] };
    return activeTargets.map(({ lastError }) => lastError).filter((error) => error !== '');
  }

  /** Ends the server and removes its folder. Idempotent. */
  async stop(): Promise<void> {
    this.#child.kill('SIGTERM');
    await this.#ended;
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async #isReady(): Promise<boolean> {
    if (this.#child.exitCode !== null) throw new Error(`prometheus ended with status ${this.#child.exitCode}`);
    const answer = await fetch(`${this.#url}/-/ready`).catch(() => undefined);
    return answer?.ok === true;
  }

  async #get(path: string): Promise<unknown> {
    const answer = await fetch(`${this.#url}/api/v1/${path}`);
    const body = (await answer.json()) as Answer;
    if (body.status !== 'success') throw new Error(`prometheus refused ${decodeURIComponent(path)}: ${body.error}`);
    return body.data;
  }
}
