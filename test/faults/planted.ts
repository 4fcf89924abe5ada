import { pickKeys, stringsOf } from '../../src/core/binding/key-batch.js';
import { DirectoryClient } from '../../src/directory/client.js';
import { Taken } from '../../src/directory/messages/taken.js';
import { OwnerChannels } from '../../src/directory/owners/owner-channels.js';
import { LocationSlab } from '../../src/directory/shard/location-slab.js';
import { DirectoryShard } from '../../src/directory/shard/shard.js';
import { PageStamps } from '../../src/pool/page-stamps.js';
import { PageStatements } from '../../src/store/ground/page-statements.js';
import type { Canary } from './protocol.js';

const UNDELIVERED_ONE_IN = 3;

/** Plants faults in this process's own code, before its store is created. */
export function plant(canaries: readonly Canary[]): void {
  if (canaries.includes('lost')) announceLess();
  if (canaries.includes('unfreed')) LocationSlab.prototype.free = () => {};
  if (canaries.includes('unstamped')) PageStamps.prototype.destroy = () => {};
  if (canaries.includes('undropped')) PageStatements.prototype.drop = async () => {};
  if (canaries.includes('unordered')) forgetVersions();
  if (canaries.includes('undelivered')) loseStatements();
}

/** Some pages are announced nowhere, and that is called a success. */
function announceLess(): void {
  const state = DirectoryClient.prototype.state;
  const isLost = (key: string | undefined) => key?.endsWith('7') === true;
  DirectoryClient.prototype.state = async function (asked, columns, options) {
    const keys = stringsOf(asked);
    const told = keys.map((_, i) => i).filter((i) => !isLost(keys[i]));
    const taken = [...(await state.call(this, pickKeys(asked, told), columns.pick(told), options))];
    return Uint8Array.from(keys, (key) => (isLost(key) ? Taken.taken : (taken.shift() as number)));
  };
}

/** Of the statements to other nodes' shards, some are not sent, and are called taken. */
function loseStatements(): void {
  const put = OwnerChannels.prototype.put;
  let count = 0;
  OwnerChannels.prototype.put = async function (ownerId, keys, columns, unlessHeld) {
    if (++count % UNDELIVERED_ONE_IN !== 0) return put.call(this, ownerId, keys, columns, unlessHeld);
    return { taken: new Uint8Array(columns.count).fill(Taken.taken), newestVersion: 0 };
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
