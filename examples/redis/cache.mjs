// Shares values with all nodes of a cluster by the Redis protocol, and checks that they come back byte for byte.
import { randomBytes } from 'node:crypto';
import { Redis } from 'ioredis';

const redis = new Redis(process.env.REDIS_URL ?? 'redis://127.0.0.1:6379');
const value = randomBytes(1 << 20);
console.log('set:', await redis.set('page-0', value));
console.log('the same:', value.equals((await redis.getBuffer('page-0')) ?? Buffer.alloc(0)));
console.log('exist:', await redis.exists('page-0', 'page-1'));
console.log('get:', await redis.mget('page-1', 'page-2'));
console.log('del:', await redis.del('page-0', 'page-1'));
await redis.quit();
