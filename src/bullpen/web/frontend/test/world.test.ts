import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Agent, Approval, HubEvent } from '../src/model/nouns.ts'
import { SentReader } from '../src/live/sse.ts'
import { mergeAgents, NOTHING, take, waitingIn } from '../src/live/world.ts'
import { gather, newsOf } from '../src/live/news.ts'
import { group, listingSearch, readListing } from '../src/model/groups.ts'

function agent(name: string, fields: Partial<Agent> = {}): Agent {
  return { name, run: 'r', role: '', pod: '', parent: '', kind: 'interactive', engine: 'claude', model: '', birth_branch: '', is_sandboxed: false, cwd: '', worktree: null, created: '', budget: {}, state: { state: 'idle' }, words: 'idle', since: 10, running: true, tokens: 0, usd: 0, messages: 0, summary: '', ...fields }
}
function event(id: number, kind: string, data: Record<string, unknown> = {}, name = 'amy'): HubEvent {
  return { id, time: id, kind, agent: name, data }
}
const WORLD = { ...NOTHING, agents: { amy: agent('amy') } }

test('a block that comes in pieces is one event, and a comment is a sign of life', () => {
  const reader = new SentReader()
  assert.deepEqual(reader.feed(': ping\nid: 7\n\nid: 8\nevent: agent.st'), [{ id: '7', name: '', data: '' }])
  assert.deepEqual(reader.feed('ate\ndata: {"a":\ndata: 1}\n\n'), [{ id: '8', name: 'agent.state', data: '{"a":\n1}' }])
})

test('an event counts once, and an old one changes nothing', () => {
  const working = event(5, 'agent.state', { run: 'r', since: 20, state: { state: 'working', tool: 'Bash' } })
  const once = take(WORLD, [working, working, event(4, 'agent.stopped')])
  assert.equal(once.world.agents['amy']!.state.state, 'working')
  assert.equal(once.world.lastEvent, 5)
  assert.equal(once.stale.size, 0)
  const late = take(once.world, [event(6, 'agent.state', { run: 'r', since: 15, state: { state: 'blocked' } })])
  assert.equal(late.world.agents['amy']!.state.state, 'working')
})

test('a state of another run, or of somebody unknown, asks for the list', () => {
  assert.ok(take(WORLD, [event(1, 'agent.state', { run: 'other', since: 99, state: { state: 'idle' } })]).stale.has('agents'))
  assert.ok(take(WORLD, [event(1, 'agent.state', { run: 'r', since: 1, state: { state: 'idle' } }, 'bob')]).stale.has('agents'))
  assert.ok(take(WORLD, [event(1, 'approval.asked')]).stale.has('approvals'))
})

test('a list that was fetched before an event does not bring the old state back', () => {
  const { world } = take(WORLD, [event(5, 'agent.state', { run: 'r', since: 20, state: { state: 'working' } })])
  assert.equal(mergeAgents(world, [agent('amy', { since: 10, usd: 1 })])['amy']!.state.state, 'working')
  assert.equal(mergeAgents(world, [agent('amy', { since: 10, usd: 1 })])['amy']!.usd, 1)
  assert.equal(mergeAgents(world, [agent('amy', { since: 30 })])['amy']!.state.state, 'idle')
  assert.equal(mergeAgents(WORLD, [agent('amy')])['amy'], WORLD.agents.amy)
})

test('who asks in its own terminal waits too, and who is in the inbox is counted once', () => {
  const blocked = (name: string) => agent(name, { run: name, state: { state: 'blocked' } })
  const approvals = [{ run: 'amy' }, { run: 'director:x' }] as Approval[]
  assert.equal(waitingIn({ ...NOTHING, approvals, agents: { amy: blocked('amy'), bob: blocked('bob'), cleo: agent('cleo') } }), 3)
})

