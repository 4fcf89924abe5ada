import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { endAtExit, TemporaryFolder } from '../../processes/at-exit.js';
import { findFreePort, LOOPBACK } from '../../processes/free-port.js';
import { systemRandom } from '../../system/system-random.js';
import type { BenchOptions, BenchReport } from '../measuring/report.js';
import { AnswerTimes, ENGINE_VARIABLES, EngineDriver, LOGPROB_TOLERANCE, promptText } from './engine-driver.js';
import { ENGINE_PLANS, ENGINES, type EngineName, type EnginePlan, type Reader } from './engine-plans.js';

const READY = /cache server is running/;

const READY_LIMIT_MS = 300_000;

const STOP_LIMIT_MS = 30_000;

/** Tokens per LMCache chunk; only whole chunks are shared. */
const CHUNK_TOKENS = 256;

const L1_GB = 1;

const FULL_TOKENS = 1500;
const QUICK_TOKENS = 300;
/** Tokens per answer; all of them are compared. */
const ANSWER_TOKENS = 16;
/** Spare tokens for the answer, the end of the prompt, and the error in the estimated prompt length. */
const SLACK_TOKENS = 512;
const POOL_BYTES = 2 ** 29;
const NODE_POOL = '1gb';
const DISK_NODE_POOL = '64mb';
/** Stores are complete when this many checks in a row find an unchanged number of pages in the nodes. */
const CALM_CHECKS = 3;
const CHECKS_MAX = 200;
/** A prompt that takes almost no time. Engines continue their pending stores while they answer it. */
const SMALL_PROMPT = 'Hello';

/**
 * Measures the time to the first token in a real engine with a model when the prompt is computed, and when it comes
 * from the engine's own caches, from its own files, or from nodes. All answers must equal the computed ones.
 */
export async function engineBench(options: BenchOptions): Promise<BenchReport> {
  const { engine = 'vllm', environment, model, prompts = 2 } = options.engine ?? {};
  if (!isEngine(engine)) throw new Error(`--engine must be one of ${ENGINES.join(', ')}, got ${engine}`);
  if (environment === undefined || model === undefined) {
    throw new Error(
      'bench engine needs --environment (the folder of a virtual environment with the engine) and --model (the folder of a model); in a checkout, `npm run test:engines -- --install` makes both',
    );
  }
  const tokens = options.quick ? QUICK_TOKENS : (options.engine?.tokens ?? FULL_TOKENS);
  options.progress('starting three nodes');
  const bench = await EngineBench.start({ engine, environment: resolve(environment), model: resolve(model), tokens });
  try {
    const times = await bench.measure(options, prompts);
    return {
      title: `engine: first token of ${engine} on the CPU, a prompt of about ${tokens} tokens`,
      rows: times.rows(),
      notes: [
        `${prompts} prompts in each of ${options.rounds} rounds; medians. The engines that read take turns. The rows cold, engine's own cache and host pool are of the engine that computed the prompts.`,
        `texts_equal: answers whose ${ANSWER_TOKENS} tokens are the computed ones, with log probabilities that differ by at most ${LOGPROB_TOLERANCE}. logprob_difference: the largest difference of any token.`,
        await bench.readsOfNodes(),
      ],
      ...(times.different === 0 ? {} : { failure: `${times.different} answers are not the computed ones` }),
    };
  } finally {
    await bench.close();
  }
}

function isEngine(name: string): name is EngineName {
  return (ENGINES as readonly string[]).includes(name);
}

interface BenchSettings {
  readonly engine: EngineName;
  readonly environment: string;
  readonly model: string;
  readonly tokens: number;
}

class EngineBench {
  readonly #settings: BenchSettings;
  readonly #folder: TemporaryFolder;
  readonly #discoveryAddr: string;
  readonly #diskDiscoveryAddr: string;
  readonly #nodes: NodeProcess[] = [];
  readonly #drivers = new Set<EngineDriver>();
  readonly #servers: LmcacheServer[] = [];

