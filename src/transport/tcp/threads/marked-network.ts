import type { Environment } from '../../../base/environment/environment.js';
import { type Connection, onConnected } from '../../../base/environment/network.js';
import { SparseLog } from '../../../base/environment/sparse-log.js';
import { setDscp } from '../../../native/unix-sockets.js';

/**
 * Returns the environment with a network that marks what its connections send with a differentiated services code
 * point. A connection that cannot be marked is used as it is, and the log says why.
 */
export function withDscp(env: Environment, dscp: number | undefined): Environment {
  if (dscp === undefined) return env;
  const { network } = env;
  const lines = new SparseLog(env);
  const mark = (connection: Connection): void => {
    const reason = setDscp(connection, dscp);
    if (reason !== '') lines.log('warn', 'a connection could not be marked with the dscp of the settings', { reason });
  };
  return {
    ...env,
    network: {
      ...network,
      connect(options) {
        const connection = network.connect(options);
        onConnected(connection, () => mark(connection));
        return connection;
      },
      createServer({ admit, ...options }, onConnection) {
        const marking = (connection: Connection): boolean => {
          mark(connection);
          return admit?.(connection) !== false;
        };
        return network.createServer({ ...options, admit: marking }, onConnection);
      },
    },
  };
}
