import { spawn, spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { collect } from './run-cli.js';

/** Runs a program in a pseudo-terminal of that size and copies what it shows; ends with the program's status. */
const IN_TERMINAL = `
import fcntl, os, pty, signal, struct, sys, termios
rows, columns, *program = sys.argv[1:]
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', int(rows), int(columns), 0, 0))
    os.execvp(program[0], program)
signal.signal(signal.SIGTERM, lambda *_: os.write(terminal, b'\\x03'))
while True:
    try:
        shown = os.read(terminal, 65536)
    except OSError:
        break
    if not shown:
        break
    sys.stdout.buffer.write(shown)
    sys.stdout.flush()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
`;

/** Whether this machine can give a program a terminal. */
export const hasTerminals = spawnSync('python3', ['-c', 'import pty']).status === 0;

/** A terminal with colours whatever the tests' own environment says; Node takes one of a CI service for one without. */
const COLOURS = {
  NO_COLOR: undefined,
  NODE_DISABLE_COLORS: undefined,
  FORCE_COLOR: undefined,
  CI: undefined,
  TERM: 'xterm-256color',
};

const PROGRAM = fileURLToPath(new URL('./cli.js', import.meta.url));

export interface Terminal {
  readonly columns: number;
  readonly rows?: number;
  readonly env?: Readonly<Record<string, string | undefined>>;
}

/** Starts `meshcache` in a terminal; SIGTERM to the returned process is a Ctrl-C there. */
export function startInTerminal(args: readonly string[], { columns, rows = 40, env = {} }: Terminal) {
  return spawn('python3', ['-c', IN_TERMINAL, `${rows}`, `${columns}`, process.execPath, PROGRAM, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...COLOURS, ...env },
  });
}

/** Runs `meshcache` in a terminal to its end: its status, and all that the terminal was sent. */
export async function runInTerminal(args: readonly string[], terminal: Terminal) {
  const { status, stdout } = await collect(startInTerminal(args, terminal));
  return { status, shown: stdout.replaceAll('\r\n', '\n') };
}