  private constructor(settings: BenchSettings, folder: TemporaryFolder, discoveryAddrs: readonly [string, string]) {
    this.#settings = settings;
    this.#folder = folder;
    [this.#discoveryAddr, this.#diskDiscoveryAddr] = discoveryAddrs;
  }

  static async start(settings: BenchSettings): Promise<EngineBench> {
    const folder = new TemporaryFolder('meshcache-engine-');
    const freeAddr = async () => `${LOOPBACK}:${await findFreePort(systemRandom)}`;
    const bench = new EngineBench(settings, folder, [await freeAddr(), await freeAddr()]);
    try {
      await bench.#startNode('own', bench.#discoveryAddr, { pool: NODE_POOL });
      await bench.#startNode('other', bench.#discoveryAddr, { pool: NODE_POOL });
      // This node has a cluster of its own, so that its engine cannot read from another node's pool.
      const options = { disk_enabled: 'true', disk_path: join(folder.path, 'disk'), disk_size: '4gb' };
      await bench.#startNode('disk', bench.#diskDiscoveryAddr, { pool: DISK_NODE_POOL, options });
      return bench;
    } catch (error) {
      await bench.close();
      throw error;
    }
  }

  async #startNode(
    name: string,
    discoveryAddr: string,
    settings: { readonly pool: string; readonly options?: Readonly<Record<string, string>> },
  ): Promise<void> {
    this.#nodes.push(await NodeProcess.start({ name, discoveryAddr, folder: this.#folder.path, ...settings }));
  }

  async measure(options: BenchOptions, prompts: number): Promise<AnswerTimes> {
    const plan = this.#plan();
    const { tokens } = this.#settings;
    // The extra prompt is not counted, because an engine's first read attaches to the node and touches memory.
    const texts = Array.from({ length: options.rounds * prompts + 1 }, (_, number) => promptText(number, tokens));
    const times = new AnswerTimes();
    for (const adapter of plan.servers ?? []) {
      options.progress('starting LMCache servers');
      this.#servers.push(await LmcacheServer.start(this.#settings.environment, adapter));
    }
    for (const [at, writer] of plan.writers.entries()) {
      options.progress(`starting engine ${at + 1} of ${plan.writers.length} that computes`);
      const driver = await this.#startDriver(plan, writer);
      const name = (from: string) => (writer.isMeasured ? from : `${from}, writer ${at + 1}`);
      for (const [number, text] of texts.entries()) {
        options.progress(`computing prompt ${number + 1} of ${texts.length}`);
        times.add(name('cold'), number, await driver.ask(text, ANSWER_TOKENS));
        times.add(name("engine's own cache"), number, await driver.ask(text, ANSWER_TOKENS));
      }
      await this.#settle(driver);
      if (plan.hasHostPool && writer.isMeasured) await this.#readHostPool(driver, texts, times);
      await this.#closeDriver(driver);
    }
    await this.#readAll(plan, { texts, prompts, rounds: options.rounds, progress: options.progress }, times);
    return times;
  }

  #plan(): EnginePlan {
    const [own, other, disk] = this.#nodes as [NodeProcess, NodeProcess, NodeProcess];
    return ENGINE_PLANS[this.#settings.engine]({
      model: this.#settings.model,
      maxTokens: Math.ceil((this.#settings.tokens + SLACK_TOKENS) / SLACK_TOKENS) * SLACK_TOKENS,
      poolBytes: POOL_BYTES,
      places: {
        ownSocket: own.clientSocket,
        otherSocket: other.clientSocket,
        diskSocket: disk.clientSocket,
        filesFolder: join(this.#folder.path, 'files'),
      },
    });
  }

  /** Waits until the engine has completed its background stores. */
  async #settle(driver: EngineDriver): Promise<void> {
    let before = -1;
    for (let check = 0, calm = 0; calm < CALM_CHECKS; check++) {
      if (check === CHECKS_MAX) throw new Error(`the engine still stores pages after ${CHECKS_MAX} checks`);
      await driver.ask(SMALL_PROMPT, 1);
      const entries = (await this.#statuses()).reduce((sum, { totals }) => sum + totals.pool.entries, 0);
      calm = entries === before ? calm + 1 : 0;
      before = entries;
    }
  }

  /** Reads prompts back from the pool in host memory: the last one first, then the others in order. */
  async #readHostPool(driver: EngineDriver, texts: readonly string[], times: AnswerTimes): Promise<void> {
    await driver.dropCache();
    for (const number of [texts.length - 1, ...texts.keys()].slice(0, texts.length)) {
      times.add('host pool', number, await driver.ask(texts[number] as string, ANSWER_TOKENS));
    }
  }

