import type { ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/*
 * What must not stay behind. A signal ends a command while its work is in progress, and the last lines of that work do
 * not run; only a SIGKILL leaves something.
 */

/** Ends the process with SIGKILL when this program exits. */
export function endAtExit(child: ChildProcess): void {
  const end = (): void => void child.kill('SIGKILL');
  process.once('exit', end);
  child.once('exit', () => process.off('exit', end));
}

/** A new folder among the temporary files. It is removed by `remove`, and when this program exits. */
export class TemporaryFolder {
  readonly path: string;

  constructor(prefix: string) {
    this.path = mkdtempSync(join(tmpdir(), prefix));
    process.once('exit', this.remove);
  }

  readonly remove = (): void => {
    process.off('exit', this.remove);
    rmSync(this.path, { recursive: true, force: true });
  };
}
