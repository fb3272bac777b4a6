import assert from 'node:assert/strict'
import { test } from 'node:test'
import { clashes, fileNames, lastOnBranches } from '../src/model/conflicts.ts'
import type { Agent } from '../src/model/nouns.ts'

const agent = (name: string, tree: string | null, running = true) => ({ name, running, worktree: tree === null ? null : { name: tree } }) as Agent
const agents = { amy: agent('amy', 'amy'), bob: agent('bob', 'bobs-tree', false), cleo: agent('cleo', 'cleo', false), plain: agent('plain', null) }

test('V9: those who conflict are named by their agents, and one of them runs', () => {
  const pairs = [
    { one: 'amy', other: 'bobs-tree', files: ['a'] }, { one: 'bobs-tree', other: 'cleo', files: ['b'] },
    { one: 'amy', other: 'main', files: ['c'] }, { one: 'old', other: 'main', files: ['d'] },
  ]
  const names = (isLive: boolean) => clashes(pairs, agents, isLive).map(({ one, other }) => [one.name, other.name, other.agent?.name])
  assert.deepEqual(names(true), [['amy', 'bob', 'bob'], ['amy', 'main', undefined]])
  assert.equal(names(false).length, 4)
})

test('V9: of many files the first are named, and one more is no "more"', () => {
  assert.equal(fileNames(['a', 'b', 'c', 'd']), 'a, b, c, d')
  assert.equal(fileNames(['a', 'b', 'c', 'd', 'e']), 'a, b, c and 2 more')
})

test('V9: only what happens to agents with a branch is a reason to look again', () => {
  assert.equal(lastOnBranches({ agents, touched: { plain: 90, gone: 91 }, loaded: 7 }), 7)
  assert.equal(lastOnBranches({ agents, touched: { plain: 90, bob: 12 }, loaded: 7 }), 12)
})