  async #readAll(
    plan: EnginePlan,
    work: {
      readonly texts: readonly string[];
      readonly prompts: number;
      readonly rounds: number;
      progress(text: string): void;
    },
    times: AnswerTimes,
  ): Promise<void> {
    const readers: { readonly name: string; readonly driver: EngineDriver }[] = [];
    for (const reader of plan.readers) {
      const { name } = reader;
      work.progress(`starting the engine that reads: ${name}`);
      const driver = await this.#startDriver(plan, reader);
      times.checkOnly(name, 0, await driver.ask(work.texts[0] as string, ANSWER_TOKENS));
      readers.push({ name, driver });
    }
    for (let round = 0; round < work.rounds; round++) {
      for (let at = 0; at < readers.length; at++) {
        // Each round starts with a different reader.
        const { name, driver } = readers[(at + round) % readers.length] as (typeof readers)[number];
        work.progress(`round ${round + 1} of ${work.rounds}: ${name}`);
        for (let prompt = 0; prompt < work.prompts; prompt++) {
          const number = 1 + round * work.prompts + prompt;
          times.add(name, number, await driver.ask(work.texts[number] as string, ANSWER_TOKENS));
        }
      }
    }
  }

  async #startDriver(
    plan: EnginePlan,
    { settings, server }: Pick<Reader, 'settings' | 'server'>,
  ): Promise<EngineDriver> {
    const port = server === undefined ? {} : { server: this.#servers[server]?.port };
    const driver = await EngineDriver.start(this.#settings.environment, {
      module: plan.module,
      settings: { ...settings, ...port },
      variables: { SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR: join(this.#folder.path, 'files', 'sglang') },
    });
    this.#drivers.add(driver);
    await driver.ask(SMALL_PROMPT, 1);
    return driver;
  }

  async #closeDriver(driver: EngineDriver): Promise<void> {
    this.#drivers.delete(driver);
    await driver.close();
  }

  #statuses(): Promise<ClusterStatus[]> {
    return Promise.all([this.#discoveryAddr, this.#diskDiscoveryAddr].map(clusterStatus));
  }

  /** Describes where the nodes found the pages that engines read. */
  async readsOfNodes(): Promise<string> {
    const nodes = (await this.#statuses()).flatMap((status) => status.nodes);
    const reads = nodes.map(({ node_id, reads: { local, remote, disk } }) => `${node_id} ${local}/${remote}/${disk}`);
    return `Pages that each node's engines read, from its own pool/another node/its disk: ${reads.join(', ')}.`;
  }

  async close(): Promise<void> {
    await Promise.all([...this.#drivers].map((driver) => driver.close()));
    await Promise.all(this.#servers.map((server) => server.stop()));
    await Promise.all(this.#nodes.map((node) => node.end()));
    this.#folder.remove();
  }
}

/** A real `lmcache server`, started as an operator would, with memory that nodes can map. */
class LmcacheServer {
  readonly port: number;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, port: number) {
    this.#child = child;
    this.port = port;
  }

  /**
   * Starts a server. Resolves when it is ready.
   * @param adapter configuration of its storage adapter (L2); undefined for a server with only its own memory
   */
  static async start(environment: string, adapter: object | undefined): Promise<LmcacheServer> {
    const port = await findFreePort(systemRandom);
    const httpPort = await findFreePort(systemRandom);
    const words = ['server', '--l1-size-gb', `${L1_GB}`, '--eviction-policy', 'LRU', '--chunk-size', `${CHUNK_TOKENS}`];
    words.push('--shm-name', `meshcache-${port}`, '--no-l1-use-lazy', '--port', `${port}`);
    words.push('--http-host', LOOPBACK, '--http-port', `${httpPort}`, '--disable-observability');
    // Without this option, a server on a machine without a GPU rejects engines.
    words.push('--supported-transfer-mode', 'auto');
    if (adapter !== undefined) words.push('--l2-adapter', JSON.stringify(adapter));
    const child = spawn(join(environment, 'bin', 'lmcache'), words, {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...ENGINE_VARIABLES, LMCACHE_DISABLE_BANNER: '1' },
    });
    endAtExit(child);
    const server = new LmcacheServer(child, port);
    try {
      await server.#untilReady();
    } catch (error) {
      await server.stop();
      throw error;
    }
    return server;
  }

  async #untilReady(): Promise<void> {
    let last = '';
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`lmcache server is not ready: ${last}`)), READY_LIMIT_MS);
      // Both streams are read to the end, because a full pipe would block the server.
      for (const stream of [this.#child.stdout, this.#child.stderr]) {
        createInterface({ input: stream as NodeJS.ReadableStream }).on('line', (line) => {
          last = line;
          if (READY.test(line)) {
            clearTimeout(timer);
            resolve();
          }
        });
      }
      this.#child.once('error', reject);
      this.#child.once('close', (status) => {
        clearTimeout(timer);
        reject(new Error(`lmcache server ended with status ${status}: ${last}`));
      });
    });
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const closed = once(this.#child, 'close');
    this.#child.kill('SIGINT');
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), STOP_LIMIT_MS);
    await closed;
    clearTimeout(timer);
  }
}

