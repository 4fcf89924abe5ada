import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';

interface Answer {
  /** The command failed, and why. */
  readonly error?: string;
}

/** The other process of a benchmark, which answers one command at a time and ends with its IPC channel. */
export class ServingProcess<Command extends object, Reply extends Answer> {
  readonly #child: ChildProcess;

  /** Starts the program at `url`. */
  constructor(url: URL) {
    this.#child = fork(fileURLToPath(url));
  }

  call(command: Command): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const onExit = (status: number | null): void => reject(new Error(`the serving process ended (status ${status})`));
      this.#child.once('exit', onExit);
      this.#child.once('message', (answer: Reply) => {
        this.#child.off('exit', onExit);
        if (answer.error === undefined) resolve(answer);
        else reject(new Error(`the serving process failed: ${answer.error}`));
      });
      this.#child.send(command);
    });
  }

  end(): void {
    if (this.#child.connected) this.#child.disconnect();
  }

  /** Without a word to anybody; resolves when the process is gone. */
  async kill(): Promise<void> {
    const gone = new Promise((resolve) => this.#child.once('exit', resolve));
    this.#child.kill('SIGKILL');
    await gone;
  }
}

/** The other side: executes the commands of the process that started this one, and ends when that one is gone. */
export function serveCommands<Command, Reply extends object>(execute: (command: Command) => Promise<Reply>): void {
  process.on('disconnect', () => process.exit(0));
  process.on('SIGINT', () => {});
  // Nobody reads an answer that comes when the other side has gone.
  const reply = (answer: object): void => void process.send?.(answer, undefined, undefined, () => {});
  process.on('message', (command: Command) => {
    execute(command).then(reply, (error: Error) => reply({ error: error.stack ?? error.message }));
  });
}
