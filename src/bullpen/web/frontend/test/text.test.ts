import assert from 'node:assert/strict'
import { test } from 'node:test'
import { clock, count, exactClock, literal, money, sizeOf, span } from '../src/model/text.ts'

test('what is invisible or reorders a line is written out', () => {
  assert.equal(literal('rm\u202e -rf\u0007\u200b'), 'rm⟨U+202E⟩ -rf⟨U+0007⟩⟨U+200B⟩')
  assert.equal(literal('a\u001b[2Jb'), 'a⟨U+001B⟩[2Jb')
  assert.equal(literal('\ud800'), '⟨U+D800⟩')
  assert.equal(literal('\u{e0041}x'), '⟨U+E0041⟩x')
  assert.equal(literal('one\n\ttwo ä 漢 🙂'), 'one\n\ttwo ä 漢 🙂')
})

test('a long empty stretch cannot push a command out of sight', () => {
  assert.equal(literal(`ls${' '.repeat(300)}; rm x`), 'ls⟨300 spaces⟩; rm x')
})

test('of a text whose end may not be seen the length is said', () => {
  assert.equal(sizeOf('make all'), '')
  assert.equal(sizeOf(`ls${'\n'.repeat(100)}rm x\n`), '101 lines')
  assert.equal(sizeOf(`echo ${'A'.repeat(3000)}`), '3005 characters')
})

test('figures are short', () => {
  assert.deepEqual([12, 240, 3720, 200_000].map(span), ['12 s', '4 min', '1 h 02', '2 d'])
  assert.deepEqual([950, 41_200, 999_960, 1_500_000].map(count), ['950', '41.2k', '1M', '1.5M'])
  assert.deepEqual([0, 0.001, 0.384, 1234.5].map(money), ['$0.00', '<$0.01', '$0.38', '$1,234.50'])
  const noon = new Date(2026, 10, 17, 14, 2).getTime() / 1000
  assert.equal(clock(noon, noon), '14:02')
  assert.equal(clock(noon, noon + 86_400), '2026-11-17 14:02')
  assert.equal(exactClock(noon + 9, noon), '14:02:09')
})
