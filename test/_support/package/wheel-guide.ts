/** The section of the guide that installs the wheel. */
const HEADING = '### Without npm\n';
/** What the guide's beginning says of the way by npm. */
const PROMISE = /^From nothing to .*\n/m;

/**
 * The guide for operators as its section on the wheel says to read it: the blocks of that section are run, those that
 * install from npm are not, and the command has no `npx` before it.
 */
export function guideOfWheel(guide: string): string {
  const [before, section] = guide.split(HEADING);
  if (before === undefined || section === undefined) throw new Error(`the guide has no section ${HEADING.trim()}`);
  const own = section.replace('```sh not-run\n', '```sh\n');
  const steps = `${before.replace(PROMISE, '')}${HEADING}${own}`.replaceAll(
    /```sh\n([^`]*(?:npm install|npx meshcache python-path)[^`]*)```/g,
    '',
  );
  return steps.replaceAll('npx meshcache', 'meshcache');
}
