import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Agent, State } from '../src/model/nouns.ts'
import { againMs, failedMs, pollMs, SILENT_MS, taskPollMs } from '../src/live/pace.ts'

const agents = (...states: State['state'][]) => states.map(state => ({ state: { state } }) as Agent)

test('V4: without a stream the page asks every second while anybody works, else every five', () => {
  assert.equal(pollMs(agents('idle', 'blocked', 'exited')), 5_000)
  assert.equal(pollMs([]), 5_000)
  for (const busy of ['working', 'starting', 'draining'] as const) assert.equal(pollMs(agents('idle', busy)), 1_000)
})

test('V4: a stream that is held back is tried again at once, then less and less often, and never given up', () => {
  assert.deepEqual([1, 2, 3, 4].map(againMs), [0, 30_000, 60_000, 120_000])
  assert.equal(againMs(50), 600_000)
})

test('V5: a task that works is asked every second, and less often the longer its answers take', () => {
  assert.equal(taskPollMs(true, 30), 1_000)
  assert.equal(taskPollMs(false, 30), 5_000)
  assert.equal(taskPollMs(true, 2_000), 10_000)
})

test('V4: what failed is tried again within seconds, and silence is noticed after one sign of life that did not come', () => {
  assert.ok(failedMs(0) < 400 && failedMs(50) <= 6_250)
  assert.ok(SILENT_MS > 15_000 && SILENT_MS < 30_000)
})
