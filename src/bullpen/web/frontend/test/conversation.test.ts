import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Entry } from '../src/model/nouns.ts'
import { addEntries, turns } from '../src/model/conversation.ts'
import { addSaid, type Said } from '../src/live/task.ts'
import { readRoute } from '../src/live/route.ts'

const entry = (kind: Entry['kind'], text: string, key = '', tool = ''): Entry => ({ kind, text, key, tool, at: 0 })

test('an entry that comes again with more in it takes the place of the first', () => {
  const all = addEntries([entry('prompt', 'go', 'p'), entry('answer', 'I', 'a')], [entry('answer', 'I will', 'a'), entry('tool', 'ls', 't', 'Bash')])
  assert.deepEqual(all.map(one => one.text), ['go', 'I will', 'ls'])
})

test('results stand with their tools', () => {
  const found = turns([entry('tool', 'ls', '', 'Bash'), entry('tool', 'pwd', '', 'Bash'), entry('result', 'a'), entry('result', '/b'), entry('answer', ' ')])
  assert.deepEqual(found.map(turn => [turn.text, turn.result]), [['ls', 'a'], ['pwd', '/b']])
})

test('pieces of a text become the text', () => {
  const heard = [['partial', { text: 'Al', is_first: true }], ['partial', { text: 'l' }], ['text', { text: 'All done' }], ['tool', { tool: 'Bash', detail: 'ls' }]] as const
  const said = heard.reduce<Said[]>((all, [name, data]) => addSaid(all, { name, data }), [])
  assert.deepEqual(said, [{ is: 'text', text: 'All done', isPartial: false }, { is: 'tool', tool: 'Bash', detail: 'ls' }])
})

test('every place has an address', () => {
  assert.deepEqual(readRoute('/agents/main.csv/terminal'), { page: 'agent', name: 'main.csv', tab: 'terminal' })
  assert.deepEqual(readRoute('/agents/%E0%A4%A/odd'), { page: 'agent', name: '%E0%A4%A', tab: null })
  assert.deepEqual(readRoute('/approvals/7'), { page: 'approvals', id: 7 })
  assert.equal(readRoute('/elsewhere').page, 'nowhere')
})
