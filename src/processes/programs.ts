import { access, constants } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import type { Clock } from '../base/environment/clock.js';

/** The path of a program on PATH; undefined if it is not installed. */
export async function findProgram(name: string): Promise<string | undefined> {
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    const path = join(folder, name);
    const isThere = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (isThere) return path;
  }
  return undefined;
}

/**
 * The Python in which engines run: `MESHCACHE_PYTHON` names it, else it is `python3` on PATH; undefined if there is
 * none. The command of the Python package sets the variable to its own Python.
 */
export async function findPython(): Promise<string | undefined> {
  return process.env.MESHCACHE_PYTHON || (await findProgram('python3'));
}

/** Milliseconds between two looks whether the launcher is still there. */
const LOOK_MS = 500;

/**
 * A command of npm that is this program and nothing else: not one that a shell puts into the background, or that starts
 * more.
 */
const ONLY_MESHCACHE = /^['"]?meshcache['"]?(?:\s[^&;|<>`$()\n]*)?$/;

interface NpmLauncherParts {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The id of the parent process now. */
  readonly parentId: () => number;
  readonly clock: Clock;
  /** Called once, when npm has ended. */
  readonly onGone: () => void;
}

/**
 * Tells a program that `npx` or a script of npm has started when its launcher has ended. npm starts the program by a
 * shell, and hands a signal on to the shell, which ends without telling the program: `npx meshcache node & kill $!`
 * would leave the node running. The program's parent is another process then. Returns a function that stops looking.
 *
 * A program that was started in another way is not looked after: by systemd, by `setsid`, or in the background of a
 * shell.
 */
export function watchNpmLauncher({ env, parentId, clock, onGone }: NpmLauncherParts): () => void {
  if (env.npm_lifecycle_event === undefined || !ONLY_MESHCACHE.test(env.npm_lifecycle_script ?? '')) return () => {};
  const launcher = parentId();
  let isOver = false;
  let wasGone = false;
  const look = (): void => {
    if (isOver) return;
    const isGone = parentId() !== launcher;
    // A closed terminal ends the launcher too, and then this program has a signal of its own in the meantime.
    if (isGone && wasGone) {
      isOver = true;
      onGone();
      return;
    }
    wasGone = isGone;
    clock.after(LOOK_MS, look);
  };
  clock.after(LOOK_MS, look);
  return () => {
    isOver = true;
  };
}
