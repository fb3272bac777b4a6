import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Entry } from '../src/model/nouns.ts'
import { addEntries, givenText, turns } from '../src/model/conversation.ts'
import { addSaid, type Said } from '../src/live/task.ts'
import { readRoute } from '../src/live/route.ts'

const entry = (kind: Entry['kind'], text: string, key = '', tool = ''): Entry => ({ kind, text, key, tool, at: 0, call: '', input: null })

test('an entry that comes again with more in it takes the place of the first', () => {
  const all = addEntries([entry('prompt', 'go', 'p'), entry('answer', 'I', 'a')], [entry('answer', 'I will', 'a'), entry('tool', 'ls', 't', 'Bash')])
  assert.deepEqual(all.map(one => one.text), ['go', 'I will', 'ls'])
})

test('results stand with their tools', () => {
  const found = turns([entry('tool', 'ls', '', 'Bash'), entry('tool', 'pwd', '', 'Bash'), entry('result', 'a'), entry('result', '/b'), entry('answer', ' ')])
  assert.deepEqual(found.map(turn => [turn.text, turn.result]), [['ls', 'a'], ['pwd', '/b']])
})

test('V6: of tools that were used at once each has its own result, by the id of the call', () => {
  const all = [
    { ...entry('tool', 'ls', 'l', 'Bash'), call: '1' }, { ...entry('tool', 'pwd', 'l', 'Bash'), call: '2' }, entry('answer', 'I look'),
    { ...entry('result', '/b', 'r'), call: '2' }, { ...entry('result', 'of nobody', 'r'), call: '9' }, { ...entry('result', 'a', 'r'), call: '1' },
  ]
  const shown = turns(addEntries([], all))
  assert.deepEqual(shown.map(turn => [turn.text, turn.result]), [['ls', 'a'], ['pwd', '/b'], ['I look', null]])
  assert.equal(new Set(shown.map(turn => turn.key)).size, 3)
})

test('all that a tool was given is there, what it is about first', () => {
  const long = 'x'.repeat(300)
  assert.equal(givenText({ text: long.slice(0, 200), input: { description: 'Run it', command: `${long}\nls` } }), `${long}\nls\n⟨description⟩ Run it`)
  assert.equal(givenText({ text: 'ls', input: null }), 'ls')
  assert.equal(givenText({ text: '', input: { n: 1 } }), '⟨n⟩ 1')
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
