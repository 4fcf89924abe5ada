import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface, type Interface } from 'node:readline';
import { fileURLToPath } from 'node:url';

/** The folder of the Python package, as seen from build/dist and from build/test. */
export const PYTHON_FOLDER = fileURLToPath(new URL('../python', import.meta.url));

/** An engine's answer. */
interface EngineAnswer {
  readonly error?: string;
  /** Seconds inside the calls. */
  readonly seconds?: number;
  readonly missed?: number;
  readonly cpu_seconds?: number;
  readonly right?: boolean;
  readonly p50_us?: number;
  readonly found?: number;
  /** How pages really travelled, by how they were meant to. */
  readonly modes?: Readonly<Record<string, string>>;
}

/** A Python process's answer to any command. */
interface Answer {
  readonly error?: string;
}

/** A process in Python that uses the package's client as an engine does; it executes one command at a time. */
export class PythonEngine {
  readonly #child: ChildProcess;
  readonly #lines: Interface;
  readonly #ended: Promise<void>;
  #answered: ((line: string) => void) | undefined;
  #failed: ((error: Error) => void) | undefined;
  #death: Error | undefined;
  #stderr = '';

  /** Starts `module`, a module of the Python package. `variables` are added to its environment. */
  constructor(python: string, module: string, variables: Readonly<Record<string, string>> = {}) {
    this.#child = spawn(python, ['-m', module], {
      stdio: ['pipe', 'pipe', 'pipe'],
      // Python must not write bytecode into the package's folder.
      env: { ...process.env, PYTHONPATH: PYTHON_FOLDER, PYTHONDONTWRITEBYTECODE: '1', ...variables },
    });
    this.#child.stderr?.on('data', (text: Buffer) => {
      this.#stderr = (this.#stderr + text.toString()).slice(-4096);
    });
    // Errors of the pipe are ignored: the end of the process is reported separately.
    this.#child.stdin?.on('error', () => {});
    this.#lines = createInterface({ input: this.#child.stdout as NodeJS.ReadableStream });
    this.#lines.on('line', (line) => this.#answered?.(line));
    this.#ended = new Promise((resolve) => {
      const end = (error: Error): void => {
        this.#death = error;
        this.#failed?.(error);
        resolve();
      };
      this.#child.once('error', end);
      this.#child.once('close', () => end(new Error(`the Python process has ended: ${this.#stderr.trim()}`)));
    });
  }

  /** Executes a command. Rejects if the answer is an error or the process has ended, with its last output. */
  async call<T extends Answer = EngineAnswer>(command: Readonly<Record<string, unknown>>): Promise<T> {
    if (this.#death !== undefined) throw this.#death;
    const line = await new Promise<string>((resolve, reject) => {
      this.#answered = resolve;
      this.#failed = reject;
      this.#child.stdin?.write(`${JSON.stringify(command)}\n`);
    });
    const answer = JSON.parse(line) as T;
    if (answer.error !== undefined) throw new Error(answer.error);
    return answer;
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Lets the process end by itself: its input is closed. A process that does not end within `limitMs` is killed. */
  async close(limitMs: number): Promise<void> {
    this.#failed = undefined;
    this.#lines.close();
    this.#child.stdin?.end();
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), limitMs);
    await this.#ended;
    clearTimeout(timer);
  }

  /** Ends the process at once. Resolves when it has ended; a call in progress stays pending. */
  end(): Promise<void> {
    this.#failed = undefined;
    this.#lines.close();
    this.#child.stdin?.end();
    this.#child.kill('SIGKILL');
    return this.#ended;
  }
}
