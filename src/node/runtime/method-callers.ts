import type { Right } from '../../net/users/user.js';

/**
 * The callers of each method of the control plane and of discovery: a `member`, which is whoever knows the cluster's
 * secret, or has its certificates; or a user of the called node with this right, who is an operator. Members make no
 * calls of operators. A method without an entry is refused.
 */
export const METHOD_CALLERS: Readonly<Record<string, 'member' | Right>> = {
  'directory.put': 'member',
  'directory.get': 'member',
  'directory.exists': 'member',
  'directory.delete': 'member',
  'directory.discard': 'member',
  'directory.note': 'member',
  'directory.renounce': 'member',
  'directory.announced': 'member',
  'pages.hold': 'member',
  'pages.release': 'member',
  'pages.clear': 'member',
  'pages.drop': 'member',
  'pages.restate': 'member',
  'pool.touch': 'member',
  'pool.restate': 'member',
  'node.known': 'member',
  'node.status': 'member',
  'node.history': 'member',
  'node.drain': 'drain',
  'discovery.register': 'member',
  'discovery.heartbeat': 'member',
  'discovery.leave': 'member',
  'discovery.members': 'member',
};
