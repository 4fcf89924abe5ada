import { DirectoryClient } from '../../src/directory/client.js';
import { DirectoryShard } from '../../src/directory/shard.js';
import { Taken } from '../../src/directory/taken.js';
import { PageStamps } from '../../src/pool/page-stamps.js';
import { PageStatements } from '../../src/store/page-statements.js';
import type { Canary } from './protocol.js';

/** Plants faults in this process's own code, before its store is created. */
export function plant(canaries: readonly Canary[]): void {
  if (canaries.includes('lost')) announceLess();
  if (canaries.includes('unstamped')) PageStamps.prototype.destroy = () => {};
  if (canaries.includes('undropped')) PageStatements.prototype.drop = async () => {};
  if (canaries.includes('unordered')) forgetVersions();
}

/** Some pages are announced nowhere, and that is called a success. */
function announceLess(): void {
  const state = DirectoryClient.prototype.state;
  const isLost = (key: string | undefined) => key?.endsWith('7') === true;
  DirectoryClient.prototype.state = async function (keys, locations, options) {
    const told = keys.map((_, i) => i).filter((i) => !isLost(keys[i]));
    const pick = <T>(from: readonly T[]) => told.map((i) => from[i] as T);
    const taken = [...(await state.call(this, pick(keys), pick(locations), options))];
    return Uint8Array.from(keys, (key) => (isLost(key) ? Taken.taken : (taken.shift() as number)));
  };
}

/** Locations without versions go together with everything: each that is stated stays beside the others. */
function forgetVersions(): void {
  const put = DirectoryShard.prototype.put;
  DirectoryShard.prototype.put = function (keys, locations, options) {
    locations.version.fill(0);
    return put.call(this, keys, locations, options);
  };
}
