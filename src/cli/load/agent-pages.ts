import { type AgentThread, type AgentTurn, BLOCK_TOKENS } from './agent-sessions.js';

export interface AgentPagesOptions {
  /** Tokens of a page: a multiple of BLOCK_TOKENS. */
  readonly pageTokens: number;
  /**
   * Whether sessions with equally long tool prompts have the same one. A recording numbers the blocks of each session
   * by themselves, and so hides which are equal.
   */
  readonly isToolShared: boolean;
}

/**
 * Numbers the pages of recorded agent sessions across sessions, from 0 in the order in which they occur. A number
 * stands for the page and all before it, as the ids of a Mooncake-format trace do: equal numbers have equal prefixes.
 */
export class AgentPages {
  readonly #blocksPerPage: number;
  readonly #isToolShared: boolean;
  /** The number of each page, by the number of the page before it and its own content. */
  readonly #numbers = new Map<string, number>();

  constructor({ pageTokens, isToolShared }: AgentPagesOptions) {
    this.#blocksPerPage = Math.floor(pageTokens / BLOCK_TOKENS);
    this.#isToolShared = isToolShared;
  }

  /**
   * The full pages of a request's prompt, the head first. Engines keep no page that is not full, so the end of the
   * prompt is left out. `session` is the number of the recorded session.
   */
  pagesOf({ runs, model }: AgentTurn, { toolTokens }: AgentThread, session: number): number[] {
    const blocks = blocksOf(runs);
    const size = this.#blocksPerPage;
    const sharedBlocks = this.#isToolShared ? Math.floor(toolTokens / BLOCK_TOKENS) : 0;
    const pages: number[] = [];
    let before = `model ${model}`;
    for (let start = 0; start + size <= blocks.length; start += size) {
      const isShared = start + size <= sharedBlocks;
      const content = isShared ? `tools ${toolTokens}` : `${session}:${contentOf(blocks, start, size)}`;
      const number = this.#numberOf(`${before}/${content}`);
      pages.push(number);
      before = String(number);
    }
    return pages;
  }

  #numberOf(chain: string): number {
    const known = this.#numbers.get(chain);
    if (known !== undefined) return known;
    const number = this.#numbers.size;
    this.#numbers.set(chain, number);
    return number;
  }
}

function blocksOf(runs: readonly number[]): number[] {
  const blocks: number[] = [];
  for (let i = 0; i + 1 < runs.length; i += 2) {
    const [first, count] = [runs[i] as number, runs[i + 1] as number];
    for (let k = 0; k < count; k++) blocks.push(first + k);
  }
  return blocks;
}

/** A text for the blocks of a page: the first one's number if they count up from it, as they nearly always do. */
function contentOf(blocks: readonly number[], start: number, size: number): string {
  const first = blocks[start] as number;
  for (let k = 1; k < size; k++) if (blocks[start + k] !== first + k) return blocks.slice(start, start + size).join();
  return String(first);
}
