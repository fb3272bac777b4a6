import assert from 'node:assert/strict'
import { test } from 'node:test'
import { landingWords } from '../src/model/landing.ts'
import type { Landing, LandingState } from '../src/model/nouns.ts'

function entry(status: LandingState): Landing {
  return { id: 'l-1', name: 'amy', branch: 'amy', target: 'main', tip: 'f'.repeat(40), verify: '', strategy: 'merge', by: '', created: 1, status }
}

test('n3 what was taken out of the queue says why', () => {
  assert.equal(landingWords(entry({ state: 'cancelled', reason: 'its agent was removed', at: 2 })), 'was taken out of the queue: its agent was removed')
  assert.equal(landingWords(entry({ state: 'cancelled', reason: '', at: 2 })), 'was taken out of the queue')
})

test('n3 only an agent is said to have been told what is wrong', () => {
  const back = { state: 'came_back', why: 'conflict', base: 'b', files: ['auth.py'], problem: '', output: '', is_agent_running: true, at: 2 } as const
  assert.equal(landingWords(entry({ ...back, files: [...back.files], is_agent_told: true })), 'conflicts in auth.py; its author was told')
  assert.equal(landingWords(entry({ ...back, files: [...back.files], is_agent_told: false })), 'conflicts in auth.py; no agent has it, it lands when you have committed on amy')
  assert.equal(landingWords(entry({ ...back, files: [...back.files], is_agent_told: true, is_agent_running: false })), 'conflicts in auth.py; its author does not run, the message waits for it')
})
