import { type ChildProcess, spawn } from 'node:child_process';
import { rmSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findFreePort, LOOPBACK } from '../../processes/free-port.js';
import { PythonEngine } from '../../processes/python-engine.js';
import { systemRandom } from '../../system/system-random.js';
import { PeerProcess } from '../measuring/peer-process.js';
import { MOONCAKE_VARIABLES } from './mooncake.js';
import type { NodeAnswer, NodeCommand } from './peer-node.js';

const DRIVER = 'engine_bench.peers_driver';
/** Memory of a store relative to the pages of one pass: local pages, written ones, and those in quarantine. */
const STORE_SLACK = 4;
/** The age of a map that may answer `exists`. */
const MAP_MAX_AGE_MS = 60_000;

/** Keeps a core busy until its parent is gone. */
const BURN = `
const parent = process.ppid;
while (process.ppid === parent) for (const end = Date.now() + 100; Date.now() < end; );
`;

/** A store: the process that has the remote pages, and the one that measures, with the local pages. */
export interface Side {
  readonly owner: PythonEngine;
  readonly reader: PythonEngine;
}

/** All processes of the benchmark. */
export class PeerSides {
  readonly mooncake: Side;
  readonly meshcache: Side;
  readonly #processes: Processes;

  private constructor(mooncake: Side, meshcache: Side, processes: Processes) {
    this.mooncake = mooncake;
    this.meshcache = meshcache;
    this.#processes = processes;
  }

  /** Starts both stores, with clients of `python`, and `burn` processes that keep cores busy. */
  static async start(python: string, workBytes: number, burn: number): Promise<PeerSides> {
    const processes = await Processes.prepare(python, workBytes);
    try {
      const mooncake = await processes.mooncake();
      const meshcache = await processes.meshcache();
      processes.burn(burn);
      return new PeerSides(mooncake, meshcache, processes);
    } catch (error) {
      await processes.end();
      throw error;
    }
  }

  /** Starts a further node, which answers `exists` from its map of the cluster, and a client of it. */
  startMapReader(): Promise<PythonEngine> {
    return this.#processes.client('map', { exists_max_age_ms: MAP_MAX_AGE_MS });
  }

  close(): Promise<void> {
    return this.#processes.end();
  }
}

class Processes {
  readonly #python: string;
  readonly #workBytes: number;
  readonly #folder: string;
  readonly #discoveryAddr: string;
  readonly #drivers: PythonEngine[] = [];
  readonly #nodes: PeerProcess<NodeCommand, NodeAnswer>[] = [];
  readonly #burners: ChildProcess[] = [];
  readonly #removeFolder = (): void => rmSync(this.#folder, { recursive: true, force: true });

  private constructor(python: string, workBytes: number, folder: string, discoveryAddr: string) {
    this.#python = python;
    this.#workBytes = workBytes;
    this.#folder = folder;
    this.#discoveryAddr = discoveryAddr;
    // A signal ends the program, and with its pipes all processes that it has started.
    process.once('exit', this.#removeFolder);
  }

  static async prepare(python: string, workBytes: number): Promise<Processes> {
    const folder = await mkdtemp(join(tmpdir(), 'meshcache-bench-'));
    return new Processes(python, workBytes, folder, await freeAddress());
  }

  /** The owner's process also starts Mooncake's master. */
  async mooncake(): Promise<Side> {
    const address = await freeAddress();
    const start = { store: 'mooncake', address, host: LOOPBACK, segment_bytes: this.#storeBytes };
    const owner = await this.#driver({ ...start, metrics_port: await findFreePort(systemRandom) });
    return { owner, reader: await this.#driver(start) };
  }

  async meshcache(): Promise<Side> {
    return { owner: await this.client('owner', {}), reader: await this.client('reader', {}) };
  }

  /** Starts a node that joins the cluster, and a client of it. */
  async client(name: string, config: Readonly<Record<string, unknown>>): Promise<PythonEngine> {
    const node = new PeerProcess<NodeCommand, NodeAnswer>('peers');
    this.#nodes.push(node);
    const address = join(this.#folder, `${name}.sock`);
    const { poolBytes, discoveryAddr } = { poolBytes: this.#storeBytes, discoveryAddr: this.#discoveryAddr };
    await node.call({ kind: 'start', discoveryAddr, poolBytes, config: { ...config, client_socket: address } });
    const count = this.#nodes.length;
    for (const one of this.#nodes) await one.call({ kind: 'await-members', count });
    return this.#driver({ store: 'meshcache', address });
  }

  burn(count: number): void {
    for (let i = 0; i < count; i++) this.#burners.push(spawn(process.execPath, ['-e', BURN], { stdio: 'ignore' }));
  }

  /** Ends all processes; resolves when none of them is left. */
  async end(): Promise<void> {
    for (const burner of this.#burners) burner.kill('SIGKILL');
    await Promise.all([...this.#drivers.map((driver) => driver.end()), ...this.#nodes.map((node) => node.kill())]);
    process.off('exit', this.#removeFolder);
    this.#removeFolder();
  }

  get #storeBytes(): number {
    return STORE_SLACK * this.#workBytes;
  }

  async #driver(start: Readonly<Record<string, unknown>>): Promise<PythonEngine> {
    const driver = new PythonEngine(this.#python, DRIVER, MOONCAKE_VARIABLES);
    this.#drivers.push(driver);
    await driver.call({ op: 'start', work_bytes: this.#workBytes, ...start });
    return driver;
  }
}

async function freeAddress(): Promise<string> {
  return `${LOOPBACK}:${await findFreePort(systemRandom)}`;
}
