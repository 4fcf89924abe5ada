import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { PYTHON_FOLDER, PythonEngine } from '../../processes/python-engine.js';
import { type BenchReport, median } from '../measuring/report.js';

const CLOSE_LIMIT_MS = 30_000;

/** An engine's answer to a prompt. */
export interface Answer {
  readonly error?: string;
  readonly first_token_s: number;
  readonly prompt_tokens: number;
  /** Prompt tokens that the engine took from a cache. */
  readonly cached_tokens: number;
  readonly text: string;
  readonly tokens: readonly number[];
  readonly logprobs: readonly number[];
}

/** Parameters of an engine, in the form that its driver expects. */
export type EngineSettings = Readonly<Record<string, unknown>>;

/** A real engine with a model, in a Python process of its virtual environment. */
export class EngineDriver {
  readonly #python: PythonEngine;

  private constructor(python: PythonEngine) {
    this.#python = python;
  }

  /**
   * Starts an engine. Resolves when it can answer.
   * @param environment folder of a virtual environment with the engine
   * @param start.module the driver's module, in the package `engine_bench`
   * @param start.variables additional environment variables
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

  /** Drops the cache on the engine's device. */
  async dropCache(): Promise<void> {
    await this.#python.call({ op: 'drop_cache' });
  }

  close(): Promise<void> {
    return this.#python.close(CLOSE_LIMIT_MS);
  }
}

/** Environment variables for engines on a machine without a GPU: no network access, and equal hashes of tokens. */
export const ENGINE_VARIABLES: Readonly<Record<string, string>> = {
  DO_NOT_TRACK: '1',
  HF_HUB_OFFLINE: '1',
  LMCACHE_TRACK_USAGE: 'false',
  OMP_NUM_THREADS: process.env.OMP_NUM_THREADS ?? '2',
  PYTHONDONTWRITEBYTECODE: '',
  PYTHONHASHSEED: '0',
  PYTHONPATH: [PYTHON_FOLDER, join(PYTHON_FOLDER, 'engine_bench', 'stand_ins')].join(delimiter),
  // Bytecode is kept outside the source tree, where later processes reuse it.
  PYTHONPYCACHEPREFIX: process.env.PYTHONPYCACHEPREFIX ?? join(tmpdir(), 'meshcache-bytecode'),
  SGLANG_USE_CPU_ENGINE: '1',
  TOKENIZERS_PARALLELISM: 'false',
  VLLM_CPU_KVCACHE_SPACE: '1',
  // Several engines share the cores, so none of them is bound to particular cores.
  VLLM_CPU_OMP_THREADS_BIND: 'nobind',
  VLLM_LOGGING_LEVEL: 'WARNING',
  VLLM_NO_USAGE_STATS: '1',
};

/** Largest difference of equal log probabilities. Rounding differs slightly when a prefix is not computed. */
export const LOGPROB_TOLERANCE = 0.001;

interface Counted {
  readonly firstTokensS: number[];
  readonly cachedTokens: number[];
  readonly promptTokens: number[];
  answers: number;
  equal: number;
  logprobDifference: number;
}

/** Times of answers by the source of their prompts, and whether the answers equal the computed ones. */
export class AnswerTimes {
  readonly #cold = new Map<number, Answer>();
  readonly #counted = new Map<string, Counted>();

  /** Counts an answer to a prompt. Later answers to the prompt are compared with the first one. */
  add(from: string, prompt: number, answer: Answer): void {
    const counted = this.#compare(from, prompt, answer);
    counted.firstTokensS.push(answer.first_token_s);
    counted.cachedTokens.push(answer.cached_tokens);
    counted.promptTokens.push(answer.prompt_tokens);
  }

  /** Compares an answer without counting its time. */
  checkOnly(from: string, prompt: number, answer: Answer): void {
    this.#compare(from, prompt, answer);
  }

  #compare(from: string, prompt: number, answer: Answer): Counted {
    const cold = this.#cold.get(prompt) ?? answer;
    this.#cold.set(prompt, cold);
    const counted = this.#counted.get(from) ?? {
      firstTokensS: [],
      cachedTokens: [],
      promptTokens: [],
      answers: 0,
      equal: 0,
      logprobDifference: 0,
    };
    this.#counted.set(from, counted);
    counted.answers++;
    const differences = answer.logprobs.map((logprob, at) => Math.abs(logprob - (cold.logprobs[at] ?? Number.NaN)));
    const largest = Math.max(0, ...differences);
    counted.logprobDifference = Math.max(counted.logprobDifference, largest);
    if (answer.tokens.join() === cold.tokens.join() && largest <= LOGPROB_TOLERANCE) counted.equal++;
    return counted;
  }

  /** Number of answers that differ from the computed ones. */
  get different(): number {
    return [...this.#counted.values()].reduce((sum, { answers, equal }) => sum + answers - equal, 0);
  }

  rows(): BenchReport['rows'] {
    const coldS = median(this.#counted.get('cold')?.firstTokensS ?? [0]);
    return [...this.#counted].map(([from, counted]) => {
      const firstTokenS = median(counted.firstTokensS);
      return {
        prompt_from: from,
        first_token_ms: Math.round(firstTokenS * 1e3),
        times_faster: Math.round((coldS / firstTokenS) * 10) / 10,
        cached_tokens: median(counted.cachedTokens),
        prompt_tokens: median(counted.promptTokens),
        texts_equal: `${counted.equal} of ${counted.answers}`,
        logprob_difference: Number(counted.logprobDifference.toExponential(1)),
      };
    });
  }
}

/** Words that tokenizers encode as one token each, together with the preceding space. */
const SUBJECTS = ['river', 'teacher', 'engine', 'garden', 'doctor', 'market', 'train', 'writer', 'forest', 'machine'];
const VERBS = [
  'follows',
  'repairs',
  'describes',
  'visits',
  'changes',
  'studies',
  'moves',
  'builds',
  'paints',
  'counts',
];
const PLACES = ['city', 'school', 'valley', 'harbor', 'library', 'office', 'island', 'station', 'museum', 'village'];
/** Approximate number of tokens per sentence. */
const SENTENCE_TOKENS = 14;

/** A prompt of about `tokens` tokens. Prompts with different numbers differ from the first sentence on. */
export function promptText(number: number, tokens: number): string {
  const sentences = [`Notes of day ${number + 1}.`];
  const random = sequence(number + 1);
  while (sentences.length * SENTENCE_TOKENS < tokens) {
    const [subject, verb, object, place] = [SUBJECTS, VERBS, SUBJECTS, PLACES].map(
      (words) => words[random(words.length)],
    );
    sentences.push(`${sentences.length}. The ${subject} ${verb} the ${object} near the ${place}.`);
  }
  return `${sentences.join(' ')} In one sentence, the notes say that`;
}

/** Pseudo-random numbers below a bound. Equal seeds give equal sequences. */
function sequence(seed: number): (bound: number) => number {
  let state = seed * 2654435761;
  return (bound) => {
    state = (Math.imul(state ^ (state >>> 15), 2246822519) + 3266489917) >>> 0;
    return (state >>> 8) % bound;
  };
}
