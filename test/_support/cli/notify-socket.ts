import { spawn, spawnSync } from 'node:child_process';
import { createInterface } from 'node:readline';

/** Python has the datagram sockets that Node.js lacks; without `bind`, the program ends with a trace. */
const RECEIVER = `
import socket, sys
receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
name = sys.argv[1]
receiver.bind('\\0' + name[1:] if name[0] == '@' else name)
print('bound', flush=True)
while True:
    print(receiver.recv(4096).decode().replace('\\n', ' | '), flush=True)
`;

/** Whether this machine has the programs of {@link NotifySocket} and of the service manager. */
export const canNotify = ['systemd-notify', 'python3'].every((name) => spawnSync(name, ['--version']).status === 0);

/** A datagram socket like the one that systemd gives its services, with what was sent to it. */
export class NotifySocket {
  /** Messages so far, each with ` | ` between its assignments. */
  readonly messages: string[] = [];
  readonly #child;

  private constructor(name: string) {
    this.#child = spawn('python3', ['-c', RECEIVER, name], { stdio: ['ignore', 'pipe', 'inherit'] });
  }

  /** Binds the path, or the abstract name that begins with `@`. */
  static async bind(name: string): Promise<NotifySocket> {
    const socket = new NotifySocket(name);
    await new Promise<void>((resolve, reject) => {
      socket.#child.once('exit', () => reject(new Error(`cannot bind ${name}`)));
      createInterface({ input: socket.#child.stdout }).on('line', (line) => {
        if (line === 'bound') resolve();
        // The program waits until its message has been read; this is what it waits with.
        else if (line !== 'BARRIER=1') socket.messages.push(line);
      });
    });
    return socket;
  }

  close(): void {
    this.#child.kill('SIGKILL');
  }
}
