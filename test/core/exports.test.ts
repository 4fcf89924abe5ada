import test from 'ava';
import { Core, loadCore, MeshCacheError } from '../../src/core/index.js';
import { BINARIES, readBinary } from '../_support/core/binaries.js';

const EXPORTS = [
  'CORE_VERSION NO_INDEX PAGE_MAP_NODES POLICY_LRU POLICY_S3FIFO POLICY_YIELD PRIORITY_HIGH PRIORITY_LOW',
  'PRIORITY_NORMAL STATS_COUNT TENANTS_MAX TENANT_STATS_COUNT allocate digestBatch digestKeys hashBatch',
  'mapBytes mapEntries mapFree mapIsConsistent mapNew mapNodesBatch mapNoteBatch mapRemoveNode',
  'mapSetRank memory placeKeys poolAddTenant poolClear poolCount poolEvictNext poolEvictOverMax poolEvicted',
  'poolExpectBatch poolFree poolGiveBatch poolHasBatch poolLookupBatch poolNew poolOrder poolPinBatch',
  'poolPublishBatch poolRemoveBatch poolRenewBatch poolRestoreBatch poolSetKeepsHeads poolSetPriorityBatch',
  'poolSetQuarantine poolStats poolTenantStats poolTouchBatch poolUnpinBatch poolVerify release ringFree',
  'ringNew ringOwner ringOwnersBatch ringSetNodes ringSetZones',
].join(' ');

for (const name of BINARIES) {
  test(`core: ${name} exports exactly what is documented and imports nothing`, (t) => {
    const module = readBinary(name);
    const names = WebAssembly.Module.exports(module).map((entry) => entry.name);
    t.is(names.sort().join(' '), EXPORTS);
    t.deepEqual(WebAssembly.Module.imports(module), []);
  });
}

test('core: loadCore takes bytes, modules and responses', async (t) => {
  const module = readBinary('meshcache.wasm');
  const { readFileSync } = await import('node:fs');
  const bytes = readFileSync(new URL('../wasm/meshcache.wasm', import.meta.url));
  const cores = [await loadCore(), await loadCore(module), await loadCore(bytes), await loadCore(new Response(bytes))];
  for (const core of cores) t.true(core instanceof Core);
  t.is(new Set(cores).size, 4);
});

test('core: what is no module of this version is refused', async (t) => {
  const empty = new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]);
  for (const source of [empty, new Uint8Array(3), new Response('', { status: 404 })]) {
    await t.throwsAsync(loadCore(source), { instanceOf: MeshCacheError, code: 'ERR_CORE' });
  }
});
