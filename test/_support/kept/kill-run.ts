import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { type RandomSource, seededRandom } from '../../../src/base/environment/random.js';
import { freePort } from '../support.js';
import { digestOf, KEY_COUNT, pageOf } from './kill-pages.js';

const PROGRAM = fileURLToPath(new URL('./kept-kill-program.js', import.meta.url));

/** What a key may have: versions, or `none`. */
type Possible = Set<number | 'none'>;

export interface KillFigures {
  readonly kills: number;
  /** Pages that were found again, over all lives. */
  readonly found: number;
  /** Pages that had to be there. */
  readonly due: number;
}

/**
 * The lives of one node whose pool outlives it, each ended by a signal at a random moment, and what its pages may be.
 */
export class KillRun {
  readonly #possible: Possible[] = Array.from({ length: KEY_COUNT }, () => new Set(['none']));
  /** Changes that have begun, and not ended: by key. */
  readonly #begun = new Map<number, number | 'none'>();
  readonly #lines = new Map<number, string[]>();
  readonly #random: RandomSource;
  readonly #settings: Record<string, unknown>;
  #version = 0;
  #kills = 0;
  #found = 0;
  #due = 0;

  /** `settings`: the node's configuration, with its `pool_path`. */
  constructor(seed: number, settings: Record<string, unknown>) {
    this.#random = seededRandom(seed);
    this.#settings = settings;
  }

  figures(): KillFigures {
    return { kills: this.#kills, found: this.#found, due: this.#due };
  }

  /**
   * One life. Throws if a page has bytes that it cannot have, or is missing that must be there, or if the node fails by
   * itself.
   */
  async live(): Promise<void> {
    const config = JSON.stringify({ ...this.#settings, port: await freePort() });
    const args = [PROGRAM, config, String(this.#random.u32()), String(this.#version)];
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    let errors = '';
    child.stderr.on('data', (chunk: Buffer) => {
      errors += chunk.toString();
    });
    // One kill of eight comes while the node opens its pool, one of eight is an orderly end.
    const kind = this.#random.u32() % 8;
    const after = kind === 0 ? 'opening' : 'read';
    const delayMs = this.#random.u32() % (kind === 0 ? 400 : 250);
    const signal = kind === 1 ? 'SIGTERM' : 'SIGKILL';
    const faults: string[] = [];
    let killing: Promise<unknown> | undefined;
    const lines = createInterface({ input: child.stdout });
    lines.on('line', (line) => {
      if (line === after) killing = sleep(delayMs).then(() => child.kill(signal));
      try {
        this.#take(line.split(' '));
      } catch (error) {
        faults.push((error as Error).message);
        child.kill('SIGKILL');
      }
    });
    const closed = once(lines, 'close');
    const [code] = await once(child, 'exit');
    await Promise.all([closed, killing]);
    this.#kills++;
    if (faults.length > 0) throw new Error(`life ${this.#kills}: ${faults[0]}`);
    if (code !== null && code !== 0) throw new Error(`life ${this.#kills}: ended with ${code}: ${errors}`);
    if (code === 0 && signal !== 'SIGTERM') throw new Error(`life ${this.#kills}: ended by itself: ${errors}`);
    // A change that has not ended may have had its effect, its half, or none.
    for (const [number, version] of this.#begun) this.#possible[number]?.add(version).add('none');
    this.#begun.clear();
  }

  /** The last lines about a page. */
  #history(number: number): string {
    return (this.#lines.get(number) ?? []).slice(-12).join(', ');
  }

  #take([what, first, second]: string[]): void {
    const number = Number(first);
    const version = second === 'none' ? 'none' : Number(second);
    const lines = this.#lines.get(number) ?? [];
    lines.push(`${this.#kills + 1}: ${what} ${second}`);
    this.#lines.set(number, lines.slice(-12));
    if (what === 'found') this.#takeFound(number, second as string);
    else if (what === 'begin') {
      this.#begun.set(number, version);
      if (version !== 'none') this.#version = Math.max(this.#version, version);
    } else if (what === 'end') {
      const begun = this.#begun.get(number) ?? 'none';
      this.#begun.delete(number);
      if (second === 'unknown') this.#possible[number]?.add(begun).add('none');
      else this.#possible[number] = new Set([version]);
    }
  }

  #takeFound(number: number, digest: string): void {
    const possible = this.#possible[number] as Possible;
    const versions = [...possible].filter((each) => each !== 'none');
    if (!possible.has('none')) this.#due++;
    if (digest === 'none') {
      if (!possible.has('none')) throw new Error(`page ${number} is lost; it had version ${versions.join(' or ')}`);
      this.#possible[number] = new Set(['none']);
      return;
    }
    const version = versions.find((each) => digestOf(pageOf(number, each)) === digest);
    if (version === undefined) {
      const all = Array.from({ length: this.#version + 1 }, (_, i) => i);
      const those = all.filter((each) => digestOf(pageOf(number, each)) === digest).slice(-5);
      throw new Error(
        `page ${number} has the bytes of ${those.join(' or ')}, and not of ${[...possible].join(' or ')}: ${this.#history(number)}`,
      );
    }
    this.#found++;
    this.#possible[number] = new Set([version]);
  }
}
