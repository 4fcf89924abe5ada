import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { TemporaryFolder } from '../../processes/at-exit.js';
import { findFreePort, LOOPBACK } from '../../processes/free-port.js';
import { PythonEngine } from '../../processes/python-engine.js';
import { systemRandom } from '../../system/system-random.js';
import { PeerProcess } from '../measuring/peer-process.js';
import { MOONCAKE_VARIABLES } from './mooncake.js';
import type { NodeAnswer, NodeCommand } from './peer-node.js';

const DRIVER = 'engine_bench.peers_driver';
/** Memory of a store relative to the pages of one pass: local pages, written ones, and those in quarantine. */
const STORE_SLACK = 4;
/** Characters of a key before the number of its page. Keys have 64, as content hashes do. */
const PREFIX_LENGTH = 56;
/** The age of a map that may answer `exists`. */
const MAP_MAX_AGE_MS = 60_000;

/** Keeps a core busy until its parent is gone, even if that happens before the first line. */
const BURN = `while (process.ppid === ${process.pid}) for (const end = Date.now() + 100; Date.now() < end; );`;

/** Stores that are compared. */
export type StoreName = 'mooncake' | 'meshcache';

/** A member of a store: a client in Python, and the process that has the pages which this client sets. */
export interface Member {
  readonly client: PythonEngine;
  readonly holder: { signal(signal: NodeJS.Signals): void };
}

/** A store: the process that has the remote pages, and the one that measures, with the local pages. */
export interface Side {
  readonly owner: PythonEngine;
  readonly reader: PythonEngine;
}

/** All processes of the comparison of speeds. */
export class PeerSides {
  readonly mooncake: Side;
  readonly meshcache: Side;
  readonly #processes: PeerProcesses;

  private constructor(mooncake: Side, meshcache: Side, processes: PeerProcesses) {
    this.mooncake = mooncake;
    this.meshcache = meshcache;
    this.#processes = processes;
  }

  /** Starts both stores, with clients of `python`, and `burn` processes that keep cores busy. */
  static async start(python: string, workBytes: number, burn: number): Promise<PeerSides> {
    const processes = await PeerProcesses.prepare(python, { workBytes, storeBytes: STORE_SLACK * workBytes });
    const side = async (store: StoreName): Promise<Side> => {
      const owner = await processes.add(store);
      return { owner: owner.client, reader: (await processes.add(store)).client };
    };
    try {
      const mooncake = await side('mooncake');
      const meshcache = await side('meshcache');
      processes.burn(burn);
      return new PeerSides(mooncake, meshcache, processes);
    } catch (error) {
      await processes.end();
      throw error;
    }
  }

  /** Starts a further node, which answers `exists` from its map of the cluster, and a client of it. */
  async startMapReader(): Promise<PythonEngine> {
    return (await this.#processes.add('meshcache', { config: { exists_max_age_ms: MAP_MAX_AGE_MS } })).client;
  }

  close(): Promise<void> {
    return this.#processes.end();
  }
}

interface MemberSettings {
  /** Configuration keys of a node. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** Environment variables of a client of Mooncake. */
  readonly variables?: Readonly<Record<string, string>>;
}

interface StoreSettings {
  /** Bytes of the pages of one pass. */
  readonly workBytes: number;
  /** Memory that each member gives the store. */
  readonly storeBytes: number;
  /** Configuration keys of all nodes. */
  readonly config?: Readonly<Record<string, unknown>>;
}

/** The members of one store of each kind, in processes of this machine. */
export class PeerProcesses {
  readonly #python: string;
  readonly #settings: StoreSettings;
  readonly #folder = new TemporaryFolder('meshcache-bench-');
  readonly #discoveryAddr: string;
  readonly #masterAddr: string;
  readonly #drivers: PythonEngine[] = [];
  readonly #nodes: PeerProcess<NodeCommand, NodeAnswer>[] = [];
  readonly #burners: ChildProcess[] = [];
  /** The client whose process has started Mooncake's master. */
  #first: PythonEngine | undefined;
  /** A frozen process would not notice that its parent is gone. */
  readonly #thaw = (): void => {
    for (const node of this.#nodes) node.signal('SIGCONT');
  };