test('what happened to many at once is one line', () => {
  const news = [event(3, 'agent.started', {}, 'c'), event(2, 'agent.started', {}, 'b'), event(1, 'agent.stopped', { code: 1 }, 'a')].map(one => newsOf(one)!)
  assert.deepEqual(gather(news).map(line => [line.agent, line.others, line.text]), [['c', 1, 'started'], ['a', 0, 'ended with code 1']])
})

test('what one agent did several times is no work of others', () => {
  const done = (id: number, name: string) => newsOf(event(id, 'task.state', { task: `t-${id}`, state: 'completed' }, name))!
  assert.deepEqual(gather([done(3, 'amy'), done(2, 'amy'), done(1, 'amy')]).map(line => [line.agent, line.others, line.times]), [['amy', 0, 3]])
  assert.deepEqual(gather([done(3, 'amy'), done(2, 'bob'), done(1, 'amy')]).map(line => [line.agent, line.others, line.times]), [['amy', 1, 3]])
})

test('what is of no agent is said of what it is', () => {
  const said = (kind: string, data: Record<string, unknown>) => { const news = newsOf(event(1, kind, data, '')); return news && [news.agent, news.text, news.tone] }
  assert.deepEqual(said('task.state', { task: 't-1', state: 'cancelled' }), ['', 'A task was cancelled', 'plain'])
  assert.deepEqual(said('pod.finished', { pod: 'bugfix', failed: '' }), ['', 'Pod bugfix has finished', 'good'])
  assert.deepEqual(said('pod.finished', { pod: 'bugfix', failed: 'a test' }), ['', 'Pod bugfix has failed', 'bad'])
})

test('a plain program, which reports no state, is not in trouble', () => {
  const plain = agent('sh', { engine: 'command', state: { state: 'unknown', missing: 'it reports no state' } })
  const mute = agent('amy', { state: { state: 'unknown', missing: 'its holder does not answer' } })
  assert.deepEqual(group([plain, mute], 'state').map(one => [one.title, one.rows.length]), [['In trouble', 1], ['Running', 1]])
})

test('children stand under their parents, also in a circle', () => {
  const rows = group([agent('b', { parent: 'a' }), agent('a'), agent('c', { parent: 'b' })], 'tree')[0]!.rows
  assert.deepEqual(rows.map(row => `${row.depth}${row.agent.name}`), ['0a', '1b', '2c'])
  assert.equal(group([agent('a', { parent: 'b' }), agent('b', { parent: 'a' })], 'tree')[0]!.rows.length, 2)
})

test('news are told in words, with where to look', () => {
  const said = (kind: string, data: Record<string, unknown>, name = 'amy') => { const news = newsOf(event(1, kind, data, name)); return news && [news.agent, news.text, news.to] }
  assert.deepEqual(said('landing.state', { landing: 'l-1', target: 'main', status: { state: 'landed' } }), ['amy', 'landed on main', '/changes'])
  assert.deepEqual(said('task.state', { task: 't-1', state: 'failed' }), ['amy', 'failed a task', '/tasks/t-1'])
  assert.deepEqual(said('message.sent', { from: 'bob' }, 'root'), ['bob', 'wrote to you', '/approvals'])
  assert.deepEqual(said('approval.answered', { decision: 'deny', by: 'owner', name: 'Ann' }), ['amy', 'was denied by Ann', '/approvals'])
  assert.deepEqual(said('agent.failed', { run: 'r', why: 'API 400' }), ['amy', 'failed: API 400', '/agents/amy'])
  assert.equal(said('hook.received', {}), null)
})

test('V4: filter and grouping are in the address, and what makes no sense there is nothing', () => {
  const whole = { filter: 'amy coder & co', by: 'tree' } as const
  assert.deepEqual(readListing(listingSearch(whole)), whole)
  assert.equal(listingSearch({ filter: '', by: 'state' }), '')
  assert.deepEqual(readListing('?by=cost&agents=x'), { filter: '', by: 'state' })
})
