import { HostRegion } from '../../../src/memory/host-region.js';

/** Allocates memory that other processes can map, and prints why that failed. */
try {
  HostRegion.allocate(4096, { shared: true }).free();
  console.log('allocated');
} catch (error) {
  console.log((error as Error).message);
}
HostRegion.allocate(4096).free();
