import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** Benchmarks that use peer processes. */
export type PeerSubject =
  | 'auth'
  | 'cluster'
  | 'directory'
  | 'isolation'
  | 'metrics'
  | 'peers'
  | 'rdma'
  | 'resp'
  | 'store'
  | 'tcp';

/** How one benchmark's peer executes a command. */
export type ExecuteCommand<Command, Reply> = (command: Command) => Promise<Reply>;

interface PeerAnswer {
  /** Why the command failed. */
  readonly error?: string;
}

const PROGRAM = fileURLToPath(new URL('./bench-peer.js', import.meta.url));

/** A benchmark's peer process. It answers one command at a time and exits when its IPC channel closes. */
export class PeerProcess<Command extends object, Reply extends PeerAnswer> {
  readonly #child: ChildProcess;

  /** Starts the peer of a benchmark; `flags` are Node.js options. */
  constructor(subject: PeerSubject, flags: readonly string[] = []) {
    this.#child = fork(PROGRAM, [subject], { execArgv: [...process.execArgv, ...flags] });
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

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Ends the process with SIGKILL; resolves when it is gone. */
  async kill(): Promise<void> {
    const gone = new Promise((resolve) => this.#child.once('exit', resolve));
    this.#child.kill('SIGKILL');
    await gone;
  }
}

/** Executes the commands of the process that started this one, and exits when that one is gone. */
export function serveCommands<Command, Reply extends object>(execute: (command: Command) => Promise<Reply>): void {
  process.on('disconnect', () => process.exit(0));
  process.on('SIGINT', () => {});
  // An answer that cannot be sent is dropped: the process that asked is gone.
  const reply = (answer: object): void => void process.send?.(answer, undefined, undefined, () => {});
  process.on('message', (command: Command) => {
    execute(command).then(reply, (error: Error) => reply({ error: error.stack ?? error.message }));
  });
}
