import { median } from '../measuring/median.js';
import type { BenchReport } from '../measuring/report.js';
import type { Answer } from './engine-driver.js';

/** Log probabilities of equal work differ by less: sums are rounded in another order when a prefix is not computed. */
export const LOGPROB_TOLERANCE = 0.001;

interface Counted {
  readonly firstTokensS: number[];
  readonly cachedTokens: number[];
  readonly promptTokens: number[];
  answers: number;
  equal: number;
  logprobDifference: number;
}

/** Times of answers by where their prompts came from, and whether they say what the computed answers say. */
export class AnswerTimes {
  readonly #cold = new Map<number, Answer>();
  readonly #counted = new Map<string, Counted>();

  /** Counts an answer to a prompt. The first answer to a prompt is what the others are compared with. */
  add(from: string, prompt: number, answer: Answer): void {
    const counted = this.#compare(from, prompt, answer);
    counted.firstTokensS.push(answer.first_token_s);
    counted.cachedTokens.push(answer.cached_tokens);
    counted.promptTokens.push(answer.prompt_tokens);
  }

  /** Compares an answer and leaves its time out. */
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

  /** Answers that are not the computed ones. */
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