/** Path of the command; it is the same relative to build/dist and to build/test. */
const COMMAND = fileURLToPath(new URL('./cli.js', import.meta.url));
const NODE_READY_LIMIT_MS = 60_000;
const STATUS_LIMIT_MS = 30_000;

interface NodeSettings {
  readonly name: string;
  readonly discoveryAddr: string;
  /** Folder of the client socket. */
  readonly folder: string;
  readonly pool: string;
  /** Additional configuration keys. */
  readonly options?: Readonly<Record<string, string>>;
}

/** The part of `meshcache status --json` that the benchmark uses. */
interface ClusterStatus {
  readonly nodes: readonly {
    readonly node_id: string;
    readonly pool?: { readonly entries: number };
    readonly reads: Readonly<Record<string, number>>;
  }[];
  readonly totals: { readonly pool: { readonly entries: number } };
}

/** A node in a process of its own, started with the same command that users run. */
class NodeProcess {
  readonly clientSocket: string;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, clientSocket: string) {
    this.#child = child;
    this.clientSocket = clientSocket;
  }

  /** Starts a node. Resolves when it is ready. */
  static async start(settings: NodeSettings): Promise<NodeProcess> {
    const socket = join(settings.folder, `${settings.name}.sock`);
    const options = { node_id: settings.name, local_hostname: '127.0.0.1', metrics_port: '0', ...settings.options };
    const child = spawn(
      process.execPath,
      [
        ...[COMMAND, 'node', '--json', '--discovery-addr', settings.discoveryAddr],
        ...['--pool', settings.pool, '--client-socket', socket],
        ...Object.entries(options).flatMap(([key, value]) => ['-o', `${key}=${value}`]),
      ],
      { stdio: ['ignore', 'pipe', 'inherit'], env: { ...process.env, MESHCACHE_LOG: 'error' } },
    );
    endAtExit(child);
    const timer = setTimeout(() => child.kill('SIGKILL'), NODE_READY_LIMIT_MS);
    try {
      const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream });
      await Promise.race([
        once(lines, 'line'),
        once(child, 'close').then(([status]) => {
          throw new Error(`node ${settings.name} ended with status ${status} before it was ready`);
        }),
      ]);
    } finally {
      clearTimeout(timer);
    }
    return new NodeProcess(child, socket);
  }

  /** Kills the process; resolves when it is gone. */
  async end(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const closed = once(this.#child, 'close');
    this.#child.kill('SIGKILL');
    await closed;
  }
}

/** Runs `meshcache status` and parses its output. */
async function clusterStatus(discoveryAddr: string): Promise<ClusterStatus> {
  const words = [COMMAND, 'status', '--discovery-addr', discoveryAddr, '--json'];
  const { stdout } = await promisify(execFile)(process.execPath, words, {
    timeout: STATUS_LIMIT_MS,
    maxBuffer: 2 ** 24,
  });
  return JSON.parse(stdout) as ClusterStatus;
}
