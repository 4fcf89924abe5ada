import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { CommandContext } from '../../command/context.js';
import { definitionOf, ownCommands } from '../../command/definition.js';
import { packageVersion } from '../../node/reporting/package-version.js';
import { createProgram } from '../program.js';
import { manualName, manualPage } from './manual-page.js';

/*
 * Writes the manual pages, when the package is built: `write-pages.js FOLDER CHANGELOG`. The changelog has the date of
 * the version.
 */

const [folder = 'build/man', changelog = 'CHANGELOG.md'] = process.argv.slice(2);
const version = packageVersion();
const heading = readFileSync(changelog, 'utf8')
  .split('\n')
  .find((line) => line.startsWith(`## [${version}]`));
const date = /\d{4}-\d{2}-\d{2}/.exec(heading ?? '')?.[0] ?? 'unreleased';

// The context is for commands that run, and none does.
const program = definitionOf(await createProgram([], {} as CommandContext));
const commands = ownCommands(program);
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
for (const command of commands) {
  writeFileSync(join(folder, `${manualName(command)}.1`), manualPage(command, commands, { version, date }));
}
