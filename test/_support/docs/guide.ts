import { type ChildProcess, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PATIENCE_MS } from '../support.js';
import { type Distance, firstResultOf } from './first-result.js';
import { type Fence, fencesOf } from './markdown.js';

/** Printed by the shell behind each block, with the block's exit status. */
const END = '--- end of block';
/** Printed by what a block leaves running, once it is up. */
const READY = /\bready\b/;

/** What a guide gets from its surroundings in place of a user's own. */
export interface GuideSurroundings {
  /** An empty folder. */
  readonly folder: string;
  readonly env: Readonly<Record<string, string>>;
  /** Shell functions that stand for programs of other people. */
  readonly functions: string;
  /** Texts that are replaced in every block: ports that may be taken here. */
  readonly replaced: Readonly<Record<string, string>>;
  /** A program and its arguments that start the shell elsewhere, such as in a container. */
  readonly under?: readonly string[];
}

/** What was followed of a guide. */
export interface Followed {
  /** Number of shell blocks that were run. */
  readonly blocks: number;
  /** What leads to the guide's first result, and how long that took. */
  readonly firstResult: Distance & { readonly seconds: number };
}

/** One shell in which the blocks of a guide run, one after the other. */
class Shell {
  readonly #child: ChildProcess;
  #output = '';
  #ended = false;

  constructor({ folder, env, functions, under = [] }: GuideSurroundings) {
    const [program, ...args] = [...under, 'bash'];
    // A group of its own: what a guide leaves running ends with it.
    this.#child = spawn(program as string, args, { cwd: folder, env, stdio: ['pipe', 'pipe', 'pipe'], detached: true });
    for (const stream of [this.#child.stdout, this.#child.stderr])
      stream?.setEncoding('utf8').on('data', (text: string) => {
        this.#output += text;
      });
    this.#child.once('close', () => {
      this.#ended = true;
    });
    this.#child.stdin?.write(`${functions}\n`);
  }

  /**
   * Runs a block to its end, or, with `waitsForReady`, until what it has started is up. Returns what was printed
   * meanwhile.
   */
  async run(text: string, waitsForReady: boolean): Promise<string> {
    const start = this.#output.length;
    this.#child.stdin?.write(`(exit 0)\n${failing(text)}\necho "${END} $?"\n`);
    const printed = (): string => this.#output.slice(start);
    await this.#until(() => printed().includes(`${END} `) && (!waitsForReady || READY.test(printed())), text);
    const [, status] = new RegExp(`${END} (\\d+)`).exec(printed()) ?? [];
    if (status !== '0') throw new Error(`status ${status} of: ${text}\n${printed()}`);
    return printed().replace(new RegExp(`${END} \\d+\n`), '');
  }

  async #until(holds: () => boolean, what: string): Promise<void> {
    const endMs = performance.now() + PATIENCE_MS;
    while (!holds()) {
      if (this.#ended || performance.now() > endMs) throw new Error(`not done: ${what}\n${this.#output}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** Ends the shell, and whatever its blocks have left running. */
  close(): void {
    try {
      process.kill(-(this.#child.pid as number), 'SIGKILL');
    } catch {
      // Nothing is left.
    }
  }
}

/**
 * The block, which ends with the first command that fails. A command that goes on in the background stays a child of
 * the shell.
 */
function failing(text: string): string {
  return `eval "$(cat <<'END_OF_BLOCK'\nset -e\n${text}\nset +e\nEND_OF_BLOCK\n)"`;
}

/** The text with others in place of some, none of which is replaced again. */
function withReplaced(text: string, replaced: Readonly<Record<string, string>>): string {
  const names = Object.keys(replaced).map(escaped);
  return names.length === 0
    ? text
    : text.replaceAll(new RegExp(names.join('|'), 'g'), (name) => replaced[name] as string);
}

/** A pattern that is this text. */
function escaped(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&');
}

/** Whether the output has the promised lines; `…` stands for any text of a line, a line of its own for any lines. */
function isAsPromised(output: string, promised: string): boolean {
  const pattern = escaped(promised.trimEnd())
    .replaceAll(/^…$/gm, '[^]*')
    .replaceAll('…', '.*')
    .replaceAll('\n', '\n(?:.*\n)*?');
  return new RegExp(`(?:^|\n)${pattern}`).test(output);
}

/** The name that stands before a program: `name.mjs`, followed by a colon. */
function nameOf({ before }: Fence): string | undefined {
  return /^`([\w.-]+)`:$/.exec(before)?.[1];
}

/**
 * Follows a guide to the letter: programs are saved under the names that stand before them, blocks of shell commands
 * run in their order, and what a block prints is compared with the block of text behind it.
 */
export async function followGuide(guide: string, surroundings: GuideSurroundings): Promise<Followed> {
  const { counted, index } = firstResultOf(guide);
  const shell = new Shell(surroundings);
  const startMs = performance.now();
  let output = '';
  let [blocks, seconds] = [0, 0];
  try {
    for (const [i, fence] of fencesOf(guide).entries()) {
      const text = withReplaced(fence.text, surroundings.replaced);
      if (fence.words.includes('not-run')) continue;
      const name = nameOf(fence);
      if (fence.language === 'js' && name !== undefined) writeFileSync(join(surroundings.folder, name), text);
      else if (fence.language === 'sh') {
        output = await shell.run(text, /&$/m.test(text));
        blocks++;
      } else if (fence.language === 'text' && !isAsPromised(output, text)) {
        throw new Error(`promised:\n${text}\nprinted:\n${output}`);
      }
      if (i === index) seconds = (performance.now() - startMs) / 1000;
    }
    return { blocks, firstResult: { ...counted, seconds } };
  } finally {
    shell.close();
  }
}
