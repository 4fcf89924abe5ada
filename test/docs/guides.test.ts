import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import test from 'ava';
import { shownDistance } from '../_support/docs/first-result.js';
import { followGuide } from '../_support/docs/guide.js';
import { type Packed, pack } from '../_support/package/packed.js';
import { canMakeEnvironments, succeeds } from '../_support/python.js';
import { freePort } from '../_support/support.js';

const TIMEOUT_MS = 240_000;
const GATEWAY_PORTS = ['31980', '31981', '31982', '31983', '31984'];
const hasVenv = canMakeEnvironments();
const hasCurl = succeeds('curl', '--version');

let root = '';
let packed: Packed;
test.before(async (t) => {
  t.timeout(TIMEOUT_MS);
  root = mkdtempSync(join(tmpdir(), 'meshcache-guides-'));
  packed = await pack(root);
});
test.after.always(() => (root === '' ? undefined : rmSync(root, { recursive: true, force: true })));

/**
 * The package comes from this build instead of the registry; the server of SGLang is one that needs neither a GPU nor
 * torch.
 */
const FUNCTIONS = `
npm() {
  if [ "$*" = 'install meshcache' ]; then
    command npm install --ignore-scripts --prefer-offline --no-audit --no-fund "$TARBALL"
  else command npm "$@"; fi
}
python() { PYTHONPATH="$DOUBLES" command python "$@"; }
`;

/** Ports that are free here, in place of those that the guides name. */
async function freePorts(): Promise<Record<string, string>> {
  const ports: [string, string][] = [];
  for (const port of ['31990', ...GATEWAY_PORTS]) ports.push([port, String(await freePort())]);
  return Object.fromEntries(ports);
}

for (const [name, needs] of [
  ['llm-server', hasVenv ? '' : 'python3 of 3.10 or newer with venv'],
  ['node', ''],
  ['gateway', hasCurl ? '' : 'curl'],
  ['simulator', ''],
] as const) {
  const whereRun = needs === '' ? test.serial : test.serial.skip;
  const suffix = needs === '' ? '' : ` (skipped: no ${needs})`;
  whereRun(
    `docs: the guide ${name} works when it is followed to the letter, from an empty folder${suffix}`,
    async (t) => {
      t.timeout(TIMEOUT_MS);
      const folder = join(root, name);
      const [runtime, doubles] = [join(root, `run-${name}`), join(root, `doubles-${name}`)];
      for (const path of [folder, runtime]) mkdirSync(path, { mode: 0o700 });
      cpSync('test/python/doubles', doubles, { recursive: true });
      const { blocks, firstResult } = await followGuide(readFileSync(`docs/guides/${name}.md`, 'utf8'), {
        folder,
        functions: FUNCTIONS,
        replaced: await freePorts(),
        env: {
          PATH: `${dirname(process.execPath)}:${process.env.PATH}`,
          HOME: process.env.HOME ?? folder,
          TARBALL: packed.tarball,
          DOUBLES: doubles,
          XDG_RUNTIME_DIR: runtime,
          MESHCACHE_METRICS_PORT: '0',
        },
      });
      t.true(blocks >= 5, `${blocks} blocks`);
      t.log(shownDistance(firstResult));
    },
  );
}
