import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { LOOPBACK } from '../processes/free-port.js';
import { bulkHead, CRLF, nilOf, OK } from '../resp/wire/resp-answers.js';
import { RespParser } from '../resp/wire/resp-parser.js';

/**
 * Starts a server that keeps the values of SET in a Map and answers GET from it: what Node.js itself takes, as nothing
 * is looked up, checked or counted. Resolves with its port.
 */
export async function startBareServer(): Promise<number> {
  const values = new Map<string, Buffer>();
  const server = createServer({ noDelay: true }, (socket) => serve(socket, values));
  server.listen(0, LOOPBACK);
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

function serve(socket: Socket, values: Map<string, Buffer>): void {
  const parser = new RespParser({
    onCommand([, key, value]) {
      const name = key?.toString('latin1') ?? '';
      if (value !== undefined) {
        values.set(name, value as Buffer);
        socket.write(OK);
        return;
      }
      const found = values.get(name);
      if (found === undefined) {
        socket.write(nilOf(2));
        return;
      }
      socket.write(bulkHead(found.length));
      socket.write(found);
      socket.write(CRLF);
    },
    beginLarge: () => true,
    reserve: () => 'now',
    reserveWords: () => 'now',
    grow: (body, bytes) => {
      const grown = Buffer.allocUnsafeSlow(bytes);
      grown.set(body);
      return grown;
    },
    isTrusted: () => true,
  });
  socket.on('error', () => {});
  socket.on('data', (bytes) => {
    socket.cork();
    parser.receive(bytes);
    socket.uncork();
  });
}
