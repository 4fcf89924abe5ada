import test from 'ava';
import { MEMBERS_MAX_COUNT } from '../../src/base/limits.js';
import { ToldOwners } from '../../src/directory/owners/told-owners.js';

test('told owners: one is forgotten when it has taken that all is void that it was told', (t) => {
  const owners = new ToldOwners();
  owners.told('a', 3);
  owners.told('a', 7);
  owners.renounced('a', 5);
  t.true(owners.has('a'));
  owners.renounced('a', 7);
  t.false(owners.has('a'));
  owners.renounced('b', 1);
});

test('told owners: those that came and went do not stay for ever', (t) => {
  const owners = new ToldOwners();
  for (let i = 0; i < MEMBERS_MAX_COUNT + 10; i++) owners.told(`node ${i}`, i);
  owners.verify();
  t.false(owners.has('node 9'));
  t.true(owners.has('node 10'));
  t.true(owners.has(`node ${MEMBERS_MAX_COUNT + 9}`));
});
