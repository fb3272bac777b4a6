import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Agent, UsageSeries } from '../src/model/nouns.ts'
import { columns, labels, REST, stepName, ticks } from '../src/model/series.ts'
import { hours, secondsOf, stretches } from '../src/model/timeline.ts'

const line = (name: string, ...usd: number[]) => ({ name, usd, tokens: usd.map(each => each * 100) })
const days: UsageSeries = {
  by: 'agent', step: '1d', starts: ['2026-11-16', '2026-11-17'],
  lines: [line('amy', 1, 2), line('bob', 0, 0.5)], rest: line('3 others', 0.25, 0),
}

test('parts of a column stand on each other and add up to it', () => {
  const [first, second] = columns(days, 'usd')
  assert.deepEqual(first!.parts.map(part => [part.name, part.place, part.from, part.to]), [['amy', 0, 0, 1], ['3 others', REST, 1, 1.25]])
  assert.deepEqual([first!.sum, second!.sum], [1.25, 2.5])
  assert.equal(columns(days, 'tokens')[1]!.sum, 250)
})

test('the axis has few round figures, and none is missing at the top', () => {
  assert.deepEqual(ticks(3.3), [0, 1, 2, 3, 4])
  assert.deepEqual(ticks(165_300), [0, 50_000, 100_000, 150_000, 200_000])
  for (const most of [0, 1e-9, 0.0042, 0.05, 1, 9.99, 10, 123_456, 4e12]) {
    const found = ticks(most)
    assert.ok(found.length >= 2 && found.length <= 6 && found.at(-1)! >= most, `${most}: ${found}`)
  }
})

test('labels under the columns fit, and today is one of them', () => {
  const starts = Array.from({ length: 30 }, (_, at) => `2026-11-${String(at + 1).padStart(2, '0')}`)
  for (const room of [0.3, 2, 5, 40]) {
    const found = labels({ ...days, starts }, room)
    assert.ok(found.length <= Math.max(1, room) && found.at(-1)!.at === 29)
  }
  const quarters = Array.from({ length: 96 }, (_, at) => `2026-11-17T${String(Math.floor(at / 4)).padStart(2, '0')}:${String((at % 4) * 15).padStart(2, '0')}-05:00`)
  assert.deepEqual(labels({ ...days, step: '15m', starts: quarters }, 20).map(each => each.text), ['00:00', '03:00', '06:00', '09:00', '12:00', '15:00', '18:00', '21:00'])
  assert.equal(stepName(quarters[57]!), 'Tue, Nov 17, 14:15')
})

const agent = (name: string, since: number, state: string) => ({ name, since, state: { state } }) as unknown as Agent

test('stretches are cut to the time that is shown, and who is gone has none', () => {
  const timeline = { since: 100, tracks: [{ agent: 'amy', changes: [
    { at: 50, state: { state: 'idle' as const } }, { at: 120, state: { state: 'working' as const } },
    { at: 130, state: { state: 'working' as const, tool: 'Bash' } }, { at: 150, state: { state: 'exited' as const } },
  ] }] }
  const [amy, bob, ...rest] = stretches(timeline, [agent('amy', 150, 'exited'), agent('bob', 10, 'idle'), agent('cleo', 20, 'ended')], 100, 200)
  assert.deepEqual(amy!.stretches.map(one => [one.from, one.to, one.word]), [[100, 120, 'idle'], [120, 150, 'working']])
  assert.equal(secondsOf(amy!, 'work'), 30)
  assert.deepEqual(bob!.stretches.map(one => [one.from, one.to]), [[100, 200]])
  assert.deepEqual(rest, [])
})

test('hours under the tracks are round in local time', () => {
  const offset = 5.5 * 3600
  for (const [from, to] of [[1_000_000, 1_003_600], [1_000_000, 1_086_400]] as const) {
    const found = hours(from, to, offset)
    assert.ok(found.length >= 5 && found.length <= 8)
    assert.ok(found.every(at => at >= from && at <= to && (at + offset) % 600 === 0))
  }
})
