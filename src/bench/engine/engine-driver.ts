import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { PYTHON_FOLDER, PythonEngine } from '../../processes/python-engine.js';

const CLOSE_LIMIT_MS = 30_000;

/** An engine's answer to a prompt. */
export interface Answer {
  readonly error?: string;
  readonly first_token_s: number;
  readonly prompt_tokens: number;
  /** Prompt tokens that were not computed. */
  readonly cached_tokens: number;
  readonly text: string;
  readonly tokens: readonly number[];
  readonly logprobs: readonly number[];
}

/** The parameters of an engine, as its driver takes them. */
export type EngineSettings = Readonly<Record<string, unknown>>;

/** A real engine with a model, in a Python process of the environment that has it. */
export class EngineDriver {
  readonly #python: PythonEngine;

  private constructor(python: PythonEngine) {
    this.#python = python;
  }

  /**
   * Starts an engine. Resolves when it can answer.
   * @param environment folder of a virtual environment with the engine
   * @param start.module the driver's module, in the package `engine_bench`
   * @param start.variables variables of its environment, in addition
   */
  static async start(
    environment: string,
    start: {
      readonly module: string;
      readonly settings: EngineSettings;
      readonly variables: Readonly<Record<string, string>>;
    },
  ): Promise<EngineDriver> {
    const program = join(environment, 'bin', 'python');
    const variables = { ...ENGINE_VARIABLES, ...start.variables };
    const driver = new EngineDriver(new PythonEngine(program, `engine_bench.${start.module}`, variables));
    try {
      await driver.#python.call({ op: 'start', ...start.settings });
    } catch (error) {
      await driver.#python.end();
      throw error;
    }
    return driver;
  }

  ask(prompt: string, tokens: number): Promise<Answer> {
    return this.#python.call<Answer>({ op: 'ask', prompt, tokens });
  }

  /** Forgets what the engine's device has. */
  async dropCache(): Promise<void> {
    await this.#python.call({ op: 'drop_cache' });
  }

  close(): Promise<void> {
    return this.#python.close(CLOSE_LIMIT_MS);
  }
}

/** Variables for engines on a machine without a GPU: they ask no network, and they hash tokens alike. */
export const ENGINE_VARIABLES: Readonly<Record<string, string>> = {
  DO_NOT_TRACK: '1',
  HF_HUB_OFFLINE: '1',
  LMCACHE_TRACK_USAGE: 'false',
  OMP_NUM_THREADS: process.env.OMP_NUM_THREADS ?? '2',
  PYTHONDONTWRITEBYTECODE: '',
  PYTHONHASHSEED: '0',
  PYTHONPATH: [PYTHON_FOLDER, join(PYTHON_FOLDER, 'engine_bench', 'stand_ins')].join(delimiter),
  // Bytecode lies beside no sources, and is there for the next process.
  PYTHONPYCACHEPREFIX: process.env.PYTHONPYCACHEPREFIX ?? join(tmpdir(), 'meshcache-bytecode'),
  SGLANG_USE_CPU_ENGINE: '1',
  TOKENIZERS_PARALLELISM: 'false',
  VLLM_CPU_KVCACHE_SPACE: '1',
  // Several engines share the cores: none is bound to some of them.
  VLLM_CPU_OMP_THREADS_BIND: 'nobind',
  VLLM_LOGGING_LEVEL: 'WARNING',
  VLLM_NO_USAGE_STATS: '1',
};