  private constructor(python: string, settings: StoreSettings, [discoveryAddr, masterAddr]: [string, string]) {
    this.#python = python;
    this.#settings = settings;
    this.#discoveryAddr = discoveryAddr;
    this.#masterAddr = masterAddr;
    // A signal ends the program, and with its pipes all processes that it has started.
    process.once('exit', this.#thaw);
  }

  static async prepare(python: string, settings: StoreSettings): Promise<PeerProcesses> {
    return new PeerProcesses(python, settings, [await freeAddress(), await freeAddress()]);
  }

  /** Starts a member. The first one of Mooncake also starts its master, and the first node runs the discovery. */
  add(store: StoreName, { config = {}, variables = {} }: MemberSettings = {}): Promise<Member> {
    return store === 'mooncake' ? this.#addMooncake(variables) : this.#addNode(config);
  }

  async #addMooncake(variables: Readonly<Record<string, string>>): Promise<Member> {
    const start = {
      store: 'mooncake',
      address: this.#masterAddr,
      host: LOOPBACK,
      segment_bytes: this.#settings.storeBytes,
      metrics_port: this.#first === undefined ? await findFreePort(systemRandom) : 0,
    };
    const client = await this.#driver(start, variables);
    this.#first ??= client;
    return { client, holder: client };
  }

  async #addNode(config: Readonly<Record<string, unknown>>): Promise<Member> {
    const node = new PeerProcess<NodeCommand, NodeAnswer>('peers');
    this.#nodes.push(node);
    const address = join(this.#folder.path, `${this.#drivers.length}.sock`);
    const { storeBytes: poolBytes, config: ofAll } = this.#settings;
    const all = { ...ofAll, ...config, client_socket: address };
    await node.call({ kind: 'start', discoveryAddr: this.#discoveryAddr, poolBytes, config: all });
    const count = this.#nodes.length;
    for (const one of this.#nodes) await one.call({ kind: 'await-members', count });
    return { client: await this.#driver({ store: 'meshcache', address }), holder: node };
  }

  /** Kills Mooncake's master, or the node that runs the discovery. */
  async killServer(store: StoreName): Promise<void> {
    if (store === 'mooncake') await this.#first?.call({ op: 'kill_master' });
    else await this.#nodes.shift()?.kill();
  }

  /** Starts the server that was killed again, without what it knew. */
  async restartServer(store: StoreName): Promise<void> {
    if (store === 'mooncake') await this.#first?.call({ op: 'start_master' });
    else await this.#addNode({});
  }

  burn(count: number): void {
    for (let i = 0; i < count; i++) this.#burners.push(spawn(process.execPath, ['-e', BURN], { stdio: 'ignore' }));
  }

  /** Ends all processes; resolves when none of them is left. */
  async end(): Promise<void> {
    for (const burner of this.#burners) burner.kill('SIGKILL');
    await Promise.all([...this.#drivers.map((driver) => driver.end()), ...this.#nodes.map((node) => node.kill())]);
    process.off('exit', this.#thaw);
    this.#folder.remove();
  }

  async #driver(
    start: Readonly<Record<string, unknown>>,
    variables: Readonly<Record<string, string>> = {},
  ): Promise<PythonEngine> {
    const driver = new PythonEngine(this.#python, DRIVER, { ...MOONCAKE_VARIABLES, ...variables });
    this.#drivers.push(driver);
    await driver.call({ op: 'start', work_bytes: this.#settings.workBytes, ...start });
    return driver;
  }
}

async function freeAddress(): Promise<string> {
  return `${LOOPBACK}:${await findFreePort(systemRandom)}`;
}

/** What all keys of some pages begin with. */
export function prefixOf(pages: string): string {
  return createHash('sha256').update(`bench peers ${pages}`).digest('hex').slice(0, PREFIX_LENGTH);
}
