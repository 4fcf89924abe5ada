import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { EngineStats } from '../../../src/native/engine/engine-channel.js';
import type { TransferEngineOptions } from '../../../src/native/transfer-engine.js';

export interface ServingOptions extends Pick<TransferEngineOptions, 'bindHost' | 'bindPort' | 'deviceNames'> {
  readonly clusterSecret?: string;
  /** Length of its region. */
  readonly length: number;
  /** Seed of the region's bytes, see `tiled`. */
  readonly seed: number;
}

/** The facts that a reader needs. */
export interface ServedRegion {
  readonly endpoint: string;
  /** Address in decimal. */
  readonly addr: string;
  readonly rkey: number;
  readonly length: number;
}

export type ServingCommand = 'deregister' | 'stats' | { readonly fill: number };

/** A process that serves one region of memory; started and ended by a test. */
export class ServingProcess {
  readonly #child: ChildProcess;
  readonly region: ServedRegion;

  static async start(options: ServingOptions): Promise<ServingProcess> {
    const program = fileURLToPath(new URL('./rdma-serving-program.js', import.meta.url));
    const child = spawn(process.execPath, [program, JSON.stringify(options)], {
      stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
    });
    let said = '';
    for await (const chunk of child.stdout as NodeJS.ReadableStream) {
      said += chunk;
      if (said.endsWith('\n')) break;
    }
    if (!said.endsWith('\n')) throw new Error(`the serving process ended with status ${child.exitCode}`);
    return new ServingProcess(child, JSON.parse(said) as ServedRegion);
  }

  private constructor(child: ChildProcess, region: ServedRegion) {
    this.#child = child;
    this.region = region;
  }

  get pid(): number {
    return this.#child.pid as number;
  }

  deregister(): Promise<unknown> {
    return this.#call('deregister');
  }

  /** Sets every byte of the region. */
  fill(byte: number): Promise<unknown> {
    return this.#call({ fill: byte });
  }

  async stats(): Promise<EngineStats> {
    return (await this.#call('stats')) as EngineStats;
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Ends the process without letting it say goodbye. */
  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.kill('SIGKILL');
    await once(this.#child, 'exit');
  }

  async #call(command: ServingCommand): Promise<unknown> {
    const answer = once(this.#child, 'message');
    this.#child.send(command);
    const [{ value }] = (await answer) as [{ value: unknown }];
    return value;
  }
}
