import { execFile, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import test, { type ExecutionContext } from 'ava';
import { CONTRACT_VERSION } from '../../src/native/addon/contract.js';
import { loadAddon, loadNative, type NativeLoad } from '../../src/native/addon/loader.js';
import { suffix, withAddon } from '../_support/native/addon.js';

const run = promisify(execFile);
const ADDON = fileURLToPath(new URL('../native/meshcache.node', import.meta.url));
const PROGRAM = fileURLToPath(new URL('./native-addon-program.js', import.meta.url));

const hasCompiler = spawnSync('cc', ['--version']).status === 0;
const withCompiler = hasCompiler ? test : test.skip;
const compilerSuffix = hasCompiler ? '' : ' (skipped: no C compiler)';

function folder(t: ExecutionContext): string {
  const path = mkdtempSync(join(tmpdir(), 'meshcache-loader-'));
  t.teardown(() => rmSync(path, { recursive: true }));
  return path;
}

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/** Loads a file of these bytes that states its true sum, or the one given. */
function load(t: ExecutionContext, bytes: Uint8Array, sum = sha256(bytes)): NativeLoad {
  const path = join(folder(t), 'meshcache.node');
  writeFileSync(path, bytes);
  writeFileSync(`${path}.sha256`, `${sum}\n`);
  return loadAddon(path);
}

function isRefused(t: ExecutionContext, { addon, reason }: NativeLoad, why: RegExp): void {
  t.is(addon, null);
  t.regex(reason, why);
  t.notRegex(reason, /\n/, 'one line');
}

withAddon(`loader: the addon that is built loads, from any path, again and again${suffix}`, (t) => {
  t.is(loadNative(), loadNative());
  t.is(loadNative().reason, '');
  for (let i = 0; i < 2; i++) {
    const { addon, reason } = load(t, readFileSync(ADDON));
    t.is(reason, '');
    t.is(addon?.contractVersion, CONTRACT_VERSION);
  }
});

test('loader: no file, no sum, or no sum in its file: refused', (t) => {
  const path = join(folder(t), 'meshcache.node');
  isRefused(t, loadAddon(path), /no native addon at .*meshcache\.node: `npm run build:native` builds it/);
  writeFileSync(path, 'bytes');
  isRefused(t, loadAddon(path), /sha256 is missing/);
  writeFileSync(`${path}.sha256`, '\n');
  isRefused(t, loadAddon(path), /missing or empty/);
  isRefused(t, loadAddon(tmpdir()), /EISDIR/);
});

withAddon(`loader: cut short, changed or lengthened: refused before the linker sees it${suffix}`, (t) => {
  const bytes = readFileSync(ADDON);
  const changed = Buffer.from(bytes);
  changed[changed.length >> 1] = (changed[changed.length >> 1] as number) ^ 1;
  const lengthened = Buffer.concat([bytes, Buffer.alloc(1)]);
  for (const bad of [bytes.subarray(0, bytes.length >> 1), bytes.subarray(0, 64), changed, lengthened]) {
    isRefused(t, load(t, bad, sha256(bytes)), /is damaged/);
  }
});

withAddon(`loader: cut short before its sum was taken: refused before the linker sees it${suffix}`, (t) => {
  const bytes = readFileSync(ADDON);
  for (const length of [64, 65, 400, 4096, 100_000, bytes.length >> 1, bytes.length - 64, bytes.length - 1]) {
    isRefused(t, load(t, bytes.subarray(0, length)), /cut short/);
  }
});

withAddon(`loader: built for another processor: refused${suffix}`, (t) => {
  const ELF_CLASS = 4;
  const ELF_MACHINE = 18;
  const bytes = readFileSync(ADDON);
  const other = Buffer.from(bytes);
  other.writeUInt16LE(process.arch === 'x64' ? 183 : 62, ELF_MACHINE);
  isRefused(t, load(t, other), /built for (arm64|x64), this process is (x64|arm64)/);
  other.writeUInt16LE(243, ELF_MACHINE);
  isRefused(t, load(t, other), /built for ELF machine 243/);
  const narrow = Buffer.from(bytes);
  narrow[ELF_CLASS] = 1;
  isRefused(t, load(t, narrow), /not a 64-bit library/);
});

test('loader: garbage, an empty file, a program: refused', (t) => {
  isRefused(t, load(t, Buffer.from('#!/bin/sh\necho no library\n'.repeat(20))), /not an ELF file/);
  isRefused(t, load(t, Buffer.alloc(0)), /not an ELF file/);
  const program = ['/bin/true', '/usr/bin/true'].find(existsSync);
  if (program !== undefined) isRefused(t, load(t, readFileSync(program)), /meshcache\.node: /);
});

/** A Node-API module that exports `contractVersion`. */
const OTHER_MODULE = `
#include <node_api.h>
NAPI_MODULE_INIT() {
  napi_value version;
  napi_create_uint32(env, VERSION, &version);
  napi_set_named_property(env, exports, "contractVersion", version);
  return exports;
}
`;

withCompiler(`loader: another library, or an addon of another contract: refused${compilerSuffix}`, async (t) => {
  const { include_dir: headers } = createRequire(import.meta.url)('node-api-headers') as { include_dir: string };
  const at = folder(t);
  const source = join(at, 'other.c');
  const compile = async (code: string, version: number) => {
    const path = join(at, `${version}.node`);
    writeFileSync(source, code);
    await run('cc', ['-shared', '-fPIC', `-I${headers}`, `-DVERSION=${version}`, '-o', path, source]);
    return readFileSync(path);
  };
  isRefused(t, load(t, await compile('int nothing;', 0)), /did not self-register/);
  isRefused(t, load(t, await compile('int lacking(void); int call(void) { return lacking(); }', 1)), /meshcache\.node/);
  isRefused(
    t,
    load(t, await compile(OTHER_MODULE, 999)),
    new RegExp(`has contract version 999, this meshcache needs ${CONTRACT_VERSION}`),
  );
  const sameVersion = await compile(OTHER_MODULE, CONTRACT_VERSION);
  isRefused(t, load(t, sameVersion), /does not export memoryAllocate, .*createRdmaEngine/);
});

test('loader: MESHCACHE_NATIVE=off means there is none', async (t) => {
  const { stdout } = await run(process.execPath, [PROGRAM, 'load'], {
    env: { ...process.env, MESHCACHE_NATIVE: 'off' },
  });
  t.like(JSON.parse(stdout), { isLoaded: false, reason: 'MESHCACHE_NATIVE=off' });
});

withAddon(`loader: a file replaced by another build does not disturb who has it loaded${suffix}`, (t) => {
  const path = join(folder(t), 'meshcache.node');
  copyFileSync(ADDON, path);
  copyFileSync(`${ADDON}.sha256`, `${path}.sha256`);
  const { addon } = loadAddon(path);
  rmSync(path);
  writeFileSync(path, 'not the same any more');
  t.is(addon?.crc32(Buffer.from('123456789'), 0), 0xcbf43926);
});
