/**
 * Registers as many bytes as the argument says, and writes what becomes of it: `{"code", "message"}`, `ok` when it is
 * done.
 */
import { HostRegion } from '../../../src/memory/host-region.js';
import { TransferEngine } from '../../../src/native/transfer-engine.js';

const length = Number(process.argv[2]);
const outcome = { code: 'ok', message: '' };
try {
  await using engine = new TransferEngine();
  engine.registerMr(HostRegion.allocate(length).addr, length);
} catch (error) {
  const { code, message } = error as Error & { code: string };
  Object.assign(outcome, { code, message });
}
process.stdout.write(JSON.stringify(outcome));
