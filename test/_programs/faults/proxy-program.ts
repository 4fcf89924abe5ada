// Stands in front of the servers of one node, in its namespace: `HOST`. Modes come by its IPC channel; ends with it.

import { PORTS, PROXY_OFFSET } from '../../faults/network.js';
import { type ProxyMode, TcpProxy } from '../../faults/proxy.js';

const [host = ''] = process.argv.slice(2);
const proxies = Object.values(PORTS).map((port) => ({ port, proxy: new TcpProxy({ host, port }) }));
process.on('message', (mode: ProxyMode) => {
  for (const { proxy } of proxies) proxy.setMode(mode);
  process.send?.('set');
});
process.once('disconnect', () => process.exit());
await Promise.all(proxies.map(({ port, proxy }) => proxy.listen(port + PROXY_OFFSET)));
process.send?.('ready');
