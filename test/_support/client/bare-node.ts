import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { FrameReceiver } from '../../../src/clients/wire/frame-receiver.js';
import {
  decodeKeyRequest,
  decodeSetBytes,
  encodeBytesAnswer,
  encodeHelloAnswer,
  RequestType,
} from '../../../src/clients/wire/messages.js';
import type { PagePriority } from '../../../src/core/index.js';
import { folder } from '../clients/client-fixture.js';
import { ended } from '../clients/received.js';
import { frame } from '../clients/test-client.js';
import { content } from '../support.js';

/** A node that does nothing but say hello, and remember what requests on the socket tell. */
export async function bareNode(t: ExecutionContext, capabilities: number) {
  const told: { readonly type: number; readonly hint: number; readonly continues: boolean }[] = [];
  const priorities: (PagePriority | undefined)[] = [];
  const server = createServer((socket) => serve(socket));
  const path = join(folder(t), 'node.sock');
  const sockets = new Set<Socket>();
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const serve = (socket: Socket): void => {
    sockets.add(socket);
    const receiver = new FrameReceiver({
      check() {},
      onBegin: () => true,
      onFrame({ type, requestId }, body) {
        let answer: Buffer = Buffer.alloc(0);
        if (type === RequestType.hello) {
          answer = encodeHelloAnswer({
            version: 1,
            capabilities,
            bootToken: Buffer.alloc(16),
            attachToken: Buffer.alloc(16),
            pid: 1,
            requestMaxKeys: 2,
            bodyMaxBytes: 2 ** 20,
            inFlightMaxCount: 16,
            pageMaxBytes: 2 ** 20,
            stagingMaxBytes: 0,
            nodeId: 'bare',
            packageVersion: '0',
          });
        } else if (type === RequestType.setBytes) {
          const { keys, hint = 0, continues = false, priority } = decodeSetBytes(body, 2);
          priorities.push(priority);
          told.push({ type, hint, continues });
          answer = Buffer.alloc(keys.count, 1);
        } else if (type === RequestType.getBytes) {
          const { keys, hint, continues } = decodeKeyRequest(body, 2, { hasFlags: true });
          told.push({ type, hint, continues });
          answer = Buffer.concat(ended(encodeBytesAnswer(keys.all().map(() => content(1, 10)))));
        }
        socket.write(frame(type, requestId, answer));
      },
    });
    socket.on('data', (chunk: Buffer) => receiver.receive(chunk));
  };
  server.listen(path);
  await once(server, 'listening');
  return { path, told, priorities };
}
