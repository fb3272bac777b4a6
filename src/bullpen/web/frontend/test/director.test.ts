import assert from 'node:assert/strict'
import { test } from 'node:test'
import { canLand, directorDetail, directorLook, goalBranch, isNotable, lastLook, lastRun, overLook, taskTitle, troubleLook, troubleOf, troubleText } from '../src/model/director.ts'
import type { Director, Landing, ScheduledEntry, Trouble } from '../src/model/nouns.ts'

const entry: ScheduledEntry = { name: 'tidy', cron: '@daily', timezone: 'UTC', last: null, running: [] }
const failed = { state: 'failed', reason: 'no wings', completed_at: 1 }

test('the last run of an entry', () => {
  const cases: [Partial<ScheduledEntry>, string, string][] = [
    [{}, 'has not run yet', 'idle'],
    [{ running: null }, 'has not run yet', 'idle'],
    [{ running: ['x'] }, 'runs now', 'work'],
    [{ last: failed }, 'failed: no wings', 'bad'],
    [{ last: failed, running: ['x'] }, 'runs now · before: failed: no wings', 'work'],
    [{ last: { state: 'completed', reason: null, completed_at: 1 } }, 'completed', 'done'],
    [{ last: { state: 'skipped', reason: 'overlap', completed_at: 1 } }, 'skipped: overlap', 'wait'],
  ]
  for (const [change, text, look] of cases) {
    assert.equal(lastRun({ ...entry, ...change }), text)
    assert.equal(lastLook({ ...entry, ...change }), look)
  }
})

test('what is over, and what a goal is called', () => {
  const row = { id: 'g-1', state: 'completed', task_id: 't', completed_at: 1, reason: '' }
  const looks = ['completed', 'failed', 'given up', 'left to pat'].map(state => overLook({ ...row, state }))
  assert.deepEqual(looks, ['done', 'bad', 'bad', 'idle'])
  assert.equal(taskTitle({ ...row, goal: 'ship it' }), 'ship it')
})

test('how the work of a goal is taken, if there is any', () => {
  const row = { id: 'g-1', state: 'completed', task_id: 't', completed_at: 1, reason: '' }
  const made = { ...row, branch: 'lead-g-1', commit_count: 2 }
  const refused = { target: 'main', branch: 'lead-g-1', status: { state: 'refused', message: 'main is protected' } } as Landing
  const landed = { ...refused, status: { state: 'landed', commit: '8c1d2e0aaaa', is_there: false } } as Landing
  const lines: [typeof made, Landing | undefined][] = [[made, undefined], [made, refused], [made, landed], [{ ...made, commit_count: 0 }, undefined], [{ ...made, branch: '' }, undefined]]
  assert.deepEqual(lines.map(([one, landing]) => [goalBranch(one, landing), canLand(one, landing)]), [
    ['2 commits on branch lead-g-1 · to look at it: bullpen diff lead-g-1', true],
    ['2 commits on branch lead-g-1 · main is protected → main', true],
    ['2 commits on branch lead-g-1 · landed as 8c1d2e0 → main', false],
    ['nothing has landed on its branch lead-g-1', false],
    ['', false],
  ])
})

const stopped: Director = {
  name: 'nightly', state: 'stopped', since: null, problem: '', restarts: 0, again_at: null, pid: null, file_problem: '', says: null,
}

test('a director whose file is wrong is shown with where, also when it does not run', () => {
  const where = 'directors/nightly.yaml:2: port "x" is no whole number'
  assert.deepEqual([isNotable(stopped), directorLook(stopped), directorDetail(stopped)], [false, 'done', ''])
  const wrong = { ...stopped, file_problem: where }
  assert.deepEqual([isNotable(wrong), directorLook(wrong), directorDetail(wrong)], [true, 'bad', where])
  const running: Director = { ...wrong, state: 'idle' }
  assert.deepEqual([isNotable(running), directorLook(running)], [true, 'wait'])
})

test('a director that holds work and is held up does not look like one that works', () => {
  const looks = ['', 'no agent is free'].map(problem => directorLook({ ...stopped, state: 'working', problem }))
  assert.deepEqual(looks, ['work', 'wait'])
})

test('what holds up a goal is said in the words of `bullpen director list`', () => {
  const trouble: Trouble = { about: 'g-1', reason: 'no agent lead runs\n(it ended)', hint: 'bullpen agent start lead', failures: 2, at: 100, wait_seconds: 20, is_given_up: false }
  assert.equal(troubleText(trouble, 108), 'no agent lead runs · (it ended) · again in 12 s · bullpen agent start lead')
  assert.equal(troubleText({ ...trouble, hint: '', is_given_up: true }, 108), 'no agent lead runs · (it ended) · given up')
  assert.deepEqual([troubleLook(trouble), troubleLook({ ...trouble, is_given_up: true })], ['wait', 'bad'])
  const whole = { ...trouble, about: '' }
  assert.equal(troubleOf({ id: 'g-1' }, [whole, trouble]), trouble)
  assert.equal(troubleOf({ id: '' }, [whole, trouble]), undefined)
})
