import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface, type Interface } from 'node:readline';
import { fileURLToPath } from 'node:url';

/** What the engine has answered. */
export interface EngineAnswer {
  readonly error?: string;
  /** Of the calls alone. */
  readonly seconds?: number;
  readonly missed?: number;
  readonly right?: boolean;
  readonly p50_us?: number;
  readonly found?: number;
  /** How pages really go, by how they were to go. */
  readonly modes?: Readonly<Record<string, string>>;
}

/** A process in Python that uses the package's client, as an engine does; one command at a time. */
export class PythonEngine {
  readonly #child: ChildProcess;
  readonly #lines: Interface;
  #answered: ((line: string) => void) | undefined;
  #failed: ((error: Error) => void) | undefined;
  /** Why there is no process any more. */
  #failure: Error | undefined;
  #stderr = '';

  constructor(python: string) {
    const folder = fileURLToPath(new URL('../python', import.meta.url));
    this.#child = spawn(python, ['-m', 'meshcache._bench'], {
      stdio: ['pipe', 'pipe', 'pipe'],
      env: { ...process.env, PYTHONPATH: folder },
    });
    this.#child.stderr?.on('data', (text: Buffer) => {
      this.#stderr = (this.#stderr + text.toString()).slice(-4096);
    });
    this.#lines = createInterface({ input: this.#child.stdout as NodeJS.ReadableStream });
    this.#lines.on('line', (line) => this.#answered?.(line));
    const fail = (error: Error): void => {
      this.#failure ??= error;
      this.#failed?.(this.#failure);
    };
    this.#child.on('error', fail);
    this.#child.on('close', () => fail(new Error(`the Python process has ended: ${this.#stderr.trim()}`)));
    // That it reads no more is told by its end.
    this.#child.stdin?.on('error', () => {});
  }

  async call(command: Readonly<Record<string, unknown>>): Promise<EngineAnswer> {
    if (this.#failure !== undefined) throw this.#failure;
    const line = await new Promise<string>((resolve, reject) => {
      this.#answered = resolve;
      this.#failed = reject;
      this.#child.stdin?.write(`${JSON.stringify(command)}\n`);
    });
    const answer = JSON.parse(line) as EngineAnswer;
    if (answer.error !== undefined) throw new Error(answer.error);
    return answer;
  }

  end(): void {
    this.#failed = undefined;
    this.#lines.close();
    this.#child.stdin?.end();
    this.#child.kill('SIGKILL');
  }
}
