import test from 'ava';
import { allMembers } from '../../src/cli/status/cluster-query.js';
import { NodeInfo } from '../../src/types.js';

const node = (nodeId: string, incarnation: number, controlPort = 1): NodeInfo =>
  new NodeInfo({
    nodeId,
    incarnation,
    protocols: ['tcp'],
    rdmaHost: '',
    rdmaPort: 0,
    tcpHost: '10.0.0.1',
    tcpPort: 2,
    controlHost: '10.0.0.1',
    controlPort,
  });
const listOf = (...nodes: NodeInfo[]) => new Map(nodes.map((each) => [each.nodeId, each]));

test('cluster query: a master that is cut off hides no node, and brings none back that has left', (t) => {
  const cutOff = { members: listOf(node('head', 1), node('restarted', 5, 1), node('left', 6)), gone: [] };
  const others = {
    members: listOf(node('restarted', 9, 77), node('new', 10)),
    gone: [
      { nodeId: 'head', incarnation: 1 },
      { nodeId: 'left', incarnation: 6, hasLeft: true as const },
    ],
  };
  for (const rosters of [
    [cutOff, others],
    [others, cutOff],
  ]) {
    const members = allMembers(rosters).sort((a, b) => a.incarnation - b.incarnation);
    t.deepEqual(
      members.map(({ nodeId, controlPort }) => [nodeId, controlPort]),
      [
        ['head', 1],
        ['restarted', 77],
        ['new', 1],
      ],
    );
  }
});
